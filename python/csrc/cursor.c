/*
** cursor.c - iterators over a range of a map: keys, values or both.
**
** An open cursor is an open SELECT of its connection. It is closed when it has come to its end or has failed, or its iterator is dropped.
*/
#include "plait_py.h"

enum { KEYS, VALUES, ITEMS };

typedef struct {
  PyObject_HEAD
  Handle *h;
  Child *child;             /* NULL once it has ended */
  PyObject *decode;
  PyObject *map;            /* kept as long as this: the end of its database would close the connection */
  int what, is_reverse, key_kind, value_kind;
} Cursor;

/* A new iterator; the connection has been entered. */
PyObject *cursor_new(
  PyObject *map, Handle *h, const plait_range *range, int what, int is_reverse, int key_kind, int value_kind, PyObject *decode
){
  Connection *c = h->conn;
  plait_cursor *raw = NULL;
  Cursor *cursor;
  int rc;
  CALL(c, rc, plait_cursor_open(h->child->raw, range, &raw));
  if( rc!=SQLITE_OK ) return conn_error(c, rc);
  cursor = (Cursor*)PyType_GenericAlloc(cursor_type, 0);
  if( cursor==NULL ){
    plait_cursor_close(raw);
    return NULL;
  }
  cursor->h = (Handle*)Py_NewRef(h);
  cursor->what = what;
  cursor->is_reverse = is_reverse;
  cursor->key_kind = key_kind;
  cursor->value_kind = value_kind;
  cursor->decode = Py_XNewRef(decode);
  cursor->map = Py_NewRef(map);
  cursor->child = child_new(c, CHILD_CURSOR, raw);
  if( cursor->child==NULL ) Py_CLEAR(cursor);
  return (PyObject*)cursor;
}

/* What it stands on, not decoded: a key, a value, or a tuple of both. */
static PyObject *answer_of(Cursor *cursor, const plait_value *k, const plait_value *v){
  PyObject *key = NULL, *value = NULL, *pair;
  if( cursor->what==KEYS ) return value_to(k, cursor->key_kind, "key");
  if( cursor->what==VALUES ) return value_to(v, cursor->value_kind, "value");
  pair = PyTuple_New(2);
  key = pair ? value_to(k, cursor->key_kind, "key") : NULL;
  value = key ? value_to(v, cursor->value_kind, "value") : NULL;
  if( value==NULL ){
    Py_XDECREF(key);
    Py_XDECREF(pair);
    return NULL;
  }
  PyTuple_SetItem(pair, 0, key);
  PyTuple_SetItem(pair, 1, value);
  return pair;
}

static PyObject *decoded(Cursor *cursor, PyObject *answer){
  PyObject *stored, *value, *pair = NULL;
  if( answer==NULL || cursor->decode==NULL || cursor->what==KEYS ) return answer;
  stored = cursor->what==ITEMS ? PyTuple_GetItem(answer, 1) : answer;
  value = PyObject_CallFunctionObjArgs(cursor->decode, stored, NULL);
  if( value && cursor->what==ITEMS ){
    pair = PyTuple_Pack(2, PyTuple_GetItem(answer, 0), value);
    Py_DECREF(value);
    value = pair;
  }
  Py_DECREF(answer);
  return value;
}

/* Not while its connection is in a call. */
static void end(Cursor *cursor){
  Child *child = cursor->child;
  cursor->child = NULL;
  child_release(cursor->h->conn, child);
}

static PyObject *cursor_next(PyObject *self){
  Cursor *cursor = (Cursor*)self;
  Connection *c = cursor->h->conn;
  plait_value k, v;
  plait_value *key = cursor->what==VALUES ? NULL : &k;
  plait_value *value = cursor->what==KEYS ? NULL : &v;
  PyObject *answer = NULL;
  int rc;
  if( cursor->child==NULL || conn_enter(c) ) return NULL;
  if( cursor->child->is_cut ){
    rc = cut_error();
  }else{
    STEP(c, rc, (cursor->is_reverse ? plait_cursor_prev : plait_cursor_next)(cursor->child->raw, key, value));
  }
  if( rc==SQLITE_ROW ){
    answer = answer_of(cursor, &k, &v);
  }else if( rc!=SQLITE_DONE ){
    conn_error(c, rc);
  }
  conn_leave(c);
  if( rc!=SQLITE_ROW ) end(cursor);
  return decoded(cursor, answer);
}

static PyObject *cursor_close(PyObject *self, PyObject *unused){
  Cursor *cursor = (Cursor*)self;
  (void)unused;
  if( cursor->child ) end(cursor);
  Py_RETURN_NONE;
}

static int cursor_traverse(PyObject *self, visitproc visit, void *arg){
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((Cursor*)self)->decode);
  Py_VISIT(((Cursor*)self)->map);
  return 0;
}

static int cursor_clear(PyObject *self){
  Py_CLEAR(((Cursor*)self)->decode);
  Py_CLEAR(((Cursor*)self)->map);
  return 0;
}

static void cursor_dealloc(PyObject *self){
  Cursor *cursor = (Cursor*)self;
  PyObject_GC_UnTrack(self);
  if( cursor->h ) end(cursor);
  Py_XDECREF(cursor->h);
  cursor_clear(self);
  object_free(self);
}

static PyMethodDef methods[] = {
  {"close", cursor_close, METH_NOARGS, "Ends the iteration, and its snapshot."},
  {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
  {Py_tp_doc, "An iterator over a range of a map."},
  {Py_tp_iter, PyObject_SelfIter},
  {Py_tp_iternext, cursor_next},
  {Py_tp_methods, methods},
  {Py_tp_traverse, cursor_traverse},
  {Py_tp_clear, cursor_clear},
  {Py_tp_dealloc, cursor_dealloc},
  {0, NULL},
};

PyType_Spec cursor_spec = {
  .name = "plait._plait.Cursor",
  .basicsize = sizeof(Cursor),
  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
  .slots = slots,
};

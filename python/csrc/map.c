/*
** map.c - Map, the mapping that programs see: one object for all threads.
**
** Each thread has a connection, and on it a handle of its own (handle.c). Map._bind(), in Python, finds or makes the handle of the calling
** thread; a Map remembers those of the last threads that have asked. A remembered one that was closed is asked for anew.
** A value goes through encode(), if there is one, before the call, and through decode() after it: those are Python, and may use the database.
*/
#include "plait_py.h"

#define REMEMBERED 4

/* How often a write is made again because its table is another one each time. */
#define CHECKS_MAX 8

typedef struct {
  PyObject_HEAD
  struct { uint64_t thread; Handle *handle; } last[REMEMBERED];
  int key_kind, value_kind;
  PyObject *encode, *decode;        /* NULL: values are of value_kind */
} Map;

/* ---- one operation ---- */

typedef struct {
  Handle *h;
  Connection *c;
  plait_map *raw;
  int checks;
  Value key, value, other;
} Op;

static Handle *handle_of(Map *map){
  uint64_t thread = this_thread();
  unsigned slot = (unsigned)(thread % REMEMBERED);
  Handle *h = map->last[slot].handle;
  if( h && map->last[slot].thread==thread && h->conn->db ) return (Handle*)Py_NewRef(h);
  h = (Handle*)PyObject_CallMethod((PyObject*)map, "_bind", NULL);
  if( h==NULL ) return NULL;
  if( !Py_IS_TYPE(h, handle_type) ){
    Py_DECREF(h);
    PyErr_SetString(PyExc_TypeError, "_bind() must answer a Handle");
    return NULL;
  }
  {
    Handle *before = map->last[slot].handle;
    map->last[slot].handle = (Handle*)Py_NewRef(h);
    map->last[slot].thread = thread;
    Py_XDECREF(before);
  }
  return h;
}

/* Finds the handle and enters its connection; op_end() in every case. */
static int op_enter(Op *op, Map *map){
  if( op->h==NULL ) op->h = handle_of(map);
  if( op->h==NULL || conn_enter(op->h->conn) ) return -1;
  op->c = op->h->conn;
  op->raw = op->h->child->raw;
  return 0;
}

/* Of an entered connection. */
static void begin_write(Op *op){
  op->h->is_other = 0;
  op->h->is_fresh = op->checks>0;
  op->c->asking = op->h;
}

/* op_enter() for what writes: where the table is another one than the keys were checked against, the call is denied (handle.c). */
static int op_enter_to_write(Op *op, Map *map){
  if( op_enter(op, map) ) return -1;
  if( op->c->is_main ) watch_sigint();
  begin_write(op);
  return 0;
}

/* After a write that has failed: whether to make it again. Only if it was denied, and Python finds the keys fit for the table that is there now. With an
** exception, and without a connection in the operation, if they are not. */
static int fits_again(Map *map, Op *op, int rc){
  PyObject *done;
  if( (rc & 0xff)!=SQLITE_AUTH || PyErr_Occurred() ) return 0;
  if( !op->h->is_other || op->checks++==CHECKS_MAX ) return 0;
  conn_leave(op->c);
  op->c = NULL;
  done = PyObject_CallMethod((PyObject*)map, "_check", "O", op->h);
  Py_XDECREF(done);
  return done!=NULL && op_enter_to_write(op, map)==0;
}

/* Runs expr, which writes, without the GIL. */
#define WRITE(map, op, rc, expr) do{ CALL((op).c, rc, expr); }while( rc!=SQLITE_OK && fits_again(map, &(op), rc) )

static int key_from(Map *map, PyObject *o, Value *out){
  return key_value_from(o, map->key_kind, out);
}

static int item_from(Map *map, PyObject *o, Value *out){
  PyObject *encoded;
  int failed;
  if( map->encode==NULL ) return value_from(o, map->value_kind, "a value", out);
  encoded = PyObject_CallFunctionObjArgs(map->encode, o, NULL);
  if( encoded==NULL ) return -1;
  failed = value_from(encoded, KIND_ANY, "what a codec encodes", out);
  Py_DECREF(encoded);
  return failed;
}

/* What a stored value is in Python, given what value_to() has made of it; takes the reference. */
static PyObject *decoded(PyObject *decode, PyObject *stored){
  PyObject *o;
  if( decode==NULL || stored==NULL ) return stored;
  o = PyObject_CallFunctionObjArgs(decode, stored, NULL);
  Py_DECREF(stored);
  return o;
}

static void op_leave(Op *op){
  if( op->c ) conn_leave(op->c);
  op->c = NULL;
}

static void op_end(Op *op){
  op_leave(op);
  value_clear(&op->key);
  value_clear(&op->value);
  value_clear(&op->other);
  Py_XDECREF(op->h);
}

/* ---- reading ---- */

/* 1 and *answer, 0 if there is no such key, -1 with an exception. */
static int get(Map *map, PyObject *key, PyObject **answer){
  Op op = {0};
  plait_value found;
  int rc, result = -1;
  PyObject *stored = NULL;
  *answer = NULL;
  if( key_from(map, key, &op.key)==0 && op_enter(&op, map)==0 ){
    CALL(op.c, rc, plait_get(op.raw, op.key.v, &found));
    if( rc!=SQLITE_OK ){
      conn_error(op.c, rc);
    }else if( found.type==PLAIT_NONE ){
      result = 0;
    }else{
      stored = value_to(&found, map->value_kind, "value");
      result = stored ? 1 : -1;
    }
  }
  op_end(&op);
  if( result==1 ){
    *answer = decoded(map->decode, stored);
    if( *answer==NULL ) result = -1;
  }
  return result;
}

static PyObject *map_subscript(PyObject *self, PyObject *key){
  PyObject *answer;
  if( get((Map*)self, key, &answer)==0 ) PyErr_SetObject(PyExc_KeyError, key);
  return answer;
}

/* get(key, default=None): names are those of MutableMapping, in any order behind what is given by place. */
static PyObject *map_get(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names){
  PyObject *answer, *given[2] = {n>0 ? args[0] : NULL, n>1 ? args[1] : NULL};
  Py_ssize_t i, named = names ? PyTuple_Size(names) : 0;
  int is_wrong = n>2;
  for(i=0; i<named && !is_wrong; i++){
    PyObject *name = PyTuple_GetItem(names, i);
    int at = PyUnicode_CompareWithASCIIString(name, "default")==0 ? 1 : 0;
    is_wrong = given[at]!=NULL || (at==0 && PyUnicode_CompareWithASCIIString(name, "key")!=0);
    given[at] = args[n+i];
  }
  if( is_wrong || given[0]==NULL ){
    PyErr_SetString(PyExc_TypeError, "get(key, default=None)");
    return NULL;
  }
  if( get((Map*)self, given[0], &answer)==0 ) return Py_NewRef(given[1] ? given[1] : Py_None);
  return answer;
}

static int map_contains(PyObject *self, PyObject *key){
  Map *map = (Map*)self;
  Op op = {0};
  int rc, found = -1;
  if( key_from(map, key, &op.key)==0 && op_enter(&op, map)==0 ){
    CALL(op.c, rc, plait_contains(op.raw, op.key.v, &found));
    if( rc!=SQLITE_OK ){
      conn_error(op.c, rc);
      found = -1;
    }
  }
  op_end(&op);
  return found;
}

/* ---- writing ---- */

static int put(Map *map, PyObject *key, PyObject *value){
  Op op = {0};
  int rc, failed = -1;
  if( key_from(map, key, &op.key)==0 && item_from(map, value, &op.value)==0 && op_enter_to_write(&op, map)==0 ){
    WRITE(map, op, rc, plait_put(op.raw, op.key.v, op.value.v));
    if( rc!=SQLITE_OK ) conn_error(op.c, rc);
    else failed = 0;
  }
  op_end(&op);
  return failed;
}

static int delete(Map *map, PyObject *key){
  Op op = {0};
  int rc, done = -1;
  if( key_from(map, key, &op.key)==0 && op_enter_to_write(&op, map)==0 ){
    WRITE(map, op, rc, plait_delete(op.raw, op.key.v, &done));
    if( rc!=SQLITE_OK ){
      conn_error(op.c, rc);
      done = -1;
    }
  }
  op_end(&op);
  return done;
}

static int map_assign(PyObject *self, PyObject *key, PyObject *value){
  int done;
  if( value ) return put((Map*)self, key, value);
  done = delete((Map*)self, key);
  if( done==0 ) PyErr_SetObject(PyExc_KeyError, key);
  return done==1 ? 0 : -1;
}

static PyObject *map_insert(PyObject *self, PyObject *args){
  Map *map = (Map*)self;
  PyObject *key, *value, *answer = NULL;
  Op op = {0};
  int rc, done = 0;
  if( !PyArg_ParseTuple(args, "OO:insert", &key, &value) ) return NULL;
  if( key_from(map, key, &op.key)==0 && item_from(map, value, &op.value)==0 && op_enter_to_write(&op, map)==0 ){
    WRITE(map, op, rc, plait_insert(op.raw, op.key.v, op.value.v, &done));
    answer = rc==SQLITE_OK ? PyBool_FromLong(done) : conn_error(op.c, rc);
  }
  op_end(&op);
  return answer;
}

static PyObject *map_add(PyObject *self, PyObject *args){
  Map *map = (Map*)self;
  PyObject *key, *delta, *answer = NULL;
  Op op = {0};
  sqlite3_int64 sum;
  int rc;
  if( !PyArg_ParseTuple(args, "OO:add", &key, &delta) ) return NULL;
  if( key_from(map, key, &op.key)==0 && value_from(delta, KIND_INT, "what is added", &op.value)==0
   && op_enter_to_write(&op, map)==0 ){
    WRITE(map, op, rc, plait_add(op.raw, op.key.v, op.value.v.integer, &sum));
    answer = rc==SQLITE_OK ? PyLong_FromLongLong(sum) : conn_error(op.c, rc);
  }
  op_end(&op);
  return answer;
}

/* Ellipsis stands for no value. */
static int maybe_item_from(Map *map, PyObject *o, Value *out){
  if( o!=Py_Ellipsis ) return item_from(map, o, out);
  out->v = plait_none();
  return 0;
}

static PyObject *map_swap(PyObject *self, PyObject *args){
  Map *map = (Map*)self;
  PyObject *key, *expected, *value, *answer = NULL;
  Op op = {0};
  int rc, done = 0;
  if( !PyArg_ParseTuple(args, "OOO:compare_and_swap", &key, &expected, &value) ) return NULL;
  if( key_from(map, key, &op.key)==0 && maybe_item_from(map, expected, &op.value)==0
   && maybe_item_from(map, value, &op.other)==0 && op_enter_to_write(&op, map)==0 ){
    WRITE(map, op, rc, plait_compare_and_swap(op.raw, op.key.v, op.value.v, op.other.v, &done));
    answer = rc==SQLITE_OK ? PyBool_FromLong(done) : conn_error(op.c, rc);
  }
  op_end(&op);
  return answer;
}

/* ---- many at once ---- */

static void free_values(Value *all, Py_ssize_t n){
  Py_ssize_t i;
  for(i=0; all && i<n; i++) value_clear(&all[i]);
  PyMem_Free(all);
}

/* The list of the values that were found, default for those that were not. */
static PyObject *list_of(Map *map, plait_value *found, Py_ssize_t n, PyObject *missing){
  PyObject *list = PyList_New(n);
  Py_ssize_t i;
  for(i=0; list && i<n; i++){
    PyObject *o = found[i].type==PLAIT_NONE ? Py_NewRef(missing) : value_to(&found[i], map->value_kind, "value");
    if( o==NULL || PyList_SetItem(list, i, o)!=0 ) Py_CLEAR(list);
  }
  return list;
}

static int decode_list(Map *map, PyObject *list, plait_value *found){
  Py_ssize_t i, n = PyList_Size(list);
  for(i=0; map->decode && i<n; i++){
    PyObject *o;
    if( found[i].type==PLAIT_NONE ) continue;
    o = decoded(map->decode, Py_NewRef(PyList_GetItem(list, i)));
    if( o==NULL || PyList_SetItem(list, i, o)!=0 ) return -1;
  }
  return 0;
}

static PyObject *map_get_many(PyObject *self, PyObject *args){
  Map *map = (Map*)self;
  PyObject *keys, *missing, *list = NULL;
  Op op = {0};
  Py_ssize_t i = 0, n;
  Value *holds;
  plait_value *v;
  int rc;
  if( !PyArg_ParseTuple(args, "O!O:get_many", &PyList_Type, &keys, &missing) ) return NULL;
  n = PyList_Size(keys);
  holds = PyMem_Calloc((size_t)n+1, sizeof(*holds));
  v = PyMem_Calloc((size_t)n+1, 2*sizeof(*v));
  if( holds==NULL || v==NULL || n>0x7fffffff ){
    PyErr_NoMemory();
  }else{
    for(i=0; i<n && key_from(map, PyList_GetItem(keys, i), &holds[i])==0; i++) v[i] = holds[i].v;
    if( i==n && op_enter(&op, map)==0 ){
      CALL(op.c, rc, plait_get_many(op.raw, (int)n, v, v+n));
      list = rc==SQLITE_OK ? list_of(map, v+n, n, missing) : conn_error(op.c, rc);
    }
  }
  op_end(&op);
  if( list && decode_list(map, list, v+n) ) Py_CLEAR(list);
  free_values(holds, holds ? n : 0);
  PyMem_Free(v);
  return list;
}

/* Puts a list of pairs, all or nothing. */
static PyObject *map_put_many(PyObject *self, PyObject *pairs){
  Map *map = (Map*)self;
  Op op = {0};
  Py_ssize_t i, n;
  Value *holds;
  plait_batch_item *items;
  int rc = SQLITE_OK, failed = 0;
  if( !PyList_Check(pairs) ){
    PyErr_SetString(PyExc_TypeError, "a list of pairs is needed");
    return NULL;
  }
  n = PyList_Size(pairs);
  holds = PyMem_Calloc((size_t)n*2+1, sizeof(*holds));
  items = PyMem_Calloc((size_t)n+1, sizeof(*items));
  if( holds==NULL || items==NULL || n>0x7fffffff ){
    PyErr_NoMemory();
    failed = 1;
  }
  for(i=0; !failed && i<n; i++){
    PyObject *pair = PyList_GetItem(pairs, i);
    if( !PyTuple_Check(pair) || PyTuple_Size(pair)!=2 ){
      PyErr_SetString(PyExc_TypeError, "a list of pairs is needed");
      failed = 1;
      break;
    }
    failed = key_from(map, PyTuple_GetItem(pair, 0), &holds[2*i])
        || item_from(map, PyTuple_GetItem(pair, 1), &holds[2*i+1]);
    items[i].op = PLAIT_BATCH_PUT;
    items[i].key = holds[2*i].v;
    items[i].value = holds[2*i+1].v;
  }
  if( !failed && op_enter_to_write(&op, map)==0 ){
    WRITE(map, op, rc, plait_batch(op.raw, (int)n, items, NULL));
    if( rc!=SQLITE_OK ) conn_error(op.c, rc);
  }
  op_end(&op);
  free_values(holds, holds ? 2*n : 0);
  PyMem_Free(items);
  if( PyErr_Occurred() ) return NULL;
  Py_RETURN_NONE;
}

/* ---- ranges: (low, high, flags), Ellipsis for no bound ---- */

static int bound_from(Map *map, PyObject *o, Value *out){
  if( o!=Py_Ellipsis ) return key_from(map, o, out);
  out->v = plait_none();
  return 0;
}

/* Besides the flags of plait.h: the range ends where texts do, at the first of all bytes. */
#define IN_TEXT 0x100

static int range_enter(Map *map, Op *op, PyObject *lo, PyObject *hi, int flags, plait_range *range){
  if( bound_from(map, lo, &op->key) || bound_from(map, hi, &op->other) || op_enter(op, map) ) return -1;
  range->lo = op->key.v;
  range->hi = flags & IN_TEXT ? plait_bytes("", 0) : op->other.v;
  range->flags = flags & IN_TEXT ? PLAIT_HI_OPEN : flags;
  return 0;
}

static PyObject *over_range(PyObject *self, PyObject *args, int (*call)(plait_map*, const plait_range*, sqlite3_int64*)){
  Map *map = (Map*)self;
  PyObject *lo, *hi, *answer = NULL;
  Op op = {0};
  plait_range range;
  sqlite3_int64 n;
  int flags, rc;
  if( !PyArg_ParseTuple(args, "OOi", &lo, &hi, &flags) ) return NULL;
  if( range_enter(map, &op, lo, hi, flags, &range)==0 ){
    if( op.c->is_main ) watch_sigint();
    /* A range that is deleted is so by the program that writes. */
    if( call==plait_delete_range ){
      begin_write(&op);
      WRITE(map, op, rc, call(op.raw, &range, &n));
    }else{
      CALL(op.c, rc, call(op.raw, &range, &n));
    }
    answer = rc==SQLITE_OK ? PyLong_FromLongLong(n) : conn_error(op.c, rc);
  }
  op_end(&op);
  return answer;
}

static PyObject *map_count(PyObject *self, PyObject *args){
  return over_range(self, args, plait_count_range);
}

static PyObject *map_delete_range(PyObject *self, PyObject *args){
  return over_range(self, args, plait_delete_range);
}

static PyObject *map_end(PyObject *self, PyObject *args){
  Map *map = (Map*)self;
  PyObject *lo, *hi, *key = NULL, *value = NULL, *pair = NULL;
  Op op = {0};
  plait_range range;
  plait_value k, v;
  int flags, is_last, rc;
  if( !PyArg_ParseTuple(args, "OOii", &lo, &hi, &flags, &is_last) ) return NULL;
  if( range_enter(map, &op, lo, hi, flags, &range)==0 ){
    CALL(op.c, rc, (is_last ? plait_last : plait_first)(op.raw, &range, &k, &v));
    if( rc!=SQLITE_OK ){
      conn_error(op.c, rc);
    }else if( k.type==PLAIT_NONE ){
      pair = Py_NewRef(Py_None);
    }else{
      key = value_to(&k, map->key_kind, "key");
      value = key ? value_to(&v, map->value_kind, "value") : NULL;
    }
  }
  op_end(&op);
  if( value ) value = decoded(map->decode, value);
  if( value ) pair = PyTuple_Pack(2, key, value);
  Py_XDECREF(key);
  Py_XDECREF(value);
  return pair;
}

/* Whether a range has a key. */
static PyObject *map_has(PyObject *self, PyObject *args){
  Map *map = (Map*)self;
  PyObject *lo, *hi, *key, *answer = NULL;
  Op op = {0};
  plait_range range;
  plait_cursor *cursor = NULL;
  int flags, rc;
  if( !PyArg_ParseTuple(args, "OOiO", &lo, &hi, &flags, &key) ) return NULL;
  if( key_from(map, key, &op.value)==0 && range_enter(map, &op, lo, hi, flags, &range)==0 ){
    CALL(op.c, rc, plait_cursor_open(op.raw, &range, &cursor));
    if( rc==SQLITE_OK ) CALL(op.c, rc, plait_cursor_seek(cursor, op.value.v, PLAIT_EQ, NULL, NULL));
    answer = rc==SQLITE_ROW || rc==SQLITE_DONE ? PyBool_FromLong(rc==SQLITE_ROW) : conn_error(op.c, rc);
    Py_BEGIN_ALLOW_THREADS
    plait_cursor_close(cursor);
    Py_END_ALLOW_THREADS
  }
  op_end(&op);
  return answer;
}

static PyObject *map_cursor(PyObject *self, PyObject *args){
  Map *map = (Map*)self;
  PyObject *lo, *hi, *cursor = NULL;
  Op op = {0};
  plait_range range;
  int flags, what, is_reverse;
  if( !PyArg_ParseTuple(args, "OOiii", &lo, &hi, &flags, &what, &is_reverse) ) return NULL;
  if( range_enter(map, &op, lo, hi, flags, &range)==0 ){
    cursor = cursor_new(self, op.h, &range, what, is_reverse, map->key_kind, map->value_kind, map->decode);
  }
  op_end(&op);
  return cursor;
}

/* ---- the type ---- */

/* The declared type of the key now, or None. */
static PyObject *map_key_type(PyObject *self, PyObject *unused){
  Op op = {0};
  PyObject *type = NULL;
  (void)unused;
  if( op_enter(&op, (Map*)self)==0 ) type = handle_key_type(op.h);
  op_end(&op);
  return type;
}

static PyObject *map_setup(PyObject *self, PyObject *args){
  Map *map = (Map*)self;
  PyObject *key, *value, *encode, *decode;
  if( !PyArg_ParseTuple(args, "UUOO:_setup", &key, &value, &encode, &decode) ) return NULL;
  map->key_kind = kind_of(key);
  map->value_kind = kind_of(value);
  if( map->key_kind<0 || map->value_kind<0 ) return NULL;
  Py_CLEAR(map->encode);
  Py_CLEAR(map->decode);
  map->encode = encode==Py_None ? NULL : Py_NewRef(encode);
  map->decode = decode==Py_None ? NULL : Py_NewRef(decode);
  Py_RETURN_NONE;
}

static int map_traverse(PyObject *self, visitproc visit, void *arg){
  Map *map = (Map*)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(map->encode);
  Py_VISIT(map->decode);
  return 0;
}

static int map_clear(PyObject *self){
  Map *map = (Map*)self;
  int i;
  Py_CLEAR(map->encode);
  Py_CLEAR(map->decode);
  for(i=0; i<REMEMBERED; i++) Py_CLEAR(map->last[i].handle);
  return 0;
}

static void map_dealloc(PyObject *self){
  PyObject_GC_UnTrack(self);
  map_clear(self);
  object_free(self);
}

static PyMethodDef methods[] = {
  {"get", (PyCFunction)(void(*)(void))map_get, METH_FASTCALL | METH_KEYWORDS, "The value of a key, or default."},
  {"insert", map_insert, METH_VARARGS, "Writes a value if the key is absent; whether it was."},
  {"add", map_add, METH_VARARGS, "Adds to an integer, 0 if the key is absent; the new value. No addition is lost, whoever else adds."},
  {"_swap", map_swap, METH_VARARGS, NULL},
  {"_get_many", map_get_many, METH_VARARGS, NULL},
  {"_put_many", map_put_many, METH_O, NULL},
  {"_count", map_count, METH_VARARGS, NULL},
  {"_delete_range", map_delete_range, METH_VARARGS, NULL},
  {"_has", map_has, METH_VARARGS, NULL},
  {"_end", map_end, METH_VARARGS, NULL},
  {"_cursor", map_cursor, METH_VARARGS, NULL},
  {"_key_type", map_key_type, METH_NOARGS, NULL},
  {"_setup", map_setup, METH_VARARGS, NULL},
  {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
  {Py_tp_doc, "What a mapping does in C."},
  {Py_tp_methods, methods},
  {Py_mp_subscript, map_subscript},
  {Py_mp_ass_subscript, map_assign},
  {Py_sq_contains, map_contains},
  {Py_tp_traverse, map_traverse},
  {Py_tp_clear, map_clear},
  {Py_tp_dealloc, map_dealloc},
  {0, NULL},
};

PyType_Spec map_spec = {
  .name = "plait._plait.Map",
  .basicsize = sizeof(Map),
  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
  .slots = slots,
};

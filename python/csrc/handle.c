/*
** handle.c - Handle, an open map of one connection, and whether its table still takes the keys of the Map that writes through it.
**
** A column may turn a key into another type, and a key that is written so is not found again as what it was. So Python looks at the column before the first call, and
** tells the handle what it has found fit: the column, and the type that it is declared with. The library looks at a table anew where it has been changed, and asks
** the authorizer then, and only then. So the look that each write needs costs nothing: handle_authorize() denies the write whose table has another
** type by now, and the Map asks Python again (map.c, fits_again).
*/
#include "plait_py.h"
#include <string.h>

/* The declared type of a column now, and whether it is the key; NULL if there is no such column. It stays until the schema changes. */
static const char *type_now(Handle *h, const char *column, int *is_key){
  const char *type = NULL;
  *is_key = 0;
  if( sqlite3_table_column_metadata(h->conn->db, h->schema, h->table, column, &type, NULL, NULL, is_key, NULL)!=SQLITE_OK ) return NULL;
  return type ? type : "";
}

/* The authorizer of a connection. Without the GIL, in the middle of a call. */
int handle_authorize(void *conn, int code, const char *table, const char *column, const char *schema, const char *inner){
  Handle *h = ((Connection*)conn)->asking;
  const char *type;
  int is_key;
  /* What triggers read does not count, nor what else runs within the write: of its columns the key alone is of the type that is asked for here. A rowid is
  ** called ROWID, and described as if it was the key. */
  if( h==NULL || code!=SQLITE_READ || schema==NULL || inner!=NULL ) return SQLITE_OK;
  if( strcmp(column, "ROWID")==0 && (h->column==NULL || sqlite3_stricmp(h->column, "ROWID")!=0) ) return SQLITE_OK;
  if( sqlite3_stricmp(table, h->table)!=0 || sqlite3_stricmp(schema, h->schema)!=0 ) return SQLITE_OK;
  type = type_now(h, column, &is_key);
  if( !is_key ) return SQLITE_OK;
  /* ANY keeps everything in a STRICT table alone, and only Python knows whether it is one. */
  if( h->type && sqlite3_stricmp(type, h->type)==0 && (h->is_fresh || sqlite3_stricmp(type, "ANY")!=0) ) return SQLITE_OK;
  h->is_other = 1;
  return SQLITE_DENY;
}

/* The declared type of the key now, as this connection knows it: None if the column is not there. */
PyObject *handle_key_type(Handle *h){
  const char *type = NULL;
  int is_key;
  if( h->column ) type = type_now(h, h->column, &is_key);
  if( type==NULL ) Py_RETURN_NONE;
  return PyUnicode_FromString(type);
}

static void forget(Handle *h){
  sqlite3_free(h->column);
  sqlite3_free(h->type);
  h->column = h->type = NULL;
}

static PyObject *handle_checked(PyObject *self, PyObject *args){
  Handle *h = (Handle*)self;
  const char *column, *type;
  if( !PyArg_ParseTuple(args, "ss:checked", &column, &type) ) return NULL;
  forget(h);
  h->column = sqlite3_mprintf("%s", column);
  h->type = sqlite3_mprintf("%s", type);
  if( h->column==NULL || h->type==NULL ) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

static PyObject *handle_new(PyTypeObject *type, PyObject *args, PyObject *named){
  PyObject *conn;
  const char *schema, *table;
  int flags, rc;
  plait_map *raw = NULL;
  Handle *h;
  Connection *c;
  (void)named;
  if( !PyArg_ParseTuple(args, "O!ssi:Handle", connection_type, &conn, &schema, &table, &flags) ) return NULL;
  c = (Connection*)conn;
  if( conn_enter(c) ) return NULL;
  if( c->is_main ) watch_sigint();
  CALL(c, rc, plait_map_open(c->db, schema, table, flags, &raw));
  if( rc!=SQLITE_OK ){
    conn_error(c, rc);
    conn_leave(c);
    return NULL;
  }
  h = (Handle*)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if( h==NULL ){
    plait_map_close(raw);
  }else{
    h->conn = (Connection*)Py_NewRef(conn);
    h->schema = sqlite3_mprintf("%s", schema);
    h->table = sqlite3_mprintf("%s", table);
    h->child = child_new(c, CHILD_MAP, raw);
    if( h->child && (h->schema==NULL || h->table==NULL) ) PyErr_NoMemory();
  }
  conn_leave(c);
  if( h && PyErr_Occurred() ) Py_CLEAR(h);
  return (PyObject*)h;
}

static void handle_dealloc(PyObject *self){
  Handle *h = (Handle*)self;
  if( h->conn ) child_release(h->conn, h->child);
  forget(h);
  sqlite3_free(h->schema);
  sqlite3_free(h->table);
  Py_XDECREF(h->conn);
  object_free(self);
}

static PyMethodDef methods[] = {
  {"checked", handle_checked, METH_VARARGS, "Notes which column the key is, and as what declared: so it is fit for the keys that are written."},
  {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
  {Py_tp_doc, "A map that is open on one connection."},
  {Py_tp_new, handle_new},
  {Py_tp_dealloc, handle_dealloc},
  {Py_tp_methods, methods},
  {0, NULL},
};

PyType_Spec handle_spec = {
  .name = "plait._plait.Handle",
  .basicsize = sizeof(Handle),
  .flags = Py_TPFLAGS_DEFAULT,
  .slots = slots,
};

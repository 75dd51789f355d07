/*
** dbapi.c - what Plait adds to the sources of pysqlite3: see dbapi.h.
**
** constants.h is written by the build from SQLite's header: lists CODES, LIMITS and SETTINGS of entries that are made by the macro X.
*/
#include "module.h"
#include "connection.h"
#include "dbapi.h"
#include "constants.h"
#include <limits.h>

typedef struct {
  const char *name;
  int value;
} Constant;

#define X(name) {#name, name},
static const Constant codes[] = {CODES};
static const Constant limits[] = {LIMITS};
static const Constant settings[] = {SETTINGS};
#undef X

#define COUNT(list) (sizeof(list)/sizeof((list)[0]))

const char *plait_error_name(int code){
  size_t i;
  for(i=0; i<COUNT(codes); i++){
    if( codes[i].value==code ) return codes[i].name;
  }
  return "unknown";
}

static int add_all(PyObject *module, const Constant *all, size_t n){
  size_t i;
  for(i=0; i<n; i++){
    if( PyModule_AddIntConstant(module, all[i].name, all[i].value) ) return -1;
  }
  return 0;
}

int plait_add_constants(PyObject *module){
  return add_all(module, codes, COUNT(codes)) || add_all(module, limits, COUNT(limits)) || add_all(module, settings, COUNT(settings)) ? -1 : 0;
}

/* The library's connection, or NULL with an exception. */
static sqlite3 *usable(PyObject *self){
  pysqlite_Connection *c = (pysqlite_Connection*)self;
  return pysqlite_check_thread(c) && pysqlite_check_connection(c) ? c->db : NULL;
}

/* ---- limits ---- */

static PyObject *limit(PyObject *self, int category, int value){
  sqlite3 *db = usable(self);
  int before;
  if( db==NULL ) return NULL;
  before = sqlite3_limit(db, category, value);
  if( before<0 ){
    PyErr_SetString(pysqlite_ProgrammingError, "'category' is out of bounds");
    return NULL;
  }
  return PyLong_FromLong(before);
}

PyObject *plait_getlimit(PyObject *self, PyObject *args){
  int category;
  if( !PyArg_ParseTuple(args, "i:getlimit", &category) ) return NULL;
  return limit(self, category, -1);
}

PyObject *plait_setlimit(PyObject *self, PyObject *args){
  int category, value;
  if( !PyArg_ParseTuple(args, "ii:setlimit", &category, &value) ) return NULL;
  return limit(self, category, value);
}

/* ---- settings ---- */

/* Asks for a setting, or sets it if `wanted` is not negative: what it is then, or -1 with an exception. */
static int setting(PyObject *self, int op, int wanted){
  sqlite3 *db = usable(self);
  size_t i;
  int now = -1, rc;
  if( db==NULL ) return -1;
  for(i=0; i<COUNT(settings) && settings[i].value!=op; i++){}
  if( i==COUNT(settings) ){
    PyErr_Format(PyExc_ValueError, "unknown config 'op': %d", op);
    return -1;
  }
  rc = sqlite3_db_config(db, op, wanted, &now);
  if( rc!=SQLITE_OK ){
    PyErr_SetString(pysqlite_OperationalError, sqlite3_errstr(rc));
    return -1;
  }
  return now!=0;
}

PyObject *plait_getconfig(PyObject *self, PyObject *args){
  int op, now;
  if( !PyArg_ParseTuple(args, "i:getconfig", &op) ) return NULL;
  now = setting(self, op, -1);
  return now<0 ? NULL : PyBool_FromLong(now);
}

PyObject *plait_setconfig(PyObject *self, PyObject *args){
  int op, wanted = 1, now;
  if( !PyArg_ParseTuple(args, "i|p:setconfig", &op, &wanted) ) return NULL;
  now = setting(self, op, wanted);
  if( now<0 ) return NULL;
  if( now!=wanted ){
    PyErr_SetString(pysqlite_OperationalError, "Unable to set config");
    return NULL;
  }
  Py_RETURN_NONE;
}

/* ---- databases as bytes ---- */

PyObject *plait_serialize(PyObject *self, PyObject *args, PyObject *named){
  static char *keywords[] = {"name", NULL};
  const char *name = "main";
  sqlite3 *db;
  sqlite3_int64 size = 0;
  unsigned char *data;
  PyObject *answer;
  if( !PyArg_ParseTupleAndKeywords(args, named, "|$s:serialize", keywords, &name) || (db = usable(self))==NULL ) return NULL;
  Py_BEGIN_ALLOW_THREADS
  data = sqlite3_serialize(db, name, &size, 0);
  Py_END_ALLOW_THREADS
  if( data==NULL ){
    PyErr_Format(pysqlite_OperationalError, "unable to serialize '%s'", name);
    return NULL;
  }
  answer = PyBytes_FromStringAndSize((char*)data, (Py_ssize_t)size);
  sqlite3_free(data);
  return answer;
}

/* Gives a copy of the bytes to the connection, which frees it. */
static int give(sqlite3 *db, const char *name, const void *data, Py_ssize_t size){
  const unsigned int flags = SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE;
  unsigned char *copy = sqlite3_malloc64((sqlite3_uint64)(size ? size : 1));
  int rc;
  if( copy==NULL ) return SQLITE_NOMEM;
  Py_BEGIN_ALLOW_THREADS
  memcpy(copy, data, (size_t)size);
  rc = sqlite3_deserialize(db, name, copy, size, size, flags);
  Py_END_ALLOW_THREADS
  return rc;
}

PyObject *plait_deserialize(PyObject *self, PyObject *args, PyObject *named){
  static char *keywords[] = {"", "name", NULL};
  const char *name = "main";
  sqlite3 *db = usable(self);
  Py_buffer data;
  int rc;
  if( db==NULL || !PyArg_ParseTupleAndKeywords(args, named, "s*|$s:deserialize", keywords, &data, &name) ) return NULL;
  rc = give(db, name, data.buf, data.len);
  PyBuffer_Release(&data);
  if( rc==SQLITE_OK ) Py_RETURN_NONE;
  if( rc==SQLITE_NOMEM ) return PyErr_NoMemory();
  PyErr_Format(pysqlite_OperationalError, "unable to deserialize into '%s': %s", name, sqlite3_errmsg(db));
  return NULL;
}

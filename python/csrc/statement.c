/*
** statement.c - SQL: execute(), script(), and the rows of a statement.
**
** A statement that only reads is stepped through as its rows are asked for; until it has ended, or its Rows are dropped, it is an open
** SELECT, with its snapshot. One that writes (INSERT ... RETURNING) runs to its end at once, so that it is committed when execute() returns.
** Idle statements are kept prepared, by their text, one for each.
*/
#include "plait_py.h"
#include <string.h>

/* Idle statements that a connection keeps. */
#define IDLE_MAX 64

typedef struct {
  PyObject_HEAD
  Connection *conn;
  Child *child;           /* NULL once it has ended */
  PyObject *sql;
  PyObject *columns;
  PyObject *ready;        /* rows that are there already: a list, or NULL */
  Py_ssize_t next_ready;
  PyObject *owner;        /* kept as long as this: its end would close the connection */
} Rows;

/* ---- preparing ---- */

static Child *take_idle(Connection *c, PyObject *sql){
  Child *child;
  PyObject *capsule = PyDict_GetItemWithError(c->statements, sql);
  if( capsule==NULL ) return NULL;
  child = PyCapsule_GetPointer(capsule, NULL);
  child->is_cut = 0;
  return PyDict_DelItem(c->statements, sql)==0 ? child : NULL;
}

/* Keeps a statement that was reset, or lets go of it. Exceptions stay as they are. */
static void put_idle(Connection *c, PyObject *sql, Child *child){
  PyObject *capsule, *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if( c->db && !c->closing && PyDict_Size(c->statements)<IDLE_MAX && PyDict_Contains(c->statements, sql)==0 ){
    capsule = PyCapsule_New(child, NULL, NULL);
    if( capsule && PyDict_SetItem(c->statements, sql, capsule)==0 ) child = NULL;
    Py_XDECREF(capsule);
  }
  PyErr_Clear();
  if( child ){
    child->is_grave = 1;
    c->graves = 1;
  }
  PyErr_Restore(type, value, trace);
}

static int only_space_is_left(const char *tail){
  while( *tail ){
    if( strchr(" \t\n\r\f;", *tail) ){
      tail++;
    }else if( tail[0]=='-' && tail[1]=='-' ){
      tail += strcspn(tail, "\n");
    }else if( tail[0]=='/' && tail[1]=='*' ){
      tail = strstr(tail+2, "*/");
      if( tail==NULL ) return 1;
      tail += 2;
    }else{
      return 0;
    }
  }
  return 1;
}

static const char *sql_text(PyObject *sql, Py_ssize_t *size){
  const char *text;
  if( !PyUnicode_Check(sql) ){
    PyErr_SetString(PyExc_TypeError, "SQL must be a str");
    return NULL;
  }
  text = PyUnicode_AsUTF8AndSize(sql, size);
  if( text && strlen(text)!=(size_t)*size ){
    PyErr_SetString(PyExc_ValueError, "SQL has a NUL in it; give such text as a parameter");
    return NULL;
  }
  return text;
}

static Child *prepare(Connection *c, PyObject *sql){
  sqlite3_stmt *stmt = NULL;
  const char *tail = "", *text;
  Py_ssize_t size;
  int rc;
  Child *child = take_idle(c, sql);
  if( child || PyErr_Occurred() ) return child;
  text = sql_text(sql, &size);
  if( text==NULL ) return NULL;
  CALL(c, rc, sqlite3_prepare_v3(c->db, text, -1, SQLITE_PREPARE_PERSISTENT, &stmt, &tail));
  if( rc!=SQLITE_OK ){
    conn_error(c, rc);
    return NULL;
  }
  if( stmt && !only_space_is_left(tail) ){
    sqlite3_finalize(stmt);
    PyErr_SetString(PyExc_ValueError, "more than one statement: use script()");
    return NULL;
  }
  if( stmt==NULL ){
    PyErr_SetString(PyExc_ValueError, "there is no statement in this text");
    return NULL;
  }
  return child_new(c, CHILD_STATEMENT, stmt);
}

/* ---- parameters ---- */

static int bind_one(Connection *c, sqlite3_stmt *stmt, int i, PyObject *o){
  Value value;
  int rc = SQLITE_OK, failed;
  char what[40];
  PyOS_snprintf(what, sizeof(what), "parameter %d", i);
  failed = value_from(o, KIND_ANY, what, &value);
  if( !failed ){
    switch( value.v.type ){
      case SQLITE_INTEGER: rc = sqlite3_bind_int64(stmt, i, value.v.integer); break;
      case SQLITE_FLOAT: rc = sqlite3_bind_double(stmt, i, value.v.real); break;
      case SQLITE_NULL: rc = sqlite3_bind_null(stmt, i); break;
      case SQLITE_TEXT:
        rc = sqlite3_bind_text64(stmt, i, value.v.data, (sqlite3_uint64)value.v.size, SQLITE_TRANSIENT, SQLITE_UTF8);
        break;
      default:
        rc = sqlite3_bind_blob64(stmt, i, value.v.data, (sqlite3_uint64)value.v.size, SQLITE_TRANSIENT);
    }
    if( rc!=SQLITE_OK ){
      conn_error(c, rc);
      failed = -1;
    }
  }
  value_clear(&value);
  return failed;
}

static int bind_named(Connection *c, sqlite3_stmt *stmt, PyObject *named){
  int i, n = sqlite3_bind_parameter_count(stmt);
  for(i=1; i<=n; i++){
    const char *name = sqlite3_bind_parameter_name(stmt, i);
    PyObject *o;
    int failed;
    if( name==NULL ){
      PyErr_Format(PyExc_ValueError, "parameter %d has no name, and the parameters are a mapping", i);
      return -1;
    }
    o = PyMapping_GetItemString(named, name+1);
    if( o==NULL ){
      if( PyErr_ExceptionMatches(PyExc_KeyError) ) PyErr_Format(PyExc_ValueError, "there is no parameter named %s", name);
      return -1;
    }
    failed = bind_one(c, stmt, i, o);
    Py_DECREF(o);
    if( failed ) return -1;
  }
  return 0;
}

static int bind_all(Connection *c, sqlite3_stmt *stmt, PyObject *params){
  Py_ssize_t i, n;
  if( params && PyDict_Check(params) ) return bind_named(c, stmt, params);
  n = params ? PySequence_Size(params) : 0;
  if( n<0 ) return -1;
  if( params && (PyUnicode_Check(params) || PyBytes_Check(params)) ){
    PyErr_SetString(PyExc_TypeError, "parameters must be a sequence or a dict; for one, say (value,)");
    return -1;
  }
  if( n!=sqlite3_bind_parameter_count(stmt) ){
    PyErr_Format(PyExc_ValueError, "the statement has %d parameters, and %zd were given", sqlite3_bind_parameter_count(stmt), n);
    return -1;
  }
  for(i=0; i<n; i++){
    PyObject *o = PySequence_GetItem(params, i);
    int failed = o==NULL || bind_one(c, stmt, (int)i+1, o);
    Py_XDECREF(o);
    if( failed ) return -1;
  }
  return 0;
}

/* ---- rows ---- */

static PyObject *column(sqlite3_stmt *stmt, int i){
  plait_value v = plait_null();
  v.type = sqlite3_column_type(stmt, i);
  switch( v.type ){
    case SQLITE_INTEGER: v.integer = sqlite3_column_int64(stmt, i); break;
    case SQLITE_FLOAT: v.real = sqlite3_column_double(stmt, i); break;
    case SQLITE_TEXT:
      v.data = sqlite3_column_text(stmt, i);
      v.size = sqlite3_column_bytes(stmt, i);
      break;
    case SQLITE_BLOB:
      v.data = sqlite3_column_blob(stmt, i);
      v.size = sqlite3_column_bytes(stmt, i);
      break;
  }
  return value_to(&v, KIND_ANY, "value");
}

static PyObject *row_of(sqlite3_stmt *stmt){
  int i, n = sqlite3_data_count(stmt);
  PyObject *row = PyTuple_New(n);
  for(i=0; row && i<n; i++){
    PyObject *o = column(stmt, i);
    if( o==NULL || PyTuple_SetItem(row, i, o)!=0 ) Py_CLEAR(row);
  }
  return row;
}

static PyObject *names_of(sqlite3_stmt *stmt){
  int i, n = sqlite3_column_count(stmt);
  PyObject *names = PyTuple_New(n);
  for(i=0; names && i<n; i++){
    const char *name = sqlite3_column_name(stmt, i);
    PyObject *o = name ? PyUnicode_FromString(name) : PyErr_NoMemory();
    if( o==NULL || PyTuple_SetItem(names, i, o)!=0 ) Py_CLEAR(names);
  }
  return names;
}

/* It has ended, well or not: reset and kept, which ends its snapshot, and its transaction if it was one of its own. The result of a
** commit that only now is made; what failed before says so again. */
static int rows_end(Rows *rows){
  Connection *c = rows->conn;
  Child *child = rows->child;
  int rc = SQLITE_OK;
  rows->child = NULL;
  if( child==NULL ) return SQLITE_OK;
  if( child->raw ){
    Py_BEGIN_ALLOW_THREADS
    rc = sqlite3_reset(child->raw);
    sqlite3_clear_bindings(child->raw);
    Py_END_ALLOW_THREADS
  }
  put_idle(c, rows->sql, child);
  return rc;
}

/* Its first step, and if it writes all others; -1 with an exception. */
static int rows_begin(Rows *rows){
  Connection *c = rows->conn;
  sqlite3_stmt *stmt = rows->child->raw;
  int rc, writes = !sqlite3_stmt_readonly(stmt);
  PyObject *row;
  for(;;){
    if( rows->ready ){
      STEP(c, rc, sqlite3_step(stmt));
    }else{
      CALL(c, rc, (sqlite3_reset(stmt), sqlite3_step(stmt)));
    }
    /* The first step prepares it anew where the schema has changed. */
    if( rows->columns==NULL && (rc==SQLITE_ROW || rc==SQLITE_DONE) && (rows->columns = names_of(stmt))==NULL ) return -1;
    if( rc!=SQLITE_ROW ) break;
    row = row_of(stmt);
    if( row==NULL ) return -1;
    if( rows->ready==NULL ) rows->ready = PyList_New(0);
    if( rows->ready==NULL || PyList_Append(rows->ready, row)!=0 ){
      Py_DECREF(row);
      return -1;
    }
    Py_DECREF(row);
    if( !writes ) return 0;
  }
  if( rc!=SQLITE_DONE ){
    conn_error(c, rc);
    return -1;
  }
  rc = rows_end(rows);
  if( rc!=SQLITE_OK ){
    conn_error(c, rc);
    return -1;
  }
  return 0;
}

PyObject *conn_execute(PyObject *self, PyObject *const *args, Py_ssize_t n){
  Connection *c = (Connection*)self;
  Rows *rows;
  int failed;
  if( n<1 || n>3 ){
    PyErr_SetString(PyExc_TypeError, "execute(sql, parameters=(), owner=None)");
    return NULL;
  }
  if( conn_enter(c) ) return NULL;
  if( c->is_main ) watch_sigint();
  rows = (Rows*)PyType_GenericAlloc(rows_type, 0);
  failed = rows==NULL;
  if( !failed ){
    rows->conn = (Connection*)Py_NewRef(c);
    rows->sql = Py_NewRef(args[0]);
    rows->owner = n>2 ? Py_NewRef(args[2]) : NULL;
    rows->child = prepare(c, args[0]);
    failed = rows->child==NULL
        || bind_all(c, rows->child->raw, n>1 ? args[1] : NULL)
        || rows_begin(rows);
    if( failed ) rows_end(rows);
  }
  conn_leave(c);
  if( failed ) Py_CLEAR(rows);
  return (PyObject*)rows;
}

/* Runs all statements of a text, without parameters; rows are left where they are. A transaction that it begins and does not come to the end of
** is rolled back: nobody would know of it. */
PyObject *conn_script(PyObject *self, PyObject *sql){
  Connection *c = (Connection*)self;
  Py_ssize_t size;
  const char *text = sql_text(sql, &size);
  int rc = SQLITE_OK, was_autocommit;
  if( text==NULL || conn_enter(c) ) return NULL;
  was_autocommit = sqlite3_get_autocommit(c->db);
  if( c->is_main ) watch_sigint();
  while( rc==SQLITE_OK && *text && block_check(c)==0 ){
    sqlite3_stmt *stmt = NULL;
    const char *tail = text;
    /* Also a try that fails sets tail. */
    CALL(c, rc, sqlite3_prepare_v2(c->db, text, -1, &stmt, &tail));
    text = tail;
    if( stmt==NULL ) continue;
    CALL(c, rc, (sqlite3_reset(stmt), sqlite3_step(stmt)));
    while( rc==SQLITE_ROW ) STEP(c, rc, sqlite3_step(stmt));
    if( rc==SQLITE_DONE ) rc = SQLITE_OK;
    if( rc!=SQLITE_OK ) conn_error(c, rc);
    Py_BEGIN_ALLOW_THREADS
    sqlite3_finalize(stmt);
    Py_END_ALLOW_THREADS
  }
  if( rc!=SQLITE_OK ) conn_error(c, rc);
  if( PyErr_Occurred() && was_autocommit ) script_failed(c);
  conn_leave(c);
  if( PyErr_Occurred() ) return NULL;
  Py_RETURN_NONE;
}

static PyObject *rows_next(PyObject *self){
  Rows *rows = (Rows*)self;
  Connection *c = rows->conn;
  PyObject *row = NULL;
  int rc;
  if( rows->ready && rows->next_ready<PyList_Size(rows->ready) ){
    row = Py_NewRef(PyList_GetItem(rows->ready, rows->next_ready++));
    if( rows->next_ready==PyList_Size(rows->ready) ){
      Py_CLEAR(rows->ready);
      rows->next_ready = 0;
    }
    return row;
  }
  if( rows->child==NULL || conn_enter(c) ) return NULL;
  if( rows->child->is_cut ){
    rc = cut_error();
  }else{
    STEP(c, rc, sqlite3_step(rows->child->raw));
  }
  if( rc==SQLITE_ROW ){
    row = row_of(rows->child->raw);
  }else if( rc!=SQLITE_DONE ){
    conn_error(c, rc);
  }
  if( row==NULL ) rows_end(rows);
  conn_leave(c);
  return row;
}

static PyObject *rows_close(PyObject *self, PyObject *unused){
  Rows *rows = (Rows*)self;
  (void)unused;
  Py_CLEAR(rows->ready);
  if( rows->child==NULL || rows->conn->db==NULL ) Py_RETURN_NONE;
  if( conn_enter_any(rows->conn) ) return NULL;
  rows_end(rows);
  conn_leave(rows->conn);
  Py_RETURN_NONE;
}

static PyObject *rows_fetchone(PyObject *self, PyObject *unused){
  PyObject *row = rows_next(self);
  (void)unused;
  if( row==NULL && !PyErr_Occurred() ) Py_RETURN_NONE;
  return row;
}

static PyObject *rows_fetchall(PyObject *self, PyObject *unused){
  (void)unused;
  return PySequence_List(self);
}

static PyObject *rows_columns(PyObject *self, void *unused){
  (void)unused;
  return Py_NewRef(((Rows*)self)->columns);
}

static int rows_traverse(PyObject *self, visitproc visit, void *arg){
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((Rows*)self)->owner);
  return 0;
}

static int rows_clear(PyObject *self){
  Py_CLEAR(((Rows*)self)->owner);
  return 0;
}

static void rows_dealloc(PyObject *self){
  Rows *rows = (Rows*)self;
  PyObject_GC_UnTrack(self);
  if( rows->conn ) child_release(rows->conn, rows->child);
  Py_XDECREF(rows->conn);
  Py_XDECREF(rows->sql);
  Py_XDECREF(rows->columns);
  Py_XDECREF(rows->ready);
  rows_clear(self);
  object_free(self);
}

static PyMethodDef methods[] = {
  {"close", rows_close, METH_NOARGS, "Ends the statement, and its snapshot."},
  {"fetchone", rows_fetchone, METH_NOARGS, "The next row, or None."},
  {"fetchall", rows_fetchall, METH_NOARGS, "A list of all rows that are left."},
  {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
  {"columns", rows_columns, NULL, "The names of the columns.", NULL},
  {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
  {Py_tp_doc, "The rows of a statement: an iterator of tuples."},
  {Py_tp_iter, PyObject_SelfIter},
  {Py_tp_iternext, rows_next},
  {Py_tp_methods, methods},
  {Py_tp_getset, attributes},
  {Py_tp_traverse, rows_traverse},
  {Py_tp_clear, rows_clear},
  {Py_tp_dealloc, rows_dealloc},
  {0, NULL},
};

PyType_Spec rows_spec = {
  .name = "plait._plait.Rows",
  .basicsize = sizeof(Rows),
  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
  .slots = slots,
};

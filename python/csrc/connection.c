/*
** connection.c - a connection: opening and closing, what surrounds each call, errors, tickets.
**
** States: open; closing (somebody has called close() while a call was in progress); closed (db is NULL). Every call is between
** conn_enter_any(), which refuses wrong threads, children of fork() and what is not open, and conn_leave(); what reads or writes goes through
** conn_enter(), which also refuses what comes when its transaction is gone (transaction.c).
*/
#include "plait_py.h"
#include <string.h>

/* ---- children ---- */

static void raw_close(int kind, void *raw){
  switch( kind ){
    case CHILD_MAP: plait_map_close(raw); break;
    case CHILD_CURSOR: plait_cursor_close(raw); break;
    case CHILD_STATEMENT: sqlite3_finalize(raw); break;
  }
}

static void unlink_child(Child *child){
  child->prev->next = child->next;
  child->next->prev = child->prev;
  PyMem_Free(child);
}

/* Takes raw over, which is closed if there is no memory (NULL with an exception). */
Child *child_new(Connection *c, int kind, void *raw){
  Child *child = PyMem_Calloc(1, sizeof(Child));
  if( child==NULL ){
    raw_close(kind, raw);
    PyErr_NoMemory();
    return NULL;
  }
  child->kind = kind;
  child->raw = raw;
  child->prev = &c->children;
  child->next = c->children.next;
  child->next->prev = child;
  c->children.next = child;
  return child;
}

/* Lets go of what dropped objects have left; the caller keeps others out. */
static void close_graves(Connection *c){
  Child *child = c->children.next, *graves = NULL;
  c->graves = 0;
  while( child!=&c->children ){
    Child *next = child->next;
    if( child->is_grave ){
      child->prev->next = next;
      next->prev = child->prev;
      child->next = graves;
      graves = child;
    }
    child = next;
  }
  Py_BEGIN_ALLOW_THREADS
  for(child=graves; child; child=child->next){
    if( child->raw ) raw_close(child->kind, child->raw);
  }
  Py_END_ALLOW_THREADS
  while( graves ){
    child = graves->next;
    PyMem_Free(graves);
    graves = child;
  }
}

/* Its object has no more use for it. NULL is allowed. */
void child_release(Connection *c, Child *child){
  if( child==NULL ) return;
  if( c->users || c->thread!=this_thread() || c->fork_count!=fork_count ){
    child->is_grave = 1;
    c->graves = 1;
    return;
  }
  if( child->raw ){
    int kind = child->kind;
    void *raw = child->raw;
    child->raw = NULL;
    c->users = 1;
    Py_BEGIN_ALLOW_THREADS
    raw_close(kind, raw);
    Py_END_ALLOW_THREADS
    unlink_child(child);
    conn_leave(c);
  }else{
    unlink_child(child);
  }
}

/* ---- around each call ---- */

static void close_now(Connection *c){
  sqlite3 *db = c->db;
  Child *child;
  PyObject *sql, *idle;
  Py_ssize_t at = 0;
  c->closing = 1;
  c->db = NULL;
  c->users = 1;
  while( c->statements && PyDict_Next(c->statements, &at, &sql, &idle) ){
    ((Child*)PyCapsule_GetPointer(idle, NULL))->is_grave = 1;
  }
  Py_CLEAR(c->statements);
  Py_BEGIN_ALLOW_THREADS
  for(child=c->children.next; child!=&c->children; child=child->next){
    if( child->raw ) raw_close(child->kind, child->raw);
    child->raw = NULL;
  }
  /* The mark of an interrupt is there until a statement begins, and would keep the last close from bringing the WAL into the file. */
  if( sqlite3_is_interrupted(db) ) (void)sqlite3_exec(db, "SELECT 1", NULL, NULL, NULL);
  /* Of two that close at the same moment neither may be alone with the file, and then both leave the WAL, as in stock SQLite. */
  pthread_mutex_lock(&close_mutex);
  sqlite3_close_v2(db);
  pthread_mutex_unlock(&close_mutex);
  Py_END_ALLOW_THREADS
  close_graves(c);
  c->users = 0;
}

static int refuse(int code, const char *text){
  PyObject *none = plain_error(code, text);
  Py_XDECREF(none);
  return -1;
}

static int refuse_closed(void){
  PyObject *none = closed_error();
  Py_XDECREF(none);
  return -1;
}

/* Before calls of the library; -1 with an exception if this connection may not be used now. */
int conn_enter_any(Connection *c){
  if( c->fork_count!=fork_count ){
    return refuse(SQLITE_MISUSE, "this database was opened before fork(), by the parent of this process: open it again here");
  }
  if( c->db==NULL || c->closing ) return refuse_closed();
  if( c->thread!=this_thread() ){
    return refuse(SQLITE_MISUSE, "this belongs to another thread: each thread begins its own iterations and statements");
  }
  if( c->users ) return refuse(SQLITE_MISUSE, "this database is in the middle of another call of this thread: of what runs inside of that (a signal handler, a parameter) nothing may use it");
  c->users = 1;
  if( c->graves ){
    close_graves(c);
    if( c->closing ){
      conn_leave(c);
      return refuse_closed();
    }
  }
  return 0;
}

/* The same before what reads or writes. */
int conn_enter(Connection *c){
  if( conn_enter_any(c) ) return -1;
  if( c->block==NULL && !c->must_roll_back && !c->was_dropped ) return 0;
  if( block_check(c)==0 ) return 0;
  conn_leave(c);
  return -1;
}

void conn_leave(Connection *c){
  c->users = 0;
  c->asking = NULL;
  if( c->closing && c->db ){
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    close_now(c);
    PyErr_Restore(type, value, trace);
  }
}

void call_begin(Connection *c){
  if( c->is_main ){
    c->sigints = sigints_seen();
    c->was_autocommit = sqlite3_get_autocommit(c->db);
    sigint_target(c->db);
  }
}

/* After a call: whether to make it again. Only a signal makes it so whose handlers, run here, raise nothing, and only if nothing was rolled back. */
int call_again(Connection *c, int rc){
  if( !c->is_main ) return 0;
  sigint_target(NULL);
  if( (rc & 0xff)!=SQLITE_INTERRUPT || sigints_seen()==c->sigints ) return 0;
  if( PyErr_CheckSignals() ) return 0;
  return !c->closing && sqlite3_get_autocommit(c->db)==c->was_autocommit;
}

/* After a step of an iteration, which cannot be made again: Interrupted, unless a signal handler raises something else. */
void step_end(Connection *c, int rc){
  if( !c->is_main ) return;
  sigint_target(NULL);
  if( (rc & 0xff)==SQLITE_INTERRUPT && sigints_seen()!=c->sigints ) (void)PyErr_CheckSignals();
}

/* ---- errors ---- */

static const struct { int code; const char *name; } code_names[] = {
  {SQLITE_ERROR, "SQLITE_ERROR"}, {SQLITE_INTERNAL, "SQLITE_INTERNAL"}, {SQLITE_PERM, "SQLITE_PERM"},
  {SQLITE_ABORT, "SQLITE_ABORT"}, {SQLITE_BUSY, "SQLITE_BUSY"}, {SQLITE_LOCKED, "SQLITE_LOCKED"},
  {SQLITE_NOMEM, "SQLITE_NOMEM"}, {SQLITE_READONLY, "SQLITE_READONLY"}, {SQLITE_INTERRUPT, "SQLITE_INTERRUPT"},
  {SQLITE_IOERR, "SQLITE_IOERR"}, {SQLITE_CORRUPT, "SQLITE_CORRUPT"}, {SQLITE_FULL, "SQLITE_FULL"},
  {SQLITE_CANTOPEN, "SQLITE_CANTOPEN"}, {SQLITE_PROTOCOL, "SQLITE_PROTOCOL"}, {SQLITE_SCHEMA, "SQLITE_SCHEMA"},
  {SQLITE_TOOBIG, "SQLITE_TOOBIG"}, {SQLITE_CONSTRAINT, "SQLITE_CONSTRAINT"}, {SQLITE_MISMATCH, "SQLITE_MISMATCH"},
  {SQLITE_MISUSE, "SQLITE_MISUSE"}, {SQLITE_AUTH, "SQLITE_AUTH"}, {SQLITE_RANGE, "SQLITE_RANGE"},
  {SQLITE_NOTADB, "SQLITE_NOTADB"}, {SQLITE_BUSY_SNAPSHOT, "SQLITE_BUSY_SNAPSHOT"},
};

static const char *code_name(int code){
  size_t pass, i;
  for(pass=0; pass<2; pass++){
    for(i=0; i<sizeof(code_names)/sizeof(code_names[0]); i++){
      if( code_names[i].code==(pass ? code & 0xff : code) ) return code_names[i].name;
    }
  }
  return "SQLITE_UNKNOWN";
}

static PyObject *type_of(int code){
  if( code==SQLITE_BUSY_SNAPSHOT ) return conflict_type;
  /* Of another connection. Any other SQLITE_LOCKED is by what the thread itself has open: no wait would end it. */
  if( code==SQLITE_LOCKED_SHAREDCACHE ) return busy_type;
  switch( code & 0xff ){
    case SQLITE_BUSY: return busy_type;
    case SQLITE_INTERRUPT: return interrupted_type;
    case SQLITE_CONSTRAINT: return constraint_type;
  }
  return error_type;
}

/* Raises an Error with that code and text; always NULL. */
PyObject *plain_error(int code, const char *text){
  PyObject *error, *type = type_of(code), *number = NULL, *name = NULL;
  PyObject *what = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  if( what==NULL ) return NULL;
  error = PyObject_CallFunctionObjArgs(type, what, NULL);
  Py_DECREF(what);
  if( error==NULL ) return NULL;
  number = PyLong_FromLong(code);
  name = PyUnicode_FromString(code_name(code));
  if( number && name && PyObject_SetAttrString(error, "sqlite_errorcode", number)==0
   && PyObject_SetAttrString(error, "sqlite_errorname", name)==0 ){
    PyErr_SetObject(type, error);
  }
  Py_XDECREF(number);
  Py_XDECREF(name);
  Py_DECREF(error);
  return NULL;
}

/* A call on what is closed; always NULL. */
PyObject *closed_error(void){
  return end_thread() ? NULL : plain_error(SQLITE_MISUSE, "the database is closed");
}

/* Raises what a call has failed with, unless a signal handler has raised something by now, as where c is NULL; always NULL. */
PyObject *conn_error(Connection *c, int rc){
  const char *text;
  if( c==NULL ) return NULL;
  text = sqlite3_errmsg(c->db);
  /* Where an argument was refused before the connection was looked at, its text is of an earlier call. */
  if( rc!=sqlite3_extended_errcode(c->db) && rc!=(sqlite3_extended_errcode(c->db) & 0xff) ) text = sqlite3_errstr(rc);
  block_failed(c, text);
  if( PyErr_Occurred() ) return NULL;
  if( rc==SQLITE_NOMEM ) return PyErr_NoMemory();
  if( (rc & 0xff)==SQLITE_INTERRUPT && end_thread() ) return NULL;
  return plain_error(rc, text);
}

/* ---- the object ---- */

/* The end of tp_dealloc for all types of this module. */
void object_free(PyObject *self){
  PyTypeObject *type = Py_TYPE(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyObject *conn_new(PyTypeObject *type, PyObject *args, PyObject *named){
  const char *path;
  Py_ssize_t size;
  int flags, timeout, rc;
  Connection *c;
  (void)named;
  if( !PyArg_ParseTuple(args, "y#ii:Connection", &path, &size, &flags, &timeout) ) return NULL;
  if( strlen(path)!=(size_t)size ){
    PyErr_SetString(PyExc_ValueError, "the name of the database has a NUL in it");
    return NULL;
  }
  c = (Connection*)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if( c==NULL ) return NULL;
  c->children.prev = c->children.next = &c->children;
  c->thread = this_thread();
  c->fork_count = fork_count;
  c->is_main = is_main_thread();
  c->statements = PyDict_New();
  if( c->statements==NULL ){
    Py_DECREF(c);
    return NULL;
  }
  c->users = 1;
  Py_BEGIN_ALLOW_THREADS
  rc = sqlite3_open_v2(path, &c->db, flags | SQLITE_OPEN_FULLMUTEX, NULL);
  if( rc==SQLITE_OK ){
    sqlite3_extended_result_codes(c->db, 1);
    sqlite3_busy_timeout(c->db, timeout);
    sqlite3_set_authorizer(c->db, handle_authorize, c);
  }
  Py_END_ALLOW_THREADS
  c->users = 0;
  if( rc!=SQLITE_OK ){
    if( c->db ) conn_error(c, rc);
    else plain_error(rc, sqlite3_errstr(rc));
    Py_DECREF(c);
    return NULL;
  }
  if( c->is_main ) watch_sigint();
  return (PyObject*)c;
}

static void conn_dealloc(PyObject *self){
  Connection *c = (Connection*)self;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if( c->db && c->fork_count==fork_count ) close_now(c);
  Py_CLEAR(c->statements);
  sqlite3_free(c->why);
  while( c->children.next && c->children.next!=&c->children ) unlink_child(c->children.next);
  PyErr_Restore(type, value, trace);
  object_free(self);
}

/* From any thread: what is in progress in another one ends first, and the connection with it, after this has returned (is_gone). */
static PyObject *conn_close(PyObject *self, PyObject *unused){
  Connection *c = (Connection*)self;
  (void)unused;
  if( c->fork_count!=fork_count ){
    conn_enter(c);
    return NULL;
  }
  if( c->db && c->users ){
    c->closing = 1;
  }else if( c->db ){
    close_now(c);
  }
  Py_RETURN_NONE;
}

static PyObject *conn_interrupt(PyObject *self, PyObject *unused){
  Connection *c = (Connection*)self;
  (void)unused;
  if( c->db && c->fork_count==fork_count ) sqlite3_interrupt(c->db);
  Py_RETURN_NONE;
}

/* ---- tickets ---- */

static PyObject *ticket_call(Connection *c, int (*ask)(sqlite3*, const char*, sqlite3_int64*)){
  sqlite3_int64 ticket = 0;
  PyObject *answer;
  int rc;
  if( conn_enter_any(c) ) return NULL;
  CALL(c, rc, ask(c->db, "main", &ticket));
  answer = rc==SQLITE_OK ? PyLong_FromLongLong(ticket) : conn_error(c, rc);
  conn_leave(c);
  return answer;
}

static PyObject *conn_ticket(PyObject *self, PyObject *unused){
  (void)unused;
  return ticket_call((Connection*)self, plait_ticket);
}

static PyObject *conn_durable(PyObject *self, PyObject *unused){
  (void)unused;
  return ticket_call((Connection*)self, plait_durable);
}

static PyObject *conn_wait(PyObject *self, PyObject *args){
  Connection *c = (Connection*)self;
  long long ticket;
  int ms, rc, is_durable = 0;
  PyObject *answer;
  if( !PyArg_ParseTuple(args, "Li:wait", &ticket, &ms) || conn_enter_any(c) ) return NULL;
  if( c->is_main ) watch_sigint();
  CALL(c, rc, plait_wait(c->db, "main", ticket, ms, &is_durable));
  answer = rc==SQLITE_OK ? PyBool_FromLong(is_durable) : conn_error(c, rc);
  conn_leave(c);
  return answer;
}

static PyObject *conn_notify_fd(PyObject *self, PyObject *unused){
  Connection *c = (Connection*)self;
  int fd = -1, rc;
  PyObject *answer;
  (void)unused;
  if( conn_enter_any(c) ) return NULL;
  CALL(c, rc, plait_notify_fd(c->db, "main", &fd));
  answer = rc==SQLITE_OK ? PyLong_FromLong(fd) : conn_error(c, rc);
  conn_leave(c);
  return answer;
}

/* ---- what it says of itself ---- */

static PyObject *conn_number(PyObject *self, void *which){
  Connection *c = (Connection*)self;
  sqlite3_int64 n;
  if( conn_enter(c) ) return NULL;
  switch( (intptr_t)which ){
    case 0: n = sqlite3_changes64(c->db); break;
    case 1: n = sqlite3_total_changes64(c->db); break;
    default: n = sqlite3_last_insert_rowid(c->db); break;
  }
  conn_leave(c);
  return PyLong_FromLongLong(n);
}

static PyObject *conn_in_transaction(PyObject *self, void *unused){
  Connection *c = (Connection*)self;
  (void)unused;
  if( c->db==NULL || c->closing || c->fork_count!=fork_count || c->must_roll_back ) Py_RETURN_FALSE;
  return PyBool_FromLong(!sqlite3_get_autocommit(c->db));
}

static PyObject *conn_closed(PyObject *self, void *unused){
  Connection *c = (Connection*)self;
  (void)unused;
  return PyBool_FromLong(c->db==NULL || c->closing);
}

/* In a call, which a close that comes now does not end. */
static PyObject *conn_is_busy(PyObject *self, void *unused){
  Connection *c = (Connection*)self;
  (void)unused;
  return PyBool_FromLong(c->users && c->fork_count==fork_count);
}

/* Its close has come to its end: until then db is NULL in the middle of it. */
static PyObject *conn_is_gone(PyObject *self, void *unused){
  Connection *c = (Connection*)self;
  (void)unused;
  return PyBool_FromLong(c->db==NULL && !c->users);
}

static PyMethodDef methods[] = {
  {"close", conn_close, METH_NOARGS, NULL},
  {"interrupt", conn_interrupt, METH_NOARGS, NULL},
  {"execute", (PyCFunction)(void(*)(void))conn_execute, METH_FASTCALL, NULL},
  {"script", conn_script, METH_O, NULL},
  {"ticket", conn_ticket, METH_NOARGS, NULL},
  {"durable", conn_durable, METH_NOARGS, NULL},
  {"wait", conn_wait, METH_VARARGS, NULL},
  {"notify_fd", conn_notify_fd, METH_NOARGS, NULL},
  {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
  {"changes", conn_number, NULL, NULL, (void*)0},
  {"total_changes", conn_number, NULL, NULL, (void*)1},
  {"last_insert_rowid", conn_number, NULL, NULL, (void*)2},
  {"in_transaction", conn_in_transaction, NULL, NULL, NULL},
  {"closed", conn_closed, NULL, NULL, NULL},
  {"is_busy", conn_is_busy, NULL, NULL, NULL},
  {"is_gone", conn_is_gone, NULL, NULL, NULL},
  {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
  {Py_tp_doc, "A connection of one thread."},
  {Py_tp_new, conn_new},
  {Py_tp_dealloc, conn_dealloc},
  {Py_tp_methods, methods},
  {Py_tp_getset, attributes},
  {0, NULL},
};

PyType_Spec connection_spec = {
  .name = "plait._plait.Connection",
  .basicsize = sizeof(Connection),
  .flags = Py_TPFLAGS_DEFAULT,
  .slots = slots,
};

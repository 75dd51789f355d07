/*
** transaction.c - blocks: the transactions and savepoints of `with db.transaction():`.
**
** An exception may come between any two steps of a Python program: a signal handler raises where it wants. So what SQLite does and the note of it are
** one call here, with no Python between them, and the note hangs on the connection and not on who called.
**
** States of a block: new; open, in the chain of its connection (Connection.block is the innermost); ended. Only __enter__ opens it, when SQLite has begun.
** It ends in __exit__ or, at the latest, with the object.
**  - BLOCK-1 A block that ends is committed or released, or nothing of it is left: what cannot be undone alone is rolled back with all around it.
**  - BLOCK-2 If the transaction is gone while blocks are open (autocommit), every call is refused until the last of them has ended (block_check). Else what
**       the program still has to write would be committed row by row, without what was rolled back.
**  - BLOCK-3 Blocks end in the reverse order of their beginning. Another order is refused, and the transaction rolled back.
**  - BLOCK-4 A block whose object is dropped is rolled back. That is so where an exception has passed `with` by (before it had got hold of the way out, or at a jump that CPython has left out of it), and goes on its way; where
**       none is on its way the program has lost hold of its transaction, and the next call says so instead of writing outside of it.
**  - BLOCK-5 What has to be rolled back and cannot be yet, since another thread dropped it or a call is in progress, is rolled back before the next call (must_roll_back).
*/
#include "plait_py.h"
#include <string.h>

enum { NEW, OPEN, ENDED };

struct Transaction {
  PyObject_HEAD
  PyObject *db;
  Connection *conn;
  Transaction *outer;       /* borrowed: it takes itself out of the chain */
  int kind;                 /* index into begins[] */
  int savepoint;            /* 0: it is the transaction itself */
  int state;
};

static const char *const kinds[] = {"immediate", "concurrent", "deferred", "exclusive"};
static const char *const begins[] = {"BEGIN IMMEDIATE", "BEGIN CONCURRENT", "BEGIN DEFERRED", "BEGIN EXCLUSIVE"};

/* ---- rolling back ---- */

/* Ends what is being read, so that nothing keeps an interrupt alive, which would meet every ROLLBACK. */
static void cut_children(Connection *c){
  Child *child;
  for(child=c->children.next; child!=&c->children; child=child->next){
    if( child->raw==NULL || child->kind==CHILD_MAP ) continue;
    child->is_cut = 1;
    if( child->kind==CHILD_STATEMENT ){
      sqlite3_reset(child->raw);
    }else{
      plait_cursor_close(child->raw);
      child->raw = NULL;
    }
  }
}

/* The next step of what was ended so: its result, with an exception. */
int cut_error(void){
  PyObject *none = plain_error(SQLITE_ABORT, "this was ended when its transaction was rolled back: begin it again");
  Py_XDECREF(none);
  return SQLITE_ABORT;
}

/* Rolls the whole transaction back, whatever signals come. The connection has been entered, or nobody else can. */
static void roll_back(Connection *c){
  Py_BEGIN_ALLOW_THREADS
  if( !sqlite3_get_autocommit(c->db) ) sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
  if( !sqlite3_get_autocommit(c->db) ){
    cut_children(c);
    sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
  }
  Py_END_ALLOW_THREADS
  c->must_roll_back = !sqlite3_get_autocommit(c->db);
}

/* Keeps why the transaction is gone, the first reason. */
static void set_why(Connection *c, const char *text){
  if( c->why==NULL ) c->why = sqlite3_mprintf("%s", text);
}

static void forget_why(Connection *c){
  sqlite3_free(c->why);
  c->why = NULL;
}

/* A call has failed with that text: whether it has taken the transaction of the open blocks with it. */
void block_failed(Connection *c, const char *text){
  if( c->block && sqlite3_get_autocommit(c->db) ) set_why(c, text);
}

static int refuse(Connection *c, const char *before, const char *after){
  char *text = c->why ? sqlite3_mprintf("%s by a failure (%s)%s", before, c->why, after)
                      : sqlite3_mprintf("%s inside of it%s", before, after);
  PyObject *none = text ? plain_error(SQLITE_ABORT, text) : PyErr_NoMemory();
  Py_XDECREF(none);
  sqlite3_free(text);
  return -1;
}

/* Of an entered connection, before what reads or writes: -1 with an exception if its transaction is not what the program thinks it is. */
int block_check(Connection *c){
  PyObject *none;
  if( c->must_roll_back ){
    roll_back(c);
    if( c->must_roll_back ){
      conn_error(c, sqlite3_extended_errcode(c->db));
      return -1;
    }
  }
  if( c->block && sqlite3_get_autocommit(c->db) ) return refuse(c, "the transaction of this block was ended", ": leave the block before anything else is done");
  if( c->was_dropped ){
    c->was_dropped = 0;
    none = plain_error(SQLITE_ABORT, "a transaction was dropped without its end, and is rolled back: say `with db.transaction():`, or keep the object until its __exit__()");
    Py_XDECREF(none);
    return -1;
  }
  return 0;
}

/* A script has failed that began outside of every transaction: what it has begun ends with it. Its exception stays. */
void script_failed(Connection *c){
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if( !sqlite3_get_autocommit(c->db) ) roll_back(c);
  PyErr_Restore(type, value, trace);
}

/* ---- the chain ---- */

static void unlink_block(Transaction *t){
  Connection *c = t->conn;
  Transaction **at = &c->block;
  while( *at && *at!=t ) at = &(*at)->outer;
  if( *at ) *at = t->outer;
  t->outer = NULL;
  t->state = ENDED;
  if( c->block==NULL ) forget_why(c);
}

/* Nothing of a block is left, of a savepoint's transaction all or nothing but that. */
static void undo(Transaction *t){
  Connection *c = t->conn;
  char sql[80];
  int rc;
  if( t->savepoint && !sqlite3_get_autocommit(c->db) ){
    PyOS_snprintf(sql, sizeof(sql), "ROLLBACK TO plait_%d; RELEASE plait_%d", t->savepoint, t->savepoint);
    Py_BEGIN_ALLOW_THREADS
    rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);
    Py_END_ALLOW_THREADS
    if( rc==SQLITE_OK ) return;
    set_why(c, sqlite3_errmsg(c->db));
  }
  roll_back(c);
}

/* ---- __enter__ and __exit__ ---- */

static PyObject *transaction_enter(PyObject *self, PyObject *unused){
  Transaction *t = (Transaction*)self;
  Connection *c;
  int rc, savepoint = 0;
  char sql[40];
  (void)unused;
  if( t->state!=NEW ) return plain_error(SQLITE_MISUSE, "this transaction has begun already: make another one");
  c = (Connection*)PyObject_CallMethod(t->db, "_conn", NULL);
  if( c==NULL ) return NULL;
  if( !Py_IS_TYPE(c, connection_type) ){
    Py_DECREF(c);
    PyErr_SetString(PyExc_TypeError, "_conn() must answer a Connection");
    return NULL;
  }
  if( conn_enter(c) ){
    Py_DECREF(c);
    return NULL;
  }
  if( c->is_main ) watch_sigint();
  if( !sqlite3_get_autocommit(c->db) ) savepoint = c->block ? c->block->savepoint+1 : 1;
  PyOS_snprintf(sql, sizeof(sql), "SAVEPOINT plait_%d", savepoint);
  CALL(c, rc, sqlite3_exec(c->db, savepoint ? sql : begins[t->kind], NULL, NULL, NULL));
  if( rc!=SQLITE_OK || t->state!=NEW ){
    if( rc==SQLITE_OK || (savepoint==0 && !sqlite3_get_autocommit(c->db)) ) roll_back(c);
    if( rc!=SQLITE_OK ) conn_error(c, rc);
    else plain_error(SQLITE_MISUSE, "this transaction has begun already: make another one");
    conn_leave(c);
    Py_DECREF(c);
    return NULL;
  }
  t->conn = c;
  t->savepoint = savepoint;
  t->outer = c->block;
  c->block = t;
  t->state = OPEN;
  conn_leave(c);
  /* A signal that has come meanwhile: there are interpreters which would run its handler before `with` has noted the way out. */
  if( PyErr_CheckSignals() ){
    PyObject *type, *value, *trace, *done;
    PyErr_Fetch(&type, &value, &trace);
    done = PyObject_CallMethod(self, "__exit__", "OOO", Py_True, Py_None, Py_None);
    Py_XDECREF(done);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return NULL;
  }
  return Py_NewRef(t->db);
}

/* The end of a block whose body has ended well; -1 with an exception. */
static int commit(Transaction *t){
  Connection *c = t->conn;
  char sql[40];
  int rc;
  PyOS_snprintf(sql, sizeof(sql), "RELEASE plait_%d", t->savepoint);
  CALL(c, rc, sqlite3_exec(c->db, t->savepoint ? sql : "COMMIT", NULL, NULL, NULL));
  if( rc==SQLITE_OK ) return 0;
  conn_error(c, rc);
  return -1;
}

/* Ends a block of an entered connection; -1 with an exception. */
static int end(Transaction *t, int is_well){
  Connection *c = t->conn;
  if( c->must_roll_back ) roll_back(c);
  if( c->must_roll_back || sqlite3_get_autocommit(c->db) ){
    return is_well ? refuse(c, "there is nothing to commit: the transaction was ended", "") : 0;
  }
  if( c->block!=t ){
    PyObject *none;
    set_why(c, "its blocks were left in another order than the reverse of their beginning");
    roll_back(c);
    if( !is_well ) return 0;
    none = plain_error(SQLITE_MISUSE, "blocks of transactions are left in the reverse order of their beginning, and this is not the innermost one: all of it is rolled back");
    Py_XDECREF(none);
    return -1;
  }
  if( is_well && commit(t)==0 ) return 0;
  {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    undo(t);
    PyErr_Restore(type, value, trace);
  }
  return is_well ? -1 : 0;
}

static PyObject *transaction_exit(PyObject *self, PyObject *args){
  Transaction *t = (Transaction*)self;
  Connection *c = t->conn;
  PyObject *kind = Py_None, *error = Py_None, *trace = Py_None;
  int failed;
  if( !PyArg_ParseTuple(args, "|OOO:__exit__", &kind, &error, &trace) ) return NULL;
  if( t->state==NEW ) return plain_error(SQLITE_MISUSE, "this transaction has not begun: say `with db.transaction():`");
  if( t->state==ENDED ) return plain_error(SQLITE_MISUSE, "this transaction has ended already: make another one");
  if( c->db==NULL || c->closing || c->fork_count!=fork_count ){
    unlink_block(t);
    if( kind!=Py_None ) Py_RETURN_NONE;
    if( c->fork_count==fork_count ) return closed_error();
    conn_enter_any(c);
    return NULL;
  }
  if( conn_enter_any(c) ) return NULL;
  if( c->is_main ) watch_sigint();
  failed = end(t, kind==Py_None);
  unlink_block(t);
  conn_leave(c);
  if( failed ) return NULL;
  Py_RETURN_NONE;
}

/* ---- the object ---- */

static PyObject *transaction_new(PyTypeObject *type, PyObject *args, PyObject *named){
  PyObject *db, *name;
  Transaction *t;
  int kind;
  (void)named;
  if( !PyArg_ParseTuple(args, "OO:Transaction", &db, &name) ) return NULL;
  for(kind=0; kind<4; kind++){
    if( PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, kinds[kind])==0 ) break;
  }
  if( kind==4 ) return PyErr_Format(PyExc_ValueError, "a transaction is one of immediate, concurrent, deferred, exclusive, not %R", name);
  t = (Transaction*)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if( t==NULL ) return NULL;
  t->db = Py_NewRef(db);
  t->kind = kind;
  return (PyObject*)t;
}

static int transaction_traverse(PyObject *self, visitproc visit, void *arg){
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((Transaction*)self)->db);
  return 0;
}

static int transaction_clear(PyObject *self){
  Py_CLEAR(((Transaction*)self)->db);
  return 0;
}

/* BLOCK-4: nobody will end it any more. */
static void drop(Transaction *t){
  Connection *c = t->conn;
  int is_own = c->thread==this_thread(), is_unwinding = is_own && PyErr_Occurred();
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if( c->db && !c->closing && c->fork_count==fork_count ){
    if( !is_unwinding && t->outer==NULL && c->block==t ) c->was_dropped = 1;
    if( c->users==0 && is_own ){
      c->users = 1;
      roll_back(c);
      conn_leave(c);
    }else{
      c->must_roll_back = 1;
    }
  }
  if( t->outer || c->block!=t ) set_why(c, "a transaction inside of it was dropped without its end");
  unlink_block(t);
  PyErr_Restore(type, value, trace);
}

static void transaction_dealloc(PyObject *self){
  Transaction *t = (Transaction*)self;
  PyObject_GC_UnTrack(self);
  if( t->state==OPEN ) drop(t);
  Py_XDECREF(t->conn);
  transaction_clear(self);
  object_free(self);
}

static PyMethodDef methods[] = {
  {"__enter__", transaction_enter, METH_NOARGS, "Begins it; the database."},
  {"__exit__", transaction_exit, METH_VARARGS, "Commits it, or rolls it back if an exception passes."},
  {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
  {Py_tp_doc, "`with db.transaction():` commits at the end, and rolls back if an exception passes. Inside of another one it is a savepoint."},
  {Py_tp_new, transaction_new},
  {Py_tp_methods, methods},
  {Py_tp_traverse, transaction_traverse},
  {Py_tp_clear, transaction_clear},
  {Py_tp_dealloc, transaction_dealloc},
  {0, NULL},
};

PyType_Spec transaction_spec = {
  .name = "plait._plait.Transaction",
  .basicsize = sizeof(Transaction),
  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
  .slots = slots,
};

/*
** plait_py.h - what the files of the extension module plait._plait share.
**
** The module is C against CPython's stable ABI. It knows connections, statements, maps and cursors of the C API, one thread each, the blocks of
** transactions (transaction.c), and which files are open here (descriptors.c);
** which thread gets which connection, codecs and views are Python, in src/plait.
**
** THREADS. A connection belongs to the thread that opened it, and so does all that hangs on it: another thread is refused. What may be
** done from every thread: interrupt() and close(), and dropping the last reference. So nothing of SQLite is used by two threads at a time, and answers that
** point into memory of the library stay as long as plait.h says.
**
** THE GIL is released around every call of the library that may wait, read or write (macro CALL). While it is released
**  - GIL-1 Connection.users is 1. Who closes the connection meanwhile sets closing, and the call closes it when it has come back.
**  - GIL-2 the call owns references to all Python objects whose memory it reads, and these are immutable.
**  - GIL-3 objects that are dropped meanwhile, or by another thread, leave what they had in SQLite to their connection
**       (Child.is_grave), which lets go of it when its thread comes by, or when it is closed.
** Fields are read and written with the GIL held, but for main_active.
**
** FORK. A child has no use for its parent's connections: every call on one is refused, and nothing of it is closed (fork_count).
*/
#ifndef PLAIT_PY_H
#define PLAIT_PY_H

#define PY_SSIZE_T_CLEAN
/* What is ours keeps to the stable ABI; the sources of pysqlite3 beside it cannot. */
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <pthread.h>
#include <stdint.h>
#include "plait.h"

/* What an object has in SQLite that its connection must close before it is closed itself. */
typedef struct Child Child;
struct Child {
  Child *prev, *next;
  enum { CHILD_MAP, CHILD_CURSOR, CHILD_STATEMENT } kind;
  void *raw;              /* NULL once it is closed */
  int is_grave;           /* its object is gone */
  int is_cut;             /* it was ended because its transaction had to be */
};

typedef struct Transaction Transaction;
typedef struct Handle Handle;

typedef struct {
  PyObject_HEAD
  sqlite3 *db;            /* NULL once it is closed */
  uint64_t thread;
  unsigned fork_count;
  int users;              /* calls in progress: 0 or 1 */
  int closing;
  int is_main;            /* SIGINT interrupts its calls */
  int graves;
  unsigned sigints;       /* as of the beginning of the call */
  int was_autocommit;
  Handle *asking;         /* of the write in progress: its table may have become another one (handle.c); else NULL */
  Transaction *block;     /* the innermost open one, borrowed: transaction.c */
  char *why;              /* what ended the transaction of the open blocks, or NULL */
  int must_roll_back;
  int was_dropped;        /* a transaction was, and the program is not told yet */
  Child children;         /* head of a ring */
  PyObject *statements;   /* dict: text to a list with one idle Child in a capsule */
} Connection;

struct Handle {
  PyObject_HEAD
  Connection *conn;
  Child *child;
  char *schema, *table;
  char *column, *type;    /* the key as it was when it was found fit for the keys that are written, or NULL */
  int is_fresh;           /* that was within this write */
  int is_other;           /* the write was denied: the key has another type by now */
};

/* A Python object as a value of the library: v points into hold. */
typedef struct {
  plait_value v;
  PyObject *hold;
} Value;

/* How Python objects become keys and values. */
enum { KIND_ANY, KIND_BYTES, KIND_STR, KIND_INT, KIND_FLOAT };

extern PyTypeObject *connection_type, *handle_type, *map_type, *cursor_type, *rows_type, *transaction_type;
extern PyObject *error_type, *busy_type, *conflict_type, *interrupted_type, *constraint_type;
extern unsigned fork_count;
extern pthread_mutex_t close_mutex;   /* without the GIL only; new in a child of fork() */

/* module.c */
uint64_t this_thread(void);
int is_main_thread(void);
void watch_sigint(void);
void sigint_target(sqlite3 *db);
unsigned sigints_seen(void);
int end_thread(void);

/* connection.c */
int conn_enter_any(Connection *c);
int conn_enter(Connection *c);
void conn_leave(Connection *c);
void call_begin(Connection *c);
int call_again(Connection *c, int rc);
void step_end(Connection *c, int rc);
PyObject *conn_error(Connection *c, int rc);
PyObject *plain_error(int rc, const char *text);
PyObject *closed_error(void);
Child *child_new(Connection *c, int kind, void *raw);
void child_release(Connection *c, Child *child);
void object_free(PyObject *self);

/* Runs expr, which yields a result code, without the GIL; again if a signal has interrupted it whose handler does not want to end it. So expr
** reads nothing that it changes itself. */
#define CALL(c, rc, expr) do{ \
    call_begin(c); \
    Py_BEGIN_ALLOW_THREADS \
    rc = (expr); \
    Py_END_ALLOW_THREADS \
  }while( call_again(c, rc) )

/* The same for a step of an iteration: a signal ends it. */
#define STEP(c, rc, expr) do{ \
    call_begin(c); \
    Py_BEGIN_ALLOW_THREADS \
    rc = (expr); \
    Py_END_ALLOW_THREADS \
    step_end(c, rc); \
  }while( 0 )

/* value.c */
int value_from(PyObject *o, int kind, const char *what, Value *out);
int key_value_from(PyObject *o, int kind, Value *out);
void value_clear(Value *value);
PyObject *value_to(const plait_value *v, int kind, const char *what);
int kind_of(PyObject *name);

/* statement.c */
PyObject *conn_execute(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *conn_script(PyObject *self, PyObject *sql);
extern PyType_Spec rows_spec;

/* descriptors.c */
int note_descriptors(void);
PyObject *module_is_open_here(PyObject *module, PyObject *path);
PyObject *module_is_open_elsewhere(PyObject *module, PyObject *path);
PyObject *module_guard(PyObject *module, PyObject *path);

/* transaction.c */
int block_check(Connection *c);
void block_failed(Connection *c, const char *text);
void script_failed(Connection *c);
int cut_error(void);
extern PyType_Spec transaction_spec;

/* handle.c */
int handle_authorize(void *conn, int code, const char *table, const char *column, const char *schema, const char *inner);
PyObject *handle_key_type(Handle *h);

/* map.c, cursor.c */
extern PyType_Spec connection_spec, handle_spec, map_spec, cursor_spec;
PyObject *cursor_new(
  PyObject *map, Handle *h, const plait_range *range, int what, int is_reverse, int key_kind, int value_kind, PyObject *decode);

#endif

/*
** module.c - the module plait._plait: its types and exceptions, and what is done once for a process: which thread is asking, what a child
** made by fork() sees, and Ctrl-C during a call that waits.
**
** SIGINT. CPython's handler only notes the signal; a call that waits in the library would go on until its busy timeout. So a handler of our own is put
** before CPython's: it interrupts the call that the main thread is in, if it is in one, and then does what was done before. signal.signal()
** installs CPython's handler anew, so it is looked for again by calls that may wait long (watch_sigint). No other handler than CPython's is replaced:
** which one that is, is whatever stands there when Python says that it handles SIGINT. Mostly that is so on import; in a process that was started
** with SIGINT ignored, as shells start what they put into the background, once signal.signal() was called.
**
** The end of the interpreter closes what is open, and daemon threads still run then. What they ask for from then on raises SystemExit in the place of an
** error, which ends a thread without a word: what it would have to say could meet the end of sys.stderr, and that is fatal to CPython.
**
** Interpreters. The types are made once and are the main interpreter's; others are refused.
*/
#include "plait_py.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

PyTypeObject *connection_type, *handle_type, *map_type, *cursor_type, *rows_type, *transaction_type;
PyObject *error_type, *busy_type, *conflict_type, *interrupted_type, *constraint_type;
unsigned fork_count;
pthread_mutex_t close_mutex = PTHREAD_MUTEX_INITIALIZER;

static uint64_t threads_seen;
static _Thread_local uint64_t thread_number;

static _Atomic(sqlite3*) main_active;
static atomic_uint sigint_count;
static void (*python_sigint)(int);
static PyObject *getsignal;  /* of the module _signal */
static PyObject *is_daemon;  /* of the calling thread; NULL until the interpreter ends */

/* A number for the calling thread that no other ever gets, other than those of pthread_self(). With the GIL. */
uint64_t this_thread(void){
  if( thread_number==0 ) thread_number = ++threads_seen;
  return thread_number;
}

int is_main_thread(void){
  return syscall(SYS_gettid)==getpid();
}

static void forked(void){
  static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
  fork_count++;
  close_mutex = unlocked;
  atomic_store(&main_active, NULL);
}

static void on_sigint(int number){
  sqlite3 *db = atomic_load(&main_active);
  atomic_fetch_add(&sigint_count, 1);
  if( db ) sqlite3_interrupt(db);
  python_sigint(number);
}

/* Whether `handler`, which is in force, is CPython's. It is asked of Python in C alone: nothing of the program's runs meanwhile. */
static int is_of_python(void (*handler)(int)){
  static void (*foreign)(int) = NULL;
  PyObject *known;
  if( python_sigint ) return handler==python_sigint;
  if( handler==SIG_DFL || handler==SIG_IGN || handler==on_sigint || handler==foreign ) return 0;
  known = PyObject_CallFunction(getsignal, "i", SIGINT);
  if( known!=NULL && PyCallable_Check(known) ) python_sigint = handler;
  else foreign = handler;
  Py_XDECREF(known);
  PyErr_Clear();
  return python_sigint!=NULL;
}

/* Puts the handler before CPython's, if that is the one in force. */
void watch_sigint(void){
  struct sigaction now;
  if( sigaction(SIGINT, NULL, &now)!=0 || (now.sa_flags & SA_SIGINFO) || !is_of_python(now.sa_handler) ) return;
  now.sa_handler = on_sigint;
  sigaction(SIGINT, &now, NULL);
}

/* The call that SIGINT interrupts from now on; NULL: none. By the main thread alone. */
void sigint_target(sqlite3 *db){
  atomic_store(&main_active, db);
}

unsigned sigints_seen(void){
  return atomic_load(&sigint_count);
}

/* Whether the calling thread has to end now, with SystemExit raised. */
int end_thread(void){
  PyObject *answer;
  int ends;
  if( is_daemon==NULL || PyErr_Occurred() ) return 0;
  answer = PyObject_CallNoArgs(is_daemon);
  ends = answer!=NULL && PyObject_IsTrue(answer)==1;
  Py_XDECREF(answer);
  PyErr_Clear();
  if( ends ) PyErr_SetNone(PyExc_SystemExit);
  return ends;
}

static PyObject *module_ends(PyObject *module, PyObject *asked){
  (void)module;
  Py_XDECREF(is_daemon);
  is_daemon = Py_NewRef(asked);
  Py_RETURN_NONE;
}

static PyObject *new_error(const char *name, const char *doc, PyObject *base){
  return PyErr_NewExceptionWithDoc(name, doc, base, NULL);
}

static int make_types(PyObject *module){
  static const struct { PyTypeObject **type; PyType_Spec *spec; } all[] = {
    {&connection_type, &connection_spec}, {&handle_type, &handle_spec}, {&map_type, &map_spec},
    {&cursor_type, &cursor_spec}, {&rows_type, &rows_spec}, {&transaction_type, &transaction_spec},
  };
  size_t i;
  for(i=0; i<sizeof(all)/sizeof(all[0]); i++){
    *all[i].type = (PyTypeObject*)PyType_FromModuleAndSpec(module, all[i].spec, NULL);
    if( *all[i].type==NULL ) return -1;
  }
  error_type = new_error("plait.Error",
      "A call of the library has failed. sqlite_errorcode and sqlite_errorname say how.", NULL);
  if( error_type==NULL ) return -1;
  busy_type = new_error("plait.Busy", "A wait was longer than the timeout; nothing has changed.", error_type);
  conflict_type = new_error("plait.Conflict",
      "What this transaction has read was changed by another one; run it again from its beginning.", error_type);
  interrupted_type = new_error("plait.Interrupted", "The call was interrupted.", error_type);
  constraint_type = new_error("plait.ConstraintError", "A constraint of the table forbids the change.", error_type);
  return busy_type && conflict_type && interrupted_type && constraint_type ? 0 : -1;
}

static int add(PyObject *module, const char *name, void *object){
  return PyModule_AddObjectRef(module, name, (PyObject*)object);
}

static int module_exec(PyObject *module){
  struct sigaction now;
  PyObject *signals;
  if( PyInterpreterState_GetID(PyInterpreterState_Get())!=0 ){
    PyErr_SetString(PyExc_ImportError, "plait works in the main interpreter only, not in subinterpreters");
    return -1;
  }
  if( connection_type==NULL ){
    /* Without statistics no allocation takes a mutex of the whole process, which a child of fork() could find taken for good. */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    if( note_descriptors() || make_types(module) ) return -1;
    signals = PyImport_ImportModule("_signal");
    getsignal = signals ? PyObject_GetAttrString(signals, "getsignal") : NULL;
    Py_XDECREF(signals);
    if( getsignal==NULL ) return -1;
    if( sigaction(SIGINT, NULL, &now)==0 && !(now.sa_flags & SA_SIGINFO) ) (void)is_of_python(now.sa_handler);
    pthread_atfork(NULL, NULL, forked);
  }
  if( add(module, "Connection", connection_type) || add(module, "Map", map_type) || add(module, "Handle", handle_type)
   || add(module, "Rows", rows_type) || add(module, "Transaction", transaction_type) || add(module, "Cursor", cursor_type) || add(module, "Error", error_type)
   || add(module, "Busy", busy_type) || add(module, "Conflict", conflict_type)
   || add(module, "Interrupted", interrupted_type) || add(module, "ConstraintError", constraint_type) ){
    return -1;
  }
  return PyModule_AddStringConstant(module, "version", plait_version())
      || PyModule_AddStringConstant(module, "sqlite_version", sqlite3_libversion()) ? -1 : 0;
}

static PyMethodDef functions[] = {
  {"is_open_here", module_is_open_here, METH_O, "Whether this library has the file of that path open."},
  {"is_open_elsewhere", module_is_open_elsewhere, METH_O, "Whether this process has a descriptor of the file that is not of this library."},
  {"ends", module_ends, METH_O, "The interpreter ends: threads for which that function says yes end with it."},
  {"guard", module_guard, METH_O, "Keeps the SQLite that an extension module uses off files that are open here; whether that is possible."},
  {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
  {Py_mod_exec, module_exec},
  {0, NULL},
};

static struct PyModuleDef definition = {
  .m_base = PyModuleDef_HEAD_INIT,
  .m_name = "plait._plait",
  .m_doc = "Connections, statements, maps and cursors of libsqlite3 by Plait.",
  .m_methods = functions,
  .m_slots = slots,
};

PyMODINIT_FUNC PyInit__plait(void){
  return PyModuleDef_Init(&definition);
}

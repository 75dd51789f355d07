/*
** descriptors.c - which files this copy of SQLite has open, and keeping other copies in the process off them.
**
** Locks of POSIX belong to a process and a file: whoever closes any descriptor of the file takes those of all others in the process with it, and another process may
** then take the file for unused. So the process may have a database open through one copy of SQLite only, and through nothing else.
**
** The library opens and closes its files by two functions that SQLite lets be replaced (xSetSystemCall). Ours note each descriptor of a file:
**  - FD-1 `own` is exact whenever the mutex is free: open and note, close and forget are one step under it. A look at /proc/self/fd is made under it too.
**  - FD-2 What a child of fork() has from its parent is noted as inherited: it is not in use here, and it is nobody else's either.
**  - FD-3 The GIL is never waited for with the mutex held.
** The library of Python's sqlite3 module, where it is a shared one, gets an open() that refuses what is noted here: sqlite3.connect, ATTACH and VACUUM INTO
** all come by there, and whatever else uses that library. Once it has it, ours looks as well before it is the first here to open a file, ATTACH included; both
** do so under the mutex, so that of two that come at once one is refused.
*/
#include "plait_py.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef int (*open_call)(const char*, int, int);
typedef int (*close_call)(int);
typedef sqlite3_vfs *(*find_call)(const char*);

typedef struct {
  int fd;
  dev_t dev;
  ino_t ino;
  int is_inherited;
} Own;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Own *own;
static size_t own_count, own_room;
static open_call our_open, their_open;
static close_call our_close;

/* ---- whose a file is; with the mutex ---- */

static int is_in_use_here(const struct stat *status){
  size_t i;
  for(i=0; i<own_count; i++){
    if( own[i].dev==status->st_dev && own[i].ino==status->st_ino && !own[i].is_inherited ) return 1;
  }
  return 0;
}

static int is_noted(int fd, const struct stat *status){
  size_t i;
  for(i=0; i<own_count; i++){
    if( own[i].fd==fd && own[i].dev==status->st_dev && own[i].ino==status->st_ino ) return 1;
  }
  return 0;
}

/* Whether this process has a descriptor of the file that is not of this library. */
static int is_open_elsewhere(const struct stat *wanted){
  DIR *all = opendir("/proc/self/fd");
  struct dirent *entry;
  int found = 0;
  while( all && !found && (entry = readdir(all)) ){
    struct stat status;
    int fd = atoi(entry->d_name), flags;
    if( entry->d_name[0]=='.' || fd==dirfd(all) || fstat(fd, &status)!=0 ) continue;
    if( status.st_dev!=wanted->st_dev || status.st_ino!=wanted->st_ino || is_noted(fd, &status) ) continue;
    flags = fcntl(fd, F_GETFL);
    found = flags>=0 && !(flags & O_PATH);      /* the close of such a one drops no lock */
  }
  if( all ) closedir(all);
  return found;
}

/* ---- our own ---- */

/* Room for one more; 0 if there is no memory. */
static int make_room(void){
  size_t room = own_room ? own_room*2 : 64;
  Own *more;
  if( own_count<own_room ) return 1;
  more = realloc(own, room*sizeof(Own));
  if( more==NULL ) return 0;
  own = more;
  own_room = room;
  return 1;
}

/* The files beside a database, of which the engine has descriptors of its own: who uses them has the database open. */
static int is_beside(const char *path){
  static const char *const ends[] = {"-shm", "-wal", "-journal"};
  size_t i, size = strlen(path);
  for(i=0; i<sizeof(ends)/sizeof(ends[0]); i++){
    size_t n = strlen(ends[i]);
    if( size>n && strcmp(path+size-n, ends[i])==0 ) return 1;
  }
  return 0;
}

/* Whether another copy has a file that this one is about to open as the first of this process. Who has opened it here already has been let in. */
static int is_theirs(const char *path){
  struct stat status;
  if( their_open==NULL || is_beside(path) || stat(path, &status)!=0 || !S_ISREG(status.st_mode) ) return 0;
  return !is_in_use_here(&status) && is_open_elsewhere(&status);
}

static int noting_open(const char *path, int flags, int mode){
  struct stat status;
  int fd = -1;
  pthread_mutex_lock(&mutex);
  if( !make_room() ) errno = ENOMEM;
  else if( is_theirs(path) ) errno = EBUSY;
  else fd = our_open(path, flags, mode);
  if( fd>=0 && fstat(fd, &status)==0 && S_ISREG(status.st_mode) ){
    own[own_count++] = (Own){fd, status.st_dev, status.st_ino, 0};
  }
  pthread_mutex_unlock(&mutex);
  return fd;
}

static int noting_close(int fd){
  size_t i;
  int rc;
  pthread_mutex_lock(&mutex);
  rc = our_close(fd);
  for(i=0; i<own_count && own[i].fd!=fd; i++){}
  if( i<own_count ) own[i] = own[--own_count];
  pthread_mutex_unlock(&mutex);
  return rc;
}

static void before_fork(void){
  pthread_mutex_lock(&mutex);
}

static void in_parent(void){
  pthread_mutex_unlock(&mutex);
}

static void in_child(void){
  size_t i;
  for(i=0; i<own_count; i++) own[i].is_inherited = 1;
  pthread_mutex_unlock(&mutex);
}

/* Once for the process, before anything is opened; -1 with an exception. */
int note_descriptors(void){
  sqlite3_vfs *vfs = sqlite3_initialize()==SQLITE_OK ? sqlite3_vfs_find("unix") : NULL;
  if( vfs==NULL || vfs->iVersion<3 ){
    PyErr_SetString(PyExc_ImportError, "the library inside of plait has no unix VFS");
    return -1;
  }
  our_open = (open_call)vfs->xGetSystemCall(vfs, "open");
  our_close = (close_call)vfs->xGetSystemCall(vfs, "close");
  vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)noting_open);
  vfs->xSetSystemCall(vfs, "close", (sqlite3_syscall_ptr)noting_close);
  pthread_atfork(before_fork, in_parent, in_child);
  return 0;
}

/* ---- for Python ---- */

static PyObject *ask(PyObject *path, int (*answer)(const struct stat*)){
  struct stat status;
  char *name;
  int is = 0;
  if( PyBytes_AsStringAndSize(path, &name, NULL) ) return NULL;
  Py_BEGIN_ALLOW_THREADS
  if( stat(name, &status)==0 ){
    pthread_mutex_lock(&mutex);
    is = answer(&status);
    pthread_mutex_unlock(&mutex);
  }
  Py_END_ALLOW_THREADS
  return PyBool_FromLong(is);
}

PyObject *module_is_open_here(PyObject *module, PyObject *path){
  (void)module;
  return ask(path, is_in_use_here);
}

PyObject *module_is_open_elsewhere(PyObject *module, PyObject *path){
  (void)module;
  return ask(path, is_open_elsewhere);
}

/* ---- the library of Python's sqlite3 ---- */

/* Runs in that library, in any thread. */
static int refusing_open(const char *path, int flags, int mode){
  struct stat status;
  int fd;
  pthread_mutex_lock(&mutex);
  if( stat(path, &status)==0 && is_in_use_here(&status) ){
    fd = -1;
    errno = EBUSY;
  }else{
    fd = their_open(path, flags, mode);
  }
  pthread_mutex_unlock(&mutex);
  return fd;
}

/* Puts refusing_open() into the library that the extension module of this path uses, None: the program itself; whether it is there. Once is enough. */
PyObject *module_guard(PyObject *module, PyObject *path){
  char *name = NULL;
  void *handle;
  find_call find = NULL;
  sqlite3_vfs *vfs;
  (void)module;
  if( their_open ) Py_RETURN_TRUE;
  if( path!=Py_None && PyBytes_AsStringAndSize(path, &name, NULL) ) return NULL;
  handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if( handle ){
    *(void**)&find = dlsym(handle, "sqlite3_vfs_find");
    dlclose(handle);                            /* it stays loaded: modules of Python are not unloaded */
  }
  vfs = find && find!=sqlite3_vfs_find ? find("unix") : NULL;
  if( vfs==NULL || vfs->iVersion<3 ) Py_RETURN_FALSE;
  their_open = (open_call)vfs->xGetSystemCall(vfs, "open");
  if( their_open==NULL || vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)refusing_open)!=SQLITE_OK ){
    their_open = NULL;
    Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

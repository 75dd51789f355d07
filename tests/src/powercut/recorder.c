/*
** recorder.c - writes down what a process does to the files of one folder, in the order in which it does it.
**
** Loaded before the C library. PLAIT_RECORD_FOLDER is the folder, PLAIT_RECORD the file that records are appended to; several
** processes may share it. Files whose names end in "-shm" are memory, which no power cut leaves, and are passed over, but for what the system
** is asked to write out of them.
**
** A change is written down before it is made, a sync when it begins and when it has ended. So whatever was changed before a
** sync began stands before it.
**
** PLAIT_RECORD_HOLD names a file: while it exists, a sync of a file ending in "-plait" that has begun does not go on, and the
** file with ".inside" added tells so. PLAIT_RECORD_HOLD_WAL does the same with files ending in "-wal", from
** the sync on whose number, from 0, is in the file.
**
** PLAIT_RECORD_FAIL names another: while it exists, the sync of the folder that follows the removal of a super-journal fails.
** PLAIT_RECORD_FAIL_WAL likewise: while it exists, writes to files ending in "-wal" fail. PLAIT_RECORD_FAIL_WAIT: whoever waits for a
** part of a file to be on disk hears that it is not.
*/
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, LENGTH, CREATE, REMOVE, RENAME, SYNC_BEGIN, SYNC_END, UNKNOWN, WRITE_OUT, ZEROS, WAIT_OUT };

static int record = -1;
static char folder[1024];
static const char *hold;
static const char *hold_wal;
static const char *fail;
static const char *fail_wal;
static const char *fail_wait;
static int super_removed;

__attribute__((constructor)) static void begin(void){
  const char *to = getenv("PLAIT_RECORD");
  const char *in = getenv("PLAIT_RECORD_FOLDER");
  hold = getenv("PLAIT_RECORD_HOLD");
  hold_wal = getenv("PLAIT_RECORD_HOLD_WAL");
  fail = getenv("PLAIT_RECORD_FAIL");
  fail_wal = getenv("PLAIT_RECORD_FAIL_WAL");
  fail_wait = getenv("PLAIT_RECORD_FAIL_WAIT");
  if( to==0 || in==0 || strlen(in)>=sizeof(folder) ) return;
  strcpy(folder, in);
  record = (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY|O_CREAT|O_APPEND|O_CLOEXEC, 0600);
}

static void note(uint32_t what, const char *name, uint64_t number, const void *data, uint32_t n){
  struct { uint32_t what, nName; uint64_t number; uint32_t nData, zero; } head;
  struct iovec parts[3];
  head.what = what;
  head.nName = (uint32_t)strlen(name);
  head.number = number;
  head.nData = n;
  head.zero = 0;
  parts[0].iov_base = &head;        parts[0].iov_len = sizeof(head);
  parts[1].iov_base = (void*)name;  parts[1].iov_len = head.nName;
  parts[2].iov_base = (void*)data;  parts[2].iov_len = n;
  if( syscall(SYS_writev, record, parts, 3)!=(long)(sizeof(head)+head.nName+n) ) abort();
}

/* A write. Of many zeros, as a log is filled with, only how many. */
static void note_write(const char *name, uint64_t at, const void *data, size_t n){
  static const char zeros[4096];
  size_t i;
  uint64_t all = n;
  for(i=0; i+sizeof(zeros)<=n; i+=sizeof(zeros)){
    if( memcmp((const char*)data+i, zeros, sizeof(zeros))!=0 ) break;
  }
  if( n>=sizeof(zeros) && i==n ) note(ZEROS, name, at, &all, sizeof(all));
  else note(WRITE, name, at, data, (uint32_t)n);
}

static int ends_with(const char *name, const char *end){
  size_t n = strlen(name), m = strlen(end);
  return n>m && strcmp(name+n-m, end)==0;
}

/* The name within the folder, "" for the folder itself, 0 for what is not in it. */
static const char *place(const char *path){
  size_t n = strlen(folder);
  if( record<0 || strncmp(path, folder, n)!=0 ) return 0;
  if( path[n]==0 ) return "";
  if( path[n]!='/' || strstr(path, " (deleted)") ) return 0;
  return path+n+1;
}

/* The same; 0 for memory as well. */
static const char *inside(const char *path){
  const char *name = place(path);
  return name && ends_with(name, "-shm") ? 0 : name;
}
static const char *place_of(int fd, char *buf){
  char link[64];
  ssize_t n;
  if( record<0 ) return 0;
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  n = readlink(link, buf, 1023);
  if( n<0 ) return 0;
  buf[n] = 0;
  return place(buf);
}
static const char *name_of(int fd, char *buf){
  const char *name = place_of(fd, buf);
  return name && ends_with(name, "-shm") ? 0 : name;
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at){
  char buf[1024];
  const char *name = name_of(fd, buf);
  if( name && fail_wal && ends_with(name, "-wal") && access(fail_wal, F_OK)==0 ){
    errno = EIO;
    return -1;
  }
  if( name ) note_write(name, (uint64_t)at, data, n);
  return syscall(SYS_pwrite64, fd, data, n, at);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at){ return pwrite64(fd, data, n, at); }

ssize_t write(int fd, const void *data, size_t n){
  char buf[1024];
  const char *name = name_of(fd, buf);
  if( name ) note_write(name, (uint64_t)lseek(fd, 0, SEEK_CUR), data, n);
  return syscall(SYS_write, fd, data, n);
}

int ftruncate64(int fd, off64_t n){
  char buf[1024];
  const char *name = name_of(fd, buf);
  if( name ) note(LENGTH, name, (uint64_t)n, 0, 0);
  return (int)syscall(SYS_ftruncate, fd, n);
}
int ftruncate(int fd, off_t n){ return ftruncate64(fd, n); }

static void wait_while(const char *held){
  char told[1024];
  if( held==0 || access(held, F_OK)!=0 ) return;
  snprintf(told, sizeof(told), "%s.inside", held);
  close((int)syscall(SYS_openat, AT_FDCWD, told, O_WRONLY|O_CREAT|O_CLOEXEC, 0600));
  while( access(held, F_OK)==0 ) usleep(1000);
}

static int is_let_through(void){
  static int passed;
  char number[16];
  int in = hold_wal ? (int)syscall(SYS_openat, AT_FDCWD, hold_wal, O_RDONLY|O_CLOEXEC) : -1;
  ssize_t n;
  if( in<0 ) return 1;
  n = read(in, number, sizeof(number)-1);
  close(in);
  number[n<0 ? 0 : n] = 0;
  return passed++ < atoi(number);
}

static int synced(int fd, long call){
  static uint64_t last;
  char buf[1024];
  const char *name = name_of(fd, buf);
  uint64_t id;
  int rc;
  if( name==0 ) return (int)syscall(call, fd);
  id = (uint64_t)getpid()<<32 | __atomic_add_fetch(&last, 1, __ATOMIC_SEQ_CST);
  note(SYNC_BEGIN, name, id, 0, 0);
  if( ends_with(name, "-plait") ) wait_while(hold);
  if( ends_with(name, "-wal") && !is_let_through() ) wait_while(hold_wal);
  if( super_removed && name[0]==0 ){
    super_removed = 0;
    errno = EIO;
    return -1;
  }
  rc = (int)syscall(call, fd);
  if( rc==0 ) note(SYNC_END, name, id, 0, 0);
  return rc;
}
int fsync(int fd){ return synced(fd, SYS_fsync); }
int fdatasync(int fd){ return synced(fd, SYS_fdatasync); }

/* Promises nothing: what is left of it is for who looks at the order. */
int sync_file_range(int fd, off64_t at, off64_t n, unsigned int how){
  char buf[1024];
  const char *name = place_of(fd, buf);
  int waits = (how & SYNC_FILE_RANGE_WAIT_AFTER)!=0;
  if( name ) note(waits ? WAIT_OUT : WRITE_OUT, name, (uint64_t)at, &n, sizeof(n));
  if( name && waits && fail_wait && access(fail_wait, F_OK)==0 ){
    errno = EIO;
    return -1;
  }
  return (int)syscall(SYS_sync_file_range, fd, at, n, how);
}

static int opened(const char *path, int flags, int mode){
  const char *name = (flags & (O_CREAT|O_TRUNC)) ? inside(path) : 0;
  if( name && (flags & O_CREAT) && access(path, F_OK)!=0 ) note(CREATE, name, 0, 0, 0);
  else if( name && (flags & O_TRUNC) ) note(LENGTH, name, 0, 0, 0);
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
#define OPEN(symbol) \
  int symbol(const char *path, int flags, ...){ \
    va_list list; \
    int mode; \
    va_start(list, flags); \
    mode = (flags & (O_CREAT|O_TMPFILE)) ? va_arg(list, int) : 0; \
    va_end(list); \
    return opened(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

int unlink(const char *path){
  const char *name = inside(path);
  if( name && access(path, F_OK)==0 ) note(REMOVE, name, 0, 0, 0);
  if( name && fail && strstr(name, "-mj") && access(fail, F_OK)==0 ) super_removed = 1;
  return (int)syscall(SYS_unlink, path);
}

int rename(const char *from, const char *to){
  const char *a = inside(from), *b = inside(to);
  if( a && b ) note(RENAME, a, 0, b, (uint32_t)strlen(b));
  else if( a || b ) note(UNKNOWN, a ? a : b, 0, "rename", 6);
  return (int)syscall(SYS_rename, from, to);
}

/* Not used on these files today: the replayer stops at them. */
#define REFUSED(symbol, declaration, call) \
  declaration{ \
    char buf[1024]; \
    const char *name = name_of(fd, buf); \
    if( name ) note(UNKNOWN, name, 0, symbol, sizeof(symbol)-1); \
    return call; \
  }
REFUSED("writev", ssize_t writev(int fd, const struct iovec *v, int n), syscall(SYS_writev, fd, v, n))

/* Space behind the end of a file (FALLOC_FL_KEEP_SIZE) changes neither content nor length. */
int fallocate64(int fd, int mode, off64_t at, off64_t n){
  char buf[1024];
  const char *name = mode==1 ? 0 : name_of(fd, buf);
  if( name ) note(UNKNOWN, name, 0, "fallocate", 9);
  return (int)syscall(SYS_fallocate, fd, mode, at, n);
}

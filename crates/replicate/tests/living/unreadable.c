/*
** unreadable.c - preloaded, lets reads of some files fail: of those whose path has $UNREADABLE in it, each read from the
** $UNREADABLE_FROM-th on, so many as $UNREADABLE_COUNT says.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_long reads;

static int fails(int fd) {
  const char *part = getenv("UNREADABLE");
  char link[64], path[4096];
  ssize_t n;
  long at, from;
  if (part == 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  if (strstr(path, part) == 0) return 0;
  at = atomic_fetch_add(&reads, 1) + 1;
  from = atol(getenv("UNREADABLE_FROM"));
  return from <= at && at < from + atol(getenv("UNREADABLE_COUNT"));
}

ssize_t pread64(int fd, void *bytes, size_t n, off64_t at) {
  static ssize_t (*real)(int, void *, size_t, off64_t);
  if (real == 0) real = (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
  if (fails(fd)) {
    static const char said[] = "a read has failed\n";
    if (write(2, said, sizeof said - 1) < 0) return -1;
    errno = EIO;
    return -1;
  }
  return real(fd, bytes, n, at);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t at) { return pread64(fd, bytes, n, at); }

/*
** silent.c - preloaded, lets calls that name a file whose path has $SILENT in it never answer, as those of a network file
** system whose server is gone.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void wait_for(const char *path) {
  static const char said[] = "a call does not answer\n";
  const char *part = getenv("SILENT");
  if (part == 0 || path == 0 || strstr(path, part) == 0) return;
  if (write(2, said, sizeof said - 1) < 0) return;
  for (;;) pause();
}

char *realpath(const char *path, char *to) {
  static char *(*real)(const char *, char *);
  if (real == 0) real = (char *(*)(const char *, char *))dlsym(RTLD_NEXT, "realpath");
  wait_for(path);
  return real(path, to);
}

int mkdir(const char *path, mode_t mode) {
  static int (*real)(const char *, mode_t);
  if (real == 0) real = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
  wait_for(path);
  return real(path, mode);
}

int statx(int at, const char *path, int flags, unsigned mask, struct statx *to) {
  static int (*real)(int, const char *, int, unsigned, struct statx *);
  if (real == 0) real = (int (*)(int, const char *, int, unsigned, struct statx *))dlsym(RTLD_NEXT, "statx");
  wait_for(path);
  return real(at, path, flags, mask, to);
}

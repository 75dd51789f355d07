/*
** Two things that a C++ runtime for glibc 2.36 asks of it, for the addon, in which that runtime is and which runs on glibc 2.31.
*/
#include <stdint.h>
#include <sys/random.h>

/* Node has threads: what counts references does so atomically. */
char __libc_single_threaded = 0;

/* std::random_device asks for it. */
uint32_t arc4random(void){
  uint32_t n;
  if( getentropy(&n, sizeof(n)) ) __builtin_trap();
  return n;
}

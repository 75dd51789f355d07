/* What the compiler's instrumentation calls by names that gcc's runtime does not have. */
#include <string.h>
void *__tsan_memcpy(void *to, const void *from, size_t n){ return memcpy(to, from, n); }
void *__tsan_memmove(void *to, const void *from, size_t n){ return memmove(to, from, n); }
void *__tsan_memset(void *to, int byte, size_t n){ return memset(to, byte, n); }

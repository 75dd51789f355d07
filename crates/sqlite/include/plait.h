/*
** plait.h - what libsqlite3 by Plait offers beyond sqlite3.h.
**
** The library is used like any other libsqlite3: include sqlite3.h, link with -lsqlite3. This header is
** needed only by programs that want to know at compile time that they have Plait before them.
*/
#ifndef PLAIT_H
#define PLAIT_H

#include "sqlite3.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
** The version of Plait as a string such as "0.1.0".
**
**     printf("SQLite %s, Plait %s\n", sqlite3_libversion(), plait_version());
**
** The string is static: do not free it. May be called at any time, from any thread, without a connection
** and before sqlite3_initialize(). A program that must also run on other builds of SQLite can
** look the symbol up with dlsym(), or ask "SELECT plait_version()", which other builds answer with
** "no such function".
*/
const char *plait_version(void);

#ifdef __cplusplus
}
#endif
#endif /* PLAIT_H */

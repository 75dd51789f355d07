/*
** Asks for WAL whenever a connection is opened, as a program's own `PRAGMA journal_mode=wal` would: preloaded into suites that know
** nothing of it. With PLAIT_JOURNAL_MODE=concurrent in the environment Plait makes that concurrent mode.
*/
#include <sqlite3.h>

/* A file that is no database, is locked or cannot be written stays what it is. */
static int askForWal(sqlite3 *db, const char **message, const void *routines){
  (void)message;
  (void)routines;
  sqlite3_exec(db, "PRAGMA journal_mode=wal", 0, 0, 0);
  return SQLITE_OK;
}

/* SQLite's prototype takes the three arguments from the one who knows them. */
__attribute__((constructor)) static void everyFile(void){
  sqlite3_auto_extension((void (*)(void))askForWal);
}

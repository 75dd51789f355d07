/*
** app.c - app FILE COUNT [BOOK]: commits COUNT transactions that add 1 to a row, beside whoever else does, and prints what is there
** and whose library it is. BOOK gets a byte for each commit that was acknowledged.
*/
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <plait.h>

static sqlite3 *db;

static void must(int rc, const char *what){
  if( rc==SQLITE_OK ) return;
  fprintf(stderr, "%s: %s\n", what, sqlite3_errmsg(db));
  exit(1);
}

static void run(const char *sql){
  must(sqlite3_exec(db, sql, 0, 0, 0), sql);
}

static int add(void){
  static const char *const aStep[] = {"BEGIN CONCURRENT", "UPDATE t SET n=n+1 WHERE id=1", "COMMIT"};
  int i;
  for(i=0; i<3; i++){
    int rc = sqlite3_exec(db, aStep[i], 0, 0, 0);
    if( rc!=SQLITE_OK ){
      if( (rc & 0xff)!=SQLITE_BUSY ) must(rc, aStep[i]);
      sqlite3_exec(db, "ROLLBACK", 0, 0, 0);
      return 0;
    }
  }
  return 1;
}

int main(int argc, char **argv){
  sqlite3_stmt *stmt;
  int left = argc>2 ? atoi(argv[2]) : 0;
  int book = argc>3 ? open(argv[3], O_WRONLY|O_CREAT|O_APPEND, 0666) : -1;
  must(sqlite3_open(argv[1], &db), "open");
  sqlite3_busy_timeout(db, 20000);
  run("PRAGMA journal_mode=concurrent");
  run("CREATE VIRTUAL TABLE temp.words USING fts5(word)");   /* built with the options of the library */
  run("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, n INT)");
  run("INSERT OR IGNORE INTO t VALUES(1, 0)");
  while( left>0 ){
    int n = add();
    if( n && book>=0 && write(book, "x", 1)!=1 ) return 1;
    left -= n;
  }
  must(sqlite3_prepare_v2(db, "SELECT n FROM t", -1, &stmt, 0), "prepare");
  if( sqlite3_step(stmt)!=SQLITE_ROW ) must(SQLITE_ERROR, "step");
  printf("%d %s\n", sqlite3_column_int(stmt, 0), plait_version());
  sqlite3_finalize(stmt);
  return sqlite3_close(db);
}

/*
** stack.c - stack FILE: eight threads with the stack of 128 KiB that musl gives a thread which asks for none work in a database, and the
** deepest use of each step in bytes is printed. With another library than Plait the mode stays WAL.
*/
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sqlite3.h>

#define STACK (128*1024)
#define THREADS 8
#define PAINT 0x5a

static const char *zFile;
static char *zDeepest[THREADS];   /* the whole stack of each thread */

static const char *const aStep[] = {
  "open", 0,
  "write", "INSERT INTO t(a,b) SELECT value, hex(randomblob(20)) FROM generate",
  "commit in parallel", "BEGIN CONCURRENT; UPDATE t SET b=b||'x' WHERE id=abs(random())%400; COMMIT",
  "indexes", "CREATE INDEX IF NOT EXISTS tb ON t(b, a); REINDEX",
  "sort and group", "SELECT group_concat(b, '') FROM (SELECT a, b FROM t ORDER BY b DESC) GROUP BY a%7",
  "recursion", "WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c WHERE x<20000) SELECT sum(x) FROM c",
  "triggers", "INSERT INTO chain VALUES(60)",
  "full text", "INSERT INTO words SELECT b FROM t LIMIT 200; SELECT count(*) FROM words WHERE words MATCH 'x OR y NEAR z'",
  "json", "SELECT json_group_array(json_object('a', a, 'b', b)) FROM t",
  "window", "SELECT sum(a) OVER (PARTITION BY a%5 ORDER BY b ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM t",
  "large transaction", "BEGIN; INSERT INTO big SELECT randomblob(4000) FROM generate, (SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3); ROLLBACK",
  "check", "PRAGMA integrity_check",
  "checkpoint", "PRAGMA wal_checkpoint(TRUNCATE)",
  "vacuum", "VACUUM",
  "close", 0,
};
#define STEPS ((int)(sizeof(aStep)/sizeof(aStep[0])/2))
static int aUsed[THREADS][STEPS];

static int used(const char *aStack){
  int i = 0;
  while( i<STACK && aStack[i]==PAINT ) i++;
  return STACK - i;
}

/* BUSY is an answer: somebody else was faster. */
static void run(sqlite3 *db, const char *zSql){
  char *zErr = 0;
  int rc = sqlite3_exec(db, zSql, 0, 0, &zErr);
  if( rc==SQLITE_OK ) return;
  if( (rc & 0xff)!=SQLITE_BUSY && (rc & 0xff)!=SQLITE_LOCKED && !strstr(zSql, "CONCURRENT") ){
    fprintf(stderr, "%s: %s\n", zSql, zErr);
    exit(1);
  }
  sqlite3_free(zErr);
  sqlite3_exec(db, "ROLLBACK", 0, 0, 0);
}

static sqlite3 *opened(void){
  sqlite3 *db;
  if( sqlite3_open(zFile, &db)!=SQLITE_OK ) exit(1);
  sqlite3_busy_timeout(db, 20000);
  run(db, "PRAGMA journal_mode=wal");
  run(db, "PRAGMA journal_mode=concurrent");
  run(db, "PRAGMA recursive_triggers=on");
  return db;
}

static void *work(void *pArg){
  int iThread = (int)(size_t)pArg;
  sqlite3 *db = opened();
  int i;
  for(i=0; i<STEPS; i++){
    if( aStep[2*i+1] ) run(db, aStep[2*i+1]);
    else if( i ) sqlite3_close(db);
    aUsed[iThread][i] = used(zDeepest[iThread]);
  }
  return 0;
}

int main(int argc, char **argv){
  pthread_t aThread[THREADS];
  sqlite3 *db;
  int i, j, worst = 0;
  zFile = argc>1 ? argv[1] : "stack.db";
  db = opened();
  run(db, "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, a INT, b TEXT); CREATE TABLE IF NOT EXISTS big(x);"
          "CREATE TABLE IF NOT EXISTS chain(n); CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(w);"
          "CREATE TRIGGER IF NOT EXISTS longer AFTER INSERT ON chain WHEN new.n>0 BEGIN INSERT INTO chain VALUES(new.n-1); END;"
          "CREATE VIEW IF NOT EXISTS generate AS WITH RECURSIVE g(value) AS (VALUES(1) UNION ALL SELECT value+1 FROM g WHERE value<1000)"
          " SELECT value FROM g");
  for(i=0; i<THREADS; i++){
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    if( posix_memalign((void**)&zDeepest[i], 4096, STACK) ) return 1;
    memset(zDeepest[i], PAINT, STACK);
    if( pthread_attr_setstack(&attr, zDeepest[i], STACK) ) return 1;
    if( pthread_create(&aThread[i], &attr, work, (void*)(size_t)i) ) return 1;
  }
  for(i=0; i<THREADS; i++) pthread_join(aThread[i], 0);
  sqlite3_close(db);
  for(i=0; i<STEPS; i++){
    int most = 0;
    for(j=0; j<THREADS; j++) if( aUsed[j][i]>most ) most = aUsed[j][i];
    printf("%-20s %6d\n", aStep[2*i], most);
    worst = most;
  }
  if( worst>=STACK-4096 ) return 2;
  printf("of %d bytes of stack %d were used\n", STACK, worst);
  return 0;
}

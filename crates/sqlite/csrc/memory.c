/*
** memory.c - what SQLite counts of its memory, without a lock.
**
** The spliced malloc.c includes this file. SQLite counts each allocation and each release under one
** mutex of the process, which it holds while the system allocates. Opening a database and reading
** its schema makes some 250 of each, and threads that prepare statements wait for each other there.
** The counts are numbers of their own, so they can be counted by atomic additions, and the system's
** allocator needs no mutex.
**
** Invariants
**  - MEMORY-1 sqlite3_status(), sqlite3_memory_used() and sqlite3_memory_highwater() say the same as
**    SQLite's: a count has every addition, and a maximum is that of all values of its count since it
**    was reset.
**  - MEMORY-2 The mutex is held where something may be refused or called by what is counted (a limit
**    of the heap), and where the application has brought allocation functions of its own: SQLite
**    promises that it calls those one at a time.
*/

/* Values that malloc.c counts. The mutex of others is held by who counts (status.c). */
static void plStatRaise(int op, sqlite3StatValueType v){
  sqlite3StatValueType mx = AtomicLoad(&sqlite3Stat.mxValue[op]);
  while( v>mx && !__atomic_compare_exchange_n(&sqlite3Stat.mxValue[op], &mx, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ){}
}
static void plStatAdd(int op, int n){
  sqlite3StatValueType v = __atomic_add_fetch(&sqlite3Stat.nowValue[op], n, __ATOMIC_RELAXED);
  if( n>0 ) plStatRaise(op, v);
}

static void plStatReset(int op){
  AtomicStore(&sqlite3Stat.mxValue[op], 0);
  plStatRaise(op, AtomicLoad(&sqlite3Stat.nowValue[op]));
}

/* MEMORY-2. A program that configured SQLite for one thread has no mutex to save, and what is atomic
** costs more. */
static SQLITE_INLINE int plCountsFreely(void){
  return sqlite3GlobalConfig.m.xMalloc==sqlite3MemMalloc && sqlite3GlobalConfig.bCoreMutex && AtomicLoad(&mem0.alarmThreshold)<=0;
}

/* mallocWithAlarm(). */
static void *plMalloc(int n){
  void *p = sqlite3MemMalloc(sqlite3MemRoundup(n));
  plStatRaise(SQLITE_STATUS_MALLOC_SIZE, (sqlite3StatValueType)n);
  if( p ){
    plStatAdd(SQLITE_STATUS_MEMORY_USED, sqlite3MemSize(p));
    plStatAdd(SQLITE_STATUS_MALLOC_COUNT, 1);
  }
  return p;
}

static void plFree(void *p){
  plStatAdd(SQLITE_STATUS_MEMORY_USED, -sqlite3MemSize(p));
  plStatAdd(SQLITE_STATUS_MALLOC_COUNT, -1);
  sqlite3MemFree(p);
}

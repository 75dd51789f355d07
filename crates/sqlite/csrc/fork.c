/*
** fork.c - a child made by fork() finds SQLite's static mutexes free, and cannot use what it has
** inherited.
**
** Inherited handles. The child may not use those of a concurrent database: an open transaction is
** its parent's, and so are the writer's right and the locks. Programs that end or collect garbage
** in the child roll back and close such handles without meaning to.
**  - CHILD-1 An inherited handle begins, continues and commits no transaction: SQLITE_MISUSE.
**  - CHILD-2 To roll back or to close an inherited handle changes nothing: neither files nor shared
**    memory, the WAL-index among it, nor locks. Its parts stay as they are until the child ends:
**    even closing one of its descriptors would drop the locks of all connections that the child has
**    opened itself.
** An unused handle, on a database that its process had not worked with, may be used like a new one.
**
** Locks. POSIX locks belong to a process: the child has none. But SQLite's VFS records the locks of
** its process, once for all connections of a file (unixInodeInfo), and the child inherits the
** record. A new connection there would count on locks that the child does not have, and wait for
** what a thread of the parent held at the fork. So a new connection begins a record of its own
** (findInodeInfo(), by iPlOwner), and the inherited one is left to the handles that it belongs to.
** In other modes all is as in SQLite. A handle that another thread of the parent has in its first
** transaction at the fork may be about to find that the database is concurrent, and has locks
** already: the child treats its file as concurrent (nPlFirst). Processes differ by the number of
** forks between them (iPlProcess); a child made by the bare system call, without pthread_atfork(),
** does not.
**
** Mutexes. Only the thread that has called fork() lives in the child. A static mutex (of the memory
** statistics, the page cache, the list of open files) that another thread held at the fork stays
** held there for ever, and the child hangs in its first sqlite3_open(). Programs with one thread do
** not have this problem, and a merge in a thread (engine/src/upkeep/pressure.rs) must not give it
** to them. So a thread that forks holds these mutexes during the fork.
**
** It takes them in the order in which SQLite's own code nests them. An application may configure
** mutexes that cannot be tried, or fork within something that holds one. So it waits for no longer
** than PL_FORK_NAPS, and a mutex that it did not get stays as stock SQLite would leave it.
*/
#include <pthread.h>

#define PL_FORK_NAPS   100      /* a millisecond each, for all mutexes together */

static const u8 aPlForkId[] = {
  SQLITE_MUTEX_STATIC_OPEN, SQLITE_MUTEX_STATIC_PRNG, SQLITE_MUTEX_STATIC_MAIN, SQLITE_MUTEX_STATIC_VFS1, SQLITE_MUTEX_STATIC_VFS2,
  SQLITE_MUTEX_STATIC_VFS3, SQLITE_MUTEX_STATIC_LRU, SQLITE_MUTEX_STATIC_PMEM, SQLITE_MUTEX_STATIC_MEM
};

/* The turn to fork, and the mutexes that its holder holds. */
static pthread_mutex_t plForkTurn = PTHREAD_MUTEX_INITIALIZER;
static sqlite3_mutex *aPlForkHeld[ArraySize(aPlForkId)];

static void plBeforeFork(void){
  int nNap = 0;
  int i;
  pthread_mutex_lock(&plForkTurn);
  for(i=0; i<ArraySize(aPlForkId); i++){
    sqlite3_mutex *pMutex = sqlite3GlobalConfig.isMutexInit ? sqlite3MutexAlloc(aPlForkId[i]) : 0;
    aPlForkHeld[i] = 0;
    if( pMutex==0 ) continue;
    while( sqlite3_mutex_try(pMutex)!=SQLITE_OK ){
      struct timespec nap = {0, 1000000};
      if( nNap++>=PL_FORK_NAPS ){
        pMutex = 0;
        break;
      }
      nanosleep(&nap, 0);
    }
    aPlForkHeld[i] = pMutex;
  }
  pthread_mutex_lock(&plLentMutex);
}

/* In the parent. */
static void plAfterFork(void){
  int i;
  pthread_mutex_unlock(&plLentMutex);
  for(i=ArraySize(aPlForkId)-1; i>=0; i--){
    sqlite3_mutex_leave(aPlForkHeld[i]);
  }
  pthread_mutex_unlock(&plForkTurn);
}

/* In the child, where no other thread runs. The list of files is whole if the parent held the mutex
** under which it changes. */
static void plAfterForkInChild(void){
  sqlite3_mutex *pHeld = 0;
  unixInodeInfo *pInode;
  int i;
  for(i=0; i<ArraySize(aPlForkId); i++){
    if( aPlForkId[i]==SQLITE_MUTEX_STATIC_VFS1 ) pHeld = aPlForkHeld[i];
  }
  for(pInode=pHeld ? inodeList : 0; pInode; pInode=pInode->pNext){
    if( pInode->nPlFirst && pInode->iPlOwner==0 ) pInode->iPlOwner = iPlProcess;
  }
  iPlProcess++;
  plAfterFork();
}

/* Counts a first transaction of a handle as it begins (n>0) and as it has begun (n<0). */
static void plCountFirst(Btree *p, int n){
  sqlite3_file *pFd = p->pBt->pPager->fd;
  unixInodeInfo *pInode = pFd->pMethods==&posixIoMethods ? ((unixFile*)pFd)->pInode : 0;
  if( n>0 ) plMindForks();
  if( pInode ) __atomic_add_fetch(&pInode->nPlFirst, n, __ATOMIC_RELAXED);
}

/* From here on a child that opens this file begins a record of its own. */
static void plMarkInode(Btree *p){
  sqlite3_file *pFd = p->pBt->pPager->fd;
  unixInodeInfo *pInode = pFd->pMethods==&posixIoMethods ? ((unixFile*)pFd)->pInode : 0;
  if( pInode==0 ) return;
  unixEnterMutex();
  if( pInode->iPlOwner==0 ) __atomic_store_n(&pInode->iPlOwner, iPlProcess, __ATOMIC_RELAXED);
  unixLeaveMutex();
}

/* True if this handle was inherited by fork(). */
static SQLITE_INLINE int plInherited(Btree *p){
  sqlite3_file *pFd = p->pBt->pPager->fd;
  unixInodeInfo *pInode;
  u64 iOwner;
  if( PL_BT(p) ) return pl_check_fork(p->pPl->pConn)==SQLITE_MISUSE;
  pInode = pFd->pMethods==&posixIoMethods ? ((unixFile*)pFd)->pInode : 0;
  /* Another thread may mark it now, as one of this process. */
  iOwner = pInode ? __atomic_load_n(&pInode->iPlOwner, __ATOMIC_RELAXED) : 0;
  return iOwner && iOwner!=iPlProcess;
}

/* CHILD-1 */
static SQLITE_NOINLINE PL_COLD int plRefuseInherited(Btree *p){
  return plStash(p, SQLITE_MISUSE, sqlite3_mprintf("this connection was opened before fork(); open a new one in the child process"));
}

/* For handles that have met a concurrent file. For other handles each wrapper is one test, like the
** generated ones. */
static SQLITE_NOINLINE int plCommitPhaseOneHere(Btree *p, const char *zSuperJrnl){
  if( sqlite3BtreeTxnState(p)==SQLITE_TXN_WRITE && plInherited(p) ) return plRefuseInherited(p);
  return PL_BT(p) ? plBtreeCommitPhaseOne(p, zSuperJrnl) : sqlite3StockBtreeCommitPhaseOne(p, zSuperJrnl);
}
SQLITE_PRIVATE SQLITE_INLINE int sqlite3BtreeCommitPhaseOne(Btree *p, const char *zSuperJrnl){
  return PL_UNLIKELY(p->pPl!=0) ? plCommitPhaseOneHere(p, zSuperJrnl) : sqlite3StockBtreeCommitPhaseOne(p, zSuperJrnl);
}

/* CHILD-2 */
static SQLITE_NOINLINE int plCommitPhaseTwoHere(Btree *p, int bCleanup){
  if( p->inTrans!=TRANS_NONE && plInherited(p) ) return SQLITE_OK;
  return PL_BT(p) ? plBtreeCommitPhaseTwo(p, bCleanup) : sqlite3StockBtreeCommitPhaseTwo(p, bCleanup);
}
SQLITE_PRIVATE SQLITE_INLINE int sqlite3BtreeCommitPhaseTwo(Btree *p, int bCleanup){
  return PL_UNLIKELY(p->pPl!=0) ? plCommitPhaseTwoHere(p, bCleanup) : sqlite3StockBtreeCommitPhaseTwo(p, bCleanup);
}
SQLITE_PRIVATE int sqlite3BtreeRollback(Btree *p, int tripCode, int writeOnly){
  if( p->pPl==0 ) return sqlite3StockBtreeRollback(p, tripCode, writeOnly);
  if( plInherited(p) ) return SQLITE_OK;
  plWholeRolledBack(p);
  if( tripCode==SQLITE_ABORT_ROLLBACK ) plEndWriters(p->db);
  return PL_BT(p) ? plBtreeRollback(p, tripCode, writeOnly) : sqlite3StockBtreeRollback(p, tripCode, writeOnly);
}
static SQLITE_NOINLINE int plSavepointHere(Btree *p, int op, int iSavepoint){
  if( plInherited(p) ) return SQLITE_OK;
  return PL_BT(p) ? plBtreeSavepoint(p, op, iSavepoint) : sqlite3StockBtreeSavepoint(p, op, iSavepoint);
}
SQLITE_PRIVATE SQLITE_INLINE int sqlite3BtreeSavepoint(Btree *p, int op, int iSavepoint){
  return PL_UNLIKELY(p!=0 && p->pPl!=0) ? plSavepointHere(p, op, iSavepoint) : sqlite3StockBtreeSavepoint(p, op, iSavepoint);
}

/* Installs the fork handlers, before the first transaction of a connection. */
static void plMindForks(void){
  static int bMinded = 0;
  sqlite3_mutex *pMutex = sqlite3MutexAlloc(SQLITE_MUTEX_STATIC_MAIN);
  sqlite3_mutex_enter(pMutex);
  if( !bMinded ) bMinded = pthread_atfork(plBeforeFork, plAfterFork, plAfterForkInChild)==0;
  sqlite3_mutex_leave(pMutex);
}

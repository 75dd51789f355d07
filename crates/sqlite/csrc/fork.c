/*
** fork.c - a child made by fork() finds SQLite's static mutexes free, and is kept from what it has inherited.
**
** Inherited handles. Of a concurrent database they are refused in the child: the transaction that one may be in is its parent's, and so
** are the writer's right and the locks. Programs that end or collect garbage in the child roll back and close what they find, without meaning to.
**  - CHILD-1 An inherited handle begins, goes on with and commits no transaction: SQLITE_MISUSE.
**  - CHILD-2 To roll back and to close one changes nothing: neither files nor shared memory, the WAL-index among it, nor locks. What it is made of stays as it
**    is until the child ends: already to close one of its descriptors would take the locks of all connections that the child
**    has opened itself.
** One that nothing has been done with, of a database that its process had not worked with, is as good as new.
**
** Locks. POSIX locks are a process's own: the child has none. But SQLite's VFS has noted which its process has, once for all connections of a
** file (unixInodeInfo), and the child inherits the note. Who opens the database there would count on locks that it does not have,
** and wait for what a thread of the parent had in that moment. So a new connection begins a
** note of its own (findInodeInfo(), by iPlOwner), and the inherited one is left to those that it belongs to. In other modes all is as in SQLite.
** A handle that another thread of the parent has in its first transaction in that moment may be about to find that the database is a
** concurrent one, and has locks already: the child takes it for one (nPlFirst). Processes are told apart by the number of forks
** between them (iPlProcess); one made by the bare system call, without pthread_atfork(), is not.
**
** Mutexes. In the child only the thread lives that has called fork(). A static mutex (of the memory statistics, the page cache, the list of open
** files) that another thread held in that moment stays held there for ever, and the child hangs in its first sqlite3_open(). Programs
** with one thread know no such thing, and a merge (engine/src/upkeep/pressure.rs) must not bring it to them. So whoever forks holds these mutexes
** while it does.
**
** They are taken in the order in which SQLite's own code nests them. An application may configure mutexes that cannot be tried, or fork
** within something that holds one: nobody waits for longer than PL_FORK_NAPS, and what was not had stays as stock SQLite would leave it.
*/
#include <pthread.h>

#define PL_FORK_NAPS   100      /* a millisecond each, for all mutexes together */

static const u8 aPlForkId[] = {
  SQLITE_MUTEX_STATIC_OPEN, SQLITE_MUTEX_STATIC_PRNG, SQLITE_MUTEX_STATIC_MAIN, SQLITE_MUTEX_STATIC_VFS1, SQLITE_MUTEX_STATIC_VFS2,
  SQLITE_MUTEX_STATIC_VFS3, SQLITE_MUTEX_STATIC_LRU, SQLITE_MUTEX_STATIC_PMEM, SQLITE_MUTEX_STATIC_MEM
};

/* The turn to fork, and what who has it holds. */
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

/* In the child, where nobody else is. The list of files is whole if the mutex was had that whoever changes it has. */
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

/* The first transaction of a handle begins, or has begun. */
static void plCountFirst(Btree *p, int n){
  sqlite3_file *pFd = p->pBt->pPager->fd;
  unixInodeInfo *pInode = pFd->pMethods==&posixIoMethods ? ((unixFile*)pFd)->pInode : 0;
  if( n>0 ) plMindForks();
  if( pInode ) __atomic_add_fetch(&pInode->nPlFirst, n, __ATOMIC_RELAXED);
}

/* From here on a child that opens this file opens it anew. */
static void plMarkInode(Btree *p){
  sqlite3_file *pFd = p->pBt->pPager->fd;
  unixInodeInfo *pInode = pFd->pMethods==&posixIoMethods ? ((unixFile*)pFd)->pInode : 0;
  if( pInode==0 ) return;
  unixEnterMutex();
  if( pInode->iPlOwner==0 ) pInode->iPlOwner = iPlProcess;
  unixLeaveMutex();
}

/* Is this handle one of a process that has forked this one? */
static SQLITE_INLINE int plInherited(Btree *p){
  sqlite3_file *pFd = p->pBt->pPager->fd;
  unixInodeInfo *pInode;
  if( PL_BT(p) ) return pl_check_fork(p->pPl->pConn)==SQLITE_MISUSE;
  pInode = pFd->pMethods==&posixIoMethods ? ((unixFile*)pFd)->pInode : 0;
  return pInode && pInode->iPlOwner && pInode->iPlOwner!=iPlProcess;
}

/* CHILD-1 */
static SQLITE_NOINLINE PL_COLD int plRefuseInherited(Btree *p){
  return plStash(p, SQLITE_MISUSE, sqlite3_mprintf("this connection was opened before fork(); open a new one in the child process"));
}

/* Of handles that have met a concurrent file; for the others each of the wrappers is a test, as those that are generated. */
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

/* From the first transaction of a connection on. */
static void plMindForks(void){
  static int bMinded = 0;
  sqlite3_mutex *pMutex = sqlite3MutexAlloc(SQLITE_MUTEX_STATIC_MAIN);
  sqlite3_mutex_enter(pMutex);
  if( !bMinded ) bMinded = pthread_atfork(plBeforeFork, plAfterFork, plAfterForkInChild)==0;
  sqlite3_mutex_leave(pMutex);
}

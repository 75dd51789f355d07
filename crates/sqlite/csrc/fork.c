/*
** fork.c - a child made by fork() finds SQLite's static mutexes free, and takes none of its parent's locks for its own.
**
** Locks. POSIX locks are a process's own: the child has none. But SQLite's VFS has noted which its process has, once for all connections of a
** file (unixInodeInfo), and the child inherits the note. Who opens the database there would count on locks that it does not have,
** and wait for what a thread of the parent had in that moment. Of a concurrent database every inherited connection is refused; so a new one begins a
** note of its own (findInodeInfo(), by iPlPid), and the inherited one is left to those that it belongs to. In other modes all is as in SQLite.
**
** Mutexes. In the child only the thread lives that has called fork(). A static mutex (of the memory statistics, the page cache, the list of open
** files) that another thread held in that moment stays held there for ever, and the child hangs in its first sqlite3_open(). Programs
** with one thread know no such thing, and a merge (engine/src/merge/background.rs) must not bring it to them. So whoever forks holds these mutexes
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
}

/* In the parent, and in the child. */
static void plAfterFork(void){
  int i;
  for(i=ArraySize(aPlForkId)-1; i>=0; i--){
    sqlite3_mutex_leave(aPlForkHeld[i]);
  }
  pthread_mutex_unlock(&plForkTurn);
}

/* From here on a child that opens this file opens it anew. */
static void plMarkInode(Btree *p){
  sqlite3_file *pFd = p->pBt->pPager->fd;
  unixInodeInfo *pInode = pFd->pMethods==&posixIoMethods ? ((unixFile*)pFd)->pInode : 0;
  if( pInode==0 ) return;
  unixEnterMutex();
  if( pInode->iPlPid==0 ) pInode->iPlPid = osGetpid(0);
  unixLeaveMutex();
}

/* From the first connection on that works with a concurrent database, in a session or alone. */
static void plMindForks(void){
  static int bMinded = 0;
  sqlite3_mutex *pMutex = sqlite3MutexAlloc(SQLITE_MUTEX_STATIC_MAIN);
  sqlite3_mutex_enter(pMutex);
  if( !bMinded ) bMinded = pthread_atfork(plBeforeFork, plAfterFork, plAfterFork)==0;
  sqlite3_mutex_leave(pMutex);
}

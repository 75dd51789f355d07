/*
** lent.c - one descriptor of a file for several of this process's handles.
**
** The spliced os_unix.c includes this file. A program with a database for each tenant has few
** descriptors for each. The hidden connection (base.c), and a thread that syncs the WAL ahead of
** the log (engine/src/log/before.rs), work on files that a connection of the application has open:
** they borrow its descriptors. So they work where no descriptor is left, or where the process may
** not open the file any more.
**
**  - LENT-1 The last user of a shared descriptor closes it, whichever handle has opened it. SQLite
**    reads and writes at explicit offsets, so no user moves another's position. Its locks on a file
**    are the process's, through whichever descriptor they were taken.
**  - LENT-2 Borrowing is like opening: by a name that leads to this very file, for reading and
**    writing. If it fails the file is opened.
**  - LENT-3 The child of a fork borrows no descriptor of its parent's (fork.c).
**  - LENT-4 The kernel reports a lost page once per open file. The users of one sync one after the
**    other, and a failure of one sync fails all later ones: no user takes pages for written that
**    another knows to be lost.
*/
#include <pthread.h>

typedef struct PlLent PlLent;
struct PlLent {
  dev_t iDev;            /* of the file */
  ino_t iIno;
  u64 iOwner;            /* iPlProcess */
  int h;
  int nUse;              /* handles that use it, the one that has opened it among them */
  /* Held during a sync; no wait happens under it but for the disk. */
  pthread_mutex_t syncs;
  int bFailed;           /* a sync has failed; under that mutex */
  PlLent *pNext;
};

static PlLent *pPlAllLent = 0;
/* A leaf: nothing is called under it; a thread that forks holds it. */
static pthread_mutex_t plLentMutex = PTHREAD_MUTEX_INITIALIZER;

/* True while this thread opens a file that is to borrow. */
static __thread int bPlBorrows = 0;

/* Finds the lent descriptor of a file. The mutex is held. */
static PlLent *plFindLent(const struct stat *pStat){
  PlLent *p = pPlAllLent;
  while( p && (p->iDev!=pStat->st_dev || p->iIno!=pStat->st_ino || p->iOwner!=iPlProcess) ) p = p->pNext;
  return p;
}

/* Finds out which file this is. SQLite knows it of a database, and not of a WAL. */
static int plFileId(unixFile *pFile, struct stat *pOut){
  if( pFile->pInode==0 ) return osFstat(pFile->h, pOut)==0;
  pOut->st_dev = pFile->pInode->fileId.dev;
  pOut->st_ino = (ino_t)pFile->pInode->fileId.ino;
  return 1;
}

/* Lets others borrow the descriptor from here on, unless one of this file is lent already. */
static void plLend(unixFile *pFile){
  PlLent *pNew;
  struct stat st;
  if( pFile->pPlLent || (pFile->ctrlFlags & UNIXFILE_RDONLY)!=0 || !plFileId(pFile, &st) ) return;
  pNew = sqlite3_malloc64(sizeof(*pNew));
  if( pNew==0 ) return;
  pthread_mutex_lock(&plLentMutex);
  if( plFindLent(&st)==0 ){
    pNew->iDev = st.st_dev;
    pNew->iIno = st.st_ino;
    pNew->iOwner = iPlProcess;
    pNew->h = pFile->h;
    pNew->nUse = 1;
    pNew->bFailed = 0;
    pthread_mutex_init(&pNew->syncs, 0);
    pNew->pNext = pPlAllLent;
    pFile->pPlLent = pPlAllLent = pNew;
    pNew = 0;
  }
  pthread_mutex_unlock(&plLentMutex);
  sqlite3_free(pNew);
}

/* Returns the lent descriptor of the file with this name, or 0 (LENT-2). It follows no link, as
** SQLite follows none. */
static PlLent *plBorrow(const char *zName){
  PlLent *p;
  struct stat st;
  if( osLstat(zName, &st)!=0 ) return 0;
  pthread_mutex_lock(&plLentMutex);
  p = plFindLent(&st);
  if( p ) p->nUse++;
  pthread_mutex_unlock(&plLentMutex);
  return p;
}

/* A user is done. True if others remain; else the caller closes the descriptor. */
static int plGiveBack(PlLent *p){
  PlLent **pp = &pPlAllLent;
  int bUsed;
  pthread_mutex_lock(&plLentMutex);
  bUsed = --p->nUse>0;
  if( !bUsed ){
    while( *pp!=p ) pp = &(*pp)->pNext;
    *pp = p->pNext;
  }
  pthread_mutex_unlock(&plLentMutex);
  if( !bUsed ){
    pthread_mutex_destroy(&p->syncs);
    sqlite3_free(p);
  }
  return bUsed;
}

static int full_fsync(int, int, int);

/* LENT-4. Like full_fsync(): 0, or errno says why not. */
static int plSyncLent(PlLent *p, int h, int bFull, int bDataOnly){
  int rc, e;
  pthread_mutex_lock(&p->syncs);
  rc = p->bFailed ? -1 : full_fsync(h, bFull, bDataOnly);
  e = p->bFailed ? EIO : errno;
  if( rc ) p->bFailed = 1;
  pthread_mutex_unlock(&p->syncs);
  if( rc ) errno = e;
  return rc;
}
static int plSync(unixFile *pFile, int bFull, int bDataOnly){
  if( pFile->pPlLent ) return plSyncLent(pFile->pPlLent, pFile->h, bFull, bDataOnly);
  return full_fsync(pFile->h, bFull, bDataOnly);
}

/* A file is being opened. Returns its descriptor, if there is one (fd) or one can be borrowed,
** else -1. */
static int plOpenBorrowed(unixFile *pFile, const char *zName, int flags, int fd){
  pFile->bPlBorrows = (u8)bPlBorrows;
  if( fd>=0 || !bPlBorrows || (flags & SQLITE_OPEN_READWRITE)==0 ) return fd;
  pFile->pPlLent = plBorrow(zName);
  return pFile->pPlLent ? pFile->pPlLent->h : -1;
}

/* A file gives up its descriptor h. True if others still use it (LENT-1). */
static int plLetGo(unixFile *pFile, int h){
  PlLent *p = pFile ? pFile->pPlLent : 0;
  if( p==0 || p->h!=h ) return 0;
  pFile->pPlLent = 0;
  return plGiveBack(p);
}

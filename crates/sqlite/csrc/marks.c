/*
** marks.c - where a connection takes its locks on the read marks of the WAL-index.
**
** The spliced wal.c includes this file. The head of crates/engine/src/shm/read_marks.rs has the
** rules, and why they keep stock SQLite and us apart. All other locks of the WAL-index are
** stock SQLite's.
**
** Invariant: Wal.pPlMarks changes only while none of the locks that it could count is held.
*/
#include "engine.h"

/* Version of the WAL-index of a fenced base; stock SQLite refuses it with SQLITE_CANTOPEN before it
** locks anything. */
#define PL_WALINDEX_VERSION 0x506c6169

/* Wal.ePlFence: what the write transaction in progress has stamped into the header of the base,
** if anything */
#define PLF_Unknown 0
#define PLF_Down    1
#define PLF_Up      2

/* The note of a lowered fence: plNote() of page 1 of the file, or 0. SQLite has no use for
** the word. */
#define PL_LOWERED(pWal) (walCkptInfo(pWal)->notUsed0)

/* Returns the version for a new WAL-index header. A commit that stamps the fence says so here.
** Every other writer of the header, which starts the WAL over or rebuilds the WAL-index after
** the death of a writer, leaves the version as it is: in both copies, or in what is left of a
** torn one. */
static u32 plWalIndexVersion(Wal *pWal){
  volatile WalIndexHdr *aHdr = walIndexHdr(pWal);
  int bUp = pWal->ePlFence==PLF_Up;
  if( pWal->ePlFence==PLF_Unknown ){
    bUp = aHdr[0].iVersion==PL_WALINDEX_VERSION || aHdr[1].iVersion==PL_WALINDEX_VERSION;
  }
  return bUp ? PL_WALINDEX_VERSION : WALINDEX_MAX_VERSION;
}

static int plStillFits(Wal *pWal);      /* fits.c */
static int plClosesMisfit(Wal *pWal);   /* fits.c */

/* Page 1 on its way from the WAL into the database file. A reader from before the fence may
** hold the checkpoint back at a page 1 from before the fence; the file keeps the fence that it
** has (base.c). */
static void plKeepFence(Wal *pWal, u8 *aPage1){
  if( walIndexHdr(pWal)->iVersion!=PL_WALINDEX_VERSION ) return;
  aPage1[18] = aPage1[19] = 3;
  AtomicStore(&PL_LOWERED(pWal), 0);      /* this raises it */
}

/* True if a reader may be counted on this mark. Stock SQLite sees no counts. A stock process that
** began before the fence, above all a checkpoint, takes over marks from before the fence unless a
** lock in the file forbids it. A reader that shares such a mark, because no other could be moved to
** its own position, needs that lock. */
static int plMarkCounts(Wal *pWal, int iMark){
  if( pWal->pPlMarks==0 || pWal->hdr.iVersion!=PL_WALINDEX_VERSION ) return 0;
  return iMark==0 || AtomicLoad(walCkptInfo(pWal)->aReadMark+iMark)==pWal->hdr.mxFrame;
}

static int plMarkShared(Wal *pWal, int iLock, int flags){
  int iMark = iLock - WAL_READ_LOCK(0);
  if( flags & SQLITE_SHM_LOCK ){
    if( plMarkCounts(pWal, iMark) ){
      int rc = pl_mark_lock_shared(pWal->pPlMarks, iMark);
      if( rc==SQLITE_OK ) pWal->bPlShared = 1;
      return rc;
    }
  }else if( pWal->bPlShared ){
    pWal->bPlShared = 0;
    pl_mark_unlock_shared(pWal->pPlMarks, iMark);
    return SQLITE_OK;
  }
  return sqlite3OsShmLock(pWal->pDbFd, iLock, 1, flags);
}

static int plMarkExclusive(Wal *pWal, int iLock, int n, int flags){
  int iMark = iLock - WAL_READ_LOCK(0);
  int rc;
  if( flags & SQLITE_SHM_LOCK ){
    if( pWal->pPlMarks==0 ){
      if( pWal->hdr.iVersion==PL_WALINDEX_VERSION ) return SQLITE_BUSY;
    }else{
      rc = pl_mark_lock_exclusive(pWal->pPlMarks, iMark, n);
      if( rc ) return rc;
    }
  }
  rc = sqlite3OsShmLock(pWal->pDbFd, iLock, n, flags);
  if( pWal->pPlMarks && ((flags & SQLITE_SHM_UNLOCK) || rc!=SQLITE_OK) ){
    pl_mark_unlock_exclusive(pWal->pPlMarks, iMark, n);
  }
  return rc;
}

static SQLITE_NOINLINE int plMarkLock(Wal *pWal, int iLock, int n, int flags){
  if( iLock<WAL_READ_LOCK(0) ) return sqlite3OsShmLock(pWal->pDbFd, iLock, n, flags);
  if( flags & SQLITE_SHM_SHARED ) return plMarkShared(pWal, iLock, flags);
  return plMarkExclusive(pWal, iLock, n, flags);
}

/* In place of sqlite3OsShmLock(). No range of locks holds both read marks and others. */
static SQLITE_INLINE int plShmLock(Wal *pWal, int iLock, int n, int flags){
  if( pWal->pPlMarks==0 && pWal->hdr.iVersion!=PL_WALINDEX_VERSION ){
    return sqlite3OsShmLock(pWal->pDbFd, iLock, n, flags);
  }
  return plMarkLock(pWal, iLock, n, flags);
}

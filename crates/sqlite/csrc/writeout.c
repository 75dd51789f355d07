/*
** writeout.c - what a merge and a checkpoint write goes to the disk while they write it.
**
** Included by the spliced wal.c. SQLite hands all of it to the system and then syncs: the disk gets a hundred megabytes at once, and
** commits that sync the log meanwhile wait behind them, for hundreds of milliseconds. So the system is asked for every portion of what will
** be synced anyway to begin with it. It takes no more than the disk has room for: then the call waits, which is a merge's time alone.
**
** A checkpoint's pages lie anywhere in the file. Beside commits that sync the log (pl_leave_disk) a portion of them is waited for until it
** is on disk: no more than that is ever before a sync. And whoever has waited for a sync has the processor first (pl_leave_processor).
**
** Invariant: nothing relies on it. The sync comes as ever, and it is the sync that is told of a write that failed. Who has waited may have been
** told already, and then no sync is told again: that is a sync that has failed.
*/
#include "engine.h"

#define PL_PORTION (256*1024)

/* Where what was written since the last portion lies, and how much that is. */
struct PlWriteOut {
  i64 iFrom, iTo;
  int nByte;
  uint64_t nSync;         /* pl_leave_disk() */
};

/* The portion is on disk when this returns. */
static int plLeaveDisk(int h, i64 iFrom, i64 n){
  int flags = SYNC_FILE_RANGE_WAIT_BEFORE|SYNC_FILE_RANGE_WRITE|SYNC_FILE_RANGE_WAIT_AFTER;
  if( sync_file_range(h, iFrom, n, flags)==0 ) return SQLITE_OK;
  /* These say that the system has no such call for this file, or for this process. */
  return errno==EINVAL || errno==ENOSYS || errno==EPERM || errno==ESPIPE ? SQLITE_OK : SQLITE_IOERR_FSYNC;
}

/* n bytes were written at iOffset of a file that is going to be synced. pMarks: of the session whose commits have the processor, and if they are
** of a checkpoint, the disk meanwhile. */
static int plWriteOut(struct PlWriteOut *p, const PlMarks *pMarks, int isCheckpoint, sqlite3_file *pFd, i64 iOffset, int n){
  int h;
  pl_leave_processor(pMarks);
  if( pFd->pMethods!=&nolockIoMethods && pFd->pMethods!=&posixIoMethods ) return SQLITE_OK;
  if( p->nByte==0 || iOffset<p->iFrom ) p->iFrom = iOffset;
  if( p->nByte==0 || iOffset+n>p->iTo ) p->iTo = iOffset+n;
  p->nByte += n;
  if( p->nByte<PL_PORTION ) return SQLITE_OK;
  p->nByte = 0;
  h = ((unixFile*)pFd)->h;
  if( isCheckpoint && pl_leave_disk(pMarks, &p->nSync)==SQLITE_OK ) return plLeaveDisk(h, p->iFrom, p->iTo-p->iFrom);
  (void)sync_file_range(h, p->iFrom, p->iTo-p->iFrom, SYNC_FILE_RANGE_WRITE);
  return SQLITE_OK;
}

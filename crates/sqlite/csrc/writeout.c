/*
** writeout.c - a merge and a checkpoint start disk writes while they write.
**
** The spliced wal.c includes this file. SQLite hands all pages to the system and then syncs: the
** disk gets a hundred megabytes at once, and commits that sync the log at that time wait for
** hundreds of milliseconds. So each portion, which will be synced anyway, is passed to the disk at
** once. If the disk's queue is full, the call waits, which costs the merge alone.
**
** A checkpoint's pages are anywhere in the file. While commits sync the log (pl_leave_disk), the
** checkpoint waits until each portion is on disk: no more than one portion is ever ahead of a sync.
** And a thread that has waited for a sync gets the processor first (pl_leave_processor).
**
** Invariant: nothing relies on these calls. The sync comes as always, and reports a write that
** failed. The kernel may have reported that failure to a wait here, and then no sync reports it
** again: so a failed wait counts as a failed sync.
*/
#include "engine.h"

#define PL_PORTION (256*1024)

/* Where the data written since the last portion is, and how much it is. */
struct PlWriteOut {
  i64 iFrom, iTo;
  int nByte;
  uint64_t nSync;         /* pl_leave_disk() */
};

/* Returns when the portion is on disk. */
static int plLeaveDisk(int h, i64 iFrom, i64 n){
  int flags = SYNC_FILE_RANGE_WAIT_BEFORE|SYNC_FILE_RANGE_WRITE|SYNC_FILE_RANGE_WAIT_AFTER;
  if( sync_file_range(h, iFrom, n, flags)==0 ) return SQLITE_OK;
  /* With these errors the system has no such call for this file, or for this process. */
  return errno==EINVAL || errno==ENOSYS || errno==EPERM || errno==ESPIPE ? SQLITE_OK : SQLITE_IOERR_FSYNC;
}

/* n bytes were written at iOffset of a file that is going to be synced. pMarks: of the session
** whose commits get the processor, and the disk if the bytes are a checkpoint's. */
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

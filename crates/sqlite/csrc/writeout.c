/*
** writeout.c - what a merge and a checkpoint write goes to the disk while they write it.
**
** Included by the spliced wal.c. SQLite hands all of it to the system and then syncs: the disk gets a hundred megabytes at once, and
** commits that sync the log meanwhile wait behind them, for hundreds of milliseconds. So the system is asked for every portion of what will
** be synced anyway to begin with it. It takes no more than the disk has room for: then the call waits, which is a merge's time alone.
**
** Invariant: nothing relies on it. The sync comes as ever, and it is the sync that is told of a write that failed; this call tells, and
** takes away, nothing.
*/
#define PL_PORTION (256*1024)

/* Where what was written since the last portion lies, and how much that is. */
struct PlWriteOut {
  i64 iFrom, iTo;
  int nByte;
};

/* n bytes were written at iOffset of a file that is going to be synced. */
static void plWriteOut(struct PlWriteOut *p, sqlite3_file *pFd, i64 iOffset, int n){
  if( pFd->pMethods!=&nolockIoMethods && pFd->pMethods!=&posixIoMethods ) return;
  if( p->nByte==0 || iOffset<p->iFrom ) p->iFrom = iOffset;
  if( p->nByte==0 || iOffset+n>p->iTo ) p->iTo = iOffset+n;
  p->nByte += n;
  if( p->nByte<PL_PORTION ) return;
  (void)sync_file_range(((unixFile*)pFd)->h, p->iFrom, p->iTo-p->iFrom, SYNC_FILE_RANGE_WRITE);
  p->nByte = 0;
}

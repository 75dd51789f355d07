/*
** frame.c - frames of the base's WAL, many in one write.
**
** The spliced wal.c includes this file. SQLite writes the header of a frame and its page in two
** calls. The cost of a call depends little on its length, and a bulk load and a merge do little
** else. So walFrames() gathers frames that are adjacent in the file, and writes them before it
** does anything that relies on them.
**
** Invariant: PlFrames.n is 0 whenever walFrames() begins to write frames, and after it has
** written them.
*/
#define PL_FRAME_PAGE 4096     /* largest page that is gathered */
#define PL_FRAMES_MAX 16

struct PlFrames {
  sqlite3_int64 iOffset;       /* where a[] goes */
  int n;                       /* bytes of a[] in use */
  u8 a[PL_FRAMES_MAX*(WAL_FRAME_HDRSIZE + PL_FRAME_PAGE)];
};

/* Returns the empty buffer for frames. 0: frames are not gathered, in SQLite's own modes or out
** of memory. */
static struct PlFrames *plFramesOf(Wal *pWal, int szPage){
  if( pWal->pPlMarks==0 || szPage>PL_FRAME_PAGE ) return 0;
  if( pWal->pPlFrames==0 ) pWal->pPlFrames = sqlite3_malloc(sizeof(struct PlFrames));
  if( pWal->pPlFrames ) pWal->pPlFrames->n = 0;
  return pWal->pPlFrames;
}

static int plFlushFrames(WalWriter *p){
  struct PlFrames *pF = p->pPlFrames;
  int n = pF ? pF->n : 0;
  if( n==0 ) return SQLITE_OK;
  pF->n = 0;
  return walWriteToLog(p, pF->a, n, pF->iOffset);
}

static int plWriteFrame(WalWriter *p, const u8 *aHeader, const void *pData, sqlite3_int64 iOffset){
  struct PlFrames *pF = p->pPlFrames;
  int sz = WAL_FRAME_HDRSIZE + p->szPage;
  assert( p->iSyncPoint==0 );
  if( pF->n>0 && (pF->n + sz>(int)sizeof(pF->a) || pF->iOffset + pF->n!=iOffset) ){
    int rc = plFlushFrames(p);
    if( rc ) return rc;
  }
  if( pF->n==0 ) pF->iOffset = iOffset;
  memcpy(&pF->a[pF->n], aHeader, WAL_FRAME_HDRSIZE);
  memcpy(&pF->a[pF->n + WAL_FRAME_HDRSIZE], pData, p->szPage);
  pF->n += sz;
  return SQLITE_OK;
}

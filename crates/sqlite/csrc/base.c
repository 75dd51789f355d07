/*
** base.c - the hidden connection by which the engine reads headers of the base and merges into it.
**
** It is an ordinary connection with PL_OPEN_BASE, which keeps it on SQLite's own path whatever the
** header says: synchronous=FULL, no auto-checkpoint, private cache. It runs no SQL but its own
** schema load. While a write transaction is open db->autoCommit is 0, so that the statements of a
** schema load do not commit it.
**
** Threads: the engine uses one hidden connection from one thread at a time; its mutex is taken
** anyway.
*/
/* A longer wait happens in the engine, with nothing held and a timeout of its own. */
#define PL_BASE_BUSY_MS   100
#define PL_REFUSAL_MS     700      /* more than DEATH_MAX in session.rs, after which it is refused */
#define PL_BASE_CACHE_KIB 16384

typedef struct PlBase {
  sqlite3 *db;
  const PlMarks *pMarks;  /* the session's, or 0 before it has begun */
  int bStrange;           /* its WAL-index is not the session's */
  int eRival;             /* PLR_x of the call that failed */
  int bFenceInWalAlone;   /* as plBaseHeader() has found it */
  int bMerged;            /* the open write transaction has put or deleted entries */
  u32 aWalSalt[2];        /* of the WAL when that transaction began */
  u32 iWalEnd;            /* its last frame then */
  char *zMsg;             /* what plBaseErrmsg() returned last, or 0 */
  PlApply apply;
} PlBase;

static Btree *plBaseBtree(PlBase *pBase){ return pBase->db->aDb[0].pBt; }

/* For sqlite3_autovacuum_pages(). A merge gives back all free pages, as the commits that it brings
** in would have. To raise the fence or to take it down, which is no transaction of an application,
** gives back none. */
static unsigned int plBaseVacuum(void *p, const char *zDb, unsigned int nPage, unsigned int nFree, unsigned int nByte){
  (void)zDb;
  (void)nPage;
  (void)nByte;
  return ((PlBase*)p)->bMerged ? nFree : 0;
}

/* Returns SQLite's message, and names the limit of open files, which SQLite does not tell from a
** missing file. */
static char *plBaseSay(sqlite3 *db){
  int e = (sqlite3_errcode(db) & 0xff)==SQLITE_CANTOPEN ? sqlite3_system_errno(db) : 0;
  const char *zMore = "";
  if( e==EMFILE ) zMore = ": too many open files; raise the limit of open files of this process (`ulimit -n`), or close files that it does not need";
  if( e==ENFILE ) zMore = ": too many open files; raise the limit of open files of this machine (fs.file-max)";
  return sqlite3_mprintf("%s%s", sqlite3_errmsg(db), zMore);
}

static int plIsUnixFile(sqlite3_file *pFd){
  return pFd->pMethods==&posixIoMethods || pFd->pMethods==&nolockIoMethods;
}

/* Before a handle joins: lends its descriptors to the hidden connection (lent.c). */
static void plLendFiles(Pager *pPager){
  if( pPager->fd->pMethods!=&posixIoMethods ) return;
  plLend((unixFile*)pPager->fd);
  if( pPager->pWal && plIsUnixFile(pPager->pWal->pWalFd) ) plLend((unixFile*)pPager->pWal->pWalFd);
}

/* Opens a WAL. Borrows its descriptor if the database's was to be borrowed. */
static int plOpenWal(sqlite3_vfs *pVfs, const char *zWal, sqlite3_file *pDbFd, sqlite3_file *pWalFd, int *pFlags){
  int rc;
  bPlBorrows = plIsUnixFile(pDbFd) && ((unixFile*)pDbFd)->bPlBorrows;
  rc = sqlite3OsOpen(pVfs, zWal, pWalFd, *pFlags, pFlags);
  bPlBorrows = 0;
  return rc;
}

/* Returns the descriptor of the WAL for a thread that syncs it, or -1 if none is lent. *ppLent is
** for plBaseGiveBack(). */
static int plBaseBorrow(const char *zWal, void **ppLent){
  PlLent *p = plBorrow(zWal);
  *ppLent = p;
  return p ? p->h : -1;
}
static int plBaseSyncLent(void *pLent){
  return plSyncLent((PlLent*)pLent, ((PlLent*)pLent)->h, 0, 1) ? errno : 0;
}
static void plBaseGiveBack(void *pLent){
  int h = ((PlLent*)pLent)->h;
  if( !plGiveBack((PlLent*)pLent) ) robust_close(0, h, __LINE__);
}

static int plBaseOpen(const char *zPath, void **ppBase, char **pzErr){
  PlBase *pBase = sqlite3MallocZero(sizeof(PlBase));
  int rc;
  *ppBase = 0;
  *pzErr = 0;
  if( pBase==0 ) return SQLITE_NOMEM_BKPT;
  plMindForks();
  bPlBorrows = 1;
  rc = sqlite3_open_v2(zPath, &pBase->db,
      SQLITE_OPEN_READWRITE|SQLITE_OPEN_FULLMUTEX|SQLITE_OPEN_PRIVATECACHE|SQLITE_OPEN_EXRESCODE|PL_OPEN_BASE, 0);
  bPlBorrows = 0;
  if( rc ){
    *pzErr = pBase->db ? plBaseSay(pBase->db) : sqlite3_mprintf("%s", sqlite3_errstr(rc));
    sqlite3_close(pBase->db);
    sqlite3_free(pBase);
    return rc;
  }
  sqlite3_mutex_enter(pBase->db->mutex);
  /* It may be the file's only handle: a last close opens it after the user's handle has closed. */
  plMarkInode(plBaseBtree(pBase));
  sqlite3_wal_autocheckpoint(pBase->db, 0);
  sqlite3_busy_timeout(pBase->db, PL_BASE_BUSY_MS);
  sqlite3_autovacuum_pages(pBase->db, plBaseVacuum, pBase, 0);
  pBase->db->aDb[0].safety_level = PAGER_SYNCHRONOUS_FULL;
  /* As with PRAGMA writable_schema: one broken row of the schema keeps neither other tables from
  ** being merged nor itself from being mended. What needs the broken row fails. */
  pBase->db->flags |= SQLITE_WriteSchema|SQLITE_NoSchemaError;
  sqlite3StockBtreeSetPagerFlags(plBaseBtree(pBase), PAGER_SYNCHRONOUS_FULL|PAGER_CACHESPILL);
  sqlite3BtreeSetCacheSize(plBaseBtree(pBase), -PL_BASE_CACHE_KIB);
  plApplyInit(&pBase->apply, plBaseBtree(pBase), 0);
  sqlite3_mutex_leave(pBase->db->mutex);
  *ppBase = pBase;
  return SQLITE_OK;
}

static int plBaseHeader(void *p, PlHeader *pOut);

static void plBaseClose(void *p){
  PlBase *pBase = (PlBase*)p;
  if( pBase==0 ) return;
  if( pBase->bFenceInWalAlone ){
    /* What has opened it may have given it up as another file than the WAL's: a last close would bring pages of that one
    ** into it. Where it is so still, the WAL stays as it is. */
    PlHeader header = {0};
    int rc = plBaseHeader(pBase, &header);
    sqlite3_mutex_enter(pBase->db->mutex);
    if( rc || header.fenceInWalAlone ) plForgetWal(plBaseBtree(pBase));
    sqlite3_mutex_leave(pBase->db->mutex);
  }
  plApplyClose(&pBase->apply);
  sqlite3_close(pBase->db);
  sqlite3_free(pBase->zMsg);
  sqlite3_free(pBase);
}

/* The first transaction opens the WAL, so every operation hands the marks on (plBaseUseMarks()). */
static void plBaseReadMarks(void *p, const PlMarks *pMarks){
  ((PlBase*)p)->pMarks = pMarks;
}
static void plBaseUseMarks(PlBase *pBase){
  plUseMarks(plBaseBtree(pBase)->pBt->pPager, pBase->pMarks);
}

static const char *plBaseErrmsg(void *p){
  PlBase *pBase = (PlBase*)p;
  sqlite3_free(pBase->zMsg);
  if( pBase->bStrange ) pBase->zMsg = plSayStrange(plBaseBtree(pBase)->pBt->pPager);
  else if( pBase->eRival ) pBase->zMsg = plSayRival(pBase->eRival, sqlite3PagerFilename(plBaseBtree(pBase)->pBt->pPager, 0));
  else pBase->zMsg = plBaseSay(pBase->db);
  return pBase->zMsg;
}

/* The file does not belong to its WAL: nothing of one may get into the other, not even when the
** connection closes. */
static void plBaseRefuse(PlBase *pBase){
  plBaseEnd(plBaseBtree(pBase));
  plForgetWal(plBaseBtree(pBase));
}

/* Begins an operation that is no part of another. SQLite records at a connection that memory was
** short until an API call ends. No call here is one: without this all later ones would fail. The
** operation that met the shortage has reported it. */
static void plBaseEnter(PlBase *pBase){
  sqlite3_mutex_enter(pBase->db->mutex);
  if( pBase->db->mallocFailed ) sqlite3OomClear(pBase->db);
  pBase->bStrange = 0;
  pBase->eRival = PLR_NOBODY;
}

/* A transaction has just begun: checks that WAL-index, WAL and file are the session's. */
static int plBaseFits(PlBase *pBase, u8 *pbFenced){
  Pager *pPager = plBaseBtree(pBase)->pBt->pPager;
  int rc = plIndexStrange(pPager, pBase->pMarks);
  pBase->bStrange = rc==SQLITE_CANTOPEN;
  if( rc==SQLITE_OK ) rc = plFits(pPager, pbFenced);
  if( rc==PL_MISFIT && plWalWasRemoved(pPager) ){
    pBase->eRival = PLR_HAD_FILE;
    rc = SQLITE_CANTOPEN;
  }
  return rc;
}

static int plBaseHeader(void *p, PlHeader *pOut){
  PlBase *pBase = (PlBase*)p;
  Btree *pBt = plBaseBtree(pBase);
  int rc;
  int bOwn;
  plBaseEnter(pBase);
  bOwn = pBt->inTrans==TRANS_NONE;
  if( bOwn ) plBaseUseMarks(pBase);
  rc = bOwn ? sqlite3StockBtreeBeginTrans(pBt, 0, 0) : SQLITE_OK;
  if( rc==SQLITE_OK ){
    plReadHeader(pBt->pBt, pOut);
    if( bOwn ){
      u8 bFenced = 0;
      plHold(pBt);
      rc = plBaseFits(pBase, &bFenced);
      pBase->bFenceInWalAlone = pOut->fenceInWalAlone = pOut->fenced && !bFenced;
      if( rc ){
        plBaseRefuse(pBase);
      }else{
        rc = sqlite3StockBtreeCommit(pBt);
      }
    }
  }
  sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

/* Loads the schema unless the one in memory is the file's. */
static int plBaseSchema(PlBase *pBase){
  sqlite3 *db = pBase->db;
  u32 iCookie = 0;
  char *zErr = 0;
  int rc = SQLITE_OK;
  sqlite3BtreeGetMeta(plBaseBtree(pBase), BTREE_SCHEMA_VERSION, &iCookie);
  if( DbHasProperty(db, 0, DB_SchemaLoaded) && db->aDb[0].pSchema->schema_cookie!=(int)iCookie ){
    sqlite3ResetAllSchemasOfConnection(db);
  }
  if( !DbHasProperty(db, 0, DB_SchemaLoaded) ){
    rc = sqlite3Init(db, &zErr);
    sqlite3DbFree(db, zErr);
  }
  return rc;
}

static void plBaseEndWrite(PlBase *pBase){
  plApplyClose(&pBase->apply);
  pBase->db->autoCommit = 1;
  pBase->bMerged = 0;
}

static void plBaseWaitAtMost(void *p, int ms){
  sqlite3_busy_timeout(((PlBase*)p)->db, ms<0 ? PL_BASE_BUSY_MS : ms);
}

/* Waits for a rival to go, as long as a process of ours that comes by another WAL-index takes to be
** refused. True if there is one still. */
static int plOutlivesRefusal(Pager *pPager){
  int nLeft = PL_REFUSAL_MS/10;
  while( plIndexRivalled(pPager) ){
    if( nLeft--==0 ) return 1;
    sqlite3OsSleep(pPager->pVfs, 10000);
  }
  return 0;
}

static int plBaseBeginWrite(void *p){
  PlBase *pBase = (PlBase*)p;
  Btree *pBt = plBaseBtree(pBase);
  int iWriter;
  int rc;
  plBaseEnter(pBase);
  pBase->db->busyHandler.nBusy = 0;
  plBaseUseMarks(pBase);
  rc = sqlite3StockBtreeBeginTrans(pBt, 1, 0);
  iWriter = (rc & 0xff)==SQLITE_BUSY ? plShmHolder(pBt->pBt->pPager, UNIX_SHM_BASE+WAL_WRITE_LOCK) : 0;
  if( rc==SQLITE_OK ){
    rc = plBaseFits(pBase, 0);
    if( rc ) plBaseRefuse(pBase);
  }
  if( rc==SQLITE_OK && !plFenced(pBt->pBt) && plOutlivesRefusal(pBt->pBt->pPager) ){
    /* FENCE-6: nothing of a fence may be in file or WAL while a rival works there. */
    plBaseEnd(pBt);
    pBase->bStrange = 1;
    rc = SQLITE_CANTOPEN;
  }
  if( rc==SQLITE_OK ){
    Wal *pWal = pBt->pBt->pPager->pWal;
    if( pWal ){
      memcpy(pBase->aWalSalt, pWal->hdr.aSalt, sizeof(pBase->aWalSalt));
      pBase->iWalEnd = pWal->hdr.mxFrame;
    }
    pBase->db->autoCommit = 0;
    rc = plBaseSchema(pBase);
    if( rc ){
      sqlite3StockBtreeRollback(pBt, SQLITE_OK, 0);
      plBaseEndWrite(pBase);
    }
  }
  if( iWriter>0 ) sqlite3ErrorWithMsg(pBase->db, rc, "process %d, which works alone or in WAL mode, is writing to it", iWriter);
  else sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

static int plBasePut(void *p, uint32_t iRoot, const PlEntry *pEntry){
  PlBase *pBase = (PlBase*)p;
  int rc;
  sqlite3_mutex_enter(pBase->db->mutex);
  pBase->bMerged = 1;
  rc = plApplyPut(&pBase->apply, iRoot, pEntry);
  if( rc ) sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

static int plBaseDelete(void *p, uint32_t iRoot, const PlEntry *pEntry){
  PlBase *pBase = (PlBase*)p;
  int rc;
  sqlite3_mutex_enter(pBase->db->mutex);
  pBase->bMerged = 1;
  rc = plApplyDelete(&pBase->apply, iRoot, pEntry);
  if( rc ) sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

/* The counter is that of page 1 when the transaction began: only its commit increments it. */
static int plBaseReplacePages(void *p, uint32_t nPageByte, uint32_t iCounter){
  PlBase *pBase = (PlBase*)p;
  BtShared *pBt = plBaseBtree(pBase)->pBt;
  int rc = SQLITE_OK;
  sqlite3_mutex_enter(pBase->db->mutex);
  plApplyClose(&pBase->apply);
  if( pBt->pageSize!=nPageByte || get4byte(&pBt->pPage1->aData[24])!=iCounter ) rc = PL_MISFIT;
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

/* As a backup writes to its destination: the b-tree forgets what it knows of the page. */
static int plBasePutPage(void *p, uint32_t iPage, const uint8_t *aPage){
  PlBase *pBase = (PlBase*)p;
  BtShared *pBt = plBaseBtree(pBase)->pBt;
  DbPage *pPage = 0;
  int rc;
  sqlite3_mutex_enter(pBase->db->mutex);
  rc = sqlite3PagerGet(pBt->pPager, iPage, &pPage, PAGER_GET_NOCONTENT);
  if( rc==SQLITE_OK ) rc = sqlite3PagerWrite(pPage);
  if( rc==SQLITE_OK ){
    memcpy(sqlite3PagerGetData(pPage), aPage, pBt->pageSize);
    ((u8*)sqlite3PagerGetExtra(pPage))[0] = 0;
  }
  sqlite3PagerUnref(pPage);
  if( rc ) sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

static int plBaseSetPageCount(void *p, uint32_t nPage){
  PlBase *pBase = (PlBase*)p;
  BtShared *pBt = plBaseBtree(pBase)->pBt;
  sqlite3_mutex_enter(pBase->db->mutex);
  /* Longer than the last page put if pages after that were freed again, shorter than before if
  ** others were. */
  pBt->pPager->dbSize = nPage;
  pBt->nPage = nPage;
  sqlite3_mutex_leave(pBase->db->mutex);
  return SQLITE_OK;
}

static int plBaseStamp(void *p, const PlHeader *pHdr){
  PlBase *pBase = (PlBase*)p;
  BtShared *pBt = plBaseBtree(pBase)->pBt;
  int rc = SQLITE_OK;
  sqlite3_mutex_enter(pBase->db->mutex);
  /* Raises the fence: see plStayLocked(). */
  pBase->eRival = PLR_NOBODY;
  if( pHdr->fenced && !PL_FENCED(pBt->pPage1->aData) ) rc = plStayLocked(pBt->pPager, &pBase->eRival);
  if( rc==SQLITE_OK ) rc = plStamp(plBaseBtree(pBase), pHdr);
  if( rc ) sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

static int plBaseCommit(void *p){
  PlBase *pBase = (PlBase*)p;
  int rc;
  sqlite3_mutex_enter(pBase->db->mutex);
  plApplyClose(&pBase->apply);
  rc = sqlite3StockBtreeCommit(plBaseBtree(pBase));
  if( rc ) sqlite3StockBtreeRollback(plBaseBtree(pBase), SQLITE_OK, 0);
  plBaseEndWrite(pBase);
  sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

typedef struct PlWritten { u32 iPage; u32 iFrame; } PlWritten;

static int plWrittenOrder(const void *a, const void *b){
  const PlWritten *x = (const PlWritten*)a, *y = (const PlWritten*)b;
  if( x->iPage!=y->iPage ) return x->iPage<y->iPage ? -1 : 1;
  return x->iFrame<y->iFrame ? -1 : x->iFrame>y->iFrame;
}

/* Reads the header of a frame of the WAL, or (aPage) its page too, behind the header in aFrame. */
static int plReadFrame(Wal *pWal, u32 iFrame, int nByte, u8 *aFrame, int bPage){
  i64 iOffset = walFrameOffset(iFrame, nByte);
  return sqlite3OsRead(pWal->pWalFd, aFrame, WAL_FRAME_HDRSIZE + (bPage ? nByte : 0), iOffset);
}

/* The sum of the pages that the transaction has written which was just committed: they are in the
** WAL, behind what was there when it began, or from its start if it has begun the WAL anew. SQLite
** writes a page again over its own frame of the same transaction, but for the last one of a commit: if
** that was there already, it is there twice, and counts as it was written last. A page that left the
** cache before the end of the database moved before it is there too, and does not count.
**
** Nobody begins the WAL anew now: that takes the right to merge, which the caller has. */
static int plBaseSum(PlBase *pBase, u32 *pnPage, u32 *pSum){
  BtShared *pBt = plBaseBtree(pBase)->pBt;
  Wal *pWal = pBt->pPager->pWal;
  int nByte = (int)pBt->pageSize;
  PlWritten *a = 0;
  u8 *aFrame = 0;
  u32 iFirst, n, i, sum = 0;
  int rc = SQLITE_OK;
  if( pWal==0 ) return SQLITE_ERROR;
  iFirst = memcmp(pBase->aWalSalt, pWal->hdr.aSalt, sizeof(pBase->aWalSalt))==0 ? pBase->iWalEnd+1 : 1;
  if( pWal->hdr.mxFrame<iFirst ) return SQLITE_ERROR;
  n = pWal->hdr.mxFrame + 1 - iFirst;
  a = sqlite3_malloc64((u64)n * sizeof(PlWritten));
  aFrame = sqlite3_malloc64((u64)nByte + WAL_FRAME_HDRSIZE);
  if( a==0 || aFrame==0 ) rc = SQLITE_NOMEM_BKPT;
  for(i=0; rc==SQLITE_OK && i<n; i++){
    rc = plReadFrame(pWal, iFirst+i, nByte, aFrame, 0);
    if( rc==SQLITE_OK ) a[i] = (PlWritten){ get4byte(aFrame), iFirst+i };
  }
  if( rc==SQLITE_OK ){
    *pnPage = pWal->hdr.nPage;
    qsort(a, n, sizeof(PlWritten), plWrittenOrder);
  }
  for(i=0; rc==SQLITE_OK && i<n && a[i].iPage<=*pnPage; i++){
    if( i+1<n && a[i+1].iPage==a[i].iPage ) continue;
    rc = plReadFrame(pWal, a[i].iFrame, nByte, aFrame, 1);
    if( rc==SQLITE_OK ) sum = pl_sum_page(sum, a[i].iPage, &aFrame[WAL_FRAME_HDRSIZE], (u32)nByte);
  }
  *pSum = sum;
  sqlite3_free(a);
  sqlite3_free(aFrame);
  return rc;
}

static int plBaseCommitSum(void *p, int *pbSummed, uint32_t *pnPage, uint32_t *pSum){
  PlBase *pBase = (PlBase*)p;
  int rc = plBaseCommit(p);
  *pbSummed = 0;
  if( rc==SQLITE_OK ){
    sqlite3_mutex_enter(pBase->db->mutex);
    *pbSummed = plBaseSum(pBase, pnPage, pSum)==SQLITE_OK;
    sqlite3_mutex_leave(pBase->db->mutex);
  }
  return rc;
}

static int plBaseBeginRead(void *p, PlHeader *pOut, uint32_t *pnPageByte, uint32_t *pnPage){
  PlBase *pBase = (PlBase*)p;
  Btree *pBt = plBaseBtree(pBase);
  int rc;
  plBaseEnter(pBase);
  plBaseUseMarks(pBase);
  rc = sqlite3StockBtreeBeginTrans(pBt, 0, 0);
  if( rc==SQLITE_OK ){
    u8 bFenced = 0;
    plReadHeader(pBt->pBt, pOut);
    plHold(pBt);
    rc = plBaseFits(pBase, &bFenced);
    pOut->fenceInWalAlone = pOut->fenced && !bFenced;
    if( rc ) plBaseRefuse(pBase);
  }
  *pnPageByte = (uint32_t)sqlite3BtreeGetPageSize(pBt);
  *pnPage = rc==SQLITE_OK ? sqlite3BtreeLastPage(pBt) : 0;
  sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

/* The page with the bytes that are locked has no content. */
static int plBaseReadPage(void *p, uint32_t iPage, uint8_t *aPage){
  PlBase *pBase = (PlBase*)p;
  BtShared *pBt = plBaseBtree(pBase)->pBt;
  DbPage *pPage = 0;
  int rc = SQLITE_OK;
  sqlite3_mutex_enter(pBase->db->mutex);
  if( iPage==PENDING_BYTE_PAGE(pBt) ){
    memset(aPage, 0, pBt->pageSize);
  }else{
    rc = sqlite3PagerGet(pBt->pPager, iPage, &pPage, 0);
    if( rc==SQLITE_OK ) memcpy(aPage, sqlite3PagerGetData(pPage), pBt->pageSize);
    sqlite3PagerUnref(pPage);
  }
  sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

static void plBaseEndRead(void *p){
  PlBase *pBase = (PlBase*)p;
  sqlite3_mutex_enter(pBase->db->mutex);
  (void)sqlite3StockBtreeCommit(plBaseBtree(pBase));
  sqlite3_mutex_leave(pBase->db->mutex);
}

static void plBaseRollback(void *p){
  PlBase *pBase = (PlBase*)p;
  plBaseEnter(pBase);
  plApplyClose(&pBase->apply);
  sqlite3StockBtreeRollback(plBaseBtree(pBase), SQLITE_OK, 0);
  plBaseEndWrite(pBase);
  sqlite3_mutex_leave(pBase->db->mutex);
}

/* mode 0: all that readers do not hold back. mode 2: everything, and the WAL becomes empty. */
static int plBaseCheckpoint(void *p, int mode, uint32_t *pnLog, uint32_t *pnCkpt, uint32_t *pPageSize){
  PlBase *pBase = (PlBase*)p;
  int eMode = mode==2 ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE;
  int nLog = -1, nCkpt = -1;
  int rc;
  plBaseEnter(pBase);
  pBase->db->busyHandler.nBusy = 0;
  plBaseUseMarks(pBase);
  rc = plFitsNow(plBaseBtree(pBase));
  if( rc==SQLITE_OK ){
    rc = plIndexStrange(plBaseBtree(pBase)->pBt->pPager, pBase->pMarks);
    pBase->bStrange = rc==SQLITE_CANTOPEN;
  }
  if( rc ){
    plForgetWal(plBaseBtree(pBase));
  }else{
    rc = sqlite3StockBtreeCheckpoint(plBaseBtree(pBase), eMode, &nLog, &nCkpt);
  }
  *pPageSize = (uint32_t)sqlite3BtreeGetPageSize(plBaseBtree(pBase));
  sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  *pnLog = nLog<0 ? 0 : (uint32_t)nLog;
  *pnCkpt = nCkpt<0 ? 0 : (uint32_t)nCkpt;
  return rc;
}

/* The fence is in the WAL, on disk. A checkpoint brings it into the file, but not while a reader
** holds the checkpoint back, and a copy of the file alone would pass for a sound database. So the
** two bytes are written to the file as well.
**
** No reader is misled. A transaction on a state with the fence reads page 1 from the WAL. One on an
** older state, which reads page 1 from the file, has checked its version before. No salt is
** written: until a checkpoint brings the whole page the file goes with no log. The checkpoint lock
** keeps out a stock checkpoint from before the fence, which may write an older page 1. Later
** checkpoints of ours keep the two bytes (plKeepFence).
**
** Bytes that are there already are written again, unless a checkpoint has brought the whole WAL
** since. The process that wrote them may have died before its sync, or the sync failed: then another
** sync reports nothing about bytes that were not written again (FENCE-5 in upkeep/fence.rs). */
static int plRaiseFence(Pager *pPager, int *peRival){
  Wal *pWal = pPager->pWal;
  u8 aVersion[2] = {0, 0};
  u8 bFenced = 0;
  int bSynced = 0;
  int rc = walBusyLock(pWal, pPager->xBusyHandler, pPager->pBusyHandlerArg, WAL_CKPT_LOCK, 1);
  if( rc ) return rc;
  rc = sqlite3OsRead(pPager->fd, aVersion, sizeof(aVersion), 18);
  if( rc==SQLITE_OK && aVersion[0]==3 && aVersion[1]==3 && AtomicLoad(&PL_LOWERED(pWal))==0 && walIndexHdr(pWal)->mxFrame!=0 ){
    /* A checkpoint that has brought everything into the file has synced the file. */
    bSynced = AtomicLoad(&walCkptInfo(pWal)->nBackfill)==walIndexHdr(pWal)->mxFrame;
  }
  if( rc==SQLITE_OK && !bSynced && (rc = plFits(pPager, 0))==SQLITE_OK ){
    aVersion[0] = aVersion[1] = 3;
    rc = sqlite3OsWrite(pPager->fd, aVersion, sizeof(aVersion), 18);
  }
  if( rc==SQLITE_OK && !bSynced ) rc = sqlite3OsSync(pPager->fd, SQLITE_SYNC_NORMAL);
  /* From here on no rival comes in. Has one come before? FENCE-6 in upkeep/fence.rs. */
  if( rc==SQLITE_OK && plIndexRivalled(pPager) ) rc = SQLITE_CANTOPEN;
  if( rc==SQLITE_OK ) rc = plStayLocked(pPager, peRival);
  /* The rival may have written since the first check, and be dead. */
  if( rc==SQLITE_OK && (rc = plFits(pPager, &bFenced))==SQLITE_OK && !bFenced ) rc = PL_MISFIT;
  if( rc==SQLITE_OK ) AtomicStore(&PL_LOWERED(pWal), 0);
  if( rc==PL_MISFIT && plWalWasRemoved(pPager) ){
    *peRival = PLR_HAD_FILE;
    rc = SQLITE_CANTOPEN;
  }
  walUnlockExclusive(pWal, WAL_CKPT_LOCK, 1);
  return rc;
}
static int plBaseRaiseFence(void *p){
  PlBase *pBase = (PlBase*)p;
  Pager *pPager = plBaseBtree(pBase)->pBt->pPager;
  int rc;
  plBaseEnter(pBase);
  pBase->db->busyHandler.nBusy = 0;
  plBaseUseMarks(pBase);
  /* The caller has read the header of a marked base: the WAL is open. */
  pBase->eRival = PLR_NOBODY;
  rc = pPager->pWal ? plRaiseFence(pPager, &pBase->eRival) : SQLITE_MISUSE_BKPT;
  pBase->bStrange = rc==SQLITE_CANTOPEN && pBase->eRival==PLR_NOBODY;
  sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

/* The file has the fence and the WAL is empty, but the WAL-index, made anew after the death of all,
** does not have the version of a fenced base: writes that version. Then gives the WAL the length of
** its header, as a WAL that is emptied under the fence has. The checkpoint lock is held. */
static int plTellIndex(Wal *pWal){
  i64 nByte = 0;
  int rc = SQLITE_OK;
  if( !plWalFenced(pWal) ){
    rc = walLockExclusive(pWal, WAL_WRITE_LOCK, 1);
    if( rc ) return rc;
    if( memcmp(&pWal->hdr, (void*)walIndexHdr(pWal), sizeof(WalIndexHdr))!=0 ){
      rc = SQLITE_BUSY;
    }else{
      pWal->ePlFence = PLF_Up;
      walIndexWriteHdr(pWal);
      pWal->ePlFence = PLF_Unknown;
    }
    walUnlockExclusive(pWal, WAL_WRITE_LOCK, 1);
  }
  if( rc==SQLITE_OK ) rc = sqlite3OsFileSize(pWal->pWalFd, &nByte);
  if( rc==SQLITE_OK && nByte!=WAL_HDRSIZE ) rc = sqlite3OsTruncate(pWal->pWalFd, WAL_HDRSIZE);
  return rc;
}

/* Takes the fence from the file, which has everything: the WAL is empty. The WAL-index goes on
** saying that the base is fenced. First comes the note, by which the file without a fence is known
** to be the right one. A WAL-index that was removed keeps no process off: then the fence stays. */
static int plLowerFence(Pager *pPager){
  Wal *pWal = pPager->pWal;
  u8 a[PL_FIRST_BYTES], aVersion[2];
  int rc = walBusyLock(pWal, pPager->xBusyHandler, pPager->pBusyHandlerArg, WAL_CKPT_LOCK, 1);
  if( rc ) return rc;
  if( walIndexHdr(pWal)->mxFrame!=0 ){
    rc = SQLITE_BUSY;
  }else if( plIndexGone(pPager) ){
    rc = PL_FENCED_STILL;
  }else if( (rc = plFits(pPager, 0))==SQLITE_OK && (rc = sqlite3OsRead(pPager->fd, a, sizeof(a), 0))==SQLITE_OK
   && PL_FENCED(a) && (rc = plTellIndex(pWal))==SQLITE_OK
  ){
    AtomicStore(&PL_LOWERED(pWal), plNote(a));
    sqlite3MemoryBarrier();
    aVersion[0] = plWriteVersion(pPager);
    aVersion[1] = 2;
    rc = sqlite3OsWrite(pPager->fd, aVersion, sizeof(aVersion), 18);
  }
  walUnlockExclusive(pWal, WAL_CKPT_LOCK, 1);
  return rc;
}
static int plBaseLowerFence(void *p){
  PlBase *pBase = (PlBase*)p;
  Pager *pPager = plBaseBtree(pBase)->pBt->pPager;
  int rc;
  plBaseEnter(pBase);
  pBase->db->busyHandler.nBusy = 0;
  plBaseUseMarks(pBase);
  /* The WAL is open, as in plBaseRaiseFence(). */
  rc = pPager->pWal ? plLowerFence(pPager) : SQLITE_MISUSE_BKPT;
  sqlite3Error(pBase->db, rc==PL_FENCED_STILL ? SQLITE_OK : rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

/* Writes the two bytes again as they are, and syncs the file and its WAL: neither a lowered fence
** nor the truncation of the WAL need have reached the disk (FENCE-7 in upkeep/fence.rs). Frames that
** come back have a fenced page 1. The bytes are written first since an earlier sync may have failed
** (FENCE-5). The checkpoint lock keeps out a checkpoint that brings others. A stock program that has
** the lock for a checkpoint of its own syncs what it writes: nothing waits for it. */
static int plSyncLowered(Pager *pPager){
  Wal *pWal = pPager->pWal;
  u8 aVersion[2];
  int rc = pPager->readOnly ? SQLITE_BUSY : walLockExclusive(pWal, WAL_CKPT_LOCK, 1);
  if( rc==SQLITE_OK ){
    rc = sqlite3OsRead(pPager->fd, aVersion, sizeof(aVersion), 18);
    if( rc==SQLITE_OK ) rc = sqlite3OsWrite(pPager->fd, aVersion, sizeof(aVersion), 18);
    walUnlockExclusive(pWal, WAL_CKPT_LOCK, 1);
  }else if( (rc & 0xff)==SQLITE_BUSY ){
    rc = SQLITE_OK;
  }
  if( rc==SQLITE_OK ) rc = sqlite3OsSync(pPager->fd, SQLITE_SYNC_NORMAL);
  if( rc==SQLITE_OK ) rc = sqlite3OsSync(pWal->pWalFd, SQLITE_SYNC_NORMAL);
  return rc;
}
static int plBaseSyncLowered(void *p){
  PlBase *pBase = (PlBase*)p;
  Pager *pPager = plBaseBtree(pBase)->pBt->pPager;
  int rc;
  plBaseEnter(pBase);
  pBase->db->busyHandler.nBusy = 0;
  /* Without a WAL a stock program has committed another journal mode, and synced it. */
  rc = pPager->pWal ? plSyncLowered(pPager) : SQLITE_OK;
  sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

/* Sets *pbUnseen if the WAL has, after the last frame that its index knows, a whole transaction
** that a new index would include. Only frames with the salts of the WAL's header count. Their
** checksums are not verified: to bury a transaction without need does no harm. */
static int plHasUnseen(Wal *pWal, int *pbUnseen){
  u8 aHdr[WAL_HDRSIZE], aFrame[WAL_FRAME_HDRSIZE];
  u32 iFrame = walIndexHdr(pWal)->mxFrame;
  int rc = sqlite3OsRead(pWal->pWalFd, aHdr, sizeof(aHdr), 0);
  while( rc==SQLITE_OK && !*pbUnseen ){
    rc = sqlite3OsRead(pWal->pWalFd, aFrame, sizeof(aFrame), walFrameOffset(++iFrame, (int)get4byte(&aHdr[8])));
    if( rc==SQLITE_OK && memcmp(&aFrame[8], &aHdr[16], 8)!=0 ) break;
    if( rc==SQLITE_OK && get4byte(&aFrame[4])!=0 ) *pbUnseen = 1;
  }
  return rc==SQLITE_IOERR_SHORT_READ ? SQLITE_OK : rc;
}
static int plBaseHasUnseen(void *p, int *pbUnseen){
  PlBase *pBase = (PlBase*)p;
  Pager *pPager = plBaseBtree(pBase)->pBt->pPager;
  int rc = SQLITE_OK;
  *pbUnseen = 0;
  plBaseEnter(pBase);
  /* Without a WAL there is none that a process has opened. */
  if( pPager->pWal ) rc = plHasUnseen(pPager->pWal, pbUnseen);
  sqlite3Error(pBase->db, rc);
  sqlite3_mutex_leave(pBase->db->mutex);
  return rc;
}

static void plBaseTell(int rc, const char *zText){
  sqlite3_log(rc, "plait: %s", zText);
}

static const PlBaseOps plBaseOps = {
  plBaseOpen, plBaseClose, plBaseReadMarks, plBaseErrmsg, plBaseHeader, plBaseBeginWrite, plBasePut, plBaseDelete, plBaseReplacePages,
  plBasePutPage, plBaseSetPageCount, plBaseStamp, plBaseCommit, plBaseCommitSum, plBaseRollback, plBaseBeginRead, plBaseReadPage, plBaseEndRead, plBaseHasUnseen, plBaseWaitAtMost,
  plBaseRaiseFence, plBaseLowerFence, plBaseSyncLowered, plBaseCheckpoint, plBaseBorrow, plBaseSyncLent,
  plBaseGiveBack, plBaseTell
};

/* For the plait command, which is linked with this library: see pl_accept_base. */
int pl_shim_accept_base(const char *zPath, char **pzErr){
  int rc = sqlite3_initialize();
  return rc ? rc : pl_accept_base(&plBaseOps, zPath, pzErr);
}

/*
** attach.c - how a handle comes to be concurrent, and stops being.
**
**   stock      pPl==0 or pConn==0: SQLite's own code. Every transaction that begins looks at page 1.
**   attached   pConn!=0: the file is marked (header bytes 72..75, byte 19 at least 2) and the session joined.
**
** stock -> attached: plFirstTouch(), when a begun transaction finds the mark.   attached -> stock: plDetach(), when the
** mark is gone or the handle closes.
**
** Hidden connections (PL_OPEN_BASE) never attach. Neither do in-memory and temporary databases, whatever
** their header says.
*/

/* How long engine calls may wait for this connection: the application's busy timeout or handler. */
static int plXBusy(void *pCtx, int nPrior){
  (void)nPrior;
  return sqlite3InvokeBusyHandler(&((sqlite3*)pCtx)->busyHandler);
}
static int plXInterrupted(void *pCtx){
  return AtomicLoad(&((sqlite3*)pCtx)->u1.isInterrupted);
}
static const PlWait *plWait(sqlite3 *db, PlWait *pWait){
  memset(pWait, 0, sizeof(*pWait));
  pWait->pCtx = db;
  pWait->xInterrupted = plXInterrupted;
  if( db->busyHandler.xBusyHandler==0 ){
    pWait->timeoutMs = 0;
  }else if( db->busyTimeout>0 ){
    pWait->timeoutMs = db->busyTimeout;
  }else{
    pWait->timeoutMs = -1;
    pWait->xBusy = plXBusy;
  }
  return pWait;
}

/* Names the state of the base that an open transaction reads: a hash of its WAL-index header, which every commit to the
** WAL changes. 0 without a WAL. */
static u64 plContentCookie(Pager *pPager){
  u64 h = 0xcbf29ce484222325;
  u32 a[5];
  int i;
  if( pPager->pWal==0 ) return 0;
  a[0] = pPager->pWal->hdr.aSalt[0];
  a[1] = pPager->pWal->hdr.aSalt[1];
  a[2] = pPager->pWal->hdr.mxFrame;
  a[3] = pPager->pWal->hdr.aFrameCksum[0];
  a[4] = pPager->pWal->hdr.aFrameCksum[1];
  for(i=0; i<5; i++){
    h = (h ^ a[i]) * 0x100000001b3;
    h ^= h>>29;
  }
  return h | 1;
}

/* What page 1 says. A base read or write transaction is open. */
static void plReadHeader(BtShared *pBt, PlHeader *pOut){
  memset(pOut, 0, sizeof(*pOut));
  pOut->cookie = plContentCookie(pBt->pPager);
  if( pBt->pPage1==0 || pBt->nPage==0 ){
    pOut->empty = 1;
  }else{
    const u8 *a = pBt->pPage1->aData;
    pOut->salt = get4byte(&a[72]);
    pOut->generation = get4byte(&a[76]);
    pOut->marked = PL_MARKED(a);
    pOut->fenced = PL_FENCED(a);
    pOut->textEncoding = (u8)(get4byte(&a[56]) & 3);
  }
}

/* True if the file of an open transaction is concurrent. */
static SQLITE_INLINE int plMarked(BtShared *pBt){
  return pBt->pPage1!=0 && pBt->nPage!=0 && PL_MARKED(pBt->pPage1->aData);
}

/* Ends the base's transaction on this handle, also while other statements read (unlike sqlite3BtreeCommit). All inner
** cursors are closed. */
static void plBaseEnd(Btree *p){
  BtShared *pBt = p->pBt;
  if( p->inTrans==TRANS_NONE ) return;
  if( p->inTrans==TRANS_WRITE ){
    (void)sqlite3PagerRollback(pBt->pPager);
    btreeClearHasContent(pBt);
  }
  clearAllSharedCacheTableLocks(p);
  if( --pBt->nTransaction==0 ) pBt->inTransaction = TRANS_NONE;
  p->inTrans = TRANS_NONE;
  unlockBtreeIfUnused(pBt);
}

/* From here on this handle takes its locks on read marks as the session does. No transaction is open. */
static void plUseMarks(Pager *pPager, const PlMarks *pMarks){
  Wal *pWal = pPager->pWal;
  if( pWal ){
    assert( pWal->readLock<0 && pWal->writeLock==0 && pWal->ckptLock==0 );
    pWal->pPlMarks = pMarks;
  }
}

/* Tells why a handle could not work concurrently, or 0. */
static const char *plUnsuitable(Btree *p){
  Pager *pPager = p->pBt->pPager;
  if( p->sharable ) return "shared-cache mode cannot be used with journal_mode=concurrent";
  if( sqlite3PagerFilename(pPager, 1)[0]==0 || pPager->tempFile ){
    return "an in-memory, temporary or immutable database cannot be concurrent";
  }
  if( sqlite3PagerVfs(pPager)!=sqlite3_vfs_find(0) ) return "journal_mode=concurrent needs the default VFS";
  if( pPager->noLock ) return "journal_mode=concurrent cannot be used with nolock=1";
  return 0;
}

static const PlBaseOps plBaseOps;

/* Joins the session of a marked file. No transaction is open. */
static int plAttach(Btree *p){
  PlBtree *pPl = plSide(p);
  Pager *pPager = p->pBt->pPager;
  const char *zWhy = plUnsuitable(p);
  char *zErr = 0;
  u32 flags = 0;
  int rc;
  if( pPl==0 ) return SQLITE_NOMEM_BKPT;
  if( zWhy ) return plStash(p, SQLITE_ERROR, sqlite3_mprintf("cannot open %s: %s", plDbName(p), zWhy));
  pPl->bReadonly = (p->pBt->btsFlags & BTS_READ_ONLY)!=0;
  if( pPl->bReadonly ) flags |= PL_ATTACH_READONLY;
  rc = pl_attach(&plBaseOps, sqlite3PagerFilename(pPager, 0), flags, &pPl->pConn, &zErr);
  if( rc ){
    pPl->pConn = 0;
    plStash(p, rc, sqlite3_mprintf("%s", zErr ? zErr : sqlite3ErrStr(rc)));
  }else{
    int iDb = plDbIndex(p);
    /* Long-held file locks would shut the merges out. */
    pPager->exclusiveMode = 0;
    plBtreeSetPagerFlags(p, p->db->aDb[iDb].safety_level | (p->db->flags & PAGER_FLAGS_MASK));
  }
  pl_free(zErr);
  return rc;
}

/* Back to stock: the session is left; its last member merges and unfences. No transaction is open. */
static void plDetach(Btree *p){
  PlBtree *pPl = p->pPl;
  PlConn *pConn = pPl->pConn;
  pPl->pConn = 0;
  plFreePool(pPl);
  plUseMarks(p->pBt->pPager, 0);
  if( pConn ) pl_detach(pConn);
}

/* A stock transaction began and page 1 is marked, or a write transaction could not begin, perhaps because a merge had
** the lock. */
static SQLITE_NOINLINE PL_COLD int plFirstTouch(Btree *p, int wrflag, int *pSchemaVersion, int rc){
  if( p->db->openFlags & PL_OPEN_BASE ) return rc;
  if( sqlite3PagerFilename(p->pBt->pPager, 1)[0]==0 ) return rc;
  if( rc!=SQLITE_OK ){
    if( p->inTrans!=TRANS_NONE ) return rc;
    if( sqlite3StockBtreeBeginTrans(p, 0, 0)!=SQLITE_OK ) return rc;
    if( !plMarked(p->pBt) ){
      plBaseEnd(p);
      return rc;
    }
  }
  plBaseEnd(p);
  if( p->db->flags & SQLITE_ResetDatabase ){
    return plStash(p, SQLITE_ERROR, sqlite3_mprintf("switch journal_mode=concurrent off before resetting the database"));
  }
  rc = plAttach(p);
  if( rc ) return rc;
  return plBeginTrans(p, wrflag, pSchemaVersion);
}

/* The mark cannot appear within a transaction: it is looked for when one begins, not at each of its statements. */
SQLITE_PRIVATE SQLITE_INLINE int sqlite3BtreeBeginTrans(Btree *p, int wrflag, int *pSchemaVersion){
  int bBegins, rc;
  if( PL_BT(p) ) return plBeginTrans(p, wrflag, pSchemaVersion);
  bBegins = p->inTrans==TRANS_NONE;
  rc = sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion);
  if( PL_UNLIKELY(rc==SQLITE_OK ? (bBegins && plMarked(p->pBt)) : (wrflag && (rc & 0xff)==SQLITE_BUSY)) ){
    return plFirstTouch(p, wrflag, pSchemaVersion, rc);
  }
  return rc;
}

/* The stock handle goes first: the session's hidden connection, not this one, shall be the last on the file, so
** that it removes the WAL. */
SQLITE_PRIVATE int sqlite3BtreeClose(Btree *p){
  PlBtree *pPl = p->pPl;
  PlConn *pConn;
  int rc;
  if( pPl==0 ) return sqlite3StockBtreeClose(p);
  if( pPl->pConn ) plBtreeRollback(p, SQLITE_OK, 0);
  pConn = pPl->pConn;
  pPl->pConn = 0;
  p->pPl = 0;
  plFreePool(pPl);
  rc = sqlite3StockBtreeClose(p);
  if( pConn ) pl_detach(pConn);
  sqlite3_free(pPl->zStash);
  sqlite3_free(pPl->aCoarse);
  sqlite3_free(pPl->aScratch);
  sqlite3_free(pPl);
  return rc;
}

/* The user's level decides when a COMMIT returns. An exclusive one is SQLite's own, which under NORMAL does not sync it; the
** engine does, before anything that comes after it reaches the log. OFF writes the base as NORMAL does: without any syncs a power
** cut could leave it inconsistent. */
static int plBtreeSetPagerFlags(Btree *p, unsigned pgFlags){
  PlBtree *pPl = p->pPl;
  switch( pgFlags & PAGER_SYNCHRONOUS_MASK ){
    case PAGER_SYNCHRONOUS_OFF:    pPl->eSync = PL_SYNC_OFF; break;
    case PAGER_SYNCHRONOUS_NORMAL: pPl->eSync = PL_SYNC_NORMAL; break;
    default:                       pPl->eSync = PL_SYNC_FULL; break;
  }
  pl_set_level(pPl->pConn, pPl->eSync);
  pgFlags &= ~(unsigned)PAGER_SYNCHRONOUS_MASK;
  pgFlags |= pPl->eSync==PL_SYNC_FULL ? PAGER_SYNCHRONOUS_FULL : PAGER_SYNCHRONOUS_NORMAL;
  return sqlite3StockBtreeSetPagerFlags(p, pgFlags);
}

/*
** exclusive.c - transactions on SQLite's own path (TXN-7): DDL, VACUUM, PRAGMA writes, bulk.
**
**  plEscalate()   for what the concurrent path cannot do, or what a lone bulk load does better here
**                 (engine): reads go to the engine -> positions kept as keys -> engine: right,
**                 validation, everything merged -> base read transaction ends -> stock write
**                 transaction at the newest base -> own writes replayed, savepoint by savepoint ->
**                 facades become stock cursors
**  commit         header stamped with what the engine returns (FILE-4), stock commit, synced under
**                 FULL alone, engine informed; over several files the stock commit comes after the
**                 decision (several.c)
**  rollback       stock rollback, engine informed
**
** From escalation to the end the overlay is empty (HANDLE-2) and savepoints are the pager's.
**
** Invariants
**  - STOCK-1 Escalation neither loses nor doubles anything of the concurrent transaction: if it
**    fails before the base was touched, the transaction goes on as it was; if it fails later,
**    rcBroken lets only ROLLBACK through.
**  - STOCK-2 A commit that changed pages carries the stamp (bStamped) in the same WAL transaction.
**  - STOCK-3 Code that changes a b-tree records which one (PlTouched), or that it may be any,
**    before the stamp is made: other transactions rely on it (EXCL-3 in txn/exclusive.rs). A commit
**    that records no b-tree counts as having changed any.
*/

/* What the replay of own writes works on. */
typedef struct PlReplay {
  Btree *p;
  PlApply apply;
} PlReplay;

static int plReplaySavepoint(void *pCtx, int n){
  return sqlite3PagerOpenSavepoint(((PlReplay*)pCtx)->p->pBt->pPager, n);
}
static int plReplayWrite(void *pCtx, uint32_t iRoot, const PlEntry *pEntry){
  PlReplay *pR = (PlReplay*)pCtx;
  if( pEntry->maximum ) plNoteMaximum(pR->p->pPl, iRoot, plDecodeRowid(pEntry->key));
  else plNoteChanged(pR->p->pPl, iRoot);
  if( pEntry->tombstone ) return plApplyDelete(&pR->apply, iRoot, pEntry);
  return plApplyPut(&pR->apply, iRoot, pEntry);
}

/* Replays own writes into the base, which this handle may write now. */
static int plReplayOwn(Btree *p){
  PlBtree *pPl = p->pPl;
  PlReplay r;
  int rc;
  memset(&r, 0, sizeof(r));
  r.p = p;
  plApplyInit(&r.apply, p, plDbIndex(p));
  rc = pl_exclusive_replay(pPl->pConn, plReplaySavepoint, plReplayWrite, &r);
  plApplyClose(&r.apply);
  if( rc==SQLITE_OK ) rc = sqlite3PagerOpenSavepoint(p->pBt->pPager, pPl->nSavepoint);
  return rc;
}

/* Escalation, or taking a newer snapshot, failed after the base read transaction had ended. Nothing
** can be committed any more, and no transaction waits for this one. No statement can read on: the
** base that is open from here on is not that of any snapshot, and plOpen() refuses. */
static int plBreak(Btree *p, int rc){
  PlBtree *pPl = p->pPl;
  PlCursor *pX;
  int bBusy = (rc & 0xff)==SQLITE_BUSY && rc!=SQLITE_BUSY_SNAPSHOT;
  /* In a transaction BUSY means that it may go on. In a COMMIT, where SQLite has set autoCommit,
  ** plCommitEnded() says so. */
  if( bBusy && !p->db->autoCommit ) rc = plSayBroken(p);
  plBaseEnd(p);
  pl_exclusive_end(pPl->pConn, 0, 0);
  pl_rollback(pPl->pConn);
  pl_snapshot_end(pPl->pConn);
  pPl->bExcl = 0;
  pPl->rcBroken = bBusy ? SQLITE_BUSY_SNAPSHOT : rc;
  for(pX=pPl->pCsr; pX; pX=pX->pNext) plTrip(pX, pPl->rcBroken);
  /* Stock code reads page 1 while a transaction is open: keep one, if it can be had. */
  (void)plBaseBegin(p, 0, 0);
  return rc;
}

static int plBecomeExclusive(Btree *p){
  PlBtree *pPl = p->pPl;
  PlCursor *pX;
  PlWait wait;
  int nSavepoint = p->db->nSavepoint;
  int rc;
  if( pPl->bExcl ) return SQLITE_OK;
  if( pPl->bReadonly ) return SQLITE_READONLY;
  rc = plNeedSchema(p);                   /* for the replay */
  if( rc ) return rc;
  plRdFlushAll(pPl);
  if( pPl->iLookedUp ) rc = plRdRoot(pPl, pPl->iLookedUp);
  if( rc==SQLITE_OK ) rc = plHardSaveAll(pPl);
  if( rc ) return rc;
  while( (rc = pl_exclusive_begin(pPl->pConn, plWaitLeft(p, &wait)))==PL_RETRY ){
    rc = plRenewSnapshot(p);
    if( rc ) return rc;
  }
  if( rc ) return plFail(p, rc);
  plBaseEnd(p);
  p->db->nSavepoint = 0;                  /* the replay opens them, each where it belongs */
  rc = plBaseBegin(p, 1, 0);
  p->db->nSavepoint = nSavepoint;
  if( rc==SQLITE_OK ){
    rc = plFits(p->pBt->pPager, 0);
    if( rc==PL_MISFIT ) rc = plSayMisfit(p);
  }
  if( rc==SQLITE_OK ){
    pPl->bExcl = 1;
    pPl->bCopies = pPl->bStamped = pPl->bPinned = pPl->bTrack = pPl->bBaseOnly = 0;
    pPl->nPassWrite = pPl->nPassByte = 0;
    memset(&pPl->changed, 0, sizeof(pPl->changed));
    pPl->nPageBefore = p->pBt->pPager->aStat[PAGER_STAT_WRITE];
    memcpy(pPl->aVers, &p->pBt->pPage1->aData[24], sizeof(pPl->aVers));
    rc = plReplayOwn(p);
  }
  if( rc ) return plBreak(p, rc);
  if( pPl->eWrite==0 ) pPl->eWrite = PL_WRITE_QUEUED;
  for(pX=pPl->pCsr; pX; pX=pX->pNext){
    /* The replay saw no cursor but its own, and concluded that there is no blob handle. */
    if( pX->pOut->curFlags & BTCF_Incrblob ) p->hasIncrblobCur = 1;
    if( rc ) plTrip(pX, rc);
    else rc = plPassInstall(pX);
  }
  return rc;
}
/* Makes the open transaction (reading or writing) exclusive. */
static int plEscalate(Btree *p){
  int rc = plBecomeExclusive(p);
  if( rc ) plRefused(p->db, rc);
  return rc;
}

/* Writes what the engine wants in the header of the base: fence, salt, generation. The commit then
** increments the change counter that it found, though this connection has made the last change as
** well: belongs.rs tells states apart by that counter. Page 1 is written once, with the commit:
** every transaction holds it. */
static int plStamp(Btree *p, const PlHeader *pHdr){
  MemPage *pPage1 = p->pBt->pPage1;
  int rc = sqlite3PagerWrite(pPage1->pDbPage);
  if( rc==SQLITE_OK ){
    u8 *a = pPage1->aData;
    a[18] = pHdr->fenced ? 3 : pHdr->marked ? plWriteVersion(p->pBt->pPager) : 2;
    a[19] = pHdr->fenced ? 3 : 2;
    put4byte(&a[72], pHdr->marked ? pHdr->salt : 0);
    put4byte(&a[76], pHdr->marked ? pHdr->generation : 0);
    if( p->pBt->pPager->pWal ){
      p->pBt->pPager->pWal->ePlFence = pHdr->fenced ? PLF_Up : PLF_Down;
      memcpy(p->pBt->pPager->dbFileVers, &a[24], sizeof(p->pBt->pPager->dbFileVers));
    }
  }
  return rc;
}
static int plStampExclusive(Btree *p){
  PlHeader h;
  int rc;
  rc = plFail(p, pl_exclusive_header(p->pPl->pConn, p->pPl->eSync, p->pPl->nPassWrite, p->pPl->nPassByte,
      &p->pPl->changed, &h));
  if( rc==SQLITE_OK ) rc = plStamp(p, &h);
  if( rc==SQLITE_OK ){
    /* Of the last commit: a commit that a full disk has stopped may have counted in page
    ** 1 already. */
    memcpy(p->pBt->pPager->dbFileVers, p->pPl->aVers, sizeof(p->pPl->aVers));
    p->pPl->bStamped = 1;
  }
  return rc;
}

/* A failed sync of the base may have lost what an earlier commit under NORMAL left unsynced:
** informs the engine. */
static int plBaseSynced(Btree *p, int rc){
  if( rc==SQLITE_IOERR_FSYNC ) pl_base_sync_failed(p->pPl->pConn);
  return rc;
}

/* A full disk is met before the last frame of a commit, which completes it, is written; unless that
** frame is written several times. */
static int plExclusivePhaseOne(Btree *p, const char *zSuperJrnl){
  Pager *pPager = p->pBt->pPager;
  int rc = SQLITE_OK;
  if( pPager->eState>=PAGER_WRITER_CACHEMOD ) rc = plStampExclusive(p);
  if( rc==SQLITE_OK ) rc = plBaseSynced(p, sqlite3StockBtreeCommitPhaseOne(p, zSuperJrnl));
  if( rc && p->pPl->bPart && zSuperJrnl ){
    /* Nothing of it was to be in the WAL as a commit yet. */
    if( !p->pPl->bPrepared ){
      pl_exclusive_not_committed(p->pPl->pConn);
      p->pPl->bStamped = 0;
    }
  }else if( rc==SQLITE_FULL && pPager->pWal && !pPager->pWal->padToSectorBoundary ){
    pl_exclusive_not_committed(p->pPl->pConn);
    p->pPl->bStamped = 0;
  }
  return rc;
}

/* The exclusive transaction is over. Other statements may go on reading, in a snapshot of the state
** that it leaves: no other transaction commits before that is taken. If it cannot be taken they
** fail, not the COMMIT (ENDS-2 in transaction.c). */
static void plLeaveExclusive(Btree *p, int bCommitted){
  PlBtree *pPl = p->pPl;
  Pager *pPager = p->pBt->pPager;
  Wal *pWal = pPager->pWal;
  int rc;
  if( bCommitted ) pPl->bBeside = 0;
  if( bCommitted && pWal ){
    u32 nNow = pPager->aStat[PAGER_STAT_WRITE];
    /* sqlite3_db_status() may have reset the count. */
    u32 nWritten = nNow>=pPl->nPageBefore ? nNow-pPl->nPageBefore : nNow;
    pl_exclusive_wal(pPl->pConn, pWal->hdr.mxFrame, AtomicLoad(&walCkptInfo(pWal)->nBackfill), p->pBt->pageSize, nWritten);
  }
  pl_exclusive_end(pPl->pConn, bCommitted, p->inTrans!=TRANS_NONE);
  pPl->bExcl = pPl->bStamped = 0;
  pPl->nCommit += bCommitted!=0;
  plEndWrite(pPl);
  if( p->inTrans==TRANS_NONE ){
    pPl->bMaintain |= (u8)(bCommitted!=0);
    plEndRead(p);
    return;
  }
  plBaseEnd(p);
  pl_snapshot_end(pPl->pConn);
  rc = plBeginRead(p, 0, 0, 0);
  pl_rollback(pPl->pConn);
  pPl->bUsed = 1;
  plReadOn(p, rc);
  /* Stock code reads page 1 while a transaction is open: keep one, if it can be had. */
  if( rc ) (void)plBaseBegin(p, 0, 0);
}

/* The super-journal is gone: the transaction is committed, whatever happens here. */
static int plPreparedPhaseTwo(Btree *p){
  PlBtree *pPl = p->pPl;
  Pager *pPager = p->pBt->pPager;
  u8 flags = pPager->walSyncFlags;
  int rc;
  pl_part_decided(pPl->pConn);
  pPager->walSyncFlags |= SQLITE_SYNC_NORMAL;   /* on disk before the prepared pages go */
  rc = plBaseSynced(p, sqlite3PagerCommitPhaseOne(pPager, 0, 0));
  pPager->walSyncFlags = flags;
  (void)plHardSaveAll(pPl);
  if( rc==SQLITE_OK ){
    rc = sqlite3StockBtreeCommitPhaseTwo(p, 1);
  }else{
    /* The engine, or the next process, commits it by the pages. */
    sqlite3_log(rc, "plait: a commit over several files is left to the engine for %s", sqlite3PagerFilename(pPager, 0));
    (void)sqlite3StockBtreeRollback(p, SQLITE_OK, 0);
  }
  plLeaveExclusive(p, rc==SQLITE_OK);
  return SQLITE_OK;
}

/* The commit is in the WAL. A cursor that could not be saved fails by itself (plHardSave()). */
static int plExclusivePhaseTwo(Btree *p, int bCleanup){
  PlBtree *pPl = p->pPl;
  int rc;
  if( pPl->bPrepared ) return plPreparedPhaseTwo(p);
  (void)plHardSaveAll(pPl);
  rc = sqlite3StockBtreeCommitPhaseTwo(p, bCleanup);
  if( rc ) return rc;
  plLeaveExclusive(p, pPl->bStamped);
  return SQLITE_OK;
}

/* Also cleans up after a failed escalation. */
static int plExclusiveRollback(Btree *p, int tripCode, int writeOnly){
  PlBtree *pPl = p->pPl;
  int bBroken = pPl->rcBroken!=0;
  int rc = plHardSaveAll(pPl);
  int rc2;
  pPl->bExcl = 0;
  if( rc && tripCode==SQLITE_OK ) tripCode = rc;
  if( tripCode ){
    rc2 = plTripAll(pPl, tripCode, rc ? 0 : writeOnly);
    if( rc==SQLITE_OK ) rc = rc2;
  }
  rc2 = sqlite3StockBtreeRollback(p, SQLITE_OK, 0);
  if( rc==SQLITE_OK ) rc = rc2;
  pl_rollback(pPl->pConn);
  if( bBroken ){
    plEndWrite(pPl);
    if( p->db->nVdbeRead<=1 ){
      plEndRead(p);
    }else{
      /* Other statements have no snapshot to read on in. While they are there no snapshot is taken,
      ** since they would read in it. */
      pl_snapshot_end(pPl->pConn);
      plReadOn(p, SQLITE_ABORT_ROLLBACK);
      if( p->inTrans==TRANS_NONE ) (void)plBaseBegin(p, 0, 0);
    }
    return rc;
  }
  plLeaveExclusive(p, 0);
  return rc;
}

/* ------------------------------------------------------------------ functions that are exclusive
** by nature */

static int plBtreeCreateTable(Btree *p, Pgno *piTable, int flags){
  int rc = plWritable(p, 1);
  if( rc ) return rc;
  p->pPl->bWrote = 1;
  plNoteChangedAny(p->pPl);
  return sqlite3StockBtreeCreateTable(p, piTable, flags);
}

static int plBtreeDropTable(Btree *p, int iTable, int *piMoved){
  int rc = plWritable(p, 1);
  if( rc ) return rc;
  p->pPl->bWrote = 1;
  plNoteChangedAny(p->pPl);
  return sqlite3StockBtreeDropTable(p, iTable, piMoved);
}

static int plBtreeUpdateMeta(Btree *p, int idx, u32 value){
  int rc = plWritable(p, 1);
  if( rc ) return rc;
  p->pPl->bWrote = 1;
  plNoteChangedAny(p->pPl);
  return sqlite3StockBtreeUpdateMeta(p, idx, value);
}

static int plBtreeIncrVacuum(Btree *p){
  int rc = plWritable(p, 1);
  if( rc ) return rc;
  p->pPl->bWrote = 1;
  plNoteChangedAny(p->pPl);
  return sqlite3StockBtreeIncrVacuum(p);
}

/* VACUUM and backup write the pages of another database here and then set the version of a WAL
** database: the moment to stamp, because they commit through the pager. */
static int plBtreeSetVersion(Btree *p, int iVersion){
  int rc = plWritable(p, 1);
  (void)iVersion;
  if( rc ) return rc;
  p->pPl->bWrote = 1;
  plNoteChangedAny(p->pPl);
  return plStampExclusive(p);
}

/* Functions that change a file without a cursor that writes: refused if the file cannot be
** committed together with another one (several.c). */
SQLITE_PRIVATE int sqlite3BtreeCreateTable(Btree *p, Pgno *piTable, int flags){
  int rc = plRefuseMixed(p);
  if( rc ) return rc;
  return PL_BT(p) ? plBtreeCreateTable(p, piTable, flags) : sqlite3StockBtreeCreateTable(p, piTable, flags);
}
SQLITE_PRIVATE int sqlite3BtreeUpdateMeta(Btree *p, int idx, u32 value){
  int rc = plRefuseMixed(p);
  if( rc ) return rc;
  return PL_BT(p) ? plBtreeUpdateMeta(p, idx, value) : sqlite3StockBtreeUpdateMeta(p, idx, value);
}
SQLITE_PRIVATE int sqlite3BtreeClearTable(Btree *p, int iTable, i64 *pnChange){
  int rc = plRefuseMixed(p);
  if( rc ) return rc;
  return PL_BT(p) ? plBtreeClearTable(p, iTable, pnChange) : sqlite3StockBtreeClearTable(p, iTable, pnChange);
}

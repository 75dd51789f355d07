/*
** position.c - keeping a cursor's place while things move under it.
**
** Own writes go to the overlay and leave the base alone. So a cursor that is saved because of a
** write keeps its stock cursor where it is: only an overlay entry, which the write may free, is
** copied ("soft"). When the base transaction itself ends (exclusive path, COMMIT with open readers)
** rows are copied as rowids or records and stock cursors are closed ("hard").
**
** This replaces saveCursorPosition(), saveAllCursors() and sqlite3BtreeTripAllCursors() of stock
** SQLite and keeps their contracts (TXN-1), the error for pinned cursors included: while a trigger
** runs that REPLACE has fired, the cursor that REPLACE goes on with is pinned (OP_CursorLock), and
** no other statement may write its b-tree.
*/

static int plPassInstall(PlCursor *pX);

/* From the base alone to the merge of base and overlay: the stock cursor moves aside with
** its place. */
static void plToMerge(PlCursor *pX){
  if( pX->eMode!=PLC_PURE ) return;
  pX->bKey = pX->bRec = pX->bBaseKey = 0;
  pX->eOver = PLO_UNSYNC;
  if( pX->pOut->eState==CURSOR_VALID ){
    pX->ePos = POS_ROW;
    pX->eSrc = SRC_BASE;
    pX->eBase = PLB_AT;
    if( pX->pOut->pKeyInfo==0 ) pX->iKey = sqlite3StockBtreeIntegerKey(pX->pIn);
  }else{
    pX->ePos = POS_NONE;
    pX->eBase = PLB_UNSYNC;
  }
  plStockAside(pX);
}

/* Copies a record to aRec, the record of K. */
static int plKeepRecord(PlCursor *pX, const u8 *a, u32 n){
  int rc = plReserve(&pX->aRec, &pX->nRecAlloc, (u64)n + 18);
  if( rc ) return rc;
  if( n ) memmove(pX->aRec, a, n);
  memset(&pX->aRec[n], 0, 18);
  pX->nRec = n;
  pX->bRec = 1;
  return SQLITE_OK;
}

/* Makes K independent of overlay memory (CURSOR-4), and of the stock cursor's place if bHard. */
static int plKeepKey(PlCursor *pX, int bHard){
  const u8 *a;
  u32 n;
  int rc;
  if( pX->pOut->pKeyInfo==0 || pX->bRec ) return SQLITE_OK;
  if( pX->ePos!=POS_ROW && pX->ePos!=POS_GONE ) return SQLITE_OK;
  if( pX->eSrc==SRC_OVER ){
    rc = plKeepRecord(pX, pX->cur.rec, pX->cur.nRec);
  }else if( bHard && pX->eBase==PLB_AT && pX->pIn ){
    rc = plInnerPayload(pX, &a, &n);
    if( rc==SQLITE_OK ) rc = plKeepRecord(pX, a, n);
  }else{
    return SQLITE_OK;
  }
  if( rc==SQLITE_OK ) rc = plEncodeRecord(pX, pX->aRec, pX->nRec, &pX->key);
  if( rc==SQLITE_OK ) pX->bKey = 1;
  return rc;
}

/* Saves the position of a cursor on a row before an own write moves things:
** saveCursorPosition(). */
static int plSave(PlCursor *pX){
  BtCursor *pOut = pX->pOut;
  int rc;
  if( pOut->eState!=CURSOR_VALID && pOut->eState!=CURSOR_SKIPNEXT ) return SQLITE_OK;
  if( pOut->curFlags & BTCF_Pinned ) return SQLITE_CONSTRAINT_PINNED;
  plToMerge(pX);
  rc = plKeepKey(pX, 0);
  if( rc ) return rc;
  if( pOut->eState==CURSOR_VALID ) pOut->eState = CURSOR_REQUIRESEEK;
  pX->eOver = PLO_UNSYNC;
  return SQLITE_OK;
}

/* Saves all cursors on a root (0: all) but pExcept: saveAllCursors(). Not for PLC_PASS. */
static int plSaveAll(PlBtree *pPl, Pgno iRoot, PlCursor *pExcept){
  PlCursor *pX;
  for(pX=pPl->pCsr; pX; pX=pX->pNext){
    if( pX!=pExcept && (iRoot==0 || pX->pOut->pgnoRoot==iRoot) ){
      int rc = plSave(pX);
      if( rc ) return rc;
      pX->eOver = PLO_UNSYNC;
    }
  }
  return SQLITE_OK;
}

/* Converts the place of a PLC_PASS cursor into that of a PLC_MERGE cursor, and closes the
** stock cursor. */
static int plHardPass(PlCursor *pX){
  BtCursor *pIn = pX->pIn;
  u8 eState = CURSOR_INVALID;
  int rc = SQLITE_OK;
  pX->ePos = POS_NONE;
  pX->eSrc = SRC_BASE;
  pX->bKey = pX->bRec = pX->bBaseKey = 0;
  if( pIn->eState==CURSOR_VALID || pIn->eState==CURSOR_SKIPNEXT ){
    if( pIn->pKeyInfo==0 ){
      sqlite3StockBtreePayloadSize(pIn);
      pX->iKey = pIn->info.nKey;
    }else{
      const u8 *a;
      u32 n;
      rc = plInnerPayload(pX, &a, &n);
      if( rc==SQLITE_OK ) rc = plKeepRecord(pX, a, n);
    }
    eState = CURSOR_REQUIRESEEK;
    pX->ePos = POS_ROW;
    if( pIn->eState==CURSOR_SKIPNEXT ){
      eState = CURSOR_SKIPNEXT;
      pX->ePos = pIn->skipNext>0 ? POS_BEFORE : POS_AFTER;
    }
  }else if( pIn->eState==CURSOR_REQUIRESEEK ){
    pX->iKey = pIn->nKey;
    if( pIn->pKeyInfo ) rc = plKeepRecord(pX, pIn->pKey, (u32)pIn->nKey);
    eState = pIn->skipNext ? CURSOR_SKIPNEXT : CURSOR_REQUIRESEEK;
    pX->ePos = pIn->skipNext>0 ? POS_BEFORE : pIn->skipNext<0 ? POS_AFTER : POS_ROW;
  }else if( pIn->curFlags & BTCF_Incrblob ){
    /* The row that it was on, if a ROLLBACK trips it (blob.c). */
    pX->iKey = pIn->info.nKey;
  }
  if( rc==SQLITE_OK && pX->bRec ){
    rc = plEncodeRecord(pX, pX->aRec, pX->nRec, &pX->key);
    pX->bKey = rc==SQLITE_OK;
  }
  plStockClose(pX);
  pX->pOut->eState = eState;
  return rc;
}

/* Before the base transaction ends: every row position becomes a key, and every stock
** cursor closes. */
static int plHardSave(PlCursor *pX){
  int rc = SQLITE_OK;
  pX->eRun = RUN_NONE;
  if( pX->eMode==PLC_PASS ){
    rc = plHardPass(pX);
  }else if( pX->pOut->eState!=CURSOR_FAULT ){
    u8 eState = pX->pOut->eState;
    plToMerge(pX);
    if( eState==CURSOR_INVALID && pX->pOut->pKeyInfo && !pX->bRec ){
      /* A failed seek leaves a place from which no step starts. It may have found an own write that
      ** is gone since. */
      pX->ePos = POS_NONE;
    }else{
      rc = plKeepKey(pX, 1);
      if( eState==CURSOR_VALID ) pX->pOut->eState = CURSOR_REQUIRESEEK;
    }
  }
  plStockClose(pX);
  plDropIter(pX);
  pX->eBase = PLB_UNSYNC;
  if( rc && pX->pOut->eState!=CURSOR_FAULT ){
    pX->pOut->eState = CURSOR_FAULT;
    pX->pOut->skipNext = rc;
  }
  return rc;
}
static int plHardSaveAll(PlBtree *pPl){
  PlCursor *pX;
  int rc = SQLITE_OK;
  for(pX=pPl->pCsr; pX; pX=pX->pNext){
    int rc2 = plHardSave(pX);
    if( rc==SQLITE_OK ) rc = rc2;
  }
  return rc;
}

/* Forgets the position: sqlite3BtreeClearCursor(). */
static void plForget(PlCursor *pX){
  plRdFlush(pX);
  pX->ePos = POS_NONE;
  pX->eRun = RUN_NONE;
  pX->bKey = pX->bRec = 0;
  pX->eOver = PLO_UNSYNC;
  if( pX->pIn==pX->pOut ) sqlite3StockBtreeClearCursor(pX->pOut);
  pX->pOut->eState = CURSOR_INVALID;
}

/* Makes a cursor fail with errCode from now on. It leaves PLC_PASS: the code of the other modes
** checks for CURSOR_FAULT. */
static void plTrip(PlCursor *pX, int errCode){
  BtCursor *pOut = pX->pOut;
  if( (pOut->curFlags & BTCF_Incrblob) && pOut->eState!=CURSOR_FAULT ){
    if( pX->eMode!=PLC_MERGE ) pX->iKey = pOut->info.nKey;
    pX->bTripRow = pX->pPl->bTripped = 1;
  }
  plForget(pX);
  plStockClose(pX);
  plDropIter(pX);
  plFront(pX);
  pX->pOut->eState = CURSOR_FAULT;
  pX->pOut->skipNext = errCode;
}

/* sqlite3BtreeTripAllCursors() for facades. */
static int plTripAll(PlBtree *pPl, int errCode, int writeOnly){
  PlCursor *pX;
  int rc = SQLITE_OK;
  for(pX=pPl->pCsr; pX; pX=pX->pNext){
    if( writeOnly && !pX->bWrite ){
      rc = pX->eMode==PLC_PASS ? plHardSave(pX) : plSave(pX);
      if( rc ){
        (void)plTripAll(pPl, rc, 0);
        break;
      }
      if( pPl->bExcl && pX->eMode!=PLC_PASS ) rc = plPassInstall(pX);
      if( rc ) break;
    }else{
      plTrip(pX, errCode);
    }
  }
  return rc;
}

/* ROLLBACK TO in the middle of a statement. */
static int plBtreeTripAllCursors(Btree *p, int errCode, int writeOnly){
  if( errCode==SQLITE_ABORT_ROLLBACK ) plEndWriters(p->db);
  return plTripAll(p->pPl, errCode, writeOnly);
}

static void plBtreeClearCursor(BtCursor *pCur){
  plForget(PL_X(pCur));
}

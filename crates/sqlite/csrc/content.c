/*
** content.c - what a cursor's row holds.
**
** Rows of the base are read through the stock cursor. Rows of the overlay are one piece of memory,
** which stays where it is until this transaction writes the same key, rolls a savepoint back, or
** ends.
**
** Callers have a VALID facade, as the VDBE makes sure. All but Count come here for PL_ROW only, or
** from our own code.
*/

static SQLITE_INLINE int plIsOver(PlCursor *pX){
  return pX->eMode==PLC_MERGE && pX->eSrc==SRC_OVER;
}

/* Returns the stock cursor, for a row of the base. */
static SQLITE_INLINE BtCursor *plOnBase(PlCursor *pX){
  assert( pX->pIn && (pX->eMode!=PLC_MERGE || pX->eBase==PLB_AT) );
  return pX->pIn;
}

static i64 plBtreeIntegerKey(BtCursor *pCur){
  PlCursor *pX = PL_X(pCur);
  return pX->eMode==PLC_MERGE ? pX->iKey : sqlite3StockBtreeIntegerKey(pCur);
}

static u32 plBtreePayloadSize(BtCursor *pCur){
  PlCursor *pX = PL_X(pCur);
  return plIsOver(pX) ? pX->cur.nRec : sqlite3StockBtreePayloadSize(plOnBase(pX));
}

static const void *plBtreePayloadFetch(BtCursor *pCur, u32 *pAmt){
  PlCursor *pX = PL_X(pCur);
  if( plIsOver(pX) ){
    *pAmt = pX->cur.nRec;
    return pX->cur.rec;
  }
  return sqlite3StockBtreePayloadFetch(plOnBase(pX), pAmt);
}

static int plBtreePayload(BtCursor *pCur, u32 offset, u32 amt, void *pBuf){
  PlCursor *pX = PL_X(pCur);
  if( plIsOver(pX) ){
    if( (u64)offset+amt>pX->cur.nRec ) return SQLITE_CORRUPT_PGNO(pCur->pgnoRoot);
    memcpy(pBuf, pX->cur.rec + offset, amt);
    return SQLITE_OK;
  }
  return sqlite3StockBtreePayload(plOnBase(pX), offset, amt, pBuf);
}

/* Returns a number that differs between rows of one statement: the VDBE keys its cache of
** large values by it. Overlay rows have no place in the file; negative numbers cannot be
** mistaken for one. */
static i64 plBtreeOffset(BtCursor *pCur){
  PlCursor *pX = PL_X(pCur);
  if( plIsOver(pX) ) return -(i64)(uptr)pX->cur.rec;
  return sqlite3StockBtreeOffset(plOnBase(pX));
}

/* Rows of the overlay may be larger than the file. */
static sqlite3_int64 plBtreeMaxRecordSize(BtCursor *pCur){
  return plIsOver(PL_X(pCur)) ? 0x7fffffff : sqlite3StockBtreeMaxRecordSize(pCur);
}

static i64 plBtreeRowCountEst(BtCursor *pCur){
  PlCursor *pX = PL_X(pCur);
  int res = 0;
  i64 n;
  if( pX->eMode!=PLC_MERGE ) return sqlite3StockBtreeRowCountEst(pCur);
  if( pCur->eState!=CURSOR_VALID ) return 0;
  if( plKeepKey(pX, 1) || plInnerOpen(pX) || sqlite3StockBtreeFirst(pX->pIn, &res) ) return 1;
  n = res ? 1 : sqlite3StockBtreeRowCountEst(pX->pIn);
  pX->bBaseKey = 0;
  pX->eBase = PLB_UNSYNC;
  if( pX->eSrc==SRC_BASE ){
    /* The row is looked up again when it is next used. */
    pCur->eState = CURSOR_REQUIRESEEK;
  }
  return n>0 ? n : 1;
}

/* Steps of the stock cursor towards the overlay's next entry, after which a search costs less. */
#define PL_COUNT_STEPS 16

/* Moves to the first row of the base that is not before look. *pbAt: it has the key of look. */
static int plCountReach(PlCursor *pX, int *pbAt){
  int bRow = pX->pIn->eState==CURSOR_VALID;
  int nStep = 0, c = 0;
  *pbAt = 0;
  pX->bLook = 0;
  while( bRow ){
    int rc = plInnerVsLook(pX, &c);
    if( rc==SQLITE_OK && c<0 && ++nStep==PL_COUNT_STEPS ){
      pX->bRec = pX->bKey = 0;
      pX->cur = pX->look;
      if( pX->pOut->pKeyInfo==0 ) pX->iKey = plDecodeRowid(pX->look.key);
      rc = plInnerSeek(pX, &c);
    }
    if( rc || c>=0 ){
      *pbAt = c==0;
      return rc;
    }
    rc = plInnerStep(pX, +1, &bRow);
    if( rc ) return rc;
  }
  return SQLITE_OK;
}

/* count(*): the base's count, corrected for every overlay entry that hides a row of the base or
** adds one. */
static int plBtreeCount(sqlite3 *db, BtCursor *pCur, i64 *pnEntry){
  PlCursor *pX = PL_X(pCur);
  i64 nEntry = 0;
  u32 nStep = 0;
  int res, rc;
  if( pX->eMode==PLC_PASS ) return sqlite3StockBtreeCount(db, pCur, pnEntry);
  if( pCur->eState==CURSOR_FAULT ) return pCur->skipNext;
  plRdFlush(pX);
  plRdWhole(pX);
  rc = plOverlay(pX);
  if( rc==SQLITE_DONE ){
    rc = plGoPure(pX);
    if( rc==SQLITE_OK ) rc = sqlite3StockBtreeCount(db, pCur, pnEntry);
    pCur->eState = CURSOR_INVALID;
    return rc;
  }
  plToMerge(pX);
  plForget(pX);
  if( rc==SQLITE_OK ) rc = plInnerOpen(pX);
  if( rc==SQLITE_OK ) rc = sqlite3StockBtreeCount(db, pX->pIn, &nEntry);
  pX->bBaseKey = 0;
  if( rc==SQLITE_OK ) rc = sqlite3StockBtreeFirst(pX->pIn, &res);
  if( rc==SQLITE_OK ) rc = plIterOpen(pX);
  if( rc ) return rc;
  rc = pl_iter_seek(pX->pIter, PL_SEEK_GE, 0, 0, &pX->look);
  while( rc==SQLITE_OK ){
    int bAt;
    rc = plCountReach(pX, &bAt);
    if( rc ) return rc;
    if( bAt && pX->look.tombstone ) nEntry--;
    if( !bAt && !pX->look.tombstone ) nEntry++;
    pX->pPl->nWalk += PL_STEPS_OVER;
    if( (++nStep & 0xff)==0 && AtomicLoad(&db->u1.isInterrupted) ) return SQLITE_INTERRUPT;
    rc = pl_iter_next(pX->pIter, &pX->look);
  }
  if( rc!=SQLITE_DONE ) return plFail(pCur->pBtree, rc);
  *pnEntry = nEntry;
  return SQLITE_OK;
}

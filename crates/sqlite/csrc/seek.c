/*
** seek.c - sqlite3BtreeTableMoveto and sqlite3BtreeIndexMoveto over base and overlay (TXN-1).
**
** A seek in a root without overlay searches the base alone: same landing as stock SQLite. Otherwise
** it searches the overlay first, and does not touch the base if the overlay has the key. If neither
** has it, the cursor is left in a gap (facade INVALID, ePos says where) and *pRes is -1, "on a
** smaller entry or on nothing". All that stock code then does is right from a gap: Next finds the
** first row after it, Previous and Eof go to the last row before it. The base half of the search is
** done at once, because the search key is on the caller's stack.
**
** An index seek looks at the first nKeyField fields, as bytes. default_rc shifts the place before
** (+1) or after (-1) everything with that prefix. With default_rc 0, or when the cursor is hinted
** to need equality (eqSeen), the seek looks for the first row with the prefix at once; a deleted
** row after all of them ends that search, in a gap. Fields past nKeyField are compared on the one
** entry that can match.
*/

/* plOverlay(), without a call of the engine for a cursor that was pure and over which no overlay
** can have come. */
static SQLITE_INLINE int plOverlayOf(PlCursor *pX){
  return pX->bHeld && pX->eMode==PLC_PURE ? SQLITE_DONE : plOverlay(pX);
}

static int plBtreeTableMoveto(BtCursor *pCur, i64 intKey, int bias, int *pRes){
  PlCursor *pX = PL_X(pCur);
  u8 aKey[8];
  int res = 0, rc;
  PlEntry e;
  if( pX->eMode==PLC_PASS ){
    pX->bSeeked = 1;
    return sqlite3StockBtreeTableMoveto(pCur, intKey, bias, pRes);
  }
  if( pCur->eState==CURSOR_FAULT ) return pCur->skipNext;
  plRdFlush(pX);
  pX->bQuiet = 0;
  pX->eRun = RUN_NONE;
  rc = plOverlayOf(pX);
  if( rc==SQLITE_DONE ){
    rc = plGoPure(pX);
    if( rc==SQLITE_OK ) rc = sqlite3StockBtreeTableMoveto(pCur, intKey, bias, pRes);
    if( rc ) pCur->eState = CURSOR_INVALID;
    else plRdTableSeek(pX, intKey, *pRes);
    return rc;
  }
  plToMerge(pX);
  pX->bKey = pX->bRec = pX->bBaseKey = 0;
  pX->eOver = PLO_UNSYNC;
  plEncodeRowid(aKey, intKey);
  if( rc==SQLITE_OK ) rc = plOverGet(pX, aKey, 8, &e);
  if( rc==SQLITE_OK ){
    pX->iKey = intKey;
    pX->cur = e;
    pX->eSrc = SRC_OVER;
    pX->eBase = PLB_UNSYNC;
    res = e.tombstone ? -1 : 0;
  }else{
    pX->pPl->nWalk += PL_STEPS_SEARCH;
    if( rc==SQLITE_DONE ) rc = plInnerOpen(pX);
    if( rc==SQLITE_OK ) rc = sqlite3StockBtreeTableMoveto(pX->pIn, intKey, bias, &res);
    if( rc ){
      pX->ePos = POS_NONE;
      pCur->eState = CURSOR_INVALID;
      return rc;
    }
    pX->iKey = intKey;
    pX->eSrc = SRC_BASE;
    if( pX->pIn->eState!=CURSOR_VALID ) pX->eBase = PLB_NONE;
    else pX->eBase = res==0 ? PLB_AT : res<0 ? PLB_BWD : PLB_FWD;
    if( res>0 ) res = -1;
  }
  pX->ePos = res==0 ? POS_ROW : POS_BEFORE;
  pCur->eState = res==0 ? CURSOR_VALID : CURSOR_INVALID;
  *pRes = res;
  plRdTableSeek(pX, intKey, res);
  return SQLITE_OK;
}

/* Seeks the base for a search key and records where the stock cursor is. */
static int plBaseIndexSeek(PlCursor *pX, UnpackedRecord *pKey, int *pRes){
  int rc = plInnerOpen(pX);
  pX->bBaseKey = 0;
  if( rc==SQLITE_OK ) rc = sqlite3StockBtreeIndexMoveto(pX->pIn, pKey, pRes);
  if( rc ) return rc;
  if( pX->pIn->eState!=CURSOR_VALID ) pX->eBase = PLB_NONE;
  else pX->eBase = *pRes==0 ? PLB_AT : *pRes<0 ? PLB_BWD : PLB_FWD;
  return SQLITE_OK;
}

/* Compares a record with the whole search key, default_rc included. */
static int plCompareRecord(PlCursor *pX, const u8 *aRec, u32 nRec, UnpackedRecord *pKey, int *pRes){
  (void)pX;    /* SQLITE_CORRUPT_PGNO() drops its argument in most builds */
  pKey->errCode = 0;
  *pRes = sqlite3VdbeRecordCompare((int)nRec, aRec, pKey);
  return pKey->errCode ? SQLITE_CORRUPT_PGNO(pX->pOut->pgnoRoot) : SQLITE_OK;
}

/* All key fields are given: at most one entry matches, and key holds its encoding. */
static int plSeekFull(PlCursor *pX, UnpackedRecord *pKey, int *pRes){
  BtCursor *pCur = pX->pOut;
  u16 nField = pKey->nField;
  i8 eDefault = pKey->default_rc;
  PlEntry e;
  int res = -1;
  int rc = plOverGet(pX, pX->key.p, pX->key.n, &e);
  int bEntry = rc==SQLITE_OK;
  if( !bEntry && rc!=SQLITE_DONE ) return rc;
  if( !bEntry ) pX->pPl->nWalk += PL_STEPS_SEARCH;
  pKey->eqSeen = 0;
  if( bEntry && !e.tombstone ){
    rc = plCompareRecord(pX, e.rec, e.nRec, pKey, pRes);
    pX->cur = e;
    pX->eSrc = SRC_OVER;
    pX->eBase = PLB_UNSYNC;
    pX->ePos = POS_ROW;
    pCur->eState = CURSOR_VALID;
    return rc;
  }
  pKey->nField = pCur->pKeyInfo->nKeyField;
  pKey->default_rc = 0;
  rc = plBaseIndexSeek(pX, pKey, &res);
  pKey->nField = nField;
  pKey->default_rc = eDefault;
  pKey->eqSeen = 0;
  if( rc ) return rc;
  pX->eSrc = SRC_BASE;
  if( pX->eBase==PLB_AT && !bEntry ){
    const u8 *a;
    u32 n;
    rc = plInnerPayload(pX, &a, &n);
    if( rc==SQLITE_OK ) rc = plCompareRecord(pX, a, n, pKey, pRes);
    pX->ePos = POS_ROW;
    pCur->eState = CURSOR_VALID;
    return rc;
  }
  pX->ePos = POS_GONE;
  pCur->eState = CURSOR_INVALID;
  *pRes = -1;
  return SQLITE_OK;
}

/* Only a prefix of the key fields is given, in key. */
static int plSeekPrefix(PlCursor *pX, UnpackedRecord *pKey, int *pRes){
  BtCursor *pCur = pX->pOut;
  i8 eDefault = pKey->default_rc;
  int dir = eDefault<0 ? -1 : +1;
  int res, rc, bMatch = 0;
  pKey->default_rc = (i8)dir;
  rc = plBaseIndexSeek(pX, pKey, &res);
  pKey->default_rc = eDefault;
  if( rc ) return rc;
  pX->eSrc = SRC_BASE;
  pX->ePos = dir>0 ? POS_BEFORE : POS_AFTER;
  pCur->eState = CURSOR_INVALID;
  *pRes = -1;
  if( eDefault!=0 && (pCur->hints & BTREE_SEEK_EQ)==0 ) return SQLITE_OK;
  rc = plMergeStep(pX, dir, &pX->key);
  if( rc==SQLITE_OK ){
    const u8 *a;
    u32 n;
    rc = plKey(pX, &a, &n);
    if( rc ) return rc;
    /* plMergeStep() reads key but does not write it: the prefix is still there. */
    bMatch = n>=pX->key.n && memcmp(a, pX->key.p, pX->key.n)==0;
    *pRes = bMatch && eDefault==0 ? 0 : dir;
  }else if( rc!=SQLITE_DONE && rc!=SQLITE_NOTFOUND ){
    return rc;
  }
  pKey->eqSeen = (u8)bMatch;
  return SQLITE_OK;
}

static int plBtreeIndexMoveto(BtCursor *pCur, UnpackedRecord *pKey, int *pRes){
  PlCursor *pX = PL_X(pCur);
  int n, rc;
  if( pX->eMode==PLC_PASS ){
    pX->bSeeked = 1;
    return sqlite3StockBtreeIndexMoveto(pCur, pKey, pRes);
  }
  if( pCur->eState==CURSOR_FAULT ) return pCur->skipNext;
  plRdFlush(pX);
  pX->eRun = RUN_NONE;
  rc = plOverlayOf(pX);
  if( rc==SQLITE_DONE ){
    rc = plGoPure(pX);
    if( rc==SQLITE_OK ) rc = sqlite3StockBtreeIndexMoveto(pCur, pKey, pRes);
    if( rc ){
      pCur->eState = CURSOR_INVALID;
      return rc;
    }
    return plRdIndexSeek(pX, pKey, *pRes, *pRes==0);
  }
  plToMerge(pX);
  pX->bRec = pX->bBaseKey = 0;
  pX->eOver = PLO_UNSYNC;
  n = MIN(pKey->nField, pCur->pKeyInfo->nKeyField);
  if( rc==SQLITE_OK ) rc = plEncodeUnpacked(pX, pKey, n, &pX->key);
  if( rc==SQLITE_OK ){
    pX->bKey = 1;
    rc = n==pCur->pKeyInfo->nKeyField ? plSeekFull(pX, pKey, pRes) : plSeekPrefix(pX, pKey, pRes);
  }
  if( rc ){
    pX->ePos = POS_NONE;
    pCur->eState = CURSOR_INVALID;
    return rc;
  }
  return plRdIndexSeek(pX, pKey, *pRes, *pRes==0 && pCur->eState==CURSOR_VALID);
}

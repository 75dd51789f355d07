/*
** inner.c - the stock cursor on the base inside a facade cursor.
**
** It is opened when the base is first needed. On the concurrent path it only reads, and since the base does
** not change under a read transaction it keeps its place whatever this transaction writes. On the exclusive path it is
** the real cursor.
**
** Invariant: an open inner cursor is in pBt->pCursor, and closed before its base transaction ends.
*/

static int plInnerOpenSlow(PlCursor *pX){
  BtCursor *pOut = pX->pOut;
  int wrFlag = pX->eMode==PLC_PASS && (pOut->curFlags & BTCF_WriteFlag) ? BTREE_WRCSR : 0;
  int rc;
  sqlite3BtreeCursorZero(&pX->inner);
  rc = sqlite3StockBtreeCursor(pOut->pBtree, pOut->pgnoRoot, wrFlag, pOut->pKeyInfo, &pX->inner);
  if( rc==SQLITE_OK ){
    pX->bInner = 1;
    pX->inner.hints = pOut->hints;
    pX->inner.curFlags |= pOut->curFlags & BTCF_Incrblob;
  }
  return rc;
}
static SQLITE_INLINE int plInnerOpen(PlCursor *pX){
  return pX->bInner ? SQLITE_OK : plInnerOpenSlow(pX);
}

static void plInnerClose(PlCursor *pX){
  if( pX->bInner ){
    sqlite3StockBtreeCloseCursor(&pX->inner);
    pX->bInner = 0;
    pX->bBaseKey = 0;
  }
}

/* The whole payload of inner's row: on its page, or copied to aTmp with room for overreads. */
static int plInnerPayload(PlCursor *pX, const u8 **pa, u32 *pn){
  u32 n = sqlite3StockBtreePayloadSize(&pX->inner);
  u32 nLocal = 0;
  const u8 *a = sqlite3StockBtreePayloadFetch(&pX->inner, &nLocal);
  int rc;
  *pn = n;
  if( nLocal>=n ){
    *pa = a;
    return SQLITE_OK;
  }
  if( n>sqlite3BtreeMaxRecordSize(&pX->inner) ) return SQLITE_CORRUPT_PGNO(pX->pOut->pgnoRoot);
  rc = plReserve(&pX->aTmp, &pX->nTmpAlloc, (u64)n + 18);
  if( rc==SQLITE_OK ) rc = sqlite3StockBtreePayload(&pX->inner, 0, n, pX->aTmp);
  if( rc==SQLITE_OK ) memset(&pX->aTmp[n], 0, 18);
  *pa = pX->aTmp;
  return rc;
}

/* Encodes the key of inner's row into baseKey, from the part of the record on its page if that is enough. */
static int plInnerKey(PlCursor *pX){
  const u8 *a;
  u32 n, nLocal = 0;
  int rc;
  if( pX->bBaseKey ) return SQLITE_OK;
  n = sqlite3StockBtreePayloadSize(&pX->inner);
  a = sqlite3StockBtreePayloadFetch(&pX->inner, &nLocal);
  if( nLocal<n && nLocal>0 && plEncodeRecord(pX, a, nLocal, &pX->baseKey)==SQLITE_OK ){
    pX->bBaseKey = 1;
    return SQLITE_OK;
  }
  rc = plInnerPayload(pX, &a, &n);
  if( rc==SQLITE_OK ) rc = plEncodeRecord(pX, a, n, &pX->baseKey);
  if( rc==SQLITE_OK ) pX->bBaseKey = 1;
  return rc;
}

/* K of an index: where its bytes are. */
static int plKey(PlCursor *pX, const u8 **pa, u32 *pn){
  int rc = SQLITE_OK;
  if( pX->bKey ){
    *pa = pX->key.p;
    *pn = pX->key.n;
  }else if( pX->eSrc==SRC_OVER ){
    *pa = pX->cur.key;
    *pn = pX->cur.nKey;
  }else if( pX->eBase==PLB_AT && pX->bInner ){
    rc = plInnerKey(pX);
    *pa = pX->baseKey.p;
    *pn = pX->baseKey.n;
  }else{
    rc = plEncodeRecord(pX, pX->aRec, pX->nRec, &pX->key);
    pX->bKey = rc==SQLITE_OK;
    *pa = pX->key.p;
    *pn = pX->key.n;
  }
  return rc;
}

/* Compares inner's row with K: <0 the row lies before. */
static int plInnerVsKey(PlCursor *pX, int *pc){
  const u8 *a;
  u32 n;
  int rc;
  if( pX->pOut->pKeyInfo==0 ){
    i64 i = sqlite3StockBtreeIntegerKey(&pX->inner);
    *pc = i<pX->iKey ? -1 : i>pX->iKey;
    return SQLITE_OK;
  }
  rc = plKey(pX, &a, &n);
  if( rc==SQLITE_OK ) rc = plInnerKey(pX);
  if( rc==SQLITE_OK ) *pc = plCompareBytes(pX->baseKey.p, pX->baseKey.n, a, n);
  return rc;
}

/* Compares inner's row with the overlay entry that the iterator stands on. */
static int plInnerVsLook(PlCursor *pX, int *pc){
  int rc;
  if( pX->pOut->pKeyInfo==0 ){
    i64 i = sqlite3StockBtreeIntegerKey(&pX->inner);
    i64 j = plDecodeRowid(pX->look.key);
    *pc = i<j ? -1 : i>j;
    return SQLITE_OK;
  }
  rc = plInnerKey(pX);
  if( rc==SQLITE_OK ) *pc = plCompareBytes(pX->baseKey.p, pX->baseKey.n, pX->look.key, pX->look.nKey);
  return rc;
}

/* Steps inner and tells whether it still stands on a row. */
static int plInnerStep(PlCursor *pX, int dir, int *pbRow){
  int rc;
  pX->bBaseKey = 0;
  rc = dir>0 ? sqlite3StockBtreeNext(&pX->inner, 0) : sqlite3StockBtreePrevious(&pX->inner, 0);
  *pbRow = rc==SQLITE_OK;
  return rc==SQLITE_DONE ? SQLITE_OK : rc;
}

/* Moves inner to K (a table's rowid, or an index record in aRec). *pRes as sqlite3BtreeTableMoveto; inner is not
** valid when the base is empty. */
static int plInnerSeek(PlCursor *pX, int *pRes){
  int rc = plInnerOpen(pX);
  *pRes = -1;
  if( rc ) return rc;
  pX->bBaseKey = 0;
  if( pX->pOut->pKeyInfo==0 ){
    rc = sqlite3StockBtreeTableMoveto(&pX->inner, pX->iKey, 0, pRes);
  }else{
    KeyInfo *pInfo = pX->pOut->pKeyInfo;
    const u8 *aRec = pX->aRec;
    u32 nRec = pX->nRec;
    UnpackedRecord *pKey;
    if( !pX->bRec ){
      aRec = pX->cur.rec;
      nRec = pX->cur.nRec;
    }
    pKey = plUnpack(pInfo, aRec, nRec);
    if( pKey==0 ) return SQLITE_NOMEM_BKPT;
    rc = sqlite3StockBtreeIndexMoveto(&pX->inner, pKey, pRes);
    sqlite3DbFree(pInfo->db, pKey);
  }
  return rc;
}

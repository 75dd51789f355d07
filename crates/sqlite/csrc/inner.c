/*
** inner.c - the stock cursor on the base that belongs to a facade.
**
** The stock cursor is opened when the base is first needed. While the overlay has nothing for
** its root, the facade is that cursor. When the overlay has something, or gets it, the cursor
** moves to PlCursor.inner with its place, and the facade becomes the front of the merge. On
** the concurrent path the stock cursor only reads. Since the base does not change under a read
** transaction, it keeps its place whatever this transaction writes.
**
** Invariant: an open stock cursor is in pBt->pCursor, and is closed before its base
** transaction ends.
*/

/* Belong to the facade, wherever the stock cursor is. */
#define PL_KEEP_FLAGS (BTCF_Incrblob|BTCF_Pinned)

static void plDropIter(PlCursor *pX){
  if( pX->pIter ){
    pl_iter_free(pX->pIter);
    pX->pIter = 0;
  }
  pX->eOver = PLO_UNSYNC;
}

/* The facade closes: keeps the iterator for the next facade of this PlCursor. */
static void plSpareIter(PlCursor *pX){
  if( pX->pSpare ){
    plDropIter(pX);
    return;
  }
  pX->pSpare = pX->pIter;
  pX->pIter = 0;
  pX->eOver = PLO_UNSYNC;
}

/* Makes the facade a front without stock cursor. eState and skipNext stay. */
static void plFront(PlCursor *pX){
  BtCursor *pOut = pX->pOut;
  pOut->pBtree = pX->pPl->pBtree;
  pOut->curFlags &= PL_KEEP_FLAGS;
  pOut->hints |= PLH_Front;
  pOut->aOverflow = 0;
  pOut->pKey = 0;
  pOut->pNext = 0;
  pOut->iPage = -1;
  pX->eMode = PLC_MERGE;
}

/* Opens the stock cursor at pAt: the facade, or &inner. */
static int plStockOpen(PlCursor *pX, BtCursor *pAt){
  BtCursor *pOut = pX->pOut;
  Btree *p = pX->pPl->pBtree;
  Pgno iRoot = pOut->pgnoRoot;
  KeyInfo *pKeyInfo = pOut->pKeyInfo;
  u8 keep = pOut->curFlags & PL_KEEP_FLAGS;
  u8 hints = pOut->hints;
  int wrFlag = pX->pPl->bExcl && pX->bWrite ? BTREE_WRCSR : 0;
  int rc;
  if( pAt!=pOut ) sqlite3BtreeCursorZero(pAt);
  rc = sqlite3StockBtreeCursor(p, iRoot, wrFlag, pKeyInfo, pAt);
  if( pAt==pOut ){
    pOut->curFlags |= keep;
    pOut->hints = hints & ~PLH_Front;
    if( rc ){
      /* Out of memory: stock code has cleared the struct. */
      pOut->pgnoRoot = iRoot;
      pOut->pKeyInfo = pKeyInfo;
      pOut->pBt = p->pBt;
      pOut->eState = CURSOR_INVALID;
      plFront(pX);
    }
  }else{
    pAt->hints = hints & ~(PLH_Facade|PLH_Front);
  }
  if( rc==SQLITE_OK ) pX->pIn = pAt;
  return rc;
}
static SQLITE_INLINE int plInnerOpen(PlCursor *pX){
  return pX->pIn ? SQLITE_OK : plStockOpen(pX, &pX->inner);
}

/* Closes the stock cursor. The facade is then a front without one. */
static void plStockClose(PlCursor *pX){
  BtCursor *pIn = pX->pIn;
  pX->pIn = 0;
  pX->bBaseKey = 0;
  if( pIn==0 ) return;
  sqlite3StockBtreeCloseCursor(pIn);
  if( pIn==pX->pOut ) plFront(pX);
}

/* Moves the stock cursor from the facade to inner, with its place. */
static void plStockAside(PlCursor *pX){
  BtCursor **pp;
  assert( pX->pIn==pX->pOut );
  memcpy(&pX->inner, pX->pOut, sizeof(BtCursor));
  pX->inner.curFlags &= ~PL_KEEP_FLAGS;
  pX->inner.hints &= ~(PLH_Facade|PLH_Front);
  for(pp=&pX->pOut->pBt->pCursor; *pp!=pX->pOut; pp=&(*pp)->pNext){}
  *pp = &pX->inner;
  pX->pIn = &pX->inner;
  plFront(pX);
}

/* The next step of a PLC_PURE cursor is ours if its reads are recorded and no range follows
** it yet. */
static SQLITE_INLINE void plMarkPure(PlCursor *pX){
  if( pX->pPl->bTrack ){
    pX->pOut->hints |= PLH_Next|PLH_Prev;
  }else{
    pX->pOut->hints &= ~(PLH_Next|PLH_Prev);
  }
}

/* Before a seek on the base alone: the facade becomes the stock cursor. */
static int plGoPure(PlCursor *pX){
  if( pX->eMode!=PLC_PURE ){
    int rc;
    plStockClose(pX);
    plDropIter(pX);
    rc = plStockOpen(pX, pX->pOut);
    if( rc ) return rc;
    pX->eMode = PLC_PURE;
  }
  plMarkPure(pX);
  return SQLITE_OK;
}

/* Returns the whole payload of the stock cursor's row: on its page, or copied to aTmp with room
** for overreads. */
static int plInnerPayload(PlCursor *pX, const u8 **pa, u32 *pn){
  u32 n = sqlite3StockBtreePayloadSize(pX->pIn);
  u32 nLocal = 0;
  const u8 *a = sqlite3StockBtreePayloadFetch(pX->pIn, &nLocal);
  int rc;
  *pn = n;
  if( nLocal>=n ){
    *pa = a;
    return SQLITE_OK;
  }
  if( n>sqlite3StockBtreeMaxRecordSize(pX->pIn) ) return SQLITE_CORRUPT_PGNO(pX->pOut->pgnoRoot);
  rc = plReserve(&pX->aTmp, &pX->nTmpAlloc, (u64)n + 18);
  if( rc==SQLITE_OK ) rc = sqlite3StockBtreePayload(pX->pIn, 0, n, pX->aTmp);
  if( rc==SQLITE_OK ) memset(&pX->aTmp[n], 0, 18);
  *pa = pX->aTmp;
  return rc;
}

/* Encodes the key of the stock cursor's row into baseKey, from the part of the record on its page
** if that is enough. */
static int plInnerKey(PlCursor *pX){
  const u8 *a;
  u32 n, nLocal = 0;
  int rc;
  if( pX->bBaseKey ) return SQLITE_OK;
  n = sqlite3StockBtreePayloadSize(pX->pIn);
  a = sqlite3StockBtreePayloadFetch(pX->pIn, &nLocal);
  if( nLocal<n && nLocal>0 && plEncodeRecord(pX, a, nLocal, &pX->baseKey)==SQLITE_OK ){
    pX->bBaseKey = 1;
    return SQLITE_OK;
  }
  rc = plInnerPayload(pX, &a, &n);
  if( rc==SQLITE_OK ) rc = plEncodeRecord(pX, a, n, &pX->baseKey);
  if( rc==SQLITE_OK ) pX->bBaseKey = 1;
  return rc;
}

/* Returns where the bytes of an index's K are. */
static int plKey(PlCursor *pX, const u8 **pa, u32 *pn){
  int rc = SQLITE_OK;
  if( pX->bKey ){
    *pa = pX->key.p;
    *pn = pX->key.n;
  }else if( pX->eSrc==SRC_OVER ){
    *pa = pX->cur.key;
    *pn = pX->cur.nKey;
  }else if( pX->eBase==PLB_AT && pX->pIn ){
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

/* Compares the stock cursor's row with K: <0 if the row is before K. */
static int plInnerVsKey(PlCursor *pX, int *pc){
  const u8 *a;
  u32 n;
  int rc;
  if( pX->pOut->pKeyInfo==0 ){
    i64 i = sqlite3StockBtreeIntegerKey(pX->pIn);
    *pc = i<pX->iKey ? -1 : i>pX->iKey;
    return SQLITE_OK;
  }
  rc = plKey(pX, &a, &n);
  if( rc==SQLITE_OK ) rc = plInnerKey(pX);
  if( rc==SQLITE_OK ) *pc = plCompareBytes(pX->baseKey.p, pX->baseKey.n, a, n);
  return rc;
}

/* Compares the stock cursor's row of an index, whose record is on its page, with the record of
** look: encoding a key would cost more. An entry of an index always has its record, deleted
** ones too. */
static int plInnerVsRecord(PlCursor *pX, const u8 *a, u32 n, int *pc){
  KeyInfo *pInfo = pX->pOut->pKeyInfo;
  UnpackedRecord *pKey = pX->pLook;
  if( pKey==0 ){
    pX->pLook = pKey = sqlite3VdbeAllocUnpackedRecord(pInfo);
    if( pKey==0 ) return SQLITE_NOMEM_BKPT;
  }
  if( !pX->bLook ){
    plUnpackTo(pKey, pX->look.rec, pX->look.nRec);
    pX->xLook = sqlite3VdbeFindCompare(pKey);
    pX->bLook = 1;
  }
  pKey->errCode = 0;
  *pc = pX->xLook((int)n, a, pKey);
  return pKey->errCode ? SQLITE_CORRUPT_PGNO(pX->pOut->pgnoRoot) : SQLITE_OK;
}

/* Compares the stock cursor's row with the overlay entry that the iterator is on. */
static int plInnerVsLook(PlCursor *pX, int *pc){
  const u8 *a;
  u32 n, nLocal = 0;
  int rc;
  if( pX->pOut->pKeyInfo==0 ){
    i64 i = sqlite3StockBtreeIntegerKey(pX->pIn);
    i64 j = plDecodeRowid(pX->look.key);
    *pc = i<j ? -1 : i>j;
    return SQLITE_OK;
  }
  n = sqlite3StockBtreePayloadSize(pX->pIn);    /* before the fetch, which relies on it */
  a = sqlite3StockBtreePayloadFetch(pX->pIn, &nLocal);
  if( nLocal==n && pX->look.nRec>0 ){
    /* A deleted entry has the record that it hides, unchanged. */
    if( n==pX->look.nRec && memcmp(a, pX->look.rec, n)==0 ){
      *pc = 0;
      return SQLITE_OK;
    }
    return plInnerVsRecord(pX, a, n, pc);
  }
  rc = plInnerKey(pX);
  if( rc==SQLITE_OK ) *pc = plCompareBytes(pX->baseKey.p, pX->baseKey.n, pX->look.key, pX->look.nKey);
  return rc;
}

/* Steps the stock cursor. *pbRow: it is still on a row. */
static int plInnerStep(PlCursor *pX, int dir, int *pbRow){
  int rc;
  pX->bBaseKey = 0;
  rc = dir>0 ? sqlite3StockBtreeNext(pX->pIn, 0) : sqlite3StockBtreePrevious(pX->pIn, 0);
  *pbRow = rc==SQLITE_OK;
  return rc==SQLITE_DONE ? SQLITE_OK : rc;
}

/* Moves the stock cursor to K (a table's rowid, or an index record in aRec). *pRes as
** sqlite3BtreeTableMoveto. The cursor is not VALID when the base is empty. */
static int plInnerSeek(PlCursor *pX, int *pRes){
  int rc = plInnerOpen(pX);
  *pRes = -1;
  if( rc ) return rc;
  pX->bBaseKey = 0;
  if( pX->pOut->pKeyInfo==0 ){
    rc = sqlite3StockBtreeTableMoveto(pX->pIn, pX->iKey, 0, pRes);
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
    rc = sqlite3StockBtreeIndexMoveto(pX->pIn, pKey, pRes);
    sqlite3DbFree(pInfo->db, pKey);
  }
  return rc;
}

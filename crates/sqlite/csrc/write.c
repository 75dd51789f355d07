/*
** write.c - Insert, Delete, TransferRow and ClearTable on the concurrent path.
**
** A write goes to the engine's write set: the base stays as it is. The transaction becomes
** exclusive for what cannot go there (TXN-7): the schema table, indexes whose order the engine does
** not know, and anything past the memory budget.
**
** As in stock SQLite other cursors on the same root are saved first, and blob handles on the row
** are invalidated. The writing cursor keeps its place with BTREE_SAVEPOSITION, and has none
** afterwards without it.
*/

/* DELETE without WHERE over more rows than about this takes the exclusive path. */
#define PL_CLEAR_ROWS_MAX 20000

/* An entry makes at most this many pages on average, not counting those that its bytes fill. */
#define PL_PAGES_OF_ENTRY 4
/* Pages that the first entries may make in b-trees whose pages are all full. */
#define PL_PAGES_TO_SPARE 64

/* True if what is not merged, with own writes and nByte more, might not fit into the pages that
** PRAGMA max_page_count allows. An upper bound: the pager knows. */
static int plNearPageLimit(Btree *p, u64 nByte){
  BtShared *pBt = p->pBt;
  uint64_t nEntry = 0, nUnmerged = 0;
  u64 nPage;
  if( pl_unmerged(p->pPl->pConn, &nEntry, &nUnmerged) ) return 1;
  nPage = (nEntry+1)*PL_PAGES_OF_ENTRY + 2*(nUnmerged+nByte)/pBt->usableSize + PL_PAGES_TO_SPARE;
  return pBt->nPage + nPage > pBt->pPager->mxPgno;
}

/* True if a write of nByte bytes must work on pages now: near the limit of PRAGMA max_page_count,
** so that the statement fails which does in SQLite; and where the application's callback decides at
** each commit how many free pages an auto-vacuum gives back. */
static SQLITE_NOINLINE PL_COLD int plAsksForPages(Btree *p, u64 nByte){
  if( p->pPl->bExcl ) return 0;
  if( p->db->xAutovacPages && p->pBt->autoVacuum && !p->pBt->incrVacuum ) return 1;
  return p->pBt->pPager->mxPgno!=SQLITE_MAX_PAGE_COUNT && plNearPageLimit(p, nByte);
}
static SQLITE_INLINE int plNeedsPages(Btree *p, u64 nByte){
  return PL_UNLIKELY(p->db->xAutovacPages!=0 || p->pBt->pPager->mxPgno!=SQLITE_MAX_PAGE_COUNT) && plAsksForPages(p, nByte);
}

/* Checks whether this handle may write now, and chooses the path: after SQLITE_OK look at
** bExcl. Without a write transaction, the statement's own was rolled back in its middle
** (WHOLE-4 in whole.c). */
static int plWritable(Btree *p, int bExclusive){
  PlBtree *pPl = p->pPl;
  int rc;
  if( pPl->rcBroken ) return pPl->rcBroken;
  if( pPl->eWrite==0 && !pPl->bExcl ) return SQLITE_ABORT_ROLLBACK;
  rc = pl_doomed(pPl->pConn);
  if( rc ) return plFail(p, rc);
  if( bExclusive && !pPl->bExcl ) return plEscalate(p);
  return SQLITE_OK;
}

/* An insert that must take the exclusive path. The payload may be in pages or overlay memory that
** escalation releases. An entry of a WITHOUT ROWID table replaces the one with the same first nMem
** fields: they are taken from the copy. */
static int plInsertExclusive(PlCursor *pX, const BtreePayload *pPayload, int flags){
  BtreePayload x = *pPayload;
  int bTable = pX->pOut->pKeyInfo==0;
  u64 n = bTable ? (u64)x.nData : (u64)x.nKey;
  u8 *aCopy = sqlite3Malloc(n + 18);
  UnpackedRecord *pKey = 0;
  int rc;
  if( aCopy==0 ) return SQLITE_NOMEM_BKPT;
  if( n ) memcpy(aCopy, bTable ? x.pData : x.pKey, n);
  memset(&aCopy[n], 0, 18);
  if( bTable ) x.pData = aCopy;
  else x.pKey = aCopy;
  rc = plEscalate(pX->pOut->pBtree);
  if( rc==SQLITE_OK && !bTable && x.nMem ){
    pKey = sqlite3VdbeAllocUnpackedRecord(pX->pOut->pKeyInfo);
    if( pKey==0 ){
      rc = SQLITE_NOMEM_BKPT;
    }else{
      sqlite3VdbeRecordUnpack((int)n, aCopy, pKey);
      x.aMem = pKey->aMem;
      if( x.nMem>pKey->nField ) x.nMem = pKey->nField;
    }
  }
  if( rc==SQLITE_OK ) rc = plPassInsert(pX, &x, flags & ~BTREE_PREFORMAT, 0);
  if( pKey ) sqlite3DbFree(pX->pOut->pKeyInfo->db, pKey);
  sqlite3_free(aCopy);
  return rc;
}

/* Hands one row to the engine. PL_ESCALATE: nothing was written. */
static int plPut(PlCursor *pX, const BtreePayload *pPayload){
  BtCursor *pOut = pX->pOut;
  PlConn *pConn = pX->pPl->pConn;
  u8 aKey[8];
  int rc;
  if( pOut->pKeyInfo==0 ){
    int bOverwrite = pOut->eState==CURSOR_VALID && sqlite3BtreeIntegerKey(pOut)==pPayload->nKey;
    plEncodeRowid(aKey, pPayload->nKey);
    if( plIsSequence(pX) ){
      rc = plPutSequence(pX, aKey, pPayload);
    }else{
      rc = pl_put(pConn, pOut->pgnoRoot, aKey, 8, pPayload->pData, (u32)pPayload->nData, (u32)pPayload->nZero);
    }
    if( rc==SQLITE_OK && !bOverwrite && !(pX->bNewRowid && pX->iNewRowid==pPayload->nKey) ){
      rc = pl_note_rowid(pConn, pOut->pgnoRoot, pPayload->nKey);
    }
  }else{
    rc = plEncodeRecord(pX, pPayload->pKey, (u32)pPayload->nKey, &pX->newKey);
    if( rc==SQLITE_OK ){
      rc = pl_put(pConn, pOut->pgnoRoot, pX->newKey.p, pX->newKey.n, pPayload->pKey, (u32)pPayload->nKey, 0);
    }
  }
  if( rc==SQLITE_OK ) pX->pPl->bWrote = 1;
  return rc;
}

static u64 plPayloadBytes(const BtreePayload *pPayload){
  return pPayload->pKey ? (u64)pPayload->nKey : (u64)pPayload->nData + (u64)pPayload->nZero;
}

static int plBtreeInsert(BtCursor *pCur, const BtreePayload *pPayload, int flags, int seekResult){
  PlCursor *pX = PL_X(pCur);
  PlBtree *pPl = pX->pPl;
  Btree *p = pCur->pBtree;
  BtreePayload x;
  int rc;
  if( pX->eMode==PLC_PASS ) return plPassInsert(pX, pPayload, flags, seekResult);
  if( pCur->eState==CURSOR_FAULT ) return pCur->skipNext;
  rc = plWritable(p, 0);
  if( rc ) return rc;
  if( flags & BTREE_PREFORMAT ){
    memset(&x, 0, sizeof(x));
    if( pCur->pKeyInfo==0 ){
      x.nKey = pPayload->nKey;
      x.pData = pPl->aScratch;
      x.nData = (int)pPl->nScratch;
    }else{
      x.pKey = pPl->aScratch;
      x.nKey = pPl->nScratch;
    }
    pPayload = &x;
  }
  if( pCur->pgnoRoot<=1 || plIsCustom(pX) || plNeedsPages(p, plPayloadBytes(pPayload)) ){
    return plInsertExclusive(pX, pPayload, flags);
  }
  rc = plSaveAll(pPl, pCur->pgnoRoot, pX);
  if( rc ) return rc;
  if( pCur->pKeyInfo==0 ) plInvalidateBlobs(pPl, pCur->pgnoRoot, pPayload->nKey, 0);
  if( flags & BTREE_SAVEPOSITION ){
    plToMerge(pX);
    rc = plKeepKey(pX, 0);
    if( rc ) return rc;
  }else{
    /* What is pending may refer to the cursor's row, an own write that this one replaces. */
    plRdFlush(pX);
  }
  rc = plPut(pX, pPayload);
  if( rc==PL_ESCALATE ) return plInsertExclusive(pX, pPayload, flags);
  if( rc ) return plFail(p, rc);
  if( flags & BTREE_SAVEPOSITION ){
    if( pX->ePos==POS_ROW ) pCur->eState = CURSOR_REQUIRESEEK;
  }else{
    plForget(pX);
  }
  return SQLITE_OK;
}

/* Puts a tombstone at the row that a PLC_MERGE cursor is on. bPass: the cursor stays there and goes
** on to the next row. When adjacent rows are deleted this way the engine knows that there is no row
** between them, and later walks need not find out. */
static int plDeleteRow(PlCursor *pX, int bPass){
  BtCursor *pCur = pX->pOut;
  const u8 *aKey, *aRec = 0;
  u8 aRowid[8];
  u32 nKey = 8, nRec = 0;
  int rc = SQLITE_OK;
  if( pCur->pKeyInfo==0 ){
    plEncodeRowid(aRowid, pX->iKey);
    aKey = aRowid;
  }else{
    if( pX->bRec ){
      aRec = pX->aRec;
      nRec = pX->nRec;
    }else if( pX->eSrc==SRC_OVER ){
      aRec = pX->cur.rec;
      nRec = pX->cur.nRec;
    }else{
      rc = plInnerPayload(pX, &aRec, &nRec);
    }
    if( rc==SQLITE_OK ) rc = plKey(pX, &aKey, &nKey);
    if( rc ) return rc;
  }
  if( bPass && pX->eRun!=RUN_NEXT && (pX->iRun = ++pX->pPl->iRun)==0 ) pX->iRun = ++pX->pPl->iRun;
  rc = pl_delete(pX->pPl->pConn, pCur->pgnoRoot, aKey, nKey, aRec, nRec, bPass ? pX->iRun : 0);
  pX->eRun = bPass && rc==SQLITE_OK ? RUN_GONE : RUN_NONE;
  if( rc==SQLITE_OK ) pX->pPl->bWrote = 1;
  return rc;
}

static int plBtreeDelete(BtCursor *pCur, u8 flags){
  PlCursor *pX = PL_X(pCur);
  PlBtree *pPl = pX->pPl;
  Btree *p = pCur->pBtree;
  int rc;
  if( pX->eMode==PLC_PASS ) return plPassDelete(pX, flags);
  if( pCur->eState!=CURSOR_VALID ){
    if( pCur->eState<CURSOR_REQUIRESEEK ) return SQLITE_CORRUPT_PGNO(pCur->pgnoRoot);
    rc = plRestore(pX);
    if( rc || pCur->eState!=CURSOR_VALID ) return rc;
  }
  rc = plWritable(p, pCur->pgnoRoot<=1 || plIsCustom(pX) || plNeedsPages(p, 0));
  if( rc ) return rc;
  if( pX->eMode==PLC_PASS ) return plPassDelete(pX, flags);
  plToMerge(pX);
  rc = plKeepKey(pX, 0);
  if( rc==SQLITE_OK ) rc = plSaveAll(pPl, pCur->pgnoRoot, pX);
  if( rc ) return rc;
  if( pCur->pKeyInfo==0 ) plInvalidateBlobs(pPl, pCur->pgnoRoot, pX->iKey, 0);
  rc = plDeleteRow(pX, (flags & BTREE_SAVEPOSITION)!=0);
  if( rc==PL_ESCALATE ){
    rc = plEscalate(p);
    return rc ? rc : plPassDelete(pX, flags);
  }
  if( rc ) return plFail(p, rc);
  if( flags & BTREE_SAVEPOSITION ){
    pX->ePos = POS_GONE;
    pCur->eState = CURSOR_SKIPNEXT;
    pCur->skipNext = 0;
  }else if( pCur->curFlags & BTCF_Pinned ){
    /* REPLACE fires delete triggers now, and must fail if one of them writes this b-tree. Stock
    ** code detects that because its cursor is on some row after a delete, unless that was the
    ** last one. */
    int bEmpty;
    return plBtreeFirst(pCur, &bEmpty);
  }else{
    plForget(pX);
  }
  return SQLITE_OK;
}

/* Copies the row of pSrc for pDest; sqlite3BtreeInsert() with BTREE_PREFORMAT finishes it. */
SQLITE_PRIVATE int sqlite3BtreeTransferRow(BtCursor *pDest, BtCursor *pSrc, i64 iKey){
  PlCursor *pFrom = PL_CSR(pSrc) ? PL_X(pSrc) : 0;
  if( PL_CSR(pDest) && PL_X(pDest)->eMode!=PLC_PASS ){
    PlBtree *pPl = PL_X(pDest)->pPl;
    u32 n = sqlite3BtreePayloadSize(pSrc);
    if( pPl->nScratchAlloc<(i64)n+18 ){
      u8 *aNew = sqlite3Realloc(pPl->aScratch, (u64)n + 18);
      if( aNew==0 ) return SQLITE_NOMEM_BKPT;
      pPl->aScratch = aNew;
      pPl->nScratchAlloc = (i64)n + 18;
    }
    pPl->nScratch = n;
    memset(&pPl->aScratch[n], 0, 18);
    return sqlite3BtreePayload(pSrc, 0, n, pPl->aScratch);
  }
  if( pFrom && plIsOver(pFrom) ){
    BtreePayload x;
    memset(&x, 0, sizeof(x));
    if( pDest->pKeyInfo==0 ){
      x.nKey = iKey;
      x.pData = pFrom->cur.rec;
      x.nData = (int)pFrom->cur.nRec;
    }else{
      x.pKey = pFrom->cur.rec;
      x.nKey = pFrom->cur.nRec;
    }
    return fillInCell(pDest->pPage, pDest->pBt->pTmpSpace, &x, &pDest->pBt->nPreformatSize);
  }
  if( pFrom ){
    pSrc = pFrom->pIn;
    sqlite3StockBtreePayloadSize(pSrc);
  }
  return sqlite3StockBtreeTransferRow(pDest, pSrc, iKey);
}

/* Deletes every row that a cursor of its own finds. PL_ESCALATE: the rest is for the
** exclusive path. */
static int plClearRows(PlCursor *pX, i64 *pnRow){
  int bEmpty = 0;
  int rc = plSeekEnd(pX, +1, &bEmpty);
  if( rc==SQLITE_OK && !bEmpty && plBtreeRowCountEst(pX->pOut)>PL_CLEAR_ROWS_MAX ) return PL_ESCALATE;
  if( rc==SQLITE_OK && !bEmpty ) rc = plRestore(pX);
  while( rc==SQLITE_OK && !bEmpty ){
    plToMerge(pX);
    rc = plKeepKey(pX, 0);
    if( rc==SQLITE_OK ) rc = plDeleteRow(pX, 1);
    if( rc ) return rc;
    ++*pnRow;
    pX->ePos = POS_GONE;
    rc = plMergeStep(pX, +1, 0);
    if( (*pnRow & 0xff)==0 && AtomicLoad(&pX->pOut->pBtree->db->u1.isInterrupted) ) return SQLITE_INTERRUPT;
  }
  return rc==SQLITE_DONE ? SQLITE_OK : rc;
}

/* DELETE without WHERE on the concurrent path. PL_ESCALATE: the rest is for the exclusive path. */
static int plClearOverlay(Btree *p, Pgno iTable, i64 *pnRow){
  PlBtree *pPl = p->pPl;
  Index *pIdx = plIndexOfRoot(p->db->aDb[plDbIndex(p)].pSchema, iTable);
  KeyInfo *pInfo = 0;
  PlFacade f;
  int rc = plSaveAll(pPl, iTable, 0);
  if( rc ) return rc;
  plInvalidateBlobs(pPl, iTable, 0, 1);
  /* As in stock SQLite, the collation need not be there. */
  if( pIdx && plIsCustomIndex(p->db, pIdx) ) return PL_ESCALATE;
  rc = plKeyInfoOfRoot(p->db, plDbIndex(p), iTable, &pInfo);
  if( rc ) return rc;
  sqlite3BtreeCursorZero(&f.outer);
  rc = plOpen(p, iTable, BTREE_WRCSR, pInfo, &f.outer);
  if( rc==SQLITE_OK ){
    f.pX->bQuiet = 1;
    plRdWhole(f.pX);
    rc = plClearRows(f.pX, pnRow);
    plBtreeCloseCursor(&f.outer);
  }
  sqlite3KeyInfoUnref(pInfo);
  return rc;
}

static int plBtreeClearTable(Btree *p, int iTable, i64 *pnChange){
  PlBtree *pPl = p->pPl;
  i64 nRow = 0;
  int rc = plWritable(p, plNeedsPages(p, 0));
  if( rc ) return rc;
  if( !pPl->bExcl ){
    pPl->bCleared = 1;
    rc = plClearOverlay(p, (Pgno)iTable, &nRow);
    if( rc==PL_ESCALATE ) rc = plEscalate(p);
    if( rc ) return plFail(p, rc);
  }
  if( pPl->bExcl ){
    rc = plCheckPinned(pPl, (Pgno)iTable, 0);
    if( rc ) return rc;
    plInvalidateBlobs(pPl, (Pgno)iTable, 0, 1);
    pPl->bWrote = 1;
    plNoteChanged(pPl, (Pgno)iTable);
    rc = sqlite3StockBtreeClearTable(p, iTable, &nRow);
  }
  if( pnChange ) *pnChange += nRow;
  return rc;
}

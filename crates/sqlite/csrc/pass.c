/*
** pass.c - facade cursors on the exclusive path: stock cursors, but for what others must know of
** their writes (CURSOR-2).
*/

/* STOCK-3: row by row. */
static void plNoteChanged(PlBtree *pPl, Pgno iRoot){
  PlTouched *p = &pPl->changed;
  int i;
  for(i=0; i<p->nRoot; i++){
    if( p->aRoot[i]==iRoot ) return;
  }
  if( i==PL_CHANGED_MAX || p->nRoot<0 ) p->nRoot = PL_CHANGED_ANY;
  else p->aRoot[p->nRoot++] = iRoot;
}
/* STOCK-3: rows of sqlite_sequence that AUTOINCREMENT writes. */
static void plNoteMaximum(PlBtree *pPl, Pgno iRoot, i64 iRow){
  PlTouched *p = &pPl->changed;
  int i;
  p->iMaxima = iRoot;
  for(i=0; i<p->nMaximum; i++){
    if( p->aMaximum[i]==iRow ) return;
  }
  if( i==PL_CHANGED_MAXIMA ) plNoteChanged(pPl, iRoot);
  else p->aMaximum[p->nMaximum++] = iRow;
}
/* STOCK-3: pages, the schema, or anything else that is no row of a b-tree. */
static void plNoteChangedAny(PlBtree *pPl){
  pPl->changed.nRoot = PL_CHANGED_ANY;
}

/* Stock code saves the other cursors of a b-tree before a write, and fails if one of them is pinned
** and on a row. A pinned cursor that was moved when the transaction became exclusive is not on its
** row until it is next used: find it here (HANDLE-4). */
static SQLITE_NOINLINE PL_COLD int plFindPinned(PlBtree *pPl, Pgno iRoot, PlCursor *pExcept){
  PlCursor *pX;
  for(pX=pPl->pCsr; pX; pX=pX->pNext){
    BtCursor *pOut = pX->pOut;
    if( pX==pExcept || pOut->pgnoRoot!=iRoot || (pOut->curFlags & BTCF_Pinned)==0 ) continue;
    if( pOut->eState==CURSOR_REQUIRESEEK ) return SQLITE_CONSTRAINT_PINNED;
  }
  return SQLITE_OK;
}
static SQLITE_INLINE int plCheckPinned(PlBtree *pPl, Pgno iRoot, PlCursor *pExcept){
  return PL_UNLIKELY(pPl->bPinned) ? plFindPinned(pPl, iRoot, pExcept) : SQLITE_OK;
}

/* Puts a hard-saved cursor on the exclusive path: it becomes a stock cursor with a
** saved position. */
static int plPassInstall(PlCursor *pX){
  BtCursor *pOut = pX->pOut;
  u8 eState = pOut->eState;
  int rc;
  if( eState==CURSOR_FAULT ) return SQLITE_OK;
  assert( pX->pIn==0 && pX->pIter==0 );
  pX->bSeeked = 0;
  rc = plStockOpen(pX, pOut);
  if( rc==SQLITE_OK ){
    pX->eMode = PLC_PASS;
    if( pX->ePos==POS_NONE || eState==CURSOR_INVALID || (pOut->pKeyInfo && !pX->bRec) ) return SQLITE_OK;
    if( pOut->pKeyInfo ){
      pOut->pKey = sqlite3Malloc((u64)pX->nRec + 9 + 8);
      if( pOut->pKey ) memcpy(pOut->pKey, pX->aRec, (u64)pX->nRec + 9 + 8);
      else rc = SQLITE_NOMEM_BKPT;
      pOut->nKey = pX->nRec;
    }else{
      pOut->nKey = pOut->info.nKey = pX->iKey;    /* info: for invalidateIncrblobCursors() */
    }
    pOut->eState = CURSOR_REQUIRESEEK;
    if( pOut->curFlags & BTCF_Pinned ) pX->pPl->bPinned = 1;
    pOut->skipNext = pX->ePos==POS_BEFORE ? 1 : pX->ePos==POS_AFTER ? -1 : 0;
  }
  if( rc ) plTrip(pX, rc);
  return rc;
}

/* A row of a table is about to go; a tripped blob handle may have been on it. */
static SQLITE_NOINLINE PL_COLD void plInvalidateTripped(PlCursor *pX){
  BtCursor *pOut = pX->pOut;
  if( pOut->pKeyInfo==0 && pOut->eState==CURSOR_VALID ){
    plInvalidateBlobs(pX->pPl, pOut->pgnoRoot, sqlite3StockBtreeIntegerKey(pOut), 0);
  }else if( pOut->pKeyInfo==0 && pOut->eState==CURSOR_REQUIRESEEK ){
    plInvalidateBlobs(pX->pPl, pOut->pgnoRoot, pOut->nKey, 0);
  }
}

static int plPassInsert(PlCursor *pX, const BtreePayload *pPayload, int flags, int seekResult){
  BtCursor *pOut = pX->pOut;
  int rc = plCheckPinned(pX->pPl, pOut->pgnoRoot, pX);
  if( rc ) return rc;
  if( PL_UNLIKELY(pX->pPl->bTripped) && pOut->pKeyInfo==0 ){
    plInvalidateBlobs(pX->pPl, pOut->pgnoRoot, pPayload->nKey, 0);
  }
  pX->pPl->bWrote = 1;
  pX->pPl->nPassWrite++;
  if( plIsAutoincrement(pX) ) plNoteMaximum(pX->pPl, pOut->pgnoRoot, pPayload->nKey);
  else plNoteChanged(pX->pPl, pOut->pgnoRoot);
  pX->pPl->nPassByte += pX->pOut->pKeyInfo ? (u64)pPayload->nKey : (u64)pPayload->nData + (u64)pPayload->nZero;
  if( !pX->bSeeked ){
    /* The VDBE's knowledge of the position is from before escalation. */
    seekResult = 0;
    if( flags & BTREE_SAVEPOSITION ){
      if( pOut->eState>=CURSOR_REQUIRESEEK ){
        int bDifferent;
        rc = sqlite3StockBtreeCursorRestore(pOut, &bDifferent);
        if( rc ) return rc;
      }
      if( pOut->eState!=CURSOR_VALID ) flags &= ~BTREE_SAVEPOSITION;
    }
  }
  return sqlite3StockBtreeInsert(pOut, pPayload, flags, seekResult);
}

static int plPassDelete(PlCursor *pX, u8 flags){
  int rc = plCheckPinned(pX->pPl, pX->pOut->pgnoRoot, pX);
  if( rc ) return rc;
  if( PL_UNLIKELY(pX->pPl->bTripped) ) plInvalidateTripped(pX);
  pX->pPl->bWrote = 1;
  pX->pPl->nPassWrite++;
  plNoteChanged(pX->pPl, pX->pOut->pgnoRoot);
  return sqlite3StockBtreeDelete(pX->pOut, flags);
}

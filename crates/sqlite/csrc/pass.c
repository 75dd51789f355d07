/*
** pass.c - facade cursors on the exclusive path: thin covers of their inner stock cursors (P2).
**
** The facade's eState is what the VDBE looks at, so it is copied from the inner cursor after every call; a write that saved
** other cursors is followed by copying all of them.
*/

static void plInvalidateBlobs(PlBtree *pPl, Pgno iRoot, i64 iRow, int isClear);

static void plMirror(PlCursor *pX){
  pX->pOut->eState = pX->inner.eState;
  pX->pOut->skipNext = pX->inner.skipNext;
}

static void plMirrorAll(PlBtree *pPl){
  PlCursor *pX;
  for(pX=pPl->pCsr; pX; pX=pX->pNext){
    if( pX->eMode==PLC_PASS && pX->bInner && pX->pOut->eState!=CURSOR_FAULT ) plMirror(pX);
  }
}

/* Puts a hard-saved cursor on the exclusive path: its inner cursor becomes a stock cursor with a saved position. */
static int plPassInstall(PlCursor *pX){
  BtCursor *pOut = pX->pOut, *pIn = &pX->inner;
  int rc;
  if( pOut->eState==CURSOR_FAULT ) return SQLITE_OK;
  pX->eMode = PLC_PASS;
  pX->bSeeked = 0;
  plDropIter(pX);
  rc = plInnerOpen(pX);
  if( rc ){
    plTrip(pX, rc);
    return rc;
  }
  if( pX->ePos!=POS_NONE && (pOut->pKeyInfo==0 || pX->bRec) && pOut->eState!=CURSOR_INVALID ){
    if( pOut->pKeyInfo ){
      pIn->pKey = sqlite3Malloc((u64)pX->nRec + 9 + 8);
      if( pIn->pKey==0 ) return SQLITE_NOMEM_BKPT;
      memcpy(pIn->pKey, pX->aRec, (u64)pX->nRec + 9 + 8);
      pIn->nKey = pX->nRec;
    }else{
      pIn->nKey = pX->iKey;
    }
    pIn->eState = CURSOR_REQUIRESEEK;
    pIn->skipNext = pX->ePos==POS_BEFORE ? 1 : pX->ePos==POS_AFTER ? -1 : 0;
  }
  plMirror(pX);
  return SQLITE_OK;
}

/* First (dir>0) and Last. */
static int plPassEnd(PlCursor *pX, int dir, int *pRes){
  int rc;
  if( pX->pOut->eState==CURSOR_FAULT ) return pX->pOut->skipNext;
  rc = dir>0 ? sqlite3StockBtreeFirst(&pX->inner, pRes) : sqlite3StockBtreeLast(&pX->inner, pRes);
  pX->bSeeked = 1;
  plMirror(pX);
  return rc;
}

/* Before a write through pX: other pinned cursors on its root must not be moved. */
static int plPassPinned(PlCursor *pX){
  PlCursor *pY;
  for(pY=pX->pPl->pCsr; pY; pY=pY->pNext){
    if( pY!=pX && pY->pOut->pgnoRoot==pX->pOut->pgnoRoot && (pY->pOut->curFlags & BTCF_Pinned)
     && (pY->pOut->eState==CURSOR_VALID || pY->pOut->eState==CURSOR_SKIPNEXT) ){
      return SQLITE_CONSTRAINT_PINNED;
    }
  }
  return SQLITE_OK;
}

static int plPassInsert(PlCursor *pX, const BtreePayload *pPayload, int flags, int seekResult){
  int rc;
  if( pX->pOut->eState==CURSOR_FAULT ) return pX->pOut->skipNext;
  rc = plPassPinned(pX);
  if( rc ) return rc;
  pX->pPl->bWrote = 1;
  if( !pX->bSeeked ){
    /* What the VDBE knows of the position is from before this became the exclusive path. */
    seekResult = 0;
    if( flags & BTREE_SAVEPOSITION ){
      if( pX->inner.eState>=CURSOR_REQUIRESEEK ){
        int bDifferent;
        rc = sqlite3StockBtreeCursorRestore(&pX->inner, &bDifferent);
        if( rc ) return rc;
      }
      if( pX->inner.eState!=CURSOR_VALID ) flags &= ~BTREE_SAVEPOSITION;
    }
  }
  if( pX->pOut->pKeyInfo==0 ) plInvalidateBlobs(pX->pPl, pX->pOut->pgnoRoot, pPayload->nKey, 0);
  rc = sqlite3StockBtreeInsert(&pX->inner, pPayload, flags, seekResult);
  plMirrorAll(pX->pPl);
  return rc;
}

static int plPassDelete(PlCursor *pX, u8 flags){
  int rc;
  if( pX->pOut->eState==CURSOR_FAULT ) return pX->pOut->skipNext;
  rc = plPassPinned(pX);
  if( rc ) return rc;
  pX->pPl->bWrote = 1;
  if( pX->inner.eState>=CURSOR_REQUIRESEEK ){
    int bDifferent;
    rc = sqlite3StockBtreeCursorRestore(&pX->inner, &bDifferent);
    if( rc || bDifferent ){
      plMirror(pX);
      return rc;
    }
  }
  if( pX->pOut->pKeyInfo==0 && pX->inner.eState==CURSOR_VALID ){
    plInvalidateBlobs(pX->pPl, pX->pOut->pgnoRoot, sqlite3StockBtreeIntegerKey(&pX->inner), 0);
  }
  rc = sqlite3StockBtreeDelete(&pX->inner, flags);
  plMirrorAll(pX->pPl);
  return rc;
}

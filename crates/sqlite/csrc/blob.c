/*
** blob.c - incremental blobs: sqlite3_blob_read and sqlite3_blob_write.
**
** A blob handle is a cursor that stays on its row across statements. Writing that row through anything else, or
** clearing the table, invalidates it for good; writing other rows only makes it seek again.
** In the write set rows are whole, so a write through a handle replaces the row.
*/

/* The row that a blob handle is on, or was on last before a ROLLBACK tripped it: 1 and *piRow, or 0. As in SQLite a handle that was
** tripped and whose row is written then can be moved to another row; while it is not, that fails. */
static int plBlobRow(PlCursor *pX, i64 *piRow){
  BtCursor *pOut = pX->pOut;
  if( pOut->eState==CURSOR_INVALID ) return 0;
  if( pOut->eState==CURSOR_FAULT ){
    *piRow = pX->iKey;
    return pX->bTripRow;
  }
  *piRow = pX->eMode==PLC_MERGE ? pX->iKey : sqlite3StockBtreeIntegerKey(pOut);
  return 1;
}

/* invalidateIncrblobCursors(): row iRow of a table, or (isClear) all of its rows go. On the exclusive path stock code does so itself
** for all cursors but those that were tripped, which are stock cursors no more. */
static void plInvalidateBlobs(PlBtree *pPl, Pgno iRoot, i64 iRow, int isClear){
  PlCursor *pX;
  if( !pPl->pBtree->hasIncrblobCur && !pPl->bTripped ) return;
  pPl->bTripped = 0;
  for(pX=pPl->pCsr; pX; pX=pX->pNext){
    i64 i = 0;
    if( (pX->pOut->curFlags & BTCF_Incrblob)==0 || pX->eMode==PLC_PASS || !plBlobRow(pX, &i) ) continue;
    if( pX->pOut->pgnoRoot==iRoot && (isClear || i==iRow) ){
      plForget(pX);
      pX->iKey = i;
    }else if( pX->pOut->eState==CURSOR_FAULT ){
      pPl->bTripped = 1;
    }
  }
}

static int plBtreePayloadChecked(BtCursor *pCur, u32 offset, u32 amt, void *pBuf){
  PlCursor *pX = PL_X(pCur);
  int rc;
  if( pX->eMode==PLC_PASS ) return sqlite3StockBtreePayloadChecked(pCur, offset, amt, pBuf);
  if( pCur->eState==CURSOR_INVALID ) return SQLITE_ABORT;
  rc = plRestore(pX);
  if( rc ) return rc;
  if( pCur->eState!=CURSOR_VALID ) return SQLITE_ABORT;
  /* A ROLLBACK may have brought a shorter row back. The handle knows the length of the other. */
  if( (u64)offset+amt>plBtreePayloadSize(pCur) ) return SQLITE_ABORT;
  return plBtreePayload(pCur, offset, amt, pBuf);
}

static int plPassPutData(PlCursor *pX, u32 offset, u32 amt, void *z){
  pX->pPl->bWrote = 1;
  plNoteChanged(pX->pPl, pX->pOut->pgnoRoot);
  return sqlite3StockBtreePutData(pX->pOut, offset, amt, z);
}

/* A write through a handle leaves every row where it is: as in stock SQLite it passes pinned cursors by (OP_CursorLock), which
** other writes must not. What such a cursor points to may go, so it is saved like the others before the write, and
** looks its row up right after it. */
static int plSaveAround(PlCursor *pX, int bAfter){
  PlCursor *pY;
  int rc = SQLITE_OK;
  for(pY=pX->pPl->pCsr; pY && rc==SQLITE_OK; pY=pY->pNext){
    BtCursor *pOut = pY->pOut;
    u8 bPinned = pOut->curFlags & BTCF_Pinned;
    if( pY==pX || pOut->pgnoRoot!=pX->pOut->pgnoRoot ) continue;
    pOut->curFlags &= ~BTCF_Pinned;
    if( !bAfter ){
      rc = plSave(pY);
      pY->eOver = PLO_UNSYNC;
    }else if( bPinned && pOut->eState==CURSOR_REQUIRESEEK ){
      rc = plRestore(pY);
    }
    pOut->curFlags |= bPinned;
  }
  return rc;
}

static int plBtreePutData(BtCursor *pCur, u32 offset, u32 amt, void *z){
  PlCursor *pX = PL_X(pCur);
  Btree *p = pCur->pBtree;
  BtreePayload x;
  u8 *aRow;
  int rc;
  if( pX->eMode==PLC_PASS ) return plPassPutData(pX, offset, amt, z);
  rc = plRestore(pX);
  if( rc ) return rc;
  if( pCur->eState!=CURSOR_VALID ) return SQLITE_ABORT;
  if( !pX->bWrite ) return SQLITE_READONLY;
  rc = plWritable(p, plNeedsPages(p, (u64)plBtreePayloadSize(pCur)));
  if( rc ) return rc;
  if( pX->eMode==PLC_PASS ) return plPassPutData(pX, offset, amt, z);
  plToMerge(pX);
  rc = plSaveAround(pX, 0);
  if( rc ) return rc;
  memset(&x, 0, sizeof(x));
  x.nKey = pX->iKey;
  x.nData = (int)plBtreePayloadSize(pCur);
  if( (u64)offset+amt>(u64)x.nData ) return SQLITE_CORRUPT_PGNO(pCur->pgnoRoot);
  aRow = sqlite3Malloc((u64)x.nData + 1);
  if( aRow==0 ) return SQLITE_NOMEM_BKPT;
  rc = plBtreePayload(pCur, 0, (u32)x.nData, aRow);
  if( rc==SQLITE_OK ){
    memcpy(&aRow[offset], z, amt);
    x.pData = aRow;
    rc = plPut(pX, &x);
    if( rc==SQLITE_OK ){
      pCur->eState = CURSOR_REQUIRESEEK;
      rc = plSaveAround(pX, 1);
    }
  }
  sqlite3_free(aRow);
  if( rc==PL_ESCALATE ){
    rc = plEscalate(p);
    return rc ? rc : plPassPutData(pX, offset, amt, z);
  }
  return plFail(p, rc);
}

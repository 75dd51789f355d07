/*
** rowid.c - automatic rowids and AUTOINCREMENT (TXN-3).
**
** Stock SQLite takes the largest rowid plus one, which makes all concurrent appends collide. Here
** the largest visible rowid is only a candidate: it is found without recording a read, and the
** engine's shared counter of the table returns a number beyond it that no other transaction got.
**
** AUTOINCREMENT reads its row of sqlite_sequence at the start of a statement and writes it at the
** end. The code generator marks those two cursors (plMarkSequenceCursor). Reads through them are
** not recorded. The write is a maximum: its record is rebuilt so that it ends in an 8-byte integer,
** which commits merge (pl_put_max). A row that is not there yet gets the rowid that stock SQLite
** would give it, so that transactions with the same view make the same row, and one of them is
** refused.
**
** A statement that becomes exclusive between the two writes a number that it has found in an older
** state: it is refused if another transaction has written to sqlite_sequence since (iLookedUp).
*/

/* Called after the code for OP_OpenRead or OP_OpenWrite on sqlite_sequence. */
static void plMarkSequenceCursor(Vdbe *v){
  sqlite3VdbeChangeP5(v, OPFLAG_BULKCSR);
}

/* On an index the same hint means CREATE INDEX, which is exclusive. */
static int plIsAutoincrement(PlCursor *pX){
  return pX->pOut->pKeyInfo==0 && (pX->pOut->hints & BTREE_BULKLOAD)!=0;
}
static int plIsSequence(PlCursor *pX){
  return plIsAutoincrement(pX) && pX->eMode!=PLC_PASS;
}

/* Puts a row (name, seq) of sqlite_sequence as a maximum, and any other row unchanged. */
static int plPutSequence(PlCursor *pX, const u8 *aKey, const BtreePayload *pPayload){
  const u8 *a = (const u8*)pPayload->pData;
  PlConn *pConn = pX->pPl->pConn;
  Pgno iRoot = pX->pOut->pgnoRoot;
  u32 nHdr = 0, tName = 0, tSeq = 0, nName, i, nNew;
  u8 *aNew;
  Mem m;
  int rc, k;
  if( pPayload->nData>=3 ){
    i = getVarint32(a, nHdr);
    if( i<nHdr && nHdr<=(u32)pPayload->nData ) i += getVarint32(&a[i], tName);
    if( i<nHdr && nHdr<=(u32)pPayload->nData ) i += getVarint32(&a[i], tSeq);
    nName = sqlite3VdbeSerialTypeLen(tName);
    memset(&m, 0, sizeof(m));
    if( i==nHdr && nHdr<100 && (u64)nHdr+nName+sqlite3VdbeSerialTypeLen(tSeq)==(u64)pPayload->nData
     && ((tSeq>=1 && tSeq<=6) || tSeq==8 || tSeq==9) ){
      sqlite3VdbeSerialGet(&a[nHdr+nName], tSeq, &m);
      aNew = sqlite3Malloc((u64)pPayload->nData + 16);
      if( aNew==0 ) return SQLITE_NOMEM_BKPT;
      nNew = 1 + (u32)sqlite3PutVarint(&aNew[1], tName);
      aNew[nNew++] = 6;
      aNew[0] = (u8)nNew;
      memcpy(&aNew[nNew], &a[nHdr], nName);
      nNew += nName;
      for(k=0; k<8; k++) aNew[nNew++] = (u8)((u64)m.u.i >> (56 - 8*k));
      rc = pl_put_max(pConn, iRoot, aKey, 8, aNew, nNew, pX->bNewRowid && pX->iNewRowid==pPayload->nKey);
      sqlite3_free(aNew);
      return rc;
    }
  }
  plRdWhole(pX);
  return pl_put(pConn, iRoot, aKey, 8, a, (u32)pPayload->nData, (u32)pPayload->nZero);
}

/* OP_NewRowid, first half: the largest visible rowid plus one, 1 for an empty table. Afterwards the
** cursor is on that row, or where it was if the engine knows the largest rowid: a seek or an insert
** comes next. */
static int plNewRowidCandidate(VdbeCursor *pC, i64 *piRowid){
  PlCursor *pX = PL_X(pC->uc.pCursor);
  int rc = SQLITE_DONE;
  if( pC->useRandomRowid ) return SQLITE_OK;
  if( pX->eMode==PLC_MERGE && pX->pOut->eState!=CURSOR_FAULT ){
    int64_t iMax = 0;
    int bEmpty = 0;
    rc = plFound(pX->pPl, pl_greatest_rowid(pX->pPl->pConn, pX->pOut->pgnoRoot, &bEmpty, &iMax));
    pX->bNoRowid = (u8)bEmpty;
    pX->iMaxRowid = iMax;
  }
  if( rc==SQLITE_DONE ){
    int bEmpty = 0;
    rc = plSeekEnd(pX, -1, &bEmpty);
    pX->bNoRowid = (u8)bEmpty;
    if( rc==SQLITE_OK && !bEmpty ) pX->iMaxRowid = sqlite3BtreeIntegerKey(pC->uc.pCursor);
  }
  if( rc ) return rc;
  *piRowid = 1;
  if( pX->bNoRowid ) return SQLITE_OK;
  if( pX->iMaxRowid==LARGEST_INT64 ) pC->useRandomRowid = 1;
  else *piRowid = pX->iMaxRowid + 1;
  return SQLITE_OK;
}

/* Second half, when *piRowid and the AUTOINCREMENT sequence agree: a number not below it from the
** shared counter. */
static int plNewRowid(VdbeCursor *pC, Mem *pSequence, i64 *piRowid){
  PlCursor *pX = PL_X(pC->uc.pCursor);
  int64_t iMax = pX->iMaxRowid, iNew = 0;
  int rc;
  if( plIsSequence(pX) ){
    if( pC->useRandomRowid ){
      plRdWhole(pX);
    }else{
      pX->bNewRowid = 1;
      pX->iNewRowid = *piRowid;
    }
    return SQLITE_OK;
  }
  if( pC->useRandomRowid || pX->eMode==PLC_PASS ) return SQLITE_OK;
  rc = pl_new_rowid(pX->pPl->pConn, pX->pOut->pgnoRoot, pX->bNoRowid ? 0 : &iMax, *piRowid, &iNew);
  if( rc ) return plFail(pX->pOut->pBtree, rc);
  pX->bNewRowid = 1;
  pX->iNewRowid = iNew;
  *piRowid = iNew;
  if( pSequence ) pSequence->u.i = iNew;
  return SQLITE_OK;
}

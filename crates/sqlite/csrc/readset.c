/*
** readset.c - what a transaction has read (TXN-2).
**
** A seek that finds its row reads a point. So does a seek that lands next to its row, one step
** away: a scan for equality does so (BTREE_SEEK_EQ, which looks at no row that is not equal). Any
** other seek that lands next to its key has read nothing but the key until the landing is used.
** Then the read becomes a range from the seek key to the current row, which follows the cursor
** while it moves. The range goes to the engine when the cursor seeks elsewhere or closes, or when
** the transaction is validated: it ends where the cursor is then, and is unbounded if the cursor is
** nowhere. So the steps of a cursor on the base alone cost nothing but the first, which may start a
** range, and keys of base rows are encoded at the ends of ranges only.
**
** Reads are recorded in explicit transactions that do not hold the writer's right, and in single
** writes that are tried without it (PlBtree.bTrack). For other statements in autocommit it is
** enough to record the roots that they opened: their reads matter only if another statement of the
** same connection writes while they are still open, and then count as a whole.
**
** Cursors with bQuiet record nothing: see rowid.c.
**
** Rows of tables that were looked up one by one go to the engine many at a time (PlBtree.aRowid).
**
** Invariants: with bTrack, whatever the VDBE learned from a cursor is in rd, in aRowid or in the
** engine's read set. That a row is missing is learned as much as a row is.
**  - READSET-1 A seek to a key or to an end records what it looked for, whatever it found and
**    wherever: plRdTableSeek, plRdIndexSeek, plRdEnd.
**  - READSET-2 A step records where it starts before it looks, and the end of the b-tree when it
**    finds no row: plRdStep, plRdEof. Neither depends on whether the cursor is on a row: after a
**    seek in an empty b-tree it is not. Only a step from nowhere with nothing pending has no start:
**    the cursor was never placed, or was cleared, or what made it run out has gone to the engine.
**  - READSET-3 A caller that checks whether a seek landed on a row, without moving on, has used the
**    landing: plRdUse.
**  - READSET-4 Passing a read to the engine while the cursor stays where it is does not forget a
**    landing that can still be used.
**  - READSET-5 If a read could not be recorded, rcBroken lets only ROLLBACK through: plRdTold.
**  - READSET-6 A search in an index whose order the engine does not know reads all of it: there are
**    no ranges of its keys. Its writers are exclusive transactions, and name it as changed
**    (STOCK-3).
*/

/* Handles the result of passing a read to the engine. */
static SQLITE_INLINE void plRdTold(PlBtree *pPl, int rc){
  if( PL_UNLIKELY(rc) ) pPl->rcBroken = plFail(pPl->pBtree, rc);
}

static void plRdRange(PlCursor *pX, const u8 *aLo, u32 nLo, const u8 *aHi, u32 nHi){
  plRdTold(pX->pPl, pl_read_range(pX->pPl->pConn, pX->pOut->pgnoRoot, aLo, nLo, aHi, nHi));
}
static void plRdPoint(PlCursor *pX, const u8 *aKey, u32 nKey){
  plRdTold(pX->pPl, pl_read_point(pX->pPl->pConn, pX->pOut->pgnoRoot, aKey, nKey));
}

/* Passes the rows that were looked up to the engine. */
static void plRdTellRowids(PlBtree *pPl){
  u32 n = (u32)pPl->nRowid;
  pPl->nRowid = 0;
  if( n && pPl->pConn ) plRdTold(pPl, pl_read_rowids(pPl->pConn, pPl->aRowid, n));
}
static void plRdRowid(PlCursor *pX, i64 iRowid){
  PlBtree *pPl = pX->pPl;
  if( pPl->nRowid==ArraySize(pPl->aRowid) ) plRdTellRowids(pPl);
  pPl->aRowid[pPl->nRowid].i = iRowid;
  pPl->aRowid[pPl->nRowid++].iRoot = pX->pOut->pgnoRoot;
}

/* Encodes the current row's key into *pBuf (index) or *pi (table). *pbNone: there is no
** current row. */
static int plRdCurrent(PlCursor *pX, PlBuf *pBuf, i64 *pi, int *pbNone){
  *pbNone = 0;
  if( pX->eMode==PLC_PURE ){
    if( pX->pOut->eState!=CURSOR_VALID ){
      *pbNone = 1;
    }else if( pX->pOut->pKeyInfo==0 ){
      *pi = sqlite3StockBtreeIntegerKey(pX->pIn);
    }else{
      const u8 *a;
      u32 n;
      int rc = plInnerPayload(pX, &a, &n);
      return rc ? rc : plEncodeRecord(pX, a, n, pBuf);
    }
    return SQLITE_OK;
  }
  if( pX->ePos!=POS_ROW && pX->ePos!=POS_GONE ){
    *pbNone = 1;
  }else if( pX->pOut->pKeyInfo==0 ){
    *pi = pX->iKey;
  }else{
    const u8 *a;
    u32 n;
    int rc;
    if( pX->bRec ) return plEncodeRecord(pX, pX->aRec, pX->nRec, pBuf);
    if( pX->eSrc==SRC_OVER ) return plEncodeRecord(pX, pX->cur.rec, pX->cur.nRec, pBuf);
    if( pX->eBase!=PLB_AT || pX->pIn==0 ){
      *pbNone = 1;
      return SQLITE_OK;
    }
    rc = plInnerPayload(pX, &a, &n);
    return rc ? rc : plEncodeRecord(pX, a, n, pBuf);
  }
  return SQLITE_OK;
}

/* True if the cursor has no place at all, so that a step from it looks at nothing. */
static SQLITE_INLINE int plNowhere(PlCursor *pX){
  return pX->eMode==PLC_PURE ? pX->pOut->eState!=CURSOR_VALID : pX->ePos==POS_NONE;
}

/* Fixes the side of the range that follows the cursor. On an error the side becomes unbounded: too
** much is read, never too little. */
static void plRdFix(PlCursor *pX){
  PlReads *r = &pX->rd;
  int bNone = 0, rc = SQLITE_OK;
  if( r->iTail>0 ){
    rc = plRdCurrent(pX, &r->hi, &r->iHi, &bNone);
    r->bHiInf = rc!=SQLITE_OK || bNone;
  }else if( r->iTail<0 ){
    rc = plRdCurrent(pX, &r->lo, &r->iLo, &bNone);
    r->bLoInf = rc!=SQLITE_OK || bNone;
  }
  r->iTail = 0;
}

/* Passes what is pending to the engine. */
static SQLITE_NOINLINE void plRdFlushSlow(PlCursor *pX){
  PlReads *r = &pX->rd;
  PlConn *pConn = pX->pPl->pConn;
  u8 eKind = r->eKind;
  int bTable = pX->pOut->pKeyInfo==0;
  u8 aLo[8], aHi[8];
  int bNone = 0;
  r->eKind = PLR_NONE;
  r->bLoose = 0;
  if( pX->eMode==PLC_PURE ) plMarkPure(pX);
  if( pConn==0 ) return;
  switch( eKind ){
    case PLR_ROW:
      if( plRdCurrent(pX, &r->lo, &r->iLo, &bNone) || bNone ){
        plRdRange(pX, 0, 0, 0, 0);
      }else{
        plRdPoint(pX, r->lo.p, r->lo.n);
      }
      break;
    case PLR_POINT:
      if( bTable ){
        plRdRowid(pX, r->iLo);
      }else{
        plRdPoint(pX, r->lo.p, r->lo.n);
      }
      break;
    case PLR_PREFIX:
      plRdTold(pX->pPl, pl_read_prefix(pConn, pX->pOut->pgnoRoot, r->lo.p, r->lo.n));
      break;
    case PLR_RANGE:
      plRdFix(pX);
      if( bTable ){
        plEncodeRowid(aLo, r->iLo);
        plEncodeRowid(aHi, r->iHi);
        plRdRange(pX, r->bLoInf ? 0 : aLo, r->bLoInf ? 0 : 8, r->bHiInf ? 0 : aHi, r->bHiInf ? 0 : 8);
      }else{
        plRdRange(pX, r->bLoInf ? 0 : r->lo.p, r->bLoInf ? 0 : r->lo.n,
                      r->bHiInf ? 0 : r->hi.p, r->bHiInf ? 0 : r->hi.n);
      }
      break;
  }
}
static SQLITE_INLINE void plRdFlush(PlCursor *pX){
  if( pX->rd.eKind ) plRdFlushSlow(pX);
}

/* Before validation: passes on what is pending of all cursors, and the roots of autocommit
** statements. The cursors stay (READSET-4). */
static void plRdFlushAll(PlBtree *pPl){
  PlCursor *pX;
  int i;
  for(pX=pPl->pCsr; pX; pX=pX->pNext){
    u8 eKind = pX->rd.eKind;
    u8 bLoose = pX->rd.bLoose;
    plRdFlush(pX);
    if( bLoose ){
      pX->rd.eKind = eKind;
      pX->rd.bLoose = 1;
    }
  }
  plRdTellRowids(pPl);
  for(i=0; i<pPl->nCoarse; i++) plRdTold(pPl, pl_read_range(pPl->pConn, pPl->aCoarse[i], 0, 0, 0, 0));
  pPl->nCoarse = 0;
}

/* An autocommit statement opens a root. */
static int plRdCoarse(PlBtree *pPl, Pgno iRoot){
  int i;
  for(i=pPl->nCoarse-1; i>=0; i--){
    if( pPl->aCoarse[i]==iRoot ) return SQLITE_OK;
  }
  if( pPl->nCoarse>=pPl->nCoarseAlloc ){
    int n = pPl->nCoarseAlloc*2 + 16;
    Pgno *aNew = sqlite3Realloc(pPl->aCoarse, (u64)n*sizeof(Pgno));
    if( aNew==0 ) return SQLITE_NOMEM_BKPT;
    pPl->aCoarse = aNew;
    pPl->nCoarseAlloc = n;
  }
  pPl->aCoarse[pPl->nCoarse++] = iRoot;
  return SQLITE_OK;
}

/* Records that a root was read as a whole. */
static int plRdRoot(PlBtree *pPl, Pgno iRoot){
  if( !pPl->bTrack && pPl->eWrite!=PL_WRITE_QUEUED ) return plRdCoarse(pPl, iRoot);
  plRdTold(pPl, pl_read_range(pPl->pConn, iRoot, 0, 0, 0, 0));
  return pPl->rcBroken;
}

/* True if this cursor's reads are recorded. */
static SQLITE_INLINE int plTracks(PlCursor *pX){
  return pX->pPl->bTrack && !pX->bQuiet;
}

/* True if reads of this database are recorded now. Then an extension has to read again what
** it remembers from before the transaction: it knows only that no other connection has
** committed since. */
static int plNotesReads(sqlite3 *db, const char *zDb){
  Btree *p = sqlite3DbNameToBtree(db, zDb);
  return p && PL_BT(p) && p->pPl->bTrack;
}

/* The cursor's whole root was read: count(*), DELETE without WHERE, integrity_check. */
static void plRdWhole(PlCursor *pX){
  if( pX->pPl->bTrack ) plRdRange(pX, 0, 0, 0, 0);
}

/* READSET-6 */
static int plRdCustom(PlCursor *pX){
  if( !plIsCustom(pX) ) return 0;
  plRdFlush(pX);
  plRdWhole(pX);
  return 1;
}

/* First (dir>0) or Last: the read reaches from the end of the b-tree to the current row. */
static void plRdEnd(PlCursor *pX, int dir){
  PlReads *r = &pX->rd;
  if( !plTracks(pX) || plRdCustom(pX) ) return;
  r->eKind = PLR_RANGE;
  r->bLoose = 0;
  r->bLoInf = dir>0;
  r->bHiInf = dir<0;
  r->iTail = (i8)dir;
}

/* A table seek: res as sqlite3BtreeTableMoveto returned it. */
static SQLITE_INLINE void plRdTableSeek(PlCursor *pX, i64 iKey, int res){
  PlReads *r = &pX->rd;
  if( !pX->pPl->bTrack ) return;
  r->eKind = PLR_POINT;
  r->iLo = iKey;
  r->bLoose = res!=0;
  r->iSide = res<0 ? -1 : +1;
  r->bAfter = 0;
  r->iStep = 0;
  r->iTail = 0;
}

/* An index seek with its search key: res and default_rc as sqlite3BtreeIndexMoveto left them. bRow:
** the cursor is on a row that matches all fields of an equality probe. */
static int plRdIndexSeek(PlCursor *pX, UnpackedRecord *pKey, int res, int bRow){
  PlReads *r = &pX->rd;
  int n, rc;
  if( !pX->pPl->bTrack ) return SQLITE_OK;
  if( plRdCustom(pX) ) return SQLITE_OK;
  r->iTail = 0;
  if( pKey->default_rc==0 && bRow ){
    r->eKind = PLR_ROW;
    r->bLoose = 0;
    return SQLITE_OK;
  }
  n = MIN(pKey->nField, pX->pOut->pKeyInfo->nKeyField);
  rc = plEncodeUnpacked(pX, pKey, n, &r->lo);
  if( rc ) return rc;
  r->iSide = res<0 ? -1 : +1;
  if( pKey->default_rc && pKey->eqSeen && n==pX->pOut->pKeyInfo->nKeyField && (pX->pOut->hints & BTREE_SEEK_EQ) ){
    /* The one entry that has this key: here, or a step away. */
    r->eKind = PLR_POINT;
    r->bLoose = 0;
    r->iStep = r->iSide==pKey->default_rc ? 0 : (i8)-r->iSide;
    return SQLITE_OK;
  }
  r->eKind = PLR_PREFIX;
  r->bLoose = 1;
  r->bAfter = pKey->default_rc<0;
  r->bEqual = pKey->default_rc==0;
  return SQLITE_OK;
}

/* Turns a pending point or prefix into a range that starts (dir>0) or ends there and follows
** the cursor. */
static void plRdWiden(PlCursor *pX, int dir){
  PlReads *r = &pX->rd;
  int bTable = pX->pOut->pKeyInfo==0;
  int bInf = 0;
  if( r->eKind==PLR_ROW ){
    int bNone = 0;
    bInf = plRdCurrent(pX, &r->lo, &r->iLo, &bNone)!=SQLITE_OK || bNone;
  }else if( r->eKind==PLR_PREFIX && (r->bAfter || (dir<0 && r->bEqual)) ){
    bInf = !plSuccessor(&r->lo);
  }
  if( dir<0 ){
    if( bTable ){
      r->iHi = r->iLo;
    }else{
      PlBuf t = r->hi;
      r->hi = r->lo;
      r->lo = t;
    }
  }
  r->bLoInf = dir>0 && bInf;
  r->bHiInf = dir<0 && bInf;
  r->eKind = PLR_RANGE;
  r->bLoose = 0;
  r->iTail = (i8)dir;
}

/* Before a step in a direction that the pending range does not follow yet. */
static SQLITE_NOINLINE void plRdStepSlow(PlCursor *pX, int dir){
  PlReads *r = &pX->rd;
  if( r->eKind==PLR_RANGE ){
    /* The range ends there already. */
    if( r->iTail==0 && (dir>0 ? r->bHiInf : r->bLoInf) ) return;
    plRdFlush(pX);
  }
  if( r->eKind==PLR_NONE ){
    int bNone = 0;
    int rc;
    if( plNowhere(pX) ) return;
    rc = dir>0 ? plRdCurrent(pX, &r->lo, &r->iLo, &bNone) : plRdCurrent(pX, &r->hi, &r->iHi, &bNone);
    int bInf = rc!=SQLITE_OK || bNone;
    r->eKind = PLR_RANGE;
    r->bLoose = 0;
    r->bLoInf = dir>0 && bInf;
    r->bHiInf = dir<0 && bInf;
    r->iTail = (i8)dir;
    return;
  }
  if( r->eKind==PLR_POINT && r->iStep==dir ){
    r->iStep = 0;
    return;
  }
  plRdWiden(pX, dir);
}
static SQLITE_INLINE void plRdStep(PlCursor *pX, int dir){
  if( plTracks(pX) && (pX->rd.eKind!=PLR_RANGE || pX->rd.iTail!=dir) ) plRdStepSlow(pX, dir);
}

/* A step found no further row. */
static void plRdEof(PlCursor *pX, int dir){
  PlReads *r = &pX->rd;
  if( r->eKind!=PLR_RANGE || r->iTail!=dir ) return;
  if( dir>0 ) r->bHiInf = 1;
  else r->bLoInf = 1;
  r->iTail = 0;
}

/* A loose seek's landing is used where it is: side as in rd.iSide. */
static void plRdUse(PlCursor *pX, int side){
  if( !pX->rd.bLoose ) return;
  plRdWiden(pX, side<0 ? -1 : +1);
  if( pX->pOut->eState!=CURSOR_VALID ) plRdEof(pX, side<0 ? -1 : +1);
}

/* OP_NoConflict has looked for what a new entry would collide with. With a NULL in the key nothing
** does, whatever is there. */
static void plUniqueProbed(BtCursor *pCur, UnpackedRecord *pKey){
  PlReads *r = &PL_X(pCur)->rd;
  if( plHasNull(pKey) ){
    r->eKind = PLR_NONE;
    r->bLoose = 0;
  }
}

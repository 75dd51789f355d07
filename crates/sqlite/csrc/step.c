/*
** step.c - First, Last, Next, Previous over the merge of base and overlay (TXN-1).
**
** The merge has two ordered sources, the inner cursor on the base and the iterator over the
** overlay. Each is brought to its first entry beyond the position K; the nearer one is the next
** row. On equal keys the overlay hides the base, and a tombstone hides both. eBase and eOver say
** where each source is relative to K, so that a step in the same direction moves each source at
** most once per row.
**
** Deleted rows that are not merged yet are in both sources, and a walk passes them one by one. To
** keep walks from passing the same rows again and again, a walk reports runs of them to the engine,
** which may know how far a run reaches (engine/src/database/gaps/): then the walk goes on at the
** last tombstone of the run. No row is between the two places, so what is read, which is recorded
** by where a walk begins and ends, is the same.
**
** PlBtree.nWalk counts what all this costs over a walk on the base alone, so that the engine can
** decide whether a merge would have cost less (engine/src/upkeep/pressure.rs). A step is some 25
** ns, the minimum: from one row of the base to the next, with a look at where the overlay goes on.
** PL_STEPS_x are the other costs, as measured.
**
** While a root has no overlay its cursors are PLC_PURE, and their steps come here only until a
** range follows them.
*/

#define PL_STEPS_BASE 2       /* a row of the base, found by the merge */
#define PL_STEPS_OVER 4       /* an entry of the overlay */
#define PL_STEPS_SEARCH 4     /* a search of the overlay */

/* Checks for an overlay at the cursor's root. SQLITE_OK: there may be one. SQLITE_DONE: there
** is none. */
static SQLITE_INLINE int plOverlay(PlCursor *pX){
  PlBtree *pPl = pX->pPl;
  if( pPl->bBaseOnly ) return SQLITE_DONE;
  return plFound(pPl, pl_root_overlay(pPl->pConn, pX->pOut->pgnoRoot));
}

/* Reads the overlay's entry of one key. SQLITE_OK, or SQLITE_DONE if it has none. */
static SQLITE_INLINE int plOverGet(PlCursor *pX, const u8 *aKey, u32 nKey, PlEntry *pOut){
  return plFound(pX->pPl, pl_get(pX->pPl->pConn, pX->pOut->pgnoRoot, aKey, nKey, pOut));
}

static int plIterOpen(PlCursor *pX){
  int rc;
  if( pX->pIter ) return SQLITE_OK;
  pX->eOver = PLO_UNSYNC;
  rc = pl_iter_new(pX->pPl->pConn, pX->pOut->pgnoRoot, &pX->pSpare);
  if( rc ) return plFail(pX->pPl->pBtree, rc);
  pX->pIter = pX->pSpare;
  pX->pSpare = 0;
  return SQLITE_OK;
}

/* Brings the iterator to its first entry beyond the position. */
static int plOverAhead(PlCursor *pX, int dir){
  u8 ahead = dir>0 ? PLO_FWD : PLO_BWD;
  u8 end = dir>0 ? PLO_ENDF : PLO_ENDB;
  int rc;
  if( pX->eOver==ahead || pX->eOver==end ) return SQLITE_OK;
  rc = plIterOpen(pX);
  if( rc ) return rc;
  pX->bLook = 0;
  if( pX->eOver==PLO_AT ){
    rc = dir>0 ? pl_iter_next(pX->pIter, &pX->look) : pl_iter_prev(pX->pIter, &pX->look);
  }else{
    int mode;
    const u8 *a;
    u8 aRowid[8];
    u32 n = 8;
    switch( pX->ePos ){
      case POS_BEFORE: mode = dir>0 ? PL_SEEK_GE : PL_SEEK_LT; break;
      case POS_AFTER:  mode = dir>0 ? PL_SEEK_PREFIX_GT : PL_SEEK_PREFIX_LE; break;
      default:         mode = dir>0 ? PL_SEEK_GT : PL_SEEK_LT; break;
    }
    if( pX->pOut->pKeyInfo==0 ){
      plEncodeRowid(aRowid, pX->iKey);
      a = aRowid;
    }else{
      rc = plKey(pX, &a, &n);
      if( rc ) return rc;
    }
    pX->pPl->nWalk += PL_STEPS_SEARCH;
    rc = pl_iter_seek(pX->pIter, mode, a, n, &pX->look);
  }
  pX->eOver = rc==SQLITE_OK ? ahead : rc==SQLITE_DONE ? end : PLO_UNSYNC;
  return pX->eOver==PLO_UNSYNC ? plFail(pX->pPl->pBtree, rc) : SQLITE_OK;
}

/* Finds where the search for the base's next entry starts. *pbRow: inner is on a row then. *pbStep:
** that row is known not to be beyond K. *pbCheck: that row might be K itself. */
static int plBaseStart(PlCursor *pX, int dir, int *pbRow, int *pbStep, int *pbCheck){
  int rc = plInnerOpen(pX);
  int res;
  *pbRow = 1;
  *pbStep = *pbCheck = 0;
  if( rc ) return rc;
  switch( pX->eBase ){
    case PLB_AT:
      *pbStep = 1;
      break;
    case PLB_FWD:
    case PLB_BWD:
      *pbStep = *pbCheck = 1;
      break;
    case PLB_ENDF:
    case PLB_ENDB:
      pX->bBaseKey = 0;
      rc = dir>0 ? sqlite3StockBtreeFirst(pX->pIn, &res) : sqlite3StockBtreeLast(pX->pIn, &res);
      *pbRow = !res;
      *pbCheck = 1;
      break;
    default:
      rc = plInnerSeek(pX, &res);
      if( rc ) return rc;
      *pbRow = pX->pIn->eState==CURSOR_VALID;
      if( res==0 ){
        *pbStep = pX->ePos==POS_BEFORE ? dir<0 : pX->ePos==POS_AFTER ? dir>0 : 1;
      }else{
        *pbStep = dir>0 ? res<0 : res>0;
      }
      break;
  }
  return rc;
}

/* Brings the inner cursor to its first entry beyond the position. */
static int plBaseAhead(PlCursor *pX, int dir){
  u8 ahead = dir>0 ? PLB_FWD : PLB_BWD;
  u8 end = dir>0 ? PLB_ENDF : PLB_ENDB;
  int bRow, bStep, bCheck, rc;
  if( pX->eBase==ahead || pX->eBase==end || pX->eBase==PLB_NONE ) return SQLITE_OK;
  rc = plBaseStart(pX, dir, &bRow, &bStep, &bCheck);
  if( rc==SQLITE_OK && bRow && bStep ) rc = plInnerStep(pX, dir, &bRow);
  if( rc==SQLITE_OK && bRow && bCheck && (pX->ePos==POS_ROW || pX->ePos==POS_GONE) ){
    int c = 0;
    rc = plInnerVsKey(pX, &c);
    if( rc==SQLITE_OK && c==0 ) rc = plInnerStep(pX, dir, &bRow);
  }
  if( rc ) return rc;
  pX->eBase = bRow ? ahead : end;
  return SQLITE_OK;
}

/* A walk looks up the run of deleted rows that it is in after each PL_SKIP_STEP of them. */
#define PL_SKIP_STEP 4
#define PL_SKIP_FIRST 2    /* the first time after this many */

/* The walk is on a deleted row, after others. Goes to the last tombstone that is known to have no
** row before it. */
static int plSkipRun(PlCursor *pX, int dir, int bFirst){
  int rc = pl_iter_skip(pX->pIter, dir, bFirst, &pX->look);
  pX->bLook = 0;
  if( rc==SQLITE_DONE ) return SQLITE_OK;
  if( rc ){
    pX->eOver = PLO_UNSYNC;
    return plFail(pX->pPl->pBtree, rc);
  }
  pX->cur = pX->look;
  if( pX->pOut->pKeyInfo==0 ) pX->iKey = plDecodeRowid(pX->cur.key);
  if( pX->eBase!=PLB_NONE ) pX->eBase = PLB_UNSYNC;
  return SQLITE_OK;
}

/* True if the key of an overlay entry starts with these bytes. */
static SQLITE_INLINE int plStartsWith(const PlEntry *pEntry, const PlBuf *pPrefix){
  return pEntry->nKey>=pPrefix->n && memcmp(pEntry->key, pPrefix->p, pPrefix->n)==0;
}

/* The walk has met no row that is wanted, and stays where it is. */
static int plBeyond(PlCursor *pX){
  pX->pOut->eState = CURSOR_INVALID;
  return SQLITE_NOTFOUND;
}

/* The walk of plMergeStep(); *pnSkipped counts deleted rows. */
static int plMergeWalk(PlCursor *pX, int dir, const PlBuf *pPrefix, u32 *pnSkipped){
  BtCursor *pOut = pX->pOut;
  u8 aheadBase = dir>0 ? PLB_FWD : PLB_BWD;
  u8 aheadOver = dir>0 ? PLO_FWD : PLO_BWD;
  for(;;){
    int bBase, bOver, c = 0;
    int rc = plOverAhead(pX, dir);          /* first: it needs K, which may be on inner's row */
    if( rc==SQLITE_OK ) rc = plBaseAhead(pX, dir);
    bBase = pX->eBase==aheadBase;
    bOver = pX->eOver==aheadOver;
    if( rc==SQLITE_OK && bBase && bOver ) rc = plInnerVsLook(pX, &c);
    if( rc ) return rc;
    if( !bBase && !bOver ){
      pX->ePos = POS_NONE;
      pOut->eState = CURSOR_INVALID;
      return SQLITE_DONE;
    }
    if( dir<0 ) c = -c;
    if( bBase && (!bOver || c<0) ){
      pX->pPl->nWalk += PL_STEPS_BASE;
      pX->bKey = pX->bRec = 0;
      if( pOut->pKeyInfo==0 ) pX->iKey = sqlite3StockBtreeIntegerKey(pX->pIn);
      pX->eSrc = SRC_BASE;
      pX->eBase = PLB_AT;
      pX->ePos = POS_ROW;
      pOut->eState = CURSOR_VALID;
      return SQLITE_OK;
    }
    if( pPrefix && pX->look.tombstone && !plStartsWith(&pX->look, pPrefix) ) return plBeyond(pX);
    pX->pPl->nWalk += PL_STEPS_OVER;
    pX->bKey = pX->bRec = 0;
    if( bBase && c==0 ) pX->eBase = PLB_AT;
    pX->cur = pX->look;
    pX->eSrc = SRC_OVER;
    pX->eOver = PLO_AT;
    if( pOut->pKeyInfo==0 ) pX->iKey = plDecodeRowid(pX->cur.key);
    if( !pX->cur.tombstone ){
      pX->ePos = POS_ROW;
      pOut->eState = CURSOR_VALID;
      return SQLITE_OK;
    }
    pX->ePos = POS_GONE;
    if( (++*pnSkipped % PL_SKIP_STEP)==PL_SKIP_FIRST ){
      rc = plSkipRun(pX, dir, *pnSkipped==PL_SKIP_FIRST);
      if( rc ) return rc;
      if( pPrefix && !plStartsWith(&pX->cur, pPrefix) ) return plBeyond(pX);
      if( AtomicLoad(&pOut->pBtree->db->u1.isInterrupted) ){
        pOut->eState = CURSOR_SKIPNEXT;
        return SQLITE_INTERRUPT;
      }
    }
  }
}

/* The last row was the base's, and the overlay's next entry is known: steps to the base's next
** row, if that comes first. SQLITE_DONE: plMergeWalk() has to decide, from where the stock cursor
** is now. */
static int plStepBase(PlCursor *pX, int dir){
  int bRow, c = -dir;
  int rc = plInnerStep(pX, dir, &bRow);
  if( rc ) return rc;
  pX->eBase = bRow ? (dir>0 ? PLB_FWD : PLB_BWD) : (dir>0 ? PLB_ENDF : PLB_ENDB);
  if( !bRow ) return SQLITE_DONE;
  if( pX->eOver==PLO_FWD || pX->eOver==PLO_BWD ) rc = plInnerVsLook(pX, &c);
  if( rc ) return rc;
  if( dir>0 ? c>=0 : c<=0 ) return SQLITE_DONE;
  pX->pPl->nWalk++;
  pX->bKey = pX->bRec = 0;
  if( pX->pOut->pKeyInfo==0 ) pX->iKey = sqlite3StockBtreeIntegerKey(pX->pIn);
  pX->eBase = PLB_AT;
  return SQLITE_OK;
}
static SQLITE_INLINE int plGoesOnInBase(PlCursor *pX, int dir){
  return pX->eSrc==SRC_BASE && pX->eBase==PLB_AT && pX->ePos==POS_ROW && pX->pOut->eState==CURSOR_VALID
      && (dir>0 ? pX->eOver==PLO_FWD || pX->eOver==PLO_ENDF : pX->eOver==PLO_BWD || pX->eOver==PLO_ENDB);
}

/* Moves to the next row beyond the position. SQLITE_DONE: there is none, the cursor is nowhere.
** With pPrefix only rows that start with it are wanted. SQLITE_NOTFOUND: the walk met a deleted
** one beyond them first; then the cursor is INVALID, at a place with no row between it and where
** it was. */
static int plMergeStep(PlCursor *pX, int dir, const PlBuf *pPrefix){
  u32 nSkipped = 0;
  int rc;
  u8 eRun = pX->eRun==RUN_GONE && pX->ePos==POS_GONE ? RUN_NEXT : RUN_NONE;
  pX->eRun = RUN_NONE;
  if( pX->ePos==POS_NONE ) return SQLITE_DONE;
  if( plGoesOnInBase(pX, dir) ){
    rc = plStepBase(pX, dir);
    if( rc!=SQLITE_DONE ) return rc;
  }
  rc = plMergeWalk(pX, dir, pPrefix, &nSkipped);
  if( nSkipped>=PL_SKIP_FIRST ){
    int rc2 = pl_iter_skipped(pX->pIter);
    if( rc2 ) rc = plFail(pX->pPl->pBtree, rc2);
  }
  if( rc==SQLITE_OK ) pX->eRun = eRun;
  return rc;
}

/* Next (dir>0) and Previous, where the merge is needed, or a record of where a range starts. The
** read is recorded before the step and, if there was no row, after it: whatever the cursor is on
** and however the step ends (READSET-2). */
static SQLITE_INLINE int plStep(BtCursor *pCur, int dir, int flags){
  PlCursor *pX = PL_X(pCur);
  int rc;
  if( pCur->eState==CURSOR_FAULT ) return pCur->skipNext;
  plRdStep(pX, dir);
  if( pX->eMode==PLC_PURE ){
    if( pX->rd.eKind==PLR_RANGE && pX->rd.iTail==dir ) pCur->hints &= ~(dir>0 ? PLH_Next : PLH_Prev);
    rc = dir>0 ? sqlite3StockBtreeNext(pCur, flags) : sqlite3StockBtreePrevious(pCur, flags);
  }else{
    rc = plMergeStep(pX, dir, 0);
  }
  if( rc==SQLITE_DONE ) plRdEof(pX, dir);
  return rc;
}

static int plBtreeNext(BtCursor *pCur, int flags){
  return plStep(pCur, +1, flags);
}

static int plBtreePrevious(BtCursor *pCur, int flags){
  return plStep(pCur, -1, flags);
}

/* First (dir>0) and Last. *pRes: 1 if the b-tree is empty. Records no read: see plBtreeEnd()
** and plNewRowidCandidate(). */
static int plSeekEnd(PlCursor *pX, int dir, int *pRes){
  BtCursor *pOut = pX->pOut;
  int res = 0, rc;
  if( pX->eMode==PLC_PASS ){
    pX->bSeeked = 1;
    return dir>0 ? sqlite3StockBtreeFirst(pOut, pRes) : sqlite3StockBtreeLast(pOut, pRes);
  }
  if( pOut->eState==CURSOR_FAULT ) return pOut->skipNext;
  plRdFlush(pX);
  pX->eRun = RUN_NONE;
  rc = plOverlay(pX);
  if( rc==SQLITE_DONE ){
    rc = plGoPure(pX);
    if( rc==SQLITE_OK ) rc = dir>0 ? sqlite3StockBtreeFirst(pOut, pRes) : sqlite3StockBtreeLast(pOut, pRes);
    if( rc ) pOut->eState = CURSOR_INVALID;
    return rc;
  }
  plToMerge(pX);
  pX->bKey = pX->bRec = pX->bBaseKey = 0;
  pX->ePos = POS_NONE;
  pOut->eState = CURSOR_INVALID;
  if( rc==SQLITE_OK ) rc = plInnerOpen(pX);
  if( rc==SQLITE_OK ) rc = dir>0 ? sqlite3StockBtreeFirst(pX->pIn, &res) : sqlite3StockBtreeLast(pX->pIn, &res);
  if( rc==SQLITE_OK ) rc = plIterOpen(pX);
  if( rc ) return rc;
  pX->eBase = res ? PLB_NONE : dir>0 ? PLB_FWD : PLB_BWD;
  pX->ePos = POS_GONE;
  pX->bLook = 0;
  if( dir>0 ){
    rc = pl_iter_seek(pX->pIter, PL_SEEK_GE, 0, 0, &pX->look);
    pX->eOver = rc==SQLITE_OK ? PLO_FWD : PLO_ENDF;
  }else{
    rc = pl_iter_last(pX->pIter, &pX->look);
    pX->eOver = rc==SQLITE_OK ? PLO_BWD : PLO_ENDB;
  }
  if( rc!=SQLITE_OK && rc!=SQLITE_DONE ){
    pX->ePos = POS_NONE;
    pX->eOver = PLO_UNSYNC;
    return plFail(pX->pPl->pBtree, rc);
  }
  rc = plMergeStep(pX, dir, 0);
  *pRes = rc==SQLITE_DONE;
  return rc==SQLITE_DONE ? SQLITE_OK : rc;
}

static int plBtreeEnd(PlCursor *pX, int dir, int *pRes){
  int rc = plSeekEnd(pX, dir, pRes);
  if( rc==SQLITE_OK ){
    plRdEnd(pX, dir);
    if( *pRes ) plRdEof(pX, dir);
  }
  return rc;
}

static int plBtreeFirst(BtCursor *pCur, int *pRes){
  PlCursor *pX = PL_X(pCur);
  pX->bQuiet = plIsSequence(pX);
  if( pX->bQuiet && pX->pPl->bTrack ) pX->pPl->iLookedUp = pCur->pgnoRoot;
  return plBtreeEnd(pX, +1, pRes);
}

static int plBtreeLast(BtCursor *pCur, int *pRes){
  return plBtreeEnd(PL_X(pCur), -1, pRes);
}

static int plBtreeIsEmpty(BtCursor *pCur, int *pRes){
  if( PL_X(pCur)->eMode==PLC_PASS ) return sqlite3StockBtreeIsEmpty(pCur, pRes);
  if( pCur->eState==CURSOR_VALID ){
    plRdUse(PL_X(pCur), PL_X(pCur)->rd.iSide);
    *pRes = 0;
    return SQLITE_OK;
  }
  return plBtreeFirst(pCur, pRes);
}

/* Looks a saved row up again: btreeRestoreCursorPosition(). */
static int plRestore(PlCursor *pX){
  BtCursor *pOut = pX->pOut;
  const u8 *a;
  u8 aRowid[8];
  u32 n = 8;
  int rc = SQLITE_OK, bAt;
  PlEntry e;
  if( pOut->eState==CURSOR_FAULT ) return pOut->skipNext;
  if( pOut->eState!=CURSOR_REQUIRESEEK ) return SQLITE_OK;
  if( pOut->pKeyInfo==0 ){
    plEncodeRowid(aRowid, pX->iKey);
    a = aRowid;
  }else{
    rc = plKey(pX, &a, &n);
    if( rc ) return rc;
  }
  rc = plOverlay(pX);
  if( rc==SQLITE_OK ) rc = plOverGet(pX, a, n, &e);
  if( rc!=SQLITE_OK && rc!=SQLITE_DONE ) return rc;
  if( rc==SQLITE_OK ){
    if( pOut->pKeyInfo && !pX->bKey ){
      /* K is still on inner's row: keep it, pl_get() returns no key. */
      rc = plEncodeRecord(pX, e.rec, e.nRec, &pX->key);
      if( rc ) return rc;
      pX->bKey = 1;
    }
    pX->cur = e;
    pX->eSrc = SRC_OVER;
    pX->bRec = 0;
    pX->ePos = e.tombstone ? POS_GONE : POS_ROW;
    pOut->eState = e.tombstone ? CURSOR_SKIPNEXT : CURSOR_VALID;
    return SQLITE_OK;
  }
  if( pX->eBase==PLB_UNSYNC ){
    int res;
    rc = plInnerSeek(pX, &res);
    if( rc ) return rc;
    pX->eBase = pX->pIn->eState!=CURSOR_VALID ? PLB_NONE : res==0 ? PLB_AT : res<0 ? PLB_BWD : PLB_FWD;
  }
  bAt = pX->eBase==PLB_AT;
  if( bAt ) pX->eSrc = SRC_BASE;
  pX->ePos = bAt ? POS_ROW : POS_GONE;
  pOut->eState = bAt ? CURSOR_VALID : CURSOR_SKIPNEXT;
  return SQLITE_OK;
}

static int plBtreeCursorRestore(BtCursor *pCur, int *pDifferentRow){
  int rc = plRestore(PL_X(pCur));
  *pDifferentRow = rc!=SQLITE_OK || pCur->eState!=CURSOR_VALID;
  return rc;
}

/* True if the cursor is on no row. After a seek that found nothing, stock code calls this to learn
** whether a row is before the key: go there. */
static int plBtreeEof(BtCursor *pCur){
  PlCursor *pX = PL_X(pCur);
  if( pX->eMode==PLC_MERGE && pCur->eState==CURSOR_INVALID && pX->ePos!=POS_NONE ){
    int rc = plMergeStep(pX, -1, 0);
    pX->rd.iSide = -1;
    if( rc!=SQLITE_OK && rc!=SQLITE_DONE ){
      pCur->eState = CURSOR_FAULT;
      pCur->skipNext = rc;
      return 0;
    }
  }
  plRdUse(pX, pX->rd.iSide);
  return pCur->eState!=CURSOR_VALID;
}

/* The end of an OP_SeekXX. bFound: its landing is the row that the scan starts from. */
static void plSeekLanded(BtCursor *pCur, int bFound){
  if( bFound ) plRdUse(PL_X(pCur), PL_X(pCur)->rd.iSide);
}

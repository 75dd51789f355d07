/*
** map_walk.c - the operations on ranges, and cursors.
**
** A cursor has a program of its own, which rests at a ResultRow between moves, as a SELECT does
** between steps: each move steps it, and its function moves the b-tree cursor. The results may
** point into a page; code that changes pages saves the positions of all cursors first, and releases
** the page.
**
** While the program rests, the machine would do nothing for a move but call the function, so the
** move calls the function itself: plCursorGoOn(). The statement stays open. A failure goes to the
** machine, which handles failures: PlOp.rcMoved.
*/
/* The first call goes to the first row. Later calls go on. */
static int plStartRange(PlOp *pOp, int *pbRow){
  int rc = plBounds(pOp, &pOp->b, pOp->pRange);
  if( rc || pOp->bStarted ) return rc;
  pOp->n = 0;
  pOp->bStarted = 1;
  return plEndRange(pOp, &pOp->b, +1, pbRow);
}

static int plDoCount(PlOp *pOp, int *pNext){
  int nLeft = PLM_STRIDE, bRow = 1, bAgain = pOp->bStarted;
  int rc = plStartRange(pOp, &bRow);
  if( rc==SQLITE_OK && bAgain ) rc = plStepRange(pOp, &pOp->b, +1, &bRow);
  while( rc==SQLITE_OK && bRow ){
    pOp->n++;
    if( --nLeft==0 ){
      *pNext = PLM_AGAIN;
      return SQLITE_OK;
    }
    rc = plStepRange(pOp, &pOp->b, +1, &bRow);
  }
  return rc;
}

/* Deletes the row of the key's cursor and goes on to the next. A row that SQL deletes may come back
** by a trigger, after the cursor. */
static int plDropHere(PlOp *pOp, int *pbRow){
  Mem hold, k;
  plait_value key;
  int bPast = 0, rc;
  if( !plNeedsSql(pOp, 0) ){
    rc = plDropRow(pOp, 0, 1);
    return rc ? rc : plStepRange(pOp, &pOp->b, +1, pbRow);
  }
  sqlite3VdbeMemInit(&hold, pOp->db, MEM_Null);
  rc = plKeyHere(pOp, &hold, &k);
  if( rc==SQLITE_OK ) rc = plAnswer(pOp, &k, &hold, 0, &key);
  if( rc==SQLITE_OK ) rc = plKeySet(pOp, &pOp->key, &key);
  if( rc==SQLITE_OK ) rc = plDropRow(pOp, &key, 0);
  if( rc==SQLITE_OK ) rc = plSeekKey(pOp, &pOp->key, +1, 1, pbRow);
  if( rc==SQLITE_OK && *pbRow ) rc = plPast(pOp, &pOp->b, +1, &bPast);
  if( bPast ) *pbRow = 0;
  plKeyClear(&pOp->key);
  sqlite3VdbeMemRelease(&hold);
  return rc;
}

static int plDoDeleteRange(PlOp *pOp, int *pNext){
  int nLeft = PLM_STRIDE, bRow = 1;
  int rc = plStartRange(pOp, &bRow);
  while( rc==SQLITE_OK && bRow ){
    if( nLeft--==0 ){
      *pNext = PLM_AGAIN;
      break;
    }
    pOp->bKept = 0;
    rc = plDropHere(pOp, &bRow);
    if( rc==SQLITE_OK ) pOp->n += !pOp->bKept;
  }
  return rc;
}

/* Returns the row that the key's cursor is on. */
static int plAnswerRow(PlOp *pOp, Mem *pHoldKey, Mem *pHoldValue, int bInPlace){
  int rc = SQLITE_OK;
  if( pOp->pKeyOut ) rc = plAnswerKey(pOp, pHoldKey, bInPlace, pOp->pKeyOut);
  if( rc==SQLITE_OK && pOp->pValueOut ) rc = plAnswerValue(pOp, pHoldValue, bInPlace, pOp->pValueOut);
  return rc;
}

static int plDoEnd(PlOp *pOp, int *pNext){
  PlAnswers *a = plAnswers(pOp->g->pMap);
  int bRow = 0;
  int rc = plBounds(pOp, &pOp->b, pOp->pRange);
  (void)pNext;
  if( rc==SQLITE_OK ) rc = plEndRange(pOp, &pOp->b, pOp->eMode, &bRow);
  pOp->bDone = (u8)bRow;
  return rc || !bRow ? rc : plAnswerRow(pOp, &a->key, &a->value, 0);
}

static int plRangeCall(
  plait_map *m, int eKind, int (*xDo)(PlOp*,int*), const plait_range *pRange, sqlite3_int64 *pn
){
  PlOp op;
  int rc;
  if( m==0 || plRangeBad(pRange) ) return plMapMisuse(m);
  plOpInit(&op);
  op.xDo = xDo;
  op.pRange = pRange;
  op.bJournal = 1;
  rc = eKind==PLP_WRITE ? plWriteCall(m, &op, 0) : plReadCall(m, &op, 0);
  if( rc==SQLITE_OK && pn ) *pn = op.n;
  return rc;
}
SQLITE_API int plait_count_range(plait_map *m, const plait_range *pRange, sqlite3_int64 *pn){
  return plRangeCall(m, PLP_READ, plDoCount, pRange, pn);
}
SQLITE_API int plait_delete_range(plait_map *m, const plait_range *pRange, sqlite3_int64 *pn){
  return plRangeCall(m, PLP_WRITE, plDoDeleteRange, pRange, pn);
}

static int plEndCall(plait_map *m, const plait_range *pRange, int dir, plait_value *pKey, plait_value *pValue){
  PlOp op;
  int bRow = 0, rc;
  if( m==0 || plRangeBad(pRange) ) return plMapMisuse(m);
  plOpInit(&op);
  op.xDo = plDoEnd;
  op.bShort = 1;
  op.pRange = pRange;
  op.eMode = dir;
  op.pKeyOut = pKey;
  op.pValueOut = pValue;
  rc = plReadCall(m, &op, &bRow);
  if( rc || !bRow ){
    if( pKey ) memset(pKey, 0, sizeof(*pKey));
    if( pValue ) memset(pValue, 0, sizeof(*pValue));
  }
  return rc;
}
SQLITE_API int plait_first(plait_map *m, const plait_range *pRange, plait_value *pKey, plait_value *pValue){
  return plEndCall(m, pRange, +1, pKey, pValue);
}
SQLITE_API int plait_last(plait_map *m, const plait_range *pRange, plait_value *pKey, plait_value *pValue){
  return plEndCall(m, pRange, -1, pKey, pValue);
}

/* ---- cursors */

#define PLC_FIRST 0
#define PLC_LAST  1
#define PLC_NEXT  2
#define PLC_PREV  3
#define PLC_SEEK  4

#define PLC_NEW    0     /* plait_cursor.eAt: nowhere yet */
#define PLC_ROW    1
#define PLC_BEFORE 2     /* before the first row of the range */
#define PLC_BEHIND 3     /* after the last */

struct plait_cursor {
  PlProg g;
  PlOp op;               /* with the bounds, as long as the program rests */
  plait_range range;
  u8 *aLo, *aHi;         /* copies of the bounds' bytes */
  u8 *aSeek;             /* copy of the key of a seek, which may be what the last move has answered */
  i64 nSeekAlloc;
  u8 bRange, bBusy;
  u8 eAt;
  u8 eMove;
  int eHow;              /* of a seek */
  int rcLost;            /* the move that lost the position */
  PlKey last;            /* key of the row that it is on */
  Mem holdKey, holdValue;
};

/* The move leaves the page to which the key may point. */
static int plKeepSeek(plait_cursor *c, plait_value *pKey){
  if( (pKey->type!=SQLITE_TEXT && pKey->type!=SQLITE_BLOB) || pKey->size==0 ) return SQLITE_OK;
  if( plValueBig(c->op.db, pKey) ) return SQLITE_TOOBIG;
  if( c->nSeekAlloc<pKey->size ){
    u8 *aNew = sqlite3Realloc(c->aSeek, (u64)pKey->size*5/4);
    if( aNew==0 ) return SQLITE_NOMEM_BKPT;
    c->aSeek = aNew;
    c->nSeekAlloc = pKey->size*5/4;
  }
  memcpy(c->aSeek, pKey->data, (size_t)pKey->size);
  pKey->data = c->aSeek;
  return SQLITE_OK;
}

static int plCursorSeek(PlOp *pOp, plait_cursor *c, int *pbRow){
  int how = c->eHow;
  int dir = how==PLAIT_LE || how==PLAIT_LT ? -1 : +1;
  int bOpen = how==PLAIT_GT || how==PLAIT_LT;
  PlBounds *b = &pOp->b;
  PlBounds one;
  plait_value key = *pOp->pKey;
  int bPast = 0, res, rc;
  *pbRow = 0;
  rc = plKeepSeek(c, &key);
  if( rc==SQLITE_OK ) rc = plKeySet(pOp, &pOp->key, &key);
  if( rc || b->bEmpty ) return rc;
  if( how==PLAIT_EQ ){
    rc = plFind(pOp, &pOp->key, &res);
    *pbRow = rc==SQLITE_OK && res==0;
  }else{
    memset(&one, 0, sizeof(one));
    one.bLo = dir>0;
    one.bHi = dir<0;
    one.bLoOpen = one.bHiOpen = (u8)bOpen;
    if( dir>0 ) one.lo = pOp->key;
    else one.hi = pOp->key;
    if( pOp->g->s.eForm==PLM_ROWIDS ) plBoundInteger(&one, dir>0);
    if( one.bEmpty ) return SQLITE_OK;
    if( dir>0 || one.bHi ) rc = plSeekKey(pOp, dir>0 ? &one.lo : &one.hi, dir, dir>0 ? one.bLoOpen : one.bHiOpen, pbRow);
    else rc = plEndKey(pOp, -1, pbRow);
  }
  if( rc || !*pbRow ) return rc;
  /* Outside of the range on the side that the seek came from: the range's own end is
  ** the nearest. */
  rc = plPast(pOp, b, -dir, &bPast);
  if( rc==SQLITE_OK && bPast ){
    *pbRow = 0;
    if( how!=PLAIT_EQ ) rc = plEndRange(pOp, b, dir, pbRow);
  }
  if( rc==SQLITE_OK && *pbRow ){
    rc = plPast(pOp, b, dir, &bPast);
    if( bPast ) *pbRow = 0;
  }
  return rc;
}

/* Keeps the key of the row that the cursor is on. */
static int plRemember(PlOp *pOp, PlKey *k){
  Mem hold, t;
  plait_value v;
  int rc;
  if( pOp->g->s.eForm==PLM_ROWIDS ){
    k->bInt = 1;
    k->i = sqlite3BtreeIntegerKey(plKeyCursor(pOp->g));
    return SQLITE_OK;
  }
  sqlite3VdbeMemInit(&hold, pOp->db, MEM_Null);
  if( !k->bSet ) sqlite3VdbeMemInit(&k->m, pOp->db, MEM_Null);
  k->bSet = 1;
  if( plFieldOnPage(pOp, plKeyCursor(pOp->g), 0, &v) ){
    rc = plKeep(&k->m, &v);
    if( v.type==SQLITE_TEXT ) k->m.flags = MEM_Str;
    k->m.enc = SQLITE_UTF8;
    return rc;
  }
  rc = plKeyHere(pOp, &hold, &t);
  if( rc==SQLITE_OK ) rc = sqlite3VdbeMemCopy(&k->m, &t);
  sqlite3VdbeMemRelease(&hold);
  return rc;
}

/* Steps a cursor that is on a row, or was. */
static int plCursorStep(PlOp *pOp, plait_cursor *c, int dir, int *pbRow){
  int bPast = 0, rc;
  if( !sqlite3BtreeCursorHasMoved(plKeyCursor(pOp->g)) ) return plStepRange(pOp, &pOp->b, dir, pbRow);
  rc = plSeekKey(pOp, &c->last, dir, 1, pbRow);
  if( rc==SQLITE_OK && *pbRow ) rc = plPast(pOp, &pOp->b, dir, &bPast);
  if( bPast ) *pbRow = 0;
  return rc;
}

static int plDoMove(PlOp *pOp, int *pNext){
  plait_cursor *c = pOp->pArg;
  int eMove = c->eMove, dir = eMove==PLC_FIRST || eMove==PLC_NEXT ? +1 : -1;
  int bRow = 0;
  int rc = pOp->rcMoved;
  (void)pNext;
  pOp->rcMoved = SQLITE_OK;
  if( rc ) return rc;
  if( !pOp->b.bReady ) rc = plBounds(pOp, &pOp->b, c->bRange ? &c->range : 0);
  pOp->bDone = 0;
  if( rc ) return rc;
  if( eMove==PLC_SEEK ){
    rc = plCursorSeek(pOp, c, &bRow);
    dir = c->eHow==PLAIT_LE || c->eHow==PLAIT_LT ? -1 : +1;
  }else if( c->eAt==PLC_ROW && eMove>=PLC_NEXT ){
    rc = plCursorStep(pOp, c, dir, &bRow);
  }else if( eMove<PLC_NEXT || c->eAt==PLC_NEW || c->eAt==(dir>0 ? PLC_BEFORE : PLC_BEHIND) ){
    rc = plEndRange(pOp, &pOp->b, dir, &bRow);
  }
  if( rc==SQLITE_OK && bRow ) rc = plRemember(pOp, &c->last);
  if( rc ) return rc;
  c->eAt = bRow ? PLC_ROW : dir>0 ? PLC_BEHIND : PLC_BEFORE;
  pOp->bDone = (u8)bRow;
  return bRow ? plAnswerRow(pOp, &c->holdKey, &c->holdValue, 1) : SQLITE_OK;
}

/* Copies a bound, whose bytes the cursor owns then. */
static int plKeepBound(plait_value *p, u8 **pa){
  if( (p->type!=SQLITE_TEXT && p->type!=SQLITE_BLOB) || p->size==0 ) return SQLITE_OK;
  *pa = sqlite3Malloc((u64)p->size);
  if( *pa==0 ) return SQLITE_NOMEM_BKPT;
  memcpy(*pa, p->data, (size_t)p->size);
  p->data = *pa;
  return SQLITE_OK;
}

static void plCursorFree(plait_cursor *c){
  sqlite3_free(c->aLo);
  sqlite3_free(c->aHi);
  sqlite3_free(c->aSeek);
  sqlite3_free(c);
}

SQLITE_API int plait_cursor_open(plait_map *m, const plait_range *pRange, plait_cursor **ppCursor){
  plait_cursor *c;
  int rc = SQLITE_OK;
  if( ppCursor==0 ) return SQLITE_MISUSE_BKPT;
  *ppCursor = 0;
  if( m==0 || plRangeBad(pRange) ) return plMapMisuse(m);
  sqlite3_mutex_enter(m->db->mutex);
  c = sqlite3MallocZero(sizeof(*c));
  if( c==0 ){
    rc = SQLITE_NOMEM_BKPT;
  }else if( plRangeBig(m->db, pRange) ){
    rc = plTooBig(m->db);
  }else{
    c->g.pMap = m;
    c->op.db = m->db;
    c->op.g = &c->g;
    c->op.pArg = c;
    c->op.xDo = plDoMove;
    sqlite3VdbeMemInit(&c->holdKey, m->db, MEM_Null);
    sqlite3VdbeMemInit(&c->holdValue, m->db, MEM_Null);
    if( pRange ){
      c->range = *pRange;
      c->bRange = 1;
      rc = plKeepBound(&c->range.lo, &c->aLo);
      if( rc==SQLITE_OK ) rc = plKeepBound(&c->range.hi, &c->aHi);
    }
    if( rc==SQLITE_OK ) rc = plMapBuild(&c->g, PLP_CURSOR);
  }
  if( rc==SQLITE_OK ){
    m->nRef++;
    *ppCursor = c;
  }else{
    if( rc==SQLITE_NOMEM ) sqlite3Error(m->db, rc);
    if( c ) plCursorFree(c);
  }
  return plMapLeave(m, rc);
}

/* Ends the statement. Returns its failure. */
static int plCursorReset(plait_cursor *c){
  int rc = c->g.v ? sqlite3_reset((sqlite3_stmt*)c->g.v) : SQLITE_OK;
  plOpClear(&c->op);
  plKeyClear(&c->last);
  c->op.b.bReady = 0;
  c->op.rcMoved = SQLITE_OK;
  return rc;
}

/* Moves in a program that rests. False: the machine has to move; if rcMoved is an error, the move
** is done already. */
static int plCursorGoOn(plait_cursor *c){
  sqlite3 *db = c->op.db;
  Vdbe *v = c->g.v;
  int eNext = PLM_DONE;
  if( v==0 || v->eVdbeState!=VDBE_RUN_STATE || AtomicLoad(&db->u1.isInterrupted) ) return 0;
  if( db->xProgress || db->mTrace || db->mallocFailed ) return 0;
  sqlite3VdbeEnter(v);
  c->op.rcMoved = plDoMove(&c->op, &eNext);
  sqlite3VdbeLeave(v);
  if( db->mallocFailed ) c->op.rcMoved = SQLITE_NOMEM_BKPT;
  if( c->op.rcMoved ) return 0;
  sqlite3Error(db, SQLITE_OK);
  db->errCode = SQLITE_ROW;
  return 1;
}

/* Moves once; the first move begins the statement. */
static int plCursorRun(plait_cursor *c){
  int nTry, rc = SQLITE_OK;
  if( plCursorGoOn(c) ) return SQLITE_OK;
  for(nTry=0; nTry<PL_SCHEMA_RETRIES; nTry++){
    if( c->g.v==0 || (c->g.v->expired && c->g.v->eVdbeState!=VDBE_RUN_STATE) ){
      rc = plMapBuild(&c->g, PLP_CURSOR);
      if( rc ) return rc;
    }
    c->g.pOp = &c->op;
    if( sqlite3_step((sqlite3_stmt*)c->g.v)==SQLITE_ROW ) return SQLITE_OK;
    rc = plCursorReset(c);
    if( rc!=SQLITE_SCHEMA ) break;
    c->g.v->expired = 1;
  }
  return rc ? rc : SQLITE_ABORT;
}

static int plCursorMove(
  plait_cursor *c, int eMove, int eHow, const plait_value *pKey, plait_value *pKeyOut, plait_value *pValueOut
){
  plait_map *m;
  int rc;
  if( c==0 ) return SQLITE_MISUSE_BKPT;
  m = c->g.pMap;
  sqlite3_mutex_enter(m->db->mutex);
  if( pKeyOut ) memset(pKeyOut, 0, sizeof(*pKeyOut));
  if( pValueOut ) memset(pValueOut, 0, sizeof(*pValueOut));
  if( c->bBusy ){
    rc = SQLITE_MISUSE_BKPT;
  }else if( c->rcLost && eMove!=PLC_FIRST && eMove!=PLC_LAST && eMove!=PLC_SEEK ){
    rc = c->rcLost;
    sqlite3ErrorWithMsg(m->db, rc, "%s: the cursor has lost its place; seek again", plErrStr(m->db, rc));
  }else{
    c->bBusy = 1;
    c->eMove = (u8)eMove;
    c->eHow = eHow;
    c->op.pKey = pKey;
    c->op.pKeyOut = pKeyOut;
    c->op.pValueOut = pValueOut;
    rc = plCursorRun(c);
    c->bBusy = 0;
    c->rcLost = rc;
    if( rc==SQLITE_OK ) rc = c->op.bDone ? SQLITE_ROW : SQLITE_DONE;
    else c->eAt = PLC_NEW;
  }
  if( rc!=SQLITE_ROW && rc!=SQLITE_DONE ) return plMapLeave(m, rc);
  sqlite3_mutex_leave(m->db->mutex);
  return rc;
}
SQLITE_API int plait_cursor_first(plait_cursor *c, plait_value *pKey, plait_value *pValue){
  return plCursorMove(c, PLC_FIRST, 0, 0, pKey, pValue);
}
SQLITE_API int plait_cursor_last(plait_cursor *c, plait_value *pKey, plait_value *pValue){
  return plCursorMove(c, PLC_LAST, 0, 0, pKey, pValue);
}
SQLITE_API int plait_cursor_next(plait_cursor *c, plait_value *pKey, plait_value *pValue){
  return plCursorMove(c, PLC_NEXT, 0, 0, pKey, pValue);
}
SQLITE_API int plait_cursor_prev(plait_cursor *c, plait_value *pKey, plait_value *pValue){
  return plCursorMove(c, PLC_PREV, 0, 0, pKey, pValue);
}
SQLITE_API int plait_cursor_seek(plait_cursor *c, plait_value key, int how, plait_value *pKey, plait_value *pValue){
  if( c==0 || how<PLAIT_EQ || how>PLAIT_LT || plValueBad(&key, 1) ) return plMapMisuse(c ? c->g.pMap : 0);
  return plCursorMove(c, PLC_SEEK, how, &key, pKey, pValue);
}

SQLITE_API int plait_cursor_close(plait_cursor *c){
  plait_map *m;
  if( c==0 ) return SQLITE_OK;
  m = c->g.pMap;
  sqlite3_mutex_enter(m->db->mutex);
  if( c->bBusy ){
    sqlite3_mutex_leave(m->db->mutex);
    return SQLITE_MISUSE_BKPT;
  }
  (void)plCursorReset(c);
  plProgClear(&c->g);
  sqlite3VdbeMemRelease(&c->holdKey);
  sqlite3VdbeMemRelease(&c->holdValue);
  plCursorFree(c);
  plMapRelease(m);
  return SQLITE_OK;
}

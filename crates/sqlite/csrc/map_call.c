/*
** map_call.c - the operations on single keys.
**
** Each is a function that the map's program calls (see map.c), and the call of plait.h that runs
** it. A function that returns with PLM_ROWID is called again and repeats everything: nothing was
** written by then.
*/

static int plLookUp(PlOp *pOp, const plait_value *pKey, int *pRes){
  int rc = plKeySet(pOp, &pOp->key, pKey);
  return rc ? rc : plFind(pOp, &pOp->key, pRes);
}

static int plDoGet(PlOp *pOp, int *pNext){
  int res, rc = plLookUp(pOp, pOp->pKey, &res);
  (void)pNext;
  pOp->bDone = rc==SQLITE_OK && res==0;
  if( !pOp->bDone || pOp->pValueOut==0 ) return rc;
  return plAnswerValue(pOp, &plAnswers(pOp->g->pMap)->value, 0, pOp->pValueOut);
}

/* Sets the key by which a row would be stored. A column of type REAL turns an integer into the
** number next to it, which no comparison does. */
static int plStoredKey(PlOp *pOp, PlKey *k, const plait_value **ppKey, plait_value *pStored){
  int rc = plKeySet(pOp, k, *ppKey);
  if( rc || pOp->g->s.affKey!=SQLITE_AFF_REAL || (k->m.flags & (MEM_Int|MEM_IntReal))==0 ) return rc;
  *pStored = plait_real((double)k->m.u.i);
  *ppKey = pStored;
  return plKeySet(pOp, k, pStored);
}

/* Looks up the key by which a row would be stored, for an operation that may make the row. */
static int plLookUpStored(PlOp *pOp, int *pRes){
  int rc = plStoredKey(pOp, &pOp->key, &pOp->pKey, &pOp->stored);
  return rc ? rc : plFind(pOp, &pOp->key, pRes);
}

/* PLAIT_NONE for pValue deletes. */
static int plStore(PlOp *pOp, int res, const plait_value *pValue, int *pNext){
  int rc = SQLITE_OK;
  pOp->bKept = 0;
  if( pValue->type!=PLAIT_NONE ) rc = plWriteRow(pOp, pOp->pKey, res, pValue, pNext);
  else if( res==0 ) rc = plDropRow(pOp, pOp->pKey, 0);
  pOp->bDone = rc==SQLITE_OK && *pNext==PLM_DONE && !pOp->bKept && (res==0 || pValue->type!=PLAIT_NONE);
  return rc;
}

#define PLW_ALWAYS 0
#define PLW_ABSENT 1
#define PLW_THERE  2

static int plDoWrite(PlOp *pOp, int *pNext){
  int res, rc = pOp->eMode==PLW_THERE ? plLookUp(pOp, pOp->pKey, &res) : plLookUpStored(pOp, &res);
  pOp->bDone = 0;
  if( rc || (pOp->eMode==PLW_ABSENT && res==0) || (pOp->eMode==PLW_THERE && res!=0) ) return rc;
  return plStore(pOp, res, pOp->pValue, pNext);
}

/* Checks that the row that was looked up has this value. PLAIT_NONE: that it is absent. */
static int plHolds(PlOp *pOp, int res, const plait_value *pExpect, int *pbHolds){
  PlShape *s = &pOp->g->s;
  Mem hold, is, want;
  int rc;
  *pbHolds = (res!=0)==(pExpect->type==PLAIT_NONE);
  if( res!=0 || !*pbHolds ) return SQLITE_OK;
  sqlite3VdbeMemInit(&hold, pOp->db, MEM_Null);
  rc = plMemSet(pOp, &want, pExpect, s->affValue);
  if( rc==SQLITE_OK ) rc = plValueHere(pOp, &hold, &is);
  if( rc==SQLITE_OK ){
    if( s->affValue==SQLITE_AFF_REAL && (want.flags & (MEM_Int|MEM_IntReal)) ){
      sqlite3VdbeMemSetDouble(&want, (double)want.u.i);
    }
    *pbHolds = sqlite3_value_type(&is)==sqlite3_value_type(&want) && sqlite3MemCompare(&is, &want, 0)==0;
  }
  sqlite3VdbeMemRelease(&want);
  sqlite3VdbeMemRelease(&hold);
  return rc;
}

static int plDoSwap(PlOp *pOp, int *pNext){
  int res, bHolds = 0;
  int rc = pOp->pValue->type==PLAIT_NONE ? plLookUp(pOp, pOp->pKey, &res) : plLookUpStored(pOp, &res);
  pOp->bDone = 0;
  if( rc==SQLITE_OK ) rc = plHolds(pOp, res, pOp->pExpect, &bHolds);
  if( rc || !bHolds ) return rc;
  rc = plStore(pOp, res, pOp->pValue, pNext);
  if( rc==SQLITE_OK && *pNext==PLM_DONE ) pOp->bDone = !pOp->bKept;
  return rc;
}

/* plStore() for an operation whose result would be wrong if the row were left as it was. */
static int plStoreForSure(PlOp *pOp, int res, const plait_value *pValue, int *pNext){
  int rc = plStore(pOp, res, pValue, pNext);
  if( rc || !pOp->bKept ) return rc;
  return plOpError(pOp, SQLITE_CONSTRAINT, "a trigger or an ON CONFLICT IGNORE of \"%s\" has left the row as it was",
                   pOp->g->s.zTab);
}

/* Adds iDelta to the value of pOp->pKey. */
static int plAddTo(PlOp *pOp, i64 iDelta, i64 *piSum, int *pNext){
  Mem hold, v;
  plait_value sum = plait_int(0);
  int res, rc = plLookUpStored(pOp, &res);
  if( rc==SQLITE_OK && res==0 ){
    sqlite3VdbeMemInit(&hold, pOp->db, MEM_Null);
    rc = plValueHere(pOp, &hold, &v);
    if( rc==SQLITE_OK && (v.flags & (MEM_Int|MEM_IntReal))==0 ){
      rc = plOpError(pOp, SQLITE_MISMATCH, "the value to add to is not an integer");
    }else if( rc==SQLITE_OK ){
      sum.integer = v.u.i;
    }
    sqlite3VdbeMemRelease(&hold);
  }
  if( rc ) return rc;
  if( sqlite3AddInt64(&sum.integer, iDelta) ) return plOpError(pOp, SQLITE_ERROR, "integer overflow");
  *piSum = sum.integer;
  return plStoreForSure(pOp, res, &sum, pNext);
}
static int plDoAdd(PlOp *pOp, int *pNext){
  return plAddTo(pOp, pOp->pValue->integer, &pOp->n, pNext);
}

/* Joins the value and the tail. */
static int plJoin2(PlOp *pOp, plait_value *pOld, plait_value *pNew){
  const plait_value *pTail = pOp->pValue;
  u8 *a;
  pNew->size = pOld->size + pTail->size;
  if( pNew->size>pOp->db->aLimit[SQLITE_LIMIT_LENGTH] ) return SQLITE_TOOBIG;
  a = sqlite3Malloc((u64)pNew->size + 1);
  if( a==0 ) return SQLITE_NOMEM_BKPT;
  if( pOld->size ) memcpy(a, pOld->data, (size_t)pOld->size);
  if( pTail->size ) memcpy(&a[pOld->size], pTail->data, (size_t)pTail->size);
  pNew->data = a;
  return SQLITE_OK;
}
static int plDoAppend(PlOp *pOp, int *pNext){
  plait_value old, sum = *pOp->pValue;
  Mem hold, v;
  int res, rc = plLookUpStored(pOp, &res);
  if( rc==SQLITE_OK && res==0 ){
    sqlite3VdbeMemInit(&hold, pOp->db, MEM_Null);
    rc = plValueHere(pOp, &hold, &v);
    if( rc==SQLITE_OK ) rc = plAnswer(pOp, &v, &hold, 1, &old);
    if( rc==SQLITE_OK && old.type!=sum.type ){
      rc = plOpError(pOp, SQLITE_MISMATCH, "the value to append to is not %s", sum.type==SQLITE_TEXT ? "text" : "bytes");
    }
    if( rc==SQLITE_OK ) rc = plJoin2(pOp, &old, &sum);
    sqlite3VdbeMemRelease(&hold);
  }
  if( rc ) return rc;
  pOp->n = sum.size;
  rc = plStoreForSure(pOp, res, &sum, pNext);
  if( res==0 ) sqlite3_free((void*)sum.data);
  return rc;
}

/* True if an argument is too long, even if the operation would not use it. */
static int plOpBig(sqlite3 *db, const PlOp *pOp){
  return (pOp->pKey && plValueBig(db, pOp->pKey)) || (pOp->pValue && plValueBig(db, pOp->pValue))
      || (pOp->pExpect && plValueBig(db, pOp->pExpect)) || plRangeBig(db, pOp->pRange);
}

static int plTooBig(sqlite3 *db){
  sqlite3Error(db, SQLITE_TOOBIG);
  return SQLITE_TOOBIG;
}

/* Runs an operation whose arguments are pOp's own: one key, value and range. */
static int plOneCall(plait_map *m, int eKind, PlOp *pOp, int *pbDone){
  int rc = plMapEnter(m);
  if( rc ) return rc;
  rc = plOpBig(m->db, pOp) ? plTooBig(m->db) : plMapRun(m, eKind, pOp);
  if( rc==SQLITE_OK && pbDone ) *pbDone = pOp->bDone;
  return plMapLeave(m, rc);
}
static int plWriteCall(plait_map *m, PlOp *pOp, int *pbDone){
  return plOneCall(m, PLP_WRITE, pOp, pbDone);
}
static int plReadCall(plait_map *m, PlOp *pOp, int *pbDone){
  return plOneCall(m, PLP_READ, pOp, pbDone);
}

SQLITE_API int plait_get(plait_map *m, plait_value key, plait_value *pValue){
  PlOp op;
  int bFound = 0, rc;
  if( pValue==0 || plValueBad(&key, 1) ) return plMapMisuse(m);
  plOpInit(&op);
  op.xDo = plDoGet;
  op.bShort = 1;
  op.pKey = &key;
  op.pValueOut = pValue;
  rc = plReadCall(m, &op, &bFound);
  if( rc || !bFound ) memset(pValue, 0, sizeof(*pValue));
  return rc;
}

SQLITE_API int plait_contains(plait_map *m, plait_value key, int *pbFound){
  PlOp op;
  if( plValueBad(&key, 1) ) return plMapMisuse(m);
  plOpInit(&op);
  op.xDo = plDoGet;
  op.bShort = 1;
  op.pKey = &key;
  return plReadCall(m, &op, pbFound);
}

static int plPutCall(plait_map *m, int eMode, const plait_value *pKey, const plait_value *pValue, int *pbDone){
  PlOp op;
  if( plValueBad(pKey, 1) ) return plMapMisuse(m);
  plOpInit(&op);
  op.xDo = plDoWrite;
  op.bShort = 1;
  op.eMode = eMode;
  op.pKey = pKey;
  op.pValue = pValue;
  return plWriteCall(m, &op, pbDone);
}
SQLITE_API int plait_put(plait_map *m, plait_value key, plait_value value){
  return plValueBad(&value, 0) ? plMapMisuse(m) : plPutCall(m, PLW_ALWAYS, &key, &value, 0);
}
SQLITE_API int plait_insert(plait_map *m, plait_value key, plait_value value, int *pbDone){
  return plValueBad(&value, 0) ? plMapMisuse(m) : plPutCall(m, PLW_ABSENT, &key, &value, pbDone);
}
SQLITE_API int plait_update(plait_map *m, plait_value key, plait_value value, int *pbDone){
  return plValueBad(&value, 0) ? plMapMisuse(m) : plPutCall(m, PLW_THERE, &key, &value, pbDone);
}
SQLITE_API int plait_delete(plait_map *m, plait_value key, int *pbDone){
  plait_value none = plait_none();
  return plPutCall(m, PLW_THERE, &key, &none, pbDone);
}

SQLITE_API int plait_compare_and_swap(
  plait_map *m, plait_value key, plait_value expected, plait_value value, int *pbDone
){
  PlOp op;
  if( plValueBad(&key, 1) || (expected.type!=PLAIT_NONE && plValueBad(&expected, 0))
   || (value.type!=PLAIT_NONE && plValueBad(&value, 0))
  ){
    return plMapMisuse(m);
  }
  plOpInit(&op);
  op.xDo = plDoSwap;
  op.bShort = 1;
  op.pKey = &key;
  op.pExpect = &expected;
  op.pValue = &value;
  return plWriteCall(m, &op, pbDone);
}

SQLITE_API int plait_add(plait_map *m, plait_value key, sqlite3_int64 delta, sqlite3_int64 *piNew){
  plait_value v = plait_int(delta);
  PlOp op;
  int rc;
  if( plValueBad(&key, 1) ) return plMapMisuse(m);
  plOpInit(&op);
  op.xDo = plDoAdd;
  op.bShort = 1;
  op.pKey = &key;
  op.pValue = &v;
  rc = plWriteCall(m, &op, 0);
  if( rc==SQLITE_OK && piNew ) *piNew = op.n;
  return rc;
}

SQLITE_API int plait_append(plait_map *m, plait_value key, plait_value tail, sqlite3_int64 *pnSize){
  PlOp op;
  int rc;
  if( plValueBad(&key, 1) || plValueBad(&tail, 0) ) return plMapMisuse(m);
  if( tail.type!=SQLITE_TEXT && tail.type!=SQLITE_BLOB ) return plMapMisuse(m);
  plOpInit(&op);
  op.xDo = plDoAppend;
  op.bShort = 1;
  op.pKey = &key;
  op.pValue = &tail;
  rc = plWriteCall(m, &op, 0);
  if( rc==SQLITE_OK && pnSize ) *pnSize = op.n;
  return rc;
}

/* ---- many keys */

/* Keeps the bytes of a result: data is an offset in aMany until all results are there. */
static int plKeepMany(PlAnswers *a, plait_value *p){
  i64 nNeed = a->nMany + p->size;
  if( p->type!=SQLITE_TEXT && p->type!=SQLITE_BLOB ) return SQLITE_OK;
  if( nNeed>2147483647 ) return SQLITE_TOOBIG;
  if( nNeed>a->nManyAlloc ){
    i64 nNew = nNeed*2 + 256;
    u8 *aNew = sqlite3_realloc64(a->aMany, (u64)nNew);
    if( aNew==0 ) return SQLITE_NOMEM_BKPT;
    a->aMany = aNew;
    a->nManyAlloc = nNew;
  }
  if( p->size ) memcpy(&a->aMany[a->nMany], p->data, (size_t)p->size);
  p->integer = a->nMany;
  a->nMany = nNeed;
  return SQLITE_OK;
}

static int plDoGetMany(PlOp *pOp, int *pNext){
  PlAnswers *a = plAnswers(pOp->g->pMap);
  int nLeft = PLM_STRIDE, rc = SQLITE_OK;
  if( !pOp->bStarted ){
    pOp->bStarted = 1;
    pOp->i = 0;
    a->nMany = 0;
  }
  for(; rc==SQLITE_OK && pOp->i<pOp->n && nLeft>0; pOp->i++, nLeft--){
    plait_value *pOut = &pOp->pValueOut[pOp->i];
    Mem hold;
    int res;
    memset(pOut, 0, sizeof(*pOut));
    rc = plLookUp(pOp, &pOp->pKey[pOp->i], &res);
    if( rc || res ) continue;
    sqlite3VdbeMemInit(&hold, pOp->db, MEM_Null);
    rc = plAnswerValue(pOp, &hold, 1, pOut);
    if( rc==SQLITE_OK ) rc = plKeepMany(a, pOut);
    sqlite3VdbeMemRelease(&hold);
  }
  if( rc==SQLITE_OK && pOp->i<pOp->n ) *pNext = PLM_AGAIN;
  return rc;
}

SQLITE_API int plait_get_many(plait_map *m, int n, const plait_value *aKey, plait_value *aValue){
  PlOp op;
  int i, rc;
  if( m==0 || n<0 || (n>0 && (aKey==0 || aValue==0)) ) return plMapMisuse(m);
  for(i=0; i<n; i++){
    if( plValueBad(&aKey[i], 1) ) return plMapMisuse(m);
  }
  plOpInit(&op);
  op.xDo = plDoGetMany;
  op.bShort = n<=PLM_STRIDE;
  op.pKey = aKey;
  op.pValueOut = aValue;
  op.n = n;
  sqlite3_mutex_enter(m->db->mutex);
  for(i=0; i<n && !plValueBig(m->db, &aKey[i]); i++){}
  rc = i<n ? plTooBig(m->db) : plMapRun(m, PLP_READ, &op);
  for(i=0; i<n; i++){
    if( rc ){
      memset(&aValue[i], 0, sizeof(aValue[i]));
    }else if( aValue[i].type==SQLITE_TEXT || aValue[i].type==SQLITE_BLOB ){
      aValue[i].data = aValue[i].size ? &plAnswers(m)->aMany[aValue[i].integer] : (const u8*)"";
      aValue[i].integer = 0;
    }
  }
  return plMapLeave(m, rc);
}

/* ---- batches */

static int plItemBig(sqlite3 *db, const plait_batch_item *p){
  return plValueBig(db, &p->key) || (p->op!=PLAIT_BATCH_DELETE && plValueBig(db, &p->value));
}

/* Checks the conditions, before any write. pOp->n: the index of one that does not hold, or -1. */
static int plBatchTest(PlOp *pOp, const plait_batch_item *aItem, int n){
  int i, rc = SQLITE_OK;
  pOp->n = -1;
  for(i=0; i<n && rc==SQLITE_OK; i++){
    int res, bHolds = 1;
    if( aItem[i].op!=PLAIT_BATCH_EXPECT ) continue;
    rc = plLookUp(pOp, &aItem[i].key, &res);
    if( rc==SQLITE_OK ) rc = plHolds(pOp, res, &aItem[i].value, &bHolds);
    if( rc==SQLITE_OK && !bHolds ){
      pOp->n = i;
      break;
    }
  }
  return rc;
}

static int plDoBatch(PlOp *pOp, int *pNext){
  const plait_batch_item *aItem = pOp->pArg;
  int n = pOp->eMode, nLeft = PLM_STRIDE, res, rc = SQLITE_OK;
  i64 iSum;
  if( !pOp->bStarted ){
    pOp->bStarted = 1;
    for(pOp->i=0; pOp->i<n; pOp->i++){
      if( plItemBig(pOp->db, &aItem[pOp->i]) ) return SQLITE_TOOBIG;
    }
    pOp->i = 0;
    rc = plBatchTest(pOp, aItem, n);
    if( rc || pOp->n>=0 ) return rc;
  }
  while( pOp->i<n && nLeft-->0 ){
    const plait_batch_item *p = &aItem[pOp->i];
    plait_value none = plait_none();
    pOp->pKey = &p->key;
    if( p->op==PLAIT_BATCH_ADD ){
      rc = plAddTo(pOp, p->value.integer, &iSum, pNext);
    }else if( p->op!=PLAIT_BATCH_EXPECT ){
      rc = p->op==PLAIT_BATCH_DELETE ? plLookUp(pOp, pOp->pKey, &res) : plLookUpStored(pOp, &res);
      if( rc==SQLITE_OK ) rc = plStore(pOp, res, p->op==PLAIT_BATCH_DELETE ? &none : &p->value, pNext);
    }
    if( rc || *pNext!=PLM_DONE ) return rc;
    pOp->i++;
  }
  if( pOp->i<n ) *pNext = PLM_AGAIN;
  return rc;
}

static int plItemBad(const plait_batch_item *p){
  if( plValueBad(&p->key, 1) ) return 1;
  switch( p->op ){
    case PLAIT_BATCH_PUT:    return plValueBad(&p->value, 0);
    case PLAIT_BATCH_DELETE: return 0;
    case PLAIT_BATCH_ADD:    return p->value.type!=SQLITE_INTEGER;
    case PLAIT_BATCH_EXPECT: return p->value.type!=PLAIT_NONE && plValueBad(&p->value, 0);
  }
  return 1;
}

SQLITE_API int plait_batch(plait_map *m, int n, const plait_batch_item *aItem, int *piFailed){
  PlOp op;
  int i, rc;
  if( n<0 || (n>0 && aItem==0) ) return plMapMisuse(m);
  for(i=0; i<n; i++){
    if( plItemBad(&aItem[i]) ) return plMapMisuse(m);
  }
  plOpInit(&op);
  op.xDo = plDoBatch;
  op.bShort = n<=PLM_STRIDE;
  op.pArg = (void*)aItem;
  op.eMode = n;
  op.bJournal = 1;
  op.n = -1;
  rc = plWriteCall(m, &op, 0);
  if( rc==SQLITE_OK && piFailed ) *piFailed = (int)op.n;
  return rc;
}

/*
** map_load.c - plait_load(): many rows in one statement.
**
** Rows that come in the order of keys go to the end of the b-tree without a search, and are put as
** they come. Others are gathered, sorted as the b-tree compares them, and put one after the other.
** Of keys that are equal in the column ('12' and 12 in a TEXT column, 'a' and 'A' under NOCASE) the
** last wins: the sort compares keys after the column's affinity, by its collation, and is stable.
*/
#define PLM_GATHER (16*1024*1024)    /* bytes gathered before they are sorted and written */

typedef struct PlLoad PlLoad;
typedef struct PlLoadRow PlLoadRow;
struct PlLoadRow {
  plait_value key, value;
  PlKey place;           /* the key as the column has it; may point into key.data */
};
struct PlLoad {
  int (*xNext)(void*, plait_value*, plait_value*);
  void *pCtx;
  int bSorted;
  int bEnd;              /* xNext has returned its last row */
  int rcEnd;             /* the code with which xNext has ended the load, or 0 */
  i64 nByte;
  int nRow, nRowAlloc;
  PlLoadRow *aRow;
  PlLoadRow **apRow;     /* their order */
  int iRow;              /* the next to be written */
  int bHave;             /* bSorted: key and value are a row that is not written yet */
  plait_value key, value;
};

/* Integers are never text. So under INTEGER PRIMARY KEY the order of a key that is no integer does
** not matter: it ends the load. */
static int plLoadCompare(const PlLoadRow *a, const PlLoadRow *b, int bRowids, const CollSeq *pColl){
  if( bRowids ) return a->place.i<b->place.i ? -1 : a->place.i>b->place.i;
  return sqlite3MemCompare(&a->place.m, &b->place.m, pColl);
}

/* Merge sort, which is stable. aTmp has room for half of the rows. */
static void plLoadSort(PlLoadRow **ap, int n, PlLoadRow **aTmp, int bRowids, const CollSeq *pColl){
  int nLeft = n/2, i, j, k;
  if( n<2 ) return;
  plLoadSort(ap, nLeft, aTmp, bRowids, pColl);
  plLoadSort(&ap[nLeft], n-nLeft, aTmp, bRowids, pColl);
  memcpy(aTmp, ap, (size_t)nLeft*sizeof(*ap));
  for(i=k=0, j=nLeft; i<nLeft; k++){
    if( j<n && plLoadCompare(ap[j], aTmp[i], bRowids, pColl)<0 ) ap[k] = ap[j++];
    else ap[k] = aTmp[i++];
  }
}

static void plLoadForget(PlLoad *p){
  int i;
  for(i=0; i<p->nRow; i++){
    plKeyClear(&p->aRow[i].place);
    sqlite3_free((void*)p->aRow[i].key.data);
    sqlite3_free((void*)p->aRow[i].value.data);
  }
  sqlite3_free(p->apRow);
  p->apRow = 0;
  p->nRow = p->iRow = 0;
  p->nByte = 0;
}

static int plLoadCopy(plait_value *pTo, const plait_value *pFrom){
  *pTo = *pFrom;
  pTo->data = 0;
  if( (pFrom->type==SQLITE_TEXT || pFrom->type==SQLITE_BLOB) && pFrom->size>0 ){
    u8 *a = sqlite3_malloc64((u64)pFrom->size);
    if( a==0 ) return SQLITE_NOMEM_BKPT;
    memcpy(a, pFrom->data, (size_t)pFrom->size);
    pTo->data = a;
  }
  return SQLITE_OK;
}

/* Gets the caller's next row. SQLITE_DONE: there is none. */
static int plLoadNext(PlOp *pOp, PlLoad *p, plait_value *pKey, plait_value *pValue){
  int rc;
  memset(pKey, 0, sizeof(*pKey));
  memset(pValue, 0, sizeof(*pValue));
  rc = p->xNext(p->pCtx, pKey, pValue);
  if( rc==SQLITE_ROW ){
    if( plValueBad(pKey, 1) || plValueBad(pValue, 0) ){
      return plOpError(pOp, SQLITE_MISUSE, "row %lld of the load: %s is not one (a key is not NULL, a number not NaN, a size not negative, "
          "and there is a type)", pOp->n+1, plValueBad(pKey, 1) ? "the key" : "the value");
    }
    if( plValueBig(pOp->db, pKey) || plValueBig(pOp->db, pValue) ) return SQLITE_TOOBIG;
    pOp->n++;
    return SQLITE_OK;
  }
  p->bEnd = 1;
  if( rc==SQLITE_DONE ) return rc;
  if( rc==SQLITE_OK ) return plOpError(pOp, SQLITE_MISUSE, "xNext of a load returned 0; it returns SQLITE_ROW, SQLITE_DONE, or a code that ends the load");
  /* The code may be any number. It must not be taken for a code of SQLite's. */
  p->rcEnd = rc;
  /* As after a refusal, whole.c takes back the rows before it. */
  plRefused(pOp->db, SQLITE_ABORT);
  return plOpError(pOp, SQLITE_ABORT, "the source of the load ended it with code %d", rc);
}

/* Keeps a row of the caller. */
static int plLoadKeep(PlOp *pOp, PlLoad *p, const plait_value *pKey, const plait_value *pValue){
  PlLoadRow *pRow;
  int rc;
  if( p->nRow==p->nRowAlloc ){
    int nNew = p->nRowAlloc*2 + 256;
    PlLoadRow *aNew = sqlite3_realloc64(p->aRow, (u64)nNew*sizeof(*aNew));
    if( aNew==0 ) return SQLITE_NOMEM_BKPT;
    p->aRow = aNew;
    p->nRowAlloc = nNew;
  }
  pRow = &p->aRow[p->nRow++];
  memset(pRow, 0, sizeof(*pRow));
  rc = plLoadCopy(&pRow->key, pKey);
  if( rc==SQLITE_OK ) rc = plLoadCopy(&pRow->value, pValue);
  if( rc==SQLITE_OK ){
    const plait_value *pPlace = &pRow->key;
    plait_value stored;
    rc = plStoredKey(pOp, &pRow->place, &pPlace, &stored);
  }
  p->nByte += pKey->size + pValue->size + (i64)sizeof(*pRow);
  return rc;
}

/* Gathers rows and sorts them. */
static int plLoadGather(PlOp *pOp, PlLoad *p){
  PlProg *g = pOp->g;
  int bRowids = g->s.eForm==PLM_ROWIDS;
  const CollSeq *pColl = bRowids ? 0 : g->apKeyInfo[g->s.eForm==PLM_INDEX]->aColl[0];
  plait_value key, value;
  int i, rc = SQLITE_OK;
  while( p->nByte<PLM_GATHER && (rc = plLoadNext(pOp, p, &key, &value))==SQLITE_OK ){
    rc = plLoadKeep(pOp, p, &key, &value);
    if( rc ) return rc;
  }
  if( rc!=SQLITE_OK && rc!=SQLITE_DONE ) return rc;
  p->apRow = sqlite3_malloc64(((u64)p->nRow*3/2 + 1)*sizeof(*p->apRow));
  if( p->apRow==0 ) return SQLITE_NOMEM_BKPT;
  for(i=0; i<p->nRow; i++) p->apRow[i] = &p->aRow[i];
  plLoadSort(p->apRow, p->nRow, &p->apRow[p->nRow], bRowids, pColl);
  return pOp->db->mallocFailed ? SQLITE_NOMEM_BKPT : SQLITE_OK;
}

static int plLoadPut(PlOp *pOp, const plait_value *pKey, const plait_value *pValue, int *pNext){
  int res, rc;
  pOp->pKey = pKey;
  rc = plLookUpStored(pOp, &res);
  return rc ? rc : plStore(pOp, res, pValue, pNext);
}

/* Puts one row of those that come in order. It is kept while the program finds a new rowid. */
static int plLoadOne(PlOp *pOp, PlLoad *p, int *pNext){
  int rc;
  if( !p->bHave ){
    rc = plLoadNext(pOp, p, &p->key, &p->value);
    if( rc ) return rc==SQLITE_DONE ? SQLITE_OK : rc;
    p->bHave = 1;
  }
  rc = plLoadPut(pOp, &p->key, &p->value, pNext);
  if( rc==SQLITE_OK && *pNext==PLM_DONE ) p->bHave = 0;
  return rc;
}

/* Puts one row of those that are gathered. It stays in aRow until the next one is put. */
static int plLoadGathered(PlOp *pOp, PlLoad *p, int *pNext){
  int rc;
  if( p->iRow==p->nRow ){
    plLoadForget(p);
    return p->bEnd ? SQLITE_OK : plLoadGather(pOp, p);
  }
  rc = plLoadPut(pOp, &p->apRow[p->iRow]->key, &p->apRow[p->iRow]->value, pNext);
  if( rc==SQLITE_OK && *pNext==PLM_DONE ) p->iRow++;
  return rc;
}

static int plDoLoad(PlOp *pOp, int *pNext){
  PlLoad *p = pOp->pArg;
  int nLeft = 256;
  while( nLeft-->0 ){
    int rc = p->bSorted ? plLoadOne(pOp, p, pNext) : plLoadGathered(pOp, p, pNext);
    if( rc || *pNext!=PLM_DONE ) return rc;
    if( p->bEnd && p->iRow==p->nRow ) return SQLITE_OK;
  }
  *pNext = PLM_AGAIN;
  return SQLITE_OK;
}

SQLITE_API int plait_load(
  plait_map *m, int flags, int (*xNext)(void*, plait_value*, plait_value*), void *pCtx, sqlite3_int64 *pn
){
  PlLoad load;
  PlOp op;
  int rc;
  if( m==0 || xNext==0 || (flags & ~PLAIT_LOAD_SORTED) ) return plMapMisuse(m);
  memset(&load, 0, sizeof(load));
  load.xNext = xNext;
  load.pCtx = pCtx;
  load.bSorted = flags & PLAIT_LOAD_SORTED;
  plOpInit(&op);
  op.xDo = plDoLoad;
  op.pArg = &load;
  op.bJournal = 1;
  sqlite3_mutex_enter(m->db->mutex);
  rc = plMapRun(m, PLP_WRITE, &op);
  plLoadForget(&load);
  rc = plMapLeave(m, rc);
  if( load.rcEnd && (rc & 0xff)==SQLITE_ABORT ) rc = load.rcEnd;
  if( rc==SQLITE_OK && pn ) *pn = op.n;
  sqlite3_free(load.aRow);
  return rc;
}

/*
** map_load.c - plait_load(): many rows in one statement.
**
** Rows that come in the order of keys find their place at the end of the b-tree without a search, and are put as they come. Others are gathered, sorted by
** type and bytes (which is the order of BINARY columns, and near enough to make neighbours of neighbours for the others; only
** speed depends on it) and put one after the other; the sort is stable, so that of equal keys the last wins.
*/
#define PLM_GATHER (16*1024*1024)    /* bytes gathered before they are sorted and written */

typedef struct PlLoad PlLoad;
struct PlLoad {
  int (*xNext)(void*, plait_value*, plait_value*);
  void *pCtx;
  int bSorted;
  int bEnd;              /* xNext has said so */
  i64 nByte;
  int nRow, nRowAlloc;
  plait_value *aRow;     /* key and value, alternately */
  plait_value **apRow;   /* their order */
  int iRow;              /* the next to be written */
  int bHave;             /* bSorted: key and value are a row that is not written yet */
  plait_value key, value;
};

static int plLoadCompare(const plait_value *a, const plait_value *b){
  int aRank = a->type==SQLITE_FLOAT ? SQLITE_INTEGER : a->type;
  int bRank = b->type==SQLITE_FLOAT ? SQLITE_INTEGER : b->type;
  int c;
  if( aRank!=bRank ) return aRank<bRank ? -1 : 1;
  if( aRank==SQLITE_INTEGER ){
    if( a->type==SQLITE_INTEGER && b->type==SQLITE_INTEGER ){
      return a->integer<b->integer ? -1 : a->integer>b->integer;
    }else{
      double x = a->type==SQLITE_FLOAT ? a->real : (double)a->integer;
      double y = b->type==SQLITE_FLOAT ? b->real : (double)b->integer;
      return x<y ? -1 : x>y;
    }
  }
  c = a->size && b->size ? memcmp(a->data, b->data, (size_t)MIN(a->size, b->size)) : 0;
  return c ? c : a->size<b->size ? -1 : a->size>b->size;
}

/* Merge sort, which is stable. aTmp has room for half of them. */
static void plLoadSort(plait_value **ap, int n, plait_value **aTmp){
  int nLeft = n/2, i, j, k;
  if( n<2 ) return;
  plLoadSort(ap, nLeft, aTmp);
  plLoadSort(&ap[nLeft], n-nLeft, aTmp);
  memcpy(aTmp, ap, (size_t)nLeft*sizeof(*ap));
  for(i=k=0, j=nLeft; i<nLeft; k++){
    if( j<n && plLoadCompare(ap[j], aTmp[i])<0 ) ap[k] = ap[j++];
    else ap[k] = aTmp[i++];
  }
}

static void plLoadForget(PlLoad *p){
  int i;
  for(i=0; i<p->nRow*2; i++) sqlite3_free((void*)p->aRow[i].data);
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

/* The next row of the caller. SQLITE_DONE: there is none. */
static int plLoadNext(PlOp *pOp, PlLoad *p, plait_value *pKey, plait_value *pValue){
  int rc;
  memset(pKey, 0, sizeof(*pKey));
  memset(pValue, 0, sizeof(*pValue));
  rc = p->xNext(p->pCtx, pKey, pValue);
  if( rc==SQLITE_ROW ){
    if( plValueBad(pKey, 1) || plValueBad(pValue, 0) ){
      return plOpError(pOp, SQLITE_MISUSE, "row %lld of the load is no key and value", pOp->n+1);
    }
    pOp->n++;
    return SQLITE_OK;
  }
  p->bEnd = 1;
  return rc==SQLITE_OK ? plOpError(pOp, SQLITE_MISUSE, "a load must answer SQLITE_ROW or SQLITE_DONE") : rc;
}

/* Gathers rows and sorts them. */
static int plLoadGather(PlOp *pOp, PlLoad *p){
  plait_value key, value;
  plait_value **aTmp;
  int i, rc = SQLITE_OK;
  while( p->nByte<PLM_GATHER && (rc = plLoadNext(pOp, p, &key, &value))==SQLITE_OK ){
    if( p->nRow==p->nRowAlloc ){
      int nNew = p->nRowAlloc*2 + 256;
      plait_value *aNew = sqlite3_realloc64(p->aRow, (u64)nNew*2*sizeof(*aNew));
      if( aNew==0 ) return SQLITE_NOMEM_BKPT;
      p->aRow = aNew;
      p->nRowAlloc = nNew;
    }
    p->aRow[p->nRow*2].data = p->aRow[p->nRow*2+1].data = 0;
    rc = plLoadCopy(&p->aRow[p->nRow*2], &key);
    if( rc==SQLITE_OK ) rc = plLoadCopy(&p->aRow[p->nRow*2+1], &value);
    p->nRow++;
    if( rc ) return rc;
    p->nByte += key.size + value.size + (i64)sizeof(key)*2;
  }
  if( rc!=SQLITE_OK && rc!=SQLITE_DONE ) return rc;
  p->apRow = sqlite3_malloc64(((u64)p->nRow*3/2 + 1)*sizeof(*p->apRow));
  if( p->apRow==0 ) return SQLITE_NOMEM_BKPT;
  aTmp = &p->apRow[p->nRow];
  for(i=0; i<p->nRow; i++) p->apRow[i] = &p->aRow[i*2];
  plLoadSort(p->apRow, p->nRow, aTmp);
  return SQLITE_OK;
}

static int plLoadPut(PlOp *pOp, const plait_value *pKey, const plait_value *pValue, int *pNext){
  int res, rc = plLookUp(pOp, pKey, &res);
  pOp->pKey = pKey;
  return rc ? rc : plStore(pOp, res, pValue, pNext);
}

/* One row of those that come in order. It is kept while a new rowid is asked for. */
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

/* One row of those that are gathered. What is being put stays in aRow until the next is. */
static int plLoadGathered(PlOp *pOp, PlLoad *p, int *pNext){
  int rc;
  if( p->iRow==p->nRow ){
    plLoadForget(p);
    return p->bEnd ? SQLITE_OK : plLoadGather(pOp, p);
  }
  rc = plLoadPut(pOp, p->apRow[p->iRow], p->apRow[p->iRow]+1, pNext);
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
  memset(&op, 0, sizeof(op));
  op.xDo = plDoLoad;
  op.pArg = &load;
  op.bJournal = 1;
  rc = plWriteCall(m, &op, 0);
  if( rc==SQLITE_OK && pn ) *pn = op.n;
  plLoadForget(&load);
  sqlite3_free(load.aRow);
  return rc;
}

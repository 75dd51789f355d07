/*
** apply.c - puts rows of the engine into the b-trees of the base.
**
** Used by merges (base.c, on a hidden connection) and by the replay of own writes (exclusive.c). Both
** come sorted within a root and hold a stock write transaction. One stock cursor per root stays open until the end, so that
** consecutive keys find their pages in it.
**
** Invariants
**  - APPLY-1 Applying an entry twice is the same as applying it once (FILE-4): puts replace, deletes of what is not there
**    do nothing.
**  - APPLY-2 Entries are input: in recovery they come from a file. Nothing of one is used before it is known to fit the b-tree that it is
**    for; the schema table is none that rows of the engine are for.
*/
typedef struct PlApplyCursor PlApplyCursor;
typedef struct PlApply PlApply;
struct PlApplyCursor {
  Pgno iRoot;
  KeyInfo *pInfo;             /* 0 for a rowid table */
  PlApplyCursor *pNext;
  BtCursor csr;
};
struct PlApply {
  Btree *p;
  int iDb;
  PlApplyCursor *pFirst;      /* most recently used first */
};

static void plApplyInit(PlApply *pA, Btree *p, int iDb){
  pA->p = p;
  pA->iDb = iDb;
  pA->pFirst = 0;
}

static void plApplyClose(PlApply *pA){
  while( pA->pFirst ){
    PlApplyCursor *pC = pA->pFirst;
    pA->pFirst = pC->pNext;
    sqlite3StockBtreeCloseCursor(&pC->csr);
    sqlite3KeyInfoUnref(pC->pInfo);
    sqlite3_free(pC);
  }
}

/* The cursor of a root, moved to the front of the list. */
static int plApplyCursor(PlApply *pA, Pgno iRoot, PlApplyCursor **ppOut){
  PlApplyCursor **pp, *pC;
  int rc;
  for(pp=&pA->pFirst; (pC = *pp)!=0; pp=&pC->pNext){
    if( pC->iRoot==iRoot ){
      *pp = pC->pNext;
      pC->pNext = pA->pFirst;
      pA->pFirst = *ppOut = pC;
      return SQLITE_OK;
    }
  }
  if( iRoot<=SCHEMA_ROOT ) return SQLITE_CORRUPT_PGNO(iRoot);
  pC = sqlite3MallocZero(sizeof(*pC));
  if( pC==0 ) return SQLITE_NOMEM_BKPT;
  pC->iRoot = iRoot;
  rc = plKeyInfoOfRoot(pA->p->db, pA->iDb, iRoot, &pC->pInfo);
  if( rc==SQLITE_OK ) rc = sqlite3StockBtreeCursor(pA->p, iRoot, BTREE_WRCSR, pC->pInfo, &pC->csr);
  if( rc ){
    sqlite3KeyInfoUnref(pC->pInfo);
    sqlite3_free(pC);
    return rc;
  }
  pC->pNext = pA->pFirst;
  pA->pFirst = *ppOut = pC;
  return SQLITE_OK;
}

/* Has a record what it says: a header of whole serial types, and the bytes that these take? As to SQLite itself, more is no harm. */
static int plIsRecord(const u8 *a, u32 n){
  u64 nHdr = 0, nBody = 0, t, i;
  if( n==0 || n>0x7fffffff || (a[0]>=0x80 && n<9) ) return 0;
  i = sqlite3GetVarint(a, &nHdr);
  if( nHdr<i || nHdr>n ) return 0;
  while( i<nHdr ){
    u64 k = i;
    while( k<nHdr && k<i+8 && a[k]>=0x80 ) k++;
    if( k>=nHdr ) return 0;
    i += sqlite3GetVarint(&a[i], &t);
    if( t>0xffffffff ) return 0;
    nBody += sqlite3VdbeSerialTypeLen((u32)t);
  }
  return i==nHdr && nHdr+nBody<=n;
}

/* Moves to the entry's key. *pRes as sqlite3BtreeTableMoveto. */
static int plApplySeek(PlApplyCursor *pC, const PlEntry *pEntry, int *pRes){
  int rc;
  if( pC->pInfo==0 ? pEntry->nKey!=8 : !plIsRecord(pEntry->rec, pEntry->nRec) ) return SQLITE_CORRUPT_PGNO(pC->iRoot);
  if( pC->pInfo==0 ){
    /* A cursor that knows its row can tell an append without searching. After a delete it is at the root, whose cells
    ** are no rows unless it is a leaf. */
    if( pC->csr.eState==CURSOR_VALID && pC->csr.pPage->leaf ) getCellInfo(&pC->csr);
    rc = sqlite3StockBtreeTableMoveto(&pC->csr, plDecodeRowid(pEntry->key), 0, pRes);
  }else{
    UnpackedRecord *pKey = plUnpack(pC->pInfo, pEntry->rec, pEntry->nRec);
    if( pKey==0 ) return SQLITE_NOMEM_BKPT;
    rc = sqlite3StockBtreeIndexMoveto(&pC->csr, pKey, pRes);
    sqlite3DbFree(pC->pInfo->db, pKey);
  }
  if( rc==SQLITE_OK && pC->csr.eState!=CURSOR_VALID ) *pRes = -1;
  return rc;
}

static int plApplyPut(PlApply *pA, Pgno iRoot, const PlEntry *pEntry){
  PlApplyCursor *pC;
  BtreePayload x;
  int res = 0, flags;
  int rc = plApplyCursor(pA, iRoot, &pC);
  if( rc==SQLITE_OK ) rc = plApplySeek(pC, pEntry, &res);
  if( rc ) return rc;
  memset(&x, 0, sizeof(x));
  if( pC->pInfo==0 ){
    x.nKey = plDecodeRowid(pEntry->key);
    x.pData = pEntry->rec;
    x.nData = (int)pEntry->nRec;
    flags = 0;
  }else{
    x.pKey = pEntry->rec;
    x.nKey = pEntry->nRec;
    /* On the entry to be replaced: do not search again with all of its fields, which may differ. */
    flags = res==0 ? BTREE_SAVEPOSITION : 0;
  }
  return sqlite3StockBtreeInsert(&pC->csr, &x, flags, res);
}

static int plApplyDelete(PlApply *pA, Pgno iRoot, const PlEntry *pEntry){
  PlApplyCursor *pC;
  int res = 0;
  int rc = plApplyCursor(pA, iRoot, &pC);
  if( rc==SQLITE_OK ) rc = plApplySeek(pC, pEntry, &res);
  if( rc || res!=0 ) return rc;
  return sqlite3StockBtreeDelete(&pC->csr, 0);
}

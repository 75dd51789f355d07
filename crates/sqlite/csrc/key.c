/*
** key.c - keys of the engine from SQLite's records and back.
**
** A key is a byte string compared with memcmp (engine.h). For a table it is the rowid. For an index
** it is made of the first nKeyField fields: KeyInfo.nKeyField is what makes an entry unique, so
** that unique indexes on NOT NULL columns and WITHOUT ROWID tables have keys without their other
** columns.
**
** The shape of a key (collation and direction per field) is computed once per open cursor, when
** first needed: a cursor that only ever meets the base needs none.
*/

static void plEncodeRowid(u8 *aKey, i64 iRowid){
  u64 u = (u64)iRowid ^ ((u64)1<<63);
  sqlite3Put4byte(aKey, (u32)(u>>32));
  sqlite3Put4byte(&aKey[4], (u32)u);
}
static i64 plDecodeRowid(const u8 *aKey){
  u64 u = (u64)sqlite3Get4byte(aKey)<<32 | sqlite3Get4byte(&aKey[4]);
  return (i64)(u ^ ((u64)1<<63));
}

/* Makes room for n bytes in a growing buffer. */
static int plReserve(u8 **pa, u64 *pnAlloc, u64 n){
  if( *pnAlloc<n ){
    u8 *aNew = sqlite3Realloc(*pa, n + n/2 + 64);
    if( aNew==0 ) return SQLITE_NOMEM_BKPT;
    *pa = aNew;
    *pnAlloc = n + n/2 + 64;
  }
  return SQLITE_OK;
}

/* Computes the shape of an index cursor's keys. */
static int plShape(PlCursor *pX){
  KeyInfo *pInfo = pX->pOut->pKeyInfo;
  int i;
  if( pX->bShape ) return SQLITE_OK;
  if( pX->nShapeAlloc<pInfo->nKeyField ){
    u8 *aNew = sqlite3Realloc(pX->aShape, pInfo->nKeyField + 16);
    if( aNew==0 ) return SQLITE_NOMEM_BKPT;
    pX->aShape = aNew;
    pX->nShapeAlloc = pInfo->nKeyField + 16;
  }
  for(i=0; i<pInfo->nKeyField; i++){
    int eColl = plCollation(pInfo->aColl[i]);
    if( eColl<0 ){
      pX->bCustom = 1;
      eColl = PL_COLL_BINARY;
    }
    pX->aShape[i] = (u8)eColl | ((pInfo->aSortFlags[i] & KEYINFO_ORDER_DESC) ? PL_FIELD_DESC : 0);
  }
  pX->nShape = pInfo->nKeyField;
  pX->bShape = 1;
  return SQLITE_OK;
}

/* True if the engine does not know the order of this cursor's index. */
static int plIsCustom(PlCursor *pX){
  if( pX->pOut->pKeyInfo==0 ) return 0;
  if( plShape(pX) ) return 1;
  return pX->bCustom;
}

/* Encodes the key of an index record. */
static int plEncodeRecord(PlCursor *pX, const u8 *aRec, u32 nRec, PlBuf *pBuf){
  int rc = plShape(pX);
  if( rc ) return rc;
  return pl_encode_record(aRec, nRec, pX->aShape, (u32)pX->nShape, pX->pOut->pKeyInfo->enc, pBuf);
}

/* Converts one SQL value for the engine. A text in another encoding than the database's is
** converted in place. */
static int plValueOf(Mem *pMem, u8 enc, PlValue *pV){
  memset(pV, 0, sizeof(*pV));
  if( pMem->flags & MEM_Null ){
    pV->type = SQLITE_NULL;
  }else if( pMem->flags & (MEM_Int|MEM_IntReal) ){
    pV->type = SQLITE_INTEGER;
    pV->i = pMem->u.i;
  }else if( pMem->flags & MEM_Real ){
    pV->type = SQLITE_FLOAT;
    pV->r = pMem->u.r;
  }else if( pMem->flags & MEM_Str ){
    if( pMem->enc!=enc && sqlite3VdbeChangeEncoding(pMem, enc) ) return SQLITE_NOMEM_BKPT;
    pV->type = SQLITE_TEXT;
    pV->n = (u32)pMem->n;
    pV->z = (const u8*)pMem->z;
  }else{
    pV->type = SQLITE_BLOB;
    pV->n = (u32)pMem->n;
    pV->z = (const u8*)pMem->z;
    if( pMem->flags & MEM_Zero ) pV->nZero = (u32)pMem->u.nZero;
  }
  return SQLITE_OK;
}

/* Encodes the first n fields of a search key. n must not exceed nKeyField. */
static int plEncodeUnpacked(PlCursor *pX, UnpackedRecord *pKey, int n, PlBuf *pBuf){
  PlValue aFew[8], *a = aFew;
  u8 enc = pX->pOut->pKeyInfo->enc;
  int i, rc = plShape(pX);
  if( rc ) return rc;
  if( n>ArraySize(aFew) ){
    a = sqlite3Malloc(sizeof(PlValue)*(u64)n);
    if( a==0 ) return SQLITE_NOMEM_BKPT;
  }
  for(i=0; rc==SQLITE_OK && i<n; i++) rc = plValueOf(&pKey->aMem[i], enc, &a[i]);
  if( rc==SQLITE_OK ) rc = pl_encode_values(a, (u32)n, pX->aShape, enc, pBuf);
  if( a!=aFew ) sqlite3_free(a);
  return rc;
}

/* True if a field of a search key is NULL. */
static int plHasNull(UnpackedRecord *pKey){
  int i;
  for(i=0; i<pKey->nField; i++){
    if( pKey->aMem[i].flags & MEM_Null ) return 1;
  }
  return 0;
}

/* Unpacks an index record into a search key for the first nKeyField fields. */
static void plUnpackTo(UnpackedRecord *pKey, const u8 *aRec, u32 nRec){
  pKey->nField = pKey->pKeyInfo->nKeyField;
  sqlite3VdbeRecordUnpack((int)nRec, aRec, pKey);
  pKey->default_rc = 0;
}
/* Unpacks into a new search key; free with sqlite3DbFree. */
static UnpackedRecord *plUnpack(KeyInfo *pInfo, const u8 *aRec, u32 nRec){
  UnpackedRecord *pKey = sqlite3VdbeAllocUnpackedRecord(pInfo);
  if( pKey ) plUnpackTo(pKey, aRec, nRec);
  return pKey;
}

static int plCompareBytes(const u8 *a, u32 na, const u8 *b, u32 nb){
  u32 n = MIN(na, nb);
  int c = n ? memcmp(a, b, n) : 0;
  if( c ) return c;
  return na<nb ? -1 : na>nb;
}

/* Turns a prefix into the smallest byte string after everything that has it as prefix; 0 if there
** is none. */
static int plSuccessor(PlBuf *pBuf){
  while( pBuf->n>0 && pBuf->p[pBuf->n-1]==0xff ) pBuf->n--;
  if( pBuf->n==0 ) return 0;
  pBuf->p[pBuf->n-1]++;
  return 1;
}

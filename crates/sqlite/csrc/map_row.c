/*
** map_row.c - keys and rows: from the caller's values to what the b-tree compares, and from records
** to the caller's values.
**
** In between, values are SQLite's Mem cells in the encoding of the database, so that affinity,
** collation and UTF-16 are SQLite's own.
*/
#define PLM_PAD 18      /* zero bytes that readers of a record may look at after it */

static int plOpError(PlOp *pOp, int rc, const char *zFormat, ...){
  va_list ap;
  va_start(ap, zFormat);
  sqlite3_free(pOp->zErr);
  pOp->zErr = sqlite3_vmprintf(zFormat, ap);
  va_end(ap);
  return pOp->zErr ? rc : SQLITE_NOMEM_BKPT;
}

/* True if this may not be written, or (bKey) is no key. */
static int plValueBad(const plait_value *p, int bKey){
  switch( p->type ){
    case SQLITE_INTEGER: return 0;
    case SQLITE_FLOAT:   return sqlite3IsNaN(p->real);
    case SQLITE_TEXT:
    case SQLITE_BLOB:    return p->size<0 || (p->data==0 && p->size>0);
    case SQLITE_NULL:    return bKey;
  }
  return 1;
}

/* True if it is longer than SQLITE_LIMIT_LENGTH allows. Checked for every argument before anything
** looks at its bytes. */
static int plValueBig(sqlite3 *db, const plait_value *p){
  return (p->type==SQLITE_TEXT || p->type==SQLITE_BLOB) && p->size>db->aLimit[SQLITE_LIMIT_LENGTH];
}

/* Sets an initialized cell that has no memory of its own yet. */
static int plMemSet(PlOp *pOp, Mem *pMem, const plait_value *p, char aff){
  sqlite3 *db = pOp->db;
  int rc = SQLITE_OK;
  sqlite3VdbeMemInit(pMem, db, MEM_Null);
  if( p->type==SQLITE_BLOB && p->data && !plValueBig(db, p) ){
    /* What sqlite3VdbeMemSetStr() does for bytes that stay; no affinity changes them. */
    pMem->z = (char*)p->data;
    pMem->n = (int)p->size;
    pMem->flags = MEM_Blob|MEM_Static;
    pMem->enc = SQLITE_UTF8;
    return SQLITE_OK;
  }
  switch( p->type ){
    case SQLITE_INTEGER: sqlite3VdbeMemSetInt64(pMem, p->integer); break;
    case SQLITE_FLOAT:   sqlite3VdbeMemSetDouble(pMem, p->real); break;
    case SQLITE_TEXT:
    case SQLITE_BLOB: {
      u8 enc = p->type==SQLITE_TEXT ? SQLITE_UTF8 : 0;
      if( plValueBig(db, p) ) return SQLITE_TOOBIG;
      rc = sqlite3VdbeMemSetStr(pMem, p->data ? p->data : "", p->size, enc, SQLITE_STATIC);
      if( rc==SQLITE_OK && enc ) rc = sqlite3VdbeChangeEncoding(pMem, ENC(db));
      break;
    }
  }
  if( rc==SQLITE_OK && aff>SQLITE_AFF_BLOB ) sqlite3ValueApplyAffinity(pMem, aff, ENC(db));
  return db->mallocFailed ? SQLITE_NOMEM_BKPT : rc;
}

static void plKeyClear(PlKey *k){
  if( k->bSet ) sqlite3VdbeMemRelease(&k->m);
  k->bSet = 0;
}

static int plKeySet(PlOp *pOp, PlKey *k, const plait_value *p){
  PlShape *s = &pOp->g->s;
  int rc;
  plKeyClear(k);
  if( s->eForm==PLM_ROWIDS && p->type==SQLITE_INTEGER ){
    k->bInt = 1;
    k->i = p->integer;
    sqlite3VdbeMemInit(&k->m, pOp->db, MEM_Null);
    return SQLITE_OK;
  }
  rc = plMemSet(pOp, &k->m, p, s->affKey);
  k->bSet = 1;
  k->bInt = s->eForm==PLM_ROWIDS && (k->m.flags & (MEM_Int|MEM_IntReal))!=0;
  k->i = k->bInt ? k->m.u.i : 0;
  if( s->eForm==PLM_ROWIDS && (k->m.flags & MEM_Real)!=0 && k->m.u.r==-9223372036854775808.0 ){
    /* Affinity leaves this number alone, and OP_MustBeInt does not. */
    k->bInt = 1;
    k->i = SMALLEST_INT64;
  }
  return rc;
}

static BtCursor *plCursorOf(PlProg *g, int i){
  return g->apCsr[i];
}

/* The cursor that is in the order of keys. */
static BtCursor *plKeyCursor(PlProg *g){
  return plCursorOf(g, g->s.eForm==PLM_INDEX);
}

/* Puts the table's cursor on the row of the index entry that cursor 1 is on. */
static int plToRow(PlOp *pOp, i64 *piRowid){
  BtCursor *pRow = plCursorOf(pOp->g, 0);
  int res = 0;
  int rc = sqlite3VdbeIdxRowid(pOp->db, plKeyCursor(pOp->g), piRowid);
  if( rc==SQLITE_OK ) rc = sqlite3BtreeTableMoveto(pRow, *piRowid, 0, &res);
  return rc==SQLITE_OK && res ? SQLITE_CORRUPT_BKPT : rc;
}

/* Looks a key up. *pRes is 0 if it is there, else as sqlite3BtreeInsert() wants it. */
static int plFind(PlOp *pOp, PlKey *k, int *pRes){
  PlProg *g = pOp->g;
  UnpackedRecord r;
  *pRes = -1;
  if( g->s.eForm==PLM_ROWIDS ){
    if( !k->bInt ) return SQLITE_OK;
    return sqlite3BtreeTableMoveto(plCursorOf(g, 0), k->i, 0, pRes);
  }
  memset(&r, 0, sizeof(r));
  r.pKeyInfo = g->apKeyInfo[g->s.eForm==PLM_INDEX];
  r.aMem = &k->m;
  r.nField = 1;
  return sqlite3BtreeIndexMoveto(plKeyCursor(g), &r, pRes);
}

/* Finds field iField of a record: its serial type, and its first byte. *pbThere: 0 if the record is
** shorter than that. */
static int plFieldAt(const u8 *a, u32 nHdr, u32 nHave, int iField, u32 *pType, u64 *piAt, int *pbThere){
  u32 i, t = 0;
  u64 iAt = nHdr;
  i = getVarint32(a, t);
  *pbThere = 0;
  while( i<nHdr ){
    i += getVarint32(&a[i], t);
    if( i>nHdr || i>nHave ) return SQLITE_CORRUPT_BKPT;
    if( iField--==0 ){
      *pType = t;
      *piAt = iAt;
      *pbThere = 1;
      return SQLITE_OK;
    }
    iAt += sqlite3VdbeSerialTypeLen(t);
  }
  return SQLITE_OK;
}

/* Reads one field of the row that a cursor is on. *pOut points into the page, or into *pHold if it
** is not all there. */
static int plField(PlOp *pOp, BtCursor *pCur, int iField, Mem *pHold, Mem *pOut, int *pbThere){
  sqlite3 *db = pOp->db;
  u32 nAll = sqlite3BtreePayloadSize(pCur), nLocal = 0, nHdr = 0, t = 0, n;
  const u8 *a = sqlite3BtreePayloadFetch(pCur, &nLocal);
  u64 iAt = 0;
  int rc;
  sqlite3VdbeMemInit(pOut, db, MEM_Null);
  *pbThere = 0;
  if( a==0 || nLocal<1 ) return SQLITE_CORRUPT_BKPT;
  (void)getVarint32(a, nHdr);
  if( nHdr<1 || nHdr>98307 || nHdr>nAll ) return SQLITE_CORRUPT_BKPT;
  if( nHdr<=nLocal ){
    rc = plFieldAt(a, nHdr, nLocal, iField, &t, &iAt, pbThere);
  }else{
    Mem hdr;
    sqlite3VdbeMemInit(&hdr, db, MEM_Null);
    rc = sqlite3VdbeMemFromBtree(pCur, 0, nHdr, &hdr);
    if( rc==SQLITE_OK ) rc = plFieldAt((const u8*)hdr.z, nHdr, nHdr, iField, &t, &iAt, pbThere);
    sqlite3VdbeMemRelease(&hdr);
  }
  if( rc || !*pbThere ) return rc;
  n = sqlite3VdbeSerialTypeLen(t);
  if( iAt+n>nAll ) return SQLITE_CORRUPT_BKPT;
  if( n>(u32)db->aLimit[SQLITE_LIMIT_LENGTH] ) return SQLITE_TOOBIG;
  if( iAt+n<=nLocal ){
    sqlite3VdbeSerialGet(&a[iAt], t, pOut);
  }else{
    rc = sqlite3VdbeMemFromBtree(pCur, (u32)iAt, n, pHold);
    if( rc ) return rc;
    sqlite3VdbeSerialGet((const u8*)pHold->z, t, pOut);
  }
  pOut->enc = ENC(db);
  pOut->db = db;
  return SQLITE_OK;
}

/* Reads a text or blob that is on the page as the caller gets it, with a header on the page whose
** numbers are short: almost always. False: plField() has to read it. */
static SQLITE_INLINE int plFieldOnPage(PlOp *pOp, BtCursor *pCur, int iField, plait_value *pOut){
  u32 nAll = sqlite3BtreePayloadSize(pCur), nLocal = 0, i = 1, t, n, iAt, nHdr;
  const u8 *a = sqlite3BtreePayloadFetch(pCur, &nLocal);
  if( nLocal<1 || nLocal>nAll ) return 0;
  iAt = nHdr = a[0];
  if( nHdr>=0x80 || nHdr>nLocal ) return 0;
  for(;;){
    if( i>=nHdr ) return 0;
    t = a[i++];
    if( t>=0x80 ){
      if( i>=nHdr || a[i]>=0x80 ) return 0;
      t = ((t & 0x7f)<<7) | a[i++];
    }
    if( iField--==0 ) break;
    iAt += t<12 ? sqlite3VdbeSerialTypeLen(t) : (t-12)/2;
  }
  if( t<12 || ((t & 1) && ENC(pOp->db)!=SQLITE_UTF8) ) return 0;
  n = (t-12)/2;
  if( iAt+n>nLocal || n>(u32)pOp->db->aLimit[SQLITE_LIMIT_LENGTH] ) return 0;
  pOut->type = t & 1 ? SQLITE_TEXT : SQLITE_BLOB;
  pOut->data = &a[iAt];
  pOut->size = n;
  return 1;
}

/* Copies a text or blob that is on a page, for a caller who keeps it until the next call. */
static SQLITE_INLINE int plKeep(Mem *pHold, plait_value *p){
  int n = (int)p->size;
  if( pHold->szMalloc<n+1 ){
    int rc = sqlite3VdbeMemClearAndResize(pHold, n+1);
    if( rc ) return rc;
  }
  pHold->z = pHold->zMalloc;
  pHold->n = n;
  pHold->flags = MEM_Blob;
  memcpy(pHold->z, p->data, (size_t)n);
  p->data = pHold->z;
  return SQLITE_OK;
}

/* Reads the key of the row that the key's cursor is on. */
static int plKeyHere(PlOp *pOp, Mem *pHold, Mem *pOut){
  BtCursor *pCur = plKeyCursor(pOp->g);
  int bThere, rc;
  if( pOp->g->s.eForm==PLM_ROWIDS ){
    sqlite3VdbeMemInit(pOut, pOp->db, MEM_Null);
    sqlite3VdbeMemSetInt64(pOut, sqlite3BtreeIntegerKey(pCur));
    return SQLITE_OK;
  }
  rc = plField(pOp, pCur, 0, pHold, pOut, &bThere);
  if( pOp->g->s.affKey==SQLITE_AFF_REAL && (pOut->flags & MEM_Int) ) sqlite3VdbeMemSetDouble(pOut, (double)pOut->u.i);
  return rc==SQLITE_OK && !bThere ? SQLITE_CORRUPT_BKPT : rc;
}

/* Reads the value of the row that the key's cursor is on. */
static int plValueHere(PlOp *pOp, Mem *pHold, Mem *pOut){
  PlShape *s = &pOp->g->s;
  i64 iRowid;
  int bThere, rc = SQLITE_OK;
  if( s->eForm==PLM_INDEX ) rc = plToRow(pOp, &iRowid);
  if( rc==SQLITE_OK ) rc = plField(pOp, plCursorOf(pOp->g, 0), s->iValueAt, pHold, pOut, &bThere);
  if( rc==SQLITE_OK && !bThere && s->pDefault ) sqlite3VdbeMemShallowCopy(pOut, s->pDefault, MEM_Static);
  if( rc==SQLITE_OK && s->affValue==SQLITE_AFF_REAL && (pOut->flags & MEM_Int) ){
    sqlite3VdbeMemSetDouble(pOut, (double)pOut->u.i);
  }
  return rc;
}

/* Converts a cell for the caller. Text and blobs go through pHold unless the result may point into
** the cell (bInPlace). */
static int plAnswer(PlOp *pOp, Mem *pIn, Mem *pHold, int bInPlace, plait_value *pOut){
  int rc = SQLITE_OK;
  memset(pOut, 0, sizeof(*pOut));
  if( pIn->flags & MEM_Null ){
    pOut->type = SQLITE_NULL;
  }else if( pIn->flags & (MEM_Int|MEM_IntReal) ){
    pOut->type = SQLITE_INTEGER;
    pOut->integer = pIn->u.i;
  }else if( pIn->flags & MEM_Real ){
    pOut->type = SQLITE_FLOAT;
    pOut->real = pIn->u.r;
  }else{
    int bText = (pIn->flags & MEM_Str)!=0;
    int bHeld = (pHold->flags & (MEM_Str|MEM_Blob))!=0 && pIn->z==pHold->z;
    pOut->type = bText ? SQLITE_TEXT : SQLITE_BLOB;
    if( bText && pIn->enc!=SQLITE_UTF8 ){
      Mem t;
      sqlite3VdbeMemInit(&t, pOp->db, MEM_Null);
      rc = sqlite3VdbeMemSetStr(&t, pIn->z, pIn->n, pIn->enc, SQLITE_TRANSIENT);
      if( rc==SQLITE_OK ) rc = sqlite3VdbeChangeEncoding(&t, SQLITE_UTF8);
      if( rc==SQLITE_OK ) sqlite3VdbeMemMove(pHold, &t);
      else sqlite3VdbeMemRelease(&t);
    }else if( !bHeld && !bInPlace ){
      rc = sqlite3VdbeMemSetStr(pHold, pIn->z, pIn->n, 0, SQLITE_TRANSIENT);
    }else if( !bHeld ){
      pOut->data = pIn->z;
      pOut->size = pIn->n;
      return SQLITE_OK;
    }
    pOut->data = pHold->z;
    pOut->size = pHold->n;
  }
  return rc;
}

/* Returns the value of the row that the key's cursor is on. */
static int plAnswerValue(PlOp *pOp, Mem *pHold, int bInPlace, plait_value *pOut){
  PlProg *g = pOp->g;
  Mem t;
  int rc;
  if( g->s.eForm!=PLM_INDEX && (pHold->flags & (MEM_Dyn|MEM_Agg))==0
   && plFieldOnPage(pOp, plCursorOf(g, 0), g->s.iValueAt, pOut)
  ){
    pOut->integer = 0;
    pOut->real = 0;
    return bInPlace ? SQLITE_OK : plKeep(pHold, pOut);
  }
  rc = plValueHere(pOp, pHold, &t);
  return rc ? rc : plAnswer(pOp, &t, pHold, bInPlace, pOut);
}

/* Returns the key of that row. */
static int plAnswerKey(PlOp *pOp, Mem *pHold, int bInPlace, plait_value *pOut){
  Mem t;
  int rc;
  if( pOp->g->s.eForm==PLM_ROWIDS ){
    memset(pOut, 0, sizeof(*pOut));
    pOut->type = SQLITE_INTEGER;
    pOut->integer = sqlite3BtreeIntegerKey(plCursorOf(pOp->g, 0));
    return SQLITE_OK;
  }
  if( bInPlace && plFieldOnPage(pOp, plKeyCursor(pOp->g), 0, pOut) ){
    pOut->integer = 0;
    pOut->real = 0;
    return SQLITE_OK;
  }
  rc = plKeyHere(pOp, pHold, &t);
  return rc ? rc : plAnswer(pOp, &t, pHold, bInPlace, pOut);
}

static u32 plSerialType(const Mem *p, int bOnes, u32 *pn){
  *pn = 0;
  if( p->flags & MEM_Null ) return 0;
  if( p->flags & (MEM_Int|MEM_IntReal) ){
    i64 i = p->u.i;
    u64 u = (u64)(i<0 ? ~i : i);
    if( (i==0 || i==1) && bOnes ) return 8 + (u32)i;
    if( u<=127 ){ *pn = 1; return 1; }
    if( u<=32767 ){ *pn = 2; return 2; }
    if( u<=8388607 ){ *pn = 3; return 3; }
    if( u<=2147483647 ){ *pn = 4; return 4; }
    if( u<=(((u64)0x00008000)<<32)-1 ){ *pn = 6; return 5; }
    *pn = 8;
    return 6;
  }
  *pn = 8;
  if( p->flags & MEM_Real ) return 7;
  *pn = (u32)p->n;
  return (u32)p->n*2 + ((p->flags & MEM_Str) ? 13 : 12);
}

static void plSerialPut(u8 *a, const Mem *p, u32 t, u32 n){
  u64 u;
  if( n==0 ) return;
  if( t>=12 ){
    memcpy(a, p->z, n);
    return;
  }
  if( t==7 ) memcpy(&u, &p->u.r, 8);
  else u = (u64)p->u.i;
  while( n-- ){
    a[n] = (u8)(u & 0xff);
    u >>= 8;
  }
}

/* Makes the record of one or two fields, in the map's buffer. */
static int plRecord(PlOp *pOp, const Mem *p1, const Mem *p2, u32 *pnRec){
  plait_map *m = pOp->g->pMap;
  int bOnes = pOp->g->v->minWriteFileFormat>=4;
  u32 n1, n2 = 0, t1, t2 = 0, nHdr;
  u64 n;
  t1 = plSerialType(p1, bOnes, &n1);
  nHdr = 1 + (u32)sqlite3VarintLen(t1);
  if( p2 ){
    t2 = plSerialType(p2, bOnes, &n2);
    nHdr += (u32)sqlite3VarintLen(t2);
  }
  n = (u64)nHdr + n1 + n2;
  if( n>(u64)pOp->db->aLimit[SQLITE_LIMIT_LENGTH] ) return SQLITE_TOOBIG;
  if( m->nRecAlloc<(i64)n+PLM_PAD ){
    u8 *aNew = sqlite3Realloc(m->aRec, n*5/4 + PLM_PAD);
    if( aNew==0 ) return SQLITE_NOMEM_BKPT;
    m->aRec = aNew;
    m->nRecAlloc = (i64)(n*5/4) + PLM_PAD;
  }
  m->aRec[0] = (u8)nHdr;
  nHdr = 1 + (u32)sqlite3PutVarint(&m->aRec[1], t1);
  if( p2 ) nHdr += (u32)sqlite3PutVarint(&m->aRec[nHdr], t2);
  plSerialPut(&m->aRec[nHdr], p1, t1, n1);
  if( p2 ) plSerialPut(&m->aRec[nHdr+n1], p2, t2, n2);
  memset(&m->aRec[n], 0, PLM_PAD);
  *pnRec = (u32)n;
  return SQLITE_OK;
}

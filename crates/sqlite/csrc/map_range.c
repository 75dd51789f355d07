/*
** map_range.c - ranges and steps, in ascending order of keys whatever the order of the b-tree is.
**
** Bounds become cells like keys. A prefix becomes the bounds of all keys that begin with it: from
** itself to the next byte string of its length; after the last of all texts come blobs, of which
** the empty one is first. Under INTEGER PRIMARY KEY bounds become integers.
*/

/* Converts a bound that is no integer to the first or last integer within it: reals lie between
** integers; text and blobs sort after every number. */
static void plBoundInteger(PlBounds *b, int bLo){
  PlKey *k = bLo ? &b->lo : &b->hi;
  u8 *pbOpen = bLo ? &b->bLoOpen : &b->bHiOpen;
  if( k->bInt ) return;
  if( k->m.flags & MEM_Real ){
    double r = k->m.u.r;
    i64 i = r>=9223372036854775807.0 ? LARGEST_INT64 : r<=-9223372036854775808.0 ? SMALLEST_INT64 : (i64)r;
    k->bInt = 1;
    k->i = i;
    if( r>=9223372036854775807.0 ){
      if( bLo ) b->bEmpty = 1;
      else *pbOpen = 0;
    }else if( r<-9223372036854775808.0 ){
      if( !bLo ) b->bEmpty = 1;
      else *pbOpen = 0;
    }else if( (double)i!=r ){
      *pbOpen = bLo ? (double)i<r : (double)i>r;
    }
  }else if( bLo ){
    b->bEmpty = 1;
  }else{
    b->bHi = 0;
  }
}

/* Sets the bounds of a prefix, which lo holds. */
static int plBoundPrefix(PlOp *pOp, PlBounds *b){
  PlShape *s = &pOp->g->s;
  Mem *pLo = &b->lo.m;
  Mem *pHi = &b->hi.m;
  int bText = (pLo->flags & MEM_Str)!=0;
  int n, rc;
  if( s->eForm==PLM_ROWIDS || (pLo->flags & (MEM_Str|MEM_Blob))==0 || !s->bBinary ){
    return plOpError(pOp, SQLITE_ERROR, "a prefix must be text or bytes, and the collation of the key BINARY");
  }
  for(n=pLo->n; n>0 && (u8)pLo->z[n-1]==0xff; n--){}
  if( n==0 && !bText ) return SQLITE_OK;
  b->bHi = b->bHiOpen = 1;
  sqlite3VdbeMemInit(pHi, pOp->db, MEM_Null);
  b->hi.bSet = 1;
  if( n==0 ) return sqlite3VdbeMemSetStr(pHi, "", 0, 0, SQLITE_STATIC);
  rc = sqlite3VdbeMemSetStr(pHi, pLo->z, n, 0, SQLITE_TRANSIENT);
  if( rc ) return rc;
  pHi->z[n-1]++;
  if( bText ){
    pHi->flags = (pHi->flags & ~MEM_Blob) | MEM_Str;
    pHi->enc = ENC(pOp->db);
  }
  return SQLITE_OK;
}

/* True if this is no range. Checked before anything runs. */
static int plRangeBad(const plait_range *p){
  if( p==0 ) return 0;
  if( p->flags & ~(PLAIT_LO_OPEN|PLAIT_HI_OPEN|PLAIT_PREFIX) ) return 1;
  if( p->lo.type!=PLAIT_NONE && plValueBad(&p->lo, 1) ) return 1;
  if( p->hi.type!=PLAIT_NONE && plValueBad(&p->hi, 1) ) return 1;
  return (p->flags & PLAIT_PREFIX) && ((p->lo.type!=SQLITE_TEXT && p->lo.type!=SQLITE_BLOB) || p->hi.type!=PLAIT_NONE
         || (p->flags & (PLAIT_LO_OPEN|PLAIT_HI_OPEN)));
}

static int plRangeBig(sqlite3 *db, const plait_range *p){
  return p!=0 && (plValueBig(db, &p->lo) || plValueBig(db, &p->hi));
}

/* Makes the bounds of a range, once for each run of the program. */
static int plBounds(PlOp *pOp, PlBounds *b, const plait_range *p){
  int bRowids = pOp->g->s.eForm==PLM_ROWIDS;
  int rc = SQLITE_OK;
  if( b->bReady ) return SQLITE_OK;
  b->bLo = b->bHi = b->bLoOpen = b->bHiOpen = b->bEmpty = 0;
  if( p && p->lo.type!=PLAIT_NONE ){
    b->bLo = 1;
    b->bLoOpen = (p->flags & PLAIT_LO_OPEN)!=0;
    rc = plKeySet(pOp, &b->lo, &p->lo);
    if( rc==SQLITE_OK && (p->flags & PLAIT_PREFIX) ) rc = plBoundPrefix(pOp, b);
    else if( rc==SQLITE_OK && bRowids ) plBoundInteger(b, 1);
  }else if( pOp->g->s.bNullKey ){
    b->bLo = b->bLoOpen = 1;
    sqlite3VdbeMemInit(&b->lo.m, pOp->db, MEM_Null);
    b->lo.bSet = 1;
  }
  if( rc==SQLITE_OK && p && p->hi.type!=PLAIT_NONE ){
    b->bHi = 1;
    b->bHiOpen = (p->flags & PLAIT_HI_OPEN)!=0;
    rc = plKeySet(pOp, &b->hi, &p->hi);
    if( rc==SQLITE_OK && bRowids ) plBoundInteger(b, 0);
  }
  b->bReady = rc==SQLITE_OK;
  return rc;
}

/* True in *pbPast if the current row is before (dir<0) or after (dir>0) the bound on that side. */
static int plPast(PlOp *pOp, PlBounds *b, int dir, int *pbPast){
  PlProg *g = pOp->g;
  PlKey *k = dir>0 ? &b->hi : &b->lo;
  int bOpen = dir>0 ? b->bHiOpen : b->bLoOpen;
  int c, rc = SQLITE_OK;
  *pbPast = 0;
  if( !(dir>0 ? b->bHi : b->bLo) ) return SQLITE_OK;
  if( g->s.eForm==PLM_ROWIDS ){
    i64 i = sqlite3BtreeIntegerKey(plKeyCursor(g));
    c = i<k->i ? -1 : i>k->i;
  }else{
    Mem hold, m;
    sqlite3VdbeMemInit(&hold, pOp->db, MEM_Null);
    rc = plKeyHere(pOp, &hold, &m);
    c = rc ? 0 : sqlite3MemCompare(&m, &k->m, g->apKeyInfo[g->s.eForm==PLM_INDEX]->aColl[0]);
    sqlite3VdbeMemRelease(&hold);
    if( pOp->db->mallocFailed ) rc = SQLITE_NOMEM_BKPT;
  }
  *pbPast = c*dir>0 || (c==0 && bOpen);
  return rc;
}

/* Steps once in the order of keys. *pbRow: 0 after the last row. */
static int plStepKey(PlOp *pOp, int dir, int *pbRow){
  BtCursor *pCur = plKeyCursor(pOp->g);
  int rc;
  if( pOp->g->s.bDesc ) dir = -dir;
  rc = dir>0 ? sqlite3BtreeNext(pCur, 0) : sqlite3BtreePrevious(pCur, 0);
  *pbRow = rc==SQLITE_OK;
  return rc==SQLITE_DONE ? SQLITE_OK : rc;
}

/* Moves to the first (dir>0) or last row of all. */
static int plEndKey(PlOp *pOp, int dir, int *pbRow){
  BtCursor *pCur = plKeyCursor(pOp->g);
  int bEmpty = 0;
  int rc;
  if( pOp->g->s.bDesc ) dir = -dir;
  rc = dir>0 ? sqlite3BtreeFirst(pCur, &bEmpty) : sqlite3BtreeLast(pCur, &bEmpty);
  *pbRow = rc==SQLITE_OK && !bEmpty;
  return rc;
}

/* Moves to the nearest row after (dir>0) or before a key; bOpen: the key itself does not count. As
** OP_SeekGE and its kin. */
static int plSeekKey(PlOp *pOp, PlKey *k, int dir, int bOpen, int *pbRow){
  PlProg *g = pOp->g;
  BtCursor *pCur = plKeyCursor(g);
  int res = 0, rc;
  if( g->s.bDesc ) dir = -dir;
  if( g->s.eForm==PLM_ROWIDS ){
    rc = sqlite3BtreeTableMoveto(pCur, k->i, 0, &res);
  }else{
    UnpackedRecord r;
    memset(&r, 0, sizeof(r));
    r.pKeyInfo = g->apKeyInfo[g->s.eForm==PLM_INDEX];
    r.aMem = &k->m;
    r.nField = 1;
    r.default_rc = (i8)((dir>0)==(bOpen!=0) ? -1 : +1);
    rc = sqlite3BtreeIndexMoveto(pCur, &r, &res);
  }
  if( rc ) return rc;
  if( dir>0 ){
    *pbRow = 1;
    if( res<0 || (res==0 && bOpen) ) rc = sqlite3BtreeNext(pCur, 0);
  }else if( res>0 || (res==0 && bOpen) ){
    rc = sqlite3BtreePrevious(pCur, 0);
    *pbRow = 1;
  }else{
    *pbRow = !sqlite3BtreeEof(pCur);
  }
  if( rc==SQLITE_DONE ){
    rc = SQLITE_OK;
    *pbRow = 0;
  }
  if( rc==SQLITE_OK && PL_STEP(pCur) ) plSeekLanded(pCur, *pbRow);
  return rc;
}

/* Moves to the first (dir>0) or last row of a range. */
static int plEndRange(PlOp *pOp, PlBounds *b, int dir, int *pbRow){
  int bPast, rc;
  *pbRow = 0;
  if( b->bEmpty ) return SQLITE_OK;
  if( dir>0 && b->bLo ) rc = plSeekKey(pOp, &b->lo, +1, b->bLoOpen, pbRow);
  else if( dir<0 && b->bHi ) rc = plSeekKey(pOp, &b->hi, -1, b->bHiOpen, pbRow);
  else rc = plEndKey(pOp, dir, pbRow);
  if( rc || !*pbRow ) return rc;
  rc = plPast(pOp, b, dir, &bPast);
  if( rc || bPast ) *pbRow = 0;
  return rc;
}

/* Steps once within a range. */
static int plStepRange(PlOp *pOp, PlBounds *b, int dir, int *pbRow){
  int bPast, rc = plStepKey(pOp, dir, pbRow);
  if( rc || !*pbRow || !(dir>0 ? b->bHi : b->bLo) ) return rc;
  rc = plPast(pOp, b, dir, &bPast);
  if( rc || bPast ) *pbRow = 0;
  return rc;
}

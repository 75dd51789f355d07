/*
** map_write.c - writes or deletes one row.
**
** A row without side effects (PlShape.bDirect) is written directly, in the order and with the
** counting, hooks and seek results of the machine's own Insert, IdxInsert and Delete. Any other row
** is written by a prepared SQL statement that runs within the map's own (KV-5): it has begun no
** transaction, so it commits none.
*/

/* True if a write must go through SQL. */
static int plNeedsSql(PlOp *pOp, const plait_value *pValue){
  PlShape *s = &pOp->g->s;
  return !s->bDirect || pOp->db->xPreUpdateCallback!=0 || (pValue && pValue->type==SQLITE_NULL && s->bNotNull);
}

static int plBindValue(sqlite3_stmt *p, int i, const plait_value *pValue){
  switch( pValue->type ){
    case SQLITE_INTEGER: return sqlite3_bind_int64(p, i, pValue->integer);
    case SQLITE_FLOAT:   return sqlite3_bind_double(p, i, pValue->real);
    case SQLITE_TEXT:
      return sqlite3_bind_text64(p, i, pValue->data ? pValue->data : "", (u64)pValue->size, SQLITE_STATIC, SQLITE_UTF8);
    case SQLITE_BLOB:
      return sqlite3_bind_blob64(p, i, pValue->data ? pValue->data : "", (u64)pValue->size, SQLITE_STATIC);
  }
  return sqlite3_bind_null(p, i);
}

static char *plSqlText(PlOp *pOp, int eWhat){
  plait_map *m = pOp->g->pMap;
  PlShape *s = &pOp->g->s;
  switch( eWhat ){
    case PLM_INSERT:
      return sqlite3_mprintf("INSERT INTO \"%w\".\"%w\"(\"%w\",\"%w\") VALUES(?1,?2)", m->zDb, s->zTab, s->zKey, s->zValue);
    case PLM_UPDATE:
      return sqlite3_mprintf("UPDATE \"%w\".\"%w\" SET \"%w\"=?2 WHERE \"%w\"=?1", m->zDb, s->zTab, s->zValue, s->zKey);
  }
  return sqlite3_mprintf("DELETE FROM \"%w\".\"%w\" WHERE \"%w\"=?1", m->zDb, s->zTab, s->zKey);
}

/* The text of a nested statement's failure is the operation's. */
static int plSqlFailed(PlOp *pOp, int rc){
  return plOpError(pOp, rc, "%s", sqlite3_errmsg(pOp->db));
}

static int plSqlPrepare(PlOp *pOp, int eWhat, sqlite3_stmt **pp){
  plait_map *m = pOp->g->pMap;
  sqlite3_stmt *p = m->apSql[eWhat];
  int rc = SQLITE_OK;
  if( p && ((Vdbe*)p)->expired ){
    sqlite3_finalize(p);
    p = m->apSql[eWhat] = 0;
  }
  if( p==0 ){
    char *z = plSqlText(pOp, eWhat);
    if( z==0 ) return SQLITE_NOMEM_BKPT;
    rc = sqlite3_prepare_v3(pOp->db, z, -1, SQLITE_PREPARE_PERSISTENT, &m->apSql[eWhat], 0);
    sqlite3_free(z);
    p = m->apSql[eWhat];
  }
  *pp = p;
  return rc ? plSqlFailed(pOp, rc) : SQLITE_OK;
}

/* The statement around it counts its changes, once. */
static int plSqlWrite(PlOp *pOp, int eWhat, const plait_value *pKey, const plait_value *pValue){
  sqlite3 *db = pOp->db;
  sqlite3_stmt *p = 0;
  i64 nChange;
  int rc = plSqlPrepare(pOp, eWhat, &p);
  if( rc ) return rc;
  rc = plBindValue(p, 1, pKey);
  if( rc==SQLITE_OK && pValue ) rc = plBindValue(p, 2, pValue);
  if( rc ) return plSqlFailed(pOp, rc);
  ((Vdbe*)p)->changeCntOn = 0;
  (void)sqlite3_step(p);
  nChange = ((Vdbe*)p)->nChange;
  if( ((Vdbe*)p)->changeCntOn ){
    /* The schema was read again, and the statement prepared again with it: it has counted
    ** them itself. */
    nChange = db->nChange;
    db->nTotalChange -= nChange;
  }
  rc = sqlite3_reset(p);
  if( rc ) rc = plSqlFailed(pOp, rc);
  else pOp->g->v->nChange += nChange;
  pOp->bKept = nChange==0;
  (void)sqlite3_clear_bindings(p);
  return rc;
}

/* A row of a table with rowids has changed: counting, update hook. */
static void plChanged(PlOp *pOp, int eWhat, i64 iRowid){
  PlProg *g = pOp->g;
  sqlite3 *db = pOp->db;
  g->v->nChange++;
  if( g->s.eForm==PLM_KEYED ) return;
  if( eWhat==SQLITE_INSERT ) db->lastRowid = iRowid;
  if( db->xUpdateCallback ){
    db->xUpdateCallback(db->pUpdateArg, eWhat, db->aDb[g->v->apCsr[0]->iDb].zDbSName, g->s.zTab, iRowid);
  }
}

/* Puts the row into a b-tree of rowids. pKey is its key as it is to be stored. */
static int plInsertRowid(PlOp *pOp, i64 iRowid, const Mem *pKey, const Mem *pValue, int res){
  PlShape *s = &pOp->g->s;
  BtreePayload x;
  u32 n;
  int rc = plRecord(pOp, s->iKeyAt ? pValue : pKey, s->iKeyAt ? pKey : pValue, &n);
  if( rc ) return rc;
  memset(&x, 0, sizeof(x));
  x.nKey = iRowid;
  x.pData = pOp->g->pMap->aRec;
  x.nData = (int)n;
  return sqlite3BtreeInsert(plCursorOf(pOp->g, 0), &x, 0, res);
}

static int plInsertKeyed(PlOp *pOp, PlKey *k, const Mem *pKey, const Mem *pSecond, int res){
  BtreePayload x;
  u32 n;
  int rc = plRecord(pOp, pKey, pSecond, &n);
  if( rc ) return rc;
  memset(&x, 0, sizeof(x));
  x.pKey = pOp->g->pMap->aRec;
  x.nKey = n;
  if( pOp->g->s.eForm==PLM_KEYED ){
    x.aMem = &k->m;
    x.nMem = 1;
  }
  return sqlite3BtreeInsert(plKeyCursor(pOp->g), &x, 0, res);
}

/* Inserts a row for a key that is not there. */
static int plInsertRow(PlOp *pOp, PlKey *k, const Mem *pValue, int res, int *pNext){
  PlProg *g = pOp->g;
  Mem none;
  i64 iRowid = k->i;
  int rc;
  sqlite3VdbeMemInit(&none, pOp->db, MEM_Null);
  switch( g->s.eForm ){
    case PLM_KEYED:
      rc = plInsertKeyed(pOp, k, &k->m, pValue, res);
      break;
    case PLM_ROWIDS:
      rc = plInsertRowid(pOp, iRowid, &none, pValue, res);
      break;
    default:
      if( !pOp->bRowid ){
        *pNext = PLM_ROWID;
        return SQLITE_OK;
      }
      pOp->bRowid = 0;
      iRowid = g->v->aMem[2].u.i;
      rc = plInsertRowid(pOp, iRowid, &k->m, pValue, 0);
      if( rc==SQLITE_OK ){
        sqlite3VdbeMemSetInt64(&none, iRowid);
        rc = plInsertKeyed(pOp, k, &k->m, &none, res);
      }
  }
  if( rc==SQLITE_OK ) plChanged(pOp, SQLITE_INSERT, iRowid);
  return rc;
}

/* Sets another value for the row that the cursors are on. Its key stays as it was stored. */
static int plUpdateRow(PlOp *pOp, PlKey *k, const Mem *pValue){
  PlProg *g = pOp->g;
  Mem hold, old;
  i64 iRowid = k->i;
  int bThere = 1, rc = SQLITE_OK;
  sqlite3VdbeMemInit(&hold, pOp->db, MEM_Null);
  sqlite3VdbeMemInit(&old, pOp->db, MEM_Null);
  if( g->s.eForm==PLM_INDEX ) rc = plToRow(pOp, &iRowid);
  if( rc==SQLITE_OK && g->s.eForm!=PLM_ROWIDS ){
    rc = plField(pOp, plCursorOf(g, 0), g->s.eForm==PLM_KEYED ? 0 : g->s.iKeyAt, &hold, &old, &bThere);
    if( rc==SQLITE_OK && !bThere ) rc = SQLITE_CORRUPT_BKPT;
  }
  if( rc==SQLITE_OK ){
    if( g->s.eForm==PLM_KEYED ) rc = plInsertKeyed(pOp, k, &old, pValue, 0);
    else rc = plInsertRowid(pOp, iRowid, &old, pValue, 0);
  }
  sqlite3VdbeMemRelease(&hold);
  if( rc==SQLITE_OK ) plChanged(pOp, SQLITE_UPDATE, iRowid);
  return rc;
}

/* Writes a row. pOp->key has just been looked up, with the result res. */
static int plWriteRow(PlOp *pOp, const plait_value *pKey, int res, const plait_value *pValue, int *pNext){
  PlKey *k = &pOp->key;
  Mem v;
  int rc;
  if( plNeedsSql(pOp, pValue) ){
    return plSqlWrite(pOp, res==0 ? PLM_UPDATE : PLM_INSERT, pKey, pValue);
  }
  if( pOp->g->s.eForm==PLM_ROWIDS && !k->bInt ){
    return plOpError(pOp, SQLITE_MISMATCH, "datatype mismatch: the keys of \"%s\" are integers", pOp->g->s.zTab);
  }
  rc = plMemSet(pOp, &v, pValue, pOp->g->s.affValue);
  if( rc==SQLITE_OK ) rc = res==0 ? plUpdateRow(pOp, k, &v) : plInsertRow(pOp, k, &v, res, pNext);
  sqlite3VdbeMemRelease(&v);
  return rc;
}

/* Deletes the row that the key's cursor is on. bStay: the walk goes on from there. */
static int plDropRow(PlOp *pOp, const plait_value *pKey, int bStay){
  PlProg *g = pOp->g;
  BtCursor *pCur = plKeyCursor(g);
  u8 flags = bStay ? BTREE_SAVEPOSITION : 0;
  i64 iRowid = 0;
  int rc = SQLITE_OK;
  if( plNeedsSql(pOp, 0) ) return plSqlWrite(pOp, PLM_DELETE, pKey, 0);
  if( g->s.eForm==PLM_ROWIDS ) iRowid = sqlite3BtreeIntegerKey(pCur);
  if( g->s.eForm==PLM_INDEX ) rc = plToRow(pOp, &iRowid);
  if( rc==SQLITE_OK ) rc = sqlite3BtreeDelete(pCur, flags);
  if( rc==SQLITE_OK && g->s.eForm==PLM_INDEX ) rc = sqlite3BtreeDelete(plCursorOf(g, 0), 0);
  if( rc==SQLITE_OK ) plChanged(pOp, SQLITE_DELETE, iRowid);
  return rc;
}

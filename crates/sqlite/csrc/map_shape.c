/*
** map_shape.c - a table as a map: which of its columns are key and value, where their fields are,
** and whether rows may be written without SQL.
*/

static void plShapeClear(sqlite3 *db, PlShape *s){
  sqlite3DbFree(db, s->zTab);
  sqlite3DbFree(db, s->zKey);
  sqlite3DbFree(db, s->zValue);
  sqlite3ValueFree(s->pDefault);
  memset(s, 0, sizeof(*s));
}

static Index *plPrimaryKey(Table *pTab){
  Index *p;
  for(p=pTab->pIndex; p && !IsPrimaryKeyIndex(p); p=p->pNext){}
  return p;
}

/* The collation by which WHERE and ORDER BY compare a column. */
static const char *plCollationOf(Column *pCol){
  const char *z = sqlite3ColumnColl(pCol);
  return z ? z : sqlite3StrBINARY;
}

/* The number of the column that is not the key, or -1 if there is not exactly one. */
static int plValueColumn(Table *pTab, int iKey){
  int i, iValue = -1;
  for(i=0; i<pTab->nCol; i++){
    if( i==iKey || (pTab->aCol[i].colFlags & COLFLAG_GENERATED) ) continue;
    if( iValue>=0 ) return -1;
    iValue = i;
  }
  return iValue;
}

/* True if rows may be written to the b-trees. A row must have no side effects but its key, and its
** fields must be what the caller gave. */
static int plShapeDirect(Parse *pParse, Table *pTab, Index *pPk, PlShape *s){
  if( pTab->tabFlags & (TF_HasGenerated|TF_Strict|TF_Autoincrement) ) return 0;
  if( pTab->pCheck || pTab->u.tab.pFKey || sqlite3FkReferences(pTab) ) return 0;
  if( sqlite3TriggerList(pParse, pTab) ) return 0;
  if( pTab->pIndex!=pPk || (pPk && pPk->pNext) ) return 0;
  return s->affKey!=SQLITE_AFF_REAL && s->affValue!=SQLITE_AFF_REAL;
}

/* True if SQL would not let this table be written. */
static int plShapeOwn(sqlite3 *db, Table *pTab){
  if( sqlite3StrNICmp(pTab->zName, "sqlite_", 7)==0 || (pTab->tabFlags & TF_Readonly) ) return 1;
  return (pTab->tabFlags & TF_Shadow)!=0 && sqlite3ReadOnlyShadowTables(db);
}

/* Fills *s, or leaves the reason why the table is no map in pParse. */
static void plShapeOf(Parse *pParse, plait_map *m, Table *pTab, PlShape *s, Index **ppPk){
  sqlite3 *db = pParse->db;
  const char *zWhy = 0;
  Index *pPk;
  int iKey, iValue = -1;
  if( IsVirtual(pTab) ) zWhy = "it is a virtual table";
  else if( IsView(pTab) ) zWhy = "it is a view";
  else if( (m->flags & PLAIT_MAP_READONLY)==0 && plShapeOwn(db, pTab) ){
    zWhy = "it is SQLite's own, and not to be written";
  }
  if( zWhy ) goto refuse;
  *ppPk = pPk = plPrimaryKey(pTab);
  iKey = pTab->iPKey;
  if( iKey<0 && pPk==0 ){
    zWhy = "it has no primary key";
  }else if( iKey<0 && (pPk->nKeyCol!=1 || pPk->aiColumn[0]<0) ){
    zWhy = "its primary key has several columns";
  }else{
    if( iKey<0 ) iKey = pPk->aiColumn[0];
    iValue = plValueColumn(pTab, iKey);
    if( pPk && pTab->iPKey<0 && sqlite3StrICmp(pPk->azColl[0], plCollationOf(&pTab->aCol[iKey]))!=0 ){
      zWhy = "its primary key compares by another collation than its column";
    }else if( iValue<0 ) zWhy = "besides its key it must have exactly one column that is not generated";
    else if( pTab->aCol[iKey].colFlags & COLFLAG_GENERATED ) zWhy = "its key is generated";
  }
  if( zWhy ) goto refuse;
  s->eForm = pTab->iPKey>=0 ? PLM_ROWIDS : HasRowid(pTab) ? PLM_INDEX : PLM_KEYED;
  s->affKey = s->eForm==PLM_ROWIDS ? SQLITE_AFF_INTEGER : pTab->aCol[iKey].affinity;
  s->affValue = pTab->aCol[iValue].affinity;
  s->bNotNull = pTab->aCol[iValue].notNull!=0;
  s->iValueAt = s->eForm==PLM_KEYED ? sqlite3TableColumnToIndex(pPk, iValue) : sqlite3TableColumnToStorage(pTab, (i16)iValue);
  s->iKeyAt = s->eForm!=PLM_KEYED && iKey>iValue;
  s->bBinary = 1;
  if( s->eForm!=PLM_ROWIDS ){
    s->bDesc = (pPk->aSortOrder[0] & KEYINFO_ORDER_DESC)!=0;
    s->bBinary = sqlite3StrICmp(pPk->azColl[0], sqlite3StrBINARY)==0;
    s->bNullKey = s->eForm==PLM_INDEX && pTab->aCol[iKey].notNull==0;
  }
  s->bDirect = (u8)plShapeDirect(pParse, pTab, pPk, s);
  s->zTab = sqlite3DbStrDup(db, pTab->zName);
  s->zKey = sqlite3DbStrDup(db, pTab->aCol[iKey].zCnName);
  s->zValue = sqlite3DbStrDup(db, pTab->aCol[iValue].zCnName);
  if( pTab->aCol[iValue].iDflt ){
    (void)sqlite3ValueFromExpr(db, sqlite3ColumnExpr(pTab, &pTab->aCol[iValue]), ENC(db), s->affValue, &s->pDefault);
  }
  return;
refuse:
  sqlite3ErrorMsg(pParse, "table \"%s\" cannot be a map: %s", pTab->zName, zWhy);
}

/* Makes one call of the authorizer. */
static void plShapeAsk(Parse *pParse, int eCode, const char *z1, const char *z2, const char *zDb){
  if( pParse->nErr==0 && sqlite3AuthCheck(pParse, eCode, z1, z2, zDb)==SQLITE_IGNORE ){
    sqlite3ErrorMsg(pParse, "not authorized");
    pParse->rc = SQLITE_AUTH;
  }
}

/* Calls the authorizer for all that the map may be used for: no operation calls it again. */
static void plShapeAuthorize(Parse *pParse, plait_map *m, int iDb, PlShape *s){
  sqlite3 *db = pParse->db;
  const char *zDb = db->aDb[iDb].zDbSName;
  int i;
  if( db->xAuth==0 || db->mallocFailed ) return;
  plShapeAsk(pParse, SQLITE_SELECT, 0, 0, 0);
  for(i=0; i<2 && pParse->nErr==0; i++){
    if( sqlite3AuthReadCol(pParse, s->zTab, i ? s->zValue : s->zKey, iDb)==SQLITE_IGNORE ){
      sqlite3ErrorMsg(pParse, "access to %s.%s is prohibited", s->zTab, i ? s->zValue : s->zKey);
      pParse->rc = SQLITE_AUTH;
    }
  }
  if( m->flags & PLAIT_MAP_READONLY ) return;
  plShapeAsk(pParse, SQLITE_INSERT, s->zTab, 0, zDb);
  plShapeAsk(pParse, SQLITE_UPDATE, s->zTab, s->zValue, zDb);
  plShapeAsk(pParse, SQLITE_DELETE, s->zTab, 0, zDb);
}

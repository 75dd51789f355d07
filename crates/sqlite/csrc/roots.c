/*
** roots.c - from a root page to its key order, through the schema of a connection.
**
** Merges, replays and ClearTable come with root pages alone. The key order of an index is in the
** schema: sqlite3KeyInfoOfIndex(). A WITHOUT ROWID table is its primary key's index, with the
** table's root page.
**
** The caller's schema must be loaded and match the file (compare the cookie first).
*/

/* Returns the index whose b-tree has this root, or 0: then it is a rowid table (or unknown). */
static Index *plIndexOfRoot(Schema *pSchema, Pgno iRoot){
  HashElem *k;
  for(k=sqliteHashFirst(&pSchema->idxHash); k; k=sqliteHashNext(k)){
    Index *pIdx = (Index*)sqliteHashData(k);
    if( pIdx->tnum==iRoot ) return pIdx;
  }
  return 0;
}

/* Loads the schema of this file if the connection has forgotten it, as it does in a ROLLBACK TO
** after a change of any schema; some pragmas then write without looking at the schema. */
static int plNeedSchema(Btree *p){
  sqlite3 *db = p->db;
  int iDb = plDbIndex(p);
  u32 bChanged = db->mDbFlags & DBFLAG_SchemaChange;
  u8 bAlone = db->autoCommit;
  char *zErr = 0;
  int rc;
  if( DbHasProperty(db, iDb, DB_SchemaLoaded) || db->init.busy ) return SQLITE_OK;
  /* If no other statement runs, as when a backup's destination is written, the end of the one that
  ** reads the schema would commit the open transaction. */
  db->autoCommit = 0;
  rc = sqlite3InitOne(db, iDb, &zErr, 0);
  /* Where there was a transaction, autoCommit says whether an error has rolled it back. */
  if( bAlone ) db->autoCommit = 1;
  /* As in sqlite3Init(): what was read from the file is no change that a ROLLBACK would have
  ** to undo. */
  if( rc==SQLITE_OK && !bChanged ) db->mDbFlags &= ~(u32)DBFLAG_SchemaChange;
  sqlite3DbFree(db, zErr);
  return rc;
}

/* Sets *ppInfo to the KeyInfo of a root (a reference for the caller), or to 0 for a rowid table. */
static int plKeyInfoOfRoot(sqlite3 *db, int iDb, Pgno iRoot, KeyInfo **ppInfo){
  Schema *pSchema = db->aDb[iDb].pSchema;
  Index *pIdx = plIndexOfRoot(pSchema, iRoot);
  HashElem *k;
  int rc = SQLITE_OK;
  *ppInfo = 0;
  if( pIdx ){
    Parse sParse;
    sqlite3ParseObjectInit(&sParse, db);
    *ppInfo = sqlite3KeyInfoOfIndex(&sParse, pIdx);
    if( *ppInfo==0 ) rc = db->mallocFailed ? SQLITE_NOMEM_BKPT : SQLITE_ERROR_MISSING_COLLSEQ;
    sqlite3DbFree(db, sParse.zErrMsg);
    sParse.zErrMsg = 0;
    sqlite3ParseObjectReset(&sParse);
    return rc;
  }
  for(k=sqliteHashFirst(&pSchema->tblHash); k; k=sqliteHashNext(k)){
    Table *pTab = (Table*)sqliteHashData(k);
    if( pTab->tnum==iRoot && HasRowid(pTab) ) return SQLITE_OK;
  }
  return SQLITE_CORRUPT_PGNO(iRoot);
}

/* The built-in collating functions of main.c, which comes later. */
static int nocaseCollatingFunc(void*, int, const void*, int, const void*);
static int rtrimCollFunc(void*, int, const void*, int, const void*);

/* PL_COLL_x of a collating sequence, or -1 for one that the application defined. */
static int plCollation(CollSeq *pColl){
  if( pColl==0 || pColl->xCmp==sqlite3BinaryCompare ) return PL_COLL_BINARY;
  if( pColl->xCmp==nocaseCollatingFunc ) return PL_COLL_NOCASE;
  if( pColl->xCmp==rtrimCollFunc ) return PL_COLL_RTRIM;
  return -1;
}

/* True if an index has a collation that the application defined, or has yet to define. Does not
** request the collation. */
static int plIsCustomIndex(sqlite3 *db, const Index *pIdx){
  int i;
  for(i=0; i<pIdx->nKeyCol; i++){
    const char *z = pIdx->azColl[i];
    CollSeq *pColl;
    if( sqlite3StrICmp(z, "BINARY") && sqlite3StrICmp(z, "NOCASE") && sqlite3StrICmp(z, "RTRIM") ) return 1;
    pColl = sqlite3FindCollSeq(db, ENC(db), z, 0);
    if( pColl && plCollation(pColl)<0 ) return 1;
  }
  return 0;
}

/* Counts the indexes whose tables take the exclusive path, because the engine does not know
** their order. */
static int plCountCustomIndexes(sqlite3 *db, int iDb){
  Schema *pSchema = db->aDb[iDb].pSchema;
  HashElem *k;
  int n = 0;
  if( pSchema==0 ) return 0;
  for(k=sqliteHashFirst(&pSchema->idxHash); k; k=sqliteHashNext(k)){
    n += plIsCustomIndex(db, (Index*)sqliteHashData(k));
  }
  return n;
}

/*
** whole.c - a statement happens whole or not at all.
**
** SQLite opens a savepoint for a statement (its statement journal) where its compiler knows that a constraint can refuse the statement
** after its first change. The engine can refuse any write: a transaction has to become exclusive in the middle of a statement and finds
** the right taken, a second file cannot take part, memory is full. So each statement that writes to a concurrent file gets a savepoint.
** In the write set that is a mark in the undo log, and one entry there for each key that the statement changes.
**
**   OP_Transaction     plKeepsWhole(): does the statement get a savepoint where SQLite gives it none?
**   sqlite3VdbeHalt()  takes the savepoint back after an error, as after a constraint, and releases it after success
**
** | the statement fails with               | what SQLite does      | what is left                                   |
** |----------------------------------------|-----------------------|------------------------------------------------|
** | BUSY, BUSY_SNAPSHOT, ERROR, and others | takes the savepoint back | the transaction as it was before the statement |
** | NOMEM, FULL with SQLite's own journal  | the same              | the same                                       |
** | IOERR, INTERRUPT; NOMEM, FULL without  | rolls back everything | no transaction                                 |
** | any, in autocommit                     | rolls back everything | no transaction                                 |
** | any, after a virtual table with a memory of its own was written to (W3) | rolls back everything | no transaction |
**
** Invariants
**  W1 Every change of a statement to a concurrent file is behind a savepoint of that statement, or the statement is all that its
**     transaction has changed (autocommit), or the transaction is exclusive and of one file: there SQLite's own code alone can fail.
**     A file of several is behind one if any of them is.
**  W2 Virtual tables hear of the savepoints alone that SQLite opens by itself: FTS5 and FTS3 write their pending terms at each one, so
**     that a load would flush for each row.
**  W3 A virtual table that has xRollbackTo has a memory that only xRollbackTo brings back. A statement without SQLite's own journal
**     that has written to one is not taken back: the transaction is rolled back, and the code is SQLITE_ABORT_ROLLBACK.
**  W4 A handle to a blob is no statement: it stays open, and each of its writes is one row.
**  W5 A statement whose transaction is rolled back in its middle (by a function of the application that says ROLLBACK, by INSERT OR
**     ROLLBACK inside of it) changes nothing any more: it finds no write transaction (plWritable), and opens no cursor (expired).
*/

/* Does a statement need a savepoint that SQLite does not open? Asked at each OP_Transaction that writes; the answer of the first stays. */
static SQLITE_NOINLINE int plKeepsWhole(Vdbe *v){
  sqlite3 *db = v->db;
  int i, nFile = 0, bOurs = 0;
  if( v->iStatement ) return 1;
  if( v->bPlBlob ) return 0;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( p==0 || !DbMaskTest(v->btreeMask, i) ) continue;
    if( PL_BT(p) && !p->pPl->bExcl ) return 1;
    bOurs |= p->pPl!=0;
    nFile += i!=1;
  }
  /* The second file may be refused beside the first (several.c). */
  return bOurs && nFile>1;
}

/* Has a virtual table of the open transaction a memory of its own (W3)? */
static int plVtabRemembers(sqlite3 *db){
  int i;
  for(i=0; i<db->nVTrans; i++){
    sqlite3_vtab *pVtab = db->aVTrans[i]->pVtab;
    if( pVtab && pVtab->pModule->iVersion>=2 && pVtab->pModule->xRollbackTo ) return 1;
  }
  return 0;
}

/* sqlite3VtabSavepoint() of a statement's savepoint (W2). */
static int plVtabSavepoint(Vdbe *v, int op, int iSavepoint){
  sqlite3 *db = v->db;
  char *zWhy;
  if( v->usesStmtJournal ) return sqlite3VtabSavepoint(db, op, iSavepoint);
  if( op==SAVEPOINT_BEGIN ) v->nPlUpdate = db->nPlUpdate;
  if( op!=SAVEPOINT_ROLLBACK || v->nPlUpdate==db->nPlUpdate || !plVtabRemembers(db) ) return SQLITE_OK;
  zWhy = sqlite3_mprintf("%s", v->zErrMsg ? v->zErrMsg : sqlite3ErrStr(v->rc));
  sqlite3VdbeError(v, "the statement failed (%s) after it had written to a virtual table, which cannot take that back; the transaction was "
      "rolled back; begin it again", zWhy);
  sqlite3_free(zWhy);
  return v->rc = SQLITE_ABORT_ROLLBACK;
}

/* The innermost savepoint that virtual tables know of, counted from 1, or 0. */
static int plVtabLevel(sqlite3 *db){
  int iLevel = db->nSavepoint;
  Vdbe *v;
  for(v=db->nStatement ? db->pVdbe : 0; v; v=v->pVNext){
    if( v->eVdbeState==VDBE_RUN_STATE && v->usesStmtJournal && v->iStatement>iLevel ) iLevel = v->iStatement;
  }
  return iLevel;
}

/* The transaction becomes exclusive. From here on the engine refuses nothing to a statement whose transaction has one file: savepoints that SQLite
** would not have opened go, for each page that is changed behind one is copied first. */
static void plOwnSavepoints(Btree *p){
  int n = p->db->nDb>2 ? p->pPl->nSavepoint : plVtabLevel(p->db);
  if( p->pPl->nSavepoint>n ) p->pPl->nSavepoint = n;
}

/* W5: a ROLLBACK, or (bAll==0) a ROLLBACK TO, in the middle of statements. One that halts with an error has ended already. */
static void plExpireWriters(sqlite3 *db, int bAll){
  Vdbe *v;
  for(v=db->nVdbeWrite>0 ? db->pVdbe : 0; v; v=v->pVNext){
    if( v->eVdbeState!=VDBE_RUN_STATE || v->readOnly || v->bPlBlob || v->rc!=SQLITE_OK ) continue;
    v->expired = 1;
    if( bAll ) v->iStatement = 0;
  }
}

/*
** whole.c - a statement happens whole or not at all.
**
** SQLite opens a savepoint for a statement (its statement journal) where its compiler knows that a constraint can refuse the statement
** after its first change. The engine can refuse any write: a transaction has to become exclusive in the middle of a statement and finds
** the right taken, or memory is full. So each statement that writes to a concurrent file inside a transaction gets a savepoint in the write
** set, beside those that SQLite numbers, of which it knows nothing: one more length of the undo log, and an entry there for each key that the
** statement changes. It is used if the engine has refused something to the statement, and for nothing else: after any other error what is
** left is what SQLite leaves.
**
**   OP_Transaction     plWholeBegins(): the savepoint is opened
**   OP_ResultRow       plWholeRow(): closed; a statement that writes gives rows when it has written all
**   BUSY at a later OP_Transaction   plWholePaused(): closed; nothing was written yet, and the statement begins to write anew
**   sqlite3VdbeHalt()  plWholeEnds(): taken back, or closed
**   vdbeCommit()       plTakeRights() (several.c): nothing torn is committed
**
** What is left of a statement that the engine has refused:
**
**   it has SQLite's journal          SQLite takes it back, virtual tables included; after IOERR or INTERRUPT it rolls back everything
**   autocommit                       SQLite rolls back everything
**   IOERR, INTERRUPT, NOMEM, FULL    the same
**   any other code                   its savepoint is taken back: the transaction is as it was before the statement
**   the same, torn (W2)              everything is rolled back, with SQLITE_ABORT_ROLLBACK
**   the transaction is broken (rcBroken)   nothing: only ROLLBACK goes on
**
** Invariants
**  W1 Every change of a statement to a concurrent file is behind its savepoint, or SQLite's journal, or the statement is all that its
**     transaction has changed (autocommit), or the transaction is exclusive. A statement that writes to several files, TEMP among them, has
**     SQLite's journal: one of them may be refused beside the others (several.c).
**  W2 Torn: virtual tables that have xRollbackTo have a memory that xRollbackTo alone brings back, and SQLite calls that for its own savepoints
**     alone. So a refusal is torn if it was of a statement inside of another one, while such a table takes part in the transaction, or if
**     the refused statement has had other statements run, or has written to a virtual table. And where a refusal was met in an exclusive
**     transaction behind the statement's first change. Whoever caught the error of a torn statement inside of his cannot make it good: the
**     outermost statement, or the COMMIT, fails.
**  W3 No savepoint of a statement is open when another statement begins that is not inside of it: it is closed before the application has its
**     turn (OP_ResultRow, BUSY, the end).
**  W4 A statement whose transaction is rolled back in its middle (by a function of the application that says ROLLBACK or ROLLBACK TO, by INSERT
**     OR ROLLBACK inside of it) changes nothing any more: it finds no write transaction (plWritable()), opens no cursor, and calls no
**     xUpdate (bPlEnded).
*/

#define PL_UNHEARD 2    /* Vdbe.bPlMiddle, beside 1: virtual tables do not know of its savepoint */

/* OP_Transaction of a statement that writes to a file which is, or was, concurrent. */
static SQLITE_NOINLINE int plWholeBegins(Vdbe *v, Btree *p){
  sqlite3 *db = v->db;
  PlBtree *pPl = p->pPl;
  if( db->nVdbeExec>1 ) db->nPlInner++;
  v->bPlEnded = 0;
  v->bPlMiddle = 1;
  v->nPlRefused = db->nPlRefused;
  v->nPlInner = db->nPlInner;
  v->nPlPass = (u32)pPl->nPassWrite;
  v->nPlDefCons = db->nDeferredCons;
  v->nPlDefImmCons = db->nDeferredImmCons;
  v->iPlStatement = 0;
  if( v->usesStmtJournal || !PL_BT(p) || pPl->bExcl || (db->autoCommit && db->nVdbeRead<=1) ) return SQLITE_OK;
  v->iPlStatement = ++db->iPlStatement;
  return plFail(p, pl_statement_open(pPl->pConn, v->iPlStatement));
}

static int plWholeClose(Vdbe *v){
  sqlite3 *db = v->db;
  int i, rc = SQLITE_OK;
  v->bPlMiddle = 0;
  for(i=0; v->iPlStatement && i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( p==0 || !PL_BT(p) || p->pPl->eWrite==0 || p->pPl->bExcl ) continue;
    rc = plFail(p, pl_statement_close(p->pPl->pConn, v->iPlStatement));
    if( rc ) break;
  }
  v->iPlStatement = 0;
  return rc;
}

/* Virtual tables hear of the savepoint that SQLite opens for the statement. One that cannot write what it remembers is not told to forget it. */
static int plVtabBegins(Vdbe *v){
  int rc = sqlite3VtabSavepoint(v->db, SAVEPOINT_BEGIN, v->iStatement-1);
  if( rc && v->bPlMiddle ) v->bPlMiddle = PL_UNHEARD;
  return rc;
}

/* OP_ResultRow. */
static SQLITE_NOINLINE int plWholeRow(Vdbe *v){
  return plWholeClose(v);
}

/* BUSY at the OP_Transaction at iPc: where to go on. */
static SQLITE_NOINLINE int plWholePaused(Vdbe *v, int iPc){
  int iFirst = v->aOp[0].p2;
  if( !v->bPlMiddle || v->aOp[0].opcode!=OP_Init || v->aOp[iFirst].opcode!=OP_Transaction ) return iPc;
  (void)sqlite3VdbeCloseStatement(v, SAVEPOINT_RELEASE);
  (void)plWholeClose(v);                  /* a failure is one of the next call, too */
  return iFirst;
}

/* Has a virtual table of the open transaction a memory of its own (W2)? While they are asked to write what they remember, at COMMIT, the list
** of them is out of sight. */
static int plVtabRemembers(sqlite3 *db){
  int i;
  if( db->aVTrans==0 ) return db->nVTrans>0;
  for(i=0; i<db->nVTrans; i++){
    sqlite3_vtab *pVtab = db->aVTrans[i]->pVtab;
    if( pVtab && pVtab->pModule->iVersion>=2 && pVtab->pModule->xRollbackTo ) return 1;
  }
  return 0;
}

static int plBroken(sqlite3 *db){
  int i;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( p && p->pPl && p->pPl->rcBroken ) return 1;
  }
  return 0;
}

/* Has the statement failed since the engine has refused something to it? What it had run inside may have put another code in place. */
static int plWasRefused(const Vdbe *v){
  const sqlite3 *db = v->db;
  return v->nPlRefused!=db->nPlRefused && (v->nPlInner!=db->nPlInner || (v->rc & 0xff)==(db->rcPlRefused & 0xff));
}
static void plTakeBack(Vdbe *v){
  sqlite3 *db = v->db;
  int i;
  if( (v->nPlInner!=db->nPlInner || db->nVdbeExec>1) && plVtabRemembers(db) ){
    db->bPlTorn = 1;
    return;
  }
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    int rc = SQLITE_OK;
    if( p==0 || !PL_BT(p) || p->pPl->eWrite==0 || !DbMaskTest(v->btreeMask, i) ) continue;
    if( p->pPl->bExcl ){
      if( v->iPlStatement || (u32)p->pPl->nPassWrite!=v->nPlPass ) db->bPlTorn = 1;
    }else if( v->iPlStatement ){
      rc = plSaveAll(p->pPl, 0, 0);
      if( rc==SQLITE_OK ) rc = pl_statement_rollback(p->pPl->pConn, v->iPlStatement);
      if( rc!=SQLITE_OK && rc!=SQLITE_DONE ) db->bPlTorn = 1;
      if( rc==SQLITE_OK ){
        db->nDeferredCons = v->nPlDefCons;
        db->nDeferredImmCons = v->nPlDefImmCons;
      }
    }
  }
}

/* Nothing torn is committed: the code, and its text. */
static SQLITE_NOINLINE int plSayTorn(Vdbe *v){
  const char *zWhy = v->zErrMsg ? v->zErrMsg : plErrStr(v->db, v->rc ? v->rc : v->db->rcPlRefused);
  char *z = sqlite3_mprintf("a statement failed (%s) and what it had done cannot be taken back, a virtual table among it; the transaction was rolled "
      "back; begin it again", zWhy);
  sqlite3VdbeError(v, "%s", z ? z : sqlite3ErrStr(SQLITE_ABORT_ROLLBACK));
  sqlite3_free(z);
  v->db->bPlTorn = 0;
  return v->rc = SQLITE_ABORT_ROLLBACK;
}

/* sqlite3VdbeCloseStatement() at the end of a statement, and what the engine has of it. An error rolls the transaction back. */
static int plWholeEnds(Vdbe *v, int eOp){
  sqlite3 *db = v->db;
  int bJournal = v->iStatement!=0;
  int rcClose;
  /* Not inside of another statement, which may also end one of those that it has run, and which only reads. */
  int bOutermost = db->nVdbeExec<=1 && (v->bPlMiddle || v->rc!=SQLITE_OK);
  int rc = sqlite3VdbeCloseStatement(v, eOp);
  if( !v->bPlMiddle && !db->bPlTorn ) return rc;
  if( plBroken(db) ){
    (void)plWholeClose(v);
    return SQLITE_OK;
  }
  if( eOp==SAVEPOINT_ROLLBACK && bJournal && rc==SQLITE_OK && v->bPlMiddle!=PL_UNHEARD ) db->bPlTorn = 0;
  else if( eOp==SAVEPOINT_ROLLBACK && v->bPlMiddle && plWasRefused(v) ) plTakeBack(v);
  rcClose = plWholeClose(v);
  if( rc==SQLITE_OK ) rc = rcClose;
  return rc==SQLITE_OK && db->bPlTorn && bOutermost ? plSayTorn(v) : rc;
}

/* W4: a ROLLBACK, or a ROLLBACK TO, in the middle of statements. */
static void plEndWriters(sqlite3 *db){
  Vdbe *v;
  for(v=db->nVdbeWrite>0 ? db->pVdbe : 0; v; v=v->pVNext){
    if( v->eVdbeState==VDBE_RUN_STATE && v->bPlMiddle ) v->bPlEnded = 1;
  }
}

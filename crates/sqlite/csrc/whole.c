/*
** whole.c - a statement happens whole or not at all.
**
** SQLite opens a savepoint for a statement (its statement journal) where its compiler knows that a
** constraint can refuse the statement after its first change. The engine can refuse any write: a
** transaction has to become exclusive in the middle of a statement and finds the right taken, or
** memory is full. So each statement that writes to a concurrent file inside a transaction gets a
** savepoint in the write set. It is apart from the savepoints that SQLite numbers, and SQLite does
** not know of it: one more length of the undo log, and an entry there for each key that the
** statement changes. It is used only if the engine has refused something to the statement: after
** any other error what is left is what SQLite leaves.
**
**  OP_Transaction     plWholeBegins(), or plWholeJournal(): the savepoint is opened
**  OP_ResultRow       plWholeRow(): closed; a statement that writes returns rows when it has
**                     written all
**  BUSY at a later OP_Transaction   plWholePaused(): closed; nothing was written yet, and the
**                     statement begins to write anew
**  sqlite3VdbeHalt()  plWholeEnds(): rolled back, or closed
**  vdbeCommit()       plTakeRights() (several.c): nothing torn is committed
**
** What happens to a statement that the engine has refused:
**
**  autocommit, no other writer      SQLite rolls back everything
**  IOERR, INTERRUPT                 SQLite rolls back everything
**  NOMEM, FULL                      SQLite rolls back everything if its compiler has not asked for
**                                   a journal
**  any other code                   its savepoint is rolled back in each concurrent file; virtual
**                                   tables and other files go back to SQLite's journal: the
**                                   transaction is as it was before the statement
**  any other code, torn (WHOLE-2)   everything is rolled back, with SQLITE_ABORT_ROLLBACK
**  a file that it writes is broken  nothing is rolled back: only ROLLBACK goes on (rcBroken)
**
** Invariants
**  - WHOLE-1 Every change of a statement to a concurrent file comes after its savepoint; or the
**    transaction is exclusive and the change comes after SQLite's journal; or the statement is all
**    that its transaction has changed (autocommit). If none of these holds at its end, because it
**    did not stay in autocommit or was not alone there, it is torn. SQLite's number of a statement
**    does not name its savepoint: a statement that ends before another one that began later leaves
**    numbers that seem to belong to the wrong statement (bPlCrossed). Until that transaction ends
**    no refused statement goes back to a journal. A statement that writes to several files, TEMP
**    among them, has SQLite's journal: the engine may refuse one of the files alone (several.c).
**  - WHOLE-2 A file of the connection is torn if what a refused statement has left in it cannot be
**    taken back by itself. Virtual tables with xRollbackTo have a memory that xRollbackTo alone
**    restores, and SQLite calls that for its own savepoints alone. So a refusal tears if such a
**    table takes part in the transaction, and the refused statement has no journal that they have
**    heard of, and is inside of another statement, has had other statements run, or has written to
**    a virtual table. A refusal also tears if it was met in an exclusive transaction after the
**    statement's first change; or if a statement that ran inside the refused one may have changed
**    another file, and virtual tables or deferred constraints know of it. A statement that fails
**    repairs what was torn while it ran, in each file that it takes back whole, with its virtual
**    tables. It does not repair what was torn before it began, nor files that it does not write. A
**    statement that caught the error of a torn statement inside of it cannot repair it: the
**    outermost statement, or the COMMIT, fails.
**  - WHOLE-3 No savepoint of a statement is open when another statement begins that is not inside
**    of it: it is closed before the application runs (OP_ResultRow, BUSY, the end).
**  - WHOLE-4 A statement whose transaction is rolled back in its middle (by a function of the
**    application that runs ROLLBACK or ROLLBACK TO, by INSERT OR ROLLBACK inside of it) changes
**    nothing any more: it finds no write transaction (plWritable()), opens no cursor, and calls no
**    xUpdate (bPlEnded).
**  - WHOLE-5 A statement was refused if it fails with a code that the engine has returned since it
**    began, or if the engine has refused anything to a virtual table since then, which may have put
**    another code in its place.
*/

/* Vdbe.bPlMiddle */
#define PL_WRITES  1    /* it writes to a concurrent file */
#define PL_UNHEARD 2    /* virtual tables have not heard of its journal */

/* True if the statement runs inside of another one. It ends while that runs it, or where that
** resets it. */
static int plIsInside(const Vdbe *v){
  return v->db->nVdbeExec>v->bPlExec;
}

/* WHOLE-2 */
static void plTear(Btree *p){
  p->pPl->iTorn = ++p->db->nPlTear;
  p->db->bPlTorn = 1;
}

/* True if a file of the transaction was torn after nTear was counted, and not repaired. */
static int plIsTorn(sqlite3 *db, u32 nTear){
  int i, nTorn = 0;
  for(i=0; db->bPlTorn && i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( p==0 || p->pPl==0 || p->pPl->iTorn==0 ) continue;
    if( p->pPl->iTorn>nTear ) return 1;
    nTorn++;
  }
  if( nTorn==0 ) db->bPlTorn = 0;
  return 0;
}

/* The file's transaction is rolled back, and nothing is left of it. */
static void plWholeRolledBack(Btree *p){
  sqlite3 *db = p->db;
  if( !PL_BT(p) || p->pPl->eWrite==0 ) return;
  p->pPl->iTorn = 0;
  db->bPlCrossed = 0;
  if( db->bPlCommitting ) db->bPlCommitting = PL_LOST;
}

static int plWholeOpen(Btree *p, u64 iStatement){
  return PL_BT(p) && !p->pPl->bExcl ? plFail(p, pl_statement_open(p->pPl->pConn, iStatement)) : SQLITE_OK;
}

/* OP_Transaction of a statement that writes to a file which is, or was, concurrent. If the
** statement has a journal, its savepoint is opened together with the journal: what virtual tables
** write when they hear of the journal stays. */
static SQLITE_NOINLINE int plWholeBegins(Vdbe *v, Btree *p){
  sqlite3 *db = v->db;
  PlBtree *pPl = p->pPl;
  if( (v->bPlMiddle & PL_WRITES)==0 ){
    if( plIsInside(v) ) db->nPlInner++;
    v->bPlEnded = 0;
    v->bPlMiddle = PL_WRITES;
    v->nPlRefused = db->nPlRefused;
    v->nPlVtab = db->nPlVtab;
    v->nPlInner = db->nPlInner;
    v->nPlDefCons = db->nDeferredCons;
    v->nPlDefImmCons = db->nDeferredImmCons;
    v->nPlTear = db->nPlTear;
    v->mPlFiles = 0;
    v->iPlStatement = 0;
  }
  if( !plIsInside(v) ) pPl->iLookedUp = 0;
  v->mPlFiles |= (u32)1 << plDbIndex(p);  /* there are no more than 12 */
  v->nPlPass = (u32)pPl->nPassWrite;
  if( !PL_BT(p) || pPl->bExcl || (db->autoCommit && db->nVdbeRead<=1) ) return SQLITE_OK;
  if( v->iPlStatement==0 ) v->iPlStatement = ++db->iPlStatement;
  return v->usesStmtJournal ? SQLITE_OK : plWholeOpen(p, v->iPlStatement);
}

/* sqlite3BtreeBeginStmt(): SQLite opens its journal. */
static int plWholeJournal(Btree *p){
  u64 iStatement = p->db->iPlOpening;
  p->db->iPlOpening = 0;
  return iStatement ? plWholeOpen(p, iStatement) : SQLITE_OK;
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

/* Virtual tables hear of the savepoint that SQLite opens for the statement. A table that cannot
** write what it remembers does not hear that it should forget it. */
static int plVtabBegins(Vdbe *v){
  sqlite3 *db = v->db;
  int rc;
  db->nPlUpdate++;
  rc = sqlite3VtabSavepoint(db, SAVEPOINT_BEGIN, v->iStatement-1);
  db->nPlUpdate--;
  if( rc ) v->bPlMiddle |= PL_UNHEARD;
  else db->iPlOpening = v->iPlStatement;
  return rc;
}

/* A statement ends. WHOLE-1: is its journal the last open one? */
static void plMindOrder(Vdbe *v){
  sqlite3 *db = v->db;
  if( db->nStatement && v->iStatement && v->iStatement!=db->nSavepoint+db->nStatement ) db->bPlCrossed = 1;
}

/* Forgets what the statement's last run has left. */
static void plWholeForget(Vdbe *v){
  v->bPlMiddle = v->bPlEnded = 0;
  v->iPlStatement = 0;
}

/* True if the statement writes to several files of which the engine may refuse one. */
static int plWritesSeveral(Parse *pParse){
  sqlite3 *db = pParse->db;
  int i, nFile = 0, nOurs = 0;
  for(i=0; i<db->nDb; i++){
    if( !DbMaskTest(pParse->writeMask, i) || db->aDb[i].pBt==0 ) continue;
    nFile++;
    nOurs += db->aDb[i].pBt->pPl!=0;
  }
  return nFile>1 && nOurs>0;
}

/* OP_ResultRow. */
static SQLITE_NOINLINE int plWholeRow(Vdbe *v){
  return plWholeClose(v);
}

/* BUSY at the OP_Transaction at iPc. Returns where to go on. BEGIN IMMEDIATE, which has no such
** beginning, writes nothing after it. */
static SQLITE_NOINLINE int plWholePaused(Vdbe *v, int iPc){
  int iFirst = v->aOp[0].p2;
  if( v->bPlMiddle==0 ) return iPc;
  plMindOrder(v);
  (void)sqlite3VdbeCloseStatement(v, SAVEPOINT_RELEASE);
  (void)plWholeClose(v);                  /* the next call fails alike */
  return v->aOp[0].opcode==OP_Init && v->aOp[iFirst].opcode==OP_Transaction ? iFirst : iPc;
}

/* True if a virtual table of the open transaction has a memory of its own (WHOLE-2). While virtual
** tables write what they remember, at COMMIT, the list of them cannot be seen. */
static int plVtabRemembers(sqlite3 *db){
  int i;
  if( db->aVTrans==0 ) return db->nVTrans>0;
  for(i=0; i<db->nVTrans; i++){
    sqlite3_vtab *pVtab = db->aVTrans[i]->pVtab;
    if( pVtab && pVtab->pModule->iVersion>=2 && pVtab->pModule->xRollbackTo ) return 1;
  }
  return 0;
}

/* True if a file is broken that the transaction writes to. A broken file that it only reads does
** not keep a COMMIT of the others from being made. */
static int plBroken(sqlite3 *db){
  int i;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( p && p->pPl && p->pPl->rcBroken && p->pPl->eWrite ) return 1;
  }
  return 0;
}

/* WHOLE-5 */
static int plWasRefused(const Vdbe *v){
  const sqlite3 *db = v->db;
  return v->nPlVtab!=db->nPlVtab || db->aPlRefused[v->rc & 31]>v->nPlRefused;
}

/* True if the statement writes to a file that only SQLite's journal can roll back. */
static int plWritesOther(const Vdbe *v){
  sqlite3 *db = v->db;
  int i;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( p && !PL_BT(p) && DbMaskTest(v->btreeMask, i) && sqlite3BtreeTxnState(p)==SQLITE_TXN_WRITE ) return 1;
  }
  return 0;
}

/* Takes back what a refused statement has done in one file. 1: taken back; 0: it has done nothing
** there; -1: it cannot be taken back. */
static int plTakeBackFile(Vdbe *v, int iDb, int bJournal){
  PlBtree *pPl = v->db->aDb[iDb].pBt->pPl;
  int bIn = (v->mPlFiles>>iDb) & 1;       /* DDL has each file in its btreeMask */
  int rc;
  if( pPl->bExcl ){
    /* It was exclusive when the statement began, and is as it was then. */
    if( !bIn || (v->iPlStatement==0 && (u32)pPl->nPassWrite==v->nPlPass) ) return 0;
    return bJournal ? 1 : -1;
  }
  if( v->iPlStatement==0 ) return bIn ? -1 : 0;
  rc = plSaveAll(pPl, 0, 0);
  if( rc==SQLITE_OK ) rc = pl_statement_rollback(pPl->pConn, v->iPlStatement);
  return rc==SQLITE_OK ? 1 : rc==SQLITE_DONE ? 0 : -1;
}

/* Takes back what a refused statement has done, or tears. A broken transaction (rcBroken) has
** nothing left to take back. */
static void plTakeBack(Vdbe *v){
  sqlite3 *db = v->db;
  int bInner = v->nPlInner!=db->nPlInner;
  int bVtab = plVtabRemembers(db);
  int bFk = v->nPlDefCons!=db->nDeferredCons || v->nPlDefImmCons!=db->nDeferredImmCons;
  int bJournal = v->iStatement!=0 && !db->bPlCrossed;
  /* Virtual tables go back to a journal that they have heard of. */
  int bTorn = (!bJournal || (v->bPlMiddle & PL_UNHEARD)) && (bInner || plIsInside(v)) && bVtab;
  int i;
  if( v->bPlEnded ) return;
  if( db->bPlCrossed && plWritesOther(v) ) bTorn = 1;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    int eBack;
    if( p==0 || !PL_BT(p) || p->pPl->eWrite==0 ) continue;
    eBack = plTakeBackFile(v, i, bJournal);
    if( eBack<0 || (bTorn && ((v->mPlFiles>>i) & 1)) ){
      plTear(p);
    }else if( eBack>0 ){
      if( p->pPl->iTorn>v->nPlTear ) p->pPl->iTorn = 0;
    }else if( bInner && (bVtab || bFk) ){
      plTear(p);                  /* a statement inside of it may have changed this file, too */
    }
  }
  if( plIsTorn(db, v->nPlTear) ) return;
  db->nDeferredCons = v->nPlDefCons;
  db->nDeferredImmCons = v->nPlDefImmCons;
  /* Repaired: the statement that has run this one was refused nothing. */
  if( plIsInside(v) && db->nPlUpdate==0 ) db->aPlRefused[v->rc & 31] = v->nPlRefused;
}

/* Nothing torn is committed: returns the code, and sets its text. */
static SQLITE_NOINLINE int plErrorTorn(Vdbe *v, int rc){
  const char *zWhy = v->zErrMsg ? v->zErrMsg : plErrStr(v->db, rc ? rc : v->db->rcPlRefused);
  char *z = sqlite3_mprintf("a statement failed (%s) and its changes alone could not be undone, "
      "so the whole transaction was rolled back; begin it again", zWhy);
  sqlite3VdbeError(v, "%s", z ? z : sqlite3ErrStr(SQLITE_ABORT_ROLLBACK));
  sqlite3_free(z);
  return v->rc = SQLITE_ABORT_ROLLBACK;
}

/* sqlite3VdbeCloseStatement() at the end of a statement, and the engine's part of it. An error
** rolls the transaction back. */
static int plWholeEnds(Vdbe *v, int eOp){
  sqlite3 *db = v->db;
  int bWrites = v->bPlMiddle & PL_WRITES;
  /* Not a statement inside of another one, which may also end (reset) it; nor one that only reads
  ** and succeeds. */
  int bOutermost = !plIsInside(v) && (bWrites || v->rc!=SQLITE_OK);
  u32 nRefused;
  int rc, rcClose = SQLITE_OK;
  plMindOrder(v);
  /* Nothing is left of a statement that has written nothing, in a broken file or not. */
  if( (bWrites || v->iStatement || db->bPlTorn) && plBroken(db) ){
    (void)sqlite3VdbeCloseStatement(v, eOp);
    (void)plWholeClose(v);
    return SQLITE_OK;
  }
  if( bWrites && eOp==SAVEPOINT_ROLLBACK && (plWasRefused(v) || plIsTorn(db, v->nPlTear)) ){
    plTakeBack(v);
    /* Nothing of concurrent files is left for SQLite's journal (WHOLE-1). */
    db->nPlTaken = db->nVdbeExec + 1;
  }
  if( bWrites && eOp==SAVEPOINT_RELEASE ) rcClose = plWholeClose(v);
  /* WHOLE-4: its journal went with the transaction, and its number may be another statement's
  ** by now. */
  nRefused = db->nPlRefused;
  rc = sqlite3VdbeCloseStatement(v, v->bPlEnded ? SAVEPOINT_RELEASE : eOp);
  db->nPlTaken = 0;
  /* The engine has refused what a virtual table, which remembers, writes at the end of
  ** a journal. */
  if( (rc & 0xff)==SQLITE_BUSY && db->nPlRefused!=nRefused ) return plErrorTorn(v, rc);
  if( !bWrites && !plIsTorn(db, 0) ) return rc;
  if( rcClose==SQLITE_OK ) rcClose = plWholeClose(v);
  if( rc==SQLITE_OK ) rc = rcClose;
  return rc==SQLITE_OK && bOutermost && plIsTorn(db, 0) ? plErrorTorn(v, v->rc) : rc;
}

/* WHOLE-4: a ROLLBACK, or a ROLLBACK TO, in the middle of statements. */
static void plEndWriters(sqlite3 *db){
  Vdbe *v;
  for(v=db->nVdbeWrite>0 ? db->pVdbe : 0; v; v=v->pVNext){
    if( v->eVdbeState==VDBE_RUN_STATE && v->bPlMiddle ) v->bPlEnded = 1;
  }
}

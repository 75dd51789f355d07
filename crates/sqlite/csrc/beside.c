/*
** beside.c - single writes that run in parallel.
**
** A write outside of a transaction waits its turn for the writer's right. So the right goes from
** thread to thread, and each of them has to be woken for it. Where others commit all the time, a
** statement that changes a row or two is better tried as in BEGIN CONCURRENT: its reads are
** recorded, its commit validates them, and threads meet in the commit mutex alone. If the try is
** refused the statement runs again in its turn.
**
**   allowed -> run without the right
**       -> committed: the statement returns what a WAL hook returns
**       -> refused (SQLITE_BUSY_SNAPSHOT): rolled back, run again with the right
**       -> SQLITE_BUSY, since its commit did not get the right in time: rolled back, as if it had
**          not begun
**       -> failed otherwise: the statement fails, at the snapshot that the try had
**
** Invariants
**  - BESIDE-1 Only a statement that can run twice unnoticed is tried: it gives no rows, calls
**    nothing of the application's (functions, collations, hooks, traces, busy and progress
**    handlers, virtual tables, triggers), takes no automatic rowid, and changes one file, in a
**    transaction of its own.
**  - BESIDE-2 A refused statement runs once more, with the right, and so is never refused again:
**    the application sees no conflict. changes() and last_insert_rowid(), which the statement
**    itself may call, know nothing of a run that was rolled back.
**  - BESIDE-3 Whether a statement is tried decides nothing but speed (txn/begin.rs).
**  - BESIDE-4 What is committed stays so: the code that a WAL hook returns is the statement's, and
**    no refusal. The handle is allowed a try (PlBtree.bBeside) until plCommitted() or
**    plLeaveExclusive(), so that nothing that such a hook runs is taken for a refusal either.
*/

/* Longest program that is examined. */
#define PL_POINT_OPS 200

/* True if the statement gives the key that OP_NewRowid at i would make up: a number, or a parameter
** with a value. */
static int plKeyGiven(Vdbe *v, int i){
  int iReg, k;
  if( i==0 || v->aOp[i-1].opcode!=OP_NotNull ) return 0;
  iReg = v->aOp[i-1].p1;
  for(k=0; k<v->nOp; k++){
    const VdbeOp *pOp = &v->aOp[k];
    if( pOp->p2!=iReg ) continue;
    if( pOp->opcode==OP_Integer || pOp->opcode==OP_Int64 ) return 1;
    if( pOp->opcode==OP_Variable ) return (v->aVar[pOp->p1-1].flags & MEM_Null)==0;
  }
  return 0;
}

/* True if an operation compares by an application-defined collation. */
static int plComparesCustom(const VdbeOp *pOp){
  int i;
  if( pOp->p4type==P4_COLLSEQ ) return plCollation(pOp->p4.pColl)<0;
  if( pOp->p4type!=P4_KEYINFO ) return 0;
  for(i=0; i<pOp->p4.pKeyInfo->nAllField; i++){
    if( plCollation(pOp->p4.pKeyInfo->aColl[i])<0 ) return 1;
  }
  return 0;
}

/* True if a function is SQLite's own and runs no code of the application: not load_extension(), nor
** sqlite_log(), which calls SQLITE_CONFIG_LOG. */
static int plIsOwnFunction(const FuncDef *pFunc){
  return (pFunc->funcFlags & (SQLITE_FUNC_BUILTIN|SQLITE_FUNC_UNSAFE))==SQLITE_FUNC_BUILTIN
      && sqlite3StrICmp(pFunc->zName, "sqlite_log")!=0;
}

/* True if with the operation at i a program still changes a row or two, and BESIDE-1 holds. */
static int plPointOp(Vdbe *v, int i){
  const VdbeOp *pOp = &v->aOp[i];
  switch( pOp->opcode ){
    /* values */
    case OP_Init: case OP_Null: case OP_SoftNull: case OP_Noop: case OP_Integer: case OP_Int64: case OP_Real: case OP_String8:
    case OP_String: case OP_Blob: case OP_Variable: case OP_Copy: case OP_SCopy: case OP_IntCopy: case OP_Move: case OP_Add:
    case OP_Subtract: case OP_Multiply: case OP_Divide: case OP_Remainder: case OP_Concat: case OP_BitAnd: case OP_BitOr:
    case OP_ShiftLeft: case OP_ShiftRight: case OP_BitNot: case OP_AddImm: case OP_MustBeInt: case OP_RealAffinity: case OP_Cast:
    case OP_Affinity: case OP_MakeRecord: case OP_TypeCheck:
    /* decisions */
    case OP_Eq: case OP_Ne: case OP_Lt: case OP_Le: case OP_Gt: case OP_Ge: case OP_ElseEq: case OP_And: case OP_Or: case OP_Not:
    case OP_IsTrue: case OP_Once: case OP_If: case OP_IfNot: case OP_IsNull: case OP_NotNull: case OP_ZeroOrNull: case OP_IsType:
    case OP_Goto: case OP_Gosub: case OP_Return: case OP_BeginSubrtn: case OP_DecrJumpZero: case OP_Halt: case OP_HaltIfNull:
    case OP_FkIfZero: case OP_FkCounter: case OP_Explain:
    /* rows: no step from one to the next */
    case OP_OpenRead: case OP_OpenWrite: case OP_ReopenIdx: case OP_Close: case OP_NullRow: case OP_SeekRowid: case OP_NotExists:
    case OP_SeekGE: case OP_IdxGT: case OP_IdxGE: case OP_DeferredSeek: case OP_FinishSeek: case OP_IdxRowid: case OP_Rowid:
    case OP_NoConflict: case OP_NotFound: case OP_Found: case OP_Column: case OP_Insert: case OP_Delete: case OP_IdxInsert:
    case OP_IdxDelete:
      return 1;
    case OP_NewRowid:
      return plKeyGiven(v, i);
    case OP_Function: case OP_PureFunc:
      return pOp->p4type==P4_FUNCCTX && plIsOwnFunction(pOp->p4.pCtx->pFunc);
  }
  return 0;
}

/* Returns the file that a program writes if it changes a row or two there; else -1. */
static int plPointProgram(Vdbe *v){
  int iDb = -1, i;
  if( v->nOp>PL_POINT_OPS ) return -1;
  for(i=0; i<v->nOp; i++){
    const VdbeOp *pOp = &v->aOp[i];
    if( pOp->opcode==OP_Transaction ){
      if( iDb>=0 || pOp->p2!=1 ) return -1;
      iDb = pOp->p1;
    }else if( !plPointOp(v, i) || plComparesCustom(pOp) ){
      return -1;
    }
  }
  return iDb;
}

/* True if this connection may try a statement now, as far as that does not depend on the
** statement. */
static int plMayRunBeside(sqlite3 *db){
  return db->autoCommit && db->nVdbeActive==0 && db->nDb<=2 && db->xUpdateCallback==0 && db->xPreUpdateCallback==0
      && db->xCommitCallback==0 && db->xRollbackCallback==0 && db->mTrace==0 && db->xProgress==0 && !plAsksHandler(db)
      && !db->init.busy;
}

/* Allows a try to the next write of this handle, if the engine finds that worth it. True if so. */
static int plAllowBeside(Btree *p){
  PlBtree *pPl;
  if( p==0 || !PL_BT(p) || p->inTrans!=TRANS_NONE || p->sharable ) return 0;
  pPl = p->pPl;
  if( pPl->bReadonly || plFollows(p) || pPl->eWrite || pPl->bExcl || pPl->rcBroken || pl_runs_beside(pPl->pConn)!=SQLITE_OK ) return 0;
  pPl->bBeside = 1;
  return 1;
}

/* A connection's counts of its writes before a statement that may be tried. */
typedef struct PlBefore PlBefore;
struct PlBefore {
  i64 iRowid;
  i64 nChange;
};

static PlBefore plBefore(sqlite3 *db){
  PlBefore before;
  before.iRowid = db->lastRowid;
  before.nChange = db->nChange;
  return before;
}

/* The statement has ended with *pRc. True if it is to run again (BESIDE-2). An interrupt ends it
** instead. */
static int plRefusedBeside(Btree *p, const PlBefore *pBefore, int *pRc){
  sqlite3 *db = p->db;
  int bTried = PL_BT(p) && p->pPl->bBeside;
  if( p->pPl ) p->pPl->bBeside = 0;
  if( !bTried || (*pRc & 0xff)!=SQLITE_BUSY ) return 0;
  db->lastRowid = pBefore->iRowid;
  if( *pRc!=SQLITE_BUSY_SNAPSHOT ) return 0;
  if( !AtomicLoad(&db->u1.isInterrupted) ){
    db->nChange = pBefore->nChange;
    return 1;
  }
  *pRc = SQLITE_INTERRUPT;
  sqlite3Error(db, SQLITE_INTERRUPT);
  return 0;
}

/* How often a statement is prepared again. In concurrent mode it waits its turn each time, behind
** all that have come since. Next to a connection that does nothing but change the schema, three of
** four tries find it changed again, and SQLite's 25 are now and then not enough. */
#define PL_SCHEMA_RETRIES 250
static int plSchemaRetries(sqlite3 *db){
  int i;
  for(i=0; i<db->nDb; i++){
    if( db->aDb[i].pBt && PL_BT(db->aDb[i].pBt) ) return PL_SCHEMA_RETRIES;
  }
  return SQLITE_MAX_SCHEMA_RETRY;
}

/* Ends the reading of one file, as if the statement had not begun with it. The statement runs
** outside of a transaction, and no other runs on its connection. False: it goes on reading, or does
** not read. */
static int plStopReading(Vdbe *v, int iDb){
  Btree *p = v->db->aDb[iDb].pBt;
  int i;
  if( iDb==1 || p==0 || p->sharable || sqlite3BtreeTxnState(p)!=SQLITE_TXN_READ || !(PL_BT(p) || plMarked(p->pBt)) ) return 0;
  for(i=0; i<v->nCursor; i++){
    VdbeCursor *pC = v->apCsr[i];
    if( pC==0 || pC->eCurType!=CURTYPE_BTREE || pC->isEphemeral || pC->iDb!=iDb ) continue;
    sqlite3VdbeFreeCursor(v, pC);
    v->apCsr[i] = 0;
  }
  return sqlite3BtreeCommit(p)==SQLITE_OK;
}

/* Begins to read the file again, as it is now. SQLITE_SCHEMA if the statement was prepared for
** another schema: sqlite3_step() prepares it again, as for OP_Transaction. */
static int plReadAgain(Vdbe *v, int iDb, int iGeneration){
  Db *pDb = &v->db->aDb[iDb];
  int iCookie = 0;
  int rc = sqlite3BtreeBeginTrans(pDb->pBt, 0, &iCookie);
  if( rc || (iCookie==pDb->pSchema->schema_cookie && iGeneration==pDb->pSchema->iGeneration) ) return rc;
  if( iCookie!=pDb->pSchema->schema_cookie ) sqlite3ResetOneSchema(v->db, iDb);
  plStatementStale(pDb->pBt);
  v->expired = 1;
  return SQLITE_SCHEMA;
}

/* sqlite3_exec() of OP_SqlExec: PRAGMA optimize has found a table with old statistics, and runs
** ANALYZE. That is one more statement outside of a transaction, which waits its turn and conflicts
** with none: so the connection reads nothing while ANALYZE waits. The pragma has opened a table to
** count its rows, is done with it, and opens the next one anew. */
static int plExecInside(Vdbe *v, const char *zSql, char **pzErr){
  sqlite3 *db = v->db;
  int bLone = db->autoCommit && db->nVdbeActive==1;
  int bReader = v->bIsReader;
  int aGeneration[SQLITE_MAX_ATTACHED+2];
  u8 aStopped[SQLITE_MAX_ATTACHED+2];
  int i, rc;
  memset(aStopped, 0, sizeof(aStopped));
  for(i=0; bLone && i<db->nDb; i++){
    aGeneration[i] = db->aDb[i].pSchema ? db->aDb[i].pSchema->iGeneration : 0;
    aStopped[i] = (u8)plStopReading(v, i);
    if( db->aDb[i].pBt && sqlite3BtreeTxnState(db->aDb[i].pBt)!=SQLITE_TXN_NONE ) bReader = 0;
  }
  /* If it finds the schema changed ANALYZE ends its transaction, and is prepared again, as it is
  ** where no statement reads. */
  if( bLone && bReader ){
    v->bIsReader = 0;
    db->nVdbeRead--;
  }
  rc = sqlite3_exec(db, zSql, 0, 0, pzErr);
  if( bLone && bReader ){
    v->bIsReader = 1;
    db->nVdbeRead++;
  }
  /* The table may be gone, which is an error to ANALYZE. */
  for(i=0; (rc==SQLITE_OK || rc==SQLITE_ERROR) && i<db->nDb; i++){
    int rcRead = aStopped[i] ? plReadAgain(v, i, aGeneration[i]) : SQLITE_OK;
    if( rcRead==SQLITE_OK ) continue;
    sqlite3_free(*pzErr);
    *pzErr = sqlite3_mprintf("%s", plErrStr(db, rcRead));
    rc = rcRead;
  }
  return rc;
}

/* A statement while it runs, on a connection that has met a concurrent file. */
typedef struct PlRun PlRun;
struct PlRun {
  int iDb;                               /* the file in which it is tried; -1: the rest is unset */
  PlBefore before;
  u32 aCounter[ArraySize(((Vdbe*)0)->aCounter)];
};

/* True if plRunBegins() has to look at a statement that is about to run, or to go on. Most within a
** transaction of the application need nothing. */
static SQLITE_INLINE int plRunsInItsOwnWay(Vdbe *v){
  sqlite3 *db = v->db;
  return (v->bPlMiddle | v->bPlEnded | db->bPlCommitting)!=0 || (db->mDbFlags & DBFLAG_PlFirst)!=0
      || (!v->readOnly && (db->autoCommit || db->iPlFirst!=0));
}

/* A statement is about to run, or to go on. db->pPlFirst names one that may be the first of a plain
** BEGIN while it runs (begin.c). */
static SQLITE_INLINE int plRunBegins(Vdbe *v, PlRun *pRun){
  sqlite3 *db = v->db;
  pRun->iDb = -1;
  if( PL_UNLIKELY((v->bPlMiddle | v->bPlEnded)!=0) && v->eVdbeState!=VDBE_RUN_STATE ) plWholeForget(v);
  if( PL_UNLIKELY(db->bPlCommitting!=0) && plEndsSomething(v) ) return plRefuseEnd(v);
  if( v->eVdbeState!=VDBE_READY_STATE ) return SQLITE_OK;
  if( PL_UNLIKELY(db->iPlFirst!=0) && !v->readOnly ) plNoteSchemaChange(v);
  if( PL_UNLIKELY((db->mDbFlags & DBFLAG_PlFirst)!=0) ){
    db->pPlFirst = v;
  }else if( !v->readOnly && !v->expired && v->nResColumn==0 && v->explain==0 && plMayRunBeside(db) ){
    int iDb = plPointProgram(v);
    if( iDb>=0 && plAllowBeside(db->aDb[iDb].pBt) ){
      pRun->iDb = iDb;
      pRun->before = plBefore(db);
      memcpy(pRun->aCounter, v->aCounter, sizeof(v->aCounter));
    }
  }
  return SQLITE_OK;
}

/* The statement has stopped with *pRc. True if it is to run again. */
static SQLITE_INLINE int plRunEnds(Vdbe *v, PlRun *pRun, int *pRc){
  sqlite3 *db = v->db;
  int rcRun = v->rc;
  if( db->pPlFirst==v ) db->pPlFirst = 0;
  if( pRun->iDb<0 ) return 0;
  if( plRefusedBeside(db->aDb[pRun->iDb].pBt, &pRun->before, &v->rc) ){
    pRun->iDb = -1;
    (void)sqlite3_reset((sqlite3_stmt*)v);
    memcpy(v->aCounter, pRun->aCounter, sizeof(v->aCounter));
    return 1;
  }
  if( rcRun!=v->rc ) *pRc = (v->prepFlags & SQLITE_PREPARE_SAVESQL) ? v->rc : SQLITE_ERROR;
  return 0;
}

/* Both are inlined in sqlite3_step(). In SQLite they have one caller, and here one more. */
static SQLITE_INLINE int doWalCallbacks(sqlite3*);
static SQLITE_INLINE int sqlite3Step(Vdbe*);

static SQLITE_NOINLINE int plRunMet(Vdbe *v){
  PlRun run;
  int rc = plRunBegins(v, &run);
  if( rc ) return rc;
  do{
    rc = sqlite3Step(v);
  }while( plRunEnds(v, &run, &rc) );
  if( PL_UNLIKELY((rc & 0xff)==SQLITE_BUSY) ) plTellBusy(v->db, &v->rc, &rc);
  return rc;
}

/* In place of sqlite3Step() in sqlite3_step(). */
static SQLITE_INLINE int plRunStatement(Vdbe *v){
  int rc;
  if( PL_MET(v->db) && plRunsInItsOwnWay(v) ) return plRunMet(v);
  rc = sqlite3Step(v);
  if( PL_UNLIKELY((rc & 0xff)==SQLITE_BUSY) ) plTellBusy(v->db, &v->rc, &rc);
  return rc;
}

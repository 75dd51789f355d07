/*
** vtab.c - functions and tables of every connection: plait_version(), plait_status,
** plait_transactions, plait_conflicts.
**
** The tables are eponymous (SELECT * FROM plait_status) and show the session of the main database,
** or of the one named in the hidden column: SELECT * FROM plait_status('aux'). For a database that
** is not concurrent they are empty. Rows come from the engine as text and integer cells; the shim
** adds the name of the table that a conflict was about, and to plait_status how many indexes it
** knows no order for.
*/

typedef struct PlTab {
  sqlite3_vtab base;
  sqlite3 *db;
  int eTable;                   /* PL_TABLE_x */
} PlTab;

typedef struct PlTabCsr {
  sqlite3_vtab_cursor base;
  PlRows *pRows;
  Btree *p;
  int iDb;
  u32 iRow;
  int nExtra;                   /* own row after the engine's: 1 while on it */
} PlTabCsr;

static const char *const azPlSchema[] = {
  "CREATE TABLE x(name TEXT, value, schema HIDDEN)",
  "CREATE TABLE x(pid INT, thread INT, connection INT, state TEXT, age_ms INT, waiting_for_pid INT,"
    " waiting_for TEXT, pid_namespace INT, schema HIDDEN)",
  "CREATE TABLE x(time_ms INT, root INT, key TEXT, is_range INT, loser_pid INT, winner_pid INT, loser_txn INT,"
    " winner_txn INT, tbl TEXT, loser_pid_namespace INT, winner_pid_namespace INT, schema HIDDEN)"
};
static const int aPlSchemaCol[] = { 2, 8, 11 };    /* the hidden column */

static int plTabConnect(
  sqlite3 *db, void *pAux, int argc, const char *const*argv, sqlite3_vtab **ppVtab, char **pzErr
){
  int eTable = (int)(uptr)pAux;
  PlTab *pTab;
  int rc = sqlite3_declare_vtab(db, azPlSchema[eTable]);
  (void)argc;
  (void)argv;
  (void)pzErr;
  if( rc ) return rc;
  pTab = sqlite3_malloc(sizeof(*pTab));
  if( pTab==0 ) return SQLITE_NOMEM_BKPT;
  memset(pTab, 0, sizeof(*pTab));
  pTab->db = db;
  pTab->eTable = eTable;
  sqlite3_vtab_config(db, SQLITE_VTAB_INNOCUOUS);
  *ppVtab = &pTab->base;
  return SQLITE_OK;
}
static int plTabDisconnect(sqlite3_vtab *pVtab){
  sqlite3_free(pVtab);
  return SQLITE_OK;
}

static int plTabBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo){
  PlTab *pTab = (PlTab*)pVtab;
  int i;
  pInfo->estimatedCost = 100.0;
  pInfo->estimatedRows = 20;
  for(i=0; i<pInfo->nConstraint; i++){
    if( pInfo->aConstraint[i].iColumn!=aPlSchemaCol[pTab->eTable] ) continue;
    if( pInfo->aConstraint[i].op!=SQLITE_INDEX_CONSTRAINT_EQ ) continue;
    if( !pInfo->aConstraint[i].usable ) return SQLITE_CONSTRAINT;
    pInfo->aConstraintUsage[i].argvIndex = 1;
    pInfo->aConstraintUsage[i].omit = 1;
    pInfo->idxNum = 1;
    break;
  }
  return SQLITE_OK;
}

static int plTabOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCsr){
  PlTabCsr *pCsr = sqlite3_malloc(sizeof(*pCsr));
  (void)pVtab;
  if( pCsr==0 ) return SQLITE_NOMEM_BKPT;
  memset(pCsr, 0, sizeof(*pCsr));
  *ppCsr = &pCsr->base;
  return SQLITE_OK;
}
static void plTabReset(PlTabCsr *pCsr){
  if( pCsr->pRows ) pl_rows_free(pCsr->pRows);
  pCsr->pRows = 0;
  pCsr->p = 0;
  pCsr->iRow = 0;
  pCsr->nExtra = 0;
}
static int plTabClose(sqlite3_vtab_cursor *pCur){
  plTabReset((PlTabCsr*)pCur);
  sqlite3_free(pCur);
  return SQLITE_OK;
}

/* After the engine's rows plait_status has one of its own. */
static void plTabSettle(PlTabCsr *pCsr){
  PlCell c;
  if( pCsr->pRows && pl_rows_cell(pCsr->pRows, pCsr->iRow, 0, &c)!=SQLITE_OK ){
    pl_rows_free(pCsr->pRows);
    pCsr->pRows = 0;
    pCsr->nExtra = ((PlTab*)pCsr->base.pVtab)->eTable==PL_TABLE_STATUS;
  }
}

static int plTabFilter(
  sqlite3_vtab_cursor *pCur, int idxNum, const char *idxStr, int argc, sqlite3_value **argv
){
  PlTabCsr *pCsr = (PlTabCsr*)pCur;
  PlTab *pTab = (PlTab*)pCur->pVtab;
  int rc;
  (void)idxStr;
  plTabReset(pCsr);
  if( idxNum && argc ){
    const char *zSchema = (const char*)sqlite3_value_text(argv[0]);
    pCsr->iDb = zSchema ? sqlite3FindDbName(pTab->db, zSchema) : -1;
    if( pCsr->iDb<0 ) return SQLITE_OK;
  }
  pCsr->p = pTab->db->aDb[pCsr->iDb].pBt;
  if( pCsr->p==0 ) return SQLITE_OK;
  rc = plJoin(pCsr->p);
  if( rc==SQLITE_OK && PL_BT(pCsr->p) ){
    rc = plFail(pCsr->p, pl_rows_new(pCsr->p->pPl->pConn, pTab->eTable, &pCsr->pRows));
  }
  if( rc ){
    pTab->base.zErrMsg = sqlite3_mprintf("%s", plErrStr(pTab->db, rc));
    return rc;
  }
  plTabSettle(pCsr);
  return SQLITE_OK;
}

static int plTabNext(sqlite3_vtab_cursor *pCur){
  PlTabCsr *pCsr = (PlTabCsr*)pCur;
  pCsr->iRow++;
  pCsr->nExtra = 0;
  plTabSettle(pCsr);
  return SQLITE_OK;
}
static int plTabEof(sqlite3_vtab_cursor *pCur){
  PlTabCsr *pCsr = (PlTabCsr*)pCur;
  return pCsr->pRows==0 && pCsr->nExtra==0;
}
static int plTabRowid(sqlite3_vtab_cursor *pCur, sqlite3_int64 *piRowid){
  *piRowid = ((PlTabCsr*)pCur)->iRow + 1;
  return SQLITE_OK;
}

/* The table or index that a conflict was about. */
static void plTabConflictName(PlTabCsr *pCsr, sqlite3_context *pCtx){
  PlCell c;
  sqlite3_str *pStr;
  int bRowid;
  if( pl_rows_cell(pCsr->pRows, pCsr->iRow, 1, &c)!=SQLITE_OK || c.type!=SQLITE_INTEGER || c.i<=0 ) return;
  pStr = sqlite3_str_new(0);
  plRootName(pStr, pCsr->p, (Pgno)c.i, &bRowid);
  sqlite3_result_text(pCtx, sqlite3_str_finish(pStr), -1, sqlite3_free);
}

static int plTabColumn(sqlite3_vtab_cursor *pCur, sqlite3_context *pCtx, int iCol){
  PlTabCsr *pCsr = (PlTabCsr*)pCur;
  PlTab *pTab = (PlTab*)pCur->pVtab;
  PlCell c;
  if( iCol==aPlSchemaCol[pTab->eTable] ){
    sqlite3_result_text(pCtx, pTab->db->aDb[pCsr->iDb].zDbSName, -1, SQLITE_TRANSIENT);
  }else if( pCsr->nExtra ){
    if( iCol==0 ) sqlite3_result_text(pCtx, "indexes_without_known_order", -1, SQLITE_STATIC);
    else sqlite3_result_int(pCtx, plCountCustomIndexes(pTab->db, pCsr->iDb));
  }else if( pTab->eTable==PL_TABLE_CONFLICTS && iCol==8 ){
    plTabConflictName(pCsr, pCtx);
  }else if( pl_rows_cell(pCsr->pRows, pCsr->iRow, (u32)iCol, &c)==SQLITE_OK ){
    if( c.type==SQLITE_INTEGER ) sqlite3_result_int64(pCtx, c.i);
    else if( c.type==SQLITE_TEXT ) sqlite3_result_text(pCtx, c.z, -1, SQLITE_TRANSIENT);
  }
  return SQLITE_OK;
}

static const sqlite3_module plTabModule = {
  0,                /* iVersion */
  0,                /* xCreate: eponymous only */
  plTabConnect,     /* xConnect */
  plTabBestIndex,   /* xBestIndex */
  plTabDisconnect,  /* xDisconnect */
  0,                /* xDestroy */
  plTabOpen,        /* xOpen */
  plTabClose,       /* xClose */
  plTabFilter,      /* xFilter */
  plTabNext,        /* xNext */
  plTabEof,         /* xEof */
  plTabColumn,      /* xColumn */
  plTabRowid,       /* xRowid */
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
};

/* The version of Plait; declared in plait.h. */
SQLITE_API const char *plait_version(void){
  return pl_engine_version();
}

static void plVersionFunc(sqlite3_context *pCtx, int argc, sqlite3_value **argv){
  (void)argc;
  (void)argv;
  sqlite3_result_text(pCtx, plait_version(), -1, SQLITE_STATIC);
}

/* The loader has loaded this library into a program. */
__attribute__((constructor)) static void plLoaded(void){
  pl_report_loaded();
}

/* Called for every new connection. */
static int plOpened(sqlite3 *db){
  if( (db->openFlags & PL_OPEN_BASE)==0 ) pl_report_opened();
  return SQLITE_OK;
}

/* A statement names one of our tables that this connection has not met. It is registered then, as
** SQLite does with its tables of pragmas: connections that only read a row do not pay for it. */
static Module *plTableRegister(sqlite3 *db, const char *zName){
  static const char *const azTable[] = { "plait_status", "plait_transactions", "plait_conflicts" };
  int i;
  for(i=0; i<ArraySize(azTable); i++){
    if( sqlite3_stricmp(zName, azTable[i])==0 ) return sqlite3VtabCreateModule(db, azTable[i], &plTabModule, (void*)(uptr)i, 0);
  }
  return 0;
}

/* SQL functions of every connection, built in like SQLite's own. */
static void plRegisterFunctions(void){
  static FuncDef aFunc[] = {
    FUNCTION(plait_version,   0, 0, 0, plVersionFunc),
    SFUNCTION(plait_replica_time, 0, 0, 0, plReplicaTimeFunc),
    SFUNCTION(plait_replica_time, 1, 0, 0, plReplicaTimeFunc),
    SFUNCTION(plait_ticket,    0, PL_TICKET_OWN,     0, plTicketFunc),
    SFUNCTION(plait_ticket,    1, PL_TICKET_OWN,     0, plTicketFunc),
    SFUNCTION(plait_durable,   0, PL_TICKET_DURABLE, 0, plTicketFunc),
    SFUNCTION(plait_durable,   1, PL_TICKET_DURABLE, 0, plTicketFunc),
    SFUNCTION(plait_notify_fd, 0, PL_TICKET_FD,      0, plTicketFunc),
    SFUNCTION(plait_notify_fd, 1, PL_TICKET_FD,      0, plTicketFunc),
    SFUNCTION(plait_wait,      1, PL_TICKET_WAIT,    0, plTicketFunc),
    SFUNCTION(plait_wait,      2, PL_TICKET_WAIT,    0, plTicketFunc),
    SFUNCTION(plait_wait,      3, PL_TICKET_WAIT,    0, plTicketFunc),
  };
  sqlite3InsertBuiltinFuncs(aFunc, ArraySize(aFunc));
}

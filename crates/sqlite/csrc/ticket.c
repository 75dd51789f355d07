/*
** ticket.c - plait_ticket(), plait_durable(), plait_wait(), plait_notify_fd(): as C functions
** (plait.h) and as SQL functions. plait.h has what they mean, and the head of txn/tickets.rs how
** they work.
*/

#define PL_TICKET_OWN     0
#define PL_TICKET_DURABLE 1
#define PL_TICKET_WAIT    2    /* *piVal: a ticket; then 1 if it is on disk, 0 if not after ms */
#define PL_TICKET_FD      3
#define PL_NEGATIVE "plait_wait: no ticket is negative"

/* On a replica tickets are those of the primary: the mark says which commits are here. */
static int plReplicaTicket(Btree *p, int eCall, int ms, i64 *piVal, const char **pzErr){
  const char *zPath = sqlite3PagerFilename(p->pBt->pPager, 0);
  char *zErr = 0;
  uint64_t ticket = 0;
  PlWait wait;
  int rc;
  if( eCall!=PL_TICKET_WAIT ){
    rc = pl_replica_ticket(zPath, &ticket, &zErr);
    *piVal = (i64)ticket;
  }else if( *piVal<0 ){
    *pzErr = PL_NEGATIVE;
    return SQLITE_MISUSE_BKPT;
  }else{
    rc = pl_replica_wait(zPath, (uint64_t)*piVal, ms, plWait(p->db, &wait), &zErr);
    *piVal = rc==SQLITE_OK;
    if( rc==SQLITE_DONE ) rc = SQLITE_OK;
  }
  if( rc ) rc = plMarkFailed(p, rc, zErr);
  else rc = plMarkIsOwn(p);
  if( rc ) *pzErr = plErrStr(p->db, rc);
  return rc;
}

/* Runs one of them for the schema zDb, 0 for "main". The caller holds the connection's mutex.
** *pzErr of a failure lives as long as the connection's error. */
static int plTicketCall(sqlite3 *db, int eCall, const char *zDb, int ms, i64 *piVal, const char **pzErr){
  Btree *p = sqlite3DbNameToBtree(db, zDb ? zDb : "main");
  PlWait wait;
  uint64_t own, durable;
  int fd, rc;
  *pzErr = 0;
  if( sqlite3FindDbName(db, zDb ? zDb : "main")<0 ){
    *pzErr = "unknown database name";
    return SQLITE_ERROR;
  }
  /* As the first sqlite3_step() of a statement does. */
  if( db->nVdbeActive==0 ) AtomicStore(&db->u1.isInterrupted, 0);
  if( p && plFollows(p) && eCall!=PL_TICKET_FD ) return plReplicaTicket(p, eCall, ms, piVal, pzErr);
  rc = p ? plJoin(p) : SQLITE_OK;
  if( rc==SQLITE_OK && (p==0 || !PL_BT(p)) ){
    *pzErr = p && sqlite3BtreeTxnState(p)!=SQLITE_TXN_NONE && plMarked(p->pBt)
        ? "tickets begin with the next transaction: in this one the connection was alone"
        : "there are tickets in journal_mode=concurrent only: in other modes a commit is on disk when COMMIT returns if"
          " synchronous is FULL or EXTRA";
    return SQLITE_ERROR;
  }
  if( rc==SQLITE_OK ){
    PlConn *pConn = p->pPl->pConn;
    switch( eCall ){
      case PL_TICKET_WAIT:
        if( *piVal<0 ){
          *pzErr = PL_NEGATIVE;
          return SQLITE_MISUSE_BKPT;
        }
        rc = pl_wait_durable(pConn, (uint64_t)*piVal, ms, plWait(db, &wait));
        *piVal = rc==SQLITE_OK;
        if( rc==SQLITE_DONE ) rc = SQLITE_OK;
        break;
      case PL_TICKET_FD:
        if( !sqlite3GlobalConfig.bCoreMutex ){
          *pzErr = "this program has configured SQLite without threads, and a descriptor needs one";
          return SQLITE_MISUSE_BKPT;
        }
        rc = pl_notify_fd(pConn, plWait(db, &wait), &fd);
        if( rc==SQLITE_OK ) *piVal = fd;
        break;
      default:
        rc = pl_ticket(pConn, &own, &durable);
        if( rc==SQLITE_OK ) *piVal = (i64)(eCall==PL_TICKET_OWN ? own : durable);
    }
    rc = plFail(p, rc);
  }
  if( rc ) *pzErr = plErrStr(db, rc);
  return rc;
}

/* Runs one as a call of the C API. */
static int plTicketApi(sqlite3 *db, int eCall, const char *zDb, int ms, i64 *piVal){
  const char *zErr;
  int rc;
  if( !sqlite3SafetyCheckOk(db) || piVal==0 ) return SQLITE_MISUSE_BKPT;
  sqlite3_mutex_enter(db->mutex);
  rc = plTicketCall(db, eCall, zDb, ms, piVal, &zErr);
  if( rc ) sqlite3ErrorWithMsg(db, rc, "%s", zErr);
  else sqlite3Error(db, SQLITE_OK);
  rc = sqlite3ApiExit(db, rc);
  sqlite3_mutex_leave(db->mutex);
  return rc;
}

SQLITE_API int plait_ticket(sqlite3 *db, const char *zSchema, sqlite3_int64 *piTicket){
  return plTicketApi(db, PL_TICKET_OWN, zSchema, 0, piTicket);
}
SQLITE_API int plait_durable(sqlite3 *db, const char *zSchema, sqlite3_int64 *piTicket){
  return plTicketApi(db, PL_TICKET_DURABLE, zSchema, 0, piTicket);
}
SQLITE_API int plait_wait(sqlite3 *db, const char *zSchema, sqlite3_int64 iTicket, int ms, int *pbDurable){
  i64 iVal = iTicket;
  int rc = pbDurable ? plTicketApi(db, PL_TICKET_WAIT, zSchema, ms, &iVal) : SQLITE_MISUSE_BKPT;
  if( rc==SQLITE_OK ) *pbDurable = (int)iVal;
  return rc;
}
SQLITE_API int plait_notify_fd(sqlite3 *db, const char *zSchema, int *pFd){
  i64 iVal = -1;
  int rc = pFd ? plTicketApi(db, PL_TICKET_FD, zSchema, 0, &iVal) : SQLITE_MISUSE_BKPT;
  if( rc==SQLITE_OK ) *pFd = (int)iVal;
  return rc;
}

/* plait_ticket([schema]), plait_durable([schema]), plait_notify_fd([schema]), plait_wait(ticket [,
** ms [, schema]]) */
static void plTicketFunc(sqlite3_context *pCtx, int argc, sqlite3_value **argv){
  int eCall = (int)(uptr)sqlite3_user_data(pCtx);
  int iSchema = eCall==PL_TICKET_WAIT ? 2 : 0, ms = -1, rc;
  const char *zErr, *zDb = argc>iSchema ? (const char*)sqlite3_value_text(argv[iSchema]) : 0;
  i64 iVal = 0;
  if( eCall==PL_TICKET_WAIT ){
    if( sqlite3_value_type(argv[0])==SQLITE_NULL ) return;
    if( sqlite3_value_numeric_type(argv[0])!=SQLITE_INTEGER ){
      sqlite3_result_error(pCtx, "plait_wait: a ticket is an integer", -1);
      return;
    }
    iVal = sqlite3_value_int64(argv[0]);
    if( argc>1 && sqlite3_value_type(argv[1])!=SQLITE_NULL ){
      if( sqlite3_value_numeric_type(argv[1])!=SQLITE_INTEGER ){
        sqlite3_result_error(pCtx, "plait_wait: milliseconds are an integer", -1);
        return;
      }
      ms = (int)MIN(MAX(sqlite3_value_int64(argv[1]), -1), 0x7fffffff);
    }
  }
  rc = plTicketCall(sqlite3_context_db_handle(pCtx), eCall, zDb, ms, &iVal, &zErr);
  if( rc ){
    sqlite3_result_error(pCtx, zErr, -1);
    sqlite3_result_error_code(pCtx, rc);
  }else{
    sqlite3_result_int64(pCtx, iVal);
  }
}

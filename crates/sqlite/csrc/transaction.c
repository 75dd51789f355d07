/*
** transaction.c - BEGIN, COMMIT, ROLLBACK and savepoints of an attached handle.
**
** The base only ever sees a read transaction here (p->inTrans==TRANS_READ). PlBtree.eWrite says
** that it is a write transaction, and sqlite3BtreeTxnState() answers accordingly.
**
**   none -> read        pin, begin the base, take; retried if a merge came in between (PIN-1)
**   none -> write       QUEUED: the right first, then as none -> read. OPTIMISTIC (BEGIN
**                       CONCURRENT, beside.c): the other way round. Some transactions take the
**                       right before their first read (begin.c)
**   read -> write       what was read goes to the engine first: QUEUED validates and moves to now
**   write -> none/read  COMMIT, ROLLBACK; reading goes on if other statements read, as in
**                       btreeEndTransaction()
**   any -> exclusive    exclusive.c
**
** Failures: SQLITE_BUSY leaves everything as it was. After SQLITE_BUSY_SNAPSHOT in a write
** transaction the engine dooms it: every further write and COMMIT fails with that code until
** ROLLBACK.
**
** How a COMMIT may end. vdbeCommit() calls plCommitBegins() and plTakeRights() (several.c),
** plCommitPrepare() for each file with changes, the commit hook, CommitPhaseOne of these files,
** CommitPhaseTwo of all; then plCommitEnded(), in every case. After BUSY and BUSY_SNAPSHOT of a
** COMMIT (or RELEASE) sqlite3VdbeHalt() keeps the transaction open; after any other error it rolls
** back. What the engine takes and releases within a call is in txn/commit.rs.
**
**  exit                                  has been taken                  released by    the caller
**  plTakeRights     OK, several files    each file's right and room      plCommitEnded  -
**                                        (bPart); what the unchanged
**                                        ones were shown is settled
**                   any other code       those of the files before       plCommitEnded  per the
**                                                                                       code
**  plCommitPrepare  OK, there is a hook  the right; the snapshot is now  plCommitEnded  -
**                   OK, pages are short  both rights: it is exclusive    its end        -
**                   OK, all others       nothing                         -              -
**                   BUSY                 nothing here                    plCommitEnded  may retry
**                   BUSY_SNAPSHOT        nothing: doomed, or rcBroken    ROLLBACK       rolls back
**                   any other error      nothing here                    SQLite         starts over
**  commit hook      refuses              as by plCommitPrepare           SQLite         starts over
**  CommitPhaseOne   OK, changed          it is committed (bMade); a part -              -
**                                        is prepared (bPrepared)
**                   OK, not changed      nothing: it may have to go on   -              -
**                   BUSY, BUSY_SNAPSHOT  as by plCommitPrepare, of one   plCommitEnded  as there
**                                        file alone: a part has room
**                   any other error      a part may be prepared          SQLite         starts over
**  CommitPhaseTwo   OK                   -                               -              -
**                   an error, not bMade  only read: what it was shown    SQLite         starts over
**                                        cannot be brought to disk
**  plCommitEnded    OK                   -                               -              -
**                   BUSY                 nothing                         -              may retry
**                   BUSY_SNAPSHOT        nothing                         ROLLBACK       rolls back
**                   any other error      a part may be prepared          SQLite         starts over
**
** Released by SQLite: in the rollback that sqlite3VdbeHalt() does. A caller that may retry may also
** go on with the transaction.
**
** The table in beside.c says when a single write is run again.
**
** Invariants
**  - ENDS-1 Cursors save their places before the snapshot moves: a call that may move it, and may
**    fail afterwards, comes after plLetMove() or plHardSaveAll(). So cursors are right at every
**    exit, and saving them cannot fail once something has been taken.
**  - ENDS-2 After the commit point only a failed sync is an error of the COMMIT, which leaves the
**    commit published. If statements that go on reading need something and cannot have it, they
**    fail, not the COMMIT (plReadOn()).
**  - ENDS-3 What was read stays in the engine's read set until the transaction ends, in every file:
**    a file that was not changed ends as a writer in CommitPhaseTwo alone.
*/

/* At once; then a process that changes the base may be off the processor. */
#define PL_SNAPSHOT_TRIES 10
/* Of a millisecond; a base that is older than its merges even then was replaced. */
#define PL_SNAPSHOT_NAPS 1000

/* A reader met SQLITE_BUSY, as a rule for a moment. Sleeps a millisecond and returns SQLITE_OK to
** try again, or the code that ends the wait. *pmsBegun is 0 at the first call of a wait. The limit
** is in time and not in calls: the engine may have waited itself before it returned SQLITE_BUSY. */
static int plPause(Btree *p, BusyHandler *pHandler, int bAsk, u32 *pmsBegun){
  sqlite3 *db = p->db;
  u32 ms = plCoarseMs();
  int nMs = bAsk ? PL_HANDLER_GRACE_MS : MAX(db->busyTimeout, PL_BASE_RETRY_MS);
  if( p->pPl->bNoWait ) return SQLITE_BUSY;
  if( AtomicLoad(&db->u1.isInterrupted) ) return SQLITE_INTERRUPT;
  if( *pmsBegun==0 ) *pmsBegun = ms | 1;
  if( (int)(ms - *pmsBegun)>=(i64)nMs + PL_TICK_MS && (!bAsk || !sqlite3InvokeBusyHandler(pHandler)) ) return SQLITE_BUSY;
  sqlite3OsSleep(db->pVfs, 1000);
  return SQLITE_OK;
}

/* Begins the base's read transaction. Stock code may be busy with recovering the WAL-index. Readers
** of a concurrent database do not see that, unless it lasts and their busy handler gives up. */
static int plBaseBegin(Btree *p, int wrflag, int *pSchemaVersion){
  BusyHandler saved = p->db->busyHandler;
  int bAsk = plAsksHandler(p->db);
  const PlMarks *pMarks;
  u32 msBegun = 0;
  int bFirst;
  int rc = plFail(p, pl_read_marks(p->pPl->pConn, &pMarks));
  if( rc ) return rc;
  /* Once per opening of a WAL: is its index that of the session? */
  bFirst = pMarks!=0 && (p->pBt->pPager->pWal==0 || p->pBt->pPager->pWal->pPlMarks==0);
  p->db->busyHandler.xBusyHandler = 0;
  plUseMarks(p->pBt->pPager, pMarks);
  for(;;){
    int rcWait;
    rc = sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion);
    if( (rc & 0xff)!=SQLITE_BUSY ) break;
    rcWait = plPause(p, &saved, bAsk, &msBegun);
    if( rcWait==SQLITE_OK ) continue;
    if( rcWait!=SQLITE_BUSY ) rc = rcWait;
    break;
  }
  p->db->busyHandler = saved;
  if( PL_UNLIKELY(bFirst) && rc==SQLITE_OK ){
    rc = plIndexStrange(p->pBt->pPager, pMarks);
    if( rc ){
      plBaseEnd(p);
      plForgetWal(p);
      rc = rc==SQLITE_CANTOPEN ? plStash(p, rc, plSayStrange(p->pBt->pPager)) : plFail(p, rc);
    }
  }
  return rc;
}

/* ENDS-1: in the call that follows the snapshot may move under open cursors, or own writes may
** leave memory. Cursors look their rows up again. */
static int plLetMove(PlBtree *pPl){
  PlCursor *pX;
  int rc = plSaveAll(pPl, 0, 0);
  pPl->bLooked = 0;
  for(pX=pPl->pCsr; pX; pX=pX->pNext) plDropIter(pX);
  return rc;
}

/* The transaction is over, other statements go on reading, and the read set is forgotten. What
** their cursors have read counts as whole tables if a later statement must validate it. If that
** cannot be recorded, or these statements have no snapshot to read in (rc), they fail: the
** transaction has ended all the same (ENDS-2). */
static void plReadOn(Btree *p, int rc){
  PlBtree *pPl = p->pPl;
  PlCursor *pX;
  if( rc==SQLITE_OK ) rc = plLetMove(pPl);
  for(pX=pPl->pCsr; pX && rc==SQLITE_OK; pX=pX->pNext) rc = plRdCoarse(pPl, pX->pOut->pgnoRoot);
  if( rc==SQLITE_OK ) return;
  sqlite3_log(rc, "plait: statements that were reading %s when a transaction ended fail",
              sqlite3PagerFilename(p->pBt->pPager, 0));
  (void)plTripAll(pPl, rc, 0);
  pPl->rcBroken = rc;
}

/* Sets bTrack: do reads have to be recorded from here on? */
static void plSetTrack(Btree *p){
  PlBtree *pPl = p->pPl;
  u8 bTrack = (pPl->eWrite==PL_WRITE_OPTIMISTIC || (!p->db->autoCommit && pPl->eWrite==0)) && !pPl->bExcl;
  if( bTrack!=pPl->bTrack ){
    PlCursor *pX;
    pPl->bTrack = bTrack;
    for(pX=pPl->pCsr; pX; pX=pX->pNext){
      if( pX->eMode==PLC_PURE ) plMarkPure(pX);
    }
  }
}

/* none -> read. forWrite: the newest commit, durable or not. pRenews: how long a renewal in the
** middle of a transaction waits; 0: it is no renewal. */
static int plBeginRead(Btree *p, int forWrite, int *pSchemaVersion, const PlWait *pRenews){
  PlBtree *pPl = p->pPl;
  PlHeader h;
  u32 msBegun = pRenews ? plCoarseMs() | 1 : 0;
  int nTry, rc;
  for(nTry=1; ; nTry++){
    rc = pl_snapshot_pin(pPl->pConn, !forWrite && p->db->autoCommit);
    if( rc ) return plFail(p, rc);
    rc = plBaseBegin(p, 0, pSchemaVersion);
    if( rc ){
      pl_snapshot_end(pPl->pConn);
      return rc;
    }
    plReadHeader(p->pBt, &h);
    rc = plLookAtFile(p);
    if( rc ){
      plBaseEnd(p);
      pl_snapshot_end(pPl->pConn);
      return rc;
    }
    if( PL_UNLIKELY(!h.marked && pRenews!=0) ){
      /* No process leaves the mode while a member is in the session: the file was written over. */
      plBaseEnd(p);
      return plStash(p, SQLITE_BUSY_SNAPSHOT, sqlite3_mprintf(
          "the database file was overwritten while it was in use (its mark of concurrent mode is "
          "gone); ROLLBACK, and put the file back that was there"));
    }
    if( !h.marked ){
      /* Another connection switched the mode off: go on as stock SQLite. */
      plBaseEnd(p);
      pl_snapshot_end(pPl->pConn);
      plDetach(p);
      return sqlite3StockBtreeBeginTrans(p, 0, pSchemaVersion);
    }
    rc = pl_snapshot_take(pPl->pConn, &h, forWrite, pRenews);
    if( rc==SQLITE_OK ) break;
    plBaseEnd(p);
    if( rc!=PL_RETRY ){
      if( rc==SQLITE_BUSY ){
        int rcWait;
        pl_snapshot_put_off(pPl->pConn);
        rcWait = plPause(p, &p->db->busyHandler, plAsksHandler(p->db), &msBegun);
        if( rcWait==SQLITE_OK ){
          /* A process is bringing in a commit that must not be seen by half. */
          nTry--;
          continue;
        }
        rc = rcWait;
      }
      pl_snapshot_end(pPl->pConn);
      return plFail(p, rc);
    }
    if( nTry>=PL_SNAPSHOT_TRIES ){
      int bInterrupted = AtomicLoad(&p->db->u1.isInterrupted);
      if( nTry<PL_SNAPSHOT_TRIES+PL_SNAPSHOT_NAPS && !bInterrupted ){
        sqlite3OsSleep(p->db->pVfs, 1000);
        continue;
      }
      pl_snapshot_end(pPl->pConn);
      if( bInterrupted ) return SQLITE_INTERRUPT;
      return plStash(p, SQLITE_CORRUPT, sqlite3_mprintf(
          "the database file was replaced by an older state of itself while it was in use; put the newest one back"));
    }
  }
  pPl->bForWrite = (u8)forWrite;
  pPl->bUsed = pPl->bBaseOnly = pPl->bLooked = pPl->bStayed = pPl->bRows = pPl->eCounted = 0;
  pPl->nCoarse = pPl->nRowid = pPl->nBegun = 0;
  plSetTrack(p);
  return SQLITE_OK;
}

/* PL_RETRY: takes a snapshot over the newest base, so that memory which only an older base needs
** can be reused. What was read is the same in the new snapshot. */
static int plRenewSnapshot(Btree *p){
  PlBtree *pPl = p->pPl;
  u8 bUsed = pPl->bUsed, bBaseOnly = pPl->bBaseOnly, bLooked = pPl->bLooked, bStayed = pPl->bStayed, bRows = pPl->bRows;
  u8 eCounted = pPl->eCounted;
  int nBegun = pPl->nBegun;
  PlWait wait;
  int rc = plHardSaveAll(pPl);
  if( rc ) return plBreak(p, rc);
  plBaseEnd(p);
  rc = plBeginRead(p, 1, 0, plWaitLeft(p, &wait));
  pPl->bUsed = bUsed;
  pPl->bBaseOnly = bBaseOnly;
  pPl->bLooked = bLooked;
  pPl->bStayed = bStayed;
  pPl->bRows = bRows;
  pPl->eCounted = eCounted;
  pPl->nBegun = nBegun;
  return rc ? plBreak(p, rc) : SQLITE_OK;
}

/* The cost at which it is reported to the engine: a tenth of a millisecond. */
#define PL_WALK_TOLD 4096

/* Reports what reading past memtables has cost. */
static SQLITE_NOINLINE void plTellWalk(PlBtree *pPl){
  u32 nStep = pPl->nWalk;
  pPl->nWalk = 0;
  if( pPl->pConn==0 || pPl->bReadonly ) return;
  pl_note_walk(pPl->pConn, nStep);
}

/* Reports that a statement was told the number of the base's pages, for which it matters how much
** is not merged. */
static SQLITE_NOINLINE PL_COLD void plTellCounted(Btree *p){
  PlBtree *pPl = p->pPl;
  pPl->eCounted = PLN_NO;
  if( pPl->pConn && !pPl->bReadonly ) pl_note_page_count(pPl->pConn, (u64)p->pBt->nPage * p->pBt->pageSize);
}

/* read -> none. */
static void plEndRead(Btree *p){
  PlBtree *pPl = p->pPl;
  PL_LET_GO(p->db);
  if( pPl->pCsr ) (void)plHardSaveAll(pPl);
  plBaseEnd(p);
  pl_snapshot_end(pPl->pConn);
  pPl->bTrack = pPl->bUsed = pPl->bBaseOnly = pPl->bLooked = pPl->bForWrite = 0;
  pPl->nCoarse = 0;
  pPl->rcBroken = 0;
  if( PL_UNLIKELY(pPl->eCounted!=PLN_NO) ) plTellCounted(p);
  if( pPl->bMaintain ){
    pPl->bMaintain = 0;
    (void)pl_maintain(pPl->pConn);    /* a merge that fails is an event, and tried again */
  }
  if( pPl->nWalk>=PL_WALK_TOLD ) plTellWalk(pPl);
  plWriteEvents(p->db, 0);
}

static void plEndWrite(PlBtree *pPl){
  pPl->eWrite = pPl->bWrote = pPl->bCleared = pPl->bPart = pPl->bPrepared = 0;
  pPl->nSavepoint = pPl->msWaited = 0;
  pPl->iLookedUp = 0;
  pPl->rcBroken = 0;
}

/* The commit point: what was written counts, and no code from here on is a reason to write it again
** (ENDS-2, BESIDE-4 in beside.c). */
static void plCommitted(Btree *p){
  PlBtree *pPl = p->pPl;
  pPl->bMaintain |= pPl->bWrote;
  pPl->bTellHook = (pPl->bWrote || pPl->bCleared) && p->db->xWalCallback!=sqlite3WalDefaultHook;
  pPl->nCommit++;
  pPl->bBeside = 0;
  plEndWrite(pPl);
}

/* Takes the writer's right. The time counts for later waits of this statement (plWaitLeft), less
** what the clock may have gone too far: no wait ends before its timeout. */
static int plTakeRight(Btree *p, int how){
  PlBtree *pPl = p->pPl;
  PlWait wait;
  u32 msBegun;
  int rc;
  pPl->msWaited = 0;
  if( how==PL_WRITE_OPTIMISTIC ){
    /* It takes no right, and waits for the first fence of a session alone. */
    if( p->db->autoCommit ) how = PL_WRITE_BESIDE;
    return plFail(p, pl_write_begin(pPl->pConn, how, plWait(p->db, &wait)));
  }
  msBegun = plCoarseMs();
  while( (rc = pl_write_begin(pPl->pConn, how, plWait(p->db, &wait)))==PL_RETRY ){
    rc = plRenewSnapshot(p);
    if( rc ) return rc;
  }
  pPl->msWaited = MAX(0, (int)(plCoarseMs() - msBegun) - PL_TICK_MS);
  return plFail(p, rc);
}

/* A transaction that has copied the file page by page wants to write. It has read everything. If
** nothing has changed since, it goes on, exclusively. */
static int plWriteAfterPages(Btree *p){
  PlBtree *pPl = p->pPl;
  int rc = plReadEverything(p);
  if( rc==SQLITE_OK ) rc = plEscalate(p);
  if( rc==SQLITE_OK ) pPl->eWrite = PL_WRITE_QUEUED;
  return rc;
}

static int plBtreeTxnState(Btree *p){
  return p->pPl->eWrite ? SQLITE_TXN_WRITE : p->inTrans;
}

/* A file has one writer. Under two names in one connection it has two handles: the second would
** wait for the first, in whose own transaction it is. As in SQLite the second is refused before it
** changes anything, but at once. */
static SQLITE_NOINLINE int plRefuseTwice(Btree *p){
  sqlite3 *db = p->db;
  u64 aOwn[2], aOther[2];
  int i;
  if( pl_order(p->pPl->pConn, (uint64_t*)aOwn) ) return SQLITE_OK;
  for(i=0; i<db->nDb; i++){
    Btree *pOther = db->aDb[i].pBt;
    if( pOther==0 || pOther==p || !PL_BT(pOther) || plBtreeTxnState(pOther)!=SQLITE_TXN_WRITE ) continue;
    if( pl_order(pOther->pPl->pConn, (uint64_t*)aOther) || memcmp(aOwn, aOther, sizeof(aOwn))!=0 ) continue;
    return plStash(p, SQLITE_BUSY, sqlite3_mprintf("database is locked: \"%s\" is the file that is written as \"%s\" in this transaction; "
        "write it under one of its names", plDbName(p), plDbName(pOther)));
  }
  return SQLITE_OK;
}

/* none/read -> write. */
static int plBecomeWriter(Btree *p, int *pSchemaVersion){
  PlBtree *pPl = p->pPl;
  sqlite3 *db = p->db;
  int how = PL_WRITE_QUEUED;
  int rc;
  if( db->autoCommit ? pPl->bBeside : (db->mDbFlags & DBFLAG_PlConcurrent)!=0 ) how = PL_WRITE_OPTIMISTIC;
  if( PL_UNLIKELY(db->nDb>2) ){
    rc = plRefuseTwice(p);
    if( rc ) return rc;
  }
  if( p->inTrans==TRANS_NONE ){
    if( how==PL_WRITE_QUEUED ){
      rc = plTakeRight(p, how);
      if( rc==SQLITE_BUSY_SNAPSHOT ){
        /* Nothing was read that could have changed: the file has left concurrent mode, and
        ** plBeginRead() finds that. */
        if( plBeginRead(p, 0, pSchemaVersion, 0)==SQLITE_OK ){
          if( pPl->pConn==0 ) return SQLITE_OK;
          plEndRead(p);
        }
        return rc;
      }
      if( rc ) return rc;
    }
    rc = plBeginRead(p, 1, pSchemaVersion, 0);
    if( pPl->pConn==0 ) return rc;
    if( rc==SQLITE_OK && how==PL_WRITE_OPTIMISTIC ){
      rc = plTakeRight(p, how);
      if( rc ) plEndRead(p);
    }else if( rc ){
      pl_rollback(pPl->pConn);
    }
    if( rc ) return rc;
  }else{
    if( pPl->bBaseOnly ) return plWriteAfterPages(p);
    plRdFlushAll(pPl);
    if( how==PL_WRITE_QUEUED ){
      /* The snapshot moves to now: rows that others added are ahead of open cursors. */
      rc = plLetMove(pPl);
      if( rc ) return rc;
    }
    rc = plTakeRight(p, how);
    plNoteFirst(p, rc);
    if( rc ) return rc;
  }
  pPl->eWrite = (u8)how;
  pPl->nSavepoint = 0;
  /* In a commit with another file, the pages of a bulk load on SQLite's own path are
  ** written twice. */
  if( db->nDb>2 ) (void)pl_stay_concurrent(pPl->pConn);
  plSetTrack(p);
  /* Statements in autocommit leave this to the commit, as in stock SQLite. */
  return plFail(p, pl_savepoint_release(pPl->pConn, 0));
}

/* sqlite3BtreeBeginTrans() with wrflag on an attached handle. wrflag==2 is VACUUM or a backup,
** which write pages, or BEGIN EXCLUSIVE, which is BEGIN IMMEDIATE as in WAL mode (and as there
** leaves a write transaction where SQLite refuses it, within one). */
static int plBeginWrite(Btree *p, int wrflag, int *pSchemaVersion){
  PlBtree *pPl = p->pPl;
  int bPages = wrflag>1 && (p->db->mDbFlags & (DBFLAG_Vacuum|DBFLAG_PlPages))!=0;
  int rc;
  if( pPl->bExcl ) return sqlite3StockBtreeBeginTrans(p, 1, pSchemaVersion);
  if( pPl->bReadonly ) return SQLITE_READONLY;
  rc = plRefuseMoved(p);
  if( rc ) return rc;
  if( pPl->eWrite==0 ){
    int wasNone = p->inTrans==TRANS_NONE;
    rc = plBecomeWriter(p, pSchemaVersion);
    if( rc ) return rc;
    if( pPl->bExcl ) return sqlite3StockBtreeBeginTrans(p, 1, pSchemaVersion);
    if( pPl->pConn==0 ) return sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion);
    if( bPages ){
      rc = plEscalate(p);
      if( rc && pPl->rcBroken && !wasNone ) return rc;
      if( rc ){
        pl_rollback(pPl->pConn);
        plEndWrite(pPl);
        if( wasNone ) plEndRead(p);
        return rc;
      }
      return sqlite3StockBtreeBeginTrans(p, 1, pSchemaVersion);
    }
  }else{
    pPl->msWaited = 0;
    rc = plWritable(p, bPages);
    if( rc ) return rc;
    if( pPl->bExcl ) return sqlite3StockBtreeBeginTrans(p, 1, pSchemaVersion);
  }
  rc = pl_savepoint_open(pPl->pConn, p->db->nSavepoint);
  if( rc ) return plFail(p, rc);
  if( pPl->nSavepoint<p->db->nSavepoint ) pPl->nSavepoint = p->db->nSavepoint;
  return SQLITE_OK;
}

/* A statement of the application begins in the open snapshot. If another statement has begun in it
** before, the snapshot counts as used: that statement has read what it opened, or at least the
** schema that SQLite has in memory, or a value of the header. It does not count if the other
** statement still runs and this one runs for it, as those of a virtual table do. */
static void plStatementBegins(Btree *p){
  PlBtree *pPl = p->pPl;
  int nDepth = p->db->nVdbeExec + 1;
  if( p->db->init.busy ) return;
  if( pPl->nBegun>=nDepth ) pPl->bUsed = 1;
  pPl->nBegun = nDepth;
}

/* OP_Transaction: the statement that has just begun is to be prepared again, and has
** read nothing. */
static void plStatementStale(Btree *p){
  if( p && PL_BT(p) ) p->pPl->nBegun = 0;
}

static int plBeginTrans(Btree *p, int wrflag, int *pSchemaVersion){
  PlBtree *pPl = p->pPl;
  int rc = SQLITE_OK;
  /* The failure of a statement is forgotten when the statement has ended. A COMMIT has set
  ** autoCommit when virtual tables write in it. */
  if( pPl->rcBroken && p->inTrans==TRANS_NONE && pPl->eWrite==0 && p->db->autoCommit && pPl->pCsr==0 ) pPl->rcBroken = 0;
  if( pPl->rcBroken ) return pPl->rcBroken;
  rc = pl_check_fork(pPl->pConn);
  if( PL_UNLIKELY(rc) ) return plFail(p, rc);
  if( wrflag && PL_UNLIKELY(p->db->bPlCommitting!=0) && !sqlite3VtabInSync(p->db) ){
    return plStash(p, SQLITE_LOCKED, sqlite3_mprintf("%s", PL_IN_COMMIT));
  }
  if( p->db->autoCommit && !p->db->bPlCommitting ) p->db->mDbFlags &= ~(u32)DBFLAG_PlConcurrent;
  if( p->inTrans==TRANS_NONE && !wrflag ){
    int bEarly = 0;
    if( PL_UNLIKELY(p->db->pPlFirst!=0) ){
      rc = plBeginEarly(p);
      if( rc!=SQLITE_OK && rc!=SQLITE_DONE ) return plFail(p, rc);
      bEarly = rc==SQLITE_OK;
    }
    rc = plBeginRead(p, bEarly || (!p->db->autoCommit && (p->db->mDbFlags & DBFLAG_PlConcurrent)!=0), 0, 0);
    if( rc && bEarly && pPl->pConn ) pl_snapshot_end(pPl->pConn);
  }else if( wrflag ){
    rc = plBeginWrite(p, wrflag, 0);
  }else{
    plSetTrack(p);
  }
  if( rc==SQLITE_OK && pSchemaVersion ){
    *pSchemaVersion = (int)get4byte(&p->pBt->pPage1->aData[40]);
    /* Every caller that wants the version begins a statement, or a read like one. */
    if( PL_BT(p) ) plStatementBegins(p);
  }
  return rc;
}

/* Begins a backup's transaction on its destination. */
static int plBeginPages(Btree *p, int *pSchemaVersion){
  int rc;
  p->db->mDbFlags |= DBFLAG_PlPages;
  rc = sqlite3BtreeBeginTrans(p, 2, pSchemaVersion);
  p->db->mDbFlags &= ~(u32)DBFLAG_PlPages;
  return rc;
}

/* vdbeCommit() calls this before the commit hook, for each file that it is about to commit. */
static int plCommitPrepare(Btree *p){
  PlBtree *pPl = p->pPl;
  PlWait wait;
  int rc;
  if( pPl->bWrote ){
    rc = plRefuseMixed(p);
    if( rc ) return rc;
  }
  if( pPl->rcBroken ) return pPl->rcBroken;
  if( pPl->bExcl || pPl->eWrite==0 ) return SQLITE_OK;
  rc = pl_doomed(pPl->pConn);
  if( rc ) return plFail(p, rc);
  if( !pPl->bWrote && p->db->nDb>2 ) return SQLITE_OK;      /* plTakeRights() has settled it */
  /* What others have committed since the last write takes pages as well. */
  if( pPl->bWrote && pPl->eWrite==PL_WRITE_OPTIMISTIC && !pPl->bPart && plNeedsPages(p, 0) ) return plEscalate(p);
  if( p->db->xCommitCallback==0 ) return SQLITE_OK;
  plRdFlushAll(pPl);
  rc = plLetMove(pPl);
  if( rc ) return rc;
  while( (rc = pl_commit_prepare(pPl->pConn, plWait(p->db, &wait)))==PL_RETRY ){
    rc = plRenewSnapshot(p);
    if( rc ) return rc;
  }
  return plFail(p, rc);
}

static int plBtreeCommitPhaseOne(Btree *p, const char *zSuperJrnl){
  PlBtree *pPl = p->pPl;
  PlWait wait;
  int bKeep, rc;
  if( pPl->rcBroken ) return pPl->rcBroken;
  if( pPl->bExcl ) return plExclusivePhaseOne(p, zSuperJrnl);
  /* ENDS-3 */
  if( pPl->eWrite==0 || !pPl->bWrote ) return SQLITE_OK;
  rc = plRefuseMoved(p);
  if( rc==SQLITE_OK ) rc = plLookAtFile(p);
  if( rc ) return rc;
  plRdFlushAll(pPl);
  bKeep = p->db->nVdbeRead>1;
  if( bKeep ){
    rc = plLetMove(pPl);
    if( rc ) return rc;
  }
  if( pPl->bPart ){
    rc = plFail(p, pl_part_prepare(pPl->pConn, zSuperJrnl));
    if( rc==SQLITE_OK ) pPl->bPrepared = 1;
    return rc;
  }
  while( (rc = pl_commit(pPl->pConn, pPl->eSync, bKeep, plWait(p->db, &wait)))==PL_RETRY ){
    rc = plRenewSnapshot(p);
    if( rc ) return rc;
  }
  if( rc ) return plFail(p, rc);
  plCommitted(p);
  pPl->bForWrite = 0;
  pPl->bMade = 1;
  return SQLITE_OK;
}

static int plBtreeCommitPhaseTwo(Btree *p, int bCleanup){
  PlBtree *pPl = p->pPl;
  int rc = SQLITE_OK;
  int bMade = pPl->bMade || bCleanup;
  pPl->bMade = 0;
  if( p->inTrans==TRANS_NONE ) return SQLITE_OK;
  if( pPl->bExcl ) return plExclusivePhaseTwo(p, bCleanup);
  if( pPl->bPrepared ){
    /* Committed, whatever the engine returns: recovery does what it could not do now. */
    rc = plFail(p, pl_part_commit(pPl->pConn, pPl->eSync, p->db->nVdbeRead>1));
    if( rc ) sqlite3_log(rc, "plait: a commit over several files is left to the recovery of %s: %s",
                         sqlite3PagerFilename(p->pBt->pPager, 0), pl_errmsg(pPl->pConn));
    plCommitted(p);
    pPl->bForWrite = 0;
  }
  if( pPl->eWrite ){
    pPl->bForWrite = 1;
    pl_rollback(pPl->pConn);
    plCommitted(p);
  }
  if( pPl->bForWrite || p->db->nVdbeRead>1 ){
    /* A transaction that only read, but perhaps commits that were not durable yet. */
    pPl->bForWrite = 0;
    rc = plFail(p, pl_settle_shown(pPl->pConn));
    if( rc && !bMade ) return rc;
  }
  if( p->db->nVdbeRead>1 ){
    plRdFlushAll(pPl);
    pPl->bTrack = 0;
    plReadOn(p, SQLITE_OK);
    return SQLITE_OK;
  }
  plEndRead(p);
  return SQLITE_OK;
}

static int plBtreeCommit(Btree *p){
  int rc = plBtreeCommitPhaseOne(p, 0);
  return rc ? rc : plBtreeCommitPhaseTwo(p, 0);
}

static int plBtreeRollback(Btree *p, int tripCode, int writeOnly){
  PlBtree *pPl = p->pPl;
  int rc = SQLITE_OK;
  p->db->mDbFlags &= ~(u32)DBFLAG_PlConcurrent;
  pPl->bMade = 0;
  if( pPl->bExcl || pPl->rcBroken ) return plExclusiveRollback(p, tripCode, writeOnly);
  if( tripCode==SQLITE_OK ){
    rc = tripCode = plSaveAll(pPl, 0, 0);
    if( rc ) writeOnly = 0;
  }
  if( tripCode ){
    int rc2 = plTripAll(pPl, tripCode, writeOnly);
    if( rc2 ) rc = rc2;
  }
  if( pPl->eWrite ){
    pl_rollback(pPl->pConn);
    plEndWrite(pPl);
  }
  pPl->bTrack = 0;
  pPl->nRowid = 0;
  if( p->inTrans!=TRANS_NONE ){
    if( p->db->nVdbeRead<=1 ){
      plEndRead(p);
    }else{
      plReadOn(p, SQLITE_OK);
      /* After a failure the engine has stopped, and the next call reports that. */
      (void)pl_settle_shown(pPl->pConn);
    }
  }
  return rc;
}

static int plBtreeBeginStmt(Btree *p, int iStatement){
  PlBtree *pPl = p->pPl;
  int rc;
  if( pPl->nSavepoint<iStatement ) pPl->nSavepoint = iStatement;
  if( pPl->bExcl ) return sqlite3StockBtreeBeginStmt(p, iStatement);
  rc = plFail(p, pl_savepoint_open(pPl->pConn, iStatement));
  return rc==SQLITE_OK ? plWholeJournal(p) : rc;
}

static int plBtreeSavepoint(Btree *p, int op, int iSavepoint){
  PlBtree *pPl = p->pPl;
  int rc, nLeft;
  if( pPl->eWrite==0 && !pPl->bExcl ) return SQLITE_OK;
  if( pPl->rcBroken ) return op==SAVEPOINT_ROLLBACK ? SQLITE_OK : pPl->rcBroken;
  nLeft = iSavepoint + (op==SAVEPOINT_ROLLBACK);
  if( pPl->nSavepoint>nLeft ) pPl->nSavepoint = nLeft;
  if( pPl->bExcl ){
    return sqlite3StockBtreeSavepoint(p, op, iSavepoint);
  }
  if( op==SAVEPOINT_RELEASE ){
    return plFail(p, pl_savepoint_release(pPl->pConn, iSavepoint));
  }
  if( p->db->nPlTaken==p->db->nVdbeExec+1 ) return SQLITE_OK;      /* WHOLE-1 in whole.c */
  rc = plSaveAll(pPl, 0, 0);
  if( rc==SQLITE_OK ) rc = plFail(p, pl_savepoint_rollback(pPl->pConn, iSavepoint));
  return rc;
}

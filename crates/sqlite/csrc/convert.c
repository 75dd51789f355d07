/*
** convert.c - PRAGMA journal_mode: into concurrent mode and out of it.
**
**  In:  checks -> base to WAL mode, committed -> header marked (salt, generation 0), committed ->
**       session joined, which fences the file; or, if no other connection is there, no session yet,
**       as when a resting file is opened (alone.c). A crash between the steps leaves a plain WAL
**       file, or a marked one with an empty session.
**  Out: engine: no other member, and everything merged -> header unmarked, committed -> side files
**       removed. Then stock code goes on to the mode that was asked for. If it cannot, because a
**       stock program has the file open, the file is marked again.
**
** Both are refused inside a transaction, as for WAL. In a transaction that has changed something
** the way out is not taken, and the answer is the mode in force, as with WAL. Everything happens
** before OP_JournalMode's own work, which then finds nothing to do (PAGER_JOURNALMODE_QUERY) or an
** ordinary WAL database.
**
** Only a rollback mode leads out: a program that asks for WAL has it. With
** PLAIT_JOURNAL_MODE=concurrent in the environment, asking for WAL leads in.
*/

static int plRefuse(Vdbe *pVdbe, int rc, const char *zWhy){
  sqlite3VdbeError(pVdbe, "%s", zWhy);
  return rc;
}

/* Brings the base to WAL mode, as OP_JournalMode would, and commits that in WAL mode, so that a
** journal of PERSIST or TRUNCATE is removed. */
static int plToWal(Btree *p){
  Pager *pPager = p->pBt->pPager;
  int eOld = sqlite3PagerGetJournalMode(pPager);
  int rc;
  if( eOld==PAGER_JOURNALMODE_WAL ) return SQLITE_OK;
  if( eOld==PAGER_JOURNALMODE_MEMORY ) sqlite3PagerSetJournalMode(pPager, PAGER_JOURNALMODE_OFF);
  rc = sqlite3StockBtreeSetVersion(p, 2);
  if( rc==SQLITE_OK ){
    sqlite3PagerSetJournalMode(pPager, PAGER_JOURNALMODE_WAL);
    rc = sqlite3StockBtreeCommit(p);
  }
  if( rc ){
    sqlite3StockBtreeRollback(p, SQLITE_OK, 0);
    sqlite3PagerSetJournalMode(pPager, eOld);
  }
  return rc;
}

/* Writes a header in a stock transaction of its own, with a full sync, if the header in the file
** has salt iSalt (0: is not marked) and, being marked, is not fenced. Another connection may have
** come first. */
static int plStampAlone(Btree *p, u32 iSalt, const PlHeader *pHdr){
  int iDb = plDbIndex(p);
  unsigned pgFlags = p->db->aDb[iDb].safety_level | (p->db->flags & PAGER_FLAGS_MASK);
  PlHeader was;
  int rc;
  sqlite3StockBtreeSetPagerFlags(p, PAGER_SYNCHRONOUS_FULL | (p->db->flags & PAGER_FLAGS_MASK));
  rc = sqlite3StockBtreeBeginTrans(p, 1, 0);
  if( rc==SQLITE_OK ){
    plReadHeader(p->pBt, &was);
    if( was.fenced || (was.marked ? was.salt : 0)!=iSalt ){
      sqlite3StockBtreeRollback(p, SQLITE_OK, 0);
    }else{
      rc = plStamp(p, pHdr);
      if( rc==SQLITE_OK ) rc = sqlite3StockBtreeCommit(p);
    }
  }
  if( rc ) sqlite3StockBtreeRollback(p, SQLITE_OK, 0);
  sqlite3StockBtreeSetPagerFlags(p, pgFlags);
  return rc;
}

/* The file has just been marked. True if this handle goes on alone. A handle that could not join
** later does not: it is to fail now. */
static int plMarkedAlone(Btree *p){
  int bAlone;
  if( sqlite3StockBtreeBeginTrans(p, 0, 0)!=SQLITE_OK ) return 0;
  bAlone = plMarked(p->pBt) && !plFenced(p->pBt) && !plMayNotJoin(p) && plAlone(p, 0, 0);
  plBaseEnd(p);
  return bAlone;
}

/* A handle is about to take a file out of WAL mode. It has removed the WAL, let the file go, read page
** 1, and locked the file for itself. Others may have used the file between the first two, in WAL mode.
** What they have checkpointed changes the counter of page 1; what they have not is in a WAL, which
** counts. */
static int plMayLeaveWal(BtShared *pBt){
  Pager *pPager = pBt->pPager;
  u8 a[sizeof(pPager->dbFileVers)];
  int bWal = 0;
  int rc = sqlite3OsRead(pPager->fd, a, sizeof(a), 24);
  if( rc==SQLITE_IOERR_SHORT_READ ) rc = SQLITE_OK;   /* a new file: zeros */
  if( rc==SQLITE_OK && memcmp(a, &pBt->pPage1->aData[24], sizeof(a))!=0 ) rc = SQLITE_BUSY;
  if( rc==SQLITE_OK && pPager->zWal ) rc = sqlite3OsAccess(pPager->pVfs, pPager->zWal, SQLITE_ACCESS_EXISTS, &bWal);
  return rc==SQLITE_OK && bWal ? SQLITE_BUSY : rc;
}

static int plEnable(Vdbe *pVdbe, Btree *p){
  Pager *pPager = p->pBt->pPager;
  const char *zWhy = plUnsuitable(p);
  char *zErr = 0;
  PlHeader h;
  u64 cookie;
  int rc;
  if( zWhy ) return plRefuse(pVdbe, SQLITE_ERROR, zWhy);
  if( !p->db->autoCommit || p->db->nVdbeRead>1 ){
    return plRefuse(pVdbe, SQLITE_ERROR, "cannot change into concurrent mode from within a transaction");
  }
  if( plFollows(p) ) return plRefuseMode(pVdbe, p);
  if( sqlite3BtreeIsReadonly(p) ){
    return plRefuse(pVdbe, SQLITE_READONLY, "attempt to change a read-only database into concurrent mode");
  }
  if( pPager->exclusiveMode || !sqlite3PagerWalSupported(pPager) ){
    return plRefuse(pVdbe, SQLITE_ERROR, "journal_mode=concurrent needs shared memory and PRAGMA locking_mode=normal");
  }
  memset(&h, 0, sizeof(h));
  rc = pl_enable_check(sqlite3PagerFilename(pPager, 0), &h.salt, &zErr);
  if( rc ){
    sqlite3VdbeError(pVdbe, "%s%s", zErr ? zErr : sqlite3ErrStr(rc), plIsForOperator(rc) ? PL_PAGE : "");
    pl_free(zErr);
    return rc;
  }
  pl_free(zErr);
  plMarkInode(p);
  rc = plToWal(p);
  h.marked = 1;
  if( rc==SQLITE_OK ) rc = plStampAlone(p, 0, &h);
  if( rc ) return rc;
  if( plMarkedAlone(p) ) return SQLITE_OK;
  cookie = plContentCookie(pPager);
  rc = plAttach(p);
  if( rc==SQLITE_OK ) rc = plVersionJoins(p, &cookie);
  if( rc ){
    /* Concurrent mode needs a session: without one the file is unmarked and stays a
    ** WAL database. */
    PlHeader plain;
    memset(&plain, 0, sizeof(plain));
    (void)plStampAlone(p, h.salt, &plain);
  }
  return rc;
}

/* True if a session is possible next to the file. If not, the error log says so to the user who has
** set PLAIT_JOURNAL_MODE. */
static int plPlaceWillDo(const char *zPath){
  char *zErr = 0;
  int bWillDo = pl_check_place(zPath, &zErr)!=SQLITE_CANTOPEN;
  if( !bWillDo ) sqlite3_log(SQLITE_WARNING, "plait: %s stays out of concurrent mode: %s", zPath, zErr ? zErr : "");
  pl_free(zErr);
  return bWillDo;
}

/* PLAIT_JOURNAL_MODE=concurrent: a program asks for WAL. True if concurrent mode is possible;
** otherwise it gets what SQLite gives. */
static int plWalIsConcurrent(Btree *p){
  Pager *pPager = p->pBt->pPager;
  return pl_wal_is_concurrent()==SQLITE_OK && plUnsuitable(p)==0 && !sqlite3BtreeIsReadonly(p)
      && p->db->autoCommit && p->db->nVdbeRead<=1
      && !pPager->exclusiveMode && sqlite3PagerWalSupported(pPager)
      && plPlaceWillDo(sqlite3PagerFilename(pPager, 0));
}

/* Takes the mark from a file that is at rest. */
static int plRemoveMark(Btree *p){
  PlHeader h;
  int rc = sqlite3StockBtreeBeginTrans(p, 0, 0);
  if( rc==SQLITE_OK ){
    plReadHeader(p->pBt, &h);
    rc = sqlite3StockBtreeCommit(p);
  }
  if( rc==SQLITE_OK ){
    u32 iSalt = h.salt;
    memset(&h, 0, sizeof(h));
    rc = plStampAlone(p, iSalt, &h);
  }
  return rc;
}

static int plDisable(Vdbe *pVdbe, Btree *p){
  PlBtree *pPl = p->pPl;
  PlConn *pConn = pPl->pConn;
  PlWait wait;
  int rc, bOver = 0;
  if( !p->db->autoCommit || p->db->nVdbeRead>1 || sqlite3BtreeTxnState(p)!=SQLITE_TXN_NONE ){
    return plRefuse(pVdbe, SQLITE_ERROR, "cannot change out of concurrent mode from within a transaction");
  }
  plStashClear(p);
  rc = pl_disable_begin(pConn, plWait(p->db, &wait), &bOver);
  if( rc ) rc = plFail(p, rc);
  if( !bOver ) return rc;
  /* The engine has unfenced the file and removed the log: the file is at rest, and only the mark
  ** is left. */
  if( rc==SQLITE_OK ) rc = plRemoveMark(p);
  /* No other connection is in the session, and none has come (JOIN-1 in attach.rs). If log or mark
  ** could not be removed, since a stock program writes, or the disk fails, the file is one at rest,
  ** and the next transaction joins anew. */
  plVersionLeaves(p, pConn, 0);
  pPl->pConn = 0;
  pPl->bAlone = 0;
  plFreePool(pPl);
  plUseMarks(p->pBt->pPager, 0);
  pl_disabled(pConn);
  pPl->bLeft = rc==SQLITE_OK;
  return rc;
}

/* Stock code could not go on to the mode that was asked for, most often since a stock program has the
** file open. The file is concurrent again, as a file that cannot leave WAL mode stays in it. */
static void plComeBack(Vdbe *pVdbe, Btree *p, int rc){
  /* What it has read of the file may be old by now: see plMayLeaveWal(). */
  (void)sqlite3StockBtreeRollback(p, SQLITE_OK, 0);
  if( plEnable(pVdbe, p)!=SQLITE_OK ){
    sqlite3VdbeError(pVdbe, "%s%s; it has left concurrent mode and is in WAL mode now", sqlite3ErrStr(rc),
        (rc & 0xff)==SQLITE_BUSY ? ": another program has it open" : "");
  }
}

/* True if concurrent is the mode in force. A handle that reads a resting file, or is alone, is
** not attached. */
static int plIsConcurrent(Btree *p){
  int bMarked, bOwn = p->inTrans==TRANS_NONE;
  if( PL_BT(p) ) return 1;
  /* Only a handle that has met the mark, or could not find out, is worth a look. */
  if( (p->pPl==0 && !plReadsOnly(p)) || plUnsuitable(p)!=0 ) return 0;
  if( bOwn && sqlite3BtreeBeginTrans(p, 0, 0)!=SQLITE_OK ) return 0;
  bMarked = PL_BT(p) || plMarked(p->pBt);
  if( bOwn ) sqlite3BtreeCommit(p);
  return bMarked;
}

/* True if the open transaction has changed something. SQLite then answers with the mode in force,
** and keeps it. */
static int plHasWritten(Btree *p){
  if( PL_BT(p) && !p->pPl->bExcl ) return p->pPl->bWrote;
  return !sqlite3PagerOkToChangeJournalMode(p->pBt->pPager);
}

/* True if a look at the file is worth its lock, which SQLite does not take here. Between two modes
** that are not WAL the file itself would say that it is concurrent. While another statement reads,
** the look could not be ended, and no mode changes. */
static int plMayHaveSwitched(Btree *p, int bWal){
  if( p->pPl ) return 1;
  return (bWal || plSeemsMarked(p)) && p->db->autoCommit && p->db->nVdbeRead<=1;
}

/* OP_JournalMode begins. Returns the mode that stock code shall set, or PAGER_JOURNALMODE_QUERY. */
static int plJournalModeIn(Vdbe *pVdbe, Btree *p, int eAsked, int *pRc){
  Pager *pPager = p->pBt->pPager;
  int bWal = sqlite3PagerGetJournalMode(pPager)==PAGER_JOURNALMODE_WAL;
  if( p->pPl ) p->pPl->bLeft = 0;
  if( eAsked!=PAGER_JOURNALMODE_QUERY && eAsked!=PL_JOURNALMODE && plHasWritten(p) ) return PAGER_JOURNALMODE_QUERY;
  /* Another connection may have switched the mode on since this one looked. */
  if( eAsked!=PAGER_JOURNALMODE_QUERY && !PL_BT(p) && plMayHaveSwitched(p, bWal || eAsked>=PAGER_JOURNALMODE_WAL) ){
    /* A connection that asks for a mode that leads out has to be a member to switch concurrent
    ** mode off. */
    int bOut = eAsked!=PAGER_JOURNALMODE_WAL && eAsked!=PL_JOURNALMODE;
    int bMayBe = p->pPl || plSeemsMarked(p);
    *pRc = bOut && bMayBe ? plJoin(p) : plLook(p);
    /* Between two modes that are not WAL stock code needs no look. */
    if( (*pRc & 0xff)==SQLITE_BUSY && eAsked<PAGER_JOURNALMODE_WAL && !bWal ) *pRc = SQLITE_OK;
    if( *pRc ) return PAGER_JOURNALMODE_QUERY;
  }
  if( eAsked==PL_JOURNALMODE ){
    /* Databases without a file, among them that of temporary tables, keep their mode, as
    ** for WAL. */
    if( !plIsConcurrent(p) && sqlite3PagerFilename(pPager, 1)[0]!=0 ) *pRc = plEnable(pVdbe, p);
    return PAGER_JOURNALMODE_QUERY;
  }
  if( eAsked==PAGER_JOURNALMODE_WAL ){
    /* Concurrent mode does all that was asked for, and programs ask each time they connect. */
    if( plIsConcurrent(p) ) return PAGER_JOURNALMODE_QUERY;
    if( plWalIsConcurrent(p) ){
      *pRc = plEnable(pVdbe, p);
      /* It has WAL mode, and the answer needs no lock. */
      if( bWal && (*pRc & 0xff)==SQLITE_BUSY ) *pRc = SQLITE_OK;
      return PAGER_JOURNALMODE_QUERY;
    }
  }else if( eAsked!=PAGER_JOURNALMODE_QUERY && PL_BT(p) ){
    *pRc = plFollows(p) ? plRefuseMode(pVdbe, p) : plDisable(pVdbe, p);
    return *pRc ? PAGER_JOURNALMODE_QUERY : eAsked;
  }
  if( eAsked!=PAGER_JOURNALMODE_QUERY && plFollows(p) && bWal!=(eAsked==PAGER_JOURNALMODE_WAL) ){
    *pRc = plRefuseMode(pVdbe, p);
    return PAGER_JOURNALMODE_QUERY;
  }
  return eAsked;
}

/* OP_JournalMode ends: returns the name of the mode in force. */
static const char *plJournalModeOut(Vdbe *pVdbe, Btree *p, int eAsked, int eNew, int *pRc){
  (void)eAsked;
  if( *pRc && p->pPl && p->pPl->bLeft ) plComeBack(pVdbe, p, *pRc);
  /* A look would lose the sentence of what has failed, and nobody gets the answer. */
  else if( *pRc ) return sqlite3JournalModename(eNew);
  return plIsConcurrent(p) ? "concurrent" : sqlite3JournalModename(eNew);
}

/*
** several.c - one transaction over several files (TXN-6). The head of several.rs has the protocol,
** and what is on disk when.
**
** vdbeCommit() of SQLite commits over several files with a super-journal already, if these are in a
** rollback mode. The edits there include concurrent files in the count, and call these functions
** for what is different with them:
**
**  plTakeRights()    before anything else: takes every concurrent file's right, in one order, with
**                    all that may wait or be refused
**  plFilesToCommit() how many files need the super-journal
**  plSuperFile()     the file next to which it is made: a concurrent one, whose folder can be
**                    written and is synced
**  plSuperChild()    what it lists for a file: the journal, or the reference of a concurrent file
**  plDeleteSuper()   the commit point
**  plCommitEnded()   after a failure before it: releases what plTakeRights() and plCommitPrepare()
**                    took
**
** The phases of transaction.c come in between: PlBtree.bPart is set from plTakeRights() on,
** bPrepared from CommitPhaseOne to CommitPhaseTwo.
**
** A concurrent file on SQLite's own path (exclusive.c) is in WAL mode: its commit would be in its
** WAL before the others can be known to have committed. So its CommitPhaseOne stops before the WAL:
** plPagerCommitPhaseOne() writes every page that the transaction has changed to a file next to the
** database (pages.rs), and CommitPhaseTwo commits to the WAL.
**
** plRefuseMixed() refuses, before the first change, files that cannot be committed atomically with
** a concurrent file:
**    WAL mode       for that reason, and because stock SQLite, which may have the file open, would
**                   not know where else to look
**    OFF, MEMORY    nothing on disk could undo their changes
** ANALYZE, REINDEX and PRAGMA optimize over all files are not refused together with those.
*/

/* True if this handle has changed a file in the open transaction. */
static int plChangedFile(Btree *p){
  if( p==0 ) return 0;
  if( PL_BT(p) ) return p->pPl->bWrote;
  return p->inTrans==TRANS_WRITE
      && p->pBt->pPager->eState>=PAGER_WRITER_CACHEMOD
      && sqlite3PagerFilename(p->pBt->pPager, 1)[0]!=0;
}

/* Returns another file that the transaction has changed, or 0. Files of TEMP tables do
** not count. */
static Btree *plOtherChanged(Btree *p){
  sqlite3 *db = p->db;
  int i;
  for(i=0; i<db->nDb; i++){
    if( i!=1 && db->aDb[i].pBt!=p && plChangedFile(db->aDb[i].pBt) ) return db->aDb[i].pBt;
  }
  return 0;
}

/* True for a concurrent file, also if the handle works on it alone (alone.c): then the other file
** was attached after that began, perhaps by reading. */
static int plChangesConcurrent(Btree *p){
  return PL_BT(p) || (p->pPl!=0 && p->pPl->bAlone && p->inTrans!=TRANS_NONE && plMarked(p->pBt));
}

/* Returns why a file cannot be changed together with others of which one is concurrent, or 0. */
static const char *plCannotTakePart(Btree *p){
  if( PL_BT(p) ) return 0;
  switch( sqlite3PagerGetJournalMode(p->pBt->pPager) ){
    case PAGER_JOURNALMODE_DELETE:
    case PAGER_JOURNALMODE_PERSIST:
    case PAGER_JOURNALMODE_TRUNCATE: return 0;
    case PAGER_JOURNALMODE_WAL:
      if( plChangesConcurrent(p) ) return "its changes began before the other file was attached; "
          "roll back and begin again";
      return "it is in WAL mode; switch it to journal_mode=concurrent or delete";
    default: return "its journal is not on disk; switch it to journal_mode=concurrent or delete";
  }
}

/* True if all statements that write, outside of a transaction, change only what each file says
** about itself: its statistics, its indexes. No row depends on whether another file has the change
** as well, and SQLite itself commits such a statement file by file in WAL mode. */
static int plEachByItself(sqlite3 *db){
  Vdbe *v;
  int bFound = 0;
  if( !db->autoCommit ) return 0;
  for(v=db->pVdbe; v; v=v->pVNext){
    if( v->eVdbeState!=VDBE_RUN_STATE || v->readOnly ) continue;
    if( !v->bPlEach ) return 0;
    bFound = 1;
  }
  return bFound;
}

/* pWhich keeps the two files from being changed in one transaction. */
static int plRefusePair(Btree *p, Btree *pOther, Btree *pWhich, const char *zWhy){
  return plStash(p, SQLITE_ERROR, sqlite3_mprintf(
      "cannot change \"%s\" in a transaction that has changed \"%s\": with "
      "journal_mode=concurrent a commit over both would not be atomic, because of \"%s\": %s; or "
      "use one transaction for each file", plDbName(p), plDbName(pOther), plDbName(pWhich), zWhy));
}

/* Called before p is changed. Fails if the transaction has already changed another file, one of the
** files is concurrent, and a commit over them could not be atomic. */
static int plRefuseMixed(Btree *p){
  sqlite3 *db = p->db;
  const char *zWhy;
  int bConcurrent = plChangesConcurrent(p);
  int i;
  if( db->nDb<=2 || sqlite3PagerFilename(p->pBt->pPager, 1)[0]==0 ) return SQLITE_OK;
  if( plOtherChanged(p)==0 || plEachByItself(db) ) return SQLITE_OK;
  for(i=0; i<db->nDb; i++){
    Btree *pOther = db->aDb[i].pBt;
    if( i!=1 && plChangedFile(pOther) && plChangesConcurrent(pOther) ) bConcurrent = 1;
  }
  if( !bConcurrent ) return SQLITE_OK;
  zWhy = plCannotTakePart(p);
  if( zWhy ) return plRefusePair(p, plOtherChanged(p), p, zWhy);
  for(i=0; i<db->nDb; i++){
    Btree *pOther = db->aDb[i].pBt;
    if( i==1 || pOther==p || !plChangedFile(pOther) ) continue;
    zWhy = plCannotTakePart(pOther);
    if( zWhy ) return plRefusePair(p, pOther, pOther, zWhy);
  }
  return SQLITE_OK;
}

/* The numbers of the pages that an exclusive transaction has changed, and how far they have been
** handed out. */
typedef struct PlChanged {
  Pager *pPager;
  Bitvec *pSet;
  Pgno iPage;
  DbPage *pPage;          /* handed out last, or 0 */
} PlChanged;

/* Reserves disk space after the end of the WAL for frames of nPage pages. Otherwise a full disk,
** after the decision, would keep the commit from readers of the file until there is room again. On
** a file system that cannot reserve space that may still happen. */
static int plReserveWal(Pager *pPager, u32 nPage){
  sqlite3_file *pFd = pPager->pWal->pWalFd;
  i64 iFrom = walFrameOffset(pPager->pWal->hdr.mxFrame+1, pPager->pageSize);
  /* The last frame may be written again, until a sector is full. */
  i64 nByte = ((i64)nPage+1) * (pPager->pageSize+WAL_FRAME_HDRSIZE) + pPager->sectorSize;
  int rc;
  if( pFd->pMethods!=&nolockIoMethods && pFd->pMethods!=&posixIoMethods ) return SQLITE_OK;
  do{
    rc = fallocate(((unixFile*)pFd)->h, FALLOC_FL_KEEP_SIZE, iFrom, nByte);
  }while( rc!=0 && errno==EINTR );
  return rc!=0 && (errno==ENOSPC || errno==EDQUOT) ? SQLITE_FULL : SQLITE_OK;
}

/* Collects every page that is dirty, or was until its cache spilled it into the WAL. Only its
** number is kept: to read one may spill others. As in pagerWalFrames() pages past the end of the
** database do not count. */
static int plCollectChanged(PlChanged *pX, u32 *pnChanged, u32 *pnDirty){
  Pager *pPager = pX->pPager;
  Wal *pWal = pPager->pWal;
  u32 iFrame = walIndexHdr(pWal)->mxFrame;
  PgHdr *pDirty;
  int rc = SQLITE_OK;
  *pnChanged = 0;
  pX->pSet = sqlite3BitvecCreate(pPager->dbSize);
  if( pX->pSet==0 ) return SQLITE_NOMEM_BKPT;
  for(pDirty=sqlite3PcacheDirtyList(pPager->pPCache); pDirty && rc==SQLITE_OK; pDirty=pDirty->pDirty){
    if( pDirty->pgno>pPager->dbSize ) continue;
    rc = sqlite3BitvecSet(pX->pSet, pDirty->pgno);
    (*pnChanged)++;
  }
  *pnDirty = *pnChanged;
  /* After what others see come this transaction's own frames (sqlite3WalUndo). */
  while( rc==SQLITE_OK && iFrame<pWal->hdr.mxFrame ){
    Pgno iPage = walFramePgno(pWal, ++iFrame);
    if( iPage>pPager->dbSize || sqlite3BitvecTest(pX->pSet, iPage) ) continue;
    rc = sqlite3BitvecSet(pX->pSet, iPage);
    (*pnChanged)++;
  }
  return rc;
}

static int plNextChanged(void *pCtx, uint32_t *piPage, const uint8_t **paPage){
  PlChanged *pX = (PlChanged*)pCtx;
  int rc;
  sqlite3PagerUnref(pX->pPage);
  pX->pPage = 0;
  do{ pX->iPage++; }while( pX->iPage<=pX->pPager->dbSize && !sqlite3BitvecTest(pX->pSet, pX->iPage) );
  if( pX->iPage>pX->pPager->dbSize ) return SQLITE_CORRUPT_BKPT;
  rc = sqlite3PagerGet(pX->pPager, pX->iPage, &pX->pPage, 0);
  if( rc ) return rc;
  *piPage = pX->iPage;
  *paPage = (const uint8_t*)sqlite3PagerGetData(pX->pPage);
  return SQLITE_OK;
}

/* For an exclusive transaction that takes part: does everything but the WAL frames of
** its commit. */
static int plPreparePages(Btree *p, const char *zSuper){
  PlBtree *pPl = p->pPl;
  PlChanged x;
  PlPages pages;
  u32 nDirty;
  int rc;
  memset(&x, 0, sizeof(x));
  memset(&pages, 0, sizeof(pages));
  x.pPager = p->pBt->pPager;
  if( x.pPager->eState<PAGER_WRITER_CACHEMOD ) return SQLITE_OK;
  rc = plCollectChanged(&x, &pages.nChanged, &nDirty);
  if( rc==SQLITE_OK ) rc = plReserveWal(x.pPager, nDirty);
  if( rc==SQLITE_OK ){
    pages.iCounter = get4byte(pPl->aVers);
    pages.nPageByte = p->pBt->pageSize;
    pages.nPage = x.pPager->dbSize;
    pages.xNext = plNextChanged;
    pages.pCtx = &x;
    rc = plFail(p, pl_part_prepare_pages(pPl->pConn, zSuper, &pages));
    if( rc==SQLITE_OK ) pPl->bPrepared = 1;
  }
  sqlite3PagerUnref(x.pPage);
  sqlite3BitvecDestroy(x.pSet);
  return rc;
}

SQLITE_PRIVATE int plPagerCommitPhaseOne(Btree *p, const char *zSuper){
  if( zSuper && PL_BT(p) && p->pPl->bExcl && p->pPl->bPart ) return plPreparePages(p, zSuper);
  return sqlite3PagerCommitPhaseOne(p->pBt->pPager, zSuper, 0);
}

/* Takes one concurrent file's right, validates, and makes room. */
static int plPartBegin(Btree *p){
  PlBtree *pPl = p->pPl;
  PlWait wait;
  int rc;
  if( pPl->rcBroken ) return pPl->rcBroken;
  if( pPl->zReference==0 ){
    pPl->zReference = sqlite3_mprintf("%s-plait-super", sqlite3BtreeGetFilename(p));
    if( pPl->zReference==0 ) return SQLITE_NOMEM_BKPT;
  }
  plRdFlushAll(pPl);
  rc = pPl->bExcl ? SQLITE_OK : plLetMove(pPl);
  if( rc ) return rc;
  while( (rc = pl_part_begin(pPl->pConn, plWait(p->db, &wait)))==PL_RETRY ){
    rc = plRenewSnapshot(p);
    if( rc ) return rc;
  }
  if( rc ) return plFail(p, rc);
  pPl->bPart = 1;
  /* An optimistic transaction has moved to now, and rows that others added take pages as well. */
  if( pPl->eWrite==PL_WRITE_OPTIMISTIC && !pPl->bExcl && plNeedsPages(p, 0) ){
    pl_commit_undo(pPl->pConn);
    pPl->bPart = 0;
    rc = plEscalate(p);
    if( rc==SQLITE_OK ) rc = plPartBegin(p);
  }
  return rc;
}

static int plComesBefore(Btree *pA, Btree *pB){
  u64 a[2] = {0, 0}, b[2] = {0, 0};
  /* A failure means that the file's engine has stopped, which taking its right reports. */
  (void)pl_order(pA->pPl->pConn, (uint64_t*)a);
  (void)pl_order(pB->pPl->pConn, (uint64_t*)b);
  return a[0]!=b[0] ? a[0]<b[0] : a[1]<b[1];
}

/* vdbeCommit() begins. If a concurrent file and another one are to be committed, takes the rights
** of the concurrent ones, in the same order as every process: a transaction that has to wait for
** one then holds none that the holder could wait for. */
static int plTakeRights(sqlite3 *db){
  Btree *aPart[SQLITE_MAX_ATTACHED+2];
  int nPart = 0, nFile = 0;
  int i, j, rc = SQLITE_OK;
  if( plIsTorn(db, 0) ) return SQLITE_ABORT_ROLLBACK;      /* WHOLE-2 in whole.c */
  if( db->nDb<=2 ) return SQLITE_OK;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( i==1 || !plChangedFile(p) ) continue;
    nFile++;
    if( !PL_BT(p) ) continue;
    for(j=nPart++; j>0 && plComesBefore(p, aPart[j-1]); j--) aPart[j] = aPart[j-1];
    aPart[j] = p;
  }
  /* After the first file's commit point nothing may fail (ENDS-2 in transaction.c). */
  for(i=0; nFile>0 && i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( i==1 || p==0 || !PL_BT(p) || p->inTrans==TRANS_NONE || plChangedFile(p) ) continue;
    rc = plFail(p, pl_settle_shown(p->pPl->pConn));
    if( rc ) return rc;
  }
  if( nFile<2 ) return SQLITE_OK;
  for(i=0; i<nPart && rc==SQLITE_OK; i++) rc = plPartBegin(aPart[i]);
  return rc;
}

static Btree *plFirstPart(sqlite3 *db){
  int i;
  if( !PL_MET(db) ) return 0;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( p && PL_BT(p) && p->pPl->bPart ) return p;
  }
  return 0;
}

/* nTrans: SQLite's own count. */
static int plFilesToCommit(sqlite3 *db, int nTrans){
  return plFirstPart(db) ? MAX(nTrans, 2) : nTrans;
}

static const char *plSuperFile(sqlite3 *db){
  Btree *p = plFirstPart(db);
  return sqlite3BtreeGetFilename(p ? p : db->aDb[0].pBt);
}

/* 0: nothing of this file depends on the super-journal. */
static const char *plSuperChild(Btree *p){
  if( !PL_BT(p) ) return sqlite3BtreeGetJournalname(p);
  return p->pPl->bPart ? p->pPl->zReference : 0;
}

/* Removes the super-journal, which commits. If the name is gone and only its folder could not be
** synced there is no way back: every process decides by what it sees. Then the commit is finished,
** and the failure returned at its end. */
static int plDeleteSuper(sqlite3 *db, sqlite3_vfs *pVfs, const char *zSuper){
  Btree *p = plFirstPart(db);
  int bThere = 1;
  int rc = sqlite3OsDelete(pVfs, zSuper, 1);
  if( rc==SQLITE_OK || p==0 ) return rc;
  if( sqlite3OsAccess(pVfs, zSuper, SQLITE_ACCESS_EXISTS, &bThere)!=SQLITE_OK || bThere ) return rc;
  p->pPl->rcSuper = rc;
  return SQLITE_OK;
}

/* vdbeCommit() begins: error texts are of this COMMIT from here on. A busy handler or a hook of the
** application may run statements in its middle. autoCommit is set by then, so that SQLite would
** commit at the end of each, or roll back (plCommitting()). */
static void plCommitBegins(sqlite3 *db){
  int i;
  plStashClearAll(db);
  for(i=0; i<db->nDb; i++){
    if( db->aDb[i].pBt && PL_BT(db->aDb[i].pBt) ) db->bPlCommitting = PL_UNDERWAY;
  }
}

/* True if this statement, on the connection that commits, begins or ends a transaction or
** savepoint. Statements that write are refused by plBeginTrans(). */
static int plEndsSomething(const Vdbe *v){
  int i;
  if( v->db->bPlCommitting==0 || sqlite3VtabInSync(v->db) || v->eVdbeState!=VDBE_READY_STATE ) return 0;
  for(i=0; i<v->nOp; i++){
    if( v->aOp[i].opcode==OP_AutoCommit || v->aOp[i].opcode==OP_Savepoint ) return 1;
  }
  return 0;
}

static SQLITE_NOINLINE int plRefuseEnd(Vdbe *v){
  sqlite3VdbeError(v, "%s", PL_IN_COMMIT);
  v->rc = SQLITE_LOCKED;
  return sqlite3VdbeTransferError(v);
}

/* True if a COMMIT is under way, or virtual tables are called to take part in one. A statement in
** its middle ends no transaction. */
static SQLITE_INLINE int plCommitting(sqlite3 *db){
  return db->bPlCommitting || sqlite3VtabInSync(db);
}

/* vdbeCommit() returned rc for v: the table at the head of transaction.c. */
static int plCommitEnded(sqlite3 *db, Vdbe *v, int rc){
  int bMade, i;
  /* After BUSY the application would repeat it. */
  if( db->bPlCommitting==PL_LOST && (rc==SQLITE_OK || (rc & 0xff)==SQLITE_BUSY) ) rc = SQLITE_ABORT_ROLLBACK;
  bMade = rc==SQLITE_OK;
  db->bPlCommitting = 0;
  if( bMade ) db->bPlCrossed = 0;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    PlBtree *pPl = p ? p->pPl : 0;
    if( pPl==0 ) continue;
    if( rc==SQLITE_OK ) rc = pPl->rcSuper;
    pPl->rcSuper = 0;
    if( pPl->pConn && !pPl->bPrepared && (pPl->bPart || !bMade) ) pl_commit_undo(pPl->pConn);
    if( !pPl->bPrepared ) pPl->bPart = 0;
    if( pPl->rcBroken && (rc & 0xff)==SQLITE_BUSY && rc!=SQLITE_BUSY_SNAPSHOT ) rc = plSayBroken(p);
  }
  if( rc && plIsTorn(db, 0) ) return plErrorTorn(v, v->rc);
  /* OP_AutoCommit and OP_Savepoint get SQLITE_BUSY from sqlite3VdbeHalt(), and read the full
  ** code here. */
  if( (rc & 0xff)==SQLITE_BUSY && v->readOnly ) v->rc = rc;
  return rc;
}

/*
** pages.c - code that looks at the file page by page (integrity_check, dbstat, dbpage, backup,
** serialize, checkpoint), the number of pages, and header values.
**
** Pages hold the base alone. Before such code runs, plWholeView() merges what is committed and
** restarts the read transaction at the merged base, if nothing has been read in it yet (bUsed):
** by a cursor, on the schema too, by a value of the header, or by a statement that began in it
** before. What SQLite reads to load the schema does not count. What must be true then depends on
** the caller:
**
**  PLV_COUNT page_count, freelist_count: numbers of the base as the snapshot has it. Nothing is
**            merged for them while others have the database open, nor in a transaction that has
**            read or written: programs read these numbers each time that they write, to keep a
**            limit. They count as no read of a row.
**  PLV_LOOK  integrity_check, max_page_count, dbstat: an answer from the snapshot. Pages are those
**            of the base as the snapshot has it, whether or not a merge was possible; cursors go
**            on seeing base and overlay, and integrity_check compares what it finds with merged
**            counts. Never refused to a transaction that only reads. What was looked at is not
**            known row by row: every b-tree counts as read as a whole.
**  PLV_PAGES dbpage: like PLV_LOOK, but a transaction that has read the schema alone becomes
**            exclusive if it would miss what is not merged: the shell's .recover makes a database
**            of these pages. If pages were counted before anything was read, dbpage gives those
**            that were counted.
**  PLV_COPY  backup, serialize: the pages must be everything that is committed, or the answer is
**            BUSY: while a commit over several files is undecided, or readers hold every memtable,
**            some of it stays in memory. For the rest of the read transaction the overlay is not
**            looked at (bBaseOnly). A transaction that has already read cannot move: it becomes
**            exclusive.
**
** None of them merges while the base of the snapshot is whole: everything has just been merged,
** by an exclusive transaction of another connection for instance, in parallel with which no
** merge is possible.
**
** A transaction that has written becomes exclusive for all but a count: that validates what it
** read and merges what it wrote.
**
** dbpage and backup call the pager directly. The macros at the end of dispatch.c lead those
** calls here.
*/

/* Returns the handle that owns a pager, or 0. */
static Btree *plHandle(Pager *pPager){
  BtShared *pBt = (BtShared*)pPager->pBusyHandlerArg;
  int i;
  if( pBt==0 || pBt->db==0 ) return 0;
  for(i=0; i<pBt->db->nDb; i++){
    Btree *p = pBt->db->aDb[i].pBt;
    if( p && p->pBt==pBt ) return p;
  }
  return 0;
}

/* Returns the attached handle that owns a pager, or 0. */
static Btree *plOwner(Pager *pPager){
  Btree *p = plHandle(pPager);
  return p && PL_BT(p) ? p : 0;
}

/* Records that every b-tree was read as a whole. */
static int plReadEverything(Btree *p){
  PlBtree *pPl = p->pPl;
  Schema *pSchema = p->db->aDb[plDbIndex(p)].pSchema;
  HashElem *k;
  int rc = SQLITE_OK;
  for(k=sqliteHashFirst(&pSchema->tblHash); k && rc==SQLITE_OK; k=sqliteHashNext(k)){
    Pgno iRoot = ((Table*)sqliteHashData(k))->tnum;
    if( iRoot ) rc = plRdRoot(pPl, iRoot);
  }
  for(k=sqliteHashFirst(&pSchema->idxHash); k && rc==SQLITE_OK; k=sqliteHashNext(k)){
    rc = plRdRoot(pPl, ((Index*)sqliteHashData(k))->tnum);
  }
  return rc;
}

/* Merges, all that is committed if bWhole, and restarts a read transaction, in which nothing was
** read, at the merged base. *prcMerge: why a merge was not possible. */
static int plMergeAndMove(Btree *p, int bWhole, int *prcMerge){
  PlBtree *pPl = p->pPl;
  int bForWrite = pPl->bForWrite, nBegun = pPl->nBegun;
  PlWait wait;
  int rc = plHardSaveAll(pPl);
  if( rc ) return rc;
  plBaseEnd(p);
  pl_snapshot_end(pPl->pConn);
  *prcMerge = plFail(p, pl_merge_all(pPl->pConn, bWhole, plWait(p->db, &wait)));
  rc = plBeginRead(p, bForWrite, 0, 0);
  pPl->nBegun = nBegun;
  if( rc ) (void)plTripAll(pPl, rc, 0);
  return rc;
}

/* Records that the pages of the base as the snapshot has it are counted. */
static int plCounted(PlBtree *pPl){
  if( pPl->eCounted==PLN_NO ) pPl->eCounted = pPl->bUsed ? PLN_LATER : PLN_FIRST;
  pPl->bUsed = 1;
  return SQLITE_OK;
}

/* Prepares the open transaction for a look at pages. */
static int plWholeView(Btree *p, int eView){
  PlBtree *pPl = p->pPl;
  int rcMerge = SQLITE_OK;
  u32 iCookie;
  int bOnlyOthers, bWhole, rc;
  if( !PL_BT(p) || pPl->bExcl || pPl->bBaseOnly || p->inTrans==TRANS_NONE ) return SQLITE_OK;
  if( pPl->rcBroken ) return pPl->rcBroken;
  if( pPl->bCopy ) eView = PLV_COPY;
  if( eView==PLV_COUNT ){
    rc = pPl->eWrite || pPl->bUsed ? SQLITE_DONE : plFound(pPl, pl_is_lone(pPl->pConn));
    if( rc ) return rc==SQLITE_DONE ? plCounted(pPl) : rc;
  }
  /* A writer that has written other files alone cannot become exclusive, and need not. */
  bOnlyOthers = eView!=PLV_COPY && pPl->eWrite && !pPl->bWrote && p->db->nDb>2 && plOtherChanged(p)!=0;
  rc = plFound(pPl, pl_has_overlay(pPl->pConn));
  if( rc!=SQLITE_OK && rc!=SQLITE_DONE ) return rc;
  bWhole = rc==SQLITE_DONE;
  if( pPl->eWrite && !bOnlyOthers ) return plEscalate(p);
  if( eView==PLV_PAGES && (pPl->bRows || (pPl->bLooked && !pPl->bStayed) || pPl->eCounted==PLN_FIRST) ) eView = PLV_LOOK;
  if( pPl->bUsed && eView!=PLV_LOOK ){
    if( bWhole ) return SQLITE_OK;
    rc = plEscalate(p);
    pPl->bCopies = rc==SQLITE_OK;
    return rc;
  }
  if( eView!=PLV_COPY && pPl->bLooked ) return SQLITE_OK;
  if( eView!=PLV_COPY ) pPl->bStayed = pPl->bUsed;
  if( !pPl->bUsed && !bOnlyOthers && !bWhole ){
    iCookie = get4byte(&p->pBt->pPage1->aData[40]);
    rc = plMergeAndMove(p, eView==PLV_COPY, &rcMerge);
    if( rc || pPl->pConn==0 ) return rc;
    if( rcMerge!=SQLITE_OK && (eView==PLV_COPY || ((rcMerge & 0xff)!=SQLITE_BUSY && rcMerge!=SQLITE_FULL)) ){
      (void)plTripAll(pPl, rcMerge, 0);
      return rcMerge;
    }
    if( rcMerge ) plStashClear(p);
    if( iCookie!=get4byte(&p->pBt->pPage1->aData[40]) ){
      (void)plTripAll(pPl, SQLITE_SCHEMA, 0);
      /* A copy takes pages without the schema. Every other statement is prepared again
      ** by sqlite3_step(). */
      if( eView!=PLV_COPY ) return SQLITE_SCHEMA;
    }
  }
  if( eView==PLV_COPY ){
    pPl->bBaseOnly = 1;
    return SQLITE_OK;
  }
  if( eView==PLV_COUNT ) return plCounted(pPl);
  rc = plReadEverything(p);
  if( rc==SQLITE_OK ) pPl->bLooked = pPl->bUsed = 1;
  return rc;
}

/* sqlite3_serialize() begins (1) or ends (0): its page_count is the size of a copy. */
SQLITE_PRIVATE void plSerialize(Btree *p, int bCopy){
  if( p->pPl ) p->pPl->bCopy = (u8)bCopy;
}

/* integrity_check compares rows and index entries, which it finds through cursors, with counts of
** b-trees: these have to be the cursors' counts wherever an entry hides or adds to the base. */
static int plMergedCounts(sqlite3 *db, Btree *p, Pgno *aRoot, sqlite3_value *aCnt, int nRoot){
  PlBtree *pPl = p->pPl;
  int i, rc = SQLITE_OK;
  for(i=0; i<nRoot && rc==SQLITE_OK; i++){
    KeyInfo *pInfo = 0;
    PlFacade f;
    i64 n = 0;
    if( aRoot[i]==0 ) continue;
    rc = plFound(pPl, pl_root_overlay(pPl->pConn, aRoot[i]));
    if( rc==SQLITE_DONE ){
      rc = SQLITE_OK;
      continue;
    }
    if( rc==SQLITE_OK ) rc = plKeyInfoOfRoot(db, plDbIndex(p), aRoot[i], &pInfo);
    if( rc ) break;
    sqlite3BtreeCursorZero(&f.outer);
    rc = plOpen(p, aRoot[i], 0, pInfo, &f.outer);
    if( rc==SQLITE_OK ){
      rc = plBtreeCount(db, &f.outer, &n);
      plBtreeCloseCursor(&f.outer);
    }
    sqlite3KeyInfoUnref(pInfo);
    if( rc==SQLITE_OK ) sqlite3MemSetArrayInt64(aCnt, i, n);
  }
  return rc;
}

static int plBtreeIntegrityCheck(
  sqlite3 *db, Btree *p, Pgno *aRoot, sqlite3_value *aCnt, int nRoot, int mxErr, int *pnErr, char **pzOut
){
  int rc = plWholeView(p, PLV_LOOK);
  if( rc==SQLITE_OK ){
    rc = sqlite3StockBtreeIntegrityCheck(db, p, aRoot, aCnt, nRoot, mxErr, pnErr, pzOut);
    if( rc || !PL_BT(p) || p->pPl->bExcl || p->pPl->bBaseOnly ) return rc;
    rc = plMergedCounts(db, p, aRoot, aCnt, nRoot);
    if( rc==SQLITE_OK ) return SQLITE_OK;
    sqlite3_free(*pzOut);
  }
  *pnErr = 1;      /* OP_IntegrityCk reads the code only if something was found */
  *pzOut = 0;
  return rc;
}

/* True if the transaction is exclusive for the sake of a copy alone: then the copy can
** have everything. */
static int plOnlyCopies(Btree *p){
  return PL_BT(p) && p->pPl->bExcl && p->pPl->bCopies && !p->pPl->bWrote;
}

/* sqlite3_backup_step() calls this for the size of its source before it reads page iNext and up to
** nPage-1 more (nPage<0: all). The first step makes the base complete, and so does the step that
** would be the last: as with stock SQLite the copy is what is committed when it ends. If that has
** changed since the first step, the pager starts the backup over.
**
** Stock code copies what the source's own handle commits between the steps into the backup, and so
** ends even while a program writes between the steps. Here a merge writes the pages of such
** commits, and the backup starts over. So that it ends too, its last step copies all pages then, as
** does a step after two restarts (the fence alone causes one). Two backups of one handle at a time
** may do so earlier than they need.
**
** Commits of other handles make stock SQLite start over too, each time that a step finds one. There
** the backup ends when a copy gets through between two commits; here it ends with a merge, which
** takes longer than the time between commits. So a step copies all pages after more than
** PL_BACKUP_OVER restarts. */
#define PL_BACKUP_OVER 10
static int plBackupPages(Btree *pSrc, Pgno iNext, int *pnPage, int *pRc){
  if( *pRc==SQLITE_OK && PL_BT(pSrc) ){
    PlBtree *pPl = pSrc->pPl;
    int bFirst = pSrc->pBt->pPager->pBackup==0;
    int bLast = *pnPage<0 || (i64)iNext+*pnPage>(i64)sqlite3BtreeLastPage(pSrc);
    int bOwn = pPl->nCommit!=pPl->nBackupCommit;
    if( bFirst ) pPl->nBackupOver = 0;
    else if( iNext<pPl->iBackupNext ) pPl->nBackupOver++;
    if( !bFirst && ((bOwn && (bLast || pPl->nBackupOver>1)) || pPl->nBackupOver>PL_BACKUP_OVER) ){
      *pnPage = -1;
      bLast = 1;
    }
    pPl->iBackupNext = bLast ? iNext : iNext + (Pgno)*pnPage;
    if( pPl->nBegun ) pPl->bUsed = 1;      /* another statement has begun this transaction */
    if( pSrc->nBackup>0 && pPl->eWrite && !plOnlyCopies(pSrc) ){
      *pRc = SQLITE_BUSY;      /* as stock code does for a source with a write transaction */
    }else if( bFirst || bLast || pPl->eWrite ){
      *pRc = plWholeView(pSrc, PLV_COPY);
    }else{
      /* The base as it is. If another process merged since, the pager restarts the backup. */
      pPl->bBaseOnly = !pPl->bUsed;
    }
    if( (bFirst || bLast) && *pRc==SQLITE_OK ) pPl->nBackupCommit = pPl->nCommit;
  }
  return (int)sqlite3BtreeLastPage(pSrc);
}

/* Page 1 of a backup or serialization: what a WAL database would give. */
SQLITE_PRIVATE void plBackupHeader(u8 *aPage1){
  if( PL_MARKED(aPage1) ){
    aPage1[18] = aPage1[19] = 2;
    put4byte(&aPage1[72], 0);
    put4byte(&aPage1[76], 0);
  }
}

/* Page 1 of a serialization. An in-memory database has no WAL: an image that says it has one cannot
** be deserialized. */
SQLITE_PRIVATE void plSerializedHeader(u8 *aPage1){
  if( PL_MARKED(aPage1) ){
    plBackupHeader(aPage1);
    aPage1[18] = aPage1[19] = 1;
  }
}

/* sqlite3PagerGet() in backup.c, dbstat.c and dbpage.c. */
static int plPagerGet(Pager *pPager, Pgno pgno, DbPage **ppPage, int flags){
  Btree *p = plOwner(pPager);
  if( p && p->nBackup==0 ){
    int rc = plWholeView(p, PLV_LOOK);
    if( rc ){
      *ppPage = 0;
      return rc;
    }
  }
  return sqlite3PagerGet(pPager, pgno, ppPage, flags);
}

/* sqlite3PagerWrite() in those files. */
static int plPagerWrite(DbPage *pPg){
  Btree *p = plOwner(pPg->pPager);
  if( p ){
    if( !p->pPl->bExcl ) return SQLITE_READONLY;
    p->pPl->bWrote = 1;
    plNoteChangedAny(p->pPl);
  }
  return sqlite3PagerWrite(pPg);
}

/* dbstat is about to read the schema, and then the pages of its b-trees: both have to be of one
** state. If the schema in memory is of another state, the statement that reads it finds out. */
static int plStatLook(sqlite3 *db, int iDb){
  Btree *p = db->aDb[iDb].pBt;
  int rc = SQLITE_OK;
  if( p==0 ) return SQLITE_OK;
  if( p->inTrans==TRANS_NONE ) rc = sqlite3BtreeBeginTrans(p, 0, 0);
  if( rc || !PL_BT(p) || (u32)db->aDb[iDb].pSchema->schema_cookie!=get4byte(&p->pBt->pPage1->aData[40]) ) return rc;
  return plWholeView(p, PLV_LOOK);
}

/* PRAGMA locking_mode=exclusive: the handle wants the file for itself. As in WAL mode it gets it
** from its next transaction on, by SQLite's own locks and code (plStaysStock()). A member of a
** session leaves the session. It cannot do that in a transaction, and the answer says so. */
static int plPagerLockingMode(Pager *pPager, int eMode){
  Btree *p = plHandle(pPager);
  if( eMode==PAGER_LOCKINGMODE_EXCLUSIVE && p && PL_BT(p) ){
    if( p->inTrans!=TRANS_NONE ){
      eMode = PAGER_LOCKINGMODE_NORMAL;
      if( p==p->db->aDb[0].pBt ) p->db->dfltLockMode = PAGER_LOCKINGMODE_NORMAL;
    }else{
      plDetach(p);
      plForgetWal(p);
      (void)plMeetWal(p);      /* Without it the next transaction meets the WAL in exclusive mode, which lasts. */
    }
  }
  return sqlite3PagerLockingMode(pPager, eMode);
}

#ifdef SQLITE_ENABLE_SNAPSHOT
/* sqlite3_snapshot objects name a state of the WAL, which is not the state of a
** concurrent database. */
static int plIsMember(Pager *pPager){
  Btree *p = plHandle(pPager);
  return p && (PL_BT(p) || (p->inTrans!=TRANS_NONE && plMarked(p->pBt)));
}
static int plPagerSnapshotGet(Pager *pPager, sqlite3_snapshot **ppSnapshot){
  if( plIsMember(pPager) ) return SQLITE_ERROR;
  return sqlite3PagerSnapshotGet(pPager, ppSnapshot);
}
static int plPagerSnapshotOpen(Pager *pPager, sqlite3_snapshot *pSnapshot){
  if( plIsMember(pPager) ) return SQLITE_ERROR;
  return sqlite3PagerSnapshotOpen(pPager, pSnapshot);
}
#endif

#define PL_AUTOCHECKPOINT_TIMES 4
#define PL_AUTOCHECKPOINT_TIMES_SMALL 2
#define PL_SMALL_WRITES 64
#define PL_SMALL_BYTES  (16<<10)

/* Returns the frames in the base's WAL after a commit for the callback; 0: no callback.
**
** SQLite's own wal_autocheckpoint is called when there are four times as many frames as its limit:
** in a bulk load it then syncs both files a quarter as often. After a small transaction it is
** called at twice the limit, since half of the frames are page 1: so a checkpoint comes after as
** many commits as in SQLite, and the WAL, which makes commits costly while it grows, starts over as
** early. A hook of the application is called for every commit, as with SQLite, though most commits
** do not go to the WAL. */
static int plPagerWalCallback(Pager *pPager){
  int nFrame = sqlite3PagerWalCallback(pPager);
  BtShared *pBt = (BtShared*)pPager->pBusyHandlerArg;
  sqlite3 *db = pBt ? pBt->db : 0;
  Btree *p;
  if( db==0 || db->xWalCallback==0 || (nFrame==0 && db->xWalCallback==sqlite3WalDefaultHook) ) return nFrame;
  p = plOwner(pPager);
  if( p==0 ) return nFrame;
  if( db->xWalCallback==sqlite3WalDefaultHook ){
    int bSmall = p->pPl->nPassWrite<PL_SMALL_WRITES && p->pPl->nPassByte<PL_SMALL_BYTES;
    int nTimes = bSmall ? PL_AUTOCHECKPOINT_TIMES_SMALL : PL_AUTOCHECKPOINT_TIMES;
    return nFrame/nTimes<SQLITE_PTR_TO_INT(db->pWalArg) ? 0 : nFrame;
  }
  if( p->pPl->bTellHook && nFrame==0 ){
    nFrame = pPager->pWal ? (int)pPager->pWal->hdr.mxFrame : 0;
    if( nFrame<1 ) nFrame = 1;
  }
  p->pPl->bTellHook = 0;
  return nFrame;
}

/* OP_ReadCookie: BTREE_DATA_VERSION counts commits, not pages; free pages are counted like
** all pages. */
static int plReadMeta(Btree *p, int idx, u32 *pMeta){
  if( idx!=BTREE_FREE_PAGE_COUNT && PL_BT(p) ) p->pPl->bUsed = 1;
  if( idx==BTREE_DATA_VERSION && PL_BT(p) ) return plFail(p, pl_data_version(p->pPl->pConn, 0, pMeta));
  if( idx==BTREE_FREE_PAGE_COUNT && PL_BT(p) ){
    int rc = plWholeView(p, PLV_COUNT);
    if( rc ) return rc;
  }
  sqlite3BtreeGetMeta(p, idx, pMeta);
  return SQLITE_OK;
}

/* SQLITE_FCNTL_DATA_VERSION counts every change, own ones included, which pl_data_version() does
** not count. */
static int plDataVersion(Btree *p, Pager *pPager, u32 *pOut){
  u32 i = 0;
  int rc = SQLITE_OK;
  if( PL_BT(p) ){
    rc = plFail(p, pl_data_version(p->pPl->pConn, 0, &i));
    i += p->pPl->nCommit - p->pPl->iJoined;
  }
  *pOut = sqlite3PagerDataVersion(pPager) + i;
  return rc;
}

/* The handle has just been attached: data_version continues from stock code's number. pCookie: that
** of the base then, or 0 if it was fenced, which stock code has counted as a change. */
static int plVersionJoins(Btree *p, const u64 *pCookie){
  PlBtree *pPl = p->pPl;
  pPl->nCommit = 0;
  pPl->iJoined = sqlite3PagerDataVersion(p->pBt->pPager) + p->iBDataVersion;
  return plFail(p, pl_data_version_from(pPl->pConn, pPl->iJoined, (const uint64_t*)pCookie));
}

/* The handle is about to be stock again: both numbers continue. nOther: commits of others that are
** not counted yet. */
static void plVersionLeaves(Btree *p, PlConn *pConn, u32 nOther){
  Pager *pPager = p->pBt->pPager;
  u32 i;
  /* An engine that has stopped has no number: any number but the last will do. */
  if( pl_data_version(pConn, 1, &i) ) i = p->pPl->iJoined + p->pPl->nCommit + 1;
  i += nOther;
  pPager->iDataVersion += i - p->pPl->iJoined + p->pPl->nCommit;
  p->iBDataVersion = i - pPager->iDataVersion;
}

/* What an attempt at a checkpoint works on, and what it found. */
typedef struct PlTry {
  Btree *p;
  int eMode;
  int *pnLog, *pnCkpt;
  int bTried;
} PlTry;

/* Stores how many frames the WAL has and how many of them are in the file, both n, unless the
** caller passed no pointers (for all files but the first). */
static void plTellFrames(PlTry *pTry, int n){
  if( pTry->pnLog ) *pTry->pnLog = n;
  if( pTry->pnCkpt ) *pTry->pnCkpt = n;
}

/* True if the WAL is empty and the file at rest, but for the note (upkeep/fence.rs). Then there is
** nothing to do; and doing it would tear the WAL-index if the process died, or meet a WAL that is
** another program's by now. */
static int plWasLowered(Pager *pPager){
  Wal *pWal = pPager->pWal;
  return plIndexFencedNow(pPager) && AtomicLoad(&PL_LOWERED(pWal))!=0 && AtomicLoad(&walIndexHdr(pWal)->mxFrame)==0;
}

/* One attempt at a checkpoint, without a busy handler: it does what can be done now. Stock SQLite
** would wait for readers with the write lock of the WAL held. */
static int plTryCheckpoint(void *pCtx, const PlMarks *pMarks){
  PlTry *pTry = (PlTry*)pCtx;
  sqlite3 *db = pTry->p->db;
  int (*xBusy)(void*,int) = db->busyHandler.xBusyHandler;
  int rc;
  pTry->bTried = 1;
  plUseMarks(pTry->p->pBt->pPager, pMarks);
  rc = plIndexStrange(pTry->p->pBt->pPager, pMarks);
  if( rc ) return rc==SQLITE_CANTOPEN ? plStash(pTry->p, rc, plSayStrange(pTry->p->pBt->pPager)) : rc;
  db->busyHandler.xBusyHandler = 0;
  rc = plFitsNow(pTry->p);
  if( rc==SQLITE_OK && pTry->eMode==SQLITE_CHECKPOINT_TRUNCATE && plWasLowered(pTry->p->pBt->pPager) ){
    plTellFrames(pTry, 0);
  }else if( rc==SQLITE_OK ){
    rc = sqlite3StockBtreeCheckpoint(pTry->p, pTry->eMode, pTry->pnLog, pTry->pnCkpt);
  }
  db->busyHandler.xBusyHandler = xBusy;
  return rc;
}

/* One attempt outside of pl_checkpoint(). */
static int plTryAlone(PlTry *pTry){
  const PlMarks *pMarks;
  int rc = pl_read_marks(pTry->p->pPl->pConn, &pMarks);
  return rc ? rc : plTryCheckpoint(pTry, pMarks);
}

/* wal_checkpoint: everything into the base, then the base's WAL into the file. The engine calls for
** the attempts, so that a checkpoint that waits for readers holds up no other transaction. PASSIVE,
** which is what automatic checkpoints are, does not wait at all. */
static int plBtreeCheckpoint(Btree *p, int eMode, int *pnLog, int *pnCkpt){
  PlConn *pConn = p->pPl->pConn;
  PlTry attempt;
  PlWait wait;
  int rc;
  if( p->inTrans!=TRANS_NONE ) return SQLITE_LOCKED;
  plStashClear(p);
  memset(&attempt, 0, sizeof(attempt));
  attempt.p = p;
  attempt.eMode = eMode;
  attempt.pnLog = pnLog;
  attempt.pnCkpt = pnCkpt;
  if( eMode==SQLITE_CHECKPOINT_NOOP ) return plFail(p, plTryAlone(&attempt));
  rc = pl_checkpoint(pConn, eMode==SQLITE_CHECKPOINT_TRUNCATE, eMode>SQLITE_CHECKPOINT_PASSIVE ? plWait(p->db, &wait) : 0,
      plTryCheckpoint, &attempt);
  rc = plBaseSynced(p, rc);
  if( rc==PL_FENCED_STILL ){
    /* CKPT-5 in txn/checkpoint.rs. */
    plTellFrames(&attempt, 1);
    rc = SQLITE_OK;
  }
  if( rc==SQLITE_BUSY && attempt.bTried==0 ){
    /* Another process merges, and checkpoints as well: this attempt returns how far that is. */
    attempt.eMode = SQLITE_CHECKPOINT_PASSIVE;
    (void)plBaseSynced(p, plTryAlone(&attempt));
  }
  if( rc==PL_MISFIT ) return plSayMisfit(p);
  return plFail(p, (rc & 0xff)==SQLITE_BUSY ? SQLITE_BUSY : rc);
}

/* PRAGMA wal_checkpoint of a handle that has not joined. SQLite waits for readers with the locks of
** the checkpoint and of the WAL's writer held. A process that raises the fence waits for the first
** of these locks, with a snapshot of its own that the checkpoint may wait for. So the checkpoint is
** tried again and again, with no lock held in between. */
static int plCheckpointUnjoined(Btree *p, int eMode, int *pnLog, int *pnCkpt){
  BusyHandler *pBusy = &p->db->busyHandler;
  int (*xBusy)(void*,int) = pBusy->xBusyHandler;
  int rc;
  do{
    pBusy->xBusyHandler = 0;
    rc = sqlite3StockBtreeCheckpoint(p, eMode, pnLog, pnCkpt);
    pBusy->xBusyHandler = xBusy;
  }while( (rc & 0xff)==SQLITE_BUSY && sqlite3InvokeBusyHandler(pBusy) );
  return rc;
}
SQLITE_PRIVATE int sqlite3BtreeCheckpoint(Btree *p, int eMode, int *pnLog, int *pnCkpt){
  if( p==0 ) return SQLITE_OK;
  if( plInherited(p) ) return plRefuseInherited(p);
  if( !PL_BT(p) && p->inTrans==TRANS_NONE && (p->db->openFlags & PL_OPEN_BASE)==0
   && ((eMode>SQLITE_CHECKPOINT_PASSIVE && (plFileFenced(p) || plIndexFencedNow(p->pBt->pPager)))
    || (p->pPl && p->pPl->bAsksLocks && plIndexGone(p->pBt->pPager)))
  ){
    /* Others have committed since this handle last looked. Stock code cannot take the read marks of
    ** members; and this WAL-index does not know what others have written through another one. */
    int rc = plLook(p);
    if( rc ) return rc;
  }
  if( PL_BT(p) ) return plBtreeCheckpoint(p, eMode, pnLog, pnCkpt);
  if( eMode>SQLITE_CHECKPOINT_PASSIVE && p->db->busyHandler.xBusyHandler && (p->db->openFlags & PL_OPEN_BASE)==0 && plFileMarked(p) ){
    return plCheckpointUnjoined(p, eMode, pnLog, pnCkpt);
  }
  return sqlite3StockBtreeCheckpoint(p, eMode, pnLog, pnCkpt);
}

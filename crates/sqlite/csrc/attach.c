/*
** attach.c - how a handle becomes concurrent, and stock again.
**
**   stock      pPl==0 or pConn==0: SQLite's own code. Each transaction looks at page 1 as it
**              begins.
**   attached   pConn!=0: the file is marked (header bytes 72..75, byte 19 at least 2) and the
**              handle has joined the session.
**
**   stock -> attached   plFirstTouch(), when a transaction that has begun finds the mark and the
**                       handle is not alone (alone.c)
**   attached -> stock   plDetach(), when the mark is gone or the handle wants the file for itself;
**                       sqlite3BtreeClose()
**
** A handle that cannot join (plUnsuitable()), or that can only read (plReadsOnly()), stays stock
** while the file is not fenced. A transaction that finds no fence has every commit in its base, and
** to stock SQLite, which only the fence keeps out, the file is an ordinary WAL database. Under the
** fence a handle of the first kind is refused, and one of the second kind joins.
**
** Hidden connections (PL_OPEN_BASE) never attach. Neither do in-memory and temporary databases,
** whatever their header says.
*/

/* The application's busy timeout or handler bounds the waits of engine calls. */
static int plXBusy(void *pCtx, int nPrior){
  (void)nPrior;
  return sqlite3InvokeBusyHandler(&((sqlite3*)pCtx)->busyHandler);
}
static int plXInterrupted(void *pCtx){
  return AtomicLoad(&((sqlite3*)pCtx)->u1.isInterrupted);
}
static int plAsksHandler(sqlite3 *db){
  return db->busyHandler.xBusyHandler!=0 && db->busyTimeout==0;
}
static const PlWait *plWait(sqlite3 *db, PlWait *pWait){
  memset(pWait, 0, sizeof(*pWait));
  pWait->pCtx = db;
  pWait->xInterrupted = plXInterrupted;
  if( plAsksHandler(db) ){
    pWait->timeoutMs = -1;
    pWait->xBusy = plXBusy;
  }else{
    pWait->timeoutMs = db->busyHandler.xBusyHandler ? db->busyTimeout : 0;
  }
  return pWait;
}

/* plWait(), less the time that this statement has already waited for the writer's right. */
static const PlWait *plWaitLeft(Btree *p, PlWait *pWait){
  plWait(p->db, pWait);
  if( pWait->timeoutMs>0 ) pWait->timeoutMs = MAX(0, pWait->timeoutMs - p->pPl->msWaited);
  return pWait;
}

/* Returns a hash of the WAL-index header that an open transaction reads. It names the state of the
** base: every commit to the WAL changes the header. 0 without a WAL. */
static u64 plContentCookie(Pager *pPager){
  u64 h = 0xcbf29ce484222325;
  u32 a[5];
  int i;
  if( pPager->pWal==0 ) return 0;
  a[0] = pPager->pWal->hdr.aSalt[0];
  a[1] = pPager->pWal->hdr.aSalt[1];
  a[2] = pPager->pWal->hdr.mxFrame;
  a[3] = pPager->pWal->hdr.aFrameCksum[0];
  a[4] = pPager->pWal->hdr.aFrameCksum[1];
  for(i=0; i<5; i++){
    h = (h ^ a[i]) * 0x100000001b3;
    h ^= h>>29;
  }
  return h | 1;
}

/* True if the base is fenced in the state that the open transaction reads, or has stamped. While
** the fence is lowered only the WAL-index says so. */
static int plFenced(BtShared *pBt){
  const u8 *a = pBt->pPage1->aData;
  Wal *pWal = pBt->pPager->pWal;
  if( PL_FENCED(a) || !PL_MARKED(a) ) return PL_FENCED(a);
  return pWal && pWal->ePlFence==PLF_Unknown && pWal->hdr.iVersion==PL_WALINDEX_VERSION;
}

/* Reads what page 1 says of the mode. A base read or write transaction is open. */
static void plReadHeader(BtShared *pBt, PlHeader *pOut){
  memset(pOut, 0, sizeof(*pOut));
  pOut->cookie = plContentCookie(pBt->pPager);
  if( pBt->pPage1==0 || pBt->nPage==0 ){
    pOut->empty = 1;
  }else{
    const u8 *a = pBt->pPage1->aData;
    pOut->salt = get4byte(&a[72]);
    pOut->generation = get4byte(&a[76]);
    pOut->marked = PL_MARKED(a);
    pOut->fenced = (u8)plFenced(pBt);
    pOut->textEncoding = (u8)(get4byte(&a[56]) & 3);
  }
}

/* True if the file of an open transaction is concurrent. */
static SQLITE_INLINE int plMarked(BtShared *pBt){
  return pBt->pPage1!=0 && pBt->nPage!=0 && PL_MARKED(pBt->pPage1->aData);
}

/* Ends the base's transaction on this handle, even while other statements read (unlike
** sqlite3BtreeCommit). All inner cursors are closed. */
static void plBaseEnd(Btree *p){
  BtShared *pBt = p->pBt;
  if( p->inTrans==TRANS_NONE ) return;
  if( p->inTrans==TRANS_WRITE ){
    (void)sqlite3PagerRollback(pBt->pPager);
    btreeClearHasContent(pBt);
  }
  clearAllSharedCacheTableLocks(p);
  if( --pBt->nTransaction==0 ) pBt->inTransaction = TRANS_NONE;
  p->inTrans = TRANS_NONE;
  unlockBtreeIfUnused(pBt);
}

/* Opens the WAL of a handle that has left a session and will want the file for itself. A handle that
** first meets its WAL in locking_mode=exclusive keeps the WAL-index in memory of its own, and cannot
** go back to the normal mode. No transaction is open. */
static int plMeetWal(Btree *p){
  int rc = sqlite3StockBtreeBeginTrans(p, 0, 0);
  p->bPlLooked = 0;
  if( rc==SQLITE_OK ){
    plHold(p);
    plBaseEnd(p);
  }
  return rc;
}

/* From here on this handle locks read marks as the session does, or with 0 as stock SQLite does. No
** transaction is open. */
static void plUseMarks(Pager *pPager, const PlMarks *pMarks){
  Wal *pWal = pPager->pWal;
  if( pWal ){
    assert( pWal->readLock<0 && pWal->writeLock==0 && pWal->ckptLock==0 );
    pWal->pPlMarks = pMarks;
  }
}

/* True if this is the operating system's own file of that name, whichever VFS opened it. SQLite's
** "unix" has two kinds: it locks the database, and no other file. */
static int plIsOwnFile(sqlite3_file *pFd, const sqlite3_io_methods *pKind, const char *zPath){
  struct stat here, there;
  if( pFd->pMethods!=pKind || (((unixFile*)pFd)->ctrlFlags & UNIXFILE_EXCL)!=0 ) return 0;
  return osFstat(((unixFile*)pFd)->h, &here)==0 && osStat(zPath, &there)==0
      && here.st_dev==there.st_dev && here.st_ino==there.st_ino;
}

/* True if the engine, which opens the base with the default VFS and the log by its path, sees what
** this handle sees. A VFS that wraps files may change what passes through it. One that only opens
** the files that it is asked for does not. */
static int plSeesTheSame(Pager *pPager){
  sqlite3_vfs *pDefault = sqlite3_vfs_find(0);
  if( sqlite3PagerVfs(pPager)==pDefault ) return 1;
  if( pDefault==0 || pDefault->xOpen!=unixOpen ) return 0;
  return plIsOwnFile(pPager->fd, &posixIoMethods, sqlite3PagerFilename(pPager, 0))
      && (pPager->pWal==0 || plIsOwnFile(pPager->pWal->pWalFd, &nolockIoMethods, pPager->zWal));
}

/* Returns why a handle could not work concurrently, or 0. */
static const char *plUnsuitable(Btree *p){
  Pager *pPager = p->pBt->pPager;
  if( p->sharable ) return "shared-cache mode cannot be used with journal_mode=concurrent";
  if( sqlite3PagerFilename(pPager, 1)[0]==0 || pPager->tempFile ){
    return "an in-memory, temporary or immutable database cannot be concurrent";
  }
  if( pPager->noLock ) return "journal_mode=concurrent cannot be used with nolock=1";
  if( !plSeesTheSame(pPager) ){
    return "journal_mode=concurrent needs the default VFS, or one whose files are those of the default VFS";
  }
  return 0;
}

/* True if the handle cannot write the file. To read a file at rest it need not join, which writes
** files next to the database. */
static int plReadsOnly(Btree *p){
  if( plFollows(p) ) return sqlite3PagerIsreadonly(p->pBt->pPager);      /* FOLLOWS-2 */
  return (p->pBt->btsFlags & BTS_READ_ONLY)!=0;
}

static const PlBaseOps plBaseOps;

/* Device and inode of a file whose name was just found to lead to it; else 0, and joining looks. */
static void plFileNamed(Btree *p, uint64_t *aOut){
  unixFile *pFile = (unixFile*)p->pBt->pPager->fd;
  aOut[0] = aOut[1] = 0;
  if( !p->pPl->bNamed || pFile->pMethod!=&posixIoMethods || pFile->pInode==0 ) return;
  aOut[0] = (uint64_t)pFile->pInode->fileId.dev;
  aOut[1] = (uint64_t)pFile->pInode->fileId.ino;
}

/* Joins the session of a marked file. No transaction is open. */
static int plAttach(Btree *p){
  PlBtree *pPl = plSide(p);
  Pager *pPager = p->pBt->pPager;
  const char *zWhy = plUnsuitable(p);
  char *zErr = 0;
  uint64_t aFile[2];
  u32 flags = 0;
  PlWait wait;
  int rc;
  if( pPl==0 ) return SQLITE_NOMEM_BKPT;
  rc = plRefuseMoved(p);
  if( rc ) return rc;
  if( zWhy ){
    return plStash(p, SQLITE_CANTOPEN, sqlite3_mprintf("cannot open %s: its newest commits are in "
        "files next to it, and %s; close it everywhere first (after a crash: plait recover), or "
        "open it without that", plDbName(p), zWhy));
  }
  plLookForMark(p);
  pPl->bReadonly = (u8)plReadsOnly(p);
  if( !pPl->bReadonly ){
    rc = plClaimToJoin(p);
    if( rc ) return rc;
  }
  /* A program that configured SQLite for one thread gets no second thread, whatever the session
  ** wishes. */
  if( sqlite3GlobalConfig.bCoreMutex ) flags |= PL_ATTACH_THREADS;
  if( plPlace(p, 0)==PLW_LOCAL ) flags |= PL_ATTACH_LOCAL;
  plMarkInode(p);
  plLendFiles(pPager);
  plFileNamed(p, aFile);
  rc = pl_attach(&plBaseOps, sqlite3PagerFilename(pPager, 0), aFile, plIndexInode(pPager), flags, plWait(p->db, &wait), &pPl->pConn, &zErr);
  if( rc ){
    const char *zWhat = zErr ? zErr : sqlite3ErrStr(rc);
    int eWhat = rc & 0xff;
    pPl->pConn = 0;
    if( pPl->bReadonly && (eWhat==SQLITE_IOERR || eWhat==SQLITE_READONLY || eWhat==SQLITE_CANTOPEN) ){
      rc = plStash(p, SQLITE_CANTOPEN, sqlite3_mprintf("%s; the newest commits are in files next "
          "to the database, and a reader of them has to register in %s-plait-shm: let this user "
          "write that file, which has the group and the permissions of the database (use a group "
          "of both users and chmod g+w), or close the database everywhere first (after a crash: "
          "plait recover)", zWhat, sqlite3PagerFilename(pPager, 0)));
    }else{
      const char *zChanged = eWhat==SQLITE_IOERR || eWhat==SQLITE_READONLY || eWhat==SQLITE_CANTOPEN ? plSelfChanged(pPl) : "";
      plStash(p, rc, sqlite3_mprintf("%s%s%s", rc==SQLITE_BUSY ? "database is locked: " : "", zWhat, zChanged));
    }
  }else{
    int iDb = plDbIndex(p);
    if( p->ePlFollows==PLO_FOLLOWER ) pl_write_as_follower(pPl->pConn);
    rc = plBtreeSetPagerFlags(p, p->db->aDb[iDb].safety_level | (p->db->flags & PAGER_FLAGS_MASK));
  }
  pl_free(zErr);
  return rc;
}

/* Leaves the session, whose last member merges and unfences: the handle is stock again. No
** transaction is open. */
static void plDetach(Btree *p){
  PlBtree *pPl = p->pPl;
  PlConn *pConn = pPl->pConn;
  if( pConn==0 ) return;
  /* The connection that switched the mode off has changed the header, which is a commit. */
  plVersionLeaves(p, pConn, 1);
  pPl->pConn = 0;
  plFreePool(pPl);
  plUseMarks(p->pBt->pPager, 0);
  pl_detach(pConn);
}

/* True if this user may not join: to begin a session takes write access to the folder, to join one
** takes it to the session's files. */
static int plMayNotJoin(Btree *p){
  char *zShm = sqlite3_mprintf("%s-plait-shm", sqlite3PagerFilename(p->pBt->pPager, 0));
  int rc = 0;
  if( zShm && faccessat(AT_FDCWD, zShm, R_OK|W_OK, AT_EACCESS)!=0 ){
    rc = errno==EACCES;
    if( errno==ENOENT ){
      char *zEnd = strrchr(zShm, '/');
      if( zEnd ) zEnd[zEnd==zShm] = 0;
      rc = faccessat(AT_FDCWD, zEnd ? zShm : ".", W_OK|X_OK, AT_EACCESS)!=0 && errno==EACCES;
    }
  }
  sqlite3_free(zShm);
  return rc;
}

/* A transaction is open on a marked file. True if SQLite's own code goes on with it. bBusy: it only
** reads, since a writer has kept the wanted one from beginning. */
static int plStaysStock(Btree *p, int wrflag, int bBusy){
  if( plFenced(p->pBt) ) return 0;
  if( p->pBt->pPager->exclusiveMode ) return 1;
  return plReadsOnly(p) || plUnsuitable(p)!=0 || plAlone(p, wrflag, bBusy) || plMayNotJoin(p);
}

/* A transaction is open. Fails, and ends it, if the handle is to write a replica, or the file does not
** go with what lies beside it. */
static int plLookBeside(Btree *p, int wrflag){
  if( plFoundReplica(p) && wrflag ){
    plBaseEnd(p);
    return plRefuseReplica(p);
  }
  return plLookOnce(p);
}

/* A handle that wants the file for itself (PRAGMA locking_mode=exclusive) finds it fenced, by
** members of a session that live or were killed. It joins the session, without its locks, which
** would shut out the hidden connection too, and leaves: if it was the only member the file is then
** at rest. Otherwise it waits for the others to leave, as for a lock. No transaction is open. */
static SQLITE_NOINLINE PL_COLD int plBeginForItself(Btree *p, int wrflag, int *pSchemaVersion){
  Pager *pPager = p->pBt->pPager;
  int bOwnIndex = sqlite3WalHeapMemory(pPager->pWal);    /* it has met the WAL in exclusive mode, and stays there */
  int rc;
  p->db->busyHandler.nBusy = 0;
  do{
    plForgetWal(p);
    pPager->exclusiveMode = PAGER_LOCKINGMODE_NORMAL;
    rc = plAttach(p);
    plForgetWal(p);
    if( rc==SQLITE_OK ) plDetach(p);
    if( rc==SQLITE_OK && !bOwnIndex ) rc = plMeetWal(p);
    pPager->exclusiveMode = PAGER_LOCKINGMODE_EXCLUSIVE;
    if( rc==SQLITE_OK ) rc = sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion);
    if( rc || !plMarked(p->pBt) || !plFenced(p->pBt) ) return rc ? rc : plLookBeside(p, wrflag);
    plBaseEnd(p);
  }while( sqlite3InvokeBusyHandler(&p->db->busyHandler) );
  plForgetWal(p);
  return plStash(p, SQLITE_BUSY, sqlite3_mprintf("database is locked: other connections use it, "
      "and locking_mode=exclusive needs it for this connection alone"));
}

#define PL_ATTACH_TRIES 10         /* marks that come and go while one is being joined */

/* A stock transaction has begun, and page 1 is marked or the file is suspect (plIsSuspect()). Or a
** write transaction could not begin, perhaps because a merge had the lock. */
static SQLITE_NOINLINE PL_COLD int plFirstTouch(Btree *p, int wrflag, int *pSchemaVersion, int rc){
  u64 cookie;
  int rcFits, bFenced, nTry;
  if( p->db->openFlags & PL_OPEN_BASE ) return rc;
  if( sqlite3PagerFilename(p->pBt->pPager, 1)[0]==0 ) return rc;
  if( rc==SQLITE_OK && p->pPl && p->pPl->bAsksLocks && plIndexGone(p->pBt->pPager) ){
    rc = plFollowIndex(p, wrflag, pSchemaVersion);
    if( rc!=SQLITE_OK && (rc & 0xff)!=SQLITE_BUSY ) return rc;
  }
  if( rc==SQLITE_OK && !plMarked(p->pBt) ) return plUnmarked(p);
  if( plInherited(p) ){
    /* The handle was in use before the file became concurrent. */
    if( rc==SQLITE_OK ) plBaseEnd(p);
    return plRefuseInherited(p);
  }
  if( rc!=SQLITE_OK ){
    if( p->inTrans!=TRANS_NONE ){
      return rc==SQLITE_BUSY_SNAPSHOT && plMarked(p->pBt) && plUnsuitable(p)==0 ? plNoLongerAlone(p, rc) : rc;
    }
    if( sqlite3StockBtreeBeginTrans(p, 0, 0)!=SQLITE_OK ) return rc;
    if( !plMarked(p->pBt) ){
      plBaseEnd(p);
      return rc;
    }
    rcFits = plLookBeside(p, wrflag);
    if( rcFits ) return rcFits;
    if( plStaysStock(p, wrflag, 1) ){
      plBaseEnd(p);
      /* The handle was to join a moment ago (plBeginToWrite()), and has not waited as SQLite does.
      ** If it has, its busy handler is not called again. */
      rc = sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion);
      if( rc ) return rc;
      return plMarked(p->pBt) || plIsSuspect(p) ? plFirstTouch(p, wrflag, pSchemaVersion, rc) : SQLITE_OK;
    }
  }else{
    rcFits = plLookBeside(p, wrflag);
    if( rcFits ) return rcFits;
    if( plStaysStock(p, wrflag, 0) ) return rc;
  }
  cookie = plContentCookie(p->pBt->pPager);
  bFenced = plFenced(p->pBt);
  plBaseEnd(p);
  if( p->pBt->pPager->exclusiveMode && plUnsuitable(p)==0 ) return plBeginForItself(p, wrflag, pSchemaVersion);
  rc = plAttach(p);
  for(nTry=0; rc==SQLITE_BUSY_SNAPSHOT && nTry<PL_ATTACH_TRIES; nTry++){
    /* The mark was taken away in between, and perhaps a new one made since. */
    if( sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion)!=SQLITE_OK ) break;
    if( !plMarked(p->pBt) ) return SQLITE_OK;
    cookie = plContentCookie(p->pBt->pPager);
    bFenced = plFenced(p->pBt);
    plBaseEnd(p);
    rc = plAttach(p);
  }
  if( rc ){
    rc = plStayAlone(p, wrflag, pSchemaVersion, rc);
    if( rc==SQLITE_OK ) return SQLITE_OK;
  }
  if( (rc & 0xff)==SQLITE_FULL && !wrflag ){
    rc = plReadWithoutJoining(p, pSchemaVersion, rc);
    if( rc==SQLITE_OK ) return SQLITE_OK;
  }
  if( rc ){
    /* The engine may have found that the file does not belong to its WAL: closing this handle must
    ** not mix them (fits.c). */
    plForgetWal(p);
    return rc;
  }
  rc = plVersionJoins(p, bFenced ? 0 : &cookie);
  if( rc==SQLITE_OK && wrflag && plFollows(p) ) rc = plRefuseReplica(p);
  return rc ? rc : plBeginTrans(p, wrflag, pSchemaVersion);
}

/* True if the file itself has the mark. For a handle that could not begin a transaction. */
static int plFileMarked(Btree *p){
  sqlite3_file *pFd = p->pBt->pPager->fd;
  u8 a[100];
  return isOpen(pFd) && sqlite3OsRead(pFd, a, sizeof(a), 0)==SQLITE_OK && PL_MARKED(a);
}

/* True if the file itself has the fence: a session has committed. */
static int plFileFenced(Btree *p){
  sqlite3_file *pFd = p->pBt->pPager->fd;
  u8 a[100];
  return isOpen(pFd) && sqlite3OsRead(pFd, a, sizeof(a), 0)==SQLITE_OK && PL_FENCED(a);
}

/* True if the file is concurrent, as far as that shows without a transaction. */
static int plSeemsMarked(Btree *p){
  return PL_BT(p) || (sqlite3PagerFilename(p->pBt->pPager, 1)[0]!=0 && plFileMarked(p));
}

/* SQLITE_DBCONFIG_RESET_DATABASE makes SQLite take a file for an empty one, without its mark. */
static SQLITE_NOINLINE PL_COLD int plRefuseReset(Btree *p){
  return plStash(p, SQLITE_ERROR, sqlite3_mprintf("switch journal_mode=concurrent off before resetting the database"));
}

/* A reader that has not joined meets locks of stock code, which last for a moment: of a recovery of
** the WAL-index, or of the last connection to close. The reader waits for their end, as one that
** has joined does (plBaseBegin()). Stock code has already called the application's busy handler
** until that gave up. */
static SQLITE_NOINLINE int plOutwait(Btree *p, int *pSchemaVersion){
  BusyHandler saved = p->db->busyHandler;
  int nMax = plAsksHandler(p->db) ? PL_HANDLER_GRACE_MS : PL_BASE_RETRY_MS;
  int nMs, rc = SQLITE_BUSY;
  p->db->busyHandler.xBusyHandler = 0;
  for(nMs=0; nMs<nMax && (rc & 0xff)==SQLITE_BUSY && plFileMarked(p); nMs++){
    if( AtomicLoad(&p->db->u1.isInterrupted) ){
      rc = SQLITE_INTERRUPT;
      break;
    }
    sqlite3OsSleep(p->db->pVfs, 1000);
    rc = sqlite3StockBtreeBeginTrans(p, 0, pSchemaVersion);
  }
  p->db->busyHandler = saved;
  return rc;
}

/* A handle that wants to write a marked file and finds it busy waits once, as a member of the
** session does, and not before that as SQLite does. */
static SQLITE_NOINLINE int plBeginToWrite(Btree *p, int wrflag, int *pSchemaVersion){
  int (*xBusy)(void*,int) = p->db->busyHandler.xBusyHandler;
  int rc;
  if( xBusy==0 || (p->pPl==0 && p->bPlLooked) || !plFileMarked(p) ) return sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion);
  p->db->busyHandler.xBusyHandler = 0;
  rc = sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion);
  p->db->busyHandler.xBusyHandler = xBusy;
  if( (rc & 0xff)!=SQLITE_BUSY ) return rc;
  /* A handle that stays stock does wait as SQLite does. */
  rc = sqlite3StockBtreeBeginTrans(p, 0, 0);
  if( rc==SQLITE_OK ){
    int bStock = !plMarked(p->pBt) || plStaysStock(p, wrflag, 1);
    plBaseEnd(p);
    rc = bStock ? sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion) : SQLITE_BUSY;
  }
  return rc;
}

/* Runs before the first transaction of a handle opens the WAL-index, which may cut it short.
** Processes that reach the file other than by its network, or by FUSE, see neither that nor the
** handle's locks. So a marked file is refused there. One that is only read, and all others, are
** treated as by SQLite. */
static SQLITE_NOINLINE PL_COLD int plRefusePlace(Btree *p){
  char *zWhy = 0;
  int rc = SQLITE_OK;
  u8 bNameless = sqlite3PagerFilename(p->pBt->pPager, 1)[0]==0;
  /* Nothing can lie beside a temporary database or one in memory: no transaction need look. */
  if( bNameless ) p->bPlLooked = 1;
  if( p->db->openFlags & PL_OPEN_BASE || bNameless || p->pBt->pPager->tempFile ){
    p->ePlPlace = PLW_LOCAL;
  }else if( plPlace(p, &zWhy)==PLW_NETWORK && !plReadsOnly(p) && p->pBt->pPager->pWal==0 && plFileMarked(p) ){
    rc = plStash(p, SQLITE_CANTOPEN, zWhy);
    zWhy = 0;
    p->ePlPlace = PLW_UNKNOWN;    /* refused again the next time, with the same words */
  }
  sqlite3_free(zWhy);
  return rc;
}

/* The mark cannot appear within a transaction: only the beginning of one looks for it. */
static SQLITE_INLINE int plBeginStock(Btree *p, int wrflag, int *pSchemaVersion, int bBegins){
  int rc;
  if( wrflag && bBegins ) rc = plBeginToWrite(p, wrflag, pSchemaVersion);
  else rc = sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion);
  if( PL_UNLIKELY((rc & 0xff)==SQLITE_READONLY) && p->pPl ) return plMayOnlyRead(p, rc);
  if( PL_UNLIKELY((rc & 0xff)==SQLITE_BUSY && !wrflag && bBegins) && plFileMarked(p) ) rc = plOutwait(p, pSchemaVersion);
  if( PL_UNLIKELY(rc==SQLITE_OK ? (bBegins && (plMarked(p->pBt) || plIsSuspect(p))) : (wrflag && (rc & 0xff)==SQLITE_BUSY)) ){
    return plFirstTouch(p, wrflag, pSchemaVersion, rc);
  }
  return rc;
}
static SQLITE_NOINLINE PL_COLD int plBeginFirst(Btree *p, int wrflag, int *pSchemaVersion){
  int rc = plInherited(p) ? plRefuseInherited(p) : plRefusePlace(p);
  if( rc ) return rc;
  plCountFirst(p, +1);
  rc = plBeginStock(p, wrflag, pSchemaVersion, 1);
  plCountFirst(p, -1);
  return rc;
}

SQLITE_PRIVATE SQLITE_INLINE int sqlite3BtreeBeginTrans(Btree *p, int wrflag, int *pSchemaVersion){
  int bBegins;
  if( PL_UNLIKELY(p->db->nDb>2) && PL_MET(p->db) ) plStashClearAll(p->db);
  else if( PL_UNLIKELY(p->pPl!=0) ) plStashClear(p);
  if( wrflag && plFollows(p) ) return plRefuseReplica(p);
  if( PL_UNLIKELY((p->db->flags & SQLITE_ResetDatabase)!=0) && plSeemsMarked(p) ) return plRefuseReset(p);
  if( PL_BT(p) ) return plBeginTrans(p, wrflag, pSchemaVersion);
  bBegins = p->inTrans==TRANS_NONE;
  if( PL_UNLIKELY(p->pPl!=0) && plInherited(p) ) return plRefuseInherited(p);
  if( PL_UNLIKELY(p->ePlPlace==PLW_UNKNOWN) && bBegins ) return plBeginFirst(p, wrflag, pSchemaVersion);
  return plBeginStock(p, wrflag, pSchemaVersion, bBegins);
}

/* Reports to `plait run` a handle that has written a database in another mode. SQLite counts its
** pages, for sqlite3_db_status(). */
static void plReportClosed(Btree *p){
  Pager *pPager = p->pBt->pPager;
  if( p->pPl ) pl_report_concurrent();
  else if( pPager->aStat[PAGER_STAT_WRITE]!=0 && pPager->tempFile==0 && (p->db->openFlags & PL_OPEN_BASE)==0 ){
    pl_report_written(sqlite3PagerFilename(pPager, 1));
  }
}

/* The stock handle closes first: the session's hidden connection shall be the last on the file, so
** that it removes the WAL. What a child has inherited is left as it is (CHILD-2). */
SQLITE_PRIVATE int sqlite3BtreeClose(Btree *p){
  PlBtree *pPl = p->pPl;
  PlLeaving *pLeaving = 0;
  sqlite3 *db = p->db;
  int rc;
  if( plInherited(p) ) return SQLITE_OK;
  plReportClosed(p);
  if( pPl==0 ) return sqlite3StockBtreeClose(p);
  if( pPl->pConn ) sqlite3BtreeRollback(p, SQLITE_OK, 0);
  plFreePool(pPl);
  if( pPl->pConn ) pLeaving = pl_end(pPl->pConn);
  pPl->pConn = 0;
  plBeforeClose(p);
  p->pPl = 0;
  rc = sqlite3StockBtreeClose(p);
  if( pLeaving ) pl_leave(pLeaving);
  sqlite3_free(pPl->zStash);
  sqlite3_free(pPl->zReference);
  sqlite3_free(pPl->aCoarse);
  sqlite3_free(pPl->aScratch);
  sqlite3_free(pPl);
  plWriteEvents(db, p);
  return rc;
}

/* The user's level decides when a COMMIT returns. An exclusive COMMIT is SQLite's own, which under
** NORMAL does not sync. The engine syncs it before anything later reaches the log. OFF writes the
** base as NORMAL does: without any syncs a power cut could leave the base inconsistent. */
static int plBtreeSetPagerFlags(Btree *p, unsigned pgFlags){
  PlBtree *pPl = p->pPl;
  int rc;
  switch( pgFlags & PAGER_SYNCHRONOUS_MASK ){
    case PAGER_SYNCHRONOUS_OFF:    pPl->eSync = PL_SYNC_OFF; break;
    case PAGER_SYNCHRONOUS_NORMAL: pPl->eSync = PL_SYNC_NORMAL; break;
    default:                       pPl->eSync = PL_SYNC_FULL; break;
  }
  rc = pl_set_level(pPl->pConn, pPl->eSync);
  if( rc ) return plFail(p, rc);
  pgFlags &= ~(unsigned)PAGER_SYNCHRONOUS_MASK;
  pgFlags |= pPl->eSync==PL_SYNC_FULL ? PAGER_SYNCHRONOUS_FULL : PAGER_SYNCHRONOUS_NORMAL;
  return sqlite3StockBtreeSetPagerFlags(p, pgFlags);
}

/*
** fits.c - does the database file belong to the files next to it?
**
** Another file may come to be in its place: renamed over it, made after it was removed, or copied
** into it from a backup. Then pages of one database would be read, and written, together with
** those of another.
**
**  plFits()         checks the file and the WAL, by page 1 (belongs.rs): before a stock handle
**                   goes on with a marked file, and before a hidden connection or an exclusive
**                   transaction writes, a checkpoint brings pages into the file, or the fence is
**                   raised in it.
**  plClosesMisfit() makes this check before the last handle closes.
**  plStillFits()    makes it once more within a checkpoint, between the sync of the WAL and the
**                   writes of the pages.
**  plLookAtFile()   checks the fence in the file: a member of a session that has one, now and then.
**  plRefuseMoved()  checks the name of the file: a member that writes, now and then.
**  plLocksLost()    checks the locks of a handle that works alone (alone.c): when its transactions
**                   begin, and before it closes.
**  plIndexGone()    checks the WAL-index of such a handle; plIndexStrange() that of a member of a
**                   session; plIndexRivalled() that of members that raise a fence.
**  plUnmarked()     checks a file that is not concurrent, where processes may still have the log of
**                   a concurrent one open (session/aside.rs).
**
** A handle that is refused forgets the WAL without a checkpoint: otherwise its close would mix
** two databases.
*/
#define PL_FIT_TRIES  20      /* milliseconds: another process may be writing page 1 */
#define PL_LOOK_MS    10      /* between two looks of a handle at its file */
#define PL_TICK_MS    11      /* how far two times of the clock below may be apart too much */

static u32 plCoarseMs(void){
  struct timespec t;
  if( clock_gettime(CLOCK_MONOTONIC_COARSE, &t) ) return 0;
  return (u32)((u64)t.tv_sec*1000 + (u64)t.tv_nsec/1000000);
}

/* True if the WAL-index says that the base is fenced. */
static SQLITE_INLINE int plWalFenced(Wal *pWal){
  return pWal->hdr.iVersion==PL_WALINDEX_VERSION;
}
static SQLITE_INLINE int plIndexFenced(Pager *pPager){
  return pPager->pWal && plWalFenced(pPager->pWal);
}

/* True if the WAL-index as it is now says so, for a handle that has no transaction open. */
static int plIndexFencedNow(Pager *pPager){
  Wal *pWal = pPager->pWal;
  return pWal && pWal->nWiData>0 && pWal->apWiData[0] && AtomicLoad(&walIndexHdr(pWal)->iVersion)==PL_WALINDEX_VERSION;
}

/* A hash of page 1 that the fence does not change. Never 0. */
static u32 plNote(const u8 *aPage1){
  u32 h = 0x811c9dc5;
  int i;
  for(i=0; i<PL_FIRST_BYTES; i++){
    if( i!=18 && i!=19 ) h = (h ^ aPage1[i]) * 0x01000193;
  }
  return h ? h : 1;
}

static int plIsNamed(int h){
  struct stat st;
  return osFstat(h, &st)==0 && st.st_nlink>0;
}

/* True if the WAL is as the checkpoint left it after which the fence was lowered: nothing but its
** header (plLowerFence()). Stock SQLite in locking_mode=EXCLUSIVE does not look at the WAL-index;
** it is kept off by locks that POSIX may have dropped. It begins a WAL of its own, of which it
** leaves frames, or nothing, and removes it when it closes. */
static int plWalIsUntouched(Wal *pWal){
  i64 nByte = 0;
  if( walIndexHdr(pWal)->mxFrame!=0 ) return 1;     /* it is in use again (bury() in session.rs) */
  if( pWal->pWalFd->pMethods==&nolockIoMethods && !plIsNamed(((unixFile*)pWal->pWalFd)->h) ) return 0;
  return sqlite3OsFileSize(pWal->pWalFd, &nByte)==SQLITE_OK && nByte==WAL_HDRSIZE;
}

/* True if a file with this page 1 is the one in which the fence was lowered, as it was then, by
** this note. */
static int plIsLowered(Wal *pWal, const u8 *aPage1, u32 iNote){
  return iNote==plNote(aPage1) && plWalIsUntouched(pWal);
}

/* The frames of the WAL that have page 1: the first, the last, and the newest that a checkpoint may
** have brought into the file. It also says of which WAL (its salts), how many of its frames were
** looked at, and how many of those were in the file. */
typedef struct PlFirstPages PlFirstPages;

static int plReadFirstPage(Wal *pWal, u32 iFrame, u8 *aOut){
  return sqlite3OsRead(pWal->pWalFd, aOut, PL_FIRST_BYTES, walFrameOffset(iFrame, (int)pWal->szPage) + WAL_FRAME_HDRSIZE);
}

/* Reads page 1 of a frame that is looked at often, and keeps it: the first such frame (iKept==0),
** or the one that was brought (1). A frame keeps its content as long as what was found holds. */
static int plKeptFirstPage(Wal *pWal, u32 iFrame, int iKept, u8 *aOut){
  PlFirstPages *pKnown = &pWal->plFirstPages;
  u8 *aKept = pKnown->aKept[iKept];
  int rc = SQLITE_OK;
  assert( sizeof(pKnown->aKept[0])==PL_FIRST_BYTES );
  if( pKnown->aiKept[iKept]!=iFrame ){
    pKnown->aiKept[iKept] = 0;
    rc = plReadFirstPage(pWal, iFrame, aKept);
    if( rc==SQLITE_OK && pKnown->mxFrame>=iFrame ) pKnown->aiKept[iKept] = iFrame;
  }
  memcpy(aOut, aKept, PL_FIRST_BYTES);
  return rc;
}

/* Copies the header of the WAL-index as it is now. 0 if a process is just writing it. */
static int plIndexHdrNow(Wal *pWal, WalIndexHdr *pOut){
  volatile WalIndexHdr *aHdr = walIndexHdr(pWal);
  WalIndexHdr other;
  u32 aCksum[2];
  memcpy(pOut, (void*)&aHdr[0], sizeof(*pOut));
  walShmBarrier(pWal);
  memcpy(&other, (void*)&aHdr[1], sizeof(other));
  if( memcmp(pOut, &other, sizeof(other))!=0 || pOut->isInit==0 ) return 0;
  walChecksumBytes(1, (u8*)pOut, sizeof(*pOut) - sizeof(pOut->aCksum), 0, aCksum);
  return memcmp(aCksum, pOut->aCksum, sizeof(aCksum))==0;
}

/* Finds the first and the last frame that has page 1 among those after iFrom up to iTo; both stay
** as they are if none has. pAll, if given: page 1 of each, 100 bytes each, oldest first. */
static int plFirstPagesIn(Wal *pWal, u32 iFrom, u32 iTo, u32 *piFirst, u32 *piLast, sqlite3_str *pAll){
  int iHash = walFramePage(iFrom + 1);
  int rc = SQLITE_OK;
  u32 iFrame = iFrom;
  while( iFrame<iTo && rc==SQLITE_OK ){
    WalHashLoc loc;
    u32 iEnd;
    rc = walHashGet(pWal, iHash, &loc);
    if( rc ) break;
    iEnd = MIN(iTo, loc.iZero + (iHash==0 ? (u32)HASHTABLE_NPAGE_ONE : (u32)HASHTABLE_NPAGE));
    while( iFrame<iEnd && rc==SQLITE_OK ){
      if( loc.aPgno[iFrame++ - loc.iZero]!=1 ) continue;
      if( pAll ){
        u8 a[PL_FIRST_BYTES];
        rc = plReadFirstPage(pWal, iFrame, a);
        if( rc==SQLITE_OK ) sqlite3_str_append(pAll, (const char*)a, sizeof(a));
      }
      if( *piFirst==0 ) *piFirst = iFrame;
      *piLast = iFrame;
    }
    iHash++;
  }
  return rc;
}

/* Finds the frames of the WAL that have page 1: the first, the last, and the newest that a
** checkpoint may have brought into the file. A commit in the WAL stays what it is until the WAL
** starts over, with other salts. So the handle keeps what was found and looks only at what has come
** since. If the WAL-index changes under the look, nothing is kept; a caller that gets a misfit from
** that tries again. */
static int plFindFirstPages(Wal *pWal, u32 nBackfill, PlFirstPages *pFound, sqlite3_str *pAll){
  PlFirstPages *pKnown = &pWal->plFirstPages;
  WalIndexHdr hdr, after;
  u32 iIgnored = 0;
  int bWhole = plIndexHdrNow(pWal, &hdr);
  u32 mxFrame = bWhole ? hdr.mxFrame : walIndexHdr(pWal)->mxFrame;
  int rc;
  if( pAll || !bWhole || memcmp(hdr.aSalt, pKnown->aSalt, sizeof(hdr.aSalt))!=0
   || mxFrame<pKnown->mxFrame || nBackfill<pKnown->nBackfill
  ){
    memset(pKnown, 0, sizeof(*pKnown));
    memcpy(pKnown->aSalt, hdr.aSalt, sizeof(hdr.aSalt));
  }
  nBackfill = MIN(nBackfill, mxFrame);
  rc = plFirstPagesIn(pWal, pKnown->mxFrame, mxFrame, &pKnown->iFirst, &pKnown->iLast, pAll);
  if( rc==SQLITE_OK ) rc = plFirstPagesIn(pWal, pKnown->nBackfill, nBackfill, &iIgnored, &pKnown->iBrought, 0);
  pKnown->mxFrame = mxFrame;
  pKnown->nBackfill = nBackfill;
  *pFound = *pKnown;
  walShmBarrier(pWal);
  if( rc || !bWhole || !plIndexHdrNow(pWal, &after) || memcmp(hdr.aSalt, after.aSalt, sizeof(hdr.aSalt))!=0 ){
    memset(pKnown, 0, sizeof(*pKnown));
  }
  return rc;
}

/* Checks the file's page 1, at a, against those frames. Mostly it belongs to one of three, and
** the others need not be read: there is one for each exclusive transaction since the WAL
** started over. */
static int plFitsFew(Wal *pWal, u32 nBackfill, const u8 *a, int *pbNone){
  PlFirstPages found;
  u8 aPages[3*PL_FIRST_BYTES];
  u32 n = 0;
  int rc = plFindFirstPages(pWal, nBackfill, &found, 0);
  *pbNone = found.iFirst==0;
  if( rc==SQLITE_OK && found.iFirst ) rc = plKeptFirstPage(pWal, found.iFirst, 0, &aPages[PL_FIRST_BYTES*n++]);
  if( rc==SQLITE_OK && found.iBrought>found.iFirst ) rc = plKeptFirstPage(pWal, found.iBrought, 1, &aPages[PL_FIRST_BYTES*n++]);
  if( rc==SQLITE_OK && found.iLast>found.iFirst && found.iLast>found.iBrought ){
    rc = plReadFirstPage(pWal, found.iLast, &aPages[PL_FIRST_BYTES*n++]);
  }
  return rc ? rc : pl_belongs(a, aPages, n, found.iLast<=nBackfill);
}
static int plFitsAny(Wal *pWal, u32 nBackfill, const u8 *a, int *pbNone){
  PlFirstPages found;
  sqlite3_str *pPages = sqlite3_str_new(0);
  int rc = plFindFirstPages(pWal, nBackfill, &found, pPages);
  if( rc==SQLITE_OK ) rc = sqlite3_str_errcode(pPages);
  *pbNone = found.iFirst==0;
  if( rc==SQLITE_OK ){
    rc = pl_belongs(a, (const u8*)sqlite3_str_value(pPages), (u32)sqlite3_str_length(pPages)/PL_FIRST_BYTES,
        found.iLast<=nBackfill);
  }
  sqlite3_free(sqlite3_str_finish(pPages));
  return rc;
}

static int plFitsOnce(Wal *pWal, u8 *pbFenced){
  u8 a[PL_FIRST_BYTES];
  u32 nBackfill;
  int rc, bNone;
  /* In this order: a checkpoint writes the file first and then says so. */
  nBackfill = AtomicLoad(&walCkptInfo(pWal)->nBackfill);
  sqlite3MemoryBarrier();
  rc = sqlite3OsRead(pWal->pDbFd, a, sizeof(a), 0);
  if( rc==SQLITE_IOERR_SHORT_READ ) rc = SQLITE_OK;   /* the rest is zeros */
  if( rc ) return rc;
  *pbFenced = a[18]==3 && a[19]==3;
  sqlite3MemoryBarrier();
  rc = plFitsFew(pWal, nBackfill, a, &bNone);
  if( rc==PL_MISFIT && !bNone ) rc = plFitsAny(pWal, nBackfill, a, &bNone);
  /* The WAL-index is that of another WAL: the file has a second name in this process. plAttach()
  ** reports that. */
  if( rc==SQLITE_IOERR_SHORT_READ ) return SQLITE_OK;
  /* The file's page 1 is all that there is: it has to have the fence, or to be the one in which the
  ** fence was lowered. */
  if( rc==SQLITE_OK && bNone && plWalFenced(pWal) ){
    u32 iNote = AtomicLoad(&PL_LOWERED(pWal));
    if( iNote ? !plIsLowered(pWal, a, iNote) : !*pbFenced ) rc = PL_MISFIT;
  }
  return rc;
}

static int plWalFits(Wal *pWal, u8 *pbFenced){
  int nTry = 0;
  int rc;
  while( (rc = plFitsOnce(pWal, pbFenced))!=SQLITE_OK && nTry++<PL_FIT_TRIES ) sqlite3OsSleep(pWal->pVfs, 1000);
  return rc;
}

/* Returns SQLITE_OK, PL_MISFIT, or a failure. A transaction is open. *pbFenced, if given: the file
** itself has the fence. */
static int plFits(Pager *pPager, u8 *pbFenced){
  u8 bFenced = 0;
  int rc = pPager->pWal ? plWalFits(pPager->pWal, &bFenced) : SQLITE_OK;
  if( pbFenced ) *pbFenced = bFenced;
  return rc;
}

/* A checkpoint is about to write pages into the file. Since plFits() it has waited for a sync of
** the WAL: long enough for another file to be put there. */
static int plStillFits(Wal *pWal){
  u8 bFenced;
  return plWalFenced(pWal) ? plWalFits(pWal, &bFenced) : SQLITE_OK;
}

/* plFits() outside of a transaction. */
static int plFitsNow(Btree *p){
  int rc = sqlite3StockBtreeBeginTrans(p, 0, 0);
  if( rc==SQLITE_OK ){
    rc = plFits(p->pBt->pPager, 0);
    plBaseEnd(p);
  }
  return rc;
}

/* Closes the WAL as it is; the next transaction opens it again. No transaction is open. */
static void plForgetWal(Btree *p){
  Pager *pPager = p->pBt->pPager;
  if( p->pBt->nTransaction!=0 ) return;     /* a shared cache, in which others read */
  /* Without a buffer there is no checkpoint, and the WAL stays. */
  (void)sqlite3WalClose(pPager->pWal, p->db, 0, 0, 0);
  pPager->pWal = 0;
  pager_reset(pPager);
  pagerFixMaplimit(pPager);
  pagerUnlockDb(pPager, NO_LOCK);
  pPager->eState = PAGER_OPEN;
}

static int plSayReplaced(Btree *p){
  char *zText = pl_misfit(sqlite3PagerFilename(p->pBt->pPager, 0));
  int rc = plStash(p, SQLITE_CANTOPEN, sqlite3_mprintf("%s", zText ? zText : "the database file was replaced"));
  pl_free(zText);
  return rc;
}
/* What is in the way of raising the fence. */
enum { PLR_NOBODY, PLR_HAS_FILE, PLR_HAD_FILE };

static char *plSayRival(int eRival, const char *zPath){
  return sqlite3_mprintf(eRival==PLR_HAS_FILE
      ? "another program has locked %s for itself (locking_mode=EXCLUSIVE): this process lost its "
          "locks when other code in it opened and closed the file"
      : "%s-wal was removed by another program: the database file has everything that was committed; close every connection to it, in all programs, then open it "
        "again", zPath);
}

/* True if the file is the one in which the fence was lowered, and its WAL is not the one that was
** emptied then: another program has closed the file as the last. */
static int plWalWasRemoved(Pager *pPager){
  u8 a[PL_FIRST_BYTES];
  return plIndexFencedNow(pPager) && !plWalIsUntouched(pPager->pWal) && sqlite3OsRead(pPager->fd, a, sizeof(a), 0)==SQLITE_OK
      && AtomicLoad(&PL_LOWERED(pPager->pWal))==plNote(a);
}

static int plSayMisfit(Btree *p){
  if( !plWalWasRemoved(p->pBt->pPager) ) return plSayReplaced(p);
  return plStash(p, SQLITE_CANTOPEN, plSayRival(PLR_HAD_FILE, sqlite3PagerFilename(p->pBt->pPager, 0)));
}

/* For a stock handle whose transaction has found that its file does not fit (rc==PL_MISFIT), or
** could not find out. */
static int plRefuseFile(Btree *p, int rc){
  plBaseEnd(p);
  if( rc!=PL_MISFIT ) return rc;
  plForgetWal(p);
  return plSayMisfit(p);
}

/* Returns the descriptor of a handle's WAL-index, or -1: not open, or not in a file of the
** operating system. */
static int plShmFile(Pager *pPager){
  sqlite3_file *pFd = pPager->fd;
  if( pPager->pWal==0 || pFd->pMethods!=&posixIoMethods || ((unixFile*)pFd)->pShm==0 ) return -1;
  return ((unixFile*)pFd)->pShm->pShmNode->hShm;
}

/* From here on the lock that shows others that this process uses the WAL-index belongs to the open
** file (deadman.c). */
static void plHold(Btree *p){
  Pager *pPager = p->pBt->pPager;
  unixEnterMutex();
  if( plShmFile(pPager)>=0 ) plHoldIndex(((unixFile*)pPager->fd)->pShm->pShmNode);
  unixLeaveMutex();
}

/* Returns a process with a lock on this byte of the WAL-index, perhaps this one. 0: none has;
** -1: unknown. */
static int plShmHolder(Pager *pPager, int iByte){
  struct flock f;
  int hShm = plShmFile(pPager);
  if( hShm<0 || ((unixFile*)pPager->fd)->pShm->pShmNode->isUnlocked ) return -1;
  memset(&f, 0, sizeof(f));
  f.l_type = F_WRLCK;
  f.l_whence = SEEK_SET;
  f.l_start = iByte;
  f.l_len = 1;
  if( osFcntl(hShm, F_OFD_GETLK, &f) ) return -1;
  if( f.l_type==F_UNLCK ) return 0;
  return f.l_pid>0 ? f.l_pid : -1;     /* 0 in another pid namespace, negative on another machine */
}

/* Returns the lock that any process has on the database file: F_RDLCK, F_WRLCK, or F_UNLCK. *pbOwn:
** it is this process's, as far as is known. The query is that of an open file description, which
** also meets the locks of its own process. On a system where it does not (plWorkAlone() finds out)
** this is not called. */
static int plLockThere(Pager *pPager, int *pbOwn){
  struct flock f;
  memset(&f, 0, sizeof(f));
  f.l_type = F_WRLCK;
  f.l_whence = SEEK_SET;
  f.l_start = SHARED_FIRST;
  f.l_len = SHARED_SIZE;
  if( osFcntl(((unixFile*)pPager->fd)->h, F_OFD_GETLK, &f) ) return F_RDLCK;
  if( f.l_type==F_WRLCK ) *pbOwn = f.l_pid==osGetpid(0);
  return f.l_type;
}

/* True if this process has lost its locks on the database file: there is no lock, or a write lock
** of another process that has the file for itself. POSIX drops the locks when any descriptor of the
** file is closed. A second copy of SQLite in the process does so, or a program that archives its
** own folder. */
static int plLocksGone(Pager *pPager){
  int bOwn = 0;
  int eLock;
  if( pPager->pWal==0 || pPager->fd->pMethods!=&posixIoMethods ) return 0;
  eLock = plLockThere(pPager, &bOwn);
  return eLock==F_UNLCK || (eLock==F_WRLCK && !bOwn);
}

/* Takes a read lock. It would turn a write lock of this process into a read lock: there is none
** (plLocksGone(), plStayLocked()). */
static int plTakeLock(Pager *pPager){
  struct flock f;
  memset(&f, 0, sizeof(f));
  f.l_type = F_RDLCK;
  f.l_whence = SEEK_SET;
  f.l_start = SHARED_FIRST;
  f.l_len = SHARED_SIZE;
  return osFcntl(((unixFile*)pPager->fd)->h, F_SETLK, &f)==0;
}
/* True also for a file that is not unixOpen()'s, of which it is not known. */
static int plWalNamed(Pager *pPager){
  sqlite3_file *pWalFd = pPager->pWal->pWalFd;
  return pWalFd->pMethods!=&nolockIoMethods || plIsNamed(((unixFile*)pWalFd)->h);
}
static int plIndexNamed(Pager *pPager){
  int hShm = plShmFile(pPager);
  return hShm>=0 && plIsNamed(hShm);
}

/* Takes the locks again, after which no process can take the WAL for unused. 0: another process has
** done that already, or is about to. */
static int plTakeLocks(Pager *pPager){
  return plTakeLock(pPager) && plIndexNamed(pPager) && plWalNamed(pPager);
}
static int plLocksLost(Btree *p){
  return p->pPl && p->pPl->bAsksLocks && plLocksGone(p->pBt->pPager) && !plTakeLocks(p->pBt->pPager);
}

/* SQLite in locking_mode=EXCLUSIVE does not look at the WAL-index: while the file has no fence
** nothing keeps it off but our locks, which POSIX may have dropped. A program that has come in the
** meantime goes on to write, whatever the file says. If a read lock can be had, no such program is
** there; and one that has been there, and has closed the file, has removed the WAL. The WAL is
** checked each time, since the lock says nothing about the past once it was taken. */
static int plStayLocked(Pager *pPager, int *peRival){
  int bOwn, eLock;
  if( pPager->fd->pMethods!=&posixIoMethods ) return SQLITE_OK;
  eLock = plLockThere(pPager, &bOwn);
  /* A read lock may be another process's: take our own again. */
  if( eLock==F_WRLCK || !plTakeLock(pPager) ){
    *peRival = PLR_HAS_FILE;
    return SQLITE_BUSY;
  }
  if( !plWalNamed(pPager) || (eLock==F_UNLCK && !plIndexNamed(pPager)) ){
    *peRival = PLR_HAD_FILE;
    return SQLITE_CANTOPEN;
  }
  return SQLITE_OK;
}
/* Another program has removed the WAL: nothing was done yet, and the next transaction opens it
** again, with locks. */
static int plRefuseUnlocked(Btree *p){
  plBaseEnd(p);
  plForgetWal(p);
  p->bPlLooked = 0;
  return plStash(p, SQLITE_IOERR_LOCK, sqlite3_mprintf("this process lost its locks on %s when "
      "other code in it, perhaps a second copy of SQLite, opened and closed the file; this "
      "transaction did nothing: retry it, and let only one copy of SQLite use the file",
      sqlite3PagerFilename(p->pBt->pPager, 0)));
}

/* Returns the inode of a handle's WAL-index; 0 if it has none that is a file. It and its device stay
** what they are as long as the file is open: the system is asked once. */
static u64 plIndexInode(Pager *pPager){
  struct stat st;
  unixShmNode *pNode;
  u64 iInode;
  int hShm = plShmFile(pPager);
  if( hShm<0 ) return 0;
  pNode = ((unixFile*)pPager->fd)->pShm->pShmNode;
  iInode = __atomic_load_n(&pNode->iPlInode, __ATOMIC_ACQUIRE);
  if( iInode==0 && osFstat(hShm, &st)==0 ){
    iInode = (u64)st.st_ino;
    __atomic_store_n(&pNode->iPlDevice, (u64)st.st_dev, __ATOMIC_RELAXED);
    __atomic_store_n(&pNode->iPlInode, iInode, __ATOMIC_RELEASE);
  }
  return iInode;
}

/* SQLITE_CANTOPEN: this handle has another WAL-index than the session. The file was removed
** while processes have it open, and later processes make a new one: with two of them, two
** writers would write frames over each other's, and a checkpoint would bring a part. Otherwise
** SQLITE_OK, or a failure. */
static int plIndexStrange(Pager *pPager, const PlMarks *pMarks){
  u64 iInode = pMarks ? plIndexInode(pPager) : 0;
  int rc = iInode ? pl_marks_index(pMarks, iInode) : SQLITE_OK;
  return rc==SQLITE_BUSY ? SQLITE_CANTOPEN : rc;
}
static char *plSayStrange(Pager *pPager){
  return sqlite3_mprintf("%s-shm was removed or replaced while processes have the database open, "
      "and this connection found another file than theirs: close every connection to the "
      "database, in all programs, then open it again; never remove that file while one of them "
      "runs",
      sqlite3PagerFilename(pPager, 0));
}

/* True if the WAL-index of a handle that works alone has lost its name. Other processes may
** have made another one since, and written to the WAL through that, though it may be gone as
** well by now. Not finding a file under the name proves nothing: the process may have changed
** its root directory. Then the file itself is asked whether it has a name. */
static int plIndexGone(Pager *pPager){
  struct stat st;
  unixShmNode *pNode;
  u64 iInode = plIndexInode(pPager);
  if( iInode==0 ) return 0;
  pNode = ((unixFile*)pPager->fd)->pShm->pShmNode;
  if( osStat(pNode->zFilename, &st)==0 ){
    return (u64)st.st_ino!=iInode || (u64)st.st_dev!=__atomic_load_n(&pNode->iPlDevice, __ATOMIC_RELAXED);
  }
  return osFstat(plShmFile(pPager), &st)==0 && st.st_nlink==0;
}

/* True if that holds for any handle, and a process has the other WAL-index open: stock SQLite, say,
** that has opened a file without a fence, and has read page 1. If no index has the name, or none
** that can be read, that counts as a rival only over a fence that was lowered: a rival may have
** removed its own when it closed. The
** query is that of an open file description, with another program's locks in mind: see deadman.c. */
static int plIndexRivalled(Pager *pPager){
  struct flock f;
  int hShm, bTaken;
  if( !plIndexGone(pPager) ) return 0;
  hShm = robust_open(((unixFile*)pPager->fd)->pShm->pShmNode->zFilename, O_RDONLY|O_NOFOLLOW, 0);
  if( hShm<0 ) return AtomicLoad(&PL_LOWERED(pPager->pWal))!=0;
  memset(&f, 0, sizeof(f));
  f.l_type = F_WRLCK;
  f.l_whence = SEEK_SET;
  f.l_start = UNIX_SHM_DMS;
  f.l_len = 1;
  bTaken = osFcntl(hShm, F_OFD_GETLK, &f)!=0 || f.l_type!=F_UNLCK;
  robust_close(0, hShm, __LINE__);
  return bTaken;
}

/* A stock handle has begun a transaction on a marked file. Checks that the file belongs to its
** WAL, and that it is still locked. A handle that works alone on a resting file checks the first
** only once. One that is about to join a session has looked at the fence in the file with that. */
static int plLookOnce(Btree *p){
  u8 bFenced;
  int rc;
  if( p->bPlLooked && !plFenced(p->pBt) ){
    return plLocksLost(p) ? plRefuseUnlocked(p) : SQLITE_OK;
  }
  rc = plFits(p->pBt->pPager, &bFenced);
  if( rc ) return plRefuseFile(p, rc);
  p->bPlLooked = 1;
  if( bFenced && plSide(p) ) p->pPl->msFile = plCoarseMs();
  plHold(p);
  return SQLITE_OK;
}

/* sqlite3WalClose() has locked the database, so that no other process uses it: the last handle
** to close brings the WAL into the file and removes it. True if the file does not belong to
** the WAL. */
static int plClosesMisfit(Wal *pWal){
  u8 bFenced;
  int bChanged = 0;
  if( !plWalFenced(pWal) ) return 0;
  /* The checkpoint, which is next, fails alike. */
  if( walIndexReadHdr(pWal, &bChanged) ) return 0;
  if( bChanged && pWal->pDbFd->pMethods->iVersion>=3 ) sqlite3OsUnfetch(pWal->pDbFd, 0, 0);
  return plWalFenced(pWal) && plWalFits(pWal, &bFenced)==PL_MISFIT;
}

/* True if another handle of this process has locked the file: unixLock() would refuse this one the
** lock by which sqlite3WalClose() knows that it is the last. */
static int plHasCompanion(Pager *pPager){
  unixInodeInfo *pInode;
  int nShared;
  if( pPager->pWal==0 || pPager->fd->pMethods!=&posixIoMethods ) return 0;
  pInode = ((unixFile*)pPager->fd)->pInode;
  sqlite3_mutex_enter(pInode->pLockMutex);
  nShared = pInode->nShared;
  sqlite3_mutex_leave(pInode->pLockMutex);
  return nShared>1;
}

/* A handle that is not the last of its process leaves the WAL to the others, and need not look at
** names and locks for that: the others look when they close. One that works alone cannot know that it
** is the last without its locks (ALONE-4), nor with a WAL-index that another one has replaced. */
static void plBeforeClose(Btree *p){
  Pager *pPager = p->pBt->pPager;
  if( p->inTrans!=TRANS_NONE || p->pPl==0 || p->sharable ) return;
  if( plHasCompanion(pPager) || (p->pPl->bAsksLocks && (plLocksLost(p) || plIndexGone(pPager))) ) plForgetWal(p);
}

/* A stock handle has begun a transaction on a file without a mark. True if there is a reason to
** look closer. */
static SQLITE_INLINE int plIsSuspect(Btree *p){
  return !p->bPlLooked || plIndexFenced(p->pBt->pPager);
}

/* A closer look at it. A log is looked for once. */
static int plUnmarked(Btree *p){
  Pager *pPager = p->pBt->pPager;
  const char *zPath = sqlite3PagerFilename(pPager, 0);
  char *zErr = 0;
  int rc = SQLITE_OK;
  if( plIndexFenced(pPager) ) return plRefuseFile(p, PL_MISFIT);
  if( !p->bPlLooked ){
    struct stat st;
    char *zBeside = sqlite3_mprintf("%s-plait-shm", zPath);
    if( zBeside==0 ){
      plBaseEnd(p);
      return SQLITE_NOMEM_BKPT;
    }
    if( osStat(zBeside, &st)==0 ){
      rc = pl_beside(zPath, &zErr);
    }else{
      zBeside[strlen(zBeside)-4] = 0;       /* the log */
      if( osStat(zBeside, &st)==0 ) rc = pl_beside(zPath, &zErr);
    }
    sqlite3_free(zBeside);
    if( rc ){
      plBaseEnd(p);
      plForgetWal(p);
      plStash(p, rc, sqlite3_mprintf("%s", zErr ? zErr : sqlite3ErrStr(rc)));
    }else{
      p->bPlLooked = 1;
    }
    pl_free(zErr);
  }
  return rc;
}

/* True if another look is due. What was found missing is looked for each time. */
static int plLookIsDue(PlBtree *pPl, u32 *pMs){
  u32 ms = plCoarseMs();
  if( pPl->bAway==0 && ms-*pMs<PL_LOOK_MS ) return 0;
  *pMs = ms;
  return 1;
}

/* A member reads, in an open transaction. Under the fence the file itself says so, until another
** file is written over it; or the file is the one in which the fence was lowered. This holds from
** the moment when the session says that it has a fence: the WAL, in which the fence comes first,
** may be ahead for as long as a sync takes, or until the next write if the process that raised the
** fence was killed. */
static int plLookAtFile(Btree *p){
  PlBtree *pPl = p->pPl;
  Pager *pPager = p->pBt->pPager;
  u8 a[PL_FIRST_BYTES];
  int nTry, rc;
  if( !plIndexFenced(pPager) ) return SQLITE_OK;
  if( p->pBt->pPage1 && !plMarked(p->pBt) ) return plSayMisfit(p);
  if( !plLookIsDue(pPl, &pPl->msFile) ) return SQLITE_OK;
  for(nTry=0; nTry<PL_FIT_TRIES; nTry++){
    u32 eFence = PL_FENCE_NONE;
    /* Each time: the fence comes and goes. */
    rc = plFail(p, pl_fence(pPl->pConn, &eFence));
    if( rc || eFence==PL_FENCE_NONE ) return rc;
    rc = sqlite3OsRead(pPager->fd, a, sizeof(a), 0);
    if( rc!=SQLITE_OK && rc!=SQLITE_IOERR_SHORT_READ ) return rc;
    if( rc==SQLITE_OK && a[18]==3 && a[19]==3 ) return SQLITE_OK;
    if( rc==SQLITE_OK && eFence==PL_FENCE_LOWERED && plIsLowered(pPager->pWal, a, AtomicLoad(&PL_LOWERED(pPager->pWal))) ) return SQLITE_OK;
    if( AtomicLoad(&walIndexHdr(pPager->pWal)->iVersion)!=PL_WALINDEX_VERSION ) return SQLITE_OK;
    sqlite3OsSleep(pPager->pVfs, 1000);
  }
  return plSayMisfit(p);
}

/* A member writes: the file has to be under its name, where the process can see that. What is open
** remains readable. */
static int plRefuseMoved(Btree *p){
  PlBtree *pPl = p->pPl;
  Pager *pPager = p->pBt->pPager;
  int bMoved = 0;
  int rc;
  pPl->bNamed = 0;
  if( !plLookIsDue(pPl, &pPl->msName) ) return SQLITE_OK;
  pPl->bAway = 0;
  rc = sqlite3OsFileControl(pPager->fd, SQLITE_FCNTL_HAS_MOVED, &bMoved);
  pPl->bNamed = rc==SQLITE_OK && !bMoved;
  if( rc!=SQLITE_OK || !bMoved ) return SQLITE_OK;
  if( !plSeesNames(pPl, sqlite3PagerFilename(pPager, 0)) ) return SQLITE_OK;
  pPl->bAway = 1;
  return plStash(p, SQLITE_READONLY_DBMOVED, sqlite3_mprintf("%s was removed, or another file was "
      "put in its place, while this connection has it open: its contents can be read here, and "
      "copied with VACUUM INTO, until this connection is closed; put the file back under its name "
      "to go on", sqlite3PagerFilename(pPager, 0)));
}

/*
** alone.c - a connection that is alone, or meets no session, works as with stock SQLite.
**
** Joining a session costs files, memory and syncs, which pay only when several connections write,
** or one writes for long. Programs that open a database, do a little and close it need none of
** that, and a resting file is an ordinary WAL database. So a handle stays stock while it is alone,
** and for the little that most visits do while the connections that it found there are idle. It
** looks again at the beginning of each transaction:
**
**   visiting  (nVisit<PL_VISITS) stock code reads and writes the unfenced base; others, who were
**             there first, have it open in no session
**   alone     (nVisit==PL_VISITS) the same, but no other connection has opened the WAL-index
**   joined    pConn!=0 (attach.c). Never back, but by detaching
**
** visiting -> alone when the handle is found to be alone, and never back: a handle that has worked
** alone joins as soon as another connection comes.
** visiting -> joined, at the beginning of a transaction, for every reason that makes a lone handle
** join but company; and
**   - when files of a session are there at its first transaction, or after PL_VISITS transactions;
**   - to write, if it would have to wait for a writer;
** and outside of a transaction for a checkpoint that waits for readers, of a fenced file (pages.c).
** alone -> joined, at the beginning of a transaction, as soon as
**   - the file is fenced, or another connection of this or another process has opened its
**     WAL-index;
**   - the transaction needs what stock code lacks: BEGIN CONCURRENT; one that reads first and may
**     write later (BEGIN DEFERRED); VACUUM and what a backup overwrites, which stamp the header;
**     more files than one;
**   - PL_ALONE_READS transactions have read or a quarter of that have written. Each looks for
**     company and for its locks, which a member need not: by then this has cost about as much as
**     joining. A handle that cannot join goes on alone (plStayAlone()). In a process with many
**     files open (plIsFrugal()) neither this nor a transaction that reads first is a reason to
**     join;
**   - the handle was asked for what only a member of a session can report (plJoin()).
**
** Invariants
**  - ALONE-1 Only the fence keeps stock code from writing the base, and nothing else needs to: a
**    session that is not fenced has committed nothing, and its snapshots know by the WAL-index
**    whether the base has changed (PlHeader.cookie). So being wrong about being alone costs a wait
**    for the WAL's write lock, never a row.
**  - ALONE-2 A process that joins later raises the fence as next to any stock program: under the
**    WAL's write lock, after the transaction that holds it. A transaction that has begun to read
**    alone and then wants to write finds that the WAL has grown, if only by the fence, and is
**    refused (plNoLongerAlone()).
**  - ALONE-3 What is promised of `synchronous` holds: checkpoints are synced under OFF too.
**  - ALONE-4 SQLite's locks show others a transaction. If other code in the process has dropped
**    them, a second copy of SQLite for example, the next transaction takes them again. In between,
**    processes that do not heed the dead-man byte (deadman.c) could have removed the WAL. Then the
**    transaction fails, and close leaves the WAL as it is (plLocksLost()).
**  - ALONE-5 The child of a fork, which has none of its parent's locks, is refused before it begins
**    or continues a transaction (fork.c).
*/
#include <sys/resource.h>
#include <sys/sysmacros.h>

#define PL_ALONE_READS 1024
#define PL_ALONE_WRITE 4   /* a transaction that writes counts as so many that read */
#define PL_FRUGAL_SHARE 4  /* with 1/4 of its descriptors in use a process is frugal with them */
#define PL_VISITS 16       /* transactions; the first reads the schema */

enum { PLA_NOBODY, PLA_OTHERS, PLA_UNKNOWN };

/* pl_claim() of a handle's WAL-index, unless this process has other handles on it and has claimed it
** for them: the claim lasts as long as the file is open, and keeps another copy of the library in this
** process from claiming it (CLAIM-1). *pnRef: the handles on it. */
static int plClaim(Pager *pPager, int hShm, int *pnRef){
  unixShmNode *pNode = ((unixFile*)pPager->fd)->pShm->pShmNode;
  int bClaimed, rc, bHeld = 0;
  unixEnterMutex();
  *pnRef = pNode->nRef;
  bClaimed = pNode->iPlClaimed==iPlProcess;
  unixLeaveMutex();
  if( bClaimed && *pnRef>1 ) return SQLITE_BUSY;
  rc = pl_claim(hShm, &bHeld);
  unixEnterMutex();
  pNode->iPlClaimed = bHeld ? iPlProcess : 0;
  unixLeaveMutex();
  return rc;
}

/* Returns whether another connection of ours, in this or another process, has opened the WAL-index.
** PLA_UNKNOWN: another copy of the library in this process has, or it cannot be found out; joining
** reports which. From here on other processes see this one. */
static int plCompany(Pager *pPager){
  int hShm = plShmFile(pPager);
  int nRef, rc;
  if( hShm<0 ) return PLA_UNKNOWN;
  rc = plClaim(pPager, hShm, &nRef);
  if( rc==SQLITE_OK ) return nRef==1 ? PLA_NOBODY : PLA_OTHERS;
  return rc==SQLITE_BUSY ? PLA_OTHERS : PLA_UNKNOWN;
}

/* True if a second file of this copy of the library has the same WAL-index. A program has deleted
** its database, with a connection open in it, and made another one under its name, which found the
** WAL-index there. As with stock SQLite this works as long as the old one is left alone. */
static int plSharesIndex(Pager *pPager){
  const char *zMine = 0;
  unixInodeInfo *pInode;
  int n = 0;
  unixEnterMutex();
  zMine = ((unixFile*)pPager->fd)->pShm->pShmNode->zFilename;
  for(pInode=inodeList; pInode; pInode=pInode->pNext){
    if( pInode->iPlOwner && pInode->iPlOwner!=iPlProcess ) continue;      /* fork.c */
    n += pInode->pShmNode && strcmp(pInode->pShmNode->zFilename, zMine)==0;
  }
  unixLeaveMutex();
  return n>1;
}

/* Before joining: claims the WAL-index, so that handles that work alone see this one. Finds a
** second copy of the library that works alone in this process, since no session shows that copy. */
static int plClaimToJoin(Btree *p){
  Pager *pPager = p->pBt->pPager;
  int hShm = plShmFile(pPager);
  int nRef;
  if( hShm<0 || plClaim(pPager, hShm, &nRef)!=SQLITE_MISUSE || plSharesIndex(pPager) ) return SQLITE_OK;
  return plStash(p, SQLITE_MISUSE, sqlite3_mprintf("this process already has %s open through another copy of the library; link or load "
      "it once", sqlite3PagerFilename(pPager, 0)));
}

/* Where a file lies, as far as a handle has checked. */
enum { PLW_UNKNOWN, PLW_LOCAL, PLW_NETWORK };

/* Returns whether a file is on a file system of this machine, or on one that others may share.
** *pzWhy, if given: why the latter is refused, for sqlite3_free(). A disk is checked once in this
** process. Other devices are checked each time, since their numbers are used again for any kind of
** file system. */
static int plPlace(Btree *p, char **pzWhy){
  static u64 iDisk = 0;
  Pager *pPager = p->pBt->pPager;
  sqlite3_file *pFd = pPager->fd;
  char *zWhy = 0;
  u64 iDev = 0;
  if( p->ePlPlace!=PLW_UNKNOWN ) return p->ePlPlace;
  if( pFd->pMethods==&posixIoMethods ) iDev = (u64)((unixFile*)pFd)->pInode->fileId.dev;
  if( iDev && __atomic_load_n(&iDisk, __ATOMIC_RELAXED)==iDev ) return p->ePlPlace = PLW_LOCAL;
  if( pl_check_network(sqlite3PagerFilename(pPager, 0), &zWhy)==SQLITE_CANTOPEN ){
    p->ePlPlace = PLW_NETWORK;
    if( pzWhy ) *pzWhy = sqlite3_mprintf("%s", zWhy ? zWhy : "");
  }else{
    p->ePlPlace = PLW_LOCAL;
    if( major(iDev)!=0 ) __atomic_store_n(&iDisk, iDev, __ATOMIC_RELAXED);
  }
  pl_free(zWhy);
  return p->ePlPlace;
}

/* True if others could use this file unseen: over a network, or by a second name, which has a WAL
** of its own. */
static int plIsHidden(Btree *p){
  struct stat st;
  return plPlace(p, 0)==PLW_NETWORK || osFstat(((unixFile*)p->pBt->pPager->fd)->h, &st)!=0 || st.st_nlink!=1;
}

/* True if files of a session exist. The session lives, or a killed process has left one that never
** committed. The last member of a session removes them, its shared memory last, so that in company
** (eOthers) only that is looked for: what is there without it was there before the others, and their
** first transactions have found it. */
static int plHasSession(Pager *pPager, int eOthers){
  static const char *const azSuffix[] = { "-plait-shm", "-plait", "-plait-new" };
  struct stat st;
  int i, bFound = 0;
  for(i=0; i<(eOthers==PLA_OTHERS ? 1 : ArraySize(azSuffix)) && !bFound; i++){
    char *z = sqlite3_mprintf("%s%s", sqlite3PagerFilename(pPager, 0), azSuffix[i]);
    bFound = z==0 || (lstat(z, &st)==0 && S_ISREG(st.st_mode));
    sqlite3_free(z);
  }
  return bFound;
}

/* From here on the handle counts as one that has worked alone: ALONE-3 to ALONE-5. */
static void plWorkAlone(Btree *p){
  sqlite3 *db = p->db;
  PlBtree *pPl = p->pPl;
  Pager *pPager = p->pBt->pPager;
  if( pPl->bAlone ) return;
  plMindForks();
  plMarkInode(p);
  pPl->bAlone = 1;
  pPl->bAsksLocks = !plLocksGone(pPager);
  if( pPager->noSync ){
    sqlite3BtreeSetPagerFlags(p, db->aDb[plDbIndex(p)].safety_level | (db->flags & PAGER_FLAGS_MASK));
  }
}

/* There is no space to join, and the application asks neither to write nor for BEGIN CONCURRENT: as
** long as the file is not fenced stock code reads all that is committed (ALONE-1). rc: why the
** handle could not join. No transaction is open. */
static int plReadWithoutJoining(Btree *p, int *pSchemaVersion, int rc){
  if( p->db->mDbFlags & DBFLAG_PlConcurrent ) return rc;
  if( sqlite3StockBtreeBeginTrans(p, 0, pSchemaVersion)!=SQLITE_OK ) return rc;
  if( plMarked(p->pBt) && plFenced(p->pBt) ){
    plBaseEnd(p);
    return rc;
  }
  plStashClear(p);
  if( plMarked(p->pBt) ) plWorkAlone(p);
  return SQLITE_OK;
}

/* True in a process with so many files open that it keeps its other descriptors for more databases.
** For speed alone it joins no session, which takes twice as many as the connection has. Descriptors
** are given out from the lowest number on. */
static SQLITE_NOINLINE int plIsFrugal(Pager *pPager){
  struct rlimit limit;
  return getrlimit(RLIMIT_NOFILE, &limit)==0 && limit.rlim_cur!=RLIM_INFINITY
      && (rlim_t)MAX(0, plShmFile(pPager)) >= limit.rlim_cur/PL_FRUGAL_SHARE;
}

/* A transaction has begun on a marked file that is not fenced, or (bBusy) could not, since a
** connection writes. True if stock code may go on with it. */
static int plAlone(Btree *p, int wrflag, int bBusy){
  sqlite3 *db = p->db;
  PlBtree *pPl = plSide(p);
  Pager *pPager = p->pBt->pPager;
  int eOthers;
  if( pPl==0 || pPl->bJoin ) return 0;
  if( db->nDb>2 || (db->mDbFlags & (DBFLAG_PlConcurrent|DBFLAG_PlPages|DBFLAG_Vacuum)) ) return 0;
  if( pPl->nAlone>=PL_ALONE_READS || (!wrflag && !db->autoCommit) ){
    if( !plIsFrugal(pPager) ) return 0;
    pPl->nAlone = 0;
  }
  if( pl_joins_always()==SQLITE_OK ) return 0;
  if( pPl->nVisit>0 && pPl->nVisit<PL_VISITS && !bBusy ){
    /* Only this handle depends on whether those others are still there, in no session (ALONE-1). */
    pPl->nVisit++;
    pPl->nAlone += wrflag ? PL_ALONE_WRITE : 1;
    return 1;
  }
  eOthers = plCompany(pPager);
  if( eOthers==PLA_UNKNOWN || (eOthers==PLA_OTHERS && (bBusy || pPl->nVisit>=PL_VISITS)) ) return 0;
  if( (eOthers==PLA_OTHERS || !pPl->bLocal) && plHasSession(pPager, eOthers) ) return 0;
  if( !pPl->bLocal && plIsHidden(p) ) return 0;
  pPl->bLocal = 1;
  if( eOthers==PLA_OTHERS ) pPl->nVisit++;
  else pPl->nVisit = PL_VISITS;
  pPl->nAlone += wrflag ? PL_ALONE_WRITE : 1;
  plWorkAlone(p);
  return 1;
}

/* The handle was to join for speed, and cannot (rc). It goes on alone, and tries again after as
** many transactions. No transaction is open. */
static int plStayAlone(Btree *p, int wrflag, int *pSchemaVersion, int rc){
  PlBtree *pPl = p->pPl;
  if( (rc & 0xff)!=SQLITE_FULL && (rc & 0xff)!=SQLITE_CANTOPEN ) return rc;
  if( pPl->nAlone<PL_ALONE_READS ) return rc;
  pPl->nAlone = 0;
  if( sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion)!=SQLITE_OK ) return rc;
  if( plMarked(p->pBt) && (plFenced(p->pBt) || !plAlone(p, wrflag, 0)) ){
    plBaseEnd(p);
    return rc;
  }
  plStashClear(p);
  return SQLITE_OK;
}

/* The WAL-index that a handle has is no longer under its name (plIndexGone()). If there is a
** session its members know which one counts (plAttach()). Else the transaction that has just begun
** starts over with the one under the name, whose frames the old one does not know. While other
** handles of this process have the old one open, this handle would get it again and is refused. */
static int plFollowIndex(Btree *p, int wrflag, int *pSchemaVersion){
  int rc;
  if( plHasSession(p->pBt->pPager, PLA_UNKNOWN) ){
    p->pPl->bJoin = 1;
    return SQLITE_OK;
  }
  plBaseEnd(p);
  plForgetWal(p);
  p->bPlLooked = 0;
  rc = sqlite3StockBtreeBeginTrans(p, wrflag, pSchemaVersion);
  if( rc==SQLITE_OK && plIndexGone(p->pBt->pPager) ){
    plBaseEnd(p);
    plForgetWal(p);
    rc = plStash(p, SQLITE_CANTOPEN, plSayStrange(p->pBt->pPager));
  }
  return rc;
}

/* ALONE-3. Whether the handle is a member or not, OFF costs no more than the newest commits. */
SQLITE_PRIVATE int sqlite3BtreeSetPagerFlags(Btree *p, unsigned pgFlags){
  if( PL_BT(p) ) return plBtreeSetPagerFlags(p, pgFlags);
  if( p->pPl && p->pPl->bAlone && (pgFlags & PAGER_SYNCHRONOUS_MASK)==PAGER_SYNCHRONOUS_OFF ){
    pgFlags += PAGER_SYNCHRONOUS_NORMAL - PAGER_SYNCHRONOUS_OFF;
  }
  return sqlite3StockBtreeSetPagerFlags(p, pgFlags);
}

/* A transaction that read alone wants to write, and another connection has committed since. */
static int plNoLongerAlone(Btree *p, int rc){
  return plStash(p, rc, sqlite3_mprintf("database is locked: this transaction began to read while "
      "no other connection was open, and another one has written since; ROLLBACK and retry"));
}

/* Makes the handle a member of the session: now if no transaction is open, else from its next
** transaction on. */
static int plJoin(Btree *p){
  PlBtree *pPl = plSide(p);
  if( pPl==0 ) return SQLITE_NOMEM_BKPT;
  pPl->bJoin = 1;
  return plLook(p);
}

/*
** heed.c - a mark has come or gone beside a file at rest: bytes 18 and 19 are to say so (FOLLOWS-5 in
** follows.c).
**
** The follower calls it when it has joined the session of its replica, `plait promote` when it has
** removed the mark. Others may have the database open, in a session or without one.
**
**   at rest     a transaction of its own, by a hidden connection
**   fenced      nothing: who takes the fence down looks for the mark later than this
**   lowered     the file has what a base at rest has, while the session goes on: byte 18 of the file
**               is written by itself, as who lowers the fence does, under the checkpoint lock
*/

/* Longest wait for a lock of the base. */
#define PL_HEED_BUSY_MS 20000

/* Of a base at rest. *pbFenced: it is none. */
static int plHeedAtRest(Btree *p, int *pbFenced){
  PlHeader h;
  int rc = sqlite3StockBtreeBeginTrans(p, 1, 0);
  if( rc ) return rc;
  plReadHeader(p->pBt, &h);
  *pbFenced = h.marked && h.fenced;
  if( h.marked && !h.fenced && p->pBt->pPage1->aData[18]!=plWriteVersion(p->pBt->pPager) ){
    rc = plStamp(p, &h);
    if( rc==SQLITE_OK ) rc = sqlite3StockBtreeCommit(p);
  }
  plBaseEnd(p);
  return rc;
}

/* Of a base with a fence, which may be lowered. If it comes to rest now, who brings it there sees the
** mark as it is. */
static int plHeedLowered(Btree *p){
  Pager *pPager = p->pBt->pPager;
  Wal *pWal;
  u8 a[PL_FIRST_BYTES];
  int rc = sqlite3StockBtreeBeginTrans(p, 0, 0);
  if( rc ) return rc;
  plBaseEnd(p);
  pWal = pPager->pWal;
  if( pWal==0 ) return SQLITE_OK;
  rc = walBusyLock(pWal, pPager->xBusyHandler, pPager->pBusyHandlerArg, WAL_CKPT_LOCK, 1);
  if( rc ) return rc;
  rc = sqlite3OsRead(pPager->fd, a, sizeof(a), 0);
  if( rc==SQLITE_OK && a[19]==2 && PL_MARKED(a) && AtomicLoad(&PL_LOWERED(pWal))!=0 ){
    u8 iVersion = plWriteVersion(pPager);
    rc = a[18]==iVersion ? SQLITE_OK : sqlite3OsWrite(pPager->fd, &iVersion, 1, 18);
    if( rc==SQLITE_OK ) rc = sqlite3OsSync(pPager->fd, SQLITE_SYNC_NORMAL);
  }
  walUnlockExclusive(pWal, WAL_CKPT_LOCK, 1);
  return rc;
}

int pl_shim_heed_mark(const char *zPath, char **pzErr){
  void *pVoid = 0;
  PlBase *pBase;
  int rc, bFenced = 0;
  *pzErr = 0;
  rc = sqlite3_initialize();
  if( rc==SQLITE_OK ) rc = plBaseOpen(zPath, &pVoid, pzErr);
  if( rc ) return rc;
  pBase = (PlBase*)pVoid;
  plBaseEnter(pBase);
  sqlite3_busy_timeout(pBase->db, PL_HEED_BUSY_MS);
  rc = plHeedAtRest(plBaseBtree(pBase), &bFenced);
  if( rc==SQLITE_OK && bFenced ) rc = plHeedLowered(plBaseBtree(pBase));
  /* The files of a session are its members', also if those are dead. */
  if( bFenced ) plForgetWal(plBaseBtree(pBase));
  sqlite3Error(pBase->db, rc);
  if( rc ) *pzErr = plBaseSay(pBase->db);
  sqlite3_mutex_leave(pBase->db->mutex);
  plBaseClose(pBase);
  return rc;
}

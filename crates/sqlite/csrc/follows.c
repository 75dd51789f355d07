/*
** follows.c - the database of a replica can only be read: a mark beside it says that it follows a
** primary (replica.rs, docs/format.md).
**
** A handle looks for the mark once, when it is opened: one system call. From then on it answers as
** one of a file that may not be written (BTS_READ_ONLY), and its first write says why. Only the
** follower's own connection is let through (FOLLOWS-3).
**
** Invariants
**  - FOLLOWS-1 No handle that was opened beside a mark begins a write transaction. Statements,
**    maps, blob handles, VACUUM, backups and dbpage all begin one by sqlite3BtreeBeginTrans(), which
**    refuses; nothing is written without one. What calls SQLite's own function by itself is
**    journal_mode, which refuses before (plRefuseMode()), and the layer below
**    sqlite3BtreeBeginTrans().
**  - FOLLOWS-2 What is no write of the user is not refused. Merges and the fence belong to hidden
**    connections (PL_OPEN_BASE), and recovery and the last close to the pager, which may write. So
**    in a session the handle is a member as any other (plReadsOnly()).
**  - FOLLOWS-3 A program is let through by pl_shim_allow_replica_writes() alone, for one connection:
**    a function of Rust programs that are linked with this library, which it does not export.
*/

/* True if this handle can only read, since its file is a replica. */
static SQLITE_INLINE int plFollows(Btree *p){
  return PL_UNLIKELY(p->bPlFollows!=0);
}

SQLITE_PRIVATE int sqlite3BtreeOpen(sqlite3_vfs *pVfs, const char *zName, sqlite3 *db, Btree **ppBtree, int flags, int vfsFlags){
  int rc = sqlite3StockBtreeOpen(pVfs, zName, db, ppBtree, flags, vfsFlags);
  Btree *p = rc==SQLITE_OK ? *ppBtree : 0;
  if( p==0 || zName==0 || zName[0]==0 || (db->openFlags & PL_OPEN_BASE) ) return rc;
  if( sqlite3PagerFilename(p->pBt->pPager, 1)[0]==0 || pl_is_replica(sqlite3PagerFilename(p->pBt->pPager, 0))!=SQLITE_OK ) return rc;
  p->bPlFollows = 1;
  p->pBt->btsFlags |= BTS_READ_ONLY;
  return rc;
}

/* Lets the connection of a follower write its replica. Declared in src/ffi/replica.rs; the shared
** library does not export it. */
void pl_shim_allow_replica_writes(sqlite3 *db){
  Btree *p = db->aDb[0].pBt;
  sqlite3_mutex_enter(db->mutex);
  if( p && p->bPlFollows ){
    p->bPlFollows = 0;
    if( !sqlite3PagerIsreadonly(p->pBt->pPager) ) p->pBt->btsFlags &= ~BTS_READ_ONLY;
  }
  sqlite3_mutex_leave(db->mutex);
}

/* Why a replica is not written, for sqlite3_free(). */
static char *plWhyReplica(Btree *p){
  char *zWhy = pl_replica_refusal(sqlite3PagerFilename(p->pBt->pPager, 0));
  char *zText = sqlite3_mprintf("%s", zWhy ? zWhy : "attempt to write a replica");
  pl_free(zWhy);
  return zText;
}

static SQLITE_NOINLINE PL_COLD int plRefuseReplica(Btree *p){
  return plKeepText(p, SQLITE_READONLY, plWhyReplica(p));
}

/* A journal mode is asked for that would change the file. */
static SQLITE_NOINLINE PL_COLD int plRefuseMode(Vdbe *pVdbe, Btree *p){
  char *zWhy = plWhyReplica(p);
  sqlite3VdbeError(pVdbe, "%s", zWhy ? zWhy : "");
  sqlite3_free(zWhy);
  return SQLITE_READONLY;
}

/* An engine call on the mark has failed with rc and this text (ownership passes). */
static int plMarkFailed(Btree *p, int rc, char *zErr){
  if( rc!=SQLITE_INTERRUPT ) rc = plStash(p, rc, sqlite3_mprintf("%s", zErr ? zErr : sqlite3ErrStr(rc)));
  pl_free(zErr);
  return rc;
}

/* plait_replica_time([schema]): when the primary wrote what the replica has, in milliseconds since
** 1970. NULL: it is no replica. */
static void plReplicaTimeFunc(sqlite3_context *pCtx, int argc, sqlite3_value **argv){
  sqlite3 *db = sqlite3_context_db_handle(pCtx);
  const char *zDb = argc ? (const char*)sqlite3_value_text(argv[0]) : 0;
  int iDb = sqlite3FindDbName(db, zDb ? zDb : "main");
  Btree *p = iDb<0 ? 0 : db->aDb[iDb].pBt;
  char *zErr = 0;
  int64_t ms = 0;
  int rc;
  if( iDb<0 ){
    sqlite3_result_error(pCtx, "unknown database name", -1);
    return;
  }
  if( p==0 || sqlite3PagerFilename(p->pBt->pPager, 1)[0]==0 ) return;
  rc = pl_replica_time(sqlite3PagerFilename(p->pBt->pPager, 0), &ms, &zErr);
  if( rc==SQLITE_OK ){
    sqlite3_result_int64(pCtx, ms);
  }else if( rc!=SQLITE_DONE ){
    rc = plMarkFailed(p, rc, zErr);
    sqlite3_result_error(pCtx, plErrStr(db, rc), -1);
    sqlite3_result_error_code(pCtx, rc);
  }
}

/*
** follows.c - the database of a replica can only be read: a mark beside it says that it follows a
** primary (replica.rs, docs/format.md), and at rest so do bytes 18 and 19 of its page 1.
**
** A handle looks for the mark when it is opened, and when it joins a session: a system call each.
** From then on it answers as
** one of a file that may not be written (BTS_READ_ONLY), and its first write says why. Only the
** follower's own connection is let through (FOLLOWS-3).
**
** SQLite without us knows no mark. It knows bytes 18 and 19, the versions for writers and readers:
** a file with 3 and 2 it reads, and does not write. So these tell of a replica what lies beside it:
**
**   page 1, bytes 18 19 | the mark  | what it is            | stock SQLite | a handle of ours
**   2 2                 | none      | a database at rest    | writes       | writes
**   3 2                 | there     | a replica at rest     | reads        | reads
**   3 2                 | none      | a copy of one, or a   | reads        | reads; the refusal
**                       |           | promotion was cut off |              | names `plait promote`
**   2 2                 | there     | a replica that was    | writes       | reads
**                       |           | never at rest since   |              |
**                       |           | its follower began    |              |
**   3 3                 | either    | fenced                | refuses      | by the mark alone
**
**   2 2 -> 3 2   pl_shim_heed_mark(), when the follower begins; a restored file has it before it has
**                its name (plait-replicate)
**   3 2 -> 3 3   the fence is raised, as over any file
**   3 3 -> 3 2   the fence comes down, or is lowered, beside the mark (plWriteVersion())
**   3 3 -> 2 2   the same without a mark
**   3 2 -> 2 2   pl_shim_heed_mark(), when `plait promote` has removed the mark
**
** Invariants
**  - FOLLOWS-1 No handle that was opened beside a mark begins a write transaction. Statements,
**    maps, blob handles, VACUUM, backups and dbpage all begin one by sqlite3BtreeBeginTrans(), which
**    refuses; nothing is written without one. What calls SQLite's own function by itself is
**    journal_mode, which refuses before (plRefuseMode()), and the layer below
**    sqlite3BtreeBeginTrans().
**  - FOLLOWS-2 What is no write of the user is not refused. Merges and the fence belong to hidden
**    connections (PL_OPEN_BASE), and recovery and the last close to the pager, which may write. So
**    in a session the handle is a member as any other (plReadsOnly()). Nor does lockBtree() take
**    3 2 for a file that it may not write.
**  - FOLLOWS-3 A program is let through by pl_shim_allow_replica_writes() alone, for one connection:
**    a function of Rust programs that are linked with this library, which it does not export.
**  - FOLLOWS-4 Nobody but a follower writes a file with 3 2: stock SQLite refuses by itself, and a
**    handle of ours that finds those bytes as a transaction begins is from then on as one that was
**    opened beside a mark (plFoundReplica()). So is one that joins a session beside a
**    mark that came since it was opened: a program may open the name before the follower makes the
**    database. A handle that was a member before, or has come since the mark was deleted, is refused
**    by the session, for as long as a follower has joined that (REPLICA-3 in replica.rs).
**  - FOLLOWS-5 A base comes to rest with what the mark says. Who brings it there looks for the mark
**    with the WAL's write lock, or to lower the fence with the checkpoint lock. Who makes or removes
**    the mark calls pl_shim_heed_mark() behind that, which takes the same locks: of the two the later
**    one has seen the mark as it is.
**  - FOLLOWS-6 A file of which it cannot be found out whether a mark is beside it comes to rest with
**    2 2: nobody is locked out of a database that is none's replica.
**  - FOLLOWS-7 What the mark tells is told of the file that it lies beside: a handle whose file was
**    removed since, and made anew, gets an error (plMarkIsOwn()), not the new one's answers.
**  - FOLLOWS-8 Settings of the whole session (plait_wal_limit, plait_background_merge) are its
**    follower's alone: with a limit of a byte it could not go on.
*/

/* Btree.ePlFollows */
#define PLO_NONE     0
#define PLO_FOLLOWER 1   /* this handle writes it, be it a replica or not */
#define PLO_MARKED   2   /* a mark lay beside it when this handle was opened: it can only be read */
#define PLO_RESTING  3   /* its page 1 has said that it can only be read */

/* True if this handle can only read, since its file is a replica. */
static SQLITE_INLINE int plFollows(Btree *p){
  return PL_UNLIKELY(p->ePlFollows>=PLO_MARKED);
}

static void plOnlyReads(Btree *p, u8 eWhy){
  p->ePlFollows = eWhy;
  p->pBt->btsFlags |= BTS_READ_ONLY;
}

/* Byte 18 of a concurrent base at rest. */
static u8 plWriteVersion(Pager *pPager){
  return pl_is_replica(sqlite3PagerFilename(pPager, 0))==SQLITE_OK ? 3 : 2;
}

/* A transaction is open. True if the handle can only read since that is a replica,
** though perhaps no mark lay beside it when the handle was opened. */
static int plFoundReplica(Btree *p){
  if( p->ePlFollows==PLO_NONE && PL_RESTING_REPLICA(p->pBt->pPage1->aData) ) plOnlyReads(p, PLO_RESTING);
  return plFollows(p);
}

/* The handle is about to join a session. That no mark lay there when it was opened holds where it
** cannot be found out any more, by a process that has given up its rights. */
static void plLookForMark(Btree *p){
  if( p->ePlFollows==PLO_NONE && plWriteVersion(p->pBt->pPager)==3 ) plOnlyReads(p, PLO_MARKED);
}

SQLITE_PRIVATE int sqlite3BtreeOpen(sqlite3_vfs *pVfs, const char *zName, sqlite3 *db, Btree **ppBtree, int flags, int vfsFlags){
  int rc = sqlite3StockBtreeOpen(pVfs, zName, db, ppBtree, flags, vfsFlags);
  Btree *p = rc==SQLITE_OK ? *ppBtree : 0;
  if( p==0 || zName==0 || zName[0]==0 || (db->openFlags & PL_OPEN_BASE) ) return rc;
  if( sqlite3PagerFilename(p->pBt->pPager, 1)[0]==0 ) return rc;
  /* What cannot be found out is not written. */
  if( pl_is_replica(sqlite3PagerFilename(p->pBt->pPager, 0))!=SQLITE_DONE ) plOnlyReads(p, PLO_MARKED);
  return rc;
}

/* Lets the connection of a follower write its replica. Declared in src/ffi/replica.rs; the shared
** library does not export it. */
void pl_shim_allow_replica_writes(sqlite3 *db){
  Btree *p = db->aDb[0].pBt;
  sqlite3_mutex_enter(db->mutex);
  if( p ){
    if( plFollows(p) && !sqlite3PagerIsreadonly(p->pBt->pPager) ) p->pBt->btsFlags &= ~BTS_READ_ONLY;
    p->ePlFollows = PLO_FOLLOWER;
    if( PL_BT(p) ) pl_write_as_follower(p->pPl->pConn);
  }
  sqlite3_mutex_leave(db->mutex);
}

/* Why a replica is not written, for sqlite3_free(). */
static char *plWhyReplica(Btree *p){
  char *zWhy = pl_replica_refusal(sqlite3PagerFilename(p->pBt->pPager, 0), p->ePlFollows==PLO_RESTING);
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

/* The mark was read. Fails if it is beside another file by now: what it tells of is not here. */
static int plMarkIsOwn(Btree *p){
  int bMoved = 0;
  if( sqlite3OsFileControl(p->pBt->pPager->fd, SQLITE_FCNTL_HAS_MOVED, &bMoved)!=SQLITE_OK || !bMoved ) return SQLITE_OK;
  return plStash(p, SQLITE_READONLY_DBMOVED, sqlite3_mprintf("%s was removed, or made anew, while this connection has it "
      "open: open it again", sqlite3PagerFilename(p->pBt->pPager, 0)));
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
  if( rc!=SQLITE_OK && rc!=SQLITE_DONE ) rc = plMarkFailed(p, rc, zErr);
  else if( rc==SQLITE_OK ) rc = plMarkIsOwn(p);
  if( rc==SQLITE_OK ){
    sqlite3_result_int64(pCtx, ms);
  }else if( rc!=SQLITE_DONE ){
    sqlite3_result_error(pCtx, plErrStr(db, rc), -1);
    sqlite3_result_error_code(pCtx, rc);
  }
}

/*
** message.c - the texts behind result codes.
**
** Engine calls return plain codes. The text of a failure is composed here at once, while the engine
** still knows what happened. The handle keeps it until the code comes back through plErrStr(): when
** a statement fails, or when the application calls sqlite3_errmsg() after a COMMIT.
**
** Invariant: a stash is shown only together with the code that it was made for, and only for what
** its connection does now: every statement that begins in one of its files forgets the stashes of
** all of them, and so does every COMMIT.
**
** "database is locked" stays in front for SQLITE_BUSY and its kin: programs look for it. Some
** compare the whole text: a process whose environment says that its program knows WAL mode alone
** (PLAIT_JOURNAL_MODE=concurrent) gets SQLite's own text, and the rest goes to SQLite's error log.
*/

static void plStashClear(Btree *p){
  if( p->pPl && p->pPl->zStash ){
    sqlite3_free(p->pPl->zStash);
    p->pPl->zStash = 0;
    p->pPl->rcStash = SQLITE_OK;
  }
}
static SQLITE_NOINLINE void plStashClearAll(sqlite3 *db){
  int i;
  for(i=0; i<db->nDb; i++){
    if( db->aDb[i].pBt ) plStashClear(db->aDb[i].pBt);
  }
}

/* Stores as which user, and below which root directory, this process opens files. A daemon may
** change both after it has opened a database. */
static void plNoteSelf(PlSelf *pOut){
  struct stat st;
  memset(pOut, 0, sizeof(*pOut));
  pOut->iUser = (u32)geteuid();
  if( osStat("/", &st)!=0 ) return;
  pOut->iRootDev = (u64)st.st_dev;
  pOut->iRootIno = (u64)st.st_ino;
}

/* True if names can be relied on. Below another root names lead elsewhere, and a user without
** access to a folder does not see them: they say nothing about open files. */
static int plSeesNames(const PlBtree *pPl, const char *zPath){
  PlSelf now;
  struct stat st;
  plNoteSelf(&now);
  if( now.iRootDev!=pPl->self.iRootDev || now.iRootIno!=pPl->self.iRootIno ) return 0;
  return osStat(zPath, &st)==0 || errno!=EACCES;
}

/* The text for a handle that cannot join but could have joined before, or "". */
static const char *plSelfChanged(const PlBtree *pPl){
  PlSelf now;
  plNoteSelf(&now);
  if( memcmp(&now, &pPl->self, sizeof(now))==0 ) return "";
  return "; this process has changed its user or its root directory since it opened the database, "
      "when no other process used it: start it with PLAIT_JOIN=always in its environment, so that "
      "it opens all files at once";
}

static int plStash(Btree *p, int rc, char *zText);

/* A stock transaction could not begin to write: this user may only read the WAL that was
** opened anew. */
static SQLITE_NOINLINE PL_COLD int plMayOnlyRead(Btree *p, int rc){
  const char *zChanged = plSelfChanged(p->pPl);
  return zChanged[0] ? plStash(p, rc, sqlite3_mprintf("%s%s", sqlite3ErrStr(rc), zChanged)) : rc;
}

/* Returns the concurrent side of a handle, allocated when first needed; 0 when out of memory. */
static PlBtree *plSide(Btree *p){
  if( p->pPl==0 ){
    p->pPl = sqlite3MallocZero(sizeof(PlBtree));
    if( p->pPl ){
      p->db->bPlMet = 1;
      p->pPl->pBtree = p;
      p->pPl->eSync = PL_SYNC_FULL;
      plNoteSelf(&p->pPl->self);
    }
  }
  return p->pPl;
}

/* True for a code that no program deals with by itself: somebody has to mend something. */
static int plIsForOperator(int rc){
  int e = rc & 0xff;
  return e==SQLITE_READONLY || e==SQLITE_IOERR || e==SQLITE_CORRUPT || e==SQLITE_FULL || e==SQLITE_CANTOPEN;
}

#define PL_PAGE " (docs/runbook.md)"

static const PlBaseOps plBaseOps;

/* Writes the events that wait, unless a transaction of this connection writes: it has locks, or the
** writer's right. pClosed: what it has closed. */
static SQLITE_NOINLINE PL_COLD void plWriteEventsNow(sqlite3 *db, const Btree *pClosed){
  int i;
  for(i=0; i<db->nDb; i++){
    const Btree *p = db->aDb[i].pBt;
    if( p && p!=pClosed && p->inTrans==TRANS_WRITE ) return;
  }
  pl_events_write();
}
static SQLITE_INLINE void plWriteEvents(sqlite3 *db, const Btree *pClosed){
  if( PL_UNLIKELY(pl_events_wait()) ) plWriteEventsNow(db, pClosed);
}

/* Notes an event, and adds to the text (ownership passes) the page that has it. Returns the text. */
static SQLITE_NOINLINE PL_COLD char *plForOperator(Btree *p, int rc, char *zText){
  PlBtree *pPl = p->pPl;
  char *zMore = zText && strstr(zText, PL_PAGE)==0 ? sqlite3_mprintf("%s" PL_PAGE, zText) : 0;
  if( zText ) pl_failed(&plBaseOps, sqlite3PagerFilename(p->pBt->pPager, 0), pPl ? pPl->pConn : 0, rc, zText);
  if( zMore==0 ) return zText;
  sqlite3_free(zText);
  return zMore;
}

/* Keeps a text (from sqlite3_mprintf; ownership passes) for rc and returns rc. */
static int plKeepText(Btree *p, int rc, char *zText){
  PlBtree *pPl = plSide(p);
  plRefused(p->db, rc);
  if( pPl==0 ){
    sqlite3_free(zText);
    return rc;
  }
  plStashClear(p);
  pPl->rcStash = rc;
  pPl->zStash = zText;
  return rc;
}

/* The same, and an event if it is for the operator. */
static int plStash(Btree *p, int rc, char *zText){
  (void)plSide(p);
  if( (p->db->openFlags & PL_OPEN_BASE)==0 ){
    if( plIsForOperator(rc) ) zText = plForOperator(p, rc, zText);
    plWriteEvents(p->db, 0);
  }
  return plKeepText(p, rc, zText);
}

/* BUSY in a transaction that is broken (plBreak()): it must not be repeated. */
static int plSayBroken(Btree *p){
  return plStash(p, SQLITE_BUSY_SNAPSHOT, sqlite3_mprintf("database is locked: the transaction "
      "needed a newer state of the file, which another process has locked; ROLLBACK and retry"));
}

/* Returns the index of the schema that a handle is open as: "main", or the name in ATTACH. */
static int plDbIndex(Btree *p){
  int i;
  for(i=0; i<p->db->nDb; i++){
    if( p->db->aDb[i].pBt==p ) return i;
  }
  return 0;
}
static const char *plDbName(Btree *p){
  return p->db->aDb[plDbIndex(p)].zDbSName;
}

/* Appends "table "t"" or "index "i" of table "t"" for a root page. */
static void plRootName(sqlite3_str *pOut, Btree *p, Pgno iRoot, int *pbRowid){
  Schema *pSchema = p->db->aDb[plDbIndex(p)].pSchema;
  HashElem *k;
  *pbRowid = 0;
  if( pSchema ){
    for(k=sqliteHashFirst(&pSchema->tblHash); k; k=sqliteHashNext(k)){
      Table *pTab = (Table*)sqliteHashData(k);
      if( pTab->tnum==iRoot && !IsVirtual(pTab) ){
        *pbRowid = HasRowid(pTab);
        sqlite3_str_appendf(pOut, "table \"%s\"", pTab->zName);
        return;
      }
    }
    for(k=sqliteHashFirst(&pSchema->idxHash); k; k=sqliteHashNext(k)){
      Index *pIdx = (Index*)sqliteHashData(k);
      if( pIdx->tnum==iRoot ){
        sqlite3_str_appendf(pOut, "index \"%s\" of table \"%s\"", pIdx->zName, pIdx->pTable->zName);
        return;
      }
    }
  }
  sqlite3_str_appendf(pOut, "the b-tree at page %u", iRoot);
}

/* Appends a key, as far as it is known: the rowid, or the values of an index key. */
static void plKeyText(sqlite3_str *pOut, const u8 *aKey, u32 nKey, int bRowid, u8 enc){
  PlBuf buf = {0, 0, 0};
  if( nKey==0 ) return;
  if( bRowid && nKey==8 ){
    sqlite3_str_appendf(pOut, ", rowid %lld", plDecodeRowid(aKey));
  }else if( pl_describe_key(aKey, nKey, enc, &buf)==SQLITE_OK ){
    sqlite3_str_appendf(pOut, ", key %.*s", (int)buf.n, (char*)buf.p);
  }
  pl_buf_free(&buf);
}

/* True for a write outside of BEGIN that was refused because of what other statements, still open,
** have begun to read. COMMIT writes nothing. */
static int plBesideOpen(sqlite3 *db){
  return db->autoCommit && db->nVdbeWrite>0 && db->nVdbeActive>1;
}

/* Appends which file is meant, unless it is the main one. */
static void plAttachedAs(sqlite3_str *pOut, Btree *p){
  if( plDbIndex(p)>0 ) sqlite3_str_appendf(pOut, " (attached as \"%s\")", plDbName(p));
}

/* With this many of the last conflicts on one key, it is a hot row. */
#define PL_ALIKE_HOT 4

static char *plConflictText(Btree *p, const PlConflict *pC){
  sqlite3_str *pOut = sqlite3_str_new(0);
  const char *zRead = "after this transaction read it";
  int bRowid = 0;
  sqlite3_str_appendall(pOut, "database is locked: ");
  if( (pC->isSchema & 1) && pC->iRoot ){
    sqlite3_str_appendall(pOut, "conflict on ");
    plRootName(pOut, p, pC->iRoot, &bRowid);
    plAttachedAs(pOut, p);
    sqlite3_str_appendall(pOut, ": it was changed in bulk");
    zRead = "after this transaction read it or wrote to it";
  }else if( pC->isSchema & 1 ){
    sqlite3_str_appendall(pOut, "conflict on the whole database");
    plAttachedAs(pOut, p);
    sqlite3_str_appendall(pOut, ": the schema or a large part of it was changed, or a connection "
        "that was alone until then has written it,");
  }else if( pC->isSchema & 2 ){
    sqlite3_str_appendall(pOut, "conflict on the whole database");
    plAttachedAs(pOut, p);
    sqlite3_str_appendall(pOut, ": too much was committed to tell whether it concerns this "
        "transaction,");
  }else{
    sqlite3_str_appendall(pOut, "conflict on ");
    plRootName(pOut, p, pC->iRoot, &bRowid);
    plAttachedAs(pOut, p);
    plKeyText(pOut, pC->key, MIN(pC->nKey, (u32)sizeof(pC->key)), bRowid, ENC(p->db));
    if( pC->nAlike>=PL_ALIKE_HOT ) sqlite3_str_appendf(pOut, ", a hot row (%d of the last %d conflicts)", pC->nAlike, pC->nRecent);
    sqlite3_str_appendall(pOut, ": row was changed");
    if( pC->isRange ) zRead = "after this transaction read, or began to read, a range with it";
  }
  if( pC->winnerPid ){
    sqlite3_str_appendf(pOut, " by process %d%s (transaction %llu)", pC->winnerPid,
      pC->isSchema & 4 ? " of another pid namespace" : "", pC->winnerTxn);
  }
  sqlite3_str_appendf(pOut, " %s; %s%s", zRead,
    plBesideOpen(p->db) ? "reset or finish the statements that are open, and retry" :
    pC->isSchema & 1 ? "ROLLBACK and retry, with BEGIN IMMEDIATE if it happens again" : "ROLLBACK and retry",
    plBesideOpen(p->db) || (pC->isSchema & 1) ? "" : "; BEGIN IMMEDIATE avoids this");
  return sqlite3_str_finish(pOut);
}

/* An engine call on this handle has returned rc: keeps its text. Returns rc. */
static int plFail(Btree *p, int rc){
  PlBtree *pPl = p->pPl;
  PlConflict c;
  const char *z;
  if( rc==SQLITE_OK || pPl==0 || pPl->pConn==0 ) return rc;
  plRefused(p->db, rc);
  if( rc==SQLITE_BUSY_SNAPSHOT && pl_conflict(pPl->pConn, &c)==SQLITE_OK ){
    return plStash(p, rc, plConflictText(p, &c));
  }
  z = pl_errmsg(pPl->pConn);
  if( rc==PL_FOLLOWS ) return plKeepText(p, SQLITE_READONLY, sqlite3_mprintf("%s", z ? z : sqlite3ErrStr(SQLITE_READONLY)));
  if( z==0 || z[0]==0 || rc==SQLITE_NOMEM || rc==SQLITE_INTERRUPT ) return rc;
  if( (rc & 0xff)==SQLITE_BUSY ){
    return plStash(p, rc, sqlite3_mprintf("database is locked: %s", z));
  }
  return plStash(p, rc, sqlite3_mprintf("%s", z));
}

/* plFail() for a call that looks something up: SQLITE_DONE is no failure. */
static SQLITE_INLINE int plFound(PlBtree *pPl, int rc){
  return rc==SQLITE_OK || rc==SQLITE_DONE ? rc : plFail(pPl->pBtree, rc);
}

/* Returns the text of a failure with this code, or 0. */
static const char *plStashed(sqlite3 *db, int rc){
  int i;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( p && p->pPl && p->pPl->zStash && p->pPl->rcStash==rc ) return p->pPl->zStash;
  }
  return 0;
}

/* Like sqlite3ErrStr(), but with the text of the failure if there is one. */
static const char *plErrStr(sqlite3 *db, int rc){
  const char *zText = plStashed(db, rc);
  if( zText && (rc & 0xff)==SQLITE_BUSY && pl_wal_is_concurrent()==SQLITE_OK ){
    sqlite3_log(rc, "%s", zText);
    zText = 0;
  }
  return zText ? zText : sqlite3ErrStr(rc);
}

/* A call has failed with BUSY. Programs that do not know the extended code may not repeat after
** SQLITE_BUSY_SNAPSHOT (PLAIT_BUSY_SNAPSHOT=busy): they get SQLITE_BUSY. What SQLite's own code
** refuses in WAL mode keeps its code. */
static SQLITE_NOINLINE PL_COLD void plTellBusy(sqlite3 *db, int *pRcStmt, int *pRc){
  int i, bOurs = 0;
  if( *pRcStmt!=SQLITE_BUSY_SNAPSHOT || pl_snapshot_is_busy()!=SQLITE_OK ) return;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( p && p->pPl && p->pPl->zStash && p->pPl->rcStash==SQLITE_BUSY_SNAPSHOT ){
      p->pPl->rcStash = SQLITE_BUSY;
      bOurs = 1;
    }
  }
  if( bOurs ) *pRcStmt = *pRc = db->errCode = SQLITE_BUSY;
}

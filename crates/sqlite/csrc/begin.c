/*
** begin.c - what a plain BEGIN means, one without a word that names a kind.
**
**   deferred     the transaction waits for the writer's right at its first write, as after BEGIN DEFERRED
**   adaptive     so does it, but for those of which nothing is known and those that begin as others did which were refused then: they take the
**                right at their first statement, as BEGIN IMMEDIATE does, for as long as that pays (database/learned.rs)
**   immediate    BEGIN IMMEDIATE, in every journal mode
**   concurrent   BEGIN CONCURRENT
**
** PRAGMA plait_begin says it for a connection, PLAIT_BEGIN in the environment for those of a process that do not. Where neither does it is
** adaptive if the environment says that the program knows WAL mode alone (PLAIT_JOURNAL_MODE=concurrent), else deferred.
**
** Invariants
**  - BEGIN-1 A transaction takes the right early only where it could begin with a write: its first statement is one of the application's, alone,
**    of a connection that may write, in a transaction that BEGIN has begun and over one file.
**  - BEGIN-2 A transaction that has the right early is one that reads: to SQLite, to the application and to the engine, which records what
**    it reads. It reads the newest commit, durable or not, and takes the right before it writes, which costs nothing if it still has it.
**  - BEGIN-3 Who does not get the right, for whatever reason but an interrupt, begins as one that reads. No SELECT fails for it.
*/

static int plBeginKind(sqlite3 *db){
  if( (db->openFlags & PL_OPEN_BASE) || (db->mDbFlags & DBFLAG_Vacuum) ) return PL_BEGIN_DEFERRED;
  return db->ePlBegin ? db->ePlBegin : pl_begin_kind();
}

/* BEGIN (how as plBeginIsConcurrent() says), COMMIT or ROLLBACK (how 0) has worked. */
static void plAutoCommitDone(sqlite3 *db, int how){
  int eKind = how==1 ? PL_BEGIN_CONCURRENT : how==2 ? plBeginKind(db) : PL_BEGIN_DEFERRED;
  db->mDbFlags &= ~(u32)(DBFLAG_PlConcurrent|DBFLAG_PlFirst);
  db->iPlFirst = 0;
  db->bPlCrossed = 0;                     /* of the transaction before (whole.c) */
  if( eKind==PL_BEGIN_CONCURRENT ) db->mDbFlags |= DBFLAG_PlConcurrent;
  if( eKind==PL_BEGIN_ADAPTIVE ){
    db->mDbFlags |= DBFLAG_PlFirst;
    db->bPlMet = 1;
  }
}

/* PRAGMA plait_begin = deferred | adaptive | immediate | concurrent. BEGIN is prepared anew: it is compiled as what it means. */
static int plPragmaBegin(sqlite3 *db, const char *zArg, char **pzOut){
  static const char *const azKind[] = { "deferred", "adaptive", "immediate", "concurrent" };
  int i;
  if( zArg ){
    for(i=0; i<ArraySize(azKind) && sqlite3StrICmp(zArg, azKind[i])!=0; i++){}
    if( i==ArraySize(azKind) ){
      *pzOut = sqlite3_mprintf("plait_begin must be deferred, adaptive, immediate or concurrent, not \"%s\"", zArg);
      return SQLITE_ERROR;
    }
    db->ePlBegin = (u8)(PL_BEGIN_DEFERRED + i);
    sqlite3ExpirePreparedStatements(db, 1);
  }
  *pzOut = sqlite3_mprintf("%s", azKind[plBeginKind(db) - PL_BEGIN_DEFERRED]);
  return SQLITE_OK;
}

/* A statement by its text, without what differs from one use of it to the next: values, spaces, comments. Never 0. */
static u64 plTextHash(const char *zSql){
  const u8 *z = (const u8*)zSql;
  u64 h = 0xcbf29ce484222325;
  int eToken;
  while( z && z[0] ){
    i64 n = sqlite3GetToken(z, &eToken);
    i64 i;
    switch( eToken ){
      case TK_SPACE: case TK_COMMENT:
        break;
      case TK_INTEGER: case TK_FLOAT: case TK_QNUMBER: case TK_STRING: case TK_BLOB: case TK_VARIABLE:
        h = (h ^ '?') * 0x100000001b3;
        break;
      default:
        for(i=0; i<n; i++) h = (h ^ z[i]) * 0x100000001b3;
        h = (h ^ ' ') * 0x100000001b3;
    }
    z += n;
  }
  h ^= h>>29;
  return h ? h : 1;
}

/* Is the transaction one that a plain BEGIN has begun? A savepoint begins others, and an error ends them, without a word here. */
static int plBegunPlain(sqlite3 *db){
  return !db->autoCommit && !db->isTransactionSavepoint;
}

/* A transaction that was begun by a plain BEGIN is about to read. SQLITE_OK: it has the right (BEGIN-2). SQLITE_DONE: it has not. */
static int plBeginEarly(Btree *p){
  sqlite3 *db = p->db;
  PlBtree *pPl = p->pPl;
  PlWait wait;
  if( !plBegunPlain(db) || db->nVdbeExec!=1 || db->nVdbeActive!=1 || db->nDb>2 || db->init.busy ) return SQLITE_DONE;
  db->mDbFlags &= ~(u32)DBFLAG_PlFirst;
  if( pPl->bReadonly || plFollows(p) || (db->flags & SQLITE_QueryOnly) ) return SQLITE_DONE;
  db->iPlFirst = plTextHash(db->pPlFirst->zSql);
  return pl_begin_early(pPl->pConn, db->iPlFirst, plWait(db, &wait));
}

/* A transaction that has read has asked for the right, to write: with rc. */
static void plNoteFirst(Btree *p, int rc){
  sqlite3 *db = p->db;
  if( db->iPlFirst==0 || !plBegunPlain(db) ) return;
  if( rc==SQLITE_BUSY_SNAPSHOT ) pl_note_first(p->pPl->pConn, db->iPlFirst, PL_FIRST_REFUSED);
}

/* A statement is about to run in a transaction that has read. If it changes the schema, on which everything stands that others read, those
** that begin as this transaction did would be refused if they did the same, as workers of a program do that migrate as they start. They take
** the right as if one had been refused. */
static SQLITE_NOINLINE PL_COLD void plNoteSchemaChange(Vdbe *v){
  sqlite3 *db = v->db;
  Btree *p = db->aDb[0].pBt;
  int i;
  if( !plBegunPlain(db) || !PL_BT(p) || p->pPl->eWrite || v->explain ) return;
  for(i=0; i<v->nOp; i++){
    const VdbeOp *pOp = &v->aOp[i];
    if( pOp->opcode==OP_SetCookie && pOp->p1==0 && pOp->p2==BTREE_SCHEMA_VERSION ){
      pl_note_first(p->pPl->pConn, db->iPlFirst, PL_FIRST_CHANGES);
      return;
    }
  }
}

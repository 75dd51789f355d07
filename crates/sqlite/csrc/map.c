/*
** map.c - the key-value API of plait.h: maps, and the small programs that they run.
**
** Included after vdbeblob.c, whose method it uses: a map owns programs of the virtual machine that
** were not compiled from SQL.
**
**     Transaction   begins, waits, opens the statement journal, and checks that the schema is the
**                   one that the program was made for
**     TableLock
**     Open...       0: the table, or the primary key of one WITHOUT ROWID. 1: the index of a
**                   primary key next to rowids
**     Function      plMapCall(): does the operation, directly on the b-tree cursors
**     Halt          commits
**
** So everything around a statement (busy handling, interrupt, autocommit, hooks, savepoints, what
** concurrent mode does for reads and writes) is the code that every statement runs. An operation
** that reads and writes is one write statement: in autocommit it has the right to write before it
** reads, and conflicts with no other transaction.
**
** Files:   map.c        programs, opening and closing
**          map_shape.c  what a table is to a map
**          map_row.c    keys, rows, records
**          map_range.c  ranges and steps
**          map_write.c  one row is written, directly or through SQL
**          map_hold.c   reads that follow each other in a transaction
**          map_single.c a read that is a transaction of its own
**          map_call.c   the operations on one key, and many
**          map_walk.c   the operations on ranges; cursors
**          map_load.c   the bulk loader
**
** How the function is called again. It returns a number in the program's register 1:
**
**     PLM_DONE    the operation is done
**     PLM_AGAIN   call me again: in a long walk the machine checks for an interrupt in between
**     PLM_ROWID   call me again with a new rowid in register 2; it then starts over with that row
**     a cursor's program always comes to a ResultRow instead, and stays there between moves
**
** Invariants
**  - KV-1 A program is used only if it is not expired, and its Transaction finds cookie and
**    generation of the schema that it was made from: SQLITE_SCHEMA makes it anew. No root page
**    outlives that check but in the transaction of the check (map_hold.c).
**  - KV-2 A map always has a program, even if expired: it keeps the connection from being freed.
**  - KV-3 bBusy while a program of the map runs: a call from within is refused. A cursor that rests
**    on a row is not running.
**  - KV-4 Nothing is written before every check that may refuse the operation for its own reasons
**    (type, size, condition), or else the statement has a journal (bJournal) that undoes it.
**  - KV-5 Writes with side effects (PlShape.bDirect==0, a preupdate hook, NULL for a NOT NULL
**    column) are nested SQL statements. The outer statement has the transaction, and the nested
**    ones never commit.
**  - KV-6 An attempt that failed leaves nothing behind: the next one begins at the beginning
**    (plOpAgain()). Arguments are as they were until the call returns, even if they are what the last
**    read has answered.
**
** Threads: the connection's mutex is held in every call.
*/
#include "../include/plait.h"

typedef struct PlShape PlShape;
typedef struct PlProg PlProg;
typedef struct PlOp PlOp;
typedef struct PlKey PlKey;
typedef struct PlBounds PlBounds;

#define PLM_DONE   0
#define PLM_AGAIN  1
#define PLM_ROWID  (-1)

#define PLM_STRIDE 256   /* rows between two checks for an interrupt */

#define PLM_ROWIDS 0     /* PlShape.eForm: INTEGER PRIMARY KEY. Cursor 0: the table */
#define PLM_KEYED  1     /* WITHOUT ROWID. Cursor 0: the primary key, which holds the row */
#define PLM_INDEX  2     /* rowids, and an index for the key. Cursor 1: the index */

#define PLM_INSERT 0     /* PlMap.apSql[] */
#define PLM_UPDATE 1
#define PLM_DELETE 2

/* What a table is to a map. */
struct PlShape {
  u8 eForm;
  u8 bDirect;            /* writes go to the b-trees */
  u8 bDesc;              /* the key's b-tree is in descending order */
  u8 bNullKey;           /* it may hold rows without a key */
  u8 bBinary;            /* the key's collation compares bytes */
  u8 bNotNull;           /* the value's column has NOT NULL */
  char affKey, affValue;
  u8 iKeyAt;             /* the key's field in a row of two */
  int iValueAt;          /* the value's field in the row */
  char *zTab, *zKey, *zValue;   /* names as the schema has them */
  sqlite3_value *pDefault;      /* value of rows from before the column was added, or 0 */
};

#define PLK_NONE 0       /* plait_map.eHold: see map_hold.c */
#define PLK_SEEN 1
#define PLK_OPEN 2

/* One program, and what it is doing. */
struct PlProg {
  Vdbe *v;
  int iDb;
  int iCookie, iGeneration;   /* of the schema that it was made from */
  int nCsr;              /* its cursors: their root pages, and keys if they are indexes */
  Pgno aRoot[2];
  KeyInfo *apKeyInfo[2]; /* the program's */
  BtCursor *apCsr[2];    /* those of the run in progress */
  FuncDef fn;            /* its Function; pUserData is this */
  plait_map *pMap;
  PlOp *pOp;             /* operation in progress */
  PlShape s;
};

#define PLP_READ   0
#define PLP_WRITE  1
#define PLP_CURSOR 2

/* What a read has answered. */
typedef struct PlAnswers PlAnswers;
struct PlAnswers {
  Mem key, value;
  u8 *aMany;             /* of plait_get_many() */
  i64 nMany, nManyAlloc;
};

struct plait_map {
  sqlite3 *db;
  char *zDb, *zTable;    /* as opened */
  int flags;
  int nRef;              /* 1 for the handle, 1 for each cursor */
  u8 bBusy;              /* KV-3 */
  PlProg aProg[2];       /* PLP_READ, PLP_WRITE */
  sqlite3_stmt *apSql[3];
  PlAnswers aAnswers[2]; /* of the last read, which may be arguments now, and of this one */
  u8 iAnswers;           /* of this one */
  u8 *aRec;              /* the record being made */
  i64 nRecAlloc;
  u8 eHold;              /* PLK_x */
  plait_map *pNextSeen;  /* in sqlite3.pPlSeen */
  BtCursor *apHeld[2];   /* one allocation */
};

/* A key to look for, converted by the column's affinity. */
struct PlKey {
  u8 bInt;               /* PLM_ROWIDS: it can be found, as i */
  u8 bSet;
  i64 i;
  Mem m;
};

struct PlBounds {
  u8 bReady;
  u8 bLo, bHi, bLoOpen, bHiOpen, bEmpty;
  PlKey lo, hi;
};

/* An operation: its arguments, its progress, its results. */
struct PlOp {
  int (*xDo)(PlOp*, int *pNext);
  PlProg *g;
  sqlite3 *db;
  const plait_value *pKey, *pValue, *pExpect;
  plait_value stored;    /* replaces the caller's key in pKey: see plStoredKey() */
  const plait_range *pRange;
  plait_value *pKeyOut, *pValueOut;
  void *pArg;
  i64 n;                 /* a number passed or returned */
  /* sqlite3.nTotalChange when the operation was done, before its own changes are counted; -1:
  ** not done. */
  i64 nTotal;
  int i;                 /* item */
  int eMode;
  u8 bDone;
  u8 bKept;              /* SQL has left the row as it was: RAISE(IGNORE), ON CONFLICT IGNORE */
  u8 bJournal;           /* several b-tree changes: see KV-4 */
  u8 bRowid;             /* register 2 is a new rowid */
  u8 bStarted;
  u8 bShort;             /* reads or writes a few rows and is done */
  int rcMoved;           /* a cursor's move has failed with this: see map_walk.c */
  char *zErr;            /* text for the code that xDo returns, or 0 */
  PlKey key;             /* this and the next member are valid with bSet, or once bReady */
  PlBounds b;
};

/* The cells of keys are large, and are set before they are used. */
static SQLITE_INLINE void plOpInit(PlOp *pOp){
  memset(pOp, 0, offsetof(PlOp, key));
  pOp->key.bSet = pOp->b.lo.bSet = pOp->b.hi.bSet = 0;
  pOp->b.bReady = 0;
}

static SQLITE_INLINE PlAnswers *plAnswers(plait_map *m){
  return &m->aAnswers[m->iAnswers];
}

#include "map_shape.c"
#include "map_row.c"
#include "map_range.c"
#include "map_write.c"

/* The Function of a program. */
static void plMapCall(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg){
  PlProg *g = pCtx->pFunc->pUserData;
  PlOp *pOp = g->pOp;
  int eNext = PLM_DONE;
  int i, rc;
  UNUSED_PARAMETER2(nArg, apArg);
  for(i=0; i<g->nCsr; i++) g->apCsr[i] = g->v->apCsr[i]->uc.pCursor;
  rc = pOp->xDo(pOp, &eNext);
  pOp->bRowid = eNext==PLM_ROWID;
  if( rc==SQLITE_OK ){
    sqlite3VdbeMemSetInt64(pCtx->pOut, eNext);
    if( eNext==PLM_DONE ) pOp->nTotal = pOp->db->nTotalChange;
  }else if( rc==SQLITE_NOMEM ){
    sqlite3_result_error_nomem(pCtx);
  }else{
    sqlite3_result_error(pCtx, pOp->zErr ? pOp->zErr : plErrStr(pOp->db, rc), -1);
    pCtx->isError = rc;
  }
  sqlite3_free(pOp->zErr);
  pOp->zErr = 0;
}

static void plMapOpenCode(Parse *pParse, PlProg *g, int eOpen, Pgno iRoot, int nCol, Index *pPk){
  Vdbe *v = pParse->pVdbe;
  int i = g->nCsr++;
  g->aRoot[i] = iRoot;
  g->apKeyInfo[i] = 0;
  if( pPk==0 ){
    sqlite3VdbeAddOp4Int(v, eOpen, i, (int)iRoot, g->iDb, nCol);
    return;
  }
  sqlite3VdbeAddOp3(v, eOpen, i, (int)iRoot, g->iDb);
  sqlite3VdbeSetP4KeyInfo(pParse, pPk);
  if( !pParse->db->mallocFailed ) g->apKeyInfo[i] = sqlite3VdbeGetLastOp(v)->p4.pKeyInfo;
}

static void plMapCode(Parse *pParse, PlProg *g, int eKind, int iDb, Table *pTab, Index *pPk){
  Vdbe *v = pParse->pVdbe;
  int bWrite = eKind==PLP_WRITE;
  int eOpen = bWrite ? OP_OpenWrite : OP_OpenRead;
  int iCall, iEnd, iAgain;
  sqlite3VdbeAddOp4Int(v, OP_Transaction, iDb, bWrite, pTab->pSchema->schema_cookie, pTab->pSchema->iGeneration);
  sqlite3VdbeChangeP5(v, 1);
  sqlite3VdbeUsesBtree(v, iDb);
  sqlite3VdbeAddOp4(v, OP_TableLock, iDb, pTab->tnum, bWrite, pTab->zName, P4_TRANSIENT);
  g->iDb = iDb;
  g->iCookie = pTab->pSchema->schema_cookie;
  g->iGeneration = pTab->pSchema->iGeneration;
  g->nCsr = 0;
  if( g->s.eForm!=PLM_KEYED ) plMapOpenCode(pParse, g, eOpen, pTab->tnum, pTab->nCol, 0);
  if( g->s.eForm!=PLM_ROWIDS ) plMapOpenCode(pParse, g, eOpen, pPk->tnum, 0, pPk);
  iCall = sqlite3VdbeAddFunctionCall(pParse, 0, 1, 1, 0, &g->fn, 0);
  if( eKind==PLP_CURSOR ){
    sqlite3VdbeAddOp2(v, OP_ResultRow, 1, 1);
    sqlite3VdbeAddOp2(v, OP_Goto, 0, iCall);
  }else{
    iEnd = sqlite3VdbeAddOp1(v, OP_IfNot, 1);
    iAgain = sqlite3VdbeAddOp1(v, OP_IfPos, 1);
    if( g->s.eForm==PLM_INDEX && bWrite ) sqlite3VdbeAddOp2(v, OP_NewRowid, 0, 2);
    sqlite3VdbeJumpHere(v, iAgain);
    sqlite3VdbeAddOp2(v, OP_Goto, 0, iCall);
    sqlite3VdbeJumpHere(v, iEnd);
  }
  sqlite3VdbeAddOp0(v, OP_Halt);
  if( pParse->db->mallocFailed ) return;
  if( bWrite ) sqlite3VdbeCountChanges(v);
  v->bPlRead = eKind==PLP_READ;
  pParse->nVar = 0;
  pParse->nMem = 2;
  pParse->nTab = 2;
  sqlite3VdbeMakeReady(v, pParse);
}

static void plProgClear(PlProg *g){
  sqlite3 *db = g->pMap->db;
  plShapeClear(db, &g->s);
  if( g->v ) (void)sqlite3VdbeFinalize(g->v);
  g->v = 0;
}

/* The table is not there, or is another one than this connection knows: SQL finds out, and reads
** the schema anew. */
static int plMapAskSql(plait_map *m){
  sqlite3_stmt *p = 0;
  char *z = sqlite3_mprintf("SELECT 1 FROM \"%w\".\"%w\" LIMIT 0", m->zDb, m->zTable);
  sqlite3_xauth xAuth = m->db->xAuth;
  int rc;
  if( z==0 ) return SQLITE_NOMEM_BKPT;
  m->db->xAuth = 0;
  rc = sqlite3_prepare_v2(m->db, z, -1, &p, 0);
  if( rc==SQLITE_OK ){
    (void)sqlite3_step(p);
    rc = sqlite3_finalize(p);
  }
  m->db->xAuth = xAuth;
  sqlite3_free(z);
  return rc;
}

/* Makes a program from the schema as this connection knows it. On failure pParse has code
** and text. */
static void plMapCompile(Parse *pParse, PlProg *g, int eKind){
  sqlite3 *db = pParse->db;
  plait_map *m = g->pMap;
  Index *pPk = 0;
  Table *pTab = sqlite3LocateTable(pParse, 0, m->zTable, m->zDb);
  int iDb;
  if( pTab==0 ) return;
  iDb = sqlite3SchemaToIndex(db, pTab->pSchema);
  if( iDb==1 && sqlite3OpenTempDatabase(pParse) ) return;
  plShapeOf(pParse, m, pTab, &g->s, &pPk);
  if( pParse->nErr==0 ) plShapeAuthorize(pParse, m, iDb, &g->s);
  if( pParse->nErr || db->mallocFailed ) return;
  g->v = sqlite3VdbeCreate(pParse);
  if( g->v==0 ) return;
  memset(&g->fn, 0, sizeof(g->fn));
  g->fn.xSFunc = plMapCall;
  g->fn.pUserData = g;
  g->fn.zName = "plait_map";
  plMapCode(pParse, g, eKind, iDb, pTab, pPk);
}

/* Makes a program anew. On failure the old one stays, expired (KV-2), and the connection has
** the text. */
static int plMapBuild(PlProg *g, int eKind){
  plait_map *m = g->pMap;
  sqlite3 *db = m->db;
  PlProg old = *g;
  Parse sParse;
  int nTry, rc = SQLITE_OK;
  for(nTry=0; nTry<2; nTry++){
    memset(&g->s, 0, sizeof(g->s));
    g->v = 0;
    sqlite3ParseObjectInit(&sParse, db);
    sqlite3BtreeEnterAll(db);
    plMapCompile(&sParse, g, eKind);
    sqlite3BtreeLeaveAll(db);
    rc = db->mallocFailed ? SQLITE_NOMEM_BKPT : sParse.rc==SQLITE_DONE ? SQLITE_OK : sParse.rc;
    if( rc==SQLITE_OK && sParse.nErr ) rc = SQLITE_ERROR;
    if( rc ){
      sqlite3ErrorWithMsg(db, rc, sParse.zErrMsg ? "%s" : (char*)0, sParse.zErrMsg);
      plProgClear(g);
    }
    sqlite3DbFree(db, sParse.zErrMsg);
    sParse.zErrMsg = 0;
    sqlite3ParseObjectReset(&sParse);
    if( rc!=SQLITE_ERROR ) break;
    if( nTry==0 && (rc = plMapAskSql(m))!=SQLITE_OK ) break;
  }
  if( rc ){
    *g = old;
    if( g->v ) g->v->expired = 1;
  }else{
    plProgClear(&old);
  }
  return rc;
}

static void plMapDropSql(plait_map *m){
  int i;
  for(i=0; i<3; i++){
    sqlite3_finalize(m->apSql[i]);
    m->apSql[i] = 0;
  }
}

static void plOpClear(PlOp *pOp){
  plKeyClear(&pOp->key);
  plKeyClear(&pOp->b.lo);
  plKeyClear(&pOp->b.hi);
}

/* Forgets how far an attempt has come (KV-6). */
static void plOpAgain(PlOp *pOp){
  sqlite3_free(pOp->zErr);
  pOp->zErr = 0;
  plOpClear(pOp);
  pOp->b.bReady = pOp->bStarted = pOp->bRowid = 0;
}

#include "map_hold.c"
#include "map_single.c"

/* Reports an argument that no call takes; m may be 0. Nothing has been done. */
static int plMapMisuse(plait_map *m){
  if( m ){
    sqlite3_mutex_enter(m->db->mutex);
    sqlite3ErrorWithMsg(m->db, SQLITE_MISUSE, "bad argument: a key is not NULL, a number not NaN, "
        "a size not negative, a pointer not NULL where data is expected; kinds and flags are "
        "those of plait.h");
    sqlite3_mutex_leave(m->db->mutex);
  }
  return SQLITE_MISUSE_BKPT;
}

/* KV-3 */
static int plMapBusy(plait_map *m){
  sqlite3ErrorWithMsg(m->db, SQLITE_MISUSE, "map of \"%s\" is in the middle of another call", m->zTable);
  return SQLITE_MISUSE_BKPT;
}

/* True if a write of a row is tried while others commit: no rowid has to be found for it, it has no
** side effects, and nothing of the application's compares keys (beside.c, BESIDE-1). */
static int plMapBeside(PlProg *g){
  sqlite3 *db = g->pMap->db;
  if( !g->s.bDirect || g->s.eForm==PLM_INDEX || !plMayRunBeside(db) ) return 0;
  if( g->s.eForm==PLM_KEYED && plCollation(g->apKeyInfo[0]->aColl[0])<0 ) return 0;
  return plAllowBeside(db->aDb[g->iDb].pBt);
}

/* Runs an operation as a statement. Afterwards the memory that the operation needed is free. */
static int plMapRun(plait_map *m, int eKind, PlOp *pOp){
  PlProg *g = &m->aProg[eKind];
  int bBeside = eKind==PLP_WRITE && pOp->bShort;
  PlBefore before;
  int nTry, rc;
  if( m->bBusy ) return plMapBusy(m);
  if( eKind==PLP_WRITE && (m->flags & PLAIT_MAP_READONLY) ){
    sqlite3ErrorWithMsg(m->db, SQLITE_READONLY, "map of \"%s\" was opened with PLAIT_MAP_READONLY", m->zTable);
    return SQLITE_READONLY;
  }
  m->bBusy = 1;
  pOp->db = m->db;
  pOp->g = g;
  if( eKind==PLP_READ ) m->iAnswers ^= 1;
  if( eKind==PLP_READ && (m->eHold!=PLK_NONE ? plMapGoOn(m, pOp) : plMapSingle(m, pOp)) ){
    plOpClear(pOp);
    m->bBusy = 0;
    return SQLITE_OK;
  }
  for(nTry=0; nTry<PL_SCHEMA_RETRIES; nTry++){
    rc = SQLITE_OK;
    if( g->v==0 || g->v->expired ){
      plMapLetGo(m->db);
      plMapDropSql(m);
      rc = plMapBuild(g, eKind);
      if( rc ) break;
    }
    g->pOp = pOp;
    if( eKind==PLP_WRITE ) g->v->usesStmtJournal = pOp->bJournal || !g->s.bDirect || m->db->xPreUpdateCallback;
    bBeside = bBeside && plMapBeside(g);
    before = plBefore(m->db);
    pOp->nTotal = -1;
    (void)sqlite3_step((sqlite3_stmt*)g->v);
    if( bBeside && plRefusedBeside(m->db->aDb[g->iDb].pBt, &before, &g->v->rc) ){
      /* Once, and not one of the tries that a schema change has (BESIDE-2). */
      bBeside = 0;
      nTry--;
      (void)sqlite3_reset((sqlite3_stmt*)g->v);
      g->pOp = 0;
    }else{
      /* A progress handler is called once more when all is done, and can undo nothing then; nor is
      ** the result of a WAL hook a reason to repeat the operation. If the count has grown since the
      ** operation's end, its changes are committed. */
      int bDone = pOp->nTotal>=0 && m->db->nTotalChange!=pOp->nTotal;
      if( g->v->rc==SQLITE_INTERRUPT && bDone ) g->v->rc = SQLITE_OK;
      rc = sqlite3_reset((sqlite3_stmt*)g->v);
      g->pOp = 0;
      if( rc!=SQLITE_SCHEMA || bDone ) break;
      g->v->expired = 1;
    }
    plOpAgain(pOp);
  }
  plOpClear(pOp);
  if( eKind==PLP_READ && rc==SQLITE_OK ) plMapSeen(m);
  m->bBusy = 0;
  return rc;
}

/* The start and the end of every call. */
static int plMapEnter(plait_map *m){
  if( m==0 ) return SQLITE_MISUSE_BKPT;
  sqlite3_mutex_enter(m->db->mutex);
  return SQLITE_OK;
}
static int plMapLeave(plait_map *m, int rc){
  sqlite3 *db = m->db;
  rc = sqlite3ApiExit(db, rc);
  sqlite3_mutex_leave(db->mutex);
  return rc;
}

/* Flags that create the table. A call may have one of them. */
#define PLM_CREATE (PLAIT_MAP_CREATE_INTEGER|PLAIT_MAP_CREATE_BYTES|PLAIT_MAP_CREATE_TEXT)

static const char *plMapCreate(int flags){
  if( flags & PLAIT_MAP_CREATE_INTEGER ) return "(k INTEGER PRIMARY KEY, v)";
  if( flags & PLAIT_MAP_CREATE_BYTES ) return "(k BLOB PRIMARY KEY, v) WITHOUT ROWID";
  if( flags & PLAIT_MAP_CREATE_TEXT ) return "(k TEXT PRIMARY KEY, v) WITHOUT ROWID";
  return 0;
}

static int plNoRow(PlOp *pOp, int *pNext){
  (void)pOp;
  (void)pNext;
  return SQLITE_OK;
}

/* Drops one reference, and with the last one frees everything. Leaves the mutex: the connection may
** be freed with the last program, whose function is in the map. */
static void plMapRelease(plait_map *m){
  sqlite3 *db = m->db;
  sqlite3_stmt *pLast = 0;
  int bLast = --m->nRef==0, i;
  if( bLast ){
    plMapLetGo(db);
    sqlite3_free(m->apHeld[0]);
    plMapDropSql(m);
    pLast = (sqlite3_stmt*)m->aProg[PLP_READ].v;
    m->aProg[PLP_READ].v = 0;
    plProgClear(&m->aProg[PLP_READ]);
    plProgClear(&m->aProg[PLP_WRITE]);
    for(i=0; i<ArraySize(m->aAnswers); i++){
      sqlite3VdbeMemRelease(&m->aAnswers[i].key);
      sqlite3VdbeMemRelease(&m->aAnswers[i].value);
      sqlite3_free(m->aAnswers[i].aMany);
    }
    sqlite3_free(m->aRec);
    sqlite3_free(m->zDb);
    sqlite3_free(m->zTable);
  }
  sqlite3_mutex_leave(db->mutex);
  sqlite3_finalize(pLast);
  if( bLast ) sqlite3_free(m);
}

/* A map failed to open: makes its table if there is none, and tries once more in any case. Others may
** have made the table meanwhile; one that is no map is refused again, with the same text. */
static int plMapMake(plait_map *m, const char *zForm, PlOp *pOp){
  sqlite3 *db = m->db;
  int rc = plMapAskSql(m);
  if( rc==SQLITE_ERROR ){
    char *z = sqlite3_mprintf("CREATE TABLE IF NOT EXISTS \"%w\".\"%w\"%s", m->zDb, m->zTable, zForm);
    rc = z ? sqlite3_exec(db, z, 0, 0, 0) : SQLITE_NOMEM_BKPT;
    sqlite3_free(z);
  }
  return rc ? rc : plMapRun(m, PLP_READ, pOp);
}

SQLITE_API int plait_map_open(sqlite3 *db, const char *zDb, const char *zTable, int flags, plait_map **ppMap){
  plait_map *m;
  PlOp op;
  const char *zForm = plMapCreate(flags);
  int i, rc;
  if( ppMap==0 ) return SQLITE_MISUSE_BKPT;
  *ppMap = 0;
  if( !sqlite3SafetyCheckOk(db) || zTable==0 ) return SQLITE_MISUSE_BKPT;
  if( (flags & ~(PLAIT_MAP_READONLY|PLM_CREATE)) || ((flags & PLM_CREATE) & ((flags & PLM_CREATE)-1)) ) return SQLITE_MISUSE_BKPT;
  sqlite3_mutex_enter(db->mutex);
  m = sqlite3MallocZero(sizeof(*m));
  if( m ){
    m->db = db;
    m->flags = flags;
    m->nRef = 1;
    m->aProg[0].pMap = m->aProg[1].pMap = m;
    m->zDb = sqlite3_mprintf("%s", zDb ? zDb : "main");
    m->zTable = sqlite3_mprintf("%s", zTable);
    for(i=0; i<ArraySize(m->aAnswers); i++){
      sqlite3VdbeMemInit(&m->aAnswers[i].key, db, MEM_Null);
      sqlite3VdbeMemInit(&m->aAnswers[i].value, db, MEM_Null);
    }
  }
  if( m==0 || m->zDb==0 || m->zTable==0 ){
    rc = SQLITE_NOMEM_BKPT;
    sqlite3Error(db, rc);
  }else{
    plOpInit(&op);
    op.xDo = plNoRow;
    if( sqlite3FindDbName(db, m->zDb)<0 ){
      rc = SQLITE_ERROR;
      sqlite3ErrorWithMsg(db, rc, "unknown database %s", m->zDb);
    }else{
      rc = plMapRun(m, PLP_READ, &op);
    }
    if( rc==SQLITE_ERROR && zForm ) rc = plMapMake(m, zForm, &op);
  }
  rc = sqlite3ApiExit(db, rc);
  if( rc && m ){
    plMapRelease(m);
    return rc;
  }
  *ppMap = m;
  sqlite3_mutex_leave(db->mutex);
  return rc;
}

SQLITE_API int plait_map_close(plait_map *m){
  if( m==0 ) return SQLITE_OK;
  sqlite3_mutex_enter(m->db->mutex);
  if( m->bBusy ){
    int rc = plMapBusy(m);
    sqlite3_mutex_leave(m->db->mutex);
    return rc;
  }
  plMapRelease(m);
  return SQLITE_OK;
}

#include "map_call.c"
#include "map_walk.c"
#include "map_load.c"

/*
** dispatch.h - handles and cursors of the concurrent mode, as seen from btree.c on.
**
** The spliced amalgamation includes this file before btree.c, after btreeInt.h and pl_stock.h.
** Everything here is private to the amalgamation's one translation unit.
**
** PlBtree    is attached to the stock Btree (field pPl). A handle that never met a concurrent file
**            has none. PL_BT(p) is true only while the handle is attached to a live session
**            (pConn!=0).
** PlFacade   is what the VDBE allocates for a cursor: the stock BtCursor (the "facade") and one
**            pointer. The upper half of the byte hints says which operations of the cursor come to
**            our code: with PL_CSR(p) seeks and writes (the handle was attached when the cursor
**            was opened), with PL_NEXT(p) and PL_PREV(p) steps, with PL_ROW(p) reads of the row. A
**            cursor whose b-tree has no overlay, and one on the exclusive path, is a stock cursor
**            but for PL_CSR, and but for steps while the start of a step has to be recorded.
** PlCursor   is the rest of a facade, pooled per handle: the stock cursor on the base while that is
**            not the facade itself, the position in the merge of base and overlay, and what the
**            cursor has read.
**
** Threads: as in stock SQLite, all of these belong to the connection whose mutex is held.
*/
#ifndef PLAIT_DISPATCH_H
#define PLAIT_DISPATCH_H
#include "engine.h"

#if defined(__GNUC__)
# define PL_UNLIKELY(X) __builtin_expect(!!(X),0)
# define PL_COLD __attribute__((cold))
# define PL_HOT __attribute__((hot))
#else
# define PL_UNLIKELY(X) (X)
# define PL_COLD
# define PL_HOT
#endif

typedef struct PlBtree PlBtree;
typedef struct PlCursor PlCursor;
typedef struct PlFacade PlFacade;
typedef struct PlReads PlReads;
typedef struct PlSelf { u64 iRootDev, iRootIno; u32 iUser; } PlSelf;

#define PLH_Facade        0x80        /* BtCursor.hints: the first member of a PlFacade */
#define PLH_Next          0x40        /* its steps forward are ours */
#define PLH_Prev          0x20        /* its steps backward are ours */
#define PLH_Row           0x10        /* reads of its row are ours */
#define PLH_Front         (PLH_Next|PLH_Prev|PLH_Row)
/* sqlite3.openFlags: a hidden connection, always on SQLite's own path. */
#define PL_OPEN_BASE      0x20000000
/* sqlite3.mDbFlags: the open transaction was begun with BEGIN CONCURRENT. */
#define DBFLAG_PlConcurrent 0x01000000
/* sqlite3.mDbFlags: a plain BEGIN that adapts awaits its first statement (begin.c). */
#define DBFLAG_PlFirst    0x02000000
/* sqlite3.mDbFlags: the transaction that begins is a backup's, which writes pages. */
#define DBFLAG_PlPages    0x04000000
#define PL_JOURNALMODE    6           /* "concurrent" in azModeName[] of pragma.c */

/* One handle. Invariants:
**  - HANDLE-1 eWrite!=0 or bExcl implies a snapshot and a base read (or, if bExcl, write)
**    transaction.
**  - HANDLE-2 while bExcl the overlay is empty and every facade is in mode PLC_PASS, unless it was
**    tripped (CURSOR_FAULT).
**  - HANDLE-3 bTrack implies an explicit transaction that does not hold the writer's right (TXN-2).
**  - HANDLE-4 while bExcl, a pinned facade (BTCF_Pinned) in state REQUIRESEEK implies bPinned. */
struct PlBtree {
  PlConn *pConn;          /* attached session, or 0 */
  Btree *pBtree;          /* back pointer */
  PlCursor *pCsr;         /* open facade cursors */
  PlCursor *pPool;        /* closed ones, for reuse */
  int nPool;
  u8 eWrite;              /* 0, PL_WRITE_QUEUED or PL_WRITE_OPTIMISTIC */
  u8 bExcl;               /* exclusive: stock SQLite holds a write transaction on the base */
  u8 bStamped;            /* exclusive: the header stamp is in the transaction */
  u8 bPinned;             /* exclusive: escalation has moved a pinned cursor (HANDLE-4) */
  u8 bTripped;            /* a tripped blob handle is in no list of stock code (blob.c) */
  u8 bBeside;             /* autocommit: the next write is tried without the right (beside.c) */
  u8 bWrote;              /* this transaction has changed something */
  u8 bCleared;            /* it has emptied a b-tree: a write even if that had no rows */
  u8 bForWrite;           /* the snapshot includes commits that are not durable yet (COMMIT-3) */
  u8 bTrack;              /* record reads point by point and range by range */
  u8 bUsed;               /* something was read in this snapshot, which therefore stays (pages.c) */
  u8 bRows;               /* a table other than the schema was opened in it */
  u8 bCopies;             /* exclusive because of a backup or an image (pages.c) */
  u8 bBaseOnly;           /* this read transaction sees a freshly merged base alone */
  u8 bLooked;             /* pages were looked at: every b-tree counts as read as a whole */
  u8 bStayed;             /* the first look followed a read: pages may lack what is not merged */
  u32 iTorn;              /* when its transaction was torn, or 0 (WHOLE-2 in whole.c) */
  u8 eCounted;            /* PLN_x: were pages of the base counted in this read transaction? */
  u8 bCopy;               /* sqlite3_serialize() runs */
  u8 bTellHook;           /* the application's sqlite3_wal_hook() is due for a commit */
  u8 bMade;               /* CommitPhaseOne has committed, CommitPhaseTwo follows */
  u8 bPart;               /* part of a COMMIT over several files; has the right (several.c) */
  u8 bPrepared;           /* it is prepared: the super-journal decides */
  u8 bLeft;               /* PRAGMA journal_mode has just taken the file out of concurrent mode */
  u8 bMaintain;           /* a commit happened: pl_maintain is due at the end */
  u8 bNoWait;             /* a read that meets a lock fails at once (map_single.c) */
  u8 bReadonly;           /* attached for reading only */
  u8 bJoin;               /* the handle is to join, not to stay alone (alone.c) */
  u8 bLocal;              /* checked once: nothing about the file keeps it from being alone */
  Pgno iLookedUp;         /* root of sqlite_sequence if AUTOINCREMENT has read it, or 0 (rowid.c) */
  int nBegun;             /* 1 + statements running when the last began in this snapshot, or 0 */
  u8 bAlone;              /* the handle has worked alone (alone.c) */
  u16 nAlone;             /* transactions alone or visiting; PL_ALONE_WRITE for each that writes */
  u8 nVisit;              /* transactions while visiting (alone.c) */
  u8 bAsksLocks;          /* the system can report that locks of this process are gone (fits.c) */
  u8 bAway;               /* the file is no longer under its name (fits.c) */
  u8 bNamed;              /* plRefuseMoved() has just found it there */
  PlSelf self;            /* this process when the handle met a concurrent file (message.c) */
  u32 msFile, msName;     /* when the file, and its name, were last checked */
  int msWaited;           /* how long this statement has waited for the writer's right */
  u8 eSync;               /* PL_SYNC_x of the user's PRAGMA synchronous */
  u32 iRun;               /* number of the last run of rows that a cursor has deleted in passing */
  int nSavepoint;         /* savepoints open in the write transaction, the statement's included */
  u32 nCommit;            /* commits of this handle since it was attached */
  u32 nBackupCommit;      /* nCommit at the last step of a backup */
  Pgno iBackupNext;       /* the page where the next step of the backup is expected */
  u32 nBackupOver;        /* times that the backup has started over since its first step */
  u32 iJoined;            /* data_version when the handle was attached */
  u64 nPassWrite;         /* exclusive: entries written since escalation */
  u64 nPassByte;          /* and their bytes */
  PlTouched changed;      /* exclusive: b-trees that the transaction has changed (STOCK-3) */
  u32 nPageBefore;        /* exclusive: pages that the pager had written when it began */
  u8 aVers[16];           /* exclusive: bytes 24..39 of the base when it began */
  int rcBroken;           /* not 0: escalation or recording a read failed: only ROLLBACK goes on */
  u32 nWalk;              /* cost of reading past memtables, not yet reported, in steps (step.c) */
  int nRowid;
  PlRowid aRowid[64];     /* rows that were looked up, not yet passed to the engine */
  Pgno *aCoarse;          /* roots that autocommit statements have read, as a whole */
  int nCoarse, nCoarseAlloc;
  u8 *aScratch;           /* TransferRow: record on its way into a facade */
  i64 nScratch;
  i64 nScratchAlloc;
  int rcStash;            /* the code that zStash explains */
  char *zReference;       /* the name that a super-journal lists for this file, or 0 */
  int rcSuper;            /* the super-journal is gone, but its folder could not be synced */
  char *zStash;           /* text for sqlite3_errmsg, or 0 */
};

/* What a cursor has read since its last seek and has not passed to the engine yet (readset.c). */
struct PlReads {
  u8 eKind;               /* PLR_x */
  u8 bLoose;              /* an inexact seek whose landing has not been used */
  i8 iSide;               /* of a loose landing: <0 it is smaller than the key, >0 larger */
  i8 iTail;               /* +1: hi is the current row; -1: lo is; 0: both fixed */
  u8 bLoInf, bHiInf;      /* unbounded sides */
  u8 bAfter;              /* the seek key means "after everything with this prefix" */
  u8 bEqual;              /* it was an equality probe */
  /* Of a point: the step (+1 or -1) that reaches it from the landing, or 0. */
  i8 iStep;
  i64 iLo, iHi;           /* bounds of a table */
  PlBuf lo, hi;           /* bounds of an index */
};

/* One facade cursor. Invariants:
**  - CURSOR-1 eMode==PLC_PURE: the facade is a stock cursor on the base (pIn==pOut) in state VALID
**    or INVALID, without PLH_Row. With bTrack it has PLH_Next (PLH_Prev), unless the pending range
**    follows it forward (backward) or ends where nothing follows.
**  - CURSOR-2 eMode==PLC_PASS: the facade is a stock cursor of an exclusive transaction
**    (pIn==pOut), without any of PLH_Front.
**  - CURSOR-3 eMode==PLC_MERGE: all of PLH_Front is set, the stock cursor is inner (pIn==&inner) or
**    not open (pIn==0), and ePos, K, eBase and eOver are correct:
**      facade VALID       ePos==POS_ROW
**      facade REQUIRESEEK ePos==POS_ROW, the row must be looked up again before use
**      facade SKIPNEXT    any ePos but POS_ROW and POS_NONE: the row that was here is gone
**      facade INVALID     any ePos but POS_ROW: a gap that Next, Previous and Eof can start from,
**                         or POS_NONE
**      facade FAULT       tripped
**  - CURSOR-4 K (iKey, or plKey()) is not in memory that an own write of the same key could free,
**    unless the facade is VALID. */
struct PlCursor {
  BtCursor *pOut;         /* the facade */
  PlCursor *pNext;        /* next of PlBtree.pCsr or pPool */
  PlCursor **ppPrev;      /* what points to this one */
  PlBtree *pPl;
  BtCursor *pIn;          /* the stock cursor: pOut, &inner, or 0 while not open */
  u8 eMode;               /* PLC_x */
  u8 ePos;                /* POS_x */
  u8 eSrc;                /* SRC_x: where the row comes from */
  u8 eBase;               /* PLB_x: where the stock cursor is */
  u8 eOver;               /* PLO_x: where the iterator is */
  u8 bWrite;              /* opened for writing */
  u8 bKey;                /* key holds K */
  u8 bBaseKey;            /* baseKey holds the key of the stock cursor's row */
  u8 bRec;                /* aRec holds the record of K */
  u8 bShape;              /* aShape is computed */
  u8 bCustom;             /* an application-defined collation: exclusive path only */
  u8 bQuiet;              /* AUTOINCREMENT reads sqlite_sequence: not recorded */
  u8 bSeeked;             /* PLC_PASS: positioned by a seek of this mode */
  u8 bHeld;               /* while it is open no write happens, no snapshot moves (map_hold.c) */
  u8 bTripRow;            /* tripped blob handle: iKey is the row that it was on */
  u8 eRun;                /* RUN_x: where it is in the run of rows that it deletes in passing */
  u32 iRun;               /* number of that run */
  i64 iKey;               /* K of a table */
  u8 bNewRowid;           /* iNewRowid came from the shared counter */
  i64 iNewRowid;          /* last automatic rowid given out through this cursor */
  u8 bNoRowid;            /* plNewRowidCandidate: no row is visible; otherwise */
  i64 iMaxRowid;          /* the largest visible rowid */
  PlEntry cur;            /* the row, when eSrc==SRC_OVER */
  PlEntry look;           /* the entry that the iterator is on, when not at K */
  UnpackedRecord *pLook;  /* index: room for the key fields of look's record, or 0 */
  RecordCompare xLook;    /* compares a record with pLook */
  u8 bLook;               /* pLook holds the fields of look */
  PlIter *pIter;
  PlIter *pSpare;         /* iterator of a closed facade, to be reused */
  PlBuf key;              /* encoded K of an index */
  PlBuf baseKey;          /* encoded key of the stock cursor's row */
  PlBuf newKey;           /* encoded key of an entry being inserted */
  u8 *aRec;               /* record of K: the row to seek back to */
  u32 nRec;
  u64 nRecAlloc;
  u8 *aTmp;               /* payload that was not on one page */
  u64 nTmpAlloc;
  u8 *aShape;             /* PL_COLL_x|PL_FIELD_DESC per key field */
  int nShape, nShapeAlloc;
  PlReads rd;
  BtCursor inner;         /* room for the stock cursor while the facade is the front of a merge */
};

struct PlFacade {
  BtCursor outer;         /* must be first */
  PlCursor *pX;           /* valid only with PLH_Facade */
};

/* What page 1 says of the mode. PL_MARKED: the file is in concurrent mode. PL_FENCED: committed
** rows may be outside the base. PL_RESTING_REPLICA: only a follower writes it (follows.c). */
#define PL_MARKED(a) ((a)[19]>=2 && get4byte(&(a)[72])!=0)
#define PL_FENCED(a) ((a)[18]==3 && (a)[19]==3 && get4byte(&(a)[72])!=0)
#define PL_RESTING_REPLICA(a) ((a)[18]==3 && (a)[19]==2 && get4byte(&(a)[72])!=0)
/* Attach.c: like PL_FENCED, and true under a lowered fence for a handle that has the WAL open. */
static int plFenced(BtShared *pBt);
static int plMayLeaveWal(BtShared *pBt);

/* A reader with a custom busy handler retries this long, then calls the handler. */
#define PL_HANDLER_GRACE_MS 100
/* Any other reader retries at least this long on the base's own locks before BUSY. */
#define PL_BASE_RETRY_MS 3000

#define PLC_PURE   0
#define PLC_MERGE  1
#define PLC_PASS   2

#define POS_NONE   0      /* nowhere */
#define POS_ROW    1      /* on the row with key K */
#define POS_GONE   2      /* where K would be; there is no such row, or no longer */
#define POS_BEFORE 3      /* before everything that has K as prefix */
#define POS_AFTER  4      /* after everything that has K as prefix */

#define RUN_NONE   0      /* nowhere known */
#define RUN_GONE   1      /* where it has deleted the last row of the run */
#define RUN_NEXT   2      /* on the row next to it */

#define SRC_BASE   0
#define SRC_OVER   1

#define PLB_UNSYNC 0      /* unknown: seek to K first */
#define PLB_AT     1      /* on the base's entry with key K */
#define PLB_FWD    2      /* on the first base entry after the position */
#define PLB_BWD    3      /* on the last base entry before the position */
#define PLB_ENDF   4      /* no base entry is after the position */
#define PLB_ENDB   5      /* no base entry is before the position */
#define PLB_NONE   6      /* the base has no entry at all */

#define PLO_UNSYNC 0      /* like PLB_x for the overlay */
#define PLO_AT     1
#define PLO_FWD    2
#define PLO_BWD    3
#define PLO_ENDF   4
#define PLO_ENDB   5

#define PLR_NONE   0
#define PLR_POINT  1      /* one key: iLo or lo */
#define PLR_PREFIX 2      /* index: everything that has lo as prefix */
#define PLR_ROW    3      /* index: the current row's key, not encoded yet */
#define PLR_RANGE  4      /* lo..hi */

#define PLV_LOOK 0        /* plWholeView(): what the caller needs, see pages.c */
#define PLV_COPY 1
#define PLV_PAGES 2
#define PLV_COUNT 3

#define PLN_NO    0       /* PlBtree.eCounted: pages were not counted, */
#define PLN_FIRST 1       /* they were counted as the first read, */
#define PLN_LATER 2       /* or after another read */

/* True if a connection has anything to do with concurrent files. It has from the moment when one of
** its handles gets a concurrent side (plSide()), or a BEGIN awaits its first statement. Until then
** SQLite's own code runs its statements and COMMITs. */
#define PL_MET(DB) PL_UNLIKELY((DB)->bPlMet!=0)
#define PL_BT(p)   PL_UNLIKELY((p)->pPl!=0 && (p)->pPl->pConn!=0)
#define PL_CSR(p)  PL_UNLIKELY(((p)->hints & PLH_Facade)!=0)
#define PL_NEXT(p) PL_UNLIKELY(((p)->hints & PLH_Next)!=0)
#define PL_PREV(p) PL_UNLIKELY(((p)->hints & PLH_Prev)!=0)
#define PL_STEP(p) PL_UNLIKELY(((p)->hints & (PLH_Next|PLH_Prev))!=0)
#define PL_ROW(p)  PL_UNLIKELY(((p)->hints & PLH_Row)!=0)
#define PL_X(p)    (((PlFacade*)(p))->pX)

/* From here on every map of this connection seeks anew in its next call (map_hold.c). */
static void plMapLetGo(sqlite3 *db);
#define PL_LET_GO(DB) do{ if( PL_UNLIKELY((DB)->pPlSeen!=0) ) plMapLetGo(DB); }while(0)

/* sqlite3.bPlCommitting */
#define PL_UNDERWAY 1    /* a COMMIT is under way */
#define PL_LOST     2    /* it was rolled back in its middle */
#define PL_IN_COMMIT "this connection is in the middle of a COMMIT: a busy handler or a hook may " \
    "only read on it; use another connection"

/* Records that the engine has refused something to the statement that runs (whole.c). */
static SQLITE_INLINE void plRefused(sqlite3 *db, int rc){
  db->aPlRefused[rc & 31] = ++db->nPlRefused;
  db->rcPlRefused = (u8)rc;
  if( db->nPlUpdate ) db->nPlVtab++;
}

/* Small functions of SQLite with one or two callers, which GCC therefore inlines. Our calls of the
** first three and our tests in the last must not change that: every statement runs them. */
static SQLITE_INLINE void clearAllSharedCacheTableLocks(Btree*);
static SQLITE_INLINE int fillInCell(MemPage*, unsigned char*, const BtreePayload*, int*);
SQLITE_PRIVATE SQLITE_INLINE int sqlite3StockBtreeCloseCursor(BtCursor*);
SQLITE_PRIVATE SQLITE_INLINE int sqlite3VdbeMemFromBtreeZeroOffset(BtCursor*, u32, Mem*);

#include "search.h"

#endif /* PLAIT_DISPATCH_H */

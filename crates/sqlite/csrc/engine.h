/*
** engine.h - the boundary between the C shim (crates/sqlite/csrc) and the
** engine (Rust, crates/sqlite/src/ffi).  Everything here is internal: none of
** these names is exported from the shared object.
**
** Conventions
**  - "int" results are SQLite result codes (extended where it says so).  What a call finds goes
**    behind a pointer: SQLITE_OK, it is there; SQLITE_DONE, there is nothing; any other code is a failure, and what
**    the pointer leads to is not to be used. After one pl_errmsg(conn) has a sentence, and pl_conflict()
**    the conflict if the code is SQLITE_BUSY_SNAPSHOT.
**  - Void results: ends, gives back or reports, and has nothing to say about it.
**  - Keys are order-preserving byte strings compared with memcmp, shorter first
**    (see pl_encode_*).  A table key is the rowid, 8 bytes big-endian with
**    the sign bit flipped.  Nothing in the engine knows SQLite's types.
**  - A PlConn is used by one thread at a time (SQLite's connection mutex).
**  - A Rust panic inside any call poisons the database, and the call returns SQLITE_IOERR; so does every later one on
**    the connection, but the void ones. Failed is failed: no code may be taken for "nothing there".
*/
#ifndef PLAIT_ENGINE_H
#define PLAIT_ENGINE_H
#include <stdint.h>
#include <stddef.h>

typedef struct PlConn PlConn;      /* one Btree attached to a concurrent database */
typedef struct PlMarks PlMarks;    /* the locks on the read marks of the base's WAL-index, as this process takes them */
typedef struct PlIter PlIter;      /* ordered walk over the overlay of one root */

/* One overlay entry: a row, an index record, or its tombstone.  rec is the
** original SQLite record; an index tombstone keeps the record of the deleted
** entry.  Pointers live until the next write or rollback through the
** same PlConn, or the end of its snapshot. */
typedef struct PlEntry {
  const uint8_t *key;  uint32_t nKey;
  uint32_t nRec;       const uint8_t *rec;
  uint8_t tombstone;
  uint8_t maximum;        /* in pl_exclusive_replay: a row of sqlite_sequence that AUTOINCREMENT has written */
} PlEntry;

/* What an exclusive transaction has changed. */
#define PL_CHANGED_MAX 12
#define PL_CHANGED_MAXIMA 4
#define PL_CHANGED_ANY (-1)
typedef struct PlTouched {
  int32_t  nRoot;                         /* b-trees of which rows were changed, or PL_CHANGED_ANY: any, or the schema */
  uint32_t aRoot[PL_CHANGED_MAX];
  uint32_t iMaxima;                       /* sqlite_sequence, where AUTOINCREMENT alone has written to it; 0: not */
  int32_t  nMaximum;                      /* rowids there */
  int64_t  aMaximum[PL_CHANGED_MAXIMA];
} PlTouched;

/* What the header of the base says of the mode. */
typedef struct PlHeader {
  uint8_t  marked;        /* bytes 72..75 are not zero: concurrent mode */
  uint8_t  fenced;        /* bytes 18 and 19 are 3 */
  uint8_t  empty;         /* the file has no pages yet */
  uint8_t  textEncoding;  /* 1 utf8, 2 utf16le, 3 utf16be, 0 not set yet */
  uint8_t  fenceInWalAlone; /* fenced, but the database file itself does not say so; asked of the hidden connection alone */
  uint32_t salt;          /* bytes 72..75 */
  uint32_t generation;    /* bytes 76..79: merged through this generation */
  uint64_t cookie;        /* version of the content: a hash of the WAL-index header (salts, mxFrame, frame checksum)
                          ** that this transaction reads; differs after any commit to the base */
} PlHeader;

/* The database file is not the one that the files beside it belong to. */
#define PL_MISFIT 0x7fff0003

/* ---- what Rust calls: a hidden stock connection to the base ------------- */
typedef struct PlBaseOps {
  /* Open a connection that stays on SQLite's own path whatever the header says.
  ** synchronous=FULL, no auto-checkpoint, WAL. *pzErr from sqlite3_mprintf. */
  int  (*xOpen)(const char *zPath, void **ppBase, char **pzErr);
  void (*xClose)(void *pBase);
  void (*xReadMarks)(void *pBase, const PlMarks *);  /* lives as long as pBase; outside any transaction */
  const char *(*xErrmsg)(void *pBase);
  int  (*xHeader)(void *pBase, PlHeader *pOut);      /* in a read transaction of its own */
  int  (*xBegin)(void *pBase);                       /* write transaction at the newest snapshot, schema loaded */
  int  (*xPut)(void *pBase, uint32_t iRoot, const PlEntry *p);     /* insert or replace */
  int  (*xDelete)(void *pBase, uint32_t iRoot, const PlEntry *p);  /* no-op when absent */
  /* Inside a write transaction: whole pages are to be replaced. PL_MISFIT unless pages have nPageByte bytes and the change counter is iCounter. */
  int  (*xReplacePages)(void *pBase, uint32_t nPageByte, uint32_t iCounter);
  int  (*xPutPage)(void *pBase, uint32_t iPage, const uint8_t *aPage);
  int  (*xSetPageCount)(void *pBase, uint32_t nPage); /* after the last of them */
  int  (*xStamp)(void *pBase, const PlHeader *p);    /* inside a write transaction: 18,19,72..79 */
  int  (*xCommit)(void *pBase);                      /* durable when it returns SQLITE_OK */
  void (*xRollback)(void *pBase);
  int  (*xHasUnseen)(void *pBase, int *pbUnseen);    /* does the WAL hold a whole transaction that its index does not show? */
  void (*xWaitAtMost)(void *pBase, int ms);          /* for locks of the file; negative: as at first */
  int  (*xRaiseFence)(void *pBase);                  /* bytes 18 and 19 of the database file itself become 3, on disk */
  int  (*xLowerFence)(void *pBase);                  /* they become 2, in the file alone; SQLITE_BUSY unless the WAL is empty */
  /* mode 0 passive, 2 truncate.  Frames in the WAL, frames checkpointed, bytes of a page. */
  int  (*xCheckpoint)(void *pBase, int mode, uint32_t *pnLog, uint32_t *pnCkpt, uint32_t *pPageSize);
  /* Of a file of the base that a handle has open: its descriptor, until *ppLent is given back; -1 where there is none to borrow (lent.c). */
  int  (*xBorrow)(const char *zPath, void **ppLent);
  int  (*xSyncLent)(void *pLent);                    /* its data: 0, or errno */
  void (*xGiveBack)(void *pLent);
  void (*xTell)(const char *zText);                  /* to the error log */
} PlBaseOps;

/* ---- plait run (report.rs) ------------------------------------------------- */
void pl_report_loaded(void);
void pl_report_opened(void);
void pl_report_concurrent(void);
void pl_report_written(const char *zPath);

struct PlWait;
/* ---- attach, detach ------------------------------------------------------ */
#define PL_ATTACH_THREADS 0x01   /* the engine may start threads of its own */
#define PL_ATTACH_LOCAL 0x02     /* the file is known to be on a file system of this machine */
/* Join the live session of zPath (full path), starting or recovering it when this
** is the first process.  iIndex: the inode of the WAL-index that the handle has open, or 0.  SQLITE_BUSY when another process is at that for longer than the wait allows.  *pzErr is a malloc'ed sentence (free with pl_free). */
int  pl_attach(const PlBaseOps *pOps, const char *zPath, uint64_t iIndex, uint32_t flags, const struct PlWait *, PlConn **ppConn, char **pzErr);
/* Leave.  The last one out merges, unfences and removes the side files; a failure
** there leaves everything for the next recovery and is not an error. */
void pl_detach(PlConn *);
/* The same of a handle that closes: to end, to close the WAL, and to leave, in this order (shm/read_marks.rs, WALINDEX-1). */
typedef struct PlLeaving PlLeaving;
PlLeaving *pl_end(PlConn *);
void pl_leave(PlLeaving *);
/* Does the file with this page 1 go with the WAL, in which these were committed, oldest first, the newest of them brought into the
** file if bBrought? 100 bytes of each. SQLITE_OK or PL_MISFIT. */
#define PL_FIRST_BYTES 100
int  pl_belongs(const uint8_t *aFile, const uint8_t *aWal, uint32_t nWal, int bBrought);
char *pl_misfit(const char *zPath);      /* what is said of PL_MISFIT; malloc'ed */
/* An unmarked file: do living processes use the log beside it, as members of a session of the file that stood here before? */
int  pl_beside(const char *zPath, char **pzErr);
int  pl_check_fork(PlConn *);            /* SQLITE_MISUSE in a child made by fork() */
void pl_free(void *);

/* Conversion.  Enable: the shim has put the base in WAL mode; this checks that the file system and the
** directory will do and that nothing but a log is in the way; then the shim stamps salt (returned) and generation 0. */
int  pl_enable_check(const char *zPath, uint32_t *pSalt, char **pzErr);
int  pl_check_network(const char *zPath, char **pzErr);   /* SQLITE_CANTOPEN on a file system that is refused */
int  pl_check_place(const char *zPath, char **pzErr);     /* the same, and for a file mounted without its folder, a name that is too long, or where this process could not join */
/* Claims the database for this process, by the descriptor of its WAL-index. SQLITE_OK: nobody else has; SQLITE_BUSY: somebody has;
** SQLITE_IOERR: it cannot be told; SQLITE_MISUSE: another copy of the library in this process has. */
int  pl_claim(int hShm);
int  pl_joins_always(void);              /* SQLITE_OK with PLAIT_JOIN=always: no connection works alone (alone.c) */
/* What a plain BEGIN means where its connection has not said: PLAIT_BEGIN, or else adaptive with PLAIT_JOURNAL_MODE=concurrent (begin.c). */
#define PL_BEGIN_DEFERRED   1
#define PL_BEGIN_ADAPTIVE   2
#define PL_BEGIN_IMMEDIATE  3
#define PL_BEGIN_CONCURRENT 4
int  pl_begin_kind(void);
/* SQLITE_OK: the application is told SQLITE_BUSY for SQLITE_BUSY_SNAPSHOT. With PLAIT_BUSY_SNAPSHOT=busy, or else with PLAIT_JOURNAL_MODE=concurrent. */
int  pl_snapshot_is_busy(void);
int  pl_wal_is_concurrent(void);         /* SQLITE_OK with PLAIT_JOURNAL_MODE=concurrent: who asks for WAL gets concurrent mode */
/* Give up commits that are only in the log and accept the base as it is (plait recover --accept-base); nobody has it open. */
int  pl_accept_base(const PlBaseOps *pOps, const char *zPath, char **pzErr);
/* The same with the shim's own table: what the plait command calls. Defined in base.c. */
int  pl_shim_accept_base(const char *zPath, char **pzErr);
/* Disable: like pl_exclusive_begin, but SQLITE_BUSY when others are attached; none can come until pl_disabled.  Afterwards the shim stamps
** an unmarked header on the stock path and, whether that worked or not, calls pl_disabled, which removes the side files and frees conn. */
int  pl_disable_begin(PlConn *, const struct PlWait *);
void pl_disabled(PlConn *);

/* ---- read marks (read_marks.rs) ------------------------------------------ */
/* Valid until pl_detach, or pl_leave; 0 while they are only locked by fcntl. */
int  pl_read_marks(PlConn *, const PlMarks **ppMarks);
/* Has the session this WAL-index, by its inode? SQLITE_BUSY: another one. */
int  pl_marks_index(const PlMarks *, uint64_t iInode);
int  pl_mark_lock_shared(const PlMarks *, int iMark);              /* SQLITE_BUSY: somebody has it exclusively */
void pl_mark_unlock_shared(const PlMarks *, int iMark);
int  pl_mark_lock_exclusive(const PlMarks *, int iFirst, int n);   /* all or, with SQLITE_BUSY, none */
void pl_mark_unlock_exclusive(const PlMarks *, int iFirst, int n);
/* SQLITE_OK: a checkpoint that has written a portion should wait until it is on disk (upkeep/leave.rs). SQLITE_BUSY: it need not.
** *pnSync: what this has left there for the same writer before, 0 at first. */
int  pl_leave_disk(const PlMarks *, uint64_t *pnSync);
void pl_leave_processor(const PlMarks *);                            /* after each page: who waits for the disk has it first */

/* ---- waiting ------------------------------------------------------------- */
typedef struct PlWait {
  int   timeoutMs;                       /* >=0: wait in the kernel this long, then SQLITE_BUSY */
  int (*xBusy)(void *pCtx, int nPrior);  /* timeoutMs<0: custom handler; 0 = give up. Both absent: timeoutMs=0 */
  int (*xInterrupted)(void *pCtx);       /* polled at least every 100 ms; non-zero -> SQLITE_INTERRUPT */
  void *pCtx;
} PlWait;

/* ---- tickets (txn/tickets.rs) --------------------------------------------- */
/* The ticket of the connection's last commit, and the newest whose commit is on disk, with all before it. */
int  pl_ticket(PlConn *, uint64_t *pOwn, uint64_t *pDurable);
/* SQLITE_OK: the ticket's commit is on disk; SQLITE_DONE: not after so many milliseconds, which may be <0 for no end. */
int  pl_wait_durable(PlConn *, uint64_t ticket, int ms, const PlWait *);
/* A descriptor, the caller's to close, that becomes readable when more is on disk. */
int  pl_notify_fd(PlConn *, const PlWait *, int *pFd);

/* ---- snapshots ------------------------------------------------------------ */
#define PL_RETRY 0x7fff0001
/* Call before the base read transaction starts, then start it, read the header, and take. */
int  pl_snapshot_pin(PlConn *, int bLoneRead);   /* bLoneRead: the transaction is a statement that reads, outside of BEGIN */
/* PL_RETRY: end the base read transaction and start over from pin.  forWrite: newest visible commit instead of newest readable. */
int  pl_snapshot_take(PlConn *, const PlHeader *pBase, int forWrite, const struct PlWait *);   /* how long a renewal waits; 0: as its caller */
void pl_snapshot_put_off(PlConn *);      /* it said SQLITE_BUSY, and is called again after a wait: pins nothing meanwhile, but for a renewal */
void pl_snapshot_end(PlConn *);          /* after commit, rollback or reading; also undoes a lone pin. Settles as pl_settle_shown */
/* Changes when another connection's commit has come into view of a snapshot, or bNow: of this call outside of one. */
int  pl_data_version(PlConn *, int bNow, uint32_t *pOut);
/* Right after attaching: it goes on from iVersion. pCookie: PlHeader.cookie at that version, or 0 if the base was fenced then. */
int  pl_data_version_from(PlConn *, uint32_t iVersion, const uint64_t *pCookie);

/* ---- becoming a writer ---------------------------------------------------- */
#define PL_WRITE_QUEUED     1   /* takes the writer's right; with an open snapshot: validates what was read and moves the snapshot to now */
#define PL_WRITE_OPTIMISTIC 2   /* BEGIN CONCURRENT */
#define PL_WRITE_BESIDE     3   /* the same, and if it is refused the caller runs it again with the right: of that nobody else is told */
/* For PL_WRITE_QUEUED without a snapshot: call this first, then pin/take with forWrite=1. */
int  pl_write_begin(PlConn *, int how, const PlWait *);
/* A transaction that may write begins with a statement that reads, of this hash: SQLITE_OK, it had better call pl_write_begin first, since
** others were refused that began so. SQLITE_DONE: it had not. */
int  pl_begins_early(PlConn *, uint64_t iFirst);
#define PL_FIRST_PASSED  0    /* has begun to write, without the right until then, and was not refused */
#define PL_FIRST_REFUSED 1    /* was refused then for what it had read */
#define PL_FIRST_IN_VAIN 2    /* has not got the right early */
#define PL_FIRST_CHANGES 3    /* is going to change the schema, and has others refused */
void pl_note_first(PlConn *, uint64_t iFirst, int what);

/* ---- writes ---------------------------------------------------------------- */
#define PL_ESCALATE 0x7fff0002           /* past the memory budget, or a lone bulk load: become exclusive, then do it on the stock path; nothing was written */
int  pl_put(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey, const uint8_t *pRec, uint32_t nRec, uint32_t nZero);
/* iRun: 0, or the number of a run of rows that a walk deletes while it stands on them: it has met no row since the one before. */
int  pl_delete(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey, const uint8_t *pRec, uint32_t nRec,
               uint32_t iRun);
/* Like pl_put, but at commit the last 8 bytes of the record (big-endian signed integer) become the
** maximum of what is there and what is committed: sqlite_sequence without a hot row. bNew: it was looked for in the whole b-tree and
** not found; it is a conflict if somebody else makes it meanwhile, or another one under this key. */
int  pl_put_max(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey, const uint8_t *pRec, uint32_t nRec, int bNew);
/* Savepoints as sqlite3PagerOpenSavepoint/Savepoint count them: open until n are open; release/rollback i (0-based; -1 = whole transaction). */
int  pl_savepoint_open(PlConn *, int n);
int  pl_savepoint_release(PlConn *, int i);
int  pl_savepoint_rollback(PlConn *, int i);
/* The savepoint of a statement, beside those, by a number that no other statement of the connection has had. pl_statement_rollback closes it too;
** SQLITE_DONE: it is not open (any more). */
int  pl_statement_open(PlConn *, uint64_t id);
int  pl_statement_close(PlConn *, uint64_t id);
int  pl_statement_rollback(PlConn *, uint64_t id);
/* The largest rowid in this transaction's view, or that there is no row (*pbEmpty), if it is known without a search; else SQLITE_DONE. */
int  pl_greatest_rowid(PlConn *, uint32_t iRoot, int *pbEmpty, int64_t *pOut);
/* Next automatic rowid of a table: not below stock, which SQLite would give. pVisibleMax: largest rowid in this transaction's view; NULL for
** an empty table. */
int  pl_new_rowid(PlConn *, uint32_t iRoot, const int64_t *pVisibleMax, int64_t stock, int64_t *pOut);
int  pl_note_rowid(PlConn *, uint32_t iRoot, int64_t rowid);   /* an explicit id was inserted */

/* ---- reads ------------------------------------------------------------------ */
int  pl_has_overlay(PlConn *);                     /* SQLITE_DONE: the base of this snapshot is all that it sees */
int  pl_root_overlay(PlConn *, uint32_t iRoot);    /* SQLITE_DONE: the overlay of this root is empty for this snapshot (own writes included) */
int  pl_get(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey, PlEntry *pOut);   /* SQLITE_OK: entry (maybe tombstone) */
int  pl_iter_new(PlConn *, uint32_t iRoot, PlIter **ppIter);   /* *ppIter: 0, or an iterator of any root that is used again */
void pl_iter_free(PlIter *);
#define PL_SEEK_GE 0
#define PL_SEEK_GT 1
#define PL_SEEK_LE 2
#define PL_SEEK_LT 3
#define PL_SEEK_PREFIX_GT 4   /* first entry after all that have the key as prefix */
#define PL_SEEK_PREFIX_LE 5   /* last entry that has the key as prefix or lies before */
/* All of these: SQLITE_OK and *pOut, or SQLITE_DONE at the end.  Entries include tombstones; one entry per key (the newest visible). nKey=0 with GE: first. */
int  pl_iter_seek(PlIter *, int mode, const uint8_t *pKey, uint32_t nKey, PlEntry *pOut);
int  pl_iter_last(PlIter *, PlEntry *pOut);
int  pl_iter_next(PlIter *, PlEntry *pOut);        /* from the last returned entry; sees own writes made meanwhile */
int  pl_iter_prev(PlIter *, PlEntry *pOut);
/* The walk stands on a tombstone and has seen no row, nor turned, since first was said: SQLITE_OK, it stands on a farther tombstone now, with
** no row between. SQLITE_DONE: none is known. dir>0: forward. */
int  pl_iter_skip(PlIter *, int dir, int first, PlEntry *pOut);
int  pl_iter_skipped(PlIter *);                    /* ... and has come to a row or an end now */

/* Read set.  Cheap no-ops while the connection holds the writer's right. */
int  pl_read_point(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey);
/* As pl_read_point, of n rows of tables. */
typedef struct PlRowid PlRowid;
struct PlRowid { int64_t i; uint32_t iRoot; };
int  pl_read_rowids(PlConn *, const PlRowid *a, uint32_t n);
int  pl_read_prefix(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey);
int  pl_read_range(PlConn *, uint32_t iRoot, const uint8_t *pLo, uint32_t nLo, const uint8_t *pHi, uint32_t nHi);  /* closed; NULL = unbounded */

/* ---- the end of a transaction ------------------------------------------------ */
#define PL_SYNC_OFF 0
#define PL_SYNC_NORMAL 1
#define PL_SYNC_FULL 2
/* How durable the connection's commits, and what else it reports, have to be: pl_commit is told again. */
int  pl_set_level(PlConn *, int sync);
/* The transaction has ended, but the snapshot stays for statements that read: what it was shown is there from now on for whoever begins,
** and under FULL on disk. Cheap when there is nothing of that kind. */
int  pl_settle_shown(PlConn *);
/* Take the writer's right and validate, so that pl_commit cannot conflict (used when there is a commit hook). The snapshot moves to now.
** PL_RETRY: as pl_commit. */
int  pl_commit_prepare(PlConn *, const PlWait *);
/* The COMMIT has not been made, for whatever reason: gives back what pl_commit_prepare, pl_part_begin and a pl_commit that was to be called
** again have taken. The transaction goes on as it was, in the snapshot that it has now. Nothing after pl_part_prepare. */
void pl_commit_undo(PlConn *);
/* SQLITE_OK: committed, and on disk when sync is FULL.  SQLITE_BUSY: may be repeated.  SQLITE_BUSY_SNAPSHOT: conflict, doomed until rollback.
** keepReading: open SELECTs go on; the snapshot moves to this commit. A transaction without writes just ends (waits until what it read is durable).
** PL_RETRY: the own snapshot holds memory that is needed. With all positions saved: end the base read transaction, start over from pin, take
** (forWrite=1; what was read before is the same in it, or it fails with SQLITE_BUSY_SNAPSHOT), and call again. */
int  pl_commit(PlConn *, int sync, int keepReading, const PlWait *);
/* A commit over several files (several.rs), instead of pl_commit. pl_part_begin on each of them: the right, validation, room; results as of
** pl_commit. pl_commit_undo takes it back. pl_part_prepare: on disk, and undecided while the super-journal of this name is there. When that
** is removed, pl_part_commit; else pl_rollback. pl_order: two numbers by whose order every process calls pl_part_begin.
** Of an exclusive transaction: pl_part_begin waits for nobody; pl_part_prepare_pages with what it has changed, after pl_exclusive_header; when the
** super-journal is removed pl_part_decided, then the stock commit, synced whatever `synchronous` says, then pl_exclusive_end. If the stock
** commit fails pl_exclusive_end(.., 0) commits by the pages; before pl_part_decided it rolls back. */
typedef struct PlPages {
  uint32_t iCounter;         /* change counter of page 1 before the transaction */
  uint32_t nPageByte;        /* bytes of a page */
  uint32_t nPage;            /* pages of the database, with the transaction */
  uint32_t nChanged;         /* pages that xNext hands out, by ascending number */
  int (*xNext)(void *pCtx, uint32_t *piPage, const uint8_t **paPage);   /* *paPage until the next call */
  void *pCtx;
} PlPages;
int  pl_part_begin(PlConn *, const PlWait *);
int  pl_part_prepare(PlConn *, const char *zSuper);
int  pl_part_prepare_pages(PlConn *, const char *zSuper, const PlPages *);
void pl_part_decided(PlConn *);
int  pl_part_commit(PlConn *, int sync, int keepReading);
int  pl_order(PlConn *, uint64_t *aOut);
/* The open write transaction is not to become exclusive as a bulk load. */
int  pl_stay_concurrent(PlConn *);
/* SQLITE_OK: a single write is best tried as PL_WRITE_BESIDE. SQLITE_DONE: it had better wait its turn. */
int  pl_runs_beside(PlConn *);
void pl_rollback(PlConn *);              /* discards writes, gives the right back; the snapshot stays until pl_snapshot_end */
/* Outside any transaction: reading beside memtables has cost nStep since it was told last. The engine may merge for that, in a thread. */
void pl_note_walk(PlConn *, uint32_t nStep);
/* The same: somebody was told how many pages the base has, so many bytes. */
void pl_note_page_count(PlConn *, uint64_t nByte);
/* SQLITE_OK: no other connection of any process has the database open in this session. SQLITE_DONE: one has. */
int  pl_is_lone(PlConn *);
int  pl_maintain(PlConn *);   /* outside any transaction, after it ended: merge when due, in a thread if it may start one */
#define PL_FENCE_NONE    0        /* the session has not raised its fence */
#define PL_FENCE_UP      1        /* the database file itself has it */
#define PL_FENCE_LOWERED 2        /* it may have it or not: everything is in the file, and nobody commits before it is raised again */
int  pl_fence(PlConn *, uint32_t *pOut);
int  pl_doomed(PlConn *);                /* SQLITE_BUSY_SNAPSHOT after that code until rollback: writes must fail with it too */

/* ---- the exclusive path -------------------------------------------------------- */
/* What is committed and not in the base of the snapshot, and own writes: entries and their bytes, not less than there are. */
int  pl_unmerged(PlConn *, uint64_t *pnEntry, uint64_t *pnByte);
/* Right + validation + everything merged into the base; nobody commits or merges until pl_exclusive_end.
** Then the shim ends its base read transaction, starts a stock write transaction, replays, and goes on as stock SQLite.
** PL_RETRY: as pl_commit. */
int  pl_exclusive_begin(PlConn *, const PlWait *);
/* Own writes in order, savepoint by savepoint. */
int  pl_exclusive_replay(PlConn *, int (*xSavepoint)(void*, int n), int (*xWrite)(void*, uint32_t iRoot, const PlEntry*), void *pCtx);
/* To be stamped before the stock commit, which is synced if and only if sync is FULL. nWrite, nByte: entries written since the replay.
** The changes: of all of it; none: any. */
int  pl_exclusive_header(PlConn *, int sync, uint64_t nWrite, uint64_t nByte, const PlTouched *, PlHeader *pOut);
void pl_exclusive_not_committed(PlConn *);  /* the stock commit failed, and nothing of it can count later */
/* After the stock commit: pages in the WAL, those of them that are in the file, bytes of a page, and the pages that this transaction has
** written to the WAL. */
void pl_exclusive_wal(PlConn *, uint32_t nLog, uint32_t nCkpt, uint32_t nPageByte, uint32_t nWritten);
/* After the stock commit or rollback; gives the right back, now or with the pl_rollback that has to follow. */
void pl_exclusive_end(PlConn *, int committed, int keepRight);
void pl_wal_written(void);               /* all frames of a transaction are in the WAL, and not in its index */
void pl_base_sync_failed(PlConn *);      /* a sync of the base's files failed: SQLITE_IOERR_FSYNC */
/* Merge what is committed now, outside a transaction (backup, dbstat, serialize...): if bWhole all of it, which may be refused with BUSY while
** others keep some of it in memory, and otherwise as much as can be. */
int  pl_merge_all(PlConn *, int bWhole, const PlWait *);
/* The same, and then xTry with the right to merge held: a checkpoint that waits for nobody. While it returns SQLITE_BUSY it is called
** again, with nothing held in between, until the wait ends: SQLITE_BUSY. Any other code of it but SQLITE_OK is returned. Without
** PlWait xTry has to be PASSIVE: beside an exclusive transaction, which has left nothing to merge, it is called without the right. bTruncate:
** xTry empties the WAL, and the fence is lowered behind it; PL_FENCED_STILL: it is not, since somebody has committed or is about to. */
#define PL_FENCED_STILL 0x7fff0004
int  pl_checkpoint(PlConn *, int bTruncate, const PlWait *, int (*xTry)(void*, const PlMarks*), void *pCtx);

/* ---- key encoding ---------------------------------------------------------------- */
#define PL_COLL_BINARY 0
#define PL_COLL_NOCASE 1
#define PL_COLL_RTRIM  2
#define PL_FIELD_DESC  0x80
/* Fields are bytes: collation | PL_FIELD_DESC.  Both append to *pBuf from offset 0, growing it; the buffer is owned by the caller and released
** with pl_buf_free.  SQLITE_CORRUPT for a malformed record. */
typedef struct PlBuf { uint8_t *p; uint32_t n; uint32_t nAlloc; } PlBuf;
void pl_buf_free(PlBuf *);
int  pl_encode_record(const uint8_t *pRec, uint32_t nRec, const uint8_t *aField, uint32_t nField, uint8_t textEncoding, PlBuf *pBuf);
typedef struct PlValue {
  uint8_t type;                      /* SQLITE_INTEGER 1, FLOAT 2, TEXT 3, BLOB 4, NULL 5 */
  uint32_t n;                        /* bytes of text or blob without nZero */
  uint32_t nZero;                    /* zero bytes that follow the blob */
  const uint8_t *z;
  int64_t i; double r;
} PlValue;
int  pl_encode_values(const PlValue *a, uint32_t n, const uint8_t *aField, uint8_t textEncoding, PlBuf *pBuf);
/* The values of an index key as text, UTF-8 without a zero at its end: ('a', 5), or ('a... of a key that is cut off. */
int  pl_describe_key(const uint8_t *pKey, uint32_t nKey, uint8_t textEncoding, PlBuf *pBuf);

/* ---- visibility --------------------------------------------------------------------- */
typedef struct PlConflict {
  uint32_t iRoot; uint32_t nKey; uint8_t key[64];   /* key truncated to 64 bytes */
  uint8_t isRange;                                    /* what was read was a range */
  uint8_t isSchema;                                   /* bits: 1 an exclusive transaction (DDL, VACUUM, bulk) committed
                                                      ** since, 2 too long ago to tell, 4 winnerPid is of another namespace */
  int32_t loserPid, winnerPid; uint64_t loserTxn, winnerTxn;  int64_t unixMs;
  int32_t nAlike, nRecent;                            /* conflicts on the same key, this one among them, of so many that are remembered */
} PlConflict;
int  pl_conflict(PlConn *, PlConflict *pOut);              /* SQLITE_OK if the last failure was a conflict */
const char *pl_errmsg(PlConn *);                           /* "" if none */
/* plait_status / plait_transactions / plait_conflicts rows: the n-th row's columns as text cells. SQLITE_DONE past the end. */
typedef struct PlCell { uint8_t type; int64_t i; const char *z; } PlCell;   /* type as PlValue: INTEGER, TEXT, NULL */
#define PL_TABLE_STATUS 0          /* name, value */
#define PL_TABLE_TRANSACTIONS 1    /* pid, thread, connection, state, age_ms, waiting_for_pid, waiting_for,
                                   ** pid_namespace */
#define PL_TABLE_CONFLICTS 2       /* time_ms, root, key (hex), is_range, loser_pid, winner_pid, loser_txn, winner_txn,
                                   ** tbl, loser_pid_namespace, winner_pid_namespace */
typedef struct PlRows PlRows;
int  pl_rows_new(PlConn *, int table, PlRows **ppRows);
int  pl_rows_cell(PlRows *, uint32_t row, uint32_t col, PlCell *pOut);
void pl_rows_free(PlRows *);
const char *pl_engine_version(void);
/* Settings, by pragma: *pOut is the value in force; value<0 asks. */
#define PL_SET_BACKGROUND_MERGE 0
#define PL_SET_WAL_LIMIT_BYTES 1       /* cost of a slow reader before commits fail */
int  pl_setting(PlConn *, int which, int64_t value, int64_t *pOut);
#endif

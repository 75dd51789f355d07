/*
** engine.h - the boundary between the C shim (crates/sqlite/csrc) and the engine (Rust,
** crates/sqlite/src/ffi). Everything here is internal: none of these names is exported from the
** shared object.
**
** Conventions
**  - "int" results are SQLite result codes (extended where it says so). A call stores what it finds
**    behind a pointer. SQLITE_OK: it is there. SQLITE_DONE: there is nothing. Any other code is a
**    failure, and the caller must not use what the pointer leads to. After a failure
**    pl_errmsg(conn) has a sentence, and pl_conflict() the conflict if the code is
**    SQLITE_BUSY_SNAPSHOT.
**  - A function without a result ends, releases or reports something, and cannot fail in a way that
**    matters to the caller.
**  - Keys are order-preserving byte strings compared with memcmp, shorter first (see pl_encode_*).
**    A table key is the rowid, 8 bytes big-endian with the sign bit flipped. Nothing in the engine
**    knows SQLite's types.
**  - One thread at a time uses a PlConn (SQLite's connection mutex).
**  - A Rust panic inside any call poisons the database, and the call returns SQLITE_IOERR. So does
**    every later call on the connection that returns a code. A caller must not take any failure for
**    "nothing there".
*/
#ifndef PLAIT_ENGINE_H
#define PLAIT_ENGINE_H
#include <stdint.h>
#include <stddef.h>

typedef struct PlConn PlConn;      /* one Btree attached to a concurrent database */
/* This process's locks on the read marks of the base's WAL-index. */
typedef struct PlMarks PlMarks;
typedef struct PlIter PlIter;      /* ordered walk over the overlay of one root */

/* One overlay entry: a row, an index record, or its tombstone. rec is the original SQLite record;
** an index tombstone keeps the record of the deleted entry. The pointers are valid until the next
** write or rollback through the same PlConn, or the end of its snapshot. */
typedef struct PlEntry {
  const uint8_t *key;  uint32_t nKey;
  uint32_t nRec;       const uint8_t *rec;
  uint8_t tombstone;
  /* In pl_exclusive_replay: a row of sqlite_sequence that AUTOINCREMENT has written. */
  uint8_t maximum;
} PlEntry;

/* What an exclusive transaction has changed. */
#define PL_CHANGED_MAX 12
#define PL_CHANGED_MAXIMA 4
#define PL_CHANGED_ANY (-1)
typedef struct PlTouched {
  /* B-trees of which rows were changed, or PL_CHANGED_ANY. */
  int32_t  nRoot;
  uint32_t aRoot[PL_CHANGED_MAX];
  /* Root of sqlite_sequence if AUTOINCREMENT alone has written to it, or 0. */
  uint32_t iMaxima;
  /* Rowids in aMaximum, which AUTOINCREMENT has written there. */
  int32_t  nMaximum;
  int64_t  aMaximum[PL_CHANGED_MAXIMA];
} PlTouched;

/* What the header of the base says of the mode. */
typedef struct PlHeader {
  uint8_t  marked;        /* bytes 72..75 are not zero: concurrent mode */
  uint8_t  fenced;        /* bytes 18 and 19 are 3; else, when stamped: as at rest, see follows.c */
  uint8_t  empty;         /* the file has no pages yet */
  uint8_t  textEncoding;  /* 1 utf8, 2 utf16le, 3 utf16be, 0 not set yet */
  /* Fenced, but the database file itself does not say so; set by the hidden connection alone. */
  uint8_t  fenceInWalAlone;
  uint32_t salt;          /* bytes 72..75 */
  uint32_t generation;    /* bytes 76..79: merged through this generation */
  /* Version of the content: a hash of the WAL-index header (salts, mxFrame, frame checksum) that
  ** this transaction reads. It differs after any commit to the base. */
  uint64_t cookie;
} PlHeader;

/* The database file is not the one that the files next to it belong to. */
#define PL_MISFIT 0x7fff0003

/* ---- what Rust calls: a hidden stock connection to the base ------------- */
typedef struct PlBaseOps {
  /* Opens a connection that stays on SQLite's own path whatever the header says: synchronous=FULL,
  ** no auto-checkpoint, WAL. *pzErr is from sqlite3_mprintf. */
  int  (*xOpen)(const char *zPath, void **ppBase, char **pzErr);
  void (*xClose)(void *pBase);
  /* Outside any transaction; the marks live as long as pBase. */
  void (*xReadMarks)(void *pBase, const PlMarks *);
  const char *(*xErrmsg)(void *pBase);
  int  (*xHeader)(void *pBase, PlHeader *pOut);      /* in a read transaction of its own */
  /* Starts a write transaction at the newest snapshot, schema loaded. */
  int  (*xBegin)(void *pBase);
  int  (*xPut)(void *pBase, uint32_t iRoot, const PlEntry *p);     /* insert or replace */
  int  (*xDelete)(void *pBase, uint32_t iRoot, const PlEntry *p);  /* no-op when absent */
  /* Inside a write transaction: prepares to replace whole pages. PL_MISFIT unless pages have
  ** nPageByte bytes and the change counter is iCounter. */
  int  (*xReplacePages)(void *pBase, uint32_t nPageByte, uint32_t iCounter);
  int  (*xPutPage)(void *pBase, uint32_t iPage, const uint8_t *aPage);
  int  (*xSetPageCount)(void *pBase, uint32_t nPage); /* after the last xPutPage */
  int  (*xStamp)(void *pBase, const PlHeader *p);    /* inside a write transaction: 18,19,72..79 */
  int  (*xCommit)(void *pBase);                      /* durable when it returns SQLITE_OK */
  /* As xCommit. *pbSummed: *pnPage pages are in the database behind it, and *pSum is the sum of
  ** those that it wrote (pl_sum_page). */
  int  (*xCommitSum)(void *pBase, int *pbSummed, uint32_t *pnPage, uint32_t *pSum);
  void (*xRollback)(void *pBase);
  /* A read transaction at the newest state: its header, bytes of a page, pages. Then any of these,
  ** and its end. */
  int  (*xBeginRead)(void *pBase, PlHeader *pOut, uint32_t *pnPageByte, uint32_t *pnPage);
  int  (*xReadPage)(void *pBase, uint32_t iPage, uint8_t *aPage);
  void (*xEndRead)(void *pBase);
  /* *pbUnseen: the WAL holds a whole transaction that the WAL-index does not show. */
  int  (*xHasUnseen)(void *pBase, int *pbUnseen);
  /* For locks of the file; ms<0: the initial limit. */
  void (*xWaitAtMost)(void *pBase, int ms);
  /* Sets bytes 18 and 19 of the database file itself to 3, on disk. */
  int  (*xRaiseFence)(void *pBase);
  /* Sets them to what they are at rest, in the file alone; SQLITE_BUSY unless the WAL is empty. */
  int  (*xLowerFence)(void *pBase);
  /* Brings them to the disk, of a base at rest. */
  int  (*xSyncLowered)(void *pBase);
  /* mode 0 passive, 2 truncate. Outputs: frames in the WAL, frames checkpointed, bytes of
  ** a page. */
  int  (*xCheckpoint)(void *pBase, int mode, uint32_t *pnLog, uint32_t *pnCkpt, uint32_t *pPageSize);
  /* Borrows the descriptor of a file of the base that a handle has open (lent.c), valid until
  ** xGiveBack(*ppLent). -1: there is none to borrow. */
  int  (*xBorrow)(const char *zPath, void **ppLent);
  int  (*xSyncLent)(void *pLent);                    /* syncs its data: 0, or errno */
  void (*xGiveBack)(void *pLent);
  void (*xTell)(int rc, const char *zText);          /* writes a line to the error log */
} PlBaseOps;

/* ---- plait run (report.rs) ------------------------------------------------- */
void pl_report_loaded(void);
void pl_report_opened(void);
void pl_report_concurrent(void);
void pl_report_written(const char *zPath);

/* ---- events (engine/src/events.rs) ------------------------------------------ */
/* A call has failed with rc, and zText is what the application is told. Notes an event if somebody
** has to mend something. pConn may be 0. */
void pl_failed(const PlBaseOps *pOps, const char *zPath, PlConn *pConn, int rc, const char *zText);
/* Not 0: events may wait. */
int  pl_events_wait(void);
/* Writes them, unless this thread is in a call of the engine. The caller's connection writes nothing
** and holds no lock of SQLite's on a file. */
void pl_events_write(void);

struct PlWait;
/* ---- attach, detach ------------------------------------------------------ */
#define PL_ATTACH_THREADS 0x01   /* the engine may start threads of its own */
#define PL_ATTACH_LOCAL 0x02     /* the file is known to be on a file system of this machine */
/* Joins the live session of zPath (full path), and starts or recovers it when this is the first
** process. aFile: device and inode of the file that the name has just led to, or 0: pl_attach() looks.
** iIndex: the inode of the WAL-index that the handle has open, or 0. SQLITE_BUSY when
** another process starts or recovers the session for longer than the wait allows. *pzErr is a
** malloc'ed sentence (free with pl_free). */
int  pl_attach(const PlBaseOps *pOps, const char *zPath, const uint64_t *aFile, uint64_t iIndex, uint32_t flags, const struct PlWait *, PlConn **ppConn, char **pzErr);
/* Leaves the session. Its last member merges, unfences and removes the side files. If that fails,
** everything stays for the next recovery; the failure is not an error. */
void pl_detach(PlConn *);
/* pl_detach of a handle that closes, in two steps: pl_end, then the handle closes its WAL, then
** pl_leave (shm/read_marks.rs, WALINDEX-1). */
typedef struct PlLeaving PlLeaving;
PlLeaving *pl_end(PlConn *);
void pl_leave(PlLeaving *);
/* Checks whether a file with page 1 aFile belongs to a WAL in which the nWal versions of page 1 at
** aWal were committed, oldest first; bBrought: a checkpoint has brought the newest into the file.
** PL_FIRST_BYTES bytes of each. SQLITE_OK or PL_MISFIT. */
#define PL_FIRST_BYTES 100
int  pl_belongs(const uint8_t *aFile, const uint8_t *aWal, uint32_t nWal, int bBrought);
char *pl_misfit(const char *zPath);      /* the sentence for PL_MISFIT; malloc'ed */
/* For an unmarked file: fails if living processes use the log next to it, as members of a session
** of the file that was here before. */
int  pl_beside(const char *zPath, char **pzErr);
int  pl_check_fork(PlConn *);            /* SQLITE_MISUSE in a child made by fork() */
void pl_free(void *);

/* Conversion. Enable: the shim has put the base in WAL mode. pl_enable_check checks that the file
** system and the directory are suitable and that nothing but a log is in the way. Then the shim
** stamps the salt (returned) and generation 0. */
int  pl_enable_check(const char *zPath, uint32_t *pSalt, char **pzErr);
/* SQLITE_CANTOPEN on a file system that is refused. */
int  pl_check_network(const char *zPath, char **pzErr);
/* The same, and for a file mounted without its folder, a name that is too long, or a place where
** this process could not join. */
int  pl_check_place(const char *zPath, char **pzErr);
/* Claims the database for this process, by the descriptor of its WAL-index. SQLITE_OK: no other
** process has claimed it. SQLITE_BUSY: another one has. SQLITE_IOERR: unknown. SQLITE_MISUSE:
** another copy of the library in this process has. *pbHeld: whether this process holds the claim. */
int  pl_claim(int hShm, int *pbHeld);
/* SQLITE_OK with PLAIT_JOIN=always: no connection works alone (alone.c). */
int  pl_joins_always(void);
/* What a plain BEGIN means where its connection has not said: PLAIT_BEGIN, or else adaptive with
** PLAIT_JOURNAL_MODE=concurrent (begin.c). */
#define PL_BEGIN_DEFERRED   1
#define PL_BEGIN_ADAPTIVE   2
#define PL_BEGIN_IMMEDIATE  3
#define PL_BEGIN_CONCURRENT 4
int  pl_begin_kind(void);
/* SQLITE_OK: the application gets SQLITE_BUSY in place of SQLITE_BUSY_SNAPSHOT. Set by
** PLAIT_BUSY_SNAPSHOT=busy, or else by PLAIT_JOURNAL_MODE=concurrent. */
int  pl_snapshot_is_busy(void);
/* SQLITE_OK with PLAIT_JOURNAL_MODE=concurrent: a program that asks for WAL gets
** concurrent mode. */
int  pl_wal_is_concurrent(void);
/* Gives up commits that are only in the log and accepts the base as it is (plait recover
** --accept-base). No connection may have it open. */
int  pl_accept_base(const PlBaseOps *pOps, const char *zPath, char **pzErr);
/* pl_accept_base with the shim's own table, for the plait command. Defined in base.c. */
int  pl_shim_accept_base(const char *zPath, char **pzErr);
/* The shim's own table, for programs that are linked with it; 0 if SQLite cannot begin. Defined in
** opener.c. */
const PlBaseOps *pl_shim_base_ops(void);
/* Makes bytes 18 and 19 of a base at rest what the mark beside it says, on disk when it returns; a
** fenced base is left alone, but for a lowered fence. For who has made or removed the mark (FOLLOWS-5
** in follows.c). *pzErr is for sqlite3_free(). Defined in heed.c. */
int  pl_shim_heed_mark(const char *zPath, char **pzErr);
/* Disable: like pl_exclusive_begin, but SQLITE_BUSY when others are attached; none can join until
** pl_disabled. After SQLITE_OK the shim stamps an unmarked header on the stock path. Where the
** session is over (*pbOver, 0 before the call), whatever was returned and whether the stamp worked
** or not, it calls pl_disabled, which removes the side files and frees conn. */
int  pl_disable_begin(PlConn *, const struct PlWait *, int *pbOver);
void pl_disabled(PlConn *);

/* ---- read marks (read_marks.rs) ------------------------------------------ */
/* *ppMarks is valid until pl_detach or pl_leave; 0 while read marks are only locked by fcntl. */
int  pl_read_marks(PlConn *, const PlMarks **ppMarks);
/* SQLITE_OK if this inode is that of the session's WAL-index, SQLITE_BUSY if it is another one. */
int  pl_marks_index(const PlMarks *, uint64_t iInode);
/* SQLITE_BUSY: another connection has it exclusively. */
int  pl_mark_lock_shared(const PlMarks *, int iMark);
void pl_mark_unlock_shared(const PlMarks *, int iMark);
/* All or, with SQLITE_BUSY, none. */
int  pl_mark_lock_exclusive(const PlMarks *, int iFirst, int n);
void pl_mark_unlock_exclusive(const PlMarks *, int iFirst, int n);
/* SQLITE_OK: a checkpoint that has written a portion should wait until the portion is on disk
** (upkeep/leave.rs). SQLITE_BUSY: it need not. *pnSync belongs to the engine: the same variable for
** all calls of one checkpoint, 0 at first. */
int  pl_leave_disk(const PlMarks *, uint64_t *pnSync);
/* After each page: threads that waited for the disk get the processor first. */
void pl_leave_processor(const PlMarks *);

/* ---- waiting ------------------------------------------------------------- */
typedef struct PlWait {
  /* >=0: wait in the kernel this long, then SQLITE_BUSY. */
  int   timeoutMs;
  /* With timeoutMs<0: custom handler; 0 = give up. Both absent: timeoutMs=0. */
  int (*xBusy)(void *pCtx, int nPrior);
  /* Polled at least every 100 ms; non-zero -> SQLITE_INTERRUPT. */
  int (*xInterrupted)(void *pCtx);
  void *pCtx;
} PlWait;

/* ---- replicas (replica.rs) ------------------------------------------------- */
/* SQLITE_OK: a mark says that the database at zPath is a replica. SQLITE_DONE: there is none.
** SQLITE_CANTOPEN: it cannot be found out. */
int  pl_is_replica(const char *zPath);
/* The database is a replica, which its follower alone writes: pl_errmsg() has the sentence. */
#define PL_FOLLOWS 0x7fff0005
/* The connection is its follower's. */
void pl_write_as_follower(PlConn *);
/* Why a replica is not written, for pl_free(); 0 if that cannot be said. bRests: its page 1 has
** said that it is one at rest. */
char *pl_replica_refusal(const char *zPath, int bRests);
/* When the primary wrote what the replica has. SQLITE_DONE: it is none. */
int  pl_replica_time(const char *zPath, int64_t *pMs, char **pzErr);
/* The ticket of the newest commit of the primary that the replica has. */
int  pl_replica_ticket(const char *zPath, uint64_t *pTicket, char **pzErr);
/* SQLITE_OK: the replica has the commit of that ticket of the primary. SQLITE_DONE: it had not
** within ms milliseconds; ms<0: no limit. */
int  pl_replica_wait(const char *zPath, uint64_t ticket, int ms, const PlWait *, char **pzErr);

/* ---- tickets (txn/tickets.rs) --------------------------------------------- */
/* Returns the ticket of the connection's last commit, and the newest ticket whose commit is on
** disk, with all before it. */
int  pl_ticket(PlConn *, uint64_t *pOwn, uint64_t *pDurable);
/* SQLITE_OK: the ticket's commit is on disk. SQLITE_DONE: it was not within ms milliseconds; ms<0:
** no limit. */
int  pl_wait_durable(PlConn *, uint64_t ticket, int ms, const PlWait *);
/* Returns a descriptor that becomes readable when more is on disk. The caller closes it. */
int  pl_notify_fd(PlConn *, const PlWait *, int *pFd);

/* ---- snapshots ------------------------------------------------------------ */
#define PL_RETRY 0x7fff0001
/* Announces a snapshot. Call it before the base read transaction starts, then start that, read the
** header, and take. bLoneRead: the transaction is a statement that reads, outside of BEGIN. */
int  pl_snapshot_pin(PlConn *, int bLoneRead);
/* PL_RETRY: end the base read transaction and start over from pin. forWrite: the newest visible
** commit instead of the newest readable. The PlWait bounds the wait of a renewal; 0: the caller's
** wait does. */
int  pl_snapshot_take(PlConn *, const PlHeader *pBase, int forWrite, const struct PlWait *);
/* After SQLITE_BUSY of pl_snapshot_take, before the caller waits and starts over from pin: unpins,
** except in a renewal. */
void pl_snapshot_put_off(PlConn *);
/* After commit, rollback or reading; also undoes a lone pin. Settles as pl_settle_shown. */
void pl_snapshot_end(PlConn *);
/* Returns a number that changes when another connection's commit comes into view of a snapshot, or
** with bNow, of this call outside of one. */
int  pl_data_version(PlConn *, int bNow, uint32_t *pOut);
/* Right after attaching: pl_data_version continues from iVersion. pCookie: PlHeader.cookie at that
** version, or 0 if the base was fenced then. */
int  pl_data_version_from(PlConn *, uint32_t iVersion, const uint64_t *pCookie);

/* ---- becoming a writer ---------------------------------------------------- */
/* Takes the writer's right; with an open snapshot: validates what was read and moves the snapshot
** to now. */
#define PL_WRITE_QUEUED     1
#define PL_WRITE_OPTIMISTIC 2   /* BEGIN CONCURRENT */
/* Like OPTIMISTIC; a refused transaction is no conflict to report, because the caller repeats it
** with the right. */
#define PL_WRITE_BESIDE     3
/* For PL_WRITE_QUEUED without a snapshot: call this first, then pin/take with forWrite=1. */
int  pl_write_begin(PlConn *, int how, const PlWait *);
/* Before the snapshot of a transaction that may write and begins with a statement that reads; iFirst is
** the hash of that statement. SQLITE_OK: it has the writer's right until it ends, or another one needs
** it (RIGHT-10 in database/right.rs), and takes the newest snapshot; to write it calls pl_write_begin as
** any reader. SQLITE_DONE: it has not. Else it was interrupted. */
int  pl_begin_early(PlConn *, uint64_t iFirst, const PlWait *);
/* Began to write and was refused for what it had read. */
#define PL_FIRST_REFUSED 1
/* Is about to change the schema, and others that begin alike would be refused. */
#define PL_FIRST_CHANGES 3
void pl_note_first(PlConn *, uint64_t iFirst, int what);

/* ---- writes ---------------------------------------------------------------- */
/* Past the memory budget, or a lone bulk load; nothing was written. Become exclusive, then repeat
** the write on the stock path. */
#define PL_ESCALATE 0x7fff0002
int  pl_put(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey, const uint8_t *pRec, uint32_t nRec, uint32_t nZero);
/* iRun: 0, or the number of a run of rows that a walk deletes as it passes them: the walk has met
** no row since the last one deleted in the run. */
int  pl_delete(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey, const uint8_t *pRec, uint32_t nRec,
               uint32_t iRun);
/* Like pl_put, but at commit the last 8 bytes of the record (big-endian signed integer) become the
** maximum of their value and the committed one: sqlite_sequence without a hot row. bNew: the row
** was looked for in the whole b-tree and not found. It is a conflict if another transaction makes
** that row, or another one under this key, before the commit. */
int  pl_put_max(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey, const uint8_t *pRec, uint32_t nRec, int bNew);
/* Savepoints as sqlite3PagerOpenSavepoint/Savepoint count them: open opens until n are open;
** release and rollback take i (0-based; -1 = whole transaction). */
int  pl_savepoint_open(PlConn *, int n);
int  pl_savepoint_release(PlConn *, int i);
int  pl_savepoint_rollback(PlConn *, int i);
/* The savepoint of a statement, apart from the counted ones. id: a number that no other statement
** of the connection has had. pl_statement_rollback also closes it; SQLITE_DONE: it is not open. */
int  pl_statement_open(PlConn *, uint64_t id);
int  pl_statement_close(PlConn *, uint64_t id);
int  pl_statement_rollback(PlConn *, uint64_t id);
/* Returns the largest rowid in this transaction's view, or sets *pbEmpty if there is no row, where
** that is known without a search. Else SQLITE_DONE. */
int  pl_greatest_rowid(PlConn *, uint32_t iRoot, int *pbEmpty, int64_t *pOut);
/* Returns the next automatic rowid of a table, not below stock, which SQLite would give.
** pVisibleMax: the largest rowid in this transaction's view; NULL for an empty table. */
int  pl_new_rowid(PlConn *, uint32_t iRoot, const int64_t *pVisibleMax, int64_t stock, int64_t *pOut);
int  pl_note_rowid(PlConn *, uint32_t iRoot, int64_t rowid);   /* an explicit id was inserted */

/* ---- reads ------------------------------------------------------------------ */
/* SQLITE_DONE: the base of this snapshot is all that it sees. */
int  pl_has_overlay(PlConn *);
/* SQLITE_DONE: the overlay of this root is empty for this snapshot (own writes included). */
int  pl_root_overlay(PlConn *, uint32_t iRoot);
/* SQLITE_OK: entry (maybe tombstone). */
int  pl_get(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey, PlEntry *pOut);
/* *ppIter: 0, or an iterator of any root to be reused. */
int  pl_iter_new(PlConn *, uint32_t iRoot, PlIter **ppIter);
void pl_iter_free(PlIter *);
#define PL_SEEK_GE 0
#define PL_SEEK_GT 1
#define PL_SEEK_LE 2
#define PL_SEEK_LT 3
#define PL_SEEK_PREFIX_GT 4   /* first entry after all that have the key as prefix */
/* Last entry that has the key as prefix or is before it. */
#define PL_SEEK_PREFIX_LE 5
/* Each returns SQLITE_OK and *pOut, or SQLITE_DONE at the end. Entries include tombstones; one
** entry per key (the newest visible). nKey=0 with GE: first. */
int  pl_iter_seek(PlIter *, int mode, const uint8_t *pKey, uint32_t nKey, PlEntry *pOut);
int  pl_iter_last(PlIter *, PlEntry *pOut);
/* From the last returned entry; sees own writes made since then. */
int  pl_iter_next(PlIter *, PlEntry *pOut);
int  pl_iter_prev(PlIter *, PlEntry *pOut);
/* For a walk on a tombstone that has met no row and has not turned since the call with first set.
** SQLITE_OK: moves to a farther tombstone, with no row in between. SQLITE_DONE: none is known.
** dir>0: forward. */
int  pl_iter_skip(PlIter *, int dir, int first, PlEntry *pOut);
/* The walk of pl_iter_skip has now come to a row or an end. */
int  pl_iter_skipped(PlIter *);

/* Read set. No-ops while the connection holds the writer's right. */
int  pl_read_point(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey);
/* pl_read_point for n rows of tables. */
typedef struct PlRowid PlRowid;
struct PlRowid { int64_t i; uint32_t iRoot; };
int  pl_read_rowids(PlConn *, const PlRowid *a, uint32_t n);
int  pl_read_prefix(PlConn *, uint32_t iRoot, const uint8_t *pKey, uint32_t nKey);
/* Closed; NULL = unbounded. */
int  pl_read_range(PlConn *, uint32_t iRoot, const uint8_t *pLo, uint32_t nLo, const uint8_t *pHi, uint32_t nHi);

/* ---- the end of a transaction ------------------------------------------------ */
#define PL_SYNC_OFF 0
#define PL_SYNC_NORMAL 1
#define PL_SYNC_FULL 2
/* Sets how durable the connection's commits, and everything else it reports, have to be. pl_commit
** takes the level again. */
int  pl_set_level(PlConn *, int sync);
/* The transaction has ended, but the snapshot stays for statements that read. From now on, what the
** transaction was shown is there for every transaction that begins, and under FULL on disk. Costs
** little if it was shown nothing of that kind. */
int  pl_settle_shown(PlConn *);
/* Takes the writer's right and validates, so that pl_commit cannot conflict (used when there is a
** commit hook). The snapshot moves to now. PL_RETRY: as pl_commit. */
int  pl_commit_prepare(PlConn *, const PlWait *);
/* The COMMIT was not made, for whatever reason: releases what pl_commit_prepare, pl_part_begin and
** a pl_commit that was to be called again have taken. The transaction goes on as it was, in its
** present snapshot. No-op after pl_part_prepare. */
void pl_commit_undo(PlConn *);
/* SQLITE_OK: committed, and on disk when sync is FULL. SQLITE_BUSY: may be repeated.
** SQLITE_BUSY_SNAPSHOT: conflict, doomed until rollback. keepReading: open SELECTs go on; the
** snapshot moves to this commit. A transaction without writes just ends (waits until what it
** read is durable). PL_RETRY: the transaction's own snapshot holds memory that is needed. With
** all positions saved: end the base read transaction, start over from pin, take (forWrite=1;
** what was read before is the same in the new snapshot, or take fails with
** SQLITE_BUSY_SNAPSHOT), and call again. */
int  pl_commit(PlConn *, int sync, int keepReading, const PlWait *);
/* A commit over several files (several.rs), instead of pl_commit.
**
** pl_part_begin on each file: the right, validation, room; results as of pl_commit. pl_commit_undo
** takes it back. pl_part_prepare: the writes are on disk, and undecided while the super-journal
** zSuper exists. When that is removed, pl_part_commit; else pl_rollback. pl_order: two numbers by
** whose order every process calls pl_part_begin.
**
** An exclusive transaction: pl_part_begin does not wait; pl_part_prepare_pages with the changed
** pages, after pl_exclusive_header; when the super-journal is removed pl_part_decided, then the
** stock commit, synced whatever `synchronous` says, then pl_exclusive_end. If the stock commit
** fails, pl_exclusive_end(.., 0) commits by the pages; before pl_part_decided it rolls back. */
typedef struct PlPages {
  uint32_t iCounter;         /* change counter of page 1 before the transaction */
  uint32_t nPageByte;        /* bytes of a page */
  uint32_t nPage;            /* pages of the database after the transaction */
  uint32_t nChanged;         /* pages that xNext hands out, by ascending number */
  /* *paPage is valid until the next call. */
  int (*xNext)(void *pCtx, uint32_t *piPage, const uint8_t **paPage);
  void *pCtx;
} PlPages;
int  pl_part_begin(PlConn *, const PlWait *);
int  pl_part_prepare(PlConn *, const char *zSuper);
int  pl_part_prepare_pages(PlConn *, const char *zSuper, const PlPages *);
void pl_part_decided(PlConn *);
int  pl_part_commit(PlConn *, int sync, int keepReading);
int  pl_order(PlConn *, uint64_t *aOut);
/* Keeps the open write transaction from becoming exclusive as a bulk load. */
int  pl_stay_concurrent(PlConn *);
/* SQLITE_OK: a single write is best tried as PL_WRITE_BESIDE. SQLITE_DONE: it should wait
** its turn. */
int  pl_runs_beside(PlConn *);
/* Discards writes and releases the right; the snapshot stays until pl_snapshot_end. */
void pl_rollback(PlConn *);
/* Outside any transaction: reading past memtables has cost nStep since the last call. The engine
** may merge for that, in a thread. */
void pl_note_walk(PlConn *, uint32_t nStep);
/* Outside any transaction: a statement was told how many pages the base has, nByte in all. */
void pl_note_page_count(PlConn *, uint64_t nByte);
/* SQLITE_OK: no other connection of any process has the database open in this session. SQLITE_DONE:
** one has. */
int  pl_is_lone(PlConn *);
/* Outside any transaction, after one has ended: merges when due, in a thread if it may
** start one. */
int  pl_maintain(PlConn *);
#define PL_FENCE_NONE    0        /* the session has not raised its fence */
#define PL_FENCE_UP      1        /* the database file itself has it */
/* The file may have it or not: everything is in the file, and no process commits before the fence
** is raised again. */
#define PL_FENCE_LOWERED 2
int  pl_fence(PlConn *, uint32_t *pOut);
/* SQLITE_BUSY_SNAPSHOT after that code until rollback: writes must fail with it too. */
int  pl_doomed(PlConn *);

/* ---- the exclusive path -------------------------------------------------------- */
/* Returns an upper bound of the entries, and of their bytes, that are committed but not in the
** snapshot's base, or are own writes. */
int  pl_unmerged(PlConn *, uint64_t *pnEntry, uint64_t *pnByte);
/* Takes the right, validates, and merges everything into the base. No other transaction commits or
** merges until pl_exclusive_end. Then the shim ends its base read transaction, starts a stock write
** transaction, replays, and goes on as stock SQLite. PL_RETRY: as pl_commit. */
int  pl_exclusive_begin(PlConn *, const PlWait *);
/* Passes on own writes in order, savepoint by savepoint. */
int  pl_exclusive_replay(PlConn *, int (*xSavepoint)(void*, int n), int (*xWrite)(void*, uint32_t iRoot, const PlEntry*), void *pCtx);
/* Returns the header to be stamped before the stock commit, which is synced if and only if sync is
** FULL. nWrite, nByte: entries written since the replay. The changes are those of the whole
** transaction; an empty PlTouched means any. */
int  pl_exclusive_header(PlConn *, int sync, uint64_t nWrite, uint64_t nByte, const PlTouched *, PlHeader *pOut);
/* The stock commit failed, and nothing of it can count later. */
void pl_exclusive_not_committed(PlConn *);
/* After the stock commit. nLog: pages in the WAL. nCkpt: those of them that are in the file.
** nWritten: pages that this transaction has written to the WAL. */
void pl_exclusive_wal(PlConn *, uint32_t nLog, uint32_t nCkpt, uint32_t nPageByte, uint32_t nWritten);
/* After the stock commit or rollback: releases the right, now or with the pl_rollback that has
** to follow. */
void pl_exclusive_end(PlConn *, int committed, int keepRight);
/* All frames of a transaction are in the WAL, but not in its index. */
void pl_wal_written(void);
void pl_base_sync_failed(PlConn *);      /* a sync of the base's files failed: SQLITE_IOERR_FSYNC */
/* Merges what is committed now, outside a transaction (backup, dbstat, serialize...). bWhole: all
** of it, which may be refused with BUSY while others keep some of it in memory; otherwise as much
** as possible. */
int  pl_merge_all(PlConn *, int bWhole, const PlWait *);
/* Merges like pl_merge_all, then calls xTry with the right to merge held: a checkpoint that does
** not wait. While xTry returns SQLITE_BUSY it is called again, with nothing held in between,
** until the wait ends: SQLITE_BUSY. Any other failure of xTry is returned. Without PlWait xTry
** has to be PASSIVE: in parallel with an exclusive transaction, which has left nothing to merge,
** it is called without the right. bTruncate: xTry empties the WAL, and the fence is lowered
** after it. PL_FENCED_STILL: the fence is still up, since another transaction has committed or
** is about to. */
#define PL_FENCED_STILL 0x7fff0004
int  pl_checkpoint(PlConn *, int bTruncate, const PlWait *, int (*xTry)(void*, const PlMarks*), void *pCtx);

/* ---- key encoding ---------------------------------------------------------------- */
#define PL_COLL_BINARY 0
#define PL_COLL_NOCASE 1
#define PL_COLL_RTRIM  2
#define PL_FIELD_DESC  0x80
/* pl_encode_* encode a key into *pBuf from offset 0, growing it. The caller owns the buffer and
** releases it with pl_buf_free. Fields are bytes: collation | PL_FIELD_DESC. SQLITE_CORRUPT for a
** malformed record. */
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
/* Returns the values of an index key as text, UTF-8 without a terminating zero: ('a', 5), or ('a...
** for a truncated key. */
int  pl_describe_key(const uint8_t *pKey, uint32_t nKey, uint8_t textEncoding, PlBuf *pBuf);

/* Adds a page to a sum of pages, which begins with 0 and takes them by ascending numbers. */
uint32_t pl_sum_page(uint32_t sum, uint32_t iPage, const uint8_t *aPage, uint32_t nByte);

/* ---- visibility --------------------------------------------------------------------- */
typedef struct PlConflict {
  uint32_t iRoot; uint32_t nKey; uint8_t key[64];   /* key truncated to 64 bytes */
  uint8_t isRange;                                    /* what was read was a range */
  /* Bits: 1 an exclusive transaction (DDL, VACUUM, bulk) committed since, 2 too long ago to tell, 4
  ** winnerPid is of another namespace. */
  uint8_t isSchema;
  int32_t loserPid, winnerPid; uint64_t loserTxn, winnerTxn;  int64_t unixMs;
  /* nAlike: conflicts on this key, this one among them; nRecent: conflicts that are remembered. */
  int32_t nAlike, nRecent;
} PlConflict;
/* SQLITE_OK if the last failure was a conflict. */
int  pl_conflict(PlConn *, PlConflict *pOut);
const char *pl_errmsg(PlConn *);                           /* "" if none */
/* Rows of plait_status, plait_transactions and plait_conflicts: the cells of the n-th row.
** SQLITE_DONE past the end. */
/* Type as PlValue: INTEGER, TEXT, NULL. */
typedef struct PlCell { uint8_t type; int64_t i; const char *z; } PlCell;
#define PL_TABLE_STATUS 0          /* name, value */
/* pid, thread, connection, state, age_ms, waiting_for_pid, waiting_for, pid_namespace */
#define PL_TABLE_TRANSACTIONS 1
/* time_ms, root, key (hex), is_range, loser_pid, winner_pid, loser_txn, winner_txn, tbl,
** loser_pid_namespace, winner_pid_namespace */
#define PL_TABLE_CONFLICTS 2
typedef struct PlRows PlRows;
int  pl_rows_new(PlConn *, int table, PlRows **ppRows);
int  pl_rows_cell(PlRows *, uint32_t row, uint32_t col, PlCell *pOut);
void pl_rows_free(PlRows *);
const char *pl_engine_version(void);
/* Settings, by pragma: sets one unless value<0, and returns the value in force. */
#define PL_SET_BACKGROUND_MERGE 0
#define PL_SET_WAL_LIMIT_BYTES 1       /* cost of a slow reader before commits fail */
int  pl_setting(PlConn *, int which, int64_t value, int64_t *pOut);
#endif

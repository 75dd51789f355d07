/*
** dispatch.c - the dispatch layer at the btree.h boundary.
**
** The spliced amalgamation includes this file after btree.c. There the public functions named in
** the lists below are renamed to sqlite3StockBtreeXxx. All code after this point, and all code
** before it that sees btree.h alone, calls the wrappers.
**
** What happens to every function of btree.h when the handle is attached to a concurrent database
** (PL_BT) or the cursor is a facade (PL_CSR). A: alternatives.txt, generated wrapper; S and R: the
** same, but only for cursors whose steps (PL_NEXT, PL_PREV, PL_STEP for either) or rows (PL_ROW)
** are ours, because the others are stock cursors; H: handwritten.txt, wrapper in csrc; -: stock
** code as it is, because it relies only on what facades and attached handles keep true.
**
**  Open                    H  follows.c: looks for the mark of a replica; a handle becomes
**                             concurrent when a transaction first sees the mark of the mode
**  Close                   H  attach.c: leaves the session after the stock handle is gone
**  SetCacheSize, SetSpillSize, SetMmapLimit, SetPageSize, GetPageSize, MaxPageCount, SecureDelete,
**  GetReserve*, LastPage, GetAutoVacuum, SetAutoVacuum  -  properties of the base
**  SetPagerFlags           H  attach.c: the user's level is for COMMIT; the base is never below
**                             NORMAL, nor is a handle that works alone (alone.c)
**  BeginTrans              H  attach.c finds the mark, transaction.c begins
**  Commit, BeginStmt, TxnState   A  transaction.c
**  CommitPhaseOne, CommitPhaseTwo, Rollback, Savepoint   H  fork.c: not for a handle that a child
**                             has inherited; transaction.c
**  TripAllCursors          A  position.c
**  CreateTable, UpdateMeta  H  exclusive.c: refused for files that cannot be committed together
**                             (several.c); exclusive by nature
**  DropTable, IncrVacuum, SetVersion   A  exclusive.c: exclusive by nature
**  NewDb, CopyFile         -  backup and VACUUM, exclusive by then
**  ClearTable              H  exclusive.c, like CreateTable; write.c: tombstones, or exclusive when
**                             large
**  ClearTableOfCursor      -  ephemeral tables only
**  GetMeta                 -  OP_ReadCookie calls pages.c: BTREE_DATA_VERSION counts commits, not
**                             pages
**  Checkpoint              H  pages.c: merges first; a handle that has not joined releases its
**                             locks between attempts
**  IntegrityCheck          A  pages.c: pages of the base, merged counts
**  IsInBackup, Schema, SchemaLocked, LockTable, GetFilename, GetJournalname, Pager, IsReadonly,
**  ClearCache, Sharable, ConnectionCount, Enter, Leave...   -
**  Cursor                  H  cursor.c: opens a facade; several.c refuses files that cannot be
**                             committed together (TXN-6)
**  CursorSize              H  cursor.c: room for one pointer behind the stock struct
**  CursorZero, FakeValidCursor, CursorHasMoved, CursorIsValid, CursorIsValidNN   -  eState is kept
**                             true
**  CursorHasHint, CursorPin, CursorUnpin, IncrblobCursor   -  flags of the facade
**  CursorHintFlags         H  cursor.c: keeps the marks
**  CloseCursor             A  cursor.c
**  ClearCursor             S  position.c
**  First, Last, IsEmpty    A  step.c
**  Next, Previous, Eof     S  step.c
**  CursorRestore           R  step.c
**  TableMoveto, IndexMoveto   A  seek.c
**  IntegerKey, PayloadSize, PayloadFetch, Payload, Offset, MaxRecordSize,
**  RowCountEst             R  content.c
**  Count                   A  content.c
**  PayloadChecked, PutData A  blob.c
**  Insert, Delete          A  write.c
**  TransferRow             H  write.c: either of its two cursors may be a facade
**  CursorHint, CursorInfo, CursorList, SeekCount, ClosesWithCursor   -  test builds only
**
** The files below are in order: each uses those before it. Forward declarations break cycles.
*/

static int plEscalate(Btree *p);
static int plLook(Btree *p);
static int plJoin(Btree *p);
static int plVersionJoins(Btree *p, const u64 *pCookie);
static void plVersionLeaves(Btree *p, PlConn *pConn, u32 nOther);
static int plBtreeSetPagerFlags(Btree *p, unsigned pgFlags);
static SQLITE_INLINE int plMarked(BtShared *pBt);
static void plBaseEnd(Btree *p);
static int plBreak(Btree *p, int rc);
static int plReadEverything(Btree *p);
static int plBeginTrans(Btree *p, int wrflag, int *pSchemaVersion);
static i64 plDecodeRowid(const u8 *aKey);
static int plIsAutoincrement(PlCursor *pX);
static void plMindForks(void);
static void plMarkInode(Btree *p);
static void plLendFiles(Pager *pPager);
static void plCountFirst(Btree *p, int n);
static SQLITE_INLINE int plInherited(Btree *p);
static int plRefuseInherited(Btree *p);
static int plIsSequence(PlCursor *pX);
static int plPutSequence(PlCursor *pX, const u8 *aKey, const BtreePayload *pPayload);
static int plOpen(Btree *p, Pgno iTable, int wrFlag, KeyInfo *pKeyInfo, BtCursor *pCur);
static int plRefuseMixed(Btree *p);
static Btree *plOtherChanged(Btree *p);
static void plInvalidateBlobs(PlBtree *pPl, Pgno iRoot, i64 iRow, int isClear);
static int plBaseSynced(Btree *p, int rc);
static int plExclusivePhaseOne(Btree *p, const char *zSuperJrnl);
static int plExclusivePhaseTwo(Btree *p, int bCleanup);
static int plExclusiveRollback(Btree *p, int tripCode, int writeOnly);
static void plEndWriters(sqlite3 *db);
static int plErrorTorn(Vdbe *v, int rc);
static int plIsTorn(sqlite3 *db, u32 nTear);
static int plWholeJournal(Btree *p);

#include "message.c"
#include "roots.c"
#include "compare.c"
#include "key.c"
#include "inner.c"
#include "readset.c"
#include "position.c"
#include "step.c"
#include "seek.c"
#include "content.c"
#include "pass.c"
#include "write.c"
#include "blob.c"
#include "rowid.c"
#include "cursor.c"
#include "fits.c"
#include "follows.c"
#include "alone.c"
#include "attach.c"
#include "begin.c"
#include "transaction.c"
#include "several.c"
#include "apply.c"
#include "exclusive.c"
#include "whole.c"
#include "registers.c"
#include "beside.c"
#include "fork.c"
#include "base.c"
#include "opener.c"
#include "heed.c"
#include "pages.c"
#include "sql.c"
#include "convert.c"
#include "ticket.c"
#include "vtab.c"

/* From here on these names in later files of SQLite (backup, dbstat, dbpage, pragma, main, vdbeapi)
** mean our functions: see pages.c. */
#define sqlite3PagerGet          plPagerGet
#define sqlite3PagerWrite        plPagerWrite
#define sqlite3PagerLockingMode  plPagerLockingMode
#define sqlite3PagerWalCallback(P) (PL_MET(db) ? plPagerWalCallback(P) : sqlite3PagerWalCallback(P))
#ifdef SQLITE_ENABLE_SNAPSHOT
# define sqlite3PagerSnapshotGet  plPagerSnapshotGet
# define sqlite3PagerSnapshotOpen plPagerSnapshotOpen
#endif

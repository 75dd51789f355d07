//! Layout of the shared memory file `app.db-plait-shm`.
//!
//! ```text
//! 0          Header       one page: identity, boot, version, session state
//! 4 KiB      Control      commit state, generations, rowid counters, conflicts, counters
//! ..         LogShared    state of the log (see log/)
//! ..         GapTable     stretches of b-trees without rows (see database/gaps)
//! ..         Shipping     changes of the base, and how far they were shipped (see shipping.rs)
//! ..         processes    ProcessSlot x 1024
//! ..         recent       RecentCommit x 4096
//! ..         slots        TxnSlot x 4096
//! SMALL      arenas       2 x 2 MiB, one memtable generation each
//! RING       ring         16 MiB of log bytes not yet known to be in the file
//! LARGE      arenas       10 x 16 MiB, one memtable generation each
//! ```
//!
//! A process maps the file up to the end of the ring's window ([`MAPPED_FIRST`]), and the whole
//! file once a large arena or more of the ring is in use (region.rs).
//!
//! Everything is an offset or a plain value, never a pointer, so that processes may map the file at
//! different addresses. Every field that more than one process touches is atomic. Words that only
//! change under the commit mutex are still atomic because others read them without it.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};

pub use crate::ids::{PROCESS_SLOTS, TXN_SLOTS};
use crate::log::LogShared;
use crate::shm::shipping::Shipping;
use crate::storage::names::{SHARED_MEMORY_BYTES, SHARED_MEMORY_MAGIC};
use crate::sync::mutex::SharedMutex;

/// Changes whenever the meaning of any byte of the file changes.
pub const LAYOUT_VERSION: u32 = 30;
/// First bytes of a shared memory file.
pub const MAGIC: u64 = SHARED_MEMORY_MAGIC;
/// Memtable arenas: the small ones come first.
pub const ARENAS: usize = SMALL_ARENAS + LARGE_ARENAS;
/// Arenas for generations that are expected to stay small.
pub const SMALL_ARENAS: usize = 2;
/// Arenas that take the largest transaction.
pub const LARGE_ARENAS: usize = 10;
/// With fewer free large arenas than this, one frozen generation makes a merge due.
const ARENAS_IN_RESERVE: usize = LARGE_ARENAS / 2;
/// Frozen generations that make a merge due.
const MERGED_TOGETHER: usize = 3;
/// Bytes of a large arena.
pub const ARENA_BYTES: usize = 16 << 20;
/// Bytes of a small arena.
pub const SMALL_ARENA_BYTES: usize = 2 << 20;
/// Read marks of a WAL-index, on which readers of the base hold locks.
pub const READ_MARKS: usize = 5;
/// Bytes of the log ring.
pub const RING_BYTES: usize = 16 << 20;
/// Bytes of the ring in use while no transaction writes more than half of this.
pub const WINDOW_BYTES: u64 = 1 << 20;
/// Tables that can have a shared rowid counter.
pub const ROWID_SLOTS: usize = 1024;
/// Commits whose authors are kept for conflict reports.
pub const RECENT_COMMITS: usize = 4096;
/// Gaps that are kept at a time (database/gaps).
pub const GAP_SLOTS: usize = 64;
/// 64-bit words of an end of a gap.
pub const GAP_BOUND_WORDS: usize = 12;
/// Conflicts kept for `plait_conflicts`.
pub const CONFLICT_SLOTS: usize = 64;
/// First statements that are kept (database/learned.rs).
pub const LEARNED_SLOTS: usize = 48;
/// Kinds of events that recur (events.rs).
pub const RECURRING_EVENTS: usize = 4;
/// Bytes of a conflicting key that are kept.
pub const CONFLICT_KEY_BYTES: usize = 64;

/// Session states in [`Header::state`].
pub mod session {
    /// Being built or given up: not to be trusted.
    pub const INVALID: u32 = 0;
    /// In use; may outlive its processes (FILE-6).
    pub const LIVE: u32 = 1;
}

/// Fence states in [`Control::fence`].
pub mod fence {
    /// The base is an ordinary file; nothing has been committed here yet.
    pub const RESTING: u32 = 0;
    /// Bytes 18 and 19 of the base are 3: stock SQLite refuses it (FILE-2).
    pub const FENCED: u32 = 1;
    /// As fenced, but everything is in the database file, and no connection may commit: bytes 18
    /// and 19 of the base may be 2 (upkeep/fence.rs).
    pub const LOWERED: u32 = 2;
}

/// Whether there was need of a large arena, in [`Control::has_large`]. Changes once in a session.
pub mod large {
    /// There was no need of one.
    pub const NONE: u32 = 0;
    /// They have disk space as they grow.
    pub const GROWING: u32 = 1;
    /// Each has all of its disk space from its first use, and is mapped by large pages (mapping.rs).
    pub const IN_LARGE_PAGES: u32 = 2;
}

/// Whether the database is a replica, in [`Control::follows`] (REPLICA-3 in replica.rs).
pub mod follows {
    /// Nobody has said so in this session.
    pub const UNTOLD: u32 = 0;
    /// Its follower alone writes it.
    pub const FOLLOWS: u32 = 1;
    /// It was one, and was promoted in this session.
    pub const PROMOTED: u32 = 2;
}

/// First page of the file.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`LAYOUT_VERSION`].
    pub layout_version: AtomicU32,
    /// One of [`session`].
    pub state: AtomicU32,
    /// Kernel boot id in its text form: shared memory does not survive a reboot.
    pub boot_id: [AtomicU8; 40],
    /// Device of the base file.
    pub base_dev: AtomicU64,
    /// Inode of the base file.
    pub base_ino: AtomicU64,
    /// [`TOTAL_BYTES`], as a cross-check.
    pub total_bytes: AtomicU64,
    /// Inode of the base's WAL-index, which is in the same folder; 0 when unknown (read_marks.rs).
    pub wal_index_ino: AtomicU64,
    /// For versions with another layout (region/left.rs).
    pub told: [AtomicU32; 5],
}

/// States of a generation slot, in [`GenSlot::state`].
pub mod generation {
    /// The arena may be used for a new generation.
    pub const FREE: u32 = 0;
    /// Takes commits.
    pub const ACTIVE: u32 = 1;
    /// Takes no more commits; not in the base yet.
    pub const FROZEN: u32 = 2;
    /// In the base; kept while a snapshot may need it.
    pub const MERGED: u32 = 3;
}

/// One arena and the generation that lives in it.
#[repr(C)]
pub struct GenSlot {
    /// Number of the generation; 0 when free.
    pub number: AtomicU32,
    /// One of [`generation`].
    pub state: AtomicU32,
    /// Bytes of nodes that have disk space, and as many of records; 0 while there is none.
    pub allocated: AtomicU32,
    /// (M) Not 0: the generation before was frozen without rows, or itself follows such a
    /// generation and the log file lacks something of it (TAIL-1 in log/moment.rs).
    pub follows_empty: AtomicU32,
    /// Largest commit timestamp in it; 0 when empty.
    pub max_ts: AtomicU64,
    /// End of its last frame in the log.
    pub log_end: AtomicU64,
}

/// A shared counter of rowids of one table (TXN-3).
#[repr(C)]
pub struct RowidSlot {
    /// Root page of the table; 0 when unused.
    pub root: AtomicU32,
    /// Keeps the struct's size explicit.
    pub pad: AtomicU32,
    /// Largest rowid handed out or inserted explicitly.
    pub high: AtomicI64,
}

/// Author of one recent commit.
#[repr(C)]
pub struct RecentCommit {
    /// Timestamp; the entry is for that commit only if it matches.
    pub ts: AtomicU64,
    /// Transaction.
    pub txn: AtomicU64,
    /// Process.
    pub pid: AtomicU32,
    /// Low half of the inode of its pid namespace; 0 when unknown.
    pub namespace: AtomicU32,
}

/// Authors of recent commits, by timestamp since `first_ts`, modulo the length. The array has its
/// own pages, which get disk space later than others.
#[repr(C, align(4096))]
pub struct RecentCommits {
    /// See [`RecentCommit`].
    pub commits: [RecentCommit; RECENT_COMMITS],
}

/// One conflict. A loser writes it without a lock: `seq` is odd during the write, and a reader that
/// meets a change skips the entry.
#[repr(C)]
pub struct ConflictSlot {
    /// Sequence lock.
    pub seq: AtomicU32,
    /// B-tree.
    pub root: AtomicU32,
    /// Wall-clock time in milliseconds.
    pub unix_ms: AtomicU64,
    /// Transactions and processes on both sides.
    pub loser_txn: AtomicU64,
    /// See `loser_txn`.
    pub winner_txn: AtomicU64,
    /// See `loser_txn`.
    pub loser_pid: AtomicU32,
    /// See `loser_txn`.
    pub winner_pid: AtomicU32,
    /// Low halves of the inodes of their pid namespaces; 0 when unknown.
    pub loser_namespace: AtomicU32,
    /// See `loser_namespace`.
    pub winner_namespace: AtomicU32,
    /// Length of the key in `key`; 0 when unknown.
    pub key_len: AtomicU32,
    /// Bit 0: a range had been read. Bit 1: an exclusive transaction won.
    pub flags: AtomicU32,
    /// First bytes of the key.
    pub key: [AtomicU8; CONFLICT_KEY_BYTES],
}

/// One gap.
#[repr(C)]
pub struct GapSlot {
    /// Timestamp from which it has no rows.
    pub ts: AtomicU64,
    /// Timestamp of about its last use: a hint, which readers change.
    pub used: AtomicU64,
    /// B-tree.
    pub root: AtomicU32,
    /// Keeps the struct's size explicit.
    pub pad: AtomicU32,
    /// First key: its bytes, and their number in the last word.
    pub lo: [AtomicU64; GAP_BOUND_WORDS],
    /// First key after the gap, in the form of `lo`.
    pub hi: [AtomicU64; GAP_BOUND_WORDS],
}

/// Stretches of b-trees that have no rows (database/gaps). Aligned for the fields after it.
#[repr(C, align(128))]
pub struct GapTable {
    /// (M) Sequence lock: odd while the table changes.
    pub seq: AtomicU32,
    /// (M) Slots in use, from the first on.
    pub used: AtomicU32,
    /// (M) Slots.
    pub slots: [GapSlot; GAP_SLOTS],
}

/// Monotonic counters for `plait_status`.
#[repr(C)]
pub struct Counters {
    /// Transactions with writes that committed.
    pub commits: AtomicU64,
    /// Transactions refused by validation.
    pub conflicts: AtomicU64,
    /// Merges finished.
    pub merges: AtomicU64,
    /// Rows and tombstones applied to the base by merges.
    pub merged_entries: AtomicU64,
    /// Exclusive transactions committed.
    pub exclusive_commits: AtomicU64,
    /// Waits that ended in BUSY.
    pub busy: AtomicU64,
    /// Dead processes that were reaped.
    pub reaped: AtomicU64,
    /// Next transaction id.
    pub next_txn: AtomicU64,
    /// Next place in the ring of conflicts.
    pub next_conflict: AtomicU64,
}

/// Exclusive transactions that are kept.
pub const EXCLUSIVE_COMMITS: usize = 64;
/// B-trees that are kept of each.
pub const EXCLUSIVE_ROOTS: usize = 12;
/// Maxima that are kept of each.
pub const EXCLUSIVE_MAXIMA: usize = 4;

/// An exclusive transaction (database/changed.rs).
#[repr(C)]
#[derive(Default)]
pub struct ExclusiveCommit {
    /// Generation that the transaction has stamped; 0 when unused.
    pub generation: AtomicU32,
    /// Generation of the exclusive transaction before it.
    pub before: AtomicU32,
    /// Changed b-trees in `roots`; `u32::MAX`: any may have changed.
    pub len: AtomicU32,
    /// B-tree in which the transaction has raised `maxima` and changed nothing else; 0: none.
    pub maxima_root: AtomicU32,
    /// Keys in `maxima`.
    pub maxima_len: AtomicU32,
    /// Keeps the struct's size explicit.
    pub pad: AtomicU32,
    /// Keys, as big-endian numbers.
    pub maxima: [AtomicU64; EXCLUSIVE_MAXIMA],
    /// Root pages.
    pub roots: [AtomicU32; EXCLUSIVE_ROOTS],
}

/// The last exclusive transactions.
#[repr(C)]
pub struct ExclusiveRing {
    /// (M) How many there were: the place of the next, modulo the length.
    pub next: AtomicU32,
    /// Keeps the struct's size explicit.
    pub pad: AtomicU32,
    /// (M) See [`ExclusiveCommit`].
    pub commits: [ExclusiveCommit; EXCLUSIVE_COMMITS],
}

/// Commit state, generations and small tables.
#[repr(C)]
pub struct Control {
    /// Orders commits (COMMIT-1). Everything marked (M) changes only while it is held.
    pub commit_mutex: SharedMutex,
    /// (M) Newest committed timestamp whose nodes are all inserted.
    pub visible_ts: AtomicU64,
    /// Newest timestamp that a read-only transaction may see, once the log is on disk through
    /// `readable_needs`.
    pub readable_ts: AtomicU64,
    /// Log position for `readable_ts` (database/visibility.rs).
    pub readable_needs: AtomicU64,
    /// (M) End of the newest frame whose COMMIT waits for the disk.
    pub full_end: AtomicU64,
    /// (M) All frames before this log position are in the memtables (COMMIT-2).
    pub applied_lsn: AtomicU64,
    /// (M) Arena that takes commits.
    pub active_arena: AtomicU32,
    /// One of [`large`]. Set before the first large arena gets disk space: an owner of the commit mutex
    /// then maps the whole file.
    pub has_large: AtomicU32,
    /// Entries of `recent`, from the first on, that have disk space.
    pub recent_allocated: AtomicU32,
    /// (M) One of [`follows`].
    pub follows: AtomicU32,
    /// Timestamp of the first entry of `recent`.
    pub first_ts: AtomicU64,
    /// One of [`fence`].
    pub fence: AtomicU32,
    /// Salt of the base and the log in this session.
    pub salt: AtomicU32,
    /// Generation that the base includes (its header bytes 76..79).
    pub base_generation: AtomicU32,
    /// Generation that the last exclusive transaction stamped; no snapshot of an older base sees
    /// its changes (EXCL-3).
    pub exclusive_generation: AtomicU32,
    /// Generation that the exclusive transaction is about to stamp, 0 while it merges what others
    /// have committed. Its author writes it; the process that settles what a dead author left reads it.
    pub stamped_generation: AtomicU32,
    /// (M) Holder of the writer's right: slot index + 1, 0 when free.
    pub right_owner: AtomicU32,
    /// (M) Holder of the right to merge or to be exclusive: slot index + 1.
    pub merge_owner: AtomicU32,
    /// Bumped and woken when `merge_owner` becomes free or a generation is freed.
    pub merge_word: AtomicU32,
    /// Version of the base's content when it was fenced (see `BaseHeader::cookie`).
    pub fence_cookie: AtomicU64,
    /// (M) Queue for the writer's right: positions `queue_head..queue_tail`, modulo its length.
    pub queue_head: AtomicU32,
    /// (M) See `queue_head`.
    pub queue_tail: AtomicU32,
    /// (M) Slot index + 1 of each waiter; 0 for one that gave up.
    pub queue: [AtomicU32; TXN_SLOTS],
    /// Slots in use lie below this index, and all below it have disk space. Raised before a slot is
    /// used.
    pub slots_high_water: AtomicU32,
    /// Not 0 while a slot may owe something (database/lock.rs).
    pub owed: AtomicU32,
    /// When commits under NORMAL were last written to the log file, in milliseconds of wall-clock
    /// time.
    pub relaxed_write_ms: AtomicU64,
    /// Not 0: merges run in a background thread, in any process that has one.
    pub background_merge: AtomicU32,
    /// Configured limit of the base's WAL, which slow readers make grow, in bytes.
    pub wal_limit_bytes: AtomicU64,
    /// Size of the base's WAL after the last merge, in bytes.
    pub wal_bytes: AtomicU64,
    /// Generations.
    pub generations: [GenSlot; ARENAS],
    /// Rowid counters.
    pub rowids: [RowidSlot; ROWID_SLOTS],
    /// Ring of conflicts.
    pub conflicts: [ConflictSlot; CONFLICT_SLOTS],
    /// Counters.
    pub counters: Counters,
    /// (M) When a waiter from the queue last got the writer's right, in nanoseconds of the
    /// monotonic clock.
    pub right_served_ns: AtomicU64,
    /// Exclusive owner of each read mark, 0 when none: process slot index + 1, and above it how
    /// often the slot was taken (read_marks.rs).
    pub mark_owners: [AtomicU32; READ_MARKS],
    /// Process slots that were ever used lie below this index; raised before a slot is used.
    pub processes_high_water: AtomicU32,
    /// (M) Start of the frame of the newest prepared transaction.
    pub prepared_start: AtomicU64,
    /// (M) End of that frame; 0 when there is none. The transaction is unresolved while this is the
    /// end of the log (several.rs).
    pub prepared_end: AtomicU64,
    /// `prepared_end` of a transaction that is known to be committed and could not be applied:
    /// readers are refused (PREP-9 in database/orphans.rs). Any other value means nothing.
    pub prepared_withheld: AtomicU64,
    /// Expected end of the running merge or checkpoint, in nanoseconds of the monotonic clock; 0
    /// when none runs (upkeep/pressure.rs).
    pub work_due_ns: AtomicU64,
    /// Expected duration of that work, in nanoseconds.
    pub work_span_ns: AtomicU64,
    /// Nanoseconds to merge a KiB of memtables; 0 before the first merge.
    pub merge_ns_per_kib: AtomicU64,
    /// Nanoseconds to checkpoint a KiB of merged memtables.
    pub checkpoint_ns_per_kib: AtomicU64,
    /// KiB of memtables merged since a checkpoint last brought the whole WAL into the base file.
    pub uncheckpointed_kib: AtomicU64,
    /// Nanoseconds that checkpoints have taken since then.
    pub checkpoints_ns: AtomicU64,
    /// Turn of the newest commit during a merge, in nanoseconds of the monotonic clock.
    pub pace_ns: AtomicU64,
    /// Cost of walks and searches next to memtables since the last merge, in steps
    /// (upkeep/pressure.rs).
    pub walked_steps: AtomicU64,
    /// (M) Newest commit in a freed generation: a transaction that has not seen it cannot be
    /// validated.
    pub freed_ts: AtomicU64,
    /// See [`ExclusiveRing`].
    pub exclusive: ExclusiveRing,
    /// (M) The waiter for which the free writer's right is kept for a moment: slot index + 1, 0 for
    /// none.
    pub right_reserved: AtomicU32,
    /// Transactions that took the writer's right at their first statement, though begun with BEGIN.
    pub begun_early: AtomicU64,
    /// First statements of such transactions, one a word (database/learned.rs).
    pub learned: [AtomicU64; LEARNED_SLOTS],
    /// When a process last looked for transactions that are open for long, in milliseconds of the
    /// wall clock (database/happenings.rs).
    pub looked_ms: AtomicU64,
    /// Since when a checkpoint has left a part of the base's WAL, by the same clock; 0: the last one
    /// has left none.
    pub wal_held_since_ms: AtomicU64,
    /// When an event of each recurring kind was last noted, by the same clock (events.rs).
    pub noted_ms: [AtomicU64; RECURRING_EVENTS],
}

impl Control {
    /// Returns the number of generations in this state, at this moment.
    pub fn count_generations(&self, state: u32) -> usize {
        // Relaxed: a caller that acts on it looks again.
        self.generations.iter().filter(|slot| slot.state.load(Relaxed) == state).count()
    }

    /// Returns the number of free large arenas, at this moment.
    pub fn count_free_large(&self) -> usize {
        let large = &self.generations[SMALL_ARENAS..];
        // Relaxed: as in `count_generations`.
        large.iter().filter(|slot| slot.state.load(Relaxed) == generation::FREE).count()
    }

    /// False if no generation is frozen: there is none between the base and the one that takes
    /// commits. Two words mostly say so.
    pub fn may_have_frozen(&self) -> bool {
        // Relaxed: as in `count_generations`.
        let active = &self.generations[self.active_arena.load(Relaxed) as usize % ARENAS];
        let base = self.base_generation.load(Relaxed);
        active.number.load(Relaxed) > base.saturating_add(1)
    }

    /// True if enough generations are frozen for a merge (upkeep/pressure.rs).
    pub fn are_memtables_due(&self) -> bool {
        if !self.may_have_frozen() {
            return false;
        }
        let frozen = self.count_generations(generation::FROZEN);
        frozen >= MERGED_TOGETHER || (frozen > 0 && self.count_free_large() < ARENAS_IN_RESERVE)
    }
}

/// A process that has the database open. It holds an open-file-description lock on the byte
/// `PROCESS_LOCK_BASE + index` of the file while it lives.
#[repr(C)]
pub struct ProcessSlot {
    /// Process id; 0 when the slot is free.
    pub pid: AtomicU32,
    /// Attached connections, of handles that have their WAL open (WALINDEX-1 in read_marks.rs).
    pub connections: AtomicU32,
    /// Inode of the pid namespace of `pid`; 0 when unknown.
    pub pid_namespace: AtomicU64,
    /// Distinguishes two copies of the library in one process.
    pub nonce: AtomicU64,
    /// Readers of the base that hold a read mark (read_marks.rs).
    pub readers: [AtomicU32; READ_MARKS],
    /// How often the slot was taken: distinguishes its owner from earlier ones (process.rs PROC-4).
    pub generation: AtomicU32,
    /// At least the newest timestamp that the process has published and not settled
    /// (database/visibility.rs).
    pub commit_ts: AtomicU64,
    /// Connection slot index + 1 of the author of that commit; see [`TxnSlot::author`].
    pub author: AtomicU32,
    /// When that commit was published, in milliseconds of the monotonic clock.
    pub author_ms: AtomicU32,
}

/// States of a connection's transaction, in [`TxnSlot::state`].
pub mod txn_state {
    /// Outside any transaction.
    pub const IDLE: u32 = 0;
    /// Has a snapshot.
    pub const READING: u32 = 1;
    /// Optimistic writer.
    pub const OPTIMISTIC: u32 = 2;
    /// Waits for the writer's right.
    pub const QUEUED: u32 = 3;
    /// Holds the writer's right.
    pub const WRITER: u32 = 4;
    /// Holds the right and merges or runs on SQLite's own path.
    pub const EXCLUSIVE: u32 = 5;
}

/// Values of an owner word other than 0, which is free, and the word of a slot.
pub mod owner {
    /// In `right_owner`: the writer's right belongs to what must be settled.
    pub const UNSETTLED: u32 = u32::MAX;
    /// In `merge_owner`: a merge must be settled.
    pub const UNSETTLED_MERGE: u32 = u32::MAX - 1;
    /// In `merge_owner`: an exclusive transaction must be settled.
    pub const UNSETTLED_EXCLUSIVE: u32 = u32::MAX;
    /// In `right_owner`: the writer's right belongs to a prepared transaction whose author is dead.
    pub const UNSETTLED_PREPARED: u32 = u32::MAX - 2;

    /// True if `word` is that of a right that must be settled.
    pub fn is_unsettled(word: u32) -> bool {
        word >= UNSETTLED_PREPARED
    }
}

/// What a connection could not give back, in [`TxnSlot::owes`].
pub mod owes {
    /// The writer's right, or a place in the queue.
    pub const WITHDRAWAL: u32 = 1;
    /// Both rights, to be settled as after a merge.
    pub const MERGE: u32 = 2;
    /// Both rights, to be settled as after an exclusive transaction.
    pub const EXCLUSIVE: u32 = 4;
    /// The slot itself.
    pub const SLOT: u32 = 8;
}

/// Pin value of a connection without a snapshot.
pub const NO_PIN: u32 = u32::MAX;

/// One attached connection.
#[repr(C)]
pub struct TxnSlot {
    /// Process slot index + 1; 0 when free.
    pub process: AtomicU32,
    /// One of [`txn_state`].
    pub state: AtomicU32,
    /// The snapshot needs generations above this one; [`NO_PIN`] without a snapshot.
    pub pin_low: AtomicU32,
    /// The snapshot does not read generations above this one.
    pub pin_high: AtomicU32,
    /// Snapshot timestamp.
    pub snapshot: AtomicU64,
    /// Transaction.
    pub txn: AtomicU64,
    /// Wall-clock start in milliseconds.
    pub started_ms: AtomicU64,
    /// Kernel thread id.
    pub tid: AtomicU32,
    /// Futex word of a waiter for the writer's right: 2 when it was refused, 3 when it was called
    /// (database/right.rs).
    pub granted: AtomicU32,
    /// Id of the process that the connection waits for; 0 if none.
    pub waiting_for: AtomicU32,
    /// What the connection could not give back (database/lock.rs).
    pub owes: AtomicU32,
    /// While a commit is published and not settled: the kernel thread id of its author, which the
    /// kernel changes when the thread ends (process.rs); else 0.
    pub author: AtomicU32,
    /// Transactions of the slot's connections that were a single reading statement; it wraps
    /// (txn/bulk.rs).
    pub lone_reads: AtomicU32,
    /// (M) When the connection began to wait for the writer's right, in nanoseconds of the
    /// monotonic clock. Orders the queue.
    pub queued_ns: AtomicU64,
    /// (M) When the waiter was called, by the clock of `queued_ns`.
    pub called_ns: AtomicU64,
    /// Not 0: the waiter was called and did not come (RIGHT-9 in database/right.rs). Set under the
    /// commit mutex; cleared by its own thread.
    pub is_silent: AtomicU32,
    /// Keeps the next field aligned.
    pub pad: AtomicU32,
    /// When the transaction was last noted as one that is open for long, in milliseconds of the wall
    /// clock; an earlier time than `started_ms` was of another transaction.
    pub noted_ms: AtomicU64,
    /// (M) Not 0: the connection has the writer's right and has written nothing, and may lose it
    /// after this time of the monotonic clock, in nanoseconds; or it waits for the right, to have
    /// it so (RIGHT-10 in database/right.rs).
    pub early_until_ns: AtomicU64,
    /// Keeps slots on cache lines of their own.
    pub line_pad: [AtomicU32; 6],
}

/// The fixed part of the file, before the small arenas.
#[repr(C)]
pub struct Layout {
    /// See [`Header`].
    pub header: Header,
    /// Rest of the first page.
    pub header_pad: [AtomicU8; 4096 - size_of::<Header>()],
    /// See [`Control`].
    pub control: Control,
    /// State of the log.
    pub log: LogShared,
    /// See [`GapTable`].
    pub gaps: GapTable,
    /// See [`Shipping`].
    pub shipping: Shipping,
    /// See [`ProcessSlot`].
    pub processes: [ProcessSlot; PROCESS_SLOTS],
    /// See [`RecentCommits`].
    pub recent: RecentCommits,
    /// See [`TxnSlot`].
    pub slots: [TxnSlot; TXN_SLOTS],
}

/// Unit of disk space.
pub const PAGE: usize = 4096;
/// Bytes of a large page of memory, on most machines. No large arena shares one with another part.
pub const LARGE_PAGE: usize = 2 << 20;
/// Where the fixed part of the file ends.
pub const LAYOUT_END: usize = size_of::<Layout>().next_multiple_of(PAGE);
/// Offset of the ring in the file.
pub const RING_OFFSET: usize = LAYOUT_END + SMALL_ARENAS * SMALL_ARENA_BYTES;
/// Offset of the first large arena in the file.
pub const LARGE_ARENAS_OFFSET: usize = (RING_OFFSET + RING_BYTES).next_multiple_of(LARGE_PAGE);
/// Size of the file.
pub const TOTAL_BYTES: usize = LARGE_ARENAS_OFFSET + LARGE_ARENAS * ARENA_BYTES;
/// Bytes that every process maps: up to the end of the ring's window.
pub const MAPPED_FIRST: usize = RING_OFFSET + WINDOW_BYTES as usize;
/// Parts of the layout with disk space in a new file: all but most of the slots and of the recent
/// commits.
pub const HEAD: [Range<usize>; 3] = [
    0..process_end(FIRST_SLOTS - 1).next_multiple_of(PAGE),
    std::mem::offset_of!(Layout, recent)..recent_end(FIRST_RECENT - 1).next_multiple_of(PAGE),
    std::mem::offset_of!(Layout, slots) / PAGE * PAGE
        ..slot_end(FIRST_SLOTS - 1).next_multiple_of(PAGE),
];
/// Slots of either kind that have disk space from the start.
const FIRST_SLOTS: usize = 32;
/// Recent commits that have disk space from the start.
pub const FIRST_RECENT: usize = PAGE / size_of::<RecentCommit>();

/// Returns the size of arena `index`.
pub const fn arena_bytes(index: usize) -> usize {
    if is_large(index) { ARENA_BYTES } else { SMALL_ARENA_BYTES }
}

/// True if arena `index` takes the largest transaction.
pub const fn is_large(index: usize) -> bool {
    index >= SMALL_ARENAS
}

/// Returns the offset of arena `index` in the file.
pub const fn arena_offset(index: usize) -> usize {
    match index.checked_sub(SMALL_ARENAS) {
        Some(large) => LARGE_ARENAS_OFFSET + large * ARENA_BYTES,
        None => LAYOUT_END + index * SMALL_ARENA_BYTES,
    }
}

/// Returns the end of recent commit `index` in the file.
pub const fn recent_end(index: usize) -> usize {
    std::mem::offset_of!(Layout, recent) + (index + 1) * size_of::<RecentCommit>()
}

/// Returns the end of process slot `index` in the file.
pub const fn process_end(index: usize) -> usize {
    std::mem::offset_of!(Layout, processes) + (index + 1) * size_of::<ProcessSlot>()
}

/// Returns the end of connection slot `index` in the file.
pub const fn slot_end(index: usize) -> usize {
    std::mem::offset_of!(Layout, slots) + (index + 1) * size_of::<TxnSlot>()
}

/// Byte of the file whose lock serialises opening, recovery and closing.
pub const LIFECYCLE_LOCK: i64 = 1 << 40;
/// Byte of the file that a process locks while it allocates disk space for arena 0; arena `i` has
/// the `i`-th byte after it.
pub const ALLOCATE_LOCK_BASE: i64 = LIFECYCLE_LOCK - ARENAS as i64;
/// Byte of the file whose lock shows that the process of slot 0 lives; slot `i` has the `i`-th byte
/// after it.
pub const PROCESS_LOCK_BASE: i64 = LIFECYCLE_LOCK + 1;

/// Byte of the log file on which every writing process holds a shared lock. Recovery takes it
/// exclusively, so that it cannot run during a session whose shared memory file was removed.
pub const LOG_IN_USE_LOCK: i64 = 1 << 40;

const _: () = assert!(size_of::<Header>() <= PAGE);
const _: () = assert!(size_of::<TxnSlot>() == 128);
const _: () = assert!(PAGE.is_multiple_of(size_of::<TxnSlot>()), "no slot lies on two pages");
const _: () = assert!(slot_end(0).is_multiple_of(size_of::<TxnSlot>()));
const _: () = assert!(PAGE.is_multiple_of(size_of::<ProcessSlot>()));
const _: () = assert!(process_end(0).is_multiple_of(size_of::<ProcessSlot>()));
const _: () = assert!(HEAD[0].end <= HEAD[1].start && HEAD[1].end <= HEAD[2].start);
const _: () = assert!(size_of::<RecentCommit>() == 24 && PAGE == 4096);
const _: () = assert!(size_of::<ProcessSlot>() == 64);
const _: () = assert!(size_of::<GenSlot>() == 32);
const _: () = assert!(size_of::<RowidSlot>() == 16);
const _: () = assert!(size_of::<ExclusiveCommit>() == 104);
const _: () = assert!(size_of::<GapSlot>() == 216);
const _: () = assert!(size_of::<GapTable>() == 13_952);
const _: () = assert!(std::mem::offset_of!(Layout, gaps) == 108_928 && RING_OFFSET == 5_009_408);
const _: () = assert!(RING_BYTES.is_power_of_two());
const _: () = assert!(ARENA_BYTES.is_multiple_of(LARGE_PAGE));
const _: () = assert!(TOTAL_BYTES as u64 == SHARED_MEMORY_BYTES);
const _: () = assert!(TOTAL_BYTES <= 192 << 20, "the promised bound of shared memory");

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::mem::offset_of;

    use super::*;

    macro_rules! offsets {
        ($of:ident: $($field:ident)*) => {
            [$((stringify!($field), offset_of!($of, $field))),*]
        };
    }

    const PAGE_ON_FORMATS: &str = include_str!("../../../../docs/format.md");

    /// Fields of the first table behind a line that begins with `title`, by name.
    fn documented(title: &str) -> BTreeMap<&'static str, usize> {
        let table = PAGE_ON_FORMATS.split(&format!("\n{title}")).nth(1).expect("the table");
        table
            .lines()
            .skip_while(|line| !line.starts_with('|'))
            .take_while(|line| line.starts_with('|'))
            .filter_map(|line| {
                let mut cells = line.split('|').skip(1);
                let offset = cells.next()?.trim().replace(',', "").parse::<usize>().ok()?;
                Some((cells.nth(1)?.split('`').nth(1)?, offset))
            })
            .collect()
    }

    #[test]
    fn offsets_of_what_was_shipped_are_those_of_the_page_on_formats() {
        assert_eq!(offset_of!(Layout, shipping), 122_880);
        let title = "How far they were shipped (`database/shipping.rs`), offsets from 122,880:";
        let is = offsets!(Shipping: seq salt base incomplete boundary chain stream commit crc place_len
            known_ms trouble_since_ms trouble_len record opening place trouble);
        assert_eq!(documented(title), BTreeMap::from(is));
    }

    #[test]
    fn offsets_of_the_control_part_are_those_of_the_page_on_formats() {
        assert!(PAGE_ON_FORMATS.contains(&format!("Layout version {LAYOUT_VERSION}, ")));
        let is = offsets!(Control:
            commit_mutex visible_ts readable_ts readable_needs full_end applied_lsn active_arena
            has_large recent_allocated follows first_ts fence salt base_generation exclusive_generation
            stamped_generation right_owner merge_owner merge_word fence_cookie queue_head queue
            slots_high_water owed relaxed_write_ms background_merge wal_limit_bytes wal_bytes
            generations rowids conflicts counters right_served_ns mark_owners processes_high_water
            prepared_start prepared_end prepared_withheld work_due_ns walked_steps freed_ts
            exclusive right_reserved begun_early learned looked_ms wal_held_since_ms noted_ms
        );
        assert_eq!(documented("Control, offsets from 4096."), BTreeMap::from(is));
    }
}

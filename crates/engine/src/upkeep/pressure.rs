//! When to merge.
//!
//! A merge costs the same for each page of the base whether one of its rows has changed or ten, and
//! afterwards every reader reads that page again. So merges wait for several full memtables, as
//! long as that costs nothing:
//!
//! | free arenas | disk space | a merge is due |
//! |---|---|---|
//! | enough | enough | with three frozen generations (`MERGED_TOGETHER` in shm/layout.rs) |
//! | few: old snapshots hold the others | any | with one frozen generation |
//! | any | scarce | with one frozen generation or a half-full active one (1) |
//! | any | any | with whatever there is, once reading past it costs more than the merge (2) |
//! | any | any | with whatever there is, once the number of pages is far off (3) |
//!
//! 1. Memory, log and the base's WAL stay small.
//! 2. The ski-rental rule (Karlin, Manasse, Rudolph and Sleator, 1988): how much will still be read
//!    is unknown, and paying for a merge after losing as much by not merging never costs more than
//!    twice what was needed. So a table that is written once and then read is soon read at the
//!    base's speed, and one that is written all the time is merged no more often for being read.
//!    Readers count what it costs them (csrc/step.c, seek.c) and report that from time to time; the
//!    cost of a merge is known from earlier ones.
//! 3. Once that is 1 MiB and a sixteenth of the base, and a program has read the number of pages.
//!    This is for programs that keep a limit by `PRAGMA page_count` at each write. They get the
//!    base's pages, and nothing is merged for the call (csrc/pages.c). So that number has to follow
//!    what they write, and what they delete to keep the limit.
//!
//! # Pace
//!
//! Commits keep pace with merges.
//!
//! If commits come faster than merges can bring them into the base, memory gets full, and all
//! commits stop until a merge ends: for seconds on a large table, and the first to wake fill it
//! again before the last have come. So while a merge or a checkpoint runs, the room that is left is
//! spread over the time that it will probably take: the merge makes room, and after the checkpoint
//! the next merge may begin. A commit that comes before its turn sleeps a little, after it is
//! complete and with nothing held. Commits slower than that never sleep.
//!
//! | word | during a merge or a checkpoint | else |
//! |---|---|---|
//! | `work_due_ns` | when it will probably end | 0: no commit waits |
//! | `work_span_ns` | how long it will probably take in all | of the last one |
//! | `pace_ns` | the turn of the next commit | of the last one |
//! | `merge_ns_per_kib` | what a KiB of memtables took the last merges | the same |
//! | `checkpoint_ns_per_kib` | what the checkpoint of a KiB of memtables took | the same |
//! | `uncheckpointed_kib` | merged since the whole WAL was last in the file | the same |
//! | `checkpoints_ns` | what checkpoints have taken since then | the same |
//!
//! Invariants
//! - PACE-1 The words are guesses. Whatever their values, a commit sleeps for no longer than
//!   [`LONGEST`]. They do not decide whether there is room (SNAP-4).
//! - PACE-2 They are read only while some process has the right to merge, and its new owner starts
//!   without a guess: the words of an owner that died delay no commit.
//!
//! # The thread that merges
//!
//! A thread merges in parallel with commits, and lives as long as there is something to merge.
//!
//! A merge of several generations takes seconds on a large table. The committer that finds one due
//! has better things to do, and mostly another processor, or the disk's waiting time, is free for
//! it. Without a thread (`PRAGMA plait_background_merge=0`, a program that configured SQLite for
//! one thread, or none to be had) the committer merges itself.
//!
//! - No thread exists while nothing is due, or another process merges. The next commit looks again.
//! - The thread merges if a commit of this process has found a merge due that no process makes. It
//!   merges again if another commit has called since; else it ends.
//! - It looks every [`NAP`], for [`LOOKED`], if readers from before the merge held its checkpoint
//!   back. Then it continues as after a merge; the next merge brings what is left.
//! - It ends if the merge ended with an error. No new thread is started for a moment (`REST` in
//!   sync/worker.rs). A committer that runs out of room merges itself, and gets the error.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use crate::database::Database;
use crate::error::Result;
use crate::ids::SlotIndex;
use crate::shm::layout::{ARENA_BYTES, Control, fence, generation};
use crate::sync::clock::monotonic_ns;
use crate::sync::{futex, wait};

/// What a step costs (`PlBtree.nWalk`): the least that a walk pays for memtables over the base.
const STEP_NS: u64 = 25;
/// What a merge costs besides its rows: some syncs, pages that readers read again.
const MERGE_NS: u64 = 20_000_000;
/// What it takes to merge a KiB of memtables, until that is known.
const KIB_NS: u64 = 20_000;
/// The number of pages is far off with so many bytes of memtables, and with such a part of the
/// base.
const COUNT_OFF_BYTES: u64 = 1 << 20;
const COUNT_OFF_PART: u64 = 16;
/// What a deleted entry counts for: its memtable has the key alone, and the length of the row is
/// unknown.
const DELETED_BYTES: u64 = 1 << 10;
/// Reading loses so many times the cost of a merge before it: the estimate of the merge leaves out
/// what others pay for it.
const LOST_BEFORE_MERGE: u64 = 2;

impl Database {
    /// True when a committer, or the background thread, should merge now.
    pub(crate) fn merge_is_due(&self) -> bool {
        let is_any = || {
            self.control().count_generations(generation::FROZEN) > 0
                || self.generations.is_half_full()
        };
        self.control().are_memtables_due()
            || (is_any() && self.is_disk_space_scarce())
            || self.is_read_cost_high()
    }

    /// True if there is something for a committer to do besides keeping pace: room to prepare, or a
    /// merge to make.
    pub(crate) fn is_upkeep_due(&self) -> bool {
        // In the order of what is cheap to find out. The next arena is prepared when this one is half
        // full; and without that or a frozen generation a merge is due for readers alone.
        self.generations.is_half_full()
            || (self.control().may_have_frozen() && self.merge_is_due())
            || self.is_read_cost_high()
            || self.is_log_space_wanted()
    }

    /// Counts the steps past memtables that a connection has gone since its last report. A merge
    /// that this makes due is made in a thread (`beside`), never by the connection.
    pub(crate) fn note_walk(self: &Arc<Self>, steps: u32, beside: bool) {
        // Relaxed, here and below: a gauge, and a merge looks at the generations again.
        self.control().walked_steps.fetch_add(steps.into(), Relaxed);
        if beside && self.is_read_cost_high() {
            merge_beside(self);
        }
    }

    /// Notes that a program was given the number of pages of the base, `base_bytes` in all, which
    /// grows old while nothing is merged. Once it is far off, a call has cost as much as a merge.
    /// `deleted`: entries that the connection has deleted since the last merge.
    pub(crate) fn note_page_count(self: &Arc<Self>, base_bytes: u64, deleted: u64, beside: bool) {
        let bytes = self.generations.unmerged_bytes();
        let off = bytes.saturating_add(deleted.saturating_mul(DELETED_BYTES));
        if bytes > 0 && off >= COUNT_OFF_BYTES.max(base_bytes / COUNT_OFF_PART) {
            let lost = self.merge_cost_ns(bytes).saturating_mul(LOST_BEFORE_MERGE);
            self.note_walk((lost / STEP_NS + 1).min(u64::from(u32::MAX)) as u32, beside);
        }
    }

    /// What it takes to merge so many bytes of memtables.
    fn merge_cost_ns(&self, bytes: u64) -> u64 {
        let known = self.control().merge_ns_per_kib.load(Relaxed);
        let each = if known == 0 { KIB_NS } else { known };
        each.saturating_mul(bytes >> 10).saturating_add(MERGE_NS)
    }

    /// True if reading past the memtables has cost more than merging them would.
    pub(super) fn is_read_cost_high(&self) -> bool {
        let c = self.control();
        let lost = c.walked_steps.load(Relaxed).saturating_mul(STEP_NS);
        // Most losses stay below this, and need no sum of what there is.
        if lost < LOST_BEFORE_MERGE * MERGE_NS {
            return false;
        }
        let bytes = self.generations.unmerged_bytes();
        let merge = self.merge_cost_ns(bytes);
        // While readers hold back what the last merge has brought, another one would only lengthen
        // the base's WAL. And with scarce disk space a merge might fail, with the generation frozen
        // that still had room for commits: it is not needed that much.
        bytes > 0
            && lost >= merge.saturating_mul(LOST_BEFORE_MERGE)
            && c.fence.load(Relaxed) == fence::FENCED
            && !self.has_wal_to_bring()
            && self.region().has_space_to_spare()
    }

    /// Prepares an arena before the active one is full, so that no commit waits for disk space.
    pub(crate) fn prepare_next_arena(&self) {
        if self.generations.is_half_full()
            && !self.generations.has_prepared_arena()
            && !self.generations.is_disk_space_scarce()
        {
            // A commit that needs it will report why there is none.
            let _ = self.prepare_arena(0);
        }
    }
}

/// Longest sleep after one commit.
const LONGEST: Duration = Duration::from_millis(100);
/// A turn this near is now: falling asleep and waking cost as much. A slower commit keeps so much,
/// too.
const MOMENT_NS: u64 = 500_000;
/// Work that takes longer than expected is expected to need this part of it still.
const LAST_PART: u64 = 8;
/// Merges of less do not show what a KiB takes: their syncs are most of it.
const TELLING_KIB: u64 = 1024;
/// The least room that is spread: what is left then is used slowly, but it is used.
const LEAST_ROOM: u64 = ARENA_BYTES as u64 / 16;

/// A running merge or checkpoint; dropped when it has ended, in whatever way.
pub(super) struct Pace<'a> {
    control: &'a Control,
    begun_ns: u64,
}

impl<'a> Pace<'a> {
    /// Begins work that will probably take `span` nanoseconds; 0 if that is unknown.
    fn begin(control: &'a Control, span: u64) -> Pace<'a> {
        let begun_ns = monotonic_ns();
        // Relaxed, here and below: guesses (PACE-1).
        control.work_span_ns.store(span, Relaxed);
        control.work_due_ns.store(begun_ns.saturating_add(span), Relaxed);
        Pace { control, begun_ns }
    }

    fn took_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.begun_ns)
    }

    /// Notes that so many bytes of memtables are merged.
    pub(super) fn merged(self, bytes: u64) {
        let (c, kib) = (self.control, bytes >> 10);
        learn(&c.merge_ns_per_kib, self.took_ns(), kib);
        c.uncheckpointed_kib.store(c.uncheckpointed_kib.load(Relaxed).saturating_add(kib), Relaxed);
    }

    /// Notes that the checkpoint has ended; `whole` if all of the WAL is in the file now.
    pub(super) fn checkpointed(self, whole: bool) {
        let c = self.control;
        let taken = c.checkpoints_ns.load(Relaxed).saturating_add(self.took_ns());
        c.checkpoints_ns.store(if whole { 0 } else { taken }, Relaxed);
        if whole {
            learn(&c.checkpoint_ns_per_kib, taken, c.uncheckpointed_kib.load(Relaxed));
            c.uncheckpointed_kib.store(0, Relaxed);
        }
    }
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        self.control.work_due_ns.store(0, Relaxed);
    }
}

/// Learns that so many KiB took so long: half of the guess is of the last time.
fn learn(word: &AtomicU64, took_ns: u64, kib: u64) {
    if kib < TELLING_KIB {
        return;
    }
    let (before, took) = (word.load(Relaxed), took_ns / kib);
    word.store(if before == 0 { took } else { before.midpoint(took) }, Relaxed);
}

impl Database {
    /// Begins a merge of so many bytes of memtables.
    pub(super) fn begin_merge_pace(&self, bytes: u64) -> Pace<'_> {
        let c = self.control();
        Pace::begin(c, c.merge_ns_per_kib.load(Relaxed).saturating_mul(bytes >> 10))
    }

    /// Begins a checkpoint of what is merged.
    pub(super) fn begin_checkpoint_pace(&self) -> Pace<'_> {
        let c = self.control();
        let all = c
            .checkpoint_ns_per_kib
            .load(Relaxed)
            .saturating_mul(c.uncheckpointed_kib.load(Relaxed));
        let span = all.saturating_sub(c.checkpoints_ns.load(Relaxed)).max(all / LAST_PART);
        Pace::begin(c, span)
    }

    /// True while some process merges.
    pub(crate) fn paces_commits(&self) -> bool {
        let c = self.control();
        c.work_due_ns.load(Relaxed) != 0 && c.merge_owner.load(Relaxed) != 0
    }

    /// Sleeps, with nothing held, if commits of so many bytes come before their turn.
    pub(crate) fn keep_pace(&self, bytes: u64) {
        if bytes == 0 || !self.paces_commits() {
            return;
        }
        let c = self.control();
        let due = c.work_due_ns.load(Relaxed);
        let now = monotonic_ns();
        let left = left_until(due, now, c.work_span_ns.load(Relaxed));
        let each = share_of(bytes, left, self.generations.room_left());
        let turn = |before| Some(next_turn(before, now, each));
        let before = c.pace_ns.fetch_update(Relaxed, Relaxed, turn).unwrap_or(now);
        let wait = next_turn(before, now, each).saturating_sub(now);
        if wait > MOMENT_NS {
            let wait = Duration::from_nanos(wait).min(LONGEST);
            futex::wait(&AtomicU32::new(0), 0, Some(wait));
        }
    }
}

/// Returns how long work that was `due` after `span` nanoseconds will probably still take. Late
/// work will need its delay once more: a merge may get little of the processor while commits do not
/// sleep.
fn left_until(due: u64, now: u64, span: u64) -> u64 {
    due.abs_diff(now).max(span / LAST_PART)
}

/// Returns the part of `left` nanoseconds for `bytes`, if `room` has to last for all of it.
fn share_of(bytes: u64, left: u64, room: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(left) / u128::from(room.max(LEAST_ROOM));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Returns the turn of a commit that takes `each` nanoseconds, after the one whose turn was
/// `before`.
fn next_turn(before: u64, now: u64, each: u64) -> u64 {
    let longest = LONGEST.as_nanos() as u64;
    // A turn further ahead is not from this merge, or not from this boot.
    let before = if before > now.saturating_add(longest) { now } else { before };
    before.max(now.saturating_sub(MOMENT_NS)).saturating_add(each)
}

/// Between two looks for readers that hold back a checkpoint, and for how long in all.
const NAP: Duration = Duration::from_millis(5);
const LOOKED: Duration = Duration::from_millis(500);

/// Has a thread merge, if a merge is due that no process makes; false if that is impossible.
pub(crate) fn merge_beside(database: &Arc<Database>) -> bool {
    let is_made = database.control().merge_owner.load(Relaxed) != 0;
    is_made
        || !database.merge_is_due()
        || database.worker().call(|| {
            let database = database.clone();
            Box::new(move |is_stopped| merge(&database, is_stopped))
        })
}

/// True if a thread makes a due merge, for which a transaction without room can wait. A transaction
/// that merged itself would be away for the merge and its checkpoint, while others go on. False if
/// the thread has just failed: the transaction then merges itself, and gets the error.
pub(crate) fn background_merge_will_run(database: &Arc<Database>) -> bool {
    database.merge_is_due() && !database.worker().has_just_failed() && merge_beside(database)
}

/// Runs in the thread. An error leaves the generations frozen. A panic has poisoned the database
/// (MERGE-2 in database/merge_right.rs).
fn merge(database: &Database, is_stopped: &dyn Fn() -> bool) -> Result<()> {
    let merged = database.borrow_slot().and_then(|slot| {
        database.merge_if_due(slot.index())?;
        finish(is_stopped, database, slot.index())
    });
    if let Err(e) = &merged {
        database.note_merge_failure(e);
    }
    merged
}

/// Finishes the checkpoint. Transactions from before a merge keep its pages from the database file,
/// and the next merge would lengthen the WAL by as much again. They mostly end soon.
fn finish(is_stopped: &dyn Fn() -> bool, database: &Database, slot: SlotIndex) -> Result<()> {
    let is_over = || {
        let is_over = database.finish_checkpoint(slot)? || database.merge_is_due() || is_stopped();
        Ok(is_over.then_some(()))
    };
    wait::until(LOOKED, NAP, is_over).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn room_is_dealt_out_over_what_is_left_of_the_merge() {
        let room = ARENA_BYTES as u64;
        assert_eq!(share_of(room, SECOND, room), SECOND);
        assert_eq!(share_of(room / 1024, SECOND, room), SECOND / 1024);
        assert_eq!(share_of(1024, 2 * SECOND, 0), 2 * SECOND / (LEAST_ROOM / 1024));
        assert_eq!(share_of(u64::MAX, u64::MAX, 0), u64::MAX);
        assert_eq!(share_of(1000, 0, room), 0);
    }

    #[test]
    fn what_is_late_is_expected_to_take_as_long_again() {
        assert_eq!(left_until(1_000, 400, 800), 600);
        assert_eq!(left_until(1_000, 1_010, 800), 100, "a part of it at least");
        assert_eq!(left_until(1_000, 3_000, 800), 2_000);
        assert_eq!(left_until(1_000, 1_500, 0), 500, "nobody knew how long it takes");
    }

    #[test]
    fn half_of_a_guess_is_of_the_last_time() {
        let word = AtomicU64::default();
        learn(&word, 1 << 20, TELLING_KIB);
        assert_eq!(word.load(Relaxed), 1024, "the first tells all");
        learn(&word, 3 << 20, TELLING_KIB);
        assert_eq!(word.load(Relaxed), 2048);
        learn(&word, SECOND, TELLING_KIB - 1);
        assert_eq!(word.load(Relaxed), 2048, "small ones tell nothing");
    }

    #[test]
    fn turns_follow_each_other_and_who_was_slow_has_no_more_than_a_moment_left() {
        let now = 50 * SECOND;
        assert_eq!(next_turn(now, now, 7), now + 7);
        assert_eq!(next_turn(now + 20, now, 7), now + 27);
        assert_eq!(next_turn(0, now, 7), now - MOMENT_NS + 7);
        assert_eq!(next_turn(now + SECOND, now, 7), now + 7, "another boot's");
        assert_eq!(next_turn(u64::MAX, now, u64::MAX), u64::MAX, "and bounded by the sleeper");
    }
}

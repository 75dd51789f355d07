//! Commits keep pace with merges.
//!
//! Where commits come faster than merges can bring them into the base, memory gets full, and everybody stands still until a merge ends: for
//! seconds on a large table, and who wakes first fills it again before the last one has come. So while a merge runs, what room there is
//! is dealt out over the time that the merge will probably take. A commit that comes before its turn sleeps a little, after it is through and
//! with nothing held. Whoever comes slower than that never sleeps.
//!
//! | word | while a merge runs | else |
//! |---|---|---|
//! | `merge_end_ns` | when it will probably end | 0: nobody waits |
//! | `merge_span_ns` | how long it will probably take in all | of the last one |
//! | `pace_ns` | the turn of the next commit | of the last one |
//! | `merge_ns_per_kib` | what a KiB of memtables took the last merges | the same |
//!
//! Invariants
//! - P1 The words are guesses, and whatever stands in them, nobody sleeps for longer than [`LONGEST`] after one commit. That there is room
//!   is decided where it always was (S4).
//! - P2 They are read only while somebody has the right to merge: the guesses of one who died hold nobody up.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::database::Database;
use crate::shm::layout::{ARENA_BYTES, Control};
use crate::sync::clock::monotonic_ns;
use crate::sync::futex;

/// Longest sleep after one commit.
const LONGEST: Duration = Duration::from_millis(100);
/// Turns so near are now: falling asleep and waking cost as much. Who was slower has so much of it left, too.
const MOMENT_NS: u64 = 500_000;
/// A merge that takes longer than expected is expected to take a part of it still.
const LAST_PART: u64 = 8;
/// Merges of less tell nothing about what a KiB takes: their syncs are most of it.
const TELLING_KIB: u64 = 1024;
/// Room that is there is dealt out as if it were at least so much: what is left then goes slowly, but it goes.
const LEAST_ROOM: u64 = ARENA_BYTES as u64 / 16;

/// A merge that has begun; dropped when its generations are merged, or could not be.
pub(super) struct Pace<'a> {
    control: &'a Control,
    begun_ns: u64,
    bytes: u64,
    is_merged: bool,
}

impl Pace<'_> {
    /// The generations are merged.
    pub(super) fn reached(mut self) {
        self.is_merged = true;
    }
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        let c = self.control;
        // Relaxed, here and below: guesses (P1).
        c.merge_end_ns.store(0, Relaxed);
        let kib = self.bytes >> 10;
        if self.is_merged && kib >= TELLING_KIB {
            let took = monotonic_ns().saturating_sub(self.begun_ns) / kib;
            let before = c.merge_ns_per_kib.load(Relaxed);
            let guess = if before == 0 { took } else { before.midpoint(took) };
            c.merge_ns_per_kib.store(guess, Relaxed);
        }
    }
}

impl Database {
    /// A merge of so many bytes of memtables begins.
    pub(super) fn begin_pace(&self, bytes: u64) -> Pace<'_> {
        let control = self.control();
        let begun_ns = monotonic_ns();
        let span = control.merge_ns_per_kib.load(Relaxed).saturating_mul(bytes >> 10);
        control.merge_span_ns.store(span, Relaxed);
        let end = if span == 0 { 0 } else { begun_ns.saturating_add(span) };
        control.merge_end_ns.store(end, Relaxed);
        Pace { control, begun_ns, bytes, is_merged: false }
    }

    /// Sleeps if commits of so many bytes come before their turn. With nothing held.
    pub(crate) fn keep_pace(&self, bytes: u64) {
        let c = self.control();
        let end = c.merge_end_ns.load(Relaxed);
        if end == 0 || bytes == 0 || c.merge_owner.load(Relaxed) == 0 {
            return;
        }
        let now = monotonic_ns();
        let span = c.merge_span_ns.load(Relaxed);
        let left = end.saturating_sub(now).clamp(span / LAST_PART, span);
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

/// The part of `left` nanoseconds that falls to `bytes` if `room` has to last for all of it.
fn share_of(bytes: u64, left: u64, room: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(left) / u128::from(room.max(LEAST_ROOM));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// The turn of a commit that takes `each` nanoseconds, behind the one whose turn was `before`.
fn next_turn(before: u64, now: u64, each: u64) -> u64 {
    let longest = LONGEST.as_nanos() as u64;
    // Whatever lies further ahead is not from this merge, or not from this boot.
    let before = if before > now.saturating_add(longest) { now } else { before };
    before.max(now.saturating_sub(MOMENT_NS)).saturating_add(each)
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
    fn turns_follow_each_other_and_who_was_slow_has_no_more_than_a_moment_left() {
        let now = 50 * SECOND;
        assert_eq!(next_turn(now, now, 7), now + 7);
        assert_eq!(next_turn(now + 20, now, 7), now + 27);
        assert_eq!(next_turn(0, now, 7), now - MOMENT_NS + 7);
        assert_eq!(next_turn(now + SECOND, now, 7), now + 7, "another boot's");
        assert_eq!(next_turn(u64::MAX, now, u64::MAX), u64::MAX, "and bounded by the sleeper");
    }
}

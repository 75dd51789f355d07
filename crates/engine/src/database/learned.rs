//! Plain BEGIN transactions that take the writer's right at their first statement: those of which
//! nothing is known, on trial, and those that began as others did that were refused.
//!
//! A transaction that reads and then writes is refused if what it has read has changed before its
//! first write. Where many read and write the same few rows most are refused, and repeat their work
//! for nothing. So what such transactions begin with is remembered (a hash of the first statement's
//! text, `csrc/begin.c`), for all processes. Transactions that begin with it take the right there,
//! as BEGIN IMMEDIATE does, for as long as that pays.
//!
//! It pays where a transaction changes a row of which a version came while it waited for the right:
//! read without the right, that row would have had it refused. A transaction that only reads has
//! had the right for nothing.
//!
//! | event | the statement's credit, which the next transactions use up |
//! |---|---|
//! | it is met for the first time, and has a free place | [`TRIAL`]: it is on trial |
//! | a transaction is refused (below) | [`GRANT`] |
//! | one took the right at once and it has paid | [`GRANT`] |
//! | one took the right at once, wrote while others waited, and it has not | one less |
//! | one took the right at once, wrote, and nobody waited | as before: it has cost nothing |
//! | one took the right at once and has only read | an eighth of the grant less |
//! | one did not get it, or has lost it (RIGHT-10 in right.rs) | as if it had only read; on trial none |
//! | one has lost it, and was refused then | as before |
//!
//! A transaction that has read and then changes the schema counts as refused.
//!
//! A trial must not cost those much that only read: the transaction waits for the right for
//! [`TRIAL_WAITS`] at most, and has it for [`EARLY`] if others wait. A statement that finds all its
//! places taken is not tried. One that was refused takes the place of the one with the least credit.
//!
//! Layout: a word a statement: the upper half of its hash, the grant, the credit; 0 when the place
//! is free. A statement is in one of [`PLACES`] neighbouring places, or in none.
//!
//! Sessions end where programs open the database for each request. So a process that leaves keeps
//! what is known, and puts it into the table of the next session that it begins.
//!
//! Invariants
//! - LEARN-1 The table decides when a transaction waits, and nothing else: a wrong word costs a
//!   wait, or a refusal. So its words are changed without a lock, and a change that meets another
//!   one may be lost.
//! - LEARN-2 A word is read and written as a whole: no process finds the credit of one statement
//!   with the hash of another.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Database;
use crate::shm::layout::LEARNED_SLOTS;
use crate::shm::region::BaseIdentity;

/// How many transactions take the right at once after a refusal, though others wait and it does not
/// pay. Of workers that meet on one row in a hundred, one run of that many in two hundred pays none.
const GRANT: u16 = 512;
/// How many do so that begin with a statement of which nothing is known.
const TRIAL: u16 = 64;
/// This many transactions that only read use up a whole grant.
const READERS: u16 = 8;
/// Places that a statement may be in.
const PLACES: usize = 4;
/// How long a transaction on trial waits for the right.
const TRIAL_WAITS: Duration = Duration::from_millis(100);
/// How long a transaction that took the right early keeps it while others wait.
pub(crate) const EARLY: Duration = Duration::from_millis(250);
/// Databases of which a process keeps what it knew between two sessions.
const KEPT_MAX: usize = 16;

/// How a transaction ended that took the right at its first statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Without the right it would have been refused.
    Paid,
    /// It wrote, and would not have been refused; others waited meanwhile.
    Wrote,
    /// It wrote, and nobody waited.
    WroteAlone,
    /// It only read.
    OnlyRead,
    /// It did not get the right, or has lost it.
    InVain,
}

/// Why a transaction takes the right at its first statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    OnTrial,
    Granted,
}

impl Standing {
    /// How long it waits for the right; `None`: as long as its caller says.
    pub(crate) fn waits(self) -> Option<Duration> {
        (self == Standing::OnTrial).then_some(TRIAL_WAITS)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u32,
    grant: u16,
    credit: u16,
}

impl Entry {
    fn of(word: u64) -> Entry {
        Entry { tag: (word >> 32) as u32, grant: (word >> 16) as u16, credit: word as u16 }
    }

    fn word(self) -> u64 {
        if self.grant == 0 {
            return 0;
        }
        u64::from(self.tag) << 32 | u64::from(self.grant) << 16 | u64::from(self.credit)
    }

    fn standing(self) -> Option<Standing> {
        let standing = if self.grant < GRANT { Standing::OnTrial } else { Standing::Granted };
        (self.credit > 0).then_some(standing)
    }

    fn refused(self) -> Entry {
        Entry { grant: GRANT, credit: GRANT, ..self }
    }

    fn ended(self, outcome: Outcome) -> Entry {
        let credit = match outcome {
            Outcome::Paid => return self.refused(),
            Outcome::WroteAlone => self.credit,
            Outcome::Wrote => self.credit.saturating_sub(1),
            Outcome::InVain if self.grant < GRANT => 0,
            Outcome::OnlyRead | Outcome::InVain => self.credit.saturating_sub(self.grant / READERS),
        };
        Entry { credit, ..self }
    }
}

/// The table, in shared memory.
pub(crate) struct Learned<'a>(&'a [AtomicU64; LEARNED_SLOTS]);

impl Learned<'_> {
    fn tag(first: u64) -> u32 {
        ((first >> 32) as u32).max(1)
    }

    fn places(&self, tag: u32) -> impl Iterator<Item = &AtomicU64> {
        let from = tag as usize % LEARNED_SLOTS;
        (from..from + PLACES).map(|at| &self.0[at % LEARNED_SLOTS])
    }

    fn find(&self, first: u64) -> Option<(&AtomicU64, Entry)> {
        let tag = Learned::tag(first);
        // Relaxed, as everywhere here: LEARN-1.
        self.places(tag)
            .map(|place| (place, Entry::of(place.load(Relaxed))))
            .find(|(_, entry)| entry.grant != 0 && entry.tag == tag)
    }

    fn change(&self, first: u64, change: impl FnOnce(Entry) -> Entry) {
        if let Some((place, entry)) = self.find(first) {
            let _ = place.compare_exchange(entry.word(), change(entry).word(), Relaxed, Relaxed);
        }
    }

    /// Whether a transaction that begins with this statement should take the right at once.
    pub(crate) fn wants_right(&self, first: u64) -> Option<Standing> {
        if let Some((_, entry)) = self.find(first) {
            return entry.standing();
        }
        let tag = Learned::tag(first);
        let has_place = self.places(tag).any(|place| place.load(Relaxed) == 0);
        has_place.then(|| self.put(Entry { tag, grant: TRIAL, credit: TRIAL }))?;
        Some(Standing::OnTrial)
    }

    /// A transaction that began with it was refused for what it had read.
    pub(crate) fn note_refused(&self, first: u64) {
        if self.find(first).is_some() {
            return self.change(first, Entry::refused);
        }
        let tag = Learned::tag(first);
        self.put(Entry { tag, grant: 0, credit: 0 }.refused());
    }

    /// Puts a new entry into the place with the least credit: a free one has none.
    fn put(&self, new: Entry) {
        let least = |place: &&AtomicU64| {
            let entry = Entry::of(place.load(Relaxed));
            (entry.credit, entry.grant)
        };
        if let Some(place) = self.places(new.tag).min_by_key(least) {
            place.store(new.word(), Relaxed);
        }
    }

    /// A transaction that began with it took the right at once, and has ended.
    pub(crate) fn note_ended(&self, first: u64, outcome: Outcome) {
        self.change(first, |entry| entry.ended(outcome));
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|place| place.load(Relaxed)).filter(|word| *word != 0)
    }
}

/// What this process knew of a database when it left.
struct Kept {
    path: PathBuf,
    /// The file that was there: another one may have got its name, or its inode.
    identity: BaseIdentity,
    words: Vec<u64>,
}

impl Kept {
    fn is_of(&self, db: &Database) -> bool {
        self.identity == db.base_identity() && self.path == db.path()
    }
}

/// The newest is the last.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

impl Database {
    pub(crate) fn learned(&self) -> Learned<'_> {
        Learned(&self.control().learned)
    }

    /// Keeps what is known when this process leaves. A child of a fork may find the list locked for
    /// ever, by a thread of its parent, and keeps nothing.
    pub(crate) fn keep_learned(&self) {
        let Ok(mut kept) = KEPT.try_lock() else { return };
        kept.retain(|of| !of.is_of(self));
        let words: Vec<u64> = self.learned().words().collect();
        if !words.is_empty() {
            let surplus = (kept.len() + 1).saturating_sub(KEPT_MAX);
            kept.drain(..surplus);
            let path = self.path().to_owned();
            kept.push(Kept { path, identity: self.base_identity(), words });
        }
    }

    /// Puts what this process has kept into the table of the session that it has begun.
    pub(crate) fn recall_learned(&self) {
        let Ok(kept) = KEPT.try_lock() else { return };
        for word in kept.iter().filter(|of| of.is_of(self)).flat_map(|of| &of.words) {
            self.learned().put(Entry::of(*word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 7 << 32 | 5;

    fn table() -> [AtomicU64; LEARNED_SLOTS] {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    fn credit(learned: &Learned<'_>, first: u64) -> Option<u16> {
        learned.find(first).map(|(_, entry)| entry.credit)
    }

    #[test]
    fn who_is_met_for_the_first_time_is_on_trial_and_who_was_refused_is_served_next() {
        let words = table();
        let learned = Learned(&words);
        for _ in 0..1_000 {
            assert_eq!(learned.wants_right(FIRST), Some(Standing::OnTrial), "it costs nothing");
            learned.note_ended(FIRST, Outcome::WroteAlone);
        }
        for _ in 0..TRIAL {
            assert_eq!(learned.wants_right(FIRST), Some(Standing::OnTrial));
            learned.note_ended(FIRST, Outcome::Wrote);
        }
        assert_eq!(learned.wants_right(FIRST), None, "it has not paid");
        for served in [Learned::note_refused, |l: &Learned<'_>, f| l.note_ended(f, Outcome::Paid)] {
            served(&learned, FIRST);
            assert_eq!(learned.wants_right(FIRST), Some(Standing::Granted));
            for _ in 0..READERS {
                assert!(learned.wants_right(FIRST).is_some());
                learned.note_ended(FIRST, Outcome::InVain);
            }
            assert_eq!(learned.wants_right(FIRST), None);
        }
    }

    #[test]
    fn credit_is_used_up_by_those_for_whom_it_does_not_pay_and_soon_by_those_who_read() {
        let words = table();
        let learned = Learned(&words);
        for (first, grant) in [(FIRST, TRIAL), (FIRST + (1 << 32), GRANT)] {
            if grant == GRANT {
                learned.note_refused(first);
            }
            for _ in 0..READERS {
                assert!(learned.wants_right(first).is_some());
                learned.note_ended(first, Outcome::OnlyRead);
            }
            assert_eq!(learned.wants_right(first), None);
        }
        learned.note_refused(FIRST);
        for _ in 0..1_000 {
            learned.note_ended(FIRST, Outcome::Wrote);
            learned.note_ended(FIRST, Outcome::Paid);
        }
        assert_eq!(credit(&learned, FIRST), Some(GRANT), "it pays");
        for _ in 0..GRANT {
            assert!(learned.wants_right(FIRST).is_some());
            learned.note_ended(FIRST, Outcome::Wrote);
        }
        assert_eq!(learned.wants_right(FIRST), None, "it has not paid for long");
    }

    #[test]
    fn a_statement_that_finds_no_place_is_not_tried() {
        let words = table();
        let learned = Learned(&words);
        let same_place = |i: u64| (7 + i * LEARNED_SLOTS as u64) << 32;
        for i in 0..PLACES as u64 {
            assert!(learned.wants_right(same_place(i)).is_some());
        }
        assert_eq!(learned.wants_right(same_place(9)), None);
        learned.note_ended(same_place(2), Outcome::InVain);
        learned.note_refused(same_place(9));
        assert_eq!(learned.wants_right(same_place(9)), Some(Standing::Granted));
        assert!(learned.find(same_place(2)).is_none(), "its place was taken");
    }

    #[test]
    fn a_full_table_gives_up_what_has_the_least_credit() {
        let words = table();
        let learned = Learned(&words);
        let same_place = |i: u64| (7 + i * LEARNED_SLOTS as u64) << 32;
        for i in 0..PLACES as u64 {
            learned.note_refused(same_place(i));
        }
        learned.note_ended(same_place(2), Outcome::OnlyRead);
        learned.note_refused(same_place(9));
        let known: Vec<u64> = (0..10).filter(|i| learned.find(same_place(*i)).is_some()).collect();
        assert_eq!(known, [0, 1, 3, 9]);
    }
}

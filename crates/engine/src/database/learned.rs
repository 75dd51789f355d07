//! Plain BEGIN transactions that take the writer's right at their first statement, because others
//! that began with it were refused.
//!
//! A transaction that reads and then writes is refused if what it has read has changed before its
//! first write. Where many read and write the same few rows most are refused, and repeat their work
//! for nothing. So the first statement of a refused transaction is remembered (a hash of its text,
//! `csrc/begin.c`), for all processes. Transactions that begin with it take the right there, as
//! BEGIN IMMEDIATE does, for as long as that pays.
//!
//! It pays where a transaction changes a row of which a version came while it waited for the right:
//! read without the right, that row would have had it refused. A transaction that only reads has
//! had the right for nothing.
//!
//! | event | the statement's credit, which the next transactions use up |
//! |---|---|
//! | a transaction is refused (below) | [`GRANTS`], four times as much each time |
//! | one took the right at once and it has paid | what it was granted |
//! | one took the right at once, wrote, and it has not | one less |
//! | one took the right at once and has only read | an eighth of the grant less |
//! | one did not get it, or kept it longer than [`LONG`] | none |
//! | one without credit wrote and was not refused | none; the next grant is half |
//!
//! A transaction that has read and then changes the schema counts as refused.
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

/// How many transactions take the right at once after a refusal, at first and at most.
const GRANTS: std::ops::RangeInclusive<u16> = 32..=512;
/// This many transactions that only read use up a whole grant.
const READERS: u16 = 8;
/// Places that a statement may be in.
const PLACES: usize = 4;
/// A transaction that keeps the right for longer than this makes all writers wait.
pub(crate) const LONG: Duration = Duration::from_secs(1);
/// Databases of which a process keeps what it knew between two sessions.
const KEPT_MAX: usize = 16;

/// How a transaction ended that took the right at its first statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Without the right it would have been refused.
    Paid,
    /// It wrote, and would not have been refused.
    Wrote,
    /// It only read.
    OnlyRead,
    /// It did not get the right, or kept it for long.
    InVain,
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

    fn refused(self) -> Entry {
        let grant = self.grant.saturating_mul(4).clamp(*GRANTS.start(), *GRANTS.end());
        Entry { grant, credit: grant, ..self }
    }

    fn passed(self) -> Entry {
        let grant = if self.grant > *GRANTS.start() { self.grant / 2 } else { 0 };
        Entry { grant, ..self }
    }

    fn ended(self, outcome: Outcome) -> Entry {
        let credit = match outcome {
            Outcome::Paid => self.grant,
            Outcome::Wrote => self.credit.saturating_sub(1),
            Outcome::OnlyRead => self.credit.saturating_sub(self.grant / READERS),
            Outcome::InVain => 0,
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

    /// True if a transaction that begins with this statement should take the right at once.
    pub(crate) fn wants_right(&self, first: u64) -> bool {
        self.find(first).is_some_and(|(_, entry)| entry.credit > 0)
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

    /// A transaction that began with it has begun to write, without the right until then, and was
    /// not refused.
    pub(crate) fn note_passed(&self, first: u64) {
        // With credit it began before others were refused.
        self.change(first, |entry| if entry.credit == 0 { entry.passed() } else { entry });
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
    fn who_was_refused_is_served_next_and_the_more_often_the_longer() {
        let words = table();
        let learned = Learned(&words);
        assert!(!learned.wants_right(FIRST));
        let mut credits = Vec::new();
        for _ in 0..4 {
            learned.note_refused(FIRST);
            credits.push(credit(&learned, FIRST));
        }
        assert_eq!(credits, [Some(32), Some(128), Some(512), Some(512)]);
        assert!(learned.wants_right(FIRST) && !learned.wants_right(FIRST + (1 << 32)));
    }

    #[test]
    fn credit_is_used_up_by_those_for_whom_it_does_not_pay_and_soon_by_those_who_read() {
        let words = table();
        let learned = Learned(&words);
        learned.note_refused(FIRST);
        for _ in 0..1_000 {
            learned.note_ended(FIRST, Outcome::Wrote);
            learned.note_ended(FIRST, Outcome::Paid);
        }
        assert!(learned.wants_right(FIRST), "it pays");
        for _ in 0..31 {
            learned.note_ended(FIRST, Outcome::Wrote);
        }
        assert!(learned.wants_right(FIRST));
        learned.note_ended(FIRST, Outcome::Wrote);
        assert!(!learned.wants_right(FIRST), "it has not paid for long");
        learned.note_refused(FIRST);
        for _ in 0..READERS {
            assert!(learned.wants_right(FIRST));
            learned.note_ended(FIRST, Outcome::OnlyRead);
        }
        assert!(!learned.wants_right(FIRST));
        learned.note_refused(FIRST);
        learned.note_ended(FIRST, Outcome::InVain);
        assert!(!learned.wants_right(FIRST));
    }

    #[test]
    fn a_statement_whose_transactions_pass_without_the_right_is_forgotten() {
        let words = table();
        let learned = Learned(&words);
        learned.note_refused(FIRST);
        learned.note_refused(FIRST);
        learned.note_passed(FIRST);
        assert_eq!(credit(&learned, FIRST), Some(128), "it began before the others were refused");
        learned.note_ended(FIRST, Outcome::InVain);
        for _ in 0..3 {
            assert!(learned.find(FIRST).is_some());
            learned.note_passed(FIRST);
        }
        assert!(learned.find(FIRST).is_none());
        assert_eq!(learned.words().count(), 0);
    }

    #[test]
    fn a_full_table_gives_up_what_has_the_least_credit() {
        let words = table();
        let learned = Learned(&words);
        let same_place = |i: u64| (7 + i * LEARNED_SLOTS as u64) << 32;
        for i in 0..PLACES as u64 {
            learned.note_refused(same_place(i));
            learned.note_refused(same_place(i));
        }
        learned.note_ended(same_place(2), Outcome::OnlyRead);
        learned.note_refused(same_place(9));
        let known: Vec<u64> = (0..10).filter(|i| learned.find(same_place(*i)).is_some()).collect();
        assert_eq!(known, [0, 1, 3, 9]);
    }
}

//! A hold on the log: what a process that ships the stream elsewhere still has to read.
//!
//! A merge gives the segments of its generations back, and their slots of the file are used again.
//! The *holder*, one process, needs them for longer: from the last frame that it has shipped on. So
//! while a hold is in force slots of segments from that one on are not used again. The file grows
//! instead, up to the holder's limit of segments that nothing else needs. Past it the hold is *broken*:
//! the segments are given up, and the holder finds out.
//!
//! | `held` | meaning |
//! |---|---|
//! | 0 | nobody holds, or the hold was broken: segments below `first_live_segment` are free |
//! | token and segment | segments from this one on are held by the process that was given the token |
//!
//! | from | to | who, and when |
//! |---|---|---|
//! | any | a new token | the holder, under the commit mutex ([`LogShared::take_hold`]) |
//! | a token | the same, a later segment | the holder, without a lock ([`LogShared::move_hold`]) |
//! | a token | 0 | the holder; a reaper of its process; a committer that needs the space |
//!
//! Invariants
//! - HELD-1 While a hold is in force no slot of a segment from `held` on is given to another one.
//!   Slots are given under the commit mutex, and so is a hold. So the bytes of a segment that is in
//!   its slot when the hold begins stay, and those of later ones too.
//! - HELD-2 A hold costs commits no wait but the growth of the file, and no error: at its limit, and
//!   where the file cannot grow, it is broken before anything else is tried. The log's own limit
//!   counts live segments alone, as without a hold.
//! - HELD-3 A token is given once in a session. A holder whose token is no longer in `held` holds
//!   nothing, and moves nothing.
//! - HELD-4 The hold of a dead process ends when its process slot is reaped or taken.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::shared::{LogShared, MAX_SLOTS};
use crate::crash_point;
use crate::ids::{Lsn, ProcessIndex};
use crate::sync::mutex::Guard;

/// Bits of `held` below the token: the segment. Positions end far before.
const SEGMENT_BITS: u32 = 40;

/// The hold, in shared memory.
#[repr(C)]
#[derive(Debug)]
pub(super) struct HoldState {
    /// See the table; the token is above [`SEGMENT_BITS`].
    held: AtomicU64,
    /// Process slot of the holder, plus 1. Stored before `held`.
    holder: AtomicU32,
    /// Segments that are not live which the hold may keep.
    slots: AtomicU32,
    /// Tokens given so far.
    tokens: AtomicU32,
    /// Holds broken so far.
    broken: AtomicU32,
}

/// What a holder was given (HELD-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldToken(u32);

/// The token behind so many others: 24 bits in `held`, and never 0.
fn token_given(others: u32) -> u32 {
    others % ((1 << 24) - 1) + 1
}

fn token_of(held: u64) -> u32 {
    (held >> SEGMENT_BITS) as u32
}

fn segment_of(held: u64) -> u64 {
    held & ((1 << SEGMENT_BITS) - 1)
}

impl LogShared {
    /// (M) Holds the log from the frame that ends at `from` on, in place of an earlier hold. It may
    /// keep about `bytes` bytes of the stream that nothing else needs.
    ///
    /// What was given back before may be gone: [`LogShared::has_from`] says.
    pub(crate) fn take_hold(
        &self,
        _: &Guard<'_>,
        process: ProcessIndex,
        from: Lsn,
        bytes: u64,
    ) -> HoldToken {
        let hold = &self.hold;
        let token = token_given(hold.tokens.fetch_add(1, Relaxed));
        let slots = (bytes / self.segment_bytes()).clamp(1, u64::from(MAX_SLOTS));
        // Relaxed: read under the commit mutex.
        hold.slots.store(slots as u32, Relaxed);
        hold.holder.store(process.0 + 1, Relaxed);
        crash_point!("hold.taking");
        // Release: whoever finds the token finds its holder (`end_hold_of`).
        hold.held.store(u64::from(token) << SEGMENT_BITS | self.segment_to_hold(from), Release);
        HoldToken(token)
    }

    /// The segment of the last byte before `from`: its checksum shows which frames come before.
    fn segment_to_hold(&self, from: Lsn) -> u64 {
        self.segment_of(Lsn::new(from.get().saturating_sub(1))).max(super::FIRST_SEGMENT)
    }

    /// Holds what ends at `from` and what follows alone; false if the hold is no longer in force.
    pub(crate) fn move_hold(&self, token: HoldToken, from: Lsn) -> bool {
        let segment = self.segment_to_hold(from);
        let moved = self.hold.held.fetch_update(AcqRel, Acquire, |held| {
            (token_of(held) == token.0)
                .then(|| u64::from(token.0) << SEGMENT_BITS | segment.max(segment_of(held)))
        });
        moved.is_ok()
    }

    /// True if the hold is in force.
    pub(crate) fn is_held_by(&self, token: HoldToken) -> bool {
        token_of(self.hold.held.load(Acquire)) == token.0
    }

    /// (M) True if nobody was given a token since: this is the last holder, if not the present one.
    pub(crate) fn was_given_last(&self, _: &Guard<'_>, token: HoldToken) -> bool {
        // Relaxed: given under the commit mutex.
        self.hold.tokens.load(Relaxed).checked_sub(1).map(token_given) == Some(token.0)
    }

    /// (M) True unless another process than this one holds the log.
    pub(crate) fn is_no_others(&self, _: &Guard<'_>, process: ProcessIndex) -> bool {
        // Relaxed: a hold is taken under the commit mutex, and who ends or breaks one takes it for nobody.
        self.hold.held.load(Acquire) == 0 || self.hold.holder.load(Relaxed) == process.0 + 1
    }

    /// Gives the hold up, if it is in force.
    pub(crate) fn end_hold(&self, token: HoldToken) {
        let is_its = |held| (token_of(held) == token.0).then_some(0);
        let _ = self.hold.held.fetch_update(AcqRel, Acquire, is_its);
    }

    /// Ends the hold of a process that is dead, or was (HELD-4).
    pub fn end_hold_of(&self, process: ProcessIndex) {
        let held = self.hold.held.load(Acquire);
        // Relaxed: stored before the token that was found, or by a holder that comes after it, whose
        // token the exchange does not meet.
        if held != 0 && self.hold.holder.load(Relaxed) == process.0 + 1 {
            let _ = self.hold.held.compare_exchange(held, 0, AcqRel, Acquire);
        }
    }

    /// Breaks the hold, if there is one (HELD-2). True if there was.
    pub(crate) fn break_hold(&self) -> bool {
        let was = self.hold.held.swap(0, AcqRel) != 0;
        if was {
            // Relaxed: a counter.
            self.hold.broken.fetch_add(1, Relaxed);
            crash_point!("hold.broken");
        }
        was
    }

    /// True if a hold is in force.
    pub(crate) fn is_held(&self) -> bool {
        // Relaxed: a hint.
        self.hold.held.load(Relaxed) != 0
    }

    /// True if the session has ever had a hold.
    pub(crate) fn was_held(&self) -> bool {
        // Relaxed: a hint; a merge that misses it is one of which nothing is known.
        self.hold.tokens.load(Relaxed) > 0
    }

    /// Whether somebody holds the log, how many bytes it keeps for that alone, and how often a hold
    /// was broken, for people.
    pub fn hold_status(&self) -> (bool, u64, u32) {
        let live = self.first_live_segment.load(Acquire);
        let kept = live.saturating_sub(self.first_needed_segment());
        let is_held = self.hold.held.load(Relaxed) != 0;
        (is_held, kept * self.segment_bytes(), self.hold.broken.load(Relaxed))
    }

    /// (M), or as a hint. The oldest segment whose slot may not be used for another.
    pub(super) fn first_needed_segment(&self) -> u64 {
        // Acquire pairs with the Release in `give_back`: the merge is durable before its slots are
        // reused.
        let live = self.first_live_segment.load(Acquire);
        match self.hold.held.load(Acquire) {
            0 => live,
            held => segment_of(held).min(live),
        }
    }

    /// (M) True if `held` segments that are not live may be kept, with `needed` in all.
    pub(super) fn may_hold(&self, held: u64, needed: u64) -> bool {
        // Relaxed: set under the commit mutex.
        let slots = self.hold.slots.load(Relaxed);
        held == 0 || (held <= u64::from(slots) && needed <= MAX_SLOTS.into())
    }

    /// Slots that the file may have, with those for the hold.
    pub(super) fn slots_allowed(&self) -> u32 {
        let own = self.slot_limit();
        match self.hold.held.load(Acquire) {
            0 => own,
            // Relaxed: stored before `held`.
            _ => own.saturating_add(self.hold.slots.load(Relaxed)).min(MAX_SLOTS.max(own)),
        }
    }

    /// (M) True if every byte from the frame that ends at `from` to the end of the log is in the
    /// ring or in its slot, or will be.
    pub(crate) fn has_from(&self, _: &Guard<'_>, from: Lsn) -> bool {
        let end = self.log_end();
        if end <= self.first_lsn() {
            return from == end;
        }
        if from > end.max(self.segment_start(self.segment_of(end) + 1)) || from < self.first_lsn() {
            return false;
        }
        let first = self.segment_to_hold(from);
        let last = self.segment_to_hold(end);
        (first..=last).all(|number| self.is_in_its_slot(number))
    }

    /// (M) True if the segment's slot was given to no other one.
    fn is_in_its_slot(&self, number: u64) -> bool {
        let slot = self.slot_of(number);
        // Relaxed: owners change under the commit mutex.
        slot.is_some_and(|slot| self.slot_owner[slot as usize].load(Relaxed) == number)
    }
}

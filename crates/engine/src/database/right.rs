//! The writer's right: one transaction at a time holds it, and no other transaction commits while
//! it is held.
//!
//! BEGIN IMMEDIATE and autocommit writes hold it from their start, a deferred transaction from its
//! first write or, early, from its first statement (learned.rs), an optimistic one only while it commits and only if it found the right taken. It is
//! passed on at the commit point, before the disk is awaited, so that queued writers share one
//! sync.
//!
//! A connection that finds the right taken sleeps in a queue. Handing the right from sleeper to
//! sleeper would leave it idle for each wake-up. So its holder frees it and *calls* the first
//! waiter, and a running connection may overtake: the members of a group commit, woken together, go
//! through one after the other without sleeping again. Overtaking ends when the queue has not been
//! served for a *period*: then the right is *reserved* for the first waiter. So the n-th waiter
//! waits for at most n periods and n transactions. The more wait, the shorter the period is
//! ([`overtaking_ns`]). A sleeper never holds the right: its process may be stopped, and would keep
//! it.
//!
//! State (all words change only under the commit mutex)
//!
//! | right_owner | queue | meaning |
//! |---|---|---|
//! | 0 | empty | free: any connection may take it or commit |
//! | 0 | waiters | free; the first is called, or looks by itself, and may have it reserved (`right_reserved`) |
//! | s | any | slot s holds it |
//! | s, its `early_until_ns` not 0 | any | slot s holds it early, and may lose it (RIGHT-10) |
//!
//! Invariants
//! - RIGHT-1 If the right is free and connections wait, the first of them, not counting those of
//!   RIGHT-9, has been called, or looks by itself (RIGHT-11). If that one dies, the others find the right free
//!   within a [`TICK`].
//! - RIGHT-2 A slot is in the queue at most once, and its entry counts only in state QUEUED. An
//!   entry in another state is owed (lock.rs), or is about to be dropped. (A slot is in the queue
//!   twice if a process was killed while it moved its own entry past the slot's (RIGHT-8): the
//!   second entry is dropped as one in another state, or serves the slot early.)
//! - RIGHT-3 The owner word alone decides who holds the right; the slot itself takes it, under the
//!   commit mutex. `granted` of a waiter is for its futex.
//! - RIGHT-4 Waiting is bounded: a waiter wakes at least every [`TICK`] to check its timeout, its
//!   interrupt flag and whether the holder's process lives.
//! - RIGHT-5 No connection waits in the queue with a snapshot whose end the right's holder waits
//!   for: it is refused at once, without a call of its busy handler. In a COMMIT it takes a newer
//!   snapshot and comes again (PIN-6 in snapshot.rs).
//! - RIGHT-6 While connections wait, the first release a period ([`overtaking_ns`]) after the queue
//!   was last served reserves the right for the first of them. COMMITs that need no right are not
//!   kept off.
//! - RIGHT-7 A connection that leaves a wait without the right, by an error or a panic too, has
//!   neither a place in the queue nor the right.
//! - RIGHT-8 The queue is in the order of arrival. A connection that was refused and comes again in
//!   the same COMMIT keeps its time of arrival: else large transactions that follow each other, and
//!   refuse it each time, would let all others pass.
//! - RIGHT-9 A waiter that was called and has not come for [`SILENT_NS`], because its process is
//!   stopped or dead, keeps its place but is skipped until it looks around: its reservation is
//!   void, and others are called.
//! - RIGHT-10 A holder whose `early_until_ns` is not 0 has the right as a courtesy: it reads as one
//!   without it, records what it reads, and takes the right, which it may still have, before it
//!   writes. Until then it may lose it: to one that waits at that time or later, and to one that
//!   would be told BUSY, which a waiter with that word does not keep from it either. Whoever takes
//!   the right sets the word, so it is of this holder.
//! - RIGHT-11 A release in a run (txn/runs.rs) calls no patient waiter that was called in vain less than [`VAIN`]
//!   ago: that one looks by itself before as much time is over.
//!
//! # The waits
//!
//! Taking the writer's right and giving it back.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::Database;
use super::slots::Slots;
use crate::crash_point;
use crate::error::{Error, Result};
use crate::ids::{SlotIndex, TXN_SLOTS};
use crate::shm::layout::{TxnSlot, owes, owner, txn_state};
use crate::shm::process::Who;
use crate::shm::region::Region;
use crate::sync::wait::{TICK, Wait};
use crate::sync::{clock, futex};

/// How long overtaking may delay the last waiter of a queue of up to 80.
const OVERTAKING_ALL_NS: u64 = 40_000_000;

/// Returns how long arrivals may overtake a queue of `waiters` before the first of them is served.
/// Transactions longer than this are served in the order of arrival.
///
/// A process that goes on needs a fraction of the processor time of one that is woken: its caches
/// are warm. A long queue is served so often that its last waiter hardly notices.
fn overtaking_ns(waiters: u32) -> u64 {
    (OVERTAKING_ALL_NS / u64::from(waiters.max(1))).clamp(500_000, 5_000_000)
}

/// How long the right is kept for a called waiter: many times what a wake-up takes, on a busy
/// machine too.
const SILENT_NS: u64 = 20_000_000;

/// How long a waiter sleeps that was called in vain (RIGHT-11).
pub(crate) const VAIN: Duration = Duration::from_millis(1);
/// A waiter that waits for less is not spared: behind runs the queue is served by periods alone.
const PATIENT: Duration = Duration::from_millis(100);
/// In `called_ns` of such a one that was called in vain.
const IMPATIENT: u64 = u64::MAX;

/// Shortest sleep of a waiter whose timeout is about to end.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// Values of a waiter's `granted`.
pub(crate) mod answer {
    /// None yet.
    pub(crate) const NONE: u32 = 0;
    /// The right's holder waits for the end of this waiter's snapshot.
    pub(crate) const REFUSED: u32 = 2;
    /// The waiter may take the right if it is free: unless a running connection was faster, or it was called in vain.
    pub(crate) const CALLED: u32 = 3;
}

/// The right and its queue. Its methods take no lock; (M) marks those that are called with the
/// commit mutex held.
pub(crate) struct Right {
    region: Arc<Region>,
    slots: Arc<Slots>,
}

impl Right {
    pub(crate) fn new(region: Arc<Region>, slots: Arc<Slots>) -> Right {
        Right { region, slots }
    }

    /// The owner word, or else that of the slot it is reserved for; 0 if there is none. For texts.
    pub(crate) fn owner_or_next(&self) -> u32 {
        match self.owner() {
            0 => self.region.control().right_reserved.load(Relaxed),
            owner => owner,
        }
    }

    /// True if connections are in the queue. A hint without the commit mutex.
    pub(crate) fn has_waiters(&self) -> bool {
        let c = self.region.control();
        let (head, tail) = (c.queue_head.load(Relaxed), c.queue_tail.load(Relaxed));
        let waiting = tail.wrapping_sub(head).min(TXN_SLOTS as u32);
        (0..waiting).any(|i| c.queue[head.wrapping_add(i) as usize % TXN_SLOTS].load(Relaxed) != 0)
    }

    /// The word of the slot that holds the right, 0 if none does. A hint without the commit mutex.
    pub(crate) fn owner(&self) -> u32 {
        self.region.control().right_owner.load(Relaxed)
    }

    /// (M) Appends `slot` to the queue; with an earlier time of arrival `since_ns`, before all that
    /// arrived later (RIGHT-8).
    pub(crate) fn enqueue(&self, slot: SlotIndex, since_ns: Option<u64>) {
        let c = self.region.control();
        let (head, mut tail) = (c.queue_head.load(Relaxed), c.queue_tail.load(Relaxed));
        if tail.wrapping_sub(head) as usize == TXN_SLOTS {
            tail = self.compact_queue();
        }
        let entry = |at: u32| &c.queue[at as usize % TXN_SLOTS];
        let s = self.slots.at(slot);
        s.queued_ns.store(since_ns.unwrap_or_else(clock::monotonic_ns), Relaxed);
        s.is_silent.store(0, Relaxed);
        entry(tail).store(slot.word(), Relaxed);
        c.queue_tail.store(tail.wrapping_add(1), Relaxed);
        let Some(since_ns) = since_ns else { return };
        let mut at = tail;
        while at != head {
            let before = entry(at.wrapping_sub(1)).load(Relaxed);
            let since_of = |other| self.slots.at(other).queued_ns.load(Relaxed);
            if SlotIndex::from_word(before).is_some_and(|other| since_of(other) <= since_ns) {
                break;
            }
            entry(at).store(before, Relaxed);
            at = at.wrapping_sub(1);
            entry(at).store(slot.word(), Relaxed);
        }
    }

    /// (M) Drops the entries of waiters that gave up; by RIGHT-2 every slot then has room.
    fn compact_queue(&self) -> u32 {
        let c = self.region.control();
        let (head, tail) = (c.queue_head.load(Relaxed), c.queue_tail.load(Relaxed));
        let mut to = head;
        let mut from = head;
        while from != tail {
            let word = c.queue[from as usize % TXN_SLOTS].load(Relaxed);
            if word != 0 {
                c.queue[to as usize % TXN_SLOTS].store(word, Relaxed);
                to = to.wrapping_add(1);
            }
            from = from.wrapping_add(1);
        }
        c.queue_tail.store(to, Relaxed);
        to
    }

    /// (M) Refuses the waiters whose snapshots the right's holder waits for: they would wait for
    /// each other (RIGHT-5). Returns the slots to wake once the mutex is free.
    pub(crate) fn refuse_waiters(&self, in_the_way: impl Fn(&TxnSlot) -> bool) -> Vec<SlotIndex> {
        let waiters =
            self.slots.in_use().filter(|(_, s)| s.state.load(Relaxed) == txn_state::QUEUED);
        let mut refused = Vec::new();
        for (i, s) in waiters.filter(|(_, s)| in_the_way(s)) {
            self.drop_from_queue(i);
            s.state.store(s.resting_state(), Relaxed);
            s.waiting_for.store(0, Relaxed);
            // It is out of the queue.
            s.granted.store(answer::REFUSED, Relaxed);
            refused.push(i);
        }
        refused
    }

    /// (M) Blanks the entry of `slot` in the queue.
    pub(crate) fn drop_from_queue(&self, slot: SlotIndex) {
        let c = self.region.control();
        if c.right_reserved.load(Relaxed) == slot.word() {
            c.right_reserved.store(0, Relaxed);
        }
        let (mut at, tail) = (c.queue_head.load(Relaxed), c.queue_tail.load(Relaxed));
        while at != tail {
            let word = &c.queue[at as usize % TXN_SLOTS];
            if word.load(Relaxed) == slot.word() {
                word.store(0, Relaxed);
                return;
            }
            at = at.wrapping_add(1);
        }
    }

    /// (M) The first slot of the queue that still waits, not counting those of RIGHT-9. Drops the
    /// entries before all that wait.
    fn first_waiter(&self) -> Option<SlotIndex> {
        let c = self.region.control();
        let (head, tail) = (c.queue_head.load(Relaxed), c.queue_tail.load(Relaxed));
        let mut at = head;
        let mut others_wait = false;
        while at != tail {
            let entry = &c.queue[at as usize % TXN_SLOTS];
            let next = SlotIndex::from_word(entry.load(Relaxed)).filter(|&next| {
                let s = self.slots.at(next);
                s.process.load(Relaxed) != 0 && s.state.load(Relaxed) == txn_state::QUEUED
            });
            if next.is_some_and(|next| self.slots.at(next).is_silent.load(Relaxed) == 0) {
                return next;
            }
            others_wait |= next.is_some();
            at = at.wrapping_add(1);
            if next.is_none() {
                entry.store(0, Relaxed);
            }
            if !others_wait {
                c.queue_head.store(at, Relaxed);
            }
        }
        None
    }

    /// (M) As `first_waiter`, past slots that were called and did not come (RIGHT-9).
    fn first_responsive_waiter(&self, now: u64) -> Option<SlotIndex> {
        loop {
            let next = self.first_waiter()?;
            if !self.is_overdue(next, now) {
                return Some(next);
            }
            self.slots.at(next).is_silent.store(1, Relaxed);
        }
    }

    /// (M) True if the slot was called and has had the time to come.
    fn is_overdue(&self, slot: SlotIndex, now: u64) -> bool {
        let s = self.slots.at(slot);
        s.granted.load(Relaxed) == answer::CALLED
            && now.saturating_sub(s.called_ns.load(Relaxed)) > SILENT_NS
    }

    /// (M) The word of another slot for which the free right is reserved; 0 if `slot` may take it.
    pub(crate) fn reserved_for_other(&self, slot: SlotIndex) -> u32 {
        let c = self.region.control();
        let word = c.right_reserved.load(Relaxed);
        if word == 0 || word == slot.word() {
            return 0;
        }
        let waits = SlotIndex::from_word(word).is_some_and(|other| {
            let s = self.slots.at(other);
            let is_queued =
                s.process.load(Relaxed) != 0 && s.state.load(Relaxed) == txn_state::QUEUED;
            is_queued && !self.is_overdue(other, clock::monotonic_ns())
        });
        if waits { word } else { 0 }
    }

    /// (M) Makes `slot` the holder of the right, which nobody else has or keeps from it; `early`:
    /// for that time (RIGHT-10).
    pub(crate) fn take(&self, slot: SlotIndex, early: Option<Duration>) {
        self.region.control().right_reserved.store(0, Relaxed);
        self.give_to(slot, early);
        self.slots.at(slot).state.store(txn_state::WRITER, Relaxed);
    }

    /// (M) Makes `slot` the owner. No other function does (RIGHT-10).
    pub(crate) fn give_to(&self, slot: SlotIndex, early: Option<Duration>) {
        let until_ns = early.map_or(0, |time| clock::monotonic_ns() + time.as_nanos() as u64);
        self.slots.at(slot).early_until_ns.store(until_ns, Relaxed);
        self.region.control().right_owner.store(slot.word(), Relaxed);
    }

    /// (M) Frees the right and calls the first waiter; `in_a_run`: not one that looks by itself (RIGHT-11). Reserves
    /// the right for it if arrivals have overtaken the queue for long enough (RIGHT-6). Returns the slot to wake
    /// once the mutex is free.
    #[must_use = "the one that is called sleeps until it is woken"]
    pub(crate) fn pass(&self, in_a_run: bool) -> Option<SlotIndex> {
        let c = self.region.control();
        if self.region.layout().has_unresolved() {
            // PREP-1 in orphans.rs: a prepared transaction keeps the right.
            c.right_owner.store(owner::UNSETTLED_PREPARED, Relaxed);
            return None;
        }
        // Relaxed, as everything here: a slot takes the right under the commit mutex.
        c.right_owner.store(0, Relaxed);
        crash_point!("right.freed");
        let now = clock::monotonic_ns();
        let next = self.first_responsive_waiter(now);
        let waiters = c.queue_tail.load(Relaxed).wrapping_sub(c.queue_head.load(Relaxed));
        let since_ns = now.saturating_sub(c.right_served_ns.load(Relaxed));
        let is_late = since_ns >= overtaking_ns(waiters);
        let reserved = next.filter(|_| is_late).map_or(0, SlotIndex::word);
        c.right_reserved.store(reserved, Relaxed);
        crash_point!("right.reserved");
        if in_a_run && !is_late && next.is_some_and(|next| self.looks_by_itself(next, now)) {
            return None;
        }
        let called = self.call_first();
        debug_assert!(self.is_settled(), "RIGHT-1");
        called
    }

    /// (M) If the right is free, makes sure that the first waiter is called (RIGHT-1). Returns the
    /// slot to wake.
    #[must_use = "the one that is called sleeps until it is woken"]
    pub(crate) fn call_first(&self) -> Option<SlotIndex> {
        if self.region.control().right_owner.load(Relaxed) != 0 || self.first_waiter().is_none() {
            return None;
        }
        let now = clock::monotonic_ns();
        self.call(self.first_responsive_waiter(now)?, now)
    }

    /// (M) Calls a waiter. Returns it if it has to be woken.
    fn call(&self, waiter: SlotIndex, now: u64) -> Option<SlotIndex> {
        let s = self.slots.at(waiter);
        if s.granted.load(Relaxed) == answer::CALLED {
            return None;
        }
        s.called_ns.store(now, Relaxed);
        s.granted.store(answer::CALLED, Relaxed);
        Some(waiter)
    }

    /// (M) True if the waiter was called in vain, and looks before [`VAIN`] is over (RIGHT-11).
    fn looks_by_itself(&self, waiter: SlotIndex, now: u64) -> bool {
        self.slots.at(waiter).granted.load(Relaxed) == answer::NONE
            && self.was_called_of_late(waiter, now)
    }

    /// True if the waiter was called less than [`VAIN`] ago. Whoever spares it and the waiter itself, which sleeps for
    /// as long at most then, ask the same word: a nap that began later ends later (RIGHT-11).
    fn was_called_of_late(&self, waiter: SlotIndex, now: u64) -> bool {
        let since = now.checked_sub(self.slots.at(waiter).called_ns.load(Relaxed));
        since.is_some_and(|since| since < VAIN.as_nanos() as u64)
    }

    /// (M) True if RIGHT-1 holds, for asserts.
    pub(crate) fn is_settled(&self) -> bool {
        self.region.control().right_owner.load(Relaxed) != 0
            || self
                .first_waiter()
                .is_none_or(|first| self.slots.at(first).granted.load(Relaxed) == answer::CALLED)
    }

    /// The slot that holds the right early, and how much of its time is left. A hint without the
    /// commit mutex.
    fn early_holder(&self) -> Option<(SlotIndex, Duration)> {
        let holder = SlotIndex::from_word(self.owner())?;
        let until_ns = self.slots.at(holder).early_until_ns.load(Relaxed);
        let left = Duration::from_nanos(until_ns.saturating_sub(clock::monotonic_ns()));
        (until_ns != 0).then_some((holder, left))
    }

    /// Wakes the slots that `pass`, `call_first` or `refuse_waiters` returned.
    pub(crate) fn wake(&self, answered: impl IntoIterator<Item = SlotIndex>) {
        for next in answered {
            futex::wake_one(&self.slots.at(next).granted);
        }
    }

    /// True if the last wait of `slot` for the right ended because its snapshot was in the way
    /// (RIGHT-5).
    pub(crate) fn was_refused(&self, slot: SlotIndex) -> bool {
        self.slots.at(slot).granted.load(Relaxed) == answer::REFUSED
    }
}

/// How often a connection yields before it joins the queue. The holder is mostly about to commit,
/// and a yield costs a fraction of a sleep and a wake-up.
const YIELDS_BEFORE_QUEUE: u32 = 8;
/// Shortest stay in the queue between two calls of a busy handler.
const SHORTEST_STAY: Duration = Duration::from_millis(1);
/// Every so many ticks a waiter looks for any dead process, not just the holder's.
const TICKS_PER_SWEEP: u32 = 10;

/// A place in the queue. Dropped, by an error or a panic, it is given up, with the right if that
/// came (RIGHT-7).
struct Place<'a> {
    db: &'a Database,
    slot: SlotIndex,
}

impl Place<'_> {
    /// Keeps the right, which is held now.
    fn served(self) {
        std::mem::forget(self);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.db.poison();
        }
        self.db.withdraw(self.slot);
    }
}

/// How the right is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Claim {
    /// The first time of arrival, if it was refused and comes again (RIGHT-8).
    pub(crate) since_ns: Option<u64>,
    /// For how long it is kept while others wait; `None`: until it is given back (RIGHT-10).
    pub(crate) early: Option<Duration>,
}

/// What a try to take the right found.
enum Attempt {
    Taken,
    Queued,
    Busy {
        /// The owner word, or that of the slot it is reserved for.
        holder: u32,
    },
}

impl Database {
    /// Takes the writer's right for `slot`, waiting as `wait` allows.
    pub(crate) fn acquire_right(
        &self,
        slot: SlotIndex,
        claim: Claim,
        wait: &mut Wait<'_>,
    ) -> Result<()> {
        if wait.busy.is_none() {
            return self.acquire_right_within(slot, claim, wait.timeout, wait.interrupted);
        }
        // A custom handler decides how long to wait in all. Between two calls the waiter is in the
        // queue for as long as the last call took: else the right might never be free at a try.
        // During a call, which may sleep, the place is given up so that it stalls no other waiter.
        let mut stay = Duration::ZERO;
        let mut calls = 0;
        loop {
            match self.acquire_right_within(slot, claim, stay, wait.interrupted) {
                Err(Error::Busy(text)) => {
                    // As in stock SQLite the handler is not called where waiting would be a
                    // deadlock (RIGHT-5).
                    let refused = self.right.was_refused(slot);
                    let asked = Instant::now();
                    let again = !refused && wait.busy.as_mut().is_some_and(|busy| busy(calls));
                    if !again {
                        return Err(Error::Busy(text));
                    }
                    calls += 1;
                    stay = asked.elapsed().clamp(SHORTEST_STAY, TICK);
                }
                other => return other,
            }
        }
    }

    fn acquire_right_within(
        &self,
        slot: SlotIndex,
        claim: Claim,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        for _ in 0..YIELDS_BEFORE_QUEUE {
            // Relaxed: a hint.
            let owner = self.right.owner();
            let is_free = owner == 0 || owner == slot.word();
            if is_free || !self.yielding().once(|| self.log_shared().log_end()) {
                break;
            }
        }
        match self.try_right(slot, !timeout.is_zero(), claim)? {
            Attempt::Taken => return Ok(()),
            Attempt::Busy { holder } => {
                // The holder may be dead: check once before giving up.
                let unsettled = owner::is_unsettled(holder);
                if (self.reap_dead()? > 0 || unsettled)
                    && let Attempt::Taken = self.try_right(slot, false, claim)?
                {
                    return Ok(());
                }
                return Err(self.unsettled_or(self.busy(holder, Duration::ZERO)));
            }
            Attempt::Queued => {}
        }
        let place = Place { db: self, slot };
        let waited = self.wait_for_right(slot, claim, timeout, interrupted);
        // After a failure the slot may still have got the right: dropping the place passes it on.
        if waited.is_ok() {
            place.served();
        }
        waited
    }

    /// Waits in the queue. As SQLite's busy timeout does, it counts what it meant to sleep: not for
    /// how much longer others had the processor.
    fn wait_for_right(
        &self,
        slot: SlotIndex,
        claim: Claim,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let granted = &self.slots.at(slot).granted;
        let mut left = timeout;
        for tick in 1.. {
            let nap = (left / 4).min(TICK);
            let nap = self.right.early_holder().map_or(nap, |(_, of_holder)| nap.min(of_holder));
            let nap = nap.max(SHORTEST_SLEEP).min(left);
            let looks = self.right.was_called_of_late(slot, clock::monotonic_ns());
            let nap = if looks { nap.min(VAIN) } else { nap };
            let asleep = Instant::now();
            futex::wait(granted, answer::NONE, Some(nap));
            left -= asleep.elapsed().min(nap);
            // This process may have been stopped (RIGHT-9).
            self.slots.at(slot).is_silent.store(0, Relaxed);
            let answered = granted.load(Relaxed);
            if answered == answer::REFUSED {
                return Err(self.refused());
            }
            // A panic of the holder has stopped the database: no call will come.
            self.check_poison()?;
            self.end_early(false)?;
            let is_free = self.right.owner() == 0;
            if (is_free || answered == answer::CALLED)
                && self.take_from_queue(slot, claim, timeout >= PATIENT)?
            {
                return Ok(());
            }
            self.collect();
            let stop = if interrupted() { Some(Error::Interrupted) } else { None };
            if stop.is_some() || left.is_zero() {
                let holder = self.right.owner_or_next();
                self.leave_queue(slot)?;
                return Err(stop.unwrap_or_else(|| self.unsettled_or(self.busy(holder, timeout))));
            }
            if tick % TICKS_PER_SWEEP == 0 || !self.slots.is_owner_alive(self.right.owner()) {
                self.reap_dead()?;
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// RIGHT-10: frees a right that is held early, `at_once` or only if its time is over.
    pub(crate) fn end_early(&self, at_once: bool) -> Result<()> {
        let ends = || {
            let (holder, left) = self.right.early_holder()?;
            (at_once || left.is_zero()).then_some(holder)
        };
        if ends().is_none() {
            return Ok(());
        }
        let next = {
            let _guard = self.lock_commit()?;
            let Some(holder) = ends() else { return Ok(()) };
            let next = self.right.pass(false);
            self.slots.at(holder).early_until_ns.store(0, Relaxed);
            next
        };
        self.right.wake(next);
        Ok(())
    }

    /// RIGHT-10: takes the right for `slot`, which does not wait any more, if it is free, held
    /// early, or kept for one that would hold it so. False if it is none of these.
    pub(crate) fn take_from_early(&self, slot: SlotIndex) -> Result<bool> {
        let _guard = self.lock_commit()?;
        let c = self.control();
        let owner = c.right_owner.load(Relaxed);
        let has_it = if owner == 0 { self.right.reserved_for_other(slot) } else { owner };
        let is_early = |of: &SlotIndex| self.slots.at(*of).early_until_ns.load(Relaxed) != 0;
        let loser = SlotIndex::from_word(has_it).filter(is_early);
        let takes = has_it == 0 || loser.is_some();
        if !takes || self.region.layout().has_unresolved() {
            return Ok(false);
        }
        self.right.take(slot, None);
        // One that waits for it keeps the word: it will have the right early.
        if let Some(loser) = loser.filter(|of| of.word() == owner) {
            self.slots.at(loser).early_until_ns.store(0, Relaxed);
        }
        Ok(true)
    }

    /// Calls the first waiter, for which there is nothing yet, unless it looks by itself: from then on it
    /// does (RIGHT-11).
    pub(crate) fn call_in_vain(&self, holder: SlotIndex) {
        if !self.right.has_waiters() {
            return;
        }
        let next = {
            let Ok(_guard) = self.lock_commit() else { return };
            let now = clock::monotonic_ns();
            let is_held = self.right.owner() == holder.word();
            let next = self.right.first_responsive_waiter(now).filter(|_| is_held);
            let is_to_look = |next: &SlotIndex| {
                !self.right.looks_by_itself(*next, now)
                    && self.slots.at(*next).called_ns.load(Relaxed) != IMPATIENT
            };
            next.filter(is_to_look).and_then(|next| self.right.call(next, now))
        };
        self.right.wake(next);
    }

    /// Takes the right if it is free. Does not wait.
    pub(crate) fn try_take_right(&self, slot: SlotIndex) -> Result<bool> {
        Ok(matches!(self.try_right(slot, false, Claim::default())?, Attempt::Taken))
    }

    fn try_right(&self, slot: SlotIndex, may_queue: bool, claim: Claim) -> Result<Attempt> {
        let guard = self.lock_commit()?;
        let c = self.control();
        self.slots.at(slot).granted.store(answer::NONE, Relaxed);
        let mut owner = c.right_owner.load(Relaxed);
        if owner == 0 {
            owner = self.right.reserved_for_other(slot);
        }
        if owner == 0 || owner == slot.word() {
            self.right.take(slot, claim.early);
            return Ok(Attempt::Taken);
        }
        if !may_queue {
            return Ok(Attempt::Busy { holder: owner });
        }
        let s = self.slots.at(slot);
        s.waiting_for.store(self.slots.who_owns(owner).pid, Relaxed);
        s.state.store(txn_state::QUEUED, Relaxed);
        s.early_until_ns.store(claim.early.map_or(0, |_| 1), Relaxed);
        s.called_ns.store(0, Relaxed);
        self.right.enqueue(slot, claim.since_ns);
        crash_point!("right.queued");
        drop(guard);
        Ok(Attempt::Queued)
    }

    /// Takes the right for a waiter if it is still free. If not, the waiter may be called again: if it `is_patient`, not
    /// before it has looked by itself.
    fn take_from_queue(&self, slot: SlotIndex, claim: Claim, is_patient: bool) -> Result<bool> {
        let _guard = self.lock_commit()?;
        let c = self.control();
        let s = self.slots.at(slot);
        s.is_silent.store(0, Relaxed);
        let is_free = c.right_owner.load(Relaxed) == 0 && self.right.reserved_for_other(slot) == 0;
        let answered = s.granted.load(Relaxed);
        if answered == answer::REFUSED || !is_free {
            if answered == answer::CALLED {
                s.granted.store(answer::NONE, Relaxed);
                if !is_patient {
                    s.called_ns.store(IMPATIENT, Relaxed);
                }
            }
            return Ok(false);
        }
        self.right.drop_from_queue(slot);
        self.right.take(slot, claim.early);
        c.right_served_ns.store(clock::monotonic_ns(), Relaxed);
        s.waiting_for.store(0, Relaxed);
        Ok(true)
    }

    fn leave_queue(&self, slot: SlotIndex) -> Result<()> {
        // Without the mutex the place is owed when it is dropped (RIGHT-7).
        let Some(guard) = self.lock_commit_to_give_back() else { return Ok(()) };
        self.check_poison()?;
        self.right.drop_from_queue(slot);
        let s = self.slots.at(slot);
        s.state.store(s.resting_state(), Relaxed);
        s.waiting_for.store(0, Relaxed);
        let wake = self.right.call_first();
        debug_assert!(self.right.is_settled(), "RIGHT-1");
        drop(guard);
        self.right.wake(wake);
        Ok(())
    }

    /// Gives the right back outside a commit. Does nothing if `slot`, which does not wait for it,
    /// does not hold it.
    pub(crate) fn release_right(&self, slot: SlotIndex) {
        // Relaxed: only the slot's own connection makes the slot the owner.
        if self.right.owner() == slot.word() {
            self.withdraw(slot);
        }
    }

    /// Gives back what `slot` has: the right, or a place in the queue.
    fn withdraw(&self, slot: SlotIndex) {
        let s = self.slots.at(slot);
        let next = {
            let guard = self.lock_commit_to_give_back();
            // From here on the slot is not taken for a waiter (RIGHT-2), with the mutex or without.
            s.state.store(s.resting_state(), Relaxed);
            s.waiting_for.store(0, Relaxed);
            s.early_until_ns.store(0, Relaxed);
            if guard.is_none() {
                return self.slots.owe(slot, owes::WITHDRAWAL);
            }
            self.right.drop_from_queue(slot);
            if self.right.owner() == slot.word() {
                self.right.pass(false)
            } else {
                self.right.call_first()
            }
        };
        self.right.wake(next);
    }

    fn right_holder(&self) -> Who {
        self.slots.who_owns(self.right.owner())
    }

    fn refused(&self) -> Error {
        let holder = self.right_holder();
        Error::Busy(format!(
            "a transaction of process {holder} needs the database for itself, or memory, and \
             waits for this one to end; roll back and retry"
        ))
    }

    fn busy(&self, holder: u32, waited: Duration) -> Error {
        Error::Busy(format!(
            "{} holds the writer's right (waited {} ms); retry, raise the busy timeout or use BEGIN CONCURRENT",
            self.describe_owner(holder),
            waited.as_millis()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overtaking_delays_the_last_of_eighty_waiters_by_forty_milliseconds_at_most() {
        for waiters in 1..=80 {
            assert!(u64::from(waiters) * overtaking_ns(waiters) <= OVERTAKING_ALL_NS, "{waiters}");
        }
        assert_eq!(overtaking_ns(0), overtaking_ns(1));
        assert_eq!(overtaking_ns(u32::MAX), 500_000);
    }
}

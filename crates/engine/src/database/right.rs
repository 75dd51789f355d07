//! The writer's right: one transaction at a time holds it, and while it is
//! held nobody else commits.
//!
//! BEGIN IMMEDIATE and autocommit writes hold it from their start, a deferred
//! transaction from its first write, an optimistic one only while it commits and
//! only if it found the right taken. It is passed on at the commit point, before
//! the disk is awaited, so that queued writers share one sync.
//!
//! Who finds it taken waits in a queue, asleep. Handing it from sleeper to sleeper would leave it idle for as long
//! as it takes to wake one, each time. So it is set free and the first of the queue is *called*, and whoever
//! runs and asks meanwhile may overtake: the members of a group commit, woken together, go through one after the
//! other without sleeping again. Overtaking ends when the queue has not been served for [`OVERTAKING_NS`]: then the
//! right is *handed over* to the first. The n-th in the queue so waits for n such periods and n transactions at most.
//!
//! State (all words change only under the commit mutex)
//!
//! | right_owner | queue | meaning |
//! |---|---|---|
//! | 0 | empty | free: anyone may take it or commit |
//! | 0 | waiters | free as well; the first of them has been called |
//! | s | any | slot s holds it |
//!
//! Invariants
//! - R1 If the right is free and somebody waits, the first who waits has been called. Should the one that is called
//!   die, the others find the right free within a [`TICK`].
//! - R2 A slot stands in the queue at most once, and counts only in state QUEUED. An entry in another state is one that its owner owes
//!   ([`owed`](super::owed)), or is about to be dropped.
//! - R3 The owner word alone decides who holds the right; `granted` of a waiter follows it, for its futex.
//! - R4 Waiting is bounded: a waiter wakes at least every [`TICK`] to look at its
//!   timeout, its interrupt flag and whether the holder's process lives.
//! - R5 Nobody waits in the queue with a snapshot whose end the right's holder waits for: such a waiter is
//!   refused, at once and without asking its busy handler. In a COMMIT it takes a newer snapshot and comes again (S6 in snapshot.rs).
//! - R6 While somebody waits, [`OVERTAKING_NS`] after the queue was last served the next release hands the right
//!   to the first of it.
//! - R7 Whoever leaves a wait without the right, by an error or a panic too, has neither a place in the queue nor the right.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crate::crash_point;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::{SlotIndex, TXN_SLOTS};
use crate::shm::layout::{TxnSlot, owes, owner, txn_state};
use crate::shm::process::Who;
use crate::sync::wait::{TICK, Wait};
use crate::sync::{clock, futex};

/// How long arrivals may go before those who wait; then the first of these is served. Transactions longer than
/// this are served in the order of their coming.
const OVERTAKING_NS: u64 = 500_000;
/// How often one who finds the right taken lets others run before it joins the queue. The holder is mostly about to
/// commit, and coming back costs a fraction of being put to sleep and woken.
const YIELDS_BEFORE_QUEUE: u32 = 8;
/// Shortest stay in the queue between two calls of a busy handler.
const SHORTEST_STAY: Duration = Duration::from_millis(1);
/// Every so many ticks a waiter looks for any dead process, not just for the one it waits for.
const TICKS_PER_SWEEP: u32 = 10;

/// What the holder of the right did with it comes before it is passed on, to whoever finds itself the owner, or answered (R3).
pub(crate) const PASSES: Ordering = Release;
/// Partner of [`PASSES`].
pub(crate) const SEES_PASSED: Ordering = Acquire;

/// Values of a waiter's `granted`.
pub(crate) mod answer {
    /// None yet.
    pub(crate) const NONE: u32 = 0;
    /// The right was handed over.
    pub(crate) const GRANTED: u32 = 1;
    /// The right's holder waits for the end of this waiter's snapshot.
    pub(crate) const REFUSED: u32 = 2;
    /// The right is free: come and take it, unless somebody who runs is faster.
    pub(crate) const CALLED: u32 = 3;
}

/// A place in the queue for the right; dropped, by an error or a panic, it is given up with what came of it (R7).
struct Place<'a> {
    db: &'a Database,
    slot: SlotIndex,
}

impl Place<'_> {
    /// The right is held now.
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

/// What the first look at the right found.
enum Attempt {
    Taken,
    Queued,
    Busy {
        /// Its owner word.
        holder: u32,
    },
}

impl Database {
    /// Takes the writer's right for `slot`, waiting as `wait` allows.
    pub(crate) fn acquire_right(&self, slot: SlotIndex, wait: &mut Wait<'_>) -> Result<()> {
        if wait.busy.is_none() {
            return self.acquire_right_within(slot, wait.timeout, wait.interrupted);
        }
        // A custom handler decides how long to wait in all. Between two calls of it this waiter stands in
        // the queue, for as long as the handler took, or the right might never be free when it is asked for; while the
        // handler runs, and perhaps sleeps, the place is given up so that it stalls nobody.
        let mut stay = Duration::ZERO;
        let mut calls = 0;
        loop {
            match self.acquire_right_within(slot, stay, wait.interrupted) {
                Err(Error::Busy(text)) => {
                    // As in stock SQLite the handler is not asked where waiting would be a deadlock (R5).
                    let refused = self.was_refused(slot);
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
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let start = Instant::now();
        for _ in 0..YIELDS_BEFORE_QUEUE {
            // Relaxed: a hint.
            let is_free = self.control().right_owner.load(Relaxed) == 0;
            if is_free || !self.yielding().once(|| self.log_shared().log_end()) {
                break;
            }
        }
        match self.try_right(slot, !timeout.is_zero())? {
            Attempt::Taken => return Ok(()),
            Attempt::Busy { holder } => {
                // The holder may be dead; that is worth one look before giving up.
                let unsettled = owner::is_unsettled(holder);
                if (self.reap_dead()? > 0 || unsettled)
                    && let Attempt::Taken = self.try_right(slot, false)?
                {
                    return Ok(());
                }
                return Err(self.unsettled_or(self.busy(holder, Duration::ZERO)));
            }
            Attempt::Queued => {}
        }
        let place = Place { db: self, slot };
        let waited = self.wait_for_right(slot, start, timeout, interrupted);
        // After a failure the right may have been granted meanwhile; it is passed on with the place.
        if waited.is_ok() {
            place.served();
        }
        waited
    }

    /// Waits in the queue until the right is held.
    fn wait_for_right(
        &self,
        slot: SlotIndex,
        start: Instant,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let granted = &self.slot(slot).granted;
        for tick in 1.. {
            let left = timeout.saturating_sub(start.elapsed());
            futex::wait(granted, answer::NONE, Some(left.min(TICK)));
            // The owner word alone is enough: whoever passed the right on may have died before the rest.
            let answered = granted.load(SEES_PASSED);
            if answered == answer::GRANTED
                || self.control().right_owner.load(SEES_PASSED) == slot.word()
            {
                self.slot(slot).state.store(txn_state::WRITER, Relaxed);
                return Ok(());
            }
            if answered == answer::REFUSED {
                return Err(self.refused());
            }
            // A panic of its holder has stopped the database: nobody will call.
            self.check_poison()?;
            let is_free = self.control().right_owner.load(Relaxed) == 0;
            if (is_free || answered == answer::CALLED) && self.take_from_queue(slot)? {
                return Ok(());
            }
            self.collect();
            let stop = if interrupted() { Some(Error::Interrupted) } else { None };
            let out_of_time = start.elapsed() >= timeout;
            if stop.is_some() || out_of_time {
                let holder = self.control().right_owner.load(Relaxed);
                if self.leave_queue(slot)? {
                    return Ok(());
                }
                return Err(stop.unwrap_or_else(|| self.unsettled_or(self.busy(holder, timeout))));
            }
            if tick % TICKS_PER_SWEEP == 0
                || !self.is_owner_alive(self.control().right_owner.load(Relaxed))
            {
                self.reap_dead()?;
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Takes the right if it is free; waits for nobody.
    pub(crate) fn try_take_right(&self, slot: SlotIndex) -> Result<bool> {
        Ok(matches!(self.try_right(slot, false)?, Attempt::Taken))
    }

    fn try_right(&self, slot: SlotIndex, may_queue: bool) -> Result<Attempt> {
        let guard = self.lock_commit()?;
        let c = self.control();
        self.slot(slot).granted.store(answer::NONE, Relaxed);
        let owner = c.right_owner.load(Relaxed);
        if owner == 0 {
            c.right_owner.store(slot.word(), Relaxed);
            self.slot(slot).state.store(txn_state::WRITER, Relaxed);
            return Ok(Attempt::Taken);
        }
        if !may_queue {
            return Ok(Attempt::Busy { holder: owner });
        }
        let s = self.slot(slot);
        s.waiting_for.store(self.who_owns(owner).pid, Relaxed);
        s.state.store(txn_state::QUEUED, Relaxed);
        self.enqueue(slot);
        crash_point!("right.queued");
        drop(guard);
        Ok(Attempt::Queued)
    }

    /// A waiter that was called, or finds the right free, takes it if it still is; if not it may be called again.
    fn take_from_queue(&self, slot: SlotIndex) -> Result<bool> {
        let _guard = self.lock_commit()?;
        let c = self.control();
        let s = self.slot(slot);
        let owner = c.right_owner.load(Relaxed);
        let answered = s.granted.load(Relaxed);
        if answered == answer::REFUSED || (owner != 0 && owner != slot.word()) {
            if answered == answer::CALLED {
                s.granted.store(answer::NONE, Relaxed);
            }
            return Ok(false);
        }
        if owner == 0 {
            c.right_owner.store(slot.word(), Relaxed);
            self.drop_from_queue(slot);
            c.right_served_ns.store(clock::monotonic_ns(), Relaxed);
        }
        s.waiting_for.store(0, Relaxed);
        s.state.store(txn_state::WRITER, Relaxed);
        Ok(true)
    }

    /// (M) Appends to the queue.
    fn enqueue(&self, slot: SlotIndex) {
        let c = self.control();
        let (head, mut tail) = (c.queue_head.load(Relaxed), c.queue_tail.load(Relaxed));
        if tail.wrapping_sub(head) as usize == TXN_SLOTS {
            tail = self.compact_queue();
        }
        c.queue[tail as usize % TXN_SLOTS].store(slot.word(), Relaxed);
        c.queue_tail.store(tail.wrapping_add(1), Relaxed);
    }

    /// (M) Drops the entries of those who gave up; R2 leaves room for everyone else.
    fn compact_queue(&self) -> u32 {
        let c = self.control();
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

    /// Leaves the queue. True if the right was granted in the meantime: then it is held.
    fn leave_queue(&self, slot: SlotIndex) -> Result<bool> {
        // Without it the place is owed when it is dropped (R7).
        let Some(guard) = self.lock_commit_to_give_back() else { return Ok(false) };
        self.check_poison()?;
        if self.control().right_owner.load(Relaxed) == slot.word() {
            self.slot(slot).state.store(txn_state::WRITER, Relaxed);
            return Ok(true);
        }
        self.drop_from_queue(slot);
        let s = self.slot(slot);
        s.state.store(s.resting_state(), Relaxed);
        s.waiting_for.store(0, Relaxed);
        let wake = self.call_first();
        debug_assert!(self.is_settled(), "R1");
        drop(guard);
        self.wake_answered(wake);
        Ok(false)
    }

    /// (M) Sends waiters away whose snapshots the right's holder waits for: both would wait for each other (R5).
    /// Returns whom to wake once the mutex is free.
    pub(crate) fn refuse_waiters(&self, in_the_way: impl Fn(&TxnSlot) -> bool) -> Vec<SlotIndex> {
        let waiters =
            self.slots_in_use().filter(|(_, s)| s.state.load(Relaxed) == txn_state::QUEUED);
        let mut refused = Vec::new();
        for (i, s) in waiters.filter(|(_, s)| in_the_way(s)) {
            self.drop_from_queue(i);
            s.state.store(s.resting_state(), Relaxed);
            s.waiting_for.store(0, Relaxed);
            // It is out of the queue.
            s.granted.store(answer::REFUSED, PASSES);
            refused.push(i);
        }
        refused
    }

    /// (M) Blanks the entry of `slot` in the queue.
    pub(crate) fn drop_from_queue(&self, slot: SlotIndex) {
        let c = self.control();
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

    /// (M) The first of the queue that still waits; entries before it are dropped.
    fn first_waiter(&self) -> Option<SlotIndex> {
        let c = self.control();
        let tail = c.queue_tail.load(Relaxed);
        let mut head = c.queue_head.load(Relaxed);
        while head != tail {
            let entry = &c.queue[head as usize % TXN_SLOTS];
            let next = SlotIndex::from_word(entry.load(Relaxed)).filter(|&next| {
                let s = self.slot(next);
                s.process.load(Relaxed) != 0 && s.state.load(Relaxed) == txn_state::QUEUED
            });
            if next.is_some() {
                return next;
            }
            entry.store(0, Relaxed);
            head = head.wrapping_add(1);
            c.queue_head.store(head, Relaxed);
        }
        None
    }

    /// (M) Frees the right and calls the first waiter, or hands it over if arrivals have overtaken the queue
    /// for long enough (R6). Returns whom to wake once the mutex is free.
    #[must_use = "the new holder sleeps until it is woken"]
    pub(crate) fn pass_right(&self) -> Option<SlotIndex> {
        let c = self.control();
        if self.has_unresolved() {
            // K1 in prepared.rs: what is prepared keeps it.
            c.right_owner.store(owner::UNSETTLED_PREPARED, Relaxed);
            return None;
        }
        let Some(next) = self.first_waiter() else {
            c.right_owner.store(0, Relaxed);
            return None;
        };
        let now = clock::monotonic_ns();
        if now.saturating_sub(c.right_served_ns.load(Relaxed)) < OVERTAKING_NS {
            c.right_owner.store(0, PASSES);
            crash_point!("right.freed");
            let called = self.call_first();
            debug_assert!(self.is_settled(), "R1");
            return called;
        }
        c.right_served_ns.store(now, Relaxed);
        let s = self.slot(next);
        // The owner word is the handing over: a death before it leaves the right with the dead one, whose
        // reaper passes it on again; after it the waiter finds itself the owner. What is left
        // of its entry is skipped later, since it is not QUEUED any more.
        crash_point!("right.chosen");
        c.right_owner.store(next.word(), PASSES);
        crash_point!("right.owned");
        s.state.store(txn_state::WRITER, Relaxed);
        s.waiting_for.store(0, Relaxed);
        s.granted.store(answer::GRANTED, PASSES);
        Some(next)
    }

    /// (M) If the right is free and somebody waits, there is one who has been called (R1). Returns whom to wake.
    #[must_use = "the one that is called sleeps until it is woken"]
    pub(crate) fn call_first(&self) -> Option<SlotIndex> {
        if self.control().right_owner.load(Relaxed) != 0 {
            return None;
        }
        let next = self.first_waiter()?;
        let s = self.slot(next);
        if s.granted.load(Relaxed) == answer::CALLED {
            return None;
        }
        s.granted.store(answer::CALLED, PASSES);
        Some(next)
    }

    /// (M) R1, for asserts.
    pub(crate) fn is_settled(&self) -> bool {
        self.control().right_owner.load(Relaxed) != 0
            || self
                .first_waiter()
                .is_none_or(|first| self.slot(first).granted.load(Relaxed) == answer::CALLED)
    }

    /// Wakes slots that `pass_right` or `refuse_waiters` returned.
    pub(crate) fn wake_answered(&self, answered: impl IntoIterator<Item = SlotIndex>) {
        for next in answered {
            futex::wake_one(&self.slot(next).granted);
        }
    }

    /// Gives the right back outside a commit; a no-op when `slot`, which does not wait for it, does not hold it.
    pub(crate) fn release_right(&self, slot: SlotIndex) {
        // Relaxed: only the slot's own connection makes it the owner, unless it waits in the queue.
        if self.control().right_owner.load(Relaxed) == slot.word() {
            self.withdraw(slot);
        }
    }

    /// Gives back what `slot` has of the right: the right itself, or a place in the queue.
    fn withdraw(&self, slot: SlotIndex) {
        let s = self.slot(slot);
        let next = {
            let guard = self.lock_commit_to_give_back();
            // From here on nobody takes it for a waiter (R2), with the mutex or without.
            s.state.store(s.resting_state(), Relaxed);
            s.waiting_for.store(0, Relaxed);
            if guard.is_none() {
                return self.owe(slot, owes::WITHDRAWAL);
            }
            self.drop_from_queue(slot);
            if self.control().right_owner.load(Relaxed) == slot.word() {
                self.pass_right()
            } else {
                self.call_first()
            }
        };
        self.wake_answered(next);
    }

    /// Whether the last wait of `slot` for the right ended because its snapshot was in the way (R5).
    pub(crate) fn was_refused(&self, slot: SlotIndex) -> bool {
        self.slot(slot).granted.load(Relaxed) == answer::REFUSED
    }

    fn right_holder(&self) -> Who {
        self.who_owns(self.control().right_owner.load(Relaxed))
    }

    fn refused(&self) -> Error {
        self.control().counters.busy.fetch_add(1, Relaxed);
        let holder = self.right_holder();
        Error::Busy(format!(
            "a transaction of process {holder} becomes exclusive, or has to make room, and waits for this one to end; \
             roll back and retry"
        ))
    }

    fn busy(&self, holder: u32, waited: Duration) -> Error {
        self.control().counters.busy.fetch_add(1, Relaxed);
        Error::Busy(format!(
            "{} holds the writer's right (waited {} ms); retry, raise the busy timeout or use BEGIN CONCURRENT",
            self.say_owner(holder),
            waited.as_millis()
        ))
    }
}

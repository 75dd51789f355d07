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
//! right is *reserved* for the first, and nobody else takes it until he comes. The n-th in the queue so waits for n such periods and n
//! transactions at most. It is never given to who sleeps: his process may be stopped, and then it would stay with him.
//!
//! State (all words change only under the commit mutex)
//!
//! | right_owner | queue | meaning |
//! |---|---|---|
//! | 0 | empty | free: anyone may take it or commit |
//! | 0 | waiters | free as well; the first of them has been called, and it may be reserved for him (`right_reserved`) |
//! | s | any | slot s holds it |
//!
//! Invariants
//! - RIGHT-1 If the right is free and somebody waits, the first who waits, but for those of RIGHT-9, has been called. Should the one that is called
//!   die, the others find the right free within a [`TICK`].
//! - RIGHT-2 A slot stands in the queue at most once, and counts only in state QUEUED. An entry in another state is one that its owner owes
//!   (below), or is about to be dropped. (Twice, where a process was killed while it made its way past that slot (RIGHT-8): the
//!   second entry is dropped as one in another state, or serves it early.)
//! - RIGHT-3 The owner word alone decides who holds the right; it is taken under the commit mutex by the slot itself. `granted` of a waiter is for
//!   its futex.
//! - RIGHT-4 Waiting is bounded: a waiter wakes at least every [`TICK`] to look at its
//!   timeout, its interrupt flag and whether the holder's process lives.
//! - RIGHT-5 Nobody waits in the queue with a snapshot whose end the right's holder waits for: such a waiter is
//!   refused, at once and without asking its busy handler. In a COMMIT it takes a newer snapshot and comes again (PIN-6 in snapshot.rs).
//! - RIGHT-6 While somebody waits, [`OVERTAKING_NS`] after the queue was last served the next release reserves the right
//!   for the first of it. COMMITs that need no right are not kept off.
//! - RIGHT-7 Whoever leaves a wait without the right, by an error or a panic too, has neither a place in the queue nor the right.
//! - RIGHT-8 The queue is in the order of coming. Who has been refused and comes again in the same COMMIT has come when it came first: else
//!   large transactions that follow each other, and refuse it each time, would let all others pass.
//! - RIGHT-9 Who was called and has not come for [`SILENT_NS`], because his process is stopped or dead, is passed by and keeps his place: what was
//!   reserved for him is not any more, and others are called, until he looks around.
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

/// How long arrivals may go before those who wait; then the first of these is served. Transactions longer than
/// this are served in the order of their coming.
const OVERTAKING_NS: u64 = 500_000;

/// How long the right is kept for who was called: many times what it takes to wake somebody, on a busy machine too.
const SILENT_NS: u64 = 20_000_000;

/// Values of a waiter's `granted`.
pub(crate) mod answer {
    /// None yet.
    pub(crate) const NONE: u32 = 0;
    /// The right's holder waits for the end of this waiter's snapshot.
    pub(crate) const REFUSED: u32 = 2;
    /// The right is free: come and take it, unless somebody who runs is faster.
    pub(crate) const CALLED: u32 = 3;
}

/// The right and its queue. Its methods take no lock: (M) says which of them are called with the commit mutex held.
pub(crate) struct Right {
    region: Arc<Region>,
    slots: Arc<Slots>,
}

impl Right {
    pub(crate) fn new(region: Arc<Region>, slots: Arc<Slots>) -> Right {
        Right { region, slots }
    }

    /// The word of who holds it, or else of whom it is kept for, 0 if nobody; for texts.
    pub(crate) fn owner_or_next(&self) -> u32 {
        match self.owner() {
            0 => self.region.control().right_reserved.load(Relaxed),
            owner => owner,
        }
    }

    /// The word of who holds it, 0 if nobody does; a hint without the commit mutex.
    pub(crate) fn owner(&self) -> u32 {
        self.region.control().right_owner.load(Relaxed)
    }

    /// (M) Appends to the queue; who waits since an earlier time comes before those who have come after that (RIGHT-8).
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

    /// (M) Drops the entries of those who gave up; RIGHT-2 leaves room for everyone else.
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

    /// (M) Sends waiters away whose snapshots the right's holder waits for: both would wait for each other (RIGHT-5).
    /// Returns whom to wake once the mutex is free.
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

    /// (M) The first of the queue that still waits, but for those of RIGHT-9; entries before all who wait are dropped.
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

    /// (M) The same, past those that have been called and did not come (RIGHT-9).
    fn first_who_comes(&self, now: u64) -> Option<SlotIndex> {
        loop {
            let next = self.first_waiter()?;
            if !self.is_overdue(next, now) {
                return Some(next);
            }
            self.slots.at(next).is_silent.store(1, Relaxed);
        }
    }

    /// (M) It was called, and has had the time to come.
    fn is_overdue(&self, slot: SlotIndex, now: u64) -> bool {
        let s = self.slots.at(slot);
        s.granted.load(Relaxed) == answer::CALLED
            && now.saturating_sub(s.called_ns.load(Relaxed)) > SILENT_NS
    }

    /// (M) The word of the other for whom the right, which is free, is kept; 0: it may be taken.
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

    /// (M) It is free, and not kept for another.
    pub(crate) fn take(&self, slot: SlotIndex) {
        let c = self.region.control();
        c.right_reserved.store(0, Relaxed);
        c.right_owner.store(slot.word(), Relaxed);
        self.slots.at(slot).state.store(txn_state::WRITER, Relaxed);
    }

    /// (M) Frees the right and calls the first waiter, for whom it is reserved if arrivals have overtaken the queue
    /// for long enough (RIGHT-6). Returns whom to wake once the mutex is free.
    #[must_use = "the one that is called sleeps until it is woken"]
    pub(crate) fn pass(&self) -> Option<SlotIndex> {
        let c = self.region.control();
        if self.region.layout().has_unresolved() {
            // PREP-1 in orphans.rs: what is prepared keeps it.
            c.right_owner.store(owner::UNSETTLED_PREPARED, Relaxed);
            return None;
        }
        // Relaxed, as all of it: whoever takes it has the commit mutex.
        c.right_owner.store(0, Relaxed);
        crash_point!("right.freed");
        let now = clock::monotonic_ns();
        let next = self.first_who_comes(now);
        let is_late = now.saturating_sub(c.right_served_ns.load(Relaxed)) >= OVERTAKING_NS;
        let reserved = next.filter(|_| is_late).map_or(0, SlotIndex::word);
        c.right_reserved.store(reserved, Relaxed);
        crash_point!("right.reserved");
        let called = self.call_first();
        debug_assert!(self.is_settled(), "RIGHT-1");
        called
    }

    /// (M) If the right is free and somebody waits, there is one who has been called (RIGHT-1). Returns whom to wake.
    #[must_use = "the one that is called sleeps until it is woken"]
    pub(crate) fn call_first(&self) -> Option<SlotIndex> {
        if self.region.control().right_owner.load(Relaxed) != 0 || self.first_waiter().is_none() {
            return None;
        }
        let now = clock::monotonic_ns();
        let next = self.first_who_comes(now)?;
        let s = self.slots.at(next);
        if s.granted.load(Relaxed) == answer::CALLED {
            return None;
        }
        s.called_ns.store(now, Relaxed);
        s.granted.store(answer::CALLED, Relaxed);
        Some(next)
    }

    /// (M) RIGHT-1, for asserts.
    pub(crate) fn is_settled(&self) -> bool {
        self.region.control().right_owner.load(Relaxed) != 0
            || self
                .first_waiter()
                .is_none_or(|first| self.slots.at(first).granted.load(Relaxed) == answer::CALLED)
    }

    /// Wakes slots that `pass` or `refuse_waiters` returned.
    pub(crate) fn wake(&self, answered: impl IntoIterator<Item = SlotIndex>) {
        for next in answered {
            futex::wake_one(&self.slots.at(next).granted);
        }
    }

    /// Whether the last wait of `slot` for the right ended because its snapshot was in the way (RIGHT-5).
    pub(crate) fn was_refused(&self, slot: SlotIndex) -> bool {
        self.slots.at(slot).granted.load(Relaxed) == answer::REFUSED
    }
}

/// How often one who finds the right taken lets others run before it joins the queue. The holder is mostly about to
/// commit, and coming back costs a fraction of being put to sleep and woken.
const YIELDS_BEFORE_QUEUE: u32 = 8;
/// Shortest stay in the queue between two calls of a busy handler.
const SHORTEST_STAY: Duration = Duration::from_millis(1);
/// Every so many ticks a waiter looks for any dead process, not just for the one it waits for.
const TICKS_PER_SWEEP: u32 = 10;

/// A place in the queue for the right; dropped, by an error or a panic, it is given up with what came of it (RIGHT-7).
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
    /// Takes the writer's right for `slot`, waiting as `wait` allows. `since_ns`: when it first came, if it was refused and comes again.
    pub(crate) fn acquire_right(
        &self,
        slot: SlotIndex,
        since_ns: Option<u64>,
        wait: &mut Wait<'_>,
    ) -> Result<()> {
        if wait.busy.is_none() {
            return self.acquire_right_within(slot, since_ns, wait.timeout, wait.interrupted);
        }
        // A custom handler decides how long to wait in all. Between two calls of it this waiter stands in
        // the queue, for as long as the handler took, or the right might never be free when it is asked for; while the
        // handler runs, and perhaps sleeps, the place is given up so that it stalls nobody.
        let mut stay = Duration::ZERO;
        let mut calls = 0;
        loop {
            match self.acquire_right_within(slot, since_ns, stay, wait.interrupted) {
                Err(Error::Busy(text)) => {
                    // As in stock SQLite the handler is not asked where waiting would be a deadlock (RIGHT-5).
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
        since_ns: Option<u64>,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let start = Instant::now();
        for _ in 0..YIELDS_BEFORE_QUEUE {
            // Relaxed: a hint.
            let is_free = self.right.owner() == 0;
            if is_free || !self.yielding().once(|| self.log_shared().log_end()) {
                break;
            }
        }
        match self.try_right(slot, !timeout.is_zero(), since_ns)? {
            Attempt::Taken => return Ok(()),
            Attempt::Busy { holder } => {
                // The holder may be dead; that is worth one look before giving up.
                let unsettled = owner::is_unsettled(holder);
                if (self.reap_dead()? > 0 || unsettled)
                    && let Attempt::Taken = self.try_right(slot, false, None)?
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
        let granted = &self.slots.at(slot).granted;
        for tick in 1.. {
            let left = timeout.saturating_sub(start.elapsed());
            futex::wait(granted, answer::NONE, Some(left.min(TICK)));
            // It may have been stopped (RIGHT-9).
            self.slots.at(slot).is_silent.store(0, Relaxed);
            let answered = granted.load(Relaxed);
            if answered == answer::REFUSED {
                return Err(self.refused());
            }
            // A panic of its holder has stopped the database: nobody will call.
            self.check_poison()?;
            let is_free = self.right.owner() == 0;
            if (is_free || answered == answer::CALLED) && self.take_from_queue(slot)? {
                return Ok(());
            }
            self.collect();
            let stop = if interrupted() { Some(Error::Interrupted) } else { None };
            let out_of_time = start.elapsed() >= timeout;
            if stop.is_some() || out_of_time {
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

    /// Takes the right if it is free; waits for nobody.
    pub(crate) fn try_take_right(&self, slot: SlotIndex) -> Result<bool> {
        Ok(matches!(self.try_right(slot, false, None)?, Attempt::Taken))
    }

    fn try_right(
        &self,
        slot: SlotIndex,
        may_queue: bool,
        since_ns: Option<u64>,
    ) -> Result<Attempt> {
        let guard = self.lock_commit()?;
        let c = self.control();
        self.slots.at(slot).granted.store(answer::NONE, Relaxed);
        let mut owner = c.right_owner.load(Relaxed);
        if owner == 0 {
            owner = self.right.reserved_for_other(slot);
        }
        if owner == 0 {
            self.right.take(slot);
            return Ok(Attempt::Taken);
        }
        if !may_queue {
            return Ok(Attempt::Busy { holder: owner });
        }
        let s = self.slots.at(slot);
        s.waiting_for.store(self.slots.who_owns(owner).pid, Relaxed);
        s.state.store(txn_state::QUEUED, Relaxed);
        self.right.enqueue(slot, since_ns);
        crash_point!("right.queued");
        drop(guard);
        Ok(Attempt::Queued)
    }

    /// A waiter that was called, or finds the right free, takes it if it still is; if not it may be called again.
    fn take_from_queue(&self, slot: SlotIndex) -> Result<bool> {
        let _guard = self.lock_commit()?;
        let c = self.control();
        let s = self.slots.at(slot);
        s.is_silent.store(0, Relaxed);
        let is_free = c.right_owner.load(Relaxed) == 0 && self.right.reserved_for_other(slot) == 0;
        let answered = s.granted.load(Relaxed);
        if answered == answer::REFUSED || !is_free {
            if answered == answer::CALLED {
                s.granted.store(answer::NONE, Relaxed);
            }
            return Ok(false);
        }
        self.right.drop_from_queue(slot);
        self.right.take(slot);
        c.right_served_ns.store(clock::monotonic_ns(), Relaxed);
        s.waiting_for.store(0, Relaxed);
        Ok(true)
    }

    /// Leaves the queue.
    fn leave_queue(&self, slot: SlotIndex) -> Result<()> {
        // Without it the place is owed when it is dropped (RIGHT-7).
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

    /// Gives the right back outside a commit; a no-op when `slot`, which does not wait for it, does not hold it.
    pub(crate) fn release_right(&self, slot: SlotIndex) {
        // Relaxed: only the slot's own connection makes it the owner, unless it waits in the queue.
        if self.right.owner() == slot.word() {
            self.withdraw(slot);
        }
    }

    /// Gives back what `slot` has of the right: the right itself, or a place in the queue.
    fn withdraw(&self, slot: SlotIndex) {
        let s = self.slots.at(slot);
        let next = {
            let guard = self.lock_commit_to_give_back();
            // From here on nobody takes it for a waiter (RIGHT-2), with the mutex or without.
            s.state.store(s.resting_state(), Relaxed);
            s.waiting_for.store(0, Relaxed);
            if guard.is_none() {
                return self.slots.owe(slot, owes::WITHDRAWAL);
            }
            self.right.drop_from_queue(slot);
            if self.right.owner() == slot.word() {
                self.right.pass()
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

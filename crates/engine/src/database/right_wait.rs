//! Taking the writer's right and giving it back: the waits of right.rs.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::Database;
use super::right::answer;
use crate::crash_point;
use crate::error::{Error, Result};
use crate::ids::SlotIndex;
use crate::shm::layout::{owes, owner, txn_state};
use crate::shm::process::Who;
use crate::sync::wait::{TICK, Wait};
use crate::sync::{clock, futex};

/// How often one who finds the right taken lets others run before it joins the queue. The holder is mostly about to
/// commit, and coming back costs a fraction of being put to sleep and woken.
const YIELDS_BEFORE_QUEUE: u32 = 8;
/// Shortest stay in the queue between two calls of a busy handler.
const SHORTEST_STAY: Duration = Duration::from_millis(1);
/// Every so many ticks a waiter looks for any dead process, not just for the one it waits for.
const TICKS_PER_SWEEP: u32 = 10;

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
                    // As in stock SQLite the handler is not asked where waiting would be a deadlock (R5).
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
            // It may have been stopped (R9).
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
        // Without it the place is owed when it is dropped (R7).
        let Some(guard) = self.lock_commit_to_give_back() else { return Ok(()) };
        self.check_poison()?;
        self.right.drop_from_queue(slot);
        let s = self.slots.at(slot);
        s.state.store(s.resting_state(), Relaxed);
        s.waiting_for.store(0, Relaxed);
        let wake = self.right.call_first();
        debug_assert!(self.right.is_settled(), "R1");
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
            // From here on nobody takes it for a waiter (R2), with the mutex or without.
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

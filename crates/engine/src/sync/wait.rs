//! Waits of two kinds. The caller bounds some by a timeout, a busy handler or an interrupt
//! ([`Patience`]). Others mostly take microseconds, and end in an error only without progress
//! ([`Watch`], [`lock_while_progressing`]).

use std::convert::Infallible;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::mutex::{GaveUp, Guard, Party, SharedMutex};
use super::{caller, futex};
use crate::error::{Error, Result};

/// Longest sleep before a waiter checks its condition again.
pub const TICK: Duration = Duration::from_millis(100);
/// See [`Patience::with_minimum`].
const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// Longest sleep between two calls of a busy handler.
const BESIDE_HANDLER: Duration = Duration::from_millis(1);

/// The caller's bounds of a wait.
pub struct Wait<'a> {
    /// Longest wait before BUSY; ignored when `busy` is given.
    pub timeout: Duration,
    /// Custom busy handler: called with the number of prior calls; false gives up.
    pub busy: Option<&'a mut dyn FnMut(u32) -> bool>,
    /// Polled at least every [`TICK`].
    pub interrupted: &'a mut dyn FnMut() -> bool,
}

impl Wait<'_> {
    /// Runs `f` with a wait that never gives up; for engine-internal waits on bounded work.
    pub fn forever<T>(f: impl FnOnce(&mut Wait<'_>) -> T) -> T {
        f(&mut Wait { timeout: Duration::MAX, busy: None, interrupted: &mut || false })
    }
}

/// Calls `ask` every `nap` until it returns a value, for `longest` at most. For what ends soon by
/// itself, in a call without a bound.
///
/// # Errors
/// Those of `ask`.
pub(crate) fn until<T, E>(
    longest: Duration,
    nap: Duration,
    mut ask: impl FnMut() -> std::result::Result<Option<T>, E>,
) -> std::result::Result<Option<T>, E> {
    let start = Instant::now();
    loop {
        let answer = ask()?;
        if answer.is_some() || start.elapsed() >= longest {
            return Ok(answer);
        }
        std::thread::sleep(nap);
    }
}

/// Takes a mutex of this process, trying every `nap`; `None` if it is held for longer than
/// `longest`. Takes a poisoned mutex as it is.
pub(crate) fn lock_within<T>(
    mutex: &Mutex<T>,
    longest: Duration,
    nap: Duration,
) -> Option<MutexGuard<'_, T>> {
    let taken = until::<_, Infallible>(longest, nap, || match mutex.try_lock() {
        Ok(guard) => Ok(Some(guard)),
        Err(TryLockError::Poisoned(e)) => Ok(Some(e.into_inner())),
        Err(TryLockError::WouldBlock) => Ok(None),
    });
    match taken {
        Ok(guard) => guard,
    }
}

/// Watches a value, and measures how long it has not changed.
pub(crate) struct Watch<T> {
    seen: Option<(T, Instant)>,
    calls: u32,
}

impl<T: PartialEq + Copy> Watch<T> {
    /// A watch that has seen no value.
    pub(crate) fn begin() -> Watch<T> {
        Watch { seen: None, calls: 0 }
    }

    /// Returns how long the value has been `now`; `None` if it differs from the last look.
    pub(crate) fn look(&mut self, now: T) -> Option<Duration> {
        match self.seen {
            Some((seen, since)) if seen == now => Some(since.elapsed()),
            _ => {
                self.seen = Some((now, Instant::now()));
                None
            }
        }
    }

    /// As [`Watch::look`], but returns only a time after which the caller gives up (caller.rs).
    pub(crate) fn stalled_too_long(&mut self, now: T) -> Option<Duration> {
        self.look(now).filter(|&waited| caller::should_give_up(waited, &mut self.calls))
    }
}

/// Why [`lock_while_progressing`] returned without the mutex.
pub(crate) enum GaveUpWaiting<T> {
    Interrupted,
    /// The value has been `seen` for longer than the caller waits.
    Stalled {
        seen: T,
        waited: Duration,
    },
}

/// Takes the mutex. It waits as long as the value of `look`, which it calls at intervals of
/// `every`, keeps changing, and after the last change as long as the caller waits (caller.rs).
pub(crate) fn lock_while_progressing<'m, T: PartialEq + Copy>(
    mutex: &'m SharedMutex,
    party: &Party,
    every: Duration,
    look: impl Fn() -> T,
) -> std::result::Result<Guard<'m>, GaveUpWaiting<T>> {
    let mut watch = Watch::begin();
    watch.look(look());
    loop {
        let end = Some(Instant::now() + every);
        match mutex.lock_until(party, end, &mut caller::is_interrupted) {
            Ok(guard) => return Ok(guard),
            Err(GaveUp::Interrupted) => return Err(GaveUpWaiting::Interrupted),
            Err(GaveUp::TimedOut) => {}
        }
        let seen = look();
        if let Some(waited) = watch.stalled_too_long(seen) {
            return Err(GaveUpWaiting::Stalled { seen, waited });
        }
    }
}

/// A wait that has begun, with its start and its bounds.
pub(crate) struct Patience<'a, 'w> {
    wait: &'a mut Wait<'w>,
    start: Instant,
    calls: u32,
    /// Shortest timeout, whatever the caller says.
    at_least: Duration,
    /// Shortest timeout of a wait for [`Awaited::Work`].
    for_work: Duration,
    awaited: Awaited,
}

/// What a wait is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A transaction, which another connection ends: waits as long as the caller allows.
    Others,
    /// Work of another process, which may be stopped: waits a little longer than the work mostly
    /// takes, whatever the caller's timeout. A custom handler decides after [`caller::A_MOMENT`].
    Work,
    /// Work of this process: waits until it is done. In stock SQLite this process would do the work
    /// in its own calls, and if it is stopped, so is the waiter.
    OwnWork,
}

impl<'a, 'w> Patience<'a, 'w> {
    pub(crate) fn new(wait: &'a mut Wait<'w>) -> Patience<'a, 'w> {
        Patience {
            wait,
            start: Instant::now(),
            calls: 0,
            at_least: Duration::ZERO,
            for_work: SHORT_PATIENCE,
            awaited: Awaited::Others,
        }
    }

    /// A wait that stock SQLite does not have, so that programs without a busy timeout do not
    /// expect to fail: lasts a little longer than others mostly need. A custom handler decides
    /// after [`caller::A_MOMENT`].
    pub(crate) fn with_minimum(wait: &'a mut Wait<'w>) -> Patience<'a, 'w> {
        Patience { at_least: SHORT_PATIENCE, ..Patience::new(wait) }
    }

    /// A wait of a call that never waits in stock SQLite, whatever the timeout: it waits for the
    /// own process's work alone.
    pub(crate) fn own_work_only(wait: &'a mut Wait<'w>) -> Patience<'a, 'w> {
        Patience { for_work: Duration::ZERO, ..Patience::new(wait) }
    }

    /// Sets the start of a wait that has begun earlier.
    pub(crate) fn since(self, start: Instant) -> Patience<'a, 'w> {
        Patience { start, ..self }
    }

    /// Sets what the wait is for from now on.
    pub(crate) fn awaits(&mut self, awaited: Awaited) {
        self.awaited = awaited;
    }

    fn at_least(&self) -> Duration {
        match self.awaited {
            Awaited::Others => self.at_least,
            Awaited::Work => self.at_least.max(self.for_work),
            Awaited::OwnWork => Duration::MAX,
        }
    }

    fn timeout(&self) -> Duration {
        self.wait.timeout.max(self.at_least())
    }

    /// Returns how long the wait has lasted.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns how long the waiter may sleep now. A custom busy handler sleeps itself.
    pub(crate) fn left(&self) -> Duration {
        match self.wait.busy {
            Some(_) => BESIDE_HANDLER,
            None => self.timeout().saturating_sub(self.start.elapsed()),
        }
    }

    /// Sleeps for `nap` at most, where there is no wake.
    ///
    /// # Errors
    /// Interrupted.
    pub(crate) fn nap(&mut self, nap: Duration) -> Result<()> {
        self.sleep(&AtomicU32::new(0), 0, nap)
    }

    /// Sleeps if `word` is `seen`, until a wake, and for `nap` at most.
    ///
    /// # Errors
    /// Interrupted.
    pub(crate) fn sleep(&mut self, word: &AtomicU32, seen: u32, nap: Duration) -> Result<()> {
        futex::wait(word, seen, Some(self.left().min(nap)));
        if (self.wait.interrupted)() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// True if the timeout has passed, or if the busy handler, which this calls, gives up.
    pub(crate) fn is_over(&mut self) -> bool {
        let timeout = self.timeout();
        let moment = self.at_least().min(caller::A_MOMENT);
        let Some(busy) = self.wait.busy.as_mut() else {
            return self.start.elapsed() >= timeout;
        };
        if self.start.elapsed() < moment || self.awaited == Awaited::OwnWork {
            return false;
        }
        self.calls += 1;
        !busy(self.calls - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_that_is_held_is_given_up_and_a_poisoned_one_taken() {
        let mutex = Mutex::new(1);
        let ms = Duration::from_millis;
        let held = mutex.lock().expect("free");
        assert!(lock_within(&mutex, ms(5), ms(1)).is_none());
        drop(held);
        assert_eq!(lock_within(&mutex, ms(5), ms(1)).as_deref(), Some(&1));
        let panics = || {
            let _guard = mutex.lock();
            panic!("with the mutex");
        };
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(lock_within(&mutex, ms(5), ms(1)).as_deref(), Some(&1));
    }

    #[test]
    fn what_gets_on_has_never_looked_the_same_for_long() {
        let mut watch = Watch::begin();
        assert_eq!(watch.look(1), None, "the first look");
        std::thread::sleep(Duration::from_millis(5));
        assert!(watch.look(1).expect("as before") >= Duration::from_millis(5));
        assert_eq!(watch.look(2), None, "it has changed");
        assert_eq!(watch.look(1), None, "and again");
        assert!(watch.look(1).expect("as before") < caller::AT_LEAST);
        assert_eq!(watch.stalled_too_long(1), None, "whoever says nothing waits longer");
    }
}

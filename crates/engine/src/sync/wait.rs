//! Waits: the length of some is said by the call, by a timeout or a busy handler, and until it is interrupted ([`Patience`]). Others are for
//! what mostly takes microseconds, and end in an error only where nothing gets on ([`Watch`], [`lock_while_it_gets_on`]).

use std::convert::Infallible;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::mutex::{GaveUp, Guard, Party, SharedMutex};
use super::{caller, futex};
use crate::error::{Error, Result};

/// Longest sleep before a waiter looks around.
pub const TICK: Duration = Duration::from_millis(100);
/// See [`Patience::of_those_who_expect_no_wait`].
const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// Longest sleep between two calls of a busy handler.
const BESIDE_HANDLER: Duration = Duration::from_millis(1);

/// How a wait may end in BUSY.
pub struct Wait<'a> {
    /// Longest wait; ignored when `busy` is given.
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

/// Asks until there is an answer, every `nap`, for `longest` at most: for what ends soon by itself, and whose wait nobody says the length of.
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

/// Takes a mutex of this process, looking every `nap`, unless it is held for longer than `longest`. What a panic has left behind is taken as it is.
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

/// Looks whether something gets on: for how long it has looked the same.
pub(crate) struct Watch<T> {
    seen: Option<(T, Instant)>,
    calls: u32,
}

impl<T: PartialEq + Copy> Watch<T> {
    /// Nothing has been seen yet.
    pub(crate) fn begin() -> Watch<T> {
        Watch { seen: None, calls: 0 }
    }

    /// It is `now` so. For how long it has been; `None` if it was not at the last look.
    pub(crate) fn look(&mut self, now: T) -> Option<Duration> {
        match self.seen {
            Some((seen, since)) if seen == now => Some(since.elapsed()),
            _ => {
                self.seen = Some((now, Instant::now()));
                None
            }
        }
    }

    /// As [`Watch::look`], if that is longer than whoever waits wants to (caller.rs).
    pub(crate) fn look_whether_enough(&mut self, now: T) -> Option<Duration> {
        self.look(now).filter(|&waited| caller::has_had_enough(waited, &mut self.calls))
    }
}

/// Why [`lock_while_it_gets_on`] came back without the mutex.
pub(crate) enum Stands<T> {
    Interrupted,
    /// It has looked like this for longer than the caller waits.
    Still {
        seen: T,
        waited: Duration,
    },
}

/// Takes the mutex, waiting as long as `look`, asked `every` so often, sees something change, and then as long as the caller waits (caller.rs).
pub(crate) fn lock_while_it_gets_on<'m, T: PartialEq + Copy>(
    mutex: &'m SharedMutex,
    party: &Party,
    every: Duration,
    look: impl Fn() -> T,
) -> std::result::Result<Guard<'m>, Stands<T>> {
    let mut watch = Watch::begin();
    watch.look(look());
    loop {
        let end = Some(Instant::now() + every);
        match mutex.lock_until(party, end, &mut caller::is_interrupted) {
            Ok(guard) => return Ok(guard),
            Err(GaveUp::Interrupted) => return Err(Stands::Interrupted),
            Err(GaveUp::TimedOut) => {}
        }
        let seen = look();
        if let Some(waited) = watch.look_whether_enough(seen) {
            return Err(Stands::Still { seen, waited });
        }
    }
}

/// A wait that has begun: how long it has lasted, and whether its caller wants to go on.
pub(crate) struct Patience<'a, 'w> {
    wait: &'a mut Wait<'w>,
    start: Instant,
    calls: u32,
    at_least: Duration,
    /// The same for the work of others.
    for_work: Duration,
    awaited: Awaited,
}

/// Who is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// As long as the caller wants to: a transaction, which somebody else ends.
    Others,
    /// A little longer than its work mostly needs, whatever the caller says: who works may be stopped.
    Work,
    /// Until it is done: in stock SQLite this process would do the same work in its own calls, and with it stops who waits.
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

    /// For what stock SQLite does not wait for, so that programs without a busy timeout do not expect to fail: a little longer
    /// than others mostly need. A custom handler decides for itself, about what is more than a moment.
    pub(crate) fn of_those_who_expect_no_wait(wait: &'a mut Wait<'w>) -> Patience<'a, 'w> {
        Patience { at_least: SHORT_PATIENCE, ..Patience::new(wait) }
    }

    /// For what waits for nobody else in stock SQLite, whoever has set what timeout: for the own process's work alone.
    pub(crate) fn of_those_who_wait_for_nobody(wait: &'a mut Wait<'w>) -> Patience<'a, 'w> {
        Patience { for_work: Duration::ZERO, ..Patience::new(wait) }
    }

    /// The wait has begun earlier.
    pub(crate) fn since(self, start: Instant) -> Patience<'a, 'w> {
        Patience { start, ..self }
    }

    /// Who is waited for from now on.
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

    /// How long it has lasted.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// For how long it may sleep now. A custom busy handler sleeps by itself.
    pub(crate) fn left(&self) -> Duration {
        match self.wait.busy {
            Some(_) => BESIDE_HANDLER,
            None => self.timeout().saturating_sub(self.start.elapsed()),
        }
    }

    /// Sleeps for `nap` at most, where nobody gives a sign.
    ///
    /// # Errors
    /// Interrupted.
    pub(crate) fn nap(&mut self, nap: Duration) -> Result<()> {
        self.sleep(&AtomicU32::new(0), 0, nap)
    }

    /// Sleeps until `word` is no longer `seen`, and for `nap` at most.
    ///
    /// # Errors
    /// Interrupted.
    pub(crate) fn sleep(&mut self, word: &AtomicU32, seen: u32, nap: Duration) -> Result<()> {
        futex::wait(word, seen, Some(self.left().min(nap)));
        if (self.wait.interrupted)() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Whether the timeout has passed, or the handler, which is asked now, has had enough.
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
        assert_eq!(watch.look_whether_enough(1), None, "whoever says nothing waits longer");
    }
}

//! On whose behalf this thread waits: for how long, and whether that one has been interrupted meanwhile.
//!
//! What is waited for deep inside, a shared mutex above all, is mostly free within microseconds, and so nothing on the way there is told how
//! long it may take. Only if whoever has it does not run does it matter; then it is asked for here. The call
//! that the application makes says it once, for its thread ([`waits`]); within it some work may say that it would rather do without
//! ([`briefly`]), or that the application's busy handler must not run in it ([`unasked`]). Who says nothing waits as those do who have
//! no busy timeout.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long everybody waits at least: no program expects to fail where mostly nothing is waited for.
pub const AT_LEAST: Duration = Duration::from_secs(3);
/// How long is waited for what one can do without.
pub const A_MOMENT: Duration = Duration::from_millis(100);

/// The application's busy handler: called with the number of prior calls, false gives up. Points to what outlives the scope in which it
/// is set.
type Busy = *const (dyn Fn(u32) -> bool + 'static);

/// Whether the caller has been interrupted. Points to what outlives the scope in which it is set.
type Interrupted = *const (dyn Fn() -> bool + 'static);

#[derive(Clone, Copy)]
struct Caller {
    /// When its timeout is over; `None` for never.
    end: Option<Instant>,
    at_least: Duration,
    interrupted: Option<Interrupted>,
    /// In the place of a timeout.
    busy: Option<Busy>,
}

thread_local! {
    static CALLER: Cell<Option<Caller>> = const { Cell::new(None) };
}

/// Puts back what was said before.
struct Outer(Option<Caller>);

impl Drop for Outer {
    fn drop(&mut self) {
        CALLER.set(self.0);
    }
}

/// Runs `f`, in which this thread waits for `timeout` from now on, or as long as `busy`, if there is one, says yes, and as long as
/// `interrupted` says no.
pub fn waits<T>(
    timeout: Duration,
    busy: Option<&dyn Fn(u32) -> bool>,
    interrupted: &dyn Fn() -> bool,
    f: impl FnOnce() -> T,
) -> T {
    let pointer: *const (dyn Fn() -> bool + '_) = interrupted;
    // SAFETY: only the lifetime is changed. It is called by this thread while `f` runs, and so while `interrupted` is borrowed: `Outer`
    // takes it away whatever ends `f`, and what `f` starts in another thread has a CALLER of its own.
    let interrupted =
        unsafe { std::mem::transmute::<*const (dyn Fn() -> bool + '_), Interrupted>(pointer) };
    let busy = busy.map(|busy| {
        let pointer: *const (dyn Fn(u32) -> bool + '_) = busy;
        // SAFETY: as above.
        unsafe { std::mem::transmute::<*const (dyn Fn(u32) -> bool + '_), Busy>(pointer) }
    });
    let end = Instant::now().checked_add(timeout);
    let caller = Caller { end, at_least: AT_LEAST, interrupted: Some(interrupted), busy };
    let _outer = Outer(CALLER.replace(Some(caller)));
    f()
}

/// Runs `f`, in which this thread waits for [`A_MOMENT`] at most, whatever its caller would.
pub fn briefly<T>(f: impl FnOnce() -> T) -> T {
    let interrupted = CALLER.get().and_then(|caller| caller.interrupted);
    let caller = Caller { end: Some(Instant::now()), at_least: A_MOMENT, interrupted, busy: None };
    let _outer = Outer(CALLER.replace(Some(caller)));
    f()
}

/// Runs `f`, in which the application's busy handler is not asked: it may use other connections, and `f` holds what they need.
pub fn unasked<T>(f: impl FnOnce() -> T) -> T {
    let caller = CALLER.get().map(|caller| Caller { busy: None, ..caller });
    let _outer = Outer(CALLER.replace(caller));
    f()
}

/// Whether who has waited for so long for somebody who does not get on should give up. A busy handler is asked as soon as it is more than
/// [`A_MOMENT`]; `calls` counts how often it was.
pub(crate) fn has_had_enough(waited: Duration, calls: &mut u32) -> bool {
    match CALLER.get() {
        None => waited >= AT_LEAST,
        Some(Caller { busy: Some(busy), .. }) => {
            if waited < A_MOMENT {
                return false;
            }
            *calls += 1;
            // SAFETY: set by `waits`, which has not returned yet.
            !unsafe { (*busy)(*calls - 1) }
        }
        Some(caller) => {
            waited >= caller.at_least && caller.end.is_some_and(|end| Instant::now() >= end)
        }
    }
}

/// Whether the caller has been interrupted.
pub(crate) fn is_interrupted() -> bool {
    CALLER.get().and_then(|caller| caller.interrupted).is_some_and(|interrupted| {
        // SAFETY: set by `waits`, which has not returned yet.
        unsafe { (*interrupted)() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enough(waited: Duration) -> bool {
        has_had_enough(waited, &mut 0)
    }

    #[test]
    fn a_caller_is_asked_only_while_its_call_lasts() {
        let asked = Cell::new(0);
        let interrupted = || {
            asked.set(asked.get() + 1);
            true
        };
        assert!(!is_interrupted());
        waits(Duration::ZERO, None, &interrupted, || {
            assert!(is_interrupted());
            briefly(|| assert!(is_interrupted()));
            waits(Duration::ZERO, None, &|| false, || assert!(!is_interrupted()));
            assert!(is_interrupted());
        });
        assert!(!is_interrupted());
        assert_eq!(asked.get(), 3);
        let panicked = std::panic::catch_unwind(|| {
            waits(Duration::ZERO, None, &|| true, || panic!("in the call"))
        });
        assert!(panicked.is_err() && !is_interrupted());
    }

    #[test]
    fn who_has_no_timeout_waits_a_little_and_who_can_do_without_a_moment() {
        let long = Duration::from_secs(600);
        assert!(!enough(AT_LEAST / 2) && enough(AT_LEAST));
        waits(Duration::ZERO, None, &|| false, || {
            assert!(!enough(AT_LEAST / 2) && enough(AT_LEAST));
        });
        waits(long, None, &|| false, || {
            assert!(!enough(AT_LEAST));
            briefly(|| assert!(!enough(A_MOMENT / 2) && enough(A_MOMENT)));
            assert!(!enough(long));
        });
        waits(Duration::MAX, None, &|| false, || assert!(!enough(long)));
    }

    #[test]
    fn a_busy_handler_is_asked_after_a_moment_and_not_where_it_must_not_run() {
        let asked = Cell::new(0);
        let busy = |prior| {
            asked.set(asked.get() + 1);
            prior < 2
        };
        waits(Duration::ZERO, Some(&busy), &|| false, || {
            let mut calls = 0;
            assert!(!has_had_enough(A_MOMENT / 2, &mut calls));
            assert_eq!(asked.get(), 0, "mostly it is a matter of microseconds");
            let answers = [(); 3].map(|()| has_had_enough(A_MOMENT, &mut calls));
            assert_eq!((answers, asked.get()), ([false, false, true], 3));
            unasked(|| assert!(!enough(AT_LEAST / 2) && enough(AT_LEAST)));
            briefly(|| assert!(enough(A_MOMENT)));
            assert_eq!(asked.get(), 3);
        });
    }
}

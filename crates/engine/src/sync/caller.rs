//! The caller of this thread: how long it waits, and whether it has been interrupted.
//!
//! A wait deep inside the engine, for a shared mutex above all, mostly takes microseconds, so no
//! function on the way there has a parameter for its length. The length matters only if the holder
//! does not run. Then the waiter reads it here. The application's call sets it once for its thread
//! ([`waits`]). Work that can be left undone waits less ([`briefly`]), and code in which the
//! application's busy handler must not run switches the handler off ([`unasked`]). A thread without
//! a caller waits like one without a busy timeout.
//!
//! Nearly all calls wait for nothing. So no call reads the clock for its timeout, which begins with
//! the first wait that has lasted for `at_least`, as of its beginning.
//!
//! # Cancellation
//!
//! [`Uncancelled`] keeps `pthread_cancel` from ending a thread where other threads would suffer.
//!
//! Every blocking system call is a cancellation point. A thread that ends there, inside the engine,
//! would leave a lock held by a process that lives on. Nor may cancellation unwind Rust's frames at
//! all. So cancellation is off while a shared lock is held, and in every call of the engine that
//! writes, waits or opens files. A pending request takes effect at the thread's next cancellation
//! point outside. Calls that only touch memory have none and pay nothing.
//!
//! # Threads of its own
//!
//! The engine starts threads in programs that may know of no threads.
//!
//! A signal to a process goes to any thread that does not block it. A program that waits for
//! signals by `sigwait` or signalfd blocks them in the threads that it knows. A signal that came to
//! an engine thread would end the program, or run its handler on a stack and at a moment that it
//! does not expect. So engine threads block all signals from their first instruction on.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Shortest wait of a caller, whatever its timeout: no program expects to fail where mostly there
/// is no wait.
pub const AT_LEAST: Duration = Duration::from_secs(3);
/// Longest wait for what can be left undone.
pub const A_MOMENT: Duration = Duration::from_millis(100);

/// The application's busy handler: called with the number of prior calls, false gives up. The
/// handler outlives the scope in which it is set.
type Busy = *const (dyn Fn(u32) -> bool + 'static);

/// True if the caller has been interrupted. The function outlives the scope in which it is set.
type Interrupted = *const (dyn Fn() -> bool + 'static);

struct Caller {
    limit: Cell<Limit>,
    at_least: Duration,
    interrupted: Option<Interrupted>,
    /// Replaces the timeout.
    busy: Option<Busy>,
}

/// How long a caller waits.
#[derive(Clone, Copy)]
enum Limit {
    /// So long, from the beginning of a wait that has not come yet.
    Timeout(Duration),
    /// Until then; `None` for ever.
    End(Option<Instant>),
}

impl Caller {
    /// True if its timeout is over for a wait that has lasted for `waited`.
    fn is_out_of_time(&self, waited: Duration) -> bool {
        let end = match self.limit.get() {
            Limit::End(end) => end,
            Limit::Timeout(timeout) => {
                let end = Instant::now().checked_sub(waited).and_then(|b| b.checked_add(timeout));
                self.limit.set(Limit::End(end));
                end
            }
        };
        end.is_some_and(|end| Instant::now() >= end)
    }

    /// Runs `f` with this as the caller of this thread.
    fn serve<T>(&self, f: impl FnOnce() -> T) -> T {
        // `Outer` removes it before it is gone, however `f` ends.
        let _outer = Outer(CALLER.replace(self));
        f()
    }

    /// The caller of this thread, if there is one.
    fn with<T>(ask: impl FnOnce(Option<&Caller>) -> T) -> T {
        // SAFETY: null, or a caller whose `serve` has not returned: it outlives `ask`, which runs
        // inside of it.
        ask(unsafe { CALLER.get().as_ref() })
    }
}

thread_local! {
    static CALLER: Cell<*const Caller> = const { Cell::new(std::ptr::null()) };
}

/// Restores the previous caller.
struct Outer(*const Caller);

impl Drop for Outer {
    fn drop(&mut self) {
        CALLER.set(self.0);
    }
}

/// Runs `f`, in which this thread waits for `timeout`, or as long as `busy`, if there is one, returns
/// true. A wait also ends when `interrupted` returns true.
pub fn waits<T>(
    timeout: Duration,
    busy: Option<&dyn Fn(u32) -> bool>,
    interrupted: &dyn Fn() -> bool,
    f: impl FnOnce() -> T,
) -> T {
    let pointer: *const (dyn Fn() -> bool + '_) = interrupted;
    // SAFETY: only the lifetime is changed. This thread calls it while `f` runs, and so while
    // `interrupted` is borrowed: `serve` removes it however `f` ends, and a thread that `f` starts
    // has a CALLER of its own.
    let interrupted =
        unsafe { std::mem::transmute::<*const (dyn Fn() -> bool + '_), Interrupted>(pointer) };
    let busy = busy.map(|busy| {
        let pointer: *const (dyn Fn(u32) -> bool + '_) = busy;
        // SAFETY: as for `interrupted`.
        unsafe { std::mem::transmute::<*const (dyn Fn(u32) -> bool + '_), Busy>(pointer) }
    });
    let limit = Cell::new(Limit::Timeout(timeout));
    Caller { limit, at_least: AT_LEAST, interrupted: Some(interrupted), busy }.serve(f)
}

/// Runs `f`, in which each wait of this thread gives up after [`A_MOMENT`] without progress,
/// whatever the caller allows.
pub fn briefly<T>(f: impl FnOnce() -> T) -> T {
    let interrupted = Caller::with(|caller| caller.and_then(|caller| caller.interrupted));
    let limit = Cell::new(Limit::Timeout(Duration::ZERO));
    Caller { limit, at_least: A_MOMENT, interrupted, busy: None }.serve(f)
}

/// Runs `f` without calling the application's busy handler: the handler may use other connections,
/// and `f` holds what they need.
pub fn unasked<T>(f: impl FnOnce() -> T) -> T {
    let unasked = Caller::with(|caller| {
        caller.map(|&Caller { ref limit, at_least, interrupted, .. }| Caller {
            limit: limit.clone(),
            at_least,
            interrupted,
            busy: None,
        })
    });
    match unasked {
        Some(caller) => {
            let _begun = TimeoutBegun(&caller.limit);
            caller.serve(f)
        }
        None => f(),
    }
}

/// A timeout that began within [`unasked`] has begun for its caller too.
struct TimeoutBegun<'a>(&'a Cell<Limit>);

impl Drop for TimeoutBegun<'_> {
    fn drop(&mut self) {
        Caller::with(|outer| {
            if let Some(outer) = outer {
                outer.limit.set(self.0.get());
            }
        });
    }
}

/// True if a waiter should give up that has `waited` without progress of the holder. Calls the busy
/// handler from [`A_MOMENT`] on; `calls` counts these calls.
pub(crate) fn should_give_up(waited: Duration, calls: &mut u32) -> bool {
    Caller::with(|caller| match caller {
        None => waited >= AT_LEAST,
        Some(Caller { busy: Some(busy), .. }) => {
            if waited < A_MOMENT {
                return false;
            }
            *calls += 1;
            // SAFETY: set by `waits`, which has not returned yet.
            !unsafe { (**busy)(*calls - 1) }
        }
        Some(caller) => waited >= caller.at_least && caller.is_out_of_time(waited),
    })
}

/// True if the caller has been interrupted.
pub(crate) fn is_interrupted() -> bool {
    let interrupted = Caller::with(|caller| caller.and_then(|caller| caller.interrupted));
    interrupted.is_some_and(|interrupted| {
        // SAFETY: set by `waits`, which has not returned yet.
        unsafe { (*interrupted)() }
    })
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// The same number in the C libraries of Linux.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

thread_local! {
    /// How many [`Uncancelled`] this thread has, and what its state was before the first.
    static STATE: Cell<(u32, c_int)> = const { Cell::new((0, 0)) };
}

/// While this value lives its thread cannot be cancelled. Values nest; only the outermost costs
/// anything.
#[derive(Debug)]
pub struct Uncancelled {
    not_send: PhantomData<*mut ()>,
}

impl Uncancelled {
    /// Switches cancellation off.
    #[inline]
    pub fn begin() -> Uncancelled {
        STATE.with(|state| {
            let (depth, mut before) = state.get();
            if depth == 0 {
                before = set(PTHREAD_CANCEL_DISABLE);
            }
            state.set((depth + 1, before));
        });
        Uncancelled { not_send: PhantomData }
    }
}

/// True in a call of the engine that may write, wait or open files: it may hold locks.
pub fn is_in_call() -> bool {
    STATE.get().0 > 0
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        STATE.with(|state| {
            let (depth, before) = state.get();
            state.set((depth - 1, before));
            if depth == 1 && before != PTHREAD_CANCEL_DISABLE {
                set(before);
            }
        });
    }
}

fn set(to: c_int) -> c_int {
    let mut before = 0;
    // SAFETY: `to` is one of the two states, `before` is writable; the call only changes the
    // calling thread.
    let rc = unsafe { pthread_setcancelstate(to, &raw mut before) };
    debug_assert_eq!(rc, 0, "pthread_setcancelstate");
    before
}

/// Restores the signal mask of this thread.
struct Mask(libc::sigset_t);

impl Mask {
    /// Blocks every signal in this thread.
    fn all() -> Mask {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: room for a set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: filled in above, and room for a set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: the call fails only for an invalid `how`; otherwise it fills in `before`.
        Mask(unsafe { before.assume_init() })
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: `Mask::all` has filled it in.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// Starts a thread that blocks all signals. Its name has 15 bytes at most.
///
/// # Errors
/// Those of starting a thread.
pub fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // A new thread inherits the mask of its parent.
    let _mask = Mask::all();
    Builder::new().name(name.into()).spawn(f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enough(waited: Duration) -> bool {
        should_give_up(waited, &mut 0)
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
    fn a_timeout_begins_with_the_first_long_wait_and_goes_on_in_the_next() {
        let timeout = AT_LEAST + Duration::from_millis(50);
        waits(timeout, None, &|| false, || {
            assert!(!enough(AT_LEAST / 2), "this wait is over before it counts");
            assert!(!enough(AT_LEAST), "this one began so long ago");
            unasked(|| assert!(!enough(AT_LEAST)));
            std::thread::sleep(Duration::from_millis(60));
            assert!(enough(AT_LEAST), "the next of the same call has no timeout of its own");
            unasked(|| assert!(enough(AT_LEAST)));
        });
        waits(timeout, None, &|| false, || {
            unasked(|| assert!(!enough(AT_LEAST), "it begins where nobody is asked"));
            std::thread::sleep(Duration::from_millis(60));
            unasked(|| assert!(enough(AT_LEAST), "and goes on in the next such place"));
            assert!(enough(AT_LEAST), "and outside of it");
        });
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
            assert!(!should_give_up(A_MOMENT / 2, &mut calls));
            assert_eq!(asked.get(), 0, "mostly it is a matter of microseconds");
            let answers = [(); 3].map(|()| should_give_up(A_MOMENT, &mut calls));
            assert_eq!((answers, asked.get()), ([false, false, true], 3));
            unasked(|| assert!(!enough(AT_LEAST / 2) && enough(AT_LEAST)));
            briefly(|| assert!(enough(A_MOMENT)));
            assert_eq!(asked.get(), 3);
        });
    }

    fn is_off() -> bool {
        let before = set(PTHREAD_CANCEL_DISABLE);
        set(before);
        before == PTHREAD_CANCEL_DISABLE
    }

    #[test]
    fn cancellation_is_off_until_the_last_of_them_is_gone() {
        assert!(!is_off());
        let outer = Uncancelled::begin();
        let inner = Uncancelled::begin();
        assert!(is_off());
        drop(outer);
        assert!(is_off());
        drop(inner);
        assert!(!is_off());
    }

    #[test]
    fn what_the_program_had_switched_off_stays_off() {
        let mine = set(PTHREAD_CANCEL_DISABLE);
        drop(Uncancelled::begin());
        assert!(is_off());
        set(mine);
    }

    /// The signals that this thread blocks.
    fn blocked() -> libc::sigset_t {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: room for the answer; nothing is changed.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr()) };
        // SAFETY: filled in.
        unsafe { mask.assume_init() }
    }

    fn has(mask: &libc::sigset_t, signal: libc::c_int) -> bool {
        // SAFETY: a set that is filled in.
        unsafe { libc::sigismember(mask, signal) == 1 }
    }

    // holds WORKER-3
    #[test]
    fn no_signal_comes_to_it_and_its_parents_mask_stays() {
        let (send, receive) = std::sync::mpsc::channel();
        let thread = spawn("of-the-test", move || send.send(blocked()).expect("it listens"));
        let in_thread = receive.recv().expect("it says");
        thread.expect("a thread").join().expect("it ends");
        let here = blocked();
        for signal in [libc::SIGTERM, libc::SIGALRM, libc::SIGUSR1, libc::SIGCHLD] {
            assert!(has(&in_thread, signal) && !has(&here, signal), "{signal}");
        }
    }
}

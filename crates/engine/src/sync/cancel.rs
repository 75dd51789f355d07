//! Keeps a thread from being ended by `pthread_cancel` while others would have to suffer for it.
//!
//! Every system call that blocks is a place where a cancelled thread ends. Inside the engine that would leave a lock
//! held by a process that lives on, and Rust's frames may not be unwound by it at all. So cancellation is
//! off while a shared lock is held, and in every call of the engine that writes, waits or opens files; a request
//! that comes meanwhile takes effect at the thread's next such place outside. Calls that only touch
//! memory have no such place and pay nothing.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// The same number in the C libraries of Linux.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

thread_local! {
    /// How many [`Uncancelled`] this thread has, and what its state was before the first.
    static STATE: Cell<(u32, c_int)> = const { Cell::new((0, 0)) };
}

/// While it lives its thread cannot be cancelled. They nest; only the outermost costs anything.
#[derive(Debug)]
pub struct Uncancelled {
    not_send: PhantomData<*mut ()>,
}

impl Uncancelled {
    /// From here on.
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
    // SAFETY: `to` is one of the two states, `before` is writable; the call only changes the calling thread.
    let rc = unsafe { pthread_setcancelstate(to, &raw mut before) };
    debug_assert_eq!(rc, 0, "pthread_setcancelstate");
    before
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

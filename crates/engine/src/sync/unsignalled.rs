//! Threads of the library's own, in programs that may know of no threads.
//!
//! A signal that is sent to a process goes to any thread that does not block it. A program that waits for its signals by `sigwait` or
//! signalfd blocks them in the threads that it knows of: one that came to ours would end the program, or run its handler on a stack
//! and at a moment that it does not expect. So ours block all of them from their first instruction on.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Puts the mask of this thread back.
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
        // SAFETY: with a valid way of changing the mask the call does not fail, and fills it in.
        Mask(unsafe { before.assume_init() })
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: filled in by the call above.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// Starts a thread, whose name has 15 bytes at most, that no signal comes to.
///
/// # Errors
/// Those of starting a thread.
pub fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // A new thread has the mask of its parent.
    let _mask = Mask::all();
    Builder::new().name(name.into()).spawn(f)
}

#[cfg(test)]
mod tests {
    use super::*;

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

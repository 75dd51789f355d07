//! Waiting in the kernel on a 32-bit word of shared memory.
//!
//! A waiter reads the word, decides to sleep, and sleeps only if the word still has the value that
//! it read. A waker changes the word first and wakes afterwards. A wake-up may be spurious, and a
//! waker may be killed between the change and the wake. So every caller gives a timeout and checks
//! its condition again in a loop (COMMIT-5).
//!
//! Futexes here are process-shared: the kernel identifies the word by file and offset, so processes
//! that map the region at different addresses meet.

#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Why [`wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitResult {
    /// Another thread woke the word, or the wake-up was spurious.
    Woken,
    /// The timeout passed.
    TimedOut,
    /// The word no longer had the expected value; the call did not sleep.
    Changed,
    /// A signal handler ran.
    Interrupted,
}

/// Sleeps if `word` has the value `expected`, until a wake, a signal, or the end of `timeout`.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> WaitResult {
    let spec = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(i32::MAX as u64) as i64,
        tv_nsec: libc::c_long::from(t.subsec_nanos().min(999_999_999) as i32),
    });
    let spec_ptr = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `word` is a live, aligned 32-bit word for the whole call and `spec_ptr` is null or
    // points to a live timespec; FUTEX_WAIT only reads both.
    let rc = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, spec_ptr)
    };
    if rc == 0 {
        return WaitResult::Woken;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => WaitResult::Changed,
        Some(libc::ETIMEDOUT) => WaitResult::TimedOut,
        Some(libc::EINTR) => WaitResult::Interrupted,
        other => panic!("futex wait failed with errno {other:?}"),
    }
}

/// Wakes one waiter of `word`.
pub fn wake_one(word: &AtomicU32) {
    wake(word, 1);
}

/// Wakes every waiter of `word`.
pub fn wake_all(word: &AtomicU32) {
    wake(word, i32::MAX);
}

fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: `word` is a live, aligned 32-bit word; FUTEX_WAKE does not touch its value.
    let rc = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
    debug_assert!(rc >= 0, "futex wake failed");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_wait_on_a_changed_word_returns_at_once() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, None), WaitResult::Changed);
    }

    #[test]
    fn a_wait_nobody_ends_times_out() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 1, Some(Duration::from_millis(5))), WaitResult::TimedOut);
    }

    #[test]
    fn a_waiter_is_woken_by_another_thread() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Ordering::Acquire) == 0 {
                    wait(&word, 0, Some(Duration::from_secs(5)));
                }
            });
            std::thread::sleep(Duration::from_millis(20));
            word.store(1, Ordering::Release);
            wake_all(&word);
        });
    }
}

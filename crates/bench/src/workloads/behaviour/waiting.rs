//! Whether a session waits for somebody else, told by what is seen of it and not by how long it takes.
//!
//! A thread waits for somebody while the kernel has it in a call that only another thread, a lock or an alarm ends:
//! a futex, a lock of a file, a pause between two tries. A thread that computes, wants a processor or waits for the disk
//! is in none of them, however slow the machine is. A thread that waits for a server's answer cannot be told from one for
//! which the server works: there the server is asked whether any of its sessions waits for a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// The thread of a session; nought until it runs.
#[derive(Clone, Debug, Default)]
pub struct Thread(Arc<AtomicI32>);

impl Thread {
    /// This thread is the one to be looked at.
    pub fn is_this(&self) {
        // Relaxed: only looked at after the session has said through a channel that it is open.
        self.0.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
    }

    /// Whether it is in a call that waits for somebody, just now.
    #[must_use]
    pub fn waits_now(&self) -> bool {
        let thread = self.0.load(Ordering::Relaxed);
        let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
        call.is_ok_and(|text| is_waiting(&text))
    }
}

/// Reads a line of `/proc/PID/task/TID/syscall`: the number of the call and its arguments, `-1` for a thread that waits
/// outside of one, or `running`.
fn is_waiting(line: &str) -> bool {
    let number = line.split_whitespace().next().and_then(|word| word.parse().ok());
    number.is_some_and(|number: i64| WAITING.contains(&number))
}

/// Calls that wait for another thread or process, or for a time.
const WAITING: &[i64] = &[
    libc::SYS_futex,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_semtimedop,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::*;

    /// Looks at a thread until it is seen to wait, or as often as is asked.
    fn seen_waiting(thread: &Thread, looks: usize) -> usize {
        let pause = Duration::from_millis(1);
        (0..looks).filter(|_| (std::thread::sleep(pause), thread.waits_now()).1).count()
    }

    #[test]
    fn a_thread_that_wants_a_mutex_waits_and_one_that_computes_does_not() {
        let (mutex, blocked, busy) = (Mutex::new(()), Thread::default(), Thread::default());
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let held = mutex.lock().unwrap();
            scope.spawn(|| {
                blocked.is_this();
                drop(mutex.lock());
            });
            scope.spawn(|| {
                busy.is_this();
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let begun = Instant::now();
            while seen_waiting(&blocked, 10) < 10 {
                assert!(begun.elapsed() < Duration::from_secs(60), "it is never seen to wait");
            }
            // Before its first instruction a thread may still wait for its own start.
            while busy.0.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let seen = seen_waiting(&busy, 50);
            done.store(true, Ordering::Relaxed);
            drop(held);
            assert_eq!(seen, 0, "a thread that computes was taken for one that waits");
        });
    }

    #[test]
    fn waiting_for_the_disk_is_not_waiting_for_somebody() {
        let line = |call: i64| format!("{call} 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f00\n");
        for call in [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_pread64, libc::SYS_write] {
            assert!(!is_waiting(&line(call)), "{call}");
        }
        assert!(is_waiting(&line(libc::SYS_futex)) && is_waiting(&line(libc::SYS_fcntl)));
        assert!(!is_waiting("running\n") && !is_waiting("-1 0x7ffc 0x7f00\n") && !is_waiting(""));
    }
}

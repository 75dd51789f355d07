//! A mutex in shared memory that survives the death of its owner.
//!
//! Built on the robust, process-shared mutex of the C library: the kernel knows which mutexes a thread
//! holds and hands the mutex of a dead one to the next that asks, who learns of the death from
//! [`Guard::previous_owner_died`] and repairs what the mutex protects. If the repairer dies as well,
//! the next owner is told again.
//!
//! Invariants
//! 1. A mutex is never left unrecoverable: an inherited one is declared consistent before its guard is
//!    handed out, so the repair is the duty of whoever holds that guard (C2, C5).
//! 2. A waiter returns soon after the mutex is free, whoever was killed meanwhile (`LOOK_AGAIN`).
//! 3. The bytes of the mutex stay mapped at one address as long as a thread of this process holds or
//!    waits for it; mappings at different addresses in different processes are fine.
//!
//! A panic while an inherited guard is held unlocks it, and the next owner is *not* told; code that
//! repairs must turn a panic into a poisoned database.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::Duration;

use super::clock;

/// How long a waiter stays awake. What the commit mutex guards takes less, and less than falling asleep and being woken,
/// with another process on the processor in between. Where nobody else can run meanwhile it is lost.
const SPIN_NS: u64 = 20_000;
/// How long a waiter sleeps at most. An owner wakes one waiter. If that one is killed before it has the mutex, and somebody
/// who did not sleep has taken it meanwhile, then the kernel does not wake another, nor does the new owner, who does not know
/// of any: they would sleep while the mutex is free (C5).
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Between two looks at a mutex that is held.
const HINTS_PER_TRY: u32 = 8;

/// A robust process-shared mutex. It protects no data of its own: it lies beside what it guards.
#[repr(C, align(8))]
pub struct RobustMutex {
    raw: UnsafeCell<libc::pthread_mutex_t>,
}

// SAFETY: a pthread mutex is made to be used from many threads at once, through shared references.
unsafe impl Sync for RobustMutex {}
// SAFETY: the bytes may be owned by any thread; it is never moved while in use, see `init`.
unsafe impl Send for RobustMutex {}

/// Proof that the mutex is held; dropping it unlocks. It cannot leave its thread.
pub struct Guard<'a> {
    mutex: &'a RobustMutex,
    /// The last owner died while it held the mutex: repair before anything else.
    pub previous_owner_died: bool,
    not_send: PhantomData<*mut ()>,
}

impl RobustMutex {
    /// Makes an unlocked mutex at `this`.
    ///
    /// # Safety
    /// `this` points to writable, aligned memory that outlives every use of the mutex, and nobody uses
    /// the mutex there while this runs.
    pub unsafe fn init(this: *mut RobustMutex) {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attr = attributes.as_mut_ptr();
        // SAFETY: `attr` points to memory for one attribute object.
        let rc = unsafe { libc::pthread_mutexattr_init(attr) };
        assert_eq!(rc, 0, "pthread_mutexattr_init");
        // SAFETY: `attr` was initialised above.
        let rc = unsafe { libc::pthread_mutexattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED) };
        assert_eq!(rc, 0, "pthread_mutexattr_setpshared");
        // SAFETY: `attr` was initialised above.
        let rc = unsafe { libc::pthread_mutexattr_setrobust(attr, libc::PTHREAD_MUTEX_ROBUST) };
        assert_eq!(rc, 0, "pthread_mutexattr_setrobust");
        // SAFETY: `attr` was initialised above.
        let rc = unsafe { libc::pthread_mutexattr_settype(attr, libc::PTHREAD_MUTEX_ERRORCHECK) };
        assert_eq!(rc, 0, "pthread_mutexattr_settype");
        // SAFETY: the caller gives writable, aligned memory that nobody uses; `attr` is initialised.
        let rc = unsafe { libc::pthread_mutex_init(this.cast::<libc::pthread_mutex_t>(), attr) };
        assert_eq!(rc, 0, "pthread_mutex_init");
        // SAFETY: `attr` was initialised above and is not used again.
        unsafe { libc::pthread_mutexattr_destroy(attr) };
    }

    /// Waits for the mutex, a moment of it awake. Panics if this thread already holds it.
    pub fn lock(&self) -> Guard<'_> {
        if let Some(guard) = self.try_lock_for(SPIN_NS) {
            return guard;
        }
        loop {
            let until = clock::realtime_after(LOOK_AGAIN);
            // SAFETY: `self` was made by `init` (its contract), and stays mapped while borrowed; `until` is a live timespec.
            let rc = unsafe { libc::pthread_mutex_timedlock(self.raw.get(), &raw const until) };
            if let Some(guard) = self.taken(rc) {
                return guard;
            }
        }
    }

    /// Takes the mutex if nobody holds it.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        // SAFETY: as in `lock`.
        let rc = unsafe { libc::pthread_mutex_trylock(self.raw.get()) };
        self.taken(rc)
    }

    fn try_lock_for(&self, ns: u64) -> Option<Guard<'_>> {
        if let Some(guard) = self.try_lock() {
            return Some(guard);
        }
        let begin = clock::monotonic_ns();
        loop {
            for _ in 0..HINTS_PER_TRY {
                std::hint::spin_loop();
            }
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            if clock::monotonic_ns() - begin >= ns {
                return None;
            }
        }
    }

    fn taken(&self, rc: libc::c_int) -> Option<Guard<'_>> {
        let previous_owner_died = match rc {
            0 => false,
            libc::EBUSY | libc::ETIMEDOUT => return None,
            libc::EOWNERDEAD => {
                // SAFETY: EOWNERDEAD says that this thread now holds the mutex in need of this call.
                let rc = unsafe { libc::pthread_mutex_consistent(self.raw.get()) };
                assert_eq!(rc, 0, "pthread_mutex_consistent");
                true
            }
            libc::EDEADLK => panic!("a thread locked a shared mutex that it already holds"),
            other => panic!("locking a shared mutex failed with errno {other}"),
        };
        Some(Guard { mutex: self, previous_owner_died, not_send: PhantomData })
    }
}

impl Guard<'_> {
    /// Whether this guard holds `mutex`; functions that need a lock assert it with this.
    pub fn holds(&self, mutex: &RobustMutex) -> bool {
        std::ptr::eq(self.mutex, mutex)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: the guard is proof that this thread holds the mutex, and it is !Send.
        let rc = unsafe { libc::pthread_mutex_unlock(self.mutex.raw.get()) };
        debug_assert_eq!(rc, 0, "pthread_mutex_unlock");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn fresh() -> Box<RobustMutex> {
        let mut place = Box::new(MaybeUninit::<RobustMutex>::uninit());
        // SAFETY: the box is writable and aligned, and nobody else knows of it.
        unsafe { RobustMutex::init(place.as_mut_ptr()) };
        // SAFETY: initialised by the line above; the box keeps its address.
        unsafe { Box::from_raw(Box::into_raw(place).cast::<RobustMutex>()) }
    }

    #[test]
    fn one_thread_at_a_time_holds_the_mutex() {
        let mutex = fresh();
        let counter = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let guard = mutex.lock();
                        assert!(!guard.previous_owner_died);
                        let seen = counter.load(Ordering::Relaxed);
                        counter.store(seen + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(counter.load(Ordering::Relaxed), 40_000);
    }

    #[test]
    fn a_held_mutex_cannot_be_had_by_trying() {
        let mutex = fresh();
        let guard = mutex.lock();
        assert!(guard.holds(&mutex));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(mutex.try_lock().is_none()));
        });
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn a_waiter_whose_wake_was_lost_goes_on() {
        let mutex: &'static RobustMutex = Box::leak(fresh());
        let guard = mutex.lock();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(mutex.lock().previous_owner_died));
        std::thread::sleep(LOOK_AGAIN / 2);
        // What an unlock leaves whose wake went to a waiter that is dead now: a free mutex. The first word of the C library's
        // mutex holds the owner.
        let word = mutex.raw.get().cast::<std::sync::atomic::AtomicU32>();
        // SAFETY: inside the mutex, which is leaked, and aligned; the C library itself uses it as an atomic.
        unsafe { &*word }.store(0, Ordering::SeqCst);
        std::mem::forget(guard);
        assert_eq!(receiver.recv_timeout(LOOK_AGAIN * 200), Ok(false), "the waiter sleeps on");
    }

    #[test]
    fn the_next_owner_learns_that_the_last_one_died() {
        let mutex = fresh();
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(mutex.lock()));
        });
        let guard = mutex.lock();
        assert!(guard.previous_owner_died);
        drop(guard);
        assert!(!mutex.lock().previous_owner_died);
    }
}

//! The mutex between processes: one owner at a time, wakes of sleepers, owners that die or panic,
//! ends of waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

const ME: Identity = Identity { index: 0, generation: 1 };
const OTHER: Identity = Identity { index: 1023, generation: GENERATION_MASK };

/// A process that takes every other process for alive.
fn party(me: Identity) -> Party {
    Party::new(me, |_| true)
}

/// A process that takes `dead` for dead once the flag is set.
fn mourner(dead: Identity) -> (Party, Arc<AtomicBool>) {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    (Party::new(ME, move |who| who != dead || !seen.load(Ordering::SeqCst)), flag)
}

/// A process that is killed while it holds the mutex.
fn die_with(mutex: &SharedMutex, party: &Party) {
    std::mem::forget(mutex.lock(party));
    HELD.set(std::ptr::null());
}

#[test]
fn an_owner_word_names_its_process_whatever_the_flags() {
    for who in [ME, OTHER, Identity::new(ProcessIndex(1022), 0)] {
        assert_eq!(who.word() & FLAGS, 0);
        assert_ne!(who.word(), 0);
        assert_eq!(Identity::of(who.word() | FLAGS), Some(who));
    }
    assert_eq!(Identity::of(FLAGS), None);
    assert_eq!(Identity::new(ProcessIndex(3), 5 + (1 << 19)), Identity::new(ProcessIndex(3), 5));
}

#[test]
fn one_thread_at_a_time_holds_the_mutex() {
    let mutex = SharedMutex::default();
    let counter = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for index in 0..4 {
            let (mutex, counter) = (&mutex, &counter);
            // Threads of two processes.
            let party = party(Identity { index: index % 2, generation: 9 });
            scope.spawn(move || {
                for _ in 0..10_000 {
                    let guard = mutex.lock(&party);
                    assert!(!guard.previous_owner_died);
                    let seen = counter.load(Ordering::Relaxed);
                    counter.store(seen + 1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(counter.load(Ordering::Relaxed), 40_000);
    assert_eq!(mutex.word.load(Ordering::Relaxed), 0);
}

#[test]
fn a_held_mutex_cannot_be_had_by_trying() {
    let mutex = SharedMutex::default();
    let guard = mutex.lock(&party(ME));
    assert!(guard.holds(&mutex));
    assert!(mutex.try_lock(&party(OTHER)).is_none());
    assert!(mutex.try_lock_from_dead(&party(OTHER)).is_none());
    drop(guard);
    assert!(mutex.try_lock(&party(OTHER)).is_some());
}

#[test]
#[should_panic(expected = "a thread locked a shared mutex that it already holds")]
fn a_thread_that_waits_for_itself_panics() {
    let mutex = SharedMutex::default();
    let _guard = mutex.lock(&party(ME));
    let _never = mutex.lock(&party(ME));
}

// holds MUTEX-4
#[test]
fn a_waiter_whose_wake_was_lost_goes_on() {
    let mutex: &'static SharedMutex = Box::leak(Box::default());
    let guard = mutex.lock(&party(ME));
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(mutex.lock(&party(OTHER)).previous_owner_died));
    std::thread::sleep(LOOK_AGAIN / 2);
    // An unlock whose wake went to a waiter that died leaves a free mutex.
    mutex.word.store(0, Ordering::SeqCst);
    std::mem::forget(guard);
    assert_eq!(receiver.recv_timeout(LOOK_AGAIN * 200), Ok(false), "the waiter sleeps on");
}

// holds MUTEX-1
#[test]
fn the_next_owner_learns_that_the_last_one_died() {
    let mutex = SharedMutex::default();
    die_with(&mutex, &party(OTHER));
    let (me, is_dead) = mourner(OTHER);
    assert!(mutex.try_lock_from_dead(&me).is_none(), "it may live");
    is_dead.store(true, Ordering::SeqCst);
    assert!(mutex.try_lock(&me).is_none(), "trying asks nobody");
    let guard = mutex.lock(&me);
    assert!(guard.previous_owner_died);
    drop(guard);
    assert!(!mutex.lock(&me).previous_owner_died, "it has been repaired");
}

#[test]
fn a_successor_in_the_same_slot_does_not_keep_the_dead_alive() {
    let mutex = SharedMutex::default();
    die_with(&mutex, &party(OTHER));
    let living = Identity { generation: OTHER.generation - 1, ..OTHER };
    let me = Party::new(ME, move |who| who == living);
    assert!(mutex.try_lock_from_dead(&me).is_some_and(|guard| guard.previous_owner_died));
    // Nor does a process take itself for a previous owner of its slot.
    die_with(&mutex, &party(OTHER));
    let heir = Party::new(living, |_| false);
    assert!(mutex.lock(&heir).previous_owner_died);
}

// holds MUTEX-1
#[test]
fn if_the_repairer_dies_the_next_repairs() {
    let mutex = SharedMutex::default();
    die_with(&mutex, &party(OTHER));
    let heir = Identity { index: 5, generation: 2 };
    die_with(&mutex, &Party::new(heir, |_| false));
    let (me, is_dead) = mourner(heir);
    is_dead.store(true, Ordering::SeqCst);
    assert!(mutex.lock(&me).previous_owner_died);
    assert!(!mutex.lock(&me).previous_owner_died);
}

// holds MUTEX-1, MUTEX-2
#[test]
fn a_panic_with_the_mutex_held_has_the_next_owner_repair() {
    let mutex = SharedMutex::default();
    let me = party(ME);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = mutex.lock(&me);
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    let repairs_and_panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let guard = mutex.lock(&party(OTHER));
        assert!(guard.previous_owner_died);
        panic!("on purpose");
    }));
    assert!(repairs_and_panics.is_err());
    assert!(mutex.lock(&me).previous_owner_died, "nobody has repaired yet");
    assert!(!mutex.lock(&me).previous_owner_died);
}

#[test]
fn what_cleans_up_during_a_panic_leaves_no_mark() {
    struct CleansUp<'a>(&'a SharedMutex);
    impl Drop for CleansUp<'_> {
        fn drop(&mut self) {
            drop(self.0.lock(&party(ME)));
        }
    }
    let mutex = SharedMutex::default();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _cleans_up = CleansUp(&mutex);
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert!(!mutex.lock(&party(ME)).previous_owner_died);
}

#[test]
fn a_wait_ends_by_its_deadline_and_by_an_interrupt() {
    let mutex = SharedMutex::default();
    let guard = mutex.lock(&party(OTHER));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let me = party(ME);
            let soon = Instant::now() + Duration::from_millis(30);
            let over = mutex.lock_until(&me, Some(soon), &mut || false);
            assert_eq!(over.map(drop), Err(GaveUp::TimedOut));
            assert!(Instant::now() >= soon);
            let past = mutex.lock_until(&me, Some(soon), &mut || false);
            assert_eq!(past.map(drop), Err(GaveUp::TimedOut));
            let mut looks = 0;
            let interrupted = mutex.lock_until(&me, None, &mut || {
                looks += 1;
                looks == 3
            });
            assert_eq!(interrupted.map(drop), Err(GaveUp::Interrupted));
        });
    });
    drop(guard);
    let late = mutex.lock_until(&party(ME), Some(Instant::now()), &mut || true);
    assert!(late.is_ok(), "what is free is had without waiting");
}

// holds MUTEX-3
#[test]
fn one_who_gives_up_passes_its_wake_on() {
    let mutex: &'static SharedMutex = Box::leak(Box::default());
    for _ in 0..20 {
        let guard = mutex.lock(&party(OTHER));
        let (sender, receiver) = std::sync::mpsc::channel();
        for impatient in [true, true, true, false] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let soon = impatient.then(|| Instant::now() + Duration::from_millis(3));
                let had = mutex.lock_until(&party(ME), soon, &mut || false).is_ok();
                sender.send(had || impatient)
            });
        }
        std::thread::sleep(Duration::from_millis(3));
        drop(guard);
        for _ in 0..4 {
            assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(true));
        }
    }
}

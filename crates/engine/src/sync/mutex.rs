//! A mutex in shared memory that survives the death of its owner.
//!
//! One word has the whole state: the owner, whether a waiter may sleep, and whether the next owner
//! must repair. It names the owner by its process slot and by how often that slot was taken
//! ([`Identity`]), not by a pid: pids are unique in one pid namespace only, and containers on one
//! volume have their own. A thread that has waited for a while looks at that slot to see whether
//! the owner lives (shm/process.rs).
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free |
//! | `REPAIR` | free, and the next owner repairs |
//! | owner | held |
//! | owner + `WAITERS` | held, and a waiter may sleep on the word: unlocking wakes one |
//! | owner + `REPAIR` | held, and the owner repairs |
//!
//! Invariants
//! - MUTEX-1 A thread that takes the mutex from a dead owner, or with `REPAIR`, finds
//!   [`Guard::previous_owner_died`] set and repairs before anything else. `REPAIR` stays in the
//!   word until that guard is dropped in the ordinary way: if the repairer dies or panics, the next
//!   owner repairs (COMMIT-2, COMMIT-5).
//! - MUTEX-2 A guard dropped by a panic leaves `REPAIR`: what the mutex protects may be half
//!   changed.
//! - MUTEX-3 A sleeper has set `WAITERS` in the very word it sleeps on. A thread that has slept
//!   takes the mutex with `WAITERS`, since it does not know of other sleepers. So an unlock with
//!   sleepers always wakes one (`mutex_model.rs` tries all orders).
//! - MUTEX-4 A waiter returns soon after the mutex is free, whichever process is killed
//!   (`LOOK_AGAIN`).
//! - MUTEX-5 A thread that holds a guard cannot be cancelled (`Uncancelled`).
//! - MUTEX-6 The word stays mapped at one address as long as a thread of this process holds or
//!   waits for it. Different processes may map it at different addresses.
//!
//! Deliberately absent: fairness (the first running thread takes the mutex), and recursion (a
//! thread that waits for its own guard panics).

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::time::{Duration, Instant};

use super::caller::Uncancelled;
use super::clock;
use super::futex::{self, WaitResult};
use crate::ids::{PROCESS_SLOTS, ProcessIndex};

/// How long a waiter spins before it sleeps. The commit mutex is held for less, and a sleep and a
/// wake take longer, with another process on the processor in between. On a single processor
/// spinning is wasted.
const SPIN_NS: u64 = 20_000;
/// Longest sleep before a waiter looks whether the owner lives. It also bounds a lost wake: an
/// owner wakes one waiter, which may be killed before it has the mutex. If a thread that did not
/// sleep then takes the mutex, it knows of no sleepers and wakes none (COMMIT-5).
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Longest first sleep: a dead owner is rare, but all waiting for it is wasted.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// Spin hints between two looks at a mutex that is held.
const HINTS_PER_TRY: u32 = 8;

/// A waiter may sleep on the word.
const WAITERS: u32 = 1;
/// The next owner repairs, or the present one does.
const REPAIR: u32 = 2;
const FLAGS: u32 = WAITERS | REPAIR;
const INDEX_SHIFT: u32 = 2;
const INDEX_BITS: u32 = 11;
const GENERATION_SHIFT: u32 = INDEX_SHIFT + INDEX_BITS;
const GENERATION_MASK: u32 = u32::MAX >> GENERATION_SHIFT;

const _: () = assert!(PROCESS_SLOTS < 1 << INDEX_BITS, "slot index + 1 fits the word");

/// One process, for as long as the session lives. The generation has 19 bits: an identity recurs
/// only if its slot is taken 524,288 times while a mutex names it and no thread wants that mutex. A
/// waiter would then wait for the wrong process, until that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    index: u32,
    generation: u32,
}

impl Identity {
    /// Returns the identity of the process that took slot `index` and raised its count to
    /// `generation`.
    pub fn new(index: ProcessIndex, generation: u32) -> Identity {
        Identity { index: index.0, generation: generation & GENERATION_MASK }
    }

    /// Returns the slot.
    pub fn index(self) -> ProcessIndex {
        ProcessIndex(self.index)
    }

    /// Returns the owner's word: never 0, and without flags.
    fn word(self) -> u32 {
        (self.index + 1) << INDEX_SHIFT | self.generation << GENERATION_SHIFT
    }

    /// Returns the owner in `word`, if it has one.
    fn of(word: u32) -> Option<Identity> {
        let index = (word >> INDEX_SHIFT & ((1 << INDEX_BITS) - 1)).checked_sub(1)?;
        Some(Identity { index, generation: word >> GENERATION_SHIFT })
    }
}

type IsAlive = dyn Fn(Identity) -> bool + Send + Sync;

/// The process that locks, and its test whether another process lives.
pub struct Party {
    me: Identity,
    is_alive: Box<IsAlive>,
}

impl Party {
    /// `is_alive` returns false only for a process that is dead for good.
    pub fn new(me: Identity, is_alive: impl Fn(Identity) -> bool + Send + Sync + 'static) -> Party {
        Party { me, is_alive: Box::new(is_alive) }
    }

    /// Returns the slot of the process that locks.
    pub fn index(&self) -> ProcessIndex {
        self.me.index()
    }

    fn is_dead(&self, word: u32) -> bool {
        Identity::of(word).is_some_and(|owner| owner != self.me && !(self.is_alive)(owner))
    }
}

impl std::fmt::Debug for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Party").field("me", &self.me).finish_non_exhaustive()
    }
}

/// Why [`SharedMutex::lock_until`] returned without the mutex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaveUp {
    /// The deadline passed.
    TimedOut,
    /// The caller was interrupted.
    Interrupted,
}

/// A mutex between processes; free when zero. It holds no data: it is stored next to what it
/// protects.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct SharedMutex {
    word: AtomicU32,
}

const _: () = assert!(size_of::<SharedMutex>() == 64, "nobody who waits slows down its neighbours");

/// Proof that the mutex is held; dropping it unlocks. It cannot leave its thread.
#[derive(Debug)]
pub struct Guard<'a> {
    mutex: &'a SharedMutex,
    /// The last owner died or panicked while it held the mutex: repair before anything else.
    pub previous_owner_died: bool,
    was_panicking: bool,
    /// See [`Guard::leave_to_repair`].
    is_left: bool,
    /// The mutex that this thread had taken last before this one.
    outer: *const SharedMutex,
    _uncancelled: Uncancelled,
    not_send: PhantomData<*mut ()>,
}

thread_local! {
    /// The mutex that this thread took last and still holds.
    static HELD: Cell<*const SharedMutex> = const { Cell::new(std::ptr::null()) };
}

impl SharedMutex {
    /// Takes the mutex: spins for a moment, then sleeps. Panics if this thread already holds it.
    pub fn lock(&self, party: &Party) -> Guard<'_> {
        match self.lock_until(party, None, &mut || false) {
            Ok(guard) => guard,
            Err(gave_up) => unreachable!("a wait without an end gave up: {gave_up:?}"),
        }
    }

    /// Takes the mutex. Gives up at `deadline`, if there is one, or when `interrupted` returns
    /// true, which it calls at least every [`LOOK_AGAIN`]. Tries at least once. Panics if this
    /// thread already holds the mutex.
    ///
    /// # Errors
    /// Timed out or interrupted.
    pub fn lock_until(
        &self,
        party: &Party,
        deadline: Option<Instant>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Guard<'_>, GaveUp> {
        let uncancelled = Uncancelled::begin();
        let me = party.me.word();
        if let Some(inherited) = take_free(&self.word, me) {
            return Ok(self.guard(inherited, uncancelled));
        }
        assert!(
            HELD.get() != std::ptr::from_ref(self),
            "a thread locked a shared mutex that it already holds"
        );
        if let Some(inherited) = self.take_awake(me) {
            return Ok(self.guard(inherited, uncancelled));
        }
        let mut look = FIRST_LOOK;
        let mut slept = false;
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            let nap = left.map_or(look, |left| left.min(look));
            let result = match take_or_sleep(&self.word, me, slept, Some(nap)) {
                Step::Taken { inherited } => return Ok(self.guard(inherited, uncancelled)),
                Step::Slept { word, result } => {
                    if result == WaitResult::TimedOut {
                        if party.is_dead(word) && take_from_dead(&self.word, word, me) {
                            return Ok(self.guard(true, uncancelled));
                        }
                        look = LOOK_AGAIN;
                    }
                    result
                }
            };
            slept = true;
            // A thread that was woken tries once more: the mutex is probably free.
            let is_over =
                result != WaitResult::Woken && deadline.is_some_and(|end| Instant::now() >= end);
            if is_over || interrupted() {
                // This thread passes on a wake that it got or gets now: others may sleep.
                self.word.wake_one();
                return Err(if is_over { GaveUp::TimedOut } else { GaveUp::Interrupted });
            }
        }
    }

    /// Takes the mutex if it is free. A dead owner holds it until a waiter takes it over.
    pub fn try_lock(&self, party: &Party) -> Option<Guard<'_>> {
        let uncancelled = Uncancelled::begin();
        let inherited = take_free(&self.word, party.me.word())?;
        Some(self.guard(inherited, uncancelled))
    }

    /// As [`SharedMutex::try_lock`], but also takes the mutex from a dead owner. For callers that
    /// poll.
    pub fn try_lock_from_dead(&self, party: &Party) -> Option<Guard<'_>> {
        if let Some(guard) = self.try_lock(party) {
            return Some(guard);
        }
        let uncancelled = Uncancelled::begin();
        // Relaxed: only a hint; the exchange fails if the word has changed.
        let word = self.word.load(Relaxed);
        let taken = party.is_dead(word) && take_from_dead(&self.word, word, party.me.word());
        taken.then(|| self.guard(true, uncancelled))
    }

    /// Returns the owner at this moment.
    pub fn holder(&self) -> Option<Identity> {
        // Relaxed: for messages, and for callers that watch whether the owner changes.
        Identity::of(self.word.load(Relaxed))
    }

    fn take_awake(&self, me: u32) -> Option<bool> {
        let begin = clock::monotonic_ns();
        loop {
            for _ in 0..HINTS_PER_TRY {
                std::hint::spin_loop();
            }
            if let Some(inherited) = take_free(&self.word, me) {
                return Some(inherited);
            }
            if clock::monotonic_ns() - begin >= SPIN_NS {
                return None;
            }
        }
    }

    fn guard(&self, previous_owner_died: bool, uncancelled: Uncancelled) -> Guard<'_> {
        Guard {
            mutex: self,
            previous_owner_died,
            was_panicking: std::thread::panicking(),
            is_left: false,
            outer: HELD.replace(self),
            _uncancelled: uncancelled,
            not_send: PhantomData,
        }
    }
}

impl Guard<'_> {
    /// True if this guard holds `mutex`. Functions that need a lock assert it with this.
    pub fn holds(&self, mutex: &SharedMutex) -> bool {
        std::ptr::eq(self.mutex, mutex)
    }

    /// Unlocks without having repaired what the last owner left: the next owner repairs.
    pub fn leave_to_repair(mut self) {
        self.is_left = true;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        HELD.set(self.outer);
        // A guard that clean-up code took during a panic was used in the ordinary way.
        let is_broken = !self.was_panicking && std::thread::panicking();
        release(&self.mutex.word, is_broken || self.is_left);
    }
}

/// What the protocol does to the word. Its steps are generic over this trait, so that a model can
/// replace the word (`mutex_model.rs`).
trait Word {
    fn look(&self) -> u32;
    fn exchange(&self, from: u32, to: u32) -> bool;
    fn replace(&self, to: u32) -> u32;
    fn sleep(&self, expected: u32, at_most: Option<Duration>) -> WaitResult;
    fn wake_one(&self);
}

impl Word for AtomicU32 {
    #[inline]
    fn look(&self) -> u32 {
        // Relaxed: `exchange` or the kernel checks the value again.
        self.load(Relaxed)
    }

    #[inline]
    fn exchange(&self, from: u32, to: u32) -> bool {
        // Acquire pairs with the Release of `replace`: the next owner sees what the last one did.
        // The Release here keeps that order through a word in which only WAITERS was set.
        self.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }

    #[inline]
    fn replace(&self, to: u32) -> u32 {
        // Release pairs with the Acquire of `exchange`.
        self.swap(to, Release)
    }

    fn sleep(&self, expected: u32, at_most: Option<Duration>) -> WaitResult {
        futex::wait(self, expected, at_most)
    }

    fn wake_one(&self) {
        futex::wake_one(self);
    }
}

/// One round of waiting.
#[derive(Debug)]
enum Step {
    Taken { inherited: bool },
    Slept { word: u32, result: WaitResult },
}

/// Takes the mutex if it is free; returns whether the new owner must repair.
#[inline]
fn take_free(word: &impl Word, me: u32) -> Option<bool> {
    loop {
        let seen = word.look();
        if seen & !FLAGS != 0 {
            return None;
        }
        if word.exchange(seen, seen | me) {
            return Some(seen & REPAIR != 0);
        }
    }
}

/// Takes the mutex if it is free; else sleeps once. After this thread has `slept`, others may sleep
/// without `WAITERS` in the word.
fn take_or_sleep(word: &impl Word, me: u32, slept: bool, at_most: Option<Duration>) -> Step {
    loop {
        let seen = word.look();
        if seen & !FLAGS == 0 {
            let waiters = if slept { WAITERS } else { 0 };
            if word.exchange(seen, seen | me | waiters) {
                return Step::Taken { inherited: seen & REPAIR != 0 };
            }
        } else if seen & WAITERS != 0 || word.exchange(seen, seen | WAITERS) {
            let expected = seen | WAITERS;
            return Step::Slept { word: expected, result: word.sleep(expected, at_most) };
        }
    }
}

/// Takes over from the dead owner in `seen`, unless another thread did so first.
fn take_from_dead(word: &impl Word, seen: u32, me: u32) -> bool {
    word.exchange(seen, me | REPAIR | WAITERS)
}

/// Unlocks; `is_broken`: the next owner must repair.
#[inline]
fn release(word: &impl Word, is_broken: bool) {
    let before = word.replace(if is_broken { REPAIR } else { 0 });
    debug_assert!(before & !FLAGS != 0, "a mutex that nobody held was unlocked");
    if before & WAITERS != 0 {
        word.wake_one();
    }
}

#[cfg(test)]
#[path = "mutex_model.rs"]
mod model;
#[cfg(test)]
#[path = "mutex_tests.rs"]
mod tests;

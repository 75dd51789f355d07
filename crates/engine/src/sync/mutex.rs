//! A mutex in shared memory that survives the death of its owner.
//!
//! One word says everything: who holds it, whether somebody sleeps for it, and whether what it protects has to be
//! repaired first. The holder is a process as this database knows it, the slot in which it registered and
//! how often that slot was taken before ([`Identity`]), never a number that the kernel gave it: those are unique
//! in one pid namespace only, and containers on one volume have their own. Whether a holder lives is asked of its slot
//! (shm/process.rs), by whoever has waited for a while.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free |
//! | `REPAIR` | free, and the next owner repairs |
//! | owner | held |
//! | owner + `WAITERS` | held, and somebody may sleep on the word: unlocking wakes one |
//! | owner + `REPAIR` | held by one that repairs |
//!
//! Invariants
//! - MUTEX-1 Whoever takes the mutex from a dead owner, or with `REPAIR`, is told so by [`Guard::previous_owner_died`] and repairs
//!   before anything else. `REPAIR` stays in the word until that guard is dropped in the ordinary way: if the
//!   repairer dies or panics, the next is told again (COMMIT-2, COMMIT-5).
//! - MUTEX-2 A guard dropped by a panic leaves `REPAIR`: what the mutex protects may be half changed.
//! - MUTEX-3 Who sleeps has set `WAITERS` in the very word it sleeps on. Who was woken takes the mutex with `WAITERS`, since it does
//!   not know of the others. So an unlock with sleepers always wakes one (`mutex_model.rs` tries all orders).
//! - MUTEX-4 A waiter returns soon after the mutex is free, whoever was killed meanwhile (`LOOK_AGAIN`).
//! - MUTEX-5 A thread that holds a guard cannot be cancelled (`Uncancelled`).
//! - MUTEX-6 The word stays mapped at one address as long as a thread of this process holds or waits for it; mappings at
//!   different addresses in different processes are fine.
//!
//! Deliberately absent: fairness (whoever runs takes it), and waiting for a guard of the same thread, which panics.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::time::{Duration, Instant};

use super::caller::Uncancelled;
use super::clock;
use super::futex::{self, WaitResult};
use crate::ids::{PROCESS_SLOTS, ProcessIndex};

/// How long a waiter stays awake. What the commit mutex guards takes less, and less than falling asleep and being woken,
/// with another process on the processor in between. Where nobody else can run meanwhile it is lost.
const SPIN_NS: u64 = 20_000;
/// How long a waiter sleeps at most before it asks whether the owner lives. Also, an owner wakes one waiter. If that one is
/// killed before it has the mutex, and somebody who did not sleep has taken it meanwhile, who does not know of
/// the others, they would sleep while the mutex is free (COMMIT-5).
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The same for the first sleep: the dead are few, but whoever waits for one waits for nothing.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// Between two looks at a mutex that is held.
const HINTS_PER_TRY: u32 = 8;

/// Somebody may sleep on the word.
const WAITERS: u32 = 1;
/// The next owner repairs, or the present one does.
const REPAIR: u32 = 2;
const FLAGS: u32 = WAITERS | REPAIR;
const INDEX_SHIFT: u32 = 2;
const INDEX_BITS: u32 = 11;
const GENERATION_SHIFT: u32 = INDEX_SHIFT + INDEX_BITS;
const GENERATION_MASK: u32 = u32::MAX >> GENERATION_SHIFT;

const _: () = assert!(PROCESS_SLOTS < 1 << INDEX_BITS, "slot index + 1 fits the word");

/// One process, as long as the session lives: no other has the same, as far as 19 bits go. A slot would have to be taken
/// 524,288 times while a mutex names it and nobody wants that mutex; and then one would wait for
/// the wrong process, until that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    index: u32,
    generation: u32,
}

impl Identity {
    /// Of the process that took slot `index` when its count of takings became `generation`.
    pub fn new(index: ProcessIndex, generation: u32) -> Identity {
        Identity { index: index.0, generation: generation & GENERATION_MASK }
    }

    /// The slot.
    pub fn index(self) -> ProcessIndex {
        ProcessIndex(self.index)
    }

    /// Never 0, and without flags.
    fn word(self) -> u32 {
        (self.index + 1) << INDEX_SHIFT | self.generation << GENERATION_SHIFT
    }

    /// Of the owner in a word that has one.
    fn of(word: u32) -> Option<Identity> {
        let index = (word >> INDEX_SHIFT & ((1 << INDEX_BITS) - 1)).checked_sub(1)?;
        Some(Identity { index, generation: word >> GENERATION_SHIFT })
    }
}

type IsAlive = dyn Fn(Identity) -> bool + Send + Sync;

/// Who locks, and whom it asks whether others live.
pub struct Party {
    me: Identity,
    is_alive: Box<IsAlive>,
}

impl Party {
    /// `is_alive` says false only of a process that is dead for good.
    pub fn new(me: Identity, is_alive: impl Fn(Identity) -> bool + Send + Sync + 'static) -> Party {
        Party { me, is_alive: Box::new(is_alive) }
    }

    /// The slot of who locks.
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

/// Why [`SharedMutex::lock_until`] came back without the mutex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaveUp {
    /// The time was over.
    TimedOut,
    /// The caller was interrupted.
    Interrupted,
}

/// A mutex between processes; free when zero. It protects no data of its own: it lies beside what it guards.
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
    /// The last owner died, or panicked, while it held the mutex: repair before anything else.
    pub previous_owner_died: bool,
    was_panicking: bool,
    /// See [`Guard::leave_to_repair`].
    is_left: bool,
    /// What this thread held before.
    outer: *const SharedMutex,
    _uncancelled: Uncancelled,
    not_send: PhantomData<*mut ()>,
}

thread_local! {
    /// What this thread took last and still holds.
    static HELD: Cell<*const SharedMutex> = const { Cell::new(std::ptr::null()) };
}

impl SharedMutex {
    /// Waits for the mutex, a moment of it awake. Panics if this thread already holds it.
    pub fn lock(&self, party: &Party) -> Guard<'_> {
        match self.lock_until(party, None, &mut || false) {
            Ok(guard) => guard,
            Err(gave_up) => unreachable!("a wait without an end gave up: {gave_up:?}"),
        }
    }

    /// Waits for the mutex until `deadline`, if there is one, and as long as `interrupted` says no, which is asked at least
    /// every [`LOOK_AGAIN`]. Tries at least once. Panics if this thread already holds it.
    ///
    /// # Errors
    /// Why it has not got it.
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
            // Who is woken tries once more: it is probably free.
            let is_over =
                result != WaitResult::Woken && deadline.is_some_and(|end| Instant::now() >= end);
            if is_over || interrupted() {
                // A wake that this one got, or gets now, was for whoever else sleeps.
                self.word.wake_one();
                return Err(if is_over { GaveUp::TimedOut } else { GaveUp::Interrupted });
            }
        }
    }

    /// Takes the mutex if nobody holds it. The dead hold it until somebody waits.
    pub fn try_lock(&self, party: &Party) -> Option<Guard<'_>> {
        let uncancelled = Uncancelled::begin();
        let inherited = take_free(&self.word, party.me.word())?;
        Some(self.guard(inherited, uncancelled))
    }

    /// As [`SharedMutex::try_lock`], but takes it from a dead owner, too: for those who look again from time to time.
    pub fn try_lock_from_dead(&self, party: &Party) -> Option<Guard<'_>> {
        if let Some(guard) = self.try_lock(party) {
            return Some(guard);
        }
        let uncancelled = Uncancelled::begin();
        // Relaxed: only a hint, whose change the exchange finds.
        let word = self.word.load(Relaxed);
        let taken = party.is_dead(word) && take_from_dead(&self.word, word, party.me.word());
        taken.then(|| self.guard(true, uncancelled))
    }

    /// Who holds it, at this moment.
    pub fn holder(&self) -> Option<Identity> {
        // Relaxed: for people, and for who watches whether it changes.
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
    /// Whether this guard holds `mutex`; functions that need a lock assert it with this.
    pub fn holds(&self, mutex: &SharedMutex) -> bool {
        std::ptr::eq(self.mutex, mutex)
    }

    /// Unlocks without having repaired what the last owner left: the next one is told as this one was.
    pub fn leave_to_repair(mut self) {
        self.is_left = true;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        HELD.set(self.outer);
        // One taken by what cleans up during a panic has been used as it should.
        let is_broken = !self.was_panicking && std::thread::panicking();
        release(&self.mutex.word, is_broken || self.is_left);
    }
}

/// What the protocol does to the word. Its steps are functions of this, so that a model can stand in (`mutex_model.rs`).
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
        // Relaxed: whatever follows from it is checked by `exchange` or by the kernel.
        self.load(Relaxed)
    }

    #[inline]
    fn exchange(&self, from: u32, to: u32) -> bool {
        // Acquire pairs with the Release of `replace`: what the last owner did is seen by the next. Release, so that it
        // goes on through a word in which only WAITERS was set.
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

/// Takes the mutex if it is free; says whether it has to be repaired.
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

/// Takes the mutex if it is free; else sleeps until it may be. `slept`: by now others may sleep of whom nothing else tells.
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

/// Takes over from the dead owner in `seen`, unless somebody was faster.
fn take_from_dead(word: &impl Word, seen: u32, me: u32) -> bool {
    word.exchange(seen, me | REPAIR | WAITERS)
}

/// Gives the mutex back; `is_broken`: the next owner has to repair.
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

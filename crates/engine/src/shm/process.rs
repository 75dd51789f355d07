//! Which processes live: one slot and one locked byte per process.
//!
//! Ids of processes and threads are in shared memory for people to read, and decide nothing: in
//! another pid namespace, a container's for one, an id names another process or none.
//!
//! Invariants
//! - PROC-1 A process whose slot is in use holds the open-file-description lock on the slot's byte
//!   from before the slot is filled until after it is cleared.
//! - PROC-2 A slot whose byte is not locked belongs to a dead process. A child made by fork shares
//!   the description and gives it up ([`fork`](super::fork)).
//! - PROC-3 A slot is cleared only by its owner or, once the owner is found dead, under the commit
//!   mutex after everything the process held was given back.
//! - PROC-4 The generation of a slot grows before the slot is filled, so that slot and generation
//!   together name one process ([`Identity`]). A process whose generation is not the slot's is
//!   dead, since it is no longer in the slot.
//!
//! # The witness of a thread
//!
//! The kernel changes a word in shared memory when a thread ends.
//!
//! For the C library's robust mutexes Linux keeps a list of words for each thread. When the thread
//! ends, in whatever way, the kernel sets a bit in each word that holds the thread's id. It does so
//! before it closes a file of the process, and before it notifies any waiter. So a process that can
//! know of a death finds the bit, by reading memory; testing the lock of a process is a system
//! call.
//!
//! The list belongs to the C library. The list's head also has a place for a pending operation on
//! one word (`list_op_pending`). The C library uses that place only inside its calls for robust
//! mutexes. The witness uses it too. glibc registers the list of a thread when the thread starts,
//! musl at the thread's first robust mutex: so the witness locks one there ([`own_head`]).
//!
//! The id in the word is of the thread's own pid namespace. Only the kernel compares it, with the
//! id of the thread that ends, so the id is never taken for another thread's.
//!
//! Invariants
//! - WITNESS-1 A word that is not 0 and has no bit set is that of a thread which has it in its
//!   place: the place is filled before the word and emptied after it.
//! - WITNESS-2 From [`Witness::begin`] until the witness is dropped its thread runs no code of the
//!   program, which could use the place.
//!
//! Deliberately absent: certainty. The out-of-memory killer can take the memory of the place from a
//! dying process before the kernel has read it, two seconds after the kill (before Linux 5.18 at
//! once, so there is no witness there). So a reader believes a word for [`BELIEVED_MS`] after it
//! was filled, and after that tests the lock.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, compiler_fence};
use std::sync::{Arc, OnceLock};

use super::fork::fork_generation;
use super::layout::PROCESS_LOCK_BASE;
use super::region::Region;
use super::{locks, read_marks};
use crate::error::{Error, Result};
use crate::fault;
use crate::ids::{PROCESS_SLOTS, ProcessIndex};
use crate::sync::mutex::{Identity, Party};

fn lock_byte(index: ProcessIndex) -> i64 {
    PROCESS_LOCK_BASE + i64::from(index.0)
}

/// Returns the process id of the caller.
pub fn pid() -> u32 {
    std::process::id()
}

/// Returns the kernel thread id of the caller; one system call a thread and fork.
pub fn tid() -> u32 {
    thread_local! {
        static KNOWN: Cell<(u64, u32)> = const { Cell::new((u64::MAX, 0)) };
    }
    let forks = fork_generation();
    KNOWN.with(|known| {
        if known.get().0 != forks {
            // SAFETY: gettid has no preconditions.
            known.set((forks, unsafe { libc::gettid() as u32 }));
        }
        known.get().1
    })
}

/// Returns the inode of the caller's pid namespace, unique while the namespace exists; 0 when
/// unknown. A process stays in its namespace. A child may be in another one, so that what a thread
/// knows holds for one process: one that was made without the C library mostly has another id.
pub fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    thread_local! {
        static KNOWN: Cell<(u64, u32, u64)> = const { Cell::new((u64::MAX, 0, 0)) };
    }
    let (forks, own) = (fork_generation(), pid());
    KNOWN.with(|known| {
        let (of_forks, of_pid, inode) = known.get();
        if inode != 0 && (of_forks, of_pid) == (forks, own) {
            return inode;
        }
        let inode = std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino());
        known.set((forks, own, inode));
        inode
    })
}

/// Claims a slot for this process. `nonce` distinguishes this copy of the library from another in
/// the same process. The caller holds the lifecycle lock.
pub fn register(region: &Region, nonce: u64) -> Result<Identity> {
    let slots = &region.layout().processes;
    let (own, namespace) = (pid(), pid_namespace());
    // Relaxed: it changes under the lifecycle lock alone. No process ever used a slot above it, and
    // reading those would only fetch their pages.
    let used = region.control().processes_high_water.load(Relaxed) as usize;
    for (i, slot) in slots.iter().enumerate().take(used) {
        // Equal pids in unknown namespaces prove nothing.
        let same = namespace != 0
            && slot.pid.load(Acquire) == own
            && slot.pid_namespace.load(Relaxed) == namespace;
        let index = ProcessIndex(i as u32);
        if same && slot.nonce.load(Relaxed) != nonce && is_lock_held(region, index) {
            return Err(Error::Misuse(
                "this process already has the database open through another copy of the library; \
                 link or load it once"
                    .into(),
            ));
        }
    }
    for (i, slot) in slots.iter().enumerate() {
        if i >= used {
            region.allocate_process(i)?;
        }
        let index = ProcessIndex(i as u32);
        let free = slot.pid.load(Acquire) == 0;
        if free && locks::try_lock(region.file(), lock_byte(index)).map_err(lock_error)? {
            slot.connections.store(0, Relaxed);
            // SeqCst: before any count of this process, for threads that look for readers. It only
            // grows, under the lifecycle lock.
            if i >= used {
                region.control().processes_high_water.fetch_max(index.0 + 1, SeqCst);
            }
            read_marks::forget(region, index);
            region.log().withdraw_intent(index);
            region.log().end_hold_of(index);
            slot.commit_ts.store(0, Relaxed);
            slot.author.store(0, Relaxed);
            // Release: a thread that reads it takes the previous owner of the slot for dead
            // (PROC-4), which that owner was before the lock was taken.
            let generation = slot.generation.fetch_add(1, AcqRel).wrapping_add(1);
            slot.pid_namespace.store(namespace, Relaxed);
            slot.nonce.store(nonce, Relaxed);
            // Release publishes the fields above together with the pid.
            slot.pid.store(own, Release);
            return Ok(Identity::new(index, generation));
        }
    }
    Err(Error::Full(format!("more than {PROCESS_SLOTS} processes have the database open")))
}

/// Returns the process `me` as a party of the region's mutexes.
pub fn party(region: Arc<Region>, me: Identity) -> Party {
    Party::new(me, move |who| {
        let slot = &region.layout().processes[who.index().0 as usize % PROCESS_SLOTS];
        // Acquire pairs with the AcqRel in `register`.
        Identity::new(who.index(), slot.generation.load(Acquire)) == who
            && is_lock_held(&region, who.index())
    })
}

/// Frees this process's slot.
pub fn unregister(region: &Region, index: ProcessIndex) {
    let slot = &region.layout().processes[index.0 as usize];
    slot.pid.store(0, Release);
    // After a failure the lock ends when the file is closed, which follows.
    let _ = locks::unlock(region.file(), lock_byte(index));
}

fn is_lock_held(region: &Region, index: ProcessIndex) -> bool {
    let slot = &region.layout().processes[index.0 as usize];
    if fault::is_planted("processes.known_by_id") && slot.pid.load(Acquire) == pid() {
        return false;
    }
    // An error of fcntl is no proof of death.
    locks::is_locked_elsewhere(region.file(), lock_byte(index)).unwrap_or(true)
}

/// True unless the process of slot `index` is known to be dead (PROC-2).
pub fn is_alive(region: &Region, own: ProcessIndex, index: ProcessIndex) -> bool {
    own == index || is_other_alive(region, index)
}

fn is_other_alive(region: &Region, index: ProcessIndex) -> bool {
    let slot = &region.layout().processes[index.0 as usize];
    slot.pid.load(Acquire) != 0 && is_lock_held(region, index)
}

/// Returns the slots in use by dead processes other than `own`.
pub fn dead(region: &Region, own: ProcessIndex) -> Vec<ProcessIndex> {
    used(region).filter(|&i| !is_alive(region, own, i)).collect()
}

/// Returns the number of live processes other than `own`.
pub fn live_others(region: &Region, own: ProcessIndex) -> usize {
    used(region).filter(|&i| i != own && is_alive(region, own, i)).count()
}

/// True if any process lives; for a caller without a slot. `readable`: the slots are of this
/// version's layout; else the locks alone count.
pub fn any_alive(region: &Region, readable: bool) -> bool {
    if readable {
        return used(region).any(|i| is_other_alive(region, i));
    }
    let all = PROCESS_SLOTS as i64;
    // An error of fcntl is no proof of death.
    locks::is_range_locked_elsewhere(region.file(), PROCESS_LOCK_BASE, all).unwrap_or(true)
}

fn used(region: &Region) -> impl Iterator<Item = ProcessIndex> + '_ {
    let slots = &region.layout().processes;
    // SeqCst: as `register` raises it, before any count of that process.
    let high_water = region.control().processes_high_water.load(SeqCst);
    (0..high_water.min(PROCESS_SLOTS as u32))
        .map(ProcessIndex)
        .filter(|i| slots[i.0 as usize].pid.load(Acquire) != 0)
}

/// True if a live process has connections. `own`: the slot of this process, if it has one.
pub fn any_connected(region: &Region, own: Option<ProcessIndex>) -> bool {
    let connections =
        |i: ProcessIndex| region.layout().processes[i.0 as usize].connections.load(Acquire);
    let is_alive = |i| own == Some(i) || is_other_alive(region, i);
    used(region).any(|i| connections(i) != 0 && is_alive(i))
}

/// Returns the number of attached connections of all processes.
pub fn connections(region: &Region) -> u32 {
    used(region).map(|i| region.layout().processes[i.0 as usize].connections.load(Relaxed)).sum()
}

/// Counts a connection of this process in (+1) or out (-1).
pub fn count_connection(region: &Region, own: ProcessIndex, delta: i32) {
    let word = &region.layout().processes[own.0 as usize].connections;
    word.fetch_add(delta as u32, AcqRel);
}

/// Frees the slot of a dead process after everything it held was given back. The caller holds the
/// commit mutex, which makes it the only reaper.
pub fn clear_dead(region: &Region, index: ProcessIndex) {
    read_marks::forget(region, index);
    region.log().withdraw_intent(index);
    region.log().end_hold_of(index);
    let slot = &region.layout().processes[index.0 as usize];
    // Release: a thread that reads 0 finds the process's commits settled (VISIBLE-3 in
    // database/visibility.rs).
    slot.commit_ts.store(0, Release);
    slot.pid.store(0, Release);
}

/// A process, for people: its id, and its pid namespace if that is not the reader's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Who {
    /// Process id in its own namespace; 0 for no process.
    pub pid: u32,
    /// Inode of that namespace if it is not the reader's, else 0.
    pub foreign_namespace: u64,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let elsewhere = if self.foreign_namespace == 0 { "" } else { " of another pid namespace" };
        write!(f, "{}{elsewhere}", self.pid)
    }
}

/// Returns the process in slot `index` for a reader in the pid namespace `asking`.
pub fn who(region: &Region, index: ProcessIndex, asking: u64) -> Who {
    let namespace = region.layout().processes[index.0 as usize].pid_namespace.load(Relaxed);
    let is_foreign = namespace != asking;
    Who { pid: pid_of(region, index), foreign_namespace: if is_foreign { namespace } else { 0 } }
}

/// Returns the process id in slot `index`, in the process's own namespace; 0 when the slot is free.
pub fn pid_of(region: &Region, index: ProcessIndex) -> u32 {
    region.layout().processes[index.0 as usize].pid.load(Acquire)
}

fn lock_error(e: std::io::Error) -> Error {
    Error::io("cannot lock the shared memory file", &e)
}

/// How long a reader believes a word by which its thread lives.
pub const BELIEVED_MS: u32 = 1000;
/// Set by the kernel in the word of a thread that has ended (`FUTEX_OWNER_DIED`).
const ENDED: u32 = 0x4000_0000;

/// The head of a thread's list, which the kernel reads (`struct robust_list_head`).
#[repr(C)]
struct Head {
    list: *mut u8,
    futex_offset: libc::c_long,
    list_op_pending: *mut u8,
}

/// State of the thread that filled a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The thread has not ended.
    Lives,
    /// The thread has ended.
    Ended,
    /// The word is not in use.
    Nothing,
}

/// Returns the state of the thread that filled `word`.
pub fn read(word: &AtomicU32) -> Said {
    // Acquire pairs with the Release in `begin`.
    match word.load(Acquire) {
        0 => Said::Nothing,
        w if w & ENDED != 0 => Said::Ended,
        _ => Said::Lives,
    }
}

/// While this value lives, the word shows whether its thread lives.
pub struct Witness {
    head: NonNull<Head>,
    word: NonNull<AtomicU32>,
    /// Keeps the word mapped.
    _region: Arc<Region>,
}

impl Witness {
    /// Fills the word that `word_of` finds in the region, if the kernel watches it. No other thread
    /// fills it (WITNESS-1, WITNESS-2).
    pub fn begin(
        region: &Arc<Region>,
        word_of: impl FnOnce(&Region) -> &AtomicU32,
    ) -> Option<Witness> {
        let head = own_head()?;
        let word = word_of(region);
        let tid = tid();
        // SAFETY: this thread's own head, which lives as long as the thread; a pointer is read.
        let is_free = unsafe { (*head.as_ptr()).list_op_pending.is_null() };
        if !is_free {
            return None;
        }
        // SAFETY: the same head; the C library sets the offset before its first robust mutex and
        // never changes it.
        let offset = unsafe { (*head.as_ptr()).futex_offset };
        let place =
            std::ptr::from_ref(word).cast::<u8>().cast_mut().wrapping_offset(-(offset as isize));
        set_pending(head, place);
        // The kernel reads both in this very thread: their program order is enough.
        compiler_fence(SeqCst);
        // Release: the thread has stored before what names its process.
        word.store(tid, Release);
        Some(Witness { head, word: NonNull::from(word), _region: region.clone() })
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: in the region, which `_region` keeps mapped.
        let word = unsafe { self.word.as_ref() };
        // Release: a thread that finds the word empty sees what this thread has done.
        word.store(0, Release);
        compiler_fence(SeqCst);
        set_pending(self.head, std::ptr::null_mut());
    }
}

fn set_pending(head: NonNull<Head>, place: *mut u8) {
    // SAFETY: this thread's own head; only this thread and, at its end, the kernel use it.
    let field = unsafe { &raw mut (*head.as_ptr()).list_op_pending };
    // SAFETY: writable and aligned, as part of the head.
    unsafe { field.write_volatile(place) };
}

/// Returns the head of this thread's list; one system call a thread and fork, a few with musl.
fn own_head() -> Option<NonNull<Head>> {
    thread_local! {
        static KNOWN: Cell<(u64, *mut Head)> = const { Cell::new((u64::MAX, std::ptr::null_mut())) };
    }
    let forks = fork_generation();
    KNOWN.with(|known| {
        if known.get().0 != forks {
            known.set((forks, ask_for_head()));
        }
        NonNull::new(known.get().1)
    })
}

fn ask_for_head() -> *mut Head {
    if !kernel_supports_witness() {
        return std::ptr::null_mut();
    }
    let head = registered_head();
    if !head.is_null() {
        return head;
    }
    lock_a_robust_mutex();
    registered_head()
}

/// Returns what the kernel knows as the head of this thread's list, or null.
fn registered_head() -> *mut Head {
    let (mut head, mut len) = (std::ptr::null_mut::<Head>(), 0usize);
    // SAFETY: 0 is the calling thread; there is room for both results.
    let rc = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
    if rc == 0 && len == size_of::<Head>() { head } else { std::ptr::null_mut() }
}

/// Locks a robust mutex for a moment: musl then registers the thread's list, until the thread ends
/// or, in a child, fork() returns. Musl does so only for a mutex that processes share.
fn lock_a_robust_mutex() {
    let mut kind = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let mut mutex = MaybeUninit::<libc::pthread_mutex_t>::uninit();
    // SAFETY: there is room for the attributes.
    if unsafe { libc::pthread_mutexattr_init(kind.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: initialised above.
    let robust =
        unsafe { libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST) };
    // SAFETY: initialised above.
    let shared = unsafe {
        libc::pthread_mutexattr_setpshared(kind.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED)
    };
    if (robust, shared) == (0, 0) {
        // SAFETY: there is room for the mutex, and the attributes are initialised.
        let made = unsafe { libc::pthread_mutex_init(mutex.as_mut_ptr(), kind.as_ptr()) };
        // SAFETY: initialised if `made` is 0; nobody else knows it.
        if made == 0 && unsafe { libc::pthread_mutex_lock(mutex.as_mut_ptr()) } == 0 {
            // SAFETY: locked above.
            unsafe { libc::pthread_mutex_unlock(mutex.as_mut_ptr()) };
            // SAFETY: unlocked, and not used again.
            unsafe { libc::pthread_mutex_destroy(mutex.as_mut_ptr()) };
        }
    }
    // SAFETY: initialised above, and not used again.
    unsafe { libc::pthread_mutexattr_destroy(kind.as_mut_ptr()) };
}

/// Prepares this thread, so that [`Witness::begin`] makes no system call.
pub fn prepare() {
    own_head();
}

/// True on Linux 5.18 or later.
fn kernel_supports_witness() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return *known;
    }
    // Not within `get_or_init`: a child made by fork() would wait for ever for a thread of its
    // parent that ran the initialisation.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let is_new = (next(), next()) >= (5, 18);
    *KNOWN.get_or_init(|| is_new)
}

#[cfg(test)]
mod tests {
    use super::super::fork::LockFile;
    use super::*;
    use crate::storage::side;

    fn region(dir: &tempfile::TempDir) -> Arc<Region> {
        let path = dir.path().join("app.db-plait-shm");
        let file = LockFile::open(|| side::open_or_create(&path)).expect("opened");
        let len = file.metadata().expect("open").len();
        Arc::new(Region::map(Arc::new(file), len, &path).expect("mapped"))
    }

    fn word(region: &Region) -> &AtomicU32 {
        &region.layout().slots[7].author
    }

    // holds WITNESS-1
    #[test]
    fn a_word_tells_of_its_thread_while_that_lives_and_when_it_has_ended() {
        if !kernel_supports_witness() {
            eprintln!("skipped: the kernel is too old");
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let region = region(&dir);
        assert_eq!(read(word(&region)), Said::Nothing);
        let witness = Witness::begin(&region, word).expect("the kernel looks after it");
        assert!(Witness::begin(&region, word).is_none(), "the place is taken");
        assert_eq!(read(word(&region)), Said::Lives);
        drop(witness);
        assert_eq!(read(word(&region)), Said::Nothing);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| drop(Witness::begin(&region, word).expect("a witness"))).join()
        });
        ended.expect("no panic");
        assert_eq!(read(word(&region)), Said::Nothing, "it had finished");
        let there = region.clone();
        let ended = std::thread::spawn(move || {
            std::mem::forget(Witness::begin(&there, word));
        });
        ended.join().expect("no panic");
        assert_eq!(read(word(&region)), Said::Ended);
        drop(Witness::begin(&region, word));
        assert_eq!(read(word(&region)), Said::Nothing, "it is used again");
    }

    // holds WITNESS-1
    #[test]
    fn who_knows_of_a_death_by_a_closed_pipe_finds_the_word_changed() {
        if !kernel_supports_witness() {
            eprintln!("skipped: the kernel is too old");
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let region = region(&dir);
        for round in 0..50 {
            let mut ends = [0; 2];
            // SAFETY: room for two descriptors.
            assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
            // SAFETY: the child makes only calls that are allowed after a fork, and ends.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0);
            if pid == 0 {
                let witness = Witness::begin(&region, word);
                let said = u8::from(witness.is_some());
                // SAFETY: one readable byte.
                unsafe { libc::write(ends[1], (&raw const said).cast(), 1) };
                // SAFETY: no preconditions.
                unsafe { libc::raise(libc::SIGKILL) };
            }
            // SAFETY: opened above, and not used again: the child alone has this end now.
            unsafe { libc::close(ends[1]) };
            let mut byte = 0u8;
            // SAFETY: one writable byte.
            assert_eq!(unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) }, 1);
            assert_eq!(byte, 1, "the kernel looks after it");
            // SAFETY: one writable byte. The end of the file is the death of the child.
            assert_eq!(unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) }, 0);
            assert_eq!(read(word(&region)), Said::Ended, "round {round}");
            // SAFETY: opened above.
            unsafe { libc::close(ends[0]) };
            // SAFETY: our own child; the status is not wanted.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
    }
}

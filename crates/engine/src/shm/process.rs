//! Who is alive: one slot and one locked byte per process.
//!
//! Ids of processes and threads stand in shared memory for people to read, and decide nothing: in
//! another pid namespace, a container's for one, they mean somebody else or nobody.
//!
//! Invariants
//! - PROC-1 A process whose slot is in use holds the open-file-description lock on
//!   the slot's byte from before the slot is filled until after it is cleared.
//! - PROC-2 A slot whose byte is not locked belongs to a dead process. A child made
//!   by fork shares the description and gives it up ([`fork`](super::fork)).
//! - PROC-3 A slot is cleared only by its owner or, once found dead, under the commit
//!   mutex after everything the process held was given back.
//! - PROC-4 The generation of a slot grows before it is filled, so that slot and generation together name one process
//!   ([`Identity`]). One whose generation is not the slot's is dead, since it is not in the slot any more.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

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

/// Process id of the caller.
pub fn pid() -> u32 {
    std::process::id()
}

/// Kernel thread id of the caller, asked for once a thread and fork.
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

/// The pid namespace of the caller, as a number that no other has while it exists; 0 where nobody can tell. Asked for
/// anew, since a child may be in another than its parent.
pub fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

/// Claims a slot for this process. `nonce` tells this copy of the library from another one in the same
/// process. The caller holds the lifecycle lock.
pub fn register(region: &Region, nonce: u64) -> Result<Identity> {
    let slots = &region.layout().processes;
    let (own, namespace) = (pid(), pid_namespace());
    // Relaxed: it changes under the lifecycle lock alone. Above it nobody ever was, and a look would only fetch the pages.
    let used = region.control().processes_high_water.load(Relaxed) as usize;
    for (i, slot) in slots.iter().enumerate().take(used) {
        // Where the namespaces are not known equal pids prove nothing.
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
            // SeqCst: before any count of this process, for those who look for readers.
            region.control().processes_high_water.fetch_max(index.0 + 1, SeqCst);
            read_marks::forget(region, index);
            region.log().forget_writer(index);
            slot.commit_ts.store(0, Relaxed);
            slot.author.store(0, Relaxed);
            // Release: whoever reads it takes what had the slot before for dead (PROC-4), which it was before the lock was had.
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

/// The process `me` as the mutexes of the region know it.
pub fn party(region: Arc<Region>, me: Identity) -> Party {
    Party::new(me, move |who| {
        let slot = &region.layout().processes[who.index().0 as usize % PROCESS_SLOTS];
        // Acquire pairs with the AcqRel in `register`.
        Identity::new(who.index(), slot.generation.load(Acquire)) == who
            && is_lock_held(&region, who.index())
    })
}

/// Gives this process's slot back.
pub fn unregister(region: &Region, index: ProcessIndex) {
    let slot = &region.layout().processes[index.0 as usize];
    slot.pid.store(0, Release);
    // A failure leaves the lock to the closing of the file, which follows.
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

/// Slots in use by processes other than `own` that are dead.
pub fn dead(region: &Region, own: ProcessIndex) -> Vec<ProcessIndex> {
    used(region).filter(|&i| !is_alive(region, own, i)).collect()
}

/// Slots in use by live processes other than `own`.
pub fn live_others(region: &Region, own: ProcessIndex) -> usize {
    used(region).filter(|&i| i != own && is_alive(region, own, i)).count()
}

/// True if any process at all is alive, asked before this one has a slot. `readable`: the slots are of this
/// version's layout; else the locks alone count.
pub fn any_alive(region: &Region, readable: bool) -> bool {
    let all = PROCESS_SLOTS as i64;
    // An error of fcntl is no proof of death.
    let locked =
        locks::is_range_locked_elsewhere(region.file(), PROCESS_LOCK_BASE, all).unwrap_or(true);
    locked && (!readable || used(region).any(|i| is_other_alive(region, i)))
}

fn used(region: &Region) -> impl Iterator<Item = ProcessIndex> + '_ {
    let slots = &region.layout().processes;
    // SeqCst: as `register` raises it, before any count of that process.
    let high_water = region.control().processes_high_water.load(SeqCst);
    (0..high_water.min(PROCESS_SLOTS as u32))
        .map(ProcessIndex)
        .filter(|i| slots[i.0 as usize].pid.load(Acquire) != 0)
}

/// Whether a living process has connections. `own`: the slot of this one, if it has one.
pub fn any_connected(region: &Region, own: Option<ProcessIndex>) -> bool {
    let connections =
        |i: ProcessIndex| region.layout().processes[i.0 as usize].connections.load(Acquire);
    let is_alive = |i| own == Some(i) || is_other_alive(region, i);
    used(region).any(|i| connections(i) != 0 && is_alive(i))
}

/// Attached connections of all processes.
pub fn connections(region: &Region) -> u32 {
    used(region).map(|i| region.layout().processes[i.0 as usize].connections.load(Relaxed)).sum()
}

/// Counts a connection of this process in (+1) or out (-1).
pub fn count_connection(region: &Region, own: ProcessIndex, delta: i32) {
    let word = &region.layout().processes[own.0 as usize].connections;
    word.fetch_add(delta as u32, AcqRel);
}

/// Frees the slot of a dead process after everything it held has been given back. The caller holds
/// the commit mutex, which makes it the only reaper.
pub fn clear_dead(region: &Region, index: ProcessIndex) {
    read_marks::forget(region, index);
    region.log().forget_writer(index);
    let slot = &region.layout().processes[index.0 as usize];
    // Release: whoever finds it gone finds settled what it stood for (VISIBLE-3 in database/visibility.rs).
    slot.commit_ts.store(0, Release);
    slot.pid.store(0, Release);
}

/// A process, for people: its id, and whether that is one of another pid namespace than the asker's, where it means
/// somebody else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Who {
    /// As its own namespace knows it; 0 for nobody.
    pub pid: u32,
    /// Inode of that namespace if it is not the asker's, else 0.
    pub foreign_namespace: u64,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let elsewhere = if self.foreign_namespace == 0 { "" } else { " of another pid namespace" };
        write!(f, "{}{elsewhere}", self.pid)
    }
}

/// The process in slot `index`, as one of the pid namespace `asking` sees it.
pub fn who(region: &Region, index: ProcessIndex, asking: u64) -> Who {
    let namespace = region.layout().processes[index.0 as usize].pid_namespace.load(Relaxed);
    let is_foreign = namespace != asking;
    Who { pid: pid_of(region, index), foreign_namespace: if is_foreign { namespace } else { 0 } }
}

/// Process id in slot `index`, 0 when free; one of the process's own namespace.
pub fn pid_of(region: &Region, index: ProcessIndex) -> u32 {
    region.layout().processes[index.0 as usize].pid.load(Acquire)
}

fn lock_error(e: std::io::Error) -> Error {
    Error::io("cannot lock the shared memory file", &e)
}

//! A session whose processes are gone, or are about to leave, and whose log is lost or has failed:
//! what only shared memory has goes into the base.
//!
//! The log may be removed, moved, replaced or cut short by somebody who takes it for a temporary
//! file, or be on a disk that fails, while shared memory survives. Memory alone then says what was
//! committed: the memtables have everything that is not in the base, except the last frame of the
//! ring, whose author may have been killed before it inserted the rows.
//!
//! No other process is there (lifecycle lock, no living process), so memory is read as it was left,
//! and nothing in it is repaired. The steps:
//! - One transaction of the base takes all rows of generations that the base lacks, the stamp of
//!   the active generation, and the end of the fence.
//! - The WAL of the base is brought into the file.
//! - What is left of the log is removed, as for any resting base (session.rs).
//!
//! A crash after any of them leaves a resting base, and memory of which nothing is newer: a new
//! session begins.
//!
//! Invariants
//! - RESTORE-1 Until the transaction is committed nothing has changed, and it is tried again, after
//!   a failure too. After a power cut before its commit the base is fenced and has no log, which is
//!   refused; after one behind its commit the base is complete.
//! - RESTORE-2 With the stamp everything that any copy of this log can hold counts as merged: none
//!   of it is of a newer generation than the active one.
//! - RESTORE-4 A prepared exclusive transaction that was committed, and is not in the base, goes
//!   there with its pages, in the same transaction.
//! - RESTORE-3 An exclusive transaction that its author did not finish is buried: this transaction
//!   overwrites the same frames of the WAL (orphans.rs).

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::moment::newest;
use super::{Decided, Redone, remove_log, rest};
use crate::base::{Base, BaseHeader};
use crate::crash_point;
use crate::error::{Error, Result};
use crate::ids::{Generation, Lsn};
use crate::log::{LogFile, damaged_ring};
use crate::memtable::{EntryKind, Memtable};
use crate::shm::layout::{ARENAS, generation};
use crate::shm::region::Region;
use crate::storage::names::log_path;
use crate::storage::os::OsStorage;

/// True if the session in `region` needs nothing more: the base has everything of it and is at
/// rest.
pub(crate) fn has_ended(region: &Region, header: &BaseHeader) -> bool {
    let c = region.control();
    header.marked
        && !header.fenced
        && header.salt == c.salt.load(Relaxed)
        && header.generation.get() >= c.base_generation.load(Relaxed)
        && !region.log().is_in_doubt()
        && !has_unmerged(region, header.generation)
}

/// True if the base has everything of the session in `region`, which had lowered the fence, and is
/// still fenced.
pub(super) fn has_it_all(region: &Region, header: &BaseHeader) -> bool {
    let unfenced = BaseHeader { fenced: false, ..*header };
    header.fenced && has_ended(region, &unfenced)
}

/// Removes the log of the session in `region`, or what is left of it, but no other file in its
/// place. `held`: the log as this process has it open.
pub(crate) fn remove_own_log(region: &Region, path: &Path, held: Option<&LogFile>) -> Result<()> {
    let log = log_path(path);
    let is_held = held.is_some_and(|held| held.is_whole(0));
    // If no process has the log open, another file may have its inode number.
    let is_own = is_held || LogFile::is_of(&OsStorage, &log, region.log().salt())?;
    remove_log(path, is_own.then(|| region.log().file_identity()))
}

/// Returns arena and number of the generations that take commits, or have taken them, and that a
/// base complete through `merged` lacks; oldest first. A generation that a killed process was about
/// to begin is left out: it has no commits.
fn unmerged(region: &Region, merged: Generation) -> Vec<(usize, u32)> {
    let c = region.control();
    let active = newest(region.layout()).get();
    let mut found: Vec<_> = (0..ARENAS)
        .filter(|&i| {
            let state = c.generations[i].state.load(Relaxed);
            matches!(state, generation::ACTIVE | generation::FROZEN)
        })
        .map(|i| (i, c.generations[i].number.load(Acquire)))
        .filter(|&(_, number)| number > merged.get() && number <= active)
        .collect();
    found.sort_by_key(|&(_, number)| number);
    found
}

/// True if memory has commits that a base complete through `merged` lacks.
pub(crate) fn has_unmerged(region: &Region, merged: Generation) -> bool {
    let c = region.control();
    let is_applied = c.applied_lsn.load(Relaxed) == region.log().log_end().get();
    unmerged(region, merged).iter().any(|&(i, number)| {
        let is_active = number == newest(region.layout()).get();
        c.generations[i].max_ts.load(Relaxed) > 0 || (is_active && !is_applied)
    })
}

/// Returns what the last frame adds to the memtables: the frame of a killed author, or a prepared
/// one.
fn left_in_ring(region: &Region, path: &Path, base: &mut dyn Base) -> Result<Decided> {
    let c = region.control();
    let end = region.log().log_end();
    let mut from = c.applied_lsn.load(Relaxed);
    if c.prepared_end.load(Relaxed) == end.get() {
        from = from.min(c.prepared_start.load(Relaxed));
    }
    let mut redone = Redone::default();
    region
        .ring()
        .each_frame_left(Lsn::new(from), end, |frame| redone.note(frame))
        .map_err(|(at, why)| damaged_ring(at, why))?;
    redone.decided(path, &base.header()?)
}

/// Brings everything that memory has into the base, and the base to rest. Only then may the log, or
/// the file in its place, be removed.
///
/// # Errors
/// Nothing has changed (RESTORE-1).
pub(crate) fn restore(region: &Region, path: &Path, base: &mut dyn Base) -> Result<()> {
    region.reach_used()?;
    let c = region.control();
    let last = left_in_ring(region, path, base)?;
    crash_point!("restore.begun");
    rest(base, newest(region.layout()), |base| {
        let is = base.header()?;
        let is_ours = is.fenced && is.salt == c.salt.load(Relaxed);
        if !is_ours || is.generation.get() < c.base_generation.load(Relaxed) {
            return Err(Error::Replaced(path.to_owned()));
        }
        let tables: Vec<Memtable> = unmerged(region, is.generation)
            .into_iter()
            .map(|(arena, _)| region.memtable(arena))
            .collect::<Result<_>>()?;
        for (i, table) in tables.iter().enumerate() {
            put_table(base, table, &tables[i + 1..])?;
        }
        last.put(path, base)?;
        crash_point!("restore.applied");
        Ok(())
    })?;
    crash_point!("restore.rested");
    Ok(())
}

/// Puts the newest version of each key into the base, unless a newer generation has the key.
fn put_table(base: &mut dyn Base, table: &Memtable, newer: &[Memtable]) -> Result<()> {
    for node in table.iter_newest() {
        let (root, key) = (node.root(), node.key());
        if newer.iter().any(|table| table.newest_ts(root, key).is_some()) {
            continue;
        }
        match node.kind() {
            EntryKind::Put => base.put(root, key, node.rec())?,
            EntryKind::Tombstone => base.delete(root, key, node.rec())?,
        }
    }
    Ok(())
}

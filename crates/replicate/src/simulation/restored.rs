//! What a restore says of itself, compared with what it made and with what was shipped.

use super::objects::Objects;
use super::oracle::Oracle;
use super::replica::Disk;
use crate::ids::CommitTs;
use crate::record::header_of;
use crate::restore::{Restored, Stop};

/// Checks a restore to a record or a time (CHAIN-7).
pub fn check(oracle: &Oracle, stop: Stop, restored: &Restored, disk: &Disk, objects: &Objects) {
    let who = format!("a restore to {stop:?}, record {}", restored.record);
    let mut there = disk.position();
    if there.commit == CommitTs(0) {
        // A base has no number; the record through which it was restored may have one.
        there.commit = match shipped_commit(restored, objects).filter(|_| !oracle.is_damaged()) {
            Some(commit) => commit,
            None => restored.position.commit,
        };
    }
    if restored.position != there {
        oracle.violate(format!("{who} says {:?}, and is at {there:?}", restored.position));
    }
    let (rows, pages) = disk.digests();
    let is_whole = disk.applied().is_some_and(|applied| applied.number >= applied.as_of);
    if is_whole {
        oracle.check(&who, &disk.position(), rows, Some(pages).filter(|_| !restored.differs));
    }
}

/// The number of the last commit through the record, as it was shipped.
fn shipped_commit(restored: &Restored, objects: &Objects) -> Option<CommitTs> {
    let header = header_of(objects.ledger().get(&restored.record)?).ok()?;
    Some(header.position.commit)
}

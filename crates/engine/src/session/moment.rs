//! Checks that the files left after the death of all processes are of one moment: older copies may
//! have been put among them.
//!
//! - The base is older, or its WAL is, or is gone: the log's note of the base shows it, or memory's
//!   generation of the base. The opening is refused.
//! - Memory is older: the log has frames past its end, or the base includes a generation to which
//!   it still commits. It counts for nothing, and the log is recovered from.
//! - The log is older: it lacks what memory has written. What memory has is restored (restore.rs).
//!
//! Killed processes leave none of these states, and a power cut does not leave the first.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::base::BaseHeader;
use crate::error::Result;
use crate::ids::{Generation, SlotIndex};
use crate::log::{LogError, LogFile, LogScan, Moment};
use crate::shm::layout::{ARENAS, Layout, TxnSlot, owes, owner, txn_state};
use crate::storage::names::log_path;
use crate::storage::os::OsStorage;

/// True if an exclusive transaction is running, or remains to be settled. Needs no lock: it trusts
/// no word of the shared memory.
fn is_exclusive_left(layout: &Layout) -> bool {
    let word = layout.control.merge_owner.load(Acquire);
    let slot = SlotIndex::from_word(word).and_then(|slot| layout.slots.get(slot.0 as usize));
    let is_its = |s: &TxnSlot| {
        s.state.load(Relaxed) == txn_state::EXCLUSIVE || s.owes.load(Acquire) & owes::EXCLUSIVE != 0
    };
    word == owner::UNSETTLED_EXCLUSIVE || slot.is_some_and(is_its)
}

/// Returns the generation that takes commits.
pub(crate) fn newest(layout: &Layout) -> Generation {
    let c = &layout.control;
    let active = c.active_arena.load(Acquire) as usize % ARENAS;
    Generation::new(c.generations[active].number.load(Acquire))
}

/// Fails if the base lacks what the log next to it says was in it.
pub(crate) fn refuse_older_base(path: &Path, header: &BaseHeader) -> Result<()> {
    let log = log_path(path);
    // The caller that needs the log reports why it cannot be read.
    let noted = LogScan::noted(&OsStorage, &log, header.salt).unwrap_or(Generation::ZERO);
    if header.marked && noted > header.generation {
        let (path, base) = (log, header.generation);
        return Err(LogError::OlderBase { path, noted, base }.into());
    }
    Ok(())
}

/// True if shared memory is an older copy of itself: the base, which has this salt and includes
/// everything through `merged`, or the log at `log` is ahead of it.
pub fn is_outdated(layout: &Layout, log: &Path, salt: u32, merged: Generation) -> bool {
    if salt != layout.control.salt.load(Relaxed) {
        // Memory of another session is found elsewhere.
        return false;
    }
    let active = newest(layout);
    // Only an exclusive transaction stamps the active generation, and the next generation begins
    // before another transaction commits.
    if merged > active || (merged == active && !is_exclusive_left(layout)) {
        return true;
    }
    let compared = layout.log.compare(&OsStorage, log, merged);
    compared.is_ok_and(|is| is == Moment::LogIsNewer)
}

/// True if the file under the log's name has everything that memory has written.
pub fn has_a_copy(layout: &Layout, log: &Path, merged: Generation) -> bool {
    layout.log.compare(&OsStorage, log, merged).is_ok_and(|is| is == Moment::Same)
}

/// True if the log is at its path, as the session in shared memory left it.
pub fn has_its_log(layout: &Layout, log: &Path, merged: Generation) -> bool {
    let shared = &layout.log;
    if shared.poisoned().is_some() {
        // A log that failed may be there, or be there again, but need not have all that was to be
        // written to it.
        return false;
    }
    let compared = LogFile::open_read_only(&OsStorage, log, shared.salt()).and_then(|file| {
        let is_it = file.identity().is_ok_and(|is| is == shared.file_identity());
        if !is_it || !file.is_whole(shared.file_bytes()) {
            return Ok(false);
        }
        let moment = shared.compare(&OsStorage, log, merged)?;
        Ok(moment == Moment::Same)
    });
    match compared {
        Ok(is) => is,
        // The caller that needs the log reports the error.
        Err(LogError::Io { .. }) => true,
        Err(_) => false,
    }
}

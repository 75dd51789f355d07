//! Whether what stands beside each other after the death of all processes is of one moment, or older copies were put among it.
//!
//! | older | known by | then |
//! |---|---|---|
//! | the base, or its WAL, or it is gone | the log's note of the base; memory's generation of the base | refused |
//! | memory | the log has frames behind its end; the base includes a generation that it still commits to | it counts for nothing, and the log is recovered from |
//! | the log | it lacks what memory has written | what memory has is restored (restore.rs) |
//!
//! Killed processes leave none of these states, and neither does a power cut leave the first.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::base::BaseHeader;
use crate::error::Result;
use crate::ids::{Generation, SlotIndex};
use crate::log::{LogError, LogFile, LogScan, Moment};
use crate::shm::layout::{ARENAS, Layout, TxnSlot, owes, owner, txn_state};
use crate::storage::names::log_path;
use crate::storage::os::OsStorage;

/// Whether an exclusive transaction is under way, or is to be settled, in shared memory that may be looked at by nobody's leave.
fn is_exclusive_left(layout: &Layout) -> bool {
    let word = layout.control.merge_owner.load(Acquire);
    let slot = SlotIndex::from_word(word).and_then(|slot| layout.slots.get(slot.0 as usize));
    let is_its = |s: &TxnSlot| {
        s.state.load(Relaxed) == txn_state::EXCLUSIVE || s.owes.load(Acquire) & owes::EXCLUSIVE != 0
    };
    word == owner::UNSETTLED_EXCLUSIVE || slot.is_some_and(is_its)
}

/// The generation that takes commits.
pub(crate) fn newest(layout: &Layout) -> Generation {
    let c = &layout.control;
    let active = c.active_arena.load(Acquire) as usize % ARENAS;
    Generation::new(c.generations[active].number.load(Acquire))
}

/// Fails if the base lacks what the log beside it says was in it.
pub(crate) fn refuse_older_base(path: &Path, header: &BaseHeader) -> Result<()> {
    let log = log_path(path);
    // What cannot be read is found out by who needs it.
    let noted = LogScan::noted(&OsStorage, &log, header.salt).unwrap_or(Generation::ZERO);
    if header.marked && noted > header.generation {
        let (path, base) = (log, header.generation);
        return Err(LogError::OlderBase { path, noted, base }.into());
    }
    Ok(())
}

/// Whether shared memory was left behind by the base, which has this salt and includes everything through `merged`, or by the log
/// at `log`: it is an older copy of itself.
pub fn is_outdated(layout: &Layout, log: &Path, salt: u32, merged: Generation) -> bool {
    if salt != layout.control.salt.load(Relaxed) {
        // Of another session; that is found out elsewhere.
        return false;
    }
    let active = newest(layout);
    // Only an exclusive transaction stamps it, and the next generation begins before anybody else commits.
    if merged > active || (merged == active && !is_exclusive_left(layout)) {
        return true;
    }
    let compared = layout.log.compare(&OsStorage, log, merged);
    compared.is_ok_and(|is| is == Moment::LogIsNewer)
}

/// Whether what stands under the log's name is a copy of it, with everything that memory has written.
pub fn has_a_copy(layout: &Layout, log: &Path, merged: Generation) -> bool {
    layout.log.compare(&OsStorage, log, merged).is_ok_and(|is| is == Moment::Same)
}

/// Whether the log stands where it was left by the session in shared memory, as it was.
pub fn has_its_log(layout: &Layout, log: &Path, merged: Generation) -> bool {
    let shared = &layout.log;
    if shared.poisoned().is_some() {
        // It may be there, or have come back, but not everything that was to be written to it has reached it for sure.
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
        // Whoever needs it finds out.
        Err(LogError::Io { .. }) => true,
        Err(_) => false,
    }
}

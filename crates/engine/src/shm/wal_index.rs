//! Which WAL-index (`-shm`) the members of a session have open: shared memory remembers its inode.
//!
//! SQLite makes that file anew for whoever finds none. If somebody removes it under living programs, there are two of them for one WAL: two
//! programs write frames over each other's, and a checkpoint brings a part. So there is to be one.
//!
//! Removing it is right where nobody has it open: the last of SQLite's connections to close does, in whatever program, under a lock on the
//! database file that it gets only if nobody has the shared one, which goes with an open WAL. So another inode alone means nothing.
//! Another one while a member has the first open does.
//!
//! Invariants
//! - I1 A connection is counted (`ProcessSlot::connections`) only while its handle has its WAL open: it attaches behind a transaction that
//!   has opened it, and ends ([`attach::end`](crate::attach::end)) before it closes it. So while one is counted nobody removes the file by right.
//! - I2 The inode is that of all who are counted. Who comes with another one puts his in its place if nobody is counted, and is
//!   refused otherwise: when he attaches, and again in the first transaction on each WAL that he opens, since another may have come between.
//! - I3 Hidden connections, which are not counted, are asked in the same way before they write, checkpoint or raise the fence.
//!
//! Deliberately absent: the inode is never forgotten, for nothing but a look at who is counted says whether it still means anything. A process
//! that is killed loses its locks one after the other: for a moment it may be counted without SQLite's, and who is refused looks
//! again for as long as a death may take. A handle without an index (0), which wants the file for itself alone, is
//! asked nothing and is counted for a moment. A member that is told of another index has closed its own, and is counted until its handle is closed.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use super::process;
use super::region::Region;
use crate::error::{Error, Result};
use crate::ids::ProcessIndex;

/// Whether a member of the session has another WAL-index than this one open, 0 standing for none. `own`: the slot of this process, if it has one.
pub fn is_strange(region: &Region, own: Option<ProcessIndex>, inode: u64) -> bool {
    // Relaxed: the number is all that is told. Whoever has stored it was counted later, which is read behind it.
    let known = region.header().wal_index_ino.load(Relaxed);
    known != inode && known != 0 && inode != 0 && process::any_connected(region, own)
}

/// I2, of who is about to be counted.
///
/// # Errors
/// `StrangeIndex`.
pub fn agree(
    region: &Region,
    own: Option<ProcessIndex>,
    inode: u64,
    database: &Path,
) -> Result<()> {
    if is_strange(region, own, inode) {
        return Err(Error::StrangeIndex(database.to_owned()));
    }
    if inode != 0 {
        region.header().wal_index_ino.store(inode, Relaxed);
    }
    Ok(())
}

//! What a deleted database has left beside the name that it had.
//!
//! Programs delete a database file and make a new one of the same name, with a connection to the old one still open somewhere, or after
//! a process that never closed its own. SQLite goes on there: it removes the WAL of an empty file. The log goes by the name
//! as well, so:
//!
//! | beside a new, empty file | done |
//! |---|---|
//! | a log that this process uses for a file without any name | the names beside it are let go of |
//! | a log that others use | refused (`session::refuse_used_log`) |
//! | a log that nobody uses, when the new file is to be concurrent | it gets another name (`session/aside.rs`) |
//!
//! Invariants
//! - DELETED-1 Names are let go of only while the file at the path is empty, which the caller keeps so by a lock on it: then nothing
//!   beside it is its own. SQLite concludes the same.
//! - DELETED-2 And only if the database that they are of has no name left, by the count in its inode: nobody comes to need them any more. Who has it open goes on
//!   with the files that they were names of, to read and to copy what is there; nothing is opened, claimed or removed by the path any more (`Database::check_place`).
//! - DELETED-3 A log of which that is not known is never removed. It gets another name, by one who has claimed it (ASIDE-1 in `session/aside.rs`).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::session;
use crate::shm::fork::OWN_DESCRIPTORS;
use crate::shm::region::BaseIdentity;
use crate::storage::Storage as _;
use crate::storage::names::suffixed;
use crate::storage::os::OsStorage;

/// Whether a file that this process has open has lost its last name; false of one that it has not open. Looks at every descriptor of the process, which
/// is well for a question that is asked where a new file stands in the place of one that was deleted (DELETED-1).
pub(crate) fn is_nameless(file: BaseIdentity) -> bool {
    let Ok(open) = std::fs::read_dir(OWN_DESCRIPTORS) else { return false };
    open.flatten()
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .any(|meta| (meta.dev(), meta.ino()) == (file.dev, file.ino) && meta.nlink() == 0)
}

fn is_empty(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0)
}

/// Looks at what stands beside a file that is not concurrent and on which the caller has a lock. `let_go` removes the names of what this
/// process uses for one that was deleted; true if there was any.
///
/// # Errors
/// `CantOpen` if processes use a log there for the database file that stood here before.
pub(crate) fn check_beside(path: &Path, let_go: impl Fn(&Path) -> bool) -> Result<()> {
    if is_empty(path) && let_go(path) {
        // SQLite's own, of the same database (DELETED-1).
        remove_wal(path)?;
    }
    session::refuse_used_log(path)
}

/// Removes SQLite's WAL of another file than this one, and its index.
pub(crate) fn remove_wal(path: &Path) -> Result<()> {
    for suffix in ["-wal", "-shm"] {
        let path = suffixed(path, suffix);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("cannot remove {}", path.display()), &e));
            }
            _ => {}
        }
    }
    OsStorage
        .sync_dir_of(path)
        .map_err(|e| Error::io(format!("cannot sync the folder of {}", path.display()), &e))
}

//! Who uses a database without a session: a connection that is alone, or a program in WAL mode. Told by their locks on SQLite's WAL-index.

use std::io::{self, ErrorKind};
use std::path::Path;

use plait_engine::shm::locks;
use plait_engine::storage::side;

/// The byte of the WAL-index that who writes to the WAL has locked (SQLite's `WAL_WRITE_LOCK`).
const WRITE_LOCK: i64 = 120;

/// What their locks tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lone {
    /// A connection of ours has the database open, alone or in a session.
    pub is_claimed: bool,
    /// Somebody has a lock: as long as a program has the database open in WAL mode it has one.
    pub is_open: bool,
    /// The process that is in a transaction which writes; 0 for one whose number means nothing here.
    pub writer: Option<u32>,
}

impl Lone {
    /// Asks about the WAL-index at this path.
    pub fn of(wal_index: &Path) -> io::Result<Lone> {
        let file = match side::open(wal_index, false) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Lone::default()),
            opened => opened?,
        };
        Ok(Lone {
            is_claimed: locks::is_claimed_elsewhere(&file)?,
            // A length of 0 reaches to the end of all files.
            is_open: locks::is_range_locked_elsewhere(&file, 0, 0)?,
            writer: locks::holder_elsewhere(&file, WRITE_LOCK)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_wal_index_nobody_has_it_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db-shm");
        assert_eq!(Lone::of(&path).unwrap(), Lone::default());
        std::fs::write(&path, b"").unwrap();
        assert_eq!(Lone::of(&path).unwrap(), Lone::default());
    }

    #[test]
    fn who_writes_has_a_lock_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db-shm");
        let file = std::fs::File::create(&path).unwrap();
        assert!(locks::try_lock(&file, WRITE_LOCK + 8).unwrap());
        let open = Lone { is_open: true, ..Lone::default() };
        assert_eq!(Lone::of(&path).unwrap(), open);
        assert!(locks::try_lock(&file, WRITE_LOCK).unwrap());
        assert_eq!(Lone::of(&path).unwrap(), Lone { writer: Some(0), ..open }, "no process's own");
    }
}

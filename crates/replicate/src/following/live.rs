//! The database of a follower, as a member of its session.

#![allow(
    unsafe_code,
    reason = "one call of the library inside this program takes a raw connection"
)]

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use crate::holders;
use crate::record::Frames;
use plait_client::{BUSY, CORRUPT, Connection, Library, NOTADB, OpenFlags, SqlError, Value};
use plait_engine::database::StillFollows;
use plait_engine::follower::Follower;
use plait_engine::ids::Lsn;
use plait_engine::ship::Shipper;
use plait_engine::storage::names::unwritable;
use plait_engine::sync::wait::Wait;

/// Longest wait for a lock of the database.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest wait to join: then it is said for whom, and tried again.
const TO_JOIN: Duration = Duration::from_secs(5);

/// A database that programs read, and this process writes.
pub struct Live {
    follower: Follower,
    // Keeps the process a member of the session.
    connection: Connection,
    /// Device and inode.
    file: (u64, u64),
}

/// Why a database cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unjoined {
    /// It was promoted in this session (REPLICA-5).
    Promoted,
    /// The file and those beside it do not belong together.
    Apart,
    /// In words.
    Failed(String),
}

impl Unjoined {
    fn of(database: &Path, error: &SqlError) -> Unjoined {
        let (said, shown) = (error.said(), database.display());
        let whose = if error.code == BUSY { holders::named(database) } else { String::new() };
        // What the library advises then is refused for a replica.
        match said.contains("--accept-base") {
            true => Unjoined::Apart,
            false => Unjoined::Failed(format!("cannot open {shown}: {said}{whose}")),
        }
    }
}

impl From<String> for Unjoined {
    fn from(why: String) -> Unjoined {
        Unjoined::Failed(why)
    }
}

/// The file that may not be written, to go on behind other words; nothing if there is none.
fn for_want_of_rights(database: &Path) -> String {
    let file = unwritable(database);
    file.map_or_else(String::new, |file| format!(": this user may not write {}", file.display()))
}

impl Live {
    /// Joins the session of a database, to apply frames of the session with this salt, behind one with
    /// this checksum. Nobody else writes it from then on (REPLICA-3), nor does this once `still` says that another
    /// follower may have it (REPLICA-6).
    ///
    /// # Errors
    /// [`Unjoined`].
    pub fn join(
        database: &Path,
        behind: (u32, u32),
        still: StillFollows,
    ) -> Result<Live, Unjoined> {
        let shown = database.display();
        let path =
            std::fs::canonicalize(database).map_err(|e| format!("cannot open {shown}: {e}"))?;
        let there = || named(&path).ok_or_else(|| format!("{shown} was removed"));
        let file = there()?;
        let open = || {
            let connection = Library::linked().open_with(&path, OpenFlags::ReadWrite)?;
            // SAFETY: opened just now, by the library inside this program.
            unsafe { plait_sqlite::allow_replica_writes(connection.raw()) };
            connection.busy_timeout(TO_JOIN)?;
            // Asked for what a member of the session alone can tell, it becomes one.
            connection.query("SELECT count(*) FROM plait_status")?;
            connection.query("SELECT count(*) FROM sqlite_schema")?;
            connection.busy_timeout(PATIENCE)?;
            Ok::<_, SqlError>(connection)
        };
        let connection = open().map_err(|e| Unjoined::of(&path, &e))?;
        // A replica that was made before its file could say so, or was killed before it did.
        plait_sqlite::heed_mark(&path).map_err(|why| {
            format!("cannot make {shown} read-only for others: {why}{}", for_want_of_rights(&path))
        })?;
        let joined = Shipper::joined(&path).ok_or_else(|| match unwritable(&path) {
            Some(_) => format!("cannot write {shown}{}", for_want_of_rights(&path)),
            None => format!("{shown} is not in concurrent mode any more: begin anew"),
        })?;
        // From here on nobody else writes it, whenever they opened it.
        let mut wait = Wait { timeout: PATIENCE, busy: None, interrupted: &mut || false };
        let follower = Follower::new(joined.clone(), behind, still, &mut wait);
        let follower = follower.map_err(|e| match joined.was_promoted() {
            true => Unjoined::Promoted,
            false => format!("cannot keep others from writing {shown}: {e}").into(),
        })?;
        // Which of two was opened, where another one has come meanwhile, nobody knows.
        match there()? == file {
            true => Ok(Live { follower, connection, file }),
            false => Err(Unjoined::Apart),
        }
    }

    /// The change counter of page 1, which no transaction lowers but a copy.
    ///
    /// # Errors
    /// In words.
    pub fn counter(&self) -> Result<u32, String> {
        let asked = "SELECT hex(substr(data, 25, 4)) FROM sqlite_dbpage WHERE pgno = 1";
        let text = self.connection.text(asked).map_err(|e| e.said())?;
        u32::from_str_radix(&text, 16).map_err(|e| e.to_string())
    }

    /// Brings all that is committed into the file, and onto the disk; false if a reader holds it back.
    ///
    /// # Errors
    /// In words.
    pub fn rests(&self) -> Result<bool, String> {
        let rows = self.connection.query("PRAGMA wal_checkpoint(PASSIVE)").map_err(|e| e.said())?;
        Ok(rows.first().is_some_and(|row| {
            matches!(row[..], [Value::Integer(0), Value::Integer(all), Value::Integer(done)] if all == done)
        }))
    }

    /// Something is committed that is not in the base yet.
    ///
    /// # Errors
    /// In words.
    pub fn has_unmerged(&self) -> Result<bool, String> {
        let bytes = "SELECT value FROM plait_status WHERE name='memtable_bytes'";
        self.connection.integer(bytes).map(|bytes| bytes > 0).map_err(|e| e.said())
    }

    /// It has tables, or other things of a schema.
    ///
    /// # Errors
    /// In words.
    pub fn has_tables(&self) -> Result<bool, String> {
        let count = self.connection.integer("SELECT count(*) FROM sqlite_schema");
        count.map(|count| count > 0).map_err(|e| e.said())
    }

    /// A file has tables, or is no database.
    ///
    /// # Errors
    /// [`Unjoined`]: that cannot be told now.
    pub fn is_taken(database: &Path) -> Result<bool, Unjoined> {
        let count = || {
            let connection = Library::linked().open_with(database, OpenFlags::ReadOnly)?;
            connection.busy_timeout(TO_JOIN)?;
            connection.integer("SELECT count(*) FROM sqlite_schema")
        };
        match count() {
            Ok(count) => Ok(count > 0),
            Err(SqlError { code: NOTADB | CORRUPT, .. }) => Ok(true),
            Err(e) => Err(Unjoined::of(database, &e)),
        }
    }

    /// The session of a database says that it is a replica (REPLICA-3), with a mark or without.
    pub fn is_told_of_follower(database: &Path) -> bool {
        let joined = || {
            let connection = Library::linked().open_with(database, OpenFlags::ReadOnly)?;
            connection.busy_timeout(TO_JOIN)?;
            // Asked for what a member of the session alone can tell, it becomes one.
            connection.query("SELECT count(*) FROM plait_status")?;
            connection.query("SELECT count(*) FROM sqlite_schema")?;
            Ok::<_, SqlError>(connection)
        };
        let Ok(_member) = joined() else { return false };
        Shipper::joined(database).is_some_and(|session| session.is_followed())
    }

    /// The file that had the name all the while that this joined: device and inode.
    pub fn file(&self) -> (u64, u64) {
        self.file
    }

    /// It was promoted in this session (REPLICA-5).
    pub fn was_promoted(&self) -> bool {
        self.follower.database().was_promoted()
    }

    /// Does what no promotion may come between; `None` if there was one (REPLICA-5).
    ///
    /// # Errors
    /// In words.
    pub fn unless_promoted<T>(&self, does: impl FnOnce() -> T) -> Result<Option<T>, String> {
        self.follower.database().unless_promoted(does).map_err(|e| e.to_string())
    }

    /// Makes an empty file a database that [`Live::join`] can join, with the pages' size of another one.
    ///
    /// # Errors
    /// In words.
    pub fn found(database: &Path, like: &Path) -> Result<(), String> {
        let made = Library::linked().open_with(like, OpenFlags::ReadWrite).and_then(|like| {
            let page_size = like.integer("PRAGMA page_size")?;
            let connection = Library::linked().open_with(database, OpenFlags::ReadWrite)?;
            // SAFETY: opened just now, by the library inside this program.
            unsafe { plait_sqlite::allow_replica_writes(connection.raw()) };
            connection.busy_timeout(PATIENCE)?;
            connection
                .execute(&format!("PRAGMA page_size={page_size}; PRAGMA journal_mode=concurrent"))
        });
        made.map_err(|e| format!("cannot begin {}: {}", database.display(), e.said()))
    }

    /// Takes frames; nothing is committed yet.
    ///
    /// # Errors
    /// In words.
    pub fn take(&mut self, frames: &Frames) -> Result<(), String> {
        let from = Lsn::new(frames.from.0);
        self.follower.take(&frames.bytes, from).map_err(|e| e.to_string())
    }

    /// Forgets what was taken, and goes on behind a frame with this checksum of the session with this salt.
    pub fn forget(&mut self, behind: (u32, u32)) {
        self.follower.forget(behind);
    }

    /// Commits what was taken, on disk when it returns.
    ///
    /// # Errors
    /// In words.
    pub fn commit(&mut self) -> Result<(), String> {
        let mut wait = Wait { timeout: PATIENCE, busy: None, interrupted: &mut || false };
        self.follower.commit(&mut wait).map_err(|e| e.to_string())
    }

    /// Puts the pages of a file at rest in the place of the database's own, in one transaction.
    ///
    /// # Errors
    /// In words.
    pub fn copy_from(&self, made: &Path) -> Result<(), String> {
        let said =
            |e: SqlError| format!("cannot take the pages of {}: {}", made.display(), e.said());
        let source = Library::linked().open_with(made, OpenFlags::ReadOnly).map_err(said)?;
        let size = |of: &Connection| of.integer("PRAGMA page_size").map_err(said);
        let (theirs, own) = (size(&source)?, size(&self.connection)?);
        if theirs != own {
            return Err(format!(
                "the primary's pages have {theirs} bytes now, and those here {own}: end this, remove \
                 the database and the files beside it, and begin anew"
            ));
        }
        // SQLite has no words for what the session refuses.
        let refused = || self.follower.database().refuse_follower().err();
        source
            .backup_to(&self.connection)
            .map_err(|e| refused().map_or_else(|| said(e), |why| why.to_string()))
    }
}

fn named(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_by_what_is_in_it_and_by_no_other_trouble() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("replica.db");
        std::fs::write(&file, b"").expect("a file");
        assert_eq!(Live::is_taken(&file), Ok(false));
        std::fs::write(&file, [7; 4096]).expect("a file");
        assert_eq!(Live::is_taken(&file), Ok(true));
        // What cannot be opened now may be empty.
        let refused = Live::is_taken(dir.path());
        assert!(matches!(refused, Err(Unjoined::Failed(_))), "{refused:?}");
    }
}

//! What stands on disk and who holds what at one moment: whether anything moved while a database was looked at.
//!
//! A look takes the files one after the other, without a lock, so that it is in nobody's way and needs no right to write. Beside
//! programs that open, write and close it may have the database file of one session and the log of the next. So what
//! looks amiss is believed only if nothing moved meanwhile:
//!
//! - MOMENT-1 Whoever begins, recovers or ends a session holds the lifecycle lock. Moments at which it was held prove nothing.
//! - MOMENT-2 While processes are members of a session, or have its log, the contents of the files change, but not which files these are,
//!   nor the mark of the session in the database file.
//! - MOMENT-3 While there are none, only who works alone writes, to the database file and the WAL. The time of change of a file
//!   tells of each write but one in the same tick of the system's clock as the last: so a file that changed less than
//!   [`PAUSE`] ago is not at rest, and two moments are that far apart.
//! - MOMENT-4 Who the members are changes within one session. A look that finds none of them in a session that has members was taken while
//!   one came and another left, and proves nothing.
//! - MOMENT-5 A process that was killed may have the log for a while when it is no member any more ([`DEATH_MAX`]).
//!
//! [`DEATH_MAX`]: plait_engine::session::DEATH_MAX

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use plait_engine::database::{log_path, shm_path};
use plait_engine::shm::layout::{
    LIFECYCLE_LOCK, LOG_IN_USE_LOCK, PROCESS_LOCK_BASE, PROCESS_SLOTS,
};
use plait_engine::shm::locks;
use plait_engine::storage::side;

use super::base::BaseFile;
use super::beside;

/// Longer than the tick of any file system's clock.
pub const PAUSE: Duration = Duration::from_millis(25);

const FILES: [&str; 5] = ["", "-wal", "-journal", "-plait", "-plait-shm"];

/// One file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    identity: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// All that tells of movement.
#[derive(Clone, Debug)]
pub struct Moment {
    files: [Option<Stamp>; FILES.len()],
    /// The version bytes and the salt in the database file.
    mark: Option<([u8; 2], u32)>,
    /// Somebody begins, recovers or ends a session.
    is_held: bool,
    /// The session has members.
    has_members: bool,
    /// Somebody has the log.
    has_writers: bool,
    /// A file has just changed.
    is_fresh: bool,
}

impl Moment {
    /// Looks at the files of the database at `path`.
    pub fn of(path: &Path) -> io::Result<Moment> {
        let first = BaseFile::read(path)?.first_page;
        // One that cannot be read is told of by whoever reads it.
        let there = |path: &Path| side::open(path, false).ok();
        let (memory, log) = (there(&shm_path(path)), there(&log_path(path)));
        let is_locked = |file: &Option<std::fs::File>, byte, bytes| {
            file.as_ref().map_or(Ok(false), |f| locks::is_range_locked_elsewhere(f, byte, bytes))
        };
        let mut files = [None; FILES.len()];
        for (stamp, suffix) in files.iter_mut().zip(FILES) {
            *stamp = match std::fs::symlink_metadata(beside(path, suffix)) {
                Ok(meta) => Some(Stamp::of(&meta)),
                Err(e) if e.kind() == ErrorKind::NotFound => None,
                Err(e) => return Err(e),
            };
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Moment {
            files,
            mark: first.map(|page| (page.versions, page.salt)),
            is_held: is_locked(&memory, LIFECYCLE_LOCK, 1)?,
            has_members: is_locked(&memory, PROCESS_LOCK_BASE, PROCESS_SLOTS as i64)?,
            has_writers: is_locked(&log, LOG_IN_USE_LOCK, 1)?,
            is_fresh: files.iter().flatten().any(|stamp| stamp.is_of(now)),
        })
    }

    /// Somebody begins, recovers or ends a session right now.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// The session has members.
    pub fn has_members(&self) -> bool {
        self.has_members
    }

    /// Somebody has the log, of a session that has no members.
    pub fn is_orphaned(&self) -> bool {
        self.has_writers && !self.has_members
    }

    /// Nothing was written from this moment to that.
    pub fn is_same(&self, later: &Moment) -> bool {
        let who = |m: &Moment| (m.has_members, m.has_writers);
        !self.is_held
            && !later.is_held
            && !self.is_fresh
            && self.files == later.files
            && who(self) == who(later)
    }

    /// The same session went on from this moment to that; where there was none, nothing was written.
    pub fn is_same_session(&self, later: &Moment) -> bool {
        if !self.has_members && !self.has_writers {
            return self.is_same(later);
        }
        let what = |m: &Moment| {
            (m.files.map(|f| f.map(|f| f.identity)), m.mark, m.has_members, m.has_writers)
        };
        !self.is_held && !later.is_held && what(self) == what(later)
    }
}

impl Stamp {
    fn of(meta: &Metadata) -> Stamp {
        Stamp {
            identity: (meta.dev(), meta.ino()),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// It changed less than a pause before this time of the system's clock.
    fn is_of(&self, now: Duration) -> bool {
        let (seconds, nanoseconds) = self.modified.max(self.changed);
        let changed = Duration::new(
            u64::try_from(seconds).unwrap_or_default(),
            u32::try_from(nanoseconds).unwrap_or_default(),
        );
        // A clock that was set back, or that of another machine, tells nothing of when.
        now.checked_sub(changed).is_some_and(|ago| ago < PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_a_replacement_and_a_beginning_session_are_movements() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let write = |suffix: &str| std::fs::write(beside(&path, suffix), b"x").unwrap();
        let settled = || {
            std::thread::sleep(2 * PAUSE);
            Moment::of(&path).unwrap()
        };
        write("");
        assert!(!Moment::of(&path).unwrap().is_same(&settled()), "it was written a moment ago");
        let before = settled();
        assert!(before.is_same(&settled()) && before.is_same_session(&settled()));
        write("-plait");
        assert!(!before.is_same_session(&settled()));
        let before = settled();
        write("-plait");
        assert!(!before.is_same(&settled()), "as many bytes");

        write("-plait-shm");
        let before = settled();
        let memory = std::fs::File::options().write(true).open(shm_path(&path)).unwrap();
        assert!(locks::try_lock(&memory, LIFECYCLE_LOCK).unwrap());
        assert!(settled().is_held() && !before.is_same_session(&settled()));
        locks::unlock(&memory, LIFECYCLE_LOCK).unwrap();
        assert!(before.is_same_session(&settled()));

        // Members write all the time.
        assert!(locks::try_lock(&memory, PROCESS_LOCK_BASE).unwrap());
        assert!(!before.is_same_session(&settled()));
        let before = settled();
        write("-plait");
        assert!(before.is_same_session(&settled()) && !before.is_same(&settled()));
        std::fs::rename(beside(&path, "-plait"), beside(&path, "-plait-old")).unwrap();
        write("-plait");
        assert!(!before.is_same_session(&settled()));
    }
}

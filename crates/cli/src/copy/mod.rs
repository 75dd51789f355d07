//! A whole copy of a database under a temporary name, for `plait backup` and `plait restore`.
//!
//! The copy is made by SQLite's backup in one step: one snapshot, so that it ends however much others write meanwhile. Then it gets its
//! journal mode, is synced, forgotten by the page cache, and checked as it is on the disk. Whoever asked for it gives it its name.
//!
//! | killed | what stands there | who tells |
//! |---|---|---|
//! | before it has its name | the temporary file, and perhaps SQLite's files beside that | the next copy to the same name ([`leftovers`]) |
//! | later | the whole copy | - |
//!
//! Invariants
//! - COPY-1 Nothing but the temporary file and what SQLite puts beside it is written here, and both go when something fails. Signals are only
//!   noted meanwhile (`os::note_interrupts`).
//! - COPY-2 While a process makes a copy it has a lock (`flock`) on the temporary file: one without that lock was left behind.
//! - COPY-3 What has been checked is the file alone, at rest: nothing beside it is looked at.

pub mod leftovers;
pub mod scratch;

use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use plait_client::{BUSY, FULL, IOERR, LOCKED};
use plait_engine::storage::names::FOLLOWS;
use tempfile::NamedTempFile;

use crate::check::content;
use crate::console;
use crate::convert;
use crate::failure::{Failure, INTERRUPTED, LIMIT, Result};
use crate::inspect::base::{BaseFile, HEADER_BYTES, Header};
use crate::inspect::moment::PAUSE;
use crate::inspect::{Inspection, SIDE_FILES, beside};
use crate::os::{self, FileSystem};
use crate::quantity::{bytes, of};
use crate::sqlite::{self, Backup, Connection, Library, OpenFlags, SqlError, integer};

/// How long a copy waits for who has its source locked.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks whether it is still locked.
const NAP: Duration = Duration::from_millis(10);
/// What SQLite and the library may put beside a file that they write.
const BESIDE: &[&str] = &["-journal", "-wal", "-shm", "-plait", "-plait-shm", "-plait-new"];
/// What is made beside a copy while its journal mode is set and removed again.
const BESIDE_BYTES: u64 = 1 << 20;
/// Random characters in a temporary name.
const RANDOM: usize = 6;

/// How a copy is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Thoroughness {
    /// `PRAGMA quick_check`: every page and every row.
    Quick,
    /// `PRAGMA integrity_check`: every index entry too.
    Full,
    /// Only its size: where the check needs functions or collations of the application.
    None,
}

/// What is to be copied, and how.
pub struct Plan<'a> {
    /// The database, with symbolic links followed.
    pub source: &'a Path,
    /// As the user calls it.
    pub shown: &'a Path,
    /// It is at rest and nobody has it open: nothing beside it is looked at or made.
    pub is_alone: bool,
    /// Where the copy is to stand.
    pub target: &'a Path,
    /// What comes between that name and the random part of the temporary one.
    pub infix: &'static str,
    /// Permissions of the copy.
    pub permissions: u32,
    /// Journal mode of the copy, in the words of `PRAGMA journal_mode`; `None`: that of the source.
    pub mode: Option<&'static str>,
    /// How it is checked.
    pub check: Thoroughness,
}

/// A copy that was checked and is on the disk; removed when dropped.
pub struct WholeCopy {
    file: NamedTempFile,
    pages: u64,
    page_bytes: u64,
    /// Its journal mode.
    pub mode: &'static str,
    /// Why it has not the mode that it should have.
    pub misses_mode: Option<String>,
    check: Thoroughness,
}

impl WholeCopy {
    /// Makes it.
    pub fn make(plan: &Plan<'_>) -> Result<WholeCopy> {
        let file = temporary(plan)?;
        let _beside = Beside(file.path().to_owned());
        let source_mode = unless_interrupted(plan, copy_pages(plan, file.path()))?;
        let misses_mode = give_mode(plan.mode.unwrap_or(source_mode), &file)?;
        let on_file = |what, e: io::Error| Failure::io(what, file.path(), &e);
        file.as_file().sync_all().map_err(|e| on_file("sync", e))?;
        os::forget_content(file.as_file());
        let (pages, page_bytes) = unless_interrupted(plan, check(plan, &file))?;
        let mode = header(&file).map_err(|e| on_file("read", e))?.map_or("unknown", Header::mode);
        Ok(WholeCopy { file, pages, page_bytes, mode, misses_mode, check: plan.check })
    }

    /// Where it stands.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Gives it these permissions, whatever the process's mask.
    pub fn permit(&self, permissions: u32) -> Result<()> {
        let given = self.file.as_file().set_permissions(Permissions::from_mode(permissions));
        given.map_err(|e| Failure::io("set the permissions of", self.file.path(), &e))
    }

    /// Gives it a name for good; `over`: that of a file which is there, too. The folder is not synced.
    pub fn rename(self, to: &Path, over: bool) -> io::Result<()> {
        let renamed = if over { self.file.persist(to) } else { self.file.persist_noclobber(to) };
        renamed.map(drop).map_err(|e| e.error)
    }

    /// Gives it an owner.
    pub fn give_to(&self, user: u32, group: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(self.file.as_file(), Some(user), Some(group))
    }

    /// Its size and how it was checked, in words.
    pub fn told(&self) -> String {
        let checked = match self.check {
            Thoroughness::Quick => "quick_check ok",
            Thoroughness::Full => "integrity_check ok",
            Thoroughness::None => "content not checked",
        };
        let pages = of(self.pages, "page", "pages");
        format!("{pages} ({}), {checked}, mode {}", bytes(self.pages * self.page_bytes), self.mode)
    }
}

/// It is in a mode in which who has it open has files beside it, and there are none: it can be read without making any, also where its folder
/// cannot be written. Somebody may still come, which the caller looks for afterwards.
pub fn is_alone(state: &Inspection) -> bool {
    state.header.read_version >= 2 && !has_neighbours(state)
}

/// Files of a database stand beside it. The mark of a replica has nothing of what is committed.
pub fn has_neighbours(state: &Inspection) -> bool {
    let is_there = |suffix: &str| std::fs::symlink_metadata(beside(&state.path, suffix)).is_ok();
    SIDE_FILES.iter().any(|&suffix| suffix != FOLLOWS && is_there(suffix))
}

/// Opening it where it is would fail: SQLite makes files beside a database even to read it, and brings in what was left, for which there is
/// no room.
pub fn lacks_room(state: &Inspection) -> bool {
    let folder = state.path.parent().unwrap_or(Path::new("/"));
    let size =
        |suffix| std::fs::symlink_metadata(beside(&state.path, suffix)).map_or(0, |m| m.len());
    let wanted = BESIDE_BYTES + size("-plait") + size("-wal");
    FileSystem::of(folder).is_ok_and(|fs| fs.free_bytes < wanted)
}

/// A look at such a database from which on it can be told whether it was changed: not one in the same tick of the clock as a change.
pub fn at_rest(shown: &Path) -> Result<Inspection> {
    std::thread::sleep(2 * PAUSE);
    Inspection::of(shown)
}

/// Somebody has come.
pub fn moved(shown: &Path) -> Failure {
    Failure::new(
        format!("{} was changed while it was copied", shown.display()),
        "run the command again",
    )
}

/// Removes what stands beside a temporary file (COPY-1).
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        for suffix in BESIDE {
            // Nothing is there, as a rule.
            let _ = std::fs::remove_file(beside(&self.0, suffix));
        }
    }
}

/// The file that the copy goes to, empty.
fn temporary(plan: &Plan<'_>) -> Result<NamedTempFile> {
    let folder = plan.target.parent().unwrap_or(Path::new("/"));
    let mut prefix = plan.target.file_name().unwrap_or_default().to_owned();
    prefix.push(plan.infix);
    let made = tempfile::Builder::new()
        .prefix(&prefix)
        .rand_bytes(RANDOM)
        .permissions(Permissions::from_mode(plan.permissions))
        .tempfile_in(folder);
    let file = made.map_err(|e| Failure::io("make a file in", folder, &e))?;
    // COPY-2. Nobody else knows the name; a file system without such locks tells less of what is left behind.
    let _ = file.as_file().try_lock();
    Ok(file)
}

/// Copies every page; the journal mode of the source.
fn copy_pages(plan: &Plan<'_>, to: &Path) -> Result<&'static str> {
    let about = |e: SqlError| sqlite::failure(&e, "read", plan.shown);
    let source = open_source(plan).map_err(about)?;
    wait_as_told(&source).map_err(about)?;
    source.query("SELECT count(*) FROM sqlite_schema").map_err(about)?;
    let number = |sql| source.value(sql).map(|n| integer(&n).max(0).cast_unsigned());
    let mode = source.value("PRAGMA journal_mode").map_err(about)?;
    if mode.as_text() == Some("concurrent") {
        // With a handler it would lose its place in the queue.
        source.busy_timeout(PATIENCE).map_err(about)?;
    }
    let pages = number("PRAGMA page_count").map_err(about)?;
    let size = pages * number("PRAGMA page_size").map_err(about)?;
    refuse_without_room(plan, size + BESIDE_BYTES)?;
    let about = |e: SqlError| sqlite::failure(&e, "write", plan.target);
    let copy = Library::linked().open_with(to, OpenFlags::ReadWrite).map_err(about)?;
    // What is written here is synced as a whole, and goes if it is not whole.
    copy.execute("PRAGMA journal_mode=off; PRAGMA synchronous=off").map_err(about)?;
    let bar = console::progress("copying", size);
    let drawn = bar.clone();
    let told = move |end: u64| {
        drawn.set_position(end);
        !os::interrupted()
    };
    let watch = copy.watch_writes(told).map_err(about)?;
    let copied = Backup::start(&source, &copy).and_then(|mut backup| backup.step(-1));
    drop(watch);
    bar.finish_and_clear();
    copied.map_err(|e| step_failed(&e, plan, size))?;
    copy.close().map_err(about)?;
    if plan.is_alone {
        // Opened so it has no journal at all.
        let source =
            BaseFile::read(plan.source).map_err(|e| Failure::io("read", plan.shown, &e))?;
        return Ok(source.header.unwrap_or(Header::EMPTY).mode());
    }
    Ok(match mode.as_text() {
        Some("concurrent") => "concurrent",
        Some("wal") => "wal",
        _ => "delete",
    })
}

/// Waits for who has the source locked, until the user has enough of it.
fn wait_as_told(source: &Connection) -> Result<(), SqlError> {
    let mut since = None;
    source.busy_handler(move |calls| {
        if calls == 0 {
            since = Some(Instant::now());
        }
        std::thread::sleep(NAP);
        !os::interrupted() && since.is_none_or(|since| since.elapsed() < PATIENCE)
    })
}

fn open_source(plan: &Plan<'_>) -> Result<Connection, SqlError> {
    if plan.is_alone { open_alone(plan.source) } else { open_live(plan.source) }
}

fn open_live(path: &Path) -> Result<Connection, SqlError> {
    Library::linked().open_with(path, OpenFlags::ReadWrite)
}

/// Opens the file as one that nobody changes: without locks, and without a look at what stands beside it. SQLite leaves CHECK constraints
/// aside in such a file, which may need functions of the application.
fn open_alone(path: &Path) -> Result<Connection, SqlError> {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri.push_str("?mode=ro&immutable=1");
    Library::linked().open_with(uri, OpenFlags::Uri)
}

fn refuse_without_room(plan: &Plan<'_>, wanted: u64) -> Result<()> {
    let folder = plan.target.parent().unwrap_or(Path::new("/"));
    let room = FileSystem::of(folder).map_or(u64::MAX, |fs| fs.free_bytes);
    if room >= wanted { Ok(()) } else { Err(no_room(plan, wanted, room)) }
}

fn no_room(plan: &Plan<'_>, wanted: u64, room: u64) -> Failure {
    let folder = plan.target.parent().unwrap_or(Path::new("/"));
    Failure::new(
        format!(
            "there is no room for a copy of {}: it takes {}, and the disk of {} has {}",
            plan.shown.display(),
            bytes(wanted),
            folder.display(),
            bytes(room)
        ),
        "free some space on that disk, or name a place on another one",
    )
}

/// A step tells a code alone.
fn step_failed(e: &SqlError, plan: &Plan<'_>, size: u64) -> Failure {
    let (from, to) = (plan.shown.display(), plan.target.display());
    let room = |path: &Path| {
        let folder = path.parent().unwrap_or(Path::new("/"));
        FileSystem::of(folder).map_or(u64::MAX, |fs| fs.free_bytes)
    };
    match e.code {
        // To read it what was left beside it is brought in first.
        FULL if room(plan.target) > BESIDE_BYTES && room(plan.source) < room(plan.target) => {
            Failure::new(
                format!(
                    "cannot copy {from}: the disk that it lies on is full, and it cannot be read without some room beside it"
                ),
                "free some space on that disk and run the command again",
            )
        }
        FULL if os::limit(libc::RLIMIT_FSIZE) != libc::RLIM_INFINITY
            && room(plan.target) > size =>
        {
            Failure::new(
                format!(
                    "cannot copy {from}: a file of this process may have {} (ulimit -f), and those beside {from} are \
                     longer",
                    bytes(os::limit(libc::RLIMIT_FSIZE))
                ),
                LIMIT,
            )
        }
        FULL => Failure::new(
            format!(
                "cannot copy {from} to {to}: the disk is full, and the copy takes {}",
                bytes(size)
            ),
            "free some space on that disk, or name a place on another one",
        ),
        BUSY | LOCKED => Failure::new(
            format!(
                "cannot copy {from}: other programs had it locked for {} s",
                PATIENCE.as_secs()
            ),
            format!(
                "run the command again when they do less; `plait status {from}` shows who writes and who reads"
            ),
        ),
        IOERR if os::limit(libc::RLIMIT_FSIZE) < size => Failure::new(
            format!(
                "cannot copy {from} to {to}: the copy takes {}, and a file of this process may have {} (ulimit -f)",
                bytes(size),
                bytes(os::limit(libc::RLIMIT_FSIZE))
            ),
            LIMIT,
        ),
        code => Failure::new(
            format!("cannot copy {from} to {to}: SQLite says code {code} ({})", e.extended),
            format!(
                "run `plait check {from}`, and look into the system's log for errors of the disk"
            ),
        ),
    }
}

/// Switches the copy to its journal mode. That is told, and no failure: the copy has everything.
fn give_mode(wanted: &'static str, file: &NamedTempFile) -> Result<Option<String>> {
    let read = header(file).map_err(|e| Failure::io("read", file.path(), &e))?;
    if read.is_none_or(|header| header.mode() == wanted) {
        return Ok(None);
    }
    let switched = convert::convert(file.path(), file.path(), &[wanted]);
    Ok(switched.err().map(|e| e.what))
}

fn header(file: &NamedTempFile) -> io::Result<Option<Header>> {
    let mut head = [0; HEADER_BYTES];
    file.as_file().read_exact_at(&mut head, 0)?;
    Ok(Header::parse(&head))
}

/// Checks the copy (COPY-3): its pages, and the size of each.
fn check(plan: &Plan<'_>, file: &NamedTempFile) -> Result<(u64, u64)> {
    if let Some(left) = BESIDE.iter().map(|s| beside(file.path(), s)).find(|side| side.exists()) {
        // Where its mode was to be set, too.
        let length = file.as_file().metadata().map_or(0, |meta| meta.len());
        refuse_without_room(plan, BESIDE_BYTES).map_err(|_| {
            let folder = plan.target.parent().unwrap_or(Path::new("/"));
            let room = FileSystem::of(folder).map_or(0, |fs| fs.free_bytes);
            no_room(plan, length + BESIDE_BYTES, room)
        })?;
        return Err(Failure::new(
            format!("the copy is not at rest: {} stands beside it", left.display()),
            "run the command again",
        ));
    }
    let about = |e: SqlError| Failure {
        what: format!("cannot check the copy of {}: {}", plan.shown.display(), e.said()),
        ..damaged_source(plan)
    };
    let copy = open_alone(file.path()).map_err(about)?;
    let number = |sql| copy.value(sql).map(|n| integer(&n).max(0).cast_unsigned());
    let pages = number("PRAGMA page_count").map_err(about)?;
    let page_bytes = number("PRAGMA page_size").map_err(about)?;
    let length = file.as_file().metadata().map_or(0, |meta| meta.len());
    if length != pages * page_bytes {
        let what = format!("the copy of {} is cut short", plan.shown.display());
        return Err(Failure { what, ..damaged_source(plan) });
    }
    let pragma = match plan.check {
        Thoroughness::None => return Ok((pages, page_bytes)),
        Thoroughness::Quick => "quick_check",
        Thoroughness::Full => "integrity_check",
    };
    copy.progress_handler(Some(|| !os::interrupted()));
    let problems = match content::problems(&copy, pragma) {
        Err(e) if e.is_damage() => vec![e.said()],
        other => other.map_err(about)?,
    };
    match problems.first() {
        None => Ok((pages, page_bytes)),
        Some(problem) => Err(Failure {
            what: format!(
                "{} is damaged, and so would be a copy of it: {problem}",
                plan.shown.display()
            ),
            ..damaged_source(plan)
        }),
    }
}

fn damaged_source(plan: &Plan<'_>) -> Failure {
    let shown = plan.shown.display();
    Failure::new(
        String::new(),
        format!(
            "run `plait check {shown}`, which tells what is wrong with it; --check none makes a copy all the same"
        ),
    )
}

/// Whatever a step came to, an interrupt is the reason that is told.
fn unless_interrupted<T>(plan: &Plan<'_>, came_to: Result<T>) -> Result<T> {
    if !os::interrupted() {
        return came_to;
    }
    let what =
        format!("interrupted: {} is as it was, and nothing was left behind", plan.target.display());
    Err(Failure { code: INTERRUPTED, ..Failure::new(what, "run the command again") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_client::INTERRUPT;

    #[test]
    fn a_copy_is_told_of_as_it_is_written_and_can_be_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name| {
            let path = dir.path().join(name);
            Library::linked().open_with(path, OpenFlags::ReadWriteCreate).unwrap()
        };
        let (source, copy) = (open("a.db"), open("b.db"));
        source.execute("CREATE TABLE t(x); INSERT INTO t VALUES(zeroblob(9000000))").unwrap();
        let watch = copy.watch_writes(|end| end < 4_000_000).unwrap();
        let stopped = Backup::start(&source, &copy).and_then(|mut backup| backup.step(-1));
        assert_eq!(stopped.unwrap_err().code, INTERRUPT);
        drop(watch);
        source.backup_to(&copy).unwrap();
        assert_eq!(copy.integer("SELECT length(x) FROM t").unwrap(), 9_000_000);
    }
}

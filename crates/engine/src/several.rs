//! Transactions over several files: one decision for all of them (TXN-6).
//!
//! The decision is SQLite's own: a super-journal, a file that lists the participants. While it
//! exists the transaction has not happened; removing its name, durably, is the commit. So files in
//! a rollback mode take part with SQLite's code as it is, and any SQLite that meets their journals
//! after a crash decides as Plait does.
//!
//! ```text
//! every concurrent file    the writer's right, validation, room for all that follows,
//!                          in the order of their inodes
//! SQLite                   super-journal written and synced: lists journals and references
//! each concurrent file     reference written and synced -> prepared frame P in the log, synced.
//!                          If exclusive: its pages written and synced in between (pages.rs)
//! each rollback file       journal with the super-journal's name synced, pages written and synced
//! SQLite                   super-journal removed, its folder synced            <- the commit point
//! each concurrent file     commit frame C right behind P, rows visible, reference removed, right
//!                          passed on. If exclusive: SQLite's commit to the WAL, with the stamp,
//!                          synced -> next generation, pages and reference removed, both rights
//!                          given back
//! each rollback file       journal removed
//! ```
//!
//! The states of one file's log (`database/orphans.rs` for a living session, `session.rs` for a
//! recovery):
//! - P, a commit frame behind it: the transaction is committed in this file. The frame has the rows
//!   once more.
//! - P with pages, and the base has the stamp of its generation: committed. The base has it.
//! - P, an empty frame behind it: rolled back.
//! - P last, its author lives: undecided. The author holds the writer's right, and others wait.
//! - P last, its author is dead, the super-journal is there: rolled back, for good once the empty
//!   frame is on disk.
//! - P last, its author is dead, the super-journal is gone but the database that it is named after
//!   is there: committed.
//! - P last, its author is dead, neither of the two can be seen: not known here. A connection that
//!   wants to write, and a recovery, get an error.
//!
//! Invariants
//! - SEVERAL-1 P is on disk before the super-journal may go, whatever `synchronous` says, and the
//!   pages that it names before P.
//! - SEVERAL-2 While a P is last, only the frame that resolves it is appended to that log, and its
//!   generation is not frozen, and so neither merged nor given back. The resolving frame needs no
//!   room in the log or in memory that is not there. If P names pages, no other connection writes
//!   to the base either.
//! - SEVERAL-3 The super-journal of a transaction that did not happen is not removed while a file
//!   has not resolved it on disk. The *reference* keeps it, a file `-plait-super` next to the
//!   database that ends as a journal with a super-journal does: when stock SQLite has rolled a
//!   journal back, it reads everything that the super-journal lists, and leaves the super-journal
//!   while one of them names it.
//! - SEVERAL-4 A process that finds the super-journal gone syncs its folder before it acts on that:
//!   no power cut brings the super-journal back.
//! - SEVERAL-5 If neither the super-journal nor its database can be seen, nothing is concluded: a
//!   copy of one file alone, or a folder that another container does not have, says nothing about
//!   the decision.
//!
//! P keeps the super-journal's name relative to the database's folder, since two containers may
//! have the volume at different paths. Reference and super-journal keep full names, as SQLite
//! compares them. If these lead to nothing, a super-journal is left alone, which costs a small
//! file.
//!
//! A name in a log or a reference is input: it must be the name of a super-journal, and nothing is
//! ever removed under it except a file that lists this very database's reference.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use crate::crash_point;
use crate::error::{Error, Result};
use crate::fault;
use crate::pages;
use crate::storage::Storage as _;
use crate::storage::names::suffixed;
use crate::storage::os::OsStorage;
use crate::storage::side;

/// The end of SQLite's journals that name a super-journal.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// Bytes of the end of a reference: length and sum of the name, and the magic.
const TAIL_BYTES: u64 = 16;
/// Bytes that SQLite adds to a database's name for its super-journal: `-mjXXXXXX9XX`.
const SUFFIX_BYTES: usize = 12;
/// Longest name, and longest list of names, that is accepted.
const NAME_BYTES_MAX: u64 = 4096;
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The outcome of a prepared transaction whose author is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It happened, in every file.
    Committed,
    /// It happened in no file.
    RolledBack,
}

/// Returns the name of the reference next to a database file.
pub fn reference_path(base: &Path) -> PathBuf {
    suffixed(base, "-plait-super")
}

/// True if SQLite names super-journals like this.
fn is_super_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let Some(at) = name.len().checked_sub(SUFFIX_BYTES) else { return false };
    let suffix = &name[at..];
    at > 0
        && suffix.starts_with(b"-mj")
        && suffix[9] == b'9'
        && suffix[3..].iter().all(u8::is_ascii_hexdigit)
}

/// Returns the database that a super-journal is named after.
pub fn named_after(super_journal: &Path) -> PathBuf {
    let name = super_journal.as_os_str().as_bytes();
    PathBuf::from(OsStr::from_bytes(&name[..name.len().saturating_sub(SUFFIX_BYTES)]))
}

/// Returns the name by which the log of `base` keeps a super-journal: relative to the folder of
/// `base`. Both are full names without links, as SQLite makes them.
pub(crate) fn relative_name(super_journal: &Path, base: &Path) -> Result<Vec<u8>> {
    let folder = base.parent().unwrap_or(Path::new("/"));
    let mut there = super_journal.components().peekable();
    let mut here = folder.components().peekable();
    while there.peek().is_some() && there.peek() == here.peek() {
        there.next();
        here.next();
    }
    let mut name = PathBuf::new();
    name.extend(here.map(|_| Component::ParentDir));
    name.extend(there);
    let len = name.as_os_str().len() as u64;
    if !is_super_name(&name) || len > NAME_BYTES_MAX {
        return Err(Error::CantOpen(format!(
            "{} cannot be the super-journal of a transaction over several files",
            super_journal.display()
        )));
    }
    Ok(name.into_os_string().as_bytes().to_vec())
}

/// Fails unless the engine sees the super-journal that SQLite has made: otherwise it could not look
/// for it after a crash.
pub(crate) fn check_visible(super_journal: &Path) -> Result<()> {
    if std::fs::symlink_metadata(super_journal).is_ok_and(|meta| meta.is_file()) {
        return Ok(());
    }
    Err(Error::CantOpen(format!(
        "{} is not where the VFS has created it: a transaction over several files needs a VFS \
         that leaves names as they are",
        super_journal.display()
    )))
}

/// Looks up the outcome of the transaction that is prepared under `name` in the log of `base`
/// (SEVERAL-4, SEVERAL-5).
///
/// # Errors
/// `CantOpen` if the outcome cannot be known; what syncing its folder reports.
pub fn verdict(base: &Path, name: &[u8]) -> Result<Verdict> {
    let folder = base.parent().unwrap_or(Path::new("/"));
    let super_journal = folder.join(OsStr::from_bytes(name));
    let is_relative = !name.starts_with(b"/");
    if !is_relative || !is_super_name(Path::new(OsStr::from_bytes(name))) {
        let text = "names a super-journal that cannot be one";
        return Err(Error::Corrupt(format!("the log of {} {text}", base.display())));
    }
    let io = |e: &IoError| Error::io(format!("cannot look at {}", super_journal.display()), e);
    match std::fs::symlink_metadata(&super_journal) {
        Ok(_) => return Ok(Verdict::RolledBack),
        Err(e) if is_absence(&e) => {}
        Err(e) => return Err(io(&e)),
    }
    let database = named_after(&super_journal);
    match std::fs::metadata(&database) {
        Ok(meta) if meta.is_file() => {}
        Err(e) if !is_absence(&e) => return Err(io(&e)),
        _ => return Err(unknown(base, &super_journal, &database)),
    }
    OsStorage.sync_dir_of(&super_journal).map_err(|e| io(&e))?;
    if fault::is_planted("several.taken_back") {
        return Ok(Verdict::RolledBack);
    }
    Ok(Verdict::Committed)
}

fn is_absence(e: &IoError) -> bool {
    matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn unknown(base: &Path, super_journal: &Path, database: &Path) -> Error {
    Error::CantOpen(format!(
        "the last transaction in the log of {} has changed several database files, and the \
         super-journal {} says whether it was committed; neither that nor {} is there: put the \
         files back where they were next to each other, or, to drop that transaction from this \
         file, create an empty file with the name of the super-journal",
        base.display(),
        super_journal.display(),
        database.display()
    ))
}

/// Returns SQLite's sum over the name of a super-journal, whose bytes are C's `char`.
fn sum_of(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |sum, &byte| sum.wrapping_add(byte as std::ffi::c_char as i32 as u32))
}

/// Records next to `base`, on disk, that its log has a prepared transaction under this
/// super-journal (SEVERAL-3). The caller holds the writer's right, and everything in the log is on
/// disk if there was a reference before.
pub(crate) fn write_reference(base: &Path, super_journal: &Path) -> Result<()> {
    let path = reference_path(base);
    let io = |what: &str, e: &IoError| Error::io(format!("cannot {what} {}", path.display()), e);
    forget(base);
    let file = side::open_or_create(&path).map_err(|e| match side::refusal(&e) {
        Some(why) => Error::CantOpen(format!("{} cannot be used: {why}", path.display())),
        None => io("create", &e),
    })?;
    let name = super_journal.as_os_str().as_bytes();
    let mut bytes = name.to_vec();
    bytes.extend((name.len() as u32).to_be_bytes());
    bytes.extend(sum_of(name).to_be_bytes());
    bytes.extend(JOURNAL_MAGIC);
    let written = file.set_len(0).and_then(|()| file.write_all_at(&bytes, 0));
    written.map_err(|e| io("write", &e))?;
    crash_point!("several.reference_written");
    let synced = file.sync_all().and_then(|()| OsStorage.sync_dir_of(&path));
    synced.map_err(|e| io("sync", &e))
}

/// True if there is a reference next to `base`.
pub(crate) fn has_reference(base: &Path) -> bool {
    std::fs::symlink_metadata(reference_path(base)).is_ok()
}

/// Returns the super-journal that a journal or a reference names at its end.
fn named_by(file: &File) -> Option<PathBuf> {
    let size = file.metadata().ok()?.len();
    let tail_at = size.checked_sub(TAIL_BYTES)?;
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, tail_at).ok()?;
    let number =
        |at: usize| u32::from_be_bytes([tail[at], tail[at + 1], tail[at + 2], tail[at + 3]]);
    let len = u64::from(number(0));
    if tail[8..] != JOURNAL_MAGIC || len == 0 || len > NAME_BYTES_MAX {
        return None;
    }
    let mut name = vec![0; len as usize];
    file.read_exact_at(&mut name, tail_at.checked_sub(len)?).ok()?;
    let path = PathBuf::from(OsStr::from_bytes(&name));
    (sum_of(&name) == number(4) && is_super_name(&path)).then_some(path)
}

/// Returns the super-journal that the reference next to `base` names, if it exists: a transaction
/// of the log may be undecided.
pub(crate) fn named_beside(base: &Path) -> Option<PathBuf> {
    let file = side::open(&reference_path(base), false).ok()?;
    named_by(&file).filter(|super_journal| super_journal.exists())
}

/// Removes pages and reference of what the log of `base` had prepared and is resolved on disk, and
/// the super-journal if this was its last reference. A failure leaves files for the next call.
pub(crate) fn forget(base: &Path) {
    // The pages go before the reference (PAGES-1 in pages.rs).
    pages::forget(base);
    let path = reference_path(base);
    let Ok(file) = side::open(&path, false) else { return };
    if !side::is_ours(&file, &path).unwrap_or(false) {
        return;
    }
    let named = named_by(&file);
    // Before the reference: after a kill in between, the next call finds the reference.
    if let Some(super_journal) = &named {
        remove_unnamed(super_journal, &path);
    }
    let removed = side::remove(&file, &path).is_ok();
    crash_point!("several.reference_removed");
    if let Some(super_journal) = named.filter(|_| removed) {
        // Two processes that let go at once have each seen the other's reference.
        remove_unnamed(&super_journal, &path);
    }
}

/// Removes a super-journal that lists `own`, a reference that is no longer needed, if no other
/// listed file names it (SEVERAL-3).
fn remove_unnamed(super_journal: &Path, own: &Path) {
    let Ok(file) = side::open(super_journal, false) else { return };
    let Ok(size) = file.metadata().map(|meta| meta.len()) else { return };
    let mut list = vec![0; size.min(LIST_BYTES_MAX) as usize];
    if size > LIST_BYTES_MAX || file.read_exact_at(&mut list, 0).is_err() {
        return;
    }
    let mut lists_own = false;
    for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let path = Path::new(OsStr::from_bytes(name));
        if path == own {
            lists_own = true;
        } else if !no_longer_names(path, super_journal) {
            return;
        }
    }
    if lists_own {
        let _ = side::remove(&file, super_journal);
    }
}

/// True if the journal or reference at `path` is known not to name the super-journal.
fn no_longer_names(path: &Path, super_journal: &Path) -> bool {
    match side::open(path, false) {
        Ok(file) => named_by(&file).is_none_or(|named| named != super_journal),
        // If the database is not there by this name, nothing is known of its reference.
        Err(e) if is_absence(&e) => {
            let name = path.as_os_str().as_bytes();
            let base = ["-journal", "-plait-super"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix.as_bytes()));
            base.is_some_and(|base| Path::new(OsStr::from_bytes(base)).exists())
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPER: &str = "main.db-mj0A1B2C9D4";

    fn folder() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().join("a.db");
        std::fs::write(&base, b"a").expect("a database");
        std::fs::write(dir.path().join("main.db"), b"m").expect("another");
        let super_journal = dir.path().join(SUPER);
        (dir, base, super_journal)
    }

    fn list(super_journal: &Path, names: &[PathBuf]) {
        let bytes: Vec<u8> =
            names.iter().flat_map(|name| [name.as_os_str().as_bytes(), &[0]].concat()).collect();
        std::fs::write(super_journal, bytes).expect("a super-journal");
    }

    #[test]
    fn names_are_kept_relative_to_the_folder_of_the_log() {
        for (to, from, expected) in [
            ("/x/y/m.db-mj0000009AB", "/x/y/a.db", "m.db-mj0000009AB"),
            ("/x/z/m.db-mj0000009AB", "/x/y/a.db", "../z/m.db-mj0000009AB"),
            ("/m.db-mj0000009AB", "/x/y/a.db", "../../m.db-mj0000009AB"),
            ("/x/y/w/m.db-mj0000009AB", "/x/y/a.db", "w/m.db-mj0000009AB"),
        ] {
            let name = relative_name(Path::new(to), Path::new(from)).expect("a name");
            assert_eq!(String::from_utf8_lossy(&name), expected);
        }
        for wrong in ["/x/m.db", "/x/m.db-mj0000008AB", "/x/m.db-mj00000G9AB", "-mj0000009AB"] {
            assert!(relative_name(Path::new(wrong), Path::new("/x/a.db")).is_err(), "{wrong}");
        }
    }

    // holds SEVERAL-5
    #[test]
    fn a_super_journal_that_is_there_means_no_and_one_that_is_gone_means_yes() {
        let (dir, base, super_journal) = folder();
        let name = SUPER.as_bytes();
        assert_eq!(verdict(&base, name).expect("known"), Verdict::Committed);
        std::fs::write(&super_journal, b"").expect("there");
        assert_eq!(verdict(&base, name).expect("known"), Verdict::RolledBack);
        std::fs::remove_file(&super_journal).expect("gone");
        std::fs::remove_file(dir.path().join("main.db")).expect("and its database");
        let text = verdict(&base, name).expect_err("not known").to_string();
        assert!(text.contains("create an empty file"), "{text}");
        assert!(verdict(&base, b"../nowhere/main.db-mj0A1B2C9D4").is_err());
        for hostile in [&b"/etc/passwd"[..], b"../../etc/passwd", b"", b"-mj0A1B2C9D4"] {
            assert!(matches!(verdict(&base, hostile), Err(Error::Corrupt(_))));
        }
    }

    #[test]
    fn the_last_to_let_go_removes_the_super_journal() {
        let (dir, base, super_journal) = folder();
        let other = dir.path().join("main.db");
        let names = [reference_path(&base), reference_path(&other)];
        list(&super_journal, &names);
        write_reference(&base, &super_journal).expect("a reference");
        write_reference(&other, &super_journal).expect("another");
        forget(&base);
        assert!(super_journal.exists(), "the other still names it");
        assert!(!names[0].exists());
        forget(&other);
        assert!(!super_journal.exists() && !names[1].exists());
        forget(&other);
    }

    // holds SEVERAL-3
    #[test]
    fn a_journal_that_names_it_keeps_it_and_a_finished_one_does_not() {
        let (dir, base, super_journal) = folder();
        let journal = dir.path().join("main.db-journal");
        list(&super_journal, &[reference_path(&base), journal.clone()]);
        write_reference(&base, &super_journal).expect("a reference");
        let ending = std::fs::read(reference_path(&base)).expect("how they end");
        std::fs::write(&journal, [&b"pages"[..], &ending].concat()).expect("a journal");
        forget(&base);
        assert!(super_journal.exists());
        write_reference(&base, &super_journal).expect("a reference");
        std::fs::write(&journal, b"").expect("truncated");
        forget(&base);
        assert!(!super_journal.exists());
    }

    // holds SEVERAL-3
    #[test]
    fn nothing_is_removed_that_does_not_list_this_reference_or_that_cannot_be_told() {
        let (dir, base, super_journal) = folder();
        for names in [
            vec![],
            vec![dir.path().join("elsewhere-plait-super")],
            vec![reference_path(&base), PathBuf::from("/not/mounted/b.db-plait-super")],
        ] {
            list(&super_journal, &names);
            write_reference(&base, &super_journal).expect("a reference");
            forget(&base);
            assert!(super_journal.exists(), "{names:?}");
        }
        let precious = dir.path().join("precious");
        list(&precious, &[reference_path(&base)]);
        write_reference(&base, &precious).expect("a reference");
        forget(&base);
        assert!(precious.exists(), "not the name of a super-journal");
    }
}

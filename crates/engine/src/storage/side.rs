//! Opening, creating and removing the files next to a database: `-plait`, its draft, `-plait-shm`,
//! `-plait-super`, `-plait-pages`.
//!
//! A user that may write in the folder can put anything under these names: a link to another user's
//! file, a pipe, a file of their own. So only the open descriptor is trusted, and a file is not
//! changed before it is checked. SQLite does much of this for its own side files; these are made
//! and removed at every session.
//!
//! Invariants
//! - SIDE-1 Symbolic links are not followed. SQLite has resolved that of the database itself
//!   before: side files are next to the file that it leads to.
//! - SIDE-2 An existing file is used only if it is a regular one whose owner is trusted with the
//!   database: the database's owner, this process's effective user, root; if its group may write
//!   it, a file of that group; if all users may, any; if it has an access control list, a file of a
//!   user or group that may write by it.
//! - SIDE-6 A file with a second name (a hard link) may be any file of another user. A log may have
//!   one, since it is read, and found to be a log, before it is written: folders are backed up in
//!   this way. Shared memory is filled whatever it holds, so with a second name it must have been
//!   shared memory before.
//! - SIDE-3 Only a file created exclusively here is given permissions and an owner. An empty one of
//!   our own is given permissions too: its creator may have died in between.
//! - SIDE-4 A name is removed only while it is that of the intended file, if there is one.
//! - SIDE-7 A file with content is overwritten or removed only if it begins as files of its name
//!   do, or with zeros, as a file does whose author was killed or lost power early. A log is read
//!   before it is written, so it identifies itself.
//! - SIDE-5 Descriptors 0 to 2 are not used: a program that has closed them writes its messages
//!   there.
//!
//! Deliberately absent: protection from users who may rename the database itself.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::IFlags;

use super::names::{LOG_MAGIC, PAGES_MAGIC, SHARED_MEMORY_BYTES, SHARED_MEMORY_MAGIC};

/// Suffixes of side files.
const SUFFIXES: [&str; 5] = [SHARED_MEMORY, DRAFT, REFERENCE, PAGES, "-plait"];
const SHARED_MEMORY: &str = "-plait-shm";
const DRAFT: &str = "-plait-new";
const REFERENCE: &str = "-plait-super";
const PAGES: &str = "-plait-pages";
/// Why a file with other content is left alone.
const NOT_OURS: &str = "its contents are not those of such a file: move it away";
/// An open follows no link, and does not wait for the other end of a pipe.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
/// Attempts to open or create a file that other processes create and remove.
const TRIES: u32 = 100;

fn refused(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::PermissionDenied, why.into())
}

/// Returns why a file was refused (SIDE-1, SIDE-2), if the error is a refusal.
pub fn refusal(e: &Error) -> Option<String> {
    (e.kind() == ErrorKind::PermissionDenied && e.raw_os_error().is_none()).then(|| e.to_string())
}

/// Returns the database of a side file, `None` if the file has no such name.
fn base_of(path: &Path) -> Option<PathBuf> {
    let name = path.as_os_str().as_bytes();
    let stem = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix.as_bytes()))?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(stem)))
}

fn base_metadata(path: &Path) -> Option<Metadata> {
    std::fs::metadata(base_of(path)?).ok()
}

/// Opens an existing side file, for reading and, if `write`, for writing.
///
/// # Errors
/// Those of the system, and a [`refusal`].
pub fn open(path: &Path, write: bool) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(write).custom_flags(FLAGS).open(path);
    let file = opened.map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP) => refused("it is a symbolic link, which is not followed"),
        Some(libc::EISDIR | libc::ENXIO) => refused("it is not a regular file"),
        _ => e,
    })?;
    let file = above_standard_descriptors(file)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(refused("it is not a regular file"));
    }
    // A side file of ours. SQLite's WAL is opened here as well, to be synced.
    if let Some(base) = base_of(path) {
        if meta.nlink() > 1 && is_filled_unseen(path) && !was_shared_memory(&file)? {
            return Err(refused(
                "it has a second name (a hard link), and is no shared memory of this library",
            ));
        }
        check_owner(&meta, &base)?;
    }
    Ok(file)
}

/// True if a process that opens the file writes to it without looking at its content.
fn is_filled_unseen(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(SHARED_MEMORY.as_bytes())
}

/// True if a session has begun in the file, in this boot or an earlier one (layout.rs).
fn was_shared_memory(file: &File) -> Result<bool> {
    let mut first = [0; 8];
    let n = file.read_at(&mut first, 0)?;
    Ok(n == first.len() && u64::from_ne_bytes(first) == SHARED_MEMORY_MAGIC)
}

/// SIDE-7: true if the content of the file is that of a file with its name.
///
/// # Errors
/// Those of reading the file.
pub fn is_ours(file: &File, path: &Path) -> Result<bool> {
    is_begun_as_ours(&first_bytes(file)?, file, path)
}

/// Returns the first eight bytes of a file, or all if it has fewer.
fn first_bytes(file: &File) -> Result<Vec<u8>> {
    let mut first = vec![0; 8];
    let n = file.read_at(&mut first, 0)?;
    first.truncate(n);
    Ok(first)
}

/// As [`is_ours`], of a file that begins with the bytes `first`.
fn is_begun_as_ours(first: &[u8], file: &File, path: &Path) -> Result<bool> {
    let begins = |bytes: &[u8]| first == &bytes[..first.len()];
    let name = path.as_os_str().as_bytes();
    let kind = SUFFIXES.into_iter().find(|suffix| name.ends_with(suffix.as_bytes()));
    Ok(first.iter().all(|byte| *byte == 0)
        || match kind {
            // A damaged one still has a size that no other file has.
            Some(SHARED_MEMORY) => {
                begins(&SHARED_MEMORY_MAGIC.to_ne_bytes())
                    || file.metadata()?.len() == SHARED_MEMORY_BYTES
            }
            Some(DRAFT) => begins(&LOG_MAGIC),
            Some(PAGES) => begins(&PAGES_MAGIC),
            // The full name of a super-journal.
            Some(REFERENCE) => first[0] == b'/',
            _ => true,
        })
}

fn check_owner(meta: &Metadata, base_path: &Path) -> Result<()> {
    if [rustix::process::geteuid().as_raw(), 0].contains(&meta.uid()) {
        return Ok(());
    }
    let Ok(base) = &std::fs::metadata(base_path) else { return Ok(()) };
    let ours = base.uid() == meta.uid();
    // The list is read only where the owner alone does not decide.
    let may_write = || match access_list(base_path) {
        Some(list) => list.lets_write(base, meta),
        None => base.mode() & 0o020 != 0 && meta.gid() == base.gid(),
    };
    if ours || base.mode() & 0o002 != 0 || may_write() {
        return Ok(());
    }
    Err(refused(format!(
        "it belongs to user {}, who may not write the database: give it to the owner of the \
         database if it belongs to it, or move it away",
        meta.uid()
    )))
}

/// An access control list: entries of a kind, permissions and an id (acl(5)).
struct AccessList(Vec<(u16, u16, u32)>);

/// Returns the list of the file, if it has one that says more than its mode. (The kernel's form is
/// a version, then the entries.)
fn access_list(path: &Path) -> Option<AccessList> {
    let mut bytes = vec![0; 1 << 16];
    let n = rustix::fs::getxattr(path, "system.posix_acl_access", &mut bytes).ok()?;
    let entries = bytes[..n].get(4..)?.chunks_exact(8).map(|e| {
        let id = u32::from_le_bytes([e[4], e[5], e[6], e[7]]);
        (u16::from_le_bytes([e[0], e[1]]), u16::from_le_bytes([e[2], e[3]]), id)
    });
    Some(AccessList(entries.collect()))
}

impl AccessList {
    /// True if it lets the owner or the group of `meta` write a file of `base`'s owner and group.
    /// With a list the group bits of the mode are its mask, and the group has an entry of its own.
    fn lets_write(&self, base: &Metadata, meta: &Metadata) -> bool {
        let (user, own_group, group, mask, write) = (0x02, 0x04, 0x08, 0x10, 0o2);
        let is_masked = self.0.iter().any(|&(kind, may, _)| kind == mask && may & write == 0);
        let is_them = |kind, id| {
            (kind == user && id == meta.uid())
                || (kind == group && id == meta.gid())
                || (kind == own_group && base.gid() == meta.gid())
        };
        let may = |&(kind, may, id): &(u16, u16, u32)| is_them(kind, id) && may & write != 0;
        !is_masked && self.0.iter().any(may)
    }
}

/// Creates a side file with the permission bits `mode`, and the owner and group of the database as
/// far as this process may give them.
///
/// # Errors
/// Those of the system; `AlreadyExists` if anything is there, a link included.
pub fn create(path: &Path, mode: u32) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(FLAGS)
        .open(path)?;
    let file = above_standard_descriptors(file)?;
    if let Some(base) = base_metadata(path) {
        give_owner_of(&base, &file);
    }
    give_mode(&file, mode);
    overwrite_in_place(&file);
    Ok(file)
}

/// Opens a side file, or creates it with the permissions of the database.
///
/// # Errors
/// Those of [`open`] and [`create`].
pub fn open_or_create(path: &Path) -> Result<File> {
    let mode = || base_metadata(path).map_or(0o600, |base| base.mode() & 0o777);
    for _ in 0..TRIES {
        match open(path, true) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
            Ok(file) => {
                let first = first_bytes(&file)?;
                if !is_begun_as_ours(&first, &file, path)? {
                    return Err(refused(NOT_OURS));
                }
                if first.is_empty()
                    && file.metadata().is_ok_and(|m| m.uid() == rustix::process::geteuid().as_raw())
                {
                    give_mode(&file, mode());
                }
                return Ok(file);
            }
        }
        match create(path, mode()) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            other => return other,
        }
    }
    Err(refused("it appears and disappears"))
}

/// True if `path` is the name of this file.
pub fn is_named(file: &File, path: &Path) -> bool {
    named(file, path).is_some()
}

/// The metadata of this file, if `path` is its name.
pub fn named(file: &File, path: &Path) -> Option<Metadata> {
    let there = std::fs::symlink_metadata(path).ok()?;
    let own = file.metadata().ok()?;
    (there.ino() == own.ino() && there.dev() == own.dev()).then_some(own)
}

/// Removes the file's name, if that is still its name (SIDE-4).
pub fn remove(file: &File, path: &Path) -> Result<()> {
    if is_named(file, path) { std::fs::remove_file(path) } else { Ok(()) }
}

/// Removes the draft of a log that a dead process left, or what is in its place, except a file with
/// other content (SIDE-7). Of a link it removes the link, not its target.
///
/// # Errors
/// Those of the system, and a [`refusal`].
pub fn remove_draft(path: &Path) -> Result<()> {
    let there = match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        there => there?,
    };
    if there.is_dir() {
        return Err(refused("it is a directory: move it away"));
    }
    if !there.is_file() || there.len() == 0 {
        return std::fs::remove_file(path);
    }
    let file = open(path, false)?;
    if is_ours(&file, path)? { remove(&file, path) } else { Err(refused(NOT_OURS)) }
}

/// True if `path` is the name of a log's draft.
pub fn is_draft(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(DRAFT.as_bytes())
}

/// Gives a file the mode that the umask may have narrowed: a user that may open the database may
/// open its side files.
fn give_mode(file: &File, mode: u32) {
    if file.metadata().is_ok_and(|m| m.mode() & 0o777 != mode) {
        // A file system without permissions is no reason to stop.
        let _ = file.set_permissions(Permissions::from_mode(mode));
    }
}

/// Gives a file the owner and group of the database. Only root can give a file away; others can
/// give it to a group of theirs.
fn give_owner_of(base: &Metadata, file: &File) {
    let Ok(meta) = file.metadata() else { return };
    let is_root = rustix::process::geteuid().is_root();
    let uid = (is_root && meta.uid() != base.uid()).then_some(base.uid());
    let gid = (meta.gid() != base.gid()).then_some(base.gid());
    if uid.is_some() || gid.is_some() {
        let _ = fchown(file, uid, gid);
    }
}

/// Switches off copy-on-write for this empty file (btrfs): with it, a write to allocated space can
/// fail. Other file systems do not know the flag.
fn overwrite_in_place(file: &File) {
    if let Ok(flags) = rustix::fs::ioctl_getflags(file) {
        let _ = rustix::fs::ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

/// SIDE-5.
pub(crate) fn above_standard_descriptors(file: File) -> Result<File> {
    if file.as_raw_fd() > 2 {
        return Ok(file);
    }
    let higher: OwnedFd = rustix::io::fcntl_dupfd_cloexec(&file, 3)?;
    Ok(File::from(higher))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const VICTIM: &[u8] = b"somebody else's";

    fn scene() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().join("app.db");
        std::fs::write(&base, b"base").expect("a base");
        std::fs::set_permissions(&base, Permissions::from_mode(0o640)).expect("its mode");
        let victim = dir.path().join("victim");
        std::fs::write(&victim, VICTIM).expect("a victim");
        std::fs::set_permissions(&victim, Permissions::from_mode(0o600)).expect("its mode");
        let side = dir.path().join("app.db-plait-shm");
        (dir, victim, side)
    }

    fn untouched(victim: &Path) {
        assert_eq!(std::fs::read(victim).expect("it is there"), VICTIM);
        assert_eq!(std::fs::metadata(victim).expect("it is there").mode() & 0o777, 0o600);
    }

    fn why(result: Result<File>) -> String {
        refusal(&result.expect_err("it must be refused")).expect("refused, not failed")
    }

    // holds SIDE-1, SIDE-6
    #[test]
    fn links_to_other_files_are_refused() {
        let (_dir, victim, side) = scene();
        symlink(&victim, &side).expect("a link");
        assert!(why(open(&side, true)).contains("symbolic link"));
        assert!(why(open_or_create(&side)).contains("symbolic link"));
        assert_eq!(create(&side, 0o644).expect_err("it exists").kind(), ErrorKind::AlreadyExists);
        std::fs::remove_file(&side).expect("removed");
        symlink(side.with_extension("nothing"), &side).expect("a link to nothing");
        assert!(why(open_or_create(&side)).contains("symbolic link"));
        std::fs::remove_file(&side).expect("removed");
        std::fs::hard_link(&victim, &side).expect("a second name");
        assert!(why(open_or_create(&side)).contains("hard link"));
        assert!(why(open(&side, false)).contains("hard link"));
        untouched(&victim);
    }

    // holds SIDE-6
    #[test]
    fn side_files_that_a_backup_of_the_folder_has_linked_are_used() {
        let (dir, _victim, side) = scene();
        let log = dir.path().join("app.db-plait");
        std::fs::write(&side, [&SHARED_MEMORY_MAGIC.to_ne_bytes()[..], b"and more"].concat())
            .expect("a session");
        std::fs::write(&log, b"the log").expect("a log");
        std::fs::create_dir(dir.path().join("backup")).expect("a folder");
        for file in [&side, &log] {
            let name = file.file_name().expect("a name");
            std::fs::hard_link(file, dir.path().join("backup").join(name)).expect("a backup");
            open(file, true).expect("it is what it was");
        }
    }

    #[test]
    fn a_file_of_a_user_in_the_access_control_list_of_the_database_is_used() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files of others");
            return;
        }
        let (dir, _victim, side) = scene();
        let base = dir.path().join("app.db");
        let (alice, bob, mallory) = (1001, 1003, 1002);
        std::os::unix::fs::chown(&base, Some(alice), Some(alice)).expect("the database is hers");
        std::fs::write(&side, b"").expect("a side file");
        std::os::unix::fs::chown(&side, Some(bob), Some(bob)).expect("his");
        assert!(why(open_or_create(&side)).contains("user 1003"));
        let mut list = 2u32.to_le_bytes().to_vec();
        let nobody = u32::MAX;
        for (kind, may, id) in [
            (1u16, 6u16, nobody),
            (2, 6, bob),
            (2, 4, mallory),
            (4, 4, nobody),
            (16, 6, nobody),
            (32, 0, nobody),
        ] {
            list.extend(kind.to_le_bytes());
            list.extend(may.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(&base, "system.posix_acl_access", &list, flags).is_err() {
            eprintln!("skipped: the file system has no access control lists");
            return;
        }
        let gid = std::fs::metadata(&base).expect("there").gid();
        assert_eq!(gid, alice);
        open_or_create(&side).expect("he may write the database");
        std::os::unix::fs::chown(&side, Some(mallory), Some(mallory)).expect("his");
        assert!(why(open_or_create(&side)).contains("user 1002"), "he may only read");
        // With a list the group bits of the mode are its mask, and the group may only read.
        assert_ne!(std::fs::metadata(&base).expect("there").mode() & 0o020, 0);
        std::os::unix::fs::chown(&side, Some(mallory), Some(alice)).expect("his");
        assert!(why(open_or_create(&side)).contains("user 1002"), "his group may only read");
    }

    // holds SIDE-2
    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let (dir, _victim, side) = scene();
        std::fs::create_dir(&side).expect("a folder");
        assert!(why(open_or_create(&side)).contains("regular file"));
        assert!(why(open(&side, false)).contains("regular file"));
        std::fs::remove_dir(&side).expect("removed");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &side,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .expect("a pipe");
        assert!(why(open_or_create(&side)).contains("regular file"));
        assert!(why(open(&side, false)).contains("regular file"));
        drop(dir);
    }

    #[test]
    fn a_created_file_has_the_permissions_of_the_database() {
        let (_dir, _victim, side) = scene();
        let file = open_or_create(&side).expect("created");
        assert_eq!(file.metadata().expect("open").mode() & 0o777, 0o640);
        assert!(is_named(&file, &side));
        std::fs::write(&side, SHARED_MEMORY_MAGIC.to_ne_bytes()).expect("written");
        std::fs::set_permissions(&side, Permissions::from_mode(0o600)).expect("narrowed");
        let again = open_or_create(&side).expect("opened");
        assert_eq!(again.metadata().expect("open").mode() & 0o777, 0o600, "SIDE-3: it was there");
    }

    // holds SIDE-7
    #[test]
    fn what_holds_something_else_is_refused_and_what_was_cut_off_is_not() {
        let (dir, _victim, side) = scene();
        for (bytes, is_used) in [
            (VICTIM, false),
            (b"", true),
            (&[0; 5000][..], true),
            (&SHARED_MEMORY_MAGIC.to_ne_bytes()[..], true),
            (&SHARED_MEMORY_MAGIC.to_ne_bytes()[..3], true),
        ] {
            std::fs::write(&side, bytes).expect("written");
            assert_eq!(open_or_create(&side).is_ok(), is_used, "{bytes:?}");
            assert_eq!(std::fs::read(&side).expect("it is there"), bytes);
        }
        let draft = dir.path().join("app.db-plait-new");
        for (bytes, goes) in [(VICTIM, false), (b"", true), (&LOG_MAGIC, true), (&[0; 9], true)] {
            std::fs::write(&draft, bytes).expect("written");
            assert_eq!(remove_draft(&draft).is_ok(), goes, "{bytes:?}");
            assert_eq!(draft.exists(), !goes, "{bytes:?}");
        }
    }

    // holds SIDE-4
    #[test]
    fn a_name_that_now_belongs_to_another_file_is_not_removed() {
        let (_dir, victim, side) = scene();
        let file = open_or_create(&side).expect("created");
        std::fs::rename(&victim, &side).expect("replaced");
        remove(&file, &side).expect("nothing to do");
        untouched(&side);
    }

    // holds SIDE-2
    #[test]
    fn a_file_of_somebody_who_may_not_write_the_database_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files of others");
            return;
        }
        let (dir, _victim, side) = scene();
        let base = dir.path().join("app.db");
        let (alice, mallory, staff) = (1001, 1002, 2001);
        std::os::unix::fs::chown(&base, Some(alice), Some(staff)).expect("the database is hers");
        std::fs::write(&side, b"").expect("a side file");
        std::os::unix::fs::chown(&side, Some(mallory), Some(mallory)).expect("his");
        assert!(why(open_or_create(&side)).contains("user 1002"));
        std::fs::set_permissions(&base, Permissions::from_mode(0o660)).expect("for the group");
        assert!(why(open_or_create(&side)).contains("user 1002"), "he is not of the group");
        std::os::unix::fs::chown(&side, None, Some(staff)).expect("of the group");
        open_or_create(&side).expect("a member of the group has begun the session");
        let left = std::fs::metadata(&side).expect("there");
        assert_eq!((left.uid(), left.gid()), (mallory, staff), "SIDE-3: it is not given away");
        std::fs::remove_file(&side).expect("removed");
        let made = open_or_create(&side).expect("created").metadata().expect("open");
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (alice, staff, 0o660));
    }
}

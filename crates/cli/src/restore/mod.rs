//! `plait restore`: a backup in the place of a database, whatever stands there.
//!
//! | module | concept |
//! |---|---|
//! | [`replica`] | a replica in place of a backup: handed over to `plait-replicate` |
//! | [`swap`] | the renames, and who may be killed between them |
//!
//! The backup is copied into the folder of the database first, as `plait backup` copies (`copy`): so it is checked, and may be a
//! database in use or with files beside it. Files that nobody uses are brought into a private copy (`copy/scratch.rs`): the backup is only read. What stood there is neither opened nor changed, since it may be what is damaged.

mod replica;
mod swap;

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::console::{self, GOOD, styled};
use crate::copy::scratch::{self, Scratch};
use crate::copy::{self, Plan, Thoroughness, WholeCopy, leftovers};
use crate::failure::{self, Failure, Result};
use crate::follows;
use crate::inspect::base::BaseFile;
use crate::inspect::{Inspection, SIDE_FILES, barrier, base_beside, beside, users};
use crate::{convert, os};

/// Links that are followed.
const LINKS_MAX: usize = 40;

/// Arguments of `plait restore`.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// The backup, with the files that lie beside it; it is only read. With -o: the URL of a replica
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// The database that it is to be
    #[arg(value_name = "FILE", required_unless_present = "output", conflicts_with = "output")]
    file: Option<PathBuf>,
    #[command(flatten)]
    replica: replica::ReplicaArgs,
    /// Journal mode that the file gets; otherwise that of what stood there, or of the backup
    #[arg(long, value_enum, value_name = "MODE")]
    to: Option<Mode>,
    /// How the backup is checked before anything is changed
    #[arg(long, value_enum, default_value_t = Thoroughness::Quick, value_name = "HOW")]
    check: Thoroughness,
}

/// The command's name, which the help does not show: `plait-replicate restore --force` runs it before it
/// begins, which may take hours.
pub const LOOK_COMMAND: &str = "look-before-restore";

/// Arguments of `plait look-before-restore`.
#[derive(Args, Debug)]
pub struct LookArgs {
    /// The database that is to be replaced, or made
    file: PathBuf,
}

/// Journal modes that persist in a file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// Many writers.
    Concurrent,
    /// Write-ahead log: one writer, many readers.
    Wal,
    /// Rollback journal.
    Delete,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Concurrent => "concurrent",
            Mode::Wal => "wal",
            Mode::Delete => "delete",
        }
    }
}

/// A backup in the place of a database.
struct Request<'a> {
    backup: &'a PathBuf,
    file: &'a PathBuf,
    to: Option<Mode>,
    check: Thoroughness,
}

/// Restores.
pub fn run(args: &RestoreArgs) -> Result<u8> {
    match &args.file {
        Some(file) => {
            put_in_place(&Request { backup: &args.backup, file, to: args.to, check: args.check })
        }
        None => replica::hand_over(&args.backup, &args.replica),
    }
}

/// Fails where a restore to this file would be refused now, whatever the backup is.
pub fn look(args: &LookArgs) -> Result<u8> {
    let path = follow(&args.file)?;
    old_file(&path, &args.file)?;
    follows::refuse_running(&path, &args.file)?;
    users::refuse(&path, &all_of(&path))?;
    Ok(failure::OK)
}

fn put_in_place(args: &Request<'_>) -> Result<u8> {
    let (shown, backup_shown) = (args.file.display(), args.backup.display());
    let path = follow(args.file)?;
    let old = old_file(&path, args.file)?;
    refuse_itself(args, &path, old.as_ref())?;
    let backup = sound_backup(args.backup)?;
    follows::refuse_running(&path, args.file)?;
    users::refuse(&path, &all_of(&path))?;
    os::note_interrupts();
    leftovers::warn(&path, leftovers::RESTORE);
    let before = mode_before(&path);
    let wanted = args.to.map(Mode::name).or(before);
    let own = std::fs::metadata(&backup.path).map_err(|e| Failure::io("read", args.backup, &e))?;
    let is_alone = copy::is_alone(&backup);
    let is_private =
        !is_alone && copy::has_neighbours(&backup) && users::refuse_any(&backup.path).is_ok();
    let backup = if is_alone || is_private { copy::at_rest(args.backup)? } else { backup };
    let private = if is_private { Some(scratch::recovered(&backup, args.backup)?) } else { None };
    let new = WholeCopy::make(&Plan {
        source: &private.as_ref().map_or_else(|| backup.path.clone(), Scratch::database),
        shown: args.backup,
        is_alone,
        target: &path,
        infix: leftovers::RESTORE,
        permissions: own.mode() & 0o777,
        mode: wanted,
        check: args.check,
    })?;
    if (is_alone || is_private) && backup.has_moved() {
        return Err(copy::moved(args.backup));
    }
    if let Some(old) = &old {
        give_rights(&new, old, args.file)?;
    }
    swap::refuse_others(&path, &new)?;
    let (told, mode, misses_mode) = (new.told(), new.mode, new.misses_mode.clone());
    let kept = swap::swap(&path, new)?;
    if let Some(why) = misses_mode {
        let what = format!("{shown} could not be put into mode {}: {why}", wanted.unwrap_or(mode));
        console::warn(&what, "nothing is missing in it");
    }
    let as_before = if before == Some(mode) { ", as before" } else { "" };
    anstream::println!("{}: restored from {backup_shown}, {told}{as_before}", styled(GOOD, &shown));
    say_kept(&kept, args.file.is_symlink());
    Ok(failure::OK)
}

/// The database, under whatever name, and what belongs to one.
fn refuse_itself(args: &Request<'_>, path: &Path, old: Option<&Metadata>) -> Result<()> {
    let (shown, backup) = (args.file.display(), args.backup.display());
    let identity = |meta: &Metadata| (meta.dev(), meta.ino());
    let of_backup = std::fs::metadata(args.backup).ok().map(|meta| identity(&meta));
    if old.is_some() && old.map(identity) == of_backup {
        if barrier::aside(path).is_some() {
            return Err(Failure::new(
                format!(
                    "a restore of {shown} was cut off, and {backup} may miss files that still stand beside {shown}"
                ),
                format!(
                    "end it first, with the backup of that time or another: `plait restore BACKUP {shown}`; then run this command"
                ),
            ));
        }
        return Err(Failure::usage(
            format!("{backup} is the database itself, under this name or another"),
            "name the backup that is to be put in its place",
        ));
    }
    match base_beside(path) {
        None => Ok(()),
        Some(base) => Err(Failure::usage(
            format!(
                "{shown} is the name of a file that belongs to the database {}",
                base.display()
            ),
            "give the path of the database",
        )),
    }
}

/// `is_elsewhere`: not in the folder that the user has named.
fn say_kept(kept: &[PathBuf], is_elsewhere: bool) {
    let Some((first, others)) = kept.split_first() else { return };
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let place = first;
    let first = name(first);
    let others: Vec<_> = others.iter().map(|path| name(path)).collect();
    let others: Vec<_> =
        others.iter().map(|other| other.strip_prefix(&first).unwrap_or(other)).collect();
    let with =
        if others.is_empty() { String::new() } else { format!(" (with {})", others.join(", ")) };
    let kept =
        if is_elsewhere { place.display().to_string() } else { format!("beside it as {first}") };
    let as_what = if is_elsewhere { "as " } else { "" };
    anstream::println!(
        "what stood there is kept {as_what}{kept}{with}; remove it when you are sure"
    );
}

/// Fails if nobody could open the backup.
fn sound_backup(shown: &Path) -> Result<Inspection> {
    let backup = Inspection::of(shown)?;
    if backup.base.is_empty() {
        return Err(Failure::new(
            format!("{} is empty: there is no database in it", shown.display()),
            "check the path",
        ));
    }
    convert::refuse_if_broken(&backup, shown)?;
    Ok(backup)
}

/// Where the links of a path lead, which need not be there. A barrier is not followed.
fn follow(shown: &Path) -> Result<PathBuf> {
    let mut path = shown.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let is_folder = path.as_os_str().as_bytes().ends_with(b"/");
        let Some(name) = path.file_name().filter(|_| !is_folder) else {
            return Err(Failure::usage(
                format!("{} is the name of a directory", shown.display()),
                "give the path of the database",
            ));
        };
        let folder =
            folder.canonicalize().map_err(|e| Failure::io("find the folder", folder, &e))?;
        let place = folder.join(name);
        match std::fs::read_link(&place) {
            Ok(to) if barrier::aside(&place).is_none() => path = folder.join(to),
            _ => return Ok(place),
        }
    }
    let e = io::Error::from_raw_os_error(libc::ELOOP);
    Err(Failure::io("open", shown, &e))
}

/// The database file that stands there, or stood before a restore was cut off; `None` if there is none.
fn old_file(path: &Path, shown: &Path) -> Result<Option<Metadata>> {
    let aside = barrier::aside(path);
    let old = match std::fs::symlink_metadata(aside.as_deref().unwrap_or(path)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        old => old.map_err(|e| Failure::io("look at", shown, &e))?,
    };
    if old.is_file() {
        return Ok(Some(old));
    }
    let kind = if old.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::InvalidInput };
    let e = io::Error::new(
        kind,
        if old.is_dir() { "is a directory" } else { "it is not a regular file" },
    );
    Err(Failure::io("replace", shown, &e))
}

/// The names of a database's files.
fn all_of(path: &Path) -> Vec<PathBuf> {
    let aside = barrier::aside(path);
    let all = [""].into_iter().chain(SIDE_FILES);
    all.map(|suffix| beside(path, suffix)).chain(aside).collect()
}

/// The journal mode of what stands there, or stood before a restore was cut off, if that can be told.
fn mode_before(path: &Path) -> Option<&'static str> {
    let header = match barrier::aside(path) {
        Some(aside) => BaseFile::read(&aside).ok()?.header?,
        None => match Inspection::as_it_moves(path) {
            Ok(state) if !state.base.is_empty() => state.header,
            // Something stands in the way of a look at all of it.
            _ => BaseFile::read(path).ok()?.header?,
        },
    };
    let mode = header.mode();
    ["concurrent", "wal", "delete"].contains(&mode).then_some(mode)
}

/// The rights of the old file.
fn give_rights(new: &WholeCopy, old: &Metadata, shown: &Path) -> Result<()> {
    if new.give_to(old.uid(), old.gid()).is_err() {
        let what = format!(
            "{} belongs to you from now on: only root can give it back to user {} and group {}",
            shown.display(),
            old.uid(),
            old.gid()
        );
        console::warn(&what, "let its owner restore it, if that is somebody else");
    }
    new.permit(old.permissions().mode() & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn links_are_followed_to_where_the_database_is_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let link = |name: &str, to: &str| std::os::unix::fs::symlink(to, real.join(name)).unwrap();
        std::fs::create_dir(real.join("data")).unwrap();
        link("a.db", "data/b.db");
        link("data/b.db", "../c.db");
        assert_eq!(follow(&real.join("a.db")).unwrap(), real.join("c.db"));
        link("d.db", "d.db");
        assert!(follow(&real.join("d.db")).unwrap_err().what.contains("too many levels"));
        barrier::put(&real.join("e.db"), OsStr::new("e.db"), OsStr::new("e.db-before")).unwrap();
        assert_eq!(follow(&real.join("e.db")).unwrap(), real.join("e.db"));
        assert_eq!(follow(&real.join("data/")).unwrap_err().code, failure::USAGE);
    }
}

//! `plait backup`: a whole copy of a database while others write it.
//!
//! The target is a whole copy, or it is what it was: the copy is made and checked under another name (`copy`), and renamed.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use plait_engine::storage::Storage as _;
use plait_engine::storage::os::OsStorage;

use crate::console::{self, GOOD, styled};
use crate::copy::scratch::{self, Scratch};
use crate::copy::{self, Plan, Thoroughness, WholeCopy, leftovers};
use crate::failure::{self, Failure, Result, quoted};
use crate::inspect::{Inspection, SIDE_FILES, barrier, base_beside, beside, openers, users};
use crate::{convert, os, status};

/// Arguments of `plait backup`.
#[derive(Args, Debug)]
pub struct BackupArgs {
    /// The database
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the copy is to stand
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// Put the copy in the place of a file that is there
    #[arg(long)]
    force: bool,
    /// How the copy is checked before it gets its name
    #[arg(long, value_enum, default_value_t = Thoroughness::Quick, value_name = "HOW")]
    check: Thoroughness,
}

/// Makes the copy.
pub fn run(args: &BackupArgs) -> Result<u8> {
    let state = Inspection::of(&args.file)?;
    convert::refuse_if_broken(&state, &args.file)?;
    if state.lost_by_opening().is_some() {
        let shown = args.file.display();
        return Err(Failure::new(
            format!("{shown} is empty, and its content may be in the files beside it"),
            format!(
                "put the database file back; `plait check {shown}` tells what stands beside it"
            ),
        ));
    }
    let dest = Destination::of(args, &state)?;
    os::note_interrupts();
    leftovers::warn(&dest.path, leftovers::BACKUP);
    let own = std::fs::metadata(&state.path).map_err(|e| Failure::io("read", &args.file, &e))?;
    let replaced = dest.there.as_ref();
    // There SQLite could not read it: it makes files beside a database to read it.
    let folder = state.path.parent().unwrap_or(Path::new("/"));
    let is_alone = copy::is_alone(&state) && (!os::is_writable(folder) || copy::lacks_room(&state));
    // Nor can it there, where nobody else has made these files, bring in what killed programs have left.
    let is_private =
        !is_alone && copy::lacks_room(&state) && users::refuse_any(&state.path).is_ok();
    let state = if is_alone || is_private { copy::at_rest(&args.file)? } else { state };
    let private = if is_private { Some(scratch::recovered(&state, &args.file)?) } else { None };
    let copy = WholeCopy::make(&Plan {
        source: &private.as_ref().map_or_else(|| state.path.clone(), Scratch::database),
        shown: &args.file,
        is_alone,
        target: &dest.path,
        infix: leftovers::BACKUP,
        permissions: replaced.unwrap_or(&own).mode() & 0o777,
        mode: None,
        check: args.check,
    })?;
    if (is_alone || is_private) && state.has_moved() {
        return Err(copy::moved(&args.file));
    }
    let (told, misses_mode) = (copy.told(), copy.misses_mode.clone());
    if let Some(replaced) = replaced {
        // Only root can, and nobody else needs to.
        let _ = copy.give_to(replaced.uid(), replaced.gid());
        copy.permit(replaced.mode() & 0o777)?;
    }
    dest.refuse_neighbours()?;
    copy.rename(&dest.path, args.force).map_err(|e| dest.refused(&e))?;
    OsStorage
        .sync_dir_of(&dest.path)
        .map_err(|e| Failure::io("sync the folder of", &dest.path, &e))?;
    if let Some(why) = misses_mode {
        let what = format!(
            "{} is not in the journal mode of {}: {why}",
            args.dest.display(),
            args.file.display()
        );
        console::warn(&what, "nothing is missing in it; switch the mode where it is put back");
    }
    anstream::println!(
        "{}: a copy of {}, {told}",
        styled(GOOD, args.dest.display()),
        args.file.display()
    );
    Ok(failure::OK)
}

/// Where the copy goes.
struct Destination<'a> {
    shown: &'a Path,
    path: PathBuf,
    /// What stands there.
    there: Option<Metadata>,
}

impl Destination<'_> {
    fn of<'a>(args: &'a BackupArgs, state: &Inspection) -> Result<Destination<'a>> {
        let shown = args.dest.as_path();
        let path = place(shown)?;
        let there = match std::fs::symlink_metadata(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            there => Some(there.map_err(|e| Failure::io("look at", shown, &e))?),
        };
        let dest = Destination { shown, path, there };
        dest.refuse_itself(state)?;
        dest.refuse_what_stands_there(args.force)?;
        dest.refuse_neighbours()?;
        Ok(dest)
    }

    /// The database, under whatever name, and what belongs to it.
    fn refuse_itself(&self, state: &Inspection) -> Result<()> {
        let dest = self.shown.display();
        let leads_to = std::fs::metadata(&self.path).ok();
        if leads_to.is_some_and(|meta| (meta.dev(), meta.ino()) == state.base.identity) {
            return Err(Failure::usage(
                format!("{dest} is the database itself, under this name or another"),
                "name another place for the copy",
            ));
        }
        match base_beside(&self.path) {
            None => Ok(()),
            Some(base) => Err(Failure::usage(
                format!(
                    "{dest} is the name of a file that belongs to the database {}",
                    base.display()
                ),
                "name another place for the copy",
            )),
        }
    }

    fn refuse_what_stands_there(&self, force: bool) -> Result<()> {
        let Some(meta) = &self.there else { return Ok(()) };
        let shown = self.shown.display();
        if meta.is_dir() {
            let system = std::io::Error::from(ErrorKind::IsADirectory);
            return Err(Failure::new(
                format!("cannot write {shown}: {}", failure::said(&system)),
                format!("name a file in it: {}", self.shown.join("backup.db").display()),
            ));
        }
        if let Some(aside) = barrier::aside(&self.path) {
            return Err(barrier::refusal(self.shown, &aside));
        }
        if meta.is_symlink() {
            let to = std::fs::read_link(&self.path).unwrap_or_default();
            let advice = match self.path.canonicalize() {
                Ok(real) => {
                    format!("name the file that it leads to, {}, or remove the link", quoted(&real))
                }
                Err(_) => {
                    "remove the link, which leads to no file, or name another place".to_owned()
                }
            };
            return Err(Failure::new(
                format!("{shown} is a symbolic link to {}", to.display()),
                advice,
            ));
        }
        if !meta.is_file() {
            return Err(Failure::new(
                format!("cannot write {shown}: it is not a regular file"),
                "name another place for the copy",
            ));
        }
        if !force {
            return Err(Failure::new(
                format!("{shown} is there already"),
                "name another place for the copy, or give --force to put the copy in the place of that file",
            ));
        }
        let openers = openers::of(&[(meta.dev(), meta.ino())]);
        if openers.pids.is_empty() {
            return Ok(());
        }
        Err(Failure::new(
            format!("{shown} is open in {}", status::people(&openers.pids)),
            "close these programs, or name another place for the copy",
        ))
    }

    /// SQLite would take them for files of the copy.
    fn refuse_neighbours(&self) -> Result<()> {
        let of_database = SIDE_FILES.iter().map(|suffix| beside(&self.path, suffix));
        match of_database.into_iter().find(|side| std::fs::symlink_metadata(side).is_ok()) {
            None => Ok(()),
            Some(side) => Err(Failure::new(
                format!(
                    "{} is there, and belongs to another database of the name {}",
                    side.display(),
                    self.shown.display()
                ),
                "name another place for the copy; to put a backup in the place of a database use `plait restore`",
            )),
        }
    }

    fn refused(&self, e: &std::io::Error) -> Failure {
        let shown = self.shown.display();
        if e.kind() == ErrorKind::AlreadyExists {
            return Failure::new(
                format!("{shown} was made by somebody else meanwhile, and is as it was"),
                "name another place for the copy",
            );
        }
        Failure::io("put the copy in the place of", &self.path, e)
    }
}

/// The path with its folder's links followed, and not its own.
fn place(shown: &Path) -> Result<PathBuf> {
    let is_folder = shown.as_os_str().as_bytes().ends_with(b"/");
    let Some(name) = shown.file_name().filter(|_| !is_folder) else {
        return Err(Failure::usage(
            format!("{} is the name of a directory", shown.display()),
            "give the name of the file that the copy is to be",
        ));
    };
    let folder = match shown.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let real = folder.canonicalize().map_err(|e| Failure::io("find the folder", folder, &e))?;
    Ok(real.join(name))
}

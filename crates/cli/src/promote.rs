//! `plait promote`: a replica becomes a database of its own.
//!
//! While this process has the lock of the follower, so that none begins meanwhile, it removes the mark, and then makes the file one that SQLite
//! without Plait may write, too. Killed between, it leaves what a copy of a replica without its mark is: nobody writes that, and a second
//! `plait promote` ends the work (`csrc/follows.c`, FOLLOWS-5).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use plait_engine::replica;
use plait_engine::storage::Storage as _;
use plait_engine::storage::names::{follows_lock_path, follows_path};
use plait_engine::storage::os::OsStorage;

use crate::console::{GOOD, NOTICE, styled};
use crate::failure::{self, Failure, Result, quoted};
use crate::follows;
use crate::inspect::Inspection;

/// Arguments of `plait promote`.
#[derive(Args, Debug)]
pub struct PromoteArgs {
    /// The replica
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Removes the mark, and has the file say so.
pub fn run(args: &PromoteArgs) -> Result<u8> {
    let shown = args.file.display();
    let path = args.file.canonicalize().map_err(|e| Failure::io("open", &args.file, &e))?;
    let none = || {
        Failure::new(
            format!("{shown} follows no primary: it can be written as it is"),
            format!("`plait status {}` tells what it is", quoted(&args.file)),
        )
    };
    if !replica::is_marked(&path) && !is_copy(&path, &args.file)? {
        return Err(none());
    }
    let lock = follows::lock(&path, &args.file)?;
    let was = match replica::read(&path) {
        Ok(None) if is_copy(&path, &args.file)? => "it was a copy of a replica".to_owned(),
        Ok(None) => return Err(none()),
        Ok(Some(mark)) => {
            format!("it followed {}, and was {}", mark.place, follows::reached(&mark))
        }
        Err(e) => format!("how far it was is not known: {e}"),
    };
    remove_mark(&path)?;
    plait_sqlite::heed_mark(&path).map_err(|why| {
        Failure::new(
            format!("{shown} follows nothing any more, and still cannot be written: {why}"),
            format!("run `plait promote {}` again", quoted(&args.file)),
        )
    })?;
    // Nobody looks for it without the mark.
    let _ = std::fs::remove_file(follows_lock_path(&path));
    drop(lock);
    anstream::println!("{} can be written from its next opening on: {was}", styled(GOOD, shown));
    anstream::println!(
        "{}",
        styled(
            NOTICE,
            "write the primary no more: the two would differ from here on; programs that have this one open can only read \
             until they open it again"
        )
    );
    Ok(failure::OK)
}

/// The file says that it is a replica at rest.
fn is_copy(path: &Path, shown: &Path) -> Result<bool> {
    let state = Inspection::as_it_moves(shown)?;
    Ok(follows::Replica::of(path, state.header).is_some_and(|replica| replica.is_copy))
}

/// Durably, if there is one.
fn remove_mark(path: &Path) -> Result<()> {
    let mark = follows_path(path);
    match std::fs::remove_file(&mark) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(Failure::io("remove", &mark, &e)),
        _ => {}
    }
    OsStorage.sync_dir_of(&mark).map_err(|e| Failure::io("sync the folder of", &mark, &e))
}

//! `plait promote`: a replica becomes a database of its own.
//!
//! The mark is removed while this process has the lock of the follower, so that none begins meanwhile.

use std::path::PathBuf;

use clap::Args;
use plait_engine::replica;
use plait_engine::storage::Storage as _;
use plait_engine::storage::names::{follows_lock_path, follows_path};
use plait_engine::storage::os::OsStorage;

use crate::console::{GOOD, NOTICE, styled};
use crate::failure::{self, Failure, Result, quoted};
use crate::follows;

/// Arguments of `plait promote`.
#[derive(Args, Debug)]
pub struct PromoteArgs {
    /// The replica
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Removes the mark.
pub fn run(args: &PromoteArgs) -> Result<u8> {
    let shown = args.file.display();
    let path = args.file.canonicalize().map_err(|e| Failure::io("open", &args.file, &e))?;
    let none = || {
        Failure::new(
            format!("{shown} follows no primary: it can be written as it is"),
            format!("`plait status {}` tells what it is", quoted(&args.file)),
        )
    };
    if !replica::is_marked(&path) {
        return Err(none());
    }
    let lock = follows::lock(&path, &args.file)?;
    let was = match replica::read(&path) {
        Ok(None) => return Err(none()),
        Ok(Some(mark)) => {
            format!("it followed {}, and was {}", mark.place, follows::reached(&mark))
        }
        Err(e) => format!("how far it was is not known: {e}"),
    };
    let mark = follows_path(&path);
    std::fs::remove_file(&mark).map_err(|e| Failure::io("remove", &mark, &e))?;
    OsStorage.sync_dir_of(&mark).map_err(|e| Failure::io("sync the folder of", &mark, &e))?;
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

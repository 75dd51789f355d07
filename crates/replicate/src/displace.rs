//! A restored database in the place of what stands there, by `plait restore`, which knows who uses it,
//! what belongs to it, and what to do after a kill.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name beside which the database is made.
pub fn beside(output: &Path) -> PathBuf {
    let mut name = OsString::from(output);
    name.push(".restored");
    name.into()
}

/// Looks whether `plait` is there, and would replace the file now: before hours of work that need that
/// at their end. It looks again then.
///
/// # Errors
/// In words; `plait` has said why.
pub fn refuse_early(output: &Path) -> Result<(), String> {
    let plait = plait()?;
    match Command::new(&plait).arg("look-before-restore").arg(output).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{} cannot be replaced now: nothing was restored", output.display())),
        Err(error) => Err(missing(&plait, &error)),
    }
}

fn plait() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("cannot tell where it is: {e}"))?;
    Ok(own.with_file_name("plait"))
}

fn missing(plait: &Path, error: &std::io::Error) -> String {
    format!("cannot run {}, which --force needs: {error}; restore to another name", plait.display())
}

/// Puts a database in the place of what stands there, and removes it where it was made. After a failure
/// it is kept as `beside(output)`, which no restore removes: the next one with --force is refused while
/// it is there.
///
/// # Errors
/// In words, with the command that goes on: `plait restore` has said why.
pub fn put(made: PathBuf, output: &Path) -> Result<(), String> {
    // Where nothing stands whose rights it gets, it gets those of a new file.
    let done = match std::fs::symlink_metadata(output) {
        Ok(_) => Ok(()),
        Err(_) => plait_replicate::new_file::give_rights_of_new(&made)
            .map_err(|error| format!("cannot set the permissions of {}: {error}", made.display())),
    };
    match done.and_then(|()| restore(&made, output)) {
        Ok(()) => {
            let _ = std::fs::remove_file(&made);
            Ok(())
        }
        Err(why) => {
            // Under the name that it has now the next restore would take it for what a killed one left.
            let kept = beside(output);
            let kept = std::fs::hard_link(&made, &kept)
                .and_then(|()| std::fs::remove_file(&made))
                .map_or(made, |()| kept);
            Err(format!(
                "{why}; the restored database is kept in {0}: go on with plait restore '{0}' '{1}', \
                 then remove it",
                kept.display(),
                output.display()
            ))
        }
    }
}

fn restore(made: &Path, output: &Path) -> Result<(), String> {
    let plait = plait()?;
    // It says itself what it has put aside.
    let status = Command::new(&plait).arg("restore").arg(made).arg(output).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{} was not replaced", output.display())),
        Err(error) => Err(missing(&plait, &error)),
    }
}

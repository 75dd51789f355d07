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

/// Puts a database in the place of what stands there; removes it where it was made.
///
/// # Errors
/// In words: `plait restore` has said why.
pub fn put(made: PathBuf, output: &Path) -> Result<(), String> {
    // Where nothing stands whose rights it gets, it gets those of a new file.
    let done = match std::fs::symlink_metadata(output) {
        Ok(_) => Ok(()),
        Err(_) => plait_replicate::new_file::give_rights_of_new(&made)
            .map_err(|error| format!("cannot set the permissions of {}: {error}", made.display())),
    };
    let done = done.and_then(|()| restore(&made, output));
    let _ = std::fs::remove_file(&made);
    done
}

fn restore(made: &Path, output: &Path) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|e| format!("cannot tell where it is: {e}"))?;
    let plait = own.with_file_name("plait");
    // It says itself what it has put aside.
    let status = Command::new(&plait).arg("restore").arg(made).arg(output).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{} was not replaced", output.display())),
        Err(error) => Err(format!(
            "cannot run {}, which --force needs: {error}; restore to another name",
            plait.display()
        )),
    }
}

//! What is refused before anything is measured: it would make every trial fail, or the machine.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::medium;

/// Files that a trial with a hundred connections may have open: some engines open a dozen for each.
const OPEN_FILES: u64 = 4096;

/// The limit is raised no further: some programs try to close every file that they might have.
const OPEN_FILES_AT_MOST: u64 = 65_536;

/// Checks media and limits, and raises the limit of open files for this process and all that it starts.
///
/// # Errors
/// Says what is missing and what to do.
pub fn check(directories: &[PathBuf], needed_bytes: u64) -> anyhow::Result<()> {
    raise_open_files()?;
    for directory in directories {
        check_directory(directory, needed_bytes)?;
    }
    Ok(())
}

fn check_directory(directory: &Path, needed_bytes: u64) -> anyhow::Result<()> {
    let shown = directory.display();
    if !directory.is_dir() {
        bail!("--dir {shown}: no such directory; make it, or give another");
    }
    tempfile::Builder::new()
        .prefix("plait-bench-")
        .tempdir_in(directory)
        .with_context(|| format!("--dir {shown}: cannot write there; give another directory"))?;
    let free = medium::free_bytes(directory)
        .with_context(|| format!("--dir {shown}: cannot tell how much is free there"))?;
    if free < needed_bytes {
        let mebibytes = |bytes: u64| bytes >> 20;
        bail!(
            "--dir {shown}: {} MiB are free and the largest trial may need {}; make room, or give another directory",
            mebibytes(free),
            mebibytes(needed_bytes)
        );
    }
    Ok(())
}

fn raise_open_files() -> anyhow::Result<()> {
    let (soft, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).context("cannot tell the limit of open files")?;
    let wanted = hard.min(OPEN_FILES_AT_MOST);
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
            .context("cannot raise the limit of open files")?;
    }
    if hard < OPEN_FILES {
        bail!(
            "at most {hard} files may be open, and a trial with a hundred connections needs {OPEN_FILES}; raise the \
             limit with `ulimit -n {OPEN_FILES}`"
        );
    }
    Ok(())
}

/// What to say beside the failure of a trial whose medium is full.
#[must_use]
pub fn fullness(directory: &Path) -> Option<String> {
    const FULL_BYTES: u64 = 64 << 20;
    let free = medium::free_bytes(directory)?;
    (free < FULL_BYTES)
        .then(|| format!("only {} KiB are free on {}", free >> 10, directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_refused() {
        let error = check(&["/nowhere/at/all".into()], 0).expect_err("refused").to_string();
        assert!(error.contains("/nowhere/at/all") && error.contains("no such directory"));
    }

    #[test]
    fn a_medium_without_room_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = check(&[directory.path().into()], u64::MAX).expect_err("refused").to_string();
        assert!(error.contains("MiB are free"), "{error}");
    }

    #[test]
    fn the_limit_of_open_files_is_raised_as_far_as_it_may_be() {
        check(&[], 0).unwrap();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(soft >= hard.min(OPEN_FILES_AT_MOST));
    }
}

//! Small disks that can be filled, and programs that may not write.

use crate::os::is_root;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The user that owns nothing.
const NOBODY: u32 = 65534;
/// How long a disk may be busy.
const REMOUNT_PATIENCE: Duration = Duration::from_secs(5);

/// A file system in memory of a few MiB, unmounted when dropped.
pub struct SmallDisk {
    place: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one, or says why not.
    ///
    /// # Panics
    /// If no temporary directory can be made.
    #[must_use]
    pub fn mount(mebibytes: u64) -> Option<Self> {
        if !is_root() {
            eprintln!("skipped: only root can mount a small disk");
            return None;
        }
        let place = tempfile::Builder::new().prefix("plait-disk-").tempdir().expect("a directory");
        let size = format!("size={mebibytes}m,mode=755");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "plait-test"])
            .arg(place.path())
            .output();
        if mounted.as_ref().is_ok_and(|output| output.status.success()) {
            return Some(Self { place });
        }
        eprintln!("skipped: no small disk can be mounted: {mounted:?}");
        None
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// The database on it.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path().join("app.db")
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Fills it, but for so many bytes.
    ///
    /// # Panics
    /// If the ballast cannot be made.
    pub fn fill_but(&self, free: u64) {
        let mut file =
            File::options().create(true).append(true).open(self.ballast()).expect("ballast");
        let block = vec![1u8; 4096];
        while file.write_all(&block).is_ok() {}
        let length = file.metadata().expect("its length").len();
        file.set_len(length.saturating_sub(free)).expect("it can be cut");
    }

    /// Copies what is on it, for a look at what went wrong.
    pub fn save(&self, folder: &Path) {
        let from = self.path().join(".");
        let _ = Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(folder).status();
    }

    /// Gives the space back.
    ///
    /// # Panics
    /// If the ballast cannot be removed.
    pub fn empty(&self) {
        // Cut first: removing it gives nothing back while a program that another test starts still has it open.
        let ballast = File::options().write(true).open(self.ballast());
        ballast.and_then(|file| file.set_len(0)).expect("the ballast can be cut");
        std::fs::remove_file(self.ballast()).expect("the ballast can be removed");
    }

    /// Mounts it anew for reading only, or for writing again.
    ///
    /// Repeated for a while: a program that another test of this process starts has its open files until it is running.
    ///
    /// # Panics
    /// If that fails.
    pub fn remount(&self, how: &str) {
        let begun = Instant::now();
        loop {
            let output = Command::new("mount")
                .args(["-o", &format!("remount,{how}")])
                .arg(self.path())
                .output()
                .expect("mount runs");
            if output.status.success() {
                return;
            }
            assert!(begun.elapsed() < REMOUNT_PATIENCE, "{output:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.place.path()).output();
    }
}

/// Runs SQL in the shell as a user who owns nothing; what it printed, or its complaint. `None` where that cannot be done.
///
/// # Panics
/// If the shell cannot be run for another reason than its place.
#[must_use]
pub fn as_nobody(database: &Path, sql: &str) -> Option<Result<String, String>> {
    if !is_root() {
        eprintln!("skipped: only root can become somebody else");
        return None;
    }
    let shell = crate::paths::shell().unwrap_or_else(|error| panic!("{error:#}"));
    let output = Command::new(shell).arg(database).arg(sql).uid(NOBODY).gid(NOBODY).output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: nobody cannot run the shell: {error}");
            return None;
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let complaint = text(&output.stderr);
    Some(if output.status.success() && complaint.is_empty() {
        Ok(text(&output.stdout))
    } else {
        Err(complaint)
    })
}

//! A sidecar that ships what a trial writes to a folder beside the database: it costs the writers processor
//! time and disk, and no commit waits for it.

use crate::paths;
use crate::sqlite::Connection;
use crate::subject::Subject;
use anyhow::{Context as _, bail, ensure};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to begin, and to ship what is left at its end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `plait-replicate`.
pub struct Sidecar {
    process: Child,
}

impl Sidecar {
    /// Starts it for `database`, which `connection` has open, and waits until it ships.
    ///
    /// # Errors
    /// It does not start, or ends, or ships nothing.
    pub fn start(
        subject: &Subject,
        database: &Path,
        connection: &Connection,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(paths::replicate(&subject.library)?);
        command.arg("run").arg(database.with_extension("replica")).arg(database);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().context("cannot start plait-replicate")?;
        let since = Instant::now();
        let ships = "SELECT count(*) FROM plait_status WHERE name='replicated_lsn' AND value>0";
        while connection.integer(ships)? == 0 {
            if let Some(status) = process.try_wait()? {
                bail!("plait-replicate has ended at its start: {status}");
            }
            ensure!(since.elapsed() < PATIENCE, "plait-replicate ships nothing");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { process })
    }

    /// Ends it, as a service manager does.
    ///
    /// # Errors
    /// It has not shipped everything, or not in [`PATIENCE`].
    pub fn end(mut self) -> anyhow::Result<()> {
        crate::os::signal(self.process.id(), libc::SIGTERM)?;
        let since = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait()? {
                ensure!(status.success(), "plait-replicate has not shipped everything: {status}");
                return Ok(());
            }
            ensure!(since.elapsed() < PATIENCE, "plait-replicate does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // After an error; it may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

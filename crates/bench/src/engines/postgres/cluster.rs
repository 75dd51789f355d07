//! A cluster of its own for a trial: made, started, stopped.
//!
//! The process that finds no cluster in the directory makes one and owns the server; others of the same trial find the
//! socket's folder in a file and only connect. The server listens on a Unix socket in a short path under the system's
//! folder for temporary files (a socket's path has room for 107 bytes) and on no network address. PostgreSQL refuses to
//! run as root: then the cluster belongs to the user `postgres`, or `nobody` where there is none.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::engines::Settings;

/// Holds the path of the socket's folder.
const SOCKET_FILE: &str = "postgres.socket";
/// The data directory.
const DATA: &str = "cluster";
/// Where the server writes what it has to say.
const LOG: &str = "server.log";
/// Time a server may take to start or stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server that this process started.
pub struct Server {
    child: Child,
    log: PathBuf,
    /// Removed with the server.
    _socket: TempDir,
}

/// The socket's folder of a cluster that another process of this trial runs.
pub fn joined(directory: &Path) -> Option<PathBuf> {
    fs::read_to_string(directory.join(SOCKET_FILE)).ok().map(PathBuf::from)
}

/// Makes a cluster, starts it and waits until `answers` says that it can be connected to.
pub fn start(
    programs: &Path,
    directory: &Path,
    parameters: &Settings,
    answers: &dyn Fn(&Path) -> bool,
) -> anyhow::Result<(Server, PathBuf)> {
    let owner = owner()?;
    let data = directory.join(DATA);
    let socket = tempfile::Builder::new()
        .prefix("plait-bench-")
        .tempdir()
        .context("cannot make a folder")?;
    fs::create_dir(&data).with_context(|| format!("cannot make {}", data.display()))?;
    if let Some((user, group)) = owner {
        // The owner of the cluster must be able to walk to it.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o711))?;
        chown(&data, Some(user), Some(group)).context("cannot give the cluster to its user")?;
        chown(socket.path(), Some(user), Some(group))
            .context("cannot give the socket to its user")?;
    }
    let folder = socket.path().to_owned();
    initialize(&mut as_owner(&programs.join("initdb"), owner), &data)?;
    let log = directory.join(LOG);
    let mut command = as_owner(&programs.join("postgres"), owner);
    command.arg("-D").arg(&data).arg("-k").arg(&folder).args([
        "-h",
        "",
        "-c",
        "max_connections=250",
    ]);
    for (name, value) in parameters.iter() {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    let said = fs::File::create(&log)?;
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    let child = command.spawn().context("cannot start the server")?;
    let mut server = Server { child, log, _socket: socket };
    server.await_start(|| answers(&folder))?;
    fs::write(directory.join(SOCKET_FILE), folder.as_os_str().as_encoded_bytes())?;
    Ok((server, folder))
}

impl Server {
    fn await_start(&mut self, answers: impl Fn() -> bool) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !answers() {
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                bail!("the server ended with {status}: {}", log.trim());
            }
            if begun.elapsed() > PATIENCE {
                bail!("the server did not answer within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Stops the server in order (a "fast shutdown"), so that its checkpoint is on disk afterwards.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid =
            Pid::from_raw(i32::try_from(self.child.id()).context("a process id out of range")?);
        kill(pid, Signal::SIGINT).context("cannot stop the server")?;
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > PATIENCE {
                self.child.kill().context("cannot kill the server")?;
                self.child.wait().context("cannot wait for the killed server")?;
                bail!("the server did not stop within {} s and was killed", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    /// A trial that failed leaves no server behind; what stopping it says no longer matters then.
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

fn initialize(initdb: &mut Command, data: &Path) -> anyhow::Result<()> {
    // --no-sync concerns only what initdb itself writes: the measured server syncs as its settings say.
    let done = initdb
        .arg("-D")
        .arg(data)
        .args(["--username=bench", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])
        .output()
        .context("cannot start initdb")?;
    if !done.status.success() {
        bail!("initdb failed: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

/// A program that runs as the owner of the cluster, in a folder that this user may enter.
fn as_owner(program: &Path, owner: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/");
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}

/// User and group to run as; none to stay who we are.
fn owner() -> anyhow::Result<Option<(u32, u32)>> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let ids = |name: &str| {
        users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [user, _, uid, gid, ..] = fields[..] else { return None };
            if user == name { Some((uid.parse().ok()?, gid.parse().ok()?)) } else { None }
        })
    };
    match ids("postgres").or_else(|| ids("nobody")) {
        Some(owner) => Ok(Some(owner)),
        None => Err(io::Error::other(
            "PostgreSQL does not run as root, and there is neither a user postgres nor nobody",
        )
        .into()),
    }
}

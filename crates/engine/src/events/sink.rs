//! Where PLAIT_EVENTS sends events, beside SQLite's error log.
//!
//! | value | |
//! |---|---|
//! | a path with a `/` | a line of JSON each, at the end of that file |
//! | `journald` | the journal of systemd, by its own protocol |
//! | `stderr` | a line of JSON each |
//!
//! The variable is read once, at the first event, and a relative path counts from the folder of that
//! moment. A program with raised rights does not read it: its caller would choose a file that the
//! caller may not write.
//!
//! The file is a regular one that is empty or begins as a line of JSON does. So a name that was
//! written by mistake, of a database for one, changes nothing.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::Event;
use super::line;
use crate::storage::os::OsStorage;
use crate::storage::{Storage as _, side};
use crate::sync::caller;

/// The variable.
pub const VARIABLE: &str = "PLAIT_EVENTS";
const JOURNAL: &str = "/run/systemd/journal/socket";
/// Permissions of a new file, but for the umask: lines have command lines of processes.
const MODE: u32 = 0o640;
/// An open follows no link, and waits for nothing.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;

/// Where events go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sink {
    Nowhere,
    File(PathBuf),
    Journal,
    StandardError,
    Unknown(String),
}

impl Sink {
    pub(super) fn of(value: Option<&OsStr>) -> Sink {
        match value.map(OsStr::as_bytes) {
            None | Some(b"") => Sink::Nowhere,
            Some(b"journald") => Sink::Journal,
            Some(b"stderr") => Sink::StandardError,
            Some(path) if path.contains(&b'/') => {
                let path = Path::new(OsStr::from_bytes(path));
                Sink::File(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
            }
            Some(other) => Sink::Unknown(String::from_utf8_lossy(other).into_owned()),
        }
    }
}

fn sink() -> &'static Sink {
    static SINK: OnceLock<Sink> = OnceLock::new();
    if let Some(sink) = SINK.get() {
        return sink;
    }
    // Not inside `get_or_init`, where a fork() could catch it (shm/process.rs).
    let value = if has_raised_rights() { None } else { std::env::var_os(VARIABLE) };
    let sink = Sink::of(value.as_deref());
    SINK.get_or_init(|| sink)
}

/// True in a setuid program, and its like: the environment is its caller's.
pub fn has_raised_rights() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Writes an event where the variable says.
///
/// # Errors
/// What could not be written where, and why, in words.
pub(super) fn write(event: &Event) -> Result<(), String> {
    match sink() {
        Sink::Nowhere => Ok(()),
        Sink::File(path) => append(path, &event.database, &line::json(event))
            .map_err(|e| format!("cannot write to {} ({VARIABLE}): {e}", path.display())),
        Sink::Journal => send(Path::new(JOURNAL), &line::journal(event))
            .map_err(|e| format!("cannot write to {JOURNAL} ({VARIABLE}=journald): {e}")),
        Sink::StandardError => write_once(io::stderr(), line::json(event).as_bytes())
            .map_err(|e| format!("cannot write to standard error ({VARIABLE}=stderr): {e}")),
        Sink::Unknown(value) => Err(format!(
            "{VARIABLE}={value} is neither stderr nor journald nor a path, which has a /"
        )),
    }
}

/// Adds a line at the end of the file.
pub(super) fn append(path: &Path, database: &Path, line: &str) -> io::Result<()> {
    if is_of(database, path) {
        return Err(io::Error::other("it is the database, or belongs to it"));
    }
    let (file, len_bytes) = open(path)?;
    // A write past the limit would end the program by SIGXFSZ.
    let end = len_bytes.saturating_add(line.len() as u64);
    if OsStorage.file_size_limit().is_some_and(|limit| end > limit) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    write_once(&file, line.as_bytes())
}

/// Opens the file at `path`, or makes it, and returns its length.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(FLAGS)
        .open(path)?;
    let file = side::above_standard_descriptors(file)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if about.len() > 0 && !begins_as_lines(&file)? {
        return Err(io::Error::other("it does not begin with {, so it is not a file of events"));
    }
    Ok((file, about.len()))
}

/// Makes the file at `path`, if there is none.
///
/// # Errors
/// It is not a file that takes events.
pub fn check(path: &Path) -> io::Result<()> {
    open(path).map(drop)
}

fn begins_as_lines(file: &File) -> io::Result<bool> {
    let mut first = [0];
    file.read_at(&mut first, 0).map(|n| n == 1 && first == *b"{")
}

/// True for the database and the files next to it. To open and close one of SQLite's would drop this
/// process's locks on it.
fn is_of(database: &Path, path: &Path) -> bool {
    let beside = path.as_os_str().as_bytes().strip_prefix(database.as_os_str().as_bytes());
    beside.is_some_and(|suffix| {
        [&b""[..], b"-wal", b"-shm", b"-journal"].contains(&suffix) || suffix.starts_with(b"-plait")
    })
}

/// EVENT-5: a line is written whole or counts as not written.
fn write_once(to: impl AsFd, line: &[u8]) -> io::Result<()> {
    // Standard error may be a pipe that nobody reads any more.
    let written = caller::without_sigpipe(|| rustix::io::write(to, line))?;
    if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Sends a datagram to a socket; it is lost if the receiver does not keep up.
pub(super) fn send(socket: &Path, datagram: &[u8]) -> io::Result<()> {
    let from = UnixDatagram::unbound()?;
    from.set_nonblocking(true)?;
    from.send_to(datagram, socket).map(drop)
}

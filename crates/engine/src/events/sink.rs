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
//! The file is a regular one that is empty or begins with an event, and its owner is trusted: this
//! process's user, root, or the owner of the database. So a name that was written by mistake, of a
//! database for one, or a file that another user has put there, gets nothing.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::event::{PollFd, PollFlags, poll};

use super::Event;
use super::line;
use crate::storage::os::OsStorage;
use crate::storage::{Storage as _, side};

/// The variable.
const VARIABLE: &str = "PLAIT_EVENTS";
const JOURNAL: &str = "/run/systemd/journal/socket";
/// How a file of events begins.
const BEGIN: &[u8] = b"{\"time\":\"";
/// Permissions of a new file, but for the umask: lines may have texts of errors, with keys of rows.
const MODE: u32 = 0o640;
/// Bytes that others may add to the file in the same moment.
const OF_OTHERS: u64 = 64 << 10;
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
        Sink::File(_) if IS_FOREIGN.load(Relaxed) => Ok(()),
        Sink::File(path) => append(path, &event.database, &line::json(event))
            .map_err(|e| format!("cannot write to {} ({VARIABLE}): {e}", path.display())),
        Sink::Journal => send(Path::new(JOURNAL), &line::journal(event))
            .map_err(|e| format!("cannot write to {JOURNAL} ({VARIABLE}=journald): {e}")),
        Sink::StandardError => say(io::stderr(), &line::json(event))
            .map_err(|e| format!("cannot write to standard error ({VARIABLE}=stderr): {e}")),
        Sink::Unknown(value) => Err(format!(
            "{VARIABLE}={value} is neither stderr nor journald nor a path, which has a /"
        )),
    }
}

/// The file has other contents, so nothing more is tried.
static IS_FOREIGN: AtomicBool = AtomicBool::new(false);

/// Adds a line at the end of the file.
pub(super) fn append(path: &Path, database: &Path, line: &str) -> io::Result<()> {
    if is_of(database, path) {
        return Err(io::Error::other("it is the database, or belongs to it"));
    }
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
    let is_of_owner = || std::fs::metadata(database).is_ok_and(|of| of.uid() == about.uid());
    if ![0, rustix::process::geteuid().as_raw()].contains(&about.uid()) && !is_of_owner() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if about.len() > 0 && !begins_as_events(&file)? {
        IS_FOREIGN.store(true, Relaxed);
        // It may be another database of this process, whose locks a close would drop.
        std::mem::forget(file);
        return Err(io::Error::other("it does not begin with an event"));
    }
    // A write past the limit would end the program by SIGXFSZ.
    let end = about.len().saturating_add(line.len() as u64 + OF_OTHERS);
    if OsStorage.file_size_limit().is_some_and(|limit| end > limit) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    // A full disk, or a process that was killed, may have left a part of a line. One that is being
    // written looks the same: then an empty line comes behind it.
    let mut last = *b"\n";
    let is_torn = file.read_at(&mut last, about.len().saturating_sub(1))? == 1 && last != *b"\n";
    write_once(&file, &[if is_torn { "\n" } else { "" }, line].concat())
}

fn begins_as_events(file: &File) -> io::Result<bool> {
    let mut first = [0; BEGIN.len()];
    file.read_at(&mut first, 0).map(|n| BEGIN.starts_with(&first[..n]))
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
fn write_once(to: impl AsFd, line: &str) -> io::Result<()> {
    let written = rustix::io::write(to, line.as_bytes())?;
    let torn = || io::Error::other("a line was cut, as on a full disk");
    if written == line.len() { Ok(()) } else { Err(torn()) }
}

/// Writes a line if nobody has to be waited for. A pipe that nobody reads any more would end the
/// program by SIGPIPE, and one that is full would hold it up.
pub(super) fn say(to: impl AsFd, line: &str) -> io::Result<()> {
    let mut ready = [PollFd::new(&to, PollFlags::OUT)];
    poll(&mut ready, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if ready[0].revents() != PollFlags::OUT {
        return Err(io::Error::other("nobody reads it, or it is full"));
    }
    write_once(&to, line)
}

/// Sends a datagram to a socket; it is lost if the receiver does not keep up.
pub(super) fn send(socket: &Path, datagram: &[u8]) -> io::Result<()> {
    let from = UnixDatagram::unbound()?;
    from.set_nonblocking(true)?;
    from.send_to(datagram, socket).map(drop)
}

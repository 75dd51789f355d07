//! The few system calls that the standard library does not offer.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_: libc::c_int) {
    // Relaxed: a flag that orders nothing.
    INTERRUPTED.store(true, Relaxed);
}

/// Lets the reader of our output go away without a panic: the program ends as other commands do.
pub fn end_with_the_reader() {
    // SAFETY: the default action installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Makes a write to a closed pipe an error again, for a program that talks to children.
pub fn survive_closed_pipes() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// A file that becomes longer than `ulimit -f` allows is an error of the write, and no end of this process with files half made.
pub fn outlive_long_files() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// From now on an interrupt, a termination or the end of the terminal is only noted, see [`interrupted`]; not one that this process was started
/// to ignore.
pub fn note_interrupts() {
    let handler = note_interrupt as *const () as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        if unsafe { libc::signal(signal, handler) } == libc::SIG_IGN {
            // SAFETY: as it was.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
}

/// Whether the user pressed Ctrl-C since [`note_interrupts`].
pub fn interrupted() -> bool {
    // Relaxed: a flag that orders nothing.
    INTERRUPTED.load(Relaxed)
}

/// Lets the kernel kill this process when the thread that started it ends.
pub fn die_with_parent() {
    // SAFETY: the call has no memory preconditions.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Ends calls that receive from the connections of this listener, or send to them, after so long:
/// connections inherit it.
pub fn limit_waits(listener: &TcpListener, receive: Duration, send: Duration) -> io::Result<()> {
    for (option, limit) in [(libc::SO_RCVTIMEO, receive), (libc::SO_SNDTIMEO, send)] {
        let limit = libc::timeval { tv_sec: limit.as_secs() as i64, tv_usec: 0 };
        // SAFETY: the descriptor is open, and `limit` is as long as it is said to be.
        let code = unsafe {
            libc::setsockopt(
                listener.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const limit).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Threads of the lowest priority that keep every processor from sleeping; they end when this is dropped.
pub struct Awake {
    stop: Arc<AtomicBool>,
}

/// Starts them.
pub fn keep_processors_awake() -> Awake {
    let stop = Arc::new(AtomicBool::new(false));
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    for _ in 0..cpus {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            // The parameters of the kernel. musl's function of this name refuses everything.
            let priority: libc::c_int = 0;
            // SAFETY: 0 means this thread, and the parameters are valid; a refusal leaves an ordinary thread.
            unsafe {
                libc::syscall(
                    libc::SYS_sched_setscheduler,
                    0,
                    libc::SCHED_IDLE,
                    &raw const priority,
                )
            };
            // Relaxed: a flag that orders nothing.
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
    }
    Awake { stop }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// Time since boot, comparable between processes.
pub fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` takes the result.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    assert_eq!(code, 0, "the monotonic clock can be read");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// User and group that this process acts as.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: the call has no preconditions.
    let user = unsafe { libc::geteuid() };
    // SAFETY: the call has no preconditions.
    let group = unsafe { libc::getegid() };
    (user, group)
}

/// Sleeps until a process has ended; false if the kernel cannot tell of that.
pub fn wait_for_end(pid: u32) -> bool {
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    }
    let mut end = libc::pollfd { fd: fd as libc::c_int, events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: `end` is one valid entry; the descriptor stays open until this process ends.
        let ready = unsafe { libc::poll(&raw mut end, 1, -1) };
        if ready >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return ready > 0;
        }
    }
}

/// Opens a file to be read, unless it is something that cannot be read through: a pipe would wait for its other end, a device
/// may never end.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// Lets the page cache forget a file that was synced: who reads it next reads the disk. A wish, which some file systems do not grant.
pub fn forget_content(file: &File) {
    // SAFETY: the call takes numbers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Whether a file has an extended attribute.
pub fn has_attribute(path: &Path, name: &str) -> bool {
    let (Ok(path), Ok(name)) = (CString::new(path.as_os_str().as_bytes()), CString::new(name))
    else {
        return false;
    };
    // SAFETY: both are C strings; with size 0 nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) >= 0 }
}

/// Whether this process may execute a file.
pub fn is_executable(path: &Path) -> bool {
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is a C string.
    let allowed = unsafe { libc::access(c_path.as_ptr(), libc::X_OK) == 0 };
    allowed && path.is_file()
}

/// Whether this process may write a file, or in a folder.
pub fn is_writable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is a C string.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

/// The C library's numbers of limits.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// A limit of this process's resources, which those that it starts inherit.
pub fn limit(which: Resource) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` takes the result; it stays as it is if the call fails.
    unsafe { libc::getrlimit(which, &raw mut limit) };
    limit.rlim_cur
}

/// The file system that a path lies on.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem {
    kind: i64,
    /// Bytes that an ordinary user can still use.
    pub free_bytes: u64,
}

impl FileSystem {
    /// Asks about `path`, which exists.
    pub fn of(path: &Path) -> io::Result<FileSystem> {
        let c_path = CString::new(path.as_os_str().as_bytes())?;
        let mut stat = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: the path is a C string and `stat` has room for the answer.
        if unsafe { libc::statfs(c_path.as_ptr(), stat.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: statfs succeeded, so it filled the struct.
        let stat = unsafe { stat.assume_init() };
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_bsize as u64);
        // The C libraries do not agree on its sign, and 32 bits of it count.
        Ok(FileSystem { kind: i64::from(stat.f_type as u32), free_bytes })
    }

    /// Its name, where it is a common one.
    pub fn name(self) -> &'static str {
        match self.kind {
            0xef53 => "ext4",
            0x5846_5342 => "xfs",
            0x9123_683e => "btrfs",
            0x2fc1_2fc1 => "zfs",
            0xf2f5_2010 => "f2fs",
            0x794c_7630 => "overlayfs",
            0x0102_1994 => "tmpfs",
            0x8584_58f6 => "ramfs",
            _ => "another file system",
        }
    }

    /// Whether it is memory, where a sync costs and keeps nothing.
    pub fn is_memory(self) -> bool {
        matches!(self.name(), "tmpfs" | "ramfs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_the_root_has_room() {
        let here = FileSystem::of(Path::new("/")).unwrap();
        assert!(here.free_bytes > 0);
        assert!(FileSystem::of(Path::new("/no/such/path")).is_err());
    }

    #[test]
    fn only_a_file_with_the_bit_is_executable() {
        assert!(is_executable(Path::new("/bin/sh")));
        assert!(!is_executable(Path::new("/bin")));
        assert!(!is_executable(Path::new("/etc/passwd")));
    }
}

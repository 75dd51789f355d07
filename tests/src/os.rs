//! The few system calls that the standard library does not offer.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::mem::offset_of;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

/// Says to the library whether connections that nobody is beside stay alone, or join a session at once: what most suites test.
const JOIN: &str = "PLAIT_JOIN";

/// From here on connections of this process, and of those that it starts, may be alone. Before any library is loaded.
pub fn allow_alone() {
    // SAFETY: called at the beginning of a test; nothing here reads the environment from another thread without std's lock.
    unsafe { std::env::set_var(JOIN, "when needed") };
}

/// Connections join at once, unless something else was said.
pub(crate) fn join_unless_said() {
    if std::env::var_os(JOIN).is_none() {
        // SAFETY: the library to be loaded reads it later, and std's readers are behind std's lock.
        unsafe { std::env::set_var(JOIN, "always") };
    }
}

/// From here on what this process and its children mount is theirs alone, and ends with them. Before this process has a second thread.
pub fn own_mounts() -> anyhow::Result<()> {
    // SAFETY: it moves this process into a namespace of its own, and nothing else.
    let code = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    let error = std::io::Error::last_os_error();
    anyhow::ensure!(code == 0, "only root can mount: {error}");
    mount("none", Path::new("/"), "none", libc::MS_REC | libc::MS_PRIVATE, "")
}

/// The next child is the first process of a new pid namespace: its id is 1. No other child can be made after that one, and no thread.
pub fn next_child_is_the_first() -> anyhow::Result<()> {
    // SAFETY: it decides about children, and changes nothing of this process.
    let code = unsafe { libc::unshare(libc::CLONE_NEWPID) };
    let error = std::io::Error::last_os_error();
    anyhow::ensure!(code == 0, "cannot have a pid namespace: {error}");
    Ok(())
}

/// Mounts a file system of a kind somewhere; flags and options as for mount(2).
pub fn mount(what: &str, at: &Path, kind: &str, flags: u64, options: &str) -> anyhow::Result<()> {
    let [source, place, kind, options] = [what, &at.to_string_lossy(), kind, options]
        .map(|text| CString::new(text).expect("no zero in it"));
    let (source, place, kind) = (source.as_ptr(), place.as_ptr(), kind.as_ptr());
    // SAFETY: four texts that end in a zero, and live until the call returns.
    let code = unsafe { libc::mount(source, place, kind, flags, options.as_ptr().cast()) };
    let error = std::io::Error::last_os_error();
    anyhow::ensure!(code == 0, "cannot mount {what} at {}: {error}", at.display());
    Ok(())
}

/// Time since boot, comparable between processes.
#[must_use]
pub fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the result.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    assert_eq!(code, 0, "the monotonic clock can be read");
    let seconds = u64::try_from(now.tv_sec).expect("time since boot is positive");
    Duration::new(seconds, u32::try_from(now.tv_nsec).expect("nanoseconds are below a second"))
}

/// Nanoseconds since boot, comparable between processes.
#[must_use]
pub fn monotonic_ns() -> u64 {
    u64::try_from(monotonic().as_nanos()).expect("584 years have not passed since boot")
}

/// Processor time that this thread has used.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `used` is a valid place for the result.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used) };
    assert_eq!(code, 0, "a thread's clock can be read");
    let seconds = u64::try_from(used.tv_sec).expect("used time is positive");
    Duration::new(seconds, u32::try_from(used.tv_nsec).expect("nanoseconds are below a second"))
}

/// Processor time that this process has used, in user mode and in the kernel.
#[must_use]
pub fn process_cpu_time() -> Duration {
    // SAFETY: numbers alone, which are valid when zero.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `used` is a valid place for the result.
    let code = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut used) };
    assert_eq!(code, 0, "a process may ask what it has used");
    let of = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).expect("used time is positive");
        let micros = u64::try_from(time.tv_usec).expect("used time is positive");
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    of(used.ru_utime) + of(used.ru_stime)
}

/// Whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: the call has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Makes this process that of a user who owns nothing.
pub fn give_up_root() -> std::io::Result<()> {
    const NOBODY: u32 = 65534;
    // SAFETY: no groups are given, so no memory is read.
    let groups = unsafe { libc::setgroups(0, std::ptr::null()) };
    // SAFETY: the call has no memory preconditions.
    let group = unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) };
    // SAFETY: the call has no memory preconditions.
    let user = unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) };
    if groups == 0 && group == 0 && user == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Makes an empty folder the root directory of this process, so that no name leads anywhere any more.
pub fn leave_all_names(empty: &Path) -> std::io::Result<()> {
    std::os::unix::fs::chroot(empty)?;
    std::env::set_current_dir("/")
}

/// Kills the process group that this process leads.
pub fn kill_group(leader: u32) {
    let leader = libc::pid_t::try_from(leader).expect("a process id is small");
    // Nothing is left to do where it has ended already.
    // SAFETY: the call has no memory preconditions.
    let _ = unsafe { libc::kill(-leader, libc::SIGKILL) };
}

/// Writes a line of SQLite's error log where [`crate::actor::ERROR_LOG`] says.
///
/// # Safety
/// `text` is a string.
pub unsafe extern "C" fn append_to_error_log(
    _: *mut std::ffi::c_void,
    code: std::ffi::c_int,
    text: *const std::ffi::c_char,
) {
    use std::io::Write as _;
    // SAFETY: the caller's.
    let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().replace('\n', " ");
    let path = std::env::var_os(crate::actor::ERROR_LOG).expect("this is called where it is set");
    let log = std::fs::File::options().create(true).append(true).open(path);
    let line = format!("{code} {text}\n");
    log.and_then(|mut log| log.write_all(line.as_bytes())).expect("a log that can be written");
}

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: i32) -> std::io::Result<()> {
    let pid = libc::pid_t::try_from(pid).expect("a process id is small");
    // SAFETY: the call has no memory preconditions.
    if unsafe { libc::kill(pid, signal) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Starts what follows as the only process of a pid namespace, which ends with the launcher.
pub const OWN_PID_NAMESPACE: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--"];

/// Whether this machine lets a process have a pid namespace of its own; says why not.
#[must_use]
pub fn can_have_own_pid_namespace() -> bool {
    let [program, arguments @ ..] = OWN_PID_NAMESPACE;
    match std::process::Command::new(program).args(arguments).arg("true").output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("skipped: unshare: {}", String::from_utf8_lossy(&output.stderr).trim());
            false
        }
        Err(error) => {
            eprintln!("skipped: unshare: {error}");
            false
        }
    }
}

/// The child of a process of one thread; `None` when it has none, or several.
#[must_use]
pub fn only_child(pid: u32) -> Option<u32> {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?.trim().parse().ok()
}

/// Names of the threads that a process has.
#[must_use]
pub fn thread_names(pid: u32) -> Vec<String> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let name = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("comm")).ok();
    folder.filter_map(|entry| name(entry.ok()?)).map(|name| name.trim().to_owned()).collect()
}

/// Stops a process until [`resume`].
pub fn suspend(pid: u32) -> std::io::Result<()> {
    signal(pid, libc::SIGSTOP)
}

/// Whether a process is stopped by a signal.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may hold anything, in parentheses.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// Lets a suspended process go on.
pub fn resume(pid: u32) -> std::io::Result<()> {
    signal(pid, libc::SIGCONT)
}

/// Limits the size of files that this process may write; a write beyond fails with EFBIG instead of a signal.
pub fn limit_file_size(bytes: u64) -> std::io::Result<()> {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is a valid structure.
    if unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Has this process ended by a signal after `time`, in whole seconds.
pub fn end_in(time: Duration) {
    // SAFETY: no preconditions.
    unsafe { libc::alarm(u32::try_from(time.as_secs()).unwrap_or(u32::MAX)) };
}

/// Runs `child` in a forked copy of this process and returns its exit code; the copy never returns.
///
/// Only for a process with a single thread of its own: threads of the library mind forks.
pub fn in_forked_child(child: impl FnOnce() -> u8) -> std::io::Result<i32> {
    // SAFETY: the caller promises a single thread, so no lock can be left held in the copy.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(std::io::Error::last_os_error());
    }
    if pid == 0 {
        let code = child();
        // SAFETY: leaves without running destructors, which belong to the parent.
        unsafe { libc::_exit(i32::from(code)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, and `status` is a valid place.
    if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {
        return Err(std::io::Error::last_os_error());
    }
    if libc::WIFEXITED(status) {
        Ok(libc::WEXITSTATUS(status))
    } else {
        Ok(-libc::WTERMSIG(status))
    }
}

/// Bytes of memory that the process has mapped from a file of the given name, from `/proc/self/smaps`: size and resident.
pub fn mapped_bytes(file_name_end: &str) -> std::io::Result<u64> {
    mapped_bytes_in(std::fs::File::open("/proc/self/maps")?, file_name_end)
}

/// The same by a list that was opened before: a process that has lost its names and descriptors can still read it.
pub fn mapped_bytes_in(list: std::fs::File, file_name_end: &str) -> std::io::Result<u64> {
    let maps = std::io::read_to_string(list)?;
    let mut total = 0;
    for line in maps.lines().filter(|line| line.trim_end().ends_with(file_name_end)) {
        let range = line.split_whitespace().next().unwrap_or_default();
        if let Some((start, end)) = range.split_once('-') {
            let parse = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            total += parse(end) - parse(start);
        }
    }
    Ok(total)
}

/// From now on writes of this thread to open files whose names have the given end fail with EIO, as those of a bad disk do. Returns how
/// many files these are.
pub fn fail_writes_to(file_name_end: &str) -> std::io::Result<usize> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let is_it = std::fs::read_link(entry.path())
            .is_ok_and(|to| to.as_os_str().as_encoded_bytes().ends_with(file_name_end.as_bytes()));
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        numbers.extend(number.filter(|_| is_it));
    }
    refuse(libc::SYS_pwrite64, Some(&numbers), libc::EIO)?;
    Ok(numbers.len())
}

/// From now on a system call of this thread fails, as where a sandbox does not know it.
pub fn refuse_call(call: libc::c_long) -> std::io::Result<()> {
    refuse(call, None, libc::EPERM)
}

/// Installs a filter that refuses a system call, if `first` is given only with one of these as its first argument.
fn refuse(call: libc::c_long, first: Option<&[u32]>, errno: i32) -> std::io::Result<()> {
    let instruction = |code: u32, jf, k| libc::sock_filter {
        code: u16::try_from(code).expect("a code has 16 bits"),
        jt: 0,
        jf,
        k,
    };
    let load = |offset: usize| {
        let offset = u32::try_from(offset).expect("a small structure");
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, offset)
    };
    let unless = |k, skipped| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, skipped, k);
    let answer = |k| instruction(libc::BPF_RET | libc::BPF_K, 0, k);
    let refused = answer(libc::SECCOMP_RET_ERRNO | errno as u32);
    let mut then = Vec::new();
    match first {
        None => then.push(refused),
        Some(numbers) => {
            // The lower half of a little-endian argument.
            then.push(load(offset_of!(libc::seccomp_data, args)));
            then.extend(numbers.iter().flat_map(|&number| [unless(number, 1), refused]));
        }
    }
    let skipped = u8::try_from(then.len()).map_err(std::io::Error::other)?;
    let mut filter = vec![load(offset_of!(libc::seccomp_data, nr)), unless(call as u32, skipped)];
    filter.extend(then);
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(std::io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: takes a number.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the program lives during the call, which copies it.
    if unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) }
        != 0
    {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// Bytes of memory that a process has, as addresses.
#[must_use]
pub fn memory_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("the process lives") * 1024
}

/// Whether any process has a lock on a byte of a file.
pub fn is_locked(path: &Path, byte: i64) -> std::io::Result<bool> {
    let file = std::fs::File::options().read(true).write(true).open(path)?;
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and `lock` a valid place for the question and its answer.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// A resource whose soft limit [`limit`] sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Open descriptors.
    Descriptors,
    /// Bytes of a file.
    FileSize,
    /// Bytes of memory, as addresses.
    Memory,
}

/// Sets the soft limit of a running process; `None` is as much as it may have.
pub fn limit(pid: u32, what: Limited, soft: Option<u64>) -> std::io::Result<()> {
    let resource = match what {
        Limited::Descriptors => libc::RLIMIT_NOFILE,
        Limited::FileSize => libc::RLIMIT_FSIZE,
        Limited::Memory => libc::RLIMIT_AS,
    };
    let pid = libc::pid_t::try_from(pid).expect("a process id is small");
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the new limit is absent and `now` is a valid place for the old one.
    if unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut now) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    now.rlim_cur = soft.unwrap_or(now.rlim_max);
    // SAFETY: `now` is a valid limit and the old one is not asked for.
    if unsafe { libc::prlimit(pid, resource, &raw const now, std::ptr::null_mut()) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// Programs started from now on meet a write past their limit as an error, not as a signal.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Locks one byte of a file exclusively, if nobody has it, until the file is closed.
#[must_use]
pub fn lock_byte(file: &std::fs::File, byte: i64) -> bool {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and `lock` outlives the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0 }
}

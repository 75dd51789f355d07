//! What a child made by fork() must not keep of its parent.
//!
//! An open-file-description lock shows that a process lives. A child shares the descriptions of its
//! parent and would keep the lock after the parent's death, in every namespace. So the child gives
//! them up before `fork` returns in it: whatever its program does next, the parent's death shows.
//!
//! Children of `vfork` and `posix_spawn` give the descriptions up at `exec` (O_CLOEXEC). A child
//! made by the bare system call, without `exec`, keeps its parent's locks until it ends. Other
//! processes may then wait for it, and nothing worse happens.
//!
//! Invariants
//! - FORK-1 A file on which a lock shows that this process lives is a [`LockFile`] from before the
//!   lock is taken, and no other descriptor and no inherited mapping leads to its description.
//! - FORK-2 In the child the descriptor's number stays taken, by something harmless, so that the
//!   copies of the parent's objects there neither close nor lock a file of the program. Where the
//!   process may have no descriptor of that number any more the number is free, and stays so as
//!   long as the limit does.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::storage::os::Kept;

/// The folder of this process's descriptors.
pub(crate) const OWN_DESCRIPTORS: &str = "/proc/self/fd";
/// The message where that folder is missing.
pub const NO_PROC: &str =
    "/proc is not mounted here (a container, a chroot?); concurrent mode needs it";

static FORKS: AtomicU64 = AtomicU64::new(0);
static OPEN: Open = Open {
    mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    descriptors: UnsafeCell::new(Vec::new()),
};

/// The descriptors that a child gives up. The mutex is the C library's, since one hook of a fork
/// locks it and another unlocks it.
struct Open {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    descriptors: UnsafeCell<Vec<RawFd>>,
}

// SAFETY: `descriptors` is accessed only while `mutex` is held, which many threads may use.
unsafe impl Sync for Open {}

impl Open {
    fn lock(&self) {
        // SAFETY: initialised statically and never moved.
        let rc = unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        debug_assert_eq!(rc, 0, "pthread_mutex_lock");
    }

    fn unlock(&self) {
        // SAFETY: as in `lock`; the calling thread holds it, or is the copy of the one that did.
        let rc = unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
        debug_assert_eq!(rc, 0, "pthread_mutex_unlock");
    }

    fn with<T>(&self, f: impl FnOnce(&mut Vec<RawFd>) -> T) -> T {
        self.lock();
        // SAFETY: the mutex is held, and no caller nests.
        let result = f(unsafe { &mut *self.descriptors.get() });
        self.unlock();
        result
    }
}

extern "C" fn before_fork() {
    OPEN.lock();
}

extern "C" fn after_fork_in_parent() {
    OPEN.unlock();
}

extern "C" fn after_fork_in_child() {
    // Relaxed: read by the only thread of the child, and by threads that it starts later.
    FORKS.fetch_add(1, Relaxed);
    // SAFETY: `before_fork` has locked the mutex, and there is no other thread. Nothing is
    // allocated.
    for &fd in unsafe { &*OPEN.descriptors.get() } {
        give_up(fd);
    }
    OPEN.unlock();
}

/// Puts something harmless in the place of `fd` (FORK-2). Makes only calls that are safe after a
/// fork.
fn give_up(fd: RawFd) {
    // SAFETY: no pointers.
    let mut dummy = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if dummy < 0 {
        // No number is free: after the close, `fd` is the lowest free number.
        // SAFETY: `fd` is ours.
        unsafe { libc::close(fd) };
        // SAFETY: no pointers.
        dummy = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    }
    if dummy >= 0 && dummy != fd {
        // SAFETY: `dummy` is open; the description of `fd` is given up.
        let put = unsafe { libc::dup3(dummy, fd, libc::O_CLOEXEC) };
        if put < 0 {
            // `fd` lies beyond a limit that was lowered later. Its locks matter more than its
            // number: a child that kept them would keep its dead parent alive.
            // SAFETY: `fd` is ours.
            unsafe { libc::close(fd) };
        }
        // SAFETY: opened above and not used again.
        unsafe { libc::close(dummy) };
    }
}

/// Returns the number of forks between the first use of the library and this process. A connection
/// that was opened at another number was inherited by fork.
pub fn fork_generation() -> u64 {
    static HOOKS: OnceLock<()> = OnceLock::new();
    HOOKS.get_or_init(|| {
        // SAFETY: the hooks make only calls that are allowed between fork and exec, and are never
        // unloaded.
        unsafe {
            libc::pthread_atfork(
                Some(before_fork),
                Some(after_fork_in_parent),
                Some(after_fork_in_child),
            )
        };
    });
    FORKS.load(Relaxed)
}

/// A value of this process alone. A child made by fork begins one of its own: that of its parent may
/// be locked, or half changed, by a thread that the child does not have.
#[derive(Debug)]
pub(crate) struct PerFork<T>(OnceLock<Own<T>>);

/// The value of one process, chained to that of its parent.
#[derive(Debug)]
struct Own<T> {
    fork_generation: u64,
    value: T,
    of_child: OnceLock<Box<Own<T>>>,
}

impl<T: Default> Own<T> {
    fn new(fork_generation: u64) -> Own<T> {
        Own { fork_generation, value: T::default(), of_child: OnceLock::new() }
    }
}

impl<T: Default> PerFork<T> {
    pub(crate) const fn new() -> PerFork<T> {
        PerFork(OnceLock::new())
    }

    pub(crate) fn get(&self) -> &T {
        let fork_generation = fork_generation();
        // Made before it is put in place: a child would wait for ever for a thread of its parent
        // that was in the middle of it.
        let mut own = self.0.get().unwrap_or_else(|| {
            let new = Own::new(fork_generation);
            self.0.get_or_init(|| new)
        });
        while own.fork_generation != fork_generation {
            let new = Box::new(Own::new(fork_generation));
            own = own.of_child.get_or_init(|| new);
        }
        &own.value
    }
}

/// An open file whose description a child made by fork gives up at once.
#[derive(Debug)]
pub struct LockFile {
    file: Option<File>,
    /// Keeps the locks if the program closes every descriptor that it does not know: others would
    /// take it for dead. A child does not inherit the mapping.
    _description: MmapRaw,
}

impl LockFile {
    /// Opens a file. At no moment can a child inherit the file for good.
    ///
    /// # Errors
    /// Those of `open`, and of mapping the file.
    pub fn open(open: impl FnOnce() -> io::Result<File>) -> io::Result<LockFile> {
        fork_generation();
        OPEN.with(|descriptors| {
            let file = open()?;
            // Nothing is read through the mapping, so the file may be shorter.
            let description = MmapOptions::new().len(1).map_raw_read_only(&file)?;
            description.advise(Advice::DontFork)?;
            descriptors.push(file.as_raw_fd());
            Ok(LockFile { file: Some(file), _description: description })
        })
    }

    /// True if files can be opened again, through `/proc`.
    pub fn can_reopen() -> bool {
        Path::new(OWN_DESCRIPTORS).exists()
    }

    /// Opens the same file again, with a description of its own.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn reopen(&self) -> io::Result<File> {
        let name = format!("{OWN_DESCRIPTORS}/{}", self.as_raw_fd());
        File::options().read(true).write(true).open(name)
    }
}

/// A file that is read and written through the description with the locks.
#[derive(Debug)]
pub(crate) struct Locked(pub(crate) Arc<LockFile>);

impl Kept for Locked {}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Deref for LockFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.file.as_ref().expect("there until it is dropped")
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        OPEN.with(|descriptors| {
            let fd = self.as_raw_fd();
            descriptors.retain(|&other| other != fd);
            // Under the mutex: once closed, the number may be another file's.
            drop(self.file.take());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::locks;
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// For tests that fork: the child of another one has the files of this one too, for a moment.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// Runs `f` in a child made by fork, which then sleeps until it is killed.
    fn forked(f: impl FnOnce() -> bool) -> Child {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: the child makes only calls that are allowed after a fork of a program with
        // threads.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        let mut said = u8::from(pid == 0 && f());
        if pid == 0 {
            // SAFETY: `said` is one readable byte.
            unsafe { libc::write(ends[1], (&raw const said).cast(), 1) };
            loop {
                // SAFETY: no preconditions.
                unsafe { libc::pause() };
            }
        }
        // SAFETY: `said` is one writable byte.
        assert_eq!(unsafe { libc::read(ends[0], (&raw mut said).cast(), 1) }, 1);
        for end in ends {
            // SAFETY: opened above.
            unsafe { libc::close(end) };
        }
        let child = Child(pid);
        assert_eq!(said, 1, "what the child found");
        child
    }

    /// A child that ends with the test, also if that fails.
    struct Child(libc::pid_t);

    impl Drop for Child {
        fn drop(&mut self) {
            // SAFETY: our own child.
            unsafe { libc::kill(self.0, libc::SIGKILL) };
            // SAFETY: our own child; the status is not wanted.
            unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
        }
    }

    /// A file with a lock on byte 7, and the same file opened by its name.
    fn locked_and_opened_again(dir: &tempfile::TempDir) -> (LockFile, File) {
        let path = dir.path().join("f");
        let create = || File::options().create_new(true).read(true).write(true).open(&path);
        let file = LockFile::open(create).unwrap();
        assert!(locks::try_lock(&file, 7).unwrap());
        (file, File::options().read(true).write(true).open(&path).unwrap())
    }

    // holds FORK-1, FORK-2
    #[test]
    fn a_child_does_not_keep_its_parents_locks() {
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let (file, elsewhere) = locked_and_opened_again(&dir);
        let fd = file.as_raw_fd();
        let _child = forked(|| {
            let mut what = std::mem::MaybeUninit::<libc::stat>::uninit();
            // SAFETY: room for the answer.
            let is_open = unsafe { libc::fstat(fd, what.as_mut_ptr()) } == 0;
            // SAFETY: filled in when the call succeeded.
            is_open && unsafe { what.assume_init() }.st_mode & libc::S_IFMT != libc::S_IFREG
        });
        assert!(locks::is_locked_elsewhere(&elsewhere, 7).unwrap(), "the parent still holds it");
        drop(file);
        assert!(!locks::is_locked_elsewhere(&elsewhere, 7).unwrap(), "the child keeps it");
    }

    // holds FORK-1
    #[test]
    fn a_child_that_may_not_have_the_descriptor_does_not_keep_its_parents_locks_either() {
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        use rustix::process::{Resource, getrlimit, setrlimit};
        // Above what the other tests of this process have open.
        const HIGH: RawFd = 700;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let create = || {
            let file = File::options().create_new(true).read(true).write(true).open(&path)?;
            Ok(File::from(rustix::io::fcntl_dupfd_cloexec(&file, HIGH)?))
        };
        let file = LockFile::open(create).unwrap();
        assert!(file.as_raw_fd() >= HIGH && locks::try_lock(&file, 7).unwrap());
        let elsewhere = File::options().read(true).write(true).open(&path).unwrap();
        let before = getrlimit(Resource::Nofile);
        let mut lowered = before;
        lowered.current = Some(HIGH as u64);
        setrlimit(Resource::Nofile, lowered).unwrap();
        let _child = forked(|| true);
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(locks::is_locked_elsewhere(&elsewhere, 7).unwrap(), "the parent still holds it");
        drop(file);
        assert!(!locks::is_locked_elsewhere(&elsewhere, 7).unwrap(), "the child keeps it");
    }

    #[test]
    fn a_program_that_closes_every_descriptor_keeps_its_locks() {
        let dir = tempfile::tempdir().unwrap();
        let (file, elsewhere) = locked_and_opened_again(&dir);
        give_up(file.as_raw_fd());
        assert!(locks::is_locked_elsewhere(&elsewhere, 7).unwrap());
        drop(file);
        assert!(!locks::is_locked_elsewhere(&elsewhere, 7).unwrap());
    }

    #[test]
    fn a_file_opened_again_shares_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let (file, _elsewhere) = locked_and_opened_again(&dir);
        let again = file.reopen().unwrap();
        assert!(!locks::try_lock(&again, 7).unwrap());
    }
}

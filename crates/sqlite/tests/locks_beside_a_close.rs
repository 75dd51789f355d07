//! A lock that a thread takes while another one closes the file is not dropped with that close.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use plait_client::{Connection, Library};
// The spliced amalgamation that `Library::linked` is about.
use plait_sqlite as _;

/// The head of SQLite's `sqlite3_vfs`, through its version 3.
#[repr(C)]
struct Vfs {
    numbers: [c_int; 3],
    /// `pNext` to `xCurrentTimeInt64`.
    between: [*mut c_void; 16],
    set: unsafe extern "C" fn(*mut Vfs, *const c_char, *mut c_void) -> c_int,
}

unsafe extern "C" {
    fn sqlite3_vfs_find(name: *const c_char) -> *mut Vfs;
}

/// The file whose next close has company; 0: none.
static WATCHED: AtomicU64 = AtomicU64::new(0);
/// Tells the company that it is time.
static CLOSES: Mutex<Option<Sender<()>>> = Mutex::new(None);

unsafe extern "C" fn close_with_company(fd: c_int) -> c_int {
    // SAFETY: `stat` is plain old data, and the call writes no more than it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above; a bad descriptor is an error.
    let is_read = unsafe { libc::fstat(fd, &raw mut stat) } == 0;
    if is_read && WATCHED.compare_exchange(stat.st_ino, 0, SeqCst, SeqCst).is_ok() {
        let told = CLOSES.lock().expect("no panic").take();
        told.expect("somebody waits").send(()).expect("somebody waits");
        // As long as a lock takes that nothing keeps from being taken.
        std::thread::sleep(Duration::from_millis(300));
    }
    // SAFETY: SQLite gives its descriptor up.
    unsafe { libc::close(fd) }
}

/// True if any process, this one too, has a POSIX lock on the bytes that readers lock.
fn is_locked(file: &std::fs::File) -> bool {
    // SAFETY: plain old data.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    (lock.l_start, lock.l_len) = (0x4000_0002, 510);
    // SAFETY: the descriptor is open, and the lock is written to.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    assert_eq!(asked, 0);
    i32::from(lock.l_type) != libc::F_UNLCK
}

fn reads_while_the_file_is_closed(reader: &Connection, closes: &Receiver<()>) {
    closes.recv_timeout(Duration::from_secs(30)).expect("the file is closed");
    reader.execute("BEGIN; SELECT * FROM t").expect("it reads");
}

#[test]
fn a_lock_that_is_taken_beside_a_close_stays() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db");
    let open = || Library::linked().open(&path).expect("it opens");
    let first = open();
    first.execute("CREATE TABLE t(x); INSERT INTO t VALUES(1)").expect("it is made");
    let reader = open();
    // A descriptor that is closed at the end: its close would drop the locks of this process as well.
    let file = std::fs::File::open(&path).expect("it is there");
    // SAFETY: the name ends with a zero.
    let vfs = unsafe { sqlite3_vfs_find(c"unix".as_ptr()) };
    // SAFETY: the VFS of this name is there for as long as the program, and has these fields.
    let set = unsafe { (*vfs).set };
    // SAFETY: the call that it gets has the type of close().
    let set = unsafe { set(vfs, c"close".as_ptr(), close_with_company as *mut c_void) };
    assert_eq!(set, 0);
    let (tell, told) = channel();
    *CLOSES.lock().expect("no panic") = Some(tell);
    WATCHED.store(file.metadata().expect("it is there").ino(), SeqCst);
    std::thread::scope(|scope| {
        let reader = &reader;
        let reads = scope.spawn(move || reads_while_the_file_is_closed(reader, &told));
        first.close().expect("it closes");
        reads.join().expect("it reads");
    });
    assert_eq!(WATCHED.load(SeqCst), 0, "the close was met");
    assert!(is_locked(&file), "a transaction reads without a lock");
    reader.execute("COMMIT").expect("it ends");
    assert!(!is_locked(&file));
}

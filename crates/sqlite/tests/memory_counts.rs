//! What is counted of memory without a lock is what SQLite counts under one, and the application's own
//! allocator is still called by one thread at a time.
#![allow(unsafe_code)]

mod allocator;

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};

use allocator::MemoryMethods;
use plait_client::Library;
// The spliced amalgamation that `Library::linked` is about.
use plait_sqlite as _;

const MEMORY_USED: c_int = 0;
const MALLOC_SIZE: c_int = 5;
const MALLOC_COUNT: c_int = 9;

unsafe extern "C" {
    safe fn sqlite3_initialize() -> c_int;
    safe fn sqlite3_shutdown() -> c_int;
    safe fn sqlite3_malloc(bytes: c_int) -> *mut c_void;
    fn sqlite3_realloc(memory: *mut c_void, bytes: c_int) -> *mut c_void;
    fn sqlite3_free(memory: *mut c_void);
    fn sqlite3_status64(op: c_int, now: *mut i64, most: *mut i64, reset: c_int) -> c_int;
    safe fn sqlite3_hard_heap_limit64(bytes: i64) -> i64;
}

/// Memory of SQLite's allocator, given back when this is dropped.
struct Memory(*mut c_void);

impl Memory {
    fn of(bytes: c_int) -> Option<Memory> {
        let memory = sqlite3_malloc(bytes);
        (!memory.is_null()).then_some(Memory(memory))
    }

    fn resize(&mut self, bytes: c_int) {
        // SAFETY: allocated by this library, and nobody else's.
        self.0 = unsafe { sqlite3_realloc(self.0, bytes) };
        assert!(!self.0.is_null());
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: as in `resize`.
        unsafe { sqlite3_free(self.0) };
    }
}

/// The value of a count, and its maximum.
fn status(op: c_int, resets: bool) -> (i64, i64) {
    let (mut now, mut most) = (0, 0);
    // SAFETY: both are writable.
    let rc = unsafe { sqlite3_status64(op, &raw mut now, &raw mut most, resets.into()) };
    assert_eq!(rc, 0);
    (now, most)
}

/// Eight threads allocate, change and release memory, and open and close databases.
fn work() {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for round in 1..2000 {
                    let memory = Memory::of((thread * 7 + round) % 3000 + 1);
                    memory.expect("there is memory").resize(round % 5000 + 1);
                }
                for _ in 0..20 {
                    let connection = Library::linked().open(":memory:").expect("it opens");
                    connection.execute("CREATE TABLE t(x); INSERT INTO t VALUES(1)").expect("SQL");
                    connection.close().expect("it closes");
                }
            });
        }
    });
}

/// Allocation and release by SQLite's own functions, which those of the application call.
static DEFAULT: OnceLock<(
    unsafe extern "C" fn(c_int) -> *mut c_void,
    unsafe extern "C" fn(*mut c_void),
)> = OnceLock::new();
static IS_INSIDE: AtomicBool = AtomicBool::new(false);
static WAS_MET: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU32 = AtomicU32::new(0);

fn alone<T>(call: impl FnOnce() -> T) -> T {
    CALLS.fetch_add(1, SeqCst);
    if IS_INSIDE.swap(true, SeqCst) {
        WAS_MET.store(true, SeqCst);
    }
    let result = call();
    IS_INSIDE.store(false, SeqCst);
    result
}

unsafe extern "C" fn malloc_alone(bytes: c_int) -> *mut c_void {
    let malloc = DEFAULT.get().expect("stored").0;
    // SAFETY: SQLite's own call.
    alone(|| unsafe { malloc(bytes) })
}

unsafe extern "C" fn free_alone(memory: *mut c_void) {
    let free = DEFAULT.get().expect("stored").1;
    // SAFETY: SQLite's own call.
    alone(|| unsafe { free(memory) });
}

/// Puts functions of the application in the place of SQLite's, before the first use of the library.
fn watch_the_allocator() {
    allocator::replace(|methods| {
        DEFAULT.set((methods.malloc, methods.free)).expect("once");
        MemoryMethods { malloc: malloc_alone, free: free_alone, ..methods }
    });
}

// holds MEMORY-1, MEMORY-2
#[test]
fn memory_is_counted_as_by_sqlite() {
    assert_eq!(sqlite3_initialize(), 0);
    work();
    let (used, count) = (status(MEMORY_USED, true).0, status(MALLOC_COUNT, true).0);
    work();
    assert_eq!(status(MEMORY_USED, false).0, used, "everything was given back");
    assert_eq!(status(MALLOC_COUNT, false).0, count);
    assert!(status(MEMORY_USED, false).1 >= used + 5000);
    assert!(status(MALLOC_COUNT, false).1 > count);
    status(MALLOC_SIZE, true);
    drop(Memory::of(54_321));
    assert_eq!(status(MALLOC_SIZE, true).1, 54_321);
    assert!(status(MEMORY_USED, true).1 >= used + 54_321);
    assert_eq!(status(MEMORY_USED, false), (used, used), "the maximum begins again");

    sqlite3_hard_heap_limit64(used + 100_000);
    let memory = Memory::of(60_000);
    assert!(memory.is_some());
    assert!(Memory::of(60_000).is_none(), "past the limit");
    drop(memory);
    sqlite3_hard_heap_limit64(0);
    assert_eq!(status(MEMORY_USED, false).0, used);

    assert_eq!(sqlite3_shutdown(), 0);
    watch_the_allocator();
    assert_eq!(sqlite3_initialize(), 0);
    work();
    assert!(!WAS_MET.load(SeqCst), "two threads were in the application's allocator at once");
    // Each thread allocates and releases once a round.
    assert!(CALLS.load(SeqCst) > 8 * 2 * 1999, "the application's allocator was passed by");
    assert!(status(MALLOC_COUNT, false).1 > 0);
}

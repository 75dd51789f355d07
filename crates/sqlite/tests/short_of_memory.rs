//! An allocation that fails, at whatever point of a visit to a database, is an error, and nothing else: the process goes on, what was
//! acknowledged is there, and the next visit finds nothing in its way.
#![allow(unsafe_code)]

mod allocator;

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::SeqCst;

use allocator::MemoryMethods;
use plait_client::{Library, SqlError};
// The spliced amalgamation that `Library::linked` is about.
use plait_sqlite as _;

const NOMEM: c_int = 7;

type Allocate = unsafe extern "C" fn(c_int) -> *mut c_void;
type Resize = unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void;
static DEFAULT: OnceLock<(Allocate, Resize)> = OnceLock::new();
/// Allocations that still succeed; below zero all do.
static LEFT: AtomicI64 = AtomicI64::new(-1);
/// Allocations that fail behind those.
static FAILS: AtomicI64 = AtomicI64::new(0);

fn is_refused() -> bool {
    match LEFT.load(SeqCst) {
        0 => FAILS.fetch_sub(1, SeqCst) > 0,
        1.. => LEFT.fetch_sub(1, SeqCst) <= 0,
        _ => false,
    }
}

unsafe extern "C" fn malloc(bytes: c_int) -> *mut c_void {
    let default = DEFAULT.get().expect("stored").0;
    // SAFETY: SQLite's own call.
    if is_refused() { std::ptr::null_mut() } else { unsafe { default(bytes) } }
}

unsafe extern "C" fn realloc(memory: *mut c_void, bytes: c_int) -> *mut c_void {
    let default = DEFAULT.get().expect("stored").1;
    // SAFETY: SQLite's own call.
    if is_refused() { std::ptr::null_mut() } else { unsafe { default(memory, bytes) } }
}

fn watch_the_allocator() {
    allocator::replace(|methods| {
        DEFAULT.set((methods.malloc, methods.realloc)).expect("once");
        MemoryMethods { malloc, realloc, ..methods }
    });
}

/// Each with the number of rows that it adds.
const STATEMENTS: [(&str, i64); 5] = [
    ("SELECT count(*), max(v) FROM t", 0),
    ("INSERT INTO t(v) VALUES('single')", 1),
    ("BEGIN CONCURRENT; INSERT INTO t(v) SELECT 'several' FROM t LIMIT 3; COMMIT", 3),
    ("BEGIN IMMEDIATE; UPDATE t SET v='changed' WHERE id%2; COMMIT", 0),
    ("PRAGMA wal_checkpoint(TRUNCATE)", 0),
];
/// Busy beside a member of the session.
const ALONE: (&str, i64) =
    ("PRAGMA locking_mode=exclusive; SELECT count(*) FROM t; PRAGMA locking_mode=normal", 0);

/// Opens, runs the statements, closes. Returns the first error, and how many rows were acknowledged.
fn visit(path: &Path, statements: &[(&str, i64)]) -> (Option<SqlError>, i64) {
    let mut rows = 0;
    let connection = match Library::linked().open(path) {
        Ok(connection) => connection,
        Err(e) => return (Some(e), rows),
    };
    let mut error = None;
    for (sql, added) in statements {
        match connection.execute(sql) {
            Ok(()) => rows += added,
            Err(e) => {
                error.get_or_insert(e);
                // Fails as well where no transaction was begun.
                let _ = connection.execute("ROLLBACK");
            }
        }
    }
    let closed = connection.close();
    (error.or(closed.err()), rows)
}

/// Returns how many allocations a visit takes, having let every second of them fail, from `first` on.
fn sweep(path: &Path, statements: &[(&str, i64)], first: i64, fails: i64) -> i64 {
    // What was added is taken away again, so that each visit finds the same.
    let added = || {
        let connection = Library::linked().open(path).expect("there is memory");
        assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        let rows = connection.integer("SELECT count(*) FROM t WHERE id>3").expect("a count");
        connection.execute("DELETE FROM t WHERE id>3").expect("there is memory");
        connection.close().expect("it closes");
        rows
    };
    for at in (first..).step_by(2) {
        FAILS.store(fails, SeqCst);
        LEFT.store(at, SeqCst);
        let (error, rows) = visit(path, statements);
        let left = LEFT.swap(-1, SeqCst);
        if let Some(error) = &error {
            assert_eq!(error.code, NOMEM, "allocation {at}: {error}");
        }
        let there = added();
        assert!(there >= rows, "allocation {at}: {there} rows of {rows}: {error:?}");
        if left > 0 {
            assert!(error.is_none(), "{error:?}");
            return at;
        }
    }
    unreachable!("the counter has no end")
}

#[test]
fn a_failed_allocation_is_an_error_and_nothing_else() {
    watch_the_allocator();
    // In memory where there is such a place: thousands of visits that sync.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    for with_company in [false, true] {
        for (first, fails) in [(0, 1), (1, i64::MAX)] {
            let path = dir.path().join(format!("{with_company}-{fails}"));
            let company = Library::linked().open(&path).expect("it opens");
            company
                .execute(
                    "PRAGMA journal_mode=concurrent; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);
                     CREATE INDEX i ON t(v); INSERT INTO t(v) VALUES('a'),('b'),('c')",
                )
                .expect("a table");
            let company = with_company.then_some(company);
            let more = if with_company { None } else { Some(ALONE) };
            let statements: Vec<_> = STATEMENTS.into_iter().chain(more).collect();
            let allocations = sweep(&path, &statements, first, fails);
            assert!(allocations > 100, "{allocations}");
            drop(company);
        }
    }
}

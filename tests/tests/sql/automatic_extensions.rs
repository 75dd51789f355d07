//! `sqlite3_auto_extension`: an application's own initialisation of the connections that it opens. A process of its own, since
//! what is registered counts for all of it.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use plait_tests::subject::{Fixture, Subject};

static CALLS: AtomicU32 = AtomicU32::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);

unsafe extern "C" fn extension(_: *mut c_void, _: *mut *const c_char, _: *const c_void) -> c_int {
    CALLS.fetch_add(1, Ordering::Relaxed);
    CODE.load(Ordering::Relaxed)
}

#[test]
fn automatic_extensions_are_called_for_the_connections_that_the_application_opens_alone() {
    let subject = Subject::plait();
    let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a PRIMARY KEY, b)");
    subject.library().register_automatic_extension(extension);

    let connection = fixture.open();
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    // From here on it refuses every connection: those that no application opens must not fail for it either.
    CODE.store(1, Ordering::Relaxed);
    connection
        .execute("BEGIN CONCURRENT; INSERT INTO t VALUES(1, 'x'); COMMIT")
        .expect("it commits");
    connection.execute("PRAGMA wal_checkpoint").expect("everything is merged");
    connection.execute("CREATE INDEX tb ON t(b)").expect("it becomes exclusive");
    assert_eq!(connection.integer("SELECT count(*) FROM t WHERE b = 'x'"), Ok(1));
    assert_eq!(CALLS.load(Ordering::Relaxed), 1, "a hidden connection called it");

    assert!(subject.open(&fixture.database()).is_err(), "it was asked about an opening");
    assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    CODE.store(0, Ordering::Relaxed);
    drop(connection);
    let again = fixture.open();
    assert_eq!(again.integer("SELECT count(*) FROM t WHERE b = 'x'"), Ok(1));
}

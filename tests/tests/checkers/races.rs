//! A race between threads, planted, which ThreadSanitizer has to report: `make tsan`, where the library is built with it.

use plait_tests::planted::must_be_reported;
use plait_tests::subject::{Fixture, real_plait};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const WRITERS: usize = 2;
const COMMITS: usize = 300;

/// Readers walk to the end of what others append to: to nodes that have just been linked.
#[test]
fn readers_walk_where_writers_append() {
    let Some(subject) = real_plait("races") else { return };
    let fixture = Fixture::new(subject, "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT)");
    let written = AtomicUsize::new(0);
    let opened: Vec<_> = (0..2 * WRITERS).map(|_| fixture.open()).collect();
    for connection in &opened {
        connection.busy_timeout(Duration::from_secs(60)).expect("a timeout");
    }
    thread::scope(|scope| {
        for (at, connection) in opened.into_iter().enumerate() {
            let written = &written;
            scope.spawn(move || {
                if at < WRITERS {
                    for _ in 0..COMMITS {
                        connection.execute("INSERT INTO t(val) VALUES('new')").expect("a commit");
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                } else {
                    while written.load(Ordering::Relaxed) < WRITERS * COMMITS {
                        connection
                            .integer("SELECT count(*) FROM t WHERE id>-1 AND length(val)=3")
                            .ok();
                    }
                }
            });
        }
    });
    let rows = fixture.open().integer("SELECT count(*) FROM t WHERE val='new'");
    assert_eq!(rows, Ok((WRITERS * COMMITS) as i64));
}

#[test]
#[ignore = "for `make tsan`: without ThreadSanitizer nobody sees it"]
fn a_node_that_is_linked_without_order_is_reported() {
    must_be_reported(
        "memtable.linked_unordered",
        "readers_walk_where_writers_append",
        &["WARNING: ThreadSanitizer: data race"],
    );
}

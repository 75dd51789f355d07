//! Values of more than 8 MiB, which no memtable takes: the transaction becomes exclusive around them.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::sqlite::{ABORT, ABORT_ROLLBACK, Connection};
use plait_tests::subject::{Begin, Fixture, Subject};

const BYTES: usize = 9_000_000;
const SCHEMA: &str = "CREATE TABLE b(id INTEGER PRIMARY KEY, data BLOB); CREATE TABLE small(id INTEGER PRIMARY KEY, n);
    INSERT INTO small VALUES(1, 1), (2, 2)";

fn bytes(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|index| (index.wrapping_mul(2_654_435_761 + 2 * seed) >> 13) as u8).collect()
}

fn put(connection: &Connection, id: i64, data: &[u8]) {
    let mut insert =
        connection.prepare("INSERT OR REPLACE INTO b VALUES(?, ?)").expect("it prepares");
    insert.bind_i64(1, id).expect("a value");
    insert.bind_blob(2, data).expect("a blob");
    insert.run().unwrap_or_else(|error| panic!("blob {id}: {error}"));
}

fn holds(connection: &Connection, id: i64, data: &[u8]) -> bool {
    let rows = connection.query(&format!("SELECT data FROM b WHERE id={id}")).expect("it reads");
    rows == [vec![data.to_vec().into()]]
}

#[test]
fn writes_before_and_after_a_large_value_belong_to_one_transaction() {
    for begin in Begin::ALL {
        let fixture = Fixture::new(Subject::plait(), SCHEMA);
        let (connection, other) = (fixture.open(), fixture.open());
        let data = [bytes(1), bytes(2)];
        for end in ["ROLLBACK", "COMMIT"] {
            connection.execute(fixture.subject.begin(begin)).expect("it begins");
            connection.execute("UPDATE small SET n=n+10; SAVEPOINT a").expect("a small write");
            put(&connection, 1, &data[0]);
            connection.execute("SAVEPOINT b").expect("a savepoint");
            put(&connection, 2, &data[1]);
            put(&connection, 1, &data[1]);
            connection
                .execute("UPDATE small SET n=n+100 WHERE id=1; ROLLBACK TO b")
                .expect("one back");
            assert!(holds(&connection, 1, &data[0]), "{begin:?}: the first is there");
            assert_eq!(connection.integer("SELECT count(*) FROM b"), Ok(1), "{begin:?}");
            put(&connection, 3, &data[1]);
            connection.execute(end).unwrap_or_else(|error| panic!("{begin:?}, {end}: {error}"));
            let expected = if end == "COMMIT" { (2, 23) } else { (0, 3) };
            assert_eq!(other.integer("SELECT count(*) FROM b"), Ok(expected.0), "{begin:?}, {end}");
            assert_eq!(
                other.integer("SELECT sum(n) FROM small"),
                Ok(expected.1),
                "{begin:?}, {end}"
            );
        }
        assert!(holds(&other, 1, &data[0]) && holds(&other, 3, &data[1]), "{begin:?}");
        assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

#[test]
fn open_blob_handles_outlive_the_escalation_of_their_transaction() {
    let fixture = Fixture::new(Subject::plait(), SCHEMA);
    let connection = fixture.open();
    let data = [bytes(1), bytes(2)];
    put(&connection, 1, &data[0]);
    connection.execute("INSERT INTO b VALUES(2, zeroblob(100000))").expect("a small one");
    for begin in [Begin::Deferred, Begin::Immediate, Begin::Concurrent] {
        connection.execute(fixture.subject.begin(begin)).expect("it begins");
        let mut small = connection.open_blob("b", "data", 2, true).expect("a handle");
        let mut large = connection.open_blob("b", "data", 1, false).expect("a handle");
        small.write(10, b"before").expect("a write");
        assert_eq!(large.read(8_000_000, 100).expect("a read"), data[0][8_000_000..8_000_100]);
        put(&connection, 3, &data[1]);
        assert_eq!(
            large.read(8_000_100, 100).expect("a read"),
            data[0][8_000_100..8_000_200],
            "{begin:?}"
        );
        assert_eq!(small.read(10, 6).expect("a read"), b"before", "{begin:?}");
        small.write(20, b"after").expect("a write");
        small.close().expect("it closes");
        large.close().expect("it closes");
        connection.execute("COMMIT").unwrap_or_else(|error| panic!("{begin:?}: {error}"));
        let other = fixture.open();
        let mut seen = other.open_blob("b", "data", 2, false).expect("a handle");
        assert_eq!(seen.read(10, 15).expect("a read"), b"before\0\0\0\0after", "{begin:?}");
        seen.close().expect("it closes");
        assert!(holds(&other, 3, &data[1]), "{begin:?}");
        connection
            .execute("DELETE FROM b WHERE id=3; UPDATE b SET data=zeroblob(100000) WHERE id=2")
            .expect("again");
    }
}

/// Found by the differential suite: in SQLite a write of its row takes the failure from a handle that a ROLLBACK tripped.
#[test]
fn a_blob_handle_after_a_rollback_can_be_moved_once_its_row_was_written() {
    for subject in [Subject::stock(), Subject::plait()] {
        let fixture = Fixture::new(subject, SCHEMA);
        let connection = fixture.open();
        connection
            .execute("INSERT INTO b VALUES(1, zeroblob(10)), (2, zeroblob(10))")
            .expect("two rows");
        let mut handle = connection.open_blob("b", "data", 1, true).expect("a handle");
        connection.execute("BEGIN IMMEDIATE; ROLLBACK").expect("a rollback");
        connection.execute("UPDATE b SET data=zeroblob(20) WHERE id=1").expect("a write");
        handle.reopen(2).expect("it moves");
        assert_eq!(handle.read(0, 10).expect("a read"), [0; 10]);
        connection.execute("BEGIN IMMEDIATE; ROLLBACK").expect("a rollback");
        let error = handle.reopen(1).expect_err("no row of it was written");
        assert_eq!(error.extended, ABORT_ROLLBACK, "{error}");
        handle.close().ok();
    }
}

/// Found by the differential suite: a handle for writing that a ROLLBACK tripped keeps the next statement's transaction open, and where that is
/// exclusive its writes went by the handle.
#[test]
fn a_blob_handle_after_a_rollback_is_told_of_writes_on_the_exclusive_path() {
    let writes = [
        ("DELETE FROM b WHERE id=2; DELETE FROM b WHERE id=1", ABORT),
        ("INSERT OR REPLACE INTO b VALUES(1, zeroblob(10))", ABORT),
        ("DELETE FROM b", ABORT),
        ("DELETE FROM b WHERE id=2", ABORT_ROLLBACK),
        ("DELETE FROM small", ABORT_ROLLBACK),
    ];
    for subject in [Subject::stock(), Subject::plait()] {
        for (write, code) in writes {
            let fixture = Fixture::new(subject.clone(), SCHEMA);
            let (connection, other) = (fixture.open(), fixture.open());
            connection
                .execute("INSERT INTO b VALUES(1, zeroblob(10)), (2, zeroblob(10))")
                .expect("two rows");
            other.query("SELECT count(*) FROM b").expect("a neighbour");
            let mut handle = connection.open_blob("b", "data", 1, true).expect("a handle");
            connection
                .execute("BEGIN IMMEDIATE; ROLLBACK; PRAGMA user_version=7")
                .expect("a pragma");
            connection.execute(write).expect("a write");
            let error = handle.read(0, 5).expect_err("nothing to read");
            assert_eq!(error.extended, code, "{:?}: {write}: {error}", fixture.subject.mode);
            handle.close().ok();
        }
    }
}

/// Found by the differential suite: a handle whose row was written is aborted, then a ROLLBACK trips it, and the next write of that row aborts it anew.
#[test]
fn a_blob_handle_that_was_aborted_before_a_rollback_knows_its_row() {
    for subject in [Subject::stock(), Subject::plait()] {
        for (begin, write, code) in [
            ("BEGIN", "INSERT INTO b VALUES(1, 0)", ABORT),
            ("BEGIN IMMEDIATE; PRAGMA application_id=7", "INSERT INTO b VALUES(1, 0)", ABORT),
            ("BEGIN", "INSERT INTO b VALUES(2, 0)", ABORT_ROLLBACK),
            (
                "BEGIN IMMEDIATE; PRAGMA application_id=7",
                "INSERT INTO b VALUES(2, 0)",
                ABORT_ROLLBACK,
            ),
        ] {
            let fixture = Fixture::new(subject.clone(), SCHEMA);
            let (connection, other) = (fixture.open(), fixture.open());
            other.query("SELECT count(*) FROM b").expect("a neighbour");
            connection.execute(begin).expect("it begins");
            connection.execute("INSERT INTO b VALUES(1, zeroblob(10))").expect("a row");
            let mut handle = connection.open_blob("b", "data", 1, true).expect("a handle");
            connection.execute("UPDATE b SET data=1; ROLLBACK").expect("a rollback");
            connection.execute(write).expect("a write");
            let error = handle.read(0, 5).expect_err("nothing to read");
            assert_eq!(
                error.extended, code,
                "{:?}: {begin}: {write}: {error}",
                fixture.subject.mode
            );
            handle.close().ok();
        }
    }
}

in_threads_and_processes! {
    fn a_reader_keeps_its_snapshot_while_large_values_are_replaced(place) {
        let fixture = Fixture::new(Subject::plait(), SCHEMA);
        let writer = fixture.open();
        put(&writer, 1, &bytes(1));
        let mut reader = Actor::start(place, "reader", &fixture.subject, &fixture.database());
        let look = "SELECT count(*)*1000000000 + sum(length(data)) + sum(unicode(hex(substr(data, 5000000, 1)))) FROM b";
        reader.ok("BEGIN");
        let before = reader.integer(look);
        for seed in 2..6 {
            put(&writer, 1, &bytes(seed));
            writer.execute("UPDATE small SET n=n+1").expect("a small commit between");
            assert_eq!(reader.integer(look), before, "replacement {seed}");
        }
        reader.ok("COMMIT");
        assert!(holds(&writer, 1, &bytes(5)));
        writer.execute("DELETE FROM b").expect("a delete");
        assert_eq!(reader.integer("SELECT count(*) FROM b"), 0);
        assert_eq!(writer.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

/// A long frame of the log has to wait until all others are written; others must not keep it waiting for ever.
#[test]
fn transactions_of_hundreds_of_kilobytes_commit_beside_busy_writers() {
    const COMMITS: usize = 40;
    let fixture = Fixture::new(Subject::plait(), SCHEMA);
    let concurrent = fixture.subject.begin(Begin::Concurrent);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let small = std::thread::scope(|scope| {
        let writers: Vec<_> = (3..9)
            .map(|id| {
                let (fixture, is_over) = (&fixture, &is_over);
                scope.spawn(move || {
                    let connection = fixture.open();
                    connection.execute("PRAGMA busy_timeout=20000").expect("a timeout");
                    connection
                        .execute(&format!("INSERT INTO small VALUES({id}, 0)"))
                        .expect("a row");
                    let mut commits = 0;
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        let update =
                            format!("{concurrent}; UPDATE small SET n=n+1 WHERE id={id}; COMMIT");
                        connection.execute(&update).unwrap_or_else(|error| panic!("{id}: {error}"));
                        commits += 1;
                    }
                    commits
                })
            })
            .collect();
        let connection = fixture.open();
        connection.execute("PRAGMA busy_timeout=20000").expect("a timeout");
        let data = bytes(1);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for commit in 0..COMMITS {
                connection.execute(concurrent).expect("it begins");
                // From what takes turns in the ring's window to what needs all of the ring.
                put(&connection, commit as i64, &data[..100_000 << (commit % 6)]);
                connection.execute("COMMIT").unwrap_or_else(|error| panic!("{commit}: {error}"));
            }
        }));
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let small: i64 = writers.into_iter().map(|w| w.join().expect("a writer")).sum();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        small
    });
    let connection = fixture.open();
    assert_eq!(connection.integer("SELECT sum(n) FROM small WHERE id>2"), Ok(small));
    for commit in 0..COMMITS {
        assert!(
            holds(&connection, commit as i64, &bytes(1)[..100_000 << (commit % 6)]),
            "{commit}"
        );
    }
}

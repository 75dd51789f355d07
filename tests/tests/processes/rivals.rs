//! Another program that has the database file for itself, in `locking_mode=EXCLUSIVE`, since the locks of a process with connections to it were dropped:
//! POSIX drops them when a process closes any descriptor of the file, as one does that copies its own database. The other has a WAL-index of its
//! own and heeds no fence that it has not seen.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, CANTOPEN};
use plait_tests::subject::{Fixture, Subject, real_plait};

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;";
const INSERT: &str = "INSERT INTO t(val) VALUES('new')";
const COUNT: &str = "SELECT count(*) FROM t";
const TRUNCATE: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// This process copies the file, and a stock program comes.
fn rival(fixture: &Fixture) -> Actor {
    drop(std::fs::read(fixture.database()).expect("it is copied"));
    let mut stock = Actor::idle(Place::Processes, "stock", &Subject::stock());
    stock.open(&fixture.database()).expect("it opens when it is used");
    stock.ok("PRAGMA locking_mode=EXCLUSIVE");
    stock
}

/// What somebody else finds when all have closed.
#[track_caller]
fn is_sound(fixture: &Fixture, rows: i64) {
    let rest = fixture.open();
    assert_eq!(rest.integer(COUNT), Ok(rows));
    assert_eq!(rest.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

/// It has read page 1 while that had no fence, and its WAL-index is its own. What it writes then is none of the pool's, which is told in time.
#[test]
fn a_stock_program_that_has_the_file_for_itself_is_waited_for_before_the_fence_is_raised() {
    for lowered in [true, false] {
        let Some(subject) = real_plait("programs that have the file for themselves") else {
            return;
        };
        let fixture = Fixture::new(subject, ROWS);
        let [a, b] = [fixture.open(), fixture.open()];
        for connection in [&a, &b] {
            assert_eq!(connection.integer(COUNT), Ok(500));
        }
        if lowered {
            a.execute(INSERT).expect("it commits");
            a.execute(TRUNCATE).expect("nobody is in the way");
        }
        let mut stock = rival(&fixture);
        stock.ok("BEGIN");
        let rows = 500 + i64::from(lowered);
        assert_eq!(stock.integer(COUNT), rows);
        let short = b.busy_timeout(std::time::Duration::from_millis(100));
        short.expect("it is set");
        let refused = b.execute(INSERT).expect_err("it may write");
        assert_eq!(refused.code, BUSY, "{refused}");
        assert!(refused.message.contains("locking_mode=EXCLUSIVE"), "{refused}");
        stock.ok("INSERT INTO t VALUES(900, 'stock'); COMMIT");
        stock.close().expect("it closes");
        drop((a, b));
        let rest = fixture.open();
        assert_eq!(rest.integer(COUNT), Ok(rows + 1), "lowered: {lowered}");
        assert_eq!(rest.integer("SELECT count(*) FROM t WHERE id=900"), Ok(1));
        assert_eq!(rest.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        rest.execute(INSERT).expect("all goes on");
    }
}

/// It has removed the WAL, which the pool has open: into that nothing is written.
#[test]
fn a_stock_program_that_had_the_file_for_itself_and_has_gone_is_noticed() {
    let Some(subject) = real_plait("programs that have the file for themselves") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let a = fixture.open();
    assert_eq!(a.integer(COUNT), Ok(500));
    let mut stock = rival(&fixture);
    stock.ok("INSERT INTO t VALUES(900, 'stock')");
    stock.close().expect("it closes");
    assert!(!fixture.side_file("-wal").exists());
    for _ in 0..3 {
        let refused = a.execute(INSERT).expect_err("its WAL has no name");
        assert_eq!(refused.code, CANTOPEN, "{refused}");
        assert!(refused.message.contains("-wal was removed"), "{refused}");
    }
    drop(a);
    is_sound(&fixture, 501);
    fixture.open().execute(INSERT).expect("all goes on");
}

/// Rows that somebody inserts meanwhile lie where this session has deleted, and knows that there is nothing.
#[test]
fn a_close_that_could_not_be_made_leaves_nothing_that_is_not_so_any_more() {
    let Some(subject) = real_plait("programs that have the file for themselves") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let a = fixture.open();
    let between = "SELECT id FROM t WHERE id BETWEEN 100 AND 400";
    a.execute("DELETE FROM t WHERE id BETWEEN 100 AND 400").expect("it commits");
    for _ in 0..5 {
        assert_eq!(a.query(between), Ok(Vec::new()));
    }
    a.execute(TRUNCATE).expect("nobody is in the way");
    let mut stock = rival(&fixture);
    stock.ok("BEGIN");
    assert_eq!(stock.integer(COUNT), 199);
    let _ = a.close();
    stock.ok("INSERT INTO t VALUES(140, 'stock'); COMMIT");
    stock.close().expect("it closes");
    let b = fixture.open();
    assert_eq!(b.query(between), Ok(vec![vec![140.into()]]));
    b.execute("DELETE FROM t WHERE id=141").expect("it commits");
    assert_eq!(b.query(between), Ok(vec![vec![140.into()]]));
    assert_eq!(b.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

/// Before it joins a connection may have the file for itself, and keeps it.
#[test]
fn a_connection_that_has_the_file_for_itself_keeps_it_whatever_it_did_before() {
    let Some(subject) = real_plait("programs that have the file for themselves") else { return };
    for before in ["PRAGMA user_version", COUNT, "PRAGMA journal_mode=wal"] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let visits = ("PLAIT_JOIN", "when needed");
        let (subject, database) = (&fixture.subject, fixture.database());
        let mut own = Actor::start_with_environment("own", subject, &database, visits);
        own.run(before);
        own.ok("PRAGMA locking_mode=EXCLUSIVE");
        own.ok(INSERT);
        own.ok("BEGIN IMMEDIATE");
        let mut stock = Actor::idle(Place::Processes, "stock", &Subject::stock());
        stock.open(&database).expect("it opens when it is used");
        stock.busy_timeout(std::time::Duration::from_millis(50));
        assert_eq!(stock.fails(INSERT, BUSY).code, BUSY, "{before}");
        own.ok(INSERT);
        own.ok("COMMIT");
        assert_eq!(stock.fails(COUNT, BUSY).code, BUSY, "{before}");
        own.close().expect("it closes");
        is_sound(&fixture, 502);
    }
}

/// The same at the last close, which writes to the WAL as well.
#[test]
fn the_last_close_meets_no_stock_program_that_has_the_file_for_itself() {
    let Some(subject) = real_plait("programs that have the file for themselves") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let a = fixture.open();
    a.execute(INSERT).expect("it commits");
    a.execute(TRUNCATE).expect("nobody is in the way");
    let mut stock = rival(&fixture);
    stock.ok("BEGIN");
    assert_eq!(stock.integer(COUNT), 501);
    let _ = a.close();
    stock.ok("INSERT INTO t VALUES(900, 'stock'); COMMIT");
    stock.close().expect("it closes");
    is_sound(&fixture, 502);
}

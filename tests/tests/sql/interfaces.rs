//! The rest of SQLite's interface on a concurrent database: backups, images, page tables, hooks, sessions, waiting.

use plait_tests::actor::Actor;
use plait_tests::job::{Job, Running, Work};
use plait_tests::jobs::pairs::{Pairs, SCHEMA};
use plait_tests::place::Place;
use plait_tests::sqlite::{
    BUSY, Backup, BackupProgress, ChangeKind, Connection, INTERRUPT, OpenFlags, RowBefore,
    RowChange, Session, TransactionState,
};
use plait_tests::subject::{Fixture, Subject};
use plait_tests::value::Value;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    CREATE TABLE w(a TEXT PRIMARY KEY, b) WITHOUT ROWID;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;
    INSERT INTO w SELECT val, id FROM t;";

/// A database with some rows in the base and some not.
fn half_merged() -> (Fixture, Connection) {
    let fixture = Fixture::new(Subject::plait(), ROWS);
    let connection = fixture.open();
    connection.execute("UPDATE t SET val='unmerged' WHERE id<=10; DELETE FROM t WHERE id=500; DELETE FROM w WHERE b<5").expect("writes");
    (fixture, connection)
}

#[track_caller]
fn is_the_same(copy: &Connection) {
    assert_eq!(copy.integer("SELECT count(*) FROM t"), Ok(499));
    assert_eq!(copy.integer("SELECT count(*) FROM t WHERE val='unmerged'"), Ok(10));
    assert_eq!(copy.integer("SELECT count(*) FROM w"), Ok(496));
    assert_eq!(copy.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

fn start_writers(fixture: &Fixture) -> Vec<Running> {
    fixture.open().execute(SCHEMA).expect("tables of the writers");
    let start = |worker| {
        let work = Work::Pairs(Pairs { worker, ..Pairs::default() });
        let job = Job { subject: fixture.subject.clone(), database: fixture.database(), work };
        job.start(if worker == 1 { Place::Threads } else { Place::Processes })
    };
    (1..=2).map(start).collect()
}

#[test]
fn a_backup_is_a_plain_database_with_every_row() {
    let (fixture, connection) = half_merged();
    let path = fixture.path("backup.db");
    let destination = fixture.subject.open(&path).expect("it opens");
    connection.backup_to(&destination).expect("a backup");
    destination.close().expect("it closes");
    is_the_same(&Subject::stock().open(&path).expect("stock opens it"));
    let copy = fixture.subject.open(&path).expect("we open it");
    is_the_same(&copy);
    copy.execute("INSERT INTO t(val) VALUES('into the copy')").expect("an insert");
    is_the_same(&connection);
}

#[test]
fn a_backup_step_by_step_beside_writers_is_consistent() {
    let (fixture, connection) = half_merged();
    let writers = start_writers(&fixture);
    for round in 0..3 {
        let path = fixture.path(&format!("backup-{round}.db"));
        let destination = fixture.subject.open(&path).expect("it opens");
        let mut backup = Backup::start(&connection, &destination).expect("it starts");
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match backup.step(7) {
                Ok(BackupProgress::Done) => break,
                Ok(BackupProgress::More) => {}
                Err(error) => assert!(error.is_busy() || error.code == 6, "{error}"),
            }
            assert!(Instant::now() < deadline, "a backup must end");
            std::thread::sleep(Duration::from_micros(200));
        }
        drop(backup);
        destination.close().expect("it closes");
        let stock = Subject::stock().open(&path).expect("stock opens it");
        is_the_same(&stock);
        let halves = "SELECT (SELECT count(*) FROM pair_a) - (SELECT count(*) FROM pair_b)";
        assert_eq!(stock.integer(halves), Ok(0), "no half transaction");
    }
    drop(writers);
}

/// A backup by steps during which `write` runs once, and then `begin` in the connection that is copied: what the copy says of row 777 of `t`.
fn copied_by_steps(
    subject: &Subject,
    by_other: bool,
    write: &str,
    begin: &str,
    after_steps: u32,
) -> Vec<Vec<Value>> {
    let fixture = Fixture::new(subject.clone(), ROWS);
    let (connection, other) = (fixture.open(), fixture.open());
    let path = fixture.path("backup.db");
    let destination = fixture.subject.open(&path).expect("it opens");
    let mut backup = Backup::start(&connection, &destination).expect("it starts");
    let mut steps = 0;
    while backup.step(1).expect("a step") == BackupProgress::More {
        steps += 1;
        assert!(steps < 1000, "a backup must end");
        if steps == after_steps {
            let writer = if by_other { &other } else { &connection };
            writer.execute(write).expect("a write");
            connection.execute(begin).expect("its own transaction");
        }
    }
    assert!(steps > after_steps, "the write came in the middle");
    drop(backup);
    destination.close().expect("it closes");
    let stock = Subject::stock().open(&path).expect("stock opens it");
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    stock.query("SELECT count(*), (SELECT val FROM t WHERE id=777) FROM t").expect("a count")
}

#[test]
fn a_backup_by_steps_ends_with_the_newest_state() {
    for by_other in [false, true] {
        for write in [
            "INSERT INTO t VALUES(777, 'new')",
            "DELETE FROM t WHERE id<100",
            "UPDATE t SET val=val||'!'",
        ] {
            for begin in ["SELECT 1", "BEGIN", "BEGIN; SELECT count(*) FROM t"] {
                for after_steps in [1, 3] {
                    let copied = |subject: Subject| {
                        copied_by_steps(&subject, by_other, write, begin, after_steps)
                    };
                    assert_eq!(
                        copied(Subject::plait()),
                        copied(Subject::stock()),
                        "{write}, by another connection {by_other}, {begin}, after {after_steps}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_backup_by_steps_ends_beside_a_program_that_writes_between_them() {
    let copied = |subject: Subject, write: &str| {
        let fixture = Fixture::new(subject, ROWS);
        let connection = fixture.open();
        let destination = fixture.subject.open(&fixture.path("backup.db")).expect("it opens");
        let mut backup = Backup::start(&connection, &destination).expect("it starts");
        let mut steps = 0;
        while backup.step(3).expect("a step") == BackupProgress::More {
            connection.execute(write).expect("its own write");
            steps += 1;
            assert!(steps < 100, "a backup must end");
        }
        drop(backup);
        assert_eq!(destination.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        let count = "SELECT count(*), sum(length(val)) FROM t";
        let copy = destination.query(count).expect("a count");
        assert_eq!(copy, connection.query(count).expect("a count"), "{write}");
        steps
    };
    for write in ["UPDATE t SET val=val||'!' WHERE id=7", "INSERT INTO t(val) VALUES('new')"] {
        let steps = [Subject::stock(), Subject::plait()].map(|subject| copied(subject, write));
        assert!(steps[0] > 2 && steps[1] > 2 && steps[1] <= 2 * steps[0], "{write}: {steps:?}");
    }
}

/// Stock SQLite starts over each time: it ends when nobody has committed since the step before.
#[test]
fn a_backup_by_steps_ends_beside_others_who_write_between_them() {
    let fixture = Fixture::new(Subject::plait(), ROWS);
    let (connection, other) = (fixture.open(), fixture.open());
    let destination = fixture.subject.open(&fixture.path("backup.db")).expect("it opens");
    let mut backup = Backup::start(&connection, &destination).expect("it starts");
    let (mut steps, mut written) = (0, 0);
    while backup.step(3).expect("a step") == BackupProgress::More {
        other.execute("UPDATE t SET val=val||'!' WHERE id=7").expect("a write");
        written += 1;
        if steps % 3 == 0 {
            other.execute("PRAGMA wal_checkpoint").expect("it is merged");
        }
        steps += 1;
        assert!(steps < 500, "a backup must end");
    }
    assert!(steps > 10, "{steps}: it is tried by steps");
    drop(backup);
    assert_eq!(destination.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    let marks = "SELECT length(val)-length(rtrim(val, '!')) FROM t WHERE id=7";
    assert_eq!(
        destination.integer(marks),
        Ok(written),
        "with all that was committed before its end"
    );
    assert_eq!(connection.integer(marks), Ok(written));
}

#[test]
fn a_backup_by_steps_beside_an_open_statement_has_every_row() {
    for begin in ["BEGIN; SELECT count(*) FROM t", "BEGIN CONCURRENT; SELECT count(*) FROM t"] {
        let (fixture, connection) = half_merged();
        connection.execute(begin).expect("it reads");
        let destination = fixture.subject.open(&fixture.path("backup.db")).expect("it opens");
        let mut backup = Backup::start(&connection, &destination).expect("it starts");
        let mut steps = 0;
        while backup.step(1).expect("a step") == BackupProgress::More {
            steps += 1;
            assert!(steps < 1000, "a backup must end");
        }
        assert!(steps > 3, "page by page");
        drop(backup);
        is_the_same(&destination);
        connection.execute("INSERT INTO t(val) VALUES('after it'); COMMIT").expect("it goes on");
        assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(500));
    }
}

/// Copies and images do not need what others have locked where everything is merged.
#[test]
fn a_copy_is_made_beside_an_exclusive_transaction_and_within_one_that_has_read() {
    for subject in [Subject::stock(), Subject::plait()] {
        for open in [
            "BEGIN IMMEDIATE; CREATE TABLE more(a)",
            "BEGIN IMMEDIATE; PRAGMA application_id=7",
            "SELECT 1",
        ] {
            for begin in ["SELECT 1", "BEGIN; SELECT count(*) FROM t"] {
                let what = format!("{}: {open}; {begin}", subject.is_concurrent());
                let fixture = Fixture::new(subject.clone(), ROWS);
                let (connection, other) = (fixture.open(), fixture.open());
                assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(500));
                other.execute("DELETE FROM t WHERE id=1; PRAGMA wal_checkpoint").expect("merged");
                other.execute(open).expect("it begins");
                connection.execute(begin).expect("it begins");
                let destination = fixture.subject.open(&fixture.path("copy.db")).expect("it opens");
                connection.backup_to(&destination).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(destination.integer("SELECT count(*) FROM t"), Ok(499), "{what}");
                assert!(connection.serialize().is_ok_and(|image| image.len() > 4096), "{what}");
                // No right was taken for it.
                if open == "SELECT 1" {
                    other.execute("INSERT INTO t VALUES(1, 'again')").expect("beside it");
                }
            }
        }
    }
}

#[test]
fn a_reader_without_the_right_to_write_copies_within_its_transaction() {
    for subject in [Subject::stock(), Subject::plait()] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let writer = fixture.open();
        writer.execute("DELETE FROM t WHERE id=1; PRAGMA wal_checkpoint").expect("merged");
        let uri = format!("file:{}?mode=ro", fixture.database().display());
        let reader = subject.library().open_with(&uri, OpenFlags::Uri).expect("it opens");
        reader.execute("BEGIN; SELECT count(*) FROM t").expect("it reads");
        let destination = subject.open(&fixture.path("copy.db")).expect("it opens");
        reader.backup_to(&destination).expect("a copy");
        assert_eq!(destination.integer("SELECT count(*) FROM t"), Ok(499));
    }
}

#[test]
fn a_backup_that_waits_while_the_schema_changes_succeeds() {
    for subject in [Subject::stock(), Subject::plait()] {
        for pages in [-1, 1] {
            let fixture = Fixture::new(subject.clone(), ROWS);
            let source = fixture.open();
            assert_eq!(
                source.integer("SELECT count(*) FROM t"),
                Ok(500),
                "it knows the old schema"
            );
            let mut other = Actor::start(Place::Threads, "other", &subject, &fixture.database());
            other.ok("BEGIN EXCLUSIVE; CREATE TABLE added(a); INSERT INTO t VALUES(777, 'new')");
            let commit = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                other.ok("COMMIT");
            });
            let destination = subject.open(&fixture.path("backup.db")).expect("it opens");
            let mut backup = Backup::start(&source, &destination).expect("it starts");
            while backup.step(pages).expect("a step") == BackupProgress::More {}
            drop(backup);
            commit.join().expect("the other is done");
            destination.close().expect("it closes");
            let copy = Subject::stock().open(&fixture.path("backup.db")).expect("stock opens it");
            // Nobody need wait for the other: what was there before may be copied.
            let rows = copy.integer("SELECT count(*) FROM t").expect("a count");
            assert!(rows == 500 || rows == 501, "{rows} rows");
            let tables = "SELECT count(*) FROM sqlite_schema WHERE name='added'";
            assert_eq!(copy.integer(tables), Ok(rows - 500));
            assert_eq!(copy.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        }
    }
}

#[test]
fn vacuum_into_gives_a_plain_database() {
    let (fixture, connection) = half_merged();
    let writers = start_writers(&fixture);
    let path = fixture.path("into.db");
    connection.execute(&format!("VACUUM INTO '{}'", path.display())).expect("VACUUM INTO");
    is_the_same(&Subject::stock().open(&path).expect("stock opens it"));
    drop(writers);
}

#[test]
fn vacuum_beside_writers_loses_nothing() {
    let (fixture, connection) = half_merged();
    let writers = start_writers(&fixture);
    for _ in 0..3 {
        connection.execute("VACUUM").expect("VACUUM");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(writers);
    is_the_same(&connection);
}

#[test]
fn a_serialized_image_opens_in_memory_with_stock() {
    let (_fixture, connection) = half_merged();
    let image = connection.serialize().expect("an image");
    assert_eq!(image[18..20], [1, 1], "an image in WAL mode could not be opened in memory");
    let memory = Subject::stock().library().open(":memory:").expect("it opens");
    memory.deserialize(&image).expect("stock takes the image");
    is_the_same(&memory);
}

#[test]
fn page_tables_and_counts_agree_beside_writers() {
    let (fixture, connection) = half_merged();
    let writers = start_writers(&fixture);
    for _ in 0..10 {
        connection.execute("BEGIN; SELECT * FROM t LIMIT 1").expect("a snapshot");
        let pages = connection.integer("PRAGMA page_count").expect("page_count");
        assert!(pages > 3);
        connection.integer("SELECT sum(pgsize) FROM dbstat").expect("dbstat");
        let rows = connection.integer("SELECT count(*) FROM sqlite_dbpage").expect("dbpage");
        assert!(rows > 3, "{rows} pages");
        connection.integer("PRAGMA freelist_count").expect("freelist_count");
        connection.execute("COMMIT").expect("it ends");
        assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        assert_eq!(connection.text("PRAGMA quick_check").as_deref(), Ok("ok"));
    }
    drop(writers);
}

#[test]
fn dbstat_knows_rows_that_were_not_merged_before() {
    let fixture = Fixture::new(Subject::plait(), "CREATE TABLE big(a)");
    let connection = fixture.open();
    connection.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<200) INSERT INTO big SELECT zeroblob(3000) FROM n").expect("rows");
    let pages = connection.integer("SELECT count(*) FROM dbstat WHERE name='big'").expect("dbstat");
    assert!(pages >= 100, "{pages} pages");
}

fn recorded(subject: &Subject) -> (Vec<RowChange>, Vec<RowBefore>, u32, u32) {
    let fixture = Fixture::new(subject.clone(), ROWS);
    let connection = fixture.open();
    let (updates, preupdates) =
        (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (commits, rollbacks) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let sink = updates.clone();
    connection.update_hook(move |change| sink.lock().expect("one thread").push(change));
    let sink = preupdates.clone();
    connection.preupdate_hook(move |row| sink.lock().expect("one thread").push(row));
    let count = commits.clone();
    connection.commit_hook(move || {
        count.fetch_add(1, Ordering::Relaxed);
        true
    });
    let count = rollbacks.clone();
    connection.rollback_hook(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let begin = subject.begin(plait_tests::subject::Begin::Concurrent);
    let script = format!(
        "INSERT INTO t(val) VALUES('a'), ('b'); UPDATE t SET val='c' WHERE id IN (1, 501); DELETE FROM t WHERE id=2;
         REPLACE INTO t VALUES(3, 'r'); INSERT INTO w VALUES('w', 1); UPDATE w SET b=2 WHERE a='w'; DELETE FROM t WHERE id>490;
         {begin}; UPDATE t SET id=9000 WHERE id=4; SAVEPOINT s; DELETE FROM t WHERE id=5; ROLLBACK TO s; COMMIT;
         {begin}; DELETE FROM t; ROLLBACK; BEGIN; SELECT 1; COMMIT; DELETE FROM w;"
    );
    connection.execute(&script).expect("the script runs");
    (
        updates.lock().expect("one thread").clone(),
        preupdates.lock().expect("one thread").clone(),
        commits.load(Ordering::Relaxed),
        rollbacks.load(Ordering::Relaxed),
    )
}

#[test]
fn hooks_are_called_as_in_stock() {
    let (stock, plait) = (recorded(&Subject::stock()), recorded(&Subject::plait()));
    assert_eq!(stock, plait);
    assert!(stock.0.iter().any(|change| change.kind == ChangeKind::Update));
}

#[test]
fn a_commit_hook_can_refuse_a_commit() {
    let (fixture, connection) = half_merged();
    connection.commit_hook(|| false);
    for begin in plait_tests::subject::Begin::ALL {
        connection.execute(fixture.subject.begin(begin)).expect("it begins");
        connection.execute("DELETE FROM t").expect("a delete");
        let error = connection.execute("COMMIT").expect_err("the hook refuses");
        assert_eq!(error.code, plait_tests::sqlite::CONSTRAINT, "{error}");
        assert!(connection.autocommit(), "it was rolled back");
    }
    connection.execute("DELETE FROM t").expect_err("autocommit too");
    is_the_same(&fixture.open());
}

/// As in stock, also through a handle that has not looked at the file.
#[test]
fn a_backup_asks_no_commit_hook_of_its_destination() {
    for subject in [Subject::stock(), Subject::plait()] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let source = subject.library().open(fixture.path("source.db")).expect("it opens");
        source.execute("CREATE TABLE s(x); INSERT INTO s VALUES(1)").expect("a source");
        let other = fixture.open();
        assert_eq!(other.integer("SELECT count(*) FROM t"), Ok(500));
        for round in 1..=2 {
            let destination = fixture.open();
            destination.commit_hook(|| false);
            source.backup_to(&destination).expect("a copy");
            source.execute("INSERT INTO s VALUES(2)").expect("a row");
            source.backup_to(&destination).expect("another one");
            assert_eq!(destination.integer("SELECT count(*) FROM s"), Ok(1 + round));
        }
        assert_eq!(other.integer("SELECT count(*) FROM s"), Ok(3));
    }
}

#[test]
fn a_changeset_of_a_concurrent_database_applies_to_a_stock_one() {
    let (fixture, connection) = half_merged();
    let path = fixture.path("replica.db");
    connection.execute(&format!("VACUUM INTO '{}'", path.display())).expect("a replica");
    let session = Session::start(&connection).expect("it records");
    connection.execute("BEGIN; INSERT INTO t(val) VALUES('s'); UPDATE t SET val='t' WHERE id=7; DELETE FROM t WHERE id=8; COMMIT; UPDATE w SET b=b+1 WHERE b>480").expect("writes");
    let changes = session.changeset().expect("a changeset");
    drop(session);
    let replica = Subject::stock().open(&path).expect("stock opens it");
    replica.apply(&changes).expect("it applies");
    for table in ["t", "w"] {
        let sql = format!("SELECT * FROM {table}");
        assert_eq!(replica.query(&sql), connection.query(&sql), "{table}");
    }
    let second = Session::start(&replica).expect("it records");
    replica.execute("DELETE FROM t WHERE id<20").expect("a delete");
    connection.apply(&second.changeset().expect("a changeset")).expect("it applies the other way");
    assert_eq!(replica.query("SELECT * FROM t"), connection.query("SELECT * FROM t"));
}

#[test]
fn data_version_changes_with_others_commits_only() {
    let (fixture, first) = half_merged();
    let second = fixture.open();
    let version =
        |connection: &Connection| connection.integer("PRAGMA data_version").expect("data_version");
    let before = version(&first);
    first.execute("UPDATE t SET val='mine' WHERE id=1").expect("a write");
    assert_eq!(version(&first), before, "own commits do not count");
    second.execute("UPDATE t SET val='theirs' WHERE id=1").expect("a write");
    let after = version(&first);
    assert_ne!(after, before);
    assert_eq!(version(&first), after, "and it stays");
    second.execute("CREATE TABLE made(a)").expect("a table");
    assert_ne!(version(&first), after, "a schema change counts");
    let quiet = version(&first);
    second.execute("SELECT count(*) FROM t").expect("a read");
    assert_eq!(version(&first), quiet, "reads do not");
}

#[test]
fn a_transaction_that_changes_only_user_version_is_kept() {
    let (fixture, connection) = half_merged();
    for (value, begin) in (1..).zip(plait_tests::subject::Begin::ALL) {
        connection.execute(fixture.subject.begin(begin)).expect("it begins");
        connection.execute(&format!("PRAGMA user_version={value}")).expect("a pragma");
        connection.execute("COMMIT").expect("it commits");
        assert_eq!(fixture.open().integer("PRAGMA user_version"), Ok(value));
    }
    connection.execute("BEGIN; PRAGMA user_version=77; ROLLBACK").expect("a rollback");
    connection.close().expect("it closes");
    assert_eq!(
        Subject::stock().open(&fixture.database()).expect("stock").integer("PRAGMA user_version"),
        Ok(5)
    );
}

#[test]
fn a_busy_handler_is_asked_with_a_growing_count_until_it_gives_up() {
    let (fixture, holder) = half_merged();
    holder.execute("BEGIN IMMEDIATE").expect("it holds the right");
    let waiter = fixture.open();
    let last = Arc::new(AtomicI32::new(-1));
    let seen = last.clone();
    waiter
        .busy_handler(move |prior| {
            let before = seen.swap(prior, Ordering::Relaxed);
            assert_eq!(prior, before + 1, "counted from 0");
            std::thread::sleep(Duration::from_millis(5));
            prior < 7
        })
        .expect("a handler");
    let error = waiter.execute("BEGIN IMMEDIATE").expect_err("it gives up");
    assert_eq!(error.extended, BUSY, "{error}");
    assert_eq!(last.load(Ordering::Relaxed), 7);
}

#[test]
fn a_busy_handler_that_waits_gets_the_right() {
    let (fixture, holder) = half_merged();
    holder.execute("BEGIN IMMEDIATE").expect("it holds the right");
    let waiter = fixture.open();
    waiter
        .busy_handler(|_| {
            std::thread::sleep(Duration::from_millis(2));
            true
        })
        .expect("a handler");
    let thread = std::thread::spawn(move || {
        waiter.execute("BEGIN IMMEDIATE; UPDATE t SET val='w' WHERE id=1; COMMIT")
    });
    std::thread::sleep(Duration::from_millis(100));
    holder.execute("COMMIT").expect("it commits");
    assert_eq!(thread.join().expect("no panic"), Ok(()));
}

// holds RIGHT-4
#[test]
fn a_waiting_connection_can_be_interrupted() {
    let subject = Subject::plait();
    if !subject.is_concurrent() {
        eprintln!("skipped: stock SQLite sleeps through an interrupt while it is busy");
        return;
    }
    let (fixture, holder) = half_merged();
    holder.execute("BEGIN IMMEDIATE").expect("it holds the right");
    let waiter = fixture.open();
    let remote = waiter.clone();
    let thread = std::thread::spawn(move || waiter.execute("BEGIN IMMEDIATE"));
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    remote.interrupt();
    let error = thread.join().expect("no panic").expect_err("it was interrupted");
    assert_eq!(error.code, INTERRUPT, "{error}");
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_long_query_can_be_interrupted() {
    let (_fixture, connection) = half_merged();
    let remote = connection.clone();
    let thread = std::thread::spawn(move || {
        connection.query("SELECT count(*) FROM t, t AS b, t AS c, t AS d")
    });
    std::thread::sleep(Duration::from_millis(200));
    remote.interrupt();
    assert_eq!(thread.join().expect("no panic").expect_err("interrupted").code, INTERRUPT);
}

#[test]
fn checkpoints_by_pragma_and_by_call_succeed() {
    let (_fixture, connection) = half_merged();
    for mode in 0..=3 {
        connection.checkpoint(mode).unwrap_or_else(|error| panic!("mode {mode}: {error}"));
        connection.execute(&format!("UPDATE t SET val='c{mode}' WHERE id=20")).expect("a write");
    }
    for name in ["PASSIVE", "FULL", "RESTART", "TRUNCATE"] {
        let row = connection.query(&format!("PRAGMA wal_checkpoint({name})")).expect(name);
        assert_eq!(row[0][0], Value::Integer(0), "{name} was not busy");
    }
    is_the_same(&connection);
}

#[test]
fn a_passive_checkpoint_is_not_busy_beside_a_writer_and_the_others_are() {
    for begin in ["BEGIN IMMEDIATE", "BEGIN IMMEDIATE; PRAGMA application_id=7"] {
        let busy = [Subject::stock(), Subject::plait()].map(|subject| {
            let fixture = Fixture::new(subject, ROWS);
            let (writer, other) = (fixture.open(), fixture.open());
            other.execute("INSERT INTO t(val) VALUES('before')").expect("a commit before it");
            other.busy_timeout(Duration::from_millis(200)).expect("a timeout");
            writer.execute(begin).expect("it begins");
            writer.execute("INSERT INTO t(val) VALUES('within')").expect("it writes");
            let ask = |mode: &str| {
                let answer =
                    other.query(&format!("PRAGMA wal_checkpoint({mode})")).expect("an answer");
                answer[0][0].clone()
            };
            let passive = ask("PASSIVE");
            let full = ask("FULL");
            assert_eq!(passive, Value::Integer(0), "{begin}");
            writer.execute("COMMIT").expect("it commits");
            assert_eq!(other.integer("SELECT count(*) FROM t WHERE val='within'"), Ok(1));
            assert_eq!(other.text("PRAGMA integrity_check"), Ok("ok".to_owned()));
            full
        });
        if begin == "BEGIN IMMEDIATE; PRAGMA application_id=7" {
            assert_eq!(busy, [Value::Integer(1), Value::Integer(1)]);
        }
    }
}

#[test]
fn temp_tables_full_text_and_rtrees_work_beside_each_other() {
    let (fixture, first) = half_merged();
    let second = fixture.open();
    first.execute("CREATE VIRTUAL TABLE f USING fts5(a, b); CREATE VIRTUAL TABLE r USING rtree(id, x0, x1, y0, y1); CREATE TEMP TABLE tt(a)").expect("tables");
    for round in 0..20 {
        let writer = if round % 2 == 0 { &first } else { &second };
        writer.execute(&format!("INSERT INTO f VALUES('one two{round}', 'three'); INSERT INTO r VALUES({round}, {round}, {round}+1, 0, 1)")).expect("rows");
        first.execute("INSERT INTO tt SELECT count(*) FROM f").expect("temp rows");
        if round % 6 == 0 {
            writer.execute("PRAGMA wal_checkpoint").expect("a merge");
        }
    }
    assert_eq!(second.integer("SELECT count(*) FROM f WHERE f MATCH 'one'"), Ok(20));
    assert_eq!(second.integer("SELECT count(*) FROM r WHERE x1>=10"), Ok(11));
    assert_eq!(first.integer("SELECT max(a) FROM tt"), Ok(20));
    second
        .execute("INSERT INTO f(f) VALUES('integrity-check'); INSERT INTO f(f) VALUES('optimize')")
        .expect("fts5 is sound");
    assert_eq!(second.integer("SELECT rtreecheck('r')='ok'"), Ok(1));
    second.execute("SELECT * FROM tt").expect_err("temp tables are private");
}

#[test]
fn a_begin_that_is_refused_within_a_transaction_leaves_what_it_leaves_in_stock_sqlite() {
    let seen = |subject: Subject| {
        let fixture = Fixture::new(subject, ROWS);
        let (connection, _other) = (fixture.open(), fixture.open());
        connection.execute("INSERT INTO t(val) VALUES('it joins')").expect("a row");
        let hooks = Arc::new(AtomicU32::new(0));
        let count = hooks.clone();
        connection.commit_hook(move || {
            count.fetch_add(1, Ordering::Relaxed);
            true
        });
        let mut seen: Vec<(String, i32, TransactionState, u32)> = Vec::new();
        for begin in ["DEFERRED", "IMMEDIATE", "EXCLUSIVE"] {
            for before in ["BEGIN", "SAVEPOINT s", "BEGIN; SELECT * FROM w", "BEGIN; DELETE FROM w"]
            {
                for end in ["COMMIT", "ROLLBACK"] {
                    for sql in [before, &format!("BEGIN {begin}"), end] {
                        let code = connection.execute(sql).err().map_or(0, |error| error.extended);
                        let state = connection.transaction_state();
                        seen.push((sql.to_owned(), code, state, hooks.load(Ordering::Relaxed)));
                    }
                }
            }
        }
        seen
    };
    assert_eq!(seen(Subject::plait()), seen(Subject::stock()));
}

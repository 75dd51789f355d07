//! Large transactions, large values, and the bounds on memory and log.

use plait_tests::actor::Actor;
use plait_tests::job::{Job, Work};
use plait_tests::jobs::pairs::{Acknowledged, Pairs, SCHEMA};
use plait_tests::jobs::process_rules::ManyFiles;
use plait_tests::os::{self, Limited, mapped_bytes};
use plait_tests::place::Place;
use plait_tests::ratios::idle::Footprint;
use plait_tests::subject::{Begin, Fixture, Subject, real_plait};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[test]
fn more_than_65536_rows_in_one_transaction() {
    for begin in Begin::ALL {
        let fixture = Fixture::new(
            Subject::plait(),
            "CREATE TABLE t(id INTEGER PRIMARY KEY, val); CREATE INDEX t_val ON t(val)",
        );
        let connection = fixture.open();
        connection.execute(fixture.subject.begin(begin)).expect("it begins");
        let mut insert = connection.prepare("INSERT INTO t VALUES(?, ?)").expect("it prepares");
        for id in 0..70_000 {
            insert.bind_i64(1, id).expect("a value");
            insert.bind_i64(2, id * 7919 % 70_000).expect("a value");
            insert.run().unwrap_or_else(|error| panic!("{begin:?}, row {id}: {error}"));
        }
        drop(insert);
        connection.execute("COMMIT").unwrap_or_else(|error| panic!("{begin:?}: {error}"));
        let other = fixture.open();
        assert_eq!(other.integer("SELECT count(*) FROM t"), Ok(70_000), "{begin:?}");
        assert_eq!(other.integer("SELECT count(*) FROM t WHERE val BETWEEN 100 AND 199"), Ok(100));
        assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{begin:?}");
    }
}

#[test]
fn one_statement_may_touch_every_row_of_a_large_table() {
    let fixture = Fixture::new(
        Subject::plait(),
        "CREATE TABLE t(id INTEGER PRIMARY KEY, val, pad); CREATE INDEX t_val ON t(val);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100000) INSERT INTO t SELECT i, i, 'padding' FROM n",
    );
    let connection = fixture.open();
    connection.execute("UPDATE t SET val=val+1").expect("an update of all");
    assert_eq!(connection.changes(), 100_000);
    connection.execute(fixture.subject.begin(Begin::Concurrent)).expect("it begins");
    connection
        .execute("DELETE FROM t WHERE id%2=0; UPDATE t SET val=-val; COMMIT")
        .expect("a large transaction");
    let other = fixture.open();
    assert_eq!(other.integer("SELECT count(*) FROM t"), Ok(50_000));
    assert_eq!(other.integer("SELECT sum(val) FROM t"), Ok(-(2..=100_000).step_by(2).sum::<i64>()));
    assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn a_blob_of_100_mb_goes_in_and_comes_out() {
    let fixture =
        Fixture::new(Subject::plait(), "CREATE TABLE b(id INTEGER PRIMARY KEY, data BLOB)");
    let connection = fixture.open();
    let data: Vec<u8> =
        (0..100_000_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for begin in [None, Some(Begin::Concurrent)] {
        connection.execute("DELETE FROM b").expect("an empty table");
        if let Some(begin) = begin {
            connection.execute(fixture.subject.begin(begin)).expect("it begins");
        }
        let mut insert = connection.prepare("INSERT INTO b VALUES(1, ?)").expect("it prepares");
        insert.bind_blob(1, &data).expect("a blob");
        insert.run().unwrap_or_else(|error| panic!("{begin:?}: {error}"));
        drop(insert);
        if begin.is_some() {
            connection.execute("COMMIT").expect("it commits");
        }
        let other = fixture.open();
        let rows = other.query("SELECT data FROM b").expect("it reads");
        assert!(rows == [vec![data.clone().into()]], "{begin:?}: the bytes are the same");
        let mut blob = other.open_blob("b", "data", 1, true).expect("an incremental blob");
        assert_eq!(blob.read(99_999_000, 1000).expect("a read"), data[99_999_000..]);
        blob.write(50_000_000, b"changed").expect("a write");
        blob.close().expect("it closes");
        assert_eq!(
            connection.text("SELECT CAST(substr(data, 50000001, 7) AS TEXT) FROM b").as_deref(),
            Ok("changed")
        );
    }
}

// holds STOCK-1, TXN-7
#[test]
fn a_transaction_above_the_memory_budget_keeps_its_savepoints() {
    for begin in [Begin::Deferred, Begin::Immediate, Begin::Concurrent] {
        let fixture = Fixture::new(
            Subject::plait(),
            "CREATE TABLE t(id INTEGER PRIMARY KEY, data); CREATE TABLE before(a); INSERT INTO before VALUES(1)",
        );
        let connection = fixture.open();
        let megabytes = |from: i64, count: i64| {
            format!("WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i+1 FROM n WHERE i<{from}+{count}-1)
                     INSERT INTO t SELECT i, randomblob(1000000) FROM n")
        };
        connection.execute(fixture.subject.begin(begin)).expect("it begins");
        connection
            .execute("UPDATE before SET a=2; SAVEPOINT a; UPDATE before SET a=3; SAVEPOINT b")
            .expect("savepoints");
        connection.execute(&megabytes(1, 4)).expect("below the budget");
        connection.execute("SAVEPOINT c").expect("a savepoint");
        connection
            .execute(&megabytes(100, 30))
            .unwrap_or_else(|error| panic!("{begin:?}: {error}"));
        assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(34));
        connection.execute("ROLLBACK TO c").expect("one back");
        assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(4), "{begin:?}");
        connection.execute("ROLLBACK TO b; RELEASE b; ROLLBACK TO a").expect("two back");
        assert_eq!(connection.integer("SELECT a FROM before"), Ok(2), "{begin:?}");
        connection.execute(&megabytes(500, 12)).expect("above it again");
        connection.execute("COMMIT").unwrap_or_else(|error| panic!("{begin:?}: {error}"));
        let other = fixture.open();
        assert_eq!(other.integer("SELECT count(*) FROM t WHERE length(data)=1000000"), Ok(12));
        assert_eq!(other.integer("SELECT a FROM before"), Ok(2));
        connection.execute(fixture.subject.begin(begin)).expect("it begins");
        connection.execute(&megabytes(900, 20)).expect("above the budget");
        connection.execute("ROLLBACK").expect("a whole rollback");
        assert_eq!(other.integer("SELECT count(*) FROM t"), Ok(12));
        assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

/// Many small commits of some size, far more than memory and log may hold, with or without an old snapshot.
fn flood(place: Place, megabytes: u64, with_reader: bool) {
    let Some(subject) = real_plait("bounds") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let mut reader = Actor::start(Place::Processes, "reader", &subject, &fixture.database());
    if with_reader {
        reader.ok("BEGIN; SELECT count(*) FROM pair_a");
    }
    let row_bytes = 20_000;
    let commits = megabytes * MIB / (2 * row_bytes) / 4;
    let start = |worker| {
        let filler_bytes = usize::try_from(row_bytes).expect("small");
        let work =
            Work::Pairs(Pairs { worker, commits: Some(commits), filler_bytes, ..Pairs::default() });
        Job { subject: subject.clone(), database: fixture.database(), work }.start(place)
    };
    let mut jobs: Vec<_> = (1..=4).map(start).collect();
    let deadline = Instant::now() + Duration::from_secs(120);
    let (mut log, mut shared) = (0, 0);
    for job in &mut jobs {
        while let Some(line) = job.next_line::<Acknowledged>(Duration::from_secs(30)) {
            log = log.max(size(&fixture.side_file("-plait")));
            shared = shared.max(size(&fixture.side_file("-plait-shm")));
            if line.seq % 100 == 0 {
                assert!(Instant::now() < deadline, "the flood must end");
            }
        }
    }
    assert!(shared <= 192 * MIB, "shared memory: {} MiB", shared / MIB);
    let mapped = mapped_bytes("-plait-shm").expect("the maps can be read");
    assert!(
        mapped <= 4 * 192 * MIB,
        "mapped by four threads at most once each: {} MiB",
        mapped / MIB
    );
    if with_reader {
        assert_eq!(
            reader.integer("SELECT count(*) FROM pair_a"),
            0,
            "the reader keeps its snapshot"
        );
        reader.ok("COMMIT");
    } else {
        assert!(log <= 256 * MIB, "log: {} MiB", log / MIB);
    }
    assert_eq!(
        reader.integer("SELECT count(*) FROM pair_a"),
        i64::try_from(4 * commits).expect("small")
    );
}

// holds SNAP-4
#[test]
fn memory_and_log_stay_bounded_under_a_flood_of_commits() {
    flood(Place::Threads, 400, false);
}

// holds SNAP-4
#[test]
fn memory_stays_bounded_while_a_reader_keeps_an_old_snapshot() {
    flood(Place::Processes, 100, true);
}

#[test]
fn an_idle_database_takes_little_beside_its_file_until_much_is_written() {
    let Some(subject) = real_plait("its files") else { return };
    let fixture = Fixture::new(subject, "CREATE TABLE t(id INTEGER PRIMARY KEY, val)");
    let connections = [fixture.open(), fixture.open()];
    let write = |rows: u32| {
        for connection in &connections {
            connection
                .execute(&format!(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{rows})
                     INSERT INTO t(val) SELECT randomblob(1000) FROM n"
                ))
                .expect("rows");
        }
        Footprint::of(&fixture.database()).expect("its files")
    };
    let idle = write(1);
    assert!(idle.disk_bytes < MIB / 2 && idle.mapped_bytes < 2 * MIB, "{idle:?}");
    let mut last = idle;
    for rows in [30, 60, 120, 240] {
        last = write(rows);
    }
    assert!(last.disk_bytes > idle.disk_bytes, "it grows: {last:?}");
    assert_eq!(connections[0].integer("SELECT count(*) FROM t"), Ok(2 * (1 + 30 + 60 + 120 + 240)));
    assert_eq!(connections[1].text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

/// Programs have a database for each tenant, and a limit of descriptors.
#[test]
fn a_member_of_a_session_has_few_files_open_beside_those_of_its_connections() {
    let Some(subject) = real_plait("descriptors") else { return };
    let fixture = Fixture::new(subject, "CREATE TABLE t(id INTEGER PRIMARY KEY, val)");
    let open = || {
        let links = std::fs::read_dir("/proc/self/fd").expect("a list").flatten();
        links
            .filter_map(|link| std::fs::read_link(link.path()).ok())
            .filter(|path| path.starts_with(fixture.directory()))
            .count()
    };
    let connections = [(); 3].map(|()| fixture.open());
    for connection in &connections {
        connection
            .execute("BEGIN CONCURRENT; INSERT INTO t(val) VALUES(1); COMMIT")
            .expect("a row");
    }
    // The database and its WAL for each, as in stock SQLite; the WAL-index, shared memory, the log.
    assert!(open() <= 9, "{}", open());
    // More of them than there are slots with disk space from the start.
    let many: Vec<_> = (0..200).map(|_| fixture.open()).collect();
    for connection in &many {
        connection.execute("INSERT INTO t(val) VALUES(2)").expect("a row");
    }
    assert_eq!(many[199].integer("SELECT count(*) FROM t"), Ok(203));
}

/// The hidden connection uses the descriptors of another one (`lent.c`), which may be the first to close.
#[test]
fn connections_close_in_any_order_and_leave_nothing_open() {
    let Some(subject) = real_plait("descriptors") else { return };
    for last in 0..3 {
        let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(id INTEGER PRIMARY KEY, val)");
        let mut connections: Vec<_> = (0..3).map(|_| fixture.open()).collect();
        for connection in &connections {
            connection.execute("INSERT INTO t(val) VALUES(1)").expect("a row");
        }
        let left = connections.remove(last);
        for connection in connections {
            connection.close().expect("it closes");
            left.execute("INSERT INTO t(val) VALUES(2); PRAGMA wal_checkpoint(TRUNCATE)")
                .expect("a merge");
            left.execute("CREATE TABLE IF NOT EXISTS more(a); INSERT INTO more VALUES(1)")
                .expect("an exclusive transaction");
        }
        let mut other = Actor::start(Place::Processes, "other", &subject, &fixture.database());
        assert_eq!(other.integer("SELECT count(*) FROM t"), 5);
        other.ok("INSERT INTO t(val) VALUES(3)");
        assert_eq!(left.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        left.close().expect("it closes");
        let open = std::fs::read_dir("/proc/self/fd").expect("a list").flatten();
        let open: Vec<_> = open
            .filter_map(|link| std::fs::read_link(link.path()).ok())
            .filter(|path| path.starts_with(fixture.directory()))
            .collect();
        assert!(open.is_empty(), "{open:?}");
        // Of the locks none was dropped with a descriptor, and none is left.
        other.ok("INSERT INTO t(val) VALUES(3)");
        other.close().expect("it closes");
    }
}

#[test]
fn a_program_with_a_database_for_each_tenant_needs_few_descriptors_for_each() {
    let Some(subject) = real_plait("many files") else { return };
    let fixture = Fixture::empty(subject.clone());
    let work = Work::ManyFiles(ManyFiles { files: 60, descriptors: 256 });
    let job = Job { subject, database: fixture.database(), work };
    let running = job.start_with_environment(Place::Processes, &[("PLAIT_JOIN", "when needed")]);
    assert_eq!(running.result::<i64>(Duration::from_secs(60)), 3 * 60);
}

/// `SQLITE_NOMEM`.
const NOMEM: i32 = 7;

/// Large values, keys as large as these, and what savepoints and reads keep of them: whatever the limit meets, it is an error, and the process goes on.
#[test]
fn a_process_with_little_memory_is_told_so_and_loses_nothing() {
    let Some(subject) = real_plait("little memory") else { return };
    let sql = "CREATE TABLE t(id INTEGER PRIMARY KEY, data); CREATE TABLE k(key TEXT PRIMARY KEY) WITHOUT ROWID;
               INSERT INTO t(data) VALUES(zeroblob(500000))";
    let statements = [
        "INSERT INTO t(data) VALUES(randomblob(500000))",
        "INSERT INTO k VALUES(hex(randomblob(250000)))",
        "SELECT count(*), max(length(key)) FROM k WHERE key>'0'",
        "UPDATE t SET data=zeroblob(500001) WHERE id=1",
        "SAVEPOINT s; DELETE FROM k; ROLLBACK TO s; RELEASE s",
    ];
    let (mut done, mut refused) = (0, 0);
    for spare in (0..48).map(|n| n * MIB / 12) {
        let fixture = Fixture::new(subject.clone(), sql);
        let mut poor = Actor::start(Place::Processes, "poor", &subject, &fixture.database());
        poor.ok("BEGIN CONCURRENT; INSERT INTO t(data) VALUES(1); COMMIT; SELECT sum(length(data)) FROM t; SELECT count(*) FROM k");
        let limit = os::memory_bytes(poor.pid()) + spare;
        os::limit(poor.pid(), Limited::Memory, Some(limit)).expect("a limit");
        let mut rows = [2, 0];
        for begin in ["BEGIN CONCURRENT", "BEGIN IMMEDIATE", "SELECT 1"] {
            let mut is_open = poor.run(begin).in_transaction;
            let mut now = rows;
            for (place, sql) in statements.iter().enumerate() {
                let reply = poor.run(sql);
                if let Some(error) = &reply.error {
                    assert_eq!(error.code, NOMEM, "{spare}, {begin}, {sql}: {error}");
                    refused += 1;
                    // As in SQLite the statement may have taken the transaction with it.
                    if reply.in_transaction {
                        poor.ok("ROLLBACK");
                    }
                    now = rows;
                    is_open = false;
                } else {
                    done += 1;
                    if place < 2 {
                        now[place] += 1;
                    }
                }
                if !is_open {
                    rows = now;
                }
            }
            let end = is_open.then(|| poor.run("COMMIT"));
            if end.as_ref().is_some_and(|end| end.in_transaction) {
                poor.ok("ROLLBACK");
            }
            if end.is_none_or(|end| end.error.is_none()) {
                rows = now;
            }
        }
        os::limit(poor.pid(), Limited::Memory, None).expect("no limit");
        assert_eq!(poor.integer("SELECT count(*) FROM t"), rows[0], "{spare}");
        assert_eq!(poor.integer("SELECT count(*) FROM k"), rows[1], "{spare}");
        poor.close().expect("it closes");
        let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
        assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{spare}");
    }
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
}

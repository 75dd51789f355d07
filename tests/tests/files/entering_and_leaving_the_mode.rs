//! Into concurrent mode and back, the fence while it is live, and the plain file at rest.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, BUSY_SNAPSHOT, CANTOPEN, Connection, Library, NOTADB, OpenFlags};
use plait_tests::subject::{BUSY_TIMEOUT, Fixture, Subject, real_plait};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;";

/// Bytes 18 and 19 of the header, and whether bytes 72 to 75 carry the mode's mark.
fn header(database: &Path) -> ((u8, u8), bool) {
    let bytes = std::fs::read(database).expect("the database can be read");
    ((bytes[18], bytes[19]), bytes[72..76] != [0; 4])
}

fn mode(connection: &Connection) -> String {
    connection.text("PRAGMA journal_mode").expect("the mode can be asked")
}

/// Stock SQLite in a process of its own: in this one it would drop our POSIX locks when it closes the file.
fn stock_outside(fixture: &Fixture) -> Actor {
    Actor::start(Place::Processes, "stock", &Subject::stock(), &fixture.database())
}

#[track_caller]
fn stock_refuses(fixture: &Fixture, code: i32) {
    let mut stock = stock_outside(fixture);
    for sql in [
        "SELECT count(*) FROM t",
        "INSERT INTO t(val) VALUES('stock')",
        "PRAGMA wal_checkpoint",
        "VACUUM",
    ] {
        stock.fails(sql, code);
    }
}

// holds FILE-1, FILE-2
#[test]
fn stock_sqlite_refuses_the_live_file_and_reads_it_at_rest() {
    let Some(subject) = real_plait("the fence") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let connection = fixture.open();
    connection.execute("INSERT INTO t(val) VALUES('unmerged')").expect("an insert");
    stock_refuses(&fixture, CANTOPEN);
    assert_eq!(header(&fixture.database()), ((3, 3), true));
    connection
        .execute("PRAGMA wal_checkpoint; UPDATE t SET val='again' WHERE id=1")
        .expect("a merge");
    stock_refuses(&fixture, CANTOPEN);
    connection.close().expect("it closes");
    assert_eq!(header(&fixture.database()), ((2, 2), true));
    for suffix in ["-plait", "-plait-shm"] {
        assert!(!fixture.side_file(suffix).exists(), "{suffix} is gone after the last close");
    }
    let stock = Subject::stock().open(&fixture.database()).expect("stock opens it");
    assert_eq!(stock.integer("SELECT count(*) FROM t"), Ok(501));
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    stock
        .execute(
            "INSERT INTO t(val) VALUES('by stock'); DELETE FROM t WHERE id=2; CREATE TABLE s(a)",
        )
        .expect("stock writes");
    stock.close().expect("it closes");
    let again = fixture.open();
    assert_eq!(mode(&again), "concurrent", "the mode survives stock tools");
    assert_eq!(again.integer("SELECT count(*) FROM t"), Ok(501));
    assert_eq!(again.integer("SELECT count(*) FROM t WHERE val='by stock'"), Ok(1));
    again.execute("INSERT INTO s VALUES(1)").expect("it goes on");
}

// holds FILE-2
#[test]
fn no_crash_leaves_the_file_unfenced_with_rows_in_the_log() {
    let Some(subject) = real_plait("the fence") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let mut victim =
        Actor::start(Place::Processes, "victim", &fixture.subject, &fixture.database());
    victim.ok("INSERT INTO t(val) VALUES('only in the log')");
    victim.kill();
    stock_refuses(&fixture, NOTADB);
    std::fs::remove_file(fixture.side_file("-plait-shm")).expect("as after a power cut");
    stock_refuses(&fixture, NOTADB);
    let connection = fixture.open();
    assert_eq!(connection.integer("SELECT count(*) FROM t WHERE val='only in the log'"), Ok(1));
}

#[test]
fn the_mode_goes_to_every_other_and_back() {
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::new(subject, ROWS);
    for (round, other) in ["delete", "truncate", "persist", "delete"].into_iter().enumerate() {
        let connection = fixture.open();
        assert_eq!(mode(&connection), "concurrent");
        connection.execute("INSERT INTO t(val) VALUES('in concurrent mode')").expect("an insert");
        assert_eq!(connection.text(&format!("PRAGMA journal_mode={other}")).as_deref(), Ok(other));
        let (versions, marked) = header(&fixture.database());
        assert!(versions.0 <= 2 && versions.1 <= 2 && !marked, "{other}: {versions:?} {marked}");
        assert!(!fixture.side_file("-plait").exists());
        connection
            .execute(&format!("INSERT INTO t(val) VALUES('in {other} mode')"))
            .expect("an insert");
        let expected = 500 + 2 * (i64::try_from(round).expect("small") + 1);
        let mut stock = stock_outside(&fixture);
        assert_eq!(stock.integer("SELECT count(*) FROM t"), expected, "{other}");
        drop(stock);
        assert_eq!(connection.text("PRAGMA journal_mode=concurrent").as_deref(), Ok("concurrent"));
    }
    assert_eq!(fixture.open().text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn the_journal_of_another_mode_goes_with_it() {
    let left = |subject: Subject, own: &str| {
        let fixture = Fixture::new(subject, ROWS);
        ["PERSIST", "TRUNCATE"].map(|mode| {
            let connection = fixture.open();
            assert_eq!(
                connection.text(&format!("PRAGMA journal_mode={mode}")),
                Ok(mode.to_lowercase())
            );
            connection.execute("INSERT INTO t(val) VALUES('with a journal')").expect("a row");
            assert!(fixture.side_file("-journal").exists(), "{mode} keeps it");
            assert_eq!(connection.text(&format!("PRAGMA journal_mode={own}")).as_deref(), Ok(own));
            fixture.side_file("-journal").exists()
        })
    };
    assert_eq!(left(Subject::stock(), "wal"), [false; 2]);
    if let Some(subject) = real_plait("the journal") {
        assert_eq!(left(subject, "concurrent"), [false; 2]);
    }
}

#[test]
fn the_rollback_modes_answer_as_when_they_leave_wal() {
    let Some(subject) = real_plait("conversion") else { return };
    for other in ["delete", "truncate", "persist", "memory", "off"] {
        let left = |subject: Subject| {
            let fixture = Fixture::new(subject, ROWS);
            let connection = fixture.open();
            connection.execute("INSERT INTO t(val) VALUES('before')").expect("an insert");
            let answer = connection.text(&format!("PRAGMA journal_mode={other}"));
            connection.execute("INSERT INTO t(val) VALUES('after')").expect("an insert");
            connection.close().expect("it closes");
            let (versions, marked) = header(&fixture.database());
            assert!(!marked, "{other}");
            let again = fixture.open();
            (answer, versions, mode(&again), again.integer("SELECT count(*) FROM t"))
        };
        assert_eq!(left(subject.clone()), left(Subject::stock()), "{other}");
    }
}

#[test]
fn asking_a_concurrent_database_for_wal_changes_nothing() {
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let (first, second) = (fixture.open(), fixture.open());
    let ask = |connection: &Connection| connection.text("PRAGMA journal_mode=wal");
    second.execute("BEGIN; SELECT * FROM t").expect("a reader");
    assert_eq!(ask(&first).as_deref(), Ok("concurrent"), "beside another");
    assert_eq!(ask(&second).as_deref(), Ok("concurrent"), "inside a transaction");
    second.execute("INSERT INTO t(val) VALUES('kept')").expect("it goes on");
    assert_eq!(ask(&second).as_deref(), Ok("concurrent"), "with a change");
    second.execute("COMMIT").expect("it commits");
    second.close().expect("it closes");
    first.close().expect("it closes");
    let alone = fixture.open();
    assert_eq!(ask(&alone).as_deref(), Ok("concurrent"), "as the first statement of the only one");
    alone.execute("INSERT INTO t(val) VALUES('unmerged')").expect("an insert");
    assert_eq!(ask(&alone).as_deref(), Ok("concurrent"));
    assert_eq!(header(&fixture.database()), ((3, 3), true));
    assert_eq!(alone.integer("SELECT count(*) FROM t"), Ok(502));
}

#[test]
fn programs_that_ask_for_two_modes_at_once_lose_no_row() {
    let Some(subject) = real_plait("conversion") else { return };
    let modes = ["wal", "concurrent"];
    let mut actors = modes.map(|mode| Actor::idle(Place::Processes, mode, &subject));
    for round in 0..30 {
        let fixture = Fixture::empty(subject.clone());
        for (actor, mode) in actors.iter_mut().zip(modes) {
            actor.open(&fixture.database()).expect("it opens");
            actor.send(&format!(
                "PRAGMA journal_mode={mode}; CREATE TABLE IF NOT EXISTS t(who);
                 INSERT INTO t VALUES('{mode}')"
            ));
        }
        let replies = actors.each_mut().map(Actor::finish);
        let inserted = replies.iter().filter(|reply| reply.error.is_none()).count();
        for actor in &mut actors {
            actor.close().expect("it closes");
        }
        let connection = fixture.open();
        let count = connection.integer("SELECT count(*) FROM t").expect("a count");
        assert_eq!(count, i64::try_from(inserted).expect("two"), "in round {round}");
        assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

/// SQLite lets others in between removing the WAL and leaving WAL mode, and what they commit in a WAL of their own counts.
#[test]
fn the_mode_goes_and_comes_beside_one_who_writes() {
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::new(subject, "CREATE TABLE c(n); INSERT INTO c VALUES(0)");
    let start = |name| {
        let mut actor = Actor::start(Place::Processes, name, &fixture.subject, &fixture.database());
        actor.busy_timeout(Duration::from_secs(10));
        actor
    };
    let (mut switching, mut writing) = (start("switching"), start("writing"));
    let is_over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut done = 0;
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..10 {
                    let error = writing.run("UPDATE c SET n=n+1").error;
                    assert!(error.as_ref().is_none_or(|e| e.is_busy()), "{error:?}");
                    done += i64::from(error.is_none());
                }
                writing.close().expect("it closes");
                writing.open(&fixture.database()).expect("it opens");
                writing.busy_timeout(Duration::from_secs(10));
            }
            done
        });
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end && !writer.is_finished() {
            for mode in ["delete", "concurrent"] {
                let error = switching.run(&format!("PRAGMA journal_mode={mode}")).error;
                assert!(error.as_ref().is_none_or(|e| e.is_busy()), "{mode}: {error:?}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("nothing but busy")
    });
    drop((switching, writing));
    let connection = fixture.open();
    assert_eq!(connection.integer("SELECT n FROM c"), Ok(done));
    assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn asking_for_the_mode_it_has_changes_nothing() {
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let (first, second) = (fixture.open(), fixture.open());
    second.execute("BEGIN; SELECT * FROM t").expect("a reader");
    assert_eq!(first.text("PRAGMA journal_mode=concurrent").as_deref(), Ok("concurrent"));
    assert_eq!(first.text("PRAGMA journal_mode=CONCURRENT").as_deref(), Ok("concurrent"));
    second.execute("COMMIT").expect("it goes on");
}

#[test]
fn the_mode_cannot_be_left_while_others_are_connected() {
    let Some(subject) = real_plait("conversion") else { return };
    for place in [Place::Threads, Place::Processes] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let connection = fixture.open();
        connection.busy_timeout(Duration::from_millis(100)).expect("a timeout");
        let mut other = Actor::start(place, "other", &fixture.subject, &fixture.database());
        other.ok("BEGIN; SELECT * FROM t WHERE id=1");
        let error =
            connection.text("PRAGMA journal_mode=delete").expect_err("another is connected");
        assert!(error.is_busy(), "{error}");
        other.ok("COMMIT; INSERT INTO t(val) VALUES('other goes on')");
        connection.execute("INSERT INTO t(val) VALUES('so does this one')").expect("an insert");
        assert_eq!(mode(&connection), "concurrent");
        other.close().expect("it closes");
        assert_eq!(connection.text("PRAGMA journal_mode=delete").as_deref(), Ok("delete"));
    }
}

#[test]
fn beside_an_idle_connection_the_mode_is_left_as_stock_leaves_wal() {
    let Some(subject) = real_plait("conversion") else { return };
    for place in [Place::Threads, Place::Processes] {
        let leave = |subject: &Subject| {
            let fixture = Fixture::new(subject.clone(), ROWS);
            let connection = fixture.open();
            let mut idle = Actor::start(place, "idle", subject, &fixture.database());
            let unused = Actor::start(place, "unused", subject, &fixture.database());
            assert_eq!(idle.integer("SELECT count(*) FROM t"), 500);
            let began = Instant::now();
            let answers = ["delete", "truncate", "memory"].map(|mode| {
                let answer = connection.text(&format!("PRAGMA journal_mode={mode}"));
                answer.map_err(|error| error.extended)
            });
            assert!(began.elapsed() < BUSY_TIMEOUT, "it does not wait for who is idle");
            idle.close().expect("it closes");
            let alone = connection.text("PRAGMA journal_mode=delete").map_err(|e| e.extended);
            drop(unused);
            (answers, alone)
        };
        assert_eq!(leave(&subject), leave(&Subject::stock()), "{place:?}");
    }
}

#[test]
fn conversion_inside_a_transaction_is_refused() {
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::empty(subject);
    let connection = fixture.open();
    connection.execute(ROWS).expect("rows");
    for begin in ["BEGIN", "BEGIN IMMEDIATE"] {
        connection.execute(begin).expect("it begins");
        connection.execute("SELECT * FROM t").expect("a read");
        connection.text("PRAGMA journal_mode=concurrent").expect_err("inside a transaction");
        connection.execute("ROLLBACK").expect("it ends");
    }
    assert_ne!(mode(&connection), "concurrent");
}

#[test]
fn databases_that_cannot_be_concurrent_are_refused() {
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::empty(subject);
    let library = fixture.subject.library();
    for name in [":memory:", ""] {
        let ask = |library: Library, mode: &str| {
            let connection = library.open(name).expect("it opens");
            let answer = connection.text(&format!("PRAGMA journal_mode={mode}"));
            connection.execute("CREATE TABLE t(a); INSERT INTO t VALUES(1)").expect("it goes on");
            let again = connection.text(&format!("PRAGMA temp.journal_mode={mode}"));
            (answer, again, connection.text("PRAGMA journal_mode"))
        };
        let stock = ask(Subject::stock().library(), "wal");
        assert_eq!(ask(library, "concurrent"), stock, "{name:?} keeps its mode, as for WAL");
    }
    let plain = fixture.open();
    plain.execute(ROWS).expect("rows");
    plain.close().expect("it closes");
    let shared = library.open_with(fixture.database(), OpenFlags::SharedCache).expect("it opens");
    shared.text("PRAGMA journal_mode=concurrent").expect_err("shared cache");
    shared.close().expect("it closes");
    let reader = library.open_with(fixture.database(), OpenFlags::ReadOnly).expect("it opens");
    reader.text("PRAGMA journal_mode=concurrent").expect_err("read only");
    assert_eq!(reader.integer("SELECT count(*) FROM t"), Ok(500));
    assert!(!fixture.side_file("-plait").exists());
}

#[test]
fn versions_of_the_future_are_to_it_what_they_are_to_stock() {
    for versions in [[3, 1], [1, 3], [3, 3], [2, 3], [3, 2], [4, 4]] {
        let open = |subject: Subject| {
            let fixture = Fixture::empty(subject);
            let connection = fixture.open();
            connection.execute(ROWS).expect("rows");
            connection.close().expect("it closes");
            let file = std::fs::File::options().write(true).open(fixture.database());
            file.and_then(|file| file.write_all_at(&versions, 18)).expect("the header is changed");
            let connection = fixture.open();
            [
                "SELECT count(*) FROM t",
                "INSERT INTO t(val) VALUES('no')",
                "PRAGMA journal_mode=wal",
                "PRAGMA journal_mode",
                "PRAGMA integrity_check",
            ]
            .map(|sql| connection.query(sql).map_err(|error| (error.extended, error.message)))
        };
        assert_eq!(open(Subject::plait_in_wal_mode()), open(Subject::stock()), "{versions:?}");
    }
}

#[test]
fn a_prefix_of_the_name_does_not_name_the_mode() {
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::empty(subject);
    let connection = fixture.open();
    connection.execute(ROWS).expect("rows");
    let before = mode(&connection);
    for wrong in ["c", "con", "concurren", "concurrently"] {
        if let Ok(answer) = connection.text(&format!("PRAGMA journal_mode={wrong}")) {
            assert_eq!(answer, before, "{wrong}");
        }
        assert_eq!(mode(&connection), before, "{wrong}");
    }
}

#[test]
fn a_read_only_connection_reads_a_live_database() {
    let Some(subject) = real_plait("read only") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let writer = fixture.open();
    writer.execute("INSERT INTO t(val) VALUES('live')").expect("an insert");
    let library = fixture.subject.library();
    let reader = library.open_with(fixture.database(), OpenFlags::ReadOnly).expect("it opens");
    assert_eq!(reader.integer("SELECT count(*) FROM t"), Ok(501));
    reader.execute("INSERT INTO t(val) VALUES('no')").expect_err("read only");
    writer.execute("INSERT INTO t(val) VALUES('more')").expect("an insert");
    assert_eq!(reader.integer("SELECT count(*) FROM t"), Ok(502));
}

#[test]
fn conversion_beside_readers_never_makes_them_busy_or_wrong() {
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::empty(subject);
    let connection = fixture.open();
    connection.execute("PRAGMA journal_mode=wal").expect("wal");
    connection.execute(ROWS).expect("rows");
    let mut reader =
        Actor::start(Place::Processes, "reader", &fixture.subject, &fixture.database());
    assert_eq!(reader.integer("SELECT count(*) FROM t"), 500);
    connection.busy_timeout(Duration::from_millis(100)).expect("a timeout");
    let converted = connection.text("PRAGMA journal_mode=concurrent");
    let answer = reader.run("SELECT count(*) FROM t");
    assert_eq!(answer.error, None, "conversion gave {converted:?}");
    assert_eq!(answer.rows, [vec![500.into()]]);
    reader.ok("INSERT INTO t(val) VALUES('from the reader')");
    connection.execute("INSERT INTO t(val) VALUES('from the converter')").expect("an insert");
    assert_eq!(reader.integer("SELECT count(*) FROM t"), 502);
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(502));
}

#[test]
fn an_empty_new_database_can_begin_in_concurrent_mode() {
    let Some(subject) = real_plait("conversion") else { return };
    for pragmas in
        ["", "PRAGMA page_size=1024", "PRAGMA encoding='UTF-16le'", "PRAGMA auto_vacuum=FULL"]
    {
        let fixture = Fixture::empty(subject.clone());
        let connection = fixture.open();
        connection.execute(pragmas).expect("a pragma");
        fixture.subject.convert(&connection).expect("it converts");
        connection.execute(ROWS).expect("rows");
        let second = fixture.open();
        assert_eq!(second.integer("SELECT count(*) FROM t"), Ok(500), "{pragmas}");
        connection.close().expect("it closes");
        second.close().expect("it closes");
        let stock = Subject::stock().open(&fixture.database()).expect("stock opens it");
        assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{pragmas}");
    }
}

#[test]
fn a_mode_that_a_stock_program_keeps_from_being_left_stays() {
    let Some(subject) = real_plait("conversion") else { return };
    for (held, asked) in [
        ("SELECT count(*) FROM t", "delete"),
        ("SELECT count(*) FROM t", "memory"),
        ("BEGIN; SELECT count(*) FROM t", "truncate"),
        ("BEGIN IMMEDIATE", "delete"),
    ] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let mut stock = stock_outside(&fixture);
        stock.ok(held);
        let connection = fixture.open();
        connection.execute("PRAGMA busy_timeout=50").expect("a timeout");
        let refused = connection.text(&format!("PRAGMA journal_mode={asked}"));
        assert_eq!(refused.map_err(|e| e.code), Err(BUSY), "{held}; {asked}");
        assert_eq!(mode(&connection), "concurrent", "{held}; {asked}");
        assert!(header(&fixture.database()).1 || fixture.side_file("-wal").exists());
        stock.ok(if held.starts_with("BEGIN") { "COMMIT" } else { "SELECT 1" });
        drop(stock);
        connection.execute("INSERT INTO t(val) VALUES('still')").expect("an insert");
        assert_eq!(mode(&fixture.open()), "concurrent", "{held}; {asked}");
        assert_eq!(connection.text("PRAGMA journal_mode=delete").as_deref(), Ok("delete"));
        assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(501));
    }
}

#[test]
fn who_meets_a_mode_that_stock_sqlite_has_taken_away_goes_on_or_is_told_to_retry() {
    let Some(subject) = real_plait("conversion") else { return };
    let insert = "INSERT INTO t(val) VALUES('after')";
    for begin in ["", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN CONCURRENT"] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let connection = fixture.open();
        connection.execute("BEGIN CONCURRENT; SELECT count(*) FROM t; COMMIT").expect("it joins");
        stock_outside(&fixture).ok("VACUUM");
        connection.execute(begin).expect("it begins");
        connection.execute(insert).expect("it writes, in whatever mode");
        if !begin.is_empty() {
            connection.execute("COMMIT").expect("it commits");
        }
        assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(501), "{begin}");
    }
    let fixture = Fixture::new(subject, ROWS);
    let connection = fixture.open();
    connection.execute("BEGIN; SELECT count(*) FROM t").expect("it reads");
    stock_outside(&fixture).ok("VACUUM");
    let refused = connection.execute(insert).expect_err("its snapshot is of before");
    assert_eq!(refused.extended, BUSY_SNAPSHOT, "{refused:?}");
    connection.execute("ROLLBACK").expect("it ends");
    connection.execute(insert).expect("it writes");
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(501));
}

#[test]
fn stock_vacuum_at_rest_takes_the_mode_away_and_nothing_else() {
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let stock = Subject::stock().open(&fixture.database()).expect("stock opens it");
    stock.execute("DELETE FROM t WHERE id>250; VACUUM").expect("stock vacuums");
    stock.close().expect("it closes");
    let connection = fixture.open();
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(250));
    assert_eq!(connection.text("PRAGMA journal_mode=concurrent").as_deref(), Ok("concurrent"));
    connection.execute("INSERT INTO t(val) VALUES('again')").expect("an insert");
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(251));
}

/// What every mode is answered with inside transactions that have done nothing, read, and written, and what they come to.
fn answers_within_transactions(subject: Subject, own: &str) -> Vec<String> {
    let mut answers = Vec::new();
    for begin in ["BEGIN", "BEGIN EXCLUSIVE", "SAVEPOINT s"] {
        for work in [
            "",
            "SELECT * FROM t",
            "UPDATE t SET val=1 WHERE id=-1",
            "INSERT INTO t(val) VALUES(2)",
            "INSERT INTO t(val) VALUES(2); SAVEPOINT inner; ROLLBACK TO inner",
            "PRAGMA user_version=7",
            "CREATE TABLE made(x)",
        ] {
            for asked in ["delete", "off", "nonsense"] {
                let fixture = Fixture::new(subject.clone(), ROWS);
                let connection = fixture.open();
                connection.execute(begin).expect("it begins");
                connection.execute(work).expect("it works");
                let answer = connection
                    .text(&format!("PRAGMA journal_mode={asked}"))
                    .map_err(|e| (e.extended, e.message));
                let goes_on =
                    connection.execute("INSERT INTO t(val) VALUES(3)").map_err(|e| e.extended);
                let ends = connection.execute("COMMIT").map_err(|e| e.extended);
                let rows = connection.integer("SELECT count(*) FROM t");
                let what = format!(
                    "{begin}; {work}; {asked}: {answer:?} {goes_on:?} {ends:?} {rows:?} {} {:?}",
                    mode(&connection),
                    connection.text("PRAGMA integrity_check")
                );
                answers.push(what.replace(own, "OWN"));
            }
        }
    }
    answers
}

#[test]
fn inside_a_transaction_every_mode_is_answered_as_in_wal_mode() {
    let Some(subject) = real_plait("conversion") else { return };
    let ours = answers_within_transactions(subject, "concurrent");
    let stock = answers_within_transactions(Subject::plait_in_wal_mode(), "wal");
    assert_eq!(ours, stock);
}

#[test]
fn a_session_leaves_one_file_though_its_wal_was_to_be_kept() {
    let Some(subject) = real_plait("a WAL that is kept") else { return };
    let left = |subject: &Subject| {
        let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a)");
        let connections: Vec<_> = (0..2).map(|_| fixture.open()).collect();
        for connection in &connections {
            connection.persist_wal().expect("it is told so");
            connection.execute("INSERT INTO t VALUES(1)").expect("it writes");
        }
        for connection in connections {
            connection.close().expect("it closes");
        }
        fixture.side_file("-wal").exists()
    };
    assert!(left(&Subject::stock()));
    assert!(!left(&subject));
}

/// On a file that is not concurrent the pragma takes no lock that SQLite does not take.
#[test]
fn a_mode_that_stays_outside_of_wal_is_named_without_a_look_at_the_file() {
    let Some(subject) = real_plait("locks of other modes") else { return };
    let fixture = Fixture::empty(subject.clone());
    let open = || {
        let connection = subject.library().open(fixture.database()).expect("it opens");
        connection.busy_timeout(BUSY_TIMEOUT).expect("a timeout");
        connection
    };
    let reader = open();
    reader.execute("PRAGMA journal_mode=delete; CREATE TABLE t(a)").expect("a table");
    let second = fixture.path("second.db");
    reader.execute(&format!("ATTACH '{}' AS second", second.display())).expect("attached");
    reader.execute("CREATE TABLE second.t(a); INSERT INTO second.t VALUES(1), (2)").expect("rows");
    let writer = open();
    let mut rows = reader.prepare("SELECT a FROM second.t").expect("it prepares");
    rows.step().expect("a row, and it goes on reading");
    assert_eq!(reader.text("PRAGMA main.journal_mode=delete").as_deref(), Ok("delete"));
    writer.execute("INSERT INTO t VALUES(1)").expect("nobody has the file");
    drop(rows);
    writer.execute("BEGIN EXCLUSIVE").expect("the file");
    let begun = Instant::now();
    assert_eq!(reader.text("PRAGMA main.journal_mode=memory").as_deref(), Ok("memory"));
    assert!(begun.elapsed() < BUSY_TIMEOUT / 2, "it waits for nothing");
    writer.execute("COMMIT").expect("it ends");
}

//! Large transactions of a lone writer go straight to the base; beside others they do not.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY_SNAPSHOT, Connection};
use plait_tests::subject::{Begin, Fixture, Subject, real_plait};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, filler BLOB);
    CREATE TABLE side(id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO side VALUES(1, 0)";
/// Rows of a large transaction.
const LARGE: i64 = 1000;

fn insert(from: i64, rows: i64) -> String {
    format!(
        "WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i+1 FROM n WHERE i<{from}+{rows}-1)
         INSERT INTO t SELECT i, i%7, zeroblob(50) FROM n"
    )
}

/// The `index`-th large transaction of a load.
fn load(index: i64) -> String {
    format!("BEGIN; {}; COMMIT", insert(1 + index * LARGE, LARGE))
}

/// A connection that has made five large transactions, and another that has not done anything.
fn loading(subject: &Subject, place: Place) -> (Fixture, Connection, Actor) {
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let loader = fixture.open();
    let other = Actor::start(place, "other", subject, &fixture.database());
    for index in 0..5 {
        loader.execute(&load(index)).expect("it loads");
    }
    (fixture, loader, other)
}

fn counter(connection: &Connection, name: &str) -> i64 {
    connection
        .integer(&format!("SELECT value FROM plait_status WHERE name='{name}'"))
        .expect("a counter")
}

/// Transactions so far on SQLite's own path, and on the concurrent one.
fn paths(connection: &Connection) -> (i64, i64) {
    (counter(connection, "exclusive_commits"), counter(connection, "commits"))
}

#[test]
fn large_transactions_of_a_lone_writer_go_straight_to_the_base() {
    let Some(subject) = real_plait("bulk") else { return };
    for synchronous in ["OFF", "NORMAL", "FULL"] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let connection = fixture.open();
        connection.execute(&format!("PRAGMA synchronous={synchronous}")).expect("a pragma");
        let before = paths(&connection);
        for index in 0..20 {
            connection.execute(&load(index)).expect("it loads");
        }
        let after = paths(&connection);
        // The first finds the rows of the fixture in memory, perhaps.
        assert!(after.0 - before.0 >= 19, "{synchronous}: {before:?}, {after:?}");
        assert_eq!(after.0 - before.0 + after.1 - before.1, 20, "{synchronous}");
        assert!(counter(&connection, "memtable_bytes") < 1000, "nothing waits to be merged");
        let other = fixture.open();
        assert_eq!(other.integer("SELECT count(*) FROM t"), Ok(20 * LARGE));
        assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

/// A transaction of so many rows with values of so many bytes each.
fn long_values(from: i64, rows: i64, bytes: i64) -> String {
    format!(
        "BEGIN; {}; COMMIT",
        insert(from, rows).replace("zeroblob(50)", &format!("zeroblob({bytes})"))
    )
}

#[test]
fn a_dozen_long_values_are_as_large_as_many_short_ones() {
    let Some(subject) = real_plait("bulk") else { return };
    for (rows, bytes) in [(128, 8 << 10), (16, 64 << 10), (16, 200_000)] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let connection = fixture.open();
        let before = paths(&connection);
        for index in 0..10 {
            connection.execute(&long_values(1 + index * rows, rows, bytes)).expect("it loads");
        }
        let after = paths(&connection);
        // The first finds the rows of the fixture in memory, perhaps.
        assert!(after.0 - before.0 >= 9, "{rows} of {bytes}: {before:?}, {after:?}");
        let other = fixture.open();
        let sum = other.integer("SELECT sum(length(filler)) FROM t");
        assert_eq!(sum, Ok(10 * rows * bytes));
        assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        // A single row is written where others may write beside it, however long it is.
        let before = paths(&connection);
        connection.execute(&long_values(9_999, 1, bytes)).expect("one row");
        assert_eq!(paths(&connection), (before.0, before.1 + 1), "{rows} of {bytes}");
    }
}

#[test]
fn long_values_beside_a_reader_stay_on_the_concurrent_path_and_refuse_nobody() {
    let Some(subject) = real_plait("bulk") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let loader = fixture.open();
    let mut other = Actor::start(Place::Processes, "other", &subject, &fixture.database());
    other.ok("BEGIN; SELECT n FROM side");
    let before = paths(&loader);
    for index in 0..4 {
        loader.execute(&long_values(1 + index * 16, 16, 64 << 10)).expect("it loads");
    }
    assert_eq!(paths(&loader), (before.0, before.1 + 4));
    other.ok("UPDATE side SET n=1; COMMIT");
}

/// Large transactions that stay on the concurrent path after one that should have.
const HELD: i64 = 4096;

/// Changes `rows` of a table of 200,000: one of every `step`, from the `index`-th on.
fn update_every(step: i64, index: i64, rows: i64) -> String {
    format!(
        "BEGIN; WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<{rows}-1)
         UPDATE t SET n=n+1 FROM n WHERE id=1+{index}+{step}*n.i; COMMIT"
    )
}

#[test]
fn rows_at_scattered_places_are_gathered_in_memory_and_dense_ones_go_straight_to_the_base() {
    let Some(subject) = real_plait("scattered rows") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let connection = fixture.open();
    connection.execute(&format!("BEGIN; {}; COMMIT", insert(1, 200_000))).expect("it fills");
    let exclusive_of = |statements: &mut dyn Iterator<Item = String>| {
        let before = paths(&connection);
        let mut transactions = 0;
        for statement in statements {
            connection.execute(&statement).expect("it writes");
            transactions += 1;
        }
        let after = paths(&connection);
        assert_eq!(after.0 + after.1, before.0 + before.1 + transactions);
        after.0 - before.0
    };
    // A row of some 60 bytes on each third page: one is tried, after the load has been.
    let scattered = exclusive_of(&mut (0..20).map(|i| update_every(200, i, 1_000)));
    assert_eq!(scattered, 1, "of 20 scattered ones");
    // One after the other, on few pages: directly from the next try on.
    let dense = |i: i64| update_every(1, i % 700 * 256, 256);
    assert_eq!(exclusive_of(&mut (0..HELD - 19).map(dense)), 0, "they are held");
    assert_eq!(exclusive_of(&mut (0..10).map(dense)), 10);
    let sum = connection.integer("SELECT sum(n) FROM t").expect("a sum");
    let before: i64 = (1..=200_000).map(|i| i % 7).sum();
    assert_eq!(sum, before + 20 * 1_000 + (HELD - 19 + 10) * 256);
}

// holds BULK-2
#[test]
fn small_transactions_stay_on_the_concurrent_path_also_after_large_ones() {
    let Some(subject) = real_plait("bulk") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let connection = fixture.open();
    for index in 0..5 {
        connection.execute(&load(index)).expect("it loads");
    }
    for n in 0..30 {
        let before = paths(&connection);
        connection.execute(&format!("UPDATE side SET n={n}")).expect("a small one");
        assert_eq!(paths(&connection), (before.0, before.1 + 1), "{n}");
        connection.execute(&load(100 + n)).expect("it loads");
        connection.execute(&load(200 + n)).expect("it loads");
    }
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(65 * LARGE));
    let other = fixture.open();
    assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

// holds BULK-3
#[test]
fn an_optimistic_transaction_goes_straight_to_the_base_only_after_a_large_and_short_one() {
    let Some(subject) = real_plait("bulk") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let connection = fixture.open();
    let mut from = 1;
    let mut load = |rows: i64| {
        let before = paths(&connection);
        connection
            .execute(&format!("BEGIN CONCURRENT; {}; COMMIT", insert(from, rows)))
            .expect("it loads");
        from += rows;
        let after = paths(&connection);
        assert_eq!(after.0 - before.0 + after.1 - before.1, 1);
        after.0 > before.0
    };
    let direct: Vec<bool> =
        [1000, 1000, 1000, 1, 1000, 20_000, 20_000, 20_000, 1000, 1000].map(&mut load).into();
    assert_eq!(direct, [false, true, true, false, false, true, false, false, false, true]);
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(from - 1));
}

#[test]
fn the_base_is_synced_before_the_log_when_a_commit_under_full_follows_a_load_under_normal() {
    let Some(subject) = real_plait("bulk") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let other = fixture.open();
    other.execute("PRAGMA synchronous=FULL").expect("a pragma");
    let mut index = 0;
    for round in 1..4 {
        // One that nobody has disturbed yet.
        let loader = fixture.open();
        loader.execute("PRAGMA synchronous=NORMAL").expect("a pragma");
        let before = paths(&loader).0;
        while paths(&loader).0 < before + 2 {
            loader.execute(&load(index)).expect("it loads");
            index += 1;
            assert!(index < 200, "it never goes straight to the base");
        }
        let syncs = counter(&loader, "base_syncs");
        other.execute(&format!("UPDATE side SET n={round}")).expect("a commit under FULL");
        assert_eq!(counter(&loader, "base_syncs"), syncs + 1, "round {round}");
        other.execute("UPDATE side SET n=n+1").expect("a commit under FULL");
        assert_eq!(counter(&loader, "base_syncs"), syncs + 1, "round {round}");
    }
}

#[test]
fn the_wal_of_a_long_load_stays_small() {
    let Some(subject) = real_plait("bulk") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let connection = fixture.open();
    connection.execute("PRAGMA synchronous=NORMAL").expect("a pragma");
    for index in 0..120 {
        let sql = load(index).replace("zeroblob(50)", "randomblob(400)");
        connection.execute(&sql).expect("it loads");
    }
    let wal = std::fs::metadata(fixture.side_file("-wal")).expect("a WAL").len();
    let base = std::fs::metadata(fixture.database()).expect("a base").len();
    assert!(wal < 20 << 20 && base > 32 << 20, "WAL {wal}, base {base}");
}

in_threads_and_processes! {
    fn a_large_transaction_beside_an_open_one_stays_on_the_concurrent_path(place) {
        let Some(subject) = real_plait("bulk") else { return };
        let (_fixture, loader, mut other) = loading(&subject, place);
        for round in 0..5 {
            other.ok("BEGIN; SELECT n FROM side");
            let before = paths(&loader);
            loader.execute(&load(100 + 2 * round)).expect("it loads");
            loader.execute(&load(101 + 2 * round)).expect("it loads");
            assert_eq!(paths(&loader), (before.0, before.1 + 2));
            // It may become a writer: what it has read is unchanged.
            other.ok("UPDATE side SET n=n+1; COMMIT");
        }
        assert_eq!(loader.integer("SELECT n FROM side"), Ok(5));
        assert_eq!(loader.integer("SELECT count(*) FROM t"), Ok(15 * LARGE));
    }

    fn a_large_transaction_stays_on_the_concurrent_path_if_somebody_was_there_since_the_last(place) {
        let Some(subject) = real_plait("bulk") else { return };
        let (_fixture, loader, mut other) = loading(&subject, place);
        for round in 0..20 {
            // It did not write, but might have.
            other.ok("BEGIN; SELECT n FROM side; COMMIT");
            let before = paths(&loader);
            loader.execute(&load(100 + round)).expect("it loads");
            assert_eq!(paths(&loader), (before.0, before.1 + 1), "round {round}");
        }
    }

    fn statements_that_read_outside_of_a_transaction_keep_nobody_from_the_base(place) {
        let Some(subject) = real_plait("bulk") else { return };
        let (fixture, loader, mut other) = loading(&subject, place);
        for round in 0..20 {
            assert_eq!(other.integer("SELECT count(*) FROM t"), (5 + round) * LARGE);
            if round % 5 == 4 {
                // Another one, which comes for this alone.
                let mut visitor = Actor::start(place, "visitor", &subject, &fixture.database());
                visitor.ok("SELECT * FROM side; SELECT max(id) FROM t");
                visitor.close().expect("it closes");
            }
            let before = paths(&loader);
            loader.execute(&insert(1 + (5 + round) * LARGE, LARGE)).expect("it loads");
            assert_eq!(paths(&loader), (before.0 + 1, before.1), "round {round}");
        }
        // One whose statement is not over when another of its connection writes did write.
        other.open_cursor("scan", "SELECT id FROM t");
        assert_eq!(other.step_cursor("scan", 1).error, None);
        other.ok("UPDATE side SET n=n+1");
        other.close_cursor("scan");
        let before = paths(&loader);
        loader.execute(&load(200)).expect("it loads");
        assert_eq!(paths(&loader), (before.0, before.1 + 1));
    }

    fn who_begins_beside_a_load_that_goes_straight_to_the_base_conflicts_once_and_then_no_more(place) {
        let Some(subject) = real_plait("bulk") else { return };
        for begin in ["BEGIN", "BEGIN CONCURRENT"] {
            let fixture = Fixture::new(subject.clone(), SCHEMA);
            let loader = fixture.open();
            let mut other = Actor::start(place, "other", &subject, &fixture.database());
            other.ok("SELECT count(*) FROM side");
            for index in 0..5 {
                loader.execute(&load(index)).expect("it loads");
            }
            let before = paths(&loader);
            loader.execute(&format!("BEGIN; {}", insert(10_001, LARGE))).expect("it loads");
            other.ok(begin);
            // It reads what was there before, however far the load is.
            assert_eq!(other.integer("SELECT count(*) FROM t"), 5 * LARGE);
            loader.execute("COMMIT").expect("it commits");
            assert_eq!(paths(&loader), (before.0 + 1, before.1), "{begin}");
            assert_eq!(other.integer("SELECT count(*) FROM t"), 5 * LARGE);
            let refused = other.run("UPDATE side SET n=n+1; COMMIT").error.expect("a conflict");
            assert_eq!(refused.extended, BUSY_SNAPSHOT, "{begin}: {refused}");
            other.ok("ROLLBACK");
            for round in 0..6 {
                let before = paths(&loader);
                loader
                    .execute(&format!("BEGIN; {}", insert(20_001 + round * LARGE, LARGE)))
                    .expect("it loads");
                other.ok(begin);
                other.ok("SELECT n FROM side");
                loader.execute("COMMIT").expect("it commits");
                other.ok("UPDATE side SET n=n+1; COMMIT");
                assert_eq!(paths(&loader), (before.0, before.1 + 2), "{begin}, round {round}");
            }
        }
    }
}

/// Rows in every kind of table, in transactions that end in every way.
fn script(connection: &Connection, begin: &str) -> Vec<String> {
    let rows = |from: i64, rows: i64, target: &str| {
        format!(
            "WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i+1 FROM n WHERE i<{from}+{rows}-1)
             INSERT INTO {target} FROM n"
        )
    };
    let mut outcomes = Vec::new();
    let mut run = |sql: String| {
        let outcome = connection.execute(&sql).map_err(|error| error.extended);
        let state = (connection.autocommit(), connection.total_changes());
        outcomes.push(format!("{}: {outcome:?} {state:?}", &sql[..sql.len().min(60)]));
    };
    run("CREATE TABLE r(a INTEGER PRIMARY KEY, b UNIQUE, c); CREATE INDEX r_c ON r(c, a);
         CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID; CREATE INDEX w_v ON w(v);
         CREATE TABLE auto(id INTEGER PRIMARY KEY AUTOINCREMENT, x);
         CREATE TABLE tally(n); INSERT INTO tally VALUES(0);
         CREATE TRIGGER count_r AFTER INSERT ON r BEGIN UPDATE tally SET n=n+1; END"
        .to_owned());
    for round in 0..4 {
        let at = round * 10_000;
        run(begin.to_owned());
        run(rows(at + 1, 700, "r SELECT i, i*3, 'c'||(i%13)"));
        run(rows(at + 1, 700, "w SELECT 'key'||i, i%17"));
        run("SAVEPOINT one".to_owned());
        run(rows(at + 2000, 500, "auto(x) SELECT i"));
        run(rows(at + 3000, 500, "r SELECT i, i*3, NULL"));
        run("SAVEPOINT two; DELETE FROM w WHERE v=3; UPDATE r SET c='changed' WHERE a%5=0"
            .to_owned());
        if round % 2 == 0 {
            run("ROLLBACK TO two".to_owned());
        }
        // The last row is there already: the whole statement is undone.
        run(rows(at + 3499 - 800, 801, "r SELECT i, -i, 'twice'")
            .replace("-i", "CASE WHEN i<3000 THEN -i ELSE i*3 END"));
        run(rows(at + 6000, 300, "r SELECT i, i*3, 'kept'"));
        run(format!(
            "INSERT OR REPLACE INTO r SELECT a, b, 'replaced' FROM r WHERE a>{at} AND a<={at}+400"
        ));
        run(format!("DELETE FROM r WHERE a BETWEEN {at}+100 AND {at}+450"));
        if round == 1 {
            run("ROLLBACK TO one".to_owned());
        }
        run(if round == 2 { "ROLLBACK" } else { "COMMIT" }.to_owned());
    }
    run("DELETE FROM w".to_owned());
    run(rows(1, 3000, "w SELECT 'again'||i, i"));
    run("UPDATE w SET v=v+1 WHERE v%2=0".to_owned());
    run("UPDATE w SET v=v+1 RETURNING *".to_owned());
    run("INSERT INTO w SELECT k, 1 FROM w WHERE true ON CONFLICT DO UPDATE SET v=v+2".to_owned());
    run("REPLACE INTO w SELECT k, v+1 FROM w".to_owned());
    run("DELETE FROM w WHERE v>500".to_owned());
    outcomes
}

#[test]
fn large_transactions_leave_what_stock_sqlite_leaves() {
    const ALL: [&str; 5] = [
        "SELECT * FROM r ORDER BY a",
        "SELECT * FROM w ORDER BY k",
        "SELECT a FROM r INDEXED BY r_c ORDER BY c, a",
        "SELECT * FROM auto ORDER BY id",
        "SELECT * FROM tally; SELECT * FROM sqlite_sequence",
    ];
    for begin in [Begin::Deferred, Begin::Immediate, Begin::Concurrent] {
        let (ours, stock) = (Fixture::empty(Subject::plait()), Fixture::empty(Subject::stock()));
        let a = ours.subject.create(&ours.database()).expect("a database");
        let b = stock.subject.create(&stock.database()).expect("a database");
        let outcomes = script(&a, ours.subject.begin(begin));
        let expected = script(&b, stock.subject.begin(begin));
        let without_begin = |all: Vec<String>| -> Vec<String> {
            all.into_iter().filter(|line| !line.starts_with("BEGIN")).collect()
        };
        assert_eq!(without_begin(outcomes), without_begin(expected), "{begin:?}");
        for sql in ALL {
            let (mine, theirs) = (a.query(sql).expect("it reads"), b.query(sql).expect("it reads"));
            assert!(mine == theirs, "{begin:?}: {sql}");
            assert_eq!(
                ours.open().query(sql),
                Ok(theirs),
                "{begin:?}: {sql}, from another connection"
            );
        }
        assert_eq!(a.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{begin:?}");
    }
}

#[test]
fn an_open_cursor_goes_on_while_its_transaction_goes_straight_to_the_base() {
    let read = |subject: Subject| {
        let fixture = Fixture::new(subject, SCHEMA);
        let connection = fixture.open();
        connection.execute(&load(0)).expect("it loads");
        connection.execute(&load(1)).expect("it loads");
        connection.execute("BEGIN").expect("it begins");
        let mut cursor = connection.prepare("SELECT id FROM t ORDER BY id").expect("it prepares");
        let mut seen = Vec::new();
        for step in 0..2500 {
            if cursor.step().expect("it reads") == plait_tests::sqlite::Step::Done {
                break;
            }
            seen.push(cursor.column_i64(0));
            // Behind, at, and ahead of the cursor.
            let sql = match step % 3 {
                0 => format!("INSERT INTO t VALUES({}, 1, NULL)", 10_000 + step),
                1 => format!("DELETE FROM t WHERE id={}", step - 1),
                _ => format!("UPDATE t SET n=n+1 WHERE id={}", step + 5),
            };
            connection.execute(&sql).expect("it writes");
        }
        drop(cursor);
        connection.execute("COMMIT").expect("it commits");
        (seen, connection.query("SELECT id, n FROM t ORDER BY id").expect("it reads"))
    };
    let (ours, stock) = (read(Subject::plait()), read(Subject::stock()));
    assert_eq!(ours.0, stock.0, "what the cursor saw");
    assert!(ours.1 == stock.1, "what was left");
}

//! An exclusive transaction that has changed rows, and no schema, conflicts with those alone that have read or written one of its b-trees.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::isolation::graph::{Graph, Reason};
use plait_tests::place::Place;
use plait_tests::planted::must_be_reported;
use plait_tests::sqlite::{BUSY_SNAPSHOT, Connection, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::torture::{seed_or, time_or};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// More than a transaction may write on the concurrent path.
const BALLAST: &str = "REPLACE INTO ballast VALUES(1, zeroblob(7400000))";
const SCHEMA: &str = "
    CREATE TABLE ballast(id INTEGER PRIMARY KEY, bytes BLOB);
    CREATE TABLE a(id INTEGER PRIMARY KEY, n INTEGER);
    CREATE TABLE b(id INTEGER PRIMARY KEY, n INTEGER, m INTEGER);
    CREATE INDEX b_n ON b(n);
    CREATE TABLE w(k TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID;
    CREATE TABLE auto(id INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER);
    CREATE TABLE auto2(id INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER);
    CREATE TABLE auto3(id INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER);
    CREATE TABLE parent(id INTEGER PRIMARY KEY);
    CREATE TABLE child(id INTEGER PRIMARY KEY, p INTEGER REFERENCES parent);
    INSERT INTO a VALUES(1, 0), (2, 0);
    INSERT INTO b VALUES(1, 1, 1), (2, 2, 2);
    INSERT INTO w VALUES('k', 1);
    INSERT INTO auto(n) VALUES(1), (2), (3);
    INSERT INTO auto2(n) VALUES(1);
    INSERT INTO parent VALUES(1);";
/// What a transaction does before it writes to `a`; what an exclusive one does meanwhile; whether they conflict.
const CASES: [(&str, &str, bool); 27] = [
    ("SELECT n FROM a", "UPDATE b SET m=m+1", false),
    ("SELECT n FROM a", "DELETE FROM b; INSERT INTO b VALUES(1, 5, 5)", false),
    ("SELECT n FROM a; SELECT n FROM w", "UPDATE b SET n=n+1", false),
    ("SELECT n FROM a; SELECT m FROM b WHERE id=2", "UPDATE w SET n=n+1", false),
    ("INSERT INTO w VALUES('l', 1)", "UPDATE b SET n=n+1", false),
    ("SELECT m FROM b WHERE id=1", "UPDATE b SET m=m+1", true),
    ("SELECT m FROM b WHERE id=77", "INSERT INTO b VALUES(77, 1, 1)", true),
    ("SELECT count(*) FROM b", "INSERT INTO b VALUES(77, 1, 1)", true),
    ("SELECT max(id) FROM b", "INSERT INTO b VALUES(77, 1, 1)", true),
    ("SELECT count(*) FROM b WHERE n=7", "UPDATE b SET n=7", true),
    ("SELECT m FROM b WHERE id=1", "DELETE FROM b", true),
    ("SELECT m FROM b WHERE id=1", "DELETE FROM b WHERE id=1", true),
    ("SELECT n FROM w WHERE k='k'", "UPDATE w SET n=n+1", true),
    ("SELECT n FROM w WHERE k='z'", "INSERT INTO w VALUES('z', 1)", true),
    ("INSERT INTO child VALUES(1, 1)", "DELETE FROM parent", true),
    ("INSERT INTO b(n) VALUES(9)", "INSERT INTO b(n) VALUES(10)", true),
    ("DELETE FROM b WHERE id=1", "UPDATE b SET m=m+1", true),
    ("INSERT INTO auto(n) VALUES(1)", "INSERT INTO auto2(n) VALUES(1)", false),
    ("INSERT INTO auto(n) VALUES(1)", "INSERT INTO auto3(n) VALUES(1)", false),
    ("INSERT INTO auto(n) VALUES(1)", "INSERT INTO auto(n) VALUES(1)", true),
    ("INSERT INTO auto3(n) VALUES(1)", "INSERT INTO auto2(n) VALUES(1)", true),
    (
        "INSERT INTO auto(n) VALUES(1)",
        "UPDATE sqlite_sequence SET seq=seq+10 WHERE name='auto'",
        true,
    ),
    ("SELECT seq FROM sqlite_sequence WHERE name='auto2'", "INSERT INTO auto2(n) VALUES(1)", true),
    ("SELECT n FROM a WHERE id=2", "PRAGMA user_version=3", true),
    ("SELECT n FROM a WHERE id=2", "CREATE TABLE c(x)", true),
    ("SELECT n FROM a WHERE id=2", "CREATE INDEX a_n ON a(n)", true),
    (
        "SELECT n FROM a WHERE id=2",
        "PRAGMA writable_schema=1; UPDATE sqlite_schema SET sql=sql",
        true,
    ),
];

struct Scene {
    fixture: Fixture,
    writer: Actor,
    loader: Actor,
}

impl Scene {
    fn new(place: Place, subject: &Subject) -> Self {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let start = |name| Actor::start(place, name, &fixture.subject, &fixture.database());
        let (mut writer, loader) = (start("writer"), start("loader"));
        writer.ok("PRAGMA foreign_keys=ON");
        Self { fixture, writer, loader }
    }

    /// In an exclusive transaction that is large for its rows alone.
    fn load(&mut self, change: &str) {
        self.load_as(&format!("{BALLAST}; {change}"));
    }

    fn load_as(&mut self, sql: &str) {
        let count = "SELECT value FROM plait_status WHERE name='exclusive_commits'";
        let before = self.loader.integer(count);
        self.loader.ok(&format!("BEGIN IMMEDIATE; {sql}; COMMIT"));
        assert_eq!(self.loader.integer(count), before + 1, "{sql}: it is exclusive");
    }

    fn is_sound(&mut self) {
        assert_eq!(self.loader.ok("PRAGMA integrity_check"), [["ok".into()]]);
    }
}

/// Whether `begin; first; UPDATE a; COMMIT` conflicts with a load in between, which makes its change before it is exclusive, or when it is.
fn conflicts(place: Place, subject: &Subject, begin: &str, first: &str, change: &str) -> bool {
    let late = conflicts_with(place, subject, begin, first, &format!("{BALLAST}; {change}"));
    let early = conflicts_with(place, subject, begin, first, &format!("{change}; {BALLAST}"));
    assert_eq!(late, early, "{begin}; {first} against {change}");
    late
}

fn conflicts_with(place: Place, subject: &Subject, begin: &str, first: &str, change: &str) -> bool {
    let mut scene = Scene::new(place, subject);
    scene.writer.ok(begin);
    scene.writer.ok(first);
    scene.load_as(change);
    let write = scene.writer.run("UPDATE a SET n=n+1 WHERE id=1; COMMIT");
    if let Some(error) = &write.error {
        assert_eq!(error.extended, BUSY_SNAPSHOT, "{first} against {change}: {error}");
        scene.writer.ok("ROLLBACK");
    }
    let written = i64::from(write.error.is_none());
    for actor in [&mut scene.writer, &mut scene.loader] {
        assert_eq!(actor.integer("SELECT n FROM a WHERE id=1"), written, "{first}, {change}");
    }
    scene.is_sound();
    write.error.is_some()
}

in_threads_and_processes! {
    // holds EXCL-3, TXN-8, STOCK-3
    fn it_conflicts_with_who_has_read_or_written_what_it_changed(place) {
        let Some(subject) = real_plait("loads elsewhere") else { return };
        for (first, change, expected) in CASES {
            assert_eq!(conflicts(place, &subject, "BEGIN CONCURRENT", first, change), expected, "{first}, {change}");
            // Who has written has the right then, and a load waits.
            if first.starts_with("SELECT") {
                assert_eq!(conflicts(place, &subject, "BEGIN", first, change), expected, "BEGIN; {first}, {change}");
            }
        }
    }

    // holds CHANGED-3, STOCK-3
    fn what_moves_pages_has_changed_anything(place) {
        let Some(subject) = real_plait("loads elsewhere") else { return };
        for change in ["VACUUM", "PRAGMA incremental_vacuum", "DROP TABLE w", "ALTER TABLE w RENAME TO v", "ANALYZE"] {
            let mut scene = Scene::new(place, &subject);
            scene.loader.ok("PRAGMA auto_vacuum=INCREMENTAL; VACUUM; DELETE FROM ballast; PRAGMA wal_checkpoint");
            scene.loader.ok(&format!("{BALLAST}; DELETE FROM ballast"));
            scene.writer.ok("BEGIN CONCURRENT; UPDATE a SET n=n+1 WHERE id=1");
            scene.loader.ok(change);
            scene.writer.fails("COMMIT", plait_tests::sqlite::BUSY);
            scene.writer.ok("ROLLBACK");
            scene.is_sound();
        }
    }

    fn many_of_them_are_as_one(place) {
        let Some(subject) = real_plait("loads elsewhere") else { return };
        let mut scene = Scene::new(place, &subject);
        scene.writer.ok("BEGIN CONCURRENT; UPDATE a SET n=n+1 WHERE id=1");
        for row in 0..20 {
            scene.load("UPDATE b SET m=m+1");
            // Commits in between stay in memory, each in a memtable of its own.
            if row < 4 {
                scene.loader.ok(&format!("INSERT INTO b VALUES({row}+10, 1, 1)"));
            }
        }
        scene.writer.ok("COMMIT");
        assert_eq!(scene.loader.integer("SELECT n FROM a WHERE id=1"), 1);
        scene.is_sound();
    }

    fn who_becomes_a_writer_sees_what_it_changed_and_an_open_select_goes_on(place) {
        let Some(subject) = real_plait("loads elsewhere") else { return };
        let mut scene = Scene::new(place, &subject);
        scene.writer.ok("BEGIN");
        scene.writer.open_cursor("open", "SELECT id FROM a ORDER BY id");
        assert_eq!(scene.writer.step_cursor("open", 1).rows, [[1.into()]]);
        scene.load("UPDATE b SET m=10");
        scene.loader.ok("UPDATE b SET m=m+1 WHERE id=2");
        scene.writer.ok("INSERT INTO w VALUES('l', 1)");
        assert_eq!(scene.writer.integer("SELECT sum(m) FROM b"), 21);
        assert_eq!(scene.writer.step_cursor("open", 1).rows, [[2.into()]]);
        scene.writer.ok("COMMIT");
        scene.writer.close_cursor("open");
        scene.is_sound();
    }

    fn an_open_select_goes_on_behind_an_optimistic_commit(place) {
        let Some(subject) = real_plait("loads elsewhere") else { return };
        let mut scene = Scene::new(place, &subject);
        scene.writer.ok("BEGIN CONCURRENT");
        scene.writer.open_cursor("open", "SELECT id FROM a ORDER BY id");
        assert_eq!(scene.writer.step_cursor("open", 1).rows, [[1.into()]]);
        scene.writer.ok("INSERT INTO w VALUES('l', 1)");
        scene.load("UPDATE b SET m=10");
        scene.writer.ok("COMMIT");
        // The snapshot of the SELECT is that of the commit, behind the load.
        assert_eq!(scene.writer.integer("SELECT sum(m) FROM b"), 20);
        assert_eq!(scene.writer.step_cursor("open", 1).rows, [[2.into()]]);
        scene.writer.close_cursor("open");
        scene.is_sound();
    }

    fn who_goes_on_behind_it_is_validated_by_what_came_before_and_after(place) {
        let Some(subject) = real_plait("loads elsewhere") else { return };
        let mut scene = Scene::new(place, &subject);
        scene.writer.ok("BEGIN CONCURRENT");
        scene.writer.open_cursor("open", "SELECT n FROM a ORDER BY id");
        assert_eq!(scene.writer.step_cursor("open", 1).rows, [[0.into()]]);
        scene.writer.ok("INSERT INTO w VALUES('l', 1)");
        scene.load("UPDATE b SET m=10");
        scene.loader.ok("BEGIN IMMEDIATE; UPDATE a SET n=1 WHERE id=1");
        scene.writer.send("COMMIT");
        assert!(scene.writer.still_waits_after(Duration::from_millis(200)), "for the right");
        scene.loader.ok("COMMIT");
        let error = scene.writer.finish().error.expect("what the SELECT has read was changed");
        assert_eq!(error.extended, BUSY_SNAPSHOT, "{error}");
        scene.writer.close_cursor("open");
        scene.writer.ok("ROLLBACK");
        assert_eq!(scene.loader.integer("SELECT count(*) FROM w WHERE k='l'"), 0);
        scene.is_sound();
    }

    fn rowids_that_were_given_out_are_not_given_out_again(place) {
        let Some(subject) = real_plait("loads elsewhere") else { return };
        let mut scene = Scene::new(place, &subject);
        scene.writer.ok("BEGIN CONCURRENT; INSERT INTO a(n) VALUES(100)");
        scene.load("UPDATE b SET m=m+1");
        scene.loader.ok("INSERT INTO a(n) VALUES(200)");
        scene.writer.ok("COMMIT");
        assert_eq!(scene.loader.integer("SELECT count(*) FROM a WHERE n IN (100, 200)"), 2);
        scene.is_sound();
    }

    fn sequences_of_other_tables_are_kept(place) {
        let Some(subject) = real_plait("loads elsewhere") else { return };
        let mut scene = Scene::new(place, &subject);
        scene.writer.ok("BEGIN CONCURRENT; INSERT INTO auto(n) VALUES(100)");
        scene.load("INSERT INTO auto2(n) VALUES(5), (6); DELETE FROM auto2; INSERT INTO auto3(n) VALUES(1)");
        scene.load("INSERT INTO auto2(n) VALUES(5), (6); DELETE FROM auto2");
        scene.writer.ok("COMMIT; DELETE FROM auto WHERE id>3");
        scene.loader.ok("PRAGMA wal_checkpoint");
        let expected = [("auto", 4), ("auto2", 5), ("auto3", 1)].map(|(name, seq)| vec![name.into(), seq.into()]);
        assert_eq!(scene.loader.ok("SELECT name, seq FROM sqlite_sequence ORDER BY name"), expected);
        scene.is_sound();
    }

    fn a_commit_over_two_files_goes_on_behind_it(place) {
        let Some(subject) = real_plait("loads elsewhere") else { return };
        let mut scene = Scene::new(place, &subject);
        let second = scene.fixture.path("second.db");
        let made = subject.create(&second).expect("a second file can be made");
        made.execute("CREATE TABLE x(n INTEGER)").expect("it gets its table");
        scene.writer.ok(&format!("ATTACH '{}' AS second", second.display()));
        for begin in ["BEGIN", "BEGIN CONCURRENT"] {
            scene.writer.ok(begin);
            let before = scene.writer.integer("SELECT n FROM a WHERE id=1");
            scene.load("UPDATE b SET m=m+1");
            scene.writer.ok("UPDATE a SET n=n+1 WHERE id=1; INSERT INTO x VALUES(1); COMMIT");
            assert_eq!(scene.loader.integer("SELECT n FROM a WHERE id=1"), before + 1);
        }
        assert_eq!(made.integer("SELECT count(*) FROM x").expect("it can be read"), 2);
        scene.is_sound();
    }
}

#[test]
fn a_blob_that_is_written_in_place_is_a_change() {
    let Some(subject) = real_plait("loads elsewhere") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (reader, loader) = (fixture.open(), fixture.open());
    loader.execute("INSERT INTO b VALUES(5, 1, zeroblob(10))").expect("a row");
    for (read, conflicts) in [("SELECT m FROM b WHERE id=5", true), ("SELECT n FROM a", false)] {
        reader.execute("BEGIN CONCURRENT; UPDATE a SET n=n+1 WHERE id=2").expect("it writes");
        reader.execute(read).expect("it reads");
        loader.execute(&format!("BEGIN IMMEDIATE; {BALLAST}")).expect("it is exclusive");
        let mut blob = loader.open_blob("b", "m", 5, true).expect("a handle");
        blob.write(0, b"0123456789").expect("it is written");
        blob.close().expect("it is closed");
        loader.execute("COMMIT").expect("it is committed");
        assert_eq!(reader.execute("COMMIT").is_err(), conflicts, "{read}");
        if conflicts {
            reader.execute("ROLLBACK").expect("it can be rolled back");
        }
    }
}

#[test]
fn the_text_names_the_table_that_it_changed() {
    let Some(subject) = real_plait("loads elsewhere") else { return };
    let mut scene = Scene::new(Place::Threads, &subject);
    scene.writer.ok("BEGIN CONCURRENT; UPDATE b SET m=7 WHERE id=1");
    scene.load("UPDATE b SET m=m+1");
    let error = scene.writer.fails("COMMIT", plait_tests::sqlite::BUSY);
    assert_eq!(
        error.message,
        "database is locked: conflict on table \"b\": it was changed in bulk after this transaction read it or wrote to it; ROLLBACK and retry, \
         with BEGIN IMMEDIATE if it happens again"
    );
    let told = scene.loader.ok("SELECT tbl FROM plait_conflicts LIMIT 1");
    assert_eq!(told, [["table \"b\"".into()]]);
}

/// Tables of the random transactions: each has one number, which every write raises by one.
const TABLES: usize = 5;
const WORKERS: u64 = 4;

/// A transaction that was committed: what it has read, by table, and the tables that it has raised.
#[derive(Debug, Default)]
struct Committed {
    seen: BTreeMap<usize, i64>,
    raised: Vec<usize>,
    is_load: bool,
}

fn number_of(connection: &Connection, random: &mut StdRng, table: usize) -> Result<i64, SqlError> {
    connection.integer(&match random.random_range(0..3) {
        0 => format!("SELECT n FROM t{table} WHERE id=1"),
        1 => format!("SELECT max(n) FROM t{table}"),
        _ => format!("SELECT n FROM t{table} WHERE n>0"),
    })
}

/// Reads one or two tables and raises one or two, of them or not.
fn transact(connection: &Connection, random: &mut StdRng) -> Result<Committed, SqlError> {
    let mut done = Committed { is_load: random.random_range(0..8) == 0, ..Committed::default() };
    let begin = ["BEGIN CONCURRENT", "BEGIN CONCURRENT", "BEGIN"][random.random_range(0..3)];
    connection.execute(if done.is_load { "BEGIN IMMEDIATE" } else { begin })?;
    if done.is_load {
        connection.execute(BALLAST)?;
    }
    for _ in 0..random.random_range(1..3) {
        let table = random.random_range(0..TABLES);
        let number = number_of(connection, random, table)?;
        assert_eq!(*done.seen.entry(table).or_insert(number), number, "a repeated read");
    }
    // Others commit meanwhile.
    std::thread::sleep(Duration::from_micros(random.random_range(0..8000)));
    for _ in 0..random.random_range(1..3) {
        let table = random.random_range(0..TABLES);
        if done.raised.contains(&table) {
            continue;
        }
        let number =
            connection.integer(&format!("UPDATE t{table} SET n=n+1 WHERE id=1 RETURNING n"))?;
        assert_eq!(*done.seen.entry(table).or_insert(number - 1), number - 1, "a repeated read");
        done.raised.push(table);
    }
    connection.execute("COMMIT")?;
    Ok(done)
}

fn work(fixture: &Fixture, worker: u64, seed: u64, end: Instant) -> Vec<Committed> {
    let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(worker));
    let connection = fixture.open();
    connection.execute("PRAGMA synchronous=NORMAL").expect("a level");
    let mut committed = Vec::new();
    while Instant::now() < end {
        match transact(&connection, &mut random) {
            Ok(done) => committed.push(done),
            Err(error) => {
                assert!(error.is_busy(), "{error}");
                connection.execute("ROLLBACK").expect("it can be rolled back");
            }
        }
    }
    committed
}

/// The transactions in an order of one after the other, or why there is none. Each number is raised once to each value.
fn check(history: &[Committed]) -> Result<(), String> {
    let mut writers: BTreeMap<(usize, i64), usize> = BTreeMap::new();
    for (node, done) in history.iter().enumerate() {
        for table in &done.raised {
            let value = done.seen[table] + 1;
            if let Some(other) = writers.insert((*table, value), node) {
                return Err(format!("t{table} was raised to {value} twice, by {other} and {node}"));
            }
        }
    }
    let mut graph = Graph::new(history.len());
    for (node, done) in history.iter().enumerate() {
        for (table, value) in &done.seen {
            let key = i64::try_from(*table).ok();
            if let Some(writer) = writers.get(&(*table, *value)) {
                graph.add_edge(*writer, node, Reason::WriteRead, key);
            }
            if let Some(next) = writers.get(&(*table, value + 1)) {
                graph.add_edge(node, *next, Reason::ReadWrite, key);
            }
        }
    }
    match graph.smallest_cycle() {
        None => Ok(()),
        Some(cycle) => {
            let named: Vec<_> = cycle.iter().map(|(node, edge)| (&history[*node], edge)).collect();
            Err(format!("no order of one after the other: {named:#?}"))
        }
    }
}

#[test]
fn random_transactions_beside_loads_of_other_tables_are_serializable() {
    let Some(subject) = real_plait("loads elsewhere") else { return };
    let tables = (0..TABLES).map(|i| {
        format!(
            "CREATE TABLE t{i}(id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t{i} VALUES(1, 1);"
        )
    });
    let schema = tables.collect::<String>() + SCHEMA;
    let fixture = Fixture::new(subject, &schema);
    let (seed, end) = (seed_or(5), Instant::now() + time_or(Duration::from_secs(4)));
    let history: Vec<Committed> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                scope.spawn({
                    let fixture = &fixture;
                    move || work(fixture, worker, seed, end)
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
    });
    let loads = history.iter().filter(|done| done.is_load).count();
    assert!(loads > 5 && history.len() > 2 * loads, "{loads} of {}", history.len());
    check(&history).unwrap_or_else(|report| panic!("seed {seed}: {report}"));
    let connection = fixture.open();
    for table in 0..TABLES {
        let raised = history.iter().filter(|done| done.raised.contains(&table)).count();
        let number = connection.integer(&format!("SELECT n FROM t{table}")).expect("it is there");
        assert_eq!(number, 1 + raised as i64, "t{table}, seed {seed}");
    }
    assert_eq!(connection.text("PRAGMA integrity_check").expect("it runs"), "ok");
}

#[test]
fn a_load_that_nobody_conflicts_with_is_caught() {
    let suite = "random_transactions_beside_loads_of_other_tables_are_serializable";
    must_be_reported(
        "exclusive.elsewhere",
        suite,
        &["twice, by", "no order of one after the other", "a repeated read"],
    );
}

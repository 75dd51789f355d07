//! A statement that the engine refuses after its first change leaves nothing behind: the transaction is what it was before the statement,
//! goes on, and commits.
//!
//! Holds WHOLE-1 to WHOLE-4 of `csrc/whole.c`. Statements are refused as applications meet it: they need the exclusive path in their middle, and
//! another connection has the writer's right; or they change a second file that cannot take part.

use plait_tests::sqlite::{ABORT_ROLLBACK, BUSY, CONSTRAINT, Connection, ERROR, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// More than the rest of the budget, and less than all of it.
const BIG: &str = "zeroblob(900000)";
const HALF: &str = "zeroblob(300000)";

/// A statement, the tables that it changes, and what shows them: by the table, by each index.
struct Form {
    what: &'static str,
    tables: &'static str,
    statement: &'static str,
    shown: &'static [&'static str],
    /// What the transaction has written before: little less than the budget.
    before: &'static str,
}

const NEARLY_ALL: &str = "INSERT INTO pad VALUES(zeroblob(6900000))";
/// For statements that write less.
const ALL_BUT_LITTLE: &str = "INSERT INTO pad VALUES(zeroblob(7150000))";

const T: &[&str] = &["SELECT a, length(b) FROM t NOT INDEXED ORDER BY a"];
const T_BY_I: &[&str] = &[
    "SELECT a, length(b) FROM t NOT INDEXED ORDER BY a",
    "SELECT a FROM t INDEXED BY i WHERE a > 0 ORDER BY a",
];

const FORMS: &[Form] = &[
    Form {
        what: "one row into a table with an index",
        tables: "CREATE TABLE t(a, b); CREATE INDEX i ON t(a)",
        statement: "INSERT INTO t VALUES(1, BIG)",
        shown: T_BY_I,
        before: NEARLY_ALL,
    },
    Form {
        what: "one row into a table with a unique column",
        tables: "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, b)",
        statement: "INSERT INTO t VALUES(1, 1, BIG)",
        shown: T,
        before: NEARLY_ALL,
    },
    Form {
        what: "REPLACE of two rows by one",
        tables: "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, b); INSERT INTO t VALUES(1, 5, 'x'), (2, 6, 'y')",
        statement: "REPLACE INTO t VALUES(1, 6, BIG)",
        shown: T,
        before: NEARLY_ALL,
    },
    Form {
        what: "UPDATE of one row and its index entry",
        tables: "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE INDEX i ON t(a); INSERT INTO t VALUES(1, 5, 'x')",
        statement: "UPDATE t SET a = 9, b = BIG WHERE id = 1",
        shown: T_BY_I,
        before: NEARLY_ALL,
    },
    Form {
        what: "UPSERT",
        tables: "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, b); CREATE INDEX i ON t(a) WHERE a > 0;
            INSERT INTO t VALUES(1, 5, 'x')",
        statement: "INSERT INTO t VALUES(1, 6, 1) ON CONFLICT(id) DO UPDATE SET a = 7, b = BIG",
        shown: T_BY_I,
        before: NEARLY_ALL,
    },
    Form {
        what: "DELETE of a row with two index entries",
        tables: "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE INDEX i ON t(a); CREATE INDEX j ON t(b);
            INSERT INTO t VALUES(1, 5, HALF)",
        statement: "DELETE FROM t WHERE id = 1",
        shown: T_BY_I,
        before: ALL_BUT_LITTLE,
    },
    Form {
        what: "one row WITHOUT ROWID",
        tables: "CREATE TABLE t(a PRIMARY KEY, b, c) WITHOUT ROWID; CREATE INDEX i ON t(c)",
        statement: "INSERT INTO t VALUES(1, BIG, 3)",
        shown: &["SELECT a, length(b), c FROM t ORDER BY a", "SELECT c FROM t INDEXED BY i ORDER BY c"],
        before: NEARLY_ALL,
    },
    Form {
        what: "two rows of VALUES",
        tables: "CREATE TABLE t(a, b)",
        statement: "INSERT INTO t VALUES(1, 2), (3, BIG)",
        shown: T,
        before: NEARLY_ALL,
    },
    Form {
        what: "rows of a SELECT",
        tables: "CREATE TABLE t(a, b)",
        statement: "INSERT INTO t SELECT value, zeroblob(200000) FROM json_each('[1,2,3,4,5,6]')",
        shown: T,
        before: NEARLY_ALL,
    },
    Form {
        what: "UPDATE of many rows",
        tables: "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE INDEX i ON t(a);
            INSERT INTO t SELECT value, value, zeroblob(100000) FROM json_each('[1,2,3,4,5,6,7,8,9,10]')",
        statement: "UPDATE t SET a = a + 1",
        shown: T_BY_I,
        before: NEARLY_ALL,
    },
    Form {
        what: "a trigger",
        tables: "CREATE TABLE t(a, b); CREATE TABLE l(x);
            CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO l VALUES(BIG); END",
        statement: "INSERT INTO t VALUES(1, 2)",
        shown: &["SELECT a, length(b) FROM t NOT INDEXED ORDER BY a", "SELECT length(x) FROM l"],
        before: NEARLY_ALL,
    },
    Form {
        what: "ON DELETE CASCADE",
        tables: "CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE TABLE l(x REFERENCES t ON DELETE CASCADE, y);
            CREATE INDEX li ON l(x, y); INSERT INTO t VALUES(1, 2); INSERT INTO l VALUES(1, HALF), (1, HALF)",
        statement: "DELETE FROM t WHERE a = 1",
        shown: &["SELECT a, b FROM t", "SELECT x, length(y) FROM l NOT INDEXED", "SELECT x FROM l INDEXED BY li ORDER BY x"],
        before: ALL_BUT_LITTLE,
    },
    Form {
        what: "AUTOINCREMENT",
        tables: "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a UNIQUE, b)",
        statement: "INSERT INTO t(a, b) VALUES(1, BIG)",
        shown: &["SELECT a, length(b) FROM t NOT INDEXED ORDER BY a", "SELECT name FROM sqlite_sequence"],
        before: NEARLY_ALL,
    },
    Form {
        what: "an R-Tree",
        tables: "CREATE VIRTUAL TABLE t USING rtree(id, x0, x1, +b); INSERT INTO t VALUES(7, 1, 2, 'x')",
        statement: "INSERT INTO t VALUES(1, 1, 2, BIG)",
        shown: &["SELECT id, x0, length(b) FROM t ORDER BY id", "SELECT rtreecheck('t')"],
        before: NEARLY_ALL,
    },
];

const OTHERS: &str = "CREATE TABLE pad(x); CREATE TABLE other(x)";

fn said(sql: &str) -> String {
    sql.replace("BIG", BIG).replace("HALF", HALF)
}

/// What the queries answer.
fn look(connection: &Connection, shown: &[&str]) -> Vec<Vec<Vec<Value>>> {
    shown.iter().map(|sql| connection.query(sql).expect(sql)).collect()
}

#[track_caller]
fn is_sound(connection: &Connection) {
    assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    assert_eq!(
        connection.query("PRAGMA foreign_key_check").expect("a check"),
        Vec::<Vec<Value>>::new()
    );
}

#[track_caller]
fn is_refused(done: Result<(), SqlError>, code: i32, what: &str) -> SqlError {
    let error = done.expect_err(what);
    assert_eq!(error.extended, code, "{what}: {error}");
    error
}

/// A database with these tables, a connection that has written nearly as much as a transaction may, and one with the writer's right.
fn scene(
    subject: &Subject,
    tables: &str,
    begin: &str,
    before: &str,
) -> (Fixture, Connection, Connection) {
    let fixture = Fixture::new(subject.clone(), OTHERS);
    let (connection, other) = (fixture.open(), fixture.open());
    connection.execute("PRAGMA foreign_keys=1").expect("a setting");
    connection.execute(&said(tables)).expect("tables");
    connection.busy_timeout(Duration::ZERO).expect("a timeout");
    other.execute("SELECT count(*) FROM other").expect("a read");
    connection.execute(begin).expect("a begin");
    connection.execute(before).expect("a write");
    other.execute("BEGIN IMMEDIATE; INSERT INTO other VALUES(1)").expect("the right");
    (fixture, connection, other)
}

// holds TXN-9, WHOLE-1
#[test]
fn a_statement_that_outgrows_the_budget_and_is_refused_leaves_nothing() {
    let Some(subject) = real_plait("statements that become exclusive") else { return };
    for form in FORMS {
        let (_fixture, connection, other) =
            scene(&subject, form.tables, "BEGIN CONCURRENT", form.before);
        let (there, total) = (look(&connection, form.shown), connection.total_changes());
        is_refused(connection.execute(&said(form.statement)), BUSY, form.what);
        assert!(!connection.autocommit(), "{}", form.what);
        assert_eq!(look(&connection, form.shown), there, "{}", form.what);
        assert_eq!(connection.changes(), 0, "{}", form.what);
        if !form.tables.contains("VIRTUAL") {
            // Those of a virtual table's own statements count, whatever becomes of its row.
            assert_eq!(connection.total_changes(), total, "{}", form.what);
        }
        other.execute("COMMIT").expect("a commit");
        connection.execute("COMMIT").expect(form.what);
        assert_eq!(look(&other, form.shown), there, "{}", form.what);
        is_sound(&other);
    }
}

#[test]
fn a_statement_that_is_repeated_after_a_refusal_happens_once() {
    let Some(subject) = real_plait("statements that are repeated") else { return };
    for form in FORMS {
        let model = Fixture::new(Subject::stock(), OTHERS);
        let stock = model.open();
        stock.execute("PRAGMA foreign_keys=1").expect("a setting");
        stock.execute(&said(form.tables)).expect("tables");
        stock.execute(&said(form.statement)).expect(form.what);
        let (_fixture, connection, other) =
            scene(&subject, form.tables, "BEGIN CONCURRENT; SAVEPOINT s", form.before);
        is_refused(connection.execute(&said(form.statement)), BUSY, form.what);
        other.execute("COMMIT").expect("a commit");
        connection.execute(&said(form.statement)).expect(form.what);
        connection.execute("RELEASE s; COMMIT").expect(form.what);
        assert_eq!(look(&other, form.shown), look(&stock, form.shown), "{}", form.what);
        is_sound(&other);
    }
}

#[test]
fn a_savepoint_that_is_taken_back_after_a_refusal_leaves_what_was_before_it() {
    let Some(subject) = real_plait("savepoints behind a refusal") else { return };
    for form in FORMS {
        let (_fixture, connection, other) = scene(
            &subject,
            form.tables,
            "BEGIN CONCURRENT; INSERT INTO other VALUES(7); SAVEPOINT s",
            form.before,
        );
        let there = look(&connection, form.shown);
        is_refused(connection.execute(&said(form.statement)), BUSY, form.what);
        connection.execute("ROLLBACK TO s").expect(form.what);
        assert_eq!(connection.integer("SELECT count(*) FROM pad"), Ok(0), "{}", form.what);
        other.execute("COMMIT").expect("a commit");
        connection.execute("COMMIT").expect(form.what);
        assert_eq!(look(&other, form.shown), there, "{}", form.what);
        assert_eq!(other.integer("SELECT count(*) FROM other WHERE x = 7"), Ok(1), "{}", form.what);
        is_sound(&other);
    }
}

#[test]
fn a_row_whose_index_has_a_collation_of_the_application_is_whole_or_not_there() {
    let Some(subject) = real_plait("collations of the application") else { return };
    let tables = "CREATE TABLE t(id INTEGER PRIMARY KEY, k, c)";
    let fixture = Fixture::new(subject, OTHERS);
    let open = || {
        let connection = fixture.open();
        connection.create_reversed_collation().expect("a collation");
        connection.busy_timeout(Duration::ZERO).expect("a timeout");
        connection
    };
    let (connection, other) = (open(), open());
    connection.execute(tables).expect("tables");
    // An INSERT writes the newest index first.
    connection
        .execute("CREATE INDEX t_c ON t(c COLLATE reversed); CREATE INDEX t_k ON t(k)")
        .expect("indexes");
    other.execute("SELECT count(*) FROM other").expect("a read");
    connection.execute("BEGIN CONCURRENT; INSERT INTO pad VALUES(1)").expect("a begin");
    other.execute("BEGIN IMMEDIATE; INSERT INTO other VALUES(1)").expect("the right");
    is_refused(connection.execute("INSERT INTO t VALUES(1, 'one', 'x')"), BUSY, "a row");
    let shown = ["SELECT id FROM t NOT INDEXED", "SELECT k FROM t INDEXED BY t_k"];
    assert_eq!(look(&connection, &shown), [Vec::<Vec<Value>>::new(), Vec::new()]);
    other.execute("COMMIT").expect("a commit");
    connection.execute("COMMIT").expect("a commit");
    is_sound(&connection);
}

/// A TEMP trigger that writes to a file in WAL mode, beside a concurrent one.
const AUDIT: &str =
    "CREATE TEMP TRIGGER g AFTER INSERT ON main.t BEGIN INSERT INTO audit VALUES(new.a); END";

#[test]
fn a_statement_whose_trigger_changes_a_file_that_cannot_take_part_leaves_nothing() {
    let Some(subject) = real_plait("a second file") else { return };
    // Concurrent, exclusive, and alone until the second file is attached.
    for (before, is_alone) in
        [("", false), ("CREATE TABLE made(x);", false), ("INSERT INTO pad VALUES(1);", true)]
    {
        let fixture = Fixture::new(subject.clone(), OTHERS);
        let second = Fixture::new(
            Subject { mode: plait_tests::subject::Mode::Wal, ..subject.clone() },
            "CREATE TABLE audit(x)",
        );
        let connection = fixture.open();
        connection.execute("CREATE TABLE t(a, b); CREATE INDEX i ON t(a)").expect("tables");
        let attach = format!("ATTACH '{}' AS second", second.database().display());
        if is_alone {
            connection.execute(&format!("BEGIN IMMEDIATE; {before}")).expect("a begin");
            connection.execute(&attach).expect("a second file");
        } else {
            connection.execute(&attach).expect("a second file");
            connection.execute(&format!("BEGIN; {before}")).expect("a begin");
        }
        connection.execute(AUDIT).expect("a trigger");
        is_refused(connection.execute("INSERT INTO t VALUES(1, 1), (2, 2)"), ERROR, before);
        let shown =
            ["SELECT a FROM t NOT INDEXED", "SELECT a FROM t INDEXED BY i", "SELECT x FROM audit"];
        assert_eq!(
            look(&connection, &shown),
            [Vec::<Vec<Value>>::new(), Vec::new(), Vec::new()],
            "{before}"
        );
        connection.execute("COMMIT").expect("a commit");
        assert_eq!(
            look(&connection, &shown),
            [Vec::<Vec<Value>>::new(), Vec::new(), Vec::new()],
            "{before}"
        );
        is_sound(&connection);
    }
}

#[test]
fn a_map_whose_table_has_an_index_is_whole_after_a_refusal() {
    let Some(subject) = real_plait("maps") else { return };
    let key = |n: usize| Value::Text("k".repeat(n).into());
    for call in ["put", "insert", "add", "append"] {
        let (_fixture, connection, other) = scene(
            &subject,
            "CREATE TABLE m(k TEXT PRIMARY KEY, v); INSERT INTO m VALUES('kkk', 'old')",
            "BEGIN CONCURRENT",
            "INSERT INTO pad VALUES(zeroblob(6300000))",
        );
        let map = connection.open_map("m", 0).expect("a map");
        // Row and index entry have the key each: one fits, two do not.
        let long = key(600_000);
        let value = Value::Text("v".into());
        let refused = match call {
            "put" => map.put(&long, &value).map(drop),
            "insert" => map.insert(&long, &value).map(drop),
            "add" => map.add(&long, 5).map(drop),
            _ => map.append(&long, &value).map(drop),
        };
        is_refused(refused, BUSY, call);
        assert_eq!(map.get(&long), Ok(None), "{call}");
        other.execute("COMMIT").expect("a commit");
        connection.execute("COMMIT").expect(call);
        assert_eq!(connection.integer("SELECT count(*) FROM m"), Ok(1), "{call}");
        is_sound(&connection);
    }
}

// holds WHOLE-2
#[test]
fn what_a_full_text_index_remembers_of_a_refused_statement_goes_with_the_transaction() {
    let Some(subject) = real_plait("FTS5") else { return };
    let tables = "CREATE VIRTUAL TABLE words USING fts5(word); INSERT INTO words VALUES('zero')";
    let (_fixture, connection, other) = scene(&subject, tables, "BEGIN CONCURRENT", NEARLY_ALL);
    connection.execute("INSERT INTO words VALUES('one')").expect("a word");
    let refused = connection.execute("INSERT INTO words VALUES(hex(zeroblob(500000)))");
    let error = is_refused(refused, ABORT_ROLLBACK, "a long word");
    assert!(error.message.contains("the whole transaction was rolled back"), "{error}");
    assert!(connection.autocommit());
    other.execute("COMMIT").expect("a commit");
    connection.execute("INSERT INTO words(words) VALUES('integrity-check')").expect("it is sound");
    let found = |word: &str| {
        connection.integer(&format!("SELECT count(*) FROM words WHERE words MATCH '{word}'"))
    };
    assert_eq!((found("zero"), found("one")), (Ok(1), Ok(0)));
    is_sound(&connection);
}

#[test]
fn what_a_full_text_index_has_gathered_before_a_refused_statement_stays() {
    let Some(subject) = real_plait("FTS5") else { return };
    let tables = "CREATE VIRTUAL TABLE words USING fts5(word); CREATE TABLE t(x UNIQUE)";
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "BEGIN CONCURRENT"] {
        let fixture = Fixture::new(subject.clone(), tables);
        let connection = fixture.open();
        connection.execute(begin).expect("a begin");
        connection.execute("INSERT INTO words VALUES('one')").expect("a word");
        // SQLite opens a savepoint for this one, and the index writes what it has gathered before that.
        let refused = connection.execute("INSERT INTO t SELECT 1 UNION ALL SELECT 1");
        assert_eq!(refused.expect_err("a row twice").code, CONSTRAINT);
        connection.execute("COMMIT").expect("a commit");
        let found = connection.integer("SELECT count(*) FROM words WHERE words MATCH 'one'");
        assert_eq!(found, Ok(1), "{begin}");
        let check = "INSERT INTO words(words) VALUES('integrity-check')";
        connection.execute(check).expect("it is sound");
    }
}

/// Transactions that have written to a full-text index, with so much room left that for some of them it is too little for what the index has
/// gathered, and not for the row.
fn gathered(subject: &Subject) -> impl Iterator<Item = (Fixture, Connection, Connection)> {
    [400, 600, 800, 1000].into_iter().filter_map(|room| {
        let tables = "CREATE VIRTUAL TABLE words USING fts5(word); CREATE TABLE t(x UNIQUE)";
        let full = format!("INSERT INTO pad VALUES(zeroblob({}))", (7 << 20) - room);
        let made = scene(subject, tables, "BEGIN CONCURRENT", &full);
        let many = "INSERT INTO words VALUES('one two three four five six seven eight nine ten')";
        made.1.execute(many).is_ok().then_some(made)
    })
}

#[test]
fn a_full_text_index_that_cannot_be_written_before_a_statement_takes_the_transaction_back() {
    let Some(subject) = real_plait("FTS5") else { return };
    let mut codes = Vec::new();
    for (_fixture, connection, other) in gathered(&subject) {
        let refused = connection.execute("INSERT INTO t SELECT 1 UNION ALL SELECT 2");
        codes.extend(refused.err().map(|error| error.extended));
        other.execute("COMMIT").expect("a commit");
        if !connection.autocommit() {
            connection.execute("COMMIT").expect("a commit");
        }
        let check = "INSERT INTO words(words) VALUES('integrity-check')";
        connection.execute(check).expect("it is sound");
    }
    assert!(codes.contains(&ABORT_ROLLBACK), "{codes:?}");
}

#[test]
fn a_full_text_index_that_cannot_be_written_at_commit_takes_the_transaction_back() {
    let Some(subject) = real_plait("FTS5") else { return };
    let mut codes = Vec::new();
    for (_fixture, connection, other) in gathered(&subject) {
        let error = connection.execute("COMMIT").expect_err("the right is taken");
        other.execute("COMMIT").expect("a commit");
        codes.push(error.extended);
        if error.extended == BUSY {
            connection.execute("COMMIT").expect("BUSY may be repeated");
        } else {
            assert!(error.message.contains("the whole transaction was rolled back"), "{error}");
            assert!(connection.autocommit());
        }
    }
    assert!(codes.contains(&ABORT_ROLLBACK), "{codes:?}");
}

#[test]
fn virtual_tables_hear_of_no_savepoint_that_sqlite_does_not_open() {
    // FTS5 writes what it remembers at each savepoint: a segment each.
    let segments = |subject: &Subject| {
        let fixture = Fixture::new(subject.clone(), "CREATE VIRTUAL TABLE words USING fts5(word)");
        let connection = fixture.open();
        connection.execute("BEGIN IMMEDIATE; CREATE TABLE plain(x)").expect("a begin");
        let load = |connection: &Connection| {
            for i in 0..20 {
                let sql =
                    format!("INSERT INTO words VALUES('word {i}'); INSERT INTO plain VALUES({i})");
                connection.execute(&sql).expect("a row");
            }
            connection.execute("COMMIT").expect("a commit");
            connection.integer("SELECT count(*) FROM words_data").expect("a count")
        };
        let exclusive = load(&connection);
        fixture.open().execute("SELECT count(*) FROM plain").expect("a second connection");
        connection.execute("BEGIN; SELECT count(*) FROM plain; SAVEPOINT s").expect("a begin");
        (exclusive, load(&connection))
    };
    assert_eq!(segments(&Subject::plait()), segments(&Subject::stock()));
}

/// Statements whose write cursors are opened after the comparison that calls the application.
const LATE: [&str; 4] = [
    "INSERT INTO u VALUES('a' COLLATE called < 'b', 'mine'), (3, 'mine')",
    "INSERT INTO u SELECT x + 10, y < 'b' COLLATE called FROM u",
    "UPDATE u SET y = v.y COLLATE called < 'b' FROM u v WHERE v.x = u.x",
    "DELETE FROM u WHERE x IN (SELECT x FROM u WHERE y COLLATE called < 'zzz')",
];

// holds WHOLE-4
#[test]
fn a_statement_whose_transaction_is_rolled_back_in_its_middle_writes_nothing() {
    let Some(subject) = real_plait("ROLLBACK in the middle of a statement") else { return };
    let ends = [
        ("BEGIN", "ROLLBACK", ABORT_ROLLBACK),
        ("BEGIN CONCURRENT", "ROLLBACK", ABORT_ROLLBACK),
        ("BEGIN IMMEDIATE; CREATE TABLE made(x)", "ROLLBACK", ABORT_ROLLBACK),
        (
            "BEGIN; INSERT INTO pad VALUES(1)",
            "INSERT OR ROLLBACK INTO single VALUES(1)",
            ABORT_ROLLBACK,
        ),
        ("SELECT 1", "INSERT OR ROLLBACK INTO single VALUES(1)", ABORT_ROLLBACK),
        ("BEGIN", "ROLLBACK; BEGIN IMMEDIATE", ABORT_ROLLBACK),
        ("SAVEPOINT s; INSERT INTO pad VALUES(1)", "ROLLBACK TO s", ABORT_ROLLBACK),
    ];
    for (begin, end, code) in ends {
        for (i, late) in LATE.iter().enumerate() {
            for is_alone in [false, true] {
                let what = format!("{begin}; {late}; {end}; alone: {is_alone}");
                let tables = "CREATE TABLE u(x UNIQUE, y); CREATE TABLE single(x UNIQUE); INSERT INTO single VALUES(1);
                    CREATE TRIGGER g AFTER INSERT ON u BEGIN SELECT 1; END; INSERT INTO u VALUES(7, 'seven')";
                let fixture = Fixture::new(subject.clone(), OTHERS);
                let connection = fixture.open();
                connection.execute(tables).expect("tables");
                let other = (!is_alone).then(|| fixture.open());
                if let Some(other) = &other {
                    other.execute("SELECT count(*) FROM u").expect("a read");
                }
                let (calls, within) =
                    (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Some(connection.clone()))));
                let slot = within.clone();
                let hook = move || {
                    if calls.fetch_add(1, Relaxed) > 0 {
                        return;
                    }
                    if let Some(connection) = &*slot.lock().expect("one thread") {
                        let _ = connection.execute(end);
                    }
                };
                connection.create_called_collation(hook).expect("a collation");
                connection.execute(begin).expect(begin);
                is_refused(connection.execute(late), code, &what);
                *within.lock().expect("one thread") = None;
                if !connection.autocommit() {
                    connection.execute("COMMIT").expect(&what);
                }
                let rows = "SELECT x, y FROM u";
                let there = [[Value::Integer(7), Value::Text("seven".into())]];
                assert_eq!(connection.query(rows).expect(&what), there, "{what} ({i})");
                // What others write, and an unrelated commit of this connection: nothing of the statement comes with it.
                let writer = other.unwrap_or_else(|| fixture.open());
                writer.execute("INSERT INTO u VALUES(1, 'theirs'), (17, 'theirs')").expect(&what);
                connection.execute("INSERT INTO pad VALUES(9)").expect(&what);
                assert_eq!(writer.integer("SELECT count(*) FROM u"), Ok(3), "{what} ({i})");
                is_sound(&writer);
            }
        }
    }
}

/// What SQLite itself refuses, in the middle of statements and beside them, with what depends on savepoints: it is as in SQLite, step by step.
const AS_IN_SQLITE: [(&str, &[&str]); 8] = [
    (
        "a constraint refuses a row of a table whose trigger writes to a full-text index",
        &[
            "CREATE TABLE docs(id INTEGER PRIMARY KEY, body UNIQUE)",
            "CREATE VIRTUAL TABLE words USING fts5(body)",
            "CREATE TRIGGER g AFTER INSERT ON docs BEGIN INSERT INTO words VALUES(new.body); END",
            "BEGIN",
            "INSERT INTO docs VALUES(1, 'one')",
            "INSERT INTO docs VALUES(2, 'one')",
            "COMMIT",
            "SELECT count(*) FROM words WHERE words MATCH 'one'",
            "INSERT INTO words(words) VALUES('integrity-check')",
        ],
    ),
    (
        "a full-text index writes what it has gathered while a row is refused",
        &[
            "CREATE VIRTUAL TABLE words USING fts5(body)",
            "CREATE VIRTUAL TABLE terms USING fts5vocab('words', 'row')",
            "CREATE TABLE t(id INTEGER PRIMARY KEY, n)",
            "INSERT INTO t VALUES(1, 1)",
            "BEGIN",
            "INSERT INTO words VALUES('one two')",
            "INSERT INTO t VALUES(1, (SELECT count(*) FROM terms))",
            "COMMIT",
            "SELECT count(*) FROM words WHERE words MATCH 'two'",
            "INSERT INTO words(words) VALUES('integrity-check')",
        ],
    ),
    (
        "a full-text index refuses a row",
        &[
            "CREATE VIRTUAL TABLE words USING fts5(body)",
            "CREATE TABLE t(a)",
            "INSERT INTO words(rowid, body) VALUES(1, 'one')",
            "BEGIN",
            "INSERT INTO t VALUES(1)",
            "SAVEPOINT s",
            "INSERT INTO words(rowid, body) VALUES(1, 'again')",
            "INSERT INTO words(words) VALUES('nonsense')",
            "INSERT INTO t VALUES(2)",
            "COMMIT",
            "SELECT a FROM t",
            "INSERT INTO words(words) VALUES('integrity-check')",
        ],
    ),
    (
        "an R-Tree refuses a row beside a full-text index",
        &[
            "CREATE VIRTUAL TABLE words USING fts5(body)",
            "CREATE VIRTUAL TABLE boxes USING rtree(id, x0, x1)",
            "INSERT INTO boxes VALUES(1, 1, 2)",
            "BEGIN",
            "INSERT INTO words VALUES('one')",
            "INSERT INTO boxes VALUES(1, 3, 4)",
            "COMMIT",
            "SELECT count(*) FROM words WHERE words MATCH 'one'",
            "SELECT rtreecheck('boxes')",
        ],
    ),
    (
        "a value is too long in the middle of a statement",
        &[
            "CREATE TABLE t(a, b)",
            "BEGIN",
            "INSERT INTO t VALUES(0, 0)",
            "INSERT INTO t SELECT value, zeroblob(value * 100000000) FROM json_each('[0, 0, 11]')",
            "COMMIT",
            "SELECT a, length(b) FROM t ORDER BY a",
        ],
    ),
    (
        "foreign keys that are checked at COMMIT, beside a statement that is refused",
        &[
            "PRAGMA foreign_keys=1",
            "CREATE TABLE p(id INTEGER PRIMARY KEY)",
            "CREATE TABLE c(x UNIQUE, p REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
            "BEGIN",
            "INSERT INTO c VALUES(1, 7)",
            "INSERT INTO c VALUES(2, 8), (1, 9)",
            "COMMIT",
            "INSERT INTO p VALUES(7)",
            "COMMIT",
            "SELECT x, p FROM c",
        ],
    ),
    (
        "two files and TEMP in one statement",
        &[
            "CREATE TABLE t(a UNIQUE)",
            "CREATE TEMP TABLE log(a)",
            "CREATE TEMP TRIGGER g BEFORE INSERT ON t BEGIN INSERT INTO log VALUES(new.a); END",
            "INSERT INTO t VALUES(1)",
            "BEGIN",
            "INSERT INTO t VALUES(2)",
            "INSERT INTO t VALUES(3), (1)",
            "INSERT INTO t VALUES(1)",
            "COMMIT",
            "SELECT (SELECT group_concat(a) FROM t), (SELECT group_concat(a) FROM log)",
        ],
    ),
    (
        "savepoints beside statements that are refused",
        &[
            "CREATE TABLE t(a UNIQUE)",
            "SAVEPOINT a",
            "INSERT INTO t VALUES(1)",
            "SAVEPOINT b",
            "INSERT INTO t VALUES(2), (1)",
            "INSERT INTO t VALUES(3)",
            "ROLLBACK TO b",
            "INSERT INTO t VALUES(4)",
            "RELEASE b",
            "INSERT INTO t SELECT a FROM t",
            "RELEASE a",
            "SELECT a FROM t",
        ],
    ),
];

#[test]
fn what_sqlite_refuses_leaves_what_it_leaves_in_sqlite() {
    let steps = |subject: &Subject, begin: &str, script: &[&str]| {
        let fixture = Fixture::new(subject.clone(), OTHERS);
        let (connection, _other) =
            (fixture.open(), fixture.open().query("SELECT count(*) FROM pad"));
        let run = |sql: &&str| {
            let sql = if *sql == "BEGIN" { begin } else { sql };
            let said = connection.query(sql).map_err(|e| e.extended);
            (said, connection.changes(), connection.autocommit())
        };
        script.iter().map(run).collect::<Vec<_>>()
    };
    for (what, script) in AS_IN_SQLITE {
        let expected = steps(&Subject::stock(), "BEGIN", script);
        for begin in ["BEGIN", "BEGIN IMMEDIATE", "BEGIN CONCURRENT"] {
            if begin.ends_with("CONCURRENT") && !Subject::plait().is_concurrent() {
                continue;
            }
            for (i, (is, must)) in
                steps(&Subject::plait(), begin, script).iter().zip(&expected).enumerate()
            {
                assert_eq!(is, must, "{what}, {begin}: {}", script[i]);
            }
        }
    }
}

// holds WHOLE-3
#[test]
fn a_statement_that_gives_rows_takes_back_nothing_of_those_beside_it() {
    let answer = |subject: &Subject| {
        let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a); CREATE TABLE u(x UNIQUE)");
        let connection = fixture.open();
        connection.execute("BEGIN").expect("a begin");
        let first = |sql: &str| {
            let mut statement = connection.prepare(sql).expect(sql);
            statement.step().expect(sql);
            statement
        };
        let one = first("INSERT INTO t VALUES(1), (11) RETURNING a");
        let two = first("INSERT INTO t VALUES(2), (12) RETURNING a");
        drop(one);
        connection.execute("INSERT INTO t VALUES(3)").expect("a row");
        drop(two);
        assert!(connection.execute("INSERT INTO u VALUES(4), (4)").is_err(), "a row twice");
        connection.execute("SAVEPOINT s").expect("a savepoint");
        let three = first("INSERT INTO t VALUES(5), (15) RETURNING a");
        connection.execute("ROLLBACK TO s; INSERT INTO t VALUES(6)").expect("a row");
        drop(three);
        assert!(connection.execute("INSERT INTO u VALUES(7), (7)").is_err(), "a row twice");
        connection.execute("COMMIT").expect("a commit");
        connection.query("SELECT a FROM t ORDER BY a").expect("rows")
    };
    let rows = answer(&Subject::plait());
    assert_eq!(rows, answer(&Subject::stock()));
    assert_eq!(rows.concat(), [1, 2, 3, 6, 11, 12].map(Value::Integer));
}

//! Statements that something happens to in their middle: a trigger writes what they are about to write, or they go over to
//! SQLite's own path. What they do, what they answer and what hooks are told equals stock SQLite.

use plait_tests::differential::run::contents;
use plait_tests::sqlite::{Blob, Connection, RowBefore, RowChange, Step};
use plait_tests::subject::{Begin, Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::sync::{Arc, Mutex};

/// A table with a row that fills the memory of a transaction on the concurrent path, so that it goes over to SQLite's own.
const FILLER: &str = "INSERT INTO filler VALUES(zeroblob(9000000));";

/// Everything that an application can see of a few statements.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    answers: Vec<Result<Vec<Vec<Value>>, i32>>,
    counts: Vec<(i64, i64, i64)>,
    updates: Vec<RowChange>,
    rows_before: Vec<RowBefore>,
    contents: Vec<Vec<Value>>,
}

fn exclusive_commits(connection: &Connection) -> i64 {
    connection
        .integer("SELECT coalesce(max(value), 0) FROM plait_status WHERE name='exclusive_commits'")
        .expect("a counter")
}

/// How the database and the transaction are when the statements come.
#[derive(Clone, Copy, Debug)]
struct Setting {
    begin: Option<Begin>,
    merged: bool,
    hooks: bool,
}

impl Setting {
    fn all() -> Vec<Self> {
        let begins = [None, Some(Begin::Deferred), Some(Begin::Immediate), Some(Begin::Concurrent)];
        let one = |begin, merged| Self { begin, merged, hooks: merged };
        begins.iter().flat_map(|&begin| [one(begin, false), one(begin, true)]).collect()
    }

    fn in_transactions_with_hooks() -> Vec<Self> {
        let mut settings = Self::all();
        settings.retain(|setting| setting.begin.is_some());
        settings.into_iter().map(|setting| Self { hooks: true, ..setting }).collect()
    }
}

/// Runs the statements one by one; also tells how many transactions took SQLite's own path.
fn run(subject: &Subject, setting: Setting, schema: &str, statements: &[&str]) -> (Seen, i64) {
    let fixture = Fixture::new(subject.clone(), schema);
    let connection = fixture.open();
    // Somebody else is there: nothing counts as a bulk load.
    let other = fixture.open();
    connection.execute("PRAGMA recursive_triggers=1; PRAGMA foreign_keys=1").expect("pragmas");
    if setting.merged && subject.is_concurrent() {
        other.execute("PRAGMA wal_checkpoint").expect("a merge");
    }
    let (updates, rows_before) =
        (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    if setting.hooks {
        let sink = updates.clone();
        connection.update_hook(move |change| sink.lock().expect("one thread").push(change));
        let sink = rows_before.clone();
        connection.preupdate_hook(move |row| sink.lock().expect("one thread").push(row));
    }
    let exclusive = |connection: &Connection| {
        if subject.is_concurrent() { exclusive_commits(connection) } else { 0 }
    };
    let before = exclusive(&connection);
    let begin = setting.begin.map(|begin| subject.begin(begin));
    let end = setting.begin.map(|_| "COMMIT");
    let (mut answers, mut counts) = (Vec::new(), Vec::new());
    for sql in begin.iter().chain(statements).chain(&end) {
        answers.push(connection.query(sql).map_err(|error| error.extended));
        counts.push((
            connection.changes(),
            connection.total_changes(),
            connection.last_insert_rowid(),
        ));
    }
    let after = exclusive(&connection);
    let mut rows = connection.query("PRAGMA integrity_check").expect("a check");
    contents(&connection, &mut rows).expect("rows");
    let seen = Seen {
        answers,
        counts,
        updates: updates.lock().expect("one thread").clone(),
        rows_before: rows_before.lock().expect("one thread").clone(),
        contents: rows,
    };
    (seen, after - before)
}

/// The statements do the same in all settings. Returns what stock SQLite answers in the last, and in how many SQLite's own path was
/// taken.
#[track_caller]
fn same_as_stock(settings: &[Setting], schema: &str, statements: &[&str]) -> (Seen, usize) {
    let (stock, plait) = (Subject::stock(), Subject::plait());
    let mut last = None;
    let mut own_path = 0;
    for &setting in settings {
        let (expected, _) = run(&stock, setting, schema, statements);
        let (got, exclusive) = run(&plait, setting, schema, statements);
        assert_eq!(expected.answers, got.answers, "{setting:?}: {statements:?}");
        assert_eq!(expected.counts, got.counts, "{setting:?}: {statements:?}");
        assert_eq!(expected.updates, got.updates, "{setting:?}: {statements:?}");
        assert_eq!(expected.rows_before, got.rows_before, "{setting:?}: {statements:?}");
        assert!(expected.contents == got.contents, "{setting:?}: {statements:?}");
        own_path += usize::from(exclusive > 0);
        last = Some(expected);
    }
    (last.expect("there are settings"), own_path)
}

/// `rows` rows with two unique columns, with a rowid and without, and a trigger that runs `body` when a row is deleted.
fn replaced(rows: i64, body: &str) -> [String; 2] {
    let numbers = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{rows}) SELECT i, i, 'row'||i FROM n"
    );
    [
        format!(
            "CREATE TABLE filler(x); CREATE TABLE t(a UNIQUE, b UNIQUE, c); {body}; INSERT INTO t {numbers};"
        ),
        format!(
            "CREATE TABLE filler(x); CREATE TABLE t(a PRIMARY KEY, b UNIQUE, c) WITHOUT ROWID; {body}; INSERT INTO t {numbers};"
        ),
    ]
}

#[test]
fn replace_fails_when_a_trigger_writes_the_table_whose_row_it_replaces() {
    for (filler, time, write) in [
        ("", "AFTER", "DELETE FROM t"),
        ("", "AFTER", "INSERT INTO t VALUES(100, 100, 'of the trigger')"),
        ("", "BEFORE", "DELETE FROM t WHERE a=3"),
        ("", "BEFORE", "UPDATE t SET c='changed' WHERE a=4"),
        (FILLER, "AFTER", "DELETE FROM t WHERE a=3"),
        (FILLER, "BEFORE", "INSERT INTO t VALUES(100, 100, 'of the trigger')"),
    ] {
        let trigger = format!("CREATE TRIGGER r {time} DELETE ON t BEGIN {filler} {write}; END");
        for schema in replaced(5, &trigger) {
            let statements =
                ["UPDATE OR REPLACE t SET b=1", "UPDATE OR REPLACE t SET a=2 WHERE a=1"];
            let (seen, _) = same_as_stock(&Setting::all(), &schema, &statements);
            assert!(seen.answers.iter().any(Result::is_err), "{schema}: {:?}", seen.answers);
        }
    }
}

#[test]
fn replace_succeeds_when_its_trigger_finds_nothing_to_write_or_writes_elsewhere() {
    for (rows, body) in [
        (2, "AFTER DELETE ON t BEGIN DELETE FROM t WHERE a=77; END"),
        (5, "AFTER DELETE ON t BEGIN INSERT INTO filler VALUES(old.a); END"),
        (5, "BEFORE DELETE ON t BEGIN DELETE FROM filler; END"),
    ] {
        for schema in replaced(rows, &format!("CREATE TRIGGER r {body}")) {
            let (seen, _) = same_as_stock(
                &Setting::all(),
                &schema,
                &["UPDATE OR REPLACE t SET b=1 WHERE a=2", "REPLACE INTO t VALUES(2, 9, 'new')"],
            );
            assert!(seen.answers.iter().all(Result::is_ok), "{schema}: {:?}", seen.answers);
        }
    }
}

/// Rows that are large enough for a change of all of them to leave the concurrent path, with all kinds of indexes.
const LARGE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, grp INTEGER, name TEXT COLLATE NOCASE, pad BLOB, twice AS (grp*2));
    CREATE INDEX t_grp ON t(grp);
    CREATE UNIQUE INDEX t_name ON t(name);
    CREATE INDEX t_twice ON t(twice, length(pad)) WHERE grp<>3;
    CREATE TABLE w(name TEXT PRIMARY KEY, grp INTEGER, pad BLOB) WITHOUT ROWID;
    CREATE INDEX w_grp ON w(grp);
    CREATE TABLE log(id INTEGER PRIMARY KEY AUTOINCREMENT, what, row);
    CREATE TABLE child(id INTEGER PRIMARY KEY, parent INTEGER REFERENCES t(id) ON DELETE CASCADE ON UPDATE CASCADE);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500)
        INSERT INTO t SELECT i, i%7, 'Name '||i, zeroblob(3000+i) FROM n;
    INSERT INTO w SELECT name, grp, pad FROM t;
    INSERT INTO child SELECT id+1000, id FROM t WHERE id%50=0;
    CREATE TRIGGER ti AFTER INSERT ON t BEGIN INSERT INTO log(what, row) VALUES('insert', new.id); END;
    CREATE TRIGGER tu AFTER UPDATE ON t BEGIN INSERT INTO log(what, row) VALUES('update '||old.grp, new.id); END;
    CREATE TRIGGER td BEFORE DELETE ON t WHEN old.id%2 BEGIN INSERT INTO log(what, row) VALUES('delete '||old.name, old.id); END;";
/// Written before the statement, in the same transaction where there is one: little is left of what it may keep in memory.
const NEARLY_FULL: &str = "INSERT INTO w VALUES('filler', 0, zeroblob(7200000))";

#[test]
fn hooks_see_the_rows_of_a_statement_that_leaves_the_concurrent_path_in_its_middle() {
    let mut left = 0;
    for statement in [
        "DELETE FROM t WHERE id>0 RETURNING id, name",
        "DELETE FROM w WHERE grp>=0 RETURNING name, length(pad)",
        "UPDATE t SET grp=grp+1, name=name||'x' RETURNING id, twice, name",
        "UPDATE t SET id=id+10000 WHERE grp<>2",
        "UPDATE w SET grp=grp+1, pad=zeroblob(4000)",
        "UPDATE w SET name=name||'!' WHERE grp<5",
        "UPDATE t SET grp=10 FROM w WHERE w.name=t.name RETURNING id, grp",
        "REPLACE INTO t SELECT id+1, grp, 'Name '||(id+2), pad FROM t WHERE id<499",
        "INSERT INTO t SELECT id, 99, 'Name '||(id+250), pad FROM t WHERE true
            ON CONFLICT(name) DO UPDATE SET grp=grp+excluded.grp, pad=excluded.pad ON CONFLICT(id) DO UPDATE SET grp=-grp
            RETURNING id, grp, length(pad)",
        "INSERT OR IGNORE INTO t SELECT id*2, grp, name||'y', pad FROM t",
    ] {
        let settings = Setting::in_transactions_with_hooks();
        let (seen, own_path) = same_as_stock(&settings, LARGE, &[NEARLY_FULL, statement]);
        assert!(seen.answers.iter().all(Result::is_ok), "{statement}: {:?}", seen.answers);
        left += own_path;
    }
    assert!(left > 0, "all stayed on the concurrent path");
}

/// The note that a row was read lies in that row until the next one is read or written, and this one is an own one, replaced.
#[test]
fn an_own_row_is_replaced_by_longer_and_shorter_ones() {
    let lengths = [600_000, 20, 800_000, 700_000, 1, 900_000, 300_000, 2000, 500_000];
    let mut statements = Vec::new();
    for (index, length) in lengths.into_iter().enumerate() {
        statements.push(format!("UPDATE t SET v=zeroblob({length}) WHERE k='{}'", index % 2));
        let row = format!("'{}', zeroblob({})", index % 2, length / 2);
        statements
            .push(format!("INSERT INTO t VALUES({row}) ON CONFLICT DO UPDATE SET v=excluded.v"));
        statements.push(format!("SELECT k, length(v) FROM t WHERE k>='{}' LIMIT 1", index % 2));
    }
    let statements: Vec<_> = statements.iter().map(String::as_str).collect();
    let schema = "CREATE TABLE t(k TEXT PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO t VALUES('0', 0), ('1', 1);";
    same_as_stock(&Setting::all(), schema, &statements);
}

#[test]
fn a_table_with_a_collation_that_is_not_there_can_be_emptied() {
    let Some(plait) = real_plait("statements") else { return };
    let outcome = |subject: &Subject, begin: Option<Begin>, merged: bool| {
        let fixture = Fixture::new(subject.clone(), "");
        let connection = fixture.open();
        connection.create_reversed_collation().expect("a collation");
        connection
            .execute(
                "CREATE TABLE t(a COLLATE reversed, b); CREATE INDEX i ON t(a); INSERT INTO t VALUES('x', 'y'), ('z', 1);
                 CREATE TABLE w(a TEXT COLLATE reversed PRIMARY KEY, b) WITHOUT ROWID; INSERT INTO w VALUES('x', 1)",
            )
            .expect("rows");
        connection.close().expect("it closes");
        let connection = fixture.open();
        if merged {
            connection.execute("PRAGMA wal_checkpoint").expect("a merge");
        }
        let mut seen = Vec::new();
        for sql in begin.map(|begin| subject.begin(begin)).iter().chain(&[
            "DELETE FROM t WHERE b=1",
            "DELETE FROM t",
            "DELETE FROM w",
            "SELECT count(*) FROM t",
            "DROP INDEX i",
        ]) {
            seen.push(connection.query(sql).map_err(|error| (error.extended, error.message)));
            seen.push(Ok(vec![vec![Value::Integer(connection.changes())]]));
        }
        seen
    };
    for begin in [None, Some(Begin::Deferred), Some(Begin::Immediate), Some(Begin::Concurrent)] {
        for merged in [false, true] {
            let (expected, got) =
                (outcome(&Subject::stock(), begin, merged), outcome(&plait, begin, merged));
            assert_eq!(expected, got, "{begin:?}, merged: {merged}");
        }
    }
}

/// What a REPLACE that deletes rows 1 and 2 does while its trigger writes through a blob handle on row `on`: the result of the statement, of
/// the writes, and all rows.
type Replaced = (Result<(), i32>, Vec<Result<(), i32>>, Vec<Vec<Value>>);

/// What is left of 40 rows and of their index entries after each second row is deleted, when the values of the indexed expression are
/// others than they were: less than all that are in the index, greater, or among them.
fn deleted_under_other_values(
    subject: &Subject,
    table: &str,
    now: &str,
    merged: bool,
) -> Vec<Vec<Value>> {
    let schema = format!(
        "CREATE TABLE t({table}; CREATE INDEX i ON t((b+100));
         INSERT INTO t WITH RECURSIVE s(n) AS (VALUES(1) UNION ALL SELECT n+1 FROM s WHERE n<40) SELECT n, n FROM s;"
    );
    let fixture = Fixture::new(subject.clone(), &schema);
    let other = fixture.open();
    other
        .execute(&format!(
            "PRAGMA writable_schema=1;
             UPDATE sqlite_schema SET sql='CREATE INDEX i ON t(({now}))' WHERE name='i';
             PRAGMA writable_schema=reset;"
        ))
        .expect("the schema is written");
    let connection = fixture.open();
    // A row that is not merged makes the index one of base and overlay.
    connection.execute("INSERT INTO t VALUES(50, 50)").expect("a row");
    if merged && subject.is_concurrent() {
        other.execute("PRAGMA wal_checkpoint").expect("a merge");
        connection
            .execute("INSERT INTO t VALUES(60, 60); DELETE FROM t WHERE a=60")
            .expect("a row");
    }
    for a in (1..=40).step_by(2) {
        connection.execute(&format!("DELETE FROM t WHERE a={a}")).unwrap_or_else(|error| {
            panic!("row {a} of {table} under {now}, merged {merged}: {error:?}")
        });
    }
    let mut left = connection.query("SELECT * FROM t NOT INDEXED ORDER BY a").expect("rows");
    left.extend(
        connection
            .query(&format!("SELECT {now}, a FROM t INDEXED BY i ORDER BY 1, 2"))
            .expect("entries"),
    );
    assert_eq!(left.len(), 42, "21 rows and as many entries");
    left
}

#[test]
fn a_row_is_deleted_whose_index_entry_has_another_value_than_its_expression_has_now() {
    for table in
        ["a INTEGER PRIMARY KEY, b)", "a PRIMARY KEY, b)", "a, b, PRIMARY KEY(a, b)) WITHOUT ROWID"]
    {
        for now in ["b-1000", "b+1000", "(b*7)%40+100"] {
            let expected = deleted_under_other_values(&Subject::stock(), table, now, false);
            for merged in [false, true] {
                let got = deleted_under_other_values(&Subject::plait(), table, now, merged);
                assert_eq!(got, expected, "{table} under {now}, merged {merged}");
            }
        }
    }
}

fn blob_written_by_a_trigger(
    subject: &Subject,
    begin: Begin,
    prepare: &str,
    body: &str,
    on: i64,
) -> Replaced {
    let fixture = Fixture::new(
        subject.clone(),
        &format!(
            "CREATE TABLE filler(x); CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE, data BLOB);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<9) INSERT INTO t SELECT i, i, zeroblob(3000) FROM n;
             CREATE TRIGGER g AFTER DELETE ON t BEGIN SELECT old.u||'' = 'x' COLLATE called; {body}; END"
        ),
    );
    let (connection, _other) = (fixture.open(), fixture.open());
    let handle = Arc::new(Mutex::new(None::<Blob>));
    let written = Arc::new(Mutex::new(Vec::new()));
    let (in_trigger, results) = (handle.clone(), written.clone());
    connection
        .create_called_collation(move || {
            if let Some(blob) = in_trigger.lock().expect("one thread").as_mut() {
                let result = blob.write(2500, &[7; 100]).map_err(|error| error.extended);
                results.lock().expect("one thread").push(result);
            }
        })
        .expect("a collation");
    connection.execute("PRAGMA recursive_triggers=1").expect("a pragma");
    connection.execute(subject.begin(begin)).expect("it begins");
    connection.execute(prepare).expect("what comes before");
    *handle.lock().expect("one thread") =
        Some(connection.open_blob("t", "data", on, true).expect("a blob"));
    let result =
        connection.execute("REPLACE INTO t VALUES(1, 2, 'new')").map_err(|error| error.extended);
    handle.lock().expect("one thread").take();
    let rows = connection
        .query("SELECT * FROM t; SELECT u, id FROM t INDEXED BY sqlite_autoindex_t_1 WHERE u>0; PRAGMA integrity_check")
        .expect("rows");
    connection.execute("COMMIT").expect("a commit");
    let written = written.lock().expect("one thread").clone();
    (result, written, rows)
}

#[test]
fn a_blob_is_written_while_replace_waits_for_its_trigger() {
    for begin in Begin::ALL {
        for (prepare, body, on) in [
            ("", "SELECT 1", 4),
            ("UPDATE t SET data=zeroblob(2999) WHERE id=4", "SELECT 1", 4),
            ("UPDATE t SET data=zeroblob(2999)", "SELECT 1", 3),
            ("", "SELECT 1", 2),
            ("", "INSERT INTO filler VALUES(zeroblob(9000000))", 4),
            ("", "UPDATE t SET u=u WHERE id=5", 4),
            ("UPDATE t SET data=zeroblob(2999)", "DELETE FROM t WHERE id=3", 3),
        ] {
            let run = |subject| blob_written_by_a_trigger(&subject, begin, prepare, body, on);
            let (expected, got) = (run(Subject::stock()), run(Subject::plait()));
            assert_eq!(got.0, expected.0, "{begin:?}, {prepare}; {body}");
            assert_eq!(got.1, expected.1, "{begin:?}, {prepare}; {body}");
            assert!(got.2 == expected.2, "{begin:?}, {prepare}; {body}");
            assert!(!expected.1.is_empty(), "the trigger ran");
        }
    }
}

/// Its cursor stands where a row was looked for that the transaction itself has deleted. That deletion's memory goes with the COMMIT.
#[test]
fn a_select_that_found_nothing_but_a_deletion_outlives_its_transaction() {
    let many = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<130)";
    for table in
        ["t0(k TEXT PRIMARY KEY, v UNIQUE)", "t0(k TEXT PRIMARY KEY, v UNIQUE) WITHOUT ROWID"]
    {
        // Nobody else has ever been here: so a transaction that grows large goes over to SQLite's own path.
        let fixture = Fixture::empty(Subject::plait());
        let connection = fixture.open();
        fixture.subject.convert(&connection).expect("its mode");
        let execute =
            |sql: &str| connection.execute(sql).unwrap_or_else(|e| panic!("{table}, {sql}: {e}"));
        execute(&format!("CREATE TABLE {table}; CREATE TABLE t1(k INT PRIMARY KEY, v)"));
        execute("INSERT INTO t0 VALUES('1.5', replace(hex(zeroblob(2500)), '0', 'q'))");
        execute(&format!("BEGIN IMMEDIATE; INSERT INTO t1 {many} SELECT i, i%9 FROM c"));
        execute("INSERT INTO t0 VALUES('aB', x'42'); DELETE FROM t0 WHERE k>=''");
        let sql = "SELECT k, v FROM t0 WHERE k='1.5' UNION ALL SELECT name, sql FROM sqlite_schema";
        let mut open = connection.prepare(sql).expect("a query");
        assert_eq!(open.step(), Ok(Step::Row));
        execute("INSERT INTO t0 VALUES('3.0', zeroblob(3000)); COMMIT");
        execute(&format!("INSERT INTO t1 {many} SELECT i+1000, i%9 FROM c"));
        while open.step().expect("the other rows") == Step::Row {}
        drop(open);
        assert_eq!(connection.integer("SELECT count(*) FROM t1"), Ok(260));
        assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

/// ROLLBACK TO forgets the schemas of all files when any of them was changed, and these pragmas write without a look at one.
#[test]
fn pragmas_that_write_behind_a_rollback_of_another_files_schema_do_as_in_stock() {
    let pragmas = ["user_version=5", "application_id=5", "schema_version=77", "incremental_vacuum"];
    for begin in Begin::ALL.map(|begin| Subject::plait().begin(begin)) {
        for (table, pragma) in ["temp.q", "x.q"].into_iter().flat_map(|t| pragmas.map(|p| (t, p))) {
            let fixture = Fixture::new(
                Subject::plait(),
                "CREATE TABLE t(a PRIMARY KEY, b); CREATE TABLE w(a PRIMARY KEY, b) WITHOUT ROWID; INSERT INTO t VALUES(1, 1)",
            );
            let connection = fixture.open();
            connection.execute("ATTACH ':memory:' AS x").expect("another file");
            let sql = format!(
                "{begin}; INSERT INTO t VALUES(2, 2); INSERT INTO w VALUES(2, 2); SAVEPOINT s; CREATE TABLE {table}(a);
                 ROLLBACK TO s; PRAGMA {pragma}; COMMIT"
            );
            let done = connection.execute(&sql);
            assert_eq!(done, Ok(()), "{begin}, {table}, {pragma}");
            let rows = "SELECT (SELECT count(*) FROM t) * 10 + (SELECT count(*) FROM w)";
            assert_eq!(connection.integer(rows), Ok(21), "{begin}, {table}, {pragma}");
            assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        }
    }
}

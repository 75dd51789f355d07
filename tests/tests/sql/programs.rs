//! Programs that know nothing of it: Python's module and the SQLite shell, on the library under test.

use plait_tests::actor::Actor;
use plait_tests::paths;
use plait_tests::subject::{Fixture, Subject};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}

const PYTHON: &str = r#"
import sqlite3, sys, threading
path, mode = sys.argv[1], sys.argv[2]
def connect():
    return sqlite3.connect(path, timeout=30, isolation_level="IMMEDIATE")
db = connect()
assert db.execute(f"PRAGMA journal_mode={mode}").fetchone()[0] == mode
db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, who, n)")
db.commit()
def work(who):
    mine = connect()
    for n in range(50):
        with mine:
            mine.execute("INSERT INTO t(who, n) VALUES(?, ?)", (who, n))
    mine.close()
threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(sqlite3.sqlite_version, db.execute("SELECT count(*), count(DISTINCT id) FROM t").fetchone())
db.close()
"#;

#[test]
fn pythons_module_works_on_the_library_by_path_alone() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    let subject = Subject::plait();
    let fixture = Fixture::empty(subject.clone());
    let script = fixture.path("script.py");
    std::fs::write(&script, PYTHON).expect("the script can be written");
    let folder = subject.library.parent().expect("a library lies in a folder");
    let printed = output(
        Command::new("python3")
            .arg(&script)
            .arg(fixture.database())
            .arg(subject.mode.name())
            .env("LD_LIBRARY_PATH", folder),
    );
    let version = subject.library().version();
    assert_eq!(printed.trim(), format!("{version} (400, 400)"));
    let stock = Subject::stock().open(&fixture.database()).expect("stock opens it at rest");
    assert_eq!(stock.integer("SELECT count(*) FROM t"), Ok(400));
}

#[test]
fn the_shell_works_on_a_concurrent_database() {
    if paths::stand_in() {
        eprintln!("skipped: the shell belongs to the library under test");
        return;
    }
    let shell = paths::shell().unwrap_or_else(|error| panic!("{error:#}"));
    let fixture = Fixture::empty(Subject::plait());
    let run = |sql: &str| output(Command::new(&shell).arg(fixture.database()).arg(sql));
    assert_eq!(run("PRAGMA journal_mode=concurrent").trim(), "concurrent");
    run("CREATE TABLE t(a); INSERT INTO t VALUES(1), (2)");
    run("BEGIN CONCURRENT; INSERT INTO t VALUES(3); COMMIT");
    assert_eq!(run("SELECT sum(a) FROM t; PRAGMA journal_mode").trim(), "6\nconcurrent");
    assert!(run("SELECT plait_version()").trim().len() > 2);
    assert!(run("SELECT count(*) > 0 FROM plait_status").contains('1'));
    let refused = Command::new(&shell)
        .arg(fixture.database())
        .args([".dbconfig reset_database on", "VACUUM"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("switch journal_mode=concurrent off"), "{said}");
    assert_eq!(run("SELECT sum(a) FROM t").trim(), "6");
    let dump = run(".dump");
    assert!(dump.contains("INSERT INTO t VALUES(3);"), "{dump}");
    let backup = fixture.path("backup.db");
    run(&format!(".backup {}", backup.display()));
    let stock = Subject::stock().open(&backup).expect("stock opens the backup");
    assert_eq!(stock.integer("SELECT sum(a) FROM t"), Ok(6));
}

/// It shows SQLite a page 1 of its own making, without the mark, and reads pages: all that is committed has to be in them.
#[test]
fn the_shells_recover_reads_a_resting_file_a_backup_and_what_a_session_has_not_merged() {
    if paths::stand_in() {
        eprintln!("skipped: the shell belongs to the library under test");
        return;
    }
    let shell = paths::shell().unwrap_or_else(|error| panic!("{error:#}"));
    let fixture = Fixture::new(Subject::plait(), "CREATE TABLE t(a)");
    let recovered = |path: &Path| {
        let output = Command::new(&shell).arg(path).arg(".recover").output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout).matches("INSERT").count(), text(&output.stderr))
    };
    let connection = fixture.open();
    connection.execute("BEGIN CONCURRENT; INSERT INTO t VALUES(1), (2); COMMIT").expect("rows");
    connection.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES(3)").expect("somebody writes");
    let (rows, said) = recovered(&fixture.database());
    assert_eq!(rows, 0, "nothing is left out in silence");
    assert!(said.contains("error"), "{said}");
    connection.execute("ROLLBACK").expect("nobody writes");
    assert_eq!(recovered(&fixture.database()), (2, String::new()));
    connection.execute("INSERT INTO t VALUES(4)").expect("the session goes on");
    assert_eq!(connection.integer("SELECT sum(a) FROM t"), Ok(7));
    assert_eq!(connection.text("PRAGMA journal_mode").as_deref(), Ok("concurrent"));
    assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));

    let copy = fixture.path("copy.db");
    connection.execute(&format!("VACUUM INTO '{}'", copy.display())).expect("a copy");
    assert_eq!(recovered(&copy), (3, String::new()));
    drop(connection);
    assert_eq!(recovered(&fixture.database()), (3, String::new()));
    let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn the_engines_tables_can_be_asked_by_every_driver() {
    let Some(subject) = plait_tests::subject::real_plait("plait_status") else { return };
    let fixture = Fixture::new(subject, "CREATE TABLE t(a)");
    let connection = fixture.open();
    connection.execute("BEGIN CONCURRENT; INSERT INTO t VALUES(1)").expect("a transaction");
    let status = connection.query("SELECT name, value FROM plait_status").expect("plait_status");
    assert!(status.len() >= 7, "{status:?}");
    let transactions =
        connection.query("SELECT * FROM plait_transactions").expect("plait_transactions");
    assert!(!transactions.is_empty(), "the open transaction is listed");
    connection.query("SELECT * FROM plait_conflicts").expect("plait_conflicts");
    connection.execute("COMMIT").expect("it commits");
    assert!(!connection.text("SELECT plait_version()").expect("plait_version").is_empty());
}

/// Names that a library exports, by `nm`; `None` when there is no `nm`.
/// Some compare the whole text, to repeat what was refused.
#[test]
fn programs_that_ask_for_wal_are_told_that_it_is_locked_in_sqlites_own_words() {
    let refused = |subject: &Subject, environment: &[(&str, &str)], mode: &str| {
        let fixture = Fixture::empty(subject.clone());
        let start = |name| {
            let mut actor = Actor::in_process_with(name, subject, environment);
            actor.open(&fixture.database()).expect("it opens");
            assert_eq!(actor.ok("PRAGMA journal_mode=wal"), [[mode.into()]]);
            actor.busy_timeout(Duration::ZERO);
            actor
        };
        let (mut one, mut other) = (start("one"), start("other"));
        one.ok("CREATE TABLE t(id INTEGER PRIMARY KEY, n); INSERT INTO t VALUES(1, 0)");
        other.ok("BEGIN; SELECT * FROM t");
        one.ok("UPDATE t SET n=1");
        let mut refused = vec![other.run("UPDATE t SET n=2")];
        other.ok("ROLLBACK");
        one.ok("BEGIN IMMEDIATE");
        for sql in [
            "BEGIN IMMEDIATE",
            "BEGIN EXCLUSIVE",
            "INSERT INTO t(n) VALUES(2)",
            "CREATE TABLE u(a)",
            "PRAGMA user_version=7",
            "VACUUM",
        ] {
            refused.push(other.run(sql));
        }
        one.ok("COMMIT");
        let errors = refused.into_iter().map(|reply| reply.error.expect("it is refused"));
        let said = errors.map(|error| (error.extended, error.message)).collect::<Vec<_>>();
        one.close().expect("closing works");
        other.close().expect("closing works");
        said
    };
    let environment = [("PLAIT_JOURNAL_MODE", "concurrent"), ("PLAIT_BUSY_SNAPSHOT", "snapshot")];
    let own = refused(&Subject::plait(), &environment, "concurrent");
    assert_eq!(own, refused(&Subject::stock(), &[], "wal"));
    assert!(own.iter().all(|(_, message)| message == "database is locked"), "{own:?}");
}

fn exports(library: &Path) -> Option<BTreeSet<String>> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = |line: &str| {
        line.split_whitespace().last().map(|name| name.split('@').next().unwrap_or(name).to_owned())
    };
    Some(text.lines().filter_map(name).collect())
}

#[test]
fn the_library_exports_what_stock_exports_and_only_its_own_names_beside() {
    let (Some(stock), Some(plait)) =
        (exports(&Subject::stock().library), exports(&Subject::plait().library))
    else {
        eprintln!("skipped: nm is not installed");
        return;
    };
    let families = [
        "sqlite3_",
        "sqlite3session_",
        "sqlite3changeset_",
        "sqlite3changegroup_",
        "sqlite3rebaser_",
    ];
    let is_interface = |name: &&String| families.iter().any(|family| name.starts_with(family));
    let missing: Vec<_> =
        stock.iter().filter(is_interface).filter(|name| !plait.contains(*name)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    if paths::stand_in() {
        return;
    }
    let foreign: Vec<_> =
        plait.iter().filter(|name| !is_interface(name) && !name.starts_with("plait_")).collect();
    assert!(foreign.is_empty(), "exported beside the interface: {foreign:?}");
}

#[test]
fn both_libraries_are_built_alike() {
    let (stock, plait) = (Subject::stock().library(), Subject::plait().library());
    assert_eq!(stock.version(), plait.version());
    let options = |library: &plait_tests::sqlite::Library| -> BTreeSet<String> {
        library
            .compile_options()
            .into_iter()
            .filter(|option| !option.starts_with("COMPILER"))
            .collect()
    };
    assert_eq!(options(&stock), options(&plait));
}

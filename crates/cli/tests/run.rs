//! `plait run`: real programs, compiled here or found on the machine.

mod plait;

use std::path::{Path, PathBuf};
use std::process::Command;

use plait::{Dist, Ran, command, executable, finish};

const PROGRAM: &str = r#"
#include <stdio.h>
extern const char *sqlite3_libversion(void);
extern const char *plait_version(void) __attribute__((weak));
int main(void){ printf("%s %s\n", sqlite3_libversion(), plait_version ? "plait" : "stock"); return 7; }
"#;

/// Compiles a program; `None`, with a word about it, where that does not work.
fn compiled(directory: &Path, name: &str, arguments: &[&str]) -> Option<PathBuf> {
    let (source, program) = (directory.join("program.c"), directory.join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let made = Command::new(compiler).arg(&source).arg("-o").arg(&program).args(arguments).output();
    match made {
        Ok(made) if made.status.success() => Some(program),
        other => {
            eprintln!("skipped: cannot compile with {arguments:?}: {other:?}");
            None
        }
    }
}

fn run(dist: &Dist, program: &Path) -> Ran {
    finish(dist.command(&["run", "--"]).arg(program))
}

#[test]
fn a_program_that_loads_sqlite_gets_ours_and_keeps_its_exit_code() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let stock = dist.path("stock/lib/libsqlite3.so.0");
    // With a search path of its own, which LD_LIBRARY_PATH alone would lose against.
    let rpath = format!("-Wl,--disable-new-dtags,-rpath,{}", stock.parent().unwrap().display());
    let Some(program) = compiled(dir.path(), "dynamic", &[stock.to_str().unwrap(), &rpath]) else {
        return;
    };
    let plain = finish(&mut Command::new(&program));
    assert!(plain.out.ends_with("stock\n"), "{plain:?}");
    let ran = run(&dist, &program);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.out.ends_with("plait\n"), "{ran:?}");
    let warnings = ran.err.matches("warning:").count();
    assert_eq!(warnings, 1, "it has opened no database: {ran:?}");
}

#[test]
fn a_program_that_opened_no_database_is_named_when_it_has_ended() {
    let Some(dist) = Dist::find() else { return };
    let said = "no database was opened through Plait";
    let script = "trap 'exit 5' TERM; kill -TERM $$; sleep 30 & wait";
    let ran =
        finish(&mut dist.command(&["run", "sh", "-c", script])).says(&["/sh has ended", said]);
    assert_eq!(ran.code, 5, "signals and the exit code are its own: {ran:?}");
    assert_eq!(finish(&mut dist.command(&["run", "--quiet", "true"])).done().err, "");
    let dir = tempfile::tempdir().unwrap();
    let mut in_child = dist.command(&["run", "sh", "-c"]);
    let shell =
        format!("{} a.db 'SELECT * FROM sqlite_schema'; wait", dist.path("bin/sqlite3").display());
    let ran = finish(in_child.arg(shell).current_dir(dir.path())).done();
    assert_eq!(ran.err, "", "a program that it started has opened one");
    let mut away = dist.command(&["run", "true"]);
    finish(away.env("TMPDIR", dir.path())).done();
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["a.db"], "the report is removed");
}

#[test]
fn events_go_to_standard_error_and_nobody_has_to_read_it() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let sql = "PRAGMA journal_mode=concurrent; CREATE TABLE t(a); INSERT INTO t VALUES(1)";
    let shell = || {
        let mut shell = Command::new(dist.path("bin/sqlite3"));
        shell.env("PLAIT_JOIN", "always").env("PLAIT_EVENTS", "stderr");
        shell.arg(dir.path().join("app.db")).arg(sql);
        shell
    };
    let ran = finish(&mut shell()).done();
    assert_eq!(ran.err.lines().filter(|line| line.contains("\"event\":")).count(), 2, "{ran:?}");
    let (unread, closed) = std::io::pipe().unwrap();
    drop(unread);
    let sql_again = "INSERT INTO t VALUES(2); SELECT count(*) FROM t";
    let mut again = Command::new(dist.path("bin/sqlite3"));
    again.env("PLAIT_JOIN", "always").env("PLAIT_EVENTS", "stderr").stderr(closed);
    let output = again.arg(dir.path().join("app.db")).arg(sql_again).output().unwrap();
    assert!(output.status.success(), "a signal has ended it: {output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n");
}

#[test]
fn a_mistyped_variable_is_refused_and_the_library_tells_of_it() {
    let Some(dist) = Dist::find() else { return };
    let mistyped = [
        ("PLAIT_JOURNAL_MODE", "concurent"),
        ("PLAIT_BEGIN", "concurent"),
        ("PLAIT_BUSY_SNAPSHOT", "yes"),
        ("PLAIT_JOIN", "allways"),
        ("PLAIT_EVENTS", "stdout"),
    ];
    for (variable, value) in mistyped {
        let ran = finish(dist.command(&["run", "echo", "started"]).env(variable, value));
        let ran = ran.says(&[&format!("{variable}={value} is n"), "unset the variable"]);
        assert_eq!((ran.code, &*ran.out), (2, ""), "{ran:?}");
    }
    for (variable, value) in [("PLAIT_BEGIN", "IMMEDIATE"), ("PLAIT_JOIN", "Always")] {
        finish(dist.command(&["run", "true"]).env(variable, value)).done();
    }
    let dir = tempfile::tempdir().unwrap();
    let asks = |value: &str| {
        let mut shell = Command::new(dist.path("bin/sqlite3"));
        shell.env("PLAIT_BEGIN", value).arg(dir.path().join("app.db"));
        shell.args([
            ".log stderr",
            "PRAGMA journal_mode=concurrent; PRAGMA plait_begin; BEGIN; COMMIT",
        ]);
        finish(&mut shell).done()
    };
    let known = asks("Immediate");
    assert_eq!((&*known.out, &*known.err), ("concurrent\nimmediate\n", ""));
    let unknown = asks("concurent").says(&["PLAIT_BEGIN=concurent is none of its values"]);
    assert_eq!(unknown.out, "concurrent\ndeferred\n");
    assert_eq!(unknown.err.matches("PLAIT_BEGIN").count(), 1, "told once: {unknown:?}");
}

#[test]
fn a_child_that_brings_its_own_sqlite_is_warned_about() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let archive = dist.path("lib/libsqlite3.a");
    let libraries = [archive.to_str().unwrap(), "-lgcc_s", "-lpthread", "-ldl", "-lm"];
    let Some(program) = compiled(dir.path(), "inside", &libraries) else { return };
    let script = format!("{}; exit 3", program.display());
    let ran = finish(&mut dist.command(&["run", "sh", "-c", &script]));
    let ran = ran.says(&["/inside brings its own SQLite", "ignored without a word"]);
    assert_eq!(ran.code, 3, "{ran:?}");
}

#[test]
fn a_program_with_sqlite_inside_is_warned_about_and_started() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let archive = dist.path("lib/libsqlite3.a");
    let libraries = [archive.to_str().unwrap(), "-lgcc_s", "-lpthread", "-ldl", "-lm"];
    let Some(program) = compiled(dir.path(), "inside", &libraries) else { return };
    let ran = run(&dist, &program).says(&[
        "warning:",
        "brings its own SQLite (of 20",
        "ignored without a word",
    ]);
    assert_eq!(ran.code, 7, "{ran:?}");

    let stripped = [&libraries[..], &["-s"]].concat();
    let Some(program) = compiled(dir.path(), "stripped", &stripped) else { return };
    run(&dist, &program).says(&["brings its own SQLite (of 20"]);
    let quiet = finish(dist.command(&["run", "--quiet"]).arg(&program));
    assert_eq!((quiet.code, quiet.err.as_str()), (7, ""));
}

#[test]
fn a_static_program_is_warned_about() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source =
        ["-static", "-Dsqlite3_libversion=version", "-Wno-all", "-Wl,--defsym=version=main"];
    let Some(program) = compiled(dir.path(), "static", &source) else { return };
    finish(dist.command(&["run"]).arg(&program))
        .says(&["statically linked", "ignored without a word"]);
}

#[test]
fn a_program_for_another_processor_or_another_c_library_is_told_which() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let stock = dist.path("stock/lib/libsqlite3.so.0");
    let (other, linker) = if cfg!(target_env = "musl") {
        ("glibc", "/no/such/ld-linux-x86-64.so.2")
    } else {
        ("musl", "/no/such/ld-musl-x86_64.so.1")
    };
    let flag = format!("-Wl,--dynamic-linker={linker}");
    let Some(program) = compiled(dir.path(), "program", &[stock.to_str().unwrap(), &flag]) else {
        return;
    };
    run(&dist, &program).says(&[
        &format!("/program was built for {other} ({linker}), and this Plait for "),
        &format!("use Plait's package for {other}"),
    ]);
    // The field of the header that names the processor: RISC-V, on which Plait does not run.
    let mut bytes = std::fs::read(&program).unwrap();
    bytes[18..20].copy_from_slice(&243u16.to_le_bytes());
    let another = dir.path().join("for_another");
    executable(&another, &bytes);
    run(&dist, &another).says(&[
        "/for_another was built for riscv64, and Plait's library for ",
        "the loader leaves it out",
        "a build of the program for this processor",
    ]);
}

#[test]
fn a_program_behind_a_link_is_warned_about_once() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let archive = dist.path("lib/libsqlite3.a");
    let libraries = [archive.to_str().unwrap(), "-lgcc_s", "-lpthread", "-ldl", "-lm"];
    let Some(program) = compiled(dir.path(), "inside", &libraries) else { return };
    let link = dir.path().join("linked");
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let ran = run(&dist, &link);
    assert_eq!(ran.err.matches("brings its own SQLite").count(), 1, "{ran:?}");
}

#[test]
fn a_script_is_followed_to_its_interpreter() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let archive = dist.path("lib/libsqlite3.a");
    let libraries = [archive.to_str().unwrap(), "-lgcc_s", "-lpthread", "-ldl", "-lm"];
    let Some(program) = compiled(dir.path(), "interpreter", &libraries) else { return };
    let script = dir.path().join("script");
    executable(&script, format!("#!{}\n", program.display()).as_bytes());
    run(&dist, &script).says(&["interpreter", "brings its own SQLite"]);
}

#[test]
fn the_environment_is_passed_on_with_ours_in_front() {
    let Some(dist) = Dist::find() else { return };
    let mut command =
        dist.command(&["run", "-q", "sh", "-c", "echo $LD_LIBRARY_PATH; echo $LD_PRELOAD"]);
    let ran = finish(command.env("LD_LIBRARY_PATH", "/elsewhere")).done();
    let lib = dist.path("lib");
    assert_eq!(ran.out, format!("{0}:/elsewhere\n{0}/libsqlite3.so.0\n", lib.display()));
    assert_eq!(ran.err, "");
}

#[test]
fn python_runs_on_our_library() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("app.py");
    let text = "#!/usr/bin/env python3\nimport sqlite3, sys\n\
                c = sqlite3.connect('a.db')\n\
                print(c.execute('SELECT plait_version()').fetchone()[0], sys.argv[1:])\n";
    executable(&script, text.as_bytes());
    let has_module = Command::new("python3").args(["-c", "import sqlite3"]).output();
    if !has_module.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: there is no python3 with sqlite3");
        return;
    }
    let ran =
        finish(dist.command(&["run", "./app.py", "--flag", "x"]).current_dir(dir.path())).done();
    assert!(ran.out.contains("['--flag', 'x']"), "{ran:?}");
    assert_eq!(ran.err, "");
}

#[test]
fn a_program_that_asks_for_wal_gets_concurrent_mode_where_that_is_possible() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let shell = dist.path("bin/sqlite3");
    let runs = |options: &[&str], database: &str, sql: &str| {
        let mut command = dist.command(&["run"]);
        let command = command.args(options).arg("--").arg(&shell).args(["-bail", database, sql]);
        finish(command.current_dir(dir.path())).done().out
    };
    let ask = "PRAGMA journal_mode=wal; CREATE TABLE IF NOT EXISTS t(x); INSERT INTO t VALUES(1);
        PRAGMA journal_mode; SELECT count(*) FROM t";
    assert_eq!(runs(&[], "a.db", ask), "wal\nwal\n1\n");
    let (on, out) = (&["--concurrent"][..], "concurrent\nconcurrent\n");
    assert_eq!(runs(on, "a.db", ask), format!("{out}2\n"), "a WAL database");
    assert_eq!(runs(&[], "a.db", ask), format!("{out}3\n"), "the file remembers it");
    assert_eq!(runs(on, "new.db", ask), format!("{out}1\n"), "a new database");
    let silent = "CREATE TABLE t(x); PRAGMA journal_mode";
    assert_eq!(runs(on, "silent.db", silent), "delete\n", "it does not ask");
    assert_eq!(runs(on, ":memory:", ask), "memory\nmemory\n1\n");
    let exclusive = format!("PRAGMA locking_mode=exclusive; {ask}");
    assert_eq!(runs(on, "exclusive.db", &exclusive), "exclusive\nwal\nwal\n1\n");
    let inside = "CREATE TABLE u(x); BEGIN; SELECT * FROM u; PRAGMA journal_mode=wal";
    let mut stock = dist.command(&["run", "--concurrent", "--"]);
    let stock = stock.arg(&shell).args(["-bail", "inside.db", inside]).current_dir(dir.path());
    finish(stock).says(&["cannot change into wal mode from within a transaction"]);
}

#[test]
fn the_variable_that_makes_wal_concurrent_does_not_mislead_disable() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("a.db");
    dist.ours(&database, "PRAGMA journal_mode=concurrent; CREATE TABLE t(x)").done();
    let disable = |to: &str| {
        let mut command = dist.command(&["disable", "--to", to]);
        finish(command.arg(&database).env("PLAIT_JOURNAL_MODE", "concurrent"))
    };
    let refused = disable("wal").says(&["PLAIT_JOURNAL_MODE", "unset"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    disable("delete").done();
    assert_eq!(dist.stock(&database, "PRAGMA journal_mode").done().out, "delete\n");
}

#[test]
fn what_cannot_be_started_is_told() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    finish(&mut dist.command(&["run", "no-such-program"]))
        .failed()
        .says(&["no-such-program", "search path"]);
    finish(&mut dist.command(&["run", "./no/such"])).failed().says(&["./no/such"]);
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "text").unwrap();
    run(&dist, &plain).failed().says(&["not executable", "chmod +x"]);
}

#[test]
fn a_missing_or_foreign_library_is_told() {
    finish(command(&["run", "true"]).env("PLAIT_LIB", "/no/such/dir"))
        .failed()
        .says(&["/no/such/dir", "make dist"]);
    let Some(dist) = Dist::find() else { return };
    finish(command(&["run", "true"]).env("PLAIT_LIB", dist.path("stock/lib")))
        .failed()
        .says(&["not Plait's library"]);
}

#[test]
fn a_program_that_writes_a_database_which_was_never_enabled_is_told_how_once_in_one_line() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let shell = dist.path("bin/sqlite3").display().to_string();
    let run = |options: &[&str], script: &str| {
        let script = script.replace("sqlite3", &shell);
        let mut command = dist.command(&["run"]);
        finish(command.args(options).args(["sh", "-c", &script]).current_dir(dir.path()))
    };
    let write = "sqlite3 a.db 'CREATE TABLE IF NOT EXISTS t(x); INSERT INTO t VALUES(1)'";
    let told = |ran: &Ran| ran.err.lines().filter(|line| line.starts_with("note: ")).count();
    let real = dir.path().canonicalize().unwrap();
    for mode in ["delete", "wal"] {
        dist.ours(&dir.path().join("a.db"), &format!("PRAGMA journal_mode={mode}")).done();
        let ran = run(&[], &format!("{write}; {write}; exit 4"));
        assert_eq!((ran.code, told(&ran)), (4, 1), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
        let command = format!(
            "in journal mode {mode}, where one writes at a time; for many writers: plait enable {}/a.db",
            real.display()
        );
        ran.says(&[&command]);
    }
    for (quiet, script) in [
        ("who only reads", "sqlite3 a.db 'SELECT * FROM t'".to_owned()),
        ("who has removed it", format!("{write}; rm a.db*")),
        ("in memory", "sqlite3 :memory: 'CREATE TABLE t(x)'".to_owned()),
        (
            "a temporary table",
            "sqlite3 a.db 'CREATE TEMP TABLE u(x); INSERT INTO u VALUES(1)'".to_owned(),
        ),
    ] {
        assert_eq!(run(&[], &script).err, "", "{quiet}");
    }
    assert_eq!(run(&["--quiet"], write).err, "");
    finish(dist.command(&["enable", "a.db"]).current_dir(dir.path())).done();
    assert_eq!(run(&[], write).err, "", "it is enabled");
    let other = "sqlite3 b.db 'CREATE TABLE t(x)'";
    assert_eq!(run(&[], &format!("{write}; {other}")).err, "", "somebody knows of the mode");
    assert_eq!(told(&run(&[], other.replace("b.db", "c.db").as_str())), 1);
}

#[test]
fn a_script_whose_interpreter_is_missing_is_told_its_name() {
    let Some(dist) = Dist::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    plait::executable(&script, b"#!/no/such/python3\n");
    let ran = finish(&mut dist.command(&["run", "--", script.to_str().unwrap()]));
    ran.failed().says(&["the first line of", "names /no/such/python3, which is not there"]);
}

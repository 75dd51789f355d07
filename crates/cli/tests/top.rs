//! `plait top`, on a terminal and without one.

mod plait;
mod terminal;

use std::time::Duration;

use plait::{Scene, command, finish};
use terminal::Terminal;

/// Clears the screen: what would flicker.
const CLEAR: &str = "\x1b[2J";

fn watch(scene: &Scene, rows: u16, columns: u16) -> Terminal {
    let mut top = command(&["top", "--interval", "0.2", "app.db"]);
    Terminal::with(top.current_dir(scene.folder()), rows, columns)
}

#[test]
fn transactions_and_what_they_wait_for_are_shown_and_keys_are_heard() {
    let Some(scene) = Scene::concurrent() else { return };
    let (mut holder, mut waiter, mut reader) = (scene.shell(), scene.shell(), scene.shell());
    holder.run("BEGIN IMMEDIATE; INSERT INTO t VALUES(2, 20);");
    reader.run("BEGIN; SELECT count(*) FROM t;");
    let mut top = watch(&scene, 24, 80);
    std::thread::scope(|scope| {
        scope.spawn(|| waiter.run(".timeout 60000\nBEGIN IMMEDIATE;\nCOMMIT;"));
        let writer = format!("queued     writer {} (sqlite3)", holder.pid());
        top.shows(&[
            "3 processes, 3 connections",
            "waiting 1 writer",
            "queued",
            &writer,
            "sqlite3 -batch",
        ]);
        top.shows(&["reading", "writing", "commits/s 0.0", "sort: age", "every 0.2 s"]);
        top.press("s");
        top.shows(&["sort: pid"]);
        top.press("+");
        top.shows(&["every 0.5 s"]);
        top.press("--");
        top.shows(&["every 0.1 s"]);
        top.press("p");
        top.shows(&["PAUSED"]);
        holder.run("COMMIT;");
        std::thread::sleep(Duration::from_millis(500));
        assert!(top.text().contains("waiting 1 writer"), "paused:\n{}", top.text());
        top.press("p");
        top.shows(&["waiting 0 writers"]);
    });
    top.loses("queued");
    reader.run("COMMIT;");
    top.shows(&["no transaction is open"]);
    let cleared = top.sent(CLEAR);
    for _ in 0..5 {
        holder.run("INSERT INTO t(n) VALUES(1);");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(top.sent(CLEAR), cleared, "nothing flickers");
    top.press("q");
    assert_eq!(top.ends(), 0);
    holder.close();
    waiter.close();
    reader.close();
}

#[test]
fn sessions_that_end_and_begin_and_a_file_that_goes_and_comes_are_shown() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut top = watch(&scene, 24, 80);
    top.shows(&["at rest", "nobody has it open"]);
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    top.shows(&["a session has begun", "1 process, 1 connection", "in all 1 commits"]);
    shell.close();
    top.shows(&["the session has ended", "at rest"]);
    assert_eq!(scene.contents().len(), 1, "nothing is kept open");
    assert_eq!(scene.stock("SELECT count(*) FROM t").done().out, "2\n");
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(3, 30); BEGIN IMMEDIATE;");
    top.shows(&["a session has begun", "writing"]);
    shell.kill();
    top.shows(&["left by programs that were killed"]);
    scene.plait(&["recover"]).done();
    top.shows(&["at rest"]);
    let aside = scene.folder().join("aside.db");
    std::fs::rename(&scene.path, &aside).unwrap();
    top.shows(&["no such file", "check the path"]);
    std::fs::write(&scene.path, [7; 5000]).unwrap();
    top.shows(&["not an SQLite database"]);
    std::fs::rename(&aside, &scene.path).unwrap();
    top.shows(&["at rest"]);
    top.press("\x03");
    assert_eq!(top.ends(), 0);
}

#[test]
fn a_process_that_is_killed_beside_others_leaves_the_list() {
    let Some(scene) = Scene::concurrent() else { return };
    let (mut dies, mut lives) = (scene.shell(), scene.shell());
    dies.run("BEGIN IMMEDIATE; INSERT INTO t VALUES(2, 20);");
    lives.run("SELECT count(*) FROM t;");
    let mut top = watch(&scene, 24, 80);
    top.shows(&["2 processes", "writing"]);
    dies.kill();
    top.shows(&["1 process,", "no transaction is open"]);
    lives.run("INSERT INTO t VALUES(3, 30);");
    top.shows(&["died 1 process"]);
    top.press("q");
    assert_eq!(top.ends(), 0);
    lives.close();
}

#[test]
fn the_terminal_is_given_back_at_a_signal() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut top = watch(&scene, 24, 80);
        top.shows(&["1 process", "q quit"]);
        top.signal(signal);
        assert_eq!(top.ends(), 0, "signal {signal}");
    }
    shell.close();
}

#[test]
fn small_terminals_and_other_sizes_will_do() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20); BEGIN; SELECT count(*) FROM t;");
    let mut top = watch(&scene, 8, 40);
    top.shows(&["commits/s", "PID", "reading", "q quit"]);
    top.resize(30, 120);
    top.shows(&["in all 1 commits", "sqlite3 -batch"]);
    top.resize(2, 10);
    top.loses("PID");
    top.resize(24, 80);
    top.shows(&["PID", "reading"]);
    top.press("q");
    assert_eq!(top.ends(), 0);
    shell.close();
}

#[test]
fn without_a_terminal_it_prints_one_look() {
    let Some(scene) = Scene::concurrent() else { return };
    scene.plait(&["top"]).done().says(&["app.db: concurrent mode, at rest"]);
    let before = scene.contents();
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20); BEGIN; SELECT count(*) FROM t;");
    let ran = scene.plait(&["top", "--interval", "0.2"]).done();
    assert!(!ran.out.contains('\x1b') && ran.err.is_empty(), "{ran:?}");
    ran.says(&[
        "1 process, 1 connection",
        "commits/s     0.0",
        "reading",
        &shell.pid().to_string(),
    ]);
    shell.close();
    assert_eq!(scene.contents().len(), before.len());
    scene.plait(&["top", "--once"]).done().says(&["at rest"]);
    let mut once = command(&["top", "--once", "app.db"]);
    let mut on_terminal = Terminal::with(once.current_dir(scene.folder()), 24, 80);
    assert_eq!(on_terminal.ends(), 0);
    on_terminal.shows(&["at rest"]);

    finish(&mut command(&["top", "/no/such/app.db"])).failed().says(&["check the path"]);
    let ran = scene.plait(&["top", "--interval", "0"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

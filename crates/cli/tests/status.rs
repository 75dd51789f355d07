//! `plait status`.

mod plait;

use plait::{Scene, command};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn a_database_that_nobody_has_open_is_only_looked_at() {
    let Some(scene) = Scene::killed(3) else { return };
    let before = scene.contents();
    scene.plait(&["status"]).done().says(&["left by programs that were killed"]);
    scene.remove("-plait-shm");
    scene.plait(&["status"]).done().says(&["3 commits in the log"]);
    assert_eq!(scene.contents().len(), before.len() - 1);
    scene.plait(&["recover"]).done();
    scene.plait(&["status"]).done().says(&["concurrent mode, at rest"]);
    scene.plait(&["disable"]).done();
    scene.plait(&["status"]).done().says(&["in mode wal", "plait enable"]);
}

#[test]
fn users_and_their_transactions_are_shown() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20); BEGIN IMMEDIATE; INSERT INTO t VALUES(3, 30);");
    let person = format!("{} (sqlite3)", shell.pid());
    scene.plait(&["status"]).done().says(&[
        "open in process",
        &person,
        "1 connection",
        "Transactions",
        "writing",
    ]);
    shell.run("COMMIT;");
    shell.close();
}

#[test]
fn a_row_that_many_conflicts_are_on_is_named_with_what_avoids_them() {
    let Some(scene) = Scene::concurrent() else { return };
    let (mut loser, mut winner) = (scene.shell(), scene.shell());
    loser.run(".bail off");
    for _ in 0..4 {
        assert!(!scene.plait(&["status"]).done().out.contains("hot row"));
        loser.run("BEGIN; SELECT n FROM t WHERE id=1;");
        winner.run("UPDATE t SET n=n+1 WHERE id=1;");
        loser.run("UPDATE t SET n=n+1 WHERE id=1;");
        loser.run("ROLLBACK;");
    }
    let hot = r#"table "t", rowid 1: 4 of the last 4 conflicts; BEGIN IMMEDIATE avoids this"#;
    scene.plait(&["status"]).done().says(&["hot row", hot]);
    loser.close();
    winner.close();
}

#[test]
fn json_has_the_numbers_and_the_rows() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20); BEGIN; SELECT * FROM t;");
    let said = scene.plait(&["status", "--json"]).done();
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["mode"], "concurrent");
    assert_eq!(json["in_use"], true);
    assert_eq!(json["processes"][0], shell.pid());
    assert!(json["status"]["commits"].as_i64() >= Some(1), "{json}");
    assert_eq!(json["transactions"][0]["pid"], shell.pid(), "{json}");
    assert_eq!(json["transactions"][0]["state"], "reading");
    shell.close();
    let said = scene.plait(&["status", "--json"]).done();
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&json["in_use"], &json["fenced"]), (&false.into(), &false.into()));
}

#[test]
fn watching_goes_on_and_keeps_nothing_open() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    let mut watching = command(&["status", "app.db", "--watch", "--interval", "0.1", "--json"])
        .current_dir(scene.folder())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut in_use = || {
        let line = lines.next().unwrap().unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["in_use"] == true
    };
    assert!(in_use() && in_use());
    shell.close();
    while in_use() {}
    assert_eq!(
        scene.stock("SELECT count(*) FROM t").done().out,
        "2\n",
        "at rest while it is watched"
    );
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn a_connection_that_works_alone_is_told() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.lone_shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    let alone = ["without a session", "1 commit in its WAL", "one program has it open, alone"];
    let idle = scene.plait(&["status"]).done().says(&alone);
    assert!(!idle.out.contains("writes"), "{idle:?}");
    let said = scene.plait(&["status", "--json"]).done();
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&json["in_use"], &json["fenced"]), (&true.into(), &false.into()));
    assert_eq!((&json["writer"], &json["wal_commits"]), (&serde_json::Value::Null, &1.into()));
    assert!(!scene.beside("-plait-shm").exists(), "looking begins no session");
    shell.close();
    scene.plait(&["status"]).done().says(&["at rest", "nobody has it open"]);
}

#[test]
fn a_lone_writer_is_named_also_beside_a_program_that_only_has_it_open() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut writer = scene.lone_shell();
    writer.run("BEGIN IMMEDIATE; INSERT INTO t VALUES(2, 20);");
    let writes = format!("process {} (sqlite3) writes", writer.pid());
    scene.plait(&["status"]).done().says(&[&writes, "one program has it open, alone"]);
    let idle = std::fs::File::open(&scene.path).unwrap();
    let mut sleeper =
        std::process::Command::new("sleep").arg("600").stdin(idle).spawn().expect("it is there");
    let both = scene.plait(&["status"]).done().says(&[&writes, "open in processes"]);
    assert!(!both.out.contains("alone"), "{both:?}");
    let said = scene.plait(&["status", "--json"]).done();
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["writer"], writer.pid());
    scene.plait(&["doctor"]).says(&["is in a transaction that writes"]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    writer.run("COMMIT;");
    let after = scene.plait(&["status"]).done();
    assert!(!after.out.contains("writes"), "{after:?}");
    writer.close();
}

#[test]
fn pages_of_a_transaction_over_several_files_are_listed_while_they_are_there() {
    let Some(scene) = Scene::killed(1) else { return };
    let pages = scene.beside("-plait-pages");
    let words = "4.9 KiB of a transaction over several files, in -plait-pages";
    std::fs::write(&pages, [&b"PlaitPgs"[..], &[0; 4992]].concat()).unwrap();
    let killed = scene.plait(&["status"]).done().says(&["left by programs", words]);
    assert_eq!(killed.out.matches("pages").count(), 2, "{killed:?}");
    let mut shell = scene.shell();
    shell.run("SELECT count(*) FROM t;");
    scene.plait(&["status"]).done().says(&["open in process", words]);
    let said = scene.plait(&["status", "--json"]).done();
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["prepared_pages_bytes"], 5000, "{json}");
    shell.close();
    assert!(!pages.exists(), "the last to close removes what nobody needs");
    let said = scene.plait(&["status"]).done();
    assert!(!said.out.contains("pages"), "{said:?}");
}

#[test]
fn an_empty_file_beside_a_log_is_told_as_what_it_is() {
    let Some(scene) = Scene::killed(2) else { return };
    std::fs::write(&scene.path, []).unwrap();
    let before = scene.contents();
    let ran =
        scene.plait(&["status"]).done().says(&["the file is empty", "makes a new, empty database"]);
    assert!(!ran.out.contains("cannot be opened"), "{ran:?}");
    assert_eq!(scene.contents(), before);
    let Some(scene) = Scene::empty() else { return };
    std::fs::write(&scene.path, []).unwrap();
    scene.plait(&["status"]).done().says(&["in mode delete", "plait enable app.db"]);
}

#[test]
fn who_has_a_session_s_file_open_and_is_no_member_is_named() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut member = scene.shell();
    member.run("INSERT INTO t VALUES(2, 20); SELECT count(*) FROM t;");
    let file = std::fs::File::open(&scene.path).unwrap();
    let mut other = std::process::Command::new("sleep").arg("60").stdin(file).spawn().unwrap();
    let person = format!("; outside of the session open in process {} (sleep)", other.id());
    scene.plait(&["status"]).done().says(&[&person]);
    let said = scene.plait(&["status", "--json"]).done();
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["openers"], serde_json::json!([other.id()]));
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(!scene.plait(&["status"]).done().out.contains("outside of the session"));
}

#[test]
fn programs_on_another_sqlite_are_named() {
    for mode in ["delete", "wal", "concurrent"] {
        let Some(scene) = Scene::empty() else { return };
        scene.ours(&format!("PRAGMA journal_mode={mode}; CREATE TABLE t(x)")).done();
        let file = std::fs::File::open(&scene.path).unwrap();
        let mut other = std::process::Command::new("sleep").arg("60").stdin(file).spawn().unwrap();
        let person = format!("open in process {} (sleep)", other.id());
        let ran = scene.plait(&["status"]).done().says(&[&person]);
        assert!(!ran.out.contains("nobody"), "{ran:?}");
        let said = scene.plait(&["status", "--json"]).done();
        let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!((&json["in_use"], &json["openers"][0]), (&true.into(), &other.id().into()));
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

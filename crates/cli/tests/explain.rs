//! `plait explain`: what the library, the command and the log of events say, looked up by its words.

mod plait;

use plait::{Scene, command, finish};

#[test]
fn a_message_of_the_library_is_explained_as_it_was_printed() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("BEGIN IMMEDIATE; INSERT INTO t(n) VALUES(20);");
    let refused = scene.ours("INSERT INTO t(n) VALUES(30)");
    assert!(refused.err.contains("holds the writer's right"), "{refused:?}");
    finish(&mut command(&["explain", refused.err.trim()])).done().says(&[
        "Others are at work (SQLITE_BUSY)",
        "cause: one transaction writes longer",
        "do: ",
    ]);
}

#[test]
fn codes_events_alerts_and_parts_of_messages_are_explained() {
    let explained = |words: &[&str]| finish(&mut command(&[&["explain"], words].concat())).done();
    explained(&["SQLITE_CANTOPEN"]).says(&["The database is not opened (SQLITE_CANTOPEN)"]);
    explained(&["checkpoint-starved"]).says(&["Events", "a transaction reads for long"]);
    explained(&["PlaitWalNearLimit"]).says(&["Alerts", "plait_wal_limit"]);
    explained(&["was", "removed,", "renamed,"]).says(&["restored from shared memory"]);
    let page = explained(&[]);
    assert_eq!(page.out, include_str!("../../../docs/runbook.md"));
}

#[test]
fn what_no_row_is_about_is_a_failure_that_says_what_to_do() {
    finish(&mut command(&["explain", "no message of anybody"])).failed().says(&["plait explain"]);
}

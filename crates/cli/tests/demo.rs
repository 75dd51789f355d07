//! `plait demo`, short.

mod plait;

use std::io::Write;
use std::process::Stdio;

use plait::{Dist, command, finish};

#[test]
fn a_short_demo_is_verified_and_fits_100_columns() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let args = ["demo", "--seconds", "0.1", "--writers", "1,3", "--dir", place];
    let ran = finish(&mut dist.command(&args)).done().says(&[
        "Writers in threads",
        "Writers in processes",
        "SQLite WAL, BEGIN IMMEDIATE",
        "SQLite WAL, BEGIN ",
        "Plait, BEGIN ",
        "Plait, BEGIN CONCURRENT",
        "busy timeout 5 s",
        "An unchanged program in 3 processes: SQLite serves",
        "journal_mode=wal synchronous=2 (FULL)",
        "journal_mode=concurrent synchronous=2 (FULL)",
        "fdatasync",
        "verified:",
        "plait enable app.db` once, then",
    ]);
    let lines = ran.out.lines().filter(|line| line.contains(", BEGIN"));
    assert_eq!(
        lines.filter(|line| line.contains("x ") || line.contains(" 1/")).count(),
        2 * 5 + 2 * 3,
        "{ran:?}"
    );
    for line in ran.out.lines().filter(|line| {
        !line.starts_with("disk:") && !line.starts_with("next:") && !line.contains(place)
    }) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing stays behind");
}

#[test]
fn a_library_without_concurrent_mode_is_no_success() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut demo = dist.command(&["demo", "--seconds", "0.05", "--writers", "1", "--dir"]);
    let ran = finish(demo.arg(dir.path()).env("PLAIT_LIB", dist.path("stock/lib")));
    assert_eq!(ran.code, 1, "{ran:?}");
    let ran = ran.says(&["THE TRIAL FAILED", "journal_mode=", "kept"]);
    assert!(!ran.out.contains("verified:"), "{ran:?}");
}

#[test]
fn a_directory_that_is_not_there_is_told() {
    let Some(dist) = Dist::find() else { return };
    finish(&mut dist.command(&["demo", "--dir", "/no/such/dir"]))
        .failed()
        .says(&["/no/such/dir", "--dir"]);
}

#[test]
fn a_lost_update_is_noticed() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("demo.db");
    let sql = "CREATE TABLE item(id INTEGER PRIMARY KEY, n INT, v BLOB);
               WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 10000)
               INSERT INTO item SELECT i, i = 5, zeroblob(400) FROM c";
    dist.stock(&path, sql).done();
    let verify = |acknowledged: u64| {
        let question = serde_json::json!({
            "library": dist.path("stock/lib/libsqlite3.so.0"),
            "database": path,
            "acknowledged": acknowledged,
        });
        let mut child =
            command(&["demo-verify"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{question}").unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    assert_eq!(verify(1).trim(), r#"{"Ok":null}"#);
    assert!(verify(2).contains("it holds 1 updates where 2 were acknowledged"), "{}", verify(2));
    dist.stock(&path, "UPDATE item SET v = x'00' WHERE id = 9").done();
    assert!(verify(1).contains("shortest"), "{}", verify(1));
}

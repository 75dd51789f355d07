//! `plait bench advise` through the program: answers as options, a verdict with the measurements behind it.

use std::process::{Command, Output, Stdio};

fn advise(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_plait-bench"))
        .arg("advise")
        .args(arguments)
        .arg("--dir")
        .arg(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

const NEED: [&str; 12] = [
    "--rows",
    "100",
    "--value-bytes",
    "64",
    "--writers",
    "3",
    "--reads",
    "1",
    "--survive-power-cut",
    "yes",
    "--engines",
    "stock,plait,redb,map",
];

#[test]
fn advice_is_about_one_medium() {
    let said = advise(&["--dir", "."]);
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("give --dir once"), "{said:?}");
}

#[test]
fn missing_answers_are_asked_for_by_name_where_nobody_can_be_asked() {
    let said = advise(&["--rows", "100"]);
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success());
    assert!(text.contains("--value-bytes") && text.contains("--survive-power-cut"), "{text}");
}

#[test]
fn the_advice_names_settings_and_shows_what_was_measured() {
    let quick = ["--processes", "no", "--seconds", "0.1", "--repeats", "2"];
    let said = advise(&[&NEED[..], &quick].concat());
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{said:?}");
    for part in [
        "100 rows of 64 bytes, 3 writers in threads",
        "Best measured here:",
        "Plait: concurrent, FULL, BEGIN CONCURRENT",
        "SQLite: WAL, synchronous=FULL",
        "Not measured: BTreeMap behind a mutex: keeps nothing, or has no transactions",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert!(!text.contains("NORMAL"), "it was asked to survive a power cut:\n{text}");
}

#[test]
fn engines_of_one_process_are_not_advised_to_several() {
    let quick = ["--processes", "yes", "--seconds", "0.1", "--repeats", "1", "--no-trace"];
    let said = advise(&[&NEED[..], &quick].concat());
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains("Not measured: redb: a store belongs to one process"), "{text}");
    assert!(
        text.contains("Nothing that was measured serves this need."),
        "nothing was proven:\n{text}"
    );
}

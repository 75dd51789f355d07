//! `plait bench`, `plait replicate`, `plait replicas` and `plait probe` hand over to programs beside it.

mod plait;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use plait::{executable, finish};

/// The command as it lies in an installation of its own.
fn installed(folder: &Path) -> Command {
    let program = folder.join("plait");
    executable(&program, &std::fs::read(env!("CARGO_BIN_EXE_plait")).unwrap());
    Command::new(program)
}

#[test]
fn arguments_reach_the_suite_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("plait-bench");
    executable(&suite, b"#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 3\n");
    let ran = finish(installed(folder.path()).args(["bench", "kv", "--help", "--engines", "a,b"]));
    assert_eq!((ran.code, ran.out.as_str()), (3, "<kv><--help><--engines><a,b>"));
}

#[test]
fn a_suite_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // A dangling link is no program either.
    symlink("nowhere", folder.path().join("plait-bench")).unwrap();
    finish(installed(folder.path()).arg("bench")).failed().says(&["plait-bench", "make dist"]);
}

/// A stand-in for the program for replicas, which shows its arguments.
fn with_replicate(folder: &Path) {
    executable(&folder.join("plait-replicate"), b"#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 3\n");
}

#[test]
fn arguments_reach_the_program_for_replicas() {
    let folder = tempfile::tempdir().unwrap();
    with_replicate(folder.path());
    for (given, arrived) in [
        (&["replicas", "s3://b/x"][..], "<replicas><s3://b/x>"),
        (&["probe", "--measure", "x"], "<probe><--measure><x>"),
        (
            &["restore", "s3://b/x", "-o", "n.db", "--record", "7"],
            "<restore><s3://b/x><--output><n.db><--record><7>",
        ),
        (&["replicate", "u", "a.db", "--keep", "1d"], "<run><u><a.db><--keep><1d>"),
    ] {
        let ran = finish(installed(folder.path()).args(given));
        assert_eq!((ran.code, ran.out.as_str()), (3, arrived), "{given:?}: {ran:?}");
    }
}

#[test]
fn a_program_for_replicas_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    finish(installed(folder.path()).args(["probe", "x"])).failed().says(&["plait-replicate"]);
}

//! Faults are compiled into the library with crash points alone, and each has a suite that reports it.

use plait_tests::paths;
use plait_tests::planted::faults;
use plait_tests::subject::real_plait;
use std::path::{Path, PathBuf};

#[test]
fn each_fault_is_planted_by_a_test() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let inside = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).expect("a folder of the tests");
        entries.map(|entry| entry.expect("an entry").path())
    };
    let files = inside(tests).flat_map(inside);
    let texts: Vec<String> =
        files.map(|file| std::fs::read_to_string(file).expect("a test")).collect();
    let is_planted = |fault: &str| {
        let call = "must_be_reported(";
        let mut calls = texts.iter().flat_map(|text| text.split(call).skip(1));
        calls.any(|call| call.trim_start().starts_with(&format!("\"{fault}\"")))
    };
    let forgotten: Vec<_> = faults().into_iter().filter(|fault| !is_planted(fault)).collect();
    assert!(forgotten.is_empty(), "no test plants {forgotten:?}");
}

#[test]
fn the_library_that_is_shipped_has_no_faults_and_no_crash_points() {
    if real_plait("faults").is_none() {
        return;
    }
    let holds = |library: &Path, text: &str| {
        let bytes = std::fs::read(library).expect("a library");
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    let shipped = paths::repository().join("dist/lib/libsqlite3.so.0");
    let crashing = paths::crash_library().expect("the library with crash points");
    for text in
        ["PLAIT_FAULT", "PLAIT_CRASH_AT", "PLAIT_STOP_AT", "PLAIT_PANIC_AT", "PLAIT_FAIL_AT"]
    {
        assert!(holds(&crashing, text), "{text}");
        assert!(!holds(&shipped, text), "{text}");
    }
}

//! The documented form of results: the schema is that of the types, and the example in the documents reads a result.
//!
//! `PLAIT_BENCH_WRITE_SCHEMA=1 cargo test -p plait-bench --test schema` writes the schema anew after a change of types.

mod samples;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plait_bench::report::results::Results;
use plait_bench::report::{markdown, stored};

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

#[test]
fn the_documented_schema_is_that_of_the_types() {
    let path = document("benchmark-results.schema.json");
    let schema = stored::schema();
    if std::env::var_os("PLAIT_BENCH_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).expect("the schema can be written");
    }
    let documented = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        documented == schema,
        "docs/benchmark-results.schema.json is not that of the types; after a change of results write it anew with \
         `PLAIT_BENCH_WRITE_SCHEMA=1 cargo test -p plait-bench --test schema`"
    );
}

#[test]
fn a_stored_result_shows_what_the_run_showed() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = samples::results(3);
    for name in ["results.json", "results.json.gz"] {
        let path = folder.path().join(name);
        results.write(&path).expect("written");
        let stored = Results::read(&path).expect("read");
        assert_eq!(markdown::markdown(&stored), markdown::markdown(&results), "{name}");
    }
}

#[test]
fn a_name_that_ends_in_gz_is_compressed_and_a_part_of_such_a_file_is_no_result() {
    let folder = tempfile::tempdir().expect("a folder");
    let [plain, compressed] = ["plain.json", "small.json.gz"].map(|name| folder.path().join(name));
    for path in [&plain, &compressed] {
        samples::results(3).write(path).expect("written");
    }
    let [plain, small] = [&plain, &compressed].map(|path| std::fs::read(path).expect("a file"));
    assert!(small.len() * 4 < plain.len(), "{} of {} bytes", small.len(), plain.len());
    std::fs::write(&compressed, &small[..small.len() / 2]).expect("cut");
    let error = format!("{:#}", Results::read(&compressed).expect_err("half of it"));
    assert!(error.contains("cannot read") && error.contains("small.json.gz"), "{error}");
}

#[test]
fn every_raw_result_in_docs_can_be_read() {
    let folder = document("benchmarks");
    let raw =
        std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let raw: Vec<_> = raw.filter(|path| path.extension().is_some_and(|e| e == "gz")).collect();
    assert!(!raw.is_empty(), "{}", folder.display());
    for path in raw {
        let results = Results::read(&path).expect("a result");
        assert!(!results.cells.is_empty(), "{}", path.display());
    }
}

#[test]
fn the_example_for_python_reads_a_result() {
    let text = std::fs::read_to_string(document("benchmark-results.md")).expect("the document");
    let example = text.split("```python\n").nth(1).expect("an example");
    let example = example.split("```").next().expect("its end");
    let folder = tempfile::tempdir().expect("a folder");
    samples::results(1).write(&folder.path().join("results.json")).expect("written");
    let run = Command::new("python3").args(["-c", example]).current_dir(folder.path()).output();
    let Ok(output) = run else {
        assert!(std::env::var_os("CI").is_none(), "CI is set and python3 is not installed");
        return;
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("writers/modern/threads"), "{printed}");
    assert!(printed.contains("failed: the sum of all counters is 9,998"), "{printed}");
}

fn plait_bench(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plait-bench"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the program starts")
}

#[test]
fn stored_results_are_compared_and_shown_again() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in [1, 2] {
        let path = folder.path().join(format!("{seed}.json"));
        samples::results(seed).write(&path).expect("written");
    }
    let compared = plait_bench(&["compare", "1.json", "2.json"], folder.path());
    assert_eq!(compared.status.code(), Some(0), "differences are no failure");
    assert!(String::from_utf8_lossy(&compared.stdout).contains("no difference shown"));

    let json = plait_bench(&["compare", "--json", "1.json", "2.json"], folder.path());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert!(json["pairs"].as_array().is_some_and(|pairs| pairs.len() > 30));

    let arguments = ["report", "1.json", "--html", "1.html", "--markdown", "1.md"];
    assert_eq!(plait_bench(&arguments, folder.path()).status.code(), Some(0));
    for (file, needed) in [("1.html", "<!DOCTYPE html>"), ("1.md", "## Where Plait wins")] {
        let text = std::fs::read_to_string(folder.path().join(file)).expect("written");
        assert!(text.contains(needed), "{file}");
    }
}

#[test]
fn what_is_no_result_is_an_error_of_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("other.json"), "{\"schema\": 1}").expect("written");
    std::fs::write(folder.path().join("newer.json"), "{\"schema\": 1000}").expect("written");
    for (arguments, needed) in [
        (vec!["compare", "other.json", "none.json"], "other.json is no result"),
        (vec!["report", "none.json"], "cannot read none.json"),
        (vec!["report", "newer.json"], "has schema 1000"),
        (vec!["compare", "one"], "Usage"),
    ] {
        let output = plait_bench(&arguments, folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(needed), "{arguments:?}: {said}");
    }
}

//! What must not compile: the examples in the sources that say so fail with the error that they name, and with no other.
//!
//! Doc tests see to it that they fail. Stable compilers do not compare the error's code there, so that a slip of the pen in an example
//! would pass for what it is to show. Here the compiler is run on each, with the libraries that lie beside this program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An example, and the code of the error that it names.
struct Example {
    name: String,
    code: String,
    text: String,
}

/// Those of one source file.
fn examples(path: &Path) -> Vec<Example> {
    let source = fs::read_to_string(path).expect("it is read");
    let doc = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        text.map(|text| text.strip_prefix(' ').unwrap_or(text).to_owned())
    };
    let mut found: Vec<Example> = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(source.lines()) {
        let Some(line) = doc(line) else {
            is_inside = false;
            continue;
        };
        if let Some(code) = line.strip_prefix("```compile_fail,") {
            let name = format!("{}:{number}", path.display());
            found.push(Example { name, code: code.to_owned(), text: String::new() });
            is_inside = true;
        } else if line.starts_with("```") {
            is_inside = false;
        } else if let (true, Some(example)) = (is_inside, found.last_mut()) {
            example.text += line.strip_prefix("# ").unwrap_or(&line);
            example.text.push('\n');
        }
    }
    for example in &mut found {
        if !example.text.contains("fn main()") {
            example.text = format!("fn main() {{\n{}}}\n", example.text);
        }
    }
    found
}

/// The libraries of a crate beside this program, the newest first.
fn libraries(of: &str) -> Vec<PathBuf> {
    let program = std::env::current_exe().expect("it has a path");
    let folder = program.parent().expect("it is in a folder");
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(&format!("lib{of}-")) && name.ends_with(".rlib")
    };
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .expect("it is listed")
        .map(|entry| entry.expect("an entry").path())
        .filter(is_it)
        .collect();
    found.sort_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok());
    found.reverse();
    found
}

/// The compiler's errors for a program, by their codes; empty if it compiles.
fn errors(plait: &Path, rusqlite: &Path, text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("example.rs");
    fs::write(&file, text).expect("it is written");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let done = Command::new(compiler)
        .args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--error-format=short"])
        .arg("--out-dir")
        .arg(folder.path())
        .arg("-L")
        .arg(format!("dependency={}", plait.parent().unwrap_or(plait).display()))
        .arg("--extern")
        .arg(format!("plait={}", plait.display()))
        .arg("--extern")
        .arg(format!("rusqlite={}", rusqlite.display()))
        .arg(&file)
        .output()
        .expect("the compiler starts");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let code = |line: &str| Some(line.split_once("error[")?.1.split_once(']')?.0.to_owned());
    let mut codes: Vec<String> = said.lines().filter_map(code).collect();
    codes.sort();
    codes.dedup();
    assert!(done.status.success() || !codes.is_empty(), "the compiler says: {said}");
    codes
}

/// The libraries that this program was built with, or newer ones of the same crates.
fn pair() -> (PathBuf, PathBuf) {
    let probe = "fn main() { let _ = |c: &rusqlite::Connection| plait::Borrowed::from_rusqlite(c).is_ok(); }";
    for plait in libraries("plait") {
        for rusqlite in libraries("rusqlite") {
            if errors(&plait, &rusqlite, probe).is_empty() {
                return (plait, rusqlite);
            }
        }
    }
    panic!("no library of plait with rusqlite lies beside this program");
}

#[test]
fn examples_that_must_not_compile_fail_for_the_reason_that_they_name() {
    let (plait, rusqlite) = pair();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = Vec::new();
    for entry in fs::read_dir(sources).expect("it is listed") {
        for example in examples(&entry.expect("an entry").path()) {
            let found = errors(&plait, &rusqlite, &example.text);
            assert_eq!(found, [example.code.as_str()], "{}:\n{}", example.name, example.text);
            seen.push(example.name);
        }
    }
    assert!(seen.len() >= 7, "these were found: {seen:?}");
}

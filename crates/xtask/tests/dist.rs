//! Does what `dist` built pass for SQLite? The stock library is what it is compared with.
//!
//! Run `make dist` first. `PLAIT_DIST` names another directory than `dist`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

fn dist(file: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this package lies two levels below the workspace");
    let directory = std::env::var_os("PLAIT_DIST").unwrap_or_else(|| "dist".into());
    let path = workspace.join(directory).join(file);
    assert!(path.exists(), "{} is not there: run `make dist`", path.display());
    path
}

fn output<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: &[S]) -> String {
    let mut command = Command::new(program);
    let done = command
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Symbols that a shared library defines for others.
fn exports(library: &Path) -> BTreeSet<String> {
    let args = [OsStr::new("-D"), OsStr::new("--defined-only"), library.as_os_str()];
    names(&output("nm", &args))
}

fn names(listing: &str) -> BTreeSet<String> {
    listing.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect()
}

fn sql(shell: &str, statement: &str) -> String {
    output(dist(shell), &[":memory:", statement])
}

#[test]
fn the_library_exports_the_stock_api_and_plaits() {
    let (ours, stock) =
        (exports(&dist("lib/libsqlite3.so.0")), exports(&dist("stock/lib/libsqlite3.so.0")));
    assert!(stock.contains("sqlite3_open_v2") && stock.len() > 300);
    let missing: Vec<_> = stock.difference(&ours).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    let more: Vec<_> = ours.difference(&stock).collect();
    assert!(more.iter().all(|name| name.starts_with("plait_")), "{more:?}");
    let header = std::fs::read_to_string(dist("include/plait.h")).expect("it is there");
    let undeclared: Vec<_> =
        more.iter().filter(|name| !header.contains(&format!("{name}("))).collect();
    assert!(undeclared.is_empty(), "not in plait.h: {undeclared:?}");
    for name in ["plait_version", "plait_map_open", "plait_cursor_seek", "plait_load"] {
        assert!(ours.contains(name), "{name}");
    }
}

#[test]
fn the_library_answers_to_the_name_of_the_systems() {
    for library in ["lib/libsqlite3.so.0", "stock/lib/libsqlite3.so.0"] {
        let dynamic = output("readelf", &[OsStr::new("-d"), dist(library).as_os_str()]);
        assert!(dynamic.contains("Library soname: [libsqlite3.so.0]"), "{library}: {dynamic}");
    }
}

#[test]
fn the_archive_shows_the_api_alone() {
    let archive = dist("lib/libsqlite3.a");
    let args = [OsStr::new("-g"), OsStr::new("--defined-only"), archive.as_os_str()];
    let visible = names(&output("nm", &args));
    assert_eq!(visible, exports(&dist("lib/libsqlite3.so.0")));
}

#[test]
fn every_compile_option_equals_the_stock_librarys() {
    let (ours, stock) = (
        sql("bin/sqlite3", "PRAGMA compile_options"),
        sql("stock/bin/sqlite3", "PRAGMA compile_options"),
    );
    assert_eq!(ours, stock);
    for option in ["THREADSAFE=1", "ENABLE_FTS5", "MAX_VARIABLE_NUMBER=250000"] {
        assert!(ours.lines().any(|line| line == option), "{option}");
    }
}

#[test]
fn both_libraries_are_the_pinned_release() {
    for shell in ["bin/sqlite3", "stock/bin/sqlite3"] {
        let ids = sql(shell, "SELECT sqlite_version() || ' ' || sqlite_source_id()");
        assert!(ids.starts_with(plait_splice::upstream::SQLITE_VERSION), "{shell}: {ids}");
    }
    let source = "SELECT sqlite_source_id()";
    assert_eq!(sql("bin/sqlite3", source), sql("stock/bin/sqlite3", source));
}

#[test]
fn a_shell_runs_on_the_library_beside_it() {
    let version = "SELECT count(*) FROM pragma_function_list WHERE name='plait_version'";
    assert_ne!(sql("bin/sqlite3", version).trim(), "0");
    assert_eq!(sql("stock/bin/sqlite3", version).trim(), "0");
}

/// The block of C in a page that contains some words.
fn block_of_c(page: &str, words: &str) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace");
    let text = std::fs::read_to_string(workspace.join(page)).expect("the page is there");
    let blocks = text.split("```c\n").skip(1);
    let mut codes = blocks.filter_map(|rest| rest.split_once("```").map(|(code, _)| code));
    codes.find(|code| code.contains(words)).expect("the page has such a block").to_owned()
}

#[test]
fn the_examples_of_the_key_value_api_build_and_run() {
    let whole = block_of_c("docs/key-value.md", "int main");
    let part = format!(
        "#include <stdio.h>\n#include <plait.h>\nint main(void){{\nsqlite3 *db;\nsqlite3_open(\"start.db\", &db);\n\
         {}return sqlite3_close(db);\n}}\n",
        block_of_c("docs/start.md", "plait_map_open")
    );
    for (code, want) in [(whole, "2 bytes, 1 visits\n"), (part, "\u{1}\u{2}")] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (source, program) = (directory.path().join("kv.c"), directory.path().join("kv"));
        std::fs::write(&source, code).expect("a writable directory");
        let (include, library) = (dist("include"), dist("lib"));
        let mut command = Command::new("cc");
        command
            .args(["-std=c89", "-Wall", "-Werror", "-Wno-long-long"])
            .arg(&source)
            .arg("-o")
            .arg(&program);
        command.arg("-I").arg(include).arg("-L").arg(&library).arg("-lsqlite3");
        let built = command.output().expect("there is a compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let mut command = Command::new(&program);
        let run = command.current_dir(directory.path()).env("LD_LIBRARY_PATH", library).output();
        let run = run.expect("it starts");
        assert!(run.status.success(), "{run:?}");
        assert_eq!(String::from_utf8_lossy(&run.stdout), want);
    }
}

#[test]
fn a_c_program_builds_with_pkg_config_and_runs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = directory.path().join("version.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\n#include <plait.h>\n\
         int main(void){ printf(\"%s %s\", sqlite3_libversion(), plait_version()); return 0; }\n",
    )
    .expect("a writable directory");
    let pkg_config = dist("lib/pkgconfig/sqlite3.pc");
    let pkg_config = pkg_config.to_str().expect("a path in UTF-8");
    let flags = output("pkg-config", &["--cflags", "--libs", "--static", pkg_config]);
    let shared: Vec<&str> = flags.split_whitespace().collect();
    let archive = dist("lib/libsqlite3.a");
    let archive = archive.to_str().expect("a path in UTF-8");
    let whole: Vec<&str> =
        shared.iter().map(|flag| if *flag == "-lsqlite3" { archive } else { flag }).collect();
    for (name, flags) in [("shared", shared), ("static", whole)] {
        let program = directory.path().join(name);
        let mut args: Vec<&OsStr> = vec![source.as_os_str(), OsStr::new("-o"), program.as_os_str()];
        args.extend(flags.iter().map(OsStr::new));
        output("cc", &args);
        let library_path = dist("lib");
        let printed = output(
            "env",
            &[
                OsStr::new(&format!("LD_LIBRARY_PATH={}", library_path.display())),
                program.as_os_str(),
            ],
        );
        assert!(printed.starts_with("3.54.1 "), "{name}: {printed}");
    }
}

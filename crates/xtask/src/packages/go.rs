//! The Go module: mattn/go-sqlite3 with our static library in place of its SQLite. A program takes it by one line of its `go.mod`.
//!
//! The go command fetches the module, which is known by its sum. Nothing of its Go code is changed: a file beside it adds the
//! library to what the linker gets. What it would compile of SQLite goes, and our headers stand where it looks for
//! its own, with and without its tag `libsqlite3`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Contents, archive};
use crate::toolchain::{output, run};
use crate::tree::permit_all;

const MODULE: &str = "github.com/mattn/go-sqlite3";
const VERSION: &str = "v1.14.53";
const SUM: &str = "h1:mnTM0owzUMrKuLo+0w51NUiB0ir2Fo7kFXlPt/l3BGs=";

/// What of it is left out: its SQLite, and what is no part of the package.
const LEFT_OUT: [&str; 7] = [
    "sqlite3-binding.c",
    "sqlite3-binding.h",
    "sqlite3ext.h",
    "_example",
    "upgrade",
    ".github",
    "README.md",
];

/// Whether this machine has what it takes.
pub fn has_tools() -> bool {
    Command::new("go").arg("version").output().is_ok_and(|o| o.status.success())
}

/// Fetches it, puts the library in, and packs it.
pub fn package(contents: &Contents) -> Result<PathBuf> {
    let folder = contents.scratch.join("go");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let fetched = fetch(contents)?;
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(&fetched)? {
        let entry = entry?;
        if !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            run(Command::new("cp").arg("-R").arg(entry.path()).arg(&folder))?;
        }
    }
    // What Go keeps of a module cannot be written to.
    run(Command::new("chmod").arg("-R").arg("u+w").arg(&folder))?;
    let tree = &contents.tree;
    archive::copy(&tree.join("lib/plait/libsqlite3.a"), &folder.join("libsqlite3.a"))?;
    for (from, to) in [
        ("sqlite3.h", "sqlite3.h"),
        ("sqlite3.h", "sqlite3-binding.h"),
        ("sqlite3ext.h", "sqlite3ext.h"),
        ("plait.h", "plait.h"),
    ] {
        archive::copy(&tree.join("include/plait").join(from), &folder.join(to))?;
    }
    let root = &contents.workspace.root;
    archive::copy(&root.join("packages/go/plait.go"), &folder.join("plait.go"))?;
    archive::copy(&root.join("LICENSE"), &folder.join("LICENSE.plait"))?;
    permit_all(&folder)?;
    archive::of_folder(contents, &folder, &format!("{}-go", contents.name()))
}

/// The folder in which Go keeps the module.
fn fetch(contents: &Contents) -> Result<PathBuf> {
    let name = format!("{MODULE}@{VERSION}");
    let told = output(
        Command::new("go")
            .current_dir(&contents.scratch)
            .args(["mod", "download", "-json", &name])
            // Outside of any module, and with this version of Go.
            .env("GOFLAGS", "-mod=mod")
            .env("GOWORK", "off")
            .env("GOTOOLCHAIN", "local"),
    )
    .with_context(|| format!("Go cannot fetch {name}"))?;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    ensure!(told["Sum"] == SUM, "{name} is not the pinned one: its sum is to be {SUM}");
    let folder = told["Dir"].as_str().context("Go says not where a module is")?;
    Ok(Path::new(folder).to_owned())
}

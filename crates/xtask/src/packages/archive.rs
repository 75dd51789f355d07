//! Archives with the same bytes each time: names in order, one time, one owner.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Contents;
use crate::toolchain::run;
use crate::tree::{VERSION, permit};

/// Packs the tree.
pub fn tree(contents: &Contents) -> Result<PathBuf> {
    of_folder(contents, &contents.tree, &contents.name())
}

/// Packs SQLite's source as one file with the engine.
pub fn amalgamation(contents: &Contents) -> Result<PathBuf> {
    let folder = contents.scratch.join("amalgamation");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let made = contents.dist.join("amalgamation");
    for name in ["plait-sqlite3.c", "sqlite3.h", "sqlite3ext.h", "plait.h"] {
        copy(&made.join(name), &folder.join(name))?;
    }
    let (engine, packed) = (made.join("libplait.a"), folder.join("libplait.a"));
    run(Command::new(contents.target.tool("strip"))
        .args(["--strip-debug", "--enable-deterministic-archives", "-o"])
        .arg(&packed)
        .arg(&engine))?;
    permit(&packed, 0o644)?;
    let root = &contents.workspace.root;
    copy(&root.join("LICENSE"), &folder.join("LICENSE"))?;
    let readme = fs::read_to_string(root.join("packages/amalgamation.md"))
        .context("cannot read packages/amalgamation.md")?;
    fs::write(
        folder.join("README.md"),
        readme.replace("@VERSION@", VERSION).replace("@LIBC@", &contents.needs.to_string()),
    )?;
    permit(&folder.join("README.md"), 0o644)?;
    permit(&folder, 0o755)?;
    of_folder(contents, &folder, &format!("{}-amalgamation", contents.name()))
}

/// Copies a file that all may read.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    permit(to, 0o644)
}

/// Packs a folder under another name, as `NAME.tar.gz`.
pub fn of_folder(contents: &Contents, folder: &Path, name: &str) -> Result<PathBuf> {
    pack(contents, folder, name, &format!("{name}.tar.gz"))
}

/// Packs a folder into this file; unpacked it has the name `inside`.
pub fn pack(contents: &Contents, folder: &Path, inside: &str, file: &str) -> Result<PathBuf> {
    let plain = contents.scratch.join("packing.tar");
    run(Command::new("tar")
        .args(["--create", "--format=gnu", "--sort=name"])
        .args(["--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", contents.epoch))
        // Names of files alone: links lead where they led.
        .arg(format!("--transform=flags=r;s,^\\.,{inside},"))
        .arg("--file")
        .arg(&plain)
        .arg("--directory")
        .arg(folder)
        .arg("."))?;
    // Without a name and a time of its own.
    run(Command::new("gzip").args(["-9", "--no-name", "--force"]).arg(&plain))?;
    let archive = contents.out.join(file);
    fs::rename(plain.with_extension("tar.gz"), &archive)
        .with_context(|| format!("cannot put {} in its place", archive.display()))?;
    Ok(archive)
}

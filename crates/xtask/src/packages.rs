//! `packages`: an archive that works from any folder, a Debian package, and SQLite's source with ours as one file.
//!
//! ```text
//! dist/packages/plait-VERSION-linux-LABEL.tar.gz        the tree of `make tree`
//! dist/packages/plait-db_VERSION_ARCH.deb               the same, below /usr; not for musl
//! dist/packages/plait-VERSION-linux-LABEL-amalgamation.tar.gz   plait-sqlite3.c, libplait.a, headers
//! target/packages/LABEL/                                what they were made from, and the compiler `cc` that made them
//! ```
//!
//! LABEL is the processor, with `-musl` behind it where the C library is musl ([`Target::label`]).
//!
//! What is packed was compiled against the C library of Debian 11 (see [`sysroot`]), so that it runs there and on all that is
//! newer; with `--native`, against this machine's. Names and times in the archives come from the commit alone: who builds it
//! again with the same compilers gets the same bytes.

mod archive;
mod compiler;
mod debian;
mod needs;
mod sysroot;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use self::compiler::Compiler;
use self::sysroot::Sysroot;
use crate::dist;
use crate::target::{Libc, Target};
use crate::toolchain::{output, run_visibly};
use crate::tree::{self, VERSION};
use crate::workspace::Workspace;

/// What every package is made of.
struct Contents {
    workspace: Workspace,
    target: Target,
    /// What is packed, as it lies below a prefix.
    tree: PathBuf,
    /// The outputs that it was laid out from.
    dist: PathBuf,
    /// Where things are made.
    scratch: PathBuf,
    /// Where packages go.
    out: PathBuf,
    /// Seconds since 1970: the time of every file.
    epoch: String,
    /// The C library that the programs and libraries in it ask for.
    needs: needs::Libc,
}

impl Contents {
    /// Name of a package without its kind.
    fn name(&self) -> String {
        format!("plait-{VERSION}-linux-{}", self.target.label())
    }
}

/// Makes all packages for a target, this machine if none is named; `native`: for this machine's C library.
pub fn run(triple: Option<&str>, native: bool) -> Result<()> {
    let target = if native { Target::here()? } else { Target::named(triple)? };
    let workspace = Workspace::locate()?;
    let label = if native { "native".to_owned() } else { target.label() };
    let scratch = scratch(&workspace, &label)?;
    // Java's headers here are those of this machine.
    let is_here = target.triple() == Target::here()?.triple();
    let jdbc = is_here && target.libc == Libc::Glibc && dist::jdbc::has_tools();
    let (dist, runner) = if native {
        let what =
            dist::Request { no_suite: true, amalgamation: true, jdbc, ..dist::Request::default() };
        dist::run(Path::new("dist"), what)?;
        (workspace.root.join("dist"), Vec::new())
    } else {
        built_for_debian_11(&workspace, &target, &scratch, jdbc)?
    };
    let tree = scratch.join("tree");
    let root = &workspace.root;
    let from = tree::Origin { root, dist: &dist, target: &target, runner: &runner, jdbc };
    tree::lay(&from, &tree)?;
    let asking = ["lib/plait/libsqlite3.so.0", "lib/plait/stock/libsqlite3.so.0"];
    let asking = tree::PROGRAMS.iter().chain(&asking).chain(jdbc.then_some(&tree::JDBC));
    let files: Vec<_> = asking.map(|file| tree.join(file)).collect();
    let needs = needs::libc(&target, &files)?;
    if !native {
        needs.check()?;
    }
    let out = workspace.root.join("dist/packages");
    fs::create_dir_all(&out)?;
    let epoch = epoch(&workspace.root)?;
    let contents = Contents { workspace, target, tree, dist, scratch, out, epoch, needs };
    remove_older(&contents)?;
    let mut made = vec![archive::tree(&contents)?, archive::amalgamation(&contents)?];
    if contents.target.libc == Libc::Glibc {
        made.push(debian::package(&contents)?);
    }
    for made in made {
        let size_kib = fs::metadata(&made)?.len() / 1024;
        println!("{} ({size_kib} KiB)", made.display());
    }
    println!("needs {} or newer", contents.needs);
    if !jdbc {
        println!("without {}: there is no mvn, or no javac, or the target is another", tree::JDBC);
    }
    Ok(())
}

/// Runs a command, cargo say, in the environment in which packages for a target are built, and with their target directory. `XTASK` is
/// the path of this program there.
pub fn within(triple: &str, command: &[OsString]) -> Result<()> {
    let target = Target::named(Some(triple))?;
    let workspace = Workspace::locate()?;
    let scratch = scratch(&workspace, &target.label())?;
    let (compiler, _) = prepare(&target, &scratch)?;
    let mut words = command.iter();
    let mut task = Command::new(words.next().context("no command is named")?);
    task.args(words).env("XTASK", std::env::current_exe()?);
    settle(&mut task, &compiler, &workspace, &scratch)?;
    run_visibly(&mut task)
}

fn scratch(workspace: &Workspace, label: &str) -> Result<PathBuf> {
    // Not that of the task which runs this one.
    let scratch = workspace.root.join("target/packages").join(label);
    fs::create_dir_all(&scratch)?;
    Ok(scratch)
}

/// Builds into a target directory of its own: other flags would have cargo compile everything again each time.
fn built_for_debian_11(
    workspace: &Workspace,
    target: &Target,
    scratch: &Path,
    jdbc: bool,
) -> Result<(PathBuf, Vec<OsString>)> {
    let (compiler, sysroot) = prepare(target, scratch)?;
    let dist = scratch.join("dist");
    let mut task = Command::new(std::env::current_exe()?);
    task.current_dir(&workspace.root)
        .args(["dist", "--no-suite", "--amalgamation", "--target", target.triple(), "--out"])
        .arg(&dist)
        .args(jdbc.then_some("--jdbc"));
    settle(&mut task, &compiler, workspace, scratch)?;
    run_visibly(&mut task)?;
    Ok((dist, sysroot.runner()))
}

fn settle(
    task: &mut Command,
    compiler: &Compiler,
    workspace: &Workspace,
    scratch: &Path,
) -> Result<()> {
    task.env("CARGO_TARGET_DIR", scratch.join("target")).env("CARGO_INCREMENTAL", "0");
    compiler.settle(task, &workspace.root)
}

/// Fetches what building for a target takes.
fn prepare(target: &Target, scratch: &Path) -> Result<(Compiler, Sysroot)> {
    let triple = target.triple();
    let std = output(Command::new("rustc").args(["--print", "target-libdir", "--target", triple]))?;
    let std = PathBuf::from(std.trim());
    if !std.exists() {
        run_visibly(Command::new("rustup").args(["target", "add", triple]))
            .with_context(|| format!("Rust's standard library for {triple} is needed"))?;
    }
    let sysroot = sysroot::prepare(&scratch.join("sysroot"), target).with_context(|| {
        format!(
            "cannot get {} of Debian 11; `make packages NATIVE=1` builds for this machine's C library and newer ones",
            target.libc.name()
        )
    })?;
    let compiler = compiler::prepare(&scratch.join("cc"), &sysroot, &std, target)?;
    Ok((compiler, sysroot))
}

/// Packages of other versions would be taken for what was made now; those for other targets stay.
fn remove_older(contents: &Contents) -> Result<()> {
    let (label, machine) = (contents.target.label(), contents.target.debian());
    let archives =
        [format!("-linux-{label}.tar.gz"), format!("-linux-{label}-amalgamation.tar.gz")];
    let package = format!("_{machine}.deb");
    for entry in fs::read_dir(&contents.out)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = archives.iter().any(|end| name.ends_with(end))
            || (contents.target.libc == Libc::Glibc && name.ends_with(&package));
        if name.starts_with("plait-") && is_ours {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The time of the commit, unless the environment names one.
fn epoch(root: &Path) -> Result<String> {
    if let Ok(told) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(told);
    }
    let time = output(Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]))
        .context("no commit tells the time of the files: set SOURCE_DATE_EPOCH")?;
    Ok(time.trim().to_owned())
}

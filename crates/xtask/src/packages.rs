//! `packages`: an archive that works from any folder, a Debian package, and SQLite's source with ours as one file.
//!
//! ```text
//! dist/packages/plait-VERSION-linux-LABEL.tar.gz        the tree of `make tree`
//! dist/packages/plait-db_VERSION_ARCH.deb               the same, below /usr; not for musl
//! dist/packages/plait-VERSION-linux-LABEL-amalgamation.tar.gz   plait-sqlite3.c, libplait.a, headers
//! dist/packages/plait-VERSION-linux-LABEL-go.tar.gz     a Go module with libsqlite3.a; where Go is
//! dist/packages/plait-db-VERSION.tgz                    an npm package with an addon; where npm is, for this machine's processor
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
mod go;
mod needs;
mod npm;
mod sysroot;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use self::compiler::Compiler;
use self::sysroot::Sysroot;
use crate::dist;
use crate::target::{Libc, Target};
use crate::toolchain::{output, run_visibly};
use crate::tree::{self, VERSION};
use crate::workspace::Workspace;

/// The name of packages in registries and archives of many projects: `plait` alone is that of others there.
const NAME: &str = "plait-db";

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

/// Makes all packages for a target, this machine if none is named; `native`: for this machine's C library. The npm package, which takes
/// SQLite compiled once more, is then made with `npm` alone.
pub fn run(triple: Option<&str>, native: bool, npm: bool) -> Result<()> {
    let target = if native { Target::here()? } else { Target::named(triple)? };
    let workspace = Workspace::locate()?;
    let label = if native { "native".to_owned() } else { target.label() };
    let scratch = scratch(&workspace, &label)?;
    let further = Further::here(&target, npm || !native)?;
    ensure!(
        further.npm || !npm,
        "the npm package needs npm, and is made for this machine's glibc alone"
    );
    let (dist, runner) = if native {
        let what = dist::Request {
            no_suite: true,
            plain_shell: true,
            amalgamation: true,
            jdbc: further.jdbc,
            npm: further.npm,
            ..dist::Request::default()
        };
        dist::run(Path::new("dist"), what)?;
        (workspace.root.join("dist"), Vec::new())
    } else {
        built_for_debian_11(&workspace, &target, &scratch, &further)?
    };
    let tree = scratch.join("tree");
    let root = &workspace.root;
    let from =
        tree::Origin { root, dist: &dist, target: &target, runner: &runner, jdbc: further.jdbc };
    tree::lay(&from, &tree)?;
    let needs = needs::libc(&target, &further.asking(&tree, &dist, &target))?;
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
    if further.go {
        made.push(go::package(&contents)?);
    }
    if further.npm {
        made.push(npm::package(&contents)?);
    }
    for made in made {
        let size_kib = fs::metadata(&made)?.len() / 1024;
        println!("{} ({size_kib} KiB)", made.display());
    }
    println!("needs {} or newer", contents.needs);
    further.tell();
    Ok(())
}

/// What is made where the tools for it are.
struct Further {
    jdbc: bool,
    npm: bool,
    go: bool,
}

impl Further {
    /// What this machine can make for a target; `npm`: the npm package too.
    fn here(target: &Target, npm: bool) -> Result<Self> {
        // Java's headers here are those of this machine, and so is the C++ library.
        let is_here = target.triple() == Target::here()?.triple() && target.libc == Libc::Glibc;
        Ok(Self {
            jdbc: is_here && dist::jdbc::has_tools(),
            npm: npm && is_here && dist::npm::has_tools(),
            go: go::has_tools(),
        })
    }

    /// The files that ask for a C library.
    fn asking(&self, tree: &Path, dist: &Path, target: &Target) -> Vec<PathBuf> {
        let libraries = ["lib/plait/libsqlite3.so.0", "lib/plait/stock/libsqlite3.so.0"];
        let ours = tree::PROGRAMS.iter().chain([&tree::SHELL]).chain(&libraries);
        let mut files: Vec<_> = ours.map(|file| tree.join(file)).collect();
        files.extend(self.jdbc.then(|| tree.join(tree::JDBC)));
        files.extend(self.npm.then(|| dist::npm::addon(dist, target)));
        files
    }

    /// Says what is not made.
    fn tell(&self) {
        if !self.jdbc {
            println!(
                "without {}: there is no mvn, or no javac, or the target is another",
                tree::JDBC
            );
        }
        if !self.go {
            println!("without the Go module: there is no go");
        }
        if !self.npm {
            println!(
                "without the npm package: there is no npm, or the target is another, or NATIVE=1 without NPM=1"
            );
        }
    }
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
    further: &Further,
) -> Result<(PathBuf, Vec<OsString>)> {
    let (compiler, sysroot) = prepare(target, scratch)?;
    let dist = scratch.join("dist");
    let mut task = Command::new(std::env::current_exe()?);
    task.current_dir(&workspace.root)
        .args(["dist", "--no-suite", "--amalgamation", "--target", target.triple(), "--out"])
        .arg(&dist)
        .args(further.jdbc.then_some("--jdbc"))
        .args(further.npm.then_some("--npm"));
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
    let archives = ["", "-amalgamation", "-go"].map(|what| format!("-linux-{label}{what}.tar.gz"));
    let package = format!("_{machine}.deb");
    let is_here = !contents.target.is_foreign();
    for entry in fs::read_dir(&contents.out)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = archives.iter().any(|end| name.ends_with(end))
            || (contents.target.libc == Libc::Glibc
                && (name.ends_with(&package) || is_here && name.ends_with(".tgz")));
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

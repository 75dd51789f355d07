//! `dist`: everything a user installs, and the stock library to compare it with.
//!
//! Layout of the directory:
//!
//! ```text
//! lib/libsqlite3.so.0  libsqlite3.so -> libsqlite3.so.0  libsqlite3.a  pkgconfig/sqlite3.pc
//! include/sqlite3.h  sqlite3ext.h  plait.h
//! bin/plait  plait-replicate  plait-bench  sqlite3
//! stock/lib/libsqlite3.so.0  stock/bin/sqlite3      same amalgamation and flags, not spliced
//! crash/lib/libsqlite3.so.0  crash/bin/plait-replicate   with --crash-points
//! sanitize/lib/libsqlite3.so.0                      with --sanitizers
//! amalgamation/plait-sqlite3.c  libplait.a  *.h     with --amalgamation
//! lib/jdbc/libsqlitejdbc.so  NOTICE                 with --jdbc
//! npm/lib  prebuilds  LICENSE.better-sqlite3        with --npm
//! ```
//!
//! `--target` builds for another platform, with the compiler that the environment names for it, and leaves out shells and the suite.
//! `--demo` leaves out all that `plait demo` does not need: headers, the static library, shells, the suite and `plait-replicate`.
//!
//! Outputs are made in cargo's target directory and copied from there, each by way of a rename, so
//! that a program that runs from the directory keeps the files it has mapped. Steps whose
//! inputs have not changed are skipped (see [`crate::toolchain::Stamp`]).

mod amalgamation;
mod install;
pub mod jdbc;
mod library;
mod link;
pub mod npm;
mod programs;
mod shell;
mod stock;

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::Result;
use plait_splice::upstream::{self, Amalgamation};

use crate::target::Target;
use crate::toolchain::Toolchain;
use crate::workspace::Workspace;

/// What to build.
#[derive(Clone, Default)]
pub struct Request {
    /// Also the library with crash points, and `plait-replicate` with them.
    pub crash_points: bool,
    /// Also the library with sanitizers in its C part.
    pub sanitizers: bool,
    /// Also SQLite's source as one file, and the engine to link with it.
    pub amalgamation: bool,
    /// Also the native part of Java's driver, on our library.
    pub jdbc: bool,
    /// Also better-sqlite3 with our library inside, for Node; with `amalgamation`.
    pub npm: bool,
    /// Nothing but the stock library and its shell.
    pub stock_only: bool,
    /// Without the evaluation suite, which takes longest to build.
    pub no_suite: bool,
    /// Nothing but both shared libraries and the command.
    pub demo: bool,
    /// Cargo features of the evaluation suite: peers that take long to build. Those of the last time when left out.
    pub peers: Option<String>,
    /// The shell asks for no library but ours and the C library, so that it runs wherever these are.
    pub plain_shell: bool,
    /// Another platform than this machine, as Rust names it: with such a shell, without the suite.
    pub target: Option<String>,
}

/// What every step needs to know.
struct Context {
    workspace: Workspace,
    toolchain: Toolchain,
    amalgamation: Amalgamation,
    shell_source: PathBuf,
    /// Where outputs are made and kept.
    cache: PathBuf,
    /// Where they are copied to.
    out: PathBuf,
    /// See [`Request::peers`].
    peers: String,
    /// See [`Request::target`].
    target: Option<Target>,
}

impl Context {
    /// `cargo build` of optimised code for the target.
    fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.workspace.root).args(["build", "--release"]);
        if let Some(target) = &self.target {
            cargo.args(["--target", target.triple()]);
        }
        cargo
    }

    /// Where that puts what it makes.
    fn made(&self) -> PathBuf {
        let own = self.target.as_ref().map_or("", |target| target.triple());
        self.workspace.target.join(own).join("release")
    }
}

fn context(out: &Path, request: &Request) -> Result<Context> {
    let workspace = Workspace::locate()?;
    let cache = workspace.target.join("dist");
    let target = request.target.as_deref().map(|triple| Target::named(Some(triple))).transpose()?;
    let built_for = target.clone().map_or_else(Target::here, Ok)?;
    Ok(Context {
        toolchain: Toolchain::locate(built_for)?,
        target,
        amalgamation: upstream::amalgamation(&workspace.root)?,
        shell_source: upstream::shell(&workspace.root)?,
        out: workspace.root.join(out),
        peers: remembered_peers(&cache, request.peers.clone())?,
        cache,
        workspace,
    })
}

/// Links the library that `cargo` makes an archive of in `made` with ThreadSanitizer's runtime, which the linker finds in `target`.
pub fn link_with_threads(cargo: Command, made: &Path, target: &Path) -> Result<PathBuf> {
    let context = context(Path::new("dist"), &Request::default())?;
    library::build_with_thread_sanitizer(&context, cargo, made, target)
}

/// Waits until no other process builds in this folder: two would mix what they make. Whoever holds the file builds.
fn turn(cache: &Path) -> Result<File> {
    fs::create_dir_all(cache)?;
    let lock = File::create(cache.join("lock"))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("     Waiting for another build in {}", cache.display());
            lock.lock()?;
        }
        // A file system without such locks: two builds at once are its user's to avoid.
        Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {}
        Err(TryLockError::Error(e)) => return Err(e.into()),
    }
    Ok(lock)
}

/// Builds what is asked for into `out`.
pub fn run(out: &Path, request: Request) -> Result<()> {
    let context = context(out, &request)?;
    let _turn = turn(&context.cache)?;
    if request.stock_only {
        return stock::build(&context, shell::Editing::WhereFound).map(drop);
    }
    // The stock library is one call of the compiler for a minute: beside it cargo has the other processors.
    let editing = match request.plain_shell || request.target.is_some() {
        true => shell::Editing::Never,
        false => shell::Editing::WhereFound,
    };
    let stock = || match request.demo {
        true => stock::shared(&context).map(|_| None),
        false => stock::build(&context, editing).map(Some),
    };
    let shell = thread::scope(|scope| {
        let stock = scope.spawn(stock);
        let ours = ours(&context, &request);
        let shell = stock.join().unwrap_or_else(|panic| resume_unwind(panic));
        ours.and(shell)
    })?;
    shell.map_or(Ok(()), |shell| programs::shell(&context, &shell))
}

fn ours(context: &Context, request: &Request) -> Result<()> {
    library::build(context, !request.demo)?;
    programs::command(context)?;
    if request.demo {
        return Ok(());
    }
    programs::replicate(context)?;
    library::build_for_linking(context)?;
    if request.crash_points {
        library::build_with_crash_points(context)?;
    }
    if request.sanitizers {
        library::build_with_sanitizers(context)?;
    }
    if request.amalgamation {
        amalgamation::build(context)?;
    }
    if request.jdbc {
        jdbc::build(context)?;
    }
    if request.npm {
        npm::build(context)?;
    }
    if request.no_suite || request.target.is_some() { Ok(()) } else { programs::suite(context) }
}

/// The peers that are asked for, or those that were the last time: none at first.
fn remembered_peers(cache: &Path, asked: Option<String>) -> Result<String> {
    let mark = cache.join("peers");
    match asked {
        Some(peers) => {
            fs::create_dir_all(cache)?;
            fs::write(&mark, &peers)?;
            Ok(peers)
        }
        None => Ok(fs::read_to_string(&mark).unwrap_or_default()),
    }
}

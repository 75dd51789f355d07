//! `tsan`: suites on a library that, with its C part, the test programs and the standard library, is built with ThreadSanitizer.
//!
//! Races that loom's models do not have because nobody thought of them. One is planted (`races.rs`), and has to be reported. The
//! runtime is gcc's, for one process has room for one only, and the C part is instrumented by that compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::dist;
use crate::target::Target;
use crate::toolchain::{Toolchain, output, run, run_visibly};
use crate::workspace::Workspace;

/// The suite in which a race is planted: only here somebody would see it.
const PLANTED: &str = "races";
const SUPPRESSIONS: &str = "crates/xtask/src/tsan/suppressions";
const CLANGS_NAMES: &str = "crates/xtask/src/tsan/clangs_names.c";
/// The standard library too, or its mutexes and channels are not seen.
const BUILD_STD: &str = "-Zbuild-std=std,panic_unwind";

struct Context {
    workspace: Workspace,
    host: String,
    /// Cargo's target directory of everything here.
    target: PathBuf,
    /// gcc's `libtsan.so`, which has to be loaded before everything else.
    runtime: PathBuf,
    flags: String,
}

/// Builds everything and runs these test programs of `plait-tests`, and the one with the planted race.
///
/// # Errors
/// A test fails, or something is reported that [`SUPPRESSIONS`] does not name.
pub fn run_suites(suites: &[String]) -> Result<()> {
    // The oracle, the shell and what else the tests ask for.
    dist::run(Path::new("dist"), dist::Request { no_suite: true, ..dist::Request::default() })?;
    run_visibly(Command::new("rustup").args(["component", "add", "rust-src"]))
        .context("ThreadSanitizer needs the sources of the standard library")?;
    let context = Context::prepare()?;
    let library = context.library()?;
    run_visibly(context.cargo("build").args(["--package", "plait-tests", "--bins"]))?;
    for suite in suites {
        // Sidecars and followers stand on tokio, of whose order it knows nothing.
        context.test(&library, suite, &["--skip", "replica"])?;
    }
    context.test(&library, PLANTED, &["--include-ignored"])
}

impl Context {
    fn prepare() -> Result<Context> {
        let workspace = Workspace::locate()?;
        let toolchain = Toolchain::locate(Target::here()?)?;
        let target = workspace.target.join("threads");
        fs::create_dir_all(&target)?;
        let found = output(toolchain.command()?.arg("-print-file-name=libtsan.so"))?;
        let runtime =
            fs::canonicalize(found.trim()).context("gcc's libtsan is needed: it comes with gcc")?;
        let names = target.join("clangs_names.o");
        run(toolchain
            .command()?
            .args(["-c", "-O1", "-fPIC"])
            .arg(workspace.root.join(CLANGS_NAMES))
            .arg("-o")
            .arg(&names))?;
        // For the linker "the library tsan" is both.
        let script = format!("INPUT({} {})\n", runtime.display(), names.display());
        fs::write(target.join("libtsan.so"), script)?;
        let flags = format!(
            "-Zsanitizer=thread -Zexternal-clangrt -Clink-arg=-L{} -Clink-arg=-Wl,--no-as-needed -Clink-arg=-ltsan \
             -Cforce-frame-pointers=yes",
            target.display()
        );
        Ok(Context {
            workspace,
            host: toolchain.target().triple().to_owned(),
            target,
            runtime,
            flags,
        })
    }

    fn cargo(&self, task: &str) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.workspace.root);
        // The sanitizer and the building of the standard library are no stable options of the pinned compiler.
        cargo.env("RUSTC_BOOTSTRAP", "1").env("CARGO_INCREMENTAL", "0");
        cargo.env("RUSTFLAGS", &self.flags).env("CARGO_TARGET_DIR", &self.target);
        cargo.env("CFLAGS", "-O1 -g -fno-omit-frame-pointer -fsanitize=thread");
        cargo.args([task, "--release", BUILD_STD, "--target", &self.host]);
        cargo
    }

    /// With crash points: the planted race is among them.
    fn library(&self) -> Result<PathBuf> {
        let mut cargo = self.cargo("build");
        cargo.args(["--package", "plait-sqlite", "--features", "crash-points"]);
        let made = self.target.join(&self.host).join("release");
        dist::link_with_threads(cargo, &made, &self.target)
    }

    fn test(&self, library: &Path, suite: &str, further: &[&str]) -> Result<()> {
        let suppressions = self.workspace.root.join(SUPPRESSIONS);
        let options = format!(
            "suppressions={} history_size=4 detect_deadlocks=0 second_deadlock_stack=0",
            suppressions.display()
        );
        let runner = format!(
            "target.'cfg(all())'.runner = ['env', 'LD_PRELOAD={}', 'TSAN_OPTIONS={options}']",
            self.runtime.display()
        );
        let mut cargo = self.cargo("test");
        cargo.env("PLAIT_LIB", library).env("PLAIT_CRASH_LIB", library);
        cargo.args(["--package", "plait-tests", "--test", suite, "--config", &runner]);
        cargo.arg("--").args(further);
        run_visibly(&mut cargo)
    }
}

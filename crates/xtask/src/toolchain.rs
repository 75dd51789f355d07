//! Running the C compiler and cargo, and not running them again when nothing changed.
//!
//! A *stamp* is a text that stands for everything that went into an output: command lines, the
//! compiler's version, lengths and times of input files. It is kept beside the output; a step is
//! skipped when the stamp is the same and the output is there.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, Result, ensure};

use crate::target::Target;

/// The C compiler and binutils for what is built for.
pub struct Toolchain {
    target: Target,
    host: String,
    version: String,
}

impl Toolchain {
    /// Finds the compiler: `CC`, or `cc`; `CC_TARGET` for a target.
    pub fn locate(target: Target) -> Result<Self> {
        let host = Target::here()?.triple().to_owned();
        let mut toolchain = Self { target, host, version: String::new() };
        let mut cc = toolchain.bare().try_get_compiler()?.to_command();
        toolchain.version = output(cc.arg("--version")).context("a C compiler is needed")?;
        Ok(toolchain)
    }

    /// What is built for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// A command of binutils.
    pub fn binutil(&self, name: &str) -> Command {
        Command::new(self.target.tool(name))
    }

    /// Settles what `cc` would otherwise read from a build script's environment.
    pub fn settle<'a>(&self, build: &'a mut cc::Build) -> &'a mut cc::Build {
        let target = self.target.triple();
        build.cargo_metadata(false).opt_level(2).debug(false).target(target).host(&self.host)
    }

    /// A compiler command without any flags.
    pub fn command(&self) -> Result<Command> {
        Ok(self.bare().try_get_compiler()?.to_command())
    }

    /// The compiler's own description: part of every stamp.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn bare(&self) -> cc::Build {
        let mut build = cc::Build::new();
        self.settle(&mut build).no_default_flags(true);
        build
    }
}

/// Runs a command to its end; its failure is an error that shows what it printed.
pub fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs a command whose own messages belong to the user, such as cargo with its progress.
pub fn run_visibly(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

/// Runs a command and returns what it printed to standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        done.status.success(),
        "{command:?} failed: {}\n{}",
        done.status,
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Collects what an output depends on.
#[derive(Default)]
pub struct Stamp(String);

impl Stamp {
    /// Adds a text, such as a flag or a compiler's version.
    pub fn text(mut self, text: &str) -> Self {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{text}");
        self
    }

    /// Adds a file, by length and time of its last change.
    pub fn file(mut self, path: &Path) -> Result<Self> {
        let meta = fs::metadata(path).with_context(|| format!("cannot find {}", path.display()))?;
        let changed = meta.modified()?.duration_since(UNIX_EPOCH)?.as_nanos();
        let _ = writeln!(self.0, "{} {} {changed}", path.display(), meta.len());
        Ok(self)
    }

    /// Runs `make` unless `output` was made under this very stamp.
    pub fn guard(self, output: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
        let beside = stamp_path(output);
        if output.exists() && fs::read_to_string(&beside).is_ok_and(|old| old == self.0) {
            return Ok(());
        }
        eprintln!("      Making {}", output.display());
        // Until the new output is complete the old stamp must not vouch for it.
        let _ = fs::remove_file(&beside);
        make().with_context(|| format!("cannot make {}", output.display()))?;
        fs::write(&beside, self.0)?;
        Ok(())
    }
}

fn stamp_path(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".stamp");
    name.into()
}

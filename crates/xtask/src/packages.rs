//! `packages`: an archive that works from any folder, a Debian package, and SQLite's source with ours as one file.
//!
//! ```text
//! dist/packages/plait-VERSION-linux-ARCH.tar.gz        the tree of `make tree`
//! dist/packages/plait-db_VERSION_ARCH.deb              the same, below /usr
//! dist/packages/plait-VERSION-linux-ARCH-amalgamation.tar.gz   plait-sqlite3.c, libplait.a, headers
//! ```
//!
//! What is packed was compiled against Debian 11's glibc (see [`sysroot`]), so that it runs there and on all that is newer;
//! with `--native`, against this machine's. Names and times in the archives come from the commit alone: who builds it again
//! with the same compilers gets the same bytes.

mod archive;
mod debian;
mod needs;
mod sysroot;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::dist;
use crate::toolchain::{Toolchain, output, run_visibly};
use crate::tree::{self, VERSION};
use crate::workspace::Workspace;

/// The glibc that packages may ask for.
const GLIBC_MAX: needs::Version = (2, 31);

/// What every package is made of.
struct Contents {
    workspace: Workspace,
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
    /// The processor, as Rust names it.
    machine: String,
    /// The newest version of glibc that a program or library in it asks for.
    glibc: needs::Version,
}

/// Makes all packages; `native`: for this machine's glibc.
pub fn run(native: bool) -> Result<()> {
    let workspace = Workspace::locate()?;
    let scratch = workspace.target.join("packages");
    fs::create_dir_all(&scratch)?;
    let jdbc = dist::jdbc::has_tools();
    let dist = if native {
        let what =
            dist::Request { no_suite: true, amalgamation: true, jdbc, ..dist::Request::default() };
        dist::run(Path::new("dist"), what)?;
        workspace.root.join("dist")
    } else {
        built_for_debian_11(&workspace, &scratch, jdbc)?
    };
    let tree = scratch.join("tree");
    tree::lay(&workspace.root, &dist, &tree, jdbc)?;
    let asking =
        ["bin/plait", "lib/plait/libsqlite3.so.0", "lib/plait/stock/libsqlite3.so.0", tree::JDBC];
    let asking = if jdbc { &asking[..] } else { &asking[..3] };
    let glibc = needs::glibc(&asking.iter().map(|file| tree.join(file)).collect::<Vec<_>>())?;
    ensure!(
        native || glibc <= GLIBC_MAX,
        "the packages would ask for glibc {}.{}: newer than Debian 11's",
        glibc.0,
        glibc.1
    );
    let host = Toolchain::locate()?.host().to_owned();
    let machine = host.split('-').next().context("a host has a processor")?.to_owned();
    let out = workspace.root.join("dist/packages");
    fs::create_dir_all(&out)?;
    remove_older(&out)?;
    let epoch = epoch(&workspace.root)?;
    let contents = Contents { workspace, tree, dist, scratch, out, epoch, machine, glibc };
    for made in
        [archive::tree(&contents)?, archive::amalgamation(&contents)?, debian::package(&contents)?]
    {
        let size_kib = fs::metadata(&made)?.len() / 1024;
        println!("{} ({size_kib} KiB)", made.display());
    }
    println!("needs glibc {}.{} or newer", glibc.0, glibc.1);
    if !jdbc {
        println!("without {}: there is no mvn, or no javac", tree::JDBC);
    }
    Ok(())
}

/// Builds into a target directory of its own: other flags would have cargo compile everything again each time.
fn built_for_debian_11(workspace: &Workspace, scratch: &Path, jdbc: bool) -> Result<PathBuf> {
    let sysroot = sysroot::prepare(&scratch.join("sysroot")).context(
        "cannot get Debian 11's glibc; `make packages NATIVE=1` builds for this machine's glibc and newer ones",
    )?;
    let dist = scratch.join("dist");
    let mut task = Command::new(std::env::current_exe()?);
    task.current_dir(&workspace.root)
        .args(["dist", "--no-suite", "--amalgamation", "--out"])
        .arg(&dist)
        .args(jdbc.then_some("--jdbc"));
    task.env("CARGO_TARGET_DIR", scratch.join("target")).env("CARGO_INCREMENTAL", "0");
    sysroot.settle(&mut task, &workspace.root)?;
    run_visibly(&mut task)?;
    Ok(dist)
}

/// Packages of other versions would be taken for what was made now.
fn remove_older(out: &Path) -> Result<()> {
    for entry in fs::read_dir(out)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("plait-") && (name.ends_with(".tar.gz") || name.ends_with(".deb")) {
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

/// Name of a package without its kind.
fn named(contents: &Contents) -> String {
    format!("plait-{VERSION}-linux-{}", contents.machine)
}

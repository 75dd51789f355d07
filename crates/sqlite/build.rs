//! Splices the amalgamation around `csrc/` and compiles it into this crate.
//!
//! The work is in the package `plait-splice` (`crates/sqlite/build/`), where it can be tested; here
//! it meets cargo.

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use plait_splice::edits::EDITS;
use plait_splice::splice::{Inputs, splice_to};
use plait_splice::{flags, upstream};

fn main() -> Result<()> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let workspace =
        package.ancestors().nth(2).context("this package lies two levels below the workspace")?;
    let csrc = package.join("csrc");

    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", csrc.display());
    println!("cargo::rerun-if-changed={}", package.join("include").display());
    for manifest in upstream::manifests(workspace) {
        println!("cargo::rerun-if-changed={}", manifest.display());
    }

    let inputs = Inputs {
        amalgamation: &upstream::amalgamation(workspace)?.source,
        csrc: &csrc,
        edits: &EDITS,
    };
    splice_to(&inputs, &out)?;

    let mut compiler = flags::compiler(&out);
    compiler.include(&csrc).include(&out).file(out.join("sqlite3.c"));
    if env::var_os("CARGO_FEATURE_CRASH_POINTS").is_some() {
        compiler.define("PLAIT_CRASH_POINTS", None);
    }
    compiler.try_compile("plait_sqlite3").context("cannot compile the spliced SQLite")
}

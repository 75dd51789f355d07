//! Splices the amalgamation around `csrc/` and compiles it into this crate.
//!
//! The work is in the package `plait-splice` (`crates/sqlite/build/`), where it can be tested; here
//! it meets cargo.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use plait_splice::edits::EDITS;
use plait_splice::splice::{Spliced, splice};
use plait_splice::wrappers::{Lists, parse_list};
use plait_splice::{flags, upstream};

fn main() -> Result<()> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let workspace = package
        .ancestors()
        .nth(2)
        .context("this package lies two levels below the workspace")?;
    let csrc = package.join("csrc");

    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", csrc.display());
    for manifest in upstream::manifests(workspace) {
        println!("cargo::rerun-if-changed={}", manifest.display());
    }

    let amalgamation = upstream::amalgamation(workspace)?;
    let lists = Lists {
        alternatives: read_list(&csrc.join("alternatives.txt"))?,
        handwritten: read_list(&csrc.join("handwritten.txt"))?,
    };
    let source = fs::read_to_string(&amalgamation.source)?;
    let spliced = splice(&source, &lists, EDITS)?;
    write(&spliced, &out)?;

    let mut compiler = flags::compiler(&out);
    compiler
        .include(&csrc)
        .include(&out)
        .file(out.join("sqlite3.c"));
    if env::var_os("CARGO_FEATURE_CRASH_POINTS").is_some() {
        compiler.define("PLAIT_CRASH_POINTS", None);
    }
    compiler
        .try_compile("plait_sqlite3")
        .context("cannot compile the spliced SQLite")
}

fn read_list(path: &Path) -> Result<std::collections::BTreeSet<String>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse_list(&text).with_context(|| path.display().to_string())
}

fn write(spliced: &Spliced, out: &Path) -> Result<()> {
    let headers = &spliced.headers;
    for (name, text) in [
        ("sqlite3.c", &spliced.source),
        ("pl_stock.h", &headers.stock),
        ("pl_rename.h", &headers.rename),
        ("pl_unrename.h", &headers.unrename),
        ("pl_forward.h", &headers.forward),
    ] {
        fs::write(out.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

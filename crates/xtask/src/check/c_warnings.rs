//! Compiler warnings about `csrc`, which cargo's build leaves out because the files are part of one
//! translation unit with all of SQLite.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use plait_splice::edits::EDITS;
use plait_splice::splice::{Inputs, splice_to};
use plait_splice::{flags, upstream};

use super::Finding;
use crate::target::Target;
use crate::toolchain::Toolchain;
use crate::workspace::Workspace;

/// Warnings that are asked for.
const WARNINGS: &[&str] = &[
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-sign-compare",
    "-Wno-missing-field-initializers",
];

/// Compiles the spliced amalgamation with warnings on and keeps those about our own files.
pub fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let toolchain = Toolchain::locate(Target::here()?)?;
    let csrc = workspace.root.join("crates/sqlite/csrc");
    let out = workspace.target.join("check");
    fs::create_dir_all(&out)?;
    let amalgamation = upstream::amalgamation(&workspace.root)?;
    splice_to(&Inputs { amalgamation: &amalgamation.source, csrc: &csrc, edits: &EDITS }, &out)?;
    let mut compiler = flags::compiler(&out);
    let done = toolchain
        .settle(&mut compiler)
        .warnings(true)
        .include(&csrc)
        .include(&out)
        .try_get_compiler()?
        .to_command()
        .args(WARNINGS)
        .arg("-fsyntax-only")
        .arg(out.join("sqlite3.c"))
        .output()
        .context("cannot start the C compiler")?;
    Ok(findings(&String::from_utf8_lossy(&done.stderr), &csrc))
}

/// Picks the lines `csrc/FILE:LINE:COLUMN: warning: TEXT`, also of errors.
fn findings(messages: &str, csrc: &Path) -> Vec<Finding> {
    messages
        .lines()
        .filter(|line| Path::new(line).starts_with(csrc))
        .filter_map(|line| {
            let mut parts = line.splitn(4, ':');
            let (path, number, _, what) =
                (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
            let is_note = what.trim_start().starts_with("note:");
            (!is_note).then(|| Finding {
                path: path.into(),
                line: number.parse().unwrap_or(0),
                what: what.trim().to_owned(),
            })
        })
        .collect()
}

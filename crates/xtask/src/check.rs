//! `check`: formatting, clippy, and the house rules that clippy does not know.
//!
//! Every rule runs even when another has failed, so that one run shows all there is to mend.

mod boundary;
mod c_warnings;
mod dependencies;
mod edits_page;
mod functions;
mod labels;
mod layers;
mod page_links;
mod runbook_page;
mod sources;
mod suites;
mod text;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
pub use labels::list as list_labels;

use crate::toolchain::run_visibly;
use crate::workspace::Workspace;

/// A breach of a rule.
#[derive(Clone)]
struct Finding {
    path: PathBuf,
    /// Counted from 1; 0 when the finding is about the file as a whole.
    line: usize,
    what: String,
}

/// Runs all checks; fails if any of them found something.
pub fn run() -> Result<()> {
    let workspace = Workspace::locate()?;
    let files = sources::collect(&workspace.root)?;
    let mut findings = Vec::new();
    for file in &files {
        findings.extend(text::check(file));
        findings.extend(functions::check(file));
        findings.extend(layers::check(file));
    }
    findings.extend(boundary::check(&files));
    findings.extend(dependencies::check(&workspace)?);
    findings.extend(edits_page::check(&workspace.root)?);
    findings.extend(suites::check(&workspace, &files)?);
    findings.extend(labels::check(&workspace, &files)?);
    findings.extend(page_links::check(&workspace.root, &sources::pages(&workspace.root)?)?);
    findings.extend(runbook_page::check(&workspace.root, &files)?);
    match c_warnings::check(&workspace) {
        Ok(more) => findings.extend(more),
        Err(error) => findings.push(Finding {
            path: PathBuf::from("crates/sqlite/csrc"),
            line: 0,
            what: format!("{error:#}"),
        }),
    }
    for Finding { path, line, what } in &findings {
        eprintln!("{}:{line}: {what}", path.display());
    }

    let cargo = [
        cargo(&workspace, &["fmt", "--all", "--check"]),
        cargo(
            &workspace,
            &["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"],
        ),
    ];
    if !findings.is_empty() || cargo.iter().any(Result::is_err) {
        bail!("the checks found something to mend, see above");
    }
    Ok(())
}

fn cargo(workspace: &Workspace, args: &[&str]) -> Result<()> {
    let done = run_visibly(Command::new("cargo").current_dir(&workspace.root).args(args));
    if let Err(error) = &done {
        eprintln!("{error:#}");
    }
    done
}

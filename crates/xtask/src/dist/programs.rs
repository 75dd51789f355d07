//! The programs of `bin/`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Context, install};
use crate::toolchain::run_visibly;

/// Installs the `sqlite3` shell and builds the `plait` command.
///
/// The shell is the very file that runs on the stock library: both find theirs beside them.
pub fn build(context: &Context, shell: &Path) -> Result<()> {
    let bin = context.out.join("bin");
    install::file(shell, &bin, "sqlite3")?;
    run_visibly(Command::new("cargo").current_dir(&context.workspace.root).args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "plait-cli",
    ]))?;
    let made = context.workspace.target.join("release/plait");
    install::file(&made, &bin, "plait")
}

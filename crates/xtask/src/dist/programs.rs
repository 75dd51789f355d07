//! The programs of `bin/`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Context, install};
use crate::toolchain::run_visibly;

/// Installs the `sqlite3` shell and builds the `plait` command and the evaluation suite.
///
/// The shell is the very file that runs on the stock library: both find theirs beside them.
pub fn build(context: &Context, shell: &Path) -> Result<()> {
    let bin = context.out.join("bin");
    install::file(shell, &bin, "sqlite3")?;
    build_and_install(context, &["--package", "plait-cli"], "plait")?;
    let suite = ["--package", "plait-bench", "--features", &context.peers];
    build_and_install(context, &suite, "plait-bench")
}

fn build_and_install(context: &Context, package: &[&str], program: &str) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&context.workspace.root).args(["build", "--quiet", "--release"]);
    run_visibly(cargo.args(package))?;
    let made = context.workspace.target.join("release").join(program);
    install::file(&made, &context.out.join("bin"), program)
}

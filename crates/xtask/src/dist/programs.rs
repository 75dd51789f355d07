//! The programs of `bin/`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Context, install};
use crate::toolchain::run_visibly;

/// Installs the `sqlite3` shell: the very file that runs on the stock library, both find theirs beside them.
pub fn shell(context: &Context, shell: &Path) -> Result<()> {
    install::file(shell, &context.out.join("bin"), "sqlite3")
}

/// Builds the `plait` command.
pub fn command(context: &Context) -> Result<()> {
    build_and_install(context, &["--package", "plait-cli"], "plait")
}

/// Builds the evaluation suite.
pub fn suite(context: &Context) -> Result<()> {
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

//! The programs of `bin/`.

use std::path::Path;

use anyhow::Result;

use super::{Context, install};
use crate::toolchain::run_visibly;

/// Installs the `sqlite3` shell: the very file that runs on the stock library, both find theirs beside them.
pub fn shell(context: &Context, shell: &Path) -> Result<()> {
    install::file(shell, &context.out.join("bin"), "sqlite3")
}

/// Installs the `plait` command, which was built with the library.
pub fn command(context: &Context) -> Result<()> {
    installed(context, "plait")
}

/// Installs `plait-replicate`, which was built with them.
pub fn replicate(context: &Context) -> Result<()> {
    installed(context, "plait-replicate")
}

/// Builds the evaluation suite.
pub fn suite(context: &Context) -> Result<()> {
    let mut cargo = context.cargo();
    cargo.arg("--quiet");
    run_visibly(cargo.args(["--package", "plait-bench", "--features", &context.peers]))?;
    installed(context, "plait-bench")
}

fn installed(context: &Context, program: &str) -> Result<()> {
    let made = context.made().join(program);
    install::file(&made, &context.out.join("bin"), program)
}

//! The stock library: the oracle of the tests and the baseline of every measurement.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use plait_splice::{exports, flags};

use super::{Context, install, link, shell};
use crate::toolchain::Stamp;

/// Builds the unspliced library and a shell that runs on it; returns the shell.
pub fn build(context: &Context) -> Result<PathBuf> {
    let cache = context.cache.join("stock");
    let library = library(context, &cache)?;
    let lib = context.out.join("stock/lib");
    install::file(&library, &lib, exports::SONAME)?;
    install::link(exports::SONAME, &lib, "libsqlite3.so")?;

    let program = shell::build(context, &context.amalgamation.header, &library, &cache)?;
    install::file(&program, &context.out.join("stock/bin"), "sqlite3")?;
    Ok(program)
}

fn library(context: &Context, cache: &Path) -> Result<PathBuf> {
    fs::create_dir_all(cache)?;
    let library = cache.join(exports::SONAME);
    Stamp::default()
        .text(context.toolchain.version())
        .text(&format!("{:?}", flags::DEFINES))
        .text(&exports::version_script())
        .text(&format!("{:?}", flags::compiler(cache)))
        .file(&context.amalgamation.source)?
        .guard(&library, || {
            let mut compiler = flags::compiler(cache);
            let objects = context
                .toolchain
                .settle(&mut compiler)
                .file(&context.amalgamation.source)
                .try_compile_intermediates()
                .context("cannot compile SQLite")?;
            let inputs: Vec<_> = objects.iter().map(|object| object.as_os_str()).collect();
            link::shared(context, &inputs, &library)
        })?;
    Ok(library)
}

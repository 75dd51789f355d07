//! The stock library: the oracle of the tests and the baseline of every measurement.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use plait_splice::{exports, flags};

use super::{Context, install, link, shell};
use crate::toolchain::Stamp;

/// Builds the unspliced library; returns where it was made.
pub fn shared(context: &Context) -> Result<PathBuf> {
    let library = library(context, &cache(context))?;
    let lib = context.out.join("stock/lib");
    install::file(&library, &lib, exports::SONAME)?;
    install::link(exports::SONAME, &lib, "libsqlite3.so")?;
    Ok(library)
}

/// Builds it and a shell that runs on it; returns the shell.
pub fn build(context: &Context, editing: shell::Editing) -> Result<PathBuf> {
    let library = shared(context)?;
    let program = shell::build(context, editing, &library, &cache(context))?;
    install::file(&program, &context.out.join("stock/bin"), "sqlite3")?;
    Ok(program)
}

fn cache(context: &Context) -> PathBuf {
    context.cache.join("stock")
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

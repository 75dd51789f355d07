//! SQLite's source with ours in it as one C file, and the engine as a static library: for build systems that take a `sqlite3.c`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use plait_splice::edits::EDITS;
use plait_splice::one_file::one_file;
use plait_splice::splice::Inputs;

use super::{Context, install, library, link};
use crate::toolchain::{Stamp, output, run};

/// The functions of `csrc/engine.h`, by which the C part calls the engine.
const ENGINE: &[&str] = &["pl_*"];

/// Where all of it is, below the directory of outputs.
const FOLDER: &str = "amalgamation";

/// Makes both and the headers; after the library.
pub fn build(context: &Context) -> Result<()> {
    let out = context.out.join(FOLDER);
    let cache = context.cache.join(FOLDER);
    fs::create_dir_all(&cache)?;
    let sqlite = context.workspace.root.join("crates/sqlite");
    let inputs = Inputs {
        amalgamation: &context.amalgamation.source,
        csrc: &sqlite.join("csrc"),
        edits: &EDITS,
    };
    install::text(&one_file(&inputs, &cache)?, &out, "plait-sqlite3.c")?;
    let engine = engine(context);
    let whole = library::whole_archive(context);
    Stamp::default().file(&whole)?.guard(&engine, || archive(context, &whole, &cache, &engine))?;
    install::file(&engine, &out, "libplait.a")?;
    install::file(&context.amalgamation.header, &out, "sqlite3.h")?;
    install::file(&context.amalgamation.extension_header, &out, "sqlite3ext.h")?;
    install::file(&sqlite.join("include/plait.h"), &out, "plait.h")
}

/// The engine for linking with SQLite's source; after [`build`].
pub fn engine(context: &Context) -> PathBuf {
    context.cache.join(FOLDER).join("libplait.a")
}

/// The engine alone: the archive that cargo made without the object of SQLite.
fn archive(context: &Context, whole: &Path, cache: &Path, archive: &Path) -> Result<()> {
    let ar = || context.toolchain.binutil("ar");
    let without = cache.join("without_sqlite.a");
    fs::copy(whole, &without).with_context(|| format!("cannot copy {}", whole.display()))?;
    let listed = output(ar().arg("t").arg(&without))?;
    let objects: Vec<&str> = listed.lines().filter(|name| is_sqlite(name)).collect();
    ensure!(objects.len() == 1, "the archive has other objects of SQLite than one: {objects:?}");
    run(ar().arg("d").arg(&without).args(objects))?;
    let object = cache.join("plait.o");
    link::one_object(context, &without, ENGINE, &object)?;
    fs::remove_file(&without)?;
    let _ = fs::remove_file(archive);
    let arguments = [OsStr::new("rcsD"), archive.as_os_str(), object.as_os_str()];
    run(ar().args(arguments))
}

/// Whether an object of the archive is the one that the build script has compiled from `sqlite3.c`.
fn is_sqlite(object: &str) -> bool {
    object == "sqlite3.o" || object.ends_with("-sqlite3.o")
}

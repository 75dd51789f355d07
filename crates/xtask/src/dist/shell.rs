//! The `sqlite3` command, from the pinned `shell.c`.
//!
//! `shell.c` comes from another release than the library. By default it compares the library's
//! source id with that of the header it was compiled against and exits when they
//! differ; compiled against the very header of the library they cannot differ, and with
//! `USE_SYSTEM_SQLITE=1` the check is left out, so that the shell also runs on another
//! build of the library. Everything it calls is public API, which SQLite keeps stable.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::Context;
use crate::toolchain::{Stamp, run};

/// What the shell is compiled with: the library's features that it has commands for.
const DEFINES: &[&str] = &[
    "-DUSE_SYSTEM_SQLITE=1",
    "-DSQLITE_THREADSAFE=1",
    "-DSQLITE_ENABLE_COLUMN_METADATA",
    "-DSQLITE_ENABLE_DBPAGE_VTAB",
    "-DSQLITE_ENABLE_DBSTAT_VTAB",
    "-DSQLITE_ENABLE_EXPLAIN_COMMENTS",
    "-DSQLITE_ENABLE_FTS3",
    "-DSQLITE_ENABLE_FTS4",
    "-DSQLITE_ENABLE_FTS5",
    "-DSQLITE_ENABLE_MATH_FUNCTIONS",
    "-DSQLITE_ENABLE_PREUPDATE_HOOK",
    "-DSQLITE_ENABLE_RTREE",
    "-DSQLITE_ENABLE_SESSION",
    "-DSQLITE_ENABLE_STMTVTAB",
    "-DSQLITE_ENABLE_UNKNOWN_SQL_FUNCTION",
];

/// Where it looks for the library: as packages lay it out, which must not find the system's in the
/// directory above; then as `dist` does.
const RUN_PATH: &str = "-Wl,-rpath,$ORIGIN/../lib/plait:$ORIGIN/../lib";

/// Whether the shell has readline, and zlib for archives.
#[derive(Clone, Copy)]
pub enum Editing {
    /// Where the compiler finds them.
    WhereFound,
    Never,
}

/// Builds a shell that finds `libsqlite3.so.0` in `lib/plait` or `lib` beside its own directory.
pub fn build(context: &Context, editing: Editing, library: &Path, cache: &Path) -> Result<PathBuf> {
    let program = cache.join("sqlite3");
    let header = &context.amalgamation.header;
    let include = header.parent().context("a header lies in a directory")?;
    let editing = match editing {
        Editing::WhereFound => line_editing(context)?,
        Editing::Never => Vec::new(),
    };
    Stamp::default()
        .text(context.toolchain.version())
        .text(&format!("{DEFINES:?} {RUN_PATH} {editing:?}"))
        .file(&context.shell_source)?
        .file(header)?
        .guard(&program, || {
            run(context
                .toolchain
                .command()?
                .args(["-O2", "-w"])
                .args(DEFINES)
                .arg("-I")
                .arg(include)
                .arg("-o")
                .arg(&program)
                .arg(&context.shell_source)
                .arg(library)
                .arg(RUN_PATH)
                .args(&editing)
                .args(["-lpthread", "-ldl", "-lm"]))
        })?;
    Ok(program)
}

/// Flags for readline and zlib where this machine has them; the shell works without.
fn line_editing(context: &Context) -> Result<Vec<&'static str>> {
    let mut flags = Vec::new();
    let optional: [(&str, &[&str]); 2] = [
        (
            "#include <stdio.h>\n#include <readline/readline.h>\n#include <readline/history.h>\nint main(void){ return readline(\"\")!=0; }\n",
            &["-DHAVE_READLINE=1", "-lreadline"],
        ),
        (
            "#include <zlib.h>\nint main(void){ return (int)crc32(0,0,0); }\n",
            &["-DSQLITE_HAVE_ZLIB=1", "-lz"],
        ),
    ];
    for (program, when_there) in optional {
        if compiles(context, program, when_there)? {
            flags.extend_from_slice(when_there);
        }
    }
    Ok(flags)
}

fn compiles(context: &Context, program: &str, flags: &[&str]) -> Result<bool> {
    let directory = context.cache.join("probe");
    fs::create_dir_all(&directory)?;
    let source = directory.join("probe.c");
    fs::write(&source, program)?;
    let done = context
        .toolchain
        .command()?
        .arg(&source)
        .args(flags)
        .arg("-o")
        .arg(directory.join("probe"))
        .output()
        .context("cannot start the C compiler")?;
    Ok(done.status.success())
}

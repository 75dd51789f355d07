//! Our library: the static archive that cargo makes of `plait-sqlite`, turned into a `libsqlite3`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use plait_splice::{exports, upstream};

use super::{Context, install, link};
use crate::toolchain::{Stamp, run, run_visibly};

/// Builds the shared library, and with it the `plait` command and, if `replicates`, `plait-replicate`.
///
/// One call of cargo makes all: in two of them what they depend on would have other features each time, and be compiled twice, with all of SQLite.
pub fn build(context: &Context, replicates: bool) -> Result<()> {
    let packages = ["--package", "plait-cli", "--package", "plait-replicate"];
    let packages = if replicates { &packages[..] } else { &packages[..2] };
    let shared = shared(context, packages, &cache(context))?;
    let lib = context.out.join("lib");
    install::file(&shared, &lib, exports::SONAME)?;
    install::link(exports::SONAME, &lib, "libsqlite3.so")
}

fn cache(context: &Context) -> PathBuf {
    context.cache.join("plait")
}

/// The archive that cargo made, SQLite and all of the Rust runtime in it; after [`build`].
pub fn whole_archive(context: &Context) -> PathBuf {
    cache(context).join("libplait_sqlite.a")
}

/// Makes the library that programs link statically, and installs what they are compiled with; after [`build`].
pub fn build_for_linking(context: &Context) -> Result<()> {
    let lib = context.out.join("lib");
    let archive = archive(context, &cache(context))?;
    install::file(&archive, &lib, "libsqlite3.a")?;
    install::text(&pkg_config(), &lib.join("pkgconfig"), "sqlite3.pc")?;

    let include = context.out.join("include");
    let own = context.workspace.root.join("crates/sqlite/include/plait.h");
    install::file(&context.amalgamation.header, &include, "sqlite3.h")?;
    install::file(&context.amalgamation.extension_header, &include, "sqlite3ext.h")?;
    install::file(&own, &include, "plait.h")
}

/// Builds the library that dies at named steps when told to, and `plait-replicate` with the same steps.
pub fn build_with_crash_points(context: &Context) -> Result<()> {
    let cache = context.cache.join("crash");
    let what = ["--package", "plait-replicate", "--features", "crash-points"];
    let shared = shared(context, &what, &cache)?;
    let crash = context.out.join("crash");
    let lib = crash.join("lib");
    install::file(&shared, &lib, exports::SONAME)?;
    install::link(exports::SONAME, &lib, "libsqlite3.so")?;
    install::file(&context.made().join("plait-replicate"), &crash.join("bin"), "plait-replicate")
}

/// Faults of memory and undefined behaviour. SQLite reads numbers where they stand, aligned or not.
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize=alignment"];

/// Builds the library with sanitizers in its C part. A program that loads it needs their runtime first in LD_PRELOAD.
pub fn build_with_sanitizers(context: &Context) -> Result<()> {
    let target = context.workspace.target.join("sanitize");
    let flags = format!("-O1 -g -fno-omit-frame-pointer {}", SANITIZERS.join(" "));
    let mut cargo = cargo(context);
    cargo.env("CARGO_TARGET_DIR", &target).env("CFLAGS", flags);
    let made = target.join("release");
    let shared = link_what_is_made(context, cargo, &made, &SANITIZERS, &target.join("dist"))?;
    install::file(&shared, &context.out.join("sanitize/lib"), exports::SONAME)
}

/// Lets `cargo` make the archive in `made`, and links it with ThreadSanitizer, whose runtime the linker finds in `target`.
pub fn build_with_thread_sanitizer(
    context: &Context,
    cargo: Command,
    made: &Path,
    target: &Path,
) -> Result<PathBuf> {
    let folder = format!("-L{}", target.display());
    let flags = [folder.as_str(), "-Wl,--no-as-needed", "-ltsan"];
    link_what_is_made(context, cargo, made, &flags, &target.join("dist"))
}

fn cargo(context: &Context) -> Command {
    let mut cargo = context.cargo();
    cargo.args(["--package", "plait-sqlite"]);
    cargo
}

/// Lets cargo make the archive, with further arguments, and links it into a shared library in `cache`.
fn shared(context: &Context, further: &[&str], cache: &Path) -> Result<PathBuf> {
    let mut cargo = cargo(context);
    cargo.args(further);
    let made = context.made();
    link_what_is_made(context, cargo, &made, &[], cache)
}

fn link_what_is_made(
    context: &Context,
    mut cargo: Command,
    made: &Path,
    flags: &[&str],
    cache: &Path,
) -> Result<PathBuf> {
    run_visibly(&mut cargo)?;
    fs::create_dir_all(cache)?;
    let made = made.join("libplait_sqlite.a");
    // Cargo puts the archives of all feature sets under one name: take this one aside.
    let archive = cache.join("libplait_sqlite.a");
    Stamp::default()
        .file(&made)?
        .guard(&archive, || fs::copy(&made, &archive).map(drop).context("cannot copy"))?;

    let shared = cache.join(exports::SONAME);
    Stamp::default()
        .text(context.toolchain.version())
        .text(&exports::version_script())
        .file(&archive)?
        .guard(&shared, || {
            let mut inputs: Vec<&OsStr> = flags.iter().map(OsStr::new).collect();
            inputs.extend([
                OsStr::new("-Wl,--whole-archive"),
                archive.as_os_str(),
                OsStr::new("-Wl,--no-whole-archive"),
                OsStr::new("-lgcc_s"),
            ]);
            link::shared(context, &inputs, &shared)
        })?;
    Ok(shared)
}

/// Makes an archive of one object in which only the API is visible.
fn archive(context: &Context, cache: &Path) -> Result<PathBuf> {
    let whole = cache.join("libplait_sqlite.a");
    let archive = cache.join("libsqlite3.a");
    Stamp::default().text(&format!("{:?}", exports::EXPORTED)).file(&whole)?.guard(
        &archive,
        || {
            let object = cache.join("sqlite3.o");
            link::one_object(context, &whole, exports::EXPORTED, &object)?;
            let _ = fs::remove_file(&archive);
            run(context.toolchain.binutil("ar").arg("rcs").arg(&archive).arg(&object))
        },
    )?;
    Ok(archive)
}

fn pkg_config() -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: SQLite\n\
         Description: SQL database engine (Plait: many writers on one file)\n\
         Version: {}\n\
         Libs: -L${{libdir}} -lsqlite3\n\
         Libs.private: -lpthread -ldl -lm\n\
         Cflags: -I${{includedir}}\n",
        upstream::SQLITE_VERSION
    )
}

//! better-sqlite3 with our library inside, compiled for Node-API: `npm/`, what the npm package holds.
//!
//! npm fetches better-sqlite3, which brings its JavaScript, its C++ and the amalgamation of the SQLite that we have too, but with a
//! parser that knows UPDATE and DELETE with LIMIT; and the headers of Node-API that the C++ is compiled with. Each is known by its
//! digest. Its amalgamation is spliced as ours is, and compiled with its options where they decide what a program sees. Node-API is
//! the same in all versions of Node since the one below, so one addon serves them; it brings its own C++ runtime, since that of a
//! system may be too old.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use plait_splice::edits::EDITS;
use plait_splice::one_file::one_file;
use plait_splice::splice::Inputs;

use super::{Context, amalgamation, install};
use crate::target::Target;
use crate::toolchain::{Stamp, output, run};

/// Where it is put, below the directory of outputs.
pub const FOLDER: &str = "npm";

/// A package of the registry, and the digest of its archive.
struct Fetched {
    name: &'static str,
    version: &'static str,
    sha256: &'static str,
}

const DRIVER: Fetched = Fetched {
    name: "better-sqlite3",
    version: "13.2.0",
    sha256: "40487589df3496f2ee0079d22b73c63fccebe7db0e8ee9a2c42421861e321e0b",
};
const WRAPPERS: Fetched = Fetched {
    name: "node-addon-api",
    version: "8.9.2",
    sha256: "4cd65698541b19a33f798f1dc25c02c6ed1c9d7749b8824b1a1ccecdd197c8ea",
};
const HEADERS: Fetched = Fetched {
    name: "node-api-headers",
    version: "1.9.0",
    sha256: "6cbfac49542194ae2c8f1dee5fa2dc00d66bec9cbf3b59e3a4e5f16d14eb0d19",
};

/// The version of better-sqlite3.
pub const DRIVER_VERSION: &str = DRIVER.version;

/// The version of Node-API, that of Node 22.14: the driver keeps references to strings, which older ones have not.
const NODE_API: &str = "-DNAPI_VERSION=10";

/// How SQLite is compiled for better-sqlite3, where that is otherwise than for us. What it omits is there.
const OPTIONS: [&str; 12] = [
    "-DSQLITE_DEFAULT_CACHE_SIZE=-16000",
    "-DSQLITE_DEFAULT_FOREIGN_KEYS=1",
    "-DSQLITE_DEFAULT_MEMSTATUS=0",
    "-DSQLITE_DEFAULT_WAL_SYNCHRONOUS=1",
    "-DSQLITE_DQS=0",
    "-DSQLITE_ENABLE_GEOPOLY=1",
    "-DSQLITE_ENABLE_PERCENTILE=1",
    "-DSQLITE_ENABLE_STAT4=1",
    "-DSQLITE_ENABLE_UPDATE_DELETE_LIMIT=1",
    // No mutex around a connection: an addon's connection is in the hands of one thread.
    "-DSQLITE_THREADSAFE=2",
    "-DSQLITE_TRACE_SIZE_LIMIT=32",
    "-DSQLITE_USE_URI=0",
];
const C: [&str; 6] =
    ["-O2", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-pthread", "-w"];
const CXX: [&str; 14] = [
    "-xc++",
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-pthread",
    "-w",
    "-DNDEBUG",
    "-DNAPI_DISABLE_CPP_EXCEPTIONS",
    "-DNODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS",
];
/// What of it is seen from outside: what Node asks for.
const SHOWN: &str =
    "{ global: napi_register_module_v1; node_api_module_get_api_version_v1; local: *; };\n";
const LINKING: [&str; 11] = [
    // Nothing of it binds to another SQLite or C++ runtime of the process.
    "-Wl,-Bsymbolic",
    "-Wl,--gc-sections",
    "-Wl,-z,relro",
    // Its threads outlive the thread of Node that has loaded it.
    "-Wl,-z,nodelete",
    "-Wl,-Bstatic",
    "-lstdc++",
    "-Wl,-Bdynamic",
    "-lgcc_s",
    "-lpthread",
    "-ldl",
    "-lm",
];

/// What the C++ runtime of this machine asks of a glibc that is newer than what the addon runs on.
const OLDER_GLIBC: &str = "packages/npm/older_glibc.c";

/// Whether this machine has what it takes.
pub fn has_tools() -> bool {
    Command::new("npm").arg("--version").output().is_ok_and(|o| o.status.success())
}

/// Makes it; after the amalgamation, whose engine it is linked with.
pub(super) fn build(context: &Context) -> Result<()> {
    let cache = context.cache.join(FOLDER);
    fs::create_dir_all(&cache)?;
    let driver = fetch(&DRIVER, &cache)?;
    let headers = [fetch(&WRAPPERS, &cache)?, fetch(&HEADERS, &cache)?.join("include")];
    let addon = cache.join("addon.node");
    let engine = amalgamation::engine(context);
    let sqlite = cache.join("plait-sqlite3.c");
    let inputs = Inputs {
        amalgamation: &driver.join("deps/sqlite3/sqlite3.c"),
        csrc: &context.workspace.root.join("crates/sqlite/csrc"),
        edits: &EDITS,
    };
    let source = one_file(&inputs, &cache)?;
    Stamp::default()
        .text(context.toolchain.version())
        .text(&format!("{NODE_API} {OPTIONS:?} {C:?} {CXX:?} {LINKING:?} {SHOWN}"))
        .text(&source)
        .file(&context.workspace.root.join(OLDER_GLIBC))?
        .file(&engine)?
        .guard(&addon, || {
            fs::write(&sqlite, &source)?;
            compile(context, &driver, &headers, &sqlite, &addon)
        })?;
    let out = context.out.join(FOLDER);
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let target = context.toolchain.target();
    let place = self::addon(&context.out, target);
    let prebuilds = place.parent().context("an addon lies in a folder")?;
    let name = place.file_name().and_then(|name| name.to_str()).context("an addon has a name")?;
    install::file(&addon, prebuilds, name)?;
    install::file(&driver.join("LICENSE"), &out, "LICENSE.better-sqlite3")?;
    let ours = format!("linux-{}.js", processor(target));
    javascript(&driver.join("lib"), &out.join("lib"), &ours)
}

/// Where the addon is, below the directory of outputs.
pub fn addon(out: &Path, target: &Target) -> PathBuf {
    out.join(FOLDER).join(format!("prebuilds/linux-{}.node", processor(target)))
}

/// A processor, as Node names it.
pub fn processor(target: &Target) -> &str {
    match target.machine.as_str() {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The folder of a package's files, which npm fetches unless it was fetched before.
fn fetch(package: &Fetched, cache: &Path) -> Result<PathBuf> {
    let Fetched { name, version, sha256 } = package;
    let folder = cache.join(format!("{name}-{version}"));
    if !folder.exists() {
        let archive = cache.join(format!("{name}-{version}.tgz"));
        run(Command::new("npm")
            .args(["pack", "--silent", "--ignore-scripts", "--pack-destination"])
            .arg(cache)
            .arg(format!("{name}@{version}")))
        .with_context(|| format!("npm cannot fetch {name} {version}"))?;
        let told = output(Command::new("sha256sum").arg(&archive))?;
        ensure!(
            told.split(' ').next() == Some(*sha256),
            "{} is not the pinned archive: its sha256 is to be {sha256}",
            archive.display()
        );
        let unpacked = folder.with_extension("new");
        if unpacked.exists() {
            fs::remove_dir_all(&unpacked)?;
        }
        fs::create_dir_all(&unpacked)?;
        run(Command::new("tar")
            .args(["--extract", "--strip-components=1", "--file"])
            .arg(&archive)
            .arg("--directory")
            .arg(&unpacked))?;
        fs::rename(&unpacked, &folder)?;
    }
    Ok(folder)
}

fn compile(
    context: &Context,
    driver: &Path,
    headers: &[PathBuf],
    sqlite: &Path,
    addon: &Path,
) -> Result<()> {
    let cache = addon.parent().context("an addon lies in a folder")?;
    let mut map = OsString::from("-ffile-prefix-map=");
    map.push(cache);
    map.push("=.");
    let objects = ["sqlite3.o", "driver.o", "older_glibc.o"].map(|name| cache.join(name));
    let compiler = || -> Result<Command> {
        let mut command = context.toolchain.command()?;
        // The same bytes in any folder.
        command.arg(&map).arg("-I").arg(driver.join("deps/sqlite3"));
        Ok(command)
    };
    run(compiler()?.args(C).args(OPTIONS).arg("-c").arg(sqlite).arg("-o").arg(&objects[0]))?;
    let older = context.workspace.root.join(OLDER_GLIBC);
    run(compiler()?.args(C).arg("-c").arg(older).arg("-o").arg(&objects[2]))?;
    let mut cxx = compiler()?;
    for folder in headers {
        cxx.arg("-I").arg(folder);
    }
    run(cxx
        .args(CXX)
        .arg(NODE_API)
        .arg("-c")
        .arg(driver.join("src/better_sqlite3.cpp"))
        .arg("-o")
        .arg(&objects[1]))
    .context("the driver is C++20: a compiler for that is needed, Debian's package g++")?;
    let script = addon.with_extension("map");
    fs::write(&script, SHOWN)?;
    let mut script_flag = OsString::from("-Wl,--version-script=");
    script_flag.push(&script);
    run(context
        .toolchain
        .command()?
        .args(["-shared", "-o"])
        .arg(addon)
        .args(&objects)
        .arg(amalgamation::engine(context))
        .arg(script_flag)
        .args(LINKING))?;
    only_node_is_missing(addon)
}

/// Fails if the addon calls what neither a system library nor Node has: the linker cannot tell, since Node is there at run time alone.
fn only_node_is_missing(addon: &Path) -> Result<()> {
    let listed = output(Command::new("nm").args(["-D", "--undefined-only"]).arg(addon))?;
    let strange: Vec<&str> = missing_in(&listed).collect();
    ensure!(
        strange.is_empty(),
        "the oldest system has not what the addon calls: {}",
        strange.join(", ")
    );
    Ok(())
}

/// Names without a version of a library that are not Node's.
fn missing_in(listed: &str) -> impl Iterator<Item = &str> {
    let names = listed.lines().filter_map(|line| line.trim_start().strip_prefix("U "));
    names.filter(|name| {
        !name.contains('@') && !name.starts_with("napi_") && !name.starts_with("node_api_")
    })
}

/// Copies the driver's JavaScript; of the files that name a platform, that of ours.
fn javascript(from: &Path, to: &Path, ours: &str) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_for = |system: &str| name.starts_with(system) && name.contains('-');
        if entry.file_type()?.is_dir() {
            javascript(&entry.path(), &to.join(&name), ours)?;
        } else if name == ours || !["linux", "darwin", "win32"].into_iter().any(is_for) {
            install::file(&entry.path(), to, &name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_nobody_answers_is_found() {
        let listed = "                 U napi_create_object\n                 U memcpy@GLIBC_2.14\n\
                      \x20                U node_api_symbol_for\n                 w __gmon_start__\n\
                      \x20                U sqlite3_open\n";
        assert_eq!(missing_in(listed).collect::<Vec<_>>(), ["sqlite3_open"]);
    }
}

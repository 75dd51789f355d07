//! Linking: a shared library that looks to the loader like the system's `libsqlite3.so.0`, and an archive made one object.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use anyhow::Result;
use plait_splice::exports;

use super::Context;
use crate::target::Libc;
use crate::toolchain::run;

/// System libraries that SQLite and the Rust runtime call.
const SYSTEM_LIBRARIES: &[&str] = &["-lpthread", "-ldl", "-lm", "-lc"];

/// Links `inputs` (object files, archives and flags for them) into `output`.
///
/// A symbol without a definition is an error here, not a surprise in the program that loads it.
pub fn shared(context: &Context, inputs: &[&OsStr], output: &Path) -> Result<()> {
    let script = output.with_extension("map");
    fs::write(&script, exports::version_script())?;
    let mut script_flag = OsString::from("-Wl,--version-script=");
    script_flag.push(&script);
    run(context
        .toolchain
        .command()?
        .arg("-shared")
        .arg("-o")
        .arg(output)
        .arg(format!("-Wl,-soname,{}", exports::SONAME))
        .arg(script_flag)
        .args([
            // Calls inside the library stay inside it, whatever else the program has loaded.
            "-Wl,-Bsymbolic-functions",
            "-Wl,-z,defs",
            "-Wl,-z,relro",
            "-Wl,--gc-sections",
            // Its threads and its fork handlers outlive a dlclose() with connections open.
            "-Wl,-z,nodelete",
        ])
        .args(inputs)
        .args(SYSTEM_LIBRARIES))
}

/// Links all of `archive` into one object, in which only symbols of these patterns are visible.
///
/// Cargo's own archive shows every symbol of the Rust runtime, which would collide with those of a
/// Rust program that links it. Nor is a section in a group that such a program has as well: rust-lld
/// would keep the program's and discard the one that this object needs. What unwinds the stack when Rust panics comes from
/// gcc's library with glibc. With musl it is inside: a compiler for musl need not have that library.
pub fn one_object(
    context: &Context,
    archive: &Path,
    visible: &[&str],
    object: &Path,
) -> Result<()> {
    let unwinder: &[&str] = match context.toolchain.target().libc {
        Libc::Glibc => &[],
        Libc::Musl => &["-Wl,--no-whole-archive", "-lgcc_s"],
    };
    run(context
        .toolchain
        .command()?
        .args(["-nostdlib", "-r", "-Wl,--force-group-allocation", "-Wl,--whole-archive"])
        .arg(archive)
        .args(unwinder)
        .arg("-o")
        .arg(object))?;
    let keep = visible.iter().map(|pattern| format!("--keep-global-symbol={pattern}"));
    run(context
        .toolchain
        .binutil("objcopy")
        .arg("--wildcard")
        // Bitcode of the Rust runtime, of which linking several objects into one makes garbage.
        .args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"])
        .args(keep)
        .arg(object))
}

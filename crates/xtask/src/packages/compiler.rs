//! The C compiler of this machine, made to build for a target and against a [`Sysroot`]: a command `cc` that adds what it takes.
//!
//! For another processor it is Debian's cross compiler. For musl it is the same gcc as for glibc, with headers, start files
//! and libraries of musl in place of its own, by a file of specifications, as musl's own `musl-gcc` does. Of gcc's
//! libraries only `libgcc.a` stays, which calls no C library. What unwinds the stack is Rust's `libunwind.a`, in place of gcc's
//! `libgcc_s.so.1`: that of Debian needs glibc, and a system with musl need not have one.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::sysroot::Sysroot;
use crate::target::{Libc, Target};
use crate::toolchain::output;
use crate::tree::permit;

/// The command, and what it is for.
pub struct Compiler {
    command: PathBuf,
    target: Target,
}

/// Writes the command. Rust's standard library for the target lies in `std`.
pub fn prepare(command: &Path, sysroot: &Sysroot, std: &Path, target: &Target) -> Result<Compiler> {
    let gcc = gcc(target)?;
    let flags = match target.libc {
        Libc::Glibc => for_glibc(&gcc, sysroot, target)?,
        Libc::Musl => {
            let specification = command.with_extension("specs");
            let said = output(Command::new(&gcc).arg("--version"))
                .with_context(|| format!("{gcc} cannot be started"))?;
            ensure!(said.contains("Free Software"), "{gcc} is not gcc, which musl needs: set CC");
            complete(sysroot, std, target)?;
            fs::write(&specification, for_musl(sysroot, target))?;
            let specification = format!("-specs={}", specification.display());
            // For what atomics can do there, libgcc would ask glibc.
            let atomics = if target.machine == "aarch64" { " -mno-outline-atomics" } else { "" };
            specification + atomics
        }
    };
    // Where this command is the first `cc` of a search path it must not find itself.
    let real = output(Command::new("sh").args(["-c", "command -v \"$1\"", "sh", &gcc]))?;
    fs::write(command, format!("#!/bin/sh\nexec {} {flags} \"$@\"\n", real.trim()))
        .with_context(|| format!("cannot write {}", command.display()))?;
    permit(command, 0o755)?;
    Ok(Compiler { command: command.to_owned(), target: target.clone() })
}

impl Compiler {
    /// Has `task` and what it starts build with this, and leave the names of this machine's folders out of what it builds.
    pub fn settle(&self, task: &mut Command, root: &Path) -> Result<()> {
        let root = root.to_str().context("the folder's name is not UTF-8")?;
        let mut rust = vec![format!("--remap-path-prefix={root}=/plait")];
        if let Some(home) = cargo_home() {
            rust.push(format!("--remap-path-prefix={}=/cargo", home.display()));
        }
        if self.target.libc == Libc::Musl {
            // A static program could load no library.
            rust.push("-Ctarget-feature=-crt-static".to_owned());
        }
        task.env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}")).env_remove("RUSTFLAGS");
        let target = self.target.in_variables();
        let upper = target.to_uppercase();
        task.env(format!("CARGO_TARGET_{upper}_LINKER"), &self.command);
        task.env(format!("CC_{target}"), &self.command);
        task.env(format!("AR_{target}"), self.target.tool("ar"));
        task.env(format!("CFLAGS_{target}"), format!("-ffile-prefix-map={root}=/plait"));
        Ok(())
    }
}

/// The compiler for the processor: `CC` for this machine's own.
fn gcc(target: &Target) -> Result<String> {
    if !target.is_foreign() {
        return Ok(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    }
    let gcc = target.tool("gcc");
    output(Command::new(&gcc).arg("--version")).with_context(|| {
        format!(
            "a compiler for {0} is needed: Debian's packages gcc-{0}-linux-gnu and qemu-user",
            target.machine.replace('_', "-")
        )
    })?;
    Ok(gcc)
}

fn for_glibc(gcc: &str, sysroot: &Sysroot, target: &Target) -> Result<String> {
    let mut flags = format!("--sysroot={}", sysroot.path.display());
    for folder in sysroot.libraries() {
        // Before the compiler's own directories, which lead to this machine's libraries. Writing to a String cannot fail.
        let _ = write!(flags, " -B{}", folder.display());
    }
    if target.is_foreign() {
        // A cross compiler has headers of its own C library, and looks there first.
        let own = output(Command::new(gcc).arg("-print-file-name=include"))?;
        let headers = sysroot.headers();
        let _ = write!(
            flags,
            " -nostdinc -isystem {} -isystem {} -isystem {}",
            own.trim(),
            headers.join(target.tuple()).display(),
            headers.display()
        );
    }
    Ok(flags)
}

/// Puts into the directory what Debian's musl lacks for this.
fn complete(sysroot: &Sysroot, std: &Path, target: &Target) -> Result<()> {
    let [libraries, _] = sysroot.libraries();
    let unwinder = std.join("self-contained/libunwind.a");
    // Under the name by which Rust's standard library asks for what unwinds the stack.
    fs::copy(&unwinder, libraries.join("libgcc_s.a"))
        .with_context(|| format!("cannot copy {}", unwinder.display()))?;
    // Programs ask for a library by the name of its file where it has no other.
    fs::copy(sysroot.path.join(target.loader()), libraries.join(target.musl()))
        .context("cannot copy Debian's musl")?;
    fs::write(libraries.join("libc.so"), format!("INPUT(-l:{})\n", target.musl()))?;
    Ok(())
}

/// What gcc compiles and links with in place of what it was built for.
fn for_musl(sysroot: &Sysroot, target: &Target) -> String {
    let headers = sysroot.headers();
    let headers = headers.display();
    let [libraries, _] = sysroot.libraries();
    let libraries = libraries.display();
    let loader = target.loader();
    format!(
        "%rename cpp_options own_cpp_options\n\n\
         *cpp_options:\n-nostdinc -isystem {headers} -isystem include%s %(own_cpp_options)\n\n\
         *cc1:\n%(cc1_cpu) -nostdinc -isystem {headers} -isystem include%s\n\n\
         *link_libgcc:\n-L{libraries} -L .%s\n\n\
         *libgcc:\nlibgcc.a%s -lgcc_s\n\n\
         *startfile:\n%{{shared:;static-pie:{libraries}/rcrt1.o;:{libraries}/Scrt1.o}} {libraries}/crti.o crtbeginS.o%s\n\n\
         *endfile:\ncrtendS.o%s {libraries}/crtn.o\n\n\
         *link:\n-nostdlib --eh-frame-hdr %{{shared:-shared}} %{{rdynamic:-export-dynamic}} \
         %{{static:-static;static-pie:-static -pie --no-dynamic-linker -z text;:-dynamic-linker /{loader}}}\n\n"
    )
}

fn cargo_home() -> Option<PathBuf> {
    let told = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    told.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))
}

//! The C library of Debian 11 and its headers, with glibc `libgcc_s.so.1` too, for this machine's compiler to build against.
//!
//! A program asks for the newest version of each symbol that the glibc has which it was linked with, so the libraries of
//! an older release make programs that run on it and on all that came later. Musl has no versions of symbols, and an older one
//! lacks the newer symbols. apt fetches the packages from where this machine gets its own, and checks Debian's signature.
//!
//! Only the directory is touched: nothing is installed, and apt's own lists stay as they are.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::target::{Libc, Target};
use crate::toolchain::{output, run};

const RELEASE: &str = "bullseye";
const KEY: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const GLIBC: &[&str] =
    &["libc6", "libc6-dev", "libgcc-s1", "linux-libc-dev", "libcrypt1", "libcrypt-dev"];
const MUSL: &[&str] = &["musl", "musl-dev", "linux-libc-dev"];

/// A directory in which the compiler finds the system that it builds for.
pub struct Sysroot {
    pub path: PathBuf,
    target: Target,
}

/// Fills the directory, unless it was filled before.
pub fn prepare(path: &Path, target: &Target) -> Result<Sysroot> {
    let name = path.to_str().context("the folder's name is not UTF-8")?;
    // The specification of a compiler cannot quote.
    ensure!(!name.contains(char::is_whitespace), "the folder's name has a space: {name}");
    // A half-filled one is not taken for a whole one: it gets its name at the end.
    if !path.exists() {
        let filling = path.with_extension("new");
        if filling.exists() {
            fs::remove_dir_all(&filling)?;
        }
        fill(&filling, target)?;
        fs::rename(&filling, path)?;
    }
    Ok(Sysroot { path: path.to_owned(), target: target.clone() })
}

impl Sysroot {
    /// The headers of the C library.
    pub fn headers(&self) -> PathBuf {
        match self.target.libc {
            Libc::Glibc => self.path.join("usr/include"),
            Libc::Musl => self.path.join("usr/include").join(self.target.tuple()),
        }
    }

    /// The directories of its libraries.
    pub fn libraries(&self) -> [PathBuf; 2] {
        ["usr/lib", "lib"].map(|folder| self.path.join(folder).join(self.target.tuple()))
    }

    /// What starts a program of the target here, before its name: nothing where this machine does it by itself.
    pub fn runner(&self) -> Vec<OsString> {
        let emulator = || format!("qemu-{}", self.target.machine).into();
        match (self.target.is_foreign(), self.target.libc) {
            (true, _) => vec![emulator(), "-L".into(), self.path.clone().into()],
            (false, Libc::Musl) => vec![self.path.join(self.target.loader()).into()],
            (false, Libc::Glibc) => Vec::new(),
        }
    }
}

fn fill(path: &Path, target: &Target) -> Result<()> {
    let apt = path.with_extension("apt");
    for folder in ["lists/partial", "cache/archives/partial", "packages"] {
        fs::create_dir_all(apt.join(folder))?;
    }
    let at = apt.display();
    let sources: String = mirrors(target)?
        .iter()
        .map(|(mirror, suite)| format!("deb [signed-by={KEY}] {mirror} {suite} main\n"))
        .collect();
    fs::write(apt.join("sources"), sources)?;
    // Nothing counts as installed, or apt would look for the versions that this machine has.
    fs::write(apt.join("status"), "")?;
    fs::write(
        apt.join("conf"),
        format!(
            "Dir::Etc::sourcelist \"{at}/sources\";\nDir::Etc::sourceparts \"-\";\nDir::State::lists \"{at}/lists\";\n\
             Dir::State::status \"{at}/status\";\nDir::Cache \"{at}/cache\";\nAcquire::Languages \"none\";\n\
             APT::Sandbox::User \"root\";\nAcquire::Retries \"3\";\n\
             APT::Architecture \"{0}\";\nAPT::Architectures {{ \"{0}\"; }};\n",
            target.debian()
        ),
    )?;
    let packages = match target.libc {
        Libc::Glibc => GLIBC,
        Libc::Musl => MUSL,
    };
    let with_conf = || {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", apt.join("conf")).current_dir(apt.join("packages"));
        command
    };
    run(with_conf().args(["update", "-qq"]))?;
    run(with_conf().args(["download", "-qq"]).args(packages))?;
    for package in fs::read_dir(apt.join("packages"))? {
        run(Command::new("dpkg-deb").arg("--extract").arg(package?.path()).arg(path))?;
    }
    lead_inside(path, path)?;
    fs::remove_dir_all(&apt).context("cannot remove apt's files")
}

/// Where this machine gets Debian's packages from, with the suites of the older release: its own and that of security.
fn mirrors(target: &Target) -> Result<Vec<(String, String)>> {
    let told = output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(LABEL) $(REPO_URI)",
        "Created-By: Packages",
    ]))?;
    let find = |label: &str| {
        told.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(' ').map(str::to_owned))
    };
    let main = find("Debian").context("apt knows no mirror of Debian: run `apt-get update`")?;
    let mut mirrors = vec![(main, RELEASE.to_owned())];
    // Not every mirror has security's packages for other processors. What is linked with, names and versions, is in both.
    if let Some(security) = find("Debian-Security").filter(|_| !target.is_foreign()) {
        mirrors.push((security, format!("{RELEASE}-security")));
    }
    Ok(mirrors)
}

/// Links with absolute targets lead out of the directory, to this machine's files.
fn lead_inside(folder: &Path, top: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            lead_inside(&path, top)?;
        } else if kind.is_symlink()
            && let Ok(inside) = fs::read_link(&path)?.strip_prefix("/")
        {
            let up = "../".repeat(path.strip_prefix(top)?.iter().count() - 1);
            fs::remove_file(&path)?;
            symlink(Path::new(&up).join(inside), &path)?;
        }
    }
    Ok(())
}

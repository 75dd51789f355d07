//! Debian 11's glibc, its headers and its `libgcc_s.so.1`, for this machine's compiler to build against.
//!
//! A program asks for the newest version of each symbol that the glibc has which it was linked with, so the libraries of
//! an older release make programs that run on it and on all that came later. apt fetches the packages from where this
//! machine gets its own, and checks Debian's signature.
//!
//! Only the directory is touched: nothing is installed, and apt's own lists stay as they are.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::toolchain::{output, run};

const RELEASE: &str = "bullseye";
const KEY: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const PACKAGES: &[&str] =
    &["libc6", "libc6-dev", "libgcc-s1", "linux-libc-dev", "libcrypt1", "libcrypt-dev"];

/// A directory in which the compiler finds the system that it builds for.
pub struct Sysroot {
    path: PathBuf,
    /// Debian's name of the directories of libraries of this processor.
    tuple: String,
}

/// Fills the directory, unless it was filled before.
pub fn prepare(path: &Path) -> Result<Sysroot> {
    let tuple = output(Command::new("dpkg-architecture").arg("--query=DEB_HOST_MULTIARCH"))
        .or_else(|_| output(Command::new("cc").arg("-print-multiarch")))?;
    let sysroot = Sysroot { path: path.to_owned(), tuple: tuple.trim().to_owned() };
    // A half-filled one is not taken for a whole one: it gets its name at the end.
    if !path.exists() {
        let filling = path.with_extension("new");
        if filling.exists() {
            fs::remove_dir_all(&filling)?;
        }
        fill(&filling)?;
        fs::rename(&filling, path)?;
    }
    Ok(sysroot)
}

impl Sysroot {
    /// Has `task` and what it starts build against this, and leave the names of this machine's folders out of what it builds.
    pub fn settle(&self, task: &mut Command, root: &Path) -> Result<()> {
        let path = self.path.to_str().context("the folder's name is not UTF-8")?;
        let root = root.to_str().context("the folder's name is not UTF-8")?;
        ensure!(!path.contains(char::is_whitespace), "the folder's name has a space: {path}");
        let where_to_look = [
            format!("--sysroot={path}"),
            // Before the compiler's own directories, which lead to this machine's libraries.
            format!("-B{path}/usr/lib/{}", self.tuple),
            format!("-B{path}/lib/{}", self.tuple),
        ];
        let mut rust: Vec<String> =
            where_to_look.iter().map(|flag| format!("-Clink-arg={flag}")).collect();
        rust.push(format!("--remap-path-prefix={root}=/plait"));
        if let Some(home) = cargo_home() {
            rust.push(format!("--remap-path-prefix={}=/cargo", home.display()));
        }
        task.env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}")).env_remove("RUSTFLAGS");
        task.env("CFLAGS", format!("{} -ffile-prefix-map={root}=/plait", where_to_look.join(" ")));
        Ok(())
    }
}

fn cargo_home() -> Option<PathBuf> {
    let told = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    told.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))
}

fn fill(path: &Path) -> Result<()> {
    let apt = path.with_extension("apt");
    for folder in ["lists/partial", "cache/archives/partial", "packages"] {
        fs::create_dir_all(apt.join(folder))?;
    }
    let at = apt.display();
    let sources: String = mirrors()?
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
             APT::Sandbox::User \"root\";\nAcquire::Retries \"3\";\n"
        ),
    )?;
    let with_conf = || {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", apt.join("conf")).current_dir(apt.join("packages"));
        command
    };
    run(with_conf().args(["update", "-qq"]))?;
    run(with_conf().args(["download", "-qq"]).args(PACKAGES))?;
    for package in fs::read_dir(apt.join("packages"))? {
        run(Command::new("dpkg-deb").arg("--extract").arg(package?.path()).arg(path))?;
    }
    lead_inside(path, path)?;
    fs::remove_dir_all(&apt).context("cannot remove apt's files")
}

/// Where this machine gets Debian's packages from, with the suites of the older release: its own and that of security.
fn mirrors() -> Result<Vec<(String, String)>> {
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
    if let Some(security) = find("Debian-Security") {
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

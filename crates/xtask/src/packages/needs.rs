//! What a program or library asks of the system that it runs on.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use plait_splice::exports;

use crate::target::{self, Target};
use crate::toolchain::output;

/// Major and minor number of a release of glibc.
type Version = (u32, u32);

/// The glibc that packages may ask for: Debian 11's.
const GLIBC_MAX: Version = (2, 31);

/// The musl that programs are linked with, Debian 11's: they find there all that they ask for. Symbols of musl have no versions.
const MUSL: &str = "1.2.2";

/// A C library.
#[derive(Clone, Copy, Debug)]
pub enum Libc {
    /// The newest version that a symbol is asked of.
    Glibc(Version),
    Musl,
}

impl Libc {
    /// Fails if it is newer than Debian 11's.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Glibc(version) if version > GLIBC_MAX => {
                bail!("the packages would ask for {self}: newer than Debian 11's")
            }
            Self::Glibc(_) | Self::Musl => Ok(()),
        }
    }

    /// Its oldest version that will do.
    pub fn version(self) -> String {
        match self {
            Self::Glibc((major, minor)) => format!("{major}.{minor}"),
            Self::Musl => MUSL.to_owned(),
        }
    }
}

impl fmt::Display for Libc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Glibc(_) => target::Libc::Glibc.name(),
            Self::Musl => target::Libc::Musl.name(),
        };
        write!(out, "{name} {}", self.version())
    }
}

/// What these files ask for; with musl, nothing besides it and our own library.
pub fn libc(target: &Target, files: &[PathBuf]) -> Result<Libc> {
    match target.libc {
        target::Libc::Glibc => glibc(files).map(Libc::Glibc),
        target::Libc::Musl => {
            files.iter().try_for_each(|file| only_musl(target, file))?;
            Ok(Libc::Musl)
        }
    }
}

fn glibc(files: &[PathBuf]) -> Result<Version> {
    let mut newest = (0, 0);
    for file in files {
        let listed = output(Command::new("readelf").arg("-VW").arg(file))?;
        let needs =
            newest_in(&listed).with_context(|| format!("{} asks for no glibc", file.display()))?;
        newest = newest.max(needs);
    }
    ensure!(newest.0 == 2, "unknown version of glibc: {}.{}", newest.0, newest.1);
    Ok(newest)
}

fn newest_in(listed: &str) -> Option<Version> {
    let named = listed.split("Name: GLIBC_").skip(1);
    let versions = named.filter_map(|rest| {
        let text = rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
        let mut parts = text.split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    versions.max()
}

fn only_musl(target: &Target, file: &Path) -> Result<()> {
    let listed = output(Command::new("readelf").arg("-dW").arg(file))?;
    let mut needed = needed_in(&listed);
    needed.retain(|&library| library != exports::SONAME);
    ensure!(
        needed == [target.musl()],
        "{} would ask for {}, and not for {} alone",
        file.display(),
        needed.join(", "),
        target.musl()
    );
    Ok(())
}

fn needed_in(listed: &str) -> Vec<&str> {
    let lines = listed.lines().filter(|line| line.contains("(NEEDED)"));
    lines.filter_map(|line| line.split_once('[')?.1.split(']').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_the_greatest_number() {
        let listed = "  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 7\n\
                      \x20 0x0020:   Name: GLIBC_2.29  Flags: none  Version: 3\n\
                      \x20 0x0030:   Name: GLIBC_2.2.5  Flags: none  Version: 2\n\
                      \x20 0x0040:   Name: GCC_4.2.0  Flags: none  Version: 4\n";
        assert_eq!(newest_in(listed), Some((2, 29)));
        assert_eq!(newest_in("Name: GLIBC_PRIVATE"), None);
    }

    #[test]
    fn packages_may_not_ask_for_a_newer_glibc() {
        assert!(Libc::Glibc((2, 31)).check().is_ok());
        let said = Libc::Glibc((2, 34)).check().unwrap_err().to_string();
        assert_eq!(said, "the packages would ask for glibc 2.34: newer than Debian 11's");
    }

    #[test]
    fn each_library_that_is_asked_for_is_found() {
        let listed = " 0x01 (NEEDED)             Shared library: [libgcc_s.so.1]\n\
                      \x200x01 (NEEDED)             Shared library: [libc.so]\n\
                      \x200x0e (SONAME)             Library soname: [libsqlite3.so.0]\n";
        assert_eq!(needed_in(listed), ["libgcc_s.so.1", "libc.so"]);
    }
}

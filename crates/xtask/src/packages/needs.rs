//! What a program or library asks of the system that it runs on.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::toolchain::output;

/// Major and minor number of a release of glibc.
pub type Version = (u32, u32);

/// The newest version that a symbol of these files is asked of.
pub fn glibc(files: &[PathBuf]) -> Result<Version> {
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
}

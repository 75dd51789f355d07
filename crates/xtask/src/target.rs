//! What is built for: a processor and a C library, as Rust, Debian and the packages name them.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::toolchain::output;

/// What packages are made for.
const TRIPLES: [&str; 4] = [
    "x86_64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-gnu",
    "aarch64-unknown-linux-musl",
];

/// A C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    Glibc,
    Musl,
}

impl Libc {
    /// Its name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::Musl => "musl",
        }
    }
}

/// A processor and a C library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    triple: String,
    /// The processor, as Rust names it.
    pub machine: String,
    pub libc: Libc,
    /// Another processor than that of this machine.
    is_foreign: bool,
}

impl Target {
    /// This machine.
    pub fn here() -> Result<Self> {
        Self::of(&host()?)
    }

    /// The one with this name, or this machine, if packages are made for it.
    pub fn named(triple: Option<&str>) -> Result<Self> {
        let target = triple.map_or_else(Self::here, Self::of)?;
        ensure!(
            TRIPLES.contains(&target.triple()),
            "no packages are made for {}; TARGET is one of {}",
            target.triple,
            TRIPLES.join(", ")
        );
        Ok(target)
    }

    fn of(triple: &str) -> Result<Self> {
        let machine = processor(triple)?;
        Ok(Self {
            is_foreign: machine != processor(&host()?)?,
            machine: machine.to_owned(),
            libc: if triple.ends_with("musl") { Libc::Musl } else { Libc::Glibc },
            triple: triple.to_owned(),
        })
    }

    /// As Rust names it.
    pub fn triple(&self) -> &str {
        &self.triple
    }

    /// As packages name it: the processor, and the C library if it is not glibc.
    pub fn label(&self) -> String {
        match self.libc {
            Libc::Glibc => self.machine.clone(),
            Libc::Musl => format!("{}-musl", self.machine),
        }
    }

    /// As variables of the environment for `cargo` and `cc` name it.
    pub fn in_variables(&self) -> String {
        self.triple.replace('-', "_")
    }

    /// The processor, as Debian names it.
    pub fn debian(&self) -> &str {
        match self.machine.as_str() {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }

    /// Debian's name of its directories of libraries.
    pub fn tuple(&self) -> String {
        match self.libc {
            Libc::Glibc => format!("{}-linux-gnu", self.machine),
            Libc::Musl => format!("{}-linux-musl", self.machine),
        }
    }

    /// The name by which Alpine's programs ask for musl. The loader knows itself by it on every system with musl.
    pub fn musl(&self) -> String {
        format!("libc.musl-{}.so.1", self.machine)
    }

    /// The path of musl's loader, without the slash at its head.
    pub fn loader(&self) -> String {
        format!("lib/ld-musl-{}.so.1", self.machine)
    }

    /// The name of a program of binutils or gcc that works for the processor.
    pub fn tool(&self, name: &str) -> String {
        match self.is_foreign {
            true => format!("{}-linux-gnu-{name}", self.machine),
            false => name.to_owned(),
        }
    }

    /// Whether the processor is another than that of this machine.
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }
}

fn host() -> Result<String> {
    let rustc = output(Command::new("rustc").arg("-vV"))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

fn processor(triple: &str) -> Result<&str> {
    triple.split('-').next().context("a platform has a processor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_names_of_its_own() {
        let targets = TRIPLES.map(|triple| Target::named(Some(triple)).unwrap());
        let labels: Vec<String> = targets.iter().map(Target::label).collect();
        assert_eq!(labels, ["x86_64", "x86_64-musl", "aarch64", "aarch64-musl"]);
        assert_eq!(targets[3].tuple(), "aarch64-linux-musl");
        assert_eq!(targets[3].debian(), "arm64");
        assert_eq!(targets[1].in_variables(), "x86_64_unknown_linux_musl");
    }

    #[test]
    fn another_processor_has_tools_of_its_own() {
        let own = Target::named(None).unwrap();
        assert_eq!(own.tool("strip"), "strip");
        let other = if own.machine == "aarch64" { TRIPLES[0] } else { TRIPLES[3] };
        let other = Target::named(Some(other)).unwrap();
        assert_eq!(other.tool("strip"), format!("{}-linux-gnu-strip", other.machine));
    }

    #[test]
    fn what_nothing_is_made_for_is_refused_by_name() {
        let said = Target::named(Some("riscv64gc-unknown-linux-gnu")).unwrap_err().to_string();
        assert!(said.contains("TARGET is one of x86_64-unknown-linux-gnu"), "{said}");
    }
}

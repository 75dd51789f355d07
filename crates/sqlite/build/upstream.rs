//! Finds the SQLite sources that this project builds on and proves that they are the expected ones.
//!
//! The sources live in two crates.io packages that both claim `links = "sqlite3"`, so no single
//! dependency graph can hold them. Each has a nested manifest of its own under
//! `crates/sqlite/upstream/`, whose lock file pins the package's checksum; `cargo metadata --locked`
//! on it downloads what is missing and says where the package was unpacked. When
//! the package was unpacked before, no network is needed.
//!
//! Cargo verifies the download, not the unpacked files, which anybody may have edited since; so every file that is
//! compiled is hashed here as well.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::manifest;

/// The version of SQLite that the edits in [`crate::edits`] were written for.
pub const SQLITE_VERSION: &str = "3.54.1";

/// One pinned package and the files of it that are used.
struct Package {
    manifest: &'static str,
    name: &'static str,
    version: &'static str,
    files: &'static [File],
}

struct File {
    path: &'static str,
    sha256: &'static str,
}

const AMALGAMATION: Package = Package {
    manifest: "crates/sqlite/upstream/amalgamation/Cargo.toml",
    name: "libsqlite3-sys",
    version: "0.39.1",
    files: &[
        File {
            path: "sqlite3/sqlite3.c",
            sha256: "0c657666d819f261cc4007526ad57e1669de9949df7a8ea847aa284a2bf0ee52",
        },
        File {
            path: "sqlite3/sqlite3.h",
            sha256: "d6c84557261893439b341d2e6c35187ae3ea24fbfd843ad94616f72d89242b8c",
        },
        File {
            path: "sqlite3/sqlite3ext.h",
            sha256: "48963abfefb41ac329ef9d706acb5eadba952a99a748285c9ded6b5e0942721b",
        },
    ],
};

const SHELL: Package = Package {
    manifest: "crates/sqlite/upstream/shell/Cargo.toml",
    name: "sqlite3-src",
    version: "0.7.1",
    files: &[File {
        path: "source/shell.c",
        sha256: "5220eebd7b176e8acae8a6b5f1b22333df401079741588e08cd1e05d524a286f",
    }],
};

/// Where the verified amalgamation and its headers are.
#[derive(Debug)]
pub struct Amalgamation {
    /// `sqlite3.c`, the whole of SQLite.
    pub source: PathBuf,
    /// `sqlite3.h`, the public interface.
    pub header: PathBuf,
    /// `sqlite3ext.h`, the interface for loadable extensions.
    pub extension_header: PathBuf,
}

/// Finds the amalgamation, downloading its package if needed; fails if a file is not the pinned one.
pub fn amalgamation(workspace: &Path) -> Result<Amalgamation> {
    let [source, header, extension_header] =
        verified_files(&AMALGAMATION, workspace)?
            .try_into()
            .map_err(|_| anyhow::anyhow!("the amalgamation is three files"))?;
    Ok(Amalgamation { source, header, extension_header })
}

/// Finds `shell.c`, the source of the `sqlite3` command, downloading its package if needed.
pub fn shell(workspace: &Path) -> Result<PathBuf> {
    let [source] = verified_files(&SHELL, workspace)?
        .try_into()
        .map_err(|_| anyhow::anyhow!("the shell is one file"))?;
    Ok(source)
}

/// The files whose change makes a build that used this module stale.
pub fn manifests(workspace: &Path) -> Vec<PathBuf> {
    [&AMALGAMATION, &SHELL]
        .iter()
        .flat_map(|package| {
            let manifest = workspace.join(package.manifest);
            [manifest.with_file_name("Cargo.lock"), manifest]
        })
        .collect()
}

fn verified_files(package: &Package, workspace: &Path) -> Result<Vec<PathBuf>> {
    let root = package_root(package, workspace)?;
    package
        .files
        .iter()
        .map(|file| {
            let path = root.join(file.path);
            verify(&path, file.sha256)
                .with_context(|| format!("{} {}", package.name, package.version))?;
            Ok(path)
        })
        .collect()
}

fn package_root(package: &Package, workspace: &Path) -> Result<PathBuf> {
    let manifest = workspace.join(package.manifest);
    // Without the network first: cargo would otherwise want to look at the registry's index.
    let metadata = manifest::metadata(Some(&manifest), "--frozen")
        .or_else(|_| manifest::metadata(Some(&manifest), "--locked"))
        .with_context(|| {
            format!(
                "cannot fetch {} {} from crates.io (needed once; see {})",
                package.name, package.version, package.manifest
            )
        })?;
    let mut found = manifest::packages(&metadata)?.iter().filter(|p| p["name"] == package.name);
    let (Some(hit), None) = (found.next(), found.next()) else {
        bail!("{} does not name {} once", package.manifest, package.name);
    };
    ensure!(
        hit["version"] == package.version,
        "{} locks {} {}, the build expects {}",
        package.manifest,
        package.name,
        hit["version"],
        package.version
    );
    Ok(manifest::path(hit)?.parent().context("a manifest lies in a directory")?.to_owned())
}

/// Fails unless the file at `path` has exactly the given SHA-256.
pub fn verify(path: &Path, sha256: &str) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let found = hex(&Sha256::digest(&bytes));
    ensure!(
        found == sha256,
        "{} is not the pinned file: its sha256 is {found}, expected {sha256}; \
         remove its package from cargo's registry cache to have it fetched again",
        path.display()
    );
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_other_contents_is_refused_by_name() {
        let this = Path::new(env!("CARGO_MANIFEST_DIR")).join("upstream.rs");
        let message = format!("{:#}", verify(&this, "00").expect_err("must not match"));
        assert!(message.contains("upstream.rs") && message.contains("expected 00"), "{message}");
    }

    #[test]
    fn a_digest_is_written_as_in_checksum_files() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(&Sha256::digest([])), empty);
    }
}

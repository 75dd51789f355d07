//! What cargo says of a manifest: `cargo metadata`, read as plain JSON.
//!
//! Whoever builds the library waits for this package first, so it is kept to what compiles in a moment.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Asks cargo about the manifest at `path`, or of the directory that this runs in; `how` is a flag of `cargo metadata`.
pub fn metadata(path: Option<&Path>, how: &str) -> Result<Value> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version", "1", how]);
    if let Some(path) = path {
        cargo.arg("--manifest-path").arg(path);
    }
    let done = cargo.output().context("cannot start cargo")?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr).trim());
    serde_json::from_slice(&done.stdout).context("cannot read what cargo metadata says")
}

/// The packages that it names.
pub fn packages(metadata: &Value) -> Result<&[Value]> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    Ok(packages)
}

/// Where the manifest of one of them is.
pub fn path(package: &Value) -> Result<&Path> {
    text(package, "manifest_path").map(Path::new)
}

/// A text of what it says.
pub fn text<'a>(of: &'a Value, name: &str) -> Result<&'a str> {
    of[name].as_str().with_context(|| format!("cargo metadata says no {name}"))
}

//! The direction of dependencies: `cli -> sqlite -> engine`, and no arrow back.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use super::Finding;

/// Packages of the workspace, and which others each may be built from. Build scripts are tools and not
/// part of what is built.
const ALLOWED: &[(&str, &[&str])] = &[
    ("plait-client", &[]),
    ("plait-engine", &[]),
    ("plait-splice", &[]),
    ("plait-sqlite", &["plait-engine"]),
    ("plait-cli", &["plait-client", "plait-sqlite", "plait-engine"]),
    ("plait", &["plait-sqlite"]),
    ("plait-bench", &["plait-client"]),
    ("plait-tests", &["plait-client"]),
    ("xtask", &["plait-splice"]),
];

/// Compares every manifest with [`ALLOWED`].
pub fn check() -> Result<Vec<Finding>> {
    let metadata =
        MetadataCommand::new().no_deps().exec().context("cannot read the workspace manifest")?;
    let names: Vec<&str> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    Ok(metadata.packages.iter().flat_map(|package| breaches(package, &names)).collect())
}

fn breaches(package: &Package, workspace: &[&str]) -> Vec<Finding> {
    let name = package.name.as_str();
    let allowed = ALLOWED.iter().find(|(of, _)| *of == name);
    let finding =
        |what| Finding { path: PathBuf::from(package.manifest_path.as_str()), line: 0, what };
    let Some((_, allowed)) = allowed else {
        return vec![finding(format!(
            "{name} has no place in the order of packages: give it one in xtask/src/check/dependencies.rs"
        ))];
    };
    package
        .dependencies
        .iter()
        .filter(|d| d.kind == DependencyKind::Normal)
        .filter(|d| workspace.contains(&d.name.as_str()) && !allowed.contains(&d.name.as_str()))
        .map(|d| finding(format!("{name} must not depend on {}", d.name)))
        .collect()
}

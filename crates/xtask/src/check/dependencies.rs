//! The direction of dependencies: `cli, replicate -> sqlite -> engine`, and no arrow back.

use anyhow::Result;
use plait_splice::manifest;
use serde_json::Value;

use super::Finding;
use crate::workspace::Workspace;

/// Packages of the workspace, and which others each may be built from. Build scripts are tools and not
/// part of what is built.
const ALLOWED: &[(&str, &[&str])] = &[
    ("plait-bare-log", &[]),
    ("plait-raw", &[]),
    ("plait-client", &["plait-raw"]),
    ("plait-engine", &[]),
    ("plait-splice", &[]),
    ("plait-sqlite", &["plait-engine"]),
    ("plait-cli", &["plait-client", "plait-sqlite", "plait-engine"]),
    ("plait", &["plait-sqlite", "plait-raw"]),
    ("plait-bench", &["plait-bare-log", "plait-client"]),
    ("plait-replicate", &["plait-client", "plait-sqlite", "plait-engine"]),
    ("plait-tests", &["plait-bare-log", "plait-client"]),
    ("xtask", &["plait-splice"]),
];

/// Compares every manifest with [`ALLOWED`].
pub fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let metadata = manifest::metadata(Some(&workspace.root.join("Cargo.toml")), "--no-deps")?;
    let packages = manifest::packages(&metadata)?;
    let names: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let breaches = packages.iter().map(|package| breaches(package, &names));
    Ok(breaches.collect::<Result<Vec<_>>>()?.concat())
}

fn breaches(package: &Value, workspace: &[&str]) -> Result<Vec<Finding>> {
    let name = manifest::text(package, "name")?;
    let path = manifest::path(package)?;
    let allowed = ALLOWED.iter().find(|(of, _)| *of == name);
    let finding = |what| Finding { path: path.to_owned(), line: 0, what };
    let Some((_, allowed)) = allowed else {
        return Ok(vec![finding(format!(
            "{name} has no place in the order of packages: give it one in xtask/src/check/dependencies.rs"
        ))]);
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    Ok(dependencies
        // Those of build scripts and tests have a kind.
        .filter(|dependency| dependency["kind"].is_null())
        .filter_map(|dependency| dependency["name"].as_str())
        .filter(|on| workspace.contains(on) && !allowed.contains(on))
        .map(|on| finding(format!("{name} must not depend on {on}")))
        .collect())
}

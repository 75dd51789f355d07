//! Where the workspace and cargo's target directory are.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use plait_splice::manifest;

/// The directories that tasks read from and write to.
pub struct Workspace {
    /// The directory of the root manifest.
    pub root: PathBuf,
    /// Cargo's target directory, also home of what tasks cache.
    pub target: PathBuf,
}

impl Workspace {
    /// Asks cargo, which knows about `CARGO_TARGET_DIR` and configuration files.
    pub fn locate() -> Result<Self> {
        let metadata =
            manifest::metadata(None, "--no-deps").context("cannot read the workspace manifest")?;
        let directory = |name| manifest::text(&metadata, name).map(PathBuf::from);
        Ok(Self { root: directory("workspace_root")?, target: directory("target_directory")? })
    }
}

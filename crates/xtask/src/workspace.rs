//! Where the workspace and cargo's target directory are.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use cargo_metadata::MetadataCommand;

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
        let metadata = MetadataCommand::new()
            .no_deps()
            .exec()
            .context("cannot read the workspace manifest")?;
        Ok(Self {
            root: metadata.workspace_root.into_std_path_buf(),
            target: metadata.target_directory.into_std_path_buf(),
        })
    }
}

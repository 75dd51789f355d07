//! `edits`: the page that lists the edits of SQLite, `docs/sqlite-edits.md`, written from the edits.

use std::fs;

use anyhow::{Context as _, Result};
use plait_splice::page;

use crate::workspace::Workspace;

/// Writes the page anew.
pub fn write_page() -> Result<()> {
    let root = Workspace::locate()?.root;
    let (_, wanted) = page::read(&root)?;
    fs::write(root.join(page::PATH), wanted).with_context(|| format!("cannot write {}", page::PATH))
}

//! `docs/sqlite-edits.md` says of the edits of SQLite what they are.

use std::path::{Path, PathBuf};

use anyhow::Result;
use plait_splice::page;

use super::Finding;

/// Compares the page with what the edits say.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let (is, wanted) = page::read(root)?;
    if is == wanted {
        return Ok(Vec::new());
    }
    let same = is.lines().zip(wanted.lines()).take_while(|(a, b)| a == b).count();
    let what = format!("is not what the edits say: run `{}`", page::REWRITE);
    Ok(vec![Finding { path: PathBuf::from(page::PATH), line: same + 1, what }])
}

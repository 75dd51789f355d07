//! What is shown of the results.
//!
//! | module | what |
//! |---|---|
//! | [`results`] | the results themselves, as JSON |
//! | [`metric`] | what a chart's metric is of a phase |
//! | [`evaluate`] | from trials to the figures that charts and tables show, with [`details`] beside |
//! | [`disturbance`] | processor time that others got meanwhile |
//! | [`failures`] | what failed and, as far as it is known, why |
//! | [`readings`] | what the publications read from their figures, beside ours |
//! | [`standing`] | where Plait wins and where it loses |
//! | [`findings`] | what engines did in behaviour tests |
//! | [`grid`], [`numbers`] | a chart as rows and columns of text |
//! | [`engine_list`] | which engines are here and what installs the others |
//! | [`terminal`] | the summary on a terminal |
//! | [`page`] | the report as one HTML file |
//! | [`markdown`] | the tables for a document |
//! | [`compare`] | two runs, cell by cell |
//! | [`stored`] | the commands that read stored results |

pub mod compare;
pub mod details;
pub mod disturbance;
pub mod engine_list;
pub mod evaluate;
pub mod failures;
pub mod findings;
pub mod grid;
pub mod markdown;
pub mod metric;
pub mod numbers;
pub mod page;
pub mod readings;
pub mod results;
pub mod standing;
pub mod stored;
pub mod terminal;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;

/// Writes a file whole or not at all.
///
/// # Errors
/// If it cannot be written.
fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let what = || format!("cannot write {}", path.display());
    // As any other new file, not secret as temporary ones are.
    let permissions = std::fs::Permissions::from_mode(0o666);
    let mut file =
        tempfile::Builder::new().permissions(permissions).tempfile_in(folder).with_context(what)?;
    file.write_all(bytes).with_context(what)?;
    file.persist(path).with_context(what)?;
    Ok(())
}

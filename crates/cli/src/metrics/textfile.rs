//! The file for the textfile collector of node_exporter: readers find the old text or the new one.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// The collector runs as another user.
const MODE: u32 = 0o644;

/// The collector reads files of this ending alone.
pub fn path(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(ending) if ending == "prom" => Ok(path),
        _ => Err("give it a name that ends in .prom: the collector reads no other".to_owned()),
    }
}

/// Puts the text in the place of the file.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let written = tempfile::Builder::new()
        .prefix(".plait-")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(folder)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.persist(path).map_err(|e| e.error)
        });
    written.map(drop).map_err(|e| Failure::io("write", path, &e))
}

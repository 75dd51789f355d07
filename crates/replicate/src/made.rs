//! Folders that the probe makes, for as long as it runs.

use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Folders that this process has made. When it is dropped they go, those that are empty: an empty one would look like a
/// place from which a replica is gone, and what another process has made, or made use of, is that one's.
#[derive(Default)]
pub struct Made(Vec<PathBuf>);

impl Made {
    /// Makes a folder, and those above it.
    ///
    /// # Errors
    /// The system's; then none is left.
    pub fn all_of(folder: &Path) -> Result<Made> {
        let mut made = Made::default();
        let missing: Vec<_> = folder.ancestors().take_while(|at| !at.exists()).collect();
        for at in missing.into_iter().rev() {
            match std::fs::create_dir(at) {
                Ok(()) => made.0.push(at.to_owned()),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Ok(made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let Some(last) = self.0.last() else { return };
        // The store's own, below the place.
        let _ = std::fs::remove_dir(last.join("probe"));
        for folder in self.0.iter().rev() {
            if std::fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_has_made_goes_while_it_is_empty_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let (above, place) = (folder.path().join("a/b"), folder.path().join("a/b/place"));
        let make = || Made::all_of(&place).expect("they are made");
        drop(make());
        assert!(!folder.path().join("a").exists(), "nor are those above it left");
        // Another process has made it.
        std::fs::create_dir_all(&place).expect("folders");
        drop(make());
        assert!(place.exists());
        std::fs::remove_dir(&place).expect("it is empty");
        // Another process makes use of it.
        let made = make();
        std::fs::write(place.join("object"), b"x").expect("a file");
        drop(made);
        assert!(place.join("object").exists());
        std::fs::remove_dir_all(&above).expect("they go");
        std::fs::write(&above, b"x").expect("a file");
        assert!(Made::all_of(&place).is_err(), "no folder can be there");
    }
}

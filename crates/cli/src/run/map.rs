//! A file mapped into memory to be read.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

/// The bytes of a file.
pub struct Mapped(Option<memmap2::Mmap>);

impl Mapped {
    /// Maps the whole file.
    pub fn new(file: &File) -> io::Result<Mapped> {
        if file.metadata()?.len() == 0 {
            return Ok(Mapped(None));
        }
        // SAFETY: programs are replaced by renaming, not by writing into them; should one be cut short while it is
        // examined, this command dies with SIGBUS and has changed nothing.
        let map = unsafe { memmap2::Mmap::map(file) }?;
        Ok(Mapped(Some(map)))
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

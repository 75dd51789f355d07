//! A place for one small file of the sidecar's own, which outlives it.
//!
//! - SHELF-1 What is put is whole and on disk before it takes the place of what was put before; a
//!   draft that is not put leaves that as it was.
//! - SHELF-2 What is read may be of any age, and from anywhere: a file can be copied, restored from a
//!   backup, or cut off. Who reads it has to know it again ([`crate::primary`], SUMS-1).

use std::io::{self, Read, Write};

/// The place.
pub trait Shelf {
    /// Returns what was put last; `None` if nothing was.
    ///
    /// # Errors
    /// The system's.
    fn read(&self) -> io::Result<Option<Box<dyn Read>>>;

    /// Begins what is to be put next.
    ///
    /// # Errors
    /// The system's.
    fn begin(&self) -> io::Result<Box<dyn Draft>>;
}

/// What is to be put.
pub trait Draft: Write {
    /// Puts it (SHELF-1).
    ///
    /// # Errors
    /// The system's: then nothing is put, or all of it.
    fn put(self: Box<Self>) -> io::Result<()>;
}

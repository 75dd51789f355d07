//! Incremental blobs.

use crate::api::{MoreFunctions, RawBlob};
use crate::connection::{Connection, Inner};
use crate::error::Result;
use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::Arc;

/// An open incremental blob of the main database.
pub struct Blob {
    connection: Arc<Inner>,
    raw: *mut RawBlob,
}

// SAFETY: SQLite in serialized mode allows a blob handle to be used from any thread, by one at a time.
unsafe impl Send for Blob {}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("a name has no NUL byte")
}

fn c_length(length: usize) -> c_int {
    c_int::try_from(length).expect("a blob of less than 2 GiB")
}

impl Connection {
    /// `sqlite3_blob_open` on the main database.
    pub fn open_blob(&self, table: &str, column: &str, rowid: i64, write: bool) -> Result<Blob> {
        let (table, column) = (c_string(table), c_string(column));
        let mut raw = ptr::null_mut();
        // SAFETY: the names are NUL-terminated and `raw` is a valid place for the result.
        let code = unsafe {
            (self.more().blob_open)(
                self.inner.raw,
                c"main".as_ptr(),
                table.as_ptr(),
                column.as_ptr(),
                rowid,
                c_int::from(write),
                &raw mut raw,
            )
        };
        self.check(code, "blob_open")?;
        Ok(Blob { connection: self.inner.clone(), raw })
    }
}

impl Blob {
    fn more(&self) -> &'static MoreFunctions {
        self.connection.more()
    }

    /// Its length in bytes; 0 once it is aborted.
    #[must_use]
    pub fn len(&self) -> usize {
        // SAFETY: the blob is open.
        let length = unsafe { (self.more().blob_bytes)(self.raw) };
        usize::try_from(length).expect("a length is not negative")
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads `length` bytes from `offset`.
    pub fn read(&mut self, offset: usize, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0u8; length];
        let (length, offset) = (c_length(length), c_length(offset));
        // SAFETY: the buffer has `length` bytes; a range outside the blob is an error code.
        let code =
            unsafe { (self.more().blob_read)(self.raw, bytes.as_mut_ptr().cast(), length, offset) };
        self.connection.check(code, "blob_read")?;
        Ok(bytes)
    }

    /// Writes bytes at `offset`.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        let (length, offset) = (c_length(bytes.len()), c_length(offset));
        // SAFETY: the buffer has `length` bytes; a range outside the blob is an error code.
        let code =
            unsafe { (self.more().blob_write)(self.raw, bytes.as_ptr().cast(), length, offset) };
        self.connection.check(code, "blob_write")
    }

    /// Moves to another row of the same table.
    pub fn reopen(&mut self, rowid: i64) -> Result<()> {
        // SAFETY: the blob is open.
        let code = unsafe { (self.more().blob_reopen)(self.raw, rowid) };
        self.connection.check(code, "blob_reopen")
    }

    /// Closes it and says whether what was written could be kept.
    pub fn close(self) -> Result<()> {
        let blob = std::mem::ManuallyDrop::new(self);
        // SAFETY: closed once: `ManuallyDrop` keeps the destructor from doing it again.
        let code = unsafe { (blob.more().blob_close)(blob.raw) };
        let outcome = blob.connection.check(code, "blob_close");
        // SAFETY: the share of the connection is taken out once and dropped here.
        drop(unsafe { ptr::read(&raw const blob.connection) });
        outcome
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        // SAFETY: closed once, and the connection is still open because the blob owns a share of it.
        unsafe { (self.more().blob_close)(self.raw) };
    }
}

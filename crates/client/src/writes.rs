//! What a connection writes to its main file, told as it is written.
//!
//! A backup copies a whole database in one call that nothing interrupts: `sqlite3_interrupt` is for statements. What it writes passes through
//! the open file of its destination, whose methods can be taken by another table (as SQLite's shims of a VFS do). The table here
//! asks before each write, and hands on everything else.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::connection::Connection;
use crate::error::{INTERRUPT, MISUSE, Result, SqlError};

/// `SQLITE_FCNTL_FILE_POINTER`.
const FILE_POINTER: c_int = 7;
/// A version of the table that has all entries of [`Methods`].
const VERSION_MIN: c_int = 3;

type Write = unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int;
type Entry = Option<unsafe extern "C" fn()>;

/// `sqlite3_io_methods`, version 3.
#[repr(C)]
#[derive(Clone, Copy)]
struct Methods {
    version: c_int,
    close_and_read: [Entry; 2],
    write: Write,
    /// From `xTruncate` to `xUnfetch`.
    rest: [Entry; 15],
}

/// `sqlite3_file`.
#[repr(C)]
struct File {
    methods: *const Methods,
}

/// The table that the file is given. SQLite sees the first field alone.
#[repr(C)]
struct Watched {
    methods: Methods,
    original: *const Methods,
    asked: Box<dyn Fn(u64) -> bool + Send + Sync>,
}

/// Tells of the writes of a connection until it is dropped.
pub struct WriteWatch {
    _connection: Connection,
    file: *mut File,
    watched: *mut Watched,
}

unsafe extern "C" fn write(
    file: *mut File,
    bytes: *const c_void,
    len_bytes: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let methods = unsafe { (*file).methods };
    // SAFETY: its table is the one that has this function.
    let watched = unsafe { &*methods.cast::<Watched>() };
    let end = u64::try_from(offset.saturating_add(i64::from(len_bytes))).unwrap_or(0);
    if !(watched.asked)(end) {
        return INTERRUPT;
    }
    // SAFETY: the table of SQLite's own, which is never freed.
    let original = unsafe { (*watched.original).write };
    // SAFETY: as SQLite has called it.
    unsafe { original(file, bytes, len_bytes, offset) }
}

impl Connection {
    /// Asks before each write to the main file: with the offset behind it, in bytes. False refuses the write, with `SQLITE_INTERRUPT`.
    ///
    /// It must not panic. For connections that are not in concurrent mode: that writes by ways of its own.
    ///
    /// # Errors
    /// The file's methods are of another kind than SQLite's own.
    pub fn watch_writes(
        &self,
        asked: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Result<WriteWatch> {
        let mut file: *mut File = ptr::null_mut();
        let (main, out) = (c"main".as_ptr(), (&raw mut file).cast());
        // SAFETY: the connection is open, and the argument of this control takes a pointer to its file.
        let code = unsafe { (self.more().file_control)(self.inner.raw, main, FILE_POINTER, out) };
        self.check(code, "file_control")?;
        // SAFETY: null, or the open file of the connection.
        let original = unsafe { file.as_ref() }.map_or(ptr::null(), |file| file.methods);
        // SAFETY: null, or the table of an open file, which begins with its version.
        let version = unsafe { original.as_ref() }.map_or(0, |methods| methods.version);
        if version < VERSION_MIN {
            return Err(SqlError::new(MISUSE, "the file has other methods", "watch_writes"));
        }
        // SAFETY: by its version the table has all entries.
        let methods = Methods { write, ..unsafe { *original } };
        let watched =
            Box::into_raw(Box::new(Watched { methods, original, asked: Box::new(asked) }));
        // SAFETY: the file is open, and used by this connection alone, which nobody uses meanwhile.
        unsafe { (*file).methods = watched.cast() };
        Ok(WriteWatch { _connection: self.clone(), file, watched })
    }
}

impl Drop for WriteWatch {
    fn drop(&mut self) {
        // SAFETY: made by `watch_writes`, and freed below.
        let original = unsafe { (*self.watched).original };
        // SAFETY: the connection, of which `self` owns a share, has the file open.
        unsafe { (*self.file).methods = original };
        // SAFETY: made by `watch_writes` out of a box, and no file leads there any more.
        drop(unsafe { Box::from_raw(self.watched) });
    }
}

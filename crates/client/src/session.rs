//! The session extension: recording changes and applying them elsewhere.

use crate::api::RawSession;
use crate::connection::Connection;
use crate::error::Result;
use std::ffi::{c_int, c_void};
use std::ptr;

/// Records the changes of one connection to all tables of its main database.
pub struct Session {
    connection: Connection,
    raw: *mut RawSession,
}

/// A recorded set of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changeset(pub Vec<u8>);

impl Session {
    /// Starts recording.
    pub fn start(connection: &Connection) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the connection is open and `raw` is a valid place for the result.
        let code = unsafe {
            (connection.more().session_create)(connection.inner.raw, c"main".as_ptr(), &raw mut raw)
        };
        connection.check(code, "session_create")?;
        let session = Self { connection: connection.clone(), raw };
        // SAFETY: the session is open; a null name attaches all tables.
        let code = unsafe { (connection.more().session_attach)(raw, ptr::null()) };
        connection.check(code, "session_attach")?;
        Ok(session)
    }

    /// What has been changed so far.
    pub fn changeset(&self) -> Result<Changeset> {
        let mut length: c_int = 0;
        let mut bytes = ptr::null_mut();
        let functions = self.connection.more();
        // SAFETY: the session is open and both results have a valid place.
        let code =
            unsafe { (functions.session_changeset)(self.raw, &raw mut length, &raw mut bytes) };
        self.connection.check(code, "session_changeset")?;
        let length = usize::try_from(length).expect("a length is not negative");
        if length == 0 {
            return Ok(Changeset(Vec::new()));
        }
        // SAFETY: the call returned an allocation of `length` bytes that is ours until freed.
        let copy = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) }.to_vec();
        // SAFETY: the bytes came from this library's allocator and are freed once.
        unsafe { (functions.free)(bytes) };
        Ok(Changeset(copy))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: deleted once, before the connection whose share it owns.
        unsafe { (self.connection.more().session_delete)(self.raw) };
    }
}

unsafe extern "C" fn abort_on_conflict(_: *mut c_void, _: c_int, _: *mut c_void) -> c_int {
    2
}

impl Connection {
    /// Applies a changeset; a conflicting change aborts all of it.
    pub fn apply(&self, changeset: &Changeset) -> Result<()> {
        let length = c_int::try_from(changeset.0.len()).expect("a changeset of less than 2 GiB");
        let bytes = changeset.0.as_ptr().cast_mut().cast();
        let conflict = Some(abort_on_conflict as crate::api::ConflictFn);
        // SAFETY: the bytes are only read, and the callback needs no context.
        let code = unsafe {
            (self.more().changeset_apply)(
                self.inner.raw,
                length,
                bytes,
                None,
                conflict,
                ptr::null_mut(),
            )
        };
        self.check(code, "changeset_apply")
    }
}

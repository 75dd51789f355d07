//! Cursors.

use super::{DONE, NONE, Near, ROW, answered, cooked, functions, raw};
use crate::api::{MapFunctions, RawCursor, RawKeyValue};
use crate::connection::Inner;
use crate::error::Result;
use crate::value::{Value, ValueRef};
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

/// An open cursor. It outlives its map if it has to.
pub struct MapCursor {
    pub(super) connection: Arc<Inner>,
    pub(super) raw: *mut RawCursor,
}

// SAFETY: as for `Map`.
unsafe impl Send for MapCursor {}

impl MapCursor {
    pub(super) fn functions(&self) -> &'static MapFunctions {
        functions(&self.connection)
    }

    fn moved(
        &mut self,
        call: impl FnOnce(&MapFunctions, *mut RawKeyValue, *mut RawKeyValue) -> c_int,
    ) -> Result<Option<(Value, Value)>> {
        let (mut key, mut value) = (NONE, NONE);
        match call(self.functions(), &raw mut key, &raw mut value) {
            ROW => Ok(cooked(&key).zip(cooked(&value))),
            DONE => Ok(None),
            code => Err(self.connection.error(code, "cursor")),
        }
    }

    /// `plait_cursor_first`.
    pub fn first(&mut self) -> Result<Option<(Value, Value)>> {
        let raw = self.raw;
        // SAFETY: the cursor is open and the places are valid.
        self.moved(|f, key, value| unsafe { (f.cursor_first)(raw, key, value) })
    }

    /// `plait_cursor_last`.
    pub fn last(&mut self) -> Result<Option<(Value, Value)>> {
        let raw = self.raw;
        // SAFETY: as in `first`.
        self.moved(|f, key, value| unsafe { (f.cursor_last)(raw, key, value) })
    }

    /// `plait_cursor_next`.
    #[expect(clippy::should_implement_trait, reason = "a move may fail")]
    pub fn next(&mut self) -> Result<Option<(Value, Value)>> {
        let raw = self.raw;
        // SAFETY: as in `first`.
        self.moved(|f, key, value| unsafe { (f.cursor_next)(raw, key, value) })
    }

    /// `plait_cursor_next` by integer keys: the key, and the size of text or bytes.
    pub fn next_size(&mut self) -> Result<Option<(i64, usize)>> {
        let (mut key, mut value) = (NONE, NONE);
        // SAFETY: as in `first`.
        match unsafe { (self.functions().cursor_next)(self.raw, &raw mut key, &raw mut value) } {
            ROW => Ok(Some((key.integer, value.size_bytes as usize))),
            DONE => Ok(None),
            code => Err(self.connection.error(code, "cursor")),
        }
    }

    /// Shows up to `count` values of text or bytes where they are, from the first key at or above `from`, or from where it is; says how many.
    pub fn visit<'a>(
        &mut self,
        from: Option<impl Into<ValueRef<'a>>>,
        count: u64,
        mut found: impl FnMut(&[u8]),
    ) -> Result<u64> {
        const AT_LEAST: c_int = 1;
        let (f, cursor, no_key) = (self.functions(), self.raw, ptr::null_mut());
        let mut from = from.map(Into::into);
        let mut value = NONE;
        for number in 0..count {
            let out = &raw mut value;
            let code = match from.take() {
                // SAFETY: the cursor is open, the key lives through the call, and the place is valid.
                Some(key) => unsafe {
                    (f.cursor_seek)(cursor, raw(Some(key)), AT_LEAST, no_key, out)
                },
                // SAFETY: as above.
                None => unsafe { (f.cursor_next)(cursor, no_key, out) },
            };
            match code {
                // SAFETY: the call has just returned.
                ROW => found(unsafe { answered(&value) }),
                DONE => return Ok(number),
                code => return Err(self.connection.error(code, "a cursor")),
            }
        }
        Ok(count)
    }

    /// `plait_cursor_prev`.
    pub fn prev(&mut self) -> Result<Option<(Value, Value)>> {
        let raw = self.raw;
        // SAFETY: as in `first`.
        self.moved(|f, key, value| unsafe { (f.cursor_prev)(raw, key, value) })
    }

    /// `plait_cursor_seek`.
    pub fn seek(&mut self, target: &Value, near: Near) -> Result<Option<(Value, Value)>> {
        let cursor = self.raw;
        let how = match near {
            Near::Equal => 0,
            Near::AtLeast => 1,
            Near::Above => 2,
            Near::AtMost => 3,
            Near::Below => 4,
        };
        let target = raw(Some(target));
        // SAFETY: as in `first`; the target lives through the call.
        self.moved(|f, key, value| unsafe { (f.cursor_seek)(cursor, target, how, key, value) })
    }

    /// Closes it and says whether that went well.
    pub fn close(self) -> Result<()> {
        let cursor = std::mem::ManuallyDrop::new(self);
        // SAFETY: closed once: `ManuallyDrop` keeps the destructor from doing it again.
        let code = unsafe { (cursor.functions().cursor_close)(cursor.raw) };
        let outcome = cursor.connection.check(code, "cursor_close");
        // SAFETY: the share of the connection is taken out once and dropped here.
        drop(unsafe { ptr::read(&raw const cursor.connection) });
        outcome
    }
}

impl Drop for MapCursor {
    fn drop(&mut self) {
        // SAFETY: closed once, and the connection is still open because the cursor owns a share of it.
        unsafe { (self.functions().cursor_close)(self.raw) };
    }
}

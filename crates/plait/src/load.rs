//! Bulk loads: many rows from an iterator, in one call of the library, which asks for them one by one.
//!
//! The iterator is the program's, and may panic: the panic is held back at the border, ends the load, undoes it, and goes on behind it.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::datum::Datum;
use crate::error::{Error, Result};
use crate::ffi::{self, RawValue};
use crate::map::Map;
use crate::session::Session;
use crate::types::{Key, Value};

/// Where the rows come from, behind `plait_load`'s pointer.
struct Source<'r, E> {
    next: &'r mut dyn FnMut() -> Option<Result<(Datum<'r>, Datum<'r>), E>>,
    /// The row that was given last: it stays until the next one is asked for.
    row: Option<(Datum<'r>, Datum<'r>)>,
    ended: Ended<E>,
}

/// Why there are no more rows.
enum Ended<E> {
    Regularly,
    By(E),
    Panicking(Box<dyn Any + Send>),
}

/// Says that a load is running, until it is dropped.
struct Loading<'s>(&'s Session);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.is_loading.set(false);
    }
}

/// `xNext` of `plait_load`.
///
/// # Safety
/// `context` is a `Source<E>` that nobody else uses during the call; `key` and `value` take a row.
unsafe extern "C" fn next_row<E>(
    context: *mut c_void,
    key: *mut RawValue,
    value: *mut RawValue,
) -> c_int {
    // SAFETY: the caller's contract.
    let source = unsafe { &mut *context.cast::<Source<'_, E>>() };
    source.row = None;
    match catch_unwind(AssertUnwindSafe(|| (source.next)())) {
        Ok(None) => ffi::DONE,
        Ok(Some(Ok(row))) => {
            let (raw_key, raw_value) = (row.0.raw(), row.1.raw());
            // The bytes do not move with the row: they are borrowed, or on the heap.
            source.row = Some(row);
            // SAFETY: the caller's contract.
            unsafe { key.write(raw_key) };
            // SAFETY: the caller's contract.
            unsafe { value.write(raw_value) };
            ffi::ROW
        }
        Ok(Some(Err(error))) => {
            source.ended = Ended::By(error);
            ffi::ABORT
        }
        Err(panic) => {
            source.ended = Ended::Panicking(panic);
            ffi::ABORT
        }
    }
}

impl<K: Key, V: Value> Map<'_, K, V> {
    /// Writes many rows, all or none. Answers how many the iterator gave; of those with the same key the last stays.
    ///
    /// They are gathered, 16 MiB at a time, and written in the order of keys. The right to write is held from before the first
    /// row is asked for. The iterator may read from maps of this connection; all else that it asks of the connection is refused.
    pub fn load<'a>(
        &mut self,
        rows: impl IntoIterator<Item = (K::In<'a>, V::In<'a>)>,
    ) -> Result<u64> {
        let mut rows = rows.into_iter();
        let mut next = || rows.next().map(|(key, value)| Ok((K::encode(key), V::encode(value))));
        self.load_from::<Error>(0, &mut next)
    }

    /// The same with rows that come in ascending order, or nearly: they are written as they come.
    pub fn load_sorted<'a>(
        &mut self,
        rows: impl IntoIterator<Item = (K::In<'a>, V::In<'a>)>,
    ) -> Result<u64> {
        let mut rows = rows.into_iter();
        let mut next = || rows.next().map(|(key, value)| Ok((K::encode(key), V::encode(value))));
        self.load_from::<Error>(ffi::LOAD_SORTED, &mut next)
    }

    /// The same with rows that are made on the way, and may fail: an error ends the load, and nothing is written.
    ///
    /// ```
    /// # fn main() -> plait::Result<()> {
    /// use plait::{Connection, MapDefinition};
    /// let connection = Connection::open_in_memory()?;
    /// let mut from = connection.map(MapDefinition::<i64, &str>::new("a"))?;
    /// from.load([(2, "two"), (1, "one")])?;
    /// let mut to = connection.map(MapDefinition::<i64, &str>::new("b"))?;
    /// assert_eq!(to.try_load(from.iter()?)?, 2);
    /// # Ok(()) }
    /// ```
    pub fn try_load<E: From<Error>>(
        &mut self,
        rows: impl IntoIterator<Item = Result<(K::Owned, V::Owned), E>>,
    ) -> Result<u64, E> {
        let mut rows = rows.into_iter();
        let encode = |(key, value)| (K::encode_owned(key), V::encode_owned(value));
        let mut next = || rows.next().map(|row| row.map(encode));
        self.load_from(0, &mut next)
    }

    fn load_from<'r, E: From<Error>>(
        &mut self,
        flags: c_int,
        next: &'r mut dyn FnMut() -> Option<Result<(Datum<'r>, Datum<'r>), E>>,
    ) -> Result<u64, E> {
        self.may_write()?;
        let mut source = Source { next, row: None, ended: Ended::Regularly };
        let mut n = 0;
        self.session().is_loading.set(true);
        let loading = Loading(self.session());
        // SAFETY: the map is open, the function takes the source, which lives longer than the call, and `n` the answer.
        let code = unsafe {
            ffi::plait_load(self.raw(), flags, next_row::<E>, (&raw mut source).cast(), &raw mut n)
        };
        drop(loading);
        match source.ended {
            Ended::Panicking(panic) => resume_unwind(panic),
            Ended::By(error) => Err(error),
            Ended::Regularly => {
                self.check(code)?;
                Ok(n.unsigned_abs())
            }
        }
    }
}

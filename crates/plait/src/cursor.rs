//! [`Cursor`] and [`Iter`]: walks over a range.
//!
//! What the library answers to a move may lie in a page, and stays only until anybody writes on the connection: another map may, or SQL.
//! So every row is copied once, into memory that the cursor uses again, and borrows the cursor and nothing else.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::datum::{self, Datum, Stored};
use crate::error::{Error, Mismatch, Result};
use crate::ffi::{self, RawCursor, RawValue};
use crate::map::decode;
use crate::range::Bounds;
use crate::session::{Handle, Session};
use crate::types::{Key, Value};

/// A place in a range of a map, which goes either way.
///
/// A new one is before the first and after the last row: [`Cursor::next`] goes to the first one, [`Cursor::prev`] to the last. From its first move on it
/// holds a snapshot; what this connection writes meanwhile, through another map or SQL, is met if it lies ahead.
///
/// ```
/// # fn main() -> plait::Result<()> {
/// use plait::{Connection, MapDefinition, Seek};
/// let connection = Connection::open_in_memory()?;
/// let mut squares = connection.map(MapDefinition::<i64, &str>::new("squares"))?;
/// squares.load([(1, "one"), (4, "four"), (9, "nine")])?;
/// let mut cursor = squares.cursor(..)?;
/// assert_eq!(cursor.seek(2, Seek::AtLeast)?, Some((4, "four")));
/// assert_eq!(cursor.next()?, Some((9, "nine")));
/// assert_eq!(cursor.next()?, None);
/// assert_eq!(cursor.prev()?, Some((9, "nine")));
/// # Ok(()) }
/// ```
pub struct Cursor<'m, K, V> {
    session: &'m Session,
    map: &'m Handle,
    raw: NonNull<RawCursor>,
    key: Copied,
    value: Copied,
    types: PhantomData<fn(K) -> V>,
}

/// A row that may be there.
type Found<K, V> = Option<(K, V)>;

/// Where [`Cursor::seek`] goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// To the key.
    Equal = 0,
    /// To the key or the next greater one.
    AtLeast = 1,
    /// To the next greater key.
    After = 2,
    /// To the key or the next smaller one.
    AtMost = 3,
    /// To the next smaller key.
    Before = 4,
}

/// A key or value of the current row.
struct Copied {
    raw: RawValue,
    bytes: Vec<u8>,
}

impl Copied {
    const NONE: Copied = Copied { raw: ffi::NONE, bytes: Vec::new() };

    /// # Safety
    /// `raw` was answered by the library just now.
    unsafe fn set(&mut self, raw: RawValue) {
        self.raw = raw;
        self.bytes.clear();
        if raw.kind == ffi::TEXT || raw.kind == ffi::BLOB {
            let len = usize::try_from(raw.size_bytes).unwrap_or(0);
            if len > 0 {
                // SAFETY: the caller's contract: so many bytes lie there now.
                let bytes = unsafe { std::slice::from_raw_parts(raw.data.cast::<u8>(), len) };
                self.bytes.extend_from_slice(bytes);
            }
        }
    }

    fn stored(&self) -> Result<Option<Stored<'_>>, Mismatch> {
        let raw = RawValue {
            data: self.bytes.as_ptr().cast(),
            size_bytes: self.bytes.len() as i64,
            ..self.raw
        };
        // SAFETY: it points to the bytes of the copy, which are borrowed for as long as the answer.
        unsafe { datum::stored(&raw) }
    }
}

impl<'m, K: Key, V: Value> Cursor<'m, K, V> {
    pub(crate) fn open(
        session: &'m Session,
        map: &'m Handle,
        range: &Bounds<'_>,
    ) -> Result<Cursor<'m, K, V>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the map is open, the bounds stay during the call, which copies them, `raw` takes the cursor.
        let code = unsafe { ffi::plait_cursor_open(map.raw.as_ptr(), &range.raw(), &raw mut raw) };
        session.check(code, || name(map))?;
        let raw =
            NonNull::new(raw).ok_or_else(|| Error::of_code(ffi::MISUSE, "opening a cursor"))?;
        session.in_use.set(session.in_use.get() + 1);
        Ok(Cursor { session, map, raw, key: Copied::NONE, value: Copied::NONE, types: PhantomData })
    }

    /// To the first row.
    pub fn first(&mut self) -> Result<Found<K::Out<'_>, V::Out<'_>>> {
        self.go(ffi::plait_cursor_first)
    }

    /// To the last row.
    pub fn last(&mut self) -> Result<Found<K::Out<'_>, V::Out<'_>>> {
        self.go(ffi::plait_cursor_last)
    }

    /// To the next row.
    #[expect(
        clippy::should_implement_trait,
        reason = "its rows lie in the cursor; `Iter` is the iterator"
    )]
    pub fn next(&mut self) -> Result<Found<K::Out<'_>, V::Out<'_>>> {
        self.go(ffi::plait_cursor_next)
    }

    /// To the row before.
    pub fn prev(&mut self) -> Result<Found<K::Out<'_>, V::Out<'_>>> {
        self.go(ffi::plait_cursor_prev)
    }

    /// To the nearest row of the range that is where `to` says.
    pub fn seek(&mut self, key: K::In<'_>, to: Seek) -> Result<Found<K::Out<'_>, V::Out<'_>>> {
        let key = K::encode(key);
        let (mut found, mut value) = (ffi::NONE, ffi::NONE);
        // SAFETY: the cursor is open, the key stays during the call, the others take the answers.
        let code = unsafe {
            ffi::plait_cursor_seek(
                self.raw.as_ptr(),
                key.raw(),
                to as c_int,
                &raw mut found,
                &raw mut value,
            )
        };
        self.arrive(code, found, value)
    }

    fn go(&mut self, to: Move) -> Result<Found<K::Out<'_>, V::Out<'_>>> {
        let (mut key, mut value) = (ffi::NONE, ffi::NONE);
        // SAFETY: the cursor is open, and the others take the answers.
        let code = unsafe { to(self.raw.as_ptr(), &raw mut key, &raw mut value) };
        self.arrive(code, key, value)
    }

    /// As [`Cursor::go`], and does not read the value.
    fn go_to_key(&mut self, to: Move) -> Result<Option<K::Out<'_>>> {
        let mut key = ffi::NONE;
        // SAFETY: the cursor is open, `key` takes the answer, and the value is not wanted.
        let code = unsafe { to(self.raw.as_ptr(), &raw mut key, ptr::null_mut()) };
        if !self.is_on_row(code)? {
            return Ok(None);
        }
        // SAFETY: answered just now.
        unsafe { self.key.set(key) };
        decode::<K>(self.key.stored(), || format!("a key in {}", name(self.map)))
    }

    /// Whether the move that has just returned has found a row.
    fn is_on_row(&self, code: c_int) -> Result<bool> {
        match code {
            ffi::DONE => Ok(false),
            ffi::ROW => Ok(true),
            code => Err(self.session.error(code, name(self.map))),
        }
    }

    /// The answer of a move that has just returned.
    fn arrive(
        &mut self,
        code: c_int,
        key: RawValue,
        value: RawValue,
    ) -> Result<Found<K::Out<'_>, V::Out<'_>>> {
        if !self.is_on_row(code)? {
            return Ok(None);
        }
        // SAFETY: answered just now.
        unsafe { self.key.set(key) };
        // SAFETY: answered just now.
        unsafe { self.value.set(value) };
        let this = &*self;
        let of_key = || format!("a key in {}", name(this.map));
        let of_value = || {
            let key = this.key.stored().ok().flatten().map_or(Datum::Null, Datum::from);
            format!("the value of {key} in {}", name(this.map))
        };
        let key = decode::<K>(this.key.stored(), of_key)?;
        let value = decode::<V>(this.value.stored(), of_value)?;
        Ok(key.zip(value))
    }
}

/// One of the moves without an argument.
type Move = unsafe extern "C" fn(*mut RawCursor, *mut RawValue, *mut RawValue) -> c_int;

fn name(map: &Handle) -> String {
    format!("map \"{}\"", map.table())
}

impl<K, V> Drop for Cursor<'_, K, V> {
    fn drop(&mut self) {
        self.session.in_use.set(self.session.in_use.get() - 1);
        // SAFETY: the cursor is open, and not used after this.
        unsafe { ffi::plait_cursor_close(self.raw.as_ptr()) };
    }
}

/// The rows of a range, as [`ReadMap::range`](crate::ReadMap::range) gives them: copies that stay.
///
/// It ends after an error. It holds a snapshot, and with it the map:
///
/// ```compile_fail,E0502
/// # fn main() -> plait::Result<()> {
/// # let connection = plait::Connection::open_in_memory()?;
/// let mut ages = connection.map(plait::MapDefinition::<&str, i64>::new("ages"))?;
/// for row in ages.iter()? {
///     let (name, age) = row?;
///     ages.put(&name, age + 1)?; // by a second map of the same definition it can be
/// }
/// # Ok(()) }
/// ```
pub struct Iter<'m, K, V> {
    cursor: Cursor<'m, K, V>,
    is_backward: bool,
    has_ended: bool,
}

impl<'m, K: Key, V: Value> Iter<'m, K, V> {
    pub(crate) fn new(cursor: Cursor<'m, K, V>) -> Self {
        Iter { cursor, is_backward: false, has_ended: false }
    }

    /// The other way. Once the first row has been given it turns back from where it is.
    #[must_use]
    pub fn rev(self) -> Self {
        Iter { is_backward: !self.is_backward, has_ended: false, ..self }
    }

    /// Only the keys: values are not read.
    pub fn keys(self) -> Keys<'m, K, V> {
        Keys(self)
    }

    /// Notes whether there may be more.
    fn pass<T>(&mut self, found: Result<Option<T>>) -> Option<Result<T>> {
        self.has_ended = !matches!(found, Ok(Some(_)));
        found.transpose()
    }
}

impl<K: Key, V: Value> Iterator for Iter<'_, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let row = if self.is_backward { self.cursor.prev() } else { self.cursor.next() };
        let row = row.map(|row| row.map(|(key, value)| (K::own(key), V::own(value))));
        self.pass(row)
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for Iter<'_, K, V> {}

/// The keys of a range; see [`Iter::keys`].
pub struct Keys<'m, K, V>(Iter<'m, K, V>);

impl<K: Key, V: Value> Iterator for Keys<'_, K, V> {
    type Item = Result<K::Owned>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.has_ended {
            return None;
        }
        let to = if self.0.is_backward { ffi::plait_cursor_prev } else { ffi::plait_cursor_next };
        let key = self.0.cursor.go_to_key(to).map(|key| key.map(K::own));
        self.0.pass(key)
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for Keys<'_, K, V> {}

//! The key-value API of `plait.h`.

mod answers;
mod cursor;

pub use cursor::MapCursor;

use crate::api::{MapFunctions, RawItem, RawKeyValue, RawMap, RawRange};
use crate::connection::{Connection, Inner};
use crate::error::Result;
use crate::value::{Value, ValueRef};
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;

/// Flags of [`Connection::open_map`].
pub mod create {
    /// Writes are refused.
    pub const READONLY: i32 = 0x01;
    /// The table is created if it is missing, with integer keys.
    pub const INTEGER: i32 = 0x10;
    /// The same with bytes.
    pub const BYTES: i32 = 0x20;
    /// The same with text.
    pub const TEXT: i32 = 0x40;
}

const ROW: c_int = 100;
const DONE: c_int = 101;

const NONE: RawKeyValue =
    RawKeyValue { kind: 0, integer: 0, real: 0.0, data: ptr::null(), size_bytes: 0 };

fn raw<'a>(value: Option<impl Into<ValueRef<'a>>>) -> RawKeyValue {
    let bytes = |kind, bytes: &[u8]| RawKeyValue {
        kind,
        data: bytes.as_ptr().cast(),
        size_bytes: i64::try_from(bytes.len()).expect("it fits in memory"),
        ..NONE
    };
    match value.map(Into::into) {
        None => NONE,
        Some(ValueRef::Integer(integer)) => RawKeyValue { kind: 1, integer, ..NONE },
        Some(ValueRef::Real(real)) => RawKeyValue { kind: 2, real, ..NONE },
        Some(ValueRef::Text(text)) => bytes(3, text),
        Some(ValueRef::Blob(blob)) => bytes(4, blob),
        Some(ValueRef::Null) => RawKeyValue { kind: 5, ..NONE },
    }
}

/// The bytes of an answer that is text or a blob.
///
/// # Safety
/// It is the answer of a call that has just returned, and the next call comes after the bytes were used.
unsafe fn answered(value: &RawKeyValue) -> &[u8] {
    match usize::try_from(value.size_bytes).expect("a size is not negative") {
        0 => &[],
        // SAFETY: the caller's contract: the library keeps so many bytes there until the next call.
        size => unsafe { std::slice::from_raw_parts(value.data.cast(), size) },
    }
}

fn cooked(value: &RawKeyValue) -> Option<Value> {
    // SAFETY: the call that set it has just returned.
    let bytes = || unsafe { answered(value) }.to_vec();
    match value.kind {
        0 => None,
        1 => Some(Value::Integer(value.integer)),
        2 => Some(Value::Real(value.real)),
        3 => Some(Value::Text(bytes())),
        4 => Some(Value::Blob(bytes())),
        _ => Some(Value::Null),
    }
}

/// One end of a range.
#[derive(Clone, Debug, Default)]
pub enum Bound {
    /// There is none.
    #[default]
    None,
    /// The key itself is inside.
    Closed(Value),
    /// The key itself is outside.
    Open(Value),
}

impl Bound {
    fn raw(&self, open: c_int) -> (RawKeyValue, c_int) {
        match self {
            Self::None => (NONE, 0),
            Self::Closed(value) => (raw(Some(value)), 0),
            Self::Open(value) => (raw(Some(value)), open),
        }
    }
}

/// A range of keys.
#[derive(Clone, Debug)]
pub enum Range {
    /// Between two bounds.
    Between(Bound, Bound),
    /// All keys that begin with this.
    Prefix(Value),
}

impl Range {
    /// All keys.
    pub const ALL: Self = Self::Between(Bound::None, Bound::None);

    fn raw(&self) -> RawRange {
        match self {
            Self::Between(lo, hi) => {
                let ((lo, open_lo), (hi, open_hi)) = (lo.raw(1), hi.raw(2));
                RawRange { lo, hi, flags: open_lo | open_hi }
            }
            Self::Prefix(prefix) => RawRange { lo: raw(Some(prefix)), hi: NONE, flags: 4 },
        }
    }
}

/// What a cursor looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// The key itself.
    Equal,
    /// It or the next.
    AtLeast,
    /// The next.
    Above,
    /// It or the one before.
    AtMost,
    /// The one before.
    Below,
}

/// One item of a batch.
#[derive(Clone, Debug)]
pub enum Item {
    /// Write it.
    Put(Value, Value),
    /// Delete it.
    Delete(Value),
    /// Add to it.
    Add(Value, i64),
    /// Only if it has this value, or is absent.
    Expect(Value, Option<Value>),
}

impl Item {
    fn raw(&self) -> RawItem {
        match self {
            Self::Put(key, value) => {
                RawItem { op: 1, key: raw(Some(key)), value: raw(Some(value)) }
            }
            Self::Delete(key) => RawItem { op: 2, key: raw(Some(key)), value: NONE },
            Self::Add(key, delta) => {
                let value = RawKeyValue { kind: 1, integer: *delta, ..NONE };
                RawItem { op: 3, key: raw(Some(key)), value }
            }
            Self::Expect(key, value) => {
                RawItem { op: 4, key: raw(Some(key)), value: raw(value.as_ref()) }
            }
        }
    }
}

/// An open map.
pub struct Map {
    connection: Arc<Inner>,
    raw: *mut RawMap,
}

// SAFETY: SQLite in serialized mode locks the connection's mutex in every call, and answers are copied at once, by the one
// thread that has the map.
unsafe impl Send for Map {}

#[inline]
fn functions(connection: &Inner) -> &'static MapFunctions {
    connection.library.0.maps.as_ref().expect("the library has the key-value API")
}

impl Connection {
    /// `plait_map_open` on the main database.
    pub fn open_map(&self, table: &str, flags: i32) -> Result<Map> {
        self.open_map_in("main", table, flags)
    }

    /// `sqlite3_close` while something made from this connection is open: the code that refuses it.
    ///
    /// # Panics
    /// If it is not refused.
    #[must_use]
    pub fn refused_close(&self) -> i32 {
        // SAFETY: the connection is open; if it is closed here nothing goes on.
        let code = unsafe { (self.functions().close)(self.inner.raw) };
        assert_ne!(code, 0, "the connection was closed under its maps");
        code
    }

    /// Switches `SQLITE_DBCONFIG_DEFENSIVE` on.
    pub fn defensive(&self) -> Result<()> {
        // SAFETY: the connection is open; this option takes an int and a place that may be null. A function of variable
        // arguments takes these as one of fixed ones does on this platform.
        let code = unsafe { (self.more().db_config)(self.inner.raw, 1010, 1, ptr::null_mut()) };
        self.check(code, "db_config")
    }

    /// `sqlite3_limit` for `SQLITE_LIMIT_LENGTH`.
    pub fn limit_length(&self, bytes: i32) {
        // SAFETY: the connection is open.
        unsafe { (self.more().limit)(self.inner.raw, 0, bytes) };
    }

    /// `plait_ticket` of the main database.
    pub fn ticket(&self) -> Result<i64> {
        let mut ticket = 0;
        // SAFETY: the connection is open and the place is valid; NULL is the main database.
        let code = unsafe {
            (functions(&self.inner).ticket)(self.inner.raw, ptr::null(), &raw mut ticket)
        };
        self.inner.check(code, "ticket").map(|()| ticket)
    }

    /// `plait_durable`.
    pub fn durable_ticket(&self) -> Result<i64> {
        let mut ticket = 0;
        // SAFETY: as in `ticket`.
        let code = unsafe {
            (functions(&self.inner).durable)(self.inner.raw, ptr::null(), &raw mut ticket)
        };
        self.inner.check(code, "durable").map(|()| ticket)
    }

    /// `plait_wait` without an end: whether it is on disk.
    pub fn wait_for_ticket(&self, ticket: i64) -> Result<bool> {
        let mut durable = 0;
        // SAFETY: as in `ticket`.
        let code = unsafe {
            (functions(&self.inner).wait)(self.inner.raw, ptr::null(), ticket, -1, &raw mut durable)
        };
        self.inner.check(code, "wait").map(|()| durable != 0)
    }

    /// `plait_map_open`.
    pub fn open_map_in(&self, schema: &str, table: &str, flags: i32) -> Result<Map> {
        let name = |text: &str| CString::new(text).expect("a name has no NUL byte");
        let (schema, table) = (name(schema), name(table));
        let mut raw = ptr::null_mut();
        // SAFETY: the names are NUL-terminated and `raw` is a valid place for the result.
        let code = unsafe {
            (functions(&self.inner).map_open)(
                self.inner.raw,
                schema.as_ptr(),
                table.as_ptr(),
                flags,
                &raw mut raw,
            )
        };
        self.inner.check(code, "map_open")?;
        Ok(Map { connection: self.inner.clone(), raw })
    }
}

type Pair = (Option<Value>, Option<Value>);

impl Map {
    fn functions(&self) -> &'static MapFunctions {
        functions(&self.connection)
    }

    fn check(&self, code: c_int, context: &str) -> Result<()> {
        self.connection.check(code, context)
    }

    /// `plait_get`.
    pub fn get(&self, key: &Value) -> Result<Option<Value>> {
        let mut out = NONE;
        // SAFETY: the map is open, key and place live through the call.
        let code = unsafe { (self.functions().get)(self.raw, raw(Some(key)), &raw mut out) };
        self.check(code, "get")?;
        Ok(cooked(&out))
    }

    /// `plait_get` of text or bytes: shows them where they are, and says whether they are there.
    pub fn visit<'a>(
        &self,
        key: impl Into<ValueRef<'a>>,
        found: impl FnOnce(&[u8]),
    ) -> Result<bool> {
        let mut out = NONE;
        // SAFETY: as in `get`.
        let code = unsafe { (self.functions().get)(self.raw, raw(Some(key)), &raw mut out) };
        self.check(code, "get")?;
        if out.kind == NONE.kind {
            return Ok(false);
        }
        // SAFETY: the call has just returned.
        found(unsafe { answered(&out) });
        Ok(true)
    }

    /// `plait_get` of text or bytes: their size, without a copy of them.
    pub fn size_of(&self, key: &Value) -> Result<Option<usize>> {
        let mut size = 0;
        let is_there = self.visit(key, |bytes| size = bytes.len())?;
        Ok(is_there.then_some(size))
    }

    /// `plait_contains`.
    pub fn contains(&self, key: &Value) -> Result<bool> {
        let mut found = 0;
        // SAFETY: as in `get`.
        let code = unsafe { (self.functions().contains)(self.raw, raw(Some(key)), &raw mut found) };
        self.check(code, "contains")?;
        Ok(found != 0)
    }

    /// `plait_get_many`.
    pub fn get_many(&self, keys: &[Value]) -> Result<Vec<Option<Value>>> {
        let raw_keys: Vec<RawKeyValue> = keys.iter().map(|key| raw(Some(key))).collect();
        let mut out = vec![NONE; keys.len()];
        let n = c_int::try_from(keys.len()).expect("not that many");
        // SAFETY: both arrays have n places.
        let code = unsafe {
            (self.functions().get_many)(self.raw, n, raw_keys.as_ptr(), out.as_mut_ptr())
        };
        self.check(code, "get_many")?;
        Ok(out.iter().map(cooked).collect())
    }

    /// A call of `plait_map_close` from within a call on this map, and its result.
    ///
    /// # Panics
    /// If it is not refused: the map would be closed twice.
    pub fn refused_closer(&self) -> impl FnMut() -> c_int + Send + 'static {
        struct Raw(*mut RawMap);
        // SAFETY: it is used by the thread that calls the map, within that call.
        unsafe impl Send for Raw {}
        let (raw, close) = (Raw(self.raw), self.functions().map_close);
        move || {
            let Raw(raw) = &raw;
            // SAFETY: the map is open, since a call on it runs; if it is closed here nothing goes on.
            let code = unsafe { close(*raw) };
            assert_ne!(code, 0, "the map was closed under its call");
            code
        }
    }

    /// `plait_put`.
    pub fn put(&self, key: &Value, value: &Value) -> Result<()> {
        // SAFETY: as in `get`.
        let code = unsafe { (self.functions().put)(self.raw, raw(Some(key)), raw(Some(value))) };
        self.check(code, "put")
    }

    fn told(&self, context: &str, call: impl FnOnce(*mut c_int) -> c_int) -> Result<bool> {
        let mut done = 0;
        let code = call(&raw mut done);
        self.check(code, context)?;
        Ok(done != 0)
    }

    /// `plait_insert`.
    pub fn insert<'a>(
        &self,
        key: impl Into<ValueRef<'a>>,
        value: impl Into<ValueRef<'a>>,
    ) -> Result<bool> {
        let (key, value) = (raw(Some(key)), raw(Some(value)));
        // SAFETY: as in `get`.
        self.told("insert", |done| unsafe { (self.functions().insert)(self.raw, key, value, done) })
    }

    /// `plait_update`.
    pub fn update<'a>(
        &self,
        key: impl Into<ValueRef<'a>>,
        value: impl Into<ValueRef<'a>>,
    ) -> Result<bool> {
        let (key, value) = (raw(Some(key)), raw(Some(value)));
        // SAFETY: as in `get`.
        self.told("update", |done| unsafe { (self.functions().update)(self.raw, key, value, done) })
    }

    /// `plait_delete`.
    pub fn delete<'a>(&self, key: impl Into<ValueRef<'a>>) -> Result<bool> {
        let key = raw(Some(key));
        // SAFETY: as in `get`.
        self.told("delete", |done| unsafe { (self.functions().delete)(self.raw, key, done) })
    }

    /// `plait_compare_and_swap`.
    pub fn swap(
        &self,
        key: &Value,
        expected: Option<&Value>,
        value: Option<&Value>,
    ) -> Result<bool> {
        let (key, expected, value) = (raw(Some(key)), raw(expected), raw(value));
        // SAFETY: as in `get`.
        self.told("swap", |done| unsafe {
            (self.functions().compare_and_swap)(self.raw, key, expected, value, done)
        })
    }

    /// `plait_add`.
    pub fn add(&self, key: &Value, delta: i64) -> Result<i64> {
        let mut sum = 0;
        // SAFETY: as in `get`.
        let code = unsafe { (self.functions().add)(self.raw, raw(Some(key)), delta, &raw mut sum) };
        self.check(code, "add")?;
        Ok(sum)
    }

    /// `plait_append`.
    pub fn append(&self, key: &Value, tail: &Value) -> Result<i64> {
        let mut size = 0;
        let (key, tail) = (raw(Some(key)), raw(Some(tail)));
        // SAFETY: as in `get`.
        let code = unsafe { (self.functions().append)(self.raw, key, tail, &raw mut size) };
        self.check(code, "append")?;
        Ok(size)
    }

    /// `plait_count_range`.
    pub fn count(&self, range: &Range) -> Result<i64> {
        let mut rows = 0;
        let range = range.raw();
        // SAFETY: the range lives through the call.
        let code =
            unsafe { (self.functions().count_range)(self.raw, &raw const range, &raw mut rows) };
        self.check(code, "count_range")?;
        Ok(rows)
    }

    /// `plait_delete_range`.
    pub fn delete_range(&self, range: &Range) -> Result<i64> {
        let mut rows = 0;
        let range = range.raw();
        // SAFETY: the range lives through the call.
        let code =
            unsafe { (self.functions().delete_range)(self.raw, &raw const range, &raw mut rows) };
        self.check(code, "delete_range")?;
        Ok(rows)
    }

    /// `plait_first`, or `plait_last` if `backward`.
    pub fn end(&self, range: &Range, backward: bool) -> Result<Pair> {
        let call = if backward { self.functions().last } else { self.functions().first };
        let range = range.raw();
        let (mut key, mut value) = (NONE, NONE);
        // SAFETY: range and places live through the call.
        let code = unsafe { call(self.raw, &raw const range, &raw mut key, &raw mut value) };
        self.check(code, "first or last")?;
        Ok((cooked(&key), cooked(&value)))
    }

    /// `plait_batch`: the index of the condition that did not hold, if one did not.
    pub fn batch(&self, items: &[Item]) -> Result<Option<usize>> {
        let items: Vec<RawItem> = items.iter().map(Item::raw).collect();
        let n = c_int::try_from(items.len()).expect("not that many");
        let mut failed = -1;
        // SAFETY: the array has n items.
        let code =
            unsafe { (self.functions().batch)(self.raw, n, items.as_ptr(), &raw mut failed) };
        self.check(code, "batch")?;
        Ok(usize::try_from(failed).ok())
    }

    /// `plait_load`. An error of the iterator is a code that ends the load.
    pub fn load(
        &self,
        sorted: bool,
        rows: &mut dyn Iterator<Item = std::result::Result<(Value, Value), i32>>,
    ) -> Result<i64> {
        let mut source = Source { rows, current: None };
        let mut loaded = 0;
        // SAFETY: the source outlives the call, and only the callback uses it meanwhile.
        let code = unsafe {
            (self.functions().load)(
                self.raw,
                c_int::from(sorted),
                next_row,
                (&raw mut source).cast(),
                &raw mut loaded,
            )
        };
        self.check(code, "load")?;
        Ok(loaded)
    }

    /// Every call with null for what it needs: their codes.
    #[must_use]
    pub fn codes_of_null_arguments(&self) -> Vec<i32> {
        let f = self.functions();
        let (map, none, key) = (self.raw, ptr::null_mut::<RawMap>(), raw(Some(&Value::Integer(1))));
        let (mut out, mut cursor, mut opened) = (NONE, ptr::null_mut(), ptr::null_mut());
        let (db, name) = (self.connection.raw, c"m".as_ptr());
        macro_rules! codes {
            ($($call:expr;)*) => {
                // SAFETY: null, or what is no value, is what these calls must refuse before anything else is looked at.
                vec![$( unsafe { $call } ),*]
            };
        }
        codes! {
            (f.map_open)(db, ptr::null(), name, 0, ptr::null_mut());
            (f.map_open)(db, ptr::null(), ptr::null(), 0, &raw mut opened);
            (f.map_open)(ptr::null_mut(), ptr::null(), name, 0, &raw mut opened);
            (f.map_open)(db, ptr::null(), name, 0x1000, &raw mut opened);
            (f.get)(none, key, &raw mut out);
            (f.get)(map, key, ptr::null_mut());
            (f.get)(map, NONE, &raw mut out);
            (f.contains)(none, key, ptr::null_mut());
            (f.get_many)(map, 1, ptr::null(), &raw mut out);
            (f.get_many)(map, -1, &raw const key, &raw mut out);
            (f.put)(none, key, key);
            (f.put)(map, key, NONE);
            (f.put)(map, RawKeyValue { kind: 4, size_bytes: 1, ..NONE }, key);
            (f.put)(map, RawKeyValue { kind: 4, size_bytes: -1, ..NONE }, key);
            (f.put)(map, RawKeyValue { kind: 5, ..NONE }, key);
            (f.put)(map, RawKeyValue { kind: 2, real: f64::NAN, ..NONE }, key);
            (f.put)(map, key, RawKeyValue { kind: 9, ..NONE });
            (f.delete)(none, key, ptr::null_mut());
            (f.add)(none, key, 1, ptr::null_mut());
            (f.append)(map, key, key, ptr::null_mut());
            (f.batch)(map, 1, ptr::null(), ptr::null_mut());
            (f.batch)(map, -1, ptr::null(), ptr::null_mut());
            (f.count_range)(none, ptr::null(), ptr::null_mut());
            (f.first)(none, ptr::null(), &raw mut out, &raw mut out);
            (f.cursor_open)(map, ptr::null(), ptr::null_mut());
            (f.cursor_open)(none, ptr::null(), &raw mut cursor);
            (f.cursor_next)(ptr::null_mut(), &raw mut out, &raw mut out);
            (f.cursor_seek)(ptr::null_mut(), key, 0, &raw mut out, &raw mut out);
        }
    }

    /// Every call with a key, a value or a bound of `size` bytes, of which none can be read: their codes. The map's keys are bytes, and `present` is
    /// one of them.
    #[must_use]
    pub fn codes_of_sizes(&self, size: i64, present: &Value) -> Vec<(&'static str, i32)> {
        let (f, map) = (self.functions(), self.raw);
        let (key, absent) = (raw(Some(present)), raw(Some(&Value::Blob(b"absent".to_vec()))));
        let long = RawKeyValue { kind: 4, data: ptr::dangling(), size_bytes: size, ..NONE };
        let one = RawKeyValue { kind: 1, integer: 1, ..NONE };
        let keys = [key, long];
        let item = |op, key, value| RawItem { op, key, value };
        let (mut out, mut cursor) = ([NONE; 2], ptr::null_mut());
        let (pn, done) = (ptr::null_mut::<i64>(), ptr::null_mut::<c_int>());
        let places = out.as_mut_ptr();
        let range = |lo, hi, flags| RawRange { lo, hi, flags };
        let (lo, hi) = (range(long, NONE, 0), range(NONE, long, 2));
        let prefix = range(long, NONE, 4);
        macro_rules! codes {
            ($($name:ident($($argument:expr),*);)*) => {
                vec![$({
                    // SAFETY: the sizes must be refused before anything is read; the rest is as it should be.
                    let code = unsafe { (f.$name)(map, $($argument),*) };
                    (concat!(stringify!($name), "(", stringify!($($argument),*), ")"), code)
                }),*]
            };
        }
        codes! {
            get(long, places);
            contains(long, done);
            get_many(2, keys.as_ptr(), places);
            put(long, one);
            put(key, long);
            insert(key, long, done);
            insert(absent, long, done);
            insert(long, one, done);
            update(key, long, done);
            update(absent, long, done);
            delete(long, done);
            compare_and_swap(long, NONE, one, done);
            compare_and_swap(key, long, one, done);
            compare_and_swap(absent, long, one, done);
            compare_and_swap(absent, one, long, done);
            compare_and_swap(absent, NONE, long, done);
            add(long, 1, pn);
            append(long, absent, pn);
            append(absent, long, pn);
            count_range(&raw const lo, pn);
            count_range(&raw const hi, pn);
            delete_range(&raw const prefix, pn);
            first(&raw const hi, places, places.wrapping_add(1));
            last(&raw const lo, places, places.wrapping_add(1));
            batch(1, [item(1, long, one)].as_ptr(), done);
            batch(1, [item(2, long, one)].as_ptr(), done);
            batch(1, [item(3, long, one)].as_ptr(), done);
            batch(1, [item(4, absent, long)].as_ptr(), done);
            batch(2, [item(4, absent, one), item(1, key, long)].as_ptr(), done);
            cursor_open(&raw const lo, &raw mut cursor);
            cursor_open(&raw const hi, &raw mut cursor);
            cursor_open(&raw const prefix, &raw mut cursor);
        }
    }

    /// `plait_cursor_open`.
    pub fn cursor(&self, range: &Range) -> Result<MapCursor> {
        let range = range.raw();
        let mut raw = ptr::null_mut();
        // SAFETY: the range is copied by the call, and `raw` is a valid place.
        let code =
            unsafe { (self.functions().cursor_open)(self.raw, &raw const range, &raw mut raw) };
        self.check(code, "cursor_open")?;
        Ok(MapCursor { connection: self.connection.clone(), raw })
    }
}

struct Source<'a> {
    rows: &'a mut dyn Iterator<Item = std::result::Result<(Value, Value), i32>>,
    current: Option<(Value, Value)>,
}

unsafe extern "C" fn next_row(
    context: *mut c_void,
    key: *mut RawKeyValue,
    value: *mut RawKeyValue,
) -> c_int {
    // SAFETY: `load` passed its own source.
    let source = unsafe { &mut *context.cast::<Source<'_>>() };
    match source.rows.next() {
        None => DONE,
        Some(Err(code)) => code,
        Some(Ok(row)) => {
            let (row_key, row_value) = source.current.insert(row);
            // SAFETY: it is a valid place by the contract of `plait_load`.
            unsafe { key.write(raw(Some(&*row_key))) };
            // SAFETY: as above.
            unsafe { value.write(raw(Some(&*row_value))) };
            ROW
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: closed once, and the connection is still open because the map owns a share of it.
        unsafe { (self.functions().map_close)(self.raw) };
    }
}

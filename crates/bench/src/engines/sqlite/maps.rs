//! Plait's key-value API (`plait.h`) on the tables of SQL: no statement on the way.

#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use super::api::{self, Database};
use super::connection::SqliteConnection;
use crate::engines::{Begin, Connection, Failure, Key, KeyValue, Outcome, Table, Waits};

/// `plait_value`: a key or a value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RawValue {
    kind: c_int,
    integer: i64,
    real: f64,
    data: *const c_void,
    size: i64,
}

/// `PLAIT_NONE`
const NONE: c_int = 0;
/// `SQLITE_INTEGER`
const INTEGER: c_int = 1;
/// `SQLITE_BLOB`
const BLOB: c_int = 4;
/// Milliseconds of a wait that has no end.
const FOREVER: c_int = -1;
/// `PLAIT_GE`
const AT_LEAST: c_int = 1;

impl RawValue {
    const fn none() -> Self {
        Self { kind: NONE, integer: 0, real: 0.0, data: ptr::null(), size: 0 }
    }

    fn bytes(bytes: &[u8]) -> Self {
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        Self { kind: BLOB, data: bytes.as_ptr().cast(), size, ..Self::none() }
    }

    fn key(key: Key<'_>) -> Self {
        match key {
            Key::Int(integer) => Self { kind: INTEGER, integer, ..Self::none() },
            Key::Blob(bytes) => Self::bytes(bytes),
        }
    }

    /// What an answer points to.
    ///
    /// # Safety
    /// It is the answer of the last call, and a blob, a text or nothing.
    unsafe fn answered(&self) -> &[u8] {
        match usize::try_from(self.size) {
            // SAFETY: the library says that so many bytes are there until the next call.
            Ok(size) if size > 0 => unsafe { std::slice::from_raw_parts(self.data.cast(), size) },
            _ => &[],
        }
    }
}

/// `plait_map*`
pub type RawMap = *mut c_void;
/// `plait_cursor*`
pub type RawCursor = *mut c_void;

/// A map of one connection.
struct Map(RawMap);

/// A connection that works on its tables by keys.
pub struct MapConnection {
    connection: SqliteConnection,
    maps: Vec<Map>,
}

// SAFETY: as its connection, to which the maps belong.
unsafe impl Send for MapConnection {}

impl MapConnection {
    /// Opens the tables, which are there.
    ///
    /// # Errors
    /// If the library has no key-value API, or refuses a table.
    pub fn new(connection: SqliteConnection, tables: &[Table]) -> Outcome<Self> {
        let mut made = Self { connection, maps: Vec::new() };
        for table in tables {
            let map = made.open(&table.name)?;
            made.maps.push(Map(map));
        }
        Ok(made)
    }

    fn open(&self, table: &str) -> Outcome<RawMap> {
        let name = CString::new(table).map_err(|_| Failure::broken("a name with a zero byte"))?;
        let mut map = ptr::null_mut();
        let open = self.api()?.open;
        // SAFETY: an open connection, a name that ends in a zero byte, and a place of the right type.
        let code = unsafe {
            open(self.connection.database, c"main".as_ptr(), name.as_ptr(), 0, &raw mut map)
        };
        self.check(code, "plait_map_open")?;
        Ok(map)
    }

    fn api(&self) -> Outcome<MapFunctions> {
        self.connection.api.maps().ok_or_else(|| Failure::broken(WITHOUT_MAPS))
    }

    fn check(&self, code: c_int, doing: &str) -> Outcome<()> {
        if code == api::OK { Ok(()) } else { Err(self.connection.failure(code, doing)) }
    }

    /// A call that tells whether it did something.
    fn did(
        &self,
        doing: &str,
        call: impl FnOnce(&MapFunctions, *mut c_int) -> c_int,
    ) -> Outcome<bool> {
        let mut done = 0;
        let code = call(&self.api()?, &raw mut done);
        self.check(code, doing)?;
        Ok(done != 0)
    }

    /// The values of a cursor from where `first` puts it on.
    fn walk(
        &self,
        cursor: RawCursor,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let functions = self.api()?;
        let mut value = RawValue::none();
        for number in 0..count {
            let out = &raw mut value;
            let code = match from {
                // SAFETY: an open cursor, a key that lives through the call, and a place of the right type.
                Some(key) if number == 0 => unsafe {
                    (functions.seek)(cursor, RawValue::key(key), AT_LEAST, ptr::null_mut(), out)
                },
                // SAFETY: as above.
                _ => unsafe { (functions.next)(cursor, ptr::null_mut(), out) },
            };
            match code {
                // SAFETY: the answer of the call above.
                api::ROW => found(unsafe { value.answered() }),
                api::DONE => return Ok(number),
                code => return Err(self.connection.failure(code, "a cursor")),
            }
        }
        Ok(count)
    }
}

impl Drop for MapConnection {
    fn drop(&mut self) {
        let Ok(functions) = self.api() else { return };
        for map in self.maps.drain(..) {
            // SAFETY: an open map, whose connection is closed after it.
            unsafe { (functions.close)(map.0) };
        }
    }
}

impl Connection for MapConnection {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        self.connection.begin(begin)
    }

    fn commit(&mut self) -> Outcome<()> {
        self.connection.commit()
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.connection.rollback()
    }

    fn waits(&self) -> Waits {
        self.connection.waits()
    }
}

impl KeyValue for MapConnection {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        let mut value = RawValue::none();
        let get = self.api()?.get;
        // SAFETY: an open map, a key that lives through the call, and a place of the right type.
        let code = unsafe { get(self.maps[table].0, RawValue::key(key), &raw mut value) };
        self.check(code, "plait_get")?;
        if value.kind == NONE {
            return Ok(false);
        }
        // SAFETY: the answer of the call above.
        found(unsafe { value.answered() });
        Ok(true)
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        let (map, key, value) = (self.maps[table].0, RawValue::key(key), RawValue::bytes(value));
        // SAFETY: an open map, and a key and a value that live through the call.
        match self.did("plait_insert", |f, done| unsafe { (f.insert)(map, key, value, done) })? {
            true => Ok(()),
            false => Err(Failure::broken("plait_insert found the key there already")),
        }
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        let (map, key, value) = (self.maps[table].0, RawValue::key(key), RawValue::bytes(value));
        // SAFETY: as in `insert`.
        match self.did("plait_update", |f, done| unsafe { (f.update)(map, key, value, done) })? {
            true => Ok(()),
            false => Err(Failure::broken("plait_update found no such key")),
        }
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        let (map, key) = (self.maps[table].0, RawValue::key(key));
        // SAFETY: an open map, and a key that lives through the call.
        self.did("plait_delete", |f, done| unsafe { (f.delete)(map, key, done) })
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let functions = self.api()?;
        let mut cursor = ptr::null_mut();
        // SAFETY: an open map, no range, and a place of the right type.
        let code =
            unsafe { (functions.cursor_open)(self.maps[table].0, ptr::null(), &raw mut cursor) };
        self.check(code, "plait_cursor_open")?;
        let walked = self.walk(cursor, from, count, found);
        // SAFETY: an open cursor, which nobody uses after this.
        let code = unsafe { (functions.cursor_close)(cursor) };
        let walked = walked?;
        self.check(code, "plait_cursor_close")?;
        Ok(walked)
    }

    fn ticket(&mut self) -> Outcome<i64> {
        let (ticket, mut number) = (self.api()?.ticket, 0);
        // SAFETY: an open connection, its main database, and a place of the right type.
        let code = unsafe { ticket(self.connection.database, ptr::null(), &raw mut number) };
        self.check(code, "plait_ticket")?;
        Ok(number)
    }

    fn wait_until_on_disk(&mut self, ticket: i64) -> Outcome<i64> {
        let (functions, database) = (self.api()?, self.connection.database);
        let (mut is_there, mut through) = (0, 0);
        // SAFETY: an open connection, its main database, and a place of the right type.
        let code =
            unsafe { (functions.wait)(database, ptr::null(), ticket, FOREVER, &raw mut is_there) };
        self.check(code, "plait_wait")?;
        // SAFETY: as above.
        let code = unsafe { (functions.durable)(database, ptr::null(), &raw mut through) };
        self.check(code, "plait_durable")?;
        if is_there == 0 || through < ticket {
            return Err(Failure::broken(format!(
                "plait_wait has waited for ticket {ticket}, and plait_durable says {through}"
            )));
        }
        Ok(through)
    }
}

/// Why a library cannot be used by keys.
pub const WITHOUT_MAPS: &str = "this library has no plait_map_open: it is not Plait's";

/// The functions of `plait.h` that are called.
#[derive(Clone, Copy)]
pub struct MapFunctions {
    pub open:
        unsafe extern "C" fn(Database, *const c_char, *const c_char, c_int, *mut RawMap) -> c_int,
    pub close: unsafe extern "C" fn(RawMap) -> c_int,
    pub get: unsafe extern "C" fn(RawMap, RawValue, *mut RawValue) -> c_int,
    pub insert: unsafe extern "C" fn(RawMap, RawValue, RawValue, *mut c_int) -> c_int,
    pub update: unsafe extern "C" fn(RawMap, RawValue, RawValue, *mut c_int) -> c_int,
    pub delete: unsafe extern "C" fn(RawMap, RawValue, *mut c_int) -> c_int,
    pub cursor_open: unsafe extern "C" fn(RawMap, *const c_void, *mut RawCursor) -> c_int,
    pub seek:
        unsafe extern "C" fn(RawCursor, RawValue, c_int, *mut RawValue, *mut RawValue) -> c_int,
    pub next: unsafe extern "C" fn(RawCursor, *mut RawValue, *mut RawValue) -> c_int,
    pub cursor_close: unsafe extern "C" fn(RawCursor) -> c_int,
    pub ticket: unsafe extern "C" fn(Database, *const c_char, *mut i64) -> c_int,
    pub durable: unsafe extern "C" fn(Database, *const c_char, *mut i64) -> c_int,
    pub wait: unsafe extern "C" fn(Database, *const c_char, i64, c_int, *mut c_int) -> c_int,
}

impl MapFunctions {
    /// Finds them in a library; none if it is not Plait's.
    pub fn find(library: &libloading::os::unix::Library) -> Option<Self> {
        macro_rules! found {
            ($symbol:literal) => {
                // SAFETY: the types are those of plait.h.
                unsafe { library.get($symbol) }.ok().map(|f| *f)?
            };
        }
        Some(Self {
            open: found!(b"plait_map_open\0"),
            close: found!(b"plait_map_close\0"),
            get: found!(b"plait_get\0"),
            insert: found!(b"plait_insert\0"),
            update: found!(b"plait_update\0"),
            delete: found!(b"plait_delete\0"),
            cursor_open: found!(b"plait_cursor_open\0"),
            seek: found!(b"plait_cursor_seek\0"),
            next: found!(b"plait_cursor_next\0"),
            cursor_close: found!(b"plait_cursor_close\0"),
            ticket: found!(b"plait_ticket\0"),
            durable: found!(b"plait_durable\0"),
            wait: found!(b"plait_wait\0"),
        })
    }
}

//! [`Session`]: what can be done with an open connection, whoever has opened it.
//!
//! Maps that are not in use are kept open, for the next time that they are asked for. A kept one is asked first whether its
//! table is still there, with a key that fits; if not it is opened anew, which creates the table if the definition says so.
//!
//! Invariants
//! - OPEN-1 `db` is open as long as the session: an owner closes it when the session is dropped, a borrower borrows it for longer.
//! - OPEN-2 A session is used by one thread at a time: it is not `Sync`, and nothing that borrows it is `Send`.
//! - OPEN-3 `in_use` counts the maps and cursors that exist. Maps return when they are dropped; a session that has lost one (by
//!   `mem::forget`) is never used by others, see `Connection`.
//! - OPEN-4 While `is_loading` the library is in the middle of `plait_load`, which asks the program for rows: nothing may write then.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_int};
use std::ptr::{self, NonNull};

use crate::definition::MapDefinition;
use crate::error::{Error, Result};
use crate::ffi::{self, RawDb, RawMap};
use crate::map::{Map, ReadMap};
use crate::types::{Key, Value};

/// Maps that are kept open for the next use.
const KEPT_MAX: usize = 32;

/// An open connection: maps, SQL and tickets.
///
/// [`Connection`](crate::Connection), [`Borrowed`](crate::Borrowed) and [`Transaction`](crate::Transaction) are sessions, by `Deref`. Outside of
/// a transaction each call is one of its own.
pub struct Session {
    db: NonNull<RawDb>,
    is_owner: bool,
    is_concurrent: Cell<bool>,
    /// A call since the last BEGIN has met a conflict.
    pub(crate) conflicted: Cell<bool>,
    /// A closure runs, in a transaction that was begun for it.
    pub(crate) in_closure: Cell<bool>,
    pub(crate) is_loading: Cell<bool>,
    pub(crate) in_use: Cell<usize>,
    kept: RefCell<Vec<Handle>>,
}

/// An open map of the library, and as what it was opened.
pub(crate) struct Handle {
    pub(crate) raw: NonNull<RawMap>,
    schema: CString,
    table: CString,
    flags: c_int,
    /// The column of its keys; none where nobody may ask for it.
    key: Option<CString>,
}

impl Handle {
    pub(crate) fn table(&self) -> &str {
        // It was made from text.
        self.table.to_str().unwrap_or_default()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the map is open and its connection too: the session that keeps or lends it is (OPEN-1).
        unsafe { ffi::plait_map_close(self.raw.as_ptr()) };
    }
}

impl Session {
    /// # Safety
    /// `db` is an open connection of the library that this crate is linked with, used by nobody else from another thread as long as the
    /// session lives. An owner's may be closed by it; a borrower's stays open for longer.
    pub(crate) unsafe fn new(db: NonNull<RawDb>, is_owner: bool) -> Session {
        Session {
            db,
            is_owner,
            is_concurrent: Cell::new(false),
            conflicted: Cell::new(false),
            in_closure: Cell::new(false),
            is_loading: Cell::new(false),
            in_use: Cell::new(0),
            kept: RefCell::new(Vec::new()),
        }
    }

    /// Opens a map; see [`MapDefinition`].
    ///
    /// Creating a missing table is a change of the schema, for which transactions wait that others have open.
    pub fn map<K: Key, V: Value>(
        &self,
        definition: MapDefinition<'_, K, V>,
    ) -> Result<Map<'_, K, V>> {
        let handle = self.take::<K, V>(&definition, definition.flags())?;
        Ok(Map(ReadMap::new(self, handle)))
    }

    /// Opens a map that can only be read. Its table must exist.
    pub fn read_map<K: Key, V: Value>(
        &self,
        definition: MapDefinition<'_, K, V>,
    ) -> Result<ReadMap<'_, K, V>> {
        let handle = self.take::<K, V>(&definition, definition.read_only_flags())?;
        Ok(ReadMap::new(self, handle))
    }

    /// Whether no transaction is open that BEGIN has begun.
    pub fn is_autocommit(&self) -> bool {
        // SAFETY: OPEN-1.
        unsafe { ffi::sqlite3_get_autocommit(self.raw()) != 0 }
    }

    /// Whether the database was in concurrent mode when it was opened.
    pub fn is_concurrent(&self) -> bool {
        self.is_concurrent.get()
    }

    pub(crate) fn raw(&self) -> *mut RawDb {
        self.db.as_ptr()
    }

    /// Looks in which journal mode the database is.
    pub(crate) fn note_mode(&self) -> Result<String> {
        let mode = self.query_row("PRAGMA main.journal_mode", &[], |row| row.get::<String>(0))?;
        let mode = mode.unwrap_or_default();
        self.is_concurrent.set(mode == "concurrent");
        Ok(mode)
    }

    /// Refuses what may write in the middle of a load (OPEN-4), and in a closure whose transaction is no more.
    pub(crate) fn may_write(&self) -> Result<()> {
        if self.in_closure.get() && self.is_autocommit() {
            return Err(Error::Refused(
                "the transaction of this closure has been ended inside of it, by an error that rolled it back or by SQL: return from the closure".into(),
            ));
        }
        if self.is_loading.get() {
            return Err(Error::Refused(
                "a load is running on this connection: what gives its rows may read from maps, and do nothing else".into(),
            ));
        }
        Ok(())
    }

    /// The error of a call that has just returned `code`.
    pub(crate) fn error(&self, code: c_int, doing: impl Into<String>) -> Error {
        // SAFETY: OPEN-1.
        let last = unsafe { ffi::sqlite3_extended_errcode(self.raw()) };
        let error = if last & 0xff == code & 0xff {
            // SAFETY: OPEN-1.
            let text = unsafe { ffi::sqlite3_errmsg(self.raw()) };
            // SAFETY: it stays until the next call on this connection, which is used by this thread alone.
            let text = unsafe { ffi::owned_text(text) };
            Error::Sqlite { extended_code: last, text, doing: doing.into() }
        } else {
            Error::of_code(code, doing)
        };
        if error.is_conflict() {
            self.conflicted.set(true);
        }
        error
    }

    pub(crate) fn check(&self, code: c_int, doing: impl FnOnce() -> String) -> Result<()> {
        if code == ffi::OK { Ok(()) } else { Err(self.error(code, doing())) }
    }

    /// A kept map, or one that is opened now.
    fn take<K: Key, V: Value>(
        &self,
        definition: &MapDefinition<'_, K, V>,
        flags: c_int,
    ) -> Result<Handle> {
        self.may_write()?;
        let name = |text: &str| {
            CString::new(text).map_err(|_| {
                Error::Refused(format!("the name of a map holds a zero byte: {text:?}"))
            })
        };
        let (schema, table) = (name(definition.schema)?, name(definition.table)?);
        if let Some(kept) = self.take_kept::<K>(&schema, &table, flags)? {
            return Ok(kept);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: OPEN-1; the names are C strings, and `raw` takes the map.
        let code = unsafe {
            ffi::plait_map_open(self.raw(), schema.as_ptr(), table.as_ptr(), flags, &raw mut raw)
        };
        self.check(code, || format!("map \"{}\"", definition.table))?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::of_code(ffi::MISUSE, "opening a map"))?;
        let mut handle = Handle { raw, schema, table, flags, key: None };
        if let Some((key, declared)) = self.key_column(definition.schema, definition.table)? {
            check_keys::<K>(definition.table, &declared)?;
            handle.key = CString::new(key).ok();
        }
        Ok(handle)
    }

    /// A kept map whose table is there, with a key that fits.
    fn take_kept<K: Key>(
        &self,
        schema: &CString,
        table: &CString,
        flags: c_int,
    ) -> Result<Option<Handle>> {
        let mut kept = self.kept.borrow_mut();
        let is_it = |h: &Handle| h.table == *table && h.schema == *schema && h.flags == flags;
        let Some(at) = kept.iter().position(is_it) else { return Ok(None) };
        let handle = kept.swap_remove(at);
        drop(kept);
        // No key at all: a statement that looks at the schema and reads no row.
        // SAFETY: the map is open; no key is read and no answer written.
        let code =
            unsafe { ffi::plait_get_many(handle.raw.as_ptr(), 0, ptr::null(), ptr::null_mut()) };
        match code & 0xff {
            ffi::OK => match &handle.key {
                None => Ok(Some(handle)),
                Some(key) => match self.declared(&handle, key) {
                    None => Ok(None),
                    Some(declared) => {
                        check_keys::<K>(handle.table(), &declared).map(|()| Some(handle))
                    }
                },
            },
            ffi::ERROR => Ok(None),
            _ => Err(self.error(code, format!("map \"{}\"", handle.table()))),
        }
    }

    /// A map is no longer used.
    pub(crate) fn keep(&self, handle: Handle) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() < KEPT_MAX {
            kept.push(handle);
        }
    }

    /// The key column of a table, and the type that it is declared with. None where an authorizer lets nobody ask: there, keys that are read tell.
    fn key_column(&self, schema: &str, table: &str) -> Result<Option<(String, String)>> {
        let sql = "SELECT name, type FROM pragma_table_xinfo(?1, ?2) WHERE pk=1";
        let found = self.query_row(sql, crate::params![table, schema], |row| {
            Ok((row.get::<String>(0)?, row.get::<String>(1)?))
        });
        match found {
            Err(error) if error.code() == ffi::AUTH => Ok(None),
            found => found,
        }
    }

    /// The declared type of a map's key in the schema that the last statement has seen; none if the key is another column by now. It costs no statement.
    fn declared(&self, handle: &Handle, key: &CString) -> Option<String> {
        // A table without such a column has a rowid under these names, which would be taken for its key.
        if ["rowid", "oid", "_rowid_"]
            .iter()
            .any(|name| key.as_bytes().eq_ignore_ascii_case(name.as_bytes()))
        {
            return None;
        }
        let (mut declared, mut is_key) = (ptr::null(), 0);
        // SAFETY: OPEN-1; the names are C strings, two take the answers, and the others are not wanted.
        let code = unsafe {
            ffi::sqlite3_table_column_metadata(
                self.raw(),
                handle.schema.as_ptr(),
                handle.table.as_ptr(),
                key.as_ptr(),
                &raw mut declared,
                ptr::null_mut(),
                ptr::null_mut(),
                &raw mut is_key,
                ptr::null_mut(),
            )
        };
        // SAFETY: null, or a text of the schema, which stays until that changes.
        (code == ffi::OK && is_key != 0).then(|| unsafe { ffi::owned_text(declared) })
    }
}

/// Refuses a table whose key column would change the keys that are put.
fn check_keys<K: Key>(table: &str, declared: &str) -> Result<()> {
    if K::CREATES.fits(declared) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "map \"{table}\" has keys of type {declared}, and is asked for with keys of type {}",
        K::NAME
    )))
}

// SAFETY: a session moves with its owner alone (a `Borrowed`, which has one too, is not `Send`), and nothing that borrows it can then exist. The
// library allows a connection to be used by one thread after the other.
unsafe impl Send for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        self.kept.get_mut().clear();
        if self.is_owner {
            // SAFETY: OPEN-1. Maps and cursors that were lost keep it from being freed, and its files open.
            unsafe { ffi::sqlite3_close_v2(self.raw()) };
        }
    }
}

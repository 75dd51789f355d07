//! A transaction database, its transactions and reads.
//!
//! Objects are destroyed when they are dropped; each holds what must outlive it.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use super::api::{Api, Bytes, Error, Object};
use crate::engines::{Failure, Outcome, Refusal, Settings};

/// Runs a function that can report an error.
fn checked<T>(api: &Api, run: impl FnOnce(Error) -> T) -> Outcome<T> {
    let mut text = ptr::null_mut();
    let result = run(&raw mut text);
    if text.is_null() {
        return Ok(result);
    }
    // SAFETY: a text that ends in a zero byte, ours until it is freed.
    let message = format!("RocksDB: {}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
    // SAFETY: RocksDB's memory, which nobody uses after this.
    unsafe { (api.free)(text.cast()) };
    Err(meaning(message))
}

/// What an error's text means: the C interface gives no codes.
fn meaning(text: String) -> Failure {
    if text.contains("Deadlock") {
        Failure::Refused(Refusal::Deadlock, text)
    } else if text.contains("Operation timed out") {
        Failure::Refused(Refusal::Busy, text)
    } else if text.contains("Resource busy") || text.contains("Operation failed. Try again") {
        Failure::Refused(Refusal::Conflict, text)
    } else if text.contains("LOCK: Resource temporarily unavailable")
        || text.contains("lock hold by")
    {
        Failure::unsupported(format!("a store of RocksDB belongs to one process: {text}"))
    } else {
        Failure::broken(text)
    }
}

fn parts(bytes: &[u8]) -> (Bytes, usize) {
    (bytes.as_ptr().cast(), bytes.len())
}

/// Options of the database and of writes.
struct Options {
    api: Arc<Api>,
    database: Object,
    transactions: Object,
    transaction: Object,
    write: Object,
    read: Object,
}

impl Options {
    fn new(api: &Arc<Api>, settings: &Settings) -> Outcome<Self> {
        let options = Self {
            api: Arc::clone(api),
            // SAFETY: takes nothing, as all that follow.
            database: unsafe { (api.options_create)() },
            // SAFETY: as above.
            transactions: unsafe { (api.transactiondb_options_create)() },
            // SAFETY: as above.
            transaction: unsafe { (api.transaction_options_create)() },
            // SAFETY: as above.
            write: unsafe { (api.writeoptions_create)() },
            // SAFETY: as above.
            read: unsafe { (api.readoptions_create)() },
        };
        // SAFETY: options of the right kind, as in all that follow.
        unsafe { (api.options_set_create_if_missing)(options.database, 1) };
        // SAFETY: as above.
        unsafe { (api.transaction_options_set_deadlock_detect)(options.transaction, 1) };
        let sync: bool = settings.parse("sync")?.unwrap_or(false);
        // SAFETY: as above.
        unsafe { (api.writeoptions_set_sync)(options.write, u8::from(sync)) };
        let wal: bool = settings.parse("wal")?.unwrap_or(true);
        // SAFETY: as above.
        unsafe { (api.writeoptions_disable_WAL)(options.write, i32::from(!wal)) };
        if let Some(threads) = settings.parse("parallelism")? {
            // SAFETY: as above.
            unsafe { (api.options_increase_parallelism)(options.database, threads) };
        }
        if let Some(bytes) = settings.parse("write_buffer_size")? {
            // SAFETY: as above.
            unsafe { (api.options_set_write_buffer_size)(options.database, bytes) };
        }
        options.set_tables(settings)?;
        Ok(options)
    }

    /// Cache and filter of the files of tables.
    fn set_tables(&self, settings: &Settings) -> Outcome<()> {
        let api = &self.api;
        let (cache, bits) = (settings.parse("block_cache")?, settings.parse("bloom_bits")?);
        // SAFETY: takes nothing.
        let tables = unsafe { (api.block_based_options_create)() };
        if let Some(bytes) = cache {
            // SAFETY: takes a number.
            let cache = unsafe { (api.cache_create_lru)(bytes) };
            // SAFETY: options and a cache, which they hold from now on.
            unsafe { (api.block_based_options_set_block_cache)(tables, cache) };
            // SAFETY: our own hold on the cache.
            unsafe { (api.cache_destroy)(cache) };
        }
        if let Some(bits) = bits {
            // SAFETY: takes a number.
            let filter = unsafe { (api.filterpolicy_create_bloom_full)(bits) };
            // SAFETY: options and a filter, which is theirs from now on.
            unsafe { (api.block_based_options_set_filter_policy)(tables, filter) };
        }
        // SAFETY: options and options, of which they take a copy.
        unsafe { (api.options_set_block_based_table_factory)(self.database, tables) };
        // SAFETY: nobody uses them after this.
        unsafe { (api.block_based_options_destroy)(tables) };
        Ok(())
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: options of the right kind that nobody uses after this, as in all that follow.
        unsafe { (self.api.readoptions_destroy)(self.read) };
        // SAFETY: as above.
        unsafe { (self.api.writeoptions_destroy)(self.write) };
        // SAFETY: as above.
        unsafe { (self.api.transaction_options_destroy)(self.transaction) };
        // SAFETY: as above.
        unsafe { (self.api.transactiondb_options_destroy)(self.transactions) };
        // SAFETY: as above.
        unsafe { (self.api.options_destroy)(self.database) };
    }
}

/// An opened database.
pub struct Database {
    database: Object,
    options: Options,
}

// SAFETY: RocksDB lets any number of threads use a database at the same time; options are only read.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// Makes or opens the one in a folder.
    pub fn open(api: &Arc<Api>, folder: &Path, settings: &Settings) -> Outcome<Self> {
        use std::os::unix::ffi::OsStrExt as _;
        let options = Options::new(api, settings)?;
        let name = CString::new(folder.as_os_str().as_bytes())
            .map_err(|_| Failure::broken("a path with a zero byte"))?;
        // SAFETY: options of the right kinds and a text that ends in a zero byte.
        let database = checked(api, |error| unsafe {
            (api.transactiondb_open)(options.database, options.transactions, name.as_ptr(), error)
        })?;
        Ok(Self { database, options })
    }

    fn api(&self) -> &Api {
        &self.options.api
    }

    /// Makes a table.
    pub fn create(&self, name: &str) -> Outcome<Family> {
        let name = CString::new(name).map_err(|_| Failure::broken("a name with a zero byte"))?;
        let (api, options) = (self.api(), self.options.database);
        // SAFETY: an open database, options and a text that ends in a zero byte.
        let family = checked(api, |error| unsafe {
            (api.transactiondb_create_column_family)(self.database, options, name.as_ptr(), error)
        })?;
        Ok(Family { api: Arc::clone(&self.options.api), family })
    }

    /// Whether commits wait for the disk, and whether they write a log, as the options for writing tell.
    pub fn sync_and_wal(&self) -> (bool, bool) {
        // SAFETY: options for writing.
        let sync = unsafe { (self.api().writeoptions_get_sync)(self.options.write) };
        // SAFETY: as above.
        let disabled = unsafe { (self.api().writeoptions_get_disable_WAL)(self.options.write) };
        (sync != 0, disabled == 0)
    }

    /// Looks a key up, outside of any transaction or in a snapshot.
    pub fn get(
        &self,
        snapshot: Option<&Snapshot<'_>>,
        family: &Family,
        key: &[u8],
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<bool> {
        let (api, read) = (self.api(), self.read_options(snapshot));
        let (data, size) = parts(key);
        // SAFETY: an open database, one of its families, options and memory of the told size.
        let slice = checked(api, |error| unsafe {
            (api.transactiondb_get_pinned_cf)(self.database, read, family.family, data, size, error)
        })?;
        Ok(give(api, slice, found))
    }

    /// Gives a key a value, in a transaction of its own.
    pub fn put(&self, family: &Family, key: &[u8], value: &[u8]) -> Outcome<()> {
        let (api, write) = (self.api(), self.options.write);
        let ((key, key_size), (value, value_size)) = (parts(key), parts(value));
        // SAFETY: an open database, one of its families, options and memory of the told sizes.
        checked(api, |error| unsafe {
            (api.transactiondb_put_cf)(
                self.database,
                write,
                family.family,
                key,
                key_size,
                value,
                value_size,
                error,
            );
        })
    }

    /// Gives the first values from a key on, outside of any transaction or in a snapshot.
    pub fn scan(
        &self,
        snapshot: Option<&Snapshot<'_>>,
        family: &Family,
        from: &[u8],
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let (api, read) = (self.api(), self.read_options(snapshot));
        // SAFETY: an open database, one of its families and options.
        let rows =
            unsafe { (api.transactiondb_create_iterator_cf)(self.database, read, family.family) };
        walk(api, rows, from, count, found)
    }

    fn read_options(&self, snapshot: Option<&Snapshot<'_>>) -> Object {
        snapshot.map_or(self.options.read, |snapshot| snapshot.read)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: all transactions, snapshots and families are gone, and nobody uses the database after this.
        unsafe { (self.api().transactiondb_close)(self.database) };
    }
}

/// Gives the bytes of a value to `found`. An empty one may be anywhere, so that it is not looked at.
///
/// # Safety
/// If there are any, so many bytes can be read at `data` during the call.
unsafe fn hand(data: Bytes, size: usize, found: &mut dyn FnMut(&[u8])) {
    if size == 0 {
        found(&[]);
    } else {
        // SAFETY: the caller's promise.
        found(unsafe { std::slice::from_raw_parts(data.cast(), size) });
    }
}

/// Gives a looked-up value to `found`; tells whether there is one.
fn give(api: &Api, slice: Object, found: &mut dyn FnMut(&[u8])) -> bool {
    if slice.is_null() {
        return false;
    }
    let mut size = 0;
    // SAFETY: a slice that is not destroyed yet and a place of the right type.
    let data = unsafe { (api.pinnableslice_value)(slice, &raw mut size) };
    // SAFETY: the slice pins that many bytes there.
    unsafe { hand(data, size, found) };
    // SAFETY: nobody uses the slice or its bytes after this.
    unsafe { (api.pinnableslice_destroy)(slice) };
    true
}

/// Gives values from a key on, and destroys the iterator.
fn walk(
    api: &Api,
    rows: Object,
    from: &[u8],
    count: u64,
    found: &mut dyn FnMut(&[u8]),
) -> Outcome<u64> {
    let (data, size) = parts(from);
    // SAFETY: an iterator and memory of the told size.
    unsafe { (api.iter_seek)(rows, data, size) };
    let mut values = 0;
    // SAFETY: an iterator.
    while values < count && unsafe { (api.iter_valid)(rows) } != 0 {
        let mut size = 0;
        // SAFETY: the iterator stands on a row.
        let data = unsafe { (api.iter_value)(rows, &raw mut size) };
        // SAFETY: that many bytes stay there until the iterator moves.
        unsafe { hand(data, size, found) };
        values += 1;
        // SAFETY: the iterator stands on a row.
        unsafe { (api.iter_next)(rows) };
    }
    // SAFETY: an iterator.
    let ended = checked(api, |error| unsafe { (api.iter_get_error)(rows, error) });
    // SAFETY: nobody uses the iterator after this.
    unsafe { (api.iter_destroy)(rows) };
    ended.map(|()| values)
}

/// A table, as a column family.
pub struct Family {
    api: Arc<Api>,
    family: Object,
}

// SAFETY: a handle that is only read until it is destroyed.
unsafe impl Send for Family {}
// SAFETY: as above.
unsafe impl Sync for Family {}

impl Drop for Family {
    fn drop(&mut self) {
        // SAFETY: nobody uses the handle after this; its database is still open.
        unsafe { (self.api.column_family_handle_destroy)(self.family) };
    }
}

/// What was committed when it was made.
pub struct Snapshot<'a> {
    database: &'a Database,
    snapshot: Object,
    /// Options that read it.
    read: Object,
}

impl<'a> Snapshot<'a> {
    /// Of now.
    pub fn new(database: &'a Database) -> Self {
        let api = database.api();
        // SAFETY: an open database.
        let snapshot = unsafe { (api.transactiondb_create_snapshot)(database.database) };
        // SAFETY: takes nothing.
        let read = unsafe { (api.readoptions_create)() };
        // SAFETY: options and a snapshot that is released after them.
        unsafe { (api.readoptions_set_snapshot)(read, snapshot) };
        Self { database, snapshot, read }
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let api = self.database.api();
        // SAFETY: nobody uses them after this.
        unsafe { (api.readoptions_destroy)(self.read) };
        // SAFETY: as above.
        unsafe { (api.transactiondb_release_snapshot)(self.database.database, self.snapshot) };
    }
}

/// A connection's transaction object, used again for one transaction after the other as RocksDB advises.
pub struct Transaction<'a> {
    database: &'a Database,
    transaction: Object,
}

impl<'a> Transaction<'a> {
    /// An object for transactions, with the first one begun.
    pub fn begin(database: &'a Database) -> Self {
        let mut new = Self { database, transaction: ptr::null_mut() };
        new.begin_again();
        new
    }

    /// Begins the next transaction after the last has ended.
    pub fn begin_again(&mut self) {
        let options = &self.database.options;
        // SAFETY: an open database, options, and a transaction that has ended or none.
        self.transaction = unsafe {
            (options.api.transaction_begin)(
                self.database.database,
                options.write,
                options.transaction,
                self.transaction,
            )
        };
    }

    /// Commits.
    pub fn commit(&mut self) -> Outcome<()> {
        let api = self.database.api();
        // SAFETY: a transaction.
        checked(api, |error| unsafe { (api.transaction_commit)(self.transaction, error) })
    }

    /// Gives it up.
    pub fn rollback(&mut self) -> Outcome<()> {
        let api = self.database.api();
        // SAFETY: a transaction.
        checked(api, |error| unsafe { (api.transaction_rollback)(self.transaction, error) })
    }

    /// Looks a key up and locks it, there or not.
    pub fn get(&self, family: &Family, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        let api = self.database.api();
        let (data, size) = parts(key);
        // SAFETY: a transaction, a family of its database, options and memory of the told size.
        let slice = checked(api, |error| unsafe {
            (api.transaction_get_pinned_for_update_cf)(
                self.transaction,
                self.database.options.read,
                family.family,
                data,
                size,
                1,
                error,
            )
        })?;
        Ok(give(api, slice, found))
    }

    /// Gives a key a value.
    pub fn put(&self, family: &Family, key: &[u8], value: &[u8]) -> Outcome<()> {
        let api = self.database.api();
        let ((key, key_size), (value, value_size)) = (parts(key), parts(value));
        // SAFETY: a transaction, a family of its database and memory of the told sizes.
        checked(api, |error| unsafe {
            (api.transaction_put_cf)(
                self.transaction,
                family.family,
                key,
                key_size,
                value,
                value_size,
                error,
            );
        })
    }

    /// Removes a key.
    pub fn delete(&self, family: &Family, key: &[u8]) -> Outcome<()> {
        let api = self.database.api();
        let (data, size) = parts(key);
        // SAFETY: a transaction, a family of its database and memory of the told size.
        checked(api, |error| unsafe {
            (api.transaction_delete_cf)(self.transaction, family.family, data, size, error);
        })
    }

    /// Gives the first values from a key on.
    pub fn scan(
        &self,
        family: &Family,
        from: &[u8],
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let (api, read) = (self.database.api(), self.database.options.read);
        // SAFETY: a transaction, a family of its database and options.
        let rows =
            unsafe { (api.transaction_create_iterator_cf)(self.transaction, read, family.family) };
        walk(api, rows, from, count, found)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody uses the transaction after this; what is not committed is given up.
        unsafe { (self.database.api().transaction_destroy)(self.transaction) };
    }
}

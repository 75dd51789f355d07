//! [`Borrowed`]: a connection that somebody else has opened.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::session::Session;
use crate::transaction::{self, Runs, Snapshot, Transaction};

/// A connection of another crate or of C: maps, transactions and tickets beside what it is used for otherwise.
///
/// If a transaction is open on it already, maps belong to that one, and [`Borrowed::write`] is refused.
pub struct Borrowed<'h> {
    session: Session,
    runs: Runs,
    /// Neither `Send` nor `Sync`, as references to such connections are not.
    handle: PhantomData<(&'h (), *mut ())>,
}

impl<'h> Borrowed<'h> {
    /// Borrows a `sqlite3 *`.
    ///
    /// # Safety
    /// `db` is an open connection of the library that this program is linked with by way of this crate, and not of another copy of SQLite.
    /// It stays open as long as `'h`, in which nobody uses it from another thread. Maps are prepared statements to it: whoever closes it has to
    /// drop what has borrowed it before, and nobody may finalize all that `sqlite3_next_stmt` finds.
    pub unsafe fn from_raw(db: *mut c_void) -> Result<Borrowed<'h>> {
        let db = NonNull::new(db.cast()).ok_or_else(|| {
            Error::Refused("there is no connection behind the null pointer".into())
        })?;
        // SAFETY: the caller's contract. It is not the owner's: nothing closes it.
        let session = unsafe { Session::new(db, false) };
        session.note_mode()?;
        Ok(Borrowed { session, runs: Runs::default(), handle: PhantomData })
    }

    /// Borrows a connection of rusqlite, or by way of `&transaction` one in the middle of its transaction.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use plait::{Borrowed, MapDefinition};
    /// let mut connection = rusqlite::Connection::open_in_memory()?;
    /// let transaction = connection.transaction()?;
    /// transaction.execute_batch("CREATE TABLE users(k TEXT PRIMARY KEY, v)")?;
    /// {
    ///     let borrowed = Borrowed::from_rusqlite(&transaction)?;
    ///     borrowed.map(MapDefinition::<&str, i64>::new("users"))?.put("ada", 36)?;
    /// }
    /// let age: i64 = transaction.query_row("SELECT v FROM users WHERE k='ada'", [], |row| row.get(0))?;
    /// assert_eq!(age, 36);
    /// transaction.commit()?;
    /// # Ok(()) }
    /// ```
    ///
    /// While it is borrowed it cannot be closed:
    ///
    /// ```compile_fail,E0505
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let connection = rusqlite::Connection::open_in_memory()?;
    /// let borrowed = plait::Borrowed::from_rusqlite(&connection)?;
    /// drop(connection);
    /// borrowed.execute("SELECT 1", &[])?;
    /// # Ok(()) }
    /// ```
    ///
    /// The feature `rusqlite` of this crate has rusqlite use the SQLite that is linked here (its feature `in_gecko`, which means "it is
    /// there already", and goes before `bundled`). Should it call another one all the same, the connection is refused.
    #[cfg(feature = "rusqlite")]
    pub fn from_rusqlite(connection: &'h rusqlite::Connection) -> Result<Borrowed<'h>> {
        let theirs = rusqlite::ffi::sqlite3_libversion as *const ();
        let ours = crate::ffi::sqlite3_libversion as *const ();
        is_same_library(theirs.addr(), ours.addr())?;
        // SAFETY: it is used for what follows only.
        let db = unsafe { connection.handle() };
        // SAFETY: rusqlite calls the functions that are linked here, so that its connections are theirs. It is borrowed for `'h`, is not `Sync`,
        // and so neither closed nor used by another thread.
        unsafe { Borrowed::from_raw(db.cast()) }
    }

    /// How often its transactions are run.
    pub fn set_runs(&mut self, runs: Runs) {
        self.runs = runs;
    }

    /// Runs a transaction that writes; see [`Connection::write`](crate::Connection::write).
    pub fn write<T>(&mut self, run: impl FnMut(&Transaction<'_>) -> Result<T>) -> Result<T> {
        self.try_write(run)
    }

    /// The same for closures that have errors of their own.
    pub fn try_write<T, E: From<Error>>(
        &mut self,
        run: impl FnMut(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        transaction::write(&self.session, self.runs, run)
    }

    /// Runs a transaction that reads.
    pub fn read<T>(&mut self, run: impl FnOnce(&Snapshot<'_>) -> Result<T>) -> Result<T> {
        self.try_read(run)
    }

    /// The same for closures that have errors of their own.
    pub fn try_read<T, E: From<Error>>(
        &mut self,
        run: impl FnOnce(&Snapshot<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        transaction::read(&self.session, run)
    }
}

/// Refuses connections whose functions lie elsewhere.
#[cfg(feature = "rusqlite")]
fn is_same_library(theirs: usize, ours: usize) -> Result<()> {
    if theirs == ours {
        return Ok(());
    }
    Err(Error::Refused(
        "rusqlite calls another copy of SQLite than the one of this crate: build it without its feature loadable_extension and for the \
         same executable or shared library"
            .into(),
    ))
}

impl Deref for Borrowed<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl std::fmt::Debug for Borrowed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Borrowed").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "rusqlite"))]
mod tests {
    use super::*;

    #[test]
    fn a_connection_of_another_copy_of_sqlite_is_refused() {
        let error = is_same_library(1, 2).expect_err("they differ");
        assert!(error.to_string().contains("another copy of SQLite"), "{error}");
        is_same_library(1, 1).expect("they are the same");
    }
}

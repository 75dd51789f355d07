//! Transactions as closures: [`Transaction`], [`Snapshot`], and how often they are run.

use std::fmt;
use std::ops::Deref;

use crate::datum::Datum;
use crate::definition::MapDefinition;
use crate::error::{Error, Result};
use crate::map::ReadMap;
use crate::session::Session;
use crate::sql::Row;
use crate::types::{Key, Value};

/// How often a transaction that writes is run until it succeeds.
///
/// In concurrent mode it is run beside others at first (`BEGIN CONCURRENT`), and run again when something that it has read was changed. If
/// that was in vain it is run with the right to write from its beginning (`BEGIN IMMEDIATE`), which no conflict can take from
/// it unless it changes the schema or writes more than 7 MiB. In other journal modes there are only runs of the second kind.
///
/// The error of the last run is what the caller gets. Waiting for others is bounded by the busy timeout, in each run; a run that
/// has waited in vain is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Runs beside others.
    pub optimistic: u32,
    /// Runs with the right to write after that. If both are 0 there is one of these.
    pub queued: u32,
}

impl Default for Runs {
    fn default() -> Self {
        Runs { optimistic: 8, queued: 1 }
    }
}

/// A transaction that is running. All that can be done with its connection belongs to it.
///
/// It ends with the closure that it is given to, and so do its maps:
///
/// ```compile_fail
/// # fn main() -> plait::Result<()> {
/// # let mut connection = plait::Connection::open_in_memory()?;
/// let ages = plait::MapDefinition::<&str, i64>::new("ages");
/// let map = connection.write(|tx| tx.map(ages))?; // lifetime may not live long enough
/// # Ok(()) }
/// ```
///
/// While it runs its connection does nothing else, so that no call is mistaken for one of its own:
///
/// ```compile_fail,E0502
/// # fn main() -> plait::Result<()> {
/// # let mut connection = plait::Connection::open_in_memory()?;
/// let mut ages = connection.map(plait::MapDefinition::<&str, i64>::new("ages"))?;
/// connection.write(|tx| tx.execute("DELETE FROM ages", &[]))?;
/// ages.put("ada", 36)?;
/// # Ok(()) }
/// ```
pub struct Transaction<'s> {
    session: &'s Session,
}

/// A transaction that reads: everything in it sees the database as it was at its first read.
///
/// What would write is not there, or refused:
///
/// ```compile_fail,E0599
/// # fn main() -> plait::Result<()> {
/// # let mut connection = plait::Connection::open_in_memory()?;
/// let ages = plait::MapDefinition::<&str, i64>::new("ages");
/// connection.read(|snapshot| snapshot.map(ages)?.put("ada", 36))?;
/// # Ok(()) }
/// ```
pub struct Snapshot<'s> {
    session: &'s Session,
}

impl Deref for Transaction<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Snapshot<'_> {
    /// Opens a map. Its table must exist.
    pub fn map<K: Key, V: Value>(
        &self,
        definition: MapDefinition<'_, K, V>,
    ) -> Result<ReadMap<'_, K, V>> {
        self.session.read_map(definition)
    }

    /// The rows of one query; see [`Session::query`].
    pub fn query<T>(
        &self,
        sql: &str,
        params: &[Datum<'_>],
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.session.query_only(sql, params, read)
    }
}

/// Rolls the transaction back, if it is still open when this is dropped: after an error, and when a panic passes.
struct Open<'s>(&'s Session);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.in_closure.set(false);
        if !self.0.is_autocommit() {
            // Its own failure adds nothing: it leaves the transaction open, and the next one says so.
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

fn once<T, E: From<Error>>(
    session: &Session,
    begin: &str,
    run: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    if !session.is_autocommit() {
        return Err(E::from(Error::Refused(
            "a transaction is open on this connection already: end it first, or do the work in it"
                .into(),
        )));
    }
    session.conflicted.set(false);
    session.execute_batch(begin)?;
    let open = Open(session);
    session.in_closure.set(true);
    let done = run()?;
    session.execute_batch("COMMIT")?;
    drop(open);
    Ok(done)
}

/// Runs a transaction that writes, as often as `runs` says.
pub(crate) fn write<T, E: From<Error>>(
    session: &Session,
    runs: Runs,
    mut run: impl FnMut(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let optimistic = if session.is_concurrent() { runs.optimistic } else { 0 };
    let last = optimistic.saturating_add(runs.queued).max(1);
    let mut number = 1;
    loop {
        let begin = if number <= optimistic { "BEGIN CONCURRENT" } else { "BEGIN IMMEDIATE" };
        let result = once(session, begin, || run(&Transaction { session }));
        if result.is_ok() || !session.conflicted.get() || number >= last {
            return result;
        }
        number += 1;
    }
}

/// Runs a transaction that reads.
pub(crate) fn read<T, E: From<Error>>(
    session: &Session,
    run: impl FnOnce(&Snapshot<'_>) -> Result<T, E>,
) -> Result<T, E> {
    once(session, "BEGIN DEFERRED", || run(&Snapshot { session }))
}

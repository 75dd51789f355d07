//! The stores that are compared, behind one door.
//!
//! An [`Engine`] is named and described by the [`catalogue`]; opened in a trial's own process it is a [`Store`],
//! whose [`Connection`]s do the work, one for each thread. A connection speaks [`KeyValue`], [`Sql`] or both.
//! Key-value work runs on SQL engines through [`key_value_sql`], with the statements an application would use.
//!
//! | module | engines |
//! |---|---|
//! | [`sqlite`] | every library with SQLite's C interface: stock, Plait, Berkeley DB SQL, any other by path |
//! | [`postgres`] | PostgreSQL, a cluster of its own for each trial |
//! | `bdb` | Berkeley DB 5.3 by keys, where its header was when this was built |
//! | [`lmdb`] | LMDB |
//! | [`redb`] | redb |
//! | `fjall` | fjall, with the cargo feature of that name |
//! | `turso` | Turso, with the cargo feature of that name |
//! | [`rocksdb`] | RocksDB, by transactions that lock |
//! | [`files`] | the file system: a record is a file |
//! | [`dict`] | a dictionary in a Python process |
//! | [`fake`] | engines with a fault, which the suite must catch |
//! | [`map`] | ordered maps in memory behind a mutex, the ceiling |
//! | [`log`] | the same behind a bare log, the limit of durable writes |
//!
//! Threads: a store is shared by the threads of a trial, a connection stays with the thread that opened it.

#[cfg(bdb)]
pub mod bdb;
pub mod catalogue;
pub mod dict;
pub mod failure;
pub mod fake;
pub mod files;
#[cfg(feature = "fjall")]
pub mod fjall;
pub mod key_value_sql;
pub mod keys;
pub mod lmdb;
pub mod log;
pub mod map;
pub mod postgres;
pub mod redb;
pub mod rocksdb;
pub mod settings;
pub mod sqlite;
#[cfg(feature = "turso")]
pub mod turso;

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use failure::{Failure, Outcome, Refusal};
pub use key_value_sql::Dialect;
pub use settings::Settings;

/// What a commit survives, as claimed by settings. Only what is counted in a traced pass is ranked as durable.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Lost with the process.
    None,
    /// Survives the death of the process, and a power cut only in part (the last commits may be gone).
    Process,
    /// Survives a power cut: a system call that waits for the disk belongs to every commit or group of commits.
    PowerCut,
}

/// How a transaction begins. Engines without such a choice treat all of them alike.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Begin {
    /// Reads first, asks for the right to write when it writes.
    Deferred,
    /// Asks for the right to write at once.
    Immediate,
    /// Alone.
    Exclusive,
    /// Beside other writers, checked when it commits.
    Concurrent,
}

impl Begin {
    /// The word after BEGIN.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Deferred => "DEFERRED",
            Self::Immediate => "IMMEDIATE",
            Self::Exclusive => "EXCLUSIVE",
            Self::Concurrent => "CONCURRENT",
        }
    }
}

/// Kind of the keys of a key-value table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeyKind {
    /// Signed 64-bit integers. Stores of bytes keep them as 8 bytes.
    Int,
    /// Byte strings.
    Blob,
}

/// A key-value table to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// Its name; for a file system, of a folder.
    pub name: String,
    /// What its keys are.
    pub keys: KeyKind,
    /// Whether SQL engines that can are asked for a table without rowid.
    pub without_rowid: bool,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key<'a> {
    /// Of a table with [`KeyKind::Int`].
    Int(i64),
    /// Of a table with [`KeyKind::Blob`].
    Blob(&'a [u8]),
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A 64-bit integer.
    Int(i64),
    /// A text.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
}

/// A row of a result, valid until the next one is asked for.
pub trait Row {
    /// The integer in a column; 0 for NULL.
    fn int(&self, column: usize) -> i64;
    /// The bytes of a blob or text in a column; empty for NULL.
    fn bytes(&self, column: usize) -> &[u8];
    /// Whether a column is NULL.
    fn is_null(&self, column: usize) -> bool;
}

/// What a connection waited for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// Calls of the busy handler.
    pub busy_handler_calls: u64,
    /// Seconds slept in it.
    pub busy_handler_slept_s: f64,
}

/// A connection: transactions.
pub trait Connection {
    /// Begins a transaction.
    ///
    /// # Errors
    /// A refusal if the engine gives up waiting; [`Failure::Unsupported`] for a way of beginning it has not.
    fn begin(&mut self, begin: Begin) -> Outcome<()>;

    /// Begins a transaction that will only read, where the engine makes a difference.
    ///
    /// # Errors
    /// As those of [`begin`](Self::begin).
    fn begin_read(&mut self) -> Outcome<()> {
        self.begin(Begin::Deferred)
    }

    /// Ends the transaction; what it claims to survive is as the settings say.
    ///
    /// # Errors
    /// A refusal, after which [`rollback`](Self::rollback) must be called before the next try.
    fn commit(&mut self) -> Outcome<()>;

    /// Gives the transaction up. Does nothing when there is none.
    ///
    /// # Errors
    /// Only when the engine is broken.
    fn rollback(&mut self) -> Outcome<()>;

    /// What was waited so far, where the engine can tell.
    fn waits(&self) -> Waits {
        Waits::default()
    }
}

/// Work on tables of keys and values. Outside [`Connection::begin`] and [`Connection::commit`] each call is a
/// transaction of its own. `table` counts the tables given to [`Store::create`].
pub trait KeyValue: Connection {
    /// Gives the value of a key to `found`; tells whether there was one.
    ///
    /// # Errors
    /// See [`Failure`].
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool>;

    /// Adds a key that is not there yet.
    ///
    /// # Errors
    /// See [`Failure`]; engines that cannot tell may overwrite a key that is there.
    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()>;

    /// Gives a key that is there another value.
    ///
    /// # Errors
    /// See [`Failure`]; SQL engines break if the key is not there.
    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()>;

    /// Removes a key; tells whether it was there.
    ///
    /// # Errors
    /// See [`Failure`].
    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool>;

    /// Gives up to `count` values in the order of their keys from `from` on, or from the first, to `found`; tells
    /// how many.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] from engines without an order.
    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64>;

    /// The ticket of this connection's last commit; commits reach the disk in the order of their tickets.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] from engines that have none.
    fn ticket(&mut self) -> Outcome<i64> {
        Err(Failure::unsupported("a commit has no ticket"))
    }

    /// Waits until the commit of a ticket is on disk, and all before it; tells the greatest ticket of which that is true.
    ///
    /// # Errors
    /// As those of [`ticket`](Self::ticket).
    fn wait_until_on_disk(&mut self, _ticket: i64) -> Outcome<i64> {
        Err(Failure::unsupported("a commit has no ticket"))
    }
}

/// A prepared statement of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement(pub usize);

/// Work in SQL. Parameters are written `?1`, `?2` …; engines with another form translate.
pub trait Sql: Connection {
    /// Prepares a statement, once for the connection.
    ///
    /// # Errors
    /// See [`Failure`].
    fn prepare(&mut self, text: &str) -> Outcome<Statement>;

    /// Runs a statement that changes rows; tells how many it changed.
    ///
    /// # Errors
    /// See [`Failure`].
    fn execute(&mut self, statement: Statement, values: &[Value<'_>]) -> Outcome<u64>;

    /// Runs a statement and gives its rows to `found`; tells how many there were.
    ///
    /// # Errors
    /// See [`Failure`].
    fn query(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
        found: &mut dyn FnMut(&dyn Row),
    ) -> Outcome<u64>;

    /// Runs statements without parameters, as a script.
    ///
    /// # Errors
    /// See [`Failure`].
    fn script(&mut self, text: &str) -> Outcome<()>;

    /// The words of its SQL where dialects differ.
    fn dialect(&self) -> Dialect {
        key_value_sql::SQLITE
    }
}

/// An opened store.
pub trait Store: Sync {
    /// Makes tables of keys and values.
    ///
    /// # Errors
    /// See [`Failure`].
    fn create(&self, tables: &[Table]) -> Outcome<()>;

    /// A connection for key-value work on the tables that [`create`](Self::create) made, here or in another process.
    ///
    /// # Errors
    /// See [`Failure`].
    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>>;

    /// A connection for SQL.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] from engines without SQL.
    fn sql(&self) -> Outcome<Box<dyn Sql + '_>> {
        Err(Failure::unsupported("this engine has no SQL"))
    }

    /// The settings as the engine itself tells them, version included.
    ///
    /// # Errors
    /// See [`Failure`].
    fn settings(&self) -> Outcome<Settings>;

    /// Brings everything to disk, as far as the engine does so when it is closed in order.
    ///
    /// # Errors
    /// See [`Failure`].
    fn close(self: Box<Self>) -> Outcome<()>;
}

/// A kind of store that can be opened.
pub trait Engine: Sync {
    /// Opens a store in a directory, which is empty the first time. Several processes may open the same one.
    ///
    /// # Errors
    /// See [`Failure`]; unknown settings are refused by name.
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>>;

    /// The interpreter of an engine that lives in a Python process: workloads run there as scripts of their own.
    fn python(&self) -> Option<&Path> {
        None
    }
}

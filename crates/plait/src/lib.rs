//! SQLite with many writers, from Rust: typed maps on the tables of SQL, transactions that are run again on a conflict, and tickets as futures.
//!
//! The SQLite is in this crate: nothing has to be installed, and no library is loaded. It is the one of Plait, and any file of SQLite can be
//! opened with it.
//!
//! ```
//! use plait::{Database, MapDefinition};
//!
//! const USERS: MapDefinition<&str, &[u8]> = MapDefinition::new("users");
//! const VISITS: MapDefinition<&str, i64> = MapDefinition::new("visits");
//!
//! # fn main() -> plait::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("app.db");
//! let database = Database::open(path)?;                // any number of threads and processes may write
//! database.write(|tx| {
//!     tx.map(USERS)?.put("ada", b"\x01\x02")?;
//!     tx.map(VISITS)?.add("ada", 1)?;
//!     tx.execute("CREATE TABLE IF NOT EXISTS log(line)", &[])?; // SQL, in the same transaction
//!     Ok(())
//! })?;
//! let connection = database.connect()?;
//! let mut users = connection.map(USERS)?;              // each call is a transaction
//! assert_eq!(users.get("ada")?, Some(b"\x01\x02".as_slice()));
//! for row in users.range("a".."b")? {
//!     let (name, bytes) = row?;
//!     println!("{name}: {} bytes", bytes.len());
//! }
//! # Ok(()) }
//! ```
//!
//! # Design
//!
//! **Who owns what.** A [`Database`] is a file: `Clone`, `Send` and `Sync`. It owns the connections that nobody uses. A [`Connection`] is one
//! connection: `Send`, not `Sync`; it was opened alone, or comes from a database and goes back there when it is dropped. A [`Borrowed`] is one that is
//! somebody else's, for as long as it is borrowed. What can be done with either, outside of transactions, is a [`Session`]; with its two
//! transactions, a [`Transaction`] and a [`Snapshot`]. A [`Map`] or [`ReadMap`] borrows its session, a [`Cursor`] or [`Iter`] its map. So
//! nothing is used after it was closed, and all that borrows a session stays in its thread.
//!
//! **Whose memory answers are in.** What `get` answers as `&str` or `&[u8]` is not copied: the library keeps it until the next call on the same map. All
//! calls take `&mut self`, so that the compiler refuses one as long as the answer is used. Rows of cursors are copied once, since what the
//! library answers there lies in pages that any write on the connection may change. Nothing of this is checked while the program runs.
//!
//! **Transactions** are closures. One that writes gets a [`Transaction`] and is run again if it meets a conflict, [`Runs`] says how
//! often: eight times beside others, and then once with the right to write from its beginning. A conflict is `SQLITE_BUSY_SNAPSHOT`, from any call in the closure or from COMMIT;
//! nothing else is run again. An error or a panic rolls back. The closure's connection is borrowed mutably: nothing else can happen on it. Outside of transactions
//! a call on a map is a transaction of its own, which is in conflict with nobody.
//!
//! **Errors.** One enum, [`Error`], with SQLite's extended code and text, and what was being done: the map and the key, or the SQL. A stored value of another
//! type than the map's is an error that names its key, and never converted. Nothing panics but the program's own code; where that is called from within the library
//! (rows of [`Map::load`]) its panic is held at the border and goes on behind it.
//!
//! **Futures.** [`Database::durable_future`] needs no runtime: a small thread watches the library's descriptor and wakes.
//!
//! **Which SQLite.** The crate is linked with the one of this workspace, statically. With the feature `rusqlite` that crate
//! calls the same one, and [`Borrowed::from_rusqlite`] takes its connections. [`Borrowed::from_raw`] takes any `sqlite3 *` of that library,
//! and cannot tell one of another copy: that is its caller's promise.
//!
//! **Unsafe code** is where the library is called. `database`, `transaction`, `durable`, `definition`, `types`, `range` and `batch` have none.
//!
//! Deliberately absent: prepared statements that stay (maps are what is fast here; rusqlite has them), asynchronous
//! calls other than waiting for the disk (calls are short, and where they wait the busy timeout bounds it), nested transactions (SAVEPOINT
//! by SQL works).
//!
//! | module | concept |
//! |---|---|
//! | `database`, `connection`, `borrowed` | who owns a connection |
//! | `session`, `sql`, `ticket` | what can be done with one |
//! | `transaction` | closures, run again |
//! | `definition`, `types`, `datum`, `range` | what keys and values are |
//! | `map`, `batch`, `load`, `cursor` | the operations of `plait.h` |
//! | `durable` | tickets as futures |
//! | `ffi` | the library's functions |

#![deny(unsafe_code)]

mod batch;
mod borrowed;
mod connection;
mod cursor;
mod database;
mod datum;
mod definition;
mod durable;
mod error;
mod ffi;
mod load;
mod map;
mod range;
mod session;
mod sql;
mod ticket;
mod transaction;
mod types;

pub use batch::{Applied, Batch};
pub use borrowed::Borrowed;
pub use connection::{Connection, Options, Synchronous};
pub use cursor::{Cursor, Iter, Keys, Seek};
pub use database::Database;
pub use datum::{Datum, Stored};
pub use definition::MapDefinition;
pub use durable::Durable;
pub use error::{Error, Mismatch, Result};
pub use map::{Map, ReadMap};
pub use range::{Bounds, KeyRange, Prefix};
pub use session::Session;
pub use sql::Row;
pub use ticket::Ticket;
pub use transaction::{Runs, Snapshot, Transaction};
pub use types::{Appendable, Counter, Key, KeyType, PrefixKey, Value};

/// The examples of the pages compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/key-value.md")]
#[doc = include_str!("../../../docs/start.md")]
struct Pages;

/// The version of Plait that is linked, such as "0.1.0".
pub fn version() -> String {
    ffi::version()
}

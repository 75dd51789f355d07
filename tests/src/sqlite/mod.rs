//! A thin, safe view of any `libsqlite3` opened by path.
//!
//! Layout: [`api`](self) resolves the symbols, [`Library`] opens connections, [`Connection`] and [`Statement`] are
//! SQLite's objects, `hooks`, `blob`, `backup` and `session` the rest of the interface, `map` the key-value API. All unsafe code of this
//! package but `os.rs` is in this folder.
//!
//! Threads: a [`Connection`] may move between threads and be shared for the calls that SQLite allows from any
//! thread, because every library under test is built with `THREADSAFE=1` (serialized).

#![allow(unsafe_code)]

mod api;
mod backup;
mod blob;
mod connection;
mod error;
mod hooks;
mod library;
mod map;
mod session;
mod statement;

pub use backup::{Backup, BackupProgress};
pub use blob::Blob;
pub use connection::{Connection, OpenFlags, TransactionState};
pub use error::*;
pub use hooks::{ChangeKind, RowBefore, RowChange};
pub use library::Library;
pub use map::{Bound, Item, Map, MapCursor, Near, Range, create};
pub use session::{Changeset, Session};
pub use statement::{Statement, Step};

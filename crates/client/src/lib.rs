//! The client side of SQLite's C interface and of `plait.h`: a thin, safe view of any `libsqlite3` loaded by path, or of the one that the program
//! is linked with.
//!
//! | module | concept |
//! |---|---|
//! | `api` | the functions of one library, by name |
//! | [`Library`] | loading a library, opening databases with it |
//! | [`Connection`], [`Statement`] | SQLite's objects |
//! | [`SqlError`] | a failed call, with everything SQLite says about it |
//! | [`value`] | what is bound and read |
//! | `hooks`, [`Blob`], [`Backup`], [`Session`], [`WriteWatch`] | the rest of the interface |
//! | [`Map`] | keys and values, and tickets |
//!
//! Not all libraries have everything: see `MoreFunctions` in `api`. What is not there panics where it is called.
//!
//! Threads: a [`Connection`] may move between threads and be shared for the calls that SQLite allows from any
//! thread, because the libraries are built with `THREADSAFE=1` (serialized). [`Library::open_without_mutex`] leaves that to its caller.

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
pub mod value;
mod writes;

pub use backup::{Backup, BackupProgress};
pub use blob::Blob;
pub use connection::{Connection, OpenFlags, TransactionState};
pub use error::*;
pub use hooks::{ChangeKind, RowBefore, RowChange};
pub use library::{Library, LoadError};
pub use map::{Bound, Item, Map, MapCursor, Near, Range, create};
pub use session::{Changeset, Session};
pub use statement::{Statement, Step};
pub use value::{Value, ValueRef};
pub use writes::WriteWatch;

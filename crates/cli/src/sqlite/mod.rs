//! SQLite's C interface, as far as this program needs it: from the library that is linked in, or from one
//! that is loaded by path.
//!
//! | module | concept |
//! |---|---|
//! | [`library`] | the functions of one library |
//! | [`connection`] | an open database |
//! | [`statement`] | a prepared statement |
//! | [`error`] | a failed call |
//! | [`accept`] | the engine's own door for `plait recover --accept-base` |
#![allow(unsafe_code)]

pub mod accept;
pub mod connection;
pub mod error;
pub mod library;
pub mod statement;

pub use connection::{Connection, OpenFlags};
pub use error::SqlError;
pub use library::Library;
pub use statement::{Statement, Value};

//! Drop-in libsqlite3.

pub mod key;

//! Drop-in libsqlite3.

//! Shared-memory, log and transaction engine behind Plait.
//!
//! The layers, from the top. None imports from one above it (ARCHITECTURE.md draws them).
//! - [`attach`][]: a process joins a database and leaves it.
//! - [`txn`][]: one connection: snapshot, reads, writes, commit.
//! - [`mod@commit`][]: validation, and the commit.
//! - [`upkeep`][]: from memtables into the base.
//! - [`database`][]: what all connections share.
//! - [`session`][]: the start and end of a session, recovery; [`replay`][]: one applied elsewhere.
//! - [`shm`][]: the memory that all processes share.
//! - [`log`][] and [`memtable`][]: where a commit goes.
//! - [`sync`][]: waiting.
//! - [`storage`][]: files.
//! - [`ids`][]: the types of positions and numbers.
//!
//! No SQLite types: the base is a trait ([`base::Base`]), keys are bytes.

#![deny(unsafe_code)]

pub mod attach;
pub mod base;
pub mod belongs;
pub mod commit;
pub mod crash_point;
pub mod database;
pub mod error;
pub mod events;
pub mod fail_point;
pub mod fault;
pub mod filesystem;
pub mod follower;
pub mod ids;
pub mod log;
pub mod memory;
pub mod memtable;
#[cfg(test)]
mod model;
pub mod pages;
mod random;
mod registry;
pub mod replay;
pub mod replica;
pub mod session;
pub mod several;
pub mod ship;
pub mod shm;
pub mod storage;
pub mod sync;
pub mod txn;
pub mod upkeep;

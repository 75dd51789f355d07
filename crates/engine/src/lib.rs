//! Shared-memory, log and transaction engine behind Plait.
//!
//! The commit path, read from the top: [`database`] (one live session in this
//! process) -> [`txn`] (snapshot, reads, writes, commit) -> [`log`] and
//! [`memtable`] (where a commit goes) -> [`merge`] (from memtables into the
//! base) -> [`session`] (how a session begins and ends, recovery). [`shm`] is the
//! memory that all processes share; [`ids`] names the orders.
//!
//! No SQLite types: the base is a trait ([`merge::Base`]), keys are bytes.

#![deny(unsafe_code)]

mod background;
pub mod base;
pub mod belongs;
pub mod crash_point;
pub mod database;
pub mod deleted;
pub mod error;
pub mod fault;
mod filesystem;
pub mod ids;
pub mod log;
pub mod memtable;
pub mod merge;
#[cfg(test)]
mod model;
mod notify;
pub mod pages;
mod registry;
pub mod session;
pub mod several;
pub mod shm;
pub mod status;
pub mod storage;
pub mod sync;
pub mod txn;

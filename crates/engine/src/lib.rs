//! Shared-memory, log and transaction engine behind Plait.

pub mod ids;
pub mod memtable;

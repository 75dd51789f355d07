//! The atomics of the memtable, in one place, so that a model checker's can stand in.

pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

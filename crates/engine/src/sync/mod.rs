//! Waiting and locking: futexes, mutexes, bounds of waits, and the engine's own threads.
//!
//! A wait ends when its condition holds. It also ends by the caller's timeout or busy handler, by
//! the caller's interrupt, and by the death of the process that is waited for. Functions that take
//! the bounds of the call as a parameter take a [`wait::Wait`]. Code deeper down reads them from
//! [`caller`]. A process slot shows whether its process lives (shm/process.rs).

pub mod caller;
pub mod clock;
pub mod futex;
pub mod mutex;
pub mod wait;
pub(crate) mod worker;
pub(crate) mod yielding;

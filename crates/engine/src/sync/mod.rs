//! Waiting and locking: futexes and mutexes, whom one waits for and how long, threads of the engine's own.
//!
//! Every wait knows three ends besides its own: the caller's timeout or busy handler, his interrupt, and the death of who is waited for.
//! Where the call says for how long, they come in a [`wait::Wait`]; deep inside, where nothing is told of the call, they are asked for in
//! [`caller`]. Whether somebody lives is asked of his process slot (shm/process.rs).

pub mod caller;
pub mod clock;
pub mod futex;
pub mod mutex;
pub mod wait;
pub(crate) mod worker;
pub(crate) mod yielding;

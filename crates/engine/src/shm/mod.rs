//! Shared memory: waiting, mutexes, layout.

pub mod futex;
pub mod mutex;
pub mod layout;
pub mod locks;
pub mod process;
pub mod region;

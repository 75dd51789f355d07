//! Shared memory: waiting, mutexes, layout.

pub mod caller;
pub mod cancel;
pub mod claim;
pub mod clock;
pub mod fork;
pub mod futex;
pub mod layout;
pub mod locks;
pub mod mutex;
pub mod process;
pub mod read_marks;
pub mod region;
pub mod unsignalled;
pub mod witness;

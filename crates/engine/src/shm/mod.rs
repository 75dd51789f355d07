//! Shared memory: its layout, the file and its mapping, who is in it, and whether they live.

pub mod claim;
mod disk;
pub mod fork;
pub mod layout;
pub mod locks;
pub mod process;
pub mod read_marks;
pub mod region;
pub mod witness;

//! Shared memory: its layout, the file and its mapping, its processes, and whether they live.

pub mod fork;
pub mod layout;
pub mod locks;
mod mapping;
pub mod process;
pub mod read_marks;
pub mod region;
pub mod shipping;

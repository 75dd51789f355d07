//! How is measured: trials in processes of their own, interleaved, verified, with what surrounded them.
//!
//! | module | what |
//! |---|---|
//! | [`trial`] | one cell measured once, in a process and directory of its own |
//! | [`runner`] | all trials of a plan in random order, with progress, interruption and time limits |
//! | [`phase`] | the figures of a trial |
//! | [`usage`] | processor time, input and output |
//! | [`statistics`] | medians and intervals |
//! | [`trace`] | system calls, counted in a pass of their own |
//! | [`durability`] | the proof that a commit waits for the disk |
//! | [`process`] | the process of a trial, and that nothing outlives it |
//! | [`interrupt`] | Ctrl-C |
//! | [`preflight`] | what is refused before anything is measured |
//! | [`progress`] | what is shown meanwhile, and how long it will take |
//! | [`machine`], [`medium`], [`disk`] | what is measured on |

pub mod disk;
pub mod durability;
pub mod interrupt;
pub mod machine;
pub mod medium;
pub mod phase;
pub mod preflight;
pub mod process;
pub mod progress;
pub mod runner;
pub mod statistics;
pub mod trace;
pub mod trial;
pub mod usage;

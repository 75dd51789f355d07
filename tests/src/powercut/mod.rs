//! Power cuts in the real library: at every file operation of a workload, of the recovery after it, of the one after that.
//!
//! ```text
//! workload -- recorded --> operations --+-- cut at one of them --> what may be on the disk --> opened, recorded --> checked
//!                                       ^                                                        |
//!                                       +--------------------- at most three deep ---------------+
//! ```
//!
//! [`recording`] starts a process whose file operations are written down by `recorder.c`, and reads them. [`disk`] says what
//! a power cut may leave of them. [`workload`] is what is recorded first: a group commit over two generations, among others.
//! [`explore`] opens what is left, checks it, and goes on from there.
//!
//! [`mounted`] does the same under file systems of the kernel, with [`blocks`] for a disk.
//!
//! What is checked of each state: it opens; `integrity_check` finds nothing; table and index agree; the rows are those of a prefix
//! of the commits, in their order; everything that was acknowledged under FULL before the cut is among them, and so is
//! everything that an opening before the cut has shown.

pub mod blocks;
pub mod content;
pub mod disk;
pub mod explore;
pub mod lowered;
pub mod mounted;
pub mod pairs;
pub mod recording;
pub mod shipped;
pub mod tickets;
pub mod workload;

//! Begin and end of a measured section.
//!
//! The mark is getpriority(2) of a kind that does not exist: the kernel answers EINVAL and does nothing, and the tracer
//! sees it, with the number of operations in an argument that the call does not have. Sections may overlap, in one process or in several; calls are counted while at least one is open. Untraced,
//! a mark costs as much as any system call, twice in a phase.

#![allow(unsafe_code)]

/// First argument of the marks: letters that no kernel takes for a kind of priority.
pub(super) const KIND: u32 = u32::from_be_bytes(*b"mark");
/// Second argument when a section begins.
pub(super) const BEGIN: u32 = 1;
/// Second argument when it ends.
pub(super) const END: u32 = 2;

/// A measured section. Dropped without [`end`](Self::end), it ends with no operation done.
#[must_use = "a section that is dropped at once counts nothing"]
#[derive(Debug)]
pub struct Section {
    operations: u64,
}

/// Begins a measured section. Set up everything before, close nothing within.
pub fn section() -> Section {
    mark(BEGIN, 0);
    Section { operations: 0 }
}

impl Section {
    /// Ends the section in which so many operations were done.
    pub fn end(mut self, operations: u64) {
        self.operations = operations;
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        mark(END, self.operations);
    }
}

fn mark(what: u32, operations: u64) {
    // SAFETY: a call that the kernel refuses for its first argument and that touches no memory.
    unsafe { libc::syscall(libc::SYS_getpriority, KIND, what, operations) };
}

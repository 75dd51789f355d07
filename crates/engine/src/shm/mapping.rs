//! How much of `app.db-plait-shm` a process has mapped.
//!
//! The file is 182 MiB long, and a program may have a thousand of them. Most sessions need only the
//! small arenas and the ring's window, so a process maps that much ([`MAPPED_FIRST`]). Once the
//! session has load, the process also maps the whole file, at a second address, at its next lock or
//! snapshot.
//!
//! | the session | the process has mapped |
//! |---|---|
//! | has used only small arenas and the small window | the first 6 MiB |
//! | has had need of a large arena (`Control::has_large`) or uses more of the ring | also the whole file |
//! | has had need of one when many processes were there | and asks for large pages for these arenas |
//!
//! Each process has page tables of its own, and those of a hundred do not fit the caches: with pages of
//! 2 MiB a process has a few dozen entries in place of some ten thousand. The file systems and kernels
//! that have such pages for files (ext4 and XFS since Linux 6.16, tmpfs where it is set up so) make
//! them where a mapping asks for them; elsewhere nothing changes. With few processes they gain
//! nothing, and what is written out little by little (upkeep/leave.rs) would be written 2 MiB at a time.
//!
//! Invariants
//! - MAPPING-1 A pointer into either mapping is valid as long as the region: neither is moved or
//!   unmapped before. Both show the same pages, so a word may be reached through either.
//! - MAPPING-2 The second mapping is made from the first, without a descriptor and without a name:
//!   after `setuid`, after `chroot`, and with no descriptor left. Only where mremap cannot do that
//!   (under Valgrind, and under qemu-user, which reports a lack of memory) is the file opened again.
//! - MAPPING-3 A thread that has the commit mutex can reach all that the session uses. A committer
//!   that begins a large arena or a larger window has the whole file mapped. Any other thread maps
//!   it after it has locked and before it reads (lock.rs). Without address space for that, the
//!   thread unlocks the mutex in the state in which it found it, and its statement fails with
//!   SQLITE_NOMEM; no other thread is affected.
//! - MAPPING-4 A mapping asks for large pages only where every large arena has all of its disk space
//!   before its first use, and none lies in a large page together with another part of the file. At
//!   the first write to such a page the kernel allocates all of it, and would kill the process on a
//!   full disk.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Arc, OnceLock};
use std::{io, mem};

use memmap2::{Advice, MmapOptions};

use super::fork::LockFile;
use super::layout::{LARGE_ARENAS_OFFSET, MAPPED_FIRST, RING_OFFSET, TOTAL_BYTES, WINDOW_BYTES};
use crate::error::{Error, Result};
use crate::log::RingMemory;

/// The first part of a file.
#[derive(Debug)]
struct First(NonNull<u8>);

impl First {
    fn map(shared: &File) -> io::Result<First> {
        // SAFETY: a new mapping; the address is a wish, and what is there stays.
        let new = unsafe {
            libc::mmap(
                behind_anchor(),
                MAPPED_FIRST,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                shared.as_raw_fd(),
                0,
            )
        };
        if new == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = First(NonNull::new(new.cast()).expect("a mapping does not start at address 0"));
        // Otherwise the first access to a page reads megabytes of an empty file ahead: most of the
        // cost of a short session.
        // SAFETY: mapped above.
        if unsafe { libc::madvise(new, MAPPED_FIRST, libc::MADV_RANDOM) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(first)
    }
}

impl Drop for First {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`; no pointer into it is left (MAPPING-1).
        unsafe { libc::munmap(self.0.as_ptr().cast(), MAPPED_FIRST) };
    }
}

// SAFETY: memory of the process, which any thread may use; what lies in it is shared by its types.
unsafe impl Send for First {}
// SAFETY: as above.
unsafe impl Sync for First {}

/// Returns the address behind a page that this process keeps mapped, without memory, for as long as
/// it lives, or null. The page begins a stretch for which the kernel has a table of pages of its own.
/// A file mapped behind it is unmapped without that table, which otherwise is made and cleared at
/// each opening.
fn behind_anchor() -> *mut libc::c_void {
    /// Bytes of such a stretch; of a larger one where pages are larger, where this gains nothing.
    const STRETCH: usize = 2 << 20;
    static ANCHOR: OnceLock<usize> = OnceLock::new();
    let known = ANCHOR.get().copied().unwrap_or_else(|| {
        let len = 2 * STRETCH + MAPPED_FIRST;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, without access.
        let new = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if new == libc::MAP_FAILED {
            return 0;
        }
        // SAFETY: no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let start = new as usize;
        let anchor = start.next_multiple_of(STRETCH);
        let behind = anchor + page;
        unmap(start, anchor - start);
        unmap(behind, start + len - behind);
        // Not inside `get_or_init`, where a fork() could catch it.
        let first = *ANCHOR.get_or_init(|| behind);
        if first != behind {
            unmap(anchor, page);
        }
        first
    });
    known as *mut libc::c_void
}

/// Unmaps a part of a mapping that [`behind_anchor`] has made and that nobody else knows.
fn unmap(start: usize, len: usize) {
    if len > 0 {
        // SAFETY: as said.
        unsafe { libc::munmap(start as *mut libc::c_void, len) };
    }
}

/// The mappings of one file in this process.
#[derive(Debug)]
pub(crate) struct Mapping {
    first: First,
    /// Null until the whole file is mapped.
    whole: AtomicPtr<u8>,
    /// The last attempt to map the whole file failed.
    is_refused: AtomicBool,
    file: Arc<LockFile>,
}

impl Mapping {
    /// Maps the first part of a file that has its full size, through `shared`, whose description
    /// children of this process may inherit.
    pub(crate) fn of(shared: &File, file: Arc<LockFile>) -> io::Result<Mapping> {
        let first = First::map(shared)?;
        Ok(Mapping { first, whole: AtomicPtr::default(), is_refused: AtomicBool::default(), file })
    }

    /// Returns the start of the first [`MAPPED_FIRST`] bytes.
    #[inline]
    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first.0
    }

    /// Returns the start of the whole file, if that is mapped.
    #[inline]
    pub(crate) fn whole(&self) -> Option<NonNull<u8>> {
        // Acquire pairs with the AcqRel in `reach_whole`.
        NonNull::new(self.whole.load(Acquire))
    }

    /// True if the last attempt to map the whole file failed.
    pub(crate) fn is_refused(&self) -> bool {
        // Relaxed: a hint.
        self.is_refused.load(Relaxed)
    }

    /// Returns the start of the whole file; maps it if need be.
    ///
    /// # Errors
    /// NoMemory; those of opening the file again.
    #[inline]
    pub(crate) fn reach_whole(&self) -> Result<NonNull<u8>> {
        match self.whole() {
            Some(whole) => Ok(whole),
            None => self.map_whole(),
        }
    }

    #[cold]
    fn map_whole(&self) -> Result<NonNull<u8>> {
        let new = self.map_again();
        // Relaxed: a hint.
        self.is_refused.store(new.is_err(), Relaxed);
        let new = new?.as_ptr();
        // No lock: a child made by fork could find it held by a thread of its parent.
        match self.whole.compare_exchange(std::ptr::null_mut(), new, AcqRel, Acquire) {
            Ok(_) => Ok(NonNull::new(new).expect("it was one")),
            Err(other) => {
                // SAFETY: mapped above, and no other thread knows the mapping.
                unsafe { libc::munmap(new.cast(), TOTAL_BYTES) };
                Ok(NonNull::new(other).expect("set by another thread"))
            }
        }
    }

    /// Asks for large pages for the large arenas, if the whole file is mapped (MAPPING-4).
    pub(crate) fn ask_for_large_pages(&self) {
        if let Some(whole) = self.whole() {
            let bytes = TOTAL_BYTES - LARGE_ARENAS_OFFSET;
            // SAFETY: inside the mapping (layout.rs).
            let arenas = unsafe { whole.add(LARGE_ARENAS_OFFSET) };
            // A kernel that cannot do that goes on with small ones.
            // SAFETY: the mapping and its content stay as they are.
            unsafe { libc::madvise(arenas.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
    }

    /// Maps the whole file.
    fn map_again(&self) -> Result<NonNull<u8>> {
        // SAFETY: with an old length of 0 the old mapping, which is shared, stays as it is, and the
        // kernel places the new one at free addresses.
        let new = unsafe {
            libc::mremap(self.first.0.as_ptr().cast(), 0, TOTAL_BYTES, libc::MREMAP_MAYMOVE)
        };
        if new != libc::MAP_FAILED {
            // The new mapping inherits the advice of the first.
            return Ok(NonNull::new(new.cast()).expect("a mapping does not start at address 0"));
        }
        // EAGAIN: the program locks its memory, and this exceeds its limit.
        let is_lack = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN));
        let first = io::Error::last_os_error();
        self.map_by_file().map_err(|second| match is_lack(&first) || is_lack(&second) {
            true => Error::NoMemory,
            false => Error::io("cannot map the whole of the shared memory", &second),
        })
    }

    pub(super) fn map_by_file(&self) -> io::Result<NonNull<u8>> {
        let map = MmapOptions::new().len(TOTAL_BYTES).map_raw(&self.file.reopen()?)?;
        map.advise(Advice::Random)?;
        let start = NonNull::new(map.as_mut_ptr()).expect("a mapping does not start at address 0");
        // Unmapped in `reach_whole` or in `drop`.
        mem::forget(map);
        Ok(start)
    }
}

impl RingMemory for Mapping {
    fn first(&self) -> NonNull<u8> {
        // SAFETY: RING_OFFSET and the window lie inside the first mapping (layout.rs).
        unsafe { Mapping::first(self).add(RING_OFFSET) }
    }

    fn first_bytes(&self) -> u64 {
        WINDOW_BYTES
    }

    fn whole(&self) -> Option<NonNull<u8>> {
        // SAFETY: RING_OFFSET lies inside the mapping of the whole file.
        Mapping::whole(self).map(|whole| unsafe { whole.add(RING_OFFSET) })
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, RING_OFFSET as u64 + offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(whole) = self.whole() {
            // SAFETY: mapped in `reach_whole`; no pointer into it is left (MAPPING-1).
            unsafe { libc::munmap(whole.as_ptr().cast(), TOTAL_BYTES) };
        }
    }
}

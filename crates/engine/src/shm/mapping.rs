//! How much of `app.db-plait-shm` a process has mapped.
//!
//! The file is 181 MiB long, and a program may have a thousand of them. Most sessions never need more of it than the small arenas and the ring's
//! window, so a process maps that much ([`MAPPED_FIRST`]), and the whole file, a second time and elsewhere, once the session has load.
//!
//! | the session | the process has mapped |
//! |---|---|
//! | has used small arenas and the small window alone | the first 6 MiB |
//! | has used a large arena (`Control::has_large`), or uses more of the ring | the first 6 MiB, and from its next lock or snapshot on the whole file |
//!
//! Invariants
//! - MAPPING-1 A pointer into either mapping stays good as long as the region: neither is moved or given up before. Both show the same pages,
//!   so it does not matter by which of them a word is reached.
//! - MAPPING-2 The second mapping is made from the first one, without a descriptor and without a name: it can be made after `setuid`, after
//!   `chroot`, and with no descriptor left. Only where that is not known (under Valgrind) the file is opened again.
//! - MAPPING-3 A thread that has the commit mutex can reach whatever the session uses. A committer that begins a large arena or a larger window
//!   has the whole file mapped; everybody else maps it when it has locked and before it looks (lock.rs). Where there is no address space
//!   for that the thread gives the mutex back as it found it, and its statement fails with SQLITE_NOMEM; nobody else is concerned.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::{io, mem};

use memmap2::{Advice, MmapOptions, MmapRaw};

use super::fork::LockFile;
use super::layout::{MAPPED_FIRST, RING_OFFSET, TOTAL_BYTES, WINDOW_BYTES};
use crate::error::{Error, Result};
use crate::log::RingMemory;

/// The mappings of one file in this process.
#[derive(Debug)]
pub(crate) struct Mapping {
    first: MmapRaw,
    /// Null until the whole file is mapped.
    whole: AtomicPtr<u8>,
    /// It could not be mapped the last time.
    is_refused: AtomicBool,
    file: Arc<LockFile>,
}

impl Mapping {
    /// Maps the first part of a file that has its full size, by `shared`, a description that children of this process may inherit.
    pub(crate) fn of(shared: &File, file: Arc<LockFile>) -> io::Result<Mapping> {
        let first = MmapOptions::new().len(MAPPED_FIRST).map_raw(shared)?;
        // Or the first touch of a page reads megabytes ahead, of a file that holds nothing: most of what a short session costs.
        first.advise(Advice::Random)?;
        Ok(Mapping { first, whole: AtomicPtr::default(), is_refused: AtomicBool::default(), file })
    }

    /// Start of the first [`MAPPED_FIRST`] bytes.
    #[inline]
    pub(crate) fn first(&self) -> NonNull<u8> {
        NonNull::new(self.first.as_mut_ptr()).expect("a mapping does not start at address 0")
    }

    /// Start of the whole file, if that is mapped.
    #[inline]
    pub(crate) fn whole(&self) -> Option<NonNull<u8>> {
        // Acquire pairs with the AcqRel in `reach_whole`.
        NonNull::new(self.whole.load(Acquire))
    }

    /// There was no address space for it the last time.
    pub(crate) fn is_refused(&self) -> bool {
        // Relaxed: a hint.
        self.is_refused.load(Relaxed)
    }

    /// The same; maps it if need be.
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
        // No lock: a child made by fork would find it held by a thread that it does not have.
        match self.whole.compare_exchange(std::ptr::null_mut(), new, AcqRel, Acquire) {
            Ok(_) => Ok(NonNull::new(new).expect("it was one")),
            Err(other) => {
                // SAFETY: made above, and nobody else knows of it.
                unsafe { libc::munmap(new.cast(), TOTAL_BYTES) };
                Ok(NonNull::new(other).expect("set by another thread"))
            }
        }
    }

    /// The whole file, mapped once more.
    fn map_again(&self) -> Result<NonNull<u8>> {
        // SAFETY: with an old length of 0 the old mapping, which is a shared one, stays as it is, and the new one lies where nothing else does.
        let new = unsafe {
            libc::mremap(self.first.as_mut_ptr().cast(), 0, TOTAL_BYTES, libc::MREMAP_MAYMOVE)
        };
        if new != libc::MAP_FAILED {
            // It takes after the first mapping: the advice too.
            return Ok(NonNull::new(new.cast()).expect("a mapping does not start at address 0"));
        }
        match io::Error::last_os_error().raw_os_error() {
            // EAGAIN: the program locks its memory, and may not lock so much.
            Some(libc::ENOMEM | libc::EAGAIN) => Err(Error::NoMemory),
            _ => self.map_by_file().map_err(|e| match e.kind() {
                io::ErrorKind::OutOfMemory => Error::NoMemory,
                _ => Error::io("cannot map the whole of the shared memory", &e),
            }),
        }
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
            // SAFETY: made in `reach_whole`; whoever got a pointer into it is gone (MAPPING-1).
            unsafe { libc::munmap(whole.as_ptr().cast(), TOTAL_BYTES) };
        }
    }
}

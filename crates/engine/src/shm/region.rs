//! The mapping of `app.db-plait-shm`: creating, checking, growing.
//!
//! The file has its full size from the start but is sparse; disk space behind
//! the ring and behind each arena is allocated before first use, because a
//! write to a hole on a full disk would kill the process with SIGBUS.
//!
//! Of the fixed part there is all but most of the slots of processes and connections, which follow page by page as they are claimed.
//!
//! Ring and arenas begin small, so that a database in which little happens takes little, and grow as they fill: the ring from its start, an
//! arena from both ends, nodes and records ([`Memtable::reach_with`]), with what serves to find them ([`Memtable::parts`]). How much there
//! is stands in shared memory and is looked
//! at under the commit mutex, before the commit point; allocating more is done without it, and by as many at a time as
//! come, since allocating twice is no harm. Where the file system cannot allocate and zeros are written instead, that would be
//! one: there the whole is written by one, before anybody uses any of it, and nothing grows. A process that cannot allocate beside
//! others that can (a filter of its system calls) fails before its commit point.
//!
//! Trust (F6): a file is used only if its magic, layout version, boot id and
//! base identity match, its state is LIVE, and it was found with its full size: of one that was
//! cut short the rest reads as zeros, which would hide commits. Anything else is re-initialised
//! by recovery under the lifecycle lock.
//!
//! Deliberately absent: growth beyond [`TOTAL_BYTES`], pointers.

#![allow(unsafe_code)]

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use memmap2::MmapRaw;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::fork::{LockFile, NO_PROC};
use super::layout::{
    ALLOCATE_LOCK_BASE, ARENA_BYTES, ARENAS, ARENAS_OFFSET, Control, HEAD, Header, LAYOUT_VERSION,
    Layout, MAGIC, PAGE, RING_BYTES, RING_OFFSET, TOTAL_BYTES, process_end, session, slot_end,
};
use super::locks;
use crate::crash_point;
use crate::error::{Error, Result};
use crate::log::{LogMemory, LogParams, LogShared, Ring, SEGMENT_BYTES, Tail};
use crate::memtable::Memtable;
use crate::storage::side;
use crate::sync::cancel::Uncancelled;

/// Which base file the shared memory belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BaseIdentity {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

impl BaseIdentity {
    /// Of the file at `path`.
    pub fn of(path: &Path) -> Result<BaseIdentity> {
        let meta = std::fs::metadata(path)
            .map_err(|e| Error::io(format!("cannot look at {}", path.display()), &e))?;
        Ok(BaseIdentity { dev: meta.dev(), ino: meta.ino() })
    }
}

/// With less free disk space than this, memory that could be done without is not allocated.
const SPARE_BYTES: u64 = 256 << 20;

/// Bytes of the ring with which a session begins, and of an arena's nodes, and of its records, with which it does.
const FIRST_BYTES: usize = 16 << 10;
const _: () = assert!(FIRST_BYTES >= Memtable::FIRST_REACH as usize);

/// How the file system is asked for disk space behind a part of a file: fallocate(2), but for tests.
type Reserve = fn(&File, u64, u64) -> std::result::Result<(), Errno>;

/// A mapped shared memory file.
pub struct Region {
    map: MmapRaw,
    file: Arc<LockFile>,
    path: PathBuf,
    /// Of this process, one allocates at a time.
    allocating: Mutex<()>,
    reserve: Reserve,
    /// The file had its full size.
    was_whole: bool,
    /// The file was empty: all of it reads as zeros.
    is_new: bool,
}

const MAGIC_OFFSET: u64 = (offset_of!(Layout, header) + offset_of!(Header, magic)) as u64;

impl Region {
    /// Maps `file`, giving it its full size. The content is not checked.
    ///
    /// The mapping has a description of its own: a child made by fork inherits it, and must not inherit the locks
    /// (fork.rs, D1).
    pub fn map(file: Arc<LockFile>, path: &Path) -> Result<Region> {
        Region::map_with(file, path, fallocate)
    }

    fn map_with(file: Arc<LockFile>, path: &Path, reserve: Reserve) -> Result<Region> {
        let say = |e: &std::io::Error| {
            Error::io(format!("cannot map shared memory {}", path.display()), e)
        };
        let len = file.metadata().map_err(|e| say(&e))?.len();
        if len == 0 {
            // Before the first look: on a full tmpfs even reading a hole of a mapping is SIGBUS. A new file is ours alone.
            allocate_head(&file, reserve).map_err(|e| full(path, &e))?;
        }
        let was_whole = len >= TOTAL_BYTES as u64;
        if !was_whole {
            if len > 0 {
                // It was cut short. With its full size it would look whole to the next who comes, should this opening be refused.
                file.write_all_at(&[0; size_of::<u64>()], MAGIC_OFFSET).map_err(|e| say(&e))?;
            }
            file.set_len(TOTAL_BYTES as u64).map_err(|e| say(&e))?;
        }
        let shared = file.reopen().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::CantOpen(format!("cannot map shared memory {}: {NO_PROC}", path.display()))
            }
            _ => say(&e),
        })?;
        let map =
            memmap2::MmapOptions::new().len(TOTAL_BYTES).map_raw(&shared).map_err(|e| say(&e))?;
        // Or the first touch of a page reads megabytes ahead, of a file that holds nothing: most of what a short session costs.
        map.advise(memmap2::Advice::Random).map_err(|e| say(&e))?;
        Ok(Region {
            map,
            file,
            path: path.to_owned(),
            allocating: Mutex::default(),
            reserve,
            was_whole,
            is_new: len == 0,
        })
    }

    /// The file itself: its locks tell who is alive.
    pub fn file(&self) -> &LockFile {
        &self.file
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The fixed part.
    pub fn layout(&self) -> &Layout {
        // SAFETY: the mapping is TOTAL_BYTES long, page-aligned and lives as long as self; every field of
        // Layout is atomic or a SharedMutex, valid for any bit pattern and shared between processes.
        unsafe { &*self.map.as_ptr().cast::<Layout>() }
    }

    /// Identity and state.
    pub fn header(&self) -> &Header {
        &self.layout().header
    }

    /// Commit state and small tables.
    pub fn control(&self) -> &Control {
        &self.layout().control
    }

    /// State of the log.
    pub fn log(&self) -> &LogShared {
        &self.layout().log
    }

    /// First byte of the ring.
    pub fn ring_base(&self) -> *mut u8 {
        // SAFETY: RING_OFFSET lies inside the mapping (layout.rs).
        unsafe { self.map.as_mut_ptr().add(RING_OFFSET) }
    }

    /// First byte of arena `index`.
    pub fn arena_base(&self, index: usize) -> *mut u8 {
        assert!(index < ARENAS, "arena {index} does not exist");
        // SAFETY: index < ARENAS, so the offset lies inside the mapping (layout.rs).
        unsafe { self.map.as_mut_ptr().add(ARENAS_OFFSET + index * ARENA_BYTES) }
    }

    /// The memtable in arena `index`, whose generation number the caller has found published (M4).
    pub fn memtable(&self, index: usize) -> Memtable {
        // SAFETY: the arena is inside the mapping, which outlives every use of the memtable (both belong to
        // `Database`); an arena is formatted before its generation's number is published.
        unsafe { Memtable::attach(self.arena_base(index), ARENA_BYTES as u32) }
    }

    /// Makes arena `index` an empty memtable. The caller holds the commit mutex and the arena is FREE (M4), or
    /// nobody else uses the region.
    pub fn format_arena(&self, index: usize) {
        // Acquire pairs with the Release in `allocate_arena` and `grow_arena`.
        let reach = self.control().generations[index].allocated.load(Acquire);
        // SAFETY: inside the mapping; by the caller's promise no snapshot reads it and nobody else writes to it.
        unsafe { Memtable::format(self.arena_base(index), ARENA_BYTES as u32, reach) };
    }

    /// Starts an empty log stream. Nobody else uses the region.
    pub fn init_log(&self, params: &LogParams) {
        let shared = std::ptr::from_ref(self.log()).cast_mut();
        // SAFETY: inside the mapping, aligned, and by the caller's promise not in use.
        unsafe { LogShared::init(shared, params) };
    }

    /// The ring of the session's log.
    pub fn ring(&self) -> Ring {
        let memory = LogMemory {
            shared: NonNull::from(self.log()),
            ring: NonNull::new(self.ring_base()).expect("a mapping does not start at address 0"),
            commit_mutex: NonNull::from(&self.control().commit_mutex),
        };
        // SAFETY: a published session has all three initialised; `Database` drops its ring and log before the region.
        unsafe { Ring::new(memory) }
    }

    /// Allocates disk space behind the beginning of the ring, or all of it; returns for how many bytes. Nobody else uses the region.
    pub fn allocate_ring(&self) -> Result<u64> {
        let whole = [(RING_OFFSET, RING_BYTES)];
        let first = [(RING_OFFSET, FIRST_BYTES)];
        Ok(if self.allocate_first(&first, &whole)? { FIRST_BYTES } else { RING_BYTES } as u64)
    }

    /// Allocates disk space behind so many bytes of the ring, and some more. Needs no lock.
    pub fn grow_ring(&self, bytes: u64) -> Result<()> {
        let bytes = (bytes as usize).next_power_of_two().min(RING_BYTES);
        self.reserve_more(RING_OFFSET, bytes)?;
        crash_point!("commit.ring_grown");
        self.log().note_ring_space(bytes as u64);
        Ok(())
    }

    /// Allocates disk space behind the ends of arena `index`; cheap when it is there already. False while another process is at it.
    pub fn allocate_arena(&self, index: usize) -> Result<bool> {
        let word = &self.control().generations[index].allocated;
        let is_there = || word.load(Acquire) != 0;
        if is_there() {
            return Ok(true);
        }
        // Where zeros are written for it, whoever comes second must not: the first may have begun to use the arena. The lock
        // of the file is shared by the threads of a process, so these take turns before.
        let _turn = self.allocating.lock().unwrap_or_else(PoisonError::into_inner);
        let _uncancelled = Uncancelled::begin();
        let byte = ALLOCATE_LOCK_BASE + index as i64;
        let locked = locks::try_lock(&self.file, byte).map_err(|e| {
            Error::io(format!("cannot lock shared memory {}", self.path.display()), &e)
        })?;
        // Not waited for: the other may be stopped.
        if !locked {
            return Ok(is_there());
        }
        let _unlocking = Unlocking { file: &self.file, byte };
        if !is_there() {
            let whole = [(ARENAS_OFFSET + index * ARENA_BYTES, ARENA_BYTES)];
            let in_part = self.allocate_first(&parts_of(index, FIRST_BYTES), &whole)?;
            let reach = if in_part { FIRST_BYTES } else { ARENA_BYTES };
            // Release pairs with the Acquire of the freezer, which may touch the arena next.
            word.store(reach as u32, Release);
        }
        Ok(true)
    }

    /// Allocates disk space for so many bytes of nodes in arena `index`, and as many of records, and some more. It was allocated
    /// before. Needs no lock of the file.
    pub fn grow_arena(&self, index: usize, reach: u64) -> Result<()> {
        let reach = usize::try_from(reach).unwrap_or(ARENA_BYTES);
        let reach = reach.next_power_of_two().min(ARENA_BYTES);
        let allocated = &self.control().generations[index].allocated;
        // All threads that commit come here at once: the first does it for them.
        let _turn = self.allocating.lock().unwrap_or_else(PoisonError::into_inner);
        // Acquire pairs with the Release below.
        if allocated.load(Acquire) as usize >= reach {
            return Ok(());
        }
        for (offset, len) in parts_of(index, reach) {
            self.reserve_more(offset, len)?;
        }
        crash_point!("commit.memory_grown");
        // Release pairs with the Acquire of the committer that goes there.
        allocated.fetch_max(reach as u32, Release);
        Ok(())
    }

    /// Allocates disk space behind the slot of connection `index`, before anybody looks at it; it lies above all that were ever used.
    pub fn allocate_slot(&self, index: usize) -> Result<()> {
        self.allocate_page_before(slot_end(index))
    }

    /// The same for process `index`.
    pub fn allocate_process(&self, index: usize) -> Result<()> {
        self.allocate_page_before(process_end(index))
    }

    /// Allocates disk space behind the page of the fixed part that `end` lies in, or ends.
    fn allocate_page_before(&self, end: usize) -> Result<()> {
        let end = end.next_multiple_of(PAGE);
        if HEAD.iter().any(|part| part.start < end && end <= part.end) {
            return Ok(());
        }
        let reserved = reserve_all(&self.file, self.reserve, end - PAGE, PAGE);
        // Whoever made the file has written zeros there if it could not be allocated: then there is something.
        let is_there = || {
            let at = rustix::fs::SeekFrom::Data((end - PAGE) as u64);
            rustix::fs::seek(&**self.file, at).is_ok_and(|found| found == (end - PAGE) as u64)
        };
        if reserved.map_err(|e| full(&self.path, &e))? || is_there() {
            return Ok(());
        }
        Err(full(&self.path, &std::io::Error::from(Errno::OPNOTSUPP)))
    }

    /// Allocates the `first` parts; false if the file system cannot do that, and the `whole` was filled with zeros.
    fn allocate_first(&self, first: &[(usize, usize)], whole: &[(usize, usize)]) -> Result<bool> {
        let can = first.iter().try_fold(true, |can, &(offset, len)| {
            Ok(can && reserve_all(&self.file, self.reserve, offset, len)?)
        });
        if can.map_err(|e: std::io::Error| full(&self.path, &e))? {
            return Ok(true);
        }
        for &(offset, len) in whole {
            self.allocate(offset, len)?;
        }
        Ok(false)
    }

    /// Allocates disk space behind a part of which some may be in use. Zeros are never written there: another process can allocate,
    /// or there would not be a part, and has put rows where this one would write.
    fn reserve_more(&self, offset: usize, len: usize) -> Result<()> {
        let reserved = reserve_all(&self.file, self.reserve, offset, len);
        if reserved.map_err(|e| full(&self.path, &e))? {
            return Ok(());
        }
        Err(full(&self.path, &std::io::Error::from(Errno::OPNOTSUPP)))
    }

    fn allocate(&self, offset: usize, len: usize) -> Result<()> {
        allocate(&self.file, self.reserve, offset, len).map_err(|e| full(&self.path, &e))
    }

    /// True unless the file system is running out of space.
    pub fn has_space_to_spare(&self) -> bool {
        // An error is no proof of that.
        rustix::fs::fstatvfs(&**self.file)
            .map_or(true, |fs| fs.f_bavail.saturating_mul(fs.f_frsize) >= SPARE_BYTES)
    }

    /// True if the content may be trusted for this boot and this base (F6).
    pub fn is_trusted(&self, base: BaseIdentity) -> bool {
        let h = self.header();
        self.is_of_this_version()
            && h.base_dev.load(Relaxed) == base.dev
            && h.base_ino.load(Relaxed) == base.ino
            && boot_id()
                .is_ok_and(|id| id.iter().zip(&h.boot_id).all(|(a, b)| *a == b.load(Relaxed)))
    }

    /// True if a session has left its content there, whatever has become of the machine or the base since.
    pub fn was_left(&self) -> bool {
        let h = self.header();
        // Acquire pairs with the Release in `publish`.
        h.state.load(Acquire) == session::LIVE && h.magic.load(Relaxed) == MAGIC
    }

    fn is_of_this_version(&self) -> bool {
        let h = self.header();
        // Acquire pairs with the Release in `publish`: a LIVE header is complete.
        self.was_whole
            && h.state.load(Acquire) == session::LIVE
            && h.magic.load(Relaxed) == MAGIC
            && h.layout_version.load(Relaxed) == LAYOUT_VERSION
            && h.total_bytes.load(Relaxed) == TOTAL_BYTES as u64
    }

    /// What may continue the log of a session with this salt, from a file that nobody uses and that need not be trusted (log/tail.rs).
    pub(crate) fn tail(&self, salt: u32) -> Option<Tail> {
        let may_be = self.is_of_this_version() && self.log().salt() == salt;
        may_be.then(|| Tail::copy_from(&self.ring(), SEGMENT_BYTES, RING_BYTES as u64)).flatten()
    }

    /// Zeroes the fixed part; a mutex of zeros is free. The caller holds the lifecycle lock and no
    /// other process uses the file.
    pub fn reset(&self) -> Result<()> {
        // Before the first touch. A removed page behind a new file is a hole, and a hole on a full disk is SIGBUS.
        if self.is_new {
            allocate_head(&self.file, self.reserve).map_err(|e| full(&self.path, &e))?;
            self.header().state.store(session::INVALID, Release);
            return Ok(());
        }
        self.allocate(0, RING_OFFSET)?;
        self.header().state.store(session::INVALID, Release);
        let base = self.map.as_mut_ptr();
        // SAFETY: the first RING_OFFSET bytes are inside the mapping; nobody else uses them (lifecycle lock).
        unsafe { std::ptr::write_bytes(base, 0, RING_OFFSET) };
        Ok(())
    }

    /// Device and inode of the base that the content belongs to.
    pub fn identity(&self) -> (u64, u64) {
        let h = self.header();
        (h.base_dev.load(Relaxed), h.base_ino.load(Relaxed))
    }

    /// Marks the content as complete and belonging to `base`.
    pub fn publish(&self, base: BaseIdentity) -> Result<()> {
        let h = self.header();
        let id = boot_id().map_err(|e| Error::io("cannot read the kernel's boot id", &e))?;
        for (to, from) in h.boot_id.iter().zip(id) {
            to.store(from, Relaxed);
        }
        h.magic.store(MAGIC, Relaxed);
        h.layout_version.store(LAYOUT_VERSION, Relaxed);
        h.total_bytes.store(TOTAL_BYTES as u64, Relaxed);
        h.base_dev.store(base.dev, Relaxed);
        h.base_ino.store(base.ino, Relaxed);
        // Release pairs with the Acquire in `is_trusted`.
        h.state.store(session::LIVE, Release);
        Ok(())
    }

    /// True if the file is still the one at its path.
    pub fn is_in_place(&self) -> bool {
        side::is_named(&self.file, &self.path)
    }

    /// Marks the content as not to be trusted any more.
    pub fn invalidate(&self) {
        self.header().state.store(session::INVALID, Release);
    }
}

/// Asked for once: no process outlives its boot, and who opens and closes all the time would ask each time.
fn boot_id() -> std::io::Result<[u8; 40]> {
    static KNOWN: OnceLock<[u8; 40]> = OnceLock::new();
    if let Some(id) = KNOWN.get() {
        return Ok(*id);
    }
    let text = std::fs::read("/proc/sys/kernel/random/boot_id")?;
    let mut id = [0; 40];
    let n = text.len().min(id.len());
    id[..n].copy_from_slice(&text[..n]);
    Ok(*KNOWN.get_or_init(|| id))
}

/// Gives the lock on a byte back, however its holder ends.
struct Unlocking<'a> {
    file: &'a File,
    byte: i64,
}

impl Drop for Unlocking<'_> {
    fn drop(&mut self) {
        // What cannot be unlocked stays until the file is closed; nobody waits for it.
        let _ = locks::unlock(self.file, self.byte);
    }
}

/// Bytes allocated by one system call: few enough that a program with a fast timer gets them between two signals.
const ALLOCATE_BYTES: usize = 1 << 20;

/// Where the parts of arena `index` lie that are used with so many bytes of nodes, and as many of records.
fn parts_of(index: usize, reach: usize) -> [(usize, usize); 4] {
    let arena = ARENAS_OFFSET + index * ARENA_BYTES;
    Memtable::parts(ARENA_BYTES as u32, reach as u32)
        .map(|part| (arena + part.start as usize, part.len()))
}

/// Allocates disk space. Where the file system cannot, zeros are written: nobody uses that part of the file yet.
fn allocate(file: &File, reserve: Reserve, offset: usize, len: usize) -> std::io::Result<()> {
    if reserve_all(file, reserve, offset, len)? {
        return Ok(());
    }
    for (at, len) in pieces(offset, len) {
        file.write_all_at(&vec![0; len], at as u64)?;
    }
    Ok(())
}

/// Allocates disk space behind the fixed part of a new file, but for most of the slots; where the file system cannot, zeros are written to all.
fn allocate_head(file: &File, reserve: Reserve) -> std::io::Result<()> {
    for part in HEAD {
        if !reserve_all(file, reserve, part.start, part.len())? {
            return allocate(file, reserve, 0, RING_OFFSET);
        }
    }
    Ok(())
}

/// Asks the file system for disk space; false if it cannot.
fn reserve_all(file: &File, reserve: Reserve, offset: usize, len: usize) -> std::io::Result<bool> {
    for (at, len) in pieces(offset, len) {
        if !reserve_piece(file, reserve, at as u64, len as u64)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn pieces(offset: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = offset + len;
    (offset..end).step_by(ALLOCATE_BYTES).map(move |at| (at, ALLOCATE_BYTES.min(end - at)))
}

fn reserve_piece(file: &File, reserve: Reserve, at: u64, len: u64) -> std::io::Result<bool> {
    loop {
        match reserve(file, at, len) {
            Ok(()) => return Ok(true),
            // A signal: nothing was allocated, or some of it, and asking again is no harm.
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
    }
}

fn fallocate(file: &File, at: u64, len: u64) -> std::result::Result<(), Errno> {
    rustix::fs::fallocate(file, FallocateFlags::empty(), at, len)
}

fn full(path: &Path, e: &std::io::Error) -> Error {
    if e.raw_os_error() == Some(libc::ENOSPC) {
        return Error::Full(format!(
            "no space for shared memory {}: free some disk space and retry",
            path.display()
        ));
    }
    Error::io(format!("cannot allocate shared memory {}", path.display()), e)
}

#[cfg(test)]
mod tests;

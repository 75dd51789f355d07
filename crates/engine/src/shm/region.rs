//! The mapping of `app.db-plait-shm`: creating, checking, growing.
//!
//! The file has its full size from the start but is sparse. Disk space for the ring and for each
//! arena is allocated before first use: a write to a hole on a full disk would kill the process
//! with SIGBUS.
//!
//! A new file has disk space for most of the fixed part. Slots of processes and connections get
//! theirs page by page as they are claimed, and the authors of recent commits get theirs once there
//! are some.
//!
//! Ring and arenas begin small, so that a database with few commits takes little space, and grow as
//! they fill: the ring from its start, an arena from both ends, nodes and records
//! ([`Memtable::reach_with`]), with what serves to find them ([`Memtable::parts`]). The allocated
//! length is in shared memory. A committer reads it under the commit mutex, before the commit
//! point. Allocating more needs no mutex, and several processes may do so at once: allocating twice
//! is no harm. Where the file system cannot allocate, zeros are written instead, and writing them
//! twice is harm. There one process writes a whole ring or arena before any process uses it, and
//! nothing grows. A process that cannot allocate while others can (its system calls are filtered)
//! fails before its commit point. Nor does a large arena grow where many processes were there when the
//! first one was needed: it is mapped by large pages (mapping.rs, MAPPING-4).
//!
//! Trust (FILE-6): a file is used only if its magic, layout version, boot id and base identity
//! match, its state is LIVE, and it was found with its full size: the rest of a truncated file
//! reads as zeros, which would hide commits. Recovery re-initialises any other file under the
//! lifecycle lock.
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

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::fork::{LockFile, NO_PROC};
use super::layout::{
    ALLOCATE_LOCK_BASE, ARENA_BYTES, ARENAS, Control, FIRST_RECENT, HEAD, Header, LAYOUT_END,
    LAYOUT_VERSION, Layout, MAGIC, PAGE, PROCESS_LOCK_BASE, PROCESS_SLOTS, RECENT_COMMITS,
    RING_BYTES, RING_OFFSET, RecentCommit, SMALL_ARENA_BYTES, TOTAL_BYTES, WINDOW_BYTES,
    arena_bytes, arena_offset, is_large, large, process_end, recent_end, session, slot_end,
};
use super::locks;
use super::mapping::Mapping;
use crate::crash_point;
use crate::error::{Error, Result};
use crate::ids::Generation;
use crate::log::{LogMemory, LogParams, LogShared, Ring, SEGMENT_BYTES, Tail};
use crate::memtable::Memtable;
use crate::storage::os::OsStorage;
use crate::storage::{Storage as _, side};
use crate::sync::caller::Uncancelled;

pub mod left;

/// The base file that the shared memory belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BaseIdentity {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

impl BaseIdentity {
    /// Returns the identity of the file at `path`.
    pub fn of(path: &Path) -> Result<BaseIdentity> {
        let meta = std::fs::metadata(path)
            .map_err(|e| Error::io(format!("cannot look at {}", path.display()), &e))?;
        Ok(BaseIdentity { dev: meta.dev(), ino: meta.ino() })
    }
}

/// With less free disk space than this, dispensable memory is not allocated.
const SPARE_BYTES: u64 = 256 << 20;

/// So many processes gain by large pages.
const MANY_PROCESSES: u32 = 32;

/// Bytes of the ring at the start of a session.
const FIRST_RING_BYTES: usize = 8 << 10;
/// Bytes of an arena's nodes, and of its records, at the start of a generation.
const FIRST_BYTES: usize = 16 << 10;
const _: () = assert!(FIRST_BYTES >= Memtable::FIRST_REACH as usize);

/// Allocates disk space for a part of a file: fallocate(2), except in tests.
type Reserve = fn(&File, u64, u64) -> std::result::Result<(), Errno>;

/// A mapped shared memory file.
pub struct Region {
    map: Arc<Mapping>,
    file: Arc<LockFile>,
    path: PathBuf,
    /// Held while a thread of this process allocates for an arena.
    allocating: Mutex<()>,
    reserve: Reserve,
    /// The file had its full size when it was opened.
    was_whole: bool,
    /// The file was empty when it was opened: all of it reads as zeros.
    is_new: bool,
}

const MAGIC_OFFSET: u64 = (offset_of!(Layout, header) + offset_of!(Header, magic)) as u64;

impl Region {
    /// Maps `file`, which has `len` bytes, after giving it its full size. Does not check the content.
    ///
    /// The mapping has a description of its own: a child made by fork inherits it, and must not
    /// inherit the locks (fork.rs, FORK-1).
    pub fn map(file: Arc<LockFile>, len: u64, path: &Path) -> Result<Region> {
        Region::map_with(file, len, path, fallocate)
    }

    fn map_with(file: Arc<LockFile>, len: u64, path: &Path, reserve: Reserve) -> Result<Region> {
        let say = |e: &std::io::Error| {
            Error::io(format!("cannot map shared memory {}", path.display()), e)
        };
        if len < TOTAL_BYTES as u64 {
            // Before anything grows: what passes the limit is killed (SIGXFSZ).
            refuse_limit(path, OsStorage.file_size_limit())?;
        }
        if len == 0 {
            // Before the first access: on a full tmpfs even reading a hole of a mapping raises
            // SIGBUS. No other process uses a new file.
            allocate_head(&file, reserve).map_err(|e| full(path, &e))?;
        }
        let was_whole = len >= TOTAL_BYTES as u64;
        if !was_whole {
            if len > 0 {
                refuse_size_in_use(&file, path)?;
                // The file was truncated, unless it is of another layout. Should this opening
                // fail, the next process would find the full size and trust it.
                if left::layout_of(&file).is_none_or(|layout| layout == LAYOUT_VERSION) {
                    file.write_all_at(&[0; size_of::<u64>()], MAGIC_OFFSET).map_err(|e| say(&e))?;
                }
            }
            file.set_len(TOTAL_BYTES as u64).map_err(|e| say(&e))?;
        }
        let shared = file.reopen().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::CantOpen(format!("cannot map shared memory {}: {NO_PROC}", path.display()))
            }
            _ => say(&e),
        })?;
        let map = Arc::new(Mapping::of(&shared, file.clone()).map_err(|e| say(&e))?);
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

    /// Returns the file, whose locks show which processes live.
    pub fn file(&self) -> &LockFile {
        &self.file
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the fixed part.
    pub fn layout(&self) -> &Layout {
        // SAFETY: the first mapping holds all of Layout, is page-aligned and lives as long as self;
        // every field of Layout is atomic or a SharedMutex, valid for any bit pattern and shared
        // between processes.
        unsafe { self.map.first().cast::<Layout>().as_ref() }
    }

    /// Returns identity and state.
    pub fn header(&self) -> &Header {
        &self.layout().header
    }

    /// Returns commit state and small tables.
    pub fn control(&self) -> &Control {
        &self.layout().control
    }

    /// Returns the state of the log.
    pub fn log(&self) -> &LogShared {
        &self.layout().log
    }

    /// Maps the whole file, if it is not mapped yet (mapping.rs).
    ///
    /// # Errors
    /// NoMemory.
    pub fn reach_whole(&self) -> Result<()> {
        self.whole().map(drop)
    }

    #[inline(always)]
    fn whole(&self) -> Result<NonNull<u8>> {
        match self.map.whole() {
            Some(whole) => Ok(whole),
            None => self.map_whole(),
        }
    }

    #[cold]
    fn map_whole(&self) -> Result<NonNull<u8>> {
        let whole = self.map.reach_whole()?;
        // Relaxed: a process that misses it has small pages.
        if self.control().has_large.load(Relaxed) == large::IN_LARGE_PAGES {
            self.map.ask_for_large_pages();
        }
        Ok(whole)
    }

    /// True if the whole file is mapped.
    pub fn reaches_whole(&self) -> bool {
        self.map.whole().is_some()
    }

    /// True if the last attempt to map the whole file failed.
    pub fn is_whole_refused(&self) -> bool {
        self.map.is_refused()
    }

    /// Maps what the session uses. (M), or no other process uses the region (MAPPING-3).
    ///
    /// # Errors
    /// NoMemory.
    #[inline]
    pub fn reach_used(&self) -> Result<()> {
        // Relaxed: whoever has found an arena or a larger window in use has locked the mutex since.
        let is_small = self.control().has_large.load(Relaxed) == large::NONE
            && self.log().window_bytes() <= WINDOW_BYTES;
        if is_small { Ok(()) } else { self.reach_whole() }
    }

    /// Returns the first byte of arena `index`.
    #[inline(always)]
    fn arena_base(&self, index: usize) -> Result<NonNull<u8>> {
        assert!(index < ARENAS, "arena {index} does not exist");
        let base = if is_large(index) { self.whole()? } else { self.map.first() };
        // SAFETY: the small arenas lie inside the first mapping, and all of them inside the whole
        // one (layout.rs).
        Ok(unsafe { base.add(arena_offset(index)) })
    }

    /// Returns the memtable in arena `index`, whose generation number the caller has found
    /// published (GEN-4).
    ///
    /// # Errors
    /// NoMemory, unless the whole file is mapped.
    #[inline(always)]
    pub fn memtable(&self, index: usize) -> Result<Memtable> {
        let base = self.arena_base(index)?.as_ptr();
        // Constants: nothing is computed from the size at each call.
        let bytes = if is_large(index) { ARENA_BYTES } else { SMALL_ARENA_BYTES };
        // SAFETY: the arena is inside the mapping, which outlives every use of the memtable (both
        // belong to `Database`); an arena is formatted before its generation's number is published.
        Ok(unsafe { Memtable::attach(base, bytes as u32) })
    }

    /// Makes arena `index`, which is mapped, an empty memtable. The caller holds the commit mutex
    /// and the arena is FREE (GEN-4), or no other process uses the region.
    pub fn format_arena(&self, index: usize) {
        let base = self.arena_base(index).expect("whoever formats an arena has it mapped");
        // Acquire pairs with the Release in `allocate_arena` and `grow_arena`.
        let reach = self.control().generations[index].allocated.load(Acquire);
        // SAFETY: inside the mapping; the caller promises that no snapshot reads it and no other
        // thread writes to it.
        unsafe { Memtable::format(base.as_ptr(), arena_bytes(index) as u32, reach) };
    }

    /// Starts an empty log stream. No other process uses the region.
    pub fn init_log(&self, params: &LogParams) {
        let shared = std::ptr::from_ref(self.log()).cast_mut();
        // SAFETY: inside the mapping, aligned, and, as the caller promises, not in use.
        unsafe { LogShared::init(shared, params) };
    }

    /// Returns the ring of the session's log.
    pub fn ring(&self) -> Ring {
        let memory = LogMemory {
            shared: NonNull::from(self.log()),
            ring: self.map.clone(),
            commit_mutex: NonNull::from(&self.control().commit_mutex),
        };
        // SAFETY: a published session has all three initialised; `Database` drops its ring and log
        // before the region.
        unsafe { Ring::new(memory) }
    }

    /// Allocates disk space for the start of the ring, or for all of it; returns its bytes. No
    /// other process uses the region.
    pub fn allocate_ring(&self) -> Result<u64> {
        let whole = [(RING_OFFSET, RING_BYTES)];
        let first = [(RING_OFFSET, FIRST_RING_BYTES)];
        let in_part = self.allocate_first(&first, &whole)?;
        Ok(if in_part { FIRST_RING_BYTES } else { RING_BYTES } as u64)
    }

    /// Allocates disk space for at least `bytes` of the ring, and maps them. Needs no lock.
    pub fn grow_ring(&self, bytes: u64) -> Result<()> {
        if bytes > WINDOW_BYTES {
            self.reach_whole()?;
            if self.log().ring_space() >= bytes {
                return Ok(());
            }
        }
        let bytes = (bytes as usize).next_power_of_two().min(RING_BYTES);
        self.reserve_more(RING_OFFSET, bytes)?;
        crash_point!("commit.ring_grown");
        self.log().note_ring_space(bytes as u64);
        Ok(())
    }

    /// Allocates disk space for the ends of arena `index`, and maps the arena; does little if that
    /// is done. False while another process allocates it.
    pub fn allocate_arena(&self, index: usize) -> Result<bool> {
        self.arena_base(index)?;
        let word = &self.control().generations[index].allocated;
        let is_there = || word.load(Acquire) != 0;
        if is_there() {
            return Ok(true);
        }
        // Where zeros are written, a second process must not write them: the first may have begun
        // to use the arena. The threads of a process share the lock of the file, so they take turns
        // first.
        let _turn = self.allocating.lock().unwrap_or_else(PoisonError::into_inner);
        let _uncancelled = Uncancelled::begin();
        let byte = ALLOCATE_LOCK_BASE + index as i64;
        let locked = locks::try_lock(&self.file, byte).map_err(|e| {
            Error::io(format!("cannot lock shared memory {}", self.path.display()), &e)
        })?;
        // No wait: the other process may be stopped.
        if !locked {
            return Ok(is_there());
        }
        let _unlocking = Unlocking { file: &self.file, byte };
        if !is_there() {
            let (start, len) = (arena_offset(index), arena_bytes(index));
            // Before any process can use the arena.
            let reach = if is_large(index) && self.decide_on_large_arenas() == large::IN_LARGE_PAGES
            {
                self.allocate(start, len)?;
                len
            } else if self.allocate_first(&parts_of(index, FIRST_BYTES), &[(start, len)])? {
                FIRST_BYTES
            } else {
                len
            };
            // Release pairs with the Acquire of the freezing committer, which may touch the arena
            // next.
            word.store(reach as u32, Release);
        }
        Ok(true)
    }

    /// Returns how the large arenas of the session are mapped, and settles it if nobody has.
    fn decide_on_large_arenas(&self) -> u32 {
        let word = &self.control().has_large;
        let processes = self.control().processes_high_water.load(Relaxed);
        let is_worth_it = processes >= MANY_PROCESSES && self.has_space_to_spare();
        let wish = if is_worth_it { large::IN_LARGE_PAGES } else { large::GROWING };
        // Relaxed: what depends on it follows under the commit mutex.
        let decided = match word.compare_exchange(large::NONE, wish, Relaxed, Relaxed) {
            Ok(_) => wish,
            Err(other) => other,
        };
        if decided == large::IN_LARGE_PAGES {
            self.map.ask_for_large_pages();
        }
        decided
    }

    /// Allocates disk space for at least `reach` bytes of nodes in arena `index`, and as many of
    /// records, after [`Region::allocate_arena`]. Needs no lock of the file.
    pub fn grow_arena(&self, index: usize, reach: u64) -> Result<()> {
        let most = arena_bytes(index);
        let reach = usize::try_from(reach).unwrap_or(most);
        let reach = reach.next_power_of_two().min(most);
        let allocated = &self.control().generations[index].allocated;
        // All committing threads come here at once: the first allocates for all.
        let _turn = self.allocating.lock().unwrap_or_else(PoisonError::into_inner);
        // Acquire pairs with the Release below.
        if allocated.load(Acquire) as usize >= reach {
            return Ok(());
        }
        for (offset, len) in parts_of(index, reach) {
            self.reserve_more(offset, len)?;
        }
        crash_point!("commit.memory_grown");
        // Release pairs with the Acquire of the committer that writes there.
        allocated.fetch_max(reach as u32, Release);
        Ok(())
    }

    /// Allocates disk space for the slot of connection `index`, which is above all slots ever used.
    pub fn allocate_slot(&self, index: usize) -> Result<()> {
        self.allocate_page_before(slot_end(index))
    }

    /// As [`Region::allocate_slot`], for process `index`.
    pub fn allocate_process(&self, index: usize) -> Result<()> {
        self.allocate_page_before(process_end(index))
    }

    /// Returns the entry for the author of the commit at `ts`, if it has disk space.
    pub fn recent(&self, ts: u64) -> Option<&RecentCommit> {
        let layout = self.layout();
        // Relaxed: constant since the session began.
        let number = ts.wrapping_sub(layout.control.first_ts.load(Relaxed));
        let index = number as usize % RECENT_COMMITS;
        // Acquire pairs with the Release in `allocate_recent`.
        let allocated = layout.control.recent_allocated.load(Acquire) as usize;
        (index < allocated).then(|| &layout.recent.commits[index])
    }

    /// Allocates disk space for all authors of recent commits, once there are some; `ts` is the
    /// newest. Without it reports of conflicts lack the author.
    pub fn extend_recent(&self, ts: u64) {
        // After a failure not every commit tries again.
        const BETWEEN_TRIES: u64 = 64;
        let allocated = &self.control().recent_allocated;
        // Relaxed: constant since the session began, and a hint.
        let number = ts.wrapping_sub(self.control().first_ts.load(Relaxed));
        // A commit over several files takes two timestamps.
        let is_due = number >= BETWEEN_TRIES && number % BETWEEN_TRIES < 2;
        if !is_due || allocated.load(Relaxed) as usize == RECENT_COMMITS {
            return;
        }
        let (from, to) =
            (recent_end(FIRST_RECENT - 1) / PAGE * PAGE, recent_end(RECENT_COMMITS - 1));
        if let Ok(true) = reserve_all(&self.file, self.reserve, from, to - from) {
            // Release pairs with the Acquire in `recent`.
            allocated.fetch_max(RECENT_COMMITS as u32, Release);
        }
    }

    /// Allocates disk space for the page of the fixed part that contains or ends at `end`.
    fn allocate_page_before(&self, end: usize) -> Result<()> {
        let end = end.next_multiple_of(PAGE);
        if HEAD.iter().any(|part| part.start < end && end <= part.end) {
            return Ok(());
        }
        let reserved = reserve_all(&self.file, self.reserve, end - PAGE, PAGE);
        // A process that made the file and could not allocate has written zeros there: then there
        // is data.
        let is_there = || {
            let at = rustix::fs::SeekFrom::Data((end - PAGE) as u64);
            rustix::fs::seek(&**self.file, at).is_ok_and(|found| found == (end - PAGE) as u64)
        };
        if reserved.map_err(|e| full(&self.path, &e))? || is_there() {
            return Ok(());
        }
        Err(full(&self.path, &std::io::Error::from(Errno::OPNOTSUPP)))
    }

    /// Allocates the `first` parts. False if the file system cannot, and `whole` was filled with
    /// zeros.
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

    /// Allocates disk space for a range of which some may be in use. Never writes zeros: a ring or
    /// arena that can grow was allocated by a process that can allocate, and may have rows where
    /// this process would write.
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
        self.free_bytes() >= SPARE_BYTES
    }

    /// At the start of a session, when no other process is there: what was left behind was buried in a
    /// base of this generation (BOUND-2 in database/boundaries.rs).
    pub(crate) fn note_burial(&self, generation: Generation) {
        // Relaxed: nobody else is there.
        let base = Generation::new(self.control().base_generation.load(Relaxed));
        self.layout().shipping.boundaries.note_unknown(base, generation);
    }

    /// Bytes that the file system has left.
    pub fn free_bytes(&self) -> u64 {
        // An error does not prove that space is short.
        rustix::fs::fstatvfs(&**self.file)
            .map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize))
    }

    /// True if the content may be trusted for this boot and this base (FILE-6).
    pub fn is_trusted(&self, base: BaseIdentity) -> bool {
        let h = self.header();
        self.is_of_this_version()
            && h.base_dev.load(Relaxed) == base.dev
            && h.base_ino.load(Relaxed) == base.ino
            && boot_id()
                .is_ok_and(|id| id.iter().zip(&h.boot_id).all(|(a, b)| *a == b.load(Relaxed)))
    }

    /// True if a session has left its content in the file, for whatever boot and base.
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

    /// Returns what may continue the log of a session with this salt. No process uses the file, and
    /// it need not be trusted (log/moment.rs).
    pub(crate) fn tail(&self, salt: u32) -> Option<Tail> {
        let may_be = self.is_of_this_version() && self.log().salt() == salt;
        may_be.then(|| Tail::copy_from(&self.ring(), SEGMENT_BYTES, RING_BYTES as u64)).flatten()
    }

    /// Zeroes the fixed part; a mutex of zeros is free. The caller holds the lifecycle lock and no
    /// other process uses the file.
    pub fn reset(&self) -> Result<()> {
        // Before the first access: a page that was removed since is a hole, and a hole on a full
        // disk raises SIGBUS.
        if self.is_new {
            allocate_head(&self.file, self.reserve).map_err(|e| full(&self.path, &e))?;
            self.header().state.store(session::INVALID, Release);
            return Ok(());
        }
        self.allocate(0, LAYOUT_END)?;
        self.header().state.store(session::INVALID, Release);
        let base = self.map.first().as_ptr();
        // SAFETY: the first LAYOUT_END bytes are inside the mapping; no other process uses them
        // (lifecycle lock).
        unsafe { std::ptr::write_bytes(base, 0, LAYOUT_END) };
        Ok(())
    }

    /// Returns device and inode of the base that the content belongs to.
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
        self.tell_later_versions();
        // Release pairs with the Acquire in `is_trusted`.
        h.state.store(session::LIVE, Release);
        Ok(())
    }

    /// True if the file is still the one at its path.
    pub fn is_in_place(&self) -> bool {
        side::is_named(&self.file, &self.path)
    }

    /// Marks the content as no longer to be trusted.
    pub fn invalidate(&self) {
        self.header().state.store(session::INVALID, Release);
    }
}

/// Returns the kernel's boot id. Reads it once: no process outlives its boot, and some programs
/// open and close all the time.
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

/// Fails if the limit of this process is below what shared memory takes.
fn refuse_limit(path: &Path, limit_bytes: Option<u64>) -> Result<()> {
    match limit_bytes {
        Some(limit) if limit < TOTAL_BYTES as u64 => Err(Error::CantOpen(format!(
            "the file size limit of this process (RLIMIT_FSIZE, {limit} bytes) is below the {TOTAL_BYTES} bytes \
             of the shared memory {}; raise it",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Fails if a process uses a file of another size, which may be of another version of the library:
/// nothing may be written to it.
fn refuse_size_in_use(file: &File, path: &Path) -> Result<()> {
    // An error of fcntl does not prove that the file is unused.
    let is_free = matches!(
        locks::is_range_locked_elsewhere(file, PROCESS_LOCK_BASE, PROCESS_SLOTS as i64),
        Ok(false)
    );
    if is_free { Ok(()) } else { Err(Error::CantOpen(say_in_use(path))) }
}

/// Returns the message of a session that cannot be joined.
pub(crate) fn say_in_use(path: &Path) -> String {
    format!(
        "{} is in use by processes with another version of the library or another database file; close them first",
        path.display()
    )
}

/// Unlocks a byte when dropped.
struct Unlocking<'a> {
    file: &'a File,
    byte: i64,
}

impl Drop for Unlocking<'_> {
    fn drop(&mut self) {
        // If unlocking fails the lock stays until the file is closed; no process waits for it.
        let _ = locks::unlock(self.file, self.byte);
    }
}

/// Bytes allocated by one system call: few enough for the time between two signals of a fast timer.
const ALLOCATE_BYTES: usize = 1 << 20;

/// Returns offset and length of the parts of arena `index` that `reach` bytes of nodes, and as many
/// of records, use.
fn parts_of(index: usize, reach: usize) -> [(usize, usize); 4] {
    let arena = arena_offset(index);
    Memtable::parts(arena_bytes(index) as u32, reach as u32)
        .map(|part| (arena + part.start as usize, part.len()))
}

/// Allocates disk space. Writes zeros where the file system cannot: no process uses that part of
/// the file yet.
fn allocate(file: &File, reserve: Reserve, offset: usize, len: usize) -> std::io::Result<()> {
    if reserve_all(file, reserve, offset, len)? {
        return Ok(());
    }
    for (at, len) in pieces(offset, len) {
        file.write_all_at(&vec![0; len], at as u64)?;
    }
    Ok(())
}

/// Allocates disk space for [`HEAD`] in a new file. Writes zeros to the whole fixed part where the
/// file system cannot.
fn allocate_head(file: &File, reserve: Reserve) -> std::io::Result<()> {
    for part in HEAD {
        if !reserve_all(file, reserve, part.start, part.len())? {
            return allocate(file, reserve, 0, LAYOUT_END);
        }
    }
    Ok(())
}

/// Allocates disk space; false if the file system cannot.
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

/// Allocates all blocks of the pages that a piece is in: where blocks are smaller than pages the kernel needs room for the whole
/// page at its first use, and whoever uses it gets SIGBUS where there is none.
fn reserve_piece(file: &File, reserve: Reserve, at: u64, len: u64) -> std::io::Result<bool> {
    let page = PAGE as u64;
    let (at, end) = (at / page * page, (at + len).next_multiple_of(page));
    let len = end - at;
    loop {
        match reserve(file, at, len) {
            Ok(()) => return Ok(true),
            // A signal: nothing or a part was allocated, and allocating again is no harm.
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

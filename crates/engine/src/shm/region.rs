//! The mapping of `app.db-plait-shm`: creating, checking, growing.
//!
//! The file has its full size from the start but is sparse; disk space behind
//! the ring and behind each arena is allocated before first use, because a
//! write to a hole on a full disk would kill the process with SIGBUS.
//!
//! Of the fixed part there is all but most of the slots of processes and connections, which follow page by page as they are claimed, and of
//! the authors of recent commits, which follow once there are some.
//!
//! Ring and arenas begin small, so that a database in which little happens takes little, and grow as they fill: the ring from its start, an
//! arena from both ends, nodes and records ([`Memtable::reach_with`]), with what serves to find them ([`Memtable::parts`]). How much there
//! is stands in shared memory and is looked
//! at under the commit mutex, before the commit point; allocating more is done without it, and by as many at a time as
//! come, since allocating twice is no harm. Where the file system cannot allocate and zeros are written instead, that would be
//! one: there the whole is written by one, before anybody uses any of it, and nothing grows. A process that cannot allocate beside
//! others that can (a filter of its system calls) fails before its commit point.
//!
//! Trust (FILE-6): a file is used only if its magic, layout version, boot id and
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

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::fork::{LockFile, NO_PROC};
use super::layout::{
    ALLOCATE_LOCK_BASE, ARENA_BYTES, ARENAS, Control, FIRST_RECENT, HEAD, Header, LAYOUT_END,
    LAYOUT_VERSION, Layout, MAGIC, PAGE, PROCESS_LOCK_BASE, PROCESS_SLOTS, RECENT_COMMITS,
    RING_BYTES, RING_OFFSET, RecentCommit, SMALL_ARENA_BYTES, TOTAL_BYTES, WINDOW_BYTES,
    arena_bytes, arena_offset, is_large, process_end, recent_end, session, slot_end,
};
use super::locks;
use super::mapping::Mapping;
use crate::crash_point;
use crate::error::{Error, Result};
use crate::log::{LogMemory, LogParams, LogShared, Ring, SEGMENT_BYTES, Tail};
use crate::memtable::Memtable;
use crate::storage::side;
use crate::sync::caller::Uncancelled;

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

/// Bytes of the ring with which a session begins.
const FIRST_RING_BYTES: usize = 8 << 10;
/// Bytes of an arena's nodes, and of its records, with which a generation begins.
const FIRST_BYTES: usize = 16 << 10;
const _: () = assert!(FIRST_BYTES >= Memtable::FIRST_REACH as usize);

/// How the file system is asked for disk space behind a part of a file: fallocate(2), but for tests.
type Reserve = fn(&File, u64, u64) -> std::result::Result<(), Errno>;

/// A mapped shared memory file.
pub struct Region {
    map: Arc<Mapping>,
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
    /// (fork.rs, FORK-1).
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
                refuse_size_in_use(&file, path)?;
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
        // SAFETY: the first mapping holds all of Layout, is page-aligned and lives as long as self; every field of
        // Layout is atomic or a SharedMutex, valid for any bit pattern and shared between processes.
        unsafe { self.map.first().cast::<Layout>().as_ref() }
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

    /// Maps the whole file, if it is not mapped yet (mapping.rs).
    ///
    /// # Errors
    /// NoMemory.
    pub fn reach_whole(&self) -> Result<()> {
        self.map.reach_whole().map(drop)
    }

    /// The whole file is mapped.
    pub fn reaches_whole(&self) -> bool {
        self.map.whole().is_some()
    }

    /// It could not be mapped the last time.
    pub fn is_whole_refused(&self) -> bool {
        self.map.is_refused()
    }

    /// Maps what the session uses. (M), or nobody else uses the region (MAPPING-3).
    ///
    /// # Errors
    /// NoMemory.
    #[inline]
    pub fn reach_used(&self) -> Result<()> {
        // Relaxed: both change under the commit mutex.
        let is_small = self.control().has_large.load(Relaxed) == 0
            && self.log().window_bytes() <= WINDOW_BYTES;
        if is_small { Ok(()) } else { self.reach_whole() }
    }

    /// First byte of arena `index`.
    #[inline(always)]
    fn arena_base(&self, index: usize) -> Result<NonNull<u8>> {
        assert!(index < ARENAS, "arena {index} does not exist");
        let mapping = &self.map;
        let base = if is_large(index) { mapping.reach_whole()? } else { mapping.first() };
        // SAFETY: the small arenas lie inside the first mapping, and all of them inside the whole one (layout.rs).
        Ok(unsafe { base.add(arena_offset(index)) })
    }

    /// The memtable in arena `index`, whose generation number the caller has found published (GEN-4).
    ///
    /// # Errors
    /// NoMemory, not where the whole file is mapped.
    #[inline(always)]
    pub fn memtable(&self, index: usize) -> Result<Memtable> {
        let base = self.arena_base(index)?.as_ptr();
        // Constants: what follows from the size is not computed at each look.
        let bytes = if is_large(index) { ARENA_BYTES } else { SMALL_ARENA_BYTES };
        // SAFETY: the arena is inside the mapping, which outlives every use of the memtable (both belong to
        // `Database`); an arena is formatted before its generation's number is published.
        Ok(unsafe { Memtable::attach(base, bytes as u32) })
    }

    /// Makes arena `index`, which is mapped, an empty memtable. The caller holds the commit mutex and the arena is FREE (GEN-4), or
    /// nobody else uses the region.
    pub fn format_arena(&self, index: usize) {
        let base = self.arena_base(index).expect("whoever formats an arena has it mapped");
        // Acquire pairs with the Release in `allocate_arena` and `grow_arena`.
        let reach = self.control().generations[index].allocated.load(Acquire);
        // SAFETY: inside the mapping; by the caller's promise no snapshot reads it and nobody else writes to it.
        unsafe { Memtable::format(base.as_ptr(), arena_bytes(index) as u32, reach) };
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
            ring: self.map.clone(),
            commit_mutex: NonNull::from(&self.control().commit_mutex),
        };
        // SAFETY: a published session has all three initialised; `Database` drops its ring and log before the region.
        unsafe { Ring::new(memory) }
    }

    /// Allocates disk space behind the beginning of the ring, or all of it; returns for how many bytes. Nobody else uses the region.
    pub fn allocate_ring(&self) -> Result<u64> {
        let whole = [(RING_OFFSET, RING_BYTES)];
        let first = [(RING_OFFSET, FIRST_RING_BYTES)];
        let in_part = self.allocate_first(&first, &whole)?;
        Ok(if in_part { FIRST_RING_BYTES } else { RING_BYTES } as u64)
    }

    /// Allocates disk space behind so many bytes of the ring, and some more, and maps them. Needs no lock.
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

    /// Allocates disk space behind the ends of arena `index`, and maps it; cheap when that is done already. False while another process is at it.
    pub fn allocate_arena(&self, index: usize) -> Result<bool> {
        self.arena_base(index)?;
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
            let whole = [(arena_offset(index), arena_bytes(index))];
            let in_part = self.allocate_first(&parts_of(index, FIRST_BYTES), &whole)?;
            let reach = if in_part { FIRST_BYTES } else { arena_bytes(index) };
            if is_large(index) {
                // Before the arena can be used.
                self.control().has_large.store(1, Relaxed);
            }
            // Release pairs with the Acquire of the freezer, which may touch the arena next.
            word.store(reach as u32, Release);
        }
        Ok(true)
    }

    /// Allocates disk space for so many bytes of nodes in arena `index`, and as many of records, and some more. It was allocated
    /// before. Needs no lock of the file.
    pub fn grow_arena(&self, index: usize, reach: u64) -> Result<()> {
        let most = arena_bytes(index);
        let reach = usize::try_from(reach).unwrap_or(most);
        let reach = reach.next_power_of_two().min(most);
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

    /// The place of who has committed at `ts`, if there is disk space behind it.
    pub fn recent(&self, ts: u64) -> Option<&RecentCommit> {
        let layout = self.layout();
        // Relaxed: constant since the session began.
        let number = ts.wrapping_sub(layout.control.first_ts.load(Relaxed));
        let index = number as usize % RECENT_COMMITS;
        // Acquire pairs with the Release in `allocate_recent`.
        let allocated = layout.control.recent_allocated.load(Acquire) as usize;
        (index < allocated).then(|| &layout.recent.commits[index])
    }

    /// Allocates disk space behind all of the authors of recent commits, once there are some; `ts` is the newest. Without it conflicts
    /// with them are told without a name.
    pub fn extend_recent(&self, ts: u64) {
        // Where it fails it is not tried at each commit.
        const BETWEEN_TRIES: u64 = 64;
        let allocated = &self.control().recent_allocated;
        // Relaxed: constant since the session began, and a hint.
        let number = ts.wrapping_sub(self.control().first_ts.load(Relaxed));
        // A commit over several files takes two.
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

    /// True if the content may be trusted for this boot and this base (FILE-6).
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

    /// What may continue the log of a session with this salt, from a file that nobody uses and that need not be trusted (log/moment.rs).
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
        self.allocate(0, LAYOUT_END)?;
        self.header().state.store(session::INVALID, Release);
        let base = self.map.first().as_ptr();
        // SAFETY: the first LAYOUT_END bytes are inside the mapping; nobody else uses them (lifecycle lock).
        unsafe { std::ptr::write_bytes(base, 0, LAYOUT_END) };
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

/// A file of another size may be that of another version of the library, which uses it: nothing is written to it then.
fn refuse_size_in_use(file: &File, path: &Path) -> Result<()> {
    // An error of fcntl is no proof that nobody does.
    let is_free = matches!(
        locks::is_range_locked_elsewhere(file, PROCESS_LOCK_BASE, PROCESS_SLOTS as i64),
        Ok(false)
    );
    if is_free { Ok(()) } else { Err(Error::CantOpen(say_in_use(path))) }
}

/// Why a session of others cannot be joined.
pub(crate) fn say_in_use(path: &Path) -> String {
    format!(
        "{} is in use by processes with another version of the library or another database file; close them first",
        path.display()
    )
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
    let arena = arena_offset(index);
    Memtable::parts(arena_bytes(index) as u32, reach as u32)
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
            return allocate(file, reserve, 0, LAYOUT_END);
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

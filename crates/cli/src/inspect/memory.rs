//! The shared memory file beside a database, read without joining the session.
//!
//! The fixed part is copied out with plain reads: nothing is mapped, locked or changed. Who is alive is told by the
//! locks that living processes hold, which can be asked for without taking one.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use plait_engine::ids::Generation;
use plait_engine::session::moment;
use plait_engine::shm::layout::{
    ARENAS, LAYOUT_VERSION, Layout, MAGIC, PROCESS_LOCK_BASE, PROCESS_SLOTS, TOTAL_BYTES, fence,
    generation, session,
};
use plait_engine::shm::region::{BaseIdentity, left};
use plait_engine::shm::{locks, process};
use plait_engine::storage::side;

use super::base::Header;

/// What the file says of the session in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Why its content counts for nothing; `None` when it may be trusted.
    pub distrust: Option<String>,
    /// Another version of the library made it.
    pub is_of_another_version: bool,
    /// Its layout, if killed processes have left acknowledged commits in it that the log lacks, and only a library with this
    /// layout can read.
    pub left_by_another: Option<u32>,
    /// A session has left its content there, whether it may be trusted or not.
    pub is_left: bool,
    /// Living processes use it.
    pub in_use: bool,
    /// Those of them that can be told apart: none when another version of the library made the file. An id of another pid
    /// namespace, which means somebody else here, is 0.
    pub alive: Vec<u32>,
    /// The session has raised its fence.
    pub is_fenced: bool,
    /// It has lowered it in the file since: what is committed is there.
    pub is_lowered: bool,
    /// Salt of the session.
    pub salt: u32,
    /// Generation that the database file includes, as the session knows it.
    pub base_generation: u32,
    /// The newest generation that has commits, unless the session knows that the database file includes it; 0 if there is none.
    pub newest_unmerged: u32,
    /// The log of the session stands beside the database, as it was left.
    pub has_log: bool,
    /// A whole copy of it stands there.
    pub has_copy: bool,
    /// It was found missing while processes used it, which stopped the session: what is in memory is in order.
    pub is_lost: bool,
    /// Bytes of the log that are not in its file yet.
    pub unwritten_bytes: u64,
    /// Error number that stopped the session, 0 for an error inside the library.
    pub poisoned: Option<i32>,
    /// With that what is in memory may be wrong.
    pub is_in_doubt: bool,
    /// Device and inode of the log of the session; zeros before there is one.
    pub log_file: (u64, u64),
    /// Inode of the WAL-index that its members have; 0 before there is one.
    pub wal_index_inode: u64,
}

impl Memory {
    /// Reads the file at `path` that stands beside the database file with this identity, and beside `log`; `None` when there is
    /// none.
    pub fn read(
        path: &Path,
        base: (u64, u64),
        header: Header,
        log: &Path,
    ) -> io::Result<Option<Memory>> {
        let file = match side::open(path, false) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let in_use =
            locks::is_range_locked_elsewhere(&file, PROCESS_LOCK_BASE, PROCESS_SLOTS as i64)?;
        let identity = BaseIdentity { dev: base.0, ino: base.1 };
        let left_by_another =
            if in_use { None } else { left::left_by_another(&file, identity, header.salt) };
        if file.metadata()?.len() < TOTAL_BYTES as u64 {
            let distrust = Some("it has another size than this version makes".to_owned());
            return Ok(Some(Memory { distrust, in_use, left_by_another, ..Memory::default() }));
        }
        let copy = Copied::from(&file)?;
        let layout = copy.layout();
        let control = &layout.control;
        let alive =
            if in_use && has_our_layout(layout) { alive(&file, layout)? } else { Vec::new() };
        let in_use = in_use && (!alive.is_empty() || !has_our_layout(layout));
        let merged = Generation::new(header.generation);
        // Relaxed throughout: the words are a private copy.
        Ok(Some(Memory {
            distrust: distrust(layout, base).or_else(|| {
                let is_outdated = !in_use
                    && header.is_fenced()
                    && moment::is_outdated(layout, log, header.salt, merged);
                is_outdated.then(|| "it is an older copy: the log or the file is newer".to_owned())
            }),
            is_of_another_version: layout.header.magic.load(Relaxed) == MAGIC
                && !has_our_layout(layout),
            left_by_another,
            is_left: has_our_layout(layout) && layout.header.state.load(Relaxed) == session::LIVE,
            in_use,
            alive,
            is_fenced: control.fence.load(Relaxed) != fence::RESTING,
            is_lowered: control.fence.load(Relaxed) == fence::LOWERED,
            salt: control.salt.load(Relaxed),
            base_generation: control.base_generation.load(Relaxed),
            newest_unmerged: newest_unmerged(layout),
            has_log: !in_use && moment::has_its_log(layout, log, merged),
            has_copy: !in_use && moment::has_a_copy(layout, log, merged),
            is_lost: layout.log.is_lost(),
            unwritten_bytes: layout
                .log
                .log_end()
                .get()
                .saturating_sub(layout.log.written_through().get()),
            poisoned: layout.log.poisoned(),
            is_in_doubt: layout.log.is_in_doubt(),
            log_file: layout.log.file_identity(),
            wal_index_inode: layout.header.wal_index_ino.load(Relaxed),
        }))
    }

    /// It has commits that a database file which includes everything through `generation` lacks.
    pub fn has_unmerged(&self, generation: u32) -> bool {
        self.newest_unmerged > generation
    }

    /// Its content may be trusted.
    pub fn is_trusted(&self) -> bool {
        self.distrust.is_none()
    }
}

/// As the engine finds them when it restores (`session/restore.rs`).
fn newest_unmerged(layout: &Layout) -> u32 {
    let c = &layout.control;
    let active = c.active_arena.load(Relaxed) as usize % ARENAS;
    let newest = c.generations[active].number.load(Relaxed);
    let is_applied = c.applied_lsn.load(Relaxed) == layout.log.log_end().get();
    let unmerged = c.generations.iter().filter(|g| {
        let number = g.number.load(Relaxed);
        matches!(g.state.load(Relaxed), generation::FROZEN | generation::ACTIVE)
            && number <= newest
            && (g.max_ts.load(Relaxed) > 0 || (number == newest && !is_applied))
    });
    unmerged.map(|g| g.number.load(Relaxed)).max().unwrap_or(0)
}

/// This version of the library made the file.
pub fn has_our_layout(layout: &Layout) -> bool {
    let h = &layout.header;
    h.magic.load(Relaxed) == MAGIC
        && h.layout_version.load(Relaxed) == LAYOUT_VERSION
        && h.total_bytes.load(Relaxed) == TOTAL_BYTES as u64
}

/// Why its content counts for nothing beside the database file with this identity: the same clauses
/// as the engine's FILE-6, with words.
pub fn distrust(layout: &Layout, base: (u64, u64)) -> Option<String> {
    let h = &layout.header;
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let same_boot = boot.iter().zip(&h.boot_id).all(|(a, b)| *a == b.load(Relaxed));
    let why = if h.magic.load(Relaxed) != MAGIC {
        "nothing was ever published in it"
    } else if !has_our_layout(layout) {
        "another version of the library made it"
    } else if (h.base_dev.load(Relaxed), h.base_ino.load(Relaxed)) != base {
        "it belongs to another database file"
    } else if !same_boot {
        "the machine has been restarted since"
    } else if h.state.load(Relaxed) != session::LIVE {
        "its session was ended"
    } else {
        return None;
    };
    Some(why.to_owned())
}

fn alive(file: &File, layout: &Layout) -> io::Result<Vec<u32>> {
    let namespace = process::pid_namespace();
    let pid = |i: usize| {
        let slot = &layout.processes[i];
        let is_near = slot.pid_namespace.load(Relaxed) == namespace;
        if is_near { slot.pid.load(Relaxed) } else { 0 }
    };
    Ok(alive_slots(file, layout)?.into_iter().map(pid).collect())
}

/// The slots of living processes.
pub fn alive_slots(file: &File, layout: &Layout) -> io::Result<Vec<usize>> {
    let mut alive = Vec::new();
    for ((i, slot), byte) in layout.processes.iter().enumerate().zip(PROCESS_LOCK_BASE..) {
        if slot.pid.load(Relaxed) != 0 && locks::is_locked_elsewhere(file, byte)? {
            alive.push(i);
        }
    }
    Ok(alive)
}

/// A page of memory, aligned as a mapping would be.
#[repr(C, align(4096))]
#[derive(Clone, Copy)]
struct Page([u8; 4096]);

const _: () = assert!(align_of::<Layout>() <= align_of::<Page>());

/// The fixed part of the file in memory of our own.
pub struct Copied(Vec<Page>);

impl Copied {
    /// Copies it from a file that is long enough.
    pub fn from(file: &File) -> io::Result<Copied> {
        let mut pages = vec![Page([0; 4096]); size_of::<Layout>().div_ceil(size_of::<Page>())];
        for (page, offset) in pages.iter_mut().zip((0..).step_by(size_of::<Page>())) {
            file.read_exact_at(&mut page.0, offset)?;
        }
        Ok(Copied(pages))
    }

    /// The copy, which nobody changes.
    pub fn layout(&self) -> &Layout {
        // SAFETY: the pages are at least as long as the layout and aligned for it (asserted above); every field is an
        // atomic or a mutex that is not used here, and both are valid for any bits.
        unsafe { &*self.0.as_ptr().cast::<Layout>() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> io::Result<Option<Memory>> {
        Memory::read(path, (1, 2), Header::EMPTY, path)
    }

    #[test]
    fn a_lock_of_a_process_in_a_file_of_another_version_means_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db-plait-shm");
        let holder = File::create(&path).unwrap();
        holder.set_len(TOTAL_BYTES as u64).unwrap();
        assert!(!read(&path).unwrap().unwrap().in_use);
        assert!(locks::try_lock(&holder, PROCESS_LOCK_BASE + 3).unwrap());
        let memory = read(&path).unwrap().unwrap();
        assert!(memory.in_use && memory.alive.is_empty());
        drop(holder);
        assert!(!read(&path).unwrap().unwrap().in_use);
    }

    #[test]
    fn a_short_or_blank_file_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db-plait-shm");
        assert_eq!(read(&path).unwrap(), None);
        std::fs::write(&path, b"short").unwrap();
        assert!(!read(&path).unwrap().unwrap().is_trusted());
        // Never written, all holes.
        File::options().write(true).open(&path).unwrap().set_len(TOTAL_BYTES as u64).unwrap();
        let blank = read(&path).unwrap().unwrap();
        assert!(!blank.is_trusted());
        assert!(blank.alive.is_empty());
    }
}

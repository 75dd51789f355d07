//! Disk space of the region: one thread allocates an arena at a time, and zeros are written where
//! the file system cannot allocate.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, AtomicU32};

use super::*;
use crate::log::RingMemory;
use crate::shm::layout::{ARENA_BYTES, LARGE_PAGE, MAPPED_FIRST, SMALL_ARENAS, TXN_SLOTS};

/// The first large arena.
const LARGE: usize = SMALL_ARENAS;

fn open(path: &Path) -> Arc<LockFile> {
    Arc::new(LockFile::open(|| side::open_or_create(path)).expect("opened"))
}

fn mapped(path: &Path, reserve: Reserve) -> Region {
    let file = open(path);
    let len = file.metadata().expect("open").len();
    Region::map_with(file, len, path, reserve).expect("mapped")
}

fn byte_of(region: &Region, arena: usize, at: usize) -> &AtomicU8 {
    assert!(at < arena_bytes(arena));
    let base = region.arena_base(arena).expect("mapped").as_ptr().cast::<AtomicU8>();
    // SAFETY: inside the arena, by the assertion.
    let byte = unsafe { base.add(at) };
    // SAFETY: mapped as long as the region is borrowed, and valid whatever it holds.
    unsafe { &*byte }
}

/// The answer of a file system that cannot allocate.
fn cannot(_: &File, _: u64, _: u64) -> std::result::Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

#[test]
fn an_arena_is_allocated_by_one_at_a_time_and_nobody_waits_for_another() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    // Two open files, as of two processes.
    let (one, other) = (mapped(&path, fallocate), mapped(&path, fallocate));
    assert!(locks::try_lock(one.file(), ALLOCATE_LOCK_BASE).expect("a lock"));
    assert!(!other.allocate_arena(0).expect("no failure"), "somebody is at it");
    assert!(other.allocate_arena(1).expect("allocated"), "another arena is free for it");
    locks::unlock(one.file(), ALLOCATE_LOCK_BASE).expect("unlocked");
    assert!(other.allocate_arena(0).expect("allocated"));
    assert!(one.allocate_arena(0).expect("it is there already"));
    assert!(locks::try_lock(one.file(), ALLOCATE_LOCK_BASE).expect("a lock"), "given back");
}

#[test]
fn zeros_written_in_place_of_an_allocation_never_fall_on_what_another_has_written() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let (one, other) = (mapped(&path, cannot), mapped(&path, cannot));
    let start = Barrier::new(4);
    // Two threads of each of two processes. A thread that finds an arena allocated uses it at once,
    // from one end to the other.
    let uses = |region: &Region, me: usize| {
        start.wait();
        for arena in SMALL_ARENAS - 1..LARGE + 2 {
            while !region.allocate_arena(arena).expect("no failure") {
                std::thread::yield_now();
            }
            for at in (0..arena_bytes(arena)).step_by(4096) {
                byte_of(region, arena, at + me).store(1, Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for (me, region) in [&one, &other, &one, &other].into_iter().enumerate() {
            scope.spawn(move || uses(region, me));
        }
    });
    for arena in SMALL_ARENAS - 1..LARGE + 2 {
        for at in (0..arena_bytes(arena)).step_by(4096) {
            for me in 0..4 {
                let byte = byte_of(&one, arena, at + me).load(Relaxed);
                assert_eq!(byte, 1, "arena {arena}, byte {at}, of thread {me}");
            }
        }
    }
    let on_disk = one.file().metadata().expect("its metadata").blocks() * 512;
    assert!(on_disk >= (LAYOUT_END + 2 * ARENA_BYTES) as u64, "{on_disk} bytes: holes are left");
}

#[test]
fn whole_pages_are_allocated_wherever_what_is_used_ends() {
    fn in_pages(file: &File, at: u64, len: u64) -> std::result::Result<(), Errno> {
        let page = PAGE as u64;
        assert!(at.is_multiple_of(page) && len.is_multiple_of(page), "{len} bytes from {at} on");
        fallocate(file, at, len)
    }
    let dir = tempfile::tempdir().expect("a folder");
    let region = mapped(&dir.path().join("app.db-plait-shm"), in_pages);
    region.allocate_ring().expect("allocated");
    for arena in [0, LARGE] {
        assert!(region.allocate_arena(arena).expect("allocated"));
    }
    reserve_all(region.file(), in_pages, PAGE + 2912, 960).expect("allocated");
}

#[test]
fn an_allocation_that_signals_interrupt_is_asked_for_again() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    fn interrupted(file: &File, at: u64, len: u64) -> std::result::Result<(), Errno> {
        match CALLS.fetch_add(1, Relaxed) % 3 {
            2 => fallocate(file, at, len),
            _ => Err(Errno::INTR),
        }
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let region = mapped(&path, interrupted);
    region.allocate_ring().expect("allocated in the end");
    assert!(region.allocate_arena(0).expect("allocated in the end"));
    // The three pieces of the fixed part, the beginning of the ring, the four parts of the arena.
    assert_eq!(CALLS.load(Relaxed), 3 * 8);
}

#[test]
fn ring_and_arenas_begin_small_and_have_disk_space_wherever_they_have_grown_to() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let (one, other) = (mapped(&path, fallocate), mapped(&path, fallocate));
    let on_disk = || (one.file().metadata().expect("its metadata").blocks() * 512) as usize;
    let ring = one.allocate_ring().expect("allocated") as usize;
    assert!(one.allocate_arena(LARGE).expect("allocated"));
    let reach = || one.control().generations[LARGE].allocated.load(Relaxed) as usize;
    assert!(ring <= 64 << 10 && reach() <= 64 << 10);
    let before = Memtable::first_node(ARENA_BYTES as u32) as usize;
    let head: usize = HEAD.iter().map(ExactSizeIterator::len).sum();
    let parts = |reach: usize| -> usize {
        Memtable::parts(ARENA_BYTES as u32, reach as u32).iter().map(ExactSizeIterator::len).sum()
    };
    assert!(on_disk() <= head + ring + parts(reach()) + 8 * PAGE);
    for wanted in [reach() + 1, 1 << 20, (5 << 20) + 1, ARENA_BYTES - before] {
        other.grow_arena(LARGE, wanted as u64).expect("allocated");
        assert!(reach() >= wanted);
        assert!(on_disk() >= head + ring + parts(wanted));
        // Allocating twice, or less than there is, is no harm.
        let (has, disk) = (reach(), on_disk());
        one.grow_arena(LARGE, wanted as u64 / 2).expect("allocated");
        assert_eq!((reach(), on_disk()), (has, disk));
    }
    for wanted in [ring + 8, 1 << 20, RING_BYTES] {
        one.grow_ring(wanted as u64).expect("allocated");
        assert!(other.log().ring_space() >= wanted as u64);
        assert!(on_disk() >= head + wanted + ARENA_BYTES);
    }
}

#[test]
fn growth_that_finds_no_disk_space_leaves_what_there_is_as_it_was() {
    fn little(file: &File, at: u64, len: u64) -> std::result::Result<(), Errno> {
        if len <= FIRST_BYTES as u64 || at < LAYOUT_END as u64 || len < 768 << 10 {
            return fallocate(file, at, len);
        }
        Err(Errno::NOSPC)
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let (poor, rich) = (mapped(&path, little), mapped(&path, fallocate));
    assert!(poor.allocate_arena(LARGE).expect("allocated"));
    let reach = || poor.control().generations[LARGE].allocated.load(Relaxed);
    let before = reach();
    assert!(matches!(poor.grow_arena(LARGE, 1 << 20), Err(Error::Full(_))));
    assert!(matches!(poor.grow_ring(1 << 20), Err(Error::Full(_))));
    assert_eq!((reach(), poor.log().ring_space()), (before, 0));
    rich.grow_arena(LARGE, 1 << 20).expect("allocated");
    rich.grow_ring(1 << 20).expect("allocated");
    assert!(reach() >= 1 << 20 && poor.log().ring_space() >= 1 << 20);
}

/// How many mappings of this file in this process ask for large pages.
fn mappings_with_large_pages(path: &Path) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
    let is_head = |line: &str| line.split(' ').next().is_some_and(|range| range.contains('-'));
    let (mut is_ours, mut found) = (false, 0);
    for line in smaps.lines() {
        if is_head(line) {
            is_ours = line.ends_with(path.to_str().expect("plain"));
        } else if is_ours && line.starts_with("VmFlags:") && line.contains(" hg") {
            found += 1;
        }
    }
    found
}

// holds MAPPING-4
#[test]
fn among_many_processes_no_large_page_has_a_part_without_disk_space() {
    use std::os::unix::fs::MetadataExt as _;
    fn little(file: &File, at: u64, len: u64) -> std::result::Result<(), Errno> {
        let is_second_half = at >= arena_offset(LARGE) as u64 + ARENA_BYTES as u64 / 2;
        if is_second_half { Err(Errno::NOSPC) } else { fallocate(file, at, len) }
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let (poor, rich) = (mapped(&path, little), mapped(&path, fallocate));
    let reach = |index: usize| rich.control().generations[index].allocated.load(Relaxed) as usize;
    rich.control().processes_high_water.store(MANY_PROCESSES, Relaxed);
    assert!(rich.allocate_arena(0).expect("allocated"));
    assert_eq!((reach(0), rich.control().has_large.load(Relaxed)), (FIRST_BYTES, large::NONE));

    assert!(matches!(poor.allocate_arena(LARGE), Err(Error::Full(_))));
    assert_eq!(reach(LARGE), 0, "nobody may use it");
    for index in [LARGE, LARGE + 1] {
        let before = rich.file().metadata().expect("its metadata").blocks() * 512;
        assert!(rich.allocate_arena(index).expect("allocated"));
        assert_eq!(reach(index), ARENA_BYTES);
        let half = ARENA_BYTES as u64 / 2;
        assert!(rich.file().metadata().expect("its metadata").blocks() * 512 >= before + half);
        assert!(arena_offset(index).is_multiple_of(LARGE_PAGE));
    }
    let later = mapped(&path, fallocate);
    later.reach_used().expect("mapped");
    if Path::new("/sys/kernel/mm/transparent_hugepage").exists() && cfg!(target_arch = "x86_64") {
        // Not where qemu stands between: it keeps the advice to itself.
        assert_eq!(mappings_with_large_pages(&path), 3);
    }
}

#[test]
fn large_arenas_that_grow_do_so_to_the_end_of_the_session() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let region = mapped(&path, fallocate);
    region.control().processes_high_water.store(MANY_PROCESSES - 1, Relaxed);
    for index in [LARGE, LARGE + 1] {
        assert!(region.allocate_arena(index).expect("allocated"));
        let reach = region.control().generations[index].allocated.load(Relaxed) as usize;
        assert_eq!(reach, FIRST_BYTES, "arena {index}");
        region.control().processes_high_water.store(MANY_PROCESSES, Relaxed);
    }
    let later = mapped(&path, fallocate);
    later.reach_used().expect("mapped");
    assert_eq!(mappings_with_large_pages(&path), 0);
}

#[test]
fn growth_writes_no_zeros_where_another_process_may_have_put_something() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let (able, unable) = (mapped(&path, fallocate), mapped(&path, cannot));
    able.allocate_ring().expect("allocated");
    assert!(able.allocate_arena(LARGE).expect("allocated"));
    let at = Memtable::first_node(ARENA_BYTES as u32) as usize;
    byte_of(&able, LARGE, at).store(7, Relaxed);
    // SAFETY: the ring's first byte lies in the mapping; no other thread writes to it.
    unsafe { RingMemory::first(&*able.map).write(7) };
    assert!(unable.grow_arena(LARGE, 1 << 20).is_err());
    assert!(unable.grow_ring(1 << 20).is_err());
    assert_eq!(byte_of(&able, LARGE, at).load(Relaxed), 7);
    // SAFETY: the same byte.
    assert_eq!(unsafe { RingMemory::first(&*able.map).read() }, 7);
    assert!(able.control().generations[LARGE].allocated.load(Relaxed) <= FIRST_BYTES as u32);
}

#[test]
fn an_allocation_that_fails_says_what_is_full_and_leaves_the_arena_to_the_next() {
    fn no_space(_: &File, at: u64, _: u64) -> std::result::Result<(), Errno> {
        if at < LAYOUT_END as u64 { Ok(()) } else { Err(Errno::NOSPC) }
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let (poor, rich) = (mapped(&path, no_space), mapped(&path, fallocate));
    for _ in 0..2 {
        match poor.allocate_arena(LARGE) {
            Err(Error::Full(why)) => assert!(why.contains("plait-shm"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(rich.allocate_arena(LARGE).expect("allocated"), "nobody holds the lock");
    assert!(poor.allocate_arena(LARGE).expect("it is there"));
}

/// The next opening finds the full size, whether this one succeeds or not.
#[test]
fn a_file_that_was_cut_short_counts_for_nothing_when_it_has_its_size_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let whole = mapped(&path, fallocate);
    whole.header().magic.store(MAGIC, Relaxed);
    whole.header().state.store(session::LIVE, Release);
    assert!(whole.was_left());
    drop(whole);
    for len in [0, 5, 4096, 26 << 20, TOTAL_BYTES as u64 - 1] {
        mapped(&path, fallocate).header().magic.store(MAGIC, Relaxed);
        File::options().write(true).open(&path).expect("it opens").set_len(len).expect("cut");
        for _ in 0..2 {
            assert!(!mapped(&path, fallocate).was_left(), "{len} bytes");
        }
    }
}

#[test]
fn a_slot_has_disk_space_before_anybody_looks_at_it() {
    use std::os::unix::fs::MetadataExt as _;
    for (reserve, page) in [(fallocate as Reserve, PAGE), (cannot, 0)] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("app.db-plait-shm");
        let region = mapped(&path, reserve);
        region.reset().expect("a new file");
        let on_disk = || region.file().metadata().expect("its metadata").blocks() as usize * 512;
        let before = on_disk();
        region.allocate_slot(0).expect("it is there");
        assert_eq!(on_disk(), before);
        region.allocate_process(0).expect("it is there");
        assert_eq!(on_disk(), before);
        // Two slots of one page.
        for index in [TXN_SLOTS - 2, TXN_SLOTS - 1] {
            region.allocate_slot(index).expect("there is space");
            assert_eq!(on_disk(), before + page);
        }
        let middle = TXN_SLOTS / 8;
        region.allocate_process(middle).expect("there is space");
        // The file system may need a block of its own to find so many parts.
        assert!((before + 2 * page..=before + 3 * page).contains(&on_disk()));
        // A process that cannot allocate where others can.
        let elsewhere = mapped(&path, cannot);
        assert_eq!(elsewhere.allocate_slot(TXN_SLOTS / 2).is_ok(), page == 0);
    }
}

// holds MAPPING-1
#[test]
fn a_process_maps_little_until_a_large_arena_or_a_large_window_is_in_use() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let (one, other) = (mapped(&path, fallocate), mapped(&path, fallocate));
    const { assert!(MAPPED_FIRST < 8 << 20) };
    let is_small = |region: &Region| {
        region.reach_used().expect("mapped");
        !region.reaches_whole()
    };
    for region in [&one, &other] {
        for arena in 0..SMALL_ARENAS {
            assert!(region.allocate_arena(arena).expect("allocated"));
            region.format_arena(arena);
            assert!(region.memtable(arena).expect("mapped").is_empty());
        }
        region.grow_ring(WINDOW_BYTES).expect("allocated");
        assert!(is_small(region));
    }
    assert!(one.allocate_arena(LARGE).expect("allocated"));
    assert!(one.reaches_whole() && !other.reaches_whole());
    assert!(!is_small(&other), "from its next lock on");
    byte_of(&one, LARGE, ARENA_BYTES - 1).store(9, Relaxed);
    assert_eq!(byte_of(&other, LARGE, ARENA_BYTES - 1).load(Relaxed), 9);
    // Both mappings show the same pages.
    let at = one.map.whole().expect("mapped").as_ptr();
    // SAFETY: inside of the whole mapping.
    let by_the_second = unsafe { at.add(arena_offset(0)) };
    byte_of(&one, 0, 0).store(8, Relaxed);
    // SAFETY: the first byte of arena 0, by the same mapping.
    assert_eq!(unsafe { by_the_second.read() }, 8);
}

#[test]
fn a_ring_that_is_not_mapped_is_read_by_the_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let (one, other) = (mapped(&path, fallocate), mapped(&path, fallocate));
    one.grow_ring(RING_BYTES as u64).expect("allocated");
    let whole = RingMemory::whole(&*one.map).expect("it was mapped for its size");
    // SAFETY: the last byte of the ring, which is mapped.
    let last = unsafe { whole.as_ptr().add(RING_BYTES - 1) };
    // SAFETY: that byte; no other thread uses it.
    unsafe { last.write(7) };
    let mut bytes = [0; 2];
    other.map.read(RING_BYTES as u64 - 2, &mut bytes).expect("read");
    assert_eq!((bytes, other.map.whole()), ([0, 7], None));
}

#[test]
fn a_file_of_another_size_that_others_use_is_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let theirs = open(&path);
    let mut before = vec![7; 100_000];
    before[..8].copy_from_slice(&MAGIC.to_le_bytes());
    theirs.write_all_at(&before, 0).expect("written");
    assert!(locks::try_lock(&theirs, PROCESS_LOCK_BASE + 3).expect("a lock"));
    match Region::map(open(&path), before.len() as u64, &path) {
        Err(Error::CantOpen(why)) => assert!(why.contains("another version"), "{why}"),
        other => panic!("{:?}", other.err()),
    }
    assert_eq!(std::fs::read(&path).expect("there"), before);
    locks::unlock(&theirs, PROCESS_LOCK_BASE + 3).expect("unlocked");
    assert!(!mapped(&path, fallocate).was_left());
}

#[test]
fn the_whole_can_be_mapped_by_opening_the_file_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait-shm");
    let region = mapped(&path, fallocate);
    let again = region.map.map_by_file().expect("mapped");
    region.control().salt.store(77, Relaxed);
    // SAFETY: the whole file was mapped there.
    assert_eq!(unsafe { again.cast::<Layout>().as_ref() }.control.salt.load(Relaxed), 77);
}

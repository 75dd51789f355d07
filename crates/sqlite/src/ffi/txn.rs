//! Snapshots, writes, the end of a transaction, the exclusive path.

use std::os::raw::{c_int, c_void};
use std::ptr;

use plait_engine::base::{BaseHeader, WalState};
use plait_engine::database::changed::Changed;
use plait_engine::error::Error;
use plait_engine::ids::Root;
use plait_engine::shm::layout::fence;
use plait_engine::shm::read_marks::ReadMarks;
use plait_engine::sync::caller::Uncancelled;
use plait_engine::txn::checkpoint::Asked;
use plait_engine::txn::exclusive::Replay;
use plait_engine::txn::snapshot::Taken;
use plait_engine::txn::{Conn, Size, Sync, WriteMode};

use super::codes::{
    PL_FENCED_STILL, PL_RETRY, SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT, SQLITE_DONE, SQLITE_OK,
};
use super::types::{PlConn, PlEntry, PlHeader, PlTouched, PlWait, with_wait};
use super::{bytes, end, end_in_memory, look, with, with_memory};
use crate::key::{decode_rowid, encode_rowid};

const PL_WRITE_OPTIMISTIC: c_int = 2;
const PL_WRITE_BESIDE: c_int = 3;
const PL_FENCE_NONE: u32 = 0;
const PL_FENCE_UP: u32 = 1;
const PL_FENCE_LOWERED: u32 = 2;
const PL_FIRST_CHANGES: c_int = 3;

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_snapshot_pin(conn: *mut PlConn, lone_read: c_int) -> c_int {
    // SAFETY: engine.h.
    unsafe { with_memory(conn, "pl_snapshot_pin", |c| c.pin(lone_read != 0).map(|()| SQLITE_OK)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_snapshot_take(
    conn: *mut PlConn,
    base: *const PlHeader,
    for_write: c_int,
    wait: *const PlWait,
) -> c_int {
    // SAFETY: engine.h: `base` points to a header.
    let header = BaseHeader::from(unsafe { &*base });
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_snapshot_take", |c| {
            let mut take = || c.take(&header, for_write != 0);
            Ok(match if wait.is_null() { take() } else { with_wait(wait, |_| take()) }? {
                Taken::Yes => SQLITE_OK,
                Taken::Retry => PL_RETRY,
            })
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_snapshot_put_off(conn: *mut PlConn) {
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_snapshot_put_off", |c| c.put_off()) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_snapshot_end(conn: *mut PlConn) {
    // SAFETY: engine.h.
    unsafe {
        // To give the right back it may wait.
        let _uncancelled = (*conn).conn.began_early().then(Uncancelled::begin);
        end_in_memory(conn, "pl_snapshot_end", |c| c.snapshot_end());
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_data_version(conn: *mut PlConn, now: c_int, out: *mut u32) -> c_int {
    // SAFETY: engine.h: `out` is writable.
    unsafe {
        look(conn, "pl_data_version", |c| {
            *out = c.data_version(now != 0);
            SQLITE_OK
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_data_version_from(
    conn: *mut PlConn,
    version: u32,
    cookie: *const u64,
) -> c_int {
    // SAFETY: engine.h: `cookie` is null or readable.
    unsafe {
        look(conn, "pl_data_version_from", |c| {
            c.data_version_from(version, cookie.as_ref().copied());
            SQLITE_OK
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_write_begin(
    conn: *mut PlConn,
    how: c_int,
    wait: *const PlWait,
) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_write_begin", |c| {
            c.database().check_fork()?;
            // An optimistic writer waits for the fence alone.
            let at_once = c.has_fence() && matches!(how, PL_WRITE_BESIDE | PL_WRITE_OPTIMISTIC);
            let _uncancelled = (!at_once).then(Uncancelled::begin);
            let wait = if at_once { ptr::null() } else { wait };
            let begun = with_wait(wait, |w| match how {
                PL_WRITE_BESIDE => c.write_beside(w),
                PL_WRITE_OPTIMISTIC => c.write_begin(WriteMode::Optimistic, w),
                _ => c.write_begin(WriteMode::Queued, w),
            });
            begun.map(|()| SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_begin_early(
    conn: *mut PlConn,
    first: u64,
    wait: *const PlWait,
) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_begin_early", |c| {
            let _uncancelled = Uncancelled::begin();
            let early = with_wait(wait, |w| c.begin_early(first, w))?;
            Ok(if early { SQLITE_OK } else { SQLITE_DONE })
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_note_first(conn: *mut PlConn, first: u64, what: c_int) {
    let note = |c: &mut Conn| match what {
        PL_FIRST_CHANGES => c.note_schema_change(first),
        _ => c.note_refused(first),
    };
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_note_first", note) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_put(
    conn: *mut PlConn,
    root: u32,
    key: *const u8,
    n_key: u32,
    rec: *const u8,
    n_rec: u32,
    n_zero: u32,
) -> c_int {
    // SAFETY: engine.h: both ranges are readable during the call.
    let (key, rec) = unsafe { (bytes(key, n_key), bytes(rec, n_rec)) };
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_put", |c| {
            c.put(Root::new(root), key, rec, n_zero as usize).map(|()| SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_delete(
    conn: *mut PlConn,
    root: u32,
    key: *const u8,
    n_key: u32,
    rec: *const u8,
    n_rec: u32,
    run: u32,
) -> c_int {
    // SAFETY: engine.h: both ranges are readable during the call.
    let (key, rec) = unsafe { (bytes(key, n_key), bytes(rec, n_rec)) };
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_delete", |c| {
            let root = Root::new(root);
            let deleted = match run {
                0 => c.delete(root, key, rec),
                _ => c.delete_in_passing(root, key, rec, run),
            };
            deleted.map(|()| SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_put_max(
    conn: *mut PlConn,
    root: u32,
    key: *const u8,
    n_key: u32,
    rec: *const u8,
    n_rec: u32,
    is_new: c_int,
) -> c_int {
    // SAFETY: engine.h: both ranges are readable during the call.
    let (key, rec) = unsafe { (bytes(key, n_key), bytes(rec, n_rec)) };
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_put_max", |c| {
            let root = Root::new(root);
            let put = match is_new {
                0 => c.put_max(root, key, rec),
                _ => c.make_max(root, key, rec),
            };
            put.map(|()| SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_greatest_rowid(
    conn: *mut PlConn,
    root: u32,
    empty: *mut c_int,
    out: *mut i64,
) -> c_int {
    // SAFETY: engine.h: `empty` and `out` are writable.
    unsafe {
        look(conn, "pl_greatest_rowid", |c| match c.greatest_key(Root::new(root)) {
            Some(key) => {
                let greatest = key.and_then(|key| decode_rowid(&key));
                *empty = c_int::from(greatest.is_none());
                *out = greatest.unwrap_or_default();
                SQLITE_OK
            }
            None => SQLITE_DONE,
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_new_rowid(
    conn: *mut PlConn,
    root: u32,
    visible_max: *const i64,
    stock: i64,
    out: *mut i64,
) -> c_int {
    // SAFETY: engine.h: null, or readable.
    let visible_max = unsafe { visible_max.as_ref() }.copied();
    // SAFETY: engine.h: `out` is writable.
    unsafe {
        with_memory(conn, "pl_new_rowid", |c| {
            c.note_greatest_key(Root::new(root), visible_max.map(encode_rowid));
            let rowid = c.new_rowid(Root::new(root), stock);
            // That the rowid is free counts as read, too: whatever the counter says, no other
            // transaction's row is overwritten (TXN-3).
            c.read_point(Root::new(root), &encode_rowid(rowid));
            *out = rowid;
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_note_rowid(conn: *mut PlConn, root: u32, rowid: i64) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_note_rowid", |c| {
            c.note_rowid(Root::new(root), rowid);
            Ok(SQLITE_OK)
        })
    }
}

pub(super) fn sync_of(level: c_int) -> Sync {
    match level {
        0 => Sync::Off,
        1 => Sync::Normal,
        _ => Sync::Full,
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_set_level(conn: *mut PlConn, sync: c_int) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        look(conn, "pl_set_level", |c| {
            c.set_level(sync_of(sync));
            SQLITE_OK
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_settle_shown(conn: *mut PlConn) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_settle_shown", |c| {
            c.end_early();
            c.settle_shown().map(|()| SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_commit_prepare(conn: *mut PlConn, wait: *const PlWait) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_commit_prepare", |c| {
            with_wait(wait, |w| c.commit_prepare(w)).map(|()| SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_commit(
    conn: *mut PlConn,
    sync: c_int,
    keep_reading: c_int,
    wait: *const PlWait,
) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_commit", |c| {
            with_wait(wait, |w| c.commit(sync_of(sync), keep_reading != 0, w)).map(|()| SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_commit_undo(conn: *mut PlConn) {
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_commit_undo", |c| c.commit_undo()) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_rollback(conn: *mut PlConn) {
    // A failure means a poisoned commit mutex, which the next call reports.
    let rollback = |c: &mut Conn| {
        let _ = c.rollback();
    };
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_rollback", rollback) };
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_maintain(conn: *mut PlConn) -> c_int {
    let maintain = |c: &mut Conn| {
        c.database().check_fork()?;
        if c.is_upkeep_due() {
            let _uncancelled = Uncancelled::begin();
            c.maintain()?;
        }
        Ok(SQLITE_OK)
    };
    // SAFETY: engine.h.
    unsafe { with_memory(conn, "pl_maintain", maintain) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_note_walk(conn: *mut PlConn, steps: u32) {
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_note_walk", |c| c.note_walk(steps)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_note_page_count(conn: *mut PlConn, bytes: u64) {
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_note_page_count", |c| c.note_page_count(bytes)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_is_lone(conn: *mut PlConn) -> c_int {
    let is_lone = |c: &mut Conn| if c.is_lone() { SQLITE_OK } else { SQLITE_DONE };
    // SAFETY: engine.h.
    unsafe { look(conn, "pl_is_lone", is_lone) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_fence(conn: *mut PlConn, out: *mut u32) -> c_int {
    let tell = |c: &mut Conn| {
        let state = match c.fence() {
            fence::FENCED => PL_FENCE_UP,
            fence::LOWERED => PL_FENCE_LOWERED,
            _ => PL_FENCE_NONE,
        };
        // SAFETY: engine.h: `out` is writable.
        unsafe { *out = state };
        SQLITE_OK
    };
    // SAFETY: engine.h.
    unsafe { look(conn, "pl_fence", tell) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_doomed(conn: *mut PlConn) -> c_int {
    let doomed = |c: &mut Conn| if c.is_doomed() { SQLITE_BUSY_SNAPSHOT } else { SQLITE_OK };
    // SAFETY: engine.h.
    unsafe { look(conn, "pl_doomed", doomed) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_unmerged(
    conn: *mut PlConn,
    entries: *mut u64,
    bytes: *mut u64,
) -> c_int {
    // SAFETY: engine.h: `entries` and `bytes` are writable.
    unsafe {
        look(conn, "pl_unmerged", |c| {
            (*entries, *bytes) = c.unmerged();
            SQLITE_OK
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_exclusive_begin(conn: *mut PlConn, wait: *const PlWait) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_exclusive_begin", |c| {
            with_wait(wait, |w| c.exclusive_begin(w)).map(|()| SQLITE_OK)
        })
    }
}

/// A code that a replay callback returned.
struct Failed(c_int);

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_exclusive_replay(
    conn: *mut PlConn,
    x_savepoint: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    x_write: unsafe extern "C" fn(*mut c_void, u32, *const PlEntry) -> c_int,
    ctx: *mut c_void,
) -> c_int {
    let entry = |key: &[u8], rec: &[u8]| PlEntry {
        key: key.as_ptr(),
        n_key: key.len() as u32,
        n_rec: rec.len() as u32,
        rec: rec.as_ptr(),
        tombstone: 0,
        maximum: 0,
    };
    // SAFETY: engine.h: the callbacks may be called with their context; the entry lives through
    // the call.
    let write = |root: Root, e: &PlEntry| unsafe { x_write(ctx, root.get(), e) };
    let step = |replay: Replay<'_>| {
        let code = match replay {
            // SAFETY: as above.
            Replay::Savepoint(n) => unsafe { x_savepoint(ctx, n as c_int) },
            Replay::Put(root, key, rec) => write(root, &entry(key, rec)),
            Replay::Maximum(root, key, rec) => {
                write(root, &PlEntry { maximum: 1, ..entry(key, rec) })
            }
            Replay::Delete(root, key, rec) => {
                write(root, &PlEntry { tombstone: 1, ..entry(key, rec) })
            }
        };
        if code == SQLITE_OK { Ok(()) } else { Err(Failed(code)) }
    };
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_exclusive_replay", |c| {
            c.expect_exclusive()?;
            c.exclusive_replay(step).map(|()| SQLITE_OK).map_err(|Failed(code)| Error::Base {
                code,
                text: "cannot apply the transaction's writes to the database file".into(),
            })
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_exclusive_header(
    conn: *mut PlConn,
    sync: c_int,
    n_write: u64,
    n_byte: u64,
    changed: *const PlTouched,
    out: *mut PlHeader,
) -> c_int {
    // SAFETY: engine.h: `out` is writable, and `changed` is not null.
    unsafe {
        with(conn, "pl_exclusive_header", |c| {
            c.expect_exclusive()?;
            let size = Size { entries: n_write, bytes: n_byte };
            let changed = Changed::from(&*changed);
            *out = PlHeader::from(&c.exclusive_header(sync_of(sync), size, changed));
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_exclusive_not_committed(conn: *mut PlConn) {
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_exclusive_not_committed", |c| c.exclusive_not_committed()) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_base_sync_failed(conn: *mut PlConn) {
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_base_sync_failed", |c| c.database().base_sync_failed()) }
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_wal_written() {
    plait_engine::crash_point!("wal.written");
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_exclusive_wal(
    conn: *mut PlConn,
    log_pages: u32,
    checkpointed_pages: u32,
    page_bytes: u32,
    written_pages: u32,
) {
    let state = WalState { log_pages, checkpointed_pages, page_bytes };
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_exclusive_wal", |c| c.note_exclusive_wal(state, written_pages)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_exclusive_end(conn: *mut PlConn, committed: c_int, keeps_right: c_int) {
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_exclusive_end", |c| c.exclusive_end(committed != 0, keeps_right != 0)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_merge_all(
    conn: *mut PlConn,
    whole: c_int,
    wait: *const PlWait,
) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_merge_all", |c| {
            with_wait(wait, |w| c.merge_all(whole != 0, w)).map(|()| SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_runs_beside(conn: *mut PlConn) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        look(conn, "pl_runs_beside", |c| match c.runs_beside() {
            true => SQLITE_OK,
            false => SQLITE_DONE,
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_checkpoint(
    conn: *mut PlConn,
    truncates: c_int,
    wait: *const PlWait,
    x_try: unsafe extern "C" fn(*mut c_void, *const ReadMarks) -> c_int,
    ctx: *mut c_void,
) -> c_int {
    let asked = match (wait.is_null(), truncates != 0) {
        (true, _) => Asked::Passive,
        (false, false) => Asked::Whole,
        (false, true) => Asked::Truncate,
    };
    let mut attempt = |marks: Option<&ReadMarks>| {
        let marks = marks.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: engine.h: the callback may be called with its context.
        match unsafe { x_try(ctx, marks) } {
            SQLITE_OK => Ok(true),
            code if code & 0xff == SQLITE_BUSY => Ok(false),
            code => Err(Error::Base { code, text: "cannot checkpoint the database file".into() }),
        }
    };
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_checkpoint", |c| {
            let at_rest = with_wait(wait, |w| c.checkpoint(w, asked, &mut attempt))?;
            Ok(if asked == Asked::Truncate && !at_rest { PL_FENCED_STILL } else { SQLITE_OK })
        })
    }
}

const PL_SET_BACKGROUND_MERGE: c_int = 0;
const PL_SET_WAL_LIMIT_BYTES: c_int = 1;

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_setting(
    conn: *mut PlConn,
    which: c_int,
    value: i64,
    out: *mut i64,
) -> c_int {
    let new = (value >= 0).then_some(value as u64);
    let set = |c: &mut Conn| {
        if new.is_some() {
            c.refuse_replica()?;
        }
        let in_force = match which {
            PL_SET_BACKGROUND_MERGE => {
                i64::from(c.database().background_merge(new.map(|v| v != 0)))
            }
            PL_SET_WAL_LIMIT_BYTES => c.database().wal_limit_bytes(new) as i64,
            _ => return Err(Error::Misuse(format!("there is no setting {which}"))),
        };
        // SAFETY: engine.h: `out` is writable.
        unsafe { *out = in_force };
        Ok(SQLITE_OK)
    };
    // SAFETY: engine.h.
    unsafe { with(conn, "pl_setting", set) }
}

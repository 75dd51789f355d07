//! Rows of the virtual tables, conflicts and texts.

use std::ffi::CString;
use std::os::raw::{c_char, c_int};

use plait_engine::database::Database;
use plait_engine::error::Conflict;
use plait_engine::replica;

use super::codes::{SQLITE_DONE, SQLITE_OK};
use super::types::{PlCell, PlConflict, PlConn};
use super::{look, text, with};

const INTEGER: u8 = 1;
const TEXT: u8 = 3;
const NULL: u8 = 5;

const PL_TABLE_STATUS: c_int = 0;
const PL_TABLE_TRANSACTIONS: c_int = 1;
const PL_TABLE_CONFLICTS: c_int = 2;

enum Cell {
    Int(i64),
    Text(CString),
    Null,
}

/// Rows of one virtual table, as they were when it was opened.
pub struct PlRows(Vec<Vec<Cell>>);

fn int(v: impl TryInto<i64>) -> Cell {
    v.try_into().map_or(Cell::Null, Cell::Int)
}

fn pid(v: u32) -> Cell {
    if v == 0 { Cell::Null } else { int(v) }
}

fn namespace(foreign: u64) -> Cell {
    if foreign == 0 { Cell::Null } else { int(foreign) }
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|b| format!("{b:02x}")).collect()
}

fn rows(db: &Database, table: c_int) -> Vec<Vec<Cell>> {
    match table {
        PL_TABLE_STATUS => {
            let (numbers, texts) = db.shipping_status();
            let (of_replica, said) = replica::status(db.path(), db.is_followed());
            let promoted = db.was_promoted().then_some(("replica_promoted", 1));
            let numbers = db.status().into_iter().chain(numbers).chain(of_replica).chain(promoted);
            let texts = texts.into_iter().chain(said);
            let numbers = numbers.map(|(name, v)| vec![Cell::Text(text(name)), int(v)]);
            let row = |(name, v): (_, String)| vec![Cell::Text(text(name)), Cell::Text(text(&v))];
            numbers.chain(texts.map(row)).collect()
        }
        PL_TABLE_TRANSACTIONS => db
            .transactions()
            .into_iter()
            .map(|t| {
                vec![
                    pid(t.pid),
                    int(t.thread),
                    int(t.connection),
                    Cell::Text(text(t.state)),
                    int(t.age_ms),
                    pid(t.waiting_for_pid),
                    Cell::Null,
                    namespace(t.foreign_namespace),
                ]
            })
            .collect(),
        PL_TABLE_CONFLICTS => db
            .conflicts()
            .into_iter()
            .map(|r| {
                vec![
                    int(r.unix_ms),
                    if r.root == 0 { Cell::Null } else { int(r.root) },
                    Cell::Text(text(&hex(&r.key))),
                    int(u8::from(r.is_range)),
                    pid(r.loser_pid),
                    pid(r.winner_pid),
                    int(r.loser_txn),
                    int(r.winner_txn),
                    Cell::Null,
                    namespace(r.loser_namespace.into()),
                    namespace(r.winner_namespace.into()),
                ]
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_rows_new(
    conn: *mut PlConn,
    table: c_int,
    out: *mut *mut PlRows,
) -> c_int {
    // SAFETY: engine.h: `out` is writable.
    unsafe {
        with(conn, "pl_rows_new", |c| {
            *out = Box::into_raw(Box::new(PlRows(rows(c.database(), table))));
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says; the cell's text lives as long as the rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_rows_cell(
    rows: *mut PlRows,
    row: u32,
    col: u32,
    out: *mut PlCell,
) -> c_int {
    // SAFETY: engine.h.
    let rows = unsafe { &*rows };
    let Some(cells) = rows.0.get(row as usize) else { return SQLITE_DONE };
    let cell = match cells.get(col as usize) {
        Some(Cell::Int(i)) => PlCell { kind: INTEGER, i: *i, z: std::ptr::null() },
        Some(Cell::Text(t)) => PlCell { kind: TEXT, i: 0, z: t.as_ptr() },
        Some(Cell::Null) | None => PlCell { kind: NULL, i: 0, z: std::ptr::null() },
    };
    // SAFETY: engine.h: `out` is writable.
    unsafe { *out = cell };
    SQLITE_OK
}

/// See engine.h.
///
/// # Safety
/// `rows` came from `pl_rows_new` and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_rows_free(rows: *mut PlRows) {
    if !rows.is_null() {
        // SAFETY: by contract.
        drop(unsafe { Box::from_raw(rows) });
    }
}

fn conflict_of(c: &Conflict, (alike, recent): (usize, usize)) -> PlConflict {
    let n = c.key.len().min(64);
    let mut key = [0; 64];
    key[..n].copy_from_slice(&c.key[..n]);
    PlConflict {
        root: c.root.get(),
        n_key: n as u32,
        key,
        is_range: u8::from(c.is_range),
        is_schema: u8::from(c.is_exclusive)
            | u8::from(c.history_gone) << 1
            | u8::from(c.winner_namespace != 0) << 2,
        loser_pid: std::process::id() as i32,
        winner_pid: c.winner_pid as i32,
        loser_txn: 0,
        winner_txn: c.winner.get(),
        unix_ms: 0,
        n_alike: alike as i32,
        n_recent: recent as i32,
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_conflict(conn: *mut PlConn, out: *mut PlConflict) -> c_int {
    // SAFETY: engine.h.
    if unsafe { !(*conn).is_conflict } {
        return SQLITE_DONE;
    }
    // SAFETY: engine.h: `out` is writable.
    unsafe {
        look(conn, "pl_conflict", |c| match c.last_conflict() {
            Some(conflict) => {
                *out = conflict_of(conflict, c.database().conflicts_alike(conflict));
                SQLITE_OK
            }
            None => SQLITE_DONE,
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says; the text lives until the next failing call on `conn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_errmsg(conn: *mut PlConn) -> *const c_char {
    // SAFETY: engine.h.
    unsafe { (*conn).error.as_ptr() }
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_engine_version() -> *const c_char {
    concat!("plait ", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

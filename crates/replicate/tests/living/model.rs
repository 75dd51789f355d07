//! A replica that is rows alone.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use plait_client::{Library, Value};
use plait_engine::ids as engine;
use plait_engine::log::{Frame, OpKind};
use plait_replicate::ids::{Lsn, Position};
use plait_replicate::library;
use plait_replicate::record::item::each_page;
use plait_replicate::record::{Frames, Merge, PageSet};
use plait_replicate::restore::{Restored, Stop, restore};
use plait_replicate::store::objects::{self, Missing};
use plait_replicate::target::{Applied, Birth, Target, TargetError};
use plait_replicate::world::Patience;

use crate::real;

/// Rows of the table `t` by their id.
pub type Rows = BTreeMap<i64, String>;

/// Rows of a database.
pub fn rows_of(database: &Path) -> Rows {
    let db = Library::linked().open(database).expect("the database opens");
    db.busy_timeout(std::time::Duration::from_secs(10)).expect("a timeout");
    let rows = db.query("SELECT id, v FROM t").expect("its rows");
    rows.iter().map(|row| (row[0].as_i64().expect("an id"), text(&row[1]))).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?} is no text"),
    }
}

#[derive(Default)]
struct State {
    rows: Rows,
    /// Root page of the table `t`.
    root: u32,
    position: Position,
    applied: Option<Applied>,
}

struct Model {
    folder: PathBuf,
    state: Rc<RefCell<State>>,
    pages: BTreeMap<u32, Vec<u8>>,
    page_bytes: u32,
    page_count: u32,
}

fn bad(what: impl Into<String>) -> TargetError {
    what.into().into()
}

/// A number of SQLite's, and how many bytes it has.
fn varint(bytes: &[u8]) -> (u64, usize) {
    let mut number = 0;
    for (at, byte) in bytes.iter().enumerate().take(8) {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return (number, at + 1);
        }
    }
    (number << 8 | u64::from(bytes[8]), 9)
}

/// The text in the second column of a record.
fn second_column(record: &[u8]) -> String {
    let (header_bytes, at) = varint(record);
    let (_, one) = varint(&record[at..]);
    let (kind, _) = varint(&record[at + one..]);
    assert!(kind >= 13 && kind % 2 == 1, "a text, not {kind}");
    let start = header_bytes as usize;
    let end = start + (kind as usize - 13) / 2;
    String::from_utf8_lossy(&record[start..end]).into_owned()
}

impl Target for Model {
    fn state(&mut self) -> Result<Option<Applied>, TargetError> {
        let state = self.state.borrow();
        Ok(state.applied.map(|applied| Applied { position: state.position, ..applied }))
    }

    fn begin(&mut self, birth: &Birth) -> Result<(), TargetError> {
        self.pages.clear();
        (self.page_bytes, self.page_count) = (birth.snapshot.page_bytes, birth.snapshot.page_count);
        Ok(())
    }

    fn base_pages(&mut self, pages: &bytes::Bytes) -> Result<(), TargetError> {
        let pages = each_page(pages, self.page_bytes).ok_or_else(|| bad("no list of pages"))?;
        self.pages.extend(pages.map(|(number, page)| (number, page.to_vec())));
        Ok(())
    }

    fn complete(&mut self, applied: &Applied) -> Result<(), TargetError> {
        let mut first = self.pages.get(&1).ok_or_else(|| bad("no first page"))?.clone();
        let word = |at: usize| u32::from_be_bytes(first[at..at + 4].try_into().expect("four"));
        let (salt, generation) = (word(72), word(76));
        if generation != applied.position.base.0 || salt != applied.position.salt.0 {
            return Err(bad(format!("the pages are of generation {generation} and salt {salt}")));
        }
        // At rest, and of no mode of ours.
        first[18..20].fill(2);
        first[72..80].fill(0);
        self.pages.insert(1, first);
        // What the database had when it was longer.
        self.pages.retain(|number, _| *number <= self.page_count);
        let numbers: Vec<u32> = self.pages.keys().copied().collect();
        if numbers != (1..=self.page_count).collect::<Vec<_>>() {
            return Err(bad(format!("{} of {} pages", numbers.len(), self.page_count)));
        }
        let path = self.folder.join("snapshot.db");
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(self.folder.join(format!("snapshot.db{suffix}")));
        }
        let bytes: Vec<u8> = self.pages.values().flatten().copied().collect();
        std::fs::write(&path, bytes).map_err(|e| bad(e.to_string()))?;
        let db = Library::linked().open(&path).map_err(|e| bad(e.said()))?;
        let sound = db.text("PRAGMA integrity_check").map_err(|e| bad(e.said()))?;
        if sound != "ok" {
            return Err(bad(format!("the snapshot is damaged: {sound}")));
        }
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = 't'";
        let root = db.integer(root).map_err(|e| bad(e.said()))?;
        drop(db);
        let mut state = self.state.borrow_mut();
        state.rows = rows_of(&path);
        state.root = root as u32;
        state.position = applied.position;
        state.applied = Some(*applied);
        Ok(())
    }

    fn frames(&mut self, frames: &Frames, from: Lsn) -> Result<(), TargetError> {
        let mut state = self.state.borrow_mut();
        if from != state.position.stream || frames.from < from {
            return Err(bad(format!("frames from {} behind {from}", frames.from)));
        }
        let mut rest = &frames.bytes[..];
        let mut at = engine::Lsn::new(frames.from.0);
        while !rest.is_empty() {
            let frame = Frame::parse(rest, state.position.salt.0, at);
            let frame = frame.map_err(|why| bad(format!("at {at}: {}", why.why())))?;
            if frame.generation.get() != frames.generation.0 {
                return Err(bad("frames of two generations"));
            }
            let root = state.root;
            for op in frame.ops().filter(|op| op.root.get() == root) {
                let id = u64::from_be_bytes(op.key.try_into().expect("a rowid")) ^ 1 << 63;
                match op.kind {
                    OpKind::Put => state.rows.insert(id as i64, second_column(op.rec)),
                    OpKind::Tombstone => state.rows.remove(&(id as i64)),
                };
            }
            rest = &rest[frame.len_bytes() as usize..];
            at = frame.end();
            state.position.crc = frame.crc;
            state.position.commit = plait_replicate::ids::CommitTs(frame.commit_ts.get());
        }
        state.position.stream = frames.end();
        Ok(())
    }

    fn merge(&mut self, merge: &Merge, _: bool) -> Result<u32, TargetError> {
        self.state.borrow_mut().position.base = merge.through;
        Ok(merge.sum)
    }

    fn begin_pages(&mut self, _: &PageSet) -> Result<(), TargetError> {
        Err(bad("nothing ships pages"))
    }

    fn pages(&mut self, _: &[u8]) -> Result<(), TargetError> {
        Err(bad("nothing ships pages"))
    }

    fn commit_pages(&mut self) -> Result<(), TargetError> {
        Err(bad("nothing ships pages"))
    }

    fn renew(&mut self, position: &Position) -> Result<(), TargetError> {
        self.state.borrow_mut().position = *position;
        Ok(())
    }

    fn note(&mut self, applied: &Applied) -> Result<(), TargetError> {
        self.state.borrow_mut().applied = Some(*applied);
        Ok(())
    }
}

/// Applies a chain to a model: its rows, and what was restored.
///
/// # Errors
/// In words.
pub fn restored(url: &Path, folder: &Path, stop: Stop) -> Result<(Rows, Restored), String> {
    let store = objects::open(url.to_str().expect("UTF-8"), Missing::Refuse)?;
    let world = real::world(store, Patience::Tries(3));
    let state = Rc::new(RefCell::new(State::default()));
    let model = Model {
        folder: folder.to_owned(),
        state: Rc::clone(&state),
        pages: BTreeMap::new(),
        page_bytes: 0,
        page_count: 0,
    };
    let library = library::versions();
    let mut progress = |_| ();
    let restoring = restore(&world, Box::new(model), stop, &library, &mut progress);
    let (restored, _) = real::block_on(restoring)?;
    let rows = std::mem::take(&mut state.borrow_mut().rows);
    Ok((rows, restored))
}

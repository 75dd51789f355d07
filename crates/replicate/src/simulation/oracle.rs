//! What is true of databases, and what was found not to be.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use super::database::SEGMENT_BYTES;
use crate::ids::{Position, Salt};

/// A place in the history of a database: session, base, end of the stream.
type Place = (Salt, u32, u64);

fn place(position: &Position) -> Place {
    (position.salt, position.base.0, position.stream.0)
}

/// Everything that ever was.
#[derive(Debug, Default)]
pub struct Oracle {
    /// Rows at a place. Copies of a database may differ at what looks like one place.
    rows: RefCell<BTreeMap<Place, BTreeSet<u64>>>,
    /// Pages of the base of a session, through a generation.
    bases: RefCell<BTreeMap<(Salt, u32), BTreeSet<u64>>>,
    /// How far the log of a session is on disk.
    durable: RefCell<BTreeMap<Salt, u64>>,
    /// Positions of records that were made.
    records: RefCell<BTreeSet<Place>>,
    violations: RefCell<Vec<String>>,
    /// Objects are damaged by nobody's fault: what writers make of them is not judged.
    is_damaged: Cell<bool>,
}

impl Oracle {
    /// Notes what rows and pages there are at a place.
    pub fn note(&self, position: &Position, rows: u64, pages: u64) {
        self.rows.borrow_mut().entry(place(position)).or_default().insert(rows);
        let key = (position.salt, position.base.0);
        self.bases.borrow_mut().entry(key).or_default().insert(pages);
    }

    /// Notes how far a log is on disk.
    pub fn note_durable(&self, salt: Salt, stream: u64) {
        let mut durable = self.durable.borrow_mut();
        let known = durable.entry(salt).or_default();
        *known = stream.max(*known);
    }

    /// Notes that a record with this position was made.
    pub fn note_record(&self, position: &Position) {
        self.records.borrow_mut().insert(place(position));
    }

    /// True if a record with this position was made (CHAIN-2).
    pub fn is_in_chain(&self, position: &Position) -> bool {
        self.records.borrow().contains(&place(position))
    }

    /// True if the log of a session was on disk through here. The next generation begins a segment.
    pub fn is_durable(&self, position: &Position) -> bool {
        let durable = self.durable.borrow();
        let is_behind = |through: &u64| {
            position.stream.0 <= *through
                || (position.crc == 0
                    && position.stream.0 == through.next_multiple_of(SEGMENT_BYTES))
        };
        durable.get(&position.salt).is_none_or(is_behind)
    }

    /// Checks what somebody has at a place (CHAIN-7).
    pub fn check(&self, who: &str, position: &Position, rows: u64, pages: Option<u64>) {
        match self.rows.borrow().get(&place(position)) {
            None => self.violate(format!("{who} is at {position:?}, where no database ever was")),
            Some(known) if !known.contains(&rows) => {
                self.violate(format!("{who} has other rows at {position:?} than the primary had"));
            }
            Some(_) => {}
        }
        let key = (position.salt, position.base.0);
        let bases = self.bases.borrow();
        if let Some(pages) = pages
            && bases.get(&key).is_none_or(|known| !known.contains(&pages))
        {
            self.violate(format!("{who} has another base at {position:?} than the primary had"));
        }
    }

    /// From here on writers are not judged, since what they read may be damaged.
    pub fn judge_readers_alone(&self) {
        self.is_damaged.set(true);
    }

    /// True if objects are damaged by nobody's fault.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.get()
    }

    /// Notes that a writer did what it must not.
    pub fn violate_by_writer(&self, what: String) {
        if !self.is_damaged.get() {
            self.violate(what);
        }
    }

    /// Notes that something is not as it has to be.
    pub fn violate(&self, what: String) {
        self.violations.borrow_mut().push(what);
    }

    /// The first thing that is not as it has to be.
    pub fn violation(&self) -> Option<String> {
        self.violations.borrow().first().cloned()
    }
}

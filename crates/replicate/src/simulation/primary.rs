//! A database that is written to, as its sidecars read it.
//!
//! The journal has what happened in its order: commits, merges, pages. Sidecars go through it; what
//! they have shipped leaves it, and so does what is older than a limit.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::database::{
    Base, Changes, Frame, PAGE_BYTES, Rows, SEGMENT_BYTES, apply, digest_of_rows, newest_of,
};
use super::dice::Dice;
use super::oracle::Oracle;
use super::shelf::Memory;
use crate::fault::{Fault, is_planted};
use crate::ids::{ChainId, CommitTs, Generation, Hash, Instance, Lsn, Nonce, Position, Salt};
use crate::record::{Follows, Frames, Merge};
use crate::shelf::Shelf;
use crate::source::{BaseCopy, Event, Pages, Source, SourceError, Start, TipOf};
use crate::world::Random as _;

/// Journal entries that are held for a sidecar at most.
const ENTRIES_HELD: usize = 150;

#[derive(Clone, Debug)]
enum Happened {
    Frame(Frame),
    Merge(Merge),
    Pages { before: Generation, through: Generation, page_count: u32, list: Vec<Vec<u8>> },
}

/// What happened, and where base and stream are behind it.
#[derive(Clone, Debug)]
struct Entry {
    what: Happened,
    behind: Position,
}

/// A database.
#[derive(Clone)]
pub struct Database {
    instance: Instance,
    host: String,
    oracle: Rc<Oracle>,
    dice: Rc<Dice>,
    chain: Option<ChainId>,
    /// The last record that is known.
    known: Hash,
    /// Who may have opened the chain since.
    opening: Nonce,
    base: Base,
    rows: Rows,
    /// Frames that the base lacks.
    frames: Vec<Frame>,
    active: Generation,
    position: Position,
    durable: u64,
    journal: VecDeque<Entry>,
    /// Entries that have left the journal.
    gone: usize,
    /// Where base and stream were before the journal.
    journal_start: Position,
    /// Where the session before ended, with everything in the base, if nothing has come between.
    renewed_from: Option<Position>,
    /// Entries of which each sidecar says that they are shipped.
    shipped: BTreeMap<u64, usize>,
    /// With what was on the shelf.
    saved: Option<(Base, Rows, Option<Vec<u8>>)>,
    /// So many reads fail next.
    unreadable: u32,
    /// No copy of the base can be made.
    is_held: bool,
    /// The machine's.
    shelf: Memory,
    /// When the file was made, where it is known.
    made_ms: Option<u64>,
    library: String,
}

impl Database {
    /// A new one, on a machine.
    pub fn new(host: &str, dice: &Rc<Dice>, oracle: &Rc<Oracle>) -> Database {
        let salt = Salt(dice.number() as u32 | 1);
        let stream = Lsn(SEGMENT_BYTES);
        let position = Position { salt, stream, ..Position::default() };
        let database = Database {
            instance: Instance(dice.name()),
            host: host.to_owned(),
            oracle: Rc::clone(oracle),
            dice: Rc::clone(dice),
            chain: None,
            known: Hash::ZERO,
            opening: Nonce::default(),
            base: Base::new(salt),
            rows: Rows::new(),
            frames: Vec::new(),
            active: Generation(1),
            position,
            durable: stream.0,
            journal: VecDeque::new(),
            gone: 0,
            journal_start: position,
            renewed_from: None,
            shipped: BTreeMap::new(),
            saved: None,
            unreadable: 0,
            is_held: false,
            shelf: Memory::default(),
            made_ms: None,
            library: "simulated".to_owned(),
        };
        database.note();
        database
    }

    /// A copy of all its files on another machine.
    pub fn copied_to(&self, host: &str) -> Database {
        let mut copy = self.clone();
        copy.instance = Instance(self.dice.name());
        copy.host = host.to_owned();
        copy.shipped.clear();
        copy.shelf = self.shelf.copied();
        copy
    }

    /// A copy of all its files on a machine with the name of this one.
    pub fn twin(&self, host: &str) -> Database {
        Database { instance: self.instance, ..self.copied_to(host) }
    }

    /// The shelf of its machine.
    pub fn shelf(&self) -> &Memory {
        &self.shelf
    }

    /// Its next reads fail, so many of them.
    pub fn fail_reads(&mut self, reads: u32) {
        self.unreadable = reads;
    }

    /// No copy of its base can be made, as by a slow disk.
    pub fn hold_base(&mut self) {
        self.is_held = true;
    }

    /// True while a sidecar is attached.
    pub fn is_attached(&self) -> bool {
        !self.shipped.is_empty()
    }

    /// True if a sidecar has shipped all there is.
    pub fn is_all_shipped(&self) -> bool {
        self.is_attached() && self.journal.is_empty() && self.frames.is_empty()
    }

    fn note(&self) {
        self.oracle.note(&self.position, digest_of_rows(&self.rows), self.base.digest());
        self.oracle.note_durable(self.position.salt, self.durable);
        // The base alone, before the frames that it lacks: what a snapshot has.
        let stream = Lsn(self.frames.first().map_or(self.next_segment(), |frame| frame.lsn));
        let alone = Position { stream, ..self.position };
        self.oracle.note(&alone, digest_of_rows(&self.base.rows()), self.base.digest());
    }

    fn happened(&mut self, what: Happened) {
        self.note();
        self.journal.push_back(Entry { what, behind: self.position });
    }

    fn next_segment(&self) -> u64 {
        self.position.stream.0.next_multiple_of(SEGMENT_BYTES)
    }

    /// A commit of some rows; on disk at once, or later.
    pub fn commit(&mut self, is_full: bool) {
        let dice = Rc::clone(&self.dice);
        let changes: Changes = (0..dice.between(1, 3))
            .map(|_| {
                let row = (!dice.one_in(4)).then(|| dice.number() as u32);
                (dice.below(40) as u16, row)
            })
            .collect();
        apply(&mut self.rows, &changes);
        let newest = self.frames.last().map_or(self.base.generation, |frame| frame.generation);
        let is_first = newest < self.active;
        let lsn = if is_first { self.next_segment() } else { self.position.stream.0 };
        let commit = self.position.commit.0 + 1;
        let frame = Frame { generation: self.active, lsn, commit, changes };
        let bytes = frame.encode(self.position.salt);
        self.position.stream = Lsn(frame.end());
        self.position.commit = CommitTs(commit);
        self.position.crc =
            u32::from_le_bytes(bytes.last_chunk().copied().expect("a frame has a checksum"));
        self.frames.push(frame.clone());
        self.happened(Happened::Frame(frame));
        if is_full {
            self.sync();
        }
    }

    /// The newest commit.
    #[cfg(test)]
    pub fn newest_commit(&self) -> CommitTs {
        self.position.commit
    }

    /// Brings the log to disk.
    pub fn sync(&mut self) {
        self.durable = self.position.stream.0;
        self.note();
    }

    /// The next generation begins.
    pub fn freeze(&mut self) {
        if self.frames.last().is_some_and(|frame| frame.generation == self.active) {
            self.active = Generation(self.active.0 + 1);
        }
    }

    /// Merges frozen generations: all, or the first few.
    pub fn merge(&mut self, all: bool) {
        let frozen: Vec<Generation> =
            self.frames.iter().map(|frame| frame.generation).filter(|g| *g < self.active).collect();
        let Some(newest) = frozen.last().copied() else { return };
        let first = frozen[0];
        let reach = self.dice.between(u64::from(first.0), u64::from(newest.0));
        let through = if all { newest } else { Generation(reach as u32) };
        self.sync();
        let before = self.base.generation;
        let is_merged = |frame: &&Frame| frame.generation <= through;
        let changes = newest_of(self.frames.iter().filter(is_merged));
        let sum = self.base.merge(through, &changes);
        self.frames.retain(|frame| frame.generation > through);
        self.position.base = through;
        let page_count = self.base.page_count();
        self.happened(Happened::Merge(Merge { before, through, page_count, sum }));
        self.limit();
    }

    /// Everything goes into the base.
    pub fn merge_everything(&mut self) {
        self.freeze();
        self.merge(true);
    }

    /// A transaction on SQLite's own path.
    pub fn exclusive(&mut self) {
        let dice = Rc::clone(&self.dice);
        let pages = if dice.one_in(2) { dice.between(3, 7) as u32 } else { self.base.page_count() };
        self.exclusive_with(pages);
    }

    /// The same, with so many pages behind it.
    pub fn exclusive_with(&mut self, pages: u32) {
        self.merge_everything();
        let dice = Rc::clone(&self.dice);
        let mut changes = Changes::new();
        if dice.one_in(2) {
            changes.insert(dice.below(40) as u16, Some(dice.number() as u32));
        }
        let before = self.base.generation;
        let through = self.active;
        let changed = self.base.exclusive(through, &changes, pages, dice.number());
        apply(&mut self.rows, &changes);
        self.active = Generation(through.0 + 1);
        self.position.base = through;
        let list = changed.chunks(2).map(|some| self.base.list(some.iter().copied())).collect();
        let page_count = self.base.page_count();
        self.happened(Happened::Pages { before, through, page_count, list });
    }

    /// A new session begins, of a file that was made then.
    #[cfg(test)]
    pub fn begin_anew(&mut self, made_ms: u64) {
        self.end_session();
        (self.chain, self.made_ms) = (None, Some(made_ms));
    }

    /// Another version of the library opens it.
    #[cfg(test)]
    pub fn upgrade(&mut self, library: &str) {
        self.library = library.to_owned();
    }

    /// What was shipped or not leaves the log, so that a sidecar has to bridge it.
    #[cfg(test)]
    pub fn need_a_break(&mut self) {
        self.begin_journal();
    }

    /// The log is longer than its limit: what is merged leaves it, shipped or not.
    fn limit(&mut self) {
        if self.journal.len() > ENTRIES_HELD {
            self.begin_journal();
        }
    }

    /// Begins the journal anew with the frames that the base lacks.
    fn begin_journal(&mut self) {
        let mut rows = self.base.rows();
        let mut kept = VecDeque::new();
        for frame in &self.frames {
            apply(&mut rows, &frame.changes);
            let crc = frame.encode(self.position.salt).last_chunk().copied();
            let behind = Position {
                stream: Lsn(frame.end()),
                commit: CommitTs(frame.commit),
                crc: u32::from_le_bytes(crc.expect("a frame has a checksum")),
                ..self.position
            };
            // The chain has these frames over this base, which merges may have reached after them.
            self.oracle.note(&behind, digest_of_rows(&rows), self.base.digest());
            kept.push_back(Entry { what: Happened::Frame(frame.clone()), behind });
        }
        // One more: a sidecar that has read all of it has not read the new one.
        self.gone += self.journal.len() + 1;
        let first = self.frames.first().map(|frame| frame.lsn);
        let stream = first.unwrap_or_else(|| self.next_segment());
        let commit = if first.is_none() { self.position.commit } else { CommitTs(0) };
        self.journal_start = Position { stream: Lsn(stream), commit, crc: 0, ..self.position };
        self.journal = kept;
        self.renewed_from = None;
        for shipped in self.shipped.values_mut() {
            *shipped = self.gone;
        }
    }

    /// All processes end: everything goes into the base, and a new session begins.
    pub fn end_session(&mut self) {
        self.merge_everything();
        let ended = self.position;
        self.renew(Some(ended));
    }

    fn renew(&mut self, renewed_from: Option<Position>) {
        let salt = Salt(self.dice.number() as u32 | 1);
        self.base.salt = salt;
        self.frames.clear();
        self.position = Position {
            salt,
            base: self.base.generation,
            stream: Lsn(SEGMENT_BYTES),
            commit: CommitTs(0),
            crc: 0,
        };
        self.active = Generation(self.base.generation.0 + 1);
        self.durable = SEGMENT_BYTES;
        self.journal_start = self.position;
        self.gone += self.journal.len();
        self.journal.clear();
        self.renewed_from = renewed_from;
        self.shipped.clear();
        self.note();
    }

    /// The power goes off: what was not synced is gone, and the next process recovers.
    pub fn cut_power(&mut self) {
        let durable = self.durable;
        let had = self.frames.len();
        self.frames.retain(|frame| frame.end() <= durable);
        let is_whole = had == 0 && self.position.stream.0 <= durable;
        let changes = newest_of(self.frames.iter());
        let newest = self.frames.last().map_or(self.base.generation, |frame| frame.generation);
        let ended = self.position;
        if newest > self.base.generation {
            self.base.merge(newest, &changes);
        }
        self.rows = self.base.rows();
        // Recovery stamps what it has seen: a later generation begins behind it.
        self.renew(is_whole.then_some(ended));
    }

    /// Another program writes to the file at rest.
    pub fn change_at_rest(&mut self) {
        self.end_session();
        let generation = self.base.generation;
        let key = self.dice.below(40) as u16;
        let changes = Changes::from([(key, Some(self.dice.number() as u32))]);
        let pages = self.base.page_count();
        self.base.exclusive(generation, &changes, pages, self.dice.number());
        self.rows = self.base.rows();
        self.renew(None);
    }

    /// Keeps a backup.
    pub fn save(&mut self) {
        let mut base = self.base.clone();
        let newest = self.frames.last().map_or(base.generation, |frame| frame.generation);
        if newest > base.generation {
            base.merge(newest, &newest_of(self.frames.iter()));
        }
        self.saved = Some((base, self.rows.clone(), self.shelf.now()));
    }

    /// Puts the backup in the place of the database.
    pub fn put_back(&mut self) {
        if let Some((base, rows, shelf)) = self.saved.clone() {
            (self.base, self.rows) = (base, rows);
            self.shelf.set(shelf);
            self.renew(None);
        }
    }

    /// The entry at which an event stream goes on behind a position.
    fn entry_behind(&self, tip: &Position) -> Option<usize> {
        let is_it = |at: &Position| {
            (at.salt, at.base, at.stream, at.crc) == (tip.salt, tip.base, tip.stream, tip.crc)
        };
        let behind = self.journal.iter().rposition(|entry| is_it(&entry.behind)).map(|at| at + 1);
        behind.or_else(|| is_it(&self.journal_start).then_some(0)).map(|at| self.gone + at)
    }

    /// SOURCE-5.
    fn knows(&self, tip: &TipOf) -> bool {
        let has_made = |merge: &Merge| {
            let is_it = |entry: &Entry| matches!(&entry.what, Happened::Merge(own) if own == merge);
            self.journal.iter().any(is_it)
        };
        tip.hash == self.known
            || tip.opening == Some(self.opening)
            || (tip.previous == self.known
                && tip.merges.as_ref().is_some_and(|merges| merges.iter().all(has_made)))
    }

    fn forget_shipped(&mut self) {
        let Some(through) = self.shipped.values().min() else { return };
        while self.gone < *through
            && let Some(entry) = self.journal.pop_front()
        {
            self.journal_start = entry.behind;
            self.renewed_from = None;
            self.gone += 1;
        }
    }
}

/// A sidecar's view of a database.
pub struct Primary {
    database: Rc<RefCell<Database>>,
    oracle: Rc<Oracle>,
    told: Rc<RefCell<Vec<(Instance, Position)>>>,
    /// Number of this sidecar.
    id: u64,
    /// The next entry, and the position before it.
    next: usize,
    at: Position,
    newest: Generation,
    salt: Cell<Salt>,
    shelf: Memory,
}

impl Primary {
    /// Attaches to a database. What it is told is noted in `told`.
    pub fn new(
        database: &Rc<RefCell<Database>>,
        id: u64,
        told: &Rc<RefCell<Vec<(Instance, Position)>>>,
    ) -> Primary {
        let oracle = Rc::clone(&database.borrow().oracle);
        let shelf = database.borrow().shelf.clone();
        Primary {
            shelf,
            database: Rc::clone(database),
            oracle,
            told: Rc::clone(told),
            id,
            next: 0,
            at: Position::default(),
            newest: Generation(0),
            salt: Cell::default(),
        }
    }

    fn events(&mut self, database: &Database, bytes: usize) -> Vec<Event> {
        let mut events = Vec::new();
        let mut so_far = 0;
        while let Some(entry) = database.journal.get(self.next - database.gone) {
            let is_durable = entry.behind.stream.0 <= database.durable;
            if so_far >= bytes || !(is_durable || is_planted(Fault::ShippedVolatile)) {
                break;
            }
            match &entry.what {
                Happened::Frame(frame) => {
                    let bytes = frame.encode(database.position.salt);
                    so_far += bytes.len();
                    self.newest = frame.generation;
                    push_frame(&mut events, frame, &bytes);
                }
                Happened::Merge(merge) => events.push(Event::Merge(*merge)),
                Happened::Pages { before, through, page_count, list } => {
                    events.push(Event::Pages {
                        before: *before,
                        through: *through,
                        page_bytes: PAGE_BYTES as u32,
                        page_count: *page_count,
                        pages: Box::new(Lists(list.clone().into())),
                    });
                }
            }
            self.at = entry.behind;
            self.next += 1;
        }
        events
    }
}

/// Frames of one generation that follow each other are one event.
fn push_frame(events: &mut Vec<Event>, frame: &Frame, bytes: &bytes::Bytes) {
    let commit = CommitTs(frame.commit);
    if let Some(Event::Frames(last)) = events.last_mut()
        && last.generation == frame.generation
        && last.end().0 == frame.lsn
    {
        last.bytes = [&last.bytes[..], bytes].concat().into();
        last.last_commit = commit;
        return;
    }
    events.push(Event::Frames(Frames {
        generation: frame.generation,
        from: Lsn(frame.lsn),
        first_commit: commit,
        last_commit: commit,
        bytes: bytes.clone(),
    }));
}

/// Lists of pages, one at a time.
struct Lists(VecDeque<Vec<u8>>);

impl Pages for Lists {
    fn next(&mut self, _: usize) -> Result<Option<Vec<u8>>, SourceError> {
        Ok(self.0.pop_front())
    }
}

impl Source for Primary {
    fn instance(&self) -> Instance {
        self.database.borrow().instance
    }

    fn host(&self) -> String {
        format!("{}, process {}", self.database.borrow().host, self.id)
    }

    fn chain(&self) -> Option<ChainId> {
        self.database.borrow().chain
    }

    fn made_ms(&self) -> Option<u64> {
        self.database.borrow().made_ms
    }

    fn note_opening(&mut self, writer: Nonce) -> Result<(), SourceError> {
        self.database.borrow_mut().opening = writer;
        Ok(())
    }

    fn note_chain(&mut self, chain: ChainId, open: Hash) -> Result<(), SourceError> {
        let mut database = self.database.borrow_mut();
        database.chain = Some(chain);
        database.known = open;
        Ok(())
    }

    fn begin(&mut self, tip: Option<&TipOf>) -> Result<Start, SourceError> {
        let mut database = self.database.borrow_mut();
        let is_known = |tip: &&TipOf| database.knows(tip) || is_planted(Fault::TwinUnseen);
        let tip = tip.filter(is_known).map(|tip| tip.position);
        let behind = tip.and_then(|tip| database.entry_behind(&tip));
        let is_renewed = tip.is_some() && database.renewed_from == tip;
        let (follows, next, position) = match behind {
            Some(next) => (Follows::Stream, next, tip.unwrap_or_default()),
            None if is_renewed => (Follows::Base, database.gone, database.journal_start),
            None => {
                database.begin_journal();
                (Follows::Nothing, database.gone, database.journal_start)
            }
        };
        self.next = next;
        self.at = position;
        // Frames before the position are given already, by whichever sidecar.
        let given = database.frames.iter().rfind(|frame| frame.end() <= position.stream.0);
        self.newest = given.map_or(Generation(0), |frame| frame.generation);
        self.salt.set(database.position.salt);
        database.shipped.insert(self.id, next);
        Ok(Start {
            follows,
            position,
            segment_bytes: SEGMENT_BYTES as u32,
            page_bytes: PAGE_BYTES as u32,
            library: database.library.clone(),
            why: None,
        })
    }

    fn read(&mut self, bytes: usize) -> Result<Vec<Event>, SourceError> {
        let database = Rc::clone(&self.database);
        let unreadable = database.borrow().unreadable;
        if unreadable > 0 {
            database.borrow_mut().unreadable -= 1;
            return Err(SourceError::Later("it cannot be read".to_owned()));
        }
        let database = database.borrow();
        if database.position.salt != self.salt.get() {
            return Err(SourceError::Ended("the session has ended".to_owned()));
        }
        if self.next >= database.gone {
            return Ok(self.events(&database, bytes));
        }
        // What comes next has left the log.
        let start = database.journal_start;
        let shipped = self.at.stream;
        let behind = database.journal.iter().position(|entry| entry.behind.stream > shipped);
        let (stream, skipped) = match behind {
            _ if shipped < start.stream => (start.stream, 0),
            Some(at) => (shipped, at),
            None => (shipped, database.journal.len()),
        };
        let before = skipped.checked_sub(1).and_then(|last| database.journal.get(last));
        let base = before.map_or(start.base, |entry| entry.behind.base);
        let incomplete = if shipped < start.stream { base } else { base.max(self.newest) };
        self.next = database.gone + skipped;
        let has_all = skipped == database.journal.len() && database.frames.is_empty();
        let commit = if has_all { database.position.commit } else { CommitTs(0) };
        self.at = Position { base, stream, commit, ..start };
        let why = "the log was longer than --max-lag".to_owned();
        let mut events = vec![Event::Lost { stream, base, incomplete, commit, why }];
        events.extend(self.events(&database, bytes));
        Ok(events)
    }

    fn shipped(&mut self, record: Hash, through: &Position, _: bool) {
        let mut database = self.database.borrow_mut();
        database.known = record;
        self.told.borrow_mut().push((database.instance, *through));
        if !self.oracle.is_in_chain(through) {
            self.oracle.violate_by_writer(format!(
                "{through:?} is said to be shipped, and no record has it"
            ));
        }
        if !self.oracle.is_durable(through) {
            self.oracle.violate_by_writer(format!("{through:?} is shipped and was not on disk"));
        }
        if through.salt == database.position.salt
            && let Some(entry) = database.entry_behind(through)
        {
            let shipped = database.shipped.entry(self.id).or_default();
            *shipped = entry.max(*shipped);
            database.forget_shipped();
        }
    }

    fn base(&mut self, at_least: Generation) -> Result<Option<BaseCopy>, SourceError> {
        let mut database = self.database.borrow_mut();
        if database.position.salt != self.salt.get() {
            return Err(SourceError::Ended("the session has ended".to_owned()));
        }
        if database.base.generation < at_least {
            database.merge_everything();
        }
        if database.base.generation < at_least || database.is_held {
            return Ok(None);
        }
        let stream = database.frames.first().map_or(database.next_segment(), |frame| frame.lsn);
        let base = &database.base;
        let numbers: Vec<u32> = (1..=base.page_count()).collect();
        let lists = numbers.chunks(2).map(|some| base.list(some.iter().copied()));
        Ok(Some(BaseCopy {
            generation: base.generation,
            salt: base.salt,
            stream: Lsn(stream),
            page_bytes: PAGE_BYTES as u32,
            page_count: base.page_count(),
            pages: Box::new(Lists(lists.collect())),
        }))
    }

    fn shelf(&self) -> Option<&dyn Shelf> {
        Some(&self.shelf)
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.database.borrow_mut().shipped.remove(&self.id);
    }
}

//! What lies over the base for one transaction: its own writes, then the generations of its
//! snapshot, newest first.
//!
//! Entries include tombstones: a merge with the base needs to know what they hide. There is one
//! entry per key, the newest one visible.

use super::Conn;
use crate::commit::writes::{OwnPlace, Write, WriteKind};
use crate::fault;
use crate::ids::{Root, SnapshotTs};
use crate::memory;
use crate::memtable::{EntryKind, Memtable, Node, Seek};

/// One overlay entry. Its slices live until the next write through the same connection, or the end
/// of its snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Encoded key.
    pub key: &'a [u8],
    /// Record; of an index tombstone the deleted record.
    pub rec: &'a [u8],
    /// The key is deleted.
    pub tombstone: bool,
}

impl Conn {
    /// False if nothing can lie over the base at `root`, own writes included.
    pub fn root_has_overlay(&self, root: Root) -> bool {
        self.writes.has_root(root)
            || self
                .snapshot
                .as_ref()
                .is_some_and(|s| s.memtables.iter().any(|(_, m)| m.may_hold_root(root)))
    }

    /// False if the snapshot's base is all that the transaction sees.
    pub fn has_overlay(&self) -> bool {
        let memtables = self.snapshot.as_ref().map_or(&[][..], |s| &s.memtables);
        !self.writes.is_empty() || memtables.iter().any(|(_, m)| !m.is_empty())
    }

    /// Returns the entry of one key, if the overlay has one.
    pub fn get(&self, root: Root, key: &[u8]) -> Option<Entry<'_>> {
        let is_seen = |write: &&Write| {
            write.kind() != WriteKind::Tombstone || !fault::is_planted("deletes.unseen")
        };
        if let Some(write) = self.writes.get(root, key).filter(is_seen) {
            // The caller has the key already, so it is not returned.
            return Some(Entry { key: &[], ..own(write) });
        }
        let snapshot = self.snapshot.as_ref()?;
        snapshot.memtables.iter().filter(|(_, m)| m.may_hold_root(root)).find_map(|(_, m)| {
            m.get(root, key, snapshot.ts).map(|n| Entry {
                key: &[],
                rec: n.rec(),
                tombstone: n.kind() == EntryKind::Tombstone,
            })
        })
    }

    /// Returns how many entries are not in the snapshot's base, and their bytes: everything
    /// committed by now, and own writes. Never too few.
    pub fn unmerged(&self) -> (u64, u64) {
        let own = (self.writes.len() as u64, self.writes.frame_bytes() as u64);
        let Some(snapshot) = &self.snapshot else { return own };
        self.db.generations.memtables_that_can_be_mapped(snapshot.base_generation).iter().fold(
            own,
            |(entries, bytes), (_, m)| {
                (entries + u64::from(m.node_count()), bytes + u64::from(m.node_bytes()))
            },
        )
    }

    /// Number of sources: the write set and the memtables.
    fn sources(&self) -> usize {
        1 + self.snapshot.as_ref().map_or(0, |s| s.memtables.len())
    }

    /// Returns the entry of source `i` at `seek`: 0 is the write set, the others are memtables,
    /// newest first.
    fn source_seek(&self, i: usize, root: Root, seek: Seek<'_>) -> Option<Found<'_>> {
        if i == 0 {
            return self.writes.seek_place(root, seek).map(found_own);
        }
        let snapshot = self.snapshot.as_ref()?;
        let (_, memtable) = snapshot.memtables.get(i - 1)?;
        if !memtable.may_hold_root(root) {
            return None;
        }
        let node = match seek {
            Seek::Last => snapshot.last_node(i - 1, root),
            _ => memtable.seek(root, seek, snapshot.ts),
        };
        node.map(|n| found(&n))
    }

    fn source_memtable(&self, i: usize) -> Option<(&Memtable, SnapshotTs)> {
        let snapshot = self.snapshot.as_ref()?;
        snapshot.memtables.get(i.checked_sub(1)?).map(|(_, m)| (m, snapshot.ts))
    }
}

/// An entry, and the head that points to it.
struct Found<'a> {
    entry: Entry<'a>,
    head: Head,
}

#[inline]
fn found<'a>(n: &Node<'a>) -> Found<'a> {
    let (key, rec) = n.key_and_rec();
    Found {
        entry: Entry { key, rec, tombstone: n.kind() == EntryKind::Tombstone },
        head: Head::Node(n.offset()),
    }
}

#[inline]
fn found_own((place, write): (OwnPlace, &Write)) -> Found<'_> {
    Found { entry: own(write), head: Head::Own(place) }
}

#[inline]
fn own(write: &Write) -> Entry<'_> {
    Entry { key: write.key(), rec: write.rec(), tombstone: write.kind() == WriteKind::Tombstone }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The next candidate of one source.
#[derive(Debug, Clone, Copy)]
enum Head {
    /// Not known: seek from the current key.
    Unknown,
    /// This source has nothing further in this direction.
    End,
    /// A memtable node beyond the current key, or at it.
    Node(u32),
    /// Likewise, an own write.
    Own(OwnPlace),
}

/// What is remembered of one source between two steps in one direction.
#[derive(Debug)]
struct Source {
    head: Head,
    /// In a backward walk, the nodes before the head, ascending. Memtables have no backward links:
    /// these nodes are found several at a time.
    before: Vec<u32>,
}

/// An ordered walk over the overlay of one root.
///
/// The position is a key. So the walk sees the transaction's own writes before and after it exactly
/// as a walk over an ordered map would (TXN-1). Candidates are remembered between steps in one
/// direction: those of memtables because they never change for a snapshot, that of the write set
/// until the version of the root changes.
pub struct OverlayIter {
    root: Root,
    key: Vec<u8>,
    /// The key from which a step starts; kept for its memory.
    from: Vec<u8>,
    positioned: bool,
    direction: Direction,
    sources: Vec<Source>,
    /// The source of the current entry: its head points to that entry.
    current: usize,
    /// The other sources have nothing further.
    alone: bool,
    view: u32,
    /// The version of the root for which the head of the write set is valid.
    own_version: u64,
    run: Run,
    /// There was no memory for the key of the entry to be returned.
    lacks_memory: bool,
}

/// This many tombstones outside known gaps make a new gap: recording a gap costs as much as passing
/// some tombstones.
const UNKNOWN_MIN: u32 = 4;

/// A run of tombstones that a walk passes, for the gaps (gaps/).
#[derive(Default)]
struct Run {
    /// How often the walk has reported its position.
    calls: u32,
    /// How often that position was in no known gap.
    unknown: u32,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Run {
    /// Records the position; false if there is no memory for it.
    fn note(&mut self, key: &[u8]) -> bool {
        let end = if self.calls == 0 { &mut self.first } else { &mut self.last };
        memory::replace(end, key).is_ok()
    }
}

impl OverlayIter {
    /// Returns a walk over `root`, not positioned yet.
    pub fn new(root: Root) -> OverlayIter {
        OverlayIter {
            root,
            key: Vec::new(),
            from: Vec::new(),
            positioned: false,
            direction: Direction::Forward,
            sources: Vec::new(),
            current: 0,
            alone: false,
            view: 0,
            own_version: 0,
            run: Run::default(),
            lacks_memory: false,
        }
    }

    /// Makes it a new walk over `root`, with the memory of this one.
    pub fn begin_again(&mut self, root: Root) {
        self.root = root;
        self.positioned = false;
    }

    /// Returns whether a move since the last call failed for lack of memory. That move found
    /// nothing, and the walk is where it was.
    pub fn take_lack_of_memory(&mut self) -> bool {
        std::mem::take(&mut self.lacks_memory)
    }

    /// Moves to the first (or last) entry that `seek` asks for.
    pub fn seek<'c>(&mut self, conn: &'c Conn, seek: Seek<'_>) -> Option<Entry<'c>> {
        self.direction = match seek {
            Seek::First | Seek::Ge(_) | Seek::Gt(_) | Seek::PrefixGt(_) => Direction::Forward,
            Seek::Last | Seek::Le(_) | Seek::Lt(_) | Seek::PrefixLe(_) => Direction::Backward,
        };
        self.forget(conn);
        self.pick(conn, seek)
    }

    /// Moves to the entry after the current one.
    pub fn next<'c>(&mut self, conn: &'c Conn) -> Option<Entry<'c>> {
        self.step(conn, Direction::Forward)
    }

    /// Moves to the entry before the current one.
    pub fn prev<'c>(&mut self, conn: &'c Conn) -> Option<Entry<'c>> {
        self.step(conn, Direction::Backward)
    }

    /// Skips tombstones, in a walk that is on one and has met no row since the call with `first`.
    /// Goes on to the last tombstone in this direction before which no row is known to be; None if
    /// that is this one.
    pub fn skip<'c>(&mut self, conn: &'c Conn, forward: bool, first: bool) -> Option<Entry<'c>> {
        if first {
            (self.run.calls, self.run.unknown) = (0, 0);
        }
        if !self.run.note(&self.key) {
            // No gap is known then: the walk goes on step by step.
            (self.run.calls, self.run.unknown) = (0, 0);
            return None;
        }
        self.run.calls += 1;
        self.run.unknown += 1;
        let end = conn.end_of_known_gap(self.root, &self.key, forward)?;
        let here = std::mem::take(&mut self.key);
        let to = if forward { Seek::Lt(end.bytes()) } else { Seek::Ge(end.bytes()) };
        let entry = self.seek(conn, to);
        let farther = entry.filter(|e| e.tombstone && (e.key > &*here) == forward && e.key != here);
        match &farther {
            Some(e) => {
                self.run.unknown -= 1;
                if !self.run.note(e.key) {
                    (self.run.calls, self.run.unknown) = (0, 0);
                }
            }
            None => {
                self.key = here;
                self.positioned = true;
            }
        }
        farther
    }

    /// Ends the run. What the walk has passed becomes a gap if it is several known gaps, or enough
    /// tombstones in none.
    pub fn skipped(&mut self, conn: &Conn) {
        let known = self.run.calls - self.run.unknown;
        if known < 2 && self.run.unknown < UNKNOWN_MIN {
            return;
        }
        let (a, b) = (&self.run.first, &self.run.last);
        conn.note_gap(self.root, a.min(b), a.max(b));
    }

    fn step<'c>(&mut self, conn: &'c Conn, direction: Direction) -> Option<Entry<'c>> {
        if !self.positioned {
            return None;
        }
        if self.direction != direction
            || self.view != conn.view()
            || self.sources.len() != conn.sources()
        {
            self.direction = direction;
            self.forget(conn);
        }
        self.follow_writes(conn);
        if let Some(entry) = self.step_alone(conn) {
            return entry;
        }
        std::mem::swap(&mut self.key, &mut self.from);
        let from = std::mem::take(&mut self.from);
        let seek = if direction == Direction::Forward { Seek::Gt(&from) } else { Seek::Lt(&from) };
        let entry = self.pick(conn, seek);
        self.from = from;
        if entry.is_none() {
            // The position stays at the last entry: a write after the end may appear later.
            std::mem::swap(&mut self.key, &mut self.from);
            self.positioned = true;
        }
        entry
    }

    /// Steps if only the source of the current entry has more, as in most walks: there is nothing
    /// to choose. None if another source may have more.
    fn step_alone<'c>(&mut self, conn: &'c Conn) -> Option<Option<Entry<'c>>> {
        let current = self.current;
        if !self.alone && !self.is_alone() {
            return None;
        }
        self.alone = true;
        let next = self.after_head(conn, current)?;
        if let Some(next) = &next
            && memory::replace(&mut self.key, next.entry.key).is_err()
        {
            self.lacks_memory = true;
            self.forget(conn);
            return Some(None);
        }
        self.sources[current].head = next.as_ref().map_or(Head::End, |f| f.head);
        Some(next.map(|f| f.entry))
    }

    fn is_alone(&self) -> bool {
        let current = self.current;
        let has_nothing_else = |(i, source): (usize, &Source)| match source.head {
            Head::End => i != current,
            Head::Node(_) | Head::Own(_) => i == current,
            Head::Unknown => false,
        };
        current < self.sources.len() && self.sources.iter().enumerate().all(has_nothing_else)
    }

    /// Returns what a source has beyond its head; None if its head is on no entry.
    #[inline]
    fn after_head<'c>(&mut self, conn: &'c Conn, i: usize) -> Option<Option<Found<'c>>> {
        let forward = self.direction == Direction::Forward;
        match self.sources[i].head {
            Head::Node(offset) => {
                let (memtable, at) = conn.source_memtable(i)?;
                let node = memtable.node_at(offset);
                Some(match forward {
                    true => memtable.next_key(&node, at).map(|n| found(&n)),
                    false => self.sources[i].step_back(memtable, &node, at),
                })
            }
            Head::Own(place) => Some(conn.writes.step(self.root, place, forward).map(found_own)),
            Head::End | Head::Unknown => None,
        }
    }

    fn forget(&mut self, conn: &Conn) {
        self.view = conn.view();
        self.own_version = conn.writes.root_version(self.root);
        self.current = usize::MAX;
        self.alone = false;
        for source in &mut self.sources {
            source.head = Head::Unknown;
            source.before.clear();
        }
        self.sources
            .resize_with(conn.sources(), || Source { head: Head::Unknown, before: Vec::new() });
    }

    /// Returns the best candidate of all sources at `seek`; the newest source wins a tie.
    fn pick<'c>(&mut self, conn: &'c Conn, seek: Seek<'_>) -> Option<Entry<'c>> {
        let mut best: Option<(usize, Entry<'c>)> = None;
        self.alone = false;
        for i in 0..self.sources.len() {
            let Some(candidate) = self.candidate(conn, i, seek) else { continue };
            let wins = best.as_ref().is_none_or(|(_, b)| match self.direction {
                Direction::Forward => candidate.key < b.key,
                Direction::Backward => candidate.key > b.key,
            });
            if wins {
                best = Some((i, candidate));
            }
        }
        self.positioned = best.is_some();
        let (current, entry) = best?;
        if memory::replace(&mut self.key, entry.key).is_err() {
            self.lacks_memory = true;
            self.positioned = false;
            // The heads are past the entry that was not returned.
            self.forget(conn);
            return None;
        }
        self.current = current;
        Some(entry)
    }

    fn candidate<'c>(&mut self, conn: &'c Conn, i: usize, seek: Seek<'_>) -> Option<Entry<'c>> {
        let next = match self.sources[i].head {
            Head::End => return None,
            Head::Node(offset) => {
                let node = conn.source_memtable(i)?.0.node_at(offset);
                if !self.is_passed(i, || node.key(), seek) {
                    return Some(found(&node).entry);
                }
                self.after_head(conn, i)?
            }
            Head::Own(place) => {
                let write = conn.writes.at(self.root, place)?;
                if !self.is_passed(i, || write.key(), seek) {
                    return Some(own(write));
                }
                self.after_head(conn, i)?
            }
            Head::Unknown => conn.source_seek(i, self.root, seek),
        };
        self.sources[i].head = next.as_ref().map_or(Head::End, |f| f.head);
        next.map(|f| f.entry)
    }

    /// True if the walk is past the head of a source: it has passed the current entry, and what
    /// that entry hides in older sources.
    #[inline]
    fn is_passed<'k>(&self, i: usize, key: impl Fn() -> &'k [u8], seek: Seek<'_>) -> bool {
        i == self.current
            || match seek {
                Seek::Gt(from) => key() <= from,
                Seek::Lt(from) => key() >= from,
                _ => true,
            }
    }

    /// Forgets the head of the write set if own writes have come or gone.
    #[inline]
    fn follow_writes(&mut self, conn: &Conn) {
        let version = conn.writes.root_version(self.root);
        if self.own_version != version {
            self.own_version = version;
            self.sources[0].head = Head::Unknown;
            self.alone = false;
            if self.current == 0 {
                // The current entry may be a write that is gone. What the memtables have at its key
                // is passed by comparing.
                self.current = usize::MAX;
            }
        }
    }
}

impl Source {
    /// Returns the entry before `node`.
    fn step_back<'c>(
        &mut self,
        memtable: &'c Memtable,
        node: &Node<'c>,
        at: SnapshotTs,
    ) -> Option<Found<'c>> {
        if self.before.is_empty() {
            memtable.keys_before(node, at, &mut self.before);
        }
        self.before.pop().map(|offset| found(&memtable.node_at(offset)))
    }
}

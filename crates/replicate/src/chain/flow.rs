//! What may follow what: the order of items in a chain.
//!
//! - CHAIN-1 An item enters the chain behind everything it relies on: frames behind the frames and
//!   PAGES before them, a merge behind the frames of its generations.
//!
//! The writer checks each item that it ships, and readers each that they apply, by the same rules.

use crate::error::{Error, Result};
use crate::ids::{CommitTs, Generation, Lsn, Position, RecordNumber};
use crate::record::{Break, Frames, Item, Merge, PageSet};

/// Where a stream and its base are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Behind the last item.
    pub position: Position,
    /// Newest generation of which there were frames, 0 if none is known.
    newest: Generation,
    /// True behind a break: the next frames may begin anywhere.
    is_loose: bool,
    segment_bytes: u32,
}

impl Flow {
    /// Begins behind a position, in streams with segments of this size.
    pub fn new(position: Position, segment_bytes: u32) -> Flow {
        Flow { position, newest: Generation(0), is_loose: false, segment_bytes }
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// Newest generation of which there were frames, 0 if none is known.
    pub fn newest(&self) -> Generation {
        self.newest
    }

    fn next_segment(&self) -> Lsn {
        Lsn(self.position.stream.0.next_multiple_of(u64::from(self.segment_bytes)))
    }

    /// Moves behind an item of record `number`. An OPEN and a SNAPSHOT move nothing here.
    ///
    /// # Errors
    /// [`Error::Disorder`] (CHAIN-1).
    pub fn take(&mut self, number: RecordNumber, item: &Item) -> Result<()> {
        let why = match item {
            Item::Open(_) | Item::Snapshot(_) => None,
            Item::Frames(frames) => self.take_frames(frames),
            Item::Merge(merge) => self.take_merge(merge),
            Item::Pages(pages) => self.take_pages(pages),
            Item::Break(gap) => self.take_break(gap),
        };
        why.map_or(Ok(()), |why| Err(Error::Disorder { number, why }))
    }

    fn take_frames(&mut self, frames: &Frames) -> Option<String> {
        let Frames { generation, from, first_commit, .. } = *frames;
        let position = &self.position;
        let goes_on = from == position.stream && generation >= self.newest;
        // A generation begins a segment, also where the one before ended with it.
        let begins = from == self.next_segment() && generation > self.newest;
        let jumps = self.is_loose && from >= position.stream;
        if !(goes_on || begins || jumps) {
            let (stream, newest) = (position.stream, self.newest);
            return Some(format!(
                "frames of generation {generation} from {from}, behind those of {newest} that end \
                 at {stream}"
            ));
        }
        if generation <= position.base {
            let base = position.base;
            return Some(format!("frames of generation {generation}, which the base has ({base})"));
        }
        if first_commit <= position.commit {
            let last = position.commit;
            return Some(format!("commit {first_commit} behind commit {last}"));
        }
        self.newest = generation;
        self.is_loose = false;
        self.position.stream = frames.end();
        self.position.commit = frames.last_commit;
        let crc = frames.bytes.last_chunk().copied().unwrap_or_default();
        self.position.crc = u32::from_le_bytes(crc);
        None
    }

    fn take_merge(&mut self, merge: &Merge) -> Option<String> {
        let base = self.position.base;
        if merge.before != base {
            let (before, through) = (merge.before, merge.through);
            return Some(format!("a merge from {before} through {through} over a base of {base}"));
        }
        self.position.base = merge.through;
        None
    }

    fn take_pages(&mut self, pages: &PageSet) -> Option<String> {
        let (base, newest) = (self.position.base, self.newest);
        if pages.before != base || newest > pages.through {
            let (before, through) = (pages.before, pages.through);
            return Some(format!(
                "pages from {before} through {through} over a base of {base}, with frames of \
                 {newest}"
            ));
        }
        self.position.base = pages.through;
        None
    }

    fn take_break(&mut self, gap: &Break) -> Option<String> {
        if gap.stream < self.position.stream {
            let stream = self.position.stream;
            return Some(format!("a break to {} back from {stream}", gap.stream));
        }
        self.position.stream = gap.stream;
        self.position.base = gap.base;
        self.position.commit = self.position.commit.max(gap.commit);
        self.position.crc = 0;
        self.newest = Generation(0);
        self.is_loose = true;
        None
    }

    /// Moves to another session over the same base.
    pub fn renew(&mut self, position: Position) {
        *self = Flow::new(Position { commit: CommitTs(0), crc: 0, ..position }, self.segment_bytes);
    }

    /// Frames may begin anywhere at or behind the end of the stream, once.
    pub fn loosen(&mut self) {
        self.is_loose = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const SEGMENT: u32 = 64;

    fn frames(generation: u32, from: u64, bytes: usize, commits: (u64, u64)) -> Item {
        Item::Frames(Frames {
            generation: Generation(generation),
            from: Lsn(from),
            first_commit: CommitTs(commits.0),
            last_commit: CommitTs(commits.1),
            bytes: Bytes::from(vec![0; bytes]),
        })
    }

    fn merge(before: u32, through: u32) -> Item {
        let (before, through) = (Generation(before), Generation(through));
        Item::Merge(Merge { before, through, page_count: 1, sum: 0 })
    }

    fn flow() -> Flow {
        let position = Position { base: Generation(2), stream: Lsn(128), ..Position::default() };
        let mut flow = Flow::new(position, SEGMENT);
        flow.take(RecordNumber(1), &frames(3, 128, 40, (1, 2))).expect("the first generation");
        flow
    }

    // holds CHAIN-1
    #[test]
    fn what_relies_on_something_that_is_not_there_is_refused() {
        for bad in [
            frames(3, 176, 8, (3, 3)),
            frames(3, 160, 8, (3, 3)),
            frames(3, 192, 8, (3, 3)),
            frames(4, 256, 8, (3, 3)),
            frames(3, 168, 8, (2, 3)),
            merge(1, 3),
            merge(3, 4),
        ] {
            let refused = flow().take(RecordNumber(2), &bad).expect_err("it relies on more");
            assert!(matches!(refused, Error::Disorder { .. }), "{bad:?}: {refused}");
        }
        let mut behind = flow();
        behind.take(RecordNumber(2), &merge(2, 3)).expect("its frames are there");
        let late = behind.take(RecordNumber(2), &frames(3, 168, 8, (3, 3)));
        assert!(late.is_err(), "the base has that generation");
    }

    #[test]
    fn what_follows_is_taken() {
        for (good, stream, base) in [
            (frames(3, 168, 8, (3, 3)), 176, 2),
            (frames(4, 192, 8, (3, 3)), 200, 2),
            (frames(5, 192, 8, (4, 9)), 200, 2),
            (merge(2, 3), 168, 3),
        ] {
            let mut flow = flow();
            flow.take(RecordNumber(2), &good).unwrap_or_else(|e| panic!("{good:?}: {e}"));
            assert_eq!((flow.position.stream.0, flow.position.base.0), (stream, base));
        }
    }

    #[test]
    fn behind_a_break_frames_begin_where_they_are() {
        let mut flow = flow();
        let (base, incomplete) = (Generation(3), Generation(4));
        let commit = CommitTs(5);
        let gap = Break { stream: Lsn(500), base, incomplete, commit, why: String::new() };
        flow.take(RecordNumber(2), &Item::Break(gap)).expect("a break");
        assert_eq!(flow.position.commit, commit);
        assert!(flow.take(RecordNumber(2), &frames(4, 504, 8, (5, 7))).is_err(), "the base has it");
        flow.take(RecordNumber(2), &frames(4, 504, 8, (7, 7))).expect("in the midst of one");
        assert!(flow.take(RecordNumber(2), &frames(4, 600, 8, (8, 8))).is_err(), "once");
    }
}

//! Which record has what, as far as a snapshot needs to know.

use crate::ids::{CommitTs, Generation, RecordNumber};
use crate::record::Item;

/// What this epoch's records have.
#[derive(Clone, Debug, Default)]
pub struct Tracks {
    /// The first record with frames that the base lacked when the epoch began, if there was one.
    inherited: Option<RecordNumber>,
    /// Generations of which there were frames, each with the first record that has some.
    frames: Vec<(Generation, RecordNumber)>,
    /// Generations of the base, each with the record that completes it, and when that was written.
    bases: Vec<(Generation, RecordNumber, u64)>,
    /// Frames through this generation are incomplete.
    incomplete: Generation,
    /// True behind a break whose base lacks commits of the log, until the chain has those.
    is_behind: bool,
    /// The record that has brought them, and when that was written.
    caught_up: Option<(RecordNumber, u64)>,
}

impl Tracks {
    /// Begins with the record that opens the epoch over a base.
    pub fn new(inherited: Option<RecordNumber>) -> Tracks {
        Tracks { inherited, ..Tracks::default() }
    }

    /// The base lacks commits that the log has.
    pub fn begin_behind(&mut self) {
        self.is_behind = true;
    }

    /// The chain has what the log had when it was broken off, and more.
    pub fn catch_up(&mut self, number: RecordNumber, written_ms: u64) {
        if std::mem::take(&mut self.is_behind) {
            self.caught_up = Some((number, written_ms));
        }
    }

    /// The base of record `number` is complete through a generation.
    pub fn note_base(&mut self, base: Generation, number: RecordNumber, written_ms: u64) {
        if self.bases.last().is_none_or(|(last, ..)| *last != base) {
            self.bases.push((base, number, written_ms));
        }
    }

    /// Notes the items of record `number`.
    pub fn note(&mut self, items: &[Item], number: RecordNumber, written_ms: u64) {
        for item in items {
            match item {
                Item::Frames(frames) => {
                    if self.frames.last().is_none_or(|(last, _)| *last != frames.generation) {
                        self.frames.push((frames.generation, number));
                    }
                }
                Item::Merge(merge) => self.note_base(merge.through, number, written_ms),
                Item::Pages(pages) => self.note_base(pages.through, number, written_ms),
                Item::Break(gap) => {
                    let is_behind = gap.commit == CommitTs(0);
                    *self = Tracks { incomplete: gap.incomplete, is_behind, ..Tracks::default() };
                    self.note_base(gap.base, number, written_ms);
                }
                Item::Open(_) | Item::Snapshot(_) => {}
            }
        }
    }

    /// The generation through which a base has to be complete to be of use.
    pub fn least(&self) -> Generation {
        let base = self.bases.first().map_or(Generation(0), |(base, ..)| *base);
        base.max(self.incomplete)
    }

    /// The first record with frames above a generation that the base had, or has.
    pub fn first_above(&self, generation: Generation) -> Option<RecordNumber> {
        let is_older = self.frames.first().is_none_or(|(first, _)| generation < *first);
        if let Some(inherited) = self.inherited
            && is_older
        {
            return Some(inherited);
        }
        self.frames.iter().find(|(of, _)| *of > generation).map(|(_, number)| *number)
    }

    /// The first record with what comes behind a base of this generation: frames, or pages in their place.
    pub fn first_behind(&self, generation: Generation) -> Option<RecordNumber> {
        let next = self.bases.iter().find(|(base, ..)| *base > generation);
        self.first_above(generation).into_iter().chain(next.map(|(_, number, _)| *number)).min()
    }

    /// The record that completes a base of this generation, and when that was written; `None` if
    /// none does yet. Behind a break it is the one that has caught up, at least: before that the chain has less than the
    /// database had when it was written.
    pub fn completed(&self, generation: Generation) -> Option<(RecordNumber, u64)> {
        let is_it = |(base, ..): &&(Generation, RecordNumber, u64)| *base >= generation;
        let found = self.bases.iter().find(is_it).filter(|_| !self.is_behind);
        found.map(|(_, number, written_ms)| (*number, *written_ms)).max(found.and(self.caught_up))
    }

    /// Forgets what no snapshot from this generation on needs.
    pub fn forget_below(&mut self, generation: Generation) {
        if self.inherited.is_some() && self.frames.first().is_some_and(|(of, _)| *of <= generation)
        {
            self.inherited = None;
        }
        let needed = self.frames.iter().position(|(of, _)| *of >= generation);
        self.frames.drain(..needed.unwrap_or(self.frames.len()).saturating_sub(1));
        let needed = self.bases.iter().position(|(base, ..)| *base >= generation);
        self.bases
            .drain(..needed.unwrap_or(self.bases.len()).min(self.bases.len().saturating_sub(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Lsn;
    use crate::record::{Frames, Merge};

    fn frames(generation: u32) -> Item {
        Item::Frames(Frames {
            generation: Generation(generation),
            from: Lsn(0),
            first_commit: CommitTs(1),
            last_commit: CommitTs(1),
            bytes: vec![0].into(),
        })
    }

    fn merge(before: u32, through: u32) -> Item {
        let (before, through) = (Generation(before), Generation(through));
        Item::Merge(Merge { before, through, page_count: 1, sum: 0 })
    }

    fn tracks(inherited: Option<u64>) -> Tracks {
        let mut tracks = Tracks::new(inherited.map(RecordNumber));
        tracks.note_base(Generation(2), RecordNumber(10), 10);
        tracks.note(&[frames(3)], RecordNumber(11), 11);
        tracks.note(&[frames(3), frames(4), merge(2, 3)], RecordNumber(12), 12);
        tracks.note(&[merge(3, 4)], RecordNumber(13), 13);
        tracks
    }

    fn first(tracks: &Tracks, generation: u32) -> Option<u64> {
        tracks.first_above(Generation(generation)).map(|number| number.0)
    }

    #[test]
    fn the_first_record_above_a_generation_has_its_successors_first_frames() {
        let tracks = tracks(None);
        assert_eq!([2, 3, 4].map(|g| first(&tracks, g)), [Some(11), Some(12), None]);
        assert_eq!(tracks.completed(Generation(3)), Some((RecordNumber(12), 12)));
        assert_eq!(tracks.completed(Generation(4)), Some((RecordNumber(13), 13)));
        assert_eq!(tracks.completed(Generation(5)), None);
    }

    #[test]
    fn frames_of_an_earlier_epoch_count_until_a_whole_generation_came() {
        let tracks = tracks(Some(7));
        assert_eq!([2, 3, 4].map(|g| first(&tracks, g)), [Some(7), Some(12), None]);
    }

    #[test]
    fn pages_may_be_the_first_that_comes_behind_a_base() {
        let mut tracks = tracks(None);
        let behind = |tracks: &Tracks, g| tracks.first_behind(Generation(g)).map(|number| number.0);
        assert_eq!([2, 3, 4].map(|g| behind(&tracks, g)), [Some(11), Some(12), None]);
        // Of a merge whose frames are not in the chain.
        tracks.note_base(Generation(5), RecordNumber(13), 13);
        tracks.note(&[frames(6)], RecordNumber(14), 14);
        assert_eq!((first(&tracks, 4), behind(&tracks, 4)), (Some(14), Some(13)));
    }

    #[test]
    fn what_is_forgotten_was_not_needed() {
        for inherited in [None, Some(7)] {
            for generation in 2..5 {
                let whole = tracks(inherited);
                let mut less = whole.clone();
                less.forget_below(Generation(generation));
                for g in generation..6 {
                    assert_eq!(first(&less, g), first(&whole, g), "{inherited:?} {generation} {g}");
                    let g = Generation(g);
                    assert_eq!(less.first_behind(g), whole.first_behind(g), "{generation} {g}");
                    assert_eq!(less.completed(g), whole.completed(g), "{generation} {g}");
                }
            }
        }
    }
}

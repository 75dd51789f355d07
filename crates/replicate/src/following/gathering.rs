//! Frames of records, gathered for one commit of the database (TRAIL-1).

use bytes::Bytes;
use plait_engine::txn::NODE_OVERHEAD_BYTES;

use super::mark::Mark;
use super::{By, Following, target};
use crate::apply::frame_at;
use crate::chain::{Flow, Found, Link};
use crate::error::{Error, Result};
use crate::ids::{CommitTs, Generation, Hash, Lsn, Position, RecordNumber};
use crate::record::{Follows, Frames, Item, Record};

/// What one commit weighs, at most, unless one of the primary's weighs more: bytes of its frames, and for each
/// row what a memtable adds. A transaction of 7 MiB fits into one.
const COMMIT_BYTES: usize = 4 << 20;

/// Frames that are gathered for one commit, and where they lead to.
pub(super) struct Batch {
    pub(super) mark: Mark,
    /// What they weigh ([`COMMIT_BYTES`]).
    pub(super) weight: usize,
    /// What comes next does not follow.
    pub(super) ends: Option<(Error, By)>,
    /// More is known to be there.
    pub(super) is_full: bool,
}

impl Following {
    /// Gathers frames for one commit, and hands them to the database.
    pub(super) async fn gather(&mut self, from: &Mark) -> Result<Batch> {
        let until = from.until.unwrap_or(Lsn(0));
        let mark = Mark { until: None, ..from.clone() };
        let mut batch = Batch { mark, weight: 0, ends: None, is_full: false };
        loop {
            let number = batch.mark.record.next();
            let mut link = Link {
                chain: Some(from.chain),
                number: batch.mark.record,
                hash: Some(batch.mark.hash),
            };
            // Where later ones were listed, or it was read before, this one was removed, or is in a pack now.
            let is_sure = batch.mark.stream < until
                || self.reader.listing().is_some_and(|listing| listing.highest() > number);
            let read = match self.reader.object(number, is_sure).await {
                Ok(Found::Nothing) => break,
                Ok(Found::Object(object)) => link.follow(&object).map(|record| (object, record)),
                Err(error) => Err(error),
            };
            let (object, record) = match read {
                // What is before it is taken first: it stands behind the mark then, or the store does not answer. One that does
                // not follow what is before it puts that in doubt as well.
                Err(error)
                    if (error.damaged().is_some() || matches!(error, Error::Store { .. }))
                        && !matches!(error, Error::Unlinked { .. })
                        && batch.mark.record > from.record
                        && batch.mark.stream >= until =>
                {
                    batch.is_full = true;
                    break;
                }
                read => read?,
            };
            let is_whole = self.gather_record(&record, until, &mut batch)?;
            if batch.ends.is_some() || !is_whole {
                break;
            }
            let header = &record.header;
            batch.mark.record = number;
            batch.mark.hash = Hash::of(&object);
            batch.mark.written_ms = header.written_ms;
            batch.mark.commit = batch.mark.commit.max(header.position.commit);
            if batch.weight >= COMMIT_BYTES && batch.mark.stream >= until {
                batch.is_full = true;
                break;
            }
        }
        Ok(batch)
    }

    /// Takes what fits of a record; false if that is not all of it.
    fn gather_record(&mut self, record: &Record, until: Lsn, batch: &mut Batch) -> Result<bool> {
        let number = record.header.number;
        let segment_bytes = record.header.segment_bytes;
        let ends = |why: &str| Some((Error::Disorder { number, why: why.to_owned() }, By::Begins));
        for item in &record.items {
            match item {
                Item::Open(open) if open.follows == Follows::Stream => {}
                Item::Open(_) | Item::Break(_) => {
                    batch.ends = ends("it begins anew there, and a snapshot is waited for");
                    return Ok(false);
                }
                Item::Pages(_) => {
                    batch.ends =
                        ends("it has pages of a transaction, and a snapshot is waited for");
                    return Ok(false);
                }
                Item::Merge(_) | Item::Snapshot(_) => {}
                Item::Frames(frames) => {
                    if !self.gather_frames((number, segment_bytes), frames, until, batch)? {
                        batch.is_full = true;
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn gather_frames(
        &mut self,
        (number, segment_bytes): (RecordNumber, u32),
        frames: &Frames,
        until: Lsn,
        batch: &mut Batch,
    ) -> Result<bool> {
        if frames.end() <= batch.mark.stream {
            return Ok(true);
        }
        let there = batch.mark.stream.0.saturating_sub(frames.from.0) as usize;
        let mut rest = frames.bytes.slice(there..);
        let mut from = Lsn(frames.from.0 + there as u64);
        while !rest.is_empty() {
            let damaged = || target(number, "its frames have no lengths");
            let fitting = fitting(&rest, from, until, batch.weight).ok_or_else(damaged)?;
            let Fitting { bytes: fits, weight, commits } = fitting;
            if fits == 0 {
                return Ok(false);
            }
            let taken = Frames {
                generation: frames.generation,
                from,
                first_commit: commits.0,
                last_commit: commits.1,
                bytes: rest.split_to(fits),
            };
            let flow = self.flow.get_or_insert_with(|| flow_behind(&batch.mark, segment_bytes));
            flow.take(number, &Item::Frames(taken.clone()))?;
            let Position { stream, commit, crc, .. } = flow.position;
            self.live()?.take(&taken).map_err(|why| target(number, why))?;
            batch.weight += weight;
            if batch.mark.first > batch.mark.commit {
                batch.mark.first = commits.0;
            }
            (batch.mark.stream, batch.mark.commit, batch.mark.crc) = (stream, commit, crc);
            from = stream;
        }
        Ok(true)
    }
}

/// Whole frames that fit into a commit.
struct Fitting {
    bytes: usize,
    weight: usize,
    /// The first and the last.
    commits: (CommitTs, CommitTs),
}

/// What fits into a commit that weighs so much already. All frames through `until` do.
fn fitting(frames: &Bytes, from: Lsn, until: Lsn, weight: usize) -> Option<Fitting> {
    let mut fits = Fitting { bytes: 0, weight: 0, commits: (CommitTs(0), CommitTs(0)) };
    while fits.bytes < frames.len() {
        let (length, rows, commit) = frame_at(&frames[fits.bytes..])?;
        let is_announced = Lsn(from.0 + (fits.bytes + length) as u64) <= until;
        let heavier = fits.weight + length + rows as usize * NODE_OVERHEAD_BYTES;
        if weight + heavier > COMMIT_BYTES && weight + fits.weight > 0 && !is_announced {
            break;
        }
        fits.commits = (if fits.bytes == 0 { commit } else { fits.commits.0 }, commit);
        (fits.bytes, fits.weight) = (fits.bytes + length, heavier);
    }
    Some(fits)
}

/// The order of frames behind a mark. Generations of merges are not known here.
fn flow_behind(mark: &Mark, segment_bytes: u32) -> Flow {
    let &Mark { salt, stream, commit, crc, .. } = mark;
    Flow::new(Position { salt, base: Generation(0), stream, commit, crc }, segment_bytes)
}

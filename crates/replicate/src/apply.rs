//! A chain applied to a database: from a snapshot on, record by record.
//!
//! - CHAIN-7 Base and stream are the primary's at that place of the chain, byte for byte but for the
//!   salt's place.
//!
//! Applying is repeated after a crash, from the record behind the last note. What the target has
//! already is left out: frames before the end of its stream, merges and pages through the
//! generation of its base.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::chain::{Flow, Link};
use crate::error::{Error, Result};
use crate::fault::{Fault, is_planted};
use crate::ids::{ChainId, CommitTs, Generation, Hash, Lsn, Position, RecordNumber};
use crate::names;
use crate::parts::{Lists, Of};
use crate::record::{
    Body, Follows, Frames, Header, Item, Merge, PageSet, Parts, Record, SnapshotRef,
};
use crate::target::{Applied, Birth, Target, TargetError};
use crate::world::World;

/// A snapshot and those that it changes, the oldest first.
pub type Lineage = Vec<(RecordNumber, SnapshotRef)>;

/// How far a snapshot that is being read has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of pages so far.
    pub done_bytes: u64,
    /// Of so many, about.
    pub all_bytes: u64,
    /// The last record that was applied.
    pub record: RecordNumber,
    /// The last one that may be.
    pub last_record: RecordNumber,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is applied.
    Done,
    /// It is applied through the commit that was asked for.
    Reached,
    /// It is a break: nothing leads on.
    Broken,
    /// A merge has another sum here.
    Differs,
}

/// Applies a chain to a database.
pub struct Applier {
    world: World,
    target: Box<dyn Target>,
    /// The last record.
    pub link: Link,
    flow: Flow,
    /// Records through this one have frames and merges that the snapshot has already.
    as_of: RecordNumber,
    /// Versions of the library of the snapshot's primary.
    library: String,
    /// The library here, if a merge of another one is applied all the same, as long as no pages
    /// follow.
    own_library: Option<String>,
    differs: bool,
}

impl Applier {
    /// Takes a target as it is; false if it has to begin with a snapshot.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn resume(world: &World, target: Box<dyn Target>) -> Result<(Applier, bool)> {
        let flow = Flow::new(Position::default(), 1);
        let world = world.clone();
        let mut applier = Applier {
            world,
            target,
            link: Link::START,
            flow,
            as_of: RecordNumber::NONE,
            library: String::new(),
            own_library: None,
            differs: false,
        };
        let has_base = applier.resume_again()?;
        Ok((applier, has_base))
    }

    /// Asks the target anew what it has, after a failure of it; false as of [`Applier::resume`].
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn resume_again(&mut self) -> Result<bool> {
        let state = self.target.state().map_err(|why| failed(self.link.number, why))?;
        let Some(Applied { chain, number, hash, position, segment_bytes, as_of, .. }) = state
        else {
            return Ok(false);
        };
        self.link = Link { chain: Some(chain), number, hash };
        self.flow = Flow::new(position, segment_bytes);
        self.as_of = as_of;
        Ok(true)
    }

    /// Where the primary's library is another than this one, a merge may have another sum: other
    /// pages of the same rows. That is enough where nothing but rows follows.
    pub fn accept_merges_of_others(&mut self, own_library: &str) {
        self.own_library = Some(own_library.to_owned());
    }

    /// Versions of the library whose records are being applied.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// True if there was such a merge.
    pub fn differs(&self) -> bool {
        self.differs
    }

    /// Where base and stream are.
    pub fn position(&self) -> Position {
        self.flow.position
    }

    /// The target, when all is applied.
    pub fn into_target(self) -> Box<dyn Target> {
        self.target
    }

    /// Begins anew with a snapshot.
    ///
    /// # Errors
    /// [`Error::Part`], [`Error::Target`], and the store's.
    pub async fn begin(
        &mut self,
        chain: ChainId,
        about: &About,
        lineage: &Lineage,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let Some((number, newest)) = lineage.last() else {
            return Err(Error::Moment("there is no snapshot to begin with".to_owned()));
        };
        let birth = Birth {
            snapshot: newest.clone(),
            chain,
            library: about.library.clone(),
            segment_bytes: about.segment_bytes,
        };
        self.target.begin(&birth).map_err(|why| failed(*number, why))?;
        let bytes =
            |parts: &Parts| parts.each.iter().map(|part| u64::from(part.raw_bytes)).sum::<u64>();
        let all_bytes = lineage.iter().map(|(_, snapshot)| bytes(&snapshot.parts)).sum();
        let mut so_far = Progress { all_bytes, ..Progress::default() };
        for (number, snapshot) in lineage {
            let &SnapshotRef { page_bytes, page_count, .. } = snapshot;
            let of = Of { number: *number, page_bytes, page_count };
            let mut lists = Lists::new(&self.world, of, &snapshot.parts);
            while let Some(list) = lists.next().await? {
                self.target.base_pages(&list).map_err(|why| failed(*number, why))?;
                so_far.done_bytes += list.len() as u64;
                progress(so_far);
            }
        }
        let position = Position {
            salt: newest.salt,
            base: newest.generation,
            stream: newest.stream,
            commit: CommitTs(0),
            crc: 0,
        };
        let applied = Applied {
            chain,
            number: newest.first.before(),
            hash: None,
            written_ms: newest.taken_ms,
            position,
            segment_bytes: about.segment_bytes,
            as_of: newest.as_of,
        };
        self.target.complete(&applied).map_err(|why| failed(*number, why))?;
        self.link = Link::before(Some(chain), newest.first);
        self.flow = Flow::new(position, about.segment_bytes);
        self.as_of = newest.as_of;
        self.library.clone_from(&about.library);
        self.differs = false;
        Ok(())
    }

    /// Applies the object of the next record, of its frames those through `last` only.
    ///
    /// # Errors
    /// [`Error::Record`], [`Error::Unlinked`], [`Error::Disorder`], [`Error::Part`],
    /// [`Error::Target`]; then the record may be applied in part, and is applied again.
    pub async fn apply(&mut self, bytes: &Bytes, last: Option<CommitTs>) -> Result<Step> {
        let mut link = self.link;
        if is_planted(Fault::HashUnread) {
            link.hash = None;
        }
        let record = link.follow(bytes)?;
        let Record { header, items } = &record;
        // What a snapshot has over a break needs nothing from before it.
        if record.is_break() && header.number > self.as_of {
            return Ok(Step::Broken);
        }
        let mut step = Step::Done;
        for item in items {
            step = self.apply_item(header, item, last).await?;
            if step != Step::Done {
                return Ok(step);
            }
        }
        self.check_position(header)?;
        self.link = link;
        let applied = Applied {
            chain: header.chain,
            number: header.number,
            hash: Some(Hash::of(bytes)),
            written_ms: header.written_ms,
            position: self.flow.position,
            segment_bytes: header.segment_bytes,
            as_of: self.as_of,
        };
        self.target.note(&applied).map_err(|why| failed(header.number, why))?;
        Ok(step)
    }

    async fn apply_item(
        &mut self,
        header: &Header,
        item: &Item,
        last: Option<CommitTs>,
    ) -> Result<Step> {
        let number = header.number;
        match item {
            Item::Open(open) => {
                self.library.clone_from(&open.library);
                let is_there = self.flow.position.salt == header.position.salt
                    || is_planted(Fault::SaltUnread);
                if open.follows == Follows::Base && !is_there {
                    self.renew(header)?;
                }
            }
            Item::Frames(frames) => {
                if !self.has_frames(frames) {
                    return self.apply_frames(number, frames, last);
                }
            }
            Item::Merge(merge) => {
                if merge.through > self.flow.position.base {
                    return self.apply_merge(number, merge);
                }
            }
            Item::Pages(pages) => {
                if last.is_some_and(|last| self.flow.position.commit >= last) {
                    return Ok(Step::Reached);
                }
                if pages.through > self.flow.position.base {
                    self.apply_pages(number, pages).await?;
                }
            }
            Item::Snapshot(_) | Item::Break(_) => {}
        }
        Ok(Step::Done)
    }

    /// True if the base has these frames, or the stream does.
    fn has_frames(&self, frames: &Frames) -> bool {
        let position = &self.flow.position;
        frames.generation <= position.base || frames.end() <= position.stream
    }

    fn renew(&mut self, header: &Header) -> Result<()> {
        let position = Position {
            base: self.flow.position.base,
            stream: opened_at(header),
            salt: header.position.salt,
            commit: CommitTs(0),
            crc: 0,
        };
        self.target.renew(&position).map_err(|why| failed(header.number, why))?;
        self.flow.renew(position);
        Ok(())
    }

    fn apply_frames(
        &mut self,
        number: RecordNumber,
        frames: &Frames,
        last: Option<CommitTs>,
    ) -> Result<Step> {
        let stream = self.flow.position.stream;
        let is_part_there = frames.from < stream;
        let mut rest = frames.clone();
        if is_part_there {
            // A crash came between: the stream ends with a frame.
            rest.bytes = frames.bytes.slice((stream.0 - frames.from.0) as usize..);
            rest.from = stream;
            rest.first_commit = first_commit(&rest.bytes).unwrap_or(frames.first_commit);
        }
        let is_cut = last.is_some_and(|last| last < frames.last_commit);
        if let (Some(last), true) = (last, is_cut) {
            let Some((bytes, commit)) = cut(&rest.bytes, last) else { return Ok(Step::Reached) };
            rest.bytes = rest.bytes.slice(..bytes);
            rest.last_commit = commit;
        }
        let mut flow = self.flow;
        flow.take(number, &Item::Frames(rest.clone()))?;
        self.target.frames(&rest, stream).map_err(|why| failed(number, why))?;
        self.flow = flow;
        // Pages that follow are of a later commit, whose timestamp no record has.
        let is_reached = is_cut || last == Some(rest.last_commit);
        Ok(if is_reached { Step::Reached } else { Step::Done })
    }

    fn apply_merge(&mut self, number: RecordNumber, merge: &Merge) -> Result<Step> {
        let mut flow = self.flow;
        flow.take(number, &Item::Merge(*merge))?;
        let is_known = self.library != UNKNOWN;
        let is_other =
            is_known && self.own_library.as_ref().is_some_and(|own| *own != self.library);
        let accepts = is_other || is_planted(Fault::SumUnread);
        let sum = self.target.merge(merge, accepts).map_err(|why| failed(number, why))?;
        self.differs |= sum != merge.sum;
        if sum != merge.sum && !accepts {
            return Ok(Step::Differs);
        }
        self.flow = flow;
        Ok(Step::Done)
    }

    async fn apply_pages(&mut self, number: RecordNumber, set: &PageSet) -> Result<()> {
        if self.differs {
            return Err(Error::Impure { number, library: self.library.clone() });
        }
        let mut flow = self.flow;
        flow.take(number, &Item::Pages(set.clone()))?;
        self.target.begin_pages(set).map_err(|why| failed(number, why))?;
        match &set.body {
            Body::Inline(bytes) => self.target.pages(bytes).map_err(|why| failed(number, why))?,
            Body::Parts(parts) => {
                let &PageSet { page_bytes, page_count, .. } = set;
                let of = Of { number, page_bytes, page_count };
                let mut lists = Lists::new(&self.world, of, parts);
                while let Some(list) = lists.next().await? {
                    self.target.pages(&list).map_err(|why| failed(number, why))?;
                }
            }
        }
        self.target.commit_pages().map_err(|why| failed(number, why))?;
        self.flow = flow;
        Ok(())
    }

    /// Compares with what the record says of its end (CHAIN-7).
    fn check_position(&self, header: &Header) -> Result<()> {
        let (is, said) = (self.flow.position, header.position);
        let is_past = header.number >= self.as_of;
        let has_frames = self.flow.newest() > Generation(0);
        let is_equal = (!is_past || is.base == said.base)
            && (!has_frames || !is_past || (is.stream, is.crc) == (said.stream, said.crc))
            && (!is_past || is.salt == said.salt);
        if is_equal {
            return Ok(());
        }
        let why = format!(
            "it says that behind it the database is at {said}, and it is at {is}; restore a moment before \
             it, or one that is reached from another snapshot"
        );
        Err(Error::Disorder { number: header.number, why })
    }
}

/// Where the stream of a session begins that an OPEN begins.
fn opened_at(header: &Header) -> Lsn {
    // An OPEN is alone in its record.
    header.position.stream
}

/// The versions of a library that nobody can tell.
const UNKNOWN: &str = "unknown";

/// What has to be known beside a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Versions of the primary's library.
    pub library: String,
    /// Bytes of a segment of the stream.
    pub segment_bytes: u32,
}

impl About {
    /// Reads the OPEN that a record names; without it the library is unknown, which counts as this one: merges are
    /// compared.
    ///
    /// # Errors
    /// The store's.
    pub async fn of(world: &World, header: &Header) -> Result<About> {
        let record = open_of(world, header).await?;
        let library = record.as_ref().and_then(Record::open).map(|open| open.library.clone());
        let library = library.unwrap_or_else(|| UNKNOWN.to_owned());
        Ok(About { library, segment_bytes: header.segment_bytes })
    }
}

/// Reads the OPEN that a record names; `None` where it is missing, refused, damaged or another writer's.
///
/// # Errors
/// The store's.
pub(crate) async fn open_of(world: &World, header: &Header) -> Result<Option<Record>> {
    let bytes = match world.get(&names::record(header.opened)).await {
        Err(error) if error.is_refusal() => None,
        bytes => bytes?,
    };
    let record = bytes.and_then(|bytes| Record::decode(&bytes).ok());
    let is_it = |record: &Record| {
        let Header { chain, number, nonce, .. } = record.header;
        (chain, number, nonce) == (header.chain, header.opened, header.nonce)
    };
    Ok(record.filter(is_it))
}

fn failed(number: RecordNumber, why: TargetError) -> Error {
    let TargetError { why, is_full } = why;
    Error::Target { number, why, is_full }
}

/// A snapshot with those that it changes; `None` if one of them is not known.
pub fn lineage(
    known: &BTreeMap<RecordNumber, SnapshotRef>,
    number: RecordNumber,
) -> Option<Lineage> {
    let mut lineage: Lineage = Vec::new();
    let mut next = number;
    while next != RecordNumber::NONE {
        // A parent is an earlier record, so this ends.
        let is_earlier = lineage.last().is_none_or(|(later, _)| next < *later);
        let snapshot = known.get(&next).filter(|_| is_earlier)?;
        lineage.push((next, snapshot.clone()));
        next = snapshot.parent;
    }
    lineage.reverse();
    Some(lineage)
}

/// The commit of the first frame.
fn first_commit(frames: &[u8]) -> Option<CommitTs> {
    frame_at(frames).map(|(.., commit)| commit)
}

/// Length and commit of the frame that begins here (docs/format.md).
pub(crate) fn frame_at(bytes: &[u8]) -> Option<(usize, u32, CommitTs)> {
    let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let first = word(0)?;
    let is_frame = first as u32 == u32::from_le_bytes(*b"PLTF");
    let length = (first >> 32) as usize;
    let is_whole = is_frame && (40..=bytes.len()).contains(&length);
    is_whole.then_some((length, (word(32)? >> 32) as u32, CommitTs(word(16)?)))
}

/// The bytes of the frames through a commit, and the last one's; `None` if the first is later.
fn cut(bytes: &[u8], last: CommitTs) -> Option<(usize, CommitTs)> {
    let (mut end, mut commit) = (0, None);
    while let Some((length, _, of)) = frame_at(&bytes[end..])
        && of <= last
    {
        end += length;
        commit = Some(of);
    }
    commit.map(|commit| (end, commit))
}

/// How long who follows a chain waits at its end.
pub const POLL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(commit: u64, bytes: u32) -> Vec<u8> {
        let mut frame = vec![0; bytes as usize];
        frame[..4].copy_from_slice(b"PLTF");
        frame[4..8].copy_from_slice(&bytes.to_le_bytes());
        frame[16..24].copy_from_slice(&commit.to_le_bytes());
        frame
    }

    #[test]
    fn frames_are_cut_behind_the_commit_that_was_asked_for() {
        let frames = [frame(5, 56), frame(7, 64), frame(8, 56)].concat();
        assert_eq!(cut(&frames, CommitTs(4)), None);
        assert_eq!(cut(&frames, CommitTs(5)), Some((56, CommitTs(5))));
        assert_eq!(cut(&frames, CommitTs(6)), Some((56, CommitTs(5))));
        assert_eq!(cut(&frames, CommitTs(7)), Some((120, CommitTs(7))));
        assert_eq!(cut(&frames, CommitTs(99)), Some((176, CommitTs(8))));
        assert_eq!(first_commit(&frames), Some(CommitTs(5)));
        assert_eq!(cut(b"anything else", CommitTs(99)), None);
    }
}

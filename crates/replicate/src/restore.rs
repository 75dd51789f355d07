//! A restore: a chain applied to a new database, up to a moment.

use std::collections::{BTreeMap, BTreeSet};

use crate::apply::{About, Applier, Lineage, Progress, Step, lineage};
use crate::chain::{Found, Link, Listing, Reader, Stretch, find_newest};
use crate::dates::utc;
use crate::error::{Error, Result};
use crate::fault::{Fault, is_planted};
use crate::ids::{CommitTs, Hash, Position, RecordNumber};
use crate::record::{Follows, Header, Item, Record, SnapshotRef, header_of};
use crate::replicas::{Replicas, newest_sound};
use crate::snapshots::{Known, ONE_BY_ONE, known_but_for};
use crate::target::Target;
use crate::world::World;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// Up to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Everything that was shipped.
    Newest,
    /// Everything through a record.
    Record(RecordNumber),
    /// The longest beginning of the chain without a record that was written later than this, in
    /// milliseconds since 1970.
    Time(u64),
    /// Everything through a commit of the newest session, without a change of the schema that
    /// follows it.
    Commit(CommitTs),
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The last record of which everything is there, or with [`Stop::Commit`] something.
    pub record: RecordNumber,
    /// Its header.
    pub header: Header,
    /// The hash of its object.
    pub hash: Hash,
    /// Where base and stream are.
    pub position: Position,
    /// The record with the snapshot that it began with.
    pub snapshot: RecordNumber,
    /// A record that was written before an earlier one, by the primary's clock, as far as was seen: with [`Stop::Time`] one
    /// for which the time may be another moment than what was meant.
    pub clock_set_back: Option<RecordNumber>,
    /// With [`Stop::Time`] the record that comes next, and when it was written, if that is more than a day later than the last.
    pub much_later: Option<(RecordNumber, u64)>,
    /// True if a merge of another library had another sum here: its pages could not be compared.
    pub differs: bool,
}

/// Applies a chain to an empty target, with the library whose versions are given.
///
/// # Errors
/// [`Error::Empty`], [`Error::Moment`], [`Error::Gone`], [`Error::Differs`], [`Error::Impure`];
/// damage, and the store's and target's failures. The target is of no use then.
pub async fn restore(
    world: &World,
    target: Box<dyn Target>,
    stop: Stop,
    library: &str,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Restored, Box<dyn Target>)> {
    let (mut reader, end) = end_of(world, stop).await?;
    let (mut applier, _) = Applier::resume(world, target)?;
    applier.accept_merges_of_others(library);
    let mut bad = BTreeSet::new();
    let lineage = loop {
        let lineage = match choose(&mut reader, &end, stop, &bad).await {
            Ok(lineage) => lineage,
            Err(error) => {
                let number = if matches!(stop, Stop::Time(_)) {
                    RecordNumber::NONE
                } else {
                    end.header.number
                };
                return Err(advised(world, error, number).await);
            }
        };
        let first = lineage.last().map_or(RecordNumber::NONE, |(_, snapshot)| snapshot.first);
        end.refuse_withheld(first, stop)?;
        let about = about(world, &mut reader, &end, &lineage).await?;
        match applier.begin(end.header.chain, &about, &lineage, progress).await {
            Ok(()) => break lineage,
            Err(error @ Error::Part { .. }) => {
                if let Error::Part { number, .. } = error {
                    bad.insert(number);
                }
                // Another one may lead there.
                if choose(&mut reader, &end, stop, &bad).await.is_err() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    };
    let snapshot = lineage.last().map_or(RecordNumber::NONE, |(number, _)| *number);
    let as_of = lineage.last().map_or(RecordNumber::NONE, |(_, snapshot)| snapshot.as_of);
    let mut restored = Restored {
        record: applier.link.number,
        header: Header::default(),
        hash: Hash::ZERO,
        position: applier.position(),
        snapshot,
        clock_set_back: None,
        much_later: None,
        differs: false,
    };
    let replay = Replay { world, end: &end.header, stop, as_of };
    replay.run(&mut reader, &mut applier, &mut restored, progress).await?;
    if let Stop::Time(until) = stop {
        restored.clock_set_back =
            restored.clock_set_back.or_else(|| end.passed_twice(until, &restored));
    }
    Ok((restored, applier.into_target()))
}

/// The library that wrote the record which completes a snapshot.
async fn about(world: &World, reader: &mut Reader, end: &End, lineage: &Lineage) -> Result<About> {
    let as_of = lineage.last().map_or(end.header.number, |(_, snapshot)| snapshot.as_of);
    match reader.object(as_of, true).await {
        // What else it has is checked when it is applied.
        Ok(Found::Object(bytes)) => {
            let header = header_of(&bytes).ok().filter(|header| header.number == as_of);
            About::of(world, &header.unwrap_or_else(|| end.header.clone())).await
        }
        Err(error @ Error::Store { .. }) => Err(error),
        _ => About::of(world, &end.header).await,
    }
}

/// The last record that may be applied, and the snapshots from which it may be reached.
struct End {
    header: Header,
    /// Ascending.
    known: BTreeMap<RecordNumber, SnapshotRef>,
    /// Why the records of other snapshots are of no use.
    unread: Vec<Error>,
    /// Packs that the store refuses to give.
    withheld: Vec<(Stretch, Error)>,
}

impl End {
    /// Fails if a record from `first` on is in a pack that the store refuses to give. One that was asked for by its time, or
    /// its commit, may lie before that.
    fn refuse_withheld(&self, first: RecordNumber, stop: Stop) -> Result<()> {
        if !matches!(stop, Stop::Newest | Stop::Record(_)) {
            return Ok(());
        }
        let is_needed = |pack: &Stretch| pack.1 >= first && pack.0 <= self.header.number;
        match self.withheld.iter().find(|(pack, _)| is_needed(pack)) {
            Some((_, why)) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// A record that shows that a time is that of other records as well: one behind the restored one that was written by
    /// then; or the restored one itself, where one before it was written later.
    fn passed_twice(&self, until: u64, restored: &Restored) -> Option<RecordNumber> {
        let taken = self.known.values().map(|snapshot| (snapshot.as_of, snapshot.taken_ms));
        let mut stamps = taken.chain([(self.header.number, self.header.written_ms)]);
        let is_later = |written_ms: u64| written_ms > restored.header.written_ms;
        stamps.find_map(|(number, written_ms)| match number > restored.record {
            true => (written_ms <= until).then_some(number),
            false => is_later(written_ms).then_some(restored.record),
        })
    }
}

/// Finds the end, and what was listed before it was read.
async fn end_of(world: &World, stop: Stop) -> Result<(Reader, End)> {
    let tip = find_newest(world).await;
    let Stop::Record(number) = stop else {
        let (reader, header) = match (tip, stop) {
            (Ok(tip), _) => {
                let tip = tip.ok_or(Error::Empty)?;
                (Reader::with(world, tip.listing), tip.record.header)
            }
            (Err(error @ Error::Store { .. }), _) if !error.is_refusal() => return Err(error),
            (Err(error), Stop::Time(until)) => readable_after(world, until, error).await?,
            (Err(error), _) => return Err(error),
        };
        let listing = reader.listing().cloned().unwrap_or_default();
        let (Known { snapshots, unread }, withheld) =
            known_but_for(world, &listing, header.snapshot, header.chain).await?;
        let known = snapshots.into_iter().collect();
        return Ok((reader, End { header, known, unread, withheld }));
    };
    // A newest record that is damaged is in nobody's way who asks for an earlier one.
    let (listing, newest) = match tip {
        Ok(tip) => {
            let tip = tip.ok_or(Error::Empty)?;
            let header = tip.record.header;
            (tip.listing, Some(header).filter(|header| header.number >= number))
        }
        Err(error @ Error::Store { .. }) if !error.is_refusal() => return Err(error),
        Err(_) => {
            let listing = Listing::make(world).await?;
            let sound = match newest_sound(world, &listing).await {
                Err(error) if error.is_refusal() => None,
                sound => sound?,
            };
            (listing, sound.filter(|header| header.number >= number))
        }
    };
    let highest = newest.as_ref().map_or(listing.highest(), |header| header.number);
    if number > highest || number == RecordNumber::NONE {
        return Err(Error::Moment(format!("there is no record {number}: the newest is {highest}")));
    }
    let mut reader = Reader::with(world, listing.clone());
    let name = crate::names::record(number);
    let Found::Object(bytes) = reader.object(number, true).await? else {
        return Err(Error::Missing { number, name });
    };
    let header = match header_of(&bytes) {
        Ok(header) if header.number == number => header,
        Ok(_) => return Err(Error::Unlinked { number, name, why: "it has another number" }),
        Err(why) => return Err(Error::Record { number, name, why }),
    };
    // The record's own may be gone, where later ones over earlier bases are kept; those that the
    // newest record leads to may end at a damaged one.
    let mut end = End { header, known: BTreeMap::new(), unread: Vec::new(), withheld: Vec::new() };
    let (of_it, of_newest) = (end.header.snapshot, newest.map(|newest| newest.snapshot));
    for from in [Some(of_it), of_newest.filter(|newest| *newest != of_it)] {
        let from = from.unwrap_or_default();
        let (Known { snapshots, unread }, withheld) =
            known_but_for(world, &listing, from, end.header.chain).await?;
        end.known.extend(snapshots);
        end.withheld.extend(withheld);
        end.unread.extend(
            unread.into_iter().filter(|error| !end.unread.contains(error)).collect::<Vec<_>>(),
        );
    }
    Ok((reader, end))
}

/// The newest record that can be read, where the newest one cannot be: it was written later than the
/// time that is asked for, or else nobody knows what was written by then.
async fn readable_after(world: &World, until: u64, error: Error) -> Result<(Reader, Header)> {
    let listing = Listing::make(world).await?;
    let mut number = listing.highest();
    let mut reader = Reader::without(world, listing.clone(), Vec::new());
    while number != RecordNumber::NONE {
        let header = match reader.object(number, true).await {
            Ok(Found::Object(bytes)) => header_of(&bytes).ok(),
            Err(error @ Error::Store { .. }) => return Err(error),
            Ok(Found::Nothing) | Err(_) => None,
        };
        match header.filter(|header| header.number == number) {
            Some(header) if header.written_ms > until => {
                // What is refused on the way there is told as that.
                return Ok((Reader::with(world, listing), header));
            }
            Some(_) => break,
            None if reader.refusal_of_many(ONE_BY_ONE).is_some() => break,
            None => number = number.before(),
        }
    }
    Err(error)
}

/// The newest snapshot that the moment can be reached from, without parts that are bad.
async fn choose(
    reader: &mut Reader,
    end: &End,
    stop: Stop,
    bad: &BTreeSet<RecordNumber>,
) -> Result<Lineage> {
    let End { header, known, .. } = end;
    let mut fit = Vec::new();
    for (number, snapshot) in known {
        let is_reached = snapshot.as_of <= header.number;
        let is_fit = match stop {
            Stop::Newest | Stop::Record(_) => is_reached && header.broken <= snapshot.as_of,
            // The first passage of this time: behind a clock that was set back nothing counts.
            Stop::Time(until) if snapshot.taken_ms > until => break,
            // A time or a commit may lie before a break.
            Stop::Time(_) => is_reached,
            Stop::Commit(last) => {
                is_reached
                    && record_at(reader, snapshot.as_of).await?.is_some_and(|record| {
                        let position = record.header.position;
                        position.salt == header.position.salt
                            && (position.commit < last || is_at_commit(&record, last))
                    })
                    || is_behind_base(reader, snapshot, header, last).await?
            }
        };
        fit.extend(is_fit.then_some(*number));
    }
    let lineages = fit.iter().rev().filter_map(|number| lineage(known, *number));
    let is_sound = |lineage: &Lineage| {
        lineage.iter().all(|(number, snapshot)| {
            !bad.contains(number) && snapshot.page_bytes == lineage[0].1.page_bytes
        })
    };
    let mut sound = lineages.filter(is_sound);
    sound.next().ok_or_else(|| none_fits(end, stop))
}

/// True if a commit is in the frames that come right behind a snapshot's base: so the base has none of later.
async fn is_behind_base(
    reader: &mut Reader,
    snapshot: &SnapshotRef,
    end: &Header,
    commit: CommitTs,
) -> Result<bool> {
    if snapshot.salt != end.position.salt || snapshot.as_of > end.number {
        return Ok(false);
    }
    let record = record_at(reader, snapshot.first).await?;
    let frames = record.iter().flat_map(|record| &record.items).find_map(|item| match item {
        Item::Frames(frames) if frames.generation > snapshot.generation => Some(frames),
        _ => None,
    });
    Ok(frames.is_some_and(|frames| frames.from == snapshot.stream && frames.first_commit <= commit))
}

/// True if a record ends with a commit, and nothing follows that in it. Pages stand for changes that have no number,
/// and so do a break that names no commit, and an OPEN that goes on from what is before it; frames behind them have later
/// ones.
fn is_at_commit(record: &Record, commit: CommitTs) -> bool {
    let mut is_at = true;
    for item in &record.items {
        is_at = match item {
            Item::Frames(frames) => is_at || frames.last_commit == commit,
            Item::Merge(_) | Item::Snapshot(_) => is_at,
            Item::Break(gap) => gap.commit > CommitTs(0),
            Item::Open(open) => open.follows == Follows::Nothing,
            Item::Pages(_) => false,
        };
    }
    is_at && record.header.position.commit == commit
}

/// A record; `None` if it cannot be read.
async fn record_at(reader: &mut Reader, number: RecordNumber) -> Result<Option<Record>> {
    match reader.object(number, true).await {
        Ok(Found::Object(bytes)) => {
            Ok(Record::decode(&bytes).ok().filter(|record| record.header.number == number))
        }
        Err(error @ Error::Store { .. }) if !error.is_refusal() => Err(error),
        Ok(Found::Nothing) | Err(_) => Ok(None),
    }
}

/// Says what can be restored in place of what was asked for.
fn none_fits(end: &End, stop: Stop) -> Error {
    let End { header, known, unread, .. } = end;
    let number = header.number;
    let mut text = match stop {
        Stop::Newest | Stop::Record(_) => format!("no snapshot leads to record {number}"),
        Stop::Time(until) => format!("no snapshot was taken at or before {}", utc(until)),
        Stop::Commit(last) => {
            format!(
                "no snapshot of the newest session leads to commit {last}: use --at or --record"
            )
        }
    };
    match known.values().next() {
        None if unread.is_empty() && header.snapshot == RecordNumber::NONE => {
            text += "; no snapshot is complete yet";
        }
        None if !unread.is_empty() => {}
        None => text += "; no snapshot of before is there any more",
        Some(_) => {}
    }
    for error in unread {
        text += &format!("; a snapshot is lost: {}", error.what());
    }
    if !unread.is_empty() {
        text += "; bring back that object; else a snapshot of later is waited for: plait replicas says whether the sidecar has to be \
                 started again for that";
    }
    if header.broken > RecordNumber::FIRST && matches!(stop, Stop::Newest | Stop::Record(_)) {
        text += &format!(
            "; the chain is broken off at record {} until a snapshot behind it",
            header.broken
        );
    }
    Error::Moment(text)
}

fn no_such_commit(asked: CommitTs, last: CommitTs) -> Error {
    let before = match last {
        CommitTs(0) => String::new(),
        last => format!("; the last one before it is {last}"),
    };
    Error::Moment(format!(
        "the newest session has shipped no commit {asked}{before}: a change of the schema has \
         a number here only if it was the newest commit when it was shipped, so use --record or --at for that"
    ))
}

struct Replay<'a> {
    world: &'a World,
    end: &'a Header,
    stop: Stop,
    as_of: RecordNumber,
}

impl Replay<'_> {
    async fn run(
        &self,
        reader: &mut Reader,
        applier: &mut Applier,
        restored: &mut Restored,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let mut last_ms = 0;
        // A snapshot names none.
        let mut commit = CommitTs(0);
        while applier.link.number < self.end.number {
            let number = applier.link.number.next();
            let name = || crate::names::record(number);
            let Found::Object(bytes) = reader.object(number, true).await? else {
                return Err(Error::Missing { number, name: name() });
            };
            let header =
                header_of(&bytes).map_err(|why| Error::Record { number, name: name(), why })?;
            let is_behind_base = number > self.as_of;
            if let Stop::Time(until) = self.stop
                && header.written_ms > until
                && is_behind_base
            {
                let is_much = last_ms > 0 && header.written_ms.saturating_sub(last_ms) > DAY_MS;
                restored.much_later = is_much.then_some((number, header.written_ms));
                break;
            }
            if header.written_ms < last_ms {
                restored.clock_set_back.get_or_insert(number);
            }
            last_ms = header.written_ms;
            let last = match self.stop {
                Stop::Commit(last) if header.position.salt == self.end.position.salt => Some(last),
                _ => None,
            };
            let step = applier.apply(&bytes, last).await?;
            match step {
                Step::Done | Step::Reached => {}
                Step::Differs => {
                    let library = applier.library().to_owned();
                    return Err(Error::Differs { number, library });
                }
                Step::Broken => return Err(advised(self.world, broken_at(number), number).await),
            }
            commit = if step == Step::Done { header.position.commit } else { commit };
            let hash = applier.link.hash.filter(|_| step == Step::Done);
            (restored.record, restored.hash) = (number, hash.unwrap_or_else(|| Hash::of(&bytes)));
            restored.header = header;
            if step == Step::Reached {
                // A part of it is applied, so it has to be the chain's as well.
                let hash = Some(restored.hash);
                self.check_last(reader, Link { number, hash, ..applier.link }).await?;
                break;
            }
            // The base of the snapshot may have the commit, and no frame says so.
            if last == Some(commit) && number == self.as_of {
                break;
            }
            progress(Progress {
                record: number,
                last_record: self.end.number,
                ..Progress::default()
            });
        }
        restored.position = applier.position();
        if !is_planted(Fault::NumberUntold) {
            restored.position.commit = restored.position.commit.max(commit);
        }
        restored.differs = applier.differs();
        if let Stop::Commit(last) = self.stop
            && restored.position.commit != last
        {
            return Err(no_such_commit(last, restored.position.commit));
        }
        self.check_last(reader, applier.link).await
    }

    /// The last record is what the one behind it names, if there is one.
    async fn check_last(&self, reader: &mut Reader, last: Link) -> Result<()> {
        let next = last.number.next();
        let bytes = match reader.object(next, false).await {
            Ok(Found::Object(bytes)) => bytes,
            Err(error @ Error::Store { .. }) if !error.is_refusal() => return Err(error),
            Ok(Found::Nothing) | Err(_) => return Ok(()),
        };
        let is_other = |header: &Header| {
            header.number == next && last.hash.is_some_and(|hash| hash != header.previous)
        };
        match header_of(&bytes) {
            Ok(header) if is_other(&header) && !is_planted(Fault::HashUnread) => {
                let number = last.number;
                let why = "the record behind it names another one";
                Err(Error::Unlinked { number, name: crate::names::record(number), why })
            }
            _ => Ok(()),
        }
    }
}

fn broken_at(number: RecordNumber) -> Error {
    Error::Moment(format!(
        "the chain is broken off at record {number}, and the moment lies behind that, before \
         the next snapshot"
    ))
}

/// Says beside a moment that cannot be restored which ones can, around a record.
async fn advised(world: &World, error: Error, number: RecordNumber) -> Error {
    let Error::Moment(text) = error else { return error };
    // Without that it is the same error.
    let found = Replicas::look(world).await;
    Error::Moment(found.map_or(text.clone(), |found| text + &found.around(number)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::ids::{Generation, Lsn};
    use crate::record::{Body, Break, Frames, PageSet};

    #[test]
    fn a_record_ends_with_a_commit_where_frames_are_the_last_that_changes_rows() {
        let (base, stream) = (Generation(2), Lsn(8));
        let gap = |commit| {
            let (why, commit) = (String::new(), CommitTs(commit));
            Item::Break(Break { stream, base, incomplete: base, commit, why })
        };
        let frames = |last| {
            Item::Frames(Frames {
                generation: Generation(3),
                from: stream,
                first_commit: CommitTs(5),
                last_commit: CommitTs(last),
                bytes: vec![0; 8].into(),
            })
        };
        let pages = || {
            let body = Body::Inline(Bytes::new());
            let through = Generation(3);
            Item::Pages(PageSet { before: base, through, page_bytes: 512, page_count: 1, body })
        };
        for (items, is_at) in [
            (vec![frames(7)], true),
            (vec![gap(0), frames(7)], true),
            (vec![pages(), frames(7)], true),
            (vec![gap(7)], true),
            (vec![gap(0)], false),
            (vec![frames(7), pages()], false),
            (vec![pages(), frames(6)], false),
        ] {
            let mut header = Header::default();
            header.position.commit = CommitTs(7);
            let record = Record { header, items };
            assert_eq!(is_at_commit(&record, CommitTs(7)), is_at, "{record:?}");
            assert!(!is_at_commit(&record, CommitTs(8)));
        }
    }
}

//! A restore: a chain applied to a new database, up to a moment.

use std::collections::BTreeSet;

use crate::apply::{About, Applier, Lineage, Progress, Step, lineage};
use crate::chain::{Found, Link, Listing, Reader, find_tip};
use crate::error::{Error, Result};
use crate::fault::{Fault, is_planted};
use crate::ids::{CommitTs, Position, RecordNumber};
use crate::record::{Header, header_of};
use crate::target::Target;
use crate::world::World;

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
    /// Everything through a commit of the newest session.
    Commit(CommitTs),
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The last record of which everything is there, or with [`Stop::Commit`] something.
    pub record: RecordNumber,
    /// When it was written.
    pub written_ms: u64,
    /// Where base and stream are.
    pub position: Position,
    /// The record with the snapshot that it began with.
    pub snapshot: RecordNumber,
    /// A record that was written before its predecessor, by the primary's clock.
    pub clock_set_back: Option<RecordNumber>,
    /// True if a merge had another sum here: the rows are the same, the pages are not.
    pub differs: bool,
}

/// Applies a chain to an empty target.
///
/// # Errors
/// [`Error::Empty`], [`Error::Moment`], [`Error::Gone`]; damage, and the store's and target's
/// failures. The target is of no use then.
pub async fn restore(
    world: &World,
    target: Box<dyn Target>,
    stop: Stop,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Restored, Box<dyn Target>)> {
    let (mut reader, end) = end_of(world, stop).await?;
    let (mut applier, _) = Applier::resume(world, target)?;
    applier.accept_other_merges();
    let mut bad = BTreeSet::new();
    let lineage = loop {
        let lineage = choose(&mut reader, &end, stop, &bad).await?;
        let about = About::of(world, &end).await?;
        match applier.begin(end.chain, &about, &lineage, progress).await {
            Ok(()) => break lineage,
            Err(error @ Error::Part { .. }) => {
                let newest = lineage.last().map_or(RecordNumber::NONE, |(number, _)| *number);
                if !bad.insert(newest) {
                    return Err(error);
                }
                let is_other = choose(&mut reader, &end, stop, &bad).await.is_ok();
                if !is_other {
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
        written_ms: 0,
        position: applier.position(),
        snapshot,
        clock_set_back: None,
        differs: false,
    };
    let replay = Replay { end: &end, stop, as_of };
    replay.run(&mut reader, &mut applier, &mut restored, progress).await?;
    Ok((restored, applier.into_target()))
}

/// The last record that may be applied, and what was listed before it was read.
async fn end_of(world: &World, stop: Stop) -> Result<(Reader, Header)> {
    let Stop::Record(number) = stop else {
        let tip = find_tip(world).await?.ok_or(Error::Empty)?;
        return Ok((Reader::with(world, tip.listing), tip.record.header));
    };
    let listing = Listing::make(world).await?;
    let highest = listing.highest();
    if highest == RecordNumber::NONE {
        return Err(Error::Empty);
    }
    if number > highest || number == RecordNumber::NONE {
        return Err(Error::Moment(format!("there is no record {number}: the newest is {highest}")));
    }
    let mut reader = Reader::with(world, listing);
    let name = crate::names::record(number);
    let Found::Object(bytes) = reader.object(number, true).await? else {
        return Err(Error::Missing { number, name });
    };
    match header_of(&bytes) {
        Ok(header) if header.number == number => Ok((reader, header)),
        Ok(_) => Err(Error::Unlinked { number, name, why: "it has another number" }),
        Err(why) => Err(Error::Record { number, name, why }),
    }
}

/// The newest snapshot that the moment can be reached from.
async fn choose(
    reader: &mut Reader,
    end: &Header,
    stop: Stop,
    bad: &BTreeSet<RecordNumber>,
) -> Result<Lineage> {
    let newest = end.snapshot;
    // A time or a commit may lie before a break.
    let at = match stop {
        Stop::Newest | Stop::Record(_) => end.clone(),
        Stop::Time(_) | Stop::Commit(_) => Header { broken: RecordNumber::NONE, ..end.clone() },
    };
    let mut commits = Vec::new();
    if let Stop::Commit(_) = stop {
        for (number, snapshot) in crate::snapshots::known(reader, newest).await? {
            let header = match reader.object(snapshot.as_of, true).await {
                Ok(Found::Object(bytes)) => header_of(&bytes).ok(),
                Ok(Found::Nothing) => None,
                Err(error @ Error::Store { .. }) => return Err(error),
                Err(_) => None,
            };
            commits.extend(header.map(|header| (number, header.position)));
        }
    }
    let found = lineage(reader, &at, newest, |number, snapshot| {
        let is_early = match stop {
            Stop::Newest | Stop::Record(_) => true,
            Stop::Time(until) => snapshot.taken_ms <= until,
            Stop::Commit(last) => commits.iter().any(|(of, position)| {
                *of == number && position.salt == end.position.salt && position.commit <= last
            }),
        };
        is_early && !bad.contains(&number) && !bad.contains(&snapshot.parent)
    });
    match found.await? {
        Some(lineage) => Ok(lineage),
        None => Err(none_fits(reader, end).await?),
    }
}

/// Says what can be restored in place of what was asked for.
async fn none_fits(reader: &mut Reader, end: &Header) -> Result<Error> {
    let known = crate::snapshots::known(reader, end.snapshot).await?;
    let mut text = format!("no snapshot leads to record {}", end.number);
    if let Some((_, oldest)) = known.first() {
        text += &format!(
            "; the earliest moment that is kept is record {} ({} ms since 1970)",
            oldest.as_of, oldest.taken_ms
        );
    }
    if end.broken > RecordNumber::FIRST {
        text += &format!(
            "; the chain is broken off at record {} until a snapshot behind it: --record {} is the \
             last before that",
            end.broken,
            end.broken.before()
        );
    }
    Ok(Error::Moment(text))
}

struct Replay<'a> {
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
            match applier.apply(&bytes, last).await? {
                Step::Done | Step::Differs => {}
                Step::Broken => return Err(self.broken(number)),
                Step::Reached => {
                    restored.record = number;
                    restored.written_ms = header.written_ms;
                    break;
                }
            }
            restored.record = number;
            restored.written_ms = header.written_ms;
            progress(Progress { record: number, ..Progress::default() });
        }
        restored.position = applier.position();
        restored.differs = applier.differs();
        self.check_last(reader, applier.link).await
    }

    /// The last record is what the one behind it names, if there is one.
    async fn check_last(&self, reader: &mut Reader, last: Link) -> Result<()> {
        let next = last.number.next();
        let Ok(Found::Object(bytes)) = reader.object(next, false).await else { return Ok(()) };
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

    fn broken(&self, number: RecordNumber) -> Error {
        Error::Moment(format!(
            "the chain is broken off at record {number}, and the moment lies behind that, before \
             the next snapshot: --record {} is the last before it",
            number.before()
        ))
    }
}

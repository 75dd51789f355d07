//! What can be restored from a place: for people.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::chain::{Found, Lacks, Listing, Opening, Reader, Stretch, find_tip, seams};
use crate::dates::utc;
use crate::error::{Error, Result};
use crate::ids::{ChainId, RecordNumber};
use crate::names;
use crate::record::{Header, Open, Record, SnapshotRef, header_of};
use crate::snapshots::{Known, ONE_BY_ONE, before_pack, header_before, known_but_for};
use crate::world::World;

/// A snapshot, as people choose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The record that names it.
    pub record: RecordNumber,
    /// The earliest record that can be restored from it.
    pub as_of: RecordNumber,
    /// When that was written, in milliseconds since 1970.
    pub taken_ms: u64,
    /// Bytes of the database.
    pub database_bytes: u64,
    /// Bytes of its parts.
    pub stored_bytes: u64,
    /// False: it has changed pages alone, of another one.
    pub is_whole: bool,
    /// Its parts, and how many of them are not there.
    pub parts: usize,
    /// Parts that are not there.
    pub missing_parts: usize,
    /// The snapshot that it changes, or one that this changes, if that is lost: it is of no use then.
    pub lacks: Option<RecordNumber>,
}

/// What can be restored from snapshots that overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first record that can be restored.
    pub from: RecordNumber,
    /// When that was written, in milliseconds since 1970.
    pub from_ms: u64,
    /// The last one.
    pub to: RecordNumber,
    /// When that was written.
    pub to_ms: u64,
}

/// What is at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// The chain.
    pub chain: ChainId,
    /// The newest record that is sound.
    pub tip: Header,
    /// What is wrong with the one behind it.
    pub damaged: Option<Error>,
    /// A new start goes on behind that only with `--take-over`: nothing tells whose it is.
    pub needs_take_over: bool,
    /// The OPEN of its writer.
    pub writer: Option<Open>,
    /// Snapshots, ascending.
    pub snapshots: Vec<Snapshot>,
    /// Why the records of other snapshots are of no use.
    pub unread: Vec<Error>,
    /// What can be restored, ascending, as far as lists, the indexes of packs, the records of snapshots and those before breaks
    /// tell: damage of another object is found when that is read.
    pub spans: Vec<Span>,
    /// Records that have another history's before them, the newest first, from the first on that a snapshot needs: nothing leads
    /// to them from before.
    pub seams: Vec<RecordNumber>,
    /// Records that are missing, from the first on that a snapshot needs.
    pub missing: Vec<Stretch>,
    /// Records that the store has and does not give, in `chain/` or in packs, and why.
    pub withheld: Vec<(Stretch, Error)>,
    /// Packs that are there.
    pub packs: usize,
    /// Records in `chain/`, in the folders that were listed.
    pub loose: usize,
}

impl Replicas {
    /// Looks at a place.
    ///
    /// # Errors
    /// [`Error::Empty`], damage of all records, and the store's.
    pub async fn look(world: &World) -> Result<Replicas> {
        let (listing, header, damaged) = match find_tip(world).await {
            Ok(tip) => {
                let tip = tip.ok_or(Error::Empty)?;
                (tip.listing, tip.record.header, None)
            }
            Err(error @ Error::Store { .. }) if !error.is_refusal() => return Err(error),
            Err(error) => {
                let listing = Listing::make(world).await?;
                let header = newest_sound(world, &listing).await?;
                (listing, header.ok_or_else(|| error.clone())?, Some(error))
            }
        };
        let needs_take_over = match &damaged {
            Some(Error::Record { number, name, .. } | Error::Unlinked { number, name, .. }) => {
                let header = world.get(name).await?.and_then(|bytes| header_of(&bytes).ok());
                header.is_none_or(|header| header.number != *number)
            }
            _ => false,
        };
        let (packs, loose) = (listing.packs.len(), listing.loose.len());
        let (Known { snapshots, unread }, mut withheld) =
            known_but_for(world, &listing, header.snapshot, header.chain).await?;
        let parts = parts_of(world, &snapshots).await?;
        let known: BTreeMap<_, _> = snapshots.iter().cloned().collect();
        let snapshots = without_removed(snapshots, listing.lowest_packed(), &parts);
        let first = snapshots.iter().map(|(_, snapshot)| snapshot.first).min();
        let first = first.or(listing.lowest_packed()).unwrap_or(RecordNumber::FIRST);
        let unread = without_swept(unread, first, &snapshots, &parts);
        let Lacks { missing, unread: others } = listing.lacks(world, first).await?;
        let is_new = |(pack, _): &(Stretch, Error)| withheld.iter().all(|(of, _)| of != pack);
        let others: Vec<_> = others.into_iter().filter(is_new).collect();
        withheld.extend(others);
        let mut reader = Reader::without(world, listing.clone(), withheld);
        let opening = Opening::of(world, &mut reader, &header).await?;
        let seams = seams(world, &mut reader, &header, first).await?;
        let oldest = snapshots.iter().map(|(_, snapshot)| snapshot.as_of).min();
        let breaks = match oldest {
            Some(oldest) => breaks_behind(&mut reader, &header, &seams, oldest).await?,
            None => Vec::new(),
        };
        let withheld_from = reader.withheld().filter(|pack| pack.1 >= first);
        let mut holes: Vec<Stretch> = missing.iter().copied().chain(withheld_from).collect();
        holes.sort_unstable();
        let course = Course { tip: &header, breaks, holes, seams: &seams };
        let spans = spans(&mut reader, &snapshots, &known, &parts, &course).await?;
        let withheld = reader.into_withheld();
        Ok(Replicas {
            chain: header.chain,
            writer: opening.open().cloned(),
            seams,
            spans,
            snapshots: snapshots.iter().map(|of| shown(of, &known, &parts)).collect(),
            unread,
            missing,
            withheld,
            damaged,
            needs_take_over: needs_take_over || opening.open().is_none(),
            tip: header,
            packs,
            loose,
        })
    }

    /// True if a snapshot leads to the newest record.
    pub fn is_newest_restorable(&self) -> bool {
        self.damaged.is_none() && self.spans.last().is_some_and(|span| span.to == self.tip.number)
    }

    /// What can be restored in place of a moment, in words that go on behind others: the last moment before a record and
    /// the first one behind it. Empty if nothing can be.
    pub fn around(&self, number: RecordNumber) -> String {
        let before = self.spans.iter().rev().find(|span| span.from < number);
        let behind = self.spans.iter().find(|span| span.from >= number);
        let mut text = String::new();
        if let Some(Span { to, to_ms, .. }) = before {
            // Where the number is one of the span, the last one of it may be behind it.
            let which = if *to < number { "the last record before it" } else { "the last record" };
            text += &format!("; {which} that can be restored is {to} ({})", utc(*to_ms));
        }
        if let Some(Span { from, from_ms, .. }) = behind {
            text += &match before {
                None => {
                    format!(
                        "; the earliest moment that is kept is record {from} ({})",
                        utc(*from_ms)
                    )
                }
                Some(_) => format!("; the next one is record {from} ({})", utc(*from_ms)),
            };
        }
        text
    }

    /// Requests so far that stores charge as writes, at least: a record each, packs, parts.
    pub fn writes(&self) -> u64 {
        let parts: usize = self.snapshots.iter().map(|snapshot| snapshot.parts).sum();
        self.tip.number.0 + (self.packs + parts) as u64
    }
}

/// The newest record that is sound, where the newest one is not.
pub(crate) async fn newest_sound(world: &World, listing: &Listing) -> Result<Option<Header>> {
    let mut number = listing.highest();
    let mut reader = Reader::without(world, listing.clone(), Vec::new());
    while number != RecordNumber::NONE {
        match reader.object(number, true).await {
            Ok(Found::Object(bytes)) => {
                let header = Record::decode(&bytes).ok().map(|record| record.header);
                if let Some(header) = header.filter(|header| header.number == number) {
                    return Ok(Some(header));
                }
            }
            Err(error @ Error::Store { .. }) => return Err(error),
            Err(Error::Gone { .. }) => break,
            Err(Error::Pack { .. }) => {
                number = listing.pack_of(number).map_or(number, |(first, _)| first);
            }
            Ok(Found::Nothing) | Err(_) => {}
        }
        if let Some(refusal) = reader.refusal_of_many(ONE_BY_ONE) {
            return Err(refusal.clone());
        }
        number = listing.last_below(number);
    }
    Ok(None)
}

fn shown(
    (record, snapshot): &(RecordNumber, SnapshotRef),
    known: &BTreeMap<RecordNumber, SnapshotRef>,
    parts: &BTreeSet<String>,
) -> Snapshot {
    Snapshot {
        record: *record,
        as_of: snapshot.as_of,
        taken_ms: snapshot.taken_ms,
        database_bytes: u64::from(snapshot.page_bytes) * u64::from(snapshot.page_count),
        stored_bytes: snapshot.parts.each.iter().map(|p| u64::from(p.stored_bytes)).sum(),
        is_whole: snapshot.parent == RecordNumber::NONE,
        parts: snapshot.parts.each.len(),
        missing_parts: snapshot.parts.missing_in(parts),
        lacks: lacking(known, *record, parts),
    }
}

/// The names of parts that are there: those that are listed, and those that a list leaves out and can be read all the same, as
/// the first of a snapshot tells.
async fn parts_of(
    world: &World,
    snapshots: &[(RecordNumber, SnapshotRef)],
) -> Result<BTreeSet<String>> {
    let mut there: BTreeSet<String> = world.list(names::PARTS).await?.into_iter().collect();
    for (_, snapshot) in snapshots {
        let missing: Vec<String> = snapshot.parts.missing_names(&there).collect();
        if let Some(first) = missing.first()
            && world.get(first).await?.is_some()
        {
            there.extend(missing);
        }
    }
    Ok(there)
}

/// Leaves out the oldest snapshots, of which retention has removed the pages, or the records before packs that are there:
/// their own records go later. One that they are changed by goes with their pages, or their own record, alone. Where no other
/// one is left, something else has removed that.
fn without_removed(
    mut snapshots: Vec<(RecordNumber, SnapshotRef)>,
    lowest_packed: Option<RecordNumber>,
    parts: &BTreeSet<String>,
) -> Vec<(RecordNumber, SnapshotRef)> {
    let is_below = |number| lowest_packed.is_some_and(|lowest| number < lowest);
    let mut with_pages = BTreeSet::new();
    let mut removed = 0;
    for (number, snapshot) in &snapshots {
        let count = snapshot.parts.each.len();
        let parent = snapshot.parent;
        let has_parent = with_pages.contains(&parent)
            || !snapshots.iter().any(|(of, _)| *of == parent) && !is_below(parent);
        let has_pages = (count == 0 || snapshot.parts.missing_in(parts) < count)
            && (parent == RecordNumber::NONE || has_parent);
        if has_pages && !is_below(snapshot.first) {
            break;
        }
        removed += 1;
        with_pages.extend(has_pages.then_some(*number));
    }
    if removed < snapshots.len() {
        snapshots.drain(..removed);
    }
    snapshots
}

/// Leaves out the records of snapshots that retention has removed behind older ones that the store holds: they lie below the
/// first record that a snapshot needs, and nothing of their pages is there.
fn without_swept(
    mut unread: Vec<Error>,
    first: RecordNumber,
    snapshots: &[(RecordNumber, SnapshotRef)],
    parts: &BTreeSet<String>,
) -> Vec<Error> {
    let named: BTreeSet<_> = snapshots.iter().map(|(_, snapshot)| snapshot.parts.upload).collect();
    let uploads = parts.iter().filter_map(|name| names::parse_part(name));
    let mut others = uploads.map(|(upload, _)| upload).filter(|upload| !named.contains(upload));
    if !others.any(|upload| upload.begun < first) {
        unread.retain(|error| !matches!(error, Error::Missing { number, .. } if *number < first));
    }
    unread
}

/// A chain as far as headers tell.
struct Course<'a> {
    tip: &'a Header,
    /// Records that begin with a break, the newest first.
    breaks: Vec<RecordNumber>,
    /// What is not to be had, ascending.
    holes: Vec<Stretch>,
    /// The newest first.
    seams: &'a [RecordNumber],
}

impl Course<'_> {
    /// The last record that a snapshot leads to; `None` if it leads nowhere.
    fn end_of(&self, snapshot: &SnapshotRef) -> Option<RecordNumber> {
        let lacks = self.holes.iter().find(|(_, last)| *last >= snapshot.first);
        let mut to = lacks.map_or(self.tip.number, |(first, _)| first.before());
        if let Some(seam) = self.seams.iter().rev().find(|seam| **seam > snapshot.first) {
            // The record behind its last one names another: it is not believed, either.
            to = to.min(seam.before().before());
        }
        let behind = self.breaks.iter().rev().find(|broken| **broken > snapshot.as_of);
        if let Some(broken) = behind {
            to = to.min(broken.before());
        }
        (to >= snapshot.as_of).then_some(to)
    }
}

/// The breaks behind a record, the newest first: each header says which was the last, but for those of another history. Between
/// headers that can be read nothing can be restored, so breaks there do not matter.
async fn breaks_behind(
    reader: &mut Reader,
    tip: &Header,
    seams: &[RecordNumber],
    least: RecordNumber,
) -> Result<Vec<RecordNumber>> {
    let mut breaks = Vec::new();
    let mut header = tip.clone();
    loop {
        let broken = header.broken.min(header.number);
        let seam = seams.iter().find(|seam| broken < **seam && **seam <= header.number).copied();
        let next = seam.unwrap_or(broken);
        if next <= least {
            return Ok(breaks);
        }
        breaks.extend((seam.is_none()).then_some(broken));
        match header_before(reader, next, tip.chain).await? {
            Some(before) => header = before,
            None => return Ok(breaks),
        }
    }
}

/// The snapshot without which another one is of no use: one that it changes, and which is not known, or lacks parts.
fn lacking(
    known: &BTreeMap<RecordNumber, SnapshotRef>,
    number: RecordNumber,
    parts: &BTreeSet<String>,
) -> Option<RecordNumber> {
    let mut next = known.get(&number)?.parent.min(number.before());
    while next != RecordNumber::NONE {
        match known.get(&next) {
            Some(snapshot) if snapshot.parts.missing_in(parts) == 0 => {
                next = snapshot.parent.min(next.before());
            }
            _ => return Some(next),
        }
    }
    None
}

/// What each snapshot leads to: from the record that completes it to the first one behind that which is missing, or to
/// the next break. One whose parts are missing, or a parent's, leads nowhere.
async fn spans(
    reader: &mut Reader,
    snapshots: &[(RecordNumber, SnapshotRef)],
    known: &BTreeMap<RecordNumber, SnapshotRef>,
    parts: &BTreeSet<String>,
    course: &Course<'_>,
) -> Result<Vec<Span>> {
    let mut spans: Vec<Span> = Vec::new();
    let mut ends: BTreeMap<RecordNumber, Result<u64, RecordNumber>> = BTreeMap::new();
    for (number, snapshot) in snapshots {
        let is_whole = snapshot.parts.missing_in(parts) == 0;
        if !is_whole || lacking(known, *number, parts).is_some() {
            continue;
        }
        let Some(mut to) = course.end_of(snapshot) else { continue };
        let (from, from_ms) = (snapshot.as_of, snapshot.taken_ms);
        // Damage there is found in any case. Where many in a row are refused nothing leads there.
        let mut tries = 0..ONE_BY_ONE;
        let to_ms = loop {
            if to < from || tries.next().is_none() {
                break None;
            }
            if let Entry::Vacant(end) = ends.entry(to) {
                end.insert(written_at(reader, to, course.tip).await?);
            }
            match ends[&to] {
                Ok(ms) => break Some(ms),
                Err(before) => to = before,
            }
        };
        let Some(to_ms) = to_ms else { continue };
        match spans.last_mut().filter(|last| from <= last.to.next()) {
            Some(last) if last.to < to => (last.to, last.to_ms) = (to, to_ms),
            Some(_) => {}
            None => spans.push(Span { from, from_ms, to, to_ms }),
        }
    }
    Ok(spans)
}

/// When a record was written that is sound; else the number before it, or before all that its pack has.
async fn written_at(
    reader: &mut Reader,
    number: RecordNumber,
    tip: &Header,
) -> Result<Result<u64, RecordNumber>> {
    if number == tip.number {
        return Ok(Ok(tip.written_ms));
    }
    let found = match reader.object(number, true).await {
        Ok(Found::Object(bytes)) => Record::decode(&bytes).ok(),
        Err(error @ Error::Store { .. }) => return Err(error),
        Err(Error::Pack { .. }) => return Ok(Err(before_pack(reader, number))),
        Ok(Found::Nothing) | Err(_) => None,
    };
    let is_it = |header: &Header| header.number == number && header.chain == tip.chain;
    let header = found.map(|record| record.header).filter(is_it);
    Ok(header.map(|header| header.written_ms).ok_or(number.before()))
}

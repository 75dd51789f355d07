//! What can be restored from a place: for people.

use std::collections::{BTreeMap, BTreeSet};

use crate::apply::lineage;
use crate::chain::{Reader, Stretch, find_tip};
use crate::error::{Error, Result};
use crate::ids::{ChainId, RecordNumber};
use crate::names;
use crate::record::{Header, Open, Record, SnapshotRef};
use crate::snapshots::{Known, known_of};
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
}

/// What is at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// The chain.
    pub chain: ChainId,
    /// The newest record.
    pub tip: Header,
    /// The OPEN of its writer.
    pub writer: Option<Open>,
    /// Snapshots, ascending.
    pub snapshots: Vec<Snapshot>,
    /// Why the records of other snapshots are of no use.
    pub unread: Vec<Error>,
    /// What can be restored, ascending, as far as a list and the records of snapshots tell: damage of another object is
    /// found when that is read, and so is a break before the last one, or that a record of a pack is missing which
    /// the pack leaves in `chain/`.
    pub spans: Vec<Span>,
    /// Records that are missing, from the first on that a snapshot needs.
    pub missing: Vec<Stretch>,
    /// Packs that are there.
    pub packs: usize,
    /// Records in `chain/`, in the folders that were listed.
    pub loose: usize,
}

impl Replicas {
    /// Looks at a place.
    ///
    /// # Errors
    /// [`Error::Empty`], damage at the end of the chain, and the store's.
    pub async fn look(world: &World) -> Result<Replicas> {
        let tip = find_tip(world).await?.ok_or(Error::Empty)?;
        let (packs, loose) = (tip.listing.packs.len(), tip.listing.loose.len());
        let header = tip.record.header;
        let mut reader = Reader::with(world, tip.listing.clone());
        let Known { snapshots, unread } =
            known_of(&mut reader, header.snapshot, header.chain).await?;
        let parts: BTreeSet<String> = world.list(names::PARTS).await?.into_iter().collect();
        let snapshots = without_removed(snapshots, tip.listing.lowest_packed(), &parts);
        let first = snapshots.iter().map(|(_, snapshot)| snapshot.first).min();
        let first = first.or(tip.listing.lowest_packed()).unwrap_or(RecordNumber::FIRST);
        let missing = tip.listing.missing_surely(world, first).await?;
        let open = world.get(&names::record(header.opened)).await?;
        let open = open.and_then(|bytes| Record::decode(&bytes).ok());
        Ok(Replicas {
            chain: header.chain,
            writer: open.as_ref().and_then(Record::open).cloned(),
            spans: spans(&snapshots, &parts, &missing, &header),
            snapshots: snapshots.iter().map(|known| shown(known, &parts)).collect(),
            unread,
            missing,
            tip: header,
            packs,
            loose,
        })
    }

    /// True if a snapshot leads to the newest record.
    pub fn is_newest_restorable(&self) -> bool {
        self.spans.last().is_some_and(|span| span.to == self.tip.number)
    }

    /// Requests so far that stores charge as writes, at least: a record each, packs, parts.
    pub fn writes(&self) -> u64 {
        let parts = self.snapshots.iter().map(|snapshot| snapshot.stored_bytes.div_ceil(1 << 20));
        self.tip.number.0 + self.packs as u64 + parts.sum::<u64>()
    }
}

fn shown((record, snapshot): &(RecordNumber, SnapshotRef), parts: &BTreeSet<String>) -> Snapshot {
    Snapshot {
        record: *record,
        as_of: snapshot.as_of,
        taken_ms: snapshot.taken_ms,
        database_bytes: u64::from(snapshot.page_bytes) * u64::from(snapshot.page_count),
        stored_bytes: snapshot.parts.each.iter().map(|p| u64::from(p.stored_bytes)).sum(),
        is_whole: snapshot.parent == RecordNumber::NONE,
        parts: snapshot.parts.each.len(),
        missing_parts: snapshot.parts.missing_in(parts),
    }
}

/// Leaves out the oldest snapshots, of which retention has removed the pages, or the records before packs that are there:
/// their own records go later. Where no other one is left, something else has removed that.
fn without_removed(
    mut snapshots: Vec<(RecordNumber, SnapshotRef)>,
    lowest_packed: Option<RecordNumber>,
    parts: &BTreeSet<String>,
) -> Vec<(RecordNumber, SnapshotRef)> {
    let mut removed = BTreeSet::new();
    for (number, snapshot) in &snapshots {
        let count = snapshot.parts.each.len();
        let is_removed = lowest_packed.is_some_and(|lowest| snapshot.first < lowest)
            || (count > 0 && snapshot.parts.missing_in(parts) == count)
            || removed.contains(&snapshot.parent);
        if !is_removed {
            break;
        }
        removed.insert(*number);
    }
    if removed.len() < snapshots.len() {
        snapshots.drain(..removed.len());
    }
    snapshots
}

/// What each snapshot leads to: from the record that completes it to the first one behind that which is missing, or to
/// the break. One whose parts are missing, or a parent's, leads nowhere.
fn spans(
    snapshots: &[(RecordNumber, SnapshotRef)],
    parts: &BTreeSet<String>,
    missing: &[Stretch],
    tip: &Header,
) -> Vec<Span> {
    let known: BTreeMap<_, _> = snapshots.iter().cloned().collect();
    let mut spans: Vec<Span> = Vec::new();
    for (number, snapshot) in snapshots {
        let lineage = lineage(&known, *number);
        let is_there =
            |(_, snapshot): &(RecordNumber, SnapshotRef)| snapshot.parts.missing_in(parts) == 0;
        if lineage.is_none_or(|lineage| !lineage.iter().all(is_there)) {
            continue;
        }
        let lacks = missing.iter().find(|(_, last)| *last >= snapshot.first);
        let mut to = lacks.map_or(tip.number, |(first, _)| first.before());
        if snapshot.as_of < tip.broken {
            to = to.min(tip.broken.before());
        }
        if to < snapshot.as_of {
            continue;
        }
        match spans.last_mut().filter(|last| snapshot.as_of <= last.to.next()) {
            Some(last) => last.to = last.to.max(to),
            None => spans.push(Span { from: snapshot.as_of, from_ms: snapshot.taken_ms, to }),
        }
    }
    spans
}

//! The snapshots of a chain: each record says which is the newest, and each snapshot which was before.

use bytes::Bytes;

use crate::apply::Lineage;
use crate::chain::{Found, Listing, Reader, Stretch};
use crate::error::{Error, Result};
use crate::ids::{ChainId, RecordNumber};
use crate::record::{BadRecord, Header, Item, Record, SnapshotRef, header_of};
use crate::world::World;

/// What is known of the snapshots of a chain.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Those that are there, ascending.
    pub snapshots: Vec<(RecordNumber, SnapshotRef)>,
    /// Why the records of others are of no use, the newest first: they are damaged, missing, or of another chain.
    pub unread: Vec<Error>,
}

/// The snapshots of a chain, from the record `newest` backwards. Where a snapshot's record is missing, damaged or of
/// another chain, the records before it tell which snapshot was before; where retention has removed it, that is the end.
///
/// # Errors
/// The store's.
pub async fn known_of(reader: &mut Reader, newest: RecordNumber, chain: ChainId) -> Result<Known> {
    let mut known = Known::default();
    let mut number = newest;
    while number != RecordNumber::NONE {
        let snapshot = match reader.object(number, true).await {
            Ok(Found::Object(bytes)) => snapshot_in(&bytes, number, chain),
            Ok(Found::Nothing) | Err(Error::Gone { .. }) => break,
            Err(error @ Error::Store { .. }) => return Err(error),
            Err(Error::Missing { .. }) if is_swept(reader, number, chain).await? => break,
            Err(error) => Err(error),
        };
        number = match snapshot {
            Ok(snapshot) => {
                let earlier = snapshot.earlier.min(number.before());
                known.snapshots.push((number, snapshot));
                earlier
            }
            Err(error) => {
                known.unread.push(error);
                before(reader, number, chain).await?
            }
        };
    }
    known.snapshots.reverse();
    Ok(known)
}

/// The same, without what the store has and refuses to give, as an archive does: that is returned with why, and the records of
/// others tell what was before it.
///
/// # Errors
/// The store's, but for refusals.
pub async fn known_but_for(
    world: &World,
    listing: &Listing,
    newest: RecordNumber,
    chain: ChainId,
) -> Result<(Known, Vec<(Stretch, Error)>)> {
    let mut reader = Reader::without(world, listing.clone(), Vec::new());
    let known = known_of(&mut reader, newest, chain).await?;
    Ok((known, reader.into_withheld()))
}

/// The snapshot in a record; `None` if that is missing, damaged, or another one.
///
/// # Errors
/// The store's.
pub async fn read(
    reader: &mut Reader,
    number: RecordNumber,
    chain: ChainId,
) -> Result<Option<SnapshotRef>> {
    match reader.object(number, true).await {
        Ok(Found::Object(bytes)) => Ok(snapshot_in(&bytes, number, chain).ok()),
        Err(error @ Error::Store { .. }) => Err(error),
        Ok(Found::Nothing) | Err(_) => Ok(None),
    }
}

/// A snapshot with those that it changes, the oldest first; `None` if one of them is not to be had.
///
/// # Errors
/// The store's.
pub async fn lineage_of(
    reader: &mut Reader,
    newest: RecordNumber,
    chain: ChainId,
) -> Result<Option<Lineage>> {
    let mut lineage = Lineage::new();
    let mut number = newest;
    while number != RecordNumber::NONE {
        let Some(snapshot) = read(reader, number, chain).await? else { return Ok(None) };
        // A parent is an earlier record, so this ends.
        let parent = snapshot.parent.min(number.before());
        lineage.push((number, snapshot));
        number = parent;
    }
    lineage.reverse();
    Ok(Some(lineage))
}

fn snapshot_in(bytes: &Bytes, number: RecordNumber, chain: ChainId) -> Result<SnapshotRef> {
    let name = || crate::names::record(number);
    let record =
        Record::decode(bytes).map_err(|why| Error::Record { number, name: name(), why })?;
    let unlinked = |why| Error::Unlinked { number, name: name(), why };
    let header = &record.header;
    if header.number != number {
        return Err(unlinked("it has another number"));
    }
    if header.chain != chain {
        return Err(unlinked("it is of another chain"));
    }
    let snapshot = record.items.into_iter().find_map(|item| match item {
        Item::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    });
    snapshot.ok_or_else(|| unlinked("it has no snapshot, though later ones say so"))
}

/// The newest snapshot before a record that is of no use, by the nearest header before it; none if
/// nothing is to be had there.
async fn before(reader: &mut Reader, number: RecordNumber, chain: ChainId) -> Result<RecordNumber> {
    let header = header_before(reader, number, chain).await?;
    Ok(header.map_or(RecordNumber::NONE, |header| header.snapshot.min(header.number)))
}

/// The nearest header of a chain before a record; `None` if none is to be had there.
///
/// # Errors
/// The store's.
pub async fn header_before(
    reader: &mut Reader,
    number: RecordNumber,
    chain: ChainId,
) -> Result<Option<Header>> {
    let mut number = there_before(reader, number);
    let mut unread = 0;
    let mut was_pack = false;
    while number != RecordNumber::NONE {
        let header = match reader.object(number, true).await {
            Ok(Found::Object(bytes)) => header_of(&bytes).ok(),
            Err(error @ Error::Store { .. }) => return Err(error),
            Ok(Found::Nothing) | Err(Error::Gone { .. }) => break,
            Err(error @ (Error::Pack { .. } | Error::Record { why: BadRecord::Unread, .. })) => {
                let is_pack = matches!(error, Error::Pack { .. });
                if std::mem::replace(&mut was_pack, is_pack) != is_pack {
                    unread = 0;
                }
                let before = if is_pack { before_pack } else { there_before };
                for _ in 0..stride(unread) {
                    number = before(reader, number);
                }
                unread += 1;
                continue;
            }
            Err(_) => None,
        };
        match header.filter(|header| header.number == number && header.chain == chain) {
            Some(header) => return Ok(Some(header)),
            None => number = there_before(reader, number),
        }
    }
    Ok(None)
}

/// Packs, and large records, in a row that are of no use, and are looked at one by one. An archive has thousands, a pack for
/// each minute in which much was committed.
pub(crate) const ONE_BY_ONE: u32 = 16;

/// How many to go back behind so many in a row that are of no use. What is passed over that could be read is no longer than
/// what cannot be: moments in it are not offered.
fn stride(unread: u32) -> u64 {
    1 << unread.saturating_sub(ONE_BY_ONE).min(16)
}

/// True if retention has removed a record that is missing: it begins with the oldest, and leaves OPENs alone.
async fn is_swept(reader: &mut Reader, number: RecordNumber, chain: ChainId) -> Result<bool> {
    let packs = reader.listing().map(|listing| &listing.packs);
    if packs.is_none_or(|packs| packs.iter().any(|(first, _)| *first < number)) {
        return Ok(false);
    }
    let mut of = there_before(reader, number);
    let mut is_swept = true;
    while is_swept && of != RecordNumber::NONE {
        let record = match reader.object(of, true).await {
            Ok(Found::Object(bytes)) => Record::decode(&bytes).ok(),
            Err(error @ Error::Store { .. }) => return Err(error),
            Ok(Found::Nothing) | Err(_) => None,
        };
        let record = record.filter(|record| record.header.chain == chain);
        is_swept = record.is_some_and(|record| record.open().is_some());
        of = there_before(reader, of);
    }
    Ok(is_swept)
}

/// The number before one, over those that are not listed.
fn there_before(reader: &Reader, number: RecordNumber) -> RecordNumber {
    reader.listing().map_or(number.before(), |listing| listing.last_below(number))
}

/// The number before all that the pack of one has.
pub(crate) fn before_pack(reader: &Reader, number: RecordNumber) -> RecordNumber {
    let pack = reader.listing().and_then(|listing| listing.pack_of(number));
    there_before(reader, pack.map_or(number, |(first, _)| first))
}

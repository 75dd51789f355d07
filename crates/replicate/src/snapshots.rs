//! The snapshots of a chain: each record says which is the newest, and each snapshot which was before.

use bytes::Bytes;

use crate::apply::Lineage;
use crate::chain::{Found, Reader};
use crate::error::{Error, Result};
use crate::ids::{ChainId, RecordNumber};
use crate::record::{Item, Record, SnapshotRef, header_of};

/// The snapshots of a chain, from the record `newest` backwards, ascending. Where a snapshot's record
/// is damaged or of another chain, the records before it tell which snapshot was before; where one is
/// not to be had, the list ends.
///
/// # Errors
/// The store's.
pub async fn known_of(
    reader: &mut Reader,
    newest: RecordNumber,
    chain: ChainId,
) -> Result<Vec<(RecordNumber, SnapshotRef)>> {
    let mut found = Vec::new();
    let mut number = newest;
    while number != RecordNumber::NONE {
        let bytes = match reader.object(number, true).await {
            Ok(Found::Object(bytes)) => bytes,
            Ok(Found::Nothing) => break,
            Err(error @ Error::Store { .. }) => return Err(error),
            Err(_) => break,
        };
        let Some(snapshot) = snapshot_in(&bytes, number, chain) else {
            number = before(reader, number, chain).await?;
            continue;
        };
        let earlier = snapshot.earlier.min(number.before());
        found.push((number, snapshot));
        number = earlier;
    }
    found.reverse();
    Ok(found)
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
        let bytes = match reader.object(number, true).await {
            Ok(Found::Object(bytes)) => bytes,
            Err(error @ Error::Store { .. }) => return Err(error),
            Ok(Found::Nothing) | Err(_) => return Ok(None),
        };
        let Some(snapshot) = snapshot_in(&bytes, number, chain) else { return Ok(None) };
        // A parent is an earlier record, so this ends.
        let parent = snapshot.parent.min(number.before());
        lineage.push((number, snapshot));
        number = parent;
    }
    lineage.reverse();
    Ok(Some(lineage))
}

fn snapshot_in(bytes: &Bytes, number: RecordNumber, chain: ChainId) -> Option<SnapshotRef> {
    let record = Record::decode(bytes).ok()?;
    let header = &record.header;
    let is_it = header.number == number && header.chain == chain;
    record.items.into_iter().find_map(|item| match item {
        Item::Snapshot(snapshot) if is_it => Some(snapshot),
        _ => None,
    })
}

/// The newest snapshot before a record that is of no use, by the nearest header before it; none if
/// nothing is to be had there.
async fn before(reader: &mut Reader, number: RecordNumber, chain: ChainId) -> Result<RecordNumber> {
    let mut number = number.before();
    while number != RecordNumber::NONE {
        let bytes = match reader.object(number, true).await {
            Ok(Found::Object(bytes)) => bytes,
            Err(error @ Error::Store { .. }) => return Err(error),
            Ok(Found::Nothing) | Err(_) => break,
        };
        match header_of(&bytes) {
            Ok(header) if header.number == number && header.chain == chain => {
                return Ok(header.snapshot.min(number));
            }
            _ => number = number.before(),
        }
    }
    Ok(RecordNumber::NONE)
}

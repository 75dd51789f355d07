//! The snapshots of a chain: each record says which is the newest, and each snapshot which was before.

use crate::chain::{Found, Reader};
use crate::error::{Error, Result};
use crate::ids::RecordNumber;
use crate::record::{Item, Record, SnapshotRef};

/// The snapshots of a chain, from the record `newest` backwards, ascending; those whose record is
/// not to be had end the list.
///
/// # Errors
/// The store's.
pub async fn known(
    reader: &mut Reader,
    newest: RecordNumber,
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
        let Ok(record) = Record::decode(&bytes) else { break };
        let is_it = record.header.number == number;
        let snapshot = record.items.into_iter().find_map(|item| match item {
            Item::Snapshot(snapshot) if is_it => Some(snapshot),
            _ => None,
        });
        let Some(snapshot) = snapshot else { break };
        let earlier = snapshot.earlier.min(number.before());
        found.push((number, snapshot));
        number = earlier;
    }
    found.reverse();
    Ok(found)
}

//! Where records of two histories meet.
//!
//! A backup that is copied into a place on which shipping had gone on from an earlier state puts its own records under the
//! numbers of others. Above them stand records of a writer whose OPEN, or the record before that, is another one now.
//! Nothing leads from below such a *seam* to what is above it, and the headers above do not tell.

use super::{Found, Opening, Reader};
use crate::error::{Error, Result};
use crate::ids::{Hash, RecordNumber};
use crate::record::{Follows, Header, Record};
use crate::snapshots::header_before;
use crate::world::World;

/// The records that have another history's before them, the newest first, as far as the writers of all records from `least`
/// to the tip tell: two reads for each. An OPEN that follows nothing needs nothing before it.
///
/// # Errors
/// The store's.
pub async fn seams(
    world: &World,
    reader: &mut Reader,
    tip: &Header,
    least: RecordNumber,
) -> Result<Vec<RecordNumber>> {
    let mut seams = Vec::new();
    let mut next = Some(tip.clone());
    while let Some(last) = next {
        let opened = last.opened.min(last.number);
        let (below, previous) = match Opening::of(world, reader, &last).await? {
            Opening::Another => {
                let seam = first_of_writer(reader, &last).await?;
                seams.extend((seam > least).then_some(seam));
                (seam, None)
            }
            Opening::There(open, previous) if open.follows != Follows::Nothing => {
                (opened, Some(previous))
            }
            Opening::There(..) | Opening::Missing | Opening::Refused => (opened, None),
        };
        if below <= least {
            break;
        }
        let before = before(reader, below).await?;
        if let Some(((_, hash), previous)) = before.as_ref().zip(previous)
            && *hash != previous
        {
            seams.push(below);
        }
        next = match before {
            Some((header, _)) if header.chain == tip.chain => Some(header),
            _ => header_before(reader, below, tip.chain).await?,
        };
    }
    Ok(seams)
}

/// The record just before one, and its hash; `None` if it is not to be had, or damaged.
async fn before(reader: &mut Reader, number: RecordNumber) -> Result<Option<(Header, Hash)>> {
    let before = number.before();
    let bytes = match reader.object(before, true).await {
        Ok(Found::Object(bytes)) => bytes,
        Err(error @ Error::Store { .. }) => return Err(error),
        Ok(Found::Nothing) | Err(_) => return Ok(None),
    };
    let header = Record::decode(&bytes).ok().map(|record| record.header);
    let header = header.filter(|header| header.number == before);
    Ok(header.map(|header| (header, Hash::of(&bytes))))
}

/// The first record of a writer that stands, where another history's record stands at its OPEN. `last` is its last one.
async fn first_of_writer(reader: &mut Reader, last: &Header) -> Result<RecordNumber> {
    let (mut others, mut end, mut first) = (last.opened, last.number, last.number);
    while end.0.saturating_sub(others.0) > 1 {
        let middle = RecordNumber(others.0 + (end.0 - others.0) / 2);
        match readable_from(reader, middle, end).await? {
            Some(header) if header.nonce == last.nonce => (first, end) = (header.number, middle),
            Some(header) => others = header.number,
            None => end = middle,
        }
    }
    Ok(first)
}

/// The header of the first record that is sound, of those from one number to before another that are listed.
async fn readable_from(
    reader: &mut Reader,
    from: RecordNumber,
    end: RecordNumber,
) -> Result<Option<Header>> {
    let mut number = from;
    while number < end {
        let mut next = number.next();
        let found = match reader.object(number, true).await {
            Ok(Found::Object(bytes)) => Record::decode(&bytes).ok(),
            Err(error @ Error::Store { .. }) => return Err(error),
            Err(Error::Pack { .. }) => {
                let pack = reader.listing().and_then(|listing| listing.pack_of(number));
                next = pack.map_or(next, |(_, last)| last.next());
                None
            }
            Ok(Found::Nothing) | Err(_) => None,
        };
        let header = found.map(|record| record.header);
        if let Some(header) = header.filter(|header| header.number == number) {
            return Ok(Some(header));
        }
        number = reader.listing().map_or(next, |listing| listing.first_from(next));
    }
    Ok(None)
}

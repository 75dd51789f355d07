//! The newest record of a chain.

use bytes::Bytes;

use super::{Found, Link, Listing, Reader};
use crate::error::{Error, Result};
use crate::ids::{Hash, RecordNumber};
use crate::record::Record;
use crate::world::World;

/// How often a restore looks again where a list shows more than it has found.
const LOOKS: usize = 3;

/// The newest record, as it was found.
#[derive(Clone, Debug)]
pub struct Tip {
    /// The record.
    pub record: Record,
    /// Its hash.
    pub hash: Hash,
    /// Its object.
    pub bytes: Bytes,
    /// It is damaged, and its header stands for it.
    pub is_damaged: bool,
    /// The list by which it was found.
    pub listing: Listing,
}

/// Finds the newest record, and lists once more whether something is behind it: the list by which it
/// was found may have been an old one. `None` if there is no chain. Another writer may have made more
/// by the time it returns.
///
/// # Errors
/// [`Error::Record`] if the newest record is damaged, and the store's.
pub async fn find_newest(world: &World) -> Result<Option<Tip>> {
    let mut tip = find(world).await?;
    // A writer that goes on is not waited for without end.
    for _ in 0..LOOKS {
        let found = tip.as_ref().map_or(RecordNumber::NONE, |tip| tip.record.header.number);
        if Listing::make(world).await?.highest() <= found {
            break;
        }
        tip = find(world).await?;
    }
    Ok(tip)
}

/// Finds the newest record by one list; `None` if there is no chain. Another writer may have made
/// more by the time it returns, and a list that lacks records may end it early.
///
/// # Errors
/// [`Error::Record`] if the newest record is damaged, and the store's.
pub async fn find(world: &World) -> Result<Option<Tip>> {
    'look: loop {
        let listing = Listing::make(world).await?;
        let highest = listing.highest();
        if highest == RecordNumber::NONE {
            return Ok(None);
        }
        let mut reader = Reader::with(world, listing.clone());
        let mut link = Link::before(None, highest);
        let mut found = match reader.object(highest, false).await {
            Ok(Found::Object(bytes)) => bytes,
            // It was packed and deleted since the list was made, or retention has passed by.
            Ok(Found::Nothing) | Err(Error::Gone { .. } | Error::Missing { .. }) => {
                refuse_vanished(world, highest).await?;
                continue;
            }
            Err(other) => return Err(other),
        };
        let mut record = link.follow(&found)?;
        // What came meanwhile.
        loop {
            match reader.object(link.number.next(), false).await {
                Ok(Found::Object(bytes)) => {
                    record = link.follow(&bytes)?;
                    found = bytes;
                }
                Ok(Found::Nothing) => break,
                // This took so long that what comes next is gone already. If it was removed, the
                // next list has a hole there, below its highest.
                Err(Error::Gone { .. } | Error::Missing { .. }) => continue 'look,
                Err(other) => return Err(other),
            }
        }
        let hash = Hash::of(&found);
        return Ok(Some(Tip { record, hash, bytes: found, is_damaged: false, listing }));
    }
}

/// Fails if a record is listed and cannot be read, though nothing behind it was made since.
async fn refuse_vanished(world: &World, highest: RecordNumber) -> Result<()> {
    let again = Listing::make(world).await?;
    if again.highest() > highest || again.pack_of(highest).is_some() {
        return Ok(());
    }
    let name = crate::names::record(highest);
    match world.get(&name).await? {
        None if again.loose.contains(&highest) => Err(Error::Missing { number: highest, name }),
        // A list may show what was deleted during it.
        _ => Ok(()),
    }
}

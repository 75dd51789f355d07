//! What can be restored from a place: for people.

use crate::chain::{Listing, Reader, find_tip};
use crate::error::{Error, Result};
use crate::ids::{ChainId, RecordNumber};
use crate::names;
use crate::record::{Header, Open, Record};
use crate::snapshots;
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
    /// Packs that are there.
    pub packs: usize,
    /// Records in `chain/`, in the folders that were listed.
    pub loose: usize,
    /// A record that is missing.
    pub hole: Option<RecordNumber>,
}

impl Replicas {
    /// Looks at a place.
    ///
    /// # Errors
    /// [`Error::Empty`], damage at the end of the chain, and the store's.
    pub async fn look(world: &World) -> Result<Replicas> {
        let tip = find_tip(world).await?.ok_or(Error::Empty)?;
        let Listing { packs, loose } = &tip.listing;
        let (packs, loose) = (packs.len(), loose.len());
        let header = tip.record.header;
        let mut reader = Reader::with(world, tip.listing);
        let known = snapshots::known_of(&mut reader, header.snapshot, header.chain).await?;
        let open = world.get(&names::record(header.opened)).await?;
        let open = open.and_then(|bytes| Record::decode(&bytes).ok());
        let snapshots = known.into_iter().map(|(record, snapshot)| Snapshot {
            record,
            as_of: snapshot.as_of,
            taken_ms: snapshot.taken_ms,
            database_bytes: u64::from(snapshot.page_bytes) * u64::from(snapshot.page_count),
            stored_bytes: snapshot.parts.each.iter().map(|p| u64::from(p.stored_bytes)).sum(),
            is_whole: snapshot.parent == RecordNumber::NONE,
        });
        Ok(Replicas {
            chain: header.chain,
            writer: open.as_ref().and_then(Record::open).cloned(),
            snapshots: snapshots.collect(),
            tip: header,
            packs,
            loose,
            hole: tip.hole,
        })
    }

    /// True if a snapshot leads to the newest record.
    pub fn is_newest_restorable(&self) -> bool {
        self.snapshots.last().is_some_and(|newest| newest.as_of >= self.tip.broken)
    }

    /// Requests so far that stores charge as writes, at least: a record each, packs, parts.
    pub fn writes(&self) -> u64 {
        let parts = self.snapshots.iter().map(|snapshot| snapshot.stored_bytes.div_ceil(1 << 20));
        self.tip.number.0 + self.packs as u64 + parts.sum::<u64>()
    }
}

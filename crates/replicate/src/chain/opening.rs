//! The OPEN of a record's writer.

use super::{Found, Reader};
use crate::error::{Error, Result};
use crate::ids::Hash;
use crate::names;
use crate::record::{Header, Open, Record};
use crate::world::World;

/// What stands where the writer of a record has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Its OPEN, and the hash of the record before that.
    There(Open, Hash),
    /// Nothing that can be read.
    Missing,
    /// Another record: the place has records of two histories.
    Another,
    /// What the store does not give.
    Refused,
}

impl Opening {
    /// Reads it as a reader of the chain does, and in `chain/` where that finds nothing, or its pack is out of reach: an OPEN is
    /// never deleted (CHAIN-8).
    ///
    /// # Errors
    /// The store's.
    pub async fn of(world: &World, reader: &mut Reader, header: &Header) -> Result<Opening> {
        let read = match reader.object(header.opened, true).await {
            Ok(Found::Object(bytes)) => Some(bytes),
            packed => match (world.get(&names::record(header.opened)).await, packed) {
                (Ok(Some(bytes)), _) => Some(bytes),
                (_, Err(error @ Error::Store { .. })) => return Err(error),
                (Err(error), _) if error.is_refusal() => return Ok(Opening::Refused),
                (found, _) => found?,
            },
        };
        let Some(record) = read.and_then(|bytes| Record::decode(&bytes).ok()) else {
            return Ok(Opening::Missing);
        };
        Ok(match record.open() {
            Some(open) if record.header.nonce == header.nonce => {
                Opening::There(open.clone(), record.header.previous)
            }
            _ => Opening::Another,
        })
    }

    /// The OPEN, if it is there.
    pub fn open(&self) -> Option<&Open> {
        match self {
            Opening::There(open, _) => Some(open),
            Opening::Missing | Opening::Another | Opening::Refused => None,
        }
    }
}

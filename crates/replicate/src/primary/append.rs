//! One record made, and known to be there.

use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::fault::{Fault, is_planted};
use crate::ids::{Hash, RecordNumber};
use crate::names;
use crate::record::{Header, Item, Record};
use crate::store::{Backoff, Created, StoreError};
use crate::world::World;

use super::{Sidecar, Writer};

/// What became of a record.
pub enum Outcome {
    /// It is there.
    Known,
    /// Another one is.
    Taken(Bytes),
}

/// Makes a record, however long it takes (STORE-4).
///
/// # Errors
/// The store's, where the world's patience has an end; that the place is gone: the caller finds out what has its name.
pub async fn create(world: &World, number: RecordNumber, bytes: &Bytes) -> Result<Outcome> {
    let name = names::record(number);
    let mut backoff = Backoff::default();
    loop {
        let error = match world.try_create(&name, bytes).await {
            Ok(Created::Made) => return Ok(Outcome::Known),
            Ok(Created::Exists) if is_planted(Fault::NonceUnread) => return Ok(Outcome::Known),
            Ok(Created::Exists) => match world.get(&name).await? {
                Some(found) if found == *bytes => return Ok(Outcome::Known),
                Some(found) => return Ok(Outcome::Taken(found)),
                // The store has refused one of two requests that met, or both.
                None => neither_made_nor_there(&name),
            },
            Err(_) if is_planted(Fault::NumberAhead) => return Ok(Outcome::Known),
            Err(error) if error.is_gone() => return Err(error),
            Err(error) => error,
        };
        // The last answer may have been none of a failure.
        world.note_trouble(&error);
        world.pause(&mut backoff, error).await?;
    }
}

/// Why an object cannot be made that is not there.
pub fn neither_made_nor_there(name: &str) -> Error {
    let why = "it says that the object exists, and that it does not: where that stays so, something else has its name, as a \
               folder, a pipe or a link that leads nowhere; move that away";
    let error = StoreError::Failed(why.to_owned());
    Error::Store { what: "create".to_owned(), name: name.to_owned(), error }
}

/// Says whose record it is.
pub fn author_of(bytes: &Bytes) -> String {
    match Record::decode(bytes) {
        Ok(Record { header, items }) => match items.first() {
            Some(Item::Open(open)) => format!("{} (epoch {})", open.host, header.epoch),
            _ => format!("another sidecar (epoch {}, {})", header.epoch, header.nonce),
        },
        Err(why) => format!("something else ({why})"),
    }
}

/// A clock that is set back by so much or less is waited for.
const SET_BACK_MS: u64 = 24 * 3600 * 1000;

/// When a record is written, behind one that was written at `before_ms`: not earlier, so that times
/// ascend with numbers and a time names one moment. A clock that was set back by more than a day was
/// wrong for long, and is believed.
pub fn stamp(world: &World, before_ms: u64) -> u64 {
    let now_ms = world.clock().wall_ms();
    match before_ms.checked_sub(now_ms) {
        Some(back_ms) if back_ms <= SET_BACK_MS => before_ms,
        _ => now_ms,
    }
}

impl Writer {
    /// The header of the next record, but for what its items move.
    pub fn next_header(&self, world: &World) -> Header {
        Header {
            number: self.tip.number.next(),
            previous: self.tip_hash,
            written_ms: stamp(world, self.tip.written_ms),
            ..self.tip.clone()
        }
    }

    /// Moves behind a record that is known.
    pub fn moved(&mut self, header: Header, bytes: &Bytes) {
        self.tip = header;
        self.tip_hash = Hash::of(bytes);
    }
}

impl Sidecar {
    /// Makes a record of these items, and tells the database when it is known.
    ///
    /// # Errors
    /// [`Error::Fenced`], [`Error::Disorder`].
    pub(super) async fn append(&mut self, items: Vec<Item>) -> Result<()> {
        self.last_record = self.world.clock().now();
        let mut header = self.writer.next_header(&self.world);
        let number = header.number;
        for item in &items {
            self.flow.take(number, item)?;
        }
        self.tracks.note(&items, number, header.written_ms);
        header.position = self.flow.position;
        header.first =
            self.tracks.first_above(header.position.base).unwrap_or_else(|| number.next());
        if items.iter().any(|item| matches!(item, Item::Snapshot(_))) {
            header.snapshot = number;
        }
        let record = Record { header, items };
        if record.is_break() {
            return self
                .append_record(Record {
                    header: Header { broken: number, ..record.header },
                    items: record.items,
                })
                .await;
        }
        self.append_record(record).await
    }

    /// Makes a record, in the place of the own OPEN alone.
    async fn make(&mut self, number: RecordNumber, bytes: &Bytes) -> Result<Outcome> {
        let mut backoff = Backoff::default();
        loop {
            match create(&self.world, number, bytes).await {
                Err(error) if error.is_gone() => {
                    // Another folder may have the name, or an earlier state of this one.
                    if self.check_place(Duration::ZERO).await? {
                        self.check_last().await?;
                    }
                    self.world.pause(&mut backoff, error).await?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Fails if the last record is gone: what is made behind it could not be reached.
    async fn check_last(&mut self) -> Result<()> {
        let number = self.writer.tip.number;
        let name = names::record(number);
        match self.once.try_get(&name).await {
            Ok(None) => Err(Error::PutBack { number, name }),
            // A store that does not answer is the next call's trouble.
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    async fn append_record(&mut self, record: Record) -> Result<()> {
        let number = record.header.number;
        let bytes = record.encode();
        if is_planted(Fault::ShippedEarly) {
            self.source.shipped(Hash::of(&bytes), &record.header.position, true);
        }
        match self.make(number, &bytes).await? {
            Outcome::Known => {}
            Outcome::Taken(found) => return Err(Error::Fenced { number, by: author_of(&found) }),
        }
        self.writer.moved(record.header.clone(), &bytes);
        self.snapshots.note(&record);
        self.note_restorable();
        let is_restorable = self.is_restorable();
        self.source.shipped(self.writer.tip_hash, &record.header.position, is_restorable);
        let large = self.settings.large_bytes;
        self.packing.note(&record, &bytes, self.writer.tip_hash, large);
        self.note_named(&record);
        Ok(())
    }
}

//! Small records into packs, and out of `chain/`.
//!
//! The tip is never packed. A record that cannot be read any more stays where it is, and the packs
//! go on behind it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::append::neither_made_nor_there;
use super::{DELETE_TRIES, Retry, Settings, Sidecar};
use crate::error::{Error, Result};
use crate::fault::{Fault, is_planted};
use crate::ids::{Hash, RecordNumber};
use crate::names;
use crate::pack::{self, Packed, RECORDS_MAX};
use crate::record::Record;
use crate::store::Created;
use crate::world::World;

/// What a sidecar does about packs.
pub struct Packing {
    /// The first record that no pack has.
    from: RecordNumber,
    /// Records from there on that this sidecar has made, or read again.
    ready: BTreeMap<RecordNumber, Packed>,
    bytes: usize,
    last: Duration,
    /// A pack that is being made.
    making: Option<Making>,
    /// A record was removed from `chain/` that the next pack brings back: that is due at once.
    is_urgent: bool,
    /// Records that a pack has.
    to_delete: VecDeque<RecordNumber>,
    /// Deletions that have failed in a row.
    failures: u32,
    /// The store refuses deletions: until then none is asked for (REFUSED-2).
    refused_until: Duration,
    retry: Retry,
}

struct Making {
    name: String,
    bytes: Bytes,
    last: RecordNumber,
}

impl Packing {
    pub(super) fn new(from: RecordNumber, now: Duration) -> Packing {
        Packing {
            from,
            ready: BTreeMap::new(),
            bytes: 0,
            last: now,
            making: None,
            is_urgent: false,
            to_delete: VecDeque::new(),
            failures: 0,
            refused_until: Duration::ZERO,
            retry: Retry::default(),
        }
    }

    /// A deletion has failed, and is no refusal: a disk may keep one file for ever. Others are tried, and behind a few
    /// failures the next pack is (REFUSED-2).
    fn note_failed(&mut self, some: usize) {
        self.failures += 1;
        match self.failures < DELETE_TRIES {
            true => self.to_delete.rotate_left(some),
            false => self.to_delete.clear(),
        }
    }

    /// Takes a record that is known.
    pub(super) fn note(&mut self, record: &Record, bytes: &Bytes, hash: Hash, large: usize) {
        let is_open = record.open().is_some();
        let packed = Packed::new(bytes, hash, record.header.written_ms, is_open, large);
        self.bytes += packed.bytes.as_ref().map_or(0, Bytes::len);
        self.ready.insert(record.header.number, packed);
    }

    /// True for a record that a pack will have, whatever becomes of it in `chain/`; one is due then.
    pub(super) fn brings_back(&mut self, number: RecordNumber) -> bool {
        let has = self.ready.get(&number).is_some_and(|packed| packed.bytes.is_some());
        self.is_urgent |= has;
        has
    }

    /// The last record that a pack may have now; none if no pack is due.
    fn due(&self, tip: RecordNumber, now: Duration, settings: &Settings) -> RecordNumber {
        let last = tip.before().min(RecordNumber(self.from.0 + RECORDS_MAX - 1));
        let is_full = self.bytes >= settings.pack_bytes || last.0 + 1 == self.from.0 + RECORDS_MAX;
        let is_many = last.0 + 1 >= self.from.0 + settings.pack_records;
        let is_due = self.is_urgent
            || is_full
            || is_many && now.saturating_sub(self.last) >= settings.pack_every;
        // A pack of one record would spare nobody anything.
        if is_due && last > self.from { last } else { RecordNumber::NONE }
    }
}

impl Sidecar {
    /// Does a piece of packing; false if there is nothing to do.
    pub(super) async fn pack_some(&mut self) -> bool {
        if self.packing.retry.is_waiting(&self.world) {
            return false;
        }
        if !self.packing.to_delete.is_empty() {
            let some = self.packing.to_delete.len().min(self.once.deletes_at_once());
            let names: Vec<String> = self
                .packing
                .to_delete
                .iter()
                .take(some)
                .map(|number| names::record(*number))
                .collect();
            let deleted = self.once.try_delete(&names).await;
            if deleted.as_ref().is_err_and(Error::is_refusal) {
                self.packing.to_delete.clear();
                let now = self.world.clock().now();
                self.packing.refused_until = now + self.settings.sweep_every;
            } else if self.packing.retry.note(&self.world, deleted).is_some() {
                self.packing.to_delete.drain(..some);
                self.packing.failures = 0;
            } else {
                self.packing.note_failed(some);
            }
            return true;
        }
        if self.packing.making.is_none() {
            let now = self.world.clock().now();
            let last = self.packing.due(self.writer.tip.number, now, &self.settings);
            if last == RecordNumber::NONE {
                return false;
            }
            return self.gather(last).await;
        }
        self.put_pack().await;
        true
    }

    /// Reads what is missing of the records through `last`, one at a time, then encodes a pack.
    async fn gather(&mut self, last: RecordNumber) -> bool {
        let from = self.packing.from;
        let numbers = (from.0..=last.0).map(RecordNumber);
        let mut missing = numbers.filter(|number| !self.packing.ready.contains_key(number));
        if let Some(number) = missing.next() {
            let read = read_again(&self.once, number, self.settings.large_bytes).await;
            match self.packing.retry.note(&self.world, read) {
                None => {}
                Some(Some(packed)) => {
                    self.packing.ready.insert(number, packed);
                }
                // It is damaged, or was removed: what is before it makes a pack, or stays.
                Some(None) if number.0 > from.0 + 1 => self.encode_pack(number.before()),
                Some(None) => self.skip_through(number),
            }
            return true;
        }
        self.encode_pack(last);
        true
    }

    fn skip_through(&mut self, number: RecordNumber) {
        self.packing.from = number.next();
        self.packing.ready.retain(|of, _| *of > number);
    }

    fn encode_pack(&mut self, last: RecordNumber) {
        let from = self.packing.from;
        let records: Vec<Packed> =
            self.packing.ready.range(from..=last).map(|(_, packed)| packed.clone()).collect();
        let bytes = pack::encode(self.writer.chain, from, &records);
        self.packing.making = Some(Making { name: names::pack(from, last), bytes, last });
        if is_planted(Fault::DeletedUnpacked) {
            self.delete_packed(last);
        }
    }

    async fn put_pack(&mut self) {
        let Some(Making { name, bytes, last }) = &self.packing.making else { return };
        let last = *last;
        // Of this name there is none with other records in it.
        let made = match self.once.try_create(name, bytes).await {
            Ok(Created::Made) => Ok(()),
            Ok(Created::Exists) => match self.once.get(name).await {
                Ok(Some(_)) => Ok(()),
                Ok(None) => {
                    let error = neither_made_nor_there(name);
                    self.world.note_trouble(&error);
                    Err(error)
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if self.packing.retry.note(&self.world, made).is_none() {
            return;
        }
        self.delete_packed(last);
        self.packing.making = None;
        self.packing.is_urgent = false;
        self.packing.last = self.world.clock().now();
        self.packing.ready.retain(|number, _| *number > last);
        let kept = self.packing.ready.values().filter_map(|packed| packed.bytes.as_ref());
        self.packing.bytes = kept.map(Bytes::len).sum();
        self.packing.from = last.next();
    }

    /// Lists what a pack has for deletion: neither OPENs nor large records (CHAIN-8, CHAIN-9).
    fn delete_packed(&mut self, last: RecordNumber) {
        if self.world.clock().now() < self.packing.refused_until {
            return;
        }
        let from = self.packing.from;
        let may_go = |packed: &Packed| {
            packed.bytes.is_some() && (!packed.is_open || is_planted(Fault::OpenDeleted))
        };
        let packed = self.packing.ready.range(from..=last);
        let numbers = packed.filter(|(_, packed)| may_go(packed)).map(|(number, _)| *number);
        self.packing.to_delete.extend(numbers);
        self.packing.failures = 0;
    }
}

/// Reads a record of an earlier epoch; `None` if it is not to be had.
async fn read_again(world: &World, number: RecordNumber, large: usize) -> Result<Option<Packed>> {
    let Some(bytes) = world.get(&names::record(number)).await? else { return Ok(None) };
    Ok(Record::decode(&bytes).ok().filter(|record| record.header.number == number).map(|record| {
        let is_open = record.open().is_some();
        Packed::new(&bytes, Hash::of(&bytes), record.header.written_ms, is_open, large)
    }))
}

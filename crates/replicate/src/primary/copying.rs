//! A copy of the base, put in parts.
//!
//! The copy is read in one read transaction of the database, and put part by part, between records.
//!
//! | step | then |
//! |---|---|
//! | the base is copied | it is known which snapshot this one may change, and with which sums |
//! | that is known | pages are read, those that have changed gathered, and parts put |
//! | the last part is put | it is whole: `snapshot.rs` names it |
//!
//! A snapshot has the changed pages alone where the sums of the newest one are on the shelf (`sums.rs`),
//! whatever has come between: a break, another session, another start of the sidecar. A restore has
//! to read all that it builds on, so there is an end to that.
//!
//! - LINEAGE-1 A snapshot changes the newest one of the chain, or none. All records that this one
//!   builds on can be read, and all their parts are listed, when the upload begins.
//! - LINEAGE-2 A snapshot is whole if the last whole one is as old as a snapshot may become
//!   (`snapshot_every`, 24 hours), or [`CHANGES_IN_A_ROW`] have built on it, or these have half as many
//!   bytes as it has. So a restore reads at most two and a half times what is in a whole one, but
//!   where the database has grown since.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use super::Sidecar;
use super::ending;
use super::sums::{self, About, Known, Summing};
use crate::apply::Lineage;
use crate::chain::Reader;
use crate::error::{Error, Result};
use crate::fault::{Fault, is_planted};
use crate::ids::{Hash, RecordNumber};
use crate::names::{self, Upload};
use crate::record::item::{PART_BYTES_MAX, each_page, push_page};
use crate::record::{Part, Parts};
use crate::snapshots;
use crate::source::{BaseCopy, SourceError};

/// A part is made once and read rarely.
const LEVEL: i32 = 3;
/// So many snapshots in a row may have changed pages alone.
const CHANGES_IN_A_ROW: usize = 32;
/// A snapshot has so many parts at most: 8 MB of the record that names them, which has 16.
const PARTS_MAX: u64 = 200_000;
/// Bytes of a page's number in a part.
const NUMBER_BYTES: u64 = 4;

/// A copy that is being made.
pub struct Copying {
    pub(super) copy: BaseCopy,
    pub(super) upload: Upload,
    /// The snapshot whose pages are left out.
    pub(super) parent: RecordNumber,
    /// `None` until the parent is known.
    pub(super) summing: Option<Summing>,
    pub(super) each: Vec<Part>,
    /// Bytes of pages in a part.
    part_bytes: usize,
    /// Pages that no part has yet.
    gathered: Vec<u8>,
    /// Parts that are to be put, the first with this index.
    pending: VecDeque<Bytes>,
    is_read: bool,
}

/// Compresses pages into a part.
pub fn part_of(raw: &[u8]) -> (Part, Bytes) {
    let stored = zstd::bulk::compress(raw, LEVEL).expect("memory takes what is compressed");
    let part = Part {
        stored_bytes: stored.len() as u32,
        raw_bytes: raw.len() as u32,
        hash: Hash::of(&stored),
    };
    (part, stored.into())
}

/// Bytes of a part in a snapshot of so many pages, `least` if that is enough.
///
/// # Errors
/// In words: no record could name so many parts.
fn part_bytes_for(page_bytes: u32, page_count: u32, least: usize) -> Result<usize, String> {
    let entry_bytes = u64::from(page_bytes) + NUMBER_BYTES;
    let needed = (entry_bytes * u64::from(page_count)).div_ceil(PARTS_MAX) + entry_bytes;
    if needed > u64::from(PART_BYTES_MAX) {
        let most = (u64::from(PART_BYTES_MAX) - entry_bytes) * PARTS_MAX / entry_bytes;
        return Err(format!(
            "the database has {page_count} pages of {page_bytes} bytes, and a snapshot takes {most}: no \
             replica can be begun, and none goes on over a break; divide the database"
        ));
    }
    Ok((needed as usize).max(least))
}

impl Copying {
    /// True if all of it was put.
    pub(super) fn is_whole(&self) -> bool {
        self.is_read && self.pending.is_empty()
    }

    /// Takes pages of the base: what the parent has too is left out.
    fn take(&mut self, list: &[u8]) -> Result<()> {
        let bad = || Error::Source("the database gave pages that are no list of pages".to_owned());
        let entry_bytes = self.copy.page_bytes as usize + NUMBER_BYTES as usize;
        for (number, page) in each_page(list, self.copy.page_bytes).ok_or_else(bad)? {
            let is_changed =
                self.summing.as_mut().is_none_or(|summing| summing.is_changed(number, page));
            if is_changed {
                if self.gathered.len() + entry_bytes > self.part_bytes {
                    self.end_part();
                }
                push_page(&mut self.gathered, number, page);
            }
        }
        Ok(())
    }

    fn end_part(&mut self) {
        if !self.gathered.is_empty() {
            let (part, bytes) = part_of(&std::mem::take(&mut self.gathered));
            self.each.push(part);
            self.pending.push_back(bytes);
        }
    }

    /// The part that is to be put next, with its name.
    fn next_part(&self) -> Option<(String, Bytes)> {
        let index = self.each.len() - self.pending.len();
        let bytes = self.pending.front()?.clone();
        Some((names::part(self.upload, index as u32), bytes))
    }
}

/// So often what the next snapshot may change is asked for: a minute or two.
const TRIES_OF_PARENT: u32 = 14;

impl Sidecar {
    /// Does a piece of a snapshot, if one is due; false if there is nothing to do.
    pub(super) async fn copy_some(&mut self) -> Result<bool> {
        if self.snapshots.retry.is_waiting(&self.world) {
            return Ok(false);
        }
        let Some(mut copying) = self.snapshots.copying.take() else {
            let wall_ms = self.world.clock().wall_ms();
            return if self.snapshots.is_due(&self.flow.position, wall_ms, &self.settings) {
                self.begin_copy()
            } else {
                Ok(false)
            };
        };
        if copying.is_whole() {
            self.snapshots.copying = Some(copying);
            return Ok(false);
        }
        if copying.summing.is_none() {
            self.begin_sums(&mut copying).await;
        } else if let Some((name, bytes)) = copying.next_part() {
            let is_left_out = is_planted(Fault::NamedEarly) && copying.each.len() == 2;
            let put = if is_left_out { Ok(()) } else { self.once.try_put(&name, &bytes).await };
            if self.snapshots.retry.note(&self.world, put).is_some() {
                copying.pending.pop_front();
            }
        } else {
            match copying.copy.pages.next(self.settings.part_bytes) {
                Ok(Some(list)) => copying.take(&list)?,
                Ok(None) => {
                    copying.end_part();
                    copying.is_read = true;
                }
                Err(error) => return self.give_up_copy(error),
            }
        }
        self.snapshots.copying = Some(copying);
        Ok(true)
    }

    fn begin_copy(&mut self) -> Result<bool> {
        let copy = match self.source.base(self.tracks.least()) {
            Ok(Some(copy)) => copy,
            Ok(None) => {
                self.snapshots.retry.not_before = self.world.clock().now() + self.soon();
                return Ok(false);
            }
            Err(error) => return self.give_up_copy(error),
        };
        let part_bytes = part_bytes_for(copy.page_bytes, copy.page_count, self.settings.part_bytes);
        let part_bytes = match part_bytes {
            Ok(part_bytes) => part_bytes,
            Err(why) => return self.give_up_copy(SourceError::Later(why)),
        };
        self.world.note_snapshot_trouble(None);
        self.snapshots.copying = Some(Copying {
            copy,
            upload: self.writer.next_upload(),
            parent: RecordNumber::NONE,
            summing: None,
            each: Vec::new(),
            part_bytes,
            gathered: Vec::new(),
            pending: VecDeque::new(),
            is_read: false,
        });
        Ok(true)
    }

    /// Finds what a copy may change, or waits for the store.
    async fn begin_sums(&mut self, copying: &mut Copying) {
        let found = self.find_parent(copying.copy.page_bytes).await;
        let Some(found) = self.snapshots.retry.note(&self.world, found) else { return };
        let (number, parent) = found.unzip();
        let about = About {
            chain: self.writer.chain,
            upload: copying.upload,
            page_bytes: copying.copy.page_bytes,
            page_count: copying.copy.page_count,
            key: self.world.random().name(),
        };
        copying.parent = number.unwrap_or(RecordNumber::NONE);
        copying.summing = Some(Summing::begin(self.source.shelf(), about, parent));
    }

    /// The snapshot that the next one may change, with the sums of its pages (LINEAGE-1, LINEAGE-2).
    async fn find_parent(&self, page_bytes: u32) -> Result<Option<(RecordNumber, Known)>> {
        let number = self.writer.tip.snapshot;
        let Some(shelf) = self.source.shelf() else { return Ok(None) };
        // Most often it is not there where it does not count.
        if self.snapshots.is_whole_needed()
            || number == RecordNumber::NONE
            || !matches!(shelf.read(), Ok(Some(_)))
        {
            return Ok(None);
        }
        let mut reader = Reader::new(&self.once);
        let lineage = match snapshots::lineage_of(&mut reader, number, self.writer.chain).await {
            // A record in an archive, say: nobody restores from it, either.
            Err(_) if self.snapshots.retry.tries() >= TRIES_OF_PARENT => None,
            lineage => lineage?,
        };
        let Some(lineage) = lineage.filter(|lineage| self.may_go_on(lineage, page_bytes)) else {
            return Ok(None);
        };
        let Some((_, newest)) = lineage.last() else { return Ok(None) };
        // What cannot be read does not count.
        let known = sums::known(shelf, self.writer.chain, newest).ok().flatten();
        let Some(known) = known else { return Ok(None) };
        let is_there = self.are_parts_there(&lineage).await?;
        Ok(is_there.then_some((number, known)))
    }

    /// LINEAGE-2.
    fn may_go_on(&self, lineage: &Lineage, page_bytes: u32) -> bool {
        let Some(((_, whole), changes)) = lineage.split_first() else { return false };
        let bytes = |parts: &Parts| parts.each.iter().map(|p| u64::from(p.raw_bytes)).sum::<u64>();
        let changed: u64 = changes.iter().map(|(_, change)| bytes(&change.parts)).sum();
        let age_ms = self.world.clock().wall_ms().saturating_sub(whole.taken_ms);
        changes.len() < CHANGES_IN_A_ROW
            && changed < bytes(&whole.parts) / 2
            && u128::from(age_ms) < self.settings.snapshot_every.as_millis()
            && lineage.iter().all(|(_, snapshot)| snapshot.page_bytes == page_bytes)
    }

    async fn are_parts_there(&self, lineage: &Lineage) -> Result<bool> {
        let names: BTreeSet<String> = self.once.list(names::PARTS).await?.into_iter().collect();
        Ok(lineage.iter().all(|(_, snapshot)| snapshot.parts.missing_in(&names) == 0))
    }

    /// The database cannot be read for now: the copy begins anew later.
    fn give_up_copy(&mut self, error: SourceError) -> Result<bool> {
        let text = error.to_string();
        if let Some(end) = ending(error) {
            return Err(end);
        }
        self.world.note_snapshot_trouble(Some(text.clone()));
        self.snapshots.retry.note::<()>(&self.world, Err(Error::Source(text)));
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_large_as_a_record_can_name_them_all() {
        let of = |page_count| part_bytes_for(4096, page_count, 4 << 20);
        assert_eq!(of(1), Ok(4 << 20));
        assert_eq!(of(200_000_000), Ok(4 << 20), "0.8 TB");
        assert!(of(400_000_000).is_ok_and(|bytes| bytes > 8_000_000 && bytes < 8_300_000));
        let refused = of(900_000_000).expect_err("3.7 TB");
        assert!(refused.contains("a snapshot takes 81"), "{refused}");
        // What is named fits into the half of a record.
        let named = Part { stored_bytes: 1, raw_bytes: 1, hash: Hash::ZERO };
        let upload = Upload { begun: RecordNumber(1), nonce: Default::default(), serial: 1 };
        let parts = Parts { upload, each: vec![named; PARTS_MAX as usize] };
        assert!(32 + 40 * parts.each.len() < crate::record::RAW_BYTES_MAX / 2);
    }
}

//! Copies of the base, in parts.
//!
//! A copy is read in one read transaction of the database and put part by part, between records.
//! When the last part is there, and the record that completes this base is known, the next record
//! names it. What a killed sidecar has put goes with retention.

use std::time::Duration;

use bytes::Bytes;

use super::tracks::Tracks;
use super::{Retry, Settings, Sidecar, ending};
use crate::error::{Error, Result};
use crate::fault::{Fault, is_planted};
use crate::ids::{Generation, Hash, RecordNumber};
use crate::names::{self, Upload};
use crate::record::item::{each_page, push_page};
use crate::record::{Header, Item, Part, Parts, Record, SnapshotRef};
use crate::source::BaseCopy;

/// A part is made once and read rarely.
const LEVEL: i32 = 3;
/// Checksums of at most so many pages are kept: 32 MiB of memory.
const PAGES_KNOWN: usize = 4 << 20;
/// So many snapshots in a row may have changed pages alone.
const CHANGES_IN_A_ROW: u32 = 16;

/// Why a snapshot is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    None,
    /// Behind pages of an exclusive transaction.
    Pages,
    /// Nothing before leads on.
    Anew,
}

/// Pages of the last snapshot, by their checksums.
#[derive(Clone, Debug)]
struct Known {
    record: RecordNumber,
    page_bytes: u32,
    sums: Vec<u64>,
    in_a_row: u32,
}

/// A copy that is being made.
struct Copying {
    copy: BaseCopy,
    upload: Upload,
    /// The snapshot whose pages are left out.
    parent: Option<Known>,
    sums: Vec<u64>,
    each: Vec<Part>,
    pending: Option<Bytes>,
    is_whole: bool,
}

/// What a sidecar does about snapshots.
pub struct Snapshots {
    need: Need,
    /// The newest that is named, if it is of use.
    newest: RecordNumber,
    newest_ms: Option<u64>,
    log_bytes: u64,
    base_bytes: u64,
    copying: Option<Copying>,
    known: Option<Known>,
    retry: Retry,
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

fn sum_of(page: &[u8]) -> u64 {
    let Hash(hash) = Hash::of(page);
    u64::from_le_bytes(hash[..8].try_into().expect("eight bytes"))
}

impl Snapshots {
    pub(super) fn new(open: &Header, is_upgraded: bool, now: Duration) -> Snapshots {
        let is_usable = open.snapshot > open.broken;
        let need = if is_upgraded || !is_usable { Need::Anew } else { Need::None };
        Snapshots {
            need,
            newest: open.snapshot,
            newest_ms: None,
            log_bytes: 0,
            base_bytes: 0,
            copying: None,
            known: None,
            retry: Retry { not_before: now, ..Retry::default() },
        }
    }

    /// Nothing before leads on to what comes.
    pub(super) fn need_anew(&mut self) {
        self.need = Need::Anew;
        self.copying = None;
        self.known = None;
    }

    /// An exclusive transaction has changed pages: a restore should not need to make its base by
    /// merging.
    pub(super) fn need_behind_pages(&mut self) {
        self.need = self.need.max(Need::Pages);
    }

    /// When the newest was taken, as it was found in the chain.
    pub(super) fn learn(&mut self, newest: &SnapshotRef) {
        self.newest_ms.get_or_insert(newest.taken_ms);
        let bytes = u64::from(newest.page_bytes) * u64::from(newest.page_count);
        self.base_bytes = self.base_bytes.max(bytes);
    }

    pub(super) fn note(&mut self, record: &Record) {
        for item in &record.items {
            match item {
                Item::Frames(frames) => self.log_bytes += frames.bytes.len() as u64,
                Item::Merge(_) | Item::Pages(_) => self.log_bytes += 1,
                Item::Snapshot(snapshot) => {
                    self.newest = record.header.number;
                    self.newest_ms = Some(snapshot.taken_ms);
                    self.base_bytes =
                        u64::from(snapshot.page_bytes) * u64::from(snapshot.page_count);
                    self.log_bytes = 0;
                    if let Some(known) = &mut self.known {
                        known.record = record.header.number;
                    }
                }
                Item::Open(_) | Item::Break(_) => {}
            }
        }
    }

    fn is_due(&self, wall_ms: u64, settings: &Settings) -> bool {
        let every = settings.snapshot_every;
        let is_old = self
            .newest_ms
            .is_some_and(|taken| wall_ms.saturating_sub(taken) >= every.as_millis() as u64);
        let is_long = self.log_bytes >= self.base_bytes.max(settings.log_bytes_least);
        self.need != Need::None || (is_old && self.log_bytes > 0) || is_long
    }

    /// True if a copy is whole and only has to be named.
    pub(super) fn is_ready_to_name(&self, tracks: &Tracks) -> bool {
        self.copying.as_ref().is_some_and(|copying| {
            copying.is_whole && tracks.completed(copying.copy.generation).is_some()
        })
    }

    /// The item that names a copy which is whole.
    pub(super) fn take_name(
        &mut self,
        tracks: &Tracks,
        items: &[Item],
        tip: &Header,
    ) -> Option<Item> {
        let has_break = matches!(items.first(), Some(Item::Break(_)));
        if has_break || !self.is_ready_to_name(tracks) {
            return None;
        }
        let copying = self.copying.take()?;
        let Copying { copy, upload, parent, sums, each, .. } = copying;
        let (as_of, taken_ms) = tracks.completed(copy.generation)?;
        // The record that completes this base may go on with what follows it.
        let first = match tracks.first_above(copy.generation) {
            Some(first) if !is_planted(Fault::FirstLate) => first.min(as_of),
            _ => as_of,
        };
        self.need = Need::None;
        let in_a_row = parent.as_ref().map_or(0, |parent| parent.in_a_row + 1);
        let page_bytes = copy.page_bytes;
        let is_known = !sums.is_empty() && sums.len() <= PAGES_KNOWN;
        self.known =
            is_known.then_some(Known { record: RecordNumber::NONE, page_bytes, sums, in_a_row });
        Some(Item::Snapshot(SnapshotRef {
            generation: copy.generation,
            salt: copy.salt,
            page_bytes,
            page_count: copy.page_count,
            as_of,
            first,
            stream: copy.stream,
            parent: parent.map_or(RecordNumber::NONE, |parent| parent.record),
            earlier: tip.snapshot,
            taken_ms,
            parts: Parts { upload, each },
        }))
    }

    /// The upload that is under way.
    pub(super) fn upload(&self) -> Option<Upload> {
        self.copying.as_ref().map(|copying| copying.upload)
    }

    /// The generation below which no copy will be.
    pub(super) fn least(&self, base: Generation) -> Generation {
        self.copying.as_ref().map_or(base, |copying| copying.copy.generation.min(base))
    }
}

impl Copying {
    /// Takes pages of the base: what the parent has too is left out.
    fn take(&mut self, list: &[u8]) -> Result<()> {
        let page_bytes = self.copy.page_bytes;
        let bad = || Error::Source("the database gave pages that are no list of pages".to_owned());
        let mut kept = Vec::new();
        for (number, page) in each_page(list, page_bytes).ok_or_else(bad)? {
            let at = number as usize - 1;
            let sum = sum_of(page);
            let before = self.parent.as_ref().and_then(|parent| parent.sums.get(at));
            if before != Some(&sum) {
                push_page(&mut kept, number, page);
            }
            if at < PAGES_KNOWN {
                self.sums.resize(self.sums.len().max(at + 1), 0);
                self.sums[at] = sum;
            }
        }
        if !kept.is_empty() {
            let (part, bytes) = part_of(&kept);
            self.each.push(part);
            self.pending = Some(bytes);
        }
        Ok(())
    }
}

impl Sidecar {
    /// Does a piece of a snapshot, if one is due; false if there is nothing to do.
    pub(super) async fn copy_some(&mut self) -> Result<bool> {
        if self.snapshots.retry.is_waiting(&self.world) {
            return Ok(false);
        }
        let Some(mut copying) = self.snapshots.copying.take() else {
            let wall_ms = self.world.clock().wall_ms();
            return if self.snapshots.is_due(wall_ms, &self.settings) {
                self.begin_copy()
            } else {
                Ok(false)
            };
        };
        if copying.is_whole {
            self.snapshots.copying = Some(copying);
            return Ok(false);
        }
        if copying.pending.is_none() {
            match copying.copy.pages.next(self.settings.part_bytes) {
                Ok(Some(list)) => copying.take(&list)?,
                Ok(None) => copying.is_whole = true,
                Err(error) => return self.give_up_copy(error),
            }
        }
        if let Some(bytes) = &copying.pending {
            let name = names::part(copying.upload, copying.each.len() as u32 - 1);
            let put = if is_planted(Fault::NamedEarly) && copying.each.len() == 2 {
                Ok(())
            } else {
                self.once.try_put(&name, bytes).await
            };
            if self.snapshots.retry.note(&self.world, put).is_some() {
                copying.pending = None;
            }
        }
        self.snapshots.copying = Some(copying);
        Ok(true)
    }

    fn begin_copy(&mut self) -> Result<bool> {
        let copy = match self.source.base(self.tracks.least()) {
            Ok(Some(copy)) => copy,
            Ok(None) => {
                self.snapshots.retry.not_before = self.world.clock().now() + self.settings.interval;
                return Ok(false);
            }
            Err(error) => return self.give_up_copy(error),
        };
        let is_change = self.snapshots.need == Need::Pages;
        let may_be_parent = |known: &Known| {
            is_change
                && known.page_bytes == copy.page_bytes
                && known.in_a_row < CHANGES_IN_A_ROW
                && known.record != RecordNumber::NONE
        };
        let parent = self.snapshots.known.take().filter(may_be_parent);
        let upload = self.writer.next_upload();
        self.snapshots.copying = Some(Copying {
            copy,
            upload,
            parent,
            sums: Vec::new(),
            each: Vec::new(),
            pending: None,
            is_whole: false,
        });
        Ok(true)
    }

    /// The database cannot be read for now: the copy begins anew later.
    fn give_up_copy(&mut self, error: crate::source::SourceError) -> Result<bool> {
        let text = error.to_string();
        if let Some(end) = ending(error) {
            return Err(end);
        }
        self.world.note_trouble(&Error::Source(text.clone()));
        self.snapshots.retry.note::<()>(&self.world, Err(Error::Source(text)));
        Ok(false)
    }
}

//! When a snapshot is due, and how a copy of the base becomes one.
//!
//! ```text
//! due ──► copy of the base ──► what it changes ──► parts, between records ──► whole ──► named
//!  ▲                                                                                     │
//!  └──────────────────────────── its sums are put on the shelf ◄──── the record is known ┘
//! ```
//!
//! When the last part is there, and the record that completes this base is known, the next record
//! names it. What a killed sidecar has put goes with retention. `copying.rs` has the steps between.

use std::time::Duration;

use super::copying::Copying;
use super::tracks::Tracks;
use super::{Retry, Settings};
use crate::fault::{Fault, is_planted};
use crate::ids::{Generation, Position, RecordNumber, Salt};
use crate::names::Upload;
use crate::record::{Header, Item, Parts, Record, SnapshotRef};
use crate::shelf::Draft;

/// What a sidecar does about snapshots.
pub struct Snapshots {
    /// One is due whatever the log has.
    is_needed: bool,
    /// What the place has lost of the newest one, or of what led from there to the end. The next one has to have all pages:
    /// what it would change may be gone as well.
    lost: Option<String>,
    newest_ms: Option<u64>,
    /// The base that it has.
    newest_base: Option<(Salt, Generation)>,
    log_bytes: u64,
    base_bytes: u64,
    pub(super) copying: Option<Copying>,
    /// The sums of a snapshot that is being named (SUMS-2).
    draft: Option<Box<dyn Draft>>,
    pub(super) retry: Retry,
}

impl Snapshots {
    pub(super) fn new(
        open: &Header,
        is_upgraded: bool,
        lost: Option<String>,
        now: Duration,
    ) -> Snapshots {
        let is_usable = open.snapshot > open.broken;
        Snapshots {
            is_needed: is_upgraded || !is_usable,
            lost,
            newest_ms: None,
            newest_base: None,
            log_bytes: 0,
            base_bytes: 0,
            copying: None,
            draft: None,
            retry: Retry { not_before: now, ..Retry::default() },
        }
    }

    /// Nothing before leads on to what comes.
    pub(super) fn need_anew(&mut self) {
        self.is_needed = true;
        self.copying = None;
    }

    /// What the newest one has, or one that it changes, is not at the place any more: one with all pages is due.
    pub(super) fn need_whole(&mut self, lost: String) {
        if self.lost.is_none() {
            (self.is_needed, self.lost) = (true, Some(lost));
            self.copying.take_if(|copying| copying.parent != RecordNumber::NONE);
        }
    }

    /// What the place has lost of the newest one, or of what led from there to the end, if it has.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// An exclusive transaction has changed pages: a restore should not need to make its base by
    /// merging.
    pub(super) fn need_behind_pages(&mut self) {
        self.is_needed = true;
    }

    /// When the newest was taken, as it was found in the chain.
    pub(super) fn learn(&mut self, newest: &SnapshotRef) {
        self.newest_ms.get_or_insert(newest.taken_ms);
        self.newest_base.get_or_insert((newest.salt, newest.generation));
        let bytes = u64::from(newest.page_bytes) * u64::from(newest.page_count);
        self.base_bytes = self.base_bytes.max(bytes);
    }

    pub(super) fn note(&mut self, record: &Record) {
        for item in &record.items {
            match item {
                Item::Frames(frames) => self.log_bytes += frames.bytes.len() as u64,
                Item::Merge(_) | Item::Pages(_) => self.log_bytes += 1,
                Item::Snapshot(snapshot) => {
                    self.newest_ms = Some(snapshot.taken_ms);
                    self.newest_base = Some((snapshot.salt, snapshot.generation));
                    self.base_bytes =
                        u64::from(snapshot.page_bytes) * u64::from(snapshot.page_count);
                    self.log_bytes = 0;
                    self.lost = None;
                    if let Some(draft) = self.draft.take() {
                        // Without them the next one is whole.
                        let _ = draft.put();
                    }
                }
                Item::Open(_) | Item::Break(_) => {}
            }
        }
    }

    /// True if one is due where base and stream are. One that is not of now, by a clock that was wrong, is as old. Of the base that the newest one has already
    /// another is of no use: a restore would have to read as much.
    pub(super) fn is_due(&self, at: &Position, wall_ms: u64, settings: &Settings) -> bool {
        let every = settings.snapshot_every;
        let is_old =
            self.newest_ms.is_some_and(|taken| wall_ms.abs_diff(taken) >= every.as_millis() as u64);
        let is_long = self.log_bytes >= self.base_bytes.max(settings.log_bytes_least);
        let is_later = self.newest_base != Some((at.salt, at.base));
        self.is_needed || (is_later && (is_long || (is_old && self.log_bytes > 0)))
    }

    /// True if a copy is whole and only has to be named.
    pub(super) fn is_ready_to_name(&self, tracks: &Tracks) -> bool {
        self.copying.as_ref().is_some_and(|copying| {
            copying.is_whole() && tracks.completed(copying.copy.generation).is_some()
        })
    }

    /// True if the next look at the database may bring what a copy waits for: a base to copy, or the record that completes the
    /// one that was copied.
    pub(super) fn awaits_a_look(&self) -> bool {
        match &self.copying {
            Some(copying) => copying.is_whole(),
            None => self.is_needed && self.retry.tries() == 0,
        }
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
        let Copying { copy, upload, parent, summing, each, .. } = self.copying.take()?;
        self.draft = summing.and_then(|summing| summing.end(&each));
        let (as_of, taken_ms) = tracks.completed(copy.generation)?;
        // The record that completes this base may go on with what follows it, and come before `as_of`.
        let first = match tracks.first_behind(copy.generation) {
            Some(first) if !is_planted(Fault::FirstLate) => first.min(as_of),
            _ => as_of,
        };
        self.is_needed = false;
        Some(Item::Snapshot(SnapshotRef {
            generation: copy.generation,
            salt: copy.salt,
            page_bytes: copy.page_bytes,
            page_count: copy.page_count,
            as_of,
            first,
            stream: copy.stream,
            parent,
            earlier: tip.snapshot,
            taken_ms,
            parts: Parts { upload, each },
        }))
    }

    /// True if the next snapshot has to have all pages.
    pub(super) fn is_whole_needed(&self) -> bool {
        self.lost.is_some()
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

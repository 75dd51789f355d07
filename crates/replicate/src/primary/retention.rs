//! What nobody needs any more.
//!
//! The *floor* is the first record that a snapshot which is kept needs. Below it packs go, and
//! with each pack what it covers in `chain/`, but for OPENs; and uploads that no kept snapshot
//! names. An upload that a later writer may still name was begun behind this writer's tip, so not
//! below the floor: a writer that stands still here, and goes on when another has taken over,
//! deletes nothing of the other's (CHAIN-9).
//!
//! A clock may be wrong, as one that a machine begins with until the network has set it.
//!
//! - CLOCK-1 The window advances no faster than the monotonic clock since the sweep before; at a start, than from the
//!   record before the own OPEN on. So a clock that is ahead has to be so at two sweeps before it is believed, and a
//!   machine that was off for long deletes what is old an hour later.
//! - CLOCK-2 A snapshot that was taken before an earlier one, as its stamp says, is of a clock that was set back: when it
//!   was taken is not known, so nothing goes because of it. One that was taken later than now, of a clock that was ahead,
//!   tells nothing.
//!
//! - KNOWN-1 Nothing goes in a sweep to which a snapshot that is kept, or one that such a one changes, is not known: its record
//!   was damaged, is missing, or read badly; or is in a pack that the store refuses to give. A pack that lies below all that
//!   is kept is in nobody's way, where a snapshot that is known was taken before the window.
//!
//! A store may refuse deletions: for want of a right, or for ever, as an object lock does.
//!
//! - REFUSED-1 What the store refuses to delete is no trouble, and is said once in a process, when it is known that records
//!   are made all the same. The same object is asked for once a sweep at most; so many refusals in a row end a sweep of
//!   records and packs, or of parts. Its pack stays with it, so that a later sweep finds both. A later sweep begins with
//!   what was not refused before: a few objects that are held keep no others.
//! - REFUSED-2 Records in packs whose deletion is refused, or fails a few times in a row for whatever reason, are left to
//!   the sweeps: no pack waits for one. Behind a refusal `packing.rs` deletes none for as long as one sweep is from the
//!   next. Nor does a sweep wait for an object whose deletion fails: a later one has it again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{DELETE_TRIES, Retry, Sidecar};
use crate::apply::lineage;
use crate::chain::{Listing, Reader, Stretch, seams};
use crate::error::{Error, Result};
use crate::fault::{Fault, is_planted};
use crate::ids::RecordNumber;
use crate::names::{self, Upload};
use crate::pack::Pack;
use crate::record::{Header, Item, Record, SnapshotRef};
use crate::snapshots;
use crate::world::STAYS;

/// So many refusals in a row are the store's rule, not one object's.
const REFUSALS: u32 = 8;

/// What follows where the store refuses to give what may have a snapshot that is kept.
const NOTHING_GOES: &str = "nothing goes from the place until that can be read, for a snapshot in it may need what is old: everything is shipped as ever";

/// A sweep for which it is no time, because the newest record cannot be restored, is tried again after this.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// What a sidecar does about retention.
pub struct Retention {
    /// Snapshots that are kept, ascending; `None` until the chain was looked through, and all of it could be read.
    known: Option<Vec<(RecordNumber, SnapshotRef)>>,
    /// It was looked through.
    has_looked: bool,
    /// The window of the last sweep was reckoned then, by the monotonic clock, and by people's.
    reckoned: (Duration, u64),
    next: Duration,
    to_delete: VecDeque<String>,
    /// Records of this sweep that the store did not let go.
    refused: Vec<RecordNumber>,
    /// What it did not let go when it was asked last.
    held: BTreeSet<String>,
    /// Refusals in a row: of records and packs, and of parts.
    refusals: [u32; 2],
    /// Failures of the first deletion.
    failures: u32,
    retry: Retry,
}

impl Retention {
    pub(super) fn new(now: Duration) -> Retention {
        let retry = Retry::default();
        Retention {
            known: None,
            has_looked: false,
            reckoned: (now, 0),
            next: now,
            to_delete: VecDeque::new(),
            refused: Vec::new(),
            held: BTreeSet::new(),
            refusals: [0; 2],
            failures: 0,
            retry,
        }
    }

    /// The store does not let the first object go (REFUSED-1).
    fn note_refused(&mut self) {
        self.failures = 0;
        let Some(name) = self.to_delete.pop_front() else { return };
        let side = side_of(&name);
        self.refused.extend(names::parse_record(&name));
        self.held.insert(name);
        self.refusals[side] += 1;
        if self.refusals[side] >= REFUSALS {
            self.to_delete.retain(|other| side_of(other) != side);
        }
    }

    /// The first object is gone.
    fn note_deleted(&mut self) {
        if let Some(name) = self.to_delete.pop_front() {
            self.refusals[side_of(&name)] = 0;
            self.held.remove(&name);
        }
        self.failures = 0;
    }

    /// The process is the same, and so is what it knows of its clocks (CLOCK-1).
    pub(super) fn goes_on_from(&mut self, before: &Retention) {
        self.reckoned = before.reckoned;
    }

    /// True until it is known what is there.
    pub(super) fn has_not_looked(&self) -> bool {
        !self.has_looked
    }

    /// Begins a sweep of packs, each behind its records, and of parts.
    fn begin(&mut self, mut packs: Vec<Vec<String>>, mut parts: Vec<String>) {
        let held = std::mem::take(&mut self.held);
        let is_held = |name: &String| held.contains(name);
        packs.sort_by_key(|names| names.iter().any(is_held));
        for names in &mut packs {
            if let Some((_pack, records)) = names.split_last_mut() {
                records.sort_by_key(is_held);
            }
        }
        parts.sort_by_key(is_held);
        self.to_delete = packs.into_iter().flatten().chain(parts).collect();
        self.held = self.to_delete.iter().filter(|name| is_held(name)).cloned().collect();
        (self.refused, self.refusals, self.failures) = (Vec::new(), [0; 2], 0);
    }

    /// A pack of a record that stays.
    fn stays(&self, name: &str) -> bool {
        names::parse_pack(name).is_some_and(|(first, last)| {
            self.refused.iter().any(|number| (first..=last).contains(number))
        })
    }
}

/// A right to delete may cover parts, or all else.
fn side_of(name: &str) -> usize {
    usize::from(name.starts_with(names::PARTS))
}

/// What is kept.
#[derive(Clone, Copy)]
struct Window {
    since_ms: u64,
    /// Its end.
    now_ms: u64,
}

/// What is known of a chain.
struct Looked {
    /// Snapshots, ascending.
    known: Vec<(RecordNumber, SnapshotRef)>,
    /// Packs that the store refuses to give.
    withheld: Vec<(Stretch, Error)>,
    /// All could be read.
    is_sure: bool,
}

/// Snapshots that are kept.
struct Kept {
    /// Ascending.
    snapshots: Vec<(RecordNumber, SnapshotRef)>,
    /// One was taken before the window.
    is_one_before: bool,
}

/// True if a snapshot and all that it changes are known.
fn is_complete(known: &[(RecordNumber, SnapshotRef)], number: RecordNumber) -> bool {
    lineage(&known.iter().cloned().collect(), number).is_some()
}

/// The snapshots, of those ascending, that are kept for a window: the newest before it of which no part is missing among
/// those listed, all behind it, and the parents of these.
fn kept(known: &[(RecordNumber, SnapshotRef)], window: Window, parts: &BTreeSet<String>) -> Kept {
    let by_number: BTreeMap<_, _> = known.iter().cloned().collect();
    let is_whole = |number| {
        lineage(&by_number, number)
            .is_some_and(|all| all.iter().all(|(_, of)| of.parts.missing_in(parts) == 0))
    };
    let (mut newest_before, mut latest_ms) = (None, 0);
    for (at, (number, snapshot)) in known.iter().enumerate() {
        let is_known = (latest_ms..=window.now_ms).contains(&snapshot.taken_ms);
        if !is_known && !is_planted(Fault::ClockBelieved) {
            continue;
        }
        latest_ms = snapshot.taken_ms;
        if snapshot.taken_ms <= window.since_ms && is_whole(*number) {
            newest_before = Some(at);
        }
    }
    let mut numbers: BTreeSet<RecordNumber> =
        known[newest_before.unwrap_or(0)..].iter().map(|(number, _)| *number).collect();
    for (number, snapshot) in known.iter().rev() {
        if numbers.contains(number) && snapshot.parent != RecordNumber::NONE {
            numbers.insert(snapshot.parent);
        }
    }
    let snapshots = known.iter().filter(|(number, _)| numbers.contains(number)).cloned().collect();
    Kept { snapshots, is_one_before: newest_before.is_some() }
}

impl Sidecar {
    /// Does a piece of retention; false if there is nothing to do.
    ///
    /// # Errors
    /// [`Error::Removed`].
    pub(super) async fn sweep_some(&mut self) -> Result<bool> {
        if self.retention.retry.is_waiting(&self.world) {
            return Ok(false);
        }
        if let Some(name) = self.retention.to_delete.front().cloned() {
            if self.retention.stays(&name) {
                self.retention.to_delete.pop_front();
                return Ok(true);
            }
            let deleted = self.once.try_delete(std::slice::from_ref(&name)).await;
            if deleted.as_ref().is_err_and(Error::is_refusal) {
                self.retention.note_refused();
            } else if self.retention.retry.note(&self.world, deleted).is_some() {
                self.retention.note_deleted();
            } else {
                self.retention.failures += 1;
                if self.retention.failures >= DELETE_TRIES {
                    self.retention.note_refused();
                }
            }
            return Ok(true);
        }
        let now = self.world.clock().now();
        if now < self.retention.next {
            return Ok(false);
        }
        let planned = self.plan_sweep().await;
        match self.retention.retry.note(&self.world, planned) {
            Some(Some(number)) => Err(Error::Removed { number, name: names::record(number) }),
            Some(None) => {
                let every = self.settings.sweep_every;
                self.retention.next =
                    now + if self.is_restorable() { every } else { every.min(TRY_AGAIN) };
                Ok(true)
            }
            None => Ok(true),
        }
    }

    /// Lists what may go, and looks in the same lists for what has gone otherwise; a record that has, if the newest one
    /// cannot be reached without it.
    async fn plan_sweep(&mut self) -> Result<Option<RecordNumber>> {
        let is_first = self.retention.has_not_looked();
        // What would go may be all that can be restored, until the next snapshot is complete. A start looks what was removed.
        if !self.is_restorable() && !is_first {
            self.tracks.forget_below(self.snapshots.least(self.flow.position.base));
            return Ok(None);
        }
        let Looked { known, withheld, is_sure } = match self.retention.known.take() {
            Some(known) => Looked { known, withheld: Vec::new(), is_sure: true },
            None => self.look_through().await?,
        };
        self.retention.has_looked = true;
        if let Some((_, newest)) = known.last() {
            self.snapshots.learn(newest);
        }
        self.tracks.forget_below(self.snapshots.least(self.flow.position.base));
        let (listing, listed) = self.list_all().await?;
        // Where a pack is refused the newest one may not be known whole, which a start has judged.
        let removed = match withheld.is_empty() || is_complete(&known, self.writer.tip.snapshot) {
            true => self.look_for_lost(&known, &listing, &listed).await?,
            false => None,
        };
        if removed.is_some() || !self.is_restorable() {
            self.retention.known = is_sure.then_some(known);
            return Ok(removed);
        }
        let (window, reckoned) = self.reckon_window();
        let Kept { snapshots: mut known, is_one_before } = kept(&known, window, &listed);
        // What is old may be needed by a snapshot that is not known (KNOWN-1).
        let first = known.iter().map(|(_, snapshot)| snapshot.first).min();
        let is_in_the_way = |pack: &Stretch| !is_one_before || first.is_none_or(|f| pack.1 >= f);
        if let Some((_, why)) = withheld.iter().find(|(pack, _)| is_in_the_way(pack)) {
            self.world.note_refusal(why, NOTHING_GOES);
            return Ok(None);
        }
        let is_whole = known.iter().all(|(number, _)| is_complete(&known, *number));
        if !is_whole || !(is_sure || is_one_before) {
            return Ok(None);
        }
        if is_planted(Fault::FloorHigh) && known.len() > 1 {
            known.drain(..known.len() - 1);
        }
        let floor = known.iter().map(|(_, snapshot)| snapshot.first).min();
        let floor = floor.unwrap_or(RecordNumber::NONE);
        let uploads: BTreeSet<Upload> =
            known.iter().map(|(_, snapshot)| snapshot.parts.upload).collect();
        // What could not be read is asked for by the next sweep again.
        self.retention.known = is_sure.then_some(known);
        let packs = self.packs_below(floor, listing.packs).await?;
        // A sweep that failed before is tried again at once, which is no second one.
        self.retention.reckoned = reckoned;
        if floor <= RecordNumber::FIRST {
            return Ok(None);
        }
        let mut parts = Vec::new();
        let own = self.snapshots.upload();
        for name in listed {
            let Some((upload, _)) = names::parse_part(&name) else { continue };
            let is_needed = uploads.contains(&upload) && !is_planted(Fault::PartsDropped);
            if upload.begun < floor && !is_needed && own != Some(upload) {
                parts.push(name);
            }
        }
        self.retention.begin(packs, parts);
        Ok(None)
    }

    /// Looks the chain through.
    async fn look_through(&mut self) -> Result<Looked> {
        let Header { snapshot, chain, opened, .. } = self.writer.tip;
        let listing = Listing::make(&self.once).await?;
        let (found, withheld) =
            snapshots::known_but_for(&self.once, &listing, snapshot, chain).await?;
        if self.retention.reckoned.1 == 0 {
            let mut reader = Reader::new(&self.once);
            let before = match snapshots::header_before(&mut reader, opened, chain).await {
                Err(error) if error.is_refusal() => None,
                before => before?,
            };
            self.retention.reckoned.1 = before.map_or(0, |before| before.written_ms);
        }
        let is_sure = withheld.is_empty() && found.unread.is_empty();
        Ok(Looked { known: found.snapshots, withheld, is_sure })
    }

    /// The window of a sweep, and what the next one reckons from (CLOCK-1).
    fn reckon_window(&self) -> (Window, (Duration, u64)) {
        let clock = self.world.clock();
        let (now, wall_ms) = (clock.now(), clock.wall_ms());
        let (then, then_ms) = self.retention.reckoned;
        let passed_ms = now.saturating_sub(then).as_millis() as u64;
        let now_ms = match is_planted(Fault::ClockBelieved) {
            false => wall_ms.min(then_ms.saturating_add(passed_ms)),
            true => wall_ms,
        };
        let keep_ms = self.settings.keep.as_millis() as u64;
        (Window { since_ms: now_ms.saturating_sub(keep_ms), now_ms }, (now, wall_ms))
    }

    /// Records, packs and parts.
    async fn list_all(&self) -> Result<(Listing, BTreeSet<String>)> {
        let listing = Listing::make(&self.once).await?;
        let parts = self.once.list(names::PARTS).await?;
        Ok((listing, parts.into_iter().collect()))
    }

    /// Looks whether all is there without which the newest record cannot be restored: the records and the parts of the
    /// newest snapshot and of those that it changes, where a snapshot with all pages takes their place; and records behind
    /// it, the first of which is returned where that record can be restored else. A list that does not have the newest record tells nothing: it is an old one,
    /// another writer has gone on, or the place is not mounted. Nor does it of what can be read all the same.
    async fn look_for_lost(
        &mut self,
        known: &[(RecordNumber, SnapshotRef)],
        listing: &Listing,
        parts: &BTreeSet<String>,
    ) -> Result<Option<RecordNumber>> {
        let tip = &self.writer.tip;
        let newest = known.last().filter(|(number, _)| *number == tip.snapshot);
        let Some((number, newest)) = newest else { return Ok(None) };
        if listing.highest() != tip.number {
            return Ok(None);
        }
        let known: BTreeMap<_, _> = known.iter().cloned().collect();
        let lineage = lineage(&known, *number).unwrap_or_default();
        let oldest = lineage.iter().map(|(of, _)| *of).chain([newest.first]).min();
        let missing = listing.missing_surely(&self.once, oldest.unwrap_or_default()).await?;
        let numbers = missing.iter().flat_map(|(from, to)| (from.0..=to.0).map(RecordNumber));
        let gone: BTreeSet<_> = numbers.filter(|of| !self.packing.brings_back(*of)).collect();
        if let Some(first) = gone.range(newest.first..).next().filter(|_| self.is_restorable()) {
            return Ok(Some(*first));
        }
        if self.is_restorable() {
            let mut reader = Reader::with(&self.once, listing.clone());
            // What cannot be read now is looked at by the next sweep.
            let seams = seams(&self.once, &mut reader, tip, newest.first).await;
            if let Some(seam) = seams.ok().and_then(|seams| seams.first().copied()) {
                return Ok(Some(seam));
            }
        }
        let lost: Vec<String> =
            lineage.iter().flat_map(|(_, of)| of.parts.missing_names(parts)).collect();
        let why = if lineage.is_empty() || lineage.iter().any(|(of, _)| gone.contains(of)) {
            format!(
                "a record that the snapshot in record {number} builds on is missing or damaged at the place"
            )
        } else if let Some(first) = lost.first()
            && self.once.try_get(first).await?.is_none()
        {
            let all: usize = lineage.iter().map(|(_, of)| of.parts.each.len()).sum();
            format!(
                "{} of {all} parts of the snapshot in record {number} were removed from the place, by a rule of the bucket \
                 or by hand",
                lost.len()
            )
        } else {
            return Ok(None);
        };
        self.snapshots.need_whole(why);
        self.note_restorable();
        Ok(None)
    }

    /// Packs below the floor, each behind what it covers in `chain/` but for OPENs.
    async fn packs_below(
        &self,
        floor: RecordNumber,
        packs: Vec<Stretch>,
    ) -> Result<Vec<Vec<String>>> {
        let mut groups = Vec::new();
        let mut folder = None;
        let mut there = BTreeSet::new();
        // Without any pack a list would begin with the first folder again, and end at one that is empty.
        let newest = packs.iter().map(|(_, last)| *last).max();
        let mut refused = 0;
        // An archive has the oldest.
        for (first, last) in packs.into_iter().rev() {
            if last >= floor || Some(last) == newest {
                continue;
            }
            let name = names::pack(first, last);
            for of in names::folder_of(first)..=names::folder_of(last) {
                if folder.replace(of) != Some(of) {
                    let found = self.once.list(&names::folder(of)).await?;
                    there.extend(found.iter().filter_map(|name| names::parse_record(name)));
                }
            }
            let bytes = match self.once.get(&name).await {
                Err(error) if error.is_refusal() => {
                    self.world.note_no_trouble();
                    self.world.note_refusal(&error, STAYS);
                    refused += 1;
                    if refused >= REFUSALS {
                        break;
                    }
                    continue;
                }
                bytes => bytes?,
            };
            refused = 0;
            let mut names = Vec::new();
            if let Some(Ok(pack)) = bytes.as_ref().map(Pack::decode) {
                let covered = there.range(first..=last);
                let may_go = |number: &&RecordNumber| {
                    !pack.may_be_open(**number) || is_planted(Fault::OpenDeleted)
                };
                names.extend(covered.filter(may_go).map(|number| names::record(*number)));
            }
            names.push(name);
            groups.push(names);
        }
        groups.reverse();
        Ok(groups)
    }
}

impl Sidecar {
    /// Takes a snapshot that this sidecar has named into what retention goes by.
    pub(super) fn note_named(&mut self, record: &Record) {
        for item in &record.items {
            if let (Item::Snapshot(snapshot), Some(known)) = (item, &mut self.retention.known) {
                known.push((record.header.number, snapshot.clone()));
            }
        }
    }
}

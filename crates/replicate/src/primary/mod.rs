//! The sidecar of a primary: it ships what happens to a database into its chain.
//!
//! ```text
//! open ──► ship, once an interval ──► create n+1 ──► known: the database is told ──┐
//!  ▲  ▲     │                          │      └─ another's record: fenced, the end │
//!  │  └─────┼─ overtaken               └─ no answer: the same bytes again          │
//!  │        ├─ a part of a snapshot, records into a pack, a deletion: one at a time│
//!  └────────┴──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! One process, one task: between two records it does one piece of what may wait.
//!
//! - CHAIN-2 The database is told "shipped" for a gapless prefix of known records alone. Upheld in
//!   `append.rs`, and by the order of [`Sidecar::append`].
//! - CHAIN-4 Behind the OPEN of epoch *e* + 1 no record of an older epoch is known to anybody: its
//!   writer's next number is that OPEN's, or has a record of its own for ever.
//! - CHAIN-5 No commit waits for the store or fails because of it.
//! - CHAIN-6 Only what is on the primary's disk is shipped ([`Source`]).
//! - CHAIN-8 An OPEN is never deleted, nor the tip.
//! - CHAIN-9 A record is deleted from `chain/` only when a pack has its bytes, or below the floor; an
//!   upload only below the floor, when no snapshot that is kept names it.

mod append;
mod copying;
mod open;
mod packing;
mod retention;
mod ship;
mod snapshot;
mod sums;
mod tracks;

use std::time::Duration;

use crate::chain::Flow;
use crate::error::{Error, Result, Stands};
use crate::ids::{ChainId, Hash, Nonce};
use crate::record::Header;
use crate::source::{Source, SourceError};
use crate::store::Backoff;
use crate::world::{Patience, World};

use packing::Packing;
use retention::Retention;
use snapshot::Snapshots;
use tracks::Tracks;

/// How a sidecar works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time from one record to the next, while something happens.
    pub interval: Duration,
    /// Time to a record without anything.
    pub idle: Duration,
    /// Time from one look for the own OPEN to the next, where there is something to ship.
    pub check_every: Duration,
    /// Bytes of frames in a record.
    pub record_bytes: usize,
    /// Bytes of pages that travel in the record.
    pub inline_bytes: usize,
    /// Bytes of pages in a part.
    pub part_bytes: usize,
    /// Time from one snapshot to the next, while something happens.
    pub snapshot_every: Duration,
    /// A log shorter than this needs no snapshot of its own.
    pub log_bytes_least: u64,
    /// Time from one pack to the next.
    pub pack_every: Duration,
    /// Records of a pack at least: idle ones come seldom.
    pub pack_records: u64,
    /// Bytes of records that make a pack at once.
    pub pack_bytes: usize,
    /// A record of this length or more stays out of packs.
    pub large_bytes: usize,
    /// How far back a moment can be restored.
    pub keep: Duration,
    /// Time from one look for what may be deleted to the next.
    pub sweep_every: Duration,
    /// Take over from a sidecar of another database.
    pub take_over: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            interval: Duration::from_secs(1),
            idle: Duration::from_secs(40),
            check_every: Duration::from_secs(10),
            record_bytes: 8 << 20,
            inline_bytes: 1 << 20,
            part_bytes: 4 << 20,
            snapshot_every: Duration::from_secs(24 * 3600),
            log_bytes_least: 16 << 20,
            pack_every: Duration::from_secs(60),
            pack_records: 32,
            pack_bytes: 8 << 20,
            large_bytes: crate::pack::LARGE_BYTES,
            keep: Duration::from_secs(7 * 24 * 3600),
            sweep_every: Duration::from_secs(3600),
            take_over: false,
        }
    }
}

/// So many deletions that fail in a row are left to a later sweep.
const DELETE_TRIES: u32 = 4;
/// A pause before the database is asked again, at the end.
const PAUSE_TO_END: Duration = Duration::from_millis(100);

/// Between two looks at the database where a snapshot waits for what the next one finds, however long the interval is.
const SOON: Duration = Duration::from_secs(1);

/// A sidecar that has opened its epoch.
pub struct Sidecar {
    world: World,
    /// The same, without patience: for what may wait.
    once: World,
    source: Box<dyn Source>,
    settings: Settings,
    writer: Writer,
    flow: Flow,
    tracks: Tracks,
    snapshots: Snapshots,
    packing: Packing,
    retention: Retention,
    /// When the database was last asked.
    last_look: Duration,
    /// When the last record was begun.
    last_record: Duration,
    /// There is more to ship than the last record could take.
    has_more: bool,
    /// The database could be read when it was last asked.
    could_read: bool,
    /// When the own OPEN was last looked for.
    last_check: Duration,
    /// It ships the rest: each read has all that is committed.
    ends: bool,
}

/// The end of the chain, as its writer knows it.
struct Writer {
    chain: ChainId,
    nonce: Nonce,
    /// Of the last known record.
    tip: Header,
    tip_hash: Hash,
    uploads: u32,
}

impl Sidecar {
    /// Ships until something ends it.
    ///
    /// # Errors
    /// Always one: [`Error::Fenced`], [`Error::Ended`], [`Error::Occupied`], [`Error::OtherChain`],
    /// [`Error::Overtaken`]; [`Error::Vanished`], [`Error::PutBack`], [`Error::Lost`], [`Error::Unowned`],
    /// [`Error::NotThere`] of what the place has lost; damage at the end of the chain; or [`Error::Source`] where
    /// pages of a transaction can be read no more: then a new start finds what it can go on from.
    pub async fn run(
        world: World,
        source: Box<dyn Source>,
        settings: Settings,
    ) -> Result<std::convert::Infallible> {
        let mut sidecar = Sidecar::open(world, source, settings).await?;
        loop {
            match sidecar.step().await {
                Err(Error::Removed { .. }) => sidecar = sidecar.open_anew().await?,
                done => done?,
            }
        }
    }

    /// The header of the last known record.
    pub fn tip(&self) -> &Header {
        &self.writer.tip
    }

    /// The world that it works in.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Does what is due: a record, or one piece of what may wait, or nothing for a while.
    ///
    /// # Errors
    /// What ends the sidecar, as of [`Sidecar::run`]; and [`Error::Removed`], behind which [`Sidecar::open_anew`] goes on.
    pub async fn step(&mut self) -> Result<()> {
        if self.time_to_record().is_zero() {
            return self.ship().await;
        }
        // What was removed before it began is told before a snapshot makes up for that.
        let did = (self.retention.has_not_looked() && self.sweep_some().await?)
            || self.copy_some().await?
            || self.pack_some().await
            || self.sweep_some().await?;
        let rest = if did { Duration::ZERO } else { self.time_to_record() };
        let rest = rest.min(self.time_to_others());
        self.world.clock().sleep(rest).await;
        Ok(())
    }

    /// Ships what there is, before an end, and the snapshot without which it could not be restored.
    ///
    /// # Errors
    /// As [`Sidecar::run`].
    pub async fn finish(&mut self) -> Result<()> {
        self.ends = true;
        // A read may end before what it could not read, without an error: the next one has that.
        let mut ends = 0;
        while ends < 2 {
            self.ship().await?;
            ends = if self.has_more || !self.could_read { 0 } else { ends + 1 };
            if !self.could_read {
                self.world.clock().sleep(PAUSE_TO_END).await;
            }
        }
        while !self.is_restorable() {
            // A moment for others in any case: what ends this waits beside it.
            let pause = if self.copy_some().await? { Duration::ZERO } else { PAUSE_TO_END };
            self.world.clock().sleep(pause).await;
            self.ship().await?;
        }
        while !self.check_place(Duration::ZERO).await? {
            self.world.clock().sleep(PAUSE_TO_END).await;
        }
        Ok(())
    }

    /// True if a snapshot leads to the last known record.
    pub fn is_restorable(&self) -> bool {
        self.writer.tip.snapshot > self.writer.tip.broken && self.snapshots.lost().is_none()
    }

    /// Tells the world whether the last known record can be restored.
    fn note_restorable(&self) {
        self.world.note_restorable(self.is_restorable());
        self.world.note_lost(self.snapshots.lost());
    }

    /// Looks whether the own OPEN, which is never deleted (CHAIN-8), is still there, if this was not
    /// done for `every`: a place may be unmounted, or emptied, begun anew by another one, or have got a backup, and takes records as
    /// if nothing had happened. False if the store did not answer.
    async fn check_place(&mut self, every: Duration) -> Result<bool> {
        if self.world.clock().now() < self.last_check + every {
            return Ok(true);
        }
        let number = self.writer.tip.opened;
        let name = crate::names::record(number);
        let found = self.once.try_get(&name).await;
        self.last_check = self.world.clock().now();
        match found {
            Ok(None) if self.has_earlier().await => {
                let number = self.writer.tip.number;
                Err(Error::PutBack { number, name: crate::names::record(number) })
            }
            Ok(None) => Err(Error::Vanished { number, name }),
            Ok(Some(bytes)) => self.refuse_another_open(&bytes).map(|()| true),
            // It has it, as an archive has what is old: nothing is in the way.
            Err(error) if error.is_refusal() => {
                self.world.note_no_trouble();
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// Fails if another record stands where the own OPEN was. One that is damaged is its readers' trouble.
    fn refuse_another_open(&self, bytes: &[u8]) -> Result<()> {
        let Header { chain, nonce, opened, .. } = self.writer.tip;
        match crate::record::header_of(bytes) {
            Ok(found) if found.chain != chain => {
                Err(Error::OtherChain { found: found.chain, expected: chain })
            }
            Ok(found) if found.nonce != nonce => {
                let name = crate::names::record(opened);
                Err(Error::Lost { chain, number: opened, name, stands: Stands::Another })
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The place ends with an earlier record of this chain than the own OPEN: a new start goes on behind that.
    async fn has_earlier(&self) -> bool {
        let Header { chain, opened, .. } = &self.writer.tip;
        let tip = crate::chain::find_tip(&self.once).await.ok().flatten();
        let is_earlier = |there: &Header| there.chain == *chain && there.number < *opened;
        tip.is_some_and(|tip| is_earlier(&tip.record.header))
    }

    fn time_to_record(&self) -> Duration {
        if self.has_more || self.snapshots.is_ready_to_name(&self.tracks) {
            return Duration::ZERO;
        }
        let pause =
            if self.snapshots.awaits_a_look() { self.soon() } else { self.settings.interval };
        let due = self.last_look + pause;
        due.saturating_sub(self.world.clock().now())
    }

    fn time_to_others(&self) -> Duration {
        // What waits for a pause after a failure waits no longer than this.
        self.soon()
    }

    fn soon(&self) -> Duration {
        self.settings.interval.min(SOON)
    }
}

/// A pause after a failure of what may wait.
#[derive(Clone, Debug, Default)]
struct Retry {
    backoff: Backoff,
    not_before: Duration,
}

impl Retry {
    /// Failures in a row.
    fn tries(&self) -> u32 {
        self.backoff.tries()
    }

    fn is_waiting(&self, world: &World) -> bool {
        world.clock().now() < self.not_before
    }

    /// Takes the outcome of a try: `None` after a failure, which the world remembers.
    fn note<T>(&mut self, world: &World, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => {
                *self = Retry::default();
                Some(value)
            }
            Err(_) => {
                self.not_before = world.clock().now() + self.backoff.next(world.random());
                None
            }
        }
    }
}

/// Turns what a database says into what ends a sidecar; `None` for what is tried again.
fn ending(error: SourceError) -> Option<Error> {
    match error {
        SourceError::Later(_) => None,
        SourceError::Ended(why) => Some(Error::Ended(why)),
    }
}

fn without_patience(world: &World) -> World {
    world.with(Patience::Tries(1))
}

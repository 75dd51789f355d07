//! A follower: the chain applied to a database elsewhere, for as long as it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use crate::apply::{About, Applier, Lineage, Step, lineage};
use crate::chain::{Found, Reader, find_tip};
use crate::error::{Error, Result};
use crate::ids::RecordNumber;
use crate::record::{Header, SnapshotRef};
use crate::store::Backoff;
use crate::target::Target;
use crate::world::World;

/// How a follower works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time from one look for the next record to the next.
    pub poll: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { poll: crate::apply::POLL }
    }
}

/// A follower.
pub struct Follower {
    world: World,
    settings: Settings,
    applier: Applier,
    reader: Reader,
    /// The target has a base.
    has_base: bool,
    /// The chain leads no further from where the target is: why.
    stuck: Option<Error>,
    /// Snapshots with parts that are missing or damaged.
    bad: BTreeSet<RecordNumber>,
    /// The record whose merge had another sum, if one had.
    differed: Option<RecordNumber>,
    backoff: Backoff,
}

impl Follower {
    /// Follows until something ends it.
    ///
    /// # Errors
    /// Always one: [`Error::Impure`], or [`Error::OtherChain`].
    pub async fn run(
        world: World,
        target: Box<dyn Target>,
        settings: Settings,
    ) -> Result<Infallible> {
        let mut follower = Follower::new(world, target, settings)?;
        loop {
            follower.step().await?;
        }
    }

    /// Takes a target as it is.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn new(world: World, target: Box<dyn Target>, settings: Settings) -> Result<Follower> {
        let (applier, has_base) = Applier::resume(&world, target)?;
        let reader = Reader::new(&world);
        Ok(Follower {
            world,
            settings,
            applier,
            reader,
            has_base,
            stuck: None,
            bad: BTreeSet::new(),
            differed: None,
            backoff: Backoff::default(),
        })
    }

    /// The last record that was applied.
    pub fn applied(&self) -> RecordNumber {
        self.applier.link.number
    }

    /// Why the chain leads no further, if it does not.
    pub fn stuck(&self) -> Option<&Error> {
        self.stuck.as_ref()
    }

    /// Applies the next record, or begins anew, or waits.
    ///
    /// # Errors
    /// What ends the follower, as of [`Follower::run`].
    pub async fn step(&mut self) -> Result<()> {
        let outcome = if self.has_base && self.stuck.is_none() {
            self.follow().await
        } else {
            self.begin_anew().await
        };
        match outcome {
            Ok(()) => {
                self.backoff = Backoff::default();
                Ok(())
            }
            Err(error @ (Error::Impure { .. } | Error::OtherChain { .. })) => Err(error),
            Err(error) => {
                // A target that failed, or a moment between two lists: the same again.
                self.world.note_trouble(&error);
                let pause = self.backoff.next(self.world.random());
                self.world.clock().sleep(pause).await;
                if let Error::Target { .. } = error {
                    self.resume()?;
                } else if self.has_base {
                    self.stuck = Some(error);
                }
                Ok(())
            }
        }
    }

    /// Asks the target anew what it has, after a failure of it.
    fn resume(&mut self) -> Result<()> {
        self.has_base = self.applier.resume_again()?;
        Ok(())
    }

    async fn follow(&mut self) -> Result<()> {
        let number = self.applier.link.number.next();
        let Found::Object(bytes) = self.reader.object(number, false).await? else {
            self.world.clock().sleep(self.settings.poll).await;
            return Ok(());
        };
        match self.applier.apply(&bytes, None).await? {
            Step::Done | Step::Reached => Ok(()),
            Step::Broken => {
                let what = "the chain is broken off there, until a snapshot behind it".to_owned();
                self.stuck = Some(Error::Disorder { number, why: what });
                Ok(())
            }
            Step::Differs => self.differ(number).await,
        }
    }

    /// A merge made other pages here than on the primary. Once that may be the base's fault.
    async fn differ(&mut self, number: RecordNumber) -> Result<()> {
        if self.differed.is_some() {
            let tip = find_tip(&self.world).await?.ok_or(Error::Empty)?;
            let library = About::of(&self.world, &tip.record.header).await?.library;
            return Err(Error::Impure { number, library });
        }
        self.differed = Some(number);
        self.has_base = false;
        Ok(())
    }

    /// Begins with the newest snapshot that leads to the end of the chain, if it leads further than
    /// the target has come.
    async fn begin_anew(&mut self) -> Result<()> {
        match self.snapshot().await? {
            None => {
                let pause = self.settings.poll.max(self.backoff.next(self.world.random()));
                self.world.clock().sleep(pause).await;
                self.stuck = None;
                Ok(())
            }
            Some((header, lineage)) => {
                let about = About::of(&self.world, &header).await?;
                let begun = self.applier.begin(header.chain, &about, &lineage, &mut |_| {}).await;
                if let Err(Error::Part { number, .. }) = &begun {
                    self.bad.insert(*number);
                }
                begun?;
                (self.has_base, self.stuck) = (true, None);
                Ok(())
            }
        }
    }

    async fn snapshot(&mut self) -> Result<Option<(Header, Lineage)>> {
        let Some(tip) = find_tip(&self.world).await? else { return Ok(None) };
        let header = tip.record.header;
        if let Some(expected) = self.applier.link.chain
            && expected != header.chain
        {
            return Err(Error::OtherChain { found: header.chain, expected });
        }
        self.reader = Reader::with(&self.world, tip.listing);
        let has = self.has_base.then_some(self.applier.link.number);
        let leads_on = |snapshot: RecordNumber| has.is_none_or(|has| snapshot > has);
        let known = crate::snapshots::known_of(&mut self.reader, header.snapshot, header.chain)
            .await?
            .snapshots;
        let known: BTreeMap<_, _> = known.into_iter().collect();
        let is_fit = |snapshot: &SnapshotRef| {
            header.broken <= snapshot.as_of
                && snapshot.as_of <= header.number
                && leads_on(snapshot.as_of)
        };
        let fit = known.iter().rev().filter(|(_, snapshot)| is_fit(snapshot));
        let lineages = fit.filter_map(|(number, _)| lineage(&known, *number));
        let is_sound = |lineage: &Lineage| lineage.iter().all(|(of, _)| !self.bad.contains(of));
        let found = { lineages }.find(is_sound);
        Ok(found.map(|lineage| (header, lineage)))
    }
}

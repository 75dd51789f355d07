//! A quiet world, in which one thing at a time goes wrong: for tests of what is said then.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::dice::Dice;
use super::objects::{Door, Objects};
use super::oracle::Oracle;
use super::primary::{Database, Primary};
use super::replica::{Disk, Replica};
use super::time::{TaskClock, Time};
use crate::error::Result;
use crate::follower::{self, Follower};
use crate::primary::{Settings, Sidecar};
use crate::restore::{Restored, Stop, restore};
use crate::world::{Patience, Random as _, World};

/// A sidecar that runs, with its machine's clock.
pub type Running = (Sidecar, TaskClock);
/// A database that others work with as well.
pub type Shared = Rc<RefCell<Database>>;

/// Commits a few rows, ships them, and so on: about that many records. Merges now and then.
///
/// # Errors
/// As of [`Sidecar::step`].
pub fn live(stage: &Stage, database: &Shared, sidecar: &mut Running, records: u64) -> Result<()> {
    for round in 0..records {
        database.borrow_mut().commit(true);
        if round % 4 == 3 {
            database.borrow_mut().freeze();
            database.borrow_mut().merge(true);
        }
        stage.work(sidecar, Duration::from_secs(1))?;
    }
    Ok(())
}

/// The world.
pub struct Stage {
    /// Chance.
    pub dice: Rc<Dice>,
    /// The clock.
    pub time: Rc<Time>,
    /// What is true.
    pub oracle: Rc<Oracle>,
    /// The store.
    pub objects: Rc<Objects>,
    /// By how much wall clocks are off.
    pub skew_ms: Rc<Cell<i64>>,
    sidecars: Cell<u64>,
}

impl Default for Stage {
    fn default() -> Stage {
        let dice = Rc::new(Dice::new(7));
        let (time, oracle) = (Rc::new(Time::default()), Rc::new(Oracle::default()));
        let objects = Rc::new(Objects::new(&time, &dice, &oracle));
        Stage { dice, time, oracle, objects, skew_ms: Rc::default(), sidecars: Cell::default() }
    }
}

impl Stage {
    /// A new database on a machine.
    pub fn database(&self, host: &str) -> Rc<RefCell<Database>> {
        Rc::new(RefCell::new(Database::new(host, &self.dice, &self.oracle)))
    }

    /// A world, with its clock.
    pub fn world(&self, patience: Patience) -> (World, TaskClock) {
        let clock = TaskClock::new(&self.time, &self.skew_ms);
        let store = Rc::new(Door::new(&self.objects, &clock));
        let random = Rc::new(Dice::new(self.dice.number()));
        (World::new(store, Rc::new(clock.clone()), random, patience), clock)
    }

    /// Runs a task alone to its end.
    pub fn block<T>(&self, clock: &TaskClock, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return value;
            }
            self.time.advance_to(clock.wake());
        }
    }

    /// Starts a sidecar.
    ///
    /// # Errors
    /// As of [`Sidecar::open`].
    pub fn open(
        &self,
        database: &Rc<RefCell<Database>>,
        settings: Settings,
    ) -> Result<(Sidecar, TaskClock)> {
        let (world, clock) = self.world(Patience::Tries(4));
        self.sidecars.set(self.sidecars.get() + 1);
        let source = Primary::new(database, self.sidecars.get(), &Rc::default());
        let opening = Sidecar::open(world, Box::new(source), settings);
        let sidecar = self.block(&clock, opening)?;
        Ok((sidecar, clock))
    }

    /// Lets a sidecar work for some time.
    ///
    /// # Errors
    /// As of [`Sidecar::step`].
    pub fn work(&self, (sidecar, clock): &mut (Sidecar, TaskClock), time: Duration) -> Result<()> {
        let until = self.time.now() + time;
        while self.time.now() < until {
            self.block(clock, sidecar.step())?;
        }
        Ok(())
    }

    /// Restores.
    ///
    /// # Errors
    /// As of [`restore`].
    pub fn restore(&self, stop: Stop) -> Result<(Restored, Rc<RefCell<Disk>>)> {
        let (world, clock) = self.world(Patience::Tries(3));
        let disk = Rc::new(RefCell::new(Disk::default()));
        let target = Replica::new("a restore", &disk, &self.dice, &self.oracle, 0, true);
        let mut progress = |_| {};
        let restoring = restore(&world, Box::new(target), stop, "simulated", &mut progress);
        let (restored, _) = self.block(&clock, restoring)?;
        Ok((restored, disk))
    }

    /// Starts a follower over a disk.
    ///
    /// # Errors
    /// As of [`Follower::new`].
    pub fn follower(&self, disk: &Rc<RefCell<Disk>>, fails: u64) -> Result<(Follower, TaskClock)> {
        let (world, clock) = self.world(Patience::Tries(3));
        let target = Replica::new("a follower", disk, &self.dice, &self.oracle, fails, true);
        Ok((Follower::new(world, Box::new(target), follower::Settings::default())?, clock))
    }
}

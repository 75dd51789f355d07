//! A run: everything at once for a while, then the checks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::dice::Dice;
use super::objects::{Door, Objects, Outage, Troubles};
use super::oracle::Oracle;
use super::primary::{Database, Primary};
use super::replica::{Disk, Replica};
pub use super::tally::Tally;
use super::time::{TaskClock, Time};
use super::{restored, sidecar};
use crate::error::{Error, Result};
use crate::follower::{self, Follower};
use crate::ids::{Instance, Position, RecordNumber};
use crate::primary::Settings;
use crate::record::{Body, Follows, Header, Item, PageSet, Record};
use crate::restore::{Restored, Stop, restore};
use crate::world::{Patience, Random as _, World};

/// What a run may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// From which everything follows.
    pub seed: u64,
    /// Polls of tasks.
    pub polls: u64,
    /// What becomes of objects beside all that.
    pub damage: Damage,
    /// The records are printed.
    pub is_shown: bool,
}

/// What becomes of objects. A reader may fail then, and may not be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Nothing.
    None,
    /// They rot, vanish, or turn into others.
    Rot,
    /// Records turn into sound ones of another replica. A follower that is there first cannot know;
    /// a restore does.
    Forged,
}

/// What a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Of which database.
    Sidecar(usize),
    /// Over which disk.
    Follower(usize),
    Restore,
}

struct Task {
    kind: Kind,
    clock: TaskClock,
    future: Pin<Box<dyn Future<Output = Result<()>>>>,
}

/// What was said to be shipped, and to which database.
type Told = Rc<RefCell<Vec<(Instance, Position)>>>;

struct Run {
    plan: Plan,
    dice: Rc<Dice>,
    time: Rc<Time>,
    oracle: Rc<Oracle>,
    objects: Rc<Objects>,
    told: Told,
    databases: Vec<Rc<RefCell<Database>>>,
    disks: Vec<Rc<RefCell<Disk>>>,
    skew_ms: Rc<Cell<i64>>,
    /// Clocks are set back by so much where they are wrong by days; 0: they never are.
    back_ms: i64,
    /// Clocks are ahead by days until then.
    ahead_until: Option<Duration>,
    tasks: Vec<Task>,
    sidecars: u64,
    tally: Tally,
    target_fails: u64,
    /// The second follower has another library.
    has_other_library: bool,
    /// Once in so many polls there is trouble.
    calm: u64,
    /// Polls in which the first database is quiet, so that its last close comes after everything
    /// is shipped.
    closing: u64,
    restores: Rc<Cell<u64>>,
}

const DAY_MS: i64 = 24 * 3_600_000;

/// Settings with which much happens within minutes.
pub fn settings(take_over: bool) -> Settings {
    Settings {
        interval: Duration::from_secs(1),
        idle: Duration::from_secs(10),
        check_every: Duration::from_secs(10),
        record_bytes: 1500,
        inline_bytes: 1100,
        part_bytes: 1100,
        snapshot_every: Duration::from_secs(120),
        log_bytes_least: 6000,
        pack_every: Duration::from_secs(8),
        pack_records: 2,
        pack_bytes: 4000,
        large_bytes: 900,
        keep: Duration::from_secs(150),
        sweep_every: Duration::from_secs(25),
        take_over,
    }
}

/// Runs a plan.
///
/// # Errors
/// What is not as it has to be, in words.
pub fn run(plan: Plan) -> std::result::Result<Tally, String> {
    let mut run = Run::new(plan);
    run.go()?;
    run.finish()?;
    run.tally.calls = run.objects.calls();
    run.tally.restores = run.restores.get();
    Ok(run.tally)
}

impl Run {
    fn new(plan: Plan) -> Run {
        let dice = Rc::new(Dice::new(plan.seed));
        let (time, oracle) = (Rc::new(Time::default()), Rc::new(Oracle::default()));
        let objects = Rc::new(Objects::new(&time, &dice, &oracle));
        let often = dice.between(4, 60);
        let rare = |dice: &Dice| if dice.one_in(2) { 0 } else { dice.between(often, 4 * often) };
        objects.set_troubles(Troubles {
            lost: rare(&dice),
            unanswered: rare(&dice),
            late: rare(&dice),
            twice: rare(&dice),
            clash: rare(&dice),
            slow: rare(&dice),
        });
        let first = Rc::new(RefCell::new(Database::new("alpha", &dice, &oracle)));
        let calm = [12, 40, 120, 400][dice.below(4) as usize];
        let target_fails = if dice.one_in(2) { 0 } else { 40 };
        Run {
            plan,
            time,
            oracle,
            objects,
            told: Told::default(),
            databases: vec![first],
            disks: (0..2).map(|_| Rc::default()).collect(),
            skew_ms: Rc::default(),
            back_ms: if plan.seed % 4 == 2 { (2 + plan.seed % 39) as i64 * DAY_MS } else { 0 },
            ahead_until: None,
            tasks: Vec::new(),
            sidecars: 0,
            tally: Tally::default(),
            target_fails,
            has_other_library: dice.one_in(5),
            calm,
            closing: 0,
            restores: Rc::default(),
            dice,
        }
    }

    fn world(&self, clock: &TaskClock, patience: Patience) -> World {
        let store = Rc::new(Door::new(&self.objects, clock));
        let random = Rc::new(Dice::new(self.dice.number()));
        World::new(store, Rc::new(clock.clone()), random, patience)
    }

    fn clock(&self) -> TaskClock {
        TaskClock::new(&self.time, &self.skew_ms)
    }

    fn start_sidecar(&mut self, of: usize, take_over: bool) {
        let clock = self.clock();
        let world = self.world(&clock, Patience::Endless);
        self.sidecars += 1;
        let source = Primary::new(&self.databases[of], self.sidecars, &self.told);
        let oracle = Rc::clone(&self.oracle);
        let future = async move {
            let source = Box::new(source);
            let Err(error) = sidecar::run(world, source, settings(take_over), oracle).await;
            Err(error)
        };
        self.tasks.push(Task { kind: Kind::Sidecar(of), clock, future: Box::pin(future) });
    }

    fn start_follower(&mut self, of: usize) {
        let clock = self.clock();
        let world = self.world(&clock, Patience::Endless);
        let mut target = self.replica(&format!("follower {of}"), of, self.target_fails);
        if self.has_other_library && of == 1 {
            target = target.with_another_library();
        }
        let future = async move {
            let settings = follower::Settings { poll: Duration::from_secs(1) };
            let Err(error) = Follower::run(world, Box::new(target), settings).await;
            Err(error)
        };
        self.tasks.push(Task { kind: Kind::Follower(of), clock, future: Box::pin(future) });
    }

    fn replica(&self, name: &str, of: usize, fails: u64) -> Replica {
        let is_checked = self.plan.damage != Damage::Forged;
        Replica::new(name, &self.disks[of], &self.dice, &self.oracle, fails, is_checked)
    }

    fn is_damaged(&self) -> bool {
        self.plan.damage != Damage::None
    }

    /// Restores beside everything else.
    fn start_restore(&mut self) {
        let clock = self.clock();
        let world = self.world(&clock, Patience::Tries(8));
        let stop = match self.dice.below(3) {
            0 => Stop::Newest,
            1 => Stop::Time(self.time.wall_ms().saturating_sub(self.dice.below(100_000))),
            _ => Stop::Record(RecordNumber(self.dice.below(self.highest().0 + 2))),
        };
        let (oracle, restores) = (Rc::clone(&self.oracle), Rc::clone(&self.restores));
        let (disk, target) = self.scratch();
        let (is_damaged, objects) = (self.is_damaged(), Rc::clone(&self.objects));
        let future = async move {
            match restore(&world, Box::new(target), stop, "simulated", &mut |_| {}).await {
                Ok((restored, _)) => {
                    restored::check(&oracle, stop, &restored, &disk.borrow(), &objects);
                    restores.set(restores.get() + 1);
                }
                Err(error) if is_damaged || may_meet(&error) => {}
                Err(error) => oracle.violate(format!("a restore to {stop:?}: {error}")),
            }
            Ok(())
        };
        self.tasks.push(Task { kind: Kind::Restore, clock, future: Box::pin(future) });
    }

    fn scratch(&self) -> (Rc<RefCell<Disk>>, Replica) {
        let disk = Rc::new(RefCell::new(Disk::default()));
        // What is forged is known by the record behind it.
        let is_checked = self.plan.damage != Damage::Forged;
        let replica = Replica::new("a restore", &disk, &self.dice, &self.oracle, 0, is_checked);
        (disk, replica)
    }

    fn highest(&self) -> RecordNumber {
        self.objects.ledger().keys().next_back().copied().unwrap_or_default()
    }

    fn go(&mut self) -> std::result::Result<(), String> {
        if self.is_damaged() {
            self.oracle.judge_readers_alone();
        }
        self.start_sidecar(0, false);
        for of in 0..self.disks.len() {
            self.start_follower(of);
        }
        // What retention has let go is seen at the end, and what is old tells nothing then.
        let late = self.plan.polls - self.plan.polls / 10;
        for poll in 0..self.plan.polls {
            if poll == late && self.back_ms > 0 && self.ahead_until.is_none() {
                self.set_clocks();
            }
            self.objects.settle(false);
            if self.closing > 0 {
                self.close();
            } else if self.dice.one_in(3) {
                self.work();
            }
            if self.ahead_until.is_some_and(|until| self.time.now() >= until) {
                self.ahead_until = None;
                self.skew_ms.set(0);
            }
            // A start would believe the clock that is wrong, as what was shipped by it says the same.
            if self.ahead_until.is_none() && self.dice.one_in(self.calm) {
                self.trouble();
            }
            self.poll_one()?;
            if let Some(violation) = self.oracle.violation() {
                return Err(violation);
            }
        }
        Ok(())
    }

    /// Lets one task that is ready go on; where none is, time passes.
    fn poll_one(&mut self) -> std::result::Result<(), String> {
        let now = self.time.now();
        let ready: Vec<usize> =
            (0..self.tasks.len()).filter(|i| self.tasks[*i].clock.wake() <= now).collect();
        if ready.is_empty() {
            let wakes = self.tasks.iter().map(|task| task.clock.wake());
            let next = wakes.chain(self.objects.next_late()).min();
            self.time.advance_to(next.unwrap_or(now + Duration::from_secs(1)));
            return Ok(());
        }
        let at = ready[self.dice.below(ready.len() as u64) as usize];
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(outcome) = self.tasks[at].future.as_mut().poll(&mut context) {
            let task = self.tasks.swap_remove(at);
            self.ended(task.kind, outcome)?;
        }
        Ok(())
    }

    fn ended(&mut self, kind: Kind, outcome: Result<()>) -> std::result::Result<(), String> {
        let Err(error) = outcome else { return Ok(()) };
        let is_legal = match (&error, kind) {
            (Error::Fenced { .. }, Kind::Sidecar(_)) => {
                self.tally.fenced += 1;
                true
            }
            (Error::Ended(_) | Error::Overtaken | Error::Occupied { .. }, Kind::Sidecar(_)) => true,
            (Error::OtherChain { .. }, Kind::Sidecar(of)) => of > 0,
            (Error::Impure { .. }, Kind::Follower(1)) => self.has_other_library,
            _ => false,
        };
        if is_legal || self.is_damaged() {
            return Ok(());
        }
        Err(format!("{kind:?} ends: {error}"))
    }

    /// Something happens to a database.
    fn work(&mut self) {
        let at = self.dice.below(self.databases.len() as u64) as usize;
        let mut database = self.databases[at].borrow_mut();
        match self.dice.below(24) {
            0..14 => database.commit(self.dice.one_in(2)),
            14..17 => database.sync(),
            17..19 => database.freeze(),
            19..22 => database.merge(self.dice.one_in(2)),
            22 => database.exclusive(),
            _ if !database.is_attached() && self.dice.one_in(25) => database.end_session(),
            _ => {}
        }
    }

    fn trouble(&mut self) {
        let dice = Rc::clone(&self.dice);
        match dice.below(23) {
            0..3 => self.kill_one(),
            3..7 => self.start_missing(),
            7..9 => self.stall_one(),
            9 => self.start_and_stall(),
            10 => self.start_elsewhere(),
            11..13 => {
                let outage = [Outage::Down, Outage::Full, Outage::Denied][dice.below(3) as usize];
                let until = self.time.now() + Duration::from_millis(dice.below(60_000));
                self.objects.set_outage(Some((outage, until)));
            }
            13 => self.set_clocks(),
            14..16 => self.start_restore(),
            16 => self.cut_power(),
            17 => self.databases[0].borrow_mut().save(),
            18 if dice.one_in(3) => self.databases[0].borrow_mut().put_back(),
            19 if !self.databases[0].borrow().is_attached() => {
                self.databases[0].borrow_mut().change_at_rest();
            }
            20 if self.plan.damage == Damage::Rot => self.damage_one(),
            20 if self.plan.damage == Damage::Forged => self.forge_one(),
            20 | 21 if dice.one_in(2) => {
                self.databases[0].borrow_mut().merge_everything();
                self.closing = 300;
            }
            22 => self.databases[0].borrow().shelf().disturb(&dice),
            _ => {
                let ahead = Duration::from_millis(dice.below(30_000));
                self.time.advance_to(self.time.now() + ahead);
            }
        }
    }

    /// Sets wall clocks to what is wrong by seconds, or, once a snapshot was stamped by right ones, by days: back for as long
    /// as it takes, or ahead for less than from one sweep to the next, beside a lone sidecar.
    fn set_clocks(&mut self) {
        let dice = Rc::clone(&self.dice);
        let days = self.back_ms > 0 && self.has_right_snapshot();
        let chance = if days { dice.below(3) } else { 2 };
        let sidecars = self.tasks.iter().filter(|task| matches!(task.kind, Kind::Sidecar(_)));
        match chance {
            0 => self.skew_ms.set(-self.back_ms),
            1 if self.skew_ms.get() > -DAY_MS && sidecars.count() == 1 => {
                self.skew_ms.set(self.back_ms);
                let time = Duration::from_millis(dice.between(5_000, 20_000));
                self.ahead_until = Some(self.time.now() + time);
            }
            _ => self.skew_ms.set(dice.below(20_000) as i64 - 10_000),
        }
    }

    fn has_right_snapshot(&self) -> bool {
        let ledger = self.objects.ledger();
        let mut records = ledger.values().filter_map(|bytes| Record::decode(bytes).ok());
        records.any(|record| {
            let made_ms = self.objects.made_ms(record.header.number);
            let is_right = |taken_ms: u64| taken_ms.abs_diff(made_ms) < DAY_MS as u64;
            record.items.iter().any(|item| match item {
                Item::Snapshot(snapshot) => is_right(snapshot.taken_ms),
                _ => false,
            })
        })
    }

    fn kill_one(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let at = self.dice.below(self.tasks.len() as u64) as usize;
        let task = self.tasks.swap_remove(at);
        self.tally.kills += 1;
        if let Kind::Follower(of) = task.kind {
            drop(task);
            self.disks[of].borrow_mut().crash(&self.dice);
        }
    }

    fn start_missing(&mut self) {
        let has = |kind: Kind| self.tasks.iter().any(|task| task.kind == kind);
        let followers: Vec<usize> =
            (0..self.disks.len()).filter(|of| !has(Kind::Follower(*of))).collect();
        if !has(Kind::Sidecar(0)) {
            let take_over = self.dice.one_in(2);
            self.start_sidecar(0, take_over);
        }
        followers.into_iter().for_each(|of| self.start_follower(of));
    }

    fn stall_one(&mut self) {
        if !self.tasks.is_empty() {
            let at = self.dice.below(self.tasks.len() as u64) as usize;
            let most = if self.dice.one_in(3) { 600_000 } else { 30_000 };
            let time = Duration::from_millis(self.dice.below(most));
            self.tasks[at].clock.stall_until(self.time.now() + time);
        }
    }

    /// A sidecar that stands still in the middle of its start, while the other one goes on.
    fn start_and_stall(&mut self) {
        self.start_sidecar(0, true);
        let mut context = Context::from_waker(Waker::noop());
        let polls = self.dice.between(1, 24);
        let Some(task) = self.tasks.last_mut() else { return };
        for _ in 0..polls {
            if task.future.as_mut().poll(&mut context).is_ready() {
                self.tasks.pop();
                return;
            }
            self.time.advance_to(task.clock.wake());
        }
        let time = Duration::from_millis(self.dice.between(1, 60_000));
        task.clock.stall_until(self.time.now() + time);
    }

    /// A copy of the database on another machine, which somebody takes for the primary.
    fn start_elsewhere(&mut self) {
        if self.databases.len() < 2 {
            let first = self.databases[0].borrow();
            let is_twin = self.dice.one_in(2);
            let copy = if is_twin { first.twin("beta") } else { first.copied_to("beta") };
            drop(first);
            self.databases.push(Rc::new(RefCell::new(copy)));
        }
        let take_over = self.dice.one_in(2);
        self.start_sidecar(1, take_over);
    }

    /// The last close, when everything is shipped.
    fn close(&mut self) {
        self.closing -= 1;
        if self.databases[0].borrow().is_all_shipped() {
            self.closing = 0;
            self.tasks.retain(|task| task.kind != Kind::Sidecar(0));
            self.databases[0].borrow_mut().end_session();
        }
    }

    fn cut_power(&mut self) {
        self.tasks.retain(|task| task.kind != Kind::Sidecar(0));
        self.databases[0].borrow_mut().cut_power();
    }

    /// Turns a record before the newest into another sound one.
    fn forge_one(&mut self) {
        let highest = self.highest();
        if highest.0 < 2 {
            return;
        }
        let name = crate::names::record(RecordNumber(self.dice.between(1, highest.0 - 1)));
        let bytes = self.objects.object(&name);
        let Some(mut record) = bytes.and_then(|bytes| Record::decode(&bytes).ok()) else { return };
        for item in &mut record.items {
            if let Item::Pages(PageSet { body: Body::Inline(pages), .. }) = item {
                let mut other = pages.to_vec();
                let last = other.len() - super::database::PAGE_BYTES + 100;
                other[last] ^= 1;
                *pages = other.into();
            }
        }
        record.header.written_ms += 1;
        if self.plan.is_shown {
            println!("{name} becomes another");
        }
        self.objects.damage(&name, Some(record.encode()));
        self.tally.damaged += 1;
    }

    fn damage_one(&mut self) {
        let names = self.objects.names();
        if names.is_empty() {
            return;
        }
        let any = |names: &[String]| names[self.dice.below(names.len() as u64) as usize].clone();
        let name = any(&names);
        let bytes = match self.dice.below(3) {
            0 => None,
            1 => self.objects.object(&any(&names)),
            _ => self.objects.object(&name).map(|bytes| {
                let mut bytes = bytes.to_vec();
                if !bytes.is_empty() {
                    let at = self.dice.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << self.dice.below(8);
                }
                bytes.into()
            }),
        };
        self.objects.damage(&name, bytes);
        self.tally.damaged += 1;
    }
}

/// What a restore may meet beside everything else: retention, and a store that does not answer.
fn may_meet(error: &Error) -> bool {
    match error {
        Error::Store { .. }
        | Error::Gone { .. }
        | Error::Moment(_)
        | Error::Empty
        | Error::Missing { .. } => true,
        Error::Part { why, .. } => why == "is missing" || why.starts_with("is there, "),
        _ => false,
    }
}

/// The checks behind a run.
impl Run {
    fn finish(&mut self) -> std::result::Result<(), String> {
        self.tasks.clear();
        self.objects.set_troubles(Troubles::default());
        self.objects.set_outage(None);
        self.objects.settle(true);
        let ledger = self.objects.ledger();
        let headers = self.check_ledger(&ledger)?;
        if self.is_damaged() {
            self.check_damaged(&headers);
        } else {
            self.check_told(&ledger)?;
            self.check_opens(&ledger)?;
            self.check_restores(&headers)?;
            self.check_followers(&headers)?;
        }
        self.oracle.violation().map_or(Ok(()), Err)
    }

    /// Every record names the one before, and follows it (CHAIN-3, CHAIN-4).
    fn check_ledger(
        &mut self,
        ledger: &BTreeMap<RecordNumber, Bytes>,
    ) -> std::result::Result<Vec<Record>, String> {
        let mut link = crate::chain::Link::START;
        let mut records: Vec<Record> = Vec::new();
        for (number, bytes) in ledger {
            if self.is_damaged() && link.number.next() != *number {
                return Ok(records);
            }
            let record = match link.follow(bytes) {
                Ok(record) => record,
                Err(_) if self.is_damaged() => return Ok(records),
                Err(error) => return Err(error.to_string()),
            };
            let before = records.last().map_or(0, |before| before.header.epoch.0);
            let is_open = record.open().is_some();
            if record.header.epoch.0 != before + u64::from(is_open) && !self.is_damaged() {
                return Err(format!("record {number} is of epoch {}", record.header.epoch));
            }
            self.tally.records += 1;
            self.tally.opens += u64::from(is_open);
            self.tally.breaks += u64::from(record.is_break());
            let follows = record.open().map(|open| open.follows);
            self.tally.streams += u64::from(follows == Some(Follows::Stream));
            self.tally.bases += u64::from(follows == Some(Follows::Base));
            for item in &record.items {
                if let Item::Snapshot(snapshot) = item {
                    self.tally.snapshots += 1;
                    self.tally.changes += u64::from(snapshot.parent != RecordNumber::NONE);
                }
            }
            if self.plan.is_shown {
                println!("{}", shown(&record));
            }
            records.push(record);
        }
        Ok(records)
    }

    /// What a database was told is in a record of its own (CHAIN-2).
    fn check_told(
        &self,
        ledger: &BTreeMap<RecordNumber, Bytes>,
    ) -> std::result::Result<(), String> {
        let mut instance = Instance::default();
        let mut known = std::collections::BTreeSet::new();
        for record in ledger.values().filter_map(|bytes| Record::decode(bytes).ok()) {
            if let Some(open) = record.open() {
                instance = open.instance;
            }
            let Position { salt, base, stream, .. } = record.header.position;
            known.insert((instance, salt, base, stream));
        }
        for (instance, Position { salt, base, stream, .. }) in &*self.told.borrow() {
            if !known.contains(&(*instance, *salt, *base, *stream)) {
                return Err(format!(
                    "{stream} of {salt} was told as shipped, and no record has it"
                ));
            }
        }
        Ok(())
    }

    /// No OPEN is gone (CHAIN-8).
    fn check_opens(
        &self,
        ledger: &BTreeMap<RecordNumber, Bytes>,
    ) -> std::result::Result<(), String> {
        for (number, bytes) in ledger {
            let is_open = Record::decode(bytes).is_ok_and(|record| record.open().is_some());
            if is_open && self.objects.object(&crate::names::record(*number)).is_none() {
                return Err(format!("the OPEN in record {number} is gone"));
            }
        }
        Ok(())
    }

    fn restore_to(&self, stop: Stop) -> Result<Restored> {
        let clock = self.clock();
        let world = self.world(&clock, Patience::Tries(3));
        let (disk, target) = self.scratch();
        let (restored, _) =
            self.block(&clock, restore(&world, Box::new(target), stop, "simulated", &mut |_| {}))?;
        restored::check(&self.oracle, stop, &restored, &disk.borrow(), &self.objects);
        self.restores.set(self.restores.get() + 1);
        Ok(restored)
    }

    /// Runs one task alone.
    fn block<T>(&self, clock: &TaskClock, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return value;
            }
            self.time.advance_to(clock.wake());
        }
    }

    /// Everything that was shipped is restored, and each moment of the window.
    fn check_restores(&self, records: &[Record]) -> std::result::Result<(), String> {
        let Some(tip) = records.last() else { return Ok(()) };
        let since_ms = self.time.wall_ms().saturating_sub(settings(false).keep.as_millis() as u64);
        let mut stops = vec![(Stop::Newest, &tip.header)];
        for _ in 0..3 {
            let at = &records[self.dice.below(records.len() as u64) as usize].header;
            stops.push((Stop::Record(at.number), at));
        }
        for (stop, at) in stops {
            match self.restore_to(stop) {
                Ok(restored) if restored.record == at.number => {}
                Ok(restored) => {
                    return Err(format!("{stop:?} ended at record {}", restored.record));
                }
                Err(error) if may_meet(&error) && !self.is_promised(records, at, since_ms) => {}
                Err(error) => return Err(format!("{stop:?} of {}: {error}", tip.header.number)),
            }
        }
        // A time may lie in a gap.
        let time = Stop::Time(since_ms + self.dice.below(100_000));
        match self.restore_to(time) {
            Err(error) if !may_meet(&error) => Err(format!("{time:?}: {error}")),
            _ => Ok(()),
        }
    }

    /// A reader of damaged objects fails, or is right.
    fn check_damaged(&self, records: &[Record]) {
        let _ = self.restore_to(Stop::Newest);
        for record in records.iter().rev().take(40).step_by(9) {
            let _ = self.restore_to(Stop::Record(record.header.number));
        }
    }

    /// Followers come to the end of the chain, where something leads there.
    fn check_followers(&self, records: &[Record]) -> std::result::Result<(), String> {
        let Some(tip) = records.last() else { return Ok(()) };
        if !self.is_promised(records, &tip.header, 0) {
            return Ok(());
        }
        for of in 0..self.disks.len() {
            let clock = self.clock();
            let world = self.world(&clock, Patience::Endless);
            let target = self.replica(&format!("follower {of}"), of, 0);
            let settings = follower::Settings { poll: Duration::from_secs(1) };
            let applied = self.block(&clock, async {
                let mut follower = Follower::new(world, Box::new(target), settings)?;
                for _ in 0..3 * records.len() + 300 {
                    follower.step().await?;
                    if follower.applied() == tip.header.number {
                        break;
                    }
                }
                let why = follower.stuck().map(ToString::to_string).unwrap_or_default();
                Ok::<_, Error>((follower.applied(), why))
            });
            match applied {
                Ok((number, _)) if number == tip.header.number => {}
                Ok((number, why)) => {
                    let tip = tip.header.number;
                    return Err(format!("follower {of} stays at record {number} of {tip}: {why}"));
                }
                Err(error) => return Err(format!("follower {of}: {error}")),
            }
        }
        Ok(())
    }

    /// True if retention keeps a moment, whatever its clock says, and a snapshot leads there.
    fn is_promised(&self, records: &[Record], at: &Header, since_ms: u64) -> bool {
        let snapshots = records.iter().filter(|record| record.header.number <= at.number);
        let snapshots = snapshots.flat_map(|record| &record.items);
        let leads_there = snapshots.filter_map(|item| match item {
            Item::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        });
        let mut leads_there = leads_there.filter(|snapshot| at.broken <= snapshot.as_of);
        // A minute for a skewed clock, and for the time between sweeps.
        self.objects.made_ms(at.number) >= since_ms + 60_000 && leads_there.next().is_some()
    }
}

/// A record in a line.
fn shown(record: &Record) -> String {
    let Header { number, epoch, position, first, snapshot, broken, .. } = &record.header;
    let items = record.items.iter().map(|item| match item {
        Item::Open(open) => format!("OPEN {:?} {}", open.follows, open.host),
        Item::Frames(f) => format!("FRAMES {} {}..{}", f.generation, f.from, f.end()),
        Item::Merge(merge) => format!("MERGE {} {}", merge.before, merge.through),
        Item::Pages(pages) => format!("PAGES {} {}", pages.before, pages.through),
        Item::Snapshot(s) => format!(
            "SNAPSHOT {} as of {} first {} stream {} parent {}",
            s.generation, s.as_of, s.first, s.stream, s.parent
        ),
        Item::Break(gap) => {
            format!("BREAK to {} base {} incomplete {}", gap.stream, gap.base, gap.incomplete)
        }
    });
    let Position { salt, base, stream, .. } = position;
    format!(
        "{number} at {} e{epoch} salt {salt} base {base} stream {stream} first {first} snapshot {snapshot} \
         broken {broken}: {}",
        record.header.written_ms % 10_000_000,
        items.collect::<Vec<_>>().join(", ")
    )
}

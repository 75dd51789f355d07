//! A store that fails in every way a store may, and a ledger of what it ever held.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::dice::Dice;
use super::oracle::Oracle;
use super::time::{TaskClock, Time};
use crate::ids::RecordNumber;
use crate::names;
use crate::pack::{Entry, Pack};
use crate::record::Record;
use crate::store::{Created, Later, Store, StoreError};
use crate::world::Random as _;

/// How often a store fails: once in so many calls, 0 never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    /// The call does not happen, and has no answer.
    pub lost: u64,
    /// It happens, and has no answer.
    pub unanswered: u64,
    /// It has no answer, and happens later.
    pub late: u64,
    /// It happens, and again later.
    pub twice: u64,
    /// A create is said to meet another object, and has not happened.
    pub clash: u64,
    /// It takes very long.
    pub slow: u64,
}

#[derive(Clone, Debug)]
enum Write {
    Create(String, Bytes),
    Put(String, Bytes),
    Delete(String),
}

/// What a store answers to everything, for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Nothing.
    Down,
    /// That it is full.
    Full,
    /// That the caller may not.
    Denied,
    /// That objects are locked: none is deleted.
    Locked,
    /// That deletions fail, as on a disk with a damaged folder.
    Undeletable,
}

/// The objects, shared by all machines.
pub struct Objects {
    time: Rc<Time>,
    dice: Rc<Dice>,
    oracle: Rc<Oracle>,
    there: RefCell<BTreeMap<String, Bytes>>,
    late: RefCell<Vec<(Duration, Write)>>,
    troubles: Cell<Troubles>,
    outage: Cell<Option<(Outage, Duration)>>,
    /// The first object of each record's name.
    ledger: RefCell<BTreeMap<RecordNumber, Bytes>>,
    /// When that was made, by a clock that is right.
    made_ms: RefCell<BTreeMap<RecordNumber, u64>>,
    calls: Cell<u64>,
    /// Objects that nobody may delete.
    held: RefCell<fn(&str) -> bool>,
    /// Objects that lists leave out.
    hidden: RefCell<fn(&str) -> bool>,
    /// Objects that it has and does not give.
    withheld: RefCell<fn(&str) -> bool>,
    /// Deletions that were refused: an object each.
    refused: RefCell<Vec<String>>,
}

impl Objects {
    /// An empty store.
    pub fn new(time: &Rc<Time>, dice: &Rc<Dice>, oracle: &Rc<Oracle>) -> Objects {
        Objects {
            time: Rc::clone(time),
            dice: Rc::clone(dice),
            oracle: Rc::clone(oracle),
            there: RefCell::default(),
            late: RefCell::default(),
            troubles: Cell::default(),
            outage: Cell::default(),
            ledger: RefCell::default(),
            made_ms: RefCell::default(),
            calls: Cell::default(),
            held: RefCell::new(|_| false),
            hidden: RefCell::new(|_| false),
            withheld: RefCell::new(|_| false),
            refused: RefCell::default(),
        }
    }

    /// Objects whose deletion it has refused, since this was asked last.
    pub fn take_refused(&self) -> Vec<String> {
        self.refused.take()
    }

    /// Holds objects: their deletion is refused.
    pub fn hold(&self, held: fn(&str) -> bool) {
        self.held.replace(held);
    }

    /// Leaves objects out of lists, as a store whose lists are old.
    pub fn hide(&self, hidden: fn(&str) -> bool) {
        self.hidden.replace(hidden);
    }

    /// Has objects, and does not give them, as an archive.
    pub fn withhold(&self, withheld: fn(&str) -> bool) {
        self.withheld.replace(withheld);
    }

    /// Sets how often it fails.
    pub fn set_troubles(&self, troubles: Troubles) {
        self.troubles.set(troubles);
    }

    /// Lets it fail for some time.
    pub fn set_outage(&self, outage: Option<(Outage, Duration)>) {
        self.outage.set(outage);
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// The first object of each record's name.
    pub fn ledger(&self) -> BTreeMap<RecordNumber, Bytes> {
        self.ledger.borrow().clone()
    }

    /// When a record was made, by a clock that is right, in milliseconds since 1970.
    pub fn made_ms(&self, number: RecordNumber) -> u64 {
        self.made_ms.borrow().get(&number).copied().unwrap_or_default()
    }

    /// The object of a name.
    pub fn object(&self, name: &str) -> Option<Bytes> {
        self.there.borrow().get(name).cloned()
    }

    /// Names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.there.borrow().keys().cloned().collect()
    }

    /// Names of objects that begin so.
    pub fn names_with(&self, prefix: &str) -> Vec<String> {
        let there = self.there.borrow();
        let from = there.range(prefix.to_owned()..).map(|(name, _)| name);
        from.take_while(|name| name.starts_with(prefix)).cloned().collect()
    }

    /// Damages, replaces or removes an object, as nobody should.
    pub fn damage(&self, name: &str, bytes: Option<Bytes>) {
        match bytes {
            Some(bytes) => self.there.borrow_mut().insert(name.to_owned(), bytes),
            None => self.there.borrow_mut().remove(name),
        };
    }

    /// When the next late call happens.
    pub fn next_late(&self) -> Option<Duration> {
        self.late.borrow().iter().map(|(due, _)| *due).min()
    }

    /// Lets late calls happen that are due, or all of them.
    pub fn settle(&self, all: bool) {
        let now = self.time.now();
        loop {
            let mut late = self.late.borrow_mut();
            let Some(at) = late.iter().position(|(due, _)| all || *due <= now) else { return };
            let (_, write) = late.swap_remove(at);
            drop(late);
            self.perform(&write);
        }
    }

    fn perform(&self, write: &Write) -> Created {
        match write {
            Write::Create(name, bytes) => {
                if self.there.borrow().contains_key(name) {
                    return Created::Exists;
                }
                self.check_creation(name, bytes);
                self.there.borrow_mut().insert(name.clone(), bytes.clone());
            }
            Write::Put(name, bytes) => {
                if name.starts_with(names::CHAIN) || name.starts_with(names::PACKS) {
                    self.oracle.violate_by_writer(format!("{name} is written without a condition"));
                }
                self.there.borrow_mut().insert(name.clone(), bytes.clone());
            }
            Write::Delete(name) => {
                self.check_deletion(name);
                self.there.borrow_mut().remove(name);
            }
        }
        Created::Made
    }

    /// A number has one content, but for strays (CHAIN-3), and what is in it was on disk (CHAIN-6).
    fn check_creation(&self, name: &str, bytes: &Bytes) {
        let Some(number) = names::parse_record(name) else { return };
        let Ok(record) = Record::decode(bytes) else {
            self.oracle.violate_by_writer(format!("{name} is made and is no record"));
            return;
        };
        let mut ledger = self.ledger.borrow_mut();
        match ledger.get(&number) {
            Some(first) if first == bytes => {}
            Some(_) if record.open().is_some() => {}
            Some(_) => self
                .oracle
                .violate_by_writer(format!("record {number} is made anew with another content")),
            None => {
                ledger.insert(number, bytes.clone());
                self.made_ms.borrow_mut().insert(number, self.time.wall_ms());
                self.oracle.note_record(&record.header.position);
                if !self.oracle.is_durable(&record.header.position) {
                    let position = record.header.position;
                    self.oracle.violate_by_writer(format!(
                        "record {number} has what is not on disk: {position:?}"
                    ));
                }
            }
        }
    }

    /// An OPEN stays (CHAIN-8), and so does every record that no pack has and no pack named
    /// (CHAIN-9).
    fn check_deletion(&self, name: &str) {
        let Some(number) = names::parse_record(name) else { return };
        let there = self.there.borrow();
        let Some(bytes) = there.get(name) else { return };
        // A stray is no record of the chain.
        let is_chains = self.ledger.borrow().get(&number) == Some(bytes);
        let is_open = Record::decode(bytes).is_ok_and(|record| record.open().is_some());
        if is_chains && is_open {
            self.oracle.violate_by_writer(format!("record {number}, an OPEN, is deleted"));
        }
        let packs = there.iter().filter(|(name, _)| {
            names::parse_pack(name).is_some_and(|(first, last)| first <= number && number <= last)
        });
        let mut entries =
            packs.filter_map(|(_, pack)| Pack::decode(pack).ok()?.entry(number).cloned());
        let is_kept = entries.any(|entry| match entry {
            Entry::Here(packed) => packed == *bytes,
            Entry::InChain(_) => true,
        });
        // A call that was late finds what retention has passed.
        let is_below = there
            .keys()
            .filter_map(|name| names::parse_pack(name))
            .all(|(first, _)| first > number);
        if is_chains && !is_kept && !is_below {
            self.oracle
                .violate_by_writer(format!("record {number} is deleted, and no pack has it"));
        }
    }
}

/// A task's way to the store.
pub struct Door {
    objects: Rc<Objects>,
    clock: TaskClock,
}

impl Door {
    /// Opens one.
    pub fn new(objects: &Rc<Objects>, clock: &TaskClock) -> Door {
        Door { objects: Rc::clone(objects), clock: clock.clone() }
    }

    async fn wait(&self) {
        let dice = &self.objects.dice;
        let troubles = self.objects.troubles.get();
        let is_slow = troubles.slow > 0 && dice.one_in(troubles.slow);
        let most = if is_slow { 40_000 } else { 60 };
        self.clock.wait(Duration::from_millis(dice.below(most))).await;
    }

    fn outage(&self, writes: bool) -> Result<(), StoreError> {
        match self.objects.outage.get() {
            Some((outage, until)) if self.objects.time.now() < until => match outage {
                Outage::Down => Err(StoreError::Unavailable("it is down".to_owned())),
                Outage::Full if writes => Err(StoreError::Full("a quota".to_owned())),
                Outage::Full => Ok(()),
                Outage::Denied => Err(StoreError::Denied("a key".to_owned())),
                // `write` knows what is a deletion.
                Outage::Locked | Outage::Undeletable => Ok(()),
            },
            _ => Ok(()),
        }
    }

    async fn write(&self, write: Write) -> Result<Created, StoreError> {
        self.objects.calls.set(self.objects.calls.get() + 1);
        self.wait().await;
        self.objects.settle(false);
        self.outage(!matches!(write, Write::Delete(_)))?;
        if let (Some((outage, until)), Write::Delete(name)) = (self.objects.outage.get(), &write)
            && matches!(outage, Outage::Locked | Outage::Undeletable)
            && self.objects.time.now() < until
        {
            self.objects.refused.borrow_mut().push(name.clone());
            return Err(match outage {
                Outage::Locked => StoreError::Denied("it is locked".to_owned()),
                _ => StoreError::Unavailable("an error of the disk".to_owned()),
            });
        }
        if let Write::Delete(name) = &write
            && self.objects.held.borrow()(name)
        {
            self.objects.refused.borrow_mut().push(name.clone());
            return Err(StoreError::Denied(format!("{name} is held")));
        }
        let objects = &self.objects;
        let (dice, troubles) = (&objects.dice, objects.troubles.get());
        let happens = |one_in: u64| one_in > 0 && dice.one_in(one_in);
        let no_answer = || StoreError::Unavailable("no answer".to_owned());
        let later = || objects.time.now() + Duration::from_millis(dice.below(90_000));
        if happens(troubles.lost) {
            return Err(no_answer());
        }
        if happens(troubles.late) {
            objects.late.borrow_mut().push((later(), write));
            return Err(no_answer());
        }
        if happens(troubles.clash) && matches!(write, Write::Create(..)) {
            return Ok(Created::Exists);
        }
        let created = objects.perform(&write);
        if happens(troubles.twice) {
            objects.late.borrow_mut().push((later(), write));
        }
        let is_unanswered = happens(troubles.unanswered);
        self.wait().await;
        if is_unanswered { Err(no_answer()) } else { Ok(created) }
    }

    async fn read<T>(&self, mut read: impl FnMut(&Objects) -> T) -> Result<T, StoreError> {
        self.objects.calls.set(self.objects.calls.get() + 1);
        self.wait().await;
        self.objects.settle(false);
        self.outage(false)?;
        let troubles = self.objects.troubles.get();
        if troubles.lost > 0 && self.objects.dice.one_in(troubles.lost) {
            return Err(StoreError::Unavailable("no answer".to_owned()));
        }
        let found = read(&self.objects);
        self.wait().await;
        Ok(found)
    }
}

impl Store for Door {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> Later<'a, Result<Created, StoreError>> {
        Box::pin(self.write(Write::Create(name.to_owned(), bytes)))
    }

    fn get<'a>(&'a self, name: &'a str) -> Later<'a, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            let is_withheld = *self.objects.withheld.borrow();
            match is_withheld(name) {
                true => {
                    self.objects.calls.set(self.objects.calls.get() + 1);
                    Err(StoreError::Denied("it is in an archive".to_owned()))
                }
                false => self.read(|objects| objects.object(name)).await,
            }
        })
    }

    /// A list is no moment: half of the names are looked for later than the others.
    fn list<'a>(&'a self, prefix: &'a str) -> Later<'a, Result<Vec<String>, StoreError>> {
        Box::pin(async move {
            let is_first = |name: &String| name.bytes().map(u64::from).sum::<u64>() % 2 == 0;
            let of = |objects: &Objects| {
                let hidden = *objects.hidden.borrow();
                let names = objects.names_with(prefix).into_iter();
                names.filter(|name| !hidden(name)).collect::<Vec<_>>()
            };
            let mut found = self.read(of).await?;
            found.retain(is_first);
            let rest = self.read(of).await?;
            found.extend(rest.into_iter().filter(|name| !is_first(name)));
            Ok(found)
        })
    }

    fn put<'a>(&'a self, name: &'a str, bytes: Bytes) -> Later<'a, Result<(), StoreError>> {
        Box::pin(async move { self.write(Write::Put(name.to_owned(), bytes)).await.map(|_| ()) })
    }

    fn delete<'a>(&'a self, names: &'a [String]) -> Later<'a, Result<(), StoreError>> {
        Box::pin(async move {
            // Each may fail by itself, with those before it gone.
            for name in names {
                self.write(Write::Delete(name.clone())).await?;
            }
            Ok(())
        })
    }

    fn deletes_at_once(&self) -> usize {
        3
    }
}

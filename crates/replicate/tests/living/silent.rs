//! A store that does not answer for single objects, and a clock that waits for nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plait_replicate::error::Error;
use plait_replicate::following::{Done, Following, Settings};
use plait_replicate::ids::RecordNumber;
use plait_replicate::names;
use plait_replicate::record::{Item, Record};
use plait_replicate::store::objects::{self, Missing, Objects};
use plait_replicate::store::{Created, Later, Store, StoreError};
use plait_replicate::world::{Clock, Patience, World};

use crate::following::{PATIENCE, agrees, begun, follower, replica};
use crate::model::rows_of;
use crate::real::Chance;
use crate::stage::Stage;

pub const MINUTE: Duration = Duration::from_secs(60);

/// A store that is silent about some objects.
struct Mute {
    store: Objects,
    silent: RefCell<BTreeSet<String>>,
    /// How often it was asked for parts.
    parts: Cell<usize>,
    /// What happens while it is asked for the next object.
    meanwhile: Cell<Option<Meanwhile>>,
}

type Meanwhile = Box<dyn FnOnce()>;

impl Store for Mute {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> Later<'a, Result<Created, StoreError>> {
        self.store.create(name, bytes)
    }

    fn get<'a>(&'a self, name: &'a str) -> Later<'a, Result<Option<Bytes>, StoreError>> {
        if let Some(happens) = self.meanwhile.take() {
            happens();
        }
        if self.silent.borrow().contains(name) {
            return Box::pin(async { Err(StoreError::Unavailable("503".to_owned())) });
        }
        self.parts.set(self.parts.get() + usize::from(names::parse_part(name).is_some()));
        self.store.get(name)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Later<'a, Result<Vec<String>, StoreError>> {
        self.store.list(prefix)
    }

    fn put<'a>(&'a self, name: &'a str, bytes: Bytes) -> Later<'a, Result<(), StoreError>> {
        self.store.put(name, bytes)
    }

    fn delete<'a>(&'a self, names: &'a [String]) -> Later<'a, Result<(), StoreError>> {
        self.store.delete(names)
    }
}

#[derive(Default)]
struct Jumps(Cell<Duration>);

impl Clock for Jumps {
    fn now(&self) -> Duration {
        self.0.get()
    }

    fn wall_ms(&self) -> u64 {
        1_790_000_000_000 + self.0.get().as_millis() as u64
    }

    fn sleep(&self, time: Duration) -> Later<'_, ()> {
        self.0.set(self.0.get() + time);
        Box::pin(async {})
    }
}

/// A follower of such a store.
pub struct Follows {
    store: Rc<Mute>,
    clock: Rc<Jumps>,
    following: Following,
    runtime: tokio::runtime::Runtime,
    /// What it said last.
    pub said: String,
}

impl Follows {
    pub fn begin(stage: &Stage, silent: &[String]) -> Follows {
        let place = stage.url.to_str().expect("UTF-8");
        let store = Rc::new(Mute {
            store: objects::open(place, Missing::Await).expect("a store"),
            silent: RefCell::new(silent.iter().cloned().collect()),
            parts: Cell::new(0),
            meanwhile: Cell::default(),
        });
        let clock = Rc::new(Jumps::default());
        let world = World::new(store.clone(), clock.clone(), Rc::new(Chance), Patience::Endless);
        let place = plait_replicate::store::url::Place::parse(place).expect("a place").name();
        let poll = Duration::from_secs(1);
        let following = Following::begin(world, Settings { place, database: replica(stage), poll });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (following, runtime) = (following.expect("it begins"), runtime.expect("a runtime"));
        Follows { store, clock, following, runtime, said: String::new() }
    }

    /// A step, while the first look at an object of which something happens.
    pub fn step_while(&mut self, happens: impl FnOnce() + 'static) -> Result<Done, Error> {
        self.store.meanwhile.set(Some(Box::new(happens)));
        let done = self.runtime.block_on(self.following.step());
        assert!(self.store.meanwhile.take().is_none(), "it was asked for none");
        done
    }

    fn step(&mut self) {
        let done = self.runtime.block_on(self.following.step()).expect("it goes on");
        if let Done::Stuck(why) = done {
            self.said = why;
        }
    }

    pub fn works_for(&mut self, time: Duration) {
        let until = self.clock.now() + time;
        while self.clock.now() < until {
            self.step();
        }
    }

    /// Works until it is at a record; returns how long it took, by its own clock.
    pub fn reaches(&mut self, number: RecordNumber) -> Duration {
        let (begun, since) = (Instant::now(), self.clock.now());
        while self.at() < number {
            assert!(begun.elapsed() < PATIENCE, "{} of {number}: {}", self.at(), self.said);
            self.step();
        }
        self.clock.now() - since
    }

    fn at(&self) -> RecordNumber {
        self.following.mark().map_or(RecordNumber::NONE, |mark| mark.record)
    }

    pub fn parts(&self) -> usize {
        self.store.parts.get()
    }

    fn hears_all(&self) {
        self.store.silent.borrow_mut().clear();
    }
}

/// Ships a row, which gets a record of its own.
pub fn ships(stage: &Stage, id: u32) -> RecordNumber {
    stage.execute(&format!("INSERT INTO t VALUES({id}, 'shipped')"));
    stage.agrees().record
}

/// Changes the schema, and waits for the snapshot behind that; returns the record before it.
fn breaks(stage: &Stage) -> RecordNumber {
    let (begun, before) = (Instant::now(), stage.agrees().record);
    stage.execute("CREATE TABLE another(a)");
    while stage.agrees().snapshot <= before {
        assert!(begun.elapsed() < PATIENCE, "a snapshot leads there");
    }
    before
}

#[test]
fn records_before_one_that_is_not_answered_for_are_taken() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    let numbers = [2, 3, 4].map(|id| ships(&stage, id));
    assert_eq!(sidecar.terminated(), 0);
    let mut follows = Follows::begin(&stage, &[names::record(numbers[2])]);
    assert!(follows.reaches(numbers[1]) < MINUTE);
    follows.works_for(MINUTE);
    assert_eq!(follows.at(), numbers[1]);
    assert!(follows.said.contains("does not answer: 503"), "{}", follows.said);
    follows.hears_all();
    follows.reaches(numbers[2]);
    assert_eq!(rows_of(&replica(&stage)), stage.rows());
}

#[test]
fn a_new_follower_shows_what_is_before_a_record_that_is_not_answered_for_in_ten_minutes() {
    for is_newest in [false, true] {
        let (stage, sidecar) = begun();
        stage.agrees();
        let before = ships(&stage, 2);
        let rows = stage.rows();
        let mut last = ships(&stage, 3);
        if !is_newest {
            last = ships(&stage, 4);
        }
        assert_eq!(sidecar.terminated(), 0);
        let mut follows = Follows::begin(&stage, &[names::record(before.next())]);
        follows.works_for(MINUTE * 9);
        assert_eq!(follows.at(), RecordNumber::NONE);
        let begun = follows.parts();
        assert!(begun <= 1, "it is waited for, and not with copies: {begun}");
        follows.reaches(before);
        assert_eq!(rows_of(&replica(&stage)), rows);
        follows.works_for(MINUTE * 120);
        assert_eq!(follows.at(), before);
        let made = follows.parts();
        assert!(made <= begun + 2, "{made}");
        assert!(follows.said.contains("answer"), "{}", follows.said);
        follows.hears_all();
        follows.reaches(last);
        assert_eq!(rows_of(&replica(&stage)), stage.rows());
        assert_eq!(follows.parts(), made, "records lead there");
    }
}

#[test]
fn a_follower_behind_a_break_shows_what_is_before_a_record_that_is_not_answered_for() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    let at = breaks(&stage);
    let before = ships(&stage, 2);
    let rows = stage.rows();
    let [_, last] = [3, 4].map(|id| ships(&stage, id));
    assert_eq!(sidecar.terminated(), 0);
    let mut follows = Follows::begin(&stage, &[names::record(before.next())]);
    follows.works_for(MINUTE * 9);
    assert!(follows.at() <= at);
    follows.reaches(before);
    assert_eq!(rows_of(&replica(&stage)), rows);
    let made = follows.parts();
    follows.works_for(MINUTE * 120);
    assert_eq!((follows.at(), follows.parts()), (before, made));
    follows.hears_all();
    follows.reaches(last);
    assert_eq!(rows_of(&replica(&stage)), stage.rows());
}

#[test]
fn a_part_that_is_not_answered_for_is_led_around_or_waited_for_without_copies() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let parts = || {
        let parts = std::fs::read_dir(stage.url.join("part")).expect("a folder").flatten();
        parts.map(|part| format!("part/{}", part.file_name().to_string_lossy()))
    };
    let of_first: Vec<_> = parts().collect();
    // One that changes the first.
    breaks(&stage);
    let last = stage.agrees().record;
    assert_eq!(sidecar.terminated(), 0);
    assert!(!of_first.is_empty() && of_first.iter().all(|name| names::parse_part(name).is_some()));
    let mut follows = Follows::begin(&stage, &of_first);
    follows.works_for(MINUTE * 300);
    assert_eq!(follows.at(), RecordNumber::NONE);
    assert!(follows.said.contains(", a part of the pages in record "), "{}", follows.said);
    assert!(follows.said.contains("it has not answered for this object in ten minutes"));
    let asked = follows.parts();
    assert!(asked <= 3 * parts().count(), "{asked}");
    follows.hears_all();
    assert!(follows.reaches(last) < MINUTE);
    assert_eq!(rows_of(&replica(&stage)), stage.rows());
}

#[test]
fn a_copy_that_cannot_be_made_of_what_is_there_waits_for_another_snapshot_and_not_for_room() {
    let (stage, sidecar) = begun();
    stage.agrees();
    breaks(&stage);
    let newest = stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    assert_eq!(newest.record, newest.snapshot, "the end of the chain");
    // One that lacks a page, as no sidecar ships it.
    let object = stage.url.join(names::record(newest.record));
    let mut record = Record::decode(&std::fs::read(&object).expect("it is there").into());
    for item in record.iter_mut().flat_map(|record| &mut record.items) {
        if let Item::Snapshot(snapshot) = item {
            snapshot.page_count += 1;
        }
    }
    std::fs::write(&object, record.expect("a record").encode()).expect("it is replaced");
    let mut follows = Follows::begin(&stage, &[]);
    follows.works_for(MINUTE * 120);
    assert_eq!(follows.at(), RecordNumber::NONE);
    let said = &follows.said;
    assert!(said.contains("lacks page ") && !said.contains("more room"), "{said}");
    assert!(said.contains("the next one is begun from a snapshot of later"), "{said}");
    let parts = std::fs::read_dir(stage.url.join("part")).expect("a folder").count();
    assert!(follows.parts() <= 5 * parts, "{} of {parts}", follows.parts());
}

#[test]
fn a_new_follower_looks_at_once_where_what_leads_to_the_newest_record_is_brought_back() {
    let (stage, sidecar) = begun();
    let snapshot = stage.agrees().snapshot;
    let last = ships(&stage, 2);
    assert_eq!(sidecar.terminated(), 0);
    let (object, away) =
        (stage.url.join(names::record(snapshot)), stage.folder.path().join("away"));
    std::fs::rename(&object, &away).expect("no pack has it yet");
    let mut follows = Follows::begin(&stage, &[]);
    follows.works_for(MINUTE * 40);
    assert_eq!(follows.at(), RecordNumber::NONE);
    assert!(follows.said.contains("no snapshot leads to record"), "{}", follows.said);
    std::fs::rename(&away, &object).expect("it comes back");
    assert!(follows.reaches(last) < MINUTE);
    assert_eq!(rows_of(&replica(&stage)), stage.rows());
}

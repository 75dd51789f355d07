//! The table of failures of docs/decisions/chain.md, line by line: what happens, and what is said.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::objects::Outage;
use super::replica::Disk;
use super::run::settings;
use super::stage::{Running, Shared, Stage, live};
use super::time::TaskClock;
use crate::chain::Listing;
use crate::error::{Error, Result};
use crate::fault::{Fault, plant};
use crate::ids::{Epoch, Hash, Nonce, RecordNumber};
use crate::names;
use crate::primary::Settings;
use crate::record::{Follows, Header, Item, Open, Record};
use crate::replicas::Replicas;
use crate::restore::Stop;
use crate::store::StoreError;
use crate::world::{Patience, Random as _};

const SECOND: Duration = Duration::from_secs(1);

/// Settings under which nothing is packed or deleted.
fn calm() -> Settings {
    let long = Duration::from_secs(1 << 20);
    Settings { pack_every: long, sweep_every: long, pack_bytes: 1 << 30, ..settings(false) }
}

/// A world with a chain of some records and a snapshot.
fn begun(settings: Settings) -> (Stage, Shared, Running) {
    let stage = Stage::default();
    let database = stage.database("alpha");
    let mut sidecar = stage.open(&database, settings).expect("an empty place");
    live(&stage, &database, &mut sidecar, 9).expect("a quiet world");
    assert!(sidecar.0.tip().snapshot > RecordNumber::NONE, "a snapshot was named");
    (stage, database, sidecar)
}

fn tip(sidecar: &Running) -> RecordNumber {
    sidecar.0.tip().number
}

fn refused<T>(result: Result<T>) -> (Error, String) {
    match result {
        Ok(_) => panic!("it is not refused"),
        Err(error) => {
            let text = error.to_string();
            (error, text)
        }
    }
}

fn is_true(stage: &Stage) {
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn a_damaged_record_is_named_and_what_is_before_it_is_restored() {
    let (stage, _, sidecar) = begun(calm());
    let number = RecordNumber(tip(&sidecar).0 - 2);
    let name = names::record(number);
    let mut bytes = stage.objects.object(&name).expect("it is there").to_vec();
    *bytes.last_mut().expect("a record has bytes") ^= 1;
    stage.objects.damage(&name, Some(bytes.into()));
    let (error, text) = refused(stage.restore(Stop::Newest));
    assert!(matches!(error, Error::Record { number: of, .. } if of == number), "{error:?}");
    assert!(text.contains(&name) && text.contains("plait replicas says"), "{text}");
    let (restored, _) = stage.restore(Stop::Record(number.before())).expect("it is sound so far");
    assert_eq!(restored.record, number.before());
    is_true(&stage);
}

#[test]
fn an_open_that_was_removed_is_missed_and_a_new_sidecar_breaks_off() {
    let (stage, database, sidecar) = begun(calm());
    drop(sidecar);
    let mut second = stage.open(&database, calm()).expect("the same database");
    let opened = second.0.tip().opened;
    live(&stage, &database, &mut second, 4).expect("a quiet world");
    stage.objects.damage(&names::record(opened), None);
    let (error, text) = refused(stage.restore(Stop::Newest));
    assert!(matches!(error, Error::Missing { number, .. } if number == opened), "{error:?}");
    assert!(text.contains("was removed"), "{text}");
    drop(second);
    // The database knows its own chain; whose it is, nothing tells another one any more.
    let (error, text) = refused(stage.open(&database, calm()));
    assert!(matches!(error, Error::Lost { number, .. } if number == opened), "{error:?}");
    assert!(text.contains("was shipped to this place before"), "{text}");
    let (error, _) = refused(stage.open(&stage.database("beta"), calm()));
    assert!(matches!(error, Error::Unowned { .. }), "{error:?}");
    let mut third =
        stage.open(&database, Settings { take_over: true, ..calm() }).expect("it is told to");
    assert_eq!(third.0.tip().broken, tip(&third), "nothing leads over the hole");
    live(&stage, &database, &mut third, 9).expect("a quiet world");
    let (restored, _) = stage.restore(Stop::Newest).expect("from the new snapshot");
    assert_eq!(restored.record, tip(&third));
    is_true(&stage);
}

#[test]
fn an_object_of_another_moment_is_known_by_the_hash() {
    let (stage, _, sidecar) = begun(calm());
    let number = RecordNumber(tip(&sidecar).0 - 1);
    let name = names::record(number);
    let bytes = stage.objects.object(&name).expect("it is there");
    let mut record = Record::decode(&bytes).expect("it is sound");
    record.header.written_ms += 1;
    stage.objects.damage(&name, Some(record.encode()));
    let (error, text) = refused(stage.restore(Stop::Newest));
    assert!(matches!(error, Error::Unlinked { .. }), "{error:?}");
    assert!(text.contains("does not follow"), "{text}");
    let (error, _) = refused(stage.restore(Stop::Record(number)));
    assert!(matches!(error, Error::Unlinked { number: of, .. } if of == number), "{error:?}");
}

#[test]
fn a_record_of_a_later_version_is_told_so() {
    let (stage, _, sidecar) = begun(calm());
    let name = names::record(tip(&sidecar));
    let mut bytes = stage.objects.object(&name).expect("it is there").to_vec();
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..184]);
    bytes[184..188].copy_from_slice(&crc.to_le_bytes());
    stage.objects.damage(&name, Some(bytes.into()));
    let (_, text) = refused(stage.restore(Stop::Newest));
    assert!(text.contains("a later version of Plait"), "{text}");
}

#[test]
fn a_snapshot_without_a_part_is_passed_over_for_an_earlier_one() {
    let (stage, database, mut sidecar) = begun(calm());
    let first = sidecar.0.tip().snapshot;
    while sidecar.0.tip().snapshot == first {
        live(&stage, &database, &mut sidecar, 4).expect("a quiet world");
    }
    let newest = sidecar.0.tip().snapshot;
    let (restored, _) = stage.restore(Stop::Newest).expect("a sound chain");
    assert_eq!(restored.snapshot, newest);
    let parts = stage.objects.names();
    let parts = parts.iter().filter(|name| name.starts_with(names::PARTS));
    let last = parts.max().expect("it has parts").clone();
    stage.objects.damage(&last, None);
    let (restored, _) = stage.restore(Stop::Newest).expect("from the first snapshot");
    assert_eq!((restored.snapshot, restored.record), (first, tip(&sidecar)));
    for name in stage.objects.names() {
        if name.starts_with(names::PARTS) {
            stage.objects.damage(&name, None);
        }
    }
    let (error, text) = refused(stage.restore(Stop::Newest));
    assert!(matches!(error, Error::Part { .. }), "{error:?}");
    assert!(text.contains("is missing"), "{text}");
    is_true(&stage);
}

// holds CHAIN-4
// holds CHAIN-10
#[test]
fn a_snapshot_of_another_chain_is_nobodys_and_hides_none() {
    let few = Settings { snapshot_every: Duration::from_secs(5), ..calm() };
    let (stage, database, mut sidecar) = begun(few);
    live(&stage, &database, &mut sidecar, 20).expect("a quiet world");
    let (world, clock) = stage.world(Patience::Tries(3));
    let look = || stage.block(&clock, Replicas::look(&world)).expect("a chain").snapshots;
    let before = look();
    let newest = before.last().expect("a snapshot").record;
    let name = names::record(newest);
    let bytes = stage.objects.object(&name).expect("it is there");
    let mut foreign = Record::decode(&bytes).expect("it is sound");
    foreign.header.chain = crate::ids::ChainId([9; 16]);
    stage.objects.damage(&name, Some(foreign.encode()));
    assert_eq!(look(), before[..before.len() - 1], "the others are there");
}

#[test]
fn the_first_of_two_sidecars_is_fenced() {
    let (stage, database, mut first) = begun(calm());
    let mut second = stage.open(&database, calm()).expect("the same database takes over");
    live(&stage, &database, &mut second, 2).expect("a quiet world");
    let (error, text) = refused(live(&stage, &database, &mut first, 3));
    assert!(matches!(error, Error::Fenced { .. }), "{error:?}");
    assert!(text.contains("alpha") && text.contains("do not restart it"), "{text}");
    live(&stage, &database, &mut second, 4).expect("the second goes on");
    is_true(&stage);
}

#[test]
fn a_copy_elsewhere_is_refused_until_it_is_told_to_take_over() {
    let (stage, database, mut first) = begun(calm());
    let copy = Rc::new(RefCell::new(database.borrow().copied_to("beta")));
    let (error, text) = refused(stage.open(&copy, calm()));
    assert!(matches!(error, Error::Occupied { .. }), "{error:?}");
    assert!(text.contains("alpha") && text.contains("--take-over"), "{text}");
    let taken = Settings { take_over: true, ..calm() };
    let mut second = stage.open(&copy, taken).expect("it is told to");
    live(&stage, &copy, &mut second, 9).expect("a quiet world");
    let (error, _) = refused(live(&stage, &database, &mut first, 2));
    assert!(matches!(error, Error::Fenced { .. }), "{error:?}");
    let (restored, _) = stage.restore(Stop::Newest).expect("the copy's");
    assert_eq!(restored.record, tip(&second));
    is_true(&stage);
}

#[test]
fn the_place_of_another_database_is_refused() {
    let (stage, _, _) = begun(calm());
    // Another place, and other chance.
    let elsewhere = Stage::default();
    elsewhere.dice.name();
    let other = elsewhere.database("gamma");
    drop(elsewhere.open(&other, calm()).expect("an empty place"));
    let (error, text) = refused(stage.open(&other, Settings { take_over: true, ..calm() }));
    assert!(matches!(error, Error::OtherChain { .. }), "{error:?}");
    assert!(text.contains("choose another URL"), "{text}");
}

#[test]
fn nothing_at_a_place_and_no_such_record_are_told() {
    let stage = Stage::default();
    let (_, text) = refused(stage.restore(Stop::Newest));
    assert!(text.contains("there is no replica"), "{text}");
    let (stage, _, _) = begun(calm());
    let (_, text) = refused(stage.restore(Stop::Record(RecordNumber(999))));
    assert!(text.contains("there is no record 999"), "{text}");
    let (_, text) = refused(stage.restore(Stop::Time(1)));
    assert!(text.contains("the earliest moment that is kept"), "{text}");
}

#[test]
fn an_idle_database_costs_less_than_one_request_in_ten_seconds() {
    const HOURS: u32 = 6;
    let (stage, _database, mut sidecar) = begun(Settings::default());
    // What it has made until now is packed.
    stage.work(&mut sidecar, 3600 * SECOND).expect("a quiet world");
    let (before, from) = (sidecar.0.world().requests(), tip(&sidecar));
    stage.work(&mut sidecar, HOURS * 3600 * SECOND).expect("a quiet world");
    let after = sidecar.0.world().requests();
    let all = |of: crate::world::Requests| of.writes + of.reads + of.deletes;
    let tens = u64::from(HOURS) * 360;
    let said = format!("{before:?}, {after:?}");
    assert!(all(after) - all(before) <= tens, "{said}");
    // One at a time, as some stores want it, a record costs one to delete.
    let records = tip(&sidecar).0 - from.0;
    let deletes = after.deletes - before.deletes;
    assert!(all(after) - all(before) - deletes + records <= tens, "{said}");
    assert!(records >= tens / 5 && deletes > 0, "it goes on, and is packed: {records}, {said}");
}

// holds CHAIN-5
#[test]
fn a_store_that_is_down_full_or_closed_costs_a_lag_and_no_commit() {
    for (outage, says) in [
        (Outage::Down, "does not answer"),
        (Outage::Full, "no space left: free some"),
        (Outage::Denied, "check the credentials"),
    ] {
        let stage = Stage::default();
        let database = stage.database("alpha");
        let mut patient = settings(false);
        patient.idle = Duration::from_secs(2);
        let mut sidecar = stage.open(&database, patient).expect("an empty place");
        live(&stage, &database, &mut sidecar, 5).expect("a quiet world");
        let before = tip(&sidecar);
        stage.objects.set_outage(Some((outage, stage.time.now() + 600 * SECOND)));
        database.borrow_mut().commit(true);
        // This sidecar's patience ends, where that of the command does not.
        let (_, text) = refused(stage.work(&mut sidecar, 60 * SECOND));
        assert!(text.contains(says), "{text}");
        let trouble = sidecar.0.world().trouble().expect("it is remembered");
        assert!(trouble.what.contains(says), "{trouble:?}");
        stage.objects.set_outage(None);
        drop(sidecar);
        let mut again = stage.open(&database, patient).expect("it is up again");
        live(&stage, &database, &mut again, 2).expect("a quiet world");
        assert!(tip(&again) > before);
        assert_eq!(again.0.world().trouble(), None);
        let (restored, disk) = stage.restore(Stop::Newest).expect("nothing is missing");
        assert_eq!(restored.record, tip(&again));
        assert_eq!(disk.borrow().position(), again.0.tip().position);
        is_true(&stage);
    }
}

// holds REFUSED-1, REFUSED-2
#[test]
fn a_store_that_refuses_deletions_is_asked_seldom_and_shipped_to_as_ever() {
    const SWEEPS: u32 = 20;
    let (stage, database, mut sidecar) = begun(settings(false));
    let sweep = settings(false).sweep_every;
    for _ in 0..60 {
        live(&stage, &database, &mut sidecar, 8).expect("a quiet world");
    }
    let is_pack = |name: &String| names::parse_pack(name).is_some();
    let packs = stage.objects.names().iter().filter(|name| is_pack(name)).count();
    stage.objects.set_outage(Some((Outage::Locked, Duration::MAX)));
    let (from, begun) = (tip(&sidecar), stage.time.now());
    while stage.time.now() < begun + sweep * SWEEPS {
        live(&stage, &database, &mut sidecar, 8).expect("it ships on");
        assert_eq!(sidecar.0.world().trouble(), None, "nothing is in the way");
    }
    let refused = stage.objects.take_refused();
    let passes = (stage.time.now() - begun).as_secs().div_ceil(sweep.as_secs()) as usize + 1;
    // Of each sweep some, of parts and of all else, and a request of packing's.
    assert!(refused.len() > 8 && refused.len() <= passes * (2 * 8 + 3), "{passes}: {refused:?}");
    for name in &refused {
        let times = refused.iter().filter(|other| *other == name).count();
        assert!(times <= passes, "{name}: {times} times in {passes} sweeps");
    }
    assert!(tip(&sidecar).0 > from.0 + 100, "{from} {}", tip(&sidecar));
    let more = stage.objects.names().iter().filter(|name| is_pack(name)).count();
    assert!(more > packs, "records are packed as ever");
    let told = sidecar.0.world().take_refusal().expect("it is told");
    assert!(told.contains("it is locked"), "{told}");
    live(&stage, &database, &mut sidecar, 60).expect("it ships on");
    assert_eq!(sidecar.0.world().take_refusal(), None, "once");
    // What is let go of again goes, and what was left in between with it.
    stage.objects.set_outage(None);
    for _ in 0..60 {
        live(&stage, &database, &mut sidecar, 8).expect("a quiet world");
    }
    let left = stage.objects.names();
    let first = left.iter().find_map(|name| names::parse_pack(name)).expect("there are packs").0;
    assert!(first > from, "{first}");
    let below = |name: &&String| names::parse_record(name).is_some_and(|number| number < first);
    assert!(left.iter().filter(below).count() <= 1, "the first OPEN alone: {left:?}");
    stage.restore(Stop::Newest).expect("nothing is missing");
    is_true(&stage);
}

// holds REFUSED-1
#[test]
fn what_is_held_keeps_nothing_else() {
    // Some of the oldest records, more than end a sweep; and all that is no part.
    let holds: [fn(&str) -> bool; 2] = [
        |name| names::parse_record(name).is_some_and(|number| number.0 <= 30),
        |name| !name.starts_with(names::PARTS),
    ];
    for (n, held) in holds.into_iter().enumerate() {
        let (stage, database, mut sidecar) = begun(settings(false));
        let before = stage.objects.names_with(names::PARTS);
        stage.objects.hold(held);
        let mut told = 0;
        for _ in 0..120 {
            live(&stage, &database, &mut sidecar, 8).expect("it ships on");
            told += u32::from(sidecar.0.world().take_refusal().is_some());
        }
        assert_eq!(told, 1, "some are deleted between two refusals");
        let left = stage.objects.names();
        assert!(!left.contains(&before[0]), "{n}: parts are deleted");
        if n == 0 {
            let packs = left.iter().filter_map(|name| names::parse_pack(name));
            let (stay, later): (Vec<_>, Vec<_>) = packs.partition(|(first, _)| first.0 <= 30);
            let records = left.iter().filter_map(|name| names::parse_record(name));
            let records: Vec<_> = records.filter(|number| *number < later[0].0).collect();
            assert!(!stay.is_empty() && later[0].0.0 > 500, "their packs stay: {left:?}");
            assert!(
                records.len() > 8 && records.iter().all(|number| number.0 <= 30),
                "{records:?}"
            );
        }
        stage.restore(Stop::Newest).expect("nothing is missing");
        is_true(&stage);
    }
}

// holds REFUSED-1
#[test]
fn a_refusal_is_not_told_before_something_was_made() {
    let (stage, database, mut sidecar) = begun(settings(false));
    let denied = StoreError::Denied("no right".to_owned());
    let (what, name) = ("delete".to_owned(), "chain/1".to_owned());
    let world = sidecar.0.world().clone();
    world.note_refusal(&Error::Store { what, name, error: denied }, crate::world::STAYS);
    assert_eq!(world.take_refusal(), None, "creates may be refused as well");
    live(&stage, &database, &mut sidecar, 2).expect("a quiet world");
    assert!(world.take_refusal().is_some_and(|told| told.contains("no right")));
    assert_eq!(world.take_refusal(), None, "once");
}

// holds REFUSED-2
#[test]
fn packs_are_made_where_deletions_fail() {
    let (stage, database, mut sidecar) = begun(settings(false));
    for _ in 0..10 {
        live(&stage, &database, &mut sidecar, 8).expect("a quiet world");
    }
    stage.objects.set_outage(Some((Outage::Undeletable, Duration::MAX)));
    let from = tip(&sidecar);
    for _ in 0..60 {
        live(&stage, &database, &mut sidecar, 8).expect("it ships on");
    }
    let packed = |stage: &Stage| {
        let names = stage.objects.names();
        names.iter().filter_map(|name| names::parse_pack(name)).map(|(_, last)| last).max()
    };
    assert!(packed(&stage).is_some_and(|last| last.0 + 200 > tip(&sidecar).0), "none waits");
    let times = stage.objects.take_refused().len() as u64;
    assert!(times > 8 && times < tip(&sidecar).0 - from.0, "{times} tries");
    stage.objects.set_outage(None);
    for _ in 0..60 {
        live(&stage, &database, &mut sidecar, 8).expect("a quiet world");
    }
    let left = stage.objects.names();
    let first = left.iter().find_map(|name| names::parse_pack(name)).expect("there are packs").0;
    let below = |name: &&String| names::parse_record(name).is_some_and(|number| number < first);
    assert!(first > from && left.iter().filter(below).count() <= 1, "{first}: {left:?}");
    stage.restore(Stop::Newest).expect("nothing is missing");
    is_true(&stage);
}

#[test]
fn a_log_past_its_limit_is_bridged_by_a_snapshot() {
    let (stage, database, mut sidecar) = begun(calm());
    for round in 0..400 {
        database.borrow_mut().commit(true);
        if round % 5 == 4 {
            database.borrow_mut().freeze();
            database.borrow_mut().merge(true);
        }
    }
    while sidecar.0.tip().broken == RecordNumber::FIRST {
        stage.work(&mut sidecar, Duration::from_millis(1)).expect("a quiet world");
    }
    let broken = sidecar.0.tip().broken;
    assert!(sidecar.0.tip().snapshot < broken, "a snapshot comes behind it");
    let (_, text) = refused(stage.restore(Stop::Record(broken)));
    let last = format!("; the last record before it that can be restored is {} (", broken.before());
    assert!(text.contains(&last), "{text}");
    live(&stage, &database, &mut sidecar, 12).expect("a quiet world");
    assert!(sidecar.0.tip().broken == broken && sidecar.0.tip().snapshot > broken);
    let name = names::record(broken);
    let record = Record::decode(&stage.objects.object(&name).expect("it is there"));
    assert!(format!("{record:?}").contains("longer than --max-lag"));
    stage.restore(Stop::Newest).expect("from the snapshot behind the break");
    stage.restore(Stop::Record(broken.before())).expect("from the one before it");
    // The break's own record completes the base of that snapshot, and the next one has the rest of the log.
    refused(stage.restore(Stop::Record(broken)));
    stage.restore(Stop::Record(broken.next())).expect("from the snapshot behind it");
    is_true(&stage);
}

#[test]
fn a_database_that_was_replaced_goes_on_behind_a_break() {
    let (stage, database, mut sidecar) = begun(calm());
    database.borrow_mut().save();
    live(&stage, &database, &mut sidecar, 5).expect("a quiet world");
    let kept = tip(&sidecar);
    database.borrow_mut().put_back();
    let (error, text) = refused(live(&stage, &database, &mut sidecar, 2));
    assert!(matches!(error, Error::Ended(_)), "{error:?}");
    assert!(text.contains("what was shipped stays"), "{text}");
    drop(sidecar);
    let mut again = stage.open(&database, calm()).expect("the same place");
    assert_eq!(again.0.tip().broken, tip(&again));
    live(&stage, &database, &mut again, 9).expect("a quiet world");
    stage.restore(Stop::Newest).expect("what is there now");
    let (restored, _) = stage.restore(Stop::Record(kept)).expect("what was there before");
    assert_eq!(restored.record, kept);
    is_true(&stage);
}

#[test]
fn a_clock_that_was_set_back_for_more_than_a_day_is_told() {
    // No snapshot comes in between.
    let snapshot_every = Duration::from_secs(48 * 3600);
    let (stage, database, mut sidecar) = begun(Settings { snapshot_every, ..calm() });
    let moment = sidecar.0.tip().written_ms;
    stage.skew_ms.set(-25 * 3_600_000);
    live(&stage, &database, &mut sidecar, 15).expect("a quiet world");
    stage.skew_ms.set(0);
    live(&stage, &database, &mut sidecar, 4).expect("a quiet world");
    let (newest, _) = stage.restore(Stop::Newest).expect("a sound chain");
    assert!(newest.clock_set_back.is_some());
    let (restored, _) = stage.restore(Stop::Time(moment)).expect("a moment of it");
    assert!(restored.record < tip(&sidecar) && restored.header.written_ms <= moment);
    is_true(&stage);
}

#[test]
fn a_clock_that_is_set_back_for_less_is_waited_for_so_that_a_time_names_one_moment() {
    let often = Settings { snapshot_every: 5 * SECOND, log_bytes_least: 1000, ..calm() };
    let (stage, database, mut sidecar) = begun(often);
    stage.skew_ms.set(60_000);
    live(&stage, &database, &mut sidecar, 5).expect("a quiet world");
    let ahead = tip(&sidecar);
    stage.skew_ms.set(0);
    // Snapshots are taken behind that, also by another sidecar.
    live(&stage, &database, &mut sidecar, 30).expect("a quiet world");
    drop(sidecar);
    let mut sidecar = stage.open(&database, often).expect("the same place");
    live(&stage, &database, &mut sidecar, 10).expect("a quiet world");
    let mut last_ms = 0;
    for bytes in stage.objects.ledger().values() {
        let header = Record::decode(bytes).expect("it is sound").header;
        assert!(header.written_ms >= last_ms, "{}", header.number);
        last_ms = header.written_ms;
    }
    // No record behind one that was written later than the time is in what is restored.
    let moment = stage.time.wall_ms();
    let (restored, _) = stage.restore(Stop::Time(moment)).expect("a moment before that");
    assert!(
        restored.record < ahead && restored.header.written_ms <= moment,
        "{restored:?} {ahead}"
    );
    is_true(&stage);
}

#[test]
fn a_commit_is_restored_and_none_behind_it() {
    let (stage, _, sidecar) = begun(calm());
    let last = sidecar.0.tip().position.commit;
    for commit in 1..=last.0 {
        let (restored, _) =
            stage.restore(Stop::Commit(crate::ids::CommitTs(commit))).expect("a commit of it");
        assert_eq!(restored.position.commit.0, commit);
    }
    is_true(&stage);
}

#[test]
fn a_follower_behind_retention_begins_with_the_newest_snapshot() {
    let (stage, database, mut sidecar) = begun(settings(false));
    let disk = Rc::new(RefCell::new(Disk::default()));
    let mut follower = stage.follower(&disk, 0).expect("an empty disk");
    let reach = |follower: &mut (crate::follower::Follower, TaskClock), number| {
        for _ in 0..2_000 {
            let (inner, clock) = &mut *follower;
            stage.block(clock, inner.step()).expect("it goes on");
            if inner.applied() == number {
                return;
            }
        }
        panic!("it stays at {}: {:?}", follower.0.applied(), follower.0.stuck());
    };
    reach(&mut follower, tip(&sidecar));
    let before = tip(&sidecar);
    // Far behind the window, with all packs of before gone.
    for _ in 0..60 {
        live(&stage, &database, &mut sidecar, 8).expect("a quiet world");
    }
    let packs = stage.objects.names();
    let first = packs.iter().find_map(|name| names::parse_pack(name)).expect("there are packs").0;
    assert!(first > before.next(), "retention has passed record {before}");
    reach(&mut follower, tip(&sidecar));
    let (_, text) = refused(stage.restore(Stop::Record(before)));
    assert!(text.contains("retention") || text.contains("no snapshot leads"), "{text}");
    is_true(&stage);
}

/// A starter that stood still has made its OPEN at a number that was packed and deleted meanwhile.
/// Returns whether a follower that had stood still as well comes to the end of the chain.
fn passes_a_stray() -> bool {
    let few = Settings {
        snapshot_every: Duration::from_secs(1 << 20),
        log_bytes_least: 1 << 40,
        ..settings(false)
    };
    let (stage, database, mut sidecar) = begun(few);
    let disk = Rc::new(RefCell::new(Disk::default()));
    let (mut follower, clock) = stage.follower(&disk, 0).expect("an empty disk");
    let reaches = |follower: &mut crate::follower::Follower, number| {
        (0..200).any(|_| {
            stage.block(&clock, follower.step()).expect("it goes on");
            follower.applied() == number
        })
    };
    let before = tip(&sidecar);
    assert!(reaches(&mut follower, before));
    live(&stage, &database, &mut sidecar, 20).expect("a quiet world");
    let name = names::record(before.next());
    assert_eq!(stage.objects.object(&name), None, "it was packed and deleted");
    let bytes = &stage.objects.ledger()[&before];
    let record = Record::decode(bytes).expect("it is sound");
    let first =
        Record::decode(&stage.objects.ledger()[&record.header.opened]).expect("it is sound");
    let stray = Record {
        header: Header {
            number: before.next(),
            epoch: Epoch(record.header.epoch.0 + 1),
            nonce: Nonce([9; 16]),
            previous: Hash::of(bytes),
            opened: before.next(),
            ..record.header
        },
        items: vec![Item::Open(Open {
            follows: Follows::Stream,
            ..first.open().expect("an OPEN").clone()
        })],
    };
    stage.objects.damage(&name, Some(stray.encode()));
    let reached = reaches(&mut follower, tip(&sidecar));
    is_true(&stage);
    reached
}

// holds CHAIN-3
#[test]
fn a_stray_open_is_not_believed_and_whoever_believes_it_stays_there() {
    assert!(passes_a_stray());
    plant(Some(Fault::StrayBelieved));
    let passes = passes_a_stray();
    plant(None);
    assert!(!passes);
}

// holds CHAIN-3
#[test]
fn a_record_that_the_next_one_does_not_name_is_refused_and_whoever_does_not_look_believes_it() {
    let (stage, _, sidecar) = begun(calm());
    let number = tip(&sidecar).before();
    let name = names::record(number);
    let bytes = stage.objects.object(&name).expect("it is there");
    let mut forged = Record::decode(&bytes).expect("it is sound");
    forged.header.written_ms += 1;
    stage.objects.damage(&name, Some(forged.encode()));
    let restored = |stop| stage.restore(stop).map(drop);
    for stop in [Stop::Newest, Stop::Record(number)] {
        let (error, _) = refused(restored(stop));
        assert!(matches!(error, Error::Unlinked { .. }), "{error:?}");
        plant(Some(Fault::HashUnread));
        let believed = restored(stop);
        plant(None);
        believed.expect("nobody looks");
    }
}

#[test]
fn a_list_goes_on_over_the_ends_of_folders() {
    let stage = Stage::default();
    let (world, clock) = stage.world(Patience::Tries(1));
    for (packs, loose) in [
        (None, 9_997..10_003),
        (Some((9_900, 9_998)), 9_999..10_003),
        (Some((9_900, 9_999)), 10_000..10_002),
        (Some((9_900, 9_999)), 10_000..10_000),
        (Some((9_000, 29_999)), 30_000..30_001),
    ] {
        for name in stage.objects.names() {
            stage.objects.damage(&name, None);
        }
        let put = |name: String| stage.objects.damage(&name, Some(vec![1].into()));
        let number = RecordNumber;
        if let Some((first, last)) = packs {
            put(names::pack(number(first), number(last)));
            // An OPEN of long ago.
            put(names::record(number(first)));
        } else {
            (1..9_997).for_each(|n| put(names::record(number(n))));
        }
        loose.clone().for_each(|n| put(names::record(number(n))));
        let listing = stage.block(&clock, Listing::make(&world)).expect("a quiet world");
        let highest = packs.map_or(0, |(_, last)| last).max(loose.end.saturating_sub(1));
        assert_eq!(listing.highest().0, highest, "{packs:?} {loose:?}");
        let lowest = listing.lowest_packed().unwrap_or(RecordNumber::FIRST);
        assert_eq!(listing.missing(lowest), [], "{packs:?} {loose:?}");
    }
}

#[test]
fn a_follower_whose_disk_is_full_stops_and_goes_on() {
    let (stage, _, sidecar) = begun(calm());
    let disk = Rc::new(RefCell::new(Disk::default()));
    let (mut follower, clock) = stage.follower(&disk, 1).expect("an empty disk");
    for _ in 0..5 {
        stage.block(&clock, follower.step()).expect("it waits");
    }
    assert_eq!(follower.applied(), RecordNumber::NONE);
    let (mut follower, clock) = stage.follower(&disk, 0).expect("there is space again");
    while follower.applied() < tip(&sidecar) {
        stage.block(&clock, follower.step()).expect("it goes on");
    }
    is_true(&stage);
}

#[test]
fn a_sidecar_that_ends_reads_again_what_could_not_be_read() {
    let (stage, database, mut sidecar) = begun(calm());
    let before = tip(&sidecar);
    database.borrow_mut().commit(true);
    database.borrow_mut().fail_reads(3);
    let (running, clock) = &mut sidecar;
    stage.block(clock, running.finish()).expect("a quiet world");
    assert!(tip(&sidecar) > before, "the last commit is shipped");
    stage.restore(Stop::Newest).expect("all of it");
    is_true(&stage);
}

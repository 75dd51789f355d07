//! Clocks that were wrong by days: what stays, and what is said.

use std::time::Duration;

use super::run::settings;
use super::stage::{Running, Shared, Stage, live};
use crate::error::Error;
use crate::fault::{Fault, plant};
use crate::ids::RecordNumber;
use crate::primary::Settings;
use crate::replicas::Replicas;
use crate::restore::Stop;
use crate::world::Patience;

/// As long as a day is elsewhere.
const DAY: Duration = Duration::from_secs(200);
const SWEEP: Duration = Duration::from_secs(90);
const DAY_MS: i64 = 24 * 3_600_000;

/// Settings under which a sweep comes once in a while, which is an hour elsewhere.
fn calm() -> Settings {
    Settings { keep: 7 * DAY, sweep_every: SWEEP, snapshot_every: DAY, ..settings(false) }
}

/// Several snapshots by a right clock.
fn begun() -> (Stage, Shared, Running) {
    let stage = Stage::default();
    let database = stage.database("alpha");
    let mut sidecar = stage.open(&database, calm()).expect("an empty place");
    for _ in 0..6 {
        live(&stage, &database, &mut sidecar, 8).expect("a quiet world");
        database.borrow_mut().exclusive();
    }
    live(&stage, &database, &mut sidecar, 20).expect("a quiet world");
    assert!(look(&stage).snapshots.len() > 3);
    (stage, database, sidecar)
}

fn look(stage: &Stage) -> Replicas {
    let (world, clock) = stage.world(Patience::Tries(3));
    stage.block(&clock, Replicas::look(&world)).expect("a chain")
}

/// Another start, whose snapshot is taken by clocks that are off by so many days.
fn start_at(stage: &Stage, database: &Shared, days: i64) -> Running {
    stage.skew_ms.set(days * DAY_MS);
    database.borrow_mut().end_session();
    let mut sidecar = stage.open(database, calm()).expect("the same database");
    database.borrow_mut().exclusive();
    live(stage, database, &mut sidecar, 20).expect("a quiet world");
    sidecar
}

/// A start whose clock was set back by a month, and some sweeps by one that is right; the first moment of before.
fn set_back_for_a_start() -> (Stage, Shared, Running, RecordNumber) {
    let (stage, database, sidecar) = begun();
    let first = look(&stage).spans[0].from;
    drop(sidecar);
    let mut sidecar = start_at(&stage, &database, -30);
    stage.skew_ms.set(0);
    stage.work(&mut sidecar, 4 * SWEEP).expect("a quiet world");
    (stage, database, sidecar, first)
}

fn keeps_all(stage: &Stage, number: RecordNumber) {
    stage.restore(Stop::Record(number)).expect("it is within the window");
    assert_eq!(stage.oracle.violation(), None);
}

// holds CLOCK-2
#[test]
fn a_clock_that_was_set_back_for_a_start_lets_nothing_go() {
    let (stage, database, sidecar, first) = set_back_for_a_start();
    keeps_all(&stage, first);
    // A later start has read the stamps alone.
    drop(sidecar);
    let mut sidecar = start_at(&stage, &database, 0);
    stage.work(&mut sidecar, 4 * SWEEP).expect("a quiet world");
    keeps_all(&stage, first);
}

#[test]
fn a_clock_that_is_believed_lets_go_what_is_to_be_kept() {
    let lets_go = |fault| {
        plant(fault);
        let (stage, .., first) = set_back_for_a_start();
        plant(None);
        stage.restore(Stop::Record(first)).is_err()
    };
    assert!(lets_go(Some(Fault::ClockBelieved)));
    assert!(!lets_go(None));
}

// holds CLOCK-1
#[test]
fn a_clock_that_is_ahead_at_a_sweep_lets_nothing_go() {
    for is_start in [false, true] {
        let (stage, database, mut sidecar) = begun();
        let first = look(&stage).spans[0].from;
        if is_start {
            drop(sidecar);
            sidecar = start_at(&stage, &database, 30);
        } else {
            stage.skew_ms.set(30 * DAY_MS);
            stage.work(&mut sidecar, SWEEP).expect("a quiet world");
        }
        stage.skew_ms.set(0);
        stage.work(&mut sidecar, 4 * SWEEP).expect("a quiet world");
        keeps_all(&stage, first);
        // What it has stamped holds retention up for no longer than others.
        let (before, mut days) = (sidecar.0.tip().snapshot, 0);
        while look(&stage).snapshots[0].record <= before {
            live(&stage, &database, &mut sidecar, 8).expect("a quiet world");
            stage.work(&mut sidecar, DAY).expect("a quiet world");
            days += 1;
            assert!(days < 12, "a week, and a day or two");
        }
        assert!(days >= 7, "{days}");
    }
}

// holds CLOCK-1
#[test]
fn a_sidecar_that_goes_on_anew_knows_its_clocks_still() {
    let (stage, database, mut sidecar) = begun();
    let first = look(&stage).spans[0].from;
    stage.work(&mut sidecar, SWEEP).expect("a quiet world");
    stage.skew_ms.set(30 * DAY_MS);
    live(&stage, &database, &mut sidecar, 1).expect("a quiet world");
    let (before, clock) = sidecar;
    let anew = stage.block(&clock, before.open_anew()).expect("its own chain");
    let mut sidecar = (anew, clock);
    live(&stage, &database, &mut sidecar, 4).expect("a quiet world");
    stage.skew_ms.set(0);
    stage.work(&mut sidecar, 4 * SWEEP).expect("a quiet world");
    keeps_all(&stage, first);
}

// holds CLOCK-1
#[test]
fn a_machine_that_was_off_for_long_deletes_what_is_old_an_hour_later() {
    let (stage, database, sidecar) = begun();
    let first = look(&stage).spans[0].from;
    drop(sidecar);
    stage.time.advance_to(stage.time.now() + 30 * DAY);
    let mut sidecar = start_at(&stage, &database, 0);
    keeps_all(&stage, first);
    stage.work(&mut sidecar, 3 * SWEEP).expect("a quiet world");
    assert!(look(&stage).spans[0].from > first);
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn a_time_that_was_passed_twice_is_told() {
    // By a clock that was set back, and right again: a time of between.
    let (stage, database, sidecar) = begun();
    let early = look(&stage).snapshots[1].taken_ms;
    drop(sidecar);
    let sidecar = start_at(&stage, &database, -30);
    let until = stage.time.wall_ms() - 5_000;
    drop(sidecar);
    let sidecar = start_at(&stage, &database, 0);
    let (restored, _) = stage.restore(Stop::Time(until)).expect("a sound chain");
    assert!(restored.header.written_ms < early, "it was written by the clock that was wrong");
    assert!(restored.clock_set_back.is_some());
    // Behind all of that nothing is ambiguous.
    let (restored, _) = stage.restore(Stop::Newest).expect("a sound chain");
    let (by_time, _) = stage.restore(Stop::Time(stage.time.wall_ms())).expect("a sound chain");
    assert_eq!((by_time.record, by_time.much_later), (restored.record, None));
    assert_eq!(by_time.clock_set_back, None);
    drop(sidecar);
    // By one that was ahead.
    let (stage, database, mut sidecar) = begun();
    stage.skew_ms.set(30 * DAY_MS);
    live(&stage, &database, &mut sidecar, 4).expect("a quiet world");
    stage.skew_ms.set(0);
    live(&stage, &database, &mut sidecar, 4).expect("a quiet world");
    let until = stage.time.wall_ms();
    live(&stage, &database, &mut sidecar, 4).expect("a quiet world");
    // No snapshot, and no newest record, was written by then.
    let (restored, _) = stage.restore(Stop::Time(until)).expect("a sound chain");
    let (number, written_ms) = restored.much_later.expect("the next one was ahead");
    assert!(number == restored.record.next() && written_ms > until);
    let (restored, _) = stage.restore(Stop::Time(stage.time.wall_ms())).expect("a sound chain");
    assert!(restored.clock_set_back.is_some_and(|shows| shows > restored.record));
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn a_file_that_is_younger_than_a_wrong_stamp_alone_is_not_refused() {
    let (stage, database, sidecar) = begun();
    let made_ms = look(&stage).snapshots[1].taken_ms;
    drop(sidecar);
    drop(start_at(&stage, &database, -30));
    stage.skew_ms.set(0);
    database.borrow_mut().begin_anew(made_ms);
    drop(stage.open(&database, calm()).expect("it is the file that was shipped"));
    database.borrow_mut().begin_anew(stage.time.wall_ms());
    let refused = stage.open(&database, calm()).map(drop);
    assert!(matches!(refused, Err(Error::MadeAnew { .. })), "{refused:?}");
}

#[test]
fn a_file_that_was_made_anew_is_refused_beside_a_stamp_of_the_future() {
    let (stage, database, sidecar) = begun();
    drop(sidecar);
    drop(start_at(&stage, &database, 30));
    stage.skew_ms.set(0);
    drop(stage.open(&database, calm()).expect("the same database"));
    stage.time.advance_to(stage.time.now() + Duration::from_secs(5));
    database.borrow_mut().begin_anew(stage.time.wall_ms());
    let refused = stage.open(&database, calm()).map(drop);
    assert!(matches!(refused, Err(Error::MadeAnew { .. })), "{refused:?}");
}

#[test]
fn a_sweep_that_finds_the_newest_record_not_restorable_is_tried_again_soon() {
    let (stage, database, sidecar) = begun();
    let first = look(&stage).snapshots[0].record;
    drop(sidecar);
    database.borrow_mut().commit(true);
    database.borrow_mut().need_a_break();
    let (keep, sweep_every) = (Duration::from_secs(30), Duration::from_secs(1 << 20));
    let often = Settings { keep, sweep_every, ..calm() };
    let mut sidecar = stage.open(&database, often).expect("the same database");
    // The copy is whole before the record that completes it, which waits for a read.
    database.borrow_mut().fail_reads(20);
    assert!(!sidecar.0.is_restorable(), "at its first sweep");
    stage.work(&mut sidecar, Duration::from_secs(600)).expect("a quiet world");
    assert!(sidecar.0.is_restorable() && look(&stage).snapshots[0].record > first);
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn another_library_at_a_start_takes_a_snapshot() {
    let (stage, database, sidecar) = begun();
    let before = sidecar.0.tip().snapshot;
    drop(sidecar);
    // The same one goes on in the session without.
    let mut sidecar = stage.open(&database, calm()).expect("the same database");
    live(&stage, &database, &mut sidecar, 3).expect("a quiet world");
    assert_eq!(sidecar.0.tip().snapshot, before);
    drop(sidecar);
    database.borrow_mut().upgrade("a later one");
    let mut sidecar = stage.open(&database, calm()).expect("the same database");
    let opened = sidecar.0.tip().opened;
    assert!(sidecar.0.tip().broken < opened, "it goes on where that was");
    live(&stage, &database, &mut sidecar, 12).expect("a quiet world");
    assert!(sidecar.0.tip().snapshot > opened);
    let (restored, _) = stage.restore(Stop::Newest).expect("a sound chain");
    assert!(restored.snapshot > opened && restored.record == sidecar.0.tip().number);
    assert_eq!(stage.oracle.violation(), None);
}

//! What is removed from a place, or damaged there: who notices it, when, and what is said.

use std::time::Duration;

use super::run::settings;
use super::stage::{Running, Shared, Stage, live};
use crate::error::Error;
use crate::ids::{CommitTs, RecordNumber};
use crate::names;
use crate::primary::Settings;
use crate::replicas::Replicas;
use crate::restore::Stop;
use crate::world::Patience;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const SWEEP: Duration = Duration::from_secs(600);

/// Settings under which nothing is packed, what is lost is looked for seldom, and one snapshot is taken.
pub(super) fn calm() -> Settings {
    let long = Duration::from_secs(1 << 20);
    Settings {
        pack_every: long,
        pack_bytes: 1 << 30,
        sweep_every: SWEEP,
        keep: long,
        snapshot_every: long,
        log_bytes_least: 1 << 40,
        ..settings(false)
    }
}

pub(super) fn begun(settings: Settings) -> (Stage, Shared, Running) {
    let stage = Stage::default();
    let database = stage.database("alpha");
    let mut sidecar = stage.open(&database, settings).expect("an empty place");
    live(&stage, &database, &mut sidecar, 20).expect("a quiet world");
    (stage, database, sidecar)
}

pub(super) fn look(stage: &Stage) -> Replicas {
    let (world, clock) = stage.world(Patience::Tries(3));
    stage.block(&clock, Replicas::look(&world)).expect("a chain")
}

pub(super) fn spans(found: &Replicas) -> Vec<(u64, u64)> {
    found.spans.iter().map(|span| (span.from.0, span.to.0)).collect()
}

pub(super) fn remove(stage: &Stage, is_it: impl Fn(&str) -> bool) {
    let names = stage.objects.names();
    let removed: Vec<_> = names.into_iter().filter(|name| is_it(name)).collect();
    assert!(!removed.is_empty(), "there are some");
    removed.iter().for_each(|name| stage.objects.damage(name, None));
}

/// Spans are what can be restored: each record of them, and none else.
pub(super) fn agrees(stage: &Stage, found: &Replicas) {
    agrees_without(stage, found, "nothing");
}

/// The same, where something was removed.
fn agrees_without(stage: &Stage, found: &Replicas, gone: &str) {
    let spans = spans(found);
    for number in 1..=found.tip.number.0 {
        let is_in = spans.iter().any(|(from, to)| (*from..=*to).contains(&number));
        let restored = stage.restore(Stop::Record(RecordNumber(number)));
        let error = restored.map(drop).err();
        assert_eq!(error.is_none(), is_in, "{gone} gone: {number} of {spans:?}: {error:?}");
    }
}

/// A history with several breaks, and behind each a snapshot of changed pages.
pub(super) fn broken_off(settings: Settings) -> (Stage, Shared, Running) {
    let stage = Stage::default();
    let database = stage.database("alpha");
    database.borrow_mut().exclusive_with(400);
    let mut sidecar = stage.open(&database, settings).expect("an empty place");
    live(&stage, &database, &mut sidecar, 14).expect("a quiet world");
    for _ in 0..3 {
        // With a log, which the next record has.
        database.borrow_mut().commit(true);
        database.borrow_mut().need_a_break();
        live(&stage, &database, &mut sidecar, 10).expect("a quiet world");
    }
    (stage, database, sidecar)
}

#[test]
fn spans_are_what_can_be_restored_whatever_is_removed() {
    for settings in [calm(), packs()] {
        let (stage, _database, sidecar) = broken_off(settings);
        let found = look(&stage);
        assert!(found.snapshots.len() == 4 && found.spans.len() > 2, "{found:?}");
        assert!(found.snapshots.iter().filter(|snapshot| !snapshot.is_whole).count() > 1);
        agrees(&stage, &found);
        // One part of each upload is as good as another.
        let is_like_another = |name: &String| {
            let part = names::parse_part(name);
            let record = names::parse_record(name);
            let is_plain = record.is_some_and(|of| {
                found.snapshots.iter().all(|s| ![s.record, s.as_of, s.as_of.before()].contains(&of))
            });
            part.is_some_and(|(_, index)| index > 0)
                || (is_plain && record.is_some_and(|of| of.0 % 4 > 0))
        };
        let names = stage.objects.names();
        for name in names.iter().filter(|name| !is_like_another(name)) {
            let bytes = stage.objects.object(name).expect("it is there");
            stage.objects.damage(name, None);
            agrees_without(&stage, &look(&stage), name);
            stage.objects.damage(name, Some(bytes));
        }
        drop(sidecar);
    }
}

#[test]
fn what_retention_has_removed_is_not_lost() {
    let (stage, _database, _sidecar) = broken_off(calm());
    let snapshots = look(&stage).snapshots;
    // An OPEN stays; the records of snapshots go with the others.
    let kept = snapshots[1].as_of.before();
    let is_swept = |name: &str| {
        let number = names::parse_record(name);
        number.is_some_and(|of| of > RecordNumber::FIRST && of < kept)
    };
    remove(&stage, is_swept);
    let found = look(&stage);
    assert_eq!((found.unread, found.snapshots.len()), (Vec::new(), snapshots.len() - 1));
    // One record alone that is gone was not removed by retention.
    let (stage, _database, _sidecar) = broken_off(calm());
    remove(&stage, |name| name == names::record(snapshots[0].record));
    let lost = &look(&stage).unread[..];
    assert!(matches!(lost, [Error::Missing { number, .. }] if *number == snapshots[0].record));
}

#[test]
fn a_snapshot_whose_parent_has_lost_its_records_alone_is_there() {
    let (stage, database, mut sidecar) = broken_off(packs());
    // The last one has all pages, and makes up for none of before.
    database.borrow().shelf().set(None);
    database.borrow_mut().commit(true);
    database.borrow_mut().need_a_break();
    live(&stage, &database, &mut sidecar, 20).expect("a quiet world");
    let (before, snapshots) = (look(&stage).spans, look(&stage).snapshots);
    assert!(!snapshots[1].is_whole && snapshots.last().is_some_and(|last| last.is_whole));
    // Retention has come to what the first one needs, and not to the record that names it.
    let has = |name: &str| {
        let pack = names::parse_pack(name);
        pack.is_some_and(|(first, last)| {
            (first..=last).contains(&RecordNumber::FIRST) && last < snapshots[0].record
        })
    };
    remove(&stage, has);
    let found = look(&stage);
    assert_eq!((&found.snapshots[..], &found.spans[..]), (&snapshots[1..], &before[1..]));
    agrees(&stage, &found);
}

#[test]
fn what_retention_has_removed_behind_what_the_store_holds_is_not_lost() {
    let settings = settings(false);
    let (stage, database, mut sidecar) = begun(settings);
    let is_held = |name: &str| names::parse_pack(name).is_some_and(|(first, _)| first.0 <= 40);
    stage.objects.hold(is_held);
    for _ in 0..120 {
        live(&stage, &database, &mut sidecar, 8).expect("a quiet world");
    }
    assert!(stage.objects.names().iter().any(|name| is_held(name)));
    let found = look(&stage);
    assert_eq!((found.unread, found.missing), (Vec::new(), Vec::new()));
    assert_eq!(found.spans.len(), 1);
    assert!(found.snapshots[0].record.0 > 500, "{:?}", found.snapshots);
    // What was removed by hand is lost all the same.
    let (stage, _database, _sidecar) = broken_off(calm());
    let snapshots = look(&stage).snapshots;
    remove(&stage, |name| name == names::record(snapshots[1].record));
    assert_eq!(look(&stage).unread.len(), 1);
}

#[test]
fn requests_that_are_billed_as_writes_are_records_packs_and_parts() {
    let (stage, _database, sidecar) = broken_off(calm());
    let parts = stage.objects.names_with(names::PARTS).len();
    assert!(parts > 4, "{parts}");
    assert_eq!(look(&stage).writes(), sidecar.0.tip().number.0 + parts as u64);
}

#[test]
fn the_snapshot_without_which_another_one_is_of_no_use_is_named() {
    let (stage, _database, _sidecar) = broken_off(calm());
    let snapshots = look(&stage).snapshots;
    let (lost, of_no_use) = (snapshots[2].record, snapshots[3].record);
    remove(&stage, |name| name == names::record(lost));
    let found = look(&stage);
    let newest = found.snapshots.last().expect("it is there");
    assert_eq!((newest.record, newest.lacks), (of_no_use, Some(lost)));
    let text = stage.restore(Stop::Newest).map(drop).expect_err("nothing leads there").to_string();
    let span = found.spans.last().expect("what is before");
    let last = format!("; the last record before it that can be restored is {} (", span.to);
    assert!(text.contains(&last) && !text.contains("--record"), "{text}");
}

#[test]
fn what_a_log_has_at_a_break_is_there_at_the_first_moment_that_can_be_restored() {
    for is_break in [false, true] {
        let stage = Stage::default();
        let database = stage.database("alpha");
        let lives = |records: u32| (0..records).for_each(|_| database.borrow_mut().commit(true));
        let mut sidecar = if is_break {
            let mut sidecar = stage.open(&database, calm()).expect("an empty place");
            live(&stage, &database, &mut sidecar, 6).expect("a quiet world");
            lives(30);
            database.borrow_mut().need_a_break();
            sidecar
        } else {
            lives(30);
            stage.open(&database, calm()).expect("an empty place")
        };
        let lived = database.borrow().newest_commit();
        live(&stage, &database, &mut sidecar, 20).expect("a quiet world");
        let broken = sidecar.0.tip().broken;
        let found = look(&stage);
        agrees(&stage, &found);
        let span = found.spans.last().expect("a snapshot is complete");
        assert!(span.from > broken, "{:?} behind {broken}", found.spans);
        let (restored, _) = stage.restore(Stop::Record(span.from)).expect("it is listed");
        assert!(restored.position.commit >= lived, "{restored:?} lacks some of {lived}");
        // The base behind a break in the stream has all of before.
        if !is_break {
            let middle = CommitTs(lived.0 - 3);
            let (restored, _) = stage.restore(Stop::Commit(middle)).expect("its frames are there");
            assert_eq!(restored.position.commit, middle);
        }
        assert_eq!(stage.oracle.violation(), None);
    }
}

#[test]
fn a_start_leads_over_a_damaged_newest_record() {
    for (is_header_damaged, is_another) in [(false, false), (true, false), (true, true)] {
        let (stage, database, sidecar) = begun(calm());
        let tip = sidecar.0.tip().number;
        drop(sidecar);
        let name = names::record(tip);
        let of = if is_another { RecordNumber(2) } else { tip };
        let mut bytes = stage.objects.object(&names::record(of)).expect("it is there").to_vec();
        let at = if is_header_damaged { 100 } else { bytes.len() - 1 };
        bytes[at] ^= u8::from(!is_another);
        stage.objects.damage(&name, Some(bytes.into()));
        let found = look(&stage);
        assert!(found.damaged.is_some() && found.needs_take_over == is_header_damaged, "{found:?}");
        let mut settings = calm();
        if is_header_damaged {
            let refused = stage.open(&database, calm()).map(drop).expect_err("whose is it?");
            assert!(matches!(refused, Error::Unreadable { number, .. } if number == tip));
            settings.take_over = true;
        }
        let mut sidecar = stage.open(&database, settings).expect("it leads over it");
        assert_eq!((sidecar.0.tip().number, sidecar.0.tip().broken), (tip.next(), tip.next()));
        let lost = sidecar.0.world().lost().expect("it is told");
        assert!(lost.contains(&format!("record {tip} (")) && lost.contains("is damaged"), "{lost}");
        live(&stage, &database, &mut sidecar, 8).expect("a quiet world");
        assert_eq!(sidecar.0.world().lost(), None, "behind its snapshot");
        let found = look(&stage);
        assert!(found.is_newest_restorable() && found.spans.len() == 2, "{:?}", found.spans);
        agrees(&stage, &found);
        assert_eq!(stage.oracle.violation(), None);
    }
}

#[test]
fn a_damaged_newest_record_hides_nothing_before_it() {
    let (stage, _database, sidecar) = broken_off(calm());
    let (before, tip) = (look(&stage), sidecar.0.tip().number);
    let name = names::record(tip);
    let mut bytes = stage.objects.object(&name).expect("it is there").to_vec();
    *bytes.last_mut().expect("a record has bytes") ^= 1;
    stage.objects.damage(&name, Some(bytes.into()));
    let found = look(&stage);
    assert!(matches!(found.damaged, Some(Error::Record { number, .. }) if number == tip));
    assert!(found.tip.number == tip.before() && !found.is_newest_restorable());
    assert_eq!(found.spans.len(), before.spans.len());
    agrees(&stage, &found);
}

/// Lets the sidecar go on until it has looked, and behind that; returns what it has missed.
fn goes_on(stage: &Stage, database: &Shared, mut sidecar: Running) -> (Running, Option<Error>) {
    let mut missed = None;
    let until = stage.time.now() + 2 * SWEEP;
    while stage.time.now() < until {
        match live(stage, database, &mut sidecar, 1) {
            Ok(()) => {}
            Err(error @ Error::Removed { .. }) => {
                assert_eq!(missed.replace(error), None, "once");
                let (inner, clock) = sidecar;
                let anew = stage.block(&clock, inner.open_anew()).expect("it goes on");
                sidecar = (anew, clock);
            }
            Err(other) => panic!("{other}"),
        }
    }
    (sidecar, missed)
}

#[test]
fn parts_that_were_removed_are_told_and_a_snapshot_takes_their_place() {
    let (stage, database, mut sidecar) = begun(calm());
    let before = sidecar.0.tip().snapshot;
    agrees(&stage, &look(&stage));
    remove(&stage, |name| name.starts_with(names::PARTS));
    let found = look(&stage);
    assert!(found.snapshots.iter().all(|snapshot| snapshot.missing_parts == snapshot.parts));
    assert_eq!(spans(&found), [], "nothing can be restored");
    agrees(&stage, &found);
    assert!(sidecar.0.is_restorable(), "it has not looked yet");
    let world = sidecar.0.world().clone();
    while world.lost().is_none() {
        let (inner, clock) = &mut sidecar;
        stage.block(clock, inner.step()).expect("it ships on");
        assert!(stage.time.now() < 2 * SWEEP, "it looks");
    }
    let lost = world.lost().expect("it is told");
    assert!(
        lost.contains(&format!("parts of the snapshot in record {before} were removed")),
        "{lost}"
    );
    assert!(!sidecar.0.is_restorable() && world.unrestorable_since().is_some());
    live(&stage, &database, &mut sidecar, 20).expect("it ships on");
    assert_eq!((world.lost(), world.unrestorable_since()), (None, None));
    let found = look(&stage);
    assert!(found.snapshots.iter().any(|of| of.record > before && of.is_whole), "with all pages");
    assert!(found.is_newest_restorable());
    agrees(&stage, &found);
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn a_record_that_was_removed_before_it_is_in_a_pack_comes_back_with_that() {
    let (stage, database, sidecar) = begun(calm());
    let gone = RecordNumber(sidecar.0.tip().number.0 / 2 + 4);
    remove(&stage, |name| name == names::record(gone));
    let found = look(&stage);
    assert_eq!(found.missing, [(gone, gone)]);
    assert!(!found.is_newest_restorable());
    agrees(&stage, &found);
    let (sidecar, missed) = goes_on(&stage, &database, sidecar);
    assert_eq!(missed, None);
    let (restored, _) = stage.restore(Stop::Newest).expect("it is in a pack");
    assert_eq!(restored.record, sidecar.0.tip().number);
    assert_eq!(stage.oracle.violation(), None);
}

/// Settings under which all is packed at once.
pub(super) fn packs() -> Settings {
    Settings { pack_every: SECOND, pack_records: 4, ..calm() }
}

/// Removes a pack in the middle, and returns what it had.
fn remove_pack(stage: &Stage) -> (RecordNumber, RecordNumber) {
    let listed = stage.objects.names_with(names::PACKS);
    let pack = listed[listed.len() - 2].clone();
    remove(stage, |name| name == pack);
    names::parse_pack(&pack).expect("a pack")
}

#[test]
fn a_pack_that_was_removed_is_missed_and_led_over_by_a_break_and_a_snapshot() {
    let (stage, database, sidecar) = begun(packs());
    let tip = sidecar.0.tip().number;
    let gone = remove_pack(&stage);
    let found = look(&stage);
    assert_eq!(found.missing, [gone]);
    assert!(!found.is_newest_restorable());
    agrees(&stage, &found);
    let (sidecar, missed) = goes_on(&stage, &database, sidecar);
    let missed = missed.expect("it has looked");
    assert!(matches!(missed, Error::Removed { number, .. } if number == gone.0), "{missed}");
    let header = sidecar.0.tip();
    assert!(header.broken > tip && header.snapshot > header.broken, "{header:?}");
    let found = look(&stage);
    assert!(found.is_newest_restorable() && found.spans.len() == 2, "{:?}", found.spans);
    stage.restore(Stop::Newest).expect("from the new snapshot");
    stage.restore(Stop::Record(gone.0.before())).expect("from the first one");
    assert_eq!(stage.oracle.violation(), None);
}

/// Lets the sidecar look, with nobody at work; returns what it says is lost.
fn misses(stage: &Stage, sidecar: &mut Running) -> Option<String> {
    let until = stage.time.now() + 2 * SWEEP;
    let (inner, clock) = sidecar;
    while inner.world().lost().is_none() && stage.time.now() < until {
        stage.block(clock, inner.step()).expect("it ships on");
    }
    inner.world().lost()
}

#[test]
fn what_is_old_stays_while_the_newest_snapshot_is_lost() {
    let keep = SWEEP + SWEEP / 2;
    let (stage, database, sidecar) = begun(Settings { keep, ..packs() });
    let (gone, _) = remove_pack(&stage);
    let (mut sidecar, missed) = goes_on(&stage, &database, sidecar);
    assert!(missed.is_some() && look(&stage).snapshots.len() == 2);
    // The next snapshot has another base.
    live(&stage, &database, &mut sidecar, 8).expect("a quiet world");
    let uploads = stage.objects.names_with(names::PARTS);
    let uploads = uploads.iter().filter_map(|name| names::parse_part(name));
    let newest = uploads.map(|(upload, _)| upload).max_by_key(|upload| upload.begun);
    remove(&stage, |name| names::parse_part(name).map(|(upload, _)| upload) == newest);
    misses(&stage, &mut sidecar).expect("the window has gone past the lost one");
    let old = || stage.restore(Stop::Record(gone.before())).map(drop);
    old().expect("it is all that there is");
    live(&stage, &database, &mut sidecar, 100).expect("it ships on");
    old().expect("between it and the newest one nothing else leads into the window");
    stage.restore(Stop::Newest).expect("from a snapshot with all pages");
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn the_record_of_a_snapshot_that_the_newest_one_changes_is_missed() {
    let stage = Stage::default();
    let database = stage.database("alpha");
    database.borrow_mut().exclusive_with(400);
    let mut sidecar = stage.open(&database, packs()).expect("an empty place");
    live(&stage, &database, &mut sidecar, 20).expect("a quiet world");
    database.borrow_mut().need_a_break();
    live(&stage, &database, &mut sidecar, 20).expect("a quiet world");
    assert!(look(&stage).snapshots.last().is_some_and(|newest| !newest.is_whole));
    let parent = look(&stage).snapshots[0].record;
    let has = |name: &str| {
        name == names::record(parent)
            || names::parse_pack(name).is_some_and(|(first, last)| (first..=last).contains(&parent))
    };
    remove(&stage, has);
    let lost = misses(&stage, &mut sidecar).expect("it is missed");
    assert!(lost.contains("builds on is missing"), "{lost}");
    live(&stage, &database, &mut sidecar, 20).expect("it ships on");
    stage.restore(Stop::Newest).expect("from a snapshot with all pages");
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn what_a_list_leaves_out_and_can_be_read_is_not_missed() {
    for hidden in [(|name| name.starts_with(names::PARTS)) as fn(&str) -> bool, |name| {
        name == names::record(RecordNumber(10))
    }] {
        let (stage, database, sidecar) = begun(calm());
        stage.objects.hide(hidden);
        let found = look(&stage);
        assert!(found.is_newest_restorable(), "{:?}", found.spans);
        assert!(found.snapshots.iter().all(|snapshot| snapshot.missing_parts == 0));
        let (sidecar, missed) = goes_on(&stage, &database, sidecar);
        assert_eq!((missed, sidecar.0.world().lost()), (None, None));
        drop(sidecar);
        let again = stage.open(&database, calm()).expect("the same database");
        assert!(again.0.tip().broken < again.0.tip().number, "it goes on where that was");
        assert_eq!(stage.oracle.violation(), None);
    }
}

#[test]
fn what_is_missing_behind_what_a_list_leaves_out_is_missed() {
    let (stage, database, sidecar) = begun(calm());
    drop(sidecar);
    stage.objects.hide(|name| name == names::record(RecordNumber(10)));
    let gone = RecordNumber(11);
    remove(&stage, |name| name == names::record(gone));
    assert_eq!(look(&stage).missing, [(gone, gone)]);
    let again = stage.open(&database, calm()).expect("the same database");
    assert_eq!(again.0.tip().broken, again.0.tip().number, "nothing leads over it");
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn a_large_record_that_was_removed_is_missing_and_a_start_leads_over_it() {
    let settings = || Settings { large_bytes: 300, ..packs() };
    let (stage, database, mut sidecar) = begun(settings());
    live(&stage, &database, &mut sidecar, 60).expect("a quiet world");
    let packed = stage.objects.names_with(names::PACKS);
    let packed = packed.iter().filter_map(|name| names::parse_pack(name)).map(|(_, last)| last);
    let packed = packed.max().expect("a pack");
    let snapshots = look(&stage).snapshots;
    let needed = snapshots.last().expect("a snapshot").as_of;
    let is_plain = |of: &RecordNumber| snapshots.iter().all(|snapshot| snapshot.record != *of);
    let listed = stage.objects.names_with(names::CHAIN);
    let large = listed.iter().filter_map(|name| names::parse_record(name));
    let large = large.filter(|of| *of > needed && *of <= packed && is_plain(of));
    let large = large.min().expect("a large record");
    remove(&stage, |name| name == names::record(large));
    let found = look(&stage);
    assert_eq!(found.missing, [(large, large)]);
    assert!(!found.is_newest_restorable());
    agrees(&stage, &found);
    drop(sidecar);
    let mut again = stage.open(&database, settings()).expect("the same database");
    let lost = again.0.world().lost().expect("it is told");
    assert!(lost.starts_with(&format!("record {large} (")), "{lost}");
    live(&stage, &database, &mut again, 30).expect("a quiet world");
    stage.restore(Stop::Newest).expect("from the new snapshot");
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn the_pack_that_brings_a_record_back_is_made_at_once() {
    let (stage, _, mut sidecar) = begun(calm());
    let gone = RecordNumber(sidecar.0.tip().number.0 / 2 + 4);
    remove(&stage, |name| name == names::record(gone));
    assert_eq!(misses(&stage, &mut sidecar), None);
    stage.restore(Stop::Newest).expect("it is in a pack");
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn a_start_leads_over_what_was_removed_before_it() {
    let (stage, database, sidecar) = begun(packs());
    drop(sidecar);
    let (first, last) = remove_pack(&stage);
    let mut sidecar = stage.open(&database, packs()).expect("the same database");
    assert_eq!(sidecar.0.tip().broken, sidecar.0.tip().number);
    let lost = sidecar.0.world().lost().expect("it is told");
    assert!(lost.starts_with(&format!("records {first} to {last} were removed from")), "{lost}");
    live(&stage, &database, &mut sidecar, 12).expect("a quiet world");
    assert_eq!(sidecar.0.world().lost(), None, "behind its snapshot");
    stage.restore(Stop::Newest).expect("from the new snapshot");
    // And another start goes on where that was.
    drop(sidecar);
    let again = stage.open(&database, packs()).expect("the same database");
    assert!(again.0.tip().broken < again.0.tip().number);
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn a_sidecar_that_leads_over_a_hole_takes_over_from_nobody() {
    let (stage, database, sidecar) = begun(calm());
    let second = stage.open(&database, calm()).expect("it takes over");
    let (first, clock) = sidecar;
    let refused = stage.block(&clock, first.open_anew()).err();
    assert!(matches!(refused, Some(Error::Fenced { .. })), "{refused:?}");
    drop(second);
}

#[test]
fn the_record_of_the_only_snapshot_is_named_where_it_is_damaged() {
    let (stage, database, sidecar) = begun(calm());
    let only = sidecar.0.tip().snapshot;
    let name = names::record(only);
    let mut bytes = stage.objects.object(&name).expect("it is there").to_vec();
    *bytes.last_mut().expect("a record has bytes") ^= 1;
    stage.objects.damage(&name, Some(bytes.into()));
    for stop in [Stop::Newest, Stop::Record(only), Stop::Time(stage.time.wall_ms())] {
        let text = stage.restore(stop).map(drop).expect_err("there is none").to_string();
        assert!(text.contains(&format!("record {only} ({name}) is damaged")), "{text}");
        assert!(!text.contains("complete yet") && !text.contains("--record "), "{text}");
    }
    let found = look(&stage);
    assert!(matches!(found.unread[..], [Error::Record { number, .. }] if number == only));
    assert_eq!(spans(&found), []);
    drop(sidecar);
    let mut sidecar = stage.open(&database, calm()).expect("the same database");
    live(&stage, &database, &mut sidecar, 12).expect("a quiet world");
    stage.restore(Stop::Newest).expect("from a new snapshot");
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn no_record_before_the_first_is_named() {
    let (stage, _, _sidecar) = begun(calm());
    let name = names::record(RecordNumber::FIRST);
    let mut bytes = stage.objects.object(&name).expect("it is there").to_vec();
    *bytes.last_mut().expect("a record has bytes") ^= 1;
    stage.objects.damage(&name, Some(bytes.into()));
    let texts = [Stop::Record(RecordNumber::FIRST), Stop::Record(RecordNumber(2))]
        .map(|stop| stage.restore(stop).err().map(|error| error.to_string()));
    for text in texts.into_iter().flatten() {
        assert!(!text.contains("--record 0"), "{text}");
    }
}

// holds KNOWN-1
#[test]
fn what_a_snapshot_that_read_badly_may_need_stays() {
    let stage = Stage::default();
    let database = stage.database("alpha");
    database.borrow_mut().exclusive_with(400);
    let settings = Settings { sweep_every: SWEEP * 100, ..packs() };
    let mut sidecar = stage.open(&database, settings).expect("an empty place");
    live(&stage, &database, &mut sidecar, 14).expect("a quiet world");
    stage.work(&mut sidecar, Duration::from_secs(300)).expect("a quiet world");
    for _ in 0..2 {
        database.borrow_mut().commit(true);
        database.borrow_mut().need_a_break();
        live(&stage, &database, &mut sidecar, 10).expect("a quiet world");
    }
    drop(sidecar);
    let snapshots = look(&stage).snapshots;
    let (before, first) = (&snapshots[0], &snapshots[1]);
    assert!(before.is_whole && !first.is_whole && first.taken_ms - before.taken_ms > 290_000);
    // The window begins between the first two of them, of which the second changes the first.
    let keep_ms = stage.time.wall_ms() - first.taken_ms + 150_000;
    let has = |name: &String| {
        let pack = names::parse_pack(name);
        pack.is_some_and(|pack| pack.0 <= before.record && before.record <= pack.1)
    };
    let name = stage.objects.names().into_iter().find(has).expect("a pack");
    let sound = stage.objects.object(&name);
    stage.objects.damage(&name, Some(bytes::Bytes::from_static(b"read badly")));
    let keep = Duration::from_millis(keep_ms);
    let settings = Settings { keep, sweep_every: SECOND, ..packs() };
    let mut again = stage.open(&database, settings).expect("the same database");
    while !again.0.is_restorable() {
        live(&stage, &database, &mut again, 1).expect("a quiet world");
    }
    live(&stage, &database, &mut again, 3).expect("a sweep comes to its end");
    assert!(stage.time.wall_ms() - keep_ms < first.taken_ms, "it is in the window still");
    stage.objects.damage(&name, sound);
    for number in first.as_of.0..first.as_of.0 + 3 {
        stage.restore(Stop::Record(RecordNumber(number))).expect("it is in the window");
    }
}

//! What a store has and refuses to give, as an archive does, or gives later: who goes on without it, and what that costs.

use std::future::Future as _;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;

use super::losses::{SECOND, SWEEP, begun, broken_off, calm, look, packs};
use super::objects::Outage;
use super::primary::Primary;
use super::stage::{Running, Shared, Stage, live};
use crate::ids::RecordNumber;
use crate::names;
use crate::primary::{Settings, Sidecar};
use crate::restore::Stop;
use crate::world::{Patience, World};

/// Behind what was shipped before come breaks, each with a snapshot.
fn goes_on(stage: &Stage, database: &Shared, sidecar: &mut Running, breaks: u32) {
    for _ in 0..breaks {
        database.borrow_mut().commit(true);
        database.borrow_mut().need_a_break();
        live(stage, database, sidecar, 10).expect("a quiet world");
    }
}

fn calls_of(stage: &Stage, does: impl FnOnce()) -> u64 {
    let before = stage.objects.calls();
    does();
    stage.objects.calls() - before
}

static LARGE: AtomicU64 = AtomicU64::new(0);

#[test]
fn a_large_record_of_an_old_snapshot_that_is_refused_is_in_nobodys_way() {
    let settings = || Settings { large_bytes: 300, ..packs() };
    let (stage, database, sidecar) = broken_off(settings());
    let old = look(&stage).snapshots[0].record;
    LARGE.store(old.0, Relaxed);
    assert!(stage.objects.object(&names::record(old)).is_some(), "packs leave it in its place");
    drop(sidecar);
    // One with all pages, which needs nothing of those before.
    database.borrow().shelf().set(None);
    let mut sidecar = stage.open(&database, settings()).expect("the same database");
    goes_on(&stage, &database, &mut sidecar, 1);
    live(&stage, &database, &mut sidecar, 30).expect("a quiet world");
    assert!(look(&stage).snapshots.last().is_some_and(|newest| newest.is_whole));
    drop(sidecar);
    let of_an_hour = |sweep_every| {
        let settings = Settings { keep: SECOND, sweep_every, ..settings() };
        let mut again = stage.open(&database, settings).expect("the same database");
        let calls = calls_of(&stage, || stage.work(&mut again, SWEEP * 6).expect("it works"));
        (again.0.tip().number, again.0.world().lost(), again.0.world().trouble(), calls)
    };
    stage.objects.withhold(|name| name == names::record(RecordNumber(LARGE.load(Relaxed))));
    let found = look(&stage);
    assert!(found.is_newest_restorable(), "{:?}", found.spans);
    assert_eq!(found.withheld.iter().map(|(of, _)| *of).collect::<Vec<_>>(), [(old, old)]);
    let text = found.unread[0].what();
    assert!(text.ends_with(" cannot be read"), "{text}");
    for stop in [Stop::Newest, Stop::Record(found.tip.number)] {
        let (restored, _) = stage.restore(stop).expect("it needs nothing of that record");
        assert_eq!(restored.record, found.tip.number);
    }
    let (tip, lost, trouble, calls) = of_an_hour(SWEEP);
    assert!(tip > found.tip.number && lost.is_none() && trouble.is_none(), "{lost:?}, {trouble:?}");
    stage.objects.withhold(|_| false);
    let (.., without) = of_an_hour(SWEEP);
    assert!(calls < without * 3 / 2, "{calls} calls, and {without} where nothing is refused");
    assert_eq!(stage.oracle.violation(), None);
}

static BELOW: AtomicU64 = AtomicU64::new(0);

/// Packs before some record.
fn archived(name: &str) -> bool {
    names::parse_pack(name).is_some_and(|(_, last)| last.0 < BELOW.load(Relaxed))
}

#[test]
fn a_restore_asks_for_few_of_the_packs_of_an_archive() {
    let settings = || Settings { sweep_every: SWEEP * 100, ..packs() };
    let (stage, database, mut sidecar) = begun(settings());
    live(&stage, &database, &mut sidecar, 300).expect("a quiet world");
    goes_on(&stage, &database, &mut sidecar, 1);
    BELOW.store(sidecar.0.tip().number.0 - 1, Relaxed);
    goes_on(&stage, &database, &mut sidecar, 4);
    let of_restore = || {
        calls_of(&stage, || {
            stage.restore(Stop::Newest).expect("from a snapshot of later");
        })
    };
    let without = of_restore();
    stage.objects.withhold(archived);
    let packs = stage.objects.names_with(names::PACKS);
    let packs = packs.iter().filter(|name| archived(name)).count();
    assert!(packs > 60, "{packs}");
    let with = of_restore();
    // Sixteen one by one, then ever fewer.
    assert!(with < without + 40, "{packs} packs: {with} calls, and {without} without");
    assert!(look(&stage).is_newest_restorable());
}

static FAILURES: AtomicU64 = AtomicU64::new(0);

fn fails_for_a_while(name: &str) -> bool {
    let counts_down = || FAILURES.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
    name.starts_with(names::PACKS) && counts_down().is_ok()
}

#[test]
fn an_open_in_a_pack_that_fails_for_some_seconds_is_not_taken_for_lost() {
    for times in [0, 6] {
        let (stage, database, mut sidecar) = begun(packs());
        live(&stage, &database, &mut sidecar, 30).expect("a quiet world");
        let opened = sidecar.0.tip().opened;
        drop(sidecar);
        stage.objects.damage(&names::record(opened), None);
        FAILURES.store(times, Relaxed);
        stage.objects.withhold(fails_for_a_while);
        let again = stage.open(&database, packs()).expect("it is in its pack");
        assert!(again.0.tip().broken < again.0.tip().number, "it goes on where that was");
        assert_eq!(FAILURES.load(Relaxed), 0);
    }
}

// holds KNOWN-1
#[test]
fn that_nothing_goes_is_told_also_where_deletions_were_refused_before() {
    static OLD: AtomicU64 = AtomicU64::new(0);
    let settings = || Settings { keep: SWEEP, sweep_every: SWEEP, ..packs() };
    let (stage, database, mut sidecar) = begun(settings());
    goes_on(&stage, &database, &mut sidecar, 6);
    OLD.store(sidecar.0.tip().snapshot.0 - 1, Relaxed);
    drop(sidecar);
    stage.objects.withhold(|name| {
        names::parse_pack(name).is_some_and(|(_, last)| last.0 < OLD.load(Relaxed))
    });
    let mut sidecar = stage.open(&database, settings()).expect("the same database");
    let error = crate::store::StoreError::Denied("a lock".to_owned());
    let (what, name) = ("delete".to_owned(), "probe/1".to_owned());
    let refused = crate::error::Error::Store { what, name, error };
    let world = sidecar.0.world().clone();
    world.note_refusal(&refused, crate::world::STAYS);
    let mut told = Vec::new();
    for _ in 0..120 {
        live(&stage, &database, &mut sidecar, 1).expect("it ships on");
        stage.work(&mut sidecar, SECOND * 9).expect("it works");
        told.extend(world.take_refusal());
        assert_eq!(world.trouble(), None, "nothing is in the way of shipping");
    }
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("cannot delete probe/1") && told[0].ends_with(crate::world::STAYS));
    assert!(told[1].contains("cannot read pack/"), "{told:?}");
    assert!(told[1].contains("nothing goes from the place until that can be read"), "{told:?}");
}

#[test]
fn while_nothing_may_go_the_chain_is_not_looked_through_again_and_again() {
    let settings = || Settings { sweep_every: SWEEP * 6, idle: SECOND * 100, ..calm() };
    let (stage, database, mut sidecar) = begun(packs());
    goes_on(&stage, &database, &mut sidecar, 12);
    let newest = sidecar.0.tip().snapshot;
    drop(sidecar);
    let has = |name: &String| {
        names::parse_pack(name).is_some_and(|pack| pack.0 <= newest && newest <= pack.1)
    };
    let pack = stage.objects.names().into_iter().find(has).expect("a pack");
    stage.objects.damage(&pack, Some(bytes::Bytes::from_static(b"bad")));
    database.borrow_mut().hold_base();
    let mut again = stage.open(&database, settings()).expect("the same database");
    assert!(again.0.world().lost().is_some());
    // The first sweep looks.
    stage.work(&mut again, SECOND * 61).expect("it works");
    let before = again.0.world().requests().reads;
    stage.work(&mut again, SWEEP * 6).expect("it works");
    let reads = again.0.world().requests().reads - before;
    assert!(!again.0.is_restorable() && reads < 500, "{reads}");
}

#[test]
fn what_needs_a_refused_open_is_not_offered() {
    let (stage, _, sidecar) = begun(calm());
    drop(sidecar);
    stage.objects.withhold(|name| name == names::record(RecordNumber::FIRST));
    let found = look(&stage);
    super::losses::agrees(&stage, &found);
}

#[test]
fn an_open_that_is_refused_is_in_the_way_of_a_start_alone() {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    static WITH_PACK: AtomicU64 = AtomicU64::new(0);
    fn refused(name: &str) -> bool {
        let opened = RecordNumber(OPENED.load(Relaxed));
        let is_its = |(first, last)| first <= opened && opened <= last;
        name == names::record(opened)
            || (WITH_PACK.load(Relaxed) == 1 && names::parse_pack(name).is_some_and(is_its))
    }
    for with_pack in [0, 1] {
        let settings = || Settings { sweep_every: SWEEP * 100, ..packs() };
        let (stage, database, mut sidecar) = begun(settings());
        // What was shipped first is of no use behind this.
        goes_on(&stage, &database, &mut sidecar, 1);
        live(&stage, &database, &mut sidecar, 30).expect("a quiet world");
        database.borrow().shelf().set(None);
        goes_on(&stage, &database, &mut sidecar, 1);
        live(&stage, &database, &mut sidecar, 30).expect("a quiet world");
        OPENED.store(sidecar.0.tip().opened.0, Relaxed);
        WITH_PACK.store(with_pack, Relaxed);
        stage.objects.withhold(refused);
        let found = look(&stage);
        assert!(found.is_newest_restorable(), "{:?}", found.spans);
        let (restored, _) = stage.restore(Stop::Newest).expect("the library alone is not known");
        assert_eq!(restored.record, found.tip.number);
        // A sidecar that runs, and one that ends.
        live(&stage, &database, &mut sidecar, 30).expect("it ships on");
        assert_eq!(sidecar.0.world().trouble(), None);
        stage.block(&sidecar.1, sidecar.0.finish()).expect("all is shipped");
        drop(sidecar);
        let begun = stage.time.now();
        let again = stage.open(&database, settings());
        if with_pack == 0 {
            let again = again.expect("its pack has it");
            assert!(again.0.tip().broken < again.0.tip().number, "it goes on where that was");
            continue;
        }
        let text = again.map(drop).expect_err("nothing tells whose it is").to_string();
        assert!(text.contains("is refused by the store, as by an archive"), "{text}");
        assert!(stage.time.now() - begun < SECOND * 120);
        let anew = Settings { take_over: true, ..settings() };
        let mut anew = stage.open(&database, anew).expect("that was asked for");
        live(&stage, &database, &mut anew, 30).expect("a quiet world");
        stage.restore(Stop::Newest).expect("from its snapshot");
    }
}

#[test]
fn few_of_many_large_records_that_are_refused_are_asked_for() {
    static OLD: AtomicU64 = AtomicU64::new(0);
    let settings = || Settings { large_bytes: 100, sweep_every: SWEEP * 100, ..packs() };
    let (stage, database, mut sidecar) = begun(settings());
    live(&stage, &database, &mut sidecar, 300).expect("a quiet world");
    OLD.store(sidecar.0.tip().number.0, Relaxed);
    goes_on(&stage, &database, &mut sidecar, 4);
    let of_restore = || {
        calls_of(&stage, || {
            stage.restore(Stop::Newest).expect("from a snapshot of later");
        })
    };
    let without = of_restore();
    fn is_old(name: &str) -> bool {
        names::parse_record(name).is_some_and(|number| (2..OLD.load(Relaxed)).contains(&number.0))
    }
    let large = stage.objects.names_with(names::CHAIN);
    let large = large.iter().filter(|name| is_old(name)).count();
    assert!(large > 200, "{large}");
    stage.objects.withhold(is_old);
    let with = of_restore();
    assert!(with < without + 60, "{large} records: {with} calls, and {without} without");
    let listed = calls_of(&stage, || assert!(look(&stage).is_newest_restorable()));
    assert!(listed < 400, "{listed}");
}

#[test]
fn a_part_that_is_refused_is_led_around_by_another_snapshot() {
    static PART: Mutex<String> = Mutex::new(String::new());
    let (stage, database, sidecar) = begun(calm());
    drop(sidecar);
    let settings = Settings { log_bytes_least: 1, ..calm() };
    let mut sidecar = stage.open(&database, settings).expect("the same database");
    live(&stage, &database, &mut sidecar, 60).expect("a quiet world");
    let snapshots = look(&stage).snapshots;
    let newest = snapshots.last().expect("a snapshot");
    assert!(snapshots.len() > 1, "{snapshots:?}");
    let parts = stage.objects.names_with(names::PARTS);
    let of_newest = parts.iter().filter_map(|name| Some((names::parse_part(name)?.0, name)));
    PART.lock().unwrap().clone_from(of_newest.max().expect("a part").1);
    stage.objects.withhold(|name| name == *PART.lock().unwrap());
    let (restored, _) = stage.restore(Stop::Newest).expect("another one leads there");
    assert_eq!(restored.record, sidecar.0.tip().number);
    assert!(restored.snapshot < newest.record, "{}", restored.snapshot);
}

#[test]
fn a_newest_record_that_is_refused_hides_nothing_before_it() {
    static NEWEST: AtomicU64 = AtomicU64::new(0);
    let (stage, _, sidecar) = begun(calm());
    let newest = sidecar.0.tip().number;
    NEWEST.store(newest.0, Relaxed);
    stage.objects.withhold(|name| name == names::record(RecordNumber(NEWEST.load(Relaxed))));
    let found = look(&stage);
    assert_eq!(found.tip.number, newest.before());
    assert!(found.damaged.as_ref().is_some_and(|error| error.is_refusal()));
    super::losses::agrees(&stage, &found);
    let (restored, _) = stage.restore(Stop::Record(newest.before())).expect("it is there");
    assert_eq!(restored.record, newest.before());
    let error = stage.restore(Stop::Newest).map(drop).expect_err("nobody knows it");
    assert!(error.is_refusal(), "{error}");
}

#[test]
fn a_start_whose_newest_record_is_refused_for_a_minute_says_which_object_it_waits_for() {
    waits_for_the_newest_record(None);
}

#[test]
fn a_start_behind_an_outage_says_which_object_it_waits_for_as_well() {
    waits_for_the_newest_record(Some((Outage::Down, "does not answer")));
    waits_for_the_newest_record(Some((Outage::Denied, "cannot list ")));
}

/// A start which the newest record is refused, behind an outage of which something is said.
fn waits_for_the_newest_record(outage: Option<(Outage, &str)>) {
    static NEWEST: AtomicU64 = AtomicU64::new(0);
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    let (stage, database, mut sidecar) = begun(calm());
    stage.block(&sidecar.1, sidecar.0.finish()).expect("all is shipped");
    let newest = sidecar.0.tip().number;
    drop(sidecar);
    NEWEST.store(newest.0, Relaxed);
    stage.objects.withhold(|name| name == names::record(RecordNumber(NEWEST.load(Relaxed))));
    let (world, clock) = stage.world(Patience::Endless);
    let source = Box::new(Primary::new(&database, 99, &Rc::default()));
    let mut opening = std::pin::pin!(Sidecar::open(world.clone(), source, calm()));
    let begun = stage.time.now() + outage.map_or(Duration::ZERO, |_| SECOND * 100);
    stage.objects.set_outage(outage.map(|(outage, _)| (outage, begun)));
    let mut is_told = outage.is_none();
    let said = |world: &World| world.trouble().map_or_else(String::new, |trouble| trouble.what);
    let words = format!("the newest record {newest} ({}) is refused", names::record(newest));
    let mut since = None;
    while stage.time.now() < begun + SECOND * 600 {
        let mut context = Context::from_waker(Waker::noop());
        assert!(opening.as_mut().poll(&mut context).is_pending(), "nothing tells whose it is");
        if said(&world).starts_with(&words) {
            since.get_or_insert(stage.time.now().saturating_sub(begun));
        }
        is_told |= outage.is_some_and(|(_, words)| said(&world).contains(words));
        stage.time.advance_to(clock.wake());
    }
    assert!(is_told, "{outage:?}");
    let since = since.expect("it is said");
    assert!(since > SECOND * 50 && since < SECOND * 120, "{since:?}");
    assert!(said(&world).contains("the store has to give this one object"), "{}", said(&world));
    assert!(!said(&world).contains("  "), "{}", said(&world));
    stage.objects.withhold(|_| false);
    let sidecar = stage.block(&clock, opening).expect("it is given");
    assert!(sidecar.tip().number > newest);
    assert_eq!(said(&world), "");
}

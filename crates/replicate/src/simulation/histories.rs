//! Places with records of two histories, as where a backup is copied into one, or of two databases; and objects that a store has
//! and does not give.

use std::time::Duration;

use bytes::Bytes;

use super::losses::{SECOND, SWEEP, agrees, begun, broken_off, calm, look, packs, remove, spans};
use super::stage::{Running, Shared, Stage, live};
use crate::error::Error;
use crate::ids::RecordNumber;
use crate::names;
use crate::primary::Settings;
use crate::restore::Stop;

type Copied = Vec<(String, Bytes)>;

/// A copy of the place.
fn backup(stage: &Stage) -> Copied {
    let names = stage.objects.names().into_iter();
    names.filter_map(|name| stage.objects.object(&name).map(|bytes| (name, bytes))).collect()
}

/// Copies one into the place, over what is there.
fn put(stage: &Stage, copied: &Copied) {
    for (name, bytes) in copied {
        stage.objects.damage(name, Some(bytes.clone()));
    }
}

/// Two histories of one beginning: shipping went on from an older backup, and runs. Returns the newer backup as well.
fn forked(settings: impl Fn() -> Settings) -> (Stage, Shared, Running, Copied) {
    let (stage, database, mut sidecar) = begun(settings());
    let old = backup(&stage);
    live(&stage, &database, &mut sidecar, 10).expect("a quiet world");
    let newer = backup(&stage);
    drop(sidecar);
    remove(&stage, |_| true);
    put(&stage, &old);
    let mut other = stage.open(&database, settings()).expect("it goes on behind what is there");
    live(&stage, &database, &mut other, 16).expect("a quiet world");
    (stage, database, other, newer)
}

fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Lost { stands: crate::error::Stands::Another, .. })
}

#[test]
fn records_of_two_histories_are_told_apart() {
    for settings in [calm, packs] {
        let (stage, database, sidecar, newer) = forked(settings);
        drop(sidecar);
        agrees(&stage, &look(&stage));
        put(&stage, &newer);
        let found = look(&stage);
        let newest = stage.restore(Stop::Newest).map(drop);
        assert_eq!(found.is_newest_restorable(), newest.is_ok(), "{found:?}: {newest:?}");
        for number in spans(&found).into_iter().flat_map(|(from, to)| from..=to) {
            stage.restore(Stop::Record(RecordNumber(number))).expect("it is listed");
        }
        // Packs of either history may be whole.
        if found.seams.is_empty() {
            assert!(settings().pack_every == SECOND, "{found:?}");
            continue;
        }
        let refused = stage.open(&database, settings()).map(drop).expect_err("whose is it?");
        assert!(is_refused(&refused), "{refused}");
    }
}

#[test]
fn a_backup_that_is_copied_over_a_sidecar_ends_it() {
    let (stage, database, mut sidecar, newer) = forked(calm);
    put(&stage, &newer);
    let ended = live(&stage, &database, &mut sidecar, 40).expect_err("its OPEN is another record");
    assert!(is_refused(&ended), "{ended}");
    let ended = stage.block(&sidecar.1, sidecar.0.finish()).expect_err("nor does an end hide it");
    assert!(is_refused(&ended), "{ended}");
}

#[test]
fn a_restart_does_not_hide_that_records_before_are_of_another_history() {
    for restarts in 1..3 {
        let (stage, database, mut sidecar, newer) = forked(calm);
        let last = sidecar.0.tip().number;
        for _ in 0..restarts {
            drop(sidecar);
            sidecar = stage.open(&database, calm()).expect("the same database");
            live(&stage, &database, &mut sidecar, 6).expect("a quiet world");
        }
        put(&stage, &newer);
        let found = look(&stage);
        agrees(&stage, &found);
        assert!(!found.is_newest_restorable() && found.seams[..] < [last.next()][..], "{found:?}");
        // A start leads over that.
        drop(sidecar);
        let mut again = stage.open(&database, calm()).expect("its own OPEN is there");
        again.0.world().lost().expect("it is told");
        live(&stage, &database, &mut again, 12).expect("a quiet world");
        assert!(look(&stage).is_newest_restorable());
        agrees(&stage, &look(&stage));
    }
}

#[test]
fn a_sidecar_finds_another_history_below_its_own_beginning() {
    let (stage, database, sidecar, newer) = forked(calm);
    drop(sidecar);
    let mut sidecar = stage.open(&database, calm()).expect("the same database");
    live(&stage, &database, &mut sidecar, 6).expect("a quiet world");
    put(&stage, &newer);
    let ended = (0..2000).find_map(|_| stage.work(&mut sidecar, SECOND).err());
    assert!(matches!(ended, Some(Error::Removed { .. })), "{ended:?}");
    let (inner, clock) = sidecar;
    let anew = stage.block(&clock, inner.open_anew()).expect("it goes on");
    let mut sidecar = (anew, clock);
    live(&stage, &database, &mut sidecar, 12).expect("a quiet world");
    assert!(look(&stage).is_newest_restorable());
    agrees(&stage, &look(&stage));
}

#[test]
fn a_place_that_another_database_has_begun_anew_ends_a_sidecar() {
    for is_ahead in [false, true] {
        let (stage, database, mut sidecar) = begun(calm());
        let chain = sidecar.0.tip().chain;
        remove(&stage, |_| true);
        let others = stage.database("beta");
        let mut other = stage.open(&others, calm()).expect("an empty place");
        if is_ahead {
            live(&stage, &others, &mut other, 40).expect("a quiet world");
        }
        let ended = live(&stage, &database, &mut sidecar, 40).expect_err("it is another's");
        match ended {
            Error::Fenced { .. } => assert!(is_ahead),
            ended => assert!(
                matches!(ended, Error::OtherChain { expected, .. } if expected == chain),
                "{ended}"
            ),
        }
        let found = look(&stage);
        for number in spans(&found).into_iter().flat_map(|(from, to)| from..=to) {
            stage.restore(Stop::Record(RecordNumber(number))).expect("it is listed");
        }
    }
}

#[test]
fn a_pack_that_the_store_does_not_give_stops_no_start_and_no_list() {
    let (stage, database, mut sidecar) = begun(packs());
    live(&stage, &database, &mut sidecar, 30).expect("a quiet world");
    drop(sidecar);
    stage.objects.withhold(|name| name.starts_with(names::PACKS));
    let found = look(&stage);
    assert!(!found.withheld.is_empty() && !found.is_newest_restorable(), "{found:?}");
    agrees(&stage, &found);
    // No more packs, which were withheld as well.
    let mut again = stage.open(&database, calm()).expect("the same database");
    let lost = again.0.world().lost().expect("it is told");
    assert!(lost.contains("out of reach") && lost.contains("archive"), "{lost}");
    stage.work(&mut again, Duration::from_secs(1)).expect("it ships");
    database.borrow_mut().commit(true);
    while !again.0.is_restorable() {
        stage.work(&mut again, SECOND).expect("it ships");
    }
    stage.restore(Stop::Newest).expect("from the new snapshot");
    stage.objects.withhold(|_| false);
    agrees(&stage, &look(&stage));
}

#[test]
fn a_pack_that_the_newest_snapshot_builds_on_and_the_store_refuses_costs_one_with_all_pages_and_no_other()
 {
    let settings = || Settings { keep: SECOND, ..packs() };
    let (stage, database, sidecar) =
        broken_off(Settings { sweep_every: SWEEP * 100, ..settings() });
    drop(sidecar);
    let snapshots = look(&stage).snapshots;
    assert!(snapshots.last().is_some_and(|newest| !newest.is_whole));
    let first = snapshots[0].record;
    let withheld = |name: &str| names::parse_pack(name).is_some_and(|(first, _)| first.0 < 16);
    stage.objects.withhold(withheld);
    let has =
        |name: &str| names::parse_pack(name).is_some_and(|pack| pack.0 <= first && first <= pack.1);
    assert!(stage.objects.names().iter().any(|name| has(name) && withheld(name)), "{first}");
    let parts = || stage.objects.names_with(names::PARTS);
    let before = parts();
    let mut again = stage.open(&database, settings()).expect("the same database");
    again.0.world().lost().expect("it is told");
    while !again.0.is_restorable() {
        live(&stage, &database, &mut again, 1).expect("a quiet world");
    }
    assert!(look(&stage).snapshots.last().is_some_and(|newest| newest.is_whole));
    stage.restore(Stop::Newest).expect("from the new snapshot");
    stage.work(&mut again, SWEEP * 4).expect("it goes on");
    let after = parts();
    assert!(
        !before.iter().all(|name| after.contains(name)),
        "a refused pack below all holds nothing up"
    );
    stage.restore(Stop::Newest).expect("nothing is lost");
    assert_eq!(stage.oracle.violation(), None);
}

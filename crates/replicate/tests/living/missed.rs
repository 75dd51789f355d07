//! What a follower misses, and what it cannot look at.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use plait_replicate::ids::RecordNumber;
use plait_replicate::names;

use crate::following::{
    LOCK, PATIENCE, agrees, begun, beside, follower, is_told, is_told_nothing, mark, nap, replica,
    says,
};
use crate::model::rows_of;
use crate::processes::{Process, open};
use crate::stage::Stage;

/// A place without a sidecar, and a replica whose follower died when it had announced a commit.
#[cfg(feature = "crash-points")]
fn announced() -> Stage {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    // Rows are seen before the mark says that the copy is taken; a follower that died between takes another copy.
    let begun = Instant::now();
    while mark(&stage).seeding.is_some() {
        assert!(begun.elapsed() < PATIENCE, "the copy is not taken");
        nap(5);
    }
    first.kill();
    stage.execute("INSERT INTO t VALUES(5, 'announced')");
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    let dies = Process::follower(&stage.url, &replica(&stage), Some("follower.announced"));
    assert!(!dies.ended().success());
    assert!(mark(&stage).until.is_some());
    stage
}

// holds TRAIL-2
#[cfg(feature = "crash-points")]
#[test]
fn a_record_that_was_announced_and_is_gone_is_missed_aloud() {
    let stage = announced();
    let number = mark(&stage).record.next();
    // As where the place is put back to an earlier state of itself.
    let (chain, away) = (stage.url.join("chain/000000000000"), stage.folder.path().join("away"));
    std::fs::create_dir(&away).expect("a folder");
    let moves = |from: &std::path::Path, to: &std::path::Path| {
        for entry in std::fs::read_dir(from).expect("a folder").flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().parse::<u64>().is_ok_and(|found| found >= number.0) {
                std::fs::rename(from.join(&name), to.join(&name)).expect("it moves");
            }
        }
    };
    moves(&chain, &away);
    let second = follower(&stage);
    is_told(&stage, &format!("record {number} "));
    is_told(&stage, "is not there any more, nor is a later one");
    moves(&away, &chain);
    agrees(&stage);
    is_told_nothing(&stage);
    assert_eq!(second.terminated(), 0);
}

#[test]
fn a_place_that_is_behind_its_replica_is_said_to_be_put_back() {
    let (stage, sidecar) = begun();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    let (earlier, later) = (copied(&stage, "earlier"), stage.folder.path().join("later"));
    let sidecar = stage.sidecar(&[]);
    stage.execute("INSERT INTO t VALUES(3, 'behind the copy')");
    stage.agrees();
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!((sidecar.terminated(), first.terminated()), (0, 0));
    std::fs::rename(&stage.url, &later).expect("it goes");
    std::fs::rename(&earlier, &stage.url).expect("it comes back");
    let second = follower(&stage);
    is_told(&stage, "the place was put back to an earlier state");
    assert_eq!(second.terminated(), 0);
    // And one that is empty, as below a disk that is not mounted, is told apart from one that never was.
    std::fs::rename(&stage.url, &earlier).expect("it goes");
    std::fs::create_dir(&stage.url).expect("a folder");
    let third = follower(&stage);
    is_told(&stage, "no replica is at the place any more");
    std::fs::remove_dir(&stage.url).expect("it is empty");
    is_told(&stage, "there is no folder ");
    std::fs::rename(&later, &stage.url).expect("it comes back");
    agrees(&stage);
    is_told_nothing(&stage);
    assert_eq!(third.terminated(), 0);
}

// holds TRAIL-3
#[test]
fn a_replica_goes_on_by_itself_when_a_place_that_was_put_back_has_passed_it() {
    let (stage, sidecar) = begun();
    // The session stays, and knows what was shipped.
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    let (earlier, later) = (copied(&stage, "earlier"), stage.folder.path().join("later"));
    let commit = |id: i64| {
        stage.execute(&format!("INSERT INTO t VALUES({id}, 'a record')"));
        stage.agrees()
    };
    let sidecar = stage.sidecar(&[]);
    for id in 100..112 {
        commit(id);
    }
    let follows = follower(&stage);
    agrees(&stage);
    assert_eq!((sidecar.terminated(), follows.terminated()), (0, 0));
    let has = mark(&stage).record;
    std::fs::rename(&stage.url, &later).expect("it goes");
    std::fs::rename(&earlier, &stage.url).expect("it comes back");
    let sidecar = stage.sidecar(&[]);
    let newest = commit(200).record;
    assert!(newest.next() < has, "{newest}: it is far behind {has}");
    let follows = follower(&stage);
    is_told(&stage, &format!("the place ends with record {newest}, "));
    is_told(&stage, &format!("when what is shipped there has come behind record {has}"));
    let newest = commit(201).record;
    is_told(&stage, &format!("the place ends with record {newest}, "));
    let taken = (202..).map(commit).find(|restored| restored.record > has).expect("it passes");
    assert!(taken.snapshot < has, "no other snapshot was taken");
    agrees(&stage);
    is_told_nothing(&stage);
    commit(300);
    agrees(&stage);
    assert_eq!((sidecar.terminated(), follows.terminated()), (0, 0));
}

/// A copy of a place, as it is now.
fn copied(stage: &Stage, name: &str) -> std::path::PathBuf {
    let copy = stage.folder.path().join(name);
    let status = std::process::Command::new("cp").arg("-a").arg(&stage.url).arg(&copy).status();
    assert!(status.is_ok_and(|status| status.success()));
    copy
}

// holds TRAIL-3
#[cfg(feature = "crash-points")]
#[test]
fn a_copy_that_was_seen_and_not_noted_is_not_taken_back_by_a_place_that_was_put_back() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    stage.agrees();
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    let snapshot = || {
        let at = stage.agrees().record;
        await_snapshot(&stage, at);
    };
    stage.execute("CREATE TABLE another(a)");
    snapshot();
    let earlier = copied(&stage, "earlier");
    stage.execute("CREATE TABLE more(a)");
    snapshot();
    stage.execute("INSERT INTO t VALUES(5, 'seen')");
    let newest = stage.agrees().record;
    let rows = stage.rows();
    assert_eq!(sidecar.terminated(), 0);
    let dies = Process::follower(&stage.url, &replica(&stage), Some("exclusive.visible"));
    assert!(!dies.ended().success());
    assert_eq!(rows_of(&replica(&stage)), rows);
    let had = mark(&stage);
    assert!(had.record < newest && had.seeding >= Some(newest), "{had:?}");
    let later = stage.folder.path().join("later");
    std::fs::rename(&stage.url, &later).expect("it goes");
    std::fs::rename(&earlier, &stage.url).expect("it comes back");
    let second = follower(&stage);
    is_told(&stage, "the place was put back to an earlier state");
    nap(1000);
    assert_eq!(rows_of(&replica(&stage)), rows);
    std::fs::rename(&stage.url, &earlier).expect("it goes");
    std::fs::rename(&later, &stage.url).expect("it comes back");
    agrees(&stage);
    await_mark(&stage, newest);
    is_told_nothing(&stage);
    assert_eq!(second.terminated(), 0);
}

/// A replica that waits for a snapshot behind a change of the schema, of which the sidecar is gone.
fn waits_for_a_snapshot() -> (Stage, Process) {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    stage.agrees();
    agrees(&stage);
    let begun = Instant::now();
    while mark(&stage).seeding.is_some() || mark(&stage).record < stage.agrees().record {
        assert!(begun.elapsed() < PATIENCE, "it is applied");
        nap(50);
    }
    assert_eq!(first.terminated(), 0);
    let has = mark(&stage).record;
    // No part can be put: the snapshot is begun, and not shipped.
    let parts = stage.url.join("part");
    std::fs::rename(&parts, stage.folder.path().join("parts")).expect("it goes");
    std::fs::write(&parts, b"").expect("a file in its place");
    stage.execute("CREATE TABLE another(a)");
    await_record(&stage, has.next());
    sidecar.kill();
    std::fs::remove_file(&parts).expect("it is there");
    std::fs::rename(stage.folder.path().join("parts"), &parts).expect("it comes back");
    let follows = follower(&stage);
    is_told(&stage, "and a snapshot is waited for");
    (stage, follows)
}

#[test]
fn an_outage_that_is_over_is_told_of_no_more_while_a_snapshot_is_waited_for() {
    let (stage, follows) = waits_for_a_snapshot();
    let away = stage.folder.path().join("away");
    std::fs::rename(&stage.url, &away).expect("it goes");
    is_told(&stage, "there is no folder ");
    std::fs::rename(&away, &stage.url).expect("it comes back");
    is_told(&stage, "and a snapshot is waited for");
    // The next sidecar takes it.
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    agrees(&stage);
    is_told_nothing(&stage);
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_record_that_was_forgotten_and_comes_back_is_told_of_no_more() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!((sidecar.terminated(), first.terminated()), (0, 0));
    let earlier = copied(&stage, "earlier");
    let sidecar = stage.sidecar(&[]);
    stage.execute("INSERT INTO t VALUES(3, 'the one')");
    stage.agrees();
    let second = follower(&stage);
    agrees(&stage);
    assert_eq!((sidecar.terminated(), second.terminated()), (0, 0));
    let later = stage.folder.path().join("later");
    std::fs::rename(&stage.url, &later).expect("it goes");
    std::fs::rename(&earlier, &stage.url).expect("it comes back");
    let sidecar = stage.sidecar(&[]);
    let has = mark(&stage).record;
    for id in 100.. {
        stage.execute(&format!("INSERT INTO t VALUES({id}, 'another')"));
        if stage.agrees().record > has.next() {
            break;
        }
    }
    sidecar.kill();
    let third = follower(&stage);
    is_told(&stage, "the place has another record ");
    std::fs::rename(&stage.url, stage.folder.path().join("another")).expect("it goes");
    std::fs::rename(&later, &stage.url).expect("it comes back");
    is_told_nothing(&stage);
    assert_eq!(third.terminated(), 0);
}

// holds TRAIL-2
#[cfg(feature = "crash-points")]
#[test]
fn a_place_of_another_database_is_refused_also_by_who_has_announced_a_commit() {
    let stage = announced();
    std::fs::rename(&stage.url, stage.folder.path().join("moved")).expect("it goes");
    let other = Stage::new();
    let sidecar = Process::sidecar(&stage.url, &other.database, &[], None);
    let other = Stage { url: stage.url.clone(), ..other };
    other.agrees();
    assert!(mark(&stage).until.is_some());
    let begun = Instant::now();
    assert_eq!(follower(&stage).ended().code(), Some(2));
    assert!(begun.elapsed().as_secs() < 20, "before the other one has a record of the next number");
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_follower_says_that_it_follows_when_it_does_and_tells_of_each_outage() {
    let (stage, sidecar) = begun();
    let before = follower(&stage);
    agrees(&stage);
    assert_eq!(before.terminated(), 0);
    let away = stage.folder.path().join("away");
    let goes = || std::fs::rename(&stage.url, &away).expect("it goes");
    let comes = || std::fs::rename(&away, &stage.url).expect("it comes back");
    goes();
    let said = stage.folder.path().join("said");
    let log = std::fs::File::create(&said).expect("a file");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
    command.arg("follow").arg(&stage.url).arg(replica(&stage)).args(["--interval", "20ms"]);
    let errors = log.try_clone().expect("the same file");
    let child = command.stdout(log).stderr(errors).spawn().expect("it runs");
    let follows = Process::of(child);
    let times = |what: &str| {
        let text = std::fs::read_to_string(&said).expect("it is read");
        (text.matches(what).count(), text)
    };
    let says = |what: &str, count| {
        let begun = Instant::now();
        while times(what).0 < count {
            assert!(begun.elapsed() < PATIENCE, "{what}: {}", times(what).1);
            nap(20);
        }
    };
    const MISSES: &str = "there is no folder ";
    says(MISSES, 1);
    // Some tries.
    nap(2000);
    assert_eq!(times("follows, and is at record").0, 0, "{}", times("").1);
    assert_eq!(times(MISSES).0, 1, "once: {}", times("").1);
    comes();
    says("follows, and is at record", 1);
    // The same again, without a record in between.
    goes();
    says(MISSES, 2);
    comes();
    agrees(&stage);
    is_told_nothing(&stage);
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

// holds TRAIL-4
#[test]
fn a_lock_that_cannot_be_looked_at_is_not_taken_for_removed() {
    let (stage, sidecar) = begun();
    let follows = follower(&stage);
    stage.agrees();
    agrees(&stage);
    let (lock, aside) = (beside(&stage, LOCK), beside(&stage, ".aside"));
    std::fs::hard_link(&lock, &aside).expect("another name");
    // A link to itself cannot be followed, as a folder on a disk with an error cannot be searched.
    let link = beside(&stage, ".link");
    std::os::unix::fs::symlink(&lock, &link).expect("a link");
    std::fs::rename(&link, &lock).expect("it has the lock's name");
    nap(300);
    let before = rows_of(&replica(&stage));
    stage.execute("INSERT INTO t VALUES(2, 'meanwhile')");
    stage.agrees();
    // More failures than a database may have before a copy is made.
    nap(4500);
    assert_eq!(rows_of(&replica(&stage)), before, "nothing is committed");
    std::fs::rename(&aside, &lock).expect("it comes back");
    agrees(&stage);
    is_told_nothing(&stage);
    assert_eq!(follows.terminated(), 0, "it was there all the time");
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_newest_record_that_is_damaged_keeps_no_follower_that_has_it_from_what_comes_behind_it() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    let begun = Instant::now();
    let newest = loop {
        let newest = stage.restored().expect("it is restored").1.record;
        if mark(&stage).record == newest {
            break newest;
        }
        assert!(begun.elapsed() < PATIENCE, "it is applied");
        nap(50);
    };
    assert_eq!(first.terminated(), 0);
    let object = stage.url.join(plait_replicate::names::record(newest));
    let mut bytes = std::fs::read(&object).expect("it is no pack's yet");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&object, bytes).expect("it is damaged");
    let second = follower(&stage);
    // It has looked at its place.
    nap(1500);
    stage.execute("INSERT INTO t VALUES(5, 'behind it')");
    agrees(&stage);
    assert!(begun.elapsed() < PATIENCE / 3, "without a wait for a snapshot");
    is_told_nothing(&stage);
    assert_eq!(second.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

/// Changes the last byte of an object.
fn damage(object: &Path) {
    let mut bytes = std::fs::read(object).expect("it is there, and no pack's yet");
    *bytes.last_mut().expect("it has some") ^= 1;
    std::fs::write(object, bytes).expect("it is damaged");
}

fn await_record(stage: &Stage, number: RecordNumber) {
    let begun = Instant::now();
    while !stage.url.join(names::record(number)).exists() {
        assert!(begun.elapsed() < PATIENCE, "it is shipped");
        nap(50);
    }
}

/// Waits for a snapshot that leads to a record.
fn await_snapshot(stage: &Stage, at: RecordNumber) {
    let begun = Instant::now();
    while stage.agrees().snapshot < at {
        assert!(begun.elapsed() < PATIENCE, "a snapshot leads there");
        nap(50);
    }
}

/// Waits until the replica is at a record.
fn await_mark(stage: &Stage, number: RecordNumber) {
    let begun = Instant::now();
    while mark(stage).record < number {
        assert!(begun.elapsed() < PATIENCE, "{} of {number}", mark(stage).record);
        nap(50);
    }
}

/// Copies that are begun in a time, in the folder of a replica.
pub fn copies_begun_in(stage: &Stage, time: Duration) -> usize {
    let begun = Instant::now();
    let mut names = BTreeSet::new();
    while begun.elapsed() < time {
        let entries = std::fs::read_dir(stage.folder.path()).expect("a folder").flatten();
        let entries = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.extend(entries.filter_map(|name| {
            let at = name.find(".plait-replica-")?;
            // With its number, and without the end of those beside it.
            name.get(at..at + 23).map(str::to_owned)
        }));
        nap(1);
    }
    names.len()
}

#[test]
fn a_new_follower_shows_what_is_before_a_damaged_newest_record() {
    let (stage, sidecar) = begun();
    stage.agrees();
    stage.execute("INSERT INTO t VALUES(3, 'before it')");
    let before = stage.agrees().record;
    let rows = stage.rows().len();
    stage.execute("INSERT INTO t VALUES(4, 'in it')");
    let newest = stage.agrees().record;
    // The machine is lost.
    sidecar.kill();
    damage(&stage.url.join(names::record(newest)));
    let follows = follower(&stage);
    is_told(&stage, "is damaged");
    await_mark(&stage, before);
    let here = open(&replica(&stage));
    assert_eq!(here.integer("SELECT count(*) FROM t"), Ok(rows as i64));
    drop(here);
    // It is mended, and nobody ships any more.
    damage(&stage.url.join(names::record(newest)));
    await_mark(&stage, newest);
    agrees(&stage);
    assert_eq!(follows.terminated(), 0);
}

#[cfg(feature = "crash-points")]
#[test]
fn a_new_follower_that_dies_behind_what_is_before_damage_has_it_again() {
    let (stage, sidecar) = begun();
    stage.execute("INSERT INTO t VALUES(3, 'before it')");
    let before = stage.agrees().record;
    stage.execute("INSERT INTO t VALUES(4, 'in it')");
    let newest = stage.agrees().record;
    sidecar.kill();
    damage(&stage.url.join(names::record(newest)));
    let dies = Process::follower(&stage.url, &replica(&stage), Some("replica.named"));
    assert!(!dies.ended().success());
    assert!(mark(&stage).record < before && mark(&stage).seeding == Some(before));
    let follows = follower(&stage);
    await_mark(&stage, before);
    is_told(&stage, "is damaged");
    assert_eq!(follows.terminated(), 0);
}

#[test]
fn a_follower_that_needs_a_copy_has_what_is_before_damage_and_copies_no_more() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    stage.execute("CREATE TABLE another(a)");
    let at = stage.agrees().record;
    await_snapshot(&stage, at);
    stage.execute("INSERT INTO t VALUES(3, 'before it')");
    let before = stage.agrees().record;
    let rows = stage.rows().len();
    stage.execute("INSERT INTO t VALUES(4, 'in it')");
    stage.agrees();
    damage(&stage.url.join(names::record(before.next())));
    stage.execute("INSERT INTO t VALUES(5, 'behind it')");
    await_record(&stage, before.next().next());
    let follows = follower(&stage);
    await_mark(&stage, before);
    is_told(&stage, "is damaged");
    let here = open(&replica(&stage));
    assert_eq!(here.integer("SELECT count(*) FROM t"), Ok(rows as i64));
    drop(here);
    assert_eq!(copies_begun_in(&stage, Duration::from_secs(12)), 0);
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_copy_that_a_damaged_part_is_in_the_way_of_is_begun_again_when_that_is_another_one() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let parts = std::fs::read_dir(stage.url.join("part")).expect("a folder").flatten();
    let parts: Vec<_> = parts.map(|part| part.path()).collect();
    parts.iter().for_each(|part| damage(part));
    let follows = follower(&stage);
    is_told(&stage, ", a part of the pages in record ");
    assert_eq!(copies_begun_in(&stage, Duration::from_secs(12)), 0);
    parts.iter().for_each(|part| damage(part));
    agrees(&stage);
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_new_follower_shows_what_is_before_a_damaged_record() {
    let (stage, sidecar) = begun();
    stage.agrees();
    stage.execute("INSERT INTO t VALUES(3, 'before it')");
    let before = stage.agrees().record;
    stage.execute("INSERT INTO t VALUES(4, 'in it')");
    stage.agrees();
    let rows = stage.rows().len();
    damage(&stage.url.join(names::record(before.next())));
    // Not the newest: the end of the chain can be read.
    stage.execute("INSERT INTO t VALUES(5, 'behind it')");
    await_record(&stage, before.next().next());
    let follows = follower(&stage);
    is_told(&stage, "is damaged");
    assert_eq!(mark(&stage).record, before);
    let here = open(&replica(&stage));
    assert_eq!(here.integer("SELECT count(*) FROM t"), Ok(rows as i64 - 1));
    drop(here);
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_name_that_leaves_none_for_the_files_beside_it_is_refused() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let long = stage.folder.path().join("r".repeat(240));
    let said = says(&[Path::new("follow"), &stage.url, &long], 2);
    assert!(said.contains("its name is too long: it may have 217 bytes"), "{said}");
    let said = says(&[Path::new("restore"), &stage.url, Path::new("-o"), &long], 1);
    assert!(said.contains("its name is too long: it may have 224 bytes"), "{said}");
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_follower_goes_on_over_damage_behind_what_it_can_have() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    let had = mark(&stage).record;
    stage.execute("INSERT INTO t VALUES(3, 'before it')");
    let before = stage.agrees().record;
    assert!(before > had, "{had} {before}");
    stage.execute("INSERT INTO t VALUES(4, 'in it')");
    stage.agrees();
    damage(&stage.url.join(names::record(before.next())));
    stage.execute("CREATE TABLE another(a)");
    let begun = Instant::now();
    while !stage.restored().is_ok_and(|(_, restored)| restored.snapshot > before.next()) {
        assert!(begun.elapsed() < PATIENCE, "a snapshot leads there");
        nap(100);
    }
    let follows = follower(&stage);
    agrees(&stage);
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

// holds TRAIL-3
#[test]
fn a_copy_that_could_not_be_put_does_not_take_the_place_of_what_came_since() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    nap(500);
    assert_eq!(first.terminated(), 0);
    stage.execute("INSERT INTO t VALUES(3, 'in it')");
    let bad = stage.agrees().record;
    let object = stage.url.join(names::record(bad));
    damage(&object);
    let follows = follower(&stage);
    is_told(&stage, "is damaged");
    // Nothing can be noted, as on a disk that the copy fills.
    let new = beside(&stage, "-plait-follows.new");
    std::fs::remove_file(&new).expect("room for the next one");
    std::fs::create_dir(&new).expect("a folder in the way of the mark");
    for _ in 0..40 {
        stage.execute("INSERT OR REPLACE INTO t VALUES(5, hex(randomblob(400000)))");
    }
    let begun = Instant::now();
    while !stage.restored().is_ok_and(|(_, restored)| restored.snapshot > bad) {
        assert!(begun.elapsed() < PATIENCE, "a snapshot leads there");
        nap(200);
    }
    let is_copied = || {
        let entries = std::fs::read_dir(stage.folder.path()).expect("a folder").flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.any(|name| name.starts_with("elsewhere.db.copied"))
    };
    let mut seen = 0;
    while seen < 30 {
        assert!(begun.elapsed() < PATIENCE * 2, "there is no copy");
        seen = if is_copied() { seen + 1 } else { 0 };
        nap(100);
    }
    damage(&object);
    std::fs::remove_dir(&new).expect("it is away");
    nap(1500);
    stage.execute("INSERT INTO t VALUES(100, 'later')");
    agrees(&stage);
    nap(500);
    let reached = mark(&stage).record;
    stage.execute("CREATE TABLE another(a)");
    let here = open(&replica(&stage));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(8) {
        assert!(mark(&stage).record >= reached, "it went back");
        assert_ne!(here.integer("SELECT count(*) FROM t WHERE id = 100"), Ok(0), "it went back");
        nap(2);
    }
    drop(here);
    agrees(&stage);
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_new_follower_needs_no_open_that_is_not_to_be_had() {
    let (stage, sidecar) = begun();
    stage.agrees();
    stage.execute("CREATE TABLE another(a)");
    let at = stage.agrees().record;
    await_snapshot(&stage, at);
    assert_eq!(sidecar.terminated(), 0);
    std::fs::remove_file(stage.url.join(names::record(RecordNumber::FIRST))).expect("its OPEN");
    let follows = follower(&stage);
    agrees(&stage);
    assert_eq!(follows.terminated(), 0);
}

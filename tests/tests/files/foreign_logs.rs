//! A log beside a database that it does not belong to, or belonged to once: never replayed, never forgotten in silence.

use plait_tests::actor::Actor;
use plait_tests::crash::audit::{Acknowledged, Demand, audit};
use plait_tests::crash::image::{Image, dead_database, live_and_die};
use plait_tests::jobs::ledger::schema;
use plait_tests::place::Place;
use plait_tests::sqlite::{Connection, NOTADB, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::path::Path;

fn open(subject: &Subject, database: &Path) -> Result<Connection, SqlError> {
    let connection = subject.open(database)?;
    connection.integer("SELECT count(*) FROM entry")?;
    Ok(connection)
}

/// Whether every page in which `after` differs from `before` stands in the WAL as it is now.
fn is_checkpoint(before: &[u8], wal: &[u8], after: &[u8]) -> bool {
    const HEADER: usize = 32;
    const FRAME_HEADER: usize = 24;
    let word = |at: usize| {
        wal.get(at..at + 4)
            .map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")) as usize)
    };
    let Some(page_size) = word(8) else { return false };
    let frames: Vec<(usize, &[u8])> = (HEADER..wal.len())
        .step_by(FRAME_HEADER + page_size)
        .filter_map(|at| {
            let page = wal.get(at + FRAME_HEADER..at + FRAME_HEADER + page_size)?;
            Some((word(at)?, page))
        })
        .collect();
    after.chunks(page_size).enumerate().all(|(index, page)| {
        before.chunks(page_size).nth(index) == Some(page) || frames.contains(&(index + 1, page))
    })
}

/// The refusal of a database, whose text has all these words; nothing at its place has changed by it.
#[track_caller]
fn refused(subject: &Subject, database: &Path, words: &[&str]) {
    let before = Image::of(database);
    let error = match open(subject, database) {
        Ok(connection) => {
            let entries = connection.integer("SELECT count(*) FROM entry");
            panic!("it opens, with {entries:?} entries")
        }
        Err(error) => error,
    };
    for word in words {
        assert!(error.message.contains(word), "{word:?} is missing in: {error}");
    }
    for file in ["", "-plait"] {
        let (mut before, mut after) = (before.clone(), Image::of(database));
        assert_eq!(before.has(file), after.has(file), "{file} came or went");
        let is_same = !before.has(file) || before.bytes(file) == after.bytes(file);
        // Who was killed before a checkpoint left commits in the WAL; closing brings them into the file, as in SQLite.
        let mut is_checkpointed = || {
            let wal = if before.has("-wal") { before.bytes("-wal").clone() } else { Vec::new() };
            is_checkpoint(before.bytes(""), &wal, after.bytes(""))
        };
        assert!(is_same || (file.is_empty() && is_checkpointed()), "{file} has changed");
    }
}

/// The database opens, with this many entries, and the log beside it has another name, with what it held.
#[track_caller]
fn put_aside(subject: &Subject, fixture: &Fixture, entries: i64) {
    let log = Image::of(&fixture.database()).bytes("-plait").clone();
    let connection = open(subject, &fixture.database()).expect("a file at rest opens");
    assert_eq!(connection.integer("SELECT count(*) FROM entry"), Ok(entries));
    connection.execute("BEGIN CONCURRENT; UPDATE clock SET tick=tick; COMMIT").expect("it works");
    connection.close().expect("it closes");
    let aside = fixture.side_file("-plait-given-up-1");
    assert!(std::fs::read(&aside).expect("it is kept") == log);
    std::fs::remove_file(aside).expect("for the next");
}

#[track_caller]
fn whole(subject: &Subject, database: &Path, acknowledged: &Acknowledged) {
    let connection = open(subject, database).unwrap_or_else(|error| panic!("{error}"));
    audit(&connection, acknowledged, Demand::Everything)
        .unwrap_or_else(|error| panic!("{error:#}"));
    connection.execute("UPDATE clock SET tick=tick").expect("it goes on");
    connection.close().expect("it closes");
    let stock = Subject::stock().open(database).expect("stock opens it");
    audit(&stock, acknowledged, Demand::Everything).unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn the_files_of_a_dead_database_may_be_copied_together() {
    let Some(subject) = real_plait("copies") else { return };
    let (fixture, acknowledged) = dead_database(&subject, 30, 12);
    let image = Image::of(&fixture.database());
    for (name, image) in [
        ("with-memory.db", image.clone()),
        ("without-memory.db", image.clone().without("-plait-shm").without("-shm")),
    ] {
        let copy = fixture.path(name);
        image.put(&copy);
        whole(&subject, &copy, &acknowledged);
    }
    whole(&subject, &fixture.database(), &acknowledged);
}

#[test]
fn a_live_base_copied_alone_is_refused_and_the_error_names_the_way_out() {
    let Some(subject) = real_plait("a missing log") else { return };
    let (fixture, acknowledged) = dead_database(&subject, 30, 12);
    let copy = fixture.path("copy.db");
    Image::of(&fixture.database())
        .without("-plait")
        .without("-plait-shm")
        .without("-shm")
        .put(&copy);
    refused(&subject, &copy, &["copy.db-plait", "missing", "plait recover", "--accept-base"]);
    let mut stock = Actor::idle(Place::Processes, "stock", &Subject::stock());
    stock.open(&copy).expect("the file itself opens");
    stock.fails("SELECT count(*) FROM entry", NOTADB);
    whole(&subject, &fixture.database(), &acknowledged);
}

#[test]
fn a_missing_log_that_comes_back_is_replayed() {
    let Some(subject) = real_plait("a missing log") else { return };
    let (fixture, acknowledged) = dead_database(&subject, 30, 0);
    let aside = fixture.path("aside");
    std::fs::rename(fixture.side_file("-plait"), &aside).expect("the log can be moved");
    std::fs::remove_file(fixture.side_file("-plait-shm")).expect("shared memory can be removed");
    refused(&subject, &fixture.database(), &["missing", "--accept-base"]);
    std::fs::rename(&aside, fixture.side_file("-plait")).expect("the log can be moved back");
    whole(&subject, &fixture.database(), &acknowledged);
}

#[test]
fn a_database_renamed_without_its_log_is_refused_and_renamed_with_it_is_whole() {
    let Some(subject) = real_plait("renaming") else { return };
    let (fixture, acknowledged) = dead_database(&subject, 30, 12);
    let renamed = fixture.path("renamed.db");
    let rename = |suffix: &str| {
        let to = fixture.path(&format!("renamed.db{suffix}"));
        if fixture.side_file(suffix).exists() {
            std::fs::rename(fixture.side_file(suffix), to).expect("it can be renamed");
        }
    };
    rename("");
    rename("-wal");
    refused(&subject, &renamed, &["renamed.db-plait", "missing"]);
    rename("-plait");
    rename("-plait-shm");
    whole(&subject, &renamed, &acknowledged);
}

// holds FILE-3
#[test]
fn another_databases_log_is_refused() {
    let Some(subject) = real_plait("a foreign log") else { return };
    let (one, acknowledged) = dead_database(&subject, 20, 0);
    let (other, _) = dead_database(&subject, 25, 0);
    let (right, foreign) = (Image::of(&one.database()), Image::of(&other.database()));
    let bare = right.clone().without("-plait-shm").without("-shm");
    bare.clone().with("-plait", &foreign).put(&one.database());
    refused(&subject, &one.database(), &["-plait", "another database"]);
    // Beside a database at rest as well.
    let rested = Fixture::new(subject.clone(), &schema(true));
    let at_rest = Image::of(&rested.database());
    at_rest.with("-plait", &foreign).put(&rested.database());
    put_aside(&subject, &rested, 0);
    bare.put(&one.database());
    whole(&subject, &one.database(), &acknowledged);
}

#[test]
fn an_older_base_beside_a_newer_log_is_used_without_it() {
    let Some(subject) = real_plait("a restored base") else { return };
    let fixture = Fixture::new(subject.clone(), &schema(true));
    let rested = Image::of(&fixture.database());
    // Killed far from a merge, which leaves the log without commits.
    let mut acknowledged = live_and_die(&fixture, 20, 15);
    let newest = Image::of(&fixture.database());
    // The backup was taken at rest: its mark tells that the log is not its own.
    rested.with("-plait", &newest).put(&fixture.database());
    put_aside(&subject, &fixture, 0);
    newest.without("-plait-shm").without("-shm").put(&fixture.database());
    whole(&subject, &fixture.database(), &acknowledged);
    // The same after a merge of a later life.
    let rested = Image::of(&fixture.database());
    let entries = open(&subject, &fixture.database())
        .and_then(|db| db.integer("SELECT count(*) FROM entry"))
        .expect("a count");
    for (worker, seq) in live_and_die(&fixture, 40, 35).0 {
        acknowledged.0.insert(worker, seq);
    }
    let newest = Image::of(&fixture.database());
    rested.with("-plait", &newest).put(&fixture.database());
    put_aside(&subject, &fixture, entries);
    newest.without("-plait-shm").without("-shm").put(&fixture.database());
    whole(&subject, &fixture.database(), &acknowledged);
}

#[test]
fn a_live_base_restored_in_place_while_shared_memory_survives_is_refused() {
    let Some(subject) = real_plait("a restored base") else { return };
    let fixture = Fixture::new(subject.clone(), &schema(true));
    let rested = Image::of(&fixture.database());
    let first = live_and_die(&fixture, 20, 6);
    let earlier = Image::of(&fixture.database());
    let mut acknowledged = live_and_die(&fixture, first.sum() + 20, 6);
    for (worker, seq) in first.0 {
        let last = acknowledged.0.entry(worker).or_default();
        *last = seq.max(*last);
    }
    let newest = Image::of(&fixture.database());
    let live = |base: &Image| base.clone().with("-plait", &newest).with("-plait-shm", &newest);
    // A copy of the live file from earlier in the same session, then a backup from before it, which is one at rest.
    live(&earlier).put(&fixture.database());
    refused(&subject, &fixture.database(), &["older", "--accept-base"]);
    live(&rested).put(&fixture.database());
    put_aside(&subject, &fixture, 0);
    newest.put(&fixture.database());
    whole(&subject, &fixture.database(), &acknowledged);
}

#[test]
fn a_database_replaced_by_another_file_does_not_swallow_the_log() {
    let Some(subject) = real_plait("a replaced base") else { return };
    let (fixture, acknowledged) = dead_database(&subject, 20, 6);
    let newest = Image::of(&fixture.database());
    let plain = fixture.path("plain.db");
    let stock = Subject::stock().library().open(&plain).expect("stock makes a database");
    stock.execute(&schema(true)).expect("the schema");
    stock.close().expect("it closes");
    let replacement = Image::of(&plain);
    // Moved over it: another inode, and an ordinary database, to which our files beside it mean nothing.
    std::fs::remove_file(fixture.database()).expect("it can be removed");
    replacement.with("-plait", &newest).with("-plait-shm", &newest).put(&fixture.database());
    let connection = open(&subject, &fixture.database()).expect("a plain database opens");
    assert_eq!(connection.integer("SELECT count(*) FROM entry"), Ok(0));
    assert_eq!(Image::of(&fixture.database()).bytes("-plait"), newest.clone().bytes("-plait"));
    subject.convert(&connection).expect("the log is put aside");
    connection.execute("BEGIN CONCURRENT; UPDATE clock SET tick=tick; COMMIT").expect("it works");
    drop(connection);
    let kept = std::fs::read(fixture.side_file("-plait-given-up-1")).expect("it is kept");
    assert_eq!(&kept, newest.clone().bytes("-plait"));
    std::fs::remove_file(fixture.database()).expect("it can be removed");
    newest.put(&fixture.database());
    whole(&subject, &fixture.database(), &acknowledged);
}

#[test]
fn a_database_that_stock_vacuumed_at_rest_does_not_take_an_old_log() {
    let Some(subject) = real_plait("a vacuumed base") else { return };
    let (fixture, acknowledged) = dead_database(&subject, 20, 6);
    let old_log = Image::of(&fixture.database());
    whole(&subject, &fixture.database(), &acknowledged);
    let stock = Subject::stock().open(&fixture.database()).expect("stock opens it at rest");
    stock.execute("VACUUM").expect("stock vacuums");
    stock.close().expect("it closes");
    Image::of(&fixture.database()).with("-plait", &old_log).put(&fixture.database());
    let connection = open(&subject, &fixture.database()).expect("a plain database opens");
    subject.convert(&connection).expect("the old log is put aside");
    audit(&connection, &acknowledged, Demand::Everything)
        .unwrap_or_else(|error| panic!("{error:#}"));
    connection.close().expect("it closes");
    assert!(fixture.side_file("-plait-given-up-1").exists(), "and kept");
    whole(&subject, &fixture.database(), &acknowledged);
}

#[test]
fn a_log_of_an_unknown_version_is_refused() {
    let Some(subject) = real_plait("another version") else { return };
    let (fixture, acknowledged) = dead_database(&subject, 20, 6);
    let image = Image::of(&fixture.database()).without("-plait-shm").without("-shm");
    // Whatever the layout: a change of any of the first bytes is a name or a version that nobody knows, or a damaged header.
    for at in 0..24 {
        let mut changed = image.clone();
        changed.bytes("-plait")[at] ^= 0x40;
        changed.put(&fixture.database());
        refused(&subject, &fixture.database(), &["-plait"]);
    }
    image.put(&fixture.database());
    whole(&subject, &fixture.database(), &acknowledged);
}

#[test]
fn shared_memory_of_an_unknown_version_is_not_used() {
    let Some(subject) = real_plait("another version") else { return };
    let (fixture, acknowledged) = dead_database(&subject, 20, 6);
    let image = Image::of(&fixture.database());
    for at in (0..64).step_by(4) {
        let mut changed = image.clone();
        changed.bytes("-plait-shm")[at] ^= 0x11;
        changed.put(&fixture.database());
        whole(&subject, &fixture.database(), &acknowledged);
        image.put(&fixture.database());
    }
}

#[test]
fn accepting_the_base_gives_up_the_log_and_nothing_else() {
    let Some(subject) = real_plait("plait recover") else { return };
    let Some(mut command) = subject.command() else { return };
    let (fixture, acknowledged) = dead_database(&subject, 30, 12);
    Image::of(&fixture.database())
        .without("-plait")
        .without("-plait-shm")
        .without("-shm")
        .put(&fixture.database());
    refused(&subject, &fixture.database(), &["plait recover"]);
    let output = command
        .args(["recover", "--accept-base", "--yes"])
        .arg(fixture.database())
        .output()
        .expect("plait runs");
    assert!(output.status.success(), "{output:?}");
    let connection = open(&subject, &fixture.database()).expect("it opens");
    audit(&connection, &acknowledged, Demand::Prefix).unwrap_or_else(|error| panic!("{error:#}"));
    assert!(connection.integer("SELECT count(*) FROM entry").expect("a count") >= 24);
    connection.execute("UPDATE clock SET tick=tick").expect("it goes on");
}

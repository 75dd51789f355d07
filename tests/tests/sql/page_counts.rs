//! Pragmas that programs say each time that they open, write or close: they merge nothing, run nowhere exclusively and keep nobody from writing,
//! and what they answer suits a limit.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::sqlite::Connection;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::time::{Duration, Instant};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, who, data); CREATE INDEX i ON t(who);
    INSERT INTO t VALUES(1, 1, zeroblob(20000)), (2, 2, 'x'); ANALYZE";
const OFTEN: [&str; 11] = [
    "PRAGMA page_count",
    "SELECT page_count*page_size FROM pragma_page_count, pragma_page_size",
    "PRAGMA freelist_count",
    "PRAGMA data_version",
    "PRAGMA user_version",
    "PRAGMA schema_version",
    "PRAGMA table_info(t)",
    "PRAGMA index_list(t)",
    "PRAGMA foreign_key_list(t)",
    "PRAGMA page_size",
    "PRAGMA journal_mode",
];
/// Where they are said: what comes before and behind.
const PLACES: [(&str, &str); 6] = [
    ("", ""),
    ("BEGIN", "COMMIT"),
    ("BEGIN; SELECT who FROM t WHERE id=1", "COMMIT"),
    ("BEGIN; SELECT who FROM t WHERE id=2", "UPDATE t SET who=who+1 WHERE id=2; COMMIT"),
    (
        "BEGIN IMMEDIATE; UPDATE t SET who=who+1 WHERE id=2",
        "UPDATE t SET who=who+1 WHERE id=2; COMMIT",
    ),
    ("BEGIN CONCURRENT; UPDATE t SET who=who+1 WHERE id=2", "COMMIT"),
];
const MIB: i64 = 1 << 20;

fn with_auto_vacuum(subject: Subject, mode: &str) -> Fixture {
    let fixture = Fixture::empty(subject);
    let connection = fixture.subject.open(&fixture.database()).expect("it opens");
    // Before the first table.
    connection.execute(&format!("PRAGMA auto_vacuum={mode}; {SCHEMA}")).expect("the schema");
    fixture.subject.convert(&connection).expect("the mode");
    fixture
}

fn work_on_pages(actor: &mut Actor) -> Vec<i64> {
    ["merges", "exclusive_commits", "base_generation"]
        .map(|name| actor.integer(&format!("SELECT value FROM plait_status WHERE name='{name}'")))
        .into()
}

in_threads_and_processes! {
    fn pragmas_that_programs_say_often_merge_nothing_and_are_in_nobodys_way(place) {
        let Some(subject) = real_plait("pragmas beside others") else { return };
        let fixture = Fixture::new(subject, SCHEMA);
        let start = |name| Actor::start(place, name, &fixture.subject, &fixture.database());
        let (mut asker, mut other) = (start("asker"), start("other"));
        for actor in [&mut asker, &mut other] {
            actor.ok("PRAGMA synchronous=NORMAL; UPDATE t SET who=who+1 WHERE id=2");
        }
        asker.busy_timeout(Duration::ZERO);
        let before = work_on_pages(&mut asker);
        for (begin, end) in PLACES {
            for pragma in OFTEN {
                other.ok("UPDATE t SET who=who+1 WHERE id=1");
                asker.ok(&format!("{begin}; {pragma}"));
                // A row that the asker has not read, where somebody may commit at all.
                if !begin.contains("IMMEDIATE") {
                    other.ok("INSERT INTO t(who) VALUES(1); DELETE FROM t WHERE id>2");
                }
                asker.ok(&format!("{pragma}; {end}"));
            }
        }
        // What optimize finds when there is nothing to do, as a connection closes.
        for close in ["PRAGMA optimize", "PRAGMA analysis_limit=400; PRAGMA optimize", "PRAGMA optimize=0x10002"] {
            other.ok("BEGIN IMMEDIATE; UPDATE t SET who=who+1 WHERE id=1");
            asker.ok("SELECT count(*) FROM t WHERE who=1");
            asker.ok(close);
            other.ok("COMMIT");
        }
        let after = work_on_pages(&mut asker);
        assert_eq!(after[1], before[1], "exclusive commits");
        // One may be due for what reading beside memory has cost, however slow the machine is; not one for each of some dozens of pragmas.
        assert!(after[0] - before[0] <= 2, "merges, exclusive commits, generation: {before:?}, {after:?}");
    }
}

fn pages(connection: &Connection, what: &str) -> i64 {
    connection.integer(&format!("PRAGMA {what}")).expect("a number")
}

/// The number of pages, as a limit is kept by it: asked for in each transaction that writes.
fn insert(connection: &Connection, rows: i64) -> i64 {
    let mut last = pages(connection, "page_count");
    for _ in 0..rows {
        connection
            .execute("BEGIN IMMEDIATE; INSERT INTO t(who, data) VALUES(7, randomblob(3000))")
            .expect("a row");
        let now = pages(connection, "page_count");
        assert!(now >= last, "{now} pages behind {last}");
        last = now;
        connection.execute("COMMIT").expect("a commit");
    }
    last
}

/// Waits until the count is what `is_near` says; it follows in the background.
fn comes_near(connection: &Connection, what: &str, is_near: impl Fn(i64) -> bool) {
    let begun = Instant::now();
    while !is_near(pages(connection, what)) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what} stays {}",
            pages(connection, what)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_number_of_pages_follows_what_is_written_and_never_goes_back() {
    let Some(subject) = real_plait("page counts") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (connection, other) = (fixture.open(), fixture.open());
    for connection in [&connection, &other] {
        connection
            .execute("PRAGMA synchronous=NORMAL; UPDATE t SET who=0 WHERE id=2")
            .expect("a member");
    }
    let size = pages(&connection, "page_size");
    insert(&connection, 2000);
    // It may lack 1 MiB of what is not merged, and what a page of the base has not filled.
    comes_near(&connection, "page_count", |count| count * size > 2000 * 3000 - 3 * MIB / 2);
    let told = pages(&connection, "page_count");
    other.execute("PRAGMA wal_checkpoint").expect("everything is merged");
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(2002));
    let all = pages(&connection, "page_count");
    assert!(all >= told, "{told} of {all}");
    assert_eq!(connection.integer("SELECT max(pgno) FROM sqlite_dbpage"), Ok(all));
    assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

/// As caches do that have grown too large: with the whole of the file's pages in view there would be nothing left of this one.
#[test]
fn a_program_that_deletes_until_the_file_is_small_enough_finds_an_end() {
    let Some(subject) = real_plait("page counts") else { return };
    for (mode, used) in [("FULL", "page_count"), ("NONE", "freelist_count")] {
        let fixture = with_auto_vacuum(subject.clone(), mode);
        let (connection, other) = (fixture.open(), fixture.open());
        for connection in [&connection, &other] {
            connection
                .execute("PRAGMA synchronous=NORMAL; UPDATE t SET who=0 WHERE id=2")
                .expect("a member");
        }
        insert(&connection, 4000);
        other.execute("PRAGMA wal_checkpoint").expect("everything is merged");
        let full = pages(&connection, used);
        let is_enough =
            |now: i64| if used == "page_count" { now < full - full / 16 } else { now > 200 };
        let mut deleted = 0;
        while !is_enough(pages(&connection, used)) {
            connection
                .execute("DELETE FROM t WHERE id IN (SELECT id FROM t WHERE id>2 LIMIT 10)")
                .expect("some rows");
            deleted += 10;
            // Faster than any cache is used, all of it could be gone before a merge has ended.
            std::thread::sleep(Duration::from_millis(2));
            assert!(deleted < 4000, "{mode}: nothing is left");
        }
        assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{mode}");
    }
}

#[test]
fn where_nobody_else_is_the_number_of_pages_is_that_of_stock() {
    let count = |subject: Subject| -> Vec<i64> {
        let fixture = with_auto_vacuum(subject, "FULL");
        let connection = fixture.open();
        let told = [
            "INSERT INTO t(data) VALUES(zeroblob(100000))",
            "DELETE FROM t WHERE id=1",
            "BEGIN; DELETE FROM t WHERE id>2; COMMIT",
        ]
        .map(|sql| {
            connection.execute(sql).expect("a change");
            [pages(&connection, "page_count"), pages(&connection, "freelist_count")]
        });
        told.concat()
    };
    assert_eq!(count(Subject::plait()), count(Subject::stock()));
}

#[test]
fn pages_that_were_counted_first_are_those_that_are_looked_at_then() {
    let Some(subject) = real_plait("page counts") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (connection, other) = (fixture.open(), fixture.open());
    other
        .execute("INSERT INTO t(data) VALUES(zeroblob(100000))")
        .expect("a row that is not merged");
    for begin in ["BEGIN", "BEGIN CONCURRENT"] {
        connection.execute(begin).expect("it begins");
        let count = pages(&connection, "page_count");
        assert_eq!(connection.integer("SELECT count(*) FROM sqlite_dbpage"), Ok(count), "{begin}");
        assert_eq!(pages(&connection, "page_count"), count, "{begin}");
        connection.execute("COMMIT").expect("it ends");
    }
    let outside = connection
        .integer("SELECT count(*) FROM sqlite_dbpage")
        .expect("everything is merged first");
    assert!(outside > 25, "{outside} pages");
    // A look at pages is a read of everything, whatever was counted before it.
    connection.execute("BEGIN; PRAGMA page_count; PRAGMA integrity_check").expect("a look");
    other.execute("UPDATE t SET who=5 WHERE id=2").expect("a change");
    let refused =
        connection.execute("UPDATE t SET who=6 WHERE id=1").expect_err("it has read all rows");
    assert!(refused.is_conflict(), "{refused}");
    connection.execute("ROLLBACK").expect("it ends");
}

#[test]
fn a_serialization_counts_the_pages_of_all_that_is_committed() {
    let Some(subject) = real_plait("page counts") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (connection, other) = (fixture.open(), fixture.open());
    other
        .execute("INSERT INTO t(data) VALUES(zeroblob(100000))")
        .expect("a row that is not merged");
    let few = pages(&connection, "page_count");
    let image = connection.serialize().expect("an image");
    assert!(image.len() as i64 > few * pages(&connection, "page_size"));
    let memory = Subject::stock().library().open(":memory:").expect("it opens");
    memory.deserialize(&image).expect("stock takes the image");
    assert_eq!(memory.integer("SELECT count(*) FROM t"), Ok(3));
}

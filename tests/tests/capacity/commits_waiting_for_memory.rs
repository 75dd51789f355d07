//! Commits that wait for shared memory which snapshots hold: they hold none themselves, and nobody waits for each other.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::{ABORT, BUSY, BUSY_SNAPSHOT, FULL};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::time::Duration;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, filler BLOB);
    CREATE TABLE numbered(id INTEGER PRIMARY KEY AUTOINCREMENT, who TEXT);
    WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<100) INSERT INTO t SELECT x, 0, NULL FROM i;
    INSERT INTO numbered(who) VALUES('first')";
/// More generations than there are memtables.
const GENERATIONS: i64 = 12;
/// So that no memtable is held by one transaction alone.
const OF_EACH: i64 = 2;
/// A commit waits for room for five seconds at least: this is less, and far more than anybody needs.
const SOON: Duration = Duration::from_secs(4);

/// Commits values of so many bytes until there is no room for more.
fn fill(filler: &mut Actor, bytes: u32) {
    filler.busy_timeout(Duration::ZERO);
    let insert = format!("INSERT INTO t(filler) VALUES(zeroblob({bytes}))");
    let refused = (0..200_000_000 / bytes).find_map(|_| filler.run(&insert).error);
    assert_eq!(refused.map(|e| e.code), Some(FULL), "there is room for everything");
}

/// Optimistic transactions that are about to commit, with snapshots of so many generations that there is no room for a commit.
struct Crowd {
    fixture: Fixture,
    members: Vec<Actor>,
    filler: Actor,
}

impl Crowd {
    /// Each member has read and changed the row of its number, from 1, and added one to `numbered`.
    fn gather(subject: &Subject, place: Place) -> Self {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let start = |name: &str| Actor::start(place, name, &fixture.subject, &fixture.database());
        let mut filler = start("filler");
        let mut members = Vec::new();
        for generation in 0..GENERATIONS {
            filler.ok("INSERT INTO numbered(who) VALUES('filler')");
            for of_each in 0..OF_EACH {
                let number = generation * OF_EACH + of_each + 1;
                let mut member = start(&format!("member {number}"));
                member.ok(&format!(
                    "BEGIN CONCURRENT; SELECT n FROM t WHERE id={number}; UPDATE t SET n=n+1 WHERE id={number}"
                ));
                member.ok(&format!("INSERT INTO numbered(who) VALUES('member {number}')"));
                members.push(member);
            }
            filler.ok("PRAGMA wal_checkpoint");
        }
        Self { fixture, members, filler }
    }

    /// Fills the memtable that takes commits.
    fn fill(&mut self) {
        fill(&mut self.filler, 1_000_000);
    }

    /// All commit at once, and those that are refused roll back: by number.
    fn commit(&mut self) -> Vec<i64> {
        for member in &mut self.members {
            member.send("COMMIT");
        }
        let finish =
            |member: &mut Actor| member.finish_within(SOON).expect("they wait for each other");
        let replies: Vec<_> = self.members.iter_mut().map(finish).collect();
        let mut refused = Vec::new();
        for ((number, member), reply) in (1..).zip(&mut self.members).zip(replies) {
            let Some(error) = reply.error else { continue };
            // What it would be checked by has gone, to make room; or it has lost.
            assert_eq!(error.extended, BUSY_SNAPSHOT, "member {number}: {error}");
            member.ok("ROLLBACK");
            refused.push(number);
        }
        let all = i64::try_from(self.members.len()).expect("a few");
        assert!(refused.len() * 2 < self.members.len(), "of {all} these are refused: {refused:?}");
        refused
    }

    fn is_whole(&mut self, refused: &[i64]) {
        let committed = GENERATIONS * OF_EACH - i64::try_from(refused.len()).expect("a few");
        let filler = &mut self.filler;
        filler.busy_timeout(Duration::from_secs(30));
        filler.ok("INSERT INTO t(filler) VALUES(zeroblob(1000000))");
        let sum = format!("SELECT sum(n) FROM t WHERE id<={}", GENERATIONS * OF_EACH);
        assert_eq!(filler.integer(&sum), committed);
        let numbered = "SELECT count(*) FROM numbered WHERE who LIKE 'member%'";
        assert_eq!(filler.integer(numbered), committed);
        let behind = "SELECT max(id)-(SELECT seq FROM sqlite_sequence) FROM numbered";
        assert_eq!(filler.integer(behind), 0, "the sequence is where the table ends");
        let connection = self.fixture.open();
        assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

in_threads_and_processes! {
    // holds SNAP-6, PIN-6
    fn transactions_that_hold_each_others_memory_commit_when_it_is_full(place) {
        let Some(subject) = real_plait("memory that transactions hold") else { return };
        let mut crowd = Crowd::gather(&subject, place);
        crowd.fill();
        let refused = crowd.commit();
        crowd.is_whole(&refused);
    }

    fn they_make_room_for_one_who_waits_with_the_right(place) {
        let Some(subject) = real_plait("memory that transactions hold") else { return };
        let mut crowd = Crowd::gather(&subject, place);
        crowd.fill();
        crowd.filler.busy_timeout(Duration::from_secs(30));
        crowd.filler.send("INSERT INTO t(filler) VALUES(zeroblob(1000000))");
        assert!(crowd.filler.still_waits_after(Duration::from_millis(100)));
        let refused = crowd.commit();
        assert_eq!(crowd.filler.finish().error, None);
        crowd.is_whole(&refused);
    }

    fn memory_that_one_of_them_finds_free_is_there_for_all_who_wait(place) {
        let Some(subject) = real_plait("memory that a reader holds") else { return };
        let fixture = Fixture::new(subject, SCHEMA);
        let start = |name: &str| Actor::start(place, name, &fixture.subject, &fixture.database());
        let mut filler = start("filler");
        let mut readers = Vec::new();
        for generation in 0..GENERATIONS {
            filler.ok("INSERT INTO numbered(who) VALUES('filler')");
            let mut reader = start(&format!("reader {generation}"));
            reader.ok("BEGIN; SELECT n FROM t WHERE id=1");
            readers.push(reader);
            filler.ok("PRAGMA wal_checkpoint");
        }
        let mut members: Vec<Actor> = (1..=8).map(|number| start(&format!("member {number}"))).collect();
        // More at once would go to the table directly.
        fill(&mut filler, 100_000);
        for (id, member) in (1..).zip(&mut members) {
            member.busy_timeout(Duration::from_secs(60));
            // None of them has room with what another may have left.
            member.ok(&format!("BEGIN CONCURRENT; UPDATE t SET n=n+1, filler=zeroblob(100000) WHERE id={id}"));
            member.send("COMMIT");
        }
        for member in &mut members {
            assert!(member.still_waits_after(Duration::from_millis(50)), "there is room");
        }
        // At once, so that who looks first finds most of what they held.
        for reader in &mut readers {
            reader.send("COMMIT");
        }
        for member in &mut members {
            let reply = member.finish_within(SOON).expect("it waits for what is free");
            assert_eq!(reply.error, None);
        }
        assert_eq!(filler.integer("SELECT sum(n) FROM t"), 8);
    }

    // holds PIN-6
    fn what_they_have_read_is_checked_all_the_same(place) {
        let Some(subject) = real_plait("memory that transactions hold") else { return };
        let mut crowd = Crowd::gather(&subject, place);
        crowd.filler.ok("UPDATE t SET n=n+10 WHERE id=3; DELETE FROM t WHERE id=4");
        crowd.fill();
        let refused = crowd.commit();
        assert!([3, 4].iter().all(|lost| refused.contains(lost)), "{refused:?}");
        crowd.filler.ok("UPDATE t SET n=0 WHERE id=3");
        crowd.is_whole(&refused);
    }
}

/// A transaction with the oldest snapshot, readers that hold all other memtables, and no room for its commit.
struct Held {
    fixture: Fixture,
    victim: Actor,
    filler: Actor,
    readers: Vec<Actor>,
}

impl Held {
    /// The victim has begun and run `sql`; then others add to `numbered`.
    fn gather(sql: &str) -> Option<Held> {
        let fixture = Fixture::new(real_plait("memory that readers hold")?, SCHEMA);
        let start = |name: &str| {
            Actor::start(Place::Processes, name, &fixture.subject, &fixture.database())
        };
        let (mut victim, mut filler) = (start("victim"), start("filler"));
        filler.ok("CREATE TABLE w(id INTEGER PRIMARY KEY, x); INSERT INTO w VALUES(1, 'w')");
        // What is in memory alone is what its snapshot holds.
        filler.ok("INSERT INTO numbered(who) VALUES('filler')");
        victim.ok(&format!("BEGIN CONCURRENT; {sql}"));
        let mut readers = Vec::new();
        filler.ok("INSERT INTO numbered(who) VALUES('filler')");
        filler.ok("PRAGMA wal_checkpoint");
        for generation in 0..GENERATIONS {
            // The last of these are in the base alone for who has the newest.
            let numbers = "INSERT INTO numbered(who) VALUES('filler')";
            let other = "UPDATE t SET n=n+1 WHERE id=90";
            filler.ok(if generation < 4 { numbers } else { other });
            let mut reader = start(&format!("reader {generation}"));
            reader.ok("BEGIN; SELECT n FROM t WHERE id=50");
            readers.push(reader);
            filler.ok("PRAGMA wal_checkpoint");
        }
        // More at once would go to the table directly.
        fill(&mut filler, 100_000);
        Some(Held { fixture, victim, filler, readers })
    }

    fn let_go(&mut self) {
        for reader in &mut self.readers {
            reader.ok("COMMIT");
        }
    }
}

const CHANGES_MUCH: &str = "UPDATE t SET n=n+1, filler=zeroblob(110000) WHERE id=1";

// holds MAX-2
#[test]
fn numbers_are_not_given_twice_after_a_commit_that_waited_with_the_right() {
    let numbers = "INSERT INTO numbered(who) VALUES('victim')";
    let Some(mut held) = Held::gather(&format!("{CHANGES_MUCH}; {numbers}")) else { return };
    held.victim.busy_timeout(Duration::from_secs(30));
    let mut other =
        Actor::start(Place::Processes, "other", &held.fixture.subject, &held.fixture.database());
    other.ok("BEGIN IMMEDIATE");
    held.victim.send("COMMIT");
    assert!(held.victim.still_waits_after(Duration::from_millis(200)), "for the right");
    other.ok("ROLLBACK");
    assert_eq!(held.victim.finish().error, None);
    held.let_go();
    let behind = "SELECT max(id)-(SELECT seq FROM sqlite_sequence) FROM numbered";
    assert_eq!(other.integer(behind), 0, "the sequence is where the table ends");
    let last = other.integer("SELECT max(id) FROM numbered");
    other.ok("DELETE FROM numbered WHERE id>1");
    let next = other.integer("INSERT INTO numbered(who) VALUES('next') RETURNING id");
    assert!(next > last, "{next} comes after {last}");
}

/// Its COMMIT is sent away from the queue for the right, takes a newer snapshot, and finds there that it has lost.
#[test]
fn a_statement_reads_nothing_any_more_once_its_transaction_could_not_go_on() {
    for rolls_back in [false, true] {
        let Some(mut held) = Held::gather(&format!("SELECT n FROM t WHERE id=2; {CHANGES_MUCH}"))
        else {
            return;
        };
        held.victim.busy_timeout(Duration::from_secs(30));
        // It comes to its second table later.
        held.victim.open_cursor("late", "SELECT 0 UNION ALL SELECT count(*) FROM w");
        assert_eq!(held.victim.step_cursor("late", 1).error, None);
        held.filler.ok("UPDATE t SET n=n+7 WHERE id=2");
        held.filler.busy_timeout(Duration::from_secs(30));
        held.filler.send("INSERT INTO t(filler) VALUES(zeroblob(1000000))");
        assert!(
            held.filler.still_waits_after(Duration::from_millis(200)),
            "with the right, for room"
        );
        let refused = held.victim.fails("COMMIT", BUSY);
        assert_eq!(refused.extended, BUSY_SNAPSHOT, "{refused}");
        assert!(refused.message.contains("conflict"), "{refused}");
        assert_eq!(held.victim.fails("SELECT n FROM t", BUSY).extended, BUSY_SNAPSHOT);
        if rolls_back {
            held.victim.ok("ROLLBACK");
        }
        held.let_go();
        assert_eq!(held.filler.finish().error, None);
        held.filler.ok("DROP TABLE w; VACUUM");
        held.filler.ok("PRAGMA wal_checkpoint(TRUNCATE)");
        let read = held.victim.step_cursor("late", 1);
        let expected = if rolls_back { ABORT } else { BUSY };
        assert_eq!(read.error.map(|e| e.code), Some(expected), "{:?}", read.rows);
        held.victim.close_cursor("late");
        if !rolls_back {
            held.victim.ok("ROLLBACK");
        }
        assert_eq!(held.victim.integer("SELECT n FROM t WHERE id=2"), 7);
        held.victim.ok("BEGIN CONCURRENT; UPDATE t SET n=1 WHERE id=2; COMMIT");
    }
}

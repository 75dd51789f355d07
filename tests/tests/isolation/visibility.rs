//! What is there for one is there for everyone who begins later: after a COMMIT, after the end of any other transaction that has
//! seen it, and after the death of who made it.
//!
//! A process of the library with crash points is stopped, or killed, in a COMMIT under FULL: what it commits is in shared memory,
//! writers see it, and readers do not, for it is not on disk.

use plait_tests::actor::Actor;
use plait_tests::os::resume;
use plait_tests::place::Place;
use plait_tests::planted::must_be_reported;
use plait_tests::sqlite::{BUSY_SNAPSHOT, CONSTRAINT};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::time::Duration;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, who TEXT UNIQUE);
    CREATE TABLE other(n INTEGER);
    INSERT INTO t VALUES(1, 'first'); INSERT INTO other VALUES(0)";
const LOOK: &str = "SELECT count(*) FROM t WHERE id=2";
const WRITE: &str = "INSERT INTO t VALUES(2, 'second')";

fn fixture(test: &str) -> Option<Fixture> {
    real_plait(test)?;
    Some(Fixture::new(Subject::plait_with_crash_points(), SCHEMA))
}

fn member(fixture: &Fixture, name: &str) -> Actor {
    let mut actor = Actor::start(Place::Processes, name, &fixture.subject, &fixture.database());
    actor.ok("PRAGMA synchronous=FULL");
    actor
}

/// A process that will be killed or stopped at `point` in its next COMMIT; it has the session's log open.
fn doomed(fixture: &Fixture, variable: &str, point: &str) -> Actor {
    // Its first commit passes each of these points once.
    let at = (variable, format!("{point}:2"));
    let mut actor = Actor::start_with_environment(
        "the committer",
        &fixture.subject,
        &fixture.database(),
        (at.0, &at.1),
    );
    actor.ok("PRAGMA synchronous=FULL");
    actor.ok("UPDATE other SET n=n+1");
    actor
}

/// A process that stands still with its commit in shared memory and not on disk.
fn pending_commit(fixture: &Fixture) -> Actor {
    let mut actor = doomed(fixture, "PLAIT_STOP_AT", "log.lead.written");
    actor.send(WRITE);
    actor.await_stop();
    actor
}

/// Steps of a commit after which it counts, whoever dies.
const COUNTS: [&str; 6] = [
    "commit.published",
    "commit.inserted",
    "commit.unlocked",
    "log.lead.begun",
    "log.lead.written",
    "log.lead.synced",
];

fn killed_at(fixture: &Fixture, point: &str) {
    let mut actor = doomed(fixture, "PLAIT_CRASH_AT", point);
    actor.send(WRITE);
    actor.await_death();
}

// holds VISIBLE-3, COMMIT-2
#[test]
fn what_a_killed_committer_left_is_there_at_once_for_a_reader_that_was_there() {
    let Some(_) = fixture("a dead commit") else { return };
    for point in COUNTS {
        let Some(fixture) = fixture("a dead commit") else { return };
        let mut reader = member(&fixture, "the reader");
        reader.ok(LOOK);
        killed_at(&fixture, point);
        assert_eq!(reader.integer(LOOK), 1, "{point}");
        let mut late = member(&fixture, "who comes later");
        assert_eq!(late.integer(LOOK), 1, "{point}");
        late.ok("UPDATE other SET n=n+1");
        assert_eq!(reader.integer(LOOK), 1, "{point}");
    }
}

/// What it left in shared memory is not believed for ever.
// holds VISIBLE-5
#[test]
fn what_a_committer_left_is_there_at_once_though_it_had_waited_for_long_before_it_was_killed() {
    let Some(fixture) = fixture("a dead commit") else { return };
    let mut reader = member(&fixture, "the reader");
    let committer = pending_commit(&fixture);
    assert_eq!(reader.integer(LOOK), 0);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(reader.integer(LOOK), 0, "it waits still");
    committer.kill();
    assert_eq!(reader.integer(LOOK), 1);
}

#[test]
fn what_a_killed_committer_left_is_there_at_once_for_who_comes_later() {
    for point in COUNTS {
        let Some(fixture) = fixture("a dead commit") else { return };
        let mut other = member(&fixture, "one that only holds the session");
        other.ok(LOOK);
        killed_at(&fixture, point);
        assert_eq!(member(&fixture, "the first").integer(LOOK), 1, "{point}");
        assert_eq!(member(&fixture, "the second").integer(LOOK), 1, "{point}");
    }
}

#[test]
fn what_the_last_process_left_is_there_at_once_for_the_next() {
    for point in COUNTS {
        let Some(fixture) = fixture("a dead commit") else { return };
        killed_at(&fixture, point);
        assert_eq!(member(&fixture, "the first").integer(LOOK), 1, "{point}");
        assert_eq!(member(&fixture, "the second").integer(LOOK), 1, "{point}");
    }
}

#[test]
fn what_a_killed_committer_left_is_there_at_once_for_a_concurrent_transaction() {
    for point in COUNTS {
        let Some(fixture) = fixture("a dead commit") else { return };
        let mut writer = member(&fixture, "the writer");
        writer.ok(LOOK);
        killed_at(&fixture, point);
        writer.ok("BEGIN CONCURRENT");
        assert_eq!(writer.integer(LOOK), 1, "{point}");
        writer.ok("ROLLBACK");
        assert_eq!(member(&fixture, "who comes later").integer(LOOK), 1, "{point}");
    }
}

/// What never counted stays away, whatever is committed later.
#[test]
fn what_a_committer_had_not_published_when_it_was_killed_never_appears() {
    for point in ["commit.locked", "commit.appended"] {
        let Some(fixture) = fixture("a dead commit") else { return };
        let mut reader = member(&fixture, "the reader");
        reader.ok(LOOK);
        killed_at(&fixture, point);
        assert_eq!(reader.integer(LOOK), 0, "{point}");
        reader.ok("UPDATE other SET n=n+1");
        assert_eq!(reader.integer(LOOK), 0, "{point}");
        assert_eq!(member(&fixture, "who comes later").integer(LOOK), 0, "{point}");
    }
}

// holds PIPE-3, COMMIT-3
#[test]
fn a_commit_under_full_is_hidden_from_readers_while_its_author_waits_for_the_disk() {
    let Some(fixture) = fixture("a pending commit") else { return };
    let mut reader = member(&fixture, "the reader");
    let mut committer = pending_commit(&fixture);
    assert_eq!(reader.integer(LOOK), 0);
    resume(committer.pid()).expect("it goes on");
    assert_eq!(committer.finish().error, None);
    assert_eq!(reader.integer(LOOK), 1);
}

/// One transaction of a connection that sees a pending commit and ends in some way.
struct Ending {
    name: &'static str,
    /// Statements, all of which succeed.
    before: &'static str,
    /// The last statement, and the code with which it fails.
    last: (&'static str, Option<i32>),
    /// What ends the transaction if it is still open.
    after: &'static str,
}

const ENDINGS: [Ending; 12] = [
    Ending {
        name: "rollback of an immediate one",
        before: "BEGIN IMMEDIATE; SELECT * FROM t",
        last: ("ROLLBACK", None),
        after: "",
    },
    Ending {
        name: "commit of an immediate one that has only read",
        before: "BEGIN IMMEDIATE; SELECT * FROM t",
        last: ("COMMIT", None),
        after: "",
    },
    Ending {
        name: "rollback of a concurrent one",
        before: "BEGIN CONCURRENT; SELECT * FROM t",
        last: ("ROLLBACK", None),
        after: "",
    },
    Ending {
        name: "commit of a concurrent one that has only read",
        before: "BEGIN CONCURRENT; SELECT * FROM t",
        last: ("COMMIT", None),
        after: "",
    },
    Ending {
        name: "rollback after a write",
        before: "BEGIN IMMEDIATE; UPDATE other SET n=n+1; SELECT * FROM t",
        last: ("ROLLBACK", None),
        after: "",
    },
    Ending {
        name: "rollback of a deferred one that has become a writer",
        before: "BEGIN; SELECT n FROM other; UPDATE other SET n=n+1; SELECT * FROM t",
        last: ("ROLLBACK", None),
        after: "",
    },
    Ending {
        name: "a refused statement outside a transaction",
        before: "SELECT 1",
        last: ("INSERT INTO t VALUES(3, 'second')", Some(CONSTRAINT)),
        after: "",
    },
    Ending {
        name: "a refused statement in a transaction",
        before: "BEGIN IMMEDIATE",
        last: ("INSERT INTO t VALUES(3, 'second')", Some(CONSTRAINT)),
        after: "ROLLBACK",
    },
    Ending {
        name: "a refused statement that rolls back",
        before: "BEGIN CONCURRENT",
        last: ("INSERT OR ROLLBACK INTO t VALUES(3, 'second')", Some(CONSTRAINT)),
        after: "",
    },
    Ending {
        name: "an ignored row",
        before: "SELECT 1",
        last: ("INSERT OR IGNORE INTO t VALUES(3, 'second')", None),
        after: "",
    },
    Ending {
        name: "a commit that fails",
        before: "PRAGMA foreign_keys=1; BEGIN IMMEDIATE; SELECT * FROM t; INSERT INTO child VALUES(99)",
        last: ("COMMIT", Some(CONSTRAINT)),
        after: "ROLLBACK",
    },
    Ending {
        name: "a failed way to the exclusive path",
        before: "BEGIN IMMEDIATE; SELECT * FROM t",
        last: ("CREATE TABLE t(again)", Some(1)),
        after: "ROLLBACK",
    },
];

// holds VISIBLE-1
#[test]
fn what_a_transaction_was_shown_is_there_after_any_end_of_it() {
    for ending in &ENDINGS {
        let Some(fixture) = fixture("what was shown") else { return };
        let mut actor = member(&fixture, ending.name);
        let mut reader = member(&fixture, "the reader");
        actor.ok("CREATE TABLE child(id REFERENCES t DEFERRABLE INITIALLY DEFERRED)");
        let committer = pending_commit(&fixture);
        assert_eq!(reader.integer(LOOK), 0, "{}: shown before it is on disk", ending.name);
        actor.ok(ending.before);
        match ending.last {
            (sql, Some(code)) => drop(actor.fails(sql, code)),
            (sql, None) => drop(actor.ok(sql)),
        }
        if !ending.after.is_empty() {
            actor.ok(ending.after);
        }
        assert_eq!(actor.integer(LOOK), 1, "{}: for itself", ending.name);
        assert_eq!(reader.integer(LOOK), 1, "{}: for others", ending.name);
        resume(committer.pid()).expect("it goes on");
    }
}

#[test]
fn what_a_transaction_was_shown_is_there_after_its_connection_was_closed() {
    let Some(fixture) = fixture("what was shown") else { return };
    let mut reader = member(&fixture, "the reader");
    let mut actor = member(&fixture, "who closes");
    let committer = pending_commit(&fixture);
    actor.ok("BEGIN CONCURRENT; SELECT * FROM t");
    actor.close().expect("it closes");
    assert_eq!(reader.integer(LOOK), 1);
    resume(committer.pid()).expect("it goes on");
}

#[test]
fn what_a_transaction_was_shown_is_there_after_its_end_though_a_statement_reads_on() {
    for end in ["COMMIT", "ROLLBACK"] {
        let Some(fixture) = fixture("what was shown") else { return };
        let mut reader = member(&fixture, "the reader");
        let mut actor = member(&fixture, "who reads on");
        let committer = pending_commit(&fixture);
        actor.ok("BEGIN CONCURRENT");
        actor.open_cursor("c", "SELECT id FROM t ORDER BY id");
        assert_eq!(actor.step_cursor("c", 1).rows.len(), 1);
        actor.ok(end);
        assert_eq!(reader.integer(LOOK), 1, "{end}");
        actor.close_cursor("c");
        resume(committer.pid()).expect("it goes on");
    }
}

/// The retry sees what it lost against, and so does everyone else.
#[test]
fn the_winner_of_a_conflict_is_there_after_the_rollback() {
    let Some(fixture) = fixture("a conflict") else { return };
    let mut reader = member(&fixture, "the reader");
    let mut actor = member(&fixture, "the loser");
    actor.ok("BEGIN CONCURRENT; SELECT count(*) FROM t; UPDATE other SET n=n+1");
    let committer = pending_commit(&fixture);
    actor.fails("COMMIT", BUSY_SNAPSHOT);
    actor.ok("ROLLBACK");
    assert_eq!(reader.integer(LOOK), 1);
    assert_eq!(actor.integer(LOOK), 1);
    resume(committer.pid()).expect("it goes on");
}

/// Levels mixed: what NORMAL has acknowledged is there, and takes no FULL commit with it that a power cut may undo.
// holds VISIBLE-2, VISIBLE-4
#[test]
fn a_reader_after_a_normal_commit_finds_the_full_ones_before_it_on_disk() {
    let Some(fixture) = fixture("levels") else { return };
    let mut reader = member(&fixture, "the reader");
    let mut relaxed = member(&fixture, "a committer under NORMAL");
    relaxed.ok("PRAGMA synchronous=NORMAL");
    let unsynced = |actor: &mut Actor| {
        actor.integer("SELECT value FROM plait_status WHERE name='log_unsynced_bytes'")
    };
    let committer = pending_commit(&fixture);
    relaxed.busy_timeout(Duration::from_secs(30));
    relaxed.ok("UPDATE other SET n=100");
    // Who may write reads the newest state, and waits for no disk either.
    relaxed.ok("BEGIN IMMEDIATE");
    assert!(unsynced(&mut relaxed) > 0, "NORMAL does not wait for the disk");
    relaxed.ok("ROLLBACK");
    assert_eq!(reader.integer("SELECT n FROM other"), 100, "it was acknowledged");
    assert_eq!(unsynced(&mut reader), 0, "and what a reader sees of FULL commits is on disk");
    assert_eq!(reader.integer(LOOK), 1);
    resume(committer.pid()).expect("it goes on");
}

#[test]
fn a_commit_that_appears_later_than_its_process_has_died_is_caught() {
    let suite = "what_a_killed_committer_left_is_there_at_once_for_a_reader_that_was_there";
    must_be_reported(
        "dead.unsettled",
        suite,
        &["assertion `left == right` failed: commit.published"],
    );
}

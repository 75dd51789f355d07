//! A log that cannot be written stops the database, and takes nothing with it that somebody was told of: not under NORMAL either, while
//! the machine goes on.

use plait_tests::actor::Actor;
use plait_tests::job::{Job, Work};
use plait_tests::jobs::failing_log::{Ends, FailingLog, Met};
use plait_tests::place::Place;
use plait_tests::sqlite::IOERR;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::time::Duration;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY)";
const PATIENCE: Duration = Duration::from_secs(60);
const BEFORE: u32 = 50;

fn met(fixture: &Fixture, synchronous: &str, ends: Ends) -> Met {
    let work = FailingLog { synchronous: synchronous.into(), before: BEFORE, ends };
    let (subject, database) = (fixture.subject.clone(), fixture.database());
    let mut running =
        Job { subject, database, work: Work::FailingLog(work) }.start(Place::Processes);
    let met: Met = running.next_line(PATIENCE).expect("it meets the failure");
    // Killed is not an error here.
    let _ = running.wait::<Met>(PATIENCE);
    assert_eq!(met.code & 0xff, IOERR, "{met:?}");
    assert!(met.acknowledged >= BEFORE, "{met:?}");
    assert!(met.other.contains("close every connection, and open the database again"), "{met:?}");
    met
}

/// The database rests, all that was acknowledged is there, and nothing but the one row whose COMMIT was told that it may be.
#[track_caller]
fn is_whole(fixture: &Fixture, met: &Met) {
    for suffix in ["-plait", "-plait-shm"] {
        assert!(!fixture.side_file(suffix).exists(), "{suffix} is gone");
    }
    let stock = Subject::stock().open(&fixture.database()).expect("stock opens it");
    let rows = stock.integer("SELECT count(*) FROM t").expect("a count");
    let most = i64::from(met.acknowledged) + 1;
    assert!((most - 1..=most).contains(&rows), "{rows} rows, {met:?}");
    assert_eq!(stock.integer("SELECT max(id)+1 FROM t"), Ok(rows), "the first ones");
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn the_last_close_brings_what_the_log_lacks_into_the_file() {
    let Some(subject) = real_plait("a log that cannot be written") else { return };
    for synchronous in ["OFF", "NORMAL", "FULL"] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let met = met(&fixture, synchronous, Ends::Closed);
        is_whole(&fixture, &met);
    }
}

#[test]
fn so_does_the_next_opening_after_a_death() {
    let Some(subject) = real_plait("a death behind a log that cannot be written") else { return };
    for synchronous in ["OFF", "NORMAL", "FULL"] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let met = met(&fixture, synchronous, Ends::Killed);
        let next = fixture.open();
        next.execute("INSERT INTO t VALUES(-1); DELETE FROM t WHERE id=-1").expect("it goes on");
        next.close().expect("it closes");
        is_whole(&fixture, &met);
    }
}

#[test]
fn so_does_another_process_that_closes_later() {
    let Some(subject) = real_plait("a survivor of a log that cannot be written") else { return };
    for ends in [Ends::Closed, Ends::Killed] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let mut survivor =
            Actor::start(Place::Processes, "survivor", &subject, &fixture.database());
        survivor.ok("BEGIN; SELECT count(*) FROM t; COMMIT");
        let met = met(&fixture, "NORMAL", ends);
        let error = survivor.fails("INSERT INTO t VALUES(-1)", IOERR);
        assert!(error.message.contains("stopped after a failed write or sync"), "{error}");
        survivor.close().expect("it closes");
        is_whole(&fixture, &met);
    }
}

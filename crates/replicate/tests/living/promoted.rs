//! A replica is promoted while what followed with it still runs.

use std::sync::Arc;
use std::time::Duration;

use plait_engine::database::Database;
use plait_engine::sync::wait::Wait;
use plait_replicate::following::mark::Mark;
use plait_replicate::following::{Live, Unjoined};
use plait_replicate::ids::RecordNumber;

use crate::processes::open;
use crate::stage::Stage;

fn promoted(session: &Arc<Database>, timeout: Duration) -> plait_engine::error::Result<()> {
    let mut wait = Wait { timeout, busy: None, interrupted: &mut || false };
    plait_engine::follower::promote(session, &mut wait)
}

// holds REPLICA-5
#[test]
fn promotion_waits_for_the_copy_that_a_follower_puts_into_the_database() {
    let stage = Stage::new();
    let path = &stage.database;
    let mut mark = Mark::of_nothing("/mnt/place");
    mark.record = RecordNumber(1);
    mark.write(path, true).expect("it is written");
    let live = Live::join(path, (7, 0), Box::new(|| true)).expect("it joins");
    let writes = open(path);
    // SAFETY: opened just now, by the library inside this program.
    unsafe { plait_sqlite::allow_replica_writes(writes.raw()) };
    // As `copy_from` does, which looks when it begins.
    writes.execute("BEGIN EXCLUSIVE; CREATE TABLE copied(a)").expect("it is the follower's");
    std::fs::remove_file(format!("{}-plait-follows", path.display())).expect("it is there");
    let session = plait_engine::ship::Shipper::joined(path).expect("a member");
    let early = promoted(&session, Duration::from_millis(100));
    assert!(early.is_err() && !session.was_promoted(), "its pages would come behind a promotion");
    writes.execute("COMMIT").expect("it was there before");
    promoted(&session, Duration::from_secs(10)).expect("nothing is in its way");
    assert!(session.was_promoted() && live.was_promoted());
    let late = writes.execute("CREATE TABLE late(a)");
    assert!(late.is_err(), "it is no follower's any more");
    promoted(&session, Duration::ZERO).expect("it was");
}

// holds REPLICA-5
#[test]
fn promotion_is_final_for_a_follower_that_runs_on() {
    let stage = Stage::new();
    let path = &stage.database;
    stage.execute("INSERT INTO t VALUES(1, 'own')");
    let mut mark = Mark::of_nothing("/mnt/place");
    mark.record = RecordNumber(1);
    mark.write(path, true).expect("it is written");
    let live = Live::join(path, (7, 0), Box::new(|| true)).expect("it joins");
    assert_eq!(live.unless_promoted(|| 1), Ok(Some(1)));
    let copy = stage.folder.path().join("copy.db");
    open(path).execute(&format!("VACUUM INTO '{}'", copy.display())).expect("a copy");
    std::fs::remove_file(format!("{}-plait-follows", path.display())).expect("it is there");
    let session = plait_engine::ship::Shipper::joined(path).expect("a member");
    promoted(&session, Duration::ZERO).expect("nothing is in its way");
    drop(session);
    open(path).execute("INSERT INTO t VALUES(2, 'own, later')").expect("it is nobody's replica");
    assert_eq!(live.unless_promoted(|| 1), Ok(None));
    assert!(live.copy_from(&copy).is_err(), "it would take back what was written");
    let kept = open(path);
    assert_eq!(kept.integer("SELECT count(*) FROM t"), Ok(2), "a member of the session");
    drop(live);
    // The mark again, as a follower of before would make it.
    mark.write(path, true).expect("it is written");
    assert_eq!(Live::join(path, (7, 0), Box::new(|| true)).err(), Some(Unjoined::Promoted));
    assert_eq!(kept.integer("SELECT count(*) FROM t"), Ok(2));
}

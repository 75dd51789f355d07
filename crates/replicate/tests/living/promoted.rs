//! A replica is promoted while what followed with it still runs.

use plait_replicate::following::mark::Mark;
use plait_replicate::following::{Live, Unjoined};
use plait_replicate::ids::RecordNumber;

use crate::processes::open;
use crate::stage::Stage;

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
    session.end_following().expect("it is promoted");
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

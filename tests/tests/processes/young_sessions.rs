//! The first moments of a session, in which others may still write by SQLite's own code.

use plait_tests::actor::Actor;
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::sqlite::BUSY_SNAPSHOT;
use plait_tests::subject::{Fixture, real_plait};
use std::time::Duration;

/// The file is compared as a whole there: nobody has noted what stock code wrote.
#[test]
fn who_has_read_before_the_first_of_a_session_writes_is_refused_for_a_visitor_once() {
    os::allow_alone();
    let Some(subject) = real_plait("sessions") else { return };
    let fixture = Fixture::new(
        subject,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES(1, 0), (2, 0), (3, 0)",
    );
    let (member, visitor) = (fixture.open(), fixture.open());
    let begin = "BEGIN CONCURRENT; SELECT v FROM t WHERE id=1";
    let write = "UPDATE t SET v=v+1 WHERE id=3; COMMIT";
    // One of them is there, in no session, when the other one comes.
    for connection in [&member, &visitor] {
        connection.execute("SELECT v FROM t WHERE id=2").expect("it reads");
    }
    member.execute(begin).expect("it reads");
    visitor.execute("UPDATE t SET v=v+1 WHERE id=2").expect("by SQLite's own code");
    let error = member.execute(write).expect_err("the file is another");
    assert_eq!(error.extended, BUSY_SNAPSHOT, "{error}");
    assert!(error.message.contains("was alone until then has written it"), "{error}");
    member.execute("ROLLBACK").expect("it ends");
    for _ in 0..3 {
        member.execute(begin).expect("it reads");
        visitor.execute("UPDATE t SET v=v+1 WHERE id=2").expect("another row");
        member.execute(write).expect("nothing that it read has changed");
    }
    assert_eq!(member.integer("SELECT sum(v) FROM t"), Ok(7));
}

/// Neither is in a session, as where connections come, do a little, say so and close.
#[test]
fn optimize_waits_its_turn_also_where_it_began_by_sqlites_own_code() {
    os::allow_alone();
    let Some(subject) = real_plait("sessions") else { return };
    let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, n); CREATE INDEX i ON t(n); INSERT INTO t VALUES(1, 1)";
    for begin in ["BEGIN IMMEDIATE", "BEGIN CONCURRENT; SELECT * FROM t; PRAGMA user_version=7"] {
        let fixture = Fixture::new(subject.clone(), schema);
        let start =
            |name| Actor::start(Place::Threads, name, &fixture.subject, &fixture.database());
        let (mut other, mut asker) = (start("other"), start("asker"));
        asker.ok("SELECT count(*) FROM t WHERE n=1");
        other.ok(&format!("{begin}; INSERT INTO t(n) VALUES(2)"));
        asker.send("PRAGMA optimize");
        assert!(asker.still_waits_after(Duration::from_millis(60)), "{begin}");
        other.ok("COMMIT");
        assert_eq!(asker.finish().error, None, "{begin}");
        assert_eq!(asker.integer("SELECT count(*) FROM sqlite_stat1"), 1, "{begin}");
    }
}

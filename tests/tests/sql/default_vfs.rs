//! A program registers a VFS of its own as the default one, before it opens anything: a process of its own.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::subject::{Fixture, Subject, real_plait};

const COUNT: &str = "SELECT count(*) FROM t";

#[test]
fn a_default_vfs_that_hands_out_the_systems_own_files_makes_no_difference() {
    let Some(subject) = real_plait("a default VFS") else { return };
    subject.library().register_forwarding_default_vfs(c"own");
    let fixture = Fixture::empty(subject);
    let first = fixture.open();
    first.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, who TEXT)").expect("a table");
    assert_eq!(first.text("PRAGMA journal_mode=concurrent").as_deref(), Ok("concurrent"));
    // It has the usual VFS.
    let mut usual = Actor::start(Place::Processes, "usual", &fixture.subject, &fixture.database());
    usual.ok("INSERT INTO t(who) VALUES('usual')");
    first.execute("BEGIN CONCURRENT; INSERT INTO t(who) VALUES('first')").expect("a transaction");
    usual.ok("INSERT INTO t(who) VALUES('usual')");
    first.execute("COMMIT").expect("they do not meet");
    assert_eq!((first.integer(COUNT), usual.integer(COUNT)), (Ok(3), 3));
    let stock = Subject::stock().open(&fixture.database()).and_then(|c| c.integer(COUNT));
    assert!(stock.is_err(), "fenced: {stock:?}");
    usual.close().expect("it closes");
    first.execute("VACUUM").expect("an exclusive transaction");
    first.close().expect("it closes");
    for suffix in ["-wal", "-plait", "-plait-shm"] {
        assert!(!fixture.side_file(suffix).exists(), "{suffix}");
    }
    let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
    assert_eq!(stock.integer(COUNT), Ok(3));
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    stock.close().expect("it closes");
    let again = fixture.open();
    assert_eq!(again.text("PRAGMA journal_mode=delete").as_deref(), Ok("delete"));
}

//! SQLite's WAL-index (`-shm`) of a database in use: removed by somebody who takes it for a temporary file, and met by stock programs.

use plait_tests::actor::Actor;
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::sqlite::CANTOPEN;
use plait_tests::subject::{Fixture, Subject, real_plait};

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;";
const COUNT: &str = "SELECT count(*) FROM t";
const JOIN: &str = "BEGIN CONCURRENT; INSERT INTO t(val) VALUES('member'); COMMIT";

fn actor(name: &str, subject: &Subject, fixture: &Fixture) -> Actor {
    Actor::start(Place::Processes, name, subject, &fixture.database())
}

/// Two members of a session whose index somebody has removed.
fn members_without_index(subject: &Subject) -> (Fixture, [Actor; 2]) {
    let fixture = Fixture::new(subject.clone(), ROWS);
    let mut members = ["a", "b"].map(|name| actor(name, subject, &fixture));
    for member in &mut members {
        member.ok(JOIN);
    }
    std::fs::remove_file(fixture.side_file("-shm")).expect("somebody removes it");
    (fixture, members)
}

// holds WALINDEX-2
#[test]
fn beside_members_whose_index_was_removed_nobody_comes_and_they_go_on() {
    os::allow_alone();
    let Some(subject) = real_plait("a removed -shm") else { return };
    let (fixture, [mut a, mut b]) = members_without_index(&subject);
    for round in 0..3 {
        let mut newcomer = Actor::idle(Place::Processes, "newcomer", &subject);
        let opened = newcomer.open(&fixture.database());
        let error = opened.err().or_else(|| newcomer.run(COUNT).error).expect("it is refused");
        assert_eq!(error.code, CANTOPEN, "{error}");
        assert!(error.message.contains("-shm was removed"), "{error}");
        for sql in ["PRAGMA wal_checkpoint(TRUNCATE)", "INSERT INTO t(val) VALUES('no')"] {
            assert!(newcomer.run(sql).error.is_some(), "{sql}");
        }
        for member in [&mut a, &mut b] {
            member.ok("INSERT INTO t(val) VALUES('it goes on')");
            member.ok(&format!("CREATE TABLE more{round}(a); DROP TABLE more{round}"));
            member.ok("PRAGMA wal_checkpoint(TRUNCATE); INSERT INTO t(val) VALUES('and on')");
        }
        drop(newcomer);
    }
    assert_eq!(a.integer(COUNT), 514);
    a.close().expect("it closes");
    b.close().expect("it closes");
    let mut later = actor("later", &subject, &fixture);
    assert_eq!(later.integer(COUNT), 514, "when all have closed it opens as ever");
    assert_eq!(later.ok("PRAGMA integrity_check"), [["ok".into()]]);
    later.close().expect("it closes");
    let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
    assert_eq!(stock.integer(COUNT), Ok(514));
}

#[test]
fn members_whose_index_was_removed_may_all_be_killed() {
    os::allow_alone();
    let Some(subject) = real_plait("a removed -shm") else { return };
    let (fixture, [mut a, mut b]) = members_without_index(&subject);
    let mut newcomer = Actor::idle(Place::Processes, "newcomer", &subject);
    let _ = newcomer.open(&fixture.database());
    b.ok("INSERT INTO t(val) VALUES('after it'); CREATE TABLE more(a)");
    a.ok("INSERT INTO t(val) VALUES('in the log')");
    a.kill();
    b.kill();
    // It has made an index, which lacks what came later, and may be the last.
    let _ = newcomer.close();
    let db = fixture.open();
    assert_eq!(db.integer(COUNT), Ok(504));
    db.execute("INSERT INTO more VALUES(1)").expect("the table is there");
    assert_eq!(db.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn a_connection_that_works_alone_follows_who_has_made_another_index() {
    os::allow_alone();
    let Some(subject) = real_plait("a removed -shm") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let mut lone = actor("lone", &subject, &fixture);
    lone.ok("INSERT INTO t(val) VALUES('alone')");
    std::fs::remove_file(fixture.side_file("-shm")).expect("somebody removes it");
    lone.ok("INSERT INTO t(val) VALUES('nobody has come')");
    let mut second = actor("second", &subject, &fixture);
    for _ in 0..5 {
        second.ok("INSERT INTO t(val) VALUES('second')");
        lone.ok("INSERT INTO t(val) VALUES('lone')");
    }
    assert_eq!(second.integer(COUNT), 512);
    lone.close().expect("it closes");
    second.ok("PRAGMA wal_checkpoint(TRUNCATE)");
    second.close().expect("it closes");
    let db = fixture.open();
    assert_eq!(db.integer(COUNT), Ok(512));
    assert_eq!(db.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

/// Programs that are told that a file is no database move it away, or delete it.
#[test]
fn stock_programs_beside_a_session_are_never_told_that_the_file_is_no_database() {
    os::allow_alone();
    let Some(subject) = real_plait("stock programs") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let [mut a, mut b] = ["a", "b"].map(|name| actor(name, &subject, &fixture));
    let looks = |what: &str| {
        let mut stock = Actor::idle(Place::Processes, "stock", &Subject::stock());
        let opened = stock.open(&fixture.database());
        let error = opened.err().or_else(|| stock.run(COUNT).error);
        assert!(error.as_ref().is_none_or(|e| e.code == CANTOPEN), "{what}: {error:?}");
    };
    a.ok(JOIN);
    b.ok(JOIN);
    looks("fenced");
    for checkpoint in ["PASSIVE", "FULL", "RESTART", "TRUNCATE", "TRUNCATE"] {
        a.ok(&format!("PRAGMA wal_checkpoint({checkpoint})"));
        looks(checkpoint);
        b.ok("INSERT INTO t(val) VALUES('more')");
        looks("a commit after it");
    }
    a.ok("CREATE TABLE more(a); PRAGMA wal_checkpoint(TRUNCATE)");
    looks("a change of the schema, and a checkpoint");
    a.close().expect("it closes");
    looks("one has left");
    b.close().expect("it closes");
    let stock = Subject::stock().open(&fixture.database()).expect("at rest");
    assert_eq!(stock.integer(COUNT), Ok(507));
}

/// Processes with a connection each, of which none has a transaction open when the index is removed (`rm`) or renamed (`mv`).
#[test]
fn what_connections_that_work_alone_have_committed_stays_whatever_becomes_of_the_index() {
    os::allow_alone();
    let Some(subject) = real_plait("a removed WAL-index") else { return };
    for steps in [
        "a.write mv b.write b.write a.write",
        "a.write rm b.write b.write a.write",
        "a.write rm c.write c.write a.checkpoint",
        "a.write mv c.write c.write a.checkpoint",
        "a.write b.read rm c.write a.checkpoint",
        "a.write rm b.write rm a.write b.write",
        "a.write rm b.write mv a.write b.write a.checkpoint",
        "a.write rm a.write a.write b.write",
    ] {
        let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a)");
        let mut actors = ["a", "b", "c"].map(|name| actor(name, &subject, &fixture));
        let (index, mut written) = (fixture.side_file("-shm"), 0);
        for step in steps.split(' ') {
            let aside = index.with_extension(format!("aside{written}"));
            let Some((name, what)) = step.split_once('.') else {
                let gone = match step {
                    "rm" => std::fs::remove_file(&index),
                    _ => std::fs::rename(&index, aside),
                };
                gone.expect("it was there");
                continue;
            };
            let who = &mut actors[usize::from(name.as_bytes()[0] - b'a')];
            match what {
                "read" => drop(who.ok("SELECT count(*) FROM t")),
                "checkpoint" => drop(who.run("PRAGMA wal_checkpoint(TRUNCATE)")),
                _ => {
                    // One that is told of it has done nothing.
                    let refused = who.run("INSERT INTO t VALUES(1)").error;
                    written += i64::from(refused.is_none());
                }
            }
        }
        for mut actor in actors {
            actor.close().expect("it closes");
        }
        let connection = fixture.open();
        assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(written), "{steps}");
        assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{steps}");
    }
}

/// The members have written nothing yet: the file is at rest, and their index alone would keep the program off.
// holds FENCE-6
#[test]
fn the_first_commit_behind_a_removed_index_is_refused_while_a_stock_program_has_the_file_open() {
    os::allow_alone();
    let Some(subject) = real_plait("a removed -shm") else { return };
    for stock_comes in [false, true] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let mut members = ["a", "b"].map(|name| actor(name, &subject, &fixture));
        for member in &mut members {
            member.ok("BEGIN CONCURRENT; SELECT count(*) FROM t; COMMIT");
        }
        std::fs::remove_file(fixture.side_file("-shm")).expect("somebody removes it");
        let [mut a, b] = members;
        let mut rival = stock_comes.then(|| actor("stock", &Subject::stock(), &fixture));
        if let Some(stock) = &mut rival {
            assert_eq!(stock.integer(COUNT), 500);
            let error = a.fails(JOIN, CANTOPEN);
            assert!(error.message.contains("-shm was removed or replaced"), "{error}");
            a.run("ROLLBACK");
            stock.ok("UPDATE t SET val='stock' WHERE id=1; INSERT INTO t(val) VALUES('stock')");
        } else {
            a.ok(JOIN);
        }
        for mut user in [a, b].into_iter().chain(rival) {
            user.close().expect("it closes");
        }
        let rest = fixture.open();
        assert_eq!(rest.integer(COUNT), Ok(501), "stock comes: {stock_comes}");
        let stocks = rest.integer("SELECT count(*) FROM t WHERE val='stock'");
        assert_eq!(stocks, Ok(if stock_comes { 2 } else { 0 }));
        assert_eq!(rest.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

/// A process of ours comes by another index, is told so after half a second, and keeps no member from its first commit.
#[test]
fn the_first_commit_behind_a_removed_index_waits_for_a_newcomer_to_be_refused() {
    os::allow_alone();
    let Some(subject) = real_plait("a removed -shm") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let [mut a, b] = ["a", "b"].map(|name| actor(name, &subject, &fixture));
    a.ok("BEGIN CONCURRENT; SELECT count(*) FROM t; COMMIT");
    std::fs::remove_file(fixture.side_file("-shm")).expect("somebody removes it");
    let mut newcomer = Actor::idle(Place::Processes, "newcomer", &subject);
    let opened = newcomer.open(&fixture.database());
    newcomer.send("BEGIN CONCURRENT; SELECT count(*) FROM t; COMMIT");
    std::thread::sleep(std::time::Duration::from_millis(100));
    a.ok(JOIN);
    let refused = opened.err().or(newcomer.finish().error).expect("it is refused");
    assert_eq!(refused.code, CANTOPEN, "{refused}");
    for mut user in [a, b, newcomer] {
        user.close().expect("it closes");
    }
    assert_eq!(fixture.open().integer(COUNT), Ok(501));
}

#[test]
fn a_name_without_an_index_behind_it_is_no_rival_of_the_first_commit() {
    os::allow_alone();
    let Some(subject) = real_plait("a removed -shm") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let mut member = actor("member", &subject, &fixture);
    member.ok("BEGIN CONCURRENT; SELECT count(*) FROM t; COMMIT");
    let index = fixture.side_file("-shm");
    std::fs::remove_file(&index).expect("somebody removes it");
    std::os::unix::fs::symlink("nowhere", &index).expect("and puts a link there");
    member.ok(JOIN);
    std::fs::remove_file(&index).expect("it is removed");
    member.close().expect("it closes");
    assert_eq!(fixture.open().integer(COUNT), Ok(501));
}

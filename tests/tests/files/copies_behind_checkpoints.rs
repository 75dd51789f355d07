//! A copy of the database file alone, made behind `PRAGMA wal_checkpoint(TRUNCATE)` while a pool has it open: a whole database, as with
//! stock SQLite in WAL mode, today and on every later day; and nothing is lost of what is committed next, whoever dies or comes meanwhile.

use plait_tests::actor::Actor;
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, CANTOPEN, NOTADB};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;";
const INSERT: &str = "INSERT INTO t(val) VALUES('new')";
const COUNT: &str = "SELECT count(*) FROM t";
const TRUNCATE: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
const AT_REST: [u8; 2] = [2, 2];
const FENCED: [u8; 2] = [3, 3];

/// Bytes 18 and 19 of the file itself.
fn versions(database: &Path) -> [u8; 2] {
    let bytes = std::fs::read(database).expect("the database can be read");
    [bytes[18], bytes[19]]
}

fn actor(name: &str, fixture: &Fixture) -> Actor {
    Actor::start(Place::Processes, name, &fixture.subject, &fixture.database())
}

fn pool(test: &str) -> Option<(Fixture, Actor, Actor)> {
    let fixture = Fixture::new(real_plait(test)?, ROWS);
    let (a, b) = (actor("a", &fixture), actor("b", &fixture));
    Some((fixture, a, b))
}

#[track_caller]
fn truncates(actor: &mut Actor) {
    let said = actor.ok(TRUNCATE);
    assert_eq!(said, [[0, 0, 0].map(Value::Integer).to_vec()]);
}

fn copy(fixture: &Fixture, name: &str) -> PathBuf {
    let copy = fixture.path(name);
    std::fs::copy(fixture.database(), &copy).expect("it can be copied");
    copy
}

/// Both libraries read these rows in it, and write to it.
#[track_caller]
fn is_whole(fixture: &Fixture, copy: &Path, rows: i64) {
    for (more, subject) in [Subject::stock(), fixture.subject.clone()].into_iter().enumerate() {
        let mut user = Actor::start(Place::Processes, "user", &subject, copy);
        assert_eq!(user.integer(COUNT), rows + i64::try_from(more).expect("small"));
        let checked = user.ok("PRAGMA integrity_check");
        assert_eq!(checked, [vec![Value::from("ok")]]);
        user.ok(INSERT);
        user.close().expect("it closes");
    }
}

#[track_caller]
fn is_refused(fixture: &Fixture, copy: &Path) {
    for (subject, code) in [(Subject::stock(), NOTADB), (fixture.subject.clone(), CANTOPEN)] {
        let mut user = Actor::idle(Place::Processes, "user", &subject);
        let refused = user.open(copy).err().or_else(|| user.run(COUNT).error);
        assert_eq!(refused.expect("it is not the whole database").code, code);
    }
}

/// What somebody else finds when all have closed.
#[track_caller]
fn is_sound(fixture: &Fixture, rows: i64) {
    let rest = fixture.open();
    assert_eq!(rest.integer(COUNT), Ok(rows));
    assert_eq!(rest.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

// holds CKPT-5, FENCE-1
#[test]
fn a_copy_behind_a_truncating_checkpoint_is_a_whole_database_on_every_day() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    let mut rows = 500;
    for day in 1..=3 {
        for writer in [&mut a, &mut b] {
            writer.ok(INSERT);
            rows += 1;
        }
        assert_eq!(versions(&fixture.database()), FENCED);
        truncates(&mut b);
        truncates(&mut a);
        assert_eq!(versions(&fixture.database()), AT_REST, "day {day}");
        let backup = copy(&fixture, &format!("day-{day}.db"));
        // Reading does not change that, of members or of newcomers.
        assert_eq!((a.integer(COUNT), b.integer(COUNT)), (rows, rows));
        let mut newcomer = actor("newcomer", &fixture);
        assert_eq!(newcomer.integer(COUNT), rows);
        newcomer.close().expect("it closes");
        assert_eq!(versions(&fixture.database()), AT_REST, "day {day}");
        is_whole(&fixture, &backup, rows);
    }
    a.close().expect("it closes");
    b.close().expect("it closes");
    // In its own place, too.
    std::fs::copy(fixture.path("day-2.db"), fixture.database()).expect("it can be restored");
    is_sound(&fixture, 506);
}

// holds FENCE-2, FENCE-3
#[test]
fn whatever_commits_next_raises_the_fence_before_it_is_acknowledged() {
    let next = [
        INSERT,
        "BEGIN IMMEDIATE; INSERT INTO t(val) VALUES('new'); COMMIT",
        "BEGIN; SELECT count(*) FROM t; INSERT INTO t(val) VALUES('new'); COMMIT",
        "BEGIN CONCURRENT; INSERT INTO t(val) VALUES('new'); COMMIT",
        "CREATE TABLE more(a); INSERT INTO t(val) VALUES('new')",
        "BEGIN; CREATE TABLE other(a); INSERT INTO t(val) VALUES('new'); COMMIT",
        "PRAGMA synchronous=NORMAL; INSERT INTO t(val) VALUES('new')",
        "PRAGMA synchronous=OFF; ALTER TABLE t ADD COLUMN w; INSERT INTO t(val) VALUES('new')",
        "ATTACH 'PLACE' AS x; CREATE TABLE IF NOT EXISTS x.y(z); BEGIN; INSERT INTO x.y VALUES(1);
         INSERT INTO t(val) VALUES('new'); COMMIT; DETACH x",
        "VACUUM; INSERT INTO t(val) VALUES('new')",
    ];
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    let beside = fixture.path("other.db").display().to_string();
    b.ok(INSERT);
    let mut rows = 501;
    for (i, sql) in next.into_iter().enumerate() {
        truncates(&mut b);
        assert_eq!(versions(&fixture.database()), AT_REST, "before {sql}");
        a.ok(&sql.replace("PLACE", &beside));
        rows += 1;
        assert_eq!(versions(&fixture.database()), FENCED, "behind {sql}");
        is_refused(&fixture, &copy(&fixture, &format!("refused-{i}.db")));
        assert_eq!(b.integer(COUNT), rows, "behind {sql}");
    }
    a.kill();
    b.kill();
    // As after a power cut.
    std::fs::remove_file(fixture.side_file("-plait-shm")).expect("it was left");
    is_sound(&fixture, rows);
}

#[test]
fn a_transaction_that_was_open_over_the_checkpoint_commits() {
    for begin in ["BEGIN CONCURRENT", "BEGIN IMMEDIATE", "BEGIN"] {
        let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
        b.ok(INSERT);
        truncates(&mut b);
        // It reads the file alone, so that no checkpoint has to wait for it.
        a.ok(begin);
        a.ok(INSERT);
        assert_eq!(versions(&fixture.database()), AT_REST, "{begin}");
        truncates(&mut b);
        let backup = copy(&fixture, "backup.db");
        assert_eq!(versions(&backup), AT_REST, "{begin}");
        a.ok("COMMIT");
        assert_eq!(versions(&fixture.database()), FENCED, "{begin}");
        assert_eq!(b.integer(COUNT), 502, "{begin}");
        is_whole(&fixture, &backup, 501);
        a.kill();
        b.kill();
        std::fs::remove_file(fixture.side_file("-plait-shm")).expect("it was left");
        is_sound(&fixture, 502);
    }
}

#[test]
fn a_checkpoint_of_all_files_is_told_of_the_first_alone() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    let beside = fixture.path("other.db");
    drop(fixture.subject.create(&beside).expect("it is made"));
    for actor in [&mut a, &mut b] {
        actor.ok(&format!("ATTACH '{}' AS x; CREATE TABLE IF NOT EXISTS x.y(z)", beside.display()));
    }
    b.ok("INSERT INTO x.y VALUES(1)");
    for _ in 0..2 {
        truncates(&mut a);
        assert_eq!(versions(&beside), AT_REST);
    }
    b.ok("INSERT INTO x.y VALUES(2); PRAGMA wal_checkpoint; BEGIN; INSERT INTO x.y VALUES(3)");
    truncates(&mut a);
    b.ok("COMMIT");
    is_whole(&fixture, &copy(&fixture, "backup.db"), 500);
}

/// As careful programs make a backup.
#[test]
fn writers_may_be_held_off_while_the_copy_is_made() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    b.ok(INSERT);
    truncates(&mut b);
    b.ok("BEGIN IMMEDIATE");
    a.busy_timeout(std::time::Duration::from_millis(100));
    assert_eq!(a.fails(INSERT, BUSY).code, BUSY);
    let backup = copy(&fixture, "backup.db");
    b.ok("ROLLBACK");
    is_whole(&fixture, &backup, 501);
    a.ok(INSERT);
    a.close().expect("it closes");
    b.close().expect("it closes");
    is_sound(&fixture, 502);
}

#[test]
fn a_checkpoint_that_leaves_the_fence_to_a_writer_does_not_say_three_zeros() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    b.ok(INSERT);
    b.ok("PRAGMA wal_checkpoint");
    // It reads the file alone, so that no checkpoint has to wait for it.
    a.ok("BEGIN IMMEDIATE");
    for write in ["", INSERT] {
        a.ok(write);
        let said = b.ok(TRUNCATE);
        assert_eq!(said, [[0, 1, 1].map(Value::Integer).to_vec()], "{write}");
        assert_eq!(versions(&fixture.database()), FENCED, "{write}");
    }
    a.ok("COMMIT");
    truncates(&mut b);
    is_whole(&fixture, &copy(&fixture, "backup.db"), 502);
}

#[test]
fn the_right_of_a_dead_process_keeps_no_checkpoint_from_leaving_the_file_at_rest() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    b.ok(INSERT);
    b.ok("PRAGMA wal_checkpoint");
    a.ok("BEGIN IMMEDIATE");
    a.kill();
    truncates(&mut b);
    is_whole(&fixture, &copy(&fixture, "backup.db"), 501);
}

#[test]
fn whoever_checkpoints_first_finds_the_fence_of_a_dead_author() {
    for point in ["fence.committed", "fence.raised"] {
        if real_plait("checkpointed copies").is_none() {
            return;
        }
        let subject = Subject::plait_with_crash_points();
        let fixture = Fixture::new(subject.clone(), ROWS);
        let mut b = actor("b", &fixture);
        assert_eq!(b.integer(COUNT), 500);
        let dies = ("PLAIT_CRASH_AT", point);
        let mut author =
            Actor::start_with_environment("author", &subject, &fixture.database(), dies);
        author.send(INSERT);
        author.await_death();
        assert_eq!(b.ok("PRAGMA wal_checkpoint(RESTART)")[0][0], Value::Integer(0), "{point}");
        truncates(&mut b);
        is_whole(&fixture, &copy(&fixture, "backup.db"), 500);
    }
}

#[test]
fn a_commit_over_several_files_that_was_open_over_the_checkpoint_commits() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    let beside = fixture.path("other.db");
    drop(fixture.subject.create(&beside).expect("it is made"));
    b.ok(INSERT);
    a.ok(&format!("ATTACH '{}' AS x; CREATE TABLE x.y(z)", beside.display()));
    for (rows, end) in [(502, "COMMIT"), (502, "ROLLBACK"), (503, "COMMIT")] {
        truncates(&mut b);
        // As above.
        a.ok("BEGIN; INSERT INTO x.y VALUES(1)");
        a.ok(INSERT);
        truncates(&mut b);
        assert_eq!(versions(&fixture.database()), AT_REST);
        a.ok(end);
        assert_eq!((a.integer(COUNT), b.integer(COUNT)), (rows, rows));
        assert_eq!(versions(&fixture.database()), if end == "COMMIT" { FENCED } else { AT_REST });
    }
    a.kill();
    b.kill();
    std::fs::remove_file(fixture.side_file("-plait-shm")).expect("it was left");
    is_sound(&fixture, 503);
}

#[test]
fn a_reader_keeps_its_snapshot_over_the_checkpoint_and_what_comes_after() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    b.ok(INSERT);
    truncates(&mut b);
    b.ok(INSERT);
    b.ok("PRAGMA wal_checkpoint");
    // It reads the file alone, so that no checkpoint has to wait for it.
    a.ok("BEGIN");
    assert_eq!(a.integer(COUNT), 502);
    truncates(&mut b);
    assert_eq!(versions(&fixture.database()), AT_REST);
    b.ok("DELETE FROM t WHERE id<=250; CREATE TABLE more(a)");
    b.ok("PRAGMA wal_checkpoint");
    assert_eq!(a.integer("SELECT count(*) FROM t NOT INDEXED"), 502);
    a.ok("COMMIT");
    assert_eq!(a.integer(COUNT), 252);
}

// holds FENCE-4
#[test]
fn stock_sqlite_is_kept_off_while_members_live_and_comes_in_when_all_are_dead() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    a.ok(INSERT);
    truncates(&mut b);
    let mut stock = Actor::idle(Place::Processes, "stock", &Subject::stock());
    stock.open(&fixture.database()).expect("it opens when it is used");
    for sql in [COUNT, INSERT] {
        assert_eq!(stock.fails(sql, CANTOPEN).code, CANTOPEN);
    }
    b.ok(INSERT);
    truncates(&mut a);
    // It comes too late for what keeps the WAL-index: the first of those who come then makes it anew.
    stock.close().expect("it closes");
    a.kill();
    b.kill();
    assert_eq!(versions(&fixture.database()), AT_REST);
    let mut stock = Actor::start(Place::Processes, "stock", &Subject::stock(), &fixture.database());
    assert_eq!(stock.integer(COUNT), 502);
    stock.ok(INSERT);
    // Beside it, and after it.
    let mut member = actor("member", &fixture);
    assert_eq!(member.integer(COUNT), 503);
    stock.ok(INSERT);
    stock.close().expect("it closes");
    member.ok(INSERT);
    assert_eq!(member.integer(COUNT), 505);
    member.close().expect("it closes");
    is_sound(&fixture, 505);
}

#[test]
fn a_stock_program_that_holds_the_wal_index_of_a_dead_session_loses_nothing() {
    for forgets in [&[][..], &["-plait-shm"], &["-plait-shm", "-plait"]] {
        let Some((fixture, mut a, b)) = pool("checkpointed copies") else { return };
        a.ok(INSERT);
        let mut stock = Actor::idle(Place::Processes, "stock", &Subject::stock());
        stock.open(&fixture.database()).expect("it opens when it is used");
        truncates(&mut a);
        stock.fails(COUNT, CANTOPEN);
        a.kill();
        b.kill();
        for suffix in forgets {
            std::fs::remove_file(fixture.side_file(suffix)).expect("it was left");
        }
        if forgets.len() < 2 {
            let mut member = actor("member", &fixture);
            assert_eq!(member.integer(COUNT), 501, "{forgets:?}");
            member.ok(INSERT);
            member.close().expect("it closes");
            assert_eq!(stock.integer(COUNT), 502, "{forgets:?}");
        }
        stock.close().expect("it closes");
        is_sound(&fixture, if forgets.len() < 2 { 502 } else { 501 });
    }
}

#[test]
fn a_session_whose_processes_have_died_is_continued_or_begun_anew() {
    // What has happened to the machine, and whether somebody has committed behind the checkpoint.
    for (removed, commits) in
        [(&[][..], false), (&[], true), (&["-plait-shm"], false), (&["-plait-shm"], true)]
    {
        let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
        a.ok(INSERT);
        truncates(&mut b);
        if commits {
            b.ok(INSERT);
        }
        a.kill();
        b.kill();
        for suffix in removed.iter().chain(&["-shm"]) {
            std::fs::remove_file(fixture.side_file(suffix)).expect("it was left");
        }
        let rows = 501 + i64::from(commits);
        let [mut a, mut b] = ["a", "b"].map(|name| actor(name, &fixture));
        assert_eq!((a.integer(COUNT), b.integer(COUNT)), (rows, rows));
        a.ok(INSERT);
        truncates(&mut b);
        is_whole(&fixture, &copy(&fixture, "backup.db"), rows + 1);
        b.ok(INSERT);
        a.close().expect("it closes");
        b.close().expect("it closes");
        is_sound(&fixture, rows + 2);
    }
}

#[test]
fn without_its_log_a_database_is_refused_only_if_somebody_has_committed() {
    for commits in [false, true] {
        let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
        a.ok(INSERT);
        truncates(&mut b);
        if commits {
            b.ok(INSERT);
        }
        a.kill();
        b.kill();
        for suffix in ["-plait", "-plait-shm", "-wal", "-shm"] {
            std::fs::remove_file(fixture.side_file(suffix)).expect("it was left");
        }
        if commits {
            is_refused(&fixture, &fixture.database());
        } else {
            is_sound(&fixture, 501);
        }
    }
}

#[test]
fn another_file_in_the_place_of_a_lowered_one_is_noticed() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    a.ok(INSERT);
    truncates(&mut b);
    let older = std::fs::read(fixture.database()).expect("the backup of a day before");
    a.ok(INSERT);
    truncates(&mut b);
    let newest = std::fs::read(fixture.database()).expect("the newest");
    std::fs::write(fixture.database(), &older).expect("it is copied over it");
    std::thread::sleep(std::time::Duration::from_millis(50));
    for sql in [COUNT, INSERT, "CREATE TABLE more(a)"] {
        assert_eq!(a.fails(sql, CANTOPEN).code, CANTOPEN, "{sql}");
    }
    let mut newcomer = Actor::idle(Place::Processes, "newcomer", &fixture.subject);
    let refused = newcomer.open(&fixture.database()).err().or_else(|| newcomer.run(COUNT).error);
    assert_eq!(refused.expect("it is another").code, CANTOPEN);
    assert_eq!(std::fs::read(fixture.database()).expect("it is there"), older, "untouched");
    std::fs::write(fixture.database(), &newest).expect("it is put back");
    assert_eq!(b.integer(COUNT), 502);
    b.ok(INSERT);
    a.close().expect("it closes");
    b.close().expect("it closes");
    is_sound(&fixture, 503);
}

/// A session whose fence is lowered, of one process that has only read: it has no hidden connection.
fn read_last(test: &str) -> Option<(Fixture, Actor)> {
    let (fixture, mut a, mut b) = pool(test)?;
    let mut reader = actor("reader", &fixture);
    b.ok(INSERT);
    assert_eq!(reader.integer(COUNT), 501);
    truncates(&mut a);
    assert_eq!(versions(&fixture.database()), AT_REST);
    a.close().expect("it closes");
    b.close().expect("it closes");
    Some((fixture, reader))
}

// holds FILE-1, FENCE-7
#[test]
fn a_lowered_session_that_is_closed_last_by_a_process_that_only_read_leaves_the_file_alone() {
    let Some((fixture, mut reader)) = read_last("checkpointed copies") else { return };
    reader.close().expect("it closes");
    for suffix in ["-plait", "-plait-shm", "-wal", "-shm"] {
        assert!(!fixture.side_file(suffix).exists(), "{suffix}");
    }
    is_sound(&fixture, 501);
}

/// The last process has closed its WAL, and is stopped before it ends the session.
// holds JOIN-2
#[test]
fn a_process_that_comes_as_a_lowered_session_ends_waits_for_the_end_and_then_writes() {
    const LIFECYCLE: i64 = 1 << 40;
    let Some((fixture, mut reader)) = read_last("checkpointed copies") else { return };
    let path = fixture.side_file("-plait-shm");
    let shared = std::fs::File::options().read(true).write(true).open(path).expect("it is there");
    assert!(os::lock_byte(&shared, LIFECYCLE), "no process opens or closes it");
    reader.send_close();
    let deadline = Instant::now() + Duration::from_secs(1);
    while fixture.side_file("-wal").exists() {
        assert!(Instant::now() < deadline, "the WAL is not closed");
        std::thread::sleep(Duration::from_millis(1));
    }
    // It lets go of the file, and waits for the byte.
    std::thread::sleep(Duration::from_millis(150));
    os::suspend(reader.pid()).expect("it is stopped");
    drop(shared);
    let mut newcomer = Actor::idle(Place::Processes, "newcomer", &fixture.subject);
    newcomer.open(&fixture.database()).expect("opening looks at nothing yet");
    newcomer.busy_timeout(Duration::from_secs(20));
    let reads_and_writes = format!("BEGIN CONCURRENT; {COUNT}; COMMIT; {INSERT}");
    newcomer.send(&reads_and_writes);
    std::thread::sleep(Duration::from_millis(200));
    os::resume(reader.pid()).expect("it goes on");
    assert_eq!(newcomer.finish().error, None);
    assert_eq!(reader.finish().error, None);
    newcomer.close().expect("it closes");
    is_sound(&fixture, 502);
}

/// POSIX gives up the locks of the pool on the file when the program that has it makes the copy itself.
#[test]
fn a_stock_program_that_shuts_all_others_out_by_locks_that_were_dropped_is_noticed() {
    for closes in [false, true] {
        let Some(subject) = real_plait("checkpointed copies") else { return };
        let fixture = Fixture::new(subject, ROWS);
        let [a, b] = [fixture.open(), fixture.open()];
        for connection in [&a, &b] {
            connection.execute(INSERT).expect("it commits");
        }
        a.execute(TRUNCATE).expect("nobody is in the way");
        drop(std::fs::read(fixture.database()).expect("it is copied"));
        let mut stock = Actor::idle(Place::Processes, "stock", &Subject::stock());
        stock.open(&fixture.database()).expect("it opens when it is used");
        stock.ok("PRAGMA locking_mode=EXCLUSIVE");
        let is_in = stock.run("UPDATE t SET val='stock' WHERE id=1").error.is_none();
        if closes {
            stock.close().expect("it closes");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        let commit = b.execute(INSERT);
        assert_eq!(commit.is_err(), is_in, "{commit:?}, closed: {closes}");
        drop(stock);
        drop((a, b));
        let rest = fixture.open();
        assert_eq!(rest.integer(COUNT), Ok(if is_in { 502 } else { 503 }));
        let stocks = rest.integer("SELECT count(*) FROM t WHERE val='stock'");
        assert_eq!(stocks, Ok(i64::from(is_in)));
        assert_eq!(rest.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

#[test]
fn a_connection_that_has_not_joined_yet_does_when_it_finds_a_lowered_fence() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    let (subject, database) = (&fixture.subject, fixture.database());
    let visits = ("PLAIT_JOIN", "when needed");
    let mut idle = Actor::start_with_environment("idle", subject, &database, visits);
    assert_eq!(idle.integer(COUNT), 500);
    a.ok(INSERT);
    b.ok(INSERT);
    truncates(&mut b);
    assert_eq!(idle.integer(COUNT), 502);
    idle.ok(INSERT);
    assert_eq!((a.integer(COUNT), versions(&fixture.database())), (503, FENCED));
    truncates(&mut idle);
    assert_eq!(versions(&fixture.database()), AT_REST);
    a.ok(INSERT);
    for mut actor in [idle, a, b] {
        actor.close().expect("it closes");
    }
    is_sound(&fixture, 504);
}

/// What undoes a commit over several files is a frame without rows. It counts as merged like any other.
#[test]
fn a_commit_that_was_rolled_back_last_is_missed_by_nobody_when_the_fence_has_gone() {
    for (point, is_reboot) in
        [("close.unfenced", true), ("close.unfenced", false), ("fence.lowered", true)]
    {
        if real_plait("checkpointed copies").is_none() {
            return;
        }
        let subject = Subject::plait_with_crash_points();
        let fixture = Fixture::new(subject.clone(), ROWS);
        let (database, beside) = (fixture.database(), fixture.path("other.db"));
        let other = subject.create(&beside).expect("it is made");
        other.execute("CREATE TABLE y(z)").expect("a table");
        drop(other);
        let mut heir = Actor::in_process_with("heir", &subject, &[("PLAIT_CRASH_AT", point)]);
        heir.open(&database).expect("it opens");
        heir.ok(INSERT);
        heir.ok("PRAGMA wal_checkpoint");
        let dies = ("PLAIT_CRASH_AT", "several.prepared");
        let mut author = Actor::start_with_environment("author", &subject, &database, dies);
        author.ok(&format!("ATTACH '{}' AS x", beside.display()));
        author.ok("BEGIN; INSERT INTO x.y VALUES(1)");
        author.ok(INSERT);
        author.send("COMMIT");
        author.await_death();
        assert_eq!(heir.integer(COUNT), 501, "{point}");
        match point {
            "fence.lowered" => heir.send(TRUNCATE),
            _ => heir.send_close(),
        }
        heir.await_death();
        assert_eq!(versions(&database), AT_REST, "{point}");
        if is_reboot {
            std::fs::remove_file(fixture.side_file("-plait-shm")).expect("it was left");
        }
        is_sound(&fixture, 501);
    }
}

/// The WAL-index that is made anew when all have died knows no fence, and there may be nothing to merge.
#[test]
fn a_session_that_goes_on_after_the_death_of_all_lowers_its_fence_too() {
    for point in [None, Some("fence.lowering"), Some("fence.raised_again")] {
        if real_plait("checkpointed copies").is_none() {
            return;
        }
        let subject = Subject::plait_with_crash_points();
        let fixture = Fixture::new(subject.clone(), ROWS);
        let mut a = match point {
            None => Actor::start(Place::Processes, "a", &subject, &fixture.database()),
            Some(point) => {
                let dies = ("PLAIT_CRASH_AT", point);
                Actor::start_with_environment("a", &subject, &fixture.database(), dies)
            }
        };
        let b = actor("b", &fixture);
        a.ok(INSERT);
        match point {
            None => {
                a.ok("PRAGMA wal_checkpoint");
                a.kill();
            }
            Some(point) => {
                if point == "fence.raised_again" {
                    truncates(&mut a);
                    a.send(INSERT);
                } else {
                    a.send(TRUNCATE);
                }
                a.await_death();
            }
        }
        b.kill();
        assert_eq!(versions(&fixture.database()), FENCED, "{point:?}");
        let [mut a, mut b] = ["a", "b"].map(|name| actor(name, &fixture));
        assert_eq!(a.integer(COUNT), 501, "{point:?}");
        truncates(&mut b);
        assert_eq!(versions(&fixture.database()), AT_REST, "{point:?}");
        // What was lowered already is not gone on with: the new session has not begun to write.
        if point.is_none() {
            let mut stock = Actor::idle(Place::Processes, "stock", &Subject::stock());
            let refused = stock.open(&fixture.database()).err().or_else(|| stock.run(COUNT).error);
            assert_eq!(refused.expect("members are there").code, CANTOPEN);
        }
        let backup = copy(&fixture, "backup.db");
        assert_eq!((a.integer(COUNT), b.integer(COUNT)), (501, 501), "{point:?}");
        a.ok(INSERT);
        assert_eq!(versions(&fixture.database()), FENCED, "{point:?}");
        is_whole(&fixture, &backup, 501);
        for actor in [a, b] {
            actor.kill();
        }
        is_sound(&fixture, 502);
    }
}

/// As it may be when who raised it died; and then somebody removes the log, which has nothing that the file lacks.
// holds FENCE-1
#[test]
fn a_session_that_had_lowered_its_fence_needs_no_log() {
    for raised in [true, false] {
        let Some((fixture, mut a, b)) = pool("checkpointed copies") else { return };
        a.ok(INSERT);
        truncates(&mut a);
        a.kill();
        b.kill();
        if raised {
            let mut bytes = std::fs::read(fixture.database()).expect("it can be read");
            bytes[18..20].fill(3);
            std::fs::write(fixture.database(), bytes).expect("it can be written");
        }
        std::fs::remove_file(fixture.side_file("-plait")).expect("it was left");
        is_sound(&fixture, 501);
        is_whole(&fixture, &copy(&fixture, "backup.db"), 501);
    }
}

/// Of the session that was killed, while it was under way: log and memory are its own, and have commits that it lacks.
#[test]
fn a_copy_in_the_place_of_its_killed_database_is_refused_until_it_is_accepted() {
    for (memory, moved, merged) in
        [(true, false, false), (true, true, false), (false, false, false), (false, true, true)]
    {
        let what = format!("memory: {memory}, moved: {moved}, merged: {merged}");
        let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
        let database = fixture.database();
        b.ok(INSERT);
        truncates(&mut b);
        let backup = copy(&fixture, "backup.db");
        a.ok(INSERT);
        if merged {
            a.ok("PRAGMA wal_checkpoint");
            a.ok(INSERT);
        }
        a.kill();
        b.kill();
        let removed = ["-wal", "-shm", "-plait-shm"];
        for suffix in &removed[..if memory { 2 } else { 3 }] {
            std::fs::remove_file(fixture.side_file(suffix)).expect("it was left");
        }
        if moved {
            std::fs::remove_file(&database).expect("it is removed");
        }
        std::fs::copy(&backup, &database).expect("it is restored");
        let log = std::fs::read(fixture.side_file("-plait")).expect("the log");
        let opened = fixture.subject.open(&database).and_then(|db| db.integer(COUNT));
        let error = opened.expect_err("it lacks commits");
        assert_eq!(error.code, CANTOPEN, "{what}: {error}");
        assert!(error.message.contains("--accept-base"), "{what}: {error}");
        assert_eq!(std::fs::read(&database).ok(), std::fs::read(&backup).ok(), "{what}");
        assert_eq!(std::fs::read(fixture.side_file("-plait")).ok(), Some(log.clone()), "{what}");
        let Some(mut command) = fixture.subject.command() else { return };
        command.args(["recover", "--accept-base", "--yes"]).arg(&database);
        let said = command.output().expect("it runs");
        assert!(said.status.success(), "{what}: {}", String::from_utf8_lossy(&said.stderr));
        is_sound(&fixture, 501);
        let kept = std::fs::read(fixture.side_file("-plait-given-up-1"));
        assert_eq!(kept.ok(), Some(log), "{what}");
    }
}

#[test]
fn behind_a_removed_wal_index_the_fence_stays_up() {
    let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
    a.ok(INSERT);
    assert_eq!(b.integer(COUNT), 501);
    std::fs::remove_file(fixture.side_file("-shm")).expect("somebody removes it");
    for _ in 0..2 {
        assert_eq!(b.ok(TRUNCATE), [[0, 1, 1].map(Value::Integer).to_vec()]);
        assert_eq!(versions(&fixture.database()), FENCED);
        is_refused(&fixture, &copy(&fixture, "refused.db"));
        a.ok(INSERT);
    }
    a.close().expect("it closes");
    b.close().expect("it closes");
    is_sound(&fixture, 503);
}

// holds FENCE-6
#[test]
fn a_stock_program_that_comes_to_a_lowered_file_by_another_wal_index_is_noticed() {
    for (writes, closes) in [(false, true), (true, false), (true, true)] {
        let Some((fixture, mut a, mut b)) = pool("checkpointed copies") else { return };
        a.ok(INSERT);
        truncates(&mut b);
        std::fs::remove_file(fixture.side_file("-shm")).expect("somebody removes it");
        let mut stock =
            Actor::start(Place::Processes, "stock", &Subject::stock(), &fixture.database());
        assert_eq!(stock.integer(COUNT), 501);
        if writes {
            stock.ok("UPDATE t SET val='stock' WHERE id=1");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        // Ours that come later are refused as well.
        let mut newcomer = Actor::idle(Place::Processes, "newcomer", &fixture.subject);
        let refused = newcomer.open(&fixture.database()).err();
        let refused = refused.or_else(|| newcomer.run(COUNT).error).expect("two WAL-indexes");
        assert_eq!(refused.code, CANTOPEN, "{refused}");
        drop(newcomer);
        for begin in ["", "BEGIN CONCURRENT; ", "BEGIN IMMEDIATE; "] {
            let end = if begin.is_empty() { "" } else { "; COMMIT" };
            let error = a.fails(&format!("{begin}{INSERT}{end}"), CANTOPEN);
            assert!(writes || error.message.contains("-shm was removed"), "{error}");
            a.run("ROLLBACK");
        }
        // Who looks for others shuts the door before.
        assert_eq!(versions(&fixture.database()), if writes { AT_REST } else { FENCED });
        if closes {
            stock.close().expect("it closes");
        } else {
            stock.kill();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        if writes {
            assert_eq!(b.fails(INSERT, CANTOPEN).code, CANTOPEN);
        } else {
            b.ok(INSERT);
            assert_eq!(versions(&fixture.database()), FENCED);
            assert_eq!(a.integer(COUNT), 502);
        }
        let _ = a.close();
        let _ = b.close();
        is_sound(&fixture, if writes { 501 } else { 502 });
        let rest = fixture.open();
        let stocks = rest.integer("SELECT count(*) FROM t WHERE val='stock'");
        assert_eq!(stocks, Ok(i64::from(writes)));
    }
}

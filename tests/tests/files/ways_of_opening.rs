//! Opening a concurrent database in ways that cannot be concurrent: at rest it is a plain file, under the fence it is refused.

use plait_tests::actor::Actor;
use plait_tests::job::{Job, Work};
use plait_tests::jobs::process_rules::{Daemon, Met};
use plait_tests::jobs::stranger::{Stranger, Told};
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, CANTOPEN, Connection, OpenFlags, READONLY, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;";
const COUNT: &str = "SELECT count(*) FROM t";

/// Ways of opening that have no concurrent mode.
const WAYS: [&str; 5] =
    ["immutable=1", "nolock=1", "vfs=unix-none", "vfs=unix-excl", "cache=shared"];

fn open_as(fixture: &Fixture, how: &str) -> Connection {
    let uri = format!("file:{}?{how}", fixture.database().display());
    let connection = fixture.subject.library().open_with(&uri, OpenFlags::Uri).expect("it opens");
    connection.busy_timeout(Duration::from_millis(100)).expect("a timeout");
    connection
}

/// What statements answer: rows, or a code.
fn answers(connection: &Connection) -> Vec<Result<Vec<Vec<Value>>, i32>> {
    [
        COUNT,
        "PRAGMA integrity_check",
        "PRAGMA page_count",
        "PRAGMA wal_checkpoint",
        "PRAGMA data_version",
        "INSERT INTO t(val) VALUES('new')",
        COUNT,
    ]
    .iter()
    .map(|sql| connection.query(sql).map_err(|error| error.extended))
    .collect()
}

#[track_caller]
fn refused(outcome: Result<Value, SqlError>, how: &str) {
    let error = outcome.expect_err(how);
    assert_eq!(error.code, CANTOPEN, "{how}: {error}");
}

#[test]
fn a_resting_file_is_opened_in_every_way_as_stock_opens_a_wal_database() {
    let Some(subject) = real_plait("opening") else { return };
    for how in WAYS.into_iter().chain(["mode=ro", "mode=ro&immutable=1"]) {
        let [ours, stock] = [subject.clone(), Subject::stock()].map(|subject| {
            let fixture = Fixture::new(subject, ROWS);
            let connection = open_as(&fixture, how);
            let said = answers(&connection);
            let image = connection.serialize().map(|image| image.len()).ok();
            assert!(!fixture.side_file("-plait-shm").exists(), "{how}: nobody writes beside it");
            connection.close().expect("it closes");
            let again = fixture.open();
            let mode = again.text("PRAGMA journal_mode").expect("a mode");
            assert_eq!(mode, fixture.subject.mode.name(), "{how}: the mode stays");
            (said, image, again.integer(COUNT))
        });
        assert_eq!(ours, stock, "{how}");
    }
}

#[test]
fn who_reads_a_resting_file_is_told_its_mode() {
    let Some(subject) = real_plait("opening") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let reader = open_as(&fixture, "mode=ro");
    for ask in ["PRAGMA journal_mode", "PRAGMA journal_mode=wal", "PRAGMA journal_mode=concurrent"]
    {
        assert_eq!(reader.text(ask).as_deref(), Ok("concurrent"), "{ask}");
    }
}

#[test]
fn a_fenced_file_is_refused_to_who_cannot_join() {
    let Some(subject) = real_plait("opening") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let mut writer =
        Actor::start(Place::Processes, "writer", &fixture.subject, &fixture.database());
    writer.ok("INSERT INTO t(val) VALUES('only in the log')");
    for how in WAYS.into_iter().filter(|how| *how != "vfs=unix-excl") {
        refused(open_as(&fixture, how).value(COUNT), how);
        refused(open_as(&fixture, how).value("INSERT INTO t(val) VALUES('no')"), how);
    }
    writer.kill();
    for how in WAYS {
        refused(open_as(&fixture, how).value(COUNT), how);
        refused(open_as(&fixture, how).value("PRAGMA journal_mode=delete"), how);
    }
    let shared = open_as(&fixture, "cache=shared");
    let error = shared.value(COUNT).expect_err("it is fenced");
    for word in ["shared-cache", "plait recover"] {
        assert!(error.message.contains(word), "{word}: {error}");
    }
    assert_eq!(fixture.open().integer(COUNT), Ok(501));
    assert_eq!(shared.integer(COUNT), Ok(501), "recovered, it is at rest");
}

#[test]
fn a_shared_cache_and_a_session_take_turns() {
    let Some(subject) = real_plait("opening") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let shared = [open_as(&fixture, "cache=shared"), open_as(&fixture, "cache=shared")];
    assert_eq!(shared[0].integer(COUNT), Ok(500));
    for round in 1..4 {
        let member = fixture.open();
        assert_eq!(member.integer(COUNT), Ok(500 + 2 * (round - 1)));
        shared[1]
            .execute("INSERT INTO t(val) VALUES('before the fence')")
            .expect("it is not fenced");
        assert_eq!(member.integer(COUNT), Ok(500 + 2 * round - 1), "the session sees it");
        member.execute("INSERT INTO t(val) VALUES('in the session')").expect("an insert");
        for handle in &shared {
            refused(handle.value(COUNT), "under the fence");
        }
        member.close().expect("it closes");
        for handle in &shared {
            assert_eq!(handle.integer(COUNT), Ok(500 + 2 * round), "at rest again");
        }
    }
    assert_eq!(shared[0].text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn a_reader_joins_when_the_file_is_fenced_and_sees_every_commit() {
    let Some(subject) = real_plait("opening") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let reader = open_as(&fixture, "mode=ro");
    assert_eq!(reader.integer(COUNT), Ok(500));
    let writer = fixture.open();
    reader.execute("BEGIN").expect("it begins");
    assert_eq!(reader.integer(COUNT), Ok(500));
    writer.execute("INSERT INTO t(val) VALUES('live')").expect("an insert");
    assert_eq!(reader.integer(COUNT), Ok(500), "its snapshot stays");
    writer.execute("PRAGMA wal_checkpoint; UPDATE t SET val='x'").expect("a merge beside it");
    assert_eq!(reader.integer("SELECT count(*) FROM t WHERE val='x'"), Ok(0), "its snapshot stays");
    reader.execute("COMMIT").expect("it ends");
    assert_eq!(reader.integer("SELECT count(*) FROM t WHERE val='x'"), Ok(501));
    assert_eq!(reader.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    reader.execute("INSERT INTO t(val) VALUES('no')").expect_err("read only");
}

#[test]
fn another_user_reads_a_resting_file_and_is_told_of_commits_beside_it() {
    let Some(subject) = real_plait("opening") else { return };
    if !os::is_root() {
        eprintln!("skipped: only root can make files that this user may not write");
        return;
    }
    let fixture = Fixture::new(subject, ROWS);
    let allow = |path: &Path, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("the owner may do that");
    };
    allow(fixture.directory(), 0o777);
    allow(&fixture.database(), 0o444);
    let told = || -> Told {
        let (subject, work) = (fixture.subject.clone(), Work::Stranger(Stranger));
        let job = Job { subject, database: fixture.database(), work };
        job.start(Place::Processes).result(Duration::from_secs(60))
    };
    assert_eq!(told(), Told::Rows(500), "at rest it is a plain file");

    let mut victim =
        Actor::start(Place::Processes, "victim", &fixture.subject, &fixture.database());
    victim.ok("INSERT INTO t(val) VALUES('only in the log')");
    let is_refused = |state: &str| match told() {
        Told::Refused(CANTOPEN, text) if text.contains("plait recover") => {}
        other => panic!("{state}: {other:?}"),
    };
    is_refused("live");
    victim.kill();
    is_refused("crashed");
    std::fs::remove_file(fixture.side_file("-plait-shm")).expect("as after a power cut");
    is_refused("after a power cut");
    assert_eq!(fixture.open().integer(COUNT), Ok(501));
}

#[test]
fn a_vfs_that_hands_out_the_systems_own_files_is_no_reason_to_refuse() {
    let Some(subject) = real_plait("opening") else { return };
    subject.library().register_forwarding_vfs(c"forwards");
    let fixture = Fixture::empty(subject);
    let uri = format!("file:{}?vfs=forwards", fixture.database().display());
    let open = || fixture.subject.library().open_with(&uri, OpenFlags::Uri).expect("it opens");
    let first = open();
    assert_eq!(first.text("PRAGMA journal_mode=concurrent").as_deref(), Ok("concurrent"));
    first.execute(ROWS).expect("rows");
    let (second, usual) = (open(), fixture.open());
    second.execute("BEGIN CONCURRENT; INSERT INTO t(val) VALUES('second')").expect("a transaction");
    usual.execute("INSERT INTO t(val) VALUES('usual')").expect("beside it");
    second.execute("COMMIT").expect("they do not meet");
    assert_eq!(first.integer(COUNT), Ok(502));
}

/// As programs guard a single instance: the second one is refused, whichever pragma comes first, on the first run and on later ones.
#[test]
fn who_asks_for_exclusive_locking_has_the_file_for_itself_as_in_wal_mode() {
    let Some(subject) = real_plait("locking mode") else { return };
    let asks = ["PRAGMA journal_mode", "PRAGMA locking_mode=EXCLUSIVE"];
    let write = "BEGIN EXCLUSIVE; INSERT INTO t(val) VALUES('own'); COMMIT";
    for order in [[0, 1], [1, 0]] {
        for early in [true, false] {
            let fixture = Fixture::new(subject.clone(), ROWS);
            for run in 1..3 {
                let first = fixture.open();
                if early {
                    // It has worked alone, or is a member, before it asks.
                    first.execute("BEGIN; SELECT count(*) FROM t; COMMIT").expect("a look");
                }
                let said = order.map(|i| first.text(asks[i]).expect("an answer"));
                assert_eq!(said[order[1]], "exclusive", "{order:?}");
                first.execute(write).expect("it writes");
                let second = fixture.open();
                second.busy_timeout(Duration::from_millis(50)).expect("a timeout");
                for sql in [COUNT, write] {
                    let error = second.execute(sql).expect_err("the first one has it");
                    assert_eq!(error.code, BUSY, "{order:?}, run {run}: {error}");
                }
                assert_eq!(first.integer(COUNT), Ok(500 + run), "{order:?}");
                first.close().expect("it closes");
                assert_eq!(second.integer(COUNT), Ok(500 + run), "{order:?}: now it may");
            }
        }
    }
}

/// The dead-man byte of the WAL-index has a lock of an open file, as other code in the process cannot drop it.
fn is_held(database: &Path) -> bool {
    let index = format!("{}-shm", database.display());
    let inode = std::fs::metadata(index).expect("a WAL-index").ino();
    let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's locks");
    let end = format!(":{inode} 128 128");
    locks.lines().any(|line| line.contains("OFDLCK") && line.ends_with(&end))
}

/// With its first access behind it, a handle can leave exclusive locking as in WAL mode.
#[test]
fn who_gives_exclusive_locking_up_lets_others_in_as_in_wal_mode() {
    let Some(subject) = real_plait("locking mode") else { return };
    for was_member in [false, true] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let (first, second) = (fixture.open(), fixture.open());
        second.busy_timeout(Duration::from_millis(50)).expect("a timeout");
        first.execute("INSERT INTO t(val) VALUES('before')").expect("it writes");
        if was_member {
            second.execute("INSERT INTO t(val) VALUES('beside it')").expect("it writes");
            let members = "SELECT value>1 FROM plait_status WHERE name='connections'";
            assert_eq!(first.integer(members), Ok(1));
        }
        let second = match was_member {
            false => Some(second),
            true => second.close().map(|()| None).expect("it closes"),
        };
        let rows = 501 + i64::from(was_member);
        assert_eq!(first.text("PRAGMA locking_mode=EXCLUSIVE").as_deref(), Ok("exclusive"));
        first.execute("INSERT INTO t(val) VALUES('alone')").expect("it writes");
        assert!(is_held(&fixture.database()), "DEADMAN-1: was a member: {was_member}");
        let second = second.unwrap_or_else(|| fixture.open());
        assert_eq!(second.integer(COUNT).expect_err("the first one has it").code, BUSY);
        assert_eq!(first.text("PRAGMA locking_mode=NORMAL").as_deref(), Ok("normal"));
        assert_eq!(first.integer(COUNT), Ok(rows + 1));
        assert_eq!(second.integer(COUNT), Ok(rows + 1), "was a member: {was_member}");
        second.execute("INSERT INTO t(val) VALUES('again')").expect("and it writes");
        assert_eq!(first.integer(COUNT), Ok(rows + 2));
    }
}

#[test]
fn exclusive_locking_beside_a_session_waits_for_its_end_and_after_a_crash_recovers() {
    let Some(subject) = real_plait("locking mode") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let mut member =
        Actor::start(Place::Processes, "member", &fixture.subject, &fixture.database());
    member.ok("INSERT INTO t(val) VALUES('only in the log')");
    let guard = fixture.open();
    guard.busy_timeout(Duration::from_millis(50)).expect("a timeout");
    assert_eq!(guard.text("PRAGMA locking_mode=EXCLUSIVE").as_deref(), Ok("exclusive"));
    let error = guard.execute("INSERT INTO t(val) VALUES('no')").expect_err("a member is there");
    assert_eq!(error.code, BUSY, "{error}");
    member.ok("INSERT INTO t(val) VALUES('it goes on')");
    member.kill();
    assert_eq!(guard.integer(COUNT), Ok(502), "what the killed one left is recovered");
    guard.execute("INSERT INTO t(val) VALUES('own')").expect("and it writes");
    let second = fixture.open();
    second.busy_timeout(Duration::from_millis(50)).expect("a timeout");
    assert_eq!(second.integer(COUNT).expect_err("it has the file").code, BUSY);
    assert_eq!(guard.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    let said = guard.text("PRAGMA locking_mode=NORMAL");
    assert_eq!(
        said.as_deref(),
        Ok("exclusive"),
        "it has met the file in that mode, as in WAL mode"
    );
    guard.close().expect("it closes");
    assert_eq!(second.integer(COUNT), Ok(503));
}

#[test]
fn a_log_that_a_process_uses_is_not_called_anothers() {
    let Some(subject) = real_plait("a deleted file") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let mut old = Actor::start(Place::Processes, "old", &fixture.subject, &fixture.database());
    old.ok("INSERT INTO t(val) VALUES('in the old file')");
    std::fs::remove_file(fixture.database()).expect("somebody deletes it");
    let new = fixture.open();
    let error = new.text("PRAGMA journal_mode=concurrent").expect_err("the log is in use");
    assert_eq!(error.code, CANTOPEN, "{error}");
    assert!(error.message.contains("in use by processes"), "{error}");
    assert!(!error.message.contains("remove it"), "{error}");
    std::thread::sleep(Duration::from_millis(50));
    let error = old.fails("INSERT INTO t(val) VALUES('for nobody')", READONLY);
    assert!(error.message.contains("VACUUM INTO"), "{error}");
    assert_eq!(old.integer(COUNT), 501, "it can still be read");
    old.close().expect("it closes");
    // What was acknowledged is not thrown away because another file has taken the name, and not in the way of that one while it is empty.
    let log = std::fs::read(fixture.side_file("-plait")).expect("the log of the old file");
    assert_eq!(new.text("PRAGMA journal_mode=concurrent").as_deref(), Ok("concurrent"));
    new.execute("CREATE TABLE u(b); INSERT INTO u VALUES(2)").expect("it works");
    assert_eq!(std::fs::read(fixture.side_file("-plait-given-up-1")).expect("it was kept"), log);
}

// holds ASIDE-1, DELETED-3
#[test]
fn a_log_of_another_database_is_put_aside_as_a_file_comes_into_the_mode() {
    let Some(subject) = real_plait("a deleted file") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let mut old = Actor::start(Place::Processes, "old", &fixture.subject, &fixture.database());
    old.ok("INSERT INTO t(val) VALUES('in the old file')");
    old.kill();
    std::fs::remove_file(fixture.database()).expect("somebody deletes it");
    let _ = std::fs::remove_file(fixture.side_file("-wal"));
    let new = fixture.open();
    new.execute("CREATE TABLE u(b)").expect("an ordinary database");
    let log = std::fs::read(fixture.side_file("-plait")).expect("the log of the old file");
    assert_eq!(new.text("PRAGMA journal_mode=concurrent").as_deref(), Ok("concurrent"));
    new.execute("INSERT INTO u VALUES(2)").expect("it works");
    assert_eq!(std::fs::read(fixture.side_file("-plait-given-up-1")).expect("it was kept"), log);
}

/// As test suites do: a connection that was forgotten still has the old file open.
#[test]
fn a_file_that_is_deleted_and_made_anew_in_the_same_process_works_as_with_stock_sqlite() {
    let Some(subject) = real_plait("a deleted file") else { return };
    for (old_is_written, old_ends_first) in [(true, true), (true, false), (false, true)] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let (forgotten, beside) = (fixture.open(), fixture.open());
        let written = i64::from(old_is_written);
        let mut more = Vec::new();
        for old in [&forgotten, &beside] {
            old.execute("BEGIN CONCURRENT; SELECT count(*) FROM t; COMMIT").expect("a member");
        }
        if old_is_written {
            forgotten.execute("INSERT INTO t(val) VALUES('in the log')").expect("it writes");
        }
        for round in 0..3 {
            std::fs::remove_file(fixture.database()).expect("somebody deletes it");
            let new = fixture.open();
            assert_eq!(
                new.text("PRAGMA journal_mode=concurrent").as_deref(),
                Ok("concurrent"),
                "{round}"
            );
            new.execute("CREATE TABLE u(b); INSERT INTO u VALUES(1)").expect("it works");
            let second = fixture.open();
            second.execute("BEGIN CONCURRENT; INSERT INTO u VALUES(2); COMMIT").expect("it works");
            assert_eq!(forgotten.integer(COUNT), Ok(500 + written), "the old one can be read");
            std::thread::sleep(Duration::from_millis(50));
            let error = forgotten.execute("DELETE FROM t").expect_err("it has no name");
            assert_eq!(error.code, READONLY, "{error}");
            assert_eq!(new.integer("SELECT count(*) FROM u"), Ok(2));
            new.execute("INSERT INTO u VALUES(3)").expect("it goes on");
            more.push((second, new));
        }
        // The newest file is no deleted one.
        drop(more.pop());
        let new = fixture.open();
        new.execute("BEGIN CONCURRENT; INSERT INTO u VALUES(4); COMMIT").expect("a member");
        let olds = || {
            drop(more);
            for old in [forgotten, beside] {
                old.close().expect("it closes");
            }
        };
        if old_ends_first {
            olds();
            new.execute("INSERT INTO u VALUES(5)").expect("nothing of it was removed");
            new.close().expect("it closes");
        } else {
            new.close().expect("it closes");
            olds();
        }
        let stock = Subject::stock().open(&fixture.database()).expect("at rest");
        let rows = stock.integer("SELECT count(*) FROM u");
        assert_eq!(rows, Ok(4 + i64::from(old_ends_first)));
        assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        stock.close().expect("it closes");
        let left: Vec<_> = std::fs::read_dir(fixture.directory())
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(left, ["app.db"], "nothing is left beside it");
    }
}

/// What a daemon meets that changes itself after it has opened the database, and others come and write; and how many rows there are.
fn met_by_a_daemon(root: Option<&str>, join: &str, mode: u32) -> Option<(Met, i64)> {
    let subject = real_plait("daemons")?;
    if !os::is_root() {
        eprintln!("skipped: only root can become another user");
        return None;
    }
    let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a)");
    let root = root.map(|name| fixture.path(name));
    if let Some(root) = &root {
        std::fs::create_dir(root).expect("an empty folder");
    }
    let folder = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(fixture.directory(), folder).expect("the folder is ours");
    let work = Work::Daemon(Daemon { root, rows: 100 });
    let job = Job { subject, database: fixture.database(), work };
    let mut daemon = job.start_with_environment(Place::Processes, &[("PLAIT_JOIN", join)]);
    let said: String = daemon.next_line(Duration::from_secs(60)).expect("it has changed");
    assert_eq!(said, "changed");
    let mut other = Actor::start(Place::Processes, "other", &fixture.subject, &fixture.database());
    // One that has not joined yet may write in between.
    let mut written = 0;
    for _ in 0..200 {
        let reply = other.run("BEGIN CONCURRENT; INSERT INTO t VALUES(3); COMMIT");
        if reply.in_transaction {
            other.ok("ROLLBACK");
        }
        written += i32::from(reply.error.is_none());
        if written == 3 {
            break;
        }
    }
    assert_eq!(written, 3, "others write");
    let met: Met = daemon.result(Duration::from_secs(60));
    let rows = other.integer("SELECT count(*) FROM t");
    assert_eq!(other.ok("PRAGMA integrity_check"), [["ok".to_owned().into()]]);
    Some((met, rows))
}

// holds MAPPING-2
#[test]
fn a_daemon_that_has_joined_may_change_its_user_and_its_root_directory() {
    for (root, mode) in [(None, 0o755), (None, 0o700), (Some("empty"), 0o755)] {
        let Some((met, rows)) = met_by_a_daemon(root, "always", mode) else { return };
        let expected = 104 + i64::from(Daemon::LARGE_ROWS);
        assert_eq!((met.refused, rows), (None, expected), "{root:?}, {mode:o}");
        // All of shared memory, although it has no name for it, and no descriptor to open it by.
        assert!(met.mapped > 160 << 20, "{} bytes: {root:?}, {mode:o}", met.mapped);
    }
}

#[test]
fn a_daemon_that_was_alone_when_it_changed_is_told_how_to_be_started() {
    for root in [None, Some("empty")] {
        let Some((met, _)) = met_by_a_daemon(root, "when needed", 0o755) else { return };
        let refused = met.refused.expect("it cannot join any more");
        assert!(refused.message.contains("PLAIT_JOIN=always"), "{root:?}: {refused}");
    }
}

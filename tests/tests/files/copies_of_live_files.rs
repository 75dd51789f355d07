//! The file of a live database without the files beside it: a copy, a second name, an older state put back. None may read as
//! sound, neither here nor by stock SQLite, from the first commit on that lies in the log alone.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::sqlite::{CANTOPEN, NOTADB, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::path::Path;

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;";

/// Bytes 18 and 19 of the file itself, whatever its WAL says.
fn versions(database: &Path) -> [u8; 2] {
    let bytes = std::fs::read(database).expect("the database can be read");
    [bytes[18], bytes[19]]
}

fn actor(name: &str, subject: &Subject, database: &Path) -> Actor {
    Actor::start(Place::Processes, name, subject, database)
}

/// What comes of reading the table in a process of its own.
fn read(subject: &Subject, database: &Path) -> Result<(), SqlError> {
    let mut reader = Actor::idle(Place::Processes, "reader", subject);
    reader.open(database)?;
    reader.run("SELECT count(*) FROM t").error.map_or(Ok(()), Err)
}

/// Both libraries refuse the file, and ours says what is missing and how to copy.
#[track_caller]
fn is_refused(subject: &Subject, database: &Path) {
    let error = read(subject, database).expect_err("it is not the whole database");
    assert_eq!(error.code, CANTOPEN, "{error}");
    for word in ["-plait", "missing", ".backup", "VACUUM INTO", "--accept-base"] {
        assert!(error.message.contains(word), "{word:?} is missing in: {error}");
    }
    let error = read(&Subject::stock(), database).expect_err("stock has no log");
    assert_eq!(error.code, NOTADB, "{error}");
}

// holds FILE-2, SESSION-3
#[test]
fn a_copy_of_the_file_alone_is_refused_from_the_first_commit_on() {
    let Some(subject) = real_plait("copies") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let database = fixture.database();
    let mut writer = actor("writer", &subject, &database);
    writer.ok("INSERT INTO t(val) VALUES('only in the log')");
    let copy = fixture.path("while-live.db");
    std::fs::copy(&database, &copy).expect("it can be copied");
    is_refused(&subject, &copy);
    writer.kill();
    let copy = fixture.path("after-death.db");
    std::fs::copy(&database, &copy).expect("it can be copied");
    is_refused(&subject, &copy);
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(501));
}

// holds SESSION-3
#[test]
fn readers_from_before_the_fence_do_not_keep_it_out_of_the_file() {
    let Some(subject) = real_plait("the fence") else { return };
    for stock in [true, false] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let database = fixture.database();
        // Stock leaves commits in the WAL, page 1 among them, and a reader in the middle of them.
        let mut other = actor("other", &Subject::stock(), &database);
        other.ok("PRAGMA wal_autocheckpoint=0; CREATE TABLE s(a)");
        let reading = if stock { Subject::stock() } else { subject.clone() };
        let mut reader = actor("reader", &reading, &database);
        reader.ok("BEGIN");
        assert_eq!(reader.integer("SELECT count(*) FROM t"), 500);
        other.ok("INSERT INTO t(val) VALUES('in the WAL')");
        let mut writer = actor("writer", &subject, &database);
        writer.ok("INSERT INTO t(val) VALUES('only in the log')");
        assert_eq!(versions(&database), [3, 3], "stock reader: {stock}");
        // A checkpoint up to the reader brings a page 1 from before the fence.
        writer.ok("PRAGMA wal_checkpoint; INSERT INTO t(val) VALUES('and one more')");
        assert_eq!(versions(&database), [3, 3], "stock reader: {stock}, after a checkpoint");
        let copy = fixture.path("copy.db");
        std::fs::copy(&database, &copy).expect("it can be copied");
        let error = read(&subject, &copy).expect_err("it is not the whole database");
        assert!(error.message.contains(".backup"), "{error}");
        assert_eq!(read(&Subject::stock(), &copy).expect_err("nor for stock").code, NOTADB);
        assert_eq!(reader.integer("SELECT count(*) FROM t"), 500, "its snapshot stays");
        reader.ok("COMMIT");
        drop((reader, other));
        writer.close().expect("it closes");
        assert_eq!(versions(&database), [2, 2], "at rest");
        let mut stock = actor("stock", &Subject::stock(), &database);
        assert_eq!(stock.integer("SELECT count(*) FROM t"), 503);
    }
}

#[test]
fn a_file_left_fenced_by_a_blocked_last_close_still_goes_with_its_wal() {
    let Some(subject) = real_plait("the fence") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let database = fixture.database();
    let mut reader = actor("reader", &Subject::stock(), &database);
    reader.ok("BEGIN");
    assert_eq!(reader.integer("SELECT count(*) FROM t"), 500);
    let mut writer = actor("writer", &subject, &database);
    writer.ok("INSERT INTO t(val) VALUES('only in the log')");
    // The reader holds back the checkpoint that would bring the unfenced page 1 into the file.
    writer.close().expect("it closes");
    reader.ok("COMMIT");
    drop(reader);
    for _ in 0..2 {
        let mut again = actor("again", &subject, &database);
        assert_eq!(again.integer("SELECT count(*) FROM t"), 501);
        again.close().expect("it closes");
        let mut stock = actor("stock", &Subject::stock(), &database);
        assert_eq!(stock.integer("SELECT count(*) FROM t"), 501);
    }
    assert_eq!(versions(&database), [2, 2]);
}

#[test]
fn a_second_name_of_a_live_file_is_refused() {
    let Some(subject) = real_plait("hard links") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let database = fixture.database();
    let link = fixture.path("link.db");
    std::fs::hard_link(&database, &link).expect("a second name");
    let writer = fixture.open();
    writer.execute("INSERT INTO t(val) VALUES('only in the log')").expect("an insert");
    is_refused(&subject, &link);
    // In this very process as well, where the file is known by its inode.
    let error = subject
        .open(&link)
        .and_then(|db| db.integer("SELECT count(*) FROM t"))
        .expect_err("its WAL and log stand under the first name");
    assert!(error.message.contains("under another name"), "{error}");
    writer.execute("INSERT INTO t(val) VALUES('it goes on')").expect("an insert");
    writer.close().expect("it closes");
    let again = subject.open(&link).expect("at rest every name is as good as another");
    assert_eq!(again.integer("SELECT count(*) FROM t"), Ok(502));
}

#[test]
fn an_older_state_put_back_over_a_session_is_refused_while_it_lives() {
    let Some(subject) = real_plait("restoring") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let database = fixture.database();
    let old = std::fs::read(&database).expect("a backup at rest");
    let mut writer = actor("writer", &subject, &database);
    writer.ok("INSERT INTO t(val) VALUES('only in the log')");
    // Moved over the live one: a file of another identity.
    let aside = fixture.path("aside.db");
    let put_back = |aside: &Path| {
        std::fs::rename(&database, aside).expect("it can be moved away");
        std::fs::write(&database, &old).expect("the backup can be put back");
    };
    put_back(&aside);
    let error = read(&subject, &database).expect_err("the session has another file");
    assert_eq!(error.code, CANTOPEN, "{error}");
    read(&Subject::stock(), &database).expect_err("the WAL-index beside it is of the session");
    writer.kill();
    // All are dead, and only the log is left beside the backup.
    for suffix in ["-wal", "-shm", "-plait-shm"] {
        let _ = std::fs::remove_file(fixture.side_file(suffix));
    }
    read(&subject, &database).expect("the backup is what somebody wanted");
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(500));
}

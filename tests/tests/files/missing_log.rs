//! The log removed, moved, replaced or cut short while shared memory survives. What was acknowledged is not lost, nothing more is
//! acknowledged into a file that no recovery would find, and no file is removed that is not the session's own.

use plait_tests::actor::Actor;
use plait_tests::crash::disk::SmallDisk;
use plait_tests::place::Place;
use plait_tests::sqlite::{CANTOPEN, Connection, FULL, IOERR, OpenFlags, READONLY};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;";
const CONTENT: &str =
    "SELECT 't', id, val FROM t NOT INDEXED UNION ALL SELECT 'w', k, v FROM w UNION ALL
    SELECT 'index', count(*), max(val) FROM t WHERE val>='' ORDER BY 1, 2";
/// More than the second after which a commit under NORMAL is noticed to be nowhere.
const NOTICE: Duration = Duration::from_secs(20);

type Rows = Vec<Vec<Value>>;

/// What somebody may do to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Removed,
    Renamed,
    Copied,
    CutShort,
    Emptied,
    Stranger,
}

const HARMS: [Harm; 6] =
    [Harm::Removed, Harm::Renamed, Harm::Copied, Harm::CutShort, Harm::Emptied, Harm::Stranger];

/// SQLite's code of a WAL-index that cannot be made longer.
const IOERR_SHMSIZE: i32 = 10 | 19 << 8;

const PRECIOUS: &[u8] = b"a file of somebody else";

fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-plait");
    name.into()
}

impl Harm {
    fn to(self, log: &Path) {
        let aside = log.with_extension("aside");
        match self {
            Harm::Removed => std::fs::remove_file(log),
            Harm::Renamed => std::fs::rename(log, aside),
            // As some tools do that bring a folder in line: another file, with the same content.
            Harm::Copied => std::fs::copy(log, &aside).and_then(|_| std::fs::rename(&aside, log)),
            Harm::CutShort => {
                std::fs::File::options().write(true).open(log).and_then(|file| file.set_len(100))
            }
            Harm::Emptied => std::fs::write(log, b""),
            Harm::Stranger => {
                std::fs::remove_file(log).and_then(|()| std::fs::write(log, PRECIOUS))
            }
        }
        .unwrap_or_else(|error| panic!("{self:?}: {error}"));
    }
}

fn actor(place: Place, subject: &Subject, database: &Path) -> Actor {
    Actor::start(place, "member", subject, database)
}

/// Changes of every kind, in the base, in frozen memory and in the newest generation.
fn change(writer: &mut Actor) {
    writer.ok("INSERT INTO t(val) VALUES('merged'); DELETE FROM t WHERE id=7");
    writer.ok("CREATE TABLE IF NOT EXISTS more(a); PRAGMA wal_checkpoint(TRUNCATE)");
    writer.ok("UPDATE t SET val=val||'!' WHERE id%7=0; INSERT INTO w VALUES('a'||random(), 1)");
    writer.ok("DELETE FROM t WHERE id%50=0; UPDATE w SET v=v+1; INSERT INTO t(val) VALUES('last')");
    writer.ok("UPDATE t SET val='once more' WHERE id=8");
}

fn content(connection: &Connection) -> Rows {
    let check = connection.text("PRAGMA integrity_check").expect("a check");
    assert_eq!(check, "ok");
    connection.query(CONTENT).expect("the content")
}

/// It opens, has exactly these rows, takes more, closes, and is a plain database for stock SQLite.
#[track_caller]
fn is_whole(subject: &Subject, database: &Path, rows: &Rows, what: &str) {
    let connection = subject.open(database).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = content(&connection);
    assert!(found == *rows, "{what}: {} rows instead of {}", found.len(), rows.len());
    connection.execute("INSERT INTO w VALUES('new', 0)").unwrap_or_else(|e| panic!("{what}: {e}"));
    connection.execute("DELETE FROM w WHERE k='new'").unwrap_or_else(|e| panic!("{what}: {e}"));
    connection.close().expect("it closes");
    assert!(!log_of(database).exists(), "{what}: at rest");
    let stock = Subject::stock().open(database).expect("stock opens it");
    assert!(content(&stock) == *rows, "{what}: for stock");
}

// holds FILE-6
#[test]
fn a_log_lost_after_the_death_of_all_processes_costs_nothing() {
    let Some(subject) = real_plait("a lost log") else { return };
    for level in ["FULL", "NORMAL"] {
        for harm in HARMS {
            let what = format!("{level}, {harm:?}");
            let fixture = Fixture::new(subject.clone(), ROWS);
            let (database, log) = (fixture.database(), fixture.side_file("-plait"));
            let mut writer = actor(Place::Processes, &subject, &database);
            writer.ok(&format!("PRAGMA synchronous={level}"));
            change(&mut writer);
            let rows = writer.ok(CONTENT);
            writer.kill();
            harm.to(&log);
            if harm == Harm::Stranger {
                // It is no log, and nobody knows whose it is: what memory has is saved, and the file is left alone.
                let left = std::fs::read(&log).expect("there");
                let error = subject.open(&database).and_then(|db| db.integer("SELECT 1 FROM t"));
                assert_eq!(error.expect_err(&what).code, CANTOPEN, "{what}");
                assert_eq!(std::fs::read(&log).expect("there"), left, "{what}");
                let _ = std::fs::remove_file(fixture.side_file("-plait-shm"));
                std::fs::remove_file(&log).expect("by hand");
            }
            is_whole(&subject, &database, &rows, &what);
        }
    }
}

/// Fails to write, with words that say what to do.
#[track_caller]
fn is_stopped(member: &mut Actor, sql: &str, what: &str) {
    let error = member.run(sql).error.unwrap_or_else(|| panic!("{what}: it is acknowledged"));
    assert_eq!(error.code, IOERR, "{what}: {error}");
    for word in ["-plait", "removed", "close every connection", "restart"] {
        assert!(error.message.contains(word), "{what}: {word:?} is missing in: {error}");
    }
}

/// The rows, or those with the one whose fate was left open.
#[track_caller]
fn is_whole_or_with_one_more(subject: &Subject, database: &Path, rows: &Rows, what: &str) {
    let connection = subject.open(database).unwrap_or_else(|error| panic!("{what}: {error}"));
    connection.execute("DELETE FROM w WHERE k='open'").unwrap_or_else(|e| panic!("{what}: {e}"));
    connection.close().expect("it closes");
    is_whole(subject, database, rows, what);
}

// holds LOG-7, COMMIT-3
#[test]
fn nothing_is_acknowledged_under_full_into_a_log_that_is_gone() {
    let Some(subject) = real_plait("a lost log") else { return };
    for place in [Place::Threads, Place::Processes] {
        for harm in HARMS {
            for killed in [false, true] {
                if killed && place == Place::Threads {
                    continue;
                }
                let what = format!("{place:?}, {harm:?}, killed: {killed}");
                let fixture = Fixture::new(subject.clone(), ROWS);
                let (database, log) = (fixture.database(), fixture.side_file("-plait"));
                let mut writer = actor(place, &subject, &database);
                let mut other = actor(place, &subject, &database);
                change(&mut writer);
                other.ok("INSERT INTO w VALUES('of the other', 2)");
                let rows = writer.ok(CONTENT);
                harm.to(&log);
                is_stopped(&mut writer, "INSERT INTO w VALUES('open', 0)", &what);
                is_stopped(&mut other, "INSERT INTO w VALUES('refused', 0)", &what);
                is_stopped(&mut writer, "CREATE TABLE refused(a)", &what);
                let mut newcomer = Actor::idle(Place::Processes, "newcomer", &subject);
                let opened = newcomer.open(&database);
                assert!(opened.is_err() || newcomer.run(CONTENT).error.is_some(), "{what}");
                if killed {
                    writer.kill();
                    other.kill();
                } else {
                    writer.close().expect("it closes");
                    other.close().expect("it closes");
                }
                drop(newcomer);
                if !killed {
                    // The last to close has brought what memory had into the file.
                    assert!(!fixture.side_file("-plait-shm").exists(), "{what}: at rest");
                }
                if harm == Harm::Stranger {
                    let left = std::fs::read(&log).expect("there");
                    assert_eq!(left, PRECIOUS, "{what}: it is not ours");
                    let refused = subject.open(&database).and_then(|db| db.query(CONTENT));
                    assert_eq!(refused.expect_err(&what).code, CANTOPEN, "{what}");
                    std::fs::remove_file(&log).expect("by hand");
                }
                is_whole_or_with_one_more(&subject, &database, &rows, &what);
            }
        }
    }
}

#[test]
fn under_normal_a_lost_log_is_noticed_by_those_who_go_on_to_write() {
    let Some(subject) = real_plait("a lost log") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let database = fixture.database();
    let mut writer = actor(Place::Processes, &subject, &database);
    writer.ok("PRAGMA synchronous=NORMAL");
    change(&mut writer);
    let before = writer.ok(CONTENT).len();
    Harm::Removed.to(&fixture.side_file("-plait"));
    let start = Instant::now();
    let mut acknowledged = 0;
    let error = loop {
        assert!(start.elapsed() < NOTICE, "{acknowledged} commits into nothing");
        match writer.run(&format!("INSERT INTO w VALUES('{acknowledged}', 0)")).error {
            None => acknowledged += 1,
            Some(error) => break error,
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(error.code, IOERR, "{error}");
    writer.kill();
    let connection = subject.open(&database).expect("it opens");
    let found = content(&connection).len() - before;
    assert!(found == acknowledged || found == acknowledged + 1, "{acknowledged}, {found}");
}

#[test]
fn a_log_that_was_away_for_a_while_is_gone_on_with_or_restored_from_memory() {
    let Some(subject) = real_plait("a lost log") else { return };
    for noticed in [false, true] {
        let what = format!("noticed: {noticed}");
        let fixture = Fixture::new(subject.clone(), ROWS);
        let (database, log) = (fixture.database(), fixture.side_file("-plait"));
        let mut writer = actor(Place::Processes, &subject, &database);
        change(&mut writer);
        Harm::Renamed.to(&log);
        if noticed {
            is_stopped(&mut writer, "INSERT INTO w VALUES('open', 0)", &what);
        }
        std::fs::rename(log.with_extension("aside"), &log).expect("it comes back");
        if noticed {
            is_stopped(&mut writer, "INSERT INTO w VALUES('refused', 0)", &what);
        } else {
            writer.ok("INSERT INTO w VALUES('it goes on', 0)");
        }
        writer.kill();
        let connection = subject.open(&database).unwrap_or_else(|e| panic!("{what}: {e}"));
        connection.execute("DELETE FROM w WHERE k='open'").expect("one of open fate");
        let rows = content(&connection);
        assert_eq!(rows.len(), 500 + 2 - 1 - 10 + 1 + 1 + usize::from(!noticed), "{what}");
        connection.close().expect("it closes");
        is_whole(&subject, &database, &rows, &what);
    }
}

/// A row of so many bytes.
fn large(name: &str, bytes: usize) -> String {
    format!("INSERT INTO w VALUES('{name}', hex(zeroblob({})))", bytes / 2)
}

/// Ring, memtables and log begin small: what has been written here has made each of them grow, by the hands of two processes.
#[test]
fn what_made_memory_and_log_grow_is_restored_as_well() {
    let Some(subject) = real_plait("a lost log") else { return };
    for (level, harm) in [("FULL", Harm::Removed), ("NORMAL", Harm::CutShort)] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let (database, log) = (fixture.database(), fixture.side_file("-plait"));
        let mut writers = ["one", "other"].map(|name| {
            let mut writer = Actor::start(Place::Processes, name, &subject, &database);
            writer.ok(&format!("PRAGMA synchronous={level}"));
            writer
        });
        let mut size = 3_000;
        for round in 0..60 {
            let [one, other] = &mut writers;
            one.ok(&large(&format!("of one {round}"), size));
            other.ok(&large(&format!("of the other {round}"), size / 2));
            size = (size * 9 / 8).min(900_000);
        }
        let rows = writers[0].ok(CONTENT);
        writers.into_iter().for_each(Actor::kill);
        harm.to(&log);
        is_whole(&subject, &database, &rows, level);
    }
}

#[test]
fn a_log_that_was_cut_short_is_not_made_long_enough_again_by_its_growth() {
    let Some(subject) = real_plait("a lost log") else { return };
    for harm in [Harm::CutShort, Harm::Emptied] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let (database, log) = (fixture.database(), fixture.side_file("-plait"));
        let mut writer = actor(Place::Processes, &subject, &database);
        writer.ok("UPDATE t SET val=val||'!' WHERE id<100");
        let rows = writer.ok(CONTENT);
        harm.to(&log);
        let left = std::fs::metadata(&log).expect("there").len();
        is_stopped(&mut writer, &large("refused", 600_000), "longer than the log");
        assert_eq!(std::fs::metadata(&log).expect("there").len(), left, "{harm:?}: as it was");
        writer.kill();
        is_whole(&subject, &database, &rows, "cut short");
    }
}

#[test]
fn a_second_loss_is_survived_as_the_first_was() {
    let Some(subject) = real_plait("a lost log") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let (database, log) = (fixture.database(), fixture.side_file("-plait"));
    let mut old_logs = Vec::new();
    for round in 0..6 {
        let mut writer = actor(Place::Processes, &subject, &database);
        change(&mut writer);
        let rows = writer.ok(CONTENT);
        old_logs.push(std::fs::read(&log).expect("a log"));
        let what = format!("round {round}");
        if round % 2 == 0 {
            writer.kill();
            // Every other time the log of a former session comes in its place.
            match round {
                0 => Harm::Removed.to(&log),
                _ => {
                    Harm::Removed.to(&log);
                    std::fs::write(&log, &old_logs[round - 1]).expect("an old log");
                    is_whole(&subject, &database, &rows, &what);
                    // It is foreign, and kept.
                    let kept = fixture.side_file(&format!("-plait-given-up-{}", round / 2));
                    assert!(std::fs::read(kept).expect("kept") == old_logs[round - 1], "{what}");
                }
            }
            is_whole(&subject, &database, &rows, &what);
        } else {
            Harm::Removed.to(&log);
            is_stopped(&mut writer, "INSERT INTO w VALUES('open', 0)", &what);
            writer.close().expect("it closes");
            is_whole_or_with_one_more(&subject, &database, &rows, &what);
        }
    }
}

// holds RESTORE-2
#[test]
fn a_log_of_the_session_that_comes_back_after_the_restoring_is_known_to_be_stale() {
    let Some(subject) = real_plait("a lost log") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let (database, log) = (fixture.database(), fixture.side_file("-plait"));
    let mut writer = actor(Place::Processes, &subject, &database);
    change(&mut writer);
    let rows = writer.ok(CONTENT);
    let old = std::fs::read(&log).expect("a log");
    writer.kill();
    Harm::Removed.to(&log);
    let connection = subject.open(&database).expect("it opens");
    assert!(content(&connection) == rows, "restored");
    connection.close().expect("it closes");
    std::fs::write(&log, &old).expect("it comes back");
    is_whole(&subject, &database, &rows, "beside its own old log");
}

#[test]
fn closing_removes_no_log_but_its_own() {
    let Some(subject) = real_plait("a lost log") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let (database, log) = (fixture.database(), fixture.side_file("-plait"));
    let mut writer = actor(Place::Processes, &subject, &database);
    change(&mut writer);
    let rows = writer.ok(CONTENT);
    Harm::Stranger.to(&log);
    writer.close().expect("it closes");
    assert_eq!(std::fs::read(&log).expect("it stays"), PRECIOUS);
    std::fs::remove_file(&log).expect("by hand");
    is_whole(&subject, &database, &rows, "closed beside another file");
}

#[test]
fn the_first_to_come_may_be_a_reader() {
    let Some(subject) = real_plait("a lost log") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let database = fixture.database();
    let mut writer = actor(Place::Processes, &subject, &database);
    change(&mut writer);
    let rows = writer.ok(CONTENT);
    writer.kill();
    Harm::Removed.to(&fixture.side_file("-plait"));
    let uri = format!("file:{}?mode=ro", database.display());
    let reader = subject.library().open_with(&uri, OpenFlags::Uri).expect("it opens");
    assert!(reader.query(CONTENT).as_ref() == Ok(&rows));
    let error = reader.execute("INSERT INTO w VALUES('refused', 0)").expect_err("it only reads");
    assert_eq!(error.code, READONLY, "{error}");
    reader.close().expect("it closes");
    is_whole(&subject, &database, &rows, "after a reader");
}

#[test]
fn a_full_disk_while_restoring_loses_nothing_and_it_is_done_when_there_is_space() {
    let Some(subject) = real_plait("a lost log") else { return };
    let Some(disk) = SmallDisk::mount(128) else { return };
    let database = disk.database();
    let connection = subject.create(&database).expect("there is space");
    connection.execute(ROWS).expect("the schema");
    connection.close().expect("it closes");
    let mut writer = actor(Place::Processes, &subject, &database);
    change(&mut writer);
    for n in 0..20 {
        writer.ok(&format!("INSERT INTO w VALUES('filler {n}', randomblob(100000))"));
    }
    let rows = writer.ok(CONTENT);
    writer.kill();
    Harm::Removed.to(&log_of(&database));
    for free in [0, 4 << 10, 64 << 10, 1 << 20] {
        disk.fill_but(free);
        let error = subject.open(&database).and_then(|db| db.query(CONTENT));
        let error = error.expect_err("two megabytes do not fit");
        // Where there is no page left SQLite cannot make its own WAL-index, and says it in its own way.
        let is_full = error.code == FULL || (free < 64 << 10 && error.extended == IOERR_SHMSIZE);
        assert!(is_full, "{free}: {error}");
        disk.empty();
    }
    is_whole(&subject, &database, &rows, "with space");
}

/// An opening that is refused leaves shared memory with its full size: what is behind the cut reads as zeros then.
#[test]
fn memory_that_was_cut_short_is_used_by_nobody_however_often_the_database_is_opened() {
    let Some(subject) = real_plait("a missing log") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let mut writer = actor(Place::Processes, &fixture.subject, &fixture.database());
    let mut other = actor(Place::Processes, &fixture.subject, &fixture.database());
    other.ok("SELECT count(*) FROM t");
    writer.ok("INSERT INTO t(val) SELECT hex(zeroblob(1500)) FROM t");
    change(&mut writer);
    let content = writer.ok(CONTENT);
    writer.kill();
    other.kill();
    let log = fixture.side_file("-plait");
    let aside = log.with_extension("aside");
    std::fs::rename(&log, &aside).expect("the log is moved away");
    let memory = std::fs::File::options().write(true).open(fixture.side_file("-plait-shm"));
    memory.and_then(|memory| memory.set_len(26 << 20)).expect("cut short");
    for _ in 0..3 {
        let refused = fixture.open().query(CONTENT).expect_err("its log is missing");
        assert_eq!(refused.code, CANTOPEN, "{refused}");
    }
    std::fs::rename(&aside, &log).expect("the log is put back");
    assert_eq!(fixture.open().query(CONTENT), Ok(content));
}

//! One transaction over several files, as the application sees it; what happens when a process is killed in it is in
//! several_files_killed.rs, what after a power cut in powercuts.rs.

use plait_tests::actor::Actor;
use plait_tests::crash::disk::SmallDisk;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, BUSY_SNAPSHOT, Connection, FULL};
use plait_tests::subject::{Begin, Fixture, Subject, real_plait};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES(1, 'a')";

/// Two concurrent files, and what else a mix asks for.
struct Files {
    fixture: Fixture,
}

impl Files {
    fn new(subject: &Subject) -> Self {
        let files = Self { fixture: Fixture::new(subject.clone(), TABLE) };
        files.make("other.db", "concurrent");
        files
    }

    fn make(&self, name: &str, mode: &str) {
        let connection = self.fixture.subject.open(&self.path(name)).expect("it opens");
        let answer = connection.text(&format!("PRAGMA journal_mode={mode}"));
        assert_eq!(answer.as_deref(), Ok(mode));
        connection.execute(TABLE).expect("a table");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.path(name)
    }

    fn attach(&self, name: &str, schema: &str) -> String {
        format!("ATTACH '{}' AS {schema}", self.path(name).display())
    }

    /// Main with the other file attached.
    fn open(&self) -> Connection {
        let connection = self.fixture.open();
        connection.execute(&self.attach("other.db", "other")).expect("attached");
        connection
    }

    /// Rows of the files, each through a connection of its own.
    fn counts(&self, names: &[&str]) -> Vec<i64> {
        let count = |name: &&str| {
            let connection = self.fixture.subject.open(&self.path(name)).expect("it opens");
            connection.integer("SELECT count(*) FROM t").expect("a count")
        };
        names.iter().map(count).collect()
    }

    fn both(&self) -> Vec<i64> {
        self.counts(&["app.db", "other.db"])
    }

    #[track_caller]
    fn leaves_nothing(&self) {
        let entries = std::fs::read_dir(self.fixture.directory()).expect("the folder");
        let names =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned());
        let left: Vec<String> =
            names.filter(|name| name.contains("-mj") || name.contains("-plait-super")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

const INTO_BOTH: &str = "INSERT INTO main.t(v) VALUES('m'); INSERT INTO other.t(v) VALUES('o')";

/// A transaction over several files takes two timestamps in each.
#[test]
fn data_version_does_not_change_by_own_transactions_over_several_files() {
    let files = Files::new(&Subject::plait());
    let (own, foreign) = (files.open(), files.open());
    let versions = |connection: &Connection| {
        ["main", "other"].map(|schema| {
            let version = connection.integer(&format!("PRAGMA {schema}.data_version"));
            version.expect("a number")
        })
    };
    own.execute("INSERT INTO main.t(v) VALUES('fences'); INSERT INTO other.t(v) VALUES('too')")
        .expect("both are written");
    let (mine, theirs) = (versions(&own), versions(&foreign));
    for sql in [
        "BEGIN; INSERT INTO main.t(v) VALUES(1); INSERT INTO other.t(v) VALUES(1); COMMIT",
        "BEGIN CONCURRENT; INSERT INTO main.t(v) VALUES(2); INSERT INTO other.t(v) VALUES(2); COMMIT",
        "BEGIN; INSERT INTO main.t(v) VALUES(3); SAVEPOINT s; INSERT INTO other.t(v) VALUES(3); ROLLBACK TO s; COMMIT",
        "BEGIN; CREATE TABLE main.u(a); INSERT INTO other.t(v) VALUES(4); COMMIT",
        "BEGIN; CREATE TABLE main.w(a); CREATE TABLE other.w(a); COMMIT",
        "BEGIN; INSERT INTO main.t(v) VALUES(5); INSERT INTO other.t(v) VALUES(5); ROLLBACK",
    ] {
        own.execute(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        assert_eq!(versions(&own), mine, "{sql}");
    }
    let met = versions(&foreign);
    assert!(met[0] != theirs[0] && met[1] != theirs[1], "{theirs:?} {met:?}");
    foreign
        .execute("BEGIN; INSERT INTO main.t(v) VALUES(6); INSERT INTO other.t(v) VALUES(6); COMMIT")
        .expect("it commits");
    assert_eq!(versions(&foreign), met);
    let now = versions(&own);
    assert!(now[0] != mine[0] && now[1] != mine[1], "{mine:?} {now:?}");
}

/// Both files have a table of that name.
#[test]
fn a_conflict_names_the_file_that_it_is_in() {
    let files = Files::new(&Subject::plait());
    let (own, foreign) = (files.open(), files.open());
    own.execute(INTO_BOTH).expect("both are written");
    for (schema, named) in [
        ("main", "table \"t\", rowid 1:"),
        ("other", "table \"t\" (attached as \"other\"), rowid 1:"),
    ] {
        own.execute(
            "BEGIN CONCURRENT; SELECT * FROM main.t WHERE id=1; SELECT * FROM other.t WHERE id=1",
        )
        .expect("it reads");
        own.execute(INTO_BOTH).expect("it writes");
        foreign.execute(&format!("UPDATE {schema}.t SET v='new' WHERE id=1")).expect("a commit");
        let error = own.execute("COMMIT").expect_err("a conflict");
        assert_eq!(error.extended, BUSY_SNAPSHOT, "{error}");
        assert!(error.message.contains(named), "{schema}: {error}");
        own.execute("ROLLBACK").expect("it ends");
    }
}

/// So does one that is taken back after it was prepared here, since another file has no room for it.
#[test]
fn data_version_does_not_change_by_an_own_commit_that_another_file_has_refused() {
    let Some(subject) = real_plait("several files") else { return };
    let Some(disk) = SmallDisk::mount(20) else { return };
    let fixture = Fixture::new(subject.clone(), TABLE);
    let own = fixture.open();
    own.execute(&format!("ATTACH '{}' AS other", disk.database().display())).expect("attached");
    // Its pages are written by COMMIT, which has prepared the other part by then.
    own.execute("PRAGMA other.journal_mode=delete; PRAGMA other.cache_size=10000").expect("set");
    own.execute(&TABLE.replace("t(", "other.t(").replace("INTO t", "INTO other.t"))
        .expect("a table");
    own.execute(INTO_BOTH).expect("there is space");
    let version = || own.integer("PRAGMA main.data_version").expect("a number");
    let before = version();
    // The second one runs exclusively.
    for change in ["INSERT INTO main.t(v) VALUES('m')", "CREATE TABLE main.u(a)"] {
        let both =
            format!("BEGIN; {change}; INSERT INTO other.t(v) VALUES(zeroblob(3000000)); COMMIT");
        disk.fill_but(1 << 20);
        let error = own.execute(&both).expect_err("no space");
        assert_eq!(error.code, FULL, "{error}");
        if !own.autocommit() {
            own.execute("ROLLBACK").expect("it ends");
        }
        assert_eq!(version(), before, "{change}");
        disk.empty();
        own.execute(&both).expect("there is space again");
        assert_eq!(version(), before, "{change}");
    }
    assert_eq!(own.integer("SELECT count(*) FROM main.t, main.u"), Ok(0));
    assert_eq!(own.integer("SELECT count(*) FROM main.t"), Ok(3));
}

#[test]
fn a_transaction_over_any_mix_commits_in_all_files_at_every_level() {
    let Some(subject) = real_plait("several files") else { return };
    for mode in ["concurrent", "delete", "truncate", "persist"] {
        for level in ["OFF", "NORMAL", "FULL"] {
            let files = Files { fixture: Fixture::new(subject.clone(), TABLE) };
            files.make("other.db", mode);
            files.make("third.db", "concurrent");
            let connection = files.open();
            connection
                .execute(&files.attach("third.db", "third"))
                .and_then(|()| connection.execute("ATTACH ':memory:' AS memory; CREATE TABLE memory.t(id INTEGER PRIMARY KEY, v); CREATE TEMP TABLE scratch(v)"))
                .expect("more files");
            if mode != "concurrent" {
                connection.execute(&format!("PRAGMA other.journal_mode={mode}")).expect("a mode");
            }
            connection.execute(&format!("PRAGMA synchronous={level}; PRAGMA other.synchronous={level}; PRAGMA third.synchronous={level}")).expect("a level");
            for begin in [Begin::Deferred, Begin::Immediate, Begin::Concurrent] {
                connection
                    .execute(&format!(
                        "{}; INSERT INTO third.t(v) VALUES('t'); {INTO_BOTH}; INSERT INTO memory.t(v) VALUES('n'); \
                         INSERT INTO scratch VALUES('s'); COMMIT",
                        subject.begin(begin)
                    ))
                    .unwrap_or_else(|error| panic!("{mode} {level} {begin:?}: {error}"));
            }
            let counts = files.counts(&["app.db", "other.db", "third.db"]);
            assert_eq!(counts, [4, 4, 4], "{mode} {level}");
            assert_eq!(connection.integer("SELECT count(*) FROM memory.t"), Ok(3));
            files.leaves_nothing();
            connection
                .execute(&format!(
                    "BEGIN; {INTO_BOTH}; INSERT INTO third.t(v) VALUES('t'); ROLLBACK"
                ))
                .expect("it rolls back");
            assert_eq!(files.counts(&["app.db", "other.db", "third.db"]), [4, 4, 4]);
        }
    }
}

#[test]
fn main_may_be_in_memory_or_in_another_folder() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    std::fs::create_dir(files.path("below")).expect("a folder");
    files.make("below/third.db", "concurrent");
    let connection = subject.library().open(":memory:").expect("in memory");
    connection
        .execute(&format!(
            "{}; {}",
            files.attach("other.db", "other"),
            files.attach("below/third.db", "third")
        ))
        .and_then(|()| {
            connection.execute(
                "BEGIN; INSERT INTO other.t(v) VALUES(1); INSERT INTO third.t(v) VALUES(1); COMMIT",
            )
        })
        .expect("both commit");
    assert_eq!(files.counts(&["other.db", "below/third.db"]), [2, 2]);
    drop(connection);
    files.leaves_nothing();
}

// holds TXN-6
#[test]
fn what_cannot_be_made_atomic_is_refused_before_the_second_file_is_changed() {
    let Some(subject) = real_plait("several files") else { return };
    for (mode, why) in [("wal", "WAL mode"), ("memory", "not on disk"), ("off", "not on disk")] {
        for main_first in [true, false] {
            let files = Files { fixture: Fixture::new(subject.clone(), TABLE) };
            files.make("other.db", if mode == "wal" { "wal" } else { "delete" });
            let connection = files.open();
            connection.execute(&format!("PRAGMA other.journal_mode={mode}")).expect("a mode");
            let mut sql =
                ["INSERT INTO main.t(v) VALUES('m')", "INSERT INTO other.t(v) VALUES('o')"];
            if !main_first {
                sql.reverse();
            }
            connection
                .execute("BEGIN")
                .and_then(|()| connection.execute(sql[0]))
                .expect("the first");
            let error = connection.execute(sql[1]).expect_err("the second");
            assert_eq!(error.code, 1, "{error}");
            assert!(
                error.message.contains(why)
                    && error.message.contains("use one transaction for each file"),
                "{error}"
            );
            // The transaction goes on with what it had.
            connection.execute("COMMIT").expect("the first commits");
            assert_eq!(files.both().iter().sum::<i64>(), 3);
        }
    }
}

#[test]
fn whatever_is_refused_leaves_the_transaction_with_what_it_had() {
    let Some(subject) = real_plait("several files") else { return };
    for mode in ["wal", "memory", "off"] {
        for sql in [
            "INSERT INTO other.t(v) VALUES('o')",
            "DELETE FROM other.t",
            "CREATE TABLE other.made(x)",
            "CREATE INDEX other.made ON t(v)",
            "DROP TABLE other.t",
            "ALTER TABLE other.t ADD COLUMN more",
            "PRAGMA other.user_version=4",
            "PRAGMA other.application_id=4",
            "REINDEX other.t",
            "ANALYZE other",
        ] {
            let files = Files { fixture: Fixture::new(subject.clone(), TABLE) };
            files.make("other.db", if mode == "wal" { "wal" } else { "delete" });
            let connection = files.open();
            connection.execute("CREATE INDEX other.t_v ON t(v)").expect("an index");
            connection.execute(&format!("PRAGMA other.journal_mode={mode}")).expect("a mode");
            connection.execute("BEGIN; INSERT INTO main.t(v) VALUES('m')").expect("the first");
            let error = connection.execute(sql).expect_err(sql);
            assert_eq!(error.code, 1, "{mode}, {sql}: {error}");
            assert!(
                error.message.contains("use one transaction for each file"),
                "{mode}, {sql}: {error}"
            );
            for sql in ["INSERT INTO main.t(v) VALUES('n')", "COMMIT"] {
                connection.execute(sql).unwrap_or_else(|error| panic!("{mode}, {sql}: {error}"));
            }
            assert_eq!(files.both(), [3, 1], "{mode}, {sql}");
            assert_eq!(connection.integer("PRAGMA other.user_version"), Ok(0));
        }
    }
}

#[test]
fn a_bulk_load_beside_another_file_stays_where_both_are_written_once() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    let connection = files.open();
    connection
        .execute(
            "BEGIN; WITH n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<2000) INSERT INTO main.t(v) SELECT i FROM n; \
             INSERT INTO other.t(v) VALUES(1); COMMIT",
        )
        .expect("a load and a row");
    assert_eq!(files.both(), [2001, 2]);
}

#[test]
fn a_commit_that_is_busy_in_one_file_leaves_the_transaction_as_it_was() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    let connection = files.open();
    connection.busy_timeout(Duration::from_millis(100)).expect("a timeout");
    for locked in ["app.db", "other.db"] {
        let before = files.both();
        let other = subject.open(&files.path(locked)).expect("it opens");
        connection.execute(&format!("BEGIN CONCURRENT; {INTO_BOTH}")).expect("changes");
        other.execute("BEGIN IMMEDIATE").expect("the right");
        for _ in 0..2 {
            let error = connection.execute("COMMIT").expect_err("it has to wait");
            assert_eq!(error.extended, BUSY, "{error}");
            assert!(!connection.autocommit());
            // Nobody is kept waiting by a transaction that waits for its application.
            let free = if locked == "app.db" { "other.db" } else { "app.db" };
            let writer = subject.open(&files.path(free)).expect("it opens");
            writer.execute("INSERT INTO t(v) VALUES('beside')").expect("the right is free");
        }
        other.execute("ROLLBACK").expect("it gives the right back");
        connection.execute("INSERT INTO main.t(v) VALUES('more')").expect("it goes on");
        connection.execute("COMMIT").expect("now it commits");
        let after = files.both();
        assert_eq!(after[0] + after[1], before[0] + before[1] + 5, "{locked}");
    }
}

#[test]
fn what_was_read_before_a_commit_that_was_busy_is_still_checked_by_the_next() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    let connection = files.open();
    connection.busy_timeout(Duration::from_millis(50)).expect("a timeout");
    // Both rights are asked for in the order of the files: whichever is first, it is taken and given back.
    for locked in ["app.db", "other.db"] {
        let schema = if locked == "app.db" { "other" } else { "main" };
        connection
            .execute(&format!("BEGIN CONCURRENT; {INTO_BOTH}; UPDATE {schema}.t SET v=(SELECT v FROM {schema}.t WHERE id=1) WHERE id=2"))
            .expect("it reads row 1");
        let other = subject.open(&files.path(locked)).expect("it opens");
        other.execute("BEGIN IMMEDIATE").expect("the right");
        assert_eq!(connection.execute("COMMIT").expect_err("it has to wait").extended, BUSY);
        let name = if schema == "main" { "app.db" } else { "other.db" };
        let writer = subject.open(&files.path(name)).expect("it opens");
        writer.execute("UPDATE t SET v=v||'!' WHERE id=1").expect("the right is free");
        other.execute("ROLLBACK").expect("it gives the right back");
        let error = connection.execute("COMMIT").expect_err("row 1 has changed");
        assert_eq!(error.extended, BUSY_SNAPSHOT, "{locked}: {error}");
        connection.execute("ROLLBACK").expect("it rolls back");
    }
}

#[test]
fn a_rollback_file_that_is_read_makes_the_commit_busy_and_nothing_else() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files { fixture: Fixture::new(subject.clone(), TABLE) };
    files.make("other.db", "delete");
    let connection = files.open();
    connection.busy_timeout(Duration::from_millis(100)).expect("a timeout");
    let reader = subject.open(&files.path("other.db")).expect("it opens");
    reader.execute("BEGIN; SELECT * FROM t").expect("it reads");
    connection.execute(&format!("BEGIN CONCURRENT; {INTO_BOTH}")).expect("changes");
    let error = connection.execute("COMMIT").expect_err("somebody reads");
    assert_eq!(error.code, BUSY, "{error}");
    files.fixture.open().execute("INSERT INTO t(v) VALUES('beside')").expect("main is free");
    reader.execute("COMMIT").expect("it has read");
    connection.execute("COMMIT").expect("now it commits");
    assert_eq!(files.both(), [3, 2]);
    files.leaves_nothing();
}

in_threads_and_processes! {
    fn a_conflict_in_either_file_commits_in_none(place) {
        let Some(subject) = real_plait("several files") else { return };
        for schema in ["main", "other"] {
            let files = Files::new(&subject);
            let mut first = Actor::start(place, "first", &subject, &files.path("app.db"));
            first.ok(&files.attach("other.db", "other"));
            let name = if schema == "main" { "app.db" } else { "other.db" };
            let mut second = Actor::start(place, "second", &subject, &files.path(name));
            first.ok(&format!("BEGIN CONCURRENT; UPDATE {schema}.t SET v=v||'1' WHERE id=1; {INTO_BOTH}"));
            second.ok("UPDATE t SET v='changed' WHERE id=1");
            first.fails("COMMIT", BUSY_SNAPSHOT);
            first.fails("COMMIT", BUSY_SNAPSHOT);
            second.ok("INSERT INTO t(v) VALUES('goes on')");
            first.ok("ROLLBACK");
            assert_eq!(files.both().iter().sum::<i64>(), 3, "{schema}");
            first.ok(&format!("BEGIN CONCURRENT; UPDATE {schema}.t SET v=v||'1' WHERE id=1; {INTO_BOTH}; COMMIT"));
            assert_eq!(files.both().iter().sum::<i64>(), 5, "{schema}");
            files.leaves_nothing();
        }
    }

    fn optimistic_commits_over_two_files_in_opposite_orders_wait_for_each_other_and_do_not_block(place) {
        let Some(subject) = real_plait("several files") else { return };
        let files = Files::new(&subject);
        let mut there = Actor::start(place, "there", &subject, &files.path("app.db"));
        there.ok(&files.attach("other.db", "aux1"));
        let mut back = Actor::start(place, "back", &subject, &files.path("other.db"));
        back.ok(&files.attach("app.db", "aux1"));
        // Both sessions have begun: a snapshot from before the first write may be refused.
        there.ok("INSERT INTO main.t(v) VALUES(0)");
        back.ok("INSERT INTO main.t(v) VALUES(0)");
        let sql = "BEGIN CONCURRENT; INSERT INTO main.t(v) VALUES(1); INSERT INTO aux1.t(v) VALUES(1); COMMIT";
        for _ in 0..20 {
            there.send(sql);
            back.send(sql);
            assert_eq!(there.finish().error, None);
            assert_eq!(back.finish().error, None);
        }
        assert_eq!(files.both(), [42, 42]);
    }
}

#[test]
fn savepoints_span_the_files_and_releasing_the_outermost_commits_both() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    let connection = files.open();
    connection
        .execute(&format!(
            "SAVEPOINT a; {INTO_BOTH}; SAVEPOINT b; {INTO_BOTH}; ROLLBACK TO b; RELEASE b"
        ))
        .expect("savepoints");
    assert_eq!(files.both(), [1, 1]);
    connection.execute("RELEASE a").expect("a commit");
    assert_eq!(files.both(), [2, 2]);
    // What is taken back whole is no change of that file.
    connection
        .execute("BEGIN; INSERT INTO main.t(v) VALUES(1); SAVEPOINT s; INSERT INTO other.t(v) VALUES(1); ROLLBACK TO s; COMMIT")
        .expect("a commit");
    assert_eq!(files.both(), [3, 2]);
    files.leaves_nothing();
}

#[test]
fn a_statement_by_itself_changes_both_files_through_a_temporary_trigger() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    let connection = files.open();
    connection
        .execute("CREATE TEMP TRIGGER mirror AFTER INSERT ON main.t BEGIN INSERT INTO other.t(id, v) VALUES(new.id, new.v); END")
        .expect("a trigger");
    connection.execute("INSERT INTO main.t(v) VALUES('x'), ('y')").expect("rows in both");
    assert_eq!(files.both(), [3, 3]);
    subject
        .open(&files.path("other.db"))
        .and_then(|other| other.execute("INSERT INTO t VALUES(4, 'taken')"))
        .expect("a row in the way");
    connection.execute("INSERT INTO main.t(v) VALUES('z')").expect_err("its key is taken");
    assert_eq!(files.both(), [3, 4]);
    files.leaves_nothing();
}

#[test]
fn select_statements_that_are_open_go_on_across_the_commit() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    let connection = files.open();
    for schema in ["main", "other"] {
        connection.execute(&format!("INSERT INTO {schema}.t(v) VALUES('b'), ('c')")).expect("rows");
    }
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "BEGIN CONCURRENT"] {
        let before = files.both();
        connection.execute(begin).expect("it begins");
        let mut open = connection
            .prepare("SELECT main.t.id FROM main.t JOIN other.t USING(id)")
            .expect("a query");
        open.step().expect("its first row");
        connection.execute(INTO_BOTH).expect("rows");
        connection.execute("COMMIT").expect("it commits beside an open query");
        let rest = open.collect_rows().expect("it goes on").len() as i64;
        assert!([before[0] - 1, before[0]].contains(&rest), "{begin}: {rest}");
        assert_eq!(files.both(), [before[0] + 1, before[1] + 1]);
        drop(open);
        connection.execute(INTO_BOTH).expect("and on");
    }
    files.leaves_nothing();
}

#[test]
fn hooks_are_called_as_by_stock_sqlite() {
    let Some(subject) = real_plait("several files") else { return };
    let seen = |subject: &Subject| {
        let files = Files { fixture: Fixture::new(subject.clone(), TABLE) };
        files.make("other.db", subject.mode.name());
        let connection = files.open();
        let events = Arc::new(Mutex::new(Vec::new()));
        let say = |what: &'static str| {
            let events = events.clone();
            move || events.lock().expect("no panic").push(what)
        };
        let (committing, rolling) = (say("commit"), say("rollback"));
        let refuse = Arc::new(AtomicU32::new(0));
        let refusing = refuse.clone();
        connection.commit_hook(move || {
            committing();
            refusing.load(Ordering::SeqCst) == 0
        });
        connection.rollback_hook(rolling);
        connection.execute(&format!("BEGIN; {INTO_BOTH}; COMMIT")).expect("it commits");
        refuse.store(1, Ordering::SeqCst);
        let error =
            connection.execute(&format!("BEGIN; {INTO_BOTH}; COMMIT")).expect_err("refused");
        assert!(connection.autocommit());
        assert_eq!(files.both(), [2, 2]);
        let events = events.lock().expect("no panic").clone();
        (events, error.extended)
    };
    let stock = seen(&Subject::stock());
    assert_eq!(seen(&subject), stock);
}

#[test]
fn a_file_that_cannot_be_prepared_rolls_back_all_of_them() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    let connection = files.open();
    connection.execute(INTO_BOTH).expect("sessions begin");
    for name in ["app.db-plait-super", "other.db-plait-super"] {
        let in_the_way = files.path(name);
        std::fs::create_dir(&in_the_way).expect("a folder");
        let error =
            connection.execute(&format!("BEGIN; {INTO_BOTH}; COMMIT")).expect_err("in the way");
        assert!(error.message.contains("plait-super"), "{error}");
        assert!(connection.autocommit(), "as for every failure of a disk");
        assert_eq!(files.both(), [2, 2]);
        std::fs::remove_dir(&in_the_way).expect("removed");
        files
            .fixture
            .open()
            .execute("INSERT INTO t(v) VALUES(0); DELETE FROM t WHERE v=0")
            .expect("others go on");
    }
    connection.execute(&format!("BEGIN; {INTO_BOTH}; COMMIT")).expect("nothing is in the way");
    assert_eq!(files.both(), [3, 3]);
}

#[test]
fn analyze_and_reindex_without_a_name_go_over_all_files() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    files.make("third.db", "delete");
    let connection = files.open();
    connection
        .execute(&files.attach("third.db", "third"))
        .and_then(|()| connection.execute("CREATE INDEX main.tv ON t(v); CREATE INDEX other.tv ON t(v); CREATE INDEX third.tv ON t(v)"))
        .expect("an index in each");
    for sql in ["ANALYZE", "REINDEX", "ANALYZE", "REINDEX nocase", "PRAGMA optimize"] {
        connection.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        for schema in ["main", "other", "third"] {
            assert_eq!(
                connection.integer(&format!("SELECT count(*) FROM {schema}.sqlite_stat1")),
                Ok(1),
                "{sql} {schema}"
            );
            assert_eq!(
                connection.text(&format!("PRAGMA {schema}.integrity_check")).as_deref(),
                Ok("ok")
            );
        }
    }
    files.leaves_nothing();
}

// holds SEVERAL-5
#[test]
fn a_copy_of_one_file_does_not_take_the_absence_of_the_others_for_a_decision() {
    let Some(subject) = real_plait("several files") else { return };
    for (point, rows) in [("several.prepared", 1), ("several.decided", 2)] {
        let files = Files::new(&subject);
        let crash = Subject::plait_with_crash_points();
        let at = ("PLAIT_CRASH_AT", point);
        let mut author = Actor::start_with_environment("author", &crash, &files.path("app.db"), at);
        author.ok(&files.attach("other.db", "other"));
        author.ok("BEGIN; INSERT INTO other.t(v) VALUES(0); DELETE FROM other.t WHERE v=0; COMMIT");
        author.send(&format!("BEGIN; {INTO_BOTH}; COMMIT"));
        author.await_death();
        let names: Vec<String> = std::fs::read_dir(files.fixture.directory())
            .expect("the folder")
            .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| !name.ends_with("-shm"))
            .collect();
        let copy = |into: &str, keep: &dyn Fn(&str) -> bool| {
            let folder = files.path(into);
            std::fs::create_dir(&folder).expect("a folder");
            for name in names.iter().filter(|name| keep(name)) {
                std::fs::copy(files.path(name), folder.join(name)).expect("a copy");
            }
            folder
        };
        let all = copy("all", &|_| true);
        let count = |path: PathBuf| subject.open(&path)?.integer("SELECT count(*) FROM t");
        assert_eq!(count(all.join("app.db")), Ok(rows), "{point}");
        assert_eq!(count(all.join("other.db")), Ok(rows), "{point}");
        // Named after the one or the other; the other one alone knows nothing.
        let alone = [
            copy("main", &|name| name.starts_with("app.db") && !name.contains("-mj")),
            copy("second", &|name| name.starts_with("other.db") && !name.contains("-mj")),
        ];
        let outcomes = [count(alone[0].join("app.db")), count(alone[1].join("other.db"))];
        let refused: Vec<_> =
            outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        if point == "several.decided" {
            assert_eq!(refused.len(), 1, "{outcomes:?}");
            assert!(refused[0].message.contains("create an empty file"), "{}", refused[0]);
        }
    }
}

#[test]
fn a_row_that_both_files_get_where_others_know_of_none_is_found() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    let (writer, reader) = (files.open(), files.open());
    for schema in ["main", "other"] {
        let fill = "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i+1 FROM n WHERE i<500)";
        writer
            .execute(&format!("{fill} INSERT INTO {schema}.t SELECT i, 'x' FROM n"))
            .expect("rows");
        writer.execute(&format!("PRAGMA {schema}.wal_checkpoint")).expect("merged");
        writer.execute(&format!("DELETE FROM {schema}.t WHERE id < 400")).expect("a gap");
    }
    let first = |schema| reader.integer(&format!("SELECT id FROM {schema}.t WHERE id > 0 LIMIT 1"));
    assert_eq!((first("main"), first("other")), (Ok(400), Ok(400)), "now everybody knows of it");
    assert_eq!((first("main"), first("other")), (Ok(400), Ok(400)));
    writer
        .execute("BEGIN; INSERT INTO main.t VALUES(100, 'm'); INSERT INTO other.t VALUES(200, 'o'); COMMIT")
        .expect("both");
    assert_eq!((first("main"), first("other")), (Ok(100), Ok(200)));
}

#[test]
fn a_transaction_that_has_written_one_file_looks_at_the_pages_of_all_others() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject);
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "BEGIN CONCURRENT"] {
        let connection = files.open();
        connection.execute(&format!("{begin}; INSERT INTO main.t(v) VALUES('m')")).expect("one");
        let error = connection.execute("BEGIN EXCLUSIVE").expect_err("one is open");
        assert!(error.message.contains("within a transaction"), "{begin}: {error}");
        for look in ["integrity_check", "quick_check", "page_count"] {
            let answer = connection.query(&format!("PRAGMA other.{look}"));
            assert!(answer.is_ok(), "{begin}, {look}: {answer:?}");
        }
        connection.execute("INSERT INTO other.t(v) VALUES('o'); COMMIT").expect("both");
    }
    assert_eq!(files.both(), [4, 4]);
}

/// What was found to have room waits for the right of the second file, and a merge begins another generation of the first one meanwhile.
// holds PREP-2
#[test]
fn a_merge_between_the_parts_of_a_commit_leaves_room_for_them() {
    if real_plait("merges").is_none() {
        return;
    }
    let files = Files::new(&Subject::plait());
    let main = files.fixture.open();
    let other = files.fixture.subject.open(&files.path("other.db")).expect("it opens");
    for _ in 0..12 {
        main.execute("BEGIN CONCURRENT; INSERT INTO t(v) VALUES(randomblob(300000)); COMMIT")
            .expect("load");
    }
    main.execute("PRAGMA wal_checkpoint; INSERT INTO t(v) VALUES('b')").expect("a merge");
    other.execute("BEGIN IMMEDIATE").expect("the right of the other file");
    let mut writer =
        Actor::start(Place::Processes, "writer", &files.fixture.subject, &files.path("app.db"));
    writer.busy_timeout(Duration::from_secs(20));
    writer.ok(&files.attach("other.db", "other"));
    writer.ok("BEGIN CONCURRENT");
    for _ in 0..5 {
        writer.ok("INSERT INTO t(v) VALUES(randomblob(700000))");
    }
    writer.ok("INSERT INTO other.t(v) VALUES('b')");
    writer.send("COMMIT");
    assert!(writer.still_waits_after(Duration::from_millis(300)));
    main.execute("PRAGMA wal_checkpoint").expect("a merge");
    other.execute("ROLLBACK").expect("the right is free");
    assert_eq!(writer.finish().error, None);
    assert_eq!(main.integer("SELECT count(*) FROM t"), Ok(1 + 12 + 1 + 5));
    main.execute("INSERT INTO t(v) VALUES('c')").expect("the log goes on");
    drop((main, other));
    writer.close().expect("it closes");
    assert_eq!(files.both(), [20, 2]);
}

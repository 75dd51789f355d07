//! Transactions over several files of which some run exclusively: changes of the schema or the header, large ones, looks at pages.
//! What happens when a process is killed in one is in several_files_killed.rs, what after a power cut in powercuts.rs.

use plait_tests::actor::Actor;
use plait_tests::crash::disk::SmallDisk;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::powercut::recording::Recording;
use plait_tests::sqlite::{BUSY, BUSY_SNAPSHOT, CANTOPEN, Connection, FULL, IOERR};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE INDEX tv ON t(v); INSERT INTO t VALUES(1, 'a')";
/// More than shared memory takes.
const LARGE: &str = "WITH n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<10000) INSERT INTO main.t(v) SELECT i||hex(zeroblob(450)) FROM n";

/// Main and another file.
struct Files {
    fixture: Fixture,
    mode: &'static str,
}

impl Files {
    fn new(subject: &Subject, mode: &'static str) -> Self {
        Self::prepared(subject, mode, "")
    }

    /// With pragmas that come before the first table.
    fn prepared(subject: &Subject, mode: &'static str, first: &str) -> Self {
        let fixture = Fixture::empty(subject.clone());
        let names = [("app.db", subject.mode.name()), ("other.db", mode)];
        for (name, mode) in names {
            let file = subject.open(&fixture.path(name)).expect("it opens");
            file.execute(first).expect("pragmas");
            let answer = file.text(&format!("PRAGMA journal_mode={mode}"));
            assert_eq!(answer.as_deref(), Ok(mode));
            file.execute(TABLE).expect("a table");
        }
        Self { fixture, mode }
    }

    fn main(&self) -> PathBuf {
        self.fixture.database()
    }

    fn other(&self) -> PathBuf {
        self.fixture.path("other.db")
    }

    fn attach(&self) -> String {
        let path = self.other();
        let attach = format!("ATTACH '{}' AS other", path.display());
        if self.mode == "concurrent" {
            return attach;
        }
        format!("{attach}; PRAGMA other.journal_mode={}", self.mode)
    }

    fn open(&self) -> Connection {
        let connection = self.fixture.open();
        connection.execute(&self.attach()).expect("attached");
        connection
    }

    /// Schema and content of both files, as others see them.
    fn content(&self) -> Vec<Vec<Vec<Value>>> {
        [self.main(), self.other()]
            .iter()
            .flat_map(|path| content(&self.fixture.subject.open(path).expect("it opens")))
            .collect()
    }

    #[track_caller]
    fn leaves_nothing(&self) {
        let left = self.side_files();
        assert!(left.is_empty(), "{left:?}");
    }

    /// Of transactions over several files.
    fn side_files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.fixture.directory()).expect("the folder");
        let names =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned());
        let is_left = |name: &String| {
            ["-mj", "-plait-super", "-plait-pages"].iter().any(|part| name.contains(part))
        };
        names.filter(is_left).collect()
    }
}

fn content(connection: &Connection) -> Vec<Vec<Vec<Value>>> {
    let query = |sql: &str| connection.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut all = vec![
        query("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"),
        query("PRAGMA user_version"),
        query("PRAGMA integrity_check"),
    ];
    for row in query("SELECT name FROM sqlite_schema WHERE type='table' ORDER BY name") {
        let Value::Text(name) = &row[0] else { panic!("a name: {row:?}") };
        let name = String::from_utf8_lossy(name);
        all.push(query(&format!("SELECT *, typeof(rowid) FROM \"{name}\" ORDER BY rowid")));
    }
    all
}

/// Transactions, each over what the ones before it have left.
const TRANSACTIONS: [&str; 16] = [
    "BEGIN; CREATE TABLE main.a(x); CREATE TABLE other.b(y); INSERT INTO main.a VALUES(1); INSERT INTO other.b VALUES(2); COMMIT",
    "BEGIN; CREATE TABLE main.c(x UNIQUE); INSERT INTO other.t(v) VALUES('o'); INSERT INTO main.c VALUES(3); COMMIT",
    "BEGIN; INSERT INTO main.t(v) VALUES('m'); CREATE TABLE other.d(y); INSERT INTO main.t(v) VALUES('n'); INSERT INTO other.d VALUES(4); COMMIT",
    "BEGIN IMMEDIATE; INSERT INTO other.t(v) VALUES('first'); CREATE INDEX main.ax ON a(x); UPDATE other.t SET v=v||'!'; COMMIT",
    "BEGIN IMMEDIATE; PRAGMA main.application_id=7; PRAGMA other.application_id=7; INSERT INTO main.t(v) VALUES('e'); INSERT INTO other.t(v) VALUES('f'); COMMIT",
    "BEGIN EXCLUSIVE; PRAGMA main.application_id=8; INSERT INTO main.t(v) VALUES('g'); COMMIT",
    "BEGIN IMMEDIATE; PRAGMA other.application_id=9; COMMIT",
    "BEGIN; DROP TABLE main.a; ALTER TABLE other.b ADD COLUMN z DEFAULT 7; INSERT INTO other.b VALUES(8, 9); COMMIT",
    "BEGIN; CREATE TABLE main.gone(x); INSERT INTO other.t(v) VALUES('gone'); ROLLBACK",
    "BEGIN; INSERT INTO main.t(v) VALUES('kept'); SAVEPOINT s; CREATE TABLE other.gone(x); INSERT INTO main.t(v) VALUES('gone'); \
     ROLLBACK TO s; INSERT INTO other.t(v) VALUES('kept'); COMMIT",
    "SAVEPOINT a; CREATE TABLE main.e(x); SAVEPOINT b; INSERT INTO other.t(v) VALUES('gone'); ROLLBACK TO b; \
     INSERT INTO other.t(v) VALUES('released'); RELEASE b; INSERT INTO main.e VALUES(5); RELEASE a",
    "BEGIN; INSERT INTO other.t(v) VALUES('checked'); UPDATE main.t SET v=v||'?'; PRAGMA main.integrity_check; PRAGMA other.quick_check; \
     INSERT INTO main.t(v) VALUES('after'); COMMIT",
    "BEGIN; PRAGMA main.user_version=5; PRAGMA other.user_version=6; INSERT INTO other.t(v) VALUES('version'); COMMIT",
    "BEGIN; DELETE FROM other.t WHERE id=2; DROP INDEX main.tv; CREATE TRIGGER other.tt AFTER INSERT ON t BEGIN INSERT INTO b VALUES(new.id, 0); END; \
     INSERT INTO other.t(v) VALUES('fires'); COMMIT",
    "BEGIN; CREATE TEMP TABLE scratch(v); INSERT INTO scratch VALUES(1); CREATE TABLE main.f AS SELECT * FROM main.t; \
     INSERT INTO other.t(v) SELECT v FROM scratch; DROP TABLE scratch; COMMIT",
    "BEGIN; DROP TABLE main.f; CREATE VIEW other.w AS SELECT v FROM t; UPDATE other.t SET v=upper(v); COMMIT",
];

#[test]
fn transactions_of_which_parts_run_exclusively_do_what_they_do_in_stock_sqlite() {
    let Some(subject) = real_plait("several files") else { return };
    for (mode, level) in
        [("concurrent", "FULL"), ("concurrent", "NORMAL"), ("delete", "FULL"), ("persist", "OFF")]
    {
        for vacuum in ["none", "full", "incremental"] {
            let first = format!("PRAGMA auto_vacuum={vacuum}; PRAGMA page_size=1024");
            let ours = Files::prepared(&subject, mode, &first);
            let theirs = Files::prepared(&Subject::stock(), "delete", &first);
            let (plait, stock) = (ours.open(), theirs.open());
            plait
                .execute(&format!("PRAGMA synchronous={level}; PRAGMA other.synchronous={level}"))
                .expect("a level");
            for sql in TRANSACTIONS {
                stock.execute(sql).unwrap_or_else(|error| panic!("stock, {sql}: {error}"));
                plait
                    .execute(sql)
                    .unwrap_or_else(|error| panic!("{mode}, {vacuum}, {sql}: {error}"));
                assert_eq!(ours.content(), theirs.content(), "{mode}, {level}, {vacuum}, {sql}");
                ours.leaves_nothing();
                assert!(plait.autocommit());
            }
            drop(plait);
            // At rest they are plain files, with the same in them.
            let at_rest = [ours.main(), ours.other()]
                .iter()
                .flat_map(|path| content(&Subject::stock().open(path).expect("it opens")))
                .collect::<Vec<_>>();
            assert_eq!(at_rest, theirs.content(), "{mode}, {vacuum}, at rest");
        }
    }
}

#[test]
fn a_transaction_larger_than_shared_memory_goes_with_another_file() {
    let Some(subject) = real_plait("several files") else { return };
    for mode in ["concurrent", "delete"] {
        // A cache of few pages, so that most are spilled into the WAL before COMMIT; and one that takes them all.
        for pages in [10, 100_000] {
            let files = Files::new(&subject, mode);
            let connection = files.open();
            connection.execute(&format!("PRAGMA main.cache_size={pages}")).expect("a cache");
            for end in ["ROLLBACK", "COMMIT"] {
                connection
                    .execute(&format!("BEGIN; INSERT INTO other.t(v) VALUES('o'); {LARGE}; DELETE FROM main.t WHERE id%3=0; {end}"))
                    .unwrap_or_else(|error| panic!("{mode}, {pages}, {end}: {error}"));
            }
            for path in [files.main(), files.other()] {
                let file = subject.open(&path).expect("it opens");
                assert_eq!(file.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
            }
            assert_eq!(connection.integer("SELECT count(*) FROM main.t"), Ok(6668));
            assert_eq!(connection.integer("SELECT count(*) FROM other.t"), Ok(2));
            files.leaves_nothing();
        }
    }
}

#[test]
fn a_database_that_becomes_shorter_in_such_a_transaction_stays_sound() {
    let Some(subject) = real_plait("several files") else { return };
    for vacuum in ["full", "incremental"] {
        let first = format!("PRAGMA auto_vacuum={vacuum}");
        let files = Files::prepared(&subject, "concurrent", &first);
        let connection = files.open();
        connection.execute(LARGE).expect("a large table");
        let pages = connection.integer("PRAGMA main.page_count").expect("a size");
        connection
            .execute("BEGIN; DROP TABLE main.t; INSERT INTO other.t(v) VALUES('o'); PRAGMA main.incremental_vacuum; COMMIT")
            .expect("both");
        let left = connection.integer("PRAGMA main.page_count").expect("a size");
        assert!(left < pages / 10, "{vacuum}: {left} of {pages}");
        assert_eq!(connection.text("PRAGMA main.integrity_check").as_deref(), Ok("ok"));
        assert_eq!(connection.integer("SELECT count(*) FROM other.t"), Ok(2));
    }
}

#[test]
fn a_commit_that_is_busy_in_another_file_leaves_an_exclusive_part_as_it_was() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject, "concurrent");
    let connection = files.open();
    connection.busy_timeout(Duration::from_millis(50)).expect("a timeout");
    let other = subject.open(&files.other()).expect("it opens");
    connection
        .execute("BEGIN CONCURRENT; INSERT INTO other.t(v) VALUES('o'); CREATE TABLE main.made(x)")
        .expect("changes");
    other.execute("BEGIN IMMEDIATE").expect("the right");
    for _ in 0..2 {
        let error = connection.execute("COMMIT").expect_err("it has to wait");
        assert_eq!(error.extended, BUSY, "{error}");
        assert!(!connection.autocommit());
    }
    files.leaves_nothing();
    other.execute("ROLLBACK").expect("it gives the right back");
    connection.execute("INSERT INTO main.made VALUES(1); COMMIT").expect("now it commits");
    assert_eq!(connection.integer("SELECT count(*) FROM main.made"), Ok(1));
    assert_eq!(other.integer("SELECT count(*) FROM t"), Ok(2));
    // The rights are free again.
    subject.open(&files.main()).and_then(|main| main.execute("DROP TABLE made")).expect("free");
}

in_threads_and_processes! {
    fn readers_go_on_beside_and_see_each_file_before_or_after(place) {
        let Some(subject) = real_plait("several files") else { return };
        let files = Files::new(&subject, "concurrent");
        let mut author = Actor::start(place, "author", &subject, &files.main());
        author.ok(&files.attach());
        author.ok("INSERT INTO main.t(v) VALUES('m'); INSERT INTO other.t(v) VALUES('o')");
        let mut readers = [files.main(), files.other()]
            .map(|path| Actor::start(place, "reader", &subject, &path));
        author.ok("BEGIN; CREATE TABLE main.made(x); INSERT INTO main.t(v) VALUES('m'); INSERT INTO other.t(v) VALUES('o')");
        for reader in &mut readers {
            assert_eq!(reader.integer("SELECT count(*) FROM t"), 2, "not committed");
        }
        readers[0].ok("BEGIN");
        assert_eq!(readers[0].integer("SELECT count(*) FROM t"), 2);
        author.ok("COMMIT");
        assert_eq!(readers[0].integer("SELECT count(*) FROM t"), 2, "its snapshot");
        assert_eq!(readers[1].integer("SELECT count(*) FROM t"), 3);
        readers[0].ok("COMMIT");
        assert_eq!(readers[0].integer("SELECT count(*) FROM t"), 3);
        for reader in &mut readers {
            reader.ok("INSERT INTO t(v) VALUES('goes on')");
        }
        author.ok("BEGIN; DROP TABLE main.made; INSERT INTO other.t(v) VALUES('o'); COMMIT");
        assert_eq!(readers[1].integer("SELECT count(*) FROM t"), 5);
        files.leaves_nothing();
    }

    fn a_conflict_in_the_other_file_takes_the_exclusive_part_back(place) {
        let Some(subject) = real_plait("several files") else { return };
        let files = Files::new(&subject, "concurrent");
        let mut first = Actor::start(place, "first", &subject, &files.main());
        first.ok(&files.attach());
        let mut second = Actor::start(place, "second", &subject, &files.other());
        second.ok("INSERT INTO t(v) VALUES('the session begins')");
        first.ok("BEGIN CONCURRENT; UPDATE other.t SET v=v||'1' WHERE id=1; CREATE TABLE main.made(x)");
        second.ok("UPDATE t SET v='changed' WHERE id=1");
        first.fails("COMMIT", BUSY_SNAPSHOT);
        first.ok("ROLLBACK");
        let made = "SELECT count(*) FROM sqlite_schema WHERE name='made'";
        assert_eq!(first.integer(made), 0);
        first.ok("BEGIN CONCURRENT; UPDATE other.t SET v=v||'1' WHERE id=1; CREATE TABLE main.made(x); COMMIT");
        assert_eq!(first.integer(made), 1);
        assert_eq!(second.integer("SELECT count(*) FROM t WHERE v='changed1'"), 1);
        files.leaves_nothing();
    }

    fn such_transactions_and_others_take_turns_and_lose_nothing(place) {
        let Some(subject) = real_plait("several files") else { return };
        let files = Files::new(&subject, "concurrent");
        let paths = [files.main(), files.other()];
        let mut over_both = Actor::start(place, "over both", &subject, &paths[0]);
        over_both.ok(&files.attach());
        let mut others = paths.clone().map(|path| Actor::start(place, "other", &subject, &path));
        for actor in others.iter_mut().chain([&mut over_both]) {
            actor.busy_timeout(Duration::from_secs(30));
        }
        for n in 0..20 {
            over_both.send(&format!(
                "BEGIN IMMEDIATE; CREATE TABLE main.made{n}(x); INSERT INTO main.t(v) VALUES('m'); INSERT INTO other.t(v) VALUES('o'); COMMIT"
            ));
            for other in &mut others {
                other.send("INSERT INTO t(v) VALUES('x'); INSERT INTO t(v) VALUES('y')");
            }
            assert_eq!(over_both.finish().error, None);
            for other in &mut others {
                assert_eq!(other.finish().error, None);
            }
        }
        for path in &paths {
            let file = subject.open(path).expect("it opens");
            assert_eq!(file.integer("SELECT count(*) FROM t"), Ok(61));
            assert_eq!(file.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        }
        files.leaves_nothing();
    }
}

// holds PREP-8
#[test]
fn more_such_commits_than_the_log_has_segments_find_room_in_it() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject, "concurrent");
    let connection = files.open();
    connection.execute("PRAGMA synchronous=NORMAL; PRAGMA other.synchronous=NORMAL").expect("fast");
    for n in 0..80 {
        connection
            .execute(&format!(
                "BEGIN; PRAGMA main.user_version={n}; PRAGMA other.user_version={n}; COMMIT"
            ))
            .unwrap_or_else(|error| panic!("commit {n}: {error}"));
    }
    let log = std::fs::metadata(files.fixture.side_file("-plait")).expect("a log").len();
    assert!(log < 64 << 20, "the log has {log} bytes");
    assert_eq!(connection.integer("PRAGMA other.user_version"), Ok(79));
}

#[test]
fn select_statements_that_are_open_go_on_across_such_a_commit() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject, "concurrent");
    let connection = files.open();
    connection
        .execute("INSERT INTO main.t(v) VALUES('b'), ('c'); INSERT INTO other.t(v) VALUES('d')")
        .expect("rows");
    connection.execute("BEGIN; CREATE TABLE main.made(x)").expect("exclusive");
    let mut open = connection.prepare("SELECT id FROM main.t").expect("a query");
    open.step().expect("its first row");
    connection.execute("INSERT INTO other.t(v) VALUES('e'); COMMIT").expect("beside an open query");
    assert_eq!(open.collect_rows().expect("it goes on").len(), 2);
    drop(open);
    connection.execute("INSERT INTO main.made VALUES(1)").expect("and on");
    assert_eq!(connection.integer("SELECT count(*) FROM other.t"), Ok(3));
}

#[test]
fn pages_that_cannot_be_written_roll_back_all_files() {
    let Some(subject) = real_plait("several files") else { return };
    let files = Files::new(&subject, "concurrent");
    let connection = files.open();
    connection
        .execute("INSERT INTO main.t(v) VALUES(1); INSERT INTO other.t(v) VALUES(1)")
        .expect("sessions");
    let before = files.content();
    for name in ["app.db-plait-pages", "other.db-plait-pages"] {
        let in_the_way = files.fixture.path(name);
        std::fs::create_dir(&in_the_way).expect("a folder");
        let error = connection
            .execute("BEGIN; CREATE TABLE main.made(x); CREATE TABLE other.made(x); COMMIT")
            .expect_err("in the way");
        assert!(error.message.contains("plait-pages"), "{error}");
        assert!(connection.autocommit(), "as for every failure of a disk");
        std::fs::remove_dir(&in_the_way).expect("removed");
        assert_eq!(files.content(), before, "{name}");
        files
            .fixture
            .open()
            .execute("INSERT INTO t(v) VALUES(0); DELETE FROM t WHERE v=0")
            .expect("others go on");
    }
    connection
        .execute("BEGIN; CREATE TABLE main.made(x); CREATE TABLE other.made(x); COMMIT")
        .expect("nothing is in the way");
    files.leaves_nothing();
}

#[test]
fn a_disk_that_is_full_for_the_pages_takes_the_transaction_back() {
    let Some(subject) = real_plait("a full disk") else { return };
    let Some(disk) = SmallDisk::mount(120) else { return };
    let files = Files::new(&subject, "concurrent");
    let main = subject.create(&disk.database()).expect("there is space");
    main.execute(TABLE).and_then(|()| main.execute(&files.attach())).expect("two files");
    main.execute("INSERT INTO main.t(v) VALUES('m'); INSERT INTO other.t(v) VALUES('o')")
        .expect("sessions");
    main.execute(&format!("BEGIN; INSERT INTO other.t(v) VALUES('p'); {LARGE}")).expect("changes");
    disk.fill_but(9 << 20);
    let error = main.execute("COMMIT").expect_err("the disk is full");
    assert_eq!(error.code, FULL, "{error}");
    assert!(error.message.contains("-plait-pages"), "{error}");
    assert!(main.autocommit());
    for schema in ["main", "other"] {
        assert_eq!(main.integer(&format!("SELECT count(*) FROM {schema}.t")), Ok(2), "{schema}");
    }
    disk.empty();
    main.execute(&format!("BEGIN; INSERT INTO other.t(v) VALUES('p'); {LARGE}; COMMIT"))
        .expect("there is space");
    assert_eq!(main.integer("SELECT count(*) FROM main.t"), Ok(10_002));
}

#[test]
fn what_a_full_disk_lets_commit_is_there_at_once_and_the_rest_is_refused() {
    let Some(subject) = real_plait("a full disk") else { return };
    let mut refusals = 0;
    for free in [60, 34, 26, 18, 12] {
        let Some(disk) = SmallDisk::mount(150) else { return };
        let files = Files::new(&subject, "concurrent");
        let main = subject.create(&disk.database()).expect("there is space");
        main.execute(TABLE).and_then(|()| main.execute(&files.attach())).expect("two files");
        main.execute("INSERT INTO main.t(v) VALUES('m'); INSERT INTO other.t(v) VALUES('o')")
            .expect("sessions");
        // Nothing is spilled into the WAL before COMMIT, which writes the pages twice.
        main.execute("PRAGMA main.cache_size=100000").expect("a cache");
        let begun = format!("BEGIN; INSERT INTO other.t(v) VALUES('p'); {LARGE}");
        main.execute(&begun).expect("changes");
        disk.fill_but(free << 20);
        let count = |schema| main.integer(&format!("SELECT count(*) FROM {schema}.t")).ok();
        match main.execute("COMMIT") {
            Ok(()) => {
                assert_eq!((count("main"), count("other")), (Some(10_002), Some(3)), "{free}");
                disk.empty();
            }
            Err(error) => {
                refusals += 1;
                assert_eq!(error.code, FULL, "{free}: {error}");
                assert!(main.autocommit(), "{free}");
                assert_eq!((count("main"), count("other")), (Some(2), Some(2)), "{free}");
                disk.empty();
                main.execute(&format!("{begun}; COMMIT")).expect("there is space");
            }
        }
        assert_eq!((count("main"), count("other")), (Some(10_002), Some(3)), "{free}");
        assert_eq!(main.text("PRAGMA main.integrity_check").as_deref(), Ok("ok"));
        drop(main);
        let stock = Subject::stock().open(&disk.database()).expect("a plain file");
        assert_eq!(stock.integer("SELECT count(*) FROM t"), Ok(10_002), "{free}");
    }
    assert!((1..5).contains(&refusals), "{refusals} of 5 were refused");
}

/// Files as an author leaves them whose process dies after the decision, with shared memory gone.
fn decided(subject: &Subject) -> Files {
    let files = Files::new(subject, "concurrent");
    let crash = Subject::plait_with_crash_points();
    let at = ("PLAIT_CRASH_AT", "several.decided");
    let mut author = Actor::start_with_environment("author", &crash, &files.main(), at);
    author.ok(&files.attach());
    author.ok("INSERT INTO main.t(v) VALUES('m'); INSERT INTO other.t(v) VALUES('o')");
    author.send("BEGIN; CREATE TABLE main.made(x); INSERT INTO main.made VALUES(1); CREATE TABLE other.made(x); COMMIT");
    author.await_death();
    for path in [files.main(), files.other()] {
        std::fs::remove_file(beside(&path, "-plait-shm")).expect("shared memory");
    }
    files
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[test]
fn pages_that_are_missing_damaged_or_of_another_file_are_refused_and_nothing_is_dropped() {
    let Some(subject) = real_plait("kills") else { return };
    let files = decided(&subject);
    let pages = beside(&files.main(), "-plait-pages");
    let whole = std::fs::read(&pages).expect("pages");
    let foreign = std::fs::read(beside(&files.other(), "-plait-pages")).expect("pages");
    let mut torn = whole.clone();
    *torn.last_mut().expect("bytes") ^= 1;
    let look = || subject.open(&files.main())?.integer("SELECT count(*) FROM made");
    for (what, bytes, code) in [
        ("is missing", None, CANTOPEN),
        ("another transaction", Some(&foreign[..]), CANTOPEN),
        ("checksum", Some(&torn[..]), 11),
        ("cut short", Some(&whole[..whole.len() / 2]), 11),
    ] {
        match bytes {
            None => std::fs::remove_file(&pages).expect("removed"),
            Some(bytes) => std::fs::write(&pages, bytes).expect("written"),
        }
        for _ in 0..2 {
            let error = look().expect_err(what);
            assert_eq!(error.code, code, "{error}");
            assert!(
                error.message.contains(what) && error.message.contains("-plait-pages"),
                "{error}"
            );
        }
        if let Some(mut command) = subject.command() {
            let check = command.arg("check").arg(files.main()).output().expect("it runs");
            let text = String::from_utf8_lossy(&check.stdout).into_owned()
                + &String::from_utf8_lossy(&check.stderr);
            assert!(!check.status.success() && text.contains("-plait-pages"), "{what}: {text}");
        }
        std::fs::write(&pages, &whole).expect("put back");
    }
    assert_eq!(look(), Ok(1), "with the right ones it is recovered");
    let other = subject.open(&files.other()).expect("it opens");
    assert_eq!(other.integer("SELECT count(*) FROM made"), Ok(0));
    drop(other);
    files.leaves_nothing();
}

#[test]
fn accepting_the_base_gives_the_pages_up_and_keeps_a_copy_of_them() {
    let Some(subject) = real_plait("kills") else { return };
    let files = decided(&subject);
    std::fs::write(beside(&files.main(), "-plait-pages"), b"torn").expect("damaged");
    let Some(mut command) = subject.command() else { return };
    let accept = command.args(["recover", "--accept-base", "--yes"]).arg(files.main());
    let done = accept.output().expect("it runs");
    assert!(done.status.success(), "{done:?}");
    let kept = std::fs::read(beside(&files.main(), "-plait-pages-given-up-1"));
    assert_eq!(kept.expect("a copy"), b"torn");
    assert!(!beside(&files.main(), "-plait-pages").exists());
    let stock = Subject::stock().open(&files.main()).expect("a plain file");
    let made = "SELECT count(*) FROM sqlite_schema WHERE name='made'";
    assert_eq!(stock.integer(made), Ok(0));
    assert_eq!(subject.open(&files.other()).and_then(|other| other.integer(made)), Ok(1));
}

const BOTH: &str =
    "BEGIN; CREATE TABLE main.made(x); INSERT INTO other.t(v) VALUES('made'); COMMIT";

#[track_caller]
fn is_refused(actor: &mut Actor, sql: &str, database: &Path) {
    let error = actor.fails(sql, IOERR);
    for part in [
        "a transaction over several files is committed but could not be completed in",
        &database.display().to_string(),
        "could see half of it",
        "use the file again",
    ] {
        assert!(error.message.contains(part), "{sql}: {error}");
    }
}

// holds PREP-9
#[test]
fn what_is_decided_and_cannot_be_applied_is_seen_by_nobody_until_somebody_brings_it() {
    let Some(subject) = real_plait("a failing disk") else { return };
    for heir_is_the_author in [true, false] {
        let files = Files::new(&subject, "concurrent");
        let fail = files.fixture.directory().with_extension("fail");
        let recording = Recording::of(files.fixture.directory());
        let [mut author, mut witness] = ["author", "witness"].map(|name| {
            let mut actor = recording.actor_without_wal(name, &subject, &fail);
            actor.open(&files.main()).expect("it opens");
            actor
        });
        author.ok(&files.attach());
        author.ok("INSERT INTO main.t(v) VALUES('m'); INSERT INTO other.t(v) VALUES('o')");
        witness.ok("BEGIN");
        assert_eq!(witness.integer("SELECT count(*) FROM t"), 2);
        author.ok(BOTH.strip_suffix("; COMMIT").expect("its end"));
        std::fs::write(&fail, b"").expect("a file");
        author.ok("COMMIT");
        assert_eq!(witness.integer("SELECT count(*) FROM t"), 2, "its snapshot is from before");
        witness.ok("COMMIT");
        assert_eq!(author.integer("SELECT count(*) FROM other.t"), 3, "that file has its part");
        for actor in [&mut author, &mut witness] {
            actor.busy_timeout(Duration::from_millis(50));
            for sql in [
                "SELECT count(*) FROM main.t",
                "BEGIN IMMEDIATE",
                "BEGIN CONCURRENT; SELECT count(*) FROM main.t",
                "INSERT INTO main.t(v) VALUES('refused')",
                "PRAGMA main.integrity_check",
            ] {
                is_refused(actor, sql, &files.main());
            }
        }
        if heir_is_the_author {
            std::fs::remove_file(&fail).expect("removed");
        } else {
            // Whose writes do not fail.
            let mut heir = Actor::start(Place::Processes, "heir", &subject, &files.main());
            assert_eq!(heir.integer("SELECT count(*) FROM made"), 0);
            std::fs::remove_file(&fail).expect("removed");
        }
        for actor in [&mut author, &mut witness] {
            assert_eq!(actor.integer("SELECT count(*) FROM main.made"), 0);
            actor.ok("INSERT INTO made VALUES(1); DELETE FROM made");
        }
        author.close().and_then(|()| witness.close()).expect("they close");
        files.leaves_nothing();
        let _ = std::fs::remove_file(files.fixture.directory().with_extension("record"));
    }
}

#[test]
fn what_a_dead_author_has_decided_and_nobody_can_apply_is_refused_by_a_new_session_too() {
    let Some(subject) = real_plait("a failing disk") else { return };
    let files = Files::new(&subject, "concurrent");
    let fail = files.fixture.directory().with_extension("fail");
    let recording = Recording::of(files.fixture.directory());
    let mut witness = recording.actor_without_wal("witness", &subject, &fail);
    witness.open(&files.main()).expect("it opens");
    witness.ok("INSERT INTO t(v) VALUES('m')");
    let crash = Subject::plait_with_crash_points();
    let at = ("PLAIT_CRASH_AT", "several.decided");
    let mut author = Actor::start_with_environment("author", &crash, &files.main(), at);
    author.ok(&files.attach());
    author.ok("INSERT INTO other.t(v) VALUES('o')");
    std::fs::write(&fail, b"").expect("a file");
    author.send(BOTH);
    author.await_death();
    is_refused(&mut witness, "SELECT count(*) FROM t", &files.main());
    let mut late = recording.actor_without_wal("late", &subject, &fail);
    late.open(&files.main()).expect("it opens");
    is_refused(&mut late, "SELECT count(*) FROM t", &files.main());
    drop((witness, late));
    // The same session, continued from shared memory.
    let mut next = recording.actor_without_wal("next", &subject, &fail);
    next.open(&files.main()).expect("it opens");
    is_refused(&mut next, "SELECT count(*) FROM t", &files.main());
    std::fs::remove_file(&fail).expect("removed");
    assert_eq!(next.integer("SELECT count(*) FROM made"), 0);
    next.close().expect("it closes");
    let other = subject.open(&files.other()).expect("it opens");
    assert_eq!(other.integer("SELECT count(*) FROM t"), Ok(3));
    drop(other);
    files.leaves_nothing();
    let _ = std::fs::remove_file(files.fixture.directory().with_extension("record"));
}

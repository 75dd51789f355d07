//! How a COMMIT may end: what it has taken is given back, what it has read is remembered, and what it says is its own. The table of its ends
//! is at the head of csrc/transaction.c; those of a process that dies in the middle are in several_files_killed.rs.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::sqlite::{
    BUSY, BUSY_SNAPSHOT, CONSTRAINT, Connection, INTERRUPT, IOERR, Result, SqlError, Statement,
    Step,
};
use plait_tests::subject::{Fixture, Subject, real_plait, refused};
use plait_tests::value::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER);
    WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<300) INSERT INTO t SELECT x, 0 FROM i;
    CREATE TABLE w(id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO w VALUES(1, 0), (2, 0);
    CREATE TABLE noted(x)";
/// Less than any wait, and far more than nobody needs.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A concurrent database, and other files that are attached to it.
struct Scene {
    fixture: Fixture,
}

impl Scene {
    fn new(subject: &Subject) -> Self {
        Self { fixture: Fixture::new(subject.clone(), SCHEMA) }
    }

    /// Another file of this mode.
    fn make(&self, mode: &str) -> PathBuf {
        let path = self.fixture.path(&format!("{mode}.db"));
        let connection = self.fixture.subject.open(&path).expect("it opens");
        assert_eq!(connection.text(&format!("PRAGMA journal_mode={mode}")).as_deref(), Ok(mode));
        connection.execute(SCHEMA).expect("a schema");
        path
    }

    fn attached(&self, mode: &str) -> (Connection, Connection) {
        let path = self.make(mode);
        let connection = self.open_impatient();
        connection.execute(&format!("ATTACH '{}' AS other", path.display())).expect("attached");
        let there = self.fixture.subject.open(&path).expect("it opens");
        there.busy_timeout(Duration::ZERO).expect("a timeout");
        (connection, there)
    }

    fn open_impatient(&self) -> Connection {
        let connection = self.fixture.open();
        connection.busy_timeout(Duration::ZERO).expect("a timeout");
        connection
    }
}

fn begun(connection: &Connection, sql: &str) -> Statement {
    let mut select = connection.prepare(sql).expect("a SELECT");
    assert_eq!(select.step(), Ok(Step::Row));
    select
}

/// The second column of the row with this number in the first, which is ahead.
fn further_on(select: &mut Statement, id: i64) -> i64 {
    loop {
        assert_eq!(select.step(), Ok(Step::Row), "row {id} is ahead");
        if select.column_i64(0) == id {
            return select.column_i64(1);
        }
    }
}

fn code(outcome: Result<()>) -> i32 {
    outcome.err().map_or(0, |error| error.extended)
}

#[test]
fn a_commit_that_another_file_keeps_from_being_made_gives_back_the_right_and_says_where_it_reads() {
    let Some(subject) = real_plait("ends of COMMIT") else { return };
    for has_hook in [false, true] {
        for is_merged in [false, true] {
            let scene = Scene::new(&subject);
            let others = scene.open_impatient();
            others.execute("UPDATE w SET n=n").expect("a commit");
            if is_merged {
                others.execute("PRAGMA wal_checkpoint").expect("merged");
            }
            let (own, there) = scene.attached("delete");
            if has_hook {
                own.commit_hook(|| true);
            }
            there.execute("BEGIN; SELECT * FROM w").expect("it reads");
            own.execute("BEGIN CONCURRENT").expect("it begins");
            let mut select = begun(&own, "SELECT id, v FROM t ORDER BY id");
            own.execute("INSERT INTO noted VALUES(1); UPDATE other.w SET n=n WHERE 0")
                .expect("both are locked");
            others.execute("BEGIN IMMEDIATE").expect("it begins");
            assert_eq!(others.integer("SELECT n FROM w WHERE id=1"), Ok(0));
            others.execute("UPDATE t SET v=100 WHERE id=290; COMMIT").expect("a commit");
            let busy = own.execute("COMMIT").expect_err("the other file is being read");
            assert_eq!((busy.extended, busy.message.as_str()), (BUSY, "database is locked"));
            others.execute("INSERT INTO noted VALUES(2)").expect("the right is free");
            let seen = further_on(&mut select, 290);
            assert_eq!(own.integer("SELECT v FROM t WHERE id=290"), Ok(seen), "one snapshot");
            drop(select);
            own.execute(&format!("UPDATE w SET n={seen}+1 WHERE id=1")).expect("a write");
            there.execute("COMMIT").expect("it ends");
            // Either all of it comes after what the other one has done, which has read w, or it is refused.
            let ends = code(own.execute("COMMIT"));
            let expected = if seen == 100 { 0 } else { BUSY_SNAPSHOT };
            assert_eq!(ends, expected, "hook: {has_hook}, merged: {is_merged}, seen: {seen}");
        }
    }
}

// holds ENDS-3
#[test]
fn what_was_read_in_a_file_that_is_not_changed_yet_counts_after_a_commit_that_ended_busy() {
    let Some(subject) = real_plait("ends of COMMIT") else { return };
    for [read, changed] in [["main", "other"], ["other", "main"]] {
        let scene = Scene::new(&subject);
        let (own, there) = scene.attached("concurrent");
        let here = scene.open_impatient();
        let (reads, holds) = if read == "main" { (&here, &there) } else { (&there, &here) };
        own.execute(&format!(
            "BEGIN CONCURRENT; SELECT n FROM {read}.w WHERE id=1; UPDATE {read}.t SET v=v WHERE 0;
             UPDATE {changed}.w SET n=1 WHERE id=2"
        ))
        .expect("it writes one");
        holds.execute("BEGIN IMMEDIATE").expect("the right");
        refused(own.execute("COMMIT"), BUSY, "holds the writer's right");
        reads.execute("UPDATE w SET n=7 WHERE id=1").expect("a commit");
        holds.execute("COMMIT").expect("it ends");
        own.execute(&format!("UPDATE {read}.w SET n=1 WHERE id=2")).expect("it writes the other");
        assert_eq!(code(own.execute("COMMIT")), BUSY_SNAPSHOT, "{read} was read");
    }
}

#[test]
fn a_commit_that_ends_busy_beside_an_open_select_has_read_no_more_than_that_has() {
    let Some(subject) = real_plait("ends of COMMIT") else { return };
    for kind in ["plain", "hook", "two files"] {
        let scene = Scene::new(&subject);
        let (own, there) = scene.attached("concurrent");
        let others = scene.open_impatient();
        if kind == "hook" {
            own.commit_hook(|| true);
        }
        own.execute("BEGIN CONCURRENT").expect("it begins");
        let select = begun(&own, "SELECT id FROM t ORDER BY id");
        own.execute("INSERT INTO noted VALUES(1)").expect("a row");
        let holder = if kind == "two files" {
            own.execute("INSERT INTO other.noted VALUES(1)").expect("a row");
            &there
        } else {
            &others
        };
        holder.execute("BEGIN IMMEDIATE").expect("the right");
        refused(own.execute("COMMIT"), BUSY, "holds the writer's right");
        others.execute("UPDATE t SET v=1 WHERE id=290").expect("a row that it has not come to");
        if kind == "two files" {
            there.execute("UPDATE t SET v=1 WHERE id=290").expect("here it has read nothing");
        }
        holder.execute("COMMIT").expect("it ends");
        own.execute("COMMIT").unwrap_or_else(|error| panic!("{kind}: {error}"));
        drop(select);
    }
}

/// What came of a statement in which a WAL hook answers.
#[derive(Debug, PartialEq)]
struct Answered {
    error: Option<SqlError>,
    calls: i32,
    rows: Vec<Vec<Value>>,
    last_insert_rowid: i64,
    changes: i64,
    total_changes: i64,
}

/// A connection that other ones commit beside, so that single writes are tried; and a WAL hook that gives one answer.
struct Hooked {
    fixture: Fixture,
    own: Connection,
    answer: Arc<AtomicI32>,
    calls: Arc<AtomicI32>,
}

impl Hooked {
    fn new(subject: &Subject) -> Self {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let own = fixture.open();
        own.execute("UPDATE w SET n=n; INSERT INTO t VALUES(1000, 1)").expect("a commit");
        let (answer, calls) = <(Arc<AtomicI32>, Arc<AtomicI32>)>::default();
        let (tell, count) = (answer.clone(), calls.clone());
        own.wal_hook(move |_| {
            count.fetch_add(1, Relaxed);
            tell.swap(0, Relaxed)
        });
        Self { fixture, own, answer, calls }
    }

    fn answered(&self, code: i32, sql: &str) -> Answered {
        let other = self.fixture.open();
        other.execute("UPDATE w SET n=n WHERE id=2").expect("a commit of another connection");
        self.answer.store(code, Relaxed);
        self.calls.store(0, Relaxed);
        let error = self.own.execute(sql).err();
        let calls = self.calls.load(Relaxed);
        let (last_insert_rowid, changes) = (self.own.last_insert_rowid(), self.own.changes());
        let rows = other.query("SELECT n FROM w UNION ALL SELECT id FROM t WHERE id > 300");
        Answered {
            error,
            calls,
            rows: rows.expect("rows"),
            last_insert_rowid,
            changes,
            total_changes: self.own.total_changes(),
        }
    }
}

// holds BESIDE-4
#[test]
fn what_a_wal_hook_answers_is_said_as_by_sqlite_and_nothing_is_done_twice() {
    let Some(subject) = real_plait("ends of COMMIT") else { return };
    for code in [0, 1, BUSY, BUSY_SNAPSHOT, INTERRUPT, IOERR, 13, 17, CONSTRAINT, 101] {
        let (ours, theirs) = (Hooked::new(&subject), Hooked::new(&Subject::stock()));
        for sql in [
            "UPDATE w SET n=n+1 WHERE id=1",
            "INSERT INTO t VALUES(2000, 1)",
            "DELETE FROM t WHERE id=1000",
            "INSERT INTO t(v) VALUES(7)",
            "BEGIN; UPDATE w SET n=n+1 WHERE id=1; COMMIT",
            "BEGIN IMMEDIATE; UPDATE w SET n=n+1 WHERE id=1; COMMIT",
            "CREATE TABLE u(x)",
            "PRAGMA user_version=7",
        ] {
            assert_eq!(ours.answered(code, sql), theirs.answered(code, sql), "{code}: {sql}");
        }
    }
}

#[test]
fn what_a_wal_hook_answers_is_no_reason_for_a_map_to_do_it_again() {
    let Some(subject) = real_plait("ends of COMMIT") else { return };
    for code in [0, BUSY, BUSY_SNAPSHOT, INTERRUPT, 17] {
        let hooked = Hooked::new(&subject);
        let other = hooked.fixture.open();
        let map = hooked.own.open_map("w", 0).expect("a map");
        for sum in 1..=3 {
            other.execute("UPDATE w SET n=n WHERE id=2").expect("a commit of another connection");
            hooked.answer.store(code, Relaxed);
            hooked.calls.store(0, Relaxed);
            let _ = map.add(&Value::Integer(1), 1);
            assert_eq!(hooked.calls.load(Relaxed), 1, "{code}");
            assert_eq!(other.integer("SELECT n FROM w WHERE id=1"), Ok(sum), "{code}");
        }
    }
}

#[test]
fn what_a_commit_says_is_of_this_commit() {
    let Some(subject) = real_plait("ends of COMMIT") else { return };
    let scene = Scene::new(&subject);
    let (own, there) = scene.attached("concurrent");
    let here = scene.open_impatient();
    own.execute("BEGIN CONCURRENT; UPDATE other.w SET n=n+1 WHERE id=1").expect("a write");
    there.execute("UPDATE w SET n=5 WHERE id=1").expect("a commit");
    assert_eq!(code(own.execute("COMMIT")), BUSY_SNAPSHOT);
    own.execute("ROLLBACK; BEGIN CONCURRENT; UPDATE main.w SET n=n+1 WHERE id=1").expect("a write");
    here.execute("BEGIN IMMEDIATE").expect("the right");
    let busy = own.execute("COMMIT").expect_err("the right is taken");
    assert_eq!(busy.extended, BUSY, "{busy}");
    assert!(busy.message.contains("holds the writer's right"), "{busy}");
    assert_eq!(own.errmsg(), busy.message);
    here.execute("COMMIT").expect("it ends");
    own.execute("COMMIT").expect("it was no conflict");
}

#[test]
fn what_another_file_says_is_not_told_with_the_words_of_an_earlier_failure() {
    let Some(subject) = real_plait("ends of COMMIT") else { return };
    let scene = Scene::new(&subject);
    let (own, there) = scene.attached("delete");
    let here = scene.open_impatient();
    here.execute("BEGIN IMMEDIATE").expect("the right");
    refused(own.execute("UPDATE main.w SET n=1"), BUSY, "holds the writer's right");
    there.execute("BEGIN EXCLUSIVE").expect("the file");
    let busy = own.execute("UPDATE other.w SET n=1").expect_err("it is locked");
    assert_eq!((busy.code, busy.message.as_str()), (BUSY, "database is locked"));
}

#[test]
fn a_file_that_is_attached_under_two_names_is_written_under_one_of_them() {
    let twice = |subject: &Subject, begin: &str, timeout: Duration| {
        let scene = Scene::new(subject);
        let own = scene.fixture.open();
        let attach = format!("ATTACH '{}' AS again", scene.fixture.database().display());
        own.execute(&attach).expect("attached");
        own.busy_timeout(timeout).expect("a timeout");
        own.execute(begin).expect("it begins");
        own.execute("UPDATE main.w SET n=1 WHERE id=1").expect("the first name");
        let since = Instant::now();
        refused(own.execute("UPDATE again.w SET n=2 WHERE id=1"), BUSY, "database is locked");
        assert!(since.elapsed() < AT_ONCE, "{begin}: it waits for itself");
        assert_eq!(own.integer("SELECT count(*) FROM again.w"), Ok(2), "{begin}: it reads");
        own.execute("COMMIT").unwrap_or_else(|error| panic!("{begin}: {error}"));
        own.execute("UPDATE again.w SET n=n+2 WHERE id=1").expect("now it is free");
        assert_eq!(own.integer("SELECT n FROM main.w WHERE id=1"), Ok(3), "{begin}");
    };
    let Some(subject) = real_plait("ends of COMMIT") else { return };
    for begin in ["BEGIN", "BEGIN CONCURRENT"] {
        twice(&subject, begin, AT_ONCE * 3);
    }
    twice(&Subject::stock(), "BEGIN", Duration::ZERO);
}

/// Ends of a COMMIT of BEGIN CONCURRENT.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Made,
    /// The commit hook says no.
    Vetoed,
    /// Somebody has the right.
    RightTaken,
    Conflict,
    /// A second file is locked.
    OtherFile,
    /// `sqlite3_interrupt` while it waits for the right.
    Interrupted,
}

/// How often each hook was called.
#[derive(Clone, Default)]
struct Calls {
    commit: Arc<AtomicI32>,
    rollback: Arc<AtomicI32>,
    wal: Arc<AtomicI32>,
}

/// All hooks there are. Those of the commit and the rollback read by a connection of their own, as SQLite asks of them, that of the WAL by
/// this one.
fn hook(scene: &Scene, own: &Connection, says_no: bool) -> Calls {
    let calls = Calls::default();
    let another = scene.open_impatient();
    let read = |count: &Arc<AtomicI32>, connection: &Connection| {
        let (connection, count) = (connection.clone(), count.clone());
        move || {
            count.fetch_add(1, Relaxed);
            connection.integer("SELECT count(*) FROM w").expect("it reads")
        }
    };
    let (commit, rollback) = (read(&calls.commit, &another), read(&calls.rollback, &another));
    let wal = read(&calls.wal, own);
    own.commit_hook(move || commit() == 2 && !says_no);
    own.rollback_hook(move || assert_eq!(rollback(), 2));
    own.wal_hook(move |_| i32::from(wal() != 2));
    own.update_hook(|_| ());
    own.preupdate_hook(|_| ());
    own.authorizer(|_, _| 0).expect("an authorizer");
    own.progress_handler(Some(|| true));
    calls
}

/// Without what would keep the connection from being closed.
fn unhook(own: &Connection) {
    own.commit_hook(|| true);
    own.rollback_hook(|| ());
    own.wal_hook(|_| 0);
}

/// A BEGIN CONCURRENT that has read one row of `t` and has one open, has changed `main.w` and locked `other.w`.
struct Ending {
    end: End,
    is_hooked: bool,
    own: Connection,
    others: Connection,
    there: Connection,
    calls: Calls,
    select: Statement,
    /// Outlives the others.
    _scene: Scene,
}

impl Ending {
    fn new(subject: &Subject, end: End, is_hooked: bool) -> Self {
        let scene = Scene::new(subject);
        let (own, there) = scene.attached("delete");
        let others = scene.open_impatient();
        let is_hooked = is_hooked || end == End::Vetoed;
        let calls = match is_hooked {
            true => hook(&scene, &own, end == End::Vetoed),
            false => Calls::default(),
        };
        own.execute("BEGIN CONCURRENT").expect("it begins");
        let select = begun(&own, "SELECT id, v FROM t ORDER BY id");
        own.execute("UPDATE w SET n=n+1 WHERE id=1; UPDATE other.w SET n=n WHERE 0")
            .expect("a write");
        others.execute("UPDATE t SET v=100 WHERE id=290").expect("a commit");
        Self { end, is_hooked, own, others, there, calls, select, _scene: scene }
    }

    fn said(&self) -> String {
        format!("{:?}, hooked: {}", self.end, self.is_hooked)
    }

    /// May be repeated or rolled back.
    fn goes_on(&self) -> bool {
        matches!(self.end, End::RightTaken | End::Conflict | End::OtherFile)
    }

    /// Puts into its way what it is to end by; returns the code.
    fn arrange(&self) -> i32 {
        match self.end {
            End::Made => 0,
            End::Vetoed => CONSTRAINT,
            End::RightTaken | End::Interrupted => {
                self.others.execute("BEGIN IMMEDIATE").expect("the right");
                if self.end == End::RightTaken { BUSY } else { INTERRUPT }
            }
            End::Conflict => {
                self.others.execute("UPDATE w SET n=n+10 WHERE id=1").expect("a commit");
                BUSY
            }
            End::OtherFile => {
                self.there.execute("BEGIN; SELECT * FROM w").expect("it reads");
                BUSY
            }
        }
    }

    fn commit(&self) -> Result<()> {
        if self.end != End::Interrupted {
            return self.own.execute("COMMIT");
        }
        self.own.busy_timeout(AT_ONCE * 6).expect("a timeout");
        let (interrupter, over) = (self.own.clone(), AtomicI32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while over.load(Relaxed) == 0 {
                    std::thread::sleep(Duration::from_millis(20));
                    interrupter.interrupt();
                }
            });
            let outcome = self.own.execute("COMMIT");
            over.store(1, Relaxed);
            outcome
        })
    }

    /// Others can do what they like, and the transaction, if there is one, reads one state; true if it is, or comes to be, made.
    fn goes_on_as_it_was(&mut self) -> bool {
        let said = self.said();
        if matches!(self.end, End::RightTaken | End::Interrupted) {
            self.others.execute("COMMIT").expect("it ends");
        }
        let beside = self.others.execute("INSERT INTO noted VALUES(2)");
        assert_eq!(beside, Ok(()), "{said}: the right is free");
        let mut is_made = matches!(self.end, End::Made | End::RightTaken);
        if self.end == End::OtherFile {
            self.there.execute("COMMIT").expect("it ends");
            // Where it has not moved to the newest commit it has now read what was changed since.
            let seen = further_on(&mut self.select, 290);
            let again = self.own.integer("SELECT v FROM t WHERE id=290");
            assert_eq!(again, Ok(seen), "{said}: one snapshot");
            is_made = seen == 100;
            assert_eq!(is_made, self.is_hooked, "{said}");
        }
        if is_made {
            assert_eq!(self.select.step(), Ok(Step::Row), "{said}: it goes on");
        }
        self.select.reset();
        if self.goes_on() {
            let again = code(self.own.execute("COMMIT"));
            assert_eq!(again, if is_made { 0 } else { BUSY_SNAPSHOT }, "{said}");
        }
        is_made
    }

    fn runs(mut self) {
        let said = self.said();
        let expected = self.arrange();
        let outcome = self.commit();
        let got = outcome.as_ref().err().map_or(0, |error| error.code);
        assert_eq!(got, expected, "{said}: {outcome:?}");
        assert_eq!(self.own.autocommit(), !self.goes_on(), "{said}: the transaction is open");
        let made = i32::from(self.goes_on_as_it_was());
        if !self.own.autocommit() {
            self.own.execute("ROLLBACK").expect("it ends");
        }
        let others_add = if self.end == End::Conflict { 10 } else { 0 };
        let n = self.others.integer("SELECT n FROM w WHERE id=1");
        assert_eq!(n, Ok(others_add + i64::from(made)), "{said}");
        if self.is_hooked {
            let Calls { commit, rollback, wal } = &self.calls;
            let told = [commit, rollback, wal].map(|count| count.load(Relaxed));
            let asked = made + i32::from(self.end == End::Vetoed);
            assert_eq!(told, [asked, 1 - made, made], "{said}: each hook hears of it once");
        }
        unhook(&self.own);
        self.own.execute("UPDATE w SET n=0 WHERE id=1").expect("it goes on");
    }
}

#[test]
fn every_end_of_a_commit_leaves_what_the_table_says_whatever_hooks_read_in_it() {
    let Some(subject) = real_plait("ends of COMMIT") else { return };
    for end in
        [End::Made, End::Vetoed, End::RightTaken, End::Conflict, End::OtherFile, End::Interrupted]
    {
        for is_hooked in [false, true] {
            Ending::new(&subject, end, is_hooked).runs();
        }
    }
}

/// The engine fails in one call after the other, before the commit point and behind it.
// holds ENDS-2
#[test]
fn a_commit_beside_an_open_select_fails_if_it_is_not_made_and_only_then() {
    if real_plait("ends of COMMIT").is_none() {
        return;
    }
    let subject = Subject::plait_with_crash_points();
    let mut is_behind = 0;
    for change in
        ["INSERT INTO noted VALUES(7)", "CREATE TABLE made(x); INSERT INTO noted VALUES(7)"]
    {
        for name in
            ["pl_snapshot_pin", "pl_snapshot_take", "pl_read_marks", "pl_settle_shown", "pl_commit"]
        {
            for passage in 1..=12 {
                let at = format!("{name}:{passage}");
                let fixture = Fixture::new(subject.clone(), SCHEMA);
                let environment = [("PLAIT_PANIC_AT", at.as_str()), ("RUST_BACKTRACE", "0")];
                let mut actor = Actor::in_process_with("failing", &subject, &environment);
                actor.open(&fixture.database()).expect("opening touches nothing");
                if actor.run("BEGIN IMMEDIATE").error.is_some() {
                    continue;
                }
                actor.open_cursor("select", "SELECT id FROM t ORDER BY id");
                if actor.step_cursor("select", 1).error.is_some()
                    || actor.run(change).error.is_some()
                {
                    continue;
                }
                let committed = actor.run("COMMIT").error;
                let read_on = actor.step_cursor("select", 1).error;
                actor.close().expect("it closes");
                let left = fixture.open().integer("SELECT count(*) FROM noted");
                assert_eq!(left, Ok(i64::from(committed.is_none())), "{at}: {committed:?}");
                is_behind += usize::from(committed.is_none() && read_on.is_some());
                if committed.is_none() && read_on.is_none() {
                    break;
                }
            }
        }
    }
    assert!(is_behind > 0, "no call behind the commit point has failed");
}

#[test]
fn two_actors_see_the_same_of_a_commit_that_was_given_back() {
    let Some(subject) = real_plait("ends of COMMIT") else { return };
    for place in [Place::Threads, Place::Processes] {
        let scene = Scene::new(&subject);
        let plain = scene.make("delete");
        let start = |name: &str| Actor::start(place, name, &subject, &scene.fixture.database());
        let (mut own, mut other) = (start("own"), start("other"));
        own.busy_timeout(Duration::ZERO);
        other.busy_timeout(Duration::ZERO);
        own.ok(&format!("ATTACH '{}' AS other; BEGIN CONCURRENT", plain.display()));
        own.ok("UPDATE main.w SET n=1 WHERE id=1; UPDATE other.w SET n=1 WHERE id=1");
        let reader = scene.fixture.subject.open(&plain).expect("it opens");
        reader.execute("BEGIN; SELECT * FROM w").expect("it reads");
        own.fails("COMMIT", BUSY);
        other.ok("UPDATE w SET n=5 WHERE id=2");
        reader.execute("COMMIT").expect("it ends");
        own.ok("COMMIT");
        assert_eq!(other.integer("SELECT sum(n) FROM w"), 6);
    }
}

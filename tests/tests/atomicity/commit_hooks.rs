//! Hooks of the application that fail, interrupt or run SQL in the middle of a COMMIT, whichever hook and at whichever of its calls: what the
//! COMMIT says is what has come of it, and nobody else waits for it afterwards. A full-text index has the COMMIT write rows, of which the
//! hooks for rows and for progress hear.

use plait_tests::sqlite::{ABORT_ROLLBACK, BUSY, Connection, Result};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Duration;

const SCHEMA: &str =
    "CREATE TABLE w(id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO w VALUES(1, 0), (2, 0);
    CREATE VIRTUAL TABLE f USING fts5(x)";
/// Denied, of an authorizer.
const DENY: i32 = 1;
/// Calls of a hook in a COMMIT that act in turn.
const CALLS_MAX: i32 = 4;

/// The hook that acts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hook {
    Commit,
    Rollback,
    Update,
    Preupdate,
    Progress,
    Authorizer,
    Wal,
}
const HOOKS: [Hook; 7] = [
    Hook::Commit,
    Hook::Rollback,
    Hook::Update,
    Hook::Preupdate,
    Hook::Progress,
    Hook::Authorizer,
    Hook::Wal,
];

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    /// It says no, where it is asked.
    Refuse,
    /// `sqlite3_interrupt`.
    Interrupt,
    /// It reads on the connection that commits.
    Read,
    /// It reads on another one.
    ReadElsewhere,
    /// It writes there.
    WriteElsewhere,
    /// It commits within the COMMIT.
    Commit,
    /// It sets a savepoint within the COMMIT, and takes it away.
    Savepoint,
}
const DEEDS: [Deed; 7] = [
    Deed::Refuse,
    Deed::Interrupt,
    Deed::Read,
    Deed::ReadElsewhere,
    Deed::WriteElsewhere,
    Deed::Commit,
    Deed::Savepoint,
];

/// What came of it.
#[derive(Debug, PartialEq)]
struct Course {
    /// How often the hook was called in the COMMIT.
    calls: i32,
    /// What the hook was told, if it ran SQL.
    told: i32,
    committed: i32,
    is_open: bool,
    /// What another COMMIT says where the transaction is open.
    again: i32,
    /// `n` of the first row and the number of full-text rows.
    left: [i64; 2],
}

fn code(outcome: Result<()>) -> i32 {
    outcome.err().map_or(0, |error| error.code)
}

/// A hook that acts at one of its calls.
struct Acting {
    deed: Deed,
    /// Its calls until then; 0 and less: it does not act.
    until: Arc<AtomicI32>,
    calls: Arc<AtomicI32>,
    told: Arc<AtomicI32>,
    own: Connection,
    other: Connection,
}

impl Acting {
    /// Whether it is content.
    fn call(&self) -> bool {
        self.calls.fetch_add(1, Relaxed);
        if self.until.fetch_sub(1, Relaxed) != 1 {
            return true;
        }
        let run = |connection: &Connection, sql: &str| {
            self.told.store(code(connection.execute(sql)), Relaxed)
        };
        match self.deed {
            Deed::Refuse => return false,
            Deed::Interrupt => self.own.interrupt(),
            Deed::Read => run(&self.own, "SELECT sum(n) FROM w"),
            Deed::ReadElsewhere => run(&self.other, "SELECT sum(n) FROM w"),
            Deed::WriteElsewhere => run(&self.other, "UPDATE w SET n=n+1 WHERE id=2"),
            Deed::Commit => run(&self.own, "COMMIT"),
            Deed::Savepoint => run(&self.own, "SAVEPOINT s; RELEASE s"),
        }
        true
    }

    fn install(self, hook: Hook) {
        let own = self.own.clone();
        match hook {
            Hook::Commit => own.commit_hook(move || self.call()),
            Hook::Rollback => own.rollback_hook(move || {
                self.call();
            }),
            Hook::Update => own.update_hook(move |_| {
                self.call();
            }),
            Hook::Preupdate => own.preupdate_hook(move |_| {
                self.call();
            }),
            Hook::Progress => own.progress_handler(Some(move || self.call())),
            Hook::Authorizer => own
                .authorizer(move |_, _| if self.call() { 0 } else { DENY })
                .expect("an authorizer"),
            Hook::Wal => own.wal_hook(move |_| if self.call() { 0 } else { BUSY }),
        }
    }
}

/// Without what keeps the connection from being closed.
fn unhook(own: &Connection) {
    own.commit_hook(|| true);
    own.rollback_hook(|| ());
    own.update_hook(|_| ());
    own.preupdate_hook(|_| ());
    own.progress_handler(None::<fn() -> bool>);
    own.authorizer(|_, _| 0).expect("an authorizer");
    own.wal_hook(|_| 0);
}

fn impatient(fixture: &Fixture) -> Connection {
    let connection = fixture.open();
    connection.busy_timeout(Duration::ZERO).expect("a timeout");
    connection
}

/// A transaction is committed, and the hook acts at this of its calls; one whose COMMIT is refused by the commit hook where that of the
/// rollback is to be called.
fn run(subject: &Subject, begin: &str, hook: Hook, deed: Deed, at: i32) -> Course {
    let said = format!("{begin}, {hook:?} {deed:?} at call {at}");
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let (own, other) = (impatient(&fixture), impatient(&fixture));
    other.execute("UPDATE w SET n=n WHERE id=2").expect("a commit");
    own.execute(&format!(
        "{begin}; INSERT INTO f VALUES('one two'); UPDATE w SET n=n+1 WHERE id=1"
    ))
    .expect("a write");
    let (until, calls, told) = <(Arc<AtomicI32>, Arc<AtomicI32>, Arc<AtomicI32>)>::default();
    if hook == Hook::Rollback {
        own.commit_hook(|| false);
    }
    let acting = Acting {
        deed,
        until: until.clone(),
        calls: calls.clone(),
        told: told.clone(),
        own: own.clone(),
        other: other.clone(),
    };
    acting.install(hook);
    calls.store(0, Relaxed);
    until.store(at, Relaxed);
    let committed = code(own.execute("COMMIT"));
    let (is_open, calls) = (!own.autocommit(), calls.load(Relaxed));
    until.store(0, Relaxed);
    let told = told.load(Relaxed);
    let again = if is_open { code(own.execute("COMMIT")) } else { 0 };
    if !own.autocommit() {
        own.execute("ROLLBACK").unwrap_or_else(|error| panic!("{said}: {error}"));
    }
    unhook(&own);
    // Whether it wrote depends on when the right is taken; both are right.
    other.execute("UPDATE w SET n=0 WHERE id=2").unwrap_or_else(|error| panic!("{said}: {error}"));
    let left = ["SELECT n FROM w WHERE id=1", "SELECT count(*) FROM f"].map(|sql| {
        let seen = other.integer(sql);
        assert_eq!(own.integer(sql), seen, "{said}: {sql}");
        seen.expect("a number")
    });
    for connection in [&own, &other] {
        let sound = connection.text("PRAGMA integrity_check");
        assert_eq!(sound.as_deref(), Ok("ok"), "{said}");
        let found = connection.integer("SELECT count(*) FROM f WHERE f MATCH 'two'");
        assert_eq!(found, Ok(left[1]), "{said}");
    }
    own.execute("INSERT INTO f VALUES('three'); UPDATE w SET n=7 WHERE id=1").expect("it goes on");
    Course { calls, told, committed, is_open, again, left }
}

/// SQLite would end the transaction at the end of a statement that runs in the middle of a COMMIT, or roll it back where that fails, and say
/// all the same that it was committed. Here such a statement ends nothing.
fn ends_by_itself_in_sqlite(hook: Hook, deed: Deed) -> bool {
    hook == Hook::Commit && matches!(deed, Deed::Read | Deed::Commit | Deed::Savepoint)
}

#[test]
fn a_hook_that_fails_interrupts_or_runs_sql_in_a_commit_has_it_end_as_in_sqlite() {
    let Some(subject) = real_plait("hooks in a COMMIT") else { return };
    let mut seen = [0; HOOKS.len()];
    for (number, hook) in HOOKS.into_iter().enumerate() {
        for deed in DEEDS {
            for at in 1..=CALLS_MAX {
                let said = format!("{hook:?} {deed:?} at call {at}");
                let ours = run(&subject, "BEGIN IMMEDIATE", hook, deed, at);
                let stock = if ends_by_itself_in_sqlite(hook, deed) {
                    assert_eq!((ours.committed, ours.left), (0, [1, 1]), "{said}");
                    None
                } else {
                    let stock = run(&Subject::stock(), "BEGIN IMMEDIATE", hook, deed, at);
                    assert_eq!(ours, stock, "{said}");
                    Some(stock)
                };
                for begin in ["BEGIN", "BEGIN CONCURRENT"] {
                    let told = |course: &Course| {
                        (course.committed, course.is_open, course.again, course.left)
                    };
                    let beside = run(&subject, begin, hook, deed, at);
                    let expected = stock.as_ref().unwrap_or(&ours);
                    assert_eq!(told(&beside), told(expected), "{begin}, {said}");
                }
                seen[number] += ours.calls;
                if ours.calls < at {
                    break;
                }
            }
        }
    }
    assert!(seen.iter().all(|&calls| calls > 0), "a hook was not called: {seen:?}");
}

/// The handler of a COMMIT that waits for the writer's right runs this on its own connection, several times.
#[test]
fn a_busy_handler_that_runs_sql_on_its_connection_loses_nothing_of_a_commit_that_waits() {
    let Some(subject) = real_plait("handlers in a COMMIT") else { return };
    for sql in [
        "SELECT count(*) FROM w",
        "SELECT count(*) FROM f",
        "SELECT 1",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT s; RELEASE s",
        "INSERT INTO w VALUES(3, 3)",
        "SELECT * FROM absent",
    ] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let (own, other) = (impatient(&fixture), impatient(&fixture));
        own.execute("BEGIN CONCURRENT; INSERT INTO f VALUES('one two')").expect("a write");
        own.execute("UPDATE w SET n=n+1 WHERE id=1").expect("a write");
        other.execute("BEGIN IMMEDIATE").expect("the right");
        let (inside, calls) = (own.clone(), Arc::new(AtomicI32::new(0)));
        let count = calls.clone();
        own.busy_handler(move |_| {
            let _ = inside.execute(sql);
            count.fetch_add(1, Relaxed) < 3
        })
        .expect("a handler");
        assert_eq!(code(own.execute("COMMIT")), BUSY, "{sql}");
        assert!(calls.load(Relaxed) > 1, "{sql}: the handler was called");
        assert!(!own.autocommit(), "{sql}: the transaction is open");
        other.execute("COMMIT").expect("it ends");
        own.execute("COMMIT").unwrap_or_else(|error| panic!("{sql}: {error}"));
        own.busy_handler(|_| false).expect("a handler");
        for connection in [&own, &other] {
            assert_eq!(connection.integer("SELECT n FROM w WHERE id=1"), Ok(1), "{sql}");
            let found = connection.integer("SELECT count(*) FROM f WHERE f MATCH 'two'");
            assert_eq!(found, Ok(1), "{sql}");
            let sound = connection.text("PRAGMA integrity_check");
            assert_eq!(sound.as_deref(), Ok("ok"), "{sql}");
        }
    }
}

/// SQLite rolls everything back for such a failure, on whatever table it is met.
#[test]
fn a_busy_handler_that_has_the_transaction_rolled_back_does_not_have_it_committed() {
    let Some(subject) = real_plait("handlers in a COMMIT") else { return };
    for gives_up in [false, true] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let (own, other) = (impatient(&fixture), impatient(&fixture));
        own.execute("CREATE TEMP TABLE once(x UNIQUE); INSERT INTO once VALUES(1)").expect("a row");
        own.execute("BEGIN CONCURRENT; UPDATE w SET n=n+1 WHERE id=1").expect("a write");
        other.execute("BEGIN IMMEDIATE").expect("the right");
        let (inside, holder) = (own.clone(), other.clone());
        own.busy_handler(move |_| {
            let twice = inside.execute("INSERT OR ROLLBACK INTO once VALUES(1)");
            assert!(twice.is_err(), "a row twice");
            if !gives_up {
                holder.execute("COMMIT").expect("it ends");
            }
            !gives_up
        })
        .expect("a handler");
        let refused = own.execute("COMMIT").expect_err("it was rolled back");
        assert_eq!(refused.extended, ABORT_ROLLBACK, "{refused}");
        assert!(own.autocommit(), "nothing is left to be committed again");
        own.busy_handler(|_| false).expect("a handler");
        if gives_up {
            other.execute("COMMIT").expect("it ends");
        }
        own.execute("UPDATE w SET n=n+5 WHERE id=1").expect("it goes on");
        assert_eq!(other.integer("SELECT n FROM w WHERE id=1"), Ok(5));
    }
}

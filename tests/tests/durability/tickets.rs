//! Tickets: plait_ticket(), plait_durable(), plait_wait(), plait_notify_fd(). What a power cut leaves is in powercuts.rs.

use plait_tests::sqlite::{Connection, MISUSE, SqlError};
use plait_tests::subject::{Fixture, real_plait};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;
use std::time::{Duration, Instant};

/// Far longer than a sync takes.
const PATIENCE: Duration = Duration::from_secs(30);
const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v)";
const INSERT: &str = "INSERT INTO t(v) VALUES(randomblob(20))";

fn ticket(connection: &Connection) -> i64 {
    connection.integer("SELECT plait_ticket()").expect("it is in the mode")
}

fn durable(connection: &Connection) -> i64 {
    connection.integer("SELECT plait_durable()").expect("it is in the mode")
}

fn wait(connection: &Connection, ticket: i64) -> Result<i64, SqlError> {
    connection.integer(&format!("SELECT plait_wait({ticket}, 30000)"))
}

/// Two connections, members of a session, which do not wait for the disk.
fn two(fixture: &Fixture) -> [Connection; 2] {
    [(); 2].map(|()| {
        let connection = fixture.open();
        connection.execute("PRAGMA synchronous=NORMAL").expect("a pragma");
        ticket(&connection);
        connection
    })
}

// holds TICKET-3
#[test]
fn tickets_are_in_the_order_of_commits_of_every_kind() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let [a, b] = two(&fixture);
    let mut last = ticket(&a).max(ticket(&b));
    for (connection, sql) in [
        (&a, INSERT),
        (&b, INSERT),
        (&b, "BEGIN CONCURRENT; INSERT INTO t(v) VALUES(1); COMMIT"),
        (&a, "CREATE TABLE more(x)"),
        (&b, "BEGIN IMMEDIATE; INSERT INTO more VALUES(1); INSERT INTO t(v) VALUES(2); COMMIT"),
        (&a, "BEGIN EXCLUSIVE; INSERT INTO more VALUES(2); COMMIT"),
        (&a, "PRAGMA synchronous=FULL; INSERT INTO t(v) VALUES(3)"),
        (&b, "VACUUM"),
        (&b, INSERT),
    ] {
        connection.execute(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        let now = ticket(connection);
        assert!(now > last, "{sql}: {now} after {last}");
        last = now;
    }
    let own = ticket(&a);
    assert!(own < last, "another's commit is not its own");
    for sql in [
        "SELECT * FROM t",
        "BEGIN; INSERT INTO t(v) VALUES(4); ROLLBACK",
        "UPDATE t SET v=1 WHERE 0",
    ] {
        a.execute(sql).expect("it works");
        assert_eq!(ticket(&a), own, "{sql}");
    }
}

#[test]
fn a_commit_is_on_disk_when_somebody_has_synced_and_not_before() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let [a, b] = two(&fixture);
    for sql in [INSERT, "CREATE TABLE more(x)", "INSERT INTO more VALUES(1)", "DROP TABLE more"] {
        a.execute(sql).expect(sql);
        let own = ticket(&a);
        assert!(durable(&b) < own, "{sql}: nobody has synced");
        assert_eq!(b.integer(&format!("SELECT plait_wait({own}, 0)")), Ok(0), "{sql}");
        assert_eq!(wait(&b, own), Ok(1), "{sql}");
        assert!(durable(&a) >= own, "{sql}: it is said to everybody");
        assert_eq!(a.integer(&format!("SELECT plait_wait({own}, 0)")), Ok(1), "{sql}");
    }
    b.execute("PRAGMA synchronous=FULL").expect("a pragma");
    a.execute(INSERT).expect("an insert");
    for sql in [INSERT, "CREATE TABLE more(x)", INSERT] {
        b.execute(sql).expect(sql);
    }
    assert!(
        durable(&a) >= ticket(&b) && ticket(&b) > ticket(&a),
        "FULL takes with it what was before"
    );
}

#[test]
fn a_transaction_that_is_open_has_the_ticket_of_the_last_one() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let [a, _b] = two(&fixture);
    a.execute(INSERT).expect("an insert");
    let last = ticket(&a);
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "BEGIN CONCURRENT", "BEGIN EXCLUSIVE"] {
        a.execute(&format!("{begin}; {INSERT}")).expect(begin);
        assert_eq!(ticket(&a), last, "{begin}");
        assert_eq!(wait(&a, last), Ok(1), "{begin}: waiting in a transaction");
        a.execute("ROLLBACK").expect("it ends");
    }
}

#[test]
fn two_files_have_tickets_of_their_own() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let other = Fixture::new(subject, "CREATE TABLE o(x)");
    let [a, _b] = two(&fixture);
    a.execute(&format!("ATTACH '{}' AS o", other.database().display())).expect("it attaches");
    a.execute("PRAGMA o.synchronous=NORMAL; INSERT INTO o.o VALUES(1)").expect("an insert");
    let of_other = |sql: &str| a.integer(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let (main, o) = (ticket(&a), of_other("SELECT plait_ticket('o')"));
    a.execute("BEGIN; INSERT INTO o VALUES(2); INSERT INTO t(v) VALUES(2); COMMIT").expect("both");
    assert!(ticket(&a) > main && of_other("SELECT plait_ticket('o')") > o);
    assert_eq!(of_other("SELECT plait_wait(plait_ticket('o'), 30000, 'o')"), 1);
    assert_eq!(of_other("SELECT plait_ticket('o') <= plait_durable('o')"), 1);
    assert_eq!(wait(&a, ticket(&a)), Ok(1));
    let error = a.integer("SELECT plait_ticket('nowhere')").expect_err("there is none");
    assert!(error.message.contains("unknown database"), "{error}");
}

#[test]
fn tickets_of_other_sessions_and_of_nobody_are_refused() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let [a, b] = two(&fixture);
    a.execute(INSERT).expect("an insert");
    let old = ticket(&a);
    for (connection, text) in [(a, "whose newest is"), (b, "whose newest is")] {
        let error = wait(&connection, old + 1).expect_err("it was not given");
        assert!(error.code == MISUSE && error.message.contains(text), "{error}");
        connection.close().expect("it closes");
    }
    let [a, _b] = two(&fixture);
    let error = wait(&a, old).expect_err("its session is over");
    assert!(error.code == MISUSE && error.message.contains("earlier session"), "{error}");
    assert!(ticket(&a) > old, "numbers go on");
    a.execute(INSERT).expect("an insert");
    assert_eq!(wait(&a, ticket(&a)), Ok(1));
    let error = a.integer("SELECT plait_wait('x')").expect_err("it is none");
    assert!(error.message.contains("a ticket is an integer"), "{error}");
    let error = a.integer("SELECT plait_wait(-1)").expect_err("nobody has a negative one");
    assert!(error.code == MISUSE && error.message.contains("negative"), "{error}");
    let error = a.integer("SELECT plait_wait(0, 'soon')").expect_err("no time");
    assert!(error.message.contains("milliseconds are an integer"), "{error}");
    assert_eq!(a.integer("SELECT plait_wait(0, 0)"), Ok(1), "it stands for nothing");
    assert_eq!(a.integer("SELECT plait_wait(NULL) IS NULL"), Ok(1));
}

#[test]
fn other_journal_modes_say_that_they_have_none() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let memory = fixture.open();
    memory.execute("ATTACH ':memory:' AS m").expect("it attaches");
    for sql in
        ["SELECT plait_ticket('m')", "SELECT plait_wait(1, 0, 'm')", "SELECT plait_notify_fd('m')"]
    {
        let error = memory.integer(sql).expect_err("it is not in the mode");
        assert!(error.message.contains("journal_mode=concurrent"), "{sql}: {error}");
    }
}

/// Reads until the descriptor has been written to.
fn is_told(descriptor: &mut File) -> bool {
    let start = Instant::now();
    let mut count = [0; 8];
    while start.elapsed() < PATIENCE {
        match descriptor.read(&mut count) {
            Ok(8) => return true,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => panic!("{other:?}"),
        }
    }
    false
}

fn descriptor(connection: &Connection) -> File {
    let fd = connection.integer("SELECT plait_notify_fd()").expect("a descriptor");
    // SAFETY: the library has made it for this caller.
    unsafe { File::from_raw_fd(fd as i32) }
}

// holds NOTIFY-1, NOTIFY-3
#[test]
fn who_has_a_descriptor_is_told_of_every_commit_that_nobody_waits_for() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let [a, b] = two(&fixture);
    let mut of_a = descriptor(&a);
    for (connection, sql) in
        [(&a, INSERT), (&a, "CREATE TABLE more(x)"), (&b, INSERT), (&a, INSERT)]
    {
        connection.execute(sql).expect(sql);
        let own = ticket(connection);
        let start = Instant::now();
        while durable(&a) < own {
            assert!(is_told(&mut of_a) && start.elapsed() < PATIENCE, "{sql}");
        }
    }
    // Another one of the same counter, and one of another connection.
    let mut second = descriptor(&a);
    let mut of_b = descriptor(&b);
    drop(of_a);
    b.execute(INSERT).expect("an insert");
    assert!(is_told(&mut second) && is_told(&mut of_b));
    // The thread goes on for the other, and its descriptor outlives its connection, in silence.
    a.close().expect("it closes");
    b.execute(INSERT).expect("an insert");
    let (own, start) = (ticket(&b), Instant::now());
    while durable(&b) < own {
        assert!(is_told(&mut of_b) && start.elapsed() < PATIENCE);
    }
    b.close().expect("it closes");
    drop((second, of_b));
}

#[test]
fn an_interrupt_ends_a_wait_behind_a_sync_of_others_and_nothing_else() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let [a, _b] = two(&fixture);
    a.execute(INSERT).expect("an insert");
    a.interrupt();
    // It was for what ran then.
    assert_eq!(wait(&a, ticket(&a)), Ok(1));
}

/// Each keeps its commits in flight and waits for the last one alone.
#[test]
fn many_writers_bring_each_other_to_disk() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let connection = fixture.open();
                connection.execute("PRAGMA synchronous=NORMAL").expect("a pragma");
                for _ in 0..20 {
                    for _ in 0..20 {
                        connection.execute(INSERT).expect("an insert");
                    }
                    let own = ticket(&connection);
                    assert_eq!(wait(&connection, own), Ok(1));
                    assert!(durable(&connection) >= own);
                }
            });
        }
    });
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(6 * 20 * 20));
}

#[test]
fn an_exclusive_commit_under_full_is_on_disk_when_it_returns() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let [a, _b] = two(&fixture);
    a.execute("PRAGMA synchronous=FULL").expect("a pragma");
    for sql in [
        "CREATE TABLE more(x)",
        "BEGIN IMMEDIATE; PRAGMA application_id=7; INSERT INTO more VALUES(1); COMMIT",
        "VACUUM",
    ] {
        a.execute(sql).expect(sql);
        assert!(durable(&a) >= ticket(&a), "{sql}");
    }
}

#[test]
fn before_its_first_commit_a_connection_has_the_ticket_of_what_was_there() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let [a, _b] = two(&fixture);
    for _ in 0..3 {
        a.execute(INSERT).expect("an insert");
    }
    let late = fixture.open();
    assert_eq!(late.integer("SELECT count(*) FROM t"), Ok(3));
    let seen = ticket(&late);
    assert!(seen >= ticket(&a) && durable(&late) < seen, "what it reads is not on disk");
    assert_eq!(wait(&late, seen), Ok(1));
}

#[test]
fn a_ticket_from_before_the_mode_was_left_is_refused_and_the_descriptor_says_so() {
    let Some(subject) = real_plait("tickets") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let [a, b] = two(&fixture);
    b.close().expect("it closes");
    for _ in 0..20 {
        a.execute(INSERT).expect("an insert");
    }
    let old = ticket(&a);
    let mut fd = descriptor(&a);
    a.execute("PRAGMA journal_mode=delete; PRAGMA journal_mode=concurrent").expect("pragmas");
    assert!(is_told(&mut fd), "it is over");
    for _ in 0..40 {
        a.execute(INSERT).expect("an insert");
        assert!(ticket(&a) > old);
        let error = wait(&a, old).expect_err("its session is over");
        assert!(error.code == MISUSE && error.message.contains("earlier session"), "{error}");
    }
}

//! The longest stall of a committer under NORMAL, of one under FULL and of a reader beside what might hold them up.
//!
//! `cargo run --release -p plait-tests --bin stalls`; the tables of `docs/stalls.md` are its output. The second one needs the library
//! with crash points (`cargo run -p xtask -- dist --crash-points`).

use plait_tests::actor::Actor;
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::stopped::{Ending, Role, points, stop_at};
use plait_tests::subject::{Fixture, Subject};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SCHEMA: &str =
    "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, b BLOB); INSERT INTO t(n) VALUES(0), (0)";
const SECOND: Duration = Duration::from_secs(1);
/// What the witnesses do, over and over.
const WITNESSES: [&str; 3] = [
    "PRAGMA synchronous=NORMAL; UPDATE t SET n=n+1 WHERE id=1",
    "PRAGMA synchronous=FULL; UPDATE t SET n=n+1 WHERE id=2",
    "SELECT sum(n) FROM t WHERE id<3",
];

type Case = (&'static str, fn(&Fixture));

fn start(fixture: &Fixture, name: &str) -> Actor {
    Actor::start(Place::Processes, name, &fixture.subject, &fixture.database())
}

fn checkpoint(fixture: &Fixture, how: &str) {
    let mut reader = start(fixture, "reader");
    reader.ok("BEGIN; SELECT count(*) FROM t");
    let mut writer = start(fixture, "writer");
    writer.ok("UPDATE t SET n=n+1 WHERE id=1; PRAGMA quick_check");
    let mut waiting = start(fixture, "checkpoint");
    waiting.send(&format!("PRAGMA wal_checkpoint({how})"));
    sleep(3 * SECOND);
    reader.ok("COMMIT");
    waiting.finish();
}

fn repeat(fixture: &Fixture, sql: &str) {
    let mut actor = start(fixture, "actor");
    let begun = Instant::now();
    while begun.elapsed() < 3 * SECOND {
        actor.run(sql);
    }
}

fn opening(fixture: &Fixture) {
    let begun = Instant::now();
    while begun.elapsed() < 3 * SECOND {
        let mut actor = start(fixture, "visitor");
        actor.ok("SELECT count(*) FROM t");
        actor.close().expect("it closes");
    }
}

/// Stopped again and again, wherever it is.
fn stopped(fixture: &Fixture) {
    let mut actor = start(fixture, "stopped");
    actor.ok("PRAGMA synchronous=FULL");
    for _ in 0..5 {
        actor.send("UPDATE t SET n=n+1 WHERE id=(SELECT max(id) FROM t)");
        sleep(Duration::from_millis(1));
        os::suspend(actor.pid()).expect("it can be stopped");
        sleep(SECOND);
        os::resume(actor.pid()).expect("it goes on");
        actor.finish();
    }
}

const CASES: [Case; 9] = [
    ("nobody else", |_| sleep(3 * SECOND)),
    ("wal_checkpoint(FULL) behind a reader", |f| checkpoint(f, "FULL")),
    ("wal_checkpoint(RESTART) behind a reader", |f| checkpoint(f, "RESTART")),
    ("wal_checkpoint(TRUNCATE) behind a reader", |f| checkpoint(f, "TRUNCATE")),
    ("schema changes", |f| repeat(f, "CREATE TABLE z(a); DROP TABLE z")),
    ("merges", |f| repeat(f, "INSERT INTO t(b) VALUES(randomblob(100000)); PRAGMA wal_checkpoint")),
    ("transactions of 2 MB, BEGIN CONCURRENT", |f| {
        repeat(f, "BEGIN CONCURRENT; INSERT INTO t(b) VALUES(randomblob(2000000)); COMMIT")
    }),
    ("opening and closing", opening),
    ("a committer that is stopped for a second, five times", stopped),
];

/// The longest that `sql` took, of those that began before `stop`.
fn longest(fixture: &Fixture, sql: &str, stop: &AtomicBool) -> Duration {
    let connection = fixture.open();
    let mut longest = Duration::ZERO;
    while !stop.load(Relaxed) {
        let begun = Instant::now();
        if let Err(error) = connection.execute(sql) {
            eprintln!("{sql}: {error}");
        }
        longest = longest.max(begun.elapsed());
        sleep(Duration::from_millis(2));
    }
    longest
}

/// What others wait for at most while a process is stopped at each step of the engine; for some seconds, until visitors of all kinds have
/// come and gone.
fn steps() {
    println!(
        "\n| stopped at | NORMAL | FULL | reader | schema change | visitors |\n|---|---|---|---|---|---|"
    );
    let subject = Subject::plait_with_crash_points();
    for (point, passage) in points() {
        let report = stop_at(&subject, point, passage, &Role::ALL, Ending::Continued);
        for complaint in &report.complaints {
            eprintln!("{point}: {complaint}");
        }
        let of = |role| match report.stalls.iter().find(|stall| stall.0 == role) {
            Some((_, took, failed)) => {
                format!("{:.0} ms{}", took.as_secs_f64() * 1e3, if *failed { ", BUSY" } else { "" })
            }
            None => "-".into(),
        };
        let stalls = Role::ALL.map(of).join(" | ");
        println!("| `{point}` | {stalls} | {:.0} ms |", report.visitors.as_secs_f64() * 1e3);
    }
}

fn main() {
    besides();
    steps();
}

fn besides() {
    println!("| beside | NORMAL | FULL | reader |\n|---|---|---|---|");
    for (name, case) in CASES {
        let fixture = Fixture::new(Subject::plait(), SCHEMA);
        let stop = AtomicBool::new(false);
        let stalls: Vec<String> = std::thread::scope(|scope| {
            let witnesses = WITNESSES.map(|sql| {
                let (fixture, stop) = (&fixture, &stop);
                scope.spawn(move || longest(fixture, sql, stop))
            });
            sleep(SECOND / 5);
            case(&fixture);
            stop.store(true, Relaxed);
            let ms = |stall: Duration| format!("{:.0} ms", stall.as_secs_f64() * 1e3);
            witnesses.map(|witness| ms(witness.join().expect("no panic"))).into()
        });
        println!("| {name} | {} |", stalls.join(" | "));
    }
}

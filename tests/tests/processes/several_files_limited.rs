//! What threads of a process that may not write the log have prepared over two files, and cannot even take back, others do: nobody else
//! is stopped. The only test of its program: the limit is this process's own.

use plait_tests::actor::Actor;
use plait_tests::os::{self, Limited};
use plait_tests::place::Place;
use plait_tests::sqlite::Connection;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SCHEMA: &str = "CREATE TABLE t(b)";
const MOST_BYTES: u64 = 200_000;
const LIMITED_FOR: Duration = Duration::from_millis(2500);
const NAP: Duration = Duration::from_millis(2);

fn opened(subject: &Subject, first: &Path, attach: &str, synchronous: &str) -> Connection {
    let connection = subject.open(first).expect("it opens");
    connection.execute(attach).expect("it is attached");
    connection
        .execute(&format!(
            "PRAGMA main.synchronous={synchronous}; PRAGMA second.synchronous={synchronous}"
        ))
        .expect("pragmas");
    connection
}

/// The `n`-th transaction of a writer: of rows of many sizes, half of them in both files.
fn transaction(n: usize) -> String {
    // Of both files only in the order in which all others take them.
    let both = n % 5 < 3;
    let begin = match n % 3 {
        0 if !both => "BEGIN CONCURRENT",
        1 => "BEGIN",
        _ => "BEGIN IMMEDIATE",
    };
    let mut sql = format!("{begin}; ");
    for row in 0..=n % 4 {
        let bytes = [10, 2_000, 20_000, 200_000][(n * 7 / 3 + row * 5) % 4];
        sql.push_str(&format!("INSERT INTO main.t VALUES(zeroblob({bytes}));"));
    }
    if both {
        sql.push_str(&format!("INSERT INTO second.t VALUES(zeroblob({}));", [10, 20_000][n % 2]));
    }
    sql + "COMMIT"
}

// holds PREP-5
#[test]
fn what_a_process_cannot_take_back_of_a_commit_over_two_files_others_do() {
    let Some(subject) = real_plait("limits beside commits over two files") else { return };
    os::ignore_file_size_signal();
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let second = fixture.path("second.db");
    subject.create(&second).expect("a second file").execute(SCHEMA).expect("its table");
    let attach = format!("ATTACH '{}' AS second", second.display());
    let mut others = ["one", "another"].map(|name| {
        let mut other = Actor::start(Place::Processes, name, &subject, &fixture.database());
        other.busy_timeout(Duration::from_secs(20));
        other.ok(&attach);
        other
    });
    let (refused, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let path = fixture.database();
    std::thread::scope(|scope| {
        for (start, synchronous) in [(0, "FULL"), (7, "NORMAL"), (13, "FULL")] {
            let connection = opened(&subject, &path, &attach, synchronous);
            let (refused, ends) = (&refused, &ends);
            scope.spawn(move || {
                for n in start.. {
                    if ends.load(Relaxed) {
                        break;
                    }
                    if connection.execute(&transaction(n)).is_err() {
                        refused.fetch_add(1, Relaxed);
                        let _ = connection.execute("ROLLBACK");
                    }
                    std::thread::sleep(NAP);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        os::limit(std::process::id(), Limited::FileSize, Some(MOST_BYTES)).expect("a limit");
        let begun = Instant::now();
        let (mut n, mut failed) = (0, None);
        while failed.is_none() && begun.elapsed() < LIMITED_FOR {
            for (i, other) in others.iter_mut().enumerate() {
                other.send(&transaction(3 * (n + 17 * i) + 1));
            }
            for other in &mut others {
                failed = failed.or(other.finish().error);
            }
            n += 1;
            std::thread::sleep(NAP);
        }
        os::limit(std::process::id(), Limited::FileSize, None).expect("no limit");
        ends.store(true, Relaxed);
        assert_eq!(failed, None, "others go on");
    });
    assert!(refused.load(Relaxed) > 0, "the limit was met");
    let rows = others[0].integer("SELECT count(*) FROM main.t");
    for mut other in others {
        other.close().expect("it closes");
    }
    let last = subject.open(&path).expect("it opens");
    assert_eq!(last.integer("SELECT count(*) FROM t"), Ok(rows));
    last.close().expect("it closes");
    let stock = Subject::stock().open(&path).expect("stock opens it");
    assert_eq!(stock.integer("SELECT count(*) FROM t"), Ok(rows));
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

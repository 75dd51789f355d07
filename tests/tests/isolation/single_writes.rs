//! Single writes of several connections: they are tried beside each other and run again where one has lost, of which nobody is told.

use plait_tests::planted::must_be_reported;
use plait_tests::sqlite::{BUSY, CONSTRAINT, Connection};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const WRITERS: u64 = 8;
const TIME: Duration = Duration::from_millis(1500);
/// Counters, of which each writer has its own as well.
const SCHEMA: &str = "CREATE TABLE hot(k INTEGER PRIMARY KEY, v INTEGER);
    INSERT INTO hot VALUES(1, 0), (2, 0), (3, 0);
    CREATE TABLE names(name TEXT PRIMARY KEY, owner INTEGER UNIQUE) WITHOUT ROWID;
    CREATE TABLE rows(id INTEGER PRIMARY KEY, of INTEGER, u TEXT UNIQUE);
    CREATE TABLE automatic(id INTEGER PRIMARY KEY, of INTEGER);
    CREATE INDEX rows_of ON rows(of)";

/// What writers have done together.
#[derive(Debug, Default)]
struct Done {
    added: AtomicI64,
    names: AtomicI64,
    rows: AtomicI64,
    automatic: AtomicI64,
}

/// Runs `write` in threads with a connection each, until the time is over.
fn write_together(
    subject: &Subject,
    write: impl Fn(u64, &Connection, &mut StdRng) + Sync,
) -> Fixture {
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let keeper = fixture.open();
    keeper.execute("PRAGMA page_count; UPDATE hot SET v=0").expect("a session");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (fixture, write) = (&fixture, &write);
            scope.spawn(move || {
                let connection = fixture.open();
                connection.execute("PRAGMA synchronous=NORMAL").expect("a setting");
                let mut random = StdRng::seed_from_u64(writer);
                let end = Instant::now() + TIME;
                while Instant::now() < end {
                    write(writer, &connection, &mut random);
                }
            });
        }
    });
    fixture
}

/// One write of a kind, checked by what is said of it.
fn write_something(writer: u64, connection: &Connection, random: &mut StdRng, done: &Done) {
    let key = random.random_range(1..=3);
    let one = |sql: &str| connection.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let id = (writer as i64 + 1) << 40 | random.random_range(0..1 << 30);
    match random.random_range(0..8) {
        0 | 1 => {
            one(&format!("UPDATE hot SET v=v+1 WHERE k={key}"));
            assert_eq!(connection.changes(), 1);
            done.added.fetch_add(1, Relaxed);
        }
        2 => {
            one(&format!(
                "INSERT INTO hot VALUES({key}, 1) ON CONFLICT(k) DO UPDATE SET v=v+excluded.v"
            ));
            done.added.fetch_add(1, Relaxed);
        }
        3 => {
            one(&format!("INSERT OR IGNORE INTO names VALUES('name {key}', {key})"));
            done.names.fetch_add(connection.changes(), Relaxed);
        }
        4 => {
            one(&format!("DELETE FROM names WHERE name='name {key}'"));
            done.names.fetch_sub(connection.changes(), Relaxed);
        }
        5 => {
            let before = connection.last_insert_rowid();
            let sql = format!("INSERT INTO rows VALUES({id}, {writer}, 'u{key}')");
            match connection.execute(&sql) {
                Ok(()) => {
                    assert_eq!(connection.last_insert_rowid(), id);
                    done.rows.fetch_add(1, Relaxed);
                }
                Err(error) => {
                    assert_eq!(error.code, CONSTRAINT, "{error}");
                    assert!(
                        [before, id].contains(&connection.last_insert_rowid()),
                        "of somebody else's"
                    );
                }
            }
        }
        6 => {
            one(&format!("DELETE FROM rows WHERE u='u{key}'"));
            done.rows.fetch_sub(connection.changes(), Relaxed);
        }
        _ => {
            one(&format!("INSERT INTO automatic(of) VALUES({writer})"));
            done.automatic.fetch_add(1, Relaxed);
        }
    }
}

// holds TRY-1, TRY-2, BESIDE-2
#[test]
fn every_single_write_counts_once_and_none_meets_a_conflict() {
    let Some(subject) = real_plait("single writes") else { return };
    let done = Done::default();
    let fixture = write_together(&subject, |writer, connection, random| {
        write_something(writer, connection, random, &done);
    });
    let connection = fixture.open();
    let count = |sql: &str| connection.integer(sql).expect("a number");
    assert_eq!(count("SELECT sum(v) FROM hot"), done.added.load(Relaxed), "lost update");
    assert_eq!(count("SELECT count(*) FROM names"), done.names.load(Relaxed));
    assert_eq!(count("SELECT count(*) FROM rows"), done.rows.load(Relaxed));
    assert_eq!(count("SELECT count(*) FROM automatic"), done.automatic.load(Relaxed));
    let last = count("SELECT max(id) FROM automatic");
    assert_eq!(last, done.automatic.load(Relaxed), "rowids without a gap, as in stock SQLite");
    assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    let told = count("SELECT value FROM plait_status WHERE name='conflicts'");
    assert_eq!(told, 0, "nobody was refused");
}

#[test]
fn a_single_write_that_is_tried_without_a_look_at_what_it_has_read_is_caught() {
    let test = "every_single_write_counts_once_and_none_meets_a_conflict";
    must_be_reported("conflicts.unchecked", test, &["lost update", "left == right"]);
}

#[test]
fn the_operations_of_maps_count_once_as_well() {
    let Some(subject) = real_plait("single writes") else { return };
    let done = Done::default();
    let fixture = write_together(&subject, |writer, connection, random| {
        let map = connection.open_map("hot", 0).expect("a map");
        for _ in 0..200 {
            let key = Value::Integer(random.random_range(1..=3));
            match random.random_range(0..3) {
                0 => _ = map.add(&key, 1).expect("a sum"),
                1 => loop {
                    let Some(Value::Integer(is)) = map.get(&key).expect("it is read") else {
                        panic!("it is gone")
                    };
                    let (is, next) = (Value::Integer(is), Value::Integer(is + 1));
                    if map.swap(&key, Some(&is), Some(&next)).expect("a swap") {
                        break;
                    }
                },
                _ => {
                    write_something(writer, connection, random, &done);
                    continue;
                }
            }
            done.added.fetch_add(1, Relaxed);
        }
    });
    let sum = fixture.open().integer("SELECT sum(v) FROM hot");
    assert_eq!(sum, Ok(done.added.load(Relaxed)), "lost update");
}

// holds BESIDE-1
#[test]
fn what_the_application_has_registered_hears_of_every_write_once() {
    let Some(subject) = real_plait("single writes") else { return };
    let done = Done::default();
    let told = Arc::new([const { AtomicI64::new(0) }; 4]);
    let fixture = write_together(&subject, |writer, connection, random| {
        let [updates, commits, rollbacks, collations] = [0, 1, 2, 3].map(|i| {
            let told = told.clone();
            move || _ = told[i].fetch_add(1, Relaxed)
        });
        let mut and = "";
        match writer % 4 {
            0 => connection.update_hook(move |_| updates()),
            1 => connection.commit_hook(move || {
                commits();
                true
            }),
            2 => connection.rollback_hook(rollbacks),
            _ => {
                connection.create_called_collation(collations).expect("a collation");
                and = "AND typeof(v)='integer' COLLATE called";
            }
        }
        for _ in 0..200 {
            let key = random.random_range(1..=3);
            let sql = format!("UPDATE hot SET v=v+1 WHERE k={key} {and}");
            connection.execute(&sql).expect("an update");
            done.added.fetch_add(1, Relaxed);
            if writer % 4 != 2 {
                done.rows.fetch_add(1, Relaxed);
            }
        }
        // Of what is prepared from now on nothing uses it.
        connection.update_hook(|_| ());
    });
    let [updates, commits, rollbacks, collations] = [0, 1, 2, 3].map(|i| told[i].load(Relaxed));
    assert_eq!((updates + commits + collations, rollbacks), (done.rows.load(Relaxed), 0));
    let sum = fixture.open().integer("SELECT sum(v) FROM hot");
    assert_eq!(sum, Ok(done.added.load(Relaxed)), "lost update");
}

// holds BESIDE-2
#[test]
fn a_statement_that_asks_for_its_connections_counters_is_told_of_no_lost_run() {
    let Some(subject) = real_plait("single writes") else { return };
    let done = AtomicI64::new(0);
    let fixture = write_together(&subject, |_, connection, _| {
        // Each but the first comes behind one that has changed a row and inserted none.
        let sql = "UPDATE hot SET v=v+1+10000000*(changes()+last_insert_rowid()<>1) WHERE k=1";
        connection.execute("UPDATE hot SET v=v WHERE k=2").expect("an update");
        for _ in 0..100 {
            connection.execute(sql).expect("an update");
            done.fetch_add(1, Relaxed);
        }
    });
    let sum = fixture.open().integer("SELECT v FROM hot WHERE k=1");
    assert_eq!(sum, Ok(done.load(Relaxed)), "counters of a run that was rolled back");
}

#[test]
fn an_insert_that_ends_busy_is_not_the_last_one() {
    let Some(subject) = real_plait("single writes") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (holder, waiter) = (fixture.open(), fixture.open());
    waiter.execute("INSERT INTO rows VALUES(7, 0, 'first')").expect("an insert");
    waiter.execute("PRAGMA busy_timeout=20").expect("a timeout");
    for id in 8..12 {
        // It is tried since others commit.
        holder.execute("BEGIN IMMEDIATE; UPDATE hot SET v=v+1").expect("the right");
        let error = waiter.execute(&format!("INSERT INTO rows VALUES({id}, 0, 'u{id}')"));
        assert_eq!(error.expect_err("it is locked").code, BUSY);
        assert_eq!((waiter.last_insert_rowid(), waiter.total_changes()), (7, 1), "{id}");
        holder.execute("COMMIT").expect("a commit");
    }
    waiter.execute("INSERT INTO rows VALUES(12, 0, 'last')").expect("an insert");
    assert_eq!((waiter.last_insert_rowid(), waiter.total_changes()), (12, 2));
}

#[test]
fn a_busy_handler_counts_on_while_one_write_waits() {
    let Some(subject) = real_plait("single writes") else { return };
    let (calls, restarts) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    write_together(&subject, |writer, connection, random| {
        let asked = Arc::new(AtomicI64::new(0));
        if writer < 2 {
            let (asked, calls, restarts) = (asked.clone(), calls.clone(), restarts.clone());
            let handler = move |n| {
                let is_next = asked.fetch_add(1, Relaxed) == i64::from(n);
                calls.fetch_add(1, Relaxed);
                restarts.fetch_add(i64::from(!is_next), Relaxed);
                true
            };
            connection.busy_handler(handler).expect("a handler");
        }
        for _ in 0..200 {
            asked.store(0, Relaxed);
            let key = random.random_range(1..=3);
            let sql = match writer {
                7 => "BEGIN IMMEDIATE; PRAGMA application_id=7; UPDATE hot SET v=v+1 WHERE k=1; COMMIT".to_owned(),
                _ => format!("UPDATE hot SET v=v+1 WHERE k={key}"),
            };
            connection.execute(&sql).unwrap_or_else(|error| panic!("{writer}: {error}"));
        }
    });
    // Behind somebody who does not run it is asked about another lock as well, from the beginning.
    let (calls, restarts) = (calls.load(Relaxed), restarts.load(Relaxed));
    assert!(calls > 0 && restarts * 500 <= calls, "{restarts} of {calls} calls began anew");
}

//! Threads that share a database.

use std::sync::Barrier;
use std::thread;

use plait::{Connection, Database, MapDefinition, Result};

use crate::Place;

const COUNTS: MapDefinition<&str, i64> = MapDefinition::new("counts");
const THREADS: i64 = 4;
const ROUNDS: i64 = 40;

#[test]
fn counters_that_are_read_and_written_lose_no_step() -> Result<()> {
    let place = Place::new();
    place.connect().map(COUNTS)?.put("n", 0)?;
    let step = |database: &Database| {
        database.write(|tx| {
            let mut counts = tx.map(COUNTS)?;
            let n = counts.get("n")?.unwrap_or(0);
            counts.put("n", n + 1)?;
            counts.add("added", 1)
        })
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let database = place.database.clone();
            scope.spawn(move || {
                (0..ROUNDS).for_each(|_| assert!(step(&database).expect("it commits") > 0))
            });
        }
    });
    let all = [Some(THREADS * ROUNDS); 2];
    assert_eq!(place.connect().map(COUNTS)?.get_many(["n", "added"])?, all);
    Ok(())
}

#[test]
fn single_calls_of_threads_are_in_conflict_with_nobody() -> Result<()> {
    let place = Place::new();
    place.connect().map(COUNTS)?;
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let connection = place.connect();
                let mut counts = connection.map(COUNTS).expect("it opens");
                (0..ROUNDS).for_each(|_| assert!(counts.add("n", 1).expect("no conflict") > 0));
            });
        }
    });
    assert_eq!(place.connect().map(COUNTS)?.get("n")?, Some(THREADS * ROUNDS));
    Ok(())
}

#[test]
fn a_connection_goes_to_another_thread_and_back() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    connection.map(COUNTS)?.put("n", 1)?;
    let there = thread::spawn(move || -> Result<Connection> {
        connection.map(COUNTS)?.add("n", 1)?;
        Ok(connection)
    });
    let connection = there.join().expect("it does not panic")?;
    assert_eq!(connection.map(COUNTS)?.get("n")?, Some(2));
    Ok(())
}

#[test]
fn who_opens_a_new_file_beside_others_waits_for_them() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let barrier = Barrier::new(THREADS as usize);
    for round in 0..ROUNDS {
        let path = folder.path().join(format!("{round}.db"));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    let connection = Connection::open(&path).expect("it opens");
                    assert!(connection.is_concurrent());
                    connection
                        .map(COUNTS)
                        .and_then(|mut counts| counts.add("n", 1))
                        .expect("it counts");
                });
            }
        });
        assert_eq!(Connection::open(&path)?.map(COUNTS)?.get("n")?, Some(THREADS));
    }
    Ok(())
}

#[test]
fn handles_cross_threads_as_their_types_say() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Database>();
    is_sync::<Database>();
    is_send::<Connection>();
    is_send::<plait::Durable>();
    is_send::<plait::Error>();
    is_sync::<plait::Error>();
    is_sync::<MapDefinition<'static, &str, i64>>();
}

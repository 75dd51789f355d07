//! Transactions as closures: what is run again, how often, and what is left after errors and panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use plait::{Connection, Error, MapDefinition, Options, Result, Runs};

use crate::Place;

const COUNTS: MapDefinition<&str, i64> = MapDefinition::new("counts");

/// A database with a row, two connections to it, which know each other.
fn two(place: &Place) -> (Connection, Connection) {
    let (a, b) = (place.connect(), place.connect());
    a.map(COUNTS).expect("it opens").put("n", 0).expect("it is written");
    b.ticket().expect("it joins");
    (a, b)
}

/// Reads the row and counts it up by hand, so that somebody else's change of it is a conflict.
fn count_up(tx: &plait::Transaction<'_>) -> Result<i64> {
    let mut counts = tx.map(COUNTS)?;
    let next = counts.get("n")?.unwrap_or(0) + 1;
    counts.put("n", next)?;
    Ok(next)
}

#[test]
fn a_transaction_is_run_again_when_it_meets_a_conflict() -> Result<()> {
    let place = Place::new();
    let (mut a, b) = two(&place);
    let runs = Cell::new(0);
    let sum = a.write(|tx| {
        runs.set(runs.get() + 1);
        let sum = count_up(tx)?;
        if runs.get() == 1 {
            b.map(COUNTS)?.add("n", 10)?;
        }
        Ok(sum)
    })?;
    assert_eq!((sum, runs.get()), (11, 2));
    assert_eq!(b.map(COUNTS)?.get("n")?, Some(11));
    Ok(())
}

#[test]
fn runs_beside_others_are_bounded_and_the_error_is_the_conflict() -> Result<()> {
    let place = Place::new();
    let (mut a, b) = two(&place);
    a.set_runs(Runs { optimistic: 3, queued: 0 });
    let mut runs = 0;
    let error = a
        .write(|tx| {
            runs += 1;
            let sum = count_up(tx)?;
            b.map(COUNTS)?.add("n", 10)?;
            Ok(sum)
        })
        .expect_err("each run is disturbed");
    assert!(error.is_conflict() && !error.is_busy(), "{error}");
    assert_eq!((error.code(), error.extended_code(), runs), (5, 517, 3));
    assert!(error.to_string().contains("counts"), "{error}");
    assert_eq!(b.map(COUNTS)?.get("n")?, Some(30), "nothing of the three is left");
    assert!(a.is_autocommit());
    Ok(())
}

#[test]
fn the_last_run_has_the_right_to_write_and_cannot_be_disturbed() -> Result<()> {
    let place = Place::new();
    let (mut a, b) = two(&place);
    b.execute("PRAGMA busy_timeout=0", &[])?;
    a.set_runs(Runs { optimistic: 2, queued: 1 });
    let mut disturbed = Vec::new();
    let sum = a.write(|tx| {
        let sum = count_up(tx)?;
        disturbed.push(b.map(COUNTS)?.add("n", 10).is_ok());
        Ok(sum)
    })?;
    assert_eq!(sum, 21);
    assert_eq!(disturbed, [true, true, false]);
    Ok(())
}

#[test]
fn a_conflict_within_the_closure_is_run_again_whatever_error_it_becomes() -> Result<()> {
    #[derive(Debug, PartialEq)]
    struct Lost;
    impl From<Error> for Lost {
        fn from(_: Error) -> Lost {
            Lost
        }
    }
    let place = Place::new();
    let (mut a, b) = two(&place);
    let mut runs = 0;
    let done: Result<(), Lost> = a.try_write(|tx| {
        runs += 1;
        count_up(tx)?;
        if runs == 1 {
            b.map(COUNTS)?.add("n", 10)?;
            // It needs the file for itself, and finds that what it has read is gone.
            tx.execute("CREATE TABLE other(a)", &[])?;
            unreachable!("the first run has met a conflict");
        }
        Ok(())
    });
    assert_eq!((done, runs), (Ok(()), 2));
    let mut runs = 0;
    let done: Result<(), Lost> = a.try_write(|_| {
        runs += 1;
        Err(Lost)
    });
    assert_eq!((done, runs), (Err(Lost), 1), "an error of the program's own is not run again");
    Ok(())
}

#[test]
fn an_error_rolls_back_and_leaves_the_connection_as_it_was() -> Result<()> {
    let place = Place::new();
    let (mut a, _) = two(&place);
    let error = a.write(|tx| {
        count_up(tx)?;
        tx.map(MapDefinition::<i64, i64>::new("born"))?.put(1, 1)?;
        tx.execute("INSERT INTO nowhere VALUES(1)", &[])
    });
    assert!(error.expect_err("no such table").to_string().contains("nowhere"));
    assert!(a.is_autocommit());
    assert_eq!(a.map(COUNTS)?.get("n")?, Some(0));
    let born = a.read_map(MapDefinition::<i64, i64>::new("born"));
    assert_eq!(born.err().map(|error| error.code()), Some(1), "its creation is undone");
    a.write(|tx| tx.map(MapDefinition::<i64, i64>::new("born"))?.put(1, 1))?;
    Ok(())
}

#[test]
fn a_panic_rolls_back_and_loses_no_connection() -> Result<()> {
    let place = Place::new();
    let (mut a, b) = two(&place);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        a.write(|tx| -> Result<()> {
            count_up(tx)?;
            panic!("in the middle")
        })
    }));
    assert_eq!(panic.expect_err("it panics").downcast_ref(), Some(&"in the middle"));
    assert!(a.is_autocommit());
    let panic = catch_unwind(AssertUnwindSafe(|| {
        place.database.write(|tx| -> Result<()> {
            tx.execute("PRAGMA cache_size=-123", &[])?;
            count_up(tx)?;
            panic!("in the middle")
        })
    }));
    assert!(panic.is_err());
    let again = place.connect();
    let size = again.query_row("PRAGMA cache_size", &[], |row| row.get::<i64>(0))?;
    assert_eq!(size, Some(-123), "it has come back");
    drop(again);
    assert_eq!(b.map(COUNTS)?.get("n")?, Some(0));
    assert_eq!(a.write(count_up)?, 1);
    assert_eq!(place.database.write(count_up)?, 2);
    Ok(())
}

#[test]
fn a_panic_in_the_rows_of_a_load_passes_and_nothing_is_written() -> Result<()> {
    let place = Place::new();
    let (a, _) = two(&place);
    let mut counts = a.map(COUNTS)?;
    let rows = (0..10).map(|n| if n == 5 { panic!("row five") } else { ("x", n) });
    let panic = catch_unwind(AssertUnwindSafe(|| counts.load(rows)));
    assert_eq!(panic.expect_err("it panics").downcast_ref(), Some(&"row five"));
    assert!(!counts.contains("x")?);
    counts.put("x", 1)?;
    Ok(())
}

#[test]
fn a_snapshot_stays_as_it_was_and_refuses_to_write() -> Result<()> {
    let place = Place::new();
    let (mut a, b) = two(&place);
    a.read(|snapshot| {
        let mut counts = snapshot.map(COUNTS)?;
        assert_eq!(counts.get("n")?, Some(0));
        b.map(COUNTS)?.put("n", 1)?;
        assert_eq!(counts.get("n")?, Some(0));
        let n = snapshot.query("SELECT v FROM counts", &[], |row| row.get::<i64>(0))?;
        assert_eq!(n, [0]);
        let error = snapshot.query("DELETE FROM counts", &[], |_| Ok(())).expect_err("it writes");
        assert!(error.to_string().contains("reads"), "{error}");
        Ok(())
    })?;
    assert_eq!(a.map(COUNTS)?.get("n")?, Some(1));
    Ok(())
}

#[test]
fn a_transaction_in_a_transaction_is_refused() -> Result<()> {
    let mut connection = Connection::open_in_memory()?;
    connection.execute("BEGIN", &[])?;
    let error = connection.write(|_| Ok(())).expect_err("one is open");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    connection.execute("ROLLBACK", &[])?;
    connection.write(|tx| tx.execute("COMMIT", &[])).expect_err("it has ended it itself");
    connection.write(|_| Ok(()))
}

#[test]
fn savepoints_undo_what_maps_wrote() -> Result<()> {
    let mut connection = Connection::open_in_memory()?;
    connection.write(|tx| {
        let mut counts = tx.map(COUNTS)?;
        counts.put("a", 1)?;
        tx.execute("SAVEPOINT s", &[])?;
        counts.put("b", 2)?;
        tx.execute("ROLLBACK TO s", &[])?;
        assert_eq!(counts.get_many(["a", "b"])?, [Some(1), None]);
        Ok(())
    })
}

#[test]
fn a_connection_that_goes_back_in_a_transaction_is_rolled_back() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options::new().idle_connections(1);
    let database = options.open(folder.path().join("app.db"))?;
    let connection = database.connect()?;
    connection.execute("CREATE TEMP TABLE mark(a)", &[])?;
    connection.execute("BEGIN IMMEDIATE", &[])?;
    connection.map(COUNTS)?.put("n", 1)?;
    drop(connection);
    let again = database.connect()?;
    again.query("SELECT * FROM mark", &[], |_| Ok(())).expect("it is the same one");
    assert!(again.is_autocommit());
    assert_eq!(again.map(COUNTS)?.get("n")?, None);
    let other = database.connect()?;
    other.query("SELECT * FROM mark", &[], |_| Ok(())).expect_err("it is another one");
    Ok(())
}

// holds OPEN-3
#[test]
fn a_connection_with_a_lost_cursor_is_not_handed_out_again() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    connection.execute("CREATE TEMP TABLE mark(a)", &[])?;
    connection.map(COUNTS)?.put("n", 1)?;
    {
        let counts = connection.map(COUNTS)?;
        let mut lost = counts.cursor(..)?;
        lost.first()?;
        std::mem::forget(lost);
    }
    drop(connection);
    let other = place.connect();
    other.query("SELECT * FROM mark", &[], |_| Ok(())).expect_err("it is another one");
    assert_eq!(other.map(COUNTS)?.add("n", 1)?, 2);
    Ok(())
}

#[test]
fn in_other_journal_modes_transactions_queue() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wal.db");
    let database =
        Options::new().keep_journal_mode().on_open("PRAGMA journal_mode=wal").open(path)?;
    let mut connection = database.connect()?;
    assert!(!connection.is_concurrent());
    assert_eq!(connection.write(count_up)?, 1);
    assert_eq!(database.write(count_up)?, 2);
    Ok(())
}

#[test]
fn after_an_error_that_rolled_back_nothing_more_is_done_in_the_closure() -> Result<()> {
    let mut connection = Connection::open_in_memory()?;
    let numbers = MapDefinition::<i64, i64>::new("numbers");
    connection.map(numbers)?.put(1, 1)?;
    for returns in [true, false] {
        let refused = connection.write(|tx| {
            tx.map(numbers)?.put(2, 2)?;
            let broken = tx.execute("INSERT OR ROLLBACK INTO numbers VALUES(1, 2)", &[]);
            assert!(broken.is_err());
            let after = [
                tx.map(numbers).and_then(|mut map| map.put(3, 3)),
                tx.execute("INSERT INTO numbers VALUES(4, 4)", &[]).map(drop),
                tx.execute_batch(
                    "INSERT INTO numbers VALUES(5, 5); INSERT INTO numbers VALUES(6, 6)",
                ),
                tx.query("INSERT INTO numbers VALUES(7, 7) RETURNING k", &[], |_| Ok(())).map(drop),
            ];
            for said in after {
                let said = said.expect_err("there is no transaction").to_string();
                assert!(said.contains("ended inside of it"), "{said}");
            }
            if returns { Ok(()) } else { broken.map(drop) }
        });
        let said = refused.expect_err("nothing is committed").to_string();
        assert!(said.contains(if returns { "ended inside of it" } else { "UNIQUE" }), "{said}");
        let keys = connection.query("SELECT k FROM numbers", &[], |row| row.get::<i64>(0))?;
        assert_eq!(keys, [1]);
    }
    connection.write(|tx| tx.map(numbers)?.put(2, 2))
}

//! Connections of rusqlite, which calls the SQLite that this crate is linked with, and of C.

use plait::{Borrowed, Connection, MapDefinition, Result};

use crate::Place;

const AGES: MapDefinition<&str, i64> = MapDefinition::new("ages");
/// Either error.
type Anything<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn age(connection: &rusqlite::Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT v FROM ages WHERE k='ada'", [], |row| row.get(0))
}

#[test]
fn a_connection_of_rusqlite_is_one_of_ours() -> Anything<()> {
    let place = Place::new();
    let mut connection = rusqlite::Connection::open(place.folder.path().join("app.db"))?;
    let version: String = connection.query_row("SELECT plait_version()", [], |row| row.get(0))?;
    assert_eq!(version, plait::version());
    {
        let mut borrowed = Borrowed::from_rusqlite(&connection)?;
        assert!(borrowed.is_concurrent());
        borrowed.map(AGES)?.put("ada", 36)?;
        assert_eq!(age(&connection)?, 36);
        borrowed.write(|tx| tx.map(AGES)?.add("ada", 1))?;
        connection.execute("UPDATE ages SET v=v+1", [])?;
        assert_eq!(borrowed.read(|snapshot| snapshot.map(AGES)?.get("ada"))?, Some(38));
        assert!(borrowed.ticket()? > plait::Ticket::from_i64(0));
    }
    let transaction = connection.transaction()?;
    {
        let mut borrowed = Borrowed::from_rusqlite(&transaction)?;
        borrowed.map(AGES)?.put("ada", 0)?;
        assert_eq!(age(&transaction)?, 0);
        assert!(borrowed.write(|_| Ok(())).is_err(), "a transaction is open");
    }
    transaction.rollback()?;
    assert_eq!(age(&connection)?, 38);
    connection.close().map_err(|(_, error)| error)?;
    assert_eq!(place.connect().map(AGES)?.get("ada")?, Some(38));
    Ok(())
}

#[test]
fn what_a_map_has_answered_stays_whatever_rusqlite_does() -> Anything<()> {
    let connection = rusqlite::Connection::open_in_memory()?;
    let borrowed = Borrowed::from_rusqlite(&connection)?;
    let mut texts = borrowed.map(MapDefinition::<i64, &str>::new("texts"))?;
    texts.put(1, "as it was")?;
    let mut cursor_of = borrowed.map(MapDefinition::<i64, &str>::new("texts"))?;
    cursor_of.put(2, "the second")?;
    let mut cursor = cursor_of.cursor(2..)?;
    let row = cursor.next()?;
    let answer = texts.get(1)?;
    connection.execute_batch("UPDATE texts SET v=v||'?'; DELETE FROM texts")?;
    assert_eq!(answer, Some("as it was"));
    assert_eq!(row, Some((2, "the second")));
    Ok(())
}

#[test]
fn rows_of_a_load_that_write_by_rusqlite_do_no_harm() -> Anything<()> {
    for sql in [
        "INSERT INTO t VALUES(100, 1)",
        "DELETE FROM t",
        "DROP TABLE t",
        "VACUUM",
        "COMMIT",
        "ROLLBACK",
    ] {
        for begin in ["", "BEGIN"] {
            for sorted in [true, false] {
                let connection = rusqlite::Connection::open_in_memory()?;
                let borrowed = Borrowed::from_rusqlite(&connection)?;
                let definition = MapDefinition::<i64, i64>::new("t");
                borrowed.map(definition)?.load((200..600).map(|n| (n, n)))?;
                connection.execute_batch(begin)?;
                let mut said = Vec::new();
                let rows = (0..300).map(|n| {
                    if n % 100 == 50 {
                        said.push(connection.execute_batch(sql).is_ok());
                    }
                    (n, n)
                });
                let mut map = borrowed.map(definition)?;
                let done = if sorted { map.load_sorted(rows) } else { map.load(rows) };
                if !connection.is_autocommit() {
                    connection.execute_batch("ROLLBACK")?;
                }
                drop(map);
                let check: String =
                    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
                assert_eq!(check, "ok", "{sql}: {done:?} {said:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_handle_of_c_is_borrowed_and_null_is_none() -> Result<()> {
    let ours = rusqlite::Connection::open_in_memory().expect("it opens");
    // SAFETY: nothing is done with it that rusqlite would mind.
    let handle = unsafe { ours.handle() };
    // SAFETY: it is that of an open connection of this library, which outlives what borrows it.
    let borrowed = unsafe { Borrowed::from_raw(handle.cast()) }?;
    borrowed.map(AGES)?.put("ada", 36)?;
    drop(borrowed);
    assert_eq!(age(&ours), Ok(36));
    // SAFETY: there is nothing behind it.
    let null = unsafe { Borrowed::from_raw(std::ptr::null_mut()) };
    assert!(null.expect_err("it is null").to_string().contains("null"));
    Ok(())
}

#[test]
fn a_map_whose_key_cannot_be_asked_for_is_refused_with_the_reason() -> Anything<()> {
    let theirs = rusqlite::Connection::open_in_memory()?;
    theirs.execute_batch("CREATE TABLE ages(k INTEGER PRIMARY KEY, v)")?;
    let borrowed = Borrowed::from_rusqlite(&theirs)?;
    // SAFETY: nothing is done with it that rusqlite would mind.
    let handle = unsafe { theirs.handle() };
    // SAFETY: the connection is open.
    unsafe { rusqlite::ffi::sqlite3_limit(handle, rusqlite::ffi::SQLITE_LIMIT_SQL_LENGTH, 20) };
    let error = borrowed.map(AGES).err().expect("no statement is that short");
    assert_eq!(error.code(), rusqlite::ffi::SQLITE_TOOBIG, "{error}");
    Ok(())
}

#[test]
fn a_connection_of_ours_does_not_mind_one_of_rusqlite() -> Anything<()> {
    let place = Place::new();
    let mut ours: Connection = place.connect();
    let theirs = rusqlite::Connection::open(place.folder.path().join("app.db"))?;
    let borrowed = Borrowed::from_rusqlite(&theirs)?;
    borrowed.map(AGES)?.put("ada", 1)?;
    let mut runs = 0;
    let sum = ours.write(|tx| {
        runs += 1;
        let mut ages = tx.map(AGES)?;
        let sum = ages.get("ada")?.unwrap_or(0) + 1;
        ages.put("ada", sum)?;
        if runs == 1 {
            borrowed.map(AGES)?.add("ada", 10)?;
        }
        Ok(sum)
    })?;
    assert_eq!((sum, runs), (12, 2));
    Ok(())
}

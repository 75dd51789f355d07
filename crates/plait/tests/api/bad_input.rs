//! What programs and files get wrong: an error that says what and where, and a connection that goes on.

use plait::{Connection, Datum, Error, MapDefinition, Options, Result};

use crate::Place;

fn memory() -> Connection {
    Connection::open_in_memory().expect("it opens")
}

fn text<T>(result: Result<T>) -> String {
    result.err().expect("it is refused").to_string()
}

#[test]
fn a_map_is_refused_where_its_keys_would_be_changed() -> Result<()> {
    let connection = memory();
    connection.execute_batch(
        "CREATE TABLE texts(k TEXT PRIMARY KEY, v); CREATE TABLE numbers(k INTEGER PRIMARY KEY, v);
         CREATE TABLE reals(k REAL PRIMARY KEY, v); CREATE TABLE any(k PRIMARY KEY, v);
         CREATE TABLE chars(k VARCHAR(9) PRIMARY KEY, v)",
    )?;
    let wrong = text(connection.map(MapDefinition::<i64, i64>::new("texts")));
    assert!(wrong.contains("\"texts\" has keys of type TEXT") && wrong.contains("i64"), "{wrong}");
    assert!(text(connection.map(MapDefinition::<&str, i64>::new("numbers"))).contains("INTEGER"));
    assert!(text(connection.map(MapDefinition::<&[u8], i64>::new("numbers"))).contains("INTEGER"));
    assert!(text(connection.map(MapDefinition::<i64, i64>::new("reals"))).contains("REAL"));
    assert!(text(connection.map(MapDefinition::<i64, i64>::new("chars"))).contains("VARCHAR(9)"));
    connection.map(MapDefinition::<&str, i64>::new("chars"))?;
    connection.map(MapDefinition::<i64, i64>::new("any"))?;
    connection.map(MapDefinition::<&str, i64>::new("any"))?;
    connection.map(MapDefinition::<&[u8], i64>::new("any"))?;
    Ok(())
}

#[test]
fn a_map_that_was_open_before_is_refused_where_its_table_has_another_key_by_now() -> Result<()> {
    let place = Place::new();
    let (connection, other) = (place.connect(), place.connect());
    const NAMES: MapDefinition<&str, i64> = MapDefinition::new("t");
    const NUMBERS: MapDefinition<i64, i64> = MapDefinition::new("t").existing();
    connection.map(NAMES)?.put("12", 1)?;
    for (key, fits) in
        [("k INTEGER", false), ("name TEXT", true), ("k", true), ("k NUMERIC", false)]
    {
        other.execute_batch(&format!("DROP TABLE t; CREATE TABLE t({key} PRIMARY KEY, v)"))?;
        if fits {
            connection.map(NAMES)?.put("12", 2)?;
            assert_eq!(connection.map(NAMES)?.get("12")?, Some(2));
        } else {
            assert!(text(connection.map(NAMES)).contains("has keys of type"));
            connection.map(NUMBERS)?;
        }
    }
    // One that was open for other keys is no proof for these.
    connection.read_map(NUMBERS)?;
    assert!(text(connection.read_map(NAMES)).contains("NUMERIC"));
    Ok(())
}

#[test]
fn a_value_of_another_type_is_an_error_that_names_its_key() -> Result<()> {
    let connection = memory();
    let mut ages = connection.map(MapDefinition::<&str, i64>::new("ages"))?;
    ages.put("ada", 36)?;
    connection.execute("UPDATE ages SET v='36'", &[])?;
    let error = ages.get("ada").expect_err("it is text now");
    assert_eq!(error.code(), 20);
    let wanted = "the value of 'ada' in map \"ages\" is text, where i64 is asked for";
    assert_eq!(error.to_string(), wanted);
    assert_eq!(text(ages.get_many(["bob", "ada"])), wanted);
    assert_eq!(text(ages.first(..)), wanted);
    let mut iter = ages.iter()?;
    assert_eq!(text(iter.next().expect("a row")), wanted);
    assert!(iter.next().is_none(), "it ends after an error");
    drop(iter);
    let error = ages.add("ada", 1).expect_err("it is text");
    assert_eq!(error.code(), 20);
    assert!(error.to_string().contains("map \"ages\", key 'ada'"), "{error}");
    connection.execute("UPDATE ages SET v=NULL", &[])?;
    assert!(text(ages.get("ada")).contains("is NULL"));
    connection.execute("UPDATE ages SET v=CAST(x'ff' AS TEXT)", &[])?;
    let mut texts = connection.map(MapDefinition::<&str, &str>::new("ages"))?;
    assert!(text(texts.get("ada")).contains("not UTF-8"));
    Ok(())
}

#[test]
fn a_key_of_another_type_is_an_error_when_it_is_met() -> Result<()> {
    let connection = memory();
    connection
        .execute_batch("CREATE TABLE t(k PRIMARY KEY, v); INSERT INTO t VALUES(x'01ff', 1)")?;
    let mut map = connection.map(MapDefinition::<i64, i64>::new("t"))?;
    map.put(5, 2)?;
    assert_eq!(map.get(5)?, Some(2));
    assert_eq!(text(map.last(..)), "a key in map \"t\" is bytes, where i64 is asked for");
    let mut bytes = connection.map(MapDefinition::<&[u8], &str>::new("t"))?;
    assert!(text(bytes.last(..)).contains("the value of x'01ff'"));
    Ok(())
}

#[test]
fn a_real_that_is_not_a_number_is_refused() -> Result<()> {
    let connection = memory();
    let mut reals = connection.map(MapDefinition::<&str, f64>::new("reals"))?;
    let error = reals.put("pi", f64::NAN).expect_err("it is no number");
    assert_eq!(error.code(), 21);
    assert!(error.to_string().contains("'pi'") && error.to_string().contains("NaN"), "{error}");
    reals.put("pi", 3.0)?;
    let error = connection.execute("SELECT ?1", plait::params![f64::NAN]);
    assert!(text(error).contains("not a number"));
    let mut any = connection.map(MapDefinition::<i64, Datum<'_>>::new("any"))?;
    assert!(any.put(1, Datum::Real(f64::NAN)).is_err());
    Ok(())
}

#[test]
fn tables_that_are_missing_or_no_maps_are_named() -> Result<()> {
    let connection = memory();
    let missing = MapDefinition::<i64, i64>::new("missing");
    assert!(text(connection.map(missing.existing())).contains("missing"));
    assert!(text(connection.read_map(missing)).contains("missing"));
    assert!(text(connection.map(missing.in_schema("nowhere"))).contains("nowhere"));
    assert!(text(connection.map(MapDefinition::<Datum<'_>, i64>::new("any"))).contains("any"));
    connection.execute_batch(
        "CREATE TABLE wide(k INTEGER PRIMARY KEY, a, b); CREATE VIEW w AS SELECT 1",
    )?;
    assert!(text(connection.map(MapDefinition::<i64, i64>::new("wide"))).contains("\"wide\""));
    assert!(text(connection.map(MapDefinition::<i64, i64>::new("w"))).contains("\"w\""));
    assert!(text(connection.map(MapDefinition::<i64, i64>::new("a\0b"))).contains("zero byte"));
    let mut odd = connection.map(MapDefinition::<i64, i64>::new("odd \"name'; --"))?;
    odd.put(1, 1)
}

#[test]
fn a_table_that_is_dropped_under_a_map_is_named_and_may_come_back() -> Result<()> {
    let connection = memory();
    let definition = MapDefinition::<i64, i64>::new("t");
    let mut map = connection.map(definition)?;
    map.put(1, 1)?;
    connection.execute("DROP TABLE t", &[])?;
    let error = map.get(1).expect_err("it is gone");
    assert!(error.to_string().contains("no such table"), "{error}");
    let mut anew = connection.map(definition)?;
    anew.put(1, 2)?;
    assert_eq!(map.get(1)?, Some(2));
    Ok(())
}

#[test]
fn files_that_cannot_be_opened_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing.db");
    let error = Options::new().create(false).open(&missing).expect_err("it is not there");
    assert_eq!(error.code(), 14);
    assert!(error.to_string().contains("missing.db"), "{error}");
    assert!(!missing.exists());
    assert_eq!(Connection::open(folder.path()).expect_err("a folder").code(), 14);
    assert!(Connection::open("").is_err());
    assert!(matches!(Connection::open("a\0b"), Err(Error::Refused(_))));
    let garbage = folder.path().join("garbage.db");
    std::fs::write(&garbage, [7_u8; 4096]).expect("it is written");
    assert_eq!(Connection::open(&garbage).expect_err("no database").code(), 26);
}

#[test]
fn a_file_that_is_only_read_is_not_written() -> Result<()> {
    let place = Place::new();
    let definition = MapDefinition::<i64, i64>::new("t");
    place.connect().map(definition)?.put(1, 1)?;
    let connection = Options::new().read_only().connect(place.folder.path().join("app.db"))?;
    let mut map = connection.map(definition)?;
    assert_eq!(map.get(1)?, Some(1));
    assert_eq!(map.put(1, 2).expect_err("it is read-only").code(), 8);
    let other = MapDefinition::<i64, i64>::new("other");
    assert_eq!(connection.map(other).err().map(|error| error.code()), Some(8));
    Ok(())
}

#[test]
fn values_that_are_too_long_and_sums_that_are_none_are_refused() -> Result<()> {
    let connection = memory();
    let mut counts = connection.map(MapDefinition::<i64, i64>::new("counts"))?;
    counts.put(1, i64::MAX)?;
    assert!(text(counts.add(1, 1)).contains("overflow"));
    assert_eq!(counts.get(1)?, Some(i64::MAX));
    let mut bytes = connection.map(MapDefinition::<i64, &[u8]>::new("bytes"))?;
    // Zeroes that nobody looks at take no memory.
    let long = vec![0; 1_000_000_001];
    assert_eq!(bytes.put(1, &long).expect_err("too long").code(), 18);
    assert!(!bytes.contains(1)?);
    Ok(())
}

#[test]
fn sql_that_is_wrong_says_which() -> Result<()> {
    let connection = memory();
    assert!(text(connection.execute("SELECT ?1", &[])).contains("1 parameters, and 0 are given"));
    assert!(text(connection.execute("SELECT 1; SELECT 2", &[])).contains("execute_batch"));
    assert!(text(connection.execute(" -- nothing", &[])).contains("no statement"));
    assert!(text(connection.execute_batch("SELECT 1; SELEKT 2")).contains("SELEKT"));
    let column = |at| connection.query("SELECT 'a'", &[], move |row| row.get::<i64>(at));
    assert!(text(column(0)).contains("column 0 of SELECT 'a' is text, where i64"));
    assert!(text(column(1)).contains("fewer columns"));
    connection.execute_batch("CREATE TABLE t(a CHECK(a>0))")?;
    let error = connection.execute("INSERT INTO t VALUES(0)", &[]).expect_err("a check");
    assert_eq!((error.code(), error.extended_code()), (19, 275));
    Ok(())
}

// holds OPEN-4
#[test]
fn the_rows_of_a_load_may_use_the_connection_for_nothing_but_reading_maps() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    let definition = MapDefinition::<i64, i64>::new("t");
    let mut other = connection.map(MapDefinition::<i64, i64>::new("other"))?;
    other.put(1, 7)?;
    let mut map = connection.map(definition)?;
    let mut refused = Vec::new();
    let rows = (0..3).map(|n| {
        refused.push(other.put(2, 2).is_err());
        refused.push(connection.execute("ROLLBACK", &[]).is_err());
        refused.push(connection.map(definition).is_err());
        (n, other.get(1).expect("reading is allowed").expect("a row"))
    });
    assert_eq!(map.load_sorted(rows)?, 3);
    assert_eq!(refused, [true; 9]);
    assert_eq!(map.get(2)?, Some(7));
    other.put(2, 2)?;
    let failing =
        (0..3).map(|n| if n < 2 { Ok((n, 9)) } else { Err(Error::Refused("row".into())) });
    assert_eq!(map.try_load(failing), Err(Error::Refused("row".into())));
    assert_eq!(map.get(0)?, Some(7), "nothing of it is written");
    Ok(())
}

#[test]
fn sql_with_a_zero_byte_is_refused_and_nothing_of_it_is_run() -> Result<()> {
    let place = Place::new();
    let connection = memory();
    connection.execute_batch("CREATE TABLE t(a)")?;
    for sql in
        ["\0", "SELECT 1\0", "INSERT INTO t VALUES(1);\0INSERT INTO t VALUES(2)", "SELECT 'a\0b'"]
    {
        let texts = [
            text(connection.execute(sql, &[])),
            text(connection.query(sql, &[], |_| Ok(()))),
            text(connection.query_row(sql, &[], |_| Ok(()))),
            text(connection.execute_batch(sql)),
            text(Options::new().on_open(sql).connect(place.folder.path().join("app.db")).map(drop)),
        ];
        for said in texts {
            assert!(said.contains("zero byte at") && said.contains("parameter"), "{said}");
        }
    }
    let value = Datum::Text("a\0b".into());
    connection.execute("INSERT INTO t VALUES(?)", &[value])?;
    let rows =
        connection.query("SELECT count(*) FROM t WHERE length(CAST(a AS BLOB))=3", &[], |row| {
            row.get::<i64>(0)
        })?;
    assert_eq!(rows, [1]);
    Ok(())
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let place = Place::new();
    let foreign = place.folder.path().join("foreign.db");
    std::fs::write(&foreign, "no database at all, but long enough to be looked at: ".repeat(40))
        .expect("it is written");
    for path in [foreign.as_path(), std::path::Path::new("/dev/null")] {
        let said = text(Connection::open(path));
        assert!(said.contains(path.to_str().expect("plain")), "{said}");
    }
    let said = text(Connection::open(":memory:"));
    assert!(said.contains("open_in_memory"), "{said}");
    assert!(!std::path::Path::new(":memory:").exists());
}

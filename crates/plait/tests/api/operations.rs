//! Every operation of `plait.h`, for the types that keys and values have.

use std::ops::Bound;

use plait::{Applied, Batch, Connection, Datum, Key, MapDefinition, Prefix, Result, Seek, Value};

use crate::Place;

const AGES: MapDefinition<&str, i64> = MapDefinition::new("ages");

fn memory() -> Connection {
    Connection::open_in_memory().expect("it opens")
}

#[test]
fn single_rows_are_written_as_each_call_says() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    assert!(connection.is_concurrent());
    let mut ages = connection.map(AGES)?;
    assert_eq!(ages.get("ada")?, None);
    assert!(!ages.update("ada", 1)?);
    assert!(ages.insert("ada", 36)?);
    assert!(!ages.insert("ada", 37)?);
    assert_eq!(ages.get("ada")?, Some(36));
    assert!(ages.update("ada", 38)?);
    ages.put("ada", 39)?;
    assert!(ages.contains("ada")?);
    assert!(!ages.contains("alan")?);
    assert!(!ages.compare_and_swap("ada", Some(1), Some(2))?);
    assert!(ages.compare_and_swap("ada", Some(39), Some(40))?);
    assert_eq!(ages.add("ada", 2)?, 42);
    assert_eq!(ages.add("alan", -1)?, -1);
    assert_eq!(ages.get_many(["alan", "nobody", "ada"])?, [Some(-1), None, Some(42)]);
    assert!(ages.get_many([])?.is_empty());
    assert!(ages.delete("ada")?);
    assert!(!ages.delete("ada")?);
    let sql = "SELECT k || v FROM ages";
    let rows = connection.query(sql, &[], |row| row.get::<String>(0))?;
    assert_eq!(rows, ["alan-1"]);
    Ok(())
}

#[test]
fn ranges_have_every_kind_of_bounds() -> Result<()> {
    let connection = memory();
    let mut map = connection.map(MapDefinition::<i64, i64>::new("t"))?;
    assert!(map.is_empty()?);
    map.load_sorted((0..10).map(|n| (n, n * n)))?;
    assert!(!map.is_empty()?);
    let keys = |iter: plait::Iter<'_, i64, i64>| -> Result<Vec<i64>> {
        iter.map(|row| row.map(|(key, _)| key)).collect()
    };
    assert_eq!(keys(map.range(3..6)?)?, [3, 4, 5]);
    assert_eq!(keys(map.range(3..=6)?.rev())?, [6, 5, 4, 3]);
    assert_eq!(keys(map.range(8..)?)?, [8, 9]);
    assert_eq!(keys(map.range(..2)?)?, [0, 1]);
    assert_eq!(keys(map.range(..=2)?)?, [0, 1, 2]);
    assert_eq!(keys(map.range((Bound::Excluded(7), Bound::Unbounded))?)?, [8, 9]);
    assert_eq!(keys(map.iter()?)?.len(), 10);
    assert_eq!(keys(map.range((Bound::Included(6), Bound::Excluded(3)))?)?, [0; 0]);
    assert_eq!(map.count(2..5)?, 3);
    assert_eq!(map.first(4..)?, Some((4, 16)));
    assert_eq!(map.last(..4)?, Some((3, 9)));
    assert_eq!(map.last(20..)?, None);
    assert_eq!(map.delete_range(2..=7)?, 6);
    assert_eq!(keys(map.iter()?.rev())?, [9, 8, 1, 0]);
    Ok(())
}

#[test]
fn an_iterator_turns_back_where_it_is() -> Result<()> {
    let connection = memory();
    let mut map = connection.map(MapDefinition::<i64, i64>::new("t"))?;
    map.load((0..5).map(|n| (n, n)))?;
    let mut iter = map.iter()?;
    iter.by_ref().take(3).try_for_each(|row| row.map(drop))?;
    let back: Vec<i64> = iter.rev().map(|row| row.map(|(key, _)| key)).collect::<Result<_>>()?;
    assert_eq!(back, [1, 0]);
    Ok(())
}

#[test]
fn keys_are_walked_over_without_their_values() -> Result<()> {
    let connection = memory();
    let definition = MapDefinition::<&str, i64>::new("t");
    connection.map(definition)?.load([("a", 1), ("b", 2), ("c", 3)])?;
    connection.execute("UPDATE t SET v='no number' WHERE k='b'", &[])?;
    let map = connection.map(definition)?;
    assert_eq!(map.iter()?.keys().collect::<Result<Vec<_>>>()?, ["a", "b", "c"]);
    assert_eq!(map.range("b"..)?.rev().keys().collect::<Result<Vec<_>>>()?, ["c", "b"]);
    assert!(map.iter()?.collect::<Result<Vec<_>>>().is_err(), "the value is looked at");
    Ok(())
}

#[test]
fn prefixes_are_those_of_text_and_of_bytes() -> Result<()> {
    let connection = memory();
    let mut texts = connection.map(MapDefinition::<&str, &str>::new("texts"))?;
    texts.load([("a", ""), ("aé", "x"), ("b", "y")])?;
    assert_eq!(texts.count(Prefix("a"))?, 2);
    assert_eq!(texts.last(Prefix("a"))?, Some(("aé", "x")));
    let mut bytes = connection.map(MapDefinition::<&[u8], Vec<u8>>::new("bytes"))?;
    bytes.put(b"\xff\xff", b"1")?;
    bytes.put(b"\xff", b"")?;
    bytes.put(b"\xfe", b"3")?;
    assert_eq!(bytes.count(Prefix(b"\xff".as_slice()))?, 2);
    assert_eq!(bytes.delete_range(Prefix(b"\xff\xff".as_slice()))?, 1);
    assert_eq!(bytes.get(b"\xff")?, Some(Vec::new()));
    Ok(())
}

fn comes_back<K: Key, V: Value>(key: K::In<'_>, value: V::In<'_>, expected: V::Owned)
where
    V::Owned: PartialEq + std::fmt::Debug,
    for<'a> K::In<'a>: Clone,
{
    let connection = memory();
    let definition = MapDefinition::<K, V>::new("t");
    let mut map = connection.map(definition).expect("it opens");
    map.put(key.clone(), value).expect("it is written");
    let got = map.get(key).expect("it is read").map(V::own);
    assert_eq!(got.as_ref(), Some(&expected));
    let rows: Vec<_> = map.iter().expect("it opens").map(|row| row.expect("a row").1).collect();
    assert_eq!(rows, [expected]);
}

#[test]
fn values_of_every_type_come_back_as_they_were_put() {
    comes_back::<i64, i64>(i64::MIN, i64::MAX, i64::MAX);
    comes_back::<i64, f64>(1, -0.5, -0.5);
    comes_back::<i64, f64>(1, 3.0, 3.0);
    comes_back::<i64, f64>(1, f64::INFINITY, f64::INFINITY);
    comes_back::<&str, &str>("", "", String::new());
    comes_back::<String, String>("k\0ey", "zero\0byte", "zero\0byte".into());
    comes_back::<&[u8], &[u8]>(b"", b"", Vec::new());
    comes_back::<Vec<u8>, Vec<u8>>(b"\0k", &[7; 100_000], vec![7; 100_000]);
    comes_back::<i64, Option<&str>>(1, None, None);
    comes_back::<i64, Option<i64>>(1, Some(0), Some(0));
    for datum in [
        Datum::Null,
        Datum::from(1.5),
        Datum::from("t"),
        Datum::from(b"b"),
        Datum::from(true),
        Datum::from(Some("x")),
        Datum::from(None::<i64>),
    ] {
        comes_back::<i64, Datum<'_>>(1, datum.clone(), datum.into_owned());
    }
}

#[test]
fn a_map_of_several_types_holds_keys_in_the_order_of_sql() -> Result<()> {
    let connection = memory();
    connection.execute("CREATE TABLE t(k BLOB PRIMARY KEY, v) WITHOUT ROWID", &[])?;
    let mut map = connection.map(MapDefinition::<Datum<'_>, Datum<'_>>::new("t"))?;
    for key in [Datum::from(b"b"), Datum::from("a"), Datum::from(2), Datum::from(1.5)] {
        map.put(key, Datum::Null)?;
    }
    let keys: Vec<_> = map.iter()?.map(|row| row.map(|(key, _)| key)).collect::<Result<_>>()?;
    let wanted = [Datum::from(1.5), Datum::from(2), Datum::from("a"), Datum::from(b"b")];
    assert_eq!(keys, wanted);
    Ok(())
}

#[test]
fn a_cursor_searches_in_every_direction_and_sees_writes_ahead() -> Result<()> {
    let connection = memory();
    let mut map = connection.map(MapDefinition::<i64, &str>::new("t"))?;
    map.load([(10, "a"), (20, "b"), (30, "c")])?;
    let mut cursor = map.cursor(..=30)?;
    assert_eq!(cursor.seek(20, Seek::Equal)?, Some((20, "b")));
    assert_eq!(cursor.seek(25, Seek::Equal)?, None);
    assert_eq!(cursor.seek(20, Seek::AtLeast)?, Some((20, "b")));
    assert_eq!(cursor.seek(20, Seek::After)?, Some((30, "c")));
    assert_eq!(cursor.seek(20, Seek::AtMost)?, Some((20, "b")));
    assert_eq!(cursor.seek(20, Seek::Before)?, Some((10, "a")));
    assert_eq!(cursor.last()?, Some((30, "c")));
    let at = cursor.first()?;
    connection.execute("UPDATE t SET v='changed'", &[])?;
    assert_eq!(at, Some((10, "a")), "what was answered stays");
    connection.map(MapDefinition::<i64, &str>::new("t"))?.put(15, "new")?;
    assert_eq!(cursor.next()?, Some((15, "new")));
    assert_eq!(cursor.next()?, Some((20, "changed")));
    assert_eq!(cursor.prev()?, Some((15, "new")));
    Ok(())
}

#[test]
fn batches_are_done_all_or_nothing() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    let mut ages = connection.map(AGES)?;
    ages.put("old", 1)?;
    let mut batch = Batch::new();
    batch.expect("old", Some(1)).put("new", 5).add("new", 2).delete("old").expect("gone", None);
    assert_eq!((batch.len(), batch.is_empty()), (5, false));
    assert_eq!(ages.apply(&batch)?, Applied::All);
    assert_eq!(ages.get_many(["old", "new"])?, [None, Some(7)]);
    assert_eq!(ages.apply(&batch)?, Applied::Unmet(0));
    assert_eq!(ages.get("new")?, Some(7));
    assert_eq!(ages.apply(&Batch::default())?, Applied::All);
    Ok(())
}

#[test]
fn appending_makes_text_and_bytes_longer() -> Result<()> {
    let connection = memory();
    let mut log = connection.map(MapDefinition::<i64, &str>::new("log"))?;
    assert_eq!(log.append(1, "é")?, 2);
    assert_eq!(log.append(1, "x")?, 3);
    assert_eq!(log.get(1)?, Some("éx"));
    let mut bytes = connection.map(MapDefinition::<i64, Vec<u8>>::new("bytes"))?;
    assert_eq!(bytes.append(1, b"ab")?, 2);
    assert_eq!(bytes.get(1)?, Some(b"ab".to_vec()));
    Ok(())
}

#[test]
fn a_load_takes_rows_from_another_map_of_the_same_connection() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    let mut from = connection.map(MapDefinition::<i64, &str>::new("a"))?;
    let texts: Vec<(i64, String)> = (0..300).rev().map(|n| (n, format!("row {n}"))).collect();
    assert_eq!(from.load(texts.iter().map(|(n, text)| (*n, text.as_str())))?, 300);
    let mut to = connection.map(MapDefinition::<i64, String>::new("b"))?;
    to.put(1, "replaced")?;
    let read = |row: Result<(i64, String)>| row.map(|(n, text)| (n, text + "!"));
    assert_eq!(to.try_load(from.iter()?.map(read))?, 300);
    assert_eq!(to.get(1)?.as_deref(), Some("row 1!"));
    assert_eq!(to.count(..)?, 300);
    Ok(())
}

#[test]
fn maps_are_in_other_schemas_too() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    let file = place.folder.path().join("other.db");
    let name = file.to_str().expect("a path of text");
    connection.execute("ATTACH ?1 AS other", plait::params![name])?;
    let mut there = connection.map(AGES.in_schema("other"))?;
    let mut temporary = connection.map(AGES.in_schema("temp"))?;
    there.put("ada", 1)?;
    temporary.put("ada", 2)?;
    assert_eq!(there.get("ada")?, Some(1));
    assert_eq!(temporary.get("ada")?, Some(2));
    assert_eq!(connection.map(AGES)?.get("ada")?, None);
    Ok(())
}

#[test]
fn a_dropped_table_is_created_anew_when_its_map_is_asked_for() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    connection.map(AGES)?.put("ada", 36)?;
    connection.execute("DROP TABLE ages", &[])?;
    assert_eq!(connection.map(AGES)?.get("ada")?, None);
    assert!(connection.map(AGES)?.insert("ada", 1)?);
    Ok(())
}

#[test]
fn sql_has_parameters_rows_and_several_statements() -> Result<()> {
    let connection = memory();
    connection.execute_batch(
        "CREATE TABLE t(a, b); -- a comment\n INSERT INTO t VALUES(1, 'x'), (2, NULL);\n\n",
    )?;
    let insert = "INSERT INTO t VALUES(?1, ?2) -- and nothing else";
    assert_eq!(connection.execute(insert, plait::params![b"b", 2.5])?, 1);
    assert_eq!(connection.execute("UPDATE t SET b=0 WHERE a<?1", plait::params![3])?, 2);
    assert_eq!(connection.execute("CREATE INDEX i ON t(a)", &[])?, 0);
    let read = |row: &plait::Row<'_>| {
        assert_eq!((row.len(), row.is_empty()), (2, false));
        Ok((row.get::<Datum<'_>>(0)?.into_owned(), row.get::<Option<f64>>(1).is_ok()))
    };
    let rows = connection.query("SELECT a, b FROM t ORDER BY a", &[], read)?;
    let wanted = [(Datum::from(1), false), (Datum::from(2), false), (Datum::from(b"b"), true)];
    assert_eq!(rows, wanted.map(|(datum, is_real)| (datum.into_owned(), is_real)));
    let none = connection.query_row("SELECT 1 WHERE 0", &[], |row| row.get::<i64>(0))?;
    assert_eq!(none, None);
    Ok(())
}

//! Keys and values of the key-value API at their edges: which keys are one, and which are too long.

use plait_tests::sqlite::{Connection, INTERRUPT, Item, MISUSE, Map, Range, create};
use plait_tests::subject::{Fixture, opened, refused};
use plait_tests::value::Value;
use std::sync::{Arc, Mutex};

const TOOBIG: i32 = 18;

const ROWS: &str = "SELECT k, typeof(k), v FROM t ORDER BY k";

fn with(sql: &str) -> Option<(Fixture, Connection)> {
    opened("map_values", sql)
}

/// Loads these keys, each with its place as its value, and says what is there then.
fn loaded(map: &Map, db: &Connection, sorted: bool, keys: &[Value]) -> Vec<Vec<Value>> {
    let rows = &mut keys.iter().cloned().zip(0_i64..).map(|(key, at)| Ok((key, Value::from(at))));
    let n = i64::try_from(keys.len()).expect("a few");
    assert_eq!(map.load(sorted, rows), Ok(n));
    db.query(ROWS).expect("rows")
}

/// Of keys that are one under the column's affinity and collation the last one loaded wins, sorted or not, as in one put after the other.
#[track_caller]
fn the_later_wins(encoding: &str, column: &str, keys: &[Value]) {
    let tables = [
        format!("CREATE TABLE t(k {column} PRIMARY KEY, v)"),
        format!("CREATE TABLE t(k {column} PRIMARY KEY, v) WITHOUT ROWID"),
        format!("CREATE TABLE t(k {column} PRIMARY KEY DESC, v) WITHOUT ROWID"),
        // Written through SQL.
        format!("CREATE TABLE t(k {column} PRIMARY KEY, v CHECK(v>=0))"),
    ];
    for table in tables {
        let Some((fixture, _)) = with("CREATE TABLE apart(a)") else { return };
        let db = fixture.subject.open(&fixture.path("loaded.db")).expect("it opens");
        let made = format!("PRAGMA encoding='{encoding}'; PRAGMA journal_mode=concurrent; {table}");
        db.execute(&made).expect("a table");
        let map = db.open_map("t", 0).expect("a map");
        for round in 0..keys.len() {
            let mut keys = keys.to_vec();
            keys.rotate_left(round);
            let clear = || db.execute("DELETE FROM t").expect("a delete");
            clear();
            for (key, value) in keys.iter().zip(0_i64..) {
                map.put(key, &Value::from(value)).expect("a put");
            }
            let put = db.query(ROWS).expect("rows");
            clear();
            let unsorted = loaded(&map, &db, false, &keys);
            clear();
            assert_eq!(
                loaded(&map, &db, true, &keys),
                put,
                "sorted, {encoding}, {table}, {keys:?}"
            );
            assert_eq!(unsorted, put, "unsorted, {encoding}, {table}, {keys:?}");
        }
    }
}

fn texts(texts: &[&str]) -> Vec<Value> {
    texts.iter().map(|text| Value::from(*text)).collect()
}

#[test]
fn the_later_of_two_loaded_keys_wins_whatever_makes_them_one() {
    let numbers: Vec<Value> = [12, 7, i64::MAX]
        .map(Value::Integer)
        .into_iter()
        .chain([12.0, 7.5].map(Value::Real))
        .chain(texts(&["12", " 12.0", "7.5", "1.2e1", "9223372036854775807"]))
        .collect();
    for column in ["INT", "NUMERIC", "REAL", "TEXT", "BLOB"] {
        the_later_wins("UTF-8", column, &numbers);
    }
    let whole: Vec<Value> = numbers
        .iter()
        .filter(|key| !matches!(key, Value::Real(r) if r.fract() != 0.0))
        .filter(|key| **key != Value::from("7.5"))
        .cloned()
        .collect();
    the_later_wins("UTF-8", "INTEGER", &whole);
    let cases = texts(&["b", "B", "a", "A ", "a ", "B ", "b"]);
    for encoding in ["UTF-8", "UTF-16le", "UTF-16be"] {
        for collation in ["NOCASE", "RTRIM", "BINARY"] {
            the_later_wins(encoding, &format!("TEXT COLLATE {collation}"), &cases);
        }
        the_later_wins(encoding, "TEXT", &numbers);
    }
}

/// As with ON CONFLICT DO UPDATE what makes a row meets the one that is stored under the number next to its key; what only looks for a
/// row does not find it, as WHERE does not.
#[test]
fn an_integer_that_is_no_double_meets_the_row_of_the_one_next_to_it() {
    let (stored, next) = (Value::Integer(1 << 53), Value::Integer((1 << 53) + 1));
    for after in ["", " WITHOUT ROWID"] {
        let sql = format!("CREATE TABLE t(k REAL PRIMARY KEY, v){after}");
        let Some((_fixture, db)) = with(&sql) else { return };
        let map = db.open_map("t", 0).expect("a map");
        let value = || db.integer("SELECT v FROM t");
        map.put(&stored, &Value::Integer(1)).expect("a put");
        assert_eq!(map.get(&next), Ok(None));
        assert_eq!(db.integer("SELECT count(*) FROM t WHERE k=9007199254740993"), Ok(0));
        assert_eq!(map.delete(&next), Ok(false));
        assert_eq!(map.update(&next, &Value::Integer(2)), Ok(false));
        map.put(&next, &Value::Integer(3)).expect("a put");
        assert_eq!(value(), Ok(3));
        assert_eq!(map.insert(&next, &Value::Integer(4)), Ok(false));
        assert_eq!(map.add(&next, 5), Ok(8));
        assert_eq!(map.swap(&next, Some(&Value::Integer(8)), Some(&Value::Integer(9))), Ok(true));
        assert_eq!(map.batch(&[Item::Put(next.clone(), Value::Integer(10))]), Ok(None));
        assert_eq!(map.batch(&[Item::Add(next.clone(), 1)]), Ok(None));
        assert_eq!(value(), Ok(11));
        map.put(&next, &Value::Blob(vec![1])).expect("a put");
        assert_eq!(map.append(&next, &Value::Blob(vec![2])), Ok(2));
        assert_eq!(db.integer("SELECT count(*) FROM t"), Ok(1));
    }
}

/// The handler is asked after every instruction, and once more when all is done.
// holds KV-4
#[test]
fn a_write_that_its_progress_handler_ends_has_changed_nothing() {
    let mut refused = 0;
    for table in
        ["k INTEGER PRIMARY KEY, v", "k INT PRIMARY KEY, v", "k INTEGER PRIMARY KEY, v CHECK(v>0)"]
    {
        let Some((_fixture, db)) = with(&format!("CREATE TABLE t({table})")) else { return };
        let map = db.open_map("t", 0).expect("a map");
        let key = Value::Integer(1);
        map.put(&key, &Value::Integer(1)).expect("a put");
        let mut added = 0;
        for calls in 1.. {
            let mut left = calls;
            db.progress_handler(Some(move || {
                left -= 1;
                left > 0
            }));
            let outcome = map.add(&key, 1);
            db.progress_handler(None::<fn() -> bool>);
            match outcome {
                Ok(sum) => {
                    added += 1;
                    assert_eq!(sum, 1 + added, "{table}");
                    if added > 3 {
                        break;
                    }
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.code, INTERRUPT, "{table}: {error}");
                }
            }
            assert_eq!(
                map.get(&key),
                Ok(Some(Value::Integer(1 + added))),
                "{table}, {calls} calls"
            );
        }
    }
    assert!(refused > 0, "it was never asked in time");
}

#[test]
fn what_is_longer_than_the_limit_is_refused_before_it_is_read() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE r(k INTEGER PRIMARY KEY, v); CREATE TABLE i(k BLOB PRIMARY KEY, v);
         CREATE TABLE w(k BLOB PRIMARY KEY, v) WITHOUT ROWID; CREATE TABLE c(k BLOB PRIMARY KEY, v CHECK(1))",
    ) else {
        return;
    };
    db.limit_length(1000);
    for table in ["r", "i", "w", "c"] {
        let map = db.open_map(table, 0).expect("a map");
        let key = if table == "r" { Value::Integer(1) } else { Value::from("here") };
        map.put(&key, &Value::Integer(1)).expect("a put");
        for size in [1001, i64::from(i32::MAX), 1 << 31, (1 << 32) | 16, i64::MAX] {
            for (call, code) in map.codes_of_sizes(size, &key) {
                assert_eq!(code, TOOBIG, "{call} with {size} bytes, table {table}");
            }
        }
        let long = Value::Blob(vec![1; 1001]);
        for (sorted, row) in [(false, (long.clone(), key.clone())), (true, (key.clone(), long))] {
            let refused = map.load(sorted, &mut std::iter::once(Ok(row))).expect_err("too long");
            assert_eq!(refused.code, TOOBIG, "{refused}");
        }
        let mut cursor = map.cursor(&plait_tests::sqlite::Range::ALL).expect("a cursor");
        assert_eq!(cursor.next(), Ok(Some((key, Value::Integer(1)))), "nothing has changed");
        assert_eq!(cursor.next(), Ok(None));
    }
}

/// From within a call on a map nobody closes it.
// holds KV-3
#[test]
fn a_hook_cannot_close_the_map_whose_call_has_started_it() {
    let Some((_fixture, db)) = with("CREATE TABLE t(k TEXT PRIMARY KEY, v)") else { return };
    let map = db.open_map("t", 0).expect("a map");
    let answers = Arc::new(Mutex::new(Vec::new()));
    let (told, mut close) = (answers.clone(), map.refused_closer());
    db.update_hook(move |_| told.lock().expect("no panic").push(close()));
    map.put(&Value::from("a"), &Value::from(1)).expect("it goes on");
    map.put(&Value::from("a"), &Value::from(2)).expect("and on");
    assert_eq!(*answers.lock().expect("no panic"), [MISUSE, MISUSE]);
    assert_eq!(map.get(&Value::from("a")), Ok(Some(Value::from(2))));
}

/// A flag that makes the table when it is missing does not hide why one that is there is no map.
#[test]
fn what_is_there_and_no_map_is_refused_alike_with_and_without_a_flag_that_creates() {
    let sql = "CREATE TABLE t(k PRIMARY KEY, a, b); CREATE TABLE keyless(a, b); CREATE VIEW v AS SELECT 1 AS k, 2 AS v";
    let Some((_fixture, db)) = with(sql) else { return };
    for table in ["t", "keyless", "v", "sqlite_schema", "plait_status"] {
        let [without, with] = [0, create::TEXT].map(|flags| {
            let error = db.open_map(table, flags).err().expect(table);
            (error.code, error.message)
        });
        assert_eq!(without, with);
        assert_ne!(with.1, "not an error", "{table}");
    }
}

/// A read that is repeated as a statement, because it failed without one, begins at the beginning.
// holds KV-6
#[test]
fn a_read_that_fails_is_told_however_it_runs() {
    let text = |bytes: &str| Value::from(bytes);
    for (mode, begin) in [("concurrent", ""), ("concurrent", "BEGIN"), ("wal", "BEGIN")] {
        let Some((fixture, _)) = with("CREATE TABLE apart(a)") else { return };
        let path = fixture.path("limited.db");
        let (db, other) = [(); 2].map(|()| fixture.subject.open(&path).expect("it opens")).into();
        db.execute(&format!("PRAGMA journal_mode={mode}")).expect("a mode");
        let map = db.open_map("m", create::TEXT).expect("a map");
        for (key, size) in [("a", 1), ("b", 5000), ("c", 1)] {
            map.put(&text(key), &text(&"x".repeat(size))).expect("a put");
        }
        // From now on a read of its own needs no statement.
        other.execute("CREATE TABLE t(a)").expect("a table");
        let keys = ["a", "b", "c"].map(text);
        db.execute(begin).expect("it begins");
        let read = || {
            for _ in 0..3 {
                map.get(&text("a")).expect("an answer");
            }
        };
        for _ in 0..2 {
            db.limit_length(1000);
            read();
            refused(map.get_many(&keys), TOOBIG, "too big");
            read();
            let range = Range::Prefix(text("b"));
            refused(map.end(&range, false), TOOBIG, "too big");
            read();
            refused(map.end(&range, true), TOOBIG, "too big");
            db.limit_length(1_000_000);
            read();
            let all = map.get_many(&keys).expect("answers");
            assert!(all.iter().all(Option::is_some), "{mode}, {begin}: {all:?}");
        }
    }
}

/// Answers stay until the next call, and arguments are read until it returns.
// holds KV-6
#[test]
fn what_a_call_has_answered_may_be_an_argument_of_the_next() {
    for column in ["TEXT PRIMARY KEY, v) WITHOUT ROWID", "TEXT PRIMARY KEY, v)"] {
        let Some((_fixture, db)) = with(&format!("CREATE TABLE t(k {column}")) else { return };
        let map = db.open_map("t", 0).expect("a map");
        let key = |n: usize| Value::from(format!("key {n:0>width$}", width = 9 + n % 30).as_str());
        // Each leads to the next, around.
        const KEYS: usize = 100;
        for n in 0..KEYS {
            map.put(&key(n), &key((n + 1) % KEYS)).expect("a put");
        }
        for begin in ["BEGIN", ""] {
            db.execute(begin).expect("it begins");
            let keys: Vec<Value> = (0..KEYS).map(key).collect();
            let far = map.get_many_of_answers(&keys, 7).expect("answers");
            let expected: Vec<_> = (0..KEYS).map(|n| Some(key((n + 7) % KEYS))).collect();
            assert_eq!(far, expected);
            let mut cursor = map.cursor(&Range::ALL).expect("a cursor");
            let walked = cursor.keys_above_each_other().expect("keys");
            assert_eq!(walked, db.query("SELECT k FROM t ORDER BY k").expect("rows").concat());
            drop(cursor);
            if begin == "BEGIN" {
                db.execute("COMMIT").expect("a commit");
            }
        }
        for (to, from) in [(3, 5), (3, 3)] {
            let value = |n| match map.get(&key(n)).expect("an answer") {
                Some(Value::Text(bytes)) => bytes,
                other => panic!("{other:?}"),
            };
            let expected = [value(to), value(from)].concat();
            let size = map.append_answer(&key(to), &key(from)).expect("it is appended");
            assert_eq!((value(to), size), (expected.clone(), expected.len() as i64));
        }
    }
}

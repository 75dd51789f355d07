//! Keys and values of the key-value API at their edges: which keys are one, and which are too long.

use plait_tests::sqlite::Connection;
use plait_tests::subject::{Fixture, real_plait};
use plait_tests::value::Value;

const TOOBIG: i32 = 18;

fn with(sql: &str) -> Option<(Fixture, Connection)> {
    let fixture = Fixture::new(real_plait("map_values")?, sql);
    let db = fixture.open();
    Some((fixture, db))
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

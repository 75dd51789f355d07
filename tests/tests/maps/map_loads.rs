//! Many rows in one call: order, ends before their time.

use plait_tests::sqlite::{Connection, INTERRUPT, MISUSE, Range};
use plait_tests::subject::{Fixture, opened, refused};
use plait_tests::value::Value;

fn with(sql: &str) -> Option<(Fixture, Connection)> {
    opened("loads", sql)
}

#[test]
fn an_interrupt_ends_a_load_and_nothing_is_left() {
    let Some((_fixture, db)) = with("CREATE TABLE m(k INTEGER PRIMARY KEY, v)") else { return };
    let map = db.open_map("m", 0).unwrap();
    map.put(&Value::from(-1), &Value::from(1)).unwrap();
    for sorted in [true, false] {
        let mut rows = (0..200_000_i64).map(|n| {
            if n == 600 {
                db.interrupt();
            }
            Ok((Value::from(n), Value::Blob(vec![0; 100])))
        });
        refused(map.load(sorted, &mut rows), INTERRUPT, "interrupted");
        assert_eq!(map.count(&Range::ALL).unwrap(), 1);
    }
}

#[test]
fn whatever_code_its_source_returns_ends_a_load_and_is_returned() {
    let Some((_fixture, db)) = with("CREATE TABLE m(k INTEGER PRIMARY KEY, v)") else { return };
    let map = db.open_map("m", 0).unwrap();
    for sorted in [true, false] {
        for code in [-1, -5, -256, i32::MIN, i32::MAX, 1, 4, 5, 7, 9, 21, 256, 357, 512, 4242] {
            let rows = [
                Ok((Value::from(1), Value::from(1))),
                Ok((Value::from(2), Value::from(2))),
                Err(code),
                Ok((Value::from(3), Value::from(3))),
            ];
            let error = map.load(sorted, &mut rows.into_iter()).unwrap_err();
            assert_eq!(error.extended, code, "{error}");
            assert!(error.message.contains(&format!("ended it with code {code}")), "{error}");
            assert_eq!(map.count(&Range::ALL).unwrap(), 0, "{code}");
        }
        refused(map.load(sorted, &mut [Err(0)].into_iter()), MISUSE, "returned 0");
    }
    map.load(true, &mut [Ok((Value::from(1), Value::from(1)))].into_iter()).unwrap();
}

#[test]
fn large_loads_in_any_order_end_in_order() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE r(k INTEGER PRIMARY KEY, v); CREATE TABLE w(k BLOB PRIMARY KEY, v) WITHOUT ROWID",
    ) else {
        return;
    };
    let n = 60_000_i64;
    let mixed = |i: i64| (i * 48_271) % n;
    let (r, w) = (db.open_map("r", 0).unwrap(), db.open_map("w", 0).unwrap());
    let sorted = &mut (0..n).map(|i| Ok((Value::from(i), Value::Blob(vec![1; 90]))));
    assert_eq!(r.load(true, sorted).unwrap(), n);
    let random = &mut (0..n)
        .map(|i| Ok((Value::Blob(mixed(i).to_be_bytes().to_vec()), Value::Blob(vec![1; 400]))));
    assert_eq!(w.load(false, random).unwrap(), n);
    let twice = &mut (0..n).map(|i| Ok((Value::from(i / 2), Value::from(i))));
    assert_eq!(r.load(false, twice).unwrap(), n);
    assert_eq!(r.get(&Value::from(7)).unwrap(), Some(Value::from(15)), "the later wins");
    assert_eq!((r.count(&Range::ALL).unwrap(), w.count(&Range::ALL).unwrap()), (n, n));
    assert_eq!(
        w.end(&Range::ALL, true).unwrap().0,
        Some(Value::Blob((n - 1).to_be_bytes().to_vec()))
    );
    assert_eq!(db.text("PRAGMA integrity_check").unwrap(), "ok");
}

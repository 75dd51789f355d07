//! What makes a search on a page of the base quick (where it looks first, and a comparison of its own for bytes) does not change what it finds.

use plait_tests::sqlite::Connection;
use plait_tests::subject::{Fixture, Subject};
use plait_tests::value::Value;

/// The same rows on stock SQLite, and in WAL mode and concurrent mode on the library under test.
fn everywhere(sql: &str) -> Vec<(Fixture, Connection)> {
    let subjects = [Subject::stock(), Subject::plait_in_wal_mode(), Subject::plait()];
    let of = |subject| {
        let fixture = Fixture::new(subject, sql);
        let db = fixture.open();
        (fixture, db)
    };
    subjects.map(of).into()
}

const AROUND: [&str; 5] = [
    "SELECT k, v FROM t WHERE k=?1",
    "SELECT k, v FROM t WHERE k>=?1 ORDER BY k LIMIT 1",
    "SELECT k, v FROM t WHERE k>?1 ORDER BY k LIMIT 1",
    "SELECT k, v FROM t WHERE k<=?1 ORDER BY k DESC LIMIT 1",
    "SELECT k, v FROM t WHERE k<?1 ORDER BY k DESC LIMIT 1",
];

/// Asserts that these keys and what lies around them are found alike on all of them, within and outside of a transaction.
#[track_caller]
fn all_find_the_same(what: &str, all: &[(Fixture, Connection)], keys: &[Value]) {
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s"] {
        let answers = |db: &Connection| -> Vec<Vec<Vec<Value>>> {
            db.execute(begin).expect(begin);
            let ask = |key: &Value| AROUND.map(|sql| db.query_with(sql, std::slice::from_ref(key)));
            let said = keys.iter().flat_map(ask).map(|rows| rows.expect(what)).collect();
            db.execute("COMMIT").expect("it ends");
            said
        };
        let stock = answers(&all[0].1);
        assert!(stock.iter().any(|rows| !rows.is_empty()), "{what}: rows are there");
        for (_, db) in &all[1..] {
            for (at, (said, stock)) in answers(db).into_iter().zip(&stock).enumerate() {
                let (key, sql) = (&keys[at / AROUND.len()], AROUND[at % AROUND.len()]);
                assert_eq!(&said, stock, "{what}, {begin}, {sql}, {key:?}");
            }
        }
    }
}

#[test]
fn a_rowid_is_found_on_leaves_with_holes_and_without() {
    let holes = ["0", "x%37=5", "x%8=3", "x%5<>1", "x BETWEEN 700 AND 1400 OR x%1000<3"];
    for (first, literal) in [
        (1, "1"),
        (-1500, "-1500"),
        (i64::MIN, "(-9223372036854775807-1)"),
        (i64::MAX - 2999, "9223372036854772808"),
    ] {
        for hole in holes {
            let all = everywhere(&format!(
                "CREATE TABLE t(k INTEGER PRIMARY KEY, v);
                 WITH RECURSIVE i(x) AS (SELECT 0 UNION ALL SELECT x+1 FROM i WHERE x<2999)
                 INSERT INTO t SELECT {literal}+x, x||hex(zeroblob(30)) FROM i WHERE NOT ({hole});
                 DELETE FROM t WHERE k%111=0"
            ));
            let inside = (0..3000).step_by(7).chain([1, 2, 2997, 2998, 2999]).map(|x| first + x);
            let beyond = [i64::MIN, -1501, 0, 1501, 3001, i64::MAX];
            let keys: Vec<Value> = inside.chain(beyond).map(Value::Integer).collect();
            all_find_the_same(&format!("{first}, without {hole}"), &all, &keys);
        }
    }
}

#[test]
fn a_key_of_bytes_is_found_among_numbers_texts_and_other_bytes() {
    let bytes = |n: u32| Value::Blob(n.wrapping_mul(2_654_435_761).to_be_bytes().repeat(6));
    let mut keys: Vec<Value> = (0..900).map(bytes).collect();
    for n in 0..60_u8 {
        keys.push(Value::Blob(vec![n; usize::from(n)]));
        keys.push(Value::Blob(vec![0xff; usize::from(n) * 11]));
        keys.push(Value::Text(vec![b'a' + n % 26; usize::from(n)]));
        keys.push(Value::Integer(i64::from(n)));
        keys.push(Value::Real(f64::from(n) + 0.5));
    }
    let nearly = |key: &Value| match key {
        Value::Blob(bytes) => {
            let (mut longer, shorter) = (bytes.clone(), &bytes[..bytes.len().saturating_sub(1)]);
            longer.push(0);
            vec![Value::Blob(longer), Value::Blob(shorter.to_vec())]
        }
        _ => Vec::new(),
    };
    let around: Vec<Value> = keys.iter().flat_map(nearly).chain(keys.clone()).collect();
    for form in [
        "t(k PRIMARY KEY, v) WITHOUT ROWID",
        "t(k PRIMARY KEY DESC, v) WITHOUT ROWID",
        "t(k COLLATE NOCASE PRIMARY KEY, v) WITHOUT ROWID",
        "t(k PRIMARY KEY, v)",
        "t(k, v, UNIQUE(k, v))",
        "t(k, v, PRIMARY KEY(v, k)) WITHOUT ROWID; CREATE INDEX i ON t(k DESC, v)",
    ] {
        let all = everywhere(&format!("CREATE TABLE {form}"));
        for (_, db) in &all {
            db.execute("BEGIN").expect("it begins");
            let mut put =
                db.prepare("INSERT OR REPLACE INTO t(k, v) VALUES(?1, ?2)").expect("it is SQL");
            for (key, at) in keys.iter().zip(0_i64..) {
                put.bind_all(&[key.clone(), Value::Integer(at)]).expect("it is bound");
                put.run().expect("it is put");
            }
            drop(put);
            db.execute("COMMIT").expect("it ends");
            db.query("PRAGMA wal_checkpoint").expect("it is merged");
        }
        all_find_the_same(form, &all, &around);
    }
}

//! The key-value API beside SQL: what is no map, keys and values of every kind, hooks, changes of the schema, failures.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::sqlite::{
    Bound, ChangeKind, Connection, Item, Map, Near, OpenFlags, Range, Session, create, *,
};
use plait_tests::subject::{Fixture, Subject, opened, real_plait, refused};
use plait_tests::value::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MISMATCH: i32 = 20;
const TOOBIG: i32 = 18;
const AUTH: i32 = 23;

fn int(i: i64) -> Value {
    Value::Integer(i)
}

fn bytes(b: &[u8]) -> Value {
    Value::Blob(b.to_vec())
}

fn with(sql: &str) -> Option<(Fixture, Connection)> {
    opened("maps", sql)
}

#[test]
fn what_is_no_map_is_refused_with_the_reason() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE three(k INTEGER PRIMARY KEY, a, b); CREATE TABLE one(k INTEGER PRIMARY KEY);
         CREATE TABLE two_keys(a, b, v, PRIMARY KEY(a, b)); CREATE TABLE keyless(a, b); CREATE TABLE alone(a, b UNIQUE);
         CREATE TABLE m(k INTEGER PRIMARY KEY, v); CREATE VIEW v AS SELECT * FROM m;
         CREATE VIRTUAL TABLE ft USING fts5(a); CREATE TABLE s(k INTEGER PRIMARY KEY AUTOINCREMENT, v);
         CREATE TABLE two_ways(k TEXT COLLATE NOCASE, v, PRIMARY KEY(k COLLATE BINARY)); CREATE TABLE plain(k TEXT, v, PRIMARY KEY(k COLLATE NOCASE)) WITHOUT ROWID;
         CREATE TABLE one_way(k TEXT COLLATE NOCASE, v, PRIMARY KEY(k COLLATE nocase))",
    ) else {
        return;
    };
    for (table, words) in [
        ("three", "exactly one column"),
        ("one", "exactly one column"),
        ("two_keys", "several columns"),
        ("keyless", "no primary key"),
        ("alone", "no primary key"),
        ("two_ways", "another collation than its column"),
        ("plain", "another collation than its column"),
        ("v", "a view"),
        ("ft", "virtual table"),
        ("sqlite_schema", "SQLite's own, and not to be written"),
        ("nothing", "no such table: main.nothing"),
    ] {
        refused(db.open_map(table, 0), ERROR, words);
    }
    refused(db.open_map_in("elsewhere", "m", 0), ERROR, "unknown database elsewhere");
    db.open_map("m", 0).expect("the connection goes on");
    db.open_map("one_way", 0).expect("key and column compare alike");
}

#[test]
fn null_and_what_is_no_value_are_misuse() {
    let Some((_fixture, db)) = with("CREATE TABLE m(k INTEGER PRIMARY KEY, v)") else { return };
    let map = db.open_map("m", 0).unwrap();
    for (index, code) in map.codes_of_null_arguments().into_iter().enumerate() {
        assert_eq!(code, MISUSE, "call {index}");
    }
    refused(map.put(&Value::Real(f64::NAN), &int(1)), MISUSE, "bad argument");
    refused(map.put(&Value::Null, &int(1)), MISUSE, "bad argument");
    map.put(&int(1), &int(1)).unwrap();
}

/// One key or value of each kind, and what affinity makes of some.
fn kinds() -> Vec<Value> {
    let texts = ["", "a", "A", "a ", "12", "12.0", "1e1", " 7 ", "ü", "9223372036854775808"];
    let mut all: Vec<Value> = texts.iter().map(|text| Value::from(*text)).collect();
    all.extend([int(12), int(-7), int(0), int(i64::MAX), int(i64::MIN), int(10)]);
    all.extend([12.0, 0.5, -0.0, 1e300, 9.3e18, 12.5].map(Value::from));
    all.extend([bytes(b""), bytes(b"a"), bytes(b"12"), bytes(&[0, 0xff])]);
    all
}

/// The same on a map and in SQL: equal rows, equal failures, equal finds.
fn same_as_sql(db: &Connection, table: &str) {
    for name in ["a", "b"] {
        db.execute(&table.replace("TABLE t", &format!("TABLE {name}"))).unwrap();
    }
    let map = db.open_map("a", 0).unwrap();
    let keys = kinds();
    let mut values = kinds();
    values.push(Value::Null);
    for (index, key) in keys.iter().enumerate() {
        let value = &values[index * 5 % values.len()];
        let ours = map.put(key, value);
        let sql = "INSERT INTO b(k,v) VALUES(?1,?2) ON CONFLICT(k) DO UPDATE SET v=excluded.v";
        let theirs = db.query_with(sql, &[key.clone(), value.clone()]);
        let (ours, theirs) = (ours.map_err(|e| e.code), theirs.map(|_| ()).map_err(|e| e.code));
        assert_eq!(ours, theirs, "put {key:?} {value:?} into {table}");
    }
    let rows = |name: &str| {
        db.query(&format!("SELECT k, typeof(k), v, typeof(v) FROM {name} ORDER BY k, rowid"))
            .or_else(|_| {
                db.query(&format!("SELECT k, typeof(k), v, typeof(v) FROM {name} ORDER BY k"))
            })
    };
    assert_eq!(rows("a").unwrap(), rows("b").unwrap(), "{table}");
    for key in &keys {
        let found = db.query_with("SELECT v FROM b WHERE k=?1", std::slice::from_ref(key)).unwrap();
        let want = found.into_iter().next().map(|row| row[0].clone());
        assert_eq!(map.get(key).unwrap(), want, "get {key:?} from {table}");
        for (sql, range) in [
            ("k>=?1", Range::Between(Bound::Closed(key.clone()), Bound::None)),
            ("k>?1", Range::Between(Bound::Open(key.clone()), Bound::None)),
            ("k<=?1", Range::Between(Bound::None, Bound::Closed(key.clone()))),
            ("k<?1", Range::Between(Bound::None, Bound::Open(key.clone()))),
        ] {
            let select = format!("SELECT k FROM b WHERE {sql} ORDER BY k");
            let rows = db.query_with(&select, std::slice::from_ref(key)).unwrap();
            let want: Vec<Value> = rows.into_iter().map(|row| row[0].clone()).collect();
            let mut cursor = map.cursor(&range).unwrap();
            let mut found = Vec::new();
            while let Some((key, _)) = cursor.next().unwrap() {
                found.push(key);
            }
            assert_eq!(found, want, "{sql} {key:?} in {table}");
            found.clear();
            while let Some((key, _)) = cursor.prev().unwrap() {
                found.insert(0, key);
            }
            assert_eq!(found, want, "back {sql} {key:?} in {table}");
        }
    }
    for key in &keys {
        let there = !db
            .query_with("SELECT 1 FROM b WHERE k=?1", std::slice::from_ref(key))
            .unwrap()
            .is_empty();
        db.query_with("DELETE FROM b WHERE k=?1", std::slice::from_ref(key)).unwrap();
        assert_eq!(map.delete(key).unwrap(), there, "delete {key:?} from {table}");
    }
    assert_eq!(rows("a").unwrap(), rows("b").unwrap(), "{table}");
    drop(map);
    db.execute("DROP TABLE a; DROP TABLE b").unwrap();
}

#[test]
fn keys_and_values_get_the_affinity_and_collation_of_their_columns() {
    let Some(subject) = real_plait("maps") else { return };
    for (encoding, mode) in [
        ("UTF-8", "concurrent"),
        ("UTF-16le", "concurrent"),
        ("UTF-16be", "delete"),
        ("UTF-8", "delete"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let db = subject.library().open(folder.path().join("m.db")).unwrap();
        db.execute(&format!("PRAGMA encoding='{encoding}'; PRAGMA journal_mode={mode}")).unwrap();
        db.execute("PRAGMA synchronous=OFF").unwrap();
        for affinity in ["", "BLOB", "TEXT", "INTEGER", "NUMERIC", "REAL"] {
            for (rest, key) in [
                ("", "PRIMARY KEY"),
                (" WITHOUT ROWID", "PRIMARY KEY"),
                ("", "COLLATE NOCASE PRIMARY KEY"),
                (" WITHOUT ROWID", "COLLATE RTRIM PRIMARY KEY"),
                ("", "PRIMARY KEY DESC"),
            ] {
                same_as_sql(
                    &db,
                    &format!("CREATE TABLE t(k {affinity} {key}, v {affinity}){rest}"),
                );
            }
        }
        same_as_sql(&db, "CREATE TABLE t(v NOT NULL, k INTEGER PRIMARY KEY)");
        same_as_sql(&db, "CREATE TABLE t(k TEXT PRIMARY KEY, v BLOB) STRICT");
        same_as_sql(&db, "CREATE TABLE t(k ANY PRIMARY KEY, v INTEGER) STRICT");
    }
}

#[test]
fn text_of_an_utf_16_database_comes_and_goes_as_utf_8() {
    let Some(subject) = real_plait("maps") else { return };
    let folder = tempfile::tempdir().unwrap();
    let db = subject.library().open(folder.path().join("m.db")).unwrap();
    db.execute("PRAGMA encoding='UTF-16'; PRAGMA journal_mode=concurrent").unwrap();
    let map = db.open_map("m", create::TEXT).unwrap();
    let long = Value::from("größe €".repeat(3000));
    for key in ["übel", "über", "z", "ü"] {
        map.put(&key.into(), &long).unwrap();
    }
    assert_eq!(map.append(&"z".into(), &"!".into()).unwrap(), 10 * 3000 + 1 + 3000);
    assert_eq!(map.get(&"über".into()).unwrap(), Some(long.clone()));
    assert_eq!(map.get_many(&["ü".into(), "u".into()]).unwrap(), [Some(long), None]);
    assert_eq!(map.count(&Range::Prefix("üb".into())).unwrap(), 2);
    assert_eq!(map.count(&Range::Prefix("".into())).unwrap(), 4);
}

#[test]
fn a_prefix_needs_an_order_of_bytes() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE m(k TEXT COLLATE NOCASE PRIMARY KEY, v); CREATE TABLE i(k INTEGER PRIMARY KEY, v)",
    ) else {
        return;
    };
    for table in ["m", "i"] {
        let map = db.open_map(table, 0).unwrap();
        refused(map.count(&Range::Prefix("1".into())), ERROR, "a prefix must be text or bytes");
    }
}

#[test]
fn rows_without_a_key_are_in_no_range() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE m(k TEXT PRIMARY KEY, v); INSERT INTO m VALUES(NULL, 1), ('a', 2), (NULL, 3), ('b', 4)",
    ) else {
        return;
    };
    let map = db.open_map("m", 0).unwrap();
    assert_eq!(map.count(&Range::ALL).unwrap(), 2);
    assert_eq!(map.end(&Range::ALL, false).unwrap(), (Some("a".into()), Some(int(2))));
    assert_eq!(map.delete_range(&Range::ALL).unwrap(), 2);
    assert_eq!(db.integer("SELECT sum(v) FROM m").unwrap(), 4);
}

#[test]
fn rows_from_before_the_value_was_added_have_its_default() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE m(k TEXT PRIMARY KEY); INSERT INTO m VALUES('old'); ALTER TABLE m ADD v DEFAULT 'given'",
    ) else {
        return;
    };
    let map = db.open_map("m", 0).unwrap();
    assert_eq!(map.get(&"old".into()).unwrap(), Some("given".into()));
    assert!(map.swap(&"old".into(), Some(&"given".into()), Some(&int(1))).unwrap());
    assert_eq!(db.integer("SELECT v FROM m").unwrap(), 1);
}

// holds KV-1, SINGLE-3
#[test]
fn a_map_follows_its_table_through_changes_of_the_schema() {
    let Some((fixture, db)) =
        with("CREATE TABLE m(k INTEGER PRIMARY KEY, v); INSERT INTO m VALUES(1, 'one')")
    else {
        return;
    };
    for place in [None, Some(Place::Threads), Some(Place::Processes)] {
        let mut other =
            place.map(|place| Actor::start(place, "other", &fixture.subject, &fixture.database()));
        let mut ddl = |sql: &str| match &mut other {
            Some(actor) => drop(actor.ok(sql)),
            None => db.execute(sql).unwrap(),
        };
        let map = db.open_map("m", 0).unwrap();
        assert_eq!(map.get(&int(1)).unwrap(), Some("one".into()), "{place:?}");
        ddl("CREATE TABLE filler(a); DROP TABLE m");
        refused(map.get(&int(1)), ERROR, "no such table: main.m");
        refused(map.put(&int(1), &int(1)), ERROR, "no such table: main.m");
        ddl("CREATE TABLE m(v, k TEXT PRIMARY KEY)");
        map.put(&"x".into(), &int(5)).unwrap();
        assert_eq!(map.get(&"x".into()).unwrap(), Some(int(5)));
        ddl("ALTER TABLE m RENAME COLUMN v TO w; CREATE INDEX m_w ON m(w)");
        map.put(&"y".into(), &int(6)).unwrap();
        assert_eq!(db.integer("SELECT k='y' FROM m INDEXED BY m_w WHERE w=6").unwrap(), 1);
        ddl("VACUUM");
        assert_eq!(map.count(&Range::ALL).unwrap(), 2);
        ddl("ALTER TABLE m ADD COLUMN third");
        refused(map.get(&"x".into()), ERROR, "exactly one column");
        ddl(
            "DROP TABLE filler; DROP TABLE m; CREATE TABLE m(k INTEGER PRIMARY KEY, v); INSERT INTO m VALUES(1,'one')",
        );
        assert_eq!(map.get(&int(1)).unwrap(), Some("one".into()));
    }
}

#[test]
fn a_map_of_a_detached_database_says_so_and_comes_back() {
    let Some((fixture, db)) = with("CREATE TABLE m(k INTEGER PRIMARY KEY, v)") else { return };
    let attach = format!("ATTACH '{}' AS other", fixture.path("other.db").display());
    db.execute(&attach).unwrap();
    let map = db.open_map_in("other", "m", create::INTEGER).unwrap();
    map.put(&int(1), &"other".into()).unwrap();
    db.open_map("m", 0).unwrap().put(&int(1), &"main".into()).unwrap();
    db.execute("DETACH other").unwrap();
    refused(map.get(&int(1)), ERROR, "no such table: other.m");
    refused(map.put(&int(1), &int(1)), ERROR, "no such table: other.m");
    db.execute(&format!("ATTACH '{}' AS middle", fixture.path("middle.db").display())).unwrap();
    refused(map.get(&int(1)), ERROR, "no such table: other.m");
    db.execute(&attach).unwrap();
    assert_eq!(map.get(&int(1)).unwrap(), Some("other".into()));
}

#[test]
fn a_select_in_the_middle_goes_on() {
    let Some((_fixture, db)) =
        with("CREATE TABLE m(k INTEGER PRIMARY KEY, v); INSERT INTO m VALUES(1,1),(5,5)")
    else {
        return;
    };
    let map = db.open_map("m", 0).unwrap();
    let mut select = db.prepare("SELECT k, v FROM m ORDER BY k").unwrap();
    assert_eq!(select.step().unwrap(), Step::Row);
    map.put(&int(3), &int(3)).unwrap();
    map.put(&int(1), &int(9)).unwrap();
    map.delete(&int(5)).unwrap();
    assert_eq!(select.step().unwrap(), Step::Row);
    assert_eq!(select.row(), [int(3), int(3)]);
    assert_eq!(map.batch(&[Item::Add(int(3), 1), Item::Put(int(4), int(4))]).unwrap(), None);
    assert_eq!(select.step().unwrap(), Step::Row);
    assert_eq!(select.row(), [int(4), int(4)]);
    assert_eq!(select.step().unwrap(), Step::Done);
    assert_eq!(db.integer("SELECT sum(v) FROM m").unwrap(), 9 + 4 + 4);
}

#[test]
fn the_tables_of_a_virtual_table_are_its_own_in_defensive_mode() {
    let Some((_fixture, db)) = with("CREATE VIRTUAL TABLE f USING fts5(a)") else { return };
    db.open_map("f_config", 0).unwrap();
    db.defensive().unwrap();
    refused(db.open_map("f_config", 0), ERROR, "SQLite's own");
    db.open_map("f_config", create::READONLY).unwrap();
}

#[test]
fn a_map_of_a_table_that_was_rolled_back_says_so() {
    let Some((_fixture, db)) = with("CREATE TABLE other(k INTEGER PRIMARY KEY, v)") else { return };
    db.execute("BEGIN").unwrap();
    let map = db.open_map("m", create::INTEGER).unwrap();
    map.put(&int(1), &int(1)).unwrap();
    db.execute(
        "ROLLBACK; CREATE TABLE takes_its_page(a); INSERT INTO takes_its_page VALUES('untouched')",
    )
    .unwrap();
    refused(map.put(&int(2), &int(2)), ERROR, "no such table");
    refused(map.get(&int(1)), ERROR, "no such table");
    assert_eq!(db.text("SELECT a FROM takes_its_page").unwrap(), "untouched");
}

#[test]
fn hooks_changes_and_rowids_are_those_of_sql() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE r(k INTEGER PRIMARY KEY, v); CREATE TABLE i(k TEXT PRIMARY KEY, v);
         CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID",
    ) else {
        return;
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let commits = Arc::new(Mutex::new(0));
    {
        let (seen, commits) = (seen.clone(), commits.clone());
        db.update_hook(move |change| {
            seen.lock().unwrap().push((change.kind, change.table, change.rowid))
        });
        db.commit_hook(move || {
            *commits.lock().unwrap() += 1;
            true
        });
    }
    let (r, i, w) =
        (db.open_map("r", 0).unwrap(), db.open_map("i", 0).unwrap(), db.open_map("w", 0).unwrap());
    let start = db.total_changes();
    r.put(&int(41), &int(1)).unwrap();
    assert_eq!((db.changes(), db.last_insert_rowid()), (1, 41));
    r.put(&int(41), &int(2)).unwrap();
    i.put(&"a".into(), &int(1)).unwrap();
    assert_eq!(db.last_insert_rowid(), 1);
    i.put(&"b".into(), &int(1)).unwrap();
    assert_eq!(db.last_insert_rowid(), 2);
    i.put(&"a".into(), &int(1)).unwrap();
    assert_eq!(db.last_insert_rowid(), 2);
    w.put(&"a".into(), &int(1)).unwrap();
    assert_eq!(db.total_changes() - start, 6);
    assert!(!r.update(&int(5), &int(1)).unwrap());
    assert_eq!(db.changes(), 0);
    assert_eq!(i.delete_range(&Range::ALL).unwrap(), 2);
    assert_eq!((db.changes(), db.total_changes() - start), (2, 8));
    r.delete(&int(41)).unwrap();
    let want = [
        (ChangeKind::Insert, "r", 41),
        (ChangeKind::Update, "r", 41),
        (ChangeKind::Insert, "i", 1),
        (ChangeKind::Insert, "i", 2),
        (ChangeKind::Update, "i", 1),
        (ChangeKind::Delete, "i", 1),
        (ChangeKind::Delete, "i", 2),
        (ChangeKind::Delete, "r", 41),
    ];
    let want: Vec<_> =
        want.iter().map(|(kind, table, rowid)| (*kind, (*table).to_owned(), *rowid)).collect();
    assert_eq!(*seen.lock().unwrap(), want);
    assert!(*commits.lock().unwrap() >= 8);
    db.commit_hook(|| false);
    assert!(r.put(&int(1), &int(1)).is_err(), "the hook has refused it");
    db.commit_hook(|| true);
    assert_eq!(r.get(&int(1)).unwrap(), None);
}

#[test]
fn a_session_records_what_a_map_writes() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE m(k TEXT PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO m VALUES('gone', 1), ('changed', 1)",
    ) else {
        return;
    };
    let Some((_second, copy)) = with(
        "CREATE TABLE m(k TEXT PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO m VALUES('gone', 1), ('changed', 1)",
    ) else {
        return;
    };
    let session = Session::start(&db).unwrap();
    let map = db.open_map("m", 0).unwrap();
    map.put(&"new".into(), &bytes(b"1")).unwrap();
    map.add(&"changed".into(), 4).unwrap();
    map.delete(&"gone".into()).unwrap();
    copy.apply(&session.changeset().unwrap()).unwrap();
    let rows = "SELECT k, v FROM m ORDER BY k";
    assert_eq!(copy.query(rows).unwrap(), db.query(rows).unwrap());
    assert_eq!(copy.query(rows).unwrap().len(), 2);
}

#[test]
fn the_authorizer_is_asked_when_a_map_opens() {
    let Some((_fixture, db)) = with("CREATE TABLE m(k INTEGER PRIMARY KEY, v)") else { return };
    let map = db.open_map("m", 0).unwrap();
    for (denied, readonly_too) in [(18, false), (23, false), (9, false), (20, true), (21, true)] {
        for answer in [1, 2] {
            db.authorizer(move |action, _| if action == denied { answer } else { 0 }).unwrap();
            assert_eq!(map.get(&int(1)).map_err(|e| e.code), Err(AUTH), "action {denied}");
            assert_eq!(db.open_map("m", 0).map(drop).map_err(|e| e.code), Err(AUTH));
            let readonly = db.open_map("m", create::READONLY).map(drop).map_err(|e| e.code);
            assert_eq!(readonly.is_err(), readonly_too, "action {denied}");
        }
    }
    db.authorizer(|_, _| 0).unwrap();
    map.put(&int(1), &int(2)).unwrap();
    assert_eq!(map.get(&int(1)).unwrap(), Some(int(2)));
}

#[test]
fn what_sql_would_refuse_is_refused_with_its_text() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE n(k INTEGER PRIMARY KEY, v NOT NULL); CREATE TABLE c(k INTEGER PRIMARY KEY, v CHECK(v<>7));
         CREATE TABLE u(k INTEGER PRIMARY KEY, v UNIQUE); CREATE TABLE s(k TEXT PRIMARY KEY, v INTEGER) STRICT;
         CREATE TABLE p(k INTEGER PRIMARY KEY, v); INSERT INTO p VALUES(1, 1);
         CREATE TABLE f(k INTEGER PRIMARY KEY, v REFERENCES p(k));
         CREATE TABLE t(k INTEGER PRIMARY KEY, v);
         CREATE TRIGGER t_i BEFORE UPDATE ON t WHEN new.v=7 BEGIN SELECT raise(ABORT, 'not seven'); END",
    ) else {
        return;
    };
    db.execute("PRAGMA foreign_keys=1").unwrap();
    let open = |name: &str| -> Map { db.open_map(name, 0).unwrap() };
    let (c, u, f, t) = (open("c"), open("u"), open("f"), open("t"));
    refused(open("n").put(&int(1), &Value::Null), CONSTRAINT, "NOT NULL constraint failed: n.v");
    refused(c.put(&int(1), &int(7)), CONSTRAINT, "CHECK constraint failed");
    u.put(&int(1), &int(1)).unwrap();
    refused(u.put(&int(2), &int(1)), CONSTRAINT, "UNIQUE constraint failed: u.v");
    refused(open("s").put(&"k".into(), &"x".into()), CONSTRAINT, "cannot store TEXT value");
    f.put(&int(1), &int(1)).unwrap();
    refused(f.put(&int(2), &int(9)), CONSTRAINT, "FOREIGN KEY constraint failed");
    refused(open("p").delete(&int(1)), CONSTRAINT, "FOREIGN KEY constraint failed");
    t.put(&int(1), &int(6)).unwrap();
    refused(t.add(&int(1), 1), CONSTRAINT, "not seven");
    assert_eq!(t.get(&int(1)).unwrap(), Some(int(6)));
    let items = [Item::Put(int(5), int(5)), Item::Put(int(6), int(7)), Item::Put(int(7), int(8))];
    refused(c.batch(&items), CONSTRAINT, "CHECK constraint failed");
    assert_eq!(c.count(&Range::ALL).unwrap(), 0);
    db.execute("BEGIN").unwrap();
    c.put(&int(1), &int(1)).unwrap();
    refused(c.batch(&items), CONSTRAINT, "CHECK constraint failed");
    db.execute("COMMIT").unwrap();
    assert_eq!(db.query("SELECT k FROM c").unwrap(), [[int(1)]]);
}

// holds KV-5
#[test]
fn a_delete_that_brings_rows_back_by_a_trigger_ends() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE m(k TEXT PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO m VALUES('a',1),('b',1),('c',1);
         CREATE TRIGGER m_d AFTER DELETE ON m BEGIN INSERT INTO m VALUES(old.k, old.v+1); END",
    ) else {
        return;
    };
    let map = db.open_map("m", 0).unwrap();
    assert_eq!(map.delete_range(&Range::ALL).unwrap(), 3);
    assert_eq!(db.integer("SELECT sum(v) FROM m").unwrap(), 6);
}

#[test]
fn readers_may_not_write() {
    let Some((fixture, db)) =
        with("CREATE TABLE m(k INTEGER PRIMARY KEY, v); INSERT INTO m VALUES(1,1)")
    else {
        return;
    };
    let map = db.open_map("m", create::READONLY).unwrap();
    refused(map.put(&int(1), &int(2)), READONLY, "PLAIT_MAP_READONLY");
    refused(map.delete(&int(1)), READONLY, "PLAIT_MAP_READONLY");
    assert_eq!(map.get(&int(1)).unwrap(), Some(int(1)));
    let reader =
        fixture.subject.library().open_with(fixture.database(), OpenFlags::ReadOnly).unwrap();
    let map = reader.open_map("m", 0).unwrap();
    assert_eq!(map.get(&int(1)).unwrap(), Some(int(1)));
    refused(map.put(&int(1), &int(2)), READONLY, "readonly");
    db.execute("PRAGMA query_only=1").unwrap();
    refused(db.open_map("m", 0).unwrap().put(&int(1), &int(2)), READONLY, "readonly");
}

#[test]
fn values_that_are_too_long_are_refused_and_the_longest_are_not() {
    let Some((_fixture, db)) = with(
        "CREATE TABLE r(k INTEGER PRIMARY KEY, v); CREATE TABLE i(k BLOB PRIMARY KEY, v);
         CREATE TABLE w(k BLOB PRIMARY KEY, v) WITHOUT ROWID",
    ) else {
        return;
    };
    db.limit_length(100_000);
    for (table, key) in [("r", int(1)), ("i", bytes(b"k")), ("w", bytes(b"k"))] {
        let map = db.open_map(table, 0).unwrap();
        map.put(&key, &bytes(&[1; 99_000])).unwrap();
        refused(map.put(&key, &bytes(&[1; 100_001])), TOOBIG, "too big");
        refused(map.append(&key, &bytes(&[1; 2000])), TOOBIG, "too big");
        assert_eq!(map.get(&key).unwrap(), Some(bytes(&[1; 99_000])));
        if table != "r" {
            refused(map.put(&bytes(&[1; 99_990]), &bytes(&[1; 99])), TOOBIG, "too big");
            refused(map.get(&bytes(&[1; 100_001])), TOOBIG, "too big");
        }
        assert_eq!(map.count(&Range::ALL).unwrap(), 1, "{table}");
    }
    assert_eq!(db.text("PRAGMA integrity_check").unwrap(), "ok");
}

// holds KV-2
#[test]
fn a_connection_with_open_maps_is_busy_at_close() {
    let Some((_fixture, db)) = with("CREATE TABLE m(k INTEGER PRIMARY KEY, v)") else { return };
    let map = db.open_map("m", 0).unwrap();
    assert_eq!(db.refused_close(), BUSY);
    db.execute("DROP TABLE m").unwrap();
    assert!(map.get(&int(1)).is_err());
    assert_eq!(db.refused_close(), BUSY, "also when its table is gone");
    db.execute("CREATE TABLE m(k INTEGER PRIMARY KEY, v)").unwrap();
    let cursor = map.cursor(&Range::ALL).unwrap();
    drop(map);
    assert_eq!(db.refused_close(), BUSY, "and for a cursor alone");
    drop(cursor);
    db.close().unwrap();
}

#[test]
fn a_prefix_is_text_or_bytes_and_a_map_is_created_in_one_way() {
    let Some((_fixture, db)) = with("CREATE TABLE m(k PRIMARY KEY, v)") else { return };
    let map = db.open_map("m", 0).unwrap();
    refused(map.count(&Range::Prefix(int(1))), MISUSE, "bad argument");
    assert_eq!(map.count(&Range::Prefix(bytes(&[1]))).unwrap(), 0);
    let error = db.open_map("new", create::BYTES | create::TEXT).err().expect("two kinds of key");
    assert_eq!(error.code, MISUSE, "{error}");
    assert_eq!(db.integer("SELECT count(*) FROM sqlite_schema WHERE name='new'"), Ok(0));
}

#[test]
fn a_full_database_loses_nothing() {
    let Some(subject) = real_plait("maps") else { return };
    for mode in ["delete", "wal"] {
        let folder = tempfile::tempdir().unwrap();
        let db = subject.library().open(folder.path().join("m.db")).unwrap();
        db.execute(&format!("PRAGMA journal_mode={mode}; PRAGMA max_page_count=60")).unwrap();
        let map = db.open_map("m", create::BYTES).unwrap();
        let mut stored = 0;
        let error = loop {
            match map.put(&bytes(&[u8::try_from(stored).unwrap()]), &bytes(&[3; 20_000])) {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.code, FULL, "{error}");
        assert!(stored > 5);
        assert_eq!(map.count(&Range::ALL).unwrap(), stored);
        assert!(db.autocommit());
        map.put(&bytes(&[0]), &bytes(b"small")).unwrap();
        assert_eq!(db.text("PRAGMA integrity_check").unwrap(), "ok");
    }
}

#[test]
fn a_damaged_page_is_corruption() {
    let Some(subject) = real_plait("maps") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.db");
    let db = subject.library().open(&path).unwrap();
    db.execute("PRAGMA page_size=1024").unwrap();
    let map = db.open_map("m", create::BYTES).unwrap();
    for n in 0..200_u8 {
        map.put(&bytes(&[n]), &bytes(&[n; 100])).unwrap();
    }
    drop(map);
    db.close().unwrap();
    let mut file = std::fs::read(&path).unwrap();
    for page in file.chunks_mut(1024).skip(2) {
        page[8..900].fill(0xee);
    }
    std::fs::write(&path, file).unwrap();
    let db = subject.library().open(&path).unwrap();
    let map = db.open_map("m", 0).unwrap();
    for n in [0, 77, 199_u8] {
        let outcome = map.get(&bytes(&[n]));
        assert!(matches!(&outcome, Err(error) if error.code == CORRUPT), "{outcome:?}");
    }
    assert_eq!(map.count(&Range::ALL).map_err(|error| error.code), Err(CORRUPT));
}

#[test]
fn a_call_waits_as_long_as_the_busy_timeout_says() {
    for subject in [real_plait("maps"), real_plait("maps").map(|_| Subject::plait_in_wal_mode())] {
        let Some(subject) = subject else { return };
        let fixture = Fixture::new(subject, "CREATE TABLE m(k INTEGER PRIMARY KEY, v)");
        let (db, other) = (fixture.open(), fixture.open());
        let map = db.open_map("m", 0).unwrap();
        other.execute("BEGIN IMMEDIATE; INSERT INTO m VALUES(1, 10)").unwrap();
        db.busy_timeout(Duration::from_millis(30)).unwrap();
        refused(map.add(&int(1), 1), BUSY, "database is locked");
        assert_eq!(map.get(&int(1)).unwrap(), None);
        db.busy_timeout(Duration::from_secs(60)).unwrap();
        std::thread::scope(|scope| {
            let adding = scope.spawn(move || map.add(&int(1), 1).unwrap());
            std::thread::sleep(Duration::from_millis(100));
            other.execute("COMMIT").unwrap();
            assert_eq!(adding.join().unwrap(), 11);
        });
    }
}

#[test]
fn in_a_transaction_it_conflicts_as_sql_does() {
    let Some((fixture, db)) = with(
        "CREATE TABLE m(k INTEGER PRIMARY KEY, v); INSERT INTO m VALUES(1, 1), (2, 2), (10, 3)",
    ) else {
        return;
    };
    let other = fixture.open();
    let (ours, theirs) = (db.open_map("m", 0).unwrap(), other.open_map("m", 0).unwrap());
    type Read<'a> = &'a dyn Fn(&Map) -> Result<()>;
    let between = |lo, hi| Range::Between(lo, hi);
    let reads: [(&str, Read<'_>, bool); 6] = [
        ("the key itself", &|map| map.get(&int(2)).map(drop), true),
        ("another", &|map| map.get(&int(1)).map(drop), false),
        (
            "its range",
            &|map| map.count(&between(Bound::None, Bound::Open(int(5)))).map(|_| ()),
            true,
        ),
        (
            "a range beside it",
            &|map| map.count(&between(Bound::Closed(int(3)), Bound::None)).map(|_| ()),
            false,
        ),
        (
            "a cursor over it",
            &|map| map.cursor(&Range::ALL)?.seek(&int(1), Near::Above).map(drop),
            true,
        ),
        ("the last", &|map| map.end(&Range::ALL, true).map(drop), false),
    ];
    for (what, read, conflicts) in reads {
        db.execute("BEGIN CONCURRENT").unwrap();
        read(&ours).unwrap();
        ours.put(&int(1000), &int(1)).unwrap();
        theirs.add(&int(2), 1).unwrap();
        let outcome = db.execute("COMMIT");
        if conflicts {
            assert!(
                matches!(&outcome, Err(error) if error.extended == BUSY_SNAPSHOT),
                "{what}: {outcome:?}"
            );
            db.execute("ROLLBACK").unwrap();
        } else {
            outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        theirs.delete(&int(1000)).unwrap();
    }
}

#[test]
fn a_cursor_is_an_open_select() {
    let Some((fixture, db)) = with(
        "CREATE TABLE m(k INTEGER PRIMARY KEY, v); INSERT INTO m VALUES(1,1),(2,2),(3,3); CREATE TABLE x(a)",
    ) else {
        return;
    };
    let map = db.open_map("m", 0).unwrap();
    let mut cursor = map.cursor(&Range::ALL).unwrap();
    assert_eq!(cursor.next().unwrap(), Some((int(1), int(1))));
    fixture.open().execute("DELETE FROM m").unwrap();
    assert_eq!(cursor.next().unwrap(), Some((int(2), int(2))), "it has its snapshot");
    drop(cursor);
    assert_eq!(map.count(&Range::ALL).unwrap(), 0);
    let mut cursor = map.cursor(&Range::ALL).unwrap();
    assert_eq!(cursor.next().unwrap(), None);
    refused(db.execute("DROP TABLE m"), LOCKED, "locked");
    drop(cursor);
    db.execute("INSERT INTO m VALUES(1,1),(2,2),(3,3); BEGIN; CREATE TABLE y(a)").unwrap();
    let mut cursor = map.cursor(&Range::ALL).unwrap();
    assert_eq!(cursor.next().unwrap(), Some((int(1), int(1))));
    db.execute("ROLLBACK").unwrap();
    for _ in 0..2 {
        refused(cursor.next(), ABORT, "");
    }
    assert_eq!(cursor.first().unwrap(), Some((int(1), int(1))), "and begins anew");
    db.execute("BEGIN; UPDATE m SET v=v+1; COMMIT").unwrap();
    assert_eq!(cursor.next().unwrap(), Some((int(2), int(3))), "COMMIT works beside it");
}

#[test]
fn wrong_types_are_told() {
    let Some((_fixture, db)) = with("CREATE TABLE m(k INTEGER PRIMARY KEY, v)") else { return };
    let map = db.open_map("m", 0).unwrap();
    assert_eq!(map.get(&"no number".into()).unwrap(), None);
    assert!(!map.delete(&bytes(b"x")).unwrap());
    refused(map.put(&"no number".into(), &int(1)), MISMATCH, "integers");
    refused(map.put(&bytes(b"1"), &int(1)), MISMATCH, "integers");
    map.put(&"1".into(), &"text".into()).unwrap();
    refused(map.add(&int(1), 1), MISMATCH, "not an integer");
    refused(map.append(&int(1), &bytes(b"x")), MISMATCH, "not bytes");
    assert_eq!(map.append(&int(1), &"!".into()).unwrap(), 5);
    map.put(&int(2), &int(i64::MAX)).unwrap();
    refused(map.add(&int(2), 1), ERROR, "integer overflow");
    assert_eq!(map.add(&int(2), -1).unwrap(), i64::MAX - 1);
}

#[test]
fn a_row_that_a_trigger_or_a_conflict_clause_has_left_alone_is_not_said_to_be_written() {
    let kept = "BEGIN SELECT RAISE(IGNORE); END";
    let sql = format!(
        "CREATE TABLE m(k INTEGER PRIMARY KEY, v); INSERT INTO m VALUES(1, 1), (2, 2);
         CREATE TRIGGER i BEFORE INSERT ON m {kept}; CREATE TRIGGER u BEFORE UPDATE ON m {kept};
         CREATE TRIGGER d BEFORE DELETE ON m {kept};
         CREATE TABLE u(k TEXT PRIMARY KEY, v UNIQUE ON CONFLICT IGNORE); INSERT INTO u VALUES('a', 1)"
    );
    let Some((_fixture, db)) = with(&sql) else { return };
    let map = db.open_map("m", 0).unwrap();
    assert_eq!(map.insert(&int(3), &int(3)), Ok(false));
    assert_eq!(map.update(&int(1), &int(5)), Ok(false));
    assert_eq!(map.delete(&int(1)), Ok(false));
    assert_eq!(map.swap(&int(1), Some(&int(1)), Some(&int(2))), Ok(false));
    assert_eq!(map.delete_range(&Range::Between(Bound::None, Bound::None)), Ok(0));
    refused(map.add(&int(1), 1), CONSTRAINT, "has left the row as it was");
    map.put(&int(1), &int(7)).expect("as in SQL");
    assert_eq!(db.integer("SELECT sum(v) FROM m"), Ok(3));
    let unique = db.open_map("u", 0).unwrap();
    assert_eq!(unique.insert(&"b".into(), &int(1)), Ok(false));
    assert_eq!(unique.insert(&"b".into(), &int(2)), Ok(true));
    assert_eq!(unique.update(&"b".into(), &int(1)), Ok(false));
    assert_eq!(db.integer("SELECT sum(v) FROM u"), Ok(3));
}

#[test]
fn the_least_integer_is_found_as_a_real_too() {
    let Some((_fixture, db)) = with("CREATE TABLE m(k INTEGER PRIMARY KEY, v)") else { return };
    let map = db.open_map("m", 0).unwrap();
    let least = Value::Real(-9_223_372_036_854_775_808.0);
    assert_eq!(map.insert(&least, &int(1)), Ok(true));
    assert_eq!(db.integer("SELECT k FROM m WHERE k=-9223372036854775808.0"), Ok(i64::MIN));
    assert_eq!(map.get(&int(i64::MIN)), Ok(Some(int(1))));
    map.put(&least, &int(2)).expect("it is there");
    assert_eq!(map.get(&least), Ok(Some(int(2))));
    assert_eq!(map.delete(&least), Ok(true));
}

//! Random operations of the key-value API, mixed with SQL on the same table and in the same transactions: equal to an
//! ordered map.
//!
//! Every form of table, in every journal mode, in memory, in a temporary and an attached database; merged, half merged and not
//! merged. Open cursors are moved while rows come and go.

use plait_tests::planted::must_be_reported;
use plait_tests::sqlite::{Bound, Connection, Item, Map, MapCursor, Near, Range, create};
use plait_tests::subject::{Subject, real_plait};
use plait_tests::value::Value;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use std::ops::Bound as Std;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Integer,
    Text,
    Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Integer(i64),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
}

impl Key {
    fn value(&self) -> Value {
        match self {
            Self::Integer(value) => Value::Integer(*value),
            Self::Text(text) => Value::Text(text.clone()),
            Self::Bytes(bytes) => Value::Blob(bytes.clone()),
        }
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Integer(value) => Self::Integer(*value),
            Value::Text(text) => Self::Text(text.clone()),
            Value::Blob(bytes) => Self::Bytes(bytes.clone()),
            other => panic!("{other:?} is no key of these tables"),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Integer(_) => &[],
            Self::Text(bytes) | Self::Bytes(bytes) => bytes,
        }
    }
}

type Model = BTreeMap<Key, Value>;

/// Name, schema (the table is `m`), kind of key.
const FORMS: &[(&str, &str, Kind)] = &[
    ("rowids", "CREATE TABLE m(k INTEGER PRIMARY KEY, v)", Kind::Integer),
    ("rowids, value first", "CREATE TABLE m(v, k INTEGER PRIMARY KEY)", Kind::Integer),
    ("keyed", "CREATE TABLE m(k BLOB PRIMARY KEY, v) WITHOUT ROWID", Kind::Bytes),
    ("keyed, value first", "CREATE TABLE m(v, k TEXT PRIMARY KEY) WITHOUT ROWID", Kind::Text),
    ("keyed by integers", "CREATE TABLE m(k INTEGER PRIMARY KEY, v) WITHOUT ROWID", Kind::Integer),
    (
        "keyed, descending",
        "CREATE TABLE m(k BLOB, v, PRIMARY KEY(k DESC)) WITHOUT ROWID",
        Kind::Bytes,
    ),
    ("indexed", "CREATE TABLE m(k BLOB PRIMARY KEY, v)", Kind::Bytes),
    ("indexed, value first", "CREATE TABLE m(v, k TEXT PRIMARY KEY NOT NULL)", Kind::Text),
    ("indexed, descending", "CREATE TABLE m(k TEXT, v, PRIMARY KEY(k DESC))", Kind::Text),
    (
        "second index",
        "CREATE TABLE m(k INTEGER PRIMARY KEY, v); CREATE INDEX m_v ON m(v)",
        Kind::Integer,
    ),
    (
        "keyed, second index",
        "CREATE TABLE m(k BLOB PRIMARY KEY, v) WITHOUT ROWID; CREATE INDEX m_v ON m(v)",
        Kind::Bytes,
    ),
    (
        "triggers",
        "CREATE TABLE m(k TEXT PRIMARY KEY, v); CREATE TABLE log(what, k);
         CREATE TRIGGER m_i AFTER INSERT ON m BEGIN INSERT INTO log VALUES('insert', new.k); END;
         CREATE TRIGGER m_u AFTER UPDATE ON m BEGIN INSERT INTO log VALUES('update', new.k); END;
         CREATE TRIGGER m_d AFTER DELETE ON m BEGIN INSERT INTO log VALUES('delete', old.k); END",
        Kind::Text,
    ),
    ("strict", "CREATE TABLE m(k BLOB PRIMARY KEY, v ANY) STRICT", Kind::Bytes),
    (
        "generated",
        "CREATE TABLE m(g AS (typeof(v)) STORED, k TEXT PRIMARY KEY, v, h AS (1))",
        Kind::Text,
    ),
    ("checked", "CREATE TABLE m(k INTEGER PRIMARY KEY, v CHECK(v IS NOT 'never'))", Kind::Integer),
];

struct Run {
    rng: SmallRng,
    db: Connection,
    map: Map,
    /// Schema-qualified name of the table.
    table: String,
    kind: Kind,
    model: Model,
    /// States to go back to: the transaction's begin, then savepoints.
    stack: Vec<Model>,
    cursors: Vec<(MapCursor, Option<Key>)>,
    concurrent: bool,
    told: Vec<String>,
}

impl Run {
    fn key(&mut self) -> Key {
        let n = self.rng.random_range(0..60);
        match self.kind {
            Kind::Integer => Key::Integer(match n {
                0 => i64::MIN,
                1 => i64::MAX,
                2 => -1,
                n => n * 7,
            }),
            Kind::Text => Key::Text(match n {
                0 => Vec::new(),
                1 => "ü".repeat(700).into_bytes(),
                n => format!("k{}", n * n % 97).into_bytes(),
            }),
            Kind::Bytes => Key::Bytes(match n {
                0 => Vec::new(),
                1 => vec![0xff; 3],
                2 => vec![0xff; 900],
                n => vec![
                    u8::try_from(n % 5).expect("small"),
                    0,
                    u8::try_from(n).expect("small"),
                    0xff,
                ],
            }),
        }
    }

    fn value(&mut self) -> Value {
        match self.rng.random_range(0..10) {
            0 => Value::Null,
            1 => Value::Real(self.rng.random_range(-9..9) as f64 / 4.0),
            2 => Value::Text(vec![b'x'; self.rng.random_range(0..4000)]),
            3 => Value::Blob(vec![7; self.rng.random_range(0..9000)]),
            4 => Value::from("text"),
            5 | 6 => Value::Integer(self.rng.random_range(-300..300)),
            7 => Value::Integer(self.rng.random()),
            _ => Value::Blob(vec![1; 100]),
        }
    }

    fn bound(&mut self) -> Bound {
        match self.rng.random_range(0..3) {
            0 => Bound::None,
            1 => Bound::Closed(self.key().value()),
            _ => Bound::Open(self.key().value()),
        }
    }

    fn range(&mut self) -> Range {
        if self.kind != Kind::Integer && self.rng.random_ratio(1, 4) {
            let key = self.key();
            let some = key.bytes().len().min(self.rng.random_range(0..3));
            let prefix = key.bytes()[..some].to_vec();
            return Range::Prefix(match self.kind {
                Kind::Text if std::str::from_utf8(&prefix).is_err() => Value::from(""),
                Kind::Text => Value::Text(prefix),
                _ => Value::Blob(prefix),
            });
        }
        Range::Between(self.bound(), self.bound())
    }

    fn within(range: &Range, key: &Key) -> bool {
        match range {
            Range::Prefix(prefix) => key.bytes().starts_with(Key::of(prefix).bytes()),
            Range::Between(lo, hi) => {
                (match lo {
                    Bound::None => true,
                    Bound::Closed(lo) => *key >= Key::of(lo),
                    Bound::Open(lo) => *key > Key::of(lo),
                }) && match hi {
                    Bound::None => true,
                    Bound::Closed(hi) => *key <= Key::of(hi),
                    Bound::Open(hi) => *key < Key::of(hi),
                }
            }
        }
    }

    fn matching(&self, range: &Range) -> Vec<Key> {
        self.model.keys().filter(|key| Self::within(range, key)).cloned().collect()
    }

    fn note(&mut self, what: String) {
        self.told.push(what.chars().take(160).collect());
    }

    fn read(&mut self) {
        let key = self.key();
        match self.rng.random_range(0..6) {
            0 => {
                assert_eq!(self.map.contains(&key.value()).unwrap(), self.model.contains_key(&key))
            }
            1 => {
                let keys: Vec<Key> = (0..self.rng.random_range(0..8)).map(|_| self.key()).collect();
                let asked: Vec<Value> = keys.iter().map(Key::value).collect();
                let want: Vec<Option<Value>> =
                    keys.iter().map(|key| self.model.get(key).cloned()).collect();
                assert_eq!(self.map.get_many(&asked).unwrap(), want);
            }
            2 => {
                let range = self.range();
                self.note(format!("count {range:?}"));
                let want = self.matching(&range).len();
                assert_eq!(self.map.count(&range).unwrap(), i64::try_from(want).unwrap());
            }
            3 => {
                let (range, backward) = (self.range(), self.rng.random());
                self.note(format!("end {range:?} {backward}"));
                let keys = self.matching(&range);
                let want = if backward { keys.last() } else { keys.first() };
                let (key, value) = self.map.end(&range, backward).unwrap();
                assert_eq!(key, want.map(Key::value));
                assert_eq!(value, want.map(|key| self.model[key].clone()));
            }
            4 => self.walk(),
            _ => assert_eq!(self.map.get(&key.value()).unwrap(), self.model.get(&key).cloned()),
        }
    }

    /// A whole range, there and back.
    fn walk(&mut self) {
        let range = self.range();
        self.note(format!("walk {range:?}"));
        let keys = self.matching(&range);
        let want: Vec<(Value, Value)> =
            keys.iter().map(|key| (key.value(), self.model[key].clone())).collect();
        let mut cursor = self.map.cursor(&range).unwrap();
        let mut found = Vec::new();
        while let Some(row) = cursor.next().unwrap() {
            found.push(row);
        }
        assert_eq!(found, want);
        assert_eq!(cursor.next().unwrap(), None, "it stays behind the end");
        let mut back = Vec::new();
        while let Some(row) = cursor.prev().unwrap() {
            back.push(row);
        }
        back.reverse();
        assert_eq!(back, want);
        let target = self.key();
        for near in [Near::Equal, Near::AtLeast, Near::Above, Near::AtMost, Near::Below] {
            let found = cursor.seek(&target.value(), near).unwrap().map(|(key, _)| Key::of(&key));
            let want = match near {
                Near::Equal => keys.iter().find(|key| **key == target),
                Near::AtLeast => keys.iter().find(|key| **key >= target),
                Near::Above => keys.iter().find(|key| **key > target),
                Near::AtMost => keys.iter().rev().find(|key| **key <= target),
                Near::Below => keys.iter().rev().find(|key| **key < target),
            };
            assert_eq!(found.as_ref(), want, "{near:?} {target:?} in {range:?}");
        }
    }

    fn write(&mut self) {
        let (key, value) = (self.key(), self.value());
        let (at, before) = (key.value(), self.model.get(&key).cloned());
        let what = self.rng.random_range(0..11);
        self.note(format!("write {what} {key:?} {value:?}"));
        match what {
            0 => {
                assert_eq!(self.map.insert(&at, &value).unwrap(), before.is_none());
                self.model.entry(key).or_insert(value);
            }
            1 => {
                assert_eq!(self.map.update(&at, &value).unwrap(), before.is_some());
                if before.is_some() {
                    self.model.insert(key, value);
                }
            }
            2 => {
                let before_changes = self.db.total_changes();
                assert_eq!(self.map.delete(&at).unwrap(), before.is_some());
                if before.is_some() {
                    assert_eq!(self.db.changes(), 1);
                    assert!(self.db.total_changes() > before_changes);
                }
                self.model.remove(&key);
            }
            3 => self.swap(key, value),
            4 => self.add(key),
            5 => {
                let tail = Value::Blob(vec![9; 30]);
                match before {
                    Some(Value::Blob(mut bytes)) => {
                        bytes.extend([9; 30]);
                        let size = self.map.append(&at, &tail).unwrap();
                        assert_eq!(size, i64::try_from(bytes.len()).unwrap());
                        self.model.insert(key, Value::Blob(bytes));
                    }
                    Some(_) => assert_eq!(self.map.append(&at, &tail).unwrap_err().code, 20),
                    None => {
                        assert_eq!(self.map.append(&at, &tail).unwrap(), 30);
                        self.model.insert(key, tail);
                    }
                }
            }
            6 => self.batch(),
            7 => self.sql(key, value),
            _ => {
                self.map.put(&at, &value).unwrap();
                assert_eq!(self.db.changes(), 1);
                self.model.insert(key, value);
            }
        }
    }

    fn swap(&mut self, key: Key, value: Value) {
        let before = self.model.get(&key).cloned();
        let expected = match self.rng.random_range(0..3) {
            0 => Some(self.value()),
            1 => None,
            _ => before.clone(),
        };
        let value = self.rng.random_ratio(3, 4).then_some(value);
        let done = self.map.swap(&key.value(), expected.as_ref(), value.as_ref()).unwrap();
        assert_eq!(done, expected == before, "{before:?} against {expected:?}");
        if done {
            match value {
                Some(value) => self.model.insert(key, value),
                None => self.model.remove(&key),
            };
        }
    }

    fn add(&mut self, key: Key) {
        let delta = self.rng.random_range(-9..9);
        let outcome = self.map.add(&key.value(), delta);
        match self.model.get(&key).cloned() {
            None => {
                assert_eq!(outcome.unwrap(), delta);
                self.model.insert(key, Value::Integer(delta));
            }
            Some(Value::Integer(before)) => match before.checked_add(delta) {
                Some(sum) => {
                    assert_eq!(outcome.unwrap(), sum);
                    self.model.insert(key, Value::Integer(sum));
                }
                None => assert_eq!(outcome.unwrap_err().message, "integer overflow"),
            },
            Some(_) => assert_eq!(outcome.unwrap_err().code, 20),
        }
    }

    fn batch(&mut self) {
        let mut items = Vec::new();
        let mut after = self.model.clone();
        let mut failed = None;
        for index in 0..self.rng.random_range(0..12) {
            let (key, value) = (self.key(), self.value());
            match self.rng.random_range(0..6) {
                0 if failed.is_none() => {
                    let expected = match self.rng.random_range(0..8) {
                        0 => Some(value),
                        _ => self.model.get(&key).cloned(),
                    };
                    if expected != self.model.get(&key).cloned() {
                        failed = Some(index);
                    }
                    items.push(Item::Expect(key.value(), expected));
                }
                1 => {
                    items.push(Item::Delete(key.value()));
                    after.remove(&key);
                }
                2 if matches!(after.get(&key), None | Some(Value::Integer(-400..400))) => {
                    items.push(Item::Add(key.value(), 5));
                    let before = after.get(&key).and_then(Value::as_i64).unwrap_or(0);
                    after.insert(key, Value::Integer(before + 5));
                }
                _ => {
                    items.push(Item::Put(key.value(), value.clone()));
                    after.insert(key, value);
                }
            }
        }
        assert_eq!(self.map.batch(&items).unwrap(), failed);
        if failed.is_none() {
            self.model = after;
        }
    }

    fn sql(&mut self, key: Key, value: Value) {
        let table = &self.table;
        match self.rng.random_range(0..4) {
            0 => {
                let delete = format!("DELETE FROM {table} WHERE k=?1");
                self.db.query_with(&delete, &[key.value()]).unwrap();
                self.model.remove(&key);
            }
            1 => {
                let select = format!("SELECT v FROM {table} WHERE k=?1");
                let rows = self.db.query_with(&select, &[key.value()]).unwrap();
                let want: Vec<Vec<Value>> =
                    self.model.get(&key).cloned().map(|v| vec![v]).into_iter().collect();
                assert_eq!(rows, want);
            }
            _ => {
                let put = format!(
                    "INSERT INTO {table}(k,v) VALUES(?1,?2) ON CONFLICT(k) DO UPDATE SET v=excluded.v"
                );
                self.db.query_with(&put, &[key.value(), value.clone()]).unwrap();
                self.model.insert(key, value);
            }
        }
    }

    fn many(&mut self) {
        if self.rng.random_ratio(1, 3) {
            let range = self.range();
            self.note(format!("delete {range:?}"));
            let keys = self.matching(&range);
            if keys.len() <= 25 || self.rng.random_ratio(1, 8) {
                let want = i64::try_from(keys.len()).unwrap();
                assert_eq!(self.map.delete_range(&range).unwrap(), want);
                assert_eq!(self.db.changes(), want);
                for key in keys {
                    self.model.remove(&key);
                }
            }
            return;
        }
        let rows: Vec<(Key, Value)> =
            (0..self.rng.random_range(0..30)).map(|_| (self.key(), self.value())).collect();
        let breaks = self.rng.random_ratio(1, 5);
        self.note(format!("load {} breaks {breaks}", rows.len()));
        let mut source = rows.iter().map(|(key, value)| Ok((key.value(), value.clone())));
        if breaks {
            let mut source = source.chain([Err(4)]);
            assert_eq!(self.map.load(self.rng.random(), &mut source).unwrap_err().code, 4);
        } else {
            let loaded = self.map.load(self.rng.random(), &mut source).unwrap();
            assert_eq!(loaded, i64::try_from(rows.len()).unwrap());
            self.model.extend(rows);
        }
    }

    fn transaction(&mut self) {
        let depth = self.stack.len();
        let what = self.rng.random_range(0..5);
        self.note(format!("transaction {what} at depth {depth}"));
        match (depth, what) {
            (0, 0..4) => {
                let begins = ["BEGIN", "BEGIN IMMEDIATE", "BEGIN CONCURRENT"];
                let which = self.rng.random_range(0..if self.concurrent { 3 } else { 2 });
                self.db.execute(begins[which]).unwrap();
                self.stack.push(self.model.clone());
            }
            (0, _) => {
                self.cursors.clear();
                self.db.execute("PRAGMA wal_checkpoint").unwrap();
            }
            (_, 0) => {
                self.db.execute("COMMIT").unwrap();
                self.stack.clear();
            }
            (_, 1) if depth > 1 => {
                self.db.execute(&format!("ROLLBACK TO s{}", depth - 1)).unwrap();
                self.model = self.stack[depth - 1].clone();
            }
            (_, 2) if depth > 1 => {
                self.db.execute(&format!("RELEASE s{}", depth - 1)).unwrap();
                self.stack.pop();
            }
            (_, 3) if self.rng.random() => {
                self.db.execute("ROLLBACK").unwrap();
                self.model = self.stack[0].clone();
                self.stack.clear();
            }
            _ => {
                self.db.execute(&format!("SAVEPOINT s{depth}")).unwrap();
                self.stack.push(self.model.clone());
            }
        }
    }

    /// Moves a cursor that was opened earlier: its neighbour in what is there now.
    fn cursor(&mut self) {
        if self.cursors.len() < 3 && self.rng.random() {
            self.cursors.push((self.map.cursor(&Range::ALL).unwrap(), None));
            return;
        }
        if self.cursors.is_empty() {
            return;
        }
        let which = self.rng.random_range(0..self.cursors.len());
        if self.rng.random_ratio(1, 6) {
            self.cursors.remove(which);
            return;
        }
        let target = self.key();
        let (cursor, at) = &mut self.cursors[which];
        let (found, want) = match (self.rng.random_range(0..4), at.clone()) {
            (0, _) | (_, None) => {
                let want = self.model.range(target.clone()..).next();
                (cursor.seek(&target.value(), Near::AtLeast).unwrap(), want)
            }
            (1, Some(at)) => {
                let want = self.model.range(..at).next_back();
                (cursor.prev().unwrap(), want)
            }
            (_, Some(at)) => {
                let want = self.model.range((Std::Excluded(at), Std::Unbounded)).next();
                (cursor.next().unwrap(), want)
            }
        };
        assert_eq!(found, want.map(|(key, value)| (key.value(), value.clone())), "from {at:?}");
        *at = found.map(|(key, _)| Key::of(&key));
        if at.is_none() {
            self.cursors.remove(which);
        }
    }

    fn compare(&mut self) {
        let rows = self.db.query(&format!("SELECT k, v FROM {} ORDER BY k", self.table)).unwrap();
        let want: Vec<Vec<Value>> =
            self.model.iter().map(|(key, value)| vec![key.value(), value.clone()]).collect();
        assert_eq!(rows, want);
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..6 => self.read(),
            6..14 => self.write(),
            14 => self.many(),
            15..18 => self.cursor(),
            18 => self.transaction(),
            _ => self.compare(),
        }
    }
}

struct Place {
    name: &'static str,
    schema: &'static str,
    concurrent: bool,
    db: Connection,
    _folder: tempfile::TempDir,
}

fn place(subject: &Subject, name: &'static str) -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.db");
    let open = |path: &std::path::Path| subject.library().open(path).unwrap();
    let mut schema = "main";
    let db = match name {
        "memory" => open(std::path::Path::new(":memory:")),
        "temp" => {
            schema = "temp";
            open(std::path::Path::new(":memory:"))
        }
        "attached" => {
            schema = "other";
            let db = open(&path);
            let other = folder.path().join("other.db");
            db.execute(&format!("ATTACH '{}' AS other", other.display())).unwrap();
            db.execute("PRAGMA other.journal_mode=concurrent").unwrap();
            db
        }
        mode => {
            let db = open(&path);
            db.execute("PRAGMA page_size=1024").unwrap();
            let took = db.text(&format!("PRAGMA journal_mode={mode}")).unwrap();
            assert_eq!(took, mode);
            db
        }
    };
    let concurrent = matches!(name, "concurrent" | "attached");
    Place { name, schema, concurrent, db, _folder: folder }
}

fn run(place: &Place, form: &(&str, &str, Kind), seed: u64, steps: usize) {
    let schema = if place.schema == "temp" {
        form.1.replace("CREATE T", "CREATE TEMP T").replace("CREATE INDEX ", "CREATE INDEX temp.")
    } else {
        let at = |what: &str| format!("CREATE {what} {}.", place.schema);
        form.1
            .replace("CREATE TABLE ", &at("TABLE"))
            .replace("CREATE INDEX ", &at("INDEX"))
            .replace("CREATE TRIGGER ", &at("TRIGGER"))
    };
    place.db.execute(&schema).unwrap();
    let map = place.db.open_map_in(place.schema, "m", 0).unwrap();
    let mut run = Run {
        rng: SmallRng::seed_from_u64(seed),
        db: place.db.clone(),
        map,
        table: format!("{}.m", place.schema),
        kind: form.2,
        model: Model::new(),
        stack: Vec::new(),
        cursors: Vec::new(),
        concurrent: place.concurrent,
        told: Vec::new(),
    };
    for step in 0..steps {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step()));
        if let Err(cause) = outcome {
            let last = run.told.len().saturating_sub(12);
            eprintln!("{} in {}, seed {seed}, step {step}:", form.0, place.name);
            for line in &run.told[last..] {
                eprintln!("    {line}");
            }
            std::panic::resume_unwind(cause);
        }
    }
    run.cursors.clear();
    if !run.stack.is_empty() {
        run.db.execute("COMMIT").unwrap();
    }
    run.compare();
    let check = run.db.text(&format!("PRAGMA {}.integrity_check", place.schema)).unwrap();
    assert_eq!(check, "ok", "{} in {}", form.0, place.name);
}

fn all_forms_in(name: &'static str) {
    let Some(subject) = real_plait("maps") else { return };
    let seeds: u64 = std::env::var("PLAIT_MAP_SEEDS").map_or(2, |text| text.parse().unwrap());
    for form in FORMS {
        for seed in 0..seeds {
            run(&place(&subject, name), form, seed, 500);
        }
    }
}

#[test]
fn in_concurrent_mode() {
    all_forms_in("concurrent");
}

#[test]
fn in_wal_mode() {
    all_forms_in("wal");
}

#[test]
fn in_rollback_modes() {
    for mode in ["delete", "truncate", "persist", "memory"] {
        let Some(subject) = real_plait("maps") else { return };
        for (seed, form) in FORMS.iter().enumerate() {
            run(&place(&subject, mode), form, seed as u64, 200);
        }
    }
}

#[test]
fn in_memory() {
    all_forms_in("memory");
}

#[test]
fn in_the_temporary_database() {
    all_forms_in("temp");
}

#[test]
fn in_an_attached_database() {
    all_forms_in("attached");
}

#[test]
fn a_map_creates_its_table() {
    let Some(subject) = real_plait("maps") else { return };
    let place = place(&subject, "concurrent");
    for (table, flags, key) in [
        ("i", create::INTEGER, Value::Integer(1)),
        ("b", create::BYTES, Value::Blob(vec![1])),
        ("t", create::TEXT, Value::from("1")),
    ] {
        for _ in 0..2 {
            let map = place.db.open_map(table, flags).unwrap();
            map.put(&key, &Value::from("v")).unwrap();
        }
        let rows = place.db.query(&format!("SELECT k, v FROM {table}")).unwrap();
        assert_eq!(rows, [[key, Value::from("v")]]);
    }
}

#[test]
fn a_map_that_is_not_as_its_model_is_caught() {
    must_be_reported("deletes.unseen", "in_concurrent_mode", &["seed 0, step "]);
}

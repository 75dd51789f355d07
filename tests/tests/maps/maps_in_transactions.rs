//! Reads of a map that follow each other in a transaction, and everything that may come between them: whatever it is, it goes as it
//! does between two SELECTs of the same row, in every journal mode.

use plait_tests::sqlite::{Backup, Connection, Map, Range, Result, Statement, Step};
use plait_tests::subject::{Subject, real_plait};
use plait_tests::value::Value;
use std::path::PathBuf;
use tempfile::TempDir;

const MODES: [&str; 4] = ["delete", "wal", "concurrent", ":memory:"];
const FORMS: [&str; 3] =
    ["k INTEGER PRIMARY KEY, v", "k TEXT PRIMARY KEY, v", "v, k BLOB PRIMARY KEY"];

/// `SQLITE_CHECKPOINT_TRUNCATE`.
const TRUNCATE: i32 = 3;

/// A database with a map that nobody has read yet.
struct Scene {
    subject: Subject,
    folder: TempDir,
    mode: &'static str,
    db: Connection,
    map: Map,
    /// Reads are gets of the map, not SELECTs.
    by_map: bool,
    /// Keys are text.
    text: bool,
    said: Vec<String>,
}

impl Scene {
    fn new(subject: &Subject, mode: &'static str, form: usize, by_map: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        let path = if mode == ":memory:" { PathBuf::from(mode) } else { path };
        let db = subject.library().open(&path).unwrap();
        let pragma = if mode == ":memory:" { "memory" } else { mode };
        let text = FORMS[form].starts_with("k TEXT");
        let end = if text { "WITHOUT ROWID" } else { "" };
        db.execute(&format!(
            "PRAGMA synchronous=OFF; PRAGMA page_size=1024; PRAGMA auto_vacuum=FULL; PRAGMA journal_mode={pragma};
             ATTACH '{}' AS side; PRAGMA side.synchronous=OFF;
             CREATE TABLE early(a); CREATE TABLE m({}) {end}; CREATE TABLE late(a); CREATE TABLE side.s(a);
             WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<300)
             INSERT INTO m(k, v) SELECT x, x||hex(zeroblob(40)) FROM i; INSERT INTO early SELECT k FROM m",
            folder.path().join("side.db").display(),
            FORMS[form]
        ))
        .unwrap();
        let map = db.open_map("m", 0).unwrap();
        Self { subject: subject.clone(), folder, mode, db, map, by_map, text, said: Vec::new() }
    }

    /// Another connection to the same database; of one in memory, to another.
    fn other(&self) -> Connection {
        let path = self.folder.path().join("app.db");
        let path = if self.mode == ":memory:" { PathBuf::from(":memory:") } else { path };
        self.subject.library().open(&path).unwrap()
    }

    /// The row of a key, again and again: by a map without a statement from the second time on.
    fn read(&mut self, key: i64) {
        let key =
            if self.text { Value::from(key.to_string().as_str()) } else { Value::Integer(key) };
        for _ in 0..3 {
            let found = if self.by_map {
                self.map.get(&key)
            } else {
                let rows =
                    self.db.query_with("SELECT v FROM m WHERE k=?1", std::slice::from_ref(&key));
                rows.map(|rows| rows.into_iter().next().map(|row| row[0].clone()))
            };
            self.said.push(format!("{key:?}: {:?}", found.map_err(|error| error.code)));
        }
    }

    fn note<T: std::fmt::Debug>(&mut self, what: &str, outcome: Result<T>) {
        let outcome = outcome.map_err(|error| format!("{} {}", error.code, error.message));
        self.said.push(format!("{what}: {outcome:?}"));
    }

    /// Reads, lets `act` happen in the transaction, reads on, ends it, and reads once more.
    fn play(mut self, begin: &str, act: &dyn Fn(&mut Scene)) -> Vec<String> {
        self.db.execute(begin).unwrap();
        self.read(7);
        self.read(70);
        act(&mut self);
        self.read(7);
        self.read(299);
        let state = self.db.transaction_state();
        self.said.push(format!("autocommit {}, {state:?}", self.db.autocommit()));
        if !self.db.autocommit() {
            let outcome = self.db.execute("COMMIT");
            self.note("commit", outcome);
        }
        self.read(70);
        let outcome = self.db.text("PRAGMA integrity_check");
        self.note("check", outcome);
        self.said
    }
}

/// What happens between two reads, and its name.
type Act<'a> = (&'a str, &'a dyn Fn(&mut Scene));

/// The same by gets and by SELECTs, in every mode and on every form of table.
fn as_between_selects(acts: &[Act<'_>], begins: &[&str]) {
    let Some(subject) = real_plait("maps_in_transactions") else { return };
    let mut differ = Vec::new();
    for (mode, begin) in
        MODES.iter().flat_map(|mode| begins.iter().map(move |begin| (*mode, *begin)))
    {
        if begin != "BEGIN" && mode != "concurrent" {
            continue;
        }
        let forms = if begin == "BEGIN" { FORMS.len() } else { 1 };
        for (form, (name, act)) in
            (0..forms).flat_map(|form| acts.iter().map(move |act| (form, act)))
        {
            let play = |by_map| Scene::new(&subject, mode, form, by_map).play(begin, act);
            let (ours, theirs) = (play(true), play(false));
            if let Some(pair) = ours.iter().zip(&theirs).find(|pair| pair.0 != pair.1) {
                differ.push(format!("{name}: {mode}, {}, {begin}: {pair:?}", FORMS[form]));
            }
            assert_eq!(ours.len(), theirs.len(), "{name}: {mode}");
        }
    }
    assert!(differ.is_empty(), "by a map, and by SELECT: {differ:#?}");
}

macro_rules! sql {
    ($($sql:literal),* $(,)?) => {
        [$(($sql, &(|scene: &mut Scene| {
            let outcome = scene.db.execute($sql);
            scene.note("act", outcome);
        }) as &dyn Fn(&mut Scene))),*]
    };
}

// holds HOLD-1
#[test]
fn statements_come_between_as_between_selects() {
    as_between_selects(
        &sql![
            "COMMIT",
            "ROLLBACK",
            "COMMIT; BEGIN IMMEDIATE; UPDATE m SET v=1 WHERE k=7",
            "SAVEPOINT a; UPDATE m SET v='new' WHERE k=7; ROLLBACK TO a",
            "UPDATE m SET v='new'; SAVEPOINT a; DELETE FROM m WHERE k=7; RELEASE a",
            "DELETE FROM m WHERE k>60",
            "DELETE FROM m",
            "INSERT OR REPLACE INTO m(k, v) VALUES(7, x''), (299, zeroblob(3000))",
            "DROP TABLE m",
            "DROP TABLE early",
            "DROP TABLE m; CREATE TABLE x(a); CREATE TABLE m(v, k INTEGER PRIMARY KEY); INSERT INTO m VALUES('again', 7)",
            "ALTER TABLE m RENAME TO n",
            "ALTER TABLE m RENAME COLUMN v TO w; ALTER TABLE m RENAME COLUMN w TO v",
            "CREATE INDEX m_v ON m(v); UPDATE m SET v=2 WHERE k=7",
            "ATTACH ':memory:' AS more",
            "DETACH side",
            "VACUUM",
            "PRAGMA incremental_vacuum(5)",
            "PRAGMA journal_mode=delete",
            "PRAGMA journal_mode=wal",
            "PRAGMA locking_mode=exclusive",
            "PRAGMA cache_size=2; PRAGMA shrink_memory",
            "PRAGMA wal_checkpoint(TRUNCATE)",
            "PRAGMA temp_store=memory",
            "BEGIN",
        ],
        &["BEGIN", "BEGIN IMMEDIATE", "BEGIN CONCURRENT"],
    );
}

// holds HOLD-1
#[test]
fn calls_that_begin_no_statement_come_between_as_between_selects() {
    as_between_selects(
        &[
            ("an interrupt that meets nobody", &|scene| scene.db.interrupt()),
            ("a checkpoint", &|scene| {
                let outcome = scene.db.checkpoint(TRUNCATE);
                scene.note("act", outcome);
            }),
            ("pages are flushed", &|scene| {
                scene.db.execute("UPDATE m SET v='flushed' WHERE k>5").unwrap();
                scene.read(7);
                let outcome = scene.db.cache_flush();
                scene.note("act", outcome);
            }),
            ("a backup of it", &|scene| {
                let copy =
                    scene.subject.library().open(scene.folder.path().join("copy.db")).unwrap();
                let outcome = scene.db.backup_to(&copy);
                scene.note("act", outcome);
                let rows = copy.integer("SELECT count(*) FROM m");
                scene.note("copy", rows);
            }),
            ("an image of it", &|scene| {
                let outcome = scene.db.serialize().map(|image| image.len());
                scene.note("act", outcome);
            }),
            ("a blob handle", &|scene| {
                // Tables without rowids refuse one.
                let Ok(mut blob) = scene.db.open_blob("m", "v", 7, true) else { return };
                scene.read(7);
                let outcome = blob.write(0, b"blob");
                scene.note("act", outcome);
                scene.read(7);
                let outcome = blob.close();
                scene.note("close", outcome);
            }),
            ("an open SELECT", &|scene| {
                let mut select = scene.db.prepare("SELECT k FROM m").unwrap();
                select.step().unwrap();
                scene.read(70);
                let outcome = scene.db.execute("DROP TABLE early");
                scene.note("act", outcome);
                scene.read(70);
            }),
            ("a function is replaced", &|scene| {
                let outcome = scene.db.create_reversed_collation();
                scene.note("act", outcome);
            }),
        ],
        &["BEGIN", "BEGIN IMMEDIATE", "BEGIN CONCURRENT"],
    );
}

#[test]
fn others_come_between_as_between_selects() {
    as_between_selects(
        &[
            ("another connection writes the row", &|scene| {
                let outcome = scene.other().execute("UPDATE m SET v='theirs' WHERE k=7");
                scene.note(
                    "act",
                    outcome.map_err(|mut error| {
                        error.message.clear();
                        error
                    }),
                );
            }),
            ("another connection makes the table anew", &|scene| {
                let other = scene.other();
                let outcome = other.execute(
                    "DROP TABLE m; CREATE TABLE y(a); CREATE TABLE m(k INTEGER PRIMARY KEY, v); INSERT INTO m VALUES(70, 'other')",
                );
                scene.note("act", outcome);
            }),
            ("another map is read and written", &|scene| {
                scene.db.execute("CREATE TABLE n(k INTEGER PRIMARY KEY, v)").unwrap();
                let second = scene.db.open_map("n", 0).unwrap();
                for n in 0..5 {
                    second.put(&Value::Integer(n), &Value::Integer(n)).unwrap();
                    scene.read(n);
                    assert_eq!(second.get(&Value::Integer(n)).unwrap(), Some(Value::Integer(n)));
                }
            }),
        ],
        &["BEGIN", "BEGIN IMMEDIATE", "BEGIN CONCURRENT"],
    );
}

#[test]
fn a_backup_writes_over_a_map_that_is_being_read() {
    let Some(subject) = real_plait("maps_in_transactions") else { return };
    for mode in ["delete", "wal"] {
        let play = |by_map| {
            let scene = Scene::new(&subject, mode, 0, by_map);
            let source = subject.library().open(scene.folder.path().join("source.db")).unwrap();
            source
                .execute("PRAGMA page_size=1024; CREATE TABLE m(k INTEGER PRIMARY KEY, v); INSERT INTO m VALUES(7, 'copied')")
                .unwrap();
            let mut backup = Backup::start(&source, &scene.db).unwrap();
            scene.db.execute("BEGIN").unwrap();
            let mut scene = scene;
            scene.read(7);
            let outcome = backup.step(-1);
            scene.note("step", outcome);
            drop(backup);
            let outcome = if scene.db.autocommit() { Ok(()) } else { scene.db.execute("ROLLBACK") };
            scene.note("end", outcome);
            scene.read(7);
            scene.said
        };
        assert_eq!(play(true), play(false), "{mode}");
    }
}

#[test]
fn what_stops_or_moves_an_open_select_stops_or_moves_a_cursor() {
    let Some(subject) = real_plait("maps_in_transactions") else { return };
    let acts = [
        ("interrupt", None),
        ("end", Some("COMMIT")),
        ("undo", Some("ROLLBACK")),
        ("undo a write", Some("SAVEPOINT a; DELETE FROM m; ROLLBACK TO a")),
        ("delete ahead", Some("DELETE FROM m WHERE k BETWEEN 4 AND 100")),
        ("delete where it is", Some("DELETE FROM m WHERE k=3")),
        ("write all", Some("UPDATE m SET v=zeroblob(200)")),
        ("another table", Some("CREATE TABLE more(a)")),
        ("its table", Some("DROP TABLE m")),
    ];
    for (mode, (name, act)) in MODES.iter().flat_map(|mode| acts.iter().map(move |act| (mode, act)))
    {
        let play = |by_map| {
            let scene = Scene::new(&subject, mode, 0, by_map);
            let db = &scene.db;
            db.execute("BEGIN; UPDATE m SET v=5 WHERE k=299").unwrap();
            let mut cursor = scene.map.cursor(&Range::ALL).unwrap();
            let mut select = db.prepare("SELECT k, v FROM m ORDER BY k").unwrap();
            let mut step = || {
                let row = if by_map {
                    cursor.next()
                } else {
                    let row = |select: &Statement| (select.column(0), select.column(1));
                    select.step().map(|step| (step == Step::Row).then(|| row(&select)))
                };
                format!("{:?}", row.map_err(|error| error.code))
            };
            let mut said: Vec<String> = (0..3).map(|_| step()).collect();
            match act {
                None => db.interrupt(),
                Some(sql) => {
                    said.push(format!("{:?}", db.execute(sql).map_err(|error| error.code)))
                }
            }
            // A statement that has failed starts over when it is stepped again.
            said.extend((0..300).map(|_| step()).take_while(|row| row != "Ok(None)"));
            let failed = said.iter().position(|row| row.starts_with("Err") && row != "Err(6)");
            said.truncate(failed.map_or(said.len(), |at| at + 1));
            said
        };
        assert_eq!(play(true), play(false), "{name}: {mode}");
    }
}

/// Programs of maps that were begun, by SQLite's own count.
fn runs(db: &Connection) -> i64 {
    db.integer("SELECT coalesce(sum(run), 0) FROM sqlite_stmt WHERE sql IS NULL").unwrap()
}

#[test]
fn reads_that_follow_each_other_in_a_transaction_are_one_statement() {
    let Some(subject) = real_plait("maps_in_transactions") else { return };
    for mode in MODES {
        for form in 0..FORMS.len() {
            let scene = Scene::new(&subject, mode, form, true);
            let map = &scene.map;
            scene.db.execute("BEGIN").unwrap();
            map.get(&Value::Integer(3)).unwrap();
            let before = runs(&scene.db);
            // The count itself was a statement.
            for n in 1..100 {
                map.get(&Value::Integer(n)).unwrap();
                map.contains(&Value::Integer(n)).unwrap();
                map.get_many(&[Value::Integer(n), Value::Integer(500)]).unwrap();
                map.end(&Range::ALL, false).unwrap();
            }
            assert_eq!(runs(&scene.db) - before, 1, "{mode}");
            let busy = scene.db.integer("SELECT sum(busy) FROM sqlite_stmt WHERE sql IS NULL");
            assert_eq!(busy.unwrap(), 0, "a map's own read is over when it returns");
            scene.db.execute("COMMIT").unwrap();
        }
    }
}

#[test]
fn a_write_after_a_change_of_the_schema_that_was_refused_is_counted_once() {
    let Some(subject) = real_plait("maps_in_transactions") else { return };
    for mode in MODES {
        let Scene { folder: _folder, db, .. } = Scene::new(&subject, mode, 0, true);
        db.execute("CREATE TABLE t(k INTEGER PRIMARY KEY, v); CREATE INDEX i ON t(v)").unwrap();
        let map = db.open_map("t", 0).unwrap();
        // The statement by which a map of this table writes is there.
        map.delete(&Value::Integer(1)).unwrap();
        map.put(&Value::Integer(1), &Value::Integer(1)).unwrap();
        db.execute("BEGIN IMMEDIATE").unwrap();
        let other = db.open_map("m", 0).unwrap();
        let mut cursor = other.cursor(&Range::ALL).unwrap();
        cursor.next().unwrap();
        assert_eq!(db.execute("DROP INDEX i").unwrap_err().code, 6, "locked by the cursor");
        let before = db.total_changes();
        assert_eq!(map.add(&Value::Integer(2), 4).unwrap(), 4, "{mode}");
        assert_eq!((db.changes(), db.total_changes() - before), (1, 1), "{mode}");
        assert!(map.insert(&Value::Integer(3), &Value::Integer(3)).unwrap(), "{mode}");
        assert!(!map.insert(&Value::Integer(3), &Value::Integer(3)).unwrap(), "{mode}");
        assert!(map.delete(&Value::Integer(1)).unwrap(), "{mode}");
        assert_eq!(db.total_changes() - before, 3, "{mode}");
        drop(cursor);
        db.execute("COMMIT").unwrap();
        assert_eq!(db.integer("SELECT sum(v) FROM t").unwrap(), 7, "{mode}");
    }
}

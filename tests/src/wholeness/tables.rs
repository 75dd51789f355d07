//! Kinds of tables: their schema, random rows, random acts on them, and queries that show all of them.

use super::inside::Inside;
use super::{Act, MapCall};
use crate::differential::dice::Dice;
use crate::value::Value;

/// A kind of tables.
pub struct Kind {
    /// Its schema.
    pub schema: &'static [&'static str],
    /// What of it is temporary.
    pub temporary: &'static [&'static str],
    /// Queries that show it: each table, and each index.
    pub shown: &'static [&'static str],
    /// Statements that check it on another connection.
    pub checks: &'static [&'static str],
    /// Needs the second file.
    pub attached: bool,
    /// Writes tables of its own.
    pub virtual_table: bool,
    /// Has programs hang on it: triggers, foreign keys. What they have changed counts at their end, whatever becomes of the statement.
    pub programs: bool,
    /// A row, put in a way that never fails.
    pub row: fn(&mut Dice) -> String,
    /// An act.
    pub act: fn(&mut Dice) -> Act,
}

const PLAIN: Kind = Kind {
    schema: &[],
    temporary: &[],
    shown: &[],
    checks: &[],
    attached: false,
    virtual_table: false,
    programs: false,
    row: |_| String::new(),
    act: |_| Act::sql(""),
};

/// What every case has: a table for others, one for large rows, and one to do things to the schema with.
pub const ALWAYS: Kind = Kind {
    schema: &[
        "CREATE TABLE beside(x)",
        "INSERT INTO beside VALUES(0)",
        "CREATE TABLE heavy(id INTEGER PRIMARY KEY, k UNIQUE, b)",
        "CREATE TABLE plain(x, y)",
        "INSERT INTO plain VALUES(1, 'one'), (2, 'two'), (3, NULL)",
    ],
    shown: &[
        "SELECT id, k, length(b) FROM heavy NOT INDEXED ORDER BY id",
        "SELECT k, id FROM heavy INDEXED BY sqlite_autoindex_heavy_1 ORDER BY k, id",
        "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name",
        "SELECT rowid, * FROM plain ORDER BY rowid",
    ],
    ..PLAIN
};

/// All kinds.
pub const KINDS: &[Kind] = &[
    INDEXED, KEYED, NUMBERED, LOGGED, FAR, FAMILY, GENERATED, WORDS, BOXES, BLOBS, MAPS, OWN_ORDER,
    SCHEMA,
];

fn small(dice: &mut Dice) -> i64 {
    dice.between(0, 9)
}

fn word(dice: &mut Dice) -> String {
    (*dice.pick(&["'a'", "'A'", "'b'", "'bb'", "'C'", "NULL", "'zz'"])).to_owned()
}

/// So many rows of values.
fn rows(dice: &mut Dice, one: fn(&mut Dice) -> String) -> String {
    let count = 1 + dice.roll(4);
    let all: Vec<String> = (0..count).map(|_| one(dice)).collect();
    all.join(", ")
}

const INDEXED: Kind = Kind {
    schema: &[
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b TEXT COLLATE NOCASE, c UNIQUE, d)",
        "CREATE INDEX ta ON t(a)",
        "CREATE INDEX tb ON t(b, a)",
        "CREATE INDEX tp ON t(d) WHERE d IS NOT NULL",
        "CREATE INDEX te ON t(abs(a)+1, d)",
    ],
    shown: &[
        "SELECT * FROM t NOT INDEXED ORDER BY id",
        "SELECT a, id FROM t INDEXED BY ta ORDER BY a, id",
        "SELECT b, a, id FROM t INDEXED BY tb ORDER BY b, a, id",
        "SELECT d, id FROM t INDEXED BY tp WHERE d IS NOT NULL ORDER BY d, id",
        "SELECT abs(a)+1, d, id FROM t INDEXED BY te ORDER BY abs(a)+1, d, id",
        "SELECT c, id FROM t INDEXED BY sqlite_autoindex_t_1 ORDER BY c, id",
    ],
    row: |dice| format!("INSERT OR IGNORE INTO t VALUES{}", indexed_row(dice)),
    act: |dice| {
        let (n, m) = (small(dice), small(dice));
        let values = rows(dice, indexed_row);
        Act::Sql(match dice.roll(15) {
            0 | 1 => format!(
                "INSERT INTO t(a, b, c, d) VALUES({n}, 'x', {m}+100, 1), ({m}, 'y', {m}+200, NULL), (1, 'z', {m}+300, 3)"
            ),
            2 => format!("INSERT OR REPLACE INTO t VALUES{values}"),
            3 => format!(
                "INSERT INTO t VALUES{values} ON CONFLICT(id) DO UPDATE SET a=a+1, d=excluded.d ON CONFLICT(c) DO UPDATE SET b=b||'x', c=c+50"
            ),
            4 => format!("INSERT OR IGNORE INTO t VALUES{values} RETURNING id, c"),
            5 => "INSERT INTO t(a, b, c, d) SELECT a, b, c+500, d FROM t".to_owned(),
            6 => format!(
                "UPDATE t SET a=a+1, d=CASE WHEN a>{n} THEN NULL ELSE id END RETURNING id, a"
            ),
            7 => format!("UPDATE t SET c=c+1000, b=upper(b) WHERE a<={n}"),
            8 => format!("UPDATE OR REPLACE t SET c={m} WHERE a>={n}"),
            9 => "UPDATE t SET id=id+20".to_owned(),
            10 => format!("UPDATE t SET a={m} WHERE id={n}"),
            11 => format!("DELETE FROM t WHERE a>={n} RETURNING id"),
            12 => "DELETE FROM t".to_owned(),
            13 => format!("DELETE FROM t WHERE id={n}"),
            _ => format!("INSERT INTO t(a, b, c) VALUES({n}, 'one', {m}+700)"),
        })
    },
    ..PLAIN
};

fn indexed_row(dice: &mut Dice) -> String {
    let (id, a, b, c) = (dice.between(1, 9), small(dice), word(dice), dice.between(0, 30));
    let d = *dice.pick(&["NULL", "1", "'d'", "2.5"]);
    format!("({id}, {a}, {b}, {c}, {d})")
}

const KEYED: Kind = Kind {
    schema: &[
        "CREATE TABLE w(k TEXT, n INT, v, PRIMARY KEY(k, n)) WITHOUT ROWID",
        "CREATE INDEX wv ON w(v)",
        "CREATE UNIQUE INDEX wu ON w(n, v, k DESC)",
    ],
    shown: &[
        "SELECT * FROM w NOT INDEXED ORDER BY k, n",
        "SELECT v, k, n FROM w INDEXED BY wv ORDER BY v, k, n",
        "SELECT n, v, k FROM w INDEXED BY wu ORDER BY n, v, k DESC",
    ],
    row: |dice| format!("INSERT OR IGNORE INTO w VALUES{}", keyed_row(dice)),
    act: |dice| {
        let n = small(dice);
        let values = rows(dice, keyed_row);
        Act::Sql(match dice.roll(9) {
            0 => format!("INSERT OR REPLACE INTO w VALUES{values}"),
            1 => format!("INSERT INTO w VALUES{values} ON CONFLICT DO UPDATE SET v=v||'+'"),
            2 => format!("INSERT OR IGNORE INTO w VALUES{values} RETURNING *"),
            3 => format!("UPDATE w SET v=v||'!' WHERE n>={n}"),
            4 => "UPDATE w SET k=k||'k', n=n+1".to_owned(),
            5 => format!("DELETE FROM w WHERE n<{n}"),
            6 => "DELETE FROM w".to_owned(),
            7 => "INSERT INTO w SELECT k||'2', n, v FROM w".to_owned(),
            _ => format!("INSERT INTO w VALUES('new', {n}, 'v')"),
        })
    },
    ..PLAIN
};

fn keyed_row(dice: &mut Dice) -> String {
    let (k, n) = (*dice.pick(&["'a'", "'b'", "'c'"]), small(dice));
    format!("({k}, {n}, {})", word(dice))
}

const NUMBERED: Kind = Kind {
    schema: &["CREATE TABLE s(id INTEGER PRIMARY KEY AUTOINCREMENT, x)", "CREATE INDEX sx ON s(x)"],
    shown: &[
        "SELECT * FROM s NOT INDEXED ORDER BY id",
        "SELECT x, id FROM s INDEXED BY sx ORDER BY x, id",
        "SELECT name, seq FROM sqlite_sequence ORDER BY name",
    ],
    row: |dice| format!("INSERT INTO s(x) VALUES({})", small(dice)),
    act: |dice| {
        let n = small(dice);
        Act::Sql(match dice.roll(6) {
            0 => format!("INSERT INTO s(x) VALUES({n}), (2), ({n}) RETURNING id"),
            1 => format!("INSERT INTO s VALUES({n}+50, 'explicit')"),
            2 => "INSERT INTO s(x) SELECT x||'c' FROM s".to_owned(),
            3 => format!("DELETE FROM s WHERE x<={n}"),
            4 => "REPLACE INTO s SELECT id, x||'r' FROM s".to_owned(),
            _ => format!("INSERT INTO s(x) VALUES({n})"),
        })
    },
    ..PLAIN
};

const LOGGED: Kind = Kind {
    schema: &[
        "CREATE TABLE g(id INTEGER PRIMARY KEY, x)",
        "CREATE INDEX gx ON g(x)",
        "CREATE TABLE log(n INTEGER PRIMARY KEY AUTOINCREMENT, what, x)",
        "CREATE INDEX logx ON log(x, what)",
        "CREATE TRIGGER gi AFTER INSERT ON g BEGIN INSERT INTO log(what, x) VALUES('in', new.x); END",
        "CREATE TRIGGER gu BEFORE UPDATE ON g BEGIN INSERT INTO log(what, x) VALUES('was', old.x); UPDATE log SET x=new.x WHERE what='in' AND x=old.x; END",
        "CREATE TRIGGER gd AFTER DELETE ON g BEGIN DELETE FROM log WHERE x=old.x; INSERT INTO log(what) VALUES('out'); END",
    ],
    shown: &[
        "SELECT * FROM g NOT INDEXED ORDER BY id",
        "SELECT x, id FROM g INDEXED BY gx ORDER BY x, id",
        "SELECT * FROM log NOT INDEXED ORDER BY n",
        "SELECT x, what, n FROM log INDEXED BY logx ORDER BY x, what, n",
        "SELECT name, seq FROM sqlite_sequence ORDER BY name",
    ],
    programs: true,
    row: |dice| format!("INSERT INTO g(x) VALUES({})", small(dice)),
    act: |dice| {
        let n = small(dice);
        Act::Sql(match dice.roll(5) {
            0 => format!("INSERT INTO g(x) VALUES({n}), ({n}+1)"),
            1 => format!("UPDATE g SET x=x+1 WHERE x>={n}"),
            2 => format!("DELETE FROM g WHERE x>={n}"),
            3 => "INSERT OR REPLACE INTO g SELECT id, x||'' FROM g".to_owned(),
            _ => format!("INSERT INTO g(x) VALUES({n})"),
        })
    },
    ..PLAIN
};

const FAR: Kind = Kind {
    schema: &[
        "CREATE TABLE h(id INTEGER PRIMARY KEY, x UNIQUE)",
        "CREATE TABLE aux.far(n INTEGER PRIMARY KEY, x)",
        "CREATE INDEX aux.farx ON far(x)",
    ],
    temporary: &[
        "CREATE TEMP TRIGGER hi AFTER INSERT ON main.h BEGIN INSERT INTO far(x) VALUES(new.x); END",
        "CREATE TEMP TRIGGER hd AFTER DELETE ON main.h BEGIN DELETE FROM far WHERE x=old.x; END",
        "CREATE TEMP TRIGGER hu AFTER UPDATE ON main.h BEGIN UPDATE far SET x=new.x WHERE x=old.x; END",
    ],
    shown: &[
        "SELECT * FROM h NOT INDEXED ORDER BY id",
        "SELECT x, id FROM h INDEXED BY sqlite_autoindex_h_1 ORDER BY x, id",
        "SELECT * FROM far NOT INDEXED ORDER BY n",
        "SELECT x, n FROM far INDEXED BY farx ORDER BY x, n",
    ],
    attached: true,
    programs: true,
    row: |dice| format!("INSERT OR IGNORE INTO h(x) VALUES({})", small(dice)),
    act: |dice| {
        let n = small(dice);
        Act::Sql(match dice.roll(5) {
            0 => format!("INSERT OR IGNORE INTO h(x) VALUES({n}), ({n}+50), ({n}+60)"),
            1 => "UPDATE h SET x=x+100".to_owned(),
            2 => format!("DELETE FROM h WHERE x>={n}"),
            3 => format!("INSERT INTO far(x) VALUES({n}), ({n})"),
            _ => format!("INSERT INTO h(x) VALUES({n}+70)"),
        })
    },
    ..PLAIN
};

const FAMILY: Kind = Kind {
    schema: &[
        "CREATE TABLE parent(id INTEGER PRIMARY KEY, p UNIQUE)",
        "CREATE TABLE child(id INTEGER PRIMARY KEY,
           up REFERENCES parent(id) ON DELETE CASCADE ON UPDATE CASCADE,
           beside REFERENCES parent(p) ON DELETE SET NULL ON UPDATE CASCADE,
           later REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED)",
        "CREATE INDEX childup ON child(up)",
        "CREATE INDEX childbeside ON child(beside)",
        "CREATE INDEX childlater ON child(later)",
        "INSERT INTO parent VALUES(0, 'p0'), (1, 'p1'), (2, 'p2')",
    ],
    shown: &[
        "SELECT * FROM parent NOT INDEXED ORDER BY id",
        "SELECT p, id FROM parent INDEXED BY sqlite_autoindex_parent_1 ORDER BY p",
        "SELECT * FROM child NOT INDEXED ORDER BY id",
        "SELECT up, id FROM child INDEXED BY childup ORDER BY up, id",
        "SELECT beside, id FROM child INDEXED BY childbeside ORDER BY beside, id",
        "SELECT later, id FROM child INDEXED BY childlater ORDER BY later, id",
    ],
    row: |dice| {
        let (up, beside) = (dice.roll(3), dice.roll(3));
        format!("INSERT INTO child(up, beside, later) VALUES({up}, 'p{beside}', NULL)")
    },
    act: |dice| {
        let (n, m) = (dice.roll(3), dice.roll(3));
        Act::Sql(match dice.roll(9) {
            0 | 1 => format!("DELETE FROM parent WHERE id={n}"),
            2 => "DELETE FROM parent WHERE id>=1".to_owned(),
            3 => format!("UPDATE parent SET id=id+10 WHERE id>={n}"),
            4 => "UPDATE parent SET p=p||'+'".to_owned(),
            5 => format!(
                "INSERT INTO child(up, beside, later) VALUES({n}, 'p{m}', {m}), ({m}, NULL, 77)"
            ),
            6 => "INSERT INTO parent VALUES(77, 'p77')".to_owned(),
            7 => format!("REPLACE INTO parent VALUES({n}, 'p{m}')"),
            _ => format!("INSERT INTO child(up, later) VALUES({n}, 77)"),
        })
    },
    checks: &["PRAGMA foreign_key_check"],
    programs: true,
    ..PLAIN
};

const GENERATED: Kind = Kind {
    schema: &[
        "CREATE TABLE v(id INTEGER PRIMARY KEY, x, y AS (x*2) STORED, z AS (coalesce(x,0)||'-') VIRTUAL)",
        "CREATE INDEX vz ON v(z)",
        "CREATE UNIQUE INDEX vy ON v(y, id)",
    ],
    shown: &[
        "SELECT * FROM v NOT INDEXED ORDER BY id",
        "SELECT z, id FROM v INDEXED BY vz ORDER BY z, id",
        "SELECT y, id FROM v INDEXED BY vy ORDER BY y, id",
    ],
    row: |dice| format!("INSERT INTO v(x) VALUES({})", small(dice)),
    act: |dice| {
        let n = small(dice);
        Act::Sql(match dice.roll(4) {
            0 => format!("INSERT INTO v(x) VALUES({n}), (NULL), ({n}) RETURNING y, z"),
            1 => format!("UPDATE v SET x=x+1 WHERE x>={n}"),
            2 => format!("DELETE FROM v WHERE z>='{n}'"),
            _ => "REPLACE INTO v(id, x) SELECT id, x+1 FROM v".to_owned(),
        })
    },
    ..PLAIN
};

const WORDS: Kind = Kind {
    schema: &["CREATE VIRTUAL TABLE f USING fts5(a, b)"],
    shown: &[
        "SELECT rowid, a, b FROM f ORDER BY rowid",
        "SELECT rowid FROM f WHERE f MATCH 'one' ORDER BY rowid",
        "SELECT rowid FROM f WHERE f MATCH 'two OR new' ORDER BY rowid",
    ],
    checks: &["INSERT INTO f(f) VALUES('integrity-check')"],
    virtual_table: true,
    row: |dice| format!("INSERT INTO f VALUES('one {}', 'two')", small(dice)),
    act: |dice| {
        let n = small(dice);
        Act::Sql(match dice.roll(6) {
            0 => format!("INSERT INTO f VALUES('new {n}', 'one'), ('two', 'words')"),
            1 => format!("UPDATE f SET a='new one' WHERE rowid<={n}"),
            2 => format!("DELETE FROM f WHERE rowid<={n}"),
            3 => "DELETE FROM f".to_owned(),
            4 => "INSERT INTO f(f) VALUES('optimize')".to_owned(),
            _ => format!("INSERT INTO f VALUES('new', '{n}')"),
        })
    },
    ..PLAIN
};

const BOXES: Kind = Kind {
    schema: &["CREATE VIRTUAL TABLE r USING rtree(id, x0, x1, y0, y1, +note)"],
    shown: &["SELECT * FROM r ORDER BY id", "SELECT id FROM r WHERE x0>=2 AND x1<=8 ORDER BY id"],
    checks: &["SELECT nullif(rtreecheck('r'), 'ok') WHERE rtreecheck('r')<>'ok'"],
    virtual_table: true,
    row: |dice| {
        let n = small(dice);
        format!("INSERT INTO r VALUES(NULL, {n}, {n}+1, 0, {n}, 'note')")
    },
    act: |dice| {
        let n = small(dice);
        Act::Sql(match dice.roll(5) {
            0 => format!(
                "INSERT INTO r VALUES(NULL, {n}, {n}+2, 1, 2, 'new'), (NULL, 1, 2, 3, 4, NULL)"
            ),
            1 => format!("UPDATE r SET x1=x1+1, note='changed' WHERE id<={n}"),
            2 => format!("DELETE FROM r WHERE id<={n}"),
            3 => format!("REPLACE INTO r VALUES({n}, 0, 1, 0, 1, 'replaced')"),
            _ => format!("INSERT INTO r SELECT id+100, x0, x1, y0, y1, note FROM r WHERE id>={n}"),
        })
    },
    ..PLAIN
};

const BLOBS: Kind = Kind {
    schema: &[
        "CREATE TABLE o(id INTEGER PRIMARY KEY, k, b)",
        "CREATE INDEX ok ON o(k)",
        "INSERT INTO o VALUES(1, 'short', zeroblob(40)), (2, 'long', zeroblob(9000))",
    ],
    shown: &[
        "SELECT id, k, hex(b) FROM o NOT INDEXED ORDER BY id",
        "SELECT k, id FROM o INDEXED BY ok ORDER BY k, id",
    ],
    row: |dice| format!("INSERT INTO o(k, b) VALUES({}, zeroblob(100))", small(dice)),
    act: |dice| {
        let n = small(dice);
        match dice.roll(4) {
            0 => Act::Sql(format!("UPDATE o SET b=zeroblob({n}*100), k=k||'+'")),
            _ => {
                let (rowid, offset) = *dice.pick(&[(1, 0), (1, 30), (2, 0), (2, 8000)]);
                let bytes = vec![b'x'; 1 + dice.roll(10)];
                Act::Blob { table: "o".into(), column: "b".into(), rowid, offset, bytes }
            }
        }
    },
    ..PLAIN
};

const MAPS: Kind = Kind {
    schema: &[
        "CREATE TABLE m(k BLOB PRIMARY KEY, v) WITHOUT ROWID",
        "CREATE TABLE mi(k TEXT PRIMARY KEY, v)",
        "CREATE TABLE mx(k INTEGER PRIMARY KEY, v)",
        "CREATE INDEX mxv ON mx(v)",
        "CREATE TABLE mlog(n INTEGER PRIMARY KEY, k)",
        "CREATE TRIGGER mxi AFTER INSERT ON mx BEGIN INSERT INTO mlog(k) VALUES(new.k); END",
        "CREATE TRIGGER mxd AFTER DELETE ON mx BEGIN INSERT INTO mlog(k) VALUES(-old.k); END",
    ],
    shown: &[
        "SELECT k, v FROM m ORDER BY k",
        "SELECT rowid, k, v FROM mi NOT INDEXED ORDER BY rowid",
        "SELECT k, rowid FROM mi INDEXED BY sqlite_autoindex_mi_1 ORDER BY k",
        "SELECT k, v FROM mx NOT INDEXED ORDER BY k",
        "SELECT v, k FROM mx INDEXED BY mxv ORDER BY v, k",
        "SELECT * FROM mlog ORDER BY n",
    ],
    row: |dice| {
        let (table, n) = (*dice.pick(&["m", "mi", "mx"]), small(dice));
        let key = map_key(table, n).to_sql();
        format!("INSERT OR IGNORE INTO {table} VALUES({key}, {n})")
    },
    programs: true,
    act: map_act,
    ..PLAIN
};

fn map_key(table: &str, number: i64) -> Value {
    match table {
        "m" => Value::Blob(format!("k{number}").into_bytes()),
        "mi" => format!("k{number}").into(),
        _ => number.into(),
    }
}

fn map_act(dice: &mut Dice) -> Act {
    let table = *dice.pick(&["m", "mi", "mx"]);
    let key = map_key(table, dice.between(0, 12));
    let number = dice.between(0, 99);
    let text = "x".repeat(dice.roll(30));
    let upsert = |key: &Value, value: &Value, then: &str| {
        let (key, value) = (key.to_sql(), value.to_sql());
        format!("INSERT INTO {table} VALUES({key}, {value}) ON CONFLICT(k) DO UPDATE SET v={then};")
    };
    let (call, sql) = match dice.roll(9) {
        0 | 1 => {
            let sql = upsert(&key, &number.into(), "excluded.v");
            (MapCall::Put(key, number.into()), sql)
        }
        2 => {
            let sql = format!(
                "INSERT INTO {table} VALUES({}, {number}) ON CONFLICT DO NOTHING",
                key.to_sql()
            );
            (MapCall::Insert(key, number.into()), sql)
        }
        3 => {
            let sql = format!("UPDATE {table} SET v={number} WHERE k={}", key.to_sql());
            (MapCall::Update(key, number.into()), sql)
        }
        4 => {
            let sql = format!("DELETE FROM {table} WHERE k={}", key.to_sql());
            (MapCall::Delete(key), sql)
        }
        5 => {
            let sql = upsert(&key, &number.into(), "v+excluded.v");
            (MapCall::Add(key, number), sql)
        }
        6 => {
            let key = map_key(table, 50);
            let sql = upsert(&key, &text.as_str().into(), "v||excluded.v");
            (MapCall::Append(key, text.into()), sql)
        }
        7 => {
            let (low, high) = (map_key(table, 2), map_key(table, 7));
            let sql = format!(
                "DELETE FROM {table} WHERE k BETWEEN {} AND {}",
                low.to_sql(),
                high.to_sql()
            );
            (MapCall::DeleteRange(low, high), sql)
        }
        _ => {
            let keys: Vec<Value> = (20..24).map(|n| map_key(table, n)).chain([key]).collect();
            let mut sql = String::new();
            let item = |(index, key): (usize, Value)| {
                let value = (index != 1).then(|| Value::from(number));
                sql += &match &value {
                    Some(value) => upsert(&key, value, "excluded.v"),
                    None => format!("DELETE FROM {table} WHERE k={};", key.to_sql()),
                };
                (key, value)
            };
            let items = keys.into_iter().enumerate().map(item).collect();
            (MapCall::Batch(items), sql)
        }
    };
    Act::Map { table: table.to_owned(), call, sql }
}

const OWN_ORDER: Kind = Kind {
    schema: &[
        "CREATE TABLE c(id INTEGER PRIMARY KEY, a, b TEXT)",
        "CREATE INDEX ca ON c(a)",
        "CREATE INDEX cb ON c(b COLLATE reversed)",
        "CREATE INDEX cz ON c(a, b)",
    ],
    shown: &[
        "SELECT * FROM c NOT INDEXED ORDER BY id",
        "SELECT a, id FROM c INDEXED BY ca ORDER BY a, id",
        "SELECT b, id FROM c INDEXED BY cb ORDER BY b COLLATE reversed, id",
        "SELECT a, b, id FROM c INDEXED BY cz ORDER BY a, b, id",
    ],
    row: |dice| format!("INSERT INTO c(a, b) VALUES({}, {})", small(dice), word(dice)),
    act: |dice| {
        let n = small(dice);
        Act::Sql(match dice.roll(5) {
            0 => format!("INSERT INTO c(a, b) VALUES({n}, 'p'), (1, 'q')"),
            1 => format!("UPDATE c SET a=a+1, b=b||'+' WHERE a>={n}"),
            2 => format!("DELETE FROM c WHERE a>={n}"),
            3 => "DELETE FROM c".to_owned(),
            _ => format!("INSERT INTO c(a, b) VALUES({n}, 'one')"),
        })
    },
    ..PLAIN
};

const SCHEMA: Kind = Kind {
    row: |dice| format!("INSERT INTO plain VALUES({}, {})", small(dice), word(dice)),
    act: |dice| {
        Act::sql(*dice.pick(&[
            "CREATE TABLE made AS SELECT * FROM plain",
            "CREATE INDEX plainx ON plain(x, y)",
            "ALTER TABLE plain ADD COLUMN z DEFAULT 5",
            "ALTER TABLE plain RENAME COLUMN y TO yy",
            "DROP TABLE plain",
            "CREATE TABLE made(a UNIQUE, b)",
            "INSERT INTO plain SELECT x+10, y FROM plain",
            "DELETE FROM plain WHERE x>1",
            "REINDEX",
            "ANALYZE plain",
        ]))
    },
    ..PLAIN
};

/// Acts in whose middle other statements run (`inside.rs`).
pub const CALLING: Kind = Kind {
    schema: &[
        "CREATE TABLE o(a UNIQUE, b)",
        "CREATE TABLE i(x UNIQUE)",
        "CREATE VIRTUAL TABLE g USING fts5(w)",
        "INSERT INTO o VALUES(101, 1), (102, 1), (103, 1)",
    ],
    shown: &[
        "SELECT rowid, * FROM o NOT INDEXED ORDER BY rowid",
        "SELECT a, rowid FROM o INDEXED BY sqlite_autoindex_o_1 ORDER BY a, rowid",
        "SELECT rowid, * FROM i NOT INDEXED ORDER BY rowid",
        "SELECT x, rowid FROM i INDEXED BY sqlite_autoindex_i_1 ORDER BY x, rowid",
        "SELECT rowid, w FROM g ORDER BY rowid",
        "SELECT rowid FROM g WHERE g MATCH 'v OR w1 OR w0' ORDER BY rowid",
    ],
    virtual_table: true,
    programs: true,
    row: |dice| format!("INSERT OR IGNORE INTO i VALUES({})", small(dice)),
    act: |dice| {
        let n = small(dice);
        Act::Sql(match dice.roll(9) {
            0 | 1 => format!(
                "INSERT INTO o SELECT value+{n}, ('a'||value) < 'b' COLLATE called FROM json_each('[1,2,3]')"
            ),
            2 => "UPDATE o SET b = (b||'x') < 'y' COLLATE called".to_owned(),
            3 => "UPDATE o SET a = a+100 WHERE (a||'') < 'z' COLLATE called".to_owned(),
            4 => "DELETE FROM o WHERE (a||'') < 'z' COLLATE called".to_owned(),
            5 => "INSERT INTO g SELECT 'w'||(('a'||value) < 'b' COLLATE called) FROM json_each('[1,2,3]')".to_owned(),
            6 => format!("INSERT INTO o VALUES({n}, 'a' < 'b' COLLATE called)"),
            7 => "INSERT INTO g VALUES('w'||('a' < 'b' COLLATE called))".to_owned(),
            _ => "SELECT a, (a||'') < 'z' COLLATE called FROM o".to_owned(),
        })
    },
    ..PLAIN
};

/// Something in the middle of one of these acts.
pub fn inside(dice: &mut Dice) -> Inside {
    let n = dice.between(10, 99);
    let half = format!("INSERT INTO i VALUES({n}), ({n}+100) RETURNING x");
    match dice.roll(12) {
        0 | 1 => Inside::Before(half),
        2 | 3 => Inside::Half(half),
        4 | 5 => Inside::End,
        6 => Inside::Run(format!("INSERT INTO i VALUES({n})")),
        7 => Inside::Run(format!("INSERT INTO i VALUES({n}), ({n})")),
        8 => Inside::Run("INSERT INTO g VALUES('v w')".to_owned()),
        9 => Inside::Run(format!("DELETE FROM i WHERE x<{n}")),
        10 => Inside::Run("SELECT count(*) FROM i; SELECT count(*) FROM g".to_owned()),
        _ => Inside::Run(format!("UPDATE i SET x=x+1000 WHERE x<{n}")),
    }
}

//! The zoo of tables: what a generated script creates, and what the generator remembers of it.

use super::dice::Dice;

/// How rows of a table are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// An ordinary rowid without a name.
    Rowid,
    /// `INTEGER PRIMARY KEY`: the first column.
    Integer,
    /// `INTEGER PRIMARY KEY AUTOINCREMENT`: the first column.
    Autoincrement,
    /// WITHOUT ROWID with this many leading columns as primary key.
    Columns(usize),
}

/// A table that statements may name.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name, with its schema when that is not main.
    pub name: String,
    /// Columns that can be written.
    pub columns: Vec<String>,
    /// Generated columns: can be read only.
    pub generated: Vec<String>,
    /// How rows are found.
    pub key: Key,
    /// Names of its indexes.
    pub indexes: Vec<String>,
    /// Column groups that an UPSERT can name as its target.
    pub unique: Vec<String>,
}

impl Table {
    /// A random column, sometimes a generated one or the rowid.
    pub fn any_column(&self, dice: &mut Dice) -> String {
        if !self.generated.is_empty() && dice.one_in(6) {
            return dice.pick(&self.generated).clone();
        }
        if !matches!(self.key, Key::Columns(_)) && dice.one_in(8) {
            return "rowid".to_owned();
        }
        dice.pick(&self.columns).clone()
    }

    /// Whether it has a rowid.
    #[must_use]
    pub fn has_rowid(&self) -> bool {
        !matches!(self.key, Key::Columns(_))
    }
}

/// Everything that was created.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Ordinary tables of the main database.
    pub tables: Vec<Table>,
    /// Tables of the temp database.
    pub temp_tables: Vec<Table>,
    /// Tables of the attached database.
    pub attached: Vec<Table>,
    /// FTS5 tables with columns `a`, `b`.
    pub full_text: Vec<String>,
    /// R-Tree tables with columns `id, x0, x1, y0, y1`.
    pub rtrees: Vec<String>,
    /// Views that can be read; each has columns `v1`, `v2`.
    pub views: Vec<String>,
    counter: usize,
}

const TYPES: [&str; 7] = ["INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC", "", "ANY"];

impl Schema {
    fn fresh(&mut self, prefix: &str) -> String {
        self.counter += 1;
        format!("{prefix}{}", self.counter)
    }

    /// A CREATE TABLE in `prefix` (`""`, `"temp."`, `"aux."`) with some indexes.
    pub fn create_table(&mut self, dice: &mut Dice, prefix: &str) -> Vec<String> {
        let name = self.fresh("t");
        let count = 2 + dice.roll(4);
        let columns: Vec<String> = (0..count).map(|index| format!("c{index}")).collect();
        let key = match dice.roll(8) {
            0 | 1 => Key::Rowid,
            2 | 3 => Key::Integer,
            4 => Key::Autoincrement,
            5 => Key::Columns(1),
            _ => Key::Columns(1 + dice.roll(count.min(3))),
        };
        let mut table = Table {
            name: format!("{prefix}{name}"),
            columns,
            generated: Vec::new(),
            key,
            indexes: Vec::new(),
            unique: Vec::new(),
        };
        let mut statements = vec![table_sql(dice, &mut table)];
        for _ in 0..dice.roll(4) {
            statements.push(self.create_index(dice, &mut table, prefix));
        }
        match prefix {
            "" => self.tables.push(table),
            "temp." => self.temp_tables.push(table),
            _ => self.attached.push(table),
        }
        statements
    }

    /// A CREATE INDEX of any kind on a table.
    pub fn create_index(&mut self, dice: &mut Dice, table: &mut Table, prefix: &str) -> String {
        let name = self.fresh("i");
        let bare = table.name.rsplit('.').next().unwrap_or(&table.name).to_owned();
        let mut parts = Vec::new();
        for _ in 0..=dice.roll(3) {
            let column = if !table.generated.is_empty() && dice.one_in(5) {
                dice.pick(&table.generated).clone()
            } else {
                dice.pick(&table.columns).clone()
            };
            let part = match dice.roll(10) {
                0 => format!("abs({column})"),
                // Not lower() of the bare column: stock SQLite indexes lower(zeroblob(44)) of a UTF-16 database as another
                // text than it later looks for.
                1 => format!("lower(quote({column}))"),
                2 => format!("coalesce({column}, 0)"),
                3 => format!("{column} COLLATE NOCASE"),
                4 => format!("{column} COLLATE RTRIM"),
                // An application's own: writes take SQLite's path, and most scripts shall have none.
                5 if dice.one_in(8) => format!("{column} COLLATE reversed"),
                _ => column,
            };
            let direction = *dice.pick(&["", "", " DESC"]);
            parts.push(format!("{part}{direction}"));
        }
        let unique = dice.one_in(5);
        let condition = if dice.one_in(4) {
            let column = dice.pick(&table.columns);
            let test = dice.pick(&["IS NOT NULL", "> 5", "< 'b'", "IN (1,2,3,4,5,6,7)"]);
            format!(" WHERE {column} {test}")
        } else {
            String::new()
        };
        if unique {
            table.unique.push(format!("({}){condition}", parts.join(", ")));
        }
        table.indexes.push(name.clone());
        let unique = if unique { "UNIQUE " } else { "" };
        format!("CREATE {unique}INDEX {prefix}{name} ON {bare}({}){condition}", parts.join(", "))
    }

    /// Two tables with a foreign key of random actions between them.
    pub fn create_family(&mut self, dice: &mut Dice) -> Vec<String> {
        const ACTIONS: [&str; 5] = ["CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION"];
        let (parent, child) = (self.fresh("parent"), self.fresh("child"));
        let (on_delete, on_update) = (dice.pick(&ACTIONS), dice.pick(&ACTIONS));
        let deferrable = dice.pick(&["", " DEFERRABLE INITIALLY DEFERRED"]);
        let text_key = dice.one_in(2);
        let parent_sql = if text_key {
            format!("CREATE TABLE {parent}(c0 TEXT PRIMARY KEY, c1) WITHOUT ROWID")
        } else {
            format!("CREATE TABLE {parent}(c0 INTEGER PRIMARY KEY, c1)")
        };
        let child_sql = format!(
            "CREATE TABLE {child}(c0 INTEGER PRIMARY KEY, c1 DEFAULT 3 REFERENCES {parent}(c0)
             ON DELETE {on_delete} ON UPDATE {on_update}{deferrable}, c2)"
        );
        let index = self.fresh("i");
        self.tables.push(Table {
            name: parent,
            columns: vec!["c0".into(), "c1".into()],
            generated: Vec::new(),
            key: if text_key { Key::Columns(1) } else { Key::Integer },
            indexes: Vec::new(),
            unique: vec!["(c0)".into()],
        });
        self.tables.push(Table {
            name: child.clone(),
            columns: vec!["c0".into(), "c1".into(), "c2".into()],
            generated: Vec::new(),
            key: Key::Integer,
            indexes: vec![index.clone()],
            unique: vec!["(c0)".into()],
        });
        vec![parent_sql, child_sql, format!("CREATE INDEX {index} ON {child}(c1)")]
    }

    /// A log table and triggers that write to it; some refuse rows.
    pub fn create_triggers(&mut self, dice: &mut Dice) -> Vec<String> {
        let Some(table) = (!self.tables.is_empty()).then(|| dice.pick(&self.tables).clone()) else {
            return Vec::new();
        };
        let log = self.fresh("log");
        let automatic = dice.pick(&["", " AUTOINCREMENT"]);
        let mut statements =
            vec![format!("CREATE TABLE {log}(c0 INTEGER PRIMARY KEY{automatic}, c1, c2)")];
        let column = dice.pick(&table.columns).clone();
        let body =
            |row: &str| format!("INSERT INTO {log}(c1, c2) VALUES('{row}', {row}.{column});");
        let name = &table.name;
        for (event, row) in [("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old")] {
            if dice.one_in(3) {
                continue;
            }
            let trigger = self.fresh("g");
            let moment = dice.pick(&["BEFORE", "AFTER", "AFTER"]);
            let refuse = if dice.one_in(4) {
                let how = dice.pick(&["RAISE(IGNORE)", "RAISE(ABORT,'no')", "RAISE(FAIL,'no')"]);
                format!("SELECT CASE WHEN {row}.{column} = 13 THEN {how} END; ")
            } else {
                String::new()
            };
            let read = if dice.one_in(3) {
                format!(
                    "UPDATE {log} SET c2=(SELECT count(*) FROM {name}) WHERE c0=(SELECT max(c0) FROM {log}); "
                )
            } else {
                String::new()
            };
            statements.push(format!(
                "CREATE TRIGGER {trigger} {moment} {event} ON {name} BEGIN {refuse}{}{read} END",
                body(row)
            ));
        }
        self.tables.push(Table {
            name: log,
            columns: vec!["c0".into(), "c1".into(), "c2".into()],
            generated: Vec::new(),
            key: Key::Integer,
            indexes: Vec::new(),
            unique: vec!["(c0)".into()],
        });
        statements
    }

    /// A view, now and then with a trigger that makes it writable.
    pub fn create_view(&mut self, dice: &mut Dice) -> Vec<String> {
        let Some(table) = (!self.tables.is_empty()).then(|| dice.pick(&self.tables).clone()) else {
            return Vec::new();
        };
        let view = self.fresh("v");
        let (first, second) = (table.any_column(dice), dice.pick(&table.columns).clone());
        let mut statements = vec![format!(
            "CREATE VIEW {view}(v1, v2) AS SELECT {first}, {second} FROM {}",
            table.name
        )];
        if dice.one_in(2) {
            let trigger = self.fresh("g");
            statements.push(format!(
                "CREATE TRIGGER {trigger} INSTEAD OF DELETE ON {view} BEGIN
                 DELETE FROM {} WHERE {second} IS old.v2; END",
                table.name
            ));
        }
        self.views.push(view);
        statements
    }

    /// An FTS5 table.
    pub fn create_full_text(&mut self, dice: &mut Dice) -> Vec<String> {
        let name = self.fresh("f");
        let options = dice.pick(&["", ", detail=none", ", prefix='2 3'", ", detail=column"]);
        let sql = format!("CREATE VIRTUAL TABLE {name} USING fts5(a, b{options})");
        self.full_text.push(name);
        vec![sql]
    }

    /// An R-Tree table.
    pub fn create_rtree(&mut self, dice: &mut Dice) -> Vec<String> {
        let name = self.fresh("r");
        let module = dice.pick(&["rtree", "rtree_i32"]);
        let sql = format!("CREATE VIRTUAL TABLE {name} USING {module}(id, x0, x1, y0, y1)");
        self.rtrees.push(name);
        vec![sql]
    }
}

fn table_sql(dice: &mut Dice, table: &mut Table) -> String {
    let mut parts = Vec::new();
    let strict = dice.one_in(10);
    for (index, column) in table.columns.iter().enumerate() {
        parts.push(column_sql(dice, table, index, column, strict));
    }
    // SQLite 3.54.1 itself crashes when a scan of a STRICT table with a virtual column is stepped after a schema change
    // (its type check keeps a pointer to the table's old definition).
    if dice.one_in(3) && !strict {
        let column = dice.pick(&table.columns).clone();
        let expression = match dice.roll(4) {
            0 => format!("coalesce({column}, 0) || '-'"),
            1 => format!("length({column})"),
            2 => format!("abs(CAST({column} AS INTEGER) % 1000)"),
            _ => format!("upper({column})"),
        };
        let storage = dice.pick(&["STORED", "VIRTUAL"]);
        parts.push(format!("g0 GENERATED ALWAYS AS ({expression}) {storage}"));
        table.generated.push("g0".to_owned());
    }
    if let Key::Columns(count) = table.key {
        let names: Vec<String> = table.columns[..count]
            .iter()
            .map(|column| format!("{column}{}", dice.pick(&["", "", " DESC", " COLLATE NOCASE"])))
            .collect();
        parts.push(format!("PRIMARY KEY({})", names.join(", ")));
        table.unique.push(format!("({})", names.join(", ").replace(" DESC", "")));
    } else if matches!(table.key, Key::Integer | Key::Autoincrement) {
        table.unique.push("(c0)".to_owned());
    }
    if dice.one_in(5) && table.columns.len() > 2 {
        parts.push("UNIQUE(c1, c2)".to_owned());
        table.unique.push("(c1, c2)".to_owned());
    }
    let mut options = Vec::new();
    if matches!(table.key, Key::Columns(_)) {
        options.push("WITHOUT ROWID");
    }
    if strict {
        options.push("STRICT");
    }
    format!("CREATE TABLE {}({}) {}", table.name, parts.join(", "), options.join(", "))
}

fn column_sql(dice: &mut Dice, table: &Table, index: usize, column: &str, strict: bool) -> String {
    match table.key {
        Key::Integer if index == 0 => return format!("{column} INTEGER PRIMARY KEY"),
        Key::Autoincrement if index == 0 => {
            return format!("{column} INTEGER PRIMARY KEY AUTOINCREMENT");
        }
        _ => {}
    }
    let kind = if strict { "ANY" } else { *dice.pick(&TYPES) };
    let mut sql = format!("{column} {kind}");
    match dice.roll(10) {
        0 => sql.push_str(" COLLATE NOCASE"),
        1 => sql.push_str(" COLLATE RTRIM"),
        2 => sql.push_str(" NOT NULL DEFAULT 7"),
        3 => sql.push_str(" DEFAULT 'dd'"),
        4 if dice.one_in(2) => sql.push_str(" UNIQUE"),
        5 => sql.push_str(&format!(" CHECK({column} IS NOT 17)")),
        _ => {}
    }
    sql
}

//! Random statements that write: rows, virtual tables, schema, settings.

use super::dice::Dice;
use super::queries::{condition, expression, select};
use super::schema::{Key, Schema, Table};

/// INSERT, UPDATE or DELETE on a table.
pub fn write(dice: &mut Dice, schema: &Schema, table: &Table) -> String {
    match dice.weighted(&[9, 5, 4]) {
        0 => insert(dice, schema, table),
        1 => update(dice, schema, table),
        _ => delete(dice, table),
    }
}

fn returning(dice: &mut Dice, table: &Table) -> String {
    match dice.roll(6) {
        0 => " RETURNING *".to_owned(),
        1 => format!(" RETURNING {}, {}", table.any_column(dice), expression(dice, table)),
        _ => String::new(),
    }
}

fn insert(dice: &mut Dice, schema: &Schema, table: &Table) -> String {
    let conflict = *dice.pick(&[
        "INSERT",
        "INSERT",
        "INSERT",
        "INSERT",
        "INSERT OR REPLACE",
        "INSERT OR REPLACE",
        "REPLACE",
        "INSERT OR IGNORE",
        "INSERT OR FAIL",
        "INSERT OR ABORT",
        "INSERT OR ROLLBACK",
    ]);
    let name = &table.name;
    let automatic = table.has_rowid() && dice.one_in(3);
    let named_rowid = table.key == Key::Rowid && !automatic && dice.one_in(3);
    let mut columns: Vec<String> = match table.key {
        Key::Integer | Key::Autoincrement if automatic => table.columns[1..].to_vec(),
        _ => table.columns.clone(),
    };
    if named_rowid {
        columns.insert(0, "rowid".to_owned());
    }
    if dice.one_in(8) && columns.len() > 1 {
        columns.pop();
    }
    let leading_keys = match table.key {
        Key::Columns(count) => count,
        Key::Rowid => usize::from(named_rowid),
        _ => usize::from(!automatic),
    };
    if dice.one_in(9) {
        let source = select_rows(dice, schema, columns.len());
        return format!("{conflict} INTO {name}({}) {source}", columns.join(", "));
    }
    let integer_key = match table.key {
        Key::Columns(_) => false,
        _ => leading_keys == 1,
    };
    let row = |dice: &mut Dice| {
        let values: Vec<String> = (0..columns.len())
            .map(|index| match index {
                0 if integer_key && !dice.one_in(12) => dice.between(-2, 60).to_string(),
                _ if index < leading_keys => dice.key_literal(),
                _ => dice.literal(),
            })
            .collect();
        format!("({})", values.join(", "))
    };
    let count = *dice.pick(&[1, 1, 1, 2, 5]);
    let rows: Vec<String> = (0..count).map(|_| row(dice)).collect();
    let plain = conflict == "INSERT";
    let upsert = if plain && dice.one_in(3) { upsert(dice, table) } else { String::new() };
    let returned = returning(dice, table);
    format!(
        "{conflict} INTO {name}({}) VALUES{}{upsert}{returned}",
        columns.join(", "),
        rows.join(", ")
    )
}

fn select_rows(dice: &mut Dice, schema: &Schema, width: usize) -> String {
    let source =
        if schema.tables.is_empty() { None } else { Some(dice.pick(&schema.tables).clone()) };
    let mut outputs: Vec<String> = Vec::new();
    for index in 0..width {
        let output = match &source {
            Some(table) if index == 0 && dice.one_in(2) => format!("{} + 31", table.columns[0]),
            Some(table) => expression(dice, table),
            None => dice.literal(),
        };
        outputs.push(output);
    }
    match source {
        Some(table) => format!(
            "SELECT {} FROM {} ORDER BY {} LIMIT {}",
            outputs.join(", "),
            table.name,
            table.columns[0],
            1 + dice.roll(12)
        ),
        None => format!("SELECT {}", outputs.join(", ")),
    }
}

fn upsert(dice: &mut Dice, table: &Table) -> String {
    let column = dice.pick(&table.columns).clone();
    let value = match dice.roll(4) {
        0 => format!("excluded.{column}"),
        1 => dice.literal(),
        2 => dice.key_literal(),
        _ => format!("coalesce({column}, 0) || 'u'"),
    };
    let target = if table.unique.is_empty() || dice.one_in(3) {
        String::new()
    } else {
        dice.pick(&table.unique).clone()
    };
    match dice.roll(3) {
        0 => format!(" ON CONFLICT {target} DO NOTHING"),
        1 if !target.is_empty() => {
            format!(" ON CONFLICT {target} DO UPDATE SET {column} = {value} ON CONFLICT DO NOTHING")
        }
        _ => {
            let filter = if dice.one_in(3) {
                format!(" WHERE excluded.{column} IS NOT 4")
            } else {
                String::new()
            };
            format!(" ON CONFLICT {target} DO UPDATE SET {column} = {value}{filter}")
        }
    }
}

fn update(dice: &mut Dice, schema: &Schema, table: &Table) -> String {
    let conflict =
        *dice.pick(&["", "", "", "", " OR REPLACE", " OR IGNORE", " OR FAIL", " OR ROLLBACK"]);
    let mut settings = Vec::new();
    for _ in 0..=dice.roll(2) {
        let column = if table.has_rowid() && dice.one_in(12) {
            "rowid".to_owned()
        } else {
            dice.pick(&table.columns).clone()
        };
        let value = match dice.roll(6) {
            0 => format!("{column} + {}", dice.between(-2, 40)),
            1 => expression(dice, table),
            2 | 3 => dice.key_literal(),
            _ => dice.literal(),
        };
        settings.push(format!("{column} = {value}"));
    }
    let filter = if dice.one_in(8) {
        String::new()
    } else {
        format!(" WHERE {}", condition(dice, table, ""))
    };
    let name = &table.name;
    if dice.one_in(10) && !schema.tables.is_empty() {
        let other = dice.pick(&schema.tables).clone();
        return format!(
            "UPDATE{conflict} {name} SET {} FROM (SELECT * FROM {} ORDER BY {} LIMIT 1) AS o WHERE o.{} IS NOT NULL AND {}",
            format_args!(
                "{} = coalesce(o.{}, {})",
                dice.pick(&table.columns),
                dice.pick(&other.columns),
                dice.key_literal()
            ),
            other.name,
            other.columns[0],
            other.columns[0],
            format_args!(
                "{}.{} = {}",
                name.rsplit('.').next().unwrap_or(name),
                table.columns[0],
                dice.key_literal()
            )
        );
    }
    format!("UPDATE{conflict} {name} SET {}{filter}{}", settings.join(", "), returning(dice, table))
}

fn delete(dice: &mut Dice, table: &Table) -> String {
    let name = &table.name;
    match dice.roll(14) {
        0 => format!("DELETE FROM {name}"),
        1 => format!("DELETE FROM {name} WHERE 1{}", returning(dice, table)),
        2 => format!(
            "DELETE FROM {name} WHERE {0} = (SELECT max({0}) FROM {name})",
            table.columns[0]
        ),
        _ => format!(
            "DELETE FROM {name} WHERE {}{}",
            condition(dice, table, ""),
            returning(dice, table)
        ),
    }
}

/// A statement that changes rows of any table and returns none.
pub fn change(dice: &mut Dice, schema: &Schema) -> String {
    let sql = match dice.roll(8) {
        0 => full_text(dice, &schema.full_text[0]),
        1 => rtree(dice, &schema.rtrees[0]),
        _ => {
            let table = dice.pick(&schema.tables).clone();
            write(dice, schema, &table)
        }
    };
    sql.split(" RETURNING ").next().unwrap_or_default().to_owned()
}

/// Inserts at least five rows, and at most so many, into a table. `text` is what its columns from the third on get, made of
/// the number `i` of the row.
pub fn rows_at_once(dice: &mut Dice, schema: &Schema, most: i64, text: &str) -> String {
    let table = dice.pick(&schema.tables);
    let (count, start) = (dice.between(5, most), dice.between(0, 5_000));
    let outputs: Vec<String> = (0..table.columns.len())
        .map(|index| match index {
            0 => format!("{start} + i"),
            1 => "i*7919 % 1009".to_owned(),
            _ => text.to_owned(),
        })
        .collect();
    format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<{count})
         INSERT OR IGNORE INTO {}({}) SELECT {} FROM n",
        table.name,
        table.columns.join(", "),
        outputs.join(", ")
    )
}

/// A statement on a full-text table.
pub fn full_text(dice: &mut Dice, name: &str) -> String {
    let words = |dice: &mut Dice| {
        let words: Vec<String> = (0..=dice.roll(5))
            .map(|_| (*dice.pick(&["one", "two", "three", "four", "tea", "ten"])).to_owned())
            .collect();
        words.join(" ")
    };
    let rowid = dice.between(1, 25);
    match dice.roll(10) {
        0..=3 => format!(
            "INSERT OR REPLACE INTO {name}(rowid, a, b) VALUES({rowid}, '{}', '{}')",
            words(dice),
            words(dice)
        ),
        4 => format!("INSERT INTO {name}(a, b) VALUES('{}', '{}')", words(dice), words(dice)),
        5 => format!("UPDATE {name} SET a='{}' WHERE rowid={rowid}", words(dice)),
        6 => format!("DELETE FROM {name} WHERE rowid={rowid}"),
        7 => format!(
            "INSERT INTO {name}({name}) VALUES('{}')",
            dice.pick(&["optimize", "integrity-check", "rebuild"])
        ),
        8 => format!("SELECT rowid, a FROM {name} WHERE {name} MATCH 't*' ORDER BY rowid"),
        _ => format!(
            "SELECT rowid FROM {name} WHERE {name} MATCH '{}' ORDER BY rank, rowid",
            dice.pick(&["one", "two", "tea OR ten", "three AND four"])
        ),
    }
}

/// A statement on an R-Tree.
pub fn rtree(dice: &mut Dice, name: &str) -> String {
    let (x, y) = (dice.between(0, 100), dice.between(0, 100));
    let id = dice.between(1, 40);
    match dice.roll(8) {
        0..=3 => format!(
            "INSERT OR REPLACE INTO {name} VALUES({id}, {x}, {}, {y}, {})",
            x + dice.between(0, 9),
            y + dice.between(0, 9)
        ),
        4 => format!("UPDATE {name} SET x1 = x1 + 5 WHERE id = {id}"),
        5 => format!("DELETE FROM {name} WHERE id = {id}"),
        _ => format!(
            "SELECT id, x0, x1 FROM {name} WHERE x1 >= {x} AND x0 <= {} ORDER BY id",
            x + 30
        ),
    }
}

/// A change of the schema in the middle of things. The generator's picture of it follows.
pub fn schema_change(dice: &mut Dice, schema: &mut Schema) -> Vec<String> {
    if schema.tables.is_empty() {
        return schema.create_table(dice, "");
    }
    let position = dice.roll(schema.tables.len());
    let name = schema.tables[position].name.clone();
    match dice.roll(12) {
        0 | 1 => schema.create_table(dice, ""),
        2 | 3 => {
            let mut table = schema.tables[position].clone();
            let sql = schema.create_index(dice, &mut table, "");
            schema.tables[position] = table;
            vec![sql]
        }
        4 => match schema.tables[position].indexes.pop() {
            Some(index) => vec![format!("DROP INDEX {index}")],
            None => vec![format!("REINDEX {name}")],
        },
        5 => {
            let column = format!("n{}", dice.roll(100));
            let default = dice.pick(&["", " DEFAULT 5", " DEFAULT 'x'"]);
            let sql = format!("ALTER TABLE {name} ADD COLUMN {column}{default}");
            schema.tables[position].columns.push(column);
            vec![sql]
        }
        6 => {
            let renamed = format!("{name}x");
            schema.tables[position].name.clone_from(&renamed);
            vec![format!("ALTER TABLE {name} RENAME TO {renamed}")]
        }
        7 if schema.tables[position].columns.len() > 2 => {
            let column = schema.tables[position].columns.pop().expect("there are more than two");
            vec![format!("ALTER TABLE {name} DROP COLUMN {column}")]
        }
        8 if schema.tables.len() > 2 => {
            schema.tables.swap_remove(position);
            vec![format!("DROP TABLE {name}")]
        }
        9 => schema.create_triggers(dice),
        10 => schema.create_view(dice),
        _ => {
            let copy = format!("copy{}", dice.roll(1000));
            let columns = schema.tables[position].columns.clone();
            let sql = format!("CREATE TABLE {copy} AS SELECT {} FROM {name}", columns.join(", "));
            schema.tables.push(Table {
                name: copy,
                columns,
                generated: Vec::new(),
                key: Key::Rowid,
                indexes: Vec::new(),
                unique: Vec::new(),
            });
            vec![sql]
        }
    }
}

/// A pragma, VACUUM, ANALYZE or the like. Statements that write to every attached database at once name main instead:
/// a commit over several concurrent files is refused.
pub fn maintenance(dice: &mut Dice, schema: &Schema, in_transaction: bool) -> String {
    match dice.roll(14) {
        0 | 1 => format!("PRAGMA user_version = {}", dice.between(0, 99)),
        2 => format!("PRAGMA application_id = {}", dice.between(0, 99)),
        4 | 5 if !in_transaction => "PRAGMA integrity_check".to_owned(),
        6 if !in_transaction => "PRAGMA quick_check".to_owned(),
        7 => "PRAGMA foreign_key_check".to_owned(),
        8 => "VACUUM".to_owned(),
        9 | 10 => "ANALYZE main".to_owned(),
        11 if !schema.tables.is_empty() => format!("REINDEX {}", dice.pick(&schema.tables).name),
        12 => format!("PRAGMA foreign_keys = {}", dice.roll(2)),
        13 => format!("PRAGMA defer_foreign_keys = {}", dice.roll(2)),
        _ => "PRAGMA user_version".to_owned(),
    }
}

/// Any single statement that suits an autocommit transaction or the inside of one.
pub fn any(dice: &mut Dice, schema: &Schema) -> String {
    let choice = dice.weighted(&[12, 7, 2, 2, 2]);
    if choice == 2 && !schema.full_text.is_empty() {
        let name = dice.pick(&schema.full_text).clone();
        return full_text(dice, &name);
    }
    if choice == 3 && !schema.rtrees.is_empty() {
        let name = dice.pick(&schema.rtrees).clone();
        return rtree(dice, &name);
    }
    let table = if choice == 4 && !schema.temp_tables.is_empty() {
        dice.pick(&schema.temp_tables).clone()
    } else {
        dice.pick(&schema.tables).clone()
    };
    if choice == 1 { select(dice, schema, &table) } else { write(dice, schema, &table) }
}

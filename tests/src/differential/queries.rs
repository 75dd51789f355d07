//! Random expressions, conditions and SELECT statements.

use super::dice::Dice;
use super::schema::{Key, Schema, Table};

/// A condition over a table's columns.
pub fn condition(dice: &mut Dice, table: &Table, qualifier: &str) -> String {
    let simple = |dice: &mut Dice| {
        let column = match dice.roll(3) {
            0 => key_column(table),
            _ => table.any_column(dice),
        };
        let column = format!("{qualifier}{column}");
        match dice.roll(14) {
            0..=3 => format!("{column} = {}", dice.key_literal()),
            4 | 5 => {
                let operator = *dice.pick(&["<", "<=", ">", ">="]);
                format!("{column} {operator} {}", dice.key_literal())
            }
            6 => {
                let low = dice.between(0, 25);
                format!("{column} BETWEEN {low} AND {}", low + dice.between(0, 12))
            }
            7 => {
                let list: Vec<String> = (0..=dice.roll(5)).map(|_| dice.key_literal()).collect();
                format!("{column} IN ({})", list.join(", "))
            }
            8 => format!("{column} IS NULL"),
            9 => format!("{column} IS NOT NULL"),
            10 => format!("{column} LIKE '{}%'", dice.word()),
            11 => format!(
                "typeof({column}) = '{}'",
                dice.pick(&["integer", "text", "real", "blob", "null"])
            ),
            12 => format!("{column} IS {}", dice.literal()),
            _ => format!("{column} % 3 = {}", dice.roll(3)),
        }
    };
    match dice.roll(6) {
        0 => format!("{} AND {}", simple(dice), simple(dice)),
        1 => format!("({} OR {})", simple(dice), simple(dice)),
        _ => simple(dice),
    }
}

/// The first column of the key, or `rowid`.
pub fn key_column(table: &Table) -> String {
    match table.key {
        Key::Rowid => "rowid".to_owned(),
        _ => table.columns[0].clone(),
    }
}

/// A scalar expression over a table's columns.
pub fn expression(dice: &mut Dice, table: &Table) -> String {
    let column = table.any_column(dice);
    match dice.roll(10) {
        0..=3 => column,
        4 => format!("{column} + 1"),
        5 => format!("{column} || 'x'"),
        6 => format!("coalesce({column}, {})", dice.key_literal()),
        7 => format!("length({column})"),
        8 => format!(
            "CASE WHEN {} THEN {} ELSE {column} END",
            condition(dice, table, ""),
            dice.literal()
        ),
        _ => dice.literal(),
    }
}

/// A SELECT whose result SQLite defines by the order of its scans.
pub fn select(dice: &mut Dice, schema: &Schema, table: &Table) -> String {
    let name = &table.name;
    let condition_text = condition(dice, table, "");
    let filter = if dice.one_in(4) { String::new() } else { format!(" WHERE {condition_text}") };
    let column = table.any_column(dice);
    match dice.roll(20) {
        0..=3 => format!("SELECT * FROM {name}{}{filter}{}", hint(dice, table), order(dice, table)),
        4 => format!("SELECT count(*) FROM {name}{filter}"),
        5 => {
            format!("SELECT {}({column}) FROM {name}", dice.pick(&["min", "max", "count", "total"]))
        }
        6 => format!("SELECT {}({column}) FROM {name}{filter}", dice.pick(&["min", "max"])),
        7 => format!(
            "SELECT {column}, count(*), group_concat({}, ',') FROM {name}{filter} GROUP BY 1 ORDER BY 1",
            table.columns[0]
        ),
        8 => format!("SELECT DISTINCT {column} FROM {name}{filter}"),
        9..=12 => join(dice, schema, table),
        13 => {
            let other = pick_table(dice, schema, table);
            format!(
                "SELECT {} FROM {name} WHERE {column} IN (SELECT {} FROM {})",
                table.columns[0],
                other.any_column(dice),
                other.name
            )
        }
        14 => {
            let other = pick_table(dice, schema, table);
            format!(
                "SELECT * FROM {name} WHERE {} EXISTS(SELECT 1 FROM {} AS o WHERE o.{} = {name_bare}.{})",
                dice.pick(&["", "NOT"]),
                other.name,
                other.columns[0],
                table.columns[0],
                name_bare = bare(name),
            )
        }
        15 => {
            let other = pick_table(dice, schema, table);
            let operator = dice.pick(&["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]);
            format!(
                "SELECT {column} FROM {name} {operator} SELECT {} FROM {} ORDER BY 1",
                other.any_column(dice),
                other.name
            )
        }
        16 => format!(
            "SELECT {column}, row_number() OVER (ORDER BY {}) FROM {name}{filter}",
            table.columns[0]
        ),
        17 => {
            format!("SELECT {} FROM {name}{filter}{}", expression(dice, table), order(dice, table))
        }
        18 => format!(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<12)
             SELECT i, (SELECT count(*) FROM {name} WHERE {column}=i) FROM n"
        ),
        _ if !schema.views.is_empty() => {
            let view = dice.pick(&schema.views);
            format!("SELECT * FROM {view} WHERE v2 IS NOT {}", dice.key_literal())
        }
        _ => format!("SELECT quote({column}) FROM {name}{filter}"),
    }
}

/// A SELECT that walks rows in a certain way, for a cursor that stays open.
pub fn scan(dice: &mut Dice, schema: &Schema, table: &Table) -> String {
    let name = &table.name;
    let key = key_column(table);
    match dice.roll(8) {
        0 => format!("SELECT * FROM {name}"),
        1 => format!("SELECT * FROM {name} ORDER BY {key} DESC"),
        2 => format!("SELECT * FROM {name} WHERE {key} > {} ORDER BY {key}", dice.key_literal()),
        3 => {
            format!("SELECT * FROM {name} WHERE {key} < {} ORDER BY {key} DESC", dice.key_literal())
        }
        4 | 5 => {
            let column = table.any_column(dice);
            let direction = dice.pick(&["", "DESC"]);
            format!(
                "SELECT {column}, * FROM {name}{} WHERE {column} IS NOT NULL ORDER BY {column} {direction}",
                hint(dice, table)
            )
        }
        6 => join(dice, schema, table),
        _ => select(dice, schema, table),
    }
}

fn bare(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn hint(dice: &mut Dice, table: &Table) -> String {
    if !table.indexes.is_empty() && dice.one_in(3) {
        return format!(" INDEXED BY {}", dice.pick(&table.indexes));
    }
    (*dice.pick(&["", "", "", " NOT INDEXED"])).to_owned()
}

fn order(dice: &mut Dice, table: &Table) -> String {
    if dice.one_in(3) {
        return String::new();
    }
    let first = table.any_column(dice);
    let direction = dice.pick(&["", " DESC"]);
    let limit = if dice.one_in(3) {
        format!(" LIMIT {} OFFSET {}", dice.roll(8), dice.roll(3))
    } else {
        String::new()
    };
    format!(" ORDER BY {first}{direction}, {}{limit}", table.columns[0])
}

fn pick_table(dice: &mut Dice, schema: &Schema, table: &Table) -> Table {
    if schema.tables.is_empty() { table.clone() } else { dice.pick(&schema.tables).clone() }
}

fn join(dice: &mut Dice, schema: &Schema, table: &Table) -> String {
    let other = pick_table(dice, schema, table);
    let (left, right) = (dice.pick(&table.columns).clone(), dice.pick(&other.columns).clone());
    let kind =
        *dice.pick(&["JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"]);
    let filter = if dice.one_in(2) {
        format!(" WHERE {}", condition(dice, table, "x."))
    } else {
        String::new()
    };
    format!(
        "SELECT x.{left}, y.{right}, x.{}, y.{} FROM {} AS x {kind} {} AS y ON x.{left} = y.{right}{filter} LIMIT 200",
        table.columns[0], other.columns[0], table.name, other.name
    )
}

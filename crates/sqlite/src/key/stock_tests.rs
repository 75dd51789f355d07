//! Compares the order of keys with ORDER BY of the unspliced SQLite, where its shell has
//! been built.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::order_tests::{Owned, encodings, fields, key_of, values};
use super::*;

/// Returns the stock shell that `make dist` builds, or the one that `PLAIT_STOCK_SHELL` names.
fn stock_shell() -> Option<PathBuf> {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../dist/stock/bin/sqlite3");
    let path = std::env::var_os("PLAIT_STOCK_SHELL").map_or(built, PathBuf::from);
    path.exists().then_some(path)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn literal(value: &Owned) -> String {
    match value {
        Owned::Null => "NULL".into(),
        Owned::Integer(i) if *i == i64::MIN => "(-9223372036854775807-1)".into(),
        Owned::Integer(i) => i.to_string(),
        Owned::Real(r) => format!("ieee754_from_blob(x'{:016x}')", r.to_bits()),
        Owned::Text(text) => format!("CAST(x'{}' AS TEXT)", hex(text)),
        Owned::Blob(bytes, zeros) => format!("x'{}{}'", hex(bytes), "00".repeat(*zeros)),
    }
}

fn order_by(fields: &[u8]) -> String {
    let terms = fields.iter().zip(["a", "b", "c"]).map(|(field, column)| {
        let collation = ["BINARY", "NOCASE", "RTRIM"][usize::from(field & !FIELD_DESC)];
        let direction = if field & FIELD_DESC != 0 { "DESC" } else { "ASC" };
        format!("{column} COLLATE {collation} {direction}")
    });
    terms.collect::<Vec<_>>().join(", ")
}

fn script(rows: &[Vec<Owned>], fields: &[u8], encoding: TextEncoding) -> String {
    let name = match encoding {
        TextEncoding::Utf8 => "UTF-8",
        TextEncoding::Utf16le => "UTF-16le",
        TextEncoding::Utf16be => "UTF-16be",
    };
    let mut script = format!(
        "PRAGMA encoding='{name}';CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, c);BEGIN;\n"
    );
    for (id, row) in rows.iter().enumerate() {
        let literals: Vec<String> = row.iter().map(literal).collect();
        script += &format!("INSERT INTO t VALUES({id},{});\n", literals.join(","));
    }
    script + &format!("COMMIT;SELECT id FROM t ORDER BY {}, id;\n", order_by(fields))
}

/// A UTF-16 database stores whole units only: cut odd text as its CAST does.
fn stored(mut rows: Vec<Vec<Owned>>, encoding: TextEncoding) -> Vec<Vec<Owned>> {
    for value in rows.iter_mut().flatten() {
        if let Owned::Text(text) = value
            && encoding != TextEncoding::Utf8
        {
            text.truncate(text.len() & !1);
        }
    }
    rows
}

// holds KEY-1
#[test]
fn keys_order_as_stock_sqlite_orders_rows() {
    let Some(shell) = stock_shell() else {
        eprintln!("skipped: the stock shell is not built");
        return;
    };
    let config =
        ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let cases = (vec(vec(values(), 3), 40..120), fields(), encodings());
    let outcome = runner.run(&cases, |(rows, fields, encoding)| {
        let rows = stored(rows, encoding);
        let mut child = Command::new(&shell)
            .args(["-batch", "-bail", ":memory:"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("stock shell starts");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(script(&rows, &fields, encoding).as_bytes()).expect("script written");
        drop(stdin);
        let output = child.wait_with_output().expect("stock shell ends");
        prop_assert!(output.status.success());
        let stock: Vec<usize> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        let mut ours: Vec<usize> = (0..rows.len()).collect();
        ours.sort_by_cached_key(|id| (key_of(&rows[*id], &fields, encoding), *id));
        prop_assert_eq!(stock, ours, "by {:02x?} in {:?}", fields, encoding);
        Ok(())
    });
    outcome.expect("equal orders");
}

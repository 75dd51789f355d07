//! The tables of the mix in [`super::tpcc`], and what must hold of them whenever nobody writes.
//!
//! The conditions are those of the standard (TPC-C, clause 3.3.2) that concern what is kept here:
//!
//! 1. A warehouse's takings are those of its districts (condition 1), and the payments in its history (8, 9).
//! 2. A district's next order number follows that of its last order, and of its last new order (2).
//! 3. Numbers of new orders have no gaps (3).
//! 4. An order has as many lines as it says (4, 6).
//! 5. An order has a carrier when, and only when, it is not new (5), and so have its lines been delivered (7).
//!
//! To that: there are as many orders as there were and were acknowledged, and as many payments.

use super::members::Together;
use super::tpcc::Kind;
use crate::sqlite::{Connection, Result};
use anyhow::ensure;

/// Warehouses.
pub const WAREHOUSES: i64 = 10;
/// Districts of a warehouse.
pub const DISTRICTS: i64 = 10;
/// Articles, each in the stock of all warehouses.
pub const ITEMS: i64 = 10_000;
/// Customers of a district.
pub const CUSTOMERS: i64 = 300;
/// Their last names.
pub const LAST_NAMES: i64 = 30;
/// Orders of a district to begin with.
const ORDERS: i64 = 100;
/// Of these, those that are not delivered: the last.
const NEW_ORDERS: i64 = 30;

/// Makes the tables.
pub fn fill(connection: &Connection) -> Result<()> {
    connection.execute(
        "CREATE TABLE warehouse(w INTEGER PRIMARY KEY, tax INTEGER, ytd INTEGER);
         CREATE TABLE district(w, d, tax, ytd, next_o, PRIMARY KEY(w, d)) WITHOUT ROWID;
         CREATE TABLE customer(w, d, c, last, first, discount, balance, paid, payments, deliveries, filler,
             PRIMARY KEY(w, d, c)) WITHOUT ROWID;
         CREATE INDEX customer_name ON customer(w, d, last, first);
         CREATE TABLE history(id INTEGER PRIMARY KEY, w, d, c_w, c_d, c, amount);
         CREATE TABLE item(i INTEGER PRIMARY KEY, price INTEGER, filler);
         CREATE TABLE stock(w, i, quantity, ytd, orders, filler, PRIMARY KEY(w, i)) WITHOUT ROWID;
         CREATE TABLE orders(w, d, o, c, carrier, lines, PRIMARY KEY(w, d, o)) WITHOUT ROWID;
         CREATE INDEX orders_customer ON orders(w, d, c, o);
         CREATE TABLE new_order(w, d, o, PRIMARY KEY(w, d, o)) WITHOUT ROWID;
         CREATE TABLE order_line(w, d, o, line, i, supplier, quantity, amount, delivered, filler,
             PRIMARY KEY(w, d, o, line)) WITHOUT ROWID",
    )?;
    let numbers = |name: &str, most: i64| {
        format!("{name}(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM {name} WHERE x<{most})")
    };
    let (w, d) = (numbers("w", WAREHOUSES), numbers("d", DISTRICTS));
    let (c, i, o) = (numbers("c", CUSTOMERS), numbers("i", ITEMS), numbers("o", ORDERS));
    let line = numbers("line", 15);
    let delivered = ORDERS - NEW_ORDERS;
    // Every number of lines from 5 to 15 occurs, and customers order in no order.
    connection.execute(&format!(
        "BEGIN;
         WITH RECURSIVE {w} INSERT INTO warehouse SELECT x, x*181%2001, 0 FROM w;
         WITH RECURSIVE {w}, {d} INSERT INTO district SELECT w.x, d.x, (w.x+d.x)*181%2001, 0, {ORDERS}+1 FROM w, d;
         WITH RECURSIVE {w}, {d}, {c} INSERT INTO customer
             SELECT w.x, d.x, c.x, c.x%{LAST_NAMES}, hex(randomblob(6)), c.x*181%5001, -1000, 1000, 1, 0,
             randomblob(400) FROM w, d, c;
         WITH RECURSIVE {i} INSERT INTO item SELECT x, 100+x*7919%9901, randomblob(50) FROM i;
         WITH RECURSIVE {w}, {i} INSERT INTO stock SELECT w.x, i.x, 10+i.x*7919%91, 0, 0, randomblob(250) FROM w, i;
         WITH RECURSIVE {w}, {d}, {o} INSERT INTO orders SELECT w.x, d.x, o.x, 1+(o.x*7919+d.x)%{CUSTOMERS},
             CASE WHEN o.x<={delivered} THEN 1+o.x%10 END, 5+o.x%11 FROM w, d, o;
         INSERT INTO new_order SELECT w, d, o FROM orders WHERE carrier IS NULL;
         WITH RECURSIVE {line} INSERT INTO order_line SELECT w, d, o, x, 1+(o*7919+x*104729+d)%{ITEMS}, w, 5,
             1+o*7919%999999, CASE WHEN carrier IS NOT NULL THEN 1 END, abs(random()%1000000000)
             FROM orders, line WHERE x<=lines;
         COMMIT"
    ))
}

/// Each must give nothing, else it says where the condition of its number does not hold.
const CONDITIONS: [(u32, &str); 9] = [
    (1, "SELECT w FROM warehouse x WHERE ytd<>(SELECT sum(ytd) FROM district WHERE w=x.w)"),
    (
        1,
        "SELECT w FROM warehouse x WHERE ytd<>(SELECT total(amount) FROM history WHERE w=x.w)
         UNION ALL SELECT w FROM district x
         WHERE ytd<>(SELECT total(amount) FROM history WHERE w=x.w AND d=x.d)",
    ),
    (
        2,
        "SELECT w FROM district x WHERE next_o<>1+(SELECT max(o) FROM orders WHERE w=x.w AND d=x.d)",
    ),
    (
        2,
        "SELECT w FROM district x
         WHERE next_o<>1+(SELECT max(o) FROM new_order WHERE w=x.w AND d=x.d)",
    ),
    (
        2,
        "SELECT w FROM district x WHERE next_o<>1+(SELECT count(*) FROM orders WHERE w=x.w AND d=x.d)",
    ),
    (3, "SELECT w FROM new_order GROUP BY w, d HAVING max(o)-min(o)+1<>count(*)"),
    (
        4,
        "SELECT w FROM orders x
         WHERE lines<>(SELECT count(*) FROM order_line WHERE w=x.w AND d=x.d AND o=x.o)",
    ),
    (
        5,
        "SELECT w FROM orders x
         WHERE (carrier IS NULL)<>EXISTS(SELECT 1 FROM new_order WHERE w=x.w AND d=x.d AND o=x.o)",
    ),
    (
        5,
        "SELECT w FROM orders JOIN order_line USING(w, d, o)
         WHERE (carrier IS NULL)<>(delivered IS NULL)",
    ),
];

/// All conditions hold, and what was acknowledged is there.
pub fn verify(connection: &Connection, together: &Together) -> anyhow::Result<()> {
    for (number, sql) in CONDITIONS {
        let broken = connection.integer(&format!("SELECT count(*) FROM ({sql})"))?;
        ensure!(broken == 0, "condition {number} does not hold at {broken} places: {sql}");
    }
    let acknowledged =
        |kind: Kind| together.writers.iter().map(|count| count.kinds[kind as usize]).sum::<u64>();
    let begun_with = (WAREHOUSES * DISTRICTS * ORDERS).unsigned_abs();
    let of = |sql| connection.integer(sql).map(i64::unsigned_abs);
    let (orders, expected) =
        (of("SELECT count(*) FROM orders")?, begun_with + acknowledged(Kind::NewOrder));
    ensure!(orders == expected, "{orders} orders, but {expected} were acknowledged");
    let lines = of("SELECT count(*) FROM order_line")?;
    ensure!(lines == of("SELECT sum(lines) FROM orders")?, "{lines} lines, some of no order");
    let (payments, expected) = (of("SELECT count(*) FROM history")?, acknowledged(Kind::Payment));
    ensure!(payments == expected, "{payments} payments, but {expected} were acknowledged");
    let check = connection.text("PRAGMA integrity_check")?;
    ensure!(check == "ok", "{check}");
    Ok(())
}

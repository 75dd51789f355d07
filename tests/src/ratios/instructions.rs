//! The instructions of a transaction in user mode, which do not depend on the disk or on neighbours: BEGIN
//! CONCURRENT, a select by key, an update, COMMIT in a session, held against BEGIN IMMEDIATE and the same in
//! stock SQLite's WAL.
//!
//! NORMAL on both sides: a wait for the disk has no instructions, but a thread that looks for company before
//! it syncs has some, and a different number each time.

use super::table::Line;
use crate::subject::Subject;
use crate::walks::{READ, UPDATE, can_count, instructions, walk};
use anyhow::Result;

/// Its name on the command line.
pub const NAME: &str = "instructions";
/// What it says.
pub const TITLE: &str = "instructions of BEGIN, read, update, COMMIT";
/// At most so many times those of stock.
const MOST: f64 = 1.3;

/// Counts them; none without valgrind, which says so.
pub fn measure(stock: &Subject, plait: &Subject) -> Result<Option<Line>> {
    if !can_count() {
        println!("{NAME}: left out, since valgrind, which counts them, is not installed");
        return Ok(None);
    }
    let count = |subject: &Subject, begin| -> Result<i64> {
        let walked = walk(subject, subject.mode.name(), &[begin, READ, UPDATE, "COMMIT"])?;
        Ok(instructions(&walked))
    };
    let (stock, plait) = (count(stock, "BEGIN IMMEDIATE")?, count(plait, "BEGIN CONCURRENT")?);
    let ratio = plait as f64 / stock as f64;
    Ok(Some(Line {
        title: TITLE.to_owned(),
        stock: None,
        plait: None,
        required: format!("{MOST:.2} x"),
        measured: format!("{ratio:.2} x, {plait} of {stock}"),
        reached: ratio <= MOST,
    }))
}

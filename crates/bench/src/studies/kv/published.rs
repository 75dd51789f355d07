//! The published figures of "SQLite as a key-value database" (SQLite's wiki, August 2009): operations a second of
//! SQLite 3.6.19 and Berkeley DB 4.8.24 on 32-bit x86 Linux 2.6.27 with ext3.

/// How the stores were set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// An unnamed temporary store.
    Transient,
    /// A file of one user, safe from nothing.
    Persistent,
    /// A file of many users, with durable transactions of 1,000 inserts.
    Transactional,
}

/// The tests, in the order of the columns: also the phases of a trial.
pub const TESTS: [&str; 4] = ["insert int", "select int", "insert blob", "select blob"];

/// A size and configuration that was published.
pub struct Block {
    /// Rows in each table.
    pub rows: u64,
    /// How the stores were set up.
    pub configuration: Configuration,
    /// SQLite's figures for [`TESTS`].
    pub sqlite: [u32; 4],
    /// Berkeley DB's.
    pub bdb: [u32; 4],
}

const fn block(rows: u64, configuration: Configuration, sqlite: [u32; 4], bdb: [u32; 4]) -> Block {
    Block { rows, configuration, sqlite, bdb }
}

use Configuration::{Persistent, Transactional, Transient};

/// All that was published, in its order; 500,000 rows with transactions were not.
pub const BLOCKS: [Block; 8] = [
    block(5_000, Transient, [57695, 345137, 47163, 183857], [454504, 690417, 464986, 649266]),
    block(5_000, Persistent, [51874, 334470, 46093, 183634], [444168, 684088, 425061, 590737]),
    block(50_000, Transient, [49766, 261159, 41629, 150527], [351000, 476894, 336806, 465670]),
    block(50_000, Persistent, [49635, 268691, 41457, 148248], [341476, 477920, 326038, 453597]),
    block(5_000, Transactional, [36720, 69611, 28525, 60767], [49536, 339881, 56251, 313558]),
    block(50_000, Transactional, [4949, 67449, 8403, 57660], [48729, 260517, 37934, 240469]),
    block(500_000, Transient, [7186, 111043, 23178, 96063], [10503, 53575, 5704, 55766]),
    block(500_000, Persistent, [10118, 108121, 21322, 94154], [5996, 47929, 8792, 42691]),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as it was copied from the publication.
    const TABLE: &str = "\
| 5,000 transient | 57695 / 454504 | 345137 / 690417 | 47163 / 464986 | 183857 / 649266 |
| 5,000 persistent | 51874 / 444168 | 334470 / 684088 | 46093 / 425061 | 183634 / 590737 |
| 50,000 transient | 49766 / 351000 | 261159 / 476894 | 41629 / 336806 | 150527 / 465670 |
| 50,000 persistent | 49635 / 341476 | 268691 / 477920 | 41457 / 326038 | 148248 / 453597 |
| 5,000 transactional | 36720 / 49536 | 69611 / 339881 | 28525 / 56251 | 60767 / 313558 |
| 50,000 transactional | 4949 / 48729 | 67449 / 260517 | 8403 / 37934 | 57660 / 240469 |
| 500,000 transient | 7186 / 10503 | 111043 / 53575 | 23178 / 5704 | 96063 / 55766 |
| 500,000 persistent | 10118 / 5996 | 108121 / 47929 | 21322 / 8792 | 94154 / 42691 |
";

    #[test]
    fn the_figures_are_those_of_the_published_table() {
        let lines: Vec<&str> = TABLE.lines().collect();
        assert_eq!(lines.len(), BLOCKS.len());
        for (line, block) in lines.into_iter().zip(&BLOCKS) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let name = format!("{} {:?}", block.rows, block.configuration).to_lowercase();
            assert_eq!(cells[0].replace(',', ""), name);
            for (test, cell) in cells[1..].iter().enumerate() {
                let here = format!("{} / {}", block.sqlite[test], block.bdb[test]);
                assert_eq!(*cell, here, "{name}, {}", TESTS[test]);
            }
        }
    }
}

//! Which engines are here, which are missing, and what installs those.

use comfy_table::{Attribute, Cell, Table};

use super::terminal::plain_table;
use crate::engines::catalogue::{Entry, Presence};

/// What an engine is, and the settings with which a commit of it survives a power cut.
struct About {
    name: &'static str,
    what: &'static str,
    durable: &'static str,
}

const ABOUT: &[About] = &[
    About { name: "stock", what: "SQLite as it comes", durable: "synchronous=full" },
    About { name: "plait", what: "SQLite with many writers", durable: "synchronous=full" },
    About { name: "plait-kv", what: "the same by keys, plait.h", durable: "synchronous=full" },
    About { name: "bdb-sql", what: "SQLite's SQL above Berkeley DB", durable: "synchronous=full" },
    About {
        name: "postgres",
        what: "SQL server, a cluster for each trial",
        durable: "fsync=on, synchronous_commit=on",
    },
    About { name: "bdb", what: "Berkeley DB by keys", durable: "environment without TXN_NOSYNC" },
    About {
        name: "lmdb",
        what: "B+tree in mapped memory, by keys",
        durable: "default flags (meta page O_DSYNC)",
    },
    About { name: "redb", what: "B+tree in Rust, by keys", durable: "Durability::Immediate" },
    About { name: "fjall", what: "LSM tree in Rust, by keys", durable: "SyncAll at each commit" },
    About { name: "rocksdb", what: "LSM tree, by keys", durable: "WriteOptions.sync" },
    About { name: "turso", what: "SQLite rewritten in Rust", durable: "synchronous=full" },
    About { name: "map", what: "map in memory, a ceiling", durable: "none" },
    About {
        name: "files",
        what: "a file for each record",
        durable: "temporary file, fsync, rename, fsync of the folder",
    },
    About { name: "dict", what: "Python dictionary, a ceiling", durable: "none" },
    About {
        name: "log",
        what: "map behind a bare log, a limit",
        durable: "fdatasync for each group of commits",
    },
];

/// Engines of the command line have SQLite's interface.
const NAMED: About =
    About { name: "", what: "library with SQLite's interface", durable: "synchronous=full" };

/// The table of `plait bench engines`, one engine a row.
#[must_use]
pub fn table(entries: &[Entry]) -> Table {
    let mut table = plain_table();
    let titles =
        ["engine", "what it is", "durable by", "here", "version, or why not and what helps"];
    table.set_header(titles.map(|title| Cell::new(title).add_attribute(Attribute::Dim)));
    for entry in entries {
        let about = ABOUT.iter().find(|about| about.name == entry.name).unwrap_or(&NAMED);
        let (here, words) = match &entry.presence {
            Presence::Here { version, .. } => ("yes", version.clone()),
            Presence::Absent { why, install } if install.is_empty() => ("absent", why.clone()),
            Presence::Absent { why, install } => ("absent", format!("{why}: {install}")),
        };
        table.add_row([&entry.name, about.what, about.durable, here, &words]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::catalogue;

    #[test]
    fn every_engine_of_the_catalogue_is_described() {
        for entry in catalogue::all(&[]).unwrap() {
            assert!(ABOUT.iter().any(|about| about.name == entry.name), "{}", entry.name);
        }
    }

    #[test]
    fn an_absent_engine_keeps_its_row_with_what_installs_it() {
        let absent = Entry {
            name: "rocksdb".to_owned(),
            title: "RocksDB".to_owned(),
            presence: Presence::Absent {
                why: "not found".to_owned(),
                install: "make bench-peers".to_owned(),
            },
        };
        let text = table(&[absent]).to_string();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("rocksdb") && words.contains("absent"), "{text}");
        assert!(words.contains("make") && words.contains("bench-peers"), "{text}");
    }
}

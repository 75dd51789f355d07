//! Copies of a dead database's files, to be damaged, mixed and opened.

use super::audit::Acknowledged;
use super::case::PATIENCE;
use super::start;
use crate::jobs::ledger::{Ledger, schema};
use crate::subject::{Fixture, Subject, Synchronous};
use std::collections::BTreeMap;
use std::path::Path;

/// What a database's files are called after its own name.
pub const SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-plait", "-plait-shm"];

/// The files of a database at one moment.
#[derive(Clone, Debug)]
pub struct Image(BTreeMap<&'static str, Vec<u8>>);

impl Image {
    /// Reads the files.
    ///
    /// # Panics
    /// If one of them is there but cannot be read.
    #[must_use]
    pub fn of(database: &Path) -> Self {
        let read = |suffix: &&'static str| {
            let path = beside(database, suffix);
            path.exists().then(|| (*suffix, std::fs::read(path).expect("the file can be read")))
        };
        Self(SUFFIXES.iter().filter_map(read).collect())
    }

    /// Without one of the files.
    #[must_use]
    pub fn without(mut self, suffix: &str) -> Self {
        self.0.remove(suffix);
        self
    }

    /// With one of the files as another image has it.
    #[must_use]
    pub fn with(mut self, suffix: &'static str, other: &Self) -> Self {
        match other.0.get(suffix) {
            Some(bytes) => drop(self.0.insert(suffix, bytes.clone())),
            None => drop(self.0.remove(suffix)),
        }
        self
    }

    /// The bytes of a file.
    ///
    /// # Panics
    /// If the image has no such file.
    pub fn bytes(&mut self, suffix: &'static str) -> &mut Vec<u8> {
        self.0.get_mut(suffix).unwrap_or_else(|| panic!("the image has no {suffix}"))
    }

    /// Whether there is such a file.
    #[must_use]
    pub fn has(&self, suffix: &str) -> bool {
        self.0.contains_key(suffix)
    }

    /// Writes the files as a database of this path, in place where they exist, and removes those that it does not have.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn put(&self, database: &Path) {
        for suffix in SUFFIXES {
            let path = beside(database, suffix);
            match self.0.get(suffix) {
                Some(bytes) => std::fs::write(path, bytes).expect("the file can be written"),
                None => drop(std::fs::remove_file(path)),
            }
        }
    }
}

fn beside(database: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Has a worker make entries in an ordered book, kills it and returns what it had acknowledged.
///
/// # Panics
/// If it does not come so far.
pub fn live_and_die(fixture: &Fixture, entries: i64, merge_every: u64) -> Acknowledged {
    let ledger = Ledger { merge_every, synchronous: Synchronous::Full, ..Ledger::default() };
    let mut job = start(fixture, ledger);
    let mut acknowledged = Acknowledged::default();
    while acknowledged.sum() < entries {
        let line = job.next_line(PATIENCE * 2).expect("the worker makes entries");
        acknowledged.note(line);
    }
    job.kill();
    let (lines, _) = job.wait(PATIENCE).expect("it is dead");
    for line in lines {
        acknowledged.note(line);
    }
    acknowledged
}

/// A database whose only process was killed: fenced, with commits in its log and shared memory.
#[must_use]
pub fn dead_database(subject: &Subject, entries: i64, merge_every: u64) -> (Fixture, Acknowledged) {
    let fixture = Fixture::new(subject.clone(), &schema(true));
    let acknowledged = live_and_die(&fixture, entries, merge_every);
    (fixture, acknowledged)
}

//! Transactions as their workers saw them.

use crate::os::monotonic_ns;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::io::BufRead as _;
use std::path::PathBuf;

/// Registers, keys of the key-value API in a table of the first file, begin here.
pub const REGISTERS: i64 = 1 << 19;
/// Keys of the second file, where there is one, begin here.
pub const SECOND_FILE: i64 = 1 << 20;

/// The value of a row: unique for every write.
pub type Version = i64;

/// Which transaction: worker and number. Worker 0 wrote the initial rows and read the final ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TransactionName {
    /// The worker.
    pub worker: u32,
    /// Counted within the worker.
    pub number: u32,
}

impl std::fmt::Display for TransactionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "T{}.{}", self.worker, self.number)
    }
}

/// What a transaction learned about a key that it had not written itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// It had this value.
    Value(Version),
    /// There was no row.
    Absent,
    /// There was a row, with a value that was not read.
    Present,
    /// There was no row with a group in this closed range.
    OutsideGroups(i64, i64),
}

/// A row's state after a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its value.
    pub version: Version,
    /// Its group, the indexed column.
    pub group: i64,
}

/// A read or the net write of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// The key was seen so.
    Read {
        /// Key.
        key: i64,
        /// What was seen.
        seen: Seen,
    },
    /// The key was changed from one state to another by the whole transaction; `None` is absence.
    Write {
        /// Key.
        key: i64,
        /// The value replaced.
        before: Option<Version>,
        /// The row left.
        after: Option<Row>,
    },
}

impl Operation {
    /// Whether it is on the second file.
    #[must_use]
    pub fn is_on_second(&self) -> bool {
        let (Self::Read { key, .. } | Self::Write { key, .. }) = self;
        *key >= SECOND_FILE
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// COMMIT returned success.
    Committed,
    /// It was rolled back.
    Aborted,
    /// The worker was killed in COMMIT.
    Unknown,
}

/// One transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transaction {
    /// Name.
    pub name: TransactionName,
    /// How it began, for the report.
    pub begin: String,
    /// Just before BEGIN was called, in nanoseconds since boot.
    pub start_ns: u64,
    /// Just before COMMIT was called.
    pub commit_ns: u64,
    /// Just after COMMIT returned.
    pub end_ns: u64,
    /// How it ended.
    pub status: Status,
    /// It read a replica: see [`replica`](super::replica).
    #[serde(default)]
    pub on_replica: bool,
    /// On a replica: the transaction whose commit was waited for before it began.
    #[serde(default)]
    pub waited_for: Option<TransactionName>,
    /// What it read and wrote.
    pub operations: Vec<Operation>,
    /// The statements, for the report.
    pub statements: Vec<String>,
}

impl Transaction {
    /// One that begins now, in a statement of its own as long as nothing else is said.
    #[must_use]
    pub fn begun_now(name: TransactionName) -> Self {
        let now = monotonic_ns();
        Self {
            name,
            begin: "autocommit".to_owned(),
            start_ns: now,
            commit_ns: now,
            end_ns: now,
            status: Status::Unknown,
            on_replica: false,
            waited_for: None,
            operations: Vec::new(),
            statements: Vec::new(),
        }
    }
}

/// The history of a worker, and when its process was known to be dead, if it was killed.
#[derive(Clone, Debug)]
pub struct HistoryFile {
    /// The file.
    pub path: PathBuf,
    /// From then on what it had announced is there for everyone, or for nobody.
    pub dead_ns: Option<u64>,
}

impl HistoryFile {
    /// Of a worker that was not killed.
    #[must_use]
    pub fn of(path: PathBuf) -> Self {
        Self { path, dead_ns: None }
    }
}

/// Reads the history files of several workers. A transaction that a killed worker had announced and not finished is
/// [`Status::Unknown`].
pub fn read_files(files: &[HistoryFile]) -> anyhow::Result<Vec<Transaction>> {
    let mut transactions = Vec::new();
    for HistoryFile { path, dead_ns } in files {
        let first = transactions.len();
        if dead_ns.is_some() && !path.exists() {
            // It was killed before it had begun.
            continue;
        }
        let file = std::fs::File::open(path).with_context(|| format!("open {}", path.display()))?;
        let mut announced: Option<Transaction> = None;
        for line in std::io::BufReader::new(file).lines() {
            // A line cut short by a kill is the last one of its file and announces nothing.
            let Ok(transaction) = serde_json::from_str::<Transaction>(&line?) else {
                break;
            };
            let same = announced.as_ref().is_some_and(|earlier| earlier.name == transaction.name);
            if !same {
                transactions.extend(announced.take());
            }
            announced = Some(transaction);
        }
        transactions.extend(announced);
        let unknown = transactions[first..].iter_mut().filter(|t| t.status == Status::Unknown);
        unknown.for_each(|transaction| transaction.end_ns = dead_ns.unwrap_or(u64::MAX));
    }
    Ok(transactions)
}

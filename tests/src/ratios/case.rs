//! The rows of the table: what is run, and what must come of it.
//!
//! Cases of ten million rows (4 GB) run only when they are named. Their connections share a cache of 64 MiB: one writer
//! has all of it, each of a hundred writers 655 KiB.

use super::keyed::Keyed;
use super::paced::Quantile;
use super::passer::Pass;
use super::writer::ROWS;
use super::ycsb::Ycsb;
use crate::place::Place;
use crate::subject::{Begin, Synchronous};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a writer does in each of its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// One random select and one random update of ten thousand rows of 400 bytes.
    SelectUpdate,
    /// One update of one row that all writers share, in autocommit.
    HotRow,
    /// A select and an update of it in a transaction.
    HotRowInTransaction,
    /// One insert with an automatic rowid into a table with one index.
    Append,
    /// A random select of a million rows that lie in the base, in autocommit.
    Read,
    /// The same over ten thousand rows while ten writers do [`Work::SelectUpdate`]; only the reads count.
    ReadBesideWriters,
    /// A thousand inserts; a million rows in all.
    Bulk,
    /// Inserts of values of so many bytes, a mebibyte in each transaction, [`Load::BYTES_OF_VALUES`] in all.
    Values(u32),
    /// Takes the oldest job of a queue by an index and deletes it, until none is left.
    Queue,
    /// The same by one `DELETE ... RETURNING` in autocommit.
    QueueReturning,
    /// Opens the database, inserts so many rows in autocommit (reads one if none), closes it.
    Visit(u32),
    /// Makes a database with a table and so many rows in autocommit, closes it, removes it.
    Make(u32),
    /// Passes over tables of which so many rows in a hundred are not merged.
    Passes(Pass, u32),
    /// A random select of a million rows that lie in the base, with a large cache and through a map.
    ReadMapped,
    /// Nineteen random selects and one random update of ten thousand rows of 400 bytes, each in autocommit.
    MostlyReads,
    /// Deletes all rows, then inserts some and looks for missing ones, while somebody reads.
    Remove,
    /// By the key-value API, on stock by prepared statements.
    Keyed(Keyed),
    /// [`Work::SelectUpdate`] of so many million rows that lie in the base, over many merges.
    Long(u32),
    /// The same of one million at half the rate at which it can be done, timed from when each transaction was due.
    Paced,
    /// A mix of transactions of a wholesaler's clerks.
    Tpcc,
    /// A mix of reads and changes of single rows.
    Ycsb(Ycsb),
    /// A record of the length of a [`Work::SelectUpdate`]'s frame, appended to a bare log: the limit, and no
    /// store.
    BareLog,
    /// Nothing: what a database that two connections have open and have written to takes of disk and memory.
    Idle,
}

impl Work {
    /// Whether it is over when everything is done, and not when the time is.
    #[must_use]
    pub fn is_finite(self) -> bool {
        self.is_bulk()
            || matches!(self, Self::Queue | Self::QueueReturning | Self::Idle | Self::Remove)
    }

    /// The table of a million rows or more that it begins with, which is made once for all trials.
    #[must_use]
    pub fn large_table(self) -> Option<LargeTable> {
        match self {
            Self::Read | Self::ReadMapped | Self::Passes(Pass::Million, _) => {
                Some(LargeTable::Read)
            }
            Self::Long(millions) => Some(LargeTable::Updated(millions)),
            Self::Paced => Some(LargeTable::Updated(1)),
            _ => None,
        }
    }

    /// Whether it begins with a million rows or more.
    #[must_use]
    pub fn begins_with_million(self) -> bool {
        self.large_table().is_some()
    }

    /// Rows of the table that is selected from and updated.
    #[must_use]
    pub fn rows(self) -> i64 {
        self.large_table().map_or(ROWS, LargeTable::rows)
    }

    /// Whether it runs long enough for many merges.
    fn is_long(self) -> bool {
        matches!(self, Self::Long(_) | Self::Paced)
    }

    /// Time before measuring starts: for long runs until merging goes on.
    #[must_use]
    pub fn warm_up(self) -> Duration {
        if self.is_long() { Duration::from_secs(8) } else { Duration::from_millis(500) }
    }

    /// So many times as long is measured.
    #[must_use]
    pub fn times_as_long(self) -> u32 {
        if self.is_long() { 10 } else { 1 }
    }

    /// Whether one writer inserts a given number of rows.
    #[must_use]
    pub fn is_bulk(self) -> bool {
        matches!(self, Self::Bulk | Self::Values(_))
    }
}

/// A table that takes long to make, so that trials begin with copies of one: at rest both engines use one plain file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeTable {
    /// A million rows that are only read.
    Read,
    /// So many million rows, each with a counter of its updates.
    Updated(u32),
}

impl LargeTable {
    /// Its rows.
    #[must_use]
    pub fn rows(self) -> i64 {
        match self {
            Self::Read => 1_000_000,
            Self::Updated(millions) => i64::from(millions) * 1_000_000,
        }
    }
}

/// Who has the database open besides those whose work is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Beside {
    /// Nobody.
    Nobody,
    /// A connection that has written, and does nothing any more.
    Idle,
    /// The same, in a session.
    Session,
    /// A sidecar, which ships what is committed to a folder.
    Sidecar,
}

/// One measured configuration of either engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// What is done.
    pub work: Work,
    /// By how many at a time.
    pub writers: u32,
    /// In threads or processes.
    pub place: Place,
    /// How transactions begin on the library under test. On stock the nearest, IMMEDIATE, stands for CONCURRENT.
    pub begin: Begin,
    /// Durability.
    pub synchronous: Synchronous,
    /// Who else has the database open.
    pub beside: Beside,
}

impl Load {
    /// Bytes of all values that are inserted by [`Work::Values`].
    pub const BYTES_OF_VALUES: u64 = 64 << 20;

    /// `PRAGMA cache_size` of each connection, where it is not the default: tables of gigabytes have 64 MiB for all
    /// connections together, so that a hundred of them do not hold the whole table.
    #[must_use]
    pub fn cache_size(&self) -> Option<i64> {
        let is_large = matches!(self.work, Work::Long(millions) if millions > 1);
        is_large.then(|| -65_536 / i64::from(self.writers))
    }

    /// Jobs of a queue.
    #[must_use]
    pub fn jobs(&self) -> i64 {
        if self.writers == 1 { 8_000 } else { 12_000 }
    }
}

/// What a measured ratio is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requirement {
    /// Commits (or reads) per second are at least so many times those of stock.
    TimesStock(f64),
    /// At least this part of the best over all numbers of writers.
    PartOfOwnBest(f64),
    /// The slowest writer gets at least this part of the fastest's commits.
    Fairness(f64),
    /// At most so many times the bytes that stock writes to disk for each commit.
    WrittenTimesStock(f64),
    /// At most so many times the processor time for each commit.
    CpuTimesStock(f64),
    /// At most this part of the transactions conflict.
    Conflicts(f64),
    /// A worker's last tenth of jobs goes at least so many times as fast as its first.
    Steady(f64),
    /// Transactions are over at most so long after they were due.
    Wait(Quantile, Duration),
    /// At most so many times as long after that as on stock.
    WaitTimesStock(Quantile, f64),
    /// Side files take at most so many MiB of disk, and no more of them is in a process's memory.
    IdleMebibytes(f64),
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it says.
    pub title: &'static str,
    /// What is measured.
    pub load: Load,
    /// What it is held against in the place of the same load on stock: another one of the library under test,
    /// or a bare log.
    pub against: Option<Load>,
    /// What is required of it.
    pub requirements: Vec<Requirement>,
}

impl Case {
    /// Whether it runs only when it is named: those that take gigabytes and many minutes.
    #[must_use]
    pub fn is_only_by_name(&self) -> bool {
        self.load.work.rows() > 1_000_000
    }
}

/// Numbers of writers over which the best is sought.
pub const OWN_BEST_WRITERS: [u32; 5] = [1, 10, 25, 50, 100];

fn select_update(writers: u32, begin: Begin) -> Load {
    Load {
        work: Work::SelectUpdate,
        writers,
        place: Place::Threads,
        begin,
        synchronous: Synchronous::Full,
        beside: Beside::Idle,
    }
}

/// The load whose best over all numbers of writers is sought.
#[must_use]
pub fn own_best_load(writers: u32) -> Load {
    select_update(writers, Begin::Concurrent)
}

/// All rows, in the order of the table.
#[must_use]
pub fn all() -> Vec<Case> {
    let mut all = steady_work();
    all.extend(limits());
    all.extend(hot_exclusive_and_values());
    all.extend(long_runs());
    all.push(latency());
    all.extend(mixes());
    all.extend(queues());
    all.extend(visits());
    all.extend(reads());
    all.extend(keys());
    all
}

/// Durable commits held against what the disk and a bare log allow.
fn limits() -> Vec<Case> {
    use Requirement::{CpuTimesStock, TimesStock};
    let case = |name, title, writers, requirement| {
        let load = select_update(writers, Begin::Concurrent);
        let against = Some(Load { work: Work::BareLog, ..load.clone() });
        Case { name, title, load, against, requirements: vec![requirement] }
    };
    vec![
        case("limit-1", "1 writer; against a bare log", 1, TimesStock(0.9)),
        case("limit-10", "10 writers; against a bare log", 10, TimesStock(0.9)),
        case("limit-100", "100 writers; against a bare log", 100, TimesStock(0.6)),
        case(
            "limit-cpu",
            "processor time of 100 writers; against a bare log",
            100,
            CpuTimesStock(1.8),
        ),
    ]
}

fn long_runs() -> Vec<Case> {
    use Requirement::{Fairness, TimesStock, WrittenTimesStock};
    let case = |name, title, (millions, writers, synchronous), least, more: &[Requirement]| {
        let begin = select_update(writers, Begin::Concurrent);
        let load = Load { work: Work::Long(millions), synchronous, ..begin };
        let mut requirements = vec![TimesStock(least), WrittenTimesStock(1.0)];
        requirements.extend(more);
        Case { name, title, load, against: None, requirements }
    };
    let (full, normal) = (Synchronous::Full, Synchronous::Normal);
    let fair = &[Fairness(0.5)];
    vec![
        case("long-1-normal", "1,000,000 rows, 1 writer, NORMAL", (1, 1, normal), 2.0, &[]),
        case("long-100-normal", "1,000,000 rows, 100 writers, NORMAL", (1, 100, normal), 1.5, fair),
        case("long-1", "1,000,000 rows, 1 writer", (1, 1, full), 1.0, &[]),
        case("long-10", "1,000,000 rows, 10 writers", (1, 10, full), 4.0, &[]),
        case("long-100", "1,000,000 rows, 100 writers", (1, 100, full), 9.0, fair),
        case("long-1-10m-normal", "10,000,000 rows, 1 writer, NORMAL", (10, 1, normal), 1.2, &[]),
        case("long-100-10m", "10,000,000 rows, 100 writers", (10, 100, full), 3.0, &[]),
    ]
}

fn latency() -> Case {
    use Quantile::{Max, P999};
    use Requirement::{Wait, WaitTimesStock};
    Case {
        name: "latency",
        title: "1,000,000 rows, 10 writers at half their best rate",
        load: Load { work: Work::Paced, ..select_update(10, Begin::Concurrent) },
        against: None,
        requirements: vec![
            Wait(P999, Duration::from_millis(10)),
            Wait(Max, Duration::from_millis(50)),
            WaitTimesStock(P999, 1.0),
            WaitTimesStock(Max, 1.0),
        ],
    }
}

fn mixes() -> Vec<Case> {
    let case = |name, title, work, least| Case {
        name,
        title,
        load: Load { work, ..select_update(16, Begin::Concurrent) },
        against: None,
        requirements: vec![Requirement::TimesStock(least)],
    };
    vec![
        case("tpcc", "TPC-C's mix, 10 warehouses, 16 clients", Work::Tpcc, 3.0),
        case("ycsb-a", "YCSB A: 16 clients, half updates", Work::Ycsb(Ycsb::A), 3.0),
        case("ycsb-b", "YCSB B: 16 clients, 5 % updates", Work::Ycsb(Ycsb::B), 1.0),
        case("ycsb-f", "YCSB F: 16 clients, half read-modify-writes", Work::Ycsb(Ycsb::F), 3.0),
    ]
}

fn hot_exclusive_and_values() -> Vec<Case> {
    use Requirement::{Conflicts, TimesStock};
    let immediate = |writers| select_update(writers, Begin::Immediate);
    let case =
        |name, title, load, requirements| Case { name, title, load, against: None, requirements };
    let of = |work, writers| Load { work, ..select_update(writers, Begin::Concurrent) };
    vec![
        case(
            "hot-immediate",
            "16 writers on one hot row, BEGIN IMMEDIATE",
            Load { work: Work::HotRowInTransaction, ..immediate(16) },
            vec![TimesStock(1.0)],
        ),
        case(
            "hot-concurrent",
            "16 writers on one hot row, BEGIN CONCURRENT",
            of(Work::HotRowInTransaction, 16),
            vec![TimesStock(1.0), Conflicts(0.02)],
        ),
        case(
            "exclusive-1",
            "1 writer, BEGIN EXCLUSIVE",
            select_update(1, Begin::Exclusive),
            vec![TimesStock(1.0)],
        ),
        case(
            "exclusive-10",
            "10 writers, BEGIN EXCLUSIVE",
            select_update(10, Begin::Exclusive),
            vec![TimesStock(1.0)],
        ),
        case(
            "values-8k",
            "inserts of values of 8 KiB, 1 MiB each",
            of(Work::Values(8 << 10), 1),
            vec![TimesStock(1.0)],
        ),
        case(
            "values-64k",
            "inserts of values of 64 KiB, 1 MiB each",
            of(Work::Values(64 << 10), 1),
            vec![TimesStock(1.0)],
        ),
    ]
}

fn queues() -> Vec<Case> {
    use Requirement::{Steady, TimesStock};
    let ten = |name, title, work, begin| Case {
        name,
        title,
        load: Load { work, ..select_update(10, begin) },
        against: None,
        requirements: vec![TimesStock(4.0)],
    };
    let alone = Load {
        work: Work::Queue,
        synchronous: Synchronous::Normal,
        ..select_update(1, Begin::Immediate)
    };
    vec![
        Case {
            name: "queue-one",
            title: "1 worker takes 8,000 jobs, NORMAL",
            load: alone,
            against: None,
            requirements: vec![TimesStock(2.0), Steady(0.9)],
        },
        ten(
            "queue-immediate",
            "10 workers take 12,000 jobs, BEGIN IMMEDIATE",
            Work::Queue,
            Begin::Immediate,
        ),
        ten(
            "queue-concurrent",
            "10 workers take 12,000 jobs, BEGIN CONCURRENT",
            Work::Queue,
            Begin::Concurrent,
        ),
        ten(
            "queue-returning",
            "10 workers take 12,000 jobs, DELETE ... RETURNING",
            Work::QueueReturning,
            Begin::Deferred,
        ),
    ]
}

fn reads() -> Vec<Case> {
    let case = |name, title, work, least| Case {
        name,
        title,
        load: Load { work, synchronous: Synchronous::Normal, ..select_update(1, Begin::Immediate) },
        against: None,
        requirements: vec![Requirement::TimesStock(least)],
    };
    let passes = |name, title, pass, percent| {
        let least = if percent == 100 { 0.7 } else { 0.85 };
        case(name, title, Work::Passes(pass, percent), least)
    };
    vec![
        case(
            "removed",
            "1,000 inserts and 1,000 misses among deleted rows",
            Work::Remove,
            1.0 / 1.2,
        ),
        passes("scan-10", "scans, a tenth of the rows changed since the merge", Pass::Scan, 10),
        passes("scan-100", "scans, all rows changed since", Pass::Scan, 100),
        passes("range-10", "ranges of 100 rows, a tenth changed", Pass::Range, 10),
        passes("range-100", "ranges of 100 rows, all changed", Pass::Range, 100),
        passes("count-10", "count(*), a tenth changed", Pass::Count, 10),
        passes("count-100", "count(*), all changed", Pass::Count, 100),
        passes("join-10", "joins by key, a tenth changed", Pass::Join, 10),
        passes("join-100", "joins by key, all changed", Pass::Join, 100),
        passes("order-10", "scans of an index, a tenth changed", Pass::Order, 10),
        passes("order-100", "scans of an index, all changed", Pass::Order, 100),
        case(
            "million",
            "1,000,000 reads in a deferred transaction",
            Work::Passes(Pass::Million, 0),
            0.97,
        ),
        case(
            "long-key",
            "reads by 24-byte keys, 1,000 a transaction",
            Work::Passes(Pass::LongKey, 0),
            0.97,
        ),
        case("mapped", "reads of 1,000,000 rows, large cache and map", Work::ReadMapped, 0.97),
        case("mostly-reads", "19 reads and an update, 1 client, NORMAL", Work::MostlyReads, 1.1),
    ]
}

fn keys() -> Vec<Case> {
    let load = |work, writers, synchronous| Load {
        work: Work::Keyed(work),
        synchronous,
        ..select_update(writers, Begin::Deferred)
    };
    let one = |work| load(work, 1, Synchronous::Normal);
    let durable = |work, writers| load(work, writers, Synchronous::Full);
    let case = |name, title, load, against, least| Case {
        name,
        title,
        load,
        against,
        requirements: vec![Requirement::TimesStock(least)],
    };
    let singly = |synchronous| Some(load(Keyed::SinglePuts, 1, synchronous));
    vec![
        case("gets", "gets by number in a transaction", one(Keyed::Gets(0)), None, 1.3),
        case("gets-long", "gets by 24-byte keys in a transaction", one(Keyed::LongGets), None, 1.5),
        case("gets-single", "gets, each a transaction", one(Keyed::SingleGets), None, 3.0),
        case(
            "gets-unmerged",
            "gets, a quarter in memtables; against merged",
            one(Keyed::Gets(25)),
            Some(one(Keyed::Gets(0))),
            0.75,
        ),
        case("puts", "random puts, 1,000 a transaction, NORMAL", one(Keyed::Puts), None, 1.2),
        case("walk", "all rows by a cursor", one(Keyed::Scan), None, 1.5),
        case("adds", "16 threads add to one counter", durable(Keyed::Add, 16), None, 3.0),
        case(
            "tickets",
            "durable puts, 1,000 in flight; against one by one",
            one(Keyed::Tickets),
            singly(Synchronous::Full),
            20.0,
        ),
        case(
            "tickets-normal",
            "durable puts, 1,000 in flight; against NORMAL",
            one(Keyed::Tickets),
            singly(Synchronous::Normal),
            0.5,
        ),
    ]
}

fn visits() -> Vec<Case> {
    use Beside::{Idle, Nobody, Session};
    use Requirement::{IdleMebibytes, TimesStock};
    let visit = |name, title, rows, beside, least| Case {
        name,
        title,
        load: Load { work: Work::Visit(rows), beside, ..select_update(1, Begin::Deferred) },
        against: None,
        requirements: vec![TimesStock(least)],
    };
    // The session is that of another process, which is joined and left each time.
    let elsewhere = |name, title, rows| Case {
        load: Load { place: Place::Processes, ..visit(name, title, rows, Session, 1.0).load },
        ..visit(name, title, rows, Session, 1.0)
    };
    // At most 1.3 times stock's time.
    let a_little_slower = 1.0 / 1.3;
    let make = Load { work: Work::Make(5), ..select_update(1, Begin::Deferred) };
    vec![
        Case {
            name: "make",
            title: "make a database of five rows, remove it",
            load: make,
            against: None,
            requirements: vec![TimesStock(a_little_slower)],
        },
        visit("open-read", "open, read a row, close; nobody else", 0, Nobody, a_little_slower),
        visit("open-write", "open, write a row, close; nobody else", 1, Nobody, a_little_slower),
        visit("open-read-idle", "open, read a row, close; beside an idle one", 0, Idle, 1.0),
        visit("open-write-idle", "open, write a row, close; beside an idle one", 1, Idle, 1.0),
        visit("open-read-beside", "open, read a row, close; beside a session", 0, Session, 1.0),
        visit("open-write-beside", "open, write a row, close; beside a session", 1, Session, 1.0),
        elsewhere("open-read-elsewhere", "open, read a row, close; beside another process", 0),
        elsewhere("open-write-elsewhere", "open, write a row, close; beside another process", 1),
        Case {
            name: "visits",
            title: "100 processes open, write ten rows, close",
            load: Load {
                work: Work::Visit(10),
                place: Place::Processes,
                beside: Beside::Nobody,
                ..select_update(100, Begin::Deferred)
            },
            against: None,
            requirements: vec![TimesStock(1.0)],
        },
        Case {
            name: "idle",
            title: "disk and memory of an idle open database",
            load: Load { work: Work::Idle, ..select_update(1, Begin::Deferred) },
            against: None,
            requirements: vec![IdleMebibytes(2.0)],
        },
    ]
}

fn steady_work() -> Vec<Case> {
    use Requirement::{Conflicts, Fairness, PartOfOwnBest, TimesStock};
    let optimistic = |writers| select_update(writers, Begin::Concurrent);
    let immediate = |writers| select_update(writers, Begin::Immediate);
    let case =
        |name, title, load, requirements| Case { name, title, load, against: None, requirements };
    let of = |work, writers| Load { work, ..optimistic(writers) };
    vec![
        case("one", "1 writer, BEGIN CONCURRENT", optimistic(1), vec![TimesStock(1.0)]),
        case("ten", "10 writers, BEGIN CONCURRENT", optimistic(10), vec![TimesStock(3.5)]),
        case(
            "hundred",
            "100 writers, BEGIN CONCURRENT",
            optimistic(100),
            vec![TimesStock(9.0), PartOfOwnBest(0.9)],
        ),
        case("immediate-10", "10 writers, BEGIN IMMEDIATE", immediate(10), vec![TimesStock(3.0)]),
        Case {
            name: "shipped",
            title: "100 writers beside a sidecar; against without",
            load: Load { beside: Beside::Sidecar, ..optimistic(100) },
            against: Some(optimistic(100)),
            requirements: vec![TimesStock(0.9)],
        },
        case(
            "immediate-100",
            "100 writers, BEGIN IMMEDIATE",
            immediate(100),
            vec![TimesStock(6.0)],
        ),
        case(
            "processes",
            "100 writers in 100 processes",
            Load { place: Place::Processes, ..optimistic(100) },
            vec![TimesStock(5.0)],
        ),
        case(
            "normal",
            "1 writer, NORMAL",
            Load { synchronous: Synchronous::Normal, ..optimistic(1) },
            vec![TimesStock(2.0)],
        ),
        case(
            "append",
            "10 writers append, automatic rowids, one index",
            of(Work::Append, 10),
            vec![TimesStock(4.0), Conflicts(0.01)],
        ),
        case(
            "hot",
            "16 writers on one hot row, autocommit",
            of(Work::HotRow, 16),
            vec![TimesStock(1.0), Fairness(0.5)],
        ),
        case("read", "reads of 1,000,000 merged rows", of(Work::Read, 1), vec![TimesStock(0.85)]),
        case(
            "read-beside",
            "reads while 10 writers write",
            of(Work::ReadBesideWriters, 10),
            vec![TimesStock(1.0)],
        ),
        case(
            "bulk",
            "bulk insert of 1,000,000 rows, 1,000 each",
            Load { synchronous: Synchronous::Normal, ..of(Work::Bulk, 1) },
            vec![TimesStock(1.0)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::all;
    use std::collections::HashSet;

    #[test]
    fn no_two_cases_have_one_name() {
        let names: HashSet<&str> = all().iter().map(|case| case.name).collect();
        assert_eq!(names.len(), all().len());
    }

    #[test]
    fn only_tables_of_gigabytes_have_to_be_named_and_share_their_cache() {
        for case in all() {
            let load = &case.load;
            assert_eq!(case.is_only_by_name(), load.cache_size().is_some(), "{}", case.name);
            if let Some(size) = load.cache_size() {
                let total = -size * i64::from(load.writers);
                assert!(total <= 65_536 && total > 65_000, "{}: {total} KiB", case.name);
            }
        }
    }
}

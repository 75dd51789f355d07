//! What is said of a session: facts for the head, rows for the table.

use super::monitor::Rates;
use super::programs::{command, person};
use crate::live::{Doing, Session, Transaction, Who};
use crate::quantity::{age, bytes, count, of};

/// A number with its name.
pub struct Fact {
    /// Its name.
    pub name: &'static str,
    /// Itself, with its unit.
    pub value: String,
    /// It is trouble.
    pub is_bad: bool,
}

/// A transaction as it is shown.
pub struct Row {
    /// Process id.
    pub pid: String,
    /// Age.
    pub age: String,
    /// What it does.
    pub state: &'static str,
    /// What it waits for; empty if for nothing.
    pub waits_for: String,
    /// Command line of the process.
    pub command: String,
}

/// Names of the columns.
pub const COLUMNS: [&str; 5] = ["PID", "AGE", "STATE", "WAITS FOR", "COMMAND"];

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Age,
    /// By process id.
    Process,
    /// By what they do; waiting ones first.
    State,
}

impl Order {
    /// The one that the key leads to.
    pub fn next(self) -> Order {
        match self {
            Order::Age => Order::Process,
            Order::Process => Order::State,
            Order::State => Order::Age,
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Order::Age => "age",
            Order::Process => "pid",
            Order::State => "state",
        }
    }
}

/// Who uses it.
pub fn users(session: &Session) -> String {
    format!(
        "concurrent mode, {}, {}",
        of(session.processes.len() as u64, "process", "processes"),
        of(session.sizes.connections, "connection", "connections")
    )
}

/// The head, the most important first.
pub fn facts(session: &Session, rates: Option<&Rates>) -> Vec<Fact> {
    let (n, sizes) = (&session.counts, &session.sizes);
    let fact = |name, value| Fact { name, value, is_bad: false };
    let rate = |of: fn(&Rates) -> f64| rates.map_or("-".to_owned(), |r| rate(of(r)));
    let per_sync = rates.and_then(|r| r.commits_per_sync);
    let mut facts = Vec::new();
    if sizes.is_poisoned {
        let value =
            "it takes no commit after a failed write or sync: close all programs".to_owned();
        facts.push(Fact { name: "stopped", value, is_bad: true });
    }
    let waiting = session.doing(Doing::Queued);
    facts.extend([
        fact("commits/s", rate(|r| r.commits)),
        fact("conflicts/s", rate(|r| r.conflicts)),
        fact("busy/s", rate(|r| r.busy)),
        fact("syncs/s", rate(|r| r.syncs)),
        fact("commits/sync", per_sync.map_or("-".to_owned(), |n| format!("{n:.1}"))),
        fact("exclusive/s", rate(|r| r.exclusive_commits)),
        fact("waiting", of(waiting, "writer", "writers")),
        fact("longest", longest(session.longest())),
        fact("oldest reader", oldest(session.oldest_reader)),
        fact("writer", who(session.writer)),
        fact("merging", who(session.merger)),
        fact("log", {
            let written = rates.map_or("-".to_owned(), |r| bytes(r.log_bytes as u64));
            let (file, unsynced) = (bytes(sizes.log_file_bytes), bytes(sizes.log_unsynced_bytes));
            format!("{file}, {unsynced} not synced, {written}/s")
        }),
        fact("memory", {
            let (taken, limit) = (bytes(sizes.memory_bytes), bytes(sizes.memory_limit_bytes));
            format!("{} not merged, {taken} of {limit} taken", bytes(sizes.memtable_bytes))
        }),
        fact("merges", {
            let (waiting, kept) = (sizes.memtables_frozen, sizes.memtables_kept);
            let waiting = of(waiting, "memtable", "memtables");
            format!("{}, {waiting} to merge, {kept} kept for readers", count(n.merges))
        }),
        Fact {
            name: "WAL",
            value: format!("{} of {}", bytes(sizes.wal_bytes), bytes(sizes.wal_limit_bytes)),
            is_bad: sizes.wal_bytes > sizes.wal_limit_bytes / 5 * 4,
        },
        fact("in all", {
            let (commits, conflicts) = (count(n.commits), count(n.conflicts));
            format!("{commits} commits, {conflicts} conflicts, {} busy", count(n.busy))
        }),
    ]);
    if n.reaped > 0 {
        facts.push(fact("died", of(n.reaped, "process", "processes")));
    }
    facts
}

fn rate(a_second: f64) -> String {
    if a_second < 9.95 { format!("{a_second:.1}") } else { count(a_second.round() as u64) }
}

fn longest(longest: Option<&Transaction>) -> String {
    longest.map_or("none".to_owned(), |t| format!("{} by {}", age(t.age_ms), who(Some(t.who))))
}

fn oldest(reader: Option<(Who, u64)>) -> String {
    reader.map_or("none".to_owned(), |(reader, ms)| format!("{} by {}", age(ms), who(Some(reader))))
}

fn who(process: Option<Who>) -> String {
    match process {
        None => "nobody".to_owned(),
        Some(Who { pid, is_foreign: true }) => format!("{pid} of another pid namespace"),
        Some(Who { pid, .. }) => person(pid),
    }
}

/// The table.
pub fn rows(session: &Session, order: Order) -> Vec<Row> {
    let mut transactions: Vec<&Transaction> = session.transactions.iter().collect();
    let is_waiting = |t: &Transaction| t.doing == Doing::Queued || t.waits_for != 0;
    transactions.sort_by_key(|t| {
        let oldest_first = u64::MAX - t.age_ms;
        match order {
            Order::Age => (0, 0, oldest_first),
            Order::Process => (0, t.who.pid, oldest_first),
            Order::State => (u32::from(!is_waiting(t)), u32::MAX - t.doing as u32, oldest_first),
        }
    });
    transactions.into_iter().map(|t| row(session, t)).collect()
}

fn row(session: &Session, t: &Transaction) -> Row {
    let waits_for = match t.waits_for {
        0 if t.is_committing => "the disk".to_owned(),
        0 if t.doing == Doing::Queued => format!("writer {}", who(session.writer)),
        0 => String::new(),
        pid if t.doing == Doing::Queued => format!("writer {}", person(pid)),
        pid => person(pid),
    };
    Row {
        pid: t.who.pid.to_string(),
        age: age(t.age_ms),
        state: if t.is_committing { "committing" } else { t.doing.word() },
        waits_for,
        command: match t.who.is_foreign {
            true => "(of another pid namespace)".to_owned(),
            false => command(t.who.pid),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_the_order_that_was_asked_for() {
        let t = |pid, doing, age_ms| Transaction {
            who: Who { pid, is_foreign: true },
            doing,
            is_committing: false,
            age_ms,
            waits_for: 0,
        };
        let transactions =
            vec![t(3, Doing::Reading, 10), t(1, Doing::Queued, 20), t(2, Doing::Writing, 30)];
        let session = Session { transactions, ..Session::default() };
        let pids = |order| {
            rows(&session, order).into_iter().map(|row| row.pid).collect::<Vec<_>>().concat()
        };
        assert_eq!(pids(Order::Age), "213");
        assert_eq!(pids(Order::Process), "123");
        assert_eq!(pids(Order::State), "123");
        assert_eq!(Order::Age.next().next().next(), Order::Age);
    }

    #[test]
    fn rates_below_ten_have_a_decimal() {
        assert_eq!([0.0, 0.26, 9.94, 9.96, 1234.5].map(rate), ["0.0", "0.3", "9.9", "10", "1,235"]);
    }
}

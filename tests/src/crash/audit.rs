//! Holding the book of [`crate::jobs::ledger`] against its balances and against what was acknowledged.

use crate::job::Running;
use crate::jobs::ledger::{ACCOUNTS, ATTACHMENTS, BALANCE, Line};
use crate::sqlite::Connection;
use crate::value::Value;
use anyhow::ensure;
use std::collections::BTreeMap;
use std::time::Duration;

/// The record kept outside: the last acknowledged entry of each worker.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged(pub BTreeMap<i64, i64>);

impl Acknowledged {
    /// Takes down one line; returns when the commit was asked for, if the line tells of one.
    pub fn note(&mut self, line: Line) -> Option<u64> {
        let (worker, seq, from_ns) = match line {
            Line::Attached => return None,
            Line::Found { worker, seq } => (worker, seq, None),
            Line::Committed { worker, seq, from_ns } => (worker, seq, Some(from_ns)),
        };
        let last = self.0.entry(worker).or_default();
        *last = (*last).max(seq);
        from_ns
    }

    /// Takes down what a job has reported by now.
    pub fn drain(&mut self, job: &mut Running) {
        while let Some(line) = job.next_line::<Line>(Duration::ZERO) {
            self.note(line);
        }
    }

    /// Entries of all workers.
    #[must_use]
    pub fn sum(&self) -> i64 {
        self.0.values().sum()
    }
}

/// How much of what was acknowledged must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// All of it, and of each worker at most the one commit that was under way besides.
    Everything,
    /// A prefix of the order of commits; only for an ordered book.
    Prefix,
}

/// Everything in the tables, for comparison with what another library reads.
pub type Contents = Vec<Vec<Value>>;

/// Checks the book; the error says what is wrong.
pub fn audit(
    connection: &Connection,
    acknowledged: &Acknowledged,
    demand: Demand,
) -> anyhow::Result<Contents> {
    let check = connection.query("PRAGMA integrity_check")?;
    ensure!(check == [vec!["ok".into()]], "integrity_check: {check:?}");
    audit_book(connection, acknowledged, demand)
}

/// Checks the book without an integrity_check, which needs a merge and so some room on the disk.
pub fn audit_book(
    connection: &Connection,
    acknowledged: &Acknowledged,
    demand: Demand,
) -> anyhow::Result<Contents> {
    let entries = totals(connection)?;
    for (worker, acknowledged) in &acknowledged.0 {
        let found = entries.get(worker).copied().unwrap_or(0);
        ensure!(
            demand == Demand::Prefix || found >= *acknowledged,
            "worker {worker}: entry {acknowledged} was acknowledged, but only {found} are there"
        );
        ensure!(
            found <= acknowledged + 1,
            "worker {worker}: {found} entries, but only {acknowledged} were acknowledged and one under way"
        );
    }
    let sum = connection.integer("SELECT sum(balance) FROM account")?;
    ensure!(sum == ACCOUNTS * BALANCE, "the balances sum to {sum}");
    let wrong = connection.query(&format!(
        "SELECT id, balance, {BALANCE} + (SELECT coalesce(sum(amount),0) FROM entry WHERE target=account.id)
           - (SELECT coalesce(sum(amount),0) FROM entry NOT INDEXED WHERE source=account.id) AS due
         FROM account WHERE balance IS NOT due"
    ))?;
    ensure!(wrong.is_empty(), "accounts, their balances, and what the book says: {wrong:?}");
    let torn = connection.query(&format!(
        "SELECT worker, seq, count(*) AS rows FROM attachment NOT INDEXED GROUP BY worker, seq
         HAVING rows<>{ATTACHMENTS} OR NOT EXISTS (SELECT 1 FROM entry e WHERE e.worker=attachment.worker AND e.seq=attachment.seq)"
    ))?;
    ensure!(torn.is_empty(), "bulk entries that are there in part: {torn:?}");
    if demand == Demand::Prefix {
        let ticks = connection.query(
            "SELECT count(*), count(DISTINCT tick), coalesce(min(tick),1), coalesce(max(tick),0), (SELECT tick FROM clock) FROM entry",
        )?;
        let n = &ticks[0][0];
        let expected = [n, n, &Value::Integer(1), n, n];
        ensure!(
            ticks[0].iter().eq(expected),
            "the ticks have a gap (count, distinct, first, last, clock): {ticks:?}"
        );
    }
    Ok(connection.query("SELECT * FROM entry ORDER BY id; SELECT * FROM account; SELECT * FROM total; SELECT * FROM clock; SELECT seq, count(*) FROM attachment GROUP BY worker, seq")?)
}

/// Each worker's entries are 1..=n, each once, by the table, by its index, and by the total.
fn totals(connection: &Connection) -> anyhow::Result<BTreeMap<i64, i64>> {
    let by_table = connection.query(
        "SELECT worker, count(*), count(DISTINCT seq), min(seq), max(seq) FROM entry NOT INDEXED GROUP BY worker ORDER BY worker",
    )?;
    let by_index =
        connection.query("SELECT worker, count(*) FROM entry GROUP BY worker ORDER BY worker")?;
    let by_total = connection.query("SELECT worker, entries FROM total ORDER BY worker")?;
    let mut entries = BTreeMap::new();
    for row in &by_table {
        let integers: Vec<i64> = row.iter().map(|value| value.as_i64().unwrap_or(-1)).collect();
        let (worker, n) = (integers[0], integers[1]);
        ensure!(
            integers[2..] == [n, 1, n],
            "worker {worker} has {n} entries, but (distinct, first, last) are {:?}",
            &integers[2..]
        );
        entries.insert(worker, n);
    }
    let heads: Vec<Vec<Value>> = by_table.iter().map(|row| row[..2].to_vec()).collect();
    ensure!(by_index == heads, "by the table {heads:?}, by its index {by_index:?}");
    ensure!(by_total == heads, "by the table {heads:?}, by the totals {by_total:?}");
    Ok(entries)
}

//! Random transactions over a fixed universe of keys, each written down for the checker in [`crate::isolation`]; in one file, or in
//! two that one connection has attached.

use super::registers;
use crate::isolation::history::{
    Operation, Row, SECOND_FILE, Seen, Status, Transaction, TransactionName,
};
use crate::job::{Job, Reporter};
use crate::os::monotonic_ns;
use crate::sqlite::{Connection, READONLY, SqlError};
use crate::subject::{Begin, Synchronous};
use crate::value::Value;
use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Groups are `0..GROUPS`; every write chooses one.
pub(super) const GROUPS: i64 = 12;
/// How many kinds of operations there are, by their weight, and how many of them only read: the first ones.
const OPERATIONS: u32 = 22;
const READS: u32 = 16;
/// Marks the number of a transaction that empties the table after the one of this number.
const EMPTYING: u32 = 1 << 31;
/// Begins an exclusive transaction that changes rows and no schema: it is larger than one on the concurrent path may be.
const BY_ROWS: &str = "BEGIN IMMEDIATE; REPLACE INTO ballast VALUES(1, zeroblob(7400000))";
/// One that changes a value of the header.
const BY_HEADER: &str = "BEGIN IMMEDIATE; PRAGMA application_id=7";
/// In the text of an error that leaves open whether a transaction is committed.
const UNDECIDED: &str = "look before you repeat it";
/// In the text that refuses a commit over files of which one is in WAL mode.
const NOT_ATOMIC: &str = "a commit over both would not be atomic";
/// How long a limit of the process may last, and how often is looked whether it has ended.
const PATIENCE: Duration = Duration::from_secs(30);
const NAP: Duration = Duration::from_millis(2);

/// How the table of keys is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// `id INTEGER PRIMARY KEY`.
    Rowid,
    /// `id INTEGER PRIMARY KEY` in a WITHOUT ROWID table.
    WithoutRowid,
}

impl Layout {
    /// The schema.
    #[must_use]
    pub fn schema(self) -> String {
        let options = if self == Self::WithoutRowid { " WITHOUT ROWID" } else { "" };
        format!(
            "CREATE TABLE kv(id INTEGER PRIMARY KEY, grp INTEGER NOT NULL, val INTEGER NOT NULL UNIQUE, prev INTEGER){options};
             CREATE INDEX kv_grp ON kv(grp); CREATE TABLE ballast(id INTEGER PRIMARY KEY, bytes BLOB); {}",
            registers::SCHEMA
        )
    }

    /// The schema of the second file, where everything has names of its own.
    #[must_use]
    pub fn schema_of_second(self) -> String {
        in_second(&self.schema())
    }
}

/// A statement over the table of the first file, over that of the second.
fn in_second(sql: &str) -> String {
    sql.replace("kv", "kw").replace("register", "second_register")
}

/// Opens the first file with the second attached.
pub fn attach_second(connection: &Connection, second: Option<&Path>) -> Result<(), SqlError> {
    second.map_or(Ok(()), |path| {
        connection.execute(&format!("ATTACH '{}' AS second", path.display()))
    })
}

/// A worker that runs random transactions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RandomTransactions {
    /// Seed.
    pub seed: u64,
    /// Its number, from 1.
    pub worker: u32,
    /// Keys are `1..=keys`.
    pub keys: i64,
    /// Ways of beginning to choose from.
    pub begins: Vec<Begin>,
    /// Also run single statements without BEGIN. What a killed worker did so is unknown: not for rounds with kills.
    pub autocommit: bool,
    /// Only pretend to begin and commit, so that every statement stands alone: the checker must notice.
    pub pretend: bool,
    /// Durability.
    pub synchronous: Synchronous,
    /// Stop after so many transactions.
    pub transactions: u32,
    /// Stop after this time.
    pub time: Duration,
    /// Ask for a merge after about every so many transactions; never when 0.
    pub merge_every: u32,
    /// Empty the table, in an exclusive transaction, after about every so many transactions; never when 0.
    pub empty_every: u32,
    /// Close the connection and open another after about every so many transactions; never when 0.
    pub reopen_every: u32,
    /// Work on the registers too.
    pub registers: bool,
    /// A second file with a table of its own, which most transactions change as well.
    pub second: Option<PathBuf>,
    /// How long to wait for a lock; the suites' own time when absent.
    pub busy_timeout: Option<Duration>,
    /// Its disk has room for exclusive transactions that are so for their size.
    pub has_room: bool,
    /// Its process meets limits of files and descriptors now and then, which fail what it does.
    pub limits: bool,
    /// How long to sleep between two transactions, at most.
    pub nap: Duration,
    /// Number of the first transaction, for a worker that goes on in another process.
    pub first_number: u32,
    /// Where the history is written.
    pub file: PathBuf,
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// Transactions that were committed.
    pub committed: u32,
    /// Those that were not.
    pub aborted: u32,
    /// Statements in all of them.
    pub statements: u64,
}

impl RandomTransactions {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        crate::os::ignore_file_size_signal();
        let mut connection = self.open(job)?;
        let mut file = self.patiently(|| Ok::<_, anyhow::Error>(File::create(&self.file)?))?;
        let mut random = StdRng::seed_from_u64(self.seed);
        let end = Instant::now() + self.time;
        let mut done = Done::default();
        // What this worker has last known of each.
        let mut expected = [None; registers::COUNT as usize];
        for number in self.first_number..self.first_number + self.transactions {
            if reporter.should_stop() || Instant::now() >= end {
                break;
            }
            let name = TransactionName { worker: self.worker, number };
            let mut running = Run::new(&connection, name, self.keys);
            running.pretend = self.pretend;
            running.has_second = self.second.is_some();
            running.has_registers = self.registers;
            let choice = random.random_range(0..self.begins.len() + usize::from(self.autocommit));
            let begin = self.begins.get(choice).map(|begin| job.subject.begin(*begin));
            let begin =
                begin.map(|sql| if sql == BY_HEADER { self.exclusive(&mut random) } else { sql });
            let begin = begin.map(|begin| if self.pretend { "SELECT 'no BEGIN'" } else { begin });
            let outcome = if self.registers && random.random_range(0..4) == 0 {
                running.register_call(&mut expected, &mut random, &mut file)
            } else {
                running.perform(begin, &mut random, &mut file)
            };
            self.expect(&outcome).with_context(|| name.to_string())?;
            let is_committed = outcome.is_ok() && !running.given_up;
            let status = if is_committed { Status::Committed } else { Status::Aborted };
            running.conclude(&outcome, &mut file, status)?;
            done.statements += running.transaction.statements.len() as u64;
            *(if is_committed { &mut done.committed } else { &mut done.aborted }) += 1;
            if !self.nap.is_zero() {
                std::thread::sleep(self.nap.mul_f64(random.random()));
            }
            if self.merge_every > 0 && random.random_range(0..self.merge_every) == 0 {
                let mode = ["PASSIVE", "TRUNCATE"][random.random_range(0..2)];
                self.expect(&connection.execute(&format!("PRAGMA wal_checkpoint({mode})")))?;
            }
            if self.reopen_every > 0 && random.random_range(0..self.reopen_every) == 0 {
                self.expect(&connection.close())?;
                connection = self.open(job)?;
            }
            if self.empty_every > 0 && random.random_range(0..self.empty_every) == 0 {
                let begin = self.exclusive(&mut random);
                self.empty(&connection, number, begin, &mut file)?;
            }
        }
        self.expect(&connection.close())?;
        Ok(serde_json::to_value(done)?)
    }
}

impl RandomTransactions {
    /// It may be told that the database is busy, and of a limit that it has met. SQLite opens for reading what it could not open for
    /// writing, and may do so just when the limit has ended.
    fn expect(&self, outcome: &Result<(), SqlError>) -> anyhow::Result<()> {
        let is_of_limit = |error: &SqlError| error.is_want_of_room() || error.code == READONLY;
        // One of both files has just left the mode and is about to enter it again.
        let is_of_mode =
            |error: &SqlError| self.second.is_some() && error.message.contains(NOT_ATOMIC);
        match outcome {
            Err(error) if error.is_busy() || is_of_mode(error) => Ok(()),
            Err(error) if self.limits && is_of_limit(error) => Ok(()),
            other => Ok(other.clone()?),
        }
    }

    /// Does it again until no limit is in its way.
    fn patiently<T, E: std::fmt::Display>(
        &self,
        mut work: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match work() {
                Err(_) if self.limits && Instant::now() < deadline => std::thread::sleep(NAP),
                other => return other,
            }
        }
    }

    fn open(&self, job: &Job) -> Result<Connection, SqlError> {
        self.patiently(|| self.try_to_open(job))
    }

    fn try_to_open(&self, job: &Job) -> Result<Connection, SqlError> {
        let connection = job.subject.open(&job.database)?;
        attach_second(&connection, self.second.as_deref())?;
        if let Some(timeout) = self.busy_timeout {
            connection.busy_timeout(timeout)?;
        }
        connection.execute(&format!("PRAGMA synchronous={}", self.synchronous.number()))?;
        Ok(connection)
    }

    /// A way to begin an exclusive transaction.
    fn exclusive(&self, random: &mut StdRng) -> &'static str {
        if self.has_room && random.random_range(0..2) == 0 { BY_ROWS } else { BY_HEADER }
    }

    /// Deletes every row in an exclusive transaction: what follows reads a b-tree that has no row anywhere, and no tombstone.
    fn empty(
        &self,
        connection: &Connection,
        after: u32,
        begin: &str,
        file: &mut File,
    ) -> anyhow::Result<()> {
        let name = TransactionName { worker: self.worker, number: after | EMPTYING };
        let mut run = Run::new(connection, name, self.keys);
        run.pretend = self.pretend;
        let begin = if self.pretend { "SELECT 'no BEGIN'" } else { begin };
        begin.clone_into(&mut run.transaction.begin);
        let outcome = connection
            .execute(begin)
            .and_then(|()| run.delete_all())
            .and_then(|()| run.commit(file));
        self.expect(&outcome).with_context(|| name.to_string())?;
        let status = if outcome.is_ok() { Status::Committed } else { Status::Aborted };
        if outcome.is_err() && !connection.autocommit() {
            connection.execute("ROLLBACK")?;
        }
        run.conclude(&outcome, file, status)?;
        Ok(())
    }
}

/// One transaction under way: what it saw, and what it wrote itself.
pub(super) struct Run<'c> {
    pub(super) connection: &'c Connection,
    pub(super) transaction: Transaction,
    keys: i64,
    /// Whether what it sees may contradict itself, because it is no real transaction.
    pretend: bool,
    /// Whether there is a second file, and whether the next operation is on it.
    has_second: bool,
    pub(super) in_second: bool,
    pub(super) has_registers: bool,
    writes: u32,
    /// It was rolled back without need.
    pub(super) given_up: bool,
    /// Keys written here: the value before the transaction and the row now.
    own: BTreeMap<i64, (Option<i64>, Option<Row>)>,
}

impl<'c> Run<'c> {
    pub(super) fn new(connection: &'c Connection, name: TransactionName, keys: i64) -> Self {
        let own = BTreeMap::new();
        Self {
            connection,
            transaction: Transaction::begun_now(name),
            keys,
            pretend: false,
            has_second: false,
            in_second: false,
            has_registers: false,
            writes: 0,
            given_up: false,
            own,
        }
    }

    /// Whether it has changed anything.
    pub(super) fn has_written(&self) -> bool {
        !self.own.is_empty()
    }

    /// The transaction with the net effect of its writes.
    fn finished(&self) -> Transaction {
        let mut transaction = self.transaction.clone();
        for (key, (before, after)) in &self.own {
            if before.is_some() || after.is_some() {
                let (key, before, after) = (*key, *before, *after);
                transaction.operations.push(Operation::Write { key, before, after });
            }
        }
        transaction
    }

    pub(super) fn write_down(&mut self, file: &mut File, status: Status) -> std::io::Result<()> {
        self.transaction.end_ns = monotonic_ns();
        self.transaction.status = status;
        append(file, &self.finished())
    }

    /// What failed and yet may come stays what was announced before.
    pub(super) fn conclude(
        &mut self,
        outcome: &Result<(), SqlError>,
        file: &mut File,
        status: Status,
    ) -> std::io::Result<()> {
        match outcome {
            Err(error) if error.message.contains(UNDECIDED) => Ok(()),
            _ => self.write_down(file, status),
        }
    }

    pub(super) fn perform(
        &mut self,
        begin: Option<&str>,
        random: &mut StdRng,
        file: &mut File,
    ) -> Result<(), SqlError> {
        let Some(begin) = begin else {
            // What an autocommit statement read and wrote is known only when it is done, so it is not announced.
            let outcome = self.random_operation(random);
            self.transaction.commit_ns = self.transaction.start_ns;
            return outcome;
        };
        begin.clone_into(&mut self.transaction.begin);
        let begun = self.connection.execute(begin);
        let outcome = begun.and_then(|()| self.body(random));
        self.given_up = outcome.is_ok() && !self.pretend && random.random_bool(0.15);
        if self.given_up {
            return self.connection.execute("ROLLBACK");
        }
        let outcome = outcome.and_then(|()| self.commit(file));
        if outcome.is_err() && !self.connection.autocommit() {
            self.connection.execute("ROLLBACK")?;
        }
        outcome
    }

    fn body(&mut self, random: &mut StdRng) -> Result<(), SqlError> {
        for _ in 0..random.random_range(1..6) {
            if random.random_range(0..8) > 0 {
                if self.has_registers && random.random_range(0..4) == 0 {
                    self.register_operation(random)?;
                } else {
                    self.random_operation(random)?;
                }
                continue;
            }
            self.statement("SAVEPOINT s", &[])?;
            let before = self.own.clone();
            for _ in 0..random.random_range(1..3) {
                self.random_operation(random)?;
            }
            if random.random_bool(0.6) {
                self.statement("ROLLBACK TO s", &[])?;
                self.own = before;
            }
            self.statement("RELEASE s", &[])?;
        }
        if self.has_second && random.random_range(0..4) > 0 {
            self.put_in_both(random)?;
        }
        Ok(())
    }

    /// In either order.
    fn put_in_both(&mut self, random: &mut StdRng) -> Result<(), SqlError> {
        let first = random.random_bool(0.5);
        for second in [first, !first] {
            self.in_second = second;
            self.put(random.random_range(1..=self.keys), random.random_range(0..GROUPS))?;
        }
        Ok(())
    }

    pub(super) fn commit(&mut self, file: &mut File) -> Result<(), SqlError> {
        self.transaction.commit_ns = monotonic_ns();
        append(file, &self.finished()).expect("the history can be written");
        let mut attempts = 0;
        while !self.connection.autocommit() {
            match self.connection.execute("COMMIT") {
                Err(error) if error.is_busy() && !error.is_conflict() && attempts < 50 => {
                    attempts += 1
                }
                Err(error) => {
                    self.transaction.statements.push(format!("COMMIT -> {error}"));
                    return Err(error);
                }
                Ok(()) => break,
            }
        }
        Ok(())
    }

    pub(super) fn random_operation(&mut self, random: &mut StdRng) -> Result<(), SqlError> {
        self.operation(random, 0..OPERATIONS)
    }

    /// One that changes nothing.
    pub(super) fn random_read(&mut self, random: &mut StdRng) -> Result<(), SqlError> {
        self.operation(random, 0..READS)
    }

    fn operation(&mut self, random: &mut StdRng, kinds: Range<u32>) -> Result<(), SqlError> {
        self.in_second = self.has_second && random.random_bool(0.5);
        let key = random.random_range(1..=self.keys);
        let other = (key + random.random_range(0..6)).min(self.keys);
        let group = random.random_range(0..GROUPS);
        let high_group = group + random.random_range(0..3);
        let descending = random.random_bool(0.5);
        match random.random_range(kinds) {
            0..=2 => self.point(key),
            3 | 4 => self.range(key, other, descending),
            5 | 6 => self.index_range(group, high_group, descending),
            7 => self.extreme(descending),
            8 => self.nearest(key, descending),
            9 => self.count(),
            10 => self.open_range(key, descending),
            11 => self.nothing_between(key, other),
            12 => self.several(key, other),
            13 => self.extreme_group(descending),
            14 => self.nearest_group(group, descending),
            15 => self.joined(key),
            READS..18 => self.put(key, group),
            18 | 19 => self.update(key, group),
            20 => self.delete(key),
            _ => self.update_groups(group, high_group),
        }
    }

    pub(super) fn statement(
        &mut self,
        sql: &str,
        parameters: &[i64],
    ) -> Result<Vec<Vec<i64>>, SqlError> {
        let values: Vec<Value> = parameters.iter().copied().map(Value::Integer).collect();
        let sql = if self.in_second { &in_second(sql) } else { sql };
        let outcome = self.connection.query_with(sql, &values);
        let shown =
            outcome.as_ref().map_or_else(|error| error.to_string(), |rows| format!("{rows:?}"));
        self.transaction.statements.push(format!("{sql} {parameters:?} -> {shown}"));
        let number = |value: Value| value.as_i64().unwrap_or(i64::MIN);
        Ok(outcome?.into_iter().map(|row| row.into_iter().map(number).collect()).collect())
    }

    /// The name of a key in the history.
    fn named(&self, key: i64) -> i64 {
        if self.in_second { SECOND_FILE + key } else { key }
    }

    fn saw(&mut self, key: i64, seen: Seen) {
        self.saw_named(self.named(key), seen);
    }

    pub(super) fn saw_named(&mut self, key: i64, seen: Seen) {
        match (self.own.get(&key), seen) {
            (None, _) => self.transaction.operations.push(Operation::Read { key, seen }),
            (Some((_, Some(row))), Seen::Value(version)) => {
                self.expect_own(key, row.version == version)
            }
            (Some((_, row)), Seen::Absent) => self.expect_own(key, row.is_none()),
            (Some((_, row)), Seen::Present) => self.expect_own(key, row.is_some()),
            (Some((_, row)), Seen::OutsideGroups(low, high)) => {
                self.expect_own(key, row.is_none_or(|row| row.group < low || row.group > high));
            }
            (Some((_, None)), Seen::Value(_)) => self.expect_own(key, false),
        }
    }

    fn expect_own(&self, key: i64, holds: bool) {
        let Transaction { name, statements, .. } = &self.transaction;
        assert!(
            holds || self.pretend,
            "{name} does not see its own write of key {key}, which is {:?}:\n{}",
            self.own.get(&key),
            statements.join("\n")
        );
    }

    fn wrote(&mut self, key: i64, before: Option<i64>, after: Option<Row>) {
        self.wrote_named(self.named(key), before, after);
    }

    pub(super) fn wrote_named(&mut self, key: i64, before: Option<i64>, after: Option<Row>) {
        let entry = self.own.entry(key).or_insert((before, None));
        entry.1 = after;
    }

    pub(super) fn next_version(&mut self) -> i64 {
        self.writes += 1;
        let TransactionName { worker, number } = self.transaction.name;
        (i64::from(worker) << 44) | (i64::from(number) << 16) | (i64::from(self.writes) << 6)
    }

    fn point(&mut self, key: i64) -> Result<(), SqlError> {
        let rows = self.statement("SELECT val FROM kv WHERE id=?", &[key])?;
        self.saw(key, rows.first().map_or(Seen::Absent, |row| Seen::Value(row[0])));
        Ok(())
    }

    fn saw_keys(&mut self, low: i64, high: i64, rows: &[Vec<i64>], otherwise: Seen) {
        for key in low..=high {
            let found = rows.iter().find(|row| row[0] == key);
            self.saw(key, found.map_or(otherwise, |row| Seen::Value(row[1])));
        }
    }

    pub(super) fn range(&mut self, low: i64, high: i64, descending: bool) -> Result<(), SqlError> {
        let order = if descending { "DESC" } else { "ASC" };
        let sql = format!("SELECT id, val FROM kv WHERE id BETWEEN ? AND ? ORDER BY id {order}");
        let rows = self.statement(&sql, &[low, high])?;
        self.saw_keys(low, high, &rows, Seen::Absent);
        Ok(())
    }

    fn index_range(&mut self, low: i64, high: i64, descending: bool) -> Result<(), SqlError> {
        let order = if descending { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT id, val FROM kv INDEXED BY kv_grp WHERE grp BETWEEN ? AND ? ORDER BY grp {order}"
        );
        let rows = self.statement(&sql, &[low, high])?;
        self.saw_keys(1, self.keys, &rows, Seen::OutsideGroups(low, high));
        Ok(())
    }

    fn extreme(&mut self, largest: bool) -> Result<(), SqlError> {
        let function = if largest { "max" } else { "min" };
        let rows = self.statement(&format!("SELECT {function}(id) FROM kv"), &[])?;
        let found = rows[0][0];
        if found == i64::MIN {
            self.saw_keys(1, self.keys, &[], Seen::Absent);
            return Ok(());
        }
        let (low, high) = if largest { (found + 1, self.keys) } else { (1, found - 1) };
        self.saw_keys(low, high, &[], Seen::Absent);
        self.saw(found, Seen::Present);
        Ok(())
    }

    fn nearest(&mut self, key: i64, below: bool) -> Result<(), SqlError> {
        let (comparison, order) = if below { ("<=", "DESC") } else { (">=", "ASC") };
        let sql =
            format!("SELECT id, val FROM kv WHERE id{comparison}? ORDER BY id {order} LIMIT 1");
        let rows = self.statement(&sql, &[key])?;
        let reached = rows.first().map_or(if below { 1 } else { self.keys }, |row| row[0]);
        self.saw_keys(key.min(reached), key.max(reached), &rows, Seen::Absent);
        Ok(())
    }

    fn open_range(&mut self, key: i64, below: bool) -> Result<(), SqlError> {
        let (comparison, order) = if below { ("<", "DESC") } else { (">", "ASC") };
        let sql = format!("SELECT id, val FROM kv WHERE id{comparison}? ORDER BY id {order}");
        let rows = self.statement(&sql, &[key])?;
        let (low, high) = if below { (1, key - 1) } else { (key + 1, self.keys) };
        self.saw_keys(low, high, &rows, Seen::Absent);
        Ok(())
    }

    /// Looks whether there is any row; that there is one says nothing about a key.
    fn nothing_between(&mut self, low: i64, high: i64) -> Result<(), SqlError> {
        let sql = "SELECT EXISTS(SELECT 1 FROM kv WHERE id BETWEEN ? AND ?)";
        if self.statement(sql, &[low, high])?[0][0] == 0 {
            self.saw_keys(low, high, &[], Seen::Absent);
        }
        Ok(())
    }

    fn several(&mut self, key: i64, other: i64) -> Result<(), SqlError> {
        let rows = self.statement("SELECT id, val FROM kv WHERE id IN (?, ?)", &[key, other])?;
        self.saw_keys(key, key, &rows, Seen::Absent);
        if other != key {
            self.saw_keys(other, other, &rows, Seen::Absent);
        }
        Ok(())
    }

    fn extreme_group(&mut self, largest: bool) -> Result<(), SqlError> {
        let function = if largest { "max" } else { "min" };
        let sql = format!("SELECT {function}(grp) FROM kv INDEXED BY kv_grp");
        let found = self.statement(&sql, &[])?[0][0];
        let beyond = match found {
            i64::MIN => Seen::Absent,
            _ if largest => Seen::OutsideGroups(found + 1, GROUPS),
            _ => Seen::OutsideGroups(0, found - 1),
        };
        self.saw_keys(1, self.keys, &[], beyond);
        Ok(())
    }

    fn nearest_group(&mut self, group: i64, below: bool) -> Result<(), SqlError> {
        let (comparison, order) = if below { ("<=", "DESC") } else { (">=", "ASC") };
        let sql = format!(
            "SELECT id, val, grp FROM kv INDEXED BY kv_grp WHERE grp{comparison}? ORDER BY grp {order} LIMIT 1"
        );
        let rows = self.statement(&sql, &[group])?;
        let passed = match (rows.first(), below) {
            (None, true) => Seen::OutsideGroups(0, group),
            (None, false) => Seen::OutsideGroups(group, GROUPS),
            (Some(row), true) => Seen::OutsideGroups(row[2] + 1, group),
            (Some(row), false) => Seen::OutsideGroups(group, row[2] - 1),
        };
        self.saw_keys(1, self.keys, &rows, passed);
        Ok(())
    }

    /// A key as the inner side of an outer join.
    fn joined(&mut self, key: i64) -> Result<(), SqlError> {
        let sql = "SELECT ifnull(kv.id, -1), kv.val FROM (SELECT ? AS k) LEFT JOIN kv ON kv.id=k";
        let rows = self.statement(sql, &[key])?;
        self.saw_keys(key, key, &rows, Seen::Absent);
        Ok(())
    }

    /// One statement that counts and one that lists: in one snapshot they agree.
    fn count(&mut self) -> Result<(), SqlError> {
        if self.connection.autocommit() {
            return self.range(1, self.keys, false);
        }
        let count = self.statement("SELECT count(*) FROM kv", &[])?[0][0];
        let rows = self.statement("SELECT id, val FROM kv", &[])?;
        let agree = usize::try_from(count) == Ok(rows.len());
        assert!(
            agree || self.pretend,
            "count(*) gave {count}, a scan of the same snapshot {rows:?}"
        );
        self.saw_keys(1, self.keys, &rows, Seen::Absent);
        Ok(())
    }

    pub(super) fn put(&mut self, key: i64, group: i64) -> Result<(), SqlError> {
        let version = self.next_version();
        let sql = "INSERT INTO kv(id, grp, val) VALUES(?, ?, ?)
                   ON CONFLICT(id) DO UPDATE SET prev=val, val=excluded.val, grp=excluded.grp RETURNING prev";
        let rows = self.statement(sql, &[key, group, version])?;
        let before = Some(rows[0][0]).filter(|value| *value != i64::MIN);
        self.saw(key, before.map_or(Seen::Absent, Seen::Value));
        self.wrote(key, before, Some(Row { version, group }));
        Ok(())
    }

    fn update(&mut self, key: i64, group: i64) -> Result<(), SqlError> {
        let version = self.next_version();
        let sql = "UPDATE kv SET prev=val, val=?, grp=? WHERE id=? RETURNING prev";
        let rows = self.statement(sql, &[version, group, key])?;
        let Some(row) = rows.first() else {
            self.saw(key, Seen::Absent);
            return Ok(());
        };
        self.saw(key, Seen::Value(row[0]));
        self.wrote(key, Some(row[0]), Some(Row { version, group }));
        Ok(())
    }

    fn delete(&mut self, key: i64) -> Result<(), SqlError> {
        let rows = self.statement("DELETE FROM kv WHERE id=? RETURNING val", &[key])?;
        let Some(row) = rows.first() else {
            self.saw(key, Seen::Absent);
            return Ok(());
        };
        self.saw(key, Seen::Value(row[0]));
        self.wrote(key, Some(row[0]), None);
        Ok(())
    }

    fn delete_all(&mut self) -> Result<(), SqlError> {
        let rows = self.statement("DELETE FROM kv RETURNING id, val", &[])?;
        self.saw_keys(1, self.keys, &rows, Seen::Absent);
        for row in rows {
            self.wrote(row[0], Some(row[1]), None);
        }
        Ok(())
    }

    fn update_groups(&mut self, low: i64, high: i64) -> Result<(), SqlError> {
        let base = self.next_version();
        let sql = "UPDATE kv SET prev=val, val=?+id WHERE grp BETWEEN ? AND ? RETURNING id, prev, val, grp";
        let rows = self.statement(sql, &[base, low, high])?;
        self.saw_keys(1, self.keys, &rows, Seen::OutsideGroups(low, high));
        for row in rows {
            let after = Row { version: row[2], group: row[3] };
            self.wrote(row[0], Some(row[1]), Some(after));
        }
        Ok(())
    }
}

/// Where a limit of the process is in the way, it waits for its end.
fn append(file: &mut File, transaction: &Transaction) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(transaction)?;
    line.push(b'\n');
    let mut rest = line.as_slice();
    let deadline = Instant::now() + PATIENCE;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::FileTooLarge && Instant::now() < deadline => {
                std::thread::sleep(NAP);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

//! Inserts, selects, scans, mixes and deletes of keys and values.
//!
//! Tables `intkey(k INTEGER PRIMARY KEY, v BLOB)` and `blobkey(k BLOB PRIMARY KEY, v BLOB)`, or what an engine has
//! instead; keys pseudo-random, unsorted and never repeated, values pseudo-random. One connection does a table's steps
//! in the order given, except for the steps of crews.
//!
//! Every value that is read is compared with what was written, byte by byte. Afterwards all rows are scanned and must
//! be, in the order of their keys, exactly those that are left, each in the version of its last acknowledged update.
//!
//! | module | what |
//! |---|---|
//! | `data` | keys and values |
//! | `clients` | workers of crews |
//! | `flight` | commits that are not known to be on disk yet |

mod clients;
mod data;
mod flight;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::clients::{Inserter, Mixer, Rows};
use self::data::{Data, RowKey, VALUE_BYTES_MIN};
use self::flight::{End, Flight};
use super::crew::{self, Amount, Place, Shift, Worker};
use super::dice::Dice;
use super::{Measured, Site, Workload};
use crate::engines::{Begin, Failure, KeyKind, KeyValue, Outcome, Store, Table};
use crate::measure::phase::{Latency, Phase};
use crate::measure::trace::mark;
use crate::measure::usage;

/// What is done with a table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// All rows are inserted.
    Insert,
    /// All rows are selected in the order in which they were inserted.
    Select,
    /// Ranges from random rows on are scanned.
    Scan {
        /// How many.
        ranges: u64,
        /// Rows in each.
        length: u64,
    },
    /// Rows are inserted for a time, each in a transaction of its own.
    InsertOne {
        /// How long.
        seconds: f64,
    },
    /// Random rows are read or updated for a time, each in a transaction of its own.
    Mix {
        /// How many in a hundred are reads.
        read_percent: u64,
        /// How long.
        seconds: f64,
        /// By how many workers.
        workers: u32,
        /// Whether they are threads or processes.
        #[serde(default)]
        place: Place,
    },
    /// Random rows are updated for a time by one thread, each in a transaction of its own, of which so many are not known
    /// to be on disk at once; one is done when it is on disk. Of engines that give tickets.
    Promised {
        /// How many are in flight; with one each is waited for.
        in_flight: u64,
        /// How long.
        seconds: f64,
    },
    /// Every other row is deleted, in the order in which they were inserted.
    Delete,
}

impl Step {
    /// Whether at least half of its operations are commits.
    #[must_use]
    pub fn is_of_commits(&self) -> bool {
        match self {
            Self::InsertOne { .. } | Self::Promised { .. } => true,
            Self::Insert | Self::Delete | Self::Select | Self::Scan { .. } => false,
            Self::Mix { read_percent, .. } => *read_percent <= 50,
        }
    }

    /// What the phase of this step is called.
    #[must_use]
    pub fn phase(&self, keys: KeyKind) -> String {
        let keys = match keys {
            KeyKind::Int => "int",
            KeyKind::Blob => "blob",
        };
        match self {
            Self::Insert => format!("insert {keys}"),
            Self::Select => format!("select {keys}"),
            Self::Scan { .. } => format!("scan {keys}"),
            Self::InsertOne { .. } => format!("insert one {keys}"),
            Self::Mix { read_percent, workers, place, .. } => {
                let by = match (place, workers) {
                    (Place::Threads, 1) => String::new(),
                    (Place::Threads, _) => format!(" by {workers}"),
                    (Place::Processes, _) => format!(" by {workers} processes"),
                };
                format!("{read_percent}/{} {keys}{by}", 100 - read_percent)
            }
            Self::Promised { in_flight, .. } => format!("update {keys}, {in_flight} in flight"),
            Self::Delete => format!("delete {keys}"),
        }
    }
}

/// A table and what is done with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Its keys.
    pub keys: KeyKind,
    /// What is done, in this order.
    pub steps: Vec<Step>,
}

/// Sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Rows of each table.
    pub rows: u64,
    /// Bytes of each value, 16 at least.
    pub value_bytes: usize,
    /// Rows in each transaction that inserts or deletes; without, each row is left to itself.
    pub rows_per_transaction: Option<u64>,
    /// Whether selects have transactions of as many rows, too.
    pub select_in_transactions: bool,
    /// How transactions that write begin.
    pub begin: Begin,
    /// Whether the table with blob keys is asked to be without rowid.
    pub without_rowid: bool,
    /// The tables.
    pub parts: Vec<Part>,
}

impl Load {
    fn tables(&self) -> Vec<Table> {
        let table = |part: &Part| match part.keys {
            KeyKind::Int => {
                Table { name: "intkey".to_owned(), keys: KeyKind::Int, without_rowid: false }
            }
            KeyKind::Blob => Table {
                name: "blobkey".to_owned(),
                keys: KeyKind::Blob,
                without_rowid: self.without_rowid,
            },
        };
        self.parts.iter().map(table).collect()
    }

    /// The workers of a mix, for a process that is one of them.
    pub(super) fn hire<'a>(&'a self, site: &'a Site<'a>) -> Outcome<Box<crew::Hire<'a>>> {
        let [Part { keys, steps }] = &self.parts[..] else { return Err(threads_only()) };
        let [Step::Mix { read_percent, workers, .. }] = steps[..] else {
            return Err(threads_only());
        };
        let data = Data::new(site.seed, *keys, self.value_bytes);
        Ok(Box::new(move |store, index| {
            let mut connection = store.key_value(&self.tables())?;
            let place = (u64::from(index), u64::from(workers));
            let own = (place.0..self.rows).step_by(usize::try_from(workers).unwrap_or(usize::MAX));
            let rows = Rows::of_one(connection.as_mut(), data, self.rows, own)?;
            Ok(mixer(connection, rows, read_percent, place, site.seed))
        }))
    }

    /// Does all steps, and verifies each table after its last.
    pub(super) fn run(&self, site: &Site<'_>) -> Outcome<Measured> {
        if self.value_bytes < VALUE_BYTES_MIN {
            return Err(Failure::broken(format!("values need {VALUE_BYTES_MIN} bytes at least")));
        }
        let store = site.engine.open(&site.directory, site.settings)?;
        let tables = self.tables();
        store.create(&tables)?;
        let (mut phases, mut verified) = (Vec::new(), Vec::new());
        for (table, part) in self.parts.iter().enumerate() {
            let mut work = Work::new(self, site, store.as_ref(), &tables, table);
            for step in &part.steps {
                phases.push(work.step(step)?);
            }
            verified.push(work.verify()?);
        }
        let settings = store.settings()?;
        store.close()?;
        Ok(Measured { phases, settings, verified, ..Measured::default() })
    }
}

/// The work on one table.
struct Work<'a> {
    load: &'a Load,
    store: &'a dyn Store,
    tables: &'a [Table],
    table: usize,
    keys: KeyKind,
    data: Data,
    /// Whether the engine orders integer keys as they are in memory.
    in_memory_order: bool,
    site: &'a Site<'a>,
    /// The version of each row there is or was.
    versions: Vec<AtomicU64>,
    /// Whether every other row was deleted.
    halved: bool,
    connection: Option<Box<dyn KeyValue + 'a>>,
}

impl<'a> Work<'a> {
    fn new(
        load: &'a Load,
        site: &'a Site<'a>,
        store: &'a dyn Store,
        tables: &'a [Table],
        table: usize,
    ) -> Self {
        let keys = load.parts[table].keys;
        Self {
            load,
            store,
            tables,
            table,
            keys,
            data: Data::new(site.seed, keys, load.value_bytes),
            in_memory_order: site.settings.get("int_keys") == Some("native"),
            site,
            versions: Vec::new(),
            halved: false,
            connection: None,
        }
    }

    /// The table's own connection, opened when it is first needed.
    fn connection(&mut self) -> Outcome<&mut Box<dyn KeyValue + 'a>> {
        if self.connection.is_none() {
            self.connection = Some(self.store.key_value(self.tables)?);
        }
        Ok(self.connection.as_mut().expect("opened just now"))
    }

    fn step(&mut self, step: &Step) -> Outcome<Phase> {
        let name = step.phase(self.keys);
        match *step {
            Step::Insert => self.insert(&name),
            Step::Select => self.select(&name),
            Step::Scan { ranges, length } => self.scan(&name, ranges, length),
            Step::InsertOne { seconds } => self.insert_one(&name, seconds),
            Step::Mix { place: Place::Threads, read_percent, seconds, workers } => {
                self.mix(&name, read_percent, seconds, workers)
            }
            Step::Mix { place: Place::Processes, seconds, workers, .. } => {
                self.mix_in_processes(&name, *step, &shift(workers, seconds))
            }
            Step::Promised { in_flight, seconds } => self.promised(&name, in_flight, seconds),
            Step::Delete => self.delete(&name),
        }
    }

    fn insert(&mut self, name: &str) -> Outcome<Phase> {
        let (data, table, load) = (self.data, self.table, self.load);
        let mut value = Vec::new();
        let connection = self.connection()?;
        let phase = timed(name, || {
            in_transactions(connection.as_mut(), load, load.rows, |connection, row| {
                data.fill(row, 0, &mut value);
                connection.insert(table, data.key(row).key(), &value)
            })
        })?;
        self.versions.resize_with(index(load.rows), AtomicU64::default);
        Ok(phase)
    }

    fn select(&mut self, name: &str) -> Outcome<Phase> {
        let (data, table, load) = (self.data, self.table, self.load);
        let mut scratch = Vec::new();
        let rows = self.versions.len() as u64;
        let each = load.rows_per_transaction.filter(|_| load.select_in_transactions);
        let connection = self.connection()?;
        timed(name, || {
            for row in 0..rows {
                if each.is_some_and(|each| row % each == 0) {
                    connection.begin_read()?;
                }
                let mut version = None;
                connection.get(table, data.key(row).key(), &mut |value| {
                    version = data.version(row, value, &mut scratch);
                })?;
                if version != Some(0) {
                    return Err(Failure::broken(format!("row {row} is not what was inserted")));
                }
                if each.is_some_and(|each| (row + 1) % each == 0 || row + 1 == rows) {
                    connection.commit()?;
                }
            }
            Ok((rows, 0))
        })
    }

    fn scan(&mut self, name: &str, ranges: u64, length: u64) -> Outcome<Phase> {
        let (data, table, seed) = (self.data, self.table, self.site.seed);
        let order = self.rows_in_order();
        let mut dice = Dice::new(seed, 1);
        let mut scratch = Vec::new();
        let connection = self.connection()?;
        timed(name, || {
            let mut values = 0;
            for _ in 0..ranges {
                let start = index(dice.below(order.len() as u64));
                let expected = &order[start..order.len().min(start + index(length))];
                let mut rows = expected.iter();
                let mut good = 0;
                let from = data.key(order[start]);
                let found = connection.scan(table, Some(from.key()), length, &mut |value| {
                    let row = rows.next().copied().unwrap_or(u64::MAX);
                    good += u64::from(data.version(row, value, &mut scratch).is_some());
                })?;
                if (found, good) != (expected.len() as u64, found) {
                    return Err(Failure::broken(format!(
                        "a scan of {} rows found {found}, {good} of them right",
                        expected.len()
                    )));
                }
                values += found;
            }
            Ok((values, 0))
        })
    }

    fn insert_one(&mut self, name: &str, seconds: f64) -> Outcome<Phase> {
        self.connection = None;
        let count = AtomicU64::new(self.versions.len() as u64);
        let (tables, table, data) = (self.tables, self.table, self.data);
        let phase = crew::run(name, self.store, &shift(1, seconds), &|store, _| {
            Ok(Box::new(Inserter {
                connection: store.key_value(tables)?,
                data,
                table,
                count: &count,
                value: Vec::new(),
                key: None,
            }))
        })?;
        self.versions.resize_with(index(count.into_inner()), AtomicU64::default);
        Ok(phase)
    }

    fn mix(&mut self, name: &str, read_percent: u64, seconds: f64, workers: u32) -> Outcome<Phase> {
        self.connection = None;
        let (tables, seed) = (self.tables, self.site.seed);
        let versions = Arc::new(std::mem::take(&mut self.versions));
        let rows = Rows { data: self.data, table: self.table, versions };
        let phase = crew::run(name, self.store, &shift(workers, seconds), &|store, index| {
            let place = (u64::from(index), u64::from(workers));
            Ok(mixer(store.key_value(tables)?, rows.clone(), read_percent, place, seed))
        })?;
        self.versions = Arc::into_inner(rows.versions).expect("all workers have ended");
        Ok(phase)
    }

    /// The same by processes, for which that step is all there is to do. What they have acknowledged is looked for at once.
    fn mix_in_processes(&mut self, name: &str, step: Step, shift: &Shift) -> Outcome<Phase> {
        self.connection = None;
        let alone = Load {
            rows: self.versions.len() as u64,
            parts: vec![Part { keys: self.keys, steps: vec![step] }],
            ..self.load.clone()
        };
        let workload = Workload::KeyValue(alone);
        let done = crew::run_in(Place::Processes, self.site, &workload, self.store, shift)?;
        let phase = done.whole(name);
        self.learn_versions(phase.acknowledged())?;
        Ok(phase)
    }

    /// Reads the version of each row after others than this process have raised them, so many times in all. Nobody raises
    /// a version further than it acknowledged, so only if none was lost they add up to that.
    fn learn_versions(&mut self, acknowledged: u64) -> Outcome<()> {
        // Relaxed, here and below: this thread alone works on them.
        let sum = |versions: &[AtomicU64]| -> u64 {
            versions.iter().map(|version| version.load(Ordering::Relaxed)).sum()
        };
        let mut found: Vec<AtomicU64> = self.versions.iter().map(|_| AtomicU64::new(0)).collect();
        self.look_at_all(&mut |row, version| {
            *found[index(row)].get_mut() = version;
            None
        })?;
        let (before, after) = (sum(&self.versions), sum(&found));
        self.versions = found;
        if after == before + acknowledged {
            return Ok(());
        }
        let name = &self.tables[self.table].name;
        let raised = after.wrapping_sub(before).cast_signed();
        let text =
            format!("{name}: {acknowledged} acknowledged updates raised versions by {raised}");
        Err(Failure::broken(text))
    }

    fn promised(&mut self, name: &str, in_flight: u64, seconds: f64) -> Outcome<Phase> {
        let (data, table, seed) = (self.data, self.table, self.site.seed);
        let versions = std::mem::take(&mut self.versions);
        let connection = self.connection()?;
        let mut dice = Dice::new(seed, in_flight << 32);
        let (mut flight, mut value) = (Flight::new(), Vec::new());
        let phase = timed(name, || {
            let begun = Instant::now();
            while begun.elapsed().as_secs_f64() < seconds {
                let row = dice.below(versions.len() as u64);
                // Relaxed: this thread alone works on the table.
                let version = versions[index(row)].load(Ordering::Relaxed) + 1;
                data.fill(row, version, &mut value);
                let asked = Instant::now();
                connection.update(table, data.key(row).key(), &value)?;
                versions[index(row)].store(version, Ordering::Relaxed);
                flight.begins(connection.ticket()?, asked);
                if flight.len() >= in_flight {
                    flight.lands(connection.as_mut(), End::First)?;
                }
            }
            flight.lands(connection.as_mut(), End::Last)?;
            Ok((flight.landed, flight.landed))
        })?;
        self.versions = versions;
        Ok(Phase { latency: Some(Latency::from(&flight.latency)), ..phase })
    }

    fn delete(&mut self, name: &str) -> Outcome<Phase> {
        let (data, table, load) = (self.data, self.table, self.load);
        let count = self.versions.len() as u64 / 2;
        let connection = self.connection()?;
        let phase = timed(name, || {
            in_transactions(connection.as_mut(), load, count, |connection, number| {
                let row = 2 * number + 1;
                if connection.delete(table, data.key(row).key())? {
                    return Ok(());
                }
                Err(Failure::broken(format!("row {row} was not there to be deleted")))
            })
        })?;
        self.halved = true;
        Ok(phase)
    }

    /// The rows that are there, in the order in which the engine keeps their keys.
    fn rows_in_order(&self) -> Vec<u64> {
        let step = if self.halved { 2 } else { 1 };
        let mut rows: Vec<u64> = (0..self.versions.len() as u64).step_by(step).collect();
        rows.sort_by_cached_key(|row| match self.data.key(*row) {
            RowKey::Int(int) if self.in_memory_order => {
                RowKey::Int((u64::from_be_bytes(int.to_ne_bytes()) ^ (1 << 63)).cast_signed())
            }
            key => key,
        });
        rows
    }

    /// Scans the whole table; tells in words what was found right.
    fn verify(mut self) -> Outcome<String> {
        let count = self.rows_in_order().len();
        let versions: Vec<u64> =
            self.versions.iter().map(|version| version.load(Ordering::Relaxed)).collect();
        let mut updates = 0;
        self.look_at_all(&mut |row, version| {
            updates += version;
            let expected = versions[index(row)];
            (version != expected).then(|| format!("row {row} is not in its version {expected}"))
        })?;
        let name = &self.tables[self.table].name;
        Ok(format!("{name}: {count} rows in the order of their keys, with {updates} updates"))
    }

    /// Scans the whole table, which must hold exactly the rows that there are, in their order; what is said to be wrong
    /// with the version of one is an error too.
    fn look_at_all(&mut self, look: &mut dyn FnMut(u64, u64) -> Option<String>) -> Outcome<()> {
        let order = self.rows_in_order();
        let (data, table) = (self.data, self.table);
        let (mut rows, mut scratch) = (order.iter(), Vec::new());
        let mut wrong = None;
        let connection = self.connection()?;
        connection.scan(table, None, u64::MAX, &mut |value| {
            let Some(row) = rows.next() else {
                wrong.get_or_insert("there are more rows than were left".to_owned());
                return;
            };
            let said = match data.version(*row, value, &mut scratch) {
                Some(version) => look(*row, version),
                None => Some(format!("row {row} is damaged")),
            };
            if let Some(said) = said {
                wrong.get_or_insert(said);
            }
        })?;
        if rows.next().is_some() {
            wrong.get_or_insert("there are fewer rows than were left".to_owned());
        }
        match wrong {
            Some(wrong) => Err(Failure::broken(format!("{}: {wrong}", self.tables[table].name))),
            None => Ok(()),
        }
    }
}

/// A worker of a mix: `place` is its number and the number of all.
fn mixer<'a>(
    connection: Box<dyn KeyValue + 'a>,
    rows: Rows,
    read_percent: u64,
    place: (u64, u64),
    seed: u64,
) -> Box<dyn Worker + 'a> {
    Box::new(Mixer {
        connection,
        rows,
        read_percent,
        index: place.0,
        workers: place.1,
        dice: Dice::new(seed, read_percent << 32 | place.0),
        chosen: (0, true),
        value: Vec::new(),
        scratch: Vec::new(),
    })
}

fn threads_only() -> Failure {
    Failure::unsupported("of the work on keys only a mix is done by processes")
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn shift(workers: u32, seconds: f64) -> Shift {
    Shift {
        workers,
        amount: Amount::Seconds(seconds),
        due_per_second: None,
        count_start_and_stop: false,
    }
}

/// Does something for each number below `count`, in transactions as the load has them; tells operations and commits.
fn in_transactions(
    connection: &mut dyn KeyValue,
    load: &Load,
    count: u64,
    mut act: impl FnMut(&mut dyn KeyValue, u64) -> Outcome<()>,
) -> Outcome<(u64, u64)> {
    let Some(each) = load.rows_per_transaction else {
        for number in 0..count {
            act(connection, number)?;
        }
        return Ok((count, count));
    };
    let mut commits = 0;
    for first in (0..count).step_by(index(each)) {
        connection.begin(load.begin)?;
        for number in first..count.min(first + each) {
            act(connection, number)?;
        }
        connection.commit()?;
        commits += 1;
    }
    Ok((count, commits))
}

/// Measures what tells its operations and commits.
fn timed(name: &str, act: impl FnOnce() -> Outcome<(u64, u64)>) -> Outcome<Phase> {
    let (before, cpu) = (usage::so_far(), usage::thread_cpu());
    let section = mark::section();
    let begun = Instant::now();
    let (operations, commits) = act()?;
    let seconds = begun.elapsed().as_secs_f64();
    section.end(operations);
    Ok(Phase {
        name: name.to_owned(),
        operations,
        commits,
        seconds,
        usage: usage::between(before, usage::so_far()),
        transaction_cpu_s: usage::thread_cpu().saturating_sub(cpu).as_secs_f64(),
        ..Phase::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::map::MapEngine;
    use crate::engines::{Engine as _, Settings};

    #[test]
    fn an_update_of_another_process_that_is_not_there_is_missed() {
        let (folder, settings) = (tempfile::tempdir().expect("a folder"), Settings::default());
        let site = Site {
            engine: &MapEngine,
            kind: None,
            settings: &settings,
            directory: folder.path().to_owned(),
            seed: 1,
        };
        let load = Load {
            rows: 10,
            value_bytes: 100,
            rows_per_transaction: None,
            select_in_transactions: false,
            begin: Begin::Immediate,
            without_rowid: false,
            parts: vec![Part { keys: KeyKind::Int, steps: vec![Step::Insert] }],
        };
        let store = MapEngine.open(folder.path(), &settings).expect("a map");
        let tables = load.tables();
        store.create(&tables).expect("a table");
        let mut work = Work::new(&load, &site, store.as_ref(), &tables, 0);
        work.step(&Step::Insert).expect("rows");
        let (data, mut value) = (work.data, Vec::new());
        data.fill(3, 1, &mut value);
        store
            .key_value(&tables)
            .and_then(|mut other| other.update(0, data.key(3).key(), &value))
            .expect("an update by somebody else");
        work.learn_versions(1).expect("one was acknowledged, and one is there");
        let error = work.learn_versions(1).expect_err("one more was acknowledged").to_string();
        assert_eq!(error, "intkey: 1 acknowledged updates raised versions by 0");
        let verified = work.verify().expect("what was learned is there");
        assert!(verified.ends_with("with 1 updates"), "{verified}");
    }
}

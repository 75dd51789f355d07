//! Engines that lie, lose, stall, crash or hang, for the suite's tests of itself.
//!
//! Each is the ordered map of [`map`](super::map) with a log beside it: at a commit a record is appended to `log` and
//! brought to the disk, then the commit is acknowledged. All claim that a commit survives a power cut (nothing reads the
//! log again, but that is not what is tested). Each but the first has one fault. The catalogue does not list them;
//! they have to be named: `--engines fake-no-sync`.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::map::MapEngine;
use super::{Begin, Connection, Engine, Failure, Key, KeyValue, Outcome, Settings, Store, Table};

/// What is wrong with a fake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing: what is said of the others would be worth little if it were said of this one too.
    Honest,
    /// Acknowledges commits that no system call has brought to the disk.
    NoSync,
    /// Syncs at every tenth commit only.
    SeldomSync,
    /// Syncs, but a file that has nothing to do with its data.
    SyncElsewhere,
    /// Acknowledges every 25th write and does not do it.
    Drops,
    /// Sleeps 200 ms before it acknowledges every 500th commit.
    Stalls,
    /// Kills its process at the 20th commit.
    Crashes,
    /// Never returns from the 20th commit.
    Hangs,
    /// Leaves a process behind that nobody stops.
    LeavesProcess,
}

/// All of them with the names that the command line takes.
pub const ALL: &[(&str, Fault)] = &[
    ("fake-honest", Fault::Honest),
    ("fake-no-sync", Fault::NoSync),
    ("fake-seldom-sync", Fault::SeldomSync),
    ("fake-sync-elsewhere", Fault::SyncElsewhere),
    ("fake-drops", Fault::Drops),
    ("fake-stalls", Fault::Stalls),
    ("fake-crashes", Fault::Crashes),
    ("fake-hangs", Fault::Hangs),
    ("fake-leaves-process", Fault::LeavesProcess),
];

/// What the process that is left behind calls itself: seconds that it would sleep.
pub const LEFT_SLEEPS_S: &str = "86413";

/// A store that cannot be trusted.
pub struct FakeEngine {
    /// In which way.
    pub fault: Fault,
}

impl Engine for FakeEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        settings.only(&[])?;
        if self.fault == Fault::LeavesProcess {
            leave_process()?;
        }
        let append = |path: &Path| OpenOptions::new().create(true).append(true).open(path);
        let log = append(&directory.join("log"))?;
        let synced = match self.fault {
            Fault::SyncElsewhere => append(&std::env::temp_dir().join("fake-elsewhere"))?,
            _ => log.try_clone()?,
        };
        Ok(Box::new(FakeStore {
            inner: MapEngine.open(directory, settings)?,
            fault: self.fault,
            log,
            synced,
            commits: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }))
    }
}

/// A process outside of the trial's group, as a server that makes itself a daemon is.
fn leave_process() -> Outcome<()> {
    Command::new("sleep")
        .arg(LEFT_SLEEPS_S)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(())
}

struct FakeStore {
    inner: Box<dyn Store>,
    fault: Fault,
    log: File,
    /// The log, or what is synced in its place.
    synced: File,
    /// Relaxed everywhere: the counters choose who is treated badly and order nothing.
    commits: AtomicU64,
    writes: AtomicU64,
}

impl FakeStore {
    /// What happens before a commit is acknowledged.
    fn log_commit(&self) -> Outcome<()> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        (&self.log).write_all(&number.to_le_bytes())?;
        match self.fault {
            Fault::NoSync => return Ok(()),
            Fault::SeldomSync if !number.is_multiple_of(10) => return Ok(()),
            Fault::SyncElsewhere => (&self.synced).write_all(b"x")?,
            Fault::Stalls if number.is_multiple_of(500) => {
                std::thread::sleep(Duration::from_millis(200))
            }
            Fault::Crashes if number == 20 => {
                eprintln!("fake: about to crash, as it should");
                std::process::abort();
            }
            Fault::Hangs if number == 20 => loop {
                std::thread::park();
            },
            _ => {}
        }
        self.synced.sync_data()?;
        Ok(())
    }

    /// Whether a write is one of those that are lost.
    fn loses(&self) -> bool {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        self.fault == Fault::Drops && number.is_multiple_of(25)
    }
}

impl Store for FakeStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        self.inner.create(tables)
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        let inner = self.inner.key_value(tables)?;
        Ok(Box::new(FakeConnection { store: self, inner, in_transaction: false }))
    }

    fn settings(&self) -> Outcome<Settings> {
        Ok(Settings::default())
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.inner.close()
    }
}

struct FakeConnection<'a> {
    store: &'a FakeStore,
    inner: Box<dyn KeyValue + 'a>,
    in_transaction: bool,
}

impl FakeConnection<'_> {
    /// A write: logged at once unless a commit will do so.
    fn write<T>(
        &mut self,
        lost: T,
        act: impl FnOnce(&mut dyn KeyValue) -> Outcome<T>,
    ) -> Outcome<T> {
        let result = if self.store.loses() { lost } else { act(self.inner.as_mut())? };
        if !self.in_transaction {
            self.store.log_commit()?;
        }
        Ok(result)
    }
}

impl Connection for FakeConnection<'_> {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        if begin == Begin::Concurrent {
            return Err(Failure::unsupported("a fake has one writer"));
        }
        self.inner.begin(begin)?;
        self.in_transaction = true;
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        self.store.log_commit()?;
        self.in_transaction = false;
        self.inner.commit()
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.in_transaction = false;
        self.inner.rollback()
    }
}

impl KeyValue for FakeConnection<'_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        self.inner.get(table, key, found)
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.write((), |inner| inner.insert(table, key, value))
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.write((), |inner| inner.update(table, key, value))
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        self.write(true, |inner| inner.delete(table, key))
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        self.inner.scan(table, from, count, found)
    }
}

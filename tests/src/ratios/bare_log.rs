//! The bare log beside which a library's durable transactions are measured: the limit, and no store.
//!
//! A writer makes the same random bytes as one of [`Work::SelectUpdate`](super::case::Work::SelectUpdate) and
//! commits a record of the length of that transaction's frame. Nothing is selected, kept or checked. A record
//! begins with the number of its writer and its own among those of that writer, so that afterwards the file
//! can be asked for the last record that each was told is on disk.

use super::writer::{Count, Repeated, Settings, VALUE_BYTES};
use crate::sqlite::{IOERR, Result, SqlError};
use anyhow::{Context as _, ensure};
use plait_bare_log::BareLog;
use rand::rngs::StdRng;
use rand::{RngCore as _, SeedableRng as _};
use std::path::Path;
use std::sync::Arc;

/// What stands in the place of a journal mode.
pub const MODE: &str = "bare log";
/// Length of a record: that of Plait's frame for an update of a row of 400 bytes.
pub const RECORD_BYTES: usize = 488;
/// The numbers at its beginning.
const HEAD_BYTES: usize = 16;

/// Appends records.
pub struct Appender {
    log: Arc<BareLog>,
    random: StdRng,
    record: [u8; RECORD_BYTES],
    count: Count,
}

impl Appender {
    /// The writer of this number.
    #[must_use]
    pub fn new(log: Arc<BareLog>, writer: u32, seed: u64) -> Self {
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&u64::from(writer).to_le_bytes());
        Self { log, random: StdRng::seed_from_u64(seed), record, count: Count::default() }
    }

    /// There are none but that every commit is on disk.
    pub fn settings(&self) -> Result<Settings> {
        Ok(Settings {
            version: String::new(),
            journal_mode: MODE.to_owned(),
            synchronous: 2,
            page_size: 0,
            cache_size: 0,
        })
    }
}

impl Repeated for Appender {
    fn count(&mut self) -> &mut Count {
        &mut self.count
    }

    fn once(&mut self) -> Result<Option<usize>> {
        self.record[8..HEAD_BYTES].copy_from_slice(&(self.count.total + 1).to_le_bytes());
        self.random.fill_bytes(&mut self.record[HEAD_BYTES..HEAD_BYTES + VALUE_BYTES]);
        match self.log.commit(&self.record) {
            Ok(()) => Ok(None),
            Err(error) => Err(SqlError::new(IOERR, error.to_string(), MODE)),
        }
    }
}

/// The log at `path` has as many records as were acknowledged, and of each writer the last one.
pub fn verify(log: &BareLog, path: &Path, writers: &[Count]) -> anyhow::Result<()> {
    let length = RECORD_BYTES as u64;
    let records: u64 = writers.iter().map(|count| count.total).sum();
    let synced = log.synced_bytes();
    ensure!(synced == records * length, "{synced} bytes on disk, {records} records acknowledged");
    let file = std::fs::read(path)?;
    let room = file.len() as u64;
    let number = |record: u64, offset: u64| {
        // Numbers may go on at the beginning of the file, as records do.
        let byte = |i: u64| file[usize::try_from((record * length + offset + i) % room).unwrap()];
        u64::from_le_bytes(std::array::from_fn(|i| byte(i as u64)))
    };
    let mut last = vec![0; writers.len()];
    for record in records - records.min(room / length)..records {
        let writer = usize::try_from(number(record, 0))?;
        let last = last.get_mut(writer).with_context(|| format!("record {record} is damaged"))?;
        *last = number(record, 8).max(*last);
    }
    for (writer, (last, count)) in last.iter().zip(writers).enumerate() {
        let total = count.total;
        ensure!(
            *last == total,
            "of writer {writer} {total} records were acknowledged, {last} is there"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::case::own_best_load;
    use super::super::trial::fill;
    use super::super::writer::Writer;
    use super::*;
    use crate::subject::real_plait;
    use std::cell::Cell;
    use std::os::unix::fs::FileExt as _;

    fn appended(room_bytes: u64, each: u64) -> (tempfile::TempDir, BareLog, Vec<Count>) {
        let directory = tempfile::tempdir().expect("a directory");
        let log =
            Arc::new(BareLog::create(&directory.path().join("log"), room_bytes).expect("a log"));
        let counts = (0..3).map(|writer| {
            let mut appender = Appender::new(log.clone(), writer, 1);
            for _ in 0..each {
                appender.once().expect("a commit");
                appender.count().total += 1;
            }
            appender.count.clone()
        });
        let counts = counts.collect();
        (directory, Arc::into_inner(log).expect("nobody else has it"), counts)
    }

    #[test]
    fn a_record_that_is_lost_or_damaged_fails_the_trial() {
        // Where all have room, and where the last ones stand in the place of the first.
        for room in [1 << 20, 50 * RECORD_BYTES as u64 + 100] {
            let (directory, log, mut counts) = appended(room, 20);
            let path = directory.path().join("log");
            verify(&log, &path, &counts).expect("all are there");
            counts[1].total += 1;
            let error = verify(&log, &path, &counts).expect_err("one more").to_string();
            assert!(error.contains("61 records acknowledged"), "{error}");
            counts[1].total -= 1;
            let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
            let last = 59 * RECORD_BYTES as u64;
            file.write_all_at(&7_u64.to_le_bytes(), (last + 8) % room).expect("another number");
            let error = verify(&log, &path, &counts).expect_err("the last is lost").to_string();
            assert!(
                error.contains("of writer 2 20 records were acknowledged, 19 is there"),
                "{error}"
            );
            file.write_all_at(&7_u64.to_le_bytes(), last % room).expect("no such writer");
            let error = verify(&log, &path, &counts).expect_err("a strange record").to_string();
            assert!(error.contains("record 59 is damaged"), "{error}");
        }
    }

    #[test]
    fn a_record_is_as_long_as_a_frame() {
        let Some(subject) = real_plait("frames are measured") else { return };
        let directory = tempfile::tempdir().expect("a directory");
        let database = directory.path().join("app.db");
        let keeper = subject.create(&database).expect("a database");
        fill(&keeper).expect("its rows");
        let mut writer = Writer::connect(&subject, &database, &own_best_load(1), 1).expect("one");
        let log_bytes = || {
            let sql = "SELECT value FROM plait_status WHERE name='log_bytes'";
            keeper.integer(sql).expect("a session has a log")
        };
        let left = Cell::new(100);
        let ended = || left.replace(left.get() - 1) == 0;
        writer.run(&ended, &|| true).expect("the log is there from the first commit on");
        let before = log_bytes();
        left.set(500);
        writer.run(&ended, &|| true).expect("it commits");
        let each = (log_bytes() - before) as f64 / 500.0;
        // Counters of some rows take a byte, of others none, and a frame is a multiple of eight.
        assert!((each - RECORD_BYTES as f64).abs() < 8.0, "{each} bytes in each frame");
    }
}

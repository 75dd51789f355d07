//! Recovery cut off at every step, again and again, over logs torn at every sector (SESSION-2).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::base::WalState;
use crate::log::tests::{SALT, group_over_generations};
use crate::shm::read_marks::ReadMarks;

const SECTOR: usize = 512;

type Rows = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// The content of the base's disk.
#[derive(Clone, Default, PartialEq)]
struct Disk {
    header: BaseHeader,
    rows: Rows,
}

impl Disk {
    /// A base that is fenced, has a log of its own, and is empty.
    fn fenced() -> Disk {
        let header = BaseHeader { marked: true, fenced: true, salt: SALT, ..BaseHeader::default() };
        Disk { header, rows: Rows::new() }
    }

    fn commits(&self) -> Vec<u64> {
        let number =
            |key: &Vec<u8>| u64::from_be_bytes(key[..8].try_into().expect("a commit's key"));
        self.rows.keys().map(|(_, key)| number(key)).collect()
    }
}

/// A base whose power goes off at one of its steps: one is before each operation, one after each
/// commit.
struct Fragile {
    disk: Disk,
    open: Option<Disk>,
    steps: u32,
    cut: Option<u32>,
}

impl Fragile {
    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.cut.is_some_and(|cut| self.steps > cut) {
            return Err(Error::CantOpen("the power is off".into()));
        }
        Ok(())
    }

    fn transaction(&mut self) -> &mut Disk {
        self.open.as_mut().expect("a write outside a transaction")
    }
}

impl Base for Fragile {
    fn use_read_marks(&mut self, _: &Arc<ReadMarks>) {}
    fn header(&mut self) -> Result<BaseHeader> {
        Ok(self.open.as_ref().unwrap_or(&self.disk).header)
    }
    fn begin(&mut self) -> Result<()> {
        self.step()?;
        self.open = Some(self.disk.clone());
        Ok(())
    }
    fn put(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.step()?;
        self.transaction().rows.insert((root.get(), key.to_vec()), rec.to_vec());
        Ok(())
    }
    fn delete(&mut self, root: Root, key: &[u8], _: &[u8]) -> Result<()> {
        self.step()?;
        self.transaction().rows.remove(&(root.get(), key.to_vec()));
        Ok(())
    }
    fn stamp(&mut self, header: &BaseHeader) -> Result<()> {
        self.step()?;
        self.transaction().header = *header;
        Ok(())
    }
    fn commit(&mut self) -> Result<()> {
        self.step()?;
        self.disk = self.open.take().expect("begun");
        self.step()
    }
    fn rollback(&mut self) {
        self.open = None;
    }
    fn raise_fence(&mut self) -> Result<()> {
        self.step()
    }
    fn checkpoint(&mut self, _: Checkpoint) -> Result<WalState> {
        self.step().map(|()| WalState::default())
    }
}

/// One torn log, and what each trial made of the base.
struct Trial {
    path: PathBuf,
    log: Vec<u8>,
    expected: Vec<u64>,
    /// States from which everything was tried, and the depth.
    seen: Vec<(Disk, u32)>,
    name: String,
}

impl Trial {
    fn run(&self, disk: &Disk, cut: Option<u32>, accept: bool) -> (Result<()>, Fragile) {
        loop {
            std::fs::write(log_path(&self.path), &self.log).expect("the log can be written");
            let mut base = Fragile { disk: disk.clone(), open: None, steps: 0, cut };
            let outcome = if accept {
                accept_base(&self.path, &mut base, false)
            } else {
                bring_to_rest(&self.path, &mut base, disk.header, None).map(drop)
            };
            // A child that another test has just forked has the locks of this process until it
            // starts a program.
            match &outcome {
                Err(Error::CantOpen(text)) if text.contains("in use") => std::thread::yield_now(),
                _ => return (outcome, base),
            }
        }
    }

    /// Opens over `disk` and the log, which is as it was, or is back because its removal was lost.
    /// Then opens with every cut, and from what each cut leaves.
    fn explore(&mut self, disk: &Disk, depth: u32) {
        if self.seen.iter().any(|(seen, known)| seen == disk && *known >= depth) {
            return;
        }
        self.seen.push((disk.clone(), depth));
        let name = self.name.clone();
        let (outcome, done) = self.run(disk, None, false);
        outcome.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(done.disk.commits(), self.expected, "{name}, from {:?}", disk.header);
        assert!(!done.disk.header.fenced && !log_path(&self.path).exists(), "{name}: not at rest");
        if depth == 0 {
            return;
        }
        for cut in 0..done.steps {
            let (outcome, cut) = self.run(disk, Some(cut), false);
            outcome.expect_err("the power went off");
            self.explore(&cut.disk, depth - 1);
        }
        self.explore(&done.disk, depth - 1);
    }
}

/// Returns logs in which sectors of the group did not reach the disk: each sector alone, and many
/// at random.
fn torn_logs() -> Vec<(String, Vec<u8>)> {
    let (before, after) = group_over_generations();
    let sector = |i: usize| i * SECTOR..((i + 1) * SECTOR).min(after.len());
    let dirty: Vec<usize> = (0..after.len().div_ceil(SECTOR))
        .filter(|&i| before.get(sector(i)) != Some(&after[sector(i)]))
        .collect();
    let torn = |lost: &BTreeSet<usize>| {
        let mut log = after.clone();
        for &i in lost {
            log[sector(i)].copy_from_slice(&before[sector(i)]);
        }
        (format!("without sectors {lost:?}"), log)
    };
    let mut rng = StdRng::seed_from_u64(5);
    let mut logs: Vec<_> = dirty.iter().map(|&i| torn(&BTreeSet::from([i]))).collect();
    for _ in 0..200 {
        let odds = rng.random_range(0.1..0.9);
        logs.push(torn(&dirty.iter().copied().filter(|_| rng.random_bool(odds)).collect()));
    }
    logs
}

fn prefix(log: &[u8], path: &Path) -> Vec<u64> {
    std::fs::write(log_path(path), log).expect("the log can be written");
    let mut found = Vec::new();
    let mut scan =
        LogScan::open(&OsStorage, &log_path(path), SALT, Generation::ZERO).expect("sound");
    scan.replay(|frame| {
        found.push(frame.commit_ts.get());
        Ok::<(), Error>(())
    })
    .expect("it can be read");
    assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>(), "a prefix");
    assert!(!found.is_empty(), "the first commit was on disk");
    found
}

// holds SESSION-2, FILE-4
#[test]
fn recovery_cut_off_anywhere_three_times_leaves_what_it_would_have_left() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db");
    let (mut states, mut generations_dropped) = (0, 0);
    for (name, log) in torn_logs() {
        let expected = prefix(&log, &path);
        let mut trial = Trial { path: path.clone(), log, expected, seen: Vec::new(), name };
        trial.explore(&Disk::fenced(), 3);
        states += trial.seen.len();
        generations_dropped += usize::from(trial.expected.len() < 6);
    }
    assert!(states > 600 && generations_dropped > 50, "{states} {generations_dropped}");
}

#[test]
fn accepting_the_base_cut_off_anywhere_gives_up_all_of_the_log_or_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db");
    for (name, log) in torn_logs() {
        let expected = prefix(&log, &path);
        let trial = Trial { path: path.clone(), log, expected, seen: Vec::new(), name };
        let (outcome, done) = trial.run(&Disk::fenced(), None, true);
        outcome.expect("it is accepted");
        for cut in 0..done.steps {
            let (outcome, cut) = trial.run(&Disk::fenced(), Some(cut), true);
            outcome.expect_err("the power went off");
            let (outcome, opened) = trial.run(&cut.disk, None, false);
            outcome.unwrap_or_else(|e| panic!("{}: {e}", trial.name));
            let commits = opened.disk.commits();
            assert!(commits.is_empty() || commits == trial.expected, "{}: {commits:?}", trial.name);
        }
        // The removal of the log was lost.
        let (outcome, opened) = trial.run(&done.disk, None, false);
        outcome.unwrap_or_else(|e| panic!("{}: {e}", trial.name));
        assert!(opened.disk.commits().is_empty(), "{}", trial.name);
    }
}

#[test]
fn a_log_that_names_an_impossible_generation_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = log_path(&dir.path().join("app.db"));
    let (_, mut log) = group_over_generations();
    // The header of the last slot in use, with a right checksum.
    let slot = (0..log.len()).rev().find(|&at| log[at..].starts_with(b"PLTS")).expect("a slot");
    log[slot + 16..slot + 20].copy_from_slice(&u32::MAX.to_le_bytes());
    let crc = crc32c::crc32c(&log[slot..slot + 60]);
    log[slot + 60..slot + 64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &log).expect("the log can be written");
    match LogScan::open(&OsStorage, &path, SALT, Generation::ZERO) {
        Err(LogError::Corrupt { why, .. }) => {
            assert!(why.contains("impossible generation"), "{why}")
        }
        other => panic!("{other:?}"),
    }
}

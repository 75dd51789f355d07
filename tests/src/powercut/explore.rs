//! From power cut to power cut.
//!
//! A process is good for many states, one after the other: each lies in a new folder without shared memory, as after a
//! start of the machine, and the process has closed the one before, which leaves nothing behind in it. A test holds that against new
//! processes ([`Explorer::as_in_new_processes`]), and every so often a new one takes over.

use super::disk::{Disk, Image, Keep};
use super::recording::{Operation, Recording};
use super::workload::{QUESTIONS, Recorded, commits_of, record};
use crate::actor::Actor;
use crate::differential::dice::Dice;
use crate::subject::Subject;
use anyhow::{Context as _, ensure};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// How many power cuts follow each other, at most: one in the workload, and in the recoveries after it.
const DEPTH: usize = 4;
/// How many states a process opens before another takes over.
const STATES_OF_A_PROCESS: u32 = 200;
/// Walks over one recording.
const WALKS: u64 = 500;

/// What came of opening an image.
#[derive(Debug)]
struct Opened {
    commits: i64,
    operations: Vec<Operation>,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// States that a power cut left and that were looked at.
    pub states: u64,
    /// Those among them with a content of their own, which were opened.
    pub opened: u64,
}

/// Tries what power cuts leave of one recorded workload.
pub struct Explorer<'a> {
    subject: &'a Subject,
    scratch: &'a Path,
    recorded: Recorded,
    known: HashMap<u64, Rc<Opened>>,
    opener: Option<Opener>,
    /// How many of them there were.
    openers: u32,
    /// So far.
    pub tally: Tally,
}

/// A process that opens one state after the other in the same folder, and the record of what it does.
struct Opener {
    recording: Recording,
    actor: Actor,
    /// States that it may still open.
    left: u32,
}

impl<'a> Explorer<'a> {
    /// Records the workload.
    pub fn new(subject: &'a Subject, scratch: &'a Path) -> anyhow::Result<Self> {
        Ok(Self::new_of(subject, scratch, record(subject, scratch)?))
    }

    /// Of what has been recorded.
    pub(super) fn new_of(subject: &'a Subject, scratch: &'a Path, recorded: Recorded) -> Self {
        let tally = Tally::default();
        Self { subject, scratch, recorded, known: HashMap::new(), opener: None, openers: 0, tally }
    }

    /// A cut at every operation of the workload that leaves all or nothing of what was not synced.
    pub fn each_cut_of_workload(&mut self) -> anyhow::Result<()> {
        let image = self.recorded.before.clone();
        let operations = self.recorded.operations.clone();
        self.each_cut(&image, &Opened { commits: 1, operations }, 1, "the workload")
    }

    /// Every sector of the group over two generations lost alone; and for one in three of them a cut at every operation of
    /// the recovery after it that leaves all or nothing of what was not synced.
    pub fn torn_group(&mut self) -> anyhow::Result<()> {
        let until = self.recorded.group_synced;
        let operations = self.recorded.operations[..until].to_vec();
        let disk = made(&self.recorded.before, 1, &operations)?;
        for (i, lost) in disk.telling().into_iter().enumerate() {
            let name = format!("sector {lost} of the group lost");
            let image = disk.cut(Keep::AllBut(lost));
            let opened = self.look(&image, disk.acknowledged, &name)?;
            if i % 3 == 0 {
                self.each_cut(&image, &opened, disk.acknowledged, &name)?;
            }
        }
        Ok(())
    }

    /// A cut at every operation of what opening `image` did.
    fn each_cut(
        &mut self,
        image: &Image,
        opened: &Opened,
        acknowledged: i64,
        name: &str,
    ) -> anyhow::Result<()> {
        let mut disk = Disk::new(image, acknowledged);
        for (i, operation) in opened.operations.iter().enumerate() {
            for keep in [Keep::All, Keep::None] {
                let name = format!("{name}, then at {i} {operation:.60?} {keep:?}");
                self.look(&disk.cut(keep), disk.acknowledged, &name)?;
            }
            disk.apply(operation)?;
        }
        Ok(())
    }

    /// Power cuts at random, one after the other, from this seed. Half of the first ones are in the group over two generations.
    pub fn walk(&mut self, seed: u64) -> anyhow::Result<()> {
        let mut dice = Dice::new(seed);
        let mut image = self.recorded.before.clone();
        let mut operations = self.recorded.operations.clone();
        if dice.roll(2) == 0 {
            operations.truncate(self.recorded.group_synced);
        }
        let mut acknowledged = 1;
        let mut name = format!("seed {seed}");
        for depth in 0..DEPTH {
            let most = operations.len();
            let cut = if depth == 0 && dice.roll(2) == 0 { most } else { dice.roll(most + 1) };
            let disk = made(&image, acknowledged, &operations[..cut])?;
            let keep = match dice.roll(5) {
                0 => Keep::All,
                1 => Keep::None,
                2 if !disk.telling().is_empty() => Keep::AllBut(*dice.pick(&disk.telling())),
                _ => Keep::Random(dice.roll(1 << 30) as u64),
            };
            name = format!("{name}, at {cut} of {most} {keep:?}");
            acknowledged = disk.acknowledged;
            image = disk.cut(keep);
            let opened = self.look(&image, acknowledged, &name)?;
            operations.clone_from(&opened.operations);
        }
        Ok(())
    }

    /// Opens what a power cut left, unless the same was opened before, and checks it.
    fn look(&mut self, image: &Image, acknowledged: i64, name: &str) -> anyhow::Result<Rc<Opened>> {
        self.tally.states += 1;
        let digest = image.digest();
        let opened = match self.known.get(&digest) {
            Some(known) => known.clone(),
            None => {
                let opened = Rc::new(self.open(image).with_context(|| name.to_owned())?);
                self.known.insert(digest, opened.clone());
                opened
            }
        };
        ensure!(
            opened.commits >= acknowledged,
            "{name}: {acknowledged} commits were acknowledged or seen, {} are there",
            opened.commits
        );
        Ok(opened)
    }

    fn open(&mut self, image: &Image) -> anyhow::Result<Opened> {
        self.tally.opened += 1;
        let folder = self.scratch.join("opened");
        let _ = std::fs::remove_dir_all(&folder);
        image.put(&folder)?;
        let Opener { recording, mut actor, left } = match self.opener.take() {
            Some(opener) => opener,
            None => {
                self.openers += 1;
                let file = self.scratch.join(format!("opened-{}.record", self.openers));
                let recording = Recording::into_file(&folder, &file);
                let actor = recording.actor("opener", self.subject, None);
                Opener { recording, actor, left: STATES_OF_A_PROCESS }
            }
        };
        let kept = || format!("left in {}", folder.display());
        actor.open(&folder.join("app.db")).with_context(kept)?;
        let mut answers = Vec::new();
        for question in QUESTIONS {
            let reply = actor.run(question);
            reply.error.map_or(Ok(()), Err).with_context(kept)?;
            answers.push(reply.rows);
        }
        let commits = commits_of(&answers).with_context(kept)?;
        recording.acknowledge(commits)?;
        actor.close()?;
        let operations = recording.operations()?;
        if left > 1 {
            recording.forget()?;
            self.opener = Some(Opener { recording, actor, left: left - 1 });
        }
        Ok(Opened { commits, operations })
    }

    /// Opens what cuts at the operations of the workload leave, each in the process that has opened those before and in a new one. Both
    /// have to find the same and do the same: how many states that were.
    pub fn as_in_new_processes(&mut self) -> anyhow::Result<usize> {
        let operations = self.recorded.operations.clone();
        let mut disk = Disk::new(&self.recorded.before, 1);
        let mut compared = 0;
        let mut used = None;
        for (i, operation) in operations.iter().enumerate() {
            disk.apply(operation)?;
            if i % 4 != 0 {
                continue;
            }
            let image = disk.cut(Keep::Random(i as u64));
            self.opener = used.take();
            let again = self.open(&image).with_context(|| format!("at {i}"))?;
            used = self.opener.take();
            let new = self.open(&image).with_context(|| format!("at {i}"))?;
            let shapes = [&again, &new].map(|opened| {
                (opened.commits, opened.operations.iter().map(Operation::shape).collect::<Vec<_>>())
            });
            ensure!(
                shapes[0] == shapes[1],
                "at {i}, in a used process and in a new one: {shapes:?}"
            );
            compared += 1;
        }
        Ok(compared)
    }
}

/// A disk after these operations.
fn made(before: &Image, acknowledged: i64, operations: &[Operation]) -> anyhow::Result<Disk> {
    let mut disk = Disk::new(before, acknowledged);
    for operation in operations {
        disk.apply(operation)?;
    }
    Ok(disk)
}

/// Walks from consecutive seeds until the time is over.
///
/// # Panics
/// With a report at the first failure.
#[must_use]
pub fn run(subject: &Subject, first: u64, time: std::time::Duration) -> Tally {
    let start = Instant::now();
    let scratch = tempfile::Builder::new().prefix("plait-powercut-").tempdir();
    let scratch = scratch.expect("a temporary directory can be made");
    let mut seed = first;
    let mut tally = Tally::default();
    while start.elapsed() < time {
        let round = scratch.path().join(format!("round-{seed}"));
        std::fs::create_dir(&round).expect("a folder can be made");
        // A recording is good for many walks; a new one has other orders of its processes.
        let outcome = Explorer::new(subject, &round).and_then(|mut explorer| {
            for _ in 0..WALKS {
                if start.elapsed() >= time {
                    break;
                }
                explorer.walk(seed)?;
                seed += 1;
            }
            Ok(explorer.tally)
        });
        match outcome {
            Ok(more) => {
                tally.states += more.states;
                tally.opened += more.opened;
            }
            Err(error) => panic!("{error:#}; the files: {}", scratch.keep().display()),
        }
        let _ = std::fs::remove_dir_all(&round);
        seed += 1;
    }
    tally
}

//! Power cuts under the file systems of the kernel: what it sent to the disk until then is mounted again and opened.
//!
//! ```text
//! workload on ext4, xfs or btrfs -- writes and FLUSHes of blocks --+-- cut at one of them --> mounted, opened, checked
//!                                                                  ^                                |
//!                                                                  +--------- at most three deep ---+
//! ```
//!
//! As in [`explore`](super::explore), but what a sync keeps, which names are there, and in which order, is not what we believe of
//! file systems: it is what these do. Shared memory is a file on them too, and is there after the cut as its pages happened to be
//! written; so each mount is another boot, with another boot id.

use super::blocks::{Contents, Disk, Done, Keep, cut, told};
use super::recording::Recording;
use super::workload::{QUESTIONS, SCHEMA, commit, commits_of, run as run_workload};
use crate::actor::Actor;
use crate::differential::dice::Dice;
use crate::os::{self, mount};
use crate::subject::Subject;
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BYTES: u64 = 512 << 20;
/// Cuts after one another.
const DEPTH: usize = 3;
/// First cuts of one recording.
const WALKS: usize = 12;
/// Commits of a workload at random.
const COMMITS: i64 = 30;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A file system, and how it is made and mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// ext4 as it is made by default: `data=ordered`.
    Ext4,
    /// ext4 with `data=writeback`.
    Ext4Writeback,
    /// xfs.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ext4, Self::Ext4Writeback, Self::Xfs, Self::Btrfs];

    fn name(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4Writeback => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// What its cuts are called in a tally.
    #[must_use]
    pub fn suite(self) -> &'static str {
        match self {
            Self::Ext4 => "powercut, ext4",
            Self::Ext4Writeback => "powercut, ext4 data=writeback",
            Self::Xfs => "powercut, xfs",
            Self::Btrfs => "powercut, btrfs",
        }
    }

    /// Blocks are not given back to the disk: that is another matter.
    fn make(self, device: &str) -> anyhow::Result<()> {
        let (program, arguments): (_, &[&str]) = match self.name() {
            "ext4" => ("mkfs.ext4", &["-q", "-F", "-E", "nodiscard"]),
            "xfs" => ("mkfs.xfs", &["-q", "-f", "-K"]),
            _ => ("mkfs.btrfs", &["-q", "-f", "-K"]),
        };
        told(Command::new(program).args(arguments).arg(device)).map(drop)
    }

    fn options(self) -> &'static str {
        match self {
            Self::Ext4Writeback => "data=writeback",
            Self::Btrfs => "nodiscard",
            Self::Ext4 | Self::Xfs => "",
        }
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Workloads that were recorded.
    pub workloads: u64,
    /// Writes of blocks in them, and in what came after cuts.
    pub writes: u64,
    /// States that a cut left, each mounted, opened and checked.
    pub states: u64,
}

/// A mounted file system over a disk.
struct Mounted {
    at: PathBuf,
    disk: Disk,
}

impl Mounted {
    /// Plugs the disk in and mounts it, in the next boot.
    fn boot(place: &Place, kind: Kind, contents: Contents, make: bool) -> anyhow::Result<Self> {
        let disk = Disk::plug_in(contents, BYTES, &place.scratch.join("disk"))?;
        if make {
            kind.make(disk.device())?;
        }
        place.next_boot()?;
        let at = place.scratch.join("mounted");
        std::fs::create_dir_all(&at)?;
        mount(disk.device(), &at, kind.name(), 0, kind.options())?;
        Ok(Self { at, disk })
    }

    fn folder(&self) -> PathBuf {
        self.at.join("data")
    }

    /// Unmounts, which writes what is left, and returns everything that was done.
    fn shut_down(self) -> anyhow::Result<Vec<Done>> {
        told(Command::new("umount").arg(&self.at))?;
        Ok(self.disk.done())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After a failure it is still there.
        let _ = told(Command::new("umount").arg("--lazy").arg(&self.at));
    }
}

/// Where mounts are made: a mount namespace of this process alone, which ends with it.
pub struct Place {
    scratch: PathBuf,
    boot_id: PathBuf,
    keeper: Child,
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

impl Place {
    /// To be made before this process has a second thread.
    pub fn new(scratch: &Path) -> anyhow::Result<Self> {
        os::own_mounts()?;
        mount("none", Path::new("/"), "none", libc::MS_REC | libc::MS_PRIVATE, "")?;
        // It has the namespace until this process is gone: whose end would otherwise wait for the unmounting of what it serves itself.
        let mut keeper = Command::new("sh");
        let keeper = keeper.args(["-c", "trap '' INT TERM; cat; sleep 1"]).stdin(Stdio::piped());
        let keeper = keeper.spawn().context("a shell is needed")?;
        let boot_id = scratch.join("boot_id");
        std::fs::copy(BOOT_ID, &boot_id)?;
        let source = boot_id.to_str().context("the path is text")?;
        mount(source, Path::new(BOOT_ID), "none", libc::MS_BIND, "")?;
        Ok(Self { scratch: scratch.to_owned(), boot_id, keeper })
    }

    fn next_boot(&self) -> anyhow::Result<()> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        std::fs::write(&self.boot_id, &id)?;
        ensure!(std::fs::read_to_string(BOOT_ID)? == id, "the boot id did not change");
        Ok(())
    }
}

/// Power cuts under one file system.
pub struct Explorer<'a> {
    place: &'a Place,
    subject: &'a Subject,
    kind: Kind,
    /// So far.
    pub tally: Tally,
}

impl<'a> Explorer<'a> {
    /// Nothing tried yet.
    #[must_use]
    pub fn new(place: &'a Place, subject: &'a Subject, kind: Kind) -> Self {
        Self { place, subject, kind, tally: Tally::default() }
    }

    /// Records one workload and cuts it, and what comes after, at random.
    pub fn explore(&mut self, seed: u64, end: Instant) -> anyhow::Result<()> {
        let mut dice = Dice::new(seed);
        let (before, done) = self.record(seed).context("the workload")?;
        self.tally.workloads += 1;
        self.note(&done);
        for walk in 0..WALKS {
            let (mut before, mut done) = (before.clone(), done.clone());
            let mut acknowledged = 1;
            let mut name = format!("{:?}, seed {seed}, walk {walk}", self.kind);
            for _ in 0..DEPTH {
                if Instant::now() >= end {
                    return Ok(());
                }
                let at = dice.roll(done.len() + 1);
                let keep = match dice.roll(5) {
                    0 => Keep::All,
                    1 => Keep::None,
                    _ => Keep::Random(dice.roll(1 << 30) as u64),
                };
                name = format!("{name}, at {at} of {} {keep:?}", done.len());
                let (left, least) = cut(&before, &done[..at], keep, acknowledged);
                acknowledged = least;
                self.tally.states += 1;
                done = self.open(left.clone(), acknowledged).with_context(|| name.clone())?;
                self.note(&done);
                before = left;
            }
        }
        Ok(())
    }

    fn note(&mut self, done: &[Done]) {
        self.tally.writes += done.iter().filter(|d| matches!(d, Done::Write(..))).count() as u64;
    }

    /// The disk with commit 1, and what a workload then did to it.
    fn record(&self, seed: u64) -> anyhow::Result<(Contents, Vec<Done>)> {
        let mounted = Mounted::boot(self.place, self.kind, Contents::default(), true)?;
        std::fs::create_dir(mounted.folder())?;
        let database = mounted.folder().join("app.db");
        let mut actor = Actor::in_process_with("first", self.subject, &[]);
        actor.open(&database)?;
        actor.ok(&format!("PRAGMA journal_mode={}; {SCHEMA}", self.subject.mode.name()));
        actor.close()?;
        drop(actor);
        told(Command::new("sync").arg("--file-system").arg(&database))?;
        let before = mounted.disk.begin();
        if seed.is_multiple_of(4) {
            let disk = &mounted.disk;
            let tell = |commits| disk.acknowledge(commits);
            let file = self.place.scratch.join("record");
            let recording = Recording::into_file(&mounted.folder(), &file);
            // Whether it has come to a group over two generations does not matter here.
            run_workload(self.subject, &recording, &mounted.folder(), &tell)?;
        } else {
            self.commit_at_random(&mounted, &database, seed)?;
        }
        Ok((before, mounted.shut_down()?))
    }

    /// Commits in one order by three processes, some under FULL and long ones among them, with checkpoints.
    fn commit_at_random(
        &self,
        mounted: &Mounted,
        database: &Path,
        seed: u64,
    ) -> anyhow::Result<()> {
        let mut dice = Dice::new(!seed);
        let mut actors = Vec::new();
        for name in ["first", "second", "third"] {
            let mut actor = Actor::in_process_with(name, self.subject, &[]);
            actor.open(database)?;
            actors.push(actor);
        }
        mounted.disk.acknowledge(1);
        for n in 2..=COMMITS {
            let actor = &mut actors[dice.roll(3)];
            let is_full = dice.roll(2) == 0;
            actor.ok(if is_full { "PRAGMA synchronous=FULL" } else { "PRAGMA synchronous=NORMAL" });
            let pad = if dice.roll(6) == 0 { 200_000 } else { dice.roll(3_000) };
            actor.ok(&commit(n, pad));
            if is_full {
                mounted.disk.acknowledge(n);
            }
            if dice.roll(8) == 0 {
                actors[dice.roll(3)].ok("PRAGMA wal_checkpoint");
            }
        }
        actors.iter_mut().try_for_each(Actor::close)?;
        mounted.disk.acknowledge(COMMITS);
        Ok(())
    }

    /// Mounts and opens what a cut left, and checks it.
    fn open(&self, left: Contents, acknowledged: i64) -> anyhow::Result<Vec<Done>> {
        let mounted = Mounted::boot(self.place, self.kind, left, false)?;
        let mut actor = Actor::in_process_with("opener", self.subject, &[]);
        actor.open(&mounted.folder().join("app.db"))?;
        let mut answers = Vec::new();
        for question in QUESTIONS {
            let reply = actor.run(question);
            reply.error.map_or(Ok(()), Err).context(question)?;
            answers.push(reply.rows);
        }
        let commits = commits_of(&answers)?;
        ensure!(
            commits >= acknowledged,
            "{acknowledged} commits were acknowledged or seen, {commits} are there"
        );
        mounted.disk.acknowledge(commits);
        actor.close()?;
        drop(actor);
        mounted.shut_down()
    }
}

/// Explores from consecutive seeds until the time is over.
///
/// # Errors
/// What a state was found to lack, with its seed.
pub fn run(explorer: &mut Explorer<'_>, first: u64, time: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    for seed in first.. {
        if Instant::now() >= end {
            break;
        }
        explorer.explore(seed, end)?;
    }
    Ok(())
}

//! The processes that make a replica of a round's database: a sidecar, which ships its commits to a folder, and a follower, which applies them
//! to a database that readers have open.
//!
//! They are supervised as a service would do it: whoever ends with the code that says so is started again (docs/replication.md). Any other end is
//! a failure of the round.

use super::history::{HistoryFile, TransactionName};
use super::torture::Round;
use crate::differential::dice::Dice;
use crate::job::{Job, Running, Work};
use crate::jobs::looks::{read_all, write_one};
use crate::jobs::replica_reader::{ReplicaReader, Seen, wait};
use crate::subject::Fixture;
use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Readers of the replica have numbers from here on, which no worker reaches.
const READERS: u32 = 100_000;
/// Writes and reads the last moment.
const LAST: u32 = READERS - 1;
/// How long the replica may be behind at the beginning and at the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a reader waits for a commit of its own: a snapshot may be made, and the follower be killed meanwhile.
const PATIENCE_OF_READERS: Duration = Duration::from_secs(10);
/// How much of what they say is told, in lines.
const LINES: usize = 20;
/// Exit code of whoever wants to be started again.
const AGAIN: i32 = 1;

/// What is done to these processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interference {
    /// The follower is killed, and another one started at once or after a while.
    KillFollower,
    /// The same of the sidecar.
    KillSidecar,
    /// The follower stands still.
    StopFollower,
    /// The sidecar stands still.
    StopSidecar,
    /// All who have the primary open close it, the sidecar ended or killed, and open it again: another session.
    Session,
}

impl Interference {
    /// The next one.
    pub fn any(dice: &mut Dice) -> Self {
        *dice.pick(&[
            Self::KillFollower,
            Self::KillFollower,
            Self::KillSidecar,
            Self::StopFollower,
            Self::StopSidecar,
            Self::Session,
        ])
    }
}

/// How often something was done to these processes, and what the readers have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// What the readers have seen.
    pub seen: Seen,
    /// Followers that were killed.
    pub followers_killed: u64,
    /// Sidecars that were killed.
    pub sidecars_killed: u64,
    /// Sessions of the primary that were ended.
    pub sessions: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.seen += more.seen;
        self.followers_killed += more.followers_killed;
        self.sidecars_killed += more.sidecars_killed;
        self.sessions += more.sessions;
    }
}

/// One of the two programs.
struct Program {
    name: &'static str,
    command: Command,
    /// What it says.
    log: PathBuf,
    child: Option<Child>,
}

impl Program {
    fn start(&mut self) -> anyhow::Result<()> {
        let child = self.command.spawn();
        self.child = Some(child.with_context(|| format!("start the {}", self.name))?);
        Ok(())
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().map(Child::id).expect("it is started")
    }

    /// Starts it again if it has asked for that.
    fn supervise(&mut self) -> anyhow::Result<()> {
        let child = self.child.as_mut().expect("it is started");
        match child.try_wait()? {
            None => Ok(()),
            Some(status) if status.code() == Some(AGAIN) => self.start(),
            Some(status) => bail!("the {} has ended: {status}\n{}", self.name, self.said()),
        }
    }

    /// The end of what it has said.
    fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        last.iter().map(|line| format!("{}: {line}\n", self.name)).collect()
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.supervise()?;
        let child = self.child.as_mut().expect("it is started");
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Tells it to end, which it has to do with one of these codes.
    fn end(&mut self, codes: &[i32]) -> anyhow::Result<()> {
        self.supervise()?;
        let child = self.child.as_mut().expect("it is started");
        crate::os::signal(child.id(), libc::SIGTERM)?;
        let begun = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                None => bail!("the {} does not end\n{}", self.name, self.said()),
            }
        };
        // One that was started just now may not have come to where it hears of signals.
        let is_young = status.signal() == Some(libc::SIGTERM);
        let is_good = is_young || status.code().is_some_and(|code| codes.contains(&code));
        ensure!(is_good, "the {} has ended: {status}\n{}", self.name, self.said());
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A replica of a round's database, and its readers.
pub struct Replica<'a> {
    round: &'a Round,
    fixture: &'a Fixture,
    sidecar: Program,
    follower: Program,
    readers: Vec<Running>,
    counts: Counts,
}

impl<'a> Replica<'a> {
    /// Starts both programs, and waits until there is a replica.
    ///
    /// # Errors
    /// A program does not start, or ends, or no replica comes.
    pub fn begin(round: &'a Round, fixture: &'a Fixture) -> anyhow::Result<Self> {
        let program = crate::paths::replicate(&fixture.subject.library)?;
        let (place, replica) = (fixture.path("replica"), replica_of(fixture));
        let made = |name, words: &[&str], database: &PathBuf, interval| {
            let mut command = Command::new(&program);
            let path = fixture.path(name);
            let log = File::options().create(true).append(true).open(&path)?;
            command.args(words).arg(&place).arg(database).args(["--interval", interval]);
            command.stdin(std::process::Stdio::null()).stdout(log.try_clone()?).stderr(log);
            Ok::<_, anyhow::Error>(Program { name, command, log: path, child: None })
        };
        let mut sidecar = made("sidecar", &["run"], &fixture.database(), "30ms")?;
        let mut follower = made("follower", &["follow"], &replica, "20ms")?;
        sidecar.start()?;
        follower.start()?;
        let (readers, counts) = (Vec::new(), Counts::default());
        let mut made = Self { round, fixture, sidecar, follower, readers, counts };
        let begun = Instant::now();
        while !replica.exists() {
            made.supervise()?;
            ensure!(begun.elapsed() < PATIENCE, "there is no replica");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(made)
    }

    /// Starts the readers; returns where their histories will be.
    pub fn start_readers(&mut self, time: Duration) -> Vec<HistoryFile> {
        let round = self.round;
        let one = |reader: u32| {
            let worker = READERS + reader;
            let file = self.fixture.path(&format!("reader-{reader}.json"));
            let work = ReplicaReader {
                seed: round.seed.wrapping_mul(1000).wrapping_add(worker.into()),
                worker,
                keys: round.keys,
                registers: round.registers,
                primary: self.fixture.database(),
                patience: PATIENCE_OF_READERS,
                time,
                file: file.clone(),
            };
            let subject = self.fixture.subject.clone();
            let database = replica_of(self.fixture);
            let job = Job { subject, database, work: Work::ReplicaReader(work) };
            (job.start(round.place), HistoryFile::of(file))
        };
        let (readers, files) = (1..=round.readers).map(one).unzip();
        self.readers = readers;
        files
    }

    /// Starts those again that have asked for it.
    ///
    /// # Errors
    /// One of them has ended in another way.
    pub fn supervise(&mut self) -> anyhow::Result<()> {
        self.sidecar.supervise()?;
        self.follower.supervise()
    }

    /// Does something to them. Of a session this is the part of the sidecar, while nobody else has the primary open: it is not started again.
    ///
    /// # Errors
    /// One of them has ended by itself, or does not start.
    pub fn interfere(&mut self, what: Interference, dice: &mut Dice) -> anyhow::Result<()> {
        match what {
            Interference::KillFollower => {
                self.follower.kill()?;
                for_a_while(dice);
                self.follower.start()?;
                self.counts.followers_killed += 1;
            }
            Interference::KillSidecar => {
                self.sidecar.kill()?;
                for_a_while(dice);
                self.sidecar.start()?;
                self.counts.sidecars_killed += 1;
            }
            Interference::StopFollower => stop(self.follower.pid(), dice)?,
            Interference::StopSidecar => stop(self.sidecar.pid(), dice)?,
            Interference::Session => {
                if dice.one_in(3) {
                    self.sidecar.kill()?;
                    self.counts.sidecars_killed += 1;
                } else {
                    // The rest may not be shipped in time on a busy machine: its next start takes a snapshot.
                    self.sidecar.end(&[0, AGAIN])?;
                }
                self.counts.sessions += 1;
            }
        }
        Ok(())
    }

    /// Starts the sidecar in the next session.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_sidecar(&mut self) -> anyhow::Result<()> {
        self.sidecar.start()
    }

    /// Awaits the readers, then that the replica has all that was committed, and writes down what is there. Nobody else writes any more.
    ///
    /// # Errors
    /// A reader fails, the replica does not come so far, is not sound, or one of the programs has ended by itself.
    pub fn end(mut self) -> anyhow::Result<(Counts, Vec<HistoryFile>)> {
        for reader in std::mem::take(&mut self.readers) {
            self.counts.seen += reader.result::<Seen>(self.round.time + PATIENCE);
        }
        let path = self.fixture.path("last.json");
        let mut file = File::create(&path)?;
        let primary = self.fixture.open();
        let [written, read] = [1, 2].map(|number| TransactionName { worker: LAST, number });
        let ticket = write_one(&primary, written, &mut file)?;
        let replica = self.fixture.subject.open(&replica_of(self.fixture))?;
        let begun = Instant::now();
        while !wait(&replica, ticket, Duration::from_millis(200))? {
            self.supervise()?;
            let said = || format!("{}{}", self.sidecar.said(), self.follower.said());
            let is_late = begun.elapsed() > PATIENCE;
            ensure!(!is_late, "the replica does not come to the end\n{}", said());
        }
        read_all(&replica, (read, written), (self.round.keys, self.round.registers), &mut file)?;
        let sound = replica.text("PRAGMA integrity_check")?;
        ensure!(sound == "ok", "the replica is not sound: {sound}");
        replica.close()?;
        primary.close()?;
        self.follower.end(&[0])?;
        self.sidecar.end(&[0, AGAIN])?;
        Ok((self.counts, vec![HistoryFile::of(path)]))
    }
}

fn replica_of(fixture: &Fixture) -> PathBuf {
    fixture.path("replica.db")
}

fn for_a_while(dice: &mut Dice) {
    std::thread::sleep(Duration::from_millis(dice.roll(100) as u64));
}

fn stop(pid: u32, dice: &mut Dice) -> anyhow::Result<()> {
    crate::os::suspend(pid)?;
    std::thread::sleep(Duration::from_millis(20 + dice.roll(300) as u64));
    crate::os::resume(pid)?;
    Ok(())
}

//! Random workers on one database, and the check of what they saw.

use super::check::check;
use super::follower::{Counts, Interference, Replica};
use super::history::{HistoryFile, read_files};
use super::trouble::{Trouble, Troublemaker};
use crate::crash::disk::SmallDisk;
use crate::differential::dice::Dice;
use crate::job::{Ending, Job, Running, Work};
use crate::jobs::history::{Done, Layout, RandomTransactions, attach_second};
use crate::jobs::looks::{write_final, write_initial};
use crate::os::{Limited, monotonic_ns};
use crate::place::Place;
use crate::subject::{Begin, Fixture, Subject, Synchronous};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Room for a session over each of two files.
const DISK_MIB: u64 = 220;

/// One round: how many workers, where, and what they may do.
#[derive(Clone, Debug)]
pub struct Round {
    /// Seed of everything random in it.
    pub seed: u64,
    /// Threads or processes.
    pub place: Place,
    /// How many workers.
    pub workers: u32,
    /// Size of the universe of keys, at most 60.
    pub keys: i64,
    /// Layout of the table.
    pub layout: Layout,
    /// Ways of beginning, besides autocommit.
    pub begins: Vec<Begin>,
    /// Only pretend to begin transactions: a fake engine that the checker must catch.
    pub pretend: bool,
    /// Durability of the workers, in turn.
    pub levels: Vec<Synchronous>,
    /// Ask for a merge after about so many transactions of a worker.
    pub merge_every: u32,
    /// Empty the table after about so many transactions of a worker, and begin with an empty one; never when 0.
    pub empty_every: u32,
    /// Over two files, with a short wait for locks: workers take the rights of both in either order.
    pub two_files: bool,
    /// Work on registers too, with the key-value API.
    pub registers: bool,
    /// Whatever else goes on beside the workers; see [`trouble`](super::trouble).
    pub trouble: bool,
    /// Each worker is a process in a pid namespace of its own, as in a container.
    pub containers: bool,
    /// On a small disk, which is full now and then when there is trouble. Where none can be mounted, on the usual one.
    pub small_disk: bool,
    /// A replica follows the database, and so many readers of it are part of the history; none when 0.
    pub readers: u32,
    /// How long the workers run.
    pub time: Duration,
    /// Transactions of each worker at most.
    pub transactions: u32,
}

impl Round {
    /// A round with everything varied by its seed.
    #[must_use]
    pub fn random(seed: u64, place: Place, time: Duration) -> Self {
        let mut dice = Dice::new(seed);
        let begins = match dice.roll(4) {
            0 => vec![Begin::Concurrent],
            1 => vec![Begin::Concurrent, Begin::Deferred, Begin::Immediate],
            2 => vec![Begin::Deferred],
            _ => Begin::ALL.to_vec(),
        };
        Self {
            seed,
            place,
            workers: 2 + u32::try_from(dice.roll(7)).expect("a small number"),
            keys: *dice.pick(&[4, 10, 24, 60]),
            layout: *dice.pick(&[Layout::Rowid, Layout::WithoutRowid]),
            begins,
            pretend: false,
            levels: match dice.roll(4) {
                0 => vec![Synchronous::Full],
                1 => vec![Synchronous::Normal],
                2 => vec![Synchronous::Off],
                _ => vec![Synchronous::Full, Synchronous::Normal],
            },
            merge_every: *dice.pick(&[0, 20, 100]),
            empty_every: *dice.pick(&[0, 10, 40]),
            two_files: false,
            registers: dice.one_in(2),
            trouble: dice.one_in(2),
            containers: false,
            small_disk: false,
            readers: 0,
            time,
            transactions: 3000,
        }
    }

    /// The same for an instant: what a session goes through when it is young, many times over.
    #[must_use]
    pub fn short(mut self) -> Self {
        let mut dice = Dice::new(self.seed ^ 0x7368_6f72);
        self.time = self.time.min(Duration::from_millis(150));
        self.transactions = *dice.pick(&[5, 20, 60]);
        self.workers = self.workers.min(4);
        self.merge_every = *dice.pick(&[0, 5, 20]);
        // Trouble goes on for all of the time.
        self.trouble = dice.one_in(6);
        self
    }

    /// The same over two files, without what is about one file alone: running exclusively from the beginning.
    #[must_use]
    pub fn over_two_files(mut self) -> Self {
        self.two_files = true;
        self.empty_every = 0;
        self.begins.retain(|begin| *begin != Begin::OnPages);
        self
    }

    /// The same with a replica that is read. Behind an exclusive transaction the replica stands still until there is a snapshot: in most rounds
    /// they are left to what makes trouble.
    #[must_use]
    pub fn with_follower(mut self) -> Self {
        let mut dice = Dice::new(self.seed ^ 0x666f_6c6c);
        self.readers = 1 + u32::try_from(dice.roll(3)).expect("a small number");
        self.workers = self.workers.min(4);
        if !dice.one_in(5) {
            self.empty_every = 0;
            self.begins.retain(|begin| *begin != Begin::OnPages);
        }
        self
    }

    /// Runs it and checks the history.
    ///
    /// # Panics
    /// With a report when the history is not serializable or a worker fails.
    pub fn run(&self, subject: &Subject) -> Tally {
        self.outcome(subject).unwrap_or_else(|report| panic!("{report}"))
    }

    /// Runs it and returns the checker's verdict.
    ///
    /// # Panics
    /// When a worker fails.
    pub fn outcome(&self, subject: &Subject) -> Result<Tally, String> {
        let disk = self.small_disk.then(|| SmallDisk::mount(DISK_MIB)).flatten();
        let place = disk.as_ref().map(SmallDisk::database);
        let fixture = Fixture::new_at(subject.clone(), &self.layout.schema(), place);
        let files = vec![HistoryFile::of(fixture.path("initial.json"))];
        let connection = fixture.open();
        let second = self.two_files.then(|| fixture.database().with_file_name("second.db"));
        if let Some(second) = &second {
            let made = subject.create(second).expect("a second file can be made");
            made.execute(&self.layout.schema_of_second()).expect("it gets its table");
        }
        attach_second(&connection, second.as_deref()).expect("it can be attached");
        let empty = self.empty_every > 0;
        write_initial(&connection, self.keys, empty, self.two_files, &files[0].path)
            .expect("the initial rows can be written");
        if self.trouble {
            // Nobody but the workers keeps the session: it ends when they have all closed.
            connection.close().expect("it closes");
        }
        let mut tally = Tally::default();
        let (jobs, numbers) = (vec![], vec![]);
        let said = |error: anyhow::Error| -> ! { panic!("{self:?}: {error:#}") };
        let replica = (self.readers > 0)
            .then(|| Replica::begin(self, &fixture).unwrap_or_else(|error| said(error)));
        let mut crew = Crew {
            round: self,
            fixture: &fixture,
            disk: disk.as_ref(),
            second,
            files,
            jobs,
            numbers,
            replica,
        };
        let end = Instant::now() + self.time;
        for worker in 1..=self.workers {
            crew.start(worker, self.time);
        }
        if let Some(replica) = &mut crew.replica {
            crew.files.extend(replica.start_readers(self.time));
        }
        if self.trouble {
            crew.trouble(end, &mut tally).unwrap_or_else(|error| said(error));
        }
        crew.end_jobs(&mut tally);
        crew.end_replica(&mut tally).unwrap_or_else(|error| said(error));
        let Crew { mut files, second, .. } = crew;
        let connection = fixture.open();
        attach_second(&connection, second.as_deref()).expect("it can be attached");
        files.push(HistoryFile::of(fixture.path("final.json")));
        let last = &files[files.len() - 1].path;
        write_final(&connection, self.keys, self.two_files, self.registers, last)
            .expect("the end can be read");
        let history = read_files(&files).expect("the history can be read");
        let checked = match check(&history) {
            Ok(checked) => checked,
            Err(report) if self.pretend => return Err(report),
            Err(report) => {
                if let Some(disk) = &disk {
                    disk.save(fixture.directory());
                }
                let kept = fixture.keep();
                return Err(format!("{self:?}\nhistory kept in {}\n{report}", kept.display()));
            }
        };
        let sound = connection.text("PRAGMA integrity_check").expect("integrity_check runs");
        assert_eq!(sound, "ok", "{self:?}");
        Ok(Tally { histories: 1, committed: checked.committed as u64, ..tally })
    }
}

/// What the rounds came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Histories that were checked.
    pub histories: u64,
    /// Transactions in them that count as committed; one over two files may count twice.
    pub committed: u64,
    /// Transactions of workers that lived to tell, rolled back ones included.
    pub transactions: u64,
    /// Statements and calls in them.
    pub statements: u64,
    /// Troubles that were made beside them, and those that had to wait in vain.
    pub troubles: u64,
    /// See `troubles`.
    pub refused: u64,
    /// Workers that were killed.
    pub kills: u64,
    /// Workers that were stopped for a while.
    pub stops: u64,
    /// Workers that might not open or write files for a while.
    pub limits: u64,
    /// Times in which the disk was full.
    pub full_disks: u64,
    /// Of the replica.
    pub replica: Counts,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.histories += more.histories;
        self.committed += more.committed;
        self.transactions += more.transactions;
        self.statements += more.statements;
        self.troubles += more.troubles;
        self.refused += more.refused;
        self.kills += more.kills;
        self.stops += more.stops;
        self.limits += more.limits;
        self.full_disks += more.full_disks;
        self.replica += more.replica;
    }
}

/// No descriptor more, and files of which nothing, the first page, or some of the log can be written.
const LIMITS: [(Limited, u64); 4] = [
    (Limited::Descriptors, 3),
    (Limited::FileSize, 0),
    (Limited::FileSize, 4096),
    (Limited::FileSize, 512 << 10),
];

/// Where a replica is read: the workers write for as long as it is, and leave it the processors it needs to follow.
const NAP_BESIDE_READERS: Duration = Duration::from_millis(3);

/// What is left free of a disk that is full: nothing, a page, less or more than the log and memory grow by.
const FREE_BYTES: [u64; 4] = [0, 4096, 64 << 10, 1 << 20];

/// The workers of a round.
struct Crew<'a> {
    round: &'a Round,
    fixture: &'a Fixture,
    disk: Option<&'a SmallDisk>,
    second: Option<PathBuf>,
    files: Vec<HistoryFile>,
    jobs: Vec<Running>,
    /// Of the jobs.
    numbers: Vec<u32>,
    replica: Option<Replica<'a>>,
}

impl Crew<'_> {
    fn start(&mut self, worker: u32, time: Duration) {
        let round = self.round;
        let path = self.fixture.path(&format!("worker-{worker}.json"));
        self.files.push(HistoryFile::of(path.clone()));
        let work = RandomTransactions {
            seed: round.seed.wrapping_mul(1000).wrapping_add(worker.into()),
            worker,
            keys: round.keys,
            begins: round.begins.clone(),
            // What a killed worker did so would be unknown.
            autocommit: !(round.trouble && round.place == Place::Processes),
            pretend: round.pretend,
            synchronous: round.levels[worker as usize % round.levels.len()],
            transactions: round.transactions,
            time,
            merge_every: round.merge_every,
            empty_every: round.empty_every,
            reopen_every: if round.trouble { 30 } else { 0 },
            registers: round.registers,
            second: self.second.clone(),
            busy_timeout: round.two_files.then_some(Duration::from_millis(60)),
            has_room: !round.small_disk,
            limits: round.trouble && (round.place == Place::Processes || self.disk.is_some()),
            nap: if round.readers > 0 { NAP_BESIDE_READERS } else { Duration::ZERO },
            first_number: 1,
            file: path,
        };
        let (subject, database) = (self.fixture.subject.clone(), self.fixture.database());
        let job = Job { subject, database, work: Work::History(work) };
        self.jobs.push(if round.containers {
            job.start_in_own_pid_namespace()
        } else {
            job.start(round.place)
        });
        self.numbers.push(worker);
    }

    /// Makes trouble beside the workers until the time is over.
    fn trouble(&mut self, end: Instant, tally: &mut Tally) -> anyhow::Result<()> {
        let mut dice = Dice::new(self.round.seed ^ 0x7472_6f75);
        let path = self.fixture.path("trouble.json");
        let file = std::fs::File::create(&path)?;
        self.files.push(HistoryFile::of(path));
        let mut maker = Troublemaker::new(self.fixture, self.round.keys, file);
        let mut next = self.round.workers;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(dice.roll(60) as u64));
            if let Some(replica) = &mut self.replica {
                replica.supervise()?;
                // Where schema changes come faster than snapshots are made, it stands still.
                std::thread::sleep(Duration::from_millis(dice.roll(500) as u64));
                if dice.one_in(2) {
                    let what = Interference::any(&mut dice);
                    self.interfere(what, &mut maker, &mut next, end, &mut dice, tally)?;
                    continue;
                }
            }
            // No round on a small disk is without one.
            let is_without = self.disk.is_some() && tally.full_disks == 0;
            let any = self.any(&mut dice, self.disk.is_some());
            let chosen = if is_without { Trouble::FullDisk } else { any };
            if let (Trouble::FullDisk, Some(disk)) = (chosen, self.disk) {
                disk.fill_but(*dice.pick(&FREE_BYTES));
                maker.may_want_room = true;
                let meanwhile = self.any(&mut dice, false);
                self.make(meanwhile, &mut maker, &mut next, end, &mut dice, tally)?;
                std::thread::sleep(for_a_while(&mut dice));
                disk.empty();
                maker.may_want_room = false;
                tally.full_disks += 1;
            } else {
                self.make(chosen, &mut maker, &mut next, end, &mut dice, tally)?;
            }
        }
        (tally.troubles, tally.refused) = maker.tally;
        Ok(())
    }

    /// Awaits all workers.
    fn end_jobs(&mut self, tally: &mut Tally) {
        for job in self.jobs.drain(..) {
            let done: Done = job.result(self.round.time + Duration::from_secs(90));
            tally.transactions += u64::from(done.committed + done.aborted);
            tally.statements += done.statements;
        }
        self.numbers.clear();
    }

    /// Awaits the readers of the replica, and that it comes to the end.
    fn end_replica(&mut self, tally: &mut Tally) -> anyhow::Result<()> {
        let Some(replica) = self.replica.take() else { return Ok(()) };
        let (counts, more) = replica.end()?;
        tally.replica = counts;
        tally.statements += counts.seen.statements;
        tally.transactions += counts.seen.reads;
        self.files.extend(more);
        Ok(())
    }

    /// Does something to the processes of the replica.
    fn interfere(
        &mut self,
        what: Interference,
        maker: &mut Troublemaker<'_>,
        next: &mut u32,
        end: Instant,
        dice: &mut Dice,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let count = self.jobs.len();
        if what == Interference::Session {
            self.jobs.iter_mut().for_each(Running::stop);
            self.end_jobs(tally);
            maker.make(Trouble::Opening, dice)?;
        }
        let replica = self.replica.as_mut().expect("there is one");
        replica.interfere(what, dice)?;
        if what == Interference::Session {
            let is_first = dice.one_in(2);
            if is_first {
                replica.start_sidecar()?;
            }
            for _ in 0..count {
                *next += 1;
                self.start(*next, end.saturating_duration_since(Instant::now()));
            }
            if !is_first {
                self.replica.as_mut().expect("there is one").start_sidecar()?;
            }
        }
        Ok(())
    }

    fn any(&self, dice: &mut Dice, has_disk: bool) -> Trouble {
        Trouble::any(dice, self.round.place == Place::Processes, has_disk)
    }

    fn make(
        &mut self,
        chosen: Trouble,
        maker: &mut Troublemaker<'_>,
        next: &mut u32,
        end: Instant,
        dice: &mut Dice,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let victim = dice.roll(self.jobs.len());
        match chosen {
            Trouble::Stop => {
                let pid = self.jobs[victim].pid();
                // It may have come to its end.
                if crate::os::suspend(pid).is_ok() {
                    std::thread::sleep(for_a_while(dice));
                    crate::os::resume(pid)?;
                    tally.stops += 1;
                }
            }
            Trouble::Kill => {
                *next += 1;
                self.replace(victim, *next, end.saturating_duration_since(Instant::now()))?;
                tally.kills += 1;
            }
            Trouble::Limit => {
                let pid = self.jobs[victim].pid();
                let (what, most) = *dice.pick(&LIMITS);
                // It may have come to its end.
                if crate::os::limit(pid, what, Some(most)).is_ok() {
                    std::thread::sleep(for_a_while(dice));
                    let _ = crate::os::limit(pid, what, None);
                    tally.limits += 1;
                }
            }
            other => maker.make(other, dice)?,
        }
        Ok(())
    }

    /// Kills a worker and starts another one.
    fn replace(&mut self, victim: usize, worker: u32, time: Duration) -> anyhow::Result<()> {
        let mut job = self.jobs.remove(victim);
        job.kill();
        let (_, ending) = job.wait::<serde_json::Value>(Duration::from_secs(30))?;
        anyhow::ensure!(!matches!(ending, Ending::Failed(_)), "a worker failed: {ending:?}");
        let dead_ns = Some(monotonic_ns());
        // Its file is the one of its number, which its place does not tell any more.
        let number = self.numbers.remove(victim);
        let path = self.fixture.path(&format!("worker-{number}.json"));
        let file = self.files.iter_mut().find(|file| file.path == path);
        file.expect("it has a file").dead_ns = dead_ns;
        self.start(worker, time);
        Ok(())
    }
}

fn for_a_while(dice: &mut Dice) -> Duration {
    Duration::from_millis(20 + dice.roll(200) as u64)
}

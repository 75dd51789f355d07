//! The random suites for as long as one likes, and replay of what they found.

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use plait_tests::crash;
use plait_tests::differential::Script;
use plait_tests::differential::generate::generate;
use plait_tests::differential::shrink::{Bench, Failure, scratch, search};
use plait_tests::isolation::torture::{self, Round};
use plait_tests::jobs::history::Layout;
use plait_tests::place::Place;
use plait_tests::powercut;
use plait_tests::searchers;
use plait_tests::subject::{Begin, Subject, Synchronous};
use plait_tests::tally::Tally;
use plait_tests::wholeness;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Runs the random suites for a given time; stops with a report at the first failure.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
    /// For how long.
    #[arg(long, global = true, default_value_t = 600)]
    seconds: u64,
    /// First seed.
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    /// How many processes search side by side, in memory; of several the last one on the disk.
    #[arg(long, global = true, default_value_t = 1)]
    searchers: u64,
    /// Append what was run to this file, a line of JSON for each suite of each searcher.
    #[arg(long, global = true)]
    tally: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Suite {
    /// All of them, each for its share of the time.
    All,
    /// Random SQL on stock SQLite and on the library under test.
    Differential {
        /// Steps of each script after its schema.
        #[arg(long, default_value_t = 200)]
        length: usize,
        /// Run one saved script instead.
        #[arg(long)]
        replay: Option<PathBuf>,
        /// Print the script of the seed and stop.
        #[arg(long)]
        show: bool,
        /// Keep the library under test in WAL mode.
        #[arg(long)]
        wal: bool,
    },
    /// Random transactions whose history must be serializable. What is not given varies with the seed.
    Isolation(Isolation),
    /// Processes killed at every named step and at random.
    Crash,
    /// Power cuts at the file operations of a workload, of its recovery, and of the recoveries after that.
    Powercut,
    /// Statements in which one call of the engine after the other fails.
    Wholeness {
        /// Print the case of the seed and stop.
        #[arg(long)]
        show: bool,
    },
}

#[derive(Args, Clone, Default)]
struct Isolation {
    /// Workers are processes rather than threads.
    #[arg(long)]
    processes: bool,
    /// Each of these processes is in a pid namespace of its own.
    #[arg(long, requires = "processes")]
    containers: bool,
    /// On a disk that is full now and then, where one can be mounted; goes with trouble.
    #[arg(long)]
    full_disks: bool,
    /// Over two files.
    #[arg(long)]
    two_files: bool,
    /// A replica follows the database, and its readers are part of the history.
    #[arg(long, conflicts_with_all = ["two_files", "full_disks", "containers"])]
    follower: bool,
    /// Seconds of each round.
    #[arg(long, default_value_t = 5.0)]
    round: f64,
    /// Rounds of an instant: many small histories, whose sessions are young, instead of few large ones.
    #[arg(long)]
    short: bool,
    /// How many workers.
    #[arg(long)]
    workers: Option<u32>,
    /// How many keys, at most 60.
    #[arg(long)]
    keys: Option<i64>,
    /// A WITHOUT ROWID table, or a rowid table.
    #[arg(long)]
    without_rowid: Option<bool>,
    /// Ways of beginning.
    #[arg(long, value_delimiter = ',')]
    begins: Option<Vec<Begin>>,
    /// Durability.
    #[arg(long)]
    synchronous: Option<Synchronous>,
    /// A merge after about so many transactions of a worker; none when 0.
    #[arg(long)]
    merge_every: Option<u32>,
    /// Empty the table after about so many transactions of a worker; never when 0.
    #[arg(long)]
    empty_every: Option<u32>,
    /// Everything else that may go on beside the workers.
    #[arg(long)]
    trouble: Option<bool>,
    /// Work on registers too, with the key-value API.
    #[arg(long)]
    registers: Option<bool>,
    /// Transactions of each worker in a round, at most.
    #[arg(long)]
    transactions: Option<u32>,
}

impl Isolation {
    fn round(&self, seed: u64) -> Round {
        let place = if self.processes { Place::Processes } else { Place::Threads };
        let random = Round::random(seed, place, Duration::from_secs_f64(self.round));
        let random = if self.short { random.short() } else { random };
        let layout = |without| if without { Layout::WithoutRowid } else { Layout::Rowid };
        let round = Round {
            workers: self.workers.unwrap_or(random.workers),
            keys: self.keys.unwrap_or(random.keys),
            layout: self.without_rowid.map_or(random.layout, layout),
            begins: self.begins.clone().unwrap_or(random.begins),
            levels: self.synchronous.map_or(random.levels, |level| vec![level]),
            merge_every: self.merge_every.unwrap_or(random.merge_every),
            empty_every: self.empty_every.unwrap_or(random.empty_every),
            transactions: self.transactions.unwrap_or(random.transactions),
            trouble: self.trouble.unwrap_or(random.trouble || self.full_disks),
            registers: self.registers.unwrap_or(random.registers),
            containers: self.containers,
            small_disk: self.full_disks,
            ..random
        };
        match (self.two_files, self.follower) {
            (true, _) => round.over_two_files(),
            (_, true) => round.with_follower(),
            _ => round,
        }
    }

    fn run(&self, first: u64, time: Duration) -> (String, Vec<(&'static str, u64)>) {
        let subject = Subject::plait();
        let end = Instant::now() + time;
        let mut all = torture::Tally::default();
        for seed in first.. {
            if Instant::now() >= end {
                break;
            }
            let round = self.round(seed);
            let tally = round.run(&subject);
            println!("seed {seed}: {} workers, {tally:?}", round.workers);
            all += tally;
        }
        let place = if self.processes { "processes" } else { "threads" };
        let more = [
            (self.containers, "containers"),
            (self.two_files, "two files"),
            (self.full_disks, "full disks"),
            (self.follower, "follower"),
            (self.short, "short"),
        ];
        let suite = more
            .iter()
            .filter(|(is_so, _)| *is_so)
            .fold(format!("isolation, {place}"), |name, (_, what)| format!("{name}, {what}"));
        let counts = [
            ("histories", all.histories),
            ("transactions", all.transactions),
            ("statements", all.statements),
            ("troubles", all.troubles),
            ("kills", all.kills),
            ("stops", all.stops),
            ("limits", all.limits),
            ("full disks", all.full_disks),
        ];
        let of_replica = [
            ("reads of the replica", all.replica.seen.reads),
            ("waits", all.replica.seen.waits),
            ("waits in vain", all.replica.seen.waits_in_vain),
            ("followers killed", all.replica.followers_killed),
            ("sidecars killed", all.replica.sidecars_killed),
            ("sessions", all.replica.sessions),
        ];
        let of_replica = of_replica.into_iter().filter(|_| self.follower);
        (suite, counts.into_iter().chain(of_replica).collect())
    }
}

fn main() -> anyhow::Result<()> {
    let Arguments { suite, seconds, seed, tally, searchers: several } = Arguments::parse();
    let is_search = !matches!(
        suite,
        Suite::Differential { show: true, .. }
            | Suite::Differential { replay: Some(_), .. }
            | Suite::Wholeness { show: true }
    );
    if is_search && searchers::own_seed().is_none() {
        return searchers::run(several, seed);
    }
    let seed = searchers::own_seed().unwrap_or(seed);
    let time = Duration::from_secs(seconds);
    let file = tally.as_deref();
    match suite {
        Suite::Differential { length, show: true, .. } => {
            print!("{}", generate(seed, length).render());
            Ok(())
        }
        Suite::Wholeness { show: true } => {
            print!("{}", wholeness::generate::generate(seed).render());
            Ok(())
        }
        Suite::Differential { replay: Some(path), wal, .. } => replay(&under_test(wal), &path),
        Suite::All => {
            let isolation = Isolation { round: 3.0, ..Isolation::default() };
            let in_processes = Isolation { processes: true, ..isolation.clone() };
            let over_two = Isolation { two_files: true, ..in_processes.clone() };
            let short = Isolation { short: true, ..isolation.clone() };
            let containers = Isolation { containers: true, ..in_processes.clone() };
            let full_disks = Isolation { full_disks: true, ..in_processes.clone() };
            let follower = Isolation { follower: true, ..in_processes.clone() };
            let suites = [
                Suite::Differential { length: 200, replay: None, show: false, wal: false },
                Suite::Isolation(isolation),
                Suite::Isolation(in_processes),
                Suite::Isolation(over_two),
                Suite::Isolation(short),
                Suite::Isolation(containers),
                Suite::Isolation(full_disks),
                Suite::Isolation(follower),
                Suite::Crash,
                Suite::Powercut,
                Suite::Wholeness { show: false },
            ];
            let share = time / suites.len() as u32;
            suites.iter().try_for_each(|suite| suite.run(seed, share).tell(file))
        }
        suite => suite.run(seed, time).tell(file),
    }
}

fn under_test(wal: bool) -> Subject {
    if wal { Subject::plait_in_wal_mode() } else { Subject::plait() }
}

impl Suite {
    /// Runs it; panics with a report at the first failure.
    fn run(&self, seed: u64, time: Duration) -> Tally {
        let start = Instant::now();
        let (suite, counts) = match self {
            Self::All => unreachable!("it is several"),
            Self::Differential { length, wal, .. } => {
                let (scratch, stock) = (scratch(), Subject::stock());
                let plait = under_test(*wal);
                let bench = Bench { stock: &stock, plait: &plait, scratch: scratch.path() };
                let tally = search(&bench, seed, *length, time);
                (
                    "differential".to_owned(),
                    vec![("scripts", tally.scripts), ("statements", tally.steps)],
                )
            }
            Self::Isolation(isolation) => isolation.run(seed, time),
            Self::Crash => {
                let tally = crash::torture::run(&Subject::plait(), seed, time);
                let kills =
                    [("kills at steps", tally.at_steps), ("kills at random", tally.at_random)];
                ("crash".to_owned(), kills.to_vec())
            }
            Self::Powercut => {
                let tally = powercut::explore::run(&Subject::plait(), seed, time);
                let states = [("states", tally.states), ("states opened", tally.opened)];
                ("powercut".to_owned(), states.to_vec())
            }
            Self::Wholeness { .. } => ("wholeness".to_owned(), wholeness(seed, time)),
        };
        Tally { suite, seed, seconds: start.elapsed().as_secs_f64(), counts }
    }
}

fn wholeness(seed: u64, time: Duration) -> Vec<(&'static str, u64)> {
    let tally = wholeness::search::search(seed, time);
    vec![
        ("cases", tally.cases),
        ("trials", tally.trials),
        ("failed acts", tally.failed),
        ("kept transactions", tally.kept),
        ("rolled back", tally.rolled_back),
        ("lost transactions", tally.lost),
    ]
}

fn replay(plait: &Subject, path: &Path) -> anyhow::Result<()> {
    let (scratch, stock) = (scratch(), Subject::stock());
    let bench = Bench { stock: &stock, plait, scratch: scratch.path() };
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let script: Script = serde_json::from_str(&text).context("the file holds no script")?;
    match bench.script(&script, Duration::from_secs(120)) {
        None => println!("equal results"),
        Some(Failure::Broken(message)) => println!("{message}\n{}", script.render()),
        Some(Failure::Mismatch(mismatch)) => {
            println!("{}", script.render());
            println!("at step {}", mismatch.step);
            println!("stock: {}\nplait: {}", mismatch.stock, mismatch.plait);
        }
    }
    Ok(())
}

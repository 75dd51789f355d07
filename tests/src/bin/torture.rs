//! The random suites for as long as one likes, and replay of what they found.

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use plait_tests::crash;
use plait_tests::differential::Script;
use plait_tests::differential::generate::generate;
use plait_tests::differential::shrink::{Bench, Failure, scratch, search};
use plait_tests::isolation::torture::Round;
use plait_tests::jobs::history::Layout;
use plait_tests::place::Place;
use plait_tests::powercut;
use plait_tests::subject::{Begin, Subject, Synchronous};
use std::path::PathBuf;
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
}

#[derive(Subcommand)]
enum Suite {
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
}

#[derive(Args)]
struct Isolation {
    /// Workers are processes rather than threads.
    #[arg(long)]
    processes: bool,
    /// Over two files.
    #[arg(long)]
    two_files: bool,
    /// Seconds of each round.
    #[arg(long, default_value_t = 5.0)]
    round: f64,
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
    /// Transactions of each worker in a round, at most.
    #[arg(long)]
    transactions: Option<u32>,
}

impl Isolation {
    fn round(&self, seed: u64) -> Round {
        let place = if self.processes { Place::Processes } else { Place::Threads };
        let random = Round::random(seed, place, Duration::from_secs_f64(self.round));
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
            ..random
        };
        if self.two_files { round.over_two_files() } else { round }
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let time = Duration::from_secs(arguments.seconds);
    match arguments.suite {
        Suite::Differential { length, show: true, .. } => {
            print!("{}", generate(arguments.seed, length).render());
            Ok(())
        }
        Suite::Differential { length, replay, wal, .. } => {
            let plait = if wal { Subject::plait_in_wal_mode() } else { Subject::plait() };
            differential(&plait, replay, arguments.seed, length, time)
        }
        Suite::Isolation(isolation) => {
            run_isolation(&isolation, arguments.seed, time);
            Ok(())
        }
        Suite::Powercut => {
            let (tally, seconds) = powercut::explore::run(&Subject::plait(), arguments.seed, time);
            println!(
                "{} states after power cuts, {} of them opened, all sound; {:.1} states per second",
                tally.states,
                tally.opened,
                tally.states as f64 / seconds
            );
            Ok(())
        }
        Suite::Crash => {
            let rounds = crash::torture::run(&Subject::plait(), arguments.seed, time);
            println!("{rounds} rounds from seed {} on left every database sound", arguments.seed);
            Ok(())
        }
    }
}

fn differential(
    plait: &Subject,
    replay: Option<PathBuf>,
    seed: u64,
    length: usize,
    time: Duration,
) -> anyhow::Result<()> {
    let scratch = scratch();
    let stock = Subject::stock();
    let bench = Bench { stock: &stock, plait, scratch: scratch.path() };
    let Some(path) = replay else {
        let seeds = search(&bench, seed, length, time);
        println!("{seeds} seeds from {seed} on gave equal results");
        return Ok(());
    };
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
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

fn run_isolation(isolation: &Isolation, first: u64, time: Duration) {
    let subject = Subject::plait();
    let end = Instant::now() + time;
    for seed in first.. {
        if Instant::now() >= end {
            break;
        }
        let round = isolation.round(seed);
        let summary = round.run(&subject);
        println!("seed {seed}: {} workers, {summary:?}", round.workers);
    }
}

//! Measures every ratio that the project promises and prints required against measured.

use anyhow::{Context as _, ensure};
use clap::{Parser, Subcommand};
use plait_tests::differential::dice::Dice;
use plait_tests::os;
use plait_tests::paths;
use plait_tests::ratios::bare_log;
use plait_tests::ratios::case::{self, Case, LargeTable, Load, OWN_BEST_WRITERS, Work};
use plait_tests::ratios::instructions;
use plait_tests::ratios::members::{Member, serve};
use plait_tests::ratios::overhead::{self, Loop, Overhead};
use plait_tests::ratios::peers::{self, PeerCase};
use plait_tests::ratios::table::{Line, Median, print, print_machine};
use plait_tests::ratios::trial::{Outcome, Trial, make_large};
use plait_tests::ratios::verdict::judge;
use plait_tests::subject::Subject;
use plait_tests::walks::{self, Rounds};
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Stock SQLite and the library under test, interleaved, each trial in a process and directory of its own.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    inner: Option<Inner>,
    /// Only these cases; `overhead`, `instructions` and `own-best` are cases too. All but those of ten
    /// million rows when left out.
    #[arg(long = "case")]
    cases: Vec<String>,
    /// Trials of each engine on each case.
    #[arg(long, default_value_t = 5)]
    repeats: u32,
    /// Measured seconds of each trial; ten times as many of long runs.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Where the databases are made: a directory on the disk to be measured.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Seed of keys, values and order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the names of the cases and stop.
    #[arg(long)]
    list: bool,
    /// Leave with exit code 1 if a ratio is below what is required.
    #[arg(long)]
    check: bool,
}

#[derive(Subcommand)]
enum Inner {
    /// One trial (for this program itself).
    #[command(hide = true)]
    Trial { json: String },
    /// One member of a trial (for this program itself).
    #[command(hide = true)]
    Member { json: String },
    /// Statements whose instructions are counted (for this program itself).
    #[command(name = walks::COMMAND, hide = true)]
    Count { json: String },
    /// One loop of the overhead case (for this program itself).
    #[command(hide = true)]
    Overhead { json: String },
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    // As in programs: the suites' connections join a session at once.
    os::allow_alone();
    match &arguments.inner {
        None => Bench::new(&arguments)?.run(),
        Some(Inner::Trial { json }) => {
            let trial: Trial = serde_json::from_str(json)?;
            println!("{}", serde_json::to_string(&trial.run()?)?);
            Ok(ExitCode::SUCCESS)
        }
        Some(Inner::Member { json }) => {
            let member: Member = serde_json::from_str(json)?;
            serve(&member)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Inner::Count { json }) => {
            serde_json::from_str::<Rounds>(json)?.run()?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Inner::Overhead { json }) => {
            let (kind, directory, time): (Loop, PathBuf, Duration) = serde_json::from_str(json)?;
            let (stock, plait) = (Subject::stock(), Subject::plait_in_wal_mode());
            let measured = overhead::measure(&stock, &plait, &directory, kind, time)?;
            println!("{}", serde_json::to_string(&measured)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Outcomes of one load: stock's and those of the library under test.
#[derive(Default)]
struct Measured {
    stock: Vec<Outcome>,
    plait: Vec<Outcome>,
}

struct Bench<'a> {
    arguments: &'a Arguments,
    stock: Subject,
    plait: Subject,
    directory: PathBuf,
    /// Databases that trials begin with, as far as any did.
    large: Vec<(LargeTable, PathBuf)>,
    dice: Dice,
    trials: u32,
}

impl<'a> Bench<'a> {
    fn new(arguments: &'a Arguments) -> anyhow::Result<Self> {
        let default = || paths::repository().join("target").join("ratios");
        let directory = arguments.dir.clone().unwrap_or_else(default);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("create {}", directory.display()))?;
        let directory = directory.canonicalize()?;
        let dice = Dice::new(arguments.seed);
        let (stock, plait) = (Subject::stock(), Subject::plait());
        Ok(Self { arguments, stock, plait, directory, large: Vec::new(), dice, trials: 0 })
    }

    fn wants(&self, name: &str) -> bool {
        self.arguments.cases.is_empty() || self.arguments.cases.iter().any(|case| case == name)
    }

    fn run(mut self) -> anyhow::Result<ExitCode> {
        let all = case::all();
        let known = |name: &str| {
            ["own-best", "overhead", instructions::NAME].contains(&name)
                || all.iter().any(|case| case.name == name)
                || peers::ALL.iter().any(|case| case.name == name)
        };
        if self.arguments.list {
            all.iter().for_each(|case| println!("{:18} {}", case.name, case.title));
            peers::ALL.iter().for_each(|case| println!("{:18} {}", case.name, case.title));
            for (name, title) in [
                ("own-best", "plait over all numbers of writers"),
                ("overhead", "prepared loops in WAL mode"),
                (instructions::NAME, instructions::TITLE),
            ] {
                println!("{name:18} {title}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        for name in &self.arguments.cases {
            ensure!(known(name), "no case is named {name}: see --list");
        }
        let wanted = |case: &Case| {
            self.wants(case.name) && !(self.arguments.cases.is_empty() && case.is_only_by_name())
        };
        let cases: Vec<Case> = all.into_iter().filter(wanted).collect();
        println!("stock: {:?}\nplait: {:?}", self.stock.library(), self.plait.library());
        println!(
            "seed {}, {} repeats of {} s",
            self.arguments.seed, self.arguments.repeats, self.arguments.seconds
        );
        print_machine(&self.directory)?;
        let mut measured: Vec<Measured> = cases.iter().map(|_| Measured::default()).collect();
        let mut own: Vec<Vec<Outcome>> = OWN_BEST_WRITERS.map(|_| Vec::new()).into();
        for repeat in 0..self.arguments.repeats {
            for (case, outcomes) in cases.iter().zip(&mut measured) {
                eprintln!("repeat {}: {}", repeat + 1, case.title);
                self.pair(case, outcomes)?;
            }
            if self.wants("own-best") || self.wants("hundred") {
                for (writers, outcomes) in OWN_BEST_WRITERS.iter().zip(&mut own) {
                    eprintln!("repeat {}: own best, {writers} writers", repeat + 1);
                    outcomes.push(self.trial(&self.plait.clone(), &case::own_best_load(*writers))?);
                }
            }
        }
        let own: Vec<Median> =
            own.into_iter().filter(|all| !all.is_empty()).map(Median::of).collect();
        let mut lines = Vec::new();
        for (case, outcomes) in cases.iter().zip(measured) {
            lines.extend(judge(case, outcomes.stock, outcomes.plait, &own));
        }
        if self.wants("overhead") {
            lines.extend(self.overhead()?);
        }
        if self.wants(instructions::NAME) {
            eprintln!("{}", instructions::TITLE);
            lines.extend(instructions::measure(&self.stock, &self.plait)?);
        }
        lines.extend(self.peers()?);
        print(&lines);
        for (writers, median) in OWN_BEST_WRITERS.iter().zip(&own) {
            println!(
                "plait, {writers} writers, BEGIN CONCURRENT: {:.0} /s",
                median.outcome.per_second
            );
        }
        let below = lines.iter().any(|line| !line.reached);
        Ok(if below && self.arguments.check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Both engines on one load, or the library under test and what it is held against, in random order.
    fn pair(&mut self, case: &Case, outcomes: &mut Measured) -> anyhow::Result<()> {
        let stock_first = self.dice.one_in(2);
        for stock in [stock_first, !stock_first] {
            let (subject, load) = match &case.against {
                Some(load) if stock => (&self.plait, load),
                None if stock => (&self.stock, &case.load),
                _ => (&self.plait, &case.load),
            };
            let outcome = self.trial(&subject.clone(), load)?;
            if stock { outcomes.stock.push(outcome) } else { outcomes.plait.push(outcome) }
        }
        Ok(())
    }

    fn trial(&mut self, subject: &Subject, load: &Load) -> anyhow::Result<Outcome> {
        let million = load.work.large_table().map(|table| self.large(table)).transpose()?;
        self.trials += 1;
        let directory =
            self.directory.join(format!("trial-{}-{}", std::process::id(), self.trials));
        std::fs::create_dir_all(&directory)?;
        let trial = Trial {
            subject: subject.clone(),
            load: load.clone(),
            directory: directory.clone(),
            million,
            seed: self.arguments.seed.wrapping_mul(7919).wrapping_add(self.trials.into()),
            time: Duration::from_secs_f64(self.arguments.seconds) * load.work.times_as_long(),
        };
        let outcome: Outcome = in_child("trial", &serde_json::to_string(&trial)?)
            .with_context(|| format!("{} on {load:?}", subject.library.display()))?;
        std::fs::remove_dir_all(&directory)?;
        let is_log = load.work == Work::BareLog;
        let expected = if is_log { bare_log::MODE } else { subject.mode.name() };
        ensure!(
            outcome.settings.journal_mode == expected,
            "settings were not kept: {:?}",
            outcome.settings
        );
        Ok(outcome)
    }

    /// The database with a large table; made when it is asked for first.
    fn large(&mut self, table: LargeTable) -> anyhow::Result<PathBuf> {
        if let Some((_, path)) = self.large.iter().find(|(made, _)| *made == table) {
            return Ok(path.clone());
        }
        let name = format!("large-{}-{}.db", std::process::id(), self.large.len());
        let path = self.directory.join(name);
        self.large.push((table, path.clone()));
        make_large(&self.stock, &path, table)?;
        Ok(path)
    }

    /// The cases against other stores, if any is wanted.
    fn peers(&self) -> anyhow::Result<Vec<Line>> {
        let wanted: Vec<PeerCase> =
            peers::ALL.into_iter().filter(|case| self.wants(case.name)).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let Arguments { repeats, seconds, seed, .. } = *self.arguments;
        let suite = paths::repository().join("dist/bin/plait-bench");
        peers::measure(&suite, &self.directory, &wanted, peers::Rules { repeats, seconds, seed })
    }

    fn overhead(&self) -> anyhow::Result<Vec<Line>> {
        let mut lines = Vec::new();
        for kind in Loop::ALL {
            eprintln!("overhead: {kind:?}");
            let directory =
                self.directory.join(format!("overhead-{}-{kind:?}", std::process::id()));
            std::fs::create_dir_all(&directory)?;
            let time =
                Duration::from_secs_f64(self.arguments.seconds * f64::from(self.arguments.repeats));
            let json = serde_json::to_string(&(kind, &directory, time))?;
            let Overhead { stock, plait, ratio } = in_child("overhead", &json)?;
            std::fs::remove_dir_all(&directory)?;
            lines.push(Line {
                title: format!(
                    "WAL mode, prepared {kind:?} loop: {stock:.0} and {plait:.0} per CPU second"
                ),
                stock: None,
                plait: None,
                required: "0.97 x".to_owned(),
                measured: format!("{ratio:.3} x"),
                reached: ratio >= 0.97,
            });
        }
        Ok(lines)
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        for (_, path) in &self.large {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Runs this program again and reads the JSON on the last line it prints.
fn in_child<T: DeserializeOwned>(command: &str, json: &str) -> anyhow::Result<T> {
    let output = Command::new(std::env::current_exe()?)
        .args([command, json])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the child ended with {}: {text}", output.status);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("the child said: {last}"))
}

//! The command line.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};

use crate::engines::catalogue::{self, Entry, NamedLibrary, Presence};
use crate::measure::{machine, runner, trial};
use crate::report::results::{Results, SCHEMA};
use crate::report::stored::{self, CompareArgs, ReportArgs};
use crate::report::{page, terminal};
use crate::studies::{Mode, Plan, Request, Study};
use crate::workloads::crew::member;

/// Which embedded store, in which settings, does this workload want on this machine?
#[derive(Parser, Debug)]
#[command(name = "plait bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// SQLite as a key-value database against Berkeley DB
    Kv(StudyArgs),
    /// Journal mode x synchronous
    Modes(StudyArgs),
    /// SQLite against the file system
    Files(StudyArgs),
    /// Berkeley DB SQL against SQLite
    Writers(StudyArgs),
    /// All four studies
    All(StudyArgs),
    /// Which engines are here, which are missing, and what installs them
    Engines(EnginesArgs),
    /// What differs between two stored results
    Compare(CompareArgs),
    /// Show a stored result again, as a page or as tables
    Report(ReportArgs),
    /// The schema of results
    #[command(hide = true)]
    Schema,
    /// One trial (for this program itself)
    #[command(name = trial::COMMAND, hide = true)]
    Trial,
    /// One process of a trial of several (for this program itself)
    #[command(name = member::COMMAND, hide = true)]
    Member,
}

/// A command line that cannot be done as it is: the program ends with 2.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// What every study can be told.
#[derive(Args, Debug)]
pub struct StudyArgs {
    /// Exactly as published, with the published figures beside
    #[arg(long)]
    historical: bool,
    /// Only these engines, by the names that `plait bench engines` lists
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Another library with SQLite's C interface, as name=path
    #[arg(long = "library")]
    libraries: Vec<NamedLibrary>,
    /// Directory on a medium to be measured; can be given several times [default: the current one]
    #[arg(long = "dir")]
    directories: Vec<PathBuf>,
    /// Trials of each cell
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Small sizes: a glance, not a result
    #[arg(long)]
    quick: bool,
    /// The largest sizes and all combinations: hours
    #[arg(long, conflicts_with = "quick")]
    thorough: bool,
    /// Write the results as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a report as one HTML file
    #[arg(long)]
    html: Option<PathBuf>,
    /// Also print what each figure cost: retries, processor time, bytes written, fairness
    #[arg(long)]
    details: bool,
    /// Seed of keys, values and order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args, Debug)]
struct EnginesArgs {
    /// Another library with SQLite's C interface, as name=path
    #[arg(long = "library")]
    libraries: Vec<NamedLibrary>,
}

/// Does what the command line asks.
///
/// # Errors
/// Whatever went wrong, in words for the user.
pub fn parse_and_run() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Kv(args) => run_studies(&[Study::Kv], &args),
        Command::Modes(args) => run_studies(&[Study::Modes], &args),
        Command::Files(args) => run_studies(&[Study::Files], &args),
        Command::Writers(args) => run_studies(&[Study::Writers], &args),
        Command::All(args) => {
            run_studies(&[Study::Kv, Study::Modes, Study::Files, Study::Writers], &args)
        }
        Command::Engines(args) => list_engines(&args),
        Command::Compare(args) => args.run(),
        Command::Report(args) => args.run(),
        Command::Schema => {
            anstream::print!("{}", stored::schema());
            Ok(())
        }
        Command::Trial => trial::be_trial(),
        Command::Member => member::be_member(),
    }
}

fn run_studies(studies: &[Study], args: &StudyArgs) -> anyhow::Result<()> {
    let engines = chosen(catalogue::all(&args.libraries)?, &args.engines)?;
    let request = Request {
        mode: if args.historical { Mode::Historical } else { Mode::Modern },
        quick: args.quick,
        thorough: args.thorough,
        engines,
        media: if args.directories.is_empty() {
            vec![std::env::current_dir()?]
        } else {
            args.directories.clone()
        },
    };
    let mut plan = Plan::default();
    for study in studies {
        let part = study.plan(&request);
        plan.cells.extend(part.cells);
        plan.charts.extend(part.charts);
    }
    let started = SystemTime::now();
    let rules =
        runner::Rules { repeats: args.repeats, seed: args.seed, limit: Duration::from_secs(600) };
    let run = runner::run(plan.cells, &request.engines, &rules)?;
    let results = Results {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().skip(1).collect(),
        started_unix_s: started.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        took_s: started.elapsed().map_or(0.0, |d| d.as_secs_f64()),
        interrupted: run.interrupted,
        repeats: args.repeats,
        seed: args.seed,
        machine: machine::describe(),
        engines: request.engines,
        proofs: Vec::new(),
        cells: run.cells,
        charts: plan.charts,
    };
    if let Some(path) = &args.json {
        results.write(path)?;
    }
    if let Some(path) = &args.html {
        page::write(&results, path)?;
    }
    anstream::print!("{}", terminal::summary(&results, args.details));
    Ok(())
}

/// The engines that were asked for, or all.
fn chosen(entries: Vec<Entry>, names: &[String]) -> anyhow::Result<Vec<Entry>> {
    if let Some(unknown) = names.iter().find(|name| !entries.iter().any(|e| e.name == **name)) {
        let known: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
        anyhow::bail!("no engine is called {unknown}; there are {}", known.join(", "));
    }
    Ok(entries.into_iter().filter(|e| names.is_empty() || names.contains(&e.name)).collect())
}

fn list_engines(args: &EnginesArgs) -> anyhow::Result<()> {
    for entry in catalogue::all(&args.libraries)? {
        match entry.presence {
            Presence::Here { version, .. } => anstream::println!("{}  {version}", entry.name),
            Presence::Absent { why, install } => {
                anstream::println!("{}  absent: {why}; {install}", entry.name);
            }
        }
    }
    Ok(())
}

//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};

use crate::engines::catalogue::{self, Entry, NamedLibrary, Presence};
use crate::measure::progress::Verbosity;
use crate::measure::runner::{Rules, Run, Tracing};
use crate::measure::{interrupt, machine, preflight, process, runner, trace, trial};
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
    /// The cells of a plan that was written as JSON (for the suite's tests of itself)
    #[command(hide = true)]
    Plan(PlanArgs),
    /// One trial (for this program itself)
    #[command(name = trial::COMMAND, hide = true)]
    Trial,
    /// One process of a trial of several (for this program itself)
    #[command(name = member::COMMAND, hide = true)]
    Member,
    /// One trial whose system calls are counted (for this program itself)
    #[command(name = trace::COMMAND, hide = true)]
    Trace,
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
    /// Trials of each cell [default: 5, with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
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
    /// Seconds after which a trial is killed and has failed
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// What is shown meanwhile [default: bar on a terminal, lines elsewhere]
    #[arg(long)]
    verbose: Option<Verbosity>,
    /// Count no system calls: nothing is then shown to survive a power cut, or ranked as if it did
    #[arg(long)]
    no_trace: bool,
}

#[derive(Args, Debug)]
struct PlanArgs {
    /// The plan
    file: PathBuf,
    #[command(flatten)]
    study: StudyArgs,
}

#[derive(Args, Debug)]
struct EnginesArgs {
    /// Another library with SQLite's C interface, as name=path
    #[arg(long = "library")]
    libraries: Vec<NamedLibrary>,
}

/// Does what the command line asks. The exit code is 0 if everything was done, 1 if a trial failed, and 130 after an
/// interruption, with what was measured until then in the results.
///
/// # Errors
/// Whatever went wrong, in words for the user.
pub fn parse_and_run() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Kv(args) => return run_studies(&[Study::Kv], &args),
        Command::Modes(args) => return run_studies(&[Study::Modes], &args),
        Command::Files(args) => return run_studies(&[Study::Files], &args),
        Command::Writers(args) => return run_studies(&[Study::Writers], &args),
        Command::All(args) => {
            let all = [Study::Kv, Study::Modes, Study::Files, Study::Writers];
            return run_studies(&all, &args);
        }
        Command::Plan(PlanArgs { file, study }) => {
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let plan = serde_json::from_str(&text)
                .with_context(|| format!("{} is no plan", file.display()))?;
            return run_plan(plan, study.request()?, &study);
        }
        Command::Engines(args) => list_engines(&args)?,
        Command::Compare(args) => args.run()?,
        Command::Report(args) => args.run()?,
        Command::Schema => anstream::print!("{}", stored::schema()),
        Command::Trial => trial::be_trial()?,
        Command::Member => member::be_member()?,
        Command::Trace => trace::be_tracer()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Seconds in which the media are probed, all together.
const PROBE: Duration = Duration::from_secs(2);

/// Room that the largest trial of a study may need, and of its small sizes.
const NEEDED_BYTES: u64 = 2 << 30;
const NEEDED_BYTES_QUICK: u64 = 256 << 20;

impl StudyArgs {
    fn request(&self) -> anyhow::Result<Request> {
        let engines = chosen(catalogue::all(&self.libraries)?, &self.engines)?;
        let media = match &self.directories[..] {
            [] => vec![std::env::current_dir()?],
            directories => directories.to_vec(),
        };
        let mode = if self.historical { Mode::Historical } else { Mode::Modern };
        Ok(Request { mode, quick: self.quick, thorough: self.thorough, engines, media })
    }

    fn rules(&self) -> anyhow::Result<Rules> {
        let refused = "system calls were not to be counted (--no-trace)".to_owned();
        Ok(Rules {
            repeats: self.repeats.unwrap_or(if self.quick { 1 } else { 5 }),
            quick: self.quick,
            seed: self.seed,
            limit: Duration::from_secs(self.limit),
            tracing: if self.no_trace { Tracing::Refused(refused) } else { Tracing::Wanted },
            verbosity: self.verbose.unwrap_or_else(Verbosity::fitting),
            ..Rules::new()?
        })
    }
}

fn run_studies(studies: &[Study], args: &StudyArgs) -> anyhow::Result<ExitCode> {
    let request = args.request()?;
    let mut plan = Plan::default();
    for study in studies {
        let part = study.plan(&request);
        plan.cells.extend(part.cells);
        plan.charts.extend(part.charts);
    }
    run_plan(plan, request, args)
}

fn run_plan(plan: Plan, request: Request, args: &StudyArgs) -> anyhow::Result<ExitCode> {
    let rules = args.rules()?;
    let needed = if args.quick { NEEDED_BYTES_QUICK } else { NEEDED_BYTES };
    preflight::check(&request.media, needed)?;
    process::adopt_orphans()?;
    interrupt::watch()?;
    let started = SystemTime::now();
    if rules.verbosity != Verbosity::None {
        anstream::eprintln!(
            "{} cells, measured {} times each, seed {}",
            plan.cells.len(),
            rules.repeats,
            rules.seed
        );
    }
    let machine = machine::describe_and_probe(&request.media, PROBE);
    let results = |run: &Run| Results {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().skip(1).collect(),
        started_unix_s: started.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        took_s: started.elapsed().map_or(0.0, |d| d.as_secs_f64()),
        interrupted: run.interrupted,
        repeats: rules.repeats,
        seed: rules.seed,
        machine: machine.clone(),
        engines: request.engines.clone(),
        proofs: run.proofs.clone(),
        cells: run.cells.clone(),
        charts: plan.charts.clone(),
    };
    let run = runner::run(&plan, &request.engines, &rules, &mut |run| match &args.json {
        Some(path) => results(run).write(path),
        None => Ok(()),
    })?;
    let results = results(&run);
    if let Some(path) = &args.html {
        page::write(&results, path)?;
    }
    anstream::print!("{}", terminal::summary(&results, args.details));
    Ok(match () {
        () if run.interrupted => ExitCode::from(130),
        () if run.has_failures() => ExitCode::FAILURE,
        () => ExitCode::SUCCESS,
    })
}

/// The engines that were asked for, or all.
fn chosen(mut entries: Vec<Entry>, names: &[String]) -> anyhow::Result<Vec<Entry>> {
    entries.extend(catalogue::fakes().into_iter().filter(|fake| names.contains(&fake.name)));
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

//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::advise::{self, candidates, show, verdict};
use crate::engines::catalogue::{self, NamedLibrary};
use crate::measure::{trace, trial};
use crate::quick;
use crate::report::stored::{self, CompareArgs, ReportArgs};
use crate::report::{engine_list, terminal};
use crate::run::RunArgs;
use crate::studies::{Mode, Plan, Request, Study, written};
use crate::workloads::crew::member;

/// Which embedded store, in which settings, does this workload want on this machine?
#[derive(Parser, Debug)]
#[command(name = "plait bench", bin_name = "plait bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Plait or SQLite, for so many writers: one screen, within a minute
    Quick(QuickArgs),
    /// SQLite as a key-value database against Berkeley DB
    Kv(StudyArgs),
    /// Journal mode x synchronous
    Modes(StudyArgs),
    /// SQLite against the file system
    Files(StudyArgs),
    /// Berkeley DB SQL against SQLite
    Writers(StudyArgs),
    /// Many writers for longer, over merges and checkpoints, closing included
    Steady(StudyArgs),
    /// All studies; with --historical those that repeat a publication
    All(StudyArgs),
    /// Which engine, in which settings, for a workload that a few answers describe
    Advise(AdviseArgs),
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
    /// Small sizes: a glance, not a result
    #[arg(long)]
    quick: bool,
    /// The largest sizes and all combinations: hours
    #[arg(long, conflicts_with = "quick")]
    thorough: bool,
    /// Also print what each figure cost: retries, processor time, bytes written, fairness
    #[arg(long)]
    details: bool,
    /// Trials of each cell [default: 5, with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Args, Debug)]
struct PlanArgs {
    /// The plan
    file: PathBuf,
    #[command(flatten)]
    study: StudyArgs,
}

#[derive(Args, Debug)]
struct QuickArgs {
    /// Database beside which is measured, never opened; or a directory [default: the current one]
    #[arg(conflicts_with = "directories")]
    file: Option<PathBuf>,
    /// Seconds of each trial
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Trials of each way with each number of writers; fewer than 5 give no verdict
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Args, Debug)]
struct AdviseArgs {
    #[command(flatten)]
    answers: advise::Answers,
    /// Seconds of each trial
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Trials of each candidate
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Args, Debug)]
struct EnginesArgs {
    /// Another library with SQLite's C interface, as name=path, or name=path?parameters to open databases under URIs
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
        Command::Quick(args) => return quick(args),
        Command::Kv(args) => return run_studies(&[Study::Kv], &args),
        Command::Modes(args) => return run_studies(&[Study::Modes], &args),
        Command::Files(args) => return run_studies(&[Study::Files], &args),
        Command::Writers(args) => return run_studies(&[Study::Writers], &args),
        Command::Steady(args) => return run_studies(&[Study::Steady], &args),
        Command::All(args) => {
            let is_wanted = |study: &Study| !args.historical || study.is_published();
            let all: Vec<Study> = Study::ALL.into_iter().filter(is_wanted).collect();
            return run_studies(&all, &args);
        }
        Command::Plan(PlanArgs { file, study }) => {
            return run_plan(written::read(&file)?, study.request()?, &study);
        }
        Command::Advise(args) => return advise(&args),
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

impl StudyArgs {
    fn request(&self) -> anyhow::Result<Request> {
        Ok(Request {
            mode: if self.historical { Mode::Historical } else { Mode::Modern },
            quick: self.quick,
            thorough: self.thorough,
            engines: self.run.chosen_engines()?,
            media: self.run.media()?,
        })
    }
}

fn run_studies(studies: &[Study], args: &StudyArgs) -> anyhow::Result<ExitCode> {
    let request = args.request()?;
    if args.historical && studies.iter().any(|study| !study.is_published()) {
        let text = "this study repeats no publication: leave --historical out".to_owned();
        return Err(UsageError(text).into());
    }
    let mut plan = Plan::default();
    for study in studies {
        let part = study.plan(&request);
        plan.cells.extend(part.cells);
        plan.charts.extend(part.charts);
    }
    run_plan(plan, request, args)
}

fn run_plan(plan: Plan, request: Request, args: &StudyArgs) -> anyhow::Result<ExitCode> {
    let repeats = args.repeats.unwrap_or(if args.quick { 1 } else { 5 });
    let done = args.run.measure(&plan, request.engines, &request.media, repeats, args.quick)?;
    anstream::print!("{}", terminal::summary(&done.results, args.details));
    Ok(done.exit_code())
}

/// Measures Plait beside SQLite where the data lies, and says which.
fn quick(args: QuickArgs) -> anyhow::Result<ExitCode> {
    let asked = show::Asked { seconds: args.seconds, repeats: args.repeats };
    if !(asked.seconds > 0.0 && asked.seconds <= 60.0) {
        return Err(UsageError("--seconds must be above 0 and at most 60".to_owned()).into());
    }
    let run = args.run.beside(args.file);
    let media = run.media()?;
    let medium = only(&media, "quick")?;
    let engines = quick::both(run.chosen_engines()?)?;
    let plan = quick::plan::plan(&engines, medium, asked.seconds);
    let done = run.measure(&plan, engines, &media, asked.repeats, true)?;
    let rows = quick::verdict::draw(&done.results);
    if let Some(why) = quick::verdict::nothing(&rows).filter(|_| !done.results.interrupted) {
        anyhow::bail!("quick cannot tell: {why}; --verbose lines shows each trial");
    }
    anstream::print!("{}", quick::screen::screen(&rows, &done.results, &asked));
    Ok(done.exit_code())
}

/// The one medium of a command that measures on no more.
fn only<'a>(media: &'a [PathBuf], command: &str) -> anyhow::Result<&'a PathBuf> {
    match media {
        [medium] => Ok(medium),
        _ => {
            let text = format!("{command} measures on one medium: give --dir once");
            Err(UsageError(text).into())
        }
    }
}

/// Asks what is needed, measures what can serve it and says what is best.
fn advise(args: &AdviseArgs) -> anyhow::Result<ExitCode> {
    let media = args.run.media()?;
    let medium = only(&media, "advise")?;
    let need = advise::complete(&args.answers)?;
    let engines = args.run.chosen_engines()?;
    let (plan, others) = candidates::plan(&need, &engines, medium, args.seconds);
    let done = args.run.measure(&plan, engines, &media, args.repeats, false)?;
    let verdict = verdict::draw(&done.results);
    let asked = show::Asked { seconds: args.seconds, repeats: args.repeats };
    anstream::print!("{}", show::advice(&need, &verdict, &others, &asked));
    Ok(done.exit_code())
}

fn list_engines(args: &EnginesArgs) -> anyhow::Result<()> {
    anstream::println!("{}", engine_list::table(&catalogue::all(&args.libraries)?));
    Ok(())
}

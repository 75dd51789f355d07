//! `plait demo`: the main job on a real database, on stock SQLite and on Plait, verified.
//!
//! | module | concept |
//! |---|---|
//! | [`plan`] | what is measured, in which order |
//! | [`job`] | what one writer does |
//! | [`crew`] | writers in threads or in processes |
//! | [`trial`] | one trial and its verification |
//! | [`machine`] | what the numbers depend on |
//! | [`table`] | the result |
//!
//! Processes: this one plans, measures nothing and shows; each trial runs in a child with a fresh directory, and with
//! writers in processes in grandchildren; each verification in another child, for Plait a second time with the stock
//! library, which must be able to read the file once it is closed.
//!
//! The first table is what a web server or a job queue meets: processes that read and then write, and count each error
//! as a request that failed. A line is shown as soon as it is verified.
//!
//! Deliberately absent: repeats and intervals. This shows the order of magnitude; it is no benchmark.

mod crew;
mod dice;
mod job;
mod machine;
mod plan;
mod table;
mod trial;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::console::{self, BAD, FAINT, GOOD, HEADING, styled};
use crate::failure::{self, Failure, Result};
use crate::installation;
use crate::os::{self, FileSystem};
use crate::quantity::{bytes, count, of, wait};
use machine::Disk;
use plan::{BUSY_TIMEOUT, Engine, Place, ROWS, Spec, VALUE_BYTES};
use table::Finished;
use trial::{Measured, Proof};

pub use crew::{WRITER_COMMAND, be_writer};

/// Name of the hidden command that runs one trial.
pub const TRIAL_COMMAND: &str = "demo-trial";
/// Name of the hidden command that verifies one database.
pub const VERIFY_COMMAND: &str = "demo-verify";
/// How much longer than its writers a trial may take before it counts as hanging.
const TRIAL_GRACE: Duration = Duration::from_secs(90);

/// Log, memtables and database of one trial, with room to spare.
const FREE_BYTES_MIN: u64 = 512 << 20;

/// Arguments of `plait demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Directory on the disk to be used; the databases in it are removed at the end
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How long each of the trials writes
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    seconds: f64,
    /// Numbers of writers
    #[arg(long, default_value = "1,8,50", value_delimiter = ',', value_name = "N,N..",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    writers: Vec<u32>,
    /// Number that all keys and values follow from
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give a number of seconds between 0.05 and 600".to_owned()),
    }
}

/// Why a trial gave no result.
#[derive(Debug, Serialize, Deserialize)]
enum Trouble {
    /// It did not run to its end.
    Failed(String),
    /// The result is not what was acknowledged.
    Wrong(String),
}

/// Everything a demo needs to know.
struct Demo<'a> {
    args: &'a DemoArgs,
    ours: PathBuf,
    stock: PathBuf,
    directory: tempfile::TempDir,
    progress: ProgressBar,
}

/// Runs the demo.
pub fn run(args: &DemoArgs) -> Result<u8> {
    let (ours, stock) = (installation::our_library()?, installation::stock_library()?);
    let directory = directory(args.dir.as_deref())?;
    os::survive_closed_pipes();
    os::note_interrupts();
    let order = plan::order(&args.writers);
    let _awake = introduce(args, directory.path(), order.len())?;
    let progress = progress(order.len());
    let mut demo = Demo { args, ours, stock, directory, progress };
    let mut finished = Vec::new();
    for (number, &(place, writers, engine)) in order.iter().enumerate() {
        match demo.trial(number, place, writers, engine) {
            Ok(measured) => {
                finished.push(Finished { place, writers, engine, measured });
                demo.progress.suspend(|| show(&finished));
            }
            Err(_) if os::interrupted() => {
                demo.progress.finish_and_clear();
                return Ok(failure::INTERRUPTED);
            }
            Err(trouble) => return demo.fail(place, writers, engine, &trouble),
        }
    }
    demo.progress.finish_and_clear();
    conclude(&finished);
    Ok(failure::OK)
}

/// A fresh directory on a disk.
fn directory(wanted: Option<&Path>) -> Result<tempfile::TempDir> {
    let parent = match wanted {
        Some(dir) => dir.to_owned(),
        // /tmp is often memory, where a sync is free.
        None => PathBuf::from("/var/tmp"),
    };
    let made = tempfile::Builder::new().prefix("plait-demo-").tempdir_in(&parent);
    let made = made.map_err(|e| {
        Failure::new(
            format!("cannot make a directory in {}: {}", parent.display(), failure::said(&e)),
            "give a directory that you may write to with --dir",
        )
    })?;
    let disk =
        FileSystem::of(made.path()).map_err(|e| Failure::io("ask for the disk of", &parent, &e))?;
    if disk.free_bytes < FREE_BYTES_MIN {
        let (free, wanted) = (bytes(disk.free_bytes), bytes(FREE_BYTES_MIN));
        return Err(Failure::new(
            format!("{} has {free} of free space, and a trial may take {wanted}", parent.display()),
            "free some space, or give a directory on another disk with --dir",
        ));
    }
    if disk.is_memory() {
        console::warn(
            &format!(
                "{} is memory, not a disk: a durable commit costs nothing there",
                parent.display()
            ),
            "give a directory on a disk with --dir",
        );
    }
    Ok(made)
}

/// Says what will be done and on what. Returns what keeps the processors awake, if that is needed.
fn introduce(args: &DemoArgs, directory: &Path, trials: usize) -> Result<Option<os::Awake>> {
    let rows = count(u64::from(ROWS));
    let job = "each transaction reads one row and updates another one";
    anstream::println!("{}", styled(HEADING, format!("{rows} rows of {VALUE_BYTES} bytes, {job}")));
    anstream::println!(
        "every commit durable, statements prepared, busy timeout {} s, seed {}",
        BUSY_TIMEOUT.as_secs(),
        args.seed
    );
    anstream::println!("machine: {}", machine::description(directory));
    let disk = Disk::measure(directory)
        .map_err(|e| Failure::io("measure the disk under", directory, &e))?;
    anstream::println!("disk:    {disk}");
    let load = machine::other_load();
    let awake = disk.waits_for_sleepers().then(os::keep_processors_awake);
    if awake.is_some() {
        anstream::println!(
            "         sleeping processors learn late that the disk is done: they are kept awake during the\n\
             \x20        trials, by threads of the lowest priority and for all engines alike"
        );
    }
    if let Some(load) = load {
        let what =
            format!("other programs keep {load:.1} processors busy: the numbers will be off");
        console::warn(&what, "run it again when the machine has nothing else to do");
    }
    anstream::println!(
        "{trials} trials of {} s, each in a process and a directory of its own in {}",
        args.seconds,
        directory.parent().unwrap_or(directory).display()
    );
    Ok(awake)
}

fn progress(trials: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(trials as u64), ProgressDrawTarget::stderr());
    let style = "{bar:24} {pos}/{len}  {elapsed} of about {duration}  {wide_msg}";
    bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

impl Demo<'_> {
    fn trial(
        &mut self,
        number: usize,
        place: Place,
        writers: u32,
        engine: Engine,
    ) -> std::result::Result<Measured, Trouble> {
        self.progress.set_message(title(place, writers, engine));
        let home = self.directory.path().join(format!("trial-{number}"));
        std::fs::create_dir(&home)
            .map_err(|e| Trouble::Failed(format!("cannot make {}: {e}", home.display())))?;
        let spec = Spec {
            engine,
            place,
            writers,
            seconds: self.args.seconds,
            seed: self.args.seed.wrapping_add(number as u64),
            library: if engine.is_stock() { self.stock.clone() } else { self.ours.clone() },
            database: home.join("demo.db"),
        };
        let limit = Duration::from_secs_f64(spec.seconds) + TRIAL_GRACE;
        let measured: Measured = ask(TRIAL_COMMAND, &spec, limit)?;
        self.verify(&spec, measured.acknowledged)?;
        // Only a verified result may be thrown away.
        let _ = std::fs::remove_dir_all(&home);
        self.progress.inc(1);
        Ok(measured)
    }

    /// Reads the result with the library that wrote it, then with stock SQLite.
    fn verify(&self, spec: &Spec, acknowledged: u64) -> std::result::Result<(), Trouble> {
        let mut libraries = vec![(&spec.library, "the library that wrote it")];
        if spec.library != self.stock {
            libraries.push((&self.stock, "stock SQLite"));
        }
        for (library, who) in libraries {
            let proof =
                Proof { library: library.clone(), database: spec.database.clone(), acknowledged };
            let done: std::result::Result<(), Trouble> = ask(VERIFY_COMMAND, &proof, TRIAL_GRACE);
            done.map_err(|trouble| match trouble {
                Trouble::Failed(why) | Trouble::Wrong(why) => {
                    Trouble::Wrong(format!("read with {who}: {why}"))
                }
            })?;
        }
        Ok(())
    }

    /// Says loudly what went wrong and keeps the evidence.
    fn fail(self, place: Place, writers: u32, engine: Engine, trouble: &Trouble) -> Result<u8> {
        self.progress.finish_and_clear();
        let kept = self.directory.keep();
        let (what, why) = match trouble {
            Trouble::Failed(why) => ("THE TRIAL FAILED", why),
            Trouble::Wrong(why) => ("VERIFICATION FAILED", why),
        };
        console::aside(&styled(BAD, format!("{what}: {}", title(place, writers, engine))));
        Err(Failure::new(
            why.clone(),
            format!(
                "look at the database in {}, which was kept, and remove that directory afterwards",
                kept.display()
            ),
        ))
    }
}

fn title(place: Place, writers: u32, engine: Engine) -> String {
    format!(
        "{} in {}: {}",
        of(u64::from(writers), "writer", "writers"),
        place.name(),
        engine.name()
    )
}

/// Lets a child of ours do a hidden command: a line of JSON to it, a line of JSON from it.
fn ask<Q: Serialize, A: for<'a> Deserialize<'a>>(
    command: &str,
    question: &Q,
    limit: Duration,
) -> std::result::Result<A, Trouble> {
    let fail = |e: String| Trouble::Failed(e);
    let program = std::env::current_exe().map_err(|e| fail(e.to_string()))?;
    let mut child = Command::new(program)
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| fail(format!("cannot start a process: {e}")))?;
    let question = serde_json::to_string(question).map_err(|e| fail(e.to_string()))?;
    if let Some(mut pipe) = child.stdin.take() {
        // A child that is gone is noticed below.
        let _ = writeln!(pipe, "{question}");
    }
    let status = wait_for(&mut child, limit)?;
    // The answer is short enough to have waited in the pipe.
    let answer = child.wait_with_output().map_err(|e| fail(e.to_string()))?.stdout;
    let answer: std::result::Result<A, String> = serde_json::from_slice(&answer)
        .map_err(|_| fail(format!("the process ended with {status} and without a word")))?;
    answer.map_err(Trouble::Failed)
}

fn wait_for(
    child: &mut Child,
    limit: Duration,
) -> std::result::Result<std::process::ExitStatus, Trouble> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Err(e) => return Err(Trouble::Failed(e.to_string())),
            Ok(Some(status)) => return Ok(status),
            Ok(None) if os::interrupted() || begun.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Trouble::Failed(format!(
                    "it was stopped after {}",
                    wait(begun.elapsed())
                )));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Shows the newest line, with the heads of its table where it is the first there.
fn show(finished: &[Finished]) {
    let Some((one, before)) = finished.split_last() else { return };
    if before.last().is_none_or(|f| f.place != one.place) {
        anstream::println!("\n{}", styled(HEADING, format!("Writers in {}", one.place.name())));
        anstream::println!("{}", table::head());
    }
    anstream::println!("{}", table::last(finished));
}

fn conclude(finished: &[Finished]) {
    let again: u64 = finished.iter().map(|f| f.measured.retries).sum();
    let notes = format!(
        "served: COMMIT returned. ratio: to SQLite with BEGIN IMMEDIATE and as many writers.\n\
         failed: ended with \"database is locked\". median, 99 %, worst: from BEGIN to the return of COMMIT,\n\
         of what was served. BEGIN CONCURRENT: transactions that met another one were run again, {},\n\
         within those times.",
        of(again, "time", "times")
    );
    anstream::println!("\n{}", styled(FAINT, notes));
    anstream::println!("settings, read back on every connection:");
    let mut settings: Vec<String> = finished
        .iter()
        .map(|f| format!("{}: {}", f.measured.library, f.measured.settings))
        .collect();
    settings.sort();
    settings.dedup();
    for line in settings {
        anstream::println!("  {line}");
    }
    let close = |stock: bool| {
        let those = finished.iter().filter(|f| f.engine.is_stock() == stock);
        wait(Duration::from_millis(those.map(|f| f.measured.close_ms).max().unwrap_or(0)))
    };
    anstream::println!(
        "closing the database at the end, when all is merged, took at most {} (SQLite: {})",
        close(false),
        close(true)
    );
    let commits: u64 = finished.iter().map(|f| f.measured.acknowledged).sum();
    anstream::println!(
        "{} all {} acknowledged commits are there, row counts and integrity_check are right;\n\
         each database of Plait was also read with stock SQLite after it was closed",
        styled(GOOD, "verified:"),
        count(commits)
    );
    if let Some(verdict) = verdict(finished) {
        anstream::println!("\n{}", styled(HEADING, verdict));
    }
    // As it was called: `dist/bin/plait` after `make demo`.
    let plait = std::env::args().next().unwrap_or_else(|| "plait".to_owned());
    anstream::println!(
        "next: `{plait} enable app.db` once, then `{plait} run -- YOUR-PROGRAM`.\n\
         Where SQLite with BEGIN IMMEDIATE is fast enough, that and a busy_timeout are all you need."
    );
}

/// The answer for a program that stays as it is, with the most writers in processes.
fn verdict(finished: &[Finished]) -> Option<String> {
    let most = finished.iter().filter(|f| f.place == Place::Processes).map(|f| f.writers).max()?;
    let find = |engine| {
        finished
            .iter()
            .find(|f| f.place == Place::Processes && f.writers == most && f.engine == engine)
    };
    let (stock, ours) = (find(Engine::StockDeferred)?, find(Engine::Deferred)?);
    let rate = |f: &Finished| count(f.measured.commits_per_second.round() as u64);
    Some(format!(
        "An unchanged program in {}: SQLite serves {} a second and fails {},\n\
         Plait serves {} and fails {}.",
        of(u64::from(most), "process", "processes"),
        rate(stock),
        table::percent(stock.failed_percent()),
        rate(ours),
        table::percent(ours.failed_percent())
    ))
}

/// The hidden command: this process runs one trial.
pub fn be_trial() -> std::result::Result<(), String> {
    answer(|spec: Spec| trial::run(&spec))
}

/// The hidden command: this process verifies one database.
pub fn be_verifier() -> std::result::Result<(), String> {
    answer(|proof: Proof| trial::verify(&proof))
}

fn answer<Q: for<'a> Deserialize<'a>, A: Serialize>(
    f: impl FnOnce(Q) -> std::result::Result<A, String>,
) -> std::result::Result<(), String> {
    os::die_with_parent();
    os::survive_closed_pipes();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| e.to_string())?;
    let question = serde_json::from_str(&line).map_err(|e| e.to_string())?;
    crew::say(&f(question))
}

//! A run: a plan measured with the engines and on the media that the command line chose, into results.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Args;

use crate::engines::catalogue::{self, Entry, NamedLibrary};
use crate::measure::progress::Verbosity;
use crate::measure::runner::{Rules, Run, Tracing};
use crate::measure::{interrupt, machine, preflight, process, runner};
use crate::report::page;
use crate::report::results::{Results, SCHEMA};
use crate::studies::Plan;

/// What everything that measures can be told.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Only these engines, by the names that `plait bench engines` lists
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Another library with SQLite's C interface, as name=path, or name=path?parameters to open databases under URIs
    #[arg(long = "library")]
    libraries: Vec<NamedLibrary>,
    /// Directory on a medium to be measured; can be given several times [default: the current one]
    #[arg(long = "dir")]
    directories: Vec<PathBuf>,
    /// Write the results as JSON, compressed if the name ends in .gz
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a report as one HTML file
    #[arg(long)]
    html: Option<PathBuf>,
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

/// What came of a run.
pub struct Done {
    /// The results, written where they were asked for.
    pub results: Results,
    failed: bool,
}

impl Done {
    /// 0 if everything was done, 1 if a trial failed, 130 after an interruption.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match () {
            () if self.results.interrupted => ExitCode::from(130),
            () if self.failed => ExitCode::FAILURE,
            () => ExitCode::SUCCESS,
        }
    }
}

/// Seconds in which the media are probed, all together.
const PROBE: Duration = Duration::from_secs(2);

/// Room that the largest trial of a study may need, and of its small sizes.
const NEEDED_BYTES: u64 = 2 << 30;
const NEEDED_BYTES_QUICK: u64 = 256 << 20;

impl RunArgs {
    /// The engines that were asked for, or all.
    ///
    /// # Errors
    /// If one is unknown, or a library cannot be loaded.
    pub fn chosen_engines(&self) -> anyhow::Result<Vec<Entry>> {
        let (mut entries, names) = (catalogue::all(&self.libraries)?, &self.engines);
        entries.extend(catalogue::fakes().into_iter().filter(|fake| names.contains(&fake.name)));
        if let Some(unknown) = names.iter().find(|name| !entries.iter().any(|e| e.name == **name)) {
            let known: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
            anyhow::bail!("no engine is called {unknown}; there are {}", known.join(", "));
        }
        Ok(entries.into_iter().filter(|e| names.is_empty() || names.contains(&e.name)).collect())
    }

    /// The directories that were given, or the current one, absolute: as the description of the machine names them.
    ///
    /// # Errors
    /// If one is not there.
    pub fn media(&self) -> anyhow::Result<Vec<PathBuf>> {
        let current = [PathBuf::from(".")];
        let given = if self.directories.is_empty() { &current[..] } else { &self.directories[..] };
        let absolute = |path: &PathBuf| {
            let shown = path.display();
            let what = || format!("cannot measure in {shown}; give a directory that is there");
            path.canonicalize().with_context(what)
        };
        given.iter().map(absolute).collect()
    }

    /// The same beside a database, where its links lead to, or in a directory. Without a terminal
    /// the run is silent unless it was told otherwise, so that its result stands alone.
    #[must_use]
    pub fn beside(mut self, path: Option<PathBuf>) -> Self {
        if let Some(path) = path.map(|path| path.canonicalize().unwrap_or(path)) {
            let parent = || path.parent().map(|p| PathBuf::from(".").join(p)).unwrap_or_default();
            self.directories = vec![if path.is_dir() { path } else { parent() }];
        }
        if Verbosity::fitting() != Verbosity::Bar {
            self.verbose = self.verbose.or(Some(Verbosity::None));
        }
        self
    }

    /// Measures a plan. Results are written while it goes on, so that an interruption keeps what was measured.
    ///
    /// # Errors
    /// If the media or this program cannot be used; what goes wrong in a trial is part of the results.
    pub fn measure(
        &self,
        plan: &Plan,
        engines: Vec<Entry>,
        media: &[PathBuf],
        repeats: u32,
        quick: bool,
    ) -> anyhow::Result<Done> {
        let rules = self.rules(repeats, quick)?;
        preflight::check(media, if quick { NEEDED_BYTES_QUICK } else { NEEDED_BYTES })?;
        process::adopt_orphans()?;
        interrupt::watch()?;
        let started = SystemTime::now();
        if rules.verbosity != Verbosity::None {
            let (cells, seed) = (plan.cells.len(), rules.seed);
            anstream::eprintln!("{cells} cells, measured {repeats} times each, seed {seed}");
        }
        let machine = machine::describe_and_probe(media, PROBE);
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
            engines: engines.clone(),
            proofs: run.proofs.clone(),
            cells: run.cells.clone(),
            charts: plan.charts.clone(),
        };
        let run = runner::run(plan, &engines, &rules, &mut |run| match &self.json {
            Some(path) => results(run).write(path),
            None => Ok(()),
        })?;
        let results = results(&run);
        if let Some(path) = &self.html {
            page::write(&results, path)?;
        }
        Ok(Done { results, failed: run.has_failures() })
    }

    fn rules(&self, repeats: u32, quick: bool) -> anyhow::Result<Rules> {
        let refused = "system calls were not to be counted (--no-trace)".to_owned();
        Ok(Rules {
            repeats,
            quick,
            seed: self.seed,
            limit: Duration::from_secs(self.limit),
            tracing: if self.no_trace { Tracing::Refused(refused) } else { Tracing::Wanted },
            verbosity: self.verbose.unwrap_or_else(Verbosity::fitting),
            ..Rules::new()?
        })
    }
}

//! `images`: power cuts under ext4, xfs and btrfs; see `plait_tests::powercut::mounted`. Needs root, loop devices, FUSE, and the
//! programs that make those file systems.

use anyhow::{Context as _, bail};
use clap::Parser;
use plait_tests::powercut::mounted::{Explorer, Kind, Place, run};
use plait_tests::subject::Subject;
use plait_tests::tally::Tally;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Cuts the power under real file systems at random; stops with a report at the first failure.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// For how long, on all file systems together.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File systems; all when left out.
    #[arg(long, value_delimiter = ',')]
    kinds: Option<Vec<Kind>>,
    /// A fault is planted (PLAIT_FAULT): succeed if something with this text is reported, and fail if nothing is.
    #[arg(long)]
    must_report: Option<String>,
    /// Append what was run to this file, a line of JSON for each file system.
    #[arg(long)]
    tally: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let scratch = tempfile::Builder::new().prefix("plait-images-").tempdir()?;
    let place = Place::new(scratch.path())?;
    let subject = Subject::plait();
    let kinds = arguments.kinds.unwrap_or_else(|| Kind::ALL.to_vec());
    let time = Duration::from_secs(arguments.seconds) / kinds.len() as u32;
    for kind in kinds {
        let start = Instant::now();
        let mut explorer = Explorer::new(&place, &subject, kind);
        let outcome = run(&mut explorer, arguments.seed, time);
        let found = explorer.tally;
        if let Some(text) = &arguments.must_report {
            let Err(report) = outcome else {
                bail!("{kind:?}: nothing was reported in {} states", found.states);
            };
            let report = format!("{report:#}");
            if !report.contains(text) {
                bail!("{kind:?}: something else was reported: {report}");
            }
            println!("{kind:?}: reported after {} states: {report}", found.states);
            continue;
        }
        outcome.with_context(|| format!("after {} states", found.states))?;
        let counts = vec![
            ("workloads", found.workloads),
            ("writes of blocks", found.writes),
            ("states", found.states),
        ];
        let seconds = start.elapsed().as_secs_f64();
        let tally = Tally { suite: kind.suite().to_owned(), seed: arguments.seed, seconds, counts };
        tally.tell(arguments.tally.as_deref())?;
    }
    Ok(())
}

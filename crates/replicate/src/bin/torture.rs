//! Runs of the simulated world, as many as one likes: `replicate-torture --runs 100000 --seed 1`.
//!
//! A failure prints its seed; `--seed N --runs 1` repeats it.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use plait_replicate::fault::{Fault, plant};
use plait_replicate::simulation::run::{Damage, Plan, Tally, run};

/// Runs the chain's writers, readers and stores in a simulated world
#[derive(Parser)]
struct Cli {
    /// Runs
    #[arg(long, default_value_t = 1000)]
    runs: u64,
    /// The first one's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Polls of tasks in a run
    #[arg(long, default_value_t = 2500)]
    polls: u64,
    /// In every so manieth run objects rot, and in as many they are forged; 0: in none
    #[arg(long, default_value_t = 5)]
    damage: u64,
    /// Print the records of each run
    #[arg(long)]
    show: bool,
    /// Plant a fault, which has to be found: its name
    #[arg(long)]
    fault: Option<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let fault = match &cli.fault {
        None => None,
        Some(name) => match Fault::ALL.iter().find(|fault| format!("{fault:?}") == *name) {
            Some(fault) => Some(*fault),
            None => {
                eprintln!("replicate-torture: there is no fault {name}: {:?}", Fault::ALL);
                return ExitCode::from(2);
            }
        },
    };
    plant(fault);
    let begun = Instant::now();
    let (mut tally, mut failures) = (Tally::default(), 0);
    for seed in cli.seed..cli.seed + cli.runs {
        let damage = match seed.checked_rem(cli.damage) {
            Some(0) => Damage::Rot,
            Some(1) => Damage::Forged,
            _ => Damage::None,
        };
        match run(Plan { seed, polls: cli.polls, damage, is_shown: cli.show }) {
            Ok(more) => tally.add(&more),
            Err(what) => {
                failures += 1;
                println!("seed {seed}: {what}");
                if failures >= 10 || fault.is_some() {
                    break;
                }
            }
        }
    }
    println!("{} runs in {:.1} s: {tally:?}", cli.runs, begun.elapsed().as_secs_f64());
    if failures > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

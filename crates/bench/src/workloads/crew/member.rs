//! A process that is one worker of a crew.
//!
//! It reads [`Orders`] and later [`Go`] as lines of JSON from standard input and writes [`Said`] to standard output.
//! When standard input is closed, nobody waits for it any more and it ends, whatever it is doing.

use std::io::{BufRead as _, Write as _};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::shift::{self, Times};
use super::{Shift, Tally};
use crate::engines::{Failure, Outcome};
use crate::measure::trace::mark;
use crate::measure::trial::Spec;
use crate::measure::{process, usage};
use crate::workloads::Site;

/// The hidden command that is a member.
pub const COMMAND: &str = "member";

/// What a member is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The trial it belongs to.
    pub trial: Spec,
    /// Its own part of the work.
    pub shift: Shift,
    /// Its number.
    pub index: u32,
}

/// When all begin.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Go {
    /// As the clock on the wall will stand, which all processes share.
    pub since_1970: Duration,
}

/// What a member says, a line each.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "said")]
pub enum Said {
    /// It is connected.
    Ready,
    /// It has done its part.
    Done(Box<Tally>),
    /// The engine has no such operation or setting.
    Unsupported {
        /// Which one.
        why: String,
    },
    /// It cannot go on.
    Failed {
        /// What went wrong.
        why: String,
    },
}

/// Is the member that standard input describes.
///
/// # Errors
/// If what stands there are no orders; what goes wrong with the work is said on standard output.
pub fn be_member() -> anyhow::Result<()> {
    process::die_with_parent()?;
    let orders: Orders = next_line()?;
    match follow(&orders) {
        Ok(()) => Ok(()),
        Err(Failure::Unsupported(why)) => say(&Said::Unsupported { why }),
        Err(failure) => say(&Said::Failed { why: failure.to_string() }),
    }
}

fn follow(orders: &Orders) -> Outcome<()> {
    let trial = &orders.trial;
    let engine = trial.engine.load()?;
    let site = Site {
        engine: engine.as_ref(),
        kind: Some(&trial.engine),
        settings: &trial.settings,
        directory: trial.directory.clone(),
        seed: trial.seed,
    };
    let store = engine.open(&trial.directory, &trial.settings)?;
    {
        let hire = trial.workload.hire(&site)?;
        let mut worker = hire(store.as_ref(), orders.index)?;
        say(&Said::Ready)?;
        let go: Go = next_line()?;
        end_with_standard_input();
        let times = Times::from(start(go), &orders.shift);
        std::thread::sleep(times.start.saturating_duration_since(Instant::now()));
        let alone = AtomicU64::new(0);
        let mut opened = None;
        let mut opens = || opened = Some((usage::so_far(), mark::section()));
        let (worker, shift) = (worker.as_mut(), &orders.shift);
        let mut tally = shift::work(worker, shift, orders.index, times, &alone, &mut opens)?;
        let (before, section) = opened.expect("the work was begun");
        section.end(tally.transactions());
        tally.usage = usage::between(before, usage::so_far());
        say(&Said::Done(Box::new(tally)))?;
    }
    store.close()
}

/// The given time on the clock that this process measures with.
fn start(go: Go) -> Instant {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Instant::now() + go.since_1970.saturating_sub(now)
}

fn next_line<T: for<'a> Deserialize<'a>>() -> anyhow::Result<T> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("cannot hear the trial")?;
    serde_json::from_str(&line).context("the trial said nothing that a member understands")
}

fn say(said: &Said) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(said)?).context("cannot talk to the trial")?;
    Ok(output.flush()?)
}

/// The trial closes its end when it has seen this process end, or by dying.
fn end_with_standard_input() {
    std::thread::spawn(|| {
        let mut rest = String::new();
        // However it ends, there is nobody left to work for.
        let _ = std::io::stdin().lock().read_line(&mut rest);
        std::process::exit(1);
    });
}

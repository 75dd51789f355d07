//! `plait metrics`: the numbers of databases in the text format of Prometheus.
//!
//! Databases are looked at from outside (`live`), each in a thread of its own: one that cannot be
//! looked at, or takes long, holds up no other.

mod families;
mod serve;
mod textfile;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;

use crate::failure::{self, Failure, Result, quoted};
use crate::live::{self, State};
use crate::{console, os};
use families::Measured;

/// Arguments of `plait metrics`.
#[derive(Args, Debug)]
pub struct MetricsArgs {
    /// The databases
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Serve them over HTTP at /metrics, until Ctrl-C
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "textfile")]
    listen: Option<String>,
    /// Write them into a file, whole at any time, as the textfile collector of node_exporter reads
    /// it
    #[arg(long, value_name = "PATH.prom", value_parser = textfile::path)]
    textfile: Option<PathBuf>,
    /// Write it again and again, so many seconds apart, until Ctrl-C
    #[arg(long, value_name = "SECONDS", requires = "textfile", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: Option<u64>,
}

/// Prints, serves or writes the numbers.
pub fn run(args: &MetricsArgs) -> Result<u8> {
    let meter = Meter::of(&args.files);
    match (&args.listen, &args.textfile) {
        (Some(address), _) => serve::run(address, meter)?,
        (None, Some(path)) => write(&meter, path, args.interval.map(Duration::from_secs))?,
        (None, None) => anstream::print!("{}", meter.text()),
    }
    Ok(failure::OK)
}

fn write(meter: &Meter, path: &Path, interval: Option<Duration>) -> Result<()> {
    // The file is what was asked for: nobody may read what is said beside it.
    os::survive_closed_pipes();
    textfile::write(path, &meter.text())?;
    let Some(interval) = interval else { return Ok(()) };
    os::note_interrupts();
    let mut was_written = true;
    loop {
        let due = Instant::now() + interval;
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if os::interrupted() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        // A disk that is full for a moment ends no monitoring.
        let written = textfile::write(path, &meter.text());
        match &written {
            Err(e) if was_written => console::warn(&e.what, &e.advice),
            Ok(()) if !was_written => {
                console::note(&format!("{} is written again", path.display()));
            }
            _ => {}
        }
        was_written = written.is_ok();
    }
}

/// Looks at databases, and says on standard error when one can be measured no longer, or again.
struct Meter {
    files: Vec<PathBuf>,
    /// Why each of those that are not up is not.
    down: Mutex<BTreeMap<PathBuf, String>>,
}

impl Meter {
    /// Each file once: two series of one name would make the whole text invalid.
    fn of(files: &[PathBuf]) -> Meter {
        let mut unique: Vec<PathBuf> = Vec::new();
        for file in files {
            let is_known = |known: &PathBuf| known.to_string_lossy() == file.to_string_lossy();
            if !unique.iter().any(is_known) {
                unique.push(file.clone());
            }
        }
        Meter { files: unique, down: Mutex::default() }
    }

    /// Looks at all of them.
    fn text(&self) -> String {
        let looks: Vec<_> = std::thread::scope(|scope| {
            let looks: Vec<_> =
                self.files.iter().map(|file| scope.spawn(|| measure(file))).collect();
            looks.into_iter().map(|look| look.join().unwrap_or_else(|_| Err(internal()))).collect()
        });
        let mut measured = Vec::new();
        for (file, look) in self.files.iter().zip(looks) {
            self.note(file, look.as_ref().err());
            measured.push((file.to_string_lossy().into_owned(), look.ok()));
        }
        families::text(&measured)
    }

    /// Tells of a change.
    fn note(&self, file: &Path, why: Option<&String>) {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => {
                if down.insert(file.to_owned(), why.clone()).as_ref() != Some(why) {
                    console::note(&format!("{} is not up: {why}", file.display()));
                }
            }
            None => {
                if down.remove(file).is_some() {
                    console::note(&format!("{} is up again", file.display()));
                }
            }
        }
    }
}

/// What there is to be said of a database, or why there is nothing.
fn measure(file: &Path) -> std::result::Result<Measured, String> {
    let one_line = |e: Failure| match e.advice.as_str() {
        "" => e.what,
        advice => format!("{}; {advice}", e.what),
    };
    let look = live::look(file).map_err(one_line)?;
    let wal_bytes = look.wal_bytes;
    match look.state {
        State::Session(session) => Ok(Measured::Session(session)),
        State::Rest(_) => Ok(Measured::Rest { wal_bytes }),
        State::Left(_) => Ok(Measured::Left { wal_bytes }),
        State::Unusable(why) => Err(why),
    }
    .map_err(|why| match why.contains("`plait ") {
        true => why,
        false => format!("{why}; `plait doctor {}` tells more", quoted(file)),
    })
}

fn internal() -> String {
    "the look at it ended in an internal error, which is told above; please report it".to_owned()
}

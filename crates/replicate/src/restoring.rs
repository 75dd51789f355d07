//! `plait-replicate restore`: a database out of a replica.

use std::any::Any;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::TryFutureExt as _;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use plait_replicate::apply::Progress;
use plait_replicate::error::{Error, printable};
use plait_replicate::ids::{CommitTs, RecordNumber};
use plait_replicate::new_file::NewFile;
use plait_replicate::notes::note;
use plait_replicate::restore::{Restored, Stop, restore};
use plait_replicate::store::objects::{self, Missing};
use plait_replicate::world::{Patience, Random as _};
use plait_replicate::{dates, library};

use crate::displace;
use crate::real::{self, Chance};

/// Arguments of `plait-replicate restore`.
#[derive(clap::Args)]
pub struct RestoreArgs {
    /// A folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX
    url: String,
    /// The database that is made
    #[arg(short, long = "output", value_name = "FILE")]
    output: PathBuf,
    /// As it was at the end of this second or minute: 2026-11-28 12:00:05, which is UTC, or
    /// 2026-11-28T12:00:05+01:00
    #[arg(long, value_name = "TIME", value_parser = dates::parse, group = "moment")]
    at: Option<u64>,
    /// Through this commit of the newest session
    #[arg(long, value_name = "COMMIT", group = "moment")]
    commit: Option<u64>,
    /// Through this record
    #[arg(long, value_name = "RECORD", group = "moment")]
    record: Option<u64>,
    /// Check the database (PRAGMA integrity_check) before it gets its name; done in any case if the
    /// primary had another library
    #[arg(long)]
    verify: bool,
    /// Put what stands there aside, as `plait restore` does
    #[arg(long)]
    force: bool,
}

impl RestoreArgs {
    fn stop(&self) -> Stop {
        let record = self.record.map(|number| Stop::Record(RecordNumber(number)));
        let commit = self.commit.map(|commit| Stop::Commit(CommitTs(commit)));
        self.at.map(Stop::Time).or(commit).or(record).unwrap_or(Stop::Newest)
    }
}

/// From one line to the next where nobody sees a bar.
const LINES_EVERY: Duration = Duration::from_secs(1);

/// How far a restore is: a bar at a terminal, and a line a second elsewhere, as in the log of a service.
struct Shown {
    bar: ProgressBar,
    next_line: Option<Instant>,
}

impl Shown {
    fn new(bar: ProgressBar, now: Instant) -> Shown {
        let next_line = bar.is_hidden().then_some(now + LINES_EVERY);
        Shown { bar, next_line }
    }

    /// The line that is due, if one is.
    fn line(&mut self, progress: &Progress, now: Instant) -> Option<String> {
        self.next_line.filter(|next| *next <= now)?;
        self.next_line = Some(now + LINES_EVERY);
        let Progress { done_bytes, all_bytes, record, last_record } = *progress;
        Some(match record {
            RecordNumber::NONE => {
                format!("snapshot: {} of {}", HumanBytes(done_bytes), HumanBytes(all_bytes))
            }
            _ => format!("records: {record} of {last_record}"),
        })
    }
}

/// Restores, and says what.
pub fn run(args: &RestoreArgs) -> Result<(), String> {
    let mut shown = Shown::new(ProgressBar::new(0), Instant::now());
    let done = run_with(args, &mut shown);
    // An error stands on a line of its own.
    shown.bar.finish_and_clear();
    done
}

fn run_with(args: &RestoreArgs, progress: &mut Shown) -> Result<(), String> {
    let shown = args.output.display();
    let world = real::world(objects::open(&args.url, Missing::Refuse)?, Patience::Tries(6));
    if let Some(at) = args.at
        && at > world.clock().wall_ms()
    {
        return Err(format!(
            "{} is not over yet: leave --at out to restore the newest moment",
            dates::utc(at)
        ));
    }
    let mark = plait_engine::storage::names::follows_path(&args.output);
    if std::fs::symlink_metadata(&mark).is_ok() && !args.force {
        return Err(format!(
            "{} lies there, which says that {shown} follows a primary: choose another name, or remove it",
            mark.display()
        ));
    }
    let opener = library::opener().ok_or("SQLite cannot begin: out of memory")?;
    if args.force {
        displace::refuse_early(&args.output)?;
    }
    let beside = if args.force { displace::beside(&args.output) } else { args.output.clone() };
    let file = NewFile::begin(&beside, opener, Chance.number() as u32)
        .map_err(|error| cannot_begin(args, &error))?;
    let bar = progress.bar.clone();
    let progress = &mut |at: Progress| {
        show(&progress.bar, &at);
        if let Some(line) = progress.line(&at, Instant::now()) {
            note(&line);
        }
    };
    let versions = library::versions();
    let restoring = restore(&world, Box::new(file), args.stop(), &versions, progress);
    let (restored, target) = real::block_on(restoring.map_err(|error| made_in(&beside, error)))?;
    let target: Box<dyn Any> = target;
    let Ok(mut file) = target.downcast::<NewFile>() else {
        return Err("the restore has returned another target".to_owned());
    };
    let is_undecided = file.is_undecided();
    bar.set_style(style("  {msg} {spinner} {elapsed}"));
    bar.enable_steady_tick(Duration::from_millis(100));
    let begins = |phase: &'static str| {
        if bar.is_hidden() {
            note(phase);
        }
        bar.set_message(phase);
    };
    begins("merging the rest");
    let failed = |what: &str, why: &dyn std::fmt::Display| format!("cannot {what} {shown}: {why}");
    file.settle().map_err(|error| failed("complete", &error))?;
    // Where a merge could not be compared, nothing else tells damage.
    let verifies = args.verify || restored.differs;
    if verifies {
        begins("checking (PRAGMA integrity_check)");
        file.verify().map_err(|error| failed("restore", &error))?;
    }
    let bytes = file.len_bytes().unwrap_or(0);
    begins("moving it into place");
    if args.force {
        displace::put(file.keep(), &args.output)?;
    } else {
        file.publish().map_err(|error| cannot_begin(args, &error))?;
    }
    bar.finish_and_clear();
    let mut text = told(args, &restored, bytes, is_undecided);
    let age =
        Duration::from_millis(world.clock().wall_ms().saturating_sub(restored.header.written_ms));
    text += &format!("record {} was written {} ago\n", restored.record, HumanDuration(age));
    text += &format!("{}\n", printable(&what_next(args)));
    // The database is what was asked for, whoever reads this.
    let _ = stdout().lock().write_all(text.as_bytes());
    Ok(())
}

/// An error with the disk that the database needs.
fn made_in(beside: &Path, error: Error) -> Error {
    let folder = beside.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match error {
        Error::Target { number, why, is_full } => {
            let why = format!("{why} (it is made in {})", folder.display());
            Error::Target { number, why, is_full }
        }
        other => other,
    }
}

/// How the chain goes on from what was restored.
fn what_next(args: &RestoreArgs) -> String {
    let output = args.output.to_string_lossy();
    let word = |text: &str| shlex::try_quote(text).map_or_else(|_| text.to_owned(), Into::into);
    format!(
        "if it is to be the new primary, start once: plait replicate {} {} --take-over",
        word(&args.url),
        word(&output)
    )
}

fn cannot_begin(args: &RestoreArgs, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        std::io::ErrorKind::AlreadyExists if args.force => {
            ", where --force makes the database first: one that an earlier restore has kept? put it in \
             place with plait restore, or move it away"
        }
        std::io::ErrorKind::AlreadyExists => {
            "; choose another name, or give --force, which puts what stands there aside"
        }
        std::io::ErrorKind::NotFound => "; make the folder first",
        _ => "",
    };
    format!("cannot restore to {}: {error}{advice}", args.output.display())
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a valid template")
}

/// Pages of the snapshot in bytes, then records.
fn show(bar: &ProgressBar, progress: &Progress) {
    let Progress { done_bytes, all_bytes, record, last_record } = *progress;
    let (doing, template, at, all) = match record {
        RecordNumber::NONE => {
            ("snapshot", "  {msg} {bar:30} {bytes}/{total_bytes} {eta}", done_bytes, all_bytes)
        }
        _ => ("records", "  {msg} {bar:30} {pos}/{len} {eta}", record.0, last_record.0),
    };
    if bar.message() != doing {
        bar.set_style(style(template));
        bar.set_message(doing);
    }
    bar.set_length(all);
    bar.set_position(at);
}

fn told(args: &RestoreArgs, restored: &Restored, bytes: u64, is_undecided: bool) -> String {
    let Restored { record, header, position, snapshot, .. } = restored;
    let commit = match position.commit {
        CommitTs(0) => "no commit behind the snapshot".to_owned(),
        commit => format!("commit {commit}"),
    };
    let verified = if args.verify || restored.differs { ", checked" } else { "" };
    let mut text = format!(
        "{}: restored through record {record} ({}), {commit}; from the snapshot in record \
         {snapshot}; {}{verified}\n",
        args.output.display(),
        dates::utc(header.written_ms),
        HumanBytes(bytes)
    );
    if let Some(number) = restored.clock_set_back {
        text += &format!(
            "the primary's clock was set back at record {number}, or before: times before and after that overlap, and this \
             may be another moment than was meant; if so, use --record\n"
        );
    }
    if restored.clock_set_back.is_none()
        && let Some((number, written_ms)) = restored.much_later
    {
        text += &format!(
            "record {number}, the next one, was written more than a day later ({}): if programs were at work in between, \
             the primary's clock was wrong there, and --record finds later moments\n",
            dates::utc(written_ms)
        );
    }
    if restored.differs {
        text += "the primary had another library, which writes other pages: they could not be compared \
             with its own, so the database was checked (PRAGMA integrity_check)\n";
    }
    if is_undecided {
        text += "the last commit was one over several files, which was not decided at this moment: it \
             is left out\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use indicatif::ProgressDrawTarget;

    use super::*;

    #[test]
    fn a_line_a_second_says_how_far_it_is_where_nobody_sees_a_bar() {
        let begun = Instant::now();
        let hidden = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let mut shown = Shown::new(hidden, begun);
        let pages = Progress { done_bytes: 1 << 20, all_bytes: 3 << 20, ..Progress::default() };
        let (record, last_record) = (RecordNumber(7), RecordNumber(9));
        let records = Progress { record, last_record, ..Progress::default() };
        let mut at = |ms: u64, progress| shown.line(progress, begun + Duration::from_millis(ms));
        assert_eq!(at(999, &pages), None);
        assert_eq!(at(1000, &pages).as_deref(), Some("snapshot: 1.00 MiB of 3.00 MiB"));
        assert_eq!(at(1999, &records), None);
        assert_eq!(at(2000, &records).as_deref(), Some("records: 7 of 9"));
        let seen = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if !seen.is_hidden() {
            let mut shown = Shown::new(seen, begun);
            assert_eq!(shown.line(&pages, begun + LINES_EVERY), None, "the bar says it");
        }
    }
}

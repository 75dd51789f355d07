//! The program `plait-replicate`: what a replica needs of the network, in a process of its own.
//!
//! It is apart from the command `plait`, which would be twice as large with a TLS library and an
//! HTTP client in it.

#![deny(unsafe_code, clippy::print_stderr)]

mod displace;
mod follow;
mod living;
mod made;
mod memory;
mod pages;
mod quantities;
mod real;
mod restoring;
mod run;
mod said;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use indicatif::HumanBytes;
use plait_replicate::dates;
use plait_replicate::error::{Error, printable};
use plait_replicate::measure::measure;
use plait_replicate::notes::note;
use plait_replicate::probe::{self, ROUNDS, Verdict};
use plait_replicate::replicas::Replicas;
use plait_replicate::store::objects::{self, Missing, Objects};
use plait_replicate::store::url::Place;
use plait_replicate::world::Patience;

use crate::made::Made;

/// Replicas of databases in folders and object stores
#[derive(Parser)]
#[command(name = "plait-replicate", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Subcommand)]
enum Commands {
    /// Find out by a race whether a store is fit for a replica
    #[command(long_about = "\
Find out by a race whether a store is fit for a replica: sixteen callers create one object, again and again, and one of \
them may have made it. What the probe makes it deletes.

Exit codes: 0 it is fit, 1 it is not, or does not answer, 2 wrong usage.")]
    Probe {
        /// A folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX
        url: String,
        /// Say as well how long records take: 200 of 4 KiB, 16 of 4 MiB
        #[arg(long)]
        measure: bool,
        /// Races
        #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
    },
    /// List what can be restored from a place
    #[command(long_about = "\
List what can be restored from a place: snapshots, from when to when, size, and the requests that it has cost so far.

Exit codes: 0 it was looked at, 1 it could not be, or there is nothing, 2 wrong usage.")]
    Replicas {
        /// A folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX
        url: String,
    },
    /// Make a database out of a replica
    #[command(long_about = "\
Make a database out of a replica: as it was at the newest moment that was shipped, or at an earlier one. Nothing stands under \
its name before it is whole and on disk.

Exit codes: 0 it is there, whatever became of the output, 1 it is not, 2 wrong usage.")]
    Restore(restoring::RestoreArgs),
    /// Ship a living database to a place, until told to end
    #[command(long_about = "\
Ship a living database to a place, until told to end: all that is committed, about a second behind. Commits never wait \
for it. SIGTERM ships the rest and ends it.

Exit codes: 0 told to end, or the database was deleted, was moved away or has left the mode; 1 start it again; 2 wrong usage; \
3 another sidecar has taken over: do not start it again.")]
    Run(run::RunArgs),
    /// Keep a database as a replica has it, for programs that read it, until told to end
    #[command(long_about = "\
Keep a database as a replica has it, about a second behind, until told to end. Programs read it as any database, also \
while this does not run; whoever writes it gets SQLITE_READONLY.

Exit codes: 0 told to end, 1 start it again, 2 wrong usage, or a replica of another database.")]
    Follow(follow::FollowArgs),
    #[command(name = pages::COMMAND, hide = true)]
    WritePages { folder: PathBuf },
}

fn main() -> ExitCode {
    memory::share_heaps();
    let command = Cli::parse().command;
    // A restore is over soon, and takes a quarter less time with memory that it had before.
    if matches!(command, Commands::Run(_) | Commands::Follow(_)) {
        memory::give_back_at_once();
    }
    let done = match command {
        Commands::Probe { url, measure, rounds } => probe(&url, measure, rounds),
        Commands::Replicas { url } => replicas(&url),
        Commands::Restore(args) => restoring::run(&args),
        Commands::Run(args) => return ExitCode::from(run::run(&args)),
        Commands::Follow(args) => return ExitCode::from(follow::run(&args)),
        Commands::WritePages { folder } => pages::write(Cli::command(), &folder),
    };
    match done {
        Ok(()) if said::is_unread() => ExitCode::from(said::UNREAD),
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            note(&format!("plait-replicate: {}", printable(&text)));
            ExitCode::FAILURE
        }
    }
}

fn probe(url: &str, measures: bool, rounds: u32) -> Result<(), String> {
    let _made = match Place::parse(url)?.folder() {
        Some(folder) => {
            Made::all_of(&folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?
        }
        None => Made::default(),
    };
    let store = objects::open(url, Missing::Refuse)?;
    // One runtime for all: connections belong to it.
    real::block_on(async { Ok(race(store, measures, rounds).await) })?
}

async fn race(store: Objects, measures: bool, rounds: u32) -> Result<(), String> {
    let in_words = |error: Error| error.to_string();
    let verdict = probe::probe(&store, &real::Chance, rounds).await.map_err(in_words)?;
    let Verdict { rounds, without_winner, winners_max, .. } = &verdict;
    said::say(&format!(
        "{rounds} races of {} callers; most winners in one: {winners_max}; without a winner: \
         {without_winner}\n",
        probe::RACERS
    ))?;
    verdict.check().map_err(in_words)?;
    said::say("fit for replicas: one caller at a time can create an object of a name\n")?;
    if let Some(why) = &verdict.refusal {
        said::say(&format!("nothing is ever deleted there: {}\n", printable(&why.to_string())))?;
    }
    if measures {
        let world = real::world(store, Patience::Tries(6));
        for (bytes, count) in [(4 << 10, 200), (4 << 20, 16)] {
            let measured = measure(&world, bytes, count).await.map_err(in_words)?;
            said::say(&format!(
                "records of {}: {:.2} ms (half of them), {:.2} ms (99 of 100), {:.0} a second, \
                 {:.1} MB/s\n",
                HumanBytes(bytes as u64),
                measured.median.as_secs_f64() * 1e3,
                measured.p99.as_secs_f64() * 1e3,
                measured.per_second(),
                measured.megabytes_per_second()
            ))?;
        }
    }
    Ok(())
}

fn replicas(url: &str) -> Result<(), String> {
    let store = objects::open(url, Missing::Refuse)?;
    let world = real::world(store, Patience::Tries(6));
    let found = real::block_on(Replicas::look(&world))?;
    said::say(&printable(&shown(&found)))
}

fn shown(found: &Replicas) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let tip = &found.tip;
    let writer = found.writer.as_ref();
    let host = writer.map_or("unknown", |open| &*open.host);
    let library = writer.map_or("unknown", |open| &*open.library);
    let newest = dates::utc(tip.written_ms);
    let _ = writeln!(text, "chain {}, written by {host} ({library})", found.chain);
    let _ =
        writeln!(text, "newest: record {}, {newest}, commit {}", tip.number, tip.position.commit);
    text += &spans(found);
    for snapshot in &found.snapshots {
        let kind = if snapshot.is_whole { "all pages" } else { "changed pages" };
        let lacks = match snapshot.missing_parts {
            0 => String::new(),
            missing => format!("; parts missing: {missing} of {}", snapshot.parts),
        };
        let lacks = match snapshot.lacks {
            Some(of) => format!(
                "{lacks}; of no use, because it changes the snapshot in record {of}, which is lost"
            ),
            None => lacks,
        };
        let _ = writeln!(
            text,
            "  snapshot {}: record {}, {}, {kind}, {} of a database of {}{lacks}",
            snapshot.record,
            snapshot.as_of,
            dates::utc(snapshot.taken_ms),
            HumanBytes(snapshot.stored_bytes),
            HumanBytes(snapshot.database_bytes)
        );
    }
    text += &lost(found);
    if tip.broken > plait_replicate::ids::RecordNumber::FIRST {
        let _ = writeln!(
            text,
            "newest break: record {}, where a new session of the database, a change of its schema or the like came between: \
             only a snapshot behind it leads on from there",
            tip.broken
        );
    }
    let _ = writeln!(
        text,
        "objects: {} packs, {} records beside them; at least {} requests that are billed as writes",
        found.packs,
        found.loose,
        found.writes()
    );
    text
}

/// What can be restored: one line, or one for each stretch.
fn spans(found: &Replicas) -> String {
    let tip = &found.tip;
    let is_begun = tip.snapshot > plait_replicate::ids::RecordNumber::NONE;
    if found.spans.is_empty() {
        return match is_begun {
            true => "nothing can be restored: what each snapshot needs is missing or damaged, as said below\n".to_owned(),
            false => {
                "nothing can be restored yet: the first snapshot is not complete\n".to_owned()
            }
        };
    }
    let mut text = String::new();
    for span in &found.spans {
        let from = dates::utc(span.from_ms);
        let to_ms = dates::utc(span.to_ms);
        let to = match span.to {
            to if to == tip.number && found.damaged.is_none() => "to the newest".to_owned(),
            to if Some(span) == found.spans.last()
                && to == tip.broken.before()
                && !found.needs_take_over =>
            {
                format!("to record {to} ({to_ms}); what comes behind it waits for a snapshot")
            }
            to => format!("to record {to} ({to_ms})"),
        };
        text += &format!("can be restored: from record {} ({from}) {to}\n", span.from);
    }
    text
}

/// What is missing or damaged at the place.
fn lost(found: &Replicas) -> String {
    const REMOVED: &str = "removed by a rule of the bucket, or by hand";
    let mut text = String::new();
    if let Some(error) = &found.damaged {
        text += &format!("the end of the chain cannot be read: {}\n", error.what());
    }
    for error in &found.unread {
        text += &format!("a snapshot is lost: {}\n", error.what());
    }
    for seam in &found.seams {
        text += &format!(
            "records of two histories are here, as where a backup was copied into the place: record {seam} does not follow record \
             {}, and nothing leads over that\n",
            seam.before()
        );
    }
    for (first, last) in &found.missing {
        text += &match first == last {
            true => format!("record {first} is missing, {REMOVED}: nothing leads over it\n"),
            false => format!(
                "records {first} to {last} are missing, {REMOVED}: nothing leads over them\n"
            ),
        };
    }
    for ((first, last), why) in &found.withheld {
        text += &format!(
            "records {first} to {last} cannot be read: {why}: nothing leads over them until they can be\n"
        );
    }
    if found.snapshots.iter().any(|snapshot| snapshot.missing_parts > 0) {
        text += &format!(
            "parts of snapshots are missing, {REMOVED}, or of the oldest ones by retention: nothing can be restored from those \
             snapshots, nor from those that have changed pages of them\n"
        );
    }
    if !text.is_empty() && !found.is_newest_restorable() {
        let is_refused = found.damaged.as_ref().is_some_and(Error::is_refusal);
        text += match found.needs_take_over {
            _ if is_refused => {
                "have the store give the newest record, which nothing leads over: take it out of its archive, or give the keys the \
                 right to read it\n"
            }
            true => {
                "bring back what was there; else end the sidecar, if it runs, and start it once with --take-over, which takes \
                 a snapshot at once: nothing tells from which database the newest record is\n"
            }
            false => {
                "bring back what was removed; else a snapshot of later is waited for, and a new start of the sidecar takes \
                 one at once\n"
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use plait_replicate::ids::{ChainId, RecordNumber};
    use plait_replicate::record::Header;
    use plait_replicate::replicas::Span;

    use super::*;

    #[test]
    fn what_is_waited_for_and_what_a_start_needs_is_told() {
        let number = RecordNumber;
        let span = |from, to| Span { from: number(from), from_ms: 1, to: number(to), to_ms: 2 };
        let (snapshot, broken) = (number(23), number(20));
        let tip = Header { number: number(30), snapshot, broken, ..Header::default() };
        let mut found = Replicas {
            chain: ChainId::default(),
            tip,
            damaged: None,
            needs_take_over: false,
            writer: None,
            snapshots: Vec::new(),
            unread: Vec::new(),
            spans: vec![span(1, 19), span(22, 30)],
            seams: Vec::new(),
            missing: Vec::new(),
            withheld: Vec::new(),
            packs: 0,
            loose: 0,
        };
        assert!(!spans(&found).contains("waits for a snapshot"), "{}", spans(&found));
        found.spans.pop();
        assert!(spans(&found).contains("to record 19 (") && spans(&found).contains("waits"));
        let name = "chain/000000000000/0000000000000031".to_owned();
        let why = "it has another number";
        found.damaged = Some(Error::Unlinked { number: number(31), name, why });
        for needs_take_over in [false, true] {
            found.needs_take_over = needs_take_over;
            assert_eq!(lost(&found).contains("--take-over"), needs_take_over, "{}", lost(&found));
        }
    }
}

//! `plait status`: what goes on in a database right now.
//!
//! A database that nobody has open is only looked at from outside. One that is in use is joined for the moment of
//! the question, like any reader; with `--watch` it is joined anew each time, so that watching keeps
//! nothing open.

pub mod render;
mod replication;
mod session;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value as Json, json};

use crate::failure::{self, Result};
use crate::follows::Replica;
use crate::inspect::outlook::Outlook;
use crate::inspect::{Inspection, SIDE_FILES, beside, openers};
use crate::os;
use crate::sqlite;
use session::Session;

/// Arguments of `plait status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The database
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Show it again and again, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", requires = "watch", value_parser = interval)]
    interval: f64,
    /// One JSON object per look
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("give a number of seconds between 0.05 and 86400".to_owned()),
    }
}

/// One look at a database.
pub struct Look {
    /// From outside.
    pub outside: Inspection,
    /// From inside, when somebody has it open.
    pub session: Option<Session>,
    /// Processes that have it open by any SQLite, as far as the kernel tells; but for members of its session.
    pub openers: Vec<u32>,
    /// What is known of it if it is a replica.
    pub replica: Option<Replica>,
    /// When.
    pub at: Instant,
}

/// Shows the status.
pub fn run(args: &StatusArgs) -> Result<u8> {
    let mut last = match (look(&args.file), Replica::awaited(&args.file)) {
        (Err(_), Some(replica)) if !args.watch => {
            show_awaited(args, &replica);
            return Ok(failure::OK);
        }
        (looked, _) => looked?,
    };
    if !args.watch {
        show(args, &last, None);
        return Ok(failure::OK);
    }
    os::note_interrupts();
    let redraw = std::io::stdout().is_terminal() && !args.json;
    let mut before: Option<Look> = None;
    loop {
        if redraw {
            // Home, and erase what is below: no flicker.
            anstream::print!("\x1b[H\x1b[J");
        }
        show(args, &last, before.as_ref());
        let due = Instant::now() + Duration::from_secs_f64(args.interval);
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if os::interrupted() {
                return Ok(failure::OK);
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        before = Some(last);
        last = look(&args.file)?;
    }
}

fn look(file: &Path) -> Result<Look> {
    let outside = Inspection::as_it_moves(file)?;
    let session = match outside.outlook() {
        Outlook::Joins(_) if outside.is_settled => {
            Some(Session::read(&outside.path).map_err(|e| sqlite::failure(&e, "ask", file))?)
        }
        _ => None,
    };
    let mut openers = openers_of(&outside.path);
    if session.is_some() {
        openers.retain(|pid| !outside.alive().contains(pid));
    }
    let replica = Replica::of(&outside.path, outside.header);
    Ok(Look { outside, session, openers, replica, at: Instant::now() })
}

/// Processes that have the database at `path`, or a file beside it, open by any SQLite.
pub fn openers_of(path: &Path) -> Vec<u32> {
    let files = [""].into_iter().chain(SIDE_FILES).map(|suffix| beside(path, suffix));
    openers::of(&files.filter_map(|file| openers::identity(&file)).collect::<Vec<_>>()).pids
}

fn show(args: &StatusArgs, look: &Look, before: Option<&Look>) {
    if args.json {
        anstream::println!("{}", as_json(&args.file, look));
    } else {
        anstream::println!("{}", render::text(&args.file, look, before));
    }
}

/// Shows a replica whose follower has nothing to show yet.
fn show_awaited(args: &StatusArgs, replica: &Replica) {
    if args.json {
        let file = args.file.to_string_lossy();
        anstream::println!("{}", json!({ "file": file, "replica": replica.as_json() }));
    } else {
        anstream::println!("{}", render::awaited(&args.file, replica));
    }
}

fn as_json(file: &Path, look: &Look) -> Json {
    let header = look.outside.header;
    let mut out = json!({
        "file": file.to_string_lossy(),
        "mode": header.mode(),
        "fenced": header.is_fenced(),
        "in_use": look.outside.is_in_use() || look.outside.lone.is_open || !look.openers.is_empty(),
        "processes": look.outside.alive().iter().map(|&pid| (pid != 0).then_some(pid)).collect::<Vec<_>>(),
    });
    out["openers"] = json!(look.openers);
    if look.session.is_none() {
        out["writer"] = json!(look.outside.lone.writer);
        out["wal_commits"] = json!(look.outside.wal_commits());
    }
    if let Some(replica) = &look.replica {
        out["replica"] = replica.as_json();
    }
    if let Some(size) = look.outside.prepared_pages_bytes {
        out["prepared_pages_bytes"] = json!(size);
    }
    if !look.outside.put_aside.is_empty() {
        let logs = look.outside.put_aside.iter();
        out["put_aside"] = logs.map(|log| json!(log.to_string_lossy())).collect();
    }
    if let Some(session) = &look.session {
        out["status"] =
            session.status.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        for (name, text) in &session.texts {
            out["status"][name] = json!(text);
        }
        out["transactions"] = session.transactions.as_json();
        out["conflicts"] = session.conflicts.as_json();
    }
    out
}

/// Processes by number and name: `process 12 (python3)`.
pub fn people(pids: &[u32]) -> String {
    const SHOWN: usize = 4;
    if pids.is_empty() {
        return "other programs".to_owned();
    }
    let mut names: Vec<String> = pids.iter().take(SHOWN).map(|&pid| person(pid)).collect();
    if pids.len() > SHOWN {
        names.push(format!("{} more", pids.len() - SHOWN));
    }
    let word = if pids.len() == 1 { "process" } else { "processes" };
    format!("{word} {}", names.join(", "))
}

/// Stands for a process of another pid namespace, whose number means somebody else here.
pub const ELSEWHERE: u32 = 0;

/// A process by number and name: `12 (python3)`.
pub fn person(pid: u32) -> String {
    if pid == ELSEWHERE {
        return "of another pid namespace".to_owned();
    }
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{pid} ({})", name.trim_end()),
        Err(_) => pid.to_string(),
    }
}

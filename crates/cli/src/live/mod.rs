//! What goes on in a database, read without joining its session: for commands that look again and
//! again.
//!
//! `plait status` asks the session as a member for a moment. A member takes part: a last close
//! beside it waits for it, or is its own, and an exclusive transaction waits for its snapshot. Here
//! the fixed part of shared memory is copied by plain reads instead.
//!
//! - LIVE-1 Whoever looks makes, changes, maps and locks nothing, and has no file open when the
//!   look is over.
//! - LIVE-2 Each number is of one moment, and two numbers may be of two. So none is computed by a
//!   subtraction that could be negative.
//!
//! The time of a look at a session does not depend on the size of database, WAL or log. Where no
//! session is, the files are looked at as the other commands do (`inspect`): that is where damage
//! is told.

mod counts;
mod transactions;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use plait_engine::database::{log_path, shm_path};
use plait_engine::memtable::Memtable;
use plait_engine::shm::layout::{
    Layout, PROCESS_LOCK_BASE, PROCESS_SLOTS, TOTAL_BYTES, arena_bytes, arena_offset,
};
use plait_engine::shm::locks;
use plait_engine::storage::side;

use crate::failure::Result;
use crate::inspect::Inspection;
use crate::inspect::base::BaseFile;
use crate::inspect::memory::{self, Copied};
use crate::inspect::moment::PAUSE;
use crate::inspect::outlook::Outlook;
use crate::status::{openers_of, render};
pub use counts::{Counts, Kinds, Sizes};
pub use transactions::{Doing, Transaction, Who};

/// Looks at a session that begins or ends right now, before the files are looked at.
const LOOKS: u32 = 4;

/// One look at a database.
#[derive(Clone, Debug)]
pub struct Look {
    /// When.
    pub at: Instant,
    /// What was seen.
    pub state: State,
    /// Size of the WAL, where there is no session.
    pub wal_bytes: u64,
}

/// The state of a database.
#[derive(Clone, Debug)]
pub enum State {
    /// Processes use it together.
    Session(Box<Session>),
    /// No session is there, as this says.
    Rest(String),
    /// Killed processes have left what the next one to open it has to bring in, as this says.
    Left(String),
    /// It is in another mode, or cannot be opened, as this says.
    Unusable(String),
}

/// A session at one moment.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// What tells it from the sessions before and after it.
    pub identity: (u64, u32),
    /// Its living members.
    pub processes: Vec<Who>,
    /// What it has counted since it began.
    pub counts: Counts,
    /// How large things are.
    pub sizes: Sizes,
    /// The recent conflicts by what had been read.
    pub kinds: Kinds,
    /// Transactions in progress.
    pub transactions: Vec<Transaction>,
    /// The holder of the writer's right.
    pub writer: Option<Who>,
    /// Whoever merges or runs alone.
    pub merger: Option<Who>,
    /// The oldest snapshot that keeps memory, and its age in milliseconds.
    pub oldest_reader: Option<(Who, u64)>,
}

/// Looks at the database that the user calls `shown`.
pub fn look(shown: &Path) -> Result<Look> {
    for _ in 0..LOOKS {
        match Session::read(shown) {
            Ok(Seen::Session(session)) => {
                let state = State::Session(session);
                return Ok(Look { at: Instant::now(), state, wal_bytes: 0 });
            }
            Ok(Seen::Moving) => std::thread::sleep(PAUSE),
            // What the files are, and why one cannot be read, is told better from all of them.
            Ok(Seen::Nobody) | Err(_) => break,
        }
    }
    let seen = Inspection::as_it_moves(shown)?;
    let wal_bytes = seen.wal.as_ref().map_or(0, |wal| wal.bytes);
    Ok(Look { at: Instant::now(), state: without_session(shown, &seen), wal_bytes })
}

fn without_session(shown: &Path, seen: &Inspection) -> State {
    let openers = openers_of(&seen.path);
    let said = anstream::adapter::strip_str(&render::at_rest(shown, seen, &openers)).to_string();
    if seen.lost_by_opening().is_some() {
        return State::Unusable(said);
    }
    if seen.header.is_concurrent() && !seen.is_settled {
        return State::Rest(said);
    }
    if render::is_left_in_wal(seen, &openers) {
        return State::Left(said);
    }
    match seen.outlook() {
        Outlook::Starts { .. } | Outlook::SetsAside { .. } | Outlook::Joins(_) => State::Rest(said),
        Outlook::Recovers { .. } | Outlook::GoesOn | Outlook::Restores(_) => State::Left(said),
        Outlook::Ordinary | Outlook::Mixes { .. } | Outlook::Refuses { .. } => {
            State::Unusable(said)
        }
    }
}

enum Seen {
    Session(Box<Session>),
    /// Processes have it, and no session can be read.
    Moving,
    Nobody,
}

impl Session {
    fn read(shown: &Path) -> io::Result<Seen> {
        let path = shown.canonicalize()?;
        let base = BaseFile::read(&path)?;
        let file = match side::open(&shm_path(&path), false) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Seen::Nobody),
            opened => opened?,
        };
        let meta = file.metadata()?;
        let is_in_use =
            locks::is_range_locked_elsewhere(&file, PROCESS_LOCK_BASE, PROCESS_SLOTS as i64)?;
        if !is_in_use {
            return Ok(Seen::Nobody);
        }
        if meta.len() < TOTAL_BYTES as u64 {
            return Ok(Seen::Moving);
        }
        let copy = Copied::from(&file)?;
        let layout = copy.layout();
        if memory::distrust(layout, base.identity).is_some() {
            return Ok(Seen::Moving);
        }
        let alive = memory::alive_slots(&file, layout)?;
        if alive.is_empty() {
            return Ok(Seen::Moving);
        }
        let mut session = Session::of(layout, &alive);
        session.identity.0 = meta.ino();
        session.sizes.memory_bytes = meta.blocks() * 512;
        session.sizes.memtable_bytes = memtable_bytes(&file, layout)?;
        session.sizes.log_file_bytes = bytes_of(&log_path(&path));
        Ok(Seen::Session(Box::new(session)))
    }

    /// What the fixed part says, with the slots of living processes.
    fn of(layout: &Layout, alive: &[usize]) -> Session {
        let slots = transactions::Slots::new(layout, alive);
        Session {
            identity: (0, counts::salt(layout)),
            processes: slots.processes(),
            counts: Counts::of(layout),
            sizes: Sizes::of(layout, alive),
            kinds: Kinds::of(layout),
            transactions: slots.transactions(),
            writer: slots.writer(),
            merger: slots.merger(),
            oldest_reader: slots.oldest_reader(),
        }
    }

    /// How many transactions do this.
    pub fn doing(&self, what: Doing) -> u64 {
        self.transactions.iter().filter(|t| t.doing == what).count() as u64
    }

    /// The transaction that began first.
    pub fn longest(&self) -> Option<&Transaction> {
        self.transactions.iter().max_by_key(|t| t.age_ms)
    }
}

/// Bytes of commits that are not in the database file yet.
fn memtable_bytes(file: &File, layout: &Layout) -> io::Result<u64> {
    let mut bytes = 0;
    for arena in counts::unmerged_arenas(layout) {
        let mut header = [0; Memtable::HEADER_BYTES];
        file.read_exact_at(&mut header, arena_offset(arena) as u64)?;
        bytes += u64::from(Memtable::node_bytes_in(&header, arena_bytes(arena) as u32));
    }
    Ok(bytes)
}

/// 0 where there is no such file.
fn bytes_of(path: &PathBuf) -> u64 {
    std::fs::symlink_metadata(path).map_or(0, |meta| meta.len())
}

#[cfg(test)]
mod tests;

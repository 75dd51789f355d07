//! A database and the files beside it, looked at from outside: nothing is opened with SQLite, locked or changed.
//!
//! What looks amiss is looked at again until it is certain that nobody moved the files meanwhile (`moment.rs`).
//!
//! Whoever looks must not have the database open with SQLite in this process: closing the file here would
//! drop the POSIX locks that SQLite holds on it.

pub mod astray;
pub mod barrier;
pub mod base;
pub mod log;
pub mod lone;
pub mod memory;
pub mod moment;
pub mod openers;
pub mod outlook;
pub mod pairing;
pub mod strangers;
pub mod users;
pub mod wal;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plait_engine::belongs::belongs;
use plait_engine::database::{log_path, shm_path};
use plait_engine::session::{DEATH_MAX, aside};
use plait_engine::storage::names::FOLLOWS;

use crate::failure::{Failure, Result, quoted};
use crate::follows::Replica;
use crate::quantity::of;
use base::{BaseFile, Header};
use log::Log;
use lone::Lone;
use memory::Memory;
use moment::{Moment, PAUSE};
use outlook::Outlook;
use pairing::{Pairing, pairing};
use wal::Wal;

/// How long it is looked at again while others open and close it.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// What the names of the files end in that stand beside a database and belong to it.
pub const SIDE_FILES: [&str; 9] = [
    "-wal",
    "-shm",
    "-journal",
    "-plait",
    "-plait-shm",
    "-plait-pages",
    "-plait-super",
    "-plait-new",
    FOLLOWS,
];
/// So many looks in a row that find the same are believed beside movement, too: programs that try to open a broken database again
/// and again are movement.
const LOOKS_MIN: u32 = 20;

/// Everything that is known without opening the database.
#[derive(Debug)]
pub struct Inspection {
    /// The database file, with symbolic links followed.
    pub path: PathBuf,
    /// The file itself.
    pub base: BaseFile,
    /// SQLite's WAL.
    pub wal: Option<Wal>,
    /// A rollback journal that is not empty stands beside it.
    pub has_journal: bool,
    /// The header as the last commit left it, in the WAL or in the file.
    pub header: Header,
    /// The database file is not the one that its WAL, log and shared memory belong to.
    pub is_replaced: bool,
    /// What speaks against it beside that, as far as SQLite's own bytes tell.
    pub pairing: Pairing,
    /// Shared memory.
    pub memory: Option<Memory>,
    /// The log.
    pub log: Log,
    /// Who has it open in WAL mode, as far as locks tell.
    pub lone: Lone,
    /// Logs that were put aside, oldest first.
    pub put_aside: Vec<PathBuf>,
    /// What stands in the way of some transactions, in words.
    pub spare_strangers: Vec<String>,
    /// Size of `-plait-pages`, if it is there.
    pub prepared_pages_bytes: Option<u64>,
    /// Nothing is amiss, or it is certain. Otherwise others open and close the database all the time.
    pub is_settled: bool,
    /// Before everything else was looked at.
    moment: Moment,
}

impl Inspection {
    /// Looks at the database that the user calls `shown`. Fails if others do not let it be told what state it is in.
    pub fn of(shown: &Path) -> Result<Inspection> {
        let seen = Inspection::as_it_moves(shown)?;
        if seen.is_settled { Ok(seen) } else { Err(unsettled(shown)) }
    }

    /// The same, which may end with a look that proves nothing.
    pub fn as_it_moves(shown: &Path) -> Result<Inspection> {
        let start = Instant::now();
        let (mut found, mut looks) = (None, 0);
        let mut orphaned_since = None;
        loop {
            let seen = Inspection::look(shown)?;
            if !seen.is_amiss() {
                return Ok(seen);
            }
            std::thread::sleep(PAUSE);
            let now = Moment::of(&seen.path).map_err(|e| Failure::io("read", shown, &e))?;
            if seen.moment.is_orphaned() && now.is_orphaned() {
                orphaned_since.get_or_insert_with(Instant::now);
            } else {
                orphaned_since = None;
            }
            let is_still = if seen.is_cut() {
                seen.moment.is_same(&now)
            } else {
                seen.moment.is_same_session(&now)
            };
            let is_dying = orphaned_since.is_some_and(|since| since.elapsed() < DEATH_MAX);
            if is_still && !is_dying && seen.moment.has_members() == seen.is_in_use() {
                return Ok(seen);
            }
            let outlook = Some(seen.outlook());
            if found != outlook {
                (found, looks) = (outlook, 0);
            }
            if !seen.moment.is_held() && !now.is_held() {
                looks += 1;
            }
            if start.elapsed() >= PATIENCE {
                return Ok(Inspection { is_settled: looks >= LOOKS_MIN, ..seen });
            }
        }
    }

    fn look(shown: &Path) -> Result<Inspection> {
        if let Some(aside) = barrier::aside(shown) {
            return Err(barrier::refusal(shown, &aside));
        }
        let path = shown.canonicalize().map_err(|e| {
            let left = (e.kind() == ErrorKind::NotFound).then(|| missing_beside_its_files(shown));
            left.flatten().unwrap_or_else(|| Failure::io("open", shown, &e))
        })?;
        strangers::refuse(&path)?;
        let moment = Moment::of(&path).map_err(|e| Failure::io("read", shown, &e))?;
        let base = BaseFile::read(&path).map_err(|e| Failure::io("read", shown, &e))?;
        let spare_strangers = strangers::spare(&path)?;
        let prepared_pages_bytes = bytes_of_file(&beside(&path, "-plait-pages"));
        let wal_path = beside(&path, "-wal");
        let wal = Wal::read(&wal_path).map_err(|e| Failure::io("read", &wal_path, &e))?;
        let newest = wal.as_ref().and_then(|w| w.page_1.as_deref()).and_then(Header::parse);
        let Some(header) =
            newest.or(base.header).or_else(|| base.is_empty().then_some(Header::EMPTY))
        else {
            return Err(no_database(shown));
        };
        let shm = shm_path(&path);
        let read_memory = || {
            Memory::read(&shm, base.identity, header, &log_path(&path))
                .map_err(|e| Failure::io("read", &shm, &e))
        };
        let memory = read_memory()?;
        let in_use = memory.as_ref().is_some_and(|m| m.in_use);
        let is_up = |m: &Memory| says_fenced(m, header);
        // Once more: its session may have raised the fence since the file was looked at, or lowered it since memory was.
        let lost_fence = memory.as_ref().is_some_and(is_up)
            && !BaseFile::read(&path)
                .map_err(|e| Failure::io("read", shown, &e))?
                .first_page
                .is_some_and(|page| page.is_fenced())
            && read_memory()?.as_ref().is_some_and(is_up);
        let log = if in_use {
            Log::InUse
        } else {
            Log::read(&log_path(&path), header.salt, header.generation)
        };
        let has_journal = bytes_of_file(&beside(&path, "-journal")).is_some_and(|n| n > 0);
        // Beside processes at work the WAL changes while it is read.
        let in_wal = wal.as_ref().map_or(&[][..], |w| &w.first_pages);
        let misses_fence = header.is_fenced()
            && !base.first_page.is_some_and(|page| page.is_fenced())
            && matches!(&log, Log::Sound(summary) if summary.newest.get() > header.generation);
        let is_replaced = header.is_concurrent() && lost_fence
            || !in_use && (misses_fence || !belongs(base.first_page, in_wal, false));
        // The WAL of a session is its members' business.
        let pairing = match wal.as_ref().filter(|_| !in_use) {
            Some(wal) => pairing(&path, &base, wal).map_err(|e| Failure::io("read", shown, &e))?,
            None => Pairing::Fits,
        };
        let index = beside(&path, "-shm");
        let put_aside = aside::logs(&path);
        let lone = Lone::of(&index).map_err(|e| Failure::io("read", &index, &e))?;
        Ok(Inspection {
            path,
            base,
            wal,
            has_journal,
            header,
            is_replaced,
            pairing,
            memory,
            log,
            lone,
            put_aside,
            spare_strangers,
            prepared_pages_bytes,
            is_settled: true,
            moment,
        })
    }

    /// Programs end in such states, and pass through them as well.
    fn is_amiss(&self) -> bool {
        let is_log_amiss = match &self.log {
            Log::Foreign { has_frames, .. } => *has_frames,
            Log::Ahead(_) | Log::Damaged(_) => true,
            Log::Absent | Log::Sound(_) | Log::InUse => false,
        };
        let is_plain = match self.outlook() {
            Outlook::Ordinary | Outlook::Joins(_) | Outlook::Starts { .. } => true,
            Outlook::GoesOn
            | Outlook::Restores(_)
            | Outlook::Mixes { .. }
            | Outlook::SetsAside { .. }
            | Outlook::Recovers { .. }
            | Outlook::Refuses { .. } => false,
        };
        is_log_amiss || !is_plain || self.is_cut() || self.left_in_wal().is_some()
    }

    /// Commits in the WAL beside a file without a session, which the file alone may lack.
    pub fn wal_commits(&self) -> u64 {
        let is_applied =
            matches!(self.outlook(), Outlook::Starts { .. } | Outlook::SetsAside { .. });
        let wal = self.wal.as_ref().filter(|_| is_applied && !self.base.is_empty());
        wal.map_or(0, |wal| wal.commits)
    }

    /// The same, where nobody is seen to have the database open: who had it was killed. `None` if there are none.
    pub fn left_in_wal(&self) -> Option<u64> {
        Some(self.wal_commits()).filter(|&commits| commits > 0 && !self.lone.is_open)
    }

    /// The database file has not the size that its header tells, nor an unfinished transaction to explain it.
    pub fn is_cut(&self) -> bool {
        if self.has_journal {
            return false;
        }
        let page = u64::from(self.header.page_bytes).max(1);
        let in_wal = self.wal.as_ref().is_some_and(|w| w.frames > 0);
        !self.base.bytes.is_multiple_of(page)
            || (self.base.bytes / page < u64::from(self.header.pages) && !in_wal)
    }

    /// Whether anybody has written to it, or begun a session, since it was looked at.
    pub fn has_moved(&self) -> bool {
        !Moment::of(&self.path).is_ok_and(|now| self.moment.is_same(&now))
    }

    /// What opening it will do.
    pub fn outlook(&self) -> Outlook {
        let header = self.header;
        let told = outlook::outlook(header, !self.is_replaced, self.memory.as_ref(), &self.log);
        match (&self.pairing, told) {
            (Pairing::Foreign(why), Outlook::Ordinary | Outlook::Starts { .. }) => {
                Outlook::Mixes { why: why.clone() }
            }
            (_, told) => told,
        }
    }

    /// What happens to the files of a database beside one that was emptied, in words: SQLite takes an empty file for a new database. `None` if
    /// there is nothing to lose.
    pub fn lost_by_opening(&self) -> Option<String> {
        let wal = self.wal.as_ref().filter(|wal| wal.bytes > 0);
        let has_log = !matches!(self.log, Log::Absent) || self.memory.is_some();
        if !self.base.is_empty() || self.is_in_use() || (wal.is_none() && !has_log) {
            return None;
        }
        let wal = wal.map(|wal| {
            format!("; SQLite removes the WAL, with {}", of(wal.commits, "commit", "commits"))
        });
        let log = has_log.then_some("; the log beside it is of no use without the file");
        Some(wal.unwrap_or_default() + log.unwrap_or_default())
    }

    /// Shared memory as it is by now.
    pub fn memory_now(&self) -> Option<Memory> {
        let (shm, log) = (shm_path(&self.path), log_path(&self.path));
        Memory::read(&shm, self.base.identity, self.header, &log).ok().flatten()
    }

    /// Whether processes have it open, as far as concurrent mode knows.
    pub fn is_in_use(&self) -> bool {
        self.memory.as_ref().is_some_and(|m| m.in_use)
    }

    /// Those of them that can be named.
    pub fn alive(&self) -> &[u32] {
        self.memory.as_ref().map_or(&[], |m| &m.alive)
    }
}

fn no_database(shown: &Path) -> Failure {
    Failure::new(
        format!("{} is not an SQLite database: it begins with something else", shown.display()),
        "check the path; an encrypted or compressed database must be decoded first",
    )
}

/// Others open and close the database all the time, so that nothing can be told.
pub fn unsettled(shown: &Path) -> Failure {
    Failure::new(
        format!(
            "{} is in use: it was opened, written or closed by other programs at each look for {} s, so that its state cannot be \
             told",
            shown.display(),
            PATIENCE.as_secs()
        ),
        "run the command again while they do less, or close them; a program that is stopped while it opens or closes must be \
         continued or killed",
    )
}

/// Whether the file with this header has the fence, by what memory says.
fn says_fenced(memory: &Memory, header: Header) -> bool {
    // Of another session, which is over, memory says nothing about this file.
    let is_its = memory.in_use || header.is_fenced() || memory.salt == header.salt;
    // A session that was killed at its end, behind its last commit to the base, has taken the fence away itself.
    let has_ended = !memory.in_use
        && !header.is_fenced()
        && memory.salt == header.salt
        && memory.base_generation.max(memory.newest_unmerged) <= header.generation;
    memory.is_trusted() && memory.is_fenced && !memory.is_lowered && is_its && !has_ended
}

/// None: there is no file of that name.
fn bytes_of_file(path: &Path) -> Option<u64> {
    let there = std::fs::symlink_metadata(path).ok()?;
    there.is_file().then_some(there.len())
}

/// The database that a file at this path would belong to by its name.
pub fn base_beside(path: &Path) -> Option<PathBuf> {
    SIDE_FILES.iter().find_map(|suffix| {
        let stem = path.as_os_str().as_bytes().strip_suffix(suffix.as_bytes())?;
        let stem = Path::new(OsStr::from_bytes(stem));
        (stem.file_name().is_some() && stem.exists()).then(|| stem.to_owned())
    })
}

/// What to say of a database file that is missing where files that belong to one of its name stand; `None` if there are none.
pub fn missing_beside_its_files(shown: &Path) -> Option<Failure> {
    if let Some(replica) = Replica::awaited(shown) {
        let (what, advice) = replica.amiss(shown).unwrap_or_else(|| {
            ("its follower runs", "wait until it has made the database".to_owned())
        });
        let said = replica.said_of_nothing();
        return Some(Failure::new(
            format!("{} is missing: it {said}; {what}", shown.display()),
            advice,
        ));
    }
    let is_there = |path: &Path| std::fs::symlink_metadata(path).is_ok();
    let side = SIDE_FILES.iter().map(|suffix| beside(shown, suffix)).find(|side| is_there(side))?;
    (!is_there(shown)).then(|| {
        Failure::new(
            format!(
                "{} is missing, but {} is there, which belongs to a database of that name",
                shown.display(),
                side.display()
            ),
            format!(
                "put the database file back, or a backup: `plait restore BACKUP {}`; for a new database put {} away",
                quoted(shown),
                side.display()
            ),
        )
    })
}

/// Path of a file beside the database.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

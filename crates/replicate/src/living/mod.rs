//! A living database as the sidecar's [`Source`]: a process that has joined the session reads it
//! through the engine.
//!
//! | [`Source`] | here |
//! |---|---|
//! | SOURCE-1 to SOURCE-5 | `ship` of the engine (SHIP-1 to SHIP-5) |
//! | SOURCE-6 | its copies (SCRATCH-1 to SCRATCH-3), in `copy.rs` |
//! | SOURCE-7 | SHIP-6, and the hold on the log (HELD-2) |
//!
//! The connection of SQLite's does nothing but be there: while it is, the session lives, its fence
//! is up, and no other program is alone with the file.

mod copy;
mod end;
mod instance;
mod shelf;

use std::cell::{Cell, RefCell};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plait_client::{BUSY, Connection, Library, NOTADB, OpenFlags};
use plait_engine::database::Database;
use plait_engine::ids as engine;
use plait_engine::ship::{self, Happened, Scratch, Shipper};
use plait_engine::storage::names::unwritable;
use plait_engine::sync::wait::Wait;
use plait_replicate::holders;
use plait_replicate::ids::{
    ChainId, CommitTs, Generation, Hash, Instance, Lsn, Nonce, Position, Salt,
};
use plait_replicate::library;
use plait_replicate::record::{Follows, Frames, Merge};
use plait_replicate::shelf::Shelf;
use plait_replicate::source::{BaseCopy, Event, Source, SourceError, Start, TipOf};
use rustix::fs::{Access, AtFlags, CWD};
// The spliced amalgamation that `Library::linked` is about.
use plait_sqlite as _;

pub use self::end::End;

/// Longest wait for a lock of the database.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether the file is still that of the session, as each program does that reads it.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What is told of records to which no snapshot leads, until the next look at what is in the way.
const WAITING: &str = "the newest commits cannot be restored before a snapshot is complete";

/// A place that the session tells with so many bytes may have more: it keeps 256, and no part of a character.
const TOLD_BYTES: usize = 250;

/// How a database is shipped.
pub struct Settings {
    /// Where to, as the user names it.
    pub place: String,
    /// Bytes of the log that the database may keep for the sidecar.
    pub max_lag_bytes: u64,
    /// The folder for copies of the database.
    pub scratch: PathBuf,
    /// The name of the machine, if not its own.
    pub machine: Option<String>,
    /// The chain may be of another database: what this one remembers of its own does not count.
    pub takes_over: bool,
}

/// What a sidecar and its program share.
#[derive(Clone, Default)]
pub struct Shared {
    /// Why the sidecar ends, if the database does not let it go on.
    pub end: Rc<Cell<Option<End>>>,
    /// What is committed is to be on disk at once: the sidecar is about to end.
    pub hurries: Rc<Cell<bool>>,
    /// The file of the last copy of the database.
    pub scratch: Rc<RefCell<Scratch>>,
}

/// Why a database cannot be shipped.
pub struct Refused {
    /// In words.
    pub text: String,
    /// A new start alone does not help.
    pub is_usage: bool,
}

/// A living database.
pub struct Living {
    // Dropped in this order: the hold ends before the process leaves.
    shipper: RefCell<Option<Shipper>>,
    database: Arc<Database>,
    connection: Connection,
    path: PathBuf,
    file: Option<Identity>,
    settings: Settings,
    instance: Instance,
    page_bytes: u32,
    shelf: shelf::InFolder,
    shared: Shared,
    /// The place was shipped to before, under whatever name.
    is_here: Cell<bool>,
    /// When it was looked at the file last.
    looked: Cell<Instant>,
    /// What is shipped follows nothing that was shipped before.
    is_anew: bool,
}

impl Living {
    /// Joins the session of a database.
    ///
    /// # Errors
    /// In words; among them that it is not in concurrent mode.
    pub fn join(path: &Path, settings: Settings, shared: Shared) -> Result<Living, Refused> {
        let refused = |what: &str, is_usage| Refused {
            text: format!("cannot open {}: {what}", path.display()),
            is_usage,
        };
        let say = |what: &str| refused(what, false);
        let path = std::fs::canonicalize(path).map_err(|e| refused(&e.to_string(), true))?;
        if path.is_dir() {
            return Err(refused("it is a folder: name the database in it", true));
        }
        // Before anything is shipped: a snapshot needs it.
        check_scratch(&settings.scratch)?;
        let open = || {
            let connection = Library::linked().open_with(&path, OpenFlags::ReadWrite)?;
            connection.busy_timeout(PATIENCE)?;
            let mode = connection.text("PRAGMA journal_mode")?;
            let page_bytes = connection.integer("PRAGMA page_size")?;
            // Asked for what a member of the session alone can tell, it becomes one with its next
            // transaction.
            connection.query("SELECT count(*) FROM plait_status")?;
            connection.query("SELECT count(*) FROM sqlite_schema")?;
            Ok::<_, plait_client::SqlError>((connection, mode, page_bytes))
        };
        let (connection, mode, page_bytes) = open().map_err(|e| match e.code {
            BUSY => say(&(e.said() + &holders::named(&path))),
            NOTADB => {
                refused(&(e.said() + ": name the database, or bring back what was there"), true)
            }
            _ => say(&e.said()),
        })?;
        if mode != "concurrent" {
            let what = format!("its journal mode is {mode}: run `plait enable` on it first");
            return Err(refused(&what, true));
        }
        let database = Shipper::joined(&path).ok_or_else(|| match unwritable(&path) {
            Some(file) => refused(
                &format!(
                    "this user may not write {}: run this as the owner of the database, or give it that right",
                    file.display()
                ),
                true,
            ),
            None => say("it did not become a member of its session"),
        })?;
        let instance = instance::of(&path, settings.machine.as_deref());
        Ok(Living {
            file: named(&path),
            shipper: RefCell::default(),
            database,
            connection,
            shelf: shelf::InFolder::new(&settings.scratch, &path, instance),
            path,
            settings,
            instance,
            page_bytes: page_bytes as u32,
            shared,
            is_here: Cell::default(),
            looked: Cell::new(Instant::now()),
            is_anew: false,
        })
    }

    /// The database, for what others are told of it.
    pub fn database(&self) -> Arc<Database> {
        Arc::clone(&self.database)
    }

    /// The place that the session was shipped to before, if it was, and counts. Nothing is asked of that place.
    pub fn told_place(&self) -> Option<String> {
        self.chain()?;
        let told = self.database.told().place;
        // Shared memory has the beginning of a long one.
        let is_cut = told.len() >= TOLD_BYTES && self.settings.place.starts_with(&told);
        Some(if is_cut { self.settings.place.clone() } else { told })
    }

    /// The place that was shipped to before is this one under another name.
    pub fn note_here(&self) {
        self.is_here.set(true);
    }

    /// Turns an error of the engine into what becomes of the sidecar.
    fn failed(&self, error: &plait_engine::error::Error) -> SourceError {
        match End::of(error, &self.path) {
            None => SourceError::Later(error.to_string()),
            Some(end) => {
                self.shared.end.set(Some(end));
                let shown = self.path.display();
                SourceError::Ended(match named(&self.path) {
                    None => format!(
                        "{shown} was deleted or moved away: where it was moved, start this for its new name"
                    ),
                    now if now == self.file => error.to_string(),
                    // Files beside it may be the new one's by now: the engine takes them for the former one's.
                    Some(_) => format!(
                        "{shown} is another file than the one that was shipped: it was removed and made anew, or replaced (if \
                         that was meant, close all programs and start once with --take-over, which says what to do where files \
                         of the former one are left beside it: it is shipped on behind the other, which can be restored; else \
                         close them and put the former one back, with the files beside it)"
                    ),
                })
            }
        }
    }

    /// Fails if the file was replaced, or overwritten in its place: its log goes on as if nothing had happened, until a
    /// program reads the file.
    fn look_at_file(&self) -> Result<(), SourceError> {
        if self.looked.get().elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked.set(Instant::now());
        let shipper = self.shipper.borrow();
        match shipper.as_ref().map_or(Ok(()), Shipper::check_base) {
            Err(error @ plait_engine::error::Error::Replaced(_)) => Err(self.failed(&error)),
            // Anything else is told by what needs the file.
            _ => Ok(()),
        }
    }

    /// Tells, before it is told that more is shipped, that no snapshot leads there yet; what is told already says more.
    fn note_waiting(&self) {
        if self.database.told().trouble.is_empty() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now_ms = now.map_or(0, |now| now.as_millis() as u64);
            self.database.note_shipping_trouble(WAITING, now_ms);
        }
    }

    fn with<T>(
        &self,
        f: impl FnOnce(&mut Shipper) -> plait_engine::error::Result<T>,
    ) -> Result<T, SourceError> {
        let mut shipper = self.shipper.borrow_mut();
        let Some(shipper) = &mut *shipper else {
            return Err(SourceError::Later("the sidecar has not begun".to_owned()));
        };
        f(shipper).map_err(|error| self.failed(&error))
    }
}

/// Fails if no copy could be made in a folder. A disk that is not mounted yet may be later.
fn check_scratch(folder: &Path) -> Result<(), Refused> {
    let refused = |what: String, is_usage| Refused {
        text: format!(
            "cannot make a copy of the database in {}: {what}: mount its disk, give this user the right, or name another \
             folder by --scratch",
            folder.display()
        ),
        is_usage,
    };
    if !std::fs::metadata(folder).map_err(|e| refused(e.to_string(), false))?.is_dir() {
        return Err(refused("it is no folder".to_owned(), true));
    }
    rustix::fs::accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())
        .map_err(|e| refused(std::io::Error::from(e).to_string(), false))
}

/// Device and inode.
type Identity = (u64, u64);

/// The file that has this name, if one has.
fn named(path: &Path) -> Option<Identity> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

fn wait<T>(f: impl FnOnce(&mut Wait<'_>) -> T) -> T {
    f(&mut Wait { timeout: PATIENCE, busy: None, interrupted: &mut || false })
}

fn to_engine(position: &Position) -> ship::Position {
    ship::Position {
        salt: position.salt.0,
        base: engine::Generation::new(position.base.0),
        stream: engine::Lsn::new(position.stream.0),
        commit: engine::CommitTs::new(position.commit.0),
        crc: position.crc,
    }
}

fn beginning(Hash(hash): Hash) -> [u8; 16] {
    hash[..16].try_into().expect("a hash is longer")
}

fn tip_to_engine(tip: &TipOf) -> ship::Tip {
    let generation = |generation: Generation| engine::Generation::new(generation.0);
    let merge = |merge: &Merge| {
        let Merge { before, through, page_count, sum } = *merge;
        (generation(before), generation(through), ship::Written { page_count, sum })
    };
    ship::Tip {
        position: to_engine(&tip.position),
        record: beginning(tip.hash),
        previous: beginning(tip.previous),
        opening: tip.opening.map(|writer| writer.0),
        merges: tip.merges.as_ref().map(|merges| merges.iter().map(merge).collect()),
    }
}

fn from_engine(position: &ship::Position) -> Position {
    Position {
        salt: Salt(position.salt),
        base: Generation(position.base.get()),
        stream: Lsn(position.stream.get()),
        commit: CommitTs(position.commit.get()),
        crc: position.crc,
    }
}

fn event(happened: Happened) -> Event {
    match happened {
        Happened::Frames(stretch) => Event::Frames(Frames {
            generation: Generation(stretch.generation.get()),
            from: Lsn(stretch.from.get()),
            first_commit: CommitTs(stretch.first_commit.get()),
            last_commit: CommitTs(stretch.last_commit.get()),
            bytes: Bytes::from(stretch.bytes),
        }),
        Happened::Merge { before, through, written } => Event::Merge(Merge {
            before: Generation(before.get()),
            through: Generation(through.get()),
            page_count: written.page_count,
            sum: written.sum,
        }),
        Happened::Lost { stream, base, incomplete, commit, why } => Event::Lost {
            stream: Lsn(stream.get()),
            base: Generation(base.get()),
            incomplete: Generation(incomplete.get()),
            commit: CommitTs(commit.get()),
            why: why.to_owned(),
        },
    }
}

impl Source for Living {
    fn instance(&self) -> Instance {
        self.instance
    }

    fn host(&self) -> String {
        format!("{}, process {}", instance::host(), std::process::id())
    }

    fn chain(&self) -> Option<ChainId> {
        let chain = ChainId(self.database.told().chain);
        (chain != ChainId::default() && !self.settings.takes_over).then_some(chain)
    }

    fn chain_here(&self) -> Option<ChainId> {
        let is_told = self.told_place().is_some_and(|told| told == self.settings.place);
        self.chain().filter(|_| is_told || self.is_here.get())
    }

    fn made_ms(&self) -> Option<u64> {
        let made = std::fs::metadata(&self.path).and_then(|there| there.created()).ok()?;
        let since = made.duration_since(std::time::UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok()
    }

    fn note_opening(&mut self, writer: Nonce) -> Result<(), SourceError> {
        self.with(|shipper| {
            shipper.note_opening(writer.0);
            Ok(())
        })
    }

    fn note_chain(&mut self, chain: ChainId, open: Hash) -> Result<(), SourceError> {
        let place = self.settings.place.clone();
        if self.is_anew {
            self.note_waiting();
        }
        self.with(|shipper| {
            shipper.note_chain(chain.0, beginning(open), &place);
            Ok(())
        })
    }

    fn begin(&mut self, tip: Option<&TipOf>) -> Result<Start, SourceError> {
        // What was held for an earlier begin.
        self.shipper.take();
        let tip = tip.filter(|_| !self.settings.takes_over).map(tip_to_engine);
        let limit = self.settings.max_lag_bytes;
        let begun = wait(|wait| Shipper::begin(&self.database, tip.as_ref(), limit, wait));
        let (begun, shipper) = begun.map_err(|error| self.failed(&error))?;
        *self.shipper.borrow_mut() = Some(shipper);
        self.is_anew = begun.anew.is_some();
        let follows = if begun.anew.is_some() { Follows::Nothing } else { Follows::Stream };
        Ok(Start {
            follows,
            position: from_engine(&begun.position),
            segment_bytes: begun.segment_bytes as u32,
            page_bytes: self.page_bytes,
            library: library::versions(),
            why: begun.anew.map(str::to_owned),
        })
    }

    fn read(&mut self, bytes: usize) -> Result<Vec<Event>, SourceError> {
        self.look_at_file()?;
        let hurries = self.shared.hurries.get();
        let happened = self.with(|shipper| {
            if hurries {
                shipper.sync()?;
            }
            shipper.read(bytes)
        })?;
        Ok(happened.into_iter().map(event).collect())
    }

    fn shipped(&mut self, record: Hash, through: &Position, is_restorable: bool) {
        if !is_restorable {
            self.note_waiting();
        }
        // Nothing can fail here.
        let _ = self.with(|shipper| {
            shipper.shipped(beginning(record), &to_engine(through));
            Ok(())
        });
    }

    fn base(&mut self, at_least: Generation) -> Result<Option<BaseCopy>, SourceError> {
        let generation = engine::Generation::new(at_least.0);
        if self.with(|shipper| Ok(shipper.base_generation()))? < generation {
            // Brings what is committed into the base, as far as it can now.
            let merged = self.connection.query("PRAGMA wal_checkpoint(PASSIVE)");
            merged.map_err(|e| SourceError::Later(e.said()))?;
        }
        let scratch = self.settings.scratch.clone();
        let copied = self.with(|shipper| shipper.copy(generation, &scratch))?;
        if let Some(copied) = &copied {
            *self.shared.scratch.borrow_mut() = copied.scratch();
        }
        Ok(copied.map(copy::handed_on))
    }

    fn shelf(&self) -> Option<&dyn Shelf> {
        Some(&self.shelf)
    }
}

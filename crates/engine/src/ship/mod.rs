//! What a process that ships the database elsewhere reads of it: frames of the log, what became of
//! the base, and copies of the base.
//!
//! The shipper is a process that has joined the session. It commits nothing, and merges only where a
//! snapshot waits for a later base.
//!
//! ```text
//! begin ──► hold on the log from the position on ──► read ──► frames of a generation, merges, ...
//!                 ▲                                    │
//!                 └── shipped: the hold moves on ◄─────┘
//! ```
//!
//! | state | the next `read` gives |
//! |---|---|
//! | follows | frames from `at` on that are on disk; a merge behind the last frame that it merged |
//! | behind a change that cannot be followed, or without its hold | `Lost`, then as before from there |
//!
//! Invariants
//! - SHIP-1 What is given is in the order in which it can be relied on: a merge behind the frames of
//!   its generations and before later ones. `read` loads the end of what is on disk first, then the
//!   changes of the base (database/boundaries.rs).
//! - SHIP-2 Frames are given from disk alone (TAILING-1), in whole (TAILING-2), by one generation in
//!   an event.
//! - SHIP-3 A call of `read` gives all that it has passed, or an error and stays where it was.
//! - SHIP-4 `begin` goes on from a position only if the words of the session say that it was shipped,
//!   with the changes of the base through it, or the frames and merges from there to it are as the
//!   log and the boundaries have them; and every byte behind it is held. So a copy of the database
//!   that went on by itself does not pass for it: frames have the checksum of the ones before, merges
//!   the sum of what they wrote, and the replica ends with the record that was told of last, with the
//!   one behind that, or with an OPEN that was about to be made.
//! - SHIP-5 Behind `Lost` the frames through `incomplete` are not all given. The words of the session
//!   say so until a base that has these is shipped, or a chain is known to begin anew
//!   ([`Shipper::note_chain`]): a shipper that begins before begins anew.
//! - SHIP-6 No commit waits for the shipper. It leads a sync only when nobody has synced for
//!   [`SYNC_AFTER`], which is so where commits wait for no sync.

mod copy;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use self::copy::Copying;
pub use self::copy::{Copied, Scratch};
use crate::database::Database;
pub use crate::database::shipping::{Position, Told};
use crate::error::{Error, Result};
use crate::ids::{CommitTs, Generation, Lsn};
use crate::log::{HoldToken, Stretch, Unread};
use crate::registry;
use crate::shm::layout::fence;
pub use crate::shm::shipping::Written;
use crate::shm::shipping::{Boundary, Change};
use crate::sync::wait::Wait;

/// How long what is committed may wait for a sync of others (SHIP-6).
pub const SYNC_AFTER: Duration = Duration::from_millis(500);

/// Something that happened to the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// Commits.
    Frames(Stretch),
    /// Generations were merged into the base.
    Merge {
        /// Generation of the base before.
        before: Generation,
        /// Generation of the base behind it.
        through: Generation,
        /// What that has written.
        written: Written,
    },
    /// What comes next does not follow what came before.
    Lost {
        /// Where the stream goes on.
        stream: Lsn,
        /// The base that the next merge expects.
        base: Generation,
        /// Frames through this generation are incomplete.
        incomplete: Generation,
        /// The newest commit, if the base has all of them; else 0: a frame behind `stream` has it.
        commit: CommitTs,
        /// For people.
        why: &'static str,
    },
}

/// The end of a replica: its last record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tip {
    /// Where base and stream are.
    pub position: Position,
    /// The beginning of its hash.
    pub record: [u8; 16],
    /// That of the record before.
    pub previous: [u8; 16],
    /// The nonce of its writer, if it is an OPEN.
    pub opening: Option<[u8; 16]>,
    /// Merges in it: generation before and behind, and what each has written. `None`: something else
    /// in it has changed the base.
    pub merges: Option<Vec<(Generation, Generation, Written)>>,
}

impl Tip {
    /// True if a session that was told this may have made the record, or seen that it is there.
    fn may_be_own(&self, told: &Told) -> bool {
        self.record == told.record
            || self.opening == Some(told.opening)
            || (self.previous == told.record && self.merges.is_some())
    }
}

/// How a shipper begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// `None`: it goes on from the position that was asked for. Else why not.
    pub anew: Option<&'static str>,
    /// Where it begins.
    pub position: Position,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
}

/// Where a shipper is.
#[derive(Debug, Clone, Copy)]
struct Place {
    position: Position,
    /// The next change of the base.
    boundary: u64,
}

/// A process that ships a database.
pub struct Shipper {
    db: Arc<Database>,
    token: HoldToken,
    limit_bytes: u64,
    at: Place,
    /// What is known to be shipped.
    known: Place,
    /// Places whose position is not known to be shipped, in their order.
    passed: Vec<Place>,
    /// It began over the base as it was, and that is not known to be in the chain.
    begins_anew: bool,
    /// The hold was broken, and `Lost` was not given yet.
    is_behind: bool,
    /// Through where the log was on disk when it was last asked, and since when it is that far.
    durable: (Lsn, Instant),
    copying: Option<Copying>,
}

impl Shipper {
    /// Returns the database at a path that this process has joined.
    pub fn joined(path: &std::path::Path) -> Option<Arc<Database>> {
        registry::open_databases().into_iter().find(|db| db.path() == path)
    }

    /// Begins to ship a database from `tip` on, if it can, and else from the base as it is. The log
    /// may keep `limit_bytes` for it.
    ///
    /// # Errors
    /// Those of raising the fence; of reading the log.
    pub fn begin(
        db: &Arc<Database>,
        tip: Option<&Tip>,
        limit_bytes: u64,
        wait: &mut Wait<'_>,
    ) -> Result<(Begun, Shipper)> {
        // From here on nothing but merges and exclusive transactions changes the base.
        let slot = db.borrow_slot()?;
        db.ensure_fenced(slot.index(), wait)?;
        drop(slot);
        db.log()?;
        let tried = match tip {
            Some(tip) => continue_from(db, tip, limit_bytes)?,
            None => Err("there was no replica"),
        };
        let (anew, token, at) = match tried {
            Ok((token, at)) => (None, token, at),
            Err(why) => {
                let (token, at) = start(db, limit_bytes)?;
                (Some(why), token, at)
            }
        };
        let segment_bytes = db.log_shared().segment_bytes();
        let begun = Begun { anew, position: at.position, segment_bytes };
        let shipper = Shipper {
            db: db.clone(),
            token,
            limit_bytes,
            at,
            known: at,
            passed: Vec::new(),
            begins_anew: anew.is_some(),
            is_behind: false,
            durable: (Lsn::new(0), Instant::now()),
            copying: None,
        };
        Ok((begun, shipper))
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.db
    }

    /// Fails if the database cannot be shipped any more: this process should leave it.
    ///
    /// # Errors
    /// `Replaced`, `Left`, or what has stopped the log.
    pub fn check(&self) -> Result<()> {
        self.db.check_place()?;
        self.db.check_poison()?;
        match self.db.control().fence.load(Relaxed) {
            fence::RESTING => Err(Error::Left),
            _ => Ok(()),
        }
    }

    /// Returns what happened since the last call, with frames of about `bytes` bytes.
    ///
    /// # Errors
    /// As [`Shipper::check`]; of reading the log. The next call begins where this one did (SHIP-3).
    pub fn read(&mut self, bytes: usize) -> Result<Vec<Happened>> {
        self.check()?;
        if !self.is_held() && !self.hold_again()? {
            self.is_behind = true;
        }
        // SHIP-1: in this order.
        let durable = self.durable_through()?;
        let count = self.db.boundaries().count();
        let mut events = Vec::new();
        let mut left = bytes;
        while left > 0 {
            // SHIP-3: behind events a failure ends the call, and the next one meets it again.
            match self.step(count, durable, left, events.is_empty()) {
                Ok(Some(happened)) => {
                    if let Happened::Frames(stretch) = &happened {
                        left = left.saturating_sub(stretch.bytes.len());
                    }
                    events.push(happened);
                }
                Err(e) if events.is_empty() => return Err(e),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(events)
    }

    /// Passes one event, or changes nothing. `is_first` of a call: what is damaged stays so until the
    /// base has it, and is given up once in a call.
    fn step(
        &mut self,
        count: u64,
        durable: Lsn,
        bytes: usize,
        is_first: bool,
    ) -> Result<Option<Happened>> {
        match self.next_change(count) {
            Next::Lost(why) => return self.lose(why).map(Some),
            Next::Merge(boundary, written) if boundary.end <= self.at.position.stream => {
                return Ok(Some(self.merge(&boundary, written)));
            }
            Next::Merge(..) | Next::Nothing => {}
        }
        match self.db.log()?.read_durable(self.at.position.stream, durable, bytes) {
            Ok(stretch) => Ok(stretch.map(|stretch| self.frames(stretch))),
            Err(Unread::Failed(e)) => Err(e.into()),
            Err(Unread::Gone(..)) if is_first => {
                self.lose("the log has something else in that place").map(Some)
            }
            Err(Unread::Gone(..)) => Ok(None),
        }
    }

    /// Brings all that is committed to disk.
    ///
    /// # Errors
    /// The log's.
    pub fn sync(&self) -> Result<()> {
        let end = self.db.log_shared().log_end();
        Ok(self.db.log()?.sync_through(end)?)
    }

    fn is_held(&self) -> bool {
        self.db.log_shared().is_held_by(self.token)
    }

    /// What is on disk. Leads a sync where nobody else does (SHIP-6).
    fn durable_through(&mut self) -> Result<Lsn> {
        let shared = self.db.log_shared();
        let durable = shared.durable_through();
        let end = shared.log_end();
        let (then, since) = self.durable;
        if then != durable {
            self.durable = (durable, Instant::now());
        } else if durable < end && since.elapsed() >= SYNC_AFTER {
            self.db.log()?.sync_through(end)?;
            self.durable = (self.db.log_shared().durable_through(), Instant::now());
        }
        Ok(self.durable.0)
    }

    fn next_change(&self, count: u64) -> Next {
        if self.is_behind {
            return Next::Lost("the log was longer than --max-lag");
        }
        if self.at.boundary >= count {
            return Next::Nothing;
        }
        // All of them: what cannot be followed is met once.
        for number in self.at.boundary..count {
            match self.db.boundaries().get(number).map(|boundary| boundary.change) {
                Some(Change::Merge(_)) => {}
                Some(Change::Exclusive) => {
                    return Next::Lost("a transaction of its own kind has changed the file");
                }
                Some(Change::Unknown) => return Next::Lost("a process died while it merged"),
                None => return Next::Lost("more merges than are kept have come"),
            }
        }
        match self.db.boundaries().get(self.at.boundary) {
            Some(boundary @ Boundary { change: Change::Merge(Some(written)), before, .. })
                if before == self.at.position.base =>
            {
                Next::Merge(boundary, written)
            }
            _ => Next::Lost("the merges do not follow each other"),
        }
    }

    fn frames(&mut self, stretch: Stretch) -> Happened {
        self.at.position.stream = stretch.end();
        self.at.position.commit = stretch.last_commit;
        self.at.position.crc = stretch.crc;
        self.passed.push(self.at);
        Happened::Frames(stretch)
    }

    fn merge(&mut self, boundary: &Boundary, written: Written) -> Happened {
        self.at.boundary += 1;
        self.at.position.base = boundary.through;
        self.passed.push(self.at);
        Happened::Merge { before: boundary.before, through: boundary.through, written }
    }

    /// Takes the hold again after it was broken; false if what comes next is gone.
    fn hold_again(&mut self) -> Result<bool> {
        let db = self.db.clone();
        let guard = db.lock_commit()?;
        let from = self.known.position.stream;
        self.token = db.log_shared().take_hold(&guard, db.process(), from, self.limit_bytes);
        Ok(db.log_shared().has_from(&guard, self.at.position.stream))
    }

    /// Goes on behind everything that cannot be followed.
    fn lose(&mut self, why: &'static str) -> Result<Happened> {
        let db = self.db.clone();
        let guard = db.lock_commit()?;
        let (base, boundary) = base_and_boundary(&db);
        let start = start_above(&db, base)?;
        let before = self.at.position.stream;
        // What was given already is not given again, and is not found behind the break.
        let (stream, incomplete) = match before > start {
            true => (before, base.max(db.log()?.generation_before(before))),
            false => (start, base),
        };
        let commit = commit_of_base(&db, base, start);
        self.token = db.log_shared().take_hold(&guard, db.process(), stream, self.limit_bytes);
        // SHIP-5: before anybody else may take the hold.
        db.note_incomplete(&guard, incomplete);
        drop(guard);
        let Position { salt, commit: given, .. } = self.at.position;
        let position = Position { salt, base, stream, commit: commit.max(given), crc: 0 };
        self.at = Place { position, boundary };
        self.is_behind = false;
        self.copying = None;
        self.passed.push(self.at);
        Ok(Happened::Lost { stream, base, incomplete, commit, why })
    }

    /// Takes note that everything through a position is elsewhere, in a record with this hash and those
    /// before it: the log need not keep it.
    pub fn shipped(&mut self, record: [u8; 16], through: &Position) {
        let Some(at) = self.passed.iter().rposition(|place| place.position == *through) else {
            self.db.note_known(self.token, record);
            return;
        };
        let place = self.passed.drain(..=at).next_back().expect("it is there");
        self.known = place;
        self.db.note_shipped(self.token, record, &place.position, place.boundary);
        // A hold that was broken is taken again by the next `read`, if it can be.
        self.db.log_shared().move_hold(self.token, place.position.stream);
    }

    /// Takes note of the nonce with which an OPEN is made next.
    pub fn note_opening(&mut self, writer: [u8; 16]) {
        self.db.note_opening(self.token, writer);
    }

    /// Takes note of the name of what the database is shipped to, of its last record, an OPEN, and
    /// where it is, before anything is shipped behind that.
    pub fn note_chain(&mut self, chain: [u8; 16], record: [u8; 16], place: &str) {
        let begins_anew = std::mem::take(&mut self.begins_anew);
        let at = (&self.at.position, self.at.boundary);
        self.db.note_begun(self.token, (chain, record, place), at, begins_anew);
    }
}

impl Drop for Shipper {
    fn drop(&mut self) {
        self.db.log_shared().end_hold(self.token);
    }
}

/// What comes next of the changes of the base.
enum Next {
    Nothing,
    Merge(Boundary, Written),
    Lost(&'static str),
}

/// (M) The generation of the base, and the number of the next change.
fn base_and_boundary(db: &Database) -> (Generation, u64) {
    let settled = Generation::new(db.control().base_generation.load(Relaxed));
    // A change may be noted and not settled.
    let noted = db.boundaries().last_through().unwrap_or_default();
    (settled.max(noted), db.boundaries().count())
}

/// Where frames of generations above the base begin.
fn start_above(db: &Database, base: Generation) -> Result<Lsn> {
    let damaged = || Error::Corrupt("the table of the log's segments is damaged".to_owned());
    db.log()?.start_above(base).ok_or_else(damaged)
}

/// (M) The newest commit of the session if none is above `base`, whose frames would begin at `start`; else 0. An
/// exclusive transaction has no frame, so nothing else tells of one that is the newest; while it is not settled,
/// because it has died, it has no number either.
fn commit_of_base(db: &Database, base: Generation, start: Lsn) -> CommitTs {
    let shared = db.log_shared();
    let is_settled = db.control().base_generation.load(Relaxed) == base.get();
    match is_settled && start >= shared.log_end() {
        true => CommitTs::new(shared.newest_ts()),
        false => CommitTs::new(0),
    }
}

/// Begins over the base as it is.
fn start(db: &Arc<Database>, limit_bytes: u64) -> Result<(HoldToken, Place)> {
    let guard = db.lock_commit()?;
    let (base, boundary) = base_and_boundary(db);
    // What is above the base is live.
    let stream = start_above(db, base)?;
    let token = db.log_shared().take_hold(&guard, db.process(), stream, limit_bytes);
    let salt = db.control().salt.load(Relaxed);
    let position =
        Position { salt, base, stream, commit: commit_of_base(db, base, stream), crc: 0 };
    Ok((token, Place { position, boundary }))
}

/// Begins behind `tip`, or says why that cannot be (SHIP-4).
fn continue_from(
    db: &Arc<Database>,
    end: &Tip,
    limit_bytes: u64,
) -> Result<Result<(HoldToken, Place), &'static str>> {
    let (told, tip) = (db.told(), &end.position);
    if tip.salt != db.control().salt.load(Relaxed) || told.position.salt != tip.salt {
        return Ok(Err("a new session of the database has begun"));
    }
    if !end.may_be_own(&told) {
        return Ok(Err("another sidecar has shipped since, of a copy of the database"));
    }
    if told.incomplete > tip.base {
        return Ok(Err("the snapshot behind the last break is not complete"));
    }
    let is_behind = told.position.stream <= tip.stream && told.position.base <= tip.base;
    if !is_behind {
        return Ok(Err("the replica is older than what was shipped, or another's"));
    }
    let Some(boundary) = boundary_behind(db, &told, end) else {
        return Ok(Err("what became of the file since is not known"));
    };
    let token = {
        let guard = db.lock_commit()?;
        let shared = db.log_shared();
        let token = shared.take_hold(&guard, db.process(), tip.stream, limit_bytes);
        if !shared.has_from(&guard, tip.stream) {
            drop(guard);
            shared.end_hold(token);
            return Ok(Err("the log no longer has what comes next"));
        }
        token
    };
    let is_its = match tip.crc {
        0 => told.position == *tip,
        crc => db.log()?.crc_of_frame_before(tip.stream)? == Some(crc),
    };
    if !is_its {
        db.log_shared().end_hold(token);
        return Ok(Err("the database has gone on in another way than the replica"));
    }
    Ok(Ok((token, Place { position: *tip, boundary })))
}

/// The change of the base behind `tip`: merges alone lead from what was shipped to it, and they are
/// those of its record.
fn boundary_behind(db: &Database, told: &Told, tip: &Tip) -> Option<u64> {
    let mut base = told.position.base;
    let mut number = told.boundary;
    let mut merges = tip.merges.iter().flatten();
    while base < tip.position.base {
        let boundary = db.boundaries().get(number)?;
        let Change::Merge(Some(written)) = boundary.change else { return None };
        let merge = (boundary.before, boundary.through, written);
        if boundary.before != base || merges.next() != Some(&merge) {
            return None;
        }
        (base, number) = (boundary.through, number + 1);
    }
    (base == tip.position.base).then_some(number)
}

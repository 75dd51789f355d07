//! The primary's database, as its sidecar reads it.
//!
//! Invariants of whoever implements it
//! - SOURCE-1 [`Source::read`] gives what happened in the order in which it may be relied on:
//!   frames of a generation behind all frames of those before, a merge behind the frames of its
//!   generations and before frames that need the memory which it freed, pages behind everything
//!   that their transaction found. So it asks for the end of the log first, then which merges there
//!   were, and gives each merge as soon as its frames were given.
//! - SOURCE-2 It gives only what is on the primary's disk, in a file that will be found (CHAIN-6).
//! - SOURCE-3 It gives whole frames, as the log has them, of one generation in one event.
//! - SOURCE-4 Nothing that was given, or is to be, leaves the log before [`Source::shipped`] names
//!   it, unless the log has grown past its limit: then [`Event::Lost`] comes before what follows.
//!   [`Source::begin`] starts to hold the log, and what holds it ends with the process.
//! - SOURCE-5 [`Source::begin`] says `Stream` or `Base` only if everything behind the tip's
//!   position is there to be given, and the base that this position names was the database's, byte
//!   for byte but for the salt's place. So the tip has to be the record that it was told of last, or
//!   the one behind that, with merges that it has made: what was shipped from a copy of the database
//!   may have this position too.
//! - SOURCE-6 The pages of a [`BaseCopy`] are those of one committed state of the base, which is
//!   complete through its generation and has nothing of later ones. It may be read while the
//!   database goes on.
//! - SOURCE-7 No commit waits for a call of this trait (CHAIN-5).

use crate::ids::{ChainId, CommitTs, Generation, Hash, Instance, Lsn, Nonce, Position, Salt};
use crate::record::{Follows, Frames, Item, Merge, Record};
use crate::shelf::Shelf;

/// Why a database cannot be read from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// It may work later: the call is repeated.
    #[error("{0}")]
    Later(String),
    /// The database is gone, or not in concurrent mode any more.
    #[error("{0}")]
    Ended(String),
}

/// The end of a chain, its last record, as a database may know it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TipOf {
    /// Where base and stream are.
    pub position: Position,
    /// Its hash.
    pub hash: Hash,
    /// That of the record before.
    pub previous: Hash,
    /// Its writer, if it is an OPEN.
    pub opening: Option<Nonce>,
    /// Merges in it; `None` if something else in it has changed the base, or is a break.
    pub merges: Option<Vec<Merge>>,
}

impl TipOf {
    /// Takes what may be known again from a record.
    pub fn new(record: &Record, hash: Hash) -> TipOf {
        let mut merges = Some(Vec::new());
        for item in &record.items {
            match item {
                Item::Merge(merge) => merges.iter_mut().for_each(|merges| merges.push(*merge)),
                Item::Pages(_) | Item::Break(_) => merges = None,
                Item::Open(_) | Item::Frames(_) | Item::Snapshot(_) => {}
            }
        }
        let merges = merges.filter(|_| !record.is_break());
        let opening = record.open().map(|_| record.header.nonce);
        let (position, previous) = (record.header.position, record.header.previous);
        TipOf { position, hash, previous, opening, merges }
    }
}

/// What the sidecar gets when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// What the database goes on from.
    pub follows: Follows,
    /// Where the events of [`Source::read`] begin. For `Stream` that is the tip's position; for
    /// `Base` its generation, in a new session; for `Nothing` the end of a generation that the base
    /// has, with the newest commit if the base has all of them.
    pub position: Position,
    /// Bytes of a segment of the log.
    pub segment_bytes: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Versions of the library.
    pub library: String,
    /// Why it follows nothing, for people.
    pub why: Option<String>,
}

/// Something that happened to the database.
pub enum Event {
    /// Commits.
    Frames(Frames),
    /// Generations were merged into the base.
    Merge(Merge),
    /// An exclusive transaction has changed the base.
    Pages {
        /// Generation of the base before.
        before: Generation,
        /// Generation that it has stamped.
        through: Generation,
        /// Bytes of a page.
        page_bytes: u32,
        /// Pages of the database behind it.
        page_count: u32,
        /// The pages that it has changed.
        pages: Box<dyn Pages>,
    },
    /// What comes next does not follow what came before.
    Lost {
        /// Where the stream goes on, not before its end.
        stream: Lsn,
        /// The base that the next merge or pages expect.
        base: Generation,
        /// Frames through this generation are incomplete, and so is a base below it.
        incomplete: Generation,
        /// The newest commit, if the base has all of them; else 0: a frame behind `stream` has it.
        commit: CommitTs,
        /// For people.
        why: String,
    },
}

/// Pages, some at a time.
pub trait Pages {
    /// Returns the next pages as `record::item::push_page` makes them, ascending, at least one and
    /// at most about `bytes`; `None` when there are no more.
    ///
    /// # Errors
    /// [`SourceError`]: the caller begins anew.
    fn next(&mut self, bytes: usize) -> Result<Option<Vec<u8>>, SourceError>;
}

/// A committed state of the base.
pub struct BaseCopy {
    /// Generation through which it is complete.
    pub generation: Generation,
    /// The session.
    pub salt: Salt,
    /// Position at which frames of later generations begin.
    pub stream: Lsn,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of the database.
    pub page_count: u32,
    /// All of them.
    pub pages: Box<dyn Pages>,
}

/// The primary's database.
pub trait Source {
    /// The database on its machine.
    fn instance(&self) -> Instance;

    /// Machine and process, for messages.
    fn host(&self) -> String;

    /// The chain that the database was last shipped to, as far as it knows.
    fn chain(&self) -> Option<ChainId>;

    /// The same, if it goes to the place that this sidecar is for.
    fn chain_here(&self) -> Option<ChainId> {
        self.chain()
    }

    /// When the database's file was made, in milliseconds since 1970, where that is known.
    fn made_ms(&self) -> Option<u64> {
        None
    }

    /// Notes who is about to make an OPEN, behind [`Source::begin`].
    ///
    /// # Errors
    /// [`SourceError`].
    fn note_opening(&mut self, writer: Nonce) -> Result<(), SourceError>;

    /// Notes to which chain it is shipped, and the hash of its OPEN, before the first record behind it.
    ///
    /// # Errors
    /// [`SourceError`].
    fn note_chain(&mut self, chain: ChainId, open: Hash) -> Result<(), SourceError>;

    /// Starts to give what is behind the chain's tip; `None`: there is no chain.
    ///
    /// # Errors
    /// [`SourceError`].
    fn begin(&mut self, tip: Option<&TipOf>) -> Result<Start, SourceError>;

    /// Returns what happened since the last call, of frames about `bytes` at most; nothing if
    /// nothing did.
    ///
    /// # Errors
    /// [`SourceError`].
    fn read(&mut self, bytes: usize) -> Result<Vec<Event>, SourceError>;

    /// Everything through this position is in the chain, whose last record has this hash (CHAIN-2); and can be restored, or
    /// only when a snapshot is complete.
    fn shipped(&mut self, record: Hash, through: &Position, is_restorable: bool);

    /// Returns a state of the base that is complete through `at_least`; `None` while there is none.
    ///
    /// # Errors
    /// [`SourceError`].
    fn base(&mut self, at_least: Generation) -> Result<Option<BaseCopy>, SourceError>;

    /// Where the sidecar may keep a file over its end, if it may.
    fn shelf(&self) -> Option<&dyn Shelf>;
}

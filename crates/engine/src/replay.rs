//! The log of a session, applied to a copy of its base elsewhere: what a restored replica needs.
//!
//! The owner has frames as the session wrote them, and a base at a place of that session that no
//! other process knows of. There is no session over the copy: no shared memory, no log, no fence to
//! raise. Merges are those of the session, entry by entry in the same order, so the pages are the
//! same (`tests/tests/files/equal_merges.rs`).
//!
//! Invariants
//! - REPLAY-1 Frames are taken in the order of the stream, each only if it is sound under the
//!   session's salt and names the frame before it of its generation. So damaged bytes, a gap and
//!   frames of another session are refused.
//! - REPLAY-2 A merge brings in the newest record of each key in the generations above the base
//!   through one of them, by root and key, in one transaction that stamps the last generation, as
//!   `upkeep/merge.rs` does. It stamps no fence, which nothing here needs: with one, locks of a
//!   session would be (`shm/read_marks.rs`).
//! - REPLAY-3 A prepared transaction commits nothing here. The frame that resolves it has its rows;
//!   where the stream ends before that frame, nobody was told of a commit ([`Replay::settle`]). The
//!   session merges its generation, or rests, behind that frame alone: without it both are refused.
//!
//! Memory: the rows that are not merged, which the session has in memtables at that place (176 MiB
//! at most).

use std::collections::BTreeMap;

use crate::base::{Base, BaseHeader};
use crate::error::{Error, Result};
use crate::ids::{CommitTs, Generation, Lsn};
use crate::log::Frame;
use crate::random;
use crate::session::{Newest, in_transaction, note_rows};

/// Frames that a base lacks.
#[derive(Debug)]
pub struct Replay {
    salt: u32,
    generations: BTreeMap<Generation, Newest>,
    /// The last frame: its generation, checksum, and commit.
    last: Option<(Generation, u32, CommitTs)>,
    /// What the first frame may name as the one before it, besides none.
    behind: u32,
    is_undecided: bool,
}

impl Replay {
    /// Begins without frames, in the session with this salt.
    pub fn new(salt: u32) -> Replay {
        Replay::behind(salt, 0)
    }

    /// Begins behind a frame with this checksum, which is elsewhere.
    pub fn behind(salt: u32, crc: u32) -> Replay {
        let generations = BTreeMap::new();
        Replay { salt, generations, last: None, behind: crc, is_undecided: false }
    }

    /// Goes on in another session over the same base.
    ///
    /// # Errors
    /// `Corrupt` if the base lacks frames of this one, or nothing tells whether it does (REPLAY-3).
    pub fn renew(&mut self, salt: u32) -> Result<()> {
        self.refuse_undecided()?;
        self.pass(Generation::new(u32::MAX))?;
        *self = Replay::new(salt);
        Ok(())
    }

    /// Goes on over a base that something else has brought through this generation: an exclusive
    /// transaction, or what came before it. A frame that prepared its pages is decided by them.
    ///
    /// # Errors
    /// `Corrupt` if such a base lacks rows.
    pub fn pass(&mut self, through: Generation) -> Result<()> {
        let is_later = |(of, _): &(Generation, Newest)| *of > through;
        let all = std::mem::take(&mut self.generations);
        let (later, passed): (Vec<_>, Vec<_>) = all.into_iter().partition(is_later);
        self.generations.extend(later);
        if let Some((lacks, _)) = passed.iter().find(|(_, rows)| !rows.is_empty()) {
            let why = format!("generation {lacks} was not merged before what comes next");
            self.generations.extend(passed);
            return Err(Error::Corrupt(why));
        }
        self.is_undecided = false;
        Ok(())
    }

    /// The newest generation that a base lacks.
    pub fn newest(&self) -> Option<Generation> {
        self.generations.keys().next_back().copied()
    }

    /// The last frame prepares a commit over several files that the stream does not decide
    /// (REPLAY-3).
    pub fn is_undecided(&self) -> bool {
        self.is_undecided
    }

    /// Takes whole frames that begin at `from` (REPLAY-1).
    ///
    /// # Errors
    /// `Corrupt`; the frames before the bad one are taken.
    pub fn take(&mut self, mut bytes: &[u8], from: Lsn) -> Result<()> {
        let mut at = from;
        while !bytes.is_empty() {
            let bad = |why: &str| Error::Corrupt(format!("the frame at {at} is not sound: {why}"));
            let frame = Frame::parse(bytes, self.salt, at).map_err(|e| bad(e.why()))?;
            let before = match self.last {
                Some((generation, crc, _)) if generation == frame.generation => crc,
                Some((generation, ..)) if generation > frame.generation => {
                    return Err(bad("its generation is an earlier one"));
                }
                None if frame.prev_crc == self.behind => self.behind,
                _ => 0,
            };
            if frame.prev_crc != before {
                return Err(bad("another frame was before it"));
            }
            if self.last.is_some_and(|(.., commit)| frame.commit_ts <= commit) {
                return Err(bad("its commit is an earlier one"));
            }
            note_rows(self.generations.entry(frame.generation).or_default(), frame.ops());
            self.is_undecided = frame.prepared().is_some();
            self.last = Some((frame.generation, frame.crc, frame.commit_ts));
            at = frame.end();
            bytes = &bytes[frame.len_bytes() as usize..];
        }
        Ok(())
    }

    /// Hands over the newest record of each key, for a database that merges by itself.
    pub(crate) fn drain(&mut self) -> Newest {
        let mut newest = Newest::new();
        std::mem::take(&mut self.generations).into_values().for_each(|rows| newest.extend(rows));
        newest
    }

    fn refuse_undecided(&self) -> Result<()> {
        match self.is_undecided {
            true => Err(Error::Corrupt(
                "a commit over several files was not decided before what comes next".to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Merges all that is left, at the end of the stream. A commit that is not decided there is left
    /// out (REPLAY-3).
    ///
    /// # Errors
    /// As [`Replay::merge`].
    pub fn settle(&mut self, base: &mut dyn Base) -> Result<()> {
        self.is_undecided = false;
        match self.newest() {
            Some(through) => self.merge(base, through),
            None => Ok(()),
        }
    }

    /// Merges the generations through this one (REPLAY-2).
    ///
    /// # Errors
    /// The base's, or `Corrupt` if it has one of them already, or lacks what decides a commit in one
    /// of them (REPLAY-3); then nothing is merged.
    pub fn merge(&mut self, base: &mut dyn Base, through: Generation) -> Result<()> {
        // A frame that prepares is the last one.
        if self.newest().is_some_and(|newest| through >= newest) {
            self.refuse_undecided()?;
        }
        let mut later = self.generations.split_off(&through.next());
        let mut newest = BTreeMap::new();
        self.generations.values().for_each(|rows| newest.extend(rows));
        let merged = in_transaction(base, |base| {
            let header = base.header()?;
            let first = self.generations.keys().next().copied().unwrap_or(through);
            if header.generation >= first.min(through) {
                return Err(Error::Corrupt(format!(
                    "generations {first} to {through} do not follow a base of {}",
                    header.generation
                )));
            }
            for ((root, key), (is_tombstone, rec)) in &newest {
                match is_tombstone {
                    true => base.delete(*root, key, rec)?,
                    false => base.put(*root, key, rec)?,
                }
            }
            base.stamp(&BaseHeader {
                marked: true,
                fenced: false,
                salt: self.salt,
                generation: through,
                ..BaseHeader::default()
            })
        });
        if merged.is_ok() {
            self.generations.clear();
        }
        self.generations.append(&mut later);
        merged
    }
}

/// Makes a copy of a base that lacks nothing a plain SQLite file at rest, in concurrent mode, with a
/// salt of its own: a log that lies about with the session's salt is none of this file's (FILE-3).
/// The WAL is empty then.
///
/// # Errors
/// The base's.
pub fn rest(base: &mut dyn Base) -> Result<()> {
    let header = base.header()?;
    let salt = std::iter::repeat_with(random::salt).find(|salt| *salt != header.salt);
    let salt = salt.expect("an endless iterator");
    in_transaction(base, |base| {
        base.stamp(&BaseHeader { marked: true, fenced: false, salt, ..header })
    })?;
    base.checkpoint(crate::base::Checkpoint::Truncate).map(|_| ())
}

//! What the shipper tells all processes: how far it is, and what is in its way. Also what a shipper
//! that comes later goes on from.
//!
//! - TOLD-1 These words are written under the commit mutex, between two stores of `seq` that make it odd
//!   and even again. A reader that meets a change reads again. A writer that died in between leaves it
//!   odd: then nothing is told until the next one writes.
//! - TOLD-2 How far the database is shipped, and where to, is written by whoever was given the last hold
//!   alone: a shipper that lost its hold to another one tells nothing more. What is in the way is
//!   written by the holder, and while there is none by whoever has it, as before a hold is taken.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};

use super::Database;
use crate::ids::{CommitTs, Generation, Lsn};
use crate::log::HoldToken;
use crate::shm::shipping::Shipping;
use crate::sync::clock::unix_ms;
use crate::sync::mutex::Guard;

/// How often a reader that meets a change reads again.
const TRIES: u32 = 64;

/// How far a database was shipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// The session.
    pub salt: u32,
    /// The base is complete through this generation.
    pub base: Generation,
    /// End of the last frame.
    pub stream: Lsn,
    /// The last commit, 0 if there is none.
    pub commit: CommitTs,
    /// The checksum that ends the last frame, 0 if none is known.
    pub crc: u32,
}

/// What is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Name of the chain; zeros: none is known.
    pub chain: [u8; 16],
    /// Where it is.
    pub place: String,
    /// How far the database was shipped there.
    pub position: Position,
    /// The beginning of the hash of the last record that is known there.
    pub record: [u8; 16],
    /// The nonce of the writer that may have opened it since.
    pub opening: [u8; 16],
    /// Changes of the base through that.
    pub boundary: u64,
    /// Frames through this generation are not all there; 0: they are.
    pub incomplete: Generation,
    /// When all of that was last known to be there, in milliseconds since 1970.
    pub known_ms: u64,
    /// What is in the way; empty: nothing.
    pub trouble: String,
    /// Since when, in milliseconds since 1970.
    pub trouble_since_ms: u64,
}

fn put_text(len: &AtomicU32, bytes: &[AtomicU8], text: &str) {
    let mut end = text.len().min(bytes.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in bytes.iter().zip(&text.as_bytes()[..end]) {
        to.store(*from, Relaxed);
    }
    len.store(end as u32, Relaxed);
}

fn text_of(len: &AtomicU32, bytes: &[AtomicU8]) -> String {
    let end = (len.load(Relaxed) as usize).min(bytes.len());
    let bytes: Vec<u8> = bytes[..end].iter().map(|byte| byte.load(Relaxed)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn name_of(words: &[AtomicU64]) -> [u8; 16] {
    let mut name = [0; 16];
    for (to, from) in name.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&from.load(Relaxed).to_le_bytes());
    }
    name
}

fn put_name(words: &[AtomicU64], name: [u8; 16]) {
    for (to, from) in words.iter().zip(name.chunks_exact(8)) {
        to.store(u64::from_le_bytes(from.try_into().expect("eight")), Relaxed);
    }
}

fn read(words: &Shipping) -> Told {
    Told {
        chain: name_of(&words.chain),
        record: name_of(&words.record),
        opening: name_of(&words.opening),
        place: text_of(&words.place_len, &words.place),
        position: Position {
            salt: words.salt.load(Relaxed),
            base: Generation::new(words.base.load(Relaxed)),
            stream: Lsn::new(words.stream.load(Relaxed)),
            commit: CommitTs::new(words.commit.load(Relaxed)),
            crc: words.crc.load(Relaxed),
        },
        boundary: words.boundary.load(Relaxed),
        incomplete: Generation::new(words.incomplete.load(Relaxed)),
        known_ms: words.known_ms.load(Relaxed),
        trouble: text_of(&words.trouble_len, &words.trouble),
        trouble_since_ms: words.trouble_since_ms.load(Relaxed),
    }
}

fn put_position(words: &Shipping, position: &Position, boundary: u64) {
    words.salt.store(position.salt, Relaxed);
    words.base.store(position.base.get(), Relaxed);
    words.stream.store(position.stream.get(), Relaxed);
    words.commit.store(position.commit.get(), Relaxed);
    words.crc.store(position.crc, Relaxed);
    words.boundary.store(boundary, Relaxed);
    words.known_ms.store(unix_ms(), Relaxed);
}

impl Database {
    /// (M)
    fn tell(&self, _: &Guard<'_>, write: impl FnOnce(&Shipping)) {
        let words = &self.region().layout().shipping;
        let seq = words.seq.load(Relaxed) & !1;
        words.seq.store(seq + 1, Relaxed);
        fence(Release);
        write(words);
        words.seq.store(seq + 2, Release);
    }

    /// Tells as the shipper that was given this token; nothing if another one was given one since
    /// (TOLD-2), or the database is not well.
    fn tell_as(&self, token: HoldToken, write: impl FnOnce(&Shipping)) {
        let Ok(guard) = self.lock_commit() else { return };
        if self.log_shared().was_given_last(&guard, token) {
            self.tell(&guard, write);
        }
    }

    /// What the shipper has told; nothing where a change of it did not end.
    pub fn told(&self) -> Told {
        let words = &self.region().layout().shipping;
        for _ in 0..TRIES {
            let seq = words.seq.load(Acquire);
            let told = read(words);
            fence(Acquire);
            if seq.is_multiple_of(2) && words.seq.load(Relaxed) == seq {
                return told;
            }
        }
        Told::default()
    }

    /// Notes who is about to make an OPEN.
    pub(crate) fn note_opening(&self, token: HoldToken, writer: [u8; 16]) {
        self.tell_as(token, |words| put_name(&words.opening, writer));
    }

    /// Notes where a shipper ships to, and from where on, with what is incomplete there, in one change
    /// of the words.
    pub(crate) fn note_begun(
        &self,
        token: HoldToken,
        (chain, record, place): ([u8; 16], [u8; 16], &str),
        (position, boundary): (&Position, u64),
        begins_anew: bool,
    ) {
        self.tell_as(token, |words| {
            put_name(&words.chain, chain);
            put_name(&words.record, record);
            put_text(&words.place_len, &words.place, place);
            if begins_anew {
                words.incomplete.store(Generation::ZERO.get(), Relaxed);
            }
            put_position(words, position, boundary);
        });
    }

    pub(crate) fn note_shipped(
        &self,
        token: HoldToken,
        record: [u8; 16],
        position: &Position,
        boundary: u64,
    ) {
        self.tell_as(token, |words| {
            put_name(&words.record, record);
            put_position(words, position, boundary);
        });
    }

    /// Notes that a record is known which moves nothing.
    pub(crate) fn note_known(&self, token: HoldToken, record: [u8; 16]) {
        self.tell_as(token, |words| {
            put_name(&words.record, record);
            words.known_ms.store(unix_ms(), Relaxed);
        });
    }

    /// (M) Notes that frames through a generation are not all given, by a shipper that has taken its
    /// hold under this guard.
    pub(crate) fn note_incomplete(&self, guard: &Guard<'_>, incomplete: Generation) {
        self.tell(guard, |words| words.incomplete.store(incomplete.get(), Relaxed));
    }

    /// Notes what keeps the database from being shipped; nothing does any more if that is empty. Not
    /// while another process holds the log (TOLD-2).
    pub fn note_shipping_trouble(&self, trouble: &str, since_ms: u64) {
        let Ok(guard) = self.lock_commit() else { return };
        if !self.log_shared().is_no_others(&guard, self.process()) {
            return;
        }
        self.tell(&guard, |words| {
            put_text(&words.trouble_len, &words.trouble, trouble);
            words.trouble_since_ms.store(since_ms, Relaxed);
        });
    }
}

//! What the shipper tells all processes: how far it is, and what is in its way. Also what a shipper
//! that comes later goes on from.
//!
//! - TOLD-1 The holder of the log alone writes these words, between two stores of `seq` that make it
//!   odd and even again. A reader that meets a change reads again. A writer that died in between
//!   leaves it odd: then nothing is told until the next one writes.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, fence};

use super::Database;
use crate::ids::{CommitTs, Generation, Lsn};
use crate::shm::shipping::Shipping;
use crate::sync::clock::unix_ms;

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

fn read(words: &Shipping) -> Told {
    let [low, high] = [&words.chain[0], &words.chain[1]].map(|word| word.load(Relaxed));
    let mut chain = [0; 16];
    chain[..8].copy_from_slice(&low.to_le_bytes());
    chain[8..].copy_from_slice(&high.to_le_bytes());
    Told {
        chain,
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
    fn tell(&self, write: impl FnOnce(&Shipping)) {
        let words = &self.region().layout().shipping;
        let seq = words.seq.load(Relaxed) & !1;
        words.seq.store(seq + 1, Relaxed);
        fence(Release);
        write(words);
        words.seq.store(seq + 2, Release);
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

    pub(crate) fn note_chain(&self, chain: [u8; 16], place: &str) {
        let half = |at: usize| u64::from_le_bytes(chain[at..at + 8].try_into().expect("eight"));
        self.tell(|words| {
            words.chain[0].store(half(0), Relaxed);
            words.chain[1].store(half(8), Relaxed);
            put_text(&words.place_len, &words.place, place);
        });
    }

    /// Notes where a shipper has begun, with what is incomplete there, in one change of the words.
    pub(crate) fn note_begun(&self, position: &Position, boundary: u64, incomplete: Generation) {
        self.tell(|words| {
            words.incomplete.store(incomplete.get(), Relaxed);
            put_position(words, position, boundary);
        });
    }

    pub(crate) fn note_shipped(&self, position: &Position, boundary: u64) {
        self.tell(|words| put_position(words, position, boundary));
    }

    pub(crate) fn note_known(&self) {
        self.tell(|words| words.known_ms.store(unix_ms(), Relaxed));
    }

    pub(crate) fn note_incomplete(&self, incomplete: Generation) {
        self.tell(|words| words.incomplete.store(incomplete.get(), Relaxed));
    }

    /// Notes what keeps the database from being shipped; nothing does any more if that is empty.
    pub fn note_shipping_trouble(&self, trouble: &str, since_ms: u64) {
        self.tell(|words| {
            put_text(&words.trouble_len, &words.trouble, trouble);
            words.trouble_since_ms.store(since_ms, Relaxed);
        });
    }
}

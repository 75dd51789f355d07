//! A database as this crate sees it: a base of pages that merges change in a way of their own, and
//! a log of frames.
//!
//! A page remembers, beside its rows, a digest of each merge that touched it. So a merge at another
//! place, or of other generations together, makes other pages of the same rows.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::dice::mix;
use crate::ids::{Generation, Salt};
use crate::record::item::push_page;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 512;
/// Bytes of a segment of the log.
pub const SEGMENT_BYTES: u64 = 1024;
/// Where page 1 has the salt.
const SALT: std::ops::Range<usize> = 72..76;
const HEADER_BYTES: usize = 48;
const OP_BYTES: usize = 8;

/// Rows by key.
pub type Rows = BTreeMap<u16, u32>;
/// New rows by key, `None` for one that is gone.
pub type Changes = BTreeMap<u16, Option<u32>>;

/// A digest of rows.
pub fn digest_of_rows(rows: &Rows) -> u64 {
    rows.iter().fold(1, |digest, (key, row)| mix(mix(digest, u64::from(*key)), u64::from(*row)))
}

/// Applies changes to rows.
pub fn apply(rows: &mut Rows, changes: &Changes) {
    for (key, row) in changes {
        match row {
            Some(row) => rows.insert(*key, *row),
            None => rows.remove(key),
        };
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Page {
    rows: Rows,
    trail: u64,
}

/// A base. Page 1 has no rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Its session.
    pub salt: Salt,
    /// The generation through which it is complete.
    pub generation: Generation,
    pages: Vec<Page>,
}

impl Base {
    /// A new one.
    pub fn new(salt: Salt) -> Base {
        Base { salt, generation: Generation(0), pages: vec![Page::default(); 4] }
    }

    /// Pages.
    pub fn page_count(&self) -> u32 {
        self.pages.len() as u32
    }

    /// All rows.
    pub fn rows(&self) -> Rows {
        self.pages.iter().flat_map(|page| page.rows.clone()).collect()
    }

    fn place_of(&self, key: u16) -> usize {
        1 + usize::from(key) % (self.pages.len() - 1)
    }

    /// The bytes of a page.
    pub fn page(&self, number: u32) -> [u8; PAGE_BYTES] {
        let page = &self.pages[number as usize - 1];
        let mut bytes = [0; PAGE_BYTES];
        if number == 1 {
            bytes[SALT].copy_from_slice(&self.salt.0.to_be_bytes());
            bytes[76..80].copy_from_slice(&self.generation.0.to_be_bytes());
        }
        bytes[100..108].copy_from_slice(&page.trail.to_le_bytes());
        bytes[108..110].copy_from_slice(&(page.rows.len() as u16).to_le_bytes());
        for (slot, (key, row)) in bytes[110..].chunks_exact_mut(6).zip(&page.rows) {
            slot[..2].copy_from_slice(&key.to_le_bytes());
            slot[2..].copy_from_slice(&row.to_le_bytes());
        }
        bytes
    }

    /// A base of these pages; `None` if one is missing.
    pub fn of_pages(pages: &BTreeMap<u32, Vec<u8>>, page_count: u32) -> Option<Base> {
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        let first = pages.get(&1)?;
        let (salt, generation) = (Salt(word(&first[SALT])), Generation(word(&first[76..80])));
        let mut base = Base { salt, generation, pages: Vec::new() };
        for number in 1..=page_count {
            let bytes = pages.get(&number)?;
            let trail = u64::from_le_bytes(bytes[100..108].try_into().expect("eight bytes"));
            let count = usize::from(u16::from_le_bytes([bytes[108], bytes[109]]));
            let rows = bytes[110..].chunks_exact(6).take(count).map(|slot| {
                let row = u32::from_le_bytes(slot[2..].try_into().expect("four bytes"));
                (u16::from_le_bytes([slot[0], slot[1]]), row)
            });
            base.pages.push(Page { rows: rows.collect(), trail });
        }
        Some(base)
    }

    /// Pages as they are shipped.
    pub fn list(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
        let mut list = Vec::new();
        numbers.into_iter().for_each(|number| push_page(&mut list, number, &self.page(number)));
        list
    }

    /// A digest of all pages, but for the salt.
    pub fn digest(&self) -> u64 {
        let digest = mix(u64::from(self.generation.0), self.pages.len() as u64);
        self.pages
            .iter()
            .fold(digest, |digest, page| mix(mix(digest, page.trail), digest_of_rows(&page.rows)))
    }

    /// Merges changes, and returns a checksum over the pages that this wrote.
    pub fn merge(&mut self, through: Generation, changes: &Changes) -> u32 {
        let before = self.generation;
        let mut touched: BTreeMap<usize, u64> = BTreeMap::new();
        for (key, row) in changes {
            let at = self.place_of(*key);
            let digest = touched.entry(at).or_insert(u64::from(before.0));
            let row = row.map_or(u64::MAX, u64::from);
            *digest = mix(mix(*digest, u64::from(*key)), row);
        }
        for (at, digest) in &touched {
            let page = &mut self.pages[*at];
            page.trail = mix(page.trail, mix(*digest, u64::from(through.0)));
        }
        for (key, row) in changes {
            let at = self.place_of(*key);
            apply(&mut self.pages[at].rows, &[(*key, *row)].into());
        }
        self.generation = through;
        self.pages[0].trail = mix(self.pages[0].trail, u64::from(through.0));
        self.sum(std::iter::once(0).chain(touched.into_keys()))
    }

    fn sum(&self, places: impl Iterator<Item = usize>) -> u32 {
        places.fold(0, |sum, at| {
            let number = at as u32 + 1;
            let mut page = self.page(number);
            if number == 1 {
                page[SALT].fill(0);
            }
            crc32c::crc32c_append(crc32c::crc32c_append(sum, &number.to_le_bytes()), &page)
        })
    }

    /// An exclusive transaction: writes rows, and lays all of them out anew if `page_count` is
    /// another. Returns the pages that it has changed.
    pub fn exclusive(
        &mut self,
        through: Generation,
        changes: &Changes,
        page_count: u32,
        chance: u64,
    ) -> Vec<u32> {
        let before = self.clone();
        let mut rows = self.rows();
        apply(&mut rows, changes);
        if page_count != self.page_count() {
            let fresh = Page { trail: chance, ..Page::default() };
            self.pages = vec![fresh; page_count as usize];
        }
        self.pages.iter_mut().for_each(|page| page.rows.clear());
        for (key, row) in rows {
            let at = self.place_of(key);
            self.pages[at].rows.insert(key, row);
        }
        for key in changes.keys() {
            let at = self.place_of(*key);
            self.pages[at].trail = mix(self.pages[at].trail, chance);
        }
        self.generation = through;
        self.pages[0].trail = mix(self.pages[0].trail, chance);
        let is_changed = |number: &u32| {
            *number > before.page_count() || before.page(*number) != self.page(*number)
        };
        (1..=self.page_count()).filter(is_changed).collect()
    }
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its generation.
    pub generation: Generation,
    /// Where it begins.
    pub lsn: u64,
    /// Its timestamp.
    pub commit: u64,
    /// What it changes.
    pub changes: Changes,
}

impl Frame {
    /// The frame as bytes.
    pub fn encode(&self, salt: Salt) -> Bytes {
        let length = HEADER_BYTES + self.changes.len() * OP_BYTES + 8;
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..4].copy_from_slice(b"PLTF");
        bytes[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.commit.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.generation.0.to_le_bytes());
        for (key, row) in &self.changes {
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&u16::from(row.is_some()).to_le_bytes());
            bytes.extend_from_slice(&row.unwrap_or(0).to_le_bytes());
        }
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(salt.0, &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.into()
    }

    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.lsn + (HEADER_BYTES + self.changes.len() * OP_BYTES + 8) as u64
    }

    /// Reads frames that follow each other from `lsn` on; `None` if they are not sound.
    pub fn decode_all(mut bytes: &[u8], salt: Salt, mut lsn: u64) -> Option<Vec<Frame>> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let word =
                |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
            let long =
                |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
            let length = word(4)? as usize;
            let (frame, rest) = bytes.split_at_checked(length)?;
            let crc = crc32c::crc32c_append(salt.0, &frame[..length.checked_sub(4)?]);
            if word(length - 4)? != crc || long(8)? != lsn {
                return None;
            }
            let ops = frame[HEADER_BYTES..length - 8].chunks_exact(OP_BYTES).map(|op| {
                let row = u32::from_le_bytes(op[4..].try_into().expect("four bytes"));
                (u16::from_le_bytes([op[0], op[1]]), (op[2] != 0).then_some(row))
            });
            frames.push(Frame {
                generation: Generation(word(32)?),
                lsn,
                commit: long(16)?,
                changes: ops.collect(),
            });
            lsn += length as u64;
            bytes = rest;
        }
        Some(frames)
    }
}

/// The newest change of each key in the frames of some generations.
pub fn newest_of<'a>(frames: impl Iterator<Item = &'a Frame>) -> Changes {
    frames.flat_map(|frame| frame.changes.clone()).collect()
}

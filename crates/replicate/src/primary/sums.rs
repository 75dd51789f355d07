//! Sums of the pages of the newest snapshot, on the sidecar's shelf: by them the next snapshot
//! leaves out what has not changed.
//!
//! ```text
//! sums      0  magic             8   "PlaitSum"
//!           8  version           u32 1
//!          12  page bytes        u32
//!          16  page count        u32
//!          20  chain             16
//!          36  key               16  random
//!          52  begun             u64 the upload whose pages these are
//!          60  nonce             16
//!          76  serial            u32
//!          80  sums              16 each, of pages 1 to page count
//!           .  parts             32  SHA-256 over the hashes of the upload's parts
//!           .  crc               u32 CRC-32C of all before
//! ```
//!
//! A sum is the first 16 bytes of SHA-256 over key and page. A changed page is taken for an unchanged
//! one, and lost, if both have one sum: once in 2^128 (3 x 10^38) changed pages. A disk that is sound
//! returns a wrong block unnoticed far more often. Who chooses the rows could look for two pages of
//! one sum, with 2^64 tries, if the key were known: it is random, anew with each whole snapshot, and
//! in this file alone, which its owner alone can read.
//!
//! - SUMS-1 Sums count only if they are of exactly the chain's newest snapshot: the file is whole, and
//!   names its chain, its upload and all its parts. Which database was copied does not matter: equal
//!   sums are equal pages.
//! - SUMS-2 They are put behind the record that names their snapshot. A sidecar that is killed in
//!   between finds those of the snapshot before, which do not count: its next snapshot is whole.

use std::io::{self, BufRead as _, BufReader, Read};

use sha2::{Digest as _, Sha256};

use crate::fault::{Fault, is_planted};
use crate::ids::{ChainId, Hash, Nonce, RecordNumber};
use crate::names::Upload;
use crate::record::{Part, SnapshotRef};
use crate::shelf::{Draft, Shelf};

const MAGIC: [u8; 8] = *b"PlaitSum";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 80;
const SUM_BYTES: usize = 16;
const END_BYTES: usize = 36;

/// What makes sums secret.
pub type Key = [u8; 16];
/// The sum of a page.
type Sum = [u8; SUM_BYTES];

/// What a file of sums says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The chain.
    pub chain: ChainId,
    /// The upload whose pages these are.
    pub upload: Upload,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages.
    pub page_count: u32,
    /// With which they were summed.
    pub key: Key,
}

impl About {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let fields: [&[u8]; 9] = [
            &MAGIC,
            &VERSION.to_le_bytes(),
            &self.page_bytes.to_le_bytes(),
            &self.page_count.to_le_bytes(),
            &self.chain.0,
            &self.key,
            &self.upload.begun.0.to_le_bytes(),
            &self.upload.nonce.0,
            &self.upload.serial.to_le_bytes(),
        ];
        bytes.copy_from_slice(&fields.concat());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<About> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let name = |at: usize| bytes[at..at + 16].try_into().expect("sixteen");
        let begun = u64::from_le_bytes(bytes[52..60].try_into().expect("eight"));
        let (nonce, serial) = (Nonce(name(60)), word(76));
        (bytes.starts_with(&MAGIC) && word(8) == VERSION).then_some(About {
            chain: ChainId(name(20)),
            upload: Upload { begun: RecordNumber(begun), nonce, serial },
            page_bytes: word(12),
            page_count: word(16),
            key: name(36),
        })
    }
}

fn sum_of(key: &Key, page: &[u8]) -> Sum {
    let hash = Sha256::new().chain_update(key).chain_update(page).finalize();
    hash[..SUM_BYTES].try_into().expect("a hash is longer")
}

fn hash_of(parts: &[Part]) -> Hash {
    let hashes: Vec<u8> = parts.iter().flat_map(|part| part.hash.0).collect();
    Hash::of(&hashes)
}

/// The sums of a snapshot, page by page.
pub struct Known {
    /// What they are of.
    pub about: About,
    file: BufReader<Box<dyn Read>>,
    next: u32,
}

/// Finds the sums of a snapshot on the shelf; `None` if there are none that count (SUMS-1).
///
/// # Errors
/// The system's.
pub fn known(
    shelf: &dyn Shelf,
    chain: ChainId,
    snapshot: &SnapshotRef,
) -> io::Result<Option<Known>> {
    let Some((about, parts)) = checked(shelf)? else { return Ok(None) };
    let is_its = about.upload == snapshot.parts.upload && parts == hash_of(&snapshot.parts.each);
    let is_alike =
        (about.page_bytes, about.page_count) == (snapshot.page_bytes, snapshot.page_count);
    let counts = about.chain == chain && is_its && is_alike;
    if !counts && !is_planted(Fault::SumsOfAnother) {
        return Ok(None);
    }
    let Some(file) = shelf.read()? else { return Ok(None) };
    let mut file = BufReader::new(file);
    // It may have been replaced since.
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header)?;
    Ok((header == about.encode()).then_some(Known { about, file, next: 1 }))
}

/// Reads the file once from end to end; `None` if there is none, or it is not whole.
fn checked(shelf: &dyn Shelf) -> io::Result<Option<(About, Hash)>> {
    let Some(file) = shelf.read()? else { return Ok(None) };
    match read_through(BufReader::new(file)) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        other => other,
    }
}

fn read_through(mut file: BufReader<Box<dyn Read>>) -> io::Result<Option<(About, Hash)>> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header)?;
    let Some(about) = About::decode(&header) else { return Ok(None) };
    let mut crc = crc32c::crc32c(&header);
    let mut left = u64::from(about.page_count) * SUM_BYTES as u64;
    while left > 0 {
        let some = file.fill_buf()?;
        if some.is_empty() {
            return Ok(None);
        }
        let taken = some.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        crc = crc32c::crc32c_append(crc, &some[..taken]);
        file.consume(taken);
        left -= taken as u64;
    }
    let mut end = [0; END_BYTES];
    file.read_exact(&mut end)?;
    let (parts, stated) = end.split_at(32);
    let is_whole =
        crc32c::crc32c_append(crc, parts).to_le_bytes() == stated && file.fill_buf()?.is_empty();
    Ok(is_whole.then(|| (about, Hash(parts.try_into().expect("of that length")))))
}

impl Known {
    /// The sum of a page; `None` if there is none. Numbers ascend from call to call.
    fn sum(&mut self, number: u32) -> Option<Sum> {
        let mut sum = None;
        while self.next <= number.min(self.about.page_count) {
            let mut bytes = [0; SUM_BYTES];
            // What cannot be read any more counts as changed.
            self.file.read_exact(&mut bytes).ok()?;
            sum = (self.next == number).then_some(bytes);
            self.next += 1;
        }
        sum
    }
}

/// The sums of a snapshot that is being made, beside those of the one that it changes.
pub struct Summing {
    key: Key,
    parent: Option<Known>,
    /// `None` where they cannot be kept: then the next snapshot is whole.
    draft: Option<Box<dyn Draft>>,
    crc: u32,
    next: u32,
    page_count: u32,
}

impl Summing {
    /// Begins, with the key of what is changed, or with one that is new. Without a shelf, or room on
    /// it, nothing is kept.
    pub fn begin(shelf: Option<&dyn Shelf>, about: About, parent: Option<Known>) -> Summing {
        let key = parent.as_ref().map_or(about.key, |parent| parent.about.key);
        let header = About { key, ..about }.encode();
        let draft = shelf.and_then(|shelf| shelf.begin().ok());
        let (crc, page_count) = (0, about.page_count);
        let mut summing = Summing { key, parent, draft, crc, next: 1, page_count };
        summing.write(&header);
        summing
    }

    fn write(&mut self, bytes: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        if self.draft.as_mut().is_some_and(|draft| draft.write_all(bytes).is_err()) {
            self.draft = None;
        }
    }

    /// Takes a page, and says whether it has changed. Numbers ascend from call to call.
    pub fn is_changed(&mut self, number: u32, page: &[u8]) -> bool {
        let sum = sum_of(&self.key, page);
        if number != self.next {
            self.draft = None;
        }
        self.next = number.saturating_add(1);
        self.write(&sum);
        self.parent.as_mut().and_then(|parent| parent.sum(number)) != Some(sum)
    }

    /// Ends behind the last page of an upload, whose parts these are. What comes back is to be put
    /// when the snapshot is known.
    pub fn end(mut self, parts: &[Part]) -> Option<Box<dyn Draft>> {
        let Hash(hash) = hash_of(parts);
        self.write(&hash);
        let crc = self.crc.to_le_bytes();
        self.write(&crc);
        self.draft.filter(|_| self.next > self.page_count)
    }
}

#[cfg(test)]
mod tests;

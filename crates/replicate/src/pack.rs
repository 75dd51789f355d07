//! A pack: the records of a range of numbers in one object.
//!
//! ```text
//! pack      0  magic             8   "PlaitPak"
//!           8  version           u32 1
//!          12  count             u32
//!          16  chain             16
//!          32  first             u64 number of the first record
//!          40  first written     u64 milliseconds since 1970
//!          48  last written      u64
//!          56  index crc         u32 CRC-32C of the index
//!          60  crc               u32 CRC-32C of bytes 0..60
//!          64  index             for each record:
//!                                  offset u64, length u32, flags u32, SHA-256 32
//!           .  records           whole objects, as they were in chain/
//! ```
//!
//! Bit 0 of the flags, with offset 0: the record is large and stays in `chain/`. Bit 1: it begins
//! with an OPEN. What is compressed is so in its records already.

use bytes::Bytes;

use crate::ids::{ChainId, Hash, RecordNumber};

/// First bytes of a pack.
pub const MAGIC: [u8; 8] = *b"PlaitPak";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 48;
const IN_CHAIN: u32 = 1;
const IS_OPEN: u32 = 2;
/// Records of a pack at most.
pub const RECORDS_MAX: u64 = 256;
/// A header and the longest index.
pub const INDEX_BYTES_MAX: usize = HEADER_BYTES + RECORDS_MAX as usize * ENTRY_BYTES;
/// A record of this length or more stays in `chain/`, where nothing else is set.
pub const LARGE_BYTES: usize = 64 << 10;

/// A record on its way into a pack.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The object, `None` if it stays in `chain/`.
    pub bytes: Option<Bytes>,
    /// Its length.
    pub len_bytes: usize,
    /// Its hash.
    pub hash: Hash,
    /// When it was written.
    pub written_ms: u64,
    /// True if it begins with an OPEN.
    pub is_open: bool,
}

impl Packed {
    /// Takes the object of a record.
    pub fn new(
        bytes: &Bytes,
        hash: Hash,
        written_ms: u64,
        is_open: bool,
        large_bytes: usize,
    ) -> Packed {
        let kept = (bytes.len() < large_bytes).then(|| bytes.clone());
        Packed { bytes: kept, len_bytes: bytes.len(), hash, written_ms, is_open }
    }
}

/// Where a record is that a pack covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Here are its bytes.
    Here(Bytes),
    /// In `chain/`, with this hash.
    InChain(Hash),
}

/// A pack that was read.
#[derive(Clone, Debug)]
pub struct Pack {
    /// The chain.
    pub chain: ChainId,
    /// Number of the first record.
    pub first: RecordNumber,
    /// When the last record was written.
    pub last_written_ms: u64,
    entries: Vec<Entry>,
    opens: Vec<bool>,
}

/// Why bytes are not a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPack {
    /// It does not begin as a pack does.
    #[error("it is not a pack of records")]
    Foreign,
    /// The version is unknown.
    #[error("it was written by a later version of Plait (format {0}, this one reads {VERSION})")]
    Later(u32),
    /// A checksum, a length or a hash does not fit.
    #[error("its {0} does not match")]
    Damaged(&'static str),
    /// The store has it, and does not give it.
    #[error("the store does not give it")]
    Unread,
}

/// Encodes a pack of records that follow each other.
pub fn encode(chain: ChainId, first: RecordNumber, records: &[Packed]) -> Bytes {
    let index_bytes = records.len() * ENTRY_BYTES;
    let mut index = Vec::with_capacity(index_bytes);
    let mut offset = (HEADER_BYTES + index_bytes) as u64;
    for record in records {
        let mut flags = if record.is_open { IS_OPEN } else { 0 };
        let at = match &record.bytes {
            Some(bytes) => {
                let at = offset;
                offset += bytes.len() as u64;
                at
            }
            None => {
                flags |= IN_CHAIN;
                0
            }
        };
        index.extend_from_slice(&at.to_le_bytes());
        index.extend_from_slice(&(record.len_bytes as u32).to_le_bytes());
        index.extend_from_slice(&flags.to_le_bytes());
        index.extend_from_slice(&record.hash.0);
    }
    let written = |record: Option<&Packed>| record.map_or(0, |r| r.written_ms).to_le_bytes();
    let mut out = Vec::with_capacity(offset as usize);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(records.len() as u32).to_le_bytes());
    out.extend_from_slice(&chain.0);
    out.extend_from_slice(&first.0.to_le_bytes());
    out.extend_from_slice(&written(records.first()));
    out.extend_from_slice(&written(records.last()));
    out.extend_from_slice(&crc32c::crc32c(&index).to_le_bytes());
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&index);
    records.iter().filter_map(|r| r.bytes.as_ref()).for_each(|bytes| out.extend_from_slice(bytes));
    out.into()
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as long as asked for")
}

/// The header and the index with which a pack begins.
fn index_of(bytes: &[u8]) -> Result<(&[u8], &[u8]), BadPack> {
    if bytes.get(..8) != Some(&MAGIC) {
        return Err(BadPack::Foreign);
    }
    let head = bytes.get(..HEADER_BYTES).ok_or(BadPack::Damaged("length"))?;
    if crc32c::crc32c(&head[..60]) != u32::from_le_bytes(word(head, 60)) {
        return Err(BadPack::Damaged("checksum"));
    }
    let version = u32::from_le_bytes(word(head, 8));
    if version != VERSION {
        return Err(BadPack::Later(version));
    }
    let count = u32::from_le_bytes(word(head, 12)) as usize;
    let index_end = HEADER_BYTES + count * ENTRY_BYTES;
    let index = bytes.get(HEADER_BYTES..index_end).ok_or(BadPack::Damaged("length"))?;
    if crc32c::crc32c(index) != u32::from_le_bytes(word(head, 56)) {
        return Err(BadPack::Damaged("checksum"));
    }
    Ok((head, index))
}

impl Pack {
    /// Decodes a pack, and checks every record in it against its hash.
    ///
    /// # Errors
    /// [`BadPack`].
    pub fn decode(bytes: &Bytes) -> Result<Pack, BadPack> {
        let (head, index) = index_of(bytes)?;
        let (mut entries, mut opens) = (Vec::new(), Vec::new());
        let mut end = HEADER_BYTES + index.len();
        for entry in index.chunks_exact(ENTRY_BYTES) {
            let length = u32::from_le_bytes(word(entry, 8)) as usize;
            let flags = u32::from_le_bytes(word(entry, 12));
            let hash = Hash(word(entry, 16));
            opens.push(flags & IS_OPEN != 0);
            if flags & IN_CHAIN != 0 {
                entries.push(Entry::InChain(hash));
                continue;
            }
            if u64::from_le_bytes(word(entry, 0)) != end as u64 || end + length > bytes.len() {
                return Err(BadPack::Damaged("index"));
            }
            let record = bytes.slice(end..end + length);
            if Hash::of(&record) != hash {
                return Err(BadPack::Damaged("record"));
            }
            end += length;
            entries.push(Entry::Here(record));
        }
        if end != bytes.len() || entries.is_empty() {
            return Err(BadPack::Damaged("length"));
        }
        Ok(Pack {
            chain: ChainId(word(head, 16)),
            first: RecordNumber(u64::from_le_bytes(word(head, 32))),
            last_written_ms: u64::from_le_bytes(word(head, 48)),
            entries,
            opens,
        })
    }

    /// The records that a pack leaves in `chain/`, by its beginning with the index; `None` if that is no sound one.
    pub fn left_in_chain(beginning: &[u8]) -> Option<Vec<RecordNumber>> {
        let (head, index) = index_of(beginning).ok()?;
        let first = u64::from_le_bytes(word(head, 32));
        let is_left = |entry: &[u8]| u32::from_le_bytes(word(entry, 12)) & IN_CHAIN != 0;
        let numbered = (first..).zip(index.chunks_exact(ENTRY_BYTES));
        Some(numbered.filter(|(_, of)| is_left(of)).map(|(of, _)| RecordNumber(of)).collect())
    }

    /// Number of the last record.
    pub fn last(&self) -> RecordNumber {
        RecordNumber(self.first.0 + self.entries.len() as u64 - 1)
    }

    /// Where a record is; `None` if the pack does not cover it.
    pub fn entry(&self, number: RecordNumber) -> Option<&Entry> {
        self.entries.get(usize::try_from(number.0.checked_sub(self.first.0)?).ok()?)
    }

    /// True if the record begins with an OPEN, or nothing is known of it.
    pub fn may_be_open(&self, number: RecordNumber) -> bool {
        let at = number.0.checked_sub(self.first.0).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.opens.get(at).copied()).unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(bodies: &[Vec<u8>]) -> (Vec<Packed>, Bytes) {
        let records: Vec<Packed> = (0..)
            .zip(bodies)
            .map(|(i, body)| {
                let bytes = Bytes::from(body.clone());
                Packed::new(&bytes, Hash::of(&bytes), i, i % 3 == 0, LARGE_BYTES)
            })
            .collect();
        let bytes = encode(ChainId([7; 16]), RecordNumber(5), &records);
        (records, bytes)
    }

    fn bodies() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let small = prop::collection::vec(any::<u8>(), 0..60);
        let large = Just(vec![3; LARGE_BYTES]);
        prop::collection::vec(prop_oneof![9 => small, 1 => large], 1..9)
    }

    proptest! {
        #[test]
        fn a_pack_reads_back_as_the_records_that_went_into_it(bodies in bodies()) {
            let (records, bytes) = packed(&bodies);
            let pack = Pack::decode(&bytes).expect("a sound pack");
            prop_assert_eq!(pack.first, RecordNumber(5));
            prop_assert_eq!(pack.last().0, 4 + records.len() as u64);
            for (number, record) in (5..).map(RecordNumber).zip(&records) {
                let expected = match &record.bytes {
                    Some(bytes) => Entry::Here(bytes.clone()),
                    None => Entry::InChain(record.hash),
                };
                prop_assert_eq!(pack.entry(number), Some(&expected));
            }
            let left = (5..).map(RecordNumber).zip(&records).filter(|(_, of)| of.bytes.is_none());
            let left: Vec<_> = left.map(|(number, _)| number).collect();
            let beginning = &bytes[..bytes.len().min(INDEX_BYTES_MAX)];
            prop_assert_eq!(Pack::left_in_chain(beginning), Some(left));
            prop_assert_eq!(pack.entry(RecordNumber(4)), None);
            prop_assert_eq!(pack.entry(pack.last().next()), None);
            for (number, record) in (5..).map(RecordNumber).zip(&records) {
                prop_assert_eq!(pack.may_be_open(number), record.is_open);
            }
            prop_assert!(pack.may_be_open(pack.last().next()));
        }

        #[test]
        fn a_pack_that_was_cut_short_or_went_on_is_refused(bodies in bodies(), at: prop::sample::Index) {
            let (_, bytes) = packed(&bodies);
            prop_assert!(Pack::decode(&bytes.slice(..at.index(bytes.len()))).is_err());
            let longer = [&bytes[..], b"x"].concat();
            prop_assert!(Pack::decode(&longer.into()).is_err());
        }

        #[test]
        fn a_pack_with_a_flipped_bit_is_refused(bodies in bodies(), at: prop::sample::Index, bit in 0..8) {
            let (_, bytes) = packed(&bodies);
            let mut bad = bytes.to_vec();
            bad[at.index(bytes.len())] ^= 1u8 << bit;
            prop_assert!(Pack::decode(&bad.into()).is_err());
        }

        #[test]
        fn foreign_bytes_are_no_pack(bytes: Vec<u8>) {
            prop_assert!(Pack::decode(&bytes.clone().into()).is_err());
            let named = [&MAGIC[..], &bytes].concat();
            prop_assert!(Pack::decode(&named.into()).is_err());
        }
    }
}

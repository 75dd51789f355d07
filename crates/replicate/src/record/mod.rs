//! A record of the chain: header and items, as bytes and back.
//!
//! ```text
//! record    0  magic             8   "PlaitRec"
//!           8  version           u32 1
//!          12  flags             u32 bit 0: the body is compressed by zstd; the others are 0
//!          16  chain             16
//!          32  number            u64 from 1
//!          40  epoch             u64 number of OPENs through this record
//!          48  nonce             16  of the writer
//!          64  previous          32  SHA-256 of the record before; zeros in record 1
//!          96  written           u64 milliseconds since 1970
//!         104  stream            u64 LSN behind the last frame through this record
//!         112  commit            u64 last commit of the session through this record, 0 none
//!         120  salt              u32
//!         124  base              u32 generation through which the base is complete
//!         128  first             u64 first record with frames above `base`; number + 1 if none has
//!         136  snapshot          u64 newest record with a SNAPSHOT, this one included; 0 none
//!         144  broken            u64 newest record that begins with a break, this one included
//!         152  opened            u64 the OPEN of this epoch
//!         160  segment bytes     u32
//!         164  frame crc         u32 with which the last frame ends, 0 none
//!         168  item count        u32
//!         172  raw length        u32 of the body
//!         176  stored length     u32 of the body
//!         180  body crc          u32 CRC-32C of the stored body
//!         184  crc               u32 CRC-32C of bytes 0..184
//!         188  body
//! ```
//!
//! Integers are little-endian. [`item`] has the layout of the body, `docs/decisions/chain.md` what
//! it all is for. A record is input: nothing of it is believed before both checksums are right, and
//! no length in it makes the reader allocate more than [`RAW_BYTES_MAX`].

pub(crate) mod compress;
pub mod item;
mod wire;

use bytes::Bytes;

pub use item::{
    Body, Break, Follows, Frames, Item, Merge, Open, PageSet, Part, Parts, SnapshotRef,
};
use wire::{Reader, Writer};

use self::compress::{compress_behind, inflate};
use crate::ids::{
    ChainId, CommitTs, Epoch, Generation, Hash, Lsn, Nonce, Position, RecordNumber, Salt,
};

/// First bytes of a record.
pub const MAGIC: [u8; 8] = *b"PlaitRec";
/// Version of this format.
pub const VERSION: u32 = 1;
/// Bytes before the body.
pub const HEADER_BYTES: usize = 188;
/// Longest body, uncompressed: twice the longest frame, and its headers.
pub const RAW_BYTES_MAX: usize = (16 << 20) + (64 << 10);
const COMPRESSED: u32 = 1;
/// Everything in a record's header that is not about its body.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// The chain.
    pub chain: ChainId,
    /// The record's place in it.
    pub number: RecordNumber,
    /// OPENs through this record.
    pub epoch: Epoch,
    /// The writer.
    pub nonce: Nonce,
    /// Hash of the record before.
    pub previous: Hash,
    /// Milliseconds since 1970, by the writer's clock.
    pub written_ms: u64,
    /// Where base and stream are behind this record.
    pub position: Position,
    /// First record with frames above the base's generation.
    pub first: RecordNumber,
    /// Newest record with a snapshot, this one included.
    pub snapshot: RecordNumber,
    /// Newest record that begins with a break, this one included.
    pub broken: RecordNumber,
    /// The OPEN of this epoch.
    pub opened: RecordNumber,
    /// Bytes of a segment of the stream.
    pub segment_bytes: u32,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its header.
    pub header: Header,
    /// What happened since the record before.
    pub items: Vec<Item>,
}

/// Why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// It does not begin as a record does.
    #[error("it is not a record of a chain")]
    Foreign,
    /// The version is unknown.
    #[error("it was written by a later version of Plait (format {0}, this one reads {VERSION})")]
    Later(u32),
    /// The bytes end before the record does, or go on behind it.
    #[error("it is {found} bytes long in place of {stated}")]
    Length {
        /// Bytes that there are.
        found: usize,
        /// Bytes that its header states.
        stated: usize,
    },
    /// A checksum differs.
    #[error("the checksum of its {0} does not match")]
    Checksum(&'static str),
    /// The checksums match, yet it makes no sense.
    #[error("its {0} is malformed under a right checksum")]
    Malformed(&'static str),
    /// The store has it, and does not give it.
    #[error("the store does not give it")]
    Unread,
}

impl Record {
    /// Encodes the record.
    ///
    /// # Panics
    /// If the items are longer than [`RAW_BYTES_MAX`], which their maker has to see to.
    pub fn encode(&self) -> Bytes {
        let mut body = Writer::with_capacity(self.items.iter().map(Item::len_max).sum());
        self.items.iter().for_each(|item| item.encode(&mut body));
        let raw = body.into_bytes();
        assert!(raw.len() <= RAW_BYTES_MAX, "a record of {} bytes", raw.len());
        let (is_compressed, mut out) = compress_behind(HEADER_BYTES, &raw);
        let header = self.encode_header(is_compressed, raw.len(), &out[HEADER_BYTES..]);
        out[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        out.into()
    }

    fn encode_header(&self, is_compressed: bool, raw_bytes: usize, stored: &[u8]) -> Writer {
        let header = &self.header;
        let mut out = Writer::with_capacity(HEADER_BYTES);
        out.bytes(&MAGIC);
        out.u32(VERSION);
        out.u32(if is_compressed { COMPRESSED } else { 0 });
        out.bytes(&header.chain.0);
        out.u64(header.number.0);
        out.u64(header.epoch.0);
        out.bytes(&header.nonce.0);
        out.bytes(&header.previous.0);
        out.u64(header.written_ms);
        out.u64(header.position.stream.0);
        out.u64(header.position.commit.0);
        out.u32(header.position.salt.0);
        out.u32(header.position.base.0);
        out.u64(header.first.0);
        out.u64(header.snapshot.0);
        out.u64(header.broken.0);
        out.u64(header.opened.0);
        out.u32(header.segment_bytes);
        out.u32(header.position.crc);
        out.u32(self.items.len() as u32);
        out.u32(raw_bytes as u32);
        out.u32(stored.len() as u32);
        out.u32(crc32c::crc32c(stored));
        let crc = crc32c::crc32c(out.as_bytes());
        out.u32(crc);
        out
    }

    /// Decodes a record, which is the whole of `bytes`.
    ///
    /// # Errors
    /// [`BadRecord`].
    pub fn decode(bytes: &Bytes) -> Result<Record, BadRecord> {
        let (header, outline) = decode_header(bytes)?;
        let stated = HEADER_BYTES + outline.stored_bytes as usize;
        if bytes.len() != stated {
            return Err(BadRecord::Length { found: bytes.len(), stated });
        }
        let stored = bytes.slice(HEADER_BYTES..);
        if crc32c::crc32c(&stored) != outline.body_crc {
            return Err(BadRecord::Checksum("body"));
        }
        let raw = decompress(&stored, &outline)?;
        let mut reader = Reader::new(&raw);
        let mut items = Vec::new();
        for _ in 0..outline.item_count {
            items.push(Item::decode(&mut reader).ok_or(BadRecord::Malformed("body"))?);
        }
        if !reader.is_empty() || !item::are_in_order(&items) {
            return Err(BadRecord::Malformed("body"));
        }
        Ok(Record { header, items })
    }

    /// The OPEN with which the record begins.
    pub fn open(&self) -> Option<&Open> {
        match self.items.first() {
            Some(Item::Open(open)) => Some(open),
            _ => None,
        }
    }

    /// True if nothing before the record leads on to what is behind it.
    pub fn is_break(&self) -> bool {
        match self.items.first() {
            Some(Item::Open(open)) => open.follows == Follows::Nothing,
            Some(Item::Break(_)) => true,
            _ => false,
        }
    }
}

/// What a header says of the body.
struct Outline {
    flags: u32,
    item_count: u32,
    raw_bytes: u32,
    stored_bytes: u32,
    body_crc: u32,
}

/// Decodes the header alone, from the first bytes of a record.
///
/// # Errors
/// [`BadRecord`], except for what is wrong with the body.
pub fn header_of(bytes: &[u8]) -> Result<Header, BadRecord> {
    decode_header(bytes).map(|(header, _)| header)
}

fn decode_header(bytes: &[u8]) -> Result<(Header, Outline), BadRecord> {
    let head = bytes.get(..HEADER_BYTES.min(bytes.len())).unwrap_or_default();
    if head.get(..8) != Some(&MAGIC) {
        return Err(BadRecord::Foreign);
    }
    let short = || BadRecord::Length { found: bytes.len(), stated: HEADER_BYTES };
    if head.len() < HEADER_BYTES {
        return Err(short());
    }
    let mut reader = Reader::new(head);
    let version = reader.skip(8).and_then(Reader::u32).ok_or_else(short)?;
    let (header, outline, crc) = read_header(&mut reader).ok_or_else(short)?;
    // A later version keeps the length of the header, and its checksum.
    if crc32c::crc32c(&head[..HEADER_BYTES - 4]) != crc {
        return Err(BadRecord::Checksum("header"));
    }
    if version != VERSION {
        return Err(BadRecord::Later(version));
    }
    let is_possible = outline.flags & !COMPRESSED == 0
        && outline.raw_bytes as usize <= RAW_BYTES_MAX
        && header.number >= RecordNumber::FIRST
        && header.epoch.0 >= 1
        && header.epoch.0 <= header.number.0
        && header.segment_bytes.is_power_of_two()
        && header.first <= header.number.next()
        && header.snapshot <= header.number
        && header.broken <= header.number
        && (RecordNumber::FIRST..=header.number).contains(&header.opened);
    is_possible.then_some((header, outline)).ok_or(BadRecord::Malformed("header"))
}

fn read_header(r: &mut Reader<'_>) -> Option<(Header, Outline, u32)> {
    let flags = r.u32()?;
    let chain = ChainId(r.array()?);
    let number = RecordNumber(r.u64()?);
    let epoch = Epoch(r.u64()?);
    let nonce = Nonce(r.array()?);
    let previous = Hash(r.array()?);
    let written_ms = r.u64()?;
    let (stream, commit) = (Lsn(r.u64()?), CommitTs(r.u64()?));
    let (salt, base) = (Salt(r.u32()?), Generation(r.u32()?));
    let first = RecordNumber(r.u64()?);
    let snapshot = RecordNumber(r.u64()?);
    let broken = RecordNumber(r.u64()?);
    let opened = RecordNumber(r.u64()?);
    let segment_bytes = r.u32()?;
    let position = Position { salt, base, stream, commit, crc: r.u32()? };
    let outline = Outline {
        flags,
        item_count: r.u32()?,
        raw_bytes: r.u32()?,
        stored_bytes: r.u32()?,
        body_crc: r.u32()?,
    };
    let crc = r.u32()?;
    let header = Header {
        chain,
        number,
        epoch,
        nonce,
        previous,
        written_ms,
        position,
        first,
        snapshot,
        broken,
        opened,
        segment_bytes,
    };
    Some((header, outline, crc))
}

fn decompress(stored: &Bytes, outline: &Outline) -> Result<Bytes, BadRecord> {
    let raw_bytes = outline.raw_bytes as usize;
    if outline.flags & COMPRESSED == 0 {
        let is_whole = stored.len() == raw_bytes;
        return is_whole.then(|| stored.clone()).ok_or(BadRecord::Malformed("body"));
    }
    inflate(stored, raw_bytes).ok_or(BadRecord::Malformed("body"))
}

#[cfg(test)]
mod tests;

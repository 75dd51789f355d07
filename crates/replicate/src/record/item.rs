//! What a record says: its items.
//!
//! ```text
//! item      0  kind              u8  1 OPEN, 2 FRAMES, 3 MERGE, 4 PAGES, 5 SNAPSHOT, 6 BREAK
//!           1  zero              3
//!           4  length            u32 of what follows
//!           8  content
//!
//! OPEN      0  follows           u8  0 nothing: a break; 1 the stream; 2 the base, in a new session
//!           1  zero              3
//!           4  page bytes        u32
//!           8  instance          16
//!          24  library           u16 length, UTF-8
//!           .  host              u16 length, UTF-8
//!
//! FRAMES    0  generation        u32
//!           4  zero              u32
//!           8  from              u64 LSN
//!          16  first commit      u64
//!          24  last commit       u64
//!          32  frames            whole frames of one generation
//!
//! MERGE     0  before            u32 generation of the base before
//!           4  through           u32 generation of the base behind it
//!           8  page count        u32 of the database behind it
//!          12  sum               u32 over the pages that it wrote
//!
//! PAGES     0  before            u32
//!           4  through           u32
//!           8  page bytes        u32
//!          12  page count        u32
//!          16  in parts          u32 0 or 1
//!          20  pages (0)         number u32 and page, ascending; or
//!          20  parts (1)         as below
//!
//! SNAPSHOT  0  generation        u32
//!           4  salt              u32
//!           8  page bytes        u32
//!          12  page count        u32
//!          16  as of             u64 the record that completes this base
//!          24  first             u64 the first record with frames above `generation`; `as of` at most
//!          32  stream            u64 LSN at which those frames begin
//!          40  parent            u64 the snapshot's record that this one changes; 0 none
//!          48  earlier           u64 record of the SNAPSHOT before, 0 none
//!          56  taken             u64 `written` of record `as of`
//!          64  parts             as below
//!
//! BREAK     0  stream            u64 LSN at which the stream goes on
//!           8  base              u32 generation that the next MERGE or PAGES goes from
//!          12  incomplete        u32 frames through this generation are incomplete
//!          16  why               u16 length, UTF-8
//!
//! parts     0  begun             u64 the least number of a record that may name them
//!           8  nonce             16  of the writer
//!          24  serial            u32 the writer's count of uploads
//!          28  count             u32
//!          32  each              stored length u32, raw length u32, SHA-256 32
//! ```

use std::collections::BTreeSet;

use bytes::Bytes;

use super::wire::{Reader, Writer};
use crate::ids::{CommitTs, Generation, Hash, Instance, Lsn, Nonce, RecordNumber, Salt};
use crate::names::{self, Upload};

/// Bytes of an item before its content.
pub const ITEM_HEADER_BYTES: usize = 8;
/// Bytes of FRAMES before the frames.
pub const FRAMES_HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 4;
/// SQLite's bounds of a page size.
const PAGE_BYTES: std::ops::RangeInclusive<u32> = 512..=65536;
/// Longest part, uncompressed.
pub const PART_BYTES_MAX: u32 = 16 << 20;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A writer begins.
    Open(Open),
    /// Commits.
    Frames(Frames),
    /// Generations were merged into the base.
    Merge(Merge),
    /// An exclusive transaction has changed the base.
    Pages(PageSet),
    /// The base was copied.
    Snapshot(SnapshotRef),
    /// A part of the stream is not in the chain.
    Break(Break),
}

/// What an OPEN goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Nothing before leads on to what is behind it.
    Nothing,
    /// The stream and base of the record before.
    Stream,
    /// The base of the record before, in which everything was; a new session goes on.
    Base,
}

/// A writer begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// What it goes on from.
    pub follows: Follows,
    /// Bytes of a page of the database.
    pub page_bytes: u32,
    /// The database on its machine.
    pub instance: Instance,
    /// Versions of the library.
    pub library: String,
    /// Machine and process, for messages.
    pub host: String,
}

/// Whole frames of one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Their generation.
    pub generation: Generation,
    /// Position of the first byte.
    pub from: Lsn,
    /// The first commit.
    pub first_commit: CommitTs,
    /// The last commit.
    pub last_commit: CommitTs,
    /// The log's bytes.
    pub bytes: Bytes,
}

impl Frames {
    /// Position behind the last byte.
    pub fn end(&self) -> Lsn {
        Lsn(self.from.0 + self.bytes.len() as u64)
    }
}

/// Generations were merged into the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// Generation of the base before.
    pub before: Generation,
    /// Generation of the base behind it.
    pub through: Generation,
    /// Pages of the database behind it.
    pub page_count: u32,
    /// Checksum over the pages that it wrote.
    pub sum: u32,
}

/// An exclusive transaction has changed the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSet {
    /// Generation of the base before.
    pub before: Generation,
    /// Generation that it stamps.
    pub through: Generation,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of the database behind it.
    pub page_count: u32,
    /// The pages.
    pub body: Body,
}

/// Pages, in the record or in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Page numbers and pages.
    Inline(Bytes),
    /// Elsewhere.
    Parts(Parts),
}

/// The base was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRef {
    /// Generation through which it is complete.
    pub generation: Generation,
    /// Session in which it was copied.
    pub salt: Salt,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of the database.
    pub page_count: u32,
    /// The record that completes this base.
    pub as_of: RecordNumber,
    /// The first record to be read: it has frames above its generation, or is `as_of`.
    pub first: RecordNumber,
    /// Position at which those frames begin.
    pub stream: Lsn,
    /// The snapshot that this one changes; none: it has all pages.
    pub parent: RecordNumber,
    /// The snapshot before, of whatever kind.
    pub earlier: RecordNumber,
    /// When the record `as_of` was written.
    pub taken_ms: u64,
    /// The pages.
    pub parts: Parts,
}

/// A part of the stream is not in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Break {
    /// Where the stream goes on.
    pub stream: Lsn,
    /// What the next merge or pages go from.
    pub base: Generation,
    /// Frames through this generation are incomplete.
    pub incomplete: Generation,
    /// The newest commit, if `base` has all of them; else 0.
    pub commit: CommitTs,
    /// For people.
    pub why: String,
}

/// Objects with pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The upload; their indexes count from 0.
    pub upload: Upload,
    /// What is in each.
    pub each: Vec<Part>,
}

impl Parts {
    /// How many of them are not among these names.
    pub fn missing_in(&self, there: &BTreeSet<String>) -> usize {
        self.missing_names(there).count()
    }

    /// Those that are not among these names.
    pub fn missing_names(&self, there: &BTreeSet<String>) -> impl Iterator<Item = String> {
        let names = (0..self.each.len()).map(|index| names::part(self.upload, index as u32));
        names.filter(|name| !there.contains(name))
    }
}

/// One object with pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes of the object.
    pub stored_bytes: u32,
    /// Bytes of what is compressed in it.
    pub raw_bytes: u32,
    /// Hash of the object.
    pub hash: Hash,
}

impl Item {
    fn kind(&self) -> u8 {
        match self {
            Item::Open(_) => 1,
            Item::Frames(_) => 2,
            Item::Merge(_) => 3,
            Item::Pages(_) => 4,
            Item::Snapshot(_) => 5,
            Item::Break(_) => 6,
        }
    }

    /// Bytes that the item adds to a record, uncompressed, at most.
    pub fn len_max(&self) -> usize {
        let parts = |parts: &Parts| 32 + 40 * parts.each.len();
        ITEM_HEADER_BYTES
            + match self {
                Item::Open(open) => 28 + open.library.len() + open.host.len(),
                Item::Frames(frames) => FRAMES_HEADER_BYTES + frames.bytes.len(),
                Item::Merge(_) => 16,
                Item::Pages(PageSet { body: Body::Inline(bytes), .. }) => 20 + bytes.len(),
                Item::Pages(PageSet { body: Body::Parts(p), .. }) => 20 + parts(p),
                Item::Snapshot(snapshot) => 64 + parts(&snapshot.parts),
                Item::Break(gap) => 26 + gap.why.len(),
            }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u32(u32::from(self.kind()));
        let length_at = w.len();
        w.u32(0);
        match self {
            Item::Open(open) => open.encode(w),
            Item::Frames(frames) => frames.encode(w),
            Item::Merge(merge) => {
                w.u32(merge.before.0);
                w.u32(merge.through.0);
                w.u32(merge.page_count);
                w.u32(merge.sum);
            }
            Item::Pages(pages) => pages.encode(w),
            Item::Snapshot(snapshot) => snapshot.encode(w),
            Item::Break(gap) => {
                w.u64(gap.stream.0);
                w.u32(gap.base.0);
                w.u32(gap.incomplete.0);
                w.u64(gap.commit.0);
                w.text(&gap.why);
            }
        }
        w.set_u32(length_at, (w.len() - length_at - 4) as u32);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Option<Item> {
        let kind = r.u8()?;
        r.zeros(3)?;
        let length = r.u32()? as usize;
        let mut content = Reader::new(r.take(length)?);
        let c = &mut content;
        let item = match kind {
            1 => Item::Open(Open::decode(c)?),
            2 => Item::Frames(Frames::decode(c)?),
            3 => Item::Merge(Merge::decode(c)?),
            4 => Item::Pages(PageSet::decode(c)?),
            5 => Item::Snapshot(SnapshotRef::decode(c)?),
            6 => Item::Break(Break {
                stream: Lsn(c.u64()?),
                base: Generation(c.u32()?),
                incomplete: Generation(c.u32()?),
                commit: CommitTs(c.u64()?),
                why: c.text()?,
            }),
            _ => return None,
        };
        content.is_empty().then_some(item)
    }
}

/// True if an OPEN and a BREAK are first.
pub(super) fn are_in_order(items: &[Item]) -> bool {
    let is_first = |item: &Item| matches!(item, Item::Open(_) | Item::Break(_));
    !items.iter().skip(1).any(is_first)
}

impl Open {
    fn encode(&self, w: &mut Writer) {
        w.u32(match self.follows {
            Follows::Nothing => 0,
            Follows::Stream => 1,
            Follows::Base => 2,
        });
        w.u32(self.page_bytes);
        w.bytes(&self.instance.0);
        w.text(&self.library);
        w.text(&self.host);
    }

    fn decode(r: &mut Reader<'_>) -> Option<Open> {
        let follows = match r.u32()? {
            0 => Follows::Nothing,
            1 => Follows::Stream,
            2 => Follows::Base,
            _ => return None,
        };
        let page_bytes = page_bytes(r)?;
        let instance = Instance(r.array()?);
        Some(Open { follows, page_bytes, instance, library: r.text()?, host: r.text()? })
    }
}

fn page_bytes(r: &mut Reader<'_>) -> Option<u32> {
    r.u32().filter(|bytes| bytes.is_power_of_two() && PAGE_BYTES.contains(bytes))
}

impl Frames {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.generation.0);
        w.u32(0);
        w.u64(self.from.0);
        w.u64(self.first_commit.0);
        w.u64(self.last_commit.0);
        w.bytes(&self.bytes);
    }

    fn decode(r: &mut Reader<'_>) -> Option<Frames> {
        let generation = Generation(r.u32()?);
        r.zeros(4)?;
        let from = Lsn(r.u64()?);
        let (first_commit, last_commit) = (CommitTs(r.u64()?), CommitTs(r.u64()?));
        let frames = Frames { generation, from, first_commit, last_commit, bytes: r.rest() };
        let is_possible = !frames.bytes.is_empty()
            && from.0.checked_add(frames.bytes.len() as u64).is_some()
            && first_commit <= last_commit;
        is_possible.then_some(frames)
    }
}

impl Merge {
    fn decode(r: &mut Reader<'_>) -> Option<Merge> {
        let (before, through) = (Generation(r.u32()?), Generation(r.u32()?));
        let merge = Merge { before, through, page_count: r.u32()?, sum: r.u32()? };
        (before < through).then_some(merge)
    }
}

impl PageSet {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.before.0);
        w.u32(self.through.0);
        w.u32(self.page_bytes);
        w.u32(self.page_count);
        match &self.body {
            Body::Inline(bytes) => {
                w.u32(0);
                w.bytes(bytes);
            }
            Body::Parts(parts) => {
                w.u32(1);
                parts.encode(w);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Option<PageSet> {
        let (before, through) = (Generation(r.u32()?), Generation(r.u32()?));
        let (page_bytes, page_count) = (page_bytes(r)?, r.u32()?);
        let body = match r.u32()? {
            0 => Body::Inline(r.rest()),
            1 => Body::Parts(Parts::decode(r)?),
            _ => return None,
        };
        let is_whole = match &body {
            Body::Inline(bytes) => are_pages(bytes, page_bytes),
            Body::Parts(parts) => parts.have_pages_of(page_bytes),
        };
        let pages = PageSet { before, through, page_bytes, page_count, body };
        (before < through && is_whole).then_some(pages)
    }
}

impl SnapshotRef {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.generation.0);
        w.u32(self.salt.0);
        w.u32(self.page_bytes);
        w.u32(self.page_count);
        w.u64(self.as_of.0);
        w.u64(self.first.0);
        w.u64(self.stream.0);
        w.u64(self.parent.0);
        w.u64(self.earlier.0);
        w.u64(self.taken_ms);
        self.parts.encode(w);
    }

    fn decode(r: &mut Reader<'_>) -> Option<SnapshotRef> {
        let (generation, salt) = (Generation(r.u32()?), Salt(r.u32()?));
        let (page_bytes, page_count) = (page_bytes(r)?, r.u32()?);
        let snapshot = SnapshotRef {
            generation,
            salt,
            page_bytes,
            page_count,
            as_of: RecordNumber(r.u64()?),
            first: RecordNumber(r.u64()?),
            stream: Lsn(r.u64()?),
            parent: RecordNumber(r.u64()?),
            earlier: RecordNumber(r.u64()?),
            taken_ms: r.u64()?,
            parts: Parts::decode(r)?,
        };
        let is_possible = snapshot.parts.have_pages_of(page_bytes)
            && snapshot.first <= snapshot.as_of
            && snapshot.parent <= snapshot.earlier;
        is_possible.then_some(snapshot)
    }
}

impl Parts {
    /// True if each of them can hold whole pages alone.
    fn have_pages_of(&self, page_bytes: u32) -> bool {
        self.each.iter().all(|part| part.raw_bytes.is_multiple_of(page_bytes + ENTRY_BYTES as u32))
    }

    fn encode(&self, w: &mut Writer) {
        w.u64(self.upload.begun.0);
        w.bytes(&self.upload.nonce.0);
        w.u32(self.upload.serial);
        w.u32(self.each.len() as u32);
        for part in &self.each {
            w.u32(part.stored_bytes);
            w.u32(part.raw_bytes);
            w.bytes(&part.hash.0);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Option<Parts> {
        let (begun, nonce) = (RecordNumber(r.u64()?), Nonce(r.array()?));
        let upload = Upload { begun, nonce, serial: r.u32()? };
        let count = r.u32()?;
        let mut each = Vec::new();
        for _ in 0..count {
            let part = Part { stored_bytes: r.u32()?, raw_bytes: r.u32()?, hash: Hash(r.array()?) };
            if part.raw_bytes > PART_BYTES_MAX {
                return None;
            }
            each.push(part);
        }
        Some(Parts { upload, each })
    }
}

/// Pages by number, as they are in a part or in PAGES; `None` if the bytes are no such list:
/// numbers ascend, and each has a page.
pub fn each_page(bytes: &[u8], page_bytes: u32) -> Option<impl Iterator<Item = (u32, &[u8])>> {
    let entry_bytes = ENTRY_BYTES + page_bytes as usize;
    if !bytes.len().is_multiple_of(entry_bytes) {
        return None;
    }
    let pages = move || {
        bytes.chunks_exact(entry_bytes).map(|entry| {
            let (number, page) = entry.split_at(ENTRY_BYTES);
            (u32::from_le_bytes(number.try_into().expect("four bytes")), page)
        })
    };
    let mut last = 0;
    let is_ascending = pages().all(|(number, _)| std::mem::replace(&mut last, number) < number);
    is_ascending.then(pages)
}

/// True if bytes are such a list.
pub fn are_pages(bytes: &[u8], page_bytes: u32) -> bool {
    each_page(bytes, page_bytes).is_some()
}

/// Adds a page to such a list.
pub fn push_page(list: &mut Vec<u8>, number: u32, page: &[u8]) {
    list.extend_from_slice(&number.to_le_bytes());
    list.extend_from_slice(page);
}

//! One committed transaction as bytes.
//!
//! All integers are little-endian. A frame starts at a stream position divisible by 8.
//!
//! ```text
//! frame   0  magic               u32  "PLTF"
//!         4  frame_len           u32  whole frame, a multiple of 8
//!         8  lsn                 u64  stream position of this frame's first byte
//!        16  commit_ts           u64
//!        24  durable_lsn         u64  every byte before this was on disk when the frame was made
//!        32  generation          u32
//!        36  op_count            u32
//!        40  durable_generation  u32  generation of the byte before durable_lsn, 0 if none
//!        44  prev_crc            u32  crc of the generation's previous frame, 0 for its first
//!        48  ops                      op_count of them
//!       n-8  frame_len           u32  again, so that frames can be walked backwards
//!       n-4  crc                 u32  CRC-32C of the log's salt (4 bytes) and bytes 0..n-4
//!
//! op      0  root                u32
//!         4  key_len             u32
//!         8  rec_len             u32
//!        12  kind                u8   0 put, 1 tombstone (record: the deleted entry's, or empty),
//!                                     2 mark
//!        13  zero                3 bytes
//!        16  key, rec, zeros to a multiple of 8
//! ```
//!
//! The *mark* of a prepared transaction can only be the first op: its root is 0 and its key is the
//! name of a super-journal (`several.rs`). A frame that begins with a mark commits nothing by
//! itself. Its other ops are what it would commit. If the mark has a record, the frame would commit
//! the pages in the file that this record names (`pages.rs`).
//!
//! Ops are absolute, so applying a frame twice is applying it once (FILE-4). `lsn` and the salt
//! make a frame valid at one place of one log only: stale bytes of a recycled slot can never be
//! taken for a frame.

use crate::ids::{CommitTs, Generation, Lsn, Root};

/// First bytes of a frame.
pub const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"PLTF");
/// Bytes before the ops.
pub const FRAME_HEADER_BYTES: usize = 48;
/// Bytes after the ops.
pub const FRAME_TRAILER_BYTES: usize = 8;
/// Bytes of an op before its key.
pub const OP_HEADER_BYTES: usize = 16;
/// The size of a frame and of an op is a multiple of this.
pub const FRAME_ALIGN: usize = 8;

const _: () = assert!(FRAME_HEADER_BYTES.is_multiple_of(FRAME_ALIGN));
const _: () = assert!(FRAME_TRAILER_BYTES.is_multiple_of(FRAME_ALIGN));
const _: () = assert!(OP_HEADER_BYTES.is_multiple_of(FRAME_ALIGN));

/// What an op does to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// The key has this record now.
    Put = 0,
    /// The key is gone.
    Tombstone = 1,
}

/// One write of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op<'a> {
    /// The b-tree.
    pub root: Root,
    /// What happens to the key.
    pub kind: OpKind,
    /// Encoded key.
    pub key: &'a [u8],
    /// Record.
    pub rec: &'a [u8],
}

impl Op<'_> {
    /// Bytes of the op in a frame.
    pub fn encoded_len(&self) -> u64 {
        padded(OP_HEADER_BYTES as u64 + self.key.len() as u64 + self.rec.len() as u64)
    }
}

/// Kind of the op that makes a frame a prepared one: the mark.
const MARK_KIND: u8 = 2;
/// Bytes of a [`PagesId`].
pub const PAGES_ID_BYTES: usize = 16;

/// Names the file that holds the pages of a prepared exclusive transaction (`pages.rs`).
pub type PagesId = [u8; PAGES_ID_BYTES];

/// What makes a frame a prepared one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark<'a> {
    /// The super-journal that decides.
    pub name: &'a [u8],
    /// The file with the pages, if the transaction is exclusive.
    pub pages: Option<PagesId>,
}

impl Mark<'_> {
    /// Bytes of the mark in a frame.
    pub fn encoded_len(&self) -> u64 {
        let id = self.pages.map_or(0, |_| PAGES_ID_BYTES);
        padded((OP_HEADER_BYTES + self.name.len() + id) as u64)
    }
}

/// Bytes of a frame with these ops.
pub fn frame_len<'a>(ops: impl IntoIterator<Item = Op<'a>>) -> u64 {
    let ops: u64 = ops.into_iter().map(|op| op.encoded_len()).sum();
    (FRAME_HEADER_BYTES + FRAME_TRAILER_BYTES) as u64 + ops
}

const fn padded(n: u64) -> u64 {
    n.next_multiple_of(FRAME_ALIGN as u64)
}

/// The part of a frame's header that the committer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// The commit.
    pub commit_ts: CommitTs,
    /// The memtable generation that the commit goes to.
    pub generation: Generation,
}

/// The part of a frame's header that the log adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement {
    pub lsn: Lsn,
    pub durable_lsn: Lsn,
    pub durable_generation: Generation,
    pub prev_crc: u32,
    pub salt: u32,
}

/// Where a frame is written: one stretch of memory, or two when it wraps around the ring.
struct Sink<'a> {
    first: &'a mut [u8],
    second: &'a mut [u8],
    at: usize,
}

impl Sink<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let split = self.first.len();
        if self.at + bytes.len() <= split {
            self.first[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        } else if self.at >= split {
            let at = self.at - split;
            self.second[at..at + bytes.len()].copy_from_slice(bytes);
        } else {
            let n = split - self.at;
            self.first[self.at..].copy_from_slice(&bytes[..n]);
            self.second[..bytes.len() - n].copy_from_slice(&bytes[n..]);
        }
        self.at += bytes.len();
    }

    fn put_op(&mut self, root: u32, kind: u8, key: &[u8], rec: &[u8]) {
        let mut head = [0u8; OP_HEADER_BYTES];
        head[0..4].copy_from_slice(&root.to_le_bytes());
        head[4..8].copy_from_slice(&(key.len() as u32).to_le_bytes());
        head[8..12].copy_from_slice(&(rec.len() as u32).to_le_bytes());
        head[12] = kind;
        let end = self.at + OP_HEADER_BYTES + key.len() + rec.len();
        let padded_end = end.next_multiple_of(FRAME_ALIGN);
        if let Some(op) = self.first.get_mut(self.at..padded_end) {
            // The common case: the op lies wholly in `first`.
            let (to_head, rest) = op.split_at_mut(OP_HEADER_BYTES);
            to_head.copy_from_slice(&head);
            let (to_key, rest) = rest.split_at_mut(key.len());
            to_key.copy_from_slice(key);
            let (to_rec, pad) = rest.split_at_mut(rec.len());
            to_rec.copy_from_slice(rec);
            pad.fill(0);
            self.at = padded_end;
            return;
        }
        self.put(&head);
        self.put(key);
        self.put(rec);
        self.pad();
    }

    fn pad(&mut self) {
        let n = self.at.next_multiple_of(FRAME_ALIGN) - self.at;
        self.put(&[0; FRAME_ALIGN][..n]);
    }

    fn crc(&self, salt: u32) -> u32 {
        let crc = crc32c::crc32c(&salt.to_le_bytes());
        let split = self.first.len();
        if self.at <= split {
            return crc32c::crc32c_append(crc, &self.first[..self.at]);
        }
        let crc = crc32c::crc32c_append(crc, self.first);
        crc32c::crc32c_append(crc, &self.second[..self.at - split])
    }
}

/// Writes a frame into `first` and `second`. Together they have the length of [`frame_len`], plus
/// that of the mark if there is one.
pub(super) fn encode<'a>(
    head: &FrameHead,
    place: &Placement,
    mark: Option<Mark<'_>>,
    ops: impl IntoIterator<Item = Op<'a>>,
    first: &mut [u8],
    second: &mut [u8],
) {
    let frame_len = first.len() + second.len();
    let len32 = u32::try_from(frame_len).expect("a frame is shorter than the ring");
    let mut sink = Sink { first, second, at: 0 };
    let mut header = [0u8; FRAME_HEADER_BYTES];
    header[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&len32.to_le_bytes());
    header[8..16].copy_from_slice(&place.lsn.get().to_le_bytes());
    header[16..24].copy_from_slice(&head.commit_ts.get().to_le_bytes());
    header[24..32].copy_from_slice(&place.durable_lsn.get().to_le_bytes());
    header[32..36].copy_from_slice(&head.generation.get().to_le_bytes());
    header[40..44].copy_from_slice(&place.durable_generation.get().to_le_bytes());
    header[44..48].copy_from_slice(&place.prev_crc.to_le_bytes());
    sink.at = FRAME_HEADER_BYTES;
    let mut op_count = 0u32;
    if let Some(mark) = mark {
        op_count += 1;
        sink.put_op(0, MARK_KIND, mark.name, mark.pages.as_ref().map_or(&[], |id| &id[..]));
    }
    // `for_each`, not a loop: a chained iterator is faster with internal iteration.
    ops.into_iter().for_each(|op| {
        op_count += 1;
        sink.put_op(op.root.get(), op.kind as u8, op.key, op.rec);
    });
    header[36..40].copy_from_slice(&op_count.to_le_bytes());
    assert_eq!(
        sink.at + FRAME_TRAILER_BYTES,
        frame_len,
        "the frame's length was computed from other ops"
    );
    let body_end = sink.at;
    sink.at = 0;
    sink.put(&header);
    sink.at = body_end;
    sink.put(&len32.to_le_bytes());
    let crc = sink.crc(place.salt);
    sink.put(&crc.to_le_bytes());
}

/// A frame whose checksum, length and ops have been checked.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Stream position of its first byte.
    pub lsn: Lsn,
    /// The commit.
    pub commit_ts: CommitTs,
    /// The memtable generation of the commit.
    pub generation: Generation,
    /// Every stream byte before this was on disk when the frame was made.
    pub durable_lsn: Lsn,
    /// Generation of the byte before `durable_lsn`, 0 if there is none.
    pub durable_generation: Generation,
    /// Number of ops.
    pub op_count: u32,
    /// Checksum of the previous frame of the generation, 0 for its first.
    pub prev_crc: u32,
    /// Checksum of this frame.
    pub crc: u32,
    len_bytes: u64,
    mark: Option<Mark<'a>>,
    rows: &'a [u8],
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadFrame {
    /// No frame starts here (or its first bytes are damaged).
    NoMagic,
    /// A frame of another position: stale bytes.
    OtherPlace,
    /// No frame can have the stated length.
    BadLength,
    /// The bytes end before the frame does.
    Short,
    /// The checksum differs.
    BadCrc,
    /// The checksum matches, yet the ops are not well-formed.
    BadOps,
}

impl BadFrame {
    /// For messages.
    pub fn why(self) -> &'static str {
        match self {
            BadFrame::NoMagic => "no frame starts there",
            BadFrame::OtherPlace => "an older frame is in its place",
            BadFrame::BadLength => "its length is impossible",
            BadFrame::Short => "it is cut short",
            BadFrame::BadCrc => "its checksum does not match",
            BadFrame::BadOps => "its contents are malformed under a right checksum",
        }
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Returns the length that the header of a frame at `lsn` states.
pub(super) fn stated_len(header: &[u8], lsn: Lsn) -> Result<usize, BadFrame> {
    if header.len() < FRAME_HEADER_BYTES {
        return Err(BadFrame::Short);
    }
    if u32_at(header, 0) != FRAME_MAGIC {
        return Err(BadFrame::NoMagic);
    }
    if u64_at(header, 8) != lsn.get() {
        return Err(BadFrame::OtherPlace);
    }
    let len = u32_at(header, 4) as usize;
    if len < FRAME_HEADER_BYTES + FRAME_TRAILER_BYTES || !len.is_multiple_of(FRAME_ALIGN) {
        return Err(BadFrame::BadLength);
    }
    Ok(len)
}

impl<'a> Frame<'a> {
    /// Checks the frame at the start of `bytes`, which may be longer than the frame.
    pub fn parse(bytes: &'a [u8], salt: u32, lsn: Lsn) -> Result<Frame<'a>, BadFrame> {
        let len = stated_len(bytes, lsn)?;
        let bytes = bytes.get(..len).ok_or(BadFrame::Short)?;
        let crc = u32_at(bytes, len - 4);
        let expected =
            crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &bytes[..len - 4]);
        if crc != expected {
            return Err(BadFrame::BadCrc);
        }
        let body = &bytes[FRAME_HEADER_BYTES..len - FRAME_TRAILER_BYTES];
        let (mark, rows) = match split_mark(body) {
            Some((mark, rows)) => (Some(mark), rows),
            None => (None, body),
        };
        let frame = Frame {
            lsn,
            commit_ts: CommitTs::new(u64_at(bytes, 16)),
            durable_lsn: Lsn::new(u64_at(bytes, 24)),
            generation: Generation::new(u32_at(bytes, 32)),
            op_count: u32_at(bytes, 36),
            durable_generation: Generation::new(u32_at(bytes, 40)),
            prev_crc: u32_at(bytes, 44),
            crc,
            len_bytes: len as u64,
            mark,
            rows,
        };
        if u32_at(bytes, len - 8) as usize != len || !frame.ops_are_well_formed() {
            return Err(BadFrame::BadOps);
        }
        Ok(frame)
    }

    /// Stream position after the frame.
    pub fn end(&self) -> Lsn {
        self.lsn + self.len_bytes
    }

    /// Bytes of the frame.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Returns the writes that the frame commits, in the order in which the committer gave them. A
    /// prepared frame commits none.
    pub fn ops(&self) -> Ops<'a> {
        Ops { rest: if self.mark.is_some() { &[] } else { self.rows } }
    }

    /// Returns the mark of a prepared frame, and the rows that the transaction would write.
    pub fn prepared(&self) -> Option<(Mark<'a>, Ops<'a>)> {
        self.mark.map(|mark| (mark, Ops { rest: self.rows }))
    }

    fn ops_are_well_formed(&self) -> bool {
        let mut rest = self.rows;
        let Some(rows) = self.op_count.checked_sub(self.mark.is_some().into()) else {
            return false;
        };
        for _ in 0..rows {
            match split_op(rest) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        rest.is_empty()
    }
}

/// Iterates over the ops of a [`Frame`].
#[derive(Debug, Clone)]
pub struct Ops<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Ops<'a> {
    type Item = Op<'a>;

    fn next(&mut self) -> Option<Op<'a>> {
        let (op, rest) = split_op(self.rest)?;
        self.rest = rest;
        Some(op)
    }
}

/// Splits the ops of a prepared transaction into the mark and the ops that follow it.
fn split_mark(bytes: &[u8]) -> Option<(Mark<'_>, &[u8])> {
    let head = bytes.get(..OP_HEADER_BYTES)?;
    if head[12..16] != [MARK_KIND, 0, 0, 0] || u32_at(head, 0) != 0 {
        return None;
    }
    let name_end = OP_HEADER_BYTES.checked_add(u32_at(head, 4) as usize)?;
    let name = bytes.get(OP_HEADER_BYTES..name_end)?;
    let end = name_end.checked_add(u32_at(head, 8) as usize)?;
    let pages = match bytes.get(name_end..end)? {
        [] => None,
        id => Some(PagesId::try_from(id).ok()?),
    };
    Some((Mark { name, pages }, bytes.get(padded(end as u64) as usize..)?))
}

fn split_op(bytes: &[u8]) -> Option<(Op<'_>, &[u8])> {
    let head = bytes.get(..OP_HEADER_BYTES)?;
    let kind = match (head[12], &head[13..16]) {
        (0, [0, 0, 0]) => OpKind::Put,
        (1, [0, 0, 0]) => OpKind::Tombstone,
        _ => return None,
    };
    let key_end = OP_HEADER_BYTES.checked_add(u32_at(head, 4) as usize)?;
    let rec_end = key_end.checked_add(u32_at(head, 8) as usize)?;
    let op = Op {
        root: Root::new(u32_at(head, 0)),
        kind,
        key: bytes.get(OP_HEADER_BYTES..key_end)?,
        rec: bytes.get(key_end..rec_end)?,
    };
    let rest = bytes.get(padded(rec_end as u64) as usize..)?;
    Some((op, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = (u32, bool, Vec<u8>, Vec<u8>);

    fn borrowed(ops: &[Owned]) -> impl Iterator<Item = Op<'_>> + Clone {
        ops.iter().map(|(root, put, key, rec)| Op {
            root: Root::new(*root),
            kind: if *put { OpKind::Put } else { OpKind::Tombstone },
            key,
            rec,
        })
    }

    fn encoded(ops: &[Owned], split: usize) -> Vec<u8> {
        encoded_as(None, ops, split)
    }

    fn encoded_as(mark: Option<Mark<'_>>, ops: &[Owned], split: usize) -> Vec<u8> {
        let len = (frame_len(borrowed(ops)) + mark.map_or(0, |mark| mark.encoded_len())) as usize;
        let mut bytes = vec![0xEE; len];
        let (first, second) = bytes.split_at_mut(split.min(len));
        let head = FrameHead { commit_ts: CommitTs::new(9), generation: Generation::new(3) };
        let place = Placement {
            lsn: Lsn::new(4096),
            durable_lsn: Lsn::new(2048),
            durable_generation: Generation::new(2),
            prev_crc: 77,
            salt: 5,
        };
        encode(&head, &place, mark, borrowed(ops), first, second);
        bytes
    }

    proptest! {
        #[test]
        fn a_frame_reads_back_as_it_was_written_wherever_it_wraps(
            ops in prop::collection::vec(
                (any::<u32>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..90)),
                0..8,
            ),
            split in 0usize..700,
        ) {
            let bytes = encoded(&ops, split);
            let frame = Frame::parse(&bytes, 5, Lsn::new(4096)).expect("a valid frame");
            prop_assert_eq!(frame.len_bytes() as usize, bytes.len());
            prop_assert_eq!(frame.commit_ts, CommitTs::new(9));
            prop_assert_eq!(frame.generation, Generation::new(3));
            prop_assert_eq!(frame.durable_lsn, Lsn::new(2048));
            prop_assert_eq!(frame.durable_generation, Generation::new(2));
            prop_assert_eq!(frame.prev_crc, 77);
            prop_assert!(frame.ops().eq(borrowed(&ops)));
        }
    }

    #[test]
    fn a_prepared_frame_commits_nothing_and_says_what_it_would() {
        let ops = [(7, true, b"key".to_vec(), vec![1; 33]), (8, false, b"k".to_vec(), vec![])];
        for (rows, pages) in [(&ops[..], None), (&[], None), (&[], Some([7; PAGES_ID_BYTES]))] {
            let mark = Mark { name: b"../main.db-mj", pages };
            let bytes = encoded_as(Some(mark), rows, 70);
            let frame = Frame::parse(&bytes, 5, Lsn::new(4096)).expect("a valid frame");
            assert_eq!(frame.ops().count(), 0);
            let (found, would) = frame.prepared().expect("it is a prepared one");
            assert_eq!(found, mark);
            assert!(would.eq(borrowed(rows)));
            assert!(
                Frame::parse(&encoded(rows, 0), 5, Lsn::new(4096))
                    .is_ok_and(|f| f.prepared().is_none())
            );
        }
    }

    #[test]
    fn any_flipped_byte_makes_a_frame_invalid() {
        let ops = vec![(7, true, b"key".to_vec(), vec![1; 33]), (8, false, b"k".to_vec(), vec![])];
        let good = encoded(&ops, 50);
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(Frame::parse(&bad, 5, Lsn::new(4096)).is_err(), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn a_frame_is_valid_at_its_place_in_its_log_only() {
        let good = encoded(&[], 0);
        assert!(Frame::parse(&good, 5, Lsn::new(4096)).is_ok());
        assert_eq!(Frame::parse(&good, 6, Lsn::new(4096)).err(), Some(BadFrame::BadCrc));
        assert_eq!(Frame::parse(&good, 5, Lsn::new(8192)).err(), Some(BadFrame::OtherPlace));
        assert_eq!(
            Frame::parse(&good[..good.len() - 1], 5, Lsn::new(4096)).err(),
            Some(BadFrame::Short)
        );
    }
}

//! The layout of a memtable's region of shared memory.
//!
//! ```text
//! 0    Header: identity | allocation | insert hint | root filter | head tower
//! 448  shortcuts: u32 offsets of nodes by hash of root and key (list.rs)
//! ..   filter: u64 words of a Bloom filter of the same hashes (list.rs)
//! ..   nodes, upwards, each: NodeFields (32 bytes) | height x u32 links | u32 offset of the record
//!                            | key | pad to 8
//!      free space
//! ..   records, downwards to the end of the region
//! ```
//!
//! Records are apart from nodes so that nodes are close together: a search goes from node to node,
//! and an insert writes to nodes all over the list. Among records of 400 bytes each node would be
//! on another page, which a process that has just been switched to has in no cache, and perhaps not
//! in its page tables.
//!
//! Shortcuts and filter have the places that they have in a full region, but while little of the
//! region is in use only a first part of each is (list.rs `widen`).
//!
//! A link is the byte offset of a node from the start of the region; 0 is the end of a list. Fields
//! and links of one node are in one cache line when the tower is at most eight high.

use std::mem::offset_of;

use super::atomics::{AtomicU32, AtomicU64};

/// Marks a formatted region.
pub(super) const MAGIC: u32 = 0x504c_4d32;

/// Highest tower. A quarter of the nodes of each level reach the next, and no arena holds 4^12
/// nodes.
pub(super) const HEIGHT_MAX: usize = 12;

/// Words of the root filter.
pub(super) const ROOT_WORDS: usize = 16;

/// Size of a cache line.
pub(super) const LINE_BYTES: u32 = 64;

/// The start of a region.
#[repr(C, align(64))]
pub(super) struct Header {
    pub(super) magic: AtomicU32,
    /// Length of the region as formatted.
    pub(super) len: AtomicU32,
    /// Shortcuts and filter have the size for a region of so many bytes ([`covers`]). Every lookup
    /// reads this, so it is not in the cache line that each insert changes.
    pub(super) covers: AtomicU32,
    _identity_pad: [u32; 13],

    /// End of the nodes.
    pub(super) nodes_end: AtomicU32,
    /// Start of the records.
    pub(super) records_start: AtomicU32,
    /// Nodes counted before they are linked: never less than the linked ones.
    pub(super) node_count: AtomicU32,
    /// Height of the highest tower: where a search starts.
    pub(super) height: AtomicU32,
    /// Newest timestamp of any node; raised before the node is linked.
    pub(super) ts_max: AtomicU64,
    _counters_pad: [u32; 10],

    /// 1 while `hint` holds the last insert's position.
    pub(super) hint_valid: AtomicU32,
    /// Per level: the last node of that level which is not after the last insert.
    pub(super) hint: [AtomicU32; HEIGHT_MAX],
    _hint_pad: [u32; 3],

    /// Bit set of hashed roots.
    pub(super) roots: [AtomicU64; ROOT_WORDS],

    /// Never read; gives the head's links the offset that a node's have.
    pub(super) head: NodeFields,
    pub(super) head_links: [AtomicU32; HEIGHT_MAX],
}

/// The part of a node that never changes after it is linked.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct NodeFields {
    /// First eight bytes of the key, big-endian, zero-padded: most comparisons end here.
    pub(super) prefix: u64,
    pub(super) ts: u64,
    pub(super) root: u32,
    pub(super) key_len: u32,
    pub(super) rec_len: u32,
    pub(super) kind: u8,
    pub(super) height: u8,
    pub(super) pad: u16,
}

/// Bytes of `NodeFields`.
pub(super) const FIELDS_BYTES: u32 = 32;
/// Bytes of a link.
pub(super) const LINK_BYTES: u32 = 4;
/// Bytes of the offset of a record.
pub(super) const REC_AT_BYTES: u32 = 4;
/// Bytes of the highest node before its key.
pub(super) const NODE_HEAD_BYTES_MAX: u32 =
    FIELDS_BYTES + LINK_BYTES * HEIGHT_MAX as u32 + REC_AT_BYTES;
/// Offset of the first shortcut.
pub(super) const SHORTCUTS: u32 = size_of::<Header>() as u32;
/// Bytes of a region for each shortcut, or a few less: about one shortcut for two small rows.
const BYTES_PER_SHORTCUT: u32 = 256;
/// Bytes of a word of the filter.
pub(super) const WORD_BYTES: u32 = 8;
/// Bytes of a region for each word of the filter, or a few less: ten bits for a row of a hundred
/// bytes, four for the smallest.
const BYTES_PER_WORD: u32 = 1024;
/// Shortcuts and filter serve at least so many bytes at either end.
pub(super) const FIRST_REACH: u32 = 16 << 10;
/// The head, addressed as if it were a node.
pub(super) const HEAD: u32 = std::mem::offset_of!(Header, head) as u32;

const _: () = {
    assert!(size_of::<NodeFields>() == FIELDS_BYTES as usize);
    assert!(size_of::<AtomicU32>() == LINK_BYTES as usize);
    assert!(size_of::<Header>() == 448);
    assert!(std::mem::offset_of!(Header, nodes_end) == 64);
    assert!(std::mem::offset_of!(Header, covers) == 8);
    assert!(std::mem::offset_of!(Header, hint_valid) == 128);
    assert!(std::mem::offset_of!(Header, roots) == 192);
    assert!(HEAD == 320);
    assert!(std::mem::offset_of!(Header, head_links) == (HEAD + FIELDS_BYTES) as usize);
    assert!(HEAD.is_multiple_of(8) && SHORTCUTS.is_multiple_of(LINE_BYTES));
};

/// Returns the bytes that shortcuts and filter serve in a region of `len` bytes of which `reach`
/// are in use at either end.
pub(super) fn covers(reach: u32, len: u32) -> u32 {
    reach
        .checked_mul(2)
        .and_then(u32::checked_next_power_of_two)
        .map_or(len, |bytes| bytes.min(len))
}

/// Returns the number of shortcuts that serve `len` bytes: a power of two, and whole words of eight
/// bytes.
pub(super) fn shortcut_count(len: u32) -> u32 {
    1 << (len / BYTES_PER_SHORTCUT).max(2).ilog2()
}

/// Returns the number of filter words that serve `len` bytes: a power of two.
pub(super) fn filter_words(len: u32) -> u32 {
    1 << (len / BYTES_PER_WORD).max(1).ilog2()
}

/// Returns the offset of the first filter word.
pub(super) fn filter_at(len: u32) -> u32 {
    SHORTCUTS + shortcut_count(len) * LINK_BYTES
}

/// Returns the offset of the first node in a region of `len` bytes.
pub(super) fn first_node(len: u32) -> u32 {
    filter_at(len) + filter_words(len) * WORD_BYTES
}

/// Bytes at the start of a region that [`used_bytes_in`] reads.
pub(super) const HEADER_BYTES: usize = size_of::<Header>();

/// Returns the bytes of nodes and records in the region of `len` bytes that begins with `header`, a
/// copy that may have been made during a change; 0 unless such a region was formatted there.
pub(super) fn used_bytes_in(header: &[u8; HEADER_BYTES], len: u32) -> u32 {
    let word = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if word(offset_of!(Header, magic)) != MAGIC || word(offset_of!(Header, len)) != len {
        return 0;
    }
    let nodes = word(offset_of!(Header, nodes_end)).saturating_sub(first_node(len));
    nodes.saturating_add(len.saturating_sub(word(offset_of!(Header, records_start))))
}

/// Returns the first eight bytes of `key` as an ordered number.
pub(crate) fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut padded = [0; 8];
            padded[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(padded)
        }
    }
}

/// Spreads the bits of `x` (the finalizer of SplitMix64, Steele et al. 2014).
pub(super) fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the tower height of a node at `offset`: `h` with probability 3/4 x 4^(1-h).
pub(super) fn height_at(offset: u32) -> usize {
    let height = 1 + mix(u64::from(offset)).trailing_zeros() as usize / 2;
    height.min(HEIGHT_MAX)
}

/// Returns the bits of a key in its filter word, by its hash: mostly three. Other bits of the hash
/// choose the shortcut and the word.
pub(super) fn key_bits(hash: u64) -> u64 {
    1 << (hash >> 46 & 63) | 1 << (hash >> 52 & 63) | 1 << (hash >> 58)
}

/// Returns word and bit of a root in the root filter.
pub(super) fn root_bit(root: u32) -> (usize, u64) {
    let hash = mix(u64::from(root));
    ((hash >> 6) as usize % ROOT_WORDS, 1 << (hash & 63))
}

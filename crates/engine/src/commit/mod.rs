//! Decides whether a transaction may commit, and commits it.
//!
//! A [`Candidate`] is what a transaction brings to its COMMIT: what it has seen, read and written.
//! This module decides by that and by the database alone. It knows no connection and waits for
//! nothing but the commit mutex. What a candidate lacks is returned as [`pipeline::Blocked`]; its
//! connection ([`txn`](crate::txn)) supplies that and tries again.
//!
//! ```text
//! reads, row_reads      what was read      \
//! writes, write_map     what was written    }-> validate -> pipeline: log, memtable, visible
//! Snapshot              what was seen      /
//! ```

pub mod maximum;
pub(crate) mod pipeline;
pub mod reads;
mod row_reads;
pub(crate) mod validate;
mod write_map;
pub mod writes;

use std::cell::RefCell;

use self::reads::ReadSet;
use self::writes::WriteSet;
use crate::database::Database;
use crate::database::listed::Listed;
use crate::ids::{Generation, Root, SlotIndex, SnapshotTs, TxnId};
use crate::memtable::{Node, Seek};

/// How durable a commit is when COMMIT returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Never waits for the disk.
    Off,
    /// In shared memory: survives the death of processes, not of the machine.
    Normal,
    /// On disk.
    Full,
}

/// What a transaction sees.
pub struct Snapshot {
    /// Commits up to this one.
    pub(crate) ts: SnapshotTs,
    /// Generations in the base read transaction.
    pub(crate) base_generation: Generation,
    /// Version of the base's content.
    pub(crate) base_cookie: u64,
    /// The base was not fenced, or shared memory did not say so yet.
    pub(crate) resting: bool,
    /// The base's header had the fence: no stock program has written since, even if shared memory
    /// said so only later.
    pub(crate) fenced: bool,
    /// Generations above the base's.
    pub(crate) memtables: Listed,
    /// Last nodes of b-trees, by root and index in `memtables`. They never change for a snapshot,
    /// and a transaction that appends needs them at every row.
    pub(crate) last_nodes: RefCell<Vec<(Root, usize, Option<u32>)>>,
}

impl Snapshot {
    /// Returns the last node of `root` in the `i`-th memtable.
    pub(crate) fn last_node(&self, i: usize, root: Root) -> Option<Node<'_>> {
        let memtable = &self.memtables.get(i)?.1;
        let mut known = self.last_nodes.borrow_mut();
        if let Some((_, _, offset)) = known.iter().find(|k| k.0 == root && k.1 == i) {
            return offset.map(|offset| memtable.node_at(offset));
        }
        let node = memtable.seek(root, Seek::Last, self.ts);
        known.push((root, i, node.map(|n| n.offset())));
        node
    }

    pub(crate) fn newest_generation(&self) -> Generation {
        self.memtables.first().map_or(self.base_generation, |m| m.0)
    }
}

/// A transaction as its COMMIT sees it.
pub(crate) struct Candidate<'t> {
    pub(crate) db: &'t Database,
    /// The slot of its connection.
    pub(crate) slot: SlotIndex,
    pub(crate) id: TxnId,
    /// `None`: it has seen nothing, so nothing it saw can have changed.
    pub(crate) snapshot: Option<&'t Snapshot>,
    pub(crate) reads: &'t mut ReadSet,
    pub(crate) writes: &'t mut WriteSet,
}

//! Maxima that several transactions raise without a conflict: the rows of `sqlite_sequence`.
//!
//! The record of a maximum ends in eight bytes, a signed big-endian integer; the rest names what it
//! is the maximum of. A commit raises the integer to what is committed under the same key
//! (`resolve_maxima`).
//!
//! A transaction that finds no maximum of a name makes one, under the key that SQLite would choose:
//! the next after all others. Two concurrent transactions that do so conflict, over the name or the
//! key: that happens once in the life of a table. Raising an existing maximum causes no conflict.
//!
//! A transaction that writes such a b-tree by hand, a record of any shape or a tombstone, has
//! decided what is under that key: its write hides what is committed there, and a maximum put over
//! it is an ordinary record. To make that right, a transaction that writes by hand where a maximum
//! goes over it, or the other way round, counts as a reader of the whole b-tree.
//!
//! # Invariants
//! - MAX-1 Each name has at most one committed maximum, unless they are written by hand.
//! - MAX-2 A maximum is raised when no other transaction can commit before this one: under the
//!   commit mutex, or with the writer's right. The commits since the snapshot are in memory then.
//!   So it is raised before a newer snapshot is taken with the right: the newer base contains, and
//!   hides, what others have raised.
//! - MAX-3 What the transaction has made, and what it sees of its writes by hand, is the same
//!   before and after its COMMIT.

use super::Candidate;
use crate::error::Result;
use crate::ids::{Generation, SnapshotTs};
use crate::memtable::EntryKind;

/// Returns all but the integer of a record that is a maximum: a header of at most 127 bytes that
/// ends in the type of an eight-byte integer, the name, and that integer.
pub fn name_of(rec: &[u8]) -> Option<&[u8]> {
    let (name, _) = rec.split_last_chunk::<8>()?;
    let header_len = usize::from(*rec.first()?);
    let is_maximum = header_len < 128 && name.get(..header_len)?.last() == Some(&6);
    is_maximum.then_some(name)
}

impl Candidate<'_> {
    /// (MAX-2) Raises all maxima of this transaction to what is committed.
    ///
    /// # Errors
    /// NoMemory.
    pub(crate) fn resolve_maxima(&mut self) -> Result<()> {
        if !self.writes.has_put_max() {
            return Ok(());
        }
        // The transaction has seen what the base of its snapshot includes.
        let base = self.snapshot.map_or(Generation::ZERO, |s| s.base_generation);
        let newest = self.db.generations.memtables_since(base)?;
        self.writes.resolve_maxima(|root, key, own| {
            let node = newest.iter().find_map(|(_, m)| m.get(root, key, SnapshotTs::MAX))?;
            let (rest, last) = node.rec().split_last_chunk::<8>()?;
            let (own_rest, _) = own.split_last_chunk::<8>()?;
            // A record of another shape was written by hand and does not end in such an integer.
            (node.kind() == EntryKind::Put && rest == own_rest).then(|| i64::from_be_bytes(*last))
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, value: i64) -> Vec<u8> {
        let name_type = u8::try_from(name.len() * 2 + 13).expect("a short name");
        [&[3, name_type, 6], name.as_bytes(), &value.to_be_bytes()].concat()
    }

    #[test]
    fn a_maximum_is_told_from_records_of_another_shape() {
        let rec = record("table", 7);
        assert_eq!(name_of(&rec), Some(&rec[..rec.len() - 8]));
        assert_eq!(name_of(b""), None);
        assert_eq!(name_of(&[3, 15, 1, b'e', 5]), None, "a small integer");
        assert_eq!(name_of(&[3, 15, 1, b'e', 5, 6, 6, 6, 6, 6, 6, 6]), None);
    }
}

//! Maxima that several transactions raise without a conflict: the rows of `sqlite_sequence`.
//!
//! The record of a maximum ends in eight bytes, a signed big-endian integer; the rest of it names what it is the maximum of. A
//! commit raises the integer to what is committed under the same key (`resolve_maxima`).
//!
//! Who finds no maximum of a name makes one, under the key that SQLite would choose. Others may have done the same meanwhile, of
//! this name or of another. Nothing refers to a maximum but by its name, so a commit moves it: to the key under which its
//! name is committed, or behind all others if its place is taken ([`places`]).
//!
//! Who writes such a b-tree by hand, a record of any shape or a tombstone, has decided what is under that key: it hides what is committed
//! there, and a maximum that is put over it is an ordinary record, which stays where it is. What makes that right is what was read: who
//! has written by hand what a maximum goes over, or the other way round, counts as a reader of the whole b-tree.
//!
//! # Invariants
//! - **MX1** Of a name there is never more than one committed maximum, as long as nobody writes them by hand.
//! - **MX2** A maximum is moved where nobody else commits any more before this transaction does: under the commit mutex, or with the
//!   writer's right. What was committed since the snapshot is in memory then.
//! - **MX3** Where nobody else has committed since the snapshot nothing moves: what the transaction sees before its COMMIT is there
//!   after it. A maximum is made where it sees no row, so what is committed under that key or name is what it has hidden by hand.

use std::collections::BTreeMap;

use super::Conn;
use crate::error::{Conflict, Error, Result};
use crate::ids::{CommitTs, Generation, Root, SnapshotTs};
use crate::memtable::EntryKind;
use crate::txn::write_set::{Write, WriteKind};

/// All but the integer of a record that is a maximum: a header of at most 127 bytes which ends in the type of an
/// eight-byte integer, the name, and that integer.
pub fn name_of(rec: &[u8]) -> Option<&[u8]> {
    let (name, _) = rec.split_last_chunk::<8>()?;
    let header_len = usize::from(*rec.first()?);
    let is_maximum = header_len < 128 && name.get(..header_len)?.last() == Some(&6);
    is_maximum.then_some(name)
}

/// That a name had no maximum when this transaction made one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The b-tree of the maxima.
    pub root: Root,
    /// The key under which it was made, or to which it was moved.
    pub key: Vec<u8>,
    /// See [`name_of`].
    pub name: Vec<u8>,
}

impl Missing {
    /// Whether what somebody committed, a record or (`None`) a tombstone, is such that this maximum cannot find its place: it was
    /// written by hand.
    pub fn is_contradicted(&self, root: Root, key: &[u8], rec: Option<&[u8]>) -> bool {
        root == self.root
            && match rec {
                // It may be of any name.
                Some(rec) => name_of(rec).is_none(),
                None => key == self.key,
            }
    }
}

/// Where a maximum goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where it was.
    pub from: Vec<u8>,
    /// Where it is.
    pub to: Vec<u8>,
}

/// What has to move of the maxima that were made, in the order of `made`, now that others have committed names under keys. `last`: the
/// last key that this transaction uses. `None`: there is no key left.
pub fn places(
    made: &[Missing],
    committed: &BTreeMap<Vec<u8>, Vec<u8>>,
    last: &[u8],
) -> Option<Vec<Move>> {
    let mut moves = Vec::new();
    let behind = committed.last_key_value().map(|(key, _)| key.as_slice());
    let mut last = last.max(behind.unwrap_or_default()).to_vec();
    for own in made {
        let same = committed.iter().find(|(_, name)| **name == own.name);
        let to = match same {
            Some((key, _)) if *key == own.key => continue,
            Some((key, _)) => key.clone(),
            None if !committed.contains_key(&own.key) => continue,
            None => {
                let word = u64::from_be_bytes(last.as_slice().try_into().ok()?);
                last = word.checked_add(1)?.to_be_bytes().to_vec();
                last.clone()
            }
        };
        moves.push(Move { from: own.key.clone(), to });
    }
    Some(moves)
}

impl Conn {
    /// As [`Conn::put`], but at commit the record's last 8 bytes become the maximum of theirs and the committed ones.
    pub fn put_max(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.admit(key, rec.len())?;
        self.cut_own_gaps(root, key);
        if self.writes.is_decided(root, key) {
            self.read_range(root, None, None);
        }
        self.writes.put_max(root, key, rec, 0)
    }

    /// As [`Conn::put_max`], of a maximum that this transaction has looked for in all of `root` and not found.
    pub fn make_max(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.put_max(root, key, rec)?;
        if self.records_reads() {
            match name_of(rec) {
                Some(name) => self.reads.missing_maximum(Missing {
                    root,
                    key: key.to_vec(),
                    name: name.to_vec(),
                }),
                None => self.reads.range(root, None, None),
            }
        }
        Ok(())
    }

    /// A key is about to be written by hand: over a maximum that was made it is for who has read all of them.
    pub(super) fn note_by_hand(&mut self, root: Root, key: &[u8]) {
        if self.reads.missing().iter().any(|made| made.root == root && made.key == key) {
            self.read_range(root, None, None);
        }
    }

    /// (MX2) Moves the maxima that this transaction has made to where they go, and raises all of its maxima to what is committed.
    pub(crate) fn resolve_maxima(&mut self) -> Result<()> {
        if !self.writes.has_put_max() {
            return Ok(());
        }
        self.move_made_maxima()?;
        // What the base of the snapshot includes this transaction has seen.
        let base = self.snapshot.as_ref().map_or(Generation::ZERO, |s| s.base_generation);
        let newest = self.db.generations.memtables_since(base);
        self.writes.resolve_maxima(|root, key, own| {
            let node = newest.iter().find_map(|(_, m)| m.get(root, key, SnapshotTs::MAX))?;
            let (rest, last) = node.rec().split_last_chunk::<8>()?;
            let (own_rest, _) = own.split_last_chunk::<8>()?;
            // A record of another shape was written by hand and does not end in such a number.
            (node.kind() == EntryKind::Put && rest == own_rest).then(|| i64::from_be_bytes(*last))
        });
        Ok(())
    }

    fn move_made_maxima(&mut self) -> Result<()> {
        let mut roots: Vec<Root> = self.reads.missing().iter().map(|made| made.root).collect();
        roots.dedup();
        for root in roots {
            let is_here = |made: &&Missing| {
                let write = self.writes.get(root, &made.key);
                // One that a ROLLBACK TO took back is not, nor one that was written over by hand.
                let is_max = |w: &Write| {
                    w.kind() == WriteKind::PutMax && name_of(w.rec()) == Some(&made.name)
                };
                made.root == root && write.is_some_and(is_max)
            };
            let made: Vec<_> = self.reads.missing().iter().filter(is_here).cloned().collect();
            let last = self.writes.seek(root, crate::memtable::Seek::Last);
            let last = last.map_or_else(Vec::new, |(key, _)| key.to_vec());
            let mut committed = self.committed_maxima(root);
            committed.retain(|key, _| !self.writes.is_decided(root, key));
            let moves = places(&made, &committed, &last).ok_or_else(|| {
                Error::Conflict(Box::new(Conflict { root, key: last, ..Conflict::default() }))
            })?;
            if !moves.is_empty() {
                self.writes.rekey(root, &moves)?;
                self.reads.move_missing(root, &moves);
                self.view = self.view.wrapping_add(1);
            }
        }
        Ok(())
    }

    /// Names and keys of what is committed in a b-tree of maxima above the snapshot's base.
    fn committed_maxima(&self, root: Root) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let base = self.snapshot.as_ref().map_or(Generation::ZERO, |s| s.base_generation);
        let mut newest: BTreeMap<Vec<u8>, (CommitTs, Option<Vec<u8>>)> = BTreeMap::new();
        for (_, memtable) in self.db.generations.memtables_since(base) {
            memtable.each_newer_than(root, SnapshotTs::ZERO, |node| {
                let name = (node.kind() == EntryKind::Put).then(|| name_of(node.rec())).flatten();
                let found = (node.ts(), name.map(<[u8]>::to_vec));
                match newest.get_mut(node.key()) {
                    Some(known) if known.0 < found.0 => *known = found,
                    Some(_) => {}
                    None => drop(newest.insert(node.key().to_vec(), found)),
                }
                true
            });
        }
        newest.into_iter().filter_map(|(key, (_, name))| name.map(|name| (key, name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, value: i64) -> Vec<u8> {
        let name_type = u8::try_from(name.len() * 2 + 13).expect("a short name");
        [&[3, name_type, 6], name.as_bytes(), &value.to_be_bytes()].concat()
    }

    fn key(word: u64) -> Vec<u8> {
        word.to_be_bytes().to_vec()
    }

    fn made(at: u64, name: &str) -> Missing {
        Missing { root: Root::new(3), key: key(at), name: name.as_bytes().to_vec() }
    }

    fn committed(rows: &[(u64, &str)]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        rows.iter().map(|&(at, name)| (key(at), name.as_bytes().to_vec())).collect()
    }

    /// From where to where.
    fn moved(own: &[(u64, &str)], others: &[(u64, &str)]) -> Vec<(u64, u64)> {
        let own: Vec<_> = own.iter().map(|&(at, name)| made(at, name)).collect();
        let last = own.iter().map(|made| made.key.clone()).max().expect("there is one");
        let word = |key: Vec<u8>| u64::from_be_bytes(key.try_into().expect("eight bytes"));
        let moves = places(&own, &committed(others), &last).expect("there is room");
        moves.into_iter().map(|step| (word(step.from), word(step.to))).collect()
    }

    #[test]
    fn a_maximum_is_told_from_records_of_another_shape() {
        let rec = record("table", 7);
        assert_eq!(name_of(&rec), Some(&rec[..rec.len() - 8]));
        assert_eq!(name_of(b""), None);
        assert_eq!(name_of(&[3, 15, 1, b'e', 5]), None, "a small integer");
        assert_eq!(name_of(&[3, 15, 1, b'e', 5, 6, 6, 6, 6, 6, 6, 6]), None);
    }

    #[test]
    fn a_missing_maximum_is_contradicted_by_what_was_written_by_hand() {
        let root = Root::new(3);
        let missing = made(1, "e");
        let contradicted =
            |at: u64, rec: Option<&[u8]>| missing.is_contradicted(root, &key(at), rec);
        assert!(!contradicted(1, Some(&record("e", 500))), "the same maximum");
        assert!(!contradicted(1, Some(&record("f", 5))), "it goes elsewhere");
        assert!(!contradicted(2, Some(&record("e", 5))), "it goes there");
        assert!(contradicted(1, None), "its place was used");
        assert!(!contradicted(2, None), "another one was deleted");
        assert!(contradicted(2, Some(b"by hand")), "nobody knows");
        assert!(!missing.is_contradicted(Root::new(4), &key(1), Some(b"another table")));
    }

    #[test]
    fn a_maximum_goes_where_its_name_is_or_behind_all_others() {
        assert_eq!(moved(&[(5, "e")], &[]), [], "nobody committed");
        assert_eq!(moved(&[(5, "e")], &[(5, "e"), (6, "f")]), [], "it was made there too");
        assert_eq!(moved(&[(5, "e")], &[(4, "f"), (6, "g")]), [], "its place is free");
        assert_eq!(moved(&[(5, "e")], &[(5, "f")]), [(5, 6)]);
        assert_eq!(moved(&[(5, "e")], &[(5, "f"), (9, "g")]), [(5, 10)]);
        assert_eq!(moved(&[(5, "e")], &[(5, "f"), (6, "e")]), [(5, 6)]);
    }

    #[test]
    fn maxima_of_one_transaction_do_not_meet_on_their_way() {
        assert_eq!(moved(&[(5, "e"), (6, "f")], &[(5, "f"), (6, "e")]), [(5, 6), (6, 5)]);
        assert_eq!(
            moved(&[(5, "e"), (6, "f")], &[(5, "x")]),
            [(5, 7)],
            "not where the other one is"
        );
        assert_eq!(moved(&[(5, "e"), (6, "f")], &[(5, "x"), (6, "y")]), [(5, 7), (6, 8)]);
        assert_eq!(moved(&[(5, "e"), (6, "f")], &[(5, "x"), (6, "e")]), [(5, 6), (6, 7)]);
    }

    #[test]
    fn behind_the_last_key_there_is_no_place() {
        let others = committed(&[(5, "f"), (u64::MAX, "g")]);
        assert_eq!(places(&[made(5, "e")], &others, &key(5)), None);
        assert_eq!(places(&[made(6, "e")], &others, &key(6)), Some(Vec::new()), "it needs none");
    }
}

//! Maxima that several transactions raise without a conflict: the rows of `sqlite_sequence`.
//!
//! The record of a maximum ends in eight bytes, a signed big-endian integer; the rest of it names what it is the maximum of. A
//! commit raises the integer to what is committed under the same key (`resolve_maxima`).
//!
//! Who finds no maximum of a name makes one, under a key that everybody with the same view would choose. That the
//! name had none counts as read, but not as a read of everything: others may raise other names' maxima, and may make this one
//! under this key.
//!
//! # Invariants
//! - **MX1** Of a name there is never more than one committed maximum, as long as nobody writes them by hand.

use crate::ids::Root;

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
    /// The key under which it was made.
    pub key: Vec<u8>,
    /// See [`name_of`].
    pub name: Vec<u8>,
}

impl Missing {
    /// Whether what somebody committed, a record or (`None`) a tombstone, contradicts it.
    pub fn is_contradicted(&self, root: Root, key: &[u8], rec: Option<&[u8]>) -> bool {
        if root != self.root {
            return false;
        }
        let is_own_name = match rec.map(name_of) {
            Some(Some(name)) => name == self.name,
            // Written by hand: it may be of any name.
            Some(None) => return true,
            None => false,
        };
        // Under this key it may be nothing but this maximum, and this maximum may be under no other key.
        is_own_name != (key == self.key)
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

    #[test]
    fn a_missing_maximum_is_contradicted_by_its_name_elsewhere_and_by_others_at_its_place() {
        let root = Root::new(3);
        let own = record("e", 1);
        let missing =
            Missing { root, key: vec![1], name: name_of(&own).expect("a maximum").to_vec() };
        let contradicted = |key: u8, rec: Option<&[u8]>| missing.is_contradicted(root, &[key], rec);
        assert!(!contradicted(1, Some(&record("e", 500))), "the same maximum");
        assert!(!contradicted(2, Some(&record("f", 5))), "another one");
        assert!(contradicted(1, Some(&record("f", 5))), "another one at its place");
        assert!(contradicted(2, Some(&record("e", 5))), "it is elsewhere");
        assert!(contradicted(1, None), "its place was used");
        assert!(!contradicted(2, None), "another one was deleted");
        assert!(contradicted(2, Some(b"by hand")), "nobody knows");
        assert!(!missing.is_contradicted(Root::new(4), &[1], Some(b"another table")));
    }
}

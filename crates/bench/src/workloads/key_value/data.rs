//! Keys and values as functions of a row's number: nothing has to be remembered to check what is read.
//!
//! A key is a permutation of the row's number, so that keys look random and none occurs twice. A value begins with its
//! version, masked, and goes on with bytes that depend on row and version: an update changes every byte.

use crate::engines::{Key, KeyKind};

/// An odd number whose multiples spread over all bits (Weyl sequence of splitmix64, Steele, Lea, Flood 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Length of a blob key.
const BLOB_KEY_BYTES: usize = 24;

/// Least length of a value: its version and as much again.
pub const VALUE_BYTES_MIN: usize = 16;

/// The finalizer of splitmix64, a permutation of the 64-bit numbers.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The rows of one table.
#[derive(Clone, Copy)]
pub struct Data {
    base: u64,
    keys: KeyKind,
    value_bytes: usize,
}

/// A row's key, with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKey {
    /// Of a table with integer keys.
    Int(i64),
    /// Of a table with blob keys.
    Blob([u8; BLOB_KEY_BYTES]),
}

impl RowKey {
    /// As engines take it.
    pub fn key(&self) -> Key<'_> {
        match self {
            Self::Int(int) => Key::Int(*int),
            Self::Blob(bytes) => Key::Blob(bytes),
        }
    }
}

impl Data {
    /// The rows of a table with such keys, of a seed.
    pub fn new(seed: u64, keys: KeyKind, value_bytes: usize) -> Self {
        Self { base: mix(seed ^ mix(keys as u64 + 1)), keys, value_bytes }
    }

    /// The key of a row.
    pub fn key(&self, row: u64) -> RowKey {
        // Each step is a permutation: different rows have different numbers.
        let number = mix(self.base.wrapping_add(row.wrapping_mul(STEP)));
        match self.keys {
            KeyKind::Int => RowKey::Int(number.cast_signed()),
            KeyKind::Blob => {
                let mut bytes = [0; BLOB_KEY_BYTES];
                for (i, part) in (0..).zip(bytes.chunks_exact_mut(8)) {
                    let word = if i == 0 { number } else { mix(number ^ mix(i)) };
                    part.copy_from_slice(&word.to_be_bytes());
                }
                RowKey::Blob(bytes)
            }
        }
    }

    /// What hides the version of a row's value.
    fn mask(&self, row: u64) -> u64 {
        mix(self.base ^ row.wrapping_mul(STEP).rotate_left(32))
    }

    /// Writes the value of a row in a version.
    pub fn fill(&self, row: u64, version: u64, value: &mut Vec<u8>) {
        let mask = self.mask(row);
        let start = mask.wrapping_add(mix(version));
        value.resize(self.value_bytes, 0);
        let words = value.chunks_mut(8);
        for (i, part) in (0_u64..).zip(words) {
            let word =
                if i == 0 { version ^ mask } else { mix(start.wrapping_add(i.wrapping_mul(STEP))) };
            part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
        }
    }

    /// The version of a row's value, if it is one. `scratch` is memory for comparing.
    pub fn version(&self, row: u64, value: &[u8], scratch: &mut Vec<u8>) -> Option<u64> {
        let version = u64::from_le_bytes(*value.first_chunk()?) ^ self.mask(row);
        self.fill(row, version, scratch);
        (scratch == value).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn data(keys: KeyKind) -> Data {
        Data::new(1, keys, 100)
    }

    #[test]
    fn no_key_occurs_twice() {
        for keys in [KeyKind::Int, KeyKind::Blob] {
            let seen: HashSet<Vec<u8>> = (0..100_000)
                .map(|row| match data(keys).key(row) {
                    RowKey::Int(int) => int.to_be_bytes().to_vec(),
                    RowKey::Blob(bytes) => bytes.to_vec(),
                })
                .collect();
            assert_eq!(seen.len(), 100_000, "{keys:?}");
        }
    }

    #[test]
    fn keys_come_in_no_order_and_with_both_signs() {
        let keys: Vec<RowKey> = (0..1000).map(|row| data(KeyKind::Int).key(row)).collect();
        let rising = keys.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((400..600).contains(&rising), "{rising} of 999 neighbours rise");
        let negative = keys.iter().filter(|key| **key < RowKey::Int(0)).count();
        assert!((400..600).contains(&negative), "{negative} of 1000 are negative");
    }

    #[test]
    fn an_update_changes_every_part_of_a_value() {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        data(KeyKind::Int).fill(7, 0, &mut one);
        data(KeyKind::Int).fill(7, 1, &mut two);
        assert_eq!((one.len(), two.len()), (100, 100));
        assert!(one.chunks(8).zip(two.chunks(8)).all(|(a, b)| a != b));
    }

    #[test]
    fn a_value_that_was_damaged_or_is_of_another_row_is_no_value() {
        let data = data(KeyKind::Blob);
        let (mut value, mut scratch) = (Vec::new(), Vec::new());
        data.fill(3, 5, &mut value);
        assert_eq!(data.version(3, &value, &mut scratch), Some(5));
        assert_eq!(data.version(4, &value, &mut scratch), None);
        for place in [0, 50, 99] {
            let mut damaged = value.clone();
            damaged[place] ^= 1;
            assert_eq!(data.version(3, &damaged, &mut scratch), None, "at {place}");
        }
        assert_eq!(data.version(3, &value[..99], &mut scratch), None);
        assert_eq!(data.version(3, &value[..4], &mut scratch), None);
    }
}

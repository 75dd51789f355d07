//! The names of objects below the URL of a chain.
//!
//! Numbers have leading zeros, so that names sort as numbers do; nothing relies on the order of a
//! list. A folder of `chain/` has ten thousand numbers.

use crate::ids::{Nonce, RecordNumber};

/// Records of one folder.
const FOLDER: u64 = 10_000;
/// Where packs are.
pub const PACKS: &str = "pack/";
/// Where parts are.
pub const PARTS: &str = "part/";
/// Where records are.
pub const CHAIN: &str = "chain/";
/// What the probe leaves if it is killed.
pub const PROBES: &str = "probe/";

/// Returns the folder in which a record is.
pub fn folder_of(number: RecordNumber) -> u64 {
    number.0 / FOLDER
}

/// Returns the prefix of all records in a folder.
pub fn folder(folder: u64) -> String {
    format!("{CHAIN}{folder:012}/")
}

/// Returns the name of a record.
pub fn record(number: RecordNumber) -> String {
    format!("{}{:016}", folder(folder_of(number)), number.0)
}

/// Reads the name of a record; `None` if it is another's.
pub fn parse_record(name: &str) -> Option<RecordNumber> {
    let (within, digits) = name.strip_prefix(CHAIN)?.split_once('/')?;
    let number = RecordNumber(decimal(digits, 16)?);
    (decimal(within, 12)? == folder_of(number)).then_some(number)
}

/// Returns the name of the pack of a range of records, both included.
pub fn pack(first: RecordNumber, last: RecordNumber) -> String {
    format!("{PACKS}{:016}-{:016}", first.0, last.0)
}

/// Reads the name of a pack; `None` if it is another's.
pub fn parse_pack(name: &str) -> Option<(RecordNumber, RecordNumber)> {
    let (first, last) = name.strip_prefix(PACKS)?.split_once('-')?;
    let (first, last) = (decimal(first, 16)?, decimal(last, 16)?);
    (1 <= first && first <= last).then_some((RecordNumber(first), RecordNumber(last)))
}

/// One upload of pages, as it is in the names of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Upload {
    /// The least number of a record that may name it.
    pub begun: RecordNumber,
    /// The writer.
    pub nonce: Nonce,
    /// The writer's count of uploads.
    pub serial: u32,
}

/// Returns the name of a part.
pub fn part(upload: Upload, index: u32) -> String {
    let Upload { begun, nonce, serial } = upload;
    format!("{PARTS}{:016}-{nonce}-{serial:08}-{index:08}", begun.0)
}

/// Reads the name of a part; `None` if it is another's.
pub fn parse_part(name: &str) -> Option<(Upload, u32)> {
    let mut fields = name.strip_prefix(PARTS)?.split('-');
    let (begun, nonce, serial, index) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_plain = nonce.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if nonce.len() != 32 || !is_plain || fields.next().is_some() {
        return None;
    }
    let nonce = Nonce(u128::from_str_radix(nonce, 16).ok()?.to_be_bytes());
    let begun = RecordNumber(decimal(begun, 16)?);
    let number = |digits| u32::try_from(decimal(digits, 8)?).ok();
    Some((Upload { begun, nonce, serial: number(serial)? }, number(index)?))
}

/// Returns the name of an object that a probe races for.
pub fn probe(nonce: Nonce, index: u32) -> String {
    format!("{PROBES}{nonce}-{index:08}")
}

/// Reads a number that is as long as `digits`, or longer and without a leading zero.
fn decimal(text: &str, digits: usize) -> Option<u64> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    let is_canonical = text.len() == digits || (text.len() > digits && !text.starts_with('0'));
    (is_number && is_canonical).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_reads_back_as_what_it_names(
            a in 1u64..u64::MAX, more in 0u64..1000, nonce: [u8; 16], serial: u32, index: u32,
        ) {
            let number = RecordNumber(a);
            prop_assert_eq!(parse_record(&record(number)), Some(number));
            let last = RecordNumber(a.saturating_add(more));
            prop_assert_eq!(parse_pack(&pack(number, last)), Some((number, last)));
            let upload = Upload { begun: number, nonce: Nonce(nonce), serial };
            prop_assert_eq!(parse_part(&part(upload, index)), Some((upload, index)));
        }

        #[test]
        fn names_of_small_numbers_sort_as_the_numbers_do(a in 0u64..10_u64.pow(16), b in 0u64..10_u64.pow(16)) {
            let names = (record(RecordNumber(a)), record(RecordNumber(b)));
            prop_assert_eq!(a.cmp(&b), names.0.cmp(&names.1));
        }
    }

    #[test]
    fn a_name_of_anything_else_is_not_read() {
        for name in [
            "",
            "chain/",
            "chain/000000000000/1",
            "chain/000000000001/0000000000000001",
            "chain/000000000000/0000000000000001x",
            "pack/0000000000000001",
            "readme",
            "chain/000000000000/+000000000000001",
            "chain/000000000000/00000000000000001",
        ] {
            assert_eq!(parse_record(name), None, "{name}");
        }
        assert_eq!(parse_pack("pack/0000000000000002-0000000000000001"), None);
        assert_eq!(parse_pack("pack/0000000000000000-0000000000000001"), None);
        assert_eq!(parse_part("part/0000000000000001-00-00000001-00000001"), None);
    }
}

//! Keys as bytes: rowids and index records, encoded so that `memcmp` orders them as SQLite does.
//!
//! # Layout
//! A table key is the rowid, eight bytes big-endian with the sign bit flipped. An index key is its
//! fields, one after the other. Each field is
//!
//! ```text
//! NULL    10
//! number  20 | ordered bits of the largest double <= value (8) | value - that double (2)
//! text    30 | text under its collation, 00 as 00 ff | 00 00
//!            NOCASE only, when the text holds a NUL:
//!            folded text before it | 00 01 | length of all (4)
//! blob    40 | bytes, 00 as 00 ff | 00 00
//! ```
//!
//! and every byte of a DESC field is inverted.
//!
//! # Invariants
//! - KEY-1 Two records compare as their encodings do, field for field as `sqlite3VdbeRecordCompare`
//!   compares them.
//! - KEY-2 No encoding of a field is a proper prefix of another of the same column: so the first n
//!   fields of a record are a byte prefix of its key, and only of keys that agree in those fields.
//! - KEY-3 Values that are equal to SQLite (1 and 1.0, 'a' and 'A' under NOCASE) encode alike. The
//!   record itself, stored with the key, tells them apart.
//!
//! # Threads
//! Pure functions.
//!
//! # Deliberately absent
//! Decoding of index keys to the encoded values, and collations of the application.

mod describe;
mod number;
mod record;
mod text;

#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod stock_tests;

pub use self::describe::describe;
pub use self::record::MalformedRecord;

use self::record::Fields;

/// Collation BINARY, in the low bits of a field byte.
pub const COLL_BINARY: u8 = 0;
/// Collation NOCASE, in the low bits of a field byte.
pub const COLL_NOCASE: u8 = 1;
/// Collation RTRIM, in the low bits of a field byte.
pub const COLL_RTRIM: u8 = 2;
/// Set in the field byte of a descending column.
pub const FIELD_DESC: u8 = 0x80;

const TAG_NULL: u8 = 0x10;
const TAG_NUMBER: u8 = 0x20;
const TAG_TEXT: u8 = 0x30;
const TAG_BLOB: u8 = 0x40;

/// How the database stores text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextEncoding {
    /// UTF-8.
    Utf8,
    /// UTF-16, low byte first.
    Utf16le,
    /// UTF-16, high byte first.
    Utf16be,
}

impl TextEncoding {
    /// Converts the number in the file's header; 0, not set yet, is UTF-8.
    pub fn from_sqlite(code: u8) -> Option<TextEncoding> {
        match code {
            0 | 1 => Some(TextEncoding::Utf8),
            2 => Some(TextEncoding::Utf16le),
            3 => Some(TextEncoding::Utf16be),
            _ => None,
        }
    }
}

/// A SQL value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A 64-bit integer.
    Integer(i64),
    /// A double; a NaN is NULL.
    Real(f64),
    /// Text in the encoding of the database.
    Text(&'a [u8]),
    /// Bytes, and zero bytes after them.
    Blob(&'a [u8], usize),
}

/// Returns the key of a rowid.
///
/// ```
/// use plait_sqlite::key::encode_rowid;
/// assert!(encode_rowid(-1) < encode_rowid(0));
/// ```
pub fn encode_rowid(rowid: i64) -> [u8; 8] {
    (rowid as u64 ^ 1 << 63).to_be_bytes()
}

/// Returns the rowid of a key, if that has eight bytes.
pub fn decode_rowid(key: &[u8]) -> Option<i64> {
    let bytes = key.try_into().ok()?;
    Some((u64::from_be_bytes(bytes) ^ 1 << 63) as i64)
}

/// Bytes of a key for each field, without those of its texts and blobs: tag, number, ends.
const FIELD_BYTES_MAX: usize = 24;

/// Returns an upper bound of the key's length for fields whose texts and blobs have these bytes,
/// and zero bytes after them.
pub fn room_for(bytes: &[u8], zeros: usize, fields: usize, encoding: TextEncoding) -> usize {
    // Each zero is escaped, and UTF-16 text may grow by half if its collation knows UTF-8 only.
    let escaped = bytes.iter().filter(|byte| **byte == 0).count();
    let transcoded = if encoding == TextEncoding::Utf8 { 0 } else { bytes.len() / 2 };
    bytes.len() + escaped.max(transcoded) + 2 * zeros + FIELD_BYTES_MAX * fields
}

/// Appends the key of an index record to `out`: its first `fields.len()` fields, or as many as
/// it has.
///
/// Each field byte is a collation, with [`FIELD_DESC`] for a descending column.
///
/// # Errors
/// The record is not one that SQLite could have written; `out` then holds a part of the key.
pub fn encode_record(
    rec: &[u8],
    fields: &[u8],
    encoding: TextEncoding,
    out: &mut Vec<u8>,
) -> Result<(), MalformedRecord> {
    let mut values = Fields::new(rec)?;
    for field in fields {
        match values.next_value()? {
            Some(value) => encode_value(value, *field, encoding, out),
            None => break,
        }
    }
    Ok(())
}

/// Appends the key, or the beginning of one, that has these values as its first fields.
pub fn encode_values<'v>(
    values: impl IntoIterator<Item = Value<'v>>,
    fields: &[u8],
    encoding: TextEncoding,
    out: &mut Vec<u8>,
) {
    for (value, field) in values.into_iter().zip(fields) {
        encode_value(value, *field, encoding, out);
    }
}

fn encode_value(value: Value<'_>, field: u8, encoding: TextEncoding, out: &mut Vec<u8>) {
    let start = out.len();
    match value {
        Value::Null => out.push(TAG_NULL),
        Value::Real(r) if r.is_nan() => out.push(TAG_NULL),
        Value::Integer(i) => {
            out.push(TAG_NUMBER);
            number::encode_integer(i, out);
        }
        Value::Real(r) => {
            out.push(TAG_NUMBER);
            number::encode_real(r, out);
        }
        Value::Text(bytes) => {
            out.push(TAG_TEXT);
            text::encode_text(bytes, field & !FIELD_DESC, encoding, out);
        }
        Value::Blob(bytes, zeros) => {
            out.push(TAG_BLOB);
            text::escape(bytes, out);
            for _ in 0..zeros {
                out.extend_from_slice(&text::ESCAPED_ZERO);
            }
            out.extend_from_slice(&text::END);
        }
    }
    if field & FIELD_DESC != 0 {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

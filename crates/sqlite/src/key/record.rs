//! Reading SQLite's record format.

use super::Value;

/// A record that SQLite could not have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRecord;

impl std::fmt::Display for MalformedRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("malformed record")
    }
}

impl std::error::Error for MalformedRecord {}

/// The fields of a record, from the first.
pub(super) struct Fields<'a> {
    types: &'a [u8],
    body: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Finds header and body.
    pub(super) fn new(rec: &'a [u8]) -> Result<Fields<'a>, MalformedRecord> {
        let mut rest = rec;
        let header_len = usize::try_from(take_varint(&mut rest)?).map_err(|_| MalformedRecord)?;
        let varint_len = rec.len() - rest.len();
        if header_len < varint_len || header_len > rec.len() {
            return Err(MalformedRecord);
        }
        let (header, body) = rec.split_at(header_len);
        Ok(Fields { types: &header[varint_len..], body })
    }

    /// Returns the next field; `None` after the last.
    pub(super) fn next_value(&mut self) -> Result<Option<Value<'a>>, MalformedRecord> {
        if self.types.is_empty() {
            return Ok(None);
        }
        let value = match take_varint(&mut self.types)? {
            // 10 and 11 are reserved; SQLite reads them as NULL.
            0 | 10 | 11 => Value::Null,
            len @ 1..=4 => Value::Integer(self.integer(len as usize)?),
            5 => Value::Integer(self.integer(6)?),
            6 => Value::Integer(self.integer(8)?),
            7 => Value::Real(f64::from_bits(self.integer(8)? as u64)),
            8 => Value::Integer(0),
            9 => Value::Integer(1),
            n if n % 2 == 0 => Value::Blob(self.bytes((n - 12) / 2)?, 0),
            n => Value::Text(self.bytes((n - 13) / 2)?),
        };
        Ok(Some(value))
    }

    fn bytes(&mut self, len: u64) -> Result<&'a [u8], MalformedRecord> {
        let len = usize::try_from(len).map_err(|_| MalformedRecord)?;
        let (bytes, rest) = self.body.split_at_checked(len).ok_or(MalformedRecord)?;
        self.body = rest;
        Ok(bytes)
    }

    /// Takes a big-endian integer of `len` bytes, sign-extended.
    fn integer(&mut self, len: usize) -> Result<i64, MalformedRecord> {
        let bytes = self.bytes(len as u64)?;
        let mut wide = [0; 8];
        wide[..len].copy_from_slice(bytes);
        Ok(i64::from_be_bytes(wide) >> (64 - 8 * len))
    }
}

/// Takes a variable-length integer: seven bits a byte, high ones first, eight in the ninth.
fn take_varint(bytes: &mut &[u8]) -> Result<u64, MalformedRecord> {
    let mut value = 0u64;
    for i in 0..9 {
        let (&byte, rest) = bytes.split_first().ok_or(MalformedRecord)?;
        *bytes = rest;
        if i == 8 {
            return Ok(value << 8 | u64::from(byte));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(MalformedRecord)
}

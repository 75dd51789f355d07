//! Keys for people: the values of a key, for the texts of conflicts.
//!
//! A key is no record: NOCASE text is folded, RTRIM text has lost its spaces, 1 and 1.0 are one.
//! Even so it says which row is meant.

use std::fmt::Write as _;

use super::{TAG_BLOB, TAG_NULL, TAG_NUMBER, TAG_TEXT, TextEncoding, number, text};

/// Returns the values of an index key as SQL literals in parentheses, the rowid last where the
/// index needs it to tell its entries apart. A key that is cut off ends in "...", and so do bytes
/// that are no key.
///
/// ```
/// use plait_sqlite::key::{Value, COLL_BINARY, TextEncoding, describe, encode_values};
/// let mut key = Vec::new();
/// let values = [Value::Text(b"it's"), Value::Integer(-7)];
/// encode_values(values, &[COLL_BINARY; 2], TextEncoding::Utf8, &mut key);
/// assert_eq!(describe(&key, TextEncoding::Utf8), "('it''s', -7)");
/// assert_eq!(describe(&key[..3], TextEncoding::Utf8), "('it...");
/// ```
pub fn describe(key: &[u8], encoding: TextEncoding) -> String {
    let mut out = String::from("(");
    let mut rest = key;
    while let Some(&first) = rest.first() {
        if rest.len() < key.len() {
            out.push_str(", ");
        }
        // All bytes of a DESC field are inverted, and no tag has the highest bit.
        let descends = first & 0x80 != 0;
        let field: Vec<u8> = rest.iter().map(|byte| if descends { !byte } else { *byte }).collect();
        let Some(taken) = describe_field(&field, encoding, &mut out) else {
            out.push_str("...");
            return out;
        };
        rest = &rest[taken..];
    }
    out.push(')');
    out
}

/// Appends the first field and returns its bytes, unless it is cut off.
fn describe_field(field: &[u8], encoding: TextEncoding, out: &mut String) -> Option<usize> {
    match field[0] {
        TAG_NULL => {
            out.push_str("NULL");
            Some(1)
        }
        TAG_NUMBER => {
            out.push_str(&number::describe(field.get(1..=number::BYTES)?.try_into().ok()?));
            Some(1 + number::BYTES)
        }
        tag @ (TAG_TEXT | TAG_BLOB) => {
            let (bytes, taken) = text::unescape(&field[1..]);
            let is_text = tag == TAG_TEXT && encoding == TextEncoding::Utf8;
            if is_text {
                let shown = String::from_utf8_lossy(&bytes).replace('\'', "''");
                out.push('\'');
                out.extend(shown.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }));
            } else {
                out.push_str("x'");
                bytes.iter().for_each(|byte| {
                    let _ = write!(out, "{byte:02x}");
                });
            }
            let taken = taken?;
            out.push('\'');
            Some(1 + taken)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{COLL_BINARY, COLL_NOCASE, COLL_RTRIM, FIELD_DESC, Value, encode_values};
    use super::*;

    fn key(values: &[Value<'_>], fields: &[u8], encoding: TextEncoding) -> Vec<u8> {
        let mut key = Vec::new();
        encode_values(values.iter().copied(), fields, encoding, &mut key);
        key
    }

    fn told(value: Value<'_>, field: u8) -> String {
        describe(&key(&[value], &[field], TextEncoding::Utf8), TextEncoding::Utf8)
    }

    #[test]
    fn values_are_told_as_literals_in_either_direction() {
        for (value, literal) in [
            (Value::Null, "(NULL)"),
            (Value::Integer(0), "(0)"),
            (Value::Integer(-1), "(-1)"),
            (Value::Integer(i64::MAX), "(9223372036854775807)"),
            (Value::Integer(i64::MIN + 1), "(-9223372036854775807)"),
            (Value::Real(1.0), "(1)"),
            (Value::Real(-0.25), "(-0.25)"),
            (Value::Real(1e300), "(1e300)"),
            (Value::Real(f64::INFINITY), "(9e999)"),
            (Value::Text(b""), "('')"),
            (Value::Text("é'\n".as_bytes()), "('é''\u{fffd}')"),
            (Value::Text(b"a\0b"), "('a\u{fffd}b')"),
            (Value::Blob(&[0, 255, 1], 1), "(x'00ff0100')"),
        ] {
            assert_eq!(told(value, COLL_BINARY), literal);
            assert_eq!(told(value, COLL_BINARY | FIELD_DESC), literal);
        }
        assert_eq!(told(Value::Text(b"ABC\0D"), COLL_NOCASE), "('abc')");
        assert_eq!(told(Value::Text(b"AB  "), COLL_RTRIM), "('AB')");
    }

    #[test]
    fn fields_follow_each_other_and_one_that_is_cut_off_is_told_as_far_as_it_goes() {
        let values = [Value::Text(b"ab"), Value::Null, Value::Integer(5), Value::Blob(&[1], 0)];
        let fields = [COLL_NOCASE | FIELD_DESC, 0, FIELD_DESC, 0];
        let all = key(&values, &fields, TextEncoding::Utf8);
        let whole = "('ab', NULL, 5, x'01')";
        assert_eq!(describe(&all, TextEncoding::Utf8), whole);
        for n in 0..all.len() {
            let cut = describe(&all[..n], TextEncoding::Utf8);
            let said = cut.trim_end_matches("...").trim_end_matches(')');
            assert!(whole.starts_with(said), "{n}: {cut}");
        }
        assert_eq!(describe(&all[..2], TextEncoding::Utf8), "('a...");
    }

    #[test]
    fn what_is_no_key_is_no_panic() {
        for byte in 0..=u8::MAX {
            for len in 0..14 {
                describe(&vec![byte; len], TextEncoding::Utf8);
            }
        }
    }

    #[test]
    fn text_of_another_encoding_is_told_as_bytes() {
        let utf16 = key(&[Value::Text(&[97, 0])], &[COLL_BINARY], TextEncoding::Utf16le);
        assert_eq!(describe(&utf16, TextEncoding::Utf16le), "(x'6100')");
    }
}

//! Text and blobs: collations, and escaped zero bytes.

use std::borrow::Cow;

use super::{COLL_BINARY, COLL_NOCASE, COLL_RTRIM, TextEncoding};

/// Ends a text or a blob: less than any byte that could follow.
pub(super) const END: [u8; 2] = [0, 0];
/// Ends NOCASE text at an embedded NUL; the length of all of it follows.
const END_AT_NUL: [u8; 2] = [0, 1];
/// A zero byte inside a text or blob.
pub(super) const ESCAPED_ZERO: [u8; 2] = [0, 0xff];

/// Appends text and its end.
///
/// # Panics
/// On an unknown collation.
pub(super) fn encode_text(text: &[u8], collation: u8, encoding: TextEncoding, out: &mut Vec<u8>) {
    match collation {
        // SQLite has BINARY for every encoding and compares the stored bytes; the other collations
        // know UTF-8 only.
        COLL_BINARY => {
            escape(text, out);
            out.extend_from_slice(&END);
        }
        COLL_NOCASE => encode_nocase(&to_utf8(text, encoding), out),
        COLL_RTRIM => {
            let utf8 = to_utf8(text, encoding);
            let end = utf8.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
            escape(&utf8[..end], out);
            out.extend_from_slice(&END);
        }
        _ => panic!("unknown collation {collation}"),
    }
}

/// Encodes text as SQLite's NOCASE compares it: ASCII letters folded, up to a NUL that both have at
/// the same place; then by length.
fn encode_nocase(text: &[u8], out: &mut Vec<u8>) {
    let nul = text.iter().position(|byte| *byte == 0);
    let before = &text[..nul.unwrap_or(text.len())];
    let start = out.len();
    out.extend_from_slice(before);
    out[start..].make_ascii_lowercase();
    if nul.is_none() {
        out.extend_from_slice(&END);
    } else {
        out.extend_from_slice(&END_AT_NUL);
        // Text is shorter than 2^31 bytes in SQLite.
        out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    }
}

/// Appends bytes with each zero escaped.
pub(super) fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.contains(&0) {
        out.extend_from_slice(bytes);
        return;
    }
    let mut parts = bytes.split(|byte| *byte == 0);
    if let Some(first) = parts.next() {
        out.extend_from_slice(first);
    }
    for part in parts {
        out.extend_from_slice(&ESCAPED_ZERO);
        out.extend_from_slice(part);
    }
}

/// Returns what was escaped, and how many bytes it takes with its end; `None` if the end
/// is missing.
pub(super) fn unescape(escaped: &[u8]) -> (Vec<u8>, Option<usize>) {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&byte) = escaped.get(at) {
        if byte != 0 {
            out.push(byte);
            at += 1;
            continue;
        }
        match escaped.get(at..at + 2) {
            Some(pair) if *pair == END => return (out, Some(at + 2)),
            // The length of all of it.
            Some(pair) if *pair == END_AT_NUL && at + 6 <= escaped.len() => {
                return (out, Some(at + 6));
            }
            Some(pair) if *pair == ESCAPED_ZERO => out.push(0),
            _ => break,
        }
        at += 2;
    }
    (out, None)
}

/// Returns text as SQLite transcodes it for a collation that knows UTF-8 only.
fn to_utf8(text: &[u8], encoding: TextEncoding) -> Cow<'_, [u8]> {
    let unit: fn([u8; 2]) -> u16 = match encoding {
        TextEncoding::Utf8 => return Cow::Borrowed(text),
        TextEncoding::Utf16le => u16::from_le_bytes,
        TextEncoding::Utf16be => u16::from_be_bytes,
    };
    // An odd last byte is dropped.
    let mut units = text.as_chunks::<2>().0.iter().map(|pair| u32::from(unit(*pair)));
    let mut out = Vec::with_capacity(text.len() / 2 * 3);
    while let Some(first) = units.next() {
        // A surrogate joins with the unit after it, paired or not; a last one stays alone.
        let second = if (0xd800..0xe000).contains(&first) { units.next() } else { None };
        push_utf8(second.map_or(first, |second| join(first, second)), &mut out);
    }
    Cow::Owned(out)
}

fn join(first: u32, second: u32) -> u32 {
    (second & 0x3ff) + ((first & 0x3f) << 10) + (((first & 0x3c0) + 0x40) << 10)
}

/// Appends a code point, surrogates too, which a `char` cannot hold.
fn push_utf8(c: u32, out: &mut Vec<u8>) {
    let tail = |shift: u32| 0x80 | (c >> shift & 0x3f) as u8;
    match c {
        0..0x80 => out.push(c as u8),
        0x80..0x800 => out.extend_from_slice(&[0xc0 | (c >> 6) as u8, tail(0)]),
        0x800..0x1_0000 => out.extend_from_slice(&[0xe0 | (c >> 12) as u8, tail(6), tail(0)]),
        _ => out.extend_from_slice(&[0xf0 | (c >> 18 & 7) as u8, tail(12), tail(6), tail(0)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(units: &[u16]) -> Vec<u8> {
        units.iter().flat_map(|unit| unit.to_le_bytes()).collect()
    }

    #[test]
    fn valid_utf16_becomes_the_utf8_of_the_same_text() {
        let text = "aé€😀\0z";
        let le = utf16(&text.encode_utf16().collect::<Vec<_>>());
        assert_eq!(&*to_utf8(&le, TextEncoding::Utf16le), text.as_bytes());
        let be: Vec<u8> = le.as_chunks::<2>().0.iter().flat_map(|[a, b]| [*b, *a]).collect();
        assert_eq!(&*to_utf8(&be, TextEncoding::Utf16be), text.as_bytes());
    }

    #[test]
    fn a_surrogate_swallows_what_follows_and_an_odd_byte_is_dropped() {
        let mut text = utf16(&[0xdc00, 0x0041, 0xd800]);
        text.push(0x41);
        let c = join(0xdc00, 0x41);
        let mut expected = Vec::new();
        push_utf8(c, &mut expected);
        expected.extend_from_slice(&[0xed, 0xa0, 0x80]);
        assert_eq!(&*to_utf8(&text, TextEncoding::Utf16le), expected);
    }
}

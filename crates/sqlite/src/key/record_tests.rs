//! Records of every shape, whole and damaged.

use proptest::prelude::*;

use super::*;

/// Appends a varint.
fn push_varint(value: u64, out: &mut Vec<u8>) {
    if value >> 56 != 0 {
        out.extend((0..8).map(|i| 0x80 | (value >> (57 - 7 * i)) as u8 & 0x7f));
        out.push(value as u8);
        return;
    }
    let len = (1..=8).find(|n| value >> (7 * n) == 0).unwrap_or(8);
    for i in (0..len).rev() {
        let more = if i > 0 { 0x80 } else { 0 };
        out.push((value >> (7 * i)) as u8 & 0x7f | more);
    }
}

/// A record as SQLite writes it: integers in the fewest bytes.
pub(super) fn make_record(values: &[Value<'_>]) -> Vec<u8> {
    let (mut types, mut body) = (Vec::new(), Vec::new());
    for value in values {
        match *value {
            Value::Null => push_varint(0, &mut types),
            Value::Integer(0) => push_varint(8, &mut types),
            Value::Integer(1) => push_varint(9, &mut types),
            Value::Integer(i) => {
                let sizes = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (6, 8)];
                let fits = |len: u32| {
                    len == 8 || (-(1i64 << (8 * len - 1))..1i64 << (8 * len - 1)).contains(&i)
                };
                let (code, len) = sizes.into_iter().find(|(_, len)| fits(*len)).unwrap_or((6, 8));
                push_varint(code, &mut types);
                body.extend_from_slice(&i.to_be_bytes()[8 - len as usize..]);
            }
            Value::Real(r) => {
                push_varint(7, &mut types);
                body.extend_from_slice(&r.to_bits().to_be_bytes());
            }
            Value::Text(text) => {
                push_varint(text.len() as u64 * 2 + 13, &mut types);
                body.extend_from_slice(text);
            }
            Value::Blob(bytes, zeros) => {
                push_varint((bytes.len() + zeros) as u64 * 2 + 12, &mut types);
                body.extend_from_slice(bytes);
                body.resize(body.len() + zeros, 0);
            }
        }
    }
    let mut record = Vec::new();
    let header_len = if types.len() < 127 { types.len() + 1 } else { types.len() + 2 };
    push_varint(header_len as u64, &mut record);
    [record, types, body].concat()
}

fn encode(rec: &[u8], fields: &[u8]) -> Result<Vec<u8>, MalformedRecord> {
    let mut out = Vec::new();
    encode_record(rec, fields, TextEncoding::Utf8, &mut out).map(|()| out)
}

#[test]
fn a_record_of_every_serial_type_encodes_as_its_values() {
    let long = vec![b'x'; 70_000];
    let integers =
        [0, 1, -1, 127, -129, 32_768, -8_388_609, 1 << 31, -(1 << 47), 1 << 47, i64::MIN, i64::MAX];
    let mut values: Vec<Value<'_>> = integers.map(Value::Integer).to_vec();
    values.extend([
        Value::Null,
        Value::Real(-1.5),
        Value::Text(b"text"),
        Value::Text(b""),
        Value::Blob(b"blob\0", 3),
    ]);
    values.extend([Value::Text(&long), Value::Blob(b"", 0), Value::Integer(7)]);
    let fields = vec![COLL_BINARY; values.len()];
    let mut expected = Vec::new();
    encode_values(values.iter().copied(), &fields, TextEncoding::Utf8, &mut expected);
    assert_eq!(encode(&make_record(&values), &fields), Ok(expected));
}

#[test]
fn a_header_of_two_byte_length_is_understood() {
    let values = vec![Value::Integer(5); 300];
    let fields = vec![FIELD_DESC; 300];
    let mut expected = Vec::new();
    encode_values(values.iter().copied(), &fields, TextEncoding::Utf8, &mut expected);
    assert_eq!(encode(&make_record(&values), &fields), Ok(expected));
}

#[test]
fn only_the_asked_fields_are_encoded_and_missing_ones_end_the_key() {
    let record = make_record(&[Value::Integer(1), Value::Text(b"b"), Value::Null]);
    let all = encode(&record, &[0; 3]).expect("well-formed");
    for n in 0..3 {
        let part = encode(&record, &vec![0; n]).expect("well-formed");
        assert!(part.len() < all.len() && all.starts_with(&part));
    }
    assert_eq!(encode(&record, &[0; 9]), Ok(all));
}

#[test]
fn a_truncated_record_is_malformed_at_every_length() {
    let record = make_record(&[
        Value::Integer(300),
        Value::Text(b"text"),
        Value::Real(2.5),
        Value::Blob(&[1; 200], 0),
    ]);
    assert!(encode(&record, &[0; 4]).is_ok());
    for len in 0..record.len() {
        assert_eq!(encode(&record[..len], &[0; 4]), Err(MalformedRecord), "cut at {len}");
    }
}

#[test]
fn a_header_that_lies_is_malformed() {
    assert_eq!(encode(&[], &[0]), Err(MalformedRecord));
    assert_eq!(encode(&[0], &[0]), Err(MalformedRecord));
    assert_eq!(encode(&[5, 1, 1], &[0]), Err(MalformedRecord));
    assert_eq!(encode(&[2, 0x81, 1], &[0]), Err(MalformedRecord));
    assert_eq!(
        encode(&[10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[0]),
        Err(MalformedRecord)
    );
    assert_eq!(encode(&[1], &[0]), Ok(Vec::new()));
}

#[test]
fn rowids_come_back_and_keep_their_order() {
    let ids = [i64::MIN, -2, -1, 0, 1, 255, 256, i64::MAX];
    for pair in ids.windows(2) {
        assert!(encode_rowid(pair[0]) < encode_rowid(pair[1]));
    }
    for id in ids {
        assert_eq!(decode_rowid(&encode_rowid(id)), Some(id));
    }
    assert_eq!(decode_rowid(b"short"), None);
}

/// Encodes in every text encoding. No length or type in a record makes the key much longer than
/// the record.
fn encode_bounded(rec: &[u8], fields: &[u8]) {
    for encoding in [TextEncoding::Utf8, TextEncoding::Utf16le, TextEncoding::Utf16be] {
        let mut out = Vec::new();
        let _ = encode_record(rec, fields, encoding, &mut out);
        assert!(out.len() <= 4 * rec.len() + 16 * (fields.len() + 1), "{} bytes", out.len());
    }
}

fn any_fields() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((0u8..3, any::<bool>()), 0..6).prop_map(|fields| {
        let byte = |(collation, down)| if down { collation | FIELD_DESC } else { collation };
        fields.into_iter().map(byte).collect()
    })
}

proptest! {
    #[test]
    fn no_bytes_make_the_encoder_panic(rec in prop::collection::vec(any::<u8>(), 0..60), fields in any_fields()) {
        encode_bounded(&rec, &fields);
    }

    #[test]
    fn no_change_of_a_record_makes_the_encoder_panic(
        text in prop::collection::vec(any::<u8>(), 0..40),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        fields in any_fields(),
    ) {
        let mut rec = make_record(&[
            Value::Integer(-300), Value::Text(&text), Value::Real(2.5), Value::Blob(&text, 2), Value::Null,
        ]);
        for (at, byte) in changes {
            // The header, which has lengths and types, more often than the rest.
            let within = if byte % 2 == 0 { 7 } else { rec.len() };
            rec[at.index(within)] = byte;
        }
        encode_bounded(&rec, &fields);
        encode_bounded(&rec[..cut.index(rec.len() + 1)], &fields);
    }
}

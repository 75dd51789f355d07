//! Compares the order of keys with that of values as SQLite's record comparison orders them.

use std::cmp::Ordering;

use proptest::collection::vec;
use proptest::prelude::*;

use super::record_tests::make_record;
use super::*;

/// A value that owns its bytes.
#[derive(Clone, Debug)]
pub(super) enum Owned {
    Null,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>, usize),
}

impl Owned {
    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Owned::Null => Value::Null,
            Owned::Integer(i) => Value::Integer(*i),
            Owned::Real(r) => Value::Real(*r),
            Owned::Text(text) => Value::Text(text),
            Owned::Blob(bytes, zeros) => Value::Blob(bytes, *zeros),
        }
    }
}

fn integers() -> impl Strategy<Value = i64> {
    let edges = prop_oneof![
        Just(0i64),
        Just(i64::MAX),
        Just(i64::MIN),
        Just(1 << 53),
        Just(-(1 << 53)),
        Just(1 << 62),
        Just(-(1 << 62)),
        Just(i64::MAX - 1023),
    ];
    prop_oneof![
        (edges, -3i64..4).prop_map(|(edge, near)| edge.saturating_add(near)),
        -3i64..4,
        any::<i64>(),
    ]
}

fn reals() -> impl Strategy<Value = f64> {
    let edges = prop_oneof![
        Just(0.0),
        Just(-0.0),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(f64::MIN_POSITIVE),
        Just(-f64::MIN_POSITIVE),
        Just(f64::NAN),
        Just(9_223_372_036_854_775_808.0),
        Just(-9_223_372_036_854_775_808.0),
        Just(0.5),
        Just(-0.5),
    ];
    prop_oneof![
        edges,
        integers().prop_map(|i| i as f64),
        integers().prop_map(|i| (i as f64).next_up()),
        integers().prop_map(|i| (i as f64).next_down()),
        any::<u64>().prop_map(f64::from_bits),
    ]
}

fn texts() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        Just(0u8),
        Just(1),
        Just(b' '),
        Just(b'a'),
        Just(b'A'),
        Just(b'Z'),
        Just(b'['),
        Just(0xff),
        Just(0xd8),
        Just(0xdc)
    ];
    vec(byte, 0..7)
}

pub(super) fn values() -> impl Strategy<Value = Owned> {
    prop_oneof![
        1 => Just(Owned::Null),
        3 => integers().prop_map(Owned::Integer),
        3 => reals().prop_map(Owned::Real),
        4 => texts().prop_map(Owned::Text),
        2 => (texts(), 0usize..3).prop_map(|(bytes, zeros)| Owned::Blob(bytes, zeros)),
    ]
}

pub(super) fn fields() -> impl Strategy<Value = Vec<u8>> {
    vec(
        (0u8..3, any::<bool>())
            .prop_map(|(coll, desc)| if desc { coll | FIELD_DESC } else { coll }),
        3,
    )
}

pub(super) fn encodings() -> impl Strategy<Value = TextEncoding> {
    prop_oneof![Just(TextEncoding::Utf8), Just(TextEncoding::Utf16le), Just(TextEncoding::Utf16be)]
}

fn integer_to_real(i: i64, r: f64) -> Ordering {
    if r < -9_223_372_036_854_775_808.0 {
        return Ordering::Greater;
    }
    if r >= 9_223_372_036_854_775_808.0 {
        return Ordering::Less;
    }
    let whole = r as i64;
    i.cmp(&whole).then_with(|| (i as f64).partial_cmp(&r).expect("no NaN"))
}

/// Transcodes with units as the standard library has them, but surrogates as SQLite has them.
fn utf8_of(text: &[u8], encoding: TextEncoding) -> Vec<u8> {
    let units: Vec<u32> = match encoding {
        TextEncoding::Utf8 => return text.to_vec(),
        TextEncoding::Utf16le => {
            text.chunks_exact(2).map(|c| u32::from(c[0]) | u32::from(c[1]) << 8).collect()
        }
        TextEncoding::Utf16be => {
            text.chunks_exact(2).map(|c| u32::from(c[1]) | u32::from(c[0]) << 8).collect()
        }
    };
    let mut out = Vec::new();
    let mut i = 0;
    while i < units.len() {
        let mut c = units[i];
        i += 1;
        if c & 0xf800 == 0xd800 && i < units.len() {
            c = (units[i] & 0x3ff) | (c & 0x3f) << 10 | ((c >> 6 & 0xf) + 1) << 16;
            i += 1;
        }
        let len = [0x80, 0x800, 0x1_0000].iter().filter(|limit| c >= **limit).count();
        let lead = [0, 0xc0, 0xe0, 0xf0][len];
        out.push(lead | (c >> (6 * len)) as u8);
        out.extend((0..len).rev().map(|n| 0x80 | (c >> (6 * n)) as u8 & 0x3f));
    }
    out
}

fn compare_nocase(a: &[u8], b: &[u8]) -> Ordering {
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (x.to_ascii_lowercase(), y.to_ascii_lowercase());
        if x != y {
            return x.cmp(&y);
        }
        if x == 0 {
            break;
        }
    }
    a.len().cmp(&b.len())
}

fn compare_texts(a: &[u8], b: &[u8], collation: u8, encoding: TextEncoding) -> Ordering {
    let trimmed = |text: &[u8]| {
        let mut text = utf8_of(text, encoding);
        while text.last() == Some(&b' ') {
            text.pop();
        }
        text
    };
    match collation {
        COLL_BINARY => a.cmp(b),
        COLL_NOCASE => compare_nocase(&utf8_of(a, encoding), &utf8_of(b, encoding)),
        _ => trimmed(a).cmp(&trimmed(b)),
    }
}

fn rank(value: &Owned) -> u8 {
    match value {
        Owned::Null => 0,
        Owned::Real(r) if r.is_nan() => 0,
        Owned::Integer(_) | Owned::Real(_) => 1,
        Owned::Text(_) => 2,
        Owned::Blob(..) => 3,
    }
}

fn compare_ascending(a: &Owned, b: &Owned, collation: u8, encoding: TextEncoding) -> Ordering {
    if rank(a) != rank(b) || rank(a) == 0 {
        return rank(a).cmp(&rank(b));
    }
    match (a, b) {
        (Owned::Integer(a), Owned::Integer(b)) => a.cmp(b),
        (Owned::Integer(i), Owned::Real(r)) => integer_to_real(*i, *r),
        (Owned::Real(r), Owned::Integer(i)) => integer_to_real(*i, *r).reverse(),
        (Owned::Real(a), Owned::Real(b)) => a.partial_cmp(b).expect("no NaN"),
        (Owned::Text(a), Owned::Text(b)) => compare_texts(a, b, collation, encoding),
        (Owned::Blob(a, m), Owned::Blob(b, n)) => {
            let whole = |bytes: &[u8], zeros: usize| [bytes, &vec![0; zeros]].concat();
            whole(a, *m).cmp(&whole(b, *n))
        }
        _ => unreachable!("equal ranks"),
    }
}

fn compare_rows(a: &[Owned], b: &[Owned], fields: &[u8], encoding: TextEncoding) -> Ordering {
    for ((a, b), field) in a.iter().zip(b).zip(fields) {
        let order = compare_ascending(a, b, field & !FIELD_DESC, encoding);
        if order.is_ne() {
            return if field & FIELD_DESC != 0 { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}

pub(super) fn key_of(row: &[Owned], fields: &[u8], encoding: TextEncoding) -> Vec<u8> {
    let values: Vec<Value<'_>> = row.iter().map(Owned::value).collect();
    let mut key = Vec::new();
    encode_values(values.iter().copied(), fields, encoding, &mut key);
    let mut of_record = Vec::new();
    encode_record(&make_record(&values), fields, encoding, &mut of_record).expect("well-formed");
    assert_eq!(key, of_record, "values and record disagree");
    key
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    // holds KEY-1, KEY-3
    #[test]
    fn keys_order_as_their_values(
        rows in vec(vec(values(), 3), 2..8),
        fields in fields(),
        encoding in encodings(),
    ) {
        let keys: Vec<Vec<u8>> = rows.iter().map(|row| key_of(row, &fields, encoding)).collect();
        for (a, x) in rows.iter().zip(&keys) {
            for (b, y) in rows.iter().zip(&keys) {
                let expected = compare_rows(a, b, &fields, encoding);
                prop_assert_eq!(x.cmp(y), expected, "{:?} and {:?} by {:02x?} in {:?}", a, b, fields, encoding);
            }
        }
    }

    // holds KEY-2
    #[test]
    fn the_first_fields_are_a_prefix_exactly_of_rows_that_agree_in_them(
        a in vec(values(), 3),
        b in vec(values(), 3),
        n in 0usize..4,
        fields in fields(),
        encoding in encodings(),
    ) {
        let probe = key_of(&a[..n], &fields, encoding);
        let agree = compare_rows(&a[..n], &b[..n], &fields, encoding).is_eq();
        prop_assert_eq!(key_of(&b, &fields, encoding).starts_with(&probe), agree);
        prop_assert!(key_of(&a, &fields, encoding).starts_with(&probe));
    }
}

//! Integers and doubles in one exact order.
//!
//! Every 64-bit integer is a double plus less than 2048: the largest double that is not greater,
//! and the rest. A double is itself plus nothing. Comparing the pair compares the values, with no
//! rounding anywhere.

/// Integers below this, and above its negative, are doubles exactly.
const EXACT: u64 = 1 << 53;

/// Bytes of an encoded number.
pub(super) const BYTES: usize = 10;

/// Returns a number as an SQL literal: an integer if it has the value of one.
pub(super) fn describe(encoded: [u8; BYTES]) -> String {
    let (ordered, rest) = encoded.split_at(8);
    let ordered = ordered.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let rest = rest.iter().fold(0i128, |bits, byte| bits << 8 | i128::from(*byte));
    let double = f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered });
    let is_integer = double.fract() == 0.0 && double.abs() <= 9_223_372_036_854_775_808.0;
    match is_integer {
        true => (double as i128 + rest).to_string(),
        false if double.is_infinite() => (if double > 0.0 { "9e999" } else { "-9e999" }).to_owned(),
        false => format!("{double:?}"),
    }
}

/// Appends an integer.
pub(super) fn encode_integer(i: i64, out: &mut Vec<u8>) {
    let nearest = i as f64;
    if i.unsigned_abs() < EXACT {
        return encode(nearest, 0, out);
    }
    let floor = if nearest as i128 > i128::from(i) { nearest.next_down() } else { nearest };
    let rest = i128::from(i) - floor as i128;
    debug_assert!((0..2048).contains(&rest));
    encode(floor, rest as u16, out);
}

/// Appends a double, which must not be a NaN.
pub(super) fn encode_real(r: f64, out: &mut Vec<u8>) {
    encode(r, 0, out);
}

fn encode(double: f64, rest: u16, out: &mut Vec<u8>) {
    // Adding zero turns -0.0 into 0.0 and changes nothing else.
    let bits = (double + 0.0).to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    let both = u128::from(ordered) << 64 | u128::from(rest) << 48;
    out.extend_from_slice(&both.to_be_bytes()[..BYTES]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(i: i64) -> Vec<u8> {
        let mut out = Vec::new();
        encode_integer(i, &mut out);
        out
    }

    fn real(r: f64) -> Vec<u8> {
        let mut out = Vec::new();
        encode_real(r, &mut out);
        out
    }

    #[test]
    fn an_integer_equals_the_double_of_the_same_value_and_no_other() {
        for i in [0, 1, -1, 1 << 53, -(1 << 53), 1 << 62, i64::MIN] {
            assert_eq!(integer(i), real(i as f64), "{i}");
        }
        for i in [(1 << 53) + 1, i64::MAX, i64::MIN + 1, -(1 << 53) - 1] {
            assert_ne!(integer(i), real(i as f64), "{i}");
        }
        assert!(integer(i64::MAX) < real(9_223_372_036_854_775_808.0));
        assert_eq!(real(-0.0), integer(0));
    }

    #[test]
    fn neighbours_near_two_to_the_63_stay_apart() {
        for i in (i64::MAX - 5000..i64::MAX).chain(i64::MIN..i64::MIN + 5000) {
            assert!(integer(i) < integer(i + 1), "{i}");
        }
        assert!(real(f64::NEG_INFINITY) < integer(i64::MIN));
        assert!(integer(i64::MAX) < real(f64::INFINITY));
    }
}

//! SQLite's five storage classes as one Rust type, and as one that borrows.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One value as bound to a statement or read from a column.
///
/// Equality is that of storage: reals compare by their bits, text by its bytes.
#[derive(Clone, Serialize, Deserialize)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// A 64-bit signed integer.
    Integer(i64),
    /// A double. Never a NaN: SQLite stores those as NULL.
    Real(f64),
    /// Text as UTF-8 bytes; a cast from a blob can make them ill-formed, so they stay bytes.
    Text(Vec<u8>),
    /// A blob.
    Blob(Vec<u8>),
}

/// A [`Value`] that borrows its bytes.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// SQL NULL.
    Null,
    /// A 64-bit signed integer.
    Integer(i64),
    /// A double.
    Real(f64),
    /// Text as UTF-8 bytes.
    Text(&'a [u8]),
    /// A blob.
    Blob(&'a [u8]),
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(value) => Self::Integer(*value),
            Value::Real(value) => Self::Real(*value),
            Value::Text(text) => Self::Text(text),
            Value::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Integer(a), Self::Integer(b)) => a == b,
            (Self::Real(a), Self::Real(b)) => a.to_bits() == b.to_bits(),
            (Self::Text(a), Self::Text(b)) | (Self::Blob(a), Self::Blob(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

impl Value {
    /// The integer in it, if it is one.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// The text in it, if it is well-formed text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The value as an SQL literal that reads back as the same value.
    #[must_use]
    pub fn to_sql(&self) -> String {
        match self {
            Self::Null => "NULL".to_owned(),
            Self::Integer(i64::MIN) => "(-9223372036854775807-1)".to_owned(),
            Self::Integer(value) => value.to_string(),
            Self::Real(value) if value.is_infinite() && *value > 0.0 => "9e999".to_owned(),
            Self::Real(value) if value.is_infinite() => "-9e999".to_owned(),
            Self::Real(value) => format!("{value:?}"),
            Self::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => format!("'{}'", text.replace('\'', "''")),
                _ => format!("CAST(x'{}' AS TEXT)", hex(bytes)),
            },
            Self::Blob(bytes) => format!("x'{}'", hex(bytes)),
        }
    }
}

/// Lower-case hexadecimal digits of some bytes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(out, "{byte:02x}").expect("writing to a string cannot fail");
    }
    out
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sql = self.to_sql();
        if sql.len() <= 96 {
            return f.write_str(&sql);
        }
        let head: String = sql.chars().take(64).collect();
        write!(f, "{head}... ({} characters)", sql.len())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.as_bytes().to_vec())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value.into_bytes())
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value)
    }
}

#[cfg(test)]
mod tests {
    use super::Value;

    #[test]
    fn literals_read_back_as_the_same_value() {
        assert_eq!(Value::from("it's").to_sql(), "'it''s'");
        assert_eq!(Value::Integer(i64::MIN).to_sql(), "(-9223372036854775807-1)");
        assert_eq!(Value::Real(3.0).to_sql(), "3.0");
        assert_eq!(Value::Text(vec![0]).to_sql(), "CAST(x'00' AS TEXT)");
        assert_eq!(Value::Blob(vec![1, 255]).to_sql(), "x'01ff'");
    }

    #[test]
    fn an_integer_is_not_the_equal_real() {
        assert_ne!(Value::Integer(1), Value::Real(1.0));
        assert_ne!(Value::Real(0.0), Value::Real(-0.0));
    }
}

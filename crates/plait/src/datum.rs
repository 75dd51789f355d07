//! Keys and values as SQLite knows them.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::fmt;

use crate::error::{Mismatch, Result};
use crate::ffi::{self, RawValue};

/// Bytes of a key that an error shows.
const SHOWN_MAX: usize = 40;

/// A value of any type: a parameter of SQL, or the key or value of a map that holds several types.
///
/// As an argument it borrows what it can. There is a `From` for numbers, text, bytes and `Option`s of these.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum<'a> {
    /// `NULL`; keys are never NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// A real. One that is not a number is refused.
    Real(f64),
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
}

/// A value as it lies in the library's memory; what [`Value::decode`](crate::Value::decode) is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stored<'a> {
    /// `NULL`.
    Null,
    /// An integer.
    Integer(i64),
    /// A real.
    Real(f64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl Stored<'_> {
    /// What it is, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Stored::Null => "NULL",
            Stored::Integer(_) => "an integer",
            Stored::Real(_) => "a real",
            Stored::Text(_) => "text",
            Stored::Bytes(_) => "bytes",
        }
    }
}

impl<'a> From<Stored<'a>> for Datum<'a> {
    fn from(stored: Stored<'a>) -> Datum<'a> {
        match stored {
            Stored::Null => Datum::Null,
            Stored::Integer(value) => Datum::Integer(value),
            Stored::Real(value) => Datum::Real(value),
            Stored::Text(value) => Datum::Text(Cow::Borrowed(value)),
            Stored::Bytes(value) => Datum::Bytes(Cow::Borrowed(value)),
        }
    }
}

impl Datum<'_> {
    /// The same with memory of its own.
    pub fn into_owned(self) -> Datum<'static> {
        match self {
            Datum::Null => Datum::Null,
            Datum::Integer(value) => Datum::Integer(value),
            Datum::Real(value) => Datum::Real(value),
            Datum::Text(value) => Datum::Text(Cow::Owned(value.into_owned())),
            Datum::Bytes(value) => Datum::Bytes(Cow::Owned(value.into_owned())),
        }
    }

    /// As an argument of `plait.h`. It points into this datum, which has to stay until the call returns.
    pub(crate) fn raw(&self) -> RawValue {
        let bytes = |kind, bytes: &[u8]| RawValue {
            kind,
            data: bytes.as_ptr().cast(),
            // Slices are never longer than isize::MAX.
            size_bytes: bytes.len() as i64,
            ..ffi::NONE
        };
        match self {
            Datum::Null => RawValue { kind: ffi::NULL, ..ffi::NONE },
            Datum::Integer(integer) => {
                RawValue { kind: ffi::INTEGER, integer: *integer, ..ffi::NONE }
            }
            Datum::Real(real) => RawValue { kind: ffi::FLOAT, real: *real, ..ffi::NONE },
            Datum::Text(text) => bytes(ffi::TEXT, text.as_bytes()),
            Datum::Bytes(data) => bytes(ffi::BLOB, data),
        }
    }
}

/// As in SQL, cut off after some characters: errors name keys so.
impl fmt::Display for Datum<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Datum::Null => f.write_str("NULL"),
            Datum::Integer(value) => write!(f, "{value}"),
            Datum::Real(value) => write!(f, "{value}"),
            Datum::Text(text) => {
                let shown: String = text.chars().take(SHOWN_MAX).collect();
                let more = if shown.len() < text.len() { "..." } else { "" };
                write!(f, "'{}{more}'", shown.escape_debug())
            }
            Datum::Bytes(bytes) => {
                f.write_str("x'")?;
                bytes.iter().take(SHOWN_MAX / 2).try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(if bytes.len() > SHOWN_MAX / 2 { "...'" } else { "'" })
            }
        }
    }
}

/// Bytes of the library as text or bytes. `None` if there is no row.
///
/// # Safety
/// `raw` was answered by the library, and what it points to stays and does not change as long as `'a`.
pub(crate) unsafe fn stored<'a>(raw: &RawValue) -> Result<Option<Stored<'a>>, Mismatch> {
    let bytes = || match usize::try_from(raw.size_bytes) {
        // SAFETY: the caller's contract: so many bytes lie there, and stay.
        Ok(len) if len > 0 => unsafe { std::slice::from_raw_parts(raw.data.cast::<u8>(), len) },
        _ => &[],
    };
    Ok(Some(match raw.kind {
        ffi::INTEGER => Stored::Integer(raw.integer),
        ffi::FLOAT => Stored::Real(raw.real),
        ffi::TEXT => Stored::Text(
            std::str::from_utf8(bytes()).map_err(|_| Mismatch::new("text that is not UTF-8"))?,
        ),
        ffi::BLOB => Stored::Bytes(bytes()),
        ffi::NULL => Stored::Null,
        _ => return Ok(None),
    }))
}

macro_rules! from {
    ($($type:ty: $value:ident => $datum:expr;)*) => { $(
        impl<'a> From<$type> for Datum<'a> {
            fn from($value: $type) -> Datum<'a> {
                $datum
            }
        }
    )* };
}

from! {
    i64: value => Datum::Integer(value);
    i32: value => Datum::Integer(value.into());
    u32: value => Datum::Integer(value.into());
    bool: value => Datum::Integer(value.into());
    f64: value => Datum::Real(value);
    &'a str: value => Datum::Text(Cow::Borrowed(value));
    &'a String: value => Datum::Text(Cow::Borrowed(value));
    String: value => Datum::Text(Cow::Owned(value));
    &'a [u8]: value => Datum::Bytes(Cow::Borrowed(value));
    &'a Vec<u8>: value => Datum::Bytes(Cow::Borrowed(value));
    Vec<u8>: value => Datum::Bytes(Cow::Owned(value));
}

impl<'a, const N: usize> From<&'a [u8; N]> for Datum<'a> {
    fn from(value: &'a [u8; N]) -> Datum<'a> {
        Datum::Bytes(Cow::Borrowed(value))
    }
}

impl<'a, T: Into<Datum<'a>>> From<Option<T>> for Datum<'a> {
    fn from(value: Option<T>) -> Datum<'a> {
        value.map_or(Datum::Null, Into::into)
    }
}

/// Parameters of SQL: `params![1, "ada", b"\x01"]` is a `&[Datum]`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::Datum::from($value)),*] as &[$crate::Datum<'_>] };
}

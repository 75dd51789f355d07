//! What keys and values may be: [`Key`] and [`Value`], and the types of the language that are.
//!
//! Both traits are open. A type of a program's own becomes a value by saying which datum it is:
//!
//! ```
//! use plait::{Datum, Mismatch, Stored, Value};
//!
//! #[derive(Clone, Debug, PartialEq)]
//! struct Point { x: i32, y: i32 }
//!
//! impl Value for Point {
//!     type In<'a> = &'a Point;
//!     type Out<'a> = Point;
//!     type Owned = Point;
//!     const NAME: &'static str = "Point";
//!
//!     fn encode<'a>(point: Self::In<'a>) -> Datum<'a> {
//!         format!("{},{}", point.x, point.y).into()
//!     }
//!     fn decode<'a>(stored: Stored<'a>) -> Result<Point, Mismatch> {
//!         let Stored::Text(text) = stored else { return Err(Mismatch::new(stored.kind())) };
//!         let parse = |x: &str, y: &str| Some(Point { x: x.parse().ok()?, y: y.parse().ok()? });
//!         text.split_once(',').and_then(|(x, y)| parse(x, y)).ok_or_else(|| Mismatch::new("no point"))
//!     }
//!     fn own(point: Point) -> Point { point }
//!     fn encode_owned(point: Point) -> Datum<'static> { Point::encode(&point).into_owned() }
//! }
//!
//! const PLACES: plait::MapDefinition<&str, Point> = plait::MapDefinition::new("places");
//! # fn main() -> plait::Result<()> {
//! let connection = plait::Connection::open_in_memory()?;
//! let mut places = connection.map(PLACES)?;
//! places.put("here", &Point { x: 3, y: -4 })?;
//! assert_eq!(places.get("here")?, Some(Point { x: 3, y: -4 }));
//! # Ok(()) }
//! ```

use std::ffi::c_int;

use crate::datum::{Datum, Stored};
use crate::error::Mismatch;
use crate::ffi;

/// The type of a map's values.
///
/// | type | is put as | `get` answers | an iterator gives |
/// |---|---|---|---|
/// | `i64`, `f64` | itself | itself | itself |
/// | `&str` | `&str` | `&str`, which lies in the library's memory | `String` |
/// | `String` | `&str` | `String` | `String` |
/// | `&[u8]` | `&[u8]` | `&[u8]`, which lies in the library's memory | `Vec<u8>` |
/// | `Vec<u8>` | `&[u8]` | `Vec<u8>` | `Vec<u8>` |
/// | `Option<T>` | `None` is NULL | | |
/// | `Datum` | a `Datum` | a `Datum` that may borrow | a `Datum` |
///
/// A value that is stored with another type is an [`Error::Type`](crate::Error::Type) that names its key; nothing is converted.
pub trait Value {
    /// What is put.
    type In<'a>;
    /// What is answered; it may lie in the library's memory.
    type Out<'a>;
    /// The same as something that stays.
    type Owned: 'static;
    /// How errors call it.
    const NAME: &'static str;

    /// As what it is stored.
    fn encode<'a>(input: Self::In<'a>) -> Datum<'a>;
    /// Reads what is stored.
    fn decode<'a>(stored: Stored<'a>) -> Result<Self::Out<'a>, Mismatch>;
    /// Copies what lies in the library's memory.
    fn own(out: Self::Out<'_>) -> Self::Owned;
    /// As what it is stored, with its memory.
    fn encode_owned(owned: Self::Owned) -> Datum<'static>;
}

/// The type of a map's keys.
///
/// Their order is that of the table's column, not one of the language: integers ascend, bytes and text (in the tables that a
/// map creates) compare byte by byte.
pub trait Key: Value {
    /// With which keys a missing table is created.
    const CREATES: KeyType;
}

/// The key column of a table that a map creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyType {
    /// `(k INTEGER PRIMARY KEY, v)`
    Integer,
    /// `(k BLOB PRIMARY KEY, v) WITHOUT ROWID`
    Bytes,
    /// `(k TEXT PRIMARY KEY, v) WITHOUT ROWID`
    Text,
    /// Keys of several types. No table is created; any that is a map may be opened.
    Any,
}

impl KeyType {
    pub(crate) fn flag(self) -> c_int {
        match self {
            KeyType::Integer => ffi::MAP_CREATE_INTEGER,
            KeyType::Bytes => ffi::MAP_CREATE_BYTES,
            KeyType::Text => ffi::MAP_CREATE_TEXT,
            KeyType::Any => 0,
        }
    }

    /// Whether keys of this type come back from a column of that declared type as they were put.
    pub(crate) fn fits(self, declared: &str) -> bool {
        let declared = declared.to_ascii_uppercase();
        let has = |word: &str| declared.contains(word);
        // SQLite's rules for the affinity of a column, in their order.
        let is_integer = has("INT");
        let is_text = !is_integer && (has("CHAR") || has("CLOB") || has("TEXT"));
        let is_none = !is_integer && !is_text && (has("BLOB") || declared.is_empty());
        let is_real = !is_integer && !is_text && (has("REAL") || has("FLOA") || has("DOUB"));
        match self {
            KeyType::Integer => is_none || (!is_text && !is_real),
            KeyType::Text => is_text || is_none,
            KeyType::Bytes => declared != "INTEGER",
            KeyType::Any => true,
        }
    }
}

/// Keys that can be asked for by their beginning: text and bytes.
pub trait PrefixKey: Key {}

/// Values that [`Map::add`](crate::Map::add) counts in.
pub trait Counter: Value {}

/// Values that [`Map::append`](crate::Map::append) makes longer: text and bytes.
pub trait Appendable: Value {}

fn wanted<V: Value>(stored: Stored<'_>) -> Mismatch {
    Mismatch::new(format!("{}, where {} is asked for", stored.kind(), V::NAME))
}

macro_rules! value {
    ($([$($lifetime:lifetime)?] $type:ty: $name:literal, $in:ty, $out:ty, $owned:ty, $pattern:pat => $found:expr, $own:expr;)*) => { $(
        impl<$($lifetime)?> Value for $type {
            type In<'a> = $in;
            type Out<'a> = $out;
            type Owned = $owned;
            const NAME: &'static str = $name;

            fn encode<'a>(input: Self::In<'a>) -> Datum<'a> {
                Datum::from(input)
            }
            fn decode<'a>(stored: Stored<'a>) -> Result<Self::Out<'a>, Mismatch> {
                match stored {
                    $pattern => Ok($found),
                    other => Err(wanted::<Self>(other)),
                }
            }
            fn own(out: Self::Out<'_>) -> Self::Owned {
                $own(out)
            }
            fn encode_owned(owned: Self::Owned) -> Datum<'static> {
                Datum::from(owned)
            }
        }
    )* };
}

value! {
    [] i64: "i64", i64, i64, i64, Stored::Integer(v) => v, std::convert::identity;
    [] f64: "f64", f64, f64, f64, Stored::Real(v) => v, std::convert::identity;
    ['t] &'t str: "text", &'a str, &'a str, String, Stored::Text(v) => v, str::to_owned;
    [] String: "text", &'a str, String, String, Stored::Text(v) => v.to_owned(), std::convert::identity;
    ['t] &'t [u8]: "bytes", &'a [u8], &'a [u8], Vec<u8>, Stored::Bytes(v) => v, <[u8]>::to_vec;
    [] Vec<u8>: "bytes", &'a [u8], Vec<u8>, Vec<u8>, Stored::Bytes(v) => v.to_vec(), std::convert::identity;
}

impl<V: Value> Value for Option<V> {
    type In<'a> = Option<V::In<'a>>;
    type Out<'a> = Option<V::Out<'a>>;
    type Owned = Option<V::Owned>;
    const NAME: &'static str = V::NAME;

    fn encode<'a>(input: Self::In<'a>) -> Datum<'a> {
        input.map_or(Datum::Null, V::encode)
    }
    fn decode<'a>(stored: Stored<'a>) -> Result<Self::Out<'a>, Mismatch> {
        match stored {
            Stored::Null => Ok(None),
            other => V::decode(other).map(Some),
        }
    }
    fn own(out: Self::Out<'_>) -> Self::Owned {
        out.map(V::own)
    }
    fn encode_owned(owned: Self::Owned) -> Datum<'static> {
        owned.map_or(Datum::Null, V::encode_owned)
    }
}

impl Value for Datum<'_> {
    type In<'a> = Datum<'a>;
    type Out<'a> = Datum<'a>;
    type Owned = Datum<'static>;
    const NAME: &'static str = "a datum";

    fn encode<'a>(input: Self::In<'a>) -> Datum<'a> {
        input
    }
    fn decode<'a>(stored: Stored<'a>) -> Result<Self::Out<'a>, Mismatch> {
        Ok(stored.into())
    }
    fn own(out: Self::Out<'_>) -> Self::Owned {
        out.into_owned()
    }
    fn encode_owned(owned: Self::Owned) -> Datum<'static> {
        owned
    }
}

impl Key for i64 {
    const CREATES: KeyType = KeyType::Integer;
}
impl Key for &str {
    const CREATES: KeyType = KeyType::Text;
}
impl Key for String {
    const CREATES: KeyType = KeyType::Text;
}
impl Key for &[u8] {
    const CREATES: KeyType = KeyType::Bytes;
}
impl Key for Vec<u8> {
    const CREATES: KeyType = KeyType::Bytes;
}
impl Key for Datum<'_> {
    const CREATES: KeyType = KeyType::Any;
}

impl PrefixKey for &str {}
impl PrefixKey for String {}
impl PrefixKey for &[u8] {}
impl PrefixKey for Vec<u8> {}

impl Counter for i64 {}

impl Appendable for &str {}
impl Appendable for String {}
impl Appendable for &[u8] {}
impl Appendable for Vec<u8> {}

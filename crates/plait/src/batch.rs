//! [`Batch`]: several writes and conditions on one map, as one call.

use std::marker::PhantomData;

use crate::datum::Datum;
use crate::ffi::{self, RawItem};
use crate::types::{Counter, Key, Value};

/// Writes and conditions that are done all or not at all, by [`Map::apply`](crate::Map::apply).
///
/// First all conditions are looked at, against what was there before; then the writes are done in their order.
///
/// ```
/// # fn main() -> plait::Result<()> {
/// use plait::{Applied, Connection, MapDefinition};
/// let connection = Connection::open_in_memory()?;
/// let mut stock = connection.map(MapDefinition::<&str, i64>::new("stock"))?;
/// let mut batch = stock.batch();
/// batch.expect("apples", None).put("apples", 7).add("boxes", 1);
/// assert_eq!(stock.apply(&batch)?, Applied::All);
/// assert_eq!(stock.apply(&batch)?, Applied::Unmet(0));
/// assert_eq!(stock.get("boxes")?, Some(1));
/// # Ok(()) }
/// ```
pub struct Batch<'a, K, V> {
    items: Vec<(i32, Datum<'a>, Option<Datum<'a>>)>,
    types: PhantomData<fn(K) -> V>,
}

/// What has become of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is done.
    All,
    /// Nothing is done: the item with this index is a condition that does not hold.
    Unmet(usize),
}

impl<'a, K: Key, V: Value> Batch<'a, K, V> {
    /// One without items.
    pub fn new() -> Self {
        Batch { items: Vec::new(), types: PhantomData }
    }

    /// Writes a value, whether the key is there or not.
    pub fn put(&mut self, key: K::In<'a>, value: V::In<'a>) -> &mut Self {
        self.item(ffi::BATCH_PUT, key, Some(V::encode(value)))
    }

    /// Deletes a key, if it is there.
    pub fn delete(&mut self, key: K::In<'a>) -> &mut Self {
        self.item(ffi::BATCH_DELETE, key, None)
    }

    /// The condition that a key has this value, or with `None` that it is not there.
    pub fn expect(&mut self, key: K::In<'a>, value: Option<V::In<'a>>) -> &mut Self {
        self.item(ffi::BATCH_EXPECT, key, value.map(V::encode))
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// As an argument of `plait.h`. It points into this batch.
    pub(crate) fn raw(&self) -> Vec<RawItem> {
        let raw = |value: &Option<Datum<'_>>| value.as_ref().map_or(ffi::NONE, Datum::raw);
        let item = |(op, key, value): &(i32, Datum<'_>, Option<Datum<'_>>)| RawItem {
            op: *op,
            key: key.raw(),
            value: raw(value),
        };
        self.items.iter().map(item).collect()
    }

    fn item(&mut self, op: i32, key: K::In<'a>, value: Option<Datum<'a>>) -> &mut Self {
        self.items.push((op, K::encode(key), value));
        self
    }
}

impl<'a, K: Key, V: Counter> Batch<'a, K, V> {
    /// Adds to a number; a key that is not there counts as 0.
    pub fn add(&mut self, key: K::In<'a>, delta: i64) -> &mut Self {
        self.item(ffi::BATCH_ADD, key, Some(Datum::Integer(delta)))
    }
}

impl<K: Key, V: Value> Default for Batch<'_, K, V> {
    fn default() -> Self {
        Batch::new()
    }
}

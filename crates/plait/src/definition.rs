//! [`MapDefinition`]: the name and the types of a map.

use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;

use crate::ffi;
use crate::types::Key;

/// A table, and what its keys and values are. Definitions are constants:
///
/// ```
/// use plait::MapDefinition;
///
/// const USERS: MapDefinition<&str, &[u8]> = MapDefinition::new("users");
/// const VISITS: MapDefinition<i64, i64> = MapDefinition::new("visits").in_schema("temp");
/// ```
///
/// A table that is missing is created with a key of the type's kind ([`KeyType`](crate::KeyType)) when the map is opened; one that is there stays as
/// it is. If its key column would change what is put (text in a column of integers), the map is refused.
pub struct MapDefinition<'n, K, V> {
    pub(crate) schema: &'n str,
    pub(crate) table: &'n str,
    pub(crate) creates: bool,
    types: PhantomData<fn(K) -> V>,
}

impl<'n, K, V> MapDefinition<'n, K, V> {
    /// The table of that name in the database that was opened.
    pub const fn new(table: &'n str) -> Self {
        MapDefinition { schema: "main", table, creates: true, types: PhantomData }
    }

    /// The same table in another database of the connection: "temp", or the name of one that is attached.
    pub const fn in_schema(self, schema: &'n str) -> Self {
        MapDefinition { schema, ..self }
    }

    /// A table that is missing is an error.
    pub const fn existing(self) -> Self {
        MapDefinition { creates: false, ..self }
    }

    /// Name of the table.
    pub const fn table(&self) -> &'n str {
        self.table
    }
}

impl<K: Key, V> MapDefinition<'_, K, V> {
    pub(crate) fn flags(&self) -> c_int {
        if self.creates { K::CREATES.flag() } else { 0 }
    }

    pub(crate) fn read_only_flags(&self) -> c_int {
        ffi::MAP_READONLY
    }
}

impl<K, V> Clone for MapDefinition<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for MapDefinition<'_, K, V> {}

impl<K, V> fmt::Debug for MapDefinition<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapDefinition({}.{})", self.schema, self.table)
    }
}

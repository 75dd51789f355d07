//! Plait's key-value API (`plait.h`) on the tables of SQL: no statement on the way.

use plait_client::{Map, Range, ValueRef};

use super::connection::SqliteConnection;
use crate::engines::{Begin, Connection, Failure, Key, KeyValue, Outcome, Table, Waits};

/// Why a library cannot be used by keys.
pub const WITHOUT_MAPS: &str = "this library has no plait_map_open: it is not Plait's";

/// A connection that works on its tables by keys.
pub struct MapConnection {
    connection: SqliteConnection,
    maps: Vec<Map>,
}

impl MapConnection {
    /// Opens the tables, which are there.
    ///
    /// # Errors
    /// If the library refuses a table.
    pub fn new(connection: SqliteConnection, tables: &[Table]) -> Outcome<Self> {
        let open = |table: &Table| connection.inner.open_map(&table.name, 0);
        let maps = tables.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { connection, maps })
    }
}

impl<'a> From<Key<'a>> for ValueRef<'a> {
    fn from(key: Key<'a>) -> Self {
        match key {
            Key::Int(integer) => Self::Integer(integer),
            Key::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

impl Connection for MapConnection {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        self.connection.begin(begin)
    }

    fn commit(&mut self) -> Outcome<()> {
        self.connection.commit()
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.connection.rollback()
    }

    fn waits(&self) -> Waits {
        self.connection.waits()
    }
}

impl KeyValue for MapConnection {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.maps[table].visit(key, found)?)
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        match self.maps[table].insert(key, ValueRef::Blob(value))? {
            true => Ok(()),
            false => Err(Failure::broken("plait_insert found the key there already")),
        }
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        match self.maps[table].update(key, ValueRef::Blob(value))? {
            true => Ok(()),
            false => Err(Failure::broken("plait_update found no such key")),
        }
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        Ok(self.maps[table].delete(key)?)
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let mut cursor = self.maps[table].cursor(&Range::ALL)?;
        let walked = cursor.visit(from, count, found)?;
        cursor.close()?;
        Ok(walked)
    }

    fn ticket(&mut self) -> Outcome<i64> {
        Ok(self.connection.inner.ticket()?)
    }

    fn wait_until_on_disk(&mut self, ticket: i64) -> Outcome<i64> {
        let is_there = self.connection.inner.wait_for_ticket(ticket)?;
        let through = self.connection.inner.durable_ticket()?;
        if !is_there || through < ticket {
            return Err(Failure::broken(format!(
                "plait_wait has waited for ticket {ticket}, and plait_durable says {through}"
            )));
        }
        Ok(through)
    }
}

//! Registers: keys of a table of their own, worked on with the key-value API, in the same history and the same transactions.
//!
//! A call that stands alone is a transaction. Swaps, batches and inserts say what they replace; what is put or deleted is got before, in the same
//! transaction, so that the order of the versions needs no guess.

use super::history::Run;
use crate::isolation::history::{REGISTERS, Row, Seen, Status};
use crate::sqlite::{Item, Map, SqlError};
use crate::value::Value;
use rand::Rng as _;
use rand::rngs::StdRng;
use std::fs::File;

/// The table.
pub const SCHEMA: &str = "CREATE TABLE register(k INTEGER PRIMARY KEY, v);";
/// How many there are.
pub const COUNT: i64 = 4;

fn name_of(key: i64) -> i64 {
    REGISTERS + key
}

fn version_of(value: Option<&Value>) -> Option<i64> {
    value.map(|value| value.as_i64().unwrap_or(i64::MIN))
}

fn row(version: i64) -> Option<Row> {
    Some(Row { version, group: 0 })
}

impl Run<'_> {
    fn map(&self) -> Result<Map, SqlError> {
        self.connection.open_map("register", 0)
    }

    fn tell(&mut self, what: &str, key: i64, came: &dyn std::fmt::Debug) {
        self.transaction.statements.push(format!("{what} of register {key} -> {came:?}"));
    }

    fn get(&mut self, map: &Map, key: i64) -> Result<Option<i64>, SqlError> {
        let got = map.get(&Value::Integer(key));
        self.tell("get", key, &got);
        let version = version_of(got?.as_ref());
        self.saw_named(name_of(key), version.map_or(Seen::Absent, Seen::Value));
        Ok(version)
    }

    /// All of them in one call.
    fn get_all(&mut self, map: &Map) -> Result<(), SqlError> {
        let keys: Vec<Value> = (1..=COUNT).map(Value::Integer).collect();
        let got = map.get_many(&keys);
        self.tell("get_many", COUNT, &got);
        for (key, value) in (1..=COUNT).zip(got?) {
            let seen = version_of(value.as_ref()).map_or(Seen::Absent, Seen::Value);
            self.saw_named(name_of(key), seen);
        }
        Ok(())
    }

    /// One or all of them.
    pub(super) fn register_read(&mut self, random: &mut StdRng) -> Result<(), SqlError> {
        let map = self.map()?;
        match random.random_range(0..3) {
            0 => self.get_all(&map),
            _ => self.get(&map, random.random_range(1..=COUNT)).map(drop),
        }
    }

    /// Inside a transaction.
    pub(super) fn register_operation(&mut self, random: &mut StdRng) -> Result<(), SqlError> {
        let map = self.map()?;
        let key = random.random_range(1..=COUNT);
        match random.random_range(0..6) {
            0 | 1 => self.get(&map, key).map(drop),
            2 => self.get_all(&map),
            3 => {
                let before = self.get(&map, key)?;
                let deleted = map.delete(&Value::Integer(key));
                self.tell("delete", key, &deleted);
                if deleted? {
                    self.wrote_named(name_of(key), before, None);
                }
                Ok(())
            }
            _ => {
                let before = self.get(&map, key)?;
                let version = self.next_version();
                let put = map.put(&Value::Integer(key), &Value::Integer(version));
                self.tell("put", key, &(version, &put));
                put?;
                self.wrote_named(name_of(key), before, row(version));
                Ok(())
            }
        }
    }

    /// One call outside of a transaction. What a swap would replace is announced before, for the case that its process is killed in it.
    pub(super) fn register_call(
        &mut self,
        expected: &mut [Option<i64>],
        random: &mut StdRng,
        file: &mut File,
    ) -> Result<(), SqlError> {
        "a call".clone_into(&mut self.transaction.begin);
        let map = self.map()?;
        let key = random.random_range(1..=COUNT);
        let known = &mut expected[key as usize - 1];
        match random.random_range(0..5) {
            0 | 1 => *known = self.get(&map, key)?,
            2 => return self.get_all(&map),
            kind => {
                let (before, version) = (*known, self.next_version());
                let after = if random.random_range(0..5) == 0 { None } else { Some(version) };
                self.announce_call(key, before, after, file);
                let done = if kind == 3 {
                    let (before, after) = (before.map(Value::Integer), after.map(Value::Integer));
                    let swapped = map.swap(&Value::Integer(key), before.as_ref(), after.as_ref());
                    self.tell("swap", key, &(&before, &after, &swapped));
                    swapped?
                } else {
                    let (at, before) = (Value::Integer(key), before.map(Value::Integer));
                    let change = match after {
                        Some(after) => Item::Put(at.clone(), Value::Integer(after)),
                        None => Item::Delete(at.clone()),
                    };
                    let failed = map.batch(&[Item::Expect(at, before.clone()), change]);
                    self.tell("batch", key, &(&before, after, &failed));
                    failed?.is_none()
                };
                if done {
                    let seen = before.map_or(Seen::Absent, Seen::Value);
                    self.saw_named(name_of(key), seen);
                    self.wrote_named(name_of(key), before, after.and_then(row));
                    *known = after;
                } else {
                    // Somebody was there before: what it is now is seen in another call.
                    *known = None;
                }
            }
        }
        Ok(())
    }

    /// Says what the call will have done if it succeeds.
    fn announce_call(&self, key: i64, before: Option<i64>, after: Option<i64>, file: &mut File) {
        let mut announced = Run::new(self.connection, self.transaction.name, 0);
        announced.transaction = self.transaction.clone();
        announced.saw_named(name_of(key), before.map_or(Seen::Absent, Seen::Value));
        announced.wrote_named(name_of(key), before, after.and_then(row));
        announced.write_down(file, Status::Unknown).expect("the history can be written");
    }

    /// All of them, at the end.
    pub(super) fn register_rows(&mut self) -> Result<(), SqlError> {
        let rows = self.statement("SELECT k, v FROM register ORDER BY k", &[])?;
        for key in 1..=COUNT {
            let found = rows.iter().find(|row| row[0] == key);
            self.saw_named(name_of(key), found.map_or(Seen::Absent, |row| Seen::Value(row[1])));
        }
        Ok(())
    }
}

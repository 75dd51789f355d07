//! [`ReadMap`] and [`Map`]: the operations on one table.
//!
//! What `get`, `get_many`, `first` and `last` answer may lie in memory of the library, which stays until the next call on the same
//! map. So all calls take `&mut self`, and an answer borrows the map: the compiler refuses whatever would change or free it. Other
//! maps, SQL and the end of the transaction leave it alone.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use crate::batch::{Applied, Batch};
use crate::cursor::{Cursor, Iter};
use crate::datum::{self, Datum};
use crate::error::{Error, Mismatch, Result};
use crate::ffi::{self, RawMap, RawRange, RawValue};
use crate::range::KeyRange;
use crate::session::{Handle, Session};
use crate::types::{Appendable, Counter, Key, Value};

/// A map that is read.
///
/// ```
/// # fn main() -> plait::Result<()> {
/// use plait::{Connection, MapDefinition, Prefix};
/// const AGES: MapDefinition<&str, i64> = MapDefinition::new("ages");
///
/// let connection = Connection::open_in_memory()?;
/// let mut ages = connection.map(AGES)?;
/// ages.put("ada", 36)?;
/// ages.put("alan", 41)?;
/// ages.put("grace", 85)?;
/// assert_eq!(ages.get("ada")?, Some(36));
/// assert_eq!(ages.get_many(["alan", "nobody"])?, [Some(41), None]);
/// assert_eq!(ages.count(Prefix("a"))?, 2);
/// assert_eq!(ages.last(.."b")?, Some(("alan", 41)));
/// let names: Vec<String> = ages.range("a".."z")?.rev().map(|row| row.map(|(name, _)| name)).collect::<Result<_, _>>()?;
/// assert_eq!(names, ["grace", "alan", "ada"]);
/// # Ok(()) }
/// ```
///
/// An answer without a copy holds the map until it is not used any more:
///
/// ```compile_fail,E0499
/// # fn main() -> plait::Result<()> {
/// use plait::{Connection, MapDefinition};
/// let connection = Connection::open_in_memory()?;
/// let mut users = connection.map(MapDefinition::<&str, &[u8]>::new("users"))?;
/// let ada = users.get("ada")?;
/// users.put("ada", b"other")?; // the bytes of `ada` would be gone
/// println!("{ada:?}");
/// # Ok(()) }
/// ```
pub struct ReadMap<'s, K, V> {
    session: &'s Session,
    handle: ManuallyDrop<Handle>,
    types: PhantomData<fn(K) -> V>,
}

/// A map that is read and written. What it can do besides is at [`ReadMap`].
///
/// A write outside of a transaction is one of its own, and on disk when it returns, as far as `synchronous` says; one that reads
/// first takes the right to write before it does, and so is never in conflict with another connection.
pub struct Map<'s, K, V>(pub(crate) ReadMap<'s, K, V>);

impl<'s, K: Key, V: Value> ReadMap<'s, K, V> {
    pub(crate) fn new(session: &'s Session, handle: Handle) -> Self {
        session.in_use.set(session.in_use.get() + 1);
        ReadMap { session, handle: ManuallyDrop::new(handle), types: PhantomData }
    }

    /// The value of a key.
    pub fn get(&mut self, key: K::In<'_>) -> Result<Option<V::Out<'_>>> {
        let key = K::encode(key);
        let mut value = ffi::NONE;
        // SAFETY: the map is open, the key stays during the call, `value` takes the answer.
        let code = unsafe { ffi::plait_get(self.raw(), key.raw(), &raw mut value) };
        self.check_key(code, &key)?;
        self.value(&value, &key)
    }

    /// Whether a key is there.
    pub fn contains(&mut self, key: K::In<'_>) -> Result<bool> {
        let key = K::encode(key);
        let mut found = 0;
        // SAFETY: as in `get`.
        let code = unsafe { ffi::plait_contains(self.raw(), key.raw(), &raw mut found) };
        self.check_key(code, &key)?;
        Ok(found != 0)
    }

    /// The values of many keys, from one snapshot and at less cost than one by one.
    pub fn get_many<'k>(
        &mut self,
        keys: impl IntoIterator<Item = K::In<'k>>,
    ) -> Result<Vec<Option<V::Out<'_>>>> {
        let keys: Vec<Datum<'k>> = keys.into_iter().map(K::encode).collect();
        let raw_keys: Vec<RawValue> = keys.iter().map(Datum::raw).collect();
        let mut values = vec![ffi::NONE; keys.len()];
        let n = count_of(keys.len())?;
        // SAFETY: the map is open, there are `n` keys, which stay, and room for as many answers.
        let code =
            unsafe { ffi::plait_get_many(self.raw(), n, raw_keys.as_ptr(), values.as_mut_ptr()) };
        self.check(code)?;
        let this = &*self;
        keys.iter().zip(&values).map(|(key, value)| this.value(value, key)).collect()
    }

    /// How many keys of a range there are.
    pub fn count<'k>(&mut self, range: impl KeyRange<'k, K>) -> Result<u64> {
        let range = range.bounds();
        let mut n = 0;
        // SAFETY: the map is open, the range stays during the call, `n` takes the answer.
        let code = unsafe { ffi::plait_count_range(self.raw(), &range.raw(), &raw mut n) };
        self.check(code)?;
        Ok(n.unsigned_abs())
    }

    /// Whether there is no row.
    pub fn is_empty(&mut self) -> Result<bool> {
        let range = KeyRange::<K>::bounds(..).raw();
        self.end(ffi::plait_first, &range).map(|(key, _)| key.kind == ffi::NONE.kind)
    }

    /// The first row of a range.
    pub fn first<'k>(
        &mut self,
        range: impl KeyRange<'k, K>,
    ) -> Result<Option<(K::Out<'_>, V::Out<'_>)>> {
        let row = self.end(ffi::plait_first, &range.bounds().raw())?;
        self.row(row)
    }

    /// The last row of a range.
    pub fn last<'k>(
        &mut self,
        range: impl KeyRange<'k, K>,
    ) -> Result<Option<(K::Out<'_>, V::Out<'_>)>> {
        let row = self.end(ffi::plait_last, &range.bounds().raw())?;
        self.row(row)
    }

    /// The rows of a range, in ascending order; [`Iter::rev`] turns it round. Its snapshot is held until the iterator is dropped.
    pub fn range<'k>(&self, range: impl KeyRange<'k, K>) -> Result<Iter<'_, K, V>> {
        Ok(Iter::new(self.cursor(range)?))
    }

    /// All rows.
    pub fn iter(&self) -> Result<Iter<'_, K, V>> {
        self.range(..)
    }

    /// A cursor over a range, which goes either way and searches.
    pub fn cursor<'k>(&self, range: impl KeyRange<'k, K>) -> Result<Cursor<'_, K, V>> {
        Cursor::open(self.session, &self.handle, &range.bounds())
    }

    pub(crate) fn raw(&self) -> *mut RawMap {
        self.handle.raw.as_ptr()
    }

    pub(crate) fn session(&self) -> &'s Session {
        self.session
    }

    pub(crate) fn check(&self, code: c_int) -> Result<()> {
        self.session.check(code, || self.name())
    }

    pub(crate) fn name(&self) -> String {
        format!("map \"{}\"", self.handle.table())
    }

    fn check_key(&self, code: c_int, key: &Datum<'_>) -> Result<()> {
        self.session.check(code, || format!("{}, key {key}", self.name()))
    }

    /// The answer of a call that has just returned, for as long as the map is borrowed.
    fn value(&self, raw: &RawValue, key: &Datum<'_>) -> Result<Option<V::Out<'_>>> {
        // SAFETY: it stays until the next call on this map, which needs it unborrowed, as closing does.
        let stored = unsafe { datum::stored(raw) };
        decode::<V>(stored, || format!("the value of {key} in {}", self.name()))
    }

    fn row(&self, row: (RawValue, RawValue)) -> Result<Option<(K::Out<'_>, V::Out<'_>)>> {
        // SAFETY: as in `value`.
        let stored = unsafe { datum::stored(&row.0) };
        let Some(key) = decode::<K>(stored, || format!("a key in {}", self.name()))? else {
            return Ok(None);
        };
        // SAFETY: as in `value`.
        let shown = unsafe { datum::stored(&row.0) }.ok().flatten();
        let shown = Datum::from(shown.unwrap_or(datum::Stored::Null));
        Ok(self.value(&row.1, &shown)?.map(|value| (key, value)))
    }

    fn end(&mut self, call: End, range: &RawRange) -> Result<(RawValue, RawValue)> {
        let (mut key, mut value) = (ffi::NONE, ffi::NONE);
        // SAFETY: the map is open, the bounds stay during the call, the others take the answers.
        let code = unsafe { call(self.raw(), range, &raw mut key, &raw mut value) };
        self.check(code)?;
        Ok((key, value))
    }
}

/// `plait_first` or `plait_last`.
type End =
    unsafe extern "C" fn(*mut RawMap, *const RawRange, *mut RawValue, *mut RawValue) -> c_int;

/// `plait_insert` or `plait_update`.
type WriteIf = unsafe extern "C" fn(*mut RawMap, RawValue, RawValue, *mut c_int) -> c_int;

impl<K, V> Drop for ReadMap<'_, K, V> {
    fn drop(&mut self) {
        self.session.in_use.set(self.session.in_use.get() - 1);
        // SAFETY: it is not used after this.
        let handle = unsafe { ManuallyDrop::take(&mut self.handle) };
        self.session.keep(handle);
    }
}

impl<K: Key, V: Value> Map<'_, K, V> {
    /// Writes a value, whether the key is there or not.
    pub fn put(&mut self, key: K::In<'_>, value: V::In<'_>) -> Result<()> {
        self.may_write()?;
        let (key, value) = (K::encode(key), V::encode(value));
        // SAFETY: the map is open, key and value stay during the call.
        let code = unsafe { ffi::plait_put(self.raw(), key.raw(), value.raw()) };
        self.check_key(code, &key)
    }

    /// Writes a value if the key is not there. Answers whether it has.
    pub fn insert(&mut self, key: K::In<'_>, value: V::In<'_>) -> Result<bool> {
        self.write_if(ffi::plait_insert, K::encode(key), V::encode(value))
    }

    /// Writes a value if the key is there. Answers whether it has.
    pub fn update(&mut self, key: K::In<'_>, value: V::In<'_>) -> Result<bool> {
        self.write_if(ffi::plait_update, K::encode(key), V::encode(value))
    }

    /// Deletes a key. Answers whether it was there.
    pub fn delete(&mut self, key: K::In<'_>) -> Result<bool> {
        self.may_write()?;
        let key = K::encode(key);
        let mut done = 0;
        // SAFETY: the map is open, the key stays during the call, `done` takes the answer.
        let code = unsafe { ffi::plait_delete(self.raw(), key.raw(), &raw mut done) };
        self.check_key(code, &key)?;
        Ok(done != 0)
    }

    /// Deletes the keys of a range, all or none. Answers how many.
    pub fn delete_range<'k>(&mut self, range: impl KeyRange<'k, K>) -> Result<u64> {
        self.may_write()?;
        let range = range.bounds();
        let mut n = 0;
        // SAFETY: the map is open, the range stays during the call, `n` takes the answer.
        let code = unsafe { ffi::plait_delete_range(self.raw(), &range.raw(), &raw mut n) };
        self.check(code)?;
        Ok(n.unsigned_abs())
    }

    /// Makes `value` of what is `expected`; `None` is no row, before or after. Answers whether it has.
    ///
    /// ```
    /// # fn main() -> plait::Result<()> {
    /// # let connection = plait::Connection::open_in_memory()?;
    /// let mut locks = connection.map(plait::MapDefinition::<&str, i64>::new("locks"))?;
    /// assert!(locks.compare_and_swap("door", None, Some(7))?);
    /// assert!(!locks.compare_and_swap("door", None, Some(8))?);
    /// assert!(locks.compare_and_swap("door", Some(7), None)?);
    /// assert!(locks.is_empty()?);
    /// # Ok(()) }
    /// ```
    pub fn compare_and_swap(
        &mut self,
        key: K::In<'_>,
        expected: Option<V::In<'_>>,
        value: Option<V::In<'_>>,
    ) -> Result<bool> {
        self.may_write()?;
        let (key, expected, value) =
            (K::encode(key), expected.map(V::encode), value.map(V::encode));
        let raw = |datum: &Option<Datum<'_>>| datum.as_ref().map_or(ffi::NONE, Datum::raw);
        let mut done = 0;
        // SAFETY: the map is open, key and values stay during the call, `done` takes the answer.
        let code = unsafe {
            ffi::plait_compare_and_swap(
                self.raw(),
                key.raw(),
                raw(&expected),
                raw(&value),
                &raw mut done,
            )
        };
        self.check_key(code, &key)?;
        Ok(done != 0)
    }

    /// An empty batch for this map.
    pub fn batch<'a>(&self) -> Batch<'a, K, V> {
        Batch::new()
    }

    /// Does what a batch says, all or nothing.
    pub fn apply(&mut self, batch: &Batch<'_, K, V>) -> Result<Applied> {
        self.may_write()?;
        let items = batch.raw();
        let n = count_of(items.len())?;
        let mut failed = -1;
        // SAFETY: the map is open, there are `n` items, which stay during the call, `failed` takes the answer.
        let code = unsafe { ffi::plait_batch(self.raw(), n, items.as_ptr(), &raw mut failed) };
        self.check(code)?;
        Ok(usize::try_from(failed).map_or(Applied::All, Applied::Unmet))
    }

    fn write_if(&mut self, call: WriteIf, key: Datum<'_>, value: Datum<'_>) -> Result<bool> {
        self.may_write()?;
        let mut done = 0;
        // SAFETY: the map is open, key and value stay during the call, `done` takes the answer.
        let code = unsafe { call(self.raw(), key.raw(), value.raw(), &raw mut done) };
        self.check_key(code, &key)?;
        Ok(done != 0)
    }

    pub(crate) fn may_write(&self) -> Result<()> {
        self.0.session.may_write()
    }
}

impl<K: Key, V: Counter> Map<'_, K, V> {
    /// Adds to a number; a key that is not there counts as 0. Answers the sum.
    ///
    /// Any number of threads and processes may add to one key: each addition counts once. Only numbers can be added to:
    ///
    /// ```compile_fail,E0599
    /// # fn main() -> plait::Result<()> {
    /// # let connection = plait::Connection::open_in_memory()?;
    /// let mut names = connection.map(plait::MapDefinition::<i64, &str>::new("names"))?;
    /// names.add(1, 1)?;
    /// # Ok(()) }
    /// ```
    pub fn add(&mut self, key: K::In<'_>, delta: i64) -> Result<i64> {
        self.may_write()?;
        let key = K::encode(key);
        let mut sum = 0;
        // SAFETY: the map is open, the key stays during the call, `sum` takes the answer.
        let code = unsafe { ffi::plait_add(self.raw(), key.raw(), delta, &raw mut sum) };
        self.check_key(code, &key)?;
        Ok(sum)
    }
}

impl<K: Key, V: Appendable> Map<'_, K, V> {
    /// Appends to a value; a key that is not there counts as empty. Answers the new size in bytes.
    pub fn append(&mut self, key: K::In<'_>, tail: V::In<'_>) -> Result<u64> {
        self.may_write()?;
        let (key, tail) = (K::encode(key), V::encode(tail));
        let mut size_bytes = 0;
        // SAFETY: the map is open, key and tail stay during the call, `size_bytes` takes the answer.
        let code =
            unsafe { ffi::plait_append(self.raw(), key.raw(), tail.raw(), &raw mut size_bytes) };
        self.check_key(code, &key)?;
        Ok(size_bytes.unsigned_abs())
    }
}

impl<'s, K, V> Deref for Map<'s, K, V> {
    type Target = ReadMap<'s, K, V>;

    fn deref(&self) -> &ReadMap<'s, K, V> {
        &self.0
    }
}

impl<K, V> DerefMut for Map<'_, K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// What is stored, as a type.
pub(crate) fn decode<V: Value>(
    stored: Result<Option<datum::Stored<'_>>, Mismatch>,
    of: impl Fn() -> String,
) -> Result<Option<V::Out<'_>>> {
    match stored {
        Ok(None) => Ok(None),
        Ok(Some(stored)) => V::decode(stored).map(Some).map_err(|mismatch| mismatch.about(of())),
        Err(mismatch) => Err(mismatch.about(of())),
    }
}

/// A number of items as the library takes it.
fn count_of(n: usize) -> Result<c_int> {
    c_int::try_from(n)
        .map_err(|_| Error::Refused(format!("{n} keys in one call: at most {}", c_int::MAX)))
}

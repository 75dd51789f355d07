//! Calls whose arguments are what the call before has answered, where it stands.

use super::{DONE, Map, MapCursor, NONE, ROW, cooked, raw};
use crate::error::Result;
use crate::value::Value;
use std::ffi::c_int;
use std::ptr;

impl Map {
    /// `plait_append` to a value of what `plait_get` has answered: the new size.
    pub fn append_answer(&self, to: &Value, from: &Value) -> Result<i64> {
        let (mut answer, mut size_bytes) = (NONE, 0);
        // SAFETY: the map is open, key and place live through the call.
        let code = unsafe { (self.functions().get)(self.raw, raw(Some(from)), &raw mut answer) };
        self.check(code, "get")?;
        // SAFETY: as above, and the answer stays until this call.
        let code = unsafe {
            (self.functions().append)(self.raw, raw(Some(to)), answer, &raw mut size_bytes)
        };
        self.check(code, "append")?;
        Ok(size_bytes)
    }

    /// `plait_get_many` of what `plait_get_many` has answered, so many times.
    pub fn get_many_of_answers(&self, keys: &[Value], times: u32) -> Result<Vec<Option<Value>>> {
        let n = c_int::try_from(keys.len()).expect("not that many");
        let mut asked: Vec<_> = keys.iter().map(|key| raw(Some(key))).collect();
        for _ in 0..times {
            let mut out = vec![NONE; keys.len()];
            // SAFETY: both arrays have n places, and the answers stay until the call.
            let code = unsafe {
                (self.functions().get_many)(self.raw, n, asked.as_ptr(), out.as_mut_ptr())
            };
            self.check(code, "get_many")?;
            asked = out;
        }
        Ok(asked.iter().map(cooked).collect())
    }
}

impl MapCursor {
    /// The keys of the range, each found by `plait_cursor_seek` to what is above the one before, where that one stands.
    pub fn keys_above_each_other(&mut self) -> Result<Vec<Value>> {
        const ABOVE: c_int = 2;
        let (mut key, mut found, none) = (NONE, Vec::new(), ptr::null_mut());
        // SAFETY: the cursor is open and the place is valid.
        let mut code = unsafe { (self.functions().cursor_first)(self.raw, &raw mut key, none) };
        while code == ROW {
            found.extend(cooked(&key));
            // SAFETY: as above; the key stays until this call.
            code =
                unsafe { (self.functions().cursor_seek)(self.raw, key, ABOVE, &raw mut key, none) };
        }
        match code {
            DONE => Ok(found),
            code => Err(self.connection.error(code, "cursor")),
        }
    }
}

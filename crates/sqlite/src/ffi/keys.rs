//! Key encoding into buffers that C owns.

use std::mem::ManuallyDrop;
use std::os::raw::c_int;

use plait_engine::memory;

use super::codes::{SQLITE_CORRUPT, SQLITE_ERROR, SQLITE_IOERR, SQLITE_NOMEM, SQLITE_OK};
use super::types::{PlBuf, PlValue};
use super::{bytes, caught};
use crate::key::{TextEncoding, Value, describe, encode_record, encode_values, room_for};

/// Runs `f` on the buffer as an emptied vector and puts the vector's parts back.
///
/// # Safety
/// `buf` is zeroed or was filled by this function, and is used by this thread alone.
unsafe fn fill(
    buf: *mut PlBuf,
    name: &'static str,
    f: impl FnOnce(&mut Vec<u8>) -> c_int,
) -> c_int {
    // SAFETY: by contract.
    let buf = unsafe { &mut *buf };
    let mut vec = ManuallyDrop::new(if buf.p.is_null() {
        Vec::new()
    } else {
        // SAFETY: pointer and capacity are those of the vector that was left here; length 0 needs
        // no bytes.
        unsafe { Vec::from_raw_parts(buf.p, 0, buf.n_alloc as usize) }
    });
    // A panic can leave nothing shared half done here.
    let code = caught(name, || f(&mut vec)).unwrap_or(SQLITE_IOERR);
    *buf = PlBuf { p: vec.as_mut_ptr(), n: vec.len() as u32, n_alloc: vec.capacity() as u32 };
    if buf.n_alloc == 0 {
        buf.p = std::ptr::null_mut();
    }
    code
}

/// Reserves memory for the key, and for the longest text as UTF-8. False if there is none.
fn has_room(out: &mut Vec<u8>, key_bytes: usize, text_bytes: usize, enc: TextEncoding) -> bool {
    let transcoded = if enc == TextEncoding::Utf8 { 0 } else { text_bytes / 2 * 3 };
    out.try_reserve(key_bytes).is_ok() && memory::expect::<u8>(transcoded).is_ok()
}

/// See engine.h.
///
/// # Safety
/// `buf` is zeroed or was filled by `pl_encode_*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_buf_free(buf: *mut PlBuf) {
    // SAFETY: by contract.
    let buf = unsafe { &mut *buf };
    if !buf.p.is_null() {
        // SAFETY: pointer and capacity are those of the vector that was left here.
        drop(unsafe { Vec::from_raw_parts(buf.p, 0, buf.n_alloc as usize) });
    }
    *buf = PlBuf { p: std::ptr::null_mut(), n: 0, n_alloc: 0 };
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_encode_record(
    rec: *const u8,
    n_rec: u32,
    fields: *const u8,
    n_field: u32,
    text_encoding: u8,
    buf: *mut PlBuf,
) -> c_int {
    // SAFETY: engine.h: both ranges are readable during the call.
    let (rec, fields) = unsafe { (bytes(rec, n_rec), bytes(fields, n_field)) };
    let Some(encoding) = TextEncoding::from_sqlite(text_encoding) else { return SQLITE_ERROR };
    // SAFETY: engine.h.
    unsafe {
        fill(buf, "pl_encode_record", |out| {
            let room = room_for(rec, 0, fields.len(), encoding);
            if !has_room(out, room, rec.len(), encoding) {
                return SQLITE_NOMEM;
            }
            match encode_record(rec, fields, encoding, out) {
                Ok(()) => SQLITE_OK,
                Err(_) => SQLITE_CORRUPT,
            }
        })
    }
}

/// Converts a value that C describes.
///
/// # Safety
/// Text and blob ranges are readable while the result is used.
unsafe fn value<'a>(v: &PlValue) -> Value<'a> {
    // SAFETY: by contract.
    let data = |v: &PlValue| unsafe { bytes(v.z, v.n) };
    match v.kind {
        1 => Value::Integer(v.i),
        2 => Value::Real(v.r),
        3 => Value::Text(data(v)),
        4 => Value::Blob(data(v), v.n_zero as usize),
        _ => Value::Null,
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_encode_values(
    values: *const PlValue,
    n: u32,
    fields: *const u8,
    text_encoding: u8,
    buf: *mut PlBuf,
) -> c_int {
    let Some(encoding) = TextEncoding::from_sqlite(text_encoding) else { return SQLITE_ERROR };
    let values: &[PlValue] = if n == 0 {
        &[]
    } else {
        // SAFETY: engine.h: `n` values are readable during the call.
        unsafe { std::slice::from_raw_parts(values, n as usize) }
    };
    // SAFETY: engine.h: one byte a field, at least as many as values.
    let fields = unsafe { bytes(fields, n) };
    let encode = |out: &mut Vec<u8>| {
        // SAFETY: engine.h: the values' ranges are readable during the call.
        let values = values.iter().map(|v| unsafe { value(v) });
        let (mut room, mut longest) = (0, 0);
        for value in values.clone() {
            let (Value::Text(bytes) | Value::Blob(bytes, _)) = value else {
                room += room_for(&[], 0, 1, encoding);
                continue;
            };
            let zeros = if let Value::Blob(_, zeros) = value { zeros } else { 0 };
            room += room_for(bytes, zeros, 1, encoding);
            longest = longest.max(bytes.len());
        }
        if !has_room(out, room, longest, encoding) {
            return SQLITE_NOMEM;
        }
        encode_values(values, fields, encoding, out);
        SQLITE_OK
    };
    // SAFETY: engine.h.
    unsafe { fill(buf, "pl_encode_values", encode) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_describe_key(
    key: *const u8,
    n_key: u32,
    text_encoding: u8,
    buf: *mut PlBuf,
) -> c_int {
    // SAFETY: engine.h: the key is readable during the call.
    let key = unsafe { bytes(key, n_key) };
    let Some(encoding) = TextEncoding::from_sqlite(text_encoding) else { return SQLITE_ERROR };
    // SAFETY: engine.h.
    unsafe {
        fill(buf, "pl_describe_key", |out| {
            out.extend_from_slice(describe(key, encoding).as_bytes());
            SQLITE_OK
        })
    }
}

//! Compression of a record's body.

use std::io::Cursor;

use bytes::Bytes;

/// A body is compressed once a second and has little time.
const LEVEL: i32 = 1;
/// Levels for long bodies, fastest first. Values that look random take -10 a fifth of the time, and come out a twentieth longer.
const FAST_LEVELS: [i32; 2] = [-10, -1];
/// Bodies below this are stored as they are.
const FROM_BYTES: usize = 128;
/// Bodies from here on are tried first. They come one behind the other, beside writers that need the processor.
const LONG_BYTES: usize = 1 << 20;
/// In the name of zstd's error ZSTD_error_memory_allocation.
const NO_MEMORY: &str = "not enough memory";
/// Bytes in the middle of a long body with which levels are tried.
const TRIED_BYTES: usize = 64 << 10;

/// Returns `front` zeros, for a header, and behind them `raw` compressed; true if it is: where that would be no
/// shorter it is there as it is.
pub fn compress_behind(front: usize, raw: &[u8]) -> (bool, Vec<u8>) {
    if raw.len() >= FROM_BYTES
        && let Ok(out) = compress_at(level_for(raw), front, raw)
        && out.len() < front + raw.len()
    {
        return (true, out);
    }
    let mut out = Vec::with_capacity(front + raw.len());
    out.resize(front, 0);
    out.extend_from_slice(raw);
    (false, out)
}

/// For a long body the fastest level that makes it at most a tenth longer than [`LEVEL`] does.
fn level_for(raw: &[u8]) -> i32 {
    if raw.len() < LONG_BYTES {
        return LEVEL;
    }
    let tried = &raw[raw.len() / 2..][..TRIED_BYTES];
    let bytes = |level| compress_at(level, 0, tried).map_or(TRIED_BYTES, |out| out.len());
    let enough = bytes(LEVEL) * 11 / 10;
    FAST_LEVELS.into_iter().find(|level| bytes(*level) <= enough).unwrap_or(LEVEL)
}

fn compress_at(level: i32, front: usize, raw: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(front + zstd::zstd_safe::compress_bound(raw.len()));
    out.resize(front, 0);
    let mut out = Cursor::new(out);
    out.set_position(front as u64);
    zstd::bulk::Compressor::new(level)?.compress_to_buffer(raw, &mut out)?;
    Ok(out.into_inner())
}

/// Decompresses what has exactly `raw_bytes` bytes then. A lack of memory ends the process, as it does anywhere else: it must not
/// be taken for damage.
pub fn inflate(stored: &[u8], raw_bytes: usize) -> Option<Bytes> {
    let raw = zstd::bulk::decompress(stored, raw_bytes);
    let lacks_memory = |error: &std::io::Error| {
        error.kind() == std::io::ErrorKind::OutOfMemory || error.to_string().contains(NO_MEMORY)
    };
    if raw.as_ref().is_err_and(lacks_memory) {
        std::alloc::handle_alloc_error(std::alloc::Layout::array::<u8>(raw_bytes).ok()?);
    }
    let raw = raw.ok()?;
    (raw.len() == raw_bytes).then(|| raw.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that no compression makes shorter (splitmix64).
    fn random(bytes: usize) -> Vec<u8> {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 56) as u8
        };
        std::iter::repeat_with(&mut next).take(bytes).collect()
    }

    /// Text of sixteen letters, which the slower level alone makes much shorter.
    fn letters(bytes: usize) -> Vec<u8> {
        random(bytes).into_iter().map(|byte| b'a' + byte % 16).collect()
    }

    #[test]
    fn what_is_compressed_comes_back_behind_its_front() {
        for raw in
            [letters(200), letters(LONG_BYTES + 3), [vec![0; LONG_BYTES], random(9)].concat()]
        {
            let (is_compressed, out) = compress_behind(17, &raw);
            assert!(is_compressed && out.len() < raw.len());
            assert_eq!(out[..17], [0; 17]);
            assert_eq!(inflate(&out[17..], raw.len()).expect("it comes back"), raw);
            assert_eq!(inflate(&out[17..], raw.len() - 1), None);
        }
    }

    #[test]
    fn what_would_grow_is_stored_as_it_is() {
        for raw in [random(5), random(200), random(LONG_BYTES)] {
            let (is_compressed, out) = compress_behind(3, &raw);
            assert!(!is_compressed);
            assert_eq!(out, [&[0; 3], &raw[..]].concat());
        }
    }

    #[test]
    fn the_slowest_level_is_for_what_it_makes_much_shorter() {
        assert_eq!(level_for(&letters(LONG_BYTES)), LEVEL);
        assert_eq!(level_for(&random(LONG_BYTES)), FAST_LEVELS[0]);
        assert_eq!(level_for(&random(LONG_BYTES - 1)), LEVEL);
    }
}

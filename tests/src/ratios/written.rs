//! What a process sends to disk.

use anyhow::Context as _;

/// Bytes of the pages that the threads of this process have made dirty in files, or written past the cache.
/// Linux counts a page when it becomes dirty, so one that is written again before it goes to disk counts once.
pub fn bytes_written() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io").context("read /proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|number| number.parse().ok()).context("/proc/self/io has no write_bytes")
}

//! How long a medium takes to bring 4 KiB to the disk.
//!
//! Appends (the file grows, so its metadata is written too) and overwrites, each followed by fdatasync; on an idle
//! machine and under load. Under load a thread spins on every processor, at the lowest priority so that it delays
//! nothing itself: an idle virtual processor sleeps and is slow to wake, so an engine that spins looks fast on an
//! otherwise idle machine. The two side by side say how much of that there is.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::phase::new_histogram;
use super::usage;

/// Bytes of each write.
const BLOCK_BYTES: usize = 4096;

/// Blocks of the file that is overwritten.
const BLOCKS: u64 = 256;

/// How the blocks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// At the end of a file that grows.
    Append,
    /// Over blocks that are there.
    Overwrite,
}

/// Times of a write of 4 KiB and its fdatasync together, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// How the blocks were written.
    pub access: Access,
    /// Whether a thread was spinning on every processor.
    pub under_load: bool,
    /// Number of writes.
    pub count: u64,
    /// Half of them took at most this.
    pub p50_us: f64,
    /// 90 % of them.
    pub p90_us: f64,
    /// 99 % of them.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Probes the medium of a directory for about as long as given.
///
/// # Errors
/// If a file cannot be written there.
pub fn probe(directory: &Path, time: Duration) -> io::Result<Vec<Probe>> {
    let mut probes = Vec::new();
    for under_load in [false, true] {
        let load = under_load.then(Load::begin);
        for access in [Access::Append, Access::Overwrite] {
            probes.push(series(directory, access, under_load, time / 4)?);
        }
        drop(load);
    }
    Ok(probes)
}

fn series(directory: &Path, access: Access, under_load: bool, time: Duration) -> io::Result<Probe> {
    // Not a file without a name: some file systems treat those more lightly.
    let directory = tempfile::Builder::new().prefix("plait-bench-").tempdir_in(directory)?;
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(directory.path().join("probe"))?;
    if access == Access::Overwrite {
        file.write_all(&vec![0; BLOCK_BYTES * BLOCKS as usize])?;
        file.sync_all()?;
    }
    let mut histogram = new_histogram();
    let begun = Instant::now();
    let mut number = 0;
    while number == 0 || begun.elapsed() < time {
        let at = Instant::now();
        write(&mut file, access, number)?;
        let nanoseconds = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        histogram.saturating_record(nanoseconds);
        number += 1;
    }
    let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
    Ok(Probe {
        access,
        under_load,
        count: number,
        p50_us: microseconds(histogram.value_at_quantile(0.5)),
        p90_us: microseconds(histogram.value_at_quantile(0.9)),
        p99_us: microseconds(histogram.value_at_quantile(0.99)),
        max_us: microseconds(histogram.max()),
    })
}

/// Writes a block whose bytes differ from write to write.
fn write(file: &mut File, access: Access, number: u64) -> io::Result<()> {
    let mut block = [0; BLOCK_BYTES];
    for chunk in block.chunks_exact_mut(8) {
        chunk.copy_from_slice(&(number + 1).to_le_bytes());
    }
    match access {
        Access::Append => file.write_all(&block)?,
        Access::Overwrite => {
            // 101 and the number of blocks have no common factor, so that all of them are visited, far from each other.
            file.write_all_at(&block, number * 101 % BLOCKS * BLOCK_BYTES as u64)?;
        }
    }
    file.sync_data()
}

/// Threads that spin; they stop when dropped.
struct Load {
    stop: std::sync::Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn begin() -> Self {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..processors)
            .map(|_| {
                let stop = std::sync::Arc::clone(&stop);
                std::thread::spawn(move || {
                    usage::yield_to_others();
                    // Relaxed: a flag that orders nothing else.
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        Self { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The threads do nothing that panics.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_and_overwrites_are_probed_idle_and_under_load() {
        let directory = tempfile::tempdir().unwrap();
        let probes = probe(directory.path(), Duration::from_millis(20)).unwrap();
        let kinds: Vec<_> = probes.iter().map(|p| (p.access, p.under_load)).collect();
        let (append, overwrite) = (Access::Append, Access::Overwrite);
        let all = [(append, false), (overwrite, false), (append, true), (overwrite, true)];
        assert_eq!(kinds, all);
        for probe in probes {
            assert!(
                probe.count > 0 && probe.p50_us <= probe.p99_us && probe.p99_us <= probe.max_us
            );
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    }
}

//! The machine, as far as the numbers depend on it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::os::{self, FileSystem};
use crate::quantity::{of, wait};

/// Syncs that are timed, unless the time is up before.
const SYNCS: usize = 300;
const TIME_MAX: Duration = Duration::from_millis(500);
const BLOCK_BYTES: usize = 4096;
/// The file is overwritten in place, as the logs of both engines are most of the time.
const FILE_BLOCKS: usize = 256;

/// Median and longest time of an fdatasync after overwriting 4 KiB in a file of `directory`.
pub fn sync_times(directory: &Path) -> io::Result<(Duration, Duration)> {
    let path = directory.join("sync-probe");
    let file = File::create_new(&path)?;
    let mut block = [0u8; BLOCK_BYTES];
    for i in 0..FILE_BLOCKS {
        file.write_all_at(&block, (i * BLOCK_BYTES) as u64)?;
    }
    file.sync_all()?;
    let mut times = Vec::with_capacity(SYNCS);
    let begun = Instant::now();
    while times.len() < SYNCS && begun.elapsed() < TIME_MAX {
        let i = times.len();
        block[0] = (i as u8).wrapping_add(1);
        file.write_all_at(&block, (i % FILE_BLOCKS * BLOCK_BYTES) as u64)?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed());
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok((times[times.len() / 2], times[times.len() - 1]))
}

/// Processor, kernel and disk in one line.
pub fn description(directory: &Path) -> String {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let cpu = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let disk = FileSystem::of(directory).map_or("unknown", FileSystem::name);
    format!("{} ({cpu}), Linux {}, {disk}", of(cpus as u64, "CPU", "CPUs"), kernel.trim())
}

/// How long the disk takes to make something durable.
pub struct Disk {
    /// Median with nothing else to do.
    idle: Duration,
    /// Longest of those.
    worst: Duration,
    /// Median while the processors are kept from sleeping.
    awake: Duration,
}

impl Disk {
    /// Measures the disk under `directory`.
    pub fn measure(directory: &Path) -> io::Result<Disk> {
        let (idle, worst) = sync_times(directory)?;
        let _awake = os::keep_processors_awake();
        // Time to be scheduled.
        std::thread::sleep(Duration::from_millis(20));
        let (awake, _) = sync_times(directory)?;
        Ok(Disk { idle, worst, awake })
    }

    /// Idle processors learn late that the disk is done, as those of some virtual machines do. An engine that keeps
    /// them busy would look fast for that reason alone.
    pub fn waits_for_sleepers(&self) -> bool {
        self.idle > Duration::from_micros(300) && self.idle > 2 * self.awake
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (idle, worst, awake) = (wait(self.idle), wait(self.worst), wait(self.awake));
        write!(
            f,
            "an fdatasync of 4 KiB takes {idle} (worst {worst}), {awake} with the processors kept awake"
        )
    }
}

/// Processors that others want, when that is enough to disturb: those that run or wait to run, on the average of a
/// fifth of a second. The load of the last minute would count the build that has just ended. To be asked while this
/// process does nothing else.
pub fn other_load() -> Option<f64> {
    const LOOKS: u32 = 20;
    let mut others = 0;
    for _ in 0..LOOKS {
        std::thread::sleep(Duration::from_millis(10));
        others += others_running_in(&std::fs::read_to_string("/proc/loadavg").ok()?)?;
    }
    let load = f64::from(others) / f64::from(LOOKS);
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    (load > cpus as f64 / 2.0).then_some(load)
}

/// `0.52 0.58 0.59 3/975 4471`: three run, and one of them reads this.
fn others_running_in(load_average: &str) -> Option<u32> {
    let running: u32 = load_average.split_whitespace().nth(3)?.split('/').next()?.parse().ok()?;
    Some(running.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_large_difference_is_put_down_to_sleep() {
        let disk = |idle, awake| Disk {
            idle: Duration::from_micros(idle),
            worst: Duration::from_millis(9),
            awake: Duration::from_micros(awake),
        };
        assert!(disk(4_000, 80).waits_for_sleepers());
        assert!(!disk(4_000, 3_000).waits_for_sleepers());
        assert!(!disk(200, 80).waits_for_sleepers());
    }

    #[test]
    fn the_reader_of_the_load_is_none_of_the_others() {
        assert_eq!(others_running_in("0.52 0.58 0.59 3/975 4471\n"), Some(2));
        assert_eq!(others_running_in("2.00 0.58 0.59 1/975 4471\n"), Some(0));
        assert_eq!(others_running_in("0.52"), None);
    }

    #[test]
    fn a_sync_takes_time_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (median, worst) = sync_times(dir.path()).unwrap();
        assert!(median > Duration::ZERO && worst >= median);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

//! What is measured on.
//!
//! Everything is read from /proc, /sys and /etc; what cannot be read is `unknown` or left out, never guessed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::disk::{self, Probe};
use super::medium;

/// The machine, as far as it bears on the figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that this program may use.
    pub processors: usize,
    /// Kernel release.
    pub kernel: String,
    /// `Debian GNU/Linux 12 (bookworm)`.
    pub distribution: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The hypervisor as far as the machine tells; none on bare metal or where nothing is told.
    pub virtualization: Option<String>,
    /// How the processor's frequency is governed; none where the machine does not tell.
    pub governor: Option<String>,
    /// The media that are measured.
    pub media: Vec<Medium>,
}

/// Where files of the measured stores are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Medium {
    /// The directory that was given, absolute.
    pub directory: PathBuf,
    /// Type of its file system: `ext4`.
    pub file_system: String,
    /// Its device, or what stands for one: `/dev/sda1`.
    pub device: String,
    /// How it is mounted: `rw,relatime`.
    pub options: String,
    /// Whether the device says that it rotates.
    pub rotational: Option<bool>,
    /// What the figures of this medium do not say: that it is memory, or over a network.
    pub caution: Option<String>,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// How long it takes to bring 4 KiB to the disk.
    pub probes: Vec<Probe>,
}

impl Medium {
    /// Whether nothing on it survives a power cut, whatever is synced.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        medium::is_memory(&self.file_system)
    }
}

/// What disturbs a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disturbance {
    /// Load average over one minute, read just before it.
    pub load: f64,
    /// Part of the processor time since the last reading, up to the begin of the trial, that the hypervisor gave to
    /// others, 0 to 1.
    pub steal: f64,
    /// The same while the trial ran; not in results of older versions, whose last reading was before the trial ahead.
    #[serde(default)]
    pub steal_during: Option<f64>,
}

impl Disturbance {
    /// The part of the processor time that was given to others while the trial ran, or as near to it as was looked.
    #[must_use]
    pub fn stolen(&self) -> f64 {
        self.steal_during.unwrap_or(self.steal)
    }
}

/// Describes this machine and the given directories, without probing them.
#[must_use]
pub fn describe(directories: &[PathBuf]) -> Machine {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu_info = read("/proc/cpuinfo");
    Machine {
        processor: processor_in(&cpu_info).unwrap_or_else(unknown),
        processors,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        distribution: distribution_in(&read("/etc/os-release")).unwrap_or_else(unknown),
        memory_bytes: memory_in(&read("/proc/meminfo")).unwrap_or(0),
        virtualization: virtualization(&cpu_info),
        governor: some_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        media: directories.iter().map(|directory| medium::describe(directory)).collect(),
    }
}

/// Describes this machine and the given directories, and probes them within about the given time. A directory that
/// cannot be probed says so in [`Medium::caution`].
#[must_use]
pub fn describe_and_probe(directories: &[PathBuf], time: Duration) -> Machine {
    let mut machine = describe(directories);
    let each = time / u32::try_from(directories.len().max(1)).unwrap_or(u32::MAX);
    for medium in &mut machine.media {
        match disk::probe(&medium.directory, each) {
            Ok(probes) => medium.probes = probes,
            Err(error) => medium.caution = Some(format!("it could not be probed: {error}")),
        }
    }
    machine
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// What stands in a file of one line; none if it is empty or not there.
fn some_line(path: impl AsRef<Path>) -> Option<String> {
    let text = read(path);
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// The value of a `name : value` line.
fn processor_in(cpu_info: &str) -> Option<String> {
    // Processors of Arm have no name there, only numbers.
    ["model name", "Model", "CPU part"].iter().find_map(|name| {
        cpu_info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == *name).then(|| value.trim().to_owned())
        })
    })
}

fn distribution_in(os_release: &str) -> Option<String> {
    let line = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"').to_owned())
}

/// `MemTotal: 123 kB`
fn memory_in(mem_info: &str) -> Option<u64> {
    let line = mem_info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The hypervisor's own names first; the processor's flag says at least that there is one.
fn virtualization(cpu_info: &str) -> Option<String> {
    let vendor = some_line("/sys/class/dmi/id/sys_vendor");
    let product = some_line("/sys/class/dmi/id/product_name");
    let flagged = cpu_info.lines().any(|line| {
        line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor")
    });
    let named = some_line("/sys/hypervisor/type");
    match (flagged, named) {
        (_, Some(name)) => Some(name),
        (true, None) => match (vendor, product) {
            (None, None) => Some("a hypervisor that gives no name".to_owned()),
            (vendor, product) => {
                Some([vendor, product].into_iter().flatten().collect::<Vec<_>>().join(" "))
            }
        },
        (false, None) => None,
    }
}

/// Reads what disturbs, each time since the last.
#[derive(Debug)]
pub struct Watch {
    before: Ticks,
}

/// Processor time of all processors since the machine began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Watch {
    /// Begins to watch.
    #[must_use]
    pub fn begin() -> Self {
        Self { before: ticks_in(&read("/proc/stat")).unwrap_or_default() }
    }

    /// What disturbs now.
    pub fn look(&mut self) -> Disturbance {
        let now = ticks_in(&read("/proc/stat")).unwrap_or_default();
        let steal = steal_between(self.before, now);
        self.before = now;
        Disturbance {
            load: load_in(&read("/proc/loadavg")).unwrap_or(0.0),
            steal,
            steal_during: None,
        }
    }
}

/// The first line of /proc/stat: `cpu user nice system idle iowait irq softirq steal guest guest_nice`. The guests' time
/// is part of the user's.
fn ticks_in(stat: &str) -> Option<Ticks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|text| text.parse().ok()).collect();
    Some(Ticks { all: ticks.iter().take(8).sum(), stolen: ticks.get(7).copied().unwrap_or(0) })
}

fn steal_between(before: Ticks, after: Ticks) -> f64 {
    let all = after.all.saturating_sub(before.all);
    let stolen = after.stolen.saturating_sub(before.stolen);
    if all == 0 { 0.0 } else { stolen as f64 / all as f64 }
}

fn load_in(load_average: &str) -> Option<f64> {
    load_average.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_part_of_all_time() {
        let before = ticks_in("cpu  100 0 50 800 0 0 0 50 7 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(before, Ticks { all: 1000, stolen: 50 });
        let after = ticks_in("cpu  150 0 50 825 0 0 0 75 9 0\n").unwrap();
        assert_eq!(steal_between(before, after), 0.25);
        assert_eq!(steal_between(after, after), 0.0);
    }

    #[test]
    fn the_machine_is_read_from_what_linux_tells() {
        assert_eq!(processor_in("processor\t: 0\nmodel name\t: A B\n"), Some("A B".to_owned()));
        assert_eq!(memory_in("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16 * 1024));
        assert_eq!(distribution_in("ID=x\nPRETTY_NAME=\"X 1\"\n"), Some("X 1".to_owned()));
        assert_eq!(load_in("0.52 0.58 0.59 1/975 4471\n"), Some(0.52));
    }

    #[test]
    fn a_description_of_an_older_version_is_read() {
        let machine: Machine =
            serde_json::from_str(r#"{"processor":"A","processors":2,"kernel":"6"}"#).unwrap();
        assert_eq!((machine.processors, machine.media.len()), (2, 0));
    }

    #[test]
    fn this_machine_has_memory_and_a_medium() {
        let machine = describe(&[std::env::temp_dir()]);
        assert!(machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(!machine.media[0].file_system.is_empty(), "{machine:?}");
    }
}

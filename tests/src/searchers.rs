//! Several searchers side by side: processes that run the same suites, each with seeds of its own.
//!
//! In memory a search comes to many times as many cases, as it does not wait for a disk: what a killed process has written is
//! there in either case, and power cuts are made by the suite itself. But a disk gives other orders, since groups form behind its syncs: so
//! of several searchers the last one works on the disk.

use anyhow::{Context as _, ensure};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Tells a process that it is one of them.
const SEARCHER: &str = "PLAIT_TORTURE_SEARCHER";
/// So many seeds lie between the first ones of two.
const SEEDS: u64 = 1_000_000;
/// Files that are memory.
const MEMORY: &str = "/dev/shm";

/// The first seed of the searcher of this number.
fn seed_of(first: u64, number: u64) -> u64 {
    first + number * SEEDS
}

/// Whether that searcher works in memory: all but the last of several.
fn is_in_memory(number: u64, searchers: u64) -> bool {
    (searchers == 1 || number + 1 < searchers) && Path::new(MEMORY).is_dir()
}

/// Starts so many searchers with this program's own arguments and awaits them all: what one finds does not keep the others from finding more.
pub fn run(searchers: u64, first: u64) -> anyhow::Result<()> {
    let all: Vec<Child> = (0..searchers)
        .map(|number| start(number, searchers, first))
        .collect::<anyhow::Result<_>>()?;
    let mut failed = 0;
    for mut searcher in all {
        failed += u64::from(!searcher.wait()?.success());
    }
    ensure!(failed == 0, "{failed} of {searchers} searchers found something, or failed: see above");
    Ok(())
}

fn start(number: u64, searchers: u64, first: u64) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("this program has a path")?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).stdin(Stdio::null());
    command.env(SEARCHER, seed_of(first, number).to_string());
    if is_in_memory(number, searchers) {
        command.env("TMPDIR", MEMORY);
    }
    command.spawn().context("this program can be started again")
}

/// The first seed of this process, if it is one of several.
#[must_use]
pub fn own_seed() -> Option<u64> {
    std::env::var(SEARCHER).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{is_in_memory, seed_of};

    #[test]
    fn the_last_of_several_searchers_works_on_the_disk_and_none_shares_its_seeds() {
        assert!(!is_in_memory(2, 3));
        assert_eq!(seed_of(7, 0), 7);
        assert!(seed_of(7, 1) - seed_of(7, 0) > 500_000);
    }
}

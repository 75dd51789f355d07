//! Where the libraries and programs under test are.
//!
//! | environment | default under the repository | what |
//! |---|---|---|
//! | `PLAIT_LIB` | `dist/lib/libsqlite3.so.0` | the library under test |
//! | `PLAIT_STOCK_LIB` | `dist/stock/lib/libsqlite3.so.0` | the same SQLite unspliced: oracle and baseline |
//! | `PLAIT_CRASH_LIB` | `dist/crash/lib/libsqlite3.so.0` | the library under test with its crash points compiled in |
//! | `PLAIT_SHELL` | `dist/bin/sqlite3` | the SQLite shell linked to the library under test |
//! | `PLAIT_REPLICATE` | `bin/plait-replicate` in the folder of the library's `lib`, or in `dist` | the sidecar and the follower of replicas |
//! | `PLAIT_WORKER` | beside the running program | the `worker` program of this package |
//!
//! `PLAIT_STAND_IN=1` puts stock SQLite in WAL mode in the place of the library under test, so that the suites can be
//! tried out before it exists. Tests of what only the real library does skip themselves then and say so.

use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};

/// The repository's root.
#[must_use]
pub fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package lies in the repository").to_owned()
}

/// Whether stock SQLite stands in for the library under test.
#[must_use]
pub fn stand_in() -> bool {
    std::env::var_os("PLAIT_STAND_IN").is_some_and(|value| value != "0")
}

fn located(variable: &str, default: &str) -> anyhow::Result<PathBuf> {
    let path = match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => repository().join(default),
    };
    ensure!(path.exists(), "{} is not there: run `make dist` or set {variable}", path.display());
    path.canonicalize().with_context(|| format!("cannot resolve {}", path.display()))
}

/// The unspliced library.
pub fn stock_library() -> anyhow::Result<PathBuf> {
    located("PLAIT_STOCK_LIB", "dist/stock/lib/libsqlite3.so.0")
}

/// The library under test.
pub fn plait_library() -> anyhow::Result<PathBuf> {
    if stand_in() {
        return stock_library();
    }
    located("PLAIT_LIB", "dist/lib/libsqlite3.so.0")
}

/// The library under test with crash points.
pub fn crash_library() -> anyhow::Result<PathBuf> {
    if stand_in() {
        return stock_library();
    }
    located("PLAIT_CRASH_LIB", "dist/crash/lib/libsqlite3.so.0")
}

/// The SQLite shell on the library under test.
pub fn shell() -> anyhow::Result<PathBuf> {
    located("PLAIT_SHELL", "dist/bin/sqlite3")
}

/// `plait-replicate` as it was built with a library, or else without faults and sanitizers.
pub fn replicate(library: &Path) -> anyhow::Result<PathBuf> {
    let beside = library.ancestors().nth(2).map(|folder| folder.join("bin/plait-replicate"));
    match beside.filter(|program| program.exists()) {
        Some(beside) if std::env::var_os("PLAIT_REPLICATE").is_none() => Ok(beside),
        _ => located("PLAIT_REPLICATE", "dist/bin/plait-replicate"),
    }
}

/// The `worker` program: beside this program, or one folder up from a test binary.
pub fn worker() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("PLAIT_WORKER") {
        return Ok(PathBuf::from(path));
    }
    let program = std::env::current_exe().context("cannot tell which program this is")?;
    let found = program.ancestors().skip(1).take(2).map(|folder| folder.join("worker"));
    found
        .into_iter()
        .find(|candidate| candidate.exists())
        .with_context(|| format!("no worker program near {}: build plait-tests", program.display()))
}

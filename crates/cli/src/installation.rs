//! Where our library and the stock one are.
//!
//! | environment | otherwise, from the directory of this program | what |
//! |---|---|---|
//! | `PLAIT_LIB` | `../lib/plait` where it is installed, `../lib` in `dist` | directory with our `libsqlite3.so.0`, or that file |
//! | `PLAIT_STOCK_LIB` | `../lib/plait/stock`, `../stock/lib` | the same for stock SQLite |
//!
//! The kernel says where this program is, so a link to it leads to its libraries too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::{self, Failure, Result};

/// The name under which programs ask the loader for SQLite.
pub const SONAME: &str = "libsqlite3.so.0";

/// Absolute path of our `libsqlite3.so.0`.
pub fn our_library() -> Result<PathBuf> {
    locate("our library", "PLAIT_LIB", ["lib/plait", "lib"])
}

/// Absolute path of the stock `libsqlite3.so.0`.
pub fn stock_library() -> Result<PathBuf> {
    locate("the stock SQLite library", "PLAIT_STOCK_LIB", ["lib/plait/stock", "stock/lib"])
}

fn locate(what: &str, variable: &str, below: [&str; 2]) -> Result<PathBuf> {
    let told = std::env::var_os(variable).filter(|value| !value.is_empty());
    let program = std::env::current_exe().map_err(|e| {
        Failure::new(format!("cannot tell where this program is: {e}"), set(variable))
    })?;
    let wanted = candidate(told, &program, below);
    wanted.canonicalize().map_err(|e| {
        Failure::new(
            format!("cannot find {what} at {}: {}", wanted.display(), failure::said(&e)),
            format!("{}, or install Plait again; `make dist` builds it from source", set(variable)),
        )
    })
}

fn set(variable: &str) -> String {
    format!("set {variable} to the directory that holds {SONAME}")
}

/// Of the two directories the first that has the library, otherwise the first.
fn candidate(told: Option<OsString>, program: &Path, below: [&str; 2]) -> PathBuf {
    match told.map(PathBuf::from) {
        Some(path) if path.is_dir() => path.join(SONAME),
        Some(path) => path,
        None => {
            let bin = program.parent().unwrap_or(Path::new("/"));
            let places = below.map(|below| bin.parent().unwrap_or(bin).join(below).join(SONAME));
            let [first, second] = places;
            if second.exists() && !first.exists() { second } else { first }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BELOW: [&str; 2] = ["lib/plait", "lib"];

    fn make(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    #[test]
    fn a_library_is_beside_the_directory_of_the_program() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("bin/plait");
        let installed = place.path().join("lib/plait/libsqlite3.so.0");
        assert_eq!(candidate(None, &program, BELOW), installed, "this one is missed by name");
        let built = place.path().join("lib/libsqlite3.so.0");
        make(&built);
        assert_eq!(candidate(None, &program, BELOW), built);
        make(&installed);
        assert_eq!(candidate(None, &program, BELOW), installed);
    }

    #[test]
    fn the_environment_names_a_directory_or_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(SONAME);
        let program = Path::new("/bin/plait");
        assert_eq!(candidate(Some(dir.path().into()), program, BELOW), file);
        assert_eq!(candidate(Some(file.clone().into()), program, BELOW), file);
    }
}

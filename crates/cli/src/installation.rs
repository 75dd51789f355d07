//! Where our library and the stock one are.
//!
//! | environment | otherwise, from the directory of this program | what |
//! |---|---|---|
//! | `PLAIT_LIB` | `../lib` | directory with our `libsqlite3.so.0`, or that file |
//! | `PLAIT_STOCK_LIB` | `../stock/lib` | the same for stock SQLite |

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::{self, Failure, Result};

/// The name under which programs ask the loader for SQLite.
pub const SONAME: &str = "libsqlite3.so.0";

/// Absolute path of our `libsqlite3.so.0`.
pub fn our_library() -> Result<PathBuf> {
    locate("our library", "PLAIT_LIB", "lib")
}

/// Absolute path of the stock `libsqlite3.so.0`.
pub fn stock_library() -> Result<PathBuf> {
    locate("the stock SQLite library", "PLAIT_STOCK_LIB", "stock/lib")
}

fn locate(what: &str, variable: &str, below: &str) -> Result<PathBuf> {
    let told = std::env::var_os(variable).filter(|value| !value.is_empty());
    let program = std::env::current_exe().map_err(|e| {
        Failure::new(format!("cannot tell where this program is: {e}"), set(variable))
    })?;
    let wanted = candidate(told, &program, below);
    wanted.canonicalize().map_err(|e| {
        Failure::new(
            format!("cannot find {what} at {}: {}", wanted.display(), failure::said(&e)),
            format!("{}, or run `make dist` and use dist/bin/plait", set(variable)),
        )
    })
}

fn set(variable: &str) -> String {
    format!("set {variable} to the directory that holds {SONAME}")
}

fn candidate(told: Option<OsString>, program: &Path, below: &str) -> PathBuf {
    match told.map(PathBuf::from) {
        Some(path) if path.is_dir() => path.join(SONAME),
        Some(path) => path,
        None => {
            let bin = program.parent().unwrap_or(Path::new("/"));
            bin.parent().unwrap_or(bin).join(below).join(SONAME)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_beside_the_directory_of_the_program() {
        let program = Path::new("/opt/plait/bin/plait");
        assert_eq!(candidate(None, program, "lib"), Path::new("/opt/plait/lib/libsqlite3.so.0"));
    }

    #[test]
    fn the_environment_names_a_directory_or_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(SONAME);
        let program = Path::new("/bin/plait");
        assert_eq!(candidate(Some(dir.path().into()), program, "lib"), file);
        assert_eq!(candidate(Some(file.clone().into()), program, "lib"), file);
    }
}

//! What Berkeley DB's SQL interface keeps beside the file: the environment, in the directory `FILE-journal`.
//!
//! Berkeley DB reads `DB_CONFIG` there when a process opens the environment, so it must be there before the first
//! connection. Whether its lines took is seen in the files: logs are as long as `set_lg_max` says.

use std::ffi::{c_char, c_int};
use std::fs;
use std::path::{Path, PathBuf};

use plait_client::Library;

use crate::engines::{Outcome, Settings};

/// The version of the Berkeley DB below the SQL, where that is what stores: `5.3.28`.
#[allow(unsafe_code)]
pub fn version(library: Library) -> Option<String> {
    type Version = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int) -> *const c_char;
    // SAFETY: the type is that of Berkeley DB's documentation for this name.
    let version = unsafe { library.symbol::<Version>(c"db_version") }?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three places of the right type.
    unsafe { version(&raw mut major, &raw mut minor, &raw mut patch) };
    Some(format!("{major}.{minor}.{patch}"))
}

fn environment(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-journal");
    path.into()
}

/// Writes `DB_CONFIG` unless it is there.
pub fn configure(database: &Path, lines: &str) -> Outcome<()> {
    let environment = environment(database);
    let file = environment.join("DB_CONFIG");
    if !file.exists() {
        fs::create_dir_all(&environment)?;
        let lines: Vec<&str> = lines.split(';').map(str::trim).collect();
        fs::write(&file, lines.join("\n") + "\n")?;
    }
    Ok(())
}

/// Tells what is configured, and how long the first log is.
pub fn tell(database: &Path, told: &mut Settings) -> Outcome<()> {
    let environment = environment(database);
    if let Ok(lines) = fs::read_to_string(environment.join("DB_CONFIG")) {
        told.set("db_config", lines.trim().replace('\n', "; "));
    }
    if !environment.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(&environment)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b"log.") {
            told.set("log_file_bytes", entry.metadata()?.len());
            break;
        }
    }
    Ok(())
}

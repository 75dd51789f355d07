//! What Berkeley DB's SQL interface keeps beside the file: the environment, in the directory `FILE-journal`.
//!
//! Berkeley DB reads `DB_CONFIG` there when a process opens the environment, so it must be there before the first
//! connection. Whether its lines took is seen in the files: logs are as long as `set_lg_max` says.

use std::fs;
use std::path::{Path, PathBuf};

use crate::engines::{Outcome, Settings};

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

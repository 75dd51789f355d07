//! SQLite's own check of a database at rest, which it reads and leaves as it is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use plait_client::{Library, OpenFlags, Value};

/// As many problems are told.
const TOLD_MAX: usize = 3;

/// Checks the database.
///
/// # Errors
/// In words.
pub fn check(path: &Path) -> Result<(), String> {
    // Immutable: nobody else has the file, and no session is to begin over it.
    let uri = [b"file:", &escaped(path)[..], b"?mode=ro&immutable=1"].concat();
    let said = |error: plait_client::SqlError| format!("it cannot be checked: {}", error.said());
    let uri = Path::new(OsStr::from_bytes(&uri));
    let database = Library::linked().open_with(uri, OpenFlags::Uri).map_err(said)?;
    let rows = database.query("PRAGMA integrity_check").map_err(said)?;
    let text = |value: &Value| match value {
        Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    };
    let found: Vec<String> = rows.iter().flatten().map(text).filter(|text| text != "ok").collect();
    database.close().map_err(said)?;
    match found.len() {
        0 if !rows.is_empty() => Ok(()),
        count => Err(format!(
            "it is not sound: {}{}; the primary may be so too (plait check), or a record is not its",
            found[..count.min(TOLD_MAX)].join("; "),
            if count > TOLD_MAX { ", and more" } else { "" }
        )),
    }
}

/// What a URI cannot have as it is.
fn escaped(path: &Path) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b'%' | b'?' | b'#' => format!("%{byte:02x}").into_bytes(),
        byte => vec![*byte],
    };
    path.as_os_str().as_bytes().iter().flat_map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_bytes_is_one_of_a_uri() {
        let escaped = escaped(Path::new("/a b/50%?#.db"));
        assert_eq!(String::from_utf8_lossy(&escaped), "/a b/50%25%3f%23.db");
    }

    #[test]
    fn damage_is_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("50%.db");
        let database = Library::linked().open_with(&path, OpenFlags::ReadWriteCreate);
        let database = database.expect("a new file");
        database
            .execute("CREATE TABLE t(a); CREATE INDEX i ON t(a); INSERT INTO t VALUES(1),(2)")
            .expect("it is written");
        database.close().expect("it closes");
        check(&path).expect("it is sound");
        let mut bytes = std::fs::read(&path).expect("a file");
        let last = bytes.len() - 2;
        bytes[last] ^= 0x55;
        std::fs::write(&path, bytes).expect("a file");
        let found = check(&path).expect_err("a key is another");
        assert!(found.contains("not sound"), "{found}");
    }
}

//! An application that has set `SQLITE_CONFIG_LOG` hears, at the opening and at the close of a file, that its name leads elsewhere.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Mutex;

use plait_client::Library;
// The spliced amalgamation that `Library::linked` is about.
use plait_sqlite as _;

const CONFIG_LOG: c_int = 16;
const WARNING: c_int = 28;

static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" {
    fn sqlite3_config(op: c_int, ...) -> c_int;
}

unsafe extern "C" fn hear(_: *mut c_void, code: c_int, text: *const c_char) {
    if code == WARNING {
        // SAFETY: SQLite's text is NUL-terminated.
        let text = unsafe { CStr::from_ptr(text) };
        HEARD.lock().expect("no panic").push(text.to_string_lossy().into_owned());
    }
}

/// What is heard of `change`, which is made while a connection has the file open, and of its close.
fn heard(database: &Path, mode: &str, change: impl FnOnce()) -> Vec<String> {
    HEARD.lock().expect("no panic").clear();
    let connection = Library::linked().open(database).expect("it opens");
    connection.execute(&format!("PRAGMA journal_mode={mode}")).expect("the mode is set");
    connection.execute("CREATE TABLE t(a)").expect("it writes");
    change();
    connection.close().expect("it closes");
    std::mem::take(&mut HEARD.lock().expect("no panic"))
}

#[test]
fn an_application_with_a_log_is_warned_of_files_whose_names_lead_elsewhere() {
    // SAFETY: this option takes a function and its first argument, and nothing is open yet.
    let code = unsafe {
        type Log = unsafe extern "C" fn(*mut c_void, c_int, *const c_char);
        sqlite3_config(CONFIG_LOG, hear as Log, std::ptr::null_mut::<c_void>())
    };
    assert_eq!(code, 0);
    let dir = tempfile::tempdir().expect("a folder");
    for mode in ["delete", "wal", "concurrent"] {
        let path = |name: &str| dir.path().join(format!("{mode}-{name}"));
        assert_eq!(heard(&path("named"), mode, || ()), Vec::<String>::new());

        let linked = path("linked");
        let lines = heard(&linked, mode, || {
            std::fs::hard_link(&linked, path("link")).expect("the link is made");
        });
        assert_eq!(lines, [format!("multiple links to file: {}", linked.display())], "{mode}");

        let removed = path("removed");
        let lines = heard(&removed, mode, || {
            std::fs::remove_file(&removed).expect("the file is removed");
        });
        let warning = format!("file unlinked while open: {}", removed.display());
        assert!(lines.contains(&warning), "{mode}: {lines:?}");
    }
}

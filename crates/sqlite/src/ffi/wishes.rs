//! What the environment of a process wishes for all of its connections.
//!
//! Letters may be large or small. A value that is none of a variable's counts as unsaid; the process is told once, in SQLite's error log,
//! and `plait run` refuses it before.

use std::ffi::{CString, OsStr, c_char, c_int};
use std::sync::OnceLock;

use super::codes::{SQLITE_DONE, SQLITE_OK};

/// A variable and its values.
#[derive(Debug)]
pub struct Wish {
    /// Its name.
    pub variable: &'static str,
    /// What it may say.
    pub values: &'static [&'static str],
}

/// A program that asks for WAL gets concurrent mode.
pub const JOURNAL_MODE: Wish =
    Wish { variable: "PLAIT_JOURNAL_MODE", values: &["concurrent", "wal"] };
/// What a plain BEGIN means.
pub const BEGIN: Wish =
    Wish { variable: "PLAIT_BEGIN", values: &["deferred", "adaptive", "immediate", "concurrent"] };
/// The code of a conflict.
pub const BUSY_SNAPSHOT: Wish =
    Wish { variable: "PLAIT_BUSY_SNAPSHOT", values: &["busy", "snapshot"] };
/// Whether a connection joins a session that nobody is beside.
pub const JOIN: Wish = Wish { variable: "PLAIT_JOIN", values: &["always", "when needed"] };
/// All of them.
pub const ALL: [&Wish; 4] = [&JOURNAL_MODE, &BEGIN, &BUSY_SNAPSHOT, &JOIN];

impl Wish {
    /// Which of the values is said; `None` where nothing is.
    ///
    /// # Errors
    /// It is none of them, in words.
    pub fn of(&self, value: Option<&OsStr>) -> Result<Option<usize>, String> {
        let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
        let said = self.values.iter().position(|known| value.eq_ignore_ascii_case(known));
        said.map(Some).ok_or_else(|| {
            format!(
                "{}={} is none of its values, which are: {}",
                self.variable,
                value.to_string_lossy(),
                self.values.join(", ")
            )
        })
    }

    /// The same of this process's environment, which is read once.
    fn said(&self, answer: &OnceLock<Option<usize>>) -> Option<usize> {
        if let Some(said) = answer.get() {
            return *said;
        }
        // Not inside `get_or_init`, where a fork() could catch it.
        let read = self.of(std::env::var_os(self.variable).as_deref());
        let said = *read.as_ref().unwrap_or(&None);
        if answer.set(said).is_ok()
            && let Err(why) = &read
        {
            tell(&format!("plait: {why}; it counts as not set"));
        }
        said
    }
}

unsafe extern "C" {
    fn sqlite3_log(code: c_int, format: *const c_char, ...);
}

/// Writes to SQLite's error log.
fn tell(text: &str) {
    const SQLITE_WARNING: c_int = 28;
    let Ok(text) = CString::new(text) else { return };
    // SAFETY: both are C strings, and the format takes one.
    unsafe { sqlite3_log(SQLITE_WARNING, c"%s".as_ptr(), text.as_ptr()) };
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_wal_is_concurrent() -> c_int {
    static ANSWER: OnceLock<Option<usize>> = OnceLock::new();
    if JOURNAL_MODE.said(&ANSWER) == Some(0) { SQLITE_OK } else { SQLITE_DONE }
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_begin_kind() -> c_int {
    static ANSWER: OnceLock<Option<usize>> = OnceLock::new();
    let unsaid = usize::from(pl_wal_is_concurrent() == SQLITE_OK);
    1 + BEGIN.said(&ANSWER).unwrap_or(unsaid) as c_int
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_snapshot_is_busy() -> c_int {
    static ANSWER: OnceLock<Option<usize>> = OnceLock::new();
    let is_busy = match BUSY_SNAPSHOT.said(&ANSWER) {
        Some(value) => value == 0,
        None => pl_wal_is_concurrent() == SQLITE_OK,
    };
    if is_busy { SQLITE_OK } else { SQLITE_DONE }
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_joins_always() -> c_int {
    static ANSWER: OnceLock<Option<usize>> = OnceLock::new();
    if JOIN.said(&ANSWER) == Some(0) { SQLITE_OK } else { SQLITE_DONE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_may_be_large_and_what_is_no_value_is_named() {
        let of = |wish: &Wish, value: &str| wish.of(Some(OsStr::new(value)));
        assert_eq!(of(&BEGIN, "IMMEDIATE"), Ok(Some(2)));
        assert_eq!(of(&JOURNAL_MODE, "Concurrent"), Ok(Some(0)));
        assert_eq!(of(&JOIN, "when needed"), Ok(Some(1)));
        assert_eq!((of(&JOIN, ""), JOIN.of(None)), (Ok(None), Ok(None)));
        let why = of(&JOIN, "allways").unwrap_err();
        assert_eq!(why, "PLAIT_JOIN=allways is none of its values, which are: always, when needed");
    }
}

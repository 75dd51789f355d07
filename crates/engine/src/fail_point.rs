//! Calls of the engine that a test makes fail.
//!
//! With the feature `crash-points`, the environment variable `PLAIT_FAIL_AT` names a file of
//! [`WORDS`] words of 64 bits, in the byte order of the machine, which the library maps at its
//! first call. The writer of the words, this process or another, decides how many calls of
//! `csrc/engine.h` on a connection work as usual before some return a code instead. Calls without
//! errors, which look something up, end something or give it back, are not counted. Without the
//! feature nothing of this is compiled.
//!
//! | word | |
//! |---|---|
//! | 0 | calls up to and with the first that fails; 0: none fails |
//! | 1 | the code that it returns |
//! | 2 | how many of the following calls fail too |
//! | 3 | calls that were made |
//! | 4 to 7 | the name of the last call that failed, padded with zero bytes |

/// Words of the file.
pub const WORDS: usize = 8;

/// Calls that fail only by a panic, which breaks the connection, and the check that precedes every
/// call and fails for ever once it fails.
pub const NEVER: [&str; 9] = [
    "pl_check_fork",
    "pl_new_rowid",
    "pl_note_rowid",
    "pl_savepoint_open",
    "pl_savepoint_release",
    "pl_savepoint_rollback",
    "pl_statement_close",
    "pl_statement_open",
    "pl_statement_rollback",
];

/// Passes the start of `name`, a function of `csrc/engine.h`. Returns the code with which it is to
/// fail instead of running, if any.
#[inline(always)]
pub fn planted_code(name: &'static str) -> Option<i32> {
    #[cfg(feature = "crash-points")]
    return armed::code(name);
    #[cfg(not(feature = "crash-points"))]
    {
        let _ = name;
        None
    }
}

#[cfg(feature = "crash-points")]
#[allow(unsafe_code)]
mod armed {
    use super::WORDS;
    use std::os::fd::AsRawFd;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static SWITCH: OnceLock<Option<&'static [AtomicU64; WORDS]>> = OnceLock::new();

    fn map() -> Option<&'static [AtomicU64; WORDS]> {
        const BYTES: usize = WORDS * size_of::<AtomicU64>();
        let path = std::env::var_os("PLAIT_FAIL_AT")?;
        let file = std::fs::File::options().read(true).write(true).open(path);
        let file = file.expect("PLAIT_FAIL_AT names a file");
        let is_whole = file.metadata().is_ok_and(|about| about.len() >= BYTES as u64);
        assert!(is_whole, "the file of PLAIT_FAIL_AT is too short");
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of an open file; it replaces no mapping.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, kind, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "the file of PLAIT_FAIL_AT cannot be mapped");
        // SAFETY: the mapping begins with a page, has these words, and is never unmapped; all
        // writers change them word by word.
        Some(unsafe { &*at.cast() })
    }

    pub(super) fn code(name: &str) -> Option<i32> {
        // Relaxed: the writer either makes a system call before this thread's call, or needs no
        // order.
        let [left, code, more, made, named @ ..] = (*SWITCH.get_or_init(map))?;
        if super::NEVER.contains(&name) {
            return None;
        }
        made.fetch_add(1, Ordering::Relaxed);
        match left.load(Ordering::Relaxed) {
            0 => return None,
            1 => {}
            others => {
                left.store(others - 1, Ordering::Relaxed);
                return None;
            }
        }
        match more.load(Ordering::Relaxed) {
            0 => left.store(0, Ordering::Relaxed),
            others => more.store(others - 1, Ordering::Relaxed),
        }
        let mut bytes = name.bytes();
        for word in named {
            let part = std::array::from_fn(|_| bytes.next().unwrap_or(0));
            word.store(u64::from_ne_bytes(part), Ordering::Relaxed);
        }
        Some(code.load(Ordering::Relaxed) as i32)
    }
}

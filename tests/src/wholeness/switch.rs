//! Says which calls of the engine fail, to the library with crash points in this process (`fail_point.rs` of the engine).

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Names the file to the library. Set before it is loaded.
pub const VARIABLE: &str = "PLAIT_FAIL_AT";
/// Bytes of the file.
const BYTES: usize = 64;

/// Which calls fail, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The first, counted from 1.
    pub at: u64,
    /// What it answers.
    pub code: i32,
    /// How many of the following fail, too.
    pub more: u64,
}

/// The file.
pub struct Switch(File);

impl Switch {
    /// Makes the file, in which no call fails.
    pub fn create(path: &Path) -> anyhow::Result<()> {
        std::fs::write(path, [0; BYTES]).with_context(|| format!("make {}", path.display()))
    }

    /// The file that this process was started with.
    pub fn of_this_process() -> anyhow::Result<Self> {
        let path = std::env::var_os(VARIABLE).context("no file says which calls fail")?;
        let file = File::options().read(true).write(true).open(path);
        file.map(Self).context("open the file that says which calls fail")
    }

    fn words(&self) -> [u64; BYTES / 8] {
        let mut bytes = [0; BYTES];
        self.0.read_exact_at(&mut bytes, 0).expect("the file has these bytes");
        let word = |i: usize| bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes");
        std::array::from_fn(|i| u64::from_ne_bytes(word(i)))
    }

    /// Counts calls from now on, and lets some of them fail.
    pub fn arm(&self, failure: Option<Failure>) {
        let mut bytes = [0; BYTES];
        if let Some(Failure { at, code, more }) = failure {
            bytes[..8].copy_from_slice(&at.to_ne_bytes());
            bytes[8..12].copy_from_slice(&code.to_ne_bytes());
            bytes[16..24].copy_from_slice(&more.to_ne_bytes());
        }
        self.0.write_all_at(&bytes, 0).expect("the file can be written");
    }

    /// From now on none fails. How many calls there were, and the name of the last that has failed.
    #[must_use]
    pub fn disarm(&self) -> (u64, Option<String>) {
        let words = self.words();
        self.arm(None);
        let name: Vec<u8> = words[4..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        (words[3], (!name.is_empty()).then_some(name))
    }
}

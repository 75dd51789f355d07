//! Random numbers that tell sessions and processes apart. Nothing depends on their being hard to
//! guess.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Read as _;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns a number from the system, or if the process may not have one, from what differs between
/// processes.
pub(crate) fn number() -> u64 {
    from_system().unwrap_or_else(from_surroundings)
}

/// Returns a number that is not 0.
pub(crate) fn salt() -> u32 {
    std::iter::repeat_with(|| number() as u32).find(|salt| *salt != 0).expect("an endless iterator")
}

fn from_system() -> Option<u64> {
    let mut bytes = [0u8; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // So few bytes come whole or not at all.
    let is_whole = got == Ok(bytes.len())
        || std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes)).is_ok();
    is_whole.then(|| u64::from_ne_bytes(bytes))
}

/// Hashes the time, the process and the number of earlier calls.
fn from_surroundings() -> u64 {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let mut hasher = DefaultHasher::new();
    // Relaxed: a counter.
    let asked = ASKED.fetch_add(1, Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now, std::process::id(), asked).hash(&mut hasher);
    // The address differs between programs that begin at the same time.
    (std::ptr::from_ref(&asked) as usize).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_differ_also_where_the_system_gives_none() {
        for source in [number, from_surroundings] {
            let numbers: BTreeSet<u64> = std::iter::repeat_with(source).take(1000).collect();
            assert_eq!(numbers.len(), 1000);
        }
        assert!(std::iter::repeat_with(salt).take(1000).all(|salt| salt != 0));
    }
}

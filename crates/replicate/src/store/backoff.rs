//! The pauses between tries.

use std::time::Duration;

use crate::world::Random;

const FIRST: Duration = Duration::from_millis(100);
/// Of a store that is away: it is back for as long at most before that is found out.
const LONGEST: Duration = Duration::from_secs(10);
/// Of what may come seldom, and is asked for by several requests.
const LONGEST_RARE: Duration = Duration::from_secs(30);

/// Pauses that double, each with a quarter of chance in it, so that many who wait do not come back
/// at once.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    tries: u32,
    is_rare: bool,
}

impl Backoff {
    /// Pauses that become longer.
    pub fn rare() -> Backoff {
        Backoff { is_rare: true, ..Backoff::default() }
    }

    /// Returns the next pause.
    pub fn next(&mut self, random: &dyn Random) -> Duration {
        let longest = if self.is_rare { LONGEST_RARE } else { LONGEST };
        let whole = FIRST.saturating_mul(1 << self.tries.min(16)).min(longest);
        self.tries += 1;
        let quarter = (whole / 4).as_millis() as u64;
        whole - Duration::from_millis(random.below(quarter + 1))
    }

    /// Tries so far.
    pub fn tries(&self) -> u32 {
        self.tries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zero;

    impl Random for Zero {
        fn number(&self) -> u64 {
            0
        }
    }

    #[test]
    fn pauses_double_and_stay_below_some_seconds() {
        for (mut backoff, longest) in [(Backoff::default(), 10_000), (Backoff::rare(), 30_000)] {
            let pauses: Vec<u128> = (0..12).map(|_| backoff.next(&Zero).as_millis()).collect();
            assert_eq!(pauses[..4], [100, 200, 400, 800]);
            assert_eq!(pauses[9..], [longest; 3]);
            assert_eq!(backoff.tries(), 12);
        }
    }
}

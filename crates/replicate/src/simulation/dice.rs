//! Chance from a seed.

use std::cell::Cell;

use crate::world::Random;

/// A sequence of numbers (SplitMix64).
#[derive(Debug)]
pub struct Dice(Cell<u64>);

impl Dice {
    /// Begins a sequence.
    pub fn new(seed: u64) -> Dice {
        Dice(Cell::new(seed))
    }

    /// True once in `n` times.
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// Mixes a number into another.
pub fn mix(state: u64, word: u64) -> u64 {
    let mut z =
        state.wrapping_add(0x9E37_79B9_7F4A_7C15) ^ word.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Random for Dice {
    fn number(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        mix(self.0.get(), 0)
    }
}

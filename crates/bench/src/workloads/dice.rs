//! Random keys and values from a printed seed.

use rand::{Rng as _, RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// A stream of random numbers that is the same for the same seed and stream, on every machine and in every version.
pub struct Dice(Pcg64Mcg);

impl Dice {
    /// The numbers of one stream (a thread, a phase) of a seed.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        // An odd multiplier spreads neighbouring streams over all bits (Steele and Vigna 2021, table 5).
        Self(Pcg64Mcg::seed_from_u64(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.random_range(0..bound)
    }

    /// Any 64-bit integer.
    pub fn int(&mut self) -> i64 {
        self.0.random()
    }

    /// Fills memory.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// Puts a slice into random order.
    pub fn shuffle<T>(&mut self, slice: &mut [T]) {
        use rand::seq::SliceRandom as _;
        slice.shuffle(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut dice = Dice::new(1, 0);
        let numbers: Vec<u64> = (0..4).map(|_| dice.below(1000)).collect();
        assert_eq!(numbers, EXPECTED, "results of different versions would not be comparable");
    }

    const EXPECTED: [u64; 4] = [856, 137, 470, 726];

    #[test]
    fn streams_differ() {
        assert_ne!(Dice::new(1, 0).int(), Dice::new(1, 1).int());
    }
}

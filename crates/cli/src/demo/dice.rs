//! Random numbers that follow from a seed: SplitMix64.

/// A generator.
pub struct Dice(u64);

impl Dice {
    /// Its own sequence for each `stream` of a seed.
    pub fn new(seed: u64, stream: u64) -> Dice {
        let mut dice = Dice(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        dice.next();
        dice
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A key from 1 to `rows`.
    pub fn key(&mut self, rows: u32) -> i64 {
        (self.next() % u64::from(rows)) as i64 + 1
    }

    /// Bytes that differ each time.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_reach_both_ends_and_no_further() {
        let mut dice = Dice::new(1, 2);
        let keys: Vec<i64> = (0..1000).map(|_| dice.key(10)).collect();
        assert_eq!((keys.iter().min(), keys.iter().max()), (Some(&1), Some(&10)));
    }

    #[test]
    fn streams_and_values_differ() {
        let value = |stream| {
            let mut bytes = [0; 20];
            Dice::new(7, stream).fill(&mut bytes);
            bytes
        };
        assert_ne!(value(1), value(2));
        assert_eq!(value(1), value(1));
    }
}

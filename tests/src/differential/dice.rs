//! Random choices, and random SQL values and literals.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// A seeded source of choices.
pub struct Dice(StdRng);

impl Dice {
    /// Dice of a seed: the same seed gives the same choices.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// One of `0..sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0.random_range(0..sides)
    }

    /// One of `low..=high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        self.0.random_range(low..=high)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.roll(times) == 0
    }

    /// One of several things.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.roll(choices.len())]
    }

    /// An index into `weights`, each as likely as its weight.
    pub fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.roll(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        weights.len() - 1
    }

    /// A literal from a small set, so that values meet: for keys and comparisons.
    pub fn key_literal(&mut self) -> String {
        match self.roll(12) {
            0..=6 => self.between(0, 30).to_string(),
            7 => format!("'{}'", self.word()),
            8 => (*self.pick(&["NULL", "-1", "0", "-0.0", "1.0", "2.5"])).to_owned(),
            9 => format!("{}.5", self.between(0, 10)),
            10 => format!("x'{:02x}{:02x}'", self.roll(3), self.roll(3)),
            _ => self.between(-5, 60).to_string(),
        }
    }

    /// Any literal, extremes and long ones included.
    pub fn literal(&mut self) -> String {
        const NUMBERS: [&str; 22] = [
            "9223372036854775807",
            "(-9223372036854775807-1)",
            "9007199254740993",
            "9007199254740992.0",
            "-9007199254740993",
            "1e300",
            "-1e300",
            "5e-324",
            "0.1",
            "-0.0",
            "9e999",
            "-9e999",
            "3.0",
            "4294967296",
            "2147483648",
            "-32769",
            "65536",
            "127",
            "-129",
            "1e18",
            "9223372036854775807.0",
            "0",
        ];
        match self.roll(16) {
            0..=5 => self.key_literal(),
            6 => "NULL".to_owned(),
            7 | 8 => (*self.pick(&NUMBERS)).to_owned(),
            9..=11 => format!("'{}'", self.word()),
            12 => format!("x'{}'", "00".repeat(self.roll(4)) + &format!("{:02x}", self.roll(256))),
            13 => self.long_literal(),
            14 => format!("CAST(x'{:02x}00{:02x}' AS TEXT)", 65 + self.roll(3), 65 + self.roll(3)),
            _ => format!("'{}{}'", self.word(), self.between(0, 99)),
        }
    }

    /// Text or a blob that needs overflow pages, or nearly.
    pub fn long_literal(&mut self) -> String {
        let length = *self.pick(&[40, 120, 450, 900, 1100, 2100, 4090, 9000, 30_000]);
        let length = length + self.roll(20);
        match self.roll(3) {
            0 => format!("zeroblob({length})"),
            1 => format!("replace(hex(zeroblob({})),'00','{}')", length / 4, self.word()),
            _ => format!(
                "CAST(replace(hex(zeroblob({})),'00','{}') AS BLOB)",
                length / 4,
                self.word()
            ),
        }
    }

    /// A short word; case, trailing spaces and non-ASCII letters vary so that collations matter.
    pub fn word(&mut self) -> String {
        const WORDS: [&str; 20] = [
            "a", "A", "ab", "aB", "b", "B", "abc", "ABC", "abc ", "abc  ", "", " ", "zz", "Zz",
            "ä", "Ä", "日本", "a_b", "100", "1e2",
        ];
        (*self.pick(&WORDS)).to_owned()
    }
}

//! Keys of which few are asked for often, as in the Yahoo! Cloud Serving Benchmark: ranks by Zipf's law, spread over all
//! keys.
//!
//! The generator is that of J. Gray, P. Sundaresan, S. Englert, K. Baclawski and P. J. Weinberger, "Quickly generating
//! billion-record synthetic databases", SIGMOD 1994, section 3.2. Ranks are spread by the FNV-1a hash, so that rows that
//! are often asked for are not neighbours; now and then two ranks have one key.

use rand::Rng;

/// Chooses among `1..=keys`.
#[derive(Clone, Debug)]
pub struct Zipf {
    keys: u64,
    zeta: f64,
    /// Below this, times zeta, a choice is one of the first two ranks.
    zeta_two: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// For so many keys, more than two, and an exponent below 1.
    #[must_use]
    pub fn new(keys: u64, theta: f64) -> Self {
        let zeta: f64 = (1..=keys).map(|rank| (rank as f64).powf(-theta)).sum();
        let zeta_two = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta);
        Self { keys, zeta, zeta_two, alpha: 1.0 / (1.0 - theta), eta }
    }

    /// A rank: 0 is the most frequent.
    fn rank(&self, random: &mut impl Rng) -> u64 {
        let uniform: f64 = random.random();
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.zeta_two {
            return 1;
        }
        let part = (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        ((self.keys as f64 * part) as u64).min(self.keys - 1)
    }

    /// A key.
    pub fn key(&self, random: &mut impl Rng) -> i64 {
        let key = 1 + fnv(self.rank(random)) % self.keys;
        i64::try_from(key).expect("keys fit a rowid")
    }
}

fn fnv(number: u64) -> u64 {
    number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::Zipf;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    const KEYS: u64 = 1000;
    const CHOICES: u64 = 200_000;

    #[test]
    fn ranks_are_as_frequent_as_the_law_says() {
        let (zipf, mut random) = (Zipf::new(KEYS, 0.99), StdRng::seed_from_u64(1));
        let mut found = vec![0u64; KEYS as usize];
        for _ in 0..CHOICES {
            found[zipf.rank(&mut random) as usize] += 1;
        }
        let zeta: f64 = (1..=KEYS).map(|rank| (rank as f64).powf(-0.99)).sum();
        // The first two ranks are exact, the others an approximation: by their sums.
        for (from, to) in [(1, 1), (2, 2), (3, 10), (11, 100), (101, 1000)] {
            let part: f64 = (from..=to).map(|rank| (rank as f64).powf(-0.99)).sum::<f64>() / zeta;
            let found: u64 = found[from as usize - 1..to as usize].iter().sum();
            let of_expected = found as f64 / (part * CHOICES as f64);
            assert!((0.9..1.1).contains(&of_expected), "{from} to {to}: {of_expected}");
        }
    }

    #[test]
    fn keys_are_within_bounds_and_spread() {
        let (zipf, mut random) = (Zipf::new(KEYS, 0.99), StdRng::seed_from_u64(2));
        let mut keys: Vec<i64> = (0..CHOICES).map(|_| zipf.key(&mut random)).collect();
        assert!(keys.iter().all(|key| (1..=KEYS as i64).contains(key)));
        let lower_half = keys.iter().filter(|key| **key <= KEYS as i64 / 2).count() as u64;
        assert!((CHOICES / 5..CHOICES / 5 * 4).contains(&lower_half), "{lower_half}");
        keys.sort_unstable();
        keys.dedup();
        assert!(keys.len() > KEYS as usize / 2, "{} keys were chosen", keys.len());
    }
}

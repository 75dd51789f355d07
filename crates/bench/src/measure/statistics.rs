//! Medians and their intervals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The median of repeated trials, with an interval that holds the true median in at least 19 of 20 cases where the
/// number of trials allows it (from six on), and the whole range otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Median {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Number of trials.
    pub trials: usize,
}

impl Median {
    /// Of some values; none of none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let median = match count {
            0 => return None,
            _ if count % 2 == 1 => sorted[count / 2],
            _ => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
        };
        let outer = interval_rank(count);
        Some(Self { median, low: sorted[outer], high: sorted[count - 1 - outer], trials: count })
    }

    /// Whether two medians differ by more than their intervals explain.
    #[must_use]
    pub fn is_apart_from(&self, other: &Self) -> bool {
        self.low > other.high || self.high < other.low
    }
}

/// How many values may be left out at each end so that the order statistics still hold the median in 19 of 20 cases:
/// the number of values below the median is binomial with one half (Conover, Practical Nonparametric Statistics, 3.2).
fn interval_rank(count: usize) -> usize {
    let mut probability = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for rank in 0..count / 2 {
        below += probability;
        if 2.0 * below > 0.05 {
            return rank.saturating_sub(1);
        }
        probability *= (count - rank) as f64 / (rank + 1) as f64;
    }
    (count / 2).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_trials_give_their_whole_range() {
        let median = Median::of(&[3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
        assert_eq!(median, Median { median: 3.0, low: 1.0, high: 5.0, trials: 5 });
    }

    #[test]
    fn many_trials_leave_the_outliers_out() {
        // For 20 values the interval of the median at 95 % is the 6th to the 15th (tables of the sign test).
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        let median = Median::of(&values).unwrap();
        assert_eq!((median.low, median.high), (6.0, 15.0));
    }

    #[test]
    fn a_difference_is_claimed_only_where_intervals_separate() {
        let (slow, fast) =
            (Median::of(&[1.0, 2.0, 3.0]).unwrap(), Median::of(&[4.0, 5.0, 6.0]).unwrap());
        assert!(slow.is_apart_from(&fast) && fast.is_apart_from(&slow));
        assert!(!slow.is_apart_from(&Median::of(&[3.0, 9.0]).unwrap()));
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(Median::of(&[]), None);
    }
}

//! What is shown while a plan is run: how far it is, how long it will take, what was measured last.
//!
//! The time left is the sum of what each cell took before, not of a mean: cells differ by factors of a thousand. A cell
//! that was not measured yet is expected to take what those of its study took on average.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::trial::Answer;
use crate::studies::{Cell, Study};

/// How much is shown while a plan is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Verbosity {
    /// Nothing
    None,
    /// A line for each trial
    Lines,
    /// A bar that moves
    Bar,
}

impl Verbosity {
    /// A bar on a terminal, lines elsewhere.
    #[must_use]
    pub fn fitting() -> Self {
        if std::io::stderr().is_terminal() { Self::Bar } else { Self::Lines }
    }
}

/// What cells are expected to take.
#[derive(Clone, Debug)]
pub struct Estimate {
    cells: Vec<Expected>,
}

#[derive(Clone, Debug)]
struct Expected {
    study: Study,
    measured: Vec<f64>,
    left: u32,
}

impl Expected {
    fn mean(&self) -> Option<f64> {
        mean(self.measured.iter().copied())
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), v| (sum + v, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

impl Estimate {
    /// Of cells that are each to be measured so many times.
    #[must_use]
    pub fn new(cells: &[Cell], repeats: u32) -> Self {
        let cells = cells
            .iter()
            .map(|cell| Expected { study: cell.study, measured: Vec::new(), left: repeats })
            .collect();
        Self { cells }
    }

    /// A cell was measured once more.
    pub fn record(&mut self, cell: usize, took: Duration) {
        let cell = &mut self.cells[cell];
        cell.measured.push(took.as_secs_f64());
        cell.left = cell.left.saturating_sub(1);
    }

    /// A cell will not be measured again.
    pub fn give_up(&mut self, cell: usize) {
        self.cells[cell].left = 0;
    }

    /// What the slowest trial of a cell took so far.
    #[must_use]
    pub fn longest(&self, cell: usize) -> Option<Duration> {
        let longest = self.cells[cell].measured.iter().copied().reduce(f64::max)?;
        Some(Duration::from_secs_f64(longest))
    }

    /// What all that is left will take; none before anything was measured.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let of_all = mean(self.cells.iter().filter_map(Expected::mean))?;
        let seconds = self.cells.iter().filter(|cell| cell.left > 0).map(|cell| {
            let each = cell.mean().or_else(|| self.of_study(cell.study)).unwrap_or(of_all);
            each * f64::from(cell.left)
        });
        Some(Duration::from_secs_f64(seconds.sum()))
    }

    fn of_study(&self, study: Study) -> Option<f64> {
        mean(self.cells.iter().filter(|c| c.study == study).filter_map(Expected::mean))
    }
}

/// Shows what happens.
pub struct Progress {
    verbosity: Verbosity,
    bar: ProgressBar,
    done: u64,
    last: String,
}

impl Progress {
    /// Of so many trials and traced passes.
    #[must_use]
    pub fn begin(verbosity: Verbosity, trials: u64) -> Self {
        let style = ProgressStyle::with_template("{bar:20} {pos}/{len}  {wide_msg}")
            .expect("the template is a constant");
        let target = match verbosity {
            Verbosity::Bar => ProgressDrawTarget::stderr(),
            Verbosity::None | Verbosity::Lines => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(trials), target).with_style(style);
        Self { verbosity, bar, done: 0, last: String::new() }
    }

    /// Something begins.
    pub fn begins(&self, what: &str, left: Option<Duration>) {
        let left = left.map_or_else(String::new, |left| format!("{} left  ", in_words(left)));
        self.bar.set_message(format!("{left}{what}{}", self.last));
    }

    /// What began has ended.
    pub fn ends(&mut self, what: &str, outcome: &str, left: Option<Duration>) {
        self.done += 1;
        self.last = format!("  (before: {outcome})");
        self.bar.inc(1);
        if self.verbosity == Verbosity::Lines {
            let left = left.map_or_else(String::new, |left| format!(", {} left", in_words(left)));
            let all = self.bar.length().unwrap_or(0);
            anstream::eprintln!("{}/{all}{left}  {what}: {outcome}", self.done);
        }
    }

    /// What began will not be done: so many trials fewer.
    pub fn skip(&mut self, trials: u64) {
        self.bar.set_length(self.bar.length().unwrap_or(0).saturating_sub(trials));
    }

    /// Everything has ended, or was interrupted.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The first figure of a trial, or what went wrong, in a few words.
#[must_use]
pub fn in_brief(answer: &Answer) -> String {
    match answer {
        Answer::Done(measured) => match measured.phases.first() {
            Some(phase) if phase.rate() >= 100.0 => format!("{:.0}/s", phase.rate()),
            Some(phase) if phase.rate() > 0.0 => format!("{:.2}/s", phase.rate()),
            _ => "done".to_owned(),
        },
        Answer::NotApplicable { why } => format!("not applicable: {why}"),
        Answer::Failed { why } => format!("failed: {why}"),
    }
}

/// `45 s`, `3 min`, `2 h 5 min`.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5999 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(studies: &[Study], repeats: u32) -> Estimate {
        let cells = studies
            .iter()
            .map(|study| Expected { study: *study, measured: Vec::new(), left: repeats })
            .collect();
        Estimate { cells }
    }

    #[test]
    fn the_time_left_is_that_of_each_cell_and_not_of_a_mean() {
        let mut estimate = estimate(&[Study::Kv, Study::Kv], 3);
        assert_eq!(estimate.left(), None, "nothing was measured yet");
        estimate.record(0, Duration::from_secs(10));
        estimate.record(1, Duration::from_secs(1));
        estimate.record(0, Duration::from_secs(20));
        // One trial of about 15 s and two of 1 s.
        assert_eq!(estimate.left(), Some(Duration::from_secs(17)));
    }

    #[test]
    fn a_cell_that_was_not_measured_is_expected_to_be_like_its_study() {
        let mut estimate = estimate(&[Study::Kv, Study::Kv, Study::Files], 1);
        estimate.record(0, Duration::from_secs(10));
        estimate.record(2, Duration::from_secs(2));
        assert_eq!(estimate.left(), Some(Duration::from_secs(10)));
    }

    #[test]
    fn a_cell_that_was_given_up_takes_no_more_time() {
        let mut estimate = estimate(&[Study::Kv], 5);
        estimate.record(0, Duration::from_secs(600));
        estimate.give_up(0);
        assert_eq!(estimate.left(), Some(Duration::ZERO));
    }

    #[test]
    fn times_are_told_in_words() {
        let word = |seconds| in_words(Duration::from_secs(seconds));
        assert_eq!([word(45), word(150), word(7500)], ["45 s", "3 min", "2 h 5 min"]);
    }
}

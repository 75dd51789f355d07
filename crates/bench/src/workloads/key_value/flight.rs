//! Commits of one thread that have returned and are not known to be on disk yet, in the order of their tickets.
//!
//! 1. One counts as done only after the engine has said that it is on disk.
//! 2. Its time is from before the call that wrote it until then.

use std::collections::VecDeque;
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::engines::{Failure, KeyValue, Outcome};
use crate::measure::phase::new_histogram;

/// Which of the commits in flight is waited for.
#[derive(Clone, Copy)]
pub enum End {
    /// The one that has waited longest.
    First,
    /// The newest, and so all of them.
    Last,
}

/// Commits in flight, and what became of those before.
pub struct Flight {
    waiting: VecDeque<(i64, Instant)>,
    /// How many are on disk.
    pub landed: u64,
    /// How long they took, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Flight {
    pub fn new() -> Self {
        Self { waiting: VecDeque::new(), landed: 0, latency: new_histogram() }
    }

    pub fn len(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// A commit has returned, with a ticket.
    pub fn begins(&mut self, ticket: i64, asked: Instant) {
        self.waiting.push_back((ticket, asked));
    }

    /// Waits for one, and takes note of all that are on disk then.
    pub fn lands(&mut self, connection: &mut dyn KeyValue, end: End) -> Outcome<()> {
        let awaited = match end {
            End::First => self.waiting.front(),
            End::Last => self.waiting.back(),
        };
        let Some((awaited, _)) = awaited.copied() else { return Ok(()) };
        let through = connection.wait_until_on_disk(awaited)?;
        if through < awaited {
            let text = format!("ticket {awaited} was waited for, and only {through} is on disk");
            return Err(Failure::broken(text));
        }
        while let Some((ticket, asked)) = self.waiting.front().copied() {
            if ticket > through {
                break;
            }
            self.waiting.pop_front();
            self.landed += 1;
            let nanoseconds = u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.latency.saturating_record(nanoseconds);
        }
        Ok(())
    }
}

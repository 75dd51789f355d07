//! What was seen of a database, and what has changed between two looks.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::live::{Counts, Look, Session, State};

/// So long a change is told.
const TOLD: Duration = Duration::from_secs(60);

/// What is known.
pub struct Monitor {
    /// The database, as the user calls it.
    pub file: PathBuf,
    now: Now,
    rates: Option<Rates>,
    change: Option<(&'static str, Instant)>,
}

enum Now {
    Seen(Look),
    /// It could not be looked at.
    Unseen(Failure),
}

/// What there is to show.
pub enum Shown<'a> {
    /// A session, and what happens in it a second, once that is known.
    Session(&'a Session, Option<&'a Rates>),
    /// Why there is none, and whether that is trouble.
    Said(String, bool),
}

/// How often things happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Commits a second.
    pub commits: f64,
    /// Exclusive ones a second.
    pub exclusive_commits: f64,
    /// Conflicts a second.
    pub conflicts: f64,
    /// Waits a second that ended in BUSY.
    pub busy: f64,
    /// Syncs of the log a second.
    pub syncs: f64,
    /// Commits for one of them; None where there was none.
    pub commits_per_sync: Option<f64>,
    /// Bytes of log a second.
    pub log_bytes: f64,
    /// Merges a second.
    pub merges: f64,
}

impl Monitor {
    /// After the first look.
    pub fn of(file: &Path, first: Look) -> Monitor {
        Monitor { file: file.to_owned(), now: Now::Seen(first), rates: None, change: None }
    }

    /// Takes the next look.
    pub fn take(&mut self, look: Result<Look>) {
        let next = look.map_or_else(Now::Unseen, Now::Seen);
        let (before, after) = (self.now.session(), next.session());
        self.rates = match (before, after) {
            (Some((before, then)), Some((after, now))) if before.identity == after.identity => {
                Rates::between(&before.counts, &after.counts, now - then)
            }
            _ => None,
        };
        let change = match (before, after) {
            (Some((before, _)), Some((after, _))) if before.identity != after.identity => {
                Some("a new session has begun")
            }
            (None, Some(_)) => Some("a session has begun"),
            (Some(_), None) => Some("the session has ended"),
            _ => None,
        };
        if let Some(change) = change {
            self.change = Some((change, Instant::now()));
        }
        self.now = next;
    }

    /// What is there now.
    pub fn shown(&self) -> Shown<'_> {
        match &self.now {
            Now::Unseen(e) => Shown::Said(format!("{}; {}", e.what, e.advice), true),
            Now::Seen(look) => match &look.state {
                State::Session(session) => Shown::Session(session, self.rates.as_ref()),
                State::Rest(said) => Shown::Said(said.clone(), false),
                State::Left(said) | State::Unusable(said) => Shown::Said(said.clone(), true),
            },
        }
    }

    /// What has changed lately, and how many milliseconds ago.
    pub fn change(&self) -> Option<(&'static str, u64)> {
        let (what, at) = self.change?;
        let ago = at.elapsed();
        (ago < TOLD).then_some((what, ago.as_millis() as u64))
    }
}

impl Now {
    fn session(&self) -> Option<(&Session, Instant)> {
        match self {
            Now::Seen(Look { state: State::Session(session), at, .. }) => Some((session, *at)),
            _ => None,
        }
    }
}

impl Rates {
    fn between(before: &Counts, after: &Counts, time: Duration) -> Option<Rates> {
        let seconds = time.as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let grown = |of: fn(&Counts) -> u64| of(after).saturating_sub(of(before)) as f64;
        let (commits, syncs) = (grown(|c| c.commits), grown(|c| c.log_syncs));
        Some(Rates {
            commits: commits / seconds,
            exclusive_commits: grown(|c| c.exclusive_commits) / seconds,
            conflicts: grown(|c| c.conflicts) / seconds,
            busy: grown(|c| c.busy) / seconds,
            syncs: syncs / seconds,
            commits_per_sync: (syncs > 0.0).then(|| commits / syncs),
            log_bytes: grown(|c| c.log_bytes) / seconds,
            merges: grown(|c| c.merges) / seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(identity: u32, commits: u64, at: Instant) -> Look {
        let counts = Counts { commits, log_syncs: commits / 4, ..Counts::default() };
        let session = Session { identity: (1, identity), counts, ..Session::default() };
        Look { at, state: State::Session(Box::new(session)), wal_bytes: 0 }
    }

    fn rates(monitor: &Monitor) -> Option<Rates> {
        match monitor.shown() {
            Shown::Session(_, rates) => rates.copied(),
            Shown::Said(..) => None,
        }
    }

    #[test]
    fn rates_are_those_between_two_looks_at_one_session() {
        let start = Instant::now();
        let mut monitor = Monitor::of(Path::new("a"), session(7, 100, start));
        assert!(rates(&monitor).is_none() && monitor.change().is_none());
        monitor.take(Ok(session(7, 300, start + Duration::from_secs(2))));
        let seen = rates(&monitor).unwrap();
        assert_eq!((seen.commits, seen.commits_per_sync), (100.0, Some(4.0)));
        monitor.take(Ok(session(8, 10, start + Duration::from_secs(3))));
        assert!(rates(&monitor).is_none(), "another session counts from 0");
        assert_eq!(monitor.change().unwrap().0, "a new session has begun");
        monitor.take(Ok(session(8, 10, start + Duration::from_secs(4))));
        assert_eq!(rates(&monitor).unwrap().commits_per_sync, None);
    }

    #[test]
    fn a_session_that_ends_and_a_file_that_goes_are_told() {
        let start = Instant::now();
        let mut monitor = Monitor::of(Path::new("a"), session(7, 100, start));
        let state = State::Rest("at rest".to_owned());
        monitor.take(Ok(Look { at: start, state, wal_bytes: 0 }));
        assert!(matches!(monitor.shown(), Shown::Said(said, false) if said == "at rest"));
        assert_eq!(monitor.change().unwrap().0, "the session has ended");
        monitor.take(Err(Failure::new("cannot open a", "check the path")));
        let said = "cannot open a; check the path";
        assert!(matches!(monitor.shown(), Shown::Said(text, true) if text == said));
        monitor.take(Ok(session(8, 1, start)));
        assert_eq!(monitor.change().unwrap().0, "a session has begun");
    }
}

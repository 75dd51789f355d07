//! The order of the versions of one key, rebuilt from what writers replaced.
//!
//! A life of a row runs from an insert over updates to a delete; within it each write names its predecessor. Lives
//! of one key follow each other in time. Where commits overlap so that the order of two lives cannot be told, the key is
//! marked and nothing is concluded across lives.

use super::history::{Row, Seen, Version};
use std::collections::HashMap;

/// Index of a transaction in the checked history.
pub type Node = usize;

/// When something was committed: not before `.0`, not after `.1`.
pub type Window = (u64, u64);

/// One state of a key: who made it, and the row (or its absence).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The transaction that made it; `None` for the absence before the first life.
    pub by: Option<Node>,
    /// The row.
    pub row: Option<Row>,
    /// Which life of the key it belongs to; an absence belongs to the life it ends.
    life: usize,
}

/// One write of the key by a committed transaction.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Who.
    pub by: Node,
    /// The value replaced.
    pub before: Option<Version>,
    /// The row left.
    pub after: Option<Row>,
    /// When it was committed.
    pub window: Window,
}

/// The states of one key, oldest first.
#[derive(Debug)]
pub struct Chain {
    states: Vec<State>,
    windows: Vec<Window>,
    lives_in_doubt: bool,
}

/// The writes of one key from an insert to the delete that ends it, or to the end of the history.
struct Life<'w>(Vec<&'w Write>);

impl Life<'_> {
    fn first(&self) -> &Write {
        self.0[0]
    }

    fn last(&self) -> &Write {
        self.0[self.0.len() - 1]
    }

    fn goes_on(&self) -> bool {
        self.last().after.is_some()
    }

    /// Before this moment the row was still there.
    fn ends_not_before(&self) -> u64 {
        if self.goes_on() { u64::MAX } else { self.last().window.0 }
    }

    /// Whether all of it may have come before all of the other.
    fn may_precede(&self, other: &Self) -> bool {
        self.ends_not_before() <= other.first().window.1
    }
}

impl Chain {
    /// Orders the writes of a key; the error names what cannot be.
    pub fn build(key: i64, writes: &[Write]) -> Result<Self, String> {
        let lives = lives(key, writes)?;
        let mut chain = Self {
            states: vec![State { by: None, row: None, life: 0 }],
            windows: vec![(0, 0)],
            // A commit whose end nobody saw may have happened late.
            lives_in_doubt: writes.iter().any(|write| write.window.1 == u64::MAX),
        };
        for pair in lives.windows(2) {
            let (earlier, later) = (&pair[0], &pair[1]);
            let (forward, backward) = (earlier.may_precede(later), later.may_precede(earlier));
            if !forward && !backward && !chain.lives_in_doubt {
                return Err(format!(
                    "#{} inserted key {key}, where the row of #{} was still in place",
                    later.first().by,
                    earlier.last().by
                ));
            }
            chain.lives_in_doubt |= backward;
        }
        for (life, writes) in lives.iter().enumerate() {
            for write in &writes.0 {
                chain.states.push(State { by: Some(write.by), row: write.after, life });
                chain.windows.push(write.window);
            }
        }
        Ok(chain)
    }

    /// Whether the order of the key's lives could not be told.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.lives_in_doubt
    }

    /// Consecutive makers of states: the write-write order.
    pub fn consecutive(&self) -> impl Iterator<Item = (Node, Node)> + '_ {
        self.states.windows(2).filter_map(|pair| {
            let across = pair[0].life != pair[1].life && self.lives_in_doubt;
            match (pair[0].by, pair[1].by) {
                (Some(earlier), Some(later)) if !across => Some((earlier, later)),
                _ => None,
            }
        })
    }

    /// When this value was written, and when it was replaced, if it was and that can be told.
    #[must_use]
    pub fn stood(&self, version: Version) -> Option<(Window, Option<Window>)> {
        let is_it = |state: &State| state.row.is_some_and(|row| row.version == version);
        let at = self.states.iter().position(is_it)?;
        let next = self.states.get(at + 1);
        let next = next.filter(|next| !self.lives_in_doubt || next.life == self.states[at].life);
        Some((self.windows[at], next.map(|_| self.windows[at + 1])))
    }

    /// What a transaction that ran in `during` and saw `seen` must come after and before.
    pub fn neighbours(
        &self,
        seen: Seen,
        during: Window,
    ) -> Result<(Option<Node>, Option<Node>), String> {
        let fits = |state: &State| match (seen, state.row) {
            (Seen::Value(version), Some(row)) => row.version == version,
            (Seen::Absent | Seen::OutsideGroups(..), None) | (Seen::Present, Some(_)) => true,
            (Seen::OutsideGroups(low, high), Some(row)) => row.group < low || row.group > high,
            _ => false,
        };
        let exact = matches!(seen, Seen::Value(_));
        let possible = |position: &usize| {
            let made_in_time = self.windows[*position].0 <= during.1;
            let replaced_before =
                self.windows.get(position + 1).is_some_and(|next| next.1 < during.0);
            exact || self.lives_in_doubt || (made_in_time && !replaced_before)
        };
        let mut positions = (0..self.states.len())
            .filter(|position| fits(&self.states[*position]))
            .filter(possible);
        let Some(first) = positions.next() else {
            return Err(format!("no committed state of the key fits {seen:?} at that time"));
        };
        let last = positions.next_back().unwrap_or(first);
        if self.lives_in_doubt && !exact {
            return Ok((None, None));
        }
        let next = self.states.get(last + 1);
        let next = next.filter(|next| !self.lives_in_doubt || next.life == self.states[last].life);
        Ok((self.states[first].by, next.and_then(|next| next.by)))
    }
}

/// Sorts the writes of a key into lives, oldest first.
fn lives(key: i64, writes: &[Write]) -> Result<Vec<Life<'_>>, String> {
    let mut successors: HashMap<Version, &Write> = HashMap::new();
    let mut lives = Vec::new();
    for write in writes {
        let Some(version) = write.before else {
            lives.push(Life(vec![write]));
            continue;
        };
        if let Some(other) = successors.insert(version, write) {
            return Err(format!(
                "lost update: #{} and #{} both replaced value {version} of key {key}",
                other.by, write.by
            ));
        }
    }
    for life in &mut lives {
        while let Some(next) = life.last().after.and_then(|row| successors.remove(&row.version)) {
            life.0.push(next);
        }
    }
    if let Some((version, write)) = successors.into_iter().next() {
        return Err(format!(
            "#{} replaced value {version} of key {key}, which no committed transaction wrote",
            write.by
        ));
    }
    lives.sort_by_key(Life::ends_not_before);
    Ok(lives)
}

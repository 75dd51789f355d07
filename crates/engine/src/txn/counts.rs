//! How many rows b-trees have, as far as a connection has counted them.
//!
//! SQLite counts rows by the pages of a b-tree. Where rows lie over the base each of them has to be looked for in it: so the
//! answer is kept, for whoever asks again before anything has changed.
//!
//! # Invariants
//! - N1 A count is of one b-tree in one state: base, generations over it, timestamp, and own writes of that b-tree. It answers for the
//!   same state alone. None of the four ever comes back with other rows: the base's cookie and the timestamp only grow, and W3 says
//!   so of own writes.
//! - N2 It says how many rows there are, and nothing of what was read: who asks has read the whole b-tree (T2), however it is answered.
//!
//! # Threads
//! Private to its connection.

use super::Conn;
use crate::fault;
use crate::ids::Root;

/// Counts that a connection keeps.
const COUNTS: usize = 8;

/// What a count is right for (N1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    root: Root,
    base: (u32, u64),
    ts: u64,
    own: u64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    known: [Option<(State, i64)>; COUNTS],
    next: usize,
}

impl Conn {
    fn counted_state(&self, root: Root) -> Option<State> {
        let snapshot =
            self.snapshot.as_ref().filter(|s| !s.resting && !self.state.is_exclusive())?;
        // Without own writes it does not matter how many there have been.
        let own = if self.writes.has_root(root) { self.writes.root_version(root) } else { 0 };
        let base = (snapshot.base_generation.get(), snapshot.base_cookie);
        Some(State { root, base, ts: snapshot.ts.get(), own })
    }

    /// The rows of a b-tree, if they were counted in this state.
    pub fn counted(&self, root: Root) -> Option<i64> {
        let state = self.counted_state(root)?;
        let is_kept = |kept: &State| {
            *kept == state || fault::is_planted("counts.kept_too_long") && kept.root == root
        };
        self.counts.known.iter().flatten().find(|known| is_kept(&known.0)).map(|known| known.1)
    }

    /// The rows of a b-tree were counted.
    pub fn note_counted(&mut self, root: Root, rows: i64) {
        let Some(state) = self.counted_state(root) else { return };
        let counts = &mut self.counts;
        let of_root = counts.known.iter().position(|known| known.is_some_and(|k| k.0.root == root));
        let at = of_root.unwrap_or_else(|| {
            counts.next = (counts.next + 1) % COUNTS;
            counts.next
        });
        counts.known[at] = Some((state, rows));
    }
}

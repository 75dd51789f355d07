//! What runs have done.

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls of the store.
    pub calls: u64,
    /// Records.
    pub records: u64,
    /// OPENs among them.
    pub opens: u64,
    /// Breaks among them.
    pub breaks: u64,
    /// OPENs that follow the stream.
    pub streams: u64,
    /// OPENs that follow the base, in a new session.
    pub bases: u64,
    /// Snapshots in them.
    pub snapshots: u64,
    /// Those of changed pages alone.
    pub changes: u64,
    /// Tasks that were killed.
    pub kills: u64,
    /// Sidecars that were fenced.
    pub fenced: u64,
    /// Restores that were made and compared.
    pub restores: u64,
    /// Objects that were damaged.
    pub damaged: u64,
}

impl Tally {
    /// Adds another run's.
    pub fn add(&mut self, other: &Tally) {
        self.calls += other.calls;
        self.records += other.records;
        self.opens += other.opens;
        self.breaks += other.breaks;
        self.streams += other.streams;
        self.bases += other.bases;
        self.snapshots += other.snapshots;
        self.changes += other.changes;
        self.kills += other.kills;
        self.fenced += other.fenced;
        self.restores += other.restores;
        self.damaged += other.damaged;
    }
}

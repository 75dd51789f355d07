//! The engine's positions and numbers as distinct types, so that none can be passed for another.
//!
//! Only meaningful arithmetic exists: a log position moves by bytes, a commit timestamp and a
//! generation have a successor, a snapshot sees a commit or does not.

use std::fmt;
use std::ops::{Add, Sub};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $tag:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name($inner);

        impl $name {
            /// The least value.
            pub const ZERO: $name = $name(0);
            /// The greatest value.
            pub const MAX: $name = $name(<$inner>::MAX);

            /// Wraps a raw number.
            pub const fn new(raw: $inner) -> $name {
                $name(raw)
            }

            /// Returns the raw number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($tag, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// Position of a commit in the one order of all commits. 0 is before the first.
    CommitTs(u64), "c"
);
id!(
    /// The commits that a transaction sees: all up to and including this one.
    SnapshotTs(u64), "s"
);
id!(
    /// A byte position in the log; it never restarts.
    Lsn(u64), "lsn"
);
id!(
    /// One filling of a memtable, from its first commit to its freeze.
    Generation(u32), "g"
);
id!(
    /// A transaction, for reports: unique while a live session lasts.
    TxnId(u64), "t"
);
id!(
    /// The root page that names a b-tree of the base. 0 names none.
    Root(u32), "root"
);

impl CommitTs {
    /// Returns the timestamp of the next commit.
    pub const fn next(self) -> CommitTs {
        CommitTs(self.0 + 1)
    }

    /// Returns the oldest snapshot that sees this commit.
    pub const fn snapshot(self) -> SnapshotTs {
        SnapshotTs(self.0)
    }
}

impl SnapshotTs {
    /// True if the commit is part of this snapshot.
    pub const fn sees(self, commit: CommitTs) -> bool {
        commit.0 <= self.0
    }

    /// Returns the newest commit that this snapshot sees.
    pub const fn as_commit(self) -> CommitTs {
        CommitTs(self.0)
    }
}

impl From<CommitTs> for SnapshotTs {
    fn from(ts: CommitTs) -> SnapshotTs {
        ts.snapshot()
    }
}

impl Generation {
    /// Returns the generation that follows this one.
    pub const fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

impl Add<u64> for Lsn {
    type Output = Lsn;

    fn add(self, bytes: u64) -> Lsn {
        Lsn(self.0 + bytes)
    }
}

impl Sub for Lsn {
    type Output = u64;

    /// Returns the bytes from `earlier` to this position.
    fn sub(self, earlier: Lsn) -> u64 {
        self.0 - earlier.0
    }
}

/// Most processes that can have one database open at a time.
pub const PROCESS_SLOTS: usize = 1024;
/// Most connections, of all processes together, that can be attached at a time.
pub const TXN_SLOTS: usize = 4096;

/// Index of a process slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessIndex(pub u32);

/// Index of a connection's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotIndex(pub u32);

impl SlotIndex {
    /// Returns the number of this slot in owner words and in the queue.
    pub fn word(self) -> u32 {
        self.0 + 1
    }

    /// Returns the slot of an owner word; `None` for 0 or nonsense.
    pub fn from_word(word: u32) -> Option<SlotIndex> {
        (1..=TXN_SLOTS as u32).contains(&word).then(|| SlotIndex(word - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_its_own_commit_and_not_the_next() {
        let ts = CommitTs::new(7);
        assert!(ts.snapshot().sees(ts));
        assert!(!ts.snapshot().sees(ts.next()));
    }

    #[test]
    fn log_positions_differ_by_bytes() {
        let lsn = Lsn::new(100);
        assert_eq!((lsn + 28) - lsn, 28);
        assert_eq!(format!("{lsn} {lsn:?}"), "100 lsn100");
    }
}

//! Numbers and names of the chain as types, so that none can be passed for another.

use std::fmt;

use sha2::{Digest as _, Sha256};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// The number of a record. The first is 1; 0 is none.
    RecordNumber(u64)
);
number!(
    /// How many OPENs the chain has, through a record.
    Epoch(u64)
);
number!(
    /// A byte position of a session's log.
    Lsn(u64)
);
number!(
    /// A filling of a memtable; a base is complete through one of them.
    Generation(u32)
);
number!(
    /// The timestamp of a commit within its session. 0 is before the first.
    CommitTs(u64)
);
number!(
    /// The salt of a session: 0 belongs to none.
    Salt(u32)
);

impl RecordNumber {
    /// The number of the first record.
    pub const FIRST: RecordNumber = RecordNumber(1);
    /// No record.
    pub const NONE: RecordNumber = RecordNumber(0);

    /// Returns the number behind this one.
    #[must_use]
    pub const fn next(self) -> RecordNumber {
        RecordNumber(self.0 + 1)
    }

    /// Returns the number before this one; that before the first is none.
    #[must_use]
    pub const fn before(self) -> RecordNumber {
        RecordNumber(self.0.saturating_sub(1))
    }
}

macro_rules! random_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

random_name!(
    /// A writer, from its OPEN to its end.
    Nonce
);
random_name!(
    /// A chain, and with it the database whose replica it is.
    ChainId
);
random_name!(
    /// A database on its machine: a copy elsewhere is another instance.
    Instance
);

/// SHA-256 of an object.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// What the first record has in place of its predecessor's hash.
    pub const ZERO: Hash = Hash([0; 32]);

    /// Computes the hash of an object.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(Sha256::digest(bytes).into())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How far a session had come: what a base and a log have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The session.
    pub salt: Salt,
    /// The base is complete through this generation.
    pub base: Generation,
    /// End of the last frame.
    pub stream: Lsn,
    /// The last commit of the session, 0 if there is none.
    pub commit: CommitTs,
    /// The checksum that ends the last frame, 0 if none is known. A log that has it at this place
    /// has the same frames before it.
    pub crc: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { salt, base, stream, commit, crc } = self;
        write!(
            f,
            "commit {commit} of session {salt}: base {base}, log {stream}, checksum {crc:08x}"
        )
    }
}

//! The memtables of a snapshot, which serve the next one of the connection.
//!
//! A snapshot lists the generations above its base. To find them it looks at all of them, in as many
//! cache lines. They are mostly those of the connection's last snapshot: that has the same base, and
//! the same generation takes commits.
//!
//! Invariants
//! - LISTED-1 A list with the name (base, active generation) has the generations above the base
//!   through the active one, each with its arena, for as long as a snapshot can have that name. No
//!   generation comes in between. None gets another arena: the store that made its arena the active
//!   one published its number. None is freed, and its arena given another number, while the caller
//!   looks: its pin forbids that (PIN-1 in txn/snapshot.rs).

use std::ops::Deref;
use std::sync::atomic::Ordering::Acquire;

use super::generations::Generations;
use crate::error::Result;
use crate::ids::Generation;
use crate::memtable::Memtable;

/// Generations above a base, newest first, as a snapshot has them; at most as many as there are
/// arenas.
#[derive(Default)]
pub(crate) struct Listed {
    /// The base, and the generation that took commits; none: see [`Listed::from`].
    of: Option<(Generation, u32)>,
    memtables: Vec<(Generation, Memtable)>,
}

impl From<Vec<(Generation, Memtable)>> for Listed {
    /// A list of another moment than that of a snapshot's beginning: no other snapshot uses it.
    fn from(memtables: Vec<(Generation, Memtable)>) -> Listed {
        Listed { of: None, memtables }
    }
}

impl Deref for Listed {
    type Target = [(Generation, Memtable)];

    fn deref(&self) -> &Self::Target {
        &self.memtables
    }
}

impl Generations {
    /// As [`Generations::memtables_above`], for a connection with a pin whose last such list was
    /// `last` (LISTED-1).
    ///
    /// # Errors
    /// NoMemory.
    pub(crate) fn memtables_again(&self, last: Listed, base: Generation) -> Result<Listed> {
        // Acquire, and after the caller's timestamp, as in `each_since`. A generation that becomes
        // the active one after this has only commits that are newer.
        let active = self.active_generation().number.load(Acquire);
        if last.of == Some((base, active)) {
            let is_old = |&generation: &Generation| generation.get() <= active;
            let names = |list: &[(Generation, Memtable)]| -> Vec<Generation> {
                list.iter().map(|m| m.0).filter(is_old).collect()
            };
            debug_assert!(
                self.memtables_since(base).is_ok_and(|found| names(&found) == names(&last)),
                "LISTED-1: the list is no longer that of base {base} and generation {active}"
            );
            return Ok(last);
        }
        Ok(Listed { of: Some((base, active)), memtables: self.memtables_above(base)? })
    }
}

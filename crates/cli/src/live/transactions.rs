//! Transactions of a session, from a copy of the fixed part of shared memory. Relaxed throughout:
//! the words are a private copy.

use std::sync::atomic::Ordering::Relaxed;

use plait_engine::ids::{SlotIndex, TXN_SLOTS};
use plait_engine::shm::layout::{Layout, NO_PIN, TxnSlot, owner, txn_state};
use plait_engine::shm::process;
use plait_engine::sync::clock::unix_ms;

/// A process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// Its id, in its own pid namespace.
    pub pid: u32,
    /// That is another one than ours.
    pub is_foreign: bool,
}

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// It takes its snapshot.
    Starting,
    /// It reads.
    Reading,
    /// It writes without the writer's right.
    Optimistic,
    /// It waits for the writer's right.
    Queued,
    /// It has the writer's right.
    Writing,
    /// It merges, or runs alone.
    Exclusive,
}

/// A transaction in progress.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    /// Its process.
    pub who: Who,
    /// What it does.
    pub doing: Doing,
    /// Its commit is published, and others do not see it yet: it waits for the disk.
    pub is_committing: bool,
    /// Milliseconds since it began.
    pub age_ms: u64,
    /// Process that it waits for, 0 if none.
    pub waits_for: u32,
}

impl Doing {
    /// All of them.
    pub const ALL: [Doing; 6] = [
        Doing::Starting,
        Doing::Reading,
        Doing::Optimistic,
        Doing::Queued,
        Doing::Writing,
        Doing::Exclusive,
    ];

    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Doing::Starting => "starting",
            Doing::Reading => "reading",
            Doing::Optimistic => "optimistic",
            Doing::Queued => "queued",
            Doing::Writing => "writing",
            Doing::Exclusive => "exclusive",
        }
    }
}

/// The slots of connections of living processes.
pub(super) struct Slots<'a> {
    layout: &'a Layout,
    alive: &'a [usize],
    namespace: u64,
}

impl Slots<'_> {
    pub(super) fn new<'a>(layout: &'a Layout, alive: &'a [usize]) -> Slots<'a> {
        Slots { layout, alive, namespace: process::pid_namespace() }
    }

    pub(super) fn processes(&self) -> Vec<Who> {
        self.alive.iter().map(|&i| self.who(i)).collect()
    }

    pub(super) fn transactions(&self) -> Vec<Transaction> {
        let now = unix_ms();
        let row = |(slot, process): (&TxnSlot, usize)| {
            Some(Transaction {
                who: self.who(process),
                doing: doing(slot)?,
                is_committing: slot.author.load(Relaxed) != 0,
                age_ms: now.saturating_sub(slot.started_ms.load(Relaxed)),
                waits_for: slot.waiting_for.load(Relaxed),
            })
        };
        self.in_use().filter_map(row).collect()
    }

    pub(super) fn writer(&self) -> Option<Who> {
        self.owner(self.layout.control.right_owner.load(Relaxed))
    }

    pub(super) fn merger(&self) -> Option<Who> {
        self.owner(self.layout.control.merge_owner.load(Relaxed))
    }

    pub(super) fn oldest_reader(&self) -> Option<(Who, u64)> {
        let now = unix_ms();
        self.in_use()
            .filter(|(slot, _)| slot.pin_low.load(Relaxed) != NO_PIN)
            .map(|(slot, i)| (self.who(i), now.saturating_sub(slot.started_ms.load(Relaxed))))
            .max_by_key(|&(_, age)| age)
    }

    /// Slots with those of their processes.
    fn in_use(&self) -> impl Iterator<Item = (&TxnSlot, usize)> {
        let used = self.layout.control.slots_high_water.load(Relaxed) as usize;
        let slots = &self.layout.slots[..used.min(TXN_SLOTS)];
        slots.iter().filter_map(|slot| {
            // One of a dead process is as it was at its death until somebody cleans up.
            let process = (slot.process.load(Relaxed) as usize).checked_sub(1)?;
            self.alive.contains(&process).then_some((slot, process))
        })
    }

    fn owner(&self, word: u32) -> Option<Who> {
        if owner::is_unsettled(word) {
            return None;
        }
        let slot = &self.layout.slots[SlotIndex::from_word(word)?.0 as usize];
        let process = (slot.process.load(Relaxed) as usize).checked_sub(1)?;
        self.alive.contains(&process).then(|| self.who(process))
    }

    fn who(&self, process: usize) -> Who {
        let slot = &self.layout.processes[process];
        let is_foreign = slot.pid_namespace.load(Relaxed) != self.namespace;
        Who { pid: slot.pid.load(Relaxed), is_foreign }
    }
}

/// As the engine's `plait_transactions` tells it.
fn doing(slot: &TxnSlot) -> Option<Doing> {
    Some(match slot.state.load(Relaxed) {
        txn_state::READING => Doing::Reading,
        txn_state::OPTIMISTIC => Doing::Optimistic,
        txn_state::QUEUED => Doing::Queued,
        txn_state::WRITER => Doing::Writing,
        txn_state::EXCLUSIVE => Doing::Exclusive,
        _ if slot.pin_low.load(Relaxed) != NO_PIN => Doing::Starting,
        _ => return None,
    })
}

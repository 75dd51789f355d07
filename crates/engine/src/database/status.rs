//! What `plait_status`, `plait_transactions` and `plait_conflicts` show.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence as memory_fence;

use crate::database::Database;
use crate::error::Conflict;
use crate::ids::TxnId;
use crate::shm::layout::{
    CONFLICT_KEY_BYTES, CONFLICT_SLOTS, NO_PIN, TOTAL_BYTES, fence, generation, txn_state,
};
use crate::shm::process;
use crate::shm::shipping::{BOUNDARIES, Change};
use crate::sync::clock::unix_ms;

/// One transaction in progress, or waiting.
#[derive(Debug, Clone)]
pub struct TransactionRow {
    /// Its process.
    pub pid: u32,
    /// Kernel thread that started it.
    pub thread: u32,
    /// Slot of its connection.
    pub connection: u32,
    /// What it does.
    pub state: &'static str,
    /// Milliseconds since it began.
    pub age_ms: u64,
    /// Process it waits for, 0 if none.
    pub waiting_for_pid: u32,
    /// Number of the pid namespace of `pid` if it is not the caller's, else 0.
    pub foreign_namespace: u64,
}

/// One refused transaction.
#[derive(Debug, Clone)]
pub struct ConflictRow {
    /// Wall-clock time in milliseconds.
    pub unix_ms: u64,
    /// B-tree.
    pub root: u32,
    /// First bytes of the key.
    pub key: Vec<u8>,
    /// What had been read was a range.
    pub is_range: bool,
    /// An exclusive transaction won.
    pub is_exclusive: bool,
    /// Process that lost.
    pub loser_pid: u32,
    /// Transaction that lost.
    pub loser_txn: u64,
    /// Process that won.
    pub winner_pid: u32,
    /// Transaction that won.
    pub winner_txn: u64,
    /// Number of the loser's pid namespace if it is not the caller's, else 0.
    pub loser_namespace: u32,
    /// As `loser_namespace`, of the winner.
    pub winner_namespace: u32,
}

/// Names and values.
pub type Rows<T> = Vec<(&'static str, T)>;

impl Database {
    /// Returns name and value of everything that is counted.
    pub fn status(&self) -> Rows<i64> {
        let c = self.control();
        let n = &c.counters;
        let shared = self.region().log();
        let log = self.log_status();
        let gens = &c.generations;
        let arenas =
            |state: u32| gens.iter().filter(|g| g.state.load(Relaxed) == state).count() as i64;
        let (reader, reader_age) = self.slots.oldest_reader().unwrap_or_default();
        let writer = self.slots.who_owns(c.right_owner.load(Relaxed));
        let merger = self.slots.who_owns(c.merge_owner.load(Relaxed));
        let v = |word: &std::sync::atomic::AtomicU64| word.load(Relaxed) as i64;
        vec![
            ("fenced", i64::from(c.fence.load(Relaxed) == fence::FENCED)),
            ("connections", i64::from(self.connections())),
            ("commits", v(&n.commits)),
            ("exclusive_commits", v(&n.exclusive_commits)),
            ("conflicts", v(&n.conflicts)),
            ("busy", v(&n.busy)),
            ("begun_early", v(&c.begun_early)),
            ("log_syncs", log.map_or(0, |l| l.syncs as i64)),
            ("log_bytes", (shared.log_end() - shared.first_lsn()) as i64),
            (
                "log_unsynced_bytes",
                shared.log_end().get().saturating_sub(shared.durable_through().get()) as i64,
            ),
            ("base_syncs", shared.base_syncs() as i64),
            ("log_file_bytes", log.map_or(0, |l| l.file_bytes as i64)),
            ("memtable_bytes", self.generations.unmerged_bytes() as i64),
            ("memtables_frozen", arenas(generation::FROZEN)),
            ("memtables_kept", arenas(generation::MERGED)),
            ("shared_memory_limit_bytes", TOTAL_BYTES as i64),
            ("merges", v(&n.merges)),
            ("merged_entries", v(&n.merged_entries)),
            ("base_generation", i64::from(c.base_generation.load(Relaxed))),
            ("base_wal_bytes", v(&c.wal_bytes)),
            ("base_wal_limit_bytes", v(&c.wal_limit_bytes)),
            ("oldest_reader_pid", i64::from(reader.pid)),
            ("oldest_reader_age_ms", reader_age as i64),
            ("writer_pid", i64::from(writer.pid)),
            ("merger_pid", i64::from(merger.pid)),
            ("oldest_reader_pid_namespace", reader.foreign_namespace as i64),
            ("writer_pid_namespace", writer.foreign_namespace as i64),
            ("merger_pid_namespace", merger.foreign_namespace as i64),
            ("processes_reaped", v(&n.reaped)),
            ("poisoned", i64::from(shared.poisoned().is_some())),
        ]
    }

    /// Returns name and value of what is told of a process that ships the database elsewhere; nothing
    /// if none has in this session.
    pub fn shipping_status(&self) -> (Rows<i64>, Rows<String>) {
        let shared = self.region().log();
        if !shared.was_held() {
            return Default::default();
        }
        let c = self.control();
        let told = self.told();
        let (is_held, held_bytes, broken) = shared.hold_status();
        let behind_bytes = shared.log_end().get().saturating_sub(told.position.stream.get());
        // Pages that a transaction has changed past the log. A merge changes no row; of changes that are not kept any more
        // nobody knows.
        let boundaries = self.boundaries();
        let count = boundaries.count();
        let from = told.boundary.max(count.saturating_sub(BOUNDARIES as u64 - 1));
        let kept = (from..count).filter_map(|number| boundaries.get(number));
        let changes = kept.filter(|of| !matches!(of.change, Change::Merge(_))).count()
            + usize::from(told.boundary < from);
        let is_behind = behind_bytes > 0 || changes > 0;
        // What the base had when the session began is no commit of it.
        let from = told.position.commit.get().max(shared.first_ts());
        let behind = c.visible_ts.load(Relaxed).saturating_sub(from);
        let since_ms = match (told.known_ms, told.trouble_since_ms) {
            (0, 0) => 0,
            (0, since) | (since, _) => unix_ms().saturating_sub(since),
        };
        let if_behind = |value: u64| if is_behind { value as i64 } else { 0 };
        let numbers = vec![
            ("replication_running", i64::from(is_held)),
            ("replicated_commit", told.position.commit.get() as i64),
            ("replicated_lsn", told.position.stream.get() as i64),
            ("replication_lag_commits", if_behind(behind)),
            ("replication_lag_bytes", behind_bytes as i64),
            ("replication_lag_changes", changes as i64),
            ("replication_lag_ms", if_behind(since_ms)),
            ("replication_held_bytes", held_bytes as i64),
            ("replication_breaks", i64::from(broken)),
            ("replication_error_since_ms", told.trouble_since_ms as i64),
        ];
        let chain = told.chain.iter().map(|byte| format!("{byte:02x}")).collect();
        let texts = vec![
            ("replication_place", told.place),
            ("replication_chain", chain),
            ("replication_error", told.trouble),
        ];
        (numbers, texts)
    }

    /// Transactions of all connections.
    pub fn transactions(&self) -> Vec<TransactionRow> {
        let now = unix_ms();
        let owner = self.right.owner();
        self.slots
            .in_use()
            .filter_map(|(i, s)| {
                let state = match s.state.load(Acquire) {
                    // RIGHT-10
                    txn_state::READING if owner == i.word() => "reading, next to write",
                    txn_state::READING => "reading",
                    txn_state::OPTIMISTIC => "writing, optimistic",
                    txn_state::QUEUED => "waiting for the writer's right",
                    txn_state::WRITER => "writing",
                    txn_state::EXCLUSIVE => "exclusive",
                    _ if s.pin_low.load(Acquire) != NO_PIN => "starting",
                    _ => return None,
                };
                let who = self.slots.who_has(i);
                Some(TransactionRow {
                    pid: who.pid,
                    foreign_namespace: who.foreign_namespace,
                    thread: s.tid.load(Relaxed),
                    connection: i.0,
                    state,
                    age_ms: now.saturating_sub(s.started_ms.load(Relaxed)),
                    waiting_for_pid: s.waiting_for.load(Relaxed),
                })
            })
            .collect()
    }

    /// Recent conflicts, newest first.
    pub fn conflicts(&self) -> Vec<ConflictRow> {
        let mut rows: Vec<ConflictRow> =
            self.control().conflicts.iter().filter_map(read_conflict).collect();
        for row in &mut rows {
            row.loser_namespace = self.foreign_namespace(row.loser_namespace);
            row.winner_namespace = self.foreign_namespace(row.winner_namespace);
        }
        rows.sort_by_key(|r| std::cmp::Reverse(r.unix_ms));
        rows
    }

    /// How many of the recent conflicts were on the key of `conflict`, and how many there are.
    pub fn conflicts_alike(&self, conflict: &Conflict) -> (usize, usize) {
        let key = &conflict.key[..conflict.key.len().min(CONFLICT_KEY_BYTES)];
        let recent: Vec<ConflictRow> =
            self.control().conflicts.iter().filter_map(read_conflict).collect();
        let is_alike = |row: &&ConflictRow| row.root == conflict.root.get() && row.key == key;
        (recent.iter().filter(is_alike).count(), recent.len())
    }

    /// Remembers a refused transaction.
    pub(crate) fn record_conflict(&self, loser: TxnId, conflict: &Conflict) {
        let c = self.control();
        c.counters.conflicts.fetch_add(1, Relaxed);
        let at = c.counters.next_conflict.fetch_add(1, Relaxed) as usize % CONFLICT_SLOTS;
        let slot = &c.conflicts[at];
        let seq = slot.seq.load(Relaxed) & !1;
        // Odd while the slot is being written. The Release below pairs with the Acquire of readers.
        slot.seq.store(seq + 1, Relaxed);
        memory_fence(Release);
        slot.root.store(conflict.root.get(), Relaxed);
        slot.unix_ms.store(unix_ms(), Relaxed);
        slot.loser_txn.store(loser.get(), Relaxed);
        slot.winner_txn.store(conflict.winner.get(), Relaxed);
        slot.loser_pid.store(process::pid(), Relaxed);
        slot.winner_pid.store(conflict.winner_pid, Relaxed);
        let mine = self.pid_namespace() as u32;
        slot.loser_namespace.store(mine, Relaxed);
        let winner = conflict.winner_namespace;
        slot.winner_namespace.store(if winner == 0 { mine } else { winner }, Relaxed);
        let n = conflict.key.len().min(CONFLICT_KEY_BYTES);
        for (to, from) in slot.key.iter().zip(&conflict.key[..n]) {
            to.store(*from, Relaxed);
        }
        slot.key_len.store(n as u32, Relaxed);
        let flags = u32::from(conflict.is_range) | u32::from(conflict.is_exclusive) << 1;
        slot.flags.store(flags, Relaxed);
        slot.seq.store(seq + 2, Release);
    }
}

fn read_conflict(slot: &crate::shm::layout::ConflictSlot) -> Option<ConflictRow> {
    let seq = slot.seq.load(Acquire);
    if seq == 0 || seq % 2 == 1 {
        return None;
    }
    let n = (slot.key_len.load(Relaxed) as usize).min(CONFLICT_KEY_BYTES);
    let flags = slot.flags.load(Relaxed);
    let row = ConflictRow {
        unix_ms: slot.unix_ms.load(Relaxed),
        root: slot.root.load(Relaxed),
        key: slot.key[..n].iter().map(|b| b.load(Relaxed)).collect(),
        is_range: flags & 1 != 0,
        is_exclusive: flags & 2 != 0,
        loser_pid: slot.loser_pid.load(Relaxed),
        loser_txn: slot.loser_txn.load(Relaxed),
        winner_pid: slot.winner_pid.load(Relaxed),
        winner_txn: slot.winner_txn.load(Relaxed),
        loser_namespace: slot.loser_namespace.load(Relaxed),
        winner_namespace: slot.winner_namespace.load(Relaxed),
    };
    memory_fence(Acquire);
    (slot.seq.load(Relaxed) == seq).then_some(row)
}

//! Validation: has anything that a transaction read been changed since?
//!
//! Only commits newer than the snapshot matter; their nodes are in the generations from the
//! snapshot's newest one on. The transaction first pins those generations. If one with such a
//! commit is gone, or an exclusive transaction may have changed b-trees in the base that the
//! transaction has used, the answer is a conflict (never a guess, SNAP-5).

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence as memory_fence;

use super::Candidate;
use crate::database::Database;
use crate::database::changed::{ChangedSince, Part};
use crate::database::gaps::Gap;
use crate::error::{Conflict, Error, Result};
use crate::ids::{CommitTs, Lsn, Root, SnapshotTs, TxnId};
use crate::log::damaged_ring;
use crate::log::frame::OpKind;
use crate::memtable::{EntryKind, Hi, Memtable};
use crate::shm::layout::{ARENAS, CONFLICT_KEY_BYTES, NO_PIN, generation};
use crate::sync::mutex::Guard;
use crate::{fault, memory};

/// The base that a snapshot reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// With memtables it has everything that is committed.
    Newest,
    /// Exclusive transactions have changed only b-trees that the transaction has not used. It may
    /// commit; to see the newest commits it needs a newer snapshot.
    Older,
}

impl Candidate<'_> {
    /// Keeps the history since the snapshot in memory until the transaction ends, or returns that
    /// it is gone.
    pub(crate) fn pin_history(&self) -> Result<Base> {
        if self.snapshot.is_none() {
            return Ok(Base::Newest);
        }
        let _guard = self.db.lock_commit()?;
        self.db.slots.at(self.slot).pin_high.store(NO_PIN, Relaxed);
        memory_fence(SeqCst);
        self.check_history()
    }

    /// (M) Checks that all commits since the snapshot are in memory, and that exclusive
    /// transactions have changed nothing that matters here (EXCL-3).
    pub(crate) fn check_history(&self) -> Result<Base> {
        let Some(snapshot) = self.snapshot else { return Ok(Base::Newest) };
        let c = self.db.control();
        let concerned = |part: Part<'_>| {
            let planted = fault::is_planted("exclusive.elsewhere");
            !planted
                && match part {
                    Part::Rows(root) => self.reads.has_root(root) || self.writes.has_root(root),
                    Part::Maxima(root, keys) => {
                        self.reads.has_root(root)
                            || !self.writes.only_raises_other_maxima(root, keys)
                    }
                }
        };
        let changed = self.db.generations.changed_since(snapshot.base_generation, concerned);
        let foreign = snapshot.resting
            && !snapshot.fenced
            && self.db.is_fenced()
            && c.fence_cookie.load(Relaxed) != snapshot.base_cookie;
        let hit = match changed {
            ChangedSince::Here(root) => Some(root),
            ChangedSince::Nothing | ChangedSince::Elsewhere => foreign.then_some(None),
        };
        if let Some(root) = hit {
            return Err(Error::Conflict(Box::new(Conflict {
                root: root.unwrap_or_default(),
                is_exclusive: true,
                ..Conflict::default()
            })));
        }
        if !self.db.generations.has_history(snapshot.ts) {
            return Err(Error::Conflict(Box::new(Conflict {
                history_gone: true,
                ..Conflict::default()
            })));
        }
        Ok(if changed == ChangedSince::Nothing { Base::Newest } else { Base::Older })
    }

    /// Returns the memtables that may hold commits newer than the snapshot.
    fn newer_memtables(&self, since: SnapshotTs) -> Result<Vec<Memtable>> {
        let Some(snapshot) = self.snapshot else { return Ok(Vec::new()) };
        let gens = &self.db.control().generations;
        // A snapshot of readable commits may be older than commits in its own generations.
        (0..ARENAS)
            .filter(|&i| {
                let g = &gens[i];
                g.number.load(Acquire) > snapshot.base_generation.get()
                    && g.state.load(Relaxed) != generation::FREE
                    && g.max_ts.load(Acquire) > since.get()
            })
            .map(|i| self.db.generations.memtable(i))
            .collect()
    }

    /// Looks up everything that was read. The history is pinned, or the commit mutex is held.
    pub(crate) fn validate_all(&mut self) -> Result<()> {
        self.validate_within(usize::MAX).map(drop)
    }

    /// As [`Candidate::validate_all`], passing at most `steps` keys of ranges. False if those did
    /// not suffice: nothing is known then.
    pub(crate) fn validate_within(&mut self, mut steps: usize) -> Result<bool> {
        let Some(snapshot) = self.snapshot else { return Ok(true) };
        let since = snapshot.ts;
        if fault::is_planted("conflicts.unchecked") {
            return Ok(true);
        }
        if self.reads.is_incomplete() {
            return Err(Error::NoMemory);
        }
        if self.reads.is_empty() || self.db.control().visible_ts.load(Acquire) == since.get() {
            return Ok(true);
        }
        let newer = self.newer_memtables(since)?;
        if newer.is_empty() {
            return Ok(true);
        }
        let point = |root: Root, key: &[u8]| {
            newer
                .iter()
                .filter(|m| m.may_hold_root(root))
                .filter_map(|m| m.newest_ts(root, key))
                .find(|ts| ts.get() > since.get())
                .map(|ts| (told(key), ts))
        };
        let range = |root: Root, lo: Option<&[u8]>, hi: Option<Hi<'_>>| {
            if fault::is_planted("conflicts.unchecked_ranges") {
                return None;
            }
            changed_in_range(self.db, &newer, root, (lo, hi), since, &mut steps)
        };
        match self.reads.first_conflict(point, range)? {
            None => self.validate_missing_names(&newer, since).map(|()| steps > 0),
            Some(hit) => Err(self.conflict_with(hit.root, hit.key, hit.ts, hit.is_range)),
        }
    }

    /// Checks that no commit has put a maximum under a name that this transaction did not find.
    fn validate_missing_names(&self, newer: &[Memtable], since: SnapshotTs) -> Result<()> {
        for root in self.reads.roots_of_missing_names() {
            for memtable in newer {
                let mut hit = None;
                memtable.each_newer_than(root, since, |node| {
                    if node.kind() == EntryKind::Put && self.reads.is_missing_name(root, node.rec())
                    {
                        hit = Some((told(node.key()), node.ts()));
                    }
                    hit.is_none()
                });
                if let Some((key, ts)) = hit {
                    return Err(self.conflict_with(root, key, ts, true));
                }
            }
        }
        Ok(())
    }

    /// (M) Checks the commits whose frames lie in `from..to` of the log ring against what was read.
    pub(crate) fn validate_frames(
        &self,
        guard: &Guard<'_>,
        from: Lsn,
        since: SnapshotTs,
    ) -> Result<()> {
        let mut hit = None;
        let to = self.db.log_shared().log_end();
        // Memory for frames that wrap around the ring's end: they are put together in it.
        memory::expect::<u8>((to - from) as usize)?;
        let read = self.db.ring().for_each_frame(guard, from, to, |frame| {
            if hit.is_some() || since.sees(frame.commit_ts) {
                return;
            }
            for op in frame.ops() {
                let is_put = op.kind == OpKind::Put;
                if self.reads.contains(op.root, op.key)
                    || (is_put && self.reads.is_missing_name(op.root, op.rec))
                {
                    hit = Some((op.root, told(op.key), frame.commit_ts));
                    return;
                }
            }
        });
        read.map_err(|(at, why)| damaged_ring(at, why))?;
        match hit {
            None => Ok(()),
            Some((root, key, ts)) => Err(self.conflict_with(root, key, ts, false)),
        }
    }

    fn conflict_with(&self, root: Root, key: Vec<u8>, ts: CommitTs, is_range: bool) -> Error {
        let recent = self.db.region().recent(ts.get());
        let known = recent.filter(|recent| recent.ts.load(Acquire) == ts.get());
        Error::Conflict(Box::new(Conflict {
            root,
            key,
            is_range,
            winner_pid: known.map_or(0, |recent| recent.pid.load(Relaxed)),
            winner_namespace: known
                .map_or(0, |recent| self.db.foreign_namespace(recent.namespace.load(Relaxed))),
            winner: TxnId::new(known.map_or(0, |recent| recent.txn.load(Relaxed))),
            winner_ts: ts,
            ..Conflict::default()
        }))
    }
}

/// Returns as much of a key as a conflict reports, and one byte more if the key is longer.
fn told(key: &[u8]) -> Vec<u8> {
    key[..key.len().min(CONFLICT_KEY_BYTES + 1)].to_vec()
}

/// Returns a key of the range that was written after `since`, and its commit. Gaps are passed over:
/// they had no row then and have none now.
fn changed_in_range(
    db: &Database,
    newer: &[Memtable],
    root: Root,
    (lo, hi): (Option<&[u8]>, Option<Hi<'_>>),
    since: SnapshotTs,
    steps: &mut usize,
) -> Option<(Vec<u8>, CommitTs)> {
    let newer = || newer.iter().filter(|m| m.may_hold_root(root));
    newer().next()?;
    let mut behind: Option<Gap> = None;
    loop {
        let from = behind.as_ref().map_or(lo, |gap| Some(gap.hi.bytes()));
        let gap = db
            .gaps()
            .first_behind(root, from.unwrap_or(b""), since)
            .filter(|gap| hi.is_none_or(|hi| hi.admits(gap.lo.bytes())));
        let to = gap.as_ref().map_or(hi, |gap| Some(Hi::Key(gap.lo.bytes())));
        let hit = newer().find_map(|m| m.range_newer_than(root, from, to, since, steps));
        if hit.is_some() || gap.is_none() || *steps == 0 {
            return hit.map(|node| (told(node.key()), node.ts()));
        }
        behind = gap;
    }
}

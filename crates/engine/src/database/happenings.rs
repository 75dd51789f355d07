//! Events of an open database: what is noted of what happens to it, and when (events.rs).
//!
//! | event | noted by |
//! |---|---|
//! | `member-died` | the process that has cleaned up, once for each dead one |
//! | `log-stopped` | each process, at its first call that fails for it |
//! | `failed` | the process whose call has failed, once a minute for each code |
//! | `long-transaction` | whoever begins a transaction and looks, once a minute |
//! | others | whoever meets it, and is the first of all members in a minute |

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use crate::base::BaseOpener;
use crate::database::Database;
use crate::error::Error;
use crate::events::{self, EVERY_MS, Event, Kind, is_due, shortened};
use crate::session::Begun;
use crate::shm::layout::{NO_PIN, TxnSlot, txn_state};
use crate::shm::process::Who;
use crate::storage::names::log_path;
use crate::sync::clock::unix_ms;

/// A transaction of this age is an event, and another one after as long again.
const LONG_MS: u64 = 3_600_000;
/// A checkpoint that has left a part of the WAL for so long is starved.
const STARVED_MS: u64 = 60_000;

const SQLITE_FULL: i32 = 13;
/// SQLite's codes for which somebody has to mend something, with their names.
const MENDED: [(i32, &str); 5] = [
    (8, "SQLITE_READONLY"),
    (10, "SQLITE_IOERR"),
    (11, "SQLITE_CORRUPT"),
    (SQLITE_FULL, "SQLITE_FULL"),
    (14, "SQLITE_CANTOPEN"),
];

/// Returns the event of a call that has failed with this code; `None` if a program deals with the
/// code by itself, or the process has noted one in this minute.
fn failed(code: i32, event: impl FnOnce(&'static Kind) -> Event) -> Option<Event> {
    static NOTED_MS: [AtomicU64; MENDED.len()] = [const { AtomicU64::new(0) }; MENDED.len()];
    let place = MENDED.iter().position(|&(mended, _)| mended == code & 0xff)?;
    let is_due = is_due(&NOTED_MS[place], EVERY_MS);
    is_due.then(|| event(&events::FAILED).said("code", MENDED[place].1))
}

/// What a dead process has left.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) who: Who,
    /// Connections in a transaction.
    pub(super) transactions: u64,
    /// It held the writer's right.
    pub(super) right: bool,
    /// It was merging, or in an exclusive transaction.
    pub(super) merge: bool,
    pub(super) exclusive: bool,
}

impl Held {
    /// Adds what a slot of the process holds. `right`, `merge`: it has these rights.
    pub(super) fn add(&mut self, slot: &TxnSlot, right: bool, merge: bool) {
        // Relaxed: its process is dead.
        let state = slot.state.load(Relaxed);
        let is_in_use = state != txn_state::IDLE || slot.pin_low.load(Relaxed) != NO_PIN;
        self.transactions += u64::from(is_in_use);
        self.right |= right;
        self.exclusive |= merge && state == txn_state::EXCLUSIVE;
        self.merge |= merge;
    }

    fn say(&self) -> &'static str {
        match (self.exclusive, self.merge, self.right) {
            (true, ..) => "an exclusive transaction, which is taken back or brought to its end",
            (_, true, _) => "the right to merge",
            (_, _, true) => "the writer's right",
            _ => "",
        }
    }
}

/// Notes how a session has begun.
pub(crate) fn note_begin(begun: Begun, path: &Path, opener: &Arc<dyn BaseOpener>) {
    let new = |kind, text| Event::new(kind, path, opener, text);
    let Begun::Recovered { from_log } = begun else {
        let text = "the first process has opened the database, which was at rest";
        return new(&events::SESSION_BEGAN, text).note();
    };
    let (from, text) = match from_log {
        true => ("log", "its processes died, or the machine: the log had what they committed"),
        false => ("memory", "its processes died: shared memory had what they committed"),
    };
    new(&events::RECOVERED, text).said("from", from).note();
}

/// Notes that a call without a connection has failed with this code of SQLite's.
pub fn note_failure(path: &Path, opener: &Arc<dyn BaseOpener>, code: i32, text: &str) {
    if let Some(event) = failed(code, |kind| Event::new(kind, path, opener, text)) {
        event.note();
    }
}

impl Database {
    /// An event of this database.
    pub(crate) fn event(&self, kind: &'static Kind, text: impl Into<String>) -> Event {
        Event::new(kind, self.path(), self.opener(), text)
    }

    /// As [`Database::event`], if the recurring kind is due (EVENT-6 in events.rs).
    fn event_if_due(&self, kind: &'static Kind, text: impl FnOnce() -> String) -> Option<Event> {
        kind.is_due(&self.control().noted_ms).then(|| self.event(kind, text()))
    }

    /// Notes that a dead process was cleaned up.
    pub(super) fn note_death(&self, held: &Held) {
        let what = match held.say() {
            "" => String::new(),
            what => format!("; it held {what}"),
        };
        let inside = match held.transactions {
            0 => String::new(),
            1 => ", in a transaction".into(),
            n => format!(", in {n} transactions"),
        };
        let text = format!(
            "process {} died with the database open{inside}{what}; what it had committed is kept, \
             and it holds up nobody any more",
            held.who
        );
        self.event(&events::MEMBER_DIED, text)
            .number("dead_pid", held.who.pid.into())
            .number("transactions", held.transactions)
            .said("held", held.say())
            .note();
    }

    /// Notes that a call of this process has failed with this code of SQLite's.
    pub fn note_failure(&self, code: i32, text: &str) {
        if code & 0xff == SQLITE_FULL && !self.region().has_space_to_spare() {
            self.note_scarce_disk();
        }
        if !self.note_if_stopped(text)
            && let Some(event) = failed(code, |kind| self.event(kind, text))
        {
            event.note();
        }
    }

    /// Notes once that the log has stopped, if it has. `met`: the error by which the caller knows.
    fn note_if_stopped(&self, met: &str) -> bool {
        let Err(why) = self.log_shared().check(&log_path(self.path())) else { return false };
        if !self.is_stop_noted.swap(true, Relaxed) {
            let cause = match (self.log_shared().is_lost(), why.errno()) {
                (true, _) => "log-removed",
                (_, 0) => "internal-error",
                _ => "failed-write-or-sync",
            };
            let event = self.event(&events::LOG_STOPPED, why.to_string());
            event.said("cause", cause).number("errno", why.errno() as u64).said("met", met).note();
        }
        true
    }

    /// Notes that a merge has failed, which is tried again. A lock that another connection has is no
    /// failure.
    pub(crate) fn note_merge_failure(&self, e: &Error) {
        if e.is_busy() || matches!(e, Error::Interrupted) || self.note_if_stopped(&e.to_string()) {
            return;
        }
        let text = || format!("a merge has failed, and is tried again: {e}");
        if let Some(event) = self.event_if_due(&events::MERGE_FAILED, text) {
            event.note();
        }
    }

    /// Notes what the last close could not do.
    pub(crate) fn note_left_open(&self, e: &Error) {
        let _ = self.note_if_stopped(&e.to_string());
        let text = format!(
            "the last process has closed it, and could not bring it to rest; the next one to open \
             it does: {e}"
        );
        self.event(&events::LEFT_OPEN, text).note();
    }

    /// Notes how many bytes of the base's WAL a checkpoint has left, and for how long that has been
    /// so. The caller has the right to merge.
    pub(crate) fn note_checkpoint(&self, left_bytes: u64) {
        let c = self.control();
        c.wal_bytes.store(left_bytes, Relaxed);
        // Relaxed: only the holder of the right changes it.
        let (now, since) = (unix_ms(), c.wal_held_since_ms.load(Relaxed));
        if left_bytes == 0 || since == 0 {
            c.wal_held_since_ms.store(if left_bytes == 0 { 0 } else { now }, Relaxed);
            return;
        }
        let held_ms = now.saturating_sub(since);
        if held_ms < shortened(STARVED_MS) {
            return;
        }
        let (reader, age_ms) = self.slots.oldest_reader().unwrap_or_default();
        let text = || {
            let limit = self.wal_limit_bytes(None);
            let seconds = held_ms / 1000;
            let by = match reader.pid {
                0 => "readers that are not members of the session".into(),
                _ => format!("process {reader}, which has been reading for {} s", age_ms / 1000),
            };
            format!(
                "the WAL could not be brought into the database file for {seconds} s: it has \
                 {left_bytes} bytes of {limit} (PRAGMA plait_wal_limit), and is kept by {by}"
            )
        };
        if let Some(event) = self.event_if_due(&events::CHECKPOINT_STARVED, text) {
            let event = event.number("seconds", held_ms / 1000).number("wal_bytes", left_bytes);
            let event = event.number("reader_seconds", age_ms / 1000);
            event.process(["reader_pid", "reader"], reader).note();
        }
    }

    /// Notes that `who` holds `what` and has made no progress for so long.
    pub(crate) fn note_stall(&self, who: Who, what: &str, waited: Duration) {
        let ms = waited.as_millis() as u64;
        let text = || {
            format!(
                "process {who} holds {what} and has made no progress for {ms} ms: it is stopped \
                 or gets no processor time"
            )
        };
        if let Some(event) = self.event_if_due(&events::PROCESS_STALLED, text) {
            let event = event.said("held", what).number("waited_ms", ms);
            event.process(["stalled_pid", "stalled"], who).note();
        }
    }

    /// True if disk space is scarce, which is noted.
    pub(crate) fn is_disk_space_scarce(&self) -> bool {
        let is_scarce = self.generations.is_disk_space_scarce();
        if is_scarce {
            self.note_scarce_disk();
        }
        is_scarce
    }

    fn note_scarce_disk(&self) {
        // Each transaction comes here while that lasts: one of a minute asks how much is left.
        if !events::DISK_NEARLY_FULL.is_due(&self.control().noted_ms) {
            return;
        }
        let free = self.region().free_bytes();
        let text = format!(
            "the disk has {} MiB left; merges are made earlier, to need less of it; a session \
             needs 60 MiB, and more while readers hold merges up",
            free >> 20
        );
        self.event(&events::DISK_NEARLY_FULL, text).number("free_bytes", free).note();
    }

    /// Looks for transactions that are open for long, if no process has looked in this minute. `now`:
    /// the time at which the caller's own has begun.
    #[inline]
    pub(crate) fn look_for_long(&self, now: u64) {
        // Relaxed: a hint; `is_due` decides. A clock that was set back makes it a long time.
        if now.wrapping_sub(self.control().looked_ms.load(Relaxed)) >= shortened(EVERY_MS) {
            self.look_for_long_now();
        }
    }

    #[cold]
    fn look_for_long_now(&self) {
        if !is_due(&self.control().looked_ms, EVERY_MS) {
            return;
        }
        let (now, long) = (unix_ms(), shortened(LONG_MS));
        for (index, slot) in self.slots.in_use() {
            let state = slot.state.load(Relaxed);
            if state == txn_state::IDLE && slot.pin_low.load(Acquire) == NO_PIN {
                continue;
            }
            // Relaxed: the transaction may end, and another begin, at any moment; then it is young.
            let started = slot.started_ms.load(Relaxed);
            let noted = slot.noted_ms.load(Relaxed);
            let since = if noted > started { noted } else { started };
            if now.saturating_sub(started) >= long && now.saturating_sub(since) >= long {
                slot.noted_ms.store(now, Relaxed);
                self.note_long(self.slots.who_has(index), state, (now - started) / 1000);
            }
        }
    }

    fn note_long(&self, who: Who, state: u32, seconds: u64) {
        let (does, keeps) = match state {
            txn_state::OPTIMISTIC => ("writing, optimistic", "memory, and the WAL"),
            txn_state::QUEUED => ("waiting for the writer's right", "memory, and the WAL"),
            txn_state::WRITER => ("writing", "all other writers, memory, and the WAL"),
            txn_state::EXCLUSIVE => ("exclusive", "all other writers, and merges"),
            _ => ("reading", "memory, and the WAL"),
        };
        let text = format!(
            "a transaction of process {who} is open for {seconds} s ({does}); it keeps {keeps}"
        );
        let event = self.event(&events::LONG_TRANSACTION, text);
        let event = event.number("seconds", seconds).said("state", does);
        event.process(["transaction_pid", "transaction"], who).note();
    }
}

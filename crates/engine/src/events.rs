//! Events: what happens to a database, for whoever looks after it.
//!
//! A process dies, a reader keeps the WAL for an hour, the log stops: most of that fails no call
//! that anybody sees. An event is *noted* where it happens and *written* later.
//!
//! ```text
//! noted    anywhere, with locks and rights held, by the thread that merges too: into the queue of
//!          the process, without a system call
//! written  by a thread of the program, at the end of a transaction, a failed call, a close:
//!          to SQLite's error log (`SQLITE_CONFIG_LOG`), and to where PLAIT_EVENTS says (sink.rs)
//! ```
//!
//! Invariants
//! - EVENT-1 A thread writes no event while it is in a call of the engine ([`write`]), or while a
//!   transaction of the connection writes (`plWriteEvents` in csrc/message.c). So a disk that does
//!   not answer or a slow callback holds up the connection that writes, and a thread that is killed
//!   there leaves nothing. The thread that merges writes none: the program may wait for it with a
//!   lock that its callback takes.
//! - EVENT-2 The queue belongs to one process. Its mutex is held for a push or a take, with no other
//!   lock taken under it.
//! - EVENT-3 A call with nothing to write pays one load for it ([`are_waiting`]).
//! - EVENT-4 An event that cannot be written is lost, and fails no call. The process says so once in
//!   the error log.
//! - EVENT-5 A file gets each event by one write at its end, from any number of processes, which
//!   share no lock. It is opened and closed for each, so it may be renamed or removed at any time.
//!   Whoever finds the last line without its end ends it; if another process was only about to, a
//!   line is empty.
//! - EVENT-6 An event of a recurring kind is noted once in [`EVERY_MS`] by all members together:
//!   whoever moves the word of its kind in shared memory notes it.
//! - EVENT-7 A child made by fork writes no event of its parent.
//! - EVENT-8 Names of kinds are stable: programs look for them. `docs/operate.md` lists them, and
//!   `docs/runbook.md` says what to do.
//!
//! Deliberately absent: a thread of its own, which programs that count their threads, fork, or
//! limit their memory would meet; and a buffer between restarts. What waits when a process is
//! killed is lost; what it has done to others, they note.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::BaseOpener;
use crate::shm::fork::PerFork;
use crate::shm::layout::RECURRING_EVENTS;
use crate::shm::process::Who;
use crate::sync::caller::{self, Uncancelled};
use crate::sync::clock::unix_ms;

mod line;
mod sink;

pub use sink::has_raised_rights;

/// Least time between two events of a recurring kind.
pub const EVERY_MS: u64 = 60_000;
/// Events that wait at most.
const WAITING_MAX: usize = 256;

/// SQLite's codes for its error log.
const SQLITE_NOTICE: i32 = 27;
const SQLITE_NOTICE_RECOVER_WAL: i32 = SQLITE_NOTICE | 1 << 8;
const SQLITE_WARNING: i32 = 28;
const SQLITE_IOERR: i32 = 10;

/// How an event is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// As it should be.
    Notice,
    /// Somebody should look.
    Warning,
    /// Programs fail.
    Error,
}

impl Severity {
    /// Its name in lines.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// A kind of event.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name (EVENT-8).
    pub name: &'static str,
    /// How it is to be taken.
    pub severity: Severity,
    /// SQLite's code for the error log; `None` if SQLite itself logs the statement that has failed.
    pub code: Option<i32>,
    /// Its word in shared memory, if it recurs (EVENT-6).
    place: Option<usize>,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $severity:ident, $code:expr, $place:expr;)*) => {
        $(
            $(#[$doc])*
            pub const $id: Kind =
                Kind { name: $name, severity: Severity::$severity, code: $code, place: $place };
        )*
        /// All kinds.
        pub const ALL: &[Kind] = &[$($id),*];
    };
}

kinds! {
    /// The first process has opened a database at rest.
    SESSION_BEGAN = "session-began", Notice, Some(SQLITE_NOTICE), None;
    /// The first process has found what dead ones had left, and nothing of it is lost.
    RECOVERED = "recovered", Notice, Some(SQLITE_NOTICE_RECOVER_WAL), None;
    /// The last process has closed the database, which is at rest.
    SESSION_ENDED = "session-ended", Notice, Some(SQLITE_NOTICE), None;
    /// The last process has closed the database, and could not bring it to rest.
    LEFT_OPEN = "left-open", Warning, Some(SQLITE_WARNING), None;
    /// A log that belongs to another file was found, and has another name now.
    LOG_PUT_ASIDE = "log-put-aside", Warning, Some(SQLITE_WARNING), None;
    /// A process has died with the database open, and another has cleaned up after it.
    MEMBER_DIED = "member-died", Warning, Some(SQLITE_WARNING), None;
    /// The log has stopped: no transaction of any process is done.
    LOG_STOPPED = "log-stopped", Error, Some(SQLITE_IOERR), None;
    /// A call has failed for a reason that somebody has to mend.
    FAILED = "failed", Error, None, None;
    /// A merge has failed. It is tried again.
    MERGE_FAILED = "merge-failed", Warning, Some(SQLITE_WARNING), Some(0);
    /// Readers keep checkpoints from bringing the base's WAL into the file.
    CHECKPOINT_STARVED = "checkpoint-starved", Warning, Some(SQLITE_WARNING), Some(1);
    /// The disk is nearly full.
    DISK_NEARLY_FULL = "disk-nearly-full", Warning, Some(SQLITE_WARNING), Some(2);
    /// A process stands still in the middle of what others wait for.
    PROCESS_STALLED = "process-stalled", Warning, Some(SQLITE_WARNING), Some(3);
    /// A transaction is open for an hour, or another hour.
    LONG_TRANSACTION = "long-transaction", Warning, Some(SQLITE_WARNING), None;
    /// Events were lost: too many waited.
    EVENTS_LOST = "events-lost", Warning, Some(SQLITE_WARNING), None;
}

impl Kind {
    /// True for one of the processes that meet the event now (EVENT-6); always for a kind that does
    /// not recur.
    pub(crate) fn is_due(&self, noted_ms: &[AtomicU64; RECURRING_EVENTS]) -> bool {
        self.place.is_none_or(|place| is_due(&noted_ms[place], EVERY_MS))
    }
}

/// True for one of those that ask at least `every_ms` after `word` was last moved. A clock that was
/// set back counts as such a time.
pub(crate) fn is_due(word: &AtomicU64, every_ms: u64) -> bool {
    let (now, before) = (unix_ms(), word.load(Relaxed));
    // Relaxed: it chooses one of those that come together.
    now.abs_diff(before) >= shortened(every_ms)
        && word.compare_exchange(before, now, Relaxed, Relaxed).is_ok()
}

/// The time after which something is an event. In a build with crash points PLAIT_HASTE divides it,
/// for tests.
pub(crate) fn shortened(ms: u64) -> u64 {
    #[cfg(feature = "crash-points")]
    {
        static HASTE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
        let asked = || std::env::var("PLAIT_HASTE").ok()?.parse().ok();
        ms / *HASTE.get_or_init(|| asked().unwrap_or(1))
    }
    #[cfg(not(feature = "crash-points"))]
    ms
}

/// A detail of an event, for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
    /// A process, whose name is looked up when the event is written.
    Name(Who),
}

/// What has happened.
pub struct Event {
    kind: &'static Kind,
    at_ms: u64,
    database: PathBuf,
    opener: Arc<dyn BaseOpener>,
    text: String,
    details: Vec<(&'static str, Detail)>,
}

impl Event {
    /// An event of the database at `path`, whose error log `opener` knows.
    #[must_use = "it is noted by `note`"]
    pub fn new(
        kind: &'static Kind,
        path: &Path,
        opener: &Arc<dyn BaseOpener>,
        text: impl Into<String>,
    ) -> Event {
        let (database, opener) = (path.to_owned(), opener.clone());
        Event { kind, at_ms: unix_ms(), database, opener, text: text.into(), details: Vec::new() }
    }

    /// Adds a number.
    #[must_use = "it is noted by `note`"]
    pub fn number(mut self, name: &'static str, number: u64) -> Event {
        self.details.push((name, Detail::Number(number)));
        self
    }

    /// Adds a text.
    #[must_use = "it is noted by `note`"]
    pub fn said(mut self, name: &'static str, text: impl Into<String>) -> Event {
        self.details.push((name, Detail::Text(text.into())));
        self
    }

    /// Adds a process: its id, and its name.
    pub(crate) fn process(mut self, [id, name]: [&'static str; 2], who: Who) -> Event {
        self.details.push((name, Detail::Name(who)));
        self.number(id, who.pid.into())
    }

    /// Puts it into the queue. It is written as EVENT-1 says.
    pub fn note(self) {
        let mut queue = queue();
        match queue.waiting.len() < WAITING_MAX {
            true => queue.waiting.push(self),
            false => queue.lost += 1,
        }
        // Relaxed: whoever finds it set takes the mutex.
        WAITING.store(true, Relaxed);
    }

    fn write(&self) {
        if let Some(code) = self.kind.code {
            self.opener.tell(code, &line::for_people(self));
        }
        if let Err(why) = sink::write(self)
            && !IS_SAID.swap(true, Relaxed)
        {
            self.opener.tell(SQLITE_WARNING, &format!("events are not written: {why}"));
        }
    }
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Event>,
    lost: u64,
}

/// EVENT-7: a child's own queue is empty.
static QUEUE: PerFork<Mutex<Queue>> = PerFork::new();
/// Events may wait.
static WAITING: AtomicBool = AtomicBool::new(false);
/// The process has said that events cannot be written (EVENT-4).
static IS_SAID: AtomicBool = AtomicBool::new(false);

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if events may wait (EVENT-3).
#[inline(always)]
pub fn are_waiting() -> bool {
    // Relaxed: an event that another thread notes now is written at the end of its call.
    WAITING.load(Relaxed)
}

/// Writes what waits, in the order in which it was noted, unless this thread is in a call of the
/// engine (EVENT-1), or in this function already, and its callback has called SQLite.
pub fn write() {
    if caller::is_in_call() {
        return;
    }
    let _uncancelled = Uncancelled::begin();
    let Queue { mut waiting, lost } = {
        let mut queue = queue();
        WAITING.store(false, Relaxed);
        std::mem::take(&mut *queue)
    };
    if let Some(last) = waiting.last().filter(|_| lost > 0) {
        let text = format!("{lost} events that came after these were not written: too many waited");
        let event = Event::new(&EVENTS_LOST, &last.database, &last.opener, text);
        waiting.push(event.number("lost", lost));
    }
    for event in &waiting {
        event.write();
    }
}

#[cfg(test)]
mod tests;

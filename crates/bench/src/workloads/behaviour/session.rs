//! A connection in a thread of its own, asked step by step, until it answers or is seen to wait.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::waiting::Thread;
use crate::engines::catalogue::Kind;
use crate::engines::{Begin, Failure, Outcome, Refusal, Settings, Sql, Waits};

/// How long opening may take, and a step that neither ends nor is seen to wait: only what hangs takes that long.
const HUNG: Duration = Duration::from_secs(60);
/// How often a session is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often in a row it must be seen waiting to be said to wait. An engine may wait for a thread of its own for a moment.
const SIGHTINGS: u32 = 30;
/// How often in a row for a refusal to be one after a wait.
const SIGHTINGS_OF_A_WAIT: u32 = 3;
/// Sessions of a server that wait for another.
const WAITING_IN_THE_SERVER: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted";

/// A step of a session. In texts `{a}` and `{b}` stand for the test's tables.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// BEGIN in one of its ways.
    Begin(Begin),
    /// A statement that changes something.
    Run(&'static str),
    /// A query for one number.
    Ask(&'static str),
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
}

/// How a session waited before it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Its busy handler was not called, and it was not seen to wait.
    Not,
    /// Its busy handler was called and had no time left.
    Asked,
    /// It slept in its busy handler.
    InTheHandler,
    /// It was seen to wait in the engine.
    InTheEngine,
}

/// What a step led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done; a query's number.
    Done(Option<i64>),
    /// It was refused.
    Refused {
        /// How much must be repeated, as the suite reads the code.
        refusal: Refusal,
        /// The engine's text.
        text: String,
        /// How it waited before.
        waited: Waited,
    },
    /// The engine does not know it, or failed.
    Failed(String),
    /// No answer yet.
    Waits,
}

impl Reply {
    /// The same, of a step in which the session was seen to wait or not.
    fn seen(self, waiting: bool) -> Self {
        match self {
            Self::Refused { refusal, text, waited: Waited::Not } if waiting => {
                Self::Refused { refusal, text, waited: Waited::InTheEngine }
            }
            reply => reply,
        }
    }

    /// Whether it is done.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done(None) => write!(f, "done"),
            Self::Done(Some(number)) => write!(f, "sees {number}"),
            Self::Waits => write!(f, "waits"),
            Self::Failed(text) => write!(f, "fails: {text}"),
            Self::Refused { refusal, text, waited } => {
                let kind = match refusal {
                    Refusal::Busy => "BUSY",
                    Refusal::Conflict => "conflict",
                    Refusal::Deadlock => "deadlock",
                };
                match waited {
                    Waited::Not if *refusal == Refusal::Busy => {
                        write!(f, "{kind} at once without the busy handler, {text}")
                    }
                    Waited::Not | Waited::Asked => write!(f, "{kind} at once, {text}"),
                    Waited::InTheHandler => write!(f, "{kind} after the busy handler, {text}"),
                    Waited::InTheEngine => write!(f, "{kind} after a wait, {text}"),
                }
            }
        }
    }
}

/// A session.
pub struct Session {
    to: Sender<Step>,
    from: Receiver<Reply>,
    /// Whether a step has been given that has no reply yet.
    waits: bool,
    /// Whether it was seen to wait in that step.
    seen: bool,
    thread: Thread,
    /// A session of the same server that tells who waits, where a thread does not show it.
    observer: Option<Box<Session>>,
}

impl Session {
    /// Opens the store in a directory and connects.
    pub fn start(
        kind: &Kind,
        directory: &Path,
        settings: &Settings,
        number: usize,
    ) -> Outcome<Self> {
        let mut session = Self::open(kind, directory, settings, number)?;
        if matches!(kind, Kind::Postgres { .. }) {
            session.observer = Some(Box::new(Self::open(kind, directory, settings, number)?));
        }
        Ok(session)
    }

    fn open(kind: &Kind, directory: &Path, settings: &Settings, number: usize) -> Outcome<Self> {
        let (to, steps) = channel();
        let (replies, from) = channel();
        let (opened, is_open) = channel();
        let (kind, directory, settings) = (kind.clone(), directory.to_owned(), settings.clone());
        let thread = Thread::default();
        let own = thread.clone();
        std::thread::spawn(move || {
            own.is_this();
            let served = serve(&kind, &directory, &settings, number, &opened, &steps, &replies);
            // Nobody listens when the session was opened in time: what came later stands in the replies.
            let _ = opened.send(served);
        });
        is_open
            .recv_timeout(HUNG)
            .unwrap_or_else(|_| Err(anyhow!("a session did not open").into()))?;
        Ok(Self { to, from, waits: false, seen: false, thread, observer: None })
    }

    /// Does a step, or is seen to wait.
    pub fn does(&mut self, step: Step) -> Reply {
        match self.gives(step) {
            Ok(()) => self.watch(HUNG, true),
            Err(reply) => reply,
        }
    }

    /// Does a step, or waits although there was a time in which it should have been refused.
    pub fn does_within(&mut self, step: Step, limit: Duration) -> Reply {
        match self.gives(step) {
            Ok(()) => self.watch(limit, false),
            Err(reply) => reply,
        }
    }

    /// What a step that waits leads to in the end.
    pub fn settles(&mut self, limit: Duration) -> Reply {
        if self.waits { self.watch(limit, false) } else { Reply::Done(None) }
    }

    fn gives(&mut self, step: Step) -> Result<(), Reply> {
        if self.waits {
            return Err(Reply::Waits);
        }
        if self.to.send(step).is_err() {
            return Err(Reply::Failed("the session is gone".to_owned()));
        }
        (self.waits, self.seen) = (true, false);
        Ok(())
    }

    /// The reply, or that it waits: as soon as that is seen, or when a time is over.
    fn watch(&mut self, limit: Duration, until_seen: bool) -> Reply {
        let begun = Instant::now();
        let (mut sightings, mut waits) = (0, false);
        loop {
            match self.from.recv_timeout(LOOK_EVERY.min(limit)) {
                Ok(reply) => {
                    self.waits = false;
                    return reply.seen(self.seen);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Reply::Failed("the session is gone".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            sightings = if self.is_waiting() { sightings + 1 } else { 0 };
            self.seen |= sightings >= SIGHTINGS_OF_A_WAIT;
            waits |= sightings >= SIGHTINGS;
            match () {
                () if waits && until_seen => return Reply::Waits,
                () if begun.elapsed() < limit => {}
                () if waits || self.seen => return Reply::Waits,
                () => {
                    let limit = limit.as_secs();
                    let text = format!("neither an answer nor a wait was seen within {limit} s");
                    return Reply::Failed(text);
                }
            }
        }
    }

    /// Whether it waits for somebody, just now.
    fn is_waiting(&mut self) -> bool {
        match &mut self.observer {
            None => self.thread.waits_now(),
            Some(observer) => {
                let asked = observer.gives(Step::Ask(WAITING_IN_THE_SERVER));
                let reply = asked.map(|()| observer.from.recv_timeout(HUNG));
                observer.waits = false;
                matches!(reply, Ok(Ok(Reply::Done(Some(waiting)))) if waiting > 0)
            }
        }
    }
}

fn serve(
    kind: &Kind,
    directory: &Path,
    settings: &Settings,
    number: usize,
    opened: &Sender<Outcome<()>>,
    steps: &Receiver<Step>,
    replies: &Sender<Reply>,
) -> Outcome<()> {
    let engine = kind.load()?;
    let store = engine.open(directory, settings)?;
    let mut sql = store.sql()?;
    // Looked at once before a test, so that reading the schema is no part of it.
    for table in ["a", "b"] {
        let first = sql.prepare(&format!("SELECT n FROM {table}{number} WHERE id=1"))?;
        sql.query(first, &[], &mut |_| ())?;
    }
    if opened.send(Ok(())).is_err() {
        return Ok(());
    }
    while let Ok(step) = steps.recv() {
        let before = sql.waits();
        let reply = match act(sql.as_mut(), step, number) {
            Ok(number) => Reply::Done(number),
            Err(Failure::Refused(refusal, text)) => Reply::Refused {
                refusal,
                text: engines_own(&text),
                waited: waited(before, sql.waits()),
            },
            Err(failure) => Reply::Failed(engines_own(&failure.to_string())),
        };
        if replies.send(reply).is_err() {
            break;
        }
    }
    sql.rollback()
}

/// How the busy handler waited between two counts.
fn waited(before: Waits, after: Waits) -> Waited {
    if after.busy_handler_slept_s > before.busy_handler_slept_s {
        Waited::InTheHandler
    } else if after.busy_handler_calls > before.busy_handler_calls {
        Waited::Asked
    } else {
        Waited::Not
    }
}

/// The engine's words, without the statement that stands before them, and without numbers that differ each time
/// (processes, transactions, milliseconds), so that the same answer is the same in each trial.
fn engines_own(text: &str) -> String {
    let text = text.lines().next().unwrap_or("");
    let text = text.rsplit_once(": ").map_or(text, |(_, own)| own).trim();
    let (words, code) = text.rsplit_once(" (").unwrap_or((text, ""));
    let mut own = String::new();
    for character in words.chars() {
        if !character.is_ascii_digit() {
            own.push(character);
        } else if !own.ends_with('N') {
            own.push('N');
        }
    }
    if code.is_empty() { format!("“{own}”") } else { format!("“{own}” ({code}") }
}

fn act(sql: &mut dyn Sql, step: Step, number: usize) -> Outcome<Option<i64>> {
    let named = |text: &str| {
        text.replace("{a}", &format!("a{number}")).replace("{b}", &format!("b{number}"))
    };
    match step {
        Step::Begin(begin) => sql.begin(begin)?,
        Step::Run(text) => {
            let statement = sql.prepare(&named(text))?;
            sql.execute(statement, &[])?;
        }
        Step::Ask(text) => {
            let statement = sql.prepare(&named(text))?;
            let mut answer = None;
            sql.query(statement, &[], &mut |row| answer = Some(row.int(0)))?;
            return Ok(answer);
        }
        Step::Commit => sql.commit()?,
        Step::Rollback => sql.rollback()?,
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::engines_own;

    #[test]
    fn engines_are_quoted_without_what_differs_each_time() {
        let plait = "BEGIN: process 7112 holds the right (waited 100 ms); retry (code 5)";
        assert_eq!(engines_own(plait), "“process N holds the right (waited N ms); retry” (code 5)");
        let postgres = "UPDATE a: ERROR:  deadlock detected\nDETAIL:  Process 12 waits: 13";
        assert_eq!(engines_own(postgres), "“deadlock detected”");
    }
}

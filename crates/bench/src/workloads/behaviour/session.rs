//! A connection in a thread of its own, asked step by step and never waited for longer than was said.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use crate::engines::catalogue::Kind;
use crate::engines::{Begin, Failure, Outcome, Refusal, Settings, Sql};

/// How long a session may take for a step before it is said to wait.
pub const PATIENCE: Duration = Duration::from_millis(250);
/// How long opening may take, and a step that nothing can keep waiting.
const LONG: Duration = Duration::from_secs(10);

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
        /// How long it took.
        after: Duration,
        /// Calls of the busy handler in that time.
        calls: u64,
    },
    /// The engine does not know it, or failed.
    Failed(String),
    /// No answer yet.
    Waits,
}

impl Reply {
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
            Self::Refused { refusal, text, after, calls } => {
                let kind = match refusal {
                    Refusal::Busy => "BUSY",
                    Refusal::Conflict => "conflict",
                    Refusal::Deadlock => "deadlock",
                };
                // Not the exact time: answers of several trials are to be the same if the engine does the same.
                match (after.as_millis(), calls) {
                    (0..100, 0) if *refusal == Refusal::Busy => {
                        write!(f, "{kind} at once without the busy handler, {text}")
                    }
                    (0..100, _) => write!(f, "{kind} at once, {text}"),
                    (ms, 0) => write!(f, "{kind} after about {} ms, {text}", (ms + 50) / 100 * 100),
                    (ms, _) => write!(
                        f,
                        "{kind} after about {} ms in the busy handler, {text}",
                        (ms + 50) / 100 * 100
                    ),
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
}

impl Session {
    /// Opens the store in a directory and connects.
    pub fn start(
        kind: &Kind,
        directory: &Path,
        settings: &Settings,
        number: usize,
    ) -> Outcome<Self> {
        let (to, steps) = channel();
        let (replies, from) = channel();
        let (opened, is_open) = channel();
        let (kind, directory, settings) = (kind.clone(), directory.to_owned(), settings.clone());
        std::thread::spawn(move || {
            let served = serve(&kind, &directory, &settings, number, &opened, &steps, &replies);
            // Nobody listens when the session was opened in time: what came later stands in the replies.
            let _ = opened.send(served);
        });
        is_open
            .recv_timeout(LONG)
            .unwrap_or_else(|_| Err(anyhow!("a session did not open").into()))?;
        Ok(Self { to, from, waits: false })
    }

    /// Does a step, or waits after [`PATIENCE`].
    pub fn does(&mut self, step: Step) -> Reply {
        self.does_within(step, PATIENCE)
    }

    /// Does a step, or waits after a time.
    pub fn does_within(&mut self, step: Step, limit: Duration) -> Reply {
        if self.waits {
            return Reply::Waits;
        }
        if self.to.send(step).is_err() {
            return Reply::Failed("the session is gone".to_owned());
        }
        self.waits = true;
        self.settles(limit)
    }

    /// What a step that waits leads to in the end.
    pub fn settles(&mut self, limit: Duration) -> Reply {
        match self.from.recv_timeout(limit) {
            Ok(reply) => {
                self.waits = false;
                reply
            }
            Err(RecvTimeoutError::Timeout) => Reply::Waits,
            Err(RecvTimeoutError::Disconnected) => Reply::Failed("the session is gone".to_owned()),
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
        let begun = Instant::now();
        let calls_before = sql.waits().busy_handler_calls;
        let reply = match act(sql.as_mut(), step, number) {
            Ok(number) => Reply::Done(number),
            Err(Failure::Refused(refusal, text)) => Reply::Refused {
                refusal,
                text: engines_own(&text),
                after: begun.elapsed(),
                calls: sql.waits().busy_handler_calls - calls_before,
            },
            Err(failure) => Reply::Failed(engines_own(&failure.to_string())),
        };
        if replies.send(reply).is_err() {
            break;
        }
    }
    sql.rollback()
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

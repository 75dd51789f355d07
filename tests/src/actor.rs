//! One connection that takes statements one by one, in a thread or in a process of its own.
//!
//! A test lets several actors take turns and so writes down one exact interleaving. [`Actor::send`] starts a statement
//! and [`Actor::finish`] awaits its end, so a test can also tell that an actor waits.
//!
//! Messages are JSON, one per line, over a pipe; in a thread the same messages go through channels.

use crate::place::Place;
use crate::sqlite::{Connection, SqlError};
use crate::subject::Subject;
use crate::value::Value;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long a test awaits an answer before it calls it a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// What an actor can be told.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Command {
    Run(String),
    BusyTimeout(Duration),
    OpenCursor { name: String, sql: String },
    StepCursor { name: String, rows: usize },
    CloseCursor { name: String },
    Close,
    Open(PathBuf),
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// All rows of all statements up to the error, if there was one.
    pub rows: Vec<Vec<Value>>,
    /// The error, if there was one.
    pub error: Option<SqlError>,
    /// Rows changed by the last statement.
    pub changes: i64,
    /// Rowid of the last insert.
    pub last_insert_rowid: i64,
    /// How long it took.
    pub took: Duration,
    /// Whether a transaction is open now.
    pub in_transaction: bool,
}

/// The side of an actor that owns the connection.
struct Stage {
    subject: Subject,
    connection: Option<Connection>,
    cursors: HashMap<String, crate::sqlite::Statement>,
}

impl Stage {
    fn new(subject: Subject) -> Self {
        Self { subject, connection: None, cursors: HashMap::new() }
    }

    fn serve(&mut self, command: Command) -> Reply {
        let start = Instant::now();
        let mut rows = Vec::new();
        let error = self.attempt(command, &mut rows).err();
        let connection = self.connection.as_ref();
        Reply {
            rows,
            error,
            changes: connection.map_or(0, Connection::changes),
            last_insert_rowid: connection.map_or(0, Connection::last_insert_rowid),
            took: start.elapsed(),
            in_transaction: connection.is_some_and(|connection| !connection.autocommit()),
        }
    }

    fn attempt(&mut self, command: Command, rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
        match command {
            Command::Open(path) => {
                self.connection = Some(self.subject.open(&path)?);
                Ok(())
            }
            Command::Close => {
                self.cursors.clear();
                self.connection.take().map_or(Ok(()), Connection::close)
            }
            Command::Run(sql) => {
                self.connection().each_row(&sql, &mut |statement| rows.push(statement.row()))
            }
            Command::BusyTimeout(timeout) => self.connection().busy_timeout(timeout),
            Command::OpenCursor { name, sql } => {
                let cursor = self.connection().prepare(&sql)?;
                self.cursors.insert(name, cursor);
                Ok(())
            }
            Command::StepCursor { name, rows: count } => {
                let cursor = self.cursors.get_mut(&name).expect("the test opened this cursor");
                for _ in 0..count {
                    if cursor.step()? == crate::sqlite::Step::Done {
                        break;
                    }
                    rows.push(cursor.row());
                }
                Ok(())
            }
            Command::CloseCursor { name } => {
                self.cursors.remove(&name);
                Ok(())
            }
        }
    }

    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("the test opened this actor's database")
    }
}

/// Environment variable of a process whose SQLite is configured for a program of one thread, which it is.
pub const ONE_THREAD: &str = "PLAIT_TEST_ONE_THREAD";

/// Environment variable of a process whose SQLite writes its error log there, a line `CODE TEXT` each.
pub const ERROR_LOG: &str = "PLAIT_TEST_ERROR_LOG";

/// Serves one actor over standard input and output; the body of `worker actor`.
pub fn serve_process(subject: Subject) -> anyhow::Result<()> {
    if std::env::var_os(ONE_THREAD).is_some() {
        subject.library().configure_for_one_thread();
    }
    if std::env::var_os(ERROR_LOG).is_some() {
        subject.library().log_to(crate::os::append_to_error_log);
    }
    let mut stage = Stage::new(subject);
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let command = serde_json::from_str(&line?)?;
        let reply = serde_json::to_string(&stage.serve(command))?;
        writeln!(output, "{reply}")?;
        output.flush()?;
    }
    Ok(())
}

enum Link {
    Thread { commands: Sender<Command> },
    Process { child: Child },
}

/// A connection in a thread or process of its own.
pub struct Actor {
    name: String,
    link: Link,
    replies: Receiver<Reply>,
}

impl Actor {
    /// Starts an actor and opens the database.
    ///
    /// # Panics
    /// If it cannot be started or the database not opened.
    #[must_use]
    pub fn start(place: Place, name: &str, subject: &Subject, database: &Path) -> Self {
        let mut actor = Self::idle(place, name, subject);
        actor.open(database).unwrap_or_else(|error| panic!("{name} cannot open: {error}"));
        actor
    }

    /// As [`Self::start`], in a process with one more environment variable.
    ///
    /// # Panics
    /// If it cannot be started or the database not opened.
    #[must_use]
    pub fn start_with_environment(
        name: &str,
        subject: &Subject,
        database: &Path,
        variable: (&str, &str),
    ) -> Self {
        let (answer, replies) = channel();
        let link = start_process(subject, answer, &[variable]);
        let mut actor = Self { name: name.to_owned(), link, replies };
        actor.open(database).unwrap_or_else(|error| panic!("{name} cannot open: {error}"));
        actor
    }

    /// Starts an actor without a database.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn idle(place: Place, name: &str, subject: &Subject) -> Self {
        let (answer, replies) = channel();
        let link = match place {
            Place::Threads => start_thread(subject.clone(), answer),
            Place::Processes => start_process(subject, answer, &[]),
        };
        Self { name: name.to_owned(), link, replies }
    }

    /// Starts an actor without a database in a process with these environment variables.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn in_process_with(name: &str, subject: &Subject, environment: &[(&str, &str)]) -> Self {
        let (answer, replies) = channel();
        let link = start_process(subject, answer, environment);
        Self { name: name.to_owned(), link, replies }
    }

    fn tell(&mut self, command: Command) {
        match &mut self.link {
            Link::Thread { commands } => commands.send(command).expect("the actor's thread lives"),
            Link::Process { child } => {
                let line = serde_json::to_string(&command).expect("a command can be written");
                let input = child.stdin.as_mut().expect("the worker's input is piped");
                writeln!(input, "{line}").and_then(|()| input.flush()).unwrap_or_else(|error| {
                    panic!("{}: the worker process is gone: {error}", self.name)
                });
            }
        }
    }

    /// Opens a database.
    pub fn open(&mut self, database: &Path) -> Result<(), SqlError> {
        self.tell(Command::Open(database.to_owned()));
        self.finish().error.map_or(Ok(()), Err)
    }

    /// Starts to open a database without awaiting its end.
    pub fn send_open(&mut self, database: &Path) {
        self.tell(Command::Open(database.to_owned()));
        self.tell(Command::Run("SELECT count(*) FROM sqlite_schema".to_owned()));
    }

    /// Closes the database.
    pub fn close(&mut self) -> Result<(), SqlError> {
        self.tell(Command::Close);
        self.finish().error.map_or(Ok(()), Err)
    }

    /// Begins to close the database without awaiting the end.
    pub fn send_close(&mut self) {
        self.tell(Command::Close);
    }

    /// Sets the busy timeout.
    pub fn busy_timeout(&mut self, timeout: Duration) {
        self.tell(Command::BusyTimeout(timeout));
        assert_eq!(self.finish().error, None);
    }

    /// Starts statements without awaiting their end.
    pub fn send(&mut self, sql: &str) {
        self.tell(Command::Run(sql.to_owned()));
    }

    /// Awaits the end of what was sent.
    ///
    /// # Panics
    /// If there is no answer for a minute, or the process died.
    pub fn finish(&mut self) -> Reply {
        match self.replies.recv_timeout(PATIENCE) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout) => panic!("{} hangs for {PATIENCE:?}", self.name),
            Err(RecvTimeoutError::Disconnected) => panic!("{} died", self.name),
        }
    }

    /// What came of what was sent, if that is known within `time`.
    ///
    /// # Panics
    /// If the process died.
    pub fn finish_within(&mut self, time: Duration) -> Option<Reply> {
        match self.replies.recv_timeout(time) {
            Ok(reply) => Some(reply),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("{} died", self.name),
        }
    }

    /// Whether what was sent is still unanswered after `time`. An answer that came stays for [`Self::finish`] to see.
    pub fn still_waits_after(&mut self, time: Duration) -> bool {
        match self.replies.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => panic!("{} died", self.name),
            Ok(reply) => {
                eprintln!("{} answered while it should wait: {reply:?}", self.name);
                false
            }
        }
    }

    /// Runs statements and returns what came of them.
    pub fn run(&mut self, sql: &str) -> Reply {
        self.send(sql);
        self.finish()
    }

    /// Runs statements that must succeed and returns their rows.
    ///
    /// # Panics
    /// If they fail.
    #[track_caller]
    pub fn ok(&mut self, sql: &str) -> Vec<Vec<Value>> {
        let reply = self.run(sql);
        if let Some(error) = reply.error {
            panic!("{}: {sql}: {error}", self.name);
        }
        reply.rows
    }

    /// Runs one statement whose result is one integer.
    ///
    /// # Panics
    /// If it fails or gives anything else.
    #[track_caller]
    pub fn integer(&mut self, sql: &str) -> i64 {
        let rows = self.ok(sql);
        match rows.as_slice() {
            [row] if row.len() == 1 => row[0].as_i64().expect("the value is an integer"),
            other => panic!("{}: {sql} gave {other:?}", self.name),
        }
    }

    /// Runs statements that must fail with this primary or extended code, and returns the error.
    ///
    /// # Panics
    /// If they succeed or fail otherwise.
    #[track_caller]
    pub fn fails(&mut self, sql: &str, code: i32) -> SqlError {
        let reply = self.run(sql);
        match reply.error {
            Some(error) if error.extended == code || error.code == code => error,
            Some(error) => panic!("{}: {sql}: expected code {code}, got: {error}", self.name),
            None => panic!("{}: {sql}: expected code {code}, but it succeeded", self.name),
        }
    }

    /// Prepares a named statement that stays open between steps.
    #[track_caller]
    pub fn open_cursor(&mut self, name: &str, sql: &str) {
        self.tell(Command::OpenCursor { name: name.to_owned(), sql: sql.to_owned() });
        assert_eq!(self.finish().error, None);
    }

    /// Steps a named statement up to `rows` times.
    pub fn step_cursor(&mut self, name: &str, rows: usize) -> Reply {
        self.tell(Command::StepCursor { name: name.to_owned(), rows });
        self.finish()
    }

    /// Finalizes a named statement.
    pub fn close_cursor(&mut self, name: &str) {
        self.tell(Command::CloseCursor { name: name.to_owned() });
        self.finish();
    }

    /// Process id of an actor in a process.
    ///
    /// # Panics
    /// If it is a thread.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match &self.link {
            Link::Process { child } => child.id(),
            Link::Thread { .. } => panic!("{} is a thread", self.name),
        }
    }

    /// Waits until an actor in a process has been killed by itself or others, and reaps it.
    ///
    /// # Panics
    /// If it is a thread, or still lives after a minute.
    pub fn await_death(mut self) {
        let Link::Process { child } = &mut self.link else { panic!("{} is a thread", self.name) };
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().expect("the worker can be reaped").is_none() {
            assert!(Instant::now() < deadline, "{} still lives", self.name);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until an actor in a process stands still.
    ///
    /// # Panics
    /// If it is a thread, or still runs after a minute.
    pub fn await_stop(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !crate::os::is_stopped(self.pid()) {
            assert!(Instant::now() < deadline, "{} still runs", self.name);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills an actor in a process with SIGKILL and reaps it.
    ///
    /// # Panics
    /// If it is a thread.
    pub fn kill(mut self) {
        match &mut self.link {
            Link::Process { child } => {
                child.kill().expect("the worker can be killed");
                child.wait().expect("the worker can be reaped");
            }
            Link::Thread { .. } => panic!("{} is a thread", self.name),
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if let Link::Process { child } = &mut self.link {
            drop(child.stdin.take());
            let deadline = Instant::now() + Duration::from_secs(20);
            while Instant::now() < deadline {
                match child.try_wait() {
                    Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                    Ok(Some(_)) | Err(_) => return,
                }
            }
            eprintln!("{}: the worker did not leave; killed", self.name);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start_thread(subject: Subject, answer: Sender<Reply>) -> Link {
    let (commands, inbox) = channel();
    std::thread::spawn(move || {
        let mut stage = Stage::new(subject);
        for command in inbox {
            if answer.send(stage.serve(command)).is_err() {
                break;
            }
        }
    });
    Link::Thread { commands }
}

fn start_process(subject: &Subject, answer: Sender<Reply>, environment: &[(&str, &str)]) -> Link {
    let subject = serde_json::to_string(subject).expect("a subject can be written");
    let program = crate::paths::worker().unwrap_or_else(|error| panic!("{error:#}"));
    let mut child = std::process::Command::new(program)
        .args(["actor", &subject])
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the worker program can be started");
    let output = child.stdout.take().expect("the worker's output is piped");
    std::thread::spawn(move || {
        for line in std::io::BufReader::new(output).lines() {
            let reply = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            let Some(reply) = reply else { break };
            if answer.send(reply).is_err() {
                break;
            }
        }
    });
    Link::Process { child }
}

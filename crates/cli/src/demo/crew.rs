//! The writers of a trial, in threads or in processes: all ready, all started at once, all heard, all closed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::job::{Outcome, Window, Writer};
use super::plan::{Place, Spec};
use crate::os;
use crate::sqlite::Library;

/// Name of the hidden command that is one writer.
pub const WRITER_COMMAND: &str = "demo-writer";

/// What a writer process is told first.
#[derive(Serialize, Deserialize)]
pub struct Orders {
    /// The trial.
    pub spec: Spec,
    /// Its number among the writers.
    pub index: u32,
}

/// Errors are sentences: they cross process borders.
type Result<T> = std::result::Result<T, String>;

/// Writers that have opened the database and wait.
pub enum Crew {
    /// In threads.
    Threads(Vec<Thread>),
    /// In processes.
    Processes(Vec<Process>),
}

impl Crew {
    /// Starts the writers of `spec` and waits until each is ready.
    pub fn ready(library: Library, spec: &Spec) -> Result<Crew> {
        let indices = 0..spec.writers;
        match spec.place {
            Place::Threads => {
                let crew: Result<Vec<_>> =
                    indices.map(|i| Thread::start(library, spec, i)).collect();
                let mut crew = crew?;
                crew.iter_mut().try_for_each(Thread::wait_ready)?;
                Ok(Crew::Threads(crew))
            }
            Place::Processes => {
                let crew: Result<Vec<_>> = indices.map(|i| Process::start(spec, i)).collect();
                let mut crew = crew?;
                crew.iter_mut().try_for_each(Process::wait_ready)?;
                Ok(Crew::Processes(crew))
            }
        }
    }

    /// Lets all of them write during `window` and hears what they did.
    pub fn run(&mut self, window: Window) -> Result<Vec<Outcome>> {
        match self {
            Crew::Threads(crew) => {
                crew.iter_mut().try_for_each(|w| w.go(window))?;
                crew.iter_mut().map(Thread::hear).collect()
            }
            Crew::Processes(crew) => {
                crew.iter_mut().try_for_each(|w| w.go(window))?;
                crew.iter_mut().map(Process::hear).collect()
            }
        }
    }

    /// Lets all of them close the database, and waits until they have.
    pub fn close(self) -> Result<()> {
        match self {
            Crew::Threads(mut crew) => {
                crew.iter_mut().for_each(|w| w.orders = None);
                crew.into_iter().try_for_each(Thread::wait)
            }
            Crew::Processes(mut crew) => {
                crew.iter_mut().for_each(|w| w.orders = None);
                crew.into_iter().try_for_each(Process::wait)
            }
        }
    }
}

const GONE: &str = "a writer ended before it was told to";

/// A writer in a thread.
pub struct Thread {
    orders: Option<SyncSender<Window>>,
    ready: Receiver<Result<()>>,
    outcome: Receiver<Result<Outcome>>,
    handle: JoinHandle<()>,
}

impl Thread {
    fn start(library: Library, spec: &Spec, index: u32) -> Result<Thread> {
        let (orders, window) = sync_channel::<Window>(1);
        let (say_ready, ready) = sync_channel(1);
        let (say_outcome, outcome) = sync_channel(1);
        let spec = spec.clone();
        let body = move || {
            let mut writer = match Writer::new(library, &spec, index) {
                Ok(writer) => writer,
                Err(e) => return drop(say_ready.send(Err(e.to_string()))),
            };
            let _ = say_ready.send(Ok(()));
            if let Ok(window) = window.recv() {
                let _ = say_outcome.send(writer.run(window).map_err(|e| e.to_string()));
            }
            // Returns when the orders are dropped: time to close.
            let _ = window.recv();
        };
        let handle = std::thread::Builder::new()
            .spawn(body)
            .map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Thread { orders: Some(orders), ready, outcome, handle })
    }

    fn wait_ready(&mut self) -> Result<()> {
        self.ready.recv().map_err(|_| GONE.to_owned())?
    }

    fn go(&mut self, window: Window) -> Result<()> {
        let orders = self.orders.as_ref().ok_or(GONE)?;
        orders.send(window).map_err(|_| GONE.to_owned())
    }

    fn hear(&mut self) -> Result<Outcome> {
        self.outcome.recv().map_err(|_| GONE.to_owned())?
    }

    fn wait(self) -> Result<()> {
        self.handle.join().map_err(|_| "a writer panicked".to_owned())
    }
}

/// A writer in a process: it is told its orders, says that it is ready, is told the window, says its outcome, and
/// closes the database when its input ends. One line of JSON each.
pub struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(spec: &Spec, index: u32) -> Result<Process> {
        let fail = |e: std::io::Error| format!("cannot start a writer process: {e}");
        let program = std::env::current_exe().map_err(fail)?;
        let mut child = Command::new(program)
            .arg(WRITER_COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let answers = BufReader::new(answers.ok_or("a writer process has no output")?);
        let mut process = Process { child, orders, answers };
        process.tell(&Orders { spec: spec.clone(), index })?;
        Ok(process)
    }

    fn tell(&mut self, what: &impl Serialize) -> Result<()> {
        let pipe = self.orders.as_mut().ok_or(GONE)?;
        let line = serde_json::to_string(what).map_err(|e| e.to_string())?;
        writeln!(pipe, "{line}").map_err(|_| GONE.to_owned())
    }

    fn answer<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|e| e.to_string())?;
        if line.is_empty() {
            return Err(GONE.to_owned());
        }
        let said: Result<T> = serde_json::from_str(&line).map_err(|e| e.to_string())?;
        said
    }

    fn wait_ready(&mut self) -> Result<()> {
        self.answer()
    }

    fn go(&mut self, window: Window) -> Result<()> {
        self.tell(&window)
    }

    fn hear(&mut self) -> Result<Outcome> {
        self.answer()
    }

    fn wait(mut self) -> Result<()> {
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("a writer process ended with {status}")) }
    }
}

/// The hidden command: this process is one writer.
pub fn be_writer() -> Result<()> {
    os::die_with_parent();
    let orders: Orders = read_line()?;
    let prepared =
        Library::load(&orders.spec.library).map_err(|e| e.to_string()).and_then(|library| {
            Writer::new(library, &orders.spec, orders.index).map_err(|e| e.to_string())
        });
    let mut writer = match prepared {
        Ok(writer) => writer,
        Err(e) => return say(&Result::<()>::Err(e)),
    };
    say(&Result::<()>::Ok(()))?;
    let window: Window = read_line()?;
    say(&writer.run(window).map_err(|e| e.to_string()))?;
    let mut rest = String::new();
    std::io::stdin().read_line(&mut rest).map(drop).map_err(|e| e.to_string())
}

fn read_line<T: for<'a> Deserialize<'a>>() -> Result<T> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| e.to_string())?;
    serde_json::from_str(&line).map_err(|e| e.to_string())
}

/// One line of JSON on standard output.
pub fn say(what: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(what).map_err(|e| e.to_string())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| e.to_string())
}

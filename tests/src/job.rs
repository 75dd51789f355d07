//! Long-running work in threads or processes: the same job, told by the same JSON, in either.
//!
//! A job reports lines while it runs (one JSON value each, written unbuffered, so that what was reported before a
//! SIGKILL is not lost) and ends with one result.

use crate::jobs;
use crate::place::Place;
use crate::subject::Subject;
use anyhow::{Context as _, anyhow, bail};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value as Json;
use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Everything a worker can be asked to do over a database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Runs SQL scripts one after the other, reporting each.
    Script(jobs::script::Script),
    /// Random transactions whose history is written down.
    History(jobs::history::RandomTransactions),
    /// Random transactions on a replica, in the same history.
    ReplicaReader(jobs::replica_reader::ReplicaReader),
    /// Commits numbered pairs of rows and reports each acknowledged commit.
    Pairs(jobs::pairs::Pairs),
    /// Transfers between accounts, entered in a book that can be audited.
    Ledger(jobs::ledger::Ledger),
    /// The same, by several in threads.
    Crew(jobs::ledger::Crew),
    /// Increments one of a few rows for a time.
    Counter(jobs::counter::Counter),
    /// Works on a map of the key-value API.
    Maps(jobs::maps::Maps),
    /// Takes jobs out of a queue.
    Taker(jobs::queue::Taker),
    /// Reads an invariant over and over.
    Reader(jobs::reader::Reader),
    /// Seeds of the differential suite.
    Differential(jobs::differential::Seeds),
    /// Forks while an event waits.
    EventsBesideFork(jobs::events::EventsBesideFork),
    /// Goes on without a log that can be written.
    FailingLog(jobs::failing_log::FailingLog),
    /// Forks with an open connection.
    Fork(jobs::process_rules::Fork),
    /// Drops its locks, and forks.
    ForkWithoutLocks(jobs::process_rules::ForkWithoutLocks),
    /// Forks, and the child meddles with what it has inherited.
    Inherited(jobs::inherited::Inherited),
    /// Works where a system call is refused.
    InSandbox(jobs::process_rules::InSandbox),
    /// Changes its user or its root directory with the database open.
    Daemon(jobs::process_rules::Daemon),
    /// Opens many databases with few descriptors.
    ManyFiles(jobs::process_rules::ManyFiles),
    /// Forks while a merge runs.
    ForksBesideMerges(jobs::process_rules::ForksBesideMerges),
    /// Forks while threads open and close the database.
    ForksBesideOpenings(jobs::process_rules::ForksBesideOpenings),
    /// Opens one database with two copies of the library.
    TwoCopies(jobs::process_rules::TwoCopies),
    /// Reads without the rights to write.
    Stranger(jobs::stranger::Stranger),
    /// Cases in which calls of the engine fail.
    Wholeness(jobs::wholeness::Cases),
}

/// A job: what to do, with which library, on which database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Library and mode.
    pub subject: Subject,
    /// The database.
    pub database: PathBuf,
    /// What to do.
    pub work: Work,
}

/// What a job uses to report and to learn that it should end.
pub struct Reporter {
    sink: Box<dyn Fn(Json) + Send + Sync>,
    stop: Arc<AtomicBool>,
}

impl Reporter {
    /// Reports one line.
    pub fn line(&self, value: impl Serialize) {
        (self.sink)(serde_json::to_value(value).expect("a report can be written as JSON"));
    }

    /// Whether the job has been asked to end early.
    #[must_use]
    pub fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Job {
    fn run(&self, reporter: &Reporter) -> anyhow::Result<Json> {
        match &self.work {
            Work::Script(work) => work.run(self, reporter),
            Work::History(work) => work.run(self, reporter),
            Work::ReplicaReader(work) => work.run(self, reporter),
            Work::Pairs(work) => work.run(self, reporter),
            Work::Ledger(work) => work.run(self, reporter),
            Work::Crew(work) => work.run(self, reporter),
            Work::Counter(work) => work.run(self, reporter),
            Work::Maps(work) => work.run(self, reporter),
            Work::Taker(work) => work.run(self, reporter),
            Work::Reader(work) => work.run(self, reporter),
            Work::Differential(work) => work.run(self, reporter),
            Work::EventsBesideFork(work) => work.run(self),
            Work::FailingLog(work) => work.run(self, reporter),
            Work::Fork(work) => work.run(self),
            Work::ForkWithoutLocks(work) => work.run(self),
            Work::Inherited(work) => work.run(self),
            Work::InSandbox(work) => work.run(self),
            Work::Daemon(work) => work.run(self, reporter),
            Work::ManyFiles(work) => work.run(self),
            Work::ForksBesideMerges(work) => work.run(self),
            Work::ForksBesideOpenings(work) => work.run(self),
            Work::TwoCopies(work) => work.run(self),
            Work::Stranger(work) => work.run(self),
            Work::Wholeness(work) => work.run(self, reporter),
        }
    }

    /// Starts it.
    ///
    /// # Panics
    /// If a worker process cannot be started.
    #[must_use]
    pub fn start(self, place: Place) -> Running {
        self.start_with_environment(place, &[])
    }

    /// Starts it in a process with additional environment variables.
    ///
    /// # Panics
    /// If a worker process cannot be started, or variables are given for a thread.
    #[must_use]
    pub fn start_with_environment(self, place: Place, environment: &[(&str, &str)]) -> Running {
        let (events, inbox) = channel();
        let host = match place {
            Place::Threads => {
                assert!(environment.is_empty(), "a thread has no environment of its own");
                self.start_thread(events)
            }
            Place::Processes => self.start_process(events, environment, &[]),
        };
        Running { host, inbox }
    }

    /// Starts it in a process that is alone in a pid namespace of its own, where its id is 1, as in a container.
    ///
    /// # Panics
    /// If it cannot be started; see [`os::can_have_own_pid_namespace`](crate::os::can_have_own_pid_namespace).
    #[must_use]
    pub fn start_in_own_pid_namespace(self) -> Running {
        let (events, inbox) = channel();
        let host = self.start_process(events, &[], &crate::os::OWN_PID_NAMESPACE);
        Running { host, inbox }
    }

    fn start_thread(self, events: Sender<Event>) -> Host {
        let stop = Arc::new(AtomicBool::new(false));
        let lines = events.clone();
        let reporter = Reporter {
            sink: Box::new(move |line| drop(lines.send(Event::Line(line)))),
            stop: stop.clone(),
        };
        let handle = std::thread::spawn(move || {
            let event = match self.run(&reporter) {
                Ok(result) => Event::Done(result),
                Err(error) => Event::Failed(format!("{error:#}")),
            };
            drop(events.send(event));
        });
        Host::Thread { handle: Some(handle), stop }
    }

    /// `launcher`: a program that starts the worker, and its arguments.
    fn start_process(
        &self,
        events: Sender<Event>,
        environment: &[(&str, &str)],
        launcher: &[&str],
    ) -> Host {
        let job = serde_json::to_string(self).expect("a job can be written");
        let program = crate::paths::worker().unwrap_or_else(|error| panic!("{error:#}"));
        let mut words: Vec<&std::ffi::OsStr> = launcher.iter().map(|word| word.as_ref()).collect();
        words.push(program.as_ref());
        let mut child = std::process::Command::new(words[0])
            .args(&words[1..])
            .arg("job")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the worker program can be started");
        let input = child.stdin.as_mut().expect("the worker's input is piped");
        // A worker that dies at once breaks the pipe; its end is reported when it is awaited.
        let _ = writeln!(input, "{job}").and_then(|()| input.flush());
        let output = child.stdout.take().expect("the worker's output is piped");
        std::thread::spawn(move || {
            for line in std::io::BufReader::new(output).lines() {
                let event = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                let Some(event) = event else { break };
                if events.send(event).is_err() {
                    break;
                }
            }
        });
        Host::Process { child, is_launcher: !launcher.is_empty() }
    }
}

/// Runs the job that standard input holds; the body of `worker job`. Standard input closing asks it to stop.
pub fn serve_process() -> anyhow::Result<()> {
    let mut first = String::new();
    std::io::stdin().lock().read_line(&mut first)?;
    let job: Job = serde_json::from_str(&first).context("standard input holds no job")?;
    let stop = Arc::new(AtomicBool::new(false));
    let forks = matches!(
        job.work,
        Work::EventsBesideFork(_)
            | Work::Fork(_)
            | Work::ForkWithoutLocks(_)
            | Work::ForksBesideMerges(_)
            | Work::ForksBesideOpenings(_)
            | Work::Inherited(_)
    );
    if !forks {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut rest = String::new();
            while std::io::stdin().lock().read_line(&mut rest).is_ok_and(|length| length > 0) {}
            stop.store(true, Ordering::Relaxed);
        });
    }
    let reporter = Reporter { sink: Box::new(|line| write_event(&Event::Line(line))), stop };
    let event = match job.run(&reporter) {
        Ok(result) => Event::Done(result),
        Err(error) => Event::Failed(format!("{error:#}")),
    };
    write_event(&event);
    Ok(())
}

fn write_event(event: &Event) {
    let mut line = serde_json::to_vec(event).expect("an event can be written as JSON");
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    // When nobody reads any more the job runs for nothing and may end as it likes.
    let _ = output.write_all(&line).and_then(|()| output.flush());
}

#[derive(Debug, Serialize, Deserialize)]
enum Event {
    Line(Json),
    Done(Json),
    Failed(String),
}

enum Host {
    Thread {
        handle: Option<JoinHandle<()>>,
        stop: Arc<AtomicBool>,
    },
    /// `is_launcher`: the worker is its only child.
    Process {
        child: Child,
        is_launcher: bool,
    },
}

/// How a job ended.
#[derive(Debug)]
pub enum Ending {
    /// It returned a result.
    Done(Json),
    /// It returned an error.
    Failed(String),
    /// Its process ended without a word: killed, or crashed.
    Died(ExitStatus),
}

/// A job under way.
pub struct Running {
    host: Host,
    inbox: Receiver<Event>,
}

impl Running {
    /// The next reported line, or `None` if none comes within `patience` or the job has ended.
    pub fn next_line<T: DeserializeOwned>(&mut self, patience: Duration) -> Option<T> {
        match self.inbox.recv_timeout(patience) {
            Ok(Event::Line(line)) => {
                Some(serde_json::from_value(line).expect("a line of this job"))
            }
            Ok(Event::Failed(message)) => panic!("a job failed: {message}"),
            Ok(Event::Done(_)) | Err(_) => None,
        }
    }

    /// Asks the job to end soon.
    pub fn stop(&mut self) {
        match &mut self.host {
            Host::Thread { stop, .. } => stop.store(true, Ordering::Relaxed),
            Host::Process { child, .. } => drop(child.stdin.take()),
        }
    }

    /// Process id of a job in a process, as it is known here.
    ///
    /// # Panics
    /// If it is a thread.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match &self.host {
            Host::Process { child, is_launcher: true } => {
                crate::os::only_child(child.id()).unwrap_or_else(|| child.id())
            }
            Host::Process { child, .. } => child.id(),
            Host::Thread { .. } => panic!("the job runs in a thread"),
        }
    }

    /// Kills the job's process with SIGKILL.
    ///
    /// # Panics
    /// If it is a thread.
    pub fn kill(&mut self) {
        match &mut self.host {
            Host::Process { child, .. } => child.kill().expect("the worker can be killed"),
            Host::Thread { .. } => panic!("the job runs in a thread"),
        }
    }

    /// Awaits the end, collecting the lines that were not yet taken.
    pub fn wait<T: DeserializeOwned>(
        mut self,
        patience: Duration,
    ) -> anyhow::Result<(Vec<T>, Ending)> {
        let deadline = Instant::now() + patience;
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(Event::Line(line)) => lines.push(serde_json::from_value(line)?),
                Ok(Event::Done(result)) => return Ok((lines, Ending::Done(result))),
                Ok(Event::Failed(message)) => return Ok((lines, Ending::Failed(message))),
                Err(RecvTimeoutError::Timeout) => bail!("a job hangs: no end after {patience:?}"),
                Err(RecvTimeoutError::Disconnected) => {
                    let Host::Process { child, .. } = &mut self.host else {
                        return Err(anyhow!("a job's thread panicked"));
                    };
                    return Ok((lines, Ending::Died(child.wait()?)));
                }
            }
        }
    }

    /// Awaits the end of a job that must succeed.
    ///
    /// # Panics
    /// If it fails, dies or hangs.
    pub fn result<T: DeserializeOwned>(self, patience: Duration) -> T {
        let (_, ending) = self.wait::<Json>(patience).unwrap_or_else(|error| panic!("{error:#}"));
        match ending {
            Ending::Done(result) => serde_json::from_value(result).expect("a result of this job"),
            Ending::Failed(message) => panic!("a job failed: {message}"),
            Ending::Died(status) => panic!("a worker died: {status}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match &mut self.host {
            Host::Thread { handle, stop } => {
                stop.store(true, Ordering::Relaxed);
                // A thread that hangs is left behind when the test already fails.
                if let Some(handle) = handle.take().filter(|_| !std::thread::panicking()) {
                    drop(handle.join());
                }
            }
            Host::Process { child, .. } => {
                drop(child.stdin.take());
                let deadline = Instant::now() + Duration::from_secs(5);
                while Instant::now() < deadline {
                    match child.try_wait() {
                        Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                        Ok(Some(_)) | Err(_) => return,
                    }
                }
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

//! Follows a trial and everything it starts from stop to stop.
//!
//! The trial waits for its specification on standard input, with one thread: it is seized there, before it has done
//! anything. What it starts is traced from its first instruction. If this process ends, the kernel kills them all.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use libc::pid_t;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use syscalls::Sysno;

use super::calls::{Call, Wait};
use super::stops::{self, Edge, Stop};
use super::{Report, Traced, mark};
use crate::measure::process;
use crate::measure::trial::{self, Answer};

/// Starts a trial, follows it to its end and counts.
pub fn follow(program: &Path, spec: &[u8], directory: &Path) -> anyhow::Result<Report> {
    let mut child = process::of_this_program(program, trial::COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a trial")?;
    let pid = Pid::from_raw(i32::try_from(child.id()).context("a process id out of range")?);
    if let Err(error) = ptrace::seize(pid, options()) {
        child.kill()?;
        child.wait()?;
        return Ok(Report::Refused { why: refusal(error) });
    }
    ptrace::interrupt(pid).context("cannot stop the trial")?;
    let mut output = child.stdout.take().expect("standard output is a pipe");
    let read = std::thread::spawn(move || std::io::read_to_string(&mut output));
    let mut input = child.stdin.take().expect("standard input is a pipe");
    let spec = spec.to_owned();
    // In a thread of its own: a trial that is stopped does not read, and it goes on only when it is waited for here.
    let write = std::thread::spawn(move || input.write_all(&spec));
    let mut tracer = Tracer::new(pid.as_raw(), directory);
    let status = tracer.run()?;
    let told = write.join().expect("writing does not panic");
    let output = read.join().expect("reading does not panic")?;
    let answer = match (told, serde_json::from_str(&output)) {
        (Ok(()), Ok(answer)) => answer,
        (Err(error), _) => Answer::Failed { why: format!("cannot talk to the trial: {error}") },
        (_, Err(_)) => Answer::Failed { why: process::ending(status) },
    };
    Ok(Report::Followed { traced: tracer.into_counts(), answer })
}

fn options() -> Options {
    Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL
}

/// Why the kernel did not let a process be traced, and what helps.
fn refusal(error: Errno) -> String {
    match error {
        Errno::EPERM | Errno::EACCES | Errno::ENOSYS => format!(
            "system calls cannot be counted here: ptrace is not permitted ({}); in a container, start it with \
             --cap-add=SYS_PTRACE",
            error.desc()
        ),
        error => format!("system calls cannot be counted here: ptrace: {}", error.desc()),
    }
}

/// The state of following one trial.
struct Tracer<'a> {
    trial: pid_t,
    directory: &'a Path,
    /// Threads that run or are stopped.
    alive: HashSet<pid_t>,
    /// What calls will have shown if they succeed.
    pending: HashMap<pid_t, Wait>,
    /// Measured sections that are open.
    open: u64,
    sections: u64,
    by_number: HashMap<u64, u64>,
    counts: Traced,
}

impl<'a> Tracer<'a> {
    fn new(trial: pid_t, directory: &'a Path) -> Self {
        Self {
            trial,
            directory,
            alive: HashSet::from([trial]),
            pending: HashMap::new(),
            open: 0,
            sections: 0,
            by_number: HashMap::new(),
            counts: Traced::default(),
        }
    }

    /// Follows until nothing is left that could be traced; the trial's status as of wait(2).
    fn run(&mut self) -> anyhow::Result<i32> {
        let mut status = 0;
        while let Some((thread, stop)) = stops::wait().context("cannot wait for the trial")? {
            self.alive.insert(thread);
            match stop {
                Stop::Ended(ended) => {
                    self.alive.remove(&thread);
                    self.pending.remove(&thread);
                    if thread == self.trial {
                        status = ended;
                        self.kill_the_rest();
                    }
                }
                Stop::SystemCall => {
                    self.at_call(thread);
                    stops::resume(thread, 0);
                }
                Stop::Signal(signal) => stops::resume(thread, signal),
                Stop::Group => stops::leave_stopped(thread),
                Stop::Event => stops::resume(thread, 0),
            }
        }
        Ok(status)
    }

    /// A trial stops what it started; what is left would keep this loop waiting.
    fn kill_the_rest(&self) {
        for thread in &self.alive {
            // It may have ended since, which is as good.
            let _ = kill(Pid::from_raw(*thread), Signal::SIGKILL);
        }
    }

    fn at_call(&mut self, thread: pid_t) {
        // A thread that was killed at its stop has nothing to show.
        let Ok(edge) = stops::edge(thread) else { return };
        match edge {
            Edge::Entry(number, arguments) => self.entered(thread, number, arguments),
            Edge::Exit(succeeded) => {
                if let Some(wait) = self.pending.remove(&thread)
                    && succeeded
                    && self.open > 0
                {
                    self.waited(wait);
                }
            }
            Edge::Other => {}
        }
    }

    fn entered(&mut self, thread: pid_t, number: u64, arguments: [u64; 6]) {
        let name = usize::try_from(number).ok().and_then(Sysno::new);
        if name == Some(Sysno::getpriority) && arguments[0] as u32 == mark::KIND {
            match arguments[1] as u32 {
                mark::BEGIN => {
                    self.open += 1;
                    self.sections += 1;
                }
                mark::END => {
                    self.open = self.open.saturating_sub(1);
                    self.counts.operations += arguments[2];
                }
                _ => {}
            }
            return;
        }
        let wait = name
            .filter(|name| self.open > 0 || *name == Sysno::io_uring_setup)
            .and_then(|name| Call { thread, name, arguments }.wait(self.directory));
        match wait {
            Some(Wait::Hidden(note)) => self.counts.note(note),
            Some(wait) => {
                self.pending.insert(thread, wait);
            }
            None => {}
        }
        if self.open > 0 {
            *self.by_number.entry(number).or_default() += 1;
        }
    }

    fn waited(&mut self, wait: Wait) {
        match wait {
            Wait::Sync(name) => *self.counts.syncs.entry(name).or_default() += 1,
            Wait::Elsewhere(name) => self.counts.note(&format!(
                "{name} of a file outside of the trial's directory was not counted"
            )),
            Wait::Hidden(note) => self.counts.note(note),
        }
    }

    fn into_counts(mut self) -> Traced {
        for (number, calls) in &self.by_number {
            let name = usize::try_from(*number).ok().and_then(Sysno::new);
            let name = name.map_or_else(|| format!("call {number}"), |name| name.name().to_owned());
            self.counts.by_name.insert(name, *calls);
            self.counts.system_calls += calls;
        }
        if self.sections == 0 {
            self.counts.note("the trial marked no measured section, so nothing was counted");
        }
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_helps() {
        assert!(refusal(Errno::EPERM).contains("--cap-add=SYS_PTRACE"));
        assert!(!refusal(Errno::ESRCH).contains("--cap-add"));
    }
}

//! A trial's process: started in a group of its own, awaited, and ended with everything that it started.
//!
//! Nothing of a trial outlives it, whatever happens:
//!
//! | what ends | what ends the rest |
//! |---|---|
//! | the trial, in order or not | its process group is killed; what left the group becomes a child of this process ([`adopt_orphans`]) and is killed |
//! | this process, by a signal it can catch | the same |
//! | this process, by SIGKILL | the trial has asked the kernel to be killed with its parent ([`die_with_parent`]) |
//!
//! A trial's temporary files have a folder of their own, which is removed with it: `TMPDIR` in its environment, with a
//! path short enough for a socket.

use std::collections::VecDeque;
use std::io::{Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::interrupt;

/// In the environment of a trial: the process id of who started it.
const PARENT: &str = "PLAIT_BENCH_PARENT";

/// Bytes kept of what an engine prints.
const TAIL_BYTES: usize = 2_000;

/// How often a running trial is looked at.
const GLANCE: Duration = Duration::from_millis(5);

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself and successfully, with what it wrote to its standard output.
    Answered(String),
    /// Otherwise.
    Failed {
        /// What happened, with the end of its standard error.
        why: String,
        /// Whether it was killed because it took too long.
        hung: bool,
    },
    /// Killed because this program is asked to end.
    Interrupted,
}

/// What is started.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// This program.
    pub program: &'a Path,
    /// Which of its hidden commands.
    pub command: &'a str,
    /// What it reads from its standard input.
    pub input: &'a [u8],
    /// The folder for its temporary files.
    pub temporary: &'a Path,
    /// Where SQLite keeps files that have no name: on the medium that is measured.
    pub directory: &'a Path,
    /// When it is killed.
    pub limit: Duration,
}

impl Start<'_> {
    /// Starts, awaits and cleans up.
    #[must_use]
    pub fn run(&self) -> Ending {
        self.try_run().unwrap_or_else(|error| Ending::Failed {
            why: format!("its process could not be run: {error:#}"),
            hung: false,
        })
    }

    fn try_run(&self) -> anyhow::Result<Ending> {
        let mut child = of_this_program(self.program, self.command)
            .env("TMPDIR", self.temporary)
            .env("SQLITE_TMPDIR", self.directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let mut input = child.stdin.take().expect("standard input is a pipe");
        let mut output = child.stdout.take().expect("standard output is a pipe");
        let errors = child.stderr.take().expect("standard error is a pipe");
        let read_output = std::thread::spawn(move || std::io::read_to_string(&mut output));
        let read_errors = std::thread::spawn(move || tail(errors));
        // A process that died before it read this has said why on its standard error.
        let _ = input.write_all(self.input);
        drop(input);
        let group = Pid::from_raw(i32::try_from(child.id()).context("a process id out of range")?);
        let ended = await_end(&mut child, self.limit);
        end_group(&mut child, group);
        let output = read_output.join().expect("reading does not panic")?;
        let errors = read_errors.join().expect("reading does not panic");
        Ok(match ended? {
            End::Itself(status) if status.success() => Ending::Answered(output),
            End::Itself(status) => Ending::Failed {
                why: with_errors(&ending(status.into_raw()), &errors),
                hung: false,
            },
            End::Limit => {
                let why = format!("it was killed after {} s", self.limit.as_secs_f64());
                Ending::Failed { why: with_errors(&why, &errors), hung: true }
            }
            End::Interrupt => Ending::Interrupted,
        })
    }
}

/// One of this program's hidden commands, which is to call [`die_with_parent`] before anything else.
#[must_use]
pub fn of_this_program(program: &Path, command: &str) -> Command {
    let mut started = Command::new(program);
    started.arg(command).env(PARENT, std::process::id().to_string());
    started
}

/// Why a process is no longer waited for.
enum End {
    Itself(ExitStatus),
    Limit,
    Interrupt,
}

fn await_end(child: &mut Child, limit: Duration) -> anyhow::Result<End> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the trial")? {
            return Ok(End::Itself(status));
        }
        if interrupt::requested() {
            return Ok(End::Interrupt);
        }
        if begun.elapsed() > limit {
            return Ok(End::Limit);
        }
        std::thread::sleep(GLANCE);
    }
}

/// Kills what is left of a group and of those that left it.
fn end_group(child: &mut Child, group: Pid) {
    // ESRCH when nobody is left, which is what is wanted.
    let _ = killpg(group, Signal::SIGKILL);
    // An error means that it was waited for already.
    let _ = child.wait();
    if ADOPTING.load(Ordering::Relaxed) {
        end_orphans();
    }
}

/// Whether orphans come to this process. Relaxed: set once, before there is any.
static ADOPTING: AtomicBool = AtomicBool::new(false);

/// Makes what a trial leaves behind a child of this process, to be killed when the trial has ended. For a program whose
/// only children are trials: any other child would be killed with them.
///
/// # Errors
/// If the kernel refuses (before Linux 3.4).
pub fn adopt_orphans() -> anyhow::Result<()> {
    nix::sys::prctl::set_child_subreaper(true).context("cannot adopt orphans")?;
    ADOPTING.store(true, Ordering::Relaxed);
    Ok(())
}

/// Kills all children of this process and waits until they are gone, or for five seconds (one may be waiting for a disk).
fn end_orphans() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => {
                for child in children() {
                    // It may have ended since.
                    let _ = kill(child, Signal::SIGKILL);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::ECHILD) => return,
            Ok(_) | Err(_) => {}
        }
    }
}

/// The children of this process.
fn children() -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let me = std::process::id();
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            (parent_in(&stat)? == me).then(|| Pid::from_raw(pid))
        })
        .collect()
}

/// The parent in /proc/PID/stat: `pid (name) state parent`, where the name may hold anything.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Asks the kernel to kill this process when the thread that started it ends; for the hidden commands, before anything
/// else.
///
/// # Errors
/// If the parent is dead already.
pub fn die_with_parent() -> anyhow::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).context("cannot ask to die with the parent")?;
    let Some(parent) = std::env::var(PARENT).ok().and_then(|text| text.parse::<u32>().ok()) else {
        return Ok(());
    };
    if std::os::unix::process::parent_id() != parent {
        bail!("who started this trial is gone");
    }
    Ok(())
}

/// How a process ended, in words, from its status as of wait(2).
#[must_use]
pub fn ending(status: i32) -> String {
    let status = ExitStatus::from_raw(status);
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("its process ended with status {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("its process was killed by signal {number} ({signal})"),
            Err(_) => format!("its process was killed by signal {number}"),
        },
        (None, None) => format!("its process ended in an unknown way ({status})"),
    }
}

fn with_errors(why: &str, errors: &str) -> String {
    match errors.trim() {
        "" => why.to_owned(),
        errors => format!("{why}; it had said: {errors}"),
    }
}

/// The last bytes of a stream, read to its end so that who writes it never waits.
fn tail(mut stream: impl Read) -> String {
    let mut kept = VecDeque::with_capacity(2 * TAIL_BYTES);
    let mut block = [0; TAIL_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut block) {
        kept.extend(&block[..count]);
        kept.drain(..kept.len().saturating_sub(TAIL_BYTES));
    }
    String::from_utf8_lossy(kept.make_contiguous()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_in("12 (a) 7 (b) S 34 12 12 0"), Some(34));
        assert_eq!(parent_in("12 (cut"), None);
    }

    #[test]
    fn a_crash_is_told_by_its_signal() {
        assert_eq!(ending(11), "its process was killed by signal 11 (SIGSEGV)");
        assert_eq!(ending(3 << 8), "its process ended with status 3");
    }

    #[test]
    fn the_end_of_a_long_complaint_is_kept() {
        let text = format!("{}the reason", "noise ".repeat(10_000));
        let kept = tail(text.as_bytes());
        assert_eq!(kept.len(), TAIL_BYTES);
        assert!(kept.ends_with("the reason"));
    }
}

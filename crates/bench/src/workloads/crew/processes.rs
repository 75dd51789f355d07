//! A crew of processes, from the side of the trial that starts them.
//!
//! Each [`member`](super::member) is this program again. The trial writes a line that says what to do, waits until all
//! have connected and said so, writes a line with the time at which all begin, and waits for their tallies. A member
//! that dies, fails or does not answer fails the trial, and every way out of here ends all members: they are killed
//! when [`Members`] is dropped, and end by themselves when the trial's end of their standard input is closed.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow};

use super::member::{self, Go, Orders, Said};
use super::shift::Times;
use super::{Amount, Done, Parting, Shift, Tally};
use crate::engines::{Failure, Outcome};
use crate::measure::trial::Spec;
use crate::measure::{process, usage};
use crate::workloads::{Site, Workload};

/// How long members may take to open the store and connect.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a member may take beyond the time of the shift: as long as its last transaction may wait (the busy timeout
/// is a minute), and some more.
const GRACE: Duration = Duration::from_secs(90);
/// How long the shift may take where only the number of transactions is given.
const UNTIMED: Duration = Duration::from_secs(300);

/// The processes, and what they say.
struct Members {
    children: Vec<Child>,
    inputs: Vec<ChildStdin>,
    /// A line of one of them, or none when it has closed its standard output.
    said: Receiver<(usize, Option<String>)>,
    /// Which of them have closed their standard output.
    gone: Vec<bool>,
}

/// Works with processes, each of which opens the store.
pub fn work(site: &Site<'_>, workload: &Workload, shift: &Shift) -> Outcome<Done> {
    let Some(kind) = site.kind.filter(|kind| kind.serves_processes()) else {
        return Err(Failure::unsupported("a store of this engine belongs to one process"));
    };
    let called = Instant::now();
    let spec = Spec {
        engine: kind.clone(),
        settings: site.settings.clone(),
        workload: workload.clone(),
        directory: site.directory.clone(),
        seed: site.seed,
    };
    let mut members = Members::start(&spec, shift)?;
    members.answers(PATIENCE, |said| matches!(said, Said::Ready).then_some(()))?;
    let start = members.go()?;
    // At once, but for a shift that is not measured from its start.
    let opening = Times::from(start, shift).opening;
    if opening > start {
        std::thread::sleep(opening.saturating_duration_since(Instant::now()));
    }
    let before = usage::of_others(&members.ids());
    let limit = match shift.amount {
        Amount::Seconds(seconds) | Amount::Steady { seconds, .. } => {
            Duration::from_secs_f64(seconds) + GRACE
        }
        Amount::Each(_) | Amount::Together(_) => UNTIMED,
    };
    let tallies = members.answers(limit, |said| match said {
        Said::Done(tally) => Some(*tally),
        _ => None,
    })?;
    let parted = Parting::now();
    let others = usage::between(before, usage::of_others(&members.ids()));
    members.await_end()?;
    let usage = tallies.iter().fold(others, |sum, tally: &Tally| usage::plus(sum, tally.usage));
    Ok(Done::new(shift, tallies, usage, called.elapsed(), parted))
}

/// What one of several processes does of a shift.
fn share(shift: &Shift, index: u32) -> Shift {
    let amount = match shift.amount {
        Amount::Together(all) => {
            let workers = u64::from(shift.workers);
            Amount::Each(all / workers + u64::from(u64::from(index) < all % workers))
        }
        other => other,
    };
    Shift { amount, ..shift.clone() }
}

impl Members {
    fn start(spec: &Spec, shift: &Shift) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let (sender, said) = channel();
        let gone = vec![false; shift.workers as usize];
        let mut members = Self { children: Vec::new(), inputs: Vec::new(), said, gone };
        for index in 0..shift.workers {
            let mut child = process::of_this_program(&program, member::COMMAND)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| format!("cannot start member {index}"))?;
            let output = child.stdout.take().expect("standard output is a pipe");
            let input = child.stdin.take().expect("standard input is a pipe");
            let position = members.children.len();
            members.children.push(child);
            members.inputs.push(input);
            listen(position, BufReader::new(output), sender.clone());
            let orders = Orders { trial: spec.clone(), shift: share(shift, index), index };
            members.tell(position, &serde_json::to_string(&orders)?)?;
        }
        Ok(members)
    }

    fn ids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    fn tell(&mut self, position: usize, line: &str) -> anyhow::Result<()> {
        match writeln!(self.inputs[position], "{line}") {
            // Only a member that has ended reads no more.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(self.obituary(position)),
            result => result.with_context(|| format!("cannot talk to member {position}")),
        }
    }

    /// Lets all begin at the same time, a moment from now, which is told.
    fn go(&mut self) -> anyhow::Result<Instant> {
        let moment = Duration::from_millis(20 + self.children.len() as u64);
        let start = Instant::now() + moment;
        let since_1970 = (SystemTime::now() + moment)
            .duration_since(SystemTime::UNIX_EPOCH)
            .context("the clock stands before 1970")?;
        let line = serde_json::to_string(&Go { since_1970 })?;
        (0..self.children.len()).try_for_each(|position| self.tell(position, &line))?;
        Ok(start)
    }

    /// Waits until each member has said what is wanted.
    fn answers<T>(
        &mut self,
        limit: Duration,
        wanted: impl Fn(Said) -> Option<T>,
    ) -> Outcome<Vec<T>> {
        let until = Instant::now() + limit;
        let mut answers: Vec<Option<T>> = self.children.iter().map(|_| None).collect();
        if let Some(position) = self.gone.iter().position(|gone| *gone) {
            return Err(self.obituary(position).into());
        }
        while answers.iter().any(Option::is_none) {
            let left = until.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                Ok((position, Some(line))) => match serde_json::from_str(&line) {
                    Ok(Said::Failed { why }) => {
                        return Err(anyhow!("member {position}: {why}").into());
                    }
                    Ok(Said::Unsupported { why }) => return Err(Failure::Unsupported(why)),
                    Ok(said) => {
                        answers[position] = wanted(said);
                        if answers[position].is_none() {
                            return Err(anyhow!("member {position} said {line} too early").into());
                        }
                    }
                    Err(_) => {
                        return Err(anyhow!("member {position} said {line:?}").into());
                    }
                },
                // Whoever has given its last answer may go while others still work.
                Ok((position, None)) => {
                    self.gone[position] = true;
                    if answers[position].is_none() {
                        return Err(self.obituary(position).into());
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let silent: Vec<String> = (0..answers.len())
                        .filter(|p| answers[*p].is_none())
                        .map(|p| p.to_string())
                        .collect();
                    let (who, s) = (silent.join(", "), limit.as_secs());
                    return Err(
                        anyhow!("members without an answer after {s} s, killed: {who}").into()
                    );
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// What became of a member that closed its standard output without an answer.
    fn obituary(&mut self, position: usize) -> anyhow::Error {
        let of = self.children.len();
        match self.children[position].wait() {
            Ok(status) => anyhow!("member {position} of {of} ended before its answer: {status}"),
            Err(error) => anyhow!("member {position} of {of} ended before its answer: {error}"),
        }
    }

    /// Waits until all have closed the store and ended.
    fn await_end(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        for (position, child) in self.children.iter_mut().enumerate() {
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                if Instant::now() > until {
                    anyhow::bail!("member {position} did not end after its answer and was killed");
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            if !status.success() {
                anyhow::bail!("member {position} answered, then ended with {status}");
            }
        }
        Ok(())
    }
}

impl Drop for Members {
    /// Nobody outlives the trial. What killing says no longer matters: a process that has ended cannot be killed.
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// Passes on the lines of a member, and that it has no more.
fn listen(
    position: usize,
    lines: BufReader<std::process::ChildStdout>,
    to: Sender<(usize, Option<String>)>,
) {
    std::thread::spawn(move || {
        for line in lines.lines() {
            let Ok(line) = line else { break };
            if to.send((position, Some(line))).is_err() {
                return;
            }
        }
        // The receiver is gone when the trial no longer wants to know.
        let _ = to.send((position, None));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_common_amount_add_up() {
        let shift = Shift {
            workers: 7,
            amount: Amount::Together(100),
            due_per_second: None,
            count_start_and_stop: false,
        };
        let sum: u64 = (0..7)
            .map(|index| match share(&shift, index).amount {
                Amount::Each(each) => each,
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(sum, 100);
    }
}

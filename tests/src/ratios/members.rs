//! Runs the members of a trial together: ready, warm-up, measured time, end; in threads or in processes.

use super::bare_log::Appender;
use super::case::{Load, Work};
use super::keyed::KeyedLoop;
use super::passer::Passer;
use super::reader::Reader;
use super::remover::Remover;
use super::tpcc::Clerk;
use super::visitor::{Maker, Visitor};
use super::worker::Worker;
use super::writer::{Count, Repeated, Settings, Writer};
use super::ycsb::Client;
use crate::os::process_cpu_time;
use crate::sqlite::Result;
use crate::subject::Subject;
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Who a member is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The engine.
    pub subject: Subject,
    /// The database.
    pub database: PathBuf,
    /// The load of the trial.
    pub load: Load,
    /// Its seed.
    pub seed: u64,
    /// Whether it reads: the table and the number of its rows.
    pub reads: Option<(String, i64)>,
    /// The measured time.
    pub time: Duration,
}

/// What all members together gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Together {
    /// Writers' counts.
    pub writers: Vec<Count>,
    /// Readers' counts.
    pub readers: Vec<Count>,
    /// Settings of a member's connection.
    pub settings: Settings,
    /// Processor time of this process while the members were measured; none where they work in others, or
    /// until everything is done.
    pub cpu: Duration,
}

/// What a member does.
trait Role {
    fn settings(&self) -> Result<Settings>;
    fn run(&mut self, ended: &dyn Fn() -> bool, measuring: &dyn Fn() -> bool) -> Result<Count>;
}

macro_rules! role {
    ($run:ident: $($loop:ty),*) => { $(
        impl Role for $loop {
            fn settings(&self) -> Result<Settings> {
                <$loop>::settings(self)
            }

            fn run(&mut self, ended: &dyn Fn() -> bool, measuring: &dyn Fn() -> bool) -> Result<Count> {
                <$loop>::$run(self, ended, measuring)
            }
        }
    )* };
}
role!(run: Writer, Worker, Passer, Remover, KeyedLoop);
role!(repeat: Reader, Visitor, Maker, Client, Clerk, Appender);

impl Member {
    fn connect(&self) -> anyhow::Result<Box<dyn Role>> {
        let Self { subject, database, load, seed, reads, .. } = self;
        Ok(match (reads, load.work) {
            (Some((table, rows)), work) => {
                let is_mapped = work == Work::ReadMapped;
                Box::new(Reader::connect(subject, database, (table, *rows), is_mapped, *seed)?)
            }
            (None, Work::Passes(pass, _)) => {
                Box::new(Passer::connect(subject, database, pass, *seed)?)
            }
            (None, Work::Keyed(work)) => {
                Box::new(KeyedLoop::connect(subject, database, work, load.synchronous, *seed)?)
            }
            (None, Work::Ycsb(work)) => {
                Box::new(Client::connect(subject, database, load, work, *seed)?)
            }
            (None, Work::Tpcc) => Box::new(Clerk::connect(subject, database, load, *seed)?),
            (None, Work::Remove) => Box::new(Remover::connect(subject, database)?),
            (None, Work::Queue | Work::QueueReturning) => {
                Box::new(Worker::connect(subject, database, load)?)
            }
            (None, Work::Visit(rows)) => {
                Box::new(Visitor::connect(subject, database, rows, load.synchronous, *seed)?)
            }
            (None, Work::Make(rows)) => Box::new(Maker::connect(subject, database, rows)?),
            (None, _) => Box::new(Writer::connect(subject, database, load, *seed)?),
        })
    }
}

/// The members of a load on a database.
#[must_use]
pub fn of(
    subject: &Subject,
    database: &Path,
    load: &Load,
    seed: u64,
    time: Duration,
) -> Vec<Member> {
    let member = |index: u32, reads| Member {
        subject: subject.clone(),
        database: database.to_owned(),
        load: load.clone(),
        seed: seed.wrapping_mul(1009).wrapping_add(index.into()),
        reads,
        time,
    };
    let reads = |table: &str, rows| Some((table.to_owned(), rows));
    match load.work {
        Work::Read | Work::ReadMapped => vec![member(0, reads("million", 1_000_000))],
        Work::ReadBesideWriters => {
            let writers = (1..=load.writers).map(|index| member(index, None));
            writers.chain([member(0, reads("t", load.work.rows()))]).collect()
        }
        _ => (1..=load.writers).map(|index| member(index, None)).collect(),
    }
}

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const ENDED: u8 = 2;

/// Runs members as threads of this process.
pub fn in_threads(members: Vec<Member>) -> anyhow::Result<Together> {
    let (time, work) = (members[0].time, members[0].load.work);
    let connect = |member: Member| (member.reads.is_some(), move || member.connect());
    at_the_same_time(members.into_iter().map(connect).collect(), work, time)
}

/// Runs writers of a bare log in the same way.
pub fn append_in_threads(writers: Vec<Appender>, time: Duration) -> anyhow::Result<Together> {
    let ready = |writer| (false, move || Ok(Box::new(writer) as Box<dyn Role>));
    at_the_same_time(writers.into_iter().map(ready).collect(), Work::BareLog, time)
}

/// Runs what connects in threads; of each whether it reads.
fn at_the_same_time<C>(all: Vec<(bool, C)>, work: Work, time: Duration) -> anyhow::Result<Together>
where
    C: FnOnce() -> anyhow::Result<Box<dyn Role>> + Send + 'static,
{
    let phase = Arc::new(AtomicU8::new(WARMING));
    let ready = Arc::new(Barrier::new(all.len() + 1));
    let threads: Vec<_> = all
        .into_iter()
        .map(|(reads, connect)| {
            let (phase, ready) = (phase.clone(), ready.clone());
            std::thread::spawn(move || -> anyhow::Result<(bool, Count, Settings)> {
                let connected = connect().and_then(|role| Ok((role.settings()?, role)));
                ready.wait();
                let (settings, mut role) = connected?;
                let count = role.run(&|| phase.load(Ordering::Relaxed) == ENDED, &|| {
                    phase.load(Ordering::Relaxed) == MEASURING
                })?;
                Ok((reads, count, settings))
            })
        })
        .collect();
    ready.wait();
    let mut cpu = Duration::ZERO;
    if !work.is_finite() {
        std::thread::sleep(work.warm_up());
        let before = process_cpu_time();
        phase.store(MEASURING, Ordering::Relaxed);
        std::thread::sleep(time);
        phase.store(ENDED, Ordering::Relaxed);
        cpu = process_cpu_time() - before;
    }
    let results: Vec<_> =
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    let together = gather(results.into_iter().collect::<anyhow::Result<_>>()?)?;
    Ok(Together { cpu, ..together })
}

fn gather(results: Vec<(bool, Count, Settings)>) -> anyhow::Result<Together> {
    let settings = results.first().context("a trial has members")?.2.clone();
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for (reads, count, _) in results {
        if reads { readers.push(count) } else { writers.push(count) }
    }
    Ok(Together { writers, readers, settings, cpu: Duration::ZERO })
}

/// Runs members as processes; each is this program again, as `member`.
pub fn in_processes(members: Vec<Member>) -> anyhow::Result<Together> {
    let program = std::env::current_exe()?;
    let mut children: Vec<(bool, Child)> = Vec::new();
    for member in members {
        let child = std::process::Command::new(&program)
            .args(["member", &serde_json::to_string(&member)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        children.push((member.reads.is_some(), child));
    }
    let mut outputs = Vec::new();
    for (_, child) in &mut children {
        let output = child.stdout.take().context("the output is piped")?;
        let mut output = std::io::BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        if line.trim() != "ready" {
            bail!("a member did not get ready: {line}");
        }
        outputs.push(output);
    }
    for (_, child) in &mut children {
        let input = child.stdin.as_mut().context("the input is piped")?;
        writeln!(input, "go")?;
    }
    let mut results = Vec::new();
    for ((reads, mut child), mut output) in children.into_iter().zip(outputs) {
        let mut line = String::new();
        output.read_line(&mut line)?;
        let (count, settings) =
            serde_json::from_str(&line).with_context(|| format!("a member said: {line}"))?;
        results.push((reads, count, settings));
        child.wait()?;
    }
    gather(results)
}

/// One member as a process: connects, says `ready`, awaits a line, warms up, measures and prints its count.
pub fn serve(member: &Member) -> anyhow::Result<()> {
    let mut role = member.connect()?;
    let settings = role.settings()?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let begin = Instant::now() + member.load.work.warm_up();
    let end = begin + member.time;
    let count = role.run(&|| Instant::now() >= end, &|| {
        let now = Instant::now();
        now >= begin && now < end
    })?;
    println!("{}", serde_json::to_string(&(count, settings))?);
    Ok(())
}

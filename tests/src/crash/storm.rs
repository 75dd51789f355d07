//! Processes killed at random moments, one by one or all at once.

use super::audit::{Acknowledged, Demand, audit};
use super::case::{await_attached, finish, goes_on};
use super::{at_rest, start, start_crew};
use crate::differential::dice::Dice;
use crate::job::Running;
use crate::jobs::ledger::{Crew, Kind, Ledger, Line, schema};
use crate::os::monotonic_ns;
use crate::subject::{Fixture, Subject, Synchronous};
use std::time::{Duration, Instant};

/// What happens to the shared memory when everybody is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// It stays: the machine went on.
    Stays,
    /// It is removed, as by a restart of the machine.
    Removed,
}

/// Workers, and how they die.
#[derive(Clone, Debug)]
pub struct Storm {
    /// Seed of everything random in it.
    pub seed: u64,
    /// How many worker processes.
    pub workers: i64,
    /// In how many threads each writes, where they are killed one by one.
    pub threads: i64,
    /// Durability.
    pub synchronous: Synchronous,
    /// What becomes of the shared memory when all were killed.
    pub memory: Memory,
}

impl Storm {
    fn ledger(&self, worker: i64, round: u64) -> Ledger {
        let mut kinds = Ledger::default().kinds;
        if worker % 3 == 0 {
            kinds.push(Kind::Ddl);
        }
        if self.workers == 1 {
            // Alone, so that large transactions go straight to the base; several in a row, and others between them.
            kinds.extend([Kind::Bulk; 8]);
        }
        Ledger {
            worker,
            kinds,
            seed: self.seed.wrapping_mul(1009).wrapping_add(round * 17 + worker.unsigned_abs()),
            synchronous: self.synchronous,
            merge_every: [0, 11, 40][usize::try_from(worker).unwrap_or(0) % 3],
            truncates: (self.seed + round).is_multiple_of(2),
            reopen_every: if worker % 4 == 2 { 7 } else { 0 },
            ..Ledger::default()
        }
    }

    fn crew(&self, process: i64, round: u64) -> Crew {
        let first = (process - 1) * self.threads + 1;
        Crew((first..first + self.threads).map(|worker| self.ledger(worker, round)).collect())
    }

    /// The workers run; every now and then one is killed and another takes its place; the others go on each time.
    ///
    /// # Errors
    /// What was wrong.
    pub fn kill_one_by_one(&self, subject: &Subject, time: Duration) -> anyhow::Result<u64> {
        let fixture = Fixture::new(subject.clone(), &schema(false));
        let mut dice = Dice::new(self.seed);
        let mut acknowledged = Acknowledged::default();
        let mut jobs: Vec<Running> =
            (1..=self.workers).map(|process| start_crew(&fixture, self.crew(process, 0))).collect();
        let end = Instant::now() + time;
        let mut deaths = 0;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_micros(dice.roll(60_000) as u64));
            let unlucky = dice.roll(jobs.len());
            jobs[unlucky].kill();
            let death = monotonic_ns();
            deaths += 1;
            let process = i64::try_from(unlucky).expect("few workers") + 1;
            let next = start_crew(&fixture, self.crew(process, deaths));
            let dead = std::mem::replace(&mut jobs[unlucky], next);
            bury(dead, &mut acknowledged)?;
            for job in &mut jobs {
                goes_on(job, death, &mut acknowledged)?;
            }
        }
        finish(jobs, &mut acknowledged)?;
        at_rest(&fixture, &acknowledged, Demand::Everything)?;
        Ok(deaths)
    }

    /// The workers run until all are killed at the same moment; the database is opened again and audited; and so on.
    ///
    /// # Errors
    /// What was wrong.
    pub fn kill_all_at_once(&self, subject: &Subject, time: Duration) -> anyhow::Result<u64> {
        let fixture = Fixture::new(subject.clone(), &schema(self.demand() == Demand::Prefix));
        let mut dice = Dice::new(self.seed);
        let end = Instant::now() + time;
        let mut rounds = 0;
        let mut acknowledged = Acknowledged::default();
        while rounds == 0 || Instant::now() < end {
            rounds += 1;
            let outcome = self.one_massacre(&fixture, &mut acknowledged, &mut dice, rounds);
            if let Err(error) = outcome {
                let kept = fixture.keep();
                return Err(error.context(format!("round {rounds}, kept in {}", kept.display())));
            }
        }
        at_rest(&fixture, &acknowledged, self.demand())?;
        Ok(rounds)
    }

    /// One worker switches concurrent mode on and off between its entries, is killed, and another goes on.
    ///
    /// # Errors
    /// What was wrong.
    pub fn kill_converters(&self, subject: &Subject, time: Duration) -> anyhow::Result<u64> {
        let fixture = Fixture::new(subject.clone(), &schema(false));
        let mut dice = Dice::new(self.seed);
        let end = Instant::now() + time;
        let mut acknowledged = Acknowledged::default();
        let mut deaths = 0;
        while Instant::now() < end {
            deaths += 1;
            let ledger = Ledger {
                convert: true,
                convert_every: 1,
                merge_every: 0,
                reopen_every: 3,
                ..self.ledger(1, deaths)
            };
            let mut job = start(&fixture, ledger);
            await_attached(&mut job, &mut acknowledged)?;
            std::thread::sleep(Duration::from_micros(dice.roll(60_000) as u64));
            job.kill();
            bury(job, &mut acknowledged)?;
            if self.memory == Memory::Removed {
                drop(std::fs::remove_file(fixture.side_file("-plait-shm")));
            }
        }
        let last = Ledger { convert: true, commits: Some(3), ..self.ledger(1, 0) };
        finish(vec![start(&fixture, last)], &mut acknowledged)?;
        at_rest(&fixture, &acknowledged, Demand::Everything)?;
        Ok(deaths)
    }

    fn demand(&self) -> Demand {
        match (self.memory, self.synchronous) {
            (Memory::Removed, Synchronous::Normal | Synchronous::Off) => Demand::Prefix,
            _ => Demand::Everything,
        }
    }

    fn one_massacre(
        &self,
        fixture: &Fixture,
        acknowledged: &mut Acknowledged,
        dice: &mut Dice,
        round: u64,
    ) -> anyhow::Result<()> {
        let mut jobs: Vec<Running> =
            (1..=self.workers).map(|worker| start(fixture, self.ledger(worker, round))).collect();
        if dice.roll(4) > 0 {
            for job in &mut jobs {
                await_attached(job, acknowledged)?;
            }
        }
        std::thread::sleep(Duration::from_micros(dice.roll(150_000) as u64));
        jobs.iter_mut().for_each(Running::kill);
        for job in jobs {
            bury(job, acknowledged)?;
        }
        if self.memory == Memory::Removed {
            drop(std::fs::remove_file(fixture.side_file("-plait-shm")));
        }
        let connection = fixture.subject.open(&fixture.database())?;
        audit(&connection, acknowledged, self.demand())?;
        let left = connection.query("SELECT worker, entries FROM total")?;
        acknowledged.0 = left
            .iter()
            .map(|row| (row[0].as_i64().unwrap_or(-1), row[1].as_i64().unwrap_or(-1)))
            .collect();
        if round.is_multiple_of(2) {
            connection.close()?;
        } else {
            // The next workers join a session whose recovery this process has done.
            for worker in 1..=self.workers {
                let job = start(fixture, Ledger { commits: Some(3), ..self.ledger(worker, round) });
                let (lines, ending) = job.wait::<Line>(Duration::from_secs(60))?;
                for line in lines {
                    acknowledged.note(line);
                }
                anyhow::ensure!(matches!(ending, crate::job::Ending::Done(_)), "{ending:?}");
            }
            audit(&connection, acknowledged, self.demand())?;
            connection.close()?;
        }
        Ok(())
    }
}

fn bury(dead: Running, acknowledged: &mut Acknowledged) -> anyhow::Result<()> {
    let (lines, ending) = dead.wait::<Line>(Duration::from_secs(10))?;
    for line in lines {
        acknowledged.note(line);
    }
    match ending {
        crate::job::Ending::Failed(message) => anyhow::bail!("a worker failed: {message}"),
        _ => Ok(()),
    }
}

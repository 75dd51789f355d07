//! One process killed at one named step, the others going on, and the audit afterwards.

use super::audit::{Acknowledged, Demand};
use super::scene::Scene;
use super::{at_rest, start};
use crate::job::{Ending, Running};
use crate::jobs::ledger::{Kind, Ledger, Line, schema};
use crate::os::monotonic_ns;
use crate::paths;
use crate::subject::{Begin, Fixture, Subject, Synchronous};
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

/// Within this time after a death every survivor has begun and finished a commit.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The worker that is killed; survivors are 2 and 3.
const VICTIM: i64 = 1;
/// How long a victim may take to reach its point, or to end without.
const REACH: Duration = Duration::from_secs(60);

/// Who dies where, and who is there.
#[derive(Clone, Debug)]
pub struct Case {
    /// The crash point.
    pub point: &'static str,
    /// The passage of it that kills, from 1.
    pub passage: u64,
    /// What goes on.
    pub scene: Scene,
    /// Durability of everybody.
    pub synchronous: Synchronous,
    /// Seed of the workers' choices.
    pub seed: u64,
}

/// Whether the victim came to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It died there.
    Yes,
    /// It did all its work without passing there often enough.
    No,
}

impl Case {
    /// The case that a seed makes of a point and a scene.
    #[must_use]
    pub fn of(point: &'static str, scene: Scene, seed: u64) -> Self {
        let mut dice = crate::differential::dice::Dice::new(seed);
        let passage = u64::try_from(1 + dice.roll(6)).expect("a small number");
        let synchronous = if scene.needs_full() {
            Synchronous::Full
        } else {
            *dice.pick(&[
                Synchronous::Full,
                Synchronous::Full,
                Synchronous::Normal,
                Synchronous::Off,
            ])
        };
        // Under NORMAL and OFF it is somebody else's turn, mostly, to write to the log's file.
        let writes = point.starts_with("log.lead") || point.starts_with("log.write");
        let synchronous = if writes { Synchronous::Full } else { synchronous };
        Self { point, passage, scene, synchronous, seed }
    }

    /// Runs it.
    ///
    /// # Errors
    /// What was wrong with the survivors or with what was left.
    pub fn run(&self, subject: &Subject) -> anyhow::Result<Reached> {
        let fixture = Fixture::empty(subject.clone());
        self.prepare(&fixture)?;
        let outcome = self.perform(&fixture);
        if outcome.is_err() {
            eprintln!("{self:?}: files kept in {}", fixture.keep().display());
        }
        outcome
    }

    fn prepare(&self, fixture: &Fixture) -> anyhow::Result<()> {
        let connection = fixture.subject.open(&fixture.database())?;
        if self.scene != Scene::Conversion {
            fixture.subject.convert(&connection)?;
        }
        connection.execute(&schema(false))?;
        connection.close()?;
        Ok(())
    }

    fn perform(&self, fixture: &Fixture) -> anyhow::Result<Reached> {
        let mut acknowledged = Acknowledged::default();
        if self.scene == Scene::Recovery {
            self.leave_a_log(fixture, &mut acknowledged)?;
        }
        let gate = fixture.path("gate");
        let mut survivors = Vec::new();
        if self.scene.has_company() {
            for worker in [2, 3] {
                let gate = (self.scene == Scene::First).then(|| gate.clone());
                let mut job = start(fixture, Ledger { gate, ..self.survivor(worker) });
                await_attached(&mut job, &mut acknowledged)?;
                survivors.push(job);
            }
        }
        let (lines, ending) = self.start_victim(fixture).wait::<Line>(REACH)?;
        for line in lines {
            acknowledged.note(line);
        }
        let reached = match ending {
            Ending::Died(status) if status.signal() == Some(libc::SIGKILL) => Reached::Yes,
            Ending::Done(_) => Reached::No,
            other => anyhow::bail!("the victim was not killed but failed: {other:?}"),
        };
        if self.scene == Scene::AloneThenReboot && reached == Reached::Yes {
            std::fs::remove_file(fixture.side_file("-plait-shm"))?;
        }
        std::fs::write(&gate, "")?;
        let death = monotonic_ns();
        if survivors.is_empty() {
            survivors.extend([2, 3].map(|worker| start(fixture, self.survivor(worker))));
        }
        for survivor in &mut survivors {
            goes_on(survivor, death, &mut acknowledged)?;
        }
        finish(survivors, &mut acknowledged)?;
        at_rest(fixture, &acknowledged, Demand::Everything)?;
        Ok(reached)
    }

    /// Behind a checkpoint that empties the WAL, or at the next commit.
    fn is_at_a_lowered_fence(&self) -> bool {
        matches!(self.point, "fence.lowering" | "fence.lowered" | "fence.raised_again")
    }

    fn survivor(&self, worker: i64) -> Ledger {
        Ledger {
            worker,
            seed: self.seed.wrapping_mul(31).wrapping_add(worker.unsigned_abs()),
            synchronous: self.synchronous,
            convert: self.scene == Scene::Conversion,
            merge_every: if worker == 2 { 9 } else { 0 },
            truncates: self.is_at_a_lowered_fence(),
            ..Ledger::default()
        }
    }

    fn start_victim(&self, fixture: &Fixture) -> Running {
        let family = self.point.split('.').next().expect("a name has a first part");
        let mut kinds = Ledger::default().kinds;
        match family {
            "exclusive" => kinds = vec![Kind::Ddl, Kind::Autocommit, Kind::Bulk, Kind::Bulk],
            // Some of them long enough for the right to be handed over, not only set free.
            "right" => kinds = vec![Kind::Begin(Begin::Immediate), Kind::Bulk],
            _ => {}
        }
        let is_long = self.point.ends_with("_grown")
            || self.point == "log.grow.filled"
            || self.point.starts_with("log.window");
        let ledger = Ledger {
            kinds,
            commits: Some(match self.scene {
                Scene::LastClose => 10,
                _ if is_long => 60,
                Scene::Conversion => 40,
                _ => 300,
            }),
            filler_bytes: if is_long { 600_000 } else { 60 },
            merge_every: if is_long { 0 } else { 5 },
            convert_every: if self.scene == Scene::Conversion { 3 } else { 0 },
            ..self.survivor(VICTIM)
        };
        let mut fixture_subject = fixture.subject.clone();
        fixture_subject.library =
            paths::crash_library().unwrap_or_else(|error| panic!("{error:#}"));
        let job = super::job(fixture_subject, fixture.database(), ledger);
        let at = format!("{}:{}", self.point, self.passage);
        job.start_with_environment(crate::place::Place::Processes, &[("PLAIT_CRASH_AT", &at)])
    }

    /// Leaves a fenced database with frames in its log and no shared memory.
    fn leave_a_log(
        &self,
        fixture: &Fixture,
        acknowledged: &mut Acknowledged,
    ) -> anyhow::Result<()> {
        let ledger = Ledger { worker: 2, merge_every: 13, ..self.survivor(2) };
        let mut job = start(fixture, ledger);
        let deadline = Instant::now() + PATIENCE * 4;
        while acknowledged.sum() < 20 {
            anyhow::ensure!(Instant::now() < deadline, "no 20 commits in {:?}", PATIENCE * 4);
            if let Some(line) = job.next_line(PATIENCE) {
                acknowledged.note(line);
            }
        }
        job.kill();
        let (lines, _) = job.wait(PATIENCE)?;
        for line in lines {
            acknowledged.note(line);
        }
        std::fs::remove_file(fixture.side_file("-plait-shm"))?;
        Ok(())
    }
}

/// Awaits the line that says that a worker has the database open.
pub(super) fn await_attached(
    job: &mut Running,
    acknowledged: &mut Acknowledged,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE * 4;
    while Instant::now() < deadline {
        match job.next_line(PATIENCE) {
            Some(Line::Attached) => return Ok(()),
            Some(line) => drop(acknowledged.note(line)),
            None => {}
        }
    }
    anyhow::bail!("a worker did not open the database in {:?}", PATIENCE * 4)
}

/// Fails unless a commit that was asked for after `death` is acknowledged in time.
pub(super) fn goes_on(
    survivor: &mut Running,
    death: u64,
    acknowledged: &mut Acknowledged,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(line) = survivor.next_line(PATIENCE)
            && acknowledged.note(line).is_some_and(|from_ns| from_ns > death)
        {
            return Ok(());
        }
    }
    anyhow::bail!("survivor {} did not commit within {PATIENCE:?} of the death", survivor.pid())
}

/// Stops workers, which close the database, and takes down what they still report.
pub(super) fn finish(
    mut jobs: Vec<Running>,
    acknowledged: &mut Acknowledged,
) -> anyhow::Result<()> {
    for job in &mut jobs {
        job.stop();
    }
    for job in jobs {
        let (lines, ending) = job.wait::<Line>(Duration::from_secs(30))?;
        for line in lines {
            acknowledged.note(line);
        }
        anyhow::ensure!(matches!(ending, Ending::Done(_)), "a survivor ended badly: {ending:?}");
    }
    Ok(())
}

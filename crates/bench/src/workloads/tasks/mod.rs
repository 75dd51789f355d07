//! The life of tasks: study C's simulation. Each task is created, gets another status, then its output some times, and
//! is deleted; every step is a transaction of its own, and what is counted.
//!
//! Verified: every change of a row must report that one row changed; before a task is deleted it is read and compared
//! with what was last written (these reads are ours and not counted); as many steps of each kind must have been done
//! as there are tasks; at the end nothing may be left, neither in the table nor under an index.
//!
//! SQL engines keep tasks in a table with indexes on status and scheduled_at, all others as records, see [`store`].

mod store;

use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::crew::{self, Amount, Shift, Worker};
use super::dice::Dice;
use super::records::phase_name;
use super::{Measured, Site};
use crate::engines::{Failure, Outcome, Store, Waits};
use store::{RUNNING, SCHEDULED, Task, Tasks};

/// Sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Tasks at a time, each with a thread.
    pub concurrency: u32,
    /// Tasks of each thread, one after the other.
    pub tasks_each: u64,
    /// How often a task's output is updated.
    pub outputs: u32,
    /// Bytes of an output.
    pub output_bytes: usize,
    /// Runs after each other in the same store.
    pub runs: u32,
}

/// What is done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Start,
    Output,
    Delete,
}

const STEPS: [(Step, &str); 4] = [
    (Step::Create, "created"),
    (Step::Start, "changes of status"),
    (Step::Output, "updates of output"),
    (Step::Delete, "deleted"),
];

/// Steps done by all threads, by kind.
#[derive(Default)]
struct Done([AtomicU64; 4]);

impl Load {
    fn steps_of_a_task(&self) -> u64 {
        3 + u64::from(self.outputs)
    }

    /// How often a step must be done in a run.
    fn expected(&self, step: Step) -> u64 {
        let tasks = u64::from(self.concurrency) * self.tasks_each;
        if step == Step::Output { tasks * u64::from(self.outputs) } else { tasks }
    }

    /// Lets all tasks live, run after run.
    pub(super) fn run(&self, site: &Site<'_>) -> Outcome<Measured> {
        let store = site.engine.open(&site.directory, site.settings)?;
        let settings = store.settings()?;
        if let Some(why) = site.settings.not_taken(&settings) {
            return Err(Failure::unsupported(why));
        }
        store::create(store.as_ref())?;
        // Held from the first run to the last: SQLite would take its log away with the last connection.
        let mut keeper = store::connect(store.as_ref())?;
        let shift = Shift {
            workers: self.concurrency,
            amount: Amount::Each(self.tasks_each * self.steps_of_a_task()),
            due_per_second: None,
            count_start_and_stop: false,
        };
        let (mut phases, mut verified) = (Vec::new(), Vec::new());
        for run in 1..=self.runs {
            let done = Done::default();
            let hire = |store, index| -> Outcome<Box<dyn Worker + '_>> {
                Ok(Box::new(Runner::new(self, store, &done, site.seed, run, index)?))
            };
            phases.push(crew::run(&phase_name(run), store.as_ref(), &shift, &hire)?);
            verified.push(format!("{}: {}", phase_name(run), self.verify(keeper.as_mut(), &done)?));
        }
        drop(keeper);
        store.close()?;
        Ok(Measured { phases, settings, verified, ..Measured::default() })
    }

    fn verify(&self, tasks: &mut dyn Tasks, done: &Done) -> Outcome<String> {
        let mut words = Vec::new();
        for ((step, name), count) in STEPS.iter().zip(&done.0) {
            // Relaxed: the threads have been joined.
            let (count, expected) = (count.load(Ordering::Relaxed), self.expected(*step));
            if count != expected {
                return Err(Failure::broken(format!("{count} {name} instead of {expected}")));
            }
            words.push(format!("{count} {name}"));
        }
        match tasks.left()? {
            0 => Ok(format!("{}, none left", words.join(", "))),
            left => Err(Failure::broken(format!("{left} deleted tasks are still there"))),
        }
    }
}

/// Leads one task after the other through its life.
struct Runner<'a> {
    load: &'a Load,
    tasks: Box<dyn Tasks + 'a>,
    done: &'a Done,
    dice: Dice,
    task: Task,
    /// Of the chosen step in its task.
    position: u64,
    /// The first choice makes a task.
    step: Step,
}

impl<'a> Runner<'a> {
    fn new(
        load: &'a Load,
        store: &'a dyn Store,
        done: &'a Done,
        seed: u64,
        run: u32,
        index: u32,
    ) -> Outcome<Self> {
        let stream = u64::from(run) << 32 | u64::from(index);
        Ok(Self {
            load,
            tasks: store::connect(store)?,
            done,
            dice: Dice::new(seed, stream),
            task: Task {
                id: (stream << 24).cast_signed(),
                status: SCHEDULED,
                scheduled_at: 0,
                output: vec![0; load.output_bytes],
            },
            position: load.steps_of_a_task() - 1,
            step: Step::Delete,
        })
    }

    /// Compares the task with what was last written.
    fn read_back(&mut self) -> Outcome<()> {
        let task = &self.task;
        let mut same = None;
        self.tasks.read(task.id, &mut |status, scheduled_at, output| {
            same = Some((status, scheduled_at, output) == task.as_written());
        })?;
        match same {
            Some(true) => Ok(()),
            Some(false) => {
                Err(Failure::broken(format!("task {} is not what was last written", task.id)))
            }
            None => Err(Failure::broken(format!("task {} is not there", task.id))),
        }
    }
}

impl Worker for Runner<'_> {
    fn choose(&mut self) {
        self.position = (self.position + 1) % self.load.steps_of_a_task();
        self.step = match self.position {
            0 => Step::Create,
            1 => Step::Start,
            last if last == self.load.steps_of_a_task() - 1 => Step::Delete,
            _ => Step::Output,
        };
        match self.step {
            Step::Create => {
                self.task.id += 1;
                self.task.status = SCHEDULED;
                self.task.scheduled_at = self.dice.below(1 << 40).cast_signed();
                self.dice.fill(&mut self.task.output);
            }
            Step::Start => self.task.status = RUNNING,
            Step::Output => self.dice.fill(&mut self.task.output),
            Step::Delete => {}
        }
    }

    fn attempt(&mut self) -> Outcome<()> {
        match self.step {
            Step::Create => self.tasks.insert(&self.task)?,
            Step::Start => self.tasks.set_status(&self.task)?,
            Step::Output => self.tasks.set_output(&self.task)?,
            Step::Delete => {
                self.read_back()?;
                self.tasks.delete(self.task.id)?;
            }
        }
        // Relaxed: counted for the sum, read after the threads have been joined.
        self.done.0[self.step as usize].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn give_up(&mut self) -> Outcome<()> {
        self.tasks.rollback()
    }

    fn waits(&self) -> Waits {
        self.tasks.waits()
    }
}

//! Random workers on one database, and the check of what they saw.

use super::check::{Summary, check};
use super::history::read_files;
use crate::job::{Job, Work};
use crate::jobs::history::{Layout, RandomTransactions, attach_second, write_final, write_initial};
use crate::place::Place;
use crate::subject::{Begin, Fixture, Subject, Synchronous};
use std::time::Duration;

/// One round: how many workers, where, and what they may do.
#[derive(Clone, Debug)]
pub struct Round {
    /// Seed of everything random in it.
    pub seed: u64,
    /// Threads or processes.
    pub place: Place,
    /// How many workers.
    pub workers: u32,
    /// Size of the universe of keys, at most 60.
    pub keys: i64,
    /// Layout of the table.
    pub layout: Layout,
    /// Ways of beginning, besides autocommit.
    pub begins: Vec<Begin>,
    /// Only pretend to begin transactions: a fake engine that the checker must catch.
    pub pretend: bool,
    /// Durability of the workers, in turn.
    pub levels: Vec<Synchronous>,
    /// Ask for a merge after about so many transactions of a worker.
    pub merge_every: u32,
    /// Empty the table after about so many transactions of a worker, and begin with an empty one; never when 0.
    pub empty_every: u32,
    /// Over two files, with a short wait for locks: workers take the rights of both in either order.
    pub two_files: bool,
    /// How long the workers run.
    pub time: Duration,
    /// Transactions of each worker at most.
    pub transactions: u32,
}

impl Round {
    /// A round with everything varied by its seed.
    #[must_use]
    pub fn random(seed: u64, place: Place, time: Duration) -> Self {
        let mut dice = crate::differential::dice::Dice::new(seed);
        let begins = match dice.roll(4) {
            0 => vec![Begin::Concurrent],
            1 => vec![Begin::Concurrent, Begin::Deferred, Begin::Immediate],
            2 => vec![Begin::Deferred],
            _ => Begin::ALL.to_vec(),
        };
        Self {
            seed,
            place,
            workers: 2 + u32::try_from(dice.roll(7)).expect("a small number"),
            keys: *dice.pick(&[4, 10, 24, 60]),
            layout: *dice.pick(&[Layout::Rowid, Layout::WithoutRowid]),
            begins,
            pretend: false,
            levels: match dice.roll(4) {
                0 => vec![Synchronous::Full],
                1 => vec![Synchronous::Normal],
                2 => vec![Synchronous::Off],
                _ => vec![Synchronous::Full, Synchronous::Normal],
            },
            merge_every: *dice.pick(&[0, 20, 100]),
            empty_every: *dice.pick(&[0, 10, 40]),
            two_files: false,
            time,
            transactions: 3000,
        }
    }

    /// The same over two files, without what goes with one file alone: being begun exclusively.
    #[must_use]
    pub fn over_two_files(mut self) -> Self {
        self.two_files = true;
        self.empty_every = 0;
        self.begins.retain(|begin| *begin != Begin::Exclusive);
        self
    }

    /// Runs it and checks the history.
    ///
    /// # Panics
    /// With a report when the history is not serializable or a worker fails.
    pub fn run(&self, subject: &Subject) -> Summary {
        self.outcome(subject).unwrap_or_else(|report| panic!("{report}"))
    }

    /// Runs it and returns the checker's verdict.
    ///
    /// # Panics
    /// When a worker fails.
    pub fn outcome(&self, subject: &Subject) -> Result<Summary, String> {
        let fixture = Fixture::new(subject.clone(), &self.layout.schema());
        let mut files = vec![fixture.path("initial.json")];
        let connection = fixture.open();
        let second = self.two_files.then(|| fixture.path("second.db"));
        if let Some(second) = &second {
            let made = subject.create(second).expect("a second file can be made");
            made.execute(&self.layout.schema_of_second()).expect("it gets its table");
        }
        attach_second(&connection, second.as_deref()).expect("it can be attached");
        write_initial(&connection, self.keys, self.empty_every > 0, self.two_files, &files[0])
            .expect("the initial rows can be written");
        let jobs: Vec<_> = (1..=self.workers)
            .map(|worker| {
                let file = fixture.path(&format!("worker-{worker}.json"));
                files.push(file.clone());
                let work = RandomTransactions {
                    seed: self.seed.wrapping_mul(1000).wrapping_add(worker.into()),
                    worker,
                    keys: self.keys,
                    begins: self.begins.clone(),
                    autocommit: true,
                    pretend: self.pretend,
                    synchronous: self.levels[worker as usize % self.levels.len()],
                    transactions: self.transactions,
                    time: self.time,
                    merge_every: self.merge_every,
                    empty_every: self.empty_every,
                    second: second.clone(),
                    busy_timeout: self.two_files.then_some(Duration::from_millis(60)),
                    first_number: 1,
                    file,
                };
                let database = fixture.database();
                Job { subject: subject.clone(), database, work: Work::History(work) }
                    .start(self.place)
            })
            .collect();
        for job in jobs {
            let _: serde_json::Value = job.result(self.time + Duration::from_secs(90));
        }
        files.push(fixture.path("final.json"));
        write_final(&connection, self.keys, self.two_files, &files[files.len() - 1])
            .expect("the end can be read");
        let sound = connection.text("PRAGMA integrity_check").expect("integrity_check runs");
        assert_eq!(sound, "ok", "{self:?}");
        let history = read_files(&files).expect("the history can be read");
        check(&history).map_err(|report| {
            if self.pretend {
                return report;
            }
            let kept = fixture.keep();
            format!("{self:?}\nhistory kept in {}\n{report}", kept.display())
        })
    }
}

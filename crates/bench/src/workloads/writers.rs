//! Transactions of one random select and one random update, and what is asked of them since.
//!
//! The table is `records(id, n, tag, v)` in SQL, or the same by keys of an engine without SQL: `id` is filled
//! by the engine, `v` is random bytes and always new, and every committed write adds 1 to the sum of `n`.
//! Afterwards that sum must be the number of acknowledged commits: a lost update, a doubled one and a dropped
//! row all break it.
//!
//! | module | what |
//! |---|---|
//! | `rows` | the table as a worker sees it |
//! | `in_sql`, `by_keys` | in either form |
//!
//! Where the load has an index, it is on `tag`, and a count by its values must find every row.
//!
//! A steady shift is long enough that what an engine puts off comes due in it. What is then still put off is done when the
//! store is closed, so that is measured too, and the rows are looked at in a store that was opened again.

mod by_keys;
mod in_sql;
mod rows;

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::rows::Rows;
use super::crew::{self, Amount, Place, Shift, Worker};
use super::dice::Dice;
use super::{Measured, Site, Workload};
use crate::engines::{Begin, Failure, Outcome, Store, Waits};
use crate::measure::phase::Phase;
use crate::measure::trial::size_of;
use crate::measure::usage;

/// Sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Rows at the beginning.
    pub rows: u64,
    /// Bytes of `v`.
    pub value_bytes: usize,
    /// How transactions begin; none when each statement is one of its own.
    pub begin: Option<Begin>,
    /// What the transactions do.
    pub mix: Mix,
    /// Whether there is an index on `tag`.
    pub index: bool,
    /// Threads or processes.
    pub place: Place,
    /// Who works and for how long.
    pub shift: Shift,
}

/// What the transactions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// Each selects a random row and updates a random row.
    SelectUpdate,
    /// As that, but only the first rows are updated, so many.
    Hot(u64),
    /// Each inserts a row, whose id the engine chooses.
    Inserts,
    /// So many of a hundred only select a row; the others are as [`SelectUpdate`](Self::SelectUpdate).
    MostlyReads(u64),
    /// So many workers only select; the others are as [`SelectUpdate`](Self::SelectUpdate).
    BesideReaders(u32),
    /// One worker reads all rows, keeps its transaction open for the time of the shift and reads all again; the others
    /// are as [`SelectUpdate`](Self::SelectUpdate).
    BesideLongReader,
}

/// The phase of a steady shift that closes the store: all that is left to be done when the last transaction has been
/// acknowledged.
pub const CLOSING: &str = "closing";
/// The phase of a steady shift whose time has that of the closing in it: what is put off is done there.
pub const WITH_CLOSING: &str = "transactions and closing";

/// What was done, in the time that it took with the closing.
fn with_closing(whole: &Phase, closing: &Phase) -> Phase {
    Phase {
        name: WITH_CLOSING.to_owned(),
        seconds: whole.seconds + closing.seconds,
        usage: usage::plus(whole.usage, closing.usage),
        // It stands in the phase without.
        latency: None,
        due_per_second: None,
        ..whole.clone()
    }
}

/// Values of `tag` are below this.
const TAGS: u64 = 1000;

impl Load {
    /// Fills the table, lets the crew work, and adds up.
    pub(super) fn run(&self, site: &Site<'_>, workload: &Workload) -> Outcome<Measured> {
        let mut store = site.engine.open(&site.directory, site.settings)?;
        self.fill(store.as_ref(), site.seed)?;
        let done = crew::run_in(self.place, site, workload, store.as_ref(), &self.shift)?;
        let mut closing = None;
        if matches!(self.shift.amount, Amount::Steady { .. }) {
            closing = Some(done.close(store, CLOSING)?);
            store = site.engine.open(&site.directory, site.settings)?;
        }
        let whole = done.whole("transactions");
        let verified = self.verify(store.as_ref(), whole.acknowledged())?;
        let mut phases = vec![whole];
        if let Some(closing) = closing {
            phases.push(with_closing(&phases[0], &closing));
            phases.push(closing);
        }
        if self.has_reads_apart() {
            phases.extend(done.parts("writes", "reads"));
        }
        let settings = store.settings()?;
        store.close()?;
        Ok(Measured { phases, settings, verified, ..Measured::default() })
    }

    /// Whether some transactions only read.
    fn has_reads_apart(&self) -> bool {
        matches!(self.mix, Mix::MostlyReads(_) | Mix::BesideReaders(_) | Mix::BesideLongReader)
    }

    fn fill(&self, store: &dyn Store, seed: u64) -> Outcome<()> {
        let mut rows = rows::create(store, self.index)?;
        let mut dice = Dice::new(seed, u64::MAX);
        let mut value = vec![0; self.value_bytes];
        rows.begin(Begin::Deferred)?;
        for _ in 0..self.rows {
            dice.fill(&mut value);
            let tag = dice.below(TAGS).cast_signed();
            rows.insert(0, tag, &value)?;
        }
        rows.commit()?;
        let ids = rows.ids()?;
        if ids != (1, self.rows.cast_signed()) {
            return Err(Failure::broken(format!("{} rows got the ids {ids:?}", self.rows)));
        }
        Ok(())
    }

    fn verify(&self, store: &dyn Store, commits: u64) -> Outcome<Vec<String>> {
        let mut table = rows::open(store, 0)?;
        let (rows, sum) = table.sums()?;
        let (rows, sum) = (rows.cast_unsigned(), sum.cast_unsigned());
        let inserted = if self.mix == Mix::Inserts { commits } else { 0 };
        let expected = (self.rows + inserted, commits);
        if (rows, sum) != expected {
            return Err(Failure::broken(format!(
                "{commits} acknowledged commits on {} rows left {rows} rows with {sum} of them",
                self.rows
            )));
        }
        let mut verified = vec![format!("{rows} rows hold the {sum} commits acknowledged")];
        if self.index {
            let mut found = 0;
            for tag in 0..TAGS.cast_signed() {
                found += table.tagged(tag)?;
            }
            if found != rows {
                return Err(Failure::broken(format!("the index finds {found} of {rows} rows")));
            }
            verified.push(format!("the index finds all {found}"));
        }
        Ok(verified)
    }

    /// A worker with a connection of its own.
    pub(super) fn client<'a>(
        &'a self,
        site: &'a Site<'a>,
        store: &'a dyn Store,
        index: u32,
    ) -> Outcome<Box<dyn Worker + 'a>> {
        Ok(Box::new(Client {
            load: self,
            index,
            rows: rows::open(store, index)?,
            dice: Dice::new(site.seed, u64::from(index)),
            action: Action::Select,
            ids: (1, 1),
            tag: 0,
            value: vec![0; self.value_bytes],
            directory: site.directory.clone(),
            saw_file_bytes: None,
        }))
    }
}

/// What a transaction does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Select,
    SelectUpdate,
    Insert,
    ReadForLong,
}

/// Does transactions.
struct Client<'a> {
    load: &'a Load,
    index: u32,
    rows: Box<dyn Rows + 'a>,
    dice: Dice,
    action: Action,
    /// The row to be selected and the row to be updated.
    ids: (i64, i64),
    tag: i64,
    value: Vec<u8>,
    directory: PathBuf,
    saw_file_bytes: Option<u64>,
}

impl Client<'_> {
    fn select(&mut self) -> Outcome<()> {
        if self.rows.select(self.ids.0)? == Some(self.load.value_bytes) {
            return Ok(());
        }
        Err(Failure::broken(format!("row {} is not there, or not as it was written", self.ids.0)))
    }

    fn write(&mut self) -> Outcome<()> {
        let changed = if self.action == Action::Insert {
            self.rows.insert(1, self.tag, &self.value)?
        } else {
            self.select()?;
            self.rows.update(self.ids.1, &self.value)?
        };
        if changed == 1 {
            return Ok(());
        }
        Err(Failure::broken(format!("a write changed {changed} rows instead of one")))
    }

    fn read_for_long(&mut self) -> Outcome<()> {
        let Amount::Seconds(seconds) = self.load.shift.amount else {
            return Err(Failure::broken("a long reader reads for a time: give the shift one"));
        };
        self.rows.begin(Begin::Deferred)?;
        let before = self.rows.sums()?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let after = self.rows.sums()?;
        if before != after {
            return Err(Failure::broken(format!(
                "a transaction that reads saw first {before:?}, then {after:?}"
            )));
        }
        self.saw_file_bytes = Some(size_of(&self.directory));
        self.rows.commit()
    }
}

impl Worker for Client<'_> {
    fn choose(&mut self) {
        let load = self.load;
        self.action = match load.mix {
            Mix::SelectUpdate | Mix::Hot(_) => Action::SelectUpdate,
            Mix::Inserts => Action::Insert,
            Mix::MostlyReads(percent) if self.dice.below(100) < percent => Action::Select,
            Mix::BesideReaders(readers) if self.index < readers => Action::Select,
            Mix::BesideLongReader if self.index == 0 => Action::ReadForLong,
            Mix::MostlyReads(_) | Mix::BesideReaders(_) | Mix::BesideLongReader => {
                Action::SelectUpdate
            }
        };
        let updated = if let Mix::Hot(hot) = load.mix { hot } else { load.rows };
        let (read, write) = (self.dice.below(load.rows), self.dice.below(updated));
        self.ids = (read.cast_signed() + 1, write.cast_signed() + 1);
        self.tag = self.dice.below(TAGS).cast_signed();
        if self.writes() {
            self.dice.fill(&mut self.value);
        }
    }

    fn attempt(&mut self) -> Outcome<()> {
        match (self.action, self.load.begin) {
            (Action::Select, _) => self.select(),
            (Action::ReadForLong, _) => self.read_for_long(),
            (_, None) => self.write(),
            (_, Some(begin)) => {
                self.rows.begin(begin)?;
                self.write()?;
                self.rows.commit()
            }
        }
    }

    fn give_up(&mut self) -> Outcome<()> {
        self.rows.rollback()
    }

    fn waits(&self) -> Waits {
        self.rows.waits()
    }

    fn writes(&self) -> bool {
        matches!(self.action, Action::SelectUpdate | Action::Insert)
    }

    fn saw_file_bytes(&self) -> Option<u64> {
        self.saw_file_bytes
    }
}

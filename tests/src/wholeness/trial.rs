//! One failure in the act of a case, and what has to be true after it.

use super::model::{Bench, Model, do_before};
use super::side::{Content, Outcome, Side, content};
use super::switch::Failure;
use super::{Act, Beside, Case};
use crate::differential::dice::Dice;
use crate::sqlite::{BUSY, Connection};
use anyhow::{Context as _, anyhow, bail, ensure};
use std::ops::AddAssign;

/// What calls answer: BUSY, BUSY_SNAPSHOT, FULL, IOERR, NOMEM, INTERRUPT, ERROR.
pub const CODES: [i32; 7] = [5, 517, 13, 10, 7, 9, 1];
/// Calls after which nothing may be repeated, whatever they answer: they come when others cannot be in the way any more.
const NEVER_BUSY: [&str; 2] = ["pl_part_prepare", "pl_exclusive_replay"];
/// Calls that come when another file may have been committed: they fail when the machine does, which `several_files_killed.rs` shows.
const ENDS_OF_SEVERAL: [&str; 3] = ["pl_commit", "pl_part_commit", "pl_settle_shown"];
/// Trials of a case at most.
const TRIALS_MAX: usize = 150;

/// What becomes of the transaction after the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It commits what is there.
    Commit,
    /// The act is repeated, and then it commits.
    Repeat,
    /// It goes back to the savepoint, and then commits.
    Back,
    /// It is rolled back.
    Rollback,
}

/// A failure and what follows.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The calls that fail.
    pub failure: Option<Failure>,
    /// What follows.
    pub ending: Ending,
    /// The transaction looks at everything in between.
    pub looks: bool,
}

/// How many trials came to what.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Cases.
    pub cases: u64,
    /// Trials.
    pub trials: u64,
    /// Acts that failed.
    pub failed: u64,
    /// Transactions that were there after it as before.
    pub kept: u64,
    /// Those that were rolled back by it, as those of one statement are.
    pub rolled_back: u64,
    /// Those that could not go on until ROLLBACK.
    pub lost: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.cases += more.cases;
        self.trials += more.trials;
        self.failed += more.failed;
        self.kept += more.kept;
        self.rolled_back += more.rolled_back;
        self.lost += more.lost;
    }
}

fn trials(case: &Case, model: &Model, dice: &mut Dice) -> Vec<Trial> {
    const ENDINGS: [Ending; 4] = [Ending::Commit, Ending::Repeat, Ending::Back, Ending::Rollback];
    let mut all = Vec::new();
    if case.beside != Beside::Nobody {
        let both = [true, false];
        let trial = |ending| both.map(|looks| Trial { failure: None, ending, looks });
        return ENDINGS.into_iter().flat_map(trial).collect();
    }
    for at in 1..=model.calls {
        for code in CODES {
            // Of several files the call that fails first says what may be expected.
            let more = if case.attached { 0 } else { *dice.pick(&[0, 0, 0, 1, 2, 1000]) };
            let failure = Some(Failure { at, code, more });
            all.push(Trial { failure, ending: *dice.pick(&ENDINGS), looks: dice.one_in(2) });
        }
    }
    while all.len() > TRIALS_MAX {
        all.swap_remove(dice.roll(all.len()));
    }
    all
}

/// All trials of a case. The error says what is wrong; the case was run with the same failures before and after.
pub fn run(bench: &Bench<'_>, case: &Case) -> anyhow::Result<Tally> {
    let files = tempfile::Builder::new().prefix("files-").tempdir_in(bench.scratch)?;
    super::side::make_files(bench.plait, case, files.path())?;
    let mut tally = Tally { cases: 1, ..Tally::default() };
    let Some(model) = bench.model(case, files.path())? else { return Ok(tally) };
    let mut dice = Dice::new(case.seed ^ 0x5eed);
    let mut side = None;
    for trial in trials(case, &model, &mut dice) {
        let fresh = match side.take() {
            Some(side) => side,
            None => Side::open(bench.plait, case, files.path(), bench.scratch)?,
        };
        let course = Course { bench, case, model: &model, side: &fresh, trial };
        let told = course.run().map_err(|(name, error)| {
            anyhow!("{trial:?}, in {}: {error:#}", name.unwrap_or_else(|| "no call".to_owned()))
        })?;
        tally += told.tally;
        if !told.is_changed {
            side = Some(fresh);
        }
    }
    if let Some(side) = side {
        side.check(case).context("after all trials")?;
    }
    Ok(tally)
}

struct Told {
    tally: Tally,
    /// The database is not what it was.
    is_changed: bool,
}

/// A trial under way.
struct Course<'a> {
    bench: &'a Bench<'a>,
    case: &'a Case,
    model: &'a Model,
    side: &'a Side,
    trial: Trial,
}

/// What became of the transaction by the failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    RolledBack,
    Lost,
}

/// What is to be found in the end, and what became of the transaction.
type Expected = (Content, Fate);

impl Course<'_> {
    fn main(&self) -> &Connection {
        &self.side.main
    }

    /// What an error is told with: the call that failed.
    fn run(&self) -> Result<Told, (Option<String>, anyhow::Error)> {
        let mut name = None;
        self.attempt(&mut name).map_err(|error| {
            self.bench.switch.arm(None);
            (name, error)
        })
    }

    fn attempt(&self, name: &mut Option<String>) -> anyhow::Result<Told> {
        let (case, main) = (self.case, self.main());
        let reader = self.begin_reader()?;
        do_before(self.bench.plait, case, self.side, &mut |_| Ok(()))?;
        let counters = (main.changes(), main.total_changes());
        let is_beside = case.beside == Beside::Writer && self.begin_writer();
        self.bench.switch.arm(self.trial.failure);
        let outcome = self.side.act(case, false);
        *name = self.bench.switch.disarm().1;
        if is_beside {
            self.side.other.execute("ROLLBACK").context("the writer beside it ends")?;
        }
        let mut tally = Tally { trials: 1, ..Tally::default() };
        if case.attached && name.as_deref().is_some_and(|name| ENDS_OF_SEVERAL.contains(&name)) {
            return Ok(Told { tally, is_changed: true });
        }
        let expected = match &outcome.error {
            Some(error) if !self.is_as_ever(&outcome) => {
                let failed = self.after_failure(&outcome, counters);
                let (expected, fate) = failed.with_context(|| format!("after {error}"))?;
                let goes_on = self.says_repeat(error.extended, name.as_deref());
                ensure!(!goes_on || fate != Fate::Lost, "lost after {error}");
                tally.failed = 1;
                match fate {
                    Fate::Kept => tally.kept = 1,
                    Fate::RolledBack => tally.rolled_back = 1,
                    Fate::Lost => tally.lost = 1,
                }
                expected
            }
            _ => {
                let (expected, fate) = self.after_success(&outcome, is_beside)?;
                tally.lost = u64::from(fate == Fate::Lost);
                expected
            }
        };
        drop(reader);
        self.look_at_the_end(&expected)?;
        let is_changed = expected != self.model.start;
        if is_changed {
            self.side.check(case)?;
        }
        Ok(Told { tally, is_changed })
    }

    /// BUSY: a program that repeats the act until it succeeds must come to an end. Unless another call failed as well, or one that is never
    /// busy.
    fn says_repeat(&self, code: i32, call: Option<&str>) -> bool {
        let is_alone = self.trial.failure.is_none_or(|failure| failure.more == 0);
        code == BUSY && is_alone && call.is_none_or(|call| !NEVER_BUSY.contains(&call))
    }

    fn begin_reader(&self) -> anyhow::Result<Option<Connection>> {
        if self.case.beside != Beside::Reader {
            return Ok(None);
        }
        let reader = self.side.connect_another(self.bench.plait, self.case)?;
        reader.execute("BEGIN; SELECT count(*) FROM heavy")?;
        self.side.other.execute("UPDATE beside SET x=x+1")?;
        Ok(Some(reader))
    }

    /// Whether it is there: the transaction may have the right to write itself.
    fn begin_writer(&self) -> bool {
        let begun = self.side.other.execute("BEGIN IMMEDIATE; UPDATE beside SET x=x+1");
        begun.is_ok()
            || (!self.side.other.autocommit() && self.side.other.execute("ROLLBACK").is_err())
    }

    /// It fails, as it does undisturbed.
    fn is_as_ever(&self, outcome: &Outcome) -> bool {
        let usual = self.model.outcome.error.as_ref();
        usual.is_some_and(|usual| {
            outcome.error.as_ref().is_some_and(|error| error.extended == usual.extended)
        })
    }

    fn sees(&self, who: &Connection, wanted: &Content, when: &str) -> anyhow::Result<()> {
        let found = content(who, self.case).with_context(|| when.to_owned())?;
        let difference = found.difference(wanted, self.case);
        ensure!(difference.is_none(), "{when}: {}", difference.unwrap_or_default());
        Ok(())
    }

    fn after_success(&self, outcome: &Outcome, is_beside: bool) -> anyhow::Result<Expected> {
        let (case, model, main) = (self.case, self.model, self.main());
        let is_open = !main.autocommit();
        // What runs in the middle of the act may have failed, which the act swallows.
        let is_free = !case.inside.is_empty() && self.trial.failure.is_some();
        if is_free && !is_open && model.is_open {
            // It was rolled back then, and what ran after that is in a transaction of its own.
            return Ok((content(main, case)?, Fate::RolledBack));
        }
        ensure!(is_open == model.is_open, "the transaction is open after success: {is_open}");
        // Beside one that writes automatic rowids may have gaps.
        let after = if is_beside || is_free {
            match content(main, case) {
                Err(error) if is_open && is_free => return self.must_be_lost(&error.to_string()),
                found => found?,
            }
        } else {
            let (got, wanted) = (&outcome.rows, &model.outcome.rows);
            ensure!(got == wanted, "the act answers {got:?}, not {wanted:?}");
            model.after.clone()
        };
        if self.trial.looks {
            match content(main, case) {
                // What was read could not be noted: that is told by the next call.
                Err(error) if is_open => return self.must_be_lost(&error.to_string()),
                found => {
                    let difference = found?.difference(&after, case);
                    ensure!(
                        difference.is_none(),
                        "after success: {}",
                        difference.unwrap_or_default()
                    );
                }
            }
        }
        if !is_open {
            return Ok((after, Fate::Kept));
        }
        if self.trial.ending == Ending::Rollback {
            main.execute("ROLLBACK").context("after success")?;
            return Ok((model.start.clone(), Fate::Kept));
        }
        match main.execute("COMMIT") {
            Ok(()) => Ok((after, Fate::Kept)),
            Err(error) => self.must_be_lost(&error.to_string()),
        }
    }

    fn after_failure(&self, outcome: &Outcome, counters: (i64, i64)) -> anyhow::Result<Expected> {
        let (case, model, main) = (self.case, self.model, self.main());
        if case.counted && matches!(case.act, Act::Sql(_)) {
            let now = (main.changes(), main.total_changes());
            ensure!([0, counters.0].contains(&now.0), "changes() was {}, is {}", counters.0, now.0);
            ensure!(now.1 == counters.1, "total_changes() was {}, is {}", counters.1, now.1);
        }
        if main.autocommit() && !case.inside.is_empty() {
            // What ran beside the act is in a transaction of its own by now. It does not write to this table.
            let found = content(main, case)?;
            let difference = found.difference_of(&model.start, case, "FROM o ");
            ensure!(difference.is_none(), "rolled back: {}", difference.unwrap_or_default());
            return Ok((found, Fate::RolledBack));
        }
        if main.autocommit() {
            self.sees(&self.side.other, &model.start, "rolled back, for others")?;
            self.sees(main, &model.start, "rolled back")?;
            return Ok((model.start.clone(), Fate::RolledBack));
        }
        ensure!(case.begin.is_some(), "a transaction is left open");
        let mut before = &model.before;
        if self.trial.looks || outcome.happened {
            let Ok(found) = content(main, case) else {
                return self.must_be_lost("it cannot be read");
            };
            if outcome.happened && found == model.after {
                before = &model.after;
            } else if let Some(difference) = found.difference(before, case) {
                return self.must_be_lost(&difference);
            }
        }
        self.end(before)
    }

    fn end(&self, before: &Content) -> anyhow::Result<Expected> {
        let (case, model, main) = (self.case, self.model, self.main());
        let committed = match self.trial.ending {
            Ending::Rollback => {
                main.execute("ROLLBACK")?;
                return Ok((model.start.clone(), Fate::Kept));
            }
            Ending::Commit => main.execute("COMMIT").map(|()| before),
            Ending::Back => main
                .execute("ROLLBACK TO s")
                .and_then(|()| main.execute("COMMIT"))
                .map(|()| model.savepoint.as_ref().unwrap_or(before)),
            // What has happened by then does not come to the same when it is done twice.
            Ending::Repeat if *before == model.after => main.execute("COMMIT").map(|()| before),
            Ending::Repeat => {
                let again = self.side.act_again(case);
                if let Some(error) = again.error.as_ref().filter(|_| !self.is_as_ever(&again)) {
                    return self.must_be_lost(&format!("it cannot be repeated: {error}"));
                }
                let (got, wanted) = (&again.rows, &model.outcome.rows);
                ensure!(got == wanted, "repeated it answers {got:?}, not {wanted:?}");
                let committed = if main.autocommit() { Ok(()) } else { main.execute("COMMIT") };
                committed.map(|()| &model.after)
            }
        };
        match committed {
            Ok(content) => Ok((content.clone(), Fate::Kept)),
            Err(error) => self.must_be_lost(&error.to_string()),
        }
    }

    /// Nothing of it can be committed until it is rolled back. A full-text index that could not write what it has gathered refuses
    /// COMMIT alone, as in SQLite.
    fn must_be_lost(&self, why: &str) -> anyhow::Result<Expected> {
        let main = self.main();
        for sql in ["UPDATE beside SET x=x+1", "COMMIT", "COMMIT"] {
            if main.autocommit() {
                break;
            }
            if main.execute(sql).is_ok() && (sql == "COMMIT" || !self.case.virtual_tables) {
                bail!("it is not lost, {sql} succeeds, but {why}");
            }
        }
        if !main.autocommit() {
            main.execute("ROLLBACK").context("a lost transaction ends")?;
        }
        Ok((self.model.start.clone(), Fate::Lost))
    }

    /// What is there is what is expected, and stays so when something else is committed.
    fn look_at_the_end(&self, expected: &Content) -> anyhow::Result<()> {
        let (main, other) = (self.main(), &self.side.other);
        ensure!(main.autocommit(), "the transaction has not ended");
        self.sees(other, expected, "in the end, for others")?;
        let x = other.integer("SELECT x FROM beside")?;
        main.execute("UPDATE beside SET x=x+1").context("the next transaction")?;
        ensure!(
            other.integer("SELECT x FROM beside")? == x + 1,
            "the next transaction is not seen"
        );
        self.sees(main, expected, "behind the next transaction")?;
        self.sees(other, expected, "behind the next transaction, for others")
    }
}

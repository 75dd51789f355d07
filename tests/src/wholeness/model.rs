//! What a case does undisturbed.

use super::side::{Content, Outcome, Side, content, make_files, perform};
use super::switch::Switch;
use super::{Act, Case};
use crate::sqlite::{CONSTRAINT, ERROR, SqlError};
use crate::subject::Subject;
use anyhow::{Context as _, anyhow, bail, ensure};
use std::path::Path;

/// The moments of a case, and what is there.
pub struct Model {
    /// Before the transaction.
    pub start: Content,
    /// At its savepoint.
    pub savepoint: Option<Content>,
    /// Before the act.
    pub before: Content,
    /// After it.
    pub after: Content,
    /// What the act answers.
    pub outcome: Outcome,
    /// The transaction is open after it.
    pub is_open: bool,
    /// Calls of the engine that it makes.
    pub calls: u64,
}

/// Where a case is run.
pub struct Bench<'a> {
    /// The library under test, with crash points.
    pub plait: &'a Subject,
    /// The oracle.
    pub stock: &'a Subject,
    /// Lets calls fail.
    pub switch: &'a Switch,
    /// For the files.
    pub scratch: &'a Path,
}

/// Begins the transaction and does what comes before the act; `at` sees the connection after each step.
pub fn do_before(
    subject: &Subject,
    case: &Case,
    side: &Side,
    at: &mut dyn FnMut(&Act) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (by_sql, main) = (!subject.is_concurrent(), &side.main);
    if let Some(begin) = case.begin {
        main.execute(subject.begin(begin)).context("begin")?;
    }
    for act in &case.before {
        let outcome = perform(main, act, by_sql);
        // Where the schema has changed something may not be there.
        let is_usual = |error: &SqlError| [CONSTRAINT, ERROR].contains(&error.code);
        if let Some(error) = outcome.error.filter(|error| !is_usual(error)) {
            bail!("before the act: {error}");
        }
        at(act)?;
    }
    side.script.begin(main, &case.inside);
    Ok(())
}

impl Bench<'_> {
    /// Runs the case undisturbed. `None`: it cannot be committed at each of its moments, for reasons of its own.
    pub fn model(&self, case: &Case, files: &Path) -> anyhow::Result<Option<Model>> {
        let mut model = self.moments(self.plait, case, files)?;
        let beside = tempfile::Builder::new().prefix("stock-").tempdir_in(self.scratch)?;
        make_files(self.stock, case, beside.path())?;
        let stock = self.moments(self.stock, case, beside.path())?;
        self.compare(case, &model, &stock)?;
        let endings: [(&[&str], &Content); 3] = [
            (&["COMMIT"], &model.before),
            (&["ROLLBACK TO s", "COMMIT"], model.savepoint.as_ref().unwrap_or(&model.before)),
            (&["act", "COMMIT"], &model.after),
        ];
        for (ending, wanted) in endings {
            if case.begin.is_some() && !self.commits(case, files, ending, wanted)? {
                return Ok(None);
            }
        }
        let side = Side::open(self.plait, case, files, self.scratch)?;
        do_before(self.plait, case, &side, &mut |_| Ok(()))?;
        self.switch.arm(None);
        let _ = side.act(case, false);
        model.calls = self.switch.disarm().0;
        Ok(Some(model))
    }

    fn moments(&self, subject: &Subject, case: &Case, files: &Path) -> anyhow::Result<Model> {
        let side = Side::open(subject, case, files, self.scratch)?;
        let main = &side.main;
        let start = content(main, case)?;
        let mut savepoint = None;
        do_before(subject, case, &side, &mut |act| {
            if act.is("SAVEPOINT s") {
                savepoint = Some(content(main, case)?);
            }
            Ok(())
        })?;
        let before = content(main, case)?;
        let outcome = side.act(case, !subject.is_concurrent());
        let after = content(main, case)?;
        let is_open = !main.autocommit();
        Ok(Model { start, savepoint, before, after, outcome, is_open, calls: 0 })
    }

    fn compare(&self, case: &Case, plait: &Model, stock: &Model) -> anyhow::Result<()> {
        let moments = [
            ("before the transaction", &plait.start, &stock.start),
            ("before the act", &plait.before, &stock.before),
            ("after the act", &plait.after, &stock.after),
        ];
        for (when, got, wanted) in moments {
            let difference = got.difference(wanted, case);
            ensure!(
                difference.is_none(),
                "unlike stock {when}: {}",
                difference.unwrap_or_default()
            );
        }
        let code = |model: &Model| model.outcome.error.as_ref().map(|error| error.extended);
        ensure!(code(plait) == code(stock), "unlike stock: {:?}", plait.outcome);
        if matches!(case.act, Act::Sql(_)) {
            let (got, wanted) = (&plait.outcome.rows, &stock.outcome.rows);
            ensure!(got == wanted, "unlike stock: rows {got:?}, not {wanted:?}");
        }
        Ok(())
    }

    /// Whether the transaction can be committed that way; then it has to be there.
    fn commits(
        &self,
        case: &Case,
        files: &Path,
        ending: &[&str],
        wanted: &Content,
    ) -> anyhow::Result<bool> {
        let side = Side::open(self.plait, case, files, self.scratch)?;
        do_before(self.plait, case, &side, &mut |_| Ok(()))?;
        for step in ending {
            if side.main.autocommit() {
                break;
            }
            let outcome = if *step == "act" {
                side.act(case, false)
            } else {
                side.script.end();
                perform(&side.main, &Act::sql(*step), false)
            };
            if let Some(error) = outcome.error {
                if error.code == CONSTRAINT && *step != "act" {
                    return Ok(false);
                }
                ensure!(*step == "act", "{step} undisturbed: {error}");
            }
        }
        let found = content(&side.other, case)?;
        match found.difference(wanted, case) {
            None => side.check(case).map(|()| true),
            Some(difference) => Err(anyhow!("undisturbed, {ending:?}: {difference}")),
        }
    }
}

//! Turns a seed into a case.

use super::inside::Inside;
use super::tables::{ALWAYS, CALLING, KINDS, Kind, inside};
use super::{Act, Beside, Case};
use crate::differential::dice::Dice;
use crate::subject::Begin;

/// Bytes that a transaction may write in memory before it goes on in the file.
const BUDGET_BYTES: usize = 7 << 20;

/// The case of a seed.
#[must_use]
pub fn generate(seed: u64) -> Case {
    let mut dice = Dice::new(seed);
    let kinds = pick_kinds(&mut dice, seed);
    let all = || std::iter::once(&ALWAYS).chain(kinds.iter().copied());
    let strings = |of: fn(&Kind) -> &'static [&'static str]| {
        all().flat_map(of).map(|sql| (*sql).to_owned()).collect::<Vec<String>>()
    };
    let beside = *dice.pick(&[
        Beside::Nobody,
        Beside::Nobody,
        Beside::Nobody,
        Beside::Nobody,
        Beside::Writer,
        Beside::Reader,
    ]);
    let begin = pick_begin(&mut dice, beside);
    let before = if begin.is_some() { before(&mut dice, &kinds, beside) } else { Vec::new() };
    let (merged, recent) = (some_rows(&mut dice, &kinds), some_rows(&mut dice, &kinds));
    let act = act(&mut dice, &kinds, begin.is_some());
    let is_called = matches!(&act, Act::Sql(sql) if sql.contains("COLLATE called"));
    let inside = if is_called { inside_of(&mut dice) } else { Vec::new() };
    let mut shown = strings(|kind| kind.shown);
    shown.sort();
    shown.dedup();
    Case {
        seed,
        attached: kinds.iter().any(|kind| kind.attached),
        schema: strings(|kind| kind.schema),
        temporary: strings(|kind| kind.temporary),
        merged,
        recent,
        begin,
        before,
        act,
        inside,
        counted: !kinds.iter().any(|kind| kind.virtual_table || kind.programs),
        virtual_tables: kinds.iter().any(|kind| kind.virtual_table),
        beside,
        shown,
        checks: strings(|kind| kind.checks),
    }
}

fn pick_kinds(dice: &mut Dice, seed: u64) -> Vec<&'static Kind> {
    if seed % 8 == 4 {
        return vec![&CALLING];
    }
    let first = dice.roll(KINDS.len());
    let second = dice.roll(KINDS.len());
    if first == second || dice.one_in(2) {
        return vec![&KINDS[first]];
    }
    vec![&KINDS[first], &KINDS[second]]
}

/// Beside one that has the right to write a transaction has not written yet, or needs none.
fn pick_begin(dice: &mut Dice, beside: Beside) -> Option<Begin> {
    let choices: &[Option<Begin>] = match beside {
        Beside::Writer => &[Some(Begin::Concurrent), Some(Begin::Concurrent), None],
        _ => &[
            Some(Begin::Concurrent),
            Some(Begin::Concurrent),
            Some(Begin::Deferred),
            Some(Begin::Deferred),
            Some(Begin::Immediate),
            Some(Begin::OnPages),
            None,
        ],
    };
    *dice.pick(choices)
}

fn some_rows(dice: &mut Dice, kinds: &[&Kind]) -> Vec<String> {
    let count = dice.roll(6);
    let row = |_| (dice.pick(kinds).row)(dice);
    (0..count).map(row).collect()
}

/// What the transaction does first: a little, so much that there is hardly room for more, or something that has it work in the file.
fn before(dice: &mut Dice, kinds: &[&Kind], beside: Beside) -> Vec<Act> {
    let mut acts: Vec<Act> = (0..dice.roll(4)).map(|_| (dice.pick(kinds).act)(dice)).collect();
    let place = dice.roll(acts.len() + 1);
    acts.insert(place, Act::sql("SAVEPOINT s"));
    let room = if dice.one_in(2) { dice.roll(400) } else { dice.roll(3000) };
    let full = format!("INSERT INTO heavy VALUES(1, 'full', zeroblob({}))", BUDGET_BYTES - room);
    match dice.roll(8) {
        0 | 1 => acts.insert(dice.roll(acts.len() + 1), Act::Sql(full)),
        2 if beside == Beside::Nobody => {
            acts.insert(dice.roll(acts.len() + 1), Act::sql("CREATE TABLE own(x)"));
        }
        3 if beside == Beside::Writer => acts.push(Act::Sql(full)),
        _ => {}
    }
    acts
}

fn inside_of(dice: &mut Dice) -> Vec<Inside> {
    let mut steps: Vec<Inside> = (0..1 + dice.roll(4)).map(|_| inside(dice)).collect();
    // What is left open is to end sometimes.
    if dice.one_in(2) {
        steps.push(Inside::End);
    }
    steps
}

fn act(dice: &mut Dice, kinds: &[&Kind], in_transaction: bool) -> Act {
    if in_transaction && dice.one_in(8) {
        let ends = ["COMMIT", "COMMIT", "COMMIT", "RELEASE s", "ROLLBACK TO s"];
        return Act::sql(*dice.pick(&ends));
    }
    if dice.one_in(12) {
        let n = 2 + dice.roll(3);
        return Act::Sql(format!(
            "INSERT INTO heavy(k, b) SELECT value, zeroblob(3000000) FROM json_each('[1,2,3,4]') LIMIT {n}"
        ));
    }
    (dice.pick(kinds).act)(dice)
}

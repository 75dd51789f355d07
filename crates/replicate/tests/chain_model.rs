//! A small model of the chain, gone through whole: every order of the steps of two writers, a
//! packer that deletes, and a follower, over a store that answers late, twice, or not at all.
//!
//! What the model has: records by number, each an OPEN of an epoch or a record of one; packs; what
//! is in `chain/`. A writer knows the tip as it was when it looked; its next request is under way
//! for as long as the model likes, and may happen behind its end. What it leaves out: contents,
//! snapshots, retention.
//!
//! Checked in every state
//! - nobody is told "shipped" for a record that is not the chain's (CHAIN-2);
//! - a number has one record, but for strays, and each follows the one before (CHAIN-3);
//! - behind an OPEN no writer of an older epoch has a record (CHAIN-4);
//! - an OPEN is never gone (CHAIN-8), nor a record that no pack has (CHAIN-9);
//! - a follower has a beginning of the chain (CHAIN-7).
//!
//! Each rule of the design can be left out, and then one of these is broken.

use std::collections::{BTreeSet, HashSet, VecDeque};

/// Numbers of records at most.
const NUMBERS: usize = 4;
/// Writers: the first has its epoch open when the model begins.
const WRITERS: usize = 2;

/// A rule of the design that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeftOut {
    Nothing,
    /// A record that is there is taken for the writer's own.
    ReadBehindExists,
    /// The database is told before the answer.
    WaitForAnswer,
    /// The next number waits for the last one.
    OneAtATime,
    /// An OPEN is kept when a pack has it.
    OpensKept,
    /// A pack is there before what it has is deleted.
    PackFirst,
    /// A starter looks behind the OPEN that it has made.
    LookBehindOpen,
    /// A reader of an OPEN looks whether a pack has its number.
    PackBeforeOpen,
    /// The bytes for a number stay the same.
    SameBytes,
}

/// A record: whose, and which of the writer's attempts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Record {
    writer: u8,
    epoch: u8,
    is_open: bool,
    /// The record before it.
    before: u8,
    /// Distinguishes contents that a writer made for one number.
    variant: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// Not started, or ended.
    Away,
    /// It has looked: this is the tip, and its epoch.
    Looked { tip: u8, epoch: u8 },
    /// It creates its OPEN.
    Opening { tip: u8, epoch: u8 },
    /// It looks behind its OPEN.
    Checking { tip: u8, epoch: u8 },
    /// Its last known record.
    Open { tip: u8, epoch: u8 },
    /// It creates the next one.
    Shipping { tip: u8, epoch: u8, variant: u8 },
}

/// A record of each number, from 1 on.
type Records = [Option<Record>; NUMBERS + 1];

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    /// What is in `chain/`.
    loose: Records,
    /// The first record of each number.
    truth: Records,
    /// Packs have the records through this one.
    packed: u8,
    /// Requests that were sent: each may happen at any time, and again.
    sent: BTreeSet<(u8, Record)>,
    writers: [Step; WRITERS],
    /// The follower has the chain through this record.
    followed: u8,
    starts_left: u8,
    violation: Option<&'static str>,
}

impl State {
    fn first() -> State {
        let open = Record { writer: 0, epoch: 1, is_open: true, before: 0, variant: 0 };
        let mut records = Records::default();
        records[1] = Some(open);
        State {
            loose: records,
            truth: records,
            packed: 0,
            sent: BTreeSet::new(),
            writers: [Step::Open { tip: 1, epoch: 1 }, Step::Away],
            followed: 0,
            starts_left: 2,
            violation: None,
        }
    }

    fn highest(&self) -> u8 {
        let loose = self.loose.iter().rposition(Option::is_some).unwrap_or(0) as u8;
        loose.max(self.packed)
    }

    /// What a reader of a number finds that has listed just now.
    fn read(&self, number: u8) -> Option<Record> {
        let of = if number <= self.packed { &self.truth } else { &self.loose };
        of[usize::from(number)]
    }

    fn violate(&mut self, what: &'static str) {
        self.violation.get_or_insert(what);
    }

    /// A create happens; true if it has made the object.
    fn create(&mut self, number: u8, record: Record) -> bool {
        let at = usize::from(number);
        if self.loose[at].is_some() {
            return false;
        }
        self.loose[at] = Some(record);
        match self.truth[at] {
            None => {
                self.truth[at] = Some(record);
                self.check_truth(at, record);
            }
            Some(first) if first == record || record.is_open => {}
            Some(_) => self.violate("a number has two contents"),
        }
        true
    }

    fn check_truth(&mut self, at: usize, record: Record) {
        let Some(before) = self.truth[at - 1] else {
            return self.violate("a record is ahead of the one before");
        };
        let follows = if record.is_open {
            record.epoch > before.epoch
        } else {
            record.epoch == before.epoch && record.writer == before.writer
        };
        if !follows {
            self.violate("a record follows one of another epoch");
        }
    }

    fn tell(&mut self, number: u8, record: Record) {
        if self.truth[usize::from(number)] != Some(record) {
            self.violate("a database was told of a record that is not the chain's");
        }
    }

    fn check(&mut self) {
        for at in 1..=NUMBERS {
            let Some(record) = self.truth[at] else { continue };
            if record.is_open && self.loose[at].is_none() {
                self.violate("an OPEN is gone");
            }
            if self.loose[at].is_none() && at > usize::from(self.packed) {
                self.violate("a record is gone");
            }
        }
    }
}

/// All states that one step leads to.
fn steps(state: &State, left_out: LeftOut) -> Vec<State> {
    let mut next = Vec::new();
    for writer in 0..WRITERS {
        writer_steps(state, writer, left_out, &mut next);
    }
    for (number, record) in &state.sent {
        let mut after = state.clone();
        if after.create(*number, *record) {
            next.push(after);
        }
    }
    pack_steps(state, left_out, &mut next);
    follow_steps(state, left_out, &mut next);
    for after in &mut next {
        after.check();
    }
    next
}

fn writer_steps(state: &State, writer: usize, left_out: LeftOut, next: &mut Vec<State>) {
    let mut goes = |step: Step, with: &dyn Fn(&mut State)| {
        let mut after = state.clone();
        after.writers[writer] = step;
        with(&mut after);
        next.push(after);
    };
    let step = state.writers[writer];
    if step != Step::Away {
        // It is killed.
        goes(Step::Away, &|_| {});
    }
    match step {
        Step::Away if state.starts_left > 0 => {
            let tip = state.highest();
            let epoch = state.read(tip).map_or(0, |record| record.epoch);
            goes(Step::Looked { tip, epoch }, &|after| after.starts_left -= 1);
        }
        Step::Away => {}
        Step::Looked { tip, epoch } if usize::from(tip) < NUMBERS => {
            let record = open_of(writer, tip, epoch);
            goes(Step::Opening { tip, epoch: epoch + 1 }, &|after| {
                after.sent.insert((tip + 1, record));
            });
        }
        Step::Opening { tip, epoch } => {
            let record = open_of(writer, tip, epoch - 1);
            answered(state, tip + 1, record, left_out, &mut |after, is_own| {
                let step = if is_own { Step::Checking { tip: tip + 1, epoch } } else { Step::Away };
                let mut after = after.clone();
                after.writers[writer] = step;
                next.push(after);
            });
        }
        Step::Checking { tip, epoch } => {
            let is_stray = state.highest() > tip || state.packed >= tip;
            let goes_on = !is_stray || left_out == LeftOut::LookBehindOpen;
            let step = if goes_on { Step::Open { tip, epoch } } else { Step::Away };
            goes(step, &|_| {});
        }
        Step::Open { tip, epoch } if usize::from(tip) < NUMBERS => {
            let record = record_of(writer, tip, epoch, 0);
            goes(Step::Shipping { tip, epoch, variant: 0 }, &|after| {
                after.sent.insert((tip + 1, record));
                if left_out == LeftOut::WaitForAnswer {
                    after.tell(tip + 1, record);
                }
            });
        }
        Step::Shipping { tip, epoch, variant } => {
            ship_steps(state, writer, (tip, epoch, variant), left_out, next);
        }
        Step::Looked { .. } | Step::Open { .. } => {}
    }
}

fn open_of(writer: usize, tip: u8, epoch: u8) -> Record {
    Record { writer: writer as u8, epoch: epoch + 1, is_open: true, before: tip, variant: 0 }
}

fn record_of(writer: usize, tip: u8, epoch: u8, variant: u8) -> Record {
    Record { writer: writer as u8, epoch, is_open: false, before: tip, variant }
}

fn ship_steps(
    state: &State,
    writer: usize,
    (tip, epoch, variant): (u8, u8, u8),
    left_out: LeftOut,
    next: &mut Vec<State>,
) {
    let record = record_of(writer, tip, epoch, variant);
    answered(state, tip + 1, record, left_out, &mut |after, is_own| {
        let mut after = after.clone();
        after.writers[writer] = Step::Away;
        if is_own {
            after.writers[writer] = Step::Open { tip: tip + 1, epoch };
            after.tell(tip + 1, record);
        }
        next.push(after);
    });
    if left_out == LeftOut::SameBytes && variant == 0 {
        let mut after = state.clone();
        after.writers[writer] = Step::Shipping { tip, epoch, variant: 1 };
        after.sent.insert((tip + 1, record_of(writer, tip, epoch, 1)));
        next.push(after);
    }
    if left_out == LeftOut::OneAtATime && usize::from(tip) + 1 < NUMBERS {
        // No answer: it goes on with the next number.
        let mut after = state.clone();
        after.sent.insert((tip + 2, record_of(writer, tip + 1, epoch, 0)));
        after.writers[writer] = Step::Shipping { tip: tip + 1, epoch, variant: 0 };
        next.push(after);
    }
}

/// The answers to a create: it is made, or something is there, which is read.
fn answered(
    state: &State,
    number: u8,
    record: Record,
    left_out: LeftOut,
    goes_on: &mut dyn FnMut(&State, bool),
) {
    let mut after = state.clone();
    if after.create(number, record) {
        goes_on(&after, true);
        return;
    }
    let is_own = state.loose[usize::from(number)] == Some(record);
    goes_on(state, is_own || left_out == LeftOut::ReadBehindExists);
}

fn pack_steps(state: &State, left_out: LeftOut, next: &mut Vec<State>) {
    let from = usize::from(state.packed) + 1;
    // Whoever packs a record knows one behind it.
    let is_known = from < NUMBERS && state.truth[from].is_some() && state.truth[from + 1].is_some();
    if is_known {
        let mut after = state.clone();
        if left_out == LeftOut::PackFirst {
            after.loose[from] = None;
        } else {
            after.packed += 1;
        }
        next.push(after);
    }
    for at in 1..=usize::from(state.packed) {
        let is_open = state.truth[at].is_some_and(|record| record.is_open);
        if state.loose[at].is_some() && (!is_open || left_out == LeftOut::OpensKept) {
            let mut after = state.clone();
            after.loose[at] = None;
            next.push(after);
        }
    }
}

fn follow_steps(state: &State, left_out: LeftOut, next: &mut Vec<State>) {
    let number = state.followed + 1;
    if usize::from(number) > NUMBERS {
        return;
    }
    let loose = state.loose[usize::from(number)];
    let found = match loose {
        // It has listed long ago: what is in `chain/` it takes, but for an OPEN.
        Some(record) if !record.is_open || left_out == LeftOut::PackBeforeOpen => Some(record),
        _ => state.read(number),
    };
    if let Some(record) = found {
        let mut after = state.clone();
        after.followed = number;
        if state.truth[usize::from(number)] != Some(record) {
            after.violate("a follower has what is not the chain");
        }
        next.push(after);
    }
}

/// Goes through all states; the first violation, and how many states there were.
fn explore(left_out: LeftOut) -> (Option<&'static str>, usize) {
    let first = State::first();
    let mut seen = HashSet::from([first.clone()]);
    let mut queue = VecDeque::from([first]);
    while let Some(state) = queue.pop_front() {
        for after in steps(&state, left_out) {
            if after.violation.is_some() {
                return (after.violation, seen.len());
            }
            if seen.insert(after.clone()) {
                queue.push_back(after);
            }
        }
    }
    (None, seen.len())
}

#[test]
fn no_order_of_steps_breaks_the_chain() {
    let (violation, states) = explore(LeftOut::Nothing);
    assert_eq!(violation, None);
    assert!(states > 10_000, "{states} states");
    println!("{states} states");
}

#[test]
fn each_rule_that_is_left_out_breaks_it() {
    for (left_out, breaks) in [
        (LeftOut::ReadBehindExists, "told of a record that is not the chain's"),
        (LeftOut::WaitForAnswer, "told of a record that is not the chain's"),
        (LeftOut::OneAtATime, "ahead of the one before"),
        (LeftOut::OpensKept, "an OPEN is gone"),
        (LeftOut::PackFirst, " is gone"),
        (LeftOut::LookBehindOpen, ""),
        (LeftOut::PackBeforeOpen, "a follower has what is not the chain"),
        (LeftOut::SameBytes, ""),
    ] {
        let (violation, _) = explore(left_out);
        let violation = violation.unwrap_or_else(|| panic!("{left_out:?} breaks nothing"));
        assert!(violation.contains(breaks), "{left_out:?}: {violation}");
    }
}

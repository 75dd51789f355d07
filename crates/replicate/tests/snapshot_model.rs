//! A small model of snapshots that change others, gone through in every order of its steps.
//!
//! Two machines, each with a copy of the database, of two pages, and a shelf; a chain of three
//! snapshots; sidecars that are killed at every step and take over from each other; shelves on which
//! an older file comes back; retention that keeps the newest snapshot, and what it changes.
//!
//! What is looked at: every snapshot that is kept gives the pages that were copied for it.

use std::collections::{HashSet, VecDeque};

const MACHINES: usize = 2;
const SNAPSHOTS: usize = 3;
const EDITS: u8 = 2;
const STARTS: u8 = 3;

/// A rule that is left out, to see what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftOut {
    Nothing,
    /// Sums count, of whatever snapshot they are (SUMS-1).
    Identity,
    /// A snapshot may change any one of the chain, not the newest alone (LINEAGE-1).
    NewestAlone,
    /// Retention keeps what a kept snapshot changes.
    ParentsKept,
}

type Pages = [u8; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Upload {
    serial: u8,
    parent: Option<u8>,
    /// What was copied.
    truth: Pages,
    /// What of it was put.
    has: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Away,
    Idle,
    Uploaded(Upload),
    Named(Upload),
}

/// Sums of an upload's pages: in a model they are the pages.
type Sums = (u8, Pages);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Machine {
    pages: Pages,
    shelf: Option<Sums>,
    earlier: Vec<Sums>,
    step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    machines: [Machine; MACHINES],
    /// Whose number is next.
    writer: usize,
    /// Snapshots of the chain, and whether their parts are there.
    chain: Vec<(Upload, bool)>,
    serials: u8,
    edits: u8,
    starts: u8,
}

impl State {
    fn first() -> State {
        let machine = Machine { pages: [0; 2], shelf: None, earlier: Vec::new(), step: Step::Away };
        State {
            machines: [machine.clone(), machine],
            writer: 0,
            chain: Vec::new(),
            serials: 0,
            edits: 0,
            starts: 0,
        }
    }

    /// The newest snapshot, and what it changes: places in the chain.
    fn kept(&self) -> Vec<usize> {
        let mut kept: Vec<usize> = self.chain.len().checked_sub(1).into_iter().collect();
        while let Some(parent) = kept.last().and_then(|at| self.chain[*at].0.parent) {
            kept.push(usize::from(parent));
        }
        kept
    }

    fn violation(&self) -> Option<&'static str> {
        let kept = self.kept();
        if kept.iter().any(|at| !self.chain[*at].1) {
            return Some("a snapshot that is kept lacks its parts");
        }
        let mut pages = [None; 2];
        for at in kept.iter().rev() {
            let Upload { truth, has, .. } = self.chain[*at].0;
            for page in 0..2 {
                if has[page] {
                    pages[page] = Some(truth[page]);
                }
            }
            if pages != truth.map(Some) {
                return Some("a snapshot has other pages than were copied");
            }
        }
        None
    }

    /// What an upload of this machine changes.
    fn parent(&self, machine: usize, left_out: LeftOut) -> Option<(u8, Pages)> {
        let (of, sums) = self.machines[machine].shelf?;
        let newest = self.chain.len().checked_sub(1)?;
        let at = match left_out {
            LeftOut::Identity => newest,
            LeftOut::NewestAlone => {
                self.chain.iter().position(|(upload, _)| upload.serial == of)?
            }
            _ if self.chain[newest].0.serial == of => newest,
            _ => return None,
        };
        Some((at as u8, sums))
    }
}

fn steps(state: &State, left_out: LeftOut) -> Vec<State> {
    let mut next = Vec::new();
    for machine in 0..MACHINES {
        let mut goes = |with: &dyn Fn(&mut State)| {
            let mut after = state.clone();
            with(&mut after);
            next.push(after);
        };
        let own = &state.machines[machine];
        if state.edits < EDITS {
            for page in 0..2 {
                goes(&|after| {
                    after.edits += 1;
                    // A page may become again what it was.
                    after.machines[machine].pages[page] ^= 1;
                });
            }
        }
        for older in &own.earlier {
            goes(&|after| after.machines[machine].shelf = Some(*older));
        }
        if own.step != Step::Away {
            goes(&|after| after.machines[machine].step = Step::Away);
        }
        match own.step {
            Step::Away if state.starts < STARTS => goes(&|after| {
                after.starts += 1;
                after.writer = machine;
                after.machines[machine].step = Step::Idle;
            }),
            Step::Idle if state.chain.len() < SNAPSHOTS => {
                let parent = state.parent(machine, left_out);
                let truth = own.pages;
                let is_new = |page: usize| parent.is_none_or(|(_, sums)| sums[page] != truth[page]);
                let has = [is_new(0), is_new(1)];
                let serial = state.serials;
                let parent = parent.map(|(at, _)| at);
                goes(&|after| {
                    after.serials += 1;
                    let upload = Upload { serial, parent, truth, has };
                    after.machines[machine].step = Step::Uploaded(upload);
                });
            }
            Step::Uploaded(upload) if state.writer == machine && state.chain.len() < SNAPSHOTS => {
                goes(&|after| {
                    after.chain.push((upload, true));
                    after.machines[machine].step = Step::Named(upload);
                });
            }
            // Another one has the next number.
            Step::Uploaded(_) => goes(&|after| after.machines[machine].step = Step::Away),
            Step::Named(upload) => goes(&|after| {
                let own = &mut after.machines[machine];
                let sums = (upload.serial, upload.truth);
                own.shelf = Some(sums);
                own.earlier.push(sums);
                own.step = Step::Idle;
            }),
            Step::Away | Step::Idle => {}
        }
    }
    sweep(state, left_out, &mut next);
    next
}

/// Parts go that no kept snapshot names.
fn sweep(state: &State, left_out: LeftOut, next: &mut Vec<State>) {
    let mut kept = state.kept();
    if left_out == LeftOut::ParentsKept {
        kept.truncate(1);
    }
    let mut after = state.clone();
    for (at, (_, is_there)) in after.chain.iter_mut().enumerate() {
        *is_there &= kept.contains(&at);
    }
    next.push(after);
}

fn explore(left_out: LeftOut) -> (Option<&'static str>, usize) {
    let first = State::first();
    let mut seen = HashSet::from([first.clone()]);
    let mut queue = VecDeque::from([first]);
    while let Some(state) = queue.pop_front() {
        for after in steps(&state, left_out) {
            if let Some(violation) = after.violation() {
                return (Some(violation), seen.len());
            }
            if seen.insert(after.clone()) {
                queue.push_back(after);
            }
        }
    }
    (None, seen.len())
}

// holds SUMS-1, LINEAGE-1
#[test]
fn every_snapshot_that_is_kept_has_the_pages_that_were_copied() {
    let (violation, states) = explore(LeftOut::Nothing);
    assert_eq!(violation, None);
    assert!(states > 10_000, "{states} states");
    println!("{states} states");
}

#[test]
fn each_rule_that_is_left_out_breaks_it() {
    for (left_out, breaks) in [
        (LeftOut::Identity, "other pages"),
        (LeftOut::NewestAlone, "lacks its parts"),
        (LeftOut::ParentsKept, "lacks its parts"),
    ] {
        let (violation, _) = explore(left_out);
        let violation = violation.unwrap_or_else(|| panic!("{left_out:?} breaks nothing"));
        assert!(violation.contains(breaks), "{left_out:?}: {violation}");
    }
}

//! What the readers of a replica add to a history: each of their transactions is a moment of the primary's.
//!
//! The moment may lie in the past, so nothing that has ended on the primary has to come before it in real time. What holds:
//!
//! - All that one transaction has read is of one moment: its edges to those that wrote it, and to those that replaced it, are those of any
//!   transaction, so half of a commit is a cycle.
//! - Of two transactions on the replica, whoever had returned before the other began comes first, whichever reader they are of: what was there is
//!   never gone again.
//! - Nobody reads the future, and what a replica has shown is there for whoever begins later on the primary: in real time a transaction on the
//!   replica comes before those on the primary that begin behind its end.
//! - A commit that was waited for on the replica comes before the transaction that began behind the wait.
//!
//! An absence tells by itself nothing about the moment but that it lies before the end. [`moments`] bounds it by the values that the same
//! transaction has read, by its wait, and by the transactions on the replica before and after it.

use super::graph::{Graph, Reason};
use super::history::{Operation, Seen, Transaction, TransactionName};
use super::versions::{Chain, Window};
use std::collections::{BTreeMap, HashMap};

/// For each transaction when its moment was: not before `.0`, not after `.1`. Of one on the primary that is from its begin to its end.
#[must_use]
pub fn moments(committed: &[&Transaction], chains: &BTreeMap<i64, Chain>) -> Vec<Window> {
    let writers = by_name(committed);
    let own = |transaction: &&Transaction| match transaction.on_replica {
        false => (transaction.start_ns, transaction.end_ns),
        true => {
            let waited_for = transaction.waited_for.and_then(|name| writers.get(&name));
            let since = waited_for.map_or(0, |writer| committed[*writer].commit_ns);
            own_moment(transaction, chains, since)
        }
    };
    let mut moments: Vec<Window> = committed.iter().map(own).collect();
    let mut by_start: Vec<usize> =
        (0..committed.len()).filter(|node| committed[*node].on_replica).collect();
    by_start.sort_by_key(|node| committed[*node].start_ns);
    let mut by_end = by_start.clone();
    by_end.sort_by_key(|node| committed[*node].end_ns);
    // Not before the moment of whoever had returned before.
    let (mut low, mut ended) = (0, by_end.iter().peekable());
    for node in &by_start {
        while let Some(earlier) =
            ended.next_if(|earlier| committed[**earlier].end_ns < committed[*node].start_ns)
        {
            low = low.max(moments[*earlier].0);
        }
        moments[*node].0 = moments[*node].0.max(low);
    }
    // Not after the moment of whoever began later.
    let (mut high, mut begun) = (u64::MAX, by_start.iter().rev().peekable());
    for node in by_end.iter().rev() {
        while let Some(later) =
            begun.next_if(|later| committed[**later].start_ns > committed[*node].end_ns)
        {
            high = high.min(moments[*later].1);
        }
        moments[*node].1 = moments[*node].1.min(high);
    }
    moments
}

/// What the transaction itself tells, whose moment is not before `since`.
fn own_moment(transaction: &Transaction, chains: &BTreeMap<i64, Chain>, since: u64) -> Window {
    let (mut low, mut high) = (since, transaction.end_ns);
    for operation in &transaction.operations {
        let Operation::Read { key, seen: Seen::Value(version) } = operation else { continue };
        let Some((made, replaced)) = chains.get(key).and_then(|chain| chain.stood(*version)) else {
            continue;
        };
        low = low.max(made.0);
        high = high.min(replaced.map_or(u64::MAX, |replaced| replaced.1));
    }
    (low, high)
}

/// Draws the edges of waits.
///
/// # Errors
/// A report, if what was waited for is not part of the history.
pub fn add_waits(graph: &mut Graph, committed: &[&Transaction]) -> Result<(), String> {
    let writers = by_name(committed);
    for (node, transaction) in committed.iter().enumerate() {
        let Some(name) = transaction.waited_for else { continue };
        let Some(writer) = writers.get(&name) else {
            return Err(format!(
                "{} waited for {name}, which was never committed",
                transaction.name
            ));
        };
        graph.add_edge(*writer, node, Reason::Waited, None);
    }
    Ok(())
}

/// Where transactions of the primary are that changed something.
fn by_name(committed: &[&Transaction]) -> HashMap<TransactionName, usize> {
    let nodes = committed.iter().enumerate();
    nodes.filter(|(_, t)| !t.on_replica).map(|(node, t)| (t.name, node)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{absent, delete, read, transaction, write};
    use super::super::check::check;
    use super::super::history::{Operation, Transaction, TransactionName};

    fn on_replica(number: u32, time: (u64, u64), operations: Vec<Operation>) -> Transaction {
        Transaction { on_replica: true, ..transaction(number, time, operations) }
    }

    /// Keys 1 and 2 are made, changed at 10 to 20, and changed at 30 to 40.
    fn primary() -> Vec<Transaction> {
        vec![
            transaction(0, (0, 5), vec![write(1, None, 10), write(2, None, 20)]),
            transaction(1, (10, 20), vec![write(1, Some(10), 11), write(2, Some(20), 21)]),
            transaction(2, (30, 40), vec![write(1, Some(11), 12), write(2, Some(21), 22)]),
        ]
    }

    fn checked(more: impl IntoIterator<Item = Transaction>) -> Result<(), String> {
        let mut history = primary();
        history.extend(more);
        check(&history).map(drop)
    }

    #[track_caller]
    fn reported(more: impl IntoIterator<Item = Transaction>, words: &[&str]) {
        let report = checked(more).expect_err("it must be reported");
        assert!(words.iter().all(|word| report.contains(word)), "{report}");
    }

    #[test]
    fn a_replica_may_be_behind_and_comes_nearer() {
        let reads = [
            on_replica(10, (50, 60), vec![read(1, 10), read(2, 20)]),
            on_replica(11, (61, 70), vec![read(1, 11), read(2, 21)]),
            on_replica(12, (71, 80), vec![read(1, 12), read(2, 22)]),
        ];
        assert_eq!(checked(reads), Ok(()));
    }

    #[test]
    fn half_of_a_commit_on_a_replica_is_a_cycle() {
        let half = on_replica(10, (50, 60), vec![read(1, 11), read(2, 20)]);
        reported([half], &["WriteRead", "ReadWrite"]);
    }

    #[test]
    fn half_of_a_commit_in_two_looks_of_one_transaction_is_a_cycle() {
        let moved = on_replica(10, (50, 60), vec![read(1, 11), read(1, 12)]);
        reported([moved], &["not serializable"]);
    }

    #[test]
    fn a_replica_that_goes_back_is_a_cycle_for_whichever_reader() {
        let mut other = on_replica(11, (61, 70), vec![read(1, 10)]);
        other.name.worker = 2;
        let shown = on_replica(10, (50, 60), vec![read(1, 11)]);
        reported([shown.clone(), other.clone()], &["RealTime"]);
        // While the first one runs, either may be the earlier one.
        other.start_ns = 55;
        assert_eq!(checked([shown, other]), Ok(()));
    }

    #[test]
    fn a_wait_that_returns_too_early_is_a_cycle() {
        let wait = |version| Transaction {
            waited_for: Some(TransactionName { worker: 1, number: 1 }),
            ..on_replica(10, (50, 60), vec![read(1, version)])
        };
        reported([wait(10)], &["Waited"]);
        assert_eq!(checked([wait(11)]), Ok(()));
        assert_eq!(checked([wait(12)]), Ok(()));
    }

    #[test]
    fn a_wait_for_what_was_rolled_back_is_reported() {
        let waited_for = Some(TransactionName { worker: 1, number: 9 });
        let wait = Transaction { waited_for, ..on_replica(10, (50, 60), vec![read(1, 10)]) };
        reported([wait], &["never committed"]);
    }

    #[test]
    fn a_replica_that_shows_the_future_is_a_cycle() {
        reported([on_replica(10, (22, 28), vec![read(1, 12)])], &["RealTime"]);
    }

    #[test]
    fn what_a_replica_has_shown_and_the_primary_does_not_show_later_is_a_cycle() {
        let pending = transaction(3, (50, 100), vec![write(1, Some(12), 13)]);
        let shown = on_replica(10, (60, 70), vec![read(1, 13)]);
        let missed = transaction(4, (75, 80), vec![read(1, 12)]);
        reported([pending.clone(), shown.clone(), missed.clone()], &["RealTime"]);
        // Only who begins later has to see it.
        let beside = Transaction { start_ns: 65, ..missed };
        assert_eq!(checked([pending, shown, beside]), Ok(()));
    }

    /// Key 3 lives from 10 to 68 and again from 80 on; key 1 changes at 62 and at 90.
    fn lives() -> [Transaction; 5] {
        [
            transaction(3, (10, 12), vec![write(3, None, 30)]),
            transaction(4, (66, 68), vec![delete(3, 30)]),
            transaction(5, (62, 64), vec![write(1, Some(12), 13)]),
            transaction(6, (80, 82), vec![write(3, None, 31)]),
            transaction(7, (90, 92), vec![write(1, Some(13), 14)]),
        ]
    }

    #[test]
    fn an_absence_fits_to_the_values_that_were_read_with_it() {
        let look = |version| on_replica(10, (100, 110), vec![read(1, version), absent(3)]);
        assert_eq!(checked(lives().into_iter().chain([look(13)])), Ok(()), "between the lives");
        reported(lives().into_iter().chain([look(14)]), &["no committed state of the key fits"]);
        // Before the first life it was absent, too, but not any more at the time of this value.
        reported(lives().into_iter().chain([look(12)]), &["no committed state of the key fits"]);
    }

    #[test]
    fn an_absence_is_not_before_what_the_replica_has_shown() {
        let shown = on_replica(10, (93, 95), vec![read(1, 14)]);
        let gone = on_replica(11, (100, 110), vec![absent(3)]);
        reported(lives().into_iter().chain([shown.clone(), gone.clone()]), &["no committed state"]);
        let before = Transaction { start_ns: 94, ..gone };
        assert_eq!(checked(lives().into_iter().chain([shown, before])), Ok(()));
    }

    #[test]
    fn an_absence_is_not_after_what_the_replica_shows_later() {
        let third = [
            transaction(3, (10, 12), vec![write(3, None, 30)]),
            transaction(4, (62, 64), vec![write(1, Some(12), 13)]),
            transaction(5, (70, 72), vec![delete(3, 30)]),
        ];
        let waited_for = Some(TransactionName { worker: 1, number: 2 });
        let gone = Transaction { waited_for, ..on_replica(10, (100, 110), vec![absent(3)]) };
        let later = on_replica(11, (120, 125), vec![read(1, 12)]);
        assert_eq!(checked(third.clone().into_iter().chain([gone.clone()])), Ok(()));
        reported(third.clone().into_iter().chain([gone.clone(), later.clone()]), &["no committed"]);
        let beside = Transaction { start_ns: 105, ..later };
        assert_eq!(checked(third.into_iter().chain([gone, beside])), Ok(()));
    }
}

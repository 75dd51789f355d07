//! Builds the direct serialization graph of a history and reports what is wrong with it.
//!
//! A transaction that was rolled back counts as one that only read: what it was shown has to be a state that there was, and has
//! to be there for whoever began after it had ended.
//!
//! Of two files each has an order of its own, which real time agrees with. A transaction that has changed both stands at one place in both
//! orders; any other counts as two, one in each file, since who looks at both while a commit is being made may find it in one of them only.
//!
//! Of a replica see [`replica`](super::replica).

use super::graph::{Edge, Graph, Reason};
use super::history::{Operation, Seen, Status, Transaction, Version};
use super::replica;
use super::versions::{Chain, Node, Window, Write};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

/// What a check found out about a sound history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Transactions that count as committed.
    pub committed: usize,
    /// Edges of the graph.
    pub edges: usize,
    /// Keys whose lives could not be ordered by time.
    pub keys_in_doubt: usize,
}

/// Deletions of unknown outcome that are tried both ways, at most.
const UNDECIDED_MOST: usize = 6;

/// Checks a history; the error is a report that shows the anomaly and its transactions.
///
/// What a killed worker has written was committed if anybody has seen it. What it has deleted leaves nothing to see: so it is sound if it is
/// in one of the two ways.
pub fn check(history: &[Transaction]) -> Result<Summary, String> {
    let deletes_alone = |transaction: &Transaction| {
        let is_put = |o: &Operation| matches!(o, Operation::Write { after: Some(_), .. });
        let is_deletion = |o: &Operation| matches!(o, Operation::Write { after: None, .. });
        let operations = &transaction.operations;
        transaction.status == Status::Unknown
            && !operations.iter().any(is_put)
            && operations.iter().any(is_deletion)
    };
    let undecided: Vec<usize> =
        (0..history.len()).filter(|&i| deletes_alone(&history[i])).take(UNDECIDED_MOST).collect();
    if undecided.is_empty() {
        return check_decided(history);
    }
    let mut history = history.to_vec();
    let mut outcome = Err(String::new());
    for choice in 0..1usize << undecided.len() {
        for (bit, &i) in undecided.iter().enumerate() {
            let is_done = choice >> bit & 1 == 1;
            history[i].status = if is_done { Status::Committed } else { Status::Unknown };
        }
        outcome = check_decided(&history);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn check_decided(history: &[Transaction]) -> Result<Summary, String> {
    let readers = only_readers(history);
    let mut committed = committed(history);
    let count = committed.len();
    committed.extend(&readers);
    check_aborted_reads(history, &committed)?;
    let parts = parts_by_file(&committed);
    let committed: Vec<&Transaction> = parts.iter().collect();
    let chains = build_chains(&committed)?;
    let mut graph = Graph::new(committed.len());
    for (key, chain) in &chains {
        for (earlier, later) in chain.consecutive() {
            graph.add_edge(earlier, later, Reason::WriteWrite, Some(*key));
        }
    }
    let moments = replica::moments(&committed, &chains);
    for (node, transaction) in committed.iter().enumerate() {
        add_reads(&mut graph, &chains, node, transaction, moments[node])
            .map_err(|error| format!("{error}\n{}", describe(transaction)))?;
    }
    replica::add_waits(&mut graph, &committed)?;
    let edges = graph.edge_count();
    for second in [false, true] {
        let takes_part = |transaction: &Transaction| {
            transaction.operations.iter().any(|operation| operation.is_on_second() == second)
        };
        let begins = |later: &Transaction| takes_part(later) && !later.on_replica;
        add_real_time(&mut graph, &committed, takes_part, begins);
    }
    let reads_replica = |transaction: &Transaction| transaction.on_replica;
    add_real_time(&mut graph, &committed, reads_replica, reads_replica);
    if let Some(cycle) = graph.smallest_cycle() {
        return Err(describe_cycle(&cycle, &committed));
    }
    let keys_in_doubt = chains.values().filter(|chain| chain.is_in_doubt()).count();
    Ok(Summary { committed: count, edges, keys_in_doubt })
}

/// The committed transactions, with those of unknown outcome whose effects were seen.
fn committed(history: &[Transaction]) -> Vec<&Transaction> {
    let mut seen: HashSet<Version> = HashSet::new();
    for operation in history.iter().flat_map(|transaction| &transaction.operations) {
        match operation {
            Operation::Read { seen: Seen::Value(version), .. } => seen.insert(*version),
            Operation::Write { before: Some(version), .. } => seen.insert(*version),
            _ => false,
        };
    }
    let took_effect = |transaction: &&Transaction| {
        match transaction.status {
        Status::Committed => true,
        Status::Aborted => false,
        Status::Unknown => transaction.operations.iter().any(|operation| {
            matches!(operation, Operation::Write { after: Some(row), .. } if seen.contains(&row.version))
        }),
    }
    };
    history.iter().filter(took_effect).collect()
}

/// What the transactions that were rolled back have read.
fn only_readers(history: &[Transaction]) -> Vec<Transaction> {
    let aborted = history.iter().filter(|transaction| transaction.status == Status::Aborted);
    let mut readers: Vec<Transaction> = aborted.cloned().collect();
    for reader in &mut readers {
        reader.operations.retain(|operation| matches!(operation, Operation::Read { .. }));
    }
    readers
}

/// What stands at one place in the orders of both files, and the two parts of everything else.
fn parts_by_file(committed: &[&Transaction]) -> Vec<Transaction> {
    let part = |transaction: &Transaction, second: bool| {
        let operations = transaction.operations.iter();
        let operations = operations.filter(|operation| operation.is_on_second() == second);
        Transaction { operations: operations.copied().collect(), ..transaction.clone() }
    };
    let changes = |transaction: &Transaction, second: bool| {
        transaction.operations.iter().any(|operation| {
            matches!(operation, Operation::Write { .. }) && operation.is_on_second() == second
        })
    };
    let mut parts = Vec::new();
    for transaction in committed {
        if changes(transaction, false) && changes(transaction, true) {
            parts.push((*transaction).clone());
            continue;
        }
        let both = [part(transaction, false), part(transaction, true)];
        parts.extend(both.into_iter().filter(|part| !part.operations.is_empty()));
    }
    parts
}

/// No transaction may have read what only an aborted one wrote.
fn check_aborted_reads(history: &[Transaction], committed: &[&Transaction]) -> Result<(), String> {
    let mut aborted: HashMap<Version, &Transaction> = HashMap::new();
    for transaction in history.iter().filter(|candidate| candidate.status == Status::Aborted) {
        for operation in &transaction.operations {
            if let Operation::Write { after: Some(row), .. } = operation {
                aborted.insert(row.version, transaction);
            }
        }
    }
    for reader in committed {
        for operation in &reader.operations {
            let Operation::Read { key, seen: Seen::Value(version) } = operation else {
                continue;
            };
            if let Some(writer) = aborted.get(version) {
                return Err(format!(
                    "aborted read of key {key}\n{}\n{}",
                    describe(writer),
                    describe(reader)
                ));
            }
        }
    }
    Ok(())
}

fn build_chains(committed: &[&Transaction]) -> Result<BTreeMap<i64, Chain>, String> {
    let mut writes: BTreeMap<i64, Vec<Write>> = BTreeMap::new();
    for (by, transaction) in committed.iter().enumerate() {
        let window = (transaction.commit_ns, transaction.end_ns);
        for operation in &transaction.operations {
            match operation {
                Operation::Write { key, before, after } => {
                    let write = Write { by, before: *before, after: *after, window };
                    writes.entry(*key).or_default().push(write);
                }
                Operation::Read { key, .. } => drop(writes.entry(*key).or_default()),
            }
        }
    }
    let build = |(key, writes): (i64, Vec<Write>)| match Chain::build(key, &writes) {
        Ok(chain) => Ok((key, chain)),
        Err(error) => {
            let mut report = format!("{error}\n");
            for write in writes.iter().filter(|write| error.contains(&format!("#{} ", write.by))) {
                report.push_str(&describe_as(write.by, committed[write.by]));
            }
            Err(report)
        }
    };
    writes.into_iter().map(build).collect()
}

fn add_reads(
    graph: &mut Graph,
    chains: &BTreeMap<i64, Chain>,
    node: Node,
    transaction: &Transaction,
    during: Window,
) -> Result<(), String> {
    for operation in &transaction.operations {
        let Operation::Read { key, seen } = operation else {
            continue;
        };
        let (after, before) = chains[key]
            .neighbours(*seen, during)
            .map_err(|error| format!("{} saw key {key} so: {error}", transaction.name))?;
        if let Some(writer) = after {
            graph.add_edge(writer, node, Reason::WriteRead, Some(*key));
        }
        if let Some(writer) = before {
            graph.add_edge(node, writer, Reason::ReadWrite, Some(*key));
        }
    }
    Ok(())
}

/// Of those that `ends` takes, whoever had returned before one began that `begins` takes comes first: a chain of time nodes carries that with
/// few edges.
fn add_real_time(
    graph: &mut Graph,
    committed: &[&Transaction],
    ends: impl Fn(&Transaction) -> bool,
    begins: impl Fn(&Transaction) -> bool,
) {
    let known_end = |transaction: &Transaction| transaction.end_ns != u64::MAX;
    let nodes = 0..committed.len();
    let ends = |node: &Node| ends(committed[*node]) && known_end(committed[*node]);
    let mut by_end: Vec<Node> = nodes.clone().filter(ends).collect();
    by_end.sort_by_key(|node| committed[*node].end_ns);
    let mut by_start: Vec<Node> = nodes.filter(|node| begins(committed[*node])).collect();
    by_start.sort_by_key(|node| committed[*node].start_ns);
    let mut ended = by_end.into_iter().peekable();
    let mut clock: Option<usize> = None;
    for node in by_start {
        while let Some(earlier) =
            ended.next_if(|other| committed[*other].end_ns < committed[node].start_ns)
        {
            let tick = graph.add_node();
            if let Some(clock) = clock {
                graph.add_edge(clock, tick, Reason::RealTime, None);
            }
            graph.add_edge(earlier, tick, Reason::RealTime, None);
            clock = Some(tick);
        }
        if let Some(clock) = clock {
            graph.add_edge(clock, node, Reason::RealTime, None);
        }
    }
}

fn describe_cycle(cycle: &[(usize, Edge)], committed: &[&Transaction]) -> String {
    let mut report =
        String::from("the history is not serializable; each of these must come before the next:\n");
    let name = |node: usize| match committed.get(node) {
        Some(transaction) => transaction.name.to_string(),
        None => "(time)".to_owned(),
    };
    for (node, edge) in cycle {
        let key = edge.key.map_or(String::new(), |key| format!(" key {key}"));
        let _ = writeln!(report, "  {} --{:?}{key}--> {}", name(*node), edge.reason, name(edge.to));
    }
    for (node, _) in cycle {
        if let Some(transaction) = committed.get(*node) {
            report.push_str(&describe(transaction));
        }
    }
    report
}

fn describe(transaction: &Transaction) -> String {
    let Transaction { name, begin, status, start_ns, commit_ns, end_ns, .. } = transaction;
    let mut text =
        format!("{name} {begin} {status:?} [start {start_ns}, commit {commit_ns}, end {end_ns}]\n");
    for statement in &transaction.statements {
        let _ = writeln!(text, "    {statement}");
    }
    for operation in &transaction.operations {
        let _ = writeln!(text, "      {operation:?}");
    }
    text
}

fn describe_as(node: usize, transaction: &Transaction) -> String {
    format!("#{node} = {}", describe(transaction))
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{absent, delete, read, transaction, write};
    use super::super::history::{Operation, Seen, Status, Transaction};
    use super::check;

    fn initial() -> Transaction {
        transaction(0, (0, 5), vec![write(1, None, 10), write(2, None, 20)])
    }

    #[test]
    fn a_serial_history_is_accepted() {
        let history = [
            initial(),
            transaction(1, (10, 20), vec![read(1, 10), write(1, Some(10), 11)]),
            transaction(2, (30, 40), vec![read(1, 11), delete(2, 20)]),
            transaction(3, (50, 60), vec![absent(2), write(2, None, 21)]),
        ];
        assert_eq!(check(&history).map(|summary| summary.committed), Ok(4));
    }

    #[test]
    fn a_lost_update_is_reported() {
        let history = [
            initial(),
            transaction(1, (10, 30), vec![read(1, 10), write(1, Some(10), 11)]),
            transaction(2, (10, 30), vec![read(1, 10), write(1, Some(10), 12)]),
        ];
        assert!(check(&history).expect_err("a lost update").contains("lost update"));
    }

    #[test]
    fn write_skew_is_a_cycle() {
        let history = [
            initial(),
            transaction(1, (10, 30), vec![read(1, 10), read(2, 20), write(1, Some(10), 11)]),
            transaction(2, (10, 30), vec![read(1, 10), read(2, 20), write(2, Some(20), 22)]),
        ];
        assert!(check(&history).expect_err("write skew").contains("ReadWrite key"));
    }

    #[test]
    fn a_phantom_through_an_index_range_is_a_cycle() {
        let outside = |key| Operation::Read { key, seen: Seen::OutsideGroups(100, 200) };
        let history = [
            initial(),
            transaction(1, (10, 30), vec![outside(1), outside(2), write(1, Some(10), 150)]),
            transaction(2, (10, 30), vec![outside(1), outside(2), write(2, Some(20), 160)]),
        ];
        assert!(check(&history).expect_err("a phantom").contains("not serializable"));
    }

    #[test]
    fn a_write_skew_over_absent_rows_is_a_cycle() {
        let history = [
            initial(),
            transaction(1, (10, 30), vec![absent(3), absent(4), write(3, None, 31)]),
            transaction(2, (10, 30), vec![absent(3), absent(4), write(4, None, 41)]),
        ];
        assert!(check(&history).expect_err("write skew").contains("not serializable"));
    }

    #[test]
    fn a_stale_read_after_an_acknowledged_commit_is_a_cycle() {
        let history = [
            initial(),
            transaction(1, (10, 20), vec![write(1, Some(10), 11)]),
            transaction(2, (30, 40), vec![read(1, 10)]),
        ];
        assert!(check(&history).expect_err("a stale read").contains("RealTime"));
    }

    #[test]
    fn a_read_that_misses_what_a_rolled_back_transaction_was_shown_is_a_cycle() {
        let mut shown = transaction(2, (12, 20), vec![read(1, 11), write(2, Some(20), 22)]);
        shown.status = Status::Aborted;
        let pending = transaction(1, (10, 100), vec![write(1, Some(10), 11)]);
        let mut history = vec![initial(), pending, shown];
        assert_eq!(check(&history).map(|summary| summary.committed), Ok(2));
        history.push(transaction(3, (30, 40), vec![read(1, 10)]));
        assert!(check(&history).expect_err("it went back in time").contains("RealTime"));
    }

    #[test]
    fn a_rolled_back_transaction_that_saw_half_of_another_is_a_cycle() {
        let both = vec![write(1, Some(10), 11), write(2, Some(20), 21)];
        let mut torn = transaction(2, (12, 20), vec![read(1, 11), read(2, 20)]);
        torn.status = Status::Aborted;
        let history = [initial(), transaction(1, (10, 100), both), torn];
        assert!(check(&history).expect_err("half of it").contains("not serializable"));
    }

    const SECOND: i64 = super::super::history::SECOND_FILE + 1;

    fn initial_of_both() -> Transaction {
        transaction(0, (0, 5), vec![write(1, None, 10), write(SECOND, None, 20)])
    }

    #[test]
    fn two_that_change_both_files_in_opposite_orders_are_a_cycle() {
        let history = [
            initial_of_both(),
            transaction(1, (10, 30), vec![write(1, Some(10), 11), write(SECOND, Some(21), 22)]),
            transaction(2, (10, 30), vec![write(1, Some(11), 12), write(SECOND, Some(20), 21)]),
        ];
        assert!(check(&history).expect_err("opposite orders").contains("not serializable"));
    }

    #[test]
    fn write_skew_over_both_files_by_transactions_that_change_both_is_a_cycle() {
        let (k, l) = (3, SECOND + 3);
        let one = vec![read(SECOND, 20), write(1, Some(10), 11), write(l, None, 31)];
        let two = vec![read(1, 10), write(SECOND, Some(20), 21), write(k, None, 41)];
        let history =
            [initial_of_both(), transaction(1, (10, 30), one), transaction(2, (10, 30), two)];
        assert!(check(&history).expect_err("write skew").contains("not serializable"));
    }

    #[test]
    fn one_that_reads_both_files_may_see_a_commit_in_one_of_them_only_while_it_is_made() {
        let both = || vec![write(1, Some(10), 11), write(SECOND, Some(20), 21)];
        let look = |time| transaction(2, time, vec![read(1, 11), read(SECOND, 20)]);
        let during = [initial_of_both(), transaction(1, (10, 40), both()), look((20, 30))];
        assert_eq!(check(&during).map(|_| ()), Ok(()));
        let after = [initial_of_both(), transaction(1, (10, 15), both()), look((20, 30))];
        assert!(check(&after).expect_err("too late for that").contains("RealTime"));
    }

    #[test]
    fn reading_an_aborted_value_is_reported() {
        let mut aborted = transaction(1, (10, 20), vec![write(1, Some(10), 11)]);
        aborted.status = Status::Aborted;
        let history = [initial(), aborted, transaction(2, (30, 40), vec![read(1, 11)])];
        assert!(check(&history).expect_err("an aborted read").contains("aborted read"));
    }

    #[test]
    fn a_commit_of_unknown_outcome_counts_when_it_was_seen() {
        let mut unknown = transaction(1, (10, 20), vec![write(1, Some(10), 11)]);
        unknown.status = Status::Unknown;
        let unseen = [initial(), unknown.clone(), transaction(2, (30, 40), vec![read(1, 10)])];
        assert_eq!(check(&unseen).map(|summary| summary.committed), Ok(2));
        let seen = [initial(), unknown, transaction(2, (30, 40), vec![read(1, 11)])];
        assert_eq!(check(&seen).map(|summary| summary.committed), Ok(3));
    }

    fn killed(number: u32, time: (u64, u64), operations: Vec<Operation>) -> Transaction {
        Transaction { status: Status::Unknown, ..transaction(number, time, operations) }
    }

    #[test]
    fn a_commit_that_appears_after_its_process_has_died_is_a_cycle() {
        let left = killed(1, (10, 20), vec![write(1, Some(10), 11)]);
        let missed = transaction(2, (30, 40), vec![read(1, 10)]);
        let seen = transaction(3, (50, 60), vec![read(1, 11)]);
        let report = check(&[initial(), left.clone(), missed.clone(), seen]).expect_err("too late");
        assert!(report.contains("RealTime"), "{report}");
        assert!(check(&[initial(), left, missed]).is_ok(), "it never happened");
    }

    #[test]
    fn what_a_killed_process_has_deleted_may_be_gone_or_not() {
        let left = killed(1, (10, 20), vec![delete(1, 10)]);
        let gone = transaction(2, (30, 40), vec![absent(1)]);
        let there = transaction(3, (50, 60), vec![read(1, 10)]);
        for soundly in [&gone, &there] {
            assert!(check(&[initial(), left.clone(), soundly.clone()]).is_ok());
        }
        check(&[initial(), left, gone, there]).expect_err("first gone, then there");
    }
}

//! A directed graph of transactions and the search for its smallest cycle.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// Why one transaction must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The later one replaced what the earlier one wrote.
    WriteWrite,
    /// The later one read what the earlier one wrote.
    WriteRead,
    /// The later one replaced what the earlier one had read.
    ReadWrite,
    /// The earlier one had returned before the later one began.
    RealTime,
    /// The later one, on a replica, began when the earlier one's commit had been waited for there.
    Waited,
}

/// An edge as drawn: reason and key (no key for real time).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Where it leads.
    pub to: usize,
    /// Why.
    pub reason: Reason,
    /// Over which key.
    pub key: Option<i64>,
}

/// A graph over nodes `0..len`.
#[derive(Debug, Default)]
pub struct Graph {
    edges: Vec<Vec<Edge>>,
}

impl Graph {
    /// A graph without edges.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self { edges: vec![Vec::new(); nodes] }
    }

    /// Adds a node and returns its number.
    pub fn add_node(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    /// Adds an edge, unless it leads back to its own start.
    pub fn add_edge(&mut self, from: usize, to: usize, reason: Reason, key: Option<i64>) {
        if from != to {
            self.edges[from].push(Edge { to, reason, key });
        }
    }

    /// Number of edges.
    #[must_use]
    pub fn edge_count(&self) -> usize {
        self.edges.iter().map(Vec::len).sum()
    }

    /// A cycle with the fewest edges that are not real time, as (node, edge out of it) pairs.
    #[must_use]
    pub fn smallest_cycle(&self) -> Option<Vec<(usize, Edge)>> {
        let component = self.components();
        let mut size: HashMap<usize, usize> = HashMap::new();
        for id in &component {
            *size.entry(*id).or_default() += 1;
        }
        let in_cycle = (0..self.edges.len()).filter(|node| size[&component[*node]] > 1);
        // Every cycle of a large component is as good as another: a few hundred starts find a small one.
        in_cycle
            .take(400)
            .filter_map(|start| self.shortest_way_back(start, &component))
            .min_by_key(Vec::len)
    }

    fn shortest_way_back(&self, start: usize, component: &[usize]) -> Option<Vec<(usize, Edge)>> {
        let mut came_from: HashMap<usize, (usize, Edge)> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for edge in &self.edges[node] {
                if component[edge.to] != component[start] {
                    continue;
                }
                if edge.to == start {
                    let mut path = vec![(node, *edge)];
                    let mut current = node;
                    while current != start {
                        let (previous, edge) = came_from[&current];
                        path.push((previous, edge));
                        current = previous;
                    }
                    path.reverse();
                    return Some(path);
                }
                if let Entry::Vacant(entry) = came_from.entry(edge.to) {
                    entry.insert((node, *edge));
                    queue.push_back(edge.to);
                }
            }
        }
        None
    }

    /// Strongly connected components: the number of its component for each node (Tarjan, without recursion).
    fn components(&self) -> Vec<usize> {
        const UNSEEN: usize = usize::MAX;
        let count = self.edges.len();
        let mut component = vec![UNSEEN; count];
        let (mut index, mut low) = (vec![UNSEEN; count], vec![0; count]);
        let mut on_stack = vec![false; count];
        let (mut stack, mut next_index, mut next_component) = (Vec::new(), 0, 0);
        for root in 0..count {
            if index[root] != UNSEEN {
                continue;
            }
            let mut calls = vec![(root, 0usize)];
            while let Some((node, edge)) = calls.pop() {
                if edge == 0 {
                    index[node] = next_index;
                    low[node] = next_index;
                    next_index += 1;
                    stack.push(node);
                    on_stack[node] = true;
                }
                if let Some(out) = self.edges[node].get(edge) {
                    calls.push((node, edge + 1));
                    if index[out.to] == UNSEEN {
                        calls.push((out.to, 0));
                    } else if on_stack[out.to] {
                        low[node] = low[node].min(index[out.to]);
                    }
                    continue;
                }
                if low[node] == index[node] {
                    while let Some(member) = stack.pop() {
                        on_stack[member] = false;
                        component[member] = next_component;
                        if member == node {
                            break;
                        }
                    }
                    next_component += 1;
                }
                if let Some((parent, _)) = calls.last() {
                    low[*parent] = low[*parent].min(low[node]);
                }
            }
        }
        component
    }
}

#[cfg(test)]
mod tests {
    use super::{Graph, Reason};

    #[test]
    fn a_graph_without_a_cycle_has_none() {
        let mut graph = Graph::new(4);
        for (from, to) in [(0, 1), (1, 2), (0, 2), (2, 3)] {
            graph.add_edge(from, to, Reason::WriteRead, Some(1));
        }
        assert!(graph.smallest_cycle().is_none());
    }

    #[test]
    fn the_smaller_of_two_cycles_is_found() {
        let mut graph = Graph::new(6);
        for (from, to) in [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (4, 5)] {
            graph.add_edge(from, to, Reason::ReadWrite, Some(1));
        }
        let cycle = graph.smallest_cycle().expect("there is a cycle");
        let mut nodes: Vec<usize> = cycle.iter().map(|(node, _)| *node).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, [3, 4]);
    }
}

//! A reader in parallel with an insert, in every order of their steps: a node is complete by
//! whatever way the reader comes to it (MEM-2), and what must never lag behind a linked node does
//! not (MEM-5).

#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

use super::atomics::Ordering::{self, Relaxed};
use super::list::FOLLOWS;
use super::list::LINKS;
use super::list::{LEADS, LOOKS_UP};
use crate::model::{explore, finds};

const HEIGHT: usize = 2;
/// Two versions of one key: the newer one is inserted last and comes before the other.
const NODES: usize = 2;

/// The orderings of the code, or one of them weaker.
#[derive(Clone, Copy)]
struct Orders {
    links: Ordering,
    follows: Ordering,
    leads: Ordering,
    looks_up: Ordering,
}

const REAL: Orders = Orders { links: LINKS, follows: FOLLOWS, leads: LEADS, looks_up: LOOKS_UP };

/// A node: `payload` stands for everything that is written once, before the first link to it.
struct Node {
    payload: UnsafeCell<u64>,
    next: [AtomicU32; HEIGHT],
}

/// A memtable of one key. Node `n` is at offset `n`, and 0 is the head, or the end.
struct Table {
    head: [AtomicU32; HEIGHT],
    nodes: [Node; NODES],
    shortcut: AtomicU32,
    ts_max: AtomicU64,
}

impl Table {
    fn new() -> Table {
        let links = || std::array::from_fn(|_| AtomicU32::new(0));
        Table {
            head: links(),
            nodes: std::array::from_fn(|_| Node { payload: UnsafeCell::new(0), next: links() }),
            shortcut: AtomicU32::new(0),
            ts_max: AtomicU64::new(0),
        }
    }

    fn link(&self, node: u32, level: usize) -> &AtomicU32 {
        if node == 0 { &self.head[level] } else { &self.nodes[node as usize - 1].next[level] }
    }

    /// As `link_in` in list.rs: written, announced, linked from the lowest level up, led to. The
    /// node comes before the one that was inserted last.
    fn insert(&self, node: u32, orders: Orders) {
        self.nodes[node as usize - 1].payload.with_mut(|payload| {
            // SAFETY: loom fails if another thread is here.
            unsafe { *payload = u64::from(node) };
        });
        for level in 0..HEIGHT {
            // Relaxed: as in `Arena::write_node`.
            self.link(node, level).store(node - 1, Relaxed);
        }
        self.ts_max.store(u64::from(node), Relaxed);
        for link in &self.head {
            link.store(node, orders.links);
        }
        self.shortcut.store(node, orders.leads);
    }

    /// Reads a node that a link or shortcut led to, and all behind it.
    fn read_from(&self, mut node: u32, level: usize, orders: Orders) {
        while node != 0 {
            let payload = self.nodes[node as usize - 1].payload.with(|payload| {
                // SAFETY: loom fails if another thread writes the payload now.
                unsafe { *payload }
            });
            assert_eq!(payload, u64::from(node), "MEM-2");
            assert!(self.ts_max.load(Relaxed) >= u64::from(node), "MEM-5");
            node = self.link(node, level).load(orders.follows);
        }
    }
}

fn by_links(orders: Orders) -> impl Fn() {
    move || {
        let table = Arc::new(Table::new());
        let writer = {
            let table = table.clone();
            thread::spawn(move || (1..=NODES as u32).for_each(|node| table.insert(node, orders)))
        };
        for level in (0..HEIGHT).rev() {
            table.read_from(table.link(0, level).load(orders.follows), level, orders);
        }
        writer.join().unwrap();
    }
}

fn by_shortcut(orders: Orders) -> impl Fn() {
    move || {
        let table = Arc::new(Table::new());
        let writer = {
            let table = table.clone();
            thread::spawn(move || (1..=NODES as u32).for_each(|node| table.insert(node, orders)))
        };
        table.read_from(table.shortcut.load(orders.looks_up), 0, orders);
        writer.join().unwrap();
    }
}

// holds MEM-2, MEM-5
#[test]
fn whatever_leads_a_reader_to_a_node_it_is_complete() {
    explore(4, by_links(REAL));
    explore(4, by_shortcut(REAL));
}

#[test]
fn every_weaker_link_is_found() {
    assert!(finds(4, by_links(Orders { links: Relaxed, ..REAL })));
    assert!(finds(4, by_links(Orders { follows: Relaxed, ..REAL })));
    assert!(finds(4, by_shortcut(Orders { leads: Relaxed, ..REAL })));
    assert!(finds(4, by_shortcut(Orders { looks_up: Relaxed, ..REAL })));
}

//! The executable twin of the memtable's invariants MEM-1 to MEM-6.

use super::arena::Arena;
use super::atomics::Ordering;
use super::layout::{
    FIRST_REACH, HEAD, HEIGHT_MAX, MAGIC, covers, key_bits, key_prefix, root_bit, shortcut_count,
};
use super::list::hash;

/// Checks everything by walking it. Never panics on damage.
pub(super) fn check(arena: &Arena) -> Result<(), String> {
    let header = arena.header();
    // Relaxed: written once by `format`, before another process could look.
    if header.magic.load(Ordering::Relaxed) != MAGIC {
        return Err("memtable region was never formatted".into());
    }
    let len = header.len.load(Ordering::Relaxed);
    if len != arena.len() {
        return Err(format!("memtable was formatted with {len} bytes, not {}", arena.len()));
    }
    let nodes = check_nodes(arena)?;
    // Relaxed: read after the nodes, whose links were loaded with Acquire.
    let count = header.node_count.load(Ordering::Relaxed) as usize;
    if nodes.len() > count {
        return Err(format!("MEM-5: {} nodes are linked but {count} were counted", nodes.len()));
    }
    for level in 1..HEIGHT_MAX {
        check_level(arena, &nodes, level)?;
    }
    check_shortcuts(arena, nodes)?;
    Ok(())
}

fn next(arena: &Arena, offset: u32, level: usize) -> Result<u32, String> {
    let next = super::list::next_of(arena, offset, level);
    if next != 0 && !arena.is_node_offset(next) {
        return Err(format!("MEM-2: link {level} of node {offset} leads to {next}"));
    }
    Ok(next)
}

/// Walks level 0 and returns its offsets in order.
fn check_nodes(arena: &Arena) -> Result<Vec<u32>, String> {
    let mut nodes: Vec<u32> = Vec::new();
    let mut at = next(arena, HEAD, 0)?;
    while at != 0 {
        check_node(arena, at)?;
        if let Some(&prev) = nodes.last() {
            let (a, b) = (arena.fields(prev), arena.fields(at));
            let order = a
                .root
                .cmp(&b.root)
                .then_with(|| arena.key(prev).cmp(arena.key(at)))
                .then(b.ts.cmp(&a.ts));
            if !order.is_lt() {
                return Err(format!("MEM-1: node {at} does not sort after node {prev}"));
            }
        }
        nodes.push(at);
        at = next(arena, at, 0)?;
    }
    Ok(nodes)
}

fn check_node(arena: &Arena, at: u32) -> Result<(), String> {
    let header = arena.header();
    let fields = arena.fields(at);
    if !(1..=HEIGHT_MAX).contains(&usize::from(fields.height)) || fields.kind > 1 {
        return Err(format!(
            "MEM-2: node {at} has height {} and kind {}",
            fields.height, fields.kind
        ));
    }
    let nodes_end = header.nodes_end.load(Ordering::Relaxed);
    let records_start = header.records_start.load(Ordering::Relaxed);
    match arena.key_at(at, fields) {
        Some(key_at) if key_at + fields.key_len <= nodes_end && nodes_end <= records_start => {}
        _ => return Err(format!("MEM-2: node {at} leaves the nodes, which end at {nodes_end}")),
    }
    match arena.rec_at(at, fields) {
        Some(rec_at) if rec_at >= records_start => {}
        _ => return Err(format!("MEM-2: the record of node {at} lies not among the records")),
    }
    if fields.prefix != key_prefix(arena.key(at)) {
        return Err(format!("MEM-1: node {at} has the prefix of another key"));
    }
    if fields.ts > header.ts_max.load(Ordering::Relaxed) {
        return Err(format!("MEM-5: node {at} is newer than the newest timestamp"));
    }
    let (word, bit) = root_bit(fields.root);
    if header.roots[word].load(Ordering::Relaxed) & bit == 0 {
        return Err(format!("MEM-5: root {} of node {at} is not in the filter", fields.root));
    }
    let hash = hash(fields.root, arena.key(at));
    let bits = key_bits(hash);
    if arena.filter_word(hash).load(Ordering::Relaxed) & bits != bits {
        return Err(format!("MEM-5: the key of node {at} is not in the filter"));
    }
    Ok(())
}

/// Checks MEM-6, except for what it promises of an insert that has returned.
fn check_shortcuts(arena: &Arena, mut nodes: Vec<u32>) -> Result<(), String> {
    nodes.sort_unstable();
    let first = shortcut_count(covers(FIRST_REACH, arena.len()).min(arena.covers())) as usize;
    for (i, shortcut) in arena.shortcuts(arena.covers()).enumerate() {
        let at = shortcut.load(Ordering::Acquire);
        if at == 0 {
            continue;
        }
        if nodes.binary_search(&at).is_err() {
            return Err(format!("MEM-6: shortcut {i} leads to {at}, where no node is linked"));
        }
        // The shortcut may date from when several places were one.
        if (hash(arena.fields(at).root, arena.key(at)) as usize ^ i) & (first - 1) != 0 {
            return Err(format!("MEM-6: shortcut {i} leads to node {at}, whose key has another"));
        }
    }
    Ok(())
}

/// Checks that the list of `level` is a part of level 0, in its order, of nodes that are high
/// enough.
fn check_level(arena: &Arena, nodes: &[u32], level: usize) -> Result<(), String> {
    let mut rest = nodes.iter();
    let mut at = next(arena, HEAD, level)?;
    while at != 0 {
        if !rest.any(|node| *node == at) {
            return Err(format!(
                "MEM-3: node {at} of level {level} is out of order or not in level 0"
            ));
        }
        if usize::from(arena.fields(at).height) <= level {
            return Err(format!("MEM-3: node {at} is too low for level {level}"));
        }
        at = next(arena, at, level)?;
    }
    Ok(())
}

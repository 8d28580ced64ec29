//! An index put together anew from its names in order, packed into as few nodes as they need.

use super::index::{HAS_CHILD, LAST};
use super::record::{le16, put16};

/// An entry without its child, and the child it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub bytes: Vec<u8>,
    pub child: Option<u64>,
}

impl Item {
    fn size(&self) -> usize {
        self.bytes.len() + if self.child.is_some() { 8 } else { 0 }
    }
}

/// The entries of one node: items, and the end with its child.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entries {
    pub items: Vec<Item>,
    pub end_child: Option<u64>,
}

impl Entries {
    /// Its size in bytes.
    pub(super) fn size(&self) -> usize {
        self.items.iter().map(Item::size).sum::<usize>() + end_size(self.end_child)
    }

    /// As they are on the disk.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut end = vec![0; 16];
        put16(&mut end, 8, 16);
        put16(&mut end, 12, LAST);
        let end = Item { bytes: end, child: self.end_child };
        let mut bytes = Vec::new();
        for item in self.items.iter().chain([&end]) {
            let mut entry = item.bytes.clone();
            if let Some(child) = item.child {
                let (length, flags) = (le16(&entry, 8) + 8, le16(&entry, 12) | HAS_CHILD);
                put16(&mut entry, 8, length);
                put16(&mut entry, 12, flags);
                entry.extend(child.to_le_bytes());
            }
            bytes.extend(entry);
        }
        bytes
    }
}

fn end_size(child: Option<u64>) -> usize {
    if child.is_some() { 24 } else { 16 }
}

/// A whole tree: the root's entries, and the nodes that have some, each by its number.
#[derive(Debug)]
pub(super) struct Tree {
    pub root: Entries,
    pub nodes: Vec<(u64, Entries)>,
}

/// Builds it from names in order, none of which has a child; `None`: there are too few nodes, or no names.
///
/// `capacity` is what a node holds and `root_capacity` what the root does, in bytes of entries.
pub(super) fn build(
    names: Vec<Vec<u8>>,
    numbers: &[u64],
    capacity: usize,
    root_capacity: usize,
) -> Option<Tree> {
    if names.is_empty() {
        return None;
    }
    let mut free = numbers.iter().copied();
    let mut nodes = Vec::new();
    let items = names.into_iter().map(|bytes| Item { bytes, child: None }).collect();
    let mut level = Entries { items, end_child: None };
    loop {
        let (packed, mut separators) = pack(level, capacity)?;
        let mut placed = Vec::new();
        for entries in packed {
            let number = free.next()?;
            placed.push(number);
            nodes.push((number, entries));
        }
        let end_child = placed.pop();
        for (separator, child) in separators.iter_mut().zip(placed) {
            separator.child = Some(child);
        }
        level = Entries { items: separators, end_child };
        if level.size() <= root_capacity {
            return Some(Tree { root: level, nodes });
        }
    }
}

/// Fills nodes one after the other; the entry between two of them goes up.
fn pack(level: Entries, capacity: usize) -> Option<(Vec<Entries>, Vec<Item>)> {
    let (mut nodes, mut separators) = (Vec::new(), Vec::new());
    let end = end_size(level.end_child);
    let (mut items, mut size) = (Vec::new(), end);
    let mut left = level.items.len();
    for item in level.items {
        left -= 1;
        if size + item.size() <= capacity {
            size += item.size();
            items.push(item);
            continue;
        }
        // No node stays without an entry: the last one gets one of this node's.
        let (separator, next) = if left == 0 { (items.pop()?, Some(item)) } else { (item, None) };
        if items.is_empty() {
            return None;
        }
        nodes.push(Entries { items, end_child: separator.child });
        separators.push(Item { bytes: separator.bytes, child: None });
        size = end + next.as_ref().map_or(0, Item::size);
        if size > capacity {
            return None;
        }
        items = next.into_iter().collect();
    }
    nodes.push(Entries { items, end_child: level.end_child });
    Some((nodes, separators))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn name(number: usize, length: usize) -> Vec<u8> {
        let length = (16 + 8 * length.max(1)) as u16;
        let mut bytes = vec![0; usize::from(length)];
        put16(&mut bytes, 8, length);
        bytes[16..20].copy_from_slice(&(number as u32).to_le_bytes());
        bytes
    }

    fn in_order(
        entries: &Entries,
        nodes: &HashMap<u64, Entries>,
        depth: usize,
        into: &mut Vec<Vec<u8>>,
    ) -> usize {
        let mut leaves = Vec::new();
        let mut down = |child: Option<u64>, into: &mut Vec<Vec<u8>>| match child {
            Some(child) => leaves.push(in_order(&nodes[&child], nodes, depth + 1, into)),
            None => leaves.push(depth),
        };
        for item in &entries.items {
            down(item.child, into);
            into.push(item.bytes.clone());
        }
        down(entries.end_child, into);
        assert!(leaves.windows(2).all(|pair| pair[0] == pair[1]), "leaves at different depths");
        leaves[0]
    }

    proptest! {
        #[test]
        fn every_name_is_in_its_place(
            lengths in prop::collection::vec(1usize..70, 1..400), capacity in 1300usize..4000, root in 24usize..800,
        ) {
            let names: Vec<_> = lengths.iter().enumerate().map(|(n, length)| name(n, *length)).collect();
            let numbers: Vec<u64> = (100..600).collect();
            let tree = build(names.clone(), &numbers, capacity, root).unwrap();
            prop_assert!(tree.root.size() <= root);
            prop_assert_eq!(tree.root.to_bytes().len(), tree.root.size());
            for (_, entries) in &tree.nodes {
                prop_assert!(entries.size() <= capacity && !entries.items.is_empty());
                prop_assert_eq!(entries.to_bytes().len(), entries.size());
            }
            let nodes: HashMap<_, _> = tree.nodes.iter().cloned().collect();
            prop_assert_eq!(nodes.len(), tree.nodes.len());
            let mut found = Vec::new();
            in_order(&tree.root, &nodes, 0, &mut found);
            prop_assert_eq!(found, names.clone());
            prop_assert!(build(names, &numbers[..nodes.len() - 1], capacity, root).is_none());
        }
    }
}

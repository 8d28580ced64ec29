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

/// Builds it from names in order, none of which has a child; `None`: there are too few nodes.
///
/// `capacity` is what a node holds and `root_capacity` what the root does, in bytes of entries.
pub(super) fn build(
    names: &[Vec<u8>],
    numbers: &[u64],
    capacity: usize,
    root_capacity: usize,
) -> Option<Tree> {
    if names.is_empty() {
        // As ntfs-3g leaves it: a root that has no children, though there is room for nodes.
        return Some(Tree { root: Entries::default(), nodes: Vec::new() });
    }
    // Full nodes first; where a long name between two of them needs a further node, less full ones.
    (0..4).find_map(|quarters| {
        let items = names.iter().map(|bytes| Item { bytes: bytes.clone(), child: None }).collect();
        let level = Entries { items, end_child: None };
        let filling = Filling { capacity, slack: capacity / 4 * quarters };
        levels(level, numbers, &filling, root_capacity)
    })
}

/// How full nodes get.
struct Filling {
    /// What one holds, in bytes.
    capacity: usize,
    /// How much of that may stay empty, where the entry that goes up is shorter then.
    slack: usize,
}

/// Puts nodes over nodes, until the root holds what is between the highest ones.
fn levels(mut level: Entries, numbers: &[u64], filling: &Filling, root_capacity: usize) -> Option<Tree> {
    let mut free = numbers.iter().copied();
    let mut nodes = Vec::new();
    loop {
        let (packed, mut separators) = pack(&level, filling)?;
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
fn pack(level: &Entries, filling: &Filling) -> Option<(Vec<Entries>, Vec<Item>)> {
    let (mut nodes, mut separators) = (Vec::new(), Vec::new());
    let mut rest = level.items.as_slice();
    loop {
        let mut size = end_size(level.end_child);
        let fitting = rest.iter().take_while(|item| {
            size += item.size();
            size <= filling.capacity
        });
        let fitting = fitting.count();
        if fitting == rest.len() {
            nodes.push(Entries { items: rest.to_vec(), end_child: level.end_child });
            return Some((nodes, separators));
        }
        // No node stays without an entry, the last one neither.
        let latest = fitting.min(rest.len().checked_sub(2)?);
        if latest == 0 {
            return None;
        }
        let mut filled: usize = rest[..latest].iter().map(Item::size).sum();
        let mut shortest = latest;
        for at in (1..latest).rev() {
            filled -= rest[at].size();
            if filled + filling.slack < filling.capacity {
                break;
            }
            if rest[at].size() < rest[shortest].size() {
                shortest = at;
            }
        }
        let separator = &rest[shortest];
        nodes.push(Entries { items: rest[..shortest].to_vec(), end_child: separator.child });
        separators.push(Item { bytes: separator.bytes.clone(), child: None });
        rest = &rest[shortest + 1..];
    }
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
            let full = build(&names, &numbers, capacity, root).unwrap();
            // With fewer nodes there may be another way, or none.
            let tight = build(&names, &numbers[..full.nodes.len() - 1], capacity, root);
            prop_assert!(build(&names, &[], capacity, root).is_none());
            for tree in [Some(full), tight].into_iter().flatten() {
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
                prop_assert_eq!(&found, &names);
            }
        }
    }

    #[test]
    fn a_short_name_goes_up_where_a_long_one_finds_no_room() {
        // The long ones of 568 bytes, of which six fit; the short ones of 24.
        let long = |n| name(n, 69);
        let mut names: Vec<_> = (0..6).map(long).collect();
        names.extend((6..9).map(|n| name(n, 1)));
        names.extend((9..14).map(long));
        let tree = build(&names, &[1, 2], 3600, 60).unwrap();
        assert_eq!((tree.nodes.len(), tree.root.items.len()), (2, 1));
        let all_long: Vec<_> = (0..12).map(long).collect();
        assert!(build(&all_long, &[1, 2], 3600, 60).is_none());
        assert!(build(&[], &[1, 2], 3600, 60).unwrap().nodes.is_empty());
    }
}

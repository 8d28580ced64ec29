//! A name taken out of a directory's index, or a file out of that of object identifiers.
//!
//! In a leaf the entries behind it move up. Where that would leave a leaf without entries, or the entry has a
//! child, the whole index is put together anew from the names that stay, in the order they are in: into nodes it
//! has already, so that nothing is allocated. That is rare, and a directory of thousands of names changes by
//! hundreds of KiB then; but the order is never worked out again, and no case is left.

use std::collections::{BTreeMap, HashSet};

use super::attribute::{Attribute, BITMAP, Body, INDEX_ROOT, attributes};
use super::index::{Index, MAX_DEPTH};
use super::index_tree::{self, Entries};
use super::record::{FileRecord, le16, le32, put16, put32, redo_fixups};
use super::{FileReference, NtfsError};
use crate::io::{Change, ReadAt};

/// Where the index header is: in the root's value and in a node.
const ROOT_HEADER: usize = 16;
const NODE_HEADER: usize = 24;
/// Of an entry: the sizes in its $FILE_NAME.
const SIZES: std::ops::Range<usize> = 16 + 40..16 + 56;

/// An entry where it was found.
struct Found {
    /// `None`: in the root.
    node: Option<u64>,
    /// In the root's value or the node, in bytes.
    at: usize,
    has_child: bool,
    /// How many names its node has.
    siblings: usize,
    file: FileReference,
    /// Without the child.
    bytes: Vec<u8>,
}

/// All of an index, in order.
#[derive(Default)]
struct Gathered {
    entries: Vec<Found>,
    nodes: Vec<u64>,
    seen: HashSet<u64>,
    leaf_depth: Option<usize>,
}

impl<R: ReadAt> Index<'_, R> {
    /// How many entries name `file`.
    pub(super) fn count(&self, file: FileReference) -> Result<usize, NtfsError> {
        Ok(self.gather()?.entries.iter().filter(|entry| entry.file == file).count())
    }

    /// Takes the first entry that names `file` out; `None`: it can't be done without more room.
    pub(super) fn remove(
        &self,
        directory: &FileRecord,
        file: FileReference,
    ) -> Result<Option<Vec<Change>>, NtfsError> {
        let mut all = self.gather()?;
        let Some(place) = all.entries.iter().position(|entry| entry.file == file) else {
            return Err(self.damaged("a file's name is missing in its directory"));
        };
        let entry = all.entries.remove(place);
        if entry.has_child || entry.node.is_some() && entry.siblings < 2 {
            return self.rebuild(directory, all);
        }
        let length = entry.bytes.len();
        match entry.node {
            Some(number) => {
                let mut node = self.node(number)?;
                take_out(&mut node, NODE_HEADER, entry.at, length);
                self.write_node(number, node).map(Some)
            }
            None => {
                let mut root = self.root.clone();
                let used = take_out(&mut root, ROOT_HEADER, entry.at, length);
                root.truncate(ROOT_HEADER + used);
                put32(&mut root, ROOT_HEADER + 8, used as u32);
                let mut record = self.root_holder(directory)?;
                let there = resident(&record, INDEX_ROOT, self.name)?;
                if !record.replace_value(there, &root) {
                    return Err(self.damaged("its index root can't be shortened"));
                }
                self.mft.write_record(&record).map(Some)
            }
        }
    }

    /// Zeroes the sizes that the entry number `nth` of those that name `file` has.
    pub(super) fn forget_size(
        &self,
        directory: &FileRecord,
        file: FileReference,
        nth: usize,
    ) -> Result<Vec<Change>, NtfsError> {
        let all = self.gather()?;
        let Some(entry) = all.entries.iter().filter(|entry| entry.file == file).nth(nth) else {
            return Err(self.damaged("a file's name is missing in its directory"));
        };
        // A key holds a whole $FILE_NAME, so the sizes are within it.
        let sizes = entry.at + SIZES.start..entry.at + SIZES.end;
        match entry.node {
            Some(number) => {
                let mut node = self.node(number)?;
                node[sizes].fill(0);
                self.write_node(number, node)
            }
            None => {
                let mut root = self.root.clone();
                root[sizes].fill(0);
                let mut record = self.root_holder(directory)?;
                let there = resident(&record, INDEX_ROOT, self.name)?;
                if !record.replace_value(there, &root) {
                    return Err(self.damaged("its index root can't be changed"));
                }
                self.mft.write_record(&record)
            }
        }
    }

    fn gather(&self) -> Result<Gathered, NtfsError> {
        let mut all = Gathered::default();
        self.visit(None, &self.root, 0, &mut all)?;
        Ok(all)
    }

    fn visit(
        &self,
        number: Option<u64>,
        node: &[u8],
        depth: usize,
        all: &mut Gathered,
    ) -> Result<(), NtfsError> {
        let header = if number.is_some() { NODE_HEADER } else { ROOT_HEADER };
        let keys = self.keys(node, header)?;
        if le32(node, header) < 16 {
            return Err(self.damaged("the entries of an index node overlap its header"));
        }
        let inner = keys.iter().filter(|key| key.child().is_some()).count();
        if inner != 0 && inner != keys.len() {
            return Err(self.damaged("some entries of an index node have children and some have none"));
        }
        if inner == 0 && *all.leaf_depth.get_or_insert(depth) != depth {
            return Err(self.damaged("its index is deeper in one place than in another"));
        }
        let siblings = keys.len() - 1;
        // The parser has checked both numbers.
        let mut at = header + le32(node, header) as usize;
        for key in keys {
            if let Some(child) = key.child() {
                if depth == MAX_DEPTH || !all.seen.insert(child) {
                    return Err(self.damaged("its index leads back to itself"));
                }
                all.nodes.push(child);
                self.visit(Some(child), &self.node(child)?, depth + 1, all)?;
            }
            let length = key.0.len();
            if !key.is_last() {
                let mut bytes = key.0.to_vec();
                if inner != 0 {
                    bytes.truncate(length - 8);
                    put16(&mut bytes, 8, (length - 8) as u16);
                    put16(&mut bytes, 12, 0);
                }
                let file = self.file_of(&key);
                all.entries.push(Found { node: number, at, has_child: inner != 0, siblings, file, bytes });
            }
            at += length;
        }
        Ok(())
    }

    fn write_node(&self, number: u64, mut node: Vec<u8>) -> Result<Vec<Change>, NtfsError> {
        redo_fixups(&mut node);
        let (allocation, offset) = self.place(number)?;
        self.mft.write_stream(allocation, offset, &node)
    }

    fn root_holder(&self, directory: &FileRecord) -> Result<FileRecord, NtfsError> {
        let holder = self.mft.holder(directory, INDEX_ROOT, self.name)?;
        holder.ok_or_else(|| self.damaged("the directory has no index root"))
    }

    /// Puts the index together anew, without the entry that was taken out.
    fn rebuild(&self, directory: &FileRecord, all: Gathered) -> Result<Option<Vec<Change>>, NtfsError> {
        let mut record = self.root_holder(directory)?;
        let mut blank = BTreeMap::new();
        let mut starts = HashSet::new();
        for number in &all.nodes {
            let node = self.node(*number)?;
            let start = NODE_HEADER + le32(&node, NODE_HEADER) as usize;
            starts.insert(start);
            blank.insert(*number, node);
        }
        let root_start = ROOT_HEADER + le32(&self.root, ROOT_HEADER) as usize;
        // Nodes whose entries begin in different places are nothing Windows makes.
        let (Some(start), 1) = (starts.iter().next().copied(), starts.len()) else { return Ok(None) };
        let capacity = self.node_size as usize - start;
        let root_capacity = self.root.len() - root_start + record.room() / 8 * 8;
        let names: Vec<_> = all.entries.into_iter().map(|entry| entry.bytes).collect();
        let Some(tree) = index_tree::build(&names, &all.nodes, capacity, root_capacity) else {
            return Ok(None);
        };

        let mut changes = Vec::new();
        for (number, entries) in &tree.nodes {
            if let Some(node) = blank.remove(number) {
                changes.extend(self.write_node(*number, filled(node, start, entries))?);
            }
        }
        let mut root = self.root[..root_start].to_vec();
        root.extend(tree.root.to_bytes());
        let used = (root.len() - ROOT_HEADER) as u32;
        put32(&mut root, ROOT_HEADER + 4, used);
        put32(&mut root, ROOT_HEADER + 8, used);
        root[ROOT_HEADER + 12] = u8::from(tree.root.end_child.is_some());
        let there = resident(&record, INDEX_ROOT, self.name)?;
        if !record.replace_value(there, &root) {
            return Ok(None);
        }
        changes.extend(self.free_nodes(directory, record, blank, start)?);
        Ok(Some(changes))
    }

    /// Empties nodes that are needed no more and clears their bits; `record` has the root, and is written too.
    fn free_nodes(
        &self,
        directory: &FileRecord,
        mut record: FileRecord,
        nodes: BTreeMap<u64, Vec<u8>>,
        start: usize,
    ) -> Result<Vec<Change>, NtfsError> {
        let mut changes = Vec::new();
        let mut bits = Vec::new();
        for (number, node) in nodes {
            bits.push(self.place(number)?.1 / self.node_size);
            changes.extend(self.write_node(number, filled(node, start, &Entries::default()))?);
        }
        let missing = || self.damaged("its index has no bitmap");
        let bitmap = self.mft.stream(directory, BITMAP, self.name)?.ok_or_else(missing)?;
        let mut holder = self.mft.holder(directory, BITMAP, self.name)?.ok_or_else(missing)?;
        if bits.is_empty() {
            // Nothing is to be cleared.
        } else if bitmap.is_resident() {
            let same = holder.number == record.number;
            let edited = if same { &mut record } else { &mut holder };
            let value = resident_value(edited, BITMAP, self.name)?;
            for bit in bits {
                let byte = edited.bytes[value.clone()].get_mut((bit / 8) as usize);
                let byte = byte.ok_or_else(|| self.damaged("its index bitmap is too short"))?;
                if *byte >> (bit % 8) & 1 == 0 {
                    return Err(self.damaged("its index bitmap calls a node free that is used"));
                }
                *byte &= !(1 << (bit % 8));
            }
            if !same {
                changes.extend(self.mft.write_record(&holder)?);
            }
        } else {
            changes.extend(self.mft.clear_bits(&bitmap, bits.into_iter().map(|bit| bit..bit + 1))?);
        }
        changes.extend(self.mft.write_record(&record)?);
        Ok(changes)
    }
}

/// Removes `length` bytes at `at`, zeroes as many at the end, and says how many the entries have now.
fn take_out(node: &mut [u8], header: usize, at: usize, length: usize) -> usize {
    let used = le32(node, header + 4) as usize;
    let end = header + used;
    node.copy_within(at + length..end, at);
    // Whatever was behind the entries is older still.
    node[end - length..].fill(0);
    put32(node, header + 4, (used - length) as u32);
    used - length
}

/// The node with these entries alone; they fit.
fn filled(mut node: Vec<u8>, start: usize, entries: &Entries) -> Vec<u8> {
    let bytes = entries.to_bytes();
    node[start..].fill(0);
    node[start..start + bytes.len()].copy_from_slice(&bytes);
    put32(&mut node, NODE_HEADER + 4, (start - NODE_HEADER + bytes.len()) as u32);
    node[NODE_HEADER + 12] = u8::from(entries.end_child.is_some());
    node
}

fn resident_attribute<'a>(
    record: &'a FileRecord,
    kind: u32,
    name: &[u8],
) -> Result<Attribute<'a>, NtfsError> {
    let found = attributes(record)?.into_iter().find(|found| found.kind == kind && found.name == name);
    found
        .filter(|found| matches!(found.body, Body::Resident(_)))
        .ok_or_else(|| record.damaged("an attribute of its index is not where it was"))
}

/// Start and length of the index's resident attribute of that kind.
fn resident(record: &FileRecord, kind: u32, name: &[u8]) -> Result<(usize, usize), NtfsError> {
    let found = resident_attribute(record, kind, name)?;
    Ok((found.start, found.length))
}

/// Where in the record the value of the index's resident attribute of that kind is.
fn resident_value(record: &FileRecord, kind: u32, name: &[u8]) -> Result<std::ops::Range<usize>, NtfsError> {
    let found = resident_attribute(record, kind, name)?;
    let start = found.start + usize::from(le16(&record.bytes, found.start + 20));
    let length = le32(&record.bytes, found.start + 16) as usize;
    Ok(start..start + length)
}

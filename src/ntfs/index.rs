//! A directory's index of names: a B-tree, its root in the file record, its other nodes in clusters.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::NtfsError;
use super::attribute::{I30, INDEX_ALLOCATION, INDEX_ROOT, OBJECT_IDS};
use super::attribute_list::Mft;
pub use super::record::FileReference;
use super::record::{FileRecord, le16, le32, le64, undo_fixups};
use super::stream::{Content, Stream};
use super::upcase::Upcase;
use crate::io::ReadAt;

/// With two entries a node at least, deeper trees have more names than a volume has records.
pub(super) const MAX_DEPTH: usize = 48;
pub(super) const HAS_CHILD: u16 = 1;
pub(super) const LAST: u16 = 2;
const DOS_NAME: u8 = 2;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name; what is no proper UTF-16 in it is replaced.
    pub name: String,
    /// Which file it is.
    pub file: FileReference,
    /// Whether that is a folder.
    pub is_directory: bool,
    /// Whether it is a reparse point: a link, a junction, a file compressed by Windows.
    pub is_reparse_point: bool,
    /// The file's size in bytes as the directory has it, which may be out of date.
    pub size: u64,
}

/// An entry of a node, as its bytes are.
pub(super) struct Key<'a>(pub &'a [u8]);

impl<'a> Key<'a> {
    pub(super) fn is_last(&self) -> bool {
        le16(self.0, 12) & LAST != 0
    }

    /// The node with the names before this one.
    pub(super) fn child(&self) -> Option<u64> {
        (le16(self.0, 12) & HAS_CHILD != 0).then(|| le64(self.0, self.0.len() - 8))
    }

    /// The $FILE_NAME that is its key.
    fn file_name(&self) -> &'a [u8] {
        &self.0[16..16 + usize::from(le16(self.0, 10))]
    }

    fn name(&self) -> Vec<u16> {
        let key = self.file_name();
        key[66..66 + usize::from(key[64]) * 2].chunks_exact(2).map(|unit| le16(unit, 0)).collect()
    }

    /// Which file it names, as a directory's entry.
    fn file(&self) -> FileReference {
        FileReference::from_raw(le64(self.0, 0))
    }

    fn entry(&self) -> Entry {
        let key = self.file_name();
        let flags = le32(key, 56);
        Entry {
            name: String::from_utf16_lossy(&self.name()),
            file: self.file(),
            is_directory: flags & 0x1000_0000 != 0,
            is_reparse_point: flags & 0x400 != 0,
            size: le64(key, 48),
        }
    }
}

/// A directory's index, or that of object identifiers, opened.
pub(super) struct Index<'m, R> {
    pub mft: &'m Mft<R>,
    /// The number of the record of the directory, or of $ObjId.
    pub record: u64,
    /// $I30 or $O, in UTF-16.
    pub name: &'static [u8],
    pub root: Vec<u8>,
    pub node_size: u64,
    pub allocation: Option<Stream>,
}

impl<'m, R: ReadAt> Index<'m, R> {
    pub(super) fn open(mft: &'m Mft<R>, directory: &FileRecord) -> Result<Self, NtfsError> {
        Self::open_named(mft, directory, I30)
    }

    /// The index of that name.
    pub(super) fn open_named(
        mft: &'m Mft<R>,
        directory: &FileRecord,
        name: &'static [u8],
    ) -> Result<Self, NtfsError> {
        let root = mft.stream(directory, INDEX_ROOT, name)?;
        let Some(Stream { content: Content::Resident(root), .. }) = root else {
            return Err(directory.damaged("the directory has no index root"));
        };
        if root.len() < 32 {
            return Err(directory.damaged("the directory's index root is too short"));
        }
        let node_size = u64::from(le32(&root, 8));
        if !node_size.is_power_of_two() || !(512..=64 << 10).contains(&node_size) {
            return Err(directory.damaged("the size of its index nodes is out of range"));
        }
        let allocation = mft.stream(directory, INDEX_ALLOCATION, name)?;
        Ok(Self { mft, record: directory.number, name, root, node_size, allocation })
    }

    pub(super) fn damaged(&self, why: &'static str) -> NtfsError {
        NtfsError::DamagedFile { record: self.record, why }
    }

    /// Where the node with that number lies in the allocation, in bytes.
    pub(super) fn place(&self, number: u64) -> Result<(&Stream, u64), NtfsError> {
        let cluster_size = self.mft.geometry.cluster_size;
        let unit = if self.node_size < cluster_size { 512 } else { cluster_size };
        let allocation = self.allocation.as_ref();
        let allocation = allocation.ok_or_else(|| self.damaged("its index has no room for nodes"))?;
        let offset = number
            .checked_mul(unit)
            .filter(|offset| offset.checked_add(self.node_size).is_some_and(|end| end <= allocation.size));
        let offset = offset.ok_or_else(|| self.damaged("an index node lies past the index's end"))?;
        Ok((allocation, offset))
    }

    /// Reads the node with that number, which counts clusters, or 512 bytes where a node is less than a cluster.
    pub(super) fn node(&self, number: u64) -> Result<Vec<u8>, NtfsError> {
        let (allocation, offset) = self.place(number)?;
        let mut node = vec![0; self.node_size as usize];
        allocation.read(&self.mft.volume, &self.mft.geometry, &mut node, offset)?;
        if &node[..4] != b"INDX" {
            return Err(self.damaged("an index node has no INDX signature"));
        }
        undo_fixups(&mut node).map_err(|why| self.damaged(why))?;
        if le64(&node, 16) != number {
            return Err(self.damaged("an index node is not the one asked for"));
        }
        Ok(node)
    }

    /// The entries of a node whose header begins at `header`: 16 in the root, 24 in other nodes.
    pub(super) fn keys<'a>(&self, node: &'a [u8], header: usize) -> Result<Vec<Key<'a>>, NtfsError> {
        let damaged = || self.damaged("the entries of an index node are out of range");
        let first = le32(node, header) as usize;
        let used = le32(node, header + 4) as usize;
        let area = node.get(header..).and_then(|area| area.get(..used)).ok_or_else(damaged)?;
        let mut rest = area.get(first..).ok_or_else(damaged)?;
        let mut keys = Vec::new();
        loop {
            let length = usize::from(le16(rest, 8));
            if rest.len() < 16 || length < 16 || length % 8 != 0 || length > rest.len() {
                return Err(damaged());
            }
            let key = Key(&rest[..length]);
            let tail = if key.child().is_some() { 8 } else { 0 };
            let key_length = usize::from(le16(rest, 10));
            if length < 16 + tail {
                return Err(damaged());
            }
            if !key.is_last() && self.name == OBJECT_IDS {
                // The identifier, then the reference of the file and three more identifiers.
                if key_length != 16 || le16(rest, 0) < 32 || usize::from(le16(rest, 0)) + 8 + tail > length {
                    return Err(damaged());
                }
            } else if !key.is_last() {
                if key_length < 66 || 16 + key_length + tail > length {
                    return Err(damaged());
                }
                if 66 + usize::from(key.file_name()[64]) * 2 > key_length {
                    return Err(damaged());
                }
            }
            let last = key.is_last();
            keys.push(key);
            if last {
                return Ok(keys);
            }
            rest = &rest[length..];
        }
    }

    /// Which file an entry names that is not the last of its node.
    pub(super) fn file_of(&self, key: &Key<'_>) -> FileReference {
        if self.name == OBJECT_IDS {
            return FileReference::from_raw(le64(key.0, usize::from(le16(key.0, 0))));
        }
        key.file()
    }

    /// What a key of a directory says; it carries that directory's number.
    fn own_entry(&self, key: &Key<'_>) -> Result<Entry, NtfsError> {
        if FileReference::from_raw(le64(key.file_name(), 0)).record != self.record {
            return Err(self.damaged("a name in its index is of another directory"));
        }
        Ok(key.entry())
    }

    /// The entry with that name, in whatever case.
    pub(super) fn find(&self, upcase: &Upcase, name: &[u16]) -> Result<Option<Entry>, NtfsError> {
        let mut node = self.root.clone();
        let mut header = 16;
        for _ in 0..MAX_DEPTH {
            let mut child = None;
            for key in self.keys(&node, header)? {
                if !key.is_last() {
                    match upcase.compare(name, &key.name()) {
                        Ordering::Equal => return self.own_entry(&key).map(Some),
                        Ordering::Greater => continue,
                        Ordering::Less => {}
                    }
                }
                child = key.child();
                break;
            }
            let Some(child) = child else { return Ok(None) };
            node = self.node(child)?;
            header = 24;
        }
        Err(self.damaged("its index is deeper than can be"))
    }

    /// All entries in order, without the 8.3 names that files have besides.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, NtfsError> {
        let mut entries = Vec::new();
        self.walk(&self.root, 16, MAX_DEPTH, &mut HashSet::new(), &mut entries)?;
        Ok(entries)
    }

    fn walk(
        &self,
        node: &[u8],
        header: usize,
        depth: usize,
        seen: &mut HashSet<u64>,
        entries: &mut Vec<Entry>,
    ) -> Result<(), NtfsError> {
        for key in self.keys(node, header)? {
            if let Some(child) = key.child() {
                if depth == 0 || !seen.insert(child) {
                    return Err(self.damaged("its index leads back to itself"));
                }
                self.walk(&self.node(child)?, 24, depth - 1, seen, entries)?;
            }
            if !key.is_last() && key.file_name()[65] != DOS_NAME {
                entries.push(self.own_entry(&key)?);
            }
        }
        Ok(())
    }
}

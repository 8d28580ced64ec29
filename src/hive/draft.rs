//! A file as it would be after an edit: the pages that differ are in memory, the source is never written.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io;
use std::ops::Range;

use crate::io::ReadAt;

/// The unit kept in memory, in bytes.
const PAGE: u64 = 4096;

/// Changed runs with fewer unchanged bytes than this between them become one edit.
const JOIN: usize = 16;

/// Bytes of the hive file to replace.
#[derive(Clone, PartialEq, Eq)]
pub struct HiveEdit {
    /// Where, in bytes from the start of the hive file.
    pub offset: u64,
    /// What is to be there.
    pub bytes: Vec<u8>,
}

// Registry values may be secrets: their bytes are not for logs.
impl fmt::Debug for HiveEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HiveEdit {{ {} bytes at offset {} }}", self.bytes.len(), self.offset)
    }
}

/// A source, and in memory the pages of it that are to differ.
pub struct Draft<R> {
    source: R,
    /// In bytes; past the end of the source there are zeros.
    size: u64,
    pages: Pages,
}

/// By offset in the file; all of [`PAGE`] bytes, zeros past the end of the file.
pub(super) type Pages = BTreeMap<u64, Vec<u8>>;

impl<R> fmt::Debug for Draft<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Draft {{ {} pages }}", self.pages.len())
    }
}

impl<R: ReadAt> Draft<R> {
    /// A draft equal to `source`.
    pub(super) fn new(source: R) -> Self {
        Self { size: source.size(), source, pages: BTreeMap::new() }
    }

    /// Makes the draft at least `size` bytes long, with zeros.
    pub(super) fn lengthen(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// How many bytes the draft is longer than its source.
    pub(super) fn outgrown(&self) -> u64 {
        self.size - self.source.size()
    }

    /// Whether `len` bytes at `offset` lie within the draft.
    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        if offset.checked_add(len as u64).is_some_and(|end| end <= self.size) {
            return Ok(());
        }
        let why =
            format!("{len} bytes at offset {offset} lie past the end of the hive ({} bytes)", self.size);
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    }

    /// What is changed so far, to come back to with [`Draft::restore`].
    pub(super) fn pages(&self) -> &Pages {
        &self.pages
    }

    pub(super) fn restore(&mut self, pages: Pages) {
        self.pages = pages;
    }

    /// Replaces bytes; all of them must lie within the draft.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes.len())?;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let start = at - at % PAGE;
            let within = (at - start) as usize;
            let page = match self.pages.entry(start) {
                Entry::Occupied(page) => page.into_mut(),
                Entry::Vacant(place) => {
                    let mut page = vec![0; PAGE as usize];
                    read_padded(&self.source, &mut page, start)?;
                    place.insert(page)
                }
            };
            let len = (page.len() - within).min(bytes.len() - done);
            page[within..within + len].copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
        Ok(())
    }

    /// What differs from the source, in order of offset.
    pub(super) fn edits(&self) -> io::Result<Vec<HiveEdit>> {
        let mut edits: Vec<HiveEdit> = Vec::new();
        let mut old = vec![0; PAGE as usize];
        for (start, new) in &self.pages {
            read_padded(&self.source, &mut old, *start)?;
            for run in changed_runs(&old, new) {
                let offset = start + run.start as u64;
                let bytes = &new[run];
                match edits.last_mut() {
                    // Runs that meet where two pages do.
                    Some(last) if last.offset + last.bytes.len() as u64 == offset => {
                        last.bytes.extend_from_slice(bytes);
                    }
                    _ => edits.push(HiveEdit { offset, bytes: bytes.to_vec() }),
                }
            }
        }
        Ok(edits)
    }
}

/// Fills `buf` from `source`, past its end with zeros.
fn read_padded<R: ReadAt>(source: &R, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let left = source.size().saturating_sub(offset);
    let there = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    buf[there..].fill(0);
    if there == 0 { Ok(()) } else { source.read_exact_at(&mut buf[..there], offset) }
}

/// Where two slices of one length differ; runs closer than [`JOIN`] are one.
fn changed_runs(old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in (0..old.len()).filter(|at| old[*at] != new[*at]) {
        match runs.last_mut() {
            Some(run) if at - run.end < JOIN => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

impl<R: ReadAt> ReadAt for Draft<R> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(offset, buf.len())?;
        read_padded(&self.source, buf, offset)?;
        let end = offset + buf.len() as u64;
        for (start, page) in self.pages.range(offset - offset % PAGE..end) {
            let (from, to) = ((*start).max(offset), (start + page.len() as u64).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_draft_reads_as_the_written_copy_and_its_edits_make_one(
            writes in prop::collection::vec((0usize..10_000, prop::collection::vec(any::<u8>(), 0..5_000)), 0..8),
            from in 0usize..10_000, len in 0usize..6_000,
        ) {
            let source = vec![7u8; 10_000];
            let mut copy = source.clone();
            let mut draft = Draft::new(&source);
            for (offset, bytes) in writes {
                let fits = offset + bytes.len() <= source.len();
                prop_assert_eq!(draft.write(offset as u64, &bytes).is_ok(), fits);
                if fits {
                    copy[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
            }
            let len = len.min(10_000 - from);
            let mut buf = vec![0; len];
            draft.read_exact_at(&mut buf, from as u64).unwrap();
            prop_assert_eq!(&buf, &copy[from..from + len]);
            let mut patched = source.clone();
            let mut past = 0;
            for edit in draft.edits().unwrap() {
                prop_assert!(edit.offset >= past);
                past = edit.offset + edit.bytes.len() as u64;
                patched[edit.offset as usize..past as usize].copy_from_slice(&edit.bytes);
            }
            prop_assert_eq!(patched, copy);
        }
    }

    #[test]
    fn what_is_written_back_is_no_edit() {
        let source: Vec<u8> = vec![1; 9000];
        let mut draft = Draft::new(&source);
        draft.write(4090, &[2; 12]).unwrap();
        assert_eq!(draft.edits().unwrap(), [HiveEdit { offset: 4090, bytes: vec![2; 12] }]);
        assert_eq!(format!("{:?}", draft.edits().unwrap()), "[HiveEdit { 12 bytes at offset 4090 }]");
        draft.write(4090, &[1; 12]).unwrap();
        assert!(draft.edits().unwrap().is_empty());
    }
}

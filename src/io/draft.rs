//! Bytes as they would be after changes: the pages that differ are in memory, the source is never written.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io;
use std::ops::Range;

use super::read_at::checked_range;
use super::{Edit, Patch, PatchError, ReadAt};

/// The unit kept in memory, in bytes.
const PAGE: u64 = 4096;

/// Changed runs with fewer unchanged bytes than this between them become one.
const JOIN: usize = 16;

/// Bytes to replace. They may be secrets: `Debug` shows none.
#[derive(Clone, PartialEq, Eq)]
pub struct Change {
    /// Where, in bytes.
    pub offset: u64,
    /// What is to be there.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Change {{ {} bytes at {} }}", self.bytes.len(), self.offset)
    }
}

/// A source, and in memory the pages of it that are to differ.
///
/// Unlike a [`Patch`], it takes changes of the same bytes again and again, each made after a look at the last.
pub struct Draft<R> {
    source: R,
    /// In bytes; past the end of the source there are zeros.
    size: u64,
    pages: Pages,
}

/// A draft's pages by offset; all of 4096 bytes, zeros past the end of the source.
pub type Pages = BTreeMap<u64, Vec<u8>>;

impl<R> fmt::Debug for Draft<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Draft {{ {} pages }}", self.pages.len())
    }
}

impl<R: ReadAt> Draft<R> {
    /// A draft equal to `source`.
    pub fn new(source: R) -> Self {
        Self { size: source.size(), source, pages: BTreeMap::new() }
    }

    /// Makes the draft at least `size` bytes long, with zeros.
    pub fn lengthen(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// How many bytes the draft is longer than its source.
    pub fn outgrown(&self) -> u64 {
        self.size - self.source.size()
    }

    /// What is changed so far, to come back to with [`Draft::restore`].
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Takes back everything that was changed since `pages` were what was changed.
    pub fn restore(&mut self, pages: Pages) {
        self.pages = pages;
    }

    /// Replaces bytes; all of them must lie within the draft.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        checked_range(offset, bytes.len(), self.size)?;
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

    /// What differs from the source, in order.
    pub fn changes(&self) -> io::Result<Vec<Change>> {
        let changed = self.edits()?.into_iter();
        Ok(changed.map(|edit| Change { offset: edit.offset, bytes: edit.new }).collect())
    }

    /// What differs from the source, as a patch of it.
    pub fn into_patch(self) -> Result<Patch, PatchError> {
        let edits = self.edits().map_err(|source| PatchError::Read { offset: 0, source })?;
        let mut patch = Patch::new();
        edits.into_iter().try_for_each(|edit| patch.insert(edit))?;
        Ok(patch)
    }

    fn edits(&self) -> io::Result<Vec<Edit>> {
        let mut edits: Vec<Edit> = Vec::new();
        let mut old = vec![0; PAGE as usize];
        for (start, page) in &self.pages {
            read_padded(&self.source, &mut old, *start)?;
            for run in changed_runs(&old, page) {
                let offset = start + run.start as u64;
                match edits.last_mut() {
                    // Runs that meet where two pages do.
                    Some(last) if last.end() == offset => {
                        last.old.extend_from_slice(&old[run.clone()]);
                        last.new.extend_from_slice(&page[run]);
                    }
                    _ => edits.push(Edit { offset, old: old[run.clone()].to_vec(), new: page[run].to_vec() }),
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
        checked_range(offset, buf.len(), self.size)?;
        read_padded(&self.source, buf, offset)?;
        let end = offset + buf.len() as u64;
        for (start, page) in self.pages.range(offset - offset % PAGE..end) {
            let (from, to) = ((*start).max(offset), (start + page.len() as u64).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.source.check_unchanged()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::io::Overlay;

    proptest! {
        #[test]
        fn a_draft_reads_as_the_written_copy_and_so_does_its_patch(
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
            let mut again = Draft::new(&source);
            let mut past = 0;
            for change in draft.changes().unwrap() {
                prop_assert!(change.offset >= past);
                past = change.offset + change.bytes.len() as u64;
                again.write(change.offset, &change.bytes).unwrap();
            }
            let patch = draft.into_patch().unwrap();
            prop_assert_eq!(&again.into_patch().unwrap(), &patch);
            let mut patched = vec![0; source.len()];
            Overlay::new(&source, patch).read_exact_at(&mut patched, 0).unwrap();
            prop_assert_eq!(patched, copy);
        }
    }

    #[test]
    fn what_is_written_back_is_no_change() {
        let source: Vec<u8> = vec![1; 9000];
        let mut draft = Draft::new(&source);
        draft.write(4090, &[2; 12]).unwrap();
        assert_eq!(draft.changes().unwrap(), [Change { offset: 4090, bytes: vec![2; 12] }]);
        assert_eq!(format!("{:?}", draft.changes().unwrap()), "[Change { 12 bytes at 4090 }]");
        draft.write(4090, &[1; 12]).unwrap();
        assert!(draft.changes().unwrap().is_empty());
    }
}

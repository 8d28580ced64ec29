//! What every hive must hold, looked at byte by byte, without the reader.

use std::collections::{BTreeMap, BTreeSet};

use crate::io::Change;

fn word(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap())
}

fn half(file: &[u8], at: usize) -> usize {
    u16::from_le_bytes(file[at..at + 2].try_into().unwrap()).into()
}

/// Every cell by its offset from the first bin, with its size; less than 0 for allocated ones.
pub fn cells(file: &[u8]) -> BTreeMap<u32, i32> {
    let bins = &file[4096..4096 + word(file, 40) as usize];
    let mut cells = BTreeMap::new();
    let mut bin = 0;
    while bin < bins.len() {
        assert_eq!(&bins[bin..bin + 4], b"hbin");
        assert_eq!(word(bins, bin + 4) as usize, bin);
        let end = bin + word(bins, bin + 8) as usize;
        assert_eq!(end % 4096, 0);
        let mut at = bin + 32;
        while at < end {
            let size = word(bins, at) as i32;
            assert!(size != 0 && size % 8 == 0, "cell {at:#x} of size {size}");
            cells.insert(at as u32, size);
            at += size.unsigned_abs() as usize;
        }
        assert_eq!(at, end, "the cells do not tile the bin at {bin:#x}");
        bin = end;
    }
    assert_eq!(bin, bins.len());
    cells
}

/// The cells that the tree of keys uses; none may be used twice, and all must be allocated.
pub fn used(file: &[u8]) -> BTreeSet<u32> {
    let mut walk = Walk { bins: &file[4096..], cells: cells(file), used: BTreeSet::new() };
    walk.key(word(file, 36));
    walk.used
}

struct Walk<'f> {
    bins: &'f [u8],
    cells: BTreeMap<u32, i32>,
    used: BTreeSet<u32>,
}

impl<'f> Walk<'f> {
    fn take(&mut self, cell: u32) -> &'f [u8] {
        let size = *self.cells.get(&cell).unwrap_or_else(|| panic!("no cell begins at {cell:#x}"));
        assert!(size < 0, "cell {cell:#x} is used, but free");
        assert!(self.used.insert(cell), "cell {cell:#x} is used twice");
        &self.bins[cell as usize + 4..cell as usize + size.unsigned_abs() as usize]
    }

    fn key(&mut self, cell: u32) {
        let nk = self.take(cell);
        assert_eq!(&nk[..2], b"nk");
        if word(nk, 20) > 0 {
            self.subkeys(word(nk, 28));
        }
        self.values(nk);
        // One security cell serves many keys.
        self.used.insert(word(nk, 44));
        if half(nk, 74) > 0 {
            self.take(word(nk, 48));
        }
    }

    fn subkeys(&mut self, cell: u32) {
        let list = self.take(cell);
        let width = match &list[..2] {
            b"ri" | b"li" => 4,
            _ => 8,
        };
        for entry in list[4..].chunks(width).take(half(list, 2)) {
            match &list[..2] {
                b"ri" => self.subkeys(word(entry, 0)),
                _ => self.key(word(entry, 0)),
            }
        }
    }

    fn values(&mut self, nk: &[u8]) {
        let count = word(nk, 36);
        if count == 0 {
            assert_eq!(word(nk, 40), u32::MAX, "a list of no values");
            return;
        }
        let list = self.take(word(nk, 40));
        let (mut longest, mut largest) = (0, 0);
        for entry in list.chunks(4).take(count as usize) {
            let vk = self.take(word(entry, 0));
            assert_eq!(&vk[..2], b"vk");
            let name = half(vk, 2) * if half(vk, 16) & 1 == 1 { 2 } else { 1 };
            longest = longest.max(name as u32);
            let size = word(vk, 4);
            largest = largest.max(size & 0x7fff_ffff);
            if size < 0x8000_0000 && size > 0 {
                self.data(word(vk, 8), size);
            }
        }
        assert!(word(nk, 60) >= longest, "longest name {} below {longest}", word(nk, 60));
        assert!(word(nk, 64) >= largest, "largest data {} below {largest}", word(nk, 64));
    }

    fn data(&mut self, cell: u32, size: u32) {
        let data = self.take(cell);
        if data.len() >= size as usize {
            return;
        }
        assert_eq!(&data[..2], b"db");
        let list = self.take(word(data, 4));
        let mut left = size as usize;
        for segment in list.chunks(4).take(half(data, 2)) {
            let segment = self.take(word(segment, 0));
            let part = left.min(16344);
            assert!(segment.len() >= part);
            left -= part;
        }
        assert_eq!(left, 0);
    }
}

/// Allocated cells that no key leads to: real hives have a few.
pub fn leaked(file: &[u8]) -> BTreeSet<u32> {
    let used = used(file);
    cells(file).into_iter().filter(|(cell, size)| *size < 0 && !used.contains(cell)).map(|(c, _)| c).collect()
}

/// What must hold after an edit of `before`, whatever it was.
pub fn check_edit(before: &[u8], after: &[u8], edits: &[Change]) {
    assert_eq!(before.len(), after.len());
    if edits.is_empty() {
        return;
    }
    // The base block comes last, before it cells in order, apart from each other, and beginning with a change.
    let cells_then_base = edits.iter().map(|e| (e.offset < 4096, e.offset)).collect::<Vec<_>>();
    assert!(cells_then_base.is_sorted(), "{cells_then_base:?}");
    assert!(cells_then_base.last().unwrap().0);
    for edit in edits {
        let (start, end) = (edit.offset as usize, edit.offset as usize + edit.bytes.len());
        assert_ne!(before[start], after[start]);
        assert_ne!(before[end - 1], after[end - 1]);
    }
    // Base block: both numbers up by one, the sum right, and only the size of the bins may differ besides.
    let sequence = word(before, 4).wrapping_add(1);
    assert_eq!((word(after, 4), word(after, 8)), (sequence, sequence));
    let sum = after[..508].chunks(4).fold(0, |x, w| x ^ word(w, 0));
    assert_eq!(word(after, 508), sum);
    for at in (12..40).chain(44..508).chain(512..4096) {
        assert_eq!(before[at], after[at], "base block, byte {at}");
    }
    assert_eq!(leaked(before), leaked(after), "cells leaked");
    // What was freed is zero.
    let (old, new) = (cells(before), cells(after));
    for (cell, size) in new.into_iter().filter(|(_, size)| *size > 0) {
        let free_end = cell + size as u32;
        for (was, its) in old.range(cell..free_end).filter(|(_, size)| **size < 0) {
            // The size field of the free cell itself is not zero.
            let from = if *was == cell { cell + 4 } else { *was };
            let end = free_end.min(was + its.unsigned_abs());
            let bytes = &after[4096 + from as usize..4096 + end as usize];
            assert!(bytes.iter().all(|b| *b == 0), "freed {was:#x} is not zeroed");
        }
    }
}

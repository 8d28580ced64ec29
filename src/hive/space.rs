//! The free cells of a hive, and taking, giving back and writing cells.

use std::collections::{BTreeMap, BTreeSet};

use super::base_block::{self, PAGE};
use super::hive_file::{BIN_HEADER, Cell, word};
use super::{Hive, HiveError};
use crate::io::{Draft, Pages, ReadAt};

/// How much of the bins is read at once while they are scanned, in bytes.
const CHUNK: u32 = 256 << 10;

/// Above this, cell offsets would mean the volatile part of a loaded hive.
const MOST_BINS: u64 = 1 << 31;

/// A hive being edited: every cell it gives out is real, and every byte it frees is zeroed.
pub(super) struct Space<R> {
    hive: Hive<Draft<R>>,
    free: FreeCells,
    /// Where the bins begin, in order.
    bins: Vec<u32>,
}

/// Free cells by place and by size.
#[derive(Clone, Default)]
struct FreeCells {
    sizes: BTreeMap<u32, u32>,
    /// Size first, so that the smallest that fits, and of those the first, is next in order.
    by_size: BTreeSet<(u32, u32)>,
}

/// A state to come back to when an edit turns out not to fit.
pub(super) struct Checkpoint {
    pages: Pages,
    free: FreeCells,
    bins: usize,
    bins_size: u32,
}

impl FreeCells {
    fn insert(&mut self, offset: u32, size: u32) {
        self.sizes.insert(offset, size);
        self.by_size.insert((size, offset));
    }

    fn remove(&mut self, offset: u32) -> Option<u32> {
        let size = self.sizes.remove(&offset)?;
        self.by_size.remove(&(size, offset));
        Some(size)
    }

    /// The smallest that has `size` bytes or more.
    fn best_fit(&self, size: u32) -> Option<(u32, u32)> {
        self.by_size.range((size, 0)..).next().map(|(size, offset)| (*offset, *size))
    }

    /// The free cell that ends where `offset` is.
    fn before(&self, offset: u32) -> Option<u32> {
        let (start, size) = self.sizes.range(..offset).next_back()?;
        (start + size == offset).then_some(*start)
    }

    fn largest(&self) -> u32 {
        self.by_size.last().map_or(0, |(size, _)| *size)
    }
}

impl<R: ReadAt> Space<R> {
    /// Scans all bins for free cells, and checks that cells tile every bin.
    pub(super) fn scan(hive: Hive<Draft<R>>) -> Result<Self, HiveError> {
        let mut free = FreeCells::default();
        let mut bins = Vec::new();
        let end = hive.base().bins_size();
        let mut sequential = Sequential { hive: &hive, start: 0, bytes: Vec::new() };
        let mut bin = 0;
        while bin < end {
            let bin_end = bin + check_bin(bin, sequential.at::<BIN_HEADER>(bin)?, end)?;
            bins.push(bin);
            let mut cell = bin + BIN_HEADER;
            while cell < bin_end {
                let size = word(sequential.at::<4>(cell)?, 0).cast_signed();
                let taken = size.unsigned_abs();
                if taken == 0 || !taken.is_multiple_of(8) || taken > bin_end - cell {
                    let why = format!("size field {size}, with {} bytes left in its bin", bin_end - cell);
                    return Err(HiveError::cell("cell", cell, why));
                }
                if size > 0 {
                    free.insert(cell, taken);
                }
                cell += taken;
            }
            bin = bin_end;
        }
        Ok(Self { hive, free, bins })
    }

    pub(super) fn hive(&self) -> &Hive<Draft<R>> {
        &self.hive
    }

    /// The hive's base block and its bytes, for the last write.
    pub(super) fn into_hive(self) -> Hive<Draft<R>> {
        self.hive
    }

    pub(super) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            pages: self.hive.source().pages().clone(),
            free: self.free.clone(),
            bins: self.bins.len(),
            bins_size: self.hive.base().bins_size(),
        }
    }

    pub(super) fn restore(&mut self, to: Checkpoint) {
        self.hive.source_mut().restore(to.pages);
        self.hive.base_mut().set_bins_size(to.bins_size);
        self.free = to.free;
        self.bins.truncate(to.bins);
    }

    /// Puts `content` into a free cell, the smallest that fits, or into a new bin; returns its offset.
    pub(super) fn allocate(&mut self, content: &[u8]) -> Result<u32, HiveError> {
        let needed = (content.len() as u64 + 4).next_multiple_of(8);
        let fit = match u32::try_from(needed) {
            Ok(size) => self.free.best_fit(size).map(|(offset, found)| (offset, found, size)),
            Err(_) => None,
        };
        let (offset, found, size) = match fit {
            Some(fit) => fit,
            None => self.grow(needed)?,
        };
        self.free.remove(offset);
        let mut cell = Vec::with_capacity(size as usize);
        cell.extend_from_slice(&size.wrapping_neg().to_le_bytes());
        cell.extend_from_slice(content);
        cell.resize(size as usize, 0);
        self.put(offset, &cell)?;
        if found > size {
            self.put(offset + size, &(found - size).to_le_bytes())?;
            self.free.insert(offset + size, found - size);
        }
        Ok(offset)
    }

    /// Makes a bin for a cell of `needed` bytes in the file's room after its last one.
    ///
    /// Returns the bin's one free cell, its size, and `needed`.
    fn grow(&mut self, needed: u64) -> Result<(u32, u32, u32), HiveError> {
        let start = self.hive.base().bins_size();
        let bin = (needed + u64::from(BIN_HEADER)).next_multiple_of(u64::from(PAGE));
        let room = self.hive.source().size().saturating_sub(base_block::SIZE + u64::from(start));
        let end = u64::from(start) + bin;
        if bin > room || end > MOST_BINS {
            return Err(HiveError::NoRoom {
                needed,
                largest_free: self.free.largest(),
                missing: bin.saturating_sub(room),
            });
        }
        // Both lie below `MOST_BINS` now.
        let (bin, end) = (bin as u32, end as u32);
        let mut bytes = vec![0; bin as usize];
        bytes[..4].copy_from_slice(b"hbin");
        bytes[4..8].copy_from_slice(&start.to_le_bytes());
        bytes[8..12].copy_from_slice(&bin.to_le_bytes());
        let free = bin - BIN_HEADER;
        bytes[BIN_HEADER as usize..][..4].copy_from_slice(&free.to_le_bytes());
        self.put(start, &bytes)?;
        self.hive.base_mut().set_bins_size(end);
        self.bins.push(start);
        self.free.insert(start + BIN_HEADER, free);
        Ok((start + BIN_HEADER, free, needed as u32))
    }

    /// Zeroes a cell and gives it back, joined with its free neighbours.
    ///
    /// Neighbours are always of the same bin, for the next bin's header lies between the last cell and it.
    pub(super) fn release(&mut self, structure: &'static str, cell: Cell) -> Result<(), HiveError> {
        self.check_real(structure, cell)?;
        let (mut start, mut size) = (cell.offset, cell.len + 4);
        self.put(start, &vec![0; size as usize])?;
        while let Some(next) = self.free.remove(start + size) {
            self.put(start + size, &[0; 4])?;
            size += next;
        }
        while let Some(before) = self.free.before(start) {
            size += self.free.remove(before).unwrap_or(0);
            start = before;
        }
        self.put(start, &size.to_le_bytes())?;
        self.free.insert(start, size);
        Ok(())
    }

    /// Replaces bytes of a cell, `at` bytes after its size field.
    pub(super) fn write(
        &mut self,
        structure: &'static str,
        cell: Cell,
        at: u32,
        bytes: &[u8],
    ) -> Result<(), HiveError> {
        self.check_real(structure, cell)?;
        if u64::from(at) + bytes.len() as u64 > u64::from(cell.len) {
            let why = format!("its cell has {} bytes, too few for {} at {at}", cell.len, bytes.len());
            return Err(HiveError::cell(structure, cell.offset, why));
        }
        self.put(cell.offset + 4 + at, bytes)
    }

    /// Checks that a cell is one of those that tile its bin, so that a wrong offset harms nothing else.
    fn check_real(&self, structure: &'static str, cell: Cell) -> Result<(), HiveError> {
        let bin = self.bins.partition_point(|start| *start <= cell.offset);
        let mut at = bin.checked_sub(1).map_or(0, |bin| self.bins[bin]) + BIN_HEADER;
        while at < cell.offset {
            let mut size = [0; 4];
            self.hive.read(&mut size, at)?;
            // The scan saw to it that this is not 0 and stays in the bin.
            at += i32::from_le_bytes(size).unsigned_abs();
        }
        if at != cell.offset || self.hive.cell(structure, at)? != cell {
            return Err(HiveError::cell(structure, cell.offset, "no cell of its bin begins there"));
        }
        Ok(())
    }

    /// Writes at an offset relative to the first bin.
    fn put(&mut self, at: u32, bytes: &[u8]) -> Result<(), HiveError> {
        let offset = base_block::SIZE + u64::from(at);
        let written = self.hive.source_mut().write(offset, bytes);
        written.map_err(|source| HiveError::Read { offset, source })
    }
}

/// Checks the header of the bin at `start` and returns the bin's size.
fn check_bin(start: u32, header: &[u8], end: u32) -> Result<u32, HiveError> {
    let malformed = |why: String| Err(HiveError::cell("hbin", start, why));
    if &header[..4] != b"hbin" {
        return malformed("it does not begin with \"hbin\"".into());
    }
    if word(header, 4) != start {
        return malformed(format!("it claims to lie at {:#x}, not {start:#x}", word(header, 4)));
    }
    let size = word(header, 8);
    if size == 0 || !size.is_multiple_of(PAGE) || size > end - start {
        return malformed(format!("it can't have {size} bytes, with {} left", end - start));
    }
    Ok(size)
}

/// Small reads in order of offset, by large ones from the source.
struct Sequential<'h, R> {
    hive: &'h Hive<Draft<R>>,
    start: u32,
    bytes: Vec<u8>,
}

impl<R: ReadAt> Sequential<'_, R> {
    /// `N` bytes at `at`; `N` is at most the 8 bytes that a cell has, or a bin's header.
    fn at<const N: u32>(&mut self, at: u32) -> Result<&[u8], HiveError> {
        let within = at.checked_sub(self.start).map(|w| w as usize);
        let within = match within {
            Some(within) if within + N as usize <= self.bytes.len() => within,
            _ => {
                // Bins are multiples of 4096 and `at` is one of 8, so the end is not nearer than `N`.
                let len = CHUNK.min(self.hive.base().bins_size() - at);
                self.bytes.resize(len as usize, 0);
                self.hive.read(&mut self.bytes, at)?;
                self.start = at;
                0
            }
        };
        Ok(&self.bytes[within..within + N as usize])
    }
}

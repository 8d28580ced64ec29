//! A hive file, and its cells.

use std::fmt;

use super::base_block::{self, BaseBlock};
use super::{HiveError, Key};
use crate::io::ReadAt;

/// A registry hive, read on demand.
pub struct Hive<R> {
    source: R,
    base: BaseBlock,
}

/// An allocated cell that lies within the bins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    /// Where its size field is, relative to the first bin.
    pub offset: u32,
    /// Length of what follows the size field, in bytes.
    pub len: u32,
}

/// The offset that stands for "no cell".
pub(super) const NIL: u32 = u32::MAX;

/// The bytes of a bin before its first cell.
pub(super) const BIN_HEADER: u32 = 32;

impl<R: ReadAt> Hive<R> {
    /// Checks the base block of `source`, the bytes of a hive file; all else is checked when it is read.
    ///
    /// A dirty hive opens too: see [`Hive::dirt`].
    pub fn open(source: R) -> Result<Self, HiveError> {
        let base = BaseBlock::read(&source)?;
        Self::with_base(source, base)
    }

    /// Reads `source` by the base block given.
    pub(super) fn with_base(source: R, base: BaseBlock) -> Result<Self, HiveError> {
        base.check(source.size())?;
        Ok(Self { source, base })
    }

    /// Whether the last writer did not finish, so that log files may hold what is missing here.
    pub fn is_dirty(&self) -> bool {
        self.dirt().is_some()
    }

    /// Which sign says that the hive is dirty, if it is.
    pub fn dirt(&self) -> Option<String> {
        self.base.dirt()
    }

    /// The root key.
    pub fn root(&self) -> Result<Key<'_, R>, HiveError> {
        Key::read(self, self.base.root())
    }

    /// The key at `path` below the root, by names parted with backslashes; case does not count.
    pub fn key(&self, path: &str) -> Result<Option<Key<'_, R>>, HiveError> {
        let mut key = self.root()?;
        for name in path.split('\\').filter(|name| !name.is_empty()) {
            match key.subkey(name)? {
                Some(subkey) => key = subkey,
                None => return Ok(None),
            }
        }
        Ok(Some(key))
    }

    pub(super) fn source(&self) -> &R {
        &self.source
    }

    pub(super) fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    pub(super) fn base(&self) -> &BaseBlock {
        &self.base
    }

    pub(super) fn base_mut(&mut self) -> &mut BaseBlock {
        &mut self.base
    }

    /// Fills `buf` from `at`, relative to the first bin.
    pub(super) fn read(&self, buf: &mut [u8], at: u32) -> Result<(), HiveError> {
        let offset = base_block::SIZE + u64::from(at);
        self.source.read_exact_at(buf, offset).map_err(|source| HiveError::Read { offset, source })
    }

    /// The allocated cell at `offset`, which should hold a `structure`.
    pub(super) fn cell(&self, structure: &'static str, offset: u32) -> Result<Cell, HiveError> {
        let bins = self.base.bins_size();
        let malformed = |why: String| Err(HiveError::cell(structure, offset, why));
        if offset < BIN_HEADER || !offset.is_multiple_of(8) || offset > bins - 8 {
            return malformed(format!("no cell can lie at {offset:#x}, with bins of {bins:#x} bytes"));
        }
        let mut size = [0; 4];
        self.read(&mut size, offset)?;
        let size = i32::from_le_bytes(size);
        if size >= 0 {
            return malformed(format!("its cell is free (size field {size})"));
        }
        let size = size.unsigned_abs();
        if !size.is_multiple_of(8) || size > bins - offset {
            return malformed(format!("its cell can't have {size} bytes"));
        }
        Ok(Cell { offset, len: size - 4 })
    }

    /// `N` bytes of a cell, `at` bytes after its size field.
    pub(super) fn fixed<const N: usize>(
        &self,
        structure: &'static str,
        cell: Cell,
        at: u32,
    ) -> Result<[u8; N], HiveError> {
        let mut bytes = [0; N];
        self.fill(structure, cell, at, &mut bytes)?;
        Ok(bytes)
    }

    /// `len` bytes of a cell, `at` bytes after its size field.
    pub(super) fn bytes(
        &self,
        structure: &'static str,
        cell: Cell,
        at: u32,
        len: u32,
    ) -> Result<Vec<u8>, HiveError> {
        // Before anything is allocated.
        check_inside(structure, cell, at, len as usize)?;
        let mut bytes = vec![0; len as usize];
        self.fill(structure, cell, at, &mut bytes)?;
        Ok(bytes)
    }

    fn fill(&self, structure: &'static str, cell: Cell, at: u32, buf: &mut [u8]) -> Result<(), HiveError> {
        check_inside(structure, cell, at, buf.len())?;
        self.read(buf, cell.offset + 4 + at)
    }
}

fn check_inside(structure: &'static str, cell: Cell, at: u32, len: usize) -> Result<(), HiveError> {
    if u64::from(at) + len as u64 <= u64::from(cell.len) {
        return Ok(());
    }
    let why = format!("its cell has {} bytes, too few for {len} at {at}", cell.len);
    Err(HiveError::cell(structure, cell.offset, why))
}

impl<R> fmt::Debug for Hive<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hive {{ {} bytes of bins }}", self.base.bins_size())
    }
}

/// The little-endian word at `at` in a fixed structure, whose length covers it.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The little-endian half word at `at` in a fixed structure, whose length covers it.
pub(super) fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The words of a list.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|w| word(w, 0))
}

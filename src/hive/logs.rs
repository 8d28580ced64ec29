//! Transaction logs: what the last writer meant to write to the hive, as whole pages.
//!
//! A log begins with a copy of the hive's base block. From 8.1 on, entries with hashes and numbers follow (`HvLE`);
//! before, one bitmap of 512-byte blocks, and those blocks (`DIRT`).

use std::io;

use super::base_block::{self, BaseBlock, PAGE};
use super::hive_file::word;
use super::marvin32;
use crate::io::{Draft, ReadAt};

/// Where the base block's copy ends, and the log's own contents begin.
const START: u64 = base_block::SECTOR as u64;

/// Length of an `HvLE` entry's header, and of one reference to a page, in bytes.
const ENTRY_HEADER: u32 = 40;
const PAGE_REFERENCE: u32 = 8;

/// What one bit of a `DIRT` bitmap stands for, in bytes.
const BLOCK: u64 = 512;

/// A log file with a whole base block.
pub(super) struct Log<'l> {
    source: &'l dyn ReadAt,
    /// The copy of the hive's base block.
    pub base: BaseBlock,
}

/// One whole `HvLE` entry.
pub(super) struct Entry {
    at: u64,
    size: u32,
    /// Its number, one more than that of the entry before it.
    pub sequence: u32,
    /// Length of the hive's bins with it, in bytes.
    pub bins: u32,
}

impl<'l> Log<'l> {
    /// Looks at a log file; `None` if it is no log, empty, or half-written.
    pub fn open(source: &'l dyn ReadAt) -> io::Result<Option<Self>> {
        if source.size() < START + 8 {
            return Ok(None);
        }
        let mut sector = [0; base_block::SECTOR];
        source.read_exact_at(&mut sector, 0)?;
        let whole = |base: &BaseBlock| base.dirt().is_none() && base.bins_size().is_multiple_of(PAGE);
        let base = BaseBlock::new(sector).ok().filter(whole);
        Ok(base.map(|base| Self { source, base }))
    }

    /// The entries from the first on, up to one that is not whole.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut at = START;
        while let Some((entry, _)) = self.entry(at)? {
            at += u64::from(entry.size);
            entries.push(entry);
        }
        Ok(entries)
    }

    /// The entry at `at` and its bytes, if both its hashes are right.
    fn entry(&self, at: u64) -> io::Result<Option<(Entry, Vec<u8>)>> {
        let left = self.source.size().saturating_sub(at);
        if left < u64::from(ENTRY_HEADER) {
            return Ok(None);
        }
        let mut header = [0; ENTRY_HEADER as usize];
        self.source.read_exact_at(&mut header, at)?;
        let size = word(&header, 4);
        let entry = Entry { at, size, sequence: word(&header, 12), bins: word(&header, 16) };
        let sound = &header[..4] == b"HvLE"
            && size >= ENTRY_HEADER
            && size.is_multiple_of(512)
            && u64::from(size) <= left
            && entry.bins.is_multiple_of(PAGE)
            && header[32..40] == marvin32::hash(&header[..32]).to_le_bytes();
        if !sound {
            return Ok(None);
        }
        let mut bytes = vec![0; size as usize];
        self.source.read_exact_at(&mut bytes, at)?;
        let whole = bytes[24..32] == marvin32::hash(&bytes[ENTRY_HEADER as usize..]).to_le_bytes()
            && pages(&bytes).is_some_and(|pages| pages.iter().all(|page| page.fits(entry.bins)));
        Ok(whole.then_some((entry, bytes)))
    }

    /// Writes the pages of `entry`, one of this log's, into a hive.
    pub fn apply<R: ReadAt>(&self, entry: &Entry, hive: &mut Draft<R>) -> io::Result<()> {
        let changed = || io::Error::new(io::ErrorKind::InvalidData, "the log file changed while it was read");
        let (_, bytes) = self.entry(entry.at)?.ok_or_else(changed)?;
        hive.lengthen(base_block::SIZE + u64::from(entry.bins));
        for page in pages(&bytes).unwrap_or_default() {
            hive.write(base_block::SIZE + u64::from(page.offset), page.bytes)?;
        }
        Ok(())
    }

    /// Whether this is a log of the older kind.
    pub fn is_dirt(&self) -> io::Result<bool> {
        let mut signature = [0; 4];
        self.source.read_exact_at(&mut signature, START)?;
        Ok(&signature == b"DIRT")
    }

    /// Writes the blocks of a `DIRT` log into a hive; `false`, and nothing written, if some are missing.
    pub fn apply_dirt<R: ReadAt>(&self, hive: &mut Draft<R>) -> io::Result<bool> {
        let bins = u64::from(self.base.bins_size());
        let bitmap_at = START + 4;
        let blocks_at = (bitmap_at + bins / BLOCK / 8).next_multiple_of(BLOCK);
        if self.source.size() < blocks_at {
            return Ok(false);
        }
        let mut bitmap = vec![0u8; (bins / BLOCK / 8) as usize];
        self.source.read_exact_at(&mut bitmap, bitmap_at)?;
        let count: u64 = bitmap.iter().map(|byte| u64::from(byte.count_ones())).sum();
        if self.source.size() < blocks_at + count * BLOCK {
            return Ok(false);
        }
        hive.lengthen(base_block::SIZE + bins);
        let dirty = (0..bins / BLOCK).filter(|n| bitmap[(n / 8) as usize] >> (n % 8) & 1 == 1);
        let mut block = [0; BLOCK as usize];
        for (index, number) in (0..).zip(dirty) {
            self.source.read_exact_at(&mut block, blocks_at + index * BLOCK)?;
            hive.write(base_block::SIZE + number * BLOCK, &block)?;
        }
        Ok(true)
    }
}

/// A page of an entry.
struct Page<'e> {
    /// Relative to the first bin.
    offset: u32,
    bytes: &'e [u8],
}

impl Page<'_> {
    fn fits(&self, bins: u32) -> bool {
        u64::from(self.offset) + self.bytes.len() as u64 <= u64::from(bins)
    }
}

/// The pages of an entry, which follow all their references; `None` if it is too short for them.
fn pages(entry: &[u8]) -> Option<Vec<Page<'_>>> {
    let count = word(entry, 20);
    let references = count.checked_mul(PAGE_REFERENCE)? as usize;
    let (references, mut rest) = entry.get(ENTRY_HEADER as usize..)?.split_at_checked(references)?;
    let mut pages = Vec::new();
    for reference in references.chunks_exact(PAGE_REFERENCE as usize) {
        let (bytes, after) = rest.split_at_checked(word(reference, 4) as usize)?;
        pages.push(Page { offset: word(reference, 0), bytes });
        rest = after;
    }
    Some(pages)
}

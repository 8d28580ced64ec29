//! The base block: the first 4096 bytes of a hive file.

use super::HiveError;
use crate::io::ReadAt;

/// Length of the base block in bytes; the first bin follows it.
pub(super) const SIZE: u64 = 4096;

/// The part that is summed, and that log files carry a copy of.
pub(super) const SECTOR: usize = 512;

/// What bins are multiples of, in bytes.
pub(super) const PAGE: u32 = 4096;

const SEQUENCE_1: usize = 4;
const SEQUENCE_2: usize = 8;
const LAST_WRITTEN: usize = 12;
const MAJOR: usize = 20;
const MINOR: usize = 24;
const FILE_TYPE: usize = 28;
const FORMAT: usize = 32;
const ROOT: usize = 36;
const BINS_SIZE: usize = 40;
const CHECKSUM: usize = 508;

/// The first sector of a base block, with its fields at hand. Bytes without a name here are kept as they are.
#[derive(Debug, Clone)]
pub(super) struct BaseBlock {
    sector: [u8; SECTOR],
}

impl BaseBlock {
    /// Reads the first sector of a hive file.
    pub(super) fn read<R: ReadAt>(source: &R) -> Result<Self, HiveError> {
        if source.size() < SIZE {
            return Err(HiveError::base_block(format!("the file has only {} bytes", source.size())));
        }
        let mut sector = [0; SECTOR];
        source.read_exact_at(&mut sector, 0).map_err(|source| HiveError::Read { offset: 0, source })?;
        Self::new(sector)
    }

    /// Takes the first sector of a file, if it begins as a hive does.
    pub(super) fn new(sector: [u8; SECTOR]) -> Result<Self, HiveError> {
        if &sector[..4] != b"regf" {
            return Err(HiveError::base_block("the file does not begin with \"regf\""));
        }
        Ok(Self { sector })
    }

    /// Checks that this is a primary file of a known version whose bins lie within `file_size` bytes.
    pub(super) fn check(&self, file_size: u64) -> Result<(), HiveError> {
        let (major, minor) = (self.word(MAJOR), self.minor());
        if major != 1 || !(3..=6).contains(&minor) {
            return Err(HiveError::base_block(format!("version {major}.{minor} is not 1.3 to 1.6")));
        }
        let (file_type, format) = (self.word(FILE_TYPE), self.word(FORMAT));
        if file_type != 0 || format != 1 {
            return Err(HiveError::base_block(format!(
                "file type {file_type}, format {format}: not a primary hive file (0, 1)"
            )));
        }
        let bins = self.bins_size();
        if bins == 0 || !bins.is_multiple_of(PAGE) {
            return Err(HiveError::base_block(format!(
                "the size of its bins, {bins} bytes, is not a multiple of {PAGE}"
            )));
        }
        if u64::from(bins) > file_size.saturating_sub(SIZE) {
            return Err(HiveError::base_block(format!(
                "its bins take {bins} bytes, but the file has {file_size} in all"
            )));
        }
        if self.root() >= bins {
            return Err(HiveError::base_block(format!("the root cell {} lies past the bins", self.root())));
        }
        Ok(())
    }

    /// Which sign says that the last writer did not finish, if one does.
    pub(super) fn dirt(&self) -> Option<String> {
        if !self.sum_is_right() {
            return Some("the checksum of its base block is wrong".into());
        }
        let (first, second) = (self.sequence_1(), self.sequence_2());
        (first != second).then(|| format!("its sequence numbers differ ({first} and {second})"))
    }

    /// Whether the checksum fits the bytes.
    pub(super) fn sum_is_right(&self) -> bool {
        self.word(CHECKSUM) == self.sum()
    }

    pub(super) fn sequence_1(&self) -> u32 {
        self.word(SEQUENCE_1)
    }

    pub(super) fn sequence_2(&self) -> u32 {
        self.word(SEQUENCE_2)
    }

    /// FILETIME of the last write.
    pub(super) fn last_written(&self) -> u64 {
        u64::from(self.word(LAST_WRITTEN)) | u64::from(self.word(LAST_WRITTEN + 4)) << 32
    }

    /// The minor version: big data exists above 3.
    pub(super) fn minor(&self) -> u32 {
        self.word(MINOR)
    }

    /// The root key's cell.
    pub(super) fn root(&self) -> u32 {
        self.word(ROOT)
    }

    /// Length of all bins together, in bytes.
    pub(super) fn bins_size(&self) -> u32 {
        self.word(BINS_SIZE)
    }

    pub(super) fn set_bins_size(&mut self, size: u32) {
        self.put(BINS_SIZE, size);
    }

    /// A log's copy, as the block of the hive itself.
    pub(super) fn into_primary(mut self) -> Self {
        self.put(FILE_TYPE, 0);
        self
    }

    /// The sector of a hive that was written whole, as number `sequence`.
    pub(super) fn finished(mut self, sequence: u32) -> [u8; SECTOR] {
        self.put(SEQUENCE_1, sequence);
        self.put(SEQUENCE_2, sequence);
        self.put(CHECKSUM, self.sum());
        self.sector
    }

    /// XOR of all words before the checksum; 0 and -1 are never stored.
    fn sum(&self) -> u32 {
        let words = self.sector[..CHECKSUM].chunks_exact(4);
        match words.fold(0, |sum, w| sum ^ u32::from_le_bytes([w[0], w[1], w[2], w[3]])) {
            0 => 1,
            u32::MAX => u32::MAX - 1,
            sum => sum,
        }
    }

    /// `at` is one of the constants above, so it lies inside the sector.
    fn word(&self, at: usize) -> u32 {
        let b = &self.sector[at..at + 4];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    fn put(&mut self, at: usize, word: u32) {
        self.sector[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn block() -> BaseBlock {
        let mut sector = [0; SECTOR];
        sector[..4].copy_from_slice(b"regf");
        let mut block = BaseBlock::new(sector).unwrap();
        block.put(MAJOR, 1);
        block.put(MINOR, 5);
        block.put(FORMAT, 1);
        block.put(ROOT, 32);
        block.put(BINS_SIZE, 8192);
        block
    }

    #[test]
    fn each_field_is_checked() {
        block().check(3 * 4096).unwrap();
        for (field, bad) in [
            (MAJOR, 2),
            (MINOR, 2),
            (MINOR, 7),
            (FILE_TYPE, 1),
            (FORMAT, 0),
            (ROOT, 8192),
            (BINS_SIZE, 0),
            (BINS_SIZE, 4097),
            (BINS_SIZE, 12288),
        ] {
            let mut broken = block();
            broken.put(field, bad);
            let error = broken.check(3 * 4096).unwrap_err().to_string();
            assert!(error.contains("base block at offset 0"), "{error}");
        }
        assert!(BaseBlock::new([0; SECTOR]).is_err());
        assert!(block().check(100).is_err());
    }

    #[test]
    fn dirt_has_a_reason() {
        assert!(block().dirt().unwrap().contains("checksum"));
        let whole = BaseBlock::new(block().finished(7)).unwrap();
        assert_eq!((whole.dirt(), whole.sequence_1(), whole.sequence_2()), (None, 7, 7));
        let mut unfinished = whole;
        unfinished.put(SEQUENCE_1, 8);
        unfinished.put(CHECKSUM, unfinished.sum());
        assert!(unfinished.dirt().unwrap().contains("8 and 7"));
    }

    #[test]
    fn two_sums_are_never_stored() {
        let mut block = block();
        block.put(100, block.sum());
        assert_eq!(block.sum(), 1);
        block.put(100, !block.word(100));
        assert_eq!(block.sum(), u32::MAX - 1);
    }
}

//! UDF 1.02 to 2.01 as it stands on optical media: one partition without packets or metadata copies.
//!
//! Sources: ECMA-167 (3rd edition) parts 3 and 4; OSTA UDF 1.02 and 2.01. What is checked is what Linux checks too:
//! every tag's checksum, CRC and location.

mod directory;
mod entry;
mod tag;
mod volume;

pub(super) use entry::Icb;
use tag::{Tag, read_tagged};

use super::block::Block;
use super::{DiscError, File, Kind, SECTOR};
use crate::io::ReadAt;

/// A UDF volume.
#[derive(Debug)]
pub(super) struct Udf {
    /// By partition reference number: where the partition lies. `None`: of a kind that is not read.
    partitions: Vec<Option<Partition>>,
    root: Icb,
}

/// Where a partition lies, in bytes of the image.
#[derive(Debug, Clone, Copy)]
struct Partition {
    start: u64,
    length: u64,
}

impl Udf {
    /// Follows an anchor to the volume, and the volume to its root directory.
    pub fn open(source: &dyn ReadAt) -> Result<Self, DiscError> {
        volume::open(source)
    }

    /// The root directory.
    pub fn root(&self) -> Icb {
        self.root
    }

    /// Where a file's entry is in the image; 0 for one that is nowhere.
    pub fn offset(&self, icb: &Icb) -> u64 {
        let partition = self.partitions.get(usize::from(icb.partition)).copied().flatten();
        partition.map_or(0, |partition| partition.start.saturating_add(u64::from(icb.block) * SECTOR))
    }

    /// The entries of a directory.
    pub fn list(&self, source: &dyn ReadAt, directory: &Icb) -> Result<Vec<(String, Kind, Icb)>, DiscError> {
        directory::list(self, source, directory)
    }

    /// A file's bytes.
    pub fn file<'a>(&self, source: &'a dyn ReadAt, icb: &Icb) -> Result<File<'a>, DiscError> {
        match entry::read(self, source, icb)? {
            (Kind::File | Kind::Directory, file) => Ok(file),
            (_, file) => Err(DiscError::Unsupported {
                what: "UDF file entry",
                offset: file.offset(),
                why: "it is a symbolic link or a device",
            }),
        }
    }

    /// Where `length` bytes from block `block` of a partition lie in the image. `from` and `at` are what named them.
    fn locate(
        &self,
        from: &Block,
        at: usize,
        partition: u16,
        block: u32,
        length: u64,
    ) -> Result<u64, DiscError> {
        let Some(known) = self.partitions.get(usize::from(partition)) else {
            return Err(from.damaged(at, "it names a partition that is not there"));
        };
        let Some(partition) = known else {
            return Err(from.unsupported(at, "it lies in a virtual, sparable or metadata partition"));
        };
        let start = u64::from(block) * SECTOR;
        if start + length > partition.length {
            return Err(from.damaged(at, "it names blocks past the end of the partition"));
        }
        Ok(partition.start + start)
    }
}

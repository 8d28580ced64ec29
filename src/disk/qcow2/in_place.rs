//! Where the bytes of a qcow2 disk can be overwritten in its file: nothing but data clusters that are plain,
//! and the disk's alone.

use std::io;

use thiserror::Error;

use super::{Cluster, OFFSET_MASK, Qcow2, be64};
use crate::io::ReadAt;

/// As QEMU has it: a longer reference count table is taken for damage.
const MAX_TABLE: u64 = 8 << 20;
/// In entries of both levels: exactly one reference, so that it may be written where it is.
const COPIED: u64 = 1 << 63;

/// Why a disk's bytes can't be overwritten in the image.
#[derive(Debug, Error)]
pub enum NotInPlace {
    /// The image can't be read.
    #[error("the qcow2 image can't be read")]
    Read(#[from] io::Error),
    /// The image as a whole is not fit.
    #[error("the qcow2 image can't be changed in place: {why}; use --output instead")]
    Image {
        /// What it has.
        why: &'static str,
    },
    /// A cluster is not fit.
    #[error(
        "the qcow2 image can't be changed in place: the cluster at offset {offset} of the disk {why}; use \
         --output instead"
    )]
    Cluster {
        /// Where on the disk, in bytes.
        offset: u64,
        /// What it is.
        why: &'static str,
    },
}

/// Bytes of the disk that lie together in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// What must be known of an image to write to it, read once.
#[derive(Debug)]
pub struct Writable {
    refcount_table: Vec<u64>,
    /// Clusters (by offset in the file) that hold tables, sorted.
    tables: Vec<u64>,
}

impl Writable {
    /// Reads where the image's tables are; refuses an image that notes what is written to it.
    pub fn new<R: ReadAt>(image: &Qcow2<R>) -> Result<Self, NotInPlace> {
        let header = &image.header;
        let cluster = image.cluster_size();
        let refuse = |why| Err(NotInPlace::Image { why });
        if header.autoclear != 0 {
            return refuse("it has persistent bitmaps, or other notes of what was written");
        }
        if header.refcount_order > 6 {
            return refuse("its reference counts are of an unknown width");
        }
        let length = u64::from(header.refcount_table_clusters) * cluster;
        let offset = header.refcount_table_offset;
        let end = offset.checked_add(length);
        if !offset.is_multiple_of(cluster)
            || length > MAX_TABLE
            || end.is_none_or(|end| end > image.source.size())
        {
            return refuse("its reference count table is damaged");
        }
        let mut table = vec![0; length as usize];
        image.source.read_exact_at(&mut table, offset)?;
        let refcount_table: Vec<_> = table.chunks_exact(8).map(|entry| be64(entry) & OFFSET_MASK).collect();

        let l1 = image.l1.iter().map(|entry| entry & OFFSET_MASK);
        let mut tables: Vec<_> = l1.chain(refcount_table.iter().copied()).filter(|at| *at != 0).collect();
        // The header and the two first-level tables.
        tables.push(0);
        for (from, length) in [(offset, length), (header.l1_offset, header.l1_entries * 8)] {
            tables.extend((from..from + length).step_by(cluster as usize));
        }
        tables.sort_unstable();
        Ok(Self { refcount_table, tables })
    }

    /// Where `length` bytes of the disk from `offset` are in the file, if all of them can be overwritten there.
    pub fn extents<R: ReadAt>(
        &self,
        image: &Qcow2<R>,
        offset: u64,
        length: u64,
    ) -> Result<Vec<Extent>, NotInPlace> {
        let end = offset.checked_add(length).filter(|end| *end <= image.size()).ok_or_else(|| {
            let why = format!("{length} bytes at offset {offset} lie past the disk's end");
            io::Error::new(io::ErrorKind::UnexpectedEof, why)
        })?;
        let mut extents = Vec::new();
        let mut at = offset;
        while at < end {
            let within = at % image.cluster_size();
            let length = (image.cluster_size() - within).min(end - at);
            let host = self.cluster(image, at >> image.header.cluster_bits)?;
            extents.push(Extent { offset: host + within, length });
            at += length;
        }
        Ok(extents)
    }

    /// Where a cluster of the disk is in the file.
    fn cluster<R: ReadAt>(&self, image: &Qcow2<R>, cluster: u64) -> Result<u64, NotInPlace> {
        let refuse = |why| Err(NotInPlace::Cluster { offset: cluster << image.header.cluster_bits, why });
        let Some((entry, at)) = image.l2_entry(cluster)? else { return refuse("is not allocated") };
        let host = match image.cluster(cluster, entry, at)? {
            Cluster::Plain(host) => host,
            Cluster::Packed { .. } => return refuse("is compressed"),
            Cluster::Hole => return refuse("is not allocated, or a zero cluster"),
        };
        let l1 = image.l1.get((cluster / image.l2_entries()) as usize).copied().unwrap_or(0);
        if self.refcount(image, host)? != 1 || entry & COPIED == 0 || l1 & COPIED == 0 {
            return refuse("is not the disk's alone (its reference count is not 1)");
        }
        if self.tables.binary_search(&host).is_ok() {
            return refuse("lies where the image has its own tables (see what qemu-img check says)");
        }
        Ok(host)
    }

    /// How many uses of the cluster at `host` in the file the image counts.
    fn refcount<R: ReadAt>(&self, image: &Qcow2<R>, host: u64) -> Result<u64, NotInPlace> {
        let bits = 1_u64 << image.header.refcount_order;
        let a_block = image.cluster_size() * 8 / bits;
        let index = host >> image.header.cluster_bits;
        let block = self.refcount_table.get((index / a_block) as usize).copied().unwrap_or(0);
        if block == 0 {
            return Ok(0);
        }
        let first_bit = index % a_block * bits;
        let mut bytes = [0; 8];
        let count = &mut bytes[..bits.div_ceil(8) as usize];
        let at = block.checked_add(first_bit / 8);
        let at = at.ok_or(NotInPlace::Image { why: "its reference count table is damaged" })?;
        image.source.read_exact_at(count, at)?;
        Ok(match bits {
            // Narrow counts fill a byte from its low end.
            1..8 => u64::from(bytes[0]) >> (first_bit % 8) & ((1 << bits) - 1),
            _ => be64(count),
        })
    }
}

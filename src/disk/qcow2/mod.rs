//! qcow2 images: where the disk's bytes lie in the file.
//!
//! An image that needs anything outside of itself, or that QEMU itself would repair first, is refused by
//! name. Reference counts are not needed for reading, but for writing in place ([`Writable`]). Format: QEMU's docs/interop/qcow2.rst.

mod cache;
mod header;
mod in_place;
mod stream;

use std::io::{self, Read};
use std::ops::Range;

use thiserror::Error;

use crate::io::ReadAt;
use cache::Cache;
use header::{Compression, Header};
pub use in_place::{Extent, NotInPlace, Writable};
pub use stream::{Qcow2Stream, StreamError};

/// What one lookup reads of a second-level table, at most.
const L2_SLICE: u64 = 64 << 10;
/// Second-level tables kept: 2 MiB, which map 16 GiB at the usual cluster size.
const L2_BYTES: u64 = 2 << 20;
/// Unpacked clusters kept, for all threads together.
const UNPACKED_BYTES: u64 = 16 << 20;
/// The least a zstd decoder must take, by RFC 8878; QEMU's frames ask for no more than a cluster.
const ZSTD_WINDOW_LOG: u32 = 23;

const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;

/// Why an image is not read.
#[derive(Debug, Error)]
pub enum Qcow2Error {
    /// The image's file can't be read.
    #[error("the qcow2 image can't be read at offset {offset}")]
    Read {
        /// Where in the file, in bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// Something in the image can't be so.
    #[error(
        "qcow2 {what} at offset {offset}: {why}; see what qemu-img check says, or was its download cut short?"
    )]
    Damaged {
        /// Which structure.
        what: &'static str,
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// Neither version 2 nor 3.
    #[error("this is a qcow image of version {0}; convert it: qemu-img convert -O qcow2 FILE disk.qcow2")]
    Version(u32),
    /// The rest of the disk is in another file.
    #[error(
        "the qcow2 image has a backing file; make one of both: qemu-img convert -O qcow2 FILE disk.qcow2"
    )]
    BackingFile,
    /// LUKS or AES.
    #[error(
        "the qcow2 image is encrypted; decrypt it: qemu-img convert --object secret,... --image-opts ... -O qcow2 disk.qcow2"
    )]
    Encrypted,
    /// Older states of the disk lie in the same file.
    #[error(
        "the qcow2 image holds internal snapshots ({0}); drop them (qemu-img snapshot -d), or copy the current \
         state: qemu-img convert -O qcow2 FILE disk.qcow2"
    )]
    Snapshots(u32),
    /// The clusters are in another file.
    #[error(
        "the qcow2 image keeps its data in an external file; make one of both: qemu-img convert -O qcow2 FILE disk.qcow2"
    )]
    ExternalData,
    /// Not closed properly, with lazy reference counts.
    #[error("the qcow2 image is marked dirty: it was not closed; repair a copy: qemu-img check -r all FILE")]
    MarkedDirty,
    /// QEMU found damage.
    #[error("the qcow2 image is marked corrupt; repair a copy: qemu-img check -r all FILE")]
    MarkedCorrupt,
    /// Subclusters.
    #[error(
        "the qcow2 image has extended L2 entries (subclusters); convert it: qemu-img convert -O qcow2 FILE disk.qcow2"
    )]
    ExtendedL2,
    /// Feature bits that this reader does not know.
    #[error(
        "the qcow2 image uses unknown features ({0:#x}); convert it: qemu-img convert -O qcow2 FILE disk.qcow2"
    )]
    Features(u64),
    /// Neither zlib nor zstd.
    #[error(
        "the qcow2 image's clusters are compressed in an unknown way ({0}); convert it: qemu-img convert -O qcow2 FILE disk.qcow2"
    )]
    Compression(u8),
}

impl From<Qcow2Error> for io::Error {
    fn from(error: Qcow2Error) -> Self {
        match error {
            Qcow2Error::Read { source, .. } => source,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}

/// Whether the file begins as qcow2 images of any version do.
pub fn has_magic(file: &dyn ReadAt) -> Result<bool, Qcow2Error> {
    let mut magic = [0; 4];
    if file.size() < 4 {
        return Ok(false);
    }
    file.read_exact_at(&mut magic, 0).map_err(|source| Qcow2Error::Read { offset: 0, source })?;
    Ok(magic == header::MAGIC)
}

/// Where a cluster of the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cluster {
    /// Reads as zeros.
    Hole,
    /// As it is, at this offset of the file.
    Plain(u64),
    /// Packed: offset in the file and bytes there, which may reach over more than this cluster.
    Packed { offset: u64, length: u64 },
}

/// A qcow2 image as the disk it holds.
#[derive(Debug)]
pub struct Qcow2<R> {
    source: R,
    header: Header,
    l1: Vec<u64>,
    l2: Cache,
    unpacked: Cache,
}

impl<R: ReadAt> Qcow2<R> {
    /// Reads the header and the first-level table (32 MiB at most), and refuses what can't be read alone.
    pub fn open(source: R) -> Result<Self, Qcow2Error> {
        let header = Header::read(&source)?;
        let mut table = vec![0; header.l1_entries as usize * 8];
        source
            .read_exact_at(&mut table, header.l1_offset)
            .map_err(|source| Qcow2Error::Read { offset: header.l1_offset, source })?;
        let l1 = table.chunks_exact(8).map(be64).collect();
        let cluster = 1 << header.cluster_bits;
        let kept = |bytes: u64, each: u64| ((bytes / each) as usize).min(1024);
        let l2 = Cache::new(kept(L2_BYTES, L2_SLICE.min(cluster)));
        let unpacked = Cache::new(kept(UNPACKED_BYTES, cluster));
        Ok(Self { source, header, l1, l2, unpacked })
    }

    /// The image's file.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// The size of a cluster in bytes: a power of two from 512 to 2 MiB.
    pub fn cluster_size(&self) -> u64 {
        1 << self.header.cluster_bits
    }

    /// Clusters that one second-level table maps.
    fn l2_entries(&self) -> u64 {
        self.cluster_size() / 8
    }

    /// Where the second-level table for `cluster` lies in the file, if there is one.
    fn l2_offset(&self, cluster: u64) -> io::Result<Option<u64>> {
        let index = cluster / self.l2_entries();
        let entry = self.l1.get(index as usize).copied().unwrap_or(0);
        let offset = entry & OFFSET_MASK;
        if offset == 0 {
            return Ok(None);
        }
        let end = offset.checked_add(self.cluster_size());
        let why = if !offset.is_multiple_of(self.cluster_size()) {
            "the second-level table it points to is not aligned to a cluster"
        } else if end.is_none_or(|end| end > self.source.size()) {
            "the second-level table it points to lies past the end of the file"
        } else {
            return Ok(Some(offset));
        };
        let offset = self.header.l1_offset + index * 8;
        Err(Qcow2Error::Damaged { what: "first-level table entry", offset, why }.into())
    }

    fn locate(&self, cluster: u64) -> io::Result<Cluster> {
        match self.l2_entry(cluster)? {
            Some((entry, at)) => self.cluster(cluster, entry, at),
            None => Ok(Cluster::Hole),
        }
    }

    /// The second-level entry of `cluster` and where it lies in the file, if there is a table for it.
    fn l2_entry(&self, cluster: u64) -> io::Result<Option<(u64, u64)>> {
        let Some(table) = self.l2_offset(cluster)? else { return Ok(None) };
        let at = table + cluster % self.l2_entries() * 8;
        let slice_size = L2_SLICE.min(self.cluster_size());
        let slice_start = at - at % slice_size;
        let slice = self.l2.get(slice_start, || {
            let mut slice = vec![0; slice_size as usize];
            self.source.read_exact_at(&mut slice, slice_start)?;
            Ok(slice)
        })?;
        let within = (at - slice_start) as usize;
        Ok(Some((be64(&slice[within..within + 8]), at)))
    }

    /// What a second-level entry, which lies at `at`, says of a cluster.
    fn cluster(&self, cluster: u64, entry: u64, at: u64) -> io::Result<Cluster> {
        let damaged = |why| Qcow2Error::Damaged { what: "second-level table entry", offset: at, why };
        if entry & COMPRESSED != 0 {
            // The lower bits are a byte offset, the upper ones how many sectors follow the first.
            let offset_bits = 62 - (self.header.cluster_bits - 8);
            let offset = entry & ((1 << offset_bits) - 1);
            let sectors = (entry & (COMPRESSED - 1)) >> offset_bits;
            let length = (sectors + 1) * 512 - offset % 512;
            // The count is in whole sectors: the last may be cut off by the file's end.
            return match self.source.size().checked_sub(offset) {
                None | Some(0) => Err(damaged("the packed cluster lies past the end of the file").into()),
                Some(left) => Ok(Cluster::Packed { offset, length: length.min(left) }),
            };
        }
        if entry & ZERO != 0 {
            return if self.header.version == 2 {
                Err(damaged("version 2 has no zero clusters").into())
            } else {
                Ok(Cluster::Hole)
            };
        }
        let offset = entry & OFFSET_MASK;
        if offset == 0 {
            return Ok(Cluster::Hole);
        }
        if !offset.is_multiple_of(self.cluster_size()) {
            return Err(damaged("the cluster is not aligned").into());
        }
        let used = (self.header.size - (cluster << self.header.cluster_bits)).min(self.cluster_size());
        if offset.checked_add(used).is_none_or(|end| end > self.source.size()) {
            return Err(damaged("the cluster lies past the end of the file").into());
        }
        Ok(Cluster::Plain(offset))
    }

    fn unpack(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut packed = vec![0; length as usize];
        self.source.read_exact_at(&mut packed, offset)?;
        let mut cluster = vec![0; self.cluster_size() as usize];
        let result = match self.header.compression {
            Compression::Deflate => {
                flate2::bufread::DeflateDecoder::new(packed.as_slice()).read_exact(&mut cluster)
            }
            Compression::Zstd => {
                zstd::stream::read::Decoder::with_buffer(packed.as_slice()).and_then(|decoder| {
                    let mut decoder = decoder.single_frame();
                    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                    decoder.read_exact(&mut cluster)
                })
            }
        };
        result.map_err(|_| {
            let why = "it does not unpack to a whole cluster";
            Qcow2Error::Damaged { what: "packed cluster", offset, why }
        })?;
        Ok(cluster)
    }
}

fn be64(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl<R: ReadAt> ReadAt for Qcow2<R> {
    fn size(&self) -> u64 {
        self.header.size
    }

    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size()) {
            let why = format!("{} bytes at offset {offset} lie past the disk's end", buf.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        while !buf.is_empty() {
            let cluster = offset >> self.header.cluster_bits;
            let within = offset % self.cluster_size();
            let mut length = (self.cluster_size() - within).min(buf.len() as u64);
            match self.locate(cluster)? {
                Cluster::Hole => buf[..length as usize].fill(0),
                Cluster::Plain(host) => {
                    // Neighbours on the disk are mostly neighbours in the file: read them at once.
                    while length < buf.len() as u64 {
                        let next = (offset + length) >> self.header.cluster_bits;
                        let adjacent = host.checked_add(within + length).map(Cluster::Plain);
                        if Some(self.locate(next)?) != adjacent {
                            break;
                        }
                        length = (length + self.cluster_size()).min(buf.len() as u64);
                    }
                    self.source.read_exact_at(&mut buf[..length as usize], host + within)?;
                }
                Cluster::Packed { offset: host, length: packed } => {
                    let content = self.unpacked.get(cluster, || self.unpack(host, packed))?;
                    let within = within as usize;
                    buf[..length as usize].copy_from_slice(&content[within..within + length as usize]);
                }
            }
            offset += length;
            buf = &mut buf[length as usize..];
        }
        Ok(())
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        let clusters = self.size().div_ceil(self.cluster_size());
        let mut cluster = from >> self.header.cluster_bits;
        // Past what has no table or holds nothing.
        loop {
            if cluster >= clusters {
                return Ok(None);
            }
            if self.l2_offset(cluster)?.is_none() {
                cluster = (cluster / self.l2_entries() + 1) * self.l2_entries();
            } else if self.locate(cluster)? == Cluster::Hole {
                cluster += 1;
            } else {
                break;
            }
        }
        // One table's worth at most, so that asking again from inside a long range stays cheap.
        let limit = ((cluster / self.l2_entries() + 1) * self.l2_entries()).min(clusters);
        let mut end = cluster + 1;
        while end < limit && self.locate(end)? != Cluster::Hole {
            end += 1;
        }
        let start = (cluster << self.header.cluster_bits).max(from);
        Ok(Some(start..(end << self.header.cluster_bits).min(self.size())).filter(|range| !range.is_empty()))
    }
}

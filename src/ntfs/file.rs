//! A file's own data: its bytes, and where on the volume they lie.

use std::io;
use std::ops::Range;

use super::attribute::{COMPRESSED, ENCRYPTED, SPARSE};
use super::runs::Run;
use super::stream::{Content, Stream};
use super::{FileReference, NtfsError, Volume};
use crate::io::ReadAt;

/// Compressed by Windows (CompactOS, WIM-backed): the data is in a stream beside.
const WOF_TAG: u32 = 0x8000_0017;

/// A file on a volume; reads the unnamed stream.
#[derive(Debug)]
pub struct File<'v, R> {
    volume: &'v Volume<R>,
    reference: FileReference,
    stream: Stream,
    reparse_tag: Option<u32>,
    names: u16,
}

/// Clusters of a file that lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where in the file, in bytes.
    pub file_offset: u64,
    /// Where on the volume, in bytes; `None`: a hole, which reads as zeros.
    pub volume_offset: Option<u64>,
    /// How long, in bytes: whole clusters, so the last may reach past the file's end.
    pub length: u64,
}

/// A part of a range of a file, as it lies on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where on the volume, in bytes.
    pub volume_offset: u64,
    /// How long, in bytes.
    pub length: u64,
}

impl<'v, R: ReadAt> File<'v, R> {
    pub(super) fn new(
        volume: &'v Volume<R>,
        reference: FileReference,
        stream: Stream,
        reparse_tag: Option<u32>,
        names: u16,
    ) -> Self {
        Self { volume, reference, stream, reparse_tag, names }
    }

    /// Which file it is.
    pub fn reference(&self) -> FileReference {
        self.reference
    }

    /// How many names it has: hard links, and an 8.3 name where that is another.
    pub fn names(&self) -> u16 {
        self.names
    }

    /// Whether NTFS has compressed it.
    pub fn is_compressed(&self) -> bool {
        self.stream.flags & COMPRESSED != 0
    }

    /// Whether EFS has encrypted it.
    pub fn is_encrypted(&self) -> bool {
        self.stream.flags & ENCRYPTED != 0
    }

    /// Whether it may have holes.
    pub fn is_sparse(&self) -> bool {
        self.stream.flags & SPARSE != 0
    }

    /// Whether its bytes lie in its file record, and not in clusters of their own.
    pub fn is_resident(&self) -> bool {
        matches!(self.stream.content, Content::Resident(_))
    }

    /// The kind of reparse point it is, if it is one. Such files are not read.
    pub fn reparse_tag(&self) -> Option<u32> {
        self.reparse_tag
    }

    /// How many of its first bytes were ever written; the rest reads as zeros.
    pub fn initialized_size(&self) -> u64 {
        self.stream.initialized
    }

    /// An error where the bytes on the disk are not the file's.
    pub fn check_plain(&self) -> Result<(), NtfsError> {
        let record = self.reference.record;
        match self.reparse_tag {
            None => self.stream.check_plain(),
            Some(WOF_TAG) => Err(NtfsError::Transformed {
                record,
                how: "compressed by Windows (WOF, as CompactOS does)",
                cure: "uncompress it in Windows: compact /u /exe FILE",
            }),
            Some(_) => Err(NtfsError::Transformed {
                record,
                how: "a reparse point, with its contents elsewhere",
                cure: "put the file itself in its place in Windows",
            }),
        }
    }

    /// All its clusters in order; none where it is resident.
    pub fn extents(&self) -> Vec<Extent> {
        self.stream.runs_from(0).iter().map(|run| self.extent(run)).collect()
    }

    fn extent(&self, run: &Run) -> Extent {
        let cluster_size = self.volume.cluster_size();
        Extent {
            file_offset: run.file_cluster * cluster_size,
            volume_offset: run.volume_cluster.map(|cluster| cluster * cluster_size),
            length: run.clusters * cluster_size,
        }
    }

    /// Where on the volume `length` bytes from `offset` lie, so that writing there changes the file.
    pub fn map(&self, offset: u64, length: u64) -> Result<Vec<Piece>, NtfsError> {
        self.check_plain()?;
        self.stream.map(&self.volume.mft.geometry, offset, length)
    }

    /// As `read_exact_at`, with this module's errors.
    pub(super) fn read_bytes(&self, buf: &mut [u8], offset: u64) -> Result<(), NtfsError> {
        self.check_plain()?;
        let mft = &self.volume.mft;
        self.stream.read(&mft.volume, &mft.geometry, buf, offset)
    }
}

impl<R: ReadAt> ReadAt for File<'_, R> {
    fn size(&self) -> u64 {
        self.stream.size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size()) {
            let why = format!("{} bytes at offset {offset} lie past the file's end", buf.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        Ok(self.read_bytes(buf, offset)?)
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        if self.is_resident() {
            return Ok((from < self.size()).then(|| from..self.size()));
        }
        let end = self.stream.initialized;
        let run = self.stream.runs_from(from / self.volume.cluster_size()).iter();
        let data = run.map(|run| self.extent(run)).find(|extent| extent.volume_offset.is_some());
        let range =
            data.map(|extent| extent.file_offset.max(from)..(extent.file_offset + extent.length).min(end));
        Ok(range.filter(|range| !range.is_empty()))
    }
}

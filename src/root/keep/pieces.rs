//! Where on a disk the bytes of a file lie.

use std::io;
use std::ops::Range;

use crate::io::ReadAt;
use crate::ntfs::Extent;

/// A piece of a file: `len` bytes that lie at `disk_offset`. Both in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub disk_offset: u64,
    pub len: u64,
}

impl Piece {
    /// Its bytes on the disk.
    pub fn bytes(&self) -> Range<u64> {
        self.disk_offset..self.disk_offset + self.len
    }
}

/// All pieces of a file, in the order of its bytes.
#[derive(Debug, Clone)]
pub(super) struct Pieces {
    /// Each with where in the file it begins.
    pieces: Vec<(u64, Piece)>,
    size: u64,
}

impl Pieces {
    /// `None` where they are longer than any file.
    pub fn new(pieces: Vec<Piece>) -> Option<Self> {
        let mut size = 0u64;
        let mut placed = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let end = size.checked_add(piece.len)?;
            placed.push((size, piece));
            size = end;
        }
        Some(Self { pieces: placed, size })
    }

    /// Those of a file on the volume that begins at `volume_start`; `None` where it has a hole.
    pub fn of(extents: &[Extent], volume_start: u64) -> Option<Self> {
        let piece = |extent: &Extent| {
            Some(Piece { disk_offset: volume_start + extent.volume_offset?, len: extent.length })
        };
        Self::new(extents.iter().map(piece).collect::<Option<_>>()?)
    }

    /// In bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Each piece, and where in the file it begins.
    pub fn iter(&self) -> impl Iterator<Item = &(u64, Piece)> {
        self.pieces.iter()
    }

    /// Reads the file from its byte `from`.
    pub fn read(&self, disk: &dyn ReadAt, buf: &mut [u8], from: u64) -> io::Result<()> {
        let mut done = 0;
        let first = self.pieces.partition_point(|(start, piece)| start + piece.len <= from);
        for (start, piece) in &self.pieces[first..] {
            if done == buf.len() {
                break;
            }
            let within = from + done as u64 - start;
            let take = (piece.len - within).min((buf.len() - done) as u64) as usize;
            disk.read_exact_at(&mut buf[done..done + take], piece.disk_offset + within)?;
            done += take;
        }
        if done < buf.len() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file of the volume ends early"));
        }
        Ok(())
    }
}

//! File records of a trimmed volume: shipped without what deleted files have left in them.
//!
//! As with clusters, $MFT's bitmap is not held in memory, but read again for the records that are read.

use std::io;
use std::ops::Range;

use super::pieces::{Piece, Pieces};
use crate::io::ReadAt;
use crate::ntfs::{NtfsError, Volume, clear_residue};

/// Where the file records of a volume lie on the disk, and which of them are in use.
#[derive(Debug)]
pub(super) struct Records {
    /// In bytes.
    size: u64,
    /// $MFT, and $MFTMirr: the same records again, as many as it has.
    tables: [Table; 2],
    /// $MFT's bitmap.
    bits: Pieces,
    /// How many of its first bytes were ever written; the rest are zeros.
    bits_written: u64,
}

/// File records one after the other.
#[derive(Debug)]
struct Table {
    pieces: Pieces,
    /// By place on the disk, each with where in the table it begins.
    by_place: Vec<(u64, Piece)>,
    /// How many of its first bytes were ever written, in whole records.
    written: u64,
}

impl Records {
    /// Those of the volume that begins at `start` on the disk; `None` where they, or their bitmap, have no places
    /// of their own.
    pub fn of<R: ReadAt>(volume: &Volume<R>, start: u64) -> Result<Option<Self>, NtfsError> {
        let size = volume.record_size();
        let bitmap = volume.mft_bitmap()?;
        let (mft, mirror) = (volume.mft()?, volume.mft_mirror()?);
        if [&mft, &mirror, &bitmap].iter().any(|file| file.is_resident()) {
            return Ok(None);
        }
        let table = |pieces, written| Table::new(pieces, written / size * size);
        let tables = (
            Pieces::of(&mft.extents(), start).map(|pieces| table(pieces, mft.initialized_size())),
            Pieces::of(&mirror.extents(), start).map(|pieces| table(pieces, mirror.initialized_size())),
        );
        let bits = Pieces::of(&bitmap.extents(), start);
        let ((Some(mft), Some(mirror)), Some(bits)) = (tables, bits) else { return Ok(None) };
        let bits_written = bitmap.initialized_size();
        Ok(Some(Self { size, tables: [mft, mirror], bits, bits_written }))
    }

    /// Clears, in the bytes of the disk at `offset`, what records that are not in use have kept.
    pub fn clear(&self, disk: &dyn ReadAt, buf: &mut [u8], offset: u64) -> io::Result<()> {
        for table in &self.tables {
            for (place, from) in table.within(offset..offset + buf.len() as u64) {
                let part = &mut buf[(place.start - offset) as usize..(place.end - offset) as usize];
                self.clear_part(disk, table, part, from)?;
            }
        }
        Ok(())
    }

    /// Clears a part of a table: its bytes from `from`.
    fn clear_part(&self, disk: &dyn ReadAt, table: &Table, part: &mut [u8], from: u64) -> io::Result<()> {
        let written = table.written.saturating_sub(from).min(part.len() as u64) as usize;
        let (part, never_written) = part.split_at_mut(written);
        never_written.fill(0);
        let end = from + part.len() as u64;
        let numbers = from / self.size..end.div_ceil(self.size);
        let bits = self.bits(disk, numbers.clone())?;
        for number in numbers {
            let in_use = bits.in_use(number);
            let start = number * self.size;
            let here = start.max(from)..(start + self.size).min(end);
            let bytes = &mut part[(here.start - from) as usize..(here.end - from) as usize];
            if bytes.len() as u64 == self.size {
                clear_residue(number, bytes, in_use);
            } else {
                // The rest of it lies elsewhere.
                let mut whole = vec![0; self.size as usize];
                table.pieces.read(disk, &mut whole, start)?;
                clear_residue(number, &mut whole, in_use);
                bytes.copy_from_slice(&whole[(here.start - start) as usize..(here.end - start) as usize]);
            }
        }
        Ok(())
    }

    /// The bits of these records.
    fn bits(&self, disk: &dyn ReadAt, numbers: Range<u64>) -> io::Result<Bits> {
        let first = numbers.start / 8;
        let mut bytes = vec![0; (numbers.end.div_ceil(8) - first) as usize];
        let written = self.bits_written.saturating_sub(first).min(bytes.len() as u64) as usize;
        self.bits.read(disk, &mut bytes[..written], first)?;
        Ok(Bits { first: first * 8, bytes })
    }
}

/// A part of $MFT's bitmap.
struct Bits {
    first: u64,
    bytes: Vec<u8>,
}

impl Bits {
    fn in_use(&self, number: u64) -> bool {
        self.bytes[((number - self.first) / 8) as usize] >> (number % 8) & 1 == 1
    }
}

impl Table {
    fn new(pieces: Pieces, written: u64) -> Self {
        let mut by_place: Vec<_> = pieces.iter().cloned().collect();
        by_place.sort_by_key(|(_, piece)| piece.disk_offset);
        Self { pieces, by_place, written }
    }

    /// What of these bytes of the disk is the table's, each part with where in the table it begins.
    fn within(&self, bytes: Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> {
        let first = self.by_place.partition_point(|(_, piece)| piece.bytes().end <= bytes.start);
        let touched =
            self.by_place[first..].iter().take_while(move |(_, piece)| piece.disk_offset < bytes.end);
        touched.filter_map(move |(start, piece)| {
            let place = piece.disk_offset.max(bytes.start)..piece.bytes().end.min(bytes.end);
            (!place.is_empty()).then(|| (place.clone(), start + (place.start - piece.disk_offset)))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const RECORD: usize = 1024;
    const COUNT: usize = 48;
    const PIECE: usize = 512;

    /// An unused record full of 0xEE.
    fn record() -> Vec<u8> {
        let mut bytes = vec![0xEE; RECORD];
        bytes[..72].fill(0);
        bytes[..4].copy_from_slice(b"FILE");
        bytes[4..8].copy_from_slice(&[48, 0, 3, 0]);
        bytes[16] = 9;
        bytes[20] = 56;
        bytes[24..28].copy_from_slice(&800u32.to_le_bytes());
        for check in [48, 510, 1022] {
            bytes[check..check + 2].copy_from_slice(&[7, 0]);
        }
        bytes
    }

    proptest! {
        #[test]
        fn any_part_read_is_that_part_of_the_whole(
            order in Just((0..COUNT * RECORD / PIECE).collect::<Vec<_>>()).prop_shuffle(),
            used: u64, offset in 0usize..60_000, len in 0usize..60_000,
        ) {
            // The bitmap at 0, the table's pieces of half a record from 1024 on, in some order.
            let mut disk = vec![0; 1024 + COUNT * RECORD + 4096];
            disk[..8].copy_from_slice(&used.to_le_bytes());
            let mut pieces = Vec::new();
            for (n, place) in order.iter().enumerate() {
                let at = 1024 + place * PIECE;
                let half = n % 2 * PIECE;
                disk[at..at + PIECE].copy_from_slice(&record()[half..half + PIECE]);
                pieces.push(Piece { disk_offset: at as u64, len: PIECE as u64 });
            }
            let table = Table::new(Pieces::new(pieces.clone()).unwrap(), (COUNT * RECORD) as u64);
            let none = Table::new(Pieces::new(Vec::new()).unwrap(), 0);
            let bits = Pieces::new(vec![Piece { disk_offset: 0, len: 8 }]).unwrap();
            let records = Records { size: RECORD as u64, tables: [table, none], bits, bits_written: 8 };
            let mut whole = disk.clone();
            records.clear(&disk, &mut whole, 0).unwrap();
            for number in 24..COUNT {
                let mut bytes: Vec<u8> = Vec::new();
                for piece in &pieces[number * 2..number * 2 + 2] {
                    bytes.extend(&whole[piece.disk_offset as usize..][..PIECE]);
                }
                let mut expected = record();
                clear_residue(number as u64, &mut expected, used >> number & 1 == 1);
                prop_assert_eq!(bytes, expected);
            }
            let end = (offset + len).min(disk.len());
            let mut part = disk[offset.min(end)..end].to_vec();
            records.clear(&disk, &mut part, offset.min(end) as u64).unwrap();
            prop_assert!(part == whole[offset.min(end)..end]);
        }
    }
}

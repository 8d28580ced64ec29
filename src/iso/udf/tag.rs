//! The tag that every UDF structure begins with (ECMA-167 3/7.2).

use super::super::block::Block;
use super::super::{DiscError, SECTOR};
use crate::io::ReadAt;

/// Bytes of a tag.
pub(super) const LENGTH: usize = 16;

/// The structures that are read, by their tag's identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Anchor,
    VolumePointer,
    Partition,
    LogicalVolume,
    Terminator,
    FileSet,
    FileIdentifier,
    AllocationExtent,
    FileEntry,
    ExtendedFileEntry,
    Other,
}

impl Tag {
    fn of(identifier: u16) -> Self {
        match identifier {
            2 => Self::Anchor,
            3 => Self::VolumePointer,
            5 => Self::Partition,
            6 => Self::LogicalVolume,
            8 => Self::Terminator,
            256 => Self::FileSet,
            257 => Self::FileIdentifier,
            258 => Self::AllocationExtent,
            261 => Self::FileEntry,
            266 => Self::ExtendedFileEntry,
            _ => Self::Other,
        }
    }
}

/// Reads the sector at `offset`, whose tag must be right and say that it belongs to block `location`.
pub(super) fn read_tagged(
    source: &dyn ReadAt,
    offset: u64,
    location: u32,
    what: &'static str,
) -> Result<(Tag, Block), DiscError> {
    let block = Block::read(source, offset, SECTOR as usize, what)?;
    let tag = check(&block, 0)?;
    if block.u32(12)? != location {
        return Err(block.damaged(12, "its tag belongs to another block"));
    }
    Ok((tag, block))
}

/// The tag at byte `at` of `block`, whose checksum and CRC must be right.
pub(super) fn check(block: &Block, at: usize) -> Result<Tag, DiscError> {
    let tag = block.slice(at, LENGTH)?;
    let sum = tag.iter().enumerate().filter(|(index, _)| *index != 4);
    let sum = sum.fold(0u8, |sum, (_, byte)| sum.wrapping_add(*byte));
    if sum != tag[4] {
        return Err(block.damaged(at + 4, "its tag's checksum is wrong"));
    }
    let length = usize::from(block.u16(at + 10)?);
    let covered = block.slice(at + LENGTH, length)?;
    if crc(covered) != block.u16(at + 8)? {
        return Err(block.damaged(at + 8, "its CRC is wrong"));
    }
    Ok(Tag::of(block.u16(at)?))
}

/// CRC-ITU-T as ECMA-167 3/7.2.6 has it: polynomial 0x1021, from zero, highest bit first.
fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standards_example() {
        // ECMA-167 annex A: the CRC of these bytes.
        assert_eq!(crc(&[0x70, 0x6a, 0x77]), 0x3299);
    }
}

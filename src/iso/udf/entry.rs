//! File entries, and where a file's bytes are (ECMA-167 4/14.6, 4/14.9, 4/14.14, 4/14.17).

use super::super::block::Block;
use super::super::extents::Extent;
use super::super::{DiscError, File, Kind, SECTOR};
use super::{Tag, Udf, read_tagged};
use crate::io::ReadAt;

/// Allocation descriptors of a file: 64 Ki of them reach over more than any disc has.
const MAX_EXTENTS: usize = 1 << 16;
/// Bits of an allocation descriptor's length that are the length; the two above are its type.
const LENGTH: u32 = (1 << 30) - 1;

/// Where a file's entry is: a `long_ad` to an information control block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Icb {
    /// Counted in the partition.
    pub(super) block: u32,
    /// The partition's reference number.
    pub(super) partition: u16,
}

impl Icb {
    /// From the `long_ad` at byte `at`.
    pub(super) fn read(block: &Block, at: usize) -> Result<Self, DiscError> {
        Ok(Self { block: block.u32(at + 4)?, partition: block.u16(at + 8)? })
    }
}

/// What a file is, and its bytes.
pub(super) fn read<'a>(udf: &Udf, source: &'a dyn ReadAt, icb: &Icb) -> Result<(Kind, File<'a>), DiscError> {
    // Nothing read yet names the place; the entry's own offset is told.
    let nowhere = Block::new(u64::from(icb.block) * SECTOR, Vec::new(), "UDF file entry");
    let offset = udf.locate(&nowhere, 0, icb.partition, icb.block, SECTOR)?;
    let (tag, entry) = read_tagged(source, offset, icb.block, "UDF file entry")?;
    let lengths = match tag {
        Tag::FileEntry => 168,
        Tag::ExtendedFileEntry => 208,
        _ => return Err(entry.damaged(0, "this is another structure")),
    };
    if entry.u16(20)? != 4 {
        return Err(entry.unsupported(20, "its strategy is not 4"));
    }
    let kind = match entry.u8(27)? {
        4 => Kind::Directory,
        5 => Kind::File,
        12 => Kind::Symlink,
        _ => Kind::Other,
    };
    let size = entry.u64(56)?;
    let [attributes, descriptors] = [entry.u32(lengths)?, entry.u32(lengths + 4)?].map(|n| n as usize);
    let start = (lengths + 8).saturating_add(attributes);
    let list = entry.slice(start, descriptors)?;
    let what = "UDF allocation descriptors";
    let extents = match entry.u16(34)? & 7 {
        // The bytes are in the entry itself.
        3 => vec![Extent { length: list.len() as u64, at: Some(entry.offset(start)) }],
        form @ (0 | 1) => {
            let list = Block::new(entry.offset(start), list.to_vec(), what);
            extents(udf, source, icb.partition, form == 1, list)?
        }
        _ => return Err(entry.unsupported(34, "its allocation descriptors are extended ones")),
    };
    Ok((kind, File::new(source, size, &extents, what, entry.offset(start))?))
}

/// The extents that a list names, and those of the lists it goes on in.
fn extents(
    udf: &Udf,
    source: &dyn ReadAt,
    own: u16,
    long: bool,
    mut list: Block,
) -> Result<Vec<Extent>, DiscError> {
    let mut extents: Vec<Extent> = Vec::new();
    let width = if long { 16 } else { 8 };
    let (mut at, mut seen) = (0, 0);
    while at + width <= list.bytes().len() {
        seen += 1;
        if seen > MAX_EXTENTS {
            return Err(list.damaged(at, "they are more than any file has, or lead in a circle"));
        }
        let (word, block) = (list.u32(at)?, list.u32(at + 4)?);
        let partition = if long { list.u16(at + 8)? } else { own };
        let (form, length) = (word >> 30, u64::from(word & LENGTH));
        // An empty one ends the list.
        if length == 0 {
            break;
        }
        if form == 3 {
            let offset = udf.locate(&list, at, partition, block, SECTOR)?;
            let (tag, next) = read_tagged(source, offset, block, "UDF allocation extent")?;
            if tag != Tag::AllocationExtent {
                return Err(next.damaged(0, "this is another structure"));
            }
            let length = next.u32(20)? as usize;
            list =
                Block::new(next.offset(24), next.slice(24, length)?.to_vec(), "UDF allocation descriptors");
            at = 0;
            continue;
        }
        // All but the last are whole blocks (4/12.1): where one is not, what follows would be shifted.
        if extents.last().is_some_and(|last| last.length % SECTOR != 0) {
            return Err(list.damaged(at, "an extent before the last is no multiple of a block"));
        }
        let at_byte = match form {
            0 => Some(udf.locate(&list, at, partition, block, length)?),
            // Allocated or not: nothing was recorded.
            _ => None,
        };
        extents.push(Extent { length, at: at_byte });
        at += width;
    }
    Ok(extents)
}

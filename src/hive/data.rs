//! Where a value's data lies: in the `vk` itself, in a cell, or in the segments of a `db`.

use super::hive_file::{Cell, half, word, words};
use super::{Hive, HiveError};
use crate::io::ReadAt;

/// Top bit of a data size: the data is in the offset field. Below it, the length in bytes.
pub(super) const INLINE: u32 = 1 << 31;

/// The most that fits the offset field, in bytes.
pub(super) const INLINE_MAX: u32 = 4;

/// Length of every segment of big data but the last, in bytes; up to it, data takes one ordinary cell.
pub(super) const SEGMENT: u32 = 16344;

/// The last minor version without big data.
pub(super) const LAST_WITHOUT_BIG_DATA: u32 = 3;

/// The cells that a value's data takes.
pub(super) enum Storage {
    /// None: four bytes or fewer are kept in the `vk`.
    Inline,
    /// One cell.
    Cell(Cell),
    /// Big data.
    Big {
        /// The `db` record.
        head: Cell,
        /// Its list of segments.
        list: Cell,
        /// The segments, in order.
        segments: Vec<Cell>,
    },
}

/// The data of the `vk` in `value`, whose first 20 bytes are `vk`.
pub(super) fn read<R: ReadAt>(hive: &Hive<R>, value: Cell, vk: &[u8; 20]) -> Result<Vec<u8>, HiveError> {
    let mut left = word(vk, 4) & !INLINE;
    match locate(hive, value, vk)? {
        Storage::Inline => Ok(vk[8..8 + left as usize].to_vec()),
        Storage::Cell(cell) => hive.bytes("value data", cell, 0, left),
        Storage::Big { segments, .. } => {
            let mut data = Vec::with_capacity(left as usize);
            for segment in segments {
                let part = left.min(SEGMENT);
                data.extend(hive.bytes("data segment", segment, 0, part)?);
                left -= part;
            }
            Ok(data)
        }
    }
}

/// Finds the cells of that data, and checks that they can hold it.
pub(super) fn locate<R: ReadAt>(hive: &Hive<R>, value: Cell, vk: &[u8; 20]) -> Result<Storage, HiveError> {
    let (size, offset) = (word(vk, 4), word(vk, 8));
    let len = size & !INLINE;
    if size & INLINE != 0 && len > INLINE_MAX {
        let why = format!("{len} bytes of data can't lie in the vk itself");
        return Err(HiveError::cell("vk", value.offset, why));
    }
    if size & INLINE != 0 || len == 0 {
        return Ok(Storage::Inline);
    }
    let bins = hive.base().bins_size();
    if len > bins {
        let why = format!("it claims {len} bytes of data, more than all bins ({bins})");
        return Err(HiveError::cell("vk", value.offset, why));
    }
    let cell = hive.cell("value data", offset)?;
    // Some writers keep large data in one large cell, in hives of every version.
    if len <= cell.len {
        return Ok(Storage::Cell(cell));
    }
    let head: [u8; 4] = hive.fixed("value data", cell, 0)?;
    if &head[..2] != b"db" || hive.base().minor() <= LAST_WITHOUT_BIG_DATA {
        let why = format!("its cell has {} bytes, too few for the {len} of its vk", cell.len);
        return Err(HiveError::cell("value data", offset, why));
    }
    let count = u32::from(half(&head, 2));
    if count != len.div_ceil(SEGMENT) {
        let why = format!("{count} segments can't hold {len} bytes in parts of {SEGMENT}");
        return Err(HiveError::cell("db", offset, why));
    }
    let list_offset = u32::from_le_bytes(hive.fixed("db", cell, 4)?);
    let list = hive.cell("segment list", list_offset)?;
    let offsets = hive.bytes("segment list", list, 0, count * 4)?;
    let segments =
        words(&offsets).map(|offset| hive.cell("data segment", offset)).collect::<Result<_, _>>()?;
    Ok(Storage::Big { head: cell, list, segments })
}

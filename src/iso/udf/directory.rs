//! Directories: file identifier descriptors, one after the other (ECMA-167 4/14.4; names: UDF 2.1.1).

use super::super::block::Block;
use super::super::{DiscError, Kind, MAX_DIRECTORY};
use super::{Icb, Tag, Udf, entry, tag};
use crate::io::ReadAt;

/// Bytes before the implementation's own and the name.
const HEADER: usize = 38;

/// The entries of a directory, without those that were deleted and the one of its parent.
pub(super) fn list(
    udf: &Udf,
    source: &dyn ReadAt,
    directory: &Icb,
) -> Result<Vec<(String, Kind, Icb)>, DiscError> {
    let (kind, file) = entry::read(udf, source, directory)?;
    let nowhere = Block::new(file.offset(), Vec::new(), "UDF directory");
    if kind != Kind::Directory {
        return Err(nowhere.damaged(0, "the entry it is listed by says that it is none"));
    }
    if file.size() > MAX_DIRECTORY {
        return Err(nowhere.damaged(0, "it is larger than any directory"));
    }
    let mut bytes = vec![0; file.size() as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|source| DiscError::Read { offset: file.offset(), source })?;
    // Offsets are right in the first extent; directories have no other but on rewritten media.
    let block = Block::new(file.offset(), bytes, "UDF directory entry");
    let mut entries = Vec::new();
    let mut at = 0;
    while at < block.bytes().len() {
        if tag::check(&block, at)? != Tag::FileIdentifier {
            return Err(block.damaged(at, "this is another structure"));
        }
        let characteristics = block.u8(at + 18)?;
        let name = usize::from(block.u8(at + 19)?);
        let own = usize::from(block.u16(at + 36)?);
        // Deleted is bit 2, the parent bit 3.
        if characteristics & 0b1100 == 0 {
            let name = text(block.slice(at + HEADER + own, name)?);
            let name = name.ok_or_else(|| block.damaged(at + HEADER + own, "its name is none"))?;
            let kind = if characteristics & 0b10 == 0 { Kind::File } else { Kind::Directory };
            entries.push((name, kind, Icb::read(&block, at + 20)?));
        }
        at += (HEADER + own + name).next_multiple_of(4);
    }
    Ok(entries)
}

/// A name: its first byte says how many bits a character has.
fn text(bytes: &[u8]) -> Option<String> {
    let (bits, text) = bytes.split_first()?;
    let name: String = match bits {
        8 => text.iter().map(|byte| char::from(*byte)).collect(),
        16 => {
            let units = text.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        _ => return None,
    };
    (!name.is_empty()).then_some(name)
}

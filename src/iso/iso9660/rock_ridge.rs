//! Rock Ridge: what a system use area says of names and kinds (SUSP 5, RRIP 4).

use super::super::block::Block;
use super::super::{DiscError, Kind, SECTOR};
use super::record::Record;
use super::{Content, directory, names};
use crate::io::ReadAt;

/// Areas that a record's system use may go on in; names fit in one.
const MAX_AREAS: usize = 16;
/// The longest name that is put together, in bytes.
const MAX_NAME: usize = 4096;

/// What is of interest in a record's system use area.
#[derive(Debug, Default)]
pub(super) struct RockRidge {
    /// The name, if one is recorded.
    pub name: Option<String>,
    /// By the POSIX mode.
    pub kind: Option<Kind>,
    /// The block of the directory that stands here, and was moved.
    pub child: Option<u32>,
    /// Whether this is that directory, at its other place.
    pub relocated: bool,
    /// Why the bytes can't be read, if they can't.
    pub unread: Option<&'static str>,
}

/// Whether the tree below `root` has Rock Ridge: the bytes to skip in its system use areas.
pub(super) fn begins(source: &dyn ReadAt, root: &Content) -> Result<Option<usize>, DiscError> {
    let block = directory::read(source, root)?;
    let Some(own) = Record::read(&block, 0)? else { return Ok(None) };
    let (_, area) = own.system_use()?;
    // `SP`, 7 bytes, version 1, the check bytes 0xBE 0xEF (SUSP 5.3).
    let Some([b'S', b'P', 7, 1, 0xbe, 0xef, skip, ..]) = area.get(..7) else { return Ok(None) };
    // SUSP alone names nothing: a mode or a name does (`PX` is in every record of RRIP).
    let found = fields(source, &block, &own, 0)?;
    Ok(found
        .iter()
        .any(|field| matches!(field.signature, [b'P', b'X'] | [b'R', b'R']))
        .then(|| (*skip).into()))
}

/// Reads what a record says beyond ISO 9660.
pub(super) fn read(
    source: &dyn ReadAt,
    block: &Block,
    record: &Record<'_>,
    skip: usize,
) -> Result<RockRidge, DiscError> {
    let mut found = RockRidge::default();
    let mut name = Vec::new();
    for field in fields(source, block, record, skip)? {
        match (&field.signature, field.data.as_slice()) {
            // Flags 2 and 4 stand for `.` and `..`.
            (b"NM", [flags, part @ ..]) if flags & 6 == 0 && name.len() + part.len() <= MAX_NAME => {
                name.extend_from_slice(part);
            }
            (b"PX", [mode0, mode1, ..]) => {
                found.kind = match u16::from_le_bytes([*mode0, *mode1]) & 0o170_000 {
                    0o040_000 => Some(Kind::Directory),
                    0o100_000 => Some(Kind::File),
                    0o120_000 => Some(Kind::Symlink),
                    _ => Some(Kind::Other),
                };
            }
            (b"CL", [a, b, c, d, ..]) => found.child = Some(u32::from_le_bytes([*a, *b, *c, *d])),
            (b"RE", _) => found.relocated = true,
            (b"ZF", _) => found.unread = Some("the file is compressed (zisofs)"),
            _ => {}
        }
    }
    found.name = (!name.is_empty()).then(|| names::bytes_as_text(&name));
    Ok(found)
}

/// One field of a system use area.
struct Field {
    signature: [u8; 2],
    /// After signature, length and version.
    data: Vec<u8>,
}

/// All fields of a record, those in continuation areas too.
fn fields(
    source: &dyn ReadAt,
    block: &Block,
    record: &Record<'_>,
    skip: usize,
) -> Result<Vec<Field>, DiscError> {
    let (start, area) = record.system_use()?;
    let area = area.get(skip..).unwrap_or_default();
    let mut area = Block::new(block.offset(start + skip), area.to_vec(), "Rock Ridge area");
    let mut fields = Vec::new();
    for _ in 0..MAX_AREAS {
        let mut next = None;
        let mut at = 0;
        // What is shorter than a field's header is padding.
        while at + 4 <= area.bytes().len() {
            let (signature, length) = ([area.u8(at)?, area.u8(at + 1)?], usize::from(area.u8(at + 2)?));
            if length < 4 {
                // Zeros fill an area; `ST` ends it.
                break;
            }
            let data = area.slice(at + 4, length - 4)?.to_vec();
            match &signature {
                b"CE" => next = Some((area.u32(at + 4)?, area.u32(at + 12)?, area.u32(at + 20)?)),
                b"ST" => break,
                _ => fields.push(Field { signature, data }),
            }
            at += length;
        }
        let Some((sector, offset, length)) = next else { return Ok(fields) };
        // A continuation area lies within one sector (SUSP 5.1).
        if u64::from(offset) + u64::from(length) > SECTOR {
            return Err(area.damaged(0, "its continuation crosses the end of a sector"));
        }
        let place = u64::from(sector) * SECTOR + u64::from(offset);
        area = Block::read(source, place, length as usize, "Rock Ridge area")?;
    }
    Err(area.damaged(0, "its continuations lead on without end"))
}

//! The attributes of one file record.

use super::NtfsError;
use super::record::{FileRecord, le16, le32, le64};

pub(super) const ATTRIBUTE_LIST: u32 = 0x20;
pub(super) const FILE_NAME: u32 = 0x30;
pub(super) const OBJECT_ID: u32 = 0x40;
pub(super) const VOLUME_INFORMATION: u32 = 0x70;
pub(super) const DATA: u32 = 0x80;
pub(super) const INDEX_ROOT: u32 = 0x90;
pub(super) const INDEX_ALLOCATION: u32 = 0xa0;
pub(super) const BITMAP: u32 = 0xb0;
pub(super) const REPARSE_POINT: u32 = 0xc0;
const END: u32 = 0xffff_ffff;

/// The low byte names a compression method; Windows knows one.
pub(super) const COMPRESSED: u16 = 0x00ff;
pub(super) const ENCRYPTED: u16 = 0x4000;
pub(super) const SPARSE: u16 = 0x8000;

/// `$I30`, the index of a directory's names, in UTF-16.
pub(super) const I30: &[u8] = b"$\0I\x003\x000\0";
/// `$O` of \$Extend\$ObjId, the index of object identifiers.
pub(super) const OBJECT_IDS: &[u8] = b"$\0O\0";

/// One attribute, or one extent of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute<'a> {
    pub kind: u32,
    /// Where it begins in the record, in bytes.
    pub start: usize,
    /// How long it is there, in bytes, header and padding included.
    pub length: usize,
    /// UTF-16, little-endian; empty for the file's own data.
    pub name: &'a [u8],
    pub flags: u16,
    /// Unique within the record.
    pub instance: u16,
    pub body: Body<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Body<'a> {
    /// The value lies in the record.
    Resident(&'a [u8]),
    NonResident(Extents<'a>),
}

/// What a record says of a value that lies in clusters. The sizes count in the first extent only.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extents<'a> {
    pub first_cluster: u64,
    /// One past the last.
    pub end_cluster: u64,
    pub mapping_pairs: &'a [u8],
    pub allocated: u64,
    pub size: u64,
    pub initialized: u64,
}

/// All attributes of a record, in their order, each checked to lie within it.
pub(super) fn attributes(record: &FileRecord) -> Result<Vec<Attribute<'_>>, NtfsError> {
    let used = &record.bytes[..record.used()];
    let mut found = Vec::new();
    let mut at = record.first_attribute();
    loop {
        let rest = used.get(at..).unwrap_or_default();
        if rest.len() < 4 {
            return Err(record.damaged("its attributes have no end"));
        }
        if le32(rest, 0) == END {
            return Ok(found);
        }
        let length = le32(rest, 4) as usize;
        if length < 24 || !length.is_multiple_of(8) || length > rest.len() {
            return Err(record.damaged("an attribute is longer than the record, or too short"));
        }
        let parsed = attribute(at, &rest[..length]);
        found.push(parsed.ok_or_else(|| record.damaged("an attribute's fields are out of range"))?);
        at += length;
    }
}

fn attribute(start: usize, bytes: &[u8]) -> Option<Attribute<'_>> {
    let slice = |from: usize, length: usize| bytes.get(from..from.checked_add(length)?);
    let name = slice(usize::from(le16(bytes, 10)), usize::from(bytes[9]) * 2)?;
    let body = if bytes[8] == 0 {
        Body::Resident(slice(usize::from(le16(bytes, 20)), le32(bytes, 16) as usize)?)
    } else {
        if bytes.len() < 64 {
            return None;
        }
        let (first, last) = (le64(bytes, 16), le64(bytes, 24));
        // The last cluster's number is -1 where there are none.
        let end = last.wrapping_add(1);
        if end < first || end > i64::MAX as u64 {
            return None;
        }
        let mapping_pairs = bytes.get(usize::from(le16(bytes, 32)).max(64)..)?;
        Body::NonResident(Extents {
            first_cluster: first,
            end_cluster: end,
            mapping_pairs,
            allocated: le64(bytes, 40),
            size: le64(bytes, 48),
            initialized: le64(bytes, 56),
        })
    };
    Some(Attribute {
        kind: le32(bytes, 0),
        start,
        length: bytes.len(),
        name,
        flags: le16(bytes, 12),
        instance: le16(bytes, 14),
        body,
    })
}

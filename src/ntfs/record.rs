//! Records protected by an update sequence (fix-ups), and file records.

use super::NtfsError;

/// Every 512 bytes of a record end in a check value, whatever the sector size.
const STRIDE: usize = 512;

pub(super) fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.iter().skip(at).take(2).rev().fold(0, |value, byte| value << 8 | u16::from(*byte))
}

pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from(le16(bytes, at)) | u32::from(le16(bytes, at + 2)) << 16
}

pub(super) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

/// Writes a number into bytes that are known to be there.
pub(super) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// As [`put16`].
pub(super) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Puts back the bytes that the update sequence replaced, or says why the record is torn.
pub(super) fn undo_fixups(record: &mut [u8]) -> Result<(), &'static str> {
    let start = usize::from(le16(record, 4));
    let count = usize::from(le16(record, 6));
    let blocks = record.len() / STRIDE;
    // The sequence must end before the first value that it protects.
    if count != blocks + 1 || start < 8 || start % 2 != 0 || start + count * 2 > STRIDE - 2 {
        return Err("its update sequence is out of range");
    }
    let number = le16(record, start);
    for block in 0..blocks {
        let check = (block + 1) * STRIDE - 2;
        if le16(record, check) != number {
            return Err("it was written in part only (its update sequence does not match)");
        }
        let original = start + 2 + block * 2;
        record.copy_within(original..original + 2, check);
    }
    Ok(())
}

/// Puts the update sequence back, with its next number, into a record it was taken out of.
pub(super) fn redo_fixups(record: &mut [u8]) {
    // Neither 0 nor 0xffff is ever used.
    let number = match le16(record, usize::from(le16(record, 4))) {
        0xfffe.. => 1,
        number => number + 1,
    };
    put_fixups(record, number);
}

/// Puts the update sequence back, with this number, into a record it was taken out of.
pub(super) fn put_fixups(record: &mut [u8], number: u16) {
    let start = usize::from(le16(record, 4));
    put16(record, start, number);
    for block in 0..record.len() / STRIDE {
        let check = (block + 1) * STRIDE - 2;
        record.copy_within(check..check + 2, start + 2 + block * 2);
        put16(record, check, number);
    }
}

/// Which file something refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileReference {
    /// The record's number in $MFT.
    pub record: u64,
    /// How often the record was used; a reference with another number is stale.
    pub sequence: u16,
}

impl FileReference {
    pub(super) fn from_raw(raw: u64) -> Self {
        Self { record: raw & 0xffff_ffff_ffff, sequence: (raw >> 48) as u16 }
    }
}

/// A file record with its fix-ups undone.
#[derive(Debug, Clone)]
pub(super) struct FileRecord {
    pub number: u64,
    pub bytes: Vec<u8>,
}

impl FileRecord {
    /// Takes a record as read; `bytes` must have the record size.
    pub(super) fn parse(number: u64, mut bytes: Vec<u8>) -> Result<Self, NtfsError> {
        let damaged = |why| NtfsError::DamagedFile { record: number, why };
        match &bytes[..4] {
            b"FILE" => {}
            b"BAAD" => return Err(damaged("it is marked as damaged (BAAD)")),
            _ => return Err(damaged("it has no FILE signature")),
        }
        undo_fixups(&mut bytes).map_err(damaged)?;
        let used = le32(&bytes, 24) as usize;
        let first = usize::from(le16(&bytes, 20));
        // There is always an end of the attributes, of 8 bytes.
        if used > bytes.len() || first + 8 > used || first < 42 || first % 8 != 0 {
            return Err(damaged("the place of its attributes is out of range"));
        }
        Ok(Self { number, bytes })
    }

    pub(super) fn damaged(&self, why: &'static str) -> NtfsError {
        NtfsError::DamagedFile { record: self.number, why }
    }

    pub(super) fn sequence(&self) -> u16 {
        le16(&self.bytes, 16)
    }

    /// How many names the file has, its 8.3 name included.
    pub(super) fn names(&self) -> u16 {
        le16(&self.bytes, 18)
    }

    pub(super) fn is_in_use(&self) -> bool {
        le16(&self.bytes, 22) & 1 != 0
    }

    pub(super) fn is_directory(&self) -> bool {
        le16(&self.bytes, 22) & 2 != 0
    }

    /// The record this one extends; `None` where it is a file's first.
    pub(super) fn base(&self) -> Option<FileReference> {
        match le64(&self.bytes, 32) {
            0 => None,
            raw => Some(FileReference::from_raw(raw)),
        }
    }

    pub(super) fn first_attribute(&self) -> usize {
        usize::from(le16(&self.bytes, 20))
    }

    pub(super) fn used(&self) -> usize {
        le32(&self.bytes, 24) as usize
    }
}

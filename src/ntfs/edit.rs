//! Changes of records, streams and bitmaps, as bytes of the volume: nothing is written here.

use std::collections::BTreeMap;
use std::ops::Range;

use super::NtfsError;
use super::attribute::{Attribute, DATA};
use super::attribute_list::Mft;
use super::record::{FileRecord, le16, put16, put32, redo_fixups};
use super::stream::Stream;
use super::volume::MFT_MIRROR_RECORD;
use crate::io::{Change, ReadAt};

impl<R: ReadAt> Mft<R> {
    /// The changes that put `bytes` at `offset` of a value that lies in clusters.
    pub(super) fn write_stream(
        &self,
        stream: &Stream,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Vec<Change>, NtfsError> {
        stream.check_plain()?;
        let mut rest = bytes;
        let mut changes = Vec::new();
        for piece in stream.map(&self.geometry, offset, bytes.len() as u64)? {
            let (here, after) = rest.split_at(piece.length as usize);
            changes.push(Change { offset: piece.volume_offset, bytes: here.to_vec() });
            rest = after;
        }
        Ok(changes)
    }

    /// The changes that make a record in $MFT this one, its fix-ups redone; in $MFTMirr too, where that has it.
    pub(super) fn write_record(&self, record: &FileRecord) -> Result<Vec<Change>, NtfsError> {
        let mut bytes = record.bytes.clone();
        // What was once behind its end goes, here as in what is shipped of it.
        bytes[record.used()..].fill(0);
        redo_fixups(&mut bytes);
        // It was read from there, so this does not overflow.
        let offset = record.number * self.geometry.record_size;
        let mut changes = self.write_stream(&self.stream, offset, &bytes)?;
        let mirror = self.base_record(MFT_MIRROR_RECORD)?;
        let mirror = self.stream(&mirror, DATA, &[])?;
        // Four records, or a cluster of them: with clusters of 8 KiB and more the root folder is among them.
        if let Some(mirror) = mirror.filter(|mirror| offset + bytes.len() as u64 <= mirror.size) {
            let (mut old, mut copy) = (vec![0; bytes.len()], vec![0; bytes.len()]);
            self.stream.read(&self.volume, &self.geometry, &mut old, offset)?;
            mirror.read(&self.volume, &self.geometry, &mut copy, offset)?;
            if old == copy {
                changes.extend(self.write_stream(&mirror, offset, &bytes)?);
            }
        }
        Ok(changes)
    }

    /// The changes that clear bits of a bitmap in clusters; all of them must be set.
    pub(super) fn clear_bits(
        &self,
        bitmap: &Stream,
        bits: impl Iterator<Item = Range<u64>>,
    ) -> Result<Vec<Change>, NtfsError> {
        let mut bytes: BTreeMap<u64, u8> = BTreeMap::new();
        for bit in bits.flatten() {
            let at = bit / 8;
            let byte = match bytes.get(&at) {
                Some(byte) => *byte,
                None => {
                    let mut byte = [0];
                    bitmap.read(&self.volume, &self.geometry, &mut byte, at)?;
                    byte[0]
                }
            };
            let mask = 1 << (bit % 8);
            if byte & mask == 0 {
                let why = "a bitmap calls something free that a file uses";
                return Err(NtfsError::DamagedFile { record: bitmap.record, why });
            }
            bytes.insert(at, byte & !mask);
        }
        let mut changes = Vec::new();
        for (at, byte) in bytes {
            changes.extend(self.write_stream(bitmap, at, &[byte])?);
        }
        Ok(changes)
    }
}

impl FileRecord {
    /// How many bytes are left in it.
    pub(super) fn room(&self) -> usize {
        self.bytes.len() - self.used()
    }

    /// Puts `new` in the place of an attribute (start and length) and moves what follows; `false`: no room.
    pub(super) fn replace(&mut self, (start, length): (usize, usize), new: &[u8]) -> bool {
        let (used, size) = (self.used(), self.bytes.len());
        let end = start + length;
        if new.len() > length + self.room() || end > used {
            return false;
        }
        let following = self.bytes[end..used].to_vec();
        self.bytes.truncate(start);
        self.bytes.extend_from_slice(new);
        self.bytes.extend(following);
        let used = self.bytes.len();
        // What was there before is not to be found behind the end.
        self.bytes.resize(size, 0);
        put32(&mut self.bytes, 24, used as u32);
        true
    }

    /// A resident attribute (start and length) with another value; `false`: no room.
    pub(super) fn replace_value(&mut self, (start, length): (usize, usize), value: &[u8]) -> bool {
        let value_start = usize::from(le16(&self.bytes, start + 20));
        if value_start < 24 || value_start > length {
            return false;
        }
        let mut new = self.bytes[start..start + value_start].to_vec();
        new.extend_from_slice(value);
        new.resize(new.len().next_multiple_of(8), 0);
        let length_now = new.len() as u32;
        put32(&mut new, 4, length_now);
        put32(&mut new, 16, value.len() as u32);
        self.replace((start, length), &new)
    }

    /// Makes it a record that no file uses, as Windows does, but keeps nothing of what was in it.
    pub(super) fn free(&mut self) {
        let sequence = match self.sequence() {
            0 => 0,
            u16::MAX => 1,
            sequence => sequence + 1,
        };
        put16(&mut self.bytes, 16, sequence);
        self.empty();
    }

    /// Makes it a record that no file uses, and keeps nothing but how often it was used.
    pub(super) fn empty(&mut self) {
        let first = self.first_attribute();
        self.bytes[first..].fill(0);
        // A record always has room for an attribute: its parser has seen to it.
        put32(&mut self.bytes, first, 0xffff_ffff);
        put16(&mut self.bytes, 18, 0); // links
        put16(&mut self.bytes, 22, 0); // flags: not in use
        put32(&mut self.bytes, 24, (first + 8) as u32);
        self.bytes[32..42].fill(0); // the record it extends, the next attribute's number
    }
}

/// The resident attribute without a value that takes the place of `attribute`.
pub(super) fn empty_attribute(attribute: &Attribute<'_>) -> Vec<u8> {
    let value_start = (24 + attribute.name.len()).next_multiple_of(8);
    let mut bytes = vec![0; value_start];
    put32(&mut bytes, 0, attribute.kind);
    put32(&mut bytes, 4, value_start as u32);
    bytes[9] = (attribute.name.len() / 2) as u8;
    put16(&mut bytes, 10, 24);
    put16(&mut bytes, 14, attribute.instance);
    put16(&mut bytes, 20, value_start as u16);
    bytes[24..24 + attribute.name.len()].copy_from_slice(attribute.name);
    bytes
}

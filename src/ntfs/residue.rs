//! What a file record still holds of what it held before.

use super::record::{FileRecord, le16, put_fixups};
use super::volume::FIRST_USER_RECORD;

/// Zeroes, in the record with this number as it lies on the disk, what no file has: in a record that is not in use
/// the names and contents of a deleted file, in others what is behind their end.
///
/// A record that is not in use stays one, with its sequence number; where it is damaged or was never one, nothing
/// of it stays. One that is in use stays as it is where it is damaged. Done twice, nothing more changes.
pub fn clear_residue(number: u64, bytes: &mut [u8], in_use: bool) {
    // The file system's own keep their places, whatever its bitmap says of them.
    let in_use = in_use || number < FIRST_USER_RECORD;
    let record = FileRecord::parse(number, bytes.to_vec()).ok().filter(is_plain);
    match record {
        Some(mut record) => {
            if in_use {
                let used = record.used();
                record.bytes[used..].fill(0);
            } else {
                record.empty();
            }
            let sequence = le16(&record.bytes, usize::from(le16(&record.bytes, 4)));
            put_fixups(&mut record.bytes, sequence);
            bytes.copy_from_slice(&record.bytes);
        }
        None if in_use => {}
        None => bytes.fill(0),
    }
}

/// Whether the update sequence ends where the attributes begin or before, and the end is where one can be.
fn is_plain(record: &FileRecord) -> bool {
    let sequence_end = usize::from(le16(&record.bytes, 4)) + usize::from(le16(&record.bytes, 6)) * 2;
    sequence_end <= record.first_attribute() && record.used().is_multiple_of(8)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::record::{put16, put32, undo_fixups};
    use super::*;
    use proptest::prelude::*;

    /// A record full of 0xEE, its attributes at 72 and its end at `used`.
    fn record(size: usize, used: u32, in_use: bool) -> Vec<u8> {
        let mut bytes = vec![0xEE; size];
        bytes[..48].fill(0);
        bytes[..4].copy_from_slice(b"FILE");
        put16(&mut bytes, 4, 48);
        put16(&mut bytes, 6, (size / 512 + 1) as u16);
        put16(&mut bytes, 16, 77);
        put16(&mut bytes, 20, 72);
        put16(&mut bytes, 22, u16::from(in_use));
        put32(&mut bytes, 24, used);
        put32(&mut bytes, 28, size as u32);
        put_fixups(&mut bytes, 0x1234);
        bytes
    }

    #[test]
    fn what_a_deleted_file_left_goes() {
        for size in [1024, 4096] {
            let mut bytes = record(size, 800, false);
            clear_residue(100, &mut bytes, false);
            undo_fixups(&mut bytes).unwrap();
            assert_eq!((le16(&bytes, 16), le16(&bytes, 48), bytes[72..76] == [0xff; 4]), (77, 0x1234, true));
            assert!(bytes[76..].iter().all(|byte| *byte == 0));

            let mut bytes = record(size, 504, true);
            let before = bytes.clone();
            clear_residue(100, &mut bytes, true);
            assert_eq!(bytes[66..504], before[66..504]);
            undo_fixups(&mut bytes).unwrap();
            assert!(bytes[504..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn what_is_no_record_is_nothing_or_stays() {
        let whole = record(1024, 800, true);
        for (at, byte) in [(0, b'B'), (4, 49), (510, 0), (1023, 0), (20, 50), (24, 3), (27, 1)] {
            let mut torn = whole.clone();
            torn[at] = byte;
            let mut cleared = torn.clone();
            clear_residue(100, &mut cleared, true);
            assert_eq!(cleared, torn);
            clear_residue(100, &mut cleared, false);
            assert!(cleared.iter().all(|byte| *byte == 0), "{at}");
            clear_residue(9, &mut torn.clone(), false);
        }
    }

    proptest! {
        #[test]
        fn twice_is_once(
            changes in prop::collection::vec((0usize..1024, any::<u8>()), 0..6), used in 0u32..1100, in_use: bool,
        ) {
            let mut bytes = record(1024, used, in_use);
            changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
            clear_residue(100, &mut bytes, in_use);
            let once = bytes.clone();
            clear_residue(100, &mut bytes, in_use);
            prop_assert_eq!(once, bytes);
        }
    }
}

//! A small NTFS volume with some of its bytes changed: a fuzzer's input is the changes, 16 bytes each.

use std::sync::LazyLock;

use sealroot::io::{Draft, ReadAt};

/// The volume as it was made.
pub static VOLUME: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/volume"));

/// Length of one change in the input, in bytes.
const EDIT: usize = 16;
/// More are not looked at.
const MOST_EDITS: usize = 48;
const RECORD: usize = 1024;
const INDEX_BLOCK: usize = 4096;
const STRIDE: usize = 512;

/// Where file records and index blocks lie.
static RECORDS: LazyLock<Vec<usize>> = LazyLock::new(|| places(b"FILE"));
static INDEX_BLOCKS: LazyLock<Vec<usize>> = LazyLock::new(|| places(b"INDX"));

fn places(signature: &[u8]) -> Vec<usize> {
    (0..VOLUME.len() - INDEX_BLOCK)
        .step_by(STRIDE)
        .filter(|at| VOLUME[*at..].starts_with(signature))
        .collect()
}

/// The volume with the changes that `input` asks for.
pub fn volume(input: &[u8]) -> Draft<&'static [u8]> {
    let mut volume = Draft::new(VOLUME);
    for edit in input.chunks_exact(EDIT).take(MOST_EDITS) {
        apply(&mut volume, edit);
    }
    volume
}

/// Kind, two numbers, a length, and ten bytes.
fn apply(volume: &mut Draft<&'static [u8]>, edit: &[u8]) {
    let half = |at: usize| usize::from(u16::from_le_bytes([edit[at], edit[at + 1]]));
    let (kind, which, at, length, data) = (edit[0], half(1), half(3), usize::from(edit[5]), &edit[6..]);
    let data = &data[..length % data.len() + 1];
    match kind % 8 {
        0 => put(volume, (which << 16 | at) % VOLUME.len(), data),
        1 => put(volume, at % 84, data),
        2 => in_place(volume, RECORDS[which % RECORDS.len()], RECORD, |record| overwrite(record, at, data)),
        3 => in_place(volume, INDEX_BLOCKS[which % INDEX_BLOCKS.len()], INDEX_BLOCK, |block| {
            overwrite(block, at, data)
        }),
        4 => in_attribute(volume, which, |record, start| overwrite(record, start + at % 128, data)),
        // An attribute, or what lies in it, made longer: what follows moves.
        5 => in_attribute(volume, which, |record, start| {
            let grown = (length % 16 + 1) * 8;
            let from = (start + at % 256).min(RECORD - grown);
            record.copy_within(from..RECORD - grown, from + grown);
            overwrite(record, from, data);
            add(record, start + 4, grown);
            add(record, 24, grown);
        }),
        // Bytes of one record in another, as they are or in another place.
        6 => {
            let from = half(6);
            let source = load(volume, RECORDS[from % RECORDS.len()], RECORD);
            let (start, count) = (half(8) % RECORD, (length + 1) * 4);
            let bytes = source[start..(start + count).min(RECORD)].to_vec();
            in_place(volume, RECORDS[which % RECORDS.len()], RECORD, |record| overwrite(record, at, &bytes));
        }
        // A whole index block in another's place.
        _ => {
            let bytes = load(volume, INDEX_BLOCKS[which % INDEX_BLOCKS.len()], INDEX_BLOCK);
            let to = INDEX_BLOCKS[at % INDEX_BLOCKS.len()];
            in_place(volume, to, INDEX_BLOCK, |block| block.copy_from_slice(&bytes));
        }
    }
}

fn put(volume: &mut Draft<&'static [u8]>, at: usize, data: &[u8]) {
    let data = &data[..data.len().min(VOLUME.len() - at)];
    volume.write(at as u64, data).expect("it lies on the volume");
}

fn overwrite(bytes: &mut [u8], at: usize, data: &[u8]) {
    let at = at % bytes.len();
    let length = data.len().min(bytes.len() - at);
    bytes[at..at + length].copy_from_slice(&data[..length]);
}

fn add(record: &mut [u8], at: usize, number: usize) {
    if let Some(bytes) = record.get_mut(at..at + 2) {
        let sum = u16::from_le_bytes([bytes[0], bytes[1]]).wrapping_add(number as u16);
        bytes.copy_from_slice(&sum.to_le_bytes());
    }
}

/// Changes one attribute of a record: the number of the record in the lower bits, of the attribute above.
fn in_attribute(volume: &mut Draft<&'static [u8]>, which: usize, change: impl FnOnce(&mut [u8], usize)) {
    let place = RECORDS[(which & 0xff) % RECORDS.len()];
    in_place(volume, place, RECORD, |record| {
        let half = |at: usize| usize::from(u16::from_le_bytes([record[at], record[at + 1]]));
        let mut start = half(20) % RECORD & !7;
        for _ in 0..which >> 8 & 15 {
            let next = start + if start + 8 <= RECORD { half(start + 4) } else { 0 };
            if next + 8 > RECORD || record[next..].starts_with(&[0xff; 4]) {
                break;
            }
            start = next;
        }
        change(record, start);
    });
}

/// Changes a record with its fix-ups kept right.
fn in_place(volume: &mut Draft<&'static [u8]>, at: usize, length: usize, change: impl FnOnce(&mut [u8])) {
    let mut bytes = load(volume, at, length);
    change(&mut bytes);
    let sequence = sequence_place(&bytes);
    let number = [bytes[sequence], bytes[sequence + 1]];
    for block in 0..length / STRIDE {
        let check = (block + 1) * STRIDE - 2;
        bytes.copy_within(check..check + 2, sequence + 2 + block * 2);
        bytes[check..check + 2].copy_from_slice(&number);
    }
    put(volume, at, &bytes);
}

/// A record without its fix-ups.
fn load(volume: &Draft<&'static [u8]>, at: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    volume.read_exact_at(&mut bytes, at as u64).expect("it lies on the volume");
    let sequence = sequence_place(&bytes);
    for block in 0..length / STRIDE {
        let original = sequence + 2 + block * 2;
        bytes.copy_within(original..original + 2, (block + 1) * STRIDE - 2);
    }
    bytes
}

/// Where the update sequence is said to be, within bounds.
fn sequence_place(bytes: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([bytes[4], bytes[5]])) % 480
}

//! Reading and editing whatever opened as a hive, and getting past the sums that guard hives and logs.

use sealroot::hive::{Editor, Hive, Key, ValueKind};
use sealroot::io::ReadAt;

use crate::marvin32;

const SECTOR: usize = 512;
const PAGE: u32 = 4096;
const ENTRY_HEADER: usize = 40;
const REFERENCE: usize = 8;

pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Makes the sequence numbers of a base block say that all is written, or that something is missing.
pub fn set_dirty(file: &mut [u8], dirty: bool) {
    if file.len() >= SECTOR {
        let number = word(file, 8);
        put(file, 4, number.wrapping_add(u32::from(dirty)));
    }
}

/// Makes the checksum of a base block right.
pub fn repair_sum(file: &mut [u8]) {
    let Some(block) = file.get_mut(..SECTOR) else { return };
    let sum = match block[..508].chunks_exact(4).fold(0, |sum, bytes| sum ^ word(bytes, 0)) {
        0 => 1,
        u32::MAX => u32::MAX - 1,
        sum => sum,
    };
    put(block, 508, sum);
}

/// Makes every entry of a log whole: its size, its hashes and, where `next` is a number, its place in order.
///
/// Its pages are made to lie within the bins where `fit` says so.
pub fn repair_entries(log: &mut [u8], mut next: Option<u32>, fit: bool) -> Option<u32> {
    let mut at = SECTOR;
    while log.len() >= at + ENTRY_HEADER && log[at..].starts_with(b"HvLE") {
        let left = log.len() - at;
        let size = (word(log, at + 4) as usize).next_multiple_of(SECTOR).clamp(SECTOR, left.max(SECTOR));
        if size > left {
            break;
        }
        let entry = &mut log[at..at + size];
        put(entry, 4, size as u32);
        if let Some(number) = next {
            put(entry, 12, number);
            next = number.checked_add(1);
        }
        if fit {
            fit_pages(entry);
        }
        let data = marvin32::hash(&entry[ENTRY_HEADER..]);
        entry[24..32].copy_from_slice(&data.to_le_bytes());
        let header = marvin32::hash(&entry[..32]);
        entry[32..40].copy_from_slice(&header.to_le_bytes());
        at += size;
    }
    next
}

fn fit_pages(entry: &mut [u8]) {
    let bins = word(entry, 16).checked_next_multiple_of(PAGE).unwrap_or(PAGE).clamp(PAGE, 1 << 31);
    put(entry, 16, bins);
    let count = (word(entry, 20) as usize).min((entry.len() - ENTRY_HEADER) / REFERENCE);
    put(entry, 20, count as u32);
    let mut left = entry.len() - ENTRY_HEADER - count * REFERENCE;
    for at in (0..count).map(|n| ENTRY_HEADER + n * REFERENCE) {
        let offset = word(entry, at) % bins;
        let length = word(entry, at + 4).min(left as u32).min(bins - offset);
        put(entry, at, offset);
        put(entry, at + 4, length);
        left -= length as usize;
    }
}

/// Reads everything, to a depth and a number that end.
pub fn walk<R: ReadAt>(hive: &Hive<R>) {
    if let Ok(root) = hive.root() {
        walk_key(&root, 40, &mut 2000);
    }
}

fn walk_key<R: ReadAt>(key: &Key<'_, R>, depth: u32, calls: &mut u32) {
    for value in key.values().into_iter().flatten().flatten().take(100) {
        let _ = (value.name(), value.data(), value.as_string(), value.as_u32(), value.as_strings());
    }
    for subkey in key.subkeys().into_iter().flatten().flatten() {
        if depth > 0 && *calls > 0 {
            *calls -= 1;
            walk_key(&subkey, depth - 1, calls);
        }
    }
}

/// Sets and removes values of the hive in `file`; what an edit says it did must be so, also when it is read anew.
pub fn edit<R: ReadAt>(mut editor: Editor<R>, file: &[u8]) {
    let pointer: Vec<u8> = "D:\\autounattend.xml\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut there = Vec::new();
    for (key, name) in [("", "a"), ("Setup", "CmdLine"), ("Setup\\Status", "Bytes"), ("Select", "")] {
        for (kind, data) in
            [(ValueKind::SZ, &pointer[..]), (ValueKind::BINARY, &[1; 20_000]), (ValueKind::DWORD, &[1; 4])]
        {
            if editor.set(key, name, kind, data).is_ok() {
                assert_eq!(read(editor.hive(), key, name).as_deref(), Some(data));
            }
        }
        if editor.remove(key, name).is_ok() {
            assert_eq!(read(editor.hive(), key, name), None);
        }
        if editor.set(key, name, ValueKind::SZ, &pointer).is_ok() {
            there.push((key, name));
        }
    }
    let Ok(changes) = editor.finish() else { return };
    let mut file = file.to_vec();
    for change in changes {
        file[change.offset as usize..][..change.bytes.len()].copy_from_slice(&change.bytes);
    }
    let hive = Hive::open(file).expect("what was edited opens");
    assert!(!hive.is_dirty());
    if let Some((key, name)) = there.last() {
        assert_eq!(read(&hive, key, name), Some(pointer));
    }
}

fn read<R: ReadAt>(hive: &Hive<R>, key: &str, name: &str) -> Option<Vec<u8>> {
    hive.key(key).ok()??.value(name).ok()??.data().ok()
}

//! Any bytes as a disk with a partition table: what is read lies on the disk, in parts that do not overlap.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::disk::partitions::read_table;
use sealroot::io::Window;

fuzz_target!(|data: &[u8]| {
    // The last byte says which checksums are made right first: 1 for 512-byte sectors, 2 for 4096, 4 for the backups.
    let Some((mode, disk)) = data.split_last() else { return };
    let mut disk = disk.to_vec();
    for (bit, sector) in [(1, 512), (2, 4096)] {
        if mode & bit != 0 {
            repair(&mut disk, sector);
            if mode & 4 != 0 {
                let last = (disk.len() / sector).saturating_sub(1) * sector;
                repair(&mut disk, last);
            }
        }
    }
    let Ok(table) = read_table(&disk) else { return };
    let mut partitions = table.partitions;
    for partition in &partitions {
        assert!(Window::new(&disk, partition.start, partition.size).is_some());
    }
    partitions.sort_by_key(|partition| partition.start);
    for pair in partitions.windows(2) {
        assert!(pair[0].start + pair[0].size <= pair[1].start);
    }
});

/// Makes both checksums of the GPT header at `at` right, if it can be one.
fn repair(disk: &mut [u8], at: usize) {
    let word = |disk: &[u8], at: usize| {
        u32::from_le_bytes([disk[at], disk[at + 1], disk[at + 2], disk[at + 3]]) as usize
    };
    if disk.len() < at + 512 {
        return;
    }
    let sector = if at.is_multiple_of(4096) && at > 0 { 4096 } else { 512 };
    let entries = word(disk, at + 72).saturating_mul(sector);
    let length = word(disk, at + 80).saturating_mul(word(disk, at + 84));
    if let Some(entries) = entries.checked_add(length).and_then(|end| disk.get(entries..end)) {
        let sum = crc32(entries);
        disk[at + 88..at + 92].copy_from_slice(&sum.to_le_bytes());
    }
    disk[at + 16..at + 20].fill(0);
    let size = word(disk, at + 12);
    if let Some(header) = at.checked_add(size).and_then(|end| disk.get(at..end)) {
        let sum = crc32(header);
        disk[at + 16..at + 20].copy_from_slice(&sum.to_le_bytes());
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

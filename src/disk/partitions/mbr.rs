//! Master boot record and its chain of extended boot records. Sectors of 512 bytes; numbers little-endian.

use super::{Partition, PartitionError, PartitionKind, PartitionTable, Scheme, le32, read};
use crate::io::ReadAt;

const SECTOR: u64 = 512;
const PROTECTIVE: u8 = 0xee;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// A chain this long is a loop.
const MAX_LOGICAL: u32 = 128;

struct Entry {
    active: bool,
    kind: u8,
    /// In sectors, from where depends on the record.
    first: u64,
    sectors: u64,
}

/// The four entries of a boot record.
fn entries(record: &[u8]) -> impl Iterator<Item = Entry> {
    record[446..510].chunks_exact(16).map(|entry| Entry {
        active: entry[0] & 0x80 != 0,
        kind: entry[4],
        first: u64::from(le32(entry, 8)),
        sectors: u64::from(le32(entry, 12)),
    })
}

/// Whether an entry says that the disk has a GPT.
pub(super) fn is_protective(record: &[u8]) -> bool {
    entries(record).any(|entry| entry.kind == PROTECTIVE)
}

/// The partition an entry names, its place counted from sector `base`.
fn partition(entry: &Entry, number: u32, base: u64) -> Partition {
    Partition {
        number,
        // Sector numbers of 32 bits, added up twice at most: no overflow.
        start: (base + entry.first) * SECTOR,
        size: entry.sectors * SECTOR,
        kind: PartitionKind::Mbr(entry.kind),
        name: String::new(),
        active: entry.active,
    }
}

pub(super) fn read_table(disk: &dyn ReadAt, first: &[u8]) -> Result<PartitionTable, PartitionError> {
    let mut partitions = Vec::new();
    let mut next_logical = 5;
    for (index, entry) in entries(first).enumerate() {
        if entry.kind == 0 || entry.sectors == 0 {
            continue;
        }
        if !EXTENDED.contains(&entry.kind) {
            partitions.push(partition(&entry, index as u32 + 1, 0));
            continue;
        }
        // Links count from the extended partition's start, the logical partition from its own record.
        let base = entry.first;
        let mut link = Some(0);
        while let Some(at) = link {
            let record_sector = base + at;
            let damaged = |why: &str| PartitionError::Damaged {
                what: "extended boot record",
                offset: record_sector * SECTOR,
                why: why.to_owned(),
            };
            if next_logical - 5 >= MAX_LOGICAL {
                return Err(damaged("the chain of logical partitions does not end"));
            }
            if (record_sector + 1) * SECTOR > disk.size() {
                return Err(damaged("it lies past the disk's end"));
            }
            let record = read(disk, record_sector * SECTOR, SECTOR as usize)?;
            if record[510..] != [0x55, 0xaa] {
                return Err(damaged("it has no signature"));
            }
            link = None;
            for entry in entries(&record).take(2).filter(|entry| entry.kind != 0 && entry.sectors != 0) {
                if EXTENDED.contains(&entry.kind) {
                    link = Some(entry.first);
                } else {
                    partitions.push(partition(&entry, next_logical, record_sector));
                }
            }
            next_logical += 1;
        }
    }
    partitions.sort_by_key(|partition| partition.number);
    let sector_size = SECTOR as u32;
    Ok(PartitionTable {
        scheme: Scheme::Mbr,
        sector_size,
        partitions,
        primary_damage: None,
        backup_damage: None,
    })
}

//! GUID partition table. Format: UEFI specification, chapter 5.3; all numbers are little-endian.

use super::{Partition, PartitionError, PartitionKind, PartitionTable, Scheme, le32, le64, read};
use crate::io::ReadAt;

const SIGNATURE: &[u8] = b"EFI PART";
/// The header's fields; the rest of its sector is reserved.
const HEADER_SIZE: usize = 92;
/// The usual table has 16 KiB; this bounds what a damaged header can ask for.
const MAX_TABLE: u64 = 1 << 20;

const ESP: [u8; 16] = guid(0xc12a_7328, 0xf81f, 0x11d2, 0xba4b_00a0_c93e_c93b);
const MSR: [u8; 16] = guid(0xe3c9_e316, 0x0b5c, 0x4db8, 0x817d_f92d_f002_15ae);
const BASIC_DATA: [u8; 16] = guid(0xebd0_a0a2, 0xb9e5, 0x4433, 0x87c0_68b6_b726_99c7);
const RECOVERY: [u8; 16] = guid(0xde94_bba4, 0x06d1, 0x4d40, 0xa16a_bfd5_0179_d6ac);

/// A GUID's bytes on a disk: three little-endian numbers, then eight bytes in order.
const fn guid(a: u32, b: u16, c: u16, d: u64) -> [u8; 16] {
    let (a, b, c, d) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes(), d.to_be_bytes());
    [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]
}

fn kind(guid: [u8; 16]) -> PartitionKind {
    match guid {
        ESP => PartitionKind::Esp,
        MSR => PartitionKind::Msr,
        BASIC_DATA => PartitionKind::BasicData,
        RECOVERY => PartitionKind::Recovery,
        other => PartitionKind::Gpt(other),
    }
}

/// The table, from the backup where the primary is bad; `None` where there is no trace of either.
///
/// `expected` says that a protective MBR announces one.
pub(super) fn read_table(
    disk: &dyn ReadAt,
    expected: bool,
) -> Result<Option<PartitionTable>, PartitionError> {
    // The sector size is not written down: the primary's place tells it.
    let sector_sizes = [512, 4096];
    let mut damage = None;
    for sector_size in sector_sizes {
        if !has_signature(disk, u64::from(sector_size))? {
            continue;
        }
        match read_at(disk, sector_size, 1) {
            Ok(partitions) => {
                let backup_damage = check_backup(disk, sector_size, &partitions)?;
                return Ok(Some(PartitionTable { backup_damage, ..table(sector_size, partitions, None) }));
            }
            Err(error @ PartitionError::Read { .. }) => return Err(error),
            Err(error) => damage = damage.or(Some(error.to_string())),
        }
    }
    if damage.is_none() && !expected {
        return Ok(None);
    }
    let primary = damage.unwrap_or_else(|| "no GPT header follows the protective MBR".to_owned());
    let mut backup = "no GPT header in the disk's last sector".to_owned();
    for sector_size in sector_sizes {
        let Some(last) = (disk.size() / u64::from(sector_size)).checked_sub(1) else { continue };
        if !has_signature(disk, last * u64::from(sector_size))? {
            continue;
        }
        match read_at(disk, sector_size, last) {
            Ok(partitions) => return Ok(Some(table(sector_size, partitions, Some(primary)))),
            Err(error @ PartitionError::Read { .. }) => return Err(error),
            Err(error) => backup = error.to_string(),
        }
    }
    Err(PartitionError::BothDamaged { primary, backup })
}

fn table(sector_size: u32, partitions: Vec<Partition>, primary_damage: Option<String>) -> PartitionTable {
    PartitionTable { scheme: Scheme::Gpt, sector_size, partitions, primary_damage, backup_damage: None }
}

/// What is wrong with the copy at the disk's end, beside a sound primary.
fn check_backup(
    disk: &dyn ReadAt,
    sector_size: u32,
    primary: &[Partition],
) -> Result<Option<String>, PartitionError> {
    let last = disk.size() / u64::from(sector_size) - 1;
    if !has_signature(disk, last * u64::from(sector_size))? {
        return Ok(Some("no GPT header in the disk's last sector".to_owned()));
    }
    match read_at(disk, sector_size, last) {
        Ok(partitions) if partitions == primary => Ok(None),
        Ok(_) => Ok(Some("it names other partitions".to_owned())),
        Err(error @ PartitionError::Read { .. }) => Err(error),
        Err(error) => Ok(Some(error.to_string())),
    }
}

fn has_signature(disk: &dyn ReadAt, offset: u64) -> Result<bool, PartitionError> {
    if offset.saturating_add(HEADER_SIZE as u64) > disk.size() {
        return Ok(false);
    }
    Ok(read(disk, offset, SIGNATURE.len())? == SIGNATURE)
}

/// The partitions of the header in sector `sector`, both checked.
fn read_at(disk: &dyn ReadAt, sector_size: u32, sector: u64) -> Result<Vec<Partition>, PartitionError> {
    let sector_size = u64::from(sector_size);
    let offset = sector * sector_size;
    let damaged = |why: &str| PartitionError::Damaged { what: "GPT header", offset, why: why.to_owned() };
    let available = sector_size.min(disk.size() - offset) as usize;
    let mut header = read(disk, offset, available)?;

    let size = le32(&header, 12) as usize;
    if !(HEADER_SIZE..=header.len()).contains(&size) {
        return Err(damaged("its size is out of range"));
    }
    let checksum = le32(&header, 16);
    header[16..20].fill(0);
    if crc32(&header[..size]) != checksum {
        return Err(damaged("its checksum is wrong"));
    }
    if le64(&header, 24) != sector {
        return Err(damaged("it belongs into another sector (another sector size?)"));
    }
    let entry_size = u64::from(le32(&header, 84));
    if !entry_size.is_power_of_two() || !(128..=4096).contains(&entry_size) {
        return Err(damaged("the size of its entries is out of range"));
    }
    let length = entry_size * u64::from(le32(&header, 80));
    let start = le64(&header, 72).checked_mul(sector_size);
    let end = start.and_then(|start| start.checked_add(length));
    let (Some(start), true) = (start, end.is_some_and(|end| end <= disk.size() && length <= MAX_TABLE))
    else {
        return Err(damaged("its entries are too many, or lie past the disk's end"));
    };
    let entries = read(disk, start, length as usize)?;
    if crc32(&entries) != le32(&header, 88) {
        return Err(damaged("the checksum of its entries is wrong"));
    }
    let mut partitions = Vec::new();
    for (index, entry) in entries.chunks_exact(entry_size as usize).enumerate() {
        let entry_offset = start + index as u64 * entry_size;
        partitions.extend(partition(entry, index, sector_size, entry_offset)?);
    }
    Ok(partitions)
}

fn partition(
    entry: &[u8],
    index: usize,
    sector_size: u64,
    offset: u64,
) -> Result<Option<Partition>, PartitionError> {
    let mut guid = [0; 16];
    guid.copy_from_slice(&entry[..16]);
    if guid == [0; 16] {
        return Ok(None);
    }
    let (first, last) = (le64(entry, 32), le64(entry, 40));
    let start = first.checked_mul(sector_size);
    let end = last.checked_add(1).and_then(|end| end.checked_mul(sector_size));
    let (Some(start), Some(end), true) = (start, end, first <= last) else {
        let why = format!("sectors {first} to {last} are no range on a disk");
        return Err(PartitionError::Damaged { what: "GPT entry", offset, why });
    };
    let units = entry[56..128].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let name: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    Ok(Some(Partition {
        number: index as u32 + 1,
        start,
        size: end - start,
        kind: kind(guid),
        name: String::from_utf16_lossy(&name),
        active: false,
    }))
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

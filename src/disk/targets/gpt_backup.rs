//! The backup GPT of a disk on a larger target: it belongs into the target's last sector.

use super::{Target, TargetError};
use crate::io::Task;

/// Where the backup is, and where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backup {
    /// Bytes to a sector.
    pub sector: u32,
    /// The disk's size in bytes.
    pub disk: u64,
    /// The target's size in bytes.
    pub target: u64,
}

/// Bytes of a header that its checksum covers, at least (UEFI, 5.3.2).
const HEADER: usize = 92;
/// Entries of more bytes are no usual table.
const MAX_ENTRIES: u64 = 1 << 20;

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.iter().skip(at).take(4).rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Puts the backup at the target's end, lets the table use the room, and takes the old backup away.
///
/// The new backup is whole before the primary names it.
pub fn grow(target: &mut dyn Target, backup: Backup, task: &dyn Task) -> Result<(), TargetError> {
    let wrong = |why: &str| TargetError::Backup(why.into());
    let sector = u64::from(backup.sector);
    let last = (backup.target / sector).checked_sub(1).ok_or_else(|| wrong("the target is empty"))?;
    let mut primary = vec![0; sector as usize];
    target.read(&mut primary, sector, task)?;
    let size = le32(&primary, 12) as usize;
    if !primary.starts_with(b"EFI PART") || !(HEADER..=primary.len()).contains(&size) {
        return Err(wrong("the header is not one"));
    }
    let length = u64::from(le32(&primary, 80)) * u64::from(le32(&primary, 84));
    let at = le64(&primary, 72).checked_mul(sector);
    let (Some(at), 1..=MAX_ENTRIES) = (at, length) else { return Err(wrong("its entries can't be so")) };
    let old = le64(&primary, 32);
    if at.checked_add(length).is_none_or(|end| end > backup.disk) || old >= backup.disk / sector || old < 2 {
        return Err(wrong("it points outside of the disk"));
    }
    let checksum = le32(&primary, 16);
    put(&mut primary, 16, &[0; 4]);
    let mut entries = vec![0; length.next_multiple_of(sector) as usize];
    target.read(&mut entries, at, task)?;
    if crc32(&primary[..size]) != checksum || crc32(&entries[..length as usize]) != le32(&primary, 88) {
        return Err(wrong("a checksum is wrong"));
    }
    let table = entries.len() as u64 / sector;
    let Some(first) = last.checked_sub(table).filter(|first| *first > old) else {
        return Err(wrong("there is no room for it"));
    };
    put(&mut primary, 32, &last.to_le_bytes());
    put(&mut primary, 48, &(first - 1).to_le_bytes());
    let mut header = primary.clone();
    put(&mut header, 24, &last.to_le_bytes());
    put(&mut header, 32, &1u64.to_le_bytes());
    put(&mut header, 72, &first.to_le_bytes());
    for header in [&mut primary, &mut header] {
        let checksum = crc32(&header[..size]);
        put(header, 16, &checksum.to_le_bytes());
    }
    target.write(&entries, first * sector, task)?;
    target.write(&header, last * sector, task)?;
    target.sync(task)?;
    target.write(&primary, sector, task)?;
    protect(target, sector, last, task)?;
    target.write(&vec![0; sector as usize], old * sector, task)?;
    target.sync(task)
}

/// Lets the protective MBR's one entry cover the target.
fn protect(target: &mut dyn Target, sector: u64, last: u64, task: &dyn Task) -> Result<(), TargetError> {
    let mut mbr = vec![0; sector as usize];
    target.read(&mut mbr, 0, task)?;
    if mbr[510..512] == [0x55, 0xaa] && mbr[450] == 0xee && le32(&mbr, 454) == 1 {
        put(&mut mbr, 458, &u32::try_from(last).unwrap_or(u32::MAX).to_le_bytes());
        target.write(&mbr, 0, task)?;
    }
    Ok(())
}

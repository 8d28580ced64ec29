//! Partition tables, read only: GPT on sectors of 512 and 4096 bytes, and MBR.

mod gpt;
mod mbr;

use std::io;

use thiserror::Error;

use crate::io::{ReadAt, Window};

/// Which kind of table a disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// GUID partition table (UEFI).
    Gpt,
    /// Master boot record (BIOS), with its extended partitions.
    Mbr,
}

/// What a partition is for, as its table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionKind {
    /// EFI system partition.
    Esp,
    /// Microsoft reserved partition: no file system in it.
    Msr,
    /// Windows data: the system drive and every other drive with a letter.
    BasicData,
    /// Windows recovery environment.
    Recovery,
    /// Another GPT type, as its 16 bytes lie on the disk.
    Gpt([u8; 16]),
    /// An MBR type byte; 0x07 is NTFS.
    Mbr(u8),
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1; logical partitions of an MBR begin at 5.
    pub number: u32,
    /// Its first byte.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// What it is for.
    pub kind: PartitionKind,
    /// Its name; empty in an MBR.
    pub name: String,
    /// Whether a BIOS boots from it (MBR only).
    pub active: bool,
}

impl Partition {
    /// The partition's bytes; `None` on a disk too short for it, which is not the one its table was read from.
    pub fn window<R: ReadAt>(&self, disk: R) -> Option<Window<R>> {
        Window::new(disk, self.start, self.size)
    }

    fn end(&self) -> u64 {
        self.start + self.size
    }
}

/// A disk's partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionTable {
    /// GPT or MBR.
    pub scheme: Scheme,
    /// The sector size in bytes that the table counts in: 512 or 4096.
    pub sector_size: u32,
    /// In the table's order; none overlap, none is empty, none ends past the disk.
    pub partitions: Vec<Partition>,
    /// Why the backup at the disk's end was read instead, where it was.
    pub primary_damage: Option<String>,
    /// What is wrong with the backup, where the primary is sound.
    pub backup_damage: Option<String>,
}

/// Why no partition table can be read.
#[derive(Debug, Error)]
pub enum PartitionError {
    /// The disk can't be read.
    #[error("the partition table can't be read at offset {offset}")]
    Read {
        /// Where, in bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// Neither GPT nor MBR.
    #[error("the disk has no partition table (no GPT header, no MBR signature at offset 510)")]
    None,
    /// A file system without partitions around it.
    #[error("this is a bare {0} volume, not a disk with partitions; give the whole disk")]
    BareVolume(&'static str),
    /// Both GPT headers are bad.
    #[error("both partition tables (GPT) are damaged: {primary}; {backup}; repair a copy with gdisk")]
    BothDamaged {
        /// What is wrong with the one at the start.
        primary: String,
        /// What is wrong with the one at the end.
        backup: String,
    },
    /// A structure that can't be so.
    #[error("{what} at offset {offset}: {why}")]
    Damaged {
        /// Which structure.
        what: &'static str,
        /// Where, in bytes.
        offset: u64,
        /// What is wrong with it.
        why: String,
    },
}

fn read(disk: &dyn ReadAt, offset: u64, length: usize) -> Result<Vec<u8>, PartitionError> {
    let mut bytes = vec![0; length];
    disk.read_exact_at(&mut bytes, offset).map_err(|source| PartitionError::Read { offset, source })?;
    Ok(bytes)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.iter().skip(at).take(4).rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

/// Reads the partition table of `disk`.
pub fn read_table(disk: &dyn ReadAt) -> Result<PartitionTable, PartitionError> {
    if disk.size() < 512 {
        return Err(PartitionError::None);
    }
    let first = read(disk, 0, 512)?;
    let signed = first[510..] == [0x55, 0xaa];
    if signed {
        if let Some(name) = bare_volume(&first) {
            return Err(PartitionError::BareVolume(name));
        }
        // A protective entry says that GPT is what counts; without it, a GPT is a leftover.
        if !mbr::is_protective(&first) {
            let table = mbr::read_table(disk, &first)?;
            check_layout(disk, &table)?;
            return Ok(table);
        }
    }
    let Some(table) = gpt::read_table(disk, signed)? else { return Err(PartitionError::None) };
    check_layout(disk, &table)?;
    Ok(table)
}

/// A boot sector in place of a partition table.
fn bare_volume(first: &[u8]) -> Option<&'static str> {
    let has = |at: usize, magic: &[u8]| first[at..].starts_with(magic);
    if has(3, b"NTFS    ") {
        Some("NTFS")
    } else if has(3, b"-FVE-FS-") {
        Some("BitLocker")
    } else if has(3, b"EXFAT   ") {
        Some("exFAT")
    } else if has(54, b"FAT1") || has(82, b"FAT32") {
        Some("FAT")
    } else {
        None
    }
}

/// No partition is empty, ends past the disk, or shares bytes with another.
fn check_layout(disk: &dyn ReadAt, table: &PartitionTable) -> Result<(), PartitionError> {
    let damaged = |partition: &Partition, why| {
        Err(PartitionError::Damaged { what: "partition", offset: partition.start, why })
    };
    let mut sorted: Vec<_> = table.partitions.iter().collect();
    sorted.sort_by_key(|partition| partition.start);
    for (index, partition) in sorted.iter().enumerate() {
        let number = partition.number;
        if partition.end() > disk.size() {
            let why = format!(
                "partition {number} ends at {}, past the disk's end at {}; was the disk cut short?",
                partition.end(),
                disk.size()
            );
            return damaged(partition, why);
        }
        if let Some(next) = sorted.get(index + 1)
            && next.start < partition.end()
        {
            return damaged(next, format!("partitions {number} and {} overlap", next.number));
        }
    }
    Ok(())
}

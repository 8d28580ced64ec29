//! Finding the one NTFS volume that holds Windows.

use super::{Refusal, RootError};
use crate::disk::partitions::{Partition, PartitionTable, read_table};
use crate::io::{ReadAt, Window};
use crate::ntfs::{self, File, Probe, Volume};

/// The SYSTEM hive's path: the volume that has it holds Windows.
pub const SYSTEM: &str = "Windows\\System32\\config\\SYSTEM";
/// The SOFTWARE hive's path.
pub const SOFTWARE: &str = "Windows\\System32\\config\\SOFTWARE";

/// A partition of a disk that is read through a reference.
pub type PartitionBytes<'d> = Window<&'d dyn ReadAt>;

/// The volume Windows is installed on, and the table it was found through.
pub struct WindowsVolume<'d> {
    /// The whole disk's partition table.
    pub table: PartitionTable,
    /// The partition Windows is on.
    pub partition: Partition,
    /// Its file system.
    pub volume: Volume<PartitionBytes<'d>>,
}

impl<'d> WindowsVolume<'d> {
    /// Looks at every partition; exactly one must hold Windows.
    ///
    /// A BitLocker volume is refused by name when no other one holds Windows: it is where Windows would be.
    pub fn find(disk: &'d dyn ReadAt) -> Result<Self, RootError> {
        let table = read_table(disk)?;
        let mut found: Option<(Partition, Volume<_>)> = None;
        let mut locked = Vec::new();
        let mut looked_at = Vec::new();
        for partition in &table.partitions {
            let number = partition.number;
            let ntfs_error = |source| RootError::Ntfs { partition: number, source };
            // The table's reader has checked that every partition lies on the disk.
            let Some(bytes) = partition.window(disk) else { continue };
            match ntfs::probe(&bytes).map_err(ntfs_error)? {
                Probe::Ntfs => looked_at.push(format!("partition {number} is NTFS without {SYSTEM}")),
                Probe::BitLocker => {
                    locked.push(Refusal::BitLocker { partition: number });
                    continue;
                }
                Probe::Other => {
                    looked_at.push(format!("partition {number} is not NTFS"));
                    continue;
                }
            }
            let volume = Volume::open(bytes).map_err(ntfs_error)?;
            if volume.file(SYSTEM).map_err(ntfs_error)?.is_none() {
                continue;
            }
            if let Some((first, _)) = &found {
                return Err(RootError::TwoWindows { first: first.number, second: number });
            }
            found = Some((partition.clone(), volume));
        }
        match found {
            Some((partition, volume)) => Ok(Self { table, partition, volume }),
            None if !locked.is_empty() => Err(RootError::Refused { refusals: locked }),
            None if looked_at.is_empty() => {
                Err(RootError::NoWindows { looked_at: "it has no partitions".into() })
            }
            None => Err(RootError::NoWindows { looked_at: looked_at.join(", ") }),
        }
    }

    /// A file of the volume; `None` where it is missing.
    pub fn file(&self, path: &str) -> Result<Option<File<'_, PartitionBytes<'d>>>, RootError> {
        self.volume.file(path).map_err(|source| self.ntfs_error(source))
    }

    /// A file that every Windows has.
    pub fn needed_file(&self, path: &'static str) -> Result<File<'_, PartitionBytes<'d>>, RootError> {
        self.file(path)?.ok_or(RootError::Missing { path })
    }

    /// An error of the file system, with the partition it is on.
    pub fn ntfs_error(&self, source: ntfs::NtfsError) -> RootError {
        RootError::Ntfs { partition: self.partition.number, source }
    }
}

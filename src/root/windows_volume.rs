//! Finding the one NTFS volume that holds Windows.

use super::RootError;
use super::audit::{BITLOCKER, Finding};
use super::hives::HiveFile;
use crate::disk::partitions::{Partition, PartitionTable, read_table};
use crate::io::{ReadAt, Window};
use crate::ntfs::{self, Entry, File, NtfsError, Probe, Volume};

/// The volume that has this file holds Windows.
const SYSTEM: &str = HiveFile::SYSTEM.path;

/// A partition of a disk that is read through a reference.
pub type PartitionBytes<'d> = Window<&'d dyn ReadAt>;

/// The volume Windows is installed on, and the table it was found through.
pub struct WindowsVolume<'d> {
    /// The disk it is on.
    pub disk: &'d dyn ReadAt,
    /// The whole disk's partition table.
    pub table: PartitionTable,
    /// The partition Windows is on.
    pub partition: Partition,
    /// Its file system.
    pub volume: Volume<PartitionBytes<'d>>,
    /// The numbers of partitions that BitLocker encrypts.
    pub locked: Vec<u32>,
}

/// What can be had of a small text file.
pub enum SmallFile {
    /// There is none.
    Missing,
    /// It is there, but can't be read here, and why.
    Unread(String),
    /// What is in it.
    Bytes(Vec<u8>),
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
                    locked.push(number);
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
            Some((partition, volume)) => Ok(Self { disk, table, partition, volume, locked }),
            None if !locked.is_empty() => {
                let locked = locked.iter().map(|number| {
                    Finding::refused(&BITLOCKER, format!("partition {number} is encrypted with BitLocker"))
                });
                Err(RootError::Refused { findings: locked.collect() })
            }
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

    /// Whether there is a file at `path`.
    pub fn has_file(&self, path: &str) -> Result<bool, RootError> {
        match self.volume.file(path) {
            Ok(file) => Ok(file.is_some()),
            Err(NtfsError::IsDirectory { .. } | NtfsError::ReparsePoint { .. }) => Ok(false),
            Err(error) => Err(self.ntfs_error(error)),
        }
    }

    /// The names in the folder at `path`; none where there is no such folder, or its contents are elsewhere.
    pub fn entries(&self, path: &str) -> Result<Vec<Entry>, RootError> {
        match self.volume.list(path) {
            Ok(entries) => Ok(entries.unwrap_or_default()),
            Err(NtfsError::ReparsePoint { .. }) => Ok(Vec::new()),
            Err(error) => Err(self.ntfs_error(error)),
        }
    }

    /// The bytes of the file at `path`, if it has at most `most` of them and lies on the disk as it is.
    pub fn small_file(&self, path: &str, most: u64) -> Result<SmallFile, RootError> {
        if !self.has_file(path)? {
            return Ok(SmallFile::Missing);
        }
        let Some(file) = self.file(path)? else { return Ok(SmallFile::Missing) };
        if file.size() > most {
            return Ok(SmallFile::Unread(format!("it has {} bytes", file.size())));
        }
        if let Err(error) = file.check_plain() {
            return Ok(SmallFile::Unread(error.to_string()));
        }
        let mut bytes = vec![0; file.size() as usize];
        file.read_exact_at(&mut bytes, 0)
            .map_err(|source| RootError::Read { path: path.to_owned(), source })?;
        Ok(SmallFile::Bytes(bytes))
    }

    /// An error of the file system, with the partition it is on.
    pub fn ntfs_error(&self, source: ntfs::NtfsError) -> RootError {
        RootError::Ntfs { partition: self.partition.number, source }
    }
}

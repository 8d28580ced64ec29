//! Finding the one NTFS volume that holds Windows.

use super::RootError;
use super::audit::{BITLOCKER, Finding};
use super::hives::HiveFile;
use super::pointer::{Place, place};
use super::walk::walk;
use crate::disk::partitions::{Partition, PartitionTable, read_table};
use crate::io::{ReadAt, Window};
use crate::ntfs::{self, Entry, File, FileReference, NtfsError, Probe, Volume};

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

/// Where a path leads once junctions are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// A path on this volume without one.
    Path(String),
    /// A part of it leads away from the volume, or to what can't be told; where to.
    Away(String),
}

/// Windows allows 63 junctions in a path.
const MAX_LINKS: usize = 63;

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
        let mut damaged: Option<(u32, NtfsError)> = None;
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
            let volume =
                match Volume::open(bytes).and_then(|volume| Ok((volume.file(SYSTEM)?.is_some(), volume))) {
                    Ok((true, volume)) => volume,
                    Ok((false, _)) => continue,
                    // Only the one with Windows has to be sound.
                    Err(error) => {
                        damaged = damaged.or(Some((number, error)));
                        continue;
                    }
                };
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
            None if damaged.is_some() => {
                let (partition, source) = damaged.unwrap_or((0, NtfsError::NotNtfs));
                Err(RootError::Ntfs { partition, source })
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

    /// Follows the junctions and links in the folders of `path`, as Windows does; its last part may be missing.
    pub fn resolve(&self, path: &str) -> Result<Resolved, RootError> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let (link, rest) = match self.volume.file(&path) {
                Ok(_) => return Ok(Resolved::Path(path)),
                Err(NtfsError::IsDirectory { .. }) => match self.volume.list(&path) {
                    Ok(_) => return Ok(Resolved::Path(path)),
                    Err(NtfsError::ReparsePoint { .. }) => (path.clone(), String::new()),
                    Err(error) => return Err(self.ntfs_error(error)),
                },
                Err(NtfsError::ReparsePoint { path: link, .. }) => {
                    let rest = path.get(link.len()..).unwrap_or_default().to_owned();
                    (link, rest)
                }
                Err(error) => return Err(self.ntfs_error(error)),
            };
            let target = self.volume.link_target(&link).map_err(|source| self.ntfs_error(source))?;
            let Some(target) = target else { return Ok(Resolved::Away(format!("\\{link}"))) };
            match place(&format!("{target}{rest}")) {
                Place::WindowsVolume(next) => path = next,
                Place::OtherDrive { .. } | Place::Unknown => return Ok(Resolved::Away(target)),
            }
        }
        Ok(Resolved::Away("itself".to_owned()))
    }

    /// The file at `path`, junctions followed; `None` where there is none, or it lies on another drive.
    pub fn find_file(&self, path: &str) -> Result<Option<File<'_, PartitionBytes<'d>>>, RootError> {
        match self.volume.file(path) {
            Ok(file) => Ok(file),
            Err(NtfsError::IsDirectory { .. }) => Ok(None),
            Err(NtfsError::ReparsePoint { .. }) => match self.resolve(path)? {
                // It has no more of them.
                Resolved::Path(path) => self.find_file(&path),
                Resolved::Away(_) => Ok(None),
            },
            Err(error) => Err(self.ntfs_error(error)),
        }
    }

    /// Whether there is a file at `path`; one on another drive is not.
    pub fn has_file(&self, path: &str) -> Result<bool, RootError> {
        Ok(self.find_file(path)?.is_some())
    }

    /// The size of the file at `path` in bytes, if there is one.
    pub fn size(&self, path: &str) -> Result<Option<u64>, RootError> {
        Ok(self.find_file(path)?.map(|file| file.size()))
    }

    /// The names in the folder at `path`; none where there is no such folder.
    pub fn entries(&self, path: &str) -> Result<Vec<Entry>, RootError> {
        let Resolved::Path(path) = self.resolve(path)? else { return Ok(Vec::new()) };
        Ok(self.volume.list(&path).map_err(|source| self.ntfs_error(source))?.unwrap_or_default())
    }

    /// Calls `visit` for the files of a folder, as [`walk`] does, junctions on its way followed; where it leads away
    /// from the volume, says where to, and nothing is visited.
    pub fn walk(
        &self,
        folder: &str,
        below: bool,
        visit: &mut dyn FnMut(String, &Entry),
    ) -> Result<Option<String>, RootError> {
        match self.resolve(folder)? {
            Resolved::Path(path) => {
                walk(&self.volume, &path, below, visit).map_err(|source| self.ntfs_error(source))?;
                Ok(None)
            }
            Resolved::Away(target) => {
                Ok(Some(format!("\\{folder} leads to {target}, which can't be looked at")))
            }
        }
    }

    /// The bytes of the file at `path`, if it has at most `most` of them and lies on the disk as it is.
    pub fn small_file(&self, path: &str, most: u64) -> Result<SmallFile, RootError> {
        let Resolved::Path(path) = self.resolve(path)? else {
            return Ok(SmallFile::Unread("it lies on another drive".to_owned()));
        };
        match self.volume.file(&path) {
            Ok(Some(file)) => self.small(&file, &path, most),
            Ok(None) | Err(NtfsError::IsDirectory { .. }) => Ok(SmallFile::Missing),
            Err(error) => Err(self.ntfs_error(error)),
        }
    }

    /// The bytes of a file that a folder's entry names, as [`WindowsVolume::small_file`] does.
    pub fn small_file_of(&self, file: FileReference, path: &str, most: u64) -> Result<SmallFile, RootError> {
        let file = self.volume.file_by_reference(file).map_err(|source| self.ntfs_error(source))?;
        self.small(&file, path, most)
    }

    fn small(
        &self,
        file: &File<'_, PartitionBytes<'d>>,
        path: &str,
        most: u64,
    ) -> Result<SmallFile, RootError> {
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

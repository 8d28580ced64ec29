//! A disk that may be changed where it lies.

use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::lock::{self, Denied};
use super::qcow2::{Extent, NotInPlace, Writable};
use super::{Content, Disk, DiskError, open_file, spool};
use crate::io::{Patch, ReadAt, SourceFile, WriteAt};

/// Why a disk is not changed in place.
#[derive(Debug, Error)]
pub enum InPlaceError {
    /// The file can't be opened for writing.
    #[error("the disk can't be opened for writing")]
    Open(#[source] io::Error),
    /// It is no disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A block device: an undo journal in /dev would not outlive a power cut.
    #[error("block devices are only read, as no undo journal can be kept beside them; use --output instead")]
    BlockDevice,
    /// The disk is not there to be changed until it is unpacked.
    #[error(
        "the disk is packed (gzip or zstd), and bytes inside of that can't be overwritten; use --output and \
         --spool instead, or unpack it first"
    )]
    Packed,
    /// Nobody may write to the file.
    #[error("the disk's file is marked read-only; use --output instead, or allow it: chmod u+w DISK")]
    ReadOnly,
    /// The same bytes are another file too.
    #[error(
        "the disk's file has {0} names (hard links), which would all change; use --output instead, or make a \
         copy of its own"
    )]
    HardLinks(u64),
    /// QEMU has it.
    #[error("the disk is in use by QEMU (a running VM, qemu-nbd or qemu-img); shut that down first")]
    Qemu,
    /// Another program has it.
    #[error("the disk is in use: another program holds a lock on it; let that end first")]
    InUse,
    /// The kernel has it.
    #[error("the disk is in use as {}; unmount that and let go of it first: losetup -d", device.display())]
    LoopDevice {
        /// The loop device.
        device: PathBuf,
    },
    /// No locks to be had.
    #[error(
        "the disk can't be locked, and without that a running VM would not be noticed; use --output instead"
    )]
    Lock(#[source] io::Error),
    /// The image does not let these bytes be overwritten.
    #[error(transparent)]
    Qcow2(#[from] NotInPlace),
}

impl From<Denied> for InPlaceError {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Qemu => Self::Qemu,
            Denied::Other => Self::InUse,
            Denied::Failed(error) => Self::Lock(error),
        }
    }
}

/// A raw or qcow2 file that nobody else works on until this is dropped.
///
/// Whoever writes does it through [`journal`](crate::io::journal), and asks [`InPlaceDisk::check`] first.
#[derive(Debug)]
pub struct InPlaceDisk {
    disk: Disk,
    /// Of a qcow2: what must be known to write to it. Nothing that is done here changes it.
    writable: Option<Writable>,
}

impl InPlaceDisk {
    /// Opens and locks the disk at `path`; nothing is waited for.
    pub fn open(path: &Path) -> Result<Self, InPlaceError> {
        let metadata = path.metadata().map_err(InPlaceError::Open)?;
        if metadata.file_type().is_block_device() {
            return Err(InPlaceError::BlockDevice);
        }
        // Root may write to any file; who marked it did not want that.
        if metadata.is_file() && metadata.mode() & 0o222 == 0 {
            return Err(InPlaceError::ReadOnly);
        }
        let file = SourceFile::open_writable(path).map_err(InPlaceError::Open)?;
        // First of all: what is read before the lock may be changed by others.
        lock::exclusive(file.as_file())?;
        if let Some(device) = lock::loop_device(path) {
            return Err(InPlaceError::LoopDevice { device });
        }
        if spool::is_packed(&file)? {
            return Err(InPlaceError::Packed);
        }
        if file.metadata().nlink() > 1 {
            return Err(InPlaceError::HardLinks(file.metadata().nlink()));
        }
        let disk = open_file(file)?;
        let writable = match &disk.content {
            Content::Qcow2(image) => Some(Writable::new(image)?),
            Content::Raw(_) => None,
        };
        Ok(Self { disk, writable })
    }

    /// Whether every edit can be written where it is.
    pub fn check(&self, patch: &Patch) -> Result<(), InPlaceError> {
        for edit in patch.edits() {
            self.extents(edit.offset, edit.new.len() as u64)?;
        }
        Ok(())
    }

    /// Where bytes of the disk are in its file.
    fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, NotInPlace> {
        match (&self.disk.content, &self.writable) {
            (Content::Qcow2(image), Some(writable)) => writable.extents(image, offset, length),
            _ => Ok(vec![Extent { offset, length }]),
        }
    }
}

impl ReadAt for InPlaceDisk {
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_exact_at(buf, offset)
    }
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        self.disk.next_data(from)
    }
}

impl WriteAt for InPlaceDisk {
    fn write_all_at(&self, mut bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.size()) {
            let why = format!("{} bytes at offset {offset} lie past the disk's end", bytes.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        for extent in self.extents(offset, bytes.len() as u64).map_err(io::Error::other)? {
            // The extents make up the range asked for, so none is longer than what is left.
            let (here, rest) = bytes.split_at(extent.length as usize);
            self.disk.file().as_file().write_all_at(here, extent.offset)?;
            bytes = rest;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.file().as_file().sync_all()
    }
}

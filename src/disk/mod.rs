//! Disk images and what partitions them: raw, qcow2, GPT and MBR. Read only, but for [`InPlaceDisk`] and [`targets`].

mod foreign;
mod in_place;
mod lock;
pub mod partitions;
pub mod qcow2;
pub mod spool;
pub mod targets;

use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::path::Path;

use thiserror::Error;

use crate::io::journal::{self, JournalError};
use crate::io::{ReadAt, SourceFile};

pub use foreign::{START as FOREIGN_START, refuse_start as refuse_foreign};
pub use in_place::{InPlaceDisk, InPlaceError};
pub use qcow2::{Qcow2, Qcow2Error};

/// How a disk is kept in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The disk's bytes as they are; also a block device.
    Raw,
    /// QEMU's copy-on-write format, version 2 or 3.
    Qcow2,
}

/// Why a file is not taken as a disk.
#[derive(Debug, Error)]
pub enum DiskError {
    /// The file can't be opened.
    #[error("the disk can't be opened")]
    Open(#[source] io::Error),
    /// The file can't be read.
    #[error("the disk can't be read at offset {offset}")]
    Read {
        /// Where in the file, in bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// Nothing in it.
    #[error("the disk is empty; was its download or copy cut short?")]
    Empty,
    /// Disks consist of sectors of 512 bytes.
    #[error(
        "a disk of {size} bytes is no whole number of 512-byte sectors; was its download or copy cut short?"
    )]
    PartialSector {
        /// The disk's size in bytes.
        size: u64,
    },
    /// The file is of a kind that is not read here.
    #[error("this is {what}, not a raw or qcow2 disk; {cure}")]
    Foreign {
        /// What it is.
        what: &'static str,
        /// What to do.
        cure: &'static str,
    },
    /// A qcow2 image that can't be read, or not without more than itself.
    #[error(transparent)]
    Qcow2(#[from] Qcow2Error),
    /// A change in place was stopped half-way.
    #[error(
        "a change of this disk in place was stopped half-way; put the old bytes back: \
         sealroot prepare-sealed-root --undo --disk DISK"
    )]
    HalfWritten,
    /// There is an undo journal that does not say how the disk is.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A disk in a file or block device, read only.
#[derive(Debug)]
pub struct Disk {
    content: Content,
}

#[derive(Debug)]
enum Content {
    Raw(SourceFile),
    Qcow2(Box<Qcow2<SourceFile>>),
}

/// Opens the disk at `path`: qcow2 by its magic, anything unknown as raw. A half-written one is refused.
pub fn open(path: &Path) -> Result<Disk, DiskError> {
    let file = SourceFile::open(path).map_err(DiskError::Open)?;
    if journal::state_beside(path)? == journal::State::Uncommitted {
        return Err(DiskError::HalfWritten);
    }
    open_file(file)
}

fn open_file(file: SourceFile) -> Result<Disk, DiskError> {
    if file.size() == 0 {
        return Err(DiskError::Empty);
    }
    let content = if qcow2::has_magic(&file)? {
        Content::Qcow2(Box::new(Qcow2::open(file)?))
    } else {
        foreign::refuse(&file)?;
        Content::Raw(file)
    };
    let disk = Disk { content };
    match disk.size() {
        0 => Err(DiskError::Empty),
        size if size % 512 != 0 => Err(DiskError::PartialSector { size }),
        _ => Ok(disk),
    }
}

impl Disk {
    /// How the disk is kept in its file.
    pub fn format(&self) -> Format {
        match self.content {
            Content::Raw(_) => Format::Raw,
            Content::Qcow2(_) => Format::Qcow2,
        }
    }

    /// What the file system said of the file when it was opened.
    pub fn metadata(&self) -> &Metadata {
        self.file().metadata()
    }

    /// The file the disk is kept in.
    pub fn file(&self) -> &SourceFile {
        match &self.content {
            Content::Raw(file) => file,
            Content::Qcow2(image) => image.source(),
        }
    }

    fn reader(&self) -> &dyn ReadAt {
        match &self.content {
            Content::Raw(file) => file,
            Content::Qcow2(image) => image.as_ref(),
        }
    }
}

impl ReadAt for Disk {
    fn size(&self) -> u64 {
        self.reader().size()
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.reader().read_exact_at(buf, offset)
    }
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        self.reader().next_data(from)
    }
    fn check_unchanged(&self) -> io::Result<()> {
        self.file().check_unchanged()
    }
}

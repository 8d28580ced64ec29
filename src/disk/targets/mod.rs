//! Where a disk is written to: a new file, a block device, or an NBD export; [`Flasher`] writes and reads back.
//!
//! What is not ours to overwrite is refused: a device that is in use, one that holds something, one that is too
//! small. The first MiB is written last, so a target that was not finished holds no partition table.

mod contents;
mod device;
mod file;
mod flasher;
mod gpt_backup;
mod holders;
pub mod nbd;
mod qemu_nbd;

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use thiserror::Error;

use crate::io::{Interrupted, NewPathError, Task};

pub use contents::refuse_contents;
pub use device::Device;
pub use file::FileTarget;
pub use flasher::{BLOCK, Flasher, Holes, Written};
pub use gpt_backup::{Backup, grow};
pub use nbd::{Nbd, NbdAddress, NbdError};
pub use qemu_nbd::{QemuNbd, QemuNbdError};

/// Takes a disk's bytes in ascending order.
pub trait DiskSink {
    /// The disk has `size` bytes; called once, before anything else.
    fn begin(&mut self, size: u64) -> Result<(), TargetError>;

    /// The bytes from `offset` on, a multiple of [`BLOCK`]; what is passed over reads as zeros.
    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TargetError>;
}

/// How a range is made to read as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clear {
    /// Given back to the storage below, where that promises zeros; else written.
    Punch,
    /// Written, and kept allocated.
    Zero,
}

/// Something a disk is written to. `task` is only asked whether to go on.
pub trait Target {
    /// Its bytes; nothing where it will be as large as what is written to it.
    fn capacity(&self) -> Option<u64>;

    /// The size of the sectors that a guest or firmware will see, in bytes, where that is known.
    fn sector_size(&self) -> Option<u32>;

    /// Everything in it reads as zeros from the start.
    fn is_new(&self) -> bool;

    /// It is going to hold this many bytes.
    fn set_size(&mut self, size: u64) -> Result<(), TargetError>;

    /// Writes; a failure may be told by a later call.
    fn write(&mut self, bytes: &[u8], offset: u64, task: &dyn Task) -> Result<(), TargetError>;

    /// Makes a range read as zeros.
    fn clear(&mut self, range: Range<u64>, how: Clear, task: &dyn Task) -> Result<(), TargetError>;

    /// Returns when all that was written would outlive a power cut.
    fn sync(&mut self, task: &dyn Task) -> Result<(), TargetError>;

    /// What was written from here on is to be read from the storage, and not from memory, as far as can be told.
    fn forget(&mut self) {}

    /// Reads back.
    fn read(&mut self, buf: &mut [u8], offset: u64, task: &dyn Task) -> Result<(), TargetError>;

    /// The first range at or after `from` that may hold something else than zeros.
    fn next_data(&mut self, from: u64) -> Option<Range<u64>>;
}

/// Why a target is not written to, or not to its end.
#[derive(Debug, Error)]
pub enum TargetError {
    /// It can't be opened.
    #[error("it can't be opened for writing")]
    Open(#[source] io::Error),
    /// Neither a file nor a block device.
    #[error("this is {what}, not a file or block device")]
    Kind {
        /// What it is.
        what: &'static str,
    },
    /// Somebody has it.
    #[error("it is in use: {}", by.join(", "))]
    InUse {
        /// By whom.
        by: Vec<String>,
    },
    /// No disk is as large.
    #[error("a disk of {size} bytes is larger than any that is written (64 TiB)")]
    TooLarge {
        /// The disk's bytes.
        size: u64,
    },
    /// It has not room for the disk.
    #[error("it is too small: it has {has} bytes, and the disk {needs}")]
    TooSmall {
        /// Its bytes.
        has: u64,
        /// The disk's.
        needs: u64,
    },
    /// It would be overwritten.
    #[error("it holds {what}")]
    Holds {
        /// What was found.
        what: String,
    },
    /// A file is there.
    #[error("it exists already")]
    Exists,
    /// A partition, where a whole disk goes.
    #[error("it is a partition, and what is written is a whole disk with partitions of its own")]
    Partition,
    /// Nobody would find the partitions.
    #[error(
        "its sectors have {device} bytes, and the disk's partition table (GPT) counts in sectors of {disk}"
    )]
    SectorSize {
        /// The target's.
        device: u32,
        /// The disk's.
        disk: u32,
    },
    /// Reading or writing failed.
    #[error("{doing} at offset {offset} failed")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Where, in bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// What was read is not what was written.
    #[error("bytes {} to {} were written, and others are read back", range.start, range.end)]
    Differs {
        /// The bytes that were compared.
        range: Range<u64>,
    },
    /// Holes were left as they were, and were not zeros.
    #[error(
        "the disk has zeros at offset {offset}, and the target, said to be blank, has something else there"
    )]
    NotBlank {
        /// Where, in bytes.
        offset: u64,
    },
    /// The backup GPT can't be moved.
    #[error("the backup partition table can't be moved to the target's end: {0}")]
    Backup(String),
    /// The file can't appear.
    #[error(transparent)]
    NewPath(#[from] NewPathError),
    /// The NBD server, or the way to it.
    #[error(transparent)]
    Nbd(#[from] NbdError),
    /// qemu-nbd.
    #[error(transparent)]
    QemuNbd(#[from] QemuNbdError),
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// What a path names, as far as it decides how to write there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathKind {
    /// A file, there or not.
    File(PathBuf),
    /// A block device.
    Device(PathBuf),
}

/// Looks at a path; links are followed.
pub fn path_kind(path: PathBuf) -> Result<PathKind, TargetError> {
    use std::os::unix::fs::FileTypeExt;
    let kind = match path.metadata() {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A slip in a device's name must not fill the memory that /dev is in.
            let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
            return match folder {
                Some(folder) if folder.starts_with("/dev") && !folder.starts_with("/dev/shm") => {
                    Err(TargetError::Open(error))
                }
                _ => Ok(PathKind::File(path)),
            };
        }
        Err(error) => return Err(TargetError::Open(error)),
    };
    if kind.is_block_device() {
        Ok(PathKind::Device(path))
    } else if kind.is_file() {
        Ok(PathKind::File(path))
    } else {
        Err(TargetError::Kind { what: if kind.is_dir() { "a folder" } else { "a special file" } })
    }
}

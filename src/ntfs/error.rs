//! Why a volume or a file on it is not read.

use std::io;

use thiserror::Error;

/// Why a volume or a file on it is not read. Offsets are in bytes from the start of the volume.
#[derive(Debug, Error)]
pub enum NtfsError {
    /// The disk can't be read.
    #[error("the volume can't be read at offset {offset}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// No NTFS boot sector.
    #[error("this is no NTFS volume")]
    NotNtfs,
    /// Encrypted by Windows.
    #[error(
        "the volume is encrypted with BitLocker; decrypt it in Windows (manage-bde -off C:), wait until it is \
         done, and shut down"
    )]
    BitLocker,
    /// A structure that can't be so.
    #[error("NTFS {what} at offset {offset}: {why}; run chkdsk /f on it in Windows")]
    Damaged {
        /// Which structure.
        what: &'static str,
        /// Where.
        offset: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A structure of a file that can't be so.
    #[error("NTFS file record {record}: {why}; run chkdsk /f on the volume in Windows")]
    DamagedFile {
        /// The number of the file's record in $MFT.
        record: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The path leads to a folder.
    #[error("{path} is a folder, not a file")]
    IsDirectory {
        /// The path asked for.
        path: String,
    },
    /// A part of the path is a junction or the like.
    #[error("{path} is a reparse point (tag {tag:#010x}), which is not followed")]
    ReparsePoint {
        /// The part of the path up to it.
        path: String,
        /// What kind of reparse point, as Windows numbers them.
        tag: u32,
    },
    /// The file's bytes are not on the disk as they are.
    #[error("the file (record {record}) is {how}; {cure}")]
    Transformed {
        /// The number of the file's record in $MFT.
        record: u64,
        /// What was done to it.
        how: &'static str,
        /// What to do.
        cure: &'static str,
    },
    /// A file that is not removed offline.
    #[error("the file (record {record}) can't be removed offline: {why}; delete it in Windows")]
    Unlink {
        /// The number of the file's record in $MFT.
        record: u64,
        /// Why.
        why: &'static str,
    },
    /// Bytes of a file that have no place of their own on the volume.
    #[error("bytes {offset} to {end} of the file (record {record}) can't be edited in place: {why}")]
    NoPlace {
        /// The number of the file's record in $MFT.
        record: u64,
        /// The first byte asked for, in the file.
        offset: u64,
        /// The first byte past them.
        end: u64,
        /// Why.
        why: &'static str,
    },
}

impl NtfsError {
    pub(super) fn read(offset: u64) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read { offset, source }
    }
}

impl From<NtfsError> for io::Error {
    fn from(error: NtfsError) -> Self {
        match error {
            NtfsError::Read { source, .. } => source,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}

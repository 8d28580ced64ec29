//! Why a root is not sealed: each state by name, with the cure.

use std::io;

use thiserror::Error;

use crate::disk::partitions::PartitionError;
use crate::hive::HiveError;
use crate::io::PatchError;
use crate::ntfs::{NtfsError, Reason};

/// A state in which a root must not be sealed or published.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Sysprep did not run, or did not end well.
    #[error("the root is not generalised: its image state is {}", image_state.as_deref().unwrap_or("missing"))]
    NotGeneralised {
        /// ImageState as found.
        image_state: Option<String>,
    },
    /// The Windows volume was not left in peace.
    #[error("{reason}")]
    Volume {
        /// How it was left.
        reason: Reason,
    },
    /// Its free space can't be told from its files.
    #[error(
        "the volume's cluster map contradicts its files: $Bitmap calls clusters free that file record {record} uses"
    )]
    ClusterMap {
        /// The number of the first such file's record in $MFT.
        record: u64,
    },
    /// A volume that can't be read without its key.
    #[error("partition {partition} is encrypted with BitLocker")]
    BitLocker {
        /// The partition's number.
        partition: u32,
    },
    /// A hive whose last changes may be only in its logs.
    #[error("the {hive} hive is dirty: {sign}")]
    DirtyHive {
        /// `SYSTEM` or `SOFTWARE`
        hive: &'static str,
        /// What shows it.
        sign: String,
    },
    /// A password that would be published.
    #[error("\\{path} holds a password in plain or encoded form, which would be published")]
    Password {
        /// The cached answer file.
        path: String,
    },
}

impl Refusal {
    /// What to do about it.
    pub fn cure(&self) -> &'static str {
        match self {
            Self::NotGeneralised { .. } => {
                "run sysprep /generalize /oobe /shutdown /mode:vm in it, and don't start it again before sealing"
            }
            Self::Volume { reason } => reason.cure(),
            Self::ClusterMap { .. } => {
                "start Windows from it, run chkdsk /f, generalise it again, and let it shut down by itself"
            }
            Self::BitLocker { .. } => {
                "start Windows, run manage-bde -off C:, wait until it is fully decrypted, and generalise again"
            }
            Self::DirtyHive { .. } => {
                "start that Windows, generalise it again, and let it shut down by itself"
            }
            Self::Password { .. } => {
                "seal it, which scrubs the file, or delete it in Windows before it is generalised"
            }
        }
    }
}

/// Why a root could not be read or sealed.
#[derive(Debug, Error)]
pub enum RootError {
    /// The disk's partition table can't be read.
    #[error(transparent)]
    Partitions(#[from] PartitionError),
    /// No partition holds the SYSTEM hive.
    #[error("no Windows was found on this disk: {looked_at}")]
    NoWindows {
        /// What each partition was.
        looked_at: String,
    },
    /// More than one partition holds a Windows.
    #[error("more than one Windows was found, on partitions {first} and {second}; only one can be sealed")]
    TwoWindows {
        /// A partition's number.
        first: u32,
        /// Another's.
        second: u32,
    },
    /// The file system can't be read.
    #[error("partition {partition}: {source}")]
    Ntfs {
        /// The partition's number.
        partition: u32,
        /// Where and why.
        source: NtfsError,
    },
    /// A hive can't be read or edited.
    #[error("\\{path}: {source}")]
    Hive {
        /// The hive's path.
        path: &'static str,
        /// Where and why.
        source: HiveError,
    },
    /// A file every Windows has is missing.
    #[error("\\{path} is missing on the Windows volume")]
    Missing {
        /// Its path.
        path: &'static str,
    },
    /// A file of the volume could not be read.
    #[error("\\{path} can't be read")]
    Read {
        /// Its path.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A cached answer file that can't be read or scrubbed as it is.
    #[error("the cached answer file \\{path}: {source}")]
    AnswerFile {
        /// Its path.
        path: String,
        /// Why.
        source: NtfsError,
    },
    /// The edits don't make a patch.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// The root is in a state in which nothing is done with it.
    #[error("{}", .refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused {
        /// Every reason.
        refusals: Vec<Refusal>,
    },
}

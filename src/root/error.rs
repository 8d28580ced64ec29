//! Why a root could not be read, sealed or published.

use std::io;

use thiserror::Error;

use super::audit::Finding;
use crate::disk::partitions::PartitionError;
use crate::hive::HiveError;
use crate::io::PatchError;
use crate::ntfs::NtfsError;

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
    /// More than any Windows keeps.
    #[error(
        "there are {found} cached answer files, more than any Windows keeps; delete those that are not wanted"
    )]
    TooManyAnswerFiles {
        /// How many.
        found: usize,
    },
    /// An answer file's name belongs to a registry hive as well.
    #[error("\\{path} is a hard link of a registry hive; delete that name in Windows")]
    LinkedHive {
        /// The name.
        path: String,
    },
    /// The edits don't make a patch.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// The root is in a state in which nothing is done with it.
    #[error("{}", told(findings))]
    Refused {
        /// Every reason.
        findings: Vec<Finding>,
    },
    /// The root fails checks, and is not published so.
    #[error("the root is not fit to publish: {}", named(findings))]
    Unfit {
        /// Every check that it fails.
        findings: Vec<Finding>,
    },
}

fn told(findings: &[Finding]) -> String {
    findings.iter().map(|finding| finding.saw.as_str()).collect::<Vec<_>>().join("; ")
}

fn named(findings: &[Finding]) -> String {
    let named = findings.iter().map(|finding| format!("{}: {}", finding.check.id, finding.saw));
    named.collect::<Vec<_>>().join("; ")
}

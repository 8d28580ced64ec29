//! What can be wrong with a hive, with the place in its file.

use std::borrow::Cow;
use std::io;

use thiserror::Error;

/// Why a hive can't be read or edited. Offsets are bytes from the start of the hive file.
#[derive(Debug, Error)]
pub enum HiveError {
    /// The source gave no bytes.
    #[error("the hive could not be read at offset {offset}")]
    Read {
        /// Where, in bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// A log file of the hive gave no bytes.
    #[error("the hive's log file {number} could not be read")]
    ReadLog {
        /// 1 for `.LOG1`, and so on.
        number: u32,
        /// Why.
        source: io::Error,
    },
    /// The bytes are not what the format asks for.
    #[error("the hive's {structure} at offset {offset} is malformed: {why}")]
    Malformed {
        /// The structure's usual name: base block, hbin, nk, vk, and so on.
        structure: &'static str,
        /// Where it begins.
        offset: u64,
        /// What is wrong.
        why: Cow<'static, str>,
    },
    /// The last writer did not finish: part of the hive's contents may be in its log files.
    #[error("the hive is dirty: {reason}; start that Windows once and shut it down fully")]
    Dirty {
        /// Which sign says so.
        reason: String,
    },
    /// There is no such key to edit.
    #[error("the hive has no key {path:?}")]
    NoKey {
        /// The path asked for.
        path: String,
    },
    /// No free cell is large enough, and the file has too little room after its last bin.
    #[error(
        "the hive has no room: a cell of {needed} bytes is needed, the largest free one has {largest_free}, \
         and the file would have to be {missing} bytes longer to take another bin"
    )]
    NoRoom {
        /// The size of the cell wanted.
        needed: u64,
        /// The size of the largest free cell.
        largest_free: u32,
        /// By how much the file would have to grow.
        missing: u64,
    },
    /// The hive has become longer than its file.
    #[error(
        "with its logs replayed, the hive needs a file {missing} bytes longer; start that Windows once and shut \
         it down fully"
    )]
    Outgrown {
        /// By how much the file would have to grow.
        missing: u64,
    },
    /// A value that the format can't hold.
    #[error("a value can't be stored: {why}")]
    Unstorable {
        /// Which limit it passes.
        why: Cow<'static, str>,
    },
}

impl HiveError {
    /// A malformed structure at `cell`, an offset relative to the first bin.
    pub(super) fn cell(structure: &'static str, cell: u32, why: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed { structure, offset: super::base_block::SIZE + u64::from(cell), why: why.into() }
    }

    /// A malformed base block.
    pub(super) fn base_block(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed { structure: "base block", offset: 0, why: why.into() }
    }
}

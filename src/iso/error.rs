//! Why a disc is not read.

use std::io;

use thiserror::Error;

/// Why a disc is not read. Offsets are in bytes from the start of the image.
#[derive(Debug, Error)]
pub enum DiscError {
    /// The image can't be read.
    #[error("the image can't be read at offset {offset}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// Neither file system is there.
    #[error("this is no disc image: neither ISO 9660 nor UDF descriptors are where they belong")]
    NotADisc,
    /// Something lies where the image has no bytes any more.
    #[error(
        "{what} has {length} bytes at offset {offset}, but the image ends at {size}: it is truncated, or damaged"
    )]
    Truncated {
        /// Which structure, or `file content`.
        what: &'static str,
        /// Where.
        offset: u64,
        /// In bytes.
        length: u64,
        /// The image's size, in bytes.
        size: u64,
    },
    /// A structure that can't be so.
    #[error("{what} at offset {offset}: {why}")]
    Damaged {
        /// Which structure.
        what: &'static str,
        /// Where.
        offset: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A structure that can be so, but on no installation medium.
    #[error("{what} at offset {offset}: {why}, which is not supported")]
    Unsupported {
        /// Which structure.
        what: &'static str,
        /// Where.
        offset: u64,
        /// What it uses.
        why: &'static str,
    },
}

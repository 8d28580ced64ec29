//! Optical disc images: UDF and ISO 9660, read by offset and never mounted.
//!
//! [`Disc::open`] takes the tree that holds most: UDF where it is there (on Microsoft's media, ISO 9660 shows nothing
//! but a README.TXT), then Rock Ridge, Joliet, ISO 9660:1999's enhanced descriptor, plain ISO 9660. A damaged UDF
//! volume is an error, never a reason to fall back to a poorer tree.
//!
//! - `volume`: what an image says of itself, even where its tree is damaged;
//! - `udf`, `iso9660`: the two file systems;
//! - `extents`: a file's pieces, read as one;
//! - `block`: bytes that know their offset.
//!
//! An image is not trusted: every offset is checked, every loop and allocation bounded.

mod block;
mod disc;
mod error;
mod extents;
mod iso9660;
mod udf;
mod volume;

pub use disc::{Disc, Entry, Kind, Node, Tree};
pub use error::DiscError;
pub use extents::File;
pub use volume::{Volume, VolumeKind, volume};

/// Bytes a sector: both formats count in these on optical media.
const SECTOR: u64 = 2048;
/// Volume descriptors begin after a system area of 16 sectors.
const FIRST_DESCRIPTOR: u64 = 16 * SECTOR;
/// The least bytes that an image can have.
pub const LEAST: u64 = FIRST_DESCRIPTOR + SECTOR;
/// The largest directory read, in bytes; the largest on installation media has about 100 KiB.
const MAX_DIRECTORY: u64 = 8 << 20;

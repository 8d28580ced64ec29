//! What the fuzz targets share.

pub mod discs;
pub mod edits;
pub mod hives;
#[path = "../../src/hive/marvin32.rs"]
mod marvin32;

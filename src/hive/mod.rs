//! Registry hives (regf) over [`ReadAt`](crate::io::ReadAt): reading, and editing as a list of byte edits.
//!
//! A hive file is a base block of 4096 bytes and then bins ("hbin"), each tiled by cells.
//! Keys (`nk`), values (`vk`), lists and data are cells, and point at each other by offsets that count from the
//! first bin, 4096 bytes into the file. Format facts are from the public description by Maxim Suhanov,
//! "Windows registry file format specification" (msuhanov/regf), and were tried on real hives.
//!
//! - [`Hive`] reads on demand: opening one reads 4096 bytes, a look-up reads the cells on its way.
//! - [`Editor`] sets and removes values in space that is free already, and says which bytes of the file change.
//!   It never writes: the caller maps [`Change`](crate::io::Change)s to wherever the file lies.
//! - [`recover`] reads a hive together with its logs, where the last writer left part of its work.
//! - [`PageCache`] in front of a slow source turns many small reads into few.

mod base_block;
mod data;
mod editor;
mod error;
mod hive_file;
mod key;
mod logs;
mod marvin32;
mod name;
mod page_cache;
mod recover;
mod space;
mod subkeys;
#[cfg(test)]
mod tests;
mod value;

pub use editor::Editor;
pub use error::HiveError;
pub use hive_file::Hive;
pub use key::Key;
pub use page_cache::PageCache;
pub use recover::{Recovered, as_found, recover};
pub use value::{Value, ValueKind};

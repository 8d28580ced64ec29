//! ISO 9660 and what was built on it: Rock Ridge, Joliet, the enhanced descriptor of ISO 9660:1999.
//!
//! Sources: ECMA-119 (4th edition, with the enhanced descriptor in 8.5), IEEE P1281 (SUSP 1.12), IEEE P1282 (RRIP
//! 1.12), Microsoft's Joliet specification. Numbers stand in both byte orders; the little-endian one is read.

mod descriptors;
mod directory;
mod names;
mod record;
mod rock_ridge;

use super::extents::Extent;
use super::{DiscError, File, Kind, MAX_DIRECTORY, Tree};
use crate::io::ReadAt;

/// A volume and the tree of it that is read.
#[derive(Debug)]
pub(super) struct Iso9660 {
    tree: Tree,
    root: Content,
    /// With Rock Ridge: the bytes to skip before each system use area.
    skip: usize,
}

/// Where a file's or directory's bytes are.
#[derive(Debug, Clone)]
pub(super) struct Content {
    size: u64,
    extents: Vec<Extent>,
    /// Where its directory record stands in the image.
    record: u64,
    /// Why it can't be read, if it can't.
    unread: Option<&'static str>,
}

impl Content {
    /// Where its first byte is in the image.
    pub fn offset(&self) -> u64 {
        self.extents.first().and_then(|extent| extent.at).unwrap_or(0)
    }

    /// Its bytes.
    pub fn file<'a>(&self, source: &'a dyn ReadAt) -> Result<File<'a>, DiscError> {
        let what = "ISO 9660 directory record";
        if let Some(why) = self.unread {
            return Err(DiscError::Unsupported { what, offset: self.record, why });
        }
        File::new(source, self.size, &self.extents, what, self.record)
    }
}

impl Iso9660 {
    /// Reads the descriptors, and chooses the tree.
    pub fn open(source: &dyn ReadAt) -> Result<Self, DiscError> {
        descriptors::open(source)
    }

    /// The tree that is read.
    pub fn tree(&self) -> Tree {
        self.tree
    }

    /// The root directory.
    pub fn root(&self) -> Content {
        self.root.clone()
    }

    /// The entries of a directory.
    pub fn list(
        &self,
        source: &dyn ReadAt,
        directory: &Content,
    ) -> Result<Vec<(String, Kind, Content)>, DiscError> {
        directory::list(self, source, directory)
    }
}

//! WIM archives, as far as they say what is in them: the header, and the XML that describes every image.
//!
//! `.esd` and `.swm` are the same: an archive with solid resources, and one that is split in parts. No image's files
//! are read. Source of the format: wimlib's `header.h` and Microsoft's "Windows Imaging File Format".

mod header;
mod image;

use std::io;

use thiserror::Error;

pub use header::{Guid, Header};
pub use image::{Image, Version};

use super::Sha256;
use crate::io::ReadAt;

/// Why an archive is not read. Offsets are in bytes from its start.
#[derive(Debug, Error)]
pub enum WimError {
    /// It can't be read.
    #[error("it can't be read at offset {offset}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// Something else.
    #[error("it is no WIM archive: it does not begin with MSWIM")]
    NotWim,
    /// A field that can't be so.
    #[error("WIM header at offset {offset}: {why}")]
    Header {
        /// Where the field stands.
        offset: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The XML can't be so.
    #[error("WIM XML at offset {offset}: {why}")]
    Xml {
        /// Where the XML begins.
        offset: u64,
        /// What is wrong with it.
        why: String,
    },
    /// Parts that don't make one archive.
    #[error("{0}")]
    Parts(String),
}

/// The most parts of a split archive that are read; those of media have three or four.
pub const MAX_PARTS: u16 = 64;

/// What an archive says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wim {
    /// Its header; of a split archive, that of the first part.
    pub header: Header,
    /// Its images, by index.
    pub images: Vec<Image>,
    /// Of the XML's bytes.
    pub xml_sha256: Sha256,
}

impl Wim {
    /// Reads an archive's header and XML; a part of a split archive is refused.
    pub fn read(source: &dyn ReadAt) -> Result<Self, WimError> {
        let wim = Self::read_part(source)?;
        match wim.header.parts {
            (1, 1) => Ok(wim),
            (part, total) => Err(WimError::Parts(format!(
                "it is part {part} of {total} of a split archive, not a whole one"
            ))),
        }
    }

    /// Reads a split archive, of whose parts, in order, those that are not there are `None`. All must be there, and of
    /// one archive; what comes after them is not looked at.
    pub fn read_split(parts: &[Option<&dyn ReadAt>]) -> Result<Self, WimError> {
        let Some(Some(first)) = parts.first() else {
            return Err(WimError::Parts("part 1 is missing".into()));
        };
        let wim = Self::read_part(*first)?;
        let total = wim.header.parts.1;
        if total > MAX_PARTS {
            return Err(WimError::Parts(format!("it says that it has {total} parts; {MAX_PARTS} are read")));
        }
        let mut missing = Vec::new();
        for number in 1..=total {
            match parts.get(usize::from(number) - 1).copied().flatten() {
                Some(part) => Header::read(part)?.is_part(number, &wim.header)?,
                None => missing.push(number.to_string()),
            }
        }
        match missing.as_slice() {
            [] => Ok(wim),
            [one] => Err(WimError::Parts(format!("part {one} of {total} is missing"))),
            _ => Err(WimError::Parts(format!("parts {} of {total} are missing", missing.join(", ")))),
        }
    }

    fn read_part(source: &dyn ReadAt) -> Result<Self, WimError> {
        let header = Header::read(source)?;
        let xml = header.read_xml(source)?;
        let images = image::read(&xml).map_err(|why| WimError::Xml { offset: header.xml_at, why })?;
        if images.len() as u64 != u64::from(header.image_count) {
            return Err(WimError::Xml {
                offset: header.xml_at,
                why: format!(
                    "it describes {} images, the header counts {}",
                    images.len(),
                    header.image_count
                ),
            });
        }
        Ok(Self { header, images, xml_sha256: Sha256::of(&xml) })
    }
}

#[cfg(test)]
mod tests;

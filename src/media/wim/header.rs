//! The header of a WIM archive (wimlib's `header.h`).

use std::fmt;

use serde::{Serialize, Serializer};

use super::WimError;
use crate::io::ReadAt;

/// Bytes of a header.
const LENGTH: usize = 208;
/// The largest XML that is read, in bytes; that of a medium with eleven editions has about 50 KiB.
const MAX_XML: u64 = 4 << 20;
/// The flags of a resource that is stored as it is: none, or that it is metadata.
const COMPRESSED: u8 = 0x04;
const SPANNED: u8 = 0x08;
const SOLID: u8 = 0x10;

/// An archive's identity: all parts of a split one share it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Guid([u8; 16]);

/// As Windows shows it, without braces.
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f_, g, h, rest @ ..] = self.0;
        let (first, second, third) =
            (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f_]), u16::from_le_bytes([g, h]));
        let (fourth, fifth) = rest.split_at(2);
        write!(f, "{first:08x}-{second:04x}-{third:04x}-{}-{}", hex::encode(fourth), hex::encode(fifth))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Guid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What the header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The archive's identity.
    pub guid: Guid,
    /// Which part of how many this is; `(1, 1)` where it is whole.
    pub parts: (u16, u16),
    /// Images in the archive.
    pub image_count: u32,
    /// The index of the image that boots; 0 for none.
    pub boot_index: u32,
    /// Whether resources are compressed together, as in an `.esd`.
    pub solid: bool,
    /// Where the XML begins, in bytes.
    pub(super) xml_at: u64,
    /// In bytes.
    xml_length: u64,
}

impl Header {
    /// Reads and checks the header.
    pub fn read(source: &dyn ReadAt) -> Result<Self, WimError> {
        if source.size() < LENGTH as u64 {
            return Err(WimError::NotWim);
        }
        let mut bytes = [0; LENGTH];
        source.read_exact_at(&mut bytes, 0).map_err(|source| WimError::Read { offset: 0, source })?;
        if !bytes.starts_with(b"MSWIM\0\0\0") {
            return Err(WimError::NotWim);
        }
        let wrong = |offset, why| Err(WimError::Header { offset, why });
        if word(&bytes, 8) != LENGTH as u32 {
            return wrong(8, "its length is not 208");
        }
        let solid = match word(&bytes, 12) {
            0x10d00 => false,
            0xe00 => true,
            _ => return wrong(12, "its version is neither 0x10d00 (.wim) nor 0xe00 (.esd)"),
        };
        let parts = (half(&bytes, 40), half(&bytes, 42));
        if parts.0 == 0 || parts.0 > parts.1 {
            return wrong(40, "its part number is not one of its parts");
        }
        // The resource's length in the archive has 7 bytes, its flags are the eighth; offset and length follow.
        let stored = long(&bytes, 72);
        let (xml_length, flags) = (stored & ((1 << 56) - 1), bytes[79]);
        let (xml_at, original) = (long(&bytes, 80), long(&bytes, 88));
        if flags & (COMPRESSED | SPANNED | SOLID) != 0 {
            return wrong(79, "the XML is flagged as compressed, spanned or solid");
        }
        if xml_length != original {
            return wrong(88, "the XML's two lengths differ");
        }
        if xml_length > MAX_XML {
            return wrong(72, "the XML is larger than that of any archive");
        }
        if xml_at < LENGTH as u64 {
            return wrong(80, "the XML lies in the header");
        }
        if xml_at.checked_add(xml_length).is_none_or(|end| end > source.size()) {
            return wrong(80, "the XML lies past the end of the archive: it is truncated");
        }
        let mut guid = [0; 16];
        guid.copy_from_slice(&bytes[24..40]);
        Ok(Self {
            guid: Guid(guid),
            parts,
            image_count: word(&bytes, 44),
            boot_index: word(&bytes, 120),
            solid,
            xml_at,
            xml_length,
        })
    }

    /// Whether this is part `number` of the archive that `first` begins.
    pub(super) fn is_part(&self, number: u16, first: &Self) -> Result<(), WimError> {
        let ((part, of), total) = (self.parts, first.parts.1);
        if self.guid != first.guid {
            return Err(WimError::Parts(format!(
                "part {number} of {total} belongs to another archive: its GUID is {}, that of part 1 {}",
                self.guid, first.guid
            )));
        }
        if (part, of) != (number, total) {
            return Err(WimError::Parts(format!(
                "what should be part {number} of {total} says that it is part {part} of {of}"
            )));
        }
        Ok(())
    }

    /// The XML's bytes.
    pub(super) fn read_xml(&self, source: &dyn ReadAt) -> Result<Vec<u8>, WimError> {
        // No more than MAX_XML.
        let mut xml = vec![0; self.xml_length as usize];
        source
            .read_exact_at(&mut xml, self.xml_at)
            .map_err(|source| WimError::Read { offset: self.xml_at, source })?;
        Ok(xml)
    }
}

fn half(bytes: &[u8; LENGTH], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8; LENGTH], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

fn long(bytes: &[u8; LENGTH], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

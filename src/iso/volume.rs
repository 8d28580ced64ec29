//! What a disc image says of itself, read by offset: label and size, from ISO 9660 and UDF descriptors.
//!
//! Sources: ECMA-119 (ISO 9660) 8.4, ECMA-167 2/9.1 and 3/10 (UDF).

use std::io;

use serde::Serialize;

use super::{FIRST_DESCRIPTOR, SECTOR};
use crate::io::ReadAt;

/// Descriptors looked at in either sequence; real images have fewer than ten.
const MAX_DESCRIPTORS: u64 = 32;

/// The file systems found on an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum VolumeKind {
    /// ISO 9660 alone.
    #[serde(rename = "iso9660")]
    Iso9660,
    /// UDF alone.
    #[serde(rename = "udf")]
    Udf,
    /// Both side by side, as on Windows media.
    #[serde(rename = "udf-bridge")]
    UdfBridge,
}

impl VolumeKind {
    /// As it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iso9660 => "ISO 9660",
            Self::Udf => "UDF",
            Self::UdfBridge => "UDF and ISO 9660",
        }
    }
}

/// What an image says of itself. It tells a cut file from a whole one; it proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its file systems.
    pub kind: VolumeKind,
    /// UDF's label, else that of ISO 9660; `None` where it is empty.
    pub label: Option<String>,
    /// Bytes that the file systems span; `None` where none says so.
    pub size: Option<u64>,
}

/// The volume on `image`, or `None` where there is no disc file system.
pub fn volume(image: &dyn ReadAt) -> io::Result<Option<Volume>> {
    let (mut iso, mut udf) = (None, None);
    for index in 0..MAX_DESCRIPTORS {
        let Some(sector) = read_sector(image, FIRST_DESCRIPTOR / SECTOR + index)? else { break };
        match &sector[1..6] {
            // Type 1 is the primary descriptor.
            b"CD001" if sector[0] == 1 && iso.is_none() => iso = Some(primary(&sector)),
            b"CD001" | b"BEA01" | b"TEA01" | b"BOOT2" => {}
            b"NSR02" | b"NSR03" => udf = Some(UdfClaims::default()),
            _ => break,
        }
    }
    if udf.is_some() {
        udf = Some(udf_claims(image)?);
    }
    Ok(match (iso, udf) {
        (None, None) => None,
        (Some((label, size)), None) => Some(Volume { kind: VolumeKind::Iso9660, label, size }),
        (None, Some(udf)) => Some(Volume { kind: VolumeKind::Udf, label: udf.label, size: udf.end }),
        (Some((label, size)), Some(udf)) => {
            Some(Volume { kind: VolumeKind::UdfBridge, label: udf.label.or(label), size: udf.end.max(size) })
        }
    })
}

/// Sector `number`, or `None` past the end.
fn read_sector(image: &dyn ReadAt, number: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(offset) = number.checked_mul(SECTOR) else { return Ok(None) };
    if offset.checked_add(SECTOR).is_none_or(|end| end > image.size()) {
        return Ok(None);
    }
    let mut sector = vec![0; SECTOR as usize];
    image.read_exact_at(&mut sector, offset)?;
    Ok(Some(sector))
}

/// Label and size of an ISO 9660 primary volume descriptor.
fn primary(sector: &[u8]) -> (Option<String>, Option<u64>) {
    let label = String::from_utf8_lossy(&sector[40..72]);
    let size = u64::from(le32(sector, 80)) * u64::from(u16::from_le_bytes([sector[128], sector[129]]));
    (clean(&label), (size > 0).then_some(size))
}

#[derive(Debug, Default)]
struct UdfClaims {
    label: Option<String>,
    /// Where the last partition ends, in bytes.
    end: Option<u64>,
}

/// The anchor leads to a sequence of descriptors, one a sector.
fn udf_claims(image: &dyn ReadAt) -> io::Result<UdfClaims> {
    let mut claims = UdfClaims::default();
    let Some(anchor) = read_sector(image, 256)?.filter(|sector| tag(sector) == Some(2)) else {
        return Ok(claims);
    };
    let (length, first) = (u64::from(le32(&anchor, 16)), u64::from(le32(&anchor, 20)));
    for index in 0..(length / SECTOR).min(MAX_DESCRIPTORS) {
        let Some(sector) = read_sector(image, first + index)? else { break };
        match tag(&sector) {
            Some(5) => {
                let end = (u64::from(le32(&sector, 188)) + u64::from(le32(&sector, 192))) * SECTOR;
                claims.end = claims.end.max(Some(end));
            }
            Some(6) => claims.label = dstring(&sector[84..212]),
            Some(8) | None => break,
            Some(_) => {}
        }
    }
    Ok(claims)
}

/// A descriptor's identifier, if its tag's checksum is right (ECMA-167 3/7.2).
fn tag(sector: &[u8]) -> Option<u16> {
    let sum = sector[..16].iter().enumerate().filter(|(at, _)| *at != 4);
    let sum = sum.fold(0u8, |sum, (_, byte)| sum.wrapping_add(*byte));
    let identifier = u16::from_le_bytes([sector[0], sector[1]]);
    (sum == sector[4] && identifier != 0).then_some(identifier)
}

/// A `dstring`: the first byte says 8 or 16 bits a character, the last how many bytes are used.
fn dstring(field: &[u8]) -> Option<String> {
    let used = usize::from(*field.last()?).min(field.len() - 1);
    let (bits, text) = field.get(..used)?.split_first()?;
    let text: String = match bits {
        8 => text.iter().map(|byte| char::from(*byte)).collect(),
        16 => {
            let units = text.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        _ => return None,
    };
    clean(&text)
}

/// Without padding and without what a terminal would act on; `None` when nothing is left.
fn clean(label: &str) -> Option<String> {
    let label: String = label.chars().filter(|c| !c.is_control()).collect();
    let label = label.trim();
    (!label.is_empty()).then(|| label.to_owned())
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever stands in the descriptors, reading them ends without a panic.
        #[test]
        fn arbitrary_descriptors(
            kinds in proptest::collection::vec(0..6usize, 1..40),
            anchor in proptest::array::uniform16(any::<u8>()),
            noise in proptest::collection::vec(any::<u8>(), 4096),
        ) {
            let mut image = vec![0; 258 * SECTOR as usize];
            for (index, kind) in kinds.iter().enumerate() {
                let at = (16 + index) * SECTOR as usize;
                image[at..at + 2048].copy_from_slice(&noise[..2048]);
                image[at] = 1;
                let id = [b"CD001", b"BEA01", b"NSR02", b"NSR03", b"TEA01", b"XXXXX"][*kind];
                image[at + 1..at + 6].copy_from_slice(id);
            }
            image[256 * 2048..258 * 2048].copy_from_slice(&noise);
            image[256 * 2048..256 * 2048 + 2].copy_from_slice(&[2, 0]);
            image[256 * 2048 + 16..256 * 2048 + 32].copy_from_slice(&anchor);
            let head: u8 = image[256 * 2048..256 * 2048 + 16].iter().enumerate()
                .filter(|(at, _)| *at != 4).fold(0, |sum, (_, byte)| sum.wrapping_add(*byte));
            image[256 * 2048 + 4] = head;
            volume(&image).unwrap();
        }

        #[test]
        fn arbitrary_dstrings(field in proptest::collection::vec(any::<u8>(), 0..128)) {
            dstring(&field);
        }
    }
}

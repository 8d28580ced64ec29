//! The table at a layer's end that says where each frame is, so that a part can be read alone.
//!
//! Format: zstd's contrib/seekable_format, zstd_seekable_compression_format.md. Ours are version 0.1.0 without
//! checksums; those of others, which may have them, are read too.

use std::io;
use std::ops::Range;

use thiserror::Error;

use crate::io::ReadAt;

/// The first four bytes of the skippable frame that the table is.
pub(super) const SKIPPABLE: u32 = 0x184D_2A5E;
/// The last four bytes of the layer.
pub(super) const MAGIC: u32 = 0x8F92_EAB1;
/// Number of frames, descriptor, magic.
const FOOTER: u64 = 9;
/// The magic and size before the table's entries.
const HEAD: u64 = 8;
/// A frame that is larger, packed or not, is not unpacked into memory. Ours have 4 MiB.
const MAX_FRAME: u64 = 32 << 20;
/// 16 TiB in frames of 4 MiB.
const MAX_FRAMES: u32 = 4 << 20;
/// Read at once: the table of 32 GiB and more in frames of 4 MiB.
const FIRST_LOOK: u64 = 64 << 10;
/// What a tar that is not compressed is read in.
const PLAIN: u64 = 256 << 10;

/// Why parts of a layer can't be read alone.
#[derive(Debug, Error)]
pub enum SeekTableError {
    /// The layer's end could not be read.
    #[error("the seek table can't be read")]
    Read(#[from] io::Error),
    /// There is none.
    #[error("the layer has no seek table: {why}")]
    Missing {
        /// What the layer is.
        why: String,
    },
    /// It contradicts itself or the layer.
    #[error("the seek table at the layer's end is damaged, at offset {offset}: {why}")]
    Damaged {
        /// Where in the layer, in bytes.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
}

/// Where each frame lies, in the layer and in the tar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeekTable {
    /// Each frame's end in the layer and in the tar, ascending in both.
    ends: Vec<(u64, u64)>,
    packed: bool,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its bytes in the layer.
    pub layer: Range<u64>,
    /// What they unpack to.
    pub tar: Range<u64>,
}

impl SeekTable {
    /// The table of a layer of this media type.
    pub fn read(layer: &dyn ReadAt, media_type: &str) -> Result<Self, SeekTableError> {
        if media_type.ends_with("+zstd") {
            Self::of_zstd(layer)
        } else if media_type.ends_with(".tar") {
            Ok(Self::of_plain(layer.size()))
        } else {
            let packing = if media_type.ends_with("gzip") { "gzip has none" } else { "it is no zstd layer" };
            Err(SeekTableError::Missing { why: format!("{packing} ({media_type})") })
        }
    }

    /// A tar that is not compressed needs no table: its parts are where they are.
    fn of_plain(size: u64) -> Self {
        let ends = (1..=size.div_ceil(PLAIN)).map(|n| (n * PLAIN).min(size));
        Self { ends: ends.map(|end| (end, end)).collect(), packed: false }
    }

    fn of_zstd(layer: &dyn ReadAt) -> Result<Self, SeekTableError> {
        let size = layer.size();
        let none = || SeekTableError::Missing { why: "the zstd layer was made without one".into() };
        if size < HEAD + FOOTER {
            return Err(none());
        }
        let mut end = vec![0; size.min(FIRST_LOOK) as usize];
        let from = size - end.len() as u64;
        layer.read_exact_at(&mut end, from)?;
        let footer = end.last_chunk::<{ FOOTER as usize }>().ok_or_else(none)?;
        if le32(&footer[5..]) != MAGIC {
            return Err(none());
        }
        let (frames, descriptor) = (le32(footer), footer[4]);
        let damaged = |offset, why| SeekTableError::Damaged { offset, why };
        if descriptor & 0b0111_1100 != 0 {
            return Err(damaged(size - 5, "its descriptor has reserved bits"));
        }
        if frames > MAX_FRAMES {
            return Err(damaged(size - FOOTER, "it has more frames than any layer"));
        }
        let entry = if descriptor & 0x80 != 0 { 12 } else { 8 };
        let table_size = HEAD + u64::from(frames) * entry + FOOTER;
        let start = size
            .checked_sub(table_size)
            .ok_or_else(|| damaged(size - FOOTER, "it is larger than the layer"))?;
        let table = match end.len().checked_sub(table_size as usize) {
            Some(skip) => end.split_off(skip),
            None => {
                let mut table = vec![0; table_size as usize];
                layer.read_exact_at(&mut table, start)?;
                table
            }
        };
        if le32(&table) != SKIPPABLE || u64::from(le32(&table[4..])) != table_size - HEAD {
            return Err(damaged(start, "it does not begin as its end says"));
        }
        let (mut in_layer, mut in_tar) = (0u64, 0u64);
        let mut ends = Vec::with_capacity(frames as usize);
        let entries = &table[HEAD as usize..(table_size - FOOTER) as usize];
        for (number, bytes) in entries.chunks_exact(entry as usize).enumerate() {
            let (packed, unpacked) = (u64::from(le32(bytes)), u64::from(le32(&bytes[4..])));
            // A frame without content would be no frame: something else lies there.
            if packed > MAX_FRAME || unpacked > MAX_FRAME || packed == 0 || unpacked == 0 {
                return Err(damaged(
                    start + HEAD + number as u64 * entry,
                    "a frame is empty, or too large to be unpacked in memory",
                ));
            }
            in_layer += packed;
            in_tar += unpacked;
            ends.push((in_layer, in_tar));
        }
        if in_layer != start {
            return Err(damaged(start, "its frames don't add up to the layer"));
        }
        Ok(Self { ends, packed: true })
    }

    /// How many frames the table lists; none for a plain tar, which needs no table.
    pub fn frames(&self) -> Option<usize> {
        self.packed.then_some(self.ends.len())
    }

    /// Bytes of the tar.
    pub fn tar_size(&self) -> u64 {
        self.ends.last().map_or(0, |(_, tar)| *tar)
    }

    /// Whether the frames are compressed.
    pub(super) fn is_packed(&self) -> bool {
        self.packed
    }

    /// The number of the frame that holds this byte of the tar; the number of frames, past its end.
    pub(super) fn frame_at(&self, tar_offset: u64) -> usize {
        self.ends.partition_point(|(_, end)| *end <= tar_offset)
    }

    /// Frame `number`; `None` past the last.
    pub(super) fn frame(&self, number: usize) -> Option<Frame> {
        let end = self.ends.get(number)?;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or((0, 0));
        Some(Frame { layer: start.0..end.0, tar: start.1..end.1 })
    }
}

fn le32(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::containerdisk::Compression;
    use proptest::prelude::*;

    const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

    /// A layer of frames of these sizes: zeros, and a table.
    fn layer(frames: &[(u64, u64)]) -> Vec<u8> {
        let mut layer = vec![0; frames.iter().map(|(packed, _)| *packed as usize).sum()];
        layer.extend(Compression::Zstd(1).tail(frames.iter().copied()));
        layer
    }

    #[test]
    fn what_is_written_is_read() {
        let table = SeekTable::read(&layer(&[(100, 1000), (7, 500), (50, 1500)]), ZSTD).unwrap();
        assert_eq!((table.frames(), table.tar_size()), (Some(3), 3000));
        assert_eq!(table.frame_at(999), 0);
        assert_eq!(table.frame_at(1500), 2);
        assert_eq!(table.frame(2), Some(Frame { layer: 107..157, tar: 1500..3000 }));
        for empty in [(0, 500), (7, 0)] {
            let error = SeekTable::read(&layer(&[(100, 1000), empty]), ZSTD).unwrap_err();
            assert!(error.to_string().contains("a frame is empty"), "{error}");
        }
        assert_eq!(table.frame(table.frame_at(3000)), None);
    }

    #[test]
    fn a_table_larger_than_the_first_look_is_read_whole() {
        let frames: Vec<_> = (0..9000).map(|n| (n % 7 + 1, n + 1)).collect();
        let table = SeekTable::read(&layer(&frames), ZSTD).unwrap();
        assert_eq!((table.frames(), table.tar_size()), (Some(9000), 9001 * 9000 / 2));
    }

    #[test]
    fn checksums_are_passed_over() {
        let mut layer = vec![0; 10];
        layer.extend(SKIPPABLE.to_le_bytes());
        layer.extend(21u32.to_le_bytes());
        layer.extend([10, 0, 0, 0, 20, 0, 0, 0, 1, 2, 3, 4]);
        layer.extend([1, 0, 0, 0, 0x80]);
        layer.extend(MAGIC.to_le_bytes());
        assert_eq!(SeekTable::read(&layer, ZSTD).unwrap().tar_size(), 20);
    }

    #[test]
    fn other_layers_say_what_they_are() {
        let why =
            |layer: &[u8], media_type| SeekTable::read(&layer.to_vec(), media_type).unwrap_err().to_string();
        assert!(why(&[0; 100], ZSTD).contains("made without one"));
        assert!(why(&[], ZSTD).contains("made without one"));
        assert!(why(&[], "application/vnd.docker.image.rootfs.diff.tar.gzip").contains("gzip has none"));
        let plain =
            SeekTable::read(&vec![0; PLAIN as usize + 1], "application/vnd.oci.image.layer.v1.tar").unwrap();
        assert_eq!((plain.frames(), plain.tar_size()), (None, PLAIN + 1));
        assert_eq!(plain.frame_at(PLAIN), 1);
    }

    #[test]
    fn damage_is_told() {
        let good = layer(&[(100, 1000)]);
        let with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            let at = bad.len() - at;
            bad[at] = byte;
            SeekTable::read(&bad, ZSTD).unwrap_err().to_string()
        };
        assert!(with(5, 4).contains("reserved"));
        assert!(with(9, 2).contains("begin") || with(9, 2).contains("larger"));
        assert!(with(6, 0xFF).contains("more frames"));
        assert!(with(17, 99).contains("add up"));
        assert!(with(14, 9).contains("too large"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(mut end in proptest::collection::vec(any::<u8>(), 0..64)) {
            end.extend(MAGIC.to_le_bytes());
            let _ = SeekTable::read(&end, ZSTD);
        }
    }
}

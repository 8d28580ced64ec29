//! How the layer is compressed: independent frames of a few MiB of tar each.
//!
//! Frames that don't depend on each other can be made by all cores, made again from any point, and read alone.

use std::io::{self, Write};
use std::ops::Range;

use flate2::write::GzEncoder;
use thiserror::Error;
use zstd::bulk;
use zstd::zstd_safe::CParameter;

use super::seek_table::{MAGIC, SKIPPABLE};

/// Bytes of tar in a frame. 4 MiB costs 0.1% of size against one single frame; 1 MiB would cost 1.5%.
pub const FRAME: u64 = 4 << 20;

/// Bytes of tar in the first zstd frame, which is stored.
///
/// CDI tells compression by the first 512 bytes, and reads a zstd layer wrongly when its first block is smaller
/// than that once compressed, as the zeros in a qcow2 header are. So the first block is not compressed at all.
pub const STORED: u64 = 64 << 10;

/// From this level on zstd's own tables would take up to 100 MiB a worker. Two of 8 MiB each serve a frame as well:
/// 0.02% of size was lost on a Windows-like disk.
const LARGE_TABLES: i32 = 10;
const TABLE_LOG: u32 = 21;

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all: the layer is the tar.
    None,
    /// Members one after another, as gzip(1) makes of several files.
    Gzip(u32),
    /// Frames one after another, the first one stored, and a seek table at the end.
    Zstd(i32),
}

/// A level that the format does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{format} has levels 1 to {most}, not {level}")]
pub struct LevelError {
    format: &'static str,
    most: i32,
    level: i32,
}

impl Compression {
    /// Gzip at a level from 1 to 9; 6 unless given.
    pub fn gzip(level: Option<i32>) -> Result<Self, LevelError> {
        let level = checked("gzip", level.unwrap_or(6), 9)?;
        Ok(Self::Gzip(level.unsigned_abs()))
    }

    /// Zstandard at a level from 1 to 19; 3 unless given.
    pub fn zstd(level: Option<i32>) -> Result<Self, LevelError> {
        Ok(Self::Zstd(checked("zstd", level.unwrap_or(3), 19)?))
    }

    /// The media type of a layer compressed so (OCI image specification, layer.md).
    pub fn media_type(self) -> &'static str {
        match self {
            Self::None => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip(_) => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd(_) => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }

    /// The tar bytes of frame `index`, in a tar of `size` bytes; empty past the last.
    pub(super) fn frame(self, index: u64, size: u64) -> Range<u64> {
        let first = if matches!(self, Self::Zstd(_)) { STORED } else { FRAME };
        let start = index.checked_sub(1).map_or(0, |before| first + before * FRAME);
        let end = first + index * FRAME;
        start.min(size)..end.min(size)
    }

    /// How many frames a tar of `size` bytes has.
    pub(super) fn frames(self, size: u64) -> u64 {
        let first = self.frame(0, size).end;
        u64::from(size > 0) + (size - first).div_ceil(FRAME)
    }

    /// What one worker compresses with.
    pub(super) fn compressor(self) -> io::Result<Compressor> {
        Ok(match self {
            Self::None => Compressor::None,
            Self::Gzip(level) => Compressor::Gzip(flate2::Compression::new(level)),
            Self::Zstd(level) => {
                let mut context = bulk::Compressor::new(level)?;
                // No checksum in each frame: it would cost a sixth of the time, and the layer has its digest.
                if level >= LARGE_TABLES {
                    context.set_parameter(CParameter::HashLog(TABLE_LOG))?;
                    context.set_parameter(CParameter::ChainLog(TABLE_LOG))?;
                }
                Compressor::Zstd(context)
            }
        })
    }

    /// What comes after the last frame; `frames` gives each one's bytes in the layer and in the tar.
    pub(super) fn tail(self, frames: impl Iterator<Item = (u64, u64)>) -> Vec<u8> {
        match self {
            Self::Zstd(_) => seek_table(frames),
            Self::Gzip(_) | Self::None => Vec::new(),
        }
    }
}

fn checked(format: &'static str, level: i32, most: i32) -> Result<i32, LevelError> {
    if (1..=most).contains(&level) { Ok(level) } else { Err(LevelError { format, most, level }) }
}

/// Compresses frames, one after another, each by itself.
pub(super) enum Compressor {
    None,
    Gzip(flate2::Compression),
    Zstd(bulk::Compressor<'static>),
}

impl Compressor {
    /// Replaces `out` by the compressed form of frame `index`.
    pub fn compress(&mut self, index: u64, tar: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        match self {
            Self::None => out.extend_from_slice(tar),
            Self::Gzip(level) => {
                let mut encoder = GzEncoder::new(out, *level);
                encoder.write_all(tar)?;
                encoder.finish()?;
            }
            Self::Zstd(_) if index == 0 => stored_frame(tar, out),
            Self::Zstd(context) => {
                out.reserve(zstd::compress_bound(tar.len()));
                context.compress_to_buffer(tar, out)?;
            }
        }
        Ok(())
    }
}

/// A zstd frame of one raw block (RFC 8878, section 3.1.1): at most 128 KiB.
fn stored_frame(bytes: &[u8], out: &mut Vec<u8>) {
    let len = bytes.len() as u32;
    out.extend_from_slice(&0xFD2F_B528u32.to_le_bytes());
    // A content size of four bytes, which is the window's size too; no checksum, no dictionary.
    out.push(0b1010_0000);
    out.extend_from_slice(&len.to_le_bytes());
    // The last block, of type raw.
    out.extend_from_slice(&(1 | len << 3).to_le_bytes()[..3]);
    out.extend_from_slice(bytes);
}

/// The seek table of the "zstd seekable format" (zstd's contrib/seekable_format), without checksums of its own:
/// a skippable frame, which other readers pass over.
fn seek_table(frames: impl Iterator<Item = (u64, u64)>) -> Vec<u8> {
    let mut out = vec![0; 8];
    let mut count = 0u32;
    for (in_layer, in_tar) in frames {
        // A frame is a few MiB on either side.
        out.extend_from_slice(&(in_layer as u32).to_le_bytes());
        out.extend_from_slice(&(in_tar as u32).to_le_bytes());
        count += 1;
    }
    out.extend_from_slice(&count.to_le_bytes());
    out.push(0);
    out.extend_from_slice(&MAGIC.to_le_bytes());
    let len = out.len() as u32 - 8;
    out[..4].copy_from_slice(&SKIPPABLE.to_le_bytes());
    out[4..8].copy_from_slice(&len.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn frames_tile_the_tar() {
        for format in [Compression::None, Compression::Gzip(1), Compression::Zstd(1)] {
            for size in
                [0, 1, STORED - 1, STORED, STORED + 1, FRAME, FRAME + 1, 3 * FRAME + STORED, 9 * FRAME]
            {
                let mut at = 0;
                for index in 0..format.frames(size) {
                    let frame = format.frame(index, size);
                    assert!(frame.start == at && frame.start < frame.end, "{format:?} {size} {index}");
                    at = frame.end;
                }
                assert_eq!(at, size, "{format:?}");
                assert!(format.frame(format.frames(size), size).is_empty());
            }
        }
    }

    #[test]
    fn a_stored_frame_is_what_zstd_reads() {
        for len in [0, 1, 255, 65_535, 65_536] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut frame = Vec::new();
            stored_frame(&bytes, &mut frame);
            frame.extend(seek_table([(frame.len() as u64, len as u64)].into_iter()));
            assert_eq!(zstd::decode_all(&frame[..]).unwrap(), bytes);
        }
    }

    #[test]
    fn levels_are_checked() {
        assert_eq!(Compression::zstd(None), Ok(Compression::Zstd(3)));
        assert!(Compression::zstd(Some(20)).is_err() && Compression::zstd(Some(0)).is_err());
        assert!(Compression::gzip(Some(10)).is_err() && Compression::gzip(Some(-1)).is_err());
        assert_eq!(Compression::gzip(Some(12)).unwrap_err().to_string(), "gzip has levels 1 to 9, not 12");
    }
}

//! $Bitmap: one bit a cluster, set where it is in use.

use std::ops::Range;

use super::volume::BITMAP_RECORD;
use super::{Extent, File, NtfsError, Volume};
use crate::io::ReadAt;

/// What is read at a time, in bytes.
const WINDOW: u64 = 1 << 20;

/// Which clusters are in use, read a window at a time.
#[derive(Debug)]
pub struct Bitmap<'v, R> {
    file: File<'v, R>,
    clusters: u64,
    window_start: u64,
    window: Vec<u8>,
}

impl<'v, R: ReadAt> Bitmap<'v, R> {
    pub(super) fn open(volume: &'v Volume<R>) -> Result<Self, NtfsError> {
        let file = volume.system_file(BITMAP_RECORD)?;
        let clusters = volume.clusters();
        if file.size() < clusters.div_ceil(8) {
            let why = "$Bitmap is too short for the volume";
            return Err(NtfsError::DamagedFile { record: BITMAP_RECORD, why });
        }
        Ok(Self { file, clusters, window_start: 0, window: Vec::new() })
    }

    /// The first run of clusters in use at or after `from`, as long as it goes; `None` where there is no more.
    pub fn next_allocated(&mut self, from: u64) -> Result<Option<Range<u64>>, NtfsError> {
        let start = self.find(from, true)?;
        if start >= self.clusters {
            return Ok(None);
        }
        Ok(Some(start..self.find(start, false)?))
    }

    /// Whether a cluster is in use; those past the end are not.
    pub fn is_allocated(&mut self, cluster: u64) -> Result<bool, NtfsError> {
        Ok(self.find(cluster, true)? == cluster && cluster < self.clusters)
    }

    /// Whether all of these clusters are in use.
    pub(super) fn all_allocated(&mut self, clusters: Range<u64>) -> Result<bool, NtfsError> {
        Ok(clusters.is_empty() || self.find(clusters.start, false)? >= clusters.end)
    }

    /// The first cluster at or after `from` that is in use or not, or the number of clusters.
    fn find(&mut self, from: u64, in_use: bool) -> Result<u64, NtfsError> {
        let skip = if in_use { 0 } else { 0xff };
        let mut cluster = from;
        while cluster < self.clusters {
            let byte_offset = cluster / 8;
            self.load(byte_offset)?;
            let bytes = &self.window[(byte_offset - self.window_start) as usize..];
            let looked_for = (bytes[0] ^ skip) >> (cluster % 8);
            if looked_for != 0 {
                return Ok((cluster + u64::from(looked_for.trailing_zeros())).min(self.clusters));
            }
            // Whole bytes of the other kind, as far as the window goes.
            let same = bytes[1..].iter().take_while(|byte| **byte == skip).count();
            cluster = (byte_offset + 1 + same as u64) * 8;
        }
        Ok(self.clusters)
    }

    /// Where the bits lie, in order, for those who read them in another way.
    pub fn extents(&self) -> Vec<Extent> {
        self.file.extents()
    }

    /// How many of its first bytes were ever written; the rest reads as zeros.
    pub fn initialized_size(&self) -> u64 {
        self.file.initialized_size()
    }

    fn load(&mut self, byte_offset: u64) -> Result<(), NtfsError> {
        let start = byte_offset - byte_offset % WINDOW;
        if start == self.window_start && !self.window.is_empty() {
            return Ok(());
        }
        let length = WINDOW.min(self.clusters.div_ceil(8) - start);
        self.window.resize(length as usize, 0);
        // Nothing is known until it is read.
        self.window_start = u64::MAX;
        self.file.read_bytes(&mut self.window, start)?;
        self.window_start = start;
        Ok(())
    }
}

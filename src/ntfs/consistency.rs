//! Does $Bitmap agree with the files? Only then may clusters be left out by it.

use super::attribute::{Body, attributes};
use super::record::{FileRecord, le16};
use super::runs::{self, Run};
use super::{NtfsError, Volume};
use crate::io::ReadAt;

/// Bytes of $MFT read at once: whole records, whatever their size.
const CHUNK: u64 = 1 << 20;
/// Runs are compared in batches of about so many, in order of their place, so that $Bitmap is read straight on.
const BATCH: usize = 1 << 20;

impl<R: ReadAt> Volume<R> {
    /// The first file record found to use a cluster that $Bitmap calls free; `None` where there is none.
    ///
    /// Every record in use is looked at, and every attribute of it that has clusters. A volume that was shut down
    /// in peace has no such record; a disk error, or a tool that wrote to it, can make one.
    pub fn record_in_free_clusters(&self) -> Result<Option<u64>, NtfsError> {
        let geometry = &self.mft.geometry;
        let own = self.mft.stream.runs_from(0);
        let clusters = own.iter().try_fold(0u64, |sum, run| run.volume_cluster.map(|_| sum + run.clusters));
        if clusters.is_none_or(|clusters| clusters > geometry.clusters) {
            let why = "$MFT has holes, or more clusters than the volume";
            return Err(NtfsError::DamagedFile { record: 0, why });
        }
        let mut used = Vec::new();
        let size = self.mft.records() * geometry.record_size;
        let mut chunk = Vec::new();
        for start in (0..size).step_by(CHUNK as usize) {
            chunk.resize(CHUNK.min(size - start) as usize, 0);
            self.mft.stream.read(&self.mft.volume, geometry, &mut chunk, start)?;
            for (n, bytes) in chunk.chunks_exact(geometry.record_size as usize).enumerate() {
                let number = start / geometry.record_size + n as u64;
                self.add_runs(number, bytes, &mut used)?;
            }
            if used.len() >= BATCH
                && let Some(record) = self.first_in_free(&mut used)?
            {
                return Ok(Some(record));
            }
        }
        self.first_in_free(&mut used)
    }

    /// Adds where the clusters of a record's attributes lie: first, one past the last, the record's number.
    fn add_runs(&self, number: u64, bytes: &[u8], used: &mut Vec<(u64, u64, u64)>) -> Result<(), NtfsError> {
        // A record that was never used may hold anything; BAAD marks one that was.
        let known = bytes.starts_with(b"FILE") || bytes.starts_with(b"BAAD");
        if !known || le16(bytes, 22) & 1 == 0 {
            return Ok(());
        }
        let record = FileRecord::parse(number, bytes.to_vec())?;
        let mut found: Vec<Run> = Vec::new();
        for attribute in attributes(&record)? {
            let Body::NonResident(extents) = attribute.body else { continue };
            let (first, end) = (extents.first_cluster, extents.end_cluster);
            runs::decode(extents.mapping_pairs, first, end, self.mft.geometry.clusters, &mut found)
                .map_err(|why| record.damaged(why))?;
        }
        used.extend(found.iter().filter_map(|run| {
            let start = run.volume_cluster?;
            Some((start, start + run.clusters, number))
        }));
        Ok(())
    }

    /// Compares these runs with $Bitmap, and empties the list.
    fn first_in_free(&self, used: &mut Vec<(u64, u64, u64)>) -> Result<Option<u64>, NtfsError> {
        used.sort_unstable();
        let mut bitmap = self.bitmap()?;
        let mut compared = 0;
        for (start, end, record) in used.drain(..) {
            // No cluster is compared twice, however many records claim it.
            let start = start.max(compared);
            if start < end && !bitmap.all_allocated(start..end)? {
                return Ok(Some(record));
            }
            compared = compared.max(end);
        }
        Ok(None)
    }
}

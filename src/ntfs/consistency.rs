//! Does $Bitmap agree with the files? Only then may clusters be left out by it, or written.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use super::attribute::{Attribute, Body, DATA, attributes};
use super::attribute_list::Mft;
use super::record::{FileRecord, le16};
use super::runs::{self, Run};
use super::volume::{BITMAP_RECORD, FIRST_USER_RECORD, LAST_SYSTEM_RECORD};
use super::{NtfsError, Volume};
use crate::io::ReadAt;

/// Bytes of $MFT read at once: whole records, whatever their size.
const CHUNK: u64 = 1 << 20;
/// Runs are compared in batches of about so many, in order of their place, so that $Bitmap is read straight on.
const BATCH: usize = 1 << 20;
/// Bytes of $Bitmap read at once for a few files.
const BITMAP_PIECE: u64 = 64 << 10;

/// Clusters of the volume, and the record of the file that has them.
pub(super) struct Claim {
    pub clusters: Range<u64>,
    pub record: u64,
}

/// Where the bitmaps of a volume call something free that is not, or its files contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contradiction {
    /// The file record with this number is in use; $MFT's bitmap says it is not.
    Record(u64),
    /// The file record with this number uses a cluster that $Bitmap calls free.
    Clusters(u64),
    /// The file record with this number uses a cluster that another one does, or uses it twice.
    Shared(u64),
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(record) => {
                write!(f, "its $MFT's bitmap calls file record {record} free, which is in use")
            }
            Self::Clusters(record) => {
                write!(f, "its $Bitmap calls clusters free that file record {record} uses")
            }
            Self::Shared(record) => {
                write!(f, "its file record {record} uses clusters that are another's too, or uses them twice")
            }
        }
    }
}

impl<R: ReadAt> Volume<R> {
    /// The first contradiction found between the volume's bitmaps and its files; `None` where there is none.
    ///
    /// Every record in use is looked at, and every attribute of it that has clusters: all of $MFT is read. A volume
    /// that was shut down in peace has none; a disk error, or a tool that wrote to it, can make one. Clusters
    /// that two files have may be missed where a million runs lie between them in $MFT.
    pub fn contradiction(&self) -> Result<Option<Contradiction>, NtfsError> {
        let geometry = &self.mft.geometry;
        let own = self.mft.stream.runs_from(0);
        let clusters = own.iter().try_fold(0u64, |sum, run| run.volume_cluster.map(|_| sum + run.clusters));
        if clusters.is_none_or(|clusters| clusters > geometry.clusters) {
            let why = "$MFT has holes, or more clusters than the volume";
            return Err(NtfsError::DamagedFile { record: 0, why });
        }
        let bitmap = self.mft_bitmap()?;
        let mut used = Vec::new();
        let size = self.mft.records() * geometry.record_size;
        let mut chunk = Vec::new();
        for start in (0..size).step_by(CHUNK as usize) {
            chunk.resize(CHUNK.min(size - start) as usize, 0);
            self.mft.stream.read(&self.mft.volume, geometry, &mut chunk, start)?;
            // CHUNK has a multiple of 8 records.
            let first = start / geometry.record_size;
            let mut bits = vec![0; (chunk.len() as u64 / geometry.record_size).div_ceil(8) as usize];
            let there = bitmap.size().saturating_sub(first / 8).min(bits.len() as u64) as usize;
            bitmap.read_bytes(&mut bits[..there], first / 8)?;
            for (n, bytes) in chunk.chunks_exact(geometry.record_size as usize).enumerate() {
                let number = first + n as u64;
                // A record that was never used may hold anything; BAAD marks one that was.
                let known = bytes.starts_with(b"FILE") || bytes.starts_with(b"BAAD");
                if known && le16(bytes, 22) & 1 != 0 {
                    if number >= FIRST_USER_RECORD && bits[n / 8] >> (n % 8) & 1 == 0 {
                        return Ok(Some(Contradiction::Record(number)));
                    }
                    let record = FileRecord::parse(number, bytes.to_vec())?;
                    let found = self.mft.clusters(&[record], |_| true)?;
                    used.extend(found.into_iter().map(|clusters| Claim { clusters, record: number }));
                }
            }
            if used.len() >= BATCH
                && let Some(contradiction) = self.compare(&mut used)?
            {
                return Ok(Some(contradiction));
            }
        }
        self.compare(&mut used)
    }

    /// The first file found to use a cluster that $Bitmap calls free, of the file system's own and of those with
    /// the first records `records`; little is read. An error where two of them have a cluster in common.
    pub fn file_in_free_clusters(
        &self,
        records: impl IntoIterator<Item = u64>,
    ) -> Result<Option<u64>, NtfsError> {
        let mut claims = self.mft.system_claims()?;
        let others = records.into_iter().filter(|record| *record > LAST_SYSTEM_RECORD);
        for number in others.collect::<BTreeSet<_>>() {
            let records = self.mft.records_of(&self.mft.base_record(number)?)?;
            let found = self.mft.clusters(&records, |_| true)?;
            claims.extend(found.into_iter().map(|clusters| Claim { clusters, record: number }));
        }
        self.mft.first_free(claims)
    }

    /// Compares these runs with each other and with $Bitmap, and empties the list.
    fn compare(&self, used: &mut Vec<Claim>) -> Result<Option<Contradiction>, NtfsError> {
        used.sort_unstable_by_key(|claim| (claim.clusters.start, claim.clusters.end, claim.record));
        let mut bitmap = self.bitmap()?;
        let mut compared = 0;
        for Claim { clusters, record } in used.drain(..) {
            if clusters.start < compared {
                return Ok(Some(Contradiction::Shared(record)));
            }
            compared = clusters.end;
            if !bitmap.all_allocated(clusters)? {
                return Ok(Some(Contradiction::Clusters(record)));
            }
        }
        Ok(None)
    }
}

impl<R: ReadAt> Mft<R> {
    /// The clusters of some attributes, in no order; holes have none.
    pub(super) fn clusters(
        &self,
        records: &[FileRecord],
        which: impl Fn(&Attribute<'_>) -> bool,
    ) -> Result<Vec<Range<u64>>, NtfsError> {
        let mut found: Vec<Run> = Vec::new();
        for record in records {
            for attribute in attributes(record)?.iter().filter(|attribute| which(attribute)) {
                let Body::NonResident(extents) = attribute.body else { continue };
                let (first, end) = (extents.first_cluster, extents.end_cluster);
                runs::decode(extents.mapping_pairs, first, end, self.geometry.clusters, &mut found)
                    .map_err(|why| record.damaged(why))?;
            }
        }
        let place = |run: Run| run.volume_cluster.map(|start| start..start + run.clusters);
        Ok(found.into_iter().filter_map(place).collect())
    }

    /// The clusters of the file system's own files.
    pub(super) fn system_claims(&self) -> Result<Vec<Claim>, NtfsError> {
        let mut claims = Vec::new();
        for number in 0..=LAST_SYSTEM_RECORD {
            let records = self.records_of(&self.base_record(number)?)?;
            let found = self.clusters(&records, |_| true)?;
            claims.extend(found.into_iter().map(|clusters| Claim { clusters, record: number }));
        }
        Ok(claims)
    }

    /// The record of the first of these claims that $Bitmap does not bear out; an error where two have a cluster
    /// in common.
    pub(super) fn first_free(&self, mut claims: Vec<Claim>) -> Result<Option<u64>, NtfsError> {
        claims.sort_unstable_by_key(|claim| (claim.clusters.start, claim.record));
        if let Some(pair) = claims.windows(2).find(|pair| pair[1].clusters.start < pair[0].clusters.end) {
            // A file that is not the file system's own is the one to blame.
            let record = pair[0].record.max(pair[1].record);
            let why = "it has a cluster that belongs to the file system, or to another file, or has it twice";
            return Err(NtfsError::DamagedFile { record, why });
        }
        let record = self.base_record(BITMAP_RECORD)?;
        let missing = || record.damaged("$Bitmap has no data");
        let bitmap = self.stream(&record, DATA, &[])?.ok_or_else(missing)?;
        let mut bytes = Vec::new();
        for Claim { clusters, record } in claims {
            let mut at = clusters.start;
            while at < clusters.end {
                let first = at / 8;
                let end = clusters.end.min((first + BITMAP_PIECE) * 8);
                bytes.resize((end.div_ceil(8) - first) as usize, 0);
                bitmap.read(&self.volume, &self.geometry, &mut bytes, first)?;
                if (at..end).any(|bit| bytes[(bit / 8 - first) as usize] >> (bit % 8) & 1 == 0) {
                    return Ok(Some(record));
                }
                at = end;
            }
        }
        Ok(None)
    }
}

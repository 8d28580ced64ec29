//! The value of an attribute as a row of bytes.

use super::attribute::{Attribute, Body, COMPRESSED, ENCRYPTED};
use super::boot::Geometry;
use super::runs::{self, Run};
use super::{NtfsError, Piece};
use crate::io::ReadAt;

/// An attribute's value, with all its extents put together.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    /// The number of the file's record.
    pub record: u64,
    pub flags: u16,
    /// In bytes.
    pub size: u64,
    /// What lies past it reads as zeros, whatever the clusters hold.
    pub initialized: u64,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    /// It lies in the file record.
    Resident(Vec<u8>),
    /// In order, from cluster 0 on, without gaps.
    Runs(Vec<Run>),
}

impl Stream {
    /// Begins with the extent that has the sizes; `record` is the file's.
    pub(super) fn begin(
        record: u64,
        attribute: &Attribute<'_>,
        geometry: &Geometry,
    ) -> Result<Self, NtfsError> {
        let flags = attribute.flags;
        match attribute.body {
            Body::Resident(value) => {
                let size = value.len() as u64;
                let content = Content::Resident(value.to_vec());
                Ok(Self { record, flags, size, initialized: size, content })
            }
            Body::NonResident(extents) => {
                if extents.first_cluster != 0 {
                    return Err(NtfsError::DamagedFile { record, why: "its first extent is missing" });
                }
                let (size, initialized) = (extents.size, extents.initialized);
                if initialized > size || size > extents.allocated {
                    return Err(NtfsError::DamagedFile { record, why: "its sizes contradict each other" });
                }
                let mut stream =
                    Self { record, flags, size, initialized, content: Content::Runs(Vec::new()) };
                stream.extend(attribute, geometry)?;
                Ok(stream)
            }
        }
    }

    /// Adds the extent that follows.
    pub(super) fn extend(&mut self, attribute: &Attribute<'_>, geometry: &Geometry) -> Result<(), NtfsError> {
        let record = self.record;
        let damaged = |why| NtfsError::DamagedFile { record, why };
        let (Content::Runs(runs), Body::NonResident(extents)) = (&mut self.content, attribute.body) else {
            return Err(damaged("an extent lies in the record"));
        };
        let next = runs.last().map_or(0, Run::end);
        if extents.first_cluster != next {
            return Err(damaged("an extent is missing"));
        }
        runs::decode(extents.mapping_pairs, next, extents.end_cluster, geometry.clusters, runs)
            .map_err(damaged)
    }

    /// Whether the extents cover the size; asked for once all are there.
    pub(super) fn check_complete(&self, geometry: &Geometry) -> Result<(), NtfsError> {
        let Content::Runs(runs) = &self.content else { return Ok(()) };
        let clusters = runs.last().map_or(0, Run::end);
        if clusters < self.size.div_ceil(geometry.cluster_size) {
            let why = "its extents are shorter than its size";
            return Err(NtfsError::DamagedFile { record: self.record, why });
        }
        Ok(())
    }

    /// Refuses what is not on the disk as it is read.
    pub(super) fn check_plain(&self) -> Result<(), NtfsError> {
        let record = self.record;
        if self.flags & COMPRESSED != 0 {
            let (how, cure) = ("compressed by NTFS", "uncompress it in Windows: compact /u FILE");
            return Err(NtfsError::Transformed { record, how, cure });
        }
        if self.flags & ENCRYPTED != 0 {
            let (how, cure) = ("encrypted (EFS)", "decrypt it in Windows: cipher /d FILE");
            return Err(NtfsError::Transformed { record, how, cure });
        }
        Ok(())
    }

    /// Whether it lies in a file record.
    pub(super) fn is_resident(&self) -> bool {
        matches!(self.content, Content::Resident(_))
    }

    /// The run with `file_cluster` in it and those after it.
    pub(super) fn runs_from(&self, file_cluster: u64) -> &[Run] {
        match &self.content {
            Content::Resident(_) => &[],
            Content::Runs(runs) => &runs[runs.partition_point(|run| run.end() <= file_cluster)..],
        }
    }

    /// Fills `buf` from `offset`; the caller has seen to it that the range lies within the size.
    pub(super) fn read(
        &self,
        volume: &dyn ReadAt,
        geometry: &Geometry,
        buf: &mut [u8],
        offset: u64,
    ) -> Result<(), NtfsError> {
        self.check_plain()?;
        let why = "bytes past its end were asked for";
        let outside = || NtfsError::DamagedFile { record: self.record, why };
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size) {
            return Err(outside());
        }
        if let Content::Resident(value) = &self.content {
            // The range was checked against the value's length above.
            buf.copy_from_slice(&value[offset as usize..offset as usize + buf.len()]);
            return Ok(());
        }
        let initialized = self.initialized.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (mut buf, zeros) = buf.split_at_mut(initialized);
        zeros.fill(0);
        let mut offset = offset;
        for run in self.runs_from(offset / geometry.cluster_size) {
            if buf.is_empty() {
                break;
            }
            let within = offset - run.file_cluster * geometry.cluster_size;
            let left = run.clusters * geometry.cluster_size - within;
            let (part, rest) = buf.split_at_mut(left.min(buf.len() as u64) as usize);
            match run.volume_cluster {
                None => part.fill(0),
                Some(cluster) => {
                    let place = cluster * geometry.cluster_size + within;
                    volume.read_exact_at(part, place).map_err(NtfsError::read(place))?;
                }
            }
            offset += part.len() as u64;
            buf = rest;
        }
        if buf.is_empty() { Ok(()) } else { Err(outside()) }
    }

    /// Where on the volume `length` bytes from `offset` lie, so that writing there changes the value.
    pub(super) fn map(&self, geometry: &Geometry, offset: u64, length: u64) -> Result<Vec<Piece>, NtfsError> {
        let end = offset.saturating_add(length);
        let no_place = |why| Err(NtfsError::NoPlace { record: self.record, offset, end, why });
        if end > self.size {
            return no_place("they lie past its end");
        }
        if self.is_resident() {
            return no_place("they lie in its file record");
        }
        if end > self.initialized {
            return no_place("they were never written (past the initialized size)");
        }
        let mut pieces = Vec::new();
        let mut at = offset;
        for run in self.runs_from(offset / geometry.cluster_size) {
            if at >= end {
                break;
            }
            let Some(cluster) = run.volume_cluster else { return no_place("they lie in a hole") };
            let within = at - run.file_cluster * geometry.cluster_size;
            let length = (run.clusters * geometry.cluster_size - within).min(end - at);
            pieces.push(Piece { volume_offset: cluster * geometry.cluster_size + within, length });
            at += length;
        }
        if at < end { no_place("they have no clusters") } else { Ok(pieces) }
    }

    /// The whole value, where it is no longer than `limit`.
    pub(super) fn read_all(
        &self,
        volume: &dyn ReadAt,
        geometry: &Geometry,
        limit: u64,
    ) -> Result<Vec<u8>, NtfsError> {
        if self.size > limit {
            let why = "one of its attributes is longer than can be";
            return Err(NtfsError::DamagedFile { record: self.record, why });
        }
        let mut value = vec![0; self.size as usize];
        self.read(volume, geometry, &mut value, 0)?;
        Ok(value)
    }
}

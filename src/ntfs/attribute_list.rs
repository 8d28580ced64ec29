//! Files whose attributes did not fit into one record, and $MFT itself, which may be one of them.

use std::collections::{BTreeMap, HashSet};

use super::NtfsError;
use super::attribute::{ATTRIBUTE_LIST, Attribute, Body, DATA, attributes};
use super::boot::Geometry;
use super::record::{FileRecord, FileReference, le16, le32, le64};
use super::stream::Stream;
use crate::io::ReadAt;

/// Windows writes no longer list.
const MAX_LIST: u64 = 256 << 10;

/// $MFT as far as it is known, and what it lies on.
#[derive(Debug)]
pub(super) struct Mft<R> {
    pub volume: R,
    pub geometry: Geometry,
    pub stream: Stream,
}

/// One line of a list: which record holds which extent of which attribute.
struct Line {
    kind: u32,
    name: Vec<u8>,
    first_cluster: u64,
    place: FileReference,
    instance: u16,
}

impl<R: ReadAt> Mft<R> {
    /// Finds all of $MFT, extent by extent: each is listed in a record that lies in those before it.
    pub(super) fn open(volume: R, geometry: Geometry) -> Result<Self, NtfsError> {
        let offset = geometry.mft_cluster * geometry.cluster_size;
        let mut bytes = vec![0; geometry.record_size as usize];
        volume.read_exact_at(&mut bytes, offset).map_err(NtfsError::read(offset))?;
        let record = FileRecord::parse(0, bytes)?;
        let own = attributes(&record)?;
        let first = own.iter().find(|attribute| attribute.kind == DATA && attribute.name.is_empty());
        let first = first.ok_or_else(|| record.damaged("$MFT has no data in its first record"))?;
        if matches!(first.body, Body::Resident(_)) {
            return Err(record.damaged("$MFT's data lies in its own record"));
        }
        let stream = Stream::begin(0, first, &geometry)?;
        let mut mft = Self { volume, geometry, stream };
        for line in mft.lines(&record, &own)?.unwrap_or_default() {
            if line.kind == DATA && line.name.is_empty() && line.first_cluster != 0 {
                let (volume_record, index) = mft.listed(&record, &line)?;
                let found = attributes(&volume_record)?;
                let geometry = mft.geometry;
                mft.stream.extend(&found[index], &geometry)?;
            }
        }
        mft.stream.check_complete(&mft.geometry)?;
        // Records are looked up by number, so it has to lie where the boot sector says.
        if mft.stream.runs_from(0).first().and_then(|run| run.volume_cluster) != Some(geometry.mft_cluster) {
            return Err(record.damaged("$MFT does not begin where the boot sector says"));
        }
        Ok(mft)
    }

    /// How many records $MFT has room for.
    pub(super) fn records(&self) -> u64 {
        self.stream.size / self.geometry.record_size
    }

    /// A record in whatever state it is.
    pub(super) fn record(&self, number: u64) -> Result<FileRecord, NtfsError> {
        let damaged = |why| NtfsError::DamagedFile { record: number, why };
        if number >= self.records() {
            return Err(damaged("it lies past the end of $MFT"));
        }
        let mut bytes = vec![0; self.geometry.record_size as usize];
        let offset = number * self.geometry.record_size;
        self.stream.read(&self.volume, &self.geometry, &mut bytes, offset)?;
        FileRecord::parse(number, bytes)
    }

    /// The first record of a file that exists.
    pub(super) fn base_record(&self, number: u64) -> Result<FileRecord, NtfsError> {
        let record = self.record(number)?;
        if !record.is_in_use() {
            return Err(record.damaged("it is not in use, but something refers to it"));
        }
        if record.base().is_some() {
            return Err(record.damaged("it belongs to another file"));
        }
        Ok(record)
    }

    /// The attribute of that kind and name (UTF-16), with all its extents.
    pub(super) fn stream(
        &self,
        record: &FileRecord,
        kind: u32,
        name: &[u8],
    ) -> Result<Option<Stream>, NtfsError> {
        let own = attributes(record)?;
        let wanted = |attribute: &Attribute<'_>| attribute.kind == kind && attribute.name == name;
        let stream = match self.lines(record, &own)? {
            None => match own.iter().find(|attribute| wanted(attribute)) {
                None => return Ok(None),
                Some(attribute) => Stream::begin(record.number, attribute, &self.geometry)?,
            },
            Some(lines) => {
                let mut stream: Option<Stream> = None;
                for line in lines.iter().filter(|line| line.kind == kind && line.name == name) {
                    let (holder, index) = self.listed(record, line)?;
                    let found = attributes(&holder)?;
                    match &mut stream {
                        None => stream = Some(Stream::begin(record.number, &found[index], &self.geometry)?),
                        Some(stream) => stream.extend(&found[index], &self.geometry)?,
                    }
                }
                match stream {
                    None => return Ok(None),
                    Some(stream) => stream,
                }
            }
        };
        stream.check_complete(&self.geometry)?;
        Ok(Some(stream))
    }

    /// All records of a file, its first one first; nothing in them is missing in its attribute list.
    pub(super) fn records_of(&self, base: &FileRecord) -> Result<Vec<FileRecord>, NtfsError> {
        let own = attributes(base)?;
        let Some(lines) = self.lines(base, &own)? else { return Ok(vec![base.clone()]) };
        let mut records = BTreeMap::new();
        let mut listed = HashSet::new();
        for line in &lines {
            let (record, index) = self.listed(base, line)?;
            listed.insert((record.number, index));
            records.insert(record.number, record);
        }
        records.remove(&base.number);
        let all: Vec<_> = std::iter::once(base.clone()).chain(records.into_values()).collect();
        let mut count = 0;
        for record in &all {
            count += attributes(record)?.iter().filter(|found| found.kind != ATTRIBUTE_LIST).count();
        }
        if listed.len() != count || lines.len() != count {
            return Err(base.damaged("its attribute list does not name all of its attributes"));
        }
        Ok(all)
    }

    /// The record with the attribute of that kind and name, or with its first extent.
    pub(super) fn holder(
        &self,
        record: &FileRecord,
        kind: u32,
        name: &[u8],
    ) -> Result<Option<FileRecord>, NtfsError> {
        let own = attributes(record)?;
        match self.lines(record, &own)? {
            None => {
                let there = own.iter().any(|found| found.kind == kind && found.name == name);
                Ok(there.then(|| record.clone()))
            }
            Some(lines) => match lines.iter().find(|line| line.kind == kind && line.name == name) {
                None => Ok(None),
                Some(line) => Ok(Some(self.listed(record, line)?.0)),
            },
        }
    }

    /// The record a line points to, and which of its attributes is meant.
    fn listed(&self, base: &FileRecord, line: &Line) -> Result<(FileRecord, usize), NtfsError> {
        let record =
            if line.place.record == base.number { base.clone() } else { self.record(line.place.record)? };
        let belongs = record.number == base.number
            || record.base() == Some(FileReference { record: base.number, sequence: base.sequence() });
        if !record.is_in_use() || !belongs || record.sequence() != line.place.sequence {
            return Err(base.damaged("its attribute list names a record of another file"));
        }
        let found = attributes(&record)?.iter().position(|attribute| {
            attribute.kind == line.kind
                && attribute.name == line.name
                && attribute.instance == line.instance
                && match attribute.body {
                    Body::Resident(_) => line.first_cluster == 0,
                    Body::NonResident(extents) => extents.first_cluster == line.first_cluster,
                }
        });
        match found {
            Some(index) => Ok((record, index)),
            None => Err(base.damaged("its attribute list names an attribute that is not there")),
        }
    }

    /// The record's attribute list, if it has one.
    fn lines(&self, record: &FileRecord, own: &[Attribute<'_>]) -> Result<Option<Vec<Line>>, NtfsError> {
        let Some(list) = own.iter().find(|attribute| attribute.kind == ATTRIBUTE_LIST) else {
            return Ok(None);
        };
        let list = Stream::begin(record.number, list, &self.geometry)?;
        list.check_complete(&self.geometry)?;
        let list = list.read_all(&self.volume, &self.geometry, MAX_LIST)?;
        let mut lines = Vec::new();
        let mut rest = list.as_slice();
        while !rest.is_empty() {
            let length = usize::from(le16(rest, 4));
            if rest.len() < 26 || length < 26 || length > rest.len() {
                return Err(record.damaged("a line of its attribute list is out of range"));
            }
            let name_start = usize::from(rest[7]);
            let name = rest[..length].get(name_start..name_start + usize::from(rest[6]) * 2);
            let name = name.ok_or_else(|| record.damaged("a name in its attribute list is out of range"))?;
            lines.push(Line {
                kind: le32(rest, 0),
                name: name.to_vec(),
                first_cluster: le64(rest, 8),
                place: FileReference::from_raw(le64(rest, 16)),
                instance: le16(rest, 24),
            });
            rest = &rest[length..];
        }
        Ok(Some(lines))
    }
}

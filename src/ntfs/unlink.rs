//! A file removed for good: its bytes zeroed, its clusters, records and names given back.
//!
//! What is left of it is in Windows' own journals, which are not touched: $LogFile and $UsnJrnl may still have its
//! names, and $LogFile small changes of its bytes. The times of its directories stay.

use std::collections::BTreeMap;
use std::ops::Range;

use super::attribute::{
    ATTRIBUTE_LIST, Attribute, BITMAP, Body, COMPRESSED, DATA, ENCRYPTED, FILE_NAME, OBJECT_ID, OBJECT_IDS,
    REPARSE_POINT, SPARSE, attributes,
};
use super::attribute_list::Mft;
use super::boot::Geometry;
use super::consistency::Claim;
use super::edit::empty_attribute;
use super::index::Index;
use super::record::{FileRecord, le16, le64};
use super::volume::{BITMAP_RECORD, FIRST_USER_RECORD, LAST_SYSTEM_RECORD};
use super::{FileReference, NtfsError};
use crate::io::{Change, Draft, ReadAt};

/// What is zeroed at most, in bytes: answer files are a few KiB.
const MAX_SIZE: u64 = 32 << 20;
/// Windows allows 1023 hard links.
const MAX_NAMES: usize = 2048;
/// The folder of the file system's later files.
const EXTEND_RECORD: u64 = 11;
/// The namespace of 8.3 names that stand beside another.
const DOS_NAME: u8 = 2;
const STANDARD_INFORMATION: u32 = 0x10;
const SECURITY_DESCRIPTOR: u32 = 0x50;
const EA_INFORMATION: u32 = 0xd0;
const EA: u32 = 0xe0;
const LOGGED_UTILITY_STREAM: u32 = 0x100;

/// How a file is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlinked {
    /// The bytes of the volume to replace.
    pub changes: Vec<Change>,
    /// Why its names stay, with nothing in it; `None`: it is gone.
    pub emptied: Option<&'static str>,
    /// The names that go with it, without their folders; 8.3 names are left out.
    pub names: Vec<String>,
}

/// Works out what of the volume on `partition` changes when a file goes, under all its names.
///
/// All its clusters and resident bytes are zeroed. Where the file can't be unlinked, it is left without a byte in
/// it, and is said to be emptied. Compressed, sparse and encrypted files and reparse points are refused.
pub fn unlink(partition: &dyn ReadAt, file: FileReference) -> Result<Unlinked, NtfsError> {
    let target = Target::of(&open(partition)?, file)?;
    if let Some(changes) = target.remove(partition)? {
        return Ok(Unlinked { changes, emptied: None, names: target.names });
    }
    let why = "its directory's index has no room to be put together anew";
    Ok(Unlinked { changes: target.empty(partition)?, emptied: Some(why), names: target.names })
}

fn open<R: ReadAt>(volume: R) -> Result<Mft<R>, NtfsError> {
    let geometry = Geometry::read(&volume)?;
    Mft::open(volume, geometry)
}

/// A file to remove, checked.
struct Target {
    file: FileReference,
    /// The first one first.
    records: Vec<FileRecord>,
    /// How many names it has in each directory.
    parents: BTreeMap<FileReference, usize>,
    names: Vec<String>,
    /// $ObjId, where that knows the file.
    object_ids: Option<FileReference>,
}

impl Target {
    fn of<R: ReadAt>(mft: &Mft<R>, file: FileReference) -> Result<Self, NtfsError> {
        let base = mft.base_record(file.record)?;
        if base.sequence() != file.sequence {
            return Err(base.damaged("a directory entry refers to a file that is no more"));
        }
        let refused = |why| Err(NtfsError::Unlink { record: file.record, why });
        if file.record < FIRST_USER_RECORD || le16(&base.bytes, 22) != 1 {
            return refused("it is a folder or a file of the file system");
        }
        let records = mft.records_of(&base)?;
        let mut parents: BTreeMap<FileReference, usize> = BTreeMap::new();
        let (mut has_object_id, mut names) = (false, Vec::new());
        for record in &records {
            for found in attributes(record)? {
                match found.kind {
                    STANDARD_INFORMATION | ATTRIBUTE_LIST | SECURITY_DESCRIPTOR | EA_INFORMATION | EA => {}
                    LOGGED_UTILITY_STREAM if !is_efs(&found) => {}
                    DATA => check_plain(&found, file.record)?,
                    OBJECT_ID => has_object_id = true,
                    FILE_NAME => match found.body {
                        Body::Resident(value) if value.len() >= 66 => {
                            *parents.entry(FileReference::from_raw(le64(value, 0))).or_default() += 1;
                            let units: Vec<u16> =
                                value[66..].chunks_exact(2).map(|pair| le16(pair, 0)).collect();
                            let name = &units[..units.len().min(usize::from(value[64]))];
                            if value[65] != DOS_NAME {
                                names.push(String::from_utf16_lossy(name));
                            }
                        }
                        _ => return Err(base.damaged("one of its names is too short")),
                    },
                    LOGGED_UTILITY_STREAM => {
                        let (how, cure) = ("encrypted (EFS)", "decrypt it in Windows: cipher /d FILE");
                        return Err(NtfsError::Transformed { record: file.record, how, cure });
                    }
                    REPARSE_POINT => return refused("it is a reparse point, or compressed by Windows (WOF)"),
                    _ => return refused("it has an attribute that files don't have"),
                }
            }
        }
        if parents.is_empty() || parents.values().sum::<usize>() > MAX_NAMES {
            return Err(base.damaged("it has no name, or more than a file can have"));
        }
        for (parent, names) in &parents {
            let directory = directory(mft, *parent)?;
            if Index::open(mft, &directory)?.count(file)? != *names {
                return Err(base.damaged("its names are not those that its directory has"));
            }
        }
        let object_ids = if has_object_id { object_ids(mft)? } else { None };
        let object_ids = match object_ids {
            Some(index) => {
                let record = mft.base_record(index.record)?;
                match Index::open_named(mft, &record, OBJECT_IDS)?.count(file)? {
                    0 => None,
                    1 => Some(index),
                    _ => return Err(record.damaged("its index has two object identifiers for one file")),
                }
            }
            None => None,
        };
        Ok(Self { file, records, parents, names, object_ids })
    }

    /// The changes that unlink it; `None`: an index has no room.
    fn remove(&self, partition: &dyn ReadAt) -> Result<Option<Vec<Change>>, NtfsError> {
        let mut draft = Draft::new(partition);
        for (parent, names) in &self.parents {
            for _ in 0..*names {
                let mft = open(&draft)?;
                let directory = directory(&mft, *parent)?;
                let Some(changes) = Index::open(&mft, &directory)?.remove(&directory, self.file)? else {
                    return Ok(None);
                };
                drop(mft);
                apply(&mut draft, changes)?;
            }
        }
        if let Some(index) = self.object_ids {
            let mft = open(&draft)?;
            let record = mft.base_record(index.record)?;
            let Some(changes) = Index::open_named(&mft, &record, OBJECT_IDS)?.remove(&record, self.file)?
            else {
                return Ok(None);
            };
            drop(mft);
            apply(&mut draft, changes)?;
        }
        let mft = open(&draft)?;
        let changes = self.zero_and_free(&mft, |_| true)?;
        drop(mft);
        apply(&mut draft, changes)?;

        let mft = open(&draft)?;
        let mut changes = Vec::new();
        for record in &self.records {
            let mut record = record.clone();
            record.free();
            changes.extend(mft.write_record(&record)?);
        }
        let own = mft.base_record(0)?;
        let missing = || own.damaged("$MFT has no bitmap");
        let bitmap = mft.stream(&own, BITMAP, &[])?.ok_or_else(missing)?;
        let numbers = self.records.iter().map(|record| record.number..record.number + 1);
        changes.extend(mft.clear_bits(&bitmap, numbers)?);
        drop(mft);
        apply(&mut draft, changes)?;
        draft.changes().map(Some).map_err(NtfsError::read(0))
    }

    /// The changes that leave it with its names alone.
    fn empty(&self, partition: &dyn ReadAt) -> Result<Vec<Change>, NtfsError> {
        let [base] = self.records.as_slice() else {
            let why = "it can't be unlinked, and its attributes are spread over several records";
            return Err(NtfsError::Unlink { record: self.file.record, why });
        };
        let mut draft = Draft::new(partition);
        let mut record = base.clone();
        let cannot = || base.damaged("it can't be emptied");
        let used = record.used();
        record.bytes[used..].fill(0);
        // From the last on, so that the places of the others stay.
        for found in attributes(base)?.iter().rev() {
            let there = (found.start, found.length);
            match (found.kind, found.body) {
                (DATA, _) if !record.replace(there, &empty_attribute(found)) => return Err(cannot()),
                (FILE_NAME, Body::Resident(value)) => {
                    let mut value = value.to_vec();
                    value[40..56].fill(0);
                    if !record.replace_value(there, &value) {
                        return Err(cannot());
                    }
                }
                _ => {}
            }
        }
        let mft = open(&draft)?;
        let mut changes = self.zero_and_free(&mft, |found| found.kind == DATA)?;
        changes.extend(mft.write_record(&record)?);
        drop(mft);
        apply(&mut draft, changes)?;
        for (parent, names) in &self.parents {
            for nth in 0..*names {
                let mft = open(&draft)?;
                let directory = directory(&mft, *parent)?;
                let changes = Index::open(&mft, &directory)?.forget_size(&directory, self.file, nth)?;
                drop(mft);
                apply(&mut draft, changes)?;
            }
        }
        draft.changes().map_err(NtfsError::read(0))
    }

    /// The changes that zero and free the clusters of those attributes, which are checked to be the file's alone.
    fn zero_and_free<R: ReadAt>(
        &self,
        mft: &Mft<R>,
        which: impl Fn(&Attribute<'_>) -> bool,
    ) -> Result<Vec<Change>, NtfsError> {
        let own = mft.clusters(&self.records, which)?;
        let cluster_size = mft.geometry.cluster_size;
        let total = own.iter().fold(0u64, |sum, range| sum.saturating_add(range.end - range.start));
        if total > MAX_SIZE / cluster_size {
            let why = "it is larger than any answer file";
            return Err(NtfsError::Unlink { record: self.file.record, why });
        }
        self.check_clusters(mft, &own)?;
        let mut changes: Vec<_> = own
            .iter()
            .map(|range| Change {
                offset: range.start * cluster_size,
                bytes: vec![0; ((range.end - range.start) * cluster_size) as usize],
            })
            .collect();
        let record = mft.base_record(BITMAP_RECORD)?;
        let missing = || record.damaged("$Bitmap has no data");
        let bitmap = mft.stream(&record, DATA, &[])?.ok_or_else(missing)?;
        changes.extend(mft.clear_bits(&bitmap, own.into_iter())?);
        Ok(changes)
    }

    /// Makes sure that these clusters of the file, and those of the indexes that are edited, are nobody else's
    /// among the file system's own, and in use.
    fn check_clusters<R: ReadAt>(&self, mft: &Mft<R>, own: &[Range<u64>]) -> Result<(), NtfsError> {
        let mut claims = mft.system_claims()?;
        let mut claim = |record, found: Vec<Range<u64>>| {
            claims.extend(found.into_iter().map(|clusters| Claim { clusters, record }));
        };
        claim(self.file.record, own.to_vec());
        // The root folder is among the file system's own.
        for parent in self.parents.keys().filter(|parent| parent.record > LAST_SYSTEM_RECORD) {
            let records = mft.records_of(&directory(mft, *parent)?)?;
            claim(parent.record, mft.clusters(&records, |_| true)?);
        }
        if let Some(index) = self.object_ids {
            let records = mft.records_of(&mft.base_record(index.record)?)?;
            claim(index.record, mft.clusters(&records, |_| true)?);
        }
        match mft.first_free(claims)? {
            None => Ok(()),
            Some(record) => {
                let why = "it uses a cluster that $Bitmap calls free";
                Err(NtfsError::DamagedFile { record, why })
            }
        }
    }
}

fn directory<R: ReadAt>(mft: &Mft<R>, parent: FileReference) -> Result<FileRecord, NtfsError> {
    let record = mft.base_record(parent.record)?;
    if record.sequence() != parent.sequence || !record.is_directory() {
        return Err(record.damaged("a file's name refers to a directory that is no more"));
    }
    Ok(record)
}

/// \$Extend\$ObjId, where there is one.
fn object_ids<R: ReadAt>(mft: &Mft<R>) -> Result<Option<FileReference>, NtfsError> {
    let entries = Index::open(mft, &mft.base_record(EXTEND_RECORD)?)?.entries()?;
    let Some(entry) = entries.into_iter().find(|entry| entry.name == "$ObjId") else { return Ok(None) };
    let record = mft.base_record(entry.file.record)?;
    if record.sequence() != entry.file.sequence {
        return Err(record.damaged("a directory entry refers to a file that is no more"));
    }
    Ok(Some(entry.file))
}

fn is_efs(attribute: &Attribute<'_>) -> bool {
    attribute.name == b"$\0E\0F\0S\0"
}

fn check_plain(data: &Attribute<'_>, record: u64) -> Result<(), NtfsError> {
    let (how, cure) = match data.flags {
        flags if flags & COMPRESSED != 0 => {
            ("compressed by NTFS", "uncompress it in Windows: compact /u FILE")
        }
        flags if flags & ENCRYPTED != 0 => ("encrypted (EFS)", "decrypt it in Windows: cipher /d FILE"),
        flags if flags & SPARSE != 0 => ("sparse", "delete it in Windows"),
        _ => return Ok(()),
    };
    Err(NtfsError::Transformed { record, how, cure })
}

fn apply<R: ReadAt>(draft: &mut Draft<R>, changes: Vec<Change>) -> Result<(), NtfsError> {
    for change in changes {
        draft.write(change.offset, &change.bytes).map_err(NtfsError::read(change.offset))?;
    }
    Ok(())
}

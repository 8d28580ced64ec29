//! An NTFS volume: from paths to files.

use std::ops::Range;

use super::attribute::{BITMAP, DATA, REPARSE_POINT, attributes};
use super::attribute_list::Mft;
use super::boot::Geometry;
use super::index::Index;
use super::record::{FileRecord, le16, le32};
use super::upcase::Upcase;
use super::{Bitmap, Entry, File, FileReference, NtfsError};
use crate::io::ReadAt;

const MFT_RECORD: u64 = 0;
pub(super) const MFT_MIRROR_RECORD: u64 = 1;
pub(super) const LOGFILE_RECORD: u64 = 2;
pub(super) const VOLUME_RECORD: u64 = 3;
const ROOT_RECORD: u64 = 5;
pub(super) const BITMAP_RECORD: u64 = 6;
/// The last of the file system's own files with clusters that must not be another file's.
pub(super) const LAST_SYSTEM_RECORD: u64 = 11;
/// The records below are the file system's own, the unused ones among them too.
pub(super) const FIRST_USER_RECORD: u64 = 24;
/// Windows allows 16 KiB.
const MAX_REPARSE: u64 = 16 << 10;

/// An NTFS volume, read only. All offsets are bytes from its start.
#[derive(Debug)]
pub struct Volume<R> {
    pub(super) mft: Mft<R>,
    upcase: Upcase,
}

impl<R: ReadAt> Volume<R> {
    /// Opens the volume that fills `partition`; what state it is in, [`Volume::state`] tells.
    pub fn open(partition: R) -> Result<Self, NtfsError> {
        let geometry = Geometry::read(&partition)?;
        let mft = Mft::open(partition, geometry)?;
        let upcase = Upcase::read(&mft)?;
        Ok(Self { mft, upcase })
    }

    /// The partition's bytes.
    pub fn source(&self) -> &R {
        &self.mft.volume
    }

    /// The size of a cluster in bytes.
    pub fn cluster_size(&self) -> u64 {
        self.mft.geometry.cluster_size
    }

    /// How many whole clusters there are; $Bitmap has a bit for each.
    pub fn clusters(&self) -> u64 {
        self.mft.geometry.clusters
    }

    /// The size of a sector in bytes, as the boot sector has it.
    pub fn sector_size(&self) -> u64 {
        self.mft.geometry.sector_size
    }

    /// The number of sectors, without the boot sector's copy behind them.
    pub fn sectors(&self) -> u64 {
        self.mft.geometry.size / self.mft.geometry.sector_size
    }

    /// The bytes of the partition that belong to no cluster: a last part of one, the boot sector's copy, and
    /// what the file system does not reach to.
    pub fn tail(&self) -> Range<u64> {
        self.clusters() * self.cluster_size()..self.source().size()
    }

    /// Where the boot sector's copy lies; `None` where the partition ends before it.
    pub fn boot_copy(&self) -> Option<Range<u64>> {
        let start = self.mft.geometry.size;
        let end = start.checked_add(self.sector_size())?;
        (end <= self.source().size()).then_some(start..end)
    }

    /// Which clusters are in use.
    pub fn bitmap(&self) -> Result<Bitmap<'_, R>, NtfsError> {
        Bitmap::open(self)
    }

    /// The file at `path` (`Windows\System32\config\SYSTEM`), in whatever case; `None` where there is none.
    pub fn file(&self, path: &str) -> Result<Option<File<'_, R>>, NtfsError> {
        let Some(record) = self.resolve(path)? else { return Ok(None) };
        if record.is_directory() {
            return Err(NtfsError::IsDirectory { path: path.to_owned() });
        }
        self.open_file(&record).map(Some)
    }

    /// The names in the folder at `path`, in the volume's order; `None` where there is no such folder.
    ///
    /// The empty path is the root. A file's 8.3 name is left out where it has another.
    pub fn list(&self, path: &str) -> Result<Option<Vec<Entry>>, NtfsError> {
        let Some(record) = self.resolve(path)? else { return Ok(None) };
        if !record.is_directory() {
            return Ok(None);
        }
        self.refuse_reparse_point(&record, path)?;
        Index::open(&self.mft, &record)?.entries().map(Some)
    }

    /// The file that an [`Entry`] names.
    pub fn file_by_reference(&self, file: FileReference) -> Result<File<'_, R>, NtfsError> {
        self.open_file(&self.referenced(file)?)
    }

    /// The names in the folder that an [`Entry`] names.
    pub fn list_by_reference(&self, folder: FileReference) -> Result<Vec<Entry>, NtfsError> {
        let record = self.referenced(folder)?;
        if !record.is_directory() {
            return Err(record.damaged("it is no folder, but its entry says so"));
        }
        self.refuse_reparse_point(&record, &format!("folder {}", folder.record))?;
        Index::open(&self.mft, &record)?.entries()
    }

    fn referenced(&self, file: FileReference) -> Result<FileRecord, NtfsError> {
        let record = self.mft.base_record(file.record)?;
        if record.sequence() != file.sequence {
            return Err(record.damaged("a directory entry refers to a file that is no more"));
        }
        Ok(record)
    }

    fn resolve(&self, path: &str) -> Result<Option<FileRecord>, NtfsError> {
        let mut record = self.mft.base_record(ROOT_RECORD)?;
        let mut walked = String::new();
        for part in path.split(['\\', '/']).filter(|part| !part.is_empty()) {
            if !record.is_directory() {
                return Ok(None);
            }
            self.refuse_reparse_point(&record, &walked)?;
            let name: Vec<u16> = part.encode_utf16().collect();
            let Some(entry) = Index::open(&self.mft, &record)?.find(&self.upcase, &name)? else {
                return Ok(None);
            };
            record = self.referenced(entry.file)?;
            if !walked.is_empty() {
                walked.push('\\');
            }
            walked.push_str(part);
        }
        Ok(Some(record))
    }

    fn refuse_reparse_point(&self, record: &FileRecord, path: &str) -> Result<(), NtfsError> {
        match self.reparse_tag(record)? {
            None => Ok(()),
            Some(tag) => Err(NtfsError::ReparsePoint { path: path.to_owned(), tag }),
        }
    }

    fn reparse_tag(&self, record: &FileRecord) -> Result<Option<u32>, NtfsError> {
        let Some(point) = self.mft.stream(record, REPARSE_POINT, &[])? else { return Ok(None) };
        let value = point.read_all(&self.mft.volume, &self.mft.geometry, MAX_REPARSE)?;
        if value.len() < 8 {
            return Err(record.damaged("its reparse point is too short"));
        }
        Ok(Some(le32(&value, 0)))
    }

    /// Where a junction or a symbolic link leads, as Windows has it (`\\??\\C:\\ProgramData`); `None` for another
    /// kind of reparse point, a relative link, and for what is none.
    ///
    /// [MS-FSCC] 2.1.2.4 and 2.1.2.5: tag, length, 2 bytes; then offset and length of the name, of the printed name,
    /// flags in a link (1: relative), and the names in UTF-16.
    pub fn link_target(&self, path: &str) -> Result<Option<String>, NtfsError> {
        const JUNCTION: u32 = 0xA000_0003;
        const LINK: u32 = 0xA000_000C;
        let Some((parent, name)) = path.rsplit_once('\\').or(Some(("", path))) else { return Ok(None) };
        let Some(folder) = self.resolve(parent)? else { return Ok(None) };
        let name: Vec<u16> = name.encode_utf16().collect();
        let Some(entry) = Index::open(&self.mft, &folder)?.find(&self.upcase, &name)? else {
            return Ok(None);
        };
        let record = self.referenced(entry.file)?;
        let Some(point) = self.mft.stream(&record, REPARSE_POINT, &[])? else { return Ok(None) };
        let value = point.read_all(&self.mft.volume, &self.mft.geometry, MAX_REPARSE)?;
        if value.len() < 20 {
            return Ok(None);
        }
        let names = match le32(&value, 0) {
            JUNCTION => 16,
            LINK if le32(&value, 16) & 1 == 0 => 20,
            _ => return Ok(None),
        };
        let start = names + usize::from(le16(&value, 8));
        let Some(target) = value.get(start..start + usize::from(le16(&value, 10))) else { return Ok(None) };
        let units: Vec<u16> = target.chunks_exact(2).map(|pair| le16(pair, 0)).collect();
        Ok(Some(String::from_utf16_lossy(&units)))
    }

    /// Whether a file has alternate data streams.
    pub fn has_named_streams(&self, file: FileReference) -> Result<bool, NtfsError> {
        let base = self.referenced(file)?;
        for record in self.mft.records_of(&base)? {
            if attributes(&record)?.iter().any(|found| found.kind == DATA && !found.name.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn open_file(&self, record: &FileRecord) -> Result<File<'_, R>, NtfsError> {
        let stream = self.mft.stream(record, DATA, &[])?;
        let stream = stream.ok_or_else(|| record.damaged("it has no data"))?;
        let reference = FileReference { record: record.number, sequence: record.sequence() };
        Ok(File::new(self, reference, stream, self.reparse_tag(record)?, record.names()))
    }

    /// All file records, one after the other.
    pub fn mft(&self) -> Result<File<'_, R>, NtfsError> {
        self.system_file(MFT_RECORD)
    }

    /// The copy of the first file records.
    pub fn mft_mirror(&self) -> Result<File<'_, R>, NtfsError> {
        self.system_file(MFT_MIRROR_RECORD)
    }

    /// Which file records are in use, a bit each.
    pub fn mft_bitmap(&self) -> Result<File<'_, R>, NtfsError> {
        let record = self.mft.base_record(MFT_RECORD)?;
        let stream = self.mft.stream(&record, BITMAP, &[])?;
        let stream = stream.ok_or_else(|| record.damaged("$MFT has no bitmap"))?;
        let reference = FileReference { record: record.number, sequence: record.sequence() };
        Ok(File::new(self, reference, stream, None, record.names()))
    }

    /// The size of a file record in bytes.
    pub fn record_size(&self) -> u64 {
        self.mft.geometry.record_size
    }

    /// A metadata file by its fixed number.
    pub(super) fn system_file(&self, number: u64) -> Result<File<'_, R>, NtfsError> {
        self.open_file(&self.mft.base_record(number)?)
    }
}

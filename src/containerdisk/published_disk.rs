//! The disk in a published layer, read without unpacking the layer.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::tar::{Archive, EntryType};
use thiserror::Error;

use super::seek_table::{SeekTable, SeekTableError};
use super::seekable::SeekableTar;
use crate::disk::qcow2::{self, Qcow2, Qcow2Error};
use crate::io::{Cursor, ReadAt, Window};

/// What is read of the tar to find the disk: headers, and what extends them. More would be made up.
const MAX_HEADERS: u64 = 16 << 20;
/// Entries that are looked at before the disk's: a containerDisk has one.
const MAX_ENTRIES: usize = 64;

/// Why the disk in a layer can't be read.
#[derive(Debug, Error)]
pub enum PublishedDiskError {
    /// Parts of the layer can't be read alone.
    #[error(transparent)]
    SeekTable(#[from] SeekTableError),
    /// The tar's headers can't be read.
    #[error("the tar in the layer can't be read")]
    Tar(#[source] io::Error),
    /// There is no disk in it.
    #[error("the layer holds no containerDisk: {why}")]
    NoDisk {
        /// What was found.
        why: String,
    },
    /// The disk is a qcow2 image that can't be read.
    #[error(transparent)]
    Qcow2(#[from] Qcow2Error),
}

/// The disk in a layer.
///
/// Of the layer, only what is needed is read; nothing is checked against its digest.
pub struct PublishedDisk<R> {
    content: Content<R>,
    file_size: u64,
    frames: Option<usize>,
    fetched: Arc<AtomicU64>,
}

type File<R> = Window<SeekableTar<Counted<R>>>;

enum Content<R> {
    Raw(File<R>),
    Qcow2(Box<Qcow2<File<R>>>),
}

impl<R: ReadAt> PublishedDisk<R> {
    /// Opens the disk in a layer of this media type: the first file below `disk/`, as CDI finds it.
    pub fn open(layer: R, media_type: &str) -> Result<Self, PublishedDiskError> {
        let fetched = Arc::default();
        let layer = Counted { source: layer, read: Arc::clone(&fetched) };
        let table = SeekTable::read(&layer, media_type)?;
        let frames = table.frames();
        let tar = SeekableTar::new(layer, table);
        let place = find(&tar)?;
        let file_size = place.end - place.start;
        let cut = || PublishedDiskError::NoDisk { why: "the tar ends within the disk".into() };
        let file = Window::new(tar, place.start, file_size).ok_or_else(cut)?;
        let content = match qcow2::has_magic(&file)? {
            true => Content::Qcow2(Box::new(Qcow2::open(file)?)),
            false => Content::Raw(file),
        };
        Ok(Self { content, file_size, frames, fetched })
    }

    /// Bytes of the disk's file, as it is in the tar.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// How many frames the layer's seek table lists; none for a plain tar.
    pub fn frames(&self) -> Option<usize> {
        self.frames
    }

    /// Bytes of the layer that were read so far.
    pub fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    fn reader(&self) -> &dyn ReadAt {
        match &self.content {
            Content::Raw(file) => file,
            Content::Qcow2(image) => image.as_ref(),
        }
    }
}

/// Counts what is read of the layer.
struct Counted<R> {
    source: R,
    read: Arc<AtomicU64>,
}

impl<R: ReadAt> ReadAt for Counted<R> {
    fn size(&self) -> u64 {
        self.source.size()
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.source.read_exact_at(buf, offset)
    }
    fn check_unchanged(&self) -> io::Result<()> {
        self.source.check_unchanged()
    }
}

/// A source of which only so much is read.
struct Budget<'t> {
    tar: &'t dyn ReadAt,
    left: AtomicU64,
}

impl ReadAt for Budget<'_> {
    fn size(&self) -> u64 {
        self.tar.size()
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let spend = |left: u64| left.checked_sub(buf.len() as u64);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_err() {
            return Err(io::Error::other("its headers are larger than those of any image"));
        }
        self.tar.read_exact_at(buf, offset)
    }
}

/// Where the disk's file lies in the tar.
fn find(tar: &dyn ReadAt) -> Result<Range<u64>, PublishedDiskError> {
    let mut archive = Archive::new(Cursor::new(Budget { tar, left: AtomicU64::new(MAX_HEADERS) }));
    let entries = archive.entries_with_seek().map_err(PublishedDiskError::Tar)?;
    let mut seen = Vec::new();
    let mut disk: Option<(String, Range<u64>)> = None;
    for entry in entries.take(MAX_ENTRIES) {
        let entry = entry.map_err(PublishedDiskError::Tar)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let kind = entry.header().entry_type();
        if kind != EntryType::Directory && name.strip_prefix("./").unwrap_or(&name).starts_with("disk/") {
            let start = entry.raw_file_position();
            let no_disk = |why| Err(PublishedDiskError::NoDisk { why });
            // Of two, unpackers take the last, and others the first: what is audited must be what is booted.
            if let Some((first, _)) = &disk {
                return no_disk(format!("{first} and {name} are both in its disk/"));
            }
            match start.checked_add(entry.size()) {
                Some(end) if kind == EntryType::Regular => disk = Some((name.clone(), start..end)),
                _ => return no_disk(format!("{name} is no regular file: {kind:?}")),
            }
        }
        seen.push(name);
    }
    if let Some((_, place)) = disk {
        return match seen.len() < MAX_ENTRIES {
            true => Ok(place),
            false => {
                Err(PublishedDiskError::NoDisk { why: "its tar has more entries than any image's".into() })
            }
        };
    }
    let why = match seen.is_empty() {
        true => "its tar is empty".into(),
        false => format!("no disk/ among {}", seen.iter().take(5).cloned().collect::<Vec<_>>().join(", ")),
    };
    Err(PublishedDiskError::NoDisk { why })
}

impl<R: ReadAt> ReadAt for PublishedDisk<R> {
    fn size(&self) -> u64 {
        self.reader().size()
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.reader().read_exact_at(buf, offset)
    }
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        self.reader().next_data(from)
    }
    fn check_unchanged(&self) -> io::Result<()> {
        self.reader().check_unchanged()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ::tar::{Builder, Header};

    const TAR: &str = "application/vnd.oci.image.layer.v1.tar";

    /// A tar of these entries, each of this many sevens.
    fn tar(entries: &[(&str, EntryType, usize)]) -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        for (name, kind, size) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            header.set_size(*size as u64);
            tar.append_data(&mut header, name, &vec![7; *size][..]).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn error(tar: Vec<u8>) -> String {
        PublishedDisk::open(tar, TAR).err().unwrap().to_string()
    }

    #[test]
    fn the_disk_is_found_where_cdi_finds_it() {
        let long = "x".repeat(300);
        let before = [(&*long, EntryType::Regular, 3000), ("disk/", EntryType::Directory, 0)];
        for name in ["disk/any.img", "./disk/disk.raw"] {
            let disk =
                PublishedDisk::open(tar(&[&before[..], &[(name, EntryType::Regular, 1000)]].concat()), TAR);
            let disk = disk.unwrap();
            assert_eq!((disk.size(), disk.file_size(), disk.frames()), (1000, 1000, None));
            let mut read = [0; 1000];
            disk.read_exact_at(&mut read, 0).unwrap();
            assert_eq!(read, [7; 1000]);
        }
    }

    #[test]
    fn what_is_no_disk_is_told() {
        assert!(error(tar(&[])).contains("empty"));
        assert!(error(tar(&[("etc/x", EntryType::Regular, 1)])).contains("no disk/ among etc/x"));
        assert!(error(tar(&[("disk/x", EntryType::Fifo, 0)])).contains("no regular file"));
        let mut cut = tar(&[("disk/x", EntryType::Regular, 100_000)]);
        cut.truncate(50_000);
        assert!(error(cut).contains("ends within the disk"));
    }

    #[test]
    fn a_header_without_end_is_not_read_to_its_end() {
        let name = tar(&[("x", EntryType::GNULongName, 20 << 20), ("disk/x", EntryType::Regular, 1)]);
        let error = PublishedDisk::open(name, TAR).err().unwrap();
        assert!(matches!(error, PublishedDiskError::Tar(_)), "{error:?}");
    }
}

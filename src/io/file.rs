//! A file on this machine as a [`ReadAt`].

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::SeekFrom;

use super::ReadAt;
use super::read_at::checked_range;

/// A regular file or block device. Nothing is written through it but by who asked for that.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    metadata: Metadata,
    size: u64,
}

impl SourceFile {
    /// Opens `path`; anything but a regular file or a block device is `InvalidInput`.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, OpenOptions::new().read(true))
    }

    /// As [`SourceFile::open`], for one who will write to [`SourceFile::as_file`] too.
    pub fn open_writable(path: &Path) -> io::Result<Self> {
        Self::open_with(path, OpenOptions::new().read(true).write(true))
    }

    fn open_with(path: &Path, how: &OpenOptions) -> io::Result<Self> {
        // A FIFO would hang in open(2): look first, then look at what was opened.
        refuse_special(&std::fs::metadata(path)?)?;
        let file = how.open(path)?;
        let metadata = file.metadata()?;
        refuse_special(&metadata)?;
        let size =
            if metadata.is_file() { metadata.len() } else { rustix::fs::seek(&file, SeekFrom::End(0))? };
        Ok(Self { file, metadata, size })
    }

    /// What the file system said of the file when it was opened.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The open file: for hints to the kernel and for locks.
    pub fn as_file(&self) -> &File {
        &self.file
    }
}

fn refuse_special(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    let what = if kind.is_dir() { "a folder" } else { "a special file" };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("this is {what}, not a file or block device")))
}

impl ReadAt for SourceFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        checked_range(offset, buf.len(), self.size)?;
        self.file.read_exact_at(buf, offset)
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        if from >= self.size {
            return Ok(None);
        }
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            // No holes known here (block devices, some file systems): all of it is data.
            Err(_) => return Ok(Some(from..self.size)),
        };
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).unwrap_or(self.size).min(self.size);
        Ok((start < end).then_some(start..end))
    }

    /// Compares size and the times of modification and of change: the first can be put back. Writes to a block device can't be seen this way.
    fn check_unchanged(&self) -> io::Result<()> {
        let now = self.file.metadata()?;
        let times = |of: &Metadata| (of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec());
        if self.metadata.is_file() && (now.len() != self.size || times(&now) != times(&self.metadata)) {
            return Err(io::Error::other("the file was changed while it was being read"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn holes_are_skipped_and_ends_are_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8 << 20).unwrap();
        file.as_file().write_all_at(b"here", 4 << 20).unwrap();
        let source = SourceFile::open(file.path()).unwrap();
        let data = source.next_data(0).unwrap().unwrap();
        assert!(data.contains(&(4 << 20)), "{data:?}");
        assert!(source.next_data(8 << 20).unwrap().is_none());
        let mut buf = [0; 4];
        source.read_exact_at(&mut buf, 4 << 20).unwrap();
        assert_eq!(&buf, b"here");
        assert!(source.read_exact_at(&mut buf, (8 << 20) - 3).is_err());
    }

    #[test]
    fn a_write_while_reading_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(b"before", 0).unwrap();
        let source = SourceFile::open(file.path()).unwrap();
        source.check_unchanged().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.as_file().write_all_at(b"after!", 0).unwrap();
        assert!(source.check_unchanged().unwrap_err().to_string().contains("changed"));
        file.as_file().set_modified(source.metadata().modified().unwrap()).unwrap();
        assert!(source.check_unchanged().unwrap_err().to_string().contains("changed"));
    }

    #[test]
    fn a_folder_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        assert!(SourceFile::open(folder.path()).unwrap_err().to_string().contains("folder"));
    }
}

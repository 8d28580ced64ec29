//! A raw file, which appears under its name when it is whole.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate};

use super::{Clear, Target, TargetError};
use crate::disk::lock;
use crate::io::{NewFile, Privacy, SourceFile, Task};

/// A raw file in the making; dropped before [`FileTarget::finish`], it leaves nothing.
#[derive(Debug)]
pub struct FileTarget {
    new: NewFile,
    size: u64,
}

/// Zeros written at once, in bytes.
pub(super) const ZEROS_AT_ONCE: u64 = 4 << 20;

impl FileTarget {
    /// Begins the file at `path`. One that is there is refused, or with `replace` stays until the new one is whole.
    pub fn create(path: &Path, replace: bool) -> Result<Self, TargetError> {
        let there = path.symlink_metadata().is_ok();
        if there && !replace {
            return Err(TargetError::Exists);
        }
        if !there {
            return Ok(Self { new: NewFile::create(path, Privacy::Public)?, size: 0 });
        }
        // Whoever has the old file open would go on with it, and nobody would know which is meant.
        let path = path.canonicalize().map_err(TargetError::Open)?;
        if let Some(device) = lock::loop_device(&path) {
            return Err(TargetError::InUse { by: vec![format!("it is behind {}", device.display())] });
        }
        let old = SourceFile::open_writable(&path).map_err(TargetError::Open)?;
        lock::exclusive(old.as_file()).map_err(super::device::denied)?;
        // As private as it was, and whose it was where that can be had.
        let new = NewFile::replace(&path, Privacy::Secret)?;
        new.inherit(old.metadata()).map_err(TargetError::Open)?;
        Ok(Self { new, size: 0 })
    }

    /// Gives the file its name.
    pub fn finish(self) -> Result<(), TargetError> {
        Ok(self.new.finish()?)
    }
}

fn failed(doing: &'static str, offset: u64) -> impl FnOnce(io::Error) -> TargetError {
    move |source| TargetError::Io { doing, offset, source }
}

impl Target for FileTarget {
    fn capacity(&self) -> Option<u64> {
        None
    }

    fn sector_size(&self) -> Option<u32> {
        None
    }

    fn is_new(&self) -> bool {
        true
    }

    fn set_size(&mut self, size: u64) -> Result<(), TargetError> {
        self.size = size;
        self.new.as_file().set_len(size).map_err(failed("setting the file's size", size))
    }

    fn write(&mut self, bytes: &[u8], offset: u64, _: &dyn Task) -> Result<(), TargetError> {
        self.new.as_file().write_all_at(bytes, offset).map_err(failed("writing", offset))
    }

    fn clear(&mut self, range: Range<u64>, how: Clear, task: &dyn Task) -> Result<(), TargetError> {
        if how == Clear::Punch {
            return Ok(()); // A new file's holes are holes.
        }
        task.advance(0)?;
        // Without a flag: allocated, and zeros. Where the file system can't, zeros are written.
        let length = range.end - range.start;
        if fallocate(self.new.as_file(), FallocateFlags::empty(), range.start, length).is_ok() {
            return Ok(());
        }
        write_zeros(range, task, |zeros, at| {
            self.new.as_file().write_all_at(zeros, at).map_err(failed("writing zeros", at))
        })
    }

    fn sync(&mut self, _: &dyn Task) -> Result<(), TargetError> {
        self.new.as_file().sync_data().map_err(failed("flushing", 0))
    }

    fn forget(&mut self) {
        // A hint; where it is not taken, memory is read instead.
        let _ = fadvise(self.new.as_file(), 0, None, Advice::DontNeed);
    }

    fn read(&mut self, buf: &mut [u8], offset: u64, _: &dyn Task) -> Result<(), TargetError> {
        self.new.as_file().read_exact_at(buf, offset).map_err(failed("reading back", offset))
    }

    fn next_data(&mut self, from: u64) -> Option<Range<u64>> {
        let file = self.new.as_file();
        if from >= self.size {
            return None;
        }
        let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return None,
            Err(_) => return Some(from..self.size),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(self.size).min(self.size);
        (start < end).then_some(start..end)
    }
}

/// Writes zeros in pieces, asking in between whether to go on.
pub(super) fn write_zeros(
    range: Range<u64>,
    task: &dyn Task,
    mut write: impl FnMut(&[u8], u64) -> Result<(), TargetError>,
) -> Result<(), TargetError> {
    let zeros = vec![0; ZEROS_AT_ONCE.min(range.end - range.start) as usize];
    let mut at = range.start;
    while at < range.end {
        task.advance(0)?;
        let piece = (range.end - at).min(ZEROS_AT_ONCE) as usize;
        write(&zeros[..piece], at)?;
        at += piece as u64;
    }
    Ok(())
}

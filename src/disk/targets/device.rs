//! A block device: a LUN, a disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::libc;
use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate};

use super::file::write_zeros;
use super::{Clear, Target, TargetError, holders};
use crate::disk::lock::{self, Denied};
use crate::io::Task;

/// What one call clears at most: between two of them a Ctrl-C is heard.
const CLEAR_AT_ONCE: u64 = 256 << 20;
/// udev holds a lock for the moment it looks at a device.
const LOCK_TRIES: u32 = 10;

/// A block device that nobody else has until this is dropped.
#[derive(Debug)]
pub struct Device {
    file: File,
    size: u64,
    sector_size: Option<u32>,
    /// Cleared the cheap way; not asked again once the device has said no.
    can_punch: bool,
    can_zero: bool,
}

impl Device {
    /// Opens the device at `path`, unless somebody has it; a partition only if `partition` allows it.
    pub fn open(path: &Path, partition: bool) -> Result<Self, TargetError> {
        let in_use = holders::of(path);
        if !in_use.is_empty() {
            return Err(TargetError::InUse { by: in_use });
        }
        if !partition && holders::is_partition(path) {
            return Err(TargetError::Partition);
        }
        // Linux lets nobody have a device so that is mounted, or any of whose partitions is, swap, or held by the
        // device mapper or a RAID; also in another container.
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(path);
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => TargetError::InUse { by: vec!["the kernel says it is busy".into()] },
            _ => TargetError::Open(error),
        })?;
        lock_device(&file)?;
        let size = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|e| TargetError::Open(e.into()))?;
        let sector_size = holders::sector_size(path);
        Ok(Self { file, size, sector_size, can_punch: true, can_zero: true })
    }

    fn fallocate(
        &self,
        flags: FallocateFlags,
        range: Range<u64>,
        task: &dyn Task,
    ) -> Result<Option<u64>, TargetError> {
        let mut at = range.start;
        while at < range.end {
            task.advance(0)?;
            let length = (range.end - at).min(CLEAR_AT_ONCE);
            match fallocate(&self.file, flags, at, length) {
                Ok(()) => at += length,
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL | rustix::io::Errno::NODEV) => {
                    return Ok(Some(at));
                }
                Err(errno) => return Err(failed("clearing", at)(errno.into())),
            }
        }
        Ok(None)
    }
}

fn lock_device(file: &File) -> Result<(), TargetError> {
    for _ in 1..LOCK_TRIES {
        match lock::exclusive(file) {
            Err(Denied::Other) => std::thread::sleep(Duration::from_millis(200)),
            other => return other.map_err(denied),
        }
    }
    lock::exclusive(file).map_err(denied)
}

/// As an error of a target.
pub(super) fn denied(denied: Denied) -> TargetError {
    match denied {
        Denied::Qemu => TargetError::InUse { by: vec!["QEMU has it open (a running VM?)".into()] },
        Denied::Other => TargetError::InUse { by: vec!["another program holds a lock on it".into()] },
        Denied::Failed(error) => TargetError::Open(error),
    }
}

fn failed(doing: &'static str, offset: u64) -> impl FnOnce(io::Error) -> TargetError {
    move |source| TargetError::Io { doing, offset, source }
}

impl Target for Device {
    fn capacity(&self) -> Option<u64> {
        Some(self.size)
    }

    fn sector_size(&self) -> Option<u32> {
        self.sector_size
    }

    fn is_new(&self) -> bool {
        false
    }

    fn set_size(&mut self, _: u64) -> Result<(), TargetError> {
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], offset: u64, _: &dyn Task) -> Result<(), TargetError> {
        self.file.write_all_at(bytes, offset).map_err(failed("writing", offset))
    }

    /// Linux gives these two calls on a block device a promise that a discard does not have: zeros are read after.
    fn clear(&mut self, mut range: Range<u64>, how: Clear, task: &dyn Task) -> Result<(), TargetError> {
        if how == Clear::Punch && self.can_punch {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let Some(at) = self.fallocate(flags, range.clone(), task)? else { return Ok(()) };
            (self.can_punch, range.start) = (false, at);
        }
        if self.can_zero {
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            let Some(at) = self.fallocate(flags, range.clone(), task)? else { return Ok(()) };
            (self.can_zero, range.start) = (false, at);
        }
        write_zeros(range, task, |zeros, at| {
            self.file.write_all_at(zeros, at).map_err(failed("writing zeros", at))
        })
    }

    fn sync(&mut self, _: &dyn Task) -> Result<(), TargetError> {
        self.file.sync_data().map_err(failed("flushing", 0))
    }

    fn forget(&mut self) {
        // A hint; where it is not taken, memory is read instead.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn read(&mut self, buf: &mut [u8], offset: u64, _: &dyn Task) -> Result<(), TargetError> {
        self.file.read_exact_at(buf, offset).map_err(failed("reading back", offset))
    }

    fn next_data(&mut self, from: u64) -> Option<Range<u64>> {
        (from < self.size).then_some(from..self.size)
    }
}

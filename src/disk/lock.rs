//! Keeping a disk to ourselves, against all who ask for locks: QEMU, libvirt, another sealroot.
//!
//! QEMU (block/file-posix.c) says what it does with an image by read locks on single bytes of the file, from
//! 100 for what it does and from 200 for what it does not let others do. A write lock on the whole file can't be
//! had beside any of these, and keeps QEMU from getting them. These locks belong to the open file and end with it.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};
use rustix::fs::FlockOperation;

/// Where QEMU's bytes begin.
const QEMU_FIRST: libc::off_t = 100;
const QEMU_LENGTH: libc::off_t = 200;

/// Why the lock is not ours.
#[derive(Debug)]
pub(super) enum Denied {
    /// QEMU has the image open.
    Qemu,
    /// Somebody else has.
    Other,
    /// The file system does not give locks.
    Failed(io::Error),
}

fn write_lock(l_start: libc::off_t, l_len: libc::off_t) -> flock {
    flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start,
        l_len,
        l_pid: 0,
    }
}

/// Locks all of `file` (open for writing) until it is closed, without waiting.
pub(super) fn exclusive(file: &File) -> Result<(), Denied> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&write_lock(0, 0))) {
        Ok(_) => {}
        Err(Errno::EAGAIN | Errno::EACCES) => {
            let mut holder = write_lock(QEMU_FIRST, QEMU_LENGTH);
            let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut holder));
            // A lock on everything is not QEMU's.
            let qemu = asked.is_ok()
                && holder.l_type != libc::F_UNLCK as libc::c_short
                && holder.l_start >= QEMU_FIRST;
            return Err(if qemu { Denied::Qemu } else { Denied::Other });
        }
        Err(errno) => return Err(Denied::Failed(errno.into())),
    }
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Denied::Other),
        Err(errno) => Err(Denied::Failed(errno.into())),
    }
}

/// The loop device that has the file at `path` behind it, if there is one: loop devices take no locks.
pub(super) fn loop_device(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    // Where there is no /sys, there is nothing to be seen.
    std::fs::read_dir("/sys/block").ok()?.flatten().find_map(|device| {
        let backing = std::fs::read(device.path().join("loop/backing_file")).ok()?;
        let is_ours = backing.trim_ascii_end() == path.as_os_str().as_bytes();
        is_ours.then(|| Path::new("/dev").join(device.file_name()))
    })
}
